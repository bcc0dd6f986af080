"""A table of text as HTML for pages and as Markdown for plain files: whatever is in a cell shows as it is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_output

from workbench.reports.values import markdown_text, one_line

UPRIGHT_MOST = 8
"""Columns that an upright page holds; a table with more is printed on a page that lies on its side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a table."""

    heading: str
    figure: bool = False
    """Numbers, set to the right so that their digits line up."""
    descends: bool = False
    """The largest number is what one looks for."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One entry of a table: its text, a quieter one after it, a bar before it, a badge behind it."""

    text: str
    aside: str = ""
    share: float | None = None
    """Length of the bar, 0 to 1."""
    badge: str = ""
    order: float | None = None
    """The number that is written, where a table can be sorted by it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Columns and rows; the first `shown` rows stand open, the others unfold."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    best: int | None = None
    """Row to lift out."""
    sorted_by: int | None = None
    """The column whose numbers rise from row to row."""
    shown: int = 40

    def to_html(self) -> Markup:
        """The table, as wide as the page when it has three columns or more."""
        first = self._html(self.rows[: self.shown], self.best)
        rest = self.rows[self.shown :]
        if not rest:
            return first
        more = Markup("<details><summary>{} more rows</summary>{}</details>")
        return first + more.format(len(rest), self._html(rest, None))

    def to_markdown(self) -> str:
        """The table as GitHub writes it, all rows."""
        headings = " | ".join(markdown_text(column.heading) for column in self.columns)
        rules = " | ".join("---:" if column.figure else "---" for column in self.columns)
        lines = [f"| {headings} |", f"| {rules} |"]
        for index, row in enumerate(self.rows):
            cells = [markdown_text(one_line(f"{c.text} {f'({c.aside})' if c.aside else ''} {c.badge}")) for c in row]
            lines.append("| " + " | ".join(f"**{cell}**" if index == self.best else cell for cell in cells) + " |")
        return "\n".join(lines)

    def to_cell(self) -> NotebookNode:
        """A notebook cell that shows the table wherever the notebook is opened."""
        return shown_cell(self.to_html(), self.to_markdown(), f"a table of {len(self.rows)} rows")

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
    """A cell of names and values, one a line; as a *grid*, in as many columns as a page has room for."""
    line = Markup('<tr><th scope="row">{}</th><td>{}</td></tr>')
    lines = Markup("").join(line.format(name, value) for name, value in pairs)
    html = Markup('<table class="{}"><tbody>{}</tbody></table>').format("wb-grid" if grid else "wb-pairs", lines)
    text = "\n".join(f"- {markdown_text(name)}: {markdown_text(value)}" for name, value in pairs)
    return shown_cell(html, text, "; ".join(f"{name}: {value}" for name, value in pairs))


def shown_cell(html: str, markdown: str, plain: str) -> NotebookNode:
    """A code cell without code whose one output is the same thing three times, for whoever shows it."""
    data = {"text/html": str(html), "text/markdown": markdown, "text/plain": plain}
    return new_code_cell(outputs=[new_output("display_data", data)])


def _class(column: Column) -> Markup:
    return Markup(' class="wb-figure"') if column.figure else Markup("")


def _cell_html(column: Column, cell: Cell) -> Markup:
    text = Markup("{}").format(cell.text)
    if cell.aside:
        text += Markup(' <span class="wb-aside">{}</span>').format(cell.aside)
    if cell.badge:
        text += Markup(' <span class="wb-badge">{}</span>').format(cell.badge)
    if cell.share is not None:
        bar = Markup('<span class="wb-track"><span class="wb-bar" style="width: {:.1f}%"></span></span>')
        line = Markup('<div class="wb-line">{}<span>{}</span></div>')
        text = line.format(bar.format(100 * min(max(cell.share, 0.0), 1.0)), text)
    return Markup("<td{}>{}</td>").format(_class(column), text)
