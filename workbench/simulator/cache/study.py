"""Studies: rows of applications and policies, a summary of them, and sweeps over the size of L2."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from workbench.simulator.cache.hierarchy import LINE_BYTES, Hierarchy
from workbench.simulator.cache.policies import POLICIES, STACKED, UNCACHED, Policy, policy
from workbench.simulator.cache.replay import ReplayResult, simulate
from workbench.simulator.cache.trace import Trace, together
from workbench.simulator.cache.whole_lines import Optimum
from workbench.simulator.cache.workloads import RECONSTRUCTED, WORKLOADS, Workload, workload

# A study: a row for each application and policy, and a summary.

CLOSE = 0.02
"""Largest regret at which the stacked optimisations count as equal to the best static policy."""
OPTIMUM = "belady"
"""The policy name of the row with the fewest possible misses; it has no cycles."""
Row = dict[str, Any]
Progress = Callable[[int, int, str], None]
"""Callback with the number of finished replays, the number of all, and the name of the one that just finished."""
TIER = "lines"
"""The name of this tier: each access is replayed."""


def silent(count: int, most: int, ended: str) -> None:
    """Report no progress."""


@dataclass(frozen=True, slots=True)
class StudyQuestion:
    """What to replay: policies on a hierarchy."""

    on: Hierarchy
    policies: tuple[Policy, ...]
    optimum: bool = False
    """Whether a row of Belady's optimum follows those of the policies."""


def chosen_policies(names: Sequence[str]) -> tuple[Policy, ...]:
    """The policies named *names*; `all` gives every policy."""
    return tuple(POLICIES.values()) if "all" in names else tuple(map(policy, dict.fromkeys(names)))


def chosen_workloads(names: Sequence[str]) -> tuple[Workload, ...]:
    """The applications named *names*; `all` gives every application."""
    return tuple(WORKLOADS.values()) if "all" in names else tuple(map(workload, dict.fromkeys(names)))


def study(applications: Sequence[Workload], question: StudyQuestion, progress: Progress = silent) -> list[Row]:
    """A row for each application and policy, in their order."""
    by_application = _replayed([each.trace(question.on.units) for each in applications], question, progress)
    return [{**row, "application": application.name, "labels": RECONSTRUCTED, "words": application.text}
            for application, rows in zip(applications, by_application, strict=True) for row in rows]  # fmt: skip


def rows(trace: Trace, question: StudyQuestion, progress: Progress = silent) -> list[Row]:
    """A row for each policy on *trace*, with relative cycles if the policy `uncached` is among them."""
    return _replayed([trace], question, progress)[0]


def _replayed(traces: Sequence[Trace], question: StudyQuestion, progress: Progress) -> list[list[Row]]:
    """The rows of each trace: its replays, and the optimum if requested; each runs as a job of its own."""
    jobs: list[Callable[[], ReplayResult | Row]] = []
    for trace in traces:
        jobs += [partial(simulate, trace, question.on, each) for each in question.policies]
        jobs += [partial(_optimum, trace, question.on)] if question.optimum else []
    names = [*(each.name for each in question.policies), *([OPTIMUM] if question.optimum else [])]
    ended = together(jobs, lambda count, at: progress(
        count, len(jobs), f"{traces[at // len(names)].name} with {names[at % len(names)]}"))  # fmt: skip
    return [_rows_of(ended[start : start + len(names)], question.on) for start in range(0, len(jobs), len(names))]


def _rows_of(ended: Sequence[ReplayResult | Row], on: Hierarchy) -> list[Row]:
    """The rows of one trace."""
    uncached = next((each.cycles for each in ended if isinstance(each, ReplayResult) and each.policy == UNCACHED), None)
    return [row_of(each, on, uncached) if isinstance(each, ReplayResult) else each for each in ended]


