"""Which trials of one problem are timed together: baselines first, then what overlaps, and two streams in modes."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from kernels.backends import capabilities
from kernels.backends.capabilities import MeasuringRanks, refusal
from kernels.outcome import CHOOSING, Measurement, Outcome
from kernels.problem import Problem
from kernels.schedule import Refusal, Schedule, Value
from kernels.schemes import BASELINE, SCHEMES, axis_rules, schedule, stream_controls
from kernels.schemes.library import CALLS
from kernels.trial import PROTOCOLS, SHORT, Protocol, Trial
from workbench.experiment.experiment import BaselinePlan
from workbench.experiment.recommend import leaders
from workbench.simulator.price.power import overlaps_by_itself

# Which trials of one problem are timed together: first all baselines, then the two fastest beside what overlaps.
#
# Pure decisions over plain values: a conversation yields blocks and is sent what each came to (tests/gpu/gang.py). A
# ratio is formed inside one block and nowhere else, so the baselines stand in every one of them.

MOST = 8
"""Schedules that are timed in turns, parts not counted."""
FASTEST = 2
"""So many baselines stand in every further block."""
FIRST_SHARE = 3
"""The first block takes a third of the samples: it chooses baselines, and no ratio is formed in it."""
LAST = "last"
PIECES = "decomposed"
"""The scheme whose parts are timed, too."""

Axes = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Question:
    """One problem, and the schedules to compare by the axes that differ from their defaults."""

    problem: Problem
    fused: tuple[Axes, ...]
    pieces: tuple[Axes, ...] = ()
    """Decomposed ones; those that the ranks refuse are left out."""

    def blocks(self, protocol: Protocol, ranks: MeasuringRanks) -> Talk:
        """What is timed together, block by block."""
        return talk(self, protocol, ranks)


@dataclass(frozen=True, slots=True)
class Block:
    """Trials that are timed in turns."""

    kind: str
    """first, further or last."""
    trials: tuple[Trial, ...]


Talk = Generator[Block, Sequence[Outcome], None]


def talk(question: Question, protocol: Protocol, ranks: MeasuringRanks) -> Talk:
    """The blocks of one problem: all baselines; the fastest of them beside every fused schedule; the winner once more.

    The last block is measured when the winner is known, so that its ratio is not the luckiest of several. The fastest
    schedule in pieces stands there, too, with its parts: what its pieces and its company cost. Where there are such,
    parts are timed in the last block alone: a table of them has many problems.
    """
    few = replace(
        protocol, name=f"first_{protocol.name}", warmups=1, repeats=max(5, protocol.repeats // FIRST_SHARE)
    )  # fmt: skip
    legal = baselines(question.problem, ranks)
    came = yield Block(CHOOSING, tuple(_trial(question.problem, each, few, ranks) for each in legal))
    beside = chosen(came, legal)
    alone = tuple(parts(question.problem, beside, protocol, ranks))
    wholes = [_trial(question.problem, each, protocol, ranks) for each in beside]
    overlapping = [_trial(question.problem, each, protocol, ranks) for each in schedules(question, ranks)]
    measured: list[Outcome] = []
    step = max(1, MOST - len(wholes))
    for start in range(0, len(overlapping), step):
        some = overlapping[start : start + step]
        measured += yield Block("further", unique([*wholes, *([] if question.pieces else alone), *some]))
    if best := fastest(one for one in measured if one.trial.schedule.scheme != BASELINE):
        cut = fastest(one for one in measured if one.trial.schedule.scheme == PIECES)
        pieces = [cut.trial] if cut else []
        yield Block(LAST, unique([*wholes, *alone, best.trial.of_part("compute"), *own_parts(pieces, ranks),
                                  best.trial, overlapping[0], *pieces]))  # fmt: skip


def baselines(problem: Problem, ranks: MeasuringRanks) -> list[Schedule]:
    """Every sequential schedule of the usual tile that the ranks run."""
    usual = schedule(problem, BASELINE, {}, ranks.machine, ranks.fabric)
    return list(capabilities.baselines(problem, usual["tile"], ranks))


def schedules(question: Question, ranks: MeasuringRanks) -> Iterator[Schedule]:
    """The fused schedules, the default first, then the decomposed ones that the ranks run; each once."""
    asked = ({}, *question.fused)
    made = [schedule(question.problem, "fused", dict(each), ranks.machine, ranks.fabric) for each in asked]
    for each in question.pieces:
        with suppress(Refusal):
            cut = schedule(question.problem, "decomposed", dict(each), ranks.machine, ranks.fabric)
            if ranks.refusal(question.problem, cut) is None:
                made.append(cut)
    yield from dict.fromkeys(made)


def own_parts(some: Sequence[Trial], ranks: MeasuringRanks) -> list[Trial]:
    """Of schedules in pieces: their computation and their communication alone, and that of one piece."""
    if not some:
        return []
    beside = BaselinePlan(some[0], "each", ranks.machine)
    return [part for part in beside.stream_parts(some) if refusal(part, ranks.shares_heap) is None]


def fastest(outcomes: Iterable[Outcome]) -> Measurement | None:
    """The right whole with the shortest time: the slowest rank's median."""
    right = [one for one in outcomes if isinstance(one, Measurement) and one.trial.part == "whole" and one.correct]
    return min(right, key=lambda one: one.time_s, default=None)


