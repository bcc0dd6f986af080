"""Winners: the fastest known schedules, found in recordings and runs by problem, hardware and versions.

They are ordinary measurements, so no second store can contradict them. Measurements with other versions or older
kernels count too, and the winner says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from math import log2
from typing import Any

from kernels.fabric import Fabric
from kernels.hardware import Hardware
from kernels.machine import Machine
from kernels.outcome import Measurement, row
from kernels.problem import Problem
from kernels.schedule import Refusal, Schedule
from kernels.schemes import BASELINE, axis_rules, schedule
from kernels.trial import MANY_CALLS, ONE_CALL_ALONE, UNDER_LOAD, Trial
from kernels.units import num_text, seconds_text
from workbench.naming import baseline_title
from workbench.results import comparison, metrics, recordings, verdict
from workbench.results.comparison import better_baseline, leading
from workbench.results.metrics import ROUNDS, rounds_of, speed_up
from workbench.results.provenance import what_times_depend_on
from workbench.results.recordings import Headline
from workbench.results.rows import row_compared_as
from workbench.results.store import Store, same_source

# Known trials: correct measurements of whole trials in shipped recordings and in a store.

Facts = Mapping[str, Any]
"""Circumstances of a past or possible measurement, with the keys of `provenance`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTrial:
    """A whole trial with a correct measurement."""

    trial: Trial
    time_s: float
    where: str
    """The recording or run, as text."""
    run: str | None
    """The run; None for a recording."""
    at: float
    """Unix time of its last sample."""
    block: str | None
    """The block of schedules with which it was timed interleaved."""
    facts: Facts
    hardware: Hardware | None
    """The hardware that it ran on; None if unknown."""
    measurement: Callable[[], Measurement]
    """Reads its measurement with all samples."""
    references: Callable[[], Sequence[Measurement]] = tuple
    """Reads the other measurements of its block, with the baseline that its speed-up is over."""


def known(operator: str, store: Store | None = None, *, compared_as: str = MANY_CALLS,
          read: Callable[[Headline], bool] = lambda line: True) -> list[KnownTrial]:  # fmt: skip
    """All known whole trials of *operator* in *store* and in the shipped recordings: those lines that *read* accepts.

    *compared_as*: what their times are of (kernels/trial.py: compared_as). Winners are never chosen among several of
    these.
    """
    lines = [(line, of_file) for of_file in recordings.headlines(operator).values() for line in of_file]
    trials = [_recorded(line, of_file) for line, of_file in lines if _counts(line, compared_as) and read(line)]
    trials += [_of_run(entry, store) for entry in store.right_wholes(operator)] if store else []
    return [each for each in trials if each.trial.compared_as == compared_as]


def _counts(each: Headline, compared_as: str) -> bool:
    """Whether the recorded line *each* is of a correct whole trial, and its time is of *compared_as*."""
    is_correct_whole = each.row.get("part") == "whole" and bool(each.row.get("correct"))
    return is_correct_whole and row_compared_as(each.row) == compared_as


def _recorded(headline: Headline, of_file: Sequence[Headline]) -> KnownTrial:
    entry = headline.recorded()
    return KnownTrial(
        trial=entry.measurement.trial, time_s=entry.measurement.time_s, where=f"recording {headline.name}", run=None,
        at=max(sample.at for sample in entry.samples), block=entry.measurement.block,
        hardware=entry.measurement.hardware,
        facts=_with_print(entry.provenance, entry.measurement.source_print),
        measurement=lambda: entry.measurement,
        references=lambda: [each.recorded().measurement for each in of_file if each.block == headline.block],
    )  # fmt: skip


def _of_run(entry: Mapping[str, Any], store: Store) -> KnownTrial:
    return KnownTrial(
        trial=Trial.from_json(entry["trial"]), time_s=entry["time_s"], where=f"run {entry['run']}", run=entry["run"],
        at=entry["at"], block=entry["block"], facts=_with_print(entry["provenance"], entry["source_print"]),
        hardware=entry["hardware"],
        measurement=lambda: store.measurement(entry["id"]),
        references=lambda: [each for each, _ in store.references_of_block(store.measurement(entry["id"]).block or "")],
    )  # fmt: skip


