"""Reports that compare: several runs with each other, and estimates with measurements (`workbench validate`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output

from kernels.units import percent_text
from workbench.analysis.accuracy import ERRORS, coverage_text
from workbench.charts import accuracy
from workbench.naming import operator_title
from workbench.reports.cases import number, problem_text
from workbench.reports.pictures import bundle
from workbench.reports.run_report import (
    CaseDrawing,
    appendix_cells,
    appendix_heading,
    as_notebook,
    first_cells,
    heads,
    note,
    stored_report,
    title_of,
    whole_run,
)
from workbench.reports.tables import (
    NOTHING,
    Cell,
    ReportColumn,
    Table,
    label,
    markdown_text,
    schedule_text,
    shown_cell,
    value_text,
)
from workbench.results.comparison import SPEED_UPS_COMPARE
from workbench.results.rows import QUESTION, Key, Row, question_of
from workbench.results.runs import compared, differences, timed
from workbench.results.store import Store
from workbench.results.verdict import WORDS

# Several runs in one report: their differences, their common schedules, then each run.

RUNS_MOST = 8
"""The most runs whose columns fit on paper."""
_FACTS = (
    "title",
    "started_at",
    "status",
    "operator",
    "shape",
    "dtype",
    "world",
    "backend",
    "machine",
    "fabric",
    "protocol",
)
_HINT = (
    "A ratio is the time of the same schedule in one run over that in run 1: below 1 it was faster there. It compares "
    f"runs, not schemes. Runs take no turns, so that no ratio says which is faster. {SPEED_UPS_COMPARE}"
)


@dataclass(frozen=True, slots=True)
class RunSummary:
    """Facts, rows and drawings of one run."""

    facts: Mapping[str, Any]
    rows: Sequence[Row]
    shown: Sequence[CaseDrawing] = ()


def stored_runs(
    store: Store, names: Sequence[str], *, note: str = "", login: bool = False, baseline: str | None = None
) -> NotebookNode:
    """The report of one run, or of several side by side, compared with a *baseline* (`baseline.pinned`); ValueError if
    a run is not known, or given twice."""
    if len(names) == 1:
        return stored_report(store, names[0], note=note, login=login, baseline=baseline)
    runs = [store.run(name) for name in names]
    twice = [run for run, count in Counter(run["id"] for run in runs).items() if count > 1]
    if twice:
        raise ValueError(f"Run {twice[0]} was given twice. Accepted: runs that are not the same.")
    if len(runs) > RUNS_MOST:
        raise ValueError(
            f"{len(runs)} runs are too many for one report: {len(runs)} > {RUNS_MOST}. "
            f"Accepted: at most {RUNS_MOST} side by side."
        )
    return side_by_side(
        [RunSummary(*whole_run(store, run, login=login, baseline=baseline)) for run in runs], author=note
    )


def side_by_side(runs: Sequence[RunSummary], *, author: str = "") -> NotebookNode:
    """The report of *runs*, which compares the others with the first one."""
    titles = list(dict.fromkeys(title_of(run.facts) for run in runs))
    title = f"{len(runs)} runs side by side" + (f": {titles[0]}" if len(titles) == 1 else "")
    of_runs = [timed(run.rows) for run in runs]
    cells = [new_markdown_cell(f"# {markdown_text(title)}"), *note(author), _lead(of_runs)]
    cells += [new_markdown_cell("## What differs"), _differences(runs)]
    cells += _same_schedules(of_runs)
    for number_of, run in enumerate(runs, start=1):
        heading = f"## Run {number_of}: {markdown_text(title_of(run.facts))}"
        cells += [*heads(heading, run.facts), *first_cells(run.facts, run.rows, run.shown, level=3)]
    cells.append(appendix_heading(2))
    for number_of, run in enumerate(runs, start=1):
        cells += [new_markdown_cell(f"## Run {number_of}, the rest")]
        cells += appendix_cells(run.facts, run.rows, run.shown, level=3)
    return as_notebook(title, cells)


def _lead(of_runs: Sequence[Mapping[str, Row]]) -> NotebookNode:
    """A cell that says how often each run was faster than the first one."""
    lines = []
    for number_of, other in enumerate(of_runs[1:], start=2):
        verdicts = Counter(compared(of_runs[0][question], other[question])["second_is"]
                           for question in of_runs[0] if question in other)  # fmt: skip
        how = ", ".join(f"{verdicts[word]} {word}" for word in WORDS if verdicts[word])
        shared = verdicts.total()
        schedules = f"{shared} schedule{'s' * (shared != 1)} that both timed"
        lines.append(f"Run {number_of} compared with run 1: of {schedules}, {how}." if shared else
                    f"Run {number_of} and run 1 timed no schedule in common.")  # fmt: skip
    text = " ".join(lines)
    return shown_cell(Markup('<p class="wb-lead">{}</p>').format(text), markdown_text(text), text)


def _differences(runs: Sequence[RunSummary]) -> NotebookNode:
    """A table with one line for each circumstance that differs between the runs."""
    known = [dict(_circumstances(run)) for run in runs]
    differ = differences(known)
    columns = (
        ReportColumn(heading=""),
        *(ReportColumn(heading=f"Run {number_of}") for number_of in range(1, len(runs) + 1)),
    )
    rows = tuple((Cell(name), *(Cell(value or NOTHING) for value in values)) for name, values in differ.items())
    return Table(columns=columns, rows=rows).to_cell()


def _circumstances(run: RunSummary) -> Iterator[tuple[str, str]]:
    """Name and text of every circumstance of *run* that may differ from other runs."""
    yield "Run", str(run.facts.get("run") or NOTHING)
    for key in _FACTS:
        if (value := run.facts.get(key)) is not None:
            yield label(key), problem_text(key, value)
    for key, value in (run.facts.get("provenance") or {}).items():
        if isinstance(value, Mapping):
            yield from ((str(name), value_text(str(name), entry)) for name, entry in value.items())
        elif value is not None:
            yield label(key), value_text(key, value)


def _same_schedules(of_runs: Sequence[Mapping[str, Row]]) -> list[NotebookNode]:
    """Cells with a table for each problem, of the schedules that at least two runs timed."""
    counts = Counter(question for known in of_runs for question in known)
    shared = [question for question, count in counts.items() if count > 1]
    cells = [new_markdown_cell("## The same schedules, run by run")]
    if not shared:
        return [*cells, new_markdown_cell("No two of these runs timed the same schedule of the same problem.")]
    problems: dict[Key, list[str]] = {}
    for question in shared:
        first = next(known[question] for known in of_runs if question in known)
        problems.setdefault(question_of(first), []).append(question)
    cells.append(new_markdown_cell(markdown_text(_HINT)))
    for questions in problems.values():
        first = next(known[questions[0]] for known in of_runs if questions[0] in known)
        heading = ", ".join(problem_text(key, first.get(key)) for key in QUESTION)
        cells += [new_markdown_cell(f"### {markdown_text(heading)}"), _times(of_runs, questions).to_cell()]
    return cells


def _times(of_runs: Sequence[Mapping[str, Row]], questions: Sequence[str]) -> Table:
    """A table with one line per schedule: its time in each run, then each time over the first run's."""
    lines = [[known.get(question) for known in of_runs] for question in questions]
    timed_rows = [[row for row in line if row is not None] for line in lines]
    body = []
    for line, rows in sorted(zip(lines, timed_rows, strict=True), key=lambda pair: min(r["time_s"] for r in pair[1])):
        scheme, _, axes = schedule_text(rows[0], [row for some in timed_rows for row in some]).partition(", ")
        times = (Cell(NOTHING) if row is None else Cell(*number(row)) for row in line)
        body.append((Cell(scheme, axes), *times, *(_ratio(line[0], other) for other in line[1:])))
    runs = range(1, len(of_runs) + 1)
    headings = [*(f"Run {each}" for each in runs), *(f"Run {each} / run 1" for each in runs if each > 1)]
    columns = (ReportColumn(heading="Schedule"), *(ReportColumn(heading=heading, figure=True) for heading in headings))
    return Table(columns=columns, rows=tuple(body))


