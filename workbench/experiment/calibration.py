"""Calibration of CPU ranks: trials run on a cluster, a fit turns them into a machine file, written whole or not at
all."""

from __future__ import annotations

import json
import os
import platform
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Protocol

from cluster.cpu_use import HostUse
from cluster.hosts import cpu_model
from cluster.process import is_alive, process_start
from kernels import files
from kernels.files import Failed
from kernels.machine import Machine
from kernels.schedule import Refusal
from kernels.trial import Trial
from workbench import machines
from workbench.experiment.sources import Answers, FromCluster, TrialStreams
from workbench.machines import (
    ACCEPTED_LOAD,
    BusyComputer,
    calibrated_target,
    matching,
    present_text,
    use_text,
    write,
)
from workbench.machines.calibrate_cpu import CHECK, FULL_SECONDS, MAX_ERROR, QUICK_SECONDS
from workbench.machines.calibrate_cpu import calibrate as fit
from workbench.machines.matching import ONE_THREAD
from workbench.results.files import MACHINE
from workbench.results.quiet import is_busy

PAGE_SECONDS = 300.0
"""The longest wait of a calibration for the explorer's page."""
LOOK_SECONDS = 1.0
"""Interval at which a paused calibration checks whether others still measure."""
BUSY_SECONDS, BUSY_MOST_SECONDS = 10.0, 3600.0
"""Interval at which a postponed calibration tries again, and the time after which the lab gives up."""
UNSOUND_MOST = 3
"""After so many unsound fits the lab's calibration gives up, and says so."""


SETTLE_SECONDS = 4.0
"""The longest wait for a reading of the cores, and for the start of ranks and page to be over."""
FIRST_REPORT_SECONDS = 20.0
"""The longest wait for the first reading: workers that have just started on a busy computer report late."""
REFUSE, POSTPONE, INSIST = "refuse", "postpone", "insist"
"""What a busy computer means: nothing is measured, and no fit kept whose check others disturbed; neither is any fit
kept that they disturbed; the file says so."""


class UnsoundFit(Failed):
    """The check of a fit failed, so that the fit is not used."""


class CalibrationDisturbed(Exception):
    """Another client wants to measure, so that the calibration stops."""


class CalibratedCluster(TrialStreams, Protocol):
    """A cluster that knows who uses its cores: `cluster.client.Cluster`."""

    def core_use(self) -> tuple[HostUse, ...]:
        """The use of each host's cores by others; empty until workers have reported."""


class SharedCluster(CalibratedCluster, Protocol):
    """A cluster with other clients: `cluster.client.Cluster`."""

    def wanted_by_others(self) -> bool:
        """Whether another client holds ranks of the cluster or waits for some."""


def calibrate(
    cluster: CalibratedCluster,
    seconds: float = FULL_SECONDS,
    cancelled: threading.Event | None = None,
    disturbed: Callable[[], bool] = lambda: False,
    name: str | None = None,
    busy: str = REFUSE,
) -> tuple[Machine, Path]:
    """Fits the machine of the CPU ranks of *cluster* in about *seconds*, and writes its file.

    The file is preferred to the shipped one from then on. Values that were measured while others used the cores are
    marked in it (`machines.distrusted`). *busy* is what a busy computer means: REFUSE, POSTPONE or INSIST.

    Ranks on a processor other than this computer's get a machine of their own.

    Raises Refusal where machine *name* has another processor than the ranks. Raises UnsoundFit where the check of the
    fit fails, and BusyComputer where others use the cores; the file then stays as it is. Raises CalibrationDisturbed
    where *disturbed* is true before a list of trials.
    """
    stop = cancelled or threading.Event()
    home = FromCluster(cluster)

    def ask(trials: Sequence[Trial]) -> Answers:
        if disturbed():
            raise CalibrationDisturbed
        return home.answer(trials, stop)

    base, where = _base_machine(cluster, name, stop)
    target = calibrated_target(base.name)
    target.refuse(MACHINE)  # before anything is measured
    others = _others(cluster, stop)
    if others and busy != INSIST:
        raise BusyComputer(base.name, f"Others use {others}")
    fitted = fit(ask, base, seconds, where, others)
    if not fitted.sound:
        raise UnsoundFit(_unsound_message(fitted.ratio, base))
    if fitted.distrusted and (busy == POSTPONE or (busy == REFUSE and CHECK in fitted.distrusted)):
        meanwhile = next(iter(fitted.distrusted.values()))
        raise BusyComputer(base.name, f"Others used the cores meanwhile: {meanwhile}")
    return write(fitted.text, target), target.path