def _with_print(facts: Facts, source_print: str | None) -> Facts:
    """*facts* with the measurement's own source fingerprint: the kernels may change during a run."""
    return {**facts, "source_print": source_print} if source_print else facts


# Blocks that miss a better baseline: their winners have no speed-up.

Place = tuple[str, str | None, Problem]
"""A run or recording, a block of it, and the problem of that block."""


@dataclass(frozen=True, slots=True)
class BetterBaseline:
    """A block's best baseline, and a faster one that the block misses."""

    best: KnownTrial | None
    """None if the block has no baseline."""
    better: KnownTrial | None = None

    def __str__(self) -> str:
        """Why there is no speed-up, with both baselines."""
        if self.best is None or self.better is None:
            return "no sequential schedule was timed in the same block"
        best, better = baseline_text(self.best), baseline_text(self.better)
        return (
            f"the best sequential schedule of its block is {best}, but {better} is known to be faster "
            f"({self.better.where})"
        )


@dataclass(frozen=True, slots=True)
class BlockBaselines:
    """The baselines of each block with known trials of one operator on one hardware."""

    blocks: Mapping[Place, Mapping[str, KnownTrial]]
    _missing: dict[Place, BetterBaseline | None] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, trials: Iterable[KnownTrial]) -> BlockBaselines:
        blocks: dict[Place, dict[str, KnownTrial]] = {}
        for each in trials:
            if each.trial.schedule.scheme == BASELINE:
                blocks.setdefault(_place(each), {})[_current_schedule_key(each)] = each
        return cls(blocks)

    def best(self, each: KnownTrial) -> KnownTrial | None:
        """The fastest baseline of the block of *each*, which its speed-up is over."""
        return min(self.blocks.get(_place(each), {}).values(), key=lambda one: one.time_s, default=None)

    def missing_better_baseline(self, each: KnownTrial) -> BetterBaseline | None:
        """The better baseline that the block of *each* misses; None if its speed-up is valid.

        Blocks of the same run judge before those of others, because clocks differ from day to day.
        """
        place = _place(each)
        if place not in self._missing:
            best, better = self.best(each), self._better(place)
            is_valid = best is not None and better is None
            self._missing[place] = None if is_valid else BetterBaseline(best, better)
        return self._missing[place]

    def _better(self, place: Place) -> KnownTrial | None:
        """The fastest baseline that the block at *place* misses and that beats its best one."""
        here = self.blocks.get(place, {})
        of_problem = {other: there for other, there in self.blocks.items() if other[2] == place[2]}
        of_run = [there for other, there in of_problem.items() if other[0] == place[0]]
        # baselines that blocks of the same run have judged: blocks of other runs do not count for them
        judged = {schedule for there in of_run if here.keys() & there for schedule in there if schedule not in here}
        others = [{schedule: baseline for schedule, baseline in there.items() if schedule not in judged}
                  for other, there in of_problem.items() if other[0] != place[0]]  # fmt: skip
        known = (better_baseline(here, blocks, lambda one: one.time_s, beats) for blocks in (of_run, others))
        return min(filter(None, known), key=lambda one: one.time_s, default=None)


def beats(trial: KnownTrial, other: KnownTrial) -> bool:
    """Whether the verdict on *trial* is that it is faster than *other*, which took turns with it.

    Samples are read only if the times alone do not refute it.
    """
    return trial.time_s < other.time_s and comparison.beats(*map(_with_rounds, (trial, other)))


def _with_rounds(trial: KnownTrial) -> dict[str, Any]:
    measurement = trial.measurement()
    return {**row(measurement), ROUNDS: rounds_of(measurement.samples)}


def as_fast(winners: Sequence[Winner]) -> tuple[list[Winner], list[Winner]]:
    """Of *winners*, best first: those of its block that may be as fast as the first, and those of other blocks.

    It reads samples, so the store of the winners must be open.
    """
    rows = [{**_with_rounds(each.known), "block": str(_place(each.known))} for each in winners]
    judged = verdict.fastest(rows[0], rows)
    by_row = {id(row): winner for row, winner in zip(rows, winners, strict=True)}
    return [by_row[id(row)] for row in judged.near], [by_row[id(row)] for row in judged.not_compared]


