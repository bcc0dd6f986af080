"""A run asks for what is not known, compares in one sitting with the right baselines, and keeps everything."""

import itertools
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cluster.hosts import local_ranks
from cluster.seating import Ranks
from kernels.backends.capabilities import MeasuringRanks, baselines
from kernels.fabric import parse
from kernels.hardware import WorkerDevice, hardware_of
from kernels.machine import Machine
from kernels.operators import OPERATORS, problem
from kernels.outcome import Estimate, Failure, Measurement, Sample
from kernels.schedule import Schedule
from kernels.schemes import axes
from kernels.trial import PROTOCOLS, Trial
from tests.experiment import runs_under_load
from tests.experiment.runs_under_load import COUNT, RECORD
from tests.workbench.conftest import BUSY, QUIET, THREE, MakeExperiment
from workbench.analysis.accuracy import wrong_estimates
from workbench.experiment.experiment import LONGEST_SECONDS, Experiment, Search
from workbench.experiment.forecast import Forecast, forecast
from workbench.experiment.question import Request
from workbench.experiment.run import IN_VAIN_MOST, Replay, Run, run
from workbench.experiment.sources import LEAST_DEADLINE_SECONDS, FromCluster, FromRecordings, FromSimulator, predictions
from workbench.experiment.space import Choice, Space
from workbench.machines import shipped_machine
from workbench.reports.run_report import stored_report
from workbench.results import metrics
from workbench.results.comparison import MAX_BLOCK_SCHEDULES
from workbench.results.recordings import read, recordings_of_run, write
from workbench.results.runs import summaries
from workbench.results.store import Store
from workbench.simulator.predict import predict

# A run asks for what is not known, compares in one sitting, and keeps everything whatever ends it.

MANY = Space((Choice("decomposed", (("pieces", tuple(range(1, 21))),)),))
PIECES = Space((Choice("decomposed", (("pieces", (1, 2, 4, 8, 16)),)),))


def measured(store: Store, sitting: Run) -> list[tuple[str, str, str]]:
    return [(row["scheme"], row["part"], row["source"])
            for row in store.rows(sitting.run) if row["source"] != "estimated"]  # fmt: skip


BASELINE = [("sequential", part, "measured") for part in ("compute", "communication", "whole")]


def test_schedules_are_measured_after_what_they_are_compared_with(
    store: Store, make_experiment: MakeExperiment, measure_it: Callable[[Experiment], Run]
) -> None:
    sitting = measure_it(make_experiment())
    assert measured(store, sitting) == [*BASELINE, ("decomposed", "whole", "measured"), ("fused", "whole", "measured")]
    rows = [row for row in store.rows(sitting.run) if row["source"] == "measured" and row["part"] == "whole"]
    assert all(None not in (row["floor_s"], row["compute_s"], row["comm_s"], row["sequential_s"]) for row in rows)
    assert store.run(sitting.run)["status"] == "finished"
    assert (sitting.progress.done, sitting.progress.total, sitting.progress.failed) == (3, 3, 0)


def test_an_estimate_stands_beside_every_measurement(
    store: Store, make_experiment: MakeExperiment, measure_it: Callable[[Experiment], Run]
) -> None:
    rows = store.rows(measure_it(make_experiment()).run)
    keys = {source: [row["key"] for row in rows if row["source"] == source] for source in ("measured", "estimated")}
    assert sorted(keys["measured"]) == sorted(keys["estimated"])
    guesses = [row for row in rows if row["source"] == "estimated" and row["part"] == "whole"]
    assert all(row["time_s"] >= row["floor_s"] for row in guesses)


def test_together_is_one_list_and_each_schedule_is_computed_alone(
    fake_cluster: Any, make_experiment: MakeExperiment, measure_it: Callable[[Experiment], Run]
) -> None:
    measure_it(make_experiment(together=True, parts="each"))
    (together,) = fake_cluster.lists
    assert [(trial.schedule.scheme, trial.part) for trial in together] == [
        ("sequential", "compute"), ("sequential", "communication"), ("sequential", "whole"),
        ("decomposed", "whole"), ("fused", "whole"),
        ("decomposed", "compute"), ("fused", "compute")]  # fmt: skip


def test_every_tile_is_computed_alone_so_that_the_floor_holds(
    store: Store, make_experiment: MakeExperiment, measure_it: Callable[[Experiment], Run]
) -> None:
    space = Space((Choice("fused", (("tile", ("32x64x64", "64x64x64")),)),))
    sitting = measure_it(make_experiment(space))
    alone = {trial.schedule["tile"] for trial in store.trials(sitting.run).values() if trial.part == "compute"}
    assert {"32x64x64", "64x64x64"} <= alone


