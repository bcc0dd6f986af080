"""A space becomes legal schedules, a sweep is a row of blocks, and a search stays inside its space and count."""

import sys
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.backends.capabilities import MeasuringRanks
from kernels.fabric import Fabric, parse
from kernels.machine import Machine
from kernels.operators import problem
from kernels.problem import Problem
from kernels.schedule import Refusal, Schedule
from kernels.schemes import axes, schedule
from kernels.trial import PROTOCOLS, Trial
from workbench.experiment.experiment import (
    LONGEST_SECONDS,
    PARTS,
    BaselinePlan,
    Search,
    Times,
    baseline_plan,
    best_so_far,
    fit,
    order,
    rounds,
)
from workbench.experiment.space import EVERY, Choice, Points, Space, choices, left_out_text, points, values
from workbench.machines import shipped_machine
from workbench.results import metrics
from workbench.results.comparison import MAX_BLOCK_SCHEDULES

# A space becomes legal schedules in order; what is illegal is collected, what is unknown is refused at once.

MakeTrial = Callable[..., Trial]


@pytest.fixture
def asked() -> Problem:
    return problem("gemm_all_to_all", {"m": 256, "n": 128, "k": 64}, world=2)


@pytest.fixture
def fabric() -> Fabric:
    return parse("emulated")


def spread(machine: Machine, asked: Problem, fabric: Fabric, *wanted: Choice) -> Points:
    return points(Space(wanted), asked, machine, fabric)


def test_the_last_axis_varies_fastest(machine: Machine, asked: Problem, fabric: Fabric) -> None:
    cut = Choice("decomposed", (("pieces", (2, 4)), ("steps", ("uniform", "local_first"))))
    found = spread(machine, asked, fabric, Choice("sequential"), cut)
    assert found.schedules[0].scheme == "sequential"
    assert [(s["pieces"], s["steps"]) for s in found.schedules[1:]] == [
        (2, "uniform"), (2, "local_first"), (4, "uniform"), (4, "local_first")]  # fmt: skip
    assert not found.refused


def test_every_value_of_an_axis_can_be_asked_for(machine: Machine, asked: Problem, fabric: Fabric) -> None:
    offered = next(axis for axis in axes(asked, "fused", machine, fabric) if axis.name == "slice_tiles").values
    found = spread(machine, asked, fabric, Choice("fused", (("slice_tiles", (EVERY,)),)))
    assert tuple(schedule["slice_tiles"] for schedule in found.schedules) == offered


def test_what_is_illegal_is_collected_with_its_sentence(machine: Machine, asked: Problem, fabric: Fabric) -> None:
    found = spread(machine, asked, fabric, Choice("decomposed", (("pieces", (2, 4096)),)))
    assert [schedule["pieces"] for schedule in found.schedules] == [2]
    assert [(schedule["pieces"], "4096 > 128" in sentence) for schedule, sentence in found.refused] == [(4096, True)]


def test_what_comes_out_equal_is_tried_once(machine: Machine, asked: Problem, fabric: Fabric) -> None:
    found = spread(machine, asked, fabric, Choice("decomposed"), Choice("decomposed", (("pieces", (8, 8)),)))
    assert len(found.schedules) == 1


def test_unknown_names_are_refused_before_anything_is_tried(machine: Machine, asked: Problem, fabric: Fabric) -> None:
    with pytest.raises(Refusal, match=r"decomposed has no axis 'peices'\. Accepted: tile, pieces"):
        spread(machine, asked, fabric, Choice("decomposed", (("peices", (2,)),)))
    with pytest.raises(Refusal, match=r"There is no scheme 'fuzed'.*Accepted: sequential"):
        spread(machine, asked, fabric, Choice("fuzed"))


def test_words_go_to_every_scheme_that_has_the_axis(machine: Machine, asked: Problem, fabric: Fabric) -> None:
    schemes = ("sequential", "decomposed")
    known = {scheme: axes(asked, scheme, machine, fabric) for scheme in schemes}
    made = choices(schemes, {"pieces": ["2", "4"], "tile": ["64x64x64"]}, known)
    assert made == Space((Choice("sequential", (("tile", ("64x64x64",)),)),
                          Choice("decomposed", (("pieces", (2, 4)), ("tile", ("64x64x64",))))))  # fmt: skip
    with pytest.raises(Refusal, match=r"None of sequential.* has an axis 'slice_tiles'"):
        choices(schemes, {"slice_tiles": ["2"]}, known)


