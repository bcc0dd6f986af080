"""Rows as columns: filters keep what a slow reading of each row keeps, and grids are the rows that they stand for."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from math import ceil, isnan
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.results.columns import Frame, Texts, frame_of, grid_frame, number_text, together
from workbench.results.filters import Filters, kept
from workbench.results.rows import Row

SAME = {"source": "estimated", "scheme": "fused", "operator": "gemm_all_to_all", "shape": {"m": 64}, "world": 2}
ROWS = st.lists(
    st.fixed_dictionaries({
        "source": st.sampled_from(["measured", "recorded", "estimated"]),
        "scheme": st.sampled_from(["fused", "decomposed", None]),
        "time_s": st.one_of(st.none(), st.sampled_from([1e-3, 2e-3, 2.5e-3, 4e-3, 8e-3])),
        "sequential_s": st.one_of(st.none(), st.just(4e-3)),
        "axes": st.fixed_dictionaries({}, optional={
            "pieces": st.sampled_from([1, 2, 4, 8]), "write": st.sampled_from(["zero_copy", "staged"]),
            "tile": st.sampled_from(["64x32x16", "128x32x16"]),
        }),
        "shape": st.sampled_from([{"m": 64}, {"m": 128}]),
    }),
    max_size=30,
)  # fmt: skip
FILTERS = st.builds(
    Filters,
    ranges=st.dictionaries(
        st.sampled_from(["time_s", "pieces", "tile_rows", "speedup", "write", "unknown"]),
        st.tuples(st.sampled_from([0.0, 1e-3, 2.0]), st.sampled_from([2.2e-3, 4.0, 100.0])), max_size=2,
    ),
    words=st.dictionaries(
        st.sampled_from(["source", "scheme", "write", "pieces", "unknown"]),
        st.frozensets(st.sampled_from(["measured", "fused", "zero_copy", "4"])), max_size=2,
    ),
    text=st.sampled_from(["", "fused", "FUS measured", "zero copy", "8", "128", "pieces"]),
    top_percent=st.one_of(st.none(), st.sampled_from([1.0, 10.0, 50.0, 100.0])),
)  # fmt: skip


def cells(row: Row) -> dict[str, Any]:
    """The cells of one row, read slowly."""
    axes = dict(row["axes"])
    if "tile" in axes:
        axes |= dict(
            zip(("tile_rows", "tile_columns", "tile_depth"), map(int, axes.pop("tile").split("x")), strict=True)
        )
    known = {name: row.get(name) for name in ("source", "scheme", "time_s", "sequential_s")}
    both = row["time_s"] is not None and row["sequential_s"] is not None
    return {**known, **axes, **row["shape"], "speedup": row["sequential_s"] / row["time_s"] if both else None}


def is_number(value: Any) -> bool:
    return isinstance(value, int | float)


def passes(row: Mapping[str, Any], filters: Filters) -> bool:
    """Whether one row passes all but the share of the fastest."""
    for name, (low, high) in filters.ranges.items():
        if not is_number(row.get(name)) or not low <= row[name] <= high:
            return False
    for name, words in filters.words.items():
        value = row.get(name)
        if value is None or (number_text(value) if is_number(value) else value) not in words:
            return False
    for word in filters.text.casefold().split():
        said = [value for value in row.values() if isinstance(value, str)]
        equal = [number_text(row[name]) for name in ("pieces", "tile_rows", "tile_columns", "tile_depth", "m")
                 if row.get(name) is not None]  # fmt: skip
        if not any(word in text or word in text.replace("_", " ") for text in said) and word not in equal:
            return False
    return True


def slowly_kept(rows: Sequence[Row], filters: Filters) -> list[bool]:
    read = [cells(row) for row in rows]
    mask = [passes(row, filters) for row in read]
    if filters.top_percent is None:
        return mask
    kept_rows = [False] * len(rows)
    for is_estimate in (False, True):
        of_kind = [each and (row["source"] == "estimated") is is_estimate for row, each in zip(read, mask, strict=True)]
        times = sorted(
            row["time_s"] for row, each in zip(read, of_kind, strict=True) if each and row["time_s"] is not None
        )
        slowest = times[max(1, ceil(len(times) * filters.top_percent / 100)) - 1] if times else 0.0
        for place, (row, each) in enumerate(zip(read, of_kind, strict=True)):
            kept_rows[place] |= bool(each and row["time_s"] is not None and times and row["time_s"] <= slowest)
    return kept_rows


@given(ROWS, FILTERS)
def test_what_is_kept_is_what_a_slow_reading_of_each_row_keeps(rows: list[Row], filters: Filters) -> None:
    assert kept(frame_of(rows), filters).tolist() == slowly_kept(rows, filters)


@given(ROWS, ROWS, FILTERS)
def test_frames_together_are_the_frame_of_all_rows(some: list[Row], others: list[Row], filters: Filters) -> None:
    both = together([frame_of(some), frame_of(others)])
    assert kept(both, filters).tolist() == slowly_kept([*some, *others], filters)
    assert [both.row(place) for place in range(len(both))] == [*some, *others]


@given(ROWS, st.sampled_from(["time_s", "write", "pieces", "unknown"]), st.booleans())
def test_rows_without_a_value_are_last_in_any_order(rows: list[Row], column: str, descending: bool) -> None:
    values = [cells(rows[place]).get(column) for place in frame_of(rows).order(column, descending)]
    present = [value for value in values if value is not None]
    assert values == [*present, *[None] * (len(values) - len(present))]
    assert present == sorted(present, reverse=descending)


def grid(count: int = 12) -> tuple[dict[str, np.ndarray], np.ndarray]:
    points = {
        "tile": np.array(["64x32x16", "128x32x16", "128x64x16"])[np.arange(count) % 3],
        "pieces": np.array([1, 2])[np.arange(count) % 2],
        "write": np.array(["zero_copy", "staged"])[np.arange(count) // 2 % 2],
    }
    return points, np.where(np.arange(count) == 3, np.nan, 1e-3 * (1 + np.arange(count) % 7))


def test_a_grid_of_estimates_is_the_frame_of_its_rows() -> None:
    points, seconds = grid()
    made = grid_frame(SAME, points, seconds)
    rows = [made.row(place) for place in range(len(made))]
    assert len(rows) == 11
    assert rows[0] == {**SAME, "axes": {"tile": "64x32x16", "pieces": 1, "write": "zero_copy"}, "time_s": 1e-3}
    of_rows = frame_of(rows)
    assert of_rows.axes == made.axes
    assert of_rows.columns.keys() == made.columns.keys()
    for name, column in made.columns.items():
        other = of_rows.columns[name]
        if isinstance(column, Texts):
            assert isinstance(other, Texts), name
            assert (other.texts, other.codes.tolist()) == (column.texts, column.codes.tolist()), name
        else:
            np.testing.assert_array_equal(column, other, err_msg=name)


def test_columns_that_vary_have_the_time_last_and_axes_first() -> None:
    rows = [{**SAME, "time_s": 1e-3 * pieces, "axes": {"pieces": pieces, "write": "staged"}} for pieces in (1, 2)]
    assert frame_of(rows).varying == ("pieces", "time_s")
    both = [*rows, {**SAME, "source": "measured", "time_s": 1e-3, "axes": {"pieces": 2}}]
    assert frame_of(both).varying == ("pieces", "write", "source", "time_s")


def test_texts_are_sorted_as_people_do() -> None:
    rows = [{**SAME, "time_s": 1.0, "axes": {"pattern": text}} for text in ("b10", "b9", "a")]
    column = frame_of(rows).columns["pattern"]
    assert isinstance(column, Texts)
    assert column.texts == ("a", "b9", "b10")


def big(count: int = 100_000) -> Frame:
    points, seconds = grid(count)
    return grid_frame(SAME, points, seconds)


@pytest.mark.alone
def test_a_hundred_thousand_rows_are_filtered_while_a_hand_moves() -> None:
    frame = together([big(), frame_of([{**SAME, "source": "measured", "time_s": 2e-3, "axes": {"pieces": 2}}] * 100)])
    filters = Filters(text="zero copy", top_percent=10.0).with_range("time_s", (1e-3, 6e-3))
    filters = filters.with_words("source", frozenset({"estimated"})).with_range("tile_rows", (64, 128))
    kept(frame, filters)
    took = []
    for _ in range(9):
        began = time.perf_counter()
        mask = kept(frame, filters)
        took.append(time.perf_counter() - began)
    assert 0 < mask.sum() < len(frame) // 10 + 100_000 // 7
    assert not isnan(sorted(took)[4])
    assert sorted(took)[4] < 0.1, f"{sorted(took)[4]:.3f} s"  # 0.02 s where nothing else runs
