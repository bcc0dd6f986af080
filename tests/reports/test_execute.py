"""Running a notebook first: in its own directory, within a deadline, with the cell named that failed."""

from __future__ import annotations

from pathlib import Path

import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from workbench.reports.export import executed


def test_a_notebook_runs_in_its_own_directory(tmp_path: Path) -> None:
    (tmp_path / "beside.txt").write_text("found")
    original = new_notebook(cells=[new_code_cell("open('beside.txt').read()")])
    ran = executed(original, tmp_path, deadline_s=200)
    assert ran.cells[0].outputs[0].data["text/plain"] == "'found'"
    assert original.cells[0].outputs == []


def test_a_cell_that_fails_is_named_with_its_error(tmp_path: Path) -> None:
    cells = [new_markdown_cell("# x"), new_code_cell("1"), new_code_cell("raise RuntimeError('no ranks')")]
    with pytest.raises(ValueError, match=r"Cell 3 of the notebook's 3 raised RuntimeError: no ranks.*Accepted"):
        executed(new_notebook(cells=cells), tmp_path, deadline_s=200)


def test_the_deadline_ends_a_cell(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Cell 1 of the notebook's 1 had not finished after 10 s"):
        executed(new_notebook(cells=[new_code_cell("import time; time.sleep(600)")]), tmp_path, deadline_s=10)


def test_a_kernel_that_is_not_installed_is_named(tmp_path: Path) -> None:
    notebook = new_notebook(metadata={"kernelspec": {"name": "julia-9", "display_name": "Julia"}})
    with pytest.raises(ValueError, match="julia-9"):
        executed(notebook, tmp_path, deadline_s=200)
