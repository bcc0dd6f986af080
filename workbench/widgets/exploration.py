"""What a person looks at on the explorer's page: a state, the events that change it, and one function between them.

Views read the state and send events. None of them knows another one, so that a mark that is selected in one of them is
selected in all. The state is JSON in links and saved views, and its format is stated here alone.
"""

from __future__ import annotations

import json
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import ipywidgets

from workbench.charts.relative import AUTOMATIC, SCALES
from workbench.experiment.estimated_space import SpaceQuestion
from workbench.results import comparison
from workbench.results.columns import Frame, frame_of
from workbench.results.filters import Filters, Range, kept, left_out_text
from workbench.results.rows import Row

FORMAT = 1
"""The version of the JSON format."""

_LOG = logging.getLogger(__name__)


def row_id(row: Row) -> str:
    """The identity of a row in every view: its run, trial, block and source; an estimate of a space has its schedule
    instead of a run."""
    if not row.get("run"):
        return f"/{schedule_id(row)}//{row['source']}"
    return f"{row['run']}/{row['key']}/{row.get('block') or ''}/{row['source']}"


def schedule_id(row: Row) -> str:
    """The identity of the schedule of *row*, wherever it runs: its scheme and axes."""
    return f"{row['scheme']} {json.dumps(row['axes'], sort_keys=True)}"


def estimate_row(name: str | None) -> Row | None:
    """Scheme, axes and source of the estimate of a space that is named *name*; None for any other name."""
    if name is None or not name.startswith("/") or not name.endswith("//estimated"):
        return None
    scheme, _, axes = name.removeprefix("/").removesuffix("//estimated").partition(" ")
    try:
        values = dict(json.loads(axes))
    except (ValueError, TypeError):
        return None  # of a link that somebody wrote
    is_known = all(isinstance(value, str | int | float) for value in values.values())
    return {"scheme": scheme, "axes": values, "source": "estimated"} if is_known else None


# The state.


@dataclass(frozen=True, slots=True, kw_only=True)
class Exploration:
    """What is shown, and how. Rows are named by `row_id`; a name without a row is of a run that is not shown."""

    view: str = ""
    """The open view; empty: the first one."""
    runs: tuple[str, ...] = ()
    """The ids of the shown runs."""
    selected: str | None = None
    baseline: str | None = None
    """The row that all others are compared with."""
    filters: Filters = field(default_factory=Filters)
    columns: tuple[str, ...] = ()
    """The columns of the table in order; empty: those that vary."""
    sorted_by: str = ""
    """The column that a person sorted the table by; empty: by time, what was timed before estimates."""
    descending: bool = False
    scale: str = AUTOMATIC
    """One of `relative.SCALES`: the axis of time of the charts of trials."""

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT, "view": self.view, "runs": list(self.runs), "selected": self.selected,
            "baseline": self.baseline, "filters": self.filters.to_json(), "columns": list(self.columns),
            "sorted_by": self.sorted_by, "descending": self.descending, "scale": self.scale,
        }  # fmt: skip

    @staticmethod
    def from_json(stored: Mapping[str, Any]) -> Exploration:
        """The state that `to_json` wrote; ValueError for anything else."""
        if stored.get("format") != FORMAT:
            raise ValueError(
                f"This view has format {stored.get('format')!r}: {stored.get('format')!r} is not {FORMAT}. "
                "Accepted: a view that this version of the workbench saved."
            )
        try:
            return Exploration(
                view=str(stored["view"]),
                runs=tuple(map(str, stored["runs"])),
                selected=_id(stored["selected"]),
                baseline=_id(stored["baseline"]),
                filters=Filters.from_json(stored["filters"]),
                columns=tuple(map(str, stored["columns"])),
                sorted_by=str(stored["sorted_by"]),
                descending=bool(stored["descending"]),
                scale=_scale(str(stored.get("scale", AUTOMATIC))),  # views that are older than it have none
            )
        except (KeyError, TypeError, AttributeError) as wrong:
            raise ValueError(f"This view cannot be read: {wrong!r}. Accepted: a view as it was saved.") from wrong


