"""A fault happens to whoever lives then, and is lifted when its time has passed."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable
from functools import partial

import psutil

from tests.chaos import left
from tests.chaos.disk import Full
from tests.chaos.keeping import Kept
from tests.chaos.script import Act, Fault, Whom
from tests.chaos.sweeping import Client, Clients

SIGNALS = {
    Act.KILL: signal.SIGKILL,
    Act.STOP: signal.SIGSTOP,
    Act.INTERRUPT: signal.SIGINT,
    Act.INTERRUPT_TWICE: signal.SIGINT,
    Act.TERMINATE: signal.SIGTERM,
}


class Striker:
    """Does to the world what the script says."""

    def __init__(self, kept: Kept, clients: Clients, disk: Full, memory: Full | None) -> None:
        self._kept, self._clients = kept, clients
        self._disk, self._memory = disk, memory
        self._lifts: list[tuple[float, Callable[[], object]]] = []

    @property
    def lasts(self) -> bool:
        """Something is still stopped or full."""
        return bool(self._lifts)

    def strike(self, fault: Fault) -> str | None:
        """Let it happen; who was struck, or None where nobody was there."""
        match fault.whom:
            case Whom.CLIENT:
                return self._client(fault)
            case Whom.DISK:
                return self._fill(self._disk, fault)
            case Whom.MEMORY:
                return self._fill(self._memory, fault)
            case Whom.CLUSTER:
                return self._restart()
        living = _living(fault.whom)
        if not living:
            return None
        victim = living[-1] if fault.whom is Whom.NEWEST else living[fault.which % len(living)]
        with contextlib.suppress(psutil.NoSuchProcess):
            victim.send_signal(SIGNALS[fault.act])
        if fault.act is Act.STOP:
            self._later(fault, partial(_go_on, victim))
        return f"process {victim.pid}"

    def tick(self) -> None:
        """Lift what has lasted long enough."""
        now = time.monotonic()
        due = [lift for at, lift in self._lifts if at <= now]
        self._lifts = [(at, lift) for at, lift in self._lifts if at > now]
        for lift in due:
            lift()

    def lift_all(self) -> None:
        """Whatever is still stopped goes on, whatever is full has room."""
        for _, lift in self._lifts:
            lift()
        self._lifts.clear()

    def _later(self, fault: Fault, lift: Callable[[], object]) -> None:
        self._lifts.append((time.monotonic() + fault.lasts_s, lift))

    def _client(self, fault: Fault) -> str | None:
        running = sorted(self._clients.running.values(), key=lambda client: client.began_at)
        if not running:
            return None
        client = running[fault.which % len(running)]
        client.send(SIGNALS[fault.act], fault.name)
        if fault.act is Act.INTERRUPT_TWICE:
            client.send(signal.SIGINT, fault.name)
        if fault.act is Act.STOP:
            self._later(fault, partial(_continue, client, fault))
        return client.output.name

    def _fill(self, room: Full | None, fault: Fault) -> str | None:
        if room is None:
            return None
        room.fill(self._clients.pids())
        for client in self._clients.running.values():
            client.faults.append(fault.name)
        self._later(fault, lambda: room.lift(self._clients.pids()))
        return str(room.folder)

    def _restart(self) -> str | None:
        if self._kept.address is None:
            return None
        self._kept.restart()
        return "the cluster"


def _living(whom: Whom) -> list[psutil.Process]:
    match whom:
        case Whom.RANK | Whom.NEWEST:
            return left.ranks()
        case Whom.WORKER:
            return left.workers()
    return left.keepers()


def _go_on(process: psutil.Process) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):  # it compares the start, too
        process.resume()


def _continue(client: Client, fault: Fault) -> None:
    if client.process.poll() is None:
        client.send(signal.SIGCONT, fault.name)