def test_a_space_survives_json() -> None:
    space = Space((Choice("sequential"), Choice("decomposed", (("pieces", (2, 4)), ("split", (EVERY,))))))
    assert Space.from_json(space.to_json()) == space


def test_what_ranks_do_not_run_is_left_out_before_anything_is_measured_and_told_shortly() -> None:
    gpus, link = shipped_machine("h200_nvl4"), parse("nvlink")
    asked = problem("all_gather_gemm", {"m": 1024, "n": 508, "k": 512}, world=2, dtype="bfloat16")
    every = Space((Choice("sequential", (("collective", (EVERY,)), ("kernel", (EVERY,)))),))
    found = points(every, asked, gpus, link, MeasuringRanks(gpus, link))
    assert {one["kernel"] for one in found.schedules} == {"library"}  # ours moves multiples of 16 bytes
    assert len(found.schedules) == len(found.left_out) == 5
    assert found.refused == ()
    words = left_out_text([found])
    assert words.startswith(f"{len(found.left_out)} combinations of all values were left out.")
    assert words.count("n = 508") == 1
    stated = points(
        Space((Choice("sequential", (("kernel", ("ours",)),)),)), asked, gpus, link, MeasuringRanks(gpus, link)
    )
    assert [one["kernel"] for one, _ in stated.refused] == ["ours"]


def test_slices_are_tried_once_where_they_change_nothing() -> None:
    gpus, link = shipped_machine("h200_nvl4"), parse("nvlink")
    asked = problem("gemm_reduce_scatter", {"m": 2048, "n": 2048, "k": 512}, world=2, dtype="bfloat16")
    wanted = Choice("fused", (("tile_order", ("rotated", "interleaved")), ("slice_tiles", (1, 2, 4))))
    found = points(Space((wanted,)), asked, gpus, link)
    assert [one.get("slice_tiles") for one in found.schedules] == [None, 1, 2, 4]


# A sweep is a row of blocks: each schedule in one of them, what it is compared with in all.

MACHINE, LINK = shipped_machine("laptop_cpu"), parse("emulated:bandwidth_bytes_per_second=1e9")
ASKED = problem("gemm_all_to_all", {"m": 256, "n": 128, "k": 64}, world=2)
TILES = ("32x64x64", "64x64x64")


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


# Every search stays inside its space and its count, and hears the times of what it chose.

SCHEDULES = tuple(Schedule("decomposed", (("pieces", 2**exponent),)) for exponent in range(8))


def seconds(schedule: Schedule) -> float:
    """Best at 16 pieces: a U-curve."""
    return abs(schedule.count("pieces") - 16) + 1.0


def estimates(schedules: Sequence[Schedule]) -> list[float]:
    return [seconds(schedule) for schedule in schedules]


def walk(search: Search) -> list[Schedule]:
    found = rounds(search, SCHEDULES, estimates)
    times: dict[Schedule, float] = {}
    chosen = list(next(found, []))
    while True:
        times |= {schedule: seconds(schedule) for schedule in chosen}
        try:
            chosen = list(found.send(times))
        except StopIteration:
            return list(times)


def test_exhaustive_takes_all_in_order_and_no_more_than_its_count() -> None:
    assert walk(Search()) == list(SCHEDULES)
    assert walk(Search(count=3)) == list(SCHEDULES[:3])


def test_random_is_repeatable_and_never_takes_one_twice() -> None:
    chosen = walk(Search(kind="random", count=5, seed=1))
    assert len(set(chosen)) == 5
    assert chosen == walk(Search(kind="random", count=5, seed=1))
    assert chosen != walk(Search(kind="random", count=5, seed=2))
    assert set(walk(Search(kind="random", count=100))) == set(SCHEDULES)


def test_estimate_first_takes_the_best_by_estimate_best_first() -> None:
    chosen = walk(Search(kind="estimate_first", count=3))
    assert [schedule["pieces"] for schedule in chosen] == [16, 8, 4]


def test_equal_estimates_stay_in_the_order_of_the_space() -> None:
    assert order(Search(kind="estimate_first", count=8), 8, lambda: [1.0] * 8) == list(range(8))


def test_optuna_keeps_to_the_space_and_its_count() -> None:
    pytest.importorskip("optuna", reason="the extra `search` is not installed")
    chosen = walk(Search(kind="optuna", count=6, seed=3))
    assert len(chosen) == len(set(chosen)) == 6
    assert set(chosen) <= set(SCHEDULES)
    assert chosen[0]["pieces"] == 16, "the estimate's favourite comes first"


