"""An answer of a kernel is seen soon, also where ZeroMQ's wake-up for it was lost."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Empty

import pytest
import zmq
import zmq.asyncio
from jupyter_client.session import Session
from nbformat.v4 import new_code_cell, new_notebook

from workbench.reports.export import KernelManager, ShellChannel, executed

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
