"""The estimates of all schedules that a form's schemes allow, as one frame of columns."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import isfinite, prod

import numpy as np

from kernels.fabric import Fabric
from kernels.machine import Machine
from kernels.schedule import Axis, Refusal, Value
from kernels.schemes.concurrent import problems
from kernels.units import num_text
from workbench.experiment.form import SCHEME, FormQuestion
from workbench.experiment.space import columns, first_occurrences, values
from workbench.naming import axis_text
from workbench.results.columns import Frame, Places, grid_frame, together
from workbench.results.filters import Filters, kept, left_out_text
from workbench.results.rows import Row, problem_of
from workbench.simulator.closed_form import grid
from workbench.simulator.price.messages import are_measured
from workbench.simulator.price.shared import shares_are_measured

MOST = 100_000
"""The most points of all schemes together."""


@dataclass(frozen=True, slots=True)
class EstimatedSpace:
    """Estimates as rows, and what they are of."""

    frame: Frame
    note: str
    """Which axes were crossed, and which ones stay as the form has them; one sentence."""

    def fastest(self, filters: Filters) -> Places:
        """The places of the estimates that *filters* keep, the fastest first."""
        order = self.frame.order("time_s")
        return order[kept(self.frame, filters)[order]] if filters.active else order

    def left_out(self, places: Places) -> str:
        """How many estimates are not among *places*, as a sentence; empty where all are."""
        return left_out_text(len(self.frame) - len(places), len(self.frame), "estimate")


@dataclass(frozen=True, slots=True, eq=False)
class SpaceQuestion:
    """What the estimates of a space are of. Two are equal where their answers are."""

    question: FormQuestion
    machine: Machine
    fabric: Fabric
    """The link, resolved."""

    @property
    def key(self) -> Hashable:
        """Equal for questions with equal answers."""
        return self.question, self.machine.digest, str(self.fabric)

    @property
    def place(self) -> Hashable:
        """Equal for questions whose estimates share a table: those of one problem on one machine and link."""
        return self.question.problem(), self.machine.digest, str(self.fabric)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SpaceQuestion) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def answer(self) -> EstimatedSpace:
        """The estimates; takes up to a second, and the newest are kept. Refusal where the question is none."""
        return _answered(self)

    def row(self, scheme: str, axes: Mapping[str, Value]) -> Row | None:
        """The estimate of one schedule by the same prices; None where this problem has no such schedule."""
        values = tuple(axes.items())
        question = FormQuestion(
            operator=self.question.operator, shape=self.question.shape, dtype=self.question.dtype,
            world=self.question.world, scheme=scheme, values=((scheme, values),), fabric=self.question.fabric,
            protocol=self.question.protocol,
        )  # fmt: skip
        return _row(replace(self, question=question))

    def is_about(self, row: Row) -> bool:
        """Whether *row* is of this problem in this place, timed by whichever protocol."""
        same = {**question_columns(self.question, self.machine, self.fabric), "protocol": row.get("protocol")}
        return problem_of(same) == problem_of(row)

    def form_row(self) -> Row | None:
        """The estimate of the form's own schedule; None where it is not legal."""
        try:
            schedule = self.question.schedule(self.machine)
        except Refusal:
            return None
        return self.row(schedule.scheme, dict(schedule.axes))


KEPT = 3
"""The newest spaces, which several views read."""


@lru_cache(maxsize=KEPT)
def _answered(space: SpaceQuestion) -> EstimatedSpace:
    return estimated_space(space.question, space.machine, space.fabric)


@lru_cache(maxsize=64)
def _row(space: SpaceQuestion) -> Row | None:
    """The estimate of the one schedule that the question of *space* has, with nothing else in it."""
    question = space.question
    values = question.values_of(question.scheme)
    try:
        if values.keys() - {axis.name for axis in question.axes_of(question.scheme, space.machine)}:
            return None  # of a link that somebody wrote, or of another problem
        points = {name: np.array([value]) for name, value in values.items()}
        seconds = float(grid.times(question.problem(), question.scheme, points, space.machine, space.fabric)[0])
    except (ValueError, TypeError):  # a Refusal is a ValueError; values of a link may be anything
        return None
    if not isfinite(seconds):
        return None
    return {**shared_columns(question, space.machine, space.fabric), "axes": values, "time_s": seconds}


