"""One sitting on one rank: compile, verify against the reference, and only then start the clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from statistics import median
from typing import Any

from kernels import events
from kernels.backends import open_backend, warm_backends
from kernels.backends.base import Backend, Compiling, MissingSpans, PreparedTrial, Seat
from kernels.outcome import span_values
from kernels.reference import Verdict, badness, expected, verdict
from kernels.schedule import Refusal
from kernels.trial import Trial

# The timing loop: trials of one sitting taken in turns, forwards and backwards, so that drift falls on all alike.


def warm_up(prepared: Sequence[PreparedTrial], warmups: int, each: Callable[[int], None]) -> None:
    """Runs every trial *warmups* times untimed; calls each(trial number) before every one of these iterations."""
    for _ in range(warmups):
        for number, one in enumerate(prepared):
            each(number)
            one.run()


def interleaved(prepared: Sequence[PreparedTrial], repeats: int, each: Callable[[int, int, float], None]) -> None:
    """Runs every trial *repeats* times, A B C C B A ...; what ran before is forgotten.

    Calls each(trial number, sample index, seconds) after every iteration.
    """
    numbers = list(range(len(prepared)))
    for one in prepared:
        one.forget()
    for index in range(repeats):
        for number in numbers if index % 2 == 0 else reversed(numbers):
            each(number, index, prepared[number].run())


# One sitting on one rank: compile, verify against the reference, and only then start the clock.

__all__ = ["Bench", "Seat"]

Emit = Callable[[events.TrialEvent], None]

READINGS = 5
"""How often in a sitting the condition of the device is read; what it says again without a change is kept once."""


class Bench:
    """A rank's bench: all ranks of a gang call `run` with the same list of trials."""

    def __init__(self, seat: Seat, emit: Emit) -> None:
        self.seat, self._emit = seat, emit
        self._backends: dict[str, Backend] = {}

    def run(self, trials: Sequence[Trial]) -> None:
        """Measures *trials*; those that follow each other with one problem and protocol are interleaved.

        Raises Hang, MemoryError and the like, after which this rank is to be replaced.
        """
        for sitting in _sittings(trials):
            self._sit(list(sitting))

    def wait_at_most(self, deadline_s: float) -> None:
        """How long one wait inside a trial may take from now on; the lists of one session differ in that."""
        self.seat = replace(self.seat, deadline_s=deadline_s)
        for backend in self._backends.values():
            backend.seat = self.seat

    @staticmethod
    def warm() -> None:
        """Loads what a rank's first trial would wait for; called while the rank has nothing to do."""
        warm_backends()

    def close(self) -> None:
        for backend in self._backends.values():
            backend.close()
        self._backends.clear()

    def _backend(self, name: str) -> Backend:
        if name not in self._backends:
            self._backends[name] = open_backend(name, self.seat)
        return self._backends[name]

    def _sit(self, trials: list[Trial]) -> None:
        self._begin(trials[0], "open")
        backend = self._backend(trials[0].backend)
        trials = [trial for trial in trials if self._possible(backend, trial)]
        trials, prepared = self._prepared(backend, trials)
        verdicts = [self._verify(backend, trial, one) for trial, one in zip(trials, prepared, strict=True)]
        kept = [
            entry for entry in zip(trials, prepared, verdicts, strict=True) if self._passed(backend, entry[0], entry[2])
        ]
        if kept:
            self._time(backend, kept)

    def _prepared(self, backend: Backend, trials: list[Trial]) -> tuple[list[Trial], Sequence[PreparedTrial]]:
        """Those of *trials* that there is room for, and what was prepared: one that does not fit goes alone."""
        if not trials:
            return [], []
        try:
            return trials, backend.prepare(trials, self._compiling(len(trials)))
        except Refusal as refused:
            sentence = str(refused)
        # not in the clause above: what was begun keeps its memory for as long as its traceback is held
        fit = [trial for trial in trials if self._fits(backend, trial)] if len(trials) > 1 else []
        if len(trials) > 1 and len(fit) < len(trials):
            return self._prepared(backend, fit)
        for trial in trials:  # alone each has room, together they have not
            self._refuse(trial, sentence)
        return [], []

    def _fits(self, backend: Backend, trial: Trial) -> bool:
        """Whether there is room for *trial* alone; all ranks find the same."""
        try:
            backend.prepare([trial], self._compiling(1))
        except Refusal as refused:
            self._refuse(trial, str(refused))
            return False
        return True

    def _refuse(self, trial: Trial, sentence: str) -> None:
        self._fail(trial, "refused", sentence)

    def _possible(self, backend: Backend, trial: Trial) -> bool:
        """Whether this gang can run *trial*; all ranks find the same."""
        sentence = backend.refusal(trial)
        if sentence is not None:
            self._refuse(trial, sentence)
        return sentence is None

    def _compiling(self, count: int) -> Compiling:
        """Says which of *count* trials is compiled next: what comes after may take as long as one compilation."""
        rank = self.seat.rank
        return lambda trial, number: self._emit(events.compiles(trial.key, rank, number + 1, count))

    def _verify(self, backend: Backend, trial: Trial, one: PreparedTrial) -> Verdict | None:
        """The worst verdict on what *one* rehearses; a part computes no result to compare."""
        if trial.part != "whole":
            return None
        self._begin(trial, "verify")
        verdicts = [self._compared(backend, trial, one, values) for values in one.rehearse()]
        return max(verdicts, key=badness)

    def _compared(self, backend: Backend, trial: Trial, one: PreparedTrial, values: int) -> Verdict:
        """The result against the reference of *values*; one that is wrong, against that of the others, too."""
        judged = self._against(backend, trial, one, values)
        if not judged.correct and self._against(backend, trial, one, values ^ 1).correct:  # the other of its two
            return replace(judged, stale=True)
        return judged

    def _against(self, backend: Backend, trial: Trial, one: PreparedTrial, values: int) -> Verdict:
        truth = expected(trial.problem, self.seat.rank, one.seed, backend.device, values)
        return verdict(trial.problem, one.result(), truth, one.roundings)

    def _passed(self, backend: Backend, trial: Trial, judged: Verdict | None) -> bool:
        """Whether all ranks found *trial* right: they go on together or not at all."""
        everyone = backend.exchange([1.0 if judged is None or judged.correct else 0.0])
        if judged is not None and not judged.correct:
            self._fail(trial, "wrong", judged.sentence(self.seat.rank))
        return all(passed for (passed,) in everyone)

    def _time(self, backend: Backend, kept: list[tuple[Trial, PreparedTrial, Verdict | None]]) -> None:
        samples: list[list[float]] = [[] for _ in kept]
        keys, rank = [trial.key for trial, *_ in kept], self.seat.rank

        def warming(number: int) -> None:  # said before each of them: a long silence counts as a hang
            self._begin(kept[number][0], "warm up")

        def each(number: int, index: int, seconds: float) -> None:
            samples[number].append(seconds)
            self._emit(events.sample(keys[number], rank, index, seconds, time.time()))

            readings.after(index, backend.condition)  # between two samples, off the clock

        protocol = kept[0][0].protocol
        readings = DeviceReadings(protocol.repeats)
        runs = [one for _, one, _ in kept]
        warm_up(runs, protocol.warmups, warming)
        for trial, *_ in kept:
            self._begin(trial, "time")
        interleaved(runs, protocol.repeats, each)
        lost: MissingSpans | None = None
        typicals = [_typical(backend.exchange(seconds)) for seconds in samples]
        for (trial, one, judged), typical in zip(kept, typicals, strict=True):
            self._begin(trial, "timeline")
            facts: dict[str, Any] = {"iteration": typical, "timed": {"seed": one.seed, **one.facts()}}
            facts |= {"conditions": readings.kept} if readings.kept else {}
            spans: list[list[Any]] = []
            try:
                if lost is not None:
                    raise lost
                spans = [list(span_values(span)) for span in one.spans(typical)]
            except MissingSpans as unseen:
                facts["unseen"], lost = str(unseen), unseen if unseen.alone else None
            self._emit(events.result(
                trial.key, rank, spans=spans, facts=facts, correct=None if judged is None else judged.correct,
                max_relative_error=None if judged is None else judged.error,
            ))  # fmt: skip
            one.forget()
        if lost is not None:
            raise ConnectionError(str(lost)) from lost

    def _begin(self, trial: Trial, stage: str) -> None:
        self._emit(events.stage(trial.key, self.seat.rank, stage))

    def _fail(self, trial: Trial, stage: str, sentence: str) -> None:
        self._emit(events.failure(trial.key, self.seat.rank, stage, sentence))


