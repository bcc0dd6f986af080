"""The run of a command: illegal requests are refused before it begins, and its rows are kept however it ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from signal import default_int_handler
from typing import TYPE_CHECKING, Any

from kernels.files import Failed
from kernels.machine import BACKENDS
from kernels.schedule import Refusal
from workbench.cli import exit_status
from workbench.cli.exit_status import Interrupted
from workbench.experiment.retries import RetryReport

# The place of a command's ranks: their machine is the default, and a machine that is not theirs is refused.

if TYPE_CHECKING:
    from workbench.experiment.question import Request
    from workbench.machines.matching import RankSite


def is_elsewhere(address: str | None) -> bool:
    """Whether the ranks of the command are not those of a local cluster."""
    from cluster.launch.local import Local
    from cluster.scheduler_file import running

    return address is not None or ((cluster := running()) is not None and cluster.kind != Local.name)


def placed(request: Request, address: str | None) -> Request:
    """*request* on the machine of the command's ranks; Refusal where it names one of other hardware."""
    from workbench import machines
    from workbench.machines import matching

    named = None if request.machine is None else machines.machine(request.machine)
    backend = request.backend or (named.backend if named is not None else "cpu")
    if backend not in BACKENDS:
        return request
    with _place(address, backend) as place_of_ranks:
        if place_of_ranks is None:
            return request
        if named is None:
            return replace(request, machine=matching.saved_machine(place_of_ranks).name)
        if (message := matching.refusal(named, place_of_ranks.hardware, place_of_ranks.count)) is not None:
            raise Refusal(message)
    return request


def estimated(request: Request, address: str | None) -> Request:
    """*request* on the machine of the ranks at *address*; unchanged without an address.

    Refusal where it names a machine of other hardware, or where no ranks there have its backend.
    """
    if address is None:
        return request
    of_ranks = placed(request, address)
    if of_ranks.machine is None:
        raise Refusal(
            f"The cluster {address} has 0 ranks of backend {request.backend or 'cpu'} that report what they are, so "
            "no machine to estimate for. Accepted: --machine, another --backend, or a cluster whose ranks have started."
        )
    return of_ranks


@contextmanager
def _place(address: str | None, backend: str) -> Iterator[RankSite | None]:
    from cluster.client import Cluster
    from cluster.launch.lifetime import attach
    from workbench.machines import matching

    if not is_elsewhere(address):
        yield matching.local_site(backend)
        return
    with Cluster.connect() if address is None else attach(address) as cluster:
        yield matching.cluster_site(cluster, backend)


# The run of a command.

if TYPE_CHECKING:
    from kernels.machine import Machine
    from workbench.experiment.experiment import Experiment
    from workbench.experiment.space import Points
    from workbench.results.store import Store


@dataclass(frozen=True, slots=True)
class RunResult:
    """The rows and the end of a run."""

    rows: list[dict[str, Any]]
    run: str
    stopped: bool
    error: ValueError | None
    """The error that ended it early, unless a person stopped it."""
    again: RetryReport = field(default_factory=RetryReport)
    """The trials that ran again."""
    not_begun: int = 0
    """Number of requested schedules without any outcome."""
    ended_early: str = ""
    """Why the search ended before all of its schedules, as a sentence."""

    @property
    def status(self) -> int:
        """The exit status of the command; failed baselines and parts count as well."""
        if self.stopped:
            return exit_status.STOPPED
        if self.error is not None:
            return exit_status.of_error(self.error) or exit_status.FAILED
        return exit_status.of_rows([*self.requested(), *self._failed_others()])

    def about(self) -> str | None:
        """The reason of the status; None if it is 0."""
        if self.stopped:
            return str(self.reason())
        if self.error is not None:
            return str(self.error)
        return exit_status.status_reason(self.requested(), self._failed_others())

    def _failed_others(self) -> list[dict[str, Any]]:
        """The failed rows of baselines and parts."""
        return [row for row in self.rows if not row["requested"] and exit_status.has_failed(row)]

    def requested(self) -> list[dict[str, Any]]:
        """The rows of the requested schedules, without their estimates."""
        return [row for row in self.rows if row["requested"] and row["source"] != "estimated"]

    def failed(self) -> list[dict[str, Any]]:
        """The requested rows without a time, and the failed rows of baselines and parts."""
        return [row for row in self.rows
                if exit_status.has_failed(row) or (row["requested"] and row["outcome"] == "failure")]  # fmt: skip

    def reason(self) -> Exception:
        """The reason why no requested schedule has a row."""
        return self.error or Interrupted("Stopped before anything was measured.")