def test_optuna_proposes_schedules_of_which_some_lack_an_axis() -> None:
    """An axis that the other values leave unread is not there: such a schedule can be proposed, too."""
    pytest.importorskip("optuna", reason="the extra `search` is not installed")
    space = [Schedule("fused", (("a", 1), ("b", 2))), Schedule("fused", (("b", 2),)), Schedule("fused", (("a", 3),))]
    walked = best_so_far(Search(kind="optuna", count=3), dict(zip(space, (3.0, 2.0, 1.0), strict=True)),
                         lambda some: [float(space.index(each)) for each in some])  # fmt: skip
    assert {each for each, _ in walked} == set(space)


def test_a_budget_takes_the_place_of_a_count() -> None:
    for kind in ("random", "estimate_first"):
        assert set(walk(Search(kind=kind, budget_s=5.0))) == set(SCHEDULES)


def test_a_search_is_played_over_a_space_that_was_measured() -> None:
    """Best so far never rises, and estimate first stops where the next lower bound exceeds it."""
    times = {each: float(number) for number, each in zip((5, 3, 4, 1, 2, 6, 7, 8), SCHEDULES, strict=False)}

    def estimates(some: Sequence[Schedule]) -> list[float]:
        return [times[each] for each in some]

    walked = best_so_far(Search(), times, estimates)
    assert [best for _, best in walked] == [min(list(times.values())[: n + 1]) for n in range(len(times))]
    first = best_so_far(Search(kind="estimate_first", count=9), times, estimates)
    assert [best for _, best in first] == [1.0] * len(times)
    stopped = best_so_far(Search(kind="estimate_first", count=9), times, estimates, lambda each: 0.4 * times[each])
    assert [times[each] for each, _ in stopped] == [1.0, 2.0], "0.4 x 3 exceeds 1"
    random = best_so_far(Search(kind="random", count=3, seed=4), times, estimates, lambda each: 99.0)
    assert len(random) == 3, "only estimate first stops"


def test_without_optuna_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(
        Refusal, match=r"needs optuna, which is not installed\. Accepted: pip install 'overlap-workbench\[search\]'"
    ):
        walk(Search(kind="optuna", count=2))


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"kind": "clever"}, "There is no search 'clever'. Accepted: exhaustive"),
        ({"kind": "random"}, "search = random needs count"),
        ({"count": 0}, "count = 0 is too small: 0 < 1"),
        ({"budget_s": 0}, "budget_s = 0 is no time to measure in: 0 s is not above 0"),
        ({"budget_s": -3.0}, "budget_s = -3 is no time to measure in: -3 s is not above 0"),
        ({"budget_s": float("nan")}, "budget_s = nan is no time to measure in"),
    ],
)
def test_a_search_that_cannot_be_is_one_sentence(fields: Times, sentence: str) -> None:
    with pytest.raises(Refusal) as refusal:
        Search(**fields)  # type: ignore[arg-type]
    assert str(refusal.value).startswith(sentence)


def test_tiles_that_are_swept_are_whole_where_the_default_cuts_its_own() -> None:
    """16 tiles of the default are cut in eight, and most other tiles are too many for that."""
    of = problem("gemm_all_reduce", {"m": 512, "n": 1024, "k": 16384}, dtype="bfloat16", world=2)
    on, link = shipped_machine("h200_nvl2"), parse("nvlink")
    assert schedule(of, "fused", {}, on, link)["split_k"] == 8
    lists = values(Choice("fused", (("tile", (EVERY,)),)), of, on, link, 10**6)
    assert (lists["split_k"], lists["grid"]) == ((1,), (0,))


def test_a_stated_value_that_schedules_omit_is_kept() -> None:
    """The default is cut in eight: who says that no tile is cut gets that."""
    of = problem("gemm_all_to_all", {"m": 128, "n": 1024, "k": 13184}, dtype="bfloat16", world=1)
    on, link = shipped_machine("h200_nvl2"), parse("nvlink")
    assert schedule(of, "fused", {}, on, link)["split_k"] == 8
    several = points(Space((Choice("fused", (("split_k", (1, 2, 8)),)),)), of, on, link)
    assert [each["split_k"] for each in several.schedules] == [1, 2, 8]
    assert not several.refused