def test_blocks_shrink_when_schedules_turn_out_to_be_long(
    fake_cluster: Any, make_experiment: MakeExperiment, measure_it: Callable[[Experiment], Run]
) -> None:
    """Measured times correct the estimates, so that others get their turn."""
    fake_cluster.seconds = lambda trial: 0.35
    measure_it(make_experiment(MANY))
    beside = 3
    sizes = [len(trials) - beside for trials in fake_cluster.lists]
    assert sizes[0] == MAX_BLOCK_SCHEDULES
    assert sum(sizes) == 20
    assert max(sizes[1:]) * 0.35 * 7 <= LONGEST_SECONDS
    silent = [limits.silence_s for limits in fake_cluster.limits]
    assert silent[0] == LEAST_DEADLINE_SECONDS["cpu"]
    assert max(silent) < 4 * LEAST_DEADLINE_SECONDS["cpu"], "a hang is found by one call, not by the length of a list"


def test_a_sweep_is_a_row_of_blocks_and_the_baselines_stand_in_each(
    store: Store, fake_cluster: Any, make_experiment: MakeExperiment, measure_it: Callable[[Experiment], Run]
) -> None:
    """A computer that became slower while it ran: ratios are formed inside one block, so that nothing shows it."""
    fake_cluster.seconds = lambda trial: (1e-3 if trial.part == "whole" else 6e-4) * len(fake_cluster.lists)
    sitting = measure_it(make_experiment(MANY))
    assert [len(trials) for trials in fake_cluster.lists] == [3 + 8, 3 + 8, 3 + 4]
    measured_rows = [row for row in store.rows(sitting.run) if row["source"] == "measured"]
    blocks = {row["block"] for row in measured_rows}
    assert len(blocks) == 3
    for block in blocks:
        parts = [(row["scheme"], row["part"]) for row in measured_rows if row["block"] == block]
        assert parts[:3] == [(scheme, part) for scheme, part, _ in BASELINE]
    assert {row["time_s"] / row["sequential_s"] for row in measured_rows if row["part"] == "whole"} == {1.0}
    assert {round(row["compute_s"] / row["time_s"], 6) for row in measured_rows if row["part"] == "whole"} == {0.6}
    assert (sitting.progress.done, sitting.progress.total) == (20, 20)
    assert sitting.progress.counted() == ["20 of 20 schedules", "block 3 of 3", f"{29 * 5 * 2} samples"]


def test_what_is_known_is_compared_in_its_own_block(
    store: Store, fake_cluster: Any, make_experiment: MakeExperiment, measure_it: Callable[[Experiment], Run]
) -> None:
    fake_cluster.seconds = lambda trial: 1e-3 * len(fake_cluster.lists)
    first = measure_it(make_experiment(MANY))
    again = measure_it(make_experiment(Space((Choice("decomposed", (("pieces", tuple(range(1, 22))),)),))))
    assert [len(trials) for trials in fake_cluster.lists[3:]] == [3 + 1]
    shown = [row for row in store.rows(again.run) if row["part"] == "whole" and row["source"] != "estimated"]
    assert {row["time_s"] / row["sequential_s"] for row in shown} == {1.0}
    before = {row["key"]: row["block"] for row in store.rows(first.run) if row["scheme"] == "decomposed"
              and row["source"] == "measured"}  # fmt: skip
    assert {row["key"]: row["block"] for row in shown if row["source"] == "recorded"}.items() >= before.items()
    assert (again.progress.done, again.progress.known, again.progress.total) == (21, 20, 21)
    timed = [row for row in store.rows(again.run) if row["source"] == "measured"]
    assert {row["samples"] for row in timed} == {10}


def test_with_its_computation_alone_asked_a_schedule_is_known_when_that_is_known_too(
    store: Store, fake_cluster: Any, make_experiment: MakeExperiment, measure_it: Callable[[Experiment], Run]
) -> None:
    fused = Space((Choice("fused"),))
    for parts, count in (("baseline", 4), ("each", 5), ("each", 0), ("baseline", 0)):
        fake_cluster.lists.clear()
        sitting = measure_it(make_experiment(fused, parts=parts, together=True))
        assert sum(map(len, fake_cluster.lists)) == count
        shown = [(row["scheme"], row["part"]) for row in store.rows(sitting.run) if row["source"] != "estimated"]
        assert (("fused", "compute") in shown) == (parts == "each" or count == 0)


def test_run_report_and_recording_name_the_gpu_of_each_rank(
    store: Store, fake_cluster: Any, make_experiment: MakeExperiment, measure_it: Callable[[Experiment], Run],
    tmp_path: Path,
) -> None:  # fmt: skip
    fake_cluster.facts = {
        rank: {"conditions": [{"gpu": f"GPU-{letter}", "gpu_name": "NVIDIA H200"}] * 2}
        for rank, letter in enumerate("ba")
    }
    sitting = measure_it(make_experiment())
    gpus = ["rank 0: NVIDIA H200 GPU-b", "rank 1: NVIDIA H200 GPU-a"]
    assert store.run(sitting.run)["provenance"]["gpus"] == gpus
    assert read(write(store, sitting.run, tmp_path / "mine.jsonl"))[0].provenance["gpus"] == gpus
    shown = str(stored_report(store, sitting.run))
    assert "GPU of each rank" in shown
    assert ", ".join(gpus) in shown


