"""Imports go downwards, every library has one home, and the words load quickly and without torch."""

import json
import logging.config
import subprocess
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

# Imports go downwards, every library has one home, and everything imported is declared.

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


def test_the_import_contract_of_pyproject_holds(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # its configuration of logging would silence every logger that tests after this one listen to
    monkeypatch.setattr(logging.config, "dictConfig", lambda _: None)
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


# The words load in every rank, notebook and shell: quickly, and without torch or any other library but numpy.

ALLOWED_IMPORTS_OF_NUMPY = 2.5
"""The words' import, as a multiple of numpy's in the same process: seconds would judge the computer, not the words.

It is 0.8 to 1.6 on a computer that others share: the least of ten counts. Torch alone would make it 6 and more.
"""

PROBE = """
import importlib, json, sys, time
start = time.process_time()
import numpy
numpy_seconds = time.process_time() - start
before = set(sys.modules)
start = time.process_time()
for name in sys.argv[1:]:
    importlib.import_module(name)
seconds = time.process_time() - start
loaded = {name.partition(".")[0] for name in set(sys.modules) - before}
print(json.dumps({"seconds": seconds, "numpy_seconds": numpy_seconds, "loaded": sorted(loaded)}))
"""


@pytest.fixture(scope="module")
def words(root: Path) -> list[str]:
    """The lowest floor of the import contract, as far as it is built, with operators and schemes."""
    contracts = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    floors = next(contract["layers"] for contract in contracts if contract.get("containers") == ["kernels"])
    names = [name.strip(" ()") for floor in floors[-3:] for name in floor.split(":")]
    built = [name for name in names if list((root / "kernels").glob(f"{name}*"))]
    return [f"kernels.{name}" for name in built]


def probe(root: Path, words: list[str]) -> dict:
    command = [sys.executable, "-c", PROBE, *words]
    answer = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=200)
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)


def test_words_load_no_library_but_numpy(root: Path, words: list[str]) -> None:
    loaded = probe(root, words)["loaded"]
    strangers = [name for name in loaded if name not in sys.stdlib_module_names and name not in {"kernels", "numpy"}]
    assert not strangers, f"importing {', '.join(words)} also loads {', '.join(strangers)}"


def test_the_command_line_begins_without_what_takes_seconds(root: Path) -> None:
    loaded = probe(root, ["workbench.cli.app"])["loaded"]
    assert not set(loaded) & {"torch", "triton", "pandas", "numba", "altair", "distributed"}


def test_an_answer_loads_no_library_that_takes_long(root: Path) -> None:
    """`recommend` answers from closed forms: neither compiled code nor traces of caches."""
    loaded = probe(root, ["workbench.experiment.answer"])["loaded"]
    assert not set(loaded) & {"torch", "triton", "pandas", "numba", "pyarrow", "altair", "distributed"}


def test_the_explorer_begins_without_torch_and_without_what_it_may_never_need(root: Path) -> None:
    """A report needs nbconvert when it is pressed."""
    loaded = probe(root, ["workbench.widgets.explorer_page"])["loaded"]
    assert not set(loaded) & {"torch", "triton", "numba", "lark", "nbconvert"}


def test_reports_and_charts_begin_without_that_grammar(root: Path) -> None:
    for name in ("workbench.reports.export", "workbench.charts.residency", "workbench.widgets.live_chart"):
        assert not set(probe(root, [name])["loaded"]) & {"torch", "lark"}, name


def test_words_load_in_a_blink(root: Path, words: list[str]) -> None:
    probes = [probe(root, words) for _ in range(10)]
    least = min(probes, key=lambda one: one["seconds"] / one["numpy_seconds"])
    assert least["seconds"] <= ALLOWED_IMPORTS_OF_NUMPY * least["numpy_seconds"], (
        f"the words took {least['seconds']:.3f} s of CPU to import, and numpy {least['numpy_seconds']:.3f} s: "
        f"{ALLOWED_IMPORTS_OF_NUMPY} times as much is allowed"
    )
