"""The report of a stored run as a notebook, with its facts, rows and charts; the explorer shows the same charts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import altair as alt
from markupsafe import Markup
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from kernels.operators import OPERATORS
from kernels.outcome import Span
from kernels.problem import Problem
from kernels.schemes import BASELINE
from kernels.trial import GPU_ONLY
from workbench.charts import sweep, timeline, trials, waterfall
from workbench.charts.labels import BETWEEN, context
from workbench.experiment.question import commands
from workbench.experiment.space import EVERY
from workbench.naming import TIMED, operator_title
from workbench.reports.baseline import baseline_cells, pinned
from workbench.reports.cases import Case, cards, cases, headline, in_short, lead, problem_text, recommended, titles
from workbench.reports.last_report import Changes, LastReports, changed_cells, changes
from workbench.reports.methods import (
    CAUTION,
    DerivedNumber,
    cautions,
    derived,
    derived_table,
    legend,
    methods,
    num_published,
    published_table,
    trusted,
)
from workbench.reports.pictures import bundle, plain
from workbench.reports.tables import (
    Cell,
    ReportColumn,
    Table,
    common,
    failure_table,
    is_failure,
    label,
    markdown_text,
    one_line,
    outcome_table,
    pairs_cell,
    parts_of,
    prose,
    schedule_text,
    shown_cell,
    stop_table,
    value_text,
)
from workbench.results import comparison, metrics
from workbench.results.deltas import Pinned
from workbench.results.metrics import JOINED
from workbench.results.provenance import shared_provenance
from workbench.results.recordings import RECORDED
from workbench.results.rows import PROBLEM, Row, is_stop
from workbench.results.store import Store

# The notebook: results, the question, the source of each number, the method.

Facts = Mapping[str, Any]

_SIZES = ("local_sizes", "global_sizes")
_HEAD = ("title", "notes", "run", "started_at", "status", "timed_how", "command")
_QUESTION = ("operator", "idea", "shape", "dtype", "world", "backend", "machine", "fabric", "protocol", "guess_s")


FIRST_HEIGHT = 190
"""Height of the chart on a first page, which has room for the verdict, what to trust and the command, too."""
NO_COMMAND = "No command measures exactly this again: it is a replay, or its space needs a file (`workbench sweep`)."


@dataclass(frozen=True, slots=True)
class CaseDrawing:
    """The charts of one case, the numbers derived for its fastest schedule, and what it is compared with."""

    charts: Sequence[tuple[str, alt.TopLevelMixin]] = ()
    """Titles and Altair charts, in reading order."""
    numbers: Sequence[DerivedNumber] = ()
    baseline: Pinned | None = None
    """What its outcomes are compared with."""
    changed: Changes | None = None
    """What changed since the last report of its problem."""


def run_report(facts: Facts, rows: Sequence[Row], shown: Sequence[CaseDrawing] = ()) -> NotebookNode:
    """The report of one run, in memory; `export` writes it.

    *facts* are plain values, all optional: `title`, `notes`, `run`, `started_at`, `status`; the question (`operator`,
    `idea`, `shape`, `dtype`, `world`, `backend`, `machine`, `fabric`, `protocol`, `guess_s`); `local_sizes` and
    `global_sizes` (name -> extents); `provenance` (a mapping); `cores`; `timed_how` (of each measurement). Any other
    key is listed with the question.
    *rows* have the keys of `run --json`. *shown* has an entry for each of `cases(rows)`.
    """
    title = title_of(facts)
    cells = [*heads(f"# {markdown_text(title)}", facts), *run_cells(facts, rows, shown)]
    return as_notebook(title, cells)


def title_of(facts: Facts) -> str:
    """The title of a run, on one line."""
    return one_line(facts.get("title") or f"Run {facts.get('run') or 'without a name'}")


def as_notebook(title: str, cells: Sequence[NotebookNode]) -> NotebookNode:
    """A notebook of *cells*, whose ids are their numbers, so that the same cells give the same file."""
    notebook = new_notebook(cells=list(cells), metadata={"title": title})
    for index, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{index}"
    return notebook


def heads(heading: str, facts: Facts) -> list[NotebookNode]:
    """Cells with the heading, operator, dtype and ranks, the run's name and start, where a replay was recorded, and the
    author's note."""
    question = [problem_text(key, facts[key]) for key in ("operator", "dtype", "world") if facts.get(key)]
    origin = [f"{label(key)} {value_text(key, facts[key])}" for key in ("run", "started_at") if facts.get(key)]
    recorded = recorded_text((facts.get("provenance") or {}).get(RECORDED) or {})
    below = (" · ".join(question), " · ".join(origin), recorded)
    lines = filter(None, (heading, *map(markdown_text, below)))
    cells = [new_markdown_cell("\n\n".join(lines))]
    return [*cells, *note(str(facts.get("notes") or ""))]


