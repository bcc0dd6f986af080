"""A difference to the pinned row has the verdict's word, says on what it rests, and names only what differs."""

from __future__ import annotations

from typing import Any

import pytest

from workbench.results.deltas import APART, PINNED, WITHIN_NOISE, Pinned, differences
from workbench.results.verdict import FASTER, NOT_CERTAIN, NOT_COMPARED, SLOWER

NOISE = (0.97, 1.02, 1.01, 0.98, 1.0, 1.03, 0.99, 1.02, 0.98, 1.01)
"""Rounds of a schedule over its median."""


def row(scheme: str, seconds: float | None, block: str = "b1", **more: Any) -> dict[str, Any]:
    problem = {"operator": "gemm_all_to_all", "shape": {"m": 64, "n": 64, "k": 64}, "dtype": "float32", "world": 2}
    place = {"backend": "cpu", "machine": "laptop_cpu", "fabric": "emulated", "protocol": "quick", "part": "whole"}
    rounds = [seconds * each for each in NOISE] if seconds else None
    return {"run": "r1", "key": f"{scheme} of {block}", "block": block, "source": "measured", **problem, **place,
            "scheme": scheme, "axes": {}, "time_s": seconds, "rounds_s": rounds, **more}  # fmt: skip


BASE = row("sequential", 0.1, axes={"collective": "direct"})


def test_less_time_is_below_zero_and_a_certain_difference_has_the_verdicts_word() -> None:
    less, more = (Pinned.of(BASE).delta(row("fused", seconds)) for seconds in (0.08, 0.125))
    assert (less.word, less.text) == (FASTER, "-20 ms (-20 %), faster")
    assert (more.word, more.text) == (SLOWER, "+25 ms (+25 %), slower")
    assert less.share == pytest.approx(-0.2)


def test_the_share_is_that_of_the_paired_rounds_on_which_the_word_rests() -> None:
    """The median of one row was disturbed; the rounds say that it is slower, and the number must not say faster."""
    disturbed = row("fused", 0.099, rounds_s=[0.1 * 1.04 * each for each in NOISE])
    delta = Pinned.of(BASE).delta(disturbed)
    assert (delta.word, delta.percent) == (SLOWER, "+4 %")


def test_rounds_that_differ_by_chance_are_within_noise_and_few_rounds_are_not_certain() -> None:
    shuffled = row("fused", 0.1003, rounds_s=[0.1003 * each for each in reversed(NOISE)])
    assert Pinned.of(BASE).delta(shuffled).word == WITHIN_NOISE
    few = [{**each, "rounds_s": each["rounds_s"][:3]} for each in (BASE, row("fused", 0.05))]
    delta = Pinned.of(few[0]).delta(few[1])
    assert (delta.word, delta.percent) == (NOT_CERTAIN, "-50 %")


def test_the_pinned_row_is_the_baseline_and_has_no_number() -> None:
    delta = Pinned.of(BASE).delta(dict(BASE))
    assert (delta.word, delta.text) == (PINNED, PINNED)


def test_between_blocks_the_shares_of_the_common_baseline_are_compared_and_nothing_is_decided() -> None:
    """The second block was slower by half: by the clock fused lost, in shares of the baseline it is a fifth faster."""
    slow = row("sequential", 0.15, "b2", axes={"collective": "direct"})
    delta = Pinned.of(BASE, [slow]).delta(row("fused", 0.12, "b2"))
    assert (delta.word, delta.seconds) == (NOT_COMPARED, None)
    assert delta.text == "-20 %, not compared: shares of sequential, collective direct"
    assert delta.sentence("fused").startswith(
        "fused has 20 % less time than the baseline by shares of sequential, not compared: timed in two blocks, "
    )
    assert "0.80x against 1.00x of sequential" in delta.why


def test_the_common_baseline_is_the_fastest_of_those_that_both_blocks_have() -> None:
    rows = [row("sequential", seconds, block, axes={"collective": name})
            for block, factor in (("b1", 1.0), ("b2", 2.0))
            for name, seconds in (("direct", 0.1 * factor), ("library", 0.07 * factor))]  # fmt: skip
    delta = Pinned.of(row("decomposed", 0.06), rows).delta(row("fused", 0.132, "b2"))
    assert (delta.percent, delta.basis) == ("+10 %", "shares of sequential, collective library")


def test_two_blocks_without_a_common_baseline_have_plain_times_that_say_so() -> None:
    delta = Pinned.of(BASE).delta(row("fused", 0.12, "b2"))
    assert (delta.word, delta.basis, delta.text) == (NOT_COMPARED, APART, "+20 %, not compared: two blocks")


