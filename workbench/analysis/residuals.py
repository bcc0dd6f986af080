"""Residuals of estimates: the table that intervals are read from.

`python -m workbench.analysis.residuals > data/checks/residuals.json` makes the table from the shipped recordings.
A residual is log(measured / estimated) of a whole trial or a part, whose problem no price was fitted to
(`held_out` in the rows of `workbench validate`). It is divided by the `widening` of its distance from recorded trials
of other computations.

A class with LEAST residuals has bounds that are stretched until they hold PROMISED of the residuals that they were made
without. They are cross-conformal, with one computation left out at a time (Barber, Candes, Ramdas, Tibshirani,
"Predictive inference with the jackknife+", Annals of Statistics 49, 2021). A smaller class has the bounds of its whole
part, widened to hold those of its computation and of its scheme. Whether they hold: `workbench/analysis/coverage.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from itertools import combinations
from math import ceil, log
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.machine import Machine
from kernels.operators import operator
from kernels.schedule import Refusal
from kernels.schemes import axis_rules
from kernels.trial import MANY_CALLS, Trial
from workbench.machines import shipped_machine
from workbench.machines.calibrate_gpu import SEED, computation, is_unseen
from workbench.resources import data_directory
from workbench.results import recordings
from workbench.simulator.intervals import LEAST, PROMISED, UNIT, Recorded, class_names, features, widening
from workbench.simulator.predict import PREDICTOR, predict

MACHINES = ("h200_nvl2", "h200_nvl4", "h100_nvl2")
"""Machines of whose recordings prices were fitted to some, and not to others."""
FEWEST = 20
"""The fewest residuals with which a class widens the bounds of its part."""
LEANEST = 0.15
"""Each side of the bounds has at least this share of their width: the estimate lies inside."""
Values = NDArray[np.float64]


# Bounds of a class.


def quantile(values: Values, share: float) -> float:
    """The ceil((n + 1) *share*)-th least of n *values*, or the largest: *share* of others like them are below."""
    place = min(ceil((len(values) + 1) * share), len(values))
    return float(np.sort(values)[place - 1])


def tails(values: Values) -> tuple[float, float]:
    """Bounds around 0 that leave out equal shares of *values* on both sides."""
    low, high = -quantile(-values, (1 + PROMISED) / 2), quantile(values, (1 + PROMISED) / 2)
    least = max(LEANEST * (high - low), 1e-3)
    return min(low, -least), max(high, least)


def cross_conformal(values: Values, groups: NDArray[np.int64]) -> tuple[float, float]:
    """`tails`, stretched until they hold PROMISED of the values that they were made without, a group at a time."""
    reach = np.empty(len(values))
    for group in np.unique(groups):
        left_out = groups == group
        if left_out.all():
            return tails(values)
        low, high = tails(values[~left_out])
        reach[left_out] = np.maximum(values[left_out] / low, values[left_out] / high)
    stretch, (low, high) = quantile(reach, PROMISED), tails(values)
    return stretch * low, stretch * high


@dataclass(frozen=True, eq=False)
class Unseen:
    """Residuals of one machine as columns: what they are of, over their widening, and of which computation."""

    names: NDArray[np.str_]
    """By residual its `class_names`."""
    values: Values
    groups: NDArray[np.int64]

    def class_of(self, names: Sequence[str]) -> str | None:
        """The class of trials with these *names* that has LEAST residuals of its own; None where none has.

        First operator and scheme, then all of the same computation and scheme that have no class of their own.
        """
        narrow, kind, *_ = names
        if narrow in self._large:
            return narrow
        return kind if len(self._others(kind)) >= LEAST else None

    def _others(self, kind: str) -> NDArray[np.int64]:
        return np.flatnonzero((self.names[:, 1] == kind) & self._is_small)

    @cached_property
    def _large(self) -> frozenset[str]:
        """Pairs of operator and scheme with LEAST residuals."""
        each, counts = np.unique(self.names[:, 0], return_counts=True)
        return frozenset(each[counts >= LEAST].tolist())

    @cached_property
    def _is_small(self) -> NDArray[np.bool_]:
        """By residual, whether its operator and scheme have fewer."""
        return ~np.isin(self.names[:, 0], sorted(self._large))

    def bounds(self, names: Sequence[str], counted: NDArray[np.bool_] | None = None) -> tuple[float, float]:
        """Bounds of trials with these *names*, of the residuals that are *counted*; None: of all.

        A class of which fewer than FEWEST are counted has those of its part.
        """
        known = np.ones(len(self.values), bool) if counted is None else counted
        if (name := self.class_of(names)) is not None:
            members = self.names[:, 0] == name
            members[[] if members.any() else self._others(name)] = True
            if (members & known).sum() >= FEWEST:
                return cross_conformal(self.values[members & known], self.groups[members & known])
        pools = [self.values[(self.names[:, level] == names[level]) & known] for level in (3, 2, 1)]
        low, high = tails(pools[0])
        for pool in pools[1:]:
            if len(pool) >= FEWEST:
                low, high = min(low, tails(pool)[0]), max(high, tails(pool)[1])
        return low, high


# Residuals of the recordings of one machine.


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """What the recordings of one machine say about its estimates."""

    machine: Machine
    trials: tuple[Trial, ...]
    """Unseen ones, with the axes that are read."""
    recordings: tuple[str, ...]
    """By trial, the recording that it is of."""
    residuals: Values
    """log(measured / estimated), by trial."""
    distances: Values
    """From each trial to the nearest recorded one of another computation."""
    recorded: Mapping[str, Mapping[str, list[Any]]]
    """By kind the names and cells of all recorded trials, for `Recorded.of`."""
    sources: Mapping[str, Any]
    """Names of the recordings, their dates, and the kernels that were timed."""

    def unseen(self) -> Unseen:
        """The residuals over their widening."""
        names = [class_names(one.part, one.problem, one.schedule.scheme) for one in self.trials]
        computations = [computation(one.problem) for one in self.trials]
        groups = np.unique(computations, return_inverse=True)[1]
        return Unseen(np.array(names), self.residuals / widening(self.distances), groups)


@lru_cache(maxsize=len(MACHINES))
def known(name: str) -> Known:
    """Residuals of the machine called *name*; a process estimates its recordings once.

    Trials that are refused today have none, nor have times of one call, under steady load, or of another kernel.
    """
    on, timed, sources = shipped_machine(name), list[tuple[Trial, float, str]](), list[recordings.Recorded]()
    for recording in recordings.paths():
        for one in recordings.recordings(recording) if recording.startswith(f"{name}_") else ():
            trial = one.measurement.trial
            if trial.compared_as == MANY_CALLS and not one.measurement.unmet and not is_of_another_kernel(one):
                schedule = axis_rules.effective(trial.problem, trial.schedule, on.backend)
                timed.append((replace(trial, schedule=schedule), one.measurement.time_s, recording))
                sources.append(one)
    kinds = _by_kind([trial for trial, *_ in timed])
    trials, places, residuals, distances = list[Trial](), list[str](), list[float](), list[float]()
    for trial, time_s, recording in timed:
        distance = kinds[_kind(trial)].without(trial) if is_unseen(trial.problem, on) else None
        if distance is None:
            continue
        try:
            estimated_s = predict(trial, on, with_spans=False).time_s
        except Refusal:
            continue
        trials.append(trial)
        places.append(recording)
        residuals.append(log(time_s / estimated_s))
        distances.append(distance)
    recorded = {kind: of_kind.to_json() for kind, of_kind in sorted(kinds.items())}
    off, apart = np.array(residuals), np.array(distances)
    return Known(on, tuple(trials), tuple(places), off, apart, recorded, _sources(sources))


FEW_TOKENS_SINCE = "2026-11-26"
"""The day of today's kernel of GEMVs of several tokens."""


