"""The bench of one rank: compile trials, verify them against the reference, and only then start the clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from statistics import median
from typing import Any, NamedTuple

from kernels import events
from kernels.backends import is_left, leave, open_backend, warm_backends
from kernels.backends.base import Backend, Compiling, MissingSpans, PreparedTrial, Seat
from kernels.outcome import span_values
from kernels.reference import Verdict, badness, expected, verdict
from kernels.schedule import Refusal
from kernels.steady import Sampler, Turns
from kernels.trial import Trial

# The timing loop: trials are interleaved, forwards and backwards, so that drift affects all of them alike.


def warm_up(prepared: Sequence[PreparedTrial], warmups: int, each: Callable[[int], None]) -> None:
    """Runs every trial *warmups* times untimed; calls each(trial number) before every one of these iterations."""
    for _ in range(warmups):
        for number, trial in enumerate(prepared):
            each(number)
            trial.run()


def interleaved(prepared: Sequence[PreparedTrial], repeats: int, each: Callable[[int, int, float], None]) -> None:
    """Runs every trial *repeats* times, A B C C B A ..., after dropping the spans of earlier iterations.

    Calls each(trial number, sample index, seconds) after every iteration.
    """
    numbers = list(range(len(prepared)))
    for trial in prepared:
        trial.forget()
    for index in range(repeats):
        for number in numbers if index % 2 == 0 else reversed(numbers):
            each(number, index, prepared[number].run())


# The bench.

__all__ = ["Bench", "Seat"]

Emit = Callable[[events.TrialEvent], None]

READINGS = 5
"""Readings of the device's condition per run; equal readings in a row are kept once."""


