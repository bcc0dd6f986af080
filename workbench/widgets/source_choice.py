"""Who answers: the cluster measures, the simulator estimates, or a recording is played as if live."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ipywidgets

from cluster.dispatch import Cluster
from cluster.seating import Ranks
from kernels.machine import Machine
from workbench import machines, recordings
from workbench.answer import Answer, FromCluster, FromRecordings, FromSimulator, Recorded
from workbench.run import run as experiment_run
from workbench.sitting import Replay, Sitting
from workbench.store import Store
from workbench.widgets.asking import Asked
from workbench.widgets.controls import HIDDEN, SHOWN, dropdown, one_of, tick

MEASURE, SIMULATE, REPLAY = "cluster", "simulator", "recordings"
SOURCES = (("Measure", MEASURE), ("Simulate", SIMULATE), ("Replay", REPLAY))
TOOLTIPS = ("On the cluster's ranks", "Played on a machine's description", "Recorded runs as if live")
SPEEDS = (("as it was", 1.0), ("10 times as fast", 10.0), ("at once", float("inf")))
OWN_RUNS = 20
"""The newest runs of one's own that are offered for replay."""


class SourceChoice:
    """`view` is the choice; `sitting` makes of a question what is to be iterated."""

    def __init__(self, store: Store, find: Callable[[], Cluster], ranks: Callable[[int, str], Ranks | None],
                 wait_s: Callable[[], float]) -> None:  # fmt: skip
        """*wait_s*: how long a run may wait for ranks, when it begins."""
        self._store, self._find, self._ranks, self._wait_s = store, find, ranks, wait_s
        self._listeners: list[Callable[[], Any]] = []
        self._read: tuple[Any, list[Recorded]] | None = None
        self.source = one_of(SOURCES, MEASURE, "wb-source", TOOLTIPS)
        self.recording = dropdown("Recording", [], "wb-recording")
        self.whole = tick("Play all of it, not just what the form asks", "wb-replay-all", value=True)
        self.speed = dropdown("Speed", SPEEDS, "wb-replay-speed")
        self._replay = ipywidgets.VBox(
            [self.recording, self.speed, self.whole], layout=ipywidgets.Layout(display=HIDDEN)
        )
        self.view = ipywidgets.VBox([self.source, self._replay])
        self.source.observe(self._source_changed, "value")
        self.recording.observe(self._tell, "value")
        self.whole.observe(self._tell, "value")

    @property
    def value(self) -> str:
        """MEASURE, SIMULATE or REPLAY."""
        return str(self.source.value)

    def on_change(self, listener: Callable[[], Any]) -> None:
        self._listeners.append(listener)

    def recorded(self) -> list[Recorded]:
        """The recording that is chosen; ValueError when there is none, or it has nothing."""
        if self.recording.value is None:
            raise ValueError(
                "There is nothing to replay: 0 recordings and 0 measured runs. Accepted: measure something first, "
                "or put a recording (a .jsonl file) into data/recordings."
            )
        kind, name = self.recording.value
        return recordings.recordings(name) if kind == "shipped" else recordings.of_run(self._store, name)

    def refusal(self, question: Asked, machine: Machine) -> str | None:
        """Why nothing can be replayed, or None; of a sweep what was recorded is played."""
        if self.value != REPLAY:
            return None
        try:
            recorded = self._recorded_once()
            if self.whole.value or question.swept_values(machine) or question.schemes() != (question.scheme,):
                return None
            return FromRecordings(recorded).absence(question.trial(machine))
        except ValueError as refused:
            return str(refused)

    def _recorded_once(self) -> list[Recorded]:
        """The recording, read once as long as it is the one that is chosen."""
        if self._read is None or self._read[0] != self.recording.value:
            self._read = self.recording.value, self.recorded()
        return self._read[1]

    def sitting(self, question: Asked, machine: Machine) -> Sitting:
        """What Run iterates; ValueError in one sentence when it cannot be."""
        if self.value == REPLAY and self.whole.value:
            return self._replay_of(self.recorded())
        return experiment_run(question.experiment(machine), self._store, self._answer(machine), machine)

    def _replay_of(self, recorded: list[Recorded]) -> Replay:
        trial = recorded[0].measurement.trial if recorded else None
        machine = machines.known(trial.machine) if trial else None
        _, name = self.recording.value
        return Replay(recorded, self._store, machine=machine, speed=self.speed.value, title=f"replay of {name}")

    def _answer(self, machine: Machine) -> Answer:
        match self.value:
            case "simulator":
                return FromSimulator(machine, self._ranks)
            case "recordings":
                return FromRecordings(self.recorded(), self.speed.value)
        return FromCluster(self._find(), wait_s=self._wait_s())

    def _source_changed(self, _: Any) -> None:
        replay = self.value == REPLAY
        if replay:
            self.offer()
        self._replay.layout.display = SHOWN if replay else HIDDEN
        self._tell()

    def offer(self) -> None:
        """The recordings that there are now: those shipped, then one's own measured runs, the newest first."""
        self._read = None
        shipped = [(name, ("shipped", name)) for name in recordings.paths()]
        runs = [
            (f"{run['title'] or 'run'}, {run['id']}", ("own", run["id"])) for run in self._store.measured_runs(OWN_RUNS)
        ]
        options = (*shipped, *runs)
        if tuple(self.recording.options) != options:
            self.recording.options = options
            self.recording.value = options[0][1] if options else None

    def _tell(self, _: Any = None) -> None:
        for listener in self._listeners:
            listener()
