"""What the simulator says of an experiment at once, as joined rows, with nothing written down."""

from __future__ import annotations

import threading
from typing import Any

from kernels.machine import Machine
from kernels.outcome import Failure, Outcome
from workbench import metrics
from workbench.answer import FromSimulator
from workbench.experiment import Experiment
from workbench.links import link_here
from workbench.store import Store


def predictions(experiment: Experiment, machine: Machine, store: Store | None = None) -> list[dict[str, Any]]:
    """One row per schedule of *experiment*, its joined numbers estimated, too; refused ones are failures.

    A relative link that *store* knows a measured computation for is resolved with that, so that a prediction and a run
    of the same trial have the same key.
    """
    rows: list[dict[str, Any]] = []
    for problem in experiment.problems:
        points = experiment.points(problem, machine)
        fabric = link_here(experiment.fabric, problem, machine, store)
        wholes = [experiment.trial(problem, schedule, fabric) for schedule in points.schedules]
        keys = {trial.key for trial in wholes}
        beside = experiment.beside(problem, points.schedules, fabric, machine).with_all()
        timed = (*beside.block(wholes).trials, *beside.own_parts(wholes)) if wholes else ()
        trials = list({trial.key: trial for trial in timed}.values())
        answers = FromSimulator(machine).answer(trials, threading.Event())
        outcomes = [answer for answer in answers if isinstance(answer, Outcome)]
        filled = metrics.fill([metrics.row_of(outcome, None, machine) for outcome in outcomes])
        rows += [row for row in filled if row["key"] in keys]
        for schedule, sentence in points.refused:
            trial = experiment.trial(problem, schedule, fabric)
            refused = Failure(trial=trial, stage="refused", message=sentence, source="estimated")
            rows.append(metrics.row_of(refused, None, machine))
    return rows
