"""How the command line measures: a cluster is found or made, a run is watched, Ctrl-C keeps all that was timed."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

from kernels.outcome import Failure, Sample
from kernels.trial import Trial
from workbench.cli_show import say, schedule

if TYPE_CHECKING:
    from cluster.dispatch import Cluster
    from workbench.sitting import Sitting


@contextmanager
def connected(address: str | None, num_ranks: int) -> Iterator[Cluster]:
    """The cluster at *address*, the lab's, or one of *num_ranks* that is made for this command and ends with it."""
    from cluster.dispatch import Cluster
    from cluster.launch import attach, local, running

    if address is not None or running() is not None:
        with Cluster.connect() if address is None else attach(address) as found:
            yield found
        return
    say(f"No cluster is running: {num_ranks} ranks are started for this command. "
        "`workbench cluster up` keeps some warm.")  # fmt: skip
    with local(num_ranks, published=False) as record, Cluster.connect(record.address) as found:
        yield found


class OnDemand:
    """A cluster that is looked for when the first trial is streamed: what is known needs none.

    One that was asked for by address is connected at once, so that a wrong address is told before a run begins.
    """

    def __init__(self, address: str | None, num_ranks: int) -> None:
        self._address, self._num_ranks = address, num_ranks
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
            before = signal.signal(signal.SIGINT, signal.default_int_handler)  # nothing is measured yet: end at once
            try:
                self._cluster = self._stack.enter_context(connected(self._address, self._num_ranks))
            finally:
                signal.signal(signal.SIGINT, before)
        return self._cluster

    def stream(self, trials: Sequence[Trial], **ask: Any) -> Iterator[Mapping[str, Any]]:
        """As `cluster.dispatch.Cluster` does."""
        yield from self._connect().stream(trials, **ask)


@contextmanager
def stoppable(cancelled: threading.Event) -> Iterator[None]:
    """The first Ctrl-C sets *cancelled*, the second ends everything."""

    def stop(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, before)
        cancelled.set()
        say("Stopping; what was measured is kept. Ctrl-C again ends at once.")

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def watch(sitting: Sitting) -> None:
    """Takes *sitting* to its end, with its progress on a terminal's stderr."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"),
               TimeRemainingColumn())  # fmt: skip
    console = Console(stderr=True)
    quiet = not sys.stderr.isatty()
    with stoppable(sitting.cancelled), Progress(*columns, console=console, transient=True, disable=quiet) as bar:
        task = bar.add_task(sitting.run, total=None, rate="")
        for found in sitting:
            if isinstance(found, Sample):
                continue
            so_far = sitting.progress
            bar.update(task, total=so_far.total, completed=so_far.done, rate=f"{so_far.per_second:.2g}/s")
            if not quiet and isinstance(found, Failure) and found.stage != "cancelled":
                bar.console.print(f"{schedule(_words(found))} {found.trial.part}: {found.message}", markup=False)


def _words(failed: Failure) -> dict[str, Any]:
    return failed.trial.schedule.to_json()