def _scale(value: str) -> str:
    if value not in SCALES:
        raise ValueError(f"The axis of time is {value!r}: it is none of {len(SCALES)}. Accepted: {', '.join(SCALES)}.")
    return value


def _id(value: Any) -> str | None:
    return None if value is None else str(value)


# Events. A value of None ends what an earlier event of the same kind began.


@dataclass(frozen=True, slots=True)
class OpenView:
    """Another view is opened."""

    name: str


@dataclass(frozen=True, slots=True)
class Select:
    """A person chose a row: a mark, a line of the table, a cell."""

    row: str | None


@dataclass(frozen=True, slots=True)
class PinBaseline:
    """A row becomes the one that others are compared with."""

    row: str | None


@dataclass(frozen=True, slots=True)
class Brush:
    """A range of a column of numbers."""

    column: str
    kept: Range | None


@dataclass(frozen=True, slots=True)
class Choose:
    """Values of a column of words."""

    column: str
    kept: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class SearchText:
    """Text that rows must have."""

    text: str


@dataclass(frozen=True, slots=True)
class KeepTop:
    """The fastest rows alone, by their share in per cent."""

    percent: float | None


@dataclass(frozen=True, slots=True)
class ClearFilters:
    """All rows are kept again."""


@dataclass(frozen=True, slots=True)
class SortBy:
    """The order of the table."""

    column: str
    descending: bool = False


@dataclass(frozen=True, slots=True)
class ShowColumns:
    """The columns of the table."""

    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ScaleTime:
    """The axis of time of the charts of trials: one of `relative.SCALES`."""

    scale: str


@dataclass(frozen=True, slots=True)
class ShowRuns:
    """Other runs are shown: what was selected and filtered stays only where its run does."""

    runs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Restore:
    """A saved view or a link was opened."""

    exploration: Exploration


Event = (
    OpenView | Select | PinBaseline | Brush | Choose | SearchText | KeepTop | ClearFilters | SortBy | ShowColumns
    | ScaleTime | ShowRuns | Restore
)  # fmt: skip
Dispatch = Callable[[Event], None]


def reduce(state: Exploration, event: Event) -> Exploration:
    """The state after *event*. ValueError if the event has a range or a share that there is not."""
    filters = state.filters
    match event:
        case OpenView(name):
            return replace(state, view=name)
        case Select(row):
            return replace(state, selected=row)
        case PinBaseline(row):
            return replace(state, baseline=row)
        case Brush(column, ends):
            return replace(state, filters=filters.with_range(column, ends))
        case Choose(column, words):
            return replace(state, filters=filters.with_words(column, words))
        case SearchText(text):
            return replace(state, filters=replace(filters, text=text.strip()))
        case KeepTop(percent):
            return replace(state, filters=filters.with_top(percent))
        case ClearFilters():
            return replace(state, filters=Filters())
        case SortBy(column, descending):
            return replace(state, sorted_by=column, descending=descending)
        case ShowColumns(columns):
            return replace(state, columns=columns)
        case ScaleTime(scale):
            return replace(state, scale=_scale(scale))
        case ShowRuns(runs):
            selected, baseline = (_in_runs(row, runs) for row in (state.selected, state.baseline))
            kept_filters = filters if set(runs) & set(state.runs) else Filters()
            return replace(state, runs=runs, selected=selected, baseline=baseline, filters=kept_filters)
        case Restore(exploration):
            return exploration


def _in_runs(row: str | None, runs: Sequence[str]) -> str | None:
    return row if row is not None and row.split("/", 1)[0] in ("", *runs) else None


# What views read, and what a view is.


