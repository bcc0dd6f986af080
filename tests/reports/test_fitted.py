"""Titles end before their plot does, and a plot is as wide as its column unless its author said otherwise."""

from __future__ import annotations

from typing import Any

from workbench.reports.pictures import WIDTH, paper_wide, wrapped

LONG = "How long does each of these many trials take, in milliseconds, " * 4


def lines(spec: dict[str, Any], key: str = "text") -> list[str]:
    return wrapped(spec)["title"][key]


def test_a_long_title_is_broken_into_lines_and_loses_no_word() -> None:
    found = lines({"title": LONG, "width": 300})
    assert len(found) > 3
    assert " ".join(found).split() == LONG.split()
    assert max(map(len, found)) * 7 < 300


def test_subtitles_are_broken_too_and_keep_their_own_lines() -> None:
    found = lines({"title": {"text": "T", "subtitle": ["first", LONG]}, "width": 400}, "subtitle")
    assert found[0] == "first"
    assert len(found) > 3


def test_titles_of_plots_side_by_side_are_broken_to_their_own_width() -> None:
    spec = {"title": LONG, "hconcat": [{"title": LONG, "width": 200}, {"width": 400}]}
    whole = wrapped(spec)
    assert len(whole["title"]["text"]) < len(whole["hconcat"][0]["title"]["text"])


def test_a_plot_without_a_width_gets_the_columns() -> None:
    assert paper_wide({"mark": "bar"})["width"] == WIDTH
    assert paper_wide({"mark": "bar", "width": 100})["width"] == 100
    assert "width" not in paper_wide({"facet": {}, "spec": {"mark": "bar"}})
