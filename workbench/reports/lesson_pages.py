"""The lessons as pages for people without Python: answers and solutions are folded, and links lead to other pages."""

from __future__ import annotations

import base64
import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from workbench import lessons, resources
from workbench.lessons import LessonEntry
from workbench.reports.export import executed
from workbench.reports.pictures import PICTURE
from workbench.reports.render import FOLDED, page
from workbench.results.files import REPORTS, FileTarget

DEADLINE_S = 240.0
INDEX = "index.html"
_GUESS = re.compile(r"^page\.guess\(\"(\w+)\"\)", re.MULTILINE)
_CHECK = re.compile(r"^page\.check\(\"(\w+)\"", re.MULTILINE)
_LOCKED = re.compile(r"^page\.locked\(", re.MULTILINE)
_LINK = re.compile(r"\[([^]]*)\]\(([\w/]+)\.ipynb\)")
_NOT_KEPT = """import pathlib
from workbench import resources
folder = pathlib.Path({folder!r})
resources.runs_directory = lambda: folder"""
"""The first cell of a lesson that nobody takes: its default guesses are not written among this person's."""


@dataclass(frozen=True, slots=True)
class WrittenPage:
    """A page that was written."""

    title: str
    path: Path


def write_pages(
    folder: Path, *, force: bool = False, begins: Callable[[str], None] = lambda title: None
) -> Iterator[WrittenPage]:
    """Executes all lessons and writes each as a page into *folder*, then a list of them; yields each written page.

    *begins* is called with the title of each lesson before it is executed, which takes many seconds.
    A file of that name which is no report is replaced with *force* only. ValueError: a cell failed, or *folder* cannot
    be written.
    """
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is no folder, so that no page can be written into it. Accepted: a new folder, or "
                         "one of earlier pages.")  # fmt: skip
    targets = [FileTarget(folder / name, (), force) for name in (INDEX, *map(_page_name, lessons.LESSONS))]
    folder.mkdir(parents=True, exist_ok=True)
    for target in targets:
        target.refuse(REPORTS["html"])
    for entry, target in zip(lessons.LESSONS, targets[1:], strict=True):
        begins(entry.title)
        yield WrittenPage(entry.title, target.write(REPORTS["html"], page(as_page(entry)).encode()))
    yield WrittenPage("All lessons", targets[0].write(REPORTS["html"], page(_index(), interactive=False).encode()))


def _page_name(entry: LessonEntry) -> str:
    return f"{Path(entry.file).stem}.html"


def as_page(entry: LessonEntry) -> NotebookNode:
    """A lesson, executed with default guesses, for a reader: what a guess reveals, what shows it, and what a
    task wants are folded."""
    path = resources.notebooks_directory() / entry.file
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory(prefix="overlap-workbench-") as folder:
        notebook.cells.insert(0, nbformat.v4.new_code_cell(_NOT_KEPT.format(folder=folder)))
        done = executed(notebook, path.parent, deadline_s=DEADLINE_S)
    done.cells = [each for cell in done.cells[1:] for each in _for_readers(entry.number, cell)]
    for shown, reading in pairwise(done.cells):
        if FOLDED in shown.metadata and reading.source.startswith("**Reading it.**"):
            about, *others = reading.source.partition("\n\n## ")
            folded = f"<details><summary>Reading it, after your guess</summary>\n\n{about}\n\n</details>"
            reading.source = "".join([folded, *others])
    for cell in done.cells:
        for text in _texts(cell):
            text["markdown"] = _LINK.sub(_to_page, text["markdown"])
            text["write"](text["markdown"])
    return done


def _texts(cell: NotebookNode) -> Iterator[dict]:  # type: ignore[type-arg]
    """The Markdown of *cell* and of its outputs, each with a function that replaces it."""
    if cell.cell_type == "markdown":
        yield {"markdown": cell.source, "write": lambda text: cell.update(source=text)}
    for output in cell.get("outputs", ()):
        if "text/markdown" in output.get("data", {}):
            yield {"markdown": output.data["text/markdown"],
                   "write": lambda text, output=output: output.data.update({"text/markdown": text})}  # fmt: skip


def _to_page(link: re.Match[str]) -> str:
    """A link to another lesson's page; of a notebook that has none only its words."""
    has_page = any(entry.file == f"{link[2]}.ipynb" for entry in lessons.LESSONS)
    return f"[{link[1]}]({link[2]}.html)" if has_page else link[1]


def _for_readers(number: int, cell: NotebookNode) -> Iterator[NotebookNode]:
    """*cell*, or what stands for it on a page."""
    source = cell.source if cell.cell_type == "code" else ""
    if name := _GUESS.search(source):
        question = lessons.questions_of(number)[name[1]]
        offered = f" ({', '.join(question.choices)})" if question.choices else f" (in {question.unit})"
        drawn = next(output.data[PICTURE] for output in cell.outputs if PICTURE in output.get("data", {}))
        picture = base64.b64encode(drawn.encode()).decode()
        words = question.verdict(question.default, question.answer()).partition(". ")[2].partition(" Your guess is")[0]
        described = escape(words.removesuffix(" That is right.").removesuffix(" That is not it."))
        shown = f'<img alt="{described}" src="data:image/svg+xml;base64,{picture}">'
        yield nbformat.v4.new_markdown_cell(
            f"**Your guess.** {question.text}{offered} Write it down first.\n\n"
            f"<details><summary>Guess first, then open: the answer</summary>\n\n{shown}\n\n{described}\n\n</details>"
        )
    elif names := _CHECK.findall(source):
        for each in names:
            exercise = lessons.exercises_of(number)[each]
            yield nbformat.v4.new_markdown_cell(
                f"<details><summary>Hint and solution: {each.replace('_', ' ')}</summary>\n\n"
                f"*Hint:* {exercise.hints[0]}\n\n*Solution:* {exercise.solution}\n\n</details>"
            )
    else:
        if _LOCKED.search(source):
            cell.metadata[FOLDED] = "Guess first, then open: what the times are"
        yield cell


def _index() -> NotebookNode:
    """The list of all lessons, with their minutes and ideas."""
    rows = [f"| {entry.number} | [{entry.title}]({_page_name(entry)}) | {entry.minutes} | {entry.idea} |"
            for entry in lessons.LESSONS]  # fmt: skip
    text = (
        "# Overlap Workbench: nine lessons\n\nEach lesson asks for a guess, shows a measurement, and has an exercise. "
        "Write each guess down before you open its answer. On these pages nothing runs, and nothing is needed but a "
        "browser.\n\n| | lesson | minutes | idea |\n|---|---|---:|---|\n" + "\n".join(rows)
    )
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(text)])
