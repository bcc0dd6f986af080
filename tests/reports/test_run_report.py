"""A run as a notebook, from rows and from a store: every part is there, every number comes from the rows."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import altair as alt
import nbformat
import pytest
from bs4 import BeautifulSoup
from nbformat import NotebookNode

from kernels.trial import GPU_ONLY, protocol
from tests.reports.conftest import joined, row
from workbench import machines
from workbench.charts import theme, timeline, trials
from workbench.experiment.question import Request, commands
from workbench.experiment.run import Replay
from workbench.experiment.sources import FromRecordings
from workbench.reports.export import export
from workbench.reports.pictures import CHART, PICTURE, bundle, title_text
from workbench.reports.run_report import NO_COMMAND, CaseDrawing, recorded_text, run_report, stored_report, swept
from workbench.reports.side_by_side import RunSummary, side_by_side, stored_runs
from workbench.reports.tables import prose
from workbench.results import recordings
from workbench.results.store import Store

# A run as a notebook: every part is there, every name is text, every number comes from the rows.


def headings(notebook: NotebookNode) -> list[str]:
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    return [line for line in text.splitlines() if line.startswith("#")]


def shown(notebook: NotebookNode) -> str:
    outputs = [output.data.get("text/markdown", "") for cell in notebook.cells for output in cell.get("outputs", ())]
    return "\n".join([*(cell.source for cell in notebook.cells), *outputs])


def test_a_report_has_all_its_parts_in_order(report: NotebookNode) -> None:
    nbformat.validate(report)
    found = [heading for heading in headings(report) if "Chart" not in heading and not heading.startswith("# ")]
    assert found == [
        "## How far to trust it",
        "## Measure it again",
        "## The question",
        "## What came back",
        "## All outcomes",
        "### The same in every row",
        "### What failed, and why",
        "## Comparison with published results",
        "## Where the numbers come from",
        "## Method",
        "## Provenance",
    ]
    assert sum(CHART in output.data for cell in report.cells for output in cell.get("outputs", ())) == 3


def test_facts_rows_and_cautions_are_shown(report: NotebookNode) -> None:
    text = shown(report)
    assert "Run 2025-a" in text
    assert "64 × 32 | 128 × 32" in text
    assert "Memory: 2 GB" in text
    assert "Outcomes: 3 measured, 1 estimated, 1 failed." in text
    assert "The guess: **60 ms**" in text
    assert "4 ranks share 2 cores" in text


@pytest.mark.parametrize(("backend", "told"), [("cpu", False), ("triton", True)])
def test_what_only_a_gpu_does_is_not_said_of_cpu_ranks(backend: str, told: bool) -> None:
    text = shown(run_report({"backend": backend, "protocol": protocol("latency").to_json()}, [row("fused", 0.1)]))
    assert "latency, warmups = 5, repeats = 50" in text
    stated = [name for name in GPU_ONLY if name in protocol("latency").to_json()]
    assert [f"{name} = " in text for name in stated] == [told] * 3


def test_no_name_becomes_markup(report: NotebookNode, markup: str) -> None:
    pages = [cell.source for cell in report.cells]
    pages += [output.data.get("text/html", "") for cell in report.cells for output in cell.get("outputs", ())]
    assert "<script" not in "".join(pages)
    assert markup in report.metadata.title


def test_a_part_alone_is_never_the_fastest_and_has_its_own_table() -> None:
    text = shown(run_report({}, [row("sequential", 0.08), row("sequential", 0.01, part="compute")]))
    assert "Fastest measured: **80 ms**" in text
    assert "### Parts, timed alone" in text
    assert "Outcomes: 1 measured, 1 of computation or communication alone." in text


def test_what_a_frame_says_with_nan_is_nothing() -> None:
    nan = float("nan")
    text = shown(run_report({}, [row("fused", 0.1, floor_s=nan, part="whole"), row("fused", nan, stage="hang")]))
    assert "nan" not in text
    assert "| fused | hang |" in text


def test_the_headline_stands_above_everything_and_below_the_author(facts: dict[str, Any]) -> None:
    rows = joined([row("sequential", 0.08), row("fused", 0.05)])
    cells = run_report({**facts, "notes": "First look.\n\n*Not* final."}, rows).cells
    said = [cell.source or cell.outputs[0].data["text/html"] for cell in cells[:3]]
    assert said[0].startswith("# A run on")
    assert said[1] == '<div class="wb-author"><p>First look.</p><p>*Not* final.</p></div>'
    assert said[2].startswith('<p class="wb-lead">fused takes 50 ms, 1.60x faster than the sequential schedule (80 ms)')


def test_an_authors_words_are_never_markup(markup: str) -> None:
    data = run_report({"notes": markup}, []).cells[1].outputs[0].data
    assert [f"&lt;{'/' * ends}script" in data["text/html"] for ends in (0, 1)] == [True, True]
    assert "<" not in data["text/markdown"]


def test_one_floor_stands_in_card_and_table_of_a_block() -> None:
    rows = [row("sequential", 0.1, "estimated", floor_s=0.163), row("sequential", 0.11, floor_s=0.0895)]
    text = shown(run_report({}, rows))
    assert text.count("89\\.5 ms") == 2
    assert "163 ms" not in text


def test_a_stop_is_listed_apart_from_failures_and_stands_in_the_headline() -> None:
    rows = [row("fused", 0.05), row("decomposed", None, stage="cancelled", message="stopped")]
    notebook = run_report({"status": "cancelled"}, rows)
    assert "### What failed, and why" not in headings(notebook)
    assert "### Not measured: the run was stopped" in headings(notebook)
    text = shown(notebook)
    assert "**Stopped after 1 schedule had been timed.**" in text
    assert "Outcomes: 1 measured, 1 not measured, stopped." in text
    assert "| decomposed | not measured, stopped |" in text


def test_several_problems_have_a_line_each_in_short_and_a_section_each() -> None:
    large = {"m": 128, "n": 64, "k": 64}
    rows = joined([row("sequential", 0.08), row("fused", 0.05),
                   row("sequential", 0.3, shape=large), row("fused", 0.2, shape=large)])  # fmt: skip
    notebook = run_report({}, rows)
    assert {"## In short", "## m = 64, n = 64, k = 64", "## m = 128, n = 64, k = 64"} <= set(headings(notebook))
    text = shown(notebook)
    assert "| m = 128, n = 64, k = 64 | fused | 200 ms | 300 ms (nothing overlaps) | 1\\.50x |" in text
    assert "fused takes 50 ms, 1.60x faster than the sequential schedule (80 ms)" in text


def test_a_fact_that_nobody_planned_for_is_listed() -> None:
    assert "Moon phase: full" in shown(run_report({"moon_phase": "full"}, []))


@pytest.mark.parametrize("rows", [[], [row("fused", None)], [row("fused", 0.1, "estimated")]])
def test_a_report_of_little_is_still_a_report(rows: list[dict[str, Any]]) -> None:
    notebook = run_report({}, rows)
    nbformat.validate(notebook)
    assert headings(notebook)[0] == "# Run without a name"


def test_the_same_run_gives_the_same_notebook(facts: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    assert run_report(facts, rows) == run_report(facts, rows)


# Runs of a store as reports: what is drawn of them, and that it looks the same whoever asks.

LADDER = "laptop_ladder_pieces_and_slices"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """With a replay of a sweep, estimates beside it."""
    with Store(tmp_path_factory.mktemp("runs") / "store.sqlite") as opened:
        play(opened, LADDER)
        yield opened


def play(store: Store, name: str) -> str:
    machine = machines.shipped_machine(recordings.recordings(name)[0].measurement.trial.machine)
    sitting = Replay(
        recordings.recordings(name), store, machine=machine, speed=None, title=f"gemm_all_to_all of {name}"
    )
    list(sitting)
    return sitting.run


def specs(notebook: NotebookNode) -> list[dict[str, Any]]:
    data = [output.data for cell in notebook.cells for output in cell.get("outputs", ())]
    return [entry[CHART] for entry in data if CHART in entry]


def test_a_report_of_a_sweep_has_the_chart_of_each_swept_axis(store: Store) -> None:
    titles = [title_text(spec) for spec in specs(stored_report(store, "last"))]
    assert titles[0] == "How long does each trial take?"
    assert sum(title.startswith("How does the time depend on") for title in titles) == 2


def test_charts_look_like_the_workbenchs_whatever_theme_is_on(store: Store) -> None:
    before = alt.theme.active
    looks = theme.config(theme.Mode.LIGHT)
    for spec in specs(stored_report(store, "last")):
        assert spec["config"]["title"]["anchor"] == looks["title"]["anchor"]
        assert spec["config"]["legend"]["orient"] == "top"
    assert alt.theme.active == before, "and the process is as it was"


def test_a_chart_draws_no_other_floor_than_the_card_shows(store: Store) -> None:
    drawn = specs(stored_report(store, "last"))[0]
    floors = {record["time_ms"] for rows in drawn["datasets"].values() for record in rows if record["look"] == "floor"}
    timed = [row for row in store.rows(store.run()["id"]) if row["source"] == "recorded" and row["part"] == "whole"]
    assert len(floors) == 1
    assert floors.pop() == pytest.approx(1e3 * timed[0]["floor_s"], rel=1e-4)


def test_a_title_has_the_operators_name_for_people(store: Store) -> None:
    assert stored_report(store, "last").metadata.title == f"GEMM -> all-to-all of {LADDER}"


def test_a_replay_says_where_and_when_it_was_recorded(store: Store) -> None:
    head = stored_report(store, "last").cells[0].source
    assert "Recorded 2026-11-" in head
    assert "host vm; protocol quick; torch 2.13.0" in head
    assert stored_report(store, "last").cells[0].source.count("Recorded") == 1
    assert "Recorded" not in run_report({"provenance": {"host": "vm"}}, [row("fused", 0.1)]).cells[0].source


def test_the_first_lines_name_operator_dtype_and_ranks(store: Store) -> None:
    """A report called "replay of h200_nvl2_gemm" had them in its appendix alone."""
    known = {"title": "replay of h200_nvl2_gemm", "operator": "gemm_all_to_all", "dtype": "bfloat16", "world": 2}
    head = run_report(known, [row("fused", 0.1)]).cells[0].source.replace("\\", "")
    assert "\n\nGEMM -> all-to-all · bfloat16 · 2 ranks" in head
    assert "GEMM -> all-to-all · float32 · 2 ranks" in stored_report(store, "last").cells[0].source.replace("\\", "")


def test_the_provenance_of_a_replay_says_whose_versions_are_listed(store: Store) -> None:
    sources = [cell.source for cell in stored_report(store, "last").cells]
    assert any("versions and source are of the one that replayed" in source for source in sources)
    assert "replayed" not in shown(run_report({"provenance": {"host": "vm"}}, [row("fused", 0.1)]))


def test_the_origin_of_a_recording_is_of_its_shown_schedules() -> None:
    known = recordings.origin(FromRecordings(recordings.recordings("h200_nvl2_gemm")).entries)
    assert (known["machine"], known["date"], known["hardware"]) == ("h200_nvl2", "2026-11-29", "2 x NVIDIA H200")
    assert known["protocol"] == "device"
    assert (known["versions"]["torch"], known["versions"]["nccl"]) == ("2.11.0", "2.28.9")
    assert "host" not in known, "recordings of GPUs have none"
    assert "host not recorded" in recorded_text(known)


def test_an_axis_is_swept_when_it_makes_a_curve_or_when_it_was_asked_for() -> None:
    def tried(axis: str, *values: int | str) -> list[dict[str, Any]]:
        return [{"scheme": "fused", "axes": {axis: value}, "time_s": 1.0} for value in values]

    assert swept(tried("slice_tiles", 1, 2, 4)) == ["slice_tiles"]
    assert swept(tried("write", "staged", "zero_copy")) == []
    assert swept(tried("write", "staged", "zero_copy"), {"write"}) == ["write"]
    assert swept([{"scheme": "sequential", "axes": {"collective": name}, "time_s": 1.0} for name in "abc"]) == []


def test_a_stopped_replay_says_so_first(tmp_path: Path) -> None:
    with Store(tmp_path / "store.sqlite") as opened:
        sitting = Replay(recordings.recordings(LADDER), opened, speed=None)
        for number, _ in enumerate(sitting):
            if number == 60:
                sitting.cancelled.set()
        first = next(cell for cell in stored_report(opened, sitting.run).cells if cell.get("outputs"))
    assert "Stopped after" in first.outputs[0].data["text/plain"]


def test_a_report_names_the_host_and_no_login_unless_it_is_asked_for(tmp_path: Path) -> None:
    with Store(tmp_path / "store.sqlite") as store:
        runs = [store.begin_run({}, {"host": "there", "user": user}) for user in ("lovelace", "hopper")]
        for login in (False, True):
            one, both = (
                "".join(cell.source for cell in stored_runs(store, names, login=login).cells)
                + str([cell.get("outputs") for cell in stored_runs(store, names, login=login).cells])
                for names in (runs[:1], runs)
            )
            assert "there" in one
            assert ("lovelace" in one, "lovelace" in both, "hopper" in both) == (login,) * 3


def test_the_first_page_has_verdict_evidence_trust_and_the_command_and_the_rest_is_an_appendix() -> None:
    facts = {"command": "workbench run gemm_all_to_all --fresh", "operator": "gemm_all_to_all"}
    rows = [row("fused", 0.1, others_share=0.4, others="0.8 of 2 cores, mostly other programs"), row("sequential", 0.2)]
    drawing = CaseDrawing([("", timeline.chart({}, "fused")), ("", timeline.chart({}, "second"))])
    cells = run_report(facts, rows, [drawing]).cells
    texts = [cell.source + str([output.data for output in cell.get("outputs", ())]) for cell in cells]

    def place(text: str) -> int:
        return next(number for number, each in enumerate(texts) if text in each)

    order = [place(text) for text in ("wb-lead", CHART, "How far to trust it", "Measure it again", "## Appendix",
                                      "## The question")]  # fmt: skip
    assert order == sorted(order)
    assert "0.8 of 2 cores, mostly other programs" in texts[place("How far to trust it")]
    assert facts["command"] in texts[place("Measure it again")]


def test_runs_side_by_side_have_one_appendix_behind_all_verdicts() -> None:
    runs = [RunSummary({"run": f"run-{number}"}, [row("fused", 0.1), row("sequential", 0.2)]) for number in (1, 2)]
    texts = [cell.source + str([output.data for output in cell.get("outputs", ())])
             for cell in side_by_side(runs).cells]  # fmt: skip
    trusts = [number for number, text in enumerate(texts) if "How far to trust it" in text]
    appendices = [number for number, text in enumerate(texts) if "## Appendix" in text]
    assert len(trusts) == 2
    assert len(appendices) == 1
    assert trusts[-1] < appendices[0] < next(number for number, text in enumerate(texts) if "The question" in text)


def test_a_command_in_a_remark_is_code_and_other_signs_are_not() -> None:
    assert prose("*All* are off. `workbench calibrate` fits.") == r"\*All\* are off. `workbench calibrate` fits."


def test_a_search_has_no_command_and_each_of_several_problems_has_one() -> None:
    request = Request(operator="gemm_all_to_all", preset="laptop_overlap")
    one = request.experiment().to_json()
    several = {**one, "problems": [*one["problems"], {**one["problems"][0], "shape": {"m": 512, "n": 512, "k": 512}}]}
    assert len(commands(one)) == 1
    assert ["--shape m=512" in each for each in commands(several)] == [False, True]
    assert commands({**one, "search": {"kind": "estimate_first", "count": 20, "seed": 0}}) == []
    assert commands({**one, "problems": one["problems"] * 9}) == []
    assert commands({}) == []
    texts = [cell.source for cell in run_report({}, [row("fused", 0.1)]).cells]
    assert any(NO_COMMAND in text for text in texts), "a first page without a command says why"


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.skipif(shutil.which("pdftotext") is None, reason="pdftotext (poppler-utils) is not installed")
def test_the_first_page_of_paper_holds_the_command_and_no_page_is_mostly_empty(tmp_path: Path) -> None:
    experiment = Request(operator="gemm_all_to_all", preset="laptop_overlap").experiment()
    facts = {"title": "GEMM -> all-to-all: sequential, decomposed, fused", "run": "2026-a",
             "command": "\n".join(commands(experiment.to_json())), "world": 4, "cores": 2,
             "provenance": {f"fact_{number}": "a value" for number in range(12)}}  # fmt: skip
    timed = [row(scheme, seconds, floor_s=0.04, others_share=0.4, key=scheme, others="other programs: 0.8 of 2 cores")
             for scheme, seconds in (("sequential", 0.105), ("decomposed", 0.077), ("fused", 0.064))]  # fmt: skip
    guessed = [row(each["scheme"], 2 * each["time_s"], "estimated", calibrated=False, low_s=0.05, high_s=0.4)
               for each in timed]  # fmt: skip
    rows = joined([*timed, *guessed])
    drawing = CaseDrawing([("", trials.chart(rows)), ("", timeline.chart({}, "fused"))])
    printed = export(run_report(facts, rows, [drawing]), tmp_path / "run.pdf", kind="pdf")
    text = subprocess.run(["pdftotext", "-bbox", str(printed), "-"], capture_output=True, text=True, timeout=200).stdout
    pages = BeautifulSoup(text, "html.parser").find_all("page")
    words = [[word for word in page.find_all("word") if float(word["ymax"]) < 0.94 * float(page["height"])]
             for page in pages]  # fmt: skip
    assert "--fresh" in [word.get_text() for word in words[0]], "the command is on the first page"
    filled = [max(float(word["ymax"]) for word in on_page) / float(page["height"])
              for on_page, page in zip(words, pages, strict=True)]  # fmt: skip
    assert min(filled[:-1]) > 0.5, filled


def test_paper_says_nothing_of_pointers_and_the_page_does() -> None:
    drawn = bundle(timeline.chart({}, "fused"), themed=True)
    assert "Alt + wheel" in str(drawn[CHART])
    assert "Alt + wheel" not in drawn[PICTURE]
