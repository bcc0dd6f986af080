"""The words of the page around its views: the question, what Run would do, whose results are shown, what failed."""

from __future__ import annotations

from collections.abc import Sequence

from kernels.trial import Trial
from workbench.charts.labels import context
from workbench.experiment.forecast import Forecast
from workbench.naming import short_title
from workbench.results.rows import Row

GOES_ON = "Other runs cannot be shown while one goes on: 1 of at most 1. Accepted: after its end, or after Stop."
OLDER = "Below is an older question: {}. Run answers the new one."


def question_text(trial: Trial) -> str:
    """The question of *trial* in one line: its problem, where it runs, and its schedule."""
    problem = trial.problem
    known = {"operator": problem.operator, "shape": dict(problem.shape), "dtype": problem.dtype,
             "world": problem.world, "machine": trial.machine, "fabric": str(trial.fabric)}  # fmt: skip
    schedule = short_title(trial.schedule.scheme, dict(trial.schedule.axes))
    return f"{context([known])} \N{MIDDLE DOT} {schedule}"


def plan_text(plan: Forecast, *, is_busy: bool, budget_s: float | None) -> str:
    """The forecast *plan*, why it takes longer where the ranks' computer *is_busy*, and when a search ends: after
    *budget_s* seconds, or None."""
    is_slowed = is_busy and plan.seconds is not None and plan.count
    text = f"{plan} Longer, since this computer is busy." if is_slowed else str(plan)
    return f"{text} It ends after {budget_s:g} s, or earlier." if budget_s is not None and plan.count else text


def replay_text(*, whole: bool) -> str:
    """What a replay plays: the *whole* recording or not."""
    return "All of the recording is played." if whole else "What the form asks is looked up."


def older_text(firsts: Sequence[Row], *, is_shown: bool) -> str:
    """That the views are of another question than the form's; empty where its problem *is_shown*, or no row is.

    *firsts* has a row of each problem of the views.
    """
    return "" if is_shown or not firsts else OLDER.format(context(firsts))


def failures_text(failed: Sequence[Row]) -> str:
    """The message of the first of the *failed* schedules of a run, and how many there are."""
    more = f" ({len(failed)} failed; the table below has all)" if len(failed) > 1 else ""
    return f"{failed[0]['message']}{more}"


def not_described_text(machine: str, operator: str) -> str:
    """Why a link or a saved view of *machine* and *operator* cannot be shown."""
    return (f"This view cannot be shown: its machine {machine} or its operator {operator} is not described "
            "here.")  # fmt: skip


def missing_runs_text(missing: Sequence[str], wanted: Sequence[str]) -> str:
    """Which of the *wanted* runs of a link or a saved view are *missing*, and how they may come."""
    return (f"The question is that of the view, but its run {missing[0]} is not in this store: {len(missing)} of "
            f"{len(wanted)} are missing. Accepted: an import of the run that the sender exported.")  # fmt: skip
