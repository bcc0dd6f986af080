"""The front door of reports: notebooks are run first, every kind is written whole, bad requests leave no file."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Empty

import nbformat
import pytest
import zmq
import zmq.asyncio
from jupyter_client.session import Session
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from workbench.reports.export import KernelManager, ReportFormat, ShellChannel, executed, export, file_name

# The front door: every kind is written whole, every bad request is one sentence that leaves no file behind.


def test_a_page_and_markdown_are_written_from_memory_and_from_a_file(report: NotebookNode, tmp_path: Path) -> None:
    stored = tmp_path / "run.ipynb"
    nbformat.write(report, stored)
    read = nbformat.read(stored, as_version=4)
    pages = [export(source, tmp_path / f"{n}.html", kind="html") for n, source in enumerate((read, stored))]
    assert pages[0].read_bytes() == pages[1].read_bytes()
    text = export(stored, tmp_path / "run.md", kind=ReportFormat.MD)
    assert text.read_text().startswith("# A run on")
    assert len(list((tmp_path / "run_files").iterdir())) == 3


@pytest.mark.slow
@pytest.mark.browser
def test_a_pdf_is_written_with_its_charts(report: NotebookNode, tmp_path: Path) -> None:
    for _ in range(2):  # the second replaces a report of ours, known by its last line
        assert export(report, tmp_path / "run.pdf", kind="pdf").read_bytes().startswith(b"%PDF-")
    (tmp_path / "paper.pdf").write_bytes(b"%PDF-1.7 somebody's paper")
    with pytest.raises(ValueError, match="is not a report in PDF of the workbench"):
        export(report, tmp_path / "paper.pdf", kind="pdf")


def test_a_notebook_is_executed_when_asked(tmp_path: Path) -> None:
    stored = tmp_path / "sum.ipynb"
    nbformat.write(new_notebook(cells=[new_code_cell("40 + 2")]), stored)
    assert ">42<" not in export(stored, tmp_path / "sum.html", kind="html").read_text().replace("\n", "")
    assert ">42<" in export(stored, tmp_path / "sum.html", kind="html", execute=True).read_text().replace("\n", "")
    assert nbformat.read(stored, as_version=4).cells[0].outputs == []


@pytest.mark.parametrize(
    ("target", "sentence"),
    [("", "is a folder"), ("missing/run.html", "there is no folder"), ("file/run.html", "there is no folder")],
)
def test_a_target_that_cannot_be_is_refused_at_once(tmp_path: Path, target: str, sentence: str) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ValueError, match=sentence):
        export(tmp_path / "not read.ipynb", tmp_path / target, kind="html")


@pytest.mark.parametrize("content", ["not json", "{}", "[]", '{"nbformat": 9, "cells": []}', "\x00"])
def test_what_is_no_notebook_is_refused_in_a_sentence(tmp_path: Path, content: str) -> None:
    broken = tmp_path / "broken.ipynb"
    broken.write_text(content)
    with pytest.raises(ValueError, match=r"broken\.ipynb cannot be read as a notebook: .+ Accepted: an \.ipynb file"):
        export(broken, tmp_path / "run.html", kind="html")


def test_a_notebook_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"There is no notebook .*none\.ipynb\. Accepted"):
        export(tmp_path / "none.ipynb", tmp_path / "run.html", kind="html")


def test_an_unknown_kind_is_refused_with_the_known_ones(report: NotebookNode, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"There is no report as 'docx'\. Accepted: html, pdf, md"):
        export(report, tmp_path / "run.docx", kind="docx")


def test_without_chromium_a_pdf_is_refused_before_the_notebook_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = tmp_path / "side.ipynb"
    nbformat.write(new_notebook(cells=[new_code_cell("open('ran.txt', 'w').close()")]), stored)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ValueError, match="Chromium"):
        export(stored, tmp_path / "side.pdf", kind="pdf", execute=True)
    assert not (tmp_path / "ran.txt").exists()


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("How far? Fused & more", "how-far-fused-more.html"),
        ("</script><script>alert(1)</script>", "script-script-alert-1-script.html"),
        ("../../etc/passwd", "etc-passwd.html"),
        ("…", "report.html"),
        ("x" * 300, "x" * 80 + ".html"),
    ],
)
def test_a_file_name_is_letters_digits_and_dashes(title: str, name: str) -> None:
    assert file_name(title, "html") == name


# Running a notebook first: in its own directory, within a deadline, with the cell named that failed.


def test_a_notebook_runs_in_its_own_directory(tmp_path: Path) -> None:
    (tmp_path / "beside.txt").write_text("found")
    original = new_notebook(cells=[new_code_cell("open('beside.txt').read()")])
    ran = executed(original, tmp_path, deadline_s=200)
    assert ran.cells[0].outputs[0].data["text/plain"] == "'found'"
    assert original.cells[0].outputs == []


def test_a_cell_that_fails_is_named_with_its_error(tmp_path: Path) -> None:
    cells = [new_markdown_cell("# x"), new_code_cell("1"), new_code_cell("raise RuntimeError('no ranks')")]
    with pytest.raises(ValueError, match=r"Cell 3 of the notebook's 3 raised RuntimeError: no ranks.*Accepted"):
        executed(new_notebook(cells=cells), tmp_path, deadline_s=200)


@pytest.mark.slow
def test_the_deadline_ends_a_cell(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Cell 1 of the notebook's 1 had not finished after 10 s"):
        executed(new_notebook(cells=[new_code_cell("import time; time.sleep(600)")]), tmp_path, deadline_s=10)


def test_a_kernel_that_is_not_installed_is_named(tmp_path: Path) -> None:
    notebook = new_notebook(metadata={"kernelspec": {"name": "julia-9", "display_name": "Julia"}})
    with pytest.raises(ValueError, match="julia-9"):
        executed(notebook, tmp_path, deadline_s=200)


# An answer of a kernel is seen soon, also where ZeroMQ's wake-up for it was lost.

Both = tuple[zmq.Socket[bytes], zmq.asyncio.Socket, Session]


@pytest.fixture
def ends() -> Iterator[Both]:
    """The kernel's end, ours, and how both sign."""
    with zmq.asyncio.Context() as context:
        theirs, ours = zmq.Socket(context, zmq.PAIR), context.socket(zmq.PAIR)
        address = "inproc://answers"
        theirs.bind(address)
        ours.connect(address)
        yield theirs, ours, Session(key=b"secret")
        theirs.close(0)
        ours.close(0)