def test_a_recording_of_blocks_is_replayed_with_them(
    store: Store, fake_cluster: Any, machine: Machine, make_experiment: MakeExperiment, measure_it: Any, tmp_path: Path
) -> None:
    fake_cluster.seconds = lambda trial: 1e-3 * len(fake_cluster.lists)
    first = measure_it(make_experiment(MANY))
    recorded = read(write(store, first.run, tmp_path / "recorded.jsonl"))
    for sitting in (
        Replay(recorded, store, speed=None),
        run(make_experiment(MANY), store, FromRecordings(recorded, None), machine),
    ):
        list(sitting)
        rows = [row for row in store.rows(sitting.run) if row["part"] == "whole" and row["source"] == "recorded"]
        assert {row["time_s"] / row["sequential_s"] for row in rows} == {1.0}
        assert sum(row["scheme"] == "sequential" for row in rows) == 3
        assert {row["samples"] for row in rows} == {10}


def test_what_is_known_is_shown_and_not_measured_again(
    store: Store, fake_cluster: Any, machine: Machine, make_experiment: MakeExperiment,
    measure_it: Callable[[Experiment], Run],
) -> None:  # fmt: skip
    first = measure_it(make_experiment())
    fake_cluster.lists.clear()
    second = run(make_experiment(), store, FromCluster(fake_cluster, starting_s=10.0), machine)
    next(iter(second))
    assert second.progress.left is not None
    assert second.progress.left.seconds() == 0.0, "nobody waits for ranks that are not needed"
    assert [*second]
    assert fake_cluster.lists == []
    assert {source for *_, source in measured(store, second)} == {"recorded"}
    assert {row["origin"] for row in store.rows(second.run) if row["source"] == "recorded"} == {first.run}
    measure_it(make_experiment(fresh=True))
    assert sum(map(len, fake_cluster.lists)) == 5


def test_what_is_compared_in_one_sitting_is_known_together_or_not_at_all(
    store: Store, fake_cluster: Any, make_experiment: MakeExperiment, measure_it: Callable[[Experiment], Run]
) -> None:
    measure_it(make_experiment(Space((Choice("decomposed"),))))
    fake_cluster.lists.clear()
    again = measure_it(make_experiment(together=True))
    assert len(fake_cluster.lists[0]) == 5
    assert {source for *_, source in measured(store, again)} == {"measured"}


def test_a_sweep_fills_in_what_is_missing(
    fake_cluster: Any, make_experiment: MakeExperiment, measure_it: Callable[[Experiment], Run]
) -> None:
    measure_it(make_experiment(Space((Choice("decomposed", (("pieces", (2, 4)),)),))))
    fake_cluster.lists.clear()
    measure_it(make_experiment(PIECES))
    asked = [trial.schedule["pieces"] for trials in fake_cluster.lists for trial in trials
             if trial.schedule.scheme == "decomposed"]  # fmt: skip
    assert sorted(asked) == [1, 8, 16]


def test_a_relative_link_is_resolved_once_per_machine_and_problem(
    store: Store, fake_cluster: Any, make_experiment: MakeExperiment, measure_it: Callable[[Experiment], Run]
) -> None:
    fake_cluster.seconds = lambda trial: 2e-3 if trial.part == "compute" else 3e-3
    sitting = measure_it(make_experiment(fabric=parse("emulated:wire_to_compute=0.5")))
    trials = list(store.trials(sitting.run).values())
    wire_bytes = 128 * 128 * 4
    assert {trial.fabric.bandwidth_bytes_per_second for trial in trials if trial.fabric.emulated} == {wire_bytes / 1e-3}
    fake_cluster.seconds = lambda trial: 5e-3
    again = measure_it(make_experiment(fabric=parse("emulated:wire_to_compute=1")))
    links = {trial.fabric.bandwidth_bytes_per_second for trial in store.trials(again.run).values()} - {None}
    assert links == {wire_bytes / 2e-3}, "the first measurement still stands"
    fresh = measure_it(make_experiment(fabric=parse("emulated:wire_to_compute=1"), fresh=True))
    links = {trial.fabric.bandwidth_bytes_per_second for trial in store.trials(fresh.run).values()} - {None}
    assert links == {wire_bytes / 5e-3}, "what is known is measured again, the link's measure included"


def test_where_the_link_cannot_be_resolved_every_schedule_says_why(
    store: Store, fake_cluster: Any, make_experiment: MakeExperiment, measure_it: Callable[[Experiment], Run]
) -> None:
    fake_cluster.failures["sequential"] = ("refused", None)
    sitting = measure_it(make_experiment(fabric=parse("emulated:wire_to_compute=1")))
    rows = [row for row in store.rows(sitting.run) if row["outcome"] == "failure"]
    assert [(row["scheme"], row["part"], row["stage"]) for row in rows] == [
        ("sequential", "compute", "refused"), ("sequential", "whole", "refused"),
        ("decomposed", "whole", "refused"), ("fused", "whole", "refused")]  # fmt: skip
    assert sitting.progress.failed == sitting.progress.total == 3


