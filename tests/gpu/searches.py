"""How many measurements each search needs: played over recorded spaces of schedules, without a GPU.

`python -m tests.gpu.documents` writes the table of docs/results/searches.md, `python -m tests.gpu.searches` its chart.
A space is all schedules of one problem that recordings of drawn schedules hold. Prices were fitted to none of the
spaces, and to the problem of one of them by other schedules.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import altair
import numpy as np

from kernels.problem import Problem
from kernels.schedule import Schedule
from kernels.schemes import BASELINE, SCHEMES
from kernels.trial import Trial, protocol
from tests.gpu.choices import NVLINK, table_text
from workbench.experiment.experiment import Search, best_so_far
from workbench.machines import shipped_machine
from workbench.machines.calibrate_gpu import problem_text
from workbench.results import recordings
from workbench.simulator.predict import predict

OF_SPACES = "h200_nvl2_space"
"""Beginning of the names of recordings of drawn schedules."""
MACHINE = "h200_nvl2"
SEEDS = 200
"""Random searches whose middle and band are shown."""
NEAR, SHARE = 0.02, 0.10
"""The target of estimate first: within so much of the best, with at most this share of the measurements."""


@dataclass(frozen=True, eq=False)
class RecordedSpace:
    """All recorded schedules of one problem, with times that are free of what differs between blocks."""

    problem: Problem
    times: dict[Schedule, float]

    @property
    def best_s(self) -> float:
        return min(self.times.values())

    def estimates(self, schedules: Sequence[Schedule]) -> list[float]:
        """The simulator's times of *schedules*."""
        return [self.estimated[each][0] for each in schedules]

    def lowest(self, schedule: Schedule) -> float:
        """The lower bound of the estimate of *schedule*."""
        return self.estimated[schedule][1]

    @property
    def estimated(self) -> dict[Schedule, tuple[float, float]]:
        """By schedule the estimate and its lower bound."""
        return _estimated(self.problem, tuple(self.times))


@cache
def _estimated(problem: Problem, schedules: tuple[Schedule, ...]) -> dict[Schedule, tuple[float, float]]:
    machine, known = shipped_machine(MACHINE), {}
    for each in schedules:
        trial = Trial(problem=problem, schedule=each, backend=machine.backend, machine=machine.name, fabric=NVLINK,
                      protocol=protocol("default"))  # fmt: skip
        estimate = predict(trial, machine, with_spans=False)
        known[each] = estimate.time_s, estimate.low_s
    return known


@cache
def spaces() -> tuple[RecordedSpace, ...]:
    """The recorded spaces, by problem."""
    blocks: dict[tuple[Problem, Any], dict[Schedule, float]] = defaultdict(dict)
    for name, entries in recordings.shipped().items():
        for measured in (entry.measurement for entry in entries if name.startswith(OF_SPACES)):
            trial = measured.trial
            if trial.part == "whole" and measured.correct and SCHEMES[trial.schedule.scheme].is_compared:
                blocks[trial.problem, measured.block][trial.schedule] = measured.time_s
    of_problem: dict[Problem, list[dict[Schedule, float]]] = defaultdict(list)
    for (problem, _), times in blocks.items():
        of_problem[problem].append(times)
    return tuple(RecordedSpace(problem, _levelled(several)) for problem, several in of_problem.items())


def _levelled(blocks: Sequence[dict[Schedule, float]]) -> dict[Schedule, float]:
    """The median time of each schedule over *blocks*, each scaled so that its baseline takes what it takes in all."""
    baselines = {each for times in blocks for each in times if each.scheme == BASELINE}
    common = max(baselines, key=lambda each: sum(each in times for times in blocks))
    usual_s = median(times[common] for times in blocks if common in times)
    values: dict[Schedule, list[float]] = defaultdict(list)
    for times in blocks:
        scale = usual_s / times[common] if common in times else 1.0
        for schedule, taken in times.items():
            values[schedule].append(scale * taken)
    return {schedule: median(several) for schedule, several in values.items()}


# Searches, played.

KINDS = {"all": "exhaustive", "random": "random", "estimate first": "estimate_first", "Optuna": "optuna"}
"""By the name that people read."""


