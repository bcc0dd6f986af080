"""Checks of what is measured: the cluster is there, each operator has verified times, a sweep is known afterwards."""

from __future__ import annotations

from typing import Any

from kernels.trial import PROTOCOLS
from tests.release.commands import Answer, require
from tests.release.site import Figures, Site, require_sound
from tests.release.summary import NO_GPU

RUN_S = 90.0
"""One problem: compiled, verified, timed."""
SWEEP_S = 120.0
QUICK = "quick"


def cluster(site: Site) -> Figures:
    """Every rank is idle, and has a GPU of its own where there are GPUs."""
    figures = site.up()
    rows = site.commands.ask("cluster", "status", "--json", within_s=30.0).document()["rows"]
    require(len(rows) == site.world, f"{len(rows)} workers are there instead of {site.world}.")
    gpus = {row["gpu"] for row in rows if row["gpu"]}
    require(len(gpus) == (site.world if site.on_gpus else 0), f"{site.world} ranks have {len(gpus)} GPUs.")
    backends = {row["backend"] for row in rows}
    require(backends == {site.backend}, f"The ranks' backends are {', '.join(map(str, backends))}.")
    return {**figures, "ranks": len(rows), "gpus": len(gpus) if site.on_gpus else NO_GPU}


def doctor(site: Site) -> Figures:
    """Every place says what it has."""
    rows = site.commands.ask("doctor", "--json", within_s=90.0).document()["rows"]
    require(len(rows) == 1 + site.world, f"The doctor tells of {len(rows)} places instead of {1 + site.world}.")
    trouble = [row["trouble"] for row in rows if row.get("trouble")]
    require(not trouble, f"The doctor found trouble: {'; '.join(trouble)}")
    keys = ("gpus", "gpu_driver", "nvlink", "cuda", "nccl", "symmetric_memory", "peer_access", "gpu_clock", "multicast")
    return {key: rows[0].get(key) for key in keys}


def operator(site: Site, name: str) -> Figures:
    """The schemes of one operator: verified, timed, with a timeline, each beside the best baseline of its block."""
    words = ("--world", str(site.world), "--protocol", QUICK, "--store", str(site.store("operators")))
    answer = site.commands.ask("run", name, *site.sizes(name), *words, "--json", within_s=RUN_S)
    rows = answer.document()["rows"]
    schemes = [row["scheme"] for row in rows]
    require(sorted(schemes) == sorted(site.questions.schemes(name)), f"{name} has rows of {', '.join(schemes)}.")
    for row in rows:
        _require_measured(row, site.world)
    beside = {row["scheme"]: row["sequential_s"] for row in rows}
    without = [scheme for scheme, seconds in beside.items() if not seconds]
    require(not without, f"{name} has no baseline in the block of {', '.join(without)}.")
    times = {row["scheme"]: row["time_s"] for row in rows}
    return {
        "command_s": answer.seconds, "shape": rows[0]["shape"], "dtype": rows[0]["dtype"], "time_s": times,
        "best_baseline_s": beside["fused"], "fused_of_best_baseline": times["fused"] / beside["fused"],
        "max_relative_error": max(row["max_relative_error"] for row in rows),
    }  # fmt: skip


def _require_measured(row: dict[str, Any], world: int) -> None:
    name = f"{row['scheme']} of {row['operator']}"
    state = (row["outcome"], row["source"])
    require(state == ("measurement", "measured"), f"{name} is a {' '.join(map(str, state))}: {row['message']}")
    require(row["correct"] is True and row["time_s"] > 0, f"{name}: correct {row['correct']}, {row['time_s']} s.")
    samples = world * PROTOCOLS[QUICK].repeats
    require(row["samples"] >= samples, f"{name} has {row['samples']} samples: fewer than {samples}.")
    require(row["message"] is None, f"{name} has no timeline: {row['message']}")
    require(row["hardware"] and row["source_print"] and row["versions_print"], f"{name} does not tell what ran it.")


def sweep(site: Site) -> Figures:
    """A space is measured, and known when it is asked again."""
    space, store = str(site.space("sweep", site.questions.sweep)), str(site.store("sweep"))
    first, again = (site.commands.ask("sweep", space, "--json", "--store", store, within_s=SWEEP_S) for _ in range(2))
    came, known = (accounted(answer, site.questions.sweep.count) for answer in (first, again))
    for which, summary in (("first", came), ("second", known)):
        count = summary["measurement"]
        require(count == site.questions.sweep.count, f"{count} schedules have a time in the {which} sweep.")
    sources = {row["source"] for row in again.document()["rows"] if row["outcome"] == "measurement"}
    require(sources == {"recorded"}, f"What was known is {', '.join(sources)} in the second sweep.")
    best = came["best"]
    return {
        "command_s": first.seconds, "again_s": again.seconds, "schedules": came["measurement"],
        "best": {"scheme": best["scheme"], "axes": best["axes"], "time_s": best["time_s"]},
    }  # fmt: skip


def accounted(answer: Answer, count: int) -> dict[str, Any]:
    """The summary of a sweep, each of whose *count* schedules has a time or a sentence."""
    document = answer.document()
    summary: dict[str, Any] = document["summary"]
    require_sound(document["rows"])
    told = summary["measurement"] + summary["failure"]
    require(told == count, f"{told} of {count} schedules have a time or a sentence.")
    silent = [row for row in document["rows"] if row["outcome"] == "failure" and not row["message"]]
    require(not silent, f"{len(silent)} failures have no sentence.")
    return summary
