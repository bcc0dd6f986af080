"""The fastest schedules that were ever measured: a query on recordings and runs by problem, hardware and versions.

Winners are rows of what was measured anyway; there is no second store that could contradict it. What was measured with
other versions or older kernels still answers, and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from math import log2
from typing import Any

from kernels.fabric import Fabric
from kernels.hardware import Hardware
from kernels.machine import Machine
from kernels.outcome import Measurement, row
from kernels.problem import Problem
from kernels.schedule import Refusal, Schedule
from kernels.schemes import BASELINE, axis_rules, schedule
from kernels.trial import Trial
from kernels.units import seconds_text
from workbench.naming import baseline_title
from workbench.results import comparison, recordings
from workbench.results.comparison import better, leading
from workbench.results.metrics import speed_up
from workbench.results.recordings import Recorded
from workbench.results.store import Store, same_source

# What is known: whole trials that were measured and right, in the shipped recordings and in one's own runs.

Facts = Mapping[str, Any]
"""Under which circumstances something was, or would be, measured: the keys of `provenance`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTrial:
    """One whole trial that was measured and found right."""

    trial: Trial
    time_s: float
    where: str
    """The recording, or the run of one's own."""
    run: str | None
    """That run; None of a recording."""
    at: float
    """Unix time of its last sample."""
    block: str | None
    """What it was timed in turns with."""
    facts: Facts
    hardware: Hardware | None
    """What it ran on; None where nobody wrote it down."""
    measurement: Callable[[], Measurement]
    """With its samples."""
    beside: Callable[[], Sequence[Measurement]] = tuple
    """What its block was timed with, the baseline among them: the ratio of a known schedule is to that."""


def known(operator: str, store: Store | None = None, *, one_call: bool = False) -> list[KnownTrial]:
    """All whole trials of *operator* that were measured and right, in the shipped recordings and in *store*.

    *one_call*: those with one call per graph, instead of those with many in a row: no winner is found among both.
    """
    trials = [_recorded(entry, name, entries) for name, entries in recordings.shipped().items() for entry in entries
             if _is_right_whole(entry.measurement, operator)]  # fmt: skip
    trials += [_of_run(entry, store) for entry in store.right_wholes(operator)] if store else []
    return [each for each in trials if each.trial.is_one_call == one_call]


def _is_right_whole(measured: Measurement, operator: str) -> bool:
    return measured.trial.problem.operator == operator and measured.trial.part == "whole" and bool(measured.correct)


def _recorded(entry: Recorded, name: str, entries: Sequence[Recorded]) -> KnownTrial:
    return KnownTrial(
        trial=entry.measurement.trial, time_s=entry.measurement.time_s, where=f"recording {name}", run=None,
        at=max(sample.at for sample in entry.samples), block=entry.measurement.block,
        hardware=entry.measurement.hardware,
        facts=_with_print(entry.provenance, entry.measurement.source_print),
        measurement=lambda: entry.measurement,
        beside=lambda: [each.measurement for each in entries if each.measurement.block == entry.measurement.block],
    )  # fmt: skip


def _of_run(entry: Mapping[str, Any], store: Store) -> KnownTrial:
    return KnownTrial(
        trial=Trial.from_json(entry["trial"]), time_s=entry["time_s"], where=f"run {entry['run']}", run=entry["run"],
        at=entry["at"], block=entry["block"], facts=_with_print(entry["provenance"], entry["source_print"]),
        hardware=entry["hardware"],
        measurement=lambda: store.measurement(entry["id"]),
        beside=lambda: [one for one, _ in store.beside(store.measurement(entry["id"]).block or "")],
    )  # fmt: skip


def _with_print(facts: Facts, source_print: str | None) -> Facts:
    """*facts* with the measurement's own print: a run may outlive a change of the kernels."""
    return {**facts, "source_print": source_print} if source_print else facts


# What winners have no speed-up: those of blocks without a baseline that any sitting tells to be faster.

Place = tuple[str, str | None, Problem]
"""A block of a run or of a recording, and what was timed in it."""


@dataclass(frozen=True, slots=True)
class BetterBaseline:
    """A block's best baseline, and a faster one that the block does not hold; None: it holds no baseline at all."""

    best: KnownTrial | None
    better: KnownTrial | None = None

    def __str__(self) -> str:
        """Why there is no speed-up, both baselines named."""
        if self.best is None or self.better is None:
            return "no sequential schedule was timed in the same block"
        return (
            f"the best sequential schedule of its block is {words(self.best)}, but {words(self.better)} is known to be "
            f"faster ({self.better.where})"
        )


