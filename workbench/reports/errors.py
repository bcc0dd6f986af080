"""What `workbench validate` found, as a notebook: the chart of every error, and the numbers of what is held out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output

from kernels.units import percent_text
from workbench.bounds import ERRORS
from workbench.charts import accuracy as chart
from workbench.naming import operator_title
from workbench.reports.bundle import bundle
from workbench.reports.run_report import as_notebook
from workbench.reports.tables import Cell, Column, Table

Row = Mapping[str, Any]

TITLE = "Estimates beside measurements"
SPLITS = {"whole": "all trials", "held_out": "held out"}
SAYS = (
    "Errors are of whole trials, estimated over measured. Nothing was fitted to the problems that are held out: a "
    "committed seed draws them. The roofline is the trivial estimate. What the simulator is "
    "worth is what it knows beyond it."
)
HEADINGS = ("Schedule", "Of", "Trials", "Median", "90 % within", "Weighted by time", "Inside interval",
            "Roofline's median")  # fmt: skip


def error_report(rows: Sequence[Row], summary: Mapping[str, Any], bounds: Sequence[Row]) -> NotebookNode:
    """*rows* and *summary* are those of `workbench.validation`, *bounds* those of the committed file."""
    drawn = new_code_cell(outputs=[new_output("display_data", bundle(chart.chart(rows, bounds), themed=True))])
    cells = [new_markdown_cell(f"# {TITLE}\n\n{SAYS}"), drawn, new_markdown_cell("## By operator and scheme")]
    table = Table(columns=tuple(Column(heading=heading) for heading in HEADINGS), rows=tuple(_lines(summary)))
    return as_notebook(TITLE, [*cells, table.to_cell()])


def _lines(summary: Mapping[str, Any]) -> list[tuple[Cell, ...]]:
    """All kinds together first, each time of all trials and of those that are held out."""
    every = [("all", split, summary[split]["all"]) for split in SPLITS if summary[split]["count"]]
    kinds = [(f"{operator_title(kind['operator'])}, {kind['scheme']}, {kind['machine']}", split, kind)
             for split in SPLITS for kind in summary[split]["accuracy"]]  # fmt: skip
    return [tuple(map(Cell, _texts(name, SPLITS[split], of))) for name, split, of in every + sorted(
        kinds, key=lambda line: (line[0], list(SPLITS).index(line[1])))]  # fmt: skip


def _texts(name: str, split: str, of: Row) -> list[str]:
    shares = [of[error] for error in ERRORS] + [of["inside_interval"], of["trivial_median"]]
    return [name, split, str(of["count"]), *map(percent_text, shares)]