@pytest.mark.parametrize("by", ["every rank", "the machine"])
def test_a_refused_request_is_no_run(
    by: str, store: Store, fake_cluster: Any, make_experiment: MakeExperiment, measure_it: Callable[[Experiment], Run],
    machine: Machine,
) -> None:  # fmt: skip
    earlier = measure_it(make_experiment()).run
    if by == "every rank":
        fake_cluster.failures |= dict.fromkeys(("sequential", "decomposed", "fused"), ("refused", None))
        refused = measure_it(make_experiment(fresh=True)).run
    else:
        cluster = FromCluster(fake_cluster)
        refused_run = run(make_experiment(), store, cluster, shipped_machine("h200_nvl2"))
        refused = refused_run.run
        with pytest.raises(ValueError, match="Accepted"):
            list(refused_run)
    assert [each["run"] for each in summaries(store, 20)] == [earlier]
    assert store.run("last")["id"] == earlier
    assert store.run(refused)["status"] == "refused", "its rows can still be read by its id"


def test_what_failed_on_ranks_is_a_run_although_nothing_was_timed(
    store: Store, fake_cluster: Any, make_experiment: MakeExperiment, measure_it: Callable[[Experiment], Run]
) -> None:
    fake_cluster.failures |= dict.fromkeys(("sequential", "decomposed", "fused"), ("wrong", 1))
    failed = measure_it(make_experiment()).run
    assert [each["run"] for each in summaries(store, 20)] == [failed]


def test_failures_are_rows_and_the_sweep_goes_on(
    store: Store, fake_cluster: Any, make_experiment: MakeExperiment, measure_it: Callable[[Experiment], Run]
) -> None:
    fake_cluster.failures["decomposed"] = ("wrong", 1)
    space = Space((*THREE.choices, Choice("decomposed", (("pieces", (4096,)),))))
    sitting = measure_it(make_experiment(space))
    failures = {row["stage"]: row["message"] for row in store.rows(sitting.run) if row["outcome"] == "failure"}
    assert failures["wrong"] == "because of wrong"
    assert "4096 > 128" in failures["refused"]
    assert ("fused", "whole", "measured") in measured(store, sitting)
    assert (sitting.progress.done, sitting.progress.failed, sitting.progress.refused) == (3, 1, 1)


def test_a_cluster_that_is_gone_ends_the_sweep(
    store: Store, fake_cluster: Any, make_experiment: MakeExperiment, measure_it: Callable[[Experiment], Run]
) -> None:
    fake_cluster.failures |= dict.fromkeys(("sequential", "decomposed"), ("lost", None))
    pieces = Space((Choice("decomposed", (("pieces", tuple(range(1, 100))),)),))
    fake_cluster.seconds = lambda trial: 1.0
    with pytest.raises(ValueError, match="because of lost"):
        measure_it(make_experiment(pieces, protocol=PROTOCOLS["thorough"]))
    assert store.run("last")["status"] == "because of lost"


def test_cancelling_keeps_what_was_measured(
    store: Store, fake_cluster: Any, machine: Machine, make_experiment: MakeExperiment
) -> None:
    sitting = run(make_experiment(PIECES), store, FromCluster(fake_cluster), machine)
    numbers = itertools.count()
    fake_cluster.before = lambda trial: sitting.cancelled.set() if next(numbers) == 4 else None
    outcomes = [found for found in sitting if isinstance(found, Measurement | Failure)]
    assert sum(isinstance(outcome, Measurement) for outcome in outcomes) == 4
    stored = [row for row in store.rows(sitting.run) if row["outcome"] == "measurement"]
    assert len(stored) == 4
    assert len(store.samples_since(0, sitting.run)[0]) == 4 * 10
    assert store.run(sitting.run)["status"] == "cancelled"


def test_a_reader_that_leaves_ends_the_run(
    store: Store, fake_cluster: Any, machine: Machine, make_experiment: MakeExperiment
) -> None:
    sitting = run(make_experiment(), store, FromCluster(fake_cluster), machine)
    events = iter(sitting)
    while not isinstance(next(events), Sample):
        pass
    events.close()  # type: ignore[attr-defined]
    assert store.run(sitting.run)["status"] == "cancelled"
    assert len(store.samples_since(0, sitting.run)[0]) == 1


def test_the_simulator_answers_the_same_experiment(
    store: Store, machine: Machine, make_experiment: MakeExperiment
) -> None:
    experiment = make_experiment(fabric=parse("emulated:wire_to_compute=1"))
    sitting = run(experiment, store, FromSimulator(machine), machine)
    outcomes = list(sitting)
    rows = [row for row in store.rows(sitting.run) if row["part"] == "whole"]
    assert [row["scheme"] for row in rows] == ["sequential", "decomposed", "fused"]
    assert {row["source"] for row in rows} == {"estimated"}
    assert all(row["time_s"] >= row["floor_s"] for row in rows)
    assert len(outcomes) == 5
    (asked,) = experiment.problems
    local = local_ranks(asked.world, "cpu")
    assert local
    assert store.compute_seconds(machine.name, asked, local.hardware) is None, "an estimate resolves no fabric for good"


