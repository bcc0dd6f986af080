"""A ratio over a baseline that another block is known to beat is none: the winner of such a block has no speed-up."""

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from kernels.fabric import parse
from kernels.operators import problem
from kernels.outcome import Measurement
from kernels.schedule import Schedule
from kernels.trial import PROTOCOLS, Trial
from workbench import cli
from workbench.analysis.winners import BlockBaselines, KnownTrial, known

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
    measured = Measurement(trial=made, samples=(seconds, seconds), correct=True, block=block)
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


def test_recommend_names_no_speed_up_over_a_baseline_that_is_known_to_be_beaten(
    capsys: pytest.CaptureFixture[str],
) -> None:
    document = json.loads(recommended(capsys, "--json", *TILES))
    tuned: Mapping[str, Mapping[str, float]] = {each["scheme"]: each for each in document["summary"]["tuned"]}
    rows = {each["scheme"]: each for each in document["rows"] if each["source"] == "recorded"}
    assert rows["sequential"]["axes"]["collective"] == "direct"
    assert tuned["fused"]["speed_up"] == pytest.approx(rows["sequential"]["time_s"] / rows["fused"]["time_s"])
    assert tuned["fused"]["speed_up_over"] == "collective direct with 264 µs"
    assert rows["decomposed"]["time_s"] < 1.01 * rows["fused"]["time_s"]
    assert tuned["decomposed"]["speed_up"] is rows["decomposed"]["sequential_s"] is None
    assert "collective library with 304 µs, but collective direct with 264 µs is known" in rows["decomposed"]["message"]
    out = " ".join(recommended(capsys, *TILES).split())
    assert "1.49x fused" in out
    assert "– decomposed" in out
    assert "decomposed has no speed-up: the best sequential schedule of its block is collective library" in out
    assert "1.7" not in out, "a ratio over NCCL, which our own stores are known to beat"
    again = " ".join(
        recommended(capsys, "--scheme", "decomposed", *TILES, shape=CHOSEN_TOO, of="all_to_all_gemm").split()
    )
    assert "decomposed in 177 µs has no speed-up" in again, "the one in 178 µs has one"
    alone = recommended(capsys, "--scheme", "decomposed", "--set", "tile=64x64x64")
    assert "no speed-up: the best sequential" in " ".join(alone.split()), "the baseline was not asked for, yet is known"
