"""How the command line measures: a cluster is found or made, a run is watched, Ctrl-C keeps all that was timed."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

from cluster.probe import usable_cores
from kernels.outcome import Failure, Sample
from kernels.trial import Trial
from kernels.units import about
from workbench.cli_show import say, schedule
from workbench.outlook import Outlook, crowded

if TYPE_CHECKING:
    from cluster.dispatch import Cluster
    from workbench.sitting import Sitting

TELL_S = 0.2
"""Progress is told so far apart."""
CREDIBLE = 0.1
"""The share of the samples from which on their own pace says how long the others take."""


@contextmanager
def connected(address: str | None, num_ranks: int, backend: str = "cpu") -> Iterator[Cluster]:
    """The cluster at *address*, the lab's, or one of *num_ranks* that is made for this command and ends with it.

    Made for *backend*: each rank has a GPU, or none has.
    """
    from cluster.dispatch import Cluster
    from cluster.launch import attach, local, running

    if address is not None or running() is not None:
        with Cluster.connect() if address is None else attach(address) as found:
            yield found
        return
    say(f"No cluster is running: {num_ranks} ranks are started for this command. "
        "`workbench cluster up` keeps some warm.")  # fmt: skip
    gpus = 0 if backend == "cpu" else num_ranks
    with local(num_ranks, gpus=gpus, published=False) as record, Cluster.connect(record.address) as found:
        yield found


class OnDemand:
    """A cluster that is looked for when the first trial is streamed: what is known needs none.

    One that was asked for by address is connected at once, so that a wrong address is told before a run begins.
    """

    def __init__(
        self, address: str | None, num_ranks: int, outlook: Outlook | None = None, backend: str = "cpu"
    ) -> None:
        self._address, self._num_ranks, self._outlook, self._backend = address, num_ranks, outlook, backend
        self._stack = ExitStack()
        self._cluster: Cluster | None = None

    def __enter__(self) -> OnDemand:
        if self._address is not None:
            self._connect()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _connect(self) -> Cluster:
        if self._cluster is None:
            with interrupted(signal.default_int_handler):  # nothing is measured yet: end at once
                self._cluster = self._stack.enter_context(connected(self._address, self._num_ranks, self._backend))
        return self._cluster

    def stream(self, trials: Sequence[Trial], **ask: Any) -> Iterator[Mapping[str, Any]]:
        """As `cluster.dispatch.Cluster` does; before the first, a person is told what is to come."""
        if self._outlook is not None:
            say(str(self._outlook))
            if self._backend == "cpu" and self._is_here() and (sentence := crowded(self._num_ranks, usable_cores())):
                say(sentence)
            self._outlook = None
        if self._cluster is None and (cancelled := ask.get("cancelled")) is not None and cancelled.is_set():
            return
        yield from self._connect().stream(trials, **ask)

    def _is_here(self) -> bool:
        """Whether the ranks are of this host."""
        from cluster.launch import running
        from cluster.launch.local import Local

        return self._address is None and ((found := running()) is None or found.kind == Local.name)


@contextmanager
def interrupted(by: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Ctrl-C, and being told to end by another process, do *by*."""
    before = {number: signal.signal(number, by) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def stoppable(cancelled: threading.Event) -> Iterator[None]:
    """The first Ctrl-C sets *cancelled*, the second ends everything."""

    def stop(number: int, frame: FrameType | None) -> None:
        if cancelled.is_set():
            signal.default_int_handler(number, frame)
        cancelled.set()
        say("Stopping; what was measured is kept. Ctrl-C again ends at once.")

    with interrupted(stop):
        yield


def watch(sitting: Sitting, outlook: Outlook) -> None:
    """Takes *sitting* to its end, its progress on a terminal's stderr: by samples, because schedules take turns."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.fields[done]}"), BarColumn(20), TimeElapsedColumn(),
               TextColumn("{task.fields[left]}"))  # fmt: skip
    quiet = not sys.stderr.isatty()
    pace = Pace(outlook)
    with (
        stoppable(sitting.cancelled),
        Progress(*columns, console=Console(stderr=True), transient=True, disable=quiet) as bar,
    ):
        task = bar.add_task(sitting.run, total=max(1, outlook.samples), done="", left=pace.left())
        for found in sitting:
            if isinstance(found, Sample):
                pace.count()
            elif not quiet and isinstance(found, Failure) and found.stage != "cancelled":
                bar.console.print(f"{schedule(_words(found))} {found.trial.part}: {found.message}", markup=False)
            if pace.is_due():
                so_far = sitting.progress
                words = f"{so_far.done} of {so_far.total} schedules"
                bar.update(task, completed=min(pace.samples, outlook.samples), done=words, left=pace.left())


class Pace:
    """How fast samples come, and how long they will go on."""

    def __init__(self, outlook: Outlook) -> None:
        self._outlook = outlook
        self.samples = 0
        self._first_at = self._said_at = 0.0

    def count(self) -> None:
        """One more."""
        self._first_at = self._first_at or time.monotonic()
        self.samples += 1

    def is_due(self) -> bool:
        """Whether it is time to tell again."""
        now = time.monotonic()
        if now - self._said_at < TELL_S:
            return False
        self._said_at = now
        return True

    def left(self) -> str:
        """As estimated at first, then as the samples come."""
        share = self.samples / max(1, self._outlook.samples)
        if share < CREDIBLE:
            return f"{about(self._outlook.seconds)} left"
        since_s = time.monotonic() - self._first_at
        return f"{about(since_s * (1 - share) / share)} left" if share < 1 else ""


def _words(failed: Failure) -> dict[str, Any]:
    return failed.trial.schedule.to_json()