def recorded_text(origin: Facts) -> str:
    """Machine, date, host, protocol and versions of a replay's recording, as a sentence; empty for other runs."""
    if not origin:
        return ""
    versions = ", ".join(f"{name} {text}" for name, text in dict(origin.get("versions") or {}).items())
    host = f"host {origin['host']}" if origin.get("host") else "host not recorded"
    place = f"on {', '.join(filter(None, (origin.get('machine'), origin.get('hardware'), host)))}"
    when = f"Recorded {origin['date']} {place}" if origin.get("date") else f"Recorded {place}"
    protocol = f"protocol {origin['protocol']}" if origin.get("protocol") else ""
    return f"{'; '.join(filter(None, (when, protocol, versions)))}. The run's start is that of the replay."


def note(text: str) -> list[NotebookNode]:
    """A cell with an author's *text*: markup in it is escaped, empty lines separate paragraphs."""
    paragraphs = [" ".join(part.split()) for part in text.split("\n\n") if part.strip()]
    if not paragraphs:
        return []
    html = Markup("").join(Markup("<p>{}</p>").format(paragraph) for paragraph in paragraphs)
    markdown = "\n\n".join(f"> {markdown_text(paragraph)}" for paragraph in paragraphs)
    return [shown_cell(Markup('<div class="wb-author">{}</div>').format(html), markdown, " ".join(paragraphs))]


def run_cells(facts: Facts, rows: Sequence[Row], shown: Sequence[CaseDrawing] = ()) -> list[NotebookNode]:
    """All cells of one run below its title: what its first page has, what changed, then an appendix with the rest."""
    changed = [
        cell for title, case, drawing in _titled_cases(cases(plain(list(rows))), shown)
        for cell in changed_cells(title, case, drawing.changed, "##")
    ]  # fmt: skip
    return [*first_cells(facts, rows, shown), *changed, appendix_heading(2), *appendix_cells(facts, rows, shown)]


def _titled_cases(problems: Sequence[Case], shown: Sequence[CaseDrawing]) -> list[tuple[str, Case, CaseDrawing]]:
    """Title, case and drawing of each of *problems*, of which the last ones may have no drawing."""
    drawn = [*shown, *[CaseDrawing()] * (len(problems) - len(shown))]
    return list(zip(titles(problems), problems, drawn, strict=True))


def first_cells(
    facts: Facts, rows: Sequence[Row], shown: Sequence[CaseDrawing] = (), level: int = 2
) -> list[NotebookNode]:
    """Cells of a first page: verdict, evidence, how far to trust it, the command; headings start at *level*."""
    rows = plain(list(rows))  # rows of a frame have NaN where a key does not apply
    problems, mark = cases(rows), "#" * level
    cells = [lead(problems, facts.get("status"))]
    single = problems[0] if len(problems) == 1 else None
    cells += [*cards(facts, single), *recommended(single)] if single else in_short(problems, mark)
    drawn = _titled_cases(problems, shown)
    cells += baseline_cells([(title, case, drawing.baseline) for title, case, drawing in drawn])
    if single and shown:  # the evidence: the schedules that the verdict compares
        cells += _chart_cells(shown[0].charts[:1], mark, FIRST_HEIGHT)
    trust = "\n".join(f"- {prose(each)}" for each in (*trusted(rows), *cautions(facts, rows)))
    again = "\n".join(f"    {line}" for line in str(facts.get("command") or "").splitlines())
    cells.append(new_markdown_cell(f"{mark} How far to trust it\n\n{trust}"))
    return [*cells, new_markdown_cell(f"{mark} Measure it again\n\n{again or NO_COMMAND}")]


def appendix_heading(level: int) -> NotebookNode:
    """The cell between first pages and appendices."""
    return shown_cell(Markup("<h{0}>Appendix</h{0}>").format(level), f"{'#' * level} Appendix", "Appendix")