@dataclass(frozen=True, slots=True)
class BlockBaselines:
    """The baselines of each block of what is known of one operator on one hardware."""

    blocks: Mapping[Place, Mapping[str, KnownTrial]]
    _lacking: dict[Place, BetterBaseline | None] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, trials: Iterable[KnownTrial]) -> BlockBaselines:
        blocks: dict[Place, dict[str, KnownTrial]] = {}
        for each in trials:
            if each.trial.schedule.scheme == BASELINE:
                blocks.setdefault(_place(each), {})[_today(each)] = each
        return cls(blocks)

    def best(self, each: KnownTrial) -> KnownTrial | None:
        """The fastest baseline of the block of *each*: what its ratio is over."""
        return min(self.blocks.get(_place(each), {}).values(), key=lambda one: one.time_s, default=None)

    def lacking(self, each: KnownTrial) -> BetterBaseline | None:
        """What the block of *each* lacks; None where its ratio is one.

        A baseline is faster if every block says so that timed it beside one of this block's. Blocks of the same
        sitting are asked before those of others: clocks differ from day to day.
        """
        place = _place(each)
        if place not in self._lacking:
            best, better = self.best(each), self._better(place)
            lacks = best is None or better is not None
            self._lacking[place] = BetterBaseline(best, better) if lacks else None
        return self._lacking[place]

    def _better(self, place: Place) -> KnownTrial | None:
        """The fastest of the baselines that the block at *place* does not hold, and that beat its best one."""
        here = self.blocks.get(place, {})
        of_problem = {other: there for other, there in self.blocks.items() if other[2] == place[2]}
        of_sitting = [there for other, there in of_problem.items() if other[0] == place[0]]
        compared_there = {
            schedule for there in of_sitting if here.keys() & there for schedule in there if schedule not in here
        }
        others = [{schedule: one for schedule, one in there.items() if schedule not in compared_there}
                  for other, there in of_problem.items() if other[0] != place[0]]  # fmt: skip
        known = (better(here, blocks, lambda one: one.time_s, beats) for blocks in (of_sitting, others))
        return min(filter(None, known), key=lambda one: one.time_s, default=None)


def beats(one: KnownTrial, other: KnownTrial, scale: float = 1.0) -> bool:
    """Whether *scale* times *one* is faster than *other*, and not by their spread alone: samples are asked for it."""
    is_faster = scale * one.time_s < other.time_s
    return is_faster and comparison.beats(row(one.measurement()), row(other.measurement()), scale)


def _place(each: KnownTrial) -> Place:
    return each.where, each.block, each.trial.problem


def _today(each: KnownTrial) -> str:
    """Its schedule with all axes that are read today: what older versions named is the same schedule."""
    trial = each.trial
    return str(sorted(axis_rules.all_axes(trial.problem, trial.schedule, trial.backend).items()))


def words(baseline: KnownTrial) -> str:
    """`collective library with 304 µs`."""
    how = baseline_title(dict(baseline.trial.schedule.axes))
    return " with ".join(filter(None, (how, seconds_text(baseline.time_s))))


# The fastest schedules that were ever measured: a query on recordings and runs by problem, hardware and versions.

FARTHEST = 2.0
"""Shapes whose sizes differ by more doublings and halvings together are not near enough to tell anything."""
VERSIONS = {"triton": ("torch", "triton", "nccl"), "cpu": ("torch", "numpy")}
"""What a time depends on besides our kernels, by backend."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Winner:
    """The best known schedule of one scheme."""

    known: KnownTrial
    schedule: Schedule
    """The same as it is asked for today: axes that did not exist then have their default."""
    differs: tuple[str, ...]
    """What is not as it was then, or not as it was asked for, each in words."""
    over: KnownTrial | None = None
    """The best baseline of its block, and what that block lacks: then there is no speed-up."""
    lacks: BetterBaseline | None = None

    @property
    def speed_up_over(self) -> str | None:
        """What its speed-up is over: `collective direct, 264 µs`; None where it has none."""
        return words(self.over) if self.over and self.lacks is None else None

    @property
    def source(self) -> str:
        """Where and when, with which versions and kernels."""
        known = self.known
        versions = [f"{name} {version}" for name, version in _versions(known)]
        hardware = known.hardware or known.facts.get("gpus")
        parts = [*([str(hardware)] if hardware else []), *versions, f"kernels {_kernels(known) or 'unknown'}"]
        return f"{known.where} of {datetime.fromtimestamp(known.at).date()}: {', '.join(parts)}"

    def to_json(self) -> dict[str, Any]:
        known = self.known
        return {
            "key": known.trial.key, "scheme": known.trial.schedule.scheme, "where": known.where,
            "date": str(datetime.fromtimestamp(known.at).date()), "time_s": known.time_s,
            "shape": dict(known.trial.problem.shape), "axes": dict(self.schedule.axes),
            "versions": dict(_versions(known)), "source_print": _kernels(known),
            "hardware": known.hardware and known.hardware.to_json(), "differs": list(self.differs),
            "speed_up": speed_up(known.time_s, self.over.time_s) if self.over and self.lacks is None else None,
            "speed_up_over": self.speed_up_over, "no_speed_up": self.lacks and str(self.lacks),
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class WinnerAnswer:
    """The answer: the winners, best first, or a sentence that says why there are none."""

    winners: tuple[Winner, ...]
    sentence: str = ""


@dataclass(frozen=True, slots=True)
class WantedSchedules:
    """Which schedules are asked for."""

    axes: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Values of axes that stay as they are."""
    schemes: Sequence[str] | None = None
    """None: all."""

    def has(self, schedule: Schedule) -> bool:
        pinned = [(value, self.axes[name]) for name, value in schedule.axes if name in self.axes]
        is_of_scheme = self.schemes is None or schedule.scheme in self.schemes
        return is_of_scheme and all(str(value) in map(str, values) for value, values in pinned)


