"""A Sitting is one run being written down: samples and outcomes pass through it into the store, whatever ends it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from kernels.machine import Machine
from kernels.outcome import Failure, Measurement, Outcome, Sample
from kernels.schedule import Refusal
from kernels.trial import Trial
from kernels.units import about
from workbench import metrics
from workbench.again import Told
from workbench.answer import FromRecordings, Recorded
from workbench.compiling import Compiling
from workbench.provenance import provenance
from workbench.simulator.predict import predict
from workbench.store import SampleBuffer, Store
from workbench.waiting import Waiting

Events = Iterator[Sample | Outcome]


class Left(Protocol):
    """What a run that measures has before it: workbench.time_left.TimeLeft."""

    correction: float
    block: int

    @property
    def blocks(self) -> int:
        """All blocks of the run."""

    def share(self) -> float:
        """How much of all is done."""

    def seconds(self) -> float:
        """How long it still takes."""


@dataclass(slots=True)
class Progress:
    """How far a run is; schedules are counted, their parts and baselines are not."""

    total: int = 0
    """Schedules that can be done at all."""
    done: int = 0
    failed: int = 0
    known: int = 0
    """Of those that are done: measured before, and not again."""
    refused: int = 0
    """Combinations of the space that cannot be."""
    samples: int = 0
    started_at: float = field(default_factory=time.monotonic)
    left: Left | None = None
    """Of a run that measures."""
    compiling: Compiling = field(default_factory=Compiling)
    """What the ranks compile just now."""
    waiting: Waiting = field(default_factory=Waiting)
    """For whom it waits just now."""
    again: Told = field(default_factory=Told)
    """What ran again after a rank was lost."""

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.started_at

    @property
    def share(self) -> float:
        """How much of the run is done."""
        if self.left is not None:
            return self.left.share()
        return min(1.0, self.done / self.total) if self.total else 0.0

    def counted(self) -> list[str]:
        """How far the run is, in words: schedules, block, samples, what is compiled."""
        noun = "schedule" if self.total == 1 else "schedules"
        block = self.left and self.left.block
        return [
            f"{self.done:,} of {self.total:,} {noun}",
            *([f"block {self.left.block:,} of {self.left.blocks:,}"] if self.left and block else []),
            *([f"{self.samples:,} samples"] if self.samples else []),
            *filter(None, map(str, (self.compiling, self.again, self.waiting))),
        ]  # fmt: skip

    def left_words(self) -> str:
        """How long it still takes, in words."""
        if self.left is not None:
            return f"{about(self.left.seconds())} left"
        if 0 < self.done < self.total:
            return f"{about(self.elapsed_s * (self.total - self.done) / self.done)} left"
        return "running"


class Sitting:
    """Iterate it in the thread that is to do the work; set `cancelled` from any other to end it."""

    def __init__(self, store: Store, question: Mapping[str, Any], facts: Mapping[str, Any], title: str = "") -> None:
        self.store = store
        self.progress = Progress()
        self.cancelled = threading.Event()
        self.timing: Mapping[str, Trial] = {}
        """By key: what samples may come of now."""
        self._gpus: set[tuple[int, str]] = set()
        """Rank and GPU, of all measurements."""
        self.run = store.begin_run(question, facts, title)
        """The run's id."""
        self._events = self._guarded()

    def __iter__(self) -> Events:
        return self._events

    def _work(self) -> Events:
        """What is done; yields only what it has kept."""
        raise NotImplementedError

    def _guarded(self) -> Events:
        self._buffer = SampleBuffer(self.store, self.run)
        status = "ended before its end"
        try:
            yield from self._work()
            status = "cancelled" if self.cancelled.is_set() else "finished"
        except (KeyboardInterrupt, GeneratorExit):
            status = "cancelled"
            raise
        except Exception as error:
            status = str(error)
            raise
        finally:
            try:
                self._buffer.close()
            finally:  # a full disk may still take a word
                self.store.end_run(self.run, status)

    def _keep_sample(self, sample: Sample) -> Sample:
        self.progress.samples += 1
        self._buffer.add(sample)
        return sample

    def _keep(self, outcome: Outcome, machine: Machine | None, origin: str | None = None) -> Outcome:
        """Writes *outcome* down, together with the samples that came before it."""
        row = metrics.row_of(outcome, self.run, machine)
        if isinstance(outcome, Measurement) and outcome.source == "measured":
            self._learn_gpus(outcome)
        self.store.add_outcome(self.run, outcome, row, origin=origin, samples=self._buffer.take())
        return outcome

    def _learn_gpus(self, outcome: Measurement) -> None:
        gpus = {(seen["rank"], f"{seen['gpu_name']} {seen['gpu']}") for seen in outcome.conditions if "gpu" in seen}
        if not gpus <= self._gpus:
            self._gpus |= gpus
            self.store.add_facts(self.run, {"gpus": [f"rank {rank}: {gpu}" for rank, gpu in sorted(self._gpus)]})

    def _count(self, outcome: Outcome) -> None:
        """What was never begun when somebody stopped the run is not done, and no failure."""
        if isinstance(outcome, Failure) and outcome.stage == "cancelled":
            return
        self.progress.done += 1
        self.progress.failed += isinstance(outcome, Failure)


class Replay(Sitting):
    """Recorded trials played into a run of their own, with the estimates of *machine* beside them if one is given."""

    def __init__(self, recorded: Iterable[Recorded], store: Store, *, machine: Machine | None = None,
                 speed: float | None = 1.0, title: str = "") -> None:  # fmt: skip
        self._answer = FromRecordings(recorded, speed)
        self._machine = machine
        super().__init__(store, {"replay": title}, provenance(machine), title)
        self._settled: set[str] = set()
        trials = (entry.measurement.trial for entry in self._answer.entries)
        self.progress.total = len({trial.key for trial in trials if trial.part == "whole"})

    def _work(self) -> Events:
        for entry in self._answer.entries:
            trial = entry.measurement.trial
            if self._machine is not None and trial.key not in self._settled:
                with suppress(Refusal):  # recorded on a machine that could: then there is no estimate beside it
                    yield self._keep(predict(trial, self._machine, with_spans=False), self._machine)
            self.timing = {trial.key: trial}
            for event in self._answer.play(entry, self.cancelled):
                if isinstance(event, Sample):
                    yield self._keep_sample(event)
                else:
                    if trial.part == "whole" and trial.key not in self._settled:
                        self._count(event)
                    self._settled.add(trial.key)
                    yield self._keep(event, self._machine)
            if self.cancelled.is_set():
                return
