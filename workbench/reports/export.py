"""The front door: a notebook becomes one HTML, PDF or Markdown file, written whole or not at all."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from enum import StrEnum
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from kernels import texts
from workbench import targets
from workbench.file_kinds import PICTURE, REPORTS
from workbench.reports.execute import executed
from workbench.reports.markdown import markdown
from workbench.reports.page import page
from workbench.reports.pdf import browser, pdf
from workbench.targets import Target

KIND = texts.TextKind("notebook", "a notebook", "an .ipynb file", most_bytes=2**29)


class Kind(StrEnum):
    """What a report is written as."""

    HTML = "html"
    PDF = "pdf"
    MD = "md"


def export(
    source: NotebookNode | Path | str,
    target: Target | Path | str,
    *,
    kind: Kind | str,
    execute: bool = False,
    show_code: bool = False,
    deadline_s: float = 600.0,
) -> Path:
    """Write *source*, a notebook or the path of one, to *target* and return it.

    *execute* runs it first, in its own directory, within *deadline_s*. A ValueError says what was wrong in a sentence;
    a file that is no such report is replaced by a Target that says so only, and *source* never.
    """
    wanted, target = _kind(kind), targets.of(target, *([] if isinstance(source, NotebookNode) else [Path(source)]))
    target.refuse(REPORTS[wanted])
    if wanted is Kind.PDF:
        browser()  # before minutes are spent on running the notebook
    directory = Path.cwd() if isinstance(source, NotebookNode) else Path(source).parent
    notebook = source if isinstance(source, NotebookNode) else _read(Path(source))
    if execute:
        notebook = executed(notebook, directory, deadline_s=deadline_s)
    if wanted is Kind.MD:
        return _with_pictures(target, *markdown(notebook, f"{target.path.stem}_files", show_code=show_code))
    html = page(notebook, interactive=wanted is Kind.HTML, show_code=show_code, directory=directory)
    return target.write(REPORTS[wanted], pdf(html) if wanted is Kind.PDF else html.encode())


def file_name(title: str, kind: Kind | str) -> str:
    """A file name for a report called *title*, of letters, digits and dashes whatever the title holds."""
    stem = re.sub(r"[^\w]+", "-", title, flags=re.ASCII).strip("-_").lower()[:80].rstrip("-_")
    return f"{stem or 'report'}.{_kind(kind)}"


def _kind(kind: Kind | str) -> Kind:
    if kind not in list(Kind):
        raise ValueError(f"There is no report as {kind!r}. Accepted: {', '.join(Kind)}.")
    return Kind(kind)


def _read(path: Path) -> NotebookNode:
    """The notebook at *path*, in today's format."""
    content = texts.text(path, KIND)
    try:
        texts.parsed(content)
        notebook = nbformat.reads(content, as_version=4)
        nbformat.validate(notebook)
        return notebook
    except (ValueError, nbformat.ValidationError) as error:
        raise KIND.unreadable(path, (str(error).strip() or "it has another form").splitlines()[0]) from error
    except Exception:  # what nbformat makes of other forms, above all of those of old versions, can be anything
        raise KIND.unreadable(path, "it has another form") from None


def _with_pictures(target: Target, text: str, pictures: Mapping[str, bytes]) -> Path:
    """Markdown and the folder of its pictures."""
    parts = [(replace(target, path=target.path.parent / name), PICTURE, content) for name, content in pictures.items()]
    folders = {picture.path.parent for picture, _, _ in parts}
    made = [folder for folder in folders if not folder.exists()]
    try:
        with targets.sentences(target.path, PICTURE.noun):
            for folder in folders:
                folder.mkdir(exist_ok=True)
        return targets.write([(target, REPORTS["md"], text.encode()), *parts])
    except ValueError:
        for folder in made:
            with suppress(OSError):
                folder.rmdir()
        raise
