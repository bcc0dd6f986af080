"""Rows of a run as tables that say only what differs: one line a schedule, each source in its own column."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernels.schemes import BASELINE
from kernels.units import ratio_text, time_and_spread
from workbench.compared import Bases, leading
from workbench.metrics import agreed, gain
from workbench.naming import SIGNS, TIMED, axes_title, source_title
from workbench.reports.tables import Cell, Column, Table
from workbench.reports.values import label, value_text

Row = Mapping[str, Any]

_PROBLEM = ("operator", "shape", "dtype", "world", "backend", "machine", "fabric", "protocol", "part")
_SAME_TRIAL = ("operator", "shape", "dtype", "world", "machine", "fabric", "scheme", "axes")
"""Two rows of the same part that agree in these are the same thing, measured and estimated."""
_FIGURES = ("floor_s", "compute_s", "comm_s", "sequential_s", "skew_s", "samples", "max_relative_error")


@dataclass(slots=True)
class Line:
    """One schedule of one problem, with at most one row of each source."""

    by_source: dict[str, Row] = field(default_factory=dict)

    @property
    def leading(self) -> Row:
        """The row whose source is trusted most."""
        return self.by_source[min(self.by_source, key=_trust)]

    def value(self, key: str) -> Any:
        """*key* from the most trusted row that has it."""
        values = (self.by_source[source].get(key) for source in sorted(self.by_source, key=_trust))
        return next((value for value in values if value is not None), None)


def is_failure(row: Row) -> bool:
    """Whether *row* has a sentence instead of a time."""
    return row.get("outcome") == "failure" or row.get("time_s") is None


def is_stop(row: Row) -> bool:
    """Whether *row* has no time because somebody stopped the run: nothing failed."""
    return row.get("stage") == "cancelled"


def parts_of(rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """The rows of whole schedules, and those of their computation or communication timed alone."""
    whole = [row for row in rows if _part(row) == "whole"]
    return whole, [row for row in rows if _part(row) != "whole"]


def _part(row: Row) -> str:
    return row.get("part") or "whole"


def lines(rows: Sequence[Row]) -> list[Line]:
    """The rows that have a time, joined by schedule, fastest first."""
    groups: dict[str, list[Line]] = {}
    for row in rows:
        if is_failure(row):
            continue
        same = groups.setdefault(_text([_part(row), *(row.get(key) for key in _SAME_TRIAL)]), [])
        source = str(row.get("source"))
        line = next((line for line in same if source not in line.by_source), None)
        if line is None:
            same.append(line := Line())
        line.by_source[source] = row
    return sorted((line for same in groups.values() for line in same), key=lambda line: line.leading["time_s"])


def gain_words(rows: Sequence[Row]) -> str:
    """`Fastest: fused, 357 µs, 1.44x faster than the best sequential schedule.` Of one problem."""
    best = leading(_compared(rows))[0]
    faster = gain(best)
    time = value_text("time_s", best["time_s"])
    words = f"Fastest: {schedule_text(best, rows)}, {time} {best.get('source')}"
    if faster is None or best.get("scheme") == BASELINE:
        return f"{words}."
    return f"{words}, {ratio_text(faster)} faster than the best sequential schedule."


def _compared(rows: Sequence[Row]) -> Sequence[Row]:
    """Those whose ratios are told: what was timed, or estimates where nothing was."""
    known = [row for row in rows if not is_failure(row)]
    return agreed([row for row in known if row.get("source") in TIMED] or known)


def _speed_ups(rows: Sequence[Row], shown: Sequence[Line]) -> tuple[list[Column], list[list[Cell]]]:
    """The column that says how many times as fast as the baseline each line is, and its cells; none without one."""
    compared = {_identity(row): row for row in _compared(rows) if gain(row) is not None}
    if not compared or len(shown) < 2:
        return [], [[] for _ in shown]
    every = list(compared.values())
    base = [row for row in every if row.get("scheme") == BASELINE and row["time_s"] == row["sequential_s"]]
    varying = _varying_axes(rows)
    names = {", ".join(filter(None, _schedule(row, varying))) for row in base}
    # the best sequential schedule of one block may not be that of another, and was not as fast there
    several = len({row.get("block") for row in every}) > 1
    words = (
        f"the best {BASELINE} of its block" if several else names.pop() if len(names) == 1 else f"the best {BASELINE}"
    )
    source = next(iter(compared.values())).get("source")
    heading = f"Speed-up over {words}" + ("" if source in TIMED else f", {source}")
    cells, bases = [], Bases.of(every)
    for line in shown:
        row = next((compared[mark] for each in line.by_source.values() if (mark := _identity(each)) in compared), None)
        ratio = None if row is None else gain(row)
        over = bases.words(row) if row is not None and several else ""
        cells.append([Cell("–" if ratio is None else ratio_text(ratio), over, order=ratio)])
    return [Column(heading=heading, figure=True, descends=True)], cells


def _identity(row: Row) -> str:
    """What tells *row* from the others of a table."""
    return _text([row.get(key) for key in (*_SAME_TRIAL, "source", "block", "time_s")])


def outcome_table(rows: Sequence[Row]) -> Table:
    """Every schedule that has a time, fastest first, beside what is known of it."""
    shown = lines(rows)
    axes, keys = _varying_axes(rows), differing(rows)
    sources = sorted({source for line in shown for source in line.by_source}, key=_trust)
    figures = [key for key in _FIGURES if len(_values(shown, key)) > 1]
    slowest = max((row["time_s"] for line in shown for row in line.by_source.values()), default=0.0)
    ran = [index for index, line in enumerate(shown) if set(TIMED) & set(line.by_source)]
    first = next(map(_identity, leading(rows)), None)
    best = next((index for index in ran if first in [_identity(row) for row in shown[index].by_source.values()]), None)
    best = best if len(ran) > 1 else None
    columns = [Column(heading="Schedule"), *(Column(heading=label(key)) for key in keys)]
    columns += [Column(heading=source_title(source), figure=True) for source in sources]
    faster, ratios = _speed_ups(rows, shown)
    columns += [*faster, *(Column(heading=label(key), figure=True) for key in figures)]
    body = [
        (
            Cell(*_schedule(line.leading, axes), badge="fastest" if index == best else ""),
            *(Cell(value_text(key, line.value(key))) for key in keys),
            *(_time(line, source, slowest if source == sources[0] else None) for source in sources),
            *ratios[index],
            *(Cell(value_text(key, line.value(key)), order=line.value(key)) for key in figures),
        )
        for index, line in enumerate(shown)
    ]
    return Table(columns=tuple(columns), rows=tuple(body), best=best, sorted_by=1 + len(keys) if shown else None)


def stop_table(rows: Sequence[Row]) -> Table:
    """The schedules whose turn had not come when the run was stopped."""
    axes = _varying_axes(rows)
    body = [(Cell(*_schedule(row, axes)), Cell("not measured, stopped")) for row in rows if is_stop(row)]
    return Table(columns=(Column(heading="Schedule"), Column(heading="Outcome")), rows=tuple(body))


def failure_table(rows: Sequence[Row]) -> Table:
    """Every schedule that failed, with the stage that it reached and the sentence that says why."""
    failed = [row for row in rows if is_failure(row) and not is_stop(row)]
    axes, keys = _varying_axes(rows), differing(rows)
    headings = ("Schedule", *map(label, keys), "Stage", "Why")
    body = [
        (
            Cell(*_schedule(row, axes)),
            *(Cell(value_text(key, row.get(key))) for key in keys),
            Cell(str(row.get("stage") or "unknown")),
            Cell(str(row.get("message") or "no sentence was kept")),
        )
        for row in failed
    ]
    return Table(columns=tuple(Column(heading=heading) for heading in headings), rows=tuple(body))


def differing(rows: Sequence[Row]) -> list[str]:
    """What of the problem is not the same in all *rows*; an estimate's missing protocol is no difference."""
    return [key for key in _PROBLEM if len({_text(row.get(key)) for row in rows if row.get(key) is not None}) > 1]


