"""What a page leaves and comes back to: the views of each way to begin, and measurements of earlier questions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kernels.trial import Trial
from workbench.results import comparison
from workbench.results.rows import Key, Row
from workbench.widgets.exploration import Exploration, Explored, PinBaseline, ShowRuns
from workbench.widgets.timeline_view import is_of

RUNS_MOST = 8
"""The most runs of which measurements are kept; the oldest goes first."""


class LeftViews:
    """How each way to begin was looked at when it was left: its runs, the open view, what was selected and pinned."""

    def __init__(self, shown: str) -> None:
        self.shown = shown
        """The way that the shown runs are of; another one may be open while a run goes on, and after it."""
        self._states: dict[str, Exploration] = {}

    def leave(self, state: Exploration) -> None:
        """Keeps *state* for the way that it is of."""
        self._states[self.shown] = state

    def state(self, way: str, is_stored: Callable[[str], bool]) -> Exploration | None:
        """The state that *way* was left with; None where it had no run, or where a run is not stored any more."""
        state = self._states.get(way)
        return state if state is not None and state.runs and all(map(is_stored, state.runs)) else None


class DeletedRuns:
    """Runs that were deleted while they were shown, with what was shown with them."""

    def __init__(self, explored: Explored) -> None:
        self._explored = explored
        self._states: dict[str, Exploration] = {}

    def take_away(self, runs: Sequence[str]) -> None:
        """Shows deleted *runs* no longer."""
        state = self._explored.state
        self._states |= {run: state for run in runs if run in state.runs}
        self._explored.dispatch(ShowRuns(tuple(run for run in state.runs if run not in runs)))

    def bring_back(self, runs: Sequence[str]) -> None:
        """Shows restored *runs* again if they were shown with those of now, and pins the row of theirs that was."""
        for run in runs:
            before, now = self._states.pop(run, None), self._explored.state
            if before is None or not set(now.runs) <= set(before.runs):
                continue
            self._explored.dispatch(ShowRuns((run, *now.runs)))
            if now.baseline is None and (before.baseline or "").startswith(f"{run}/"):
                self._explored.dispatch(PinBaseline(before.baseline))


class MeasuredBefore:
    """Timed rows of this session's runs, so that a question has its measurement when it comes back."""

    def __init__(self) -> None:
        self._runs: dict[str, list[Sequence[Row]]] = {}
        """By id of a run, its rows of each problem."""

    def keep(self, rows: Mapping[Key, Sequence[Row]]) -> None:
        """Keeps *rows*, whole ones by problem of the shown runs, which another run replaces now."""
        runs: dict[str, dict[Key, list[Row]]] = {}
        for problem, same in rows.items():
            for row in same:
                runs.setdefault(row["run"], {}).setdefault(problem, []).append(row)
        for run, by_problem in runs.items():
            self._runs.pop(run, None)
            self._runs[run] = list(by_problem.values())
        while len(self._runs) > RUNS_MOST:
            self._runs.pop(next(iter(self._runs)))

    def find(
        self, trial: Trial, is_same_problem: Callable[[Row], bool], is_stored: Callable[[str], bool]
    ) -> tuple[Row | None, Sequence[Row]]:
        """The newest row that counts for *trial*, measured on its machine, with the rows of its problem in its run;
        None without one, or where its run is not stored any more."""
        is_of_schedule = is_of(trial)
        for run, of_run in reversed(self._runs.items()):
            for rows in of_run:
                if rows[0]["machine"] != trial.machine or not is_same_problem(rows[0]):
                    continue
                counts = {id(row): row for row in comparison.counting(rows).values()}
                measured = [row for row in counts.values() if row["source"] == "measured" or row.get("origin")]
                if (row := next(filter(is_of_schedule, measured), None)) is not None and is_stored(run):
                    return row, rows
        return None, ()
