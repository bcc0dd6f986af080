"""Exports a notebook as one HTML, PDF or Markdown file, written whole or not at all."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from queue import Empty
from typing import Any

import nbformat
from jupyter_client.asynchronous.client import AsyncKernelClient
from jupyter_client.channels import AsyncZMQSocketChannel
from jupyter_client.kernelspec import NoSuchKernel
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError
from nbformat import NotebookNode
from traitlets import CaselessStrEnum, Type

from kernels import files
from workbench.reports.render import browser, markdown, page, pdf
from workbench.results import files as targets
from workbench.results.files import PICTURE, REPORTS, FileTarget

# A kernel that is reached through its own socket files, and whose answers are read within a second.

LOOKS_EACH_S = 1.0
"""The longest time that an answer stays unread; each wait ends with another look."""


class ShellChannel(AsyncZMQSocketChannel):
    """A channel whose waits are split into short ones."""

    async def get_msg(  # type: ignore[override]  # as its base, which is asynchronous where the base's is not
        self, timeout: float | None = None
    ) -> dict[str, Any]:
        """The next message; raises Empty after *timeout* seconds, or waits without limit if it is None."""
        ends = None if timeout is None else time.monotonic() + timeout
        while True:
            remaining = LOOKS_EACH_S if ends is None else max(0.0, ends - time.monotonic())
            try:
                return await super().get_msg(timeout=min(remaining, LOOKS_EACH_S))
            except Empty:
                if ends is not None and time.monotonic() >= ends:
                    raise


class KernelClient(AsyncKernelClient):
    """Jupyter's client with a `ShellChannel`."""

    shell_channel_class = Type(ShellChannel)


class KernelManager(AsyncKernelManager):
    """Starts kernels with their own socket files and a `KernelClient`."""

    client_factory = Type(klass=KernelClient)
    transport = CaselessStrEnum(["tcp", "ipc"], default_value="ipc" if os.name == "posix" else "tcp")

    def _ip_default(self) -> str:
        """Prefix of the sockets' paths, which is short since a Unix socket's path has at most 107 characters."""
        if self.transport != "ipc":
            return str(super()._ip_default())
        return str(Path(tempfile.mkdtemp(prefix="kernel-")) / "to")

    def cleanup_ipc_files(self) -> None:
        """Removes the sockets and their folder."""
        super().cleanup_ipc_files()
        if self.transport == "ipc":
            with contextlib.suppress(OSError):
                Path(self.ip).parent.rmdir()


# Executes a notebook in its own directory, within a deadline.

_ACCEPTED = "Accepted: a notebook that runs here, or its stored outputs, without executing it."


def executed(notebook: NotebookNode, directory: Path, *, deadline_s: float) -> NotebookNode:
    """A copy of *notebook* with new outputs. ValueError with the cell's number if it fails or the deadline passes."""
    copy, started = deepcopy(notebook), [0]
    ends = time.monotonic() + deadline_s

    def begins(cell: NotebookNode, cell_index: int) -> None:
        started.append(cell_index + 1)
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
        _execute(client)
    except TimeoutError as error:  # includes a cell's own timeout
        raise ValueError(_message(started, copy, f"had not finished after {deadline_s:g} s")) from error
    except CellExecutionError as error:
        raise ValueError(_message(started, copy, f"raised {error.ename}: {error.evalue}")) from error
    except (DeadKernelError, NoSuchKernel, RuntimeError) as error:
        raise ValueError(_message(started, copy, f"has no living kernel: {error}")) from error
    return copy


def _execute(client: NotebookClient) -> None:
    """Executes the notebook of *client*; KeyboardInterrupt where Ctrl-C ended it."""
    try:
        client.execute()
    except (Exception, asyncio.CancelledError):
        # nbclient takes Ctrl-C for itself and ends the kernel; what that raises is of the lost kernel, or an assertion
        if getattr(client, "_async_cleanup_kernel_future", None) is not None:
            raise KeyboardInterrupt from None
        raise


