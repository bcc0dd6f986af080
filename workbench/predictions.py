"""What the simulator says of an experiment at once, as joined rows, with nothing written down."""

from __future__ import annotations

import threading
from typing import Any

from kernels.fabric import Fabric
from kernels.machine import Machine
from kernels.operators import OPERATORS
from kernels.outcome import Failure, Sample
from kernels.problem import Problem
from workbench import metrics
from workbench.answer import FromSimulator
from workbench.experiment import Experiment, with_parts
from workbench.simulator.predict import resolved
from workbench.store import Store


def predictions(experiment: Experiment, machine: Machine, store: Store | None = None) -> list[dict[str, Any]]:
    """One row per schedule of *experiment*, its joined numbers estimated, too; refused ones are failures.

    A relative link that *store* knows a measured computation for is resolved with that, so that a prediction and a run
    of the same trial have the same key.
    """
    rows: list[dict[str, Any]] = []
    for problem in experiment.problems:
        found = experiment.points(problem, machine)
        fabric = known_link(experiment.fabric, problem, machine, store)
        wholes = [experiment.trial(problem, asked, fabric) for asked in found.schedules]
        keys = {trial.key for trial in wholes}
        answers = FromSimulator(machine).answer(with_parts(experiment, wholes, machine), threading.Event())
        outcomes = [answer for answer in answers if not isinstance(answer, Sample)]
        filled = metrics.fill([metrics.row_of(outcome, None, machine) for outcome in outcomes])
        rows += [row for row in filled if row["key"] in keys]
        for asked, sentence in found.refused:
            trial = experiment.trial(problem, asked, fabric)
            refused = Failure(trial=trial, stage="refused", message=sentence, source="estimated")
            rows.append(metrics.row_of(refused, None, machine))
    return rows


def known_link(fabric: Fabric, problem: Problem, machine: Machine, store: Store | None) -> Fabric:
    """*fabric* with its bandwidth: from the computation that *store* knows, else as *machine* estimates it."""
    seconds = store.compute_seconds(machine.name, problem) if store else None
    if seconds is None:
        return resolved(fabric, problem, machine)
    return fabric.resolve(OPERATORS[problem.operator].wire_bytes(problem), seconds)