def _others(cluster: CalibratedCluster, stop: threading.Event) -> str:
    """How many of how many cores others use, and who; empty where the computer is quiet, or nobody reads its cores."""
    began, seen_at = time.monotonic(), float("inf")
    while True:
        uses = cluster.core_use()
        worst = max(uses, key=lambda use: use.share, default=None)
        if worst is not None and not is_busy(worst.share):
            return ""
        now = time.monotonic()
        seen_at = now if worst is not None and seen_at > now else seen_at
        until = min(began + FIRST_REPORT_SECONDS, seen_at + SETTLE_SECONDS)
        if now >= until or stop.wait(LOOK_SECONDS):
            return "" if worst is None else use_text(worst)


def _base_machine(cluster: TrialStreams, name: str | None, stop: threading.Event) -> tuple[Machine, str]:
    """The machine to fit, with the processor that its ranks report; and the name of their host or processor."""
    ranks = cluster.ranks(1, "cpu", stop)
    if ranks is None:
        return machines.shipped_machine(name or machines.LAPTOP), platform.node()
    if name in (None, machines.LAPTOP) and ranks.hardware.model == cpu_model():  # whatever it was fitted to before
        described = machines.shipped_machine(machines.LAPTOP)
    else:
        described = matching.machine_of(matching.RankSite(ranks.hardware)) if name is None else machines.machine(name)
        if (message := matching.refusal(described, ranks.hardware, 1)) is not None:
            raise Refusal(message)
    base = machines.shipped_machine(described.name) if described.name in machines.names() else described
    device = replace(base.device, name=f"{ONE_THREAD}{ranks.hardware.model}")
    sources = {**base.provenance, "device.name": "calibrated: as its workers report"}
    where = platform.node() if base.name == machines.LAPTOP else ranks.hardware.model
    return replace(base, device=device, provenance=sources), where


def _unsound_message(ratio: float, base: Machine) -> str:
    name = base.name
    stays = present_text(name)
    known = machines.known(name)
    if known is not None and known.calibrated is not None:
        low, high = known.spread or (0.0, 0.0)
        stays += f", whose check took {low:.2f} to {high:.2f} times the estimates"
    return (
        f"The calibration of {name} does not hold. Its check took {ratio:.2f} times the estimates of the "
        f"fit, and {1 - MAX_ERROR:.2f} to {1 + MAX_ERROR:.2f} is accepted: something else ran meanwhile, or slowed "
        f"the processor. The machine stays {stays}. Calibrate again when nothing else runs; the whole calibration is "
        "steadier than the quick one."
    )


def is_calibrated_here() -> bool:
    """Whether the machine of CPU ranks was fitted on this host."""
    _, _, where = (machines.machine(machines.LAPTOP).calibrated or "").partition(" on ")
    return where.partition(",")[0] == platform.node()


# The lab's calibration: quick, in the background, and its state in a file, since the page lives in another process.

WAITING, RUNNING, FAILED = "waiting", "running", "failed"
"""States of the lab's calibration that the page shows; the state file of one that succeeded is removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabCalibration:
    """The state of the calibration of a running lab."""

    state: str
    """WAITING, RUNNING or FAILED."""
    message: str
    """What happens or why it does not, as sentences."""
    machine: str
    pid: int
    """The lab's process."""
    started: str
    """The moment at which that process started (`cluster.process.process_start`)."""


def lab_calibration() -> LabCalibration | None:
    """The state of the calibration of the lab that runs on this host; None if none is wanted, or no lab runs."""
    try:
        known = LabCalibration(**json.loads(_state_file().read_text()))
    except (OSError, ValueError, TypeError):  # none, or one of another version
        return None
    return known if is_alive(known.pid, known.started) else None


def _state_file() -> Path:
    return machines.calibrated_path("lab").with_suffix(".state")


