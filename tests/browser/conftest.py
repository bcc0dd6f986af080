"""One JupyterLab server and one headless Chromium for all browser tests."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
MISSING = "no Chromium was found (chromium, chromium-browser, google-chrome): install Debian's package `chromium`."


@pytest.fixture(scope="session")
def browser() -> Iterator[object]:
    """A `playwright.sync_api.Browser`; one process has one Playwright."""
    if CHROMIUM is None and os.environ.get("CI") == "true":
        pytest.fail(f"CI has to run the browser tests, but {MISSING}")
    if CHROMIUM is None:
        pytest.skip(MISSING)
    from tests.browser.lab import chromium

    with chromium(CHROMIUM) as started:
        yield started


@pytest.fixture(scope="session")
def lab(browser: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """A `tests.browser.lab.Lab`: `with lab.opened(cells) as notebook: notebook.run_all()`."""
    from tests.browser.lab import Lab, running_server

    with running_server(tmp_path_factory.mktemp("lab")) as server:
        yield Lab(server, browser)