def measured(experiment: Experiment, machine: Machine, address: str | None, path: Path | None,
             wait_s: float) -> RunResult:  # fmt: skip
    """Runs *experiment* and returns all its rows, however the run ends; *wait_s* is the longest wait for ranks.

    Rows have two more keys: `requested` (of a baseline, which is in every block, only the row of the best schedule's
    block), and `known_since`, the start of the run that measured them earlier.
    """
    from workbench.cli.measuring import LazyCluster, interrupted, watch
    from workbench.experiment.forecast import forecast
    from workbench.experiment.run import Run
    from workbench.experiment.sources import FromCluster

    world = max(problem.world for problem in experiment.problems)
    shares = experiment.fabric.shares_gpu
    _refuse_unmeasurable(machine, world, address, share_gpu=shares)
    _refuse_illegal(experiment, machine)
    with opened(path) as store:
        run: Run | None = None
        was_stopped, error = False, None
        try:
            with (
                interrupted(default_int_handler),
                LazyCluster(address, world, machine.backend, share_gpu=shares) as cluster,
            ):
                of_cluster = partial(cluster.ranks, across=experiment.fabric.across)
                cluster.forecast = forecast(experiment, machine, store, ranks=of_cluster)
                home = FromCluster(cluster, starting_s=cluster.starting_s, wait_s=wait_s, shared=not experiment.fresh)
                run = Run(experiment, store, home, machine)
                watch(run)
        except (KeyboardInterrupt, ValueError, OSError) as ended:
            if run is None:
                raise
            was_stopped = isinstance(ended, KeyboardInterrupt)
            error = None if was_stopped else _with_message(ended)
        rows = store.rows(run.run)
        newest = {(row["key"], row["source"] == "estimated"): row["id"] for row in rows}
        newest |= {(key, False): number for key, number in _shown_rows(rows).items()}
        marked = [{**row, "requested": row["key"] in run.requested and row["id"] in newest.values(),
                   "known_since": store.started_at(row["origin"] or "")} for row in rows]  # fmt: skip
        progress, stopped = run.progress, was_stopped or run.cancelled.is_set()
        not_begun = max(0, progress.total - progress.done)
        return RunResult(marked, run.run, stopped, error, progress.again, not_begun, progress.ended_early)


def _with_message(error: BaseException) -> ValueError:
    return error if isinstance(error, ValueError) else Failed(exit_status.message(error))


def _shown_rows(rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """The number of the row that a table shows, by key: of a baseline, that in the best schedule's block."""
    from workbench.naming import TIMED
    from workbench.results.comparison import leading
    from workbench.results.rows import by_problem

    timed = [row for same in by_problem(rows).values() for row in leading(same) if row["source"] in TIMED]
    return {row["key"]: row["id"] for row in reversed(timed)}


def _refuse_unmeasurable(machine: Machine, world: int, address: str | None, *, share_gpu: bool) -> None:
    """Raises ValueError before *world* ranks are started that could not measure on *machine*."""
    if machine.backend == "cpu":
        return
    from workbench import machines

    if (message := machines.unmeasurable(machine, world, is_elsewhere(address), share_gpu=share_gpu)) is not None:
        raise ValueError(message)


def _refuse_illegal(experiment: Experiment, machine: Machine) -> None:
    """Raises ValueError before a cluster is started, where no schedule is legal."""
    first: Points | None = None
    for problem in experiment.problems:  # the first is usually enough
        points = experiment.points(problem, machine, measured=True)
        if points.schedules:
            return
        first = first or points
    if first is not None:
        raise ValueError((*first.refused, *first.left_out)[0][1])


def opened(path: Path | None) -> Store:
    """The store at *path*, or the person's own; ValueError where the folder of *path* does not exist."""
    from workbench.results.store import Store

    if path is not None and not path.parent.exists():
        raise ValueError(f"The store cannot be written to {path}: there is no folder {path.parent}. Accepted: a folder "
                         "that exists.")  # fmt: skip

    return Store(path)
