"""What was measured is found again and nothing that differs is hidden; ratios are over the best baseline known."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernels.fabric import parse
from kernels.machine import Machine
from kernels.operators import problem
from kernels.outcome import Measurement, row
from kernels.problem import Problem
from kernels.schedule import Schedule
from kernels.schemes import axis_rules, schedule
from kernels.trial import MANY_CALLS, ONE_CALL_ALONE, PROTOCOLS, UNDER_LOAD, Trial
from workbench import cli
from workbench.experiment.winners import (
    BlockBaselines,
    KnownTrial,
    WantedSchedules,
    WinnerAnswer,
    as_fast,
    known,
    nearest_winners,
    tuned,
)
from workbench.machines import shipped_machine
from workbench.results import recordings
from workbench.results.rows import row_compared_as
from workbench.results.store import Store

# What was measured is found again by problem, hardware and versions, and nothing that differs is hidden.

SHAPE = {"m": 8192, "n": 7168, "k": 2048}
NVLINK = parse("nvlink")
THERE = {"versions": {"torch": "2.11.0", "triton": "3.6.0", "nccl": "2.28.9"}, "source_print": "55646f76b103",
         "cpu": "any", "cores": 16}  # fmt: skip
"""What the shipped recordings of h200_nvl4 were measured with."""
HERE = {"cpu": "a processor", "cores": 2, "versions": {"torch": "2.13.0", "numpy": "2.4.0"},
        "source_print": "today"}  # fmt: skip


@pytest.fixture(scope="module")
def h200() -> Machine:
    return shipped_machine("h200_nvl4")


@pytest.fixture(scope="module")
def experts() -> list[KnownTrial]:
    return known("gemm_all_to_all")


def asked(shape: Mapping[str, int] = SHAPE, world: int = 4) -> Problem:
    return problem("gemm_all_to_all", dict(shape), world=world, dtype="bfloat16")


def test_the_winner_of_a_shape_is_the_fastest_recorded_of_each_scheme(h200: Machine, experts: list[KnownTrial]) -> None:
    found = tuned(asked(), h200, NVLINK, experts, THERE)
    times = {each.schedule.scheme: each.known.time_s for each in found.winners}
    assert list(times) == ["fused", "sequential"], "fastest first"
    mine = [each for each in experts if each.trial.problem == asked()]
    assert len(mine) > len(times)
    for scheme, time_s in times.items():
        assert time_s == min(each.time_s for each in mine if each.trial.schedule.scheme == scheme)
    assert found.message == ""
    fused = found.winners[0]
    assert fused.differs == ()
    assert fused.schedule == axis_rules.effective(fused.known.trial.problem, fused.known.trial.schedule, "triton")
    assert fused.known.measurement().time_s == fused.known.time_s
    assert "recording h200_nvl4_gemm of 2026-11-2" in fused.source
    assert "4 x NVIDIA H200, torch 2.11.0, triton 3.6.0, nccl 2.28.9, kernels 55646f76b103" in fused.source


def test_another_machine_finds_nothing_and_says_what_there_is(experts: list[KnownTrial]) -> None:
    found = tuned(asked(), shipped_machine("h100_nvl8"), NVLINK, experts, THERE)
    assert found.winners == ()
    assert found.message.startswith(
        "Nobody has measured gemm_all_to_all (m=8192, n=7168, k=2048, bfloat16, 4 ranks) or a shape near it on h100"
    )
    assert f"{len(experts)} trials of it are known, from " in found.message
    assert "h200_nvl4" in found.message


@pytest.mark.parametrize("different", [asked(world=2), replace(asked(), dtype="float16")])
def test_another_world_or_dtype_is_another_problem(
    different: Problem, h200: Machine, experts: list[KnownTrial]
) -> None:
    found = tuned(different, h200, NVLINK, experts, THERE)
    assert found.winners == ()
    assert "other shapes or axes here" in found.message


def test_versions_and_kernels_that_differ_are_told(h200: Machine, experts: list[KnownTrial]) -> None:
    found = tuned(asked(), h200, NVLINK, experts, {**HERE, "versions": {**THERE["versions"], "torch": "2.12.0"}})  # type: ignore[dict-item]
    assert found.winners[0].differs == ("torch 2.11.0, here 2.12.0", "kernels 55646f76b103, here today")
    assert found.winners[0].to_json()["differs"] == list(found.winners[0].differs)
    unknown = tuned(asked(), h200, NVLINK, experts, {**HERE, "versions": {}})
    assert "nccl 2.28.9, here none" in unknown.winners[0].differs


def test_the_nearest_shape_answers_and_says_so(h200: Machine, experts: list[KnownTrial]) -> None:
    found = tuned(asked({**SHAPE, "k": 4096}), h200, NVLINK, experts, THERE)
    assert found.winners[0].differs[0] == "measured at the nearest shape, m=8192, n=7168, k=2048"
    far = tuned(asked({**SHAPE, "k": 16, "n": 16}), h200, NVLINK, experts, THERE)
    assert far.winners == ()


def test_those_that_may_be_as_fast_as_the_first_are_of_its_block(h200: Machine, experts: list[KnownTrial]) -> None:
    first, *others = tuned(asked(), h200, NVLINK, experts, THERE).winners
    assert as_fast([first, *others]) == ([], []), "the recorded verdicts are certain"
    same = replace(first)
    assert as_fast([first, same]) == ([same], []), "a schedule against itself is never certain"
    elsewhere = replace(first, known=replace(first.known, block="another"))
    assert as_fast([first, elsewhere]) == ([], [elsewhere])


@pytest.mark.parametrize("shape", [SHAPE, {**SHAPE, "k": 4096}, {**SHAPE, "k": 16, "n": 16}, {**SHAPE, "m": 6144}])
def test_few_lines_are_read_and_the_winners_are_the_same(
    shape: Mapping[str, int], h200: Machine, experts: list[KnownTrial], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench.experiment.winners.what_times_depend_on", lambda machine: THERE)
    near = nearest_winners(asked(shape), h200, NVLINK, WantedSchedules())
    every = tuned(asked(shape), h200, NVLINK, experts, THERE)
    assert [each.to_json() for each in near.winners] == [each.to_json() for each in every.winners]
    assert bool(near.message) == bool(every.message)
    of_world = [each for each in experts if (each.trial.machine, each.trial.world) == (h200.name, 4)]
    assert near.known_here == len(of_world) > 0


def test_only_what_was_timed_alike_counts_as_known_here() -> None:
    """What was recorded in bursts is no evidence of steady load."""
    gpus = shipped_machine("h200_nvl2")
    of_gpus = problem("gemv_all_reduce", {"n": 8192, "k": 8192, "tokens": 1}, world=2, dtype="bfloat16")
    answers = {each: nearest_winners(of_gpus, gpus, NVLINK, WantedSchedules(), compared_as=each)
               for each in (MANY_CALLS, ONE_CALL_ALONE, UNDER_LOAD)}  # fmt: skip
    counts = {each: sum((one.trial.machine, one.trial.world) == (gpus.name, 2)
                        for one in known("gemv_all_reduce", compared_as=each)) for each in answers}  # fmt: skip
    assert {each: answer.known_here for each, answer in answers.items()} == counts
    assert counts[MANY_CALLS] > 0 == counts[UNDER_LOAD]
    loaded = answers[UNDER_LOAD]
    assert (loaded.winners, loaded.message.partition(": ")[0]) == ((), (
        "Nobody has measured gemv_all_reduce (n=8192, k=8192, tokens=1, bfloat16, 2 ranks) or a shape near it on "
        "h200_nvl2 over nvlink under steady load"
    ))  # fmt: skip
    assert "other shapes, links or axes here" not in loaded.message, "what was recorded here is of bursts"


@pytest.mark.slow(keeps=1)
@pytest.mark.parametrize("operator", ["gemm_all_to_all", "gemv_all_reduce"])
def test_a_recorded_line_is_counted_as_its_trial_is(operator: str) -> None:
    lines = [line for of_file in recordings.headlines(operator).values() for line in of_file]
    ways = [(row_compared_as(line.row), line.recorded().measurement.trial.compared_as) for line in lines]
    assert all(of_row == of_trial for of_row, of_trial in ways)
    assert {MANY_CALLS, ONE_CALL_ALONE} <= {of_row for of_row, _ in ways} or operator == "gemm_all_to_all"


def test_axes_that_are_pinned_stay_so(h200: Machine, experts: list[KnownTrial]) -> None:
    best = tuned(asked(), h200, NVLINK, experts, THERE).winners[0].known
    orders = {str(each.trial.schedule["tile_order"]) for each in experts
              if each.trial.problem == asked() and each.trial.schedule.scheme == "fused"}  # fmt: skip
    for order in orders:
        found = tuned(asked(), h200, NVLINK, experts, THERE, WantedSchedules({"tile_order": (order,)})).winners[0]
        assert found.schedule.get("tile_order") == order
        assert found.known.time_s >= best.time_s
    assert tuned(asked(), h200, NVLINK, experts, THERE, WantedSchedules({"tile": ("1x1x1",)})).winners == ()


def test_an_axis_that_did_not_exist_then_has_its_default_and_is_told(h200: Machine, experts: list[KnownTrial]) -> None:
    (best, *_) = tuned(asked(), h200, NVLINK, experts, THERE).winners
    axes = tuple(axis for axis in best.known.trial.schedule.axes if axis[0] != "group_rows")
    older = replace(best.known.trial, schedule=replace(best.known.trial.schedule, axes=axes))
    (found,) = tuned(asked(), h200, NVLINK, [replace(best.known, trial=older)], THERE).winners
    assert found.schedule["group_rows"] == 8
    assert found.differs == ("today's schedule also has group_rows=8",)


def test_a_schedule_that_is_illegal_today_does_not_win(h200: Machine, experts: list[KnownTrial]) -> None:
    best = tuned(asked(), h200, NVLINK, experts, THERE).winners[0].known
    axes = {**dict(best.trial.schedule.axes), "tile_order": "sideways"}
    illegal = replace(best.trial, schedule=replace(best.trial.schedule, axes=tuple(axes.items())))
    found = tuned(asked(), h200, NVLINK, [replace(best, trial=illegal)], THERE)
    assert (found.winners, found.message != "") == ((), True)


# ---- one's own runs


@pytest.fixture
def remember(tmp_path: Path, machine: Machine) -> Callable[..., WinnerAnswer]:
    """remember(seconds...): sequential is measured one time after the other on CPU ranks; what is found of it."""

    def run(*seconds: float, facts: Mapping[str, Any] = HERE, **changes: Any) -> WinnerAnswer:
        mine, link = problem("gemm_all_to_all", {"m": 256, "n": 128, "k": 64}, world=2), parse("shared_memory")
        made = Trial(problem=mine, schedule=schedule(mine, "sequential", {}, machine, link), backend="cpu",
                     machine=machine.name, fabric=link, protocol=PROTOCOLS["quick"])  # fmt: skip
        with Store(tmp_path / "store.sqlite") as store:
            for time_s in seconds:
                begun = store.begin_run({}, facts)
                measured = Measurement(trial=made, samples=((time_s,), (time_s,)), **{"correct": True, **changes})
                store.add_outcome(begun, measured, row(measured, begun))
            return tuned(mine, machine, link, known("gemm_all_to_all", store), HERE)

    return run


def test_a_run_of_ones_own_is_found_and_named(remember: Callable[..., WinnerAnswer]) -> None:
    (found,) = remember(3e-3).winners
    assert found.known.time_s == 3e-3
    assert found.known.where == f"run {found.known.run}"
    assert found.differs == ()


def test_runs_of_this_person_count_before_a_recording_of_another_computer(
    h200: Machine, experts: list[KnownTrial]
) -> None:
    """A recording that was faster is no answer where the same was timed here; a sequential schedule alone is none."""
    best = {each.schedule.scheme: each.known for each in tuned(asked(), h200, NVLINK, experts, HERE).winners}
    plain, fused = (replace(best[scheme], where="run mine", run="mine", block="mine", time_s=2 * best[scheme].time_s)
                    for scheme in ("sequential", "fused"))  # fmt: skip
    found = tuned(asked(), h200, NVLINK, [*experts, plain, fused], HERE).winners
    assert [each.known.run for each in found] == ["mine", "mine"]
    assert found[0].known.time_s == 2 * best["fused"].time_s
    alone = tuned(asked(), h200, NVLINK, [*experts, plain], HERE).winners
    assert alone[0].known.time_s == best["fused"].time_s


def test_of_several_measurements_the_newest_counts_not_the_luckiest(remember: Callable[..., WinnerAnswer]) -> None:
    assert remember(2e-3, 1e-3, 4e-3).winners[0].known.time_s == 4e-3


def test_the_best_of_several_blocks_is_named_by_its_share_of_the_baseline_and_beside_it(
    tmp_path: Path, machine: Machine
) -> None:
    """A block of a quiet computer is no faster schedule; its baseline is not what another block's ratio is over."""
    mine, link = problem("gemm_all_to_all", {"m": 256, "n": 128, "k": 64}, world=2), parse("shared_memory")
    blocks = {"busy": {"sequential": (3e-3, {}), "fused": (2e-3, {"slice_tiles": 1})},
              "quiet": {"sequential": (1e-3, {}), "fused": (9e-4, {"slice_tiles": 2})}}  # fmt: skip
    with Store(tmp_path / "store.sqlite") as store:
        run = store.begin_run({}, HERE)
        for block, times in blocks.items():
            for scheme, (time_s, axes) in times.items():
                made = Trial(problem=mine, schedule=schedule(mine, scheme, axes, machine, link), backend="cpu",
                             machine=machine.name, fabric=link, protocol=PROTOCOLS["quick"])  # fmt: skip
                measured = Measurement(trial=made, samples=((time_s,), (time_s,)), correct=True, block=block)
                store.add_outcome(run, measured, row(measured, run))
        found = tuned(mine, machine, link, known("gemm_all_to_all", store), HERE)
    assert [(each.schedule.scheme, each.known.block) for each in found.winners] == [("fused", "busy"), (
        "sequential", "busy")]  # fmt: skip
    assert [each.known.time_s for each in found.winners] == [2e-3, 3e-3]


