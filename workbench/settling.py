"""A run keeps its outcomes: an estimate beside each measurement, and one outcome by which each trial is settled."""

from __future__ import annotations

from collections.abc import Sequence

from kernels.machine import Machine
from kernels.outcome import Estimate, Failure, Outcome
from kernels.schedule import Refusal
from kernels.trial import Trial
from workbench.answer import Answer
from workbench.experiment import Experiment
from workbench.provenance import provenance
from workbench.simulator.predict import predict
from workbench.sitting import Events, Sitting
from workbench.store import Store


class Settling(Sitting):
    """A sitting that estimates before it measures, and knows which trials are settled."""

    def __init__(self, experiment: Experiment, store: Store, answer: Answer, machine: Machine) -> None:
        super().__init__(store, experiment.to_json(), provenance(machine, experiment.search.seed), experiment.title)
        self.experiment, self._answer, self._machine = experiment, answer, machine
        self._estimates: dict[str, Estimate | None] = {}
        self._settled: dict[str, Outcome] = {}
        self.asked: set[str] = set()
        """Keys of what was asked for, without the parts and baselines beside it: these count as progress."""

    def _estimated(self, trials: Sequence[Trial]) -> Events:
        """The estimate beside each measurement."""
        if self._answer.source == "estimated":
            return
        for trial in trials:
            if trial.key not in self._estimates:
                try:
                    # a sweep has thousands: simulated spans are played again from the trial by who wants to see them
                    estimate = predict(trial, self._machine, with_spans=self.experiment.together)
                except Refusal:
                    self._estimates[trial.key] = None
                    continue
                self._estimates[trial.key] = estimate
                yield self._keep(estimate, self._machine)

    def _estimated_before(self, trial: Trial, origin: str) -> Events:
        """The estimate that was made before *trial* was measured in run *origin*; today's where there was none."""
        before = None if trial.key in self._estimates else self.store.estimate(origin, trial.key)
        if before is None:
            yield from self._estimated([trial])
        else:
            self._estimates[trial.key] = before
            yield self._keep(before, self._machine)

    def _settle(self, outcome: Outcome, origin: str | None = None) -> Outcome:
        """A trial's own outcome. The baseline has one in every block, and counts once."""
        if outcome.trial.key in self.asked and outcome.trial.key not in self._settled:
            self._count(outcome)
        self._settled[outcome.trial.key] = outcome
        self.progress.again.settle(outcome)
        return self._keep(outcome, self._machine, origin)

    def _fail(self, trial: Trial, stage: str, message: str) -> Outcome:
        """A schedule that never got as far as a rank."""
        self._settled[trial.key] = failure = Failure(trial=trial, stage=stage, message=message,
                                                     source=self._answer.source)  # fmt: skip
        return self._keep(failure, self._machine)
