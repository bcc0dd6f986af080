"""Where notebooks, data and runs lie: inside the package of a wheel, or the folders of a checkout."""

from pathlib import Path

LAPTOP = "laptop_cpu"
"""The machine of CPU ranks on this computer."""

_PACKAGE = Path(__file__).parent


def notebooks_directory() -> Path:
    """The folder of the notebooks we ship."""
    return _shipped("notebooks")


def data_directory() -> Path:
    """The folder of machines, problems and recordings."""
    return _shipped("data")


def labextensions_directory() -> Path:
    """The folder of what is added to JupyterLab's page, as JupyterLab looks for it."""
    return _PACKAGE.resolve() / "labextensions"


def runs_directory() -> Path:
    """The folder of this person's runs, which may not exist yet; outside of a wheel, which an upgrade replaces."""
    if (_PACKAGE / "_data").is_dir():
        import platformdirs  # alone here: a GPU host that reads a machine file may lack it

        return platformdirs.user_data_path("overlap-workbench") / "runs"
    return data_directory() / "runs"


def _shipped(name: str) -> Path:
    packaged = _PACKAGE / f"_{name}"
    return packaged if packaged.is_dir() else _PACKAGE.parent / name
