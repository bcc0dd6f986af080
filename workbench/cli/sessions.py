"""A command's sitting: what cannot be is refused before it begins; what was measured is told, however it ended."""

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

# Where a command's ranks are: their machine is the default, and one that is not theirs is refused at once.

if TYPE_CHECKING:
    from workbench.experiment.question import Request
    from workbench.machines.matching import RankSite


def is_elsewhere(address: str | None) -> bool:
    """Whether the ranks that would be asked are not of the local cluster."""
    from cluster.launch.local import Local
    from cluster.scheduler_file import running

    return address is not None or ((cluster := running()) is not None and cluster.kind != Local.name)


def placed(request: Request, address: str | None) -> Request:
    """*request* for the machine of the ranks that would be asked; Refusal where it states one of other hardware."""
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
        if (sentence := matching.refusal(named, place_of_ranks.hardware, place_of_ranks.count)) is not None:
            raise Refusal(sentence)
    return request


def estimated(request: Request, address: str | None) -> Request:
    """*request* for the machine of the ranks at *address*, without naming it; as it is where there is no address.

    Refusal where it states a machine of other hardware, or where no ranks there are of its backend.
    """
    if address is None:
        return request
    of_ranks = placed(request, address)
    if of_ranks.machine is None:
        raise Refusal(
            f"The cluster {address} has 0 ranks of backend {request.backend or 'cpu'} that say what they are, and so "
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


# A command's sitting: what cannot be is refused before it begins; what was measured is told, however it ended.

if TYPE_CHECKING:
    from kernels.machine import Machine
    from workbench.experiment.experiment import Experiment
    from workbench.experiment.run import Run
    from workbench.results.store import Store


@dataclass(frozen=True, slots=True)
class RunResult:
    """What came of a run, however it ended."""

    rows: list[dict[str, Any]]
    run: str
    stopped: bool
    error: ValueError | None
    """What ended it before its end, if no person did."""
    again: RetryReport = field(default_factory=RetryReport)
    """What ran again."""
    not_begun: int = 0
    """Schedules that were asked for, and that nothing is said of."""

    @property
    def status(self) -> int:
        """Of the command: what stands beside the schedules, such as their baselines, counts as well."""
        if self.stopped:
            return exit_status.STOPPED
        if self.error is not None:
            return exit_status.of_error(self.error) or exit_status.FAILED
        return exit_status.of_rows([*self.asked(), *self._beside()])

    def about(self) -> str | None:
        """What the status is about where it is not 0, in one sentence."""
        if self.stopped:
            return str(self.reason())
        if self.error is not None:
            return str(self.error)
        return exit_status.about(self.asked(), self._beside())

    def _beside(self) -> list[dict[str, Any]]:
        """What failed of what was timed beside the schedules."""
        return [row for row in self.rows if not row["asked"] and exit_status.has_failed(row)]

    def asked(self) -> list[dict[str, Any]]:
        """What was asked for, without the estimates beside it."""
        return [row for row in self.rows if row["asked"] and row["source"] != "estimated"]

    def failed(self) -> list[dict[str, Any]]:
        """Of what was asked, all that has no time; of what stands beside it, what failed."""
        return [row for row in self.rows
                if exit_status.has_failed(row) or (row["asked"] and row["outcome"] == "failure")]  # fmt: skip

    def reason(self) -> Exception:
        """Why nothing that was asked for came of it."""
        return self.error or Interrupted("Stopped before anything was measured.")


def measured(experiment: Experiment, machine: Machine, address: str | None, path: Path | None,
             wait_s: float) -> RunResult:  # fmt: skip
    """All rows of a run of *experiment*: whatever ends it once it has begun, what was measured is told.
    *wait_s*: how long it waits for ranks.

    Rows are marked with whether they were `asked` for (of the baseline, which stands in every block, the best one is),
    and with `known_since`, when they were measured earlier.
    """
    from workbench.cli.measuring import LazyCluster, interrupted, watch
    from workbench.experiment.forecast import forecast
    from workbench.experiment.run import run as begin
    from workbench.experiment.sources import FromCluster

    world = max(problem.world for problem in experiment.problems)
    _refuse_unmeasurable(machine, world, address)
    _refuse_illegal(experiment, machine)
    with opened(path) as store:
        sitting: Run | None = None
        was_stopped, error = False, None
        try:
            with interrupted(default_int_handler), LazyCluster(address, world, machine.backend) as cluster:
                of_cluster = partial(cluster.ranks, across=experiment.fabric.across)
                cluster.ahead = forecast(experiment, machine, store, ranks=of_cluster)
                home = FromCluster(cluster, starting_s=cluster.starting_s, wait_s=wait_s)
                sitting = begin(experiment, store, home, machine)
                watch(sitting)
        except (KeyboardInterrupt, ValueError, OSError) as ended:
            if sitting is None:
                raise
            was_stopped = isinstance(ended, KeyboardInterrupt)
            error = None if was_stopped else _with_sentence(ended)
        rows = store.rows(sitting.run)
        newest = {(row["key"], row["source"] == "estimated"): row["id"] for row in rows}
        newest |= {(key, False): number for key, number in _beside_the_best(rows).items()}
        marked = [{**row, "asked": row["key"] in sitting.asked and row["id"] in newest.values(),
                   "known_since": _started_at(store, row["origin"])} for row in rows]  # fmt: skip
        progress, stopped = sitting.progress, was_stopped or sitting.cancelled.is_set()
        not_begun = max(0, progress.total - progress.done)
        return RunResult(marked, sitting.run, stopped, error, progress.again, not_begun)


def _with_sentence(error: BaseException) -> ValueError:
    return error if isinstance(error, ValueError) else Failed(exit_status.sentence(error))


def _beside_the_best(rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """By key the number of its row that a table shows: of a baseline, the one that was timed beside the best."""
    from workbench.naming import TIMED
    from workbench.results.comparison import leading
    from workbench.results.rows import by_problem

    timed = [row for same in by_problem(rows).values() for row in leading(same) if row["source"] in TIMED]
    return {row["key"]: row["id"] for row in reversed(timed)}


def _started_at(store: Store, run: str | None) -> float | None:
    return float(store.run(run)["started_at"]) if run else None


def _refuse_unmeasurable(machine: Machine, world: int, address: str | None) -> None:
    """Said before *world* ranks are started that could not measure on *machine*."""
    if machine.backend == "cpu":
        return
    from workbench import machines

    pass

    if (sentence := machines.unmeasurable(machine, world, is_elsewhere(address))) is not None:
        raise ValueError(sentence)


def _refuse_illegal(experiment: Experiment, machine: Machine) -> None:
    """Said before a cluster is started for nothing."""
    spaces = [experiment.points(problem, machine, measured=True) for problem in experiment.problems]
    if not any(points.schedules for points in spaces):
        raise ValueError((*spaces[0].refused, *spaces[0].left_out)[0][1])


def opened(path: Path | None) -> Store:
    """The store at *path*, or one's own; a folder that somebody named is not made for it."""
    from workbench.results.store import Store

    if path is not None and not path.parent.exists():
        raise ValueError(f"The store cannot be written to {path}: there is no folder {path.parent}. Accepted: a folder "
                         "that exists.")  # fmt: skip

    return Store(path)