def is_of_another_kernel(one: recordings.Recorded) -> bool:
    """Whether our kernel that was timed is another one today, so that estimates of today's say nothing of it."""
    trial, date = one.measurement.trial, str(one.provenance.get("date", ""))
    of, schedule = trial.problem, trial.schedule
    is_ours = axis_rules.sends_packets(of, schedule) or schedule.get(axis_rules.KERNEL) == axis_rules.OURS
    return is_ours and operator(of.operator).work == "gemv" and of["tokens"] > 1 and date < FEW_TOKENS_SINCE


@dataclass(frozen=True, slots=True, eq=False)
class _Kind:
    """All recorded trials of one part, computation and scheme, and the computation of each."""

    names: list[str]
    points: list[list[Any]]
    computations: NDArray[np.str_]
    columns: Recorded

    def without(self, trial: Trial) -> float | None:
        """The distance from *trial* to the nearest trial of another computation; None where there is none."""
        others = self.computations != computation(trial.problem)
        distances = self.columns.distances(features(trial.problem, trial.schedule))[others]
        return float(distances.min()) if len(distances) else None

    def to_json(self) -> dict[str, list[Any]]:
        distinct = dict.fromkeys(tuple(point) for point in self.points)
        return {"names": self.names, "points": [list(point) for point in distinct]}


