"""The front door: every kind is written whole, every bad request is one sentence that leaves no file behind."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook

from workbench.reports.export import ReportFormat, export, file_name


def test_a_page_and_markdown_are_written_from_memory_and_from_a_file(report: NotebookNode, tmp_path: Path) -> None:
    stored = tmp_path / "run.ipynb"
    nbformat.write(report, stored)
    read = nbformat.read(stored, as_version=4)
    pages = [export(source, tmp_path / f"{n}.html", kind="html") for n, source in enumerate((read, stored))]
    assert pages[0].read_bytes() == pages[1].read_bytes()
    text = export(stored, tmp_path / "run.md", kind=ReportFormat.MD)
    assert text.read_text().startswith("# A run on")
    assert len(list((tmp_path / "run_files").iterdir())) == 3


@pytest.mark.browser
def test_a_pdf_is_written_with_its_charts(report: NotebookNode, tmp_path: Path) -> None:
    for _ in range(2):  # the second replaces a report of ours, known by its last line
        assert export(report, tmp_path / "run.pdf", kind="pdf").read_bytes().startswith(b"%PDF-")
    (tmp_path / "paper.pdf").write_bytes(b"%PDF-1.7 somebody's paper")
    with pytest.raises(ValueError, match="is not a report in PDF of the workbench"):
        export(report, tmp_path / "paper.pdf", kind="pdf")


def test_a_notebook_is_executed_when_asked(tmp_path: Path) -> None:
    stored = tmp_path / "sum.ipynb"
    nbformat.write(new_notebook(cells=[new_code_cell("40 + 2")]), stored)
    assert ">42<" not in export(stored, tmp_path / "sum.html", kind="html").read_text().replace("\n", "")
    assert ">42<" in export(stored, tmp_path / "sum.html", kind="html", execute=True).read_text().replace("\n", "")
    assert nbformat.read(stored, as_version=4).cells[0].outputs == []


@pytest.mark.parametrize(
    ("target", "sentence"),
    [("", "is a folder"), ("missing/run.html", "there is no folder"), ("file/run.html", "there is no folder")],
)
def test_a_target_that_cannot_be_is_refused_at_once(tmp_path: Path, target: str, sentence: str) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ValueError, match=sentence):
        export(tmp_path / "not read.ipynb", tmp_path / target, kind="html")


@pytest.mark.parametrize("content", ["not json", "{}", "[]", '{"nbformat": 9, "cells": []}', "\x00"])
def test_what_is_no_notebook_is_refused_in_a_sentence(tmp_path: Path, content: str) -> None:
    broken = tmp_path / "broken.ipynb"
    broken.write_text(content)
    with pytest.raises(ValueError, match=r"broken\.ipynb cannot be read as a notebook: .+ Accepted: an \.ipynb file"):
        export(broken, tmp_path / "run.html", kind="html")


def test_a_notebook_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"There is no notebook .*none\.ipynb\. Accepted"):
        export(tmp_path / "none.ipynb", tmp_path / "run.html", kind="html")


def test_an_unknown_kind_is_refused_with_the_known_ones(report: NotebookNode, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"There is no report as 'docx'\. Accepted: html, pdf, md"):
        export(report, tmp_path / "run.docx", kind="docx")


def test_without_chromium_a_pdf_is_refused_before_the_notebook_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = tmp_path / "side.ipynb"
    nbformat.write(new_notebook(cells=[new_code_cell("open('ran.txt', 'w').close()")]), stored)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ValueError, match="Chromium"):
        export(stored, tmp_path / "side.pdf", kind="pdf", execute=True)
    assert not (tmp_path / "ran.txt").exists()


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("How far? Fused & more", "how-far-fused-more.html"),
        ("</script><script>alert(1)</script>", "script-script-alert-1-script.html"),
        ("../../etc/passwd", "etc-passwd.html"),
        ("…", "report.html"),
        ("x" * 300, "x" * 80 + ".html"),
    ],
)
def test_a_file_name_is_letters_digits_and_dashes(title: str, name: str) -> None:
    assert file_name(title, "html") == name