def test_estimate_first_measures_the_favourites_only(
    store: Store, fake_cluster: Any, make_experiment: MakeExperiment, measure_it: Callable[[Experiment], Run]
) -> None:
    sitting = measure_it(make_experiment(PIECES, search=Search(kind="estimate_first", count=2), parts="none"))
    rows = store.rows(sitting.run)
    assert sum(row["source"] == "measured" for row in rows) == sitting.progress.total == 2


def test_no_block_begins_after_the_budget_and_the_run_says_so(
    store: Store, make_experiment: MakeExperiment, measure_it: Callable[[Experiment], Run]
) -> None:
    sitting = measure_it(make_experiment(PIECES, search=Search(budget_s=1e-9), parts="none"))
    assert sum(row["source"] == "measured" for row in store.rows(sitting.run)) == 0
    total = sitting.progress.total
    assert total > 1
    assert sitting.progress.ended_early.startswith(f"The search ended after 0 of {total} schedules: its budget of ")
    assert store.run(sitting.run)["provenance"]["ended_early"] == sitting.progress.ended_early
    plenty = measure_it(make_experiment(PIECES, search=Search(budget_s=600.0), parts="none"))
    assert plenty.progress.done == total
    assert plenty.progress.ended_early == ""


def test_estimate_first_ends_where_nothing_can_be_faster(
    store: Store, make_experiment: MakeExperiment, measure_it: Callable[[Experiment], Run], monkeypatch: Any
) -> None:
    """One schedule is timed in each block, and all lower bounds lie above the first time."""
    monkeypatch.setattr("workbench.experiment.experiment.BaselinePlan.blocks", lambda plan, trials, *_: [
        plan.block([trial]) for trial in trials])  # fmt: skip
    estimated = predict

    def high(*of: Any, **how: Any) -> Any:
        return replace(estimated(*of, **how), low_s=1e6)

    monkeypatch.setattr("workbench.experiment.run.predict", high)
    sitting = measure_it(make_experiment(PIECES, search=Search(kind="estimate_first", budget_s=600.0), parts="none"))
    assert sitting.progress.done == 1
    assert "the next lower bound, " in sitting.progress.ended_early
    assert "exceeds the best measured time" in sitting.progress.ended_early
    again = measure_it(make_experiment(PIECES, search=Search(budget_s=600.0), parts="none", fresh=True))
    assert again.progress.done == again.progress.total, "all are measured where all are asked for"


def test_a_run_is_replayed_as_if_live(
    store: Store, machine: Machine, make_experiment: MakeExperiment, measure_it: Callable[[Experiment], Run]
) -> None:
    first = measure_it(make_experiment())
    replay = Replay(recordings_of_run(store, first.run), store, machine=machine, speed=None, title=first.run)
    assert sum(isinstance(found, Sample) for found in replay) == 5 * 10
    rows = store.rows(replay.run)
    assert {row["source"] for row in rows} == {"recorded", "estimated"}
    again = {row["key"]: row["time_s"] for row in rows if row["source"] == "recorded"}
    assert again == {row["key"]: row["time_s"] for row in store.rows(first.run) if row["source"] == "measured"}
    assert len(store.samples_since(0, replay.run)[0]) == 5 * 10
    assert replay.progress.done == replay.progress.total == 3


def test_an_experiment_can_be_asked_of_a_recording(
    store: Store, machine: Machine, make_experiment: MakeExperiment, measure_it: Callable[[Experiment], Run]
) -> None:
    relative = {"fabric": parse("emulated:wire_to_compute=1")}
    first = measure_it(make_experiment(**relative))
    home = FromRecordings(recordings_of_run(store, first.run), speed=None)
    sitting = run(make_experiment(**relative, protocol=PROTOCOLS["thorough"]), store, home, machine)
    outcomes = [found for found in sitting if isinstance(found, Measurement)]
    assert {outcome.source for outcome in outcomes} == {"recorded"}
    assert (sitting.progress.done, sitting.progress.failed) == (3, 0)


def test_an_experiment_survives_json(make_experiment: MakeExperiment) -> None:
    experiment = make_experiment(PIECES, search=Search(kind="random", count=2), title="A title", together=True)
    assert Experiment.from_json(experiment.to_json()) == experiment


def test_one_rank_has_no_communication_to_measure_alone(
    fake_cluster: Any, make_experiment: MakeExperiment, measure_it: Callable[[Experiment], Run]
) -> None:
    measure_it(make_experiment(world=1))
    parts = {trial.part for trials in fake_cluster.lists for trial in trials}
    assert parts == {"whole", "compute"}


# On GPU ranks the first block of a problem holds every baseline; the two fastest stand in all that follow.

HERE = shipped_machine("h200_nvl2")
RANKS = MeasuringRanks(HERE, parse("nvlink"))
ASKED = Request(operator="gemm_reduce_scatter", shape=(("m", "4096"), ("n", "4096"), ("k", "2048")), world=2,
                machine="h200_nvl2", schemes=("sequential", "fused"), protocol="quick")  # fmt: skip
MIXED = replace(ASKED, settings=(("tile", ("64x128x64", "128x128x64", "128x256x64")), ("num_stages", ("2", "3", "4")),
                                 ("tile_order", ("rotated",))))  # fmt: skip
