"""A cell that is run again, as a page that is loaded anew does, shows the explorer that is there already."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from IPython.display import DisplayHandle

from cluster.watchdog import WAIT_S
from kernels.fabric import parse
from kernels.trial import Trial
from tests.widgets.conftest import FakeLab, eventually, run
from workbench import widgets
from workbench.charts import timeline
from workbench.experiment.experiment import Experiment
from workbench.experiment.run import run as begun
from workbench.experiment.sources import FromSimulator
from workbench.experiment.space import Choice, Space
from workbench.machines import shipped_machine
from workbench.machines.presets import preset
from workbench.results.store import Store
from workbench.simulator.predict import predict
from workbench.widgets import explorer_page, explorers
from workbench.widgets.explorer_page import Explorer
from workbench.widgets.explorers import explorer, explorer_of, prepare
from workbench.widgets.live_chart import LiveChart, charts_in
from workbench.widgets.timeline_view import FrozenOutput


@pytest.fixture(autouse=True)
def shown(tmp_path: Path, lab: FakeLab, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """All that cells show; every explorer has the fake cluster, and this person's runs are elsewhere."""
    made: list[Any] = []
    monkeypatch.setattr(explorers, "_explorers", {})
    monkeypatch.setattr(explorer_page, "display", made.append)
    monkeypatch.setattr("workbench.resources.runs_directory", lambda: tmp_path / "runs")
    watcher = explorer_page.ClusterWatcher
    monkeypatch.setattr(explorer_page, "ClusterWatcher", lambda tell, cluster, look: watcher(tell, lab, look))
    yield made
    for each in explorers._explorers.values():
        each.close()
        assert each.session.wait(100)
        assert eventually(lambda each=each: not each.frozen.busy)


def another_run(store: Store) -> str:
    """As `workbench predict` in a terminal makes one."""
    machine = shipped_machine("laptop_cpu")
    asked = Experiment(problems=preset("tiny", "gemm_all_to_all"), space=Space((Choice("fused"),)), backend="cpu",
                       machine=machine.name, fabric=parse("emulated"))  # fmt: skip
    made = begun(asked, store, FromSimulator(machine), machine)
    list(made)
    return made.run


@pytest.mark.slow
def test_the_same_words_show_the_same_explorer_and_other_words_another(shown: list[Any], tmp_path: Path) -> None:
    explorer()
    explorer()
    explorer(store=tmp_path / "own.sqlite")
    explorer(store=str(tmp_path / "elsewhere" / ".." / "own.sqlite"))
    explorer(cluster="tcp://127.0.0.1:1")
    assert shown[0] is shown[1]
    assert shown[2] is shown[3]
    assert len({id(view) for view in shown}) == 3


def test_the_same_explorer_waits_as_long_as_its_cell_says(shown: list[Any]) -> None:
    explorer()
    made = explorer_of()
    assert made.form.wait_s == WAIT_S
    explorer(wait_s=25)
    assert shown[0] is shown[1]
    assert (made.form.wait_s, made.form.wait.label) == (25.0, "25 s")
    explorer()
    assert made.form.wait_s == 25.0
    with pytest.raises(ValueError, match=r"wait_s = 0\.5 is too short: 0\.5 < 1\. Accepted: 1 second or more\."):
        explorer(wait_s=0.5)


def test_a_closed_explorer_sends_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A timer of its timeline once sent rows into another test."""
    sent: list[LiveChart] = []
    closed = explorer_of()
    closed.close()
    monkeypatch.setattr(LiveChart, "send", lambda chart, *_: sent.append(chart))
    for _ in range(2):
        closed.shown.draw()
    assert {chart._timer for chart in charts_in(closed.page.view)} == {None}
    assert sent == []


@pytest.mark.slow
def test_only_the_newest_explorers_look_for_a_cluster(tmp_path: Path) -> None:
    made = [explorer_of(store=tmp_path / f"{number}.sqlite") for number in range(explorers.LOOKING_MOST + 2)]
    assert [each.watcher._closed for each in made] == [True] * 2 + [False] * explorers.LOOKING_MOST
    made[-1].page.view.close()
    explorer_of(store=tmp_path / "0.sqlite")
    assert made[-1].watcher._closed, "its page is gone"


def test_pictures_are_drawn_by_one_thread_that_a_close_reaches(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each page that was loaded anew once hung a thread behind the one before, and nothing ended them."""
    drawn: list[str] = []
    began, go_on = threading.Event(), threading.Event()

    def draw(run: str) -> None:
        drawn.append(run)
        began.set()
        assert go_on.wait(100)

    frozen = FrozenOutput(store)
    monkeypatch.setattr(frozen, "freeze", draw)
    frozen.freeze_soon("first")
    assert began.wait(100)
    for number in range(5):
        frozen.freeze_soon(str(number))
    assert len([thread for thread in threading.enumerate() if thread.name == "workbench freeze"]) == 1
    go_on.set()
    assert eventually(lambda: not frozen.busy)
    assert drawn == ["first", "4"]
    frozen.freeze_soon("later", 600.0)
    frozen.close()
    assert eventually(lambda: not frozen.busy, 5.0)
    assert drawn == ["first", "4"]