class DeviceReadings:
    """What the device says of itself in the course of *repeats* samples, each state once."""

    def __init__(self, repeats: int) -> None:
        self._repeats, self._count = repeats, min(READINGS, repeats)
        self._asked = 0
        self.kept: list[dict[str, Any]] = []
        """`samples` of each: the first and the last sample of which the device said so; `at`: when it said so first."""

    def after(self, index: int, read: Callable[[], dict[str, Any]]) -> None:
        """A sample with number *index* has ended: *read* is called where the next reading is due.

        A device that refreshes what it says less often than it is asked says the same again.
        """
        if index * self._count // self._repeats != self._asked:
            return
        self._asked += 1
        if not (said := read()):
            return
        if self.kept and said.items() <= self.kept[-1].items():
            self.kept[-1]["samples"][1] = index
        else:
            self.kept.append({**said, "samples": [index, index], "at": time.time()})


def _sittings(trials: Sequence[Trial]) -> Iterator[Iterator[Trial]]:
    return (sitting for _, sitting in groupby(trials, key=lambda trial: (trial.problem, trial.backend, trial.protocol)))


def _typical(samples: list[list[float]]) -> int:
    """The iteration whose slowest rank is nearest the median: the one worth drawing."""
    slowest = [max(of_all) for of_all in zip(*samples, strict=True)]
    middle = median(slowest)
    return min(range(len(slowest)), key=lambda index: abs(slowest[index] - middle))