def appendix_cells(
    facts: Facts, rows: Sequence[Row], shown: Sequence[CaseDrawing] = (), level: int = 2
) -> list[NotebookNode]:
    """Cells of everything that the first page does not have; headings start at *level*."""
    rows = plain(list(rows))
    problems, mark = cases(rows), "#" * level
    drawn = _titled_cases(problems, shown)
    if len(problems) == 1:
        title, case, drawing = drawn[0]
        drawn = [(title, case, replace(drawing, charts=drawing.charts[1:]))]  # the evidence of the first page
    cells = [
        *_question_cells(facts, mark),
        new_markdown_cell(f"{mark} What came back\n\n{markdown_text(_outcomes(rows))}"),
    ]
    for title, case, drawing in drawn:
        cells += _case_cells(title, case, drawing, mark)
    papers = published_table(problems)
    if papers is not None:
        cells += [new_markdown_cell(f"{mark} Comparison with published results\n\n{CAUTION}"), papers.to_cell()]
    cells += [new_markdown_cell(f"{mark} Where the numbers come from"), legend(rows, num_published(papers)).to_cell()]
    cells += [new_markdown_cell(f"{mark} Method\n\n{methods(facts, rows)}"), *_provenance(facts, mark)]
    return cells


def _case_cells(title: str, case: Case, shown: CaseDrawing, mark: str) -> list[NotebookNode]:
    """Cells of one problem: its headline if it is one of several, charts, derived numbers, all outcomes."""
    cells = []
    if title:
        cells = [new_markdown_cell(f"{mark} {markdown_text(title)}\n\n{markdown_text(headline(case))}")]
        cells += recommended(case)
    under = f"{mark}#"
    cells += _chart_cells(shown.charts, under)
    if shown.numbers:
        heading = [new_markdown_cell(f"{under} What follows from the times of the fastest")]
        cells += [*heading, derived_table(shown.numbers).to_cell()]
    return [*cells, *_outcome_cells(case, shown.baseline, under if title else mark, under)]


def _chart_cells(
    charts: Sequence[tuple[str, alt.TopLevelMixin]], mark: str, height: int | None = None
) -> list[NotebookNode]:
    """A cell for each chart, after its heading if it has a title; *height* is that of a single plot, if not its own."""
    cells = []
    for name, chart in charts:
        heading = [new_markdown_cell(f"{mark} {markdown_text(name)}")] if name else []
        cells += [
            *heading,
            new_code_cell(outputs=[new_output("display_data", bundle(chart, themed=True, height=height))]),
        ]
    return cells


def _outcome_cells(case: Case, baseline: Pinned | None, mark: str, under: str) -> list[NotebookNode]:
    whole, parts = parts_of(case.rows)
    cells = [new_markdown_cell(f"{mark} All outcomes")]
    if not all(map(is_failure, whole)):
        cells.append(outcome_table(whole, baseline).to_cell())
    if advice := case.comparison_note:
        cells.append(new_markdown_cell(markdown_text(advice)))
    if same := common(whole):
        cells += [new_markdown_cell(f"{under} The same in every row"), pairs_cell(same)]
    if not all(map(is_failure, parts)):
        # computation has no link, communication that of its problem; the joined numbers are made of these parts
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
    """A sentence with the number of rows of each kind."""
    whole, parts = parts_of(rows)
    counts = Counter(map(_kind, whole))
    counts |= {"of computation or communication alone": len(parts)} if parts else {}
    return f"Outcomes: {', '.join(f'{count} {kind}' for kind, count in counts.items()) or 'nothing'}."


def _question_cells(facts: Facts, mark: str) -> list[NotebookNode]:
    listed = [key for key in _QUESTION if facts.get(key) is not None]
    listed += [key for key in facts if key not in (*_HEAD, *_SIZES, *_QUESTION, "provenance")]
    cells = [new_markdown_cell(f"{mark} The question")]
    if listed:
        cells.append(pairs_cell([(label(key), _fact_text(facts, key)) for key in listed], grid=True))
    local, whole = (facts.get(key) or {} for key in _SIZES)
    if local or whole:
        headings = ("Sizes", "On one rank", "Over all ranks")
        rows = _sizes(local, whole)
        columns = tuple(ReportColumn(heading=heading) for heading in headings)
        cells.append(Table(columns=columns, rows=tuple(tuple(map(Cell, row)) for row in rows)).to_cell())
    return cells


