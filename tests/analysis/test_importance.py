"""How much an axis matters: known answers, nothing for an axis without effect, and no number where none is known."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from kernels import fabric as fabrics
from kernels import operators
from workbench.analysis.importance import (
    POINTS_MOST,
    UNREAD,
    Importance,
    by_axis,
    importance,
    importance_of_space,
)
from workbench.machines import shipped_machine
from workbench.simulator.closed_form import grid
from workbench.simulator.predict import resolved


def timed(time_s: float, **given: Any) -> dict[str, Any]:
    axes = {name: value for name, value in given.items() if name not in ("source", "block", "sequential_s", "part")}
    others = {name: value for name, value in given.items() if name not in axes}
    return {"source": "measured", "part": "whole", "block": "b", "time_s": time_s, "axes": axes, **others}


def crossed(seed: int = 0, noise: float = 0.01, **more: Any) -> list[dict[str, Any]]:
    """Times that pieces double, an order makes 1.2 times as long, and a hint leaves as they are."""
    rng = np.random.default_rng(seed)
    return [
        timed(2.0**pieces * 1.2**order * np.exp(rng.normal(0, noise)), pieces=pieces, order=order, hint=hint, **more)
        for pieces, order, hint in product((0, 1, 2, 3), (0, 1), ("a", "b", "c"))
    ]


def unknown(result: Importance) -> dict[str, str]:
    return {each.axis: each.why for each in result.shares if each.share is None}


# Known answers.


def test_the_shares_are_those_of_the_variances_that_made_the_times() -> None:
    of_pieces, of_order = np.log(2) ** 2 * 1.25, np.log(1.2) ** 2 * 0.25
    shares = importance(crossed(noise=1e-6)).known
    assert list(shares) == ["pieces", "order", "hint"]
    assert shares["pieces"] == pytest.approx(of_pieces / (of_pieces + of_order), abs=1e-4)
    assert shares["order"] == pytest.approx(of_order / (of_pieces + of_order), abs=1e-4)


@pytest.mark.parametrize("seed", range(5))
def test_an_axis_without_effect_has_no_more_than_chance(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = [timed(float(np.exp(rng.normal())), tile_order=int(rng.integers(4)), write=int(rng.integers(2)))
            for _ in range(200)]  # fmt: skip
    for share in importance(rows).shares:
        assert share.share == pytest.approx(0.0, abs=0.05)
        assert share.chance < 0.06


def test_what_noise_adds_is_subtracted() -> None:
    """Of 40 times, 8 values of an axis without effect have means that explain 7 / 39 of the variance."""
    shares = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        rows = [timed(float(np.exp(rng.normal())), pieces=number % 8) for number in range(40)]
        (share,) = importance(rows).shares
        shares.append(share.share or 0.0)
    assert np.mean(shares) < 0.4 * 7 / 39


def test_an_axis_is_not_credited_with_what_another_one_did() -> None:
    """A search that tried a good value more often leaves values of one axis mostly with one of another."""
    rng = np.random.default_rng(3)
    rows = []
    for _ in range(400):
        pieces = int(rng.integers(2))
        hint = pieces if rng.random() < 0.9 else 1 - pieces
        rows.append(timed(float(2.0**pieces * np.exp(rng.normal(0, 0.02))), pieces=pieces, hint=hint))
    by_value = [np.log([row["time_s"] for row in rows if row["axes"]["hint"] == hint]).mean() for hint in (0, 1)]
    assert by_value[1] - by_value[0] > 0.4, "the means of the axis without effect differ"
    result = importance(rows)
    assert result.known["hint"] < 0.001
    assert result.known["pieces"] > 0.9


def test_what_only_two_axes_together_explain_is_the_rest() -> None:
    rows = [timed(2.0 ** (pieces ^ order), pieces=pieces, order=order) for pieces, order in product((0, 1), (0, 1))] * 5
    result = importance(rows)
    assert result.rest == pytest.approx(1.0, abs=0.15)
    assert all((share.share or 0.0) <= share.chance for share in result.shares)


def test_the_tile_is_split_into_its_sides() -> None:
    rows = [timed(rows_ / 64 + 0.001 * k, tile=f"{rows_}x{columns}x{k}")
            for rows_, columns, k in product((64, 128, 256), (64, 128), (32, 64))]  # fmt: skip
    shares = importance(rows).known
    assert set(shares) == {"tile_rows", "tile_columns", "tile_depth"}
    assert shares["tile_rows"] > 0.99
    assert shares["tile_columns"] < 1e-3


# Blocks differ: a time counts by its block's baseline.


def test_beside_the_form_a_tile_has_the_share_of_its_sides() -> None:
    rows = [timed(2.0**(rows // 64) * 1.2**(columns // 64) * 1.05**pieces, tile=f"{rows}x{columns}x64", pieces=pieces)
            for rows, columns, pieces in product((64, 128, 256), (64, 128), (1, 2, 4))]  # fmt: skip
    known = importance(rows).known
    shares = by_axis(importance(rows))
    assert set(shares) == {"tile", "pieces"}
    assert shares["tile"] == pytest.approx(known["tile_rows"] + known["tile_columns"])
    assert shares["pieces"] == known["pieces"]


def test_a_block_that_was_slower_changes_nothing() -> None:
    quiet = crossed(block="quiet", sequential_s=1.0)
    slow = [{**row, "time_s": 3 * row["time_s"], "block": "slow", "sequential_s": 3.0} for row in quiet]
    mixed = [late if row["axes"]["order"] else row for row, late in zip(quiet, slow, strict=True)]
    assert importance(mixed).known == pytest.approx(importance(quiet).known)
    assert "24 times, each over the baseline of its block" in importance(mixed).basis


def test_what_has_no_baseline_is_left_out_and_counted() -> None:
    rows = [*crossed(sequential_s=1.0), *crossed(block="other")]
    assert importance(rows).basis == "24 times, each over the baseline of its block; 24 without a baseline left out"
    assert importance([*crossed(), *crossed(block="other")[:5]]).basis == (
        "24 times, each of one block; 5 of other blocks left out"
    )


def test_failures_and_parts_are_no_times() -> None:
    others = [{**timed(1.0, pieces=9), "time_s": None}, timed(9.0, pieces=9, part="compute")]
    assert importance([*crossed(), *others]).count == 24


# What is not known says so.


def test_one_schedule_that_was_timed_again_and_again_has_no_axes_to_credit() -> None:
    result = importance([timed(seconds, tile="32x64x64") for seconds in (3.0, 2.0) * 5])
    assert (result.shares, result.rest) == ((), None)


def test_few_rows_say_how_many_are_needed() -> None:
    result = importance(crossed()[:4])
    assert result.known == {}
    assert result.rest is None
    assert "not known with 4 times" in unknown(result)["order"]
    assert importance([]).shares == ()


def test_what_chance_could_explain_is_no_number() -> None:
    rng = np.random.default_rng(0)
    rows = [timed(float(np.exp(rng.normal())), pieces=number % 5) for number in range(10)]
    assert unknown(importance(rows))["pieces"].startswith("not known with 10 times: chance alone reaches")


def test_an_axis_that_goes_with_another_one_is_not_known() -> None:
    rows = [{**row, "axes": {**row["axes"], "warps": 4 if row["axes"]["pieces"] < 2 else 8}} for row in crossed()]
    result = importance(rows)
    assert unknown(result) == {"warps": "not known: each value of pieces comes with one value of it here"}
    assert result.known["pieces"] > 0.9


def test_axes_that_never_vary_one_without_another_have_one_share() -> None:
    kinds = [("small", 0, 0), ("large", 0, 1), ("large", 1, 0)]  # the third axis is not free once two are known
    rows = []
    for number, (time_s, (store, warps, stages)) in enumerate(zip([1, 2, 4] * 6, kinds * 6, strict=True)):
        axes = {"store": store, "warps": warps, "stages": stages, "pieces": number % 2}
        rows.append(timed(time_s * (1 + 0.001 * number), **axes))
    result = importance(rows)
    together = "store + warps + stages"
    assert result.known[together] > 0.99
    assert result.leading[:3] == ["store", "warps", "stages"]
    assert result.known["pieces"] < 0.001


def test_equal_times_leave_nothing_to_explain() -> None:
    result = importance([{**row, "time_s": 0.5} for row in crossed()])
    assert set(result.known.values()) == {0.0}


# The estimated space.

PROBLEM = operators.problem("gemm_all_to_all", {"m": 2048, "n": 512, "k": 1024}, dtype="float32", world=2)
LAPTOP = shipped_machine("laptop_cpu")
LINK = resolved(fabrics.parse("emulated:wire_to_compute=1"), PROBLEM, LAPTOP)


def test_of_a_whole_space_a_share_is_the_variance_of_the_means_by_value() -> None:
    result = importance_of_space(PROBLEM, "decomposed", LAPTOP, LINK)
    assert "all combinations" in result.basis
    assert all(share.chance == 0.0 for share in result.shares)
    assert result.known["pieces"] > 0.3
    assert sum(result.known.values()) + (result.rest or 0.0) == pytest.approx(1.0, abs=0.02)


def test_a_space_agrees_with_the_means_of_its_columns() -> None:
    points = {"pieces": np.repeat([1, 2, 4, 8], 2), "split": np.tile(["rows", "columns"], 4)}
    logs = np.log(grid.times(PROBLEM, "decomposed", points, LAPTOP, LINK))
    by_value = np.array([logs[points["pieces"] == value].mean() for value in (1, 2, 4, 8)])
    rows = [timed(float(np.exp(log)), source="estimated", pieces=int(pieces), split=str(split), repeat=number)
            for number in range(3) for log, pieces, split in zip(logs, *points.values(), strict=True)]  # fmt: skip
    assert importance(rows).known["pieces"] == pytest.approx(by_value.var() / logs.var(), abs=0.01)


def test_a_large_space_is_sampled_and_says_so_and_what_no_estimate_reads_is_not_known() -> None:
    machine = shipped_machine("h200_nvl8")
    problem = operators.problem("gemm_all_to_all", {"m": 8192, "n": 4096, "k": 1792}, dtype="bfloat16", world=4)
    result = importance_of_space(problem, "fused", machine, fabrics.parse(fabrics.usual(machine, 4)))
    assert f" estimates, of {POINTS_MOST:,} combinations drawn at random from " in result.basis
    assert unknown(result) == {"group_rows": UNREAD}
    assert list(result.known)[:2] == ["tile_rows", "tile_columns"]
