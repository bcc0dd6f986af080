"""The page of a recording of GPUs says one thing once: one floor, every loss that was timed, one count of problems."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.widgets.conftest import run
from workbench import resources
from workbench.charts import sweep, trials, waterfall
from workbench.results.store import Store
from workbench.widgets.explorer_page import Explorer
from workbench.widgets.panels import ALONG, LOSSES, TRIALS

MakeExplorer = Callable[..., Explorer]
PIECES, CONCURRENT = "h200_nvl2_pieces", "h200_nvl2_concurrent"
LAST = ".3"
"""Ends the name of the block in which each part was timed."""


@pytest.fixture
def replayed(
    make_explorer: MakeExplorer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, int], Explorer]:
    """replayed(name, count): an explorer that has played the first *count* problems of a recording that is shipped."""

    def play(name: str, count: int) -> Explorer:
        whole = (resources.data_directory() / "recordings" / f"{name}.jsonl").read_text().splitlines(keepends=True)
        blocks = [json.loads(line)["block"] for line in whole]
        kept = [line for line, block in zip(whole, blocks, strict=True) if int(block.split(".p")[1][:-2]) <= count]
        (tmp_path / f"{name}.jsonl").write_text("".join(kept))
        monkeypatch.setattr("workbench.results.recordings.paths", lambda: {name: tmp_path / f"{name}.jsonl"})
        explorer = make_explorer(cluster=None)
        explorer.source.source.value = "recordings"
        explorer.source.speed.value = float("inf")
        run(explorer)
        return explorer

    return play


def test_a_replay_has_one_floor_and_every_loss_that_was_timed(
    replayed: Callable[[str, int], Explorer], store: Store
) -> None:
    explorer = replayed(PIECES, 1)
    (floor,) = {row["floor_s"] for row in store.rows(explorer.run_id) if row["source"] == "recorded"} - {None}
    said = f"{1e6 * floor:.0f} µs"
    assert f"<b>{said}</b> floor" in explorer.page.headline.value
    panels, drawn = explorer.panels, [pytest.approx(1e3 * floor)]
    panels.open = TRIALS
    assert [*{mark["time_ms"] for mark in panels.trials.rows(trials.DATASET) if mark["look"] == "floor"}] == drawn
    panels.open = ALONG
    along = panels.along.chart.rows(sweep.DATASET)
    assert [*{mark["floor_ms"] for mark in along if not mark["is_estimate"]}] == drawn
    assert "Floor" not in [column["heading"] for column in explorer.results.outcomes.parts[0]["columns"]]
    panels.open = LOSSES
    notes = set()
    for row in panels.problem.shown:
        if row["source"] == "recorded" and row["block"].endswith(LAST):
            panels.choose(row["key"])
            words = {part["name"]: part["words"] for part in panels.losses.chart.rows(waterfall.DATASET)}
            assert words["floor"] == said
            assert "not known" not in words.values(), (row["scheme"], panels.losses.note.value)
            assert "Not known" not in panels.losses.note.value
            assert "run it by itself" not in panels.losses.note.value
            notes.add(panels.losses.note.value.partition(":")[0])
    assert len(notes) == 5, "each schedule of the last block has words of its own"


def test_a_replay_counts_each_problem_once_and_asks_nobody_to_measure(
    replayed: Callable[[str, int], Explorer],
) -> None:
    explorer = replayed(CONCURRENT, 2)
    titles = [title for title, _ in explorer.panels.problem.list.options]
    assert [title.rpartition("protocol ")[2] for title in titles[:2]] == [
        "first_device: a first look, few iterations", "device: at length, many iterations"]  # fmt: skip
    for number in range(4):
        explorer.panels.problem.list.index = number
        assert "One of 2 problems, in 4 entries: protocols differ." in explorer.panels.problem.note.value
    notes = [part["note"] for part in explorer.results.outcomes.parts]
    assert ["There is no speed-up" in note for note in notes] == [True, False] * 2
    assert not any("--fresh" in note for note in notes)
    assert "one micro-batch of 16" in explorer.page.headline.value
