"""The keeper of a worker's rank process: requests a GPU, starts the process, passes orders and events, restarts it."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import psutil
from distributed import Worker, WorkerPlugin, get_worker

from cluster import hosts
from cluster.cpu_use import GangOnHost, IdleUse, TimedUse
from cluster.feed import Outbox
from cluster.messages import Order
from cluster.rank import EntryPoint
from kernels import events
from kernels.events import BirthEvent, GoneEvent, RankEvent

NAME = "workbench-rank"
KILL, DEALT = "workbench-kill", "workbench-dealt"
"""Operations of messages from the scheduler to the worker."""
CORE_USE = "workbench-core-use"
"""Name of the worker's report on its host's cores among Dask's metrics, which travel with heartbeats."""
SEES = "workbench-sees"
"""Operation of the message with which a keeper requests one of the GPUs that its worker sees."""
DEALT_S = 30.0
"""The broker answers within this time, s, or the worker is in trouble and requests a GPU again."""
STARTED_S = 120.0
"""A rank process without a first message within this time, s, is killed; torch on a cold network disk takes long."""
_QUICK_DEATH_S = 5.0
_LONGEST_PAUSE_S = 10.0
_LOOK_S = 1.0
"""How often a quiet rank process is checked, s."""


class RankProcess:
    """One incarnation of the rank process, and a thread that reads its events."""

    def __init__(
        self,
        entry: EntryPoint,
        report: Callable[[RankProcess, BirthEvent | GoneEvent], None],
        environment: Mapping[str, str],
    ) -> None:
        self.incarnation = uuid.uuid4().hex[:12]
        self.events: queue.SimpleQueue[RankEvent] = queue.SimpleQueue()
        """Its events except hello and failed; the last one is `gone`."""
        self.started_at = time.monotonic()
        self.ready = False
        self.failed = False
        self.killed = False
        self._report = report
        """Called in the reading thread with (self, event) for hello, failed and gone."""
        start = {"incarnation": self.incarnation, "parent": os.getpid(), "entry": asdict(entry)}
        # it imports from the same folders as its worker, however that was started
        path = os.pathsep.join(folder or str(Path.cwd()) for folder in sys.path)
        self.popen = subprocess.Popen(
            [sys.executable, "-m", "cluster.rank", json.dumps(start)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            env=os.environ | {"PYTHONPATH": path, **environment},
        )
        threading.Thread(target=self._read, name=f"rank-{self.incarnation}", daemon=True).start()

    def order(self, order: Order) -> None:
        """Write an order; if the process has ended, a `gone` event follows."""
        assert self.popen.stdin is not None
        with contextlib.suppress(OSError, ValueError):  # broken pipe, or closed by the reading thread
            self.popen.stdin.write(json.dumps(order).encode() + b"\n")
            self.popen.stdin.flush()

    def stopped(self) -> bool:
        """Whether it is stopped (SIGSTOP, a debugger)."""
        try:
            return str(psutil.Process(self.popen.pid).status()) in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
        except psutil.NoSuchProcess:
            return False

    def kill(self) -> None:
        """Kill it and every process that it started."""
        if self.popen.poll() is None:
            self.killed = True
            self._kill_group()

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGKILL)

    def _read(self) -> None:
        assert self.popen.stdout is not None
        assert self.popen.stdin is not None
        with self.popen.stdout as lines:
            for line in lines:
                event: RankEvent | BirthEvent = json.loads(line)
                if event["kind"] == "hello" or event["kind"] == "failed":
                    self._report(self, event)
                else:
                    self.events.put(event)
        # its pipe is closed, so it has ended or is about to
        try:
            code = self.popen.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.kill()
            code = self.popen.wait(timeout=5)
        self._kill_group()  # what it started and left behind
        with contextlib.suppress(OSError):
            self.popen.stdin.close()
        why = f"the rank process {_ending(code)}"
        self.events.put(events.GoneEvent(kind="gone", message=why))
        self._report(self, events.GoneEvent(kind="gone", message=why))


