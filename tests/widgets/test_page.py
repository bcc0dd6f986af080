"""The page: one ruler, ways to begin that keep their questions, guesses that stay where they belong, a memory."""

from __future__ import annotations

import html
import json
import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import ipywidgets
import pytest

from kernels.trial import Trial
from tests.widgets.conftest import FakeLab, eventually, headings, run
from tests.widgets.conftest import row as conftest_row
from workbench.experiment.experiment import Search
from workbench.results.store import Store
from workbench.widgets import form as form_module
from workbench.widgets import ruler
from workbench.widgets.cluster_watch import MEASURE, REPLAY, SIMULATE
from workbench.widgets.controls import Screen
from workbench.widgets.explorer_page import ELSEWHERE, Explorer
from workbench.widgets.form import FormState, QuestionForm
from workbench.widgets.page_memory import FILE, PageMemory
from workbench.widgets.ruler import Mark

MakeExplorer = Callable[..., Explorer]


@pytest.fixture
def form() -> QuestionForm:
    return QuestionForm("laptop_overlap", "laptop_cpu")


def widgets_of(explorer: Explorer) -> list[Any]:
    """Every widget of the page."""
    waiting, seen = [explorer.page.view], []
    while waiting:
        widget = waiting.pop()
        seen.append(widget)
        waiting += getattr(widget, "children", ())
    return seen


def words_of(explorer: Explorer) -> str:
    """All text of the page without its tooltips."""
    texts = [widget.value for widget in widgets_of(explorer) if isinstance(widget, ipywidgets.HTML)]
    parts = [str(part) for part in explorer.results.outcomes.parts]
    return html.unescape(re.sub("<style>.*?</style>|<[^>]*>", " ", " ".join([*texts, *parts]), flags=re.DOTALL))


def marks(explorer: Explorer) -> dict[str, dict[str, Any]]:
    """What the ruler shows, by name."""
    return {mark["name"]: mark for mark in explorer.shown.ruler.drawing["marks"]}


# The strip: one ruler for all times, the question in words, how long a run takes.


@pytest.mark.slow
def test_guess_estimate_measurement_floor_and_best_sequential_are_marks_of_one_ruler(
    explorer: Explorer, lab: FakeLab
) -> None:
    lab.seconds = lambda trial: 2e-3 if trial.schedule.scheme == "sequential" and trial.part == "whole" else 1e-3
    explorer.page.guess.value = "5"
    assert set(marks(explorer)) == {"your guess", "estimated", "best sequential"}
    assert explorer.shown.ruler.drawing["gain"]["over"].endswith("by estimate")
    run(explorer)
    drawn = marks(explorer)
    assert set(drawn) == {"your guess", "estimated", "measured", "floor", "best sequential"}
    assert (drawn["measured"]["shape"], drawn["measured"]["filled"]) == ("circle", True)
    assert (drawn["estimated"]["shape"], drawn["estimated"]["filled"]) == ("circle", False)
    assert (drawn["measured"]["text"], drawn["best sequential"]["text"]) == ("1 ms", "2 ms")
    for name in drawn:
        if name != "best sequential":
            assert f"{drawn[name]['text']}</b> {name}" in explorer.page.headline.value, (
                "as text for screen readers, too"
            )


@pytest.mark.slow
def test_a_speed_up_is_the_verdict_of_the_block_and_not_a_ratio_of_medians(explorer: Explorer, lab: FakeLab) -> None:
    lab.seconds = lambda trial: 1e-3
    run(explorer)
    gain = explorer.shown.ruler.drawing["gain"]
    assert gain["text"] == "not certain"
    assert "over the best sequential" in gain["over"]
    assert "paired round" in gain["why"]
    explorer.form.scheme.value = "sequential"
    assert explorer.shown.ruler.drawing["gain"] is None, "it is the baseline itself"


def test_times_that_are_far_apart_are_drawn_on_a_logarithmic_axis() -> None:
    linear, wide = ruler.axis([0.1, 0.2, 0.9], [0.1, 0.2]), ruler.axis([1e-4, 1.0], [1e-4, 1.0])
    assert (linear["log"], linear["domain"][0], wide["log"]) == (False, 0.0, True)
    assert linear["domain"][1] < 0.3, "an interval may leave the ruler: times count"
    for drawn, times in ((linear, [0.1, 0.2]), (wide, [1e-4, 1.0])):
        low, high = drawn["domain"]
        assert all(low < seconds <= high for seconds in times)
        ticks = [tick["seconds"] for tick in drawn["ticks"]]
        assert ticks == sorted(set(ticks))
        assert 3 <= len(ticks) <= 14
        assert ticks[-1] >= max(times), "no mark lies beyond the last tick"
        assert ticks[-1] <= high
    assert ruler.axis([], [])["ticks"] == []


