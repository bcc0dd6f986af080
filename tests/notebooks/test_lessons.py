"""Every lesson runs with nobody at the keyboard, marks its guesses as defaults, and keeps the workshop's form."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode

from tests.notebooks.test_notebooks import Executed, bundles
from tests.notebooks.test_notebooks import ran as ran
from workbench import lessons
from workbench.lessons import ledger
from workbench.reports.pictures import ALT_TEXT, CHART, PICTURE
from workbench.reports.render import page
from workbench.resources import notebooks_directory

FOLDER = notebooks_directory()
CELL_LINES_MOST = 15
NUMBERED = sorted(path.name for path in FOLDER.glob("[0-9]*.ipynb"))


def cells(name: str) -> list[NotebookNode]:
    return list(nbformat.read(FOLDER / name, as_version=4).cells)


def outputs(notebook: NotebookNode) -> list[NotebookNode]:
    return [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]


@pytest.mark.slow(keeps=1)
@pytest.mark.parametrize("entry", lessons.LESSONS, ids=lambda entry: entry.file)
def test_a_lesson_runs_from_top_to_bottom_with_default_guesses(
    entry: lessons.LessonEntry, ran: Executed, tmp_path: Path
) -> None:
    notebook = ran(entry.file)
    shown = outputs(notebook)
    assert not [output for output in shown if output.output_type == "error" or output.get("name") == "stderr"]
    questions = lessons.questions_of(entry.number)
    of_guesses = [output.data for cell in notebook.cells if "page.guess(" in cell.source
                  for output in cell.outputs if CHART in output.get("data", {})]  # fmt: skip
    assert len(of_guesses) == len(questions)
    for data in of_guesses:
        assert data[PICTURE].startswith("<svg")
        assert "default guess" in data[PICTURE]
        assert "Estimate: " in data[PICTURE], "sources in words"
    assert all(len(data[ALT_TEXT]) > 20 for data in bundles(notebook))
    kept = [json.loads(line) for line in (tmp_path / ledger.FILE).read_text().splitlines()]
    assert {(entry["lesson"], entry["question"]) for entry in kept} == {(entry.number, name) for name in questions}
    assert all(entry["default"] for entry in kept)
    assert sorted(path.name for path in tmp_path.iterdir()) == [ledger.FILE], "a lesson writes its guesses alone"
    printed = "".join(output.get("text", "") for output in shown)
    for name in lessons.exercises_of(entry.number):
        assert f"{name.replace('_', ' ')}: There is no answer yet" in printed
    assert any("<table" in output.get("data", {}).get("text/html", "") for output in shown)


@pytest.mark.slow
def test_the_report_of_the_last_lesson_has_the_guesses_in_it(ran: Executed, tmp_path: Path) -> None:
    guess = {"lesson": 1, "question": "total_time", "alias": ledger.NOBODY, "guess": 1234.0, "unit": "ms",
             "estimate": 177.0, "measured": 143.0, "source": "recorded", "default": False, "at": 1.0}  # fmt: skip
    (tmp_path / ledger.FILE).write_text(json.dumps(guess) + "\n")
    written = page(ran("09_many_hosts.ipynb"), interactive=False)
    assert "1,234 ms" in written
    assert "default guess" in written
    assert "0 of 1 numbers within a factor of 2" in written


def test_the_list_of_lessons_is_the_folder_and_minutes_make_half_a_day() -> None:
    assert [entry.file for entry in lessons.LESSONS] == NUMBERED
    assert [entry.number for entry in lessons.LESSONS] == list(range(1, 10))
    assert 180 <= sum(entry.minutes for entry in lessons.LESSONS) <= 240
    assert all((FOLDER / file).exists() for file in lessons.APPENDICES)
    appendices = {path.name for path in FOLDER.glob("appendix_*.ipynb")}
    assert appendices <= set(lessons.APPENDICES)


def test_the_place_of_a_lesson_links_to_its_neighbours() -> None:
    assert "Before:" not in lessons.place_text(1)
    assert "(02_cut_it_in_pieces.ipynb)" in lessons.place_text(1)
    assert "appendix_new_operator.ipynb" in lessons.place_text(9)
    with pytest.raises(ValueError, match="Accepted: 1 to 9"):
        lessons.lesson_entry(10)


@pytest.mark.parametrize("entry", lessons.LESSONS, ids=lambda entry: entry.file)
def test_a_lesson_has_short_cells_one_line_of_imports_and_all_its_questions_and_exercises(
    entry: lessons.LessonEntry,
) -> None:
    code = [cell.source for cell in cells(entry.file) if cell.cell_type == "code"]
    assert all(len(source.splitlines()) <= CELL_LINES_MOST for source in code)
    imports = [node for source in code for node in ast.walk(ast.parse(source))
               if isinstance(node, ast.Import | ast.ImportFrom)]  # fmt: skip
    assert len(imports) == 1
    assert imports[0].end_lineno == imports[0].lineno, "one line"
    every = "\n".join(code)
    assert f"lesson_page({entry.number})" in every
    for name in lessons.questions_of(entry.number):
        assert f'page.guess("{name}")' in every
    for name in lessons.exercises_of(entry.number):
        assert f'page.task("{name}")' in every
        assert f'page.check("{name}"' in every


@pytest.mark.parametrize("entry", lessons.LESSONS, ids=lambda entry: entry.file)
def test_a_lesson_has_its_title_a_sum_by_hand_and_its_surprise_behind_the_guess(entry: lessons.LessonEntry) -> None:
    texts = [cell.source for cell in cells(entry.file) if cell.cell_type == "markdown"]
    assert texts[0].startswith(f"# {entry.number}. {entry.title}\n")
    assert any("## A sum by hand" in text for text in texts)
    (folded,) = [text for text in texts if "<details><summary><b>After your guess:</b>" in text]
    assert "surprise" in folded.lower()
    assert folded.count("<details>") == folded.count("</details>") == 1
