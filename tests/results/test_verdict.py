"""The verdict: false alarms on equal schedules, drawn and recorded; power; against brute force; and its sentences."""

from __future__ import annotations

import json
from itertools import combinations, product
from math import log
from time import perf_counter
from typing import Any

import numpy as np
import pytest

from tests.results import equal_pairs
from workbench.results import recordings, verdict
from workbench.results.metrics import rounds_of
from workbench.results.rows import Row
from workbench.results.verdict import FASTER, NOT_CERTAIN, NOT_COMPARED, SLOWER, decide, fastest, paired

DRAWN = 1500
"""Pairs of equal schedules for each number of rounds and kind of noise."""
MARGIN = 3 * (0.05 * 0.95 / DRAWN) ** 0.5
"""Three standard errors of a share of 5 % that is seen in DRAWN cases."""


def row(rounds: Any, block: str | None = "b", name: str = "fused", **more: Any) -> dict[str, Any]:
    seconds = [float(each) for each in rounds]
    return {"scheme": name, "axes": {}, "source": "measured", "block": block, "operator": "gemm_all_to_all",
            "shape": {"m": 1}, "dtype": "float32", "world": 2, "time_s": float(np.median(seconds)),
            "rounds_s": seconds, **more}  # fmt: skip


def noise(kind: str, rounds: int, generator: np.random.Generator) -> np.ndarray[Any, Any]:
    """Log times of DRAWN schedules, of heavy tails, of disturbances in a tenth of rounds, or that remember."""
    shape = (DRAWN, rounds)
    if kind == "heavy tails":
        return generator.standard_t(2, size=shape)
    if kind == "disturbed rounds":
        hits = generator.random(shape) < 0.1
        return 0.02 * generator.normal(size=shape) + hits * generator.exponential(0.7, size=shape)
    values = generator.normal(size=shape)
    for place in range(1, rounds if kind == "remembers" else 0):
        values[:, place] += 0.3 * values[:, place - 1]
    return values


@pytest.mark.slow(keeps=7)
@pytest.mark.parametrize("rounds", [5, 6, 7, 8, 10, 15, 25, 50])
@pytest.mark.parametrize("kind", ["plain", "heavy tails", "disturbed rounds", "remembers"])
def test_at_most_one_of_twenty_equal_pairs_is_called_faster_or_slower(kind: str, rounds: int) -> None:
    """Noise that remembers is asked for from eight rounds on: no test of six or seven rounds can see a memory."""
    if kind == "remembers" and rounds < verdict.EXACT_BELOW:
        kind = "plain"
    generator = np.random.default_rng(rounds)
    found = paired(noise(kind, rounds, generator) - noise(kind, rounds, generator))
    assert np.mean([each.word != NOT_CERTAIN for each in found]) <= 0.05 + MARGIN


