"""Tables of a report: values as text, tables as HTML and Markdown, and outcomes with one line per schedule."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from math import ceil
from typing import Any

from markupsafe import Markup
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_output

from kernels.schemes import BASELINE
from kernels.units import bytes_text, rate_text, ratio_text, seconds_text, time_and_spread
from workbench.naming import COLUMNS, SIGNS, TIMED, axes_title, source_title
from workbench.results.comparison import BlockBases, baselines, leading, once, over_baseline, paired_gain
from workbench.results.deltas import Delta, Pinned
from workbench.results.metrics import agreed_in_block, gain, same_problem
from workbench.results.rows import Row, is_stop, link_of
from workbench.results.verdict import FASTER, NOT_CERTAIN, SLOWER, decide

# Values as text: the suffix of a key gives the unit, and LABELS its name.

NOTHING = "–"
"""The text of a value that does not apply."""

LABELS = {
    **COLUMNS,
    "started_at": "Started",
    "idea": "In words",
    "guess_s": "The guess",
    "floor_s": "Floor",
    "compute_s": "Compute alone",
    "comm_s": "Communication alone",
    "sequential_s": "Sequential",
    "wire_bytes_per_rank": "Bytes on the wire, per rank",
    "skew_s": "Skew",
    "samples": "Samples",
    "max_relative_error": "Largest error",
}
"""Names of keys, where the key itself would not read well."""

_FORMATS = (
    ("_bytes_per_second", rate_text),
    ("_bytes", bytes_text),
    ("_bytes_per_rank", bytes_text),
    ("_seconds", seconds_text),
    ("_s", seconds_text),
    ("_error", lambda error: f"{error:.1e}"),
    ("_at", lambda at: datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M %Z")),
)
_MARKDOWN = re.compile(r"[\\`*\[\]|~$]|(?<!\w)_|_(?!\w)|:(?=//)|(?<=^)[#+>-]|(?<=^\d)[.)]|(?<=^\d\d)[.)]")
"""Characters with a meaning in Markdown at their position; an underscore inside a word has none."""


def label(key: str) -> str:
    """The name of *key* for people: `cpu_model` is `Cpu model`, unless LABELS has another."""
    if key in LABELS:
        return LABELS[key]
    name = next((key.removesuffix(end) for end, _ in _FORMATS if key.endswith(end)), key).replace("_", " ")
    return name[:1].upper() + name[1:]


def value_text(key: str, value: Any) -> str:
    """*value* of *key* with its unit: `value_text("skew_s", 0.0012)` is `1.2 ms`."""
    if value is None or value == "":
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(_entry_text(str(name), entry) for name, entry in value.items() if entry is not None)
    if isinstance(value, list | tuple):
        separator = " × " if value and all(isinstance(entry, int) for entry in value) else ", "
        return separator.join(value_text(key, entry) for entry in value)
    if isinstance(value, int | float):
        to_text = _format(key)
        return to_text(value) if to_text else f"{value:.4g}" if isinstance(value, float) else str(value)
    return str(value)


def _format(key: str) -> Callable[[float], str] | None:
    """The function that writes a number whose key ends in a unit, or None."""
    return next((to_text for end, to_text in _FORMATS if key.endswith(end)), None)


def _entry_text(name: str, value: Any) -> str:
    """One entry of a mapping: `name value` if the value has a unit, otherwise `name = value`."""
    if name in ("name", "kind"):
        return value_text(name, value)
    return (
        f"{label(name).lower()} {value_text(name, value)}" if _format(name) else f"{name} = {value_text(name, value)}"
    )


def one_line(value: object) -> str:
    """*value* as text without line breaks, which would end a heading or a table row."""
    return " ".join(str(value).split())


def markdown_text(value: object) -> str:
    """*value* escaped so that Markdown shows exactly these characters."""
    return _escaped(one_line(value))


def _escaped(text: str) -> str:
    return _MARKDOWN.sub(r"\\\g<0>", text.replace("&", "&amp;").replace("<", "&lt;"))


_CODE = re.compile(r"`([^`]+)`")


def prose(text: str) -> str:
    """A sentence of ours as Markdown: its commands stay code, everything else is escaped."""
    parts = _CODE.split(one_line(text))
    return "".join(f"`{part}`" if number % 2 else _escaped(part) for number, part in enumerate(parts))


# A table as HTML and as Markdown; the text of its cells is escaped.

UPRIGHT_MOST = 8
"""The most columns of a portrait page: in a PDF a table with more is cut into several below each other. A browser that
prints the page has it in landscape."""
PAPER = "workbench_paper"
"""The metadata of an output whose HTML is another one on paper."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportColumn:
    """One column of a table."""

    heading: str
    figure: bool = False
    """Whether it holds numbers, which are aligned right."""
    word: bool = False
    """Whether its cells are single words, which are never broken."""
    descends: bool = False
    """Whether the largest number is the best."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One entry of a table: a text with a quieter one, a bar and a badge."""

    text: str
    aside: str = ""
    share: float | None = None
    """Length of the bar, 0 to 1."""
    badge: str = ""
    order: float | None = None
    """The number of the text, if a table can be sorted by it."""
    tone: str = ""
    """A colour in addition to words: `faster`, `slower`, or none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Columns and rows; the first `shown` rows are visible, the others can be unfolded."""

    columns: tuple[ReportColumn, ...]
    rows: tuple[tuple[Cell, ...], ...]
    best: int | None = None
    """Index of the highlighted row."""
    sorted_by: int | None = None
    """Index of the column by which the rows are sorted."""
    shown: int = 40

    def to_html(self) -> Markup:
        """The table as HTML, as wide as the page if it has three columns or more."""
        first = self._html(self.rows[: self.shown], self.best)
        rest = self.rows[self.shown :]
        if not rest:
            return first
        more = Markup("<details><summary>{} more rows</summary>{}</details>")
        return first + more.format(len(rest), self._html(rest, None))

    def to_markdown(self) -> str:
        """The table in GitHub's Markdown, with all rows."""
        headings = " | ".join(markdown_text(column.heading) for column in self.columns)
        rules = " | ".join("---:" if column.figure else "---" for column in self.columns)
        lines = [f"| {headings} |", f"| {rules} |"]
        for index, row in enumerate(self.rows):
            cells = [markdown_text(one_line(f"{c.text} {f'({c.aside})' if c.aside else ''} {c.badge}")) for c in row]
            lines.append("| " + " | ".join(f"**{cell}**" if index == self.best else cell for cell in cells) + " |")
        return "\n".join(lines)

    def to_cell(self) -> NotebookNode:
        """A notebook cell that shows the table wherever the notebook is opened."""
        parts = self.upright()
        paper = Markup("").join(part.to_html() for part in parts) if len(parts) > 1 else None
        return shown_cell(self.to_html(), self.to_markdown(), f"a table of {len(self.rows)} rows", paper)

    def upright(self) -> list[Table]:
        """The table in parts that are narrow enough for paper, each with the first column and some of the others."""
        count = ceil((len(self.columns) - 1) / (UPRIGHT_MOST - 1))
        if count < 2:
            return [self]
        each = ceil((len(self.columns) - 1) / count)
        places = [[0, *range(start, min(start + each, len(self.columns)))]
                  for start in range(1, len(self.columns), each)]  # fmt: skip
        return [Table(columns=tuple(self.columns[place] for place in part), best=self.best, shown=self.shown,
                      rows=tuple(tuple(row[place] for place in part) for row in self.rows))
                for part in places]  # fmt: skip

    def _html(self, rows: Sequence[tuple[Cell, ...]], best: int | None) -> Markup:
        width = len(self.columns)
        wide = Markup(' class="wb-wide{}"').format(" wb-many" * (width > UPRIGHT_MOST)) if width > 2 else ""
        head = Markup("").join(
            Markup('<th scope="col"{}>{}</th>').format(_class(column), column.heading) for column in self.columns
        )
        body = Markup("").join(
            Markup("<tr{}>{}</tr>").format(
                Markup(' class="wb-best"') if index == best else "",
                Markup("").join(map(_cell_html, self.columns, row)),
            )
            for index, row in enumerate(rows)
        )
        return Markup("<table{}><thead><tr>{}</tr></thead><tbody>{}</tbody></table>").format(wide, head, body)


