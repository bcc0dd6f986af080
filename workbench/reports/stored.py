"""A run of the store as what a report needs: facts, rows and charts. The explorer freezes the same charts."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import altair as alt
from nbformat import NotebookNode

from kernels.operators import OPERATORS
from kernels.outcome import Span
from kernels.problem import Problem
from kernels.schemes import BASELINE
from workbench import busy, compared, metrics
from workbench.charts import sweep, timeline, trials, waterfall
from workbench.charts.words import BETWEEN, context
from workbench.naming import TIMED, operator_title
from workbench.provenance import for_others
from workbench.reports.cases import Case, cases, titles
from workbench.reports.derived import Derived, derived
from workbench.reports.outcomes import schedule_text
from workbench.reports.run_report import Shown, run_report
from workbench.space import EVERY
from workbench.store import Store

Row = Mapping[str, Any]
Titled = tuple[str, alt.TopLevelMixin]

CURVE = 3
"""So many values of one axis are a curve, whether or not a sweep was asked for."""
CURVES_MOST = 3


def stored_report(store: Store, run: str, *, note: str = "", login: bool = False) -> NotebookNode:
    """The report of *run* (an id, the beginning of one, or `last`), in memory; ValueError lists the runs there are.

    *note* is what its author has to say of it. *login*: it names who made the run.
    """
    its_facts, rows, shown = whole_run(store, store.run(run), login=login)
    return run_report({**its_facts, "notes": note}, rows, shown)


def whole_run(
    store: Store, run: Row, *, login: bool = False
) -> tuple[dict[str, Any], list[dict[str, Any]], list[Shown]]:
    """Facts, rows, and what is shown of each case of *run*."""
    rows = store.rows(run["id"])
    problems = cases(rows)
    named = _asked_axes(run["experiment"])
    known = {**run, "provenance": for_others(run["provenance"], login=login)}
    facts_of_run = {**facts(known, rows), "timed_how": store.timed_how(run["id"])}
    return facts_of_run, rows, [_shown(store, run["id"], case, named) for case in problems]


def _shown(store: Store, run: str, case: Case, named: Collection[str]) -> Shown:
    drawn = charts(store, run, case.rows)
    along: list[Titled] = [("", sweep.chart(case.rows, axis)) for axis in swept(case.rows, named)]
    best = case.fastest
    return Shown([*drawn[:1], *along, *drawn[1:]], [] if best is None else derived_of(store, run, case.rows, best))


def swept(rows: Sequence[Row], named: Collection[str] = ()) -> list[str]:
    """The axes that one scheme was tried along: so many values that they make a curve, or *named* by who asked."""
    values: dict[str, dict[str, set[str]]] = {}
    for row in rows:
        if row.get("part") in (None, "whole") and row.get("time_s") is not None and row["scheme"] != BASELINE:
            for name, value in (row.get("axes") or {}).items():
                values.setdefault(name, {}).setdefault(row["scheme"], set()).add(str(value))
    widest = {name: max(map(len, schemes.values())) for name, schemes in values.items()}
    axes = [name for name, count in widest.items() if count >= CURVE or (count > 1 and name in named)]
    return sorted(axes, key=lambda name: -widest[name])[:CURVES_MOST]


def _asked_axes(experiment: Mapping[str, Any]) -> set[str]:
    """The axes for which a run was asked to try several values, or all."""
    choices = experiment.get("space") or []  # a replay states none
    return {
        name for choice in choices for name, values in dict(choice.get("values") or {}).items()
        if len(values) > 1 or EVERY in values
    }  # fmt: skip


def facts(run: Row, rows: Sequence[Row]) -> dict[str, Any]:
    """What was asked, as plain values; of several problems only what they share."""
    experiment, provenance = run["experiment"], run["provenance"]
    values: dict[str, Any] = {
        "title": _titled(run["title"]),
        "run": run["id"],
        "status": run["status"],
        "started_at": run["started_at"],
        "provenance": provenance,
        "cores": provenance.get("cores"),
        "protocol": experiment.get("protocol"),
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
    """*title* with the names of operators as people read them."""
    return re.sub(r"\w+", lambda word: operator_title(word[0]), title)


def _shared(rows: Sequence[Row], key: str) -> Any:
    values = [row.get(key) for row in rows if row.get("part") in (None, "whole")]
    return values[0] if values and all(value == values[0] for value in values) else None


def charts(store: Store, run: str, rows: Sequence[Row]) -> list[Titled]:
    """Title and chart, in reading order: the trials, then what the fastest one did and where its time went."""
    known = cases(rows)
    if len([case for case in known if case.whole]) > 1:  # which share no axis: the trials of each
        named = zip(titles(known), known, strict=True)
        return [(title, trials.chart(case.rows)) for title, case in named if case.whole]
    rows = [row for case in known for row in case.rows]  # one floor each, and no stop among the failures
    if not rows:
        return []
    drawn: list[Titled] = [("", trials.chart(rows))]
    best = compared.fastest(rows)
    if best is not None:
        words = _words(best, rows)
        timelines = panels(store, run, best)
        drawn += [("", timeline.chart(timelines, words))] if timelines else []
        lost = losses(store, run, rows, best)
        drawn += [] if lost is None else [("", waterfall.chart(lost, best["time_s"], words, best["source"]))]
    return drawn


def panels(store: Store, run: str, row: Row) -> dict[str, Sequence[Span]]:
    """The timelines of one trial: as it was timed above as it was simulated."""
    by_source = {source: store.spans(run, row["key"], source, row.get("block")) for source in TIMED}
    by_source["estimated"] = store.spans(run, row["key"], "estimated")
    words = {"measured": "measured", "recorded": "recorded", "estimated": "simulated"}
    return {words[source]: spans for source, spans in by_source.items() if spans}


def losses(store: Store, run: str, rows: Sequence[Row], row: Row) -> dict[str, float | None] | None:
    """Where the time of one trial went, in seconds by part; None where nothing but its floor is known."""
    spans = store.spans(run, row["key"], row["source"], row.get("block"))
    steps = busy.waterfall(row, spans, pieces_alone_s(rows, row))
    return steps if steps is not None and len(busy.unknown(steps)) < len(busy.LOSSES) else None


def derived_of(store: Store, run: str, rows: Sequence[Row], row: Row) -> list[Derived]:
    """What follows from the times of one trial, as far as its parts were timed."""
    return derived(row, store.spans(run, row["key"], row["source"], row.get("block")), pieces_alone_s(rows, row))


def pieces_alone_s(rows: Sequence[Row], row: Row) -> float | None:
    """The computation alone of the schedule of *row*, timed in the same block: by it, or by one that computes alike."""
    computation = metrics.own_part(row, metrics.COMPUTE)
    alike = [
        other["time_s"]
        for other in rows
        if other.get("part") == metrics.COMPUTE
        and other.get("time_s") is not None
        and other["source"] == row["source"]
        and metrics.own_part(other, metrics.COMPUTE) == computation
    ]
    return min(alike, default=None)


def _words(row: Row, rows: Sequence[Row]) -> str:
    """The schedule by what tells it from the others, and its problem."""
    alike = [other for other in rows if other.get("part") in (None, "whole")]
    return BETWEEN.join((schedule_text(row, alike), context([row])))
