"""The answer: which schedule to take, why, how sure that is, and which command would make it surer.

A time of the same problem on the same hardware comes before any estimate; one of another shape only supports it. Where
two schedules are within noise, the simpler one is taken, unless its time is longer by more than SIMPLER_COSTS.
Where no estimate is good enough, the answer says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from math import exp, hypot, log
from pathlib import Path
from typing import Any

from kernels.backends.capabilities import MeasuringRanks
from kernels.fabric import Fabric
from kernels.machine import Machine
from kernels.operators import OPERATORS
from kernels.outcome import Estimate
from kernels.problem import Problem
from kernels.schedule import Refusal, Schedule, Value, tile
from kernels.schemes import BASELINE, COMPARED, SCHEMES, schedule
from kernels.schemes.auto import CANDIDATES
from kernels.trial import (
    MANY_CALLS,
    ONE_CALL_ALONE,
    PROTOCOLS,
    UNDER_LOAD,
    Protocol,
    compared_as,
    protocol,
    protocol_refusal,
)
from kernels.units import num_text, percent_text, ratio_text, seconds_text, spread_text
from workbench.experiment.advice import TILE, Signature, advice, signature
from workbench.experiment.crossover import NOT_CERTAIN, Crossover, crossover
from workbench.experiment.experiment import Experiment
from workbench.experiment.links import link_here
from workbench.experiment.question import Request, command, together
from workbench.experiment.recommend import leaders
from workbench.experiment.space import Choice, Space
from workbench.experiment.winners import (
    HOW_TIMED,
    WantedSchedules,
    Winner,
    WinnerAnswer,
    as_fast,
    baseline_text,
    nearest_winners,
    row_of_winner,
)
from workbench.machines import trust, unmeasurable
from workbench.naming import operator_title
from workbench.results import metrics
from workbench.results.rows import Row
from workbench.results.store import Store, store_path
from workbench.simulator.predict import UNCALIBRATED

# What is asked, and the answer.

CERTAIN, LIKELY, WITHIN_NOISE, NOT_KNOWN = "certain", "likely", "within noise", "not known"
"""How sure an answer is: by a verdict of one block; by more than the intervals; by less than them; not at all."""
DISTURBED = "what was measured here was disturbed by other programs, and does not count"
REASONS = 3
"""The most reasons of an answer; the rest are remarks."""
ALIKE = 0.02
"""Share by which two estimates may differ and count as alike, where their intervals are too wide to tell anything."""
SIMPLER_COSTS = 0.05
"""The most by which a simpler schedule's time may be above the best one's, where nothing separates them with certainty.