def pairs_cell(pairs: Sequence[tuple[str, str]], *, grid: bool = False) -> NotebookNode:
    """A cell of names and values, one pair per line; as a *grid*, in as many columns as fit."""
    line = Markup('<tr><th scope="row">{}</th><td>{}</td></tr>')
    lines = Markup("").join(line.format(name, value) for name, value in pairs)
    html = Markup('<table class="{}"><tbody>{}</tbody></table>').format("wb-grid" if grid else "wb-pairs", lines)
    text = "\n".join(f"- {markdown_text(name)}: {markdown_text(value)}" for name, value in pairs)
    return shown_cell(html, text, "; ".join(f"{name}: {value}" for name, value in pairs))


def shown_cell(html: str, markdown: str, plain: str, paper: str | None = None) -> NotebookNode:
    """A code cell without code, whose output is the same content as HTML, Markdown and plain text.

    *paper* is the HTML of a PDF, where it is another one.
    """
    data = {"text/html": str(html), "text/markdown": markdown, "text/plain": plain}
    metadata = {} if paper is None else {PAPER: str(paper)}
    return new_code_cell(outputs=[new_output("display_data", data, metadata=metadata)])


def _class(column: ReportColumn) -> Markup:
    name = "wb-figure" if column.figure else "wb-word" if column.word else ""
    return Markup(' class="{}"').format(name) if name else Markup("")