def test_a_mark_has_its_interval_in_words() -> None:
    mark = Mark(name="estimated", seconds=0.122, look="estimated", low_s=0.0856, high_s=0.367).to_json()
    assert mark["title"] == "estimated: 122 ms (86 to 367)"


def test_an_interval_that_leaves_the_ruler_has_an_arrowhead_and_says_so() -> None:
    """The band of "70 to 300 µs" ended with the ruler, at 120 µs: uncertainty looked smaller than it is."""
    shown = ruler.Ruler()
    estimate = Mark(name="estimated", seconds=100e-6, look="estimated", low_s=70e-6, high_s=300e-6)
    shown.show([estimate, Mark(name="floor", seconds=90e-6, look="floor")])
    first, floor = shown.drawing["marks"]
    assert shown.drawing["domain"][1] < 300e-6
    assert first["beyond"] == ["right"]
    assert first["title"].endswith("(70 to 300); an arrowhead: it goes on beyond the right end of the ruler")
    assert (floor["beyond"], floor["title"]) == ([], "floor: 90 µs")
    shown.show([replace(estimate, high_s=110e-6)])
    assert shown.drawing["marks"][0]["beyond"] == []
    assert "wb-ruler-beyond" in Path(ruler.__file__).with_name("ruler.js").read_text(), "the page draws it"


def test_the_strip_says_what_is_asked(explorer: Explorer) -> None:
    for words in ("GEMM -&gt; all-to-all", "m = 64, n = 64, k = 64", "2 ranks", "fused, tiles per slice 1"):
        assert words in explorer.page.title.value
    explorer.form.problem.operator.value = "gemm_all_reduce"
    assert "GEMM -&gt; all-reduce" in explorer.page.title.value
    assert "GEMM -> all-reduce" in explorer.page.fold.description, "the folded controls say it, too"


def test_the_button_over_a_narrow_page_shows_whether_the_form_is_folded(explorer: Explorer) -> None:
    fold = explorer.page.fold
    assert (fold.icon, fold.tooltip) == ("caret-right", "Show the form: question, schedule and sweep")
    fold.value = True
    assert (fold.icon, fold.tooltip) == ("caret-down", "Hide the form")
    assert "wb-controls-open" in explorer.page.view._dom_classes
    fold.value = False
    assert fold.icon == "caret-right"
    assert "wb-controls-open" not in explorer.page.view._dom_classes


def test_a_time_without_a_speed_up_says_what_to_press() -> None:
    alone = conftest_row(scheme="fused")
    assert ruler.missing_gain_text(alone) == (
        "No measured speedup: no sequential schedule was timed in the same block. To get one, tick “Measure again what "
        "is known” under Advanced, then press Run."
    )
    assert "press" not in ruler.missing_gain_text({**alone, "source": "recorded"}), "a recording cannot be timed again"
    assert "press" in ruler.missing_gain_text({**alone, "source": "recorded", "origin": "r0"})
    assert ruler.missing_gain_text({**alone, "scheme": "sequential"}) == ruler.missing_gain_text(None) == ""


def test_a_time_whose_baseline_failed_names_it_and_says_nothing_of_pressing() -> None:
    alone = conftest_row(scheme="fused")
    failed = conftest_row(scheme="sequential", axes={"collective": "direct", "kernel": "library"}, time_s=None,
                          stage="hang", message="Rank 1 did not end in 20 s.")  # fmt: skip
    assert ruler.missing_gain_text(alone, [alone, failed]) == (
        "No measured speedup: sequential, collective direct failed (hang). Rank 1 did not end in 20 s."
    )
    recorded = {**alone, "source": "recorded"}
    assert ruler.missing_gain_text(recorded, [failed]).startswith("No speedup: sequential, collective direct failed")
    elsewhere = {**failed, "run": "another"}
    assert "press" in ruler.missing_gain_text(alone, [alone, elsewhere])