class Bench:
    """A rank's bench: all ranks of a gang call `run` with the same list of trials."""

    def __init__(self, seat: Seat, emit: Emit) -> None:
        self.seat, self._emit = seat, emit
        self._backends: dict[str, Backend] = {}

    def run(self, trials: Sequence[Trial]) -> None:
        """Measures *trials*; those that follow each other with one problem and protocol are interleaved.

        Raises Hang, MemoryError and the like, after which this rank must be replaced.
        """
        for group in _groups(trials):
            if self.seat.world == 1 and is_left():  # peers of an earlier gang need not wait for the end of this one
                leave()
            self._run_group(list(group))

    def wait_at_most(self, deadline_s: float) -> None:
        """Limits every wait inside a trial from now on to *deadline_s* seconds, which differ by list of a session."""
        self.seat = replace(self.seat, deadline_s=deadline_s)
        for backend in self._backends.values():
            backend.seat = self.seat

    @staticmethod
    def warm() -> None:
        """Loads and compiles in advance what a rank's first trial would wait for; called while the rank is idle."""
        warm_backends()

    @staticmethod
    def is_left() -> bool:
        """Whether peers of this gang, or of an earlier one, wait for this process to leave it."""
        return is_left()

    @staticmethod
    def leave() -> None:
        """Leaves that gang, as far as its peers do; called while the rank is idle, its bench closed."""
        leave()

    def close(self) -> None:
        for backend in self._backends.values():
            backend.close()
        self._backends.clear()

    def _backend(self, name: str) -> Backend:
        if name not in self._backends:
            self._backends[name] = open_backend(name, self.seat)
        return self._backends[name]

    def _run_group(self, trials: list[Trial]) -> None:
        self._begin(trials[0], "open")
        backend = self._backend(trials[0].backend)
        trials = [trial for trial in trials if self._possible(backend, trial)]
        trials, prepared = self._prepared(backend, trials)
        verdicts = [self._verify(backend, trial, ready) for trial, ready in zip(trials, prepared, strict=True)]
        kept = [
            entry for entry in zip(trials, prepared, verdicts, strict=True) if self._passed(backend, entry[0], entry[2])
        ]
        if kept:
            self._time(backend, kept)

    def _prepared(self, backend: Backend, trials: list[Trial]) -> tuple[list[Trial], Sequence[PreparedTrial]]:
        """Those of *trials* that there is room for, and what was prepared of them; the others are refused."""
        if not trials:
            return [], []
        try:
            return trials, backend.prepare(trials, self._compiling(len(trials)))
        except Refusal as refused:
            reason = str(refused)
        # not in the clause above: memory that was allocated stays for as long as the traceback is held
        fit = [trial for trial in trials if self._fits(backend, trial)] if len(trials) > 1 else []
        if len(trials) > 1 and len(fit) < len(trials):
            return self._prepared(backend, fit)
        for trial in trials:  # there is room for each of them, but not for all
            self._refuse(trial, reason)
        return [], []

    def _fits(self, backend: Backend, trial: Trial) -> bool:
        """Whether there is room for *trial* alone; all ranks come to the same answer."""
        try:
            backend.prepare([trial], self._compiling(1))
        except Refusal as refused:
            self._refuse(trial, str(refused))
            return False
        return True

    def _refuse(self, trial: Trial, reason: str) -> None:
        self._fail(trial, "refused", reason)

    def _possible(self, backend: Backend, trial: Trial) -> bool:
        """Whether this gang can run *trial*; all ranks come to the same answer."""
        reason = backend.refusal(trial)
        if reason is not None:
            self._refuse(trial, reason)
        return reason is None

    def _compiling(self, count: int) -> Compiling:
        """A function that reports which of *count* trials is compiled next: the rank is then silent for a while."""
        rank = self.seat.rank
        return lambda trial, number: self._emit(
            events.StageEvent(kind="stage", trial=trial.key, rank=rank, stage="compile", number=number + 1, of=count)
        )

    def _verify(self, backend: Backend, trial: Trial, prepared: PreparedTrial) -> Verdict | None:
        """The worst verdict on a rehearsal of *prepared*; None for a part, which computes no result."""
        if trial.part != "whole":
            return None
        self._begin(trial, "verify")
        verdicts = [self._compared(backend, trial, prepared, values) for values in prepared.rehearse()]
        return max(verdicts, key=badness)

    def _compared(self, backend: Backend, trial: Trial, prepared: PreparedTrial, values: int) -> Verdict:
        """The verdict against the reference of *values*; a wrong result is compared with that of the other set, too."""
        judged = self._against(backend, trial, prepared, values)
        if not judged.correct and self._against(backend, trial, prepared, values ^ 1).correct:  # the other of its two
            return replace(judged, stale=True)
        return judged

    def _against(self, backend: Backend, trial: Trial, prepared: PreparedTrial, values: int) -> Verdict:
        truth = expected(trial.problem, self.seat.rank, prepared.seed, backend.device, values)
        return verdict(trial.problem, prepared.result(), truth, prepared.roundings)

    def _passed(self, backend: Backend, trial: Trial, judged: Verdict | None) -> bool:
        """Whether the result of *trial* is right on all ranks: they continue together or not at all."""
        of_ranks = backend.exchange([1.0 if judged is None or judged.correct else 0.0])
        if judged is not None and not judged.correct:
            self._fail(trial, "wrong", judged.message(self.seat.rank))
        return all(passed for (passed,) in of_ranks)

    def _time(self, backend: Backend, kept: list[tuple[Trial, PreparedTrial, Verdict | None]]) -> None:
        samples: list[list[float]] = [[] for _ in kept]
        keys, rank = [trial.key for trial, *_ in kept], self.seat.rank

        def each(number: int, index: int, seconds: float) -> None:
            samples[number].append(seconds)
            self._emit(
                events.SampleEvent(
                    kind="sample", trial=keys[number], rank=rank, index=index, seconds=seconds, at=time.time()
                )
            )

        conditions = self._sampled(backend, kept, each)
        lost: MissingSpans | None = None
        kept_s = [seconds[condition.first :] for seconds, condition in zip(samples, conditions, strict=True)]
        typicals = [_typical(backend.exchange(seconds)) for seconds in kept_s]
        for number, ((trial, prepared, judged), typical) in enumerate(zip(kept, typicals, strict=True)):
            self._begin(trial, "timeline")
            condition = conditions[number]
            timed = {"seed": prepared.seed, **prepared.facts(), **condition.facts}
            facts: dict[str, Any] = {"iteration": condition.first + typical, "timed": timed}
            facts |= {"conditions": condition.readings} if condition.readings else {}
            spans: list[list[Any]] = []
            try:
                if lost is not None:
                    raise lost
                spans = [list(span_values(span)) for span in prepared.spans(typical)]
            except MissingSpans as missing:
                facts["unseen"], lost = str(missing), missing if missing.alone else None
            self._emit(
                events.ResultEvent(
                    kind="result",
                    trial=trial.key,
                    rank=rank,
                    spans=spans,
                    facts=facts,
                    correct=None if judged is None else judged.correct,
                    max_relative_error=None if judged is None else judged.error,
                )
            )
            prepared.forget()
        if lost is not None:
            raise ConnectionError(str(lost)) from lost

    def _sampled(
        self, backend: Backend, kept: list[tuple[Trial, PreparedTrial, Verdict | None]],
        each: Callable[[int, int, float], None],
    ) -> list[_Conditions]:  # fmt: skip
        """Warms *kept* up and takes all their samples; what the device was like meanwhile, by trial."""
        protocol, runs = kept[0][0].protocol, [prepared for _, prepared, _ in kept]

        def loading(number: int) -> None:  # reported before each of them: a long silence counts as a hang
            self._begin(kept[number][0], "warm up")

        warm_up(runs, protocol.warmups, loading)
        if protocol.is_steady:
            with Sampler(backend.condition) as sampler:
                turns = Turns(protocol, sampler, backend.exchange)
                turns.run(runs, loading, each)
            return [
                _Conditions(turns.conditions[at], {"loads": turns.loads[at]}, turns.first) for at in range(len(runs))
            ]
        readings = DeviceReadings(protocol.repeats)

        def each_and_read(number: int, index: int, seconds: float) -> None:
            each(number, index, seconds)
            readings.after(index, backend.condition)  # between two samples, off the clock

        for trial, *_ in kept:
            self._begin(trial, "time")
        interleaved(runs, protocol.repeats, each_and_read)
        return [_Conditions(readings.kept, {})] * len(runs)

    def _begin(self, trial: Trial, stage: str) -> None:
        self._emit(events.StageEvent(kind="stage", trial=trial.key, rank=self.seat.rank, stage=stage))

    def _fail(self, trial: Trial, stage: str, message: str) -> None:
        self._emit(
            events.FailureEvent(kind="failure", trial=trial.key, rank=self.seat.rank, stage=stage, message=message)
        )