def _cell_html(column: ReportColumn, cell: Cell) -> Markup:
    text = Markup("{}").format(cell.text)
    if cell.tone:
        text = Markup('<span class="wb-{}">{}</span>').format(cell.tone, text)
    if cell.aside:
        text += Markup(' <span class="wb-aside">{}</span>').format(cell.aside)
    if cell.badge:
        text += Markup(' <span class="wb-badge">{}</span>').format(cell.badge)
    if cell.share is not None:
        bar = Markup('<span class="wb-track"><span class="wb-bar" style="width: {:.1f}%"></span></span>')
        line = Markup('<div class="wb-line">{}<span>{}</span></div>')
        text = line.format(bar.format(100 * min(max(cell.share, 0.0), 1.0)), text)
    return Markup("<td{}>{}</td>").format(_class(column), text)


# Tables of outcomes, which show only differences: one line per schedule, one column for clocks and one for each other
# source.

_PROBLEM = ("operator", "shape", "dtype", "world", "backend", "machine", "fabric", "protocol", "part")
_SAME_TRIAL = ("operator", "shape", "dtype", "world", "machine", "fabric", "scheme", "axes")
"""Columns in which the measured and the estimated row of one trial agree."""
_FIGURES = ("floor_s", "compute_s", "comm_s", "sequential_s", "skew_s", "samples", "max_relative_error")


@dataclass(slots=True)
class ReportLine:
    """One schedule of one problem, with at most one row of each source, and one of all clocks."""

    by_source: dict[str, Row] = field(default_factory=dict)

    @property
    def leading(self) -> Row:
        """The row whose source is trusted most."""
        return self.by_source[min(self.by_source, key=_trust)]

    @property
    def clock(self) -> Row | None:
        """The timed row; None if the schedule was not timed."""
        return self.leading if self.leading.get("source") in TIMED else None

    def value(self, key: str) -> Any:
        """*key* from the most trusted row that has it."""
        values = (self.by_source[source].get(key) for source in sorted(self.by_source, key=_trust))
        return next((value for value in values if value is not None), None)


def is_failure(row: Row) -> bool:
    """Whether *row* has an error message instead of a time."""
    return row.get("outcome") == "failure" or row.get("time_s") is None


