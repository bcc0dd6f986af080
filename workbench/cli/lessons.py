"""Commands about the lessons: their list, and all of them as pages."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbench.cli import options
from workbench.cli.options import Json
from workbench.cli.output import TableColumn, say, say_progress, show_rows, show_table, show_text

lessons = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="List the lessons, or write them as pages.")


@lessons.command("list")
def list_lessons(json: Json = False) -> None:
    """List the nine lessons of the workshop; with --json their ideas, questions and exercises, too."""
    from workbench.lessons import LESSONS, exercises_of, questions_of

    rows = [
        {"lesson": entry.number, "title": entry.title, "minutes": entry.minutes, "idea": entry.idea, "file": entry.file,
         "questions": list(questions_of(entry.number)), "exercises": list(exercises_of(entry.number))}
        for entry in LESSONS
    ]  # fmt: skip
    if json:
        show_rows(rows, {"count": len(rows)})
        return
    show_table([
        TableColumn("", [str(row["lesson"]) for row in rows], "number"),
        TableColumn("title", [row["title"] for row in rows], "name"),
        TableColumn("minutes", [str(row["minutes"]) for row in rows], "number"),
        TableColumn("notebook", [Path(entry.file).stem for entry in LESSONS]),
    ])  # fmt: skip
    show_text("`workbench lab` opens your copies of these notebooks. docs/workshop.md is for whoever teaches them.")


@lessons.command("export")
def export_lessons(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder, or one of earlier pages.")],
    force: options.Force = False,
) -> None:
    """Write all lessons as read-only pages, which need no Python and no network; takes about two minutes."""
    from workbench.reports.lesson_pages import write_pages

    pages = 0
    for written in write_pages(folder, force=force, begins=lambda title: say_progress(f"Executing {title}.")):
        pages += 1
        say(f"{written.path}: {written.title}")
    show_text(f"{pages} pages are in {folder}. Open {folder / 'index.html'} in a browser, or put the folder on any "
              "server.")  # fmt: skip
