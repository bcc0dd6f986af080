"""Two runs side by side: the schedules that both timed, and every circumstance in which the runs differ."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from workbench.store import Store

Row = Mapping[str, Any]

_SAME_QUESTION = ("operator", "shape", "dtype", "world", "scheme", "axes", "part")
_CIRCUMSTANCES = ("backend", "machine", "fabric", "protocol")
_PROVENANCE = ("host", "cpu", "cores", "versions", "kernel_fingerprint", "machine_digest")


def compare(store: Store, first: str, second: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Rows of what both runs timed, and what differs between them beside the times: key -> both values.

    ValueError where they have no schedule in common.
    """
    runs = [store.run(first), store.run(second)]
    timed = [_timed(store, run["id"]) for run in runs]
    both = [question for question in timed[0] if question in timed[1]]
    if not both:
        raise ValueError(
            f"Runs {runs[0]['id']} and {runs[1]['id']} were to be compared, but of their {len(timed[0])} and "
            f"{len(timed[1])} timed schedules 0 are the same. Accepted: runs of the same problem and schedules."
        )
    pairs = [(timed[0][question], timed[1][question]) for question in both]
    return [_compared(*pair) for pair in pairs], _differences(runs, pairs)


def _timed(store: Store, run: str) -> dict[str, Row]:
    rows = [row for row in store.rows(run) if row["outcome"] == "measurement" and row["part"] == "whole"]
    return {_text([row[key] for key in _SAME_QUESTION]): row for row in rows}


def _compared(first: Row, second: Row) -> dict[str, Any]:
    apart = second["low_s"] > first["high_s"] or first["low_s"] > second["high_s"]
    verdict = ("slower" if second["time_s"] > first["time_s"] else "faster") if apart else "alike"
    return {
        **{key: first[key] for key in _SAME_QUESTION},
        "first_s": first["time_s"], "second_s": second["time_s"], "ratio": second["time_s"] / first["time_s"],
        "second_is": verdict,
    }  # fmt: skip


def _differences(runs: list[dict[str, Any]], pairs: list[tuple[Row, Row]]) -> dict[str, Any]:
    found = {}
    for key in _PROVENANCE:
        values = [run["provenance"].get(key) for run in runs]
        if values[0] != values[1]:
            found[key] = values
    for key in _CIRCUMSTANCES:
        seen = {(first[key], second[key]) for first, second in pairs if first[key] != second[key]}
        if seen:
            found[key] = list(min(seen))
    return found


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