@dataclass(frozen=True)
class Scene:
    """The state with the rows of its runs, and the estimates of the form's space."""

    state: Exploration
    rows: Sequence[Row]
    """Whole rows of the shown runs, each one with its *run*; those of one schedule in several blocks are there once a
    block, so that each has the baseline that it was timed with."""
    space: SpaceQuestion | None = None
    """The space of the form's question, whose estimates the views that show them ask for; None while it is illegal."""

    @cached_property
    def listed(self) -> Sequence[Row]:
        """The rows with one time for each schedule of a run: what tables list, filters keep and counts count."""
        return self.once(self.rows)

    @cached_property
    def by_id(self) -> Mapping[str, Row]:
        """All rows by their name; that of another timing of a schedule leads to the one that counts."""
        counts = comparison.counting(self.rows)
        return {row_id(row): counts.get(id(row), row) for row in self.rows}

    once: Callable[[Sequence[Row]], Sequence[Row]] = comparison.once_each_run
    """Makes `listed`; whoever makes several scenes of the same rows makes it once."""

    columns: Callable[[Sequence[Row]], Frame] = frame_of
    """Makes columns of the rows; whoever makes several scenes of the same rows makes them once."""

    @cached_property
    def frame(self) -> Frame:
        """The listed rows as columns."""
        return self.columns(self.listed)

    @cached_property
    def kept(self) -> Sequence[Row]:
        """The listed rows that the filters keep."""
        if not self.state.filters.active:
            return self.listed
        mask = kept(self.frame, self.state.filters)
        return [row for row, is_kept in zip(self.listed, mask.tolist(), strict=True) if is_kept]

    @property
    def kept_names(self) -> frozenset[str] | None:
        """The names of the kept rows and of all other timings of their schedules; None where no filter is set."""
        if not self.state.filters.active:
            return None
        names = set(map(row_id, self.kept))
        return frozenset(name for name, row in self.by_id.items() if row_id(row) in names)

    @property
    def left_out(self) -> str:
        """How many rows the filters leave out, as a sentence; empty where they leave out none."""
        return left_out_text(len(self.listed) - len(self.kept), len(self.listed))

    @cached_property
    def selected(self) -> Row | None:
        return self._named(self.state.selected)

    @cached_property
    def baseline(self) -> Row | None:
        return self._named(self.state.baseline)

    def _named(self, name: str | None) -> Row | None:
        """The row *name*; that of an estimate of a space is of the form's question."""
        estimate = estimate_row(name)
        if estimate is None or self.space is None:
            return self.by_id.get(name or "")
        return self.space.row(estimate["scheme"], estimate["axes"])

    @cached_property
    def of_form(self) -> Row | None:
        """The estimate of the form's own schedule; None where it is not legal."""
        return None if self.space is None else self.space.form_row()


class View(ABC):
    """A way to look at a scene. It is drawn while it is open, and sends events to whoever made it."""

    widget: ipywidgets.Widget

    @abstractmethod
    def draw(self, scene: Scene) -> None:
        """Shows *scene*; called again whenever it differs."""

    def close(self) -> None:  # noqa: B027
        """Ends its threads; most views have none."""


class Explored:
    """The one state of a page. Listeners are called after each event that changes it, with the states around it."""

    def __init__(self, state: Exploration | None = None, lock: threading.RLock | None = None) -> None:
        """*lock* is held while an event changes the state and is heard: events come from several threads."""
        self.state = state or Exploration()
        self._lock = lock or threading.RLock()
        self._listeners: list[Callable[[Exploration, Exploration], Any]] = []

    def on_change(self, listener: Callable[[Exploration, Exploration], Any]) -> None:
        self._listeners.append(listener)

    def dispatch(self, event: Event) -> None:
        """Takes *event*; ValueError leaves the state as it was. A listener's error is logged."""
        with self._lock:
            before, self.state = self.state, reduce(self.state, event)
            if before == self.state:
                return
            for listener in self._listeners:
                try:
                    listener(before, self.state)
                except Exception:  # one view that cannot be drawn leaves the others alive
                    _LOG.exception("A view could not follow %s.", type(event).__name__)