def parts_of(rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """The rows of whole schedules, and those of their computation or communication timed alone."""
    whole = [row for row in rows if _part(row) == "whole"]
    return whole, [row for row in rows if _part(row) != "whole"]


def _part(row: Row) -> str:
    return row.get("part") or "whole"


def lines(rows: Sequence[Row]) -> list[ReportLine]:
    """The rows that have a time, joined by schedule: timed ones, then those only estimated, each fastest first.

    The best schedule is first: blocks may have been slower than others, so that the clock alone does not say it.
    """
    groups: dict[str, list[ReportLine]] = {}
    for row in once(rows):
        if is_failure(row):
            continue
        # a link that follows from a ratio is another one after each calibration, and the same question
        with_link = {**row, "fabric": row.get("fabric") and link_of(row["fabric"])}
        same = groups.setdefault(_text([_part(row), *(with_link.get(key) for key in _SAME_TRIAL)]), [])
        source = str(row.get("source"))
        line = next((line for line in same if source not in line.by_source), None)
        if line is None:
            same.append(line := ReportLine())
        line.by_source[source] = row
    first = next(iter(leading(rows)), None)

    def order(line: ReportLine) -> tuple[bool, bool, float]:
        return line.clock is None, line.leading is not first, line.leading["time_s"]

    return sorted((line for same in groups.values() for line in same), key=order)


def gain_text(rows: Sequence[Row]) -> str:
    """`Fastest: fused, 357 µs, 1.44x faster than the best sequential schedule.` for the rows of one problem."""
    best = leading(_compared(rows))[0]
    faster = gain(best)
    time = value_text("time_s", best["time_s"])
    text = f"Fastest: {schedule_text(best, rows)}, {time} {best.get('source')}"
    if faster is None or best.get("scheme") == BASELINE:
        return f"{text}."
    base = next(iter(baselines(best, rows)), None)
    if base is not None and best.get("source") in TIMED:
        decided = over_baseline(best, base, rows)
        if decided.word != FASTER:
            return f"{text}; that it beats the best sequential schedule is {NOT_CERTAIN}."
        faster = decided.ratio or faster
    return f"{text}, {ratio_text(faster)} faster than the best sequential schedule."


def _compared(rows: Sequence[Row]) -> Sequence[Row]:
    """The rows whose ratios are shown: timed ones, or estimates if none was timed."""
    known = [row for row in rows if not is_failure(row)]
    return agreed_in_block([row for row in known if row.get("source") in TIMED] or known)


BY_PAIRED_ROUNDS = ", by paired rounds"
"""The end of the heading of ratios of paired rounds."""


def _speed_ups(rows: Sequence[Row], shown: Sequence[ReportLine]) -> tuple[list[ReportColumn], list[list[Cell]]]:
    """The column of each line's speed-up over the baseline, and its cells; empty if there is no ratio.

    The heading says where ratios are of paired rounds: other tables have that of two times, which differs a little.
    """
    compared = {_identity(row): row for row in _compared(rows) if gain(row) is not None}
    if not compared or len(shown) < 2:
        return [], [[] for _ in shown]
    every = list(compared.values())
    base = [row for row in every if row.get("scheme") == BASELINE and row["time_s"] == row["sequential_s"]]
    varying = _varying_axes(rows)
    names = {", ".join(filter(None, _schedule(row, varying))) for row in base}
    # the best sequential schedule of one block may not be that of another, and was not as fast there
    shown_rows = {_identity(row) for line in shown for row in line.by_source.values()}
    several = len({row.get("block") for mark, row in compared.items() if mark in shown_rows}) > 1
    baseline = (
        f"the best {BASELINE} of its block" if several else names.pop() if len(names) == 1 else f"the best {BASELINE}"
    )
    source = next(iter(compared.values())).get("source")
    cells, bases = [], BlockBases.of(every)
    of_lines = [
        next((compared[mark] for each in line.by_source.values() if (mark := _identity(each)) in compared), None)
        for line in shown
    ]
    has_pairs = any(row is not None and _is_paired(row, bases) for row in of_lines)
    for row in of_lines:
        base_row = None if row is None else bases.best.get(same_problem(row))
        ratio = None if row is None else gain(row) if base_row is None else paired_gain(row, base_row)
        over = bases.text(row) if row is not None and several else ""
        is_unpaired = has_pairs and row is not None and row is not base_row and not _is_paired(row, bases)
        aside = ", ".join(filter(None, (over, "of the two times" * is_unpaired)))
        cells.append([Cell("–" if ratio is None else ratio_text(ratio), aside, order=ratio)])
    how = BY_PAIRED_ROUNDS if has_pairs else "" if source in TIMED else f", {source}"
    return [ReportColumn(heading=f"Speed-up over {baseline}{how}", figure=True, descends=True)], cells


def _is_paired(row: Row, bases: BlockBases) -> bool:
    """Whether the speed-up of *row* over another one, its baseline of *bases*, is of paired rounds."""
    base = bases.best.get(same_problem(row))
    return base is not None and base is not row and decide(row, base).ratio is not None


def _identity(row: Row) -> str:
    """The key of *row* within a table."""
    return _text([row.get(key) for key in (*_SAME_TRIAL, "source", "block", "time_s")])


def _deltas(shown: Sequence[ReportLine], baseline: Pinned | None) -> tuple[list[ReportColumn], list[list[Cell]]]:
    """The column of each line's signed difference to *baseline*, and its cells; empty without one."""
    if baseline is None:
        return [], [[] for _ in shown]
    deltas = [baseline.delta(line.leading) for line in shown]
    heading = f"Difference to the baseline, {seconds_text(baseline.row['time_s'])}"
    return [ReportColumn(heading=heading, figure=True)], [[delta_cell(delta)] for delta in deltas]


def delta_cell(delta: Delta) -> Cell:
    """The per cent of *delta*, coloured where the verdict is certain, with its time and the verdict's word."""
    tone = delta.word if delta.word in (FASTER, SLOWER) else ""
    more = ", ".join(filter(None, (delta.time, delta.remark))) if delta.percent else ""
    return Cell(delta.percent or delta.remark, more, order=delta.share, tone=tone)


def outcome_table(rows: Sequence[Row], baseline: Pinned | None = None) -> Table:
    """Every schedule that has a time, the best first, with its other numbers, and its difference to a *baseline*.

    Parts timed alone have no fastest: computation and communication do not compete.
    """
    shown = lines(rows)
    axes, keys = _varying_axes(rows), differing(rows)
    figures = [key for key in _FIGURES if len(_values(shown, key)) > 1]
    clocks = [line.clock for line in shown if line.clock is not None]
    times, headings = _times(shown)
    best = 0 if len(clocks) > 1 and all(_part(row) == "whole" for row in clocks) else None
    columns = [ReportColumn(heading="Schedule"), *(ReportColumn(heading=label(key)) for key in keys)]
    columns += [ReportColumn(heading=heading, figure=True) for heading in headings]
    faster, ratios = _speed_ups(rows, shown)
    differ, deltas = _deltas(shown, baseline)
    columns += [*differ, *faster, *(ReportColumn(heading=label(key), figure=True) for key in figures)]
    body = [
        (
            Cell(*_schedule(line.leading, axes), badge="fastest" if index == best else ""),
            *(Cell(value_text(key, line.value(key))) for key in keys),
            *times[index],
            *deltas[index],
            *ratios[index],
            *(Cell(value_text(key, line.value(key)), order=line.value(key)) for key in figures),
        )
        for index, line in enumerate(shown)
    ]
    # a heading is marked as the order only where it is: the best of a slow block is first in spite of its time
    ordered = pairwise(row["time_s"] for row in clocks or [line.leading for line in shown])
    is_by_time = all(time_s <= next_s for time_s, next_s in ordered)
    sorted_by = 1 + len(keys) if shown and is_by_time else None
    return Table(columns=tuple(columns), rows=tuple(body), best=best, sorted_by=sorted_by)


def _times(shown: Sequence[ReportLine]) -> tuple[list[list[Cell]], list[str]]:
    """The cells of each line's times, and their headings: one column for all clocks, then one for each other source."""
    present = sorted({source for line in shown for source in line.by_source}, key=_trust)
    clocks = [source for source in present if source in TIMED]
    others = [source for source in present if source not in TIMED]
    slowest = max((row["time_s"] for line in shown for row in line.by_source.values()), default=0.0)
    cells: list[list[Cell]] = [[] for _ in shown]
    for line, of_line in zip(shown, cells, strict=True):
        if clocks:
            of_line.append(_time(line.clock, slowest, signed=len(clocks) > 1))
        of_line += [_time(line.by_source.get(source), None if clocks or number else slowest)
                    for number, source in enumerate(others)]  # fmt: skip
    return cells, [*([", ".join(map(source_title, clocks))] if clocks else []), *map(source_title, others)]


def stop_table(rows: Sequence[Row]) -> Table:
    """The schedules that were not measured because the run was stopped."""
    axes = _varying_axes(rows)
    body = [(Cell(*_schedule(row, axes)), Cell("not measured, stopped")) for row in rows if is_stop(row)]
    return Table(columns=(ReportColumn(heading="Schedule"), ReportColumn(heading="Outcome")), rows=tuple(body))


def failure_table(rows: Sequence[Row]) -> Table:
    """Every schedule that failed, with the stage that it reached and its error message."""
    failed = [row for row in rows if is_failure(row) and not is_stop(row)]
    axes, keys = _varying_axes(rows), differing(rows)
    headings = ("Schedule", *map(label, keys), "Stage", "Why")
    body = [
        (
            Cell(*_schedule(row, axes)),
            *(Cell(value_text(key, row.get(key))) for key in keys),
            Cell(str(row.get("stage") or "unknown")),
            Cell(str(row.get("message") or "no message was stored")),
        )
        for row in failed
    ]
    return Table(columns=tuple(ReportColumn(heading=heading) for heading in headings), rows=tuple(body))


def differing(rows: Sequence[Row]) -> list[str]:
    """The columns of the problem that differ in *rows*; a missing value is no difference."""
    return [key for key in _PROBLEM if len({_text(row.get(key)) for row in rows if row.get(key) is not None}) > 1]


def common(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """Names and values that are the same in every line of the outcome table, so that no column repeats them."""
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


def _values(shown: Sequence[ReportLine], key: str) -> list[Any]:
    """The distinct values of *key* in *shown*."""
    return list({_text(value): value for line in shown if (value := line.value(key)) is not None}.values())


def _varying_axes(rows: Sequence[Row]) -> dict[str, list[str]]:
    """By scheme, the axes with more than one value in *rows*."""
    values: dict[str, dict[str, set[str]]] = {}
    for row in rows:
        of_scheme = values.setdefault(str(row.get("scheme")), {})
        for name, value in (row.get("axes") or {}).items():
            of_scheme.setdefault(name, set()).add(_text(value))
    return {scheme: [name for name, seen in axes.items() if len(seen) > 1] for scheme, axes in values.items()}


def schedule_text(row: Row, rows: Sequence[Row]) -> str:
    """A schedule by the axes that distinguish it in *rows*: `fused, tiles per slice 4`."""
    return ", ".join(filter(None, _schedule(row, _varying_axes(rows))))


def _schedule(row: Row, varying: Mapping[str, Sequence[str]]) -> tuple[str, str]:
    """A schedule's scheme, and its axes that vary among the rows of that scheme."""
    scheme, axes = str(row.get("scheme")), row.get("axes") or {}
    return scheme, axes_title({name: axes[name] for name in varying[scheme] if name in axes})


def _time(row: Row | None, slowest: float | None, *, signed: bool = False) -> Cell:
    """The time of *row*, after the sign of its source if *signed*, with a bar where the *slowest* is given."""
    if row is None:
        return Cell(value_text("time_s", None))
    time, spread = time_and_spread(row["time_s"], row.get("low_s"), row.get("high_s"))
    unfitted = "uncalibrated" if row.get("calibrated") is False else ""
    share = row["time_s"] / slowest if slowest else None
    aside = ", ".join(filter(None, (spread, unfitted)))
    sign = f"{SIGNS[row['source']]}\N{NO-BREAK SPACE}" if signed else ""
    return Cell(f"{sign}{time}", aside, share, order=row["time_s"])


def _trust(source: str) -> int:
    return list(SIGNS).index(source) if source in SIGNS else len(SIGNS)


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)
