"""Rows go in as they come, and out as messages in which none can be lost unnoticed."""

import datetime
import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

from workbench.widgets.live_chart import LiveRows, encode, message, records


def numbers(start: int, stop: int) -> list[dict[str, Any]]:
    return [{"x": number} for number in range(start, stop)]


def filled(*sizes: int, max_rows: int = 10) -> LiveRows:
    rows = LiveRows(generation=3, max_rows=max_rows)
    for size in sizes:
        rows.add(numbers(rows.end, rows.end + size))
    return rows


def test_a_message_names_each_dataset_and_carries_its_rows_as_one_json_buffer() -> None:
    content, buffers = message([("samples", filled(2), 0), ("bounds", filled(1), 0)])
    assert content == {
        "kind": "rows",
        "datasets": [
            {"name": "samples", "generation": 3, "start": 0, "whole": True},
            {"name": "bounds", "generation": 3, "start": 0, "whole": True},
        ],
    }
    assert [json.loads(buffer) for buffer in buffers] == [numbers(0, 2), numbers(0, 1)]


def test_a_message_of_news_begins_where_the_last_one_ended() -> None:
    rows = filled(3, 2)
    content, (buffer,) = message([("samples", rows, 3)])
    assert content["datasets"] == [{"name": "samples", "generation": 3, "start": 3, "whole": False}]
    assert json.loads(buffer) == numbers(3, 5)


def test_rows_added_together_travel_together_and_their_start_says_so() -> None:
    start, encoded = filled(3, 4).since(5)
    assert (start, json.loads(encoded)) == (3, numbers(3, 7))


@pytest.mark.parametrize("sizes", [(25,), (4, 4, 4, 4), (10, 1), (1,) * 30])
def test_the_newest_max_rows_rows_are_kept(sizes: tuple[int, ...]) -> None:
    rows = filled(*sizes)
    total = sum(sizes)
    assert rows.end == total
    assert rows.newest() == numbers(total - 10, total)
    assert total - 10 - max(sizes) < rows.start <= total - 10
    start, encoded = rows.since(0)
    assert (start, json.loads(encoded)[0]) == (rows.start, {"x": rows.start})


def test_a_dataset_without_rows_is_announced_with_an_empty_list() -> None:
    content, buffers = message([("samples", filled(0), 0)])
    assert content["datasets"] == [{"name": "samples", "generation": 3, "start": 0, "whole": True}]
    assert buffers == [b"[]"]


def test_numpy_numbers_and_times_become_what_vega_draws() -> None:
    at = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
    row = {"rank": np.int64(1), "seconds": np.float32(0.5), "at": at, "day": pd.Timestamp(at), "ok": np.bool_(True)}
    milliseconds = 1704067200000.0
    assert json.loads(encode([row])) == {
        "rank": 1,
        "seconds": 0.5,
        "at": milliseconds,
        "day": milliseconds,
        "ok": True,
    }


@pytest.mark.parametrize("nothing", [float("nan"), float("inf"), np.float64("nan"), None, pd.NaT])
def test_what_is_not_a_number_becomes_null(nothing: object) -> None:
    assert encode([{"low_s": nothing}, {"low_s": 1}]) == '{"low_s":null},{"low_s":1}'


def test_a_frame_is_taken_row_by_row() -> None:
    frame = pd.DataFrame({"scheme": ["fused", "sequential"], "time_s": [0.5, float("nan")]})
    assert encode(records(frame)) == '{"scheme":"fused","time_s":0.5},{"scheme":"sequential","time_s":null}'


def test_markup_in_a_name_stays_text() -> None:
    name = "<img src=x onerror=alert(1)>"
    assert json.loads(encode([{"name": name}])) == {"name": name}


def test_one_row_instead_of_rows_is_refused_with_what_would_be_accepted() -> None:
    with pytest.raises(ValueError, match=r"Accepted: a list, \[row\]"):
        records({"x": 1})


def test_something_that_is_no_row_is_refused_by_its_type() -> None:
    with pytest.raises(ValueError, match=r"^A row is 3, a int\. Accepted: mappings from column to value\.$"):
        records([{"x": 1}, 3])


def test_a_value_that_cannot_be_drawn_is_refused_when_it_is_appended() -> None:
    with pytest.raises(ValueError, match=r"a row holds \{1\}, a set; a live chart draws numbers"):
        filled().add([{"x": {1}}])
