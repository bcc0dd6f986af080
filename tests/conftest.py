"""Tests that need hardware or a browser are skipped, with a sentence, where there is none."""

from pathlib import Path

import pytest

CHROMIUM = Path("/usr/bin/chromium")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("browser") and not CHROMIUM.exists():
            item.add_marker(pytest.mark.skip(reason=f"{CHROMIUM} is missing: apt-get install chromium"))
        if item.get_closest_marker("gpu") and not _has_gpu():
            item.add_marker(pytest.mark.skip(reason="torch sees no GPU here"))


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()
