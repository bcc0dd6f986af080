"""Summaries of runs, and the comparison of two runs: shared schedules, and circumstances that differ."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from kernels.schemes import BASELINE
from workbench.results.comparison import fastest, once
from workbench.results.metrics import gain
from workbench.results.rows import PLACE, QUESTION, Key, Row, by_problem, problem_of, row_compared_as
from workbench.results.store import IMPORTED, Store
from workbench.results.verdict import decide

# Summaries: the problems of a run, the number of its timed schedules, and the fastest.

ONE_PROBLEM_KEYS = ("operator", "shape", "dtype", "world", "schedules", "best_s", "source", "scheme", "axes")


Bests = list[dict[str, Any]]
"""The fastest schedule of each problem of a run."""


def summaries(store: Store, limit: int, kept: dict[str, Bests] | None = None) -> list[dict[str, Any]]:
    """Summaries of runs, newest first. *kept* has the problems of ended runs from earlier calls, which do not change.

    Times are never compared across problems: a run of several has them under `problems`, and none of its own.
    `others_share` is the largest share of the cores that others had while a fastest schedule was timed.
    """
    runs = store.runs(limit)
    known = {} if kept is None else kept
    groups: dict[str, Bests] = {run["id"]: [] for run in runs if run["id"] not in known}
    for group in store.bests(list(groups)):
        groups[group["run"]].append(group)
    timings = _of_several_blocks(store, groups)
    bests = {run: [_best(same, timings.get((run, problem), ())) for problem, same in by_problem(several).items()]
             for run, several in groups.items()}  # fmt: skip
    known |= {run["id"]: bests[run["id"]] for run in runs if run["id"] in bests and run["ended_at"] is not None}
    return [_summary(run, bests.get(run["id"]) or known.get(run["id"], [])) for run in runs]


def replayable(store: Store, limit: int) -> list[dict[str, Any]]:
    """Id, title and number of measured whole schedules of the newest runs that a replay can show."""
    runs = store.measured_runs(limit)
    counts: dict[str, int] = {}
    for group in store.bests([run["id"] for run in runs]):
        timed = group["schedules"] if group["outcome"] == "measurement" else 0
        counts[group["run"]] = counts.get(group["run"], 0) + timed
    named = [{"run": run["id"], "title": run["title"], "schedules": counts.get(run["id"], 0)} for run in runs]
    return [each for each in named if each["schedules"]]


def _of_several_blocks(store: Store, groups: Mapping[str, Bests]) -> dict[tuple[str, Key], list[Row]]:
    """By run and problem all times of those runs of which several blocks have some: their least time may be of a block
    that was faster as a whole, or one that others disturbed."""
    several = [run for run, of_run in groups.items() if any(map(_has_several_blocks, by_problem(of_run).values()))]
    timings: dict[tuple[str, Key], list[Row]] = {}
    for timing in store.timings(several) if several else []:
        timings.setdefault((timing["run"], problem_of(timing)), []).append({**timing, "time_s": timing["best_s"]})
    return timings


def _has_several_blocks(same: Sequence[Row]) -> bool:
    """Whether the groups *same* of one problem are of several blocks: its link may have had two speeds."""
    return sum(each["blocks"] for each in same if each["outcome"] == "measurement") > 1


def _best(same: Sequence[Row], timings: Sequence[Row]) -> dict[str, Any]:
    """The fastest of the groups of one problem, by *timings* where it has some; estimates count only if nothing was
    timed."""
    counted = [each for each in same if each["outcome"] == "measurement"] or same
    best = fastest(_with_baselines(timings)) or min(counted, key=lambda each: float(each["best_s"]))
    keys = (*QUESTION, "machine", "scheme", "axes", "source", "best_s", "others_share")
    return {**{key: best[key] for key in keys}, "schedules": sum(each["schedules"] for each in counted)}


def _with_baselines(timings: Sequence[Row]) -> list[Row]:
    """*timings* with the time of the best baseline of their block, by which blocks compare."""
    least: dict[Any, float] = {}
    for each in timings:
        if each["scheme"] == BASELINE:
            least[each["block"]] = min(each["time_s"], least.get(each["block"], each["time_s"]))
    return [{**each, "sequential_s": least.get(each["block"])} for each in timings]


def _summary(run: dict[str, Any], problems: list[dict[str, Any]]) -> dict[str, Any]:
    of_one = problems[0] if len(problems) == 1 else {}
    kept = ("started_at", "ended_at", "status", "title", "note", "tags")
    facts = {"run": run["id"], **{key: run[key] for key in kept},
             **{key: run["provenance"].get(key) for key in ("host", IMPORTED)}}  # fmt: skip
    shares = [each["others_share"] for each in problems if each["others_share"] is not None]
    counted = {
        "schedules": sum(problem["schedules"] for problem in problems),
        "others_share": max(shares, default=None),
    }
    return {**facts, **dict.fromkeys(ONE_PROBLEM_KEYS), **of_one, **counted, "problems": problems}


# Comparison of two runs.

Facts = Mapping[str, Any]

SAME_QUESTION = (*QUESTION, "scheme", "axes", "part")
_CIRCUMSTANCES = ("backend", *PLACE)
_PROVENANCE = ("host", "cpu", "cores", "versions", "source_print", "ranks", "kernel_fingerprint", "machine_digest")


def compare(store: Store, first: str, second: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Rows of the schedules that both runs timed, and the differing circumstances: key -> both values.

    ValueError if they share no schedule, or are one run.
    """
    runs = [store.run(first), store.run(second)]
    if runs[0]["id"] == runs[1]["id"]:
        raise ValueError(f"{first} and {second} are both run {runs[0]['id']}: 1 run, and 2 are compared. Accepted: two "
                         "runs that `workbench runs` lists.")  # fmt: skip
    timings = [timed(store.rows(run["id"])) for run in runs]
    shared = [question for question in timings[0] if question in timings[1]]
    if not shared:
        raise ValueError(
            f"Runs {runs[0]['id']} and {runs[1]['id']} cannot be compared: of their {len(timings[0])} and "
            f"{len(timings[1])} timed schedules 0 are the same. Accepted: runs of the same problem and schedules."
        )
    pairs = [(timings[0][question], timings[1][question]) for question in shared]
    return [compared(*pair) for pair in pairs], differences(_facts(runs, pairs))