def tuned(
    problem: Problem, machine: Machine, fabric: Fabric, candidates: Iterable[KnownTrial], here: Facts,
    wanted: WantedSchedules | None = None,
) -> WinnerAnswer:  # fmt: skip
    """The best of *candidates* per scheme for *problem* on *machine* over *fabric*, told apart from *here*.

    Of a trial that was measured several times the newest counts, of a baseline the one beside the best. Where this
    problem was never measured on this hardware, the nearest shape that was answers, and says so. A winner is of a
    block that holds the best baseline known; what was faster in another block, or was timed in no such block, comes
    last, and has no speed-up.
    """
    of_operator = [each for each in candidates if each.trial.problem.operator == problem.operator]
    here_too = [each for each in of_operator if _elsewhere(each, machine, fabric, here) is None]
    fitting = [each for each in here_too if wanted is None or wanted.has(each.trial.schedule)]
    distances = {each.trial.problem: _distance(each.trial.problem, problem) for each in fitting}
    near = min((distance for distance in distances.values() if distance <= FARTHEST), default=None)
    if near is None:
        return WinnerAnswer((), _absent(problem, machine, fabric, of_operator, here))
    nearest = [each for each in fitting if distances[each.trial.problem] == near]
    baselines = BlockBaselines.of(here_too)

    def winners(some: Sequence[KnownTrial]) -> dict[str, Winner]:
        best: dict[str, Winner] = {}
        for each in _best_first(some, here_too):
            scheme = each.trial.schedule.scheme
            if scheme not in best and (now := _now(each, problem, machine, fabric)) is not None:
                best[scheme] = Winner(known=each, schedule=now, differs=_differs(each, problem, now, here),
                                      over=baselines.best(each), lacks=baselines.lacking(each))  # fmt: skip
        return best

    best = winners([each for each in nearest if baselines.lacking(each) is None])
    others = winners([each for each in nearest if baselines.lacking(each) is not None])
    named = (*best.values(), *(one for scheme, one in others.items() if _adds(one, best.get(scheme))))
    return WinnerAnswer(named, "" if named else _absent(problem, machine, fabric, of_operator, here))


def _adds(other: Winner, best: Winner | None) -> bool:
    """Whether a schedule without a speed-up is named beside the *best* of its scheme: it is faster than that."""
    return best is None or (other.schedule.scheme != BASELINE and beats(other.known, best.known))


def _best_first(nearest: Sequence[KnownTrial], every: Iterable[KnownTrial]) -> list[KnownTrial]:
    """Each trial of *nearest* once; ordered as everywhere, by baselines among *every* where blocks are several."""
    sequential_s: dict[str | None, float] = {}
    for each in every:
        if each.trial.schedule.scheme == BASELINE and each.block is not None:
            sequential_s[each.block] = min(each.time_s, sequential_s.get(each.block, each.time_s))

    def ordered(some: Iterable[KnownTrial]) -> list[KnownTrial]:
        numbered = dict(enumerate(some))
        rows = [{"number": number, "source": "recorded", "time_s": each.time_s, "block": each.block,
                 "sequential_s": sequential_s.get(each.block), **each.trial.schedule.to_json()}
                for number, each in numbered.items()]  # fmt: skip
        return [numbered[row["number"]] for row in leading(rows)]

    newest = ordered({each.trial.key: each for each in sorted(nearest, key=lambda each: each.at)}.values())
    overlapped = [each for each in newest if each.trial.schedule.scheme != BASELINE]
    home = overlapped[0].block if overlapped else None
    beside = [each for each in nearest if home and each.block == home and each.trial.schedule.scheme == BASELINE]
    return ordered([*overlapped, *beside]) if beside else newest


