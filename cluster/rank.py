"""The rank process: started once per Dask worker, it keeps torch, the heap and compiled kernels warm between trials.

`python -m cluster.rank '{"incarnation": ..., "parent": pid, "entry": {...}}'` reads JSON lines on its standard input
and writes JSON lines on its standard output; anything else that is printed goes to standard error. It imports no Dask.

Orders                                                    answers
(started)                                                 hello, or failed when the bench cannot be imported
{"order": "rendezvous", "session", "host", "guarded"}     rendezvous with host, port, and a secret where guarded
{"order": "run", "seat": {...}, "trials": [...]}          opened, the bench's own events, done; or broken
(standard input closed: the worker is gone)               ends at once
"""

from __future__ import annotations

import importlib
import json
import os
import queue
import re
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from cluster import rendezvous
from cluster.messages import Order, SeatMessage
from cluster.process import die_with
from kernels import events
from kernels.schedule import Refusal

Emit = Callable[[events.RankEvent | events.BirthEvent], None]

_NETWORK = re.compile(
    r"reset by peer|connection (closed|refused|reset|was closed)|broken pipe|timed? ?out|gloo|nccl|socket",
    re.IGNORECASE,
)
_STICKY = re.compile("CUDA error|is not used again")
"""Texts of errors after which every later call in this process fails: torch's, whose CUDA context is unusable, and that
of a communicator between hosts that does not end."""


IDLE_LOOK_S = 0.5
"""Between two looks of an idle rank whether peers have left its gang."""


class BenchInterface(Protocol):
    """What a rank process runs: `kernels.bench.Bench`, or a fake in tests."""

    def run(self, trials: list[Any]) -> None:
        """Time the trials together with the peers; the events go to the `emit` of the constructor."""

    def wait_at_most(self, deadline_s: float) -> None:
        """Set how long one wait inside a trial may take: the bench was opened with another list's deadline."""

    @staticmethod
    def is_left() -> bool:
        """Whether peers of this gang, or of an earlier one, wait for this process to leave it."""

    @staticmethod
    def leave() -> None:
        """Leave that gang, as far as its peers do."""

    def close(self) -> None:
        """Release the heap and the process group."""


@dataclass(frozen=True, kw_only=True)
class EntryPoint:
    """What a rank process imports and runs, each as `module:name`; only rank processes import them."""

    bench: str = "kernels.bench:Bench"
    seat: str = "kernels.bench:Seat"
    trial: str = "kernels.trial:Trial"
    source: str = "kernels.hardware:source_prints"
    versions: str = "kernels.hardware:versions"
    store: str = "cluster.rank:open_store"

    def load(self) -> dict[str, Any]:
        """Import all of them."""
        return {field: _imported(place) for field, place in asdict(self).items()}

    def handshake(self) -> dict[str, Any]:
        """What a process that starts now would load: source fingerprints by backend, library versions by name."""
        return {"source_prints": _imported(self.source)(), "versions": _imported(self.versions)()}