def test_a_run_that_goes_on_is_joined(shown: list[Any], lab: FakeLab) -> None:
    seen: list[Explorer] = []

    def look(trial: Trial) -> None:
        if not seen:  # the ranks compute, and the page is loaded anew
            seen.append(explorer_of())
            explorer()

    lab.before = look
    explorer()
    first = explorer_of()
    first.form.problem.preset.value = "tiny"
    first.page.run.click()
    assert first.session.wait(100)
    assert seen == [first]
    assert shown == [first.page.view] * 2
    assert len(first.store.runs()) == 1


@pytest.mark.slow
def test_widgets_that_somebody_closed_are_made_anew(shown: list[Any]) -> None:
    explorer()
    shown[0].close()
    explorer()
    assert shown[0] is not shown[1]


@pytest.mark.slow
def test_a_run_that_another_process_made_meanwhile_is_the_last_one() -> None:
    explorer()
    joined = explorer_of()
    assert joined.run_id is None
    newest = another_run(joined.store)
    explorer()
    assert joined.run_id == newest


@pytest.mark.slow
def test_a_run_without_a_time_of_another_process_leaves_the_form_as_it_is() -> None:
    """Every reload once restored the run before it, over what a person had just asked."""
    first = explorer_of()
    another_run(first.store)
    explorer()
    first.form.scheme.value = "decomposed"
    machine = shipped_machine("laptop_cpu")
    refused = Space((Choice("concurrent", (("micro_batches", (1,)),)),))
    asked = Experiment(problems=preset("tiny", "gemm_all_to_all"), space=refused, backend="cpu",
                       machine=machine.name, fabric=parse("emulated"))  # fmt: skip
    failed = begun(asked, first.store, FromSimulator(machine), machine)
    list(failed)
    assert failed.run not in [each["id"] for each in first.store.runs(10)], "what was refused is no run"
    explorer()
    assert first.form.scheme.value == "decomposed"


@pytest.mark.slow
def test_pictures_of_the_last_run_are_filled_in_wherever_they_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.widgets.timeline_view.PAUSE_SECONDS", 0.0)
    places: list[tuple[str, str, Any]] = []
    for way in ("display", "update"):
        monkeypatch.setattr(DisplayHandle, way, lambda handle, content, way=way, **more: places.append(
            (way, handle.display_id, content)))  # fmt: skip
    newest = another_run(explorer_of().store)
    prepare()
    explorer()
    explorer()
    assert eventually(lambda: not explorer_of().frozen.busy)
    at_first, again = places[:3], [place for place in places if place[0] == "display"][-3:]
    assert [place[1] for place in at_first] == [place[1] for place in again], "both pages have the same places"
    assert "image/svg+xml" not in at_first[0][2], "the explorer is shown before its pictures are drawn"
    assert any(way == "update" and newest in content.get("text/html", "") for way, _, content in places)


@pytest.mark.slow
def test_the_timeline_beside_a_time_is_of_the_estimate_that_stands_there(
    make_explorer: Callable[..., Explorer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep keeps no spans, and with other kernels than its own the link that it had is not known any more."""
    before = make_explorer()
    before.form.problem.preset.value = "tiny"
    before.form.axes.rows["slice_tiles"].sweep.value = True
    run(before)
    monkeypatch.setattr(explorer_page, "known_link", lambda fabric, *_: fabric)
    later = make_explorer()
    assert later.shown.row is not None
    estimated = predict(later.shown.estimate.trial, later.form.machine_value)
    assert estimated.time_s == later.shown.estimate.time_s
    expected, drawn = (
        [record["heading"] for record in rows if (record["heading"] or "").startswith("simulated: ")]
        for rows in (timeline.rows({"simulated": estimated.spans}), later.page.timeline.rows(timeline.DATASET))
    )
    assert drawn == expected != []


def test_the_package_offers_the_function_whichever_module_was_imported_before() -> None:
    assert widgets.explorer is explorer
    assert widgets.Explorer is Explorer
    assert widgets.LiveChart is LiveChart
