"""Lesson 6 says what to install where Triton is missing, and goes on with rows that its kernels showed elsewhere."""

import sys

import nbformat
import pytest

from tests.notebooks.recorded_lesson import FILE, LESSON
from workbench import lesson
from workbench.reports.export import executed
from workbench.reports.pictures import CHART
from workbench.resources import notebooks_directory

NO_TRITON = "import sys\n\nsys.modules['triton'] = None"


def test_without_triton_a_lesson_names_the_command_and_gets_recorded_rows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    rows = lesson.recorded_without_triton(FILE.stem)
    assert rows is not None
    assert {"came", "summed", "failure", "turns", "errors", "signals"} <= rows.keys()
    printed = capsys.readouterr().out
    assert "pip install 'overlap-workbench[gpu]'" in printed
    assert rows["provenance"]["date"][:10] in printed


@pytest.mark.slow
def test_without_triton_the_lesson_runs_to_its_end() -> None:
    notebook = nbformat.read(notebooks_directory() / LESSON, as_version=4)
    notebook.cells.insert(0, nbformat.v4.new_code_cell(NO_TRITON))
    cells = [cell for cell in executed(notebook, notebooks_directory(), deadline_s=240.0).cells if "outputs" in cell]
    outputs = [output for cell in cells for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"]
    assert "pip install" in "".join(output.get("text", "") for output in cells[1].outputs), "the lesson's first cell"
    tables = [output for output in outputs if "<table" in output.get("data", {}).get("text/html", "")]
    assert len(tables) == 4
    assert any(CHART in output.get("data", {}) for output in outputs)