def is_complete(outcomes: Sequence[Outcome]) -> bool:
    """Whether *outcomes* hold a right baseline and a right fused schedule, so that they have a ratio."""
    schemes = (fastest(one for one in outcomes if (one.trial.schedule.scheme == BASELINE) is plain)
               for plain in (True, False))  # fmt: skip
    return all(schemes)


def chosen(came: Sequence[Outcome], legal: Sequence[Schedule]) -> list[Schedule]:
    """The fastest baselines of the first block, and the fastest of the library's: its exposed communication is told.

    Where that block came to nothing, the first of *legal*: the library as it comes.
    """
    right = [one for one in came if isinstance(one, Measurement) and one.correct]
    ordered = sorted(right, key=lambda one: one.time_s)
    of_library = [one for one in ordered if one.trial.schedule["collective"] in CALLS]
    found = dict.fromkeys(one.trial.schedule for one in (*ordered[:FASTEST], *of_library[:1]))
    return list(found) or list(legal[:1])


def parts(problem: Problem, beside: Sequence[Schedule], protocol: Protocol, ranks: MeasuringRanks) -> Iterator[Trial]:
    """Computation alone by the library and by our kernel, and the communication alone of the baselines *beside*."""
    plain = [each for each in baselines(problem, ranks) if each["collective"] == CALLS[0]]
    fused = schedule(problem, "fused", {}, ranks.machine, ranks.fabric)
    moved = {each["collective"]: each for each in reversed(beside)}.values()  # whoever computes
    for part, of in (("compute", [*plain, fused]), ("communication", moved)):
        for each in of:
            trial = replace(_trial(problem, each, protocol, ranks), part=part)
            if refusal(trial, ranks.shares_heap) is None:
                yield trial


def unique(trials: Iterable[Trial]) -> tuple[Trial, ...]:
    """Each trial once, in order."""
    return tuple({trial.key: trial for trial in trials}.values())


def _trial(problem: Problem, asked: Schedule, protocol: Protocol, ranks: MeasuringRanks) -> Trial:
    return replace(ranks.trial(problem, asked), protocol=protocol)


def to_json(block: Block) -> list[dict[str, Any]]:
    """What a gang takes."""
    return [trial.to_json() for trial in block.trials]


# Two streams in all their modes beside the best baselines: which trials of one scenario are timed together.
#
# Pure decisions over plain values, as tests/gpu/sittings.py: first all baselines; then the ways to set SMs aside, by
# every partner; last, in one block, the modes of arXiv:2606.09200 and the best of these ways, of which the row is.

SCHEME = "concurrent"
MICRO_BATCHES = 16
TILE = "64x128x64"
"""Of our kernel: an SM of an H200 holds two of its blocks. torch's `two_shot` fits beside one or both, NCCL never."""
LEFT, FIRST = ({stream_controls.PRIORITY: value} for value in (axis_rules.NORMAL, axis_rules.HIGH))
OURS: Axes = {"kernel": "ours", "tile": TILE}
SHAPED: Axes = {**OURS, axis_rules.RESIDENT: 1}
MODES: tuple[Axes, ...] = (
    LEFT, {**OURS, **LEFT}, {**SHAPED, **LEFT}, FIRST, {**SHAPED, **FIRST},
)  # fmt: skip
"""Two streams; the same with our kernel, from which shaping differs in nothing else; + shaping; + priority; + both."""
SHARES = (8, 16, 24, 32)
"""SMs that are left to the library's collective."""
PARTNERS: tuple[Axes, ...] = (
    {"collective": "direct", stream_controls.SHARE: 16}, {"collective": "direct", stream_controls.SHARE: 32},
    {"collective": "two_shot"}, {"collective": "two_shot", stream_controls.SHARE: 24}, {"collective": "copy_engine"},
    {"collective": "copy_engine", stream_controls.SHARE: 4},
)  # fmt: skip
"""Others that may communicate: our own stores, torch's symmetric all-reduce in its 24 blocks, copy engines, which need
no SM for copies but places for the kernels in which ranks meet."""


