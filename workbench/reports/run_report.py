"""A stored run as a notebook: what was asked, what came back, where each number comes from, how it was taken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
from markupsafe import Markup
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from kernels.protocol import GPU_ONLY
from workbench.charts.words import fabric_words
from workbench.reports.bundle import bundle, plain
from workbench.reports.derived import Derived, derived_table
from workbench.reports.methods import cautions, methods
from workbench.reports.outcomes import (
    Row,
    common,
    failure_table,
    fastest,
    is_failure,
    outcome_table,
    parts_of,
    schedule_text,
)
from workbench.reports.sources import legend
from workbench.reports.tables import Cell, Column, Table, pairs_cell, shown_cell
from workbench.reports.values import label, markdown_text, one_line, value_text

Facts = Mapping[str, Any]

_SIZES = ("local_sizes", "global_sizes")
_HEAD = ("title", "notes", "run", "started_at")
_ASKED = ("operator", "idea", "shape", "dtype", "world", "backend", "machine", "fabric", "protocol", "guess_s")


def run_report(
    facts: Facts,
    rows: Sequence[Row],
    charts: Sequence[tuple[str, alt.TopLevelMixin]],
    numbers: Sequence[Derived] = (),
) -> NotebookNode:
    """The report of one run, in memory; `export` writes it.

    *facts* are plain values, all optional: `title`, `notes`, `run`, `started_at`; what was asked (`operator`, `idea`,
    `shape`, `dtype`, `world`, `backend`, `machine`, `fabric`, `protocol`, `guess_s`); `local_sizes` and `global_sizes`
    (name -> extents); `provenance` (a mapping); `cores`. Any other key is listed with what was asked.
    *rows* have the keys of `run --json`. *charts* are titles and Altair charts, in reading order.
    *numbers* are derived ones of the fastest schedule.
    """
    rows = plain(list(rows))  # a frame's rows hold NaN where a key does not apply
    title = one_line(facts.get("title") or f"Run {facts.get('run') or 'without a name'}")
    cells = [new_markdown_cell(_head(title, facts, rows)), *_asked(facts), *_came_back(facts, rows)]
    for name, chart in charts:
        heading = [new_markdown_cell(f"### {markdown_text(name)}")] if name else []
        cells += [*heading, new_code_cell(outputs=[new_output("display_data", bundle(chart))])]
    if numbers:
        heading = new_markdown_cell("### What follows from the times of the fastest")
        cells += [heading, derived_table(numbers).to_cell()]
    cells += [*_outcomes(rows), new_markdown_cell("## Where the numbers come from"), legend(rows).to_cell()]
    cells += [new_markdown_cell(f"## Method\n\n{methods(facts, rows)}"), *_provenance(facts)]
    notebook = new_notebook(cells=cells, metadata={"title": title})
    for index, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{index}"  # the same run gives the same file
    return notebook


def _head(title: str, facts: Facts, rows: Sequence[Row]) -> str:
    """Title, when and what in one line, what its owner wrote, and what a reader must know before any number."""
    said = [f"{label(key)} {value_text(key, facts[key])}" for key in ("run", "started_at") if facts.get(key)]
    parts = [f"# {markdown_text(title)}", markdown_text(" · ".join(said))]
    parts += [markdown_text(line) for line in str(facts.get("notes") or "").splitlines()]
    parts += [f"> {markdown_text(sentence)}" for sentence in cautions(facts, rows)]
    return "\n\n".join(part for part in parts if part)


def _asked(facts: Facts) -> list[NotebookNode]:
    listed = [key for key in _ASKED if facts.get(key) is not None]
    listed += [key for key in facts if key not in (*_HEAD, *_SIZES, *_ASKED, "provenance")]
    cells = [new_markdown_cell("## What was asked")]
    if listed:
        fabric = facts.get("fabric")
        words = fabric_words(fabric) if isinstance(fabric, str) else fabric
        said = {**facts, "protocol": _protocol(facts), "fabric": words}
        cells.append(pairs_cell([(label(key), value_text(key, said[key])) for key in listed], grid=True))
    local, whole = (facts.get(key) or {} for key in _SIZES)
    if local or whole:
        headings = ("Sizes", "On one rank", "Over all ranks")
        rows = _sizes(local, whole)
        columns = tuple(Column(heading=heading) for heading in headings)
        cells.append(Table(columns=columns, rows=tuple(tuple(map(Cell, row)) for row in rows)).to_cell())
    return cells


def _sizes(local: Mapping[str, Any], whole: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Tensors by name; in pairs where all have a counterpart: one expert here is one of the experts."""
    if len(local) == len(whole):
        pairs = zip(local.items(), whole.values(), strict=True)
        return [(name, value_text(name, mine), value_text(name, all_of_it)) for (name, mine), all_of_it in pairs]
    return [(name, value_text(name, local.get(name)), value_text(name, whole.get(name))) for name in {**local, **whole}]