def _by_kind(trials: Sequence[Trial]) -> dict[str, _Kind]:
    kinds: dict[str, list[Trial]] = {}
    for trial in trials:
        kinds.setdefault(_kind(trial), []).append(trial)
    made = {}
    for kind, of_kind in kinds.items():
        cells = [features(one.problem, one.schedule) for one in of_kind]
        names = sorted({name for each in cells for name in each})
        points = [[_rounded(each.get(name)) for name in names] for each in cells]
        of_computation = np.array([computation(one.problem) for one in of_kind])
        made[kind] = _Kind(names, points, of_computation, Recorded.of(names, points))
    return made


def _kind(trial: Trial) -> str:
    return class_names(trial.part, trial.problem, trial.schedule.scheme)[1]


def _rounded(cell: float | str | None) -> float | str | None:
    return round(cell, 3) if isinstance(cell, float) else cell


def _sources(recorded: Sequence[recordings.Recorded]) -> dict[str, Any]:
    dates = sorted(str(one.provenance.get("date", ""))[:10] for one in recorded)
    prints = [str(one.provenance.get("source_print", "")) for one in recorded]
    return {"dates": [dates[0], dates[-1]], "kernels": {one: prints.count(one) for one in sorted(set(prints))}}


# Cards: how far those of one host differ, and probes of which nobody knows whether their card was the same.

PROBES = {
    "gemm": ("h100_gemm_alone", "h100_gemm_sweep", "h100_gemm_split", "h100_gemm_split_tried"),
    "gemv": ("h100_gemv_alone", "h100_gemv_sweep"),
}
"""Probes that time the same calls of cuBLAS in bursts, each on one H100, on two days."""


def cards() -> dict[str, dict[str, Any]]:
    """By computation, log(slowest / fastest) of cards of one host, or of two probes: the larger median, and both.

    Of cards it is of computations alone, each rank's median, in which no rank waits for another, in the recording where
    the median trial has the most. Of probes it is of calls of cuBLAS, of the two that differ most.
    """
    widest, between = _of_one_host(), _of_probes()
    return {work: {"spread": max(one["spread"], between.get(work, one)["spread"]), "of_one_host": one,
                   **({"of_probes": between[work]} if work in between else {})}
            for work, one in widest.items()}  # fmt: skip


def _of_one_host() -> dict[str, dict[str, Any]]:
    by_recording: dict[tuple[str, str], list[float]] = {}
    counts: dict[str, int] = {}
    for name in MACHINES:
        for recording in recordings.paths():
            for one in recordings.recordings(recording) if recording.startswith(f"{name}_") else ():
                trial, seconds = one.measurement.trial, dict[int, list[float]]()
                if trial.part == "compute" and trial.world > 1:
                    for sample in one.samples:
                        seconds.setdefault(sample.rank, []).append(sample.seconds)
                    medians = [median(each) for each in seconds.values()]
                    work = operator(trial.problem.operator).work
                    by_recording.setdefault((work, recording), []).append(log(max(medians) / min(medians)))
                    counts[recording] = len(medians)
    widest: dict[str, dict[str, Any]] = {}
    for (work, recording), each in by_recording.items():
        if median(each) > widest.get(work, {"spread": -1.0})["spread"]:
            widest[work] = {"spread": round(median(each), 5), "cards": counts[recording], "trials": len(each),
                            "recording": recording}  # fmt: skip
    return widest


