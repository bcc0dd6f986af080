"""A run of the store as what a report needs: facts, rows and charts. The explorer freezes the same charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
from nbformat import NotebookNode

from kernels.operators import OPERATORS
from kernels.outcome import Span
from kernels.problem import Problem
from workbench import metrics
from workbench.charts import timeline, trials, waterfall
from workbench.reports.derived import Derived, derived
from workbench.reports.run_report import run_report
from workbench.store import Store

Row = Mapping[str, Any]
Titled = tuple[str, alt.TopLevelMixin]


def stored_report(store: Store, run: str) -> NotebookNode:
    """The report of *run* (an id, the beginning of one, or `last`), in memory; ValueError lists the runs there are."""
    found = store.run(run)
    rows = store.rows(found["id"])
    best = fastest(rows)
    numbers = [] if best is None else derived_of(store, found["id"], rows, best)
    return run_report(facts(found, rows), rows, charts(store, found["id"], rows), numbers)


def facts(run: Row, rows: Sequence[Row]) -> dict[str, Any]:
    """What was asked, as plain values; of several problems only what they share."""
    asked, provenance = run["experiment"], run["provenance"]
    found: dict[str, Any] = {
        "title": run["title"],
        "run": run["id"],
        "started_at": run["started_at"],
        "provenance": provenance,
        "cores": provenance.get("cores"),
        "protocol": asked.get("protocol"),
        **{key: _shared(rows, key) for key in ("operator", "dtype", "world", "backend", "machine", "fabric", "shape")},
    }
    if found["operator"] and found["shape"] and found["world"] and found["dtype"]:
        stated = OPERATORS[found["operator"]]
        problem = Problem(stated.name, tuple(found["shape"].items()), found["dtype"], found["world"])
        found |= {
            "idea": stated.words,
            "local_sizes": dict(stated.local(problem)),
            "global_sizes": dict(stated.whole(problem)),
        }
    return found


def _shared(rows: Sequence[Row], key: str) -> Any:
    values = [row.get(key) for row in rows if row.get("part") == "whole"]
    return values[0] if values and all(value == values[0] for value in values) else None


def charts(store: Store, run: str, rows: Sequence[Row]) -> list[Titled]:
    """Title and chart, in reading order: the trials, then what the fastest one did and where its time went."""
    if not rows:
        return []
    drawn: list[Titled] = [("", trials.chart(rows))]
    best = fastest(rows)
    if best is not None:
        drawn += [("", timeline.chart(panels(store, run, best), _words(best)))]
        lost = losses(store, run, rows, best)
        drawn += [] if lost is None else [("", waterfall.chart(lost, best["time_s"], _words(best), best["source"]))]
    return drawn


def fastest(rows: Sequence[Row]) -> Row | None:
    """The fastest whole trial: timed if any was, else estimated."""
    whole = [row for row in rows if row.get("part") == "whole" and row.get("time_s") is not None]
    timed = [row for row in whole if row["source"] in ("measured", "recorded")]
    return min(timed or whole, key=lambda row: row["time_s"], default=None)


def panels(store: Store, run: str, row: Row) -> dict[str, Sequence[Span]]:
    """The timelines of one trial: as it was timed above as it was simulated."""
    by_source = {source: store.spans(run, row["key"], source) for source in ("measured", "recorded", "estimated")}
    words = {"measured": "measured", "recorded": "recorded", "estimated": "simulated"}
    return {words[source]: spans for source, spans in by_source.items() if spans}


def losses(store: Store, run: str, rows: Sequence[Row], row: Row) -> dict[str, float] | None:
    """Where the time of one trial went, in seconds by part; None while one of its parts was not timed."""
    spans = store.spans(run, row["key"], row["source"])
    found = metrics.waterfall(row, spans, pieces_alone_s(rows, row))
    return None if found is None else dict(found)


def derived_of(store: Store, run: str, rows: Sequence[Row], row: Row) -> list[Derived]:
    """What follows from the times of one trial, as far as its parts were timed."""
    return derived(row, store.spans(run, row["key"], row["source"]), pieces_alone_s(rows, row))


def pieces_alone_s(rows: Sequence[Row], row: Row) -> float | None:
    """The computation alone of the schedule of *row*."""
    alike = [
        other["time_s"]
        for other in rows
        if other.get("part") == "compute"
        and other.get("time_s") is not None
        and other["source"] == row["source"]
        and all(other.get(key) == row.get(key) for key in ("scheme", "axes", "shape", "operator", "world"))
    ]
    return min(alike, default=None)


def _words(row: Row) -> str:
    axes = ", ".join(f"{name} = {value}" for name, value in (row.get("axes") or {}).items())
    return f"{row['scheme']}: {axes}"