def row_of(replay: ReplayResult, on: Hierarchy, uncached: float | None = None) -> Row:
    """The row of one replay, for a table or a chart."""
    return {
        "trace": replay.trace, "tier": TIER, "policy": replay.policy, "group": POLICIES[replay.policy].group,
        "caches": on.name, "accesses": replay.accesses, "cycles": replay.cycles,
        "relative_cycles": replay.cycles / uncached if uncached else None, **asdict(replay.total),
        "stalls_per_request": replay.stalls_per_request, "row_hit_rate": replay.row_hit_rate,
        "rinsed_lines": replay.rinsed_lines,
        "structures": {name: asdict(traffic) for name, traffic in replay.structures.items()},
    }  # fmt: skip


def _optimum(trace: Trace, on: Hierarchy) -> Row:
    best = Optimum(trace, on)
    return {"trace": trace.name, "tier": TIER, "policy": OPTIMUM, "group": "bound", "caches": on.name, "cycles": None,
            "relative_cycles": None, "l2_hit_rate": None, "l2_line_misses": best.line_misses,
            "line_hit_rate": best.hit_rate}  # fmt: skip


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The best static policies and the regret of the stacked optimisations; None where policies are missing."""
    cycles: dict[str, dict[str, float]] = {}
    for row in rows:
        if row["cycles"] is not None:
            cycles.setdefault(row["application"], {})[row["policy"]] = row["cycles"]
    best = {name: min(static, key=static.__getitem__) for name, policies in cycles.items()
            if (static := {each: policies[each] for each in policies if POLICIES[each].group == "static"})}  # fmt: skip
    usual = Counter(best.values()).most_common(1)[0][0] if best else None
    regret = {name: cycles[name][STACKED] / cycles[name][best[name]] - 1.0 for name in best if STACKED in cycles[name]}
    worst = max(regret, key=regret.__getitem__) if regret else None
    return {
        "applications": len(cycles), "labels": RECONSTRUCTED, "usual_best_static": usual, "best_static": best,
        "best_static_differs": sum(each != usual for each in best.values()) if best else None,
        "optimised_within_2pct_of_best_static": sum(each <= CLOSE for each in regret.values()) if regret else None,
        "worst_regret": regret[worst] if worst else None, "worst_regret_application": worst, "regret": regret,
    }  # fmt: skip


# A sweep over the size of L2: how much a larger one would save.

MIB = 2**20
SIZES = (8, 12, 16, 24, 32, 40, 50, 64, 80, 96, 128, 160, 192, 224, 256)
"""Sizes of L2 in MiB of a sweep; an H200 has 50."""


def of_sizes(on: Hierarchy, sizes: Sequence[int] = SIZES) -> tuple[Hierarchy, ...]:
    """Copies of *on* with L2s of about *sizes* MiB: the nearest size that is a whole number of sets."""
    way_bytes = LINE_BYTES * on.l2_ways * on.l2_slices
    return tuple(on.with_l2(max(1, round(size * MIB / way_bytes)) * way_bytes) for size in sizes)


def swept(
    on: Hierarchy, rows_at: Callable[[Hierarchy], list[Row]], progress: Progress = silent, sizes: Sequence[int] = SIZES
) -> list[Row]:
    """The rows of every size, each with its `l2_bytes`; two sizes are replayed at a time."""
    hierarchies = of_sizes(on, sizes)
    names = [f"L2 of {hierarchy.l2_bytes / MIB:.0f} MiB" for hierarchy in hierarchies]
    jobs = [partial(rows_at, hierarchy) for hierarchy in hierarchies]
    by_size = together(jobs, lambda count, at: progress(count, len(jobs), names[at]))
    return [
        {**row, "l2_bytes": hierarchy.l2_bytes}
        for hierarchy, rows in zip(hierarchies, by_size, strict=True)
        for row in rows
    ]


def __getattr__(name: str) -> Any:
    """Returns the object that the previous release called *name*."""
    from kernels.old_names import renamed

    return renamed(__name__, name, {"Asked": "StudyQuestion"})