def test_an_answer_whose_wake_up_was_lost_is_seen_within_two_seconds(ends: Both) -> None:
    theirs, ours, session = ends

    async def heard() -> tuple[str, float]:
        channel = ShellChannel(ours, session)
        waiting = asyncio.ensure_future(channel.get_msg(timeout=60.0))
        await asyncio.sleep(0.05)
        asyncio.get_running_loop().remove_reader(ours.FD)  # nothing wakes it any more
        session.send(theirs, "execute_reply", {"status": "ok"})
        begun = time.monotonic()
        answer = await waiting
        return str(answer["msg_type"]), time.monotonic() - begun

    word, seconds = asyncio.run(heard())
    assert word == "execute_reply"
    assert seconds < 2.0


def test_silence_ends_with_its_limit(ends: Both) -> None:
    _, ours, session = ends
    begun = time.monotonic()
    with pytest.raises(Empty):
        asyncio.run(ShellChannel(ours, session).get_msg(timeout=1.2))
    assert 1.1 < time.monotonic() - begun < 3.0


def test_kernels_that_are_executed_are_listened_to_so() -> None:
    assert KernelManager().client().shell_channel_class is ShellChannel


@pytest.mark.skipif(os.name != "posix", reason="Unix sockets")
def test_kernels_that_are_executed_need_no_port(tmp_path: Path) -> None:
    """A port is free when it is chosen, and may be taken when the kernel binds it."""
    asks = "from ipykernel.kernelapp import IPKernelApp as it; print(it.instance().transport, it.instance().ip)"
    ran = executed(new_notebook(cells=[new_code_cell(asks)]), tmp_path, deadline_s=200)
    [output] = ran.cells[0].outputs
    transport, sockets = output.text.split()
    assert transport == "ipc"
    assert len(sockets) < 90
    assert not Path(sockets).parent.exists()
