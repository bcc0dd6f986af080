"""Calibrating this computer: the fit is asked of a cluster, and its file written whole or not at all."""

from __future__ import annotations

import platform
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from kernels.machine import Machine, load
from workbench import machines
from workbench.answer import FromCluster, Streams
from workbench.simulator.calibrate import FULL_SECONDS, OFF_MOST, QUICK_SECONDS
from workbench.simulator.calibrate import calibrate as fit

QUICK = ", quick"
"""How a file ends that tells when it was calibrated, if there was little time for it."""


class Unsound(ValueError):
    """A fit was made, and its own check says that it is none."""


def calibrate(
    cluster: Streams, seconds: float = FULL_SECONDS, cancelled: threading.Event | None = None
) -> tuple[Machine, Path]:
    """Fits the machine of CPU ranks in about *seconds*; the file lies beside the runs and is preferred from then on.

    Unsound where the fit's check is off: then the file stays as it is.
    """
    stop = cancelled or threading.Event()
    home = FromCluster(cluster)
    fitted = fit(lambda trials: home.answer(trials, stop), machines.shipped_machine(machines.LAPTOP), seconds)
    if not fitted.sound:
        raise Unsound(_unsound(fitted.ratio))
    path = machines.calibrated_path(machines.LAPTOP)
    return write(fitted.text, path), path


def write(text: str, path: Path) -> Machine:
    """The machine that *text* is, in file *path*: whole or not at all."""
    unfinished = path.with_name(f".{path.name}.{threading.get_native_id()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_text(text)
        found = load(unfinished)
        unfinished.replace(path)
    except OSError as error:
        raise ValueError(f"The calibration cannot be written to {path}: {error.strerror}. "
                         "Accepted: a folder of runs that you may write.") from error  # fmt: skip
    finally:
        with suppress(OSError):
            unfinished.unlink()
    return found


def _unsound(ratio: float) -> str:
    known = machines.machine(machines.LAPTOP)
    low, high = known.spread or (0.0, 0.0)
    stays = f"not calibrated: {machines.LAPTOP} is as it was shipped"
    if known.calibrated is not None:
        stays = f"as calibrated {known.calibrated}, whose check took {low:.2f} to {high:.2f} times the estimates"
    return (
        f"A calibration of this computer was asked for, but its check took {ratio:.2f} times the estimates of the fit, "
        f"and {1 - OFF_MOST:.2f} to {1 + OFF_MOST:.2f} is accepted: something else ran meanwhile, or slowed the "
        f"processor. The machine stays {stays}. Calibrate again when nothing else runs, and without --quick."
    )


def is_calibrated_here() -> bool:
    """Whether the machine of CPU ranks was fitted on this host."""
    when = machines.machine(machines.LAPTOP).calibrated or ""
    return when.removesuffix(QUICK).endswith(f" on {platform.node()}")


@contextmanager
def in_background(
    connect: Callable[[], AbstractContextManager[Streams]], say: Callable[[str], None]
) -> Iterator[threading.Thread]:
    """A quick calibration beside whatever else starts; leaving the `with` ends it."""
    stop = threading.Event()

    def work() -> None:
        try:
            with connect() as cluster:
                machine, _ = calibrate(cluster, QUICK_SECONDS, stop)
            say(f"Calibrated: {machine.calibrated}. `workbench calibrate` takes longer and fits better.")
        except Unsound:  # a computer that starts a lab has other things to do; nobody asked
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