@pytest.mark.slow
def test_the_strip_names_a_baseline_that_failed(explorer: Explorer, lab: FakeLab) -> None:
    fails = {"whole": {"sequential": ("wrong", None)}}  # its computation by itself gives the link its speed
    lab.before = lambda trial: setattr(lab, "failures", fails.get(trial.part, {}))
    run(explorer)
    assert eventually(lambda: not explorer._running)
    assert explorer.shown.row is not None
    assert explorer.shown.ruler.drawing["note"].startswith("No measured speedup: sequential, collective ")
    assert "failed (wrong)" in explorer.page.headline.value
    assert "press Run" not in explorer.page.headline.value


@pytest.mark.slow
def test_a_missing_speed_up_is_no_matter_while_a_run_goes_on(explorer: Explorer, lab: FakeLab) -> None:
    lab.seconds = lambda trial: 1e-3
    run(explorer)
    assert eventually(lambda: not explorer._running)
    known = explorer.panels.problem.rows
    explorer.panels.problem.rows = {
        problem: [one for one in rows if one["scheme"] != "sequential"] for problem, rows in known.items()
    }
    explorer._running = True  # as if its baseline were not in yet
    explorer.refresh()
    assert explorer.shown.row is not None
    assert "No measured speedup" not in explorer.page.headline.value
    assert "No measured speedup" not in explorer.shown.ruler.drawing["note"]
    explorer._running = False
    explorer.refresh()
    assert "No measured speedup" in explorer.page.headline.value


@pytest.mark.slow
def test_the_strip_has_a_speed_up_after_one_schedule_or_says_what_to_press(explorer: Explorer, lab: FakeLab) -> None:
    lab.seconds = lambda trial: 1e-3
    run(explorer)
    assert explorer.shown.ruler.drawing["gain"] is not None
    explorer.shown.find_gain([], explorer.form.machine_value)  # as if no baseline had been timed
    explorer.shown.show_numbers()
    assert explorer.shown.ruler.drawing["gain"] is None
    assert explorer.shown.ruler.drawing["note"].startswith("No measured speedup: ")
    assert "then press Run" in explorer.page.headline.value


# The search of a sweep.


@pytest.mark.slow
def test_a_forecast_on_a_busy_computer_says_that_it_takes_longer(explorer: Explorer, lab: FakeLab) -> None:
    assert eventually(lambda: " measured, " in explorer.page.plan.value)
    longer = "Longer, since this computer is busy."
    assert longer not in explorer.page.plan.value
    lab.others_cores = 1.3
    assert eventually(lambda: longer in explorer.page.plan.value)
    explorer.source.source.value = SIMULATE
    assert longer not in explorer.page.plan.value, "nothing is timed"


@pytest.mark.slow
def test_a_search_with_its_budget_is_part_of_the_experiment(explorer: Explorer, store: Store) -> None:
    form = explorer.form
    form.scheme.value = "decomposed"
    form.search.value = "estimate_first"
    assert form.budget.value == form_module.BUDGET_S, "only a search of everything goes on without a limit"
    assert form.question.experiment(form.machine_value).search == Search(), "one schedule needs no search"
    form.axes.rows["pieces"].sweep.value = True
    form.budget.value = 20
    assert form.question.experiment(form.machine_value).search == Search(kind="estimate_first", budget_s=20)
    assert "It ends after 20 s, or earlier." in explorer.page.plan.value
    run(explorer)
    assert store.run()["experiment"]["search"] == {"kind": "estimate_first", "count": None, "seed": 0, "budget_s": 20}
    form.search.value, form.budget.value = "exhaustive", 0
    assert "It ends after" not in explorer.page.plan.value


def test_optuna_is_offered_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    for is_there in (True, False):
        monkeypatch.setattr(form_module, "find_spec", lambda name, is_there=is_there: object() if is_there else None)
        offered = [kind for _, kind in QuestionForm("laptop_overlap", "laptop_cpu").search.options]
        assert offered == ["exhaustive", "random", "estimate_first", *(["optuna"] if is_there else [])]


def test_an_axis_says_how_much_it_matters_once_that_is_known(form: QuestionForm) -> None:
    row = form.axes.rows["slice_tiles"]
    assert row.importance.value == ""
    form.axes.show_importance({"slice_tiles": 0.425, "pieces": 0.1})
    assert "Tiles per slice explains 42 % of the variance" in row.importance.value
    form.scheme.value = "decomposed"
    assert "10 %" in form.axes.rows["pieces"].importance.value, "another scheme's rows are made anew"
    form.axes.show_importance({})
    assert form.axes.rows["pieces"].importance.value == ""


# What a newcomer met: the form's words, guesses, older results, advice.


