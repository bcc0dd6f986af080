"""Every notebook runs headless from top to bottom, shows what it is for, and is kept without outputs."""

import json
import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import nbformat
import pytest
from bs4 import BeautifulSoup
from nbformat import NotebookNode

from kernels.fabric import parse
from kernels.operators import OPERATORS
from kernels.schemes import SCHEMES
from tests.notebooks import recorded_lesson
from workbench.experiment.experiment import Experiment
from workbench.experiment.run import run
from workbench.experiment.sources import FromSimulator
from workbench.experiment.space import Choice, Space
from workbench.lessons import APPENDICES, LESSONS
from workbench.machines import shipped_machine
from workbench.machines.presets import preset
from workbench.reports.export import executed
from workbench.reports.pictures import ALT_TEXT, CHART, PICTURE
from workbench.reports.render import page
from workbench.resources import notebooks_directory
from workbench.results.store import STORE_FILE, Store

FOLDER = notebooks_directory()
NOTEBOOKS = sorted(path.name for path in FOLDER.glob("*.ipynb"))
CHARTS = {"appendix_gpus.ipynb": 2, "appendix_new_operator.ipynb": 1, "appendix_layers.ipynb": 1,
          "appendix_pieces_and_engines.ipynb": 3, "appendix_two_streams.ipynb": 4}  # fmt: skip
"""How many charts the appendices show at the least; tests/notebooks/test_lessons.py has the lessons."""
DEADLINE_S = 240.0

Executed = Callable[..., NotebookNode]


@pytest.fixture
def ran(tmp_path: Path) -> Executed:
    """Executes a notebook; what it would write among this person's runs goes to a folder of the test's own."""

    def run_it(name: str, notebook: NotebookNode | None = None) -> NotebookNode:
        notebook = notebook or nbformat.read(FOLDER / name, as_version=4)
        redirect = f"import pathlib\nfrom workbench import resources\n\nfolder = pathlib.Path({str(tmp_path)!r})\n"
        redirect += "resources.runs_directory = lambda: folder"
        notebook.cells.insert(0, nbformat.v4.new_code_cell(redirect))
        return executed(notebook, FOLDER, deadline_s=DEADLINE_S)

    return run_it


def bundles(notebook: NotebookNode) -> list[NotebookNode]:
    """The outputs that are charts."""
    return [output.data for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs
            if CHART in output.get("data", {})]  # fmt: skip


def told(notebook: NotebookNode) -> str:
    """What stands on the screen: text of cells and of outputs."""
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    texts = [output.get("text", "") + output.get("data", {}).get("text/plain", "") for output in outputs]
    return "\n".join([*(cell.source for cell in notebook.cells), *texts])


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in CHARTS if name != recorded_lesson.LESSON])
def test_an_appendix_runs_and_shows_its_charts_and_tables(name: str, ran: Executed, tmp_path: Path) -> None:
    is_an_appendix(name, ran(name), tmp_path)


def is_an_appendix(name: str, notebook: NotebookNode, folder: Path) -> None:
    """Its charts, tables and silence, and nothing in the *folder* of its runs."""
    charts = bundles(notebook)
    assert len(charts) >= CHARTS[name]
    for chart in charts:
        assert chart[PICTURE].startswith("<svg")
        assert len(chart[ALT_TEXT]) > 20
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert any("<table" in output.get("data", {}).get("text/html", "") for output in outputs)
    warned = [output.text for output in outputs if output.get("name") == "stderr"]
    assert not warned, warned
    assert list(folder.iterdir()) == [], "an appendix writes nothing down"


