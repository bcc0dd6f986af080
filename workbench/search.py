"""A Search decides which schedules of a space are measured, and in what order: lists go out, times come back.

`rounds` is a generator: it yields the next schedules to measure and is sent the times of all that have been, so that
no kind of search knows how a schedule is measured.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kernels.axes import Value
from kernels.schedule import Refusal, Schedule

KINDS = ("exhaustive", "random", "estimate_first", "optuna")

Times = Mapping[Schedule, float]
Estimates = Callable[[Sequence[Schedule]], Sequence[float]]
"""Estimated seconds of many schedules at once."""
Rounds = Generator[Sequence[Schedule], Times, None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """How a space is walked through."""

    kind: str = "exhaustive"
    """One of KINDS: everything, some at random, the best by estimate, or what Optuna proposes from the times so far."""
    count: int | None = None
    """The most that is measured on one problem; None: no limit (exhaustive only)."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise Refusal(f"search = {self.kind!r} was asked for, which is unknown. Accepted: {', '.join(KINDS)}.")
        if self.kind != "exhaustive" and self.count is None:
            raise Refusal(f"search = {self.kind} was asked for without count, the most to measure. Give count = 20.")
        if self.count is not None and self.count < 1:
            raise Refusal(f"count = {self.count} was asked for; a search measures 1 schedule or more.")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Search:
        return cls(**data)


def rounds(search: Search, schedules: Sequence[Schedule], estimates: Estimates) -> Rounds:
    """The schedules to measure, list by list."""
    match search.kind:
        case "exhaustive":
            yield schedules[: search.count]
        case "random":
            chosen = random.Random(search.seed).sample(range(len(schedules)), min(search.count or 0, len(schedules)))
            yield [schedules[number] for number in chosen]
        case "estimate_first":
            yield ranked(schedules, estimates)[: search.count]
        case _:
            yield from _optuna(search, schedules, estimates)


def ranked(schedules: Sequence[Schedule], estimates: Estimates) -> list[Schedule]:
    """The schedules, the one estimated fastest first; equal ones stay in order."""
    seconds = estimates(schedules)
    return [schedules[number] for number in sorted(range(len(schedules)), key=lambda number: seconds[number])]


def _optuna(search: Search, schedules: Sequence[Schedule], estimates: Estimates) -> Rounds:
    """Ask and tell. Seeded with the estimates' favourites; a proposal outside the space is told to be bad."""
    try:
        import optuna
    except ImportError as error:
        raise Refusal(
            "search = optuna was asked for, but optuna is not installed. "
            "Accepted: pip install 'overlap-workbench[search]', or search = estimate_first."
        ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(seed=search.seed)
    study = optuna.create_study(direction="minimize", sampler=sampler)
    offered = set(schedules)
    for favourite in ranked(schedules, estimates)[: max(1, (search.count or 0) // 4)]:
        study.enqueue_trial(_names(favourite))
    values = _values(schedules)
    measured: set[Schedule] = set()
    times: Times = {}
    for _ in range(20 * (search.count or 0)):  # proposals may repeat or be illegal
        if len(measured) == min(search.count or 0, len(schedules)):
            return
        trial = study.ask()
        proposed = _propose(trial, values)
        if proposed not in offered:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
            continue
        if proposed not in measured:
            measured.add(proposed)
            times = yield [proposed]
        if (seconds := times.get(proposed)) is None:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
        else:
            study.tell(trial, seconds)


def _values(schedules: Sequence[Schedule]) -> dict[str, dict[str, list[Value]]]:
    """Scheme -> axis -> the values that occur."""
    found: dict[str, dict[str, list[Value]]] = {}
    for schedule in schedules:
        for axis, value in schedule.axes:
            occurring = found.setdefault(schedule.scheme, {}).setdefault(axis, [])
            if value not in occurring:
                occurring.append(value)
    return found


def _names(schedule: Schedule) -> dict[str, Value]:
    return {"scheme": schedule.scheme, **{f"{schedule.scheme}.{axis}": value for axis, value in schedule.axes}}


def _propose(trial: Any, values: Mapping[str, Mapping[str, Sequence[Value]]]) -> Schedule:
    scheme = trial.suggest_categorical("scheme", list(values))
    mine = {axis: trial.suggest_categorical(f"{scheme}.{axis}", some) for axis, some in values[scheme].items()}
    return Schedule(scheme, tuple(mine.items()))