RATIOS = ("sequential_s", "plain_s", "time_ratio")
"""Keys about the baselines of a row's block, which are empty where a faster baseline is known."""


def row_of_winner(winner: Winner, machine: Machine) -> dict[str, Any]:
    """The row of *winner*, joined with the baselines of its block; without ratios where it has no speedup."""
    known = winner.known
    outcomes = (known.measurement(), *known.references())
    row = metrics.fill([metrics.row_of(outcome, known.run, machine) for outcome in outcomes])[0]
    without = f"no speed-up: {winner.missing_baseline}" if winner.missing_baseline else ""
    message = "; ".join(filter(None, (winner.source, *winner.differs, without)))
    return {**row, **(dict.fromkeys(RATIOS) if winner.missing_baseline else {}), "message": message}


def _place(each: KnownTrial) -> Place:
    return each.where, each.block, each.trial.problem


def _current_schedule_key(each: KnownTrial) -> str:
    """Key of its schedule with all of today's axes, by which schedules of older versions compare equal."""
    trial = each.trial
    return str(sorted(axis_rules.all_axes(trial.problem, trial.schedule, trial.backend).items()))


def baseline_text(baseline: KnownTrial) -> str:
    """*baseline* as text, such as `collective library with 304 µs`."""
    how = baseline_title(dict(baseline.trial.schedule.axes))
    return " with ".join(filter(None, (how, seconds_text(baseline.time_s))))


# The query for winners.

