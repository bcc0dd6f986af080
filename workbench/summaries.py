"""Each run in a line: of which problems it was, how many schedules were timed, and the fastest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from workbench.one_problem import ASKED, Row, by_problem
from workbench.store import Store

OF_ONE = ("operator", "shape", "dtype", "world", "schedules", "best_s", "source", "scheme", "axes")


def summaries(store: Store, limit: int) -> list[dict[str, Any]]:
    """The newest runs first. Times are never compared across problems: of several, each has its own under `problems`,
    and the run itself has none."""
    runs = store.runs(limit)
    groups: dict[str, list[dict[str, Any]]] = {}
    for group in store.bests([run["id"] for run in runs]):
        groups.setdefault(group["run"], []).append(group)
    return [_summary(run, [_best(same) for same in by_problem(groups.get(run["id"], [])).values()]) for run in runs]


def _best(same: Sequence[Row]) -> dict[str, Any]:
    """Of the groups of one problem: the fastest of what was timed; where nothing was, of what was estimated."""
    counted = [each for each in same if each["outcome"] == "measurement"] or same
    best = min(counted, key=lambda each: float(each["best_s"]))
    keys = (*ASKED, "scheme", "axes", "source", "best_s")
    return {**{key: best[key] for key in keys}, "schedules": sum(each["schedules"] for each in counted)}


def _summary(run: dict[str, Any], problems: list[dict[str, Any]]) -> dict[str, Any]:
    of_one = problems[0] if len(problems) == 1 else {}
    facts = {"run": run["id"], **{key: run[key] for key in ("started_at", "ended_at", "status", "title")},
             "host": run["provenance"].get("host")}  # fmt: skip
    counted = {"schedules": sum(problem["schedules"] for problem in problems)}
    return {**facts, **dict.fromkeys(OF_ONE), **of_one, **counted, "problems": problems}
