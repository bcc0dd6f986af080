"""A Sitting is one run being written down: samples and outcomes pass through it into the store, whatever ends it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from kernels.machine import Machine
from kernels.outcome import Failure, Measurement, Outcome, Sample
from kernels.schedule import Refusal
from kernels.trial import fingerprint
from workbench import metrics
from workbench.answer import FromRecordings, Recorded
from workbench.provenance import provenance
from workbench.simulator.predict import predict
from workbench.store import SampleBuffer, Store

Events = Iterator[Sample | Outcome]


@dataclass(slots=True)
class Progress:
    """How far a run is; schedules are counted, their parts and baselines are not."""

    total: int = 0
    done: int = 0
    failed: int = 0
    started_at: float = field(default_factory=time.monotonic)

    @property
    def per_second(self) -> float:
        """Schedules per second since the start."""
        return self.done / max(1e-9, time.monotonic() - self.started_at)

    @property
    def left_s(self) -> float | None:
        """Time left at this rate; None before the first schedule is done."""
        return (self.total - self.done) / self.per_second if self.done else None


class Sitting:
    """Iterate it in the thread that is to do the work; set `cancelled` from any other to end it."""

    def __init__(self, store: Store, asked: Mapping[str, Any], facts: Mapping[str, Any], title: str = "") -> None:
        self.store = store
        self.progress = Progress()
        self.cancelled = threading.Event()
        self.run = store.begin_run(asked, facts, title)
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
            self._buffer.close()
            self.store.end_run(self.run, status)

    def _keep_sample(self, sample: Sample) -> Sample:
        self._buffer.add(sample)
        return sample

    def _keep(self, outcome: Outcome, machine: Machine | None, origin: str | None = None) -> Outcome:
        """Writes *outcome* down, together with the samples that came before it."""
        row = metrics.row_of(outcome, self.run, machine)
        ran = outcome.fingerprint if isinstance(outcome, Measurement) else None
        self.store.add_outcome(self.run, outcome, row, fingerprint=ran or fingerprint(), origin=origin,
                               samples=self._buffer.take())  # fmt: skip
        return outcome

    def _count(self, outcome: Outcome) -> None:
        self.progress.done += 1
        self.progress.failed += isinstance(outcome, Failure)


class Replay(Sitting):
    """Recorded trials played into a run of their own, with the estimates of *machine* beside them if one is given."""

    def __init__(self, recorded: Iterable[Recorded], store: Store, *, machine: Machine | None = None,
                 speed: float | None = 1.0, title: str = "") -> None:  # fmt: skip
        self._answer = FromRecordings(recorded, speed)
        self._machine = machine
        super().__init__(store, {"replay": title}, provenance(machine), title)
        self.progress.total = sum(trial.part == "whole" for trial in self._answer.trials)

    def _work(self) -> Events:
        for trial in self._answer.trials:
            if self._machine is not None:
                with suppress(Refusal):  # recorded on a machine that could: then there is no estimate beside it
                    yield self._keep(predict(trial, self._machine, with_spans=False), self._machine)
            for found in self._answer.answer([trial], self.cancelled):
                if isinstance(found, Sample):
                    yield self._keep_sample(found)
                else:
                    if trial.part == "whole":
                        self._count(found)
                    yield self._keep(found, self._machine)
            if self.cancelled.is_set():
                return
