"""What the replays of all applications said of the cache paper: kept in a file, since they take minutes.

KEEPING keeps them anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kernels import texts
from workbench.claims.answers import Ours
from workbench.provenance import provenance
from workbench.published import Published
from workbench.resources import data_directory

COMMAND = "workbench cache --workloads all --policies all"
KEEPING = f"{COMMAND} --json | python -m workbench.claims"
KIND = texts.TextKind(
    "summary of replays", "a summary of replays", "a JSON file that `python -m workbench.claims` writes"
)
KEPT = ("git_commit", "cpu", "python")
"""What is kept of who replayed: simulated cycles are the same everywhere."""
NEEDED = {"applications": int, "optimised_within_2pct_of_best_static": int, "worst_regret": float,
          "worst_regret_application": str, "best_static_differs": int, "caches": str}  # fmt: skip
REPLAYS = (
    "bits",
    "hierarchy",
    "interrupts",
    "lines",
    "patterns",
    "policies",
    "simulate",
    "state",
    "step",
    "study",
    "trace",
    "workloads",
)
"""The files of workbench/simulator/cache/ that replay an application."""
HOLDS = 1.0


def studied(reported: Published) -> Ours:
    """How many applications are replayed here."""
    kept = _kept()
    return _ours(reported, kept, float(kept["summary"]["applications"]),
                 "Their names and sizes are reconstructed from public lists, not the paper's own.")  # fmt: skip


def best_static(reported: Published) -> Ours:
    """The share of the applications that the stacked optimisations serve as well as the best static policy."""
    kept = _kept()
    summary = kept["summary"]
    close, count = summary["optimised_within_2pct_of_best_static"], summary["applications"]
    worst = f"{summary['worst_regret_application']}, {100 * summary['worst_regret']:+.1f} %"
    return _ours(reported, kept, HOLDS * close / count,
                 f"Within 2 % of the best static policy for {close} of {count} applications; the worst: {worst}. "
                 f"Another policy than usual is the best for {summary['best_static_differs']}.")  # fmt: skip


def _ours(reported: Published, kept: Mapping[str, Any], value: float, sentence: str) -> Ours:
    is_todays = kept["simulator_print"] == simulator_print()
    stale = "" if is_todays else f" The simulator has changed since: `{KEEPING}` in a checkout keeps it anew."
    return Ours(
        value=value, source="estimated", machine=str(kept["summary"]["caches"]), over=reported.baseline,
        command=COMMAND, why=f"{sentence} Replayed {kept['date']}, commit {kept['provenance']['git_commit']}.{stale}",
        cases=[{"application": name, "regret": regret, "best_static": kept["summary"]["best_static"][name]}
               for name, regret in kept["summary"]["regret"].items()],
    )  # fmt: skip


def path() -> Path:
    """The file that is shipped."""
    return data_directory() / "checks" / "cache_workloads.json"


def _kept() -> dict[str, Any]:
    """What the file says; ValueError where it says something else."""
    kept = texts.json_value(path(), KIND)
    summary = kept.get("summary") if isinstance(kept, dict) else None
    if not isinstance(summary, dict):
        raise KIND.unreadable(path(), "it has no summary")
    for name, kind in NEEDED.items():
        if not isinstance(summary.get(name), kind):
            raise KIND.unreadable(
                path(), f"its {name} is {summary.get(name)!r}, and one of type {kind.__name__} is needed"
            )
    return kept


def simulator_print() -> str:
    """12 hexadecimal digits of the files that replay, and of the caches on which they do."""
    folder = Path(__file__).parents[1] / "simulator" / "cache"
    files = [*(folder / f"{name}.py" for name in REPLAYS), data_directory() / "caches" / "gcn3_hbm.toml"]
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()[:12]


def keep(document: Mapping[str, Any]) -> dict[str, Any]:
    """The summary of *document*, what `workbench cache --json` printed, with who made it and when."""
    known = provenance()
    return {"command": COMMAND, "date": str(datetime.now(UTC).date()), "simulator_print": simulator_print(),
            "provenance": {name: known[name] for name in KEPT}, "summary": document["summary"]}  # fmt: skip