def timed(rows: Sequence[Row]) -> dict[str, Row]:
    """The measured whole schedules of a run, by a key that runs may share; of several timings the one that counts.

    One call per graph has another key than many calls, and calls under steady load a third one.
    """
    measured = [row for row in once(rows) if row["outcome"] == "measurement" and row.get("part") in (None, "whole")]
    return {_text([*(row.get(key) for key in SAME_QUESTION), row_compared_as(row)]): row for row in measured}


def compared(first: Row, second: Row) -> dict[str, Any]:
    """One schedule in two runs: both times, their ratio, the verdict on the second, and the speed-up of each.

    A speed-up is formed inside the block of its own run. Two runs take no turns, so they are not compared, unless both
    show one measurement (`same_block`).
    """
    verdict = decide(second, first)
    return {
        **{key: first.get(key) for key in SAME_QUESTION},
        "first_s": first["time_s"], "second_s": second["time_s"], "ratio": second["time_s"] / first["time_s"],
        "second_is": verdict.word, "why": verdict.why,
        "first_source": first["source"], "second_source": second["source"],
        **{f"{which}_{key}": row.get(key) for which, row in (("first", first), ("second", second))
           for key in ("others_share", "others")},
        "first_speed_up": gain(first), "second_speed_up": gain(second),
        "same_block": first.get("block") is not None and first.get("block") == second.get("block"),
    }  # fmt: skip


def differences(of_runs: Sequence[Facts]) -> dict[str, list[Any]]:
    """Facts that are not the same in all runs: the value in each run by name."""
    names = dict.fromkeys(name for facts in of_runs for name in facts)
    values = {name: [facts.get(name) for facts in of_runs] for name in names}
    return {name: each for name, each in values.items() if any(value != each[0] for value in each)}


def _facts(runs: Sequence[Row], pairs: Sequence[tuple[Row, Row]]) -> list[dict[str, Any]]:
    """Provenance of each run, and each circumstance of the first schedule in which the runs differ."""
    first = {key: next((pair for pair in pairs if pair[0][key] != pair[1][key]), pairs[0]) for key in _CIRCUMSTANCES}
    return [{**{key: run["provenance"].get(key) for key in _PROVENANCE},
             **{key: pair[number][key] for key, pair in first.items()}} for number, run in enumerate(runs)]  # fmt: skip


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
