"""Units and names of plain values, and text that Markdown must not read."""

from __future__ import annotations

import nbconvert.filters.markdown_mistune as mistune
import pytest
from bs4 import BeautifulSoup

from workbench.reports.tables import label, markdown_text, value_text


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("skew_s", 0.0012, "1.2 ms"),
        ("wire_bytes_per_rank", 33_600_000, "33.6 MB"),
        ("bandwidth_bytes_per_second", 1.7e9, "1.7 GB/s"),
        ("max_relative_error", 4.377e-7, "4.4e-07"),
        ("m", 4096, "4096"),
        ("ratio", 0.123456, "0.1235"),
        ("correct", True, "yes"),
        ("guess_s", None, "–"),
        ("tokens", (64, 32), "64 × 32"),
        (
            "fabric",
            {"name": "emulated", "latency_s": 1e-6, "wire_to_compute": 1},
            "emulated, latency 1 µs, wire_to_compute = 1",
        ),
        ("machine", "<b>", "<b>"),
    ],
)
def test_the_end_of_a_key_is_its_unit(key: str, value: object, text: str) -> None:
    assert value_text(key, value) == text


def test_a_key_has_a_name_for_people() -> None:
    assert (label("world"), label("kernel_fingerprint"), label("queue_s")) == ("Ranks", "Kernel fingerprint", "Queue")


@pytest.mark.parametrize(
    "text",
    [
        "</script><script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "**bold** _it_ `code` ~~gone~~ $a_1$ [a](b) ![a](b) a_b_c *",
        "# no heading",
        "- no item",
        "1. no item",
        "> no quote",
        "a | b",
        "&lt; &amp; \\",
        "https://example.org/a_b_c",
        "<https://example.org>",
    ],
)
def test_markdown_shows_exactly_the_characters(text: str) -> None:
    html = mistune.MarkdownWithMath(renderer=mistune.IPythonRenderer(escape=False)).render(markdown_text(text))
    shown = BeautifulSoup(html, "html.parser")
    assert shown.get_text().strip() == text
    assert {element.name for element in shown.find_all()} == {"p"}
