"""Lessons are pages for people without Python: answers are folded, links lead to pages, no guess is kept."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import nbformat
import pytest
from bs4 import BeautifulSoup
from nbclient.exceptions import DeadKernelError

from workbench import lessons, resources
from workbench.lessons import LessonEntry
from workbench.reports import export, lesson_pages
from workbench.reports.lesson_pages import as_page, write_pages
from workbench.reports.render import page


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 3, 5])
def test_a_lesson_reads_well_without_python(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "runs_directory", lambda: tmp_path / "runs")
    entry = lessons.lesson_entry(number)
    soup = BeautifulSoup(page(as_page(entry)), "html.parser")
    text = soup.get_text()
    questions, exercises = lessons.questions_of(number), lessons.exercises_of(number)
    folded = [details.find("summary").get_text() for details in soup.find_all("details")]
    assert folded.count("Guess first, then open: the answer") == len(questions)
    assert sum(summary.startswith("Hint and solution") for summary in folded) == len(exercises)
    for question in questions.values():
        assert question.text in text
    for exercise in exercises.values():
        assert exercise.hints[0].replace("`", "") in text
    outside = BeautifulSoup(str(soup), "html.parser")
    for details in outside.find_all("details"):
        details.decompose()
    locked = [cell.source for cell in nbformat.read(resources.notebooks_directory() / entry.file, as_version=4).cells
              if "page.locked(" in cell.source]  # fmt: skip
    assert folded.count("Guess first, then open: what the times are") == len(locked) > 0
    assert len(soup.select("details figure")) >= sum(".chart(" in source for source in locked)
    if number == 1:
        assert "177 ms" in text
    assert "177 ms" not in outside.get_text(), "nor is open what is read from it"
    assert "surprise" not in outside.get_text().lower(), "the surprise is folded"
    assert all(image["src"].startswith("data:image/svg+xml") for image in soup.select("details img"))
    assert "There is no answer yet" not in text
    assert "page.guess" not in text, "no code that a reader cannot run"
    links = [link["href"] for link in soup.find_all("a")]
    assert not [link for link in links if ".ipynb" in link]
    pages = {Path(each.file).with_suffix(".html").name for each in lessons.LESSONS}
    assert set(links) <= pages | {link for link in links if link.startswith("http")}
    assert not (tmp_path / "runs").exists(), "guesses by default are not kept"


def test_all_pages_and_their_list_are_written_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lesson_pages, "as_page", stub)
    target = tmp_path / "pages"
    begun: list[str] = []
    written = list(write_pages(target, begins=begun.append))
    assert begun == [entry.title for entry in lessons.LESSONS], "a terminal shows which one is executed"
    assert [each.path.name for each in written] == [
        *(Path(entry.file).with_suffix(".html").name for entry in lessons.LESSONS), "index.html"]  # fmt: skip
    index = (target / "index.html").read_text()
    assert all(f'href="{each.path.name}"' in index for each in written[:-1])
    assert len(re.findall("<tr", index)) == 10
    assert len(list(write_pages(target))) == 10, "earlier pages are replaced"


@pytest.mark.parametrize("raised", [AssertionError(), DeadKernelError("Kernel died"), asyncio.CancelledError()])
def test_ctrl_c_while_a_notebook_is_executed_is_no_traceback(raised: BaseException) -> None:
    """nbclient handles it and ends the kernel; what it raised then was printed in forty lines."""

    class Client:
        def execute(self) -> None:
            self._async_cleanup_kernel_future = object()
            raise raised

    with pytest.raises(KeyboardInterrupt):
        export._execute(Client())  # type: ignore[arg-type]


def stub(entry: LessonEntry) -> object:
    """A lesson of one line, since executing all nine takes more than a minute."""
    import nbformat

    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(f"# {entry.title}")])


def test_a_page_never_replaces_another_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lesson_pages, "as_page", stub)
    (tmp_path / "index.html").write_text("my own page")
    with pytest.raises(ValueError, match="Accepted:"):
        list(write_pages(tmp_path))
    assert (tmp_path / "index.html").read_text() == "my own page"
    assert [path.name for path in tmp_path.iterdir()] == ["index.html"]
    assert len(list(write_pages(tmp_path, force=True))) == 10


def test_a_file_is_no_folder_for_pages(tmp_path: Path) -> None:
    (tmp_path / "pages").write_text("a file")
    with pytest.raises(ValueError, match="is no folder"):
        list(write_pages(tmp_path / "pages"))
