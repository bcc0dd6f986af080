"""A sweep is a row of blocks: each schedule in one of them, what it is compared with in all."""

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.fabric import parse
from kernels.operators import problem
from kernels.schemes import schedule
from kernels.trial import PROTOCOLS, Trial
from workbench.experiment.experiment import LONGEST_SECONDS, PARTS, BaselinePlan, baseline_plan, fit
from workbench.machines import shipped_machine
from workbench.results import metrics
from workbench.results.comparison import MAX_BLOCK_SCHEDULES

MACHINE, LINK = shipped_machine("laptop_cpu"), parse("emulated:bandwidth_bytes_per_second=1e9")
ASKED = problem("gemm_all_to_all", {"m": 256, "n": 128, "k": 64}, world=2)
TILES = ("32x64x64", "64x64x64")
MakeTrial = Callable[..., Trial]


def whole(scheme: str, **axes: int | str) -> Trial:
    made = schedule(ASKED, scheme, axes, MACHINE, LINK)
    return Trial(problem=ASKED, schedule=made, backend="cpu", machine=MACHINE.name, fabric=LINK,
                 protocol=PROTOCOLS["quick"])  # fmt: skip


WHOLES = [whole("sequential")] + [whole("decomposed", pieces=pieces, tile=tile) for tile in TILES
                                  for pieces in range(1, 13)]  # fmt: skip


def of(wholes: list[Trial], parts: str) -> BaselinePlan:
    return baseline_plan(whole("sequential"), [trial.schedule["tile"] for trial in wholes], parts, MACHINE)


@settings(deadline=None, max_examples=60)
@given(
    wholes=st.lists(st.sampled_from(WHOLES), unique=True, min_size=1),
    parts=st.sampled_from(PARTS),
    seconds=st.lists(st.floats(0.001, 20), min_size=len(WHOLES), max_size=len(WHOLES)),
)
def test_every_schedule_is_in_one_block_of_at_most_eight_with_its_baselines(
    wholes: list[Trial], parts: str, seconds: list[float]
) -> None:
    by_key = {trial.key: one for trial, one in zip(WHOLES, seconds, strict=True)}
    around = of(wholes, parts)
    made = list(around.blocks(wholes, lambda trials, before: sum(by_key.get(trial.key, 0.5) for trial in trials)))
    base = around.base
    schedules = [trial for trial in wholes if parts == "none" or trial != base]
    assert [trial for block in made for trial in block.schedules if trial in schedules] == schedules
    for block in made:
        others = [trial for trial in block.schedules if trial in schedules]
        assert 1 <= len(others) <= MAX_BLOCK_SCHEDULES or (not others and wholes == [base])
        keys = [trial.key for trial in block.trials]
        assert len(keys) == len(set(keys))
        if parts == "none":
            assert block.trials == list(block.schedules)
            continue
        timed = {(trial.schedule.scheme, trial.part) for trial in block.trials}
        assert {("sequential", "whole"), ("sequential", "compute"), ("sequential", "communication")} <= timed
        alone = {trial.schedule["tile"] for trial in block.trials if trial.part == "compute"}
        assert alone >= {trial.schedule["tile"] for trial in block.schedules}
        if parts == "each":
            assert sum(trial.part == "compute" for trial in block.trials) >= len(others)


def test_a_long_block_holds_fewer_schedules_but_never_more_baselines_than_schedules() -> None:
    assert fit([0.1] * 20, 0.3) == MAX_BLOCK_SCHEDULES
    assert fit([1.0] * 20, 3.0) == int(LONGEST_SECONDS) - 3
    assert fit([100.0] * 20, 3.0) == 1
    assert fit([2.0] * 20, 6.0) == 3, "as long as its baselines take"
    assert fit([], 1.0) == 0


def test_what_was_measured_until_then_cuts_the_next_block() -> None:
    pace = [0.01]
    cut = of(WHOLES, "baseline").blocks(WHOLES, lambda trials, before: pace[0] * len(trials))
    first = next(cut)
    pace[0] = 2.0
    assert (len(first.schedules), len(next(cut).schedules)) == (1 + MAX_BLOCK_SCHEDULES, 1 + 4)


def test_all_schedules_of_one_tile_are_compared_with_a_baseline_of_that_tile() -> None:
    few = [trial for trial in WHOLES if trial.schedule["tile"] == TILES[1] and trial.schedule.scheme == "decomposed"]
    assert of(few, "baseline").base.schedule["tile"] == TILES[1]
    assert of(WHOLES, "baseline").base == WHOLES[0]


def test_beside_what_has_streams_of_its_own_stand_its_two_parts_and_the_communication_in_one_piece() -> None:
    machine, link = shipped_machine("h200_nvl2"), parse("nvlink")
    of_gpus = problem("gemm_reduce_scatter", {"m": 4096, "n": 2048, "k": 2048}, dtype="bfloat16", world=2)
    cut, fused = (Trial(problem=of_gpus, schedule=schedule(of_gpus, scheme, values, machine, link), backend="triton",
                        machine=machine.name, fabric=link, protocol=PROTOCOLS["quick"])
                  for scheme, values in (("decomposed", {"pieces": 4}), ("fused", {})))  # fmt: skip
    parts = BaselinePlan(cut, "each", machine).stream_parts([cut, fused])
    assert [(part.part, part.schedule["pieces"]) for part in parts] == [
        ("compute", 4), ("communication", 4), ("communication", 1),
    ]  # fmt: skip
    assert not any(metrics.adds(part) for part in parts), "in one piece by copy engines it is a transfer alone"
    here = whole("decomposed", pieces=4)
    assert of([here], "each").stream_parts([here]) == [], "CPU ranks compute and copy on one thread"