"""In a ring they compile in half the time, and one block more is taken than forecast."""
SWEPT = replace(MIXED, schemes=("fused",))
TIMES = {"library": 9e-4, "library_tuned": 8e-4, "direct": 5e-4, "copy_engine": 7e-4, "overlapped": 4e-4}
SIZES: dict[str, dict[str, int]] = {
    "gemm": {"m": 4096, "n": 1024, "k": 1024}, "gemv": {"n": 4096, "k": 4096, "tokens": 4},
    "gather": {"tables_per_rank": 4, "rows": 1000, "dim": 128, "batch": 2048, "pooling": 8},
}  # fmt: skip


def seconds(trial: Trial) -> float:
    """By collective; our kernel takes 50 µs less, a part a tenth, fused ones 200 µs."""
    if trial.schedule.scheme == "fused":
        return 2e-4
    whole = TIMES[str(trial.schedule["collective"])] - 5e-5 * (trial.schedule["kernel"] == "ours")
    return whole if trial.part == "whole" else whole / 10


@pytest.fixture
def gpus(fake_cluster: Any) -> Any:
    device = WorkerDevice(kind="gpu", model="NVIDIA H200", processor="any", cores=(0,), memory_bytes=int(141e9))
    hardware = hardware_of("triton", [device, device], ["one", "one"])
    assert hardware is not None
    ranks = Ranks({"triton": "3.7"}, hardware)
    fake_cluster.gang, fake_cluster.seconds = (lambda world, backend: ranks), seconds
    return fake_cluster


def sat(experiment: Experiment, store: Store, gpus: Any) -> tuple[Run, Forecast, list[list[Trial]]]:
    """The run at its end, what was forecast of it, and its blocks."""
    gpus.lists.clear()
    before = forecast(experiment, HERE, store, ranks=gpus.gang)
    sitting = run(experiment, store, FromCluster(gpus), HERE)
    list(sitting)
    return sitting, before, list(gpus.lists)


def wholes(block: list[Trial]) -> set[tuple[Any, Any]]:
    """Collective and kernel of each baseline of *block*."""
    return {(one.schedule["collective"], one.schedule["kernel"]) for one in block
            if one.part == "whole" and one.schedule.scheme == "sequential"}  # fmt: skip


@pytest.mark.parametrize("operator", OPERATORS)
def test_baselines_are_all_that_the_ranks_run(operator: str) -> None:
    work = OPERATORS[operator].work
    asked = problem(operator, SIZES[work], world=2, dtype="bfloat16")
    known = {axis.name: axis for axis in axes(asked, "sequential", HERE, RANKS.fabric)}
    found = baselines(asked, known["tile"].default, RANKS)
    assert len(set(found)) == len(found)
    assert {one["collective"] for one in found} == set(known["collective"].values)
    both = [one["collective"] for one in found if one["kernel"] == "ours"]
    assert both == ([] if work == "gather" else [each for each in known["collective"].values if each != "overlapped"])


@pytest.mark.slow(keeps=2)
@pytest.mark.parametrize("asked", [ASKED, SWEPT, MIXED])
def test_the_first_block_holds_every_baseline_and_the_two_fastest_stand_in_every_other(
    asked: Request, store: Store, gpus: Any
) -> None:
    sitting, before, (first, *further) = sat(asked.experiment(), store, gpus)
    assert wholes(first) == {
        *((name, kernel) for name in TIMES for kernel in ("library", "ours") if name != "overlapped"),
        ("overlapped", "library"),
    }
    assert {one.schedule.scheme for one in first} == {"sequential"}
    assert further
    for block in further:
        more = {("library", "library")} if asked is MIXED else set()  # with other tiles, which are asked for
        assert wholes(block) - more == {("overlapped", "library"), ("direct", "ours")}
        parts = [(one.part, one.schedule["collective"], one.schedule["kernel"]) for one in block if one.part != "whole"]
        assert ("communication", "direct", "ours") in parts, "the fastest that has parts"
        assert {(part, kernel) for part, _, kernel in parts} >= {("compute", "library"), ("compute", "ours")}
        assert len({one.key for one in block}) == len(block)
    assert (before.blocks, before.trials) == (1 + len(further), sum(map(len, (first, *further))))
    assert sitting.progress.left is not None
    assert (sitting.progress.left.blocks, sitting.progress.failed) == (before.blocks, 0)
    assert sitting.progress.done == before.count
    fused = [row for row in store.rows(sitting.run) if row["scheme"] == "fused" and row["source"] == "measured"]
    assert all(row["sequential_s"] == pytest.approx(4e-4) for row in fused)
    assert all(row["plain_s"] == pytest.approx(4.5e-4) for row in fused)
    assert all(metrics.gain(row) == pytest.approx(2.0) for row in fused)