def _now(each: KnownTrial, problem: Problem, machine: Machine, fabric: Fabric) -> Schedule | None:
    """Its schedule as it is asked for today; None where today's schemes find it illegal."""
    then = each.trial.schedule
    try:
        read = axis_rules.effective(problem, then, machine.backend)
        return schedule(problem, then.scheme, dict(read.axes), machine, fabric)
    except Refusal:
        return None


def _differs(each: KnownTrial, problem: Problem, now: Schedule, here: Facts) -> tuple[str, ...]:
    """What is not as it was then, or not as it was asked for, each in words."""
    differs = []
    if each.trial.problem != problem:
        differs.append(f"measured at the nearest shape, {_shape(each.trial.problem)}")
    if added := [f"{name}={value}" for name, value in now.axes if name not in dict(each.trial.schedule.axes)]:
        differs.append(f"today's schedule also has {', '.join(added)}")
    return (*differs, *_different_versions(each, here))


def _elsewhere(each: KnownTrial, machine: Machine, fabric: Fabric, here: Facts) -> str | None:
    """Other hardware or another link than is asked about, in words; CPU ranks are of the computer they ran on."""
    trial = each.trial
    if trial.machine != machine.name or trial.backend != machine.backend:
        return trial.machine
    if trial.backend == "cpu" and _processor(each) != (here["cpu"], here["cores"]):
        return str(each.hardware or f"{each.facts.get('cpu')} with {each.facts.get('cores')} cores")
    if trial.world > 1 and trial.fabric.as_requested != fabric.as_requested:
        return f"{trial.machine} over {_link(trial.fabric)}"
    return None


def _processor(each: KnownTrial) -> tuple[Any, Any]:
    """The processor of CPU ranks, and how many cores they had."""
    if each.hardware is None:  # as older runs and recordings wrote it down, of the host that asked
        return each.facts.get("cpu"), each.facts.get("cores")
    return each.hardware.model, each.hardware.cores and each.hardware.cores * each.trial.world


def _kernels(each: KnownTrial) -> str | None:
    """The print of the source that ran it, or what older runs and recordings have instead."""
    return each.facts.get("source_print") or each.facts.get("kernel_fingerprint")


def _distance(known: Problem, problem: Problem) -> float:
    """Doublings and halvings from shape to shape; infinite where anything but sizes differs."""
    shape, other = dict(known.shape), dict(problem.shape)
    if (known.dtype, known.world, set(shape)) != (problem.dtype, problem.world, set(other)):
        return float("inf")
    pairs = [(shape[name], other[name]) for name in shape]
    if any(one != two for one, two in pairs if isinstance(one, str) or isinstance(two, str)):
        return float("inf")
    return sum(abs(log2(int(one) / int(two))) for one, two in pairs if not isinstance(one, str))


def _versions(each: KnownTrial) -> list[tuple[str, str]]:
    versions = {**(each.facts.get("versions") or {}), **((each.facts.get("ranks") or {}).get("versions") or {})}
    return [(name, str(versions[name])) for name in VERSIONS[each.trial.backend] if versions.get(name)]


def _different_versions(each: KnownTrial, here: Facts) -> list[str]:
    versions = here["versions"]
    differences = [f"{name} {then}, here {versions.get(name) or 'none'}" for name, then in _versions(each)
            if then != versions.get(name)]  # fmt: skip
    kernels = _kernels(each)
    if kernels not in same_source(here["source_print"]):
        differences.append(f"kernels {kernels or 'unknown'}, here {here['source_print']}")
    return differences


def _absent(problem: Problem, machine: Machine, fabric: Fabric, others: Sequence[KnownTrial], here: Facts) -> str:
    """What was measured instead."""
    wanted = f"{problem.operator} ({_shape(problem)}, {problem.dtype}, {problem.world} ranks)"
    there = f"{machine.name} over {_link(fabric)}"
    places = dict.fromkeys(_elsewhere(each, machine, fabric, here) or "other shapes or axes here" for each in others)
    said = f"{len(others)} trials of it are known, from {'; '.join(places)}" if others else "no trial of it is known"
    return f"Nobody has measured {wanted} or a shape near it on {there}: {said}."


def _link(fabric: Fabric) -> str:
    """*fabric* with a space after each comma: a terminal breaks lines there."""
    return str(fabric.as_requested).replace(",", ", ")


def _shape(problem: Problem) -> str:
    return ", ".join(f"{name}={value}" for name, value in problem.shape)
