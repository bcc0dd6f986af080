"""Somebody's HTML: kept where it is harmless, text where it is not."""

from __future__ import annotations

import pytest
from bs4 import BeautifulSoup

from workbench.reports.render import clean_html


@pytest.mark.parametrize(
    "harmful",
    [
        "<script>alert(1)</script>",
        "<img src=http://example.org/x.png onerror=alert(1)>",
        "<img onerror=alert(1)>",
        "<iframe src=http://example.org></iframe>",
        "<link rel=stylesheet href=http://example.org/a.css>",
        "<svg onload=alert(1)></svg>",
        "<object data=http://example.org></object>",
        "<form action=http://example.org><button>x</button></form>",
        '<meta http-equiv="refresh" content="0;url=http://example.org">',
    ],
)
def test_what_could_run_or_fetch_shows_as_text(harmful: str) -> None:
    cleaned = BeautifulSoup(clean_html(f"<table><tr><td>{harmful}</td></tr></table>"), "html.parser")
    assert {element.name for element in cleaned.find_all()} <= {"table", "tbody", "tr", "td"}
    assert harmful.split(">", maxsplit=1)[0] in cleaned.get_text()


@pytest.mark.parametrize("link", ["javascript:alert(1)", "data:text/html,<script>alert(1)</script>"])
def test_a_link_that_would_run_is_no_link(link: str) -> None:
    assert "href" not in BeautifulSoup(clean_html(f'<a href="{link}">x</a>'), "html.parser").a.attrs


def test_tables_styles_of_one_element_and_embedded_pictures_are_kept() -> None:
    kept = '<table class="dataframe"><thead><tr><th style="color: red;">a</th></tr></thead></table>'
    assert clean_html(kept) == kept
    assert 'src="data:image/png;base64,AA=="' in clean_html('<img alt="a" src="data:image/png;base64,AA==">')


def test_a_style_block_goes_and_an_address_in_a_style_too() -> None:
    assert clean_html("<style>@import url(http://example.org/a.css)</style><p>x</p>") == "<p>x</p>"
    assert "example" not in clean_html('<p style="background: url(http://example.org/a.png); color: red">x</p>')