@pytest.mark.slow
@pytest.mark.skipif(find_spec("triton") is None, reason="the lesson's kernels need Triton")
def test_the_appendix_about_code_shows_the_rows_that_are_recorded_for_hosts_without_triton(
    ran: Executed, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    written = tmp_path_factory.mktemp("rows") / "rows.json"
    notebook = ran(recorded_lesson.LESSON, recorded_lesson.that_writes_its_rows(written))
    is_an_appendix(recorded_lesson.LESSON, notebook, tmp_path)
    before, today = json.loads(recorded_lesson.FILE.read_text()), json.loads(written.read_text())
    for key in ("came", "summed", "failure", "turns", "signals"):
        assert today[key] == before[key], key
    assert [variant for variant, _ in today["errors"]] == [variant for variant, _ in before["errors"]]
    for (variant, error), (_, recorded) in zip(today["errors"], before["errors"], strict=True):
        assert float(error) == pytest.approx(float(recorded), rel=0.5), variant


@pytest.mark.slow
def test_the_explorer_shows_the_last_run_and_measures_nothing(ran: Executed, tmp_path: Path) -> None:
    machine = shipped_machine("laptop_cpu")
    asked = Experiment(problems=preset("tiny", "gemm_all_to_all"), space=Space((Choice("sequential"), Choice("fused"))),
                       backend="cpu", machine=machine.name, fabric=parse("emulated"), title="kept")  # fmt: skip
    with Store(tmp_path / STORE_FILE) as store:
        kept = run(asked, store, FromSimulator(machine), machine)
        list(kept)
        before = store.rows_since(0)
    notebook = ran("explore.ipynb")
    with Store(tmp_path / STORE_FILE) as store:
        assert [entry["id"] for entry in store.runs()] == [kept.run], "no run was begun"
        assert store.rows_since(0) == before, "nothing was written down"
        assert store.samples_since(0) == ([], 0), "nothing was measured"
    assert bundles(notebook), "the last run is frozen into the cell"
    frozen = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs
              if output.get("metadata", {}).get("workbench", {}).get("run")]  # fmt: skip
    assert {output.metadata.workbench.run for output in frozen} == {kept.run}, "and its outputs name it"
    assert sum(PICTURE in output.data for output in frozen) >= 2


@pytest.mark.slow
def test_the_explorer_opens_where_nothing_was_run_yet(ran: Executed, tmp_path: Path) -> None:
    notebook = ran("explore.ipynb")
    views = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs
             if "application/vnd.jupyter.widget-view+json" in output.get("data", {})]  # fmt: skip
    assert views
    with Store(tmp_path / STORE_FILE) as store:
        assert store.runs() == []


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_is_kept_without_outputs(name: str) -> None:
    notebook = json.loads((FOLDER / name).read_text())
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert cells
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells)
    assert "widgets" not in notebook["metadata"]


@pytest.mark.parametrize("name", ["appendix_new_operator.ipynb", "appendix_layers.ipynb"])
def test_a_report_of_an_appendix_about_code_keeps_its_code_and_leaves_out_the_imports(name: str) -> None:
    notebook = nbformat.read(FOLDER / name, as_version=4)
    written = BeautifulSoup(page(notebook, interactive=False), "html.parser").get_text()
    files = [cell.source.splitlines()[1:] for cell in notebook.cells if cell.source.startswith("%%writefile")]
    assert files
    assert all(line in written for lines in files for line in lines)
    assert "enable_renderer()" not in written


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_links_between_notebooks_lead_somewhere(name: str) -> None:
    linked = re.findall(r"\]\(([\w/]+\.ipynb)\)", (FOLDER / name).read_text())
    assert all((FOLDER / target).exists() for target in linked), linked


def test_lessons_and_appendices_speak_of_every_operator_and_of_every_scheme_that_runs() -> None:
    every = [*(entry.file for entry in LESSONS), *APPENDICES]
    texts = "\n".join(told(nbformat.read(FOLDER / name, as_version=4)) for name in every)
    assert "OPERATORS.items()" in texts, "lesson 4 lists all operators"
    assert {scheme for scheme in SCHEMES if scheme in texts} == set(SCHEMES)
    assert {name for name in OPERATORS if name in texts} >= set(OPERATORS) - {"all_to_all_gemm"}
