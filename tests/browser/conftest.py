"""One JupyterLab server and one headless Chromium for all browser tests."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
EXPECTED_MS = 30_000
"""How long a page may take to show what is expected, on a machine that does other things, too."""
MISSING = "no Chromium was found (chromium, chromium-browser, google-chrome): install Debian's package `chromium`."


@pytest.fixture(scope="session")
def browser() -> Iterator[object]:
    """A `playwright.sync_api.Browser`; one process has one Playwright."""
    if CHROMIUM is None and os.environ.get("CI") == "true":
        pytest.fail(f"CI has to run the browser tests, but {MISSING}")
    if CHROMIUM is None:
        pytest.skip(MISSING)
    from playwright.sync_api import expect

    from tests.browser.lab import chromium

    expect.set_options(timeout=EXPECTED_MS)
    with chromium(CHROMIUM) as started:
        yield started


@pytest.fixture(scope="session")
def explorer_site(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Path]]:
    """A `Lab` with a cluster of two ranks, and the folder of its runs, for all files that open the explorer in it."""
    from tests.browser.explorer_lab import explorer_server

    with explorer_server(tmp_path_factory.mktemp("explorer"), browser) as site:
        yield site


@pytest.fixture(scope="session")
def lab(browser: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """A `tests.browser.lab.Lab`: `with lab.opened(cells) as notebook: notebook.run_all()`."""
    from tests.browser.lab import Lab, running_server

    with running_server(tmp_path_factory.mktemp("lab")) as server:
        yield Lab(server, browser)