class _Conditions(NamedTuple):
    """What a rank's device was like while one trial was timed."""

    readings: list[dict[str, Any]]
    facts: dict[str, Any]
    """How the device was loaded; empty where it was not."""
    first: int = 0
    """The sample that is iteration 0 of its spans: turns forget those before."""


class DeviceReadings:
    """The device's conditions in the course of *repeats* samples; equal ones in a row are kept once."""

    def __init__(self, repeats: int) -> None:
        self._repeats, self._count = repeats, min(READINGS, repeats)
        self._taken = 0
        self.kept: list[dict[str, Any]] = []
        """Readings with `samples`, the first and the last sample that each holds for, and `at`, when it was taken."""

    def after(self, index: int, read: Callable[[], dict[str, Any]]) -> None:
        """Takes a reading by *read* after sample *index*, where the next one is due.

        A device that refreshes its values less often than they are read returns the same ones again.
        """
        if index * self._count // self._repeats != self._taken:
            return
        self._taken += 1
        if not (condition := read()):
            return
        if self.kept and condition.items() <= self.kept[-1].items():
            self.kept[-1]["samples"][1] = index
        else:
            self.kept.append({**condition, "samples": [index, index], "at": time.time()})


def _groups(trials: Sequence[Trial]) -> Iterator[Iterator[Trial]]:
    """Trials in a row that share problem, backend and protocol, which are timed interleaved."""
    return (group for _, group in groupby(trials, key=lambda trial: (trial.problem, trial.backend, trial.protocol)))


def _typical(samples: list[list[float]]) -> int:
    """The iteration whose slowest rank is nearest the median; its spans are drawn."""
    slowest = [max(of_ranks) for of_ranks in zip(*samples, strict=True)]
    middle = median(slowest)
    return min(range(len(slowest)), key=lambda index: abs(slowest[index] - middle))