@pytest.mark.parametrize("changes", [{"correct": False}, {"source": "recorded"}])
def test_what_was_wrong_or_only_repeated_does_not_count(
    remember: Callable[..., WinnerAnswer], changes: dict[str, Any]
) -> None:
    assert remember(1e-3, **changes).winners == ()


def test_cpu_ranks_of_another_computer_are_other_hardware(remember: Callable[..., WinnerAnswer]) -> None:
    found = remember(1e-3, facts={**HERE, "cpu": "a faster one", "cores": 64})
    assert found.winners == ()
    assert "a faster one with 64 cores" in found.message


# ---- workbench recommend


@pytest.mark.slow
def test_recommend_shows_winners_above_the_estimates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shape = [word for name, size in SHAPE.items() for word in ("--shape", f"{name}={size}")]
    place = ["--world", "4", "--machine", "h200_nvl4", "--store", str(tmp_path / "none.sqlite")]
    words = ["recommend", "gemm_all_to_all", *shape, *place, "--count", "2", "--set", "tile=128x256x64"]
    assert cli.status([*words, "--set", "slice_tiles=4", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["source"] for row in found["rows"]] == ["recorded", "recorded", "estimated", "estimated"]
    (fused, sequential, *_) = found["rows"]
    assert (fused["scheme"], sequential["scheme"]) == ("fused", "sequential")
    assert "recording h200_nvl4_gemm of" in fused["message"]
    assert "kernels 55646f76b103, here" in fused["message"]
    assert [each["key"] for each in found["summary"]["tuned"]] == [fused["key"], sequential["key"]]
    assert not (tmp_path / "none.sqlite").exists(), "asking makes no store"
    assert cli.status([*words, "--set", "slice_tiles=4", "--all"]) == 0
    out = capsys.readouterr().out
    assert out.index("Measured before") < out.index("points examined")
    assert cli.status([*words, "--scheme", "decomposed", "--set", "split=diagonal"]) == 2
    assert "split = diagonal is not a legal value here." in capsys.readouterr().err


def test_where_one_value_makes_everything_illegal_its_axis_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["recommend", "gemm_all_reduce", "--shape", "m=64", "--shape", "n=64", "--shape", "k=64", "--scheme",
             "concurrent", "--set", "micro_batches=40", "--store", str(tmp_path / "none.sqlite")]  # fmt: skip
    assert cli.status(words) == 2
    assert re.search(r"micro_batches = 40 is too many.* 40 > 32\. Accepted: 2 to 32\.", capsys.readouterr().err)


# A ratio over a baseline that another block is known to beat is none: the winner of such a block has no speed-up.

DRAWN = {"m": 8192, "n": 4096, "k": 1792}
"""A problem of which one recording chose its baselines, and another one drew schedules by chance."""
CHOSEN_TOO = {"m": 4096, "n": 1664, "k": 8192}
"""One that has decomposed schedules of both kinds."""
TILES = [word for tile in ("128x256x64", "64x64x64", "64x256x64", "256x128x64") for word in ("--set", f"tile={tile}")]
"""Few enough to estimate fast."""


def trial(where: str, block: str, collective: str, *seconds: float, scheme: str = "sequential") -> KnownTrial:
    """One that took *seconds*, the middle one of which is its time."""
    made = Trial(problem=problem("gemm_all_to_all", DRAWN, world=2, dtype="bfloat16"), backend="triton",
                 schedule=Schedule(scheme, (("tile", "128x256x64"), ("collective", collective))), machine="h200_nvl2",
                 fabric=parse("nvlink"), protocol=PROTOCOLS["quick"])  # fmt: skip
    measured = Measurement(trial=made, samples=(seconds * 10, seconds * 10), correct=True, block=block)
    return KnownTrial(trial=made, time_s=measured.time_s, where=where, run=None, at=0.0, block=block, facts={},
                 hardware=None, measurement=lambda: measured)  # fmt: skip


def lacking(*trials: KnownTrial) -> dict[str, str]:
    """What each block lacks, in words; of blocks with everything nothing."""
    baselines = BlockBaselines.of(trials)
    missing = {f"{each.where} {each.block}": baselines.missing_better_baseline(each) for each in trials}
    return {block: str(each) for block, each in missing.items() if each}


LIBRARY, DIRECT = trial("drawn", "1", "library", 3e-4), trial("chosen", "1", "direct", 2e-4)
BOTH = [DIRECT, trial("chosen", "1", "library", 3e-4)]


def test_a_block_without_the_best_baseline_known_has_no_ratio() -> None:
    sentence = ("the best sequential schedule of its block is collective library with 300 µs, but collective direct "
                "with 200 µs is known to be faster (chosen)")  # fmt: skip
    assert lacking(LIBRARY, *BOTH) == {"drawn 1": sentence}
    assert lacking(LIBRARY, DIRECT) == {}, "no block timed them together, so nobody knows"
    assert lacking(BOTH[1], trial("chosen", "2", "direct", 2e-4)) == {}
    other = replace(DIRECT.trial, problem=replace(DIRECT.trial.problem, dtype="float16"))
    assert lacking(LIBRARY, *(replace(each, trial=other) for each in BOTH)) == {}, "of another problem"
    alone = trial("chosen", "3", "library", 1e-4, scheme="fused")
    assert lacking(*BOTH, alone) == {"chosen 3": "no sequential schedule was timed in the same block"}


def test_a_baseline_is_faster_by_share_and_by_more_than_its_spread() -> None:
    """A block of a quiet computer knows no faster baselines, and one that is within the spread beats nobody."""
    quiet = [trial("quiet", "1", "library", 2e-4), trial("quiet", "1", "direct", 2.9e-4)]
    assert lacking(LIBRARY, *quiet) == {}, "there it is slower than the library"
    near = [trial("near", "1", "library", 3e-4), trial("near", "1", "direct", 2.5e-4, 2.9e-4, 3.2e-4)]
    assert lacking(LIBRARY, *near) == {}


def test_what_the_same_sitting_says_of_two_baselines_counts_before_what_others_say() -> None:
    own = [trial("drawn", "2", "library", 2e-4), trial("drawn", "2", "direct", 3e-4)]
    assert "drawn 1" in lacking(LIBRARY, *BOTH)
    assert lacking(LIBRARY, *own, *BOTH) == {}


def test_blocks_that_were_recorded_with_chosen_baselines_keep_their_ratios() -> None:
    trials = [each for each in known("gemm_all_to_all") if each.trial.machine == "h200_nvl2"]
    baselines = BlockBaselines.of(trials)
    without = {each.where for each in trials if baselines.best(each) and baselines.missing_better_baseline(each)}
    assert without == {"recording h200_nvl2_spaces"}


def recommended(
    capsys: pytest.CaptureFixture[str], *words: str, of: str = "gemm_all_to_all", shape: Mapping[str, int] = DRAWN
) -> str:
    sizes = [word for name, size in shape.items() for word in ("--shape", f"{name}={size}")]
    place = ["--machine", "h200_nvl2", "--world", "2", "--store", "none.sqlite", "--count", "1"]
    assert cli.status(["recommend", of, *sizes, *place, *words]) == 0
    return capsys.readouterr().out


@pytest.mark.slow
def test_recommend_names_no_speed_up_over_a_baseline_that_is_known_to_be_beaten(
    capsys: pytest.CaptureFixture[str],
) -> None:
    document = json.loads(recommended(capsys, "--json", *TILES))
    tuned: Mapping[str, Mapping[str, float]] = {each["scheme"]: each for each in document["summary"]["tuned"]}
    rows = {each["scheme"]: each for each in document["rows"] if each["source"] == "recorded"}
    assert rows["sequential"]["axes"]["collective"] == "direct"
    assert tuned["fused"]["speed_up"] == pytest.approx(rows["sequential"]["time_s"] / rows["fused"]["time_s"])
    assert tuned["fused"]["speed_up_over"] == "collective direct with 264 µs"
    assert rows["decomposed"]["time_s"] < 1.03 * rows["fused"]["time_s"]
    assert tuned["decomposed"]["speed_up"] is rows["decomposed"]["sequential_s"] is None
    assert "collective library with 304 µs, but collective direct with 264 µs is known" in rows["decomposed"]["message"]
    out = " ".join(recommended(capsys, "--all", *TILES).split())
    assert "1.50x fused" in out
    assert "– decomposed" in out
    assert "decomposed has no speed-up: the best sequential schedule of its block is collective library" in out
    assert "1.7" not in out, "a ratio over NCCL, which our own stores are known to beat"
    again = " ".join(
        recommended(capsys, "--all", "--scheme", "decomposed", *TILES, shape=CHOSEN_TOO, of="all_to_all_gemm").split()
    )
    assert "Take decomposed: 177 µs" in again
    assert "1.51x over the best sequential of its block" in again, "one of a block without our stores would have none"
    alone = recommended(capsys, "--all", "--scheme", "decomposed", "--set", "tile=64x64x64")
    assert "no speed-up: the best sequential" in " ".join(alone.split()), "the baseline was not asked for, yet is known"
