"""What is said of a schedule rests on what was timed beside it, of the same problem and in the same way."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from kernels import outcome
from kernels.fabric import parse
from kernels.machine import Machine
from kernels.operators import problem
from kernels.outcome import Measurement
from kernels.trial import MANY_CALLS, ONE_CALL_ALONE, ONE_CALL_NOTE, PROTOCOLS, UNDER_LOAD
from tests.analysis.test_accuracy import rows as off_rows
from tests.experiment.test_winners import SHAPE
from tests.results.test_database import BEFORE_BLOCKS
from tests.widgets.test_chart_panels import ASKED
from workbench.analysis import accuracy
from workbench.analysis.accuracy import wrong_estimates
from workbench.charts import trials
from workbench.charts.labels import problem_titles
from workbench.cli import output
from workbench.cli.ask import _summary
from workbench.cli.output import TerminalLine, by_problem, facts, notes, show_outcomes
from workbench.experiment import forecast
from workbench.experiment.experiment import Experiment
from workbench.experiment.question import together
from workbench.experiment.run import Progress, run
from workbench.experiment.sources import FromCluster
from workbench.experiment.space import Choice, Space
from workbench.experiment.winners import known
from workbench.machines import calibrate_gpu, shipped_machine
from workbench.reports import run_report as stored
from workbench.reports.cases import _line, cases, headline, recommendation
from workbench.reports.methods import cautions
from workbench.reports.run_report import run_report, whole_run
from workbench.reports.tables import gain_text, outcome_table
from workbench.results import frames, metrics
from workbench.results import recordings as results_recordings
from workbench.results.comparison import (
    MEASURE_TOGETHER,
    NO_BASELINE,
    BlockBases,
    apart,
    comparison_note,
    leading,
    verdict_note,
    with_ratios,
)
from workbench.results.metrics import fill, gain
from workbench.results.recordings import Recorded, recordings
from workbench.results.rows import by_problem as rows_by_problem
from workbench.results.rows import current_problem_and_schedule, link_of
from workbench.results.runs import compare, timed
from workbench.results.store import Store
from workbench.results.verdict import FASTER, decide
from workbench.widgets.chart_panels import same_problem
from workbench.widgets.results import ON_PAGE, Results, parts
from workbench.widgets.session import RunNews

# A run of several blocks: whatever is said of a schedule rests on what was timed beside it.

PIECES = Space((Choice("sequential"), Choice("decomposed", (("pieces", tuple(range(1, 13))),))))
"""Twelve schedules and their baseline: two blocks."""


@pytest.fixture
def rows(store: Store, fake_cluster: Any, machine: Machine) -> list[dict[str, Any]]:
    """The computer is three times as slow in the second block, and one schedule of it is fast all the same."""
    fast = {"whole decomposed 9": 1.8e-4, "whole sequential None": 5e-4, "compute sequential None": 3e-4}

    def seconds(trial: Any) -> float:
        pieces = dict(trial.schedule.axes).get("pieces")
        known = fast.get(f"{trial.part} {trial.schedule.scheme} {pieces}", 6e-4)
        return known * (3 if len(fake_cluster.lists) > 1 else 1)

    fake_cluster.seconds = seconds
    asked = problem("gemm_all_to_all", {"m": 256, "n": 128, "k": 64}, world=2)
    link = parse("emulated:bandwidth_bytes_per_second=1e9")
    experiment = Experiment(problems=(asked,), space=PIECES, backend="cpu", machine=machine.name, fabric=link,
                            protocol=PROTOCOLS["quick"])  # fmt: skip
    sitting = run(experiment, store, FromCluster(fake_cluster), machine)
    list(sitting)
    return store.rows(sitting.run)


def test_a_report_draws_no_estimated_floor_beside_what_was_timed(store: Store, rows: list[dict[str, Any]]) -> None:
    assert {row["source"] for row in rows} == {"measured", "estimated"}
    assert len({row["block"] for row in rows if row["source"] == "measured"}) == 2
    (case,) = cases(rows)
    measured = {row["floor_s"] for row in rows if row["source"] == "measured" and row["part"] == "whole"}
    drawn = {each["time_ms"] for each in trials.rows(case.rows) if each["look"] == "floor"}
    assert sorted(drawn) == pytest.approx(sorted(1e3 * floor_s for floor_s in measured))
    _, _, shown = whole_run(store, store.run("last"))
    datasets = shown[0].charts[0][1].to_dict()["datasets"].values()
    assert {each["time_ms"] for some in datasets for each in some if each["look"] == "floor"} == drawn


def test_where_the_time_went_is_told_of_one_block(store: Store, rows: list[dict[str, Any]]) -> None:
    """The baseline is timed in both blocks: its spans and its computation alone are those of the time that is shown."""
    wholes = [row for row in rows if row["source"] == "measured" and row["part"] == "whole"]
    slow, quick = (wholes[-1], wholes[0])
    for row, times in ((quick, 1), (slow, 3)):
        (first, *_) = store.spans(row["run"], wholes[0]["key"], "measured", row["block"])
        assert first.stop_s == pytest.approx(5e-4 * times)
        base = {**wholes[0], "block": row["block"]}
        assert stored.pieces_alone_s(rows, base) == pytest.approx(3e-4 * times)
    assert stored.pieces_alone_s(rows, {**wholes[0], "dtype": "bfloat16"}) is None
    quickest = stored.losses(store, quick["run"], rows, quick) or {}
    assert sum(each or 0.0 for each in quickest.values()) == pytest.approx(quick["time_s"])
    assert quickest["contention"] == pytest.approx(5e-4 - 3e-4)


def test_the_headline_compares_a_schedule_with_what_was_timed_beside_it(rows: list[dict[str, Any]]) -> None:
    (case,) = cases(rows)
    assert headline(case).startswith(
        "decomposed with pieces 9 takes 540 µs, 80 % above the floor, verified on 2 ranks; whether it beats the "
        "sequential schedule (1.5 ms, collective direct) is not certain: 2.78x in 5 paired rounds: about 1 "
        "more round would tell"
    )


def test_one_schedule_is_the_best_wherever_a_report_or_the_page_names_one(rows: list[dict[str, Any]]) -> None:
    """By the clock the baseline of the quick block, 500 µs, was faster than the best schedule of the slow one."""
    (case,) = cases(rows)
    assert case.fastest is not None
    assert (case.fastest["axes"]["pieces"], case.fastest["time_s"]) == (9, pytest.approx(5.4e-4))
    advice = recommendation(case)
    assert advice is not None
    assert advice.schedule == "decomposed, pieces 9"
    line = [str(cell.text) for cell in _line("", case)]
    assert (line[1], line[2], line[3], line[4]) == ("decomposed", "540 µs", "1.5 ms", "2.78x, not certain")
    named = "Fastest: decomposed, pieces 9, 540 µs measured; that it beats the best sequential schedule is "
    assert gain_text(case.whole) == f"{named}not certain."
    table = outcome_table(case.whole)
    assert table.best is not None
    assert (table.rows[table.best][0].badge, table.rows[table.best][1].text) == ("fastest", "540 µs")
    (part,) = by_problem(row for row in case.whole if row["source"] == "measured")
    assert part[0].row["axes"]["pieces"] == 9


def test_blocks_are_ordered_by_a_baseline_that_all_of_them_have() -> None:
    """A collective that only the first block has makes its ratios smaller, and moves no schedule behind another."""

    def row(block: str, scheme: str, time_s: float, **axes: Any) -> dict[str, Any]:
        return {"operator": "gemm_all_to_all", "shape": {"m": 8}, "dtype": "float32", "world": 2, "part": "whole",
                "machine": "a", "fabric": "nvlink", "protocol": "p", "source": "measured", "outcome": "measurement",
                "key": f"{scheme}{axes}", "block": block, "scheme": scheme, "axes": axes, "time_s": time_s}  # fmt: skip

    found = fill([
        row("1", "sequential", 2.0, collective="library"), row("1", "sequential", 1.5, collective="direct"),
        row("1", "fused", 1.0, slice_tiles=1),
        row("2", "sequential", 4.0, collective="library"), row("2", "fused", 2.2, slice_tiles=2),
    ])  # fmt: skip
    assert [gain(each) for each in found if each["scheme"] == "fused"] == [1.5, pytest.approx(4 / 2.2)]
    assert [each["axes"] for each in leading(found)][:2] == [{"slice_tiles": 1}, {"slice_tiles": 2}]
    assert BlockBases.of(found).text(found[2]) == "sequential, collective direct, 1.5 s"
    assert BlockBases.of(found).text(found[4]) == "sequential, collective library, 4 s"


def test_without_a_baseline_in_its_block_there_is_no_ratio_and_what_to_measure_is_said_everywhere(
    store: Store, rows: list[dict[str, Any]], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The baseline of the second block is lost: no ratio reaches into the first."""
    blocks = list(dict.fromkeys(row["block"] for row in rows if row["source"] == "measured"))
    kept = fill([row for row in rows if not (row["scheme"] == "sequential" and row["block"] == blocks[1])])
    lonely = [row for row in kept if row["block"] == blocks[1]]
    assert lonely
    assert {gain(row) for row in lonely} == {None}
    words = comparison_note(kept)
    assert f"{len(lonely)} of 13 schedules have no speed-up: {NO_BASELINE}." in words
    assert words.endswith(MEASURE_TOGETHER)
    assert "`--fresh`" in MEASURE_TOGETHER
    assert "Measure again what is known" in MEASURE_TOGETHER

    whole = [row for row in kept if row["part"] == "whole"]
    show_outcomes(whole, every=True)
    printed = capsys.readouterr().out
    assert words in printed
    assert sum(" – " in line for line in printed.splitlines()) == len(lonely)
    assert words in "\n".join(cell.source for cell in run_report({}, kept).cells).replace("\\", "")
    on_page = words.replace(MEASURE_TOGETHER, ON_PAGE)
    assert [part.note for part in parts(whole)] == [f"{verdict_note(whole)} {on_page}"]
    assert "--" not in on_page, "a page has buttons, and no command-line flags"
    assert verdict_note(whole) in " ".join(printed.split())
    assert "is not certain: 600 µs against 500 µs, 0.83x in 5 paired rounds" in verdict_note(whole)
    assert "4 were timed in other blocks" in verdict_note(whole)
    assert _summary(whole, None)["measure_together"] == words
    csv = frames.export(frames.frame(with_ratios(kept)), "csv", tmp_path / "rows.csv").read_text()
    assert csv.count(f"-: {NO_BASELINE}. ") == len(lonely)
    assert comparison_note([row for row in kept if row["block"] == blocks[0]]) == ""