def _of_probes() -> dict[str, dict[str, Any]]:
    """By computation, the median of |log| of the ratio of two probes' times of a call, and which two."""
    widest = {}
    for work, names in PROBES.items():
        pairs = []
        for one, other in combinations([(name, _library_calls(name)) for name in names], 2):
            ratios = [abs(log(other[1][call] / one[1][call])) for call in one[1].keys() & other[1].keys()]
            pairs.append((round(median(ratios), 5), len(ratios), [one[0], other[0]]))
        spread, trials, probes = max(pairs)
        widest[work] = {"spread": spread, "trials": trials, "probes": probes}
    return widest


def _library_calls(name: str) -> dict[str, float]:
    """By shape, the median burst of cuBLAS in the probe called *name*."""
    lines = (data_directory() / "probes" / f"{name}.jsonl").read_text().splitlines()
    rows = [row for row in map(json.loads, lines) if "timed" in row]
    return {json.dumps(row["shape"]): one["burst"][1]
            for row in rows for one in row["timed"] if one["name"] == "cublas" and one.get("burst")}  # fmt: skip


# The committed table.


def table() -> dict[str, Any]:
    """The table that `workbench/simulator/intervals.py` reads, with what it was made of."""
    spreads = cards()
    return {
        "made": datetime.now(tz=UTC).date().isoformat(),
        "command": "python -m workbench.analysis.residuals > data/checks/residuals.json",
        "predictor": PREDICTOR, "promised": PROMISED, "least": LEAST, "unit": UNIT,
        "split": f"problems that seed {SEED} of workbench/machines/calibrate_gpu.py holds out; "
                 "bounds leave out one computation at a time",
        "cards": spreads,
        "machines": {name: _entry(known(name), spreads) for name in MACHINES},
    }  # fmt: skip


def _entry(of: Known, spreads: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    unseen, bounds = of.unseen(), dict[str, dict[str, Any]]()
    large = {part for part in set(unseen.names[:, 3].tolist()) if (unseen.names[:, 3] == part).sum() >= FEWEST}
    for trial in (one for one in of.trials if one.part in large):
        names = class_names(trial.part, trial.problem, trial.schedule.scheme)
        for first in range(len(names)):
            chosen = (*[names[first]] * first, *names[first:])  # a wider class stands for the narrower ones it lacks
            if names[first] not in bounds:
                bounds[names[first]] = _bounds(unseen, chosen, first)
    return {
        "digest": of.machine.digest, "calibrated": of.machine.calibrated, "fabric": "nvlink", **of.sources,
        "cards": {work: one["spread"] for work, one in spreads.items()},
        "bounds": dict(sorted(bounds.items())), "recorded": of.recorded,
    }  # fmt: skip


def _bounds(unseen: Unseen, names: Sequence[str], level: int) -> dict[str, Any]:
    low, high = unseen.bounds(names)
    count = int((unseen.names[:, level] == names[level]).sum())
    return {"low": round(low, 5), "high": round(high, 5), "trials": count, "pooled": unseen.class_of(names) is None}


def text(content: Any, indent: str = "") -> str:
    """*content* as JSON, with a line for whatever holds only numbers and texts."""
    deeper = f"{indent} "
    if isinstance(content, dict) and any(isinstance(value, (dict, list)) for value in content.values()):
        lines = [f"{json.dumps(key)}: {text(value, deeper)}" for key, value in content.items()]
        return "{\n" + ",\n".join(f"{deeper}{line}" for line in lines) + f"\n{indent}}}"
    if isinstance(content, list) and any(isinstance(value, (dict, list)) for value in content):
        return "[\n" + ",\n".join(f"{deeper}{text(value, deeper)}" for value in content) + f"\n{indent}]"
    return json.dumps(content)


if __name__ == "__main__":
    print(text(table()))
