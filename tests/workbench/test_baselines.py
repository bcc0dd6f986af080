"""On GPU ranks the first block of a problem holds every baseline; the two fastest stand in all that follow."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from cluster.seating import Ranks
from kernels.backends.capabilities import MeasuringRanks, baselines
from kernels.fabric import parse
from kernels.hardware import WorkerDevice, hardware_of
from kernels.operators import OPERATORS, problem
from kernels.outcome import Estimate
from kernels.schedule import Schedule
from kernels.schemes import axes
from kernels.trial import Trial
from workbench.experiment.experiment import Experiment
from workbench.experiment.forecast import Forecast, forecast
from workbench.experiment.question import Request
from workbench.experiment.run import Run, run
from workbench.experiment.sources import FromCluster, FromSimulator, predictions
from workbench.machines import shipped_machine
from workbench.results import metrics
from workbench.results.store import Store

HERE = shipped_machine("h200_nvl2")
RANKS = MeasuringRanks(HERE, parse("nvlink"))
ASKED = Request(operator="gemm_reduce_scatter", shape=(("m", "4096"), ("n", "4096"), ("k", "2048")), world=2,
                machine="h200_nvl2", schemes=("sequential", "fused"), protocol="quick")  # fmt: skip
MIXED = replace(ASKED, settings=(("tile", ("64x128x64", "128x128x64", "128x256x64")), ("num_stages", ("2", "3", "4"))))
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