What is not certain may still be likely: 64 ms against 105 ms are more than a matter of taste. Of 203 recorded problems
whose estimates alone were asked, this rule loses 2.3 % in the mean, and the simplest at any price 6.6 %
(docs/results/choice.md).
"""
RULE_IS_OF = {ONE_CALL_ALONE: ", which is of many calls in a row,", UNDER_LOAD: ", which is of bursts,"}
"""By what an answer is of, what the rule in words is of instead."""
TO_MEASURE = 5
"""Schedules that are worth a measurement together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What an answer may choose from."""

    schemes: tuple[str, ...]
    settings: Mapping[str, Sequence[str]]
    """Accepted values of axes, as texts."""
    count: int = TO_MEASURE
    """Estimates that are listed."""
    protocol: Protocol = PROTOCOLS["default"]
    """Whether the answer is for calls in a row, for one call per graph or for steady load; nothing else matters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A schedule for a problem, and what speaks for it. Times are in seconds."""

    problem: Problem
    machine: str
    protocol: Protocol
    """What was wished for."""
    timed_as: str
    """What its measured times are of (kernels/trial.py: compared_as). Estimates are never of ONE_CALL_ALONE."""
    fabric: Fabric
    """As requested."""
    linked: Fabric
    """The same with the bandwidth that the estimates are for."""
    schedule: Schedule
    unusual: Mapping[str, Value]
    """Its axes that differ from their defaults."""
    time_s: float
    low_s: float
    high_s: float
    """The middle 80 % of samples of a measured time; the interval of an estimate."""
    source: str
    """`measured`, `recorded` or `estimated`."""
    date: str | None
    """The day of the measurement; None for an estimate."""
    speed_up: float | None
    """Over the best sequential schedule of the same block, or by estimate too; None: it is one, or none was timed."""
    speed_up_over: str | None
    reasons: tuple[str, ...]
    remarks: tuple[str, ...]
    """Further reasons, which matter less."""
    crossover: Crossover | None
    confidence: str
    """CERTAIN, LIKELY, WITHIN_NOISE or NOT_KNOWN."""
    unknown: str
    """Why it is not known, as a clause; else empty."""
    never_measured: bool
    """Whether the machine was calibrated, but never with this operator or number of ranks."""
    next_command: str
    """The command that would make it surer; empty where nothing would."""
    is_elsewhere: bool = False
    """Whether this host cannot measure on the machine, so that the command is for another host."""
    rows: tuple[Row, ...]
    """Measured schedules of this problem, then estimated ones, the fastest first, each with its `reason`."""
    schedules: tuple[Schedule, ...]
    """Those of the rows, with today's axes."""
    winners: WinnerAnswer
    """The best known schedules by scheme, of this problem or of the nearest one."""

    @property
    def text(self) -> str:
        """The answer in one sentence."""
        time = spread_text(self.time_s, self.low_s, self.high_s)
        timed = f"{time}, {self.source} {self.date}" if self.date else time.replace(" (", " by estimate (", 1)
        timed = timed if self.date or "by estimate" in timed else f"{timed} by estimate"
        over = f", {ratio_text(self.speed_up)} over {self.speed_up_over}" if self.speed_up else ""
        disturbed = "" if self.date or not self.winners.disturbed else DISTURBED
        if self.unknown:
            also = f", and {disturbed}" if disturbed else ""
            return f"Not known: {self.unknown}{also}. Try {self.schedule.scheme} first{self._how_timed}: {timed}{over}."
        return f"Take {self.schedule.scheme}{self._how_timed}: {timed}{over}{f'; {disturbed}' if disturbed else ''}."

    @property
    def _how_timed(self) -> str:
        """What its time is of; calls in a row are usual, and need no words."""
        is_in_a_row = self.timed_as == ONE_CALL_ALONE and self.source == "estimated"
        return "" if is_in_a_row else HOW_TIMED[self.timed_as]

    @property
    def axes_text(self) -> str:
        """Its axes, as a sentence."""
        if not self.unusual:
            return "All of its axes are at their defaults."
        return f"Its axes: {', '.join(f'{name}={value}' for name, value in self.unusual.items())}; else the defaults."

    @property
    def crossover_text(self) -> str:
        """What would change the answer, as a sentence; empty where nothing is known to."""
        return self.crossover.text(self.schedule.scheme) if self.crossover else ""

    @property
    def surer(self) -> str:
        """What stands before the command: where it runs, if not here."""
        return f"To be surer, on that machine ({self.machine}):" if self.is_elsewhere else "To be surer:"

    def lines(self) -> list[str]:
        """Everything that a person reads first, the command last."""
        last = [f"{self.surer} {self.next_command}"] if self.next_command else []
        return [self.text, self.axes_text, *self.reasons, *filter(None, [self.crossover_text]), *last]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def summary(self) -> dict[str, Any]:
        """The summary of its JSON document."""
        return {
            "answer": self.text, "reasons": list(self.reasons), "crossover": self.crossover_text or None,
            "confidence": self.confidence, "next": self.next_command or None,
            "schedule": {"scheme": self.schedule.scheme, "axes": dict(self.schedule.axes), "time_s": self.time_s,
                         "low_s": self.low_s, "high_s": self.high_s, "source": self.source, "date": self.date,
                         "speed_up": self.speed_up, "speed_up_over": self.speed_up_over},
            "remarks": list(self.remarks), "machine": self.machine,
            "tuned": [each.to_json() for each in self.winners.winners],
        }  # fmt: skip

    def best(self, count: int = TO_MEASURE, by: str = "default") -> Experiment:
        """The experiment that times the answer and the best of the other rows, in one block, *by* a protocol's name."""
        some = list(dict.fromkeys([self.schedule, *self.schedules]))[:count]
        space = Space(tuple(Choice(each.scheme, tuple((name, (value,)) for name, value in each.axes)) for each in some))
        return Experiment(
            problems=(self.problem,), space=space, backend=str(self.rows[0]["backend"]), machine=self.machine,
            fabric=self.fabric, protocol=PROTOCOLS[by], parts="baseline", together=True,
            title=f"{operator_title(self.problem.operator)}: the best {len(some)} of the answer",
        )  # fmt: skip