def test_one_list_alone_is_called_problem(explorer: Explorer) -> None:
    lists = [widget for widget in widgets_of(explorer) if isinstance(widget, ipywidgets.Dropdown)]
    assert [each.description for each in lists].count("Problem") == 1
    assert explorer.form.problem.preset.description == "Sizes"


def test_the_description_follows_the_operator(form: QuestionForm) -> None:
    for preset in ("laptop_overlap", "own sizes"):
        described = set()
        form.problem.preset.value = preset
        for operator in ("gemm_all_to_all", "all_gather_gemm", "gemm_reduce_scatter"):
            form.problem.operator.value = operator
            assert form.problem.preset.value == preset
            described.add(form.problem.about.value)
        assert len(described) == 3, preset


@pytest.mark.slow
def test_a_guess_belongs_to_the_question_it_was_made_for(explorer: Explorer) -> None:
    explorer.page.guess.value = "90 ms"
    explorer.form.axes.rows["slice_tiles"].control.value = 2
    assert explorer.page.guess.value == ""
    assert "your guess" not in marks(explorer)
    explorer.page.guess.value = "70 ms"
    explorer.form.axes.rows["slice_tiles"].control.value = 1
    assert explorer.page.guess.value == "90 ms"
    assert marks(explorer)["your guess"]["text"] == "90 ms"
    explorer.form.problem.operator.value = "gemm_all_reduce"
    assert explorer.page.guess.value == ""
    explorer.form.problem.operator.value = "gemm_all_to_all"
    explorer.form.axes.rows["slice_tiles"].control.value = 2
    assert explorer.page.guess.value == "70 ms"


@pytest.mark.slow
def test_results_of_an_older_question_say_so(explorer: Explorer) -> None:
    assert explorer.page.older.value == "", "nothing has run"
    run(explorer)
    assert eventually(lambda: not explorer._running)
    assert explorer.page.older.value == ""
    explorer.form.scheme.value = "sequential"
    assert explorer.page.older.value == "", "another schedule of the same problem is on the same charts"
    explorer.form.problem.operator.value = "gemm_all_reduce"
    assert "an older question: GEMM -&gt; all-to-all" in explorer.page.older.value
    explorer.form.problem.operator.value = "gemm_all_to_all"
    explorer.form.machine.value = ELSEWHERE
    assert "an older question" in explorer.page.older.value
    explorer.form.machine.value = "laptop_cpu"
    explorer.form.problem.preset.value = "tiny"
    assert explorer.page.older.value == ""


@pytest.mark.slow
def test_after_stop_and_run_again_the_fastest_is_first_and_nobody_is_sent_to_a_command_line(
    explorer: Explorer, lab: FakeLab
) -> None:
    """Known schedules come first, so that the fastest ones were the oldest, and left the table."""
    slowly = [0.01]

    def seconds(trial: Trial) -> float:
        axes = dict(trial.schedule.axes)
        return 2e-3 if trial.schedule.scheme == "sequential" else 1e-3 * (1 + 0.1 * int(axes.get("pieces", 1)))

    lab.seconds, lab.before = seconds, lambda trial: time.sleep(slowly[0])
    explorer.form.problem.preset.value = "laptop_overlap"
    explorer.form.scheme.value = "decomposed"
    for axis in ("pieces", "tile"):
        explorer.form.axes.rows[axis].sweep.value = True
    assert eventually(lambda: not explorer.page.run.disabled)
    explorer.page.run.click()
    assert eventually(lambda: len(explorer.results._rows) > 12)
    explorer.page.stop.click()
    assert explorer.session.wait(100)
    slowly[0] = 0.0
    run(explorer)
    assert "known from before" in explorer.results.text.value
    (part,) = explorer.results.outcomes.parts
    best = [number for number, row in enumerate(part["rows"]) if row["best"]]
    assert best == [0]
    assert part["rows"][0]["cells"][0]["badge"] == "fastest"
    times = [row["cells"][part["sorted"]]["order"] for row in part["rows"]] if part["sorted"] else []
    assert times == sorted(times, key=lambda each: (each is None, each))
    two = [row for row in explorer.results._all if row["axes"].get("pieces") == 1 and row["source"] == "measured"]
    shown = {row["cells"][0]["text"] + str(row["cells"][0]["aside"]) for row in part["rows"]}
    assert len(two) > 1
    assert len([text for text in shown if "pieces 1," in text or text.endswith("pieces 1")]) >= min(len(two), 10)
    flag = re.search(r".{0,150}(?<!\w)--\w.{0,100}", words_of(explorer))
    assert flag is None, f"a command-line flag is no advice on a page: {flag[0] if flag else ''}"