def common(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """What is the same in every line of the outcome table, as name and value, so that no column repeats it."""
    shown = lines(rows)
    alike = [(label(key), value_text(key, values[0])) for key in _FIGURES if len(values := _values(shown, key)) == 1]
    varying = _varying_axes(rows)
    first_of: dict[str, Row] = {}
    for row in rows:
        first_of.setdefault(str(row.get("scheme")), row)
    for scheme, first in first_of.items():
        fixed = {name: value for name, value in (first.get("axes") or {}).items() if name not in varying[scheme]}
        if fixed:
            alike.append((f"{scheme} schedules", axes_title(fixed)))
    return alike


def _values(shown: Sequence[Line], key: str) -> list[Any]:
    """The different values of *key*, where it applies."""
    return list({_text(value): value for line in shown if (value := line.value(key)) is not None}.values())


def _varying_axes(rows: Sequence[Row]) -> dict[str, list[str]]:
    """By scheme, the axes that have more than one value among *rows*."""
    values: dict[str, dict[str, set[str]]] = {}
    for row in rows:
        of_scheme = values.setdefault(str(row.get("scheme")), {})
        for name, value in (row.get("axes") or {}).items():
            of_scheme.setdefault(name, set()).add(_text(value))
    return {scheme: [name for name, seen in axes.items() if len(seen) > 1] for scheme, axes in values.items()}


def schedule_text(row: Row, rows: Sequence[Row]) -> str:
    """A schedule in the words that tell it from the others of *rows*: `fused, tiles per slice 4`."""
    return ", ".join(filter(None, _schedule(row, _varying_axes(rows))))


def _schedule(row: Row, varying: Mapping[str, Sequence[str]]) -> tuple[str, str]:
    """A schedule's scheme, and its axes that are not the same in all rows of that scheme."""
    scheme, axes = str(row.get("scheme")), row.get("axes") or {}
    return scheme, axes_title({name: axes[name] for name in varying[scheme] if name in axes})


def _time(line: Line, source: str, slowest: float | None) -> Cell:
    row = line.by_source.get(source)
    if row is None:
        return Cell(value_text("time_s", None))
    time, spread = time_and_spread(row["time_s"], row.get("low_s"), row.get("high_s"))
    unfitted = "uncalibrated" if row.get("calibrated") is False else ""
    share = row["time_s"] / slowest if slowest else None
    aside = ", ".join(filter(None, (spread, unfitted)))
    return Cell(time, aside, share, order=row["time_s"])


def _trust(source: str) -> int:
    return list(SIGNS).index(source) if source in SIGNS else len(SIGNS)


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)
