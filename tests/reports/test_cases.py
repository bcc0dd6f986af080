"""Rows become cases, one problem with one floor, and the sentence that their numbers make, win or not."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from tests.reports.conftest import joined, row
from workbench.charts import trials
from workbench.reports import cases as of_rows
from workbench.reports.cases import Case, cases, ending, headline, overall, recommendation, titles
from workbench.results.comparison import comparison_note
from workbench.results.verdict import Verdict

# One problem, one floor: rows become cases, and no estimate's floor stands beside what was timed.

LARGE = {"m": 128, "n": 64, "k": 64}


def floors(rows: list[dict[str, Any]]) -> set[float | None]:
    return {each["floor_s"] for case in cases(rows) for each in case.whole}


def test_the_floor_of_what_was_timed_holds_for_its_estimates_too() -> None:
    rows = [row("sequential", 0.2, "estimated", floor_s=0.163), row("sequential", 0.21, floor_s=0.0895)]
    assert floors(rows) == {0.0895}


def test_an_estimated_floor_is_not_shown_beside_times_that_have_none() -> None:
    rows = [row("fused", 0.1, "estimated", floor_s=0.163), row("fused", 0.1)]
    assert floors(rows) == {None}
    assert floors(rows[:1]) == {0.163}


def test_every_shape_is_a_case_with_its_own_floor_and_parts() -> None:
    rows = [row("fused", 0.1, floor_s=0.08), row("fused", 0.3, floor_s=0.2, shape=LARGE),
            row("sequential", 0.2, part="compute", shape=LARGE, fabric="shared_memory")]  # fmt: skip
    small, large = cases(rows)
    assert [each["floor_s"] for each in (*small.whole, *large.whole)] == [0.08, 0.2]
    assert (len(small.parts), len(large.parts)) == (0, 1)
    assert titles([small, large]) == ["m = 64, n = 64, k = 64", "m = 128, n = 64, k = 64"]


def test_blocks_of_one_problem_have_one_floor_and_their_own_baselines() -> None:
    rows = [row("sequential", 0.2, block=1, floor_s=0.1), row("fused", 0.15, block=1, floor_s=0.1),
            row("sequential", 0.19, block=2, floor_s=0.09), row("fused", 0.12, block=2, floor_s=0.09)]  # fmt: skip
    (case,) = cases(rows)
    assert [each["floor_s"] for each in case.whole] == [0.09] * 4
    assert case.fastest is not None
    assert [case.fastest["time_s"], *(each["time_s"] for each in case.baselines(case.fastest))] == [0.12, 0.19]


def test_an_estimate_has_the_floor_of_what_was_timed() -> None:
    """An estimate comes first: its own floor stood above times that were measured."""
    axes = [{"slice_tiles": count} for count in (1, 2, 4)]
    estimates = [row("fused", 0.3, "estimated", axes=each, floor_s=0.35, key=str(n)) for n, each in enumerate(axes, 1)]
    timed = [
        row("fused", 0.3, axes=each, block=f"r.{n}", floor_s=n / 10, key=str(n)) for n, each in enumerate(axes[:2], 1)
    ]
    (case,) = cases([*estimates, *timed])
    assert [each["floor_s"] for each in case.whole if each["source"] == "estimated"] == [0.1] * 3
    drawn = [each for each in trials.rows(case.rows) if each["look"] == "floor"]
    assert {each["time_ms"] for each in drawn} == {100}


def test_problems_are_told_apart_by_what_differs_alone() -> None:
    several = cases([row("fused", 0.1), row("fused", 0.1, operator="all_gather_gemm"),
                     row("fused", 0.1, operator="all_gather_gemm", world=4)])  # fmt: skip
    assert titles(several) == ["GEMM -> all-to-all", "all-gather -> GEMM, 2 ranks", "all-gather -> GEMM, 4 ranks"]
    assert titles(several[:1]) == [""]


def test_an_estimate_without_protocol_belongs_to_the_problem_that_was_timed() -> None:
    (case,) = cases([row("fused", 0.1, "estimated"), row("fused", 0.1)])
    assert len(case.whole) == 2


def test_a_stop_is_no_failure() -> None:
    (case,) = cases([row("fused", 0.1), row("fused", None, stage="cancelled"), row("fused", None, stage="hang")])
    assert (len(case.stopped), len(case.failed), len(case.rows)) == (1, 1, 2)


def test_parts_without_a_whole_are_kept() -> None:
    (case,) = cases([row("sequential", 0.1, part="compute")])
    assert (len(case.whole), len(case.parts), case.fastest) == (0, 1, None)
    assert cases([]) == []


# The sentence that the numbers make, win or not; made rows, so that every number in it can be checked by hand.


def timed(scheme: str, seconds: float | None, source: str = "measured", **more: Any) -> dict[str, Any]:
    """A row whose spread is a hundredth to either side."""
    spread = {} if seconds is None else {"low_s": 0.99 * seconds, "high_s": 1.01 * seconds}
    return row(scheme, seconds, source, **{**spread, "floor_s": 0.0434, **more})


def plain(seconds: float, collective: str = "library", **more: Any) -> dict[str, Any]:
    return timed("sequential", seconds, axes={"collective": collective}, **more)


def headline_cases(rows: Iterable[dict[str, Any]]) -> list[Case]:
    return of_rows.cases(joined(rows))


def said(*rows: dict[str, Any]) -> str:
    (case,) = headline_cases(rows)
    return headline(case)


def test_a_win_names_its_baseline_its_distance_from_the_floor_and_who_verified_it() -> None:
    """The fastest schedule that does not overlap is the baseline, whatever its collective."""
    assert said(plain(0.0837), plain(0.09, "direct"), timed("fused", 0.0473)) == (
        "fused takes 47.3 ms, 1.77x faster than the best of 2 sequential schedules (83.7 ms, collective library), "
        "9 % above the floor, verified on 2 ranks; in 15 paired rounds."
    )


def test_axes_that_tell_schedules_apart_are_named_as_people_read_them() -> None:
    slices = [timed("fused", seconds, axes={"slice_tiles": count}) for count, seconds in ((4, 0.06), (8, 0.0473))]
    assert said(plain(0.0837), *slices).startswith("fused with tiles per slice 8 takes 47.3 ms, 1.77x faster than")


def test_a_small_gain_is_told_in_per_cent() -> None:
    assert "8 % faster than the sequential schedule (" in said(plain(0.054), timed("fused", 0.05))


def test_where_no_schedule_wins_the_sentence_says_so() -> None:
    assert said(plain(0.08), timed("fused", 0.0832), timed("decomposed", 0.09)) == (
        "No schedule beats the sequential schedule (80 ms, collective library), 84 % above the floor, verified on "
        "2 ranks: fused takes 83.2 ms, 4 % slower; in 15 paired rounds."
    )
    assert "takes 200 ms, 2.50x as long; in " in said(plain(0.08), timed("fused", 0.2))


@pytest.mark.parametrize(
    ("ratio", "low", "high", "text"),
    [
        (0.51, 0.45, 0.55, "96 % slower; 82 % to 122 % "),
        (0.49, 0.45, 0.55, "2.04x as long; 1.82x to 2.22x "),
        (1.4, 1.05, 1.8, "1.40x faster; 1.05x to 1.80x "),
        (1.08, 1.05, 1.8, "8 % faster; 5 % to 80 % "),
        (0.961, 0.960, 0.962, "4 % slower; "),
        (1.771, 1.770, 1.772, "1.77x faster; "),
        (1.4, None, None, "1.40x faster; "),
    ],
)
def test_both_ends_of_an_interval_have_the_unit_of_the_ratio(
    ratio: float, low: float | None, high: float | None, text: str
) -> None:
    verdict = Verdict("faster" if ratio > 1 else "slower", "", ratio, low, high, 15)
    faster = ratio > 1
    phrase = of_rows._gain_phrase(ratio, is_faster=faster)
    assert f"{phrase}; {of_rows._range(ratio, verdict, is_faster=faster)}" == text


@pytest.mark.parametrize("seconds", [0.0795, 0.0805])
def test_what_rounds_do_not_agree_on_wins_nothing(seconds: float) -> None:
    rounds = [0.9 * seconds, seconds, 1.1 * seconds] * 5
    text = said(plain(0.08), timed("fused", seconds, rounds_s=rounds))
    assert "whether it beats the sequential schedule (80 ms, collective library) is not certain" in text
    assert "faster" not in text


def test_the_headline_of_a_quick_run_is_not_certain_and_shows_the_numbers_that_decided() -> None:
    """161 ms (128 to 184) was "within the spread" of 93.5 ms (85 to 102)."""
    fast, slow = [0.085, 0.0935, 0.102, 0.090, 0.097], [0.128, 0.161, 0.184, 0.150, 0.170]
    text = said(plain(0.161, rounds_s=slow), timed("fused", 0.0935, rounds_s=fast))
    assert text.endswith(
        "(161 ms, collective library) is not certain: 1.69x in 5 paired rounds: about 1 more round would tell."
    )
    assert len(re.findall(r"\d\.\d\dx(?! the floor)", text)) == 1, "one ratio, that of the rounds"
    assert "within the spread" not in text


def test_estimates_alone_say_that_nothing_was_run() -> None:
    text = said(timed("fused", 0.05, "estimated"), timed("sequential", 0.08, "estimated"))
    assert text == (
        "Estimated, nothing was run: fused takes 50 ms, 1.60x faster than the sequential schedule (80 ms), "
        "15 % above the floor."
    )


def test_an_estimate_never_beats_what_was_timed() -> None:
    assert said(timed("fused", 0.01, "estimated"), timed("fused", 0.05), plain(0.08)).startswith(
        "fused takes 50 ms, 1.60x"
    )


def test_one_schedule_alone_claims_no_gain() -> None:
    assert said(timed("fused", 0.05)) == (
        "fused takes 50 ms, 15 % above the floor, verified on 2 ranks; no sequential schedule was timed with it, so "
        "that the gain is unknown."
    )
    assert said(plain(0.05)).endswith("; no schedule that overlaps was timed with it.")


def test_failures_are_counted_by_stage() -> None:
    text = said(plain(0.08), timed("fused", 0.05), timed("fused", None, stage="wrong"))
    assert text.endswith("in 15 paired rounds. 1 of 3 schedules failed (1 wrong).")
    assert said(timed("fused", None, stage="hang"), timed("fused", None, stage="refused")) == (
        "Nothing was timed. 2 of 2 schedules failed (1 hang, 1 refused)."
    )


def test_what_was_stopped_is_no_failure() -> None:
    assert "failed" not in said(plain(0.08), timed("fused", 0.05), timed("fused", None, stage="cancelled"))
    assert said(timed("fused", None, stage="cancelled")) == "Nothing was timed: the run was stopped before."


def test_a_time_below_its_floor_is_not_praised() -> None:
    assert "8 % below a floor that was disturbed while it was timed" in said(plain(0.08), timed("fused", 0.04))
    assert "at the floor" in said(plain(0.08), timed("fused", 0.0435))


def test_a_result_that_nobody_verified_is_not_called_verified() -> None:
    assert "verified" not in said(plain(0.08), timed("fused", 0.05, correct=None))


def test_several_problems_are_told_in_one_sentence() -> None:
    shapes = [{"m": size, "n": 64, "k": 64} for size in (64, 128, 256)]
    unclear = {"rounds_s": [0.07, 0.0801, 0.09] * 5}
    won, tied, lost = (
        [plain(0.08, shape=shape), timed("fused", seconds, shape=shape, **more)]
        for shape, seconds, more in zip(shapes, (0.05, 0.0801, 0.09), ({}, unclear, {}), strict=True)
    )
    assert overall(headline_cases([*won, *tied, *lost])) == (
        "Overlap is faster on 1 of 3 problems, 1.60x faster than the best sequential schedule of each; "
        "1 not certain, 1 slower."
    )


def test_a_ratio_is_to_the_baseline_of_its_own_block_however_quiet_another_was() -> None:
    rows = [plain(0.4, block="r.1"), plain(1.0, block="r.2"), timed("fused", 0.45, block="r.2")]
    assert said(*rows).startswith("fused takes 450 ms, 2.22x faster than the sequential schedule (1 s,")
    assert "2.22x faster than the best sequential" in overall(headline_cases(rows))
    assert "no sequential schedule was timed with it" in said(*rows[:1], *rows[2:])


def test_a_baseline_that_another_block_tells_to_be_beaten_is_not_called_the_best() -> None:
    """A block of a drawn space holds what was drawn; over what it lacks the gain would be smaller."""
    drawn = [plain(0.9, block="r.1"), plain(0.7, "direct", block="r.1"), plain(1.0, block="r.2"),
             timed("fused", 0.5, block="r.2")]  # fmt: skip
    assert said(*drawn).startswith("fused takes 500 ms, 2.00x faster than the sequential schedule (1 s, collective "
                                   "library; in another block collective direct was faster)")  # fmt: skip
    (case,) = headline_cases(drawn)
    note = comparison_note([*case.whole, timed("fused", 0.6, block="r.1")])
    assert ("1 of them misses sequential, collective direct, which other blocks show to be faster: speed-ups over it "
            "would be smaller.") in note  # fmt: skip
    assert "in another block" not in said(*drawn, plain(0.8, "direct", block="r.2")), "it was timed with it"
    assert "in another block" not in said(drawn[0], plain(1.1, "direct", block="r.1"), *drawn[2:]), "it is slower"
    assert "in another block" not in said(*drawn[1:]), "no block timed both"


def test_a_run_that_did_not_finish_says_how_it_ended() -> None:
    assert ending("finished", 3) == ending(None, 0) == ""
    assert ending("cancelled", 3) == "Stopped after 3 schedules had been timed."
    assert ending("cancelled", 0) == "Stopped before anything was timed."
    assert ending("The scheduler is gone.", 1) == (
        "Ended early, after 1 schedule had been timed: The scheduler is gone."
    )


def test_a_recommendation_has_its_spread_and_names_what_ties() -> None:
    times = (8, 0.0473, 0.046, 0.0491), (4, 0.048, 0.046, 0.049), (1, 0.06, 0.059, 0.061)
    rows = [
        timed(
            "fused",
            seconds,
            axes={"slice_tiles": count},
            low_s=low,
            high_s=high,
            rounds_s=np.linspace(low, high, 15)[:: 1 if count == 8 else -1].tolist(),
        )
        for count, seconds, low, high in times
    ]
    advice = recommendation(headline_cases([plain(0.0837), *rows])[0])
    assert advice is not None
    assert advice.message == (
        "Recommended: fused, tiles per slice 8: 47.3 ms (46.0 to 49.1). These may be as fast: "
        "fused, tiles per slice 4: 48 ms (46.0 to 49.0)."
    )


def test_times_that_are_far_apart_do_not_tie_but_say_why_they_are_not_certain() -> None:
    fast, slow = np.linspace(0.304, 0.367, 15).tolist(), np.linspace(0.553, 0.637, 15).tolist()
    times = {"time_s": 0.590, "low_s": 0.553, "high_s": 0.637}
    rows = [timed("fused", 0.323, low_s=0.304, high_s=0.367, rounds_s=fast),
            {**plain(0.590), **times, "rounds_s": slow}]  # fmt: skip
    calm = recommendation(headline_cases(rows)[0])
    assert calm is not None
    assert calm.message == "Recommended: fused: 323 ms (304 to 367)."
    busy = recommendation(headline_cases([{**row, "others_share": 0.4, "others": "40 %"} for row in rows])[0])
    assert busy is not None
    assert "may be as fast" not in busy.message
    assert "Not certain to be slower, because others used the cores meanwhile (40 %): sequential" in busy.message
    few = recommendation(headline_cases([{**row, "rounds_s": row["rounds_s"][:1]} for row in rows])[0])
    assert few is not None
    assert "because 1 paired round cannot tell: sequential" in few.message


def test_an_estimate_is_worth_measuring_and_ties_with_nothing() -> None:
    rows = [timed("fused", 0.05, "estimated", low_s=0.02, high_s=0.2), timed("decomposed", 0.06, "estimated")]
    advice = recommendation(headline_cases(rows)[0])
    assert advice is not None
    assert advice.message == "Worth measuring first: fused: 50 ms (20.0 to 200.0)."
    assert recommendation(headline_cases([timed("fused", None)])[0]) is None
