"""Run a notebook in its own directory before it is reported, within a deadline."""

from __future__ import annotations

import time
from copy import deepcopy
from pathlib import Path

from jupyter_client.kernelspec import NoSuchKernel
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError
from nbformat import NotebookNode

from workbench.reports.listening import KernelManager

_ACCEPTED = "Accepted: a notebook that runs here, or its stored outputs, without executing it."


def executed(notebook: NotebookNode, directory: Path, *, deadline_s: float) -> NotebookNode:
    """A copy of *notebook* with fresh outputs. A cell that fails, or the deadline, is a ValueError with its number."""
    copy, begun = deepcopy(notebook), [0]
    ends = time.monotonic() + deadline_s

    def begins(cell: NotebookNode, cell_index: int) -> None:
        begun.append(cell_index + 1)
        if time.monotonic() > ends:
            raise TimeoutError

    kernel = copy.metadata.get("kernelspec", {}).get("name", "python3")
    client = NotebookClient(
        copy,
        resources={"metadata": {"path": str(directory)}},
        kernel_name=kernel,
        kernel_manager_class=KernelManager,
        timeout_func=lambda cell: max(1, round(ends - time.monotonic())),
        startup_timeout=max(1, round(deadline_s)),
        shutdown_kernel="immediate",
        on_cell_start=begins,
    )
    try:
        client.execute()
    except TimeoutError as error:  # a cell's own is a kind of it
        raise ValueError(_sentence(begun, copy, f"had not finished after {deadline_s:g} s")) from error
    except CellExecutionError as error:
        raise ValueError(_sentence(begun, copy, f"raised {error.ename}: {error.evalue}")) from error
    except (DeadKernelError, NoSuchKernel, RuntimeError) as error:
        raise ValueError(_sentence(begun, copy, f"has no living kernel: {error}")) from error
    return copy


def _sentence(begun: list[int], notebook: NotebookNode, what: str) -> str:
    """Names the cell that had begun last; before the first one it is the notebook itself."""
    place = f"Cell {begun[-1]} of the notebook's {len(notebook.cells)}" if begun[-1] else "The notebook"
    return f"{place} {what}. There is no report. {_ACCEPTED}"