@pytest.mark.parametrize(("more", "text"), [
    ({"machine": "h200_nvl2"}, "-20 ms (-20 %), not compared: another machine"),
    ({"fabric": "nvlink"}, "-20 ms (-20 %), not compared: another fabric"),
    ({"shape": {"m": 128, "n": 64, "k": 64}}, "not compared"),
    ({"time_s": None, "stage": "hang"}, "not compared"),
])  # fmt: skip
def test_what_has_no_verdict_says_why(more: dict[str, Any], text: str) -> None:
    delta = Pinned.of(BASE).delta(row("fused", 0.08, "b2", **more))
    assert (delta.word, delta.text) == (NOT_COMPARED, text)
    assert delta.why


def test_a_row_without_a_time_is_no_baseline() -> None:
    with pytest.raises(ValueError, match=r"fused cannot be the baseline: it has no time.*\(hang\)\. Accepted: a row"):
        Pinned.of(row("fused", None, stage="hang"))


@pytest.mark.parametrize(("base", "other", "more", "words"), [
    ("measured", "estimated", {}, "estimated against measured"),
    ("estimated", "measured", {}, "measured against estimated"),
    ("estimated", "estimated", {}, "both estimated"),
    ("estimated", "measured", {"machine": "h200_nvl2"}, "measured against estimated: another machine"),
    ("estimated", "recorded", {"protocol": "thorough"}, "recorded against estimated"),
])  # fmt: skip
def test_a_difference_to_an_estimate_says_which_is_one_and_has_no_verdict(
    base: str, other: str, more: dict[str, Any], words: str
) -> None:
    estimate = {"source": base, **({"run": None, "block": None, "rounds_s": None} if base == "estimated" else {})}
    delta = Pinned.of({**BASE, **estimate}).delta(row("fused", 0.08, **{"source": other, **more}))
    assert delta.text == f"-20 ms (-20 %), {words}"
    assert delta.share == pytest.approx(-0.2)
    sentence = delta.sentence("fused")
    assert sentence.startswith(f"fused has 20 ms (20 %) less time than the baseline, {delta.word}: ")
    assert ("nothing is certain" in sentence) == (base != other)


def test_equal_times_are_said_to_be_equal() -> None:
    estimates = [row("fused", seconds, source="estimated", axes={"grid": seconds}) for seconds in (0.1, 0.1 + 1e-9)]
    sentence = Pinned.of(estimates[0]).delta(estimates[1]).sentence("fused")
    assert sentence == "fused takes as long as the baseline, both estimated: neither was timed."


def test_an_estimate_of_a_space_is_not_another_one_without_a_run_either() -> None:
    rows = [row("fused", seconds, run=None, key=None, block=None, source="estimated", axes={"grid": grid})
            for grid, seconds in ((0, 0.1), (8, 0.11))]  # fmt: skip
    assert [Pinned.of(rows[0]).delta(each).percent for each in rows] == ["", "+10 %"]


def test_only_what_differs_is_listed_with_peoples_names() -> None:
    other = row("fused", 0.08, axes={"collective": "direct", "slice_tiles": 4}, hardware={"model": "Xeon"})
    assert [(each.name, each.first, each.second) for each in differences(BASE, other)] == [
        ("Scheme", "sequential", "fused"), ("Tiles per slice", None, 4), ("Model", None, "Xeon"),
    ]  # fmt: skip
    assert differences(BASE, {**BASE, "time_s": 0.2, "rounds_s": [0.2], "block": "b7"}) == []


def test_versions_and_hosts_of_the_runs_are_differences_too() -> None:
    facts: tuple[dict[str, Any], dict[str, Any]] = (
        {"host": "a", "cores": 2, "user": "x", "versions": {"torch": "2.11", "numpy": "2.4"}},
        {"host": "b", "cores": 2, "user": "y", "versions": {"torch": "2.13", "numpy": "2.4"}},
    )
    assert [(each.name, each.first, each.second) for each in differences(BASE, BASE, facts)] == [
        ("Host", "a", "b"), ("torch", "2.11", "2.13"),
    ]  # fmt: skip


@pytest.mark.parametrize(("other", "sentence"), [
    (row("fused", 0.08), "fused is 20 ms (20 %) faster than the baseline: 80 ms against 100 ms, 1.25x ("),
    (row("fused", 0.12), "fused is 20 ms (20 %) slower than the baseline: 120 ms against 100 ms, 0.83x ("),
    (BASE, "fused is the baseline."),
    (row("fused", 0.12, "b2"), "fused has 20 % more time than the baseline, not compared: timed in two"),
    (row("fused", None, stage="hang"), "fused cannot be compared with the baseline: it has no time: hang."),
])  # fmt: skip
def test_the_difference_is_a_sentence(other: dict[str, Any], sentence: str) -> None:
    assert Pinned.of(BASE).delta(other).sentence("fused").startswith(sentence)
