"""What `workbench recommend` says of schedules that were measured before: the fastest of each scheme, and where."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

from kernels.units import seconds_text
from workbench import metrics
from workbench.cli_show import say, show_table
from workbench.provenance import provenance
from workbench.request import COMPARED, Request
from workbench.store import Store
from workbench.tuned import Tuned, known, tuned


def found(request: Request, path: Path) -> tuple[Tuned, list[dict[str, Any]]]:
    """The winners for what was asked, and their rows; the store at *path* is asked if there is one."""
    machine = request.machine_description()
    problem, fabric = request.problem(machine), request.link(machine)
    with Store(path) if path.exists() else nullcontext() as store:
        mine = [each for each in known(problem.operator, store)
                if each.trial.schedule.scheme in (request.schemes or COMPARED)]  # fmt: skip
        answer = tuned(problem, machine, fabric, mine, provenance(machine), dict(request.settings))
        rows = [{**metrics.row_of(each.known.measurement(), each.known.run, machine),
                 "message": "; ".join((each.source, *each.differs))} for each in answer.winners]  # fmt: skip
    return answer, rows


def show(answer: Tuned) -> None:
    """A table of the winners, and under it where each was measured; a sentence where there are none."""
    if not answer.winners:
        say(answer.sentence)
        return
    show_table("Measured before, on this hardware", ("schedule", "measured", "when and where", "what differs"),
               [(str(each.schedule), seconds_text(each.known.time_s), each.source, "; ".join(each.differs) or None)
                for each in answer.winners], right=("measured",))  # fmt: skip
