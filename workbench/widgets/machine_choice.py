"""The form begins with the machine of the ranks that measure: the one that fits them, or one made of what they tell."""

from __future__ import annotations

from collections.abc import Callable

from cluster.dispatch import Cluster
from cluster.seating import Workers
from workbench import place
from workbench.resources import LAPTOP
from workbench.widgets.judging import Judge
from workbench.widgets.question import Question


def begin_with(question: Question, workers: Workers | None, find: Callable[[], Cluster]) -> None:
    """Sets the machine of *question* to that of *workers*, where it is the usual one and not theirs.

    What a person chose stays, and is refused with the name of the one that fits.
    """
    machine = question.machine_value
    if not workers or machine.name != LAPTOP or Judge(True, workers).of_machine(machine) is None:
        return
    backend = "triton" if all(worker.backend == "triton" for worker in workers.here) else "cpu"
    try:
        theirs = place.of(find(), backend)
        if theirs is not None:
            question.choose_machine(place.settled(theirs).name)
    except (ValueError, OSError, RuntimeError, TimeoutError):  # then the form says why its machine is refused
        return
