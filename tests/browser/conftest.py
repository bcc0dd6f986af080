"""One JupyterLab server and one headless Chromium for all browser tests."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
MISSING = "no Chromium was found (chromium, chromium-browser, google-chrome): install Debian's package `chromium`."


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """A `tests.browser.lab.Lab`: `with lab.opened(cells) as notebook: notebook.run_all()`."""
    if CHROMIUM is None and os.environ.get("CI") == "true":
        pytest.fail(f"CI has to run the browser tests, but {MISSING}")
    if CHROMIUM is None:
        pytest.skip(MISSING)
    from playwright.sync_api import sync_playwright

    from tests.browser.lab import CHROMIUM_FLAGS, Lab, running_server

    with running_server(tmp_path_factory.mktemp("lab")) as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_FLAGS)
        try:
            yield Lab(server, browser)
        finally:
            browser.close()
