"""The front door: a notebook becomes one HTML, PDF or Markdown file, written whole or not at all."""

from __future__ import annotations

import os
import re
from enum import StrEnum
from pathlib import Path
from uuid import uuid4

import nbformat
from nbformat import NotebookNode

from workbench.reports.execute import executed
from workbench.reports.markdown import markdown
from workbench.reports.page import page
from workbench.reports.pdf import browser, pdf


class Kind(StrEnum):
    """What a report is written as."""

    HTML = "html"
    PDF = "pdf"
    MD = "md"


def export(
    source: NotebookNode | Path | str,
    target: Path | str,
    *,
    kind: Kind | str,
    execute: bool = False,
    show_code: bool = False,
    deadline_s: float = 600.0,
) -> Path:
    """Write *source*, a notebook or the path of one, to *target* and return it.

    *execute* runs it first, in its own directory, within *deadline_s*. A ValueError says what was wrong in a sentence.
    """
    wanted, target = _kind(kind), Path(target)
    _refuse_target(target)
    if wanted is Kind.PDF:
        browser()  # before minutes are spent on running the notebook
    directory = Path.cwd() if isinstance(source, NotebookNode) else Path(source).parent
    notebook = source if isinstance(source, NotebookNode) else _read(Path(source))
    if execute:
        notebook = executed(notebook, directory, deadline_s=deadline_s)
    if wanted is Kind.MD:
        text, pictures = markdown(notebook, f"{target.stem}_files", show_code=show_code)
        for name, content in pictures.items():
            _write(target.parent / name, content)
        return _write(target, text.encode())
    html = page(notebook, interactive=wanted is Kind.HTML, show_code=show_code, directory=directory)
    return _write(target, pdf(html) if wanted is Kind.PDF else html.encode())


def file_name(title: str, kind: Kind | str) -> str:
    """A file name for a report called *title*, of letters, digits and dashes whatever the title holds."""
    stem = re.sub(r"[^\w]+", "-", title, flags=re.ASCII).strip("-_").lower()[:80].rstrip("-_")
    return f"{stem or 'report'}.{_kind(kind)}"


def _kind(kind: Kind | str) -> Kind:
    if kind not in list(Kind):
        raise ValueError(f"A report as {kind!r} was asked for, which is unknown. Accepted: {', '.join(Kind)}.")
    return Kind(kind)


def _read(path: Path) -> NotebookNode:
    """The notebook at *path*, in today's format."""
    try:
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
        return notebook
    except FileNotFoundError:
        raise ValueError(
            f"A report of {path} was asked for, and there is no such file. Accepted: a notebook."
        ) from None
    except (AttributeError, KeyError, TypeError):
        raise ValueError(
            f"{path} cannot be read as a notebook: it has another form. Accepted: an .ipynb file."
        ) from None
    except (OSError, ValueError, nbformat.ValidationError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ValueError(f"{path} cannot be read as a notebook: {reason}. Accepted: an .ipynb file.") from error


def _refuse_target(target: Path) -> None:
    """Say now what would otherwise fail after the work is done."""
    if target.is_dir():
        raise ValueError(f"The report was to be written to {target}, which is a folder. Accepted: a file name in it.")
    if not target.parent.is_dir():
        raise ValueError(f"The report was to be written to {target}, but there is no folder {target.parent}.")
    if not os.access(target.parent, os.W_OK):
        raise ValueError(f"The report was to be written to {target}, but {target.parent} does not allow writing.")


def _write(target: Path, content: bytes) -> Path:
    """Put *content* at *target* in one step, so that a reader sees the old file or the new one."""
    unfinished = target.with_name(f".{uuid4().hex}.unfinished")
    try:
        target.parent.mkdir(exist_ok=True)
        unfinished.write_bytes(content)
        unfinished.replace(target)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        reason = error.strerror or type(error).__name__
        raise ValueError(
            f"The report cannot be written to {target}: {reason}. Accepted: a file that you may write."
        ) from error
    return target