MAX_DISTANCE = 2.0
"""The most doublings and halvings, over all sizes, by which a near shape may differ."""
VERSIONS = {"triton": ("torch", "triton", "nccl"), "cpu": ("torch", "numpy")}
"""Packages that a time depends on in addition to our kernels, by backend."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Winner:
    """The best known schedule of one scheme."""

    known: KnownTrial
    schedule: Schedule
    """Its schedule in today's form: axes that are newer have their default."""
    differs: tuple[str, ...]
    """Differences to the measured trial or to the request, as texts."""
    over: KnownTrial | None = None
    """The best baseline of its block."""
    missing_baseline: BetterBaseline | None = None
    """The better baseline that its block misses: then there is no speed-up."""

    @property
    def speed_up_over(self) -> str | None:
        """The baseline of its speed-up, such as `collective direct with 264 µs`; None if it has none."""
        return baseline_text(self.over) if self.over and self.missing_baseline is None else None

    @property
    def source(self) -> str:
        """Place, date, hardware, versions and kernels of the measurement, as text."""
        known = self.known
        versions = [f"{name} {version}" for name, version in _versions(known)]
        hardware = known.hardware or known.facts.get("gpus")
        parts = [*([str(hardware)] if hardware else []), *versions, f"kernels {_kernels(known) or 'unknown'}"]
        return f"{known.where} of {datetime.fromtimestamp(known.at).date()}: {', '.join(parts)}"

    def to_json(self) -> dict[str, Any]:
        known, over = self.known, None if self.missing_baseline else self.over
        return {
            "key": known.trial.key, "scheme": known.trial.schedule.scheme, "where": known.where,
            "date": str(datetime.fromtimestamp(known.at).date()), "time_s": known.time_s,
            "shape": dict(known.trial.problem.shape), "axes": dict(self.schedule.axes),
            "versions": dict(_versions(known)), "source_print": _kernels(known),
            "hardware": known.hardware and known.hardware.to_json(), "differs": list(self.differs),
            "speed_up": speed_up(known.time_s, over.time_s) if over else None,
            "speed_up_over": self.speed_up_over, "no_speed_up": self.missing_baseline and str(self.missing_baseline),
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class WinnerAnswer:
    """The winners, best first, or a message that says why there are none."""

    winners: tuple[Winner, ...]
    message: str = ""
    known_here: int = 0
    """How many trials of its operator and number of ranks are known on the machine, whatever their sizes.

    Only those count whose times are of the same as the winners'.
    """
    disturbed: int = 0
    """How many measurements of the problem here do not count, since others used the cores meanwhile."""


@dataclass(frozen=True, slots=True)
class WantedSchedules:
    """Constraints on requested schedules."""

    axes: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Accepted values of fixed axes."""
    schemes: Sequence[str] | None = None
    """Accepted schemes; None: all."""

    def has(self, schedule: Schedule) -> bool:
        pinned = [(value, self.axes[name]) for name, value in schedule.axes if name in self.axes]
        is_of_scheme = self.schemes is None or schedule.scheme in self.schemes
        return is_of_scheme and all(str(value) in map(str, values) for value, values in pinned)


def tuned(
    problem: Problem, machine: Machine, fabric: Fabric, candidates: Iterable[KnownTrial], here: Facts,
    wanted: WantedSchedules | None = None,
) -> WinnerAnswer:  # fmt: skip
    """The best of *candidates* per scheme for *problem* on *machine* over *fabric*, with differences to *here*.

    The newest measurement of a trial counts; for a baseline, the one in the block of the best overlapping schedule.
    Runs of this person count before recordings (`_of_this_person`). If this problem was never measured on this
    hardware, the nearest measured shape is used, and the winner says so. A winner's block holds the best known
    baseline. Schedules without such a block, or faster outside it, come last and have no speed-up.
    """
    of_operator = [each for each in candidates if each.trial.problem.operator == problem.operator]
    measured_here = [each for each in of_operator if _elsewhere(each, machine, fabric, here) is None]
    fitting = [each for each in measured_here if wanted is None or wanted.has(each.trial.schedule)]
    distances = {each.trial.problem: _distance(each.trial.problem, problem) for each in fitting}
    near = min((distance for distance in distances.values() if distance <= MAX_DISTANCE), default=None)
    if near is None:
        return WinnerAnswer((), _absent(problem, machine, fabric, *_places(of_operator, machine, fabric, here)))
    nearest = _of_this_person([each for each in fitting if distances[each.trial.problem] == near])
    baselines = BlockBaselines.of(measured_here)

    def winners(trials: Sequence[KnownTrial]) -> dict[str, Winner]:
        best: dict[str, Winner] = {}
        for each in _best_first(trials, measured_here):
            scheme = each.trial.schedule.scheme
            if scheme not in best and (current := _current_schedule(each, problem, machine, fabric)) is not None:
                best[scheme] = Winner(known=each, schedule=current, differs=_differs(each, problem, current, here),
                                      over=baselines.best(each),
                                      missing_baseline=baselines.missing_better_baseline(each))  # fmt: skip
        return best

    best = winners([each for each in nearest if baselines.missing_better_baseline(each) is None])
    others = winners([each for each in nearest if baselines.missing_better_baseline(each) is not None])
    named = (*best.values(), *(winner for scheme, winner in others.items() if _adds(winner, best.get(scheme))))
    return WinnerAnswer(
        named, "" if named else _absent(problem, machine, fabric, *_places(of_operator, machine, fabric, here))
    )


def _of_this_person(trials: Sequence[KnownTrial]) -> Sequence[KnownTrial]:
    """Those of *trials* of this person's runs, which a recording of another computer does not outdo.

    All of them where those runs have sequential schedules alone: then a recording knows more.
    """
    of_runs = [each for each in trials if each.run is not None]
    return of_runs if any(each.trial.schedule.scheme != BASELINE for each in of_runs) else trials


def nearest_winners(problem: Problem, machine: Machine, fabric: Fabric, wanted: WantedSchedules,
                    store: Store | None = None, *, compared_as: str = MANY_CALLS) -> WinnerAnswer:  # fmt: skip
    """`tuned` among all that is known, reading no more recorded trials than that takes: the nearest shape's.

    A winner and its baselines are of one problem and one machine, and their times are all of *compared_as*
    (kernels/trial.py: compared_as). Nothing else counts as known.
    """
    operator = problem.operator
    stored = known(operator, store, compared_as=compared_as, read=_nothing)
    of_store = [(_distance(each.trial.problem, problem), each) for each in stored]
    of_files = recordings.headlines(operator).values()
    lines = [line for of_file in of_files for line in of_file if _counts(line, compared_as)]
    disturbed = _num_disturbed(problem, machine, fabric, store, compared_as) if store else 0
    placed = [(line.row.get("machine"), line.row.get("world")) for line in lines]
    placed += [(each.trial.machine, each.trial.world) for _, each in of_store]
    known_here = placed.count((machine.name, problem.world))
    distances = {*(_row_distance(line, problem, machine) for line in lines), *(distance for distance, _ in of_store)}
    for least in sorted(distance for distance in distances if distance <= MAX_DISTANCE):
        near = known(operator, compared_as=compared_as, read=partial(_is_at, least, problem, machine))
        near += [each for distance, each in of_store if distance <= least]
        answer = tuned(problem, machine, fabric, near, what_times_depend_on(machine), wanted)
        if answer.winners:
            return replace(answer, known_here=known_here, disturbed=disturbed)
    places = [str(line.row["machine"]) for line in lines if line.row.get("machine") != machine.name]
    places += ["other shapes, links or axes here"] * (len(places) < len(lines) or bool(of_store))
    message = _absent(problem, machine, fabric, places, len(lines) + len(of_store), HOW_TIMED[compared_as])
    return WinnerAnswer((), message, known_here, disturbed)


def _num_disturbed(problem: Problem, machine: Machine, fabric: Fabric, store: Store, compared_as: str) -> int:
    """How many measurements of *problem* on *machine* over *fabric* others disturbed: those are no winners."""
    here = what_times_depend_on(machine)
    several = [_of_run(entry, store) for entry in store.right_wholes(problem.operator, quiet=False)]
    of_problem = [each for each in several if each.trial.problem == problem and each.trial.compared_as == compared_as]
    return sum(_elsewhere(each, machine, fabric, here) is None for each in of_problem)


def _nothing(line: Headline) -> bool:
    return False


def _is_at(distance: float, problem: Problem, machine: Machine, line: Headline) -> bool:
    return _row_distance(line, problem, machine) == distance


def _row_distance(each: Headline, problem: Problem, machine: Machine) -> float:
    """The `_distance` of a recorded trial; infinite on another machine, 0 where only the whole line can say it."""
    row = each.row
    if row.get("machine") != machine.name or (row.get("dtype"), row.get("world")) != (problem.dtype, problem.world):
        return float("inf")
    try:
        return _shape_distance(row["shape"], dict(problem.shape))
    except (TypeError, ValueError):
        return 0.0


def _adds(other: Winner, best: Winner | None) -> bool:
    """Whether *other*, without a speed-up, is listed after the *best* of its scheme: it may be faster."""
    return best is None or (other.schedule.scheme != BASELINE and other.known.time_s < best.known.time_s)


def _best_first(nearest: Sequence[KnownTrial], every: Iterable[KnownTrial]) -> list[KnownTrial]:
    """Each trial of *nearest* once, best first; *every* holds the baselines by which different blocks compare."""
    sequential_s: dict[str | None, float] = {}
    for each in every:
        if each.trial.schedule.scheme == BASELINE and each.block is not None:
            sequential_s[each.block] = min(each.time_s, sequential_s.get(each.block, each.time_s))

    def ordered(trials: Iterable[KnownTrial]) -> list[KnownTrial]:
        numbered = dict(enumerate(trials))
        rows = [{"number": number, "source": "recorded", "time_s": each.time_s, "block": each.block,
                 "sequential_s": sequential_s.get(each.block), **each.trial.schedule.to_json()}
                for number, each in numbered.items()]  # fmt: skip
        return [numbered[row["number"]] for row in leading(rows)]

    newest = ordered({each.trial.key: each for each in sorted(nearest, key=lambda each: each.at)}.values())
    overlapped = [each for each in newest if each.trial.schedule.scheme != BASELINE]
    best_block = overlapped[0].block if overlapped else None
    plain = [
        each for each in nearest if best_block and each.block == best_block and each.trial.schedule.scheme == BASELINE
    ]
    return ordered([*overlapped, *plain]) if plain else newest


def _current_schedule(each: KnownTrial, problem: Problem, machine: Machine, fabric: Fabric) -> Schedule | None:
    """Its schedule in today's form; None if today's schemes refuse it."""
    then = each.trial.schedule
    try:
        read = axis_rules.effective(problem, then, machine.backend)
        return schedule(problem, then.scheme, dict(read.axes), machine, fabric)
    except Refusal:
        return None


def _differs(each: KnownTrial, problem: Problem, current: Schedule, here: Facts) -> tuple[str, ...]:
    """Differences of *each* to the requested *problem*, its *current* schedule and *here*, as texts."""
    differs = []
    if each.trial.problem != problem:
        differs.append(f"measured at the nearest shape, {_shape(each.trial.problem)}")
    if added := [f"{name}={value}" for name, value in current.axes if name not in dict(each.trial.schedule.axes)]:
        differs.append(f"today's schedule also has {', '.join(added)}")
    return (*differs, *_different_versions(each, here))


def _elsewhere(each: KnownTrial, machine: Machine, fabric: Fabric, here: Facts) -> str | None:
    """Hardware or link of *each* if it is not the requested one; CPU ranks depend on their computer."""
    trial = each.trial
    if trial.machine != machine.name or trial.backend != machine.backend:
        return trial.machine
    if trial.backend == "cpu" and _processor(each) != (here["cpu"], here["cores"]):
        return str(each.hardware or f"{each.facts.get('cpu')} with {each.facts.get('cores')} cores")
    if trial.world > 1 and trial.fabric.as_requested != fabric.as_requested:
        return f"{trial.machine} over {_link(trial.fabric)}"
    return None


def _processor(each: KnownTrial) -> tuple[Any, Any]:
    """The processor and number of cores of CPU ranks."""
    if each.hardware is None:  # older runs and recordings have the host of the client instead
        return each.facts.get("cpu"), each.facts.get("cores")
    return each.hardware.model, each.hardware.cores and each.hardware.cores * each.trial.world


def _kernels(each: KnownTrial) -> str | None:
    """Its source fingerprint, or the kernel fingerprint of older runs and recordings."""
    return each.facts.get("source_print") or each.facts.get("kernel_fingerprint")


def _distance(known: Problem, problem: Problem) -> float:
    """Doublings and halvings between two shapes; infinite if anything but sizes differs."""
    if (known.dtype, known.world) != (problem.dtype, problem.world):
        return float("inf")
    return _shape_distance(dict(known.shape), dict(problem.shape))


def _shape_distance(shape: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    if set(shape) != set(other):
        return float("inf")
    pairs = [(shape[name], other[name]) for name in shape]
    if any(size != wanted for size, wanted in pairs if isinstance(size, str) or isinstance(wanted, str)):
        return float("inf")
    return sum(abs(log2(int(size) / int(wanted))) for size, wanted in pairs if not isinstance(size, str))


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


def _places(others: Sequence[KnownTrial], machine: Machine, fabric: Fabric, here: Facts) -> tuple[list[str], int]:
    """Where *others* were measured, and how many they are."""
    return [_elsewhere(each, machine, fabric, here) or "other shapes or axes here" for each in others], len(others)


HOW_TIMED = {MANY_CALLS: "", ONE_CALL_ALONE: " with one call per graph", UNDER_LOAD: " under steady load"}
"""By what times are of, how a sentence about measurements ends; calls in a row are usual, and need no words."""


def _absent(
    problem: Problem, machine: Machine, fabric: Fabric, places: Iterable[str], count: int, timed: str = ""
) -> str:
    """The message without winners: what was requested, and the *places* where *count* others were measured instead.

    *timed*: how both were timed (HOW_TIMED).
    """
    wanted = f"{problem.operator} ({_shape(problem)}, {problem.dtype}, {num_text(problem.world, 'rank')})"
    there = f"{machine.name} over {_link(fabric)}"
    known = (
        f"{count} trials of it are known, from {'; '.join(dict.fromkeys(places))}"
        if count
        else f"no trial of it{timed} is known"
    )
    return f"Nobody has measured {wanted} or a shape near it on {there}{timed}: {known}."


def _link(fabric: Fabric) -> str:
    """*fabric* with a space after each comma: a terminal breaks lines there."""
    return str(fabric.as_requested).replace(",", ", ")


def _shape(problem: Problem) -> str:
    return ", ".join(f"{name}={value}" for name, value in problem.shape)