class Keeper(WorkerPlugin):
    """Worker plugin that owns the rank process. Everything but `perform` runs in the worker's event loop."""

    name = NAME
    idempotent = True

    def __init__(self, entry: EntryPoint) -> None:
        self.entry = entry

    def setup(self, worker: Worker) -> None:
        """Request a GPU; the first rank process starts when the broker has answered."""
        self.worker = worker
        self.closing = False
        self.quick_deaths = 0
        self.timed: TimedUse | None = None
        self.dealt = False
        self.gpu: hosts.Gpu | None = None
        """GPU of this worker's rank processes, once `dealt`; they also see the GPUs that it is linked to."""
        self.process: RankProcess | None = None
        self.idle_use = IdleUse()
        worker.stream_handlers[KILL] = self.kill
        worker.stream_handlers[DEALT] = self.begin
        worker.metrics[CORE_USE] = self.core_use
        self._request_gpu()

    def teardown(self, worker: Worker) -> None:
        """End the rank process with its worker."""
        self.closing = True
        if self.process is not None:
            self.process.kill()
            self.process.popen.wait(timeout=5)

    def kill(self, incarnation: str) -> None:
        """Kill this incarnation, if it is still the current one; the next one starts when its pipe closes."""
        if self.process is not None and self.process.incarnation == incarnation:
            self.process.kill()

    def begin(self, gpu: Mapping[str, Any] | None) -> None:
        """Start the first rank process with the GPU from the broker, or none; it imports torch in the background."""
        if not self.dealt and not self.closing:
            self.dealt, self.gpu = True, None if gpu is None else hosts.Gpu(**gpu)
            self._start()

    def core_use(self, worker: Worker) -> dict[str, Any]:
        """The use of this host's cores since the last heartbeats: the worker and its rank process are counted apart."""
        pids = [os.getpid(), *([self.process.popen.pid] if self.process is not None else [])]
        processes = []
        for pid in pids:
            with contextlib.suppress(psutil.NoSuchProcess):
                processes.append(psutil.Process(pid))
        return self.idle_use.report(processes)

    def perform(self, order: Order, rank: int, address: tuple[str, str], incarnation: str) -> None:
        """Pass the order to the process, and its events to the client, until it is done. Runs in the task's thread."""
        process = self.process
        outbox = Outbox(self.worker.log_event, address[0], address[1], rank)
        if process is None or process.incarnation != incarnation:
            outbox.add(events.GoneEvent(kind="gone", message="the rank process was replaced before its order came"))
            outbox.flush()
            return
        self.timed = use = _timed_use(order, self.timed)
        process.order(order)
        stopped = False
        while True:
            try:
                event = process.events.get(timeout=outbox.patience(_LOOK_S))
            except queue.Empty:
                outbox.flush_if_due()
                if stopped != (stopped := process.stopped()):
                    outbox.add(events.StateEvent(kind="state", stopped=stopped))
                continue
            if use is not None:
                use.hear(event)
            outbox.add(event)
            if event["kind"] in events.ENDS:
                outbox.flush()
                return

    def _request_gpu(self) -> None:
        gpus = [asdict(gpu) for gpu in hosts.visible_gpus()]
        self.worker.batched_send({"op": SEES, "gpus": gpus, "ranks_on_gpu": self.ranks_on_gpu})
        self.worker.loop.call_later(DEALT_S, self._request_gpu_again)

    def _request_gpu_again(self) -> None:
        if not self.dealt and not self.closing:
            message = f"it requested a GPU, and the broker did not answer within {DEALT_S:g} s; it requests one again"
            self._send("failed", "", message)
            self._request_gpu()

    @property
    def ranks_on_gpu(self) -> int:
        """How many workers may have its GPU: as many as its share of the Dask resource fits into one."""
        share = self.worker.state.total_resources.get(hosts.RESOURCE) or 1.0
        return max(1, round(1 / share))

    def _start(self) -> None:
        self.device = hosts.worker_device(self.gpu, self.ranks_on_gpu)
        peers = () if self.device.ranks_on_gpu > 1 else self.device.links or ()
        # in the event loop's thread: the kernel kills the child when the thread that started it ends
        try:
            process = RankProcess(self.entry, self._on_event, hosts.environment(self.gpu, peers))
        except OSError as error:  # no memory, no more processes
            self._send("failed", "", f"{type(error).__name__}: {error}")
            self._start_later(quick=True)
            return
        self.process = process
        self.worker.loop.call_later(STARTED_S, lambda: None if process.ready else process.kill())

    def _start_unless_closing(self) -> None:
        if not self.closing:
            self._start()

    def _on_event(self, process: RankProcess, event: BirthEvent | GoneEvent) -> None:
        if not self.closing:
            self.worker.loop.add_callback(self._changed, process, event)

    def _changed(self, process: RankProcess, event: BirthEvent | GoneEvent) -> None:
        if self.closing or process is not self.process:
            return
        match event["kind"]:
            case "hello":
                process.ready = True
                self.quick_deaths = 0
                device = {"device": self.device.to_json()}
                self._send("ready", process.incarnation, hello={**event["hello"], **device})
            case "failed":
                process.failed = True
                self._send("failed", process.incarnation, event["message"])
            case "gone":
                if process.ready or process.failed:
                    self._send("gone", process.incarnation, event["message"])
                else:
                    self._send("failed", process.incarnation, f"{event['message']} before its first message")
                self._start_again(process)

    def _start_again(self, process: RankProcess) -> None:
        """Start the next process: at once after a kill, a handshake or a long life; after early deaths ever later."""
        self._start_later(quick=not process.killed and time.monotonic() - process.started_at < _QUICK_DEATH_S)

    def _start_later(self, quick: bool) -> None:
        self.quick_deaths = self.quick_deaths + 1 if quick else 0
        pause = min(_LONGEST_PAUSE_S, 2.0 ** (self.quick_deaths - 2)) if self.quick_deaths > 1 else 0.0
        self.worker.loop.call_later(pause, self._start_unless_closing)

    def _send(self, change: str, incarnation: str, text: str = "", hello: dict[str, Any] | None = None) -> None:
        backend = hosts.fastest_backend(self.gpu)
        self.worker.batched_send({"op": NAME, "change": change, "incarnation": incarnation, "text": text,
                                  "hello": hello, "backend": backend})  # fmt: skip


def _timed_use(order: Order, earlier: TimedUse | None) -> TimedUse | None:
    """What reads the use of this host's cores during *order*; None where another rank's worker does."""
    gang = order.get("reads_use") if order["order"] == "run" else None
    return TimedUse(GangOnHost(frozenset(gang["incarnations"]), tuple(gang["client"])), earlier) if gang else None


def perform(order: Order, rank: int, address: tuple[str, str], incarnation: str) -> None:
    """Run one order in the rank process, as a Dask task; *address* is the client's topic and the stream."""
    cast(Keeper, get_worker().plugins[NAME]).perform(order, rank, address, incarnation)


def would_load(worker: Worker) -> dict[str, Any]:
    """Handshake of a rank process that would start now in *worker*, with all files read again; runs in the worker."""
    return cast(Keeper, worker.plugins[NAME]).entry.handshake()


def _ending(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
