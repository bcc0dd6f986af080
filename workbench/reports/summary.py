"""What somebody opens a report for: the sentence that the numbers make, the few numbers, the schedule to take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup
from nbformat import NotebookNode
from nbformat.v4 import new_markdown_cell

from kernels.units import ratio_text, time_and_spread
from workbench import metrics
from workbench.naming import baseline_title
from workbench.reports.cases import Case, titles
from workbench.reports.headline import ending, floor_words, headline, overall, recommendation
from workbench.reports.outcomes import Row, is_failure, schedule_text
from workbench.reports.tables import Cell, Column, Table, shown_cell
from workbench.reports.values import NOTHING, markdown_text, value_text


def lead(of: Sequence[Case], status: str | None) -> NotebookNode:
    """The headline: how the run ended where it did not finish, then what was found."""
    timed = sum(len(case.leading) for case in of if case.is_timed)
    stop = ending(status, timed)
    sentence = headline(of[0]) if len(of) == 1 else overall(of) if of else "Nothing came back."
    alarm = Markup('<strong class="wb-stop">{}</strong> ').format(stop) if stop else Markup("")
    html = Markup('<p class="wb-lead">{}{}</p>').format(alarm, sentence)
    words = f"**{markdown_text(stop)}** {markdown_text(sentence)}" if stop else markdown_text(sentence)
    return shown_cell(html, words, f"{stop} {sentence}".strip())


def recommended(case: Case) -> list[NotebookNode]:
    """The schedule to take with its spread, and those that tie with it."""
    advice = recommendation(case)
    if advice is None:
        return []
    head, _, rest = advice.sentence.partition(": ")
    html = Markup('<p class="wb-advice"><strong>{}:</strong> {}</p>').format(head, rest)
    return [shown_cell(html, f"**{head}:** {markdown_text(rest)}", advice.sentence)]


def in_short(of: Sequence[Case], mark: str) -> list[NotebookNode]:
    """Of several problems one line each: what to take, and what it gains over the best that does not overlap."""
    known = [(title, case) for title, case in zip(titles(of), of, strict=True) if case.fastest is not None]
    if not known:
        return []
    headings = ("Problem", "Fastest", "Time", "Best sequential", "Gain", "Above the floor")
    columns = tuple(Column(heading=name, figure=place in (2, 3, 4)) for place, name in enumerate(headings))
    table = Table(columns=columns, rows=tuple(_line(title, case) for title, case in known))
    return [new_markdown_cell(f"{mark} In short"), table.to_cell()]


def _line(title: str, case: Case) -> tuple[Cell, ...]:
    best = case.leading[0]
    plain, ratio = next(iter(case.baselines(best)), None), metrics.gain(best)
    gain = NOTHING
    if plain is not None and best is not plain and ratio is not None:
        close = case.is_timed and not metrics.apart(best, plain)
        gain = "within the spread" if close else ratio_text(ratio)
    scheme, _, axes = schedule_text(best, case.whole).partition(", ")
    floor_s = best.get("floor_s")
    above = floor_words(metrics.above_floor(best["time_s"], floor_s)) if floor_s else NOTHING
    tied = f"{len(case.alike)} more within its spread" if case.alike else ""
    return (
        Cell(title), Cell(scheme, ", ".join(filter(None, (axes, tied)))), _timed(best),
        Cell(NOTHING) if plain is None else Cell(value_text("time_s", plain["time_s"]), _collective(plain)),
        Cell(gain), Cell(above.removesuffix(" above the floor")),
    )  # fmt: skip


def cards(facts: Mapping[str, Any], case: Case) -> list[NotebookNode]:
    """The few numbers of one problem: values of its rows, each with what it belongs to."""
    numbers = _cards(facts, case)
    if not numbers:
        return []
    card = Markup('<div class="wb-card"><div class="wb-number">{}</div><div class="wb-label">{}</div>{}</div>')
    aside = Markup('<div class="wb-aside">{}</div>')
    html = Markup("").join(card.format(value, name, aside.format(more)) for name, value, more in numbers)
    text = "\n".join(f"- {markdown_text(n)}: **{markdown_text(v)}** {markdown_text(more)}" for n, v, more in numbers)
    plain = "; ".join(f"{name}: {value} {more}".strip() for name, value, more in numbers)
    return [shown_cell(Markup('<div class="wb-cards">{}</div>').format(html), text, plain)]


def _cards(facts: Mapping[str, Any], case: Case) -> list[tuple[str, str, str]]:
    """Name, number and what it belongs to."""
    best = case.fastest
    if best is None:
        return []
    shown = [(f"Fastest {best['source']}", best, schedule_text(best, case.whole))]
    beside = case.baselines(best)
    if beside and beside[0] is not best:
        plain = beside[0]
        name = "Best sequential" if len(beside) > 1 else "Sequential"
        shown.append((f"{name}, {plain['source']}", plain, _collective(plain)))
    alike = [row for row in case.whole if row.get("source") == "estimated" and not is_failure(row)
             and all(row.get(key) == best.get(key) for key in ("scheme", "axes"))]  # fmt: skip
    if case.is_timed and alike:
        unfitted = "the simulator, not calibrated here" if alike[0].get("calibrated") is False else "the simulator"
        shown.append(("Estimated for the fastest", alike[0], unfitted))
    numbers = [(name, *number(row, more)) for name, row, more in shown]
    if best.get("floor_s") is not None:
        numbers.append(("Floor", value_text("floor_s", best["floor_s"]), "no schedule can be faster"))
    if facts.get("guess_s") is not None:
        numbers.append(("The guess", value_text("guess_s", facts["guess_s"]), "before anything was run"))
    return numbers


def number(row: Row, more: str = "") -> tuple[str, str]:
    """The time, and its range with what it belongs to."""
    time, spread = time_and_spread(row["time_s"], row.get("low_s"), row.get("high_s"))
    return time, ", ".join(filter(None, (spread, more)))


def _timed(row: Row) -> Cell:
    return Cell(*number(row))


def _collective(row: Row) -> str:
    return baseline_title(row.get("axes")) or "nothing overlaps"