def test_what_is_known_of_baselines_needs_no_first_block(store: Store, gpus: Any) -> None:
    sat(ASKED.experiment(), store, gpus)
    again, before, blocks = sat(SWEPT.experiment(), store, gpus)
    assert all(wholes(block) == {("overlapped", "library"), ("direct", "ours")} for block in blocks)
    assert (before.blocks, before.trials) == (len(blocks), sum(map(len, blocks)))
    assert again.progress.done + again.progress.refused == again.progress.total
    _, _, nothing = sat(ASKED.experiment(), store, gpus)
    assert nothing == []
    _, before, (first, *_) = sat(replace(ASKED.experiment(), fresh=True), store, gpus)
    assert (len(wholes(first)), before.blocks) == (9, 2)


def test_asked_baselines_are_timed_once_in_the_first_block(store: Store, gpus: Any) -> None:
    every = replace(ASKED, schemes=("sequential",), settings=(("collective", ("all",)), ("kernel", ("all",))))
    sitting, before, blocks = sat(every.experiment(), store, gpus)
    assert (len(blocks), before.blocks, before.count) == (1, 1, 9)
    assert sitting.progress.done == 9
    rows = [row for row in store.rows(sitting.run) if row["source"] == "measured" and row["part"] == "whole"]
    assert len(rows) == 9
    assert all(row["floor_s"] and row["sequential_s"] == pytest.approx(4e-4) for row in rows)


def test_a_baseline_that_fails_is_not_chosen_and_without_any_the_usual_one_stands(store: Store, gpus: Any) -> None:
    gpus.failures["sequential"] = ("launch", 0)
    _, _, (first, further) = sat(ASKED.experiment(), store, gpus)
    assert len(wholes(first)) == 9
    assert wholes(further) == {("library", "library")}


def test_each_schedule_s_own_computation_is_timed_where_it_has_one(store: Store, gpus: Any) -> None:
    each = replace(replace(ASKED, settings=(("collective", ("overlapped", "direct")),)).experiment(), parts="each")
    sitting, _, blocks = sat(each, store, gpus)
    assert sitting.progress.failed == 0
    assert not [one for block in blocks for one in block
                if one.part != "whole" and one.schedule.get("collective") == "overlapped"]  # fmt: skip


def test_estimates_are_compared_with_every_baseline(store: Store) -> None:
    experiment = replace(ASKED, schemes=("fused",)).experiment()
    (row,) = predictions(experiment, HERE)
    several = baselines(experiment.problems[0], "128x256x64", RANKS)
    found = [one["time_s"] for one in _estimated(several, experiment)]
    assert row["sequential_s"] == min(found) < max(found)
    sitting = run(experiment, store, FromSimulator(HERE), HERE)
    list(sitting)
    assert {each["sequential_s"] for each in store.rows(sitting.run)} == {row["sequential_s"]}


def test_estimates_of_pieces_have_their_losses_and_their_share_of_the_ideal() -> None:
    pieces = replace(ASKED, operator="all_gather_gemm", schemes=("decomposed",), settings=(("pieces", ("1",)),))
    (row,) = predictions(pieces.experiment(), HERE)
    assert row["decomposition_loss"]["compute"] >= 1
    assert 1 < row["ideal_speedup"] <= 2
    assert 0 < row["share_of_ideal"] <= 1
    assert row["compute_s"] < row["time_s"]


def _estimated(schedules: tuple[Schedule, ...], experiment: Experiment) -> Iterator[dict[str, Any]]:
    for one in schedules:
        trial = experiment.trial(experiment.problems[0], one, experiment.fabric)
        for answer in FromSimulator(HERE).answer([trial], threading.Event()):
            assert isinstance(answer, Estimate)
            yield metrics.row_of(answer, None, HERE)


def test_cpu_ranks_have_one_baseline(make_experiment: Any, machine: Any) -> None:
    experiment = make_experiment()
    found = experiment.baseline_plan_of_tiles(experiment.problems[0], ["64x64x64"], experiment.fabric, machine)
    assert (found.legal, len(found.baselines)) == ((), 1)


# Others use the cores: a disturbed block is timed again once, and nothing of it counts as known or as an error.


def shares(store: Store, sitting: Run) -> list[float]:
    return [row["others_share"] for row in store.rows(sitting.run)
            if (row["scheme"], row["part"], row["source"]) == ("fused", "whole", "measured")]  # fmt: skip


def test_a_disturbed_block_is_timed_again_once(
    store: Store, fake_cluster: Any, others_had: Callable[..., None], make_experiment: MakeExperiment,
    measure_it: Callable[[Experiment], Run],
) -> None:  # fmt: skip
    together = make_experiment(parts="each", together=True)
    others_had(QUIET)
    sitting = measure_it(replace(together, fresh=True))
    assert (len(fake_cluster.lists), sitting.progress.timed_again) == (1, 0)
    others_had(BUSY, QUIET)
    sitting = measure_it(replace(together, fresh=True))
    assert (len(fake_cluster.lists), sitting.progress.timed_again) == (3, 1)
    assert shares(store, sitting) == [0.6, 0.01]
    others_had(BUSY)
    sitting = measure_it(replace(together, fresh=True))
    assert (len(fake_cluster.lists), sitting.progress.timed_again) == (5, 1), "once, however busy it stays"
    assert store.run(sitting.run)["provenance"]["timed_again"] == 1