def _message(started: list[int], notebook: NotebookNode, what: str) -> str:
    """The error message, which names the cell that started last, or the notebook before the first one."""
    place = f"Cell {started[-1]} of the notebook's {len(notebook.cells)}" if started[-1] else "The notebook"
    return f"{place} {what}. There is no report. {_ACCEPTED}"


# The export itself.

KIND = files.TextKind("notebook", "a notebook", "an .ipynb file", most_bytes=2**29)


class ReportFormat(StrEnum):
    """File format of a report."""

    HTML = "html"
    PDF = "pdf"
    MD = "md"


def export(
    source: NotebookNode | Path | str,
    target: FileTarget | Path | str,
    *,
    kind: ReportFormat | str,
    execute: bool = False,
    show_code: bool = False,
    deadline_s: float = 600.0,
) -> Path:
    """Write *source*, a notebook or the path of one, to *target* and return it.

    *execute* runs it first, in its own directory, within *deadline_s*. ValueError if that fails. *source* is never
    replaced, and a file that is no report only if the FileTarget allows it.
    """
    wanted = _kind(kind)
    target = targets.file_target(target, *([] if isinstance(source, NotebookNode) else [Path(source)]))
    target.refuse(REPORTS[wanted])
    if wanted is ReportFormat.PDF:
        browser()  # before minutes are spent on running the notebook
    directory = Path.cwd() if isinstance(source, NotebookNode) else Path(source).parent
    notebook = source if isinstance(source, NotebookNode) else read(Path(source))
    if execute:
        notebook = executed(notebook, directory, deadline_s=deadline_s)
    if wanted is ReportFormat.MD:
        return _with_pictures(target, *markdown(notebook, f"{target.path.stem}_files", show_code=show_code))
    html = page(notebook, interactive=wanted is ReportFormat.HTML, show_code=show_code, directory=directory)
    return target.write(REPORTS[wanted], pdf(html) if wanted is ReportFormat.PDF else html.encode())


def file_name(title: str, kind: ReportFormat | str) -> str:
    """A file name for a report called *title*, of letters, digits and dashes whatever the title holds."""
    stem = re.sub(r"[^\w]+", "-", title, flags=re.ASCII).strip("-_").lower()[:80].rstrip("-_")
    return f"{stem or 'report'}.{_kind(kind)}"


def _kind(kind: ReportFormat | str) -> ReportFormat:
    if kind not in list(ReportFormat):
        raise ValueError(f"There is no report as {kind!r}. Accepted: {', '.join(ReportFormat)}.")
    return ReportFormat(kind)


def read(path: Path) -> NotebookNode:
    """The notebook at *path*, converted to the current format; ValueError if it cannot be read."""
    content = files.text(path, KIND)
    try:
        files.parsed(content)
        notebook = nbformat.reads(content, as_version=4)
        nbformat.validate(notebook)
        return notebook
    except (ValueError, nbformat.ValidationError) as error:
        raise KIND.unreadable(path, (str(error).strip() or "it has another form").splitlines()[0]) from error
    except Exception:  # nbformat may raise anything for files of another form, above all of old versions
        raise KIND.unreadable(path, "it has another form") from None


def _with_pictures(target: FileTarget, text: str, pictures: Mapping[str, bytes]) -> Path:
    """Writes Markdown and the folder of its pictures."""
    parts = [(replace(target, path=target.path.parent / name), PICTURE, content) for name, content in pictures.items()]
    folders = {picture.path.parent for picture, _, _ in parts}
    new_folders = [folder for folder in folders if not folder.exists()]
    try:
        with targets.readable_errors(target.path, PICTURE.noun):
            for folder in folders:
                folder.mkdir(exist_ok=True)
        return targets.write([(target, REPORTS["md"], text.encode()), *parts])
    except ValueError:
        for folder in new_folders:
            with suppress(OSError):
                folder.rmdir()
        raise