@dataclass(frozen=True, slots=True)
class Modes:
    """One scenario: a problem whose schedules on two streams are laid beside each other."""

    problem: Problem

    def blocks(self, protocol: Protocol, ranks: MeasuringRanks) -> Talk:
        """All baselines; SMs set aside by every partner; all modes, with the fastest way to set SMs aside.

        The first two choose with few samples; ratios are formed in the last one alone.
        """
        few = replace(
            protocol, name=f"first_{protocol.name}", warmups=1, repeats=max(5, protocol.repeats // FIRST_SHARE)
        )  # fmt: skip
        legal = baselines(self.problem, ranks)
        came = yield Block(CHOOSING, tuple(self._trials(legal, few, ranks)))
        beside = self._trials(chosen(came, legal)[:FASTEST], protocol, ranks)
        shares = self._trials(self.schedules(shares_of(ranks), ranks), few, ranks)
        measured = yield Block("further", unique(shares))
        modes = self._trials(self.schedules(MODES, ranks), protocol, ranks)
        if best := fastest(measured):
            modes.append(replace(best.trial, protocol=protocol))
        yield Block(LAST, unique([*beside, *self._alone(beside, modes, ranks), *modes]))

    def schedules(self, several: Iterator[Axes] | tuple[Axes, ...], ranks: MeasuringRanks) -> list[Schedule]:
        """Those of *several* that are legal here, each once; what ranks refuse is a failure of its own."""
        made = []
        for axes in several:
            with suppress(Refusal):
                values: dict[str, Value] = {"micro_batches": MICRO_BATCHES, **axes}
                made.append(schedule(self.problem, SCHEME, values, ranks.machine, ranks.fabric))
        return list(dict.fromkeys(made))

    def _trials(self, schedules: list[Schedule], protocol: Protocol, ranks: MeasuringRanks) -> list[Trial]:
        return [replace(ranks.trial(self.problem, each), protocol=protocol) for each in schedules]

    def _alone(self, beside: list[Trial], modes: list[Trial], ranks: MeasuringRanks) -> Iterator[Trial]:
        """What T_c and T_comm, and the losses of contention are formed of: halves of baselines and of modes alone."""
        legal = [each for each in baselines(self.problem, ranks) if each["collective"] == CALLS[0]]
        plain = self._trials(legal, beside[0].protocol, ranks)
        for part, several in ((stream_controls.COMPUTE, plain), (stream_controls.COMMUNICATION, beside)):
            able = [each for each in several if refusal(each.of_part(part), ranks.shares_heap) is None]
            alike = [replace(trial, schedule=stream_controls.half(trial.schedule, part)) for trial in modes]
            yield from unique(trial.of_part(part) for trial in (*able, *alike))


def shares_of(ranks: MeasuringRanks) -> Iterator[Axes]:
    """The ways to set SMs aside, communication first in all of them."""
    yield from ({stream_controls.SHARE: count} for count in SHARES if count < ranks.machine.device.slots)
    yield from PARTNERS


# One problem in bursts, and the same schedules under steady load right after: what a ratio of bursts is worth there.

NEAR = 1.03
"""The second fastest baseline of the first block is timed, too, where it takes no more than this times the first."""


@dataclass(frozen=True, slots=True)
class Regimes:
    """A problem in both protocols."""

    problem: Problem

    def blocks(self, protocol: Protocol, ranks: MeasuringRanks) -> Talk:
        """All baselines; then the fastest with the best estimate of each other scheme, in bursts, and under load.

        The schedules are those of docs/results/steady.md, whose ratios were estimated before. Few samples keep the
        second block a burst: a long one reaches the power cap.
        """
        few = replace(protocol, name=f"first_{protocol.name}", warmups=1, repeats=protocol.repeats // FIRST_SHARE)
        legal = baselines(self.problem, ranks)
        came = yield Block(CHOOSING, tuple(_trial(self.problem, each, few, ranks) for each in legal))
        best = leaders(self.problem, ranks, tuple(SCHEMES), {}, protocol)
        others = [estimates[0].trial.schedule for name, estimates in best.items() if name != BASELINE]
        compared = [*nearest(came, legal), *others]
        bursts = replace(protocol, name=f"{SHORT}{protocol.name}", warmups=1, repeats=few.repeats)
        for of, kind in ((bursts, "further"), (PROTOCOLS["steady"], LAST)):
            yield Block(kind, unique(_trial(self.problem, each, of, ranks) for each in compared))


def nearest(came: Sequence[Outcome], legal: Sequence[Schedule]) -> list[Schedule]:
    """The fastest baseline of the first block, the second if it is NEAR, and the fastest that does not overlap itself.

    The first of *legal* where that block came to nothing.
    """
    right = sorted((one for one in came if isinstance(one, Measurement) and one.correct), key=lambda one: one.time_s)
    near = [one.trial.schedule for one in right[:FASTEST] if one.time_s <= NEAR * right[0].time_s]
    plain = [one.trial.schedule for one in right if not overlaps_by_itself(one.trial.schedule)]
    return list(dict.fromkeys([*near, *plain[:1]])) or list(legal[:1])