class _Reporter:
    """Keeps the state file up to date, and says in the terminal what is new for a person there."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._said = ""
        """The state that was said last: its message changes with each try."""
        self._known: LabCalibration | None = None
        self.machine = machines.LAPTOP

    def set(self, state: str, message: str, *, aloud: bool = False) -> None:
        known = LabCalibration(state=state, message=message, machine=self.machine, pid=os.getpid(),
                               started=process_start())  # fmt: skip
        if known == self._known:
            return
        self._known = known
        with suppress(OSError):  # the folder cannot be written: then the calibration itself says so
            _state_file().parent.mkdir(parents=True, exist_ok=True)
            files.write(_state_file(), json.dumps(asdict(known)))
        if aloud and state != self._said:
            self._said = state
            self._say(message)

    def clear(self) -> None:
        known = lab_calibration()
        if known is None or known.pid == os.getpid():
            with suppress(OSError):
                _state_file().unlink(missing_ok=True)


@contextmanager
def in_background(
    connect: Callable[[], AbstractContextManager[SharedCluster]],
    say: Callable[[str], None],
    wait: Callable[[float, threading.Event], bool] = lambda seconds, unwanted: True,
) -> Iterator[threading.Thread]:
    """Runs a quick calibration in a thread; leaving the `with` ends it.

    *wait* returns when the explorer is usable, or after the given seconds: its start would disturb the timing and be
    disturbed by it. A person's run would, too: the calibration checks for one before each list of trials, waits until
    it has ended, and starts again. `lab_calibration` has its state for the page.
    """
    stop, reporter = threading.Event(), _Reporter(say)

    def work() -> None:
        try:
            reporter.set(WAITING, f"{reporter.machine} is not calibrated yet: the lab does so once this page is drawn.")
            if not wait(PAGE_SECONDS, stop) and not stop.is_set():
                say(f"The explorer was not opened within {PAGE_SECONDS:.0f} s: this computer is calibrated meanwhile.")
            with connect() as cluster:
                machine = _calibrate_undisturbed(cluster, stop, reporter)
            reporter.clear()
            if machine is not None:
                say(f"Calibrated: {machine.calibrated}. `workbench calibrate` takes longer and fits better.")
        except (ValueError, OSError, RuntimeError) as error:  # the lab continues with assumed numbers, and says so
            if not stop.is_set():
                reporter.set(FAILED, f"Not calibrated: {error}", aloud=True)

    thread = threading.Thread(target=work, name="quick calibration", daemon=True)
    thread.start()
    try:
        yield thread
    finally:
        stop.set()
        thread.join(5)
        reporter.clear()


def _uncalibrated_machine(cluster: SharedCluster) -> str | None:
    """The machine of *cluster*'s CPU ranks if it was never fitted; GPU ranks are calibrated by a command."""
    if cluster.ranks(1, "triton") is not None:
        return None
    ranks = cluster.ranks(1, "cpu")
    known = None if ranks is None else matching.fitting_machine(matching.RankSite(ranks.hardware))
    if ranks is None or (known is not None and known.name == machines.LAPTOP):
        return None if is_calibrated_here() else machines.LAPTOP
    if known is not None and known.calibrated is not None:
        return None
    return matching.machine_of(matching.RankSite(ranks.hardware)).name if known is None else known.name


def _calibrate_undisturbed(cluster: SharedCluster, stop: threading.Event, reporter: _Reporter) -> Machine | None:
    """Calibrates quickly while nobody else measures; None where nothing is to be done, or *stop* was set before.

    Raises UnsoundFit where UNSOUND_MOST fits were unsound, and BusyComputer after BUSY_MOST_SECONDS: the person is to
    know.
    """
    unsound, until, has_waited = 0, time.monotonic() + BUSY_MOST_SECONDS, False
    while not stop.is_set() and (name := _uncalibrated_machine(cluster)) is not None:
        reporter.machine = name

        def disturbed(name: str = name) -> bool:  # before each list of trials, once the computer is quiet
            reporter.set(RUNNING, f"{name} is being calibrated: estimates change in some seconds.")
            return cluster.wanted_by_others()

        try:
            return calibrate(cluster, QUICK_SECONDS, stop, disturbed, name, POSTPONE)[0]
        except BusyComputer as busy:
            if time.monotonic() > until:
                raise
            waits = f"{name} is not calibrated yet: the lab waits until this computer is quiet. {busy.others}; "
            reporter.set(WAITING, f"{waits}{ACCEPTED_LOAD}.", aloud=not has_waited)
            has_waited = True  # the numbers change with every look, and the terminal is not to fill with them
            stop.wait(BUSY_SECONDS)
        except CalibrationDisturbed:
            reporter.set(WAITING, f"{name} is not calibrated yet: the lab waits until nobody measures.")
            while cluster.wanted_by_others() and not stop.wait(LOOK_SECONDS):
                pass
        except UnsoundFit:
            unsound += 1
            if unsound == UNSOUND_MOST:
                raise
            reporter.set(WAITING, f"{name} is not calibrated yet: a first try did not hold, and the lab tries again.")
            stop.wait(LOOK_SECONDS)
    return None
