"""Vega is bundled once per machine and sent once per kernel."""

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest

from workbench.widgets import live_chart


@pytest.fixture
def bundled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The snippets that were bundled; bundling itself takes a second and is not what is tested."""
    made: list[str] = []

    def javascript_bundle(snippet: str, vl_version: str) -> str:
        made.append(snippet)
        return f"/* Vega-Lite {vl_version} */ {snippet}"

    monkeypatch.setattr("vl_convert.javascript_bundle", javascript_bundle)
    return made


@pytest.fixture
def nothing_sent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setattr(live_chart, "_sent", None)
    monkeypatch.setattr("platformdirs.user_cache_path", lambda name: tmp_path / name)
    yield
    if live_chart._sent is not None:
        live_chart._sent.close()


def test_a_bundle_is_made_once_and_read_from_disk_afterwards(bundled: list[str], tmp_path: Path) -> None:
    first = live_chart.bundle(tmp_path / "cache")
    assert live_chart.bundle(tmp_path / "cache") == first
    assert len(bundled) == 1
    assert b"export { vegaEmbed }" in gzip.decompress(first)


def test_a_cache_that_cannot_be_written_costs_time_but_not_the_chart(bundled: list[str], tmp_path: Path) -> None:
    occupied = tmp_path / "a file where the folder should be"
    occupied.touch()
    assert live_chart.bundle(occupied) == live_chart.bundle(occupied)
    assert len(bundled) == 2


@pytest.mark.usefixtures("bundled", "nothing_sent")
def test_a_second_chart_sends_nothing_and_a_page_that_asks_gets_it_again() -> None:
    live_chart.send_once()
    sent = live_chart._sent
    live_chart.send_once()
    assert live_chart._sent is sent
    live_chart.send_again()
    assert live_chart._sent is not sent
    assert live_chart._sent is not None
    assert live_chart._sent.comm is not None
