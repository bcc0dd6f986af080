"""Markdown of a notebook: pictures beside it under our names, text unharmed."""

from __future__ import annotations

from pathlib import PurePosixPath

import altair as alt
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook, new_output

from workbench.reports.pictures import bundle
from workbench.reports.render import markdown


def test_each_chart_is_a_picture_with_a_line_of_text(report: NotebookNode) -> None:
    text, pictures = markdown(report, "run_files")
    assert len(pictures) == 3
    assert all(content.startswith(b"<svg") and b"<script" not in content for content in pictures.values())
    assert all(f"]({name})" in text for name in pictures)
    assert text.count("bar chart of host over Time (ms), 2 rows](run_files/") == 3


def test_no_name_becomes_markup(report: NotebookNode) -> None:
    assert "<script" not in markdown(report, "run_files")[0]


def test_a_notebook_cannot_choose_where_its_pictures_go(chart: alt.Chart) -> None:
    output = new_output("display_data", bundle(chart), metadata={"filename": "../../escaped.svg"})
    _, pictures = markdown(new_notebook(cells=[new_code_cell(outputs=[output])]), "../up/run_files")
    assert [PurePosixPath(name).parent.as_posix() for name in pictures] == ["run_files"]


def test_code_is_hidden_until_asked_for() -> None:
    notebook = new_notebook(cells=[new_code_cell("1 + 41", outputs=[])])
    assert "1 + 41" not in markdown(notebook, "f")[0]
    assert "1 + 41" in markdown(notebook, "f", show_code=True)[0]
