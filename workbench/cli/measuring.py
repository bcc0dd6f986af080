"""Measuring for commands: a cluster is connected or started, a run is watched, Ctrl-C keeps all that was timed."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

from cluster.hosts import local_ranks, usable_cores
from kernels.events import ProgressEvent
from kernels.outcome import Failure
from kernels.trial import Trial
from workbench.cli.output import say, schedule
from workbench.machines import crowded

if TYPE_CHECKING:
    from rich.progress import ProgressColumn

    from cluster.client import Cluster
    from cluster.cpu_use import HostUse
    from cluster.seating import Ranks
    from workbench.experiment.forecast import Forecast
    from workbench.experiment.run import StoredRun

STARTING_SECONDS = 10.0
"""Expected start-up time of a command's own ranks, as two of them took on two cores."""
REPORT_S = 0.2
"""The interval of progress reports."""
WAITED_S, WAITING_S = 2.0, 60.0
"""Without a terminal, a line about a wait is printed after the first time and then at intervals of the second."""


@contextmanager
def connected(
    address: str | None, num_ranks: int, backend: str = "cpu", *, share_gpu: bool = False
) -> Iterator[Cluster]:
    """The cluster at *address*, the lab's, or one of *num_ranks* that is started for this command and ends with it.

    A cluster started for *backend* triton has a GPU per rank, or one for all with *share_gpu*; others have none.
    """
    from cluster.client import Cluster
    from cluster.launch import local
    from cluster.launch.lifetime import attach
    from cluster.scheduler_file import running

    if address is not None or running() is not None:
        with Cluster.connect() if address is None else attach(address) as cluster:
            yield cluster
        return
    ranks = "1 rank is" if num_ranks == 1 else f"{num_ranks} ranks are"
    say(f"No cluster is running: {ranks} started for this command. "
        "`workbench cluster up` keeps some warm.")  # fmt: skip
    gpus = 0 if backend == "cpu" or share_gpu else num_ranks
    with (
        local(num_ranks, gpus=gpus, share_gpu=share_gpu, published=False) as record,
        Cluster.connect(record.address) as cluster,
    ):
        yield cluster


class LazyCluster:
    """A cluster that is connected or started when the first trial is streamed: known trials need none.

    A cluster with an address is connected at once, so that a wrong address is refused before a run begins.
    """

    def __init__(self, address: str | None, num_ranks: int, backend: str = "cpu", *, share_gpu: bool = False) -> None:
        self._address, self._num_ranks, self._backend, self._share_gpu = address, num_ranks, backend, share_gpu
        self.forecast: Forecast | None = None
        """The forecast to print before the first trial."""
        self._stack = ExitStack()
        self._cluster: Cluster | None = None

    def __enter__(self) -> LazyCluster:
        if self._address is not None:
            self._connect()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def starting_s(self) -> float:
        """Seconds until its ranks have started; 0 for a running cluster."""
        from cluster.scheduler_file import running

        starts_own = self._cluster is None and self._address is None and running() is None
        return STARTING_SECONDS if starts_own else 0.0

    def _connect(self) -> Cluster:
        if self._cluster is None:
            with interrupted(signal.default_int_handler):  # nothing is measured yet: end at once
                self._cluster = self._stack.enter_context(
                    connected(self._address, self._num_ranks, self._backend, share_gpu=self._share_gpu)
                )
        return self._cluster

    def stream(self, trials: Sequence[Trial], **options: Any) -> Iterator[ProgressEvent]:
        """The events of `cluster.client.Cluster.stream`; prints the forecast before the first trials."""
        if self.forecast is not None:
            say(str(self.forecast))
            if self._backend == "cpu" and self._is_here() and (message := crowded(self._num_ranks, usable_cores())):
                say(message)
            self.forecast = None
        if self._cluster is None and (cancelled := options.get("cancelled")) is not None and cancelled.is_set():
            return
        yield from self._connect().stream(trials, **options)

    def ranks(self, world: int, backend: str, cancelled: threading.Event | None = None,
              across: bool = False) -> Ranks | None:  # fmt: skip
        """The ranks of the cluster; those of a local cluster follow from this host, whether it runs or not."""
        if self._cluster is None and self._is_here():
            return local_ranks(world, backend, share_gpu=self._share_gpu)
        return self._connect().ranks(world, backend, cancelled, across, report=say)

    def core_use(self) -> tuple[HostUse, ...]:
        """The use of each host's cores by others, which only a running cluster's workers read."""
        return self._connect().core_use()

    def _is_here(self) -> bool:
        """Whether the ranks are on this host."""
        from cluster.launch.local import Local
        from cluster.scheduler_file import running

        return self._address is None and ((record := running()) is None or record.kind == Local.name)


@contextmanager
def interrupted(by: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Handles Ctrl-C and SIGTERM with *by*."""
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


def watch(run: StoredRun) -> None:
    """Runs *run* to its end with its progress on a terminal's stderr, which is updated while ranks are silent, too."""
    from rich.console import Console
    from rich.progress import Progress

    quiet = not sys.stderr.isatty()
    with (
        stoppable(run.cancelled),
        Progress(*bar_columns(), console=Console(stderr=True), transient=True, disable=quiet) as bar,
        _reporting(run, lambda share, text: bar.update(task, completed=share, text=text), quiet),
    ):
        task = bar.add_task(run.run, total=1.0, text="")
        for news in run:
            if not quiet and isinstance(news, Failure) and news.stage not in ("refused", "cancelled"):
                bar.console.print(f"{schedule(_schedule_row(news))} {news.trial.part}: {news.message}", markup=False)


def bar_columns() -> list[ProgressColumn]:
    """The columns of the progress bar: text wraps where the terminal ends, and the time is never cut."""
    from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.table import Column

    text = TextColumn("{task.fields[text]}", table_column=Column(overflow="fold"))
    return [SpinnerColumn(), text, BarColumn(20), TimeElapsedColumn(Column(no_wrap=True, min_width=len("0:00:00")))]


@contextmanager
def _reporting(run: StoredRun, report: Callable[[float, str], object], quiet: bool) -> Iterator[None]:
    """Calls *report* every REPORT_S with the share that is done and its text, whether or not anything came.

    *quiet*: there is no bar, and only a long wait for ranks is printed.
    """
    ended = threading.Event()
    notices = WaitNotices()

    def work() -> None:
        goes_on = True
        while goes_on:
            goes_on = not ended.wait(REPORT_S)
            so_far = run.progress
            if quiet and notices.is_due(so_far.waiting.seconds):
                say(f"{so_far.waiting}"[:1].upper() + f"{so_far.waiting}."[1:])
            elif not quiet and so_far.total:
                left = [so_far.left_text()] if goes_on else []  # an ended run has no remaining time
                report(so_far.share, ", ".join([*so_far.counted(), *left]))

    thread = threading.Thread(target=work, name="workbench progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


class WaitNotices:
    """The times of lines about a wait without a terminal: after WAITED_S, then every WAITING_S."""

    def __init__(self) -> None:
        self._next_s = WAITED_S

    def is_due(self, waited_s: float) -> bool:
        """Whether to print a line now, *waited_s* into a wait; 0: no wait."""
        if waited_s < WAITED_S:
            self._next_s = WAITED_S
        if waited_s < self._next_s:
            return False
        self._next_s = waited_s + WAITING_S
        return True


def _schedule_row(failed: Failure) -> dict[str, Any]:
    return failed.trial.schedule.to_json()