# Who asks: a command, or Python.


def answer_of(request: Request, store: Store | None = None, count: int = TO_MEASURE) -> Answer:
    """The answer to *request*; ValueError where it cannot be asked, or nothing runs. *store* must be open."""
    machine = request.machine_description()
    problem, fabric = request.problem(machine), request.link(machine)
    request.space(problem, machine, fabric)  # refuses axes that none of its schemes has
    wish = Wish(schemes=request.schemes or COMPARED, settings=dict(request.settings), count=count,
                protocol=protocol(request.protocol))  # fmt: skip
    return answer(problem, machine, fabric, wish, store, linked=link_here(fabric, problem, machine, store))


TAKEN = ("preset", "dtype", "world", "schemes", "settings", "backend", "machine", "fabric", "protocol")
"""What `workbench.recommend` takes in addition to operator, shape and store, as the command's options do."""


def recommend(operator: str, shape: Mapping[str, int | str] | None = None, *, store: str | Path | None = None,
              **fields: Any) -> Answer:  # fmt: skip
    """Which schedule to take for *operator* with the sizes of *shape*, why, and how sure that is.

    *fields* are `preset` (in place of *shape*), `dtype`, `world`, `schemes`, `settings` (axis values by name),
    `backend`, `machine`, `fabric` and `protocol`, as options of `workbench recommend`. *store*: a file of runs other
    than this person's. ValueError where the question cannot be asked. Nothing is measured, and no store is made.
    """
    if unknown := [name for name in fields if name not in TAKEN]:
        raise Refusal(f"recommend takes no {unknown[0]!r}. Accepted: {', '.join(('shape', *TAKEN, 'store'))}.")
    several = fields.pop("schemes", None) or ()
    schemes = (several,) if isinstance(several, str) else tuple(several)
    settings = {name: values if isinstance(values, list | tuple) else (values,)
                for name, values in (fields.pop("settings", None) or {}).items()}  # fmt: skip
    request = Request(
        operator=operator, shape=tuple((name, str(size)) for name, size in (shape or {}).items()), schemes=schemes,
        settings=tuple((name, tuple(map(str, values))) for name, values in settings.items()), **fields,
    )  # fmt: skip
    path = store_path(None if store is None else Path(store))
    with Store(path) if path.exists() else nullcontext() as known:
        return answer_of(request, known)


# How it is made.


@dataclass(frozen=True, slots=True, kw_only=True)
class _Option:
    """One schedule with its time."""

    schedule: Schedule
    time_s: float
    low_s: float
    high_s: float
    row: Row
    winner: Winner | None = None
    """What was measured; None for an estimate."""

    @property
    def scheme(self) -> str:
        return self.schedule.scheme


def answer(
    problem: Problem, machine: Machine, fabric: Fabric, wish: Wish, store: Store | None = None, *,
    linked: Fabric | None = None,
) -> Answer:  # fmt: skip
    """The answer for *problem* on *machine* over *fabric*, among the schedules of *wish*; ValueError where none runs.

    *store* has this person's measurements, which must be open; *linked* is *fabric* with its known bandwidth.
    """
    if (message := protocol_refusal(wish.protocol, machine.backend)) is not None:
        raise Refusal(message)
    ranks = MeasuringRanks(machine, linked or fabric)
    wanted = WantedSchedules(dict(wish.settings), wish.schemes)
    timed_as = compared_as(wish.protocol.name, machine.backend)
    winners = nearest_winners(problem, machine, fabric, wanted, store, compared_as=timed_as)
    try:
        estimates = leaders(problem, ranks, wish.schemes, wish.settings, wish.protocol)
    except Refusal:  # what was measured under steady load answers where no estimate does
        if not wish.protocol.is_steady or all(each.known.trial.problem != problem for each in winners.winners):
            raise
        estimates = {}
    made = _Making(problem, ranks, fabric, wish.protocol, estimates, winners)
    return made.answer(wish.count)