def test_a_page_that_was_loading_gets_every_state_again(explorer: Explorer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change that came while the browser made its controls was lost, and Run stayed grey for good."""
    sent: dict[str, list[str]] = {}
    monkeypatch.setattr(ipywidgets.Widget, "send_state", lambda self, key=None: sent.update({self.model_id: key}))
    (screen,) = [widget for widget in widgets_of(explorer) if isinstance(widget, Screen)]
    screen._receive(screen, {"kind": "shown"}, [])
    assert {widget.model_id for widget in widgets_of(explorer)} <= sent.keys()
    assert "disabled" in sent[explorer.page.run.model_id]
    assert "display" in sent[explorer.page.plan.layout.model_id]
    assert not {"_esm", "_css", "_bundle", "_library"} & {key for keys in sent.values() for key in keys}


# Three ways to begin, each with its own question.


@pytest.mark.slow
def test_changing_over_to_another_way_and_back_loses_nothing(explorer: Explorer) -> None:
    run(explorer)  # so that there is something to replay
    explorer.form.problem.operator.value = "gemm_all_reduce"
    explorer.form.scheme.value, explorer.form.ratio.value = "decomposed", 4.0
    explorer.form.axes.rows["pieces"].sweep.value = True
    explorer.page.guess.value = "5"
    explorer.page.pin.click()
    here = explorer.form.state
    explorer.source.source.value = SIMULATE
    assert explorer.form.machine.value == ELSEWHERE, "this computer is no machine that one does not have"
    assert explorer.page.guess.value == ""
    assert explorer.page.pin.description == "Pin as A"
    explorer.form.problem.operator.value = "all_gather_gemm"
    explorer.page.guess.value = "7"
    elsewhere = explorer.form.state
    explorer.source.source.value = REPLAY
    assert explorer.form.question.operator == "gemm_all_to_all", "what the recording is about"
    replayed = explorer.form.state
    for way, state, guess in ((MEASURE, here, "5"), (SIMULATE, elsewhere, "7"), (REPLAY, replayed, "")):
        explorer.source.source.value = way
        assert explorer.form.state == state, way
        assert explorer.page.guess.value == guess, way
        assert explorer.page.pin.description == ("Unpin A" if way == MEASURE else "Pin as A"), way
    explorer.source.source.value = MEASURE
    assert len(headings(explorer)) == 2, "the pinned timeline is drawn again"


# The page's memory: a restarted kernel changes neither the problem nor the ticks.


def restarted(explorer: Explorer, make: MakeExplorer) -> Explorer:
    """The explorer of a kernel that begins after this one has ended."""
    explorer.close()
    return make()


@pytest.mark.slow
def test_a_restarted_kernel_keeps_problem_ticks_search_and_guess(
    explorer: Explorer, make_explorer: MakeExplorer
) -> None:
    run(explorer)
    explorer.form.problem.operator.value = "gemm_all_reduce"
    explorer.form.scheme.value = "decomposed"
    for axis in ("pieces", "tile"):
        explorer.form.axes.rows[axis].sweep.value = True
    explorer.form.sweep_schemes.value = True
    explorer.form.search.value = "random"
    explorer.page.guess.value = "90 ms"
    before = explorer.form.state
    again = restarted(explorer, make_explorer)
    assert again.form.state == before
    assert again.form.axes.rows["pieces"].sweep.value
    assert again.page.guess.value == "90 ms"
    assert again.run_id == explorer.run_id
    assert "an older question" in again.page.older.value


@pytest.mark.slow
def test_a_restarted_kernel_goes_on_with_the_question_of_its_last_run(
    explorer: Explorer, make_explorer: MakeExplorer
) -> None:
    explorer.form.scheme.value = "decomposed"
    explorer.form.axes.rows["pieces"].sweep.value = True
    run(explorer)
    assert eventually(lambda: not explorer._running)
    before = explorer.form.state
    again = restarted(explorer, make_explorer)
    assert again.form.state == before, "not the fastest schedule without its ticks"


@pytest.mark.slow
def test_a_run_that_is_newer_than_the_question_is_shown_with_its_own(
    explorer: Explorer, make_explorer: MakeExplorer, store: Store
) -> None:
    run(explorer)
    explorer.form.problem.operator.value = "gemm_all_reduce"
    explorer.close()
    memory = store.path.parent / FILE
    written = json.loads(memory.read_text())
    memory.write_text(json.dumps({**written, "at": float(store.run()["started_at"]) - 1.0}))
    assert make_explorer().form.question.operator == "gemm_all_to_all"
    memory.write_text(json.dumps(written))
    assert make_explorer().form.question.operator == "gemm_all_reduce"
    assert make_explorer(run=str(explorer.run_id)).form.question.operator == "gemm_all_to_all", "a run by its name"


@pytest.mark.slow
def test_the_way_to_begin_is_kept_too(explorer: Explorer, make_explorer: MakeExplorer) -> None:
    explorer.source.source.value = SIMULATE
    explorer.form.machine.value = "h200_nvl4"
    again = restarted(explorer, make_explorer)
    assert (again.source.value, again.form.machine.value) == (SIMULATE, "h200_nvl4")
    again.source.source.value = MEASURE
    assert again.form.problem.preset.value == "tiny"


@pytest.mark.slow
@pytest.mark.parametrize("content", ["", "{", "[]", '{"ways": {"cluster": 1}}', "a machine that is gone"])
def test_a_damaged_memory_is_none(content: str, explorer: Explorer, make_explorer: MakeExplorer, store: Store) -> None:
    explorer.form.problem.operator.value = "gemm_all_reduce"
    explorer.close()
    memory = store.path.parent / FILE
    if content.startswith("a machine"):
        content = memory.read_text().replace('"laptop_cpu"', '"sold"')
        assert "sold" in content
    memory.write_text(content)
    again = make_explorer()
    assert again.form.question.operator == "gemm_all_to_all"
    assert again.form.refusal.value == ""


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_is_said_once_and_the_page_goes_on(explorer: Explorer, store: Store) -> None:
    (store.path.parent / FILE).unlink(missing_ok=True)
    (store.path.parent / FILE).mkdir()
    explorer.form.scheme.value = "decomposed"
    assert eventually(lambda: explorer.memory.trouble != "")
    explorer.refresh()
    assert "A restarted kernel will not know this question" in explorer.page.left_out.value
    run(explorer)
    assert store.run()["status"] == "finished"


def test_the_state_of_a_form_is_json_both_ways(form: QuestionForm) -> None:
    form.axes.rows["slice_tiles"].control.value = 8
    form.axes.rows["tile"].sweep.value = True
    form.search.value = "random"
    state = form.state
    assert FormState.from_json(json.loads(json.dumps(state.to_json()))) == state
    with pytest.raises((ValueError, KeyError, TypeError)):
        FormState.from_json({"question": {}, "machine": "m", "preset": "p"})


def test_the_oldest_guesses_are_dropped(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.widgets.page_memory.GUESSES_MOST", 2)
    memory = PageMemory(tmp_path)
    for key in "abca":
        memory.guess(key, key)
    memory.guess("c", " ")
    assert memory.guesses == {"a": "a"}


def test_a_slider_writes_the_question_that_it_stays_at(form: QuestionForm, tmp_path: Any) -> None:
    memory, written = PageMemory(tmp_path / "new"), []
    write = memory._write
    memory._write = lambda: (written.append(memory.way), write())  # type: ignore[method-assign]
    for number in range(20):
        memory.keep(str(number), replace(form.state, preset=str(number)))
    memory.close()
    assert written == ["19"]
    again = PageMemory(tmp_path / "new")
    assert again.read()
    assert again.way == "19"
    assert len(again.ways) == 20


def test_a_guess_alone_is_written(tmp_path: Any) -> None:
    memory = PageMemory(tmp_path)
    memory.guess("question", "90 ms")
    memory.close()
    again = PageMemory(tmp_path)
    again.read()
    assert again.guesses == {"question": "90 ms"}


def test_two_kernels_of_one_store_keep_the_memory_of_each_other(form: QuestionForm, tmp_path: Any) -> None:
    first, second = PageMemory(tmp_path), PageMemory(tmp_path)
    for memory, name in ((first, "a"), (second, "b")):
        memory.keep(name, form.state)
        memory.guess(name, name)
        memory.guess("both", name)
        memory.close()
    again = PageMemory(tmp_path)
    assert again.read()
    assert (again.way, set(again.ways)) == ("b", {"a", "b"})
    assert again.guesses == {"a": "a", "b": "b", "both": "b"}
    again.guess("a", "")
    again.close()
    last = PageMemory(tmp_path)
    assert last.read()
    assert last.guesses == {"b": "b", "both": "b"}
