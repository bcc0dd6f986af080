"""Where notebooks, data and runs lie: inside the package of a wheel, or the folders of a checkout."""

from pathlib import Path

import platformdirs

_PACKAGE = Path(__file__).parent


def notebooks_directory() -> Path:
    """The folder of the notebooks we ship."""
    return _shipped("notebooks")


def data_directory() -> Path:
    """The folder of machines, problems and recordings."""
    return _shipped("data")


def runs_directory() -> Path:
    """Where this person's runs are kept; it may not exist yet. An installed wheel is replaced on upgrade, runs are not."""
    packaged = _PACKAGE / "_data"
    return platformdirs.user_data_path("overlap-workbench") / "runs" if packaged.is_dir() else data_directory() / "runs"


def _shipped(name: str) -> Path:
    packaged = _PACKAGE / f"_{name}"
    return packaged if packaged.is_dir() else _PACKAGE.parent / name
