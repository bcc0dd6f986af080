"""Tests that need hardware or a browser are skipped, with a sentence, where there is none."""

from collections.abc import Callable
from pathlib import Path

import pytest

from cluster import gpus

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


@pytest.fixture
def host_with_gpus(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """host_with_gpus(count, name): what the driver says of this host, whatever it really has."""

    def make(count: int, name: str = "NVIDIA H200") -> None:
        found = tuple(gpus.Gpu(number=number, name=name, uuid=f"GPU-{number}") for number in range(count))
        monkeypatch.delenv(gpus.VISIBLE, raising=False)
        monkeypatch.setattr(gpus, "_by_library", lambda: found)
        monkeypatch.setattr(gpus, "_by_driver", lambda: ())

    return make