def _imported(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


def open_store(host: str) -> tuple[Any, int]:
    """A torch TCPStore that listens on the address *host* only, and its port."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    listener = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    port: int = listener.getsockname()[1]
    store = TCPStore(host, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach())
    return store, port


@dataclass(frozen=True, slots=True)
class RendezvousPlace:
    """Rendezvous of a session's ranks: a store on loopback, behind a proxy where some ranks are on other hosts."""

    session: str
    store: Any
    port: int
    """Port of the store, on loopback."""
    secret: str | None
    proxy: rendezvous.ForwardingPort | None

    @classmethod
    def open(cls, session: str, host: str | None, store_at: Callable[[str], tuple[Any, int]]) -> RendezvousPlace:
        """Open a rendezvous. *host*: address for ranks of other hosts; None: all ranks are on this host."""
        store, port = store_at(rendezvous.LOOPBACK)
        if host is None:
            return cls(session, store, port, None, None)
        secret = rendezvous.new_secret()
        return cls(session, store, port, secret, rendezvous.open_proxy(host, port, secret))

    @property
    def number(self) -> int:
        """Port that ranks connect to."""
        return self.port if self.proxy is None else self.proxy.number


class RankServer:
    """Carries out orders one after the other; the bench stays open until the session changes."""

    def __init__(self, parts: dict[str, Any], emit: Emit) -> None:
        self.parts = parts
        """The imported `EntryPoint`."""
        self.emit = emit
        self.session = ""
        self.bench: BenchInterface | None = None
        self.stage = ""
        """Stage that the bench last reported."""
        self.store: RendezvousPlace | None = None
        """Rendezvous that this rank opened."""
        self.tunnel: rendezvous.ForwardingPort | None = None
        """Tunnel to another rank's rendezvous."""

    def obey(self, order: Order) -> None:
        """Carry out one order; whatever goes wrong becomes a `broken` event."""
        try:
            match order["order"]:
                case "rendezvous":
                    self._rendezvous(order["session"], order["host"], order["guarded"])
                case "run":
                    self._run(order["seat"], order["trials"])
        except Refusal as refusal:  # a request that cannot run here, not a defect
            self.emit(
                events.BrokenEvent(kind="broken", stage="refused", message=str(refusal), witness=False, sticky=False)
            )
        except Exception as error:
            traceback.print_exc()
            self.emit(self._broken(error))

    def _rendezvous(self, session: str, host: str, guarded: bool) -> None:
        if self.store is None or self.store.session != session:
            if self.store is not None and self.store.proxy is not None:
                self.store.proxy.close()
            self.store = RendezvousPlace.open(session, host if guarded else None, self.parts["store"])
        self.emit(
            events.RendezvousEvent(kind="rendezvous", host=host, port=self.store.number, secret=self.store.secret)
        )

    def _run(self, seat: SeatMessage, trials: list[dict[str, Any]]) -> None:
        self.stage = "launch"
        if seat["session"] != self.session or self.bench is None:
            self._open(seat)
        else:
            self.bench.wait_at_most(seat["deadline_s"])
        self.emit(events.OpenedEvent(kind="opened"))
        assert self.bench is not None
        self.bench.run([self.parts["trial"].from_json(trial) for trial in trials])
        self.emit(events.DoneEvent(kind="done"))

    def idle(self) -> None:
        """Leave a gang that peers leave, its bench closed first: the library between GPUs ends on all ranks at once."""
        bench: type[BenchInterface] = self.parts["bench"]
        try:
            if bench.is_left():
                self._close()
                bench.leave()
        except Exception:
            traceback.print_exc()
            os._exit(1)  # the worker starts another one

    def _close(self) -> None:
        if self.bench is not None:
            closing, self.bench, self.session = self.bench, None, ""
            closing.close()

    def _open(self, seat: SeatMessage) -> None:
        self._close()
        changes = {"rendezvous": self._rendezvous_address(seat), "addresses": tuple(seat["addresses"])}
        self.bench = self.parts["bench"](self.parts["seat"](**(seat | changes)), self._say)
        self.session = seat["session"]

    def _rendezvous_address(self, seat: SeatMessage) -> tuple[str, int] | None:
        """Host and port of the rendezvous for this rank; on its own loopback where a secret guards it."""
        if seat["rendezvous"] is None:
            return None
        host, port, secret = seat["rendezvous"]
        if secret is None:
            return host, port
        if self.tunnel is not None:
            self.tunnel.close()
        if self.store is not None and self.store.session == seat["session"]:
            return rendezvous.LOOPBACK, self.store.port
        self.tunnel = rendezvous.open_tunnel(host, port, secret)
        return rendezvous.LOOPBACK, self.tunnel.number

    def _say(self, event: events.TrialEvent) -> None:
        if event["kind"] == "stage":
            self.stage = event["stage"]
        self.emit(event)

    def _broken(self, error: Exception) -> events.BrokenEvent:
        """Event for *error*. `witness`: this rank only saw a peer vanish or not answer, so the cause is elsewhere."""
        text = f"{type(error).__name__}: {error}"
        sticky = bool(_STICKY.search(text))
        waited = isinstance(error, TimeoutError)
        witness = not sticky and (waited or isinstance(error, ConnectionError) or bool(_NETWORK.search(text)))
        stage = "hang" if waited else "compile" if self.stage == "compile" and not sticky else "launch"
        return events.BrokenEvent(kind="broken", stage=stage, message=text, witness=witness, sticky=sticky)


def _private_pipes() -> tuple[int, int]:
    """The pipes to the worker under new numbers; 0 becomes empty, and 1 goes where standard error goes."""
    orders, answers = os.dup(0), os.dup(1)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    os.dup2(2, 1)
    return orders, answers


def _emitter(answers: int) -> Emit:
    lock = threading.Lock()

    def emit(event: events.RankEvent | events.BirthEvent) -> None:
        line = memoryview((json.dumps(event) + "\n").encode())
        with lock:
            while line:
                line = line[os.write(answers, line) :]

    return emit


def _read_orders(orders: int, into: queue.SimpleQueue[Order]) -> None:
    with os.fdopen(orders, "rb") as lines:
        for line in lines:
            into.put(json.loads(line))
    os._exit(0)


def main() -> None:
    """Send hello once everything is imported, then obey orders until the worker is gone."""
    start = json.loads(sys.argv[1])
    # a stopped or spinning process would not notice its closed input
    die_with(start["parent"], signal.SIGKILL)
    orders, answers = _private_pipes()
    emit = _emitter(answers)
    waiting_orders: queue.SimpleQueue[Order] = queue.SimpleQueue()
    threading.Thread(target=_read_orders, args=(orders, waiting_orders), daemon=True).start()
    try:
        entry = EntryPoint(**start["entry"])
        handshake = (
            entry.handshake()
        )  # before the imports: a file that changes meanwhile must not look as if it was loaded
        parts = entry.load()
        getattr(parts["bench"], "warm", lambda: None)()
    except Exception as error:
        traceback.print_exc()
        emit(events.FailedEvent(kind="failed", message=f"{type(error).__name__}: {error}"))
        os._exit(1)
    emit(events.HelloEvent(kind="hello", incarnation=start["incarnation"], hello=handshake))
    rank = RankServer(parts, emit)
    while True:  # ends with its standard input
        try:
            order = waiting_orders.get(timeout=IDLE_LOOK_S)
        except queue.Empty:
            rank.idle()
        else:
            rank.obey(order)


if __name__ == "__main__":
    main()
