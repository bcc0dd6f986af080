"""Imports go downwards, every library has one home, and everything imported is declared."""

import sys
import tomllib
from graphlib import TopologicalSorter
from importlib.metadata import packages_distributions
from pathlib import Path

import grimp
import pytest
from importlinter import cli
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
ROOMS = ("kernels", "cluster", "workbench")

HOMES = {
    "ipywidgets": ("workbench.widgets",),
    "anywidget": ("workbench.widgets",),
    "dask": ("cluster",),
    "distributed": ("cluster",),
    "dask_jobqueue": ("cluster",),
    "dask_kubernetes": ("cluster",),
    "sqlite3": ("workbench.results",),
    "triton": ("kernels.backends.triton",),
    "typer": ("workbench.cli",),
    "rich": ("workbench.cli",),
    "nbconvert": ("workbench.reports",),
    "optuna": ("workbench.experiment.experiment",),
}

STRANGERS = (
    ("workbench.charts", "workbench.results.store"),
    ("workbench.charts", "workbench.results.database"),
    ("workbench.charts", "workbench.widgets"),
)

ABSENT = {"cuda": "cuda-bindings"}
"""Libraries of GPU hosts that are called otherwise than they are imported, and need not be installed here."""


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph(*ROOMS, include_external_packages=True, cache_dir=None)


def test_the_import_contract_of_pyproject_holds(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = cli.lint_imports(config_filename=str(root / "pyproject.toml"), no_cache=True, no_logo=True)
    assert status == 0, capsys.readouterr().out


@pytest.mark.parametrize("library", HOMES)
def test_a_library_is_imported_only_in_its_home(graph: grimp.ImportGraph, library: str) -> None:
    homes = HOMES[library]
    guests = [name for name in _importers(graph, library) if not name.startswith(homes)]
    assert not guests, "\n".join(
        f"{_place(graph, name, library)} imports {library}, whose home is {' and '.join(homes)}" for name in guests
    )


@pytest.mark.parametrize(("room", "stranger"), STRANGERS)
def test_a_room_does_not_know_its_stranger(graph: grimp.ImportGraph, room: str, stranger: str) -> None:
    if not {room, stranger} <= graph.modules:
        pytest.skip(f"{room} or {stranger} is not built yet")
    chains = graph.find_shortest_chains(importer=room, imported=stranger, as_packages=True)
    assert not chains, f"{room} must not know {stranger}, but: " + "; ".join(" -> ".join(chain) for chain in chains)


def test_imports_have_no_cycle(graph: grimp.ImportGraph) -> None:
    below = {name: sorted(filter(_ours, graph.find_modules_directly_imported_by(name))) for name in graph.modules}
    assert len(list(TopologicalSorter(below).static_order())) >= len(graph.modules)  # raises CycleError, with the cycle


def test_every_imported_library_is_declared_in_pyproject(graph: grimp.ImportGraph, root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    lists = [project["dependencies"], *project["optional-dependencies"].values()]
    declared = {canonicalize_name(Requirement(line).name) for lines in lists for line in lines}
    distributions = packages_distributions()
    libraries = {name for name in graph.modules if not _ours(name)} - sys.stdlib_module_names
    undeclared = [
        f"{_place(graph, _importers(graph, library)[0], library)} imports {library}, which pyproject.toml does not name"
        for library in sorted(libraries)
        if not declared
        & {canonicalize_name(name) for name in distributions.get(library, [ABSENT.get(library, library)])}
    ]
    assert not undeclared, "\n".join(undeclared)


def _ours(module: str) -> bool:
    return module.partition(".")[0] in ROOMS


def _importers(graph: grimp.ImportGraph, library: str) -> list[str]:
    return sorted(graph.find_modules_that_directly_import(library)) if library in graph.modules else []


def _place(graph: grimp.ImportGraph, importer: str, imported: str) -> str:
    detail = graph.get_import_details(importer=importer, imported=imported)[0]
    path = Path(*importer.split("."))
    file = path / "__init__.py" if (ROOT / path).is_dir() else path.with_suffix(".py")
    return f"{file} line {detail['line_number']}"