def walked(space: RecordedSpace, kind: str, seed: int = 0, *, stops: bool = False) -> np.ndarray:
    """Best time so far over the best of *space*, by number of measurements from 1."""
    search = Search(kind=kind, count=len(space.times), seed=seed)
    path = best_so_far(search, space.times, space.estimates, space.lowest if stops else None)
    return np.array([best_s for _, best_s in path]) / space.best_s


def random_walks(space: RecordedSpace) -> np.ndarray:
    """[seed, number of measurements] as `walked`."""
    return np.array([walked(space, "random", seed) for seed in range(SEEDS)])


def needed(path: np.ndarray) -> int | None:
    """Measurements until the best so far is within NEAR of the best; None where it never is."""
    near = np.flatnonzero(path <= 1 + NEAR)
    return int(near[0]) + 1 if len(near) else None


def has_optuna() -> bool:
    """Whether the extra `search` is installed."""
    try:
        import optuna  # noqa: F401
    except ImportError:
        return False
    return True


@cache
def text() -> str:
    """A row for each space: how many measurements each search needs, and where estimate first stops by itself."""
    rows = []
    for space in spaces():
        count = len(space.times)
        random = [needed(path) or count for path in random_walks(space)]
        stopped = walked(space, "estimate_first", stops=True)
        first = needed(walked(space, "estimate_first"))
        rows.append((problem_text(space.problem), str(count), str(first), f"{(first or count) / count:.0%}",
                     f"{median(random):.0f} ({np.quantile(random, 0.1):.0f} to {np.quantile(random, 0.9):.0f})",
                     str(len(stopped)), f"{stopped[-1] - 1:.1%}"))  # fmt: skip
    heads = ("space", "schedules", "estimate first", "of the space", "random, median (10 to 90 %)", "it stops after",
             "then above the best")  # fmt: skip
    return table_text(heads, rows)


# The chart.


def chart() -> altair.FacetChart:
    """Best so far by number of measurements, a panel for each space; random's band is 10 to 90 % of the seeds."""
    lines, band = [], []
    for space in spaces():
        title = f"{space.problem.operator}, {len(space.times)} schedules"
        for name, kind in KINDS.items():
            if kind == "optuna" and not has_optuna():
                continue
            path = np.median(random_walks(space), axis=0) if kind == "random" else walked(space, kind)
            lines += [{"space": title, "search": name, "measured": n, "over": float(y)} for n, y in enumerate(path, 1)]
        low, high = np.quantile(random_walks(space), (0.1, 0.9), axis=0)
        band += [{"space": title, "measured": n, "low": float(a), "high": float(b)}
                 for n, (a, b) in enumerate(zip(low, high, strict=True), 1)]  # fmt: skip
    measured = altair.X("measured:Q", title="schedules measured", scale=altair.Scale(type="log", domain=[1, 130]))
    colours = altair.Scale(domain=list(KINDS), range=["#7f7f7f", "#1976d2", "#d26a00", "#8e44ad"])
    drawn = altair.Chart().mark_line(interpolate="step-after", strokeWidth=2).encode(
        x=measured, y=altair.Y("over:Q", title="best so far over the best", scale=altair.Scale(zero=False)),
        color=altair.Color("search:N", scale=colours, title=None),
    )  # fmt: skip
    shaded = altair.Chart().mark_area(interpolate="step-after", opacity=0.18, color="#1976d2").encode(
        x=measured, y="low:Q", y2="high:Q")  # fmt: skip
    data = altair.Data(values=[*({**row, "kind": "line"} for row in lines), *({**row, "kind": "band"} for row in band)])
    both = altair.layer(shaded.transform_filter("datum.kind == 'band'"), drawn.transform_filter("datum.kind == 'line'"),
                        data=data).properties(width=300, height=190)  # fmt: skip
    return both.facet(facet=altair.Facet("space:N", title=None), columns=2).resolve_scale(y="independent")


if __name__ == "__main__":
    place = Path(__file__).parents[2] / "docs" / "results" / "searches.svg"
    chart().save(place)
    print(f"written: {place.name}, {place.stat().st_size // 1024} KiB")