def _sizes(local: Mapping[str, Any], whole: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Name, local and global size of each tensor; paired by order if their numbers agree, otherwise by name."""
    if len(local) == len(whole):
        pairs = zip(local.items(), whole.values(), strict=True)
        return [(name, value_text(name, value), value_text(name, all_of_it)) for (name, value), all_of_it in pairs]
    return [(name, value_text(name, local.get(name)), value_text(name, whole.get(name))) for name in {**local, **whole}]


def _fact_text(facts: Facts, key: str) -> str:
    if key == "protocol":
        return value_text(key, _protocol(facts))
    return problem_text(key, facts[key]) if key in PROBLEM and key != "world" else value_text(key, facts[key])


def _protocol(facts: Facts) -> Any:
    """The protocol; for CPU ranks without its settings for GPUs."""
    protocol = facts.get("protocol")
    if facts.get("backend") != "cpu" or not isinstance(protocol, Mapping):
        return protocol
    return {name: value for name, value in protocol.items() if name not in GPU_ONLY}


OF_THE_REPLAY = (
    "*Machine* and *Recorded* are of the computer on which times were taken. Host, system, cores, versions and source "
    "are of the one that replayed them: no recorded time depends on these."
)


def _provenance(facts: Facts, mark: str) -> list[NotebookNode]:
    known = facts.get("provenance") or {}
    if not known:
        return []
    pairs = [(label(key), value_text(key, value)) for key, value in known.items() if value is not None]
    whose = f"\n\n{OF_THE_REPLAY}" if known.get(RECORDED) else ""
    return [new_markdown_cell(f"{mark} Provenance{whose}"), pairs_cell(pairs, grid=True)]


# Facts, rows and charts of a run of the store.

Titled = tuple[str, alt.TopLevelMixin]

CURVE = 3
"""From this many values on, an axis gets a curve even if no sweep was requested."""
CURVES_MOST = 3


def stored_report(
    store: Store, run: str, *, note: str = "", login: bool = False, baseline: str | None = None
) -> NotebookNode:
    """The report of *run* (an id, the beginning of one, or `last`), in memory; ValueError lists the existing runs.

    *note* is the author's text. *login*: include the login name of the person who made the run. *baseline* names what
    it is compared with, as `baseline.pinned` reads it.
    """
    known = store.run(run)
    run_facts, rows, shown = whole_run(store, known, login=login, baseline=baseline)
    reports, versions = LastReports(store.path), known["provenance"].get("versions") or {}
    before = [reports.before(known["id"], case) for case in cases(rows)]
    shown = [replace(drawing, changed=None if last is None else changes(last, case, versions))
             for drawing, case, last in zip(shown, cases(rows), before, strict=True)]  # fmt: skip
    return run_report({**run_facts, "notes": note}, rows, shown)


def remember(store: Store, run: str) -> str:
    """Remembers that *run* was reported now, for the next report; the message if that cannot be written, or empty."""
    known = store.run(run)
    versions = known["provenance"].get("versions") or {}
    try:
        LastReports(store.path).keep(known["id"], versions, cases(store.rows(known["id"])))
    except ValueError as error:  # the report itself is written
        return str(error)
    return ""


def whole_run(
    store: Store, run: Row, *, login: bool = False, baseline: str | None = None
) -> tuple[dict[str, Any], list[dict[str, Any]], list[CaseDrawing]]:
    """Facts and rows of *run*, and the drawing of each case, compared with what *baseline* names."""
    rows = store.rows(run["id"])
    problems = cases(rows)
    bases = pinned(store, baseline, problems) if baseline else [None] * len(problems)
    named = _requested_axes(run["experiment"])
    known = {**run, "provenance": shared_provenance(run["provenance"], login=login)}
    facts_of_run = {**facts(known, rows), "timed_how": store.timed_how(run["id"])}
    shown = [replace(_shown(store, run["id"], case, named), baseline=base)
             for case, base in zip(problems, bases, strict=True)]  # fmt: skip
    return facts_of_run, rows, shown


def _shown(store: Store, run: str, case: Case, named: Collection[str]) -> CaseDrawing:
    drawn = charts(store, run, case.rows)
    along: list[Titled] = [("", sweep.chart(case.rows, axis)) for axis in swept(case.rows, named)]
    best = case.fastest
    return CaseDrawing(
        [*drawn[:1], *along, *drawn[1:]], [] if best is None else derived_of(store, run, case.rows, best)
    )


def swept(rows: Sequence[Row], named: Collection[str] = ()) -> list[str]:
    """The axes to draw curves along: with at least CURVE values for one scheme, or several if they are in *named*."""
    values: dict[str, dict[str, set[str]]] = {}
    for row in rows:
        if row.get("part") in (None, "whole") and row.get("time_s") is not None and row["scheme"] != BASELINE:
            for name, value in (row.get("axes") or {}).items():
                values.setdefault(name, {}).setdefault(row["scheme"], set()).add(str(value))
    widest = {name: max(map(len, schemes.values())) for name, schemes in values.items()}
    axes = [name for name, count in widest.items() if count >= CURVE or (count > 1 and name in named)]
    return sorted(axes, key=lambda name: -widest[name])[:CURVES_MOST]


def _requested_axes(experiment: Mapping[str, Any]) -> set[str]:
    """The axes of which the experiment requested several values, or all."""
    choices = experiment.get("space") or []  # a replay has none
    return {
        name for choice in choices for name, values in dict(choice.get("values") or {}).items()
        if len(values) > 1 or EVERY in values
    }  # fmt: skip


def facts(run: Row, rows: Sequence[Row]) -> dict[str, Any]:
    """The facts of *run* as plain values; of several problems only those that they share."""
    experiment, provenance = run["experiment"], run["provenance"]
    values: dict[str, Any] = {
        "title": _titled(run["title"]),
        "run": run["id"],
        "status": run["status"],
        "started_at": run["started_at"],
        "provenance": provenance,
        "cores": (provenance.get(RECORDED) or provenance).get("cores"),
        "protocol": experiment.get("protocol"),
        "command": "\n".join(commands(experiment)),
        **{key: _shared(rows, key) for key in ("operator", "dtype", "world", "backend", "machine", "fabric", "shape")},
    }
    if values["operator"] and values["shape"] and values["world"] and values["dtype"]:
        operator = OPERATORS[values["operator"]]
        problem = Problem(operator.name, tuple(values["shape"].items()), values["dtype"], values["world"])
        values |= {
            "idea": operator.words,
            "local_sizes": dict(operator.local(problem)),
            "global_sizes": dict(operator.whole(problem)),
        }
    return values


def _titled(title: str) -> str:
    """*title* with the titles of operators instead of their names."""
    return re.sub(r"\w+", lambda word: operator_title(word[0]), title)


def _shared(rows: Sequence[Row], key: str) -> Any:
    values = [row.get(key) for row in rows if row.get("part") in (None, "whole")]
    return values[0] if values and all(value == values[0] for value in values) else None


def charts(store: Store, run: str, rows: Sequence[Row]) -> list[Titled]:
    """Titles and charts, in reading order: the trials, then timeline and losses of the fastest one."""
    known = cases(rows)
    if len([case for case in known if case.whole]) > 1:  # several problems share no axis: one chart each
        named = zip(titles(known), known, strict=True)
        return [(title, trials.chart(case.rows)) for title, case in named if case.whole]
    rows = [row for case in known for row in case.rows]  # each with one floor, and without stopped schedules
    if not rows:
        return []
    drawn: list[Titled] = [("", trials.chart(rows))]
    best = comparison.fastest(rows)
    if best is not None:
        text = _schedule_and_problem(best, rows)
        timelines = panels(store, run, best)
        drawn += [("", timeline.chart(timelines, text))] if timelines else []
        lost = losses(store, run, rows, best)
        drawn += [] if lost is None else [("", waterfall.chart(lost, best["time_s"], text, best["source"]))]
    return drawn


def panels(store: Store, run: str, row: Row) -> dict[str, Sequence[Span]]:
    """The timelines of one trial by title: timed ones, then the simulated one."""
    by_source = {source: store.spans(run, row["key"], source, row.get("block")) for source in TIMED}
    by_source["estimated"] = store.spans(run, row["key"], "estimated")
    titles = {"measured": "measured", "recorded": "recorded", "estimated": "simulated"}
    return {titles[source]: spans for source, spans in by_source.items() if spans}


def losses(store: Store, run: str, rows: Sequence[Row], row: Row) -> dict[str, float | None] | None:
    """The losses of one trial in seconds by part; None if nothing but its floor is known."""
    spans = store.spans(run, row["key"], row["source"], row.get("block"))
    steps = metrics.waterfall(row, spans, pieces_alone_s(rows, row))
    return steps if steps is not None and len(metrics.unknown_losses(steps)) < len(metrics.LOSSES) else None


def derived_of(store: Store, run: str, rows: Sequence[Row], row: Row) -> list[DerivedNumber]:
    """The numbers derived from the times of one trial, as far as its parts were timed."""
    return derived(row, store.spans(run, row["key"], row["source"], row.get("block")), pieces_alone_s(rows, row))


def pieces_alone_s(rows: Sequence[Row], row: Row) -> float | None:
    """Seconds of the computation alone of *row*'s schedule, or of one with the same computation, from its block."""
    computation = metrics.same_part(row, metrics.COMPUTE)
    alike = [
        other["time_s"]
        for other in rows
        if other.get("part") == metrics.COMPUTE
        and other.get("time_s") is not None
        and other["source"] == row["source"]
        and metrics.same_part(other, metrics.COMPUTE) == computation
    ]
    return min(alike, default=None)


def _schedule_and_problem(row: Row, rows: Sequence[Row]) -> str:
    """A subtitle: the schedule, by the axes that distinguish it, and its problem."""
    alike = [other for other in rows if other.get("part") in (None, "whole")]
    return BETWEEN.join((schedule_text(row, alike), context([row])))
