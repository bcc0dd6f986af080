"""Tests that need hardware or a browser are skipped, with a sentence, where there is none."""

import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from cluster import hosts

CHROMIUM = Path("/usr/bin/chromium")
PARTS = ("all", "together", "alone")
ALONE = "mark.alone"
"""Stands in every file of which a test is marked so: pytest marks nothing by another name."""

# The same examples in every run, however slow the computer: `--hypothesis-profile=default` looks for others.
settings.register_profile("same", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("same")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", choices=PARTS, default="all", help="of the suite, as tests/parts.py runs it")
    parser.addoption("--quick", action="store_true", help="of tests that are marked `slow`, only the first cases")


def pytest_configure(config: pytest.Config) -> None:
    # What is started with `&` or nohup ignores these, and so would every process that a test ends by them, for ever.
    # A handler of ours is not inherited, the usual one is.
    usual = ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, lambda *_: None),
             (signal.SIGQUIT, signal.SIG_DFL))  # fmt: skip
    for number, handler in usual:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from tests.parts import Scheduling  # a GPU's host may lack xdist

    return Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """To the part that is alone belong few files: the others, which take ten seconds to import, are not read."""
    if config.getoption("--part") != "alone" or collection_path.suffix != ".py":
        return None
    return True if ALONE not in collection_path.read_text() else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    leave_out(config, items)
    select_part(config, items)
    for item in items:
        if item.get_closest_marker("browser") and not CHROMIUM.exists():
            item.add_marker(pytest.mark.skip(reason=f"{CHROMIUM} is missing: apt-get install chromium"))
        if item.get_closest_marker("gpu") and not _has_gpu():
            item.add_marker(pytest.mark.skip(reason="torch sees no GPU here"))


def leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With --quick, drop tests that are marked `slow`, but for the first cases of each that its mark keeps."""
    if not config.getoption("--quick"):
        return
    cases: Counter[tuple[Path, str]] = Counter()
    kept, dropped = list[pytest.Item](), list[pytest.Item]()
    for item in items:
        test, mark = (item.path, item.name.partition("[")[0]), item.get_closest_marker("slow")
        cases[test] += 1
        is_kept = mark is None or cases[test] <= mark.kwargs.get("keeps", 0)
        (kept if is_kept else dropped).append(item)
    config.hook.pytest_deselected(items=dropped)
    items[:] = kept


def select_part(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep those of *items* that are in the part that was asked for."""
    part = config.getoption("--part")
    if part != "all":
        config.hook.pytest_deselected(items=[item for item in items if is_alone(item) != (part == "alone")])
        items[:] = [item for item in items if is_alone(item) == (part == "alone")]
    if part == "together":
        slow = {item.path for item in items if item.get_closest_marker("slow")}
        items.sort(key=lambda item: item.path not in slow)  # or one process would end with them, alone


def is_alone(item: pytest.Item) -> bool:
    """It runs while no other test does: it times, or would take a busy computer for one that does not answer."""
    return item.get_closest_marker("alone") is not None


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


@pytest.fixture
def host_with_gpus(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """host_with_gpus(count, name): what the driver says of this host, whatever it really has."""

    def make(count: int, name: str = "NVIDIA H200") -> None:
        found = tuple(hosts.Gpu(number=number, name=name, uuid=f"GPU-{number}") for number in range(count))
        monkeypatch.delenv(hosts.VISIBLE, raising=False)
        monkeypatch.setattr(hosts, "_gpus_from_nvml", lambda: found)
        monkeypatch.setattr(hosts, "_gpus_from_driver_files", lambda: ())

    return make
