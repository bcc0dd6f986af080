"""A stored run as a notebook: what was found, what was asked, where each number comes from, how it was taken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
from markupsafe import Markup
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from kernels.protocol import GPU_ONLY
from workbench.metrics import JOINED
from workbench.one_problem import PROBLEM
from workbench.reports.beside import CAUTION, beside_published, num_published
from workbench.reports.bundle import bundle, plain
from workbench.reports.cases import Case, cases, problem_text, titles
from workbench.reports.derived import Derived, derived_table
from workbench.reports.headline import headline
from workbench.reports.methods import cautions, methods
from workbench.reports.outcomes import (
    Row,
    common,
    failure_table,
    is_failure,
    is_stop,
    outcome_table,
    parts_of,
    stop_table,
)
from workbench.reports.sources import legend
from workbench.reports.summary import cards, in_short, lead, recommended
from workbench.reports.tables import Cell, Column, Table, pairs_cell, shown_cell
from workbench.reports.values import label, markdown_text, one_line, value_text

Facts = Mapping[str, Any]

_SIZES = ("local_sizes", "global_sizes")
_HEAD = ("title", "notes", "run", "started_at", "status", "timed_how")
_ASKED = ("operator", "idea", "shape", "dtype", "world", "backend", "machine", "fabric", "protocol", "guess_s")


@dataclass(frozen=True, slots=True)
class Shown:
    """What is drawn of one case, and what follows from the times of its fastest schedule."""

    charts: Sequence[tuple[str, alt.TopLevelMixin]] = ()
    """Titles and Altair charts, in reading order."""
    numbers: Sequence[Derived] = ()


def run_report(facts: Facts, rows: Sequence[Row], shown: Sequence[Shown] = ()) -> NotebookNode:
    """The report of one run, in memory; `export` writes it.

    *facts* are plain values, all optional: `title`, `notes`, `run`, `started_at`, `status`; what was asked (`operator`,
    `idea`, `shape`, `dtype`, `world`, `backend`, `machine`, `fabric`, `protocol`, `guess_s`); `local_sizes` and
    `global_sizes` (name -> extents); `provenance` (a mapping); `cores`; `timed_how` (of each measurement). Any other
    key is listed with what was asked.
    *rows* have the keys of `run --json`. *shown* is of each case that `cases(rows)` finds.
    """
    title = title_of(facts)
    cells = [*heads(f"# {markdown_text(title)}", facts), *run_cells(facts, rows, shown)]
    return as_notebook(title, cells)


def title_of(facts: Facts) -> str:
    """What a run is called, on one line."""
    return one_line(facts.get("title") or f"Run {facts.get('run') or 'without a name'}")


def as_notebook(title: str, cells: Sequence[NotebookNode]) -> NotebookNode:
    """The same cells give the same file."""
    notebook = new_notebook(cells=list(cells), metadata={"title": title})
    for index, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{index}"
    return notebook


def heads(heading: str, facts: Facts) -> list[NotebookNode]:
    """The heading, when and what in one line, and what its author wrote."""
    said = [f"{label(key)} {value_text(key, facts[key])}" for key in ("run", "started_at") if facts.get(key)]
    cells = [new_markdown_cell("\n\n".join(filter(None, (heading, markdown_text(" · ".join(said))))))]
    return [*cells, *note(str(facts.get("notes") or ""))]


def note(text: str) -> list[NotebookNode]:
    """An author's words as they were written: no markup in them is obeyed, empty lines part paragraphs."""
    paragraphs = [" ".join(part.split()) for part in text.split("\n\n") if part.strip()]
    if not paragraphs:
        return []
    html = Markup("").join(Markup("<p>{}</p>").format(paragraph) for paragraph in paragraphs)
    markdown = "\n\n".join(f"> {markdown_text(paragraph)}" for paragraph in paragraphs)
    return [shown_cell(Markup('<div class="wb-author">{}</div>').format(html), markdown, " ".join(paragraphs))]


def run_cells(facts: Facts, rows: Sequence[Row], shown: Sequence[Shown] = (), level: int = 2) -> list[NotebookNode]:
    """All of one run below its title: what was found first, how it was found last. Headings begin at *level*."""
    rows = plain(list(rows))  # a frame's rows hold NaN where a key does not apply
    problems, mark = cases(rows), "#" * level
    drawn = [*shown, *[Shown()] * (len(problems) - len(shown))]
    cells = [lead(problems, facts.get("status"))]
    if said := cautions(facts, rows):
        cells.append(new_markdown_cell("\n\n".join(f"> {markdown_text(sentence)}" for sentence in said)))
    single = problems[0] if len(problems) == 1 else None
    cells += [*cards(facts, single), *recommended(single)] if single else in_short(problems, mark)
    cells += [*_asked(facts, mark), new_markdown_cell(f"{mark} What came back\n\n{markdown_text(_outcomes(rows))}")]
    for title, case, its in zip(titles(problems), problems, drawn, strict=True):
        cells += _case_cells(title, case, its, mark)
    papers = beside_published(problems)
    if papers is not None:
        cells += [new_markdown_cell(f"{mark} Beside what is published\n\n{CAUTION}"), papers.to_cell()]
    cells += [new_markdown_cell(f"{mark} Where the numbers come from"), legend(rows, num_published(papers)).to_cell()]
    cells += [new_markdown_cell(f"{mark} Method\n\n{methods(facts, rows)}"), *_provenance(facts, mark)]
    return cells


