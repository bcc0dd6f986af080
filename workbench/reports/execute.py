"""Run a notebook in its own directory before it is reported, within a deadline."""

from __future__ import annotations

import time
from copy import deepcopy
from pathlib import Path

from jupyter_client.kernelspec import NoSuchKernel
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode


def executed(notebook: NotebookNode, directory: Path, *, deadline_s: float) -> NotebookNode:
    """A copy of *notebook* with fresh outputs. A cell that fails, or the deadline, is a ValueError with its number."""
    copy = deepcopy(notebook)
    ends = time.monotonic() + deadline_s
    client = NotebookClient(
        copy,
        resources={"metadata": {"path": str(directory)}},
        kernel_name=copy.metadata.get("kernelspec", {}).get("name", "python3"),
        timeout_func=lambda cell: max(1, ends - time.monotonic()),
        startup_timeout=min(60, max(1, int(deadline_s))),
        shutdown_kernel="immediate",
    )
    try:
        client.execute()
    except CellTimeoutError as error:
        raise ValueError(_sentence(copy, f"was still running at the deadline of {deadline_s:g} s")) from error
    except CellExecutionError as error:
        raise ValueError(_sentence(copy, f"raised {error.ename}: {error.evalue}")) from error
    except (DeadKernelError, NoSuchKernel, RuntimeError) as error:
        raise ValueError(
            f"The notebook could not be executed: {error}. Accepted: a kernel that starts here."
        ) from error
    return copy


def _sentence(notebook: NotebookNode, what: str) -> str:
    """Which cell it was: the last code cell that had begun."""
    begun = [
        index
        for index, cell in enumerate(notebook.cells, 1)
        if cell.cell_type == "code" and cell.get("metadata", {}).get("execution", {}).get("iopub.status.busy")
    ]
    place = f"Cell {begun[-1]} of {len(notebook.cells)}" if begun else "A cell"
    return f"{place} {what}, so there is no report. Accepted: a notebook that runs, or its stored outputs (no execute)."