class _Making:
    """One answer while it is made."""

    def __init__(self, problem: Problem, ranks: MeasuringRanks, requested: Fabric, protocol: Protocol,
                 estimates: Mapping[str, list[Estimate]], winners: WinnerAnswer) -> None:  # fmt: skip
        self.problem, self.ranks, self.requested, self.winners = problem, ranks, requested, winners
        self.protocol = protocol
        self.machine = ranks.machine
        self.timed_as = compared_as(protocol.name, self.machine.backend)
        self.estimated = {name: [_estimated(each, self.machine) for each in some] for name, some in estimates.items()}
        of_problem = [each for each in winners.winners if each.known.trial.problem == problem]
        self.measured = [_measured(each, self.machine) for each in of_problem]
        self.near = [each for each in winners.winners if each.known.trial.problem != problem]
        self.signature: Signature = signature(problem, self.machine, ranks.fabric)
        self.unknown, self.never_measured = ("", False) if of_problem else self._unknown()

    def answer(self, count: int) -> Answer:
        """The answer, with *count* estimates among its rows."""
        chosen, confidence, first = self._by_measurements() if self.measured else self._by_estimates()
        close = self._close(chosen)
        some = self.machine, self.ranks.fabric
        usual = dict(schedule(self.problem, chosen.scheme, {}, *some).axes)
        reasons = [*first, self._rule(chosen), *self._tiles(chosen), *self._faster(chosen), *self._older(chosen)]
        speed_up, over = self._speed_up(chosen)
        listed = sorted((each for several in self.estimated.values() for each in several), key=lambda one: one.time_s)
        options = (*self.measured, *listed[:count])
        return Answer(
            problem=self.problem, machine=self.machine.name, protocol=self.protocol,
            timed_as=self.timed_as, fabric=self.requested, linked=self.ranks.fabric,
            schedule=chosen.schedule,
            unusual={name: value for name, value in chosen.schedule.axes if usual.get(name) != value},
            time_s=chosen.time_s, low_s=chosen.low_s, high_s=chosen.high_s, source=chosen.row["source"],
            date=_date(chosen.winner), speed_up=speed_up, speed_up_over=over,
            reasons=tuple(reasons[:REASONS]), remarks=(*reasons[REASONS:], *self._nearest()),
            crossover=self._crossover(), confidence=confidence, unknown=self.unknown,
            never_measured=self.never_measured, next_command=self._next(chosen, close, confidence),
            is_elsewhere=unmeasurable(self.machine, self.problem.world) is not None,
            rows=tuple({**each.row, "reason": self._row_reason(each, chosen)} for each in options),
            schedules=tuple(each.schedule for each in options), winners=self.winners,
        )  # fmt: skip

    # The choice.

    def _by_measurements(self) -> tuple[_Option, str, list[str]]:
        """The fastest measured schedule; of those that its block cannot tell apart, the simplest that costs little."""
        best = self.measured[0]
        near, apart = as_fast([each.winner for each in self.measured if each.winner])
        undecided = [each for each in self.measured if each is not best and each.winner in near]
        alike = [best, *(each for each in undecided if each.low_s <= best.high_s)]
        chosen = _simplest(alike, best)
        notes = _not_compared([each for each in self.measured if each.winner in apart])
        notes += _few_rounds([each for each in undecided if each not in alike])
        if len(alike) > 1:
            return chosen, WITHIN_NOISE, [_within_noise(alike, chosen, "their block cannot tell them apart"), *notes]
        if len(self.measured) == 1:
            return chosen, LIKELY, [f"Of this problem {best.scheme} alone was measured here."]
        is_older = bool(best.winner and best.winner.differs)
        return chosen, LIKELY if is_older or notes else CERTAIN, notes or [self._certain(best)]

    def _certain(self, best: _Option) -> str:
        others = [f"{each.scheme} {seconds_text(each.time_s)}" for each in self.measured if each is not best]
        how = "One after the other" if self.protocol.is_steady else "Timed in turns"
        return f"{how} in one block with {' and '.join(others)}: the verdict is certain."

    def _by_estimates(self) -> tuple[_Option, str, list[str]]:
        """The best estimate; of those that may be as fast, the simplest that costs little."""
        bests = sorted((several[0] for several in self.estimated.values()), key=lambda one: one.time_s)
        best = bests[0]
        near = [each for each in bests if _may_be_as_fast(each, best)]
        if self.unknown:
            alike = [each for each in bests if each.time_s <= best.time_s * (1 + ALIKE)]
            return min(alike, key=_complexity), NOT_KNOWN, [self._too_wide(bests)]
        chosen = _simplest(near, best)
        if len(near) > 1:
            as_wide = ", as wide as in bursts," if self.protocol.is_steady else ""
            return chosen, WITHIN_NOISE, [_within_noise(near, chosen, f"the interval of their ratio{as_wide} holds 1")]
        others = [f"{each.scheme} {spread_text(each.time_s, each.low_s, each.high_s)}" for each in bests[1:]]
        both = "the uncertainty of both in bursts" if self.protocol.is_steady else "the uncertainty of both"
        reason = f"By estimate it is faster than {' and '.join(others)}, with {both}."
        return chosen, LIKELY, [reason] * bool(others)

    @staticmethod
    def _too_wide(bests: Sequence[_Option]) -> str:
        """How wide an interval is, and how much the kinds of schedules differ."""
        best, slowest = bests[0], bests[-1]
        interval = f"Times may be {best.low_s / best.time_s:.2g} to {best.high_s / best.time_s:.2g} times as estimated"
        if best is slowest:
            return f"{interval}."
        if slowest.time_s == best.time_s:
            return f"{interval}, and no kind is slower than another."
        gain = percent_text(slowest.time_s / best.time_s - 1)
        return f"{interval}, and {slowest.scheme}, the slowest kind, is {gain} above {best.scheme}."

    def _unknown(self) -> tuple[str, bool]:
        """Why no estimate is good enough, as a clause, or nothing; whether the machine was measured, but not so."""
        machine, problem, how = self.machine, self.problem, HOW_TIMED[self.timed_as]
        of_one_call = ", and estimates are of many calls in a row" if self.timed_as == ONE_CALL_ALONE else ""
        if machine.calibrated is None:
            return f"{machine.name} is {trust(machine.name)}{of_one_call}", False
        of_world = f"{problem.operator} with {num_text(problem.world, 'rank')} on {machine.name}"
        fitted = [text for text in machine.fitted_to if text.startswith(f"{problem.operator} ")]
        is_fitted = any(text.endswith(f" on {problem.world} ranks") for text in fitted)
        if machine.fitted_to and not is_fitted and not self.winners.known_here:
            return f"nobody has measured {of_world}{how}{of_one_call}", True
        if of_one_call:
            return f"nobody has measured this problem on {machine.name}{how}{of_one_call}", False
        first = min((several[0] for several in self.estimated.values()), key=lambda one: one.time_s)
        if first.high_s >= first.time_s * UNCALIBRATED[1]:
            return f"no estimate of {of_world} was compared with a measurement", False
        return "", False

    # Reasons.

    def _rule(self, chosen: _Option) -> str:
        """The rule in words, of calls in a row: as a reason where it agrees with the choice, else another opinion."""
        rule = advice(self.problem, self.signature)
        runs = {*self.estimated, *(each.scheme for each in self.measured)}
        schemes = (CANDIDATES[kind].scheme for kind in rule.kinds)
        says = next((scheme for scheme in schemes if scheme in runs), None)
        if says in (None, chosen.scheme):
            return rule.reason
        return f"The rule in words{RULE_IS_OF.get(self.timed_as, '')} says {says}: {rule.reason}"

    def _tiles(self, chosen: _Option) -> list[str]:
        """Where a usual tile leaves SMs idle: how many tiles the chosen one makes."""
        slots, side = self.signature.slots, chosen.schedule.get("tile")
        if OPERATORS[self.problem.operator].work != "gemm" or slots < 2 or side is None or self.signature.waves >= 1:
            return []
        extent, cut = OPERATORS[self.problem.operator].extent(self.problem), tile(str(side))
        made = -(-extent.rows // cut.m) * -(-extent.columns // cut.n)
        if made <= self.signature.tiles:
            return []
        idle = f"{slots - self.signature.tiles} of {slots} SMs"
        return [f"Tiles of {TILE[0]}x{TILE[1]} would leave {idle} idle: those of {side} are {made}."]

    def _challenger(self, chosen: _Option) -> _Option | None:
        """An estimate that lies below what was measured: worth a measurement, and no answer."""
        if not self.estimated:
            return None
        best = min((several[0] for several in self.estimated.values()), key=lambda one: one.time_s)
        is_timed = best.schedule in {each.schedule for each in self.measured}
        if not self.measured or is_timed or self._estimates_are_poor() or best.high_s >= chosen.time_s:
            return None
        return best

    def _faster(self, chosen: _Option) -> list[str]:
        best = self._challenger(chosen)
        if best is None:
            return []
        time = spread_text(best.time_s, best.low_s, best.high_s)
        return [f"By estimate another schedule, {best.scheme}, takes {time}: nobody has measured it."]

    def _estimates_are_poor(self) -> bool:
        return bool(self._unknown()[0])

    def _older(self, chosen: _Option) -> list[str]:
        """What has changed since the chosen schedule was measured."""
        differs = chosen.winner.differs if chosen.winner else ()
        return [f"Different since then: {'; '.join(differs)}."] if differs else []

    def _nearest(self) -> list[str]:
        """What was measured at the nearest shape: it supports an answer, and is none."""
        if not self.near:
            return []
        how, best = HOW_TIMED[self.timed_as], self.near[0]
        shape = ", ".join(f"{name}={size}" for name, size in best.known.trial.problem.shape)
        times = ", ".join(f"{each.schedule.scheme} {seconds_text(each.known.time_s)}" for each in self.near)
        return [f"The nearest shape that was measured{how} is {shape}: {times} ({_date(best)})."]

    def _row_reason(self, each: _Option, chosen: _Option) -> str:
        """Why a row is there."""
        if each is chosen:
            return "the answer"
        if each.winner is not None:
            return f"the best {each.scheme} that was measured"
        if not self.measured and _may_be_as_fast(each, chosen):
            return "it may be as fast as the answer"
        several = self.estimated[each.scheme]
        return f"the best {each.scheme} by estimate" if each is several[0] else f"near the best {each.scheme}"

    # Numbers, crossover and what to do next.

    def _speed_up(self, chosen: _Option) -> tuple[float | None, str | None]:
        """The speed-up of *chosen* over the best sequential schedule, and what that is."""
        if chosen.scheme == BASELINE:
            return None, None
        if chosen.winner is not None:
            over = chosen.winner.over if chosen.winner.missing_baseline is None else None
            if over is None:
                return None, None
            ratio = metrics.speed_up(chosen.time_s, over.time_s)
            return ratio, f"the best sequential of its block, {baseline_text(over)}"
        plain = self.estimated.get(BASELINE)
        if not plain:
            return None, None
        ratio = metrics.speed_up(chosen.time_s, plain[0].time_s)
        return ratio, f"the best sequential, {seconds_text(plain[0].time_s)}"

    def _crossover(self) -> Crossover | None:
        """Where another scheme is the fastest; it is of calls in a row in bursts, and None where the answer is not."""
        if self.timed_as != MANY_CALLS:
            return None
        low, high = UNCALIBRATED if self._estimates_are_poor() else (self.machine.spread or UNCALIBRATED)
        return crossover(self.problem, self.ranks, tuple(self.estimated), partial(_decided, low=low, high=high))

    def _close(self, chosen: _Option) -> list[_Option]:
        """What *chosen* should be timed together with: a challenger, or the best of the other kinds, fastest first."""
        if (challenger := self._challenger(chosen)) is not None:
            return [challenger]
        timed = {each.scheme: each for each in reversed(self.measured)}
        bests = [timed.get(name, several[0]) for name, several in self.estimated.items()]
        bests += [each for name, each in timed.items() if name not in self.estimated]
        others = sorted((each for each in bests if each.scheme != chosen.scheme), key=lambda one: one.time_s)
        return [each for each in others if each.low_s <= chosen.high_s] or others[:1]

    def _next(self, chosen: _Option, close: Sequence[_Option], confidence: str) -> str:
        """The command that times *chosen* with what is close to it; empty where that was done with these versions."""
        if confidence == CERTAIN:
            return ""
        usual = "thorough" if self.measured and confidence == WITHIN_NOISE else "default"
        by = usual if self.timed_as == MANY_CALLS else self.protocol.name
        for some in (*([chosen, each] for each in close), [chosen]):
            rows = [{**each.row, "fabric": str(self.requested), "protocol": by} for each in some]
            experiment = together(rows)
            if experiment is not None:
                again = replace(experiment, fabric=self.requested, fresh=bool(self.measured))
                if text := command(again.to_json(), short=True):
                    return text
        return ""


def _estimated(estimate: Estimate, machine: Machine) -> _Option:
    return _Option(schedule=estimate.trial.schedule, time_s=estimate.time_s, low_s=estimate.low_s,
                   high_s=estimate.high_s, row=metrics.row_of(estimate, None, machine))  # fmt: skip


def _measured(winner: Winner, machine: Machine) -> _Option:
    row = row_of_winner(winner, machine)
    return _Option(schedule=winner.schedule, time_s=row["time_s"], low_s=row["low_s"], high_s=row["high_s"], row=row,
                   winner=winner)  # fmt: skip


def _complexity(option: _Option) -> int:
    """The place of its scheme among all, the simplest first: sequential, then in pieces, then fused."""
    return list(SCHEMES).index(option.scheme)


def _simplest(alike: Sequence[_Option], best: _Option) -> _Option:
    """The simplest of *alike* whose time is above the best one's by SIMPLER_COSTS at most."""
    return min((each for each in alike if each.time_s <= best.time_s * (1 + SIMPLER_COSTS)), key=_complexity)


def _decided(seconds: Mapping[str, float], *, low: float, high: float) -> str:
    """The scheme to take where each of *seconds* may be *low* to *high* times as long; of all: NOT_CERTAIN."""
    best = min(seconds.values())
    near = [name for name, taken in seconds.items() if taken * min(1.0, low) <= best * max(1.0, high)]
    told_nothing = len(near) == len(seconds) > 1
    return NOT_CERTAIN if told_nothing else " or ".join(sorted(near, key=list(SCHEMES).index))


def _may_be_as_fast(one: _Option, other: _Option) -> bool:
    """Whether *one* may be as fast as *other*: the interval of the ratio of two estimates holds 1 or less."""
    return ratio_range(*((each.low_s, each.time_s, each.high_s) for each in (one, other)))[0] <= 1


def ratio_range(one: tuple[float, float, float], other: tuple[float, float, float]) -> tuple[float, float]:
    """The interval of the ratio of two estimates: of each its least, its own and its most seconds.

    Their errors are taken as independent, so that uncertainties add as squares. Two of one machine err alike, rather.
    Under steady load the uncertainties are those of bursts. Paired ones are too narrow there (docs/results/steady.md).
    """
    (one_low, one_s, one_high), (other_low, other_s, other_high) = one, other
    ratio = one_s / other_s
    below = hypot(log(one_s / one_low), log(other_high / other_s))
    above = hypot(log(one_high / one_s), log(other_s / other_low))
    return ratio * exp(-below), ratio * exp(above)


def _not_compared(options: Sequence[_Option]) -> list[str]:
    """A sentence about the first of *options* that another block timed."""
    return [f"{each.scheme.capitalize()} took {seconds_text(each.time_s)} in another block, so that they were not "
            "compared." for each in options[:1]]  # fmt: skip


def _few_rounds(options: Sequence[_Option]) -> list[str]:
    """A sentence about *options* that took longer, though their block had too few rounds for a certain verdict."""
    if not options:
        return []
    times = " and ".join(f"{each.scheme} took {seconds_text(each.time_s)}" for each in options)
    return [f"In the same block {times}, in too few rounds for a verdict."]


def _within_noise(alike: Sequence[_Option], chosen: _Option, why: str) -> str:
    times = " and ".join(f"{each.scheme} {spread_text(each.time_s, each.low_s, each.high_s)}" for each in alike)
    best = min(alike, key=lambda one: one.time_s)
    simplest = min(alike, key=_complexity)
    if chosen is not simplest:
        cost = percent_text(simplest.time_s / chosen.time_s - 1)
        what = "The fastest" if chosen is best else "A simple and fast one"
        return f"Not certain, {why}: {times}. {what} is taken: {simplest.scheme}, the simplest, may cost {cost}."
    loss = "" if best is chosen else f" That may cost {percent_text(chosen.time_s / best.time_s - 1)}."
    return f"Within noise, {why}: {times}. The simpler one is taken.{loss}"


def _date(winner: Winner | None) -> str | None:
    return None if winner is None else str(datetime.fromtimestamp(winner.known.at).date())