def _case_cells(title: str, case: Case, shown: Shown, mark: str) -> list[NotebookNode]:
    """One problem: its sentence if it is one of several, its charts, what follows from them, every outcome."""
    cells = []
    if title:
        cells = [new_markdown_cell(f"{mark} {markdown_text(title)}\n\n{markdown_text(headline(case))}")]
        cells += recommended(case)
    under = f"{mark}#"
    for name, chart in shown.charts:
        heading = [new_markdown_cell(f"{under} {markdown_text(name)}")] if name else []
        cells += [*heading, new_code_cell(outputs=[new_output("display_data", bundle(chart, themed=True))])]
    if shown.numbers:
        heading = [new_markdown_cell(f"{under} What follows from the times of the fastest")]
        cells += [*heading, derived_table(shown.numbers).to_cell()]
    return [*cells, *_outcome_cells(case, under if title else mark, under)]


def _outcome_cells(case: Case, mark: str, under: str) -> list[NotebookNode]:
    whole, parts = parts_of(case.rows)
    cells = [new_markdown_cell(f"{mark} All outcomes")]
    if not all(map(is_failure, whole)):
        cells.append(outcome_table(whole).to_cell())
    if said := case.together:
        cells.append(new_markdown_cell(markdown_text(said)))
    if same := common(whole):
        cells += [new_markdown_cell(f"{under} The same in every row"), pairs_cell(same)]
    if not all(map(is_failure, parts)):
        # computation crosses no link, communication that of its problem; a part is what the joined numbers are made of
        alone = [{**row, **dict.fromkeys(("fabric", *JOINED))} for row in parts]
        cells += [new_markdown_cell(f"{under} Parts, timed alone"), outcome_table(alone).to_cell()]
    if any(map(is_failure, case.rows)):
        cells += [new_markdown_cell(f"{under} What failed, and why"), failure_table(case.rows).to_cell()]
    if case.stopped:
        cells += [new_markdown_cell(f"{under} Not measured: the run was stopped"), stop_table(case.whole).to_cell()]
    return cells


def _kind(row: Row) -> str:
    return "not measured, stopped" if is_stop(row) else "failed" if is_failure(row) else str(row.get("source"))


def _outcomes(rows: Sequence[Row]) -> str:
    """How many rows of each kind."""
    whole, parts = parts_of(rows)
    counts = Counter(map(_kind, whole))
    counts |= {"of computation or communication alone": len(parts)} if parts else {}
    return f"Outcomes: {', '.join(f'{count} {kind}' for kind, count in counts.items()) or 'nothing'}."


def _asked(facts: Facts, mark: str) -> list[NotebookNode]:
    listed = [key for key in _ASKED if facts.get(key) is not None]
    listed += [key for key in facts if key not in (*_HEAD, *_SIZES, *_ASKED, "provenance")]
    cells = [new_markdown_cell(f"{mark} What was asked")]
    if listed:
        cells.append(pairs_cell([(label(key), _fact_text(facts, key)) for key in listed], grid=True))
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
        return [(name, value_text(name, value), value_text(name, all_of_it)) for (name, value), all_of_it in pairs]
    return [(name, value_text(name, local.get(name)), value_text(name, whole.get(name))) for name in {**local, **whole}]


def _fact_text(facts: Facts, key: str) -> str:
    if key == "protocol":
        return value_text(key, _protocol(facts))
    return problem_text(key, facts[key]) if key in PROBLEM and key != "world" else value_text(key, facts[key])


def _protocol(facts: Facts) -> Any:
    """The protocol without what CPU ranks have no part in."""
    protocol = facts.get("protocol")
    if facts.get("backend") != "cpu" or not isinstance(protocol, Mapping):
        return protocol
    return {name: value for name, value in protocol.items() if name not in GPU_ONLY}


def _provenance(facts: Facts, mark: str) -> list[NotebookNode]:
    known = facts.get("provenance") or {}
    if not known:
        return []
    pairs = [(label(key), value_text(key, value)) for key, value in known.items() if value is not None]
    return [new_markdown_cell(f"{mark} Provenance"), pairs_cell(pairs, grid=True)]
