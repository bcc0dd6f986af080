"""Columns of the store become values again; what no workbench wrote is told by table, entry and value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

from kernels import texts
from kernels.hardware import Hardware
from kernels.outcome import TIMED_HOW, Sample, Span
from kernels.trial import Trial
from workbench import legible
from workbench.forms import MOMENT, SECONDS, TEXT, Form, WrongForm, checked, optional
from workbench.one_problem import with_all_axes
from workbench.store import run_marks

if TYPE_CHECKING:
    import sqlite3

    from workbench.store.database import Database

RUNNING, FINISHED, CANCELLED = "running", "finished", "cancelled"
LOST = "lost"
"""Never written: what a run is called that says it is running, and whose process is gone."""

Entry = Mapping[str, Any]
Given = ParamSpec("Given")
Value = TypeVar("Value")
_PLACED: Mapping[str, Form] = {"run": TEXT, "origin": optional(TEXT), "at": MOMENT, "block": optional(TEXT)}


class HasDatabase(Protocol):
    """What reads a store."""

    _database: Database


Reader = TypeVar("Reader", bound=HasDatabase)


def reads(method: Callable[Concatenate[Reader, Given], Value]) -> Callable[Concatenate[Reader, Given], Value]:
    """*method* of what has a `_database`; a WrongForm inside it becomes the sentence that names the store's file."""

    @wraps(method)
    def checked_reader(self: Reader, *given: Given.args, **named: Given.kwargs) -> Value:
        try:
            return method(self, *given, **named)
        except WrongForm as error:
            raise ValueError(
                f"The store {self._database.path} holds what no workbench writes: {error}. Nothing was changed in it. "
                "Accepted: a store that `workbench run --store PATH` wrote. Or move this one away, and the next run "
                "begins a new store."
            ) from error

    return cast("Callable[Concatenate[Reader, Given], Value]", checked_reader)


def value(text: Any) -> Any:
    """What stands in a column of JSON."""
    try:
        return texts.parsed(text)
    except (ValueError, TypeError) as error:
        said = error if isinstance(error, ValueError) else "it is no text"
        raise WrongForm(f"a column that should be JSON is not readable, {said}") from None


def run(entry: sqlite3.Row) -> dict[str, Any]:
    """One run; one that says it is running, and whose process is gone, is lost."""
    values = legible.run(dict(entry))
    facts = legible.facts(value(entry["provenance"]))
    process, status = facts.pop("process", None), entry["status"]
    if status == RUNNING and run_marks.is_gone(process):
        status = LOST
    return {**values, "status": status, "experiment": legible.experiment(value(entry["experiment"])),
            "provenance": facts}  # fmt: skip


def row(entry: sqlite3.Row) -> dict[str, Any]:
    """A row as it was given, under the run that it is of now."""
    values = {name: each for name, each in legible.row(value(entry["row"])).items() if name not in TIMED_HOW}
    placed = {key: entry[key] for key in ("run", "origin", "id", "at", "block")}
    return {**with_all_axes(values), **checked(placed, _PLACED, f"number {entry['id']} of outcomes")}


def timed_how(text: Any) -> dict[str, Any]:
    """Under which conditions and how an outcome was timed, where its ranks said so."""
    measured = value(text)
    legible.measured(measured)
    return {name: measured[name] for name in TIMED_HOW if name in measured}


def best(entry: Entry) -> dict[str, Any]:
    """The fastest of one problem of a run."""
    checked(dict(entry), {"best_s": SECONDS}, f"run {entry['run']}")
    problem, schedule = value(entry["problem"]), value(entry["schedule"])
    legible.asked(problem, schedule)
    return {**entry, **problem, **schedule}


def trial(text: Any) -> Trial:
    """A trial that was written down."""
    return legible.trial(value(text))


def ran(text: Any) -> Trial:
    """The trial of an outcome that has a time."""
    return legible.ran(value(text))


def hardware(text: Any) -> Hardware | None:
    """The hardware of an outcome; None where nobody wrote it down."""
    return legible.hardware(value(text)) if text else None


def spans(text: Any) -> tuple[Span, ...]:
    """The spans of an outcome."""
    return legible.spans(value(text))


def sample(entry: sqlite3.Row) -> Sample:
    """One sample, from its columns in the order of Sample's fields."""
    timed = Sample(*entry)
    legible.sample((timed.rank, timed.index, timed.seconds, timed.at))
    return timed


def sample_row(entry: sqlite3.Row) -> dict[str, Any]:
    """One sample as a row for charts and tables."""
    legible.sample((entry["rank"], entry["index"], entry["seconds"], entry["at"]))
    return dict(entry)


def whole(entry: sqlite3.Row) -> dict[str, Any]:
    """One right measurement, with trial and circumstances: a candidate for the fastest."""
    outcome = dict(entry)
    checked(outcome, {"time_s": SECONDS, "at": MOMENT}, f"number {entry['id']} of outcomes")
    ran(entry["trial"])
    return {**outcome, "trial": value(entry["trial"]), "provenance": legible.facts(value(entry["provenance"])),
            "hardware": hardware(entry["hardware"])}  # fmt: skip


def known_by(entry: sqlite3.Row) -> dict[str, Any]:
    """The fields of a Measurement that make it known: who ran it, with which libraries, on what."""
    prints = {"source_print": entry["source_print"], "versions_print": entry["versions_print"]}
    checked(prints, dict.fromkeys(prints, optional(TEXT)), "an outcome")
    return {**prints, "hardware": hardware(entry["hardware"])}