def test_a_sentence_names_the_ratio_that_the_verdict_rests_on() -> None:
    """Every round says 1.5x; the medians, of two rounds that somebody disturbed, say 1.88x."""
    rounds = [0.1] * 4 + [0.125] * 5 + [0.1] * 4
    plain = [1.5 * seconds for seconds in rounds]
    known = {"operator": "gemm_all_to_all", "shape": {"m": 8}, "dtype": "float32", "world": 2, "part": "whole",
             "machine": "a", "fabric": "nvlink", "protocol": "p", "source": "measured", "outcome": "measurement",
             "block": "r.1", "axes": {}}  # fmt: skip
    timed_rows = fill([{**known, "key": "s", "scheme": "sequential", "time_s": 0.1875, "rounds_s": plain},
                       {**known, "key": "f", "scheme": "fused", "time_s": 0.1, "rounds_s": rounds}])  # fmt: skip
    (case,) = cases(timed_rows)
    assert gain(timed_rows[1]) == pytest.approx(1.875)
    texts = headline(case), gain_text(timed_rows), _line("", case)[4].text, verdict_note(timed_rows)
    assert all("1.50x" in text and "1.88x" not in text for text in texts), texts


def test_a_baseline_that_may_be_as_fast_as_the_fastest_of_many_is_called_slower_nowhere() -> None:
    """By itself the pair is certain; of eight schedules the fastest leads so far by chance: no page says both."""
    lead = [0.1 * (1 + step) for step in (-0.02, 0.01, 0.0, 0.02, -0.01, 0.015, -0.015, 0.0)]
    gaps = 0.045, 0.025, 0.005, 0.055, 0.035, 0.04, 0.015, 0.045
    plain = [each * (1 + gap) for each, gap in zip(lead, gaps, strict=True)]
    known = {"operator": "gemm_all_to_all", "shape": {"m": 8}, "dtype": "float32", "world": 2, "part": "whole",
             "machine": "a", "fabric": "nvlink", "protocol": "p", "source": "measured", "outcome": "measurement",
             "block": "r.1"}  # fmt: skip
    schedules = [("sequential", 0, plain), ("fused", 0, lead), *(("fused", n, plain) for n in range(1, 7))]
    timed_rows = fill([
        {**known, "key": f"{scheme}{number}", "scheme": scheme, "axes": {"slice_tiles": number},
         "time_s": median(rounds), "rounds_s": rounds}
        for scheme, number, rounds in schedules
    ])  # fmt: skip
    assert decide(timed_rows[1], timed_rows[0]).word == FASTER
    (case,) = cases(timed_rows)
    note = verdict_note(timed_rows)
    assert "fused over sequential is not certain: " in note
    assert "as the fastest of 8 it may lead by chance" in note
    assert "is not certain" in headline(case)
    assert "is not certain" in gain_text(timed_rows)
    assert _line("", case)[4].text.endswith("not certain")
    alone = fill([{**each} for each in timed_rows[:2]])
    assert "fused over sequential is faster: " in verdict_note(alone)


