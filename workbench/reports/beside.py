"""What papers report of the operators of a run, beside what the run found: told apart, and never one line."""

from __future__ import annotations

from collections.abc import Sequence

from kernels.units import percent_text
from workbench import metrics
from workbench.naming import PUBLISHED, operator_title, source_title
from workbench.published import published
from workbench.reports.cases import Case
from workbench.reports.tables import Cell, Column, Table

CAUTION = "Papers have other shapes and machines than this run: compare the signs, not the sizes."
HEADINGS = ("Operator and scheme", "Source", "Time saved", "Against", "Where")


def beside_published(cases: Sequence[Case]) -> Table | None:
    """Published reductions of the operators and schemes of *cases*, each below what was found; None without any."""
    rows = [row for case in cases for row in _rows(case)]
    columns = tuple(Column(heading=heading, figure=heading == "Time saved") for heading in HEADINGS)
    return Table(columns=columns, rows=tuple(dict.fromkeys(rows))) if rows else None


def num_published(table: Table | None) -> int:
    """How many of the rows of `beside_published` are of papers."""
    return 0 if table is None else sum(row[1].text == source_title(PUBLISHED) for row in table.rows)


def _rows(case: Case) -> list[tuple[Cell, ...]]:
    best = next(iter(case.overlapping), None)
    ratio = None if best is None else metrics.gain(best)
    if best is None or ratio is None:
        return []
    reported = [one for one in published() if one.reduction is not None
                and (one.operator, one.scheme) == (best["operator"], best["scheme"])]  # fmt: skip
    if not reported:
        return []
    name = f"{operator_title(best['operator'])}, {best['scheme']}"
    ours = (name, source_title(best["source"]), percent_text(1 - 1 / ratio), "the best sequential schedule beside it",
            f"{best['world']} ranks, {best['machine']}")  # fmt: skip
    theirs = [(f"{one.scope}, {one.scheme}", source_title(PUBLISHED), one.words, one.baseline,
               ", ".join(filter(None, (one.machine, one.reference, one.mark)))) for one in reported]  # fmt: skip
    return [tuple(map(Cell, texts)) for texts in (ours, *theirs)]
