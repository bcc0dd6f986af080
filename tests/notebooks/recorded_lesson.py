"""Records what the appendix about operators shows without Triton: `python -m tests.notebooks.recorded_lesson`."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from kernels.hardware import versions
from workbench.reports.export import executed
from workbench.resources import data_directory, notebooks_directory

LESSON = "appendix_new_operator.ipynb"
FILE = data_directory() / "probes" / "lesson_6_interpreted.json"
LAST = """
import json
Path({path!r}).write_text(json.dumps({{
    "came": came, "summed": summed, "failure": failure, "turns": turns,
    "errors": [[variant, str(error)] for variant, error in rows],
    "signals": [[name, each.values, each.late] for name, each in page.kit.shown().items()],
}}))
"""
"""The cell that writes what the lesson has shown; errors are texts, since JSON has no infinity."""


def that_writes_its_rows(path: Path) -> NotebookNode:
    """The lesson with one more cell, which writes its rows into a file at *path*."""
    notebook = nbformat.read(notebooks_directory() / LESSON, as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell(LAST.format(path=str(path))))
    return notebook


def rows_now(folder: Path) -> dict[str, Any]:
    """The rows of the lesson as its kernels, interpreted here, show them now; *folder* is for its file."""
    written = folder / "rows.json"
    executed(that_writes_its_rows(written), notebooks_directory(), deadline_s=600.0)
    return dict(json.loads(written.read_text()))


def main() -> None:
    """Writes FILE."""
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        rows = rows_now(Path(folder))
    made = {"date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), "versions": dict(versions()),
            "how": "kernels interpreted on a CPU, one process per rank"}  # fmt: skip
    FILE.write_text(json.dumps({"provenance": made, **rows}) + "\n")


if __name__ == "__main__":
    main()
