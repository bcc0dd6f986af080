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
from workbench.blocks import MOST

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
            raise Refusal(f"There is no search {self.kind!r}. Accepted: {', '.join(KINDS)}.")
        if self.kind != "exhaustive" and self.count is None:
            raise Refusal(
                f"search = {self.kind} needs count, the most to measure. Accepted: values such as count = 20."
            )
        if self.count is not None and self.count < 1:
            raise Refusal(f"count = {self.count} is too small: {self.count} < 1. Accepted: 1 schedule or more.")

    @property
    def proposes(self) -> bool:
        """Whether times decide what is measured next."""
        return self.kind == "optuna"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Search:
        return cls(**data)


def rounds(search: Search, schedules: Sequence[Schedule], estimates: Estimates) -> Rounds:
    """The schedules to measure, list by list."""
    if search.proposes:
        yield from _optuna(search, schedules, estimates)
    else:
        yield [schedules[number] for number in order(search, len(schedules), lambda: estimates(schedules))]


def order(search: Search, count: int, seconds: Callable[[], Sequence[float]]) -> Sequence[int]:
    """Which of *count* schedules are measured, in order; of a search that proposes, how many.

    *seconds*, what they are estimated to take, is asked by a search that goes by it.
    """
    match search.kind:
        case "random":
            return random.Random(search.seed).sample(range(count), min(search.count or 0, count))
        case "estimate_first":
            estimates = seconds()
            return sorted(range(count), key=lambda number: estimates[number])[: search.count]
    return range(count)[: search.count]


def _optuna(search: Search, schedules: Sequence[Schedule], estimates: Estimates) -> Rounds:
    """Ask and tell. Seeded with the estimates' favourites; a proposal outside the space is told to be bad."""
    try:
        import optuna
    except ImportError as error:
        raise Refusal(
            "search = optuna needs optuna, which is not installed. Accepted: pip install "
            "'overlap-workbench[search]', or search = estimate_first."
        ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(seed=search.seed)
    study = optuna.create_study(direction="minimize", sampler=sampler)
    offered = set(schedules)
    favourites = Search(kind="estimate_first", count=max(1, (search.count or 0) // 4))
    for number in order(favourites, len(schedules), lambda: estimates(schedules)):
        study.enqueue_trial(_names(schedules[number]))
    values, target = _values(schedules), min(search.count or 0, len(schedules))
    measured: set[Schedule] = set()
    times: Times = {}
    waiting: dict[Schedule, Any] = {}
    for _ in range(20 * target):  # proposals may repeat or be illegal
        trial = study.ask()
        proposed = _propose(trial, values)
        if proposed in times:
            study.tell(trial, times[proposed])
        elif proposed not in offered or proposed in waiting or proposed in measured:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
        else:
            waiting[proposed] = trial
        if len(waiting) == min(MOST, target - len(measured)):  # as many as are timed in turns
            times = yield list(waiting)
            for proposed, trial in waiting.items():
                failed = {} if proposed in times else {"state": optuna.trial.TrialState.FAIL}
                study.tell(trial, times.get(proposed), **failed)
            measured |= waiting.keys()
            waiting = {}
        if len(measured) == target:
            return
    if waiting:
        yield list(waiting)


def _values(schedules: Sequence[Schedule]) -> dict[str, dict[str, list[Value]]]:
    """Scheme -> axis -> the values that occur."""
    values: dict[str, dict[str, list[Value]]] = {}
    for schedule in schedules:
        for axis, value in schedule.axes:
            occurring = values.setdefault(schedule.scheme, {}).setdefault(axis, [])
            if value not in occurring:
                occurring.append(value)
    return values


def _names(schedule: Schedule) -> dict[str, Value]:
    return {"scheme": schedule.scheme, **{f"{schedule.scheme}.{axis}": value for axis, value in schedule.axes}}


def _propose(trial: Any, values: Mapping[str, Mapping[str, Sequence[Value]]]) -> Schedule:
    scheme = trial.suggest_categorical("scheme", list(values))
    chosen = {axis: trial.suggest_categorical(f"{scheme}.{axis}", some) for axis, some in values[scheme].items()}
    return Schedule(scheme, tuple(chosen.items()))