@pytest.mark.slow
def test_recorded_schedules_against_themselves_are_rarely_faster() -> None:
    """The rounds of each recorded trial in two halves, which take turns in going first."""
    alarms = []
    for name in recordings.paths():
        for entry in recordings.recordings(name):
            seconds = rounds_of(entry.measurement.samples) or []
            pairs = [(seconds[at], seconds[at + 1])[:: (-1) ** (at // 2)] for at in range(0, len(seconds) - 1, 2)]
            if len(pairs) >= 6:
                one, other = zip(*pairs, strict=True)
                alarms.append(verdict.comparison_of(one, other).word != NOT_CERTAIN)
    assert len(alarms) > 3000
    assert np.mean(alarms) <= 0.05


@pytest.mark.parametrize("rounds", [6, 7, 10, 15])
def test_schedules_that_were_timed_twice_in_one_block_are_rarely_faster(rounds: int) -> None:
    """Real A-A blocks of CPU ranks, while others used the computer: at most 5 % are false alarms."""
    pairs = [each["rounds_s"] for each in json.loads(equal_pairs.RECORD.read_text())["pairs"]]
    assert len(pairs) >= 250
    logs = np.log([[np.array(other[:rounds]) / np.array(one[:rounds])] for one, other in pairs])[:, 0]
    assert np.mean([each.word != NOT_CERTAIN for each in paired(logs)]) <= 0.05


@pytest.mark.parametrize(("rounds", "share"), [(6, 0.9), (15, 0.95), (50, 0.95)])
def test_a_difference_of_a_tenth_is_seen_in_noise_of_three_per_cent(rounds: int, share: float) -> None:
    generator = np.random.default_rng(1)
    logs = log(1.1) + 0.03 * (generator.normal(size=(400, rounds)) - generator.normal(size=(400, rounds)))
    assert np.mean([each.word == FASTER for each in paired(logs)]) >= share


@pytest.mark.parametrize("rounds", [1, 2, 5, 6, 7])
def test_few_rounds_agree_with_all_flips_one_by_one(rounds: int) -> None:
    """The p value by brute force, and the interval: a ratio lies in it if its test does not reject it."""
    generator = np.random.default_rng(rounds)
    for logs in generator.normal(0.5, 0.5, size=(20, rounds)):
        found = paired(logs[None])[0]

        def chance(shift: float, logs: Any = logs) -> float:
            seen = abs(sum(logs - shift)) * (1 - 1e-12)
            flips = list(product((1, -1), repeat=len(logs)))
            return sum(abs(np.dot(signs, logs - shift)) >= seen for signs in flips) / len(flips)

        assert found.p == pytest.approx(chance(0.0))
        assert (found.word != NOT_CERTAIN) == (found.p <= verdict.LEVEL)
        if found.low is None or found.high is None:
            assert rounds < 6
            continue
        for bound, out in ((found.low, -1e-6), (found.high, 1e-6)):
            assert chance(bound + out) <= verdict.LEVEL < chance(bound - out)


@pytest.fixture
def stats() -> Any:
    """scipy.stats, the oracle."""
    return pytest.importorskip("scipy.stats", reason="the extra `test` is not installed")


@pytest.mark.slow(keeps=1)
@pytest.mark.parametrize("rounds", [2, 5, 6, 7])
def test_few_rounds_have_the_p_value_of_scipy(stats: Any, rounds: int) -> None:
    generator = np.random.default_rng(rounds)
    for logs in generator.normal(0.3, 0.5, size=(10, rounds)):
        oracle = stats.permutation_test((logs,), np.mean, permutation_type="samples", n_resamples=np.inf)
        assert paired(logs[None])[0].p == pytest.approx(oracle.pvalue)


@pytest.mark.slow(keeps=3)
@pytest.mark.parametrize("rounds", [8, 12, 15, 25])
def test_many_rounds_have_the_centre_the_error_and_the_bootstrap_of_scipy(stats: Any, rounds: int) -> None:
    """Trimmed mean, Yuen's standard error by his test of two samples, and the interval by scipy's resamples."""
    generator = np.random.default_rng(rounds)
    logs, others = generator.normal(0.2, 0.3, size=(2, rounds))
    one, other = paired(np.array([logs, others]))
    assert one.centre == pytest.approx(stats.trim_mean(logs, verdict.TRIMMED))

    def longer(values: Any) -> float:
        cut = int(verdict.TRIMMED * rounds)
        return float(verdict._memory(values[None], *(np.sort(values)[None, [at]] for at in (cut, -cut - 1)))[0])

    errors = one.error / longer(logs), other.error / longer(others)
    yuen = stats.ttest_ind(logs, others, equal_var=False, trim=verdict.TRIMMED)
    assert (one.centre - other.centre) / np.hypot(*errors) == pytest.approx(yuen.statistic)

    def far(drawn: Any, axis: int) -> Any:
        kept = rounds - 2 * int(verdict.TRIMMED * rounds)
        clipped = stats.mstats.winsorize(drawn, limits=(verdict.TRIMMED, verdict.TRIMMED), axis=axis)
        error = np.sqrt(np.asarray(clipped).var(axis=axis) * rounds / (kept * (kept - 1)))
        apart = np.abs(stats.trim_mean(drawn, verdict.TRIMMED, axis=axis) - one.centre)
        return np.divide(apart, error, out=np.full_like(apart, 1e9), where=error > 0)

    drawn = stats.bootstrap((logs,), far, vectorized=True, n_resamples=6000, method="percentile", rng=generator)
    reach = float(np.quantile(drawn.bootstrap_distribution, 1 - verdict.LEVEL)) * one.error
    assert one.high is not None
    assert one.high - one.centre == pytest.approx(reach, rel=0.15)


def test_five_rounds_are_not_certain_and_say_how_many_more_would_tell() -> None:
    """161 ms (128 to 184) was "within the spread" of 93.5 ms (85 to 102), and 155 ms "alike"."""
    fast, slow = row([0.085, 0.0935, 0.102, 0.090, 0.097]), row([0.128, 0.161, 0.184, 0.150, 0.170])
    found = decide(fast, slow)
    assert found.word == NOT_CERTAIN
    assert (found.low, found.high, found.more_rounds) == (None, None, 1)
    assert found.why == "93.5 ms against 161 ms, 1.69x in 5 paired rounds: about 1 more round would tell"
    more = decide(row([*fast["rounds_s"], 0.09]), row([*slow["rounds_s"], 0.16]))
    assert more.word == FASTER
    assert more.why.endswith("in 6 paired rounds")


def test_more_rounds_tell_in_about_four_of_five_cases() -> None:
    generator = np.random.default_rng(3)
    told = []
    for _ in range(60):
        logs = generator.normal(0.03, 0.06, size=(1, 400))
        first = paired(logs[:, :10])[0]
        more = first.more_rounds()
        if first.word == NOT_CERTAIN and more is not None and more < 390:
            told.append(paired(logs[:, : 10 + more])[0].word != NOT_CERTAIN)
    assert 0.5 < np.mean(told) <= 1.0


def test_what_is_faster_one_way_is_slower_the_other_way() -> None:
    generator = np.random.default_rng(4)
    fast, slow = row(1 + 0.01 * generator.random(20)), row(1.2 + 0.01 * generator.random(20))
    one, other = decide(fast, slow), decide(slow, fast)
    assert (one.word, other.word) == (FASTER, SLOWER)
    assert one.ratio == pytest.approx(1 / float(other.ratio or 0))
    assert one.low == pytest.approx(1 / float(other.high or 0))
    assert 1 < float(one.low or 0) < float(one.ratio or 0)


def test_what_others_disturbed_is_not_certain_however_far_apart_the_times_are() -> None:
    fast, slow = row([0.1] * 20, others_share=0.5, others="other programs"), row([0.2] * 20, others_share=0.01)
    assert decide(fast, slow).word == decide(slow, fast).word == NOT_CERTAIN
    assert decide(fast, slow).why.endswith(": others used the cores meanwhile (other programs)")
    assert decide(slow, row([0.3] * 20)).word == FASTER


def test_times_of_ranks_that_share_a_gpu_are_not_certain_however_far_apart_they_are() -> None:
    shared = [row([each] * 15, fabric="shared_gpu") for each in (1.0, 3.0)]
    found = decide(*shared)
    assert found.word == NOT_CERTAIN
    assert found.why.endswith("in 15 paired rounds: ranks share a GPU, so times are not real")
    assert found.more_rounds is None, "no number of rounds would tell"
    assert decide(*[row([each] * 15, fabric="nvlink") for each in (1.0, 3.0)]).word == FASTER


def test_rows_of_two_blocks_are_not_compared_and_old_rows_without_rounds_are_not_certain() -> None:
    fast, slow = [0.1] * 20, [0.2] * 20
    assert decide(row(fast), row(slow, "other")).word == NOT_COMPARED
    assert decide(row(fast), row(slow, rounds_s=None)).word == NOT_CERTAIN
    assert decide(row(fast), row(slow, source="estimated")).word == NOT_COMPARED
    assert decide(row(fast), row(slow, shape={"m": 2})).word == NOT_COMPARED
    assert decide(row(fast), row(slow)).word == FASTER


def test_equal_to_a_fraction_of_a_per_cent_does_not_matter() -> None:
    generator = np.random.default_rng(5)
    one, other = (row(1 + 0.001 * generator.normal(size=50)) for _ in range(2))
    found = decide(one, other)
    assert found.word == NOT_CERTAIN
    assert "which does not matter" in found.why


def test_the_fastest_of_many_equal_ones_is_named_in_at_most_a_twentieth_of_cases() -> None:
    """By pairs alone, the first of twelve would often be ahead of the eleven others."""
    generator = np.random.default_rng(6)
    named = lost = 0
    for _ in range(60):
        rows: list[Row] = [row(np.exp(0.05 * generator.normal(size=15)), name=str(at)) for at in range(12)]
        best = min(rows, key=lambda each: float(each["time_s"]))
        found = fastest(best, rows)
        named += found.is_certain
        lost += best is not rows[0] and rows[0] not in found.near
    assert named == 0
    assert lost <= 3


def test_the_fastest_says_how_many_others_may_be_as_fast() -> None:
    generator = np.random.default_rng(7)
    rows = [row(seconds * np.exp(0.01 * generator.normal(size=15)), name=str(at))
            for at, seconds in enumerate([1.0, 1.001, 1.5, 1.6])]  # fmt: skip
    best = min(rows, key=lambda each: float(each["time_s"]))
    found = fastest(best, [*rows, row([2.0] * 15, "other", "elsewhere")])
    assert len(found.near) == 1
    assert found.why == "the fastest of 5 is not certain: 1 other may be as fast, 1 was timed in other blocks"
    assert fastest(best, [best, *rows[2:]]).why == "the fastest of 3 is certain"


@pytest.mark.slow
def test_ten_thousand_comparisons_take_seconds() -> None:
    logs = np.random.default_rng(8).normal(size=(10_000, 15))
    begun = perf_counter()
    assert len(paired(logs)) == 10_000
    assert perf_counter() - begun < 20


def test_a_comparison_has_one_answer() -> None:
    generator = np.random.default_rng(9)
    seconds = [tuple(1 + generator.random(15)) for _ in range(6)]
    for one, other in combinations(seconds, 2):
        first = verdict.comparison_of(one, other)
        verdict.comparison_of.cache_clear()
        assert verdict.comparison_of(one, other) == first
