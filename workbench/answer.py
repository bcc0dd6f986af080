"""Who answers trials: the cluster measures, the simulator estimates, recordings are replayed; all speak alike."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Protocol

from cluster.deadline import Limits
from kernels.fabric import Fabric
from kernels.machine import Machine
from kernels.outcome import Failure, Gather, Measurement, Outcome, Sample
from kernels.problem import Problem
from kernels.schedule import Refusal
from kernels.schemes import needs_peer_memory
from kernels.trial import Trial, fingerprint
from workbench.expected import Expected
from workbench.simulator.predict import predict

DEADLINE_SECONDS = 30.0
"""The longest silence of a rank of whose trials nothing is expected; so long may a trial of a list take, too."""
LEAST_DEADLINE_SECONDS = {"cpu": 10.0, "triton": 60.0}
"""However short the stages of its trials are: a busy computer lets a rank wait. GPU ranks compile without a word."""
PATIENCE = 20.0
"""A stage, and a list, may take this many times what is estimated before it counts as hanging."""
LONGEST_PAUSE_SECONDS = 1.0
"""Replay shortens longer gaps: nobody wants to watch a compiler again."""

Answers = Iterator[Sample | Outcome]


class Answer(Protocol):
    """Answers lists of trials: their samples as they come, and an outcome for each trial."""

    source: str
    """What its outcomes are: measured, estimated or recorded."""

    def answer(self, trials: Sequence[Trial], cancelled: threading.Event, expected: Expected | None = None) -> Answers:
        """One grant; soon after *cancelled* is set it ends."""


class Streams(Protocol):
    """What is asked of a cluster: `cluster.dispatch.Cluster`."""

    def stream(self, trials: Sequence[Trial], *, world: int, shares_heap: bool, deadline_s: float | Limits,
               cancelled: threading.Event | None = None,
               fingerprint: str | None = None) -> Iterator[Mapping[str, Any]]:  # fmt: skip
        """The ranks' events as they come."""


class FromCluster:
    """Measures on a gang of ranks."""

    source = "measured"

    def __init__(self, cluster: Streams, deadline_s: float = DEADLINE_SECONDS) -> None:
        self._cluster, self._deadline_s = cluster, deadline_s

    def answer(self, trials: Sequence[Trial], cancelled: threading.Event, expected: Expected | None = None) -> Answers:
        for (world, backend), same in groupby(trials, key=lambda trial: (trial.world, trial.backend)):
            mine = list(same)
            limits = self._limits(backend, len(mine), expected)
            yield from self._one_gang(world, mine, cancelled, limits)

    def _limits(self, backend: str, count: int, expected: Expected | None) -> Limits:
        """A hang is found by the longest single stage of *count* trials; their sum only bounds a list that talks on."""
        least_s = LEAST_DEADLINE_SECONDS.get(backend, self._deadline_s)
        longest_s = max(self._deadline_s, least_s) if backend == "triton" else self._deadline_s
        if expected is None:
            return Limits(longest_s, longest_s * count)
        silence_s = max(min(longest_s, least_s), PATIENCE * expected.silent_s)
        return Limits(silence_s, max(longest_s * count, PATIENCE * expected.total_s))

    def _one_gang(self, world: int, trials: list[Trial], cancelled: threading.Event, limits: Limits) -> Answers:
        open_trials = {trial.key: Gather(trial) for trial in trials}
        # GPU ranks are of one host whatever the schedule: their heap is made by all of them together
        shares_heap = any(trial.backend == "triton" or needs_peer_memory(trial.schedule) for trial in trials)
        for event in self._cluster.stream(trials, world=world, shares_heap=shares_heap, deadline_s=limits,
                                          cancelled=cancelled, fingerprint=fingerprint()):  # fmt: skip
            gather = open_trials.get(event["trial"])  # several ranks may report the same failure: the first counts
            found = gather.feed(event) if gather is not None else None
            if found is not None:
                if not isinstance(found, Sample):
                    del open_trials[event["trial"]]
                yield found


class FromSimulator:
    """Plays the trials' plans on a machine description."""

    source = "estimated"

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def answer(self, trials: Sequence[Trial], cancelled: threading.Event, expected: Expected | None = None) -> Answers:
        for trial in trials:
            if cancelled.is_set():
                return
            try:
                yield predict(trial, self._machine)
            except Refusal as refusal:
                yield Failure(trial=trial, stage="refused", message=str(refusal), source=self.source)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A measurement of an earlier run with its raw samples in the order in which they came."""

    measurement: Measurement
    samples: tuple[Sample, ...]
    provenance: Mapping[str, Any]


class FromRecordings:
    """Plays recorded samples as if live, with their rhythm at *speed* (None: at once)."""

    source = "recorded"

    def __init__(self, recorded: Iterable[Recorded], speed: float | None = 1.0) -> None:
        self._speed = speed
        self._by_question: dict[tuple[Any, ...], Recorded] = {}
        for entry in recorded:  # the newest comes last and wins
            self._by_question[_question(entry.measurement.trial)] = entry

    @property
    def trials(self) -> tuple[Trial, ...]:
        """Everything that can be played, in the order of recording."""
        return tuple(entry.measurement.trial for entry in self._by_question.values())

    def meant(self, trial: Trial) -> Trial:
        """The recorded trial that answers *trial*, or *trial* itself."""
        entry = self._by_question.get(_question(trial))
        return entry.measurement.trial if entry else trial

    def fabric(self, problem: Problem, asked: Fabric) -> Fabric:
        """*asked*, its bandwidth the one that *problem* was recorded with."""
        met = (trial.fabric for trial in self.trials if trial.problem == problem and trial.fabric.emulated)
        return next((fabric for fabric in met if fabric.wire_to_compute == asked.wire_to_compute), asked)

    def answer(self, trials: Sequence[Trial], cancelled: threading.Event, expected: Expected | None = None) -> Answers:
        for trial in trials:
            entry = self._by_question.get(_question(trial))
            if entry is None:
                yield Failure(trial=trial, stage="refused", message=self._absent(trial), source=self.source)
                continue
            yield from self._play(entry, cancelled)
            if cancelled.is_set():
                return
            yield replace(entry.measurement, source=self.source)

    def _play(self, entry: Recorded, cancelled: threading.Event) -> Iterator[Sample]:
        previous = entry.samples[0].at if entry.samples else 0.0
        for sample in entry.samples:
            if self._speed is not None:
                cancelled.wait(min(max(0.0, sample.at - previous) / self._speed, LONGEST_PAUSE_SECONDS))
            if cancelled.is_set():
                return
            previous = sample.at
            yield replace(sample, key=entry.measurement.trial.key, at=time.time())

    def _absent(self, trial: Trial) -> str:
        same = [known for known in self.trials if known.problem == trial.problem and known.part == trial.part]
        heard = "; ".join(dict.fromkeys(str(known.schedule) for known in same)) or "other problems only"
        return (f"{trial.schedule} ({trial.part}) was asked for, but it is not among the {len(self.trials)} recorded "
                f"trials. Accepted: {heard}.")  # fmt: skip


def _question(trial: Trial) -> tuple[Any, ...]:
    """What makes two trials the same to a replay: machine and protocol are the recording's own."""
    return trial.problem, trial.schedule, trial.backend, trial.part, as_asked(trial.fabric)


def as_asked(fabric: Fabric) -> Fabric:
    """Without the bandwidth that followed from a ratio: two sittings resolve it differently."""
    return fabric if fabric.wire_to_compute is None else replace(fabric, bandwidth_bytes_per_second=None)