def _ratio(first: Row | None, other: Row | None) -> Cell:
    if first is None or other is None:
        return Cell(NOTHING)
    pair = compared(first, other)
    return Cell(f"{pair['ratio']:.3g}", pair["second_is"])


# The report of `workbench validate`: a chart of all errors, and a table of their statistics.

TITLE = "Estimates and measurements"
SPLITS = {"whole": "all trials", "held_out": "held out"}
EXPLANATION = (
    "Errors are of whole trials, estimated over measured. Nothing was fitted to the held-out problems, which a "
    "committed seed draws. The roofline is the trivial estimate: the simulator's value is its smaller error."
)
HEADINGS = ("Schedule", "Of", "Trials", "Median", "90 % within", "Weighted by time", "Inside interval",
            "Roofline's median")  # fmt: skip


def error_report(rows: Sequence[Row], summary: Mapping[str, Any], bounds: Sequence[Row]) -> NotebookNode:
    """The report of *rows* and *summary* of `workbench.analysis.accuracy`, and *bounds* of the committed file."""
    drawn = new_code_cell(outputs=[new_output("display_data", bundle(accuracy.chart(rows, bounds), themed=True))])
    coverage = coverage_text(summary) if rows else ""
    head = new_markdown_cell(f"# {TITLE}\n\n{coverage} {EXPLANATION}")
    cells = [head, drawn, new_markdown_cell("## By operator and scheme")]
    table = Table(columns=tuple(ReportColumn(heading=heading) for heading in HEADINGS), rows=tuple(_lines(summary)))
    return as_notebook(TITLE, [*cells, table.to_cell()])


def _lines(summary: Mapping[str, Any]) -> list[tuple[Cell, ...]]:
    """Lines of all kinds together and then of each, for all trials and for the held-out ones."""
    every = [("all", split, summary[split]["all"]) for split in SPLITS if summary[split]["count"]]
    kinds = [(f"{operator_title(kind['operator'])}, {kind['scheme']}, {kind['machine']}", split, kind)
             for split in SPLITS for kind in summary[split]["accuracy"]]  # fmt: skip
    return [tuple(map(Cell, _texts(name, SPLITS[split], of))) for name, split, of in every + sorted(
        kinds, key=lambda line: (line[0], list(SPLITS).index(line[1])))]  # fmt: skip


def _texts(name: str, split: str, of: Row) -> list[str]:
    shares = [of[error] for error in ERRORS] + [of["inside_interval"], of["trivial_median"]]
    return [name, split, str(of["count"]), *map(percent_text, shares)]