@pytest.mark.slow
def test_blocks_are_not_timed_again_where_that_was_in_vain(
    fake_cluster: Any, others_had: Callable[..., None], make_experiment: MakeExperiment,
    measure_it: Callable[[Experiment], Run], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("workbench.experiment.forecast.LONGEST_SECONDS", 1e-9)
    others_had(BUSY)
    sitting = measure_it(make_experiment(space=MANY))
    blocks = len({tuple(trial.key for trial in one) for one in fake_cluster.lists})
    assert blocks > IN_VAIN_MOST
    assert sitting.progress.timed_again == IN_VAIN_MOST
    assert len(fake_cluster.lists) == blocks + IN_VAIN_MOST
    fake_cluster.lists.clear()
    others_had(*[BUSY] * 2 * IN_VAIN_MOST, BUSY, QUIET, BUSY, QUIET)
    sitting = measure_it(make_experiment(space=MANY, fresh=True))
    assert sitting.progress.timed_again == IN_VAIN_MOST + 1, "the load ended, and came back"


def test_a_disturbed_block_that_lost_a_rank_runs_again_once(
    store: Store, fake_cluster: Any, others_had: Callable[..., None], make_experiment: MakeExperiment,
    measure_it: Callable[[Experiment], Run],
) -> None:  # fmt: skip
    """It was timed again at once, and then a third time, since its trials waited for the retry."""
    others_had(BUSY, QUIET)
    read = fake_cluster.before

    def lose_once(trial: Trial) -> None:
        fake_cluster.failures = {"fused": ("lost", 1)} if len(fake_cluster.lists) == 1 else {}
        read(trial)

    fake_cluster.before = lose_once
    sitting = measure_it(make_experiment(parts="each", together=True))
    assert (len(fake_cluster.lists), sitting.progress.timed_again) == (2, 0)
    assert shares(store, sitting) == [0.01]


@pytest.mark.slow
def test_nothing_that_others_disturbed_is_known_later_or_makes_estimates_wrong(
    store: Store, fake_cluster: Any, others_had: Callable[..., None], make_experiment: MakeExperiment,
    measure_it: Callable[[Experiment], Run],
) -> None:  # fmt: skip
    fake_cluster.seconds = lambda trial: 100.0
    experiment = make_experiment(space=MANY)
    others_had(BUSY)
    rows = store.rows(measure_it(experiment).run)
    assert wrong_estimates(rows) == []
    assert wrong_estimates([{**row, "others_share": 0.0} for row in rows]), "they are far off"
    fake_cluster.lists.clear()
    others_had(QUIET)
    measure_it(experiment)
    assert fake_cluster.lists, "the disturbed times are not taken for known"
    fake_cluster.lists.clear()
    measure_it(experiment)
    assert fake_cluster.lists == [], "the quiet ones are"


def test_a_run_of_the_record_is_what_the_terminal_said_and_the_store_has(
    others_had: Callable[..., None], connected_fake: None, tmp_path: Path
) -> None:
    asked = ("run", "gemm_all_to_all", "--preset", "tiny", "--protocol", "quick", "--fresh")
    runs = []
    for busy, cores in ((0, QUIET), (8, BUSY), (8, QUIET)):
        others_had(cores)
        runs.append(runs_under_load.timed_run(asked, tmp_path / "store.sqlite", busy))
    assert [(run.said, run.share) for run in runs] == [(False, 0.01), (True, 0.6), (False, 0.01)]
    assert (runs[0].timed_again, runs[1].timed_again > 0, runs[1].fused_s) == (0, True, 1e-3)
    assert [runs_under_load.said_share(runs, busy) for busy in (0, 8)] == [0.0, 0.5]
    path = tmp_path / "record.json"
    runs_under_load.record(runs, {"date": "2026-11-01"}, path)
    assert runs_under_load.recorded(path) == runs
    assert json.loads(path.read_text())["said"] == {"load 0": 0.0, "load 8": 0.5}


@pytest.mark.skipif(not RECORD.exists(), reason="no quiet computer has recorded runs under load yet: see its module")
def test_recorded_runs_say_at_load_8_that_others_used_the_cores_and_at_load_0_not() -> None:
    runs = runs_under_load.recorded()
    assert [sum(run.load == busy for run in runs) for busy in (0, 8)] == [COUNT, COUNT]
    assert runs_under_load.said_share(runs, 0) <= 0.05
    assert runs_under_load.said_share(runs, 8) >= 0.95


def test_samples_say_whether_they_were_disturbed(
    store: Store, others_had: Callable[..., None], fake_cluster: Any, make_experiment: MakeExperiment,
    measure_it: Callable[[Experiment], Run],
) -> None:  # fmt: skip
    sitting = measure_it(make_experiment(parts="each", together=True))
    assert store.sample_frame(sitting.run)["disturbed"].isna().all(), "nobody read it"
    others_had(BUSY, QUIET)
    frame = store.sample_frame(measure_it(make_experiment(parts="each", together=True, fresh=True)).run)
    by_block = frame.groupby("block", sort=False)["disturbed"]
    assert list(by_block.all()) == [True, False]
    assert list(by_block.any()) == [True, False]
