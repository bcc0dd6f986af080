"""Calibrating CPU ranks where they are: the fit is asked of a cluster, and its file written whole or not at all."""

from __future__ import annotations

import platform
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from cluster.hosts import cpu_model
from kernels.files import Failed
from kernels.machine import Machine
from kernels.schedule import Refusal
from kernels.trial import Trial
from workbench import machines
from workbench.experiment.sources import Answers, FromCluster, TrialStreams
from workbench.machines import calibrated_target, matching, write
from workbench.machines.calibrate_cpu import FULL_SECONDS, MAX_ERROR, QUICK_SECONDS
from workbench.machines.calibrate_cpu import calibrate as fit
from workbench.machines.matching import ONE_THREAD
from workbench.results.files import MACHINE

QUICK = ", quick"
"""How a file ends that tells when it was calibrated, if there was little time for it."""

PAGE_SECONDS = 300.0
"""So long a calibration waits for the explorer's page."""
LOOK_SECONDS = 1.0
"""How often a calibration that made room looks whether others are still measuring."""


class UnsoundFit(Failed):
    """A fit was made, and its own check says that it is none."""


class CalibrationDisturbed(Exception):
    """Somebody else wants to measure."""


class SharedCluster(TrialStreams, Protocol):
    """A cluster that others use, too: `cluster.client.Cluster`."""

    def wanted_by_others(self) -> bool:
        """Whether somebody else has ranks of it, or waits for some."""


def calibrate(
    cluster: TrialStreams,
    seconds: float = FULL_SECONDS,
    cancelled: threading.Event | None = None,
    disturbed: Callable[[], bool] = lambda: False,
    name: str | None = None,
) -> tuple[Machine, Path]:
    """Fits the machine of the CPU ranks of *cluster* in about *seconds*; its file is preferred from then on.

    Where they are of another processor than this computer's, it is a machine of its own. Refusal where *name* is of
    another processor than theirs.

    Unsound where the fit's check is off: then the file stays as it is. Disturbed before a list of trials, when it is.
    """
    stop = cancelled or threading.Event()
    home = FromCluster(cluster)

    def ask(trials: Sequence[Trial]) -> Answers:
        if disturbed():
            raise CalibrationDisturbed
        return home.answer(trials, stop)

    base, where = _begun_with(cluster, name, stop)
    target = calibrated_target(base.name)
    target.refuse(MACHINE)  # before anything is measured
    fitted = fit(ask, base, seconds, where)
    if not fitted.sound:
        raise UnsoundFit(_unsound(fitted.ratio, base))
    return write(fitted.text, target), target.path


def _begun_with(cluster: TrialStreams, name: str | None, stop: threading.Event) -> tuple[Machine, str]:
    """What is fitted, under the processor that its ranks tell; and where they are."""
    ranks = cluster.ranks(1, "cpu", stop)
    if ranks is None:
        return machines.shipped_machine(name or machines.LAPTOP), platform.node()
    if name in (None, machines.LAPTOP) and ranks.hardware.model == cpu_model():  # whatever it was fitted to before
        described = machines.shipped_machine(machines.LAPTOP)
    else:
        described = matching.machine_of(matching.RankSite(ranks.hardware)) if name is None else machines.machine(name)
        if (sentence := matching.refusal(described, ranks.hardware, 1)) is not None:
            raise Refusal(sentence)
    base = machines.shipped_machine(described.name) if described.name in machines.names() else described
    device = replace(base.device, name=f"{ONE_THREAD}{ranks.hardware.model}")
    sources = {**base.provenance, "device.name": "calibrated: as its workers tell"}
    where = platform.node() if base.name == machines.LAPTOP else ranks.hardware.model
    return replace(base, device=device, provenance=sources), where


def _unsound(ratio: float, of: Machine) -> str:
    name = of.name
    known = machines.machine(name) if name in machines.names() else of
    low, high = known.spread or (0.0, 0.0)
    stays = f"not calibrated: {name} is as it was"
    if known.calibrated is not None:
        stays = f"as calibrated {known.calibrated}, whose check took {low:.2f} to {high:.2f} times the estimates"
    return (
        f"The calibration of {name} does not hold. Its check took {ratio:.2f} times the estimates of the "
        f"fit, and {1 - MAX_ERROR:.2f} to {1 + MAX_ERROR:.2f} is accepted: something else ran meanwhile, or slowed "
        f"the processor. The machine stays {stays}. Calibrate again when nothing else runs, and without --quick."
    )


def is_calibrated_here() -> bool:
    """Whether the machine of CPU ranks was fitted on this host."""
    when = machines.machine(machines.LAPTOP).calibrated or ""
    return when.removesuffix(QUICK).endswith(f" on {platform.node()}")


@contextmanager
def in_background(
    connect: Callable[[], AbstractContextManager[SharedCluster]],
    say: Callable[[str], None],
    wait: Callable[[float, threading.Event], bool] = lambda seconds, unwanted: True,
) -> Iterator[threading.Thread]:
    """A quick calibration beside whatever else goes on; leaving the `with` ends it.

    *wait* returns when the explorer is usable, or after the seconds it is given: its start would disturb what is timed,
    and be disturbed. So would a person's own run: the calibration looks for one before each list of trials, makes room,
    and begins again after it.
    """
    stop = threading.Event()

    def work() -> None:
        try:
            if not wait(PAGE_SECONDS, stop) and not stop.is_set():
                say(f"The explorer was not opened within {PAGE_SECONDS:.0f} s: this computer is calibrated meanwhile.")
            with connect() as cluster:
                machine = _undisturbed(cluster, stop) if _is_needed(cluster) else None
            if machine is not None:
                say(f"Calibrated: {machine.calibrated}. `workbench calibrate` takes longer and fits better.")
        except UnsoundFit:  # a computer that starts a lab has other things to do; nobody asked
            return
        except (ValueError, OSError, RuntimeError) as error:  # the lab goes on with assumed numbers, and says so
            if not stop.is_set():
                say(f"Not calibrated: {error}")

    thread = threading.Thread(target=work, name="quick calibration", daemon=True)
    thread.start()
    try:
        yield thread
    finally:
        stop.set()
        thread.join(5)


def _is_needed(cluster: SharedCluster) -> bool:
    """Whether the machine of the CPU ranks of *cluster* was not fitted yet; ranks of GPUs have others to fit."""
    if cluster.ranks(1, "triton") is not None:
        return False
    ranks = cluster.ranks(1, "cpu")
    known = None if ranks is None else matching.fitting_machine(matching.RankSite(ranks.hardware))
    if ranks is None or (known is not None and known.name == machines.LAPTOP):
        return not is_calibrated_here()
    return known is None or known.calibrated is None


def _undisturbed(cluster: SharedCluster, stop: threading.Event) -> Machine | None:
    """A quick calibration at a time when nobody else measures; None once it is to *stop*."""
    while not stop.is_set():
        try:
            return calibrate(cluster, QUICK_SECONDS, stop, cluster.wanted_by_others)[0]
        except CalibrationDisturbed:
            while cluster.wanted_by_others() and not stop.wait(LOOK_SECONDS):
                pass
    return None