def estimated_space(question: FormQuestion, machine: Machine, fabric: Fabric, most: int = MOST) -> EstimatedSpace:
    """Estimates of *question* over the resolved *fabric* with every value of its swept axes; of all, if none is swept.

    Axes are crossed as long as there are at most *most* points; the others keep the value of the form. Raises Refusal
    where the question is none.
    """
    schemes = question.compared if not question.swept or SCHEME in question.swept else question.schemes()
    frames: list[Frame] = []
    crossed: dict[str, None] = {}
    left_out: dict[str, None] = {}
    for scheme in dict.fromkeys([question.scheme, *schemes]):
        try:
            known = _wanted(question, scheme, machine)
        except Refusal:
            if scheme == question.scheme:
                raise
            continue  # of schemes that are compared, those that this problem has
        chosen = _affordable(known, most // len(schemes))
        frames.append(_frame(replace(question, scheme=scheme, swept=chosen), machine, fabric, most))
        crossed |= dict.fromkeys(chosen)
        left_out |= dict.fromkeys(axis.name for axis in known if axis.name not in chosen)
    every = together(frames)
    return EstimatedSpace(every, _note(len(every), list(crossed), [name for name in left_out if name not in crossed]))


def _wanted(question: FormQuestion, scheme: str, machine: Machine) -> list[Axis]:
    """The axes of *scheme* that are to be crossed: the swept ones, or all; those with few values first."""
    axes = [axis for axis in question.axes_of(scheme, machine) if len(axis.values) > 1]
    swept = [axis for axis in axes if axis.name in question.swept]
    ignored = question.ignored_axes(scheme, machine)
    priced = [axis for axis in axes if axis.name not in grid.UNPRICED and axis.name not in ignored]
    return swept or priced


def _affordable(axes: Sequence[Axis], most: int) -> tuple[str, ...]:
    """Names of *axes*, in their order, without those that would make more than *most* points."""
    chosen: list[Axis] = []
    for axis in axes:
        if prod(len(each.values) for each in [*chosen, axis]) <= most:
            chosen.append(axis)
    return tuple(axis.name for axis in chosen)


def _frame(question: FormQuestion, machine: Machine, fabric: Fabric, most: int) -> Frame:
    problem, scheme = question.problem(), question.scheme
    choice = question.choice(scheme, machine)
    points = columns(values(choice, problem, machine, question.link(), most))
    seconds = grid.times(problem, scheme, points, machine, fabric)
    once = first_occurrences(problem, scheme, points, machine)
    return grid_frame(shared_columns(question, machine, fabric), points, np.where(once, seconds, np.nan))


def shared_columns(question: FormQuestion, machine: Machine, fabric: Fabric) -> Row:
    """The columns that all estimates of *question* share."""
    problem = question.problem()
    measured = machine.calibrated is not None and are_measured(problem.world, machine, fabric)
    try:
        measured = measured and shares_are_measured(problems(question.schedule(machine)), machine)
    except Refusal:  # the form's own values are illegal for this scheme, which has others
        measured = False
    return {**question_columns(question, machine, fabric), "calibrated": measured}


def question_columns(question: FormQuestion, machine: Machine, fabric: Fabric) -> Row:
    """What rows of *question* say of it: problem, scheme and place."""
    problem = question.problem()
    return {
        "outcome": "estimate", "source": "estimated", "operator": question.operator, "shape": dict(problem.shape),
        "dtype": problem.dtype, "world": problem.world, "scheme": question.scheme, "backend": machine.backend,
        "machine": machine.name, "fabric": str(fabric), "protocol": question.protocol, "part": "whole",
    }  # fmt: skip


def _note(count: int, crossed: Sequence[str], left_out: Sequence[str]) -> str:
    of = f" of every {', '.join(map(axis_text, crossed))}" if crossed else ""
    kept = f"; {', '.join(map(axis_text, left_out))} as the form has them" if left_out else ""
    return f"{num_text(count, 'estimate')}{of}{kept}."
