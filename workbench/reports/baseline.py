"""The baseline of a report: the run or the row that a person names, and how the fastest schedule differs from it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from markupsafe import Markup
from nbformat import NotebookNode

from kernels.units import seconds_text
from workbench.reports.cases import Case, problem_text, schedule_phrase
from workbench.reports.tables import markdown_text, shown_cell
from workbench.results import comparison
from workbench.results.deltas import Pinned, is_same
from workbench.results.rows import QUESTION, Row, by_problem, problem_of, question_of
from workbench.results.store import Store


def pinned(store: Store, name: str, cases: Sequence[Case]) -> list[Pinned | None]:
    """The baseline of each case: of the row that *name* says, `RUN/KEY`, or of the best ones of the run `RUN`.

    ValueError where there is no such row, it has no time, or it is of another problem than all cases.
    """
    rows, named = _named(store, name)
    bases = [Pinned.of(row) for row in named]
    chosen = [_of_problem(case, bases) for case in cases]
    if not any(chosen):
        theirs, ours = _problems(named), _problems([row for case in cases for row in case.whole[:1]])
        raise ValueError(
            f"{name} is no baseline of this report: it is of {theirs}, and the report of {ours or 'nothing'}. "
            "Accepted: a run or a row of the same operator, sizes, dtype and ranks."
        )
    return [base and Pinned.of(base.row, [*rows, *case.whole]) for base, case in zip(chosen, cases, strict=True)]


def _named(store: Store, name: str) -> tuple[list[dict[str, Any]], list[Row]]:
    """The rows of the run in *name*, and those of them that become baselines: one, or the best of each problem."""
    run, *of_row = name.split("/", 3)
    if not run:
        raise ValueError(f"{name} is no baseline of a report: it is an estimate of 0 runs. Accepted: RUN, or RUN/KEY.")
    rows = store.rows(store.run(run)["id"])
    if not of_row:
        best = [row for same in by_problem(rows).values() if (row := comparison.fastest(same)) is not None]
        if not best:
            raise ValueError(
                f"Run {run} is no baseline: of its {len(rows):,} rows 0 have a time. Accepted: a run with 1 or more."
            )
        return rows, best
    key, block, source = (*of_row, "", "")[:3]
    fitting = [row for row in rows if str(row["key"]).startswith(key) and row.get("part") in (None, "whole")
               and block in ("", row.get("block")) and source in ("", row.get("source"))]  # fmt: skip
    if (count := len({row["key"] for row in fitting})) != 1:
        raise ValueError(
            f"{name} is no baseline: in run {run} the keys of {count} schedules begin with {key!r}, and 1 has to. "
            "Accepted: RUN, or RUN/KEY with a key of `workbench run --json`."
        )
    return rows, [next(iter(comparison.leading(fitting)), fitting[0])]


def _of_problem(case: Case, bases: Iterable[Pinned]) -> Pinned | None:
    """The baseline of the problem of *case*, in the same place if there is one."""
    if not case.whole:
        return None
    same = [base for base in bases if base.question == question_of(case.whole[0])]
    return next((base for base in same if problem_of(base.row) == problem_of(case.whole[0])), next(iter(same), None))


def _problems(rows: Iterable[Row]) -> str:
    """The first of the problems of *rows*, and how many more there are."""
    texts = list(dict.fromkeys(", ".join(problem_text(key, row.get(key)) for key in QUESTION) for row in rows))
    return " and ".join([*texts[:1], *([f"{len(texts) - 1} more"] if len(texts) > 1 else [])])


def baseline_cells(compared: Iterable[tuple[str, Case, Pinned | None]]) -> list[NotebookNode]:
    """A cell that says how the fastest schedule of each case differs from its baseline; each case has its title."""
    lines = [f"{title}: {_sentence(case, base)}" if title else _sentence(case, base)
             for title, case, base in compared if base is not None]  # fmt: skip
    if not lines:
        return []
    html = Markup("").join(
        Markup('<p class="wb-advice"><strong>Baseline:</strong> {}</p>').format(line) for line in lines
    )
    markdown = "\n\n".join(f"**Baseline:** {markdown_text(line)}" for line in lines)
    return [shown_cell(html, markdown, " ".join(lines))]


def _sentence(case: Case, base: Pinned) -> str:
    row, best = base.row, case.fastest
    every = [*case.whole, row]
    time, run = seconds_text(row["time_s"]), f", run {row['run']}" if row.get("run") else ""
    which = f"{schedule_phrase(row, every)}, {time} {row['source']}{run}."
    if best is None:
        return f"{which} Nothing was timed to compare with it."
    if is_same(best, row):
        return f"{which} It is the fastest."
    return f"{which} {base.delta(best).sentence(f'The fastest, {schedule_phrase(best, every)},')}"
