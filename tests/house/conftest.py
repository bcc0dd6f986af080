"""What the house rules look at: the Python files of the rooms, and the files git keeps."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("kernels", "cluster", "workbench")


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def room_files() -> list[Path]:
    """Every Python file of the three rooms, relative to the repository."""
    return _python_files(*ROOMS)


@pytest.fixture(scope="session")
def python_files() -> list[Path]:
    """Every Python file of the rooms and of their tests, relative to the repository."""
    return _python_files(*ROOMS, "tests")


@pytest.fixture(scope="session")
def kept_files() -> list[Path]:
    """Every file git tracks, relative to the repository."""
    if not (ROOT / ".git").exists():
        pytest.skip("this tree is not a git checkout, so nothing is tracked")
    listing = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True, timeout=100)
    names = [Path(name) for name in listing.split("\0") if name]
    return [name for name in names if (ROOT / name).is_file()]


def _python_files(*folders: str) -> list[Path]:
    return sorted(path.relative_to(ROOT) for folder in folders for path in (ROOT / folder).rglob("*.py"))