def _protocol(facts: Facts) -> Any:
    """The protocol without what CPU ranks have no part in."""
    protocol = facts.get("protocol")
    if facts.get("backend") != "cpu" or not isinstance(protocol, Mapping):
        return protocol
    return {name: value for name, value in protocol.items() if name not in GPU_ONLY}


def _came_back(facts: Facts, rows: Sequence[Row]) -> list[NotebookNode]:
    """How many rows of each kind, and the few numbers that somebody opens the report for."""
    whole, parts = parts_of(rows)
    counts = Counter("failed" if is_failure(row) else str(row.get("source")) for row in whole)
    counts |= {"of computation or communication alone": len(parts)} if parts else {}
    sentence = ", ".join(f"{count} {kind}" for kind, count in counts.items()) or "nothing"
    cells = [new_markdown_cell(f"## What came back\n\n{markdown_text(f'Outcomes: {sentence}.')}")]
    cards = _cards(facts, whole)
    if cards:
        card = Markup('<div class="wb-card"><div class="wb-number">{}</div><div class="wb-label">{}</div>{}</div>')
        aside = Markup('<div class="wb-aside">{}</div>')
        html = Markup("").join(card.format(number, name, aside.format(more)) for name, number, more in cards)
        text = "\n".join(f"- {markdown_text(n)}: **{markdown_text(v)}** {markdown_text(more)}" for n, v, more in cards)
        plain = "; ".join(f"{name}: {number} {more}".strip() for name, number, more in cards)
        cells.append(shown_cell(Markup('<div class="wb-cards">{}</div>').format(html), text, plain))
    return cells


def _cards(facts: Facts, rows: Sequence[Row]) -> list[tuple[str, str, str]]:
    """Name, number and what it belongs to. Values of the rows, never computed from them."""
    best = fastest(rows, "measured") or fastest(rows, "recorded")
    leading = best or fastest(rows, "estimated")
    if leading is None:
        return []
    source = leading["source"]
    cards = [(f"Fastest {source}", leading, schedule_text(leading, rows))]
    plain = fastest(rows, source, "sequential")
    if plain is not None and plain is not leading:
        cards.append((f"Sequential, {source}", plain, "nothing overlaps"))
    guessed = [row for row in rows if row.get("source") == "estimated" and not is_failure(row)]
    alike = [row for row in guessed if all(row.get(key) == leading.get(key) for key in ("scheme", "axes", "shape"))]
    if best is not None and alike:
        unfitted = "the simulator, not calibrated here" if alike[0].get("calibrated") is False else "the simulator"
        cards.append(("Estimated for the fastest", alike[0], unfitted))
    shown = [(name, value_text("time_s", row["time_s"]), more) for name, row, more in cards]
    if leading.get("floor_s") is not None:
        shown.append(("Floor", value_text("floor_s", leading["floor_s"]), "no schedule can be faster"))
    if facts.get("guess_s") is not None:
        shown.append(("The guess", value_text("guess_s", facts["guess_s"]), "before anything was run"))
    return shown


def _outcomes(rows: Sequence[Row]) -> list[NotebookNode]:
    whole, parts = parts_of(rows)
    cells = [new_markdown_cell("## All outcomes")]
    if not all(map(is_failure, whole)):
        cells.append(outcome_table(whole).to_cell())
    if same := common(whole):
        cells += [new_markdown_cell("### The same in every row"), pairs_cell(same)]
    if not all(map(is_failure, parts)):
        cells += [new_markdown_cell("### Parts, timed alone"), outcome_table(parts).to_cell()]
    if any(map(is_failure, rows)):
        cells += [new_markdown_cell("### What failed, and why"), failure_table(rows).to_cell()]
    return cells


def _provenance(facts: Facts) -> list[NotebookNode]:
    known = facts.get("provenance") or {}
    if not known:
        return []
    pairs = [(label(key), value_text(key, value)) for key, value in known.items() if value is not None]
    return [new_markdown_cell("## Provenance"), pairs_cell(pairs, grid=True)]
