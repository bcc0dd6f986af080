"""docs/cli.md has what --help says of every command: `python -m tests.house.cli_reference` writes it there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

from workbench.cli.app import app

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
COLUMNS = 100
"""A fixed width, so that the text depends on no terminal."""
PLACE = re.compile(r"(<!-- commands -->\n)(.*?)(<!-- /commands -->)", re.DOTALL)
TYPES = re.compile(r"<[^<>\n]*(?:\n[^<>\n]*)?>|\b(?:TEXT|INTEGER|FLOAT|PATH)(?: RANGE)?\b|[\[\]{}.|]")
"""How versions of typer write types and what may be left out: no two versions agree."""


def reference() -> str:
    """A heading and the help of every command, in the order of `workbench --help`."""
    parts = [f"### {name}\n\n```\n{text}\n```\n" for name, text in helps(typer.main.get_group(app), "workbench")]
    return "\n" + "\n".join(parts) + "\n"


def helps(command: Any, name: str, parent: Any = None) -> Iterator[tuple[str, str]]:
    """The full name and the help of *command*, then of those below it."""
    context = command.context_class(
        command, info_name=name, parent=parent, terminal_width=COLUMNS, max_content_width=COLUMNS
    )
    yield context.command_path, "\n".join(line.rstrip() for line in command.get_help(context).splitlines())
    for below, each in getattr(command, "commands", {}).items():
        yield from helps(each, below, context)


def words(text: str) -> list[str]:
    """What *text* says, however it is wrapped and whichever version of typer names the types."""
    return TYPES.sub(" ", text).lower().split()


def stated() -> str:
    """What docs/cli.md says of the commands."""
    place = PLACE.search(PAGE.read_text())
    assert place, "docs/cli.md has no place for the commands. Accepted: <!-- commands --> in it."
    return place[2]


def main() -> None:
    """Write the page anew."""
    PAGE.write_text(PLACE.sub(lambda place: place[1] + reference() + place[3], PAGE.read_text()))


if __name__ == "__main__":
    main()
