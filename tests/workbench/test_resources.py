"""Notebooks, data and runs are found in a checkout and in an installed wheel."""

from pathlib import Path

import pytest

from workbench import resources


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "workbench"
    folder.mkdir()
    monkeypatch.setattr(resources, "_PACKAGE", folder)
    return folder


def test_a_checkout_uses_its_own_folders(package: Path) -> None:
    assert resources.notebooks_directory() == package.parent / "notebooks"
    assert resources.data_directory() == package.parent / "data"
    assert resources.runs_directory() == package.parent / "data" / "runs"


def test_a_wheel_uses_what_it_carries(package: Path) -> None:
    (package / "_notebooks").mkdir()
    (package / "_data").mkdir()
    assert resources.notebooks_directory() == package / "_notebooks"
    assert resources.data_directory() == package / "_data"


def test_the_runs_of_a_wheel_lie_outside_of_it(package: Path) -> None:
    (package / "_data").mkdir()
    assert not resources.runs_directory().is_relative_to(package.parent)
    assert resources.runs_directory().name == "runs"


def test_this_checkout_is_found_from_the_package() -> None:
    assert (resources.data_directory().parent / "pyproject.toml").is_file()