def test_every_place_says_the_same_of_a_run_of_several_blocks(
    rows: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    """The terminal and the page kept the baseline of one block, and judged another schedule than the report."""
    whole = [row for row in rows if row["part"] == "whole"]
    why = headline(cases(rows)[0]).split("is not certain: ")[1].rstrip(".")
    show_outcomes(whole)
    assert why in " ".join(capsys.readouterr().out.split())
    page = Results()
    page.begin(sweeping=True)
    page.add(RunNews(run="r", rows=rows, samples=(), progress=Progress(total=1, done=1), ended=True))
    assert why in page.outcomes.parts[0]["note"]
    (best,) = [
        row for row in with_ratios(rows) if row["time_s"] == pytest.approx(5.4e-4) and row["source"] == "measured"
    ]
    assert best["verdict_why"] == f"540 µs against 1.5 ms, {why}"


# One baseline timed again


def only(rows: list[dict[str, Any]], **wanted: Any) -> dict[str, Any]:
    """The one timed row of a whole schedule that has what is *wanted*."""
    (row,) = [row for row in rows if row["part"] == "whole" and row["source"] != "estimated"
              and all(row[key] == value for key, value in wanted.items())]  # fmt: skip
    return row


@pytest.fixture
def measure_schemes(store: Store, fake_cluster: Any, machine: Machine) -> Callable[..., str]:
    """measure_schemes("sequential", "fused", slow=1.57): the run's id, every schedule *slow* times what it is alone."""

    def measure(*schemes: str, slow: float = 1.0, fresh: bool = False, together: bool = True) -> str:
        alone = {"sequential": 1.76e-3, "fused": 1e-3, "decomposed": 1.2e-3}
        fake_cluster.seconds = lambda trial: slow * alone[trial.schedule.scheme] * (1 if trial.part == "whole" else 0.5)
        asked = problem("gemm_all_to_all", {"m": 256, "n": 128, "k": 64}, world=2)
        experiment = Experiment(
            problems=(asked,), space=Space(tuple(map(Choice, schemes))), backend="cpu", machine=machine.name,
            fabric=parse("emulated:bandwidth_bytes_per_second=1e9"), protocol=PROTOCOLS["quick"], parts="each",
            together=together, fresh=fresh,
        )  # fmt: skip
        sitting = run(experiment, store, FromCluster(fake_cluster), machine)
        list(sitting)
        return sitting.run

    return measure


def as_before_there_were_blocks(path: Path) -> None:
    """The file at *path* as an older workbench wrote it."""
    older = sqlite3.connect(path)
    older.executescript(BEFORE_BLOCKS)
    older.close()


@pytest.mark.parametrize("older", [False, True])
def test_a_baseline_that_is_timed_again_changes_no_other_ratio(
    store: Store,
    measure_schemes: Callable[..., str],
    fake_cluster: Any,
    capsys: pytest.CaptureFixture[str],
    older: bool,
) -> None:
    """The computer is slower the second time: 1.76x must not become 2.76x, in a store of today and in an older one."""
    measure_schemes("sequential", "fused")
    measure_schemes("sequential", slow=2.76 / 1.76, fresh=True)
    timed = len(fake_cluster.lists)
    again = measure_schemes("sequential", "fused")
    assert len(fake_cluster.lists) == timed, "all of it is known"
    if older:
        store.close()
        as_before_there_were_blocks(store.path)
        store.__init__(store.path)  # type: ignore[misc]
    shown = store.rows(again)
    assert gain(only(shown, scheme="fused")) == pytest.approx(1.76)
    assert {row["source"] for row in shown if row["part"] == "whole"} == {"recorded", "estimated"}
    # every other reader of a run rests on the same rows
    show_outcomes([row for row in shown if row["part"] == "whole"])
    printed = capsys.readouterr().out
    assert "1.76x" in printed
    assert "2.76x" not in printed
    assert "(1.76 ms, collective direct) is not certain: 1.76x in 5 paired rounds" in headline(cases(shown)[0])
    csv = frames.frame(with_ratios(shown))
    assert set(csv[(csv.scheme == "fused") & (csv.source == "recorded")].speed_up.dropna().round(2)) == {1.76}


def test_two_runs_are_compared_with_the_speed_ups_of_their_own_blocks(
    store: Store, measure_schemes: Callable[..., str]
) -> None:
    first = measure_schemes("sequential", "fused")
    measure_schemes("sequential", slow=2.76 / 1.76, fresh=True)
    again = measure_schemes("sequential", "fused")
    slow = measure_schemes("sequential", "fused", slow=2.0, fresh=True)
    rows, _ = compare(store, first, slow)
    assert {(row["scheme"], round(row["ratio"], 2), row["same_block"]) for row in rows} == {
        ("sequential", 2.0, False), ("fused", 2.0, False)}  # fmt: skip
    (fused,) = [row for row in rows if row["scheme"] == "fused"]
    assert (fused["first_speed_up"], fused["second_speed_up"]) == (pytest.approx(1.76), pytest.approx(1.76))
    rows, _ = compare(store, first, again)
    assert {row["scheme"]: row["same_block"] for row in rows}["fused"], "one measurement, shown in both runs"


def test_what_is_measured_again_is_timed_in_one_block(
    store: Store, fake_cluster: Any, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long it takes: otherwise the sentence that names --fresh would not be true."""
    monkeypatch.setattr(forecast, "LONGEST_SECONDS", 1e-9)
    eight = Space((Choice("sequential"), Choice("decomposed", (("pieces", tuple(range(1, 9))),))))
    asked = problem("gemm_all_to_all", {"m": 256, "n": 128, "k": 64}, world=2)
    link = parse("emulated:bandwidth_bytes_per_second=1e9")
    experiment = Experiment(problems=(asked,), space=eight, backend="cpu", machine=machine.name, fabric=link,
                            protocol=PROTOCOLS["quick"])  # fmt: skip

    def shown(again: Experiment) -> list[dict[str, Any]]:
        sitting = run(again, store, FromCluster(fake_cluster), machine)
        list(sitting)
        return store.rows(sitting.run)

    shown(experiment)
    assert len(fake_cluster.lists) > 1, "blocks are cut for time"
    assert f"Timed in {len(fake_cluster.lists)} blocks." in comparison_note(shown(experiment))
    fake_cluster.lists.clear()
    again = replace(experiment, fresh=True)
    blocks = forecast.forecast(again, machine, store).blocks
    rows = shown(again)
    assert (len(fake_cluster.lists), blocks) == (1, 1)
    assert len({row["block"] for row in rows if row["source"] == "measured"}) == 1
    assert comparison_note(rows) == ""


def on_a_known_machine(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """*rows* as if they were of laptop_cpu; no command can name the machine of these tests."""
    return [{**row, "machine": "laptop_cpu"} for row in rows]


def test_the_terminal_ends_with_the_command_that_measures_together_what_was_not_compared(
    store: Store, measure_schemes: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    measure_schemes("fused")
    rows = on_a_known_machine(store.rows(measure_schemes("decomposed", "fused", together=False)))
    assert [row["scheme"] for row in apart(rows)] == ["fused", "decomposed"]
    show_outcomes([row for row in rows if row["part"] == "whole"])
    typed = capsys.readouterr().out.partition("in turns:")[2].split()
    for word in ("run", "decomposed", "fused", "m=256", "quick", "--fresh"):
        assert word in typed
    experiment = together(apart(rows))
    assert experiment is not None
    assert (experiment.fresh, experiment.together, str(experiment.fabric)) == (
        True,
        True,
        link_of(apart(rows)[0]["fabric"]),
    )
    rows = store.rows(measure_schemes("decomposed", "fused", fresh=True))
    assert apart(rows) == []
    show_outcomes([row for row in rows if row["part"] == "whole"])
    assert "--fresh" not in capsys.readouterr().out


def test_schedules_that_no_block_holds_have_no_command(store: Store, measure_schemes: Callable[..., str]) -> None:
    measured = on_a_known_machine(store.rows(measure_schemes("decomposed")))
    rows = [row for row in measured if row["scheme"] == "decomposed"]
    values = product((2, 4, 8), ("uniform", "local_first"), ("rows", "columns"))
    named = [dict(zip(("pieces", "steps", "split"), each, strict=True)) for each in values]
    several = [{**rows[0], "axes": {**rows[0]["axes"], **each}} for each in named]
    assert together(several[:8]) is not None
    assert together(several) is None
    assert together([{**rows[0], "machine": "nobody's"}]) is None


# Explorer, terminal, report and lists of runs mean the same by one problem.

ROW = {"operator": "gemm_all_to_all", "shape": {"m": 8, "n": 8, "k": 8}, "dtype": "float32", "world": 2,
       "machine": "laptop_cpu", "fabric": "emulated:wire_to_compute=1", "protocol": "quick", "backend": "cpu",
       "scheme": "sequential", "axes": {}, "part": "whole", "time_s": 1.0, "source": "measured", "key": "a",
       "outcome": "measurement", "stage": None, "sequential_s": 1.0, "block": "r.1"}  # fmt: skip
OTHER = {"operator": "all_gather_gemm", "shape": {"m": 16, "n": 8, "k": 8}, "dtype": "bfloat16", "world": 4,
         "machine": "another", "fabric": "emulated:wire_to_compute=2", "protocol": "default"}  # fmt: skip


def counts(rows: Sequence[dict[str, Any]]) -> list[int]:
    return [len(found) for found in (rows_by_problem(rows), cases(rows), output.by_problem(rows), parts(rows))]


@pytest.mark.parametrize("column", OTHER)
def test_what_differs_in_a_column_is_another_problem_for_everybody(column: str) -> None:
    assert counts([ROW, {**ROW, column: OTHER[column], "key": "b"}]) == [2, 2, 2, 2]


def test_a_bandwidth_that_followed_from_a_ratio_makes_no_other_problem() -> None:
    resolved = {**ROW, "fabric": "emulated:wire_to_compute=1,bandwidth_bytes_per_second=5e8", "key": "b"}
    assert counts([ROW, resolved]) == [1, 1, 1, 1]
    assert link_of("emulated:bandwidth_bytes_per_second=5e8") != link_of("emulated:bandwidth_bytes_per_second=6e8")
    assert link_of("of another program") == "of another program"


def test_a_schedule_of_an_older_version_is_the_one_that_is_asked_for_today() -> None:
    """Recorded with axes that the kernel does not read; the explorer would not find its time again."""
    measured = next(
        each.measurement for each in recordings("h200_nvl4_gemm")
        if each.measurement.trial.schedule.scheme == "fused" and each.measurement.trial.part == "whole"
    )  # fmt: skip
    row = outcome.row(measured)
    problem, schedule = current_problem_and_schedule(row)
    assert problem == measured.trial.problem
    assert "write" in set(row["axes"]) - set(dict(schedule.axes))


# Times of one call per graph, or under steady load, are shown beside those of many calls, and never compared with them.

RECORDING = "h200_nvl4_gemm"
WAYS = {"latency": ONE_CALL_ALONE, "steady": UNDER_LOAD}
SAID = {"latency": "one call per graph", "steady": "under steady load"}


def timed_otherwise(entry: Recorded, name: str, seconds: float) -> Recorded:
    """The same trial, timed by the protocol called *name*: *seconds* more."""
    measured = entry.measurement
    slower = tuple(tuple(one + seconds for one in mine) for mine in measured.samples)
    return replace(
        entry, measurement=replace(measured, trial=replace(measured.trial, protocol=PROTOCOLS[name]), samples=slower)
    )  # fmt: skip


@pytest.fixture(scope="module", params=WAYS)
def other(request: pytest.FixtureRequest) -> str:
    """The name of a protocol whose times are no times of many calls in a row."""
    return str(request.param)


@pytest.fixture(scope="module")
def both(other: str) -> list[Recorded]:
    """One problem's trials of a recording, each timed both ways in one block."""
    entries = [
        one for one in results_recordings.recordings(RECORDING) if dict(one.measurement.trial.problem.shape) == SHAPE
    ]
    return [*entries, *(timed_otherwise(one, other, 1e-3) for one in entries)]


@pytest.fixture
def one_call_rows(both: list[Recorded]) -> list[dict[str, Any]]:
    machine = shipped_machine("h200_nvl4")
    return metrics.fill([metrics.row_of(one.measurement, "run", machine) for one in both])


def test_a_protocol_is_part_of_the_key(both: list[Recorded]) -> None:
    keys = [one.measurement.trial.key for one in both]
    assert len(set(keys)) == len(keys)


def test_no_ratio_floor_or_share_is_formed_across_protocols(one_call_rows: list[dict[str, Any]], other: str) -> None:
    many, alone = rows_by_problem(one_call_rows).values()
    assert {row["protocol"] for row in alone} == {other}
    for mine in (many, alone):
        sequential = [row["time_s"] for row in mine if row["scheme"] == "sequential" and row["part"] == "whole"]
        computed = [row["time_s"] for row in mine if row["part"] == "compute"]
        assert sequential
        assert computed
        assert {row["sequential_s"] for row in mine} == {min(sequential)}
        assert all(row["compute_s"] in computed for row in mine if row["compute_s"])


def test_each_is_a_case_of_its_own_that_says_how_it_was_timed(one_call_rows: list[dict[str, Any]], other: str) -> None:
    assert len(cases(one_call_rows)) == 2
    titles = problem_titles({key: mine[0] for key, mine in rows_by_problem(one_call_rows).items()})
    assert [f": {SAID[other]}" in title for title in titles.values()] == [False, True]
    assert facts(one_call_rows[-1])["protocol"] == f"protocol {other}: {SAID[other]}"
    assert "one call" not in facts({**one_call_rows[-1], "backend": "cpu"})["protocol"]


def test_runs_have_no_schedule_in_common_where_one_timed_calls_alone(one_call_rows: list[dict[str, Any]]) -> None:
    many, alone = rows_by_problem(one_call_rows).values()
    assert not set(timed(many)) & set(timed(alone))
    assert set(timed(many)) == set(timed([{**row, "protocol": "thorough"} for row in many]))


def test_winners_are_found_among_those_of_one_way_of_timing(
    both: list[Recorded], other: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lines = [json.dumps(results_recordings._line(each, "run", login=False)) for each in both]
    (path := tmp_path / f"{RECORDING}.jsonl").write_text("\n".join(lines))
    monkeypatch.setattr(results_recordings, "paths", lambda: {RECORDING: path})
    for of in (MANY_CALLS, WAYS[other]):
        mine = known("gemm_all_to_all", compared_as=of)
        assert mine
        assert {each.trial.protocol.name == other for each in mine} == {of != MANY_CALLS}


def test_estimates_are_of_calls_in_a_row_and_one_call_is_no_evidence_against_them(
    both: list[Recorded], other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert wrong_estimates(off_rows(*[2.0] * 9, protocol="default", backend="triton"))
    assert not wrong_estimates(off_rows(*[2.0] * 9, protocol=other, backend="triton"))
    assert wrong_estimates(off_rows(*[2.0] * 9, protocol="latency", backend="cpu")), "CPU ranks have no graphs"
    reading: Callable[[str], list[Recorded]] = lambda name: both  # noqa: E731
    monkeypatch.setattr(results_recordings, "recordings", reading)
    found, summary = accuracy.validate_recordings([RECORDING], shipped_machine("h200_nvl4"))
    assert summary["count"] == len(found) == len(both) // 2
    monkeypatch.setattr(calibrate_gpu, "held_out", lambda of: False)
    fitted: list[Measurement] = calibrate_gpu.fittable_measurements("h200_nvl4", [RECORDING])
    assert {one.trial.protocol.name for one in fitted} == {both[0].measurement.trial.protocol.name}


@pytest.mark.parametrize("other", ["latency"], indirect=True)
def test_whoever_sees_estimates_beside_it_is_told_what_they_are_of(one_call_rows: list[dict[str, Any]]) -> None:
    alone = [row for row in one_call_rows if row["protocol"] == "latency"]
    guess = {**alone[0], "source": "estimated", "outcome": "estimate", "calibrated": True, "low_s": 0.0, "high_s": 1.0}
    assert ONE_CALL_NOTE in notes([TerminalLine(alone[0], guess)])
    assert ONE_CALL_NOTE in " ".join(cautions({}, [*alone, guess]))
    assert ONE_CALL_NOTE not in notes([TerminalLine(alone[0], None)])
    many = [{**row, "protocol": "device"} for row in (alone[0], guess)]
    assert ONE_CALL_NOTE not in " ".join(cautions({}, many))


def test_a_landscape_shows_the_times_of_the_protocol_that_the_form_asks_for() -> None:
    row = {"operator": ASKED.operator, "shape": dict(ASKED.shape), "dtype": "float32", "world": 2,
           "fabric": ASKED.fabric, "backend": "triton", "source": "measured"}  # fmt: skip
    many, alone = {**row, "protocol": "device"}, {**row, "protocol": "device_latency"}
    assert [same_problem(ASKED)(each) for each in (many, alone)] == [True, False]
    latency = replace(ASKED, protocol="latency")
    assert [same_problem(latency)(each) for each in (many, alone)] == [False, True]
    assert same_problem(latency)({**alone, "source": "estimated", "protocol": None})
    loaded, steady = {**row, "protocol": "device_steady"}, replace(ASKED, protocol="steady")
    assert [same_problem(steady)(each) for each in (many, alone, loaded)] == [False, False, True]
    assert not same_problem(ASKED)(loaded)
