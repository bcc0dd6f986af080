"""Whether intervals hold: coverage and score on trials that they were not made of, by a protocol committed before.

`data/checks/intervals_protocol.toml` has the splits and the measures. `python -m workbench.analysis.coverage RECORDING`
judges the committed table by a recording that it was not made of.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from math import log
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels import files
from kernels.trial import Trial
from kernels.units import percent_text
from workbench import machines
from workbench.analysis.accuracy import binomial
from workbench.analysis.residuals import Known, Values, known
from workbench.machines.calibrate_gpu import computation
from workbench.resources import data_directory
from workbench.results import recordings
from workbench.simulator.intervals import PROMISED, class_names, widening
from workbench.simulator.predict import UNCALIBRATED, checked_spread, predict

KIND = files.TextKind("protocol of intervals", "a protocol of intervals", "data/checks/intervals_protocol.toml")
MISS = 2 / (1 - PROMISED)
"""The cost of a miss in the interval score, per unit of distance (Gneiting, Raftery, JASA 102, 2007, section 6.2)."""
Mask = NDArray[np.bool_]


def protocol() -> dict[str, Any]:
    """The committed protocol."""
    place = data_directory() / "checks" / "intervals_protocol.toml"
    return files.toml_of(files.text(place, KIND), place, KIND)


# Scores.


@dataclass(frozen=True, slots=True)
class Score:
    """How intervals fared on trials: the share inside, their median width, and the mean interval score; all of logs."""

    trials: int
    inside: float
    width: float
    score: float

    @classmethod
    def of(cls, low: Values, high: Values, residuals: Values) -> Score:
        below, above = np.maximum(0, low - residuals), np.maximum(0, residuals - high)
        inside = (low <= residuals) & (residuals <= high)
        scores = high - low + MISS * (below + above)
        return cls(len(residuals), float(inside.mean()), float(np.median(high - low)), float(scores.mean()))

    @property
    def certain(self) -> tuple[float, float]:
        """The 95 % binomial interval of the share inside."""
        return binomial(self.inside, self.trials)

    @property
    def holds(self) -> bool:
        """Whether chance explains how far the share inside is from the promised one."""
        least, most = self.certain
        return least <= PROMISED <= most


# Splits: which residuals an interval is made of, and on which trials it is judged.

Folds = Iterator[tuple[Mask, Mask]]
"""By fold, the trials that are judged, and those whose residuals count meanwhile."""


def _computations(of: Known) -> Folds:
    groups = of.unseen().groups
    for group in np.unique(groups):
        yield groups == group, groups != group


def half(name: str) -> int:
    """0 or 1: the half of the computation called *name*."""
    return int(sha256(name.encode()).hexdigest()[:8], 16) % 2


def _halves(of: Known) -> Folds:
    sides = np.array([half(computation(one.problem)) for one in of.trials])
    for side in (0, 1):
        yield sides == side, sides != side


def _sittings(of: Known) -> Folds:
    groups, places = of.unseen().groups, np.array(of.recordings)
    for group, place in sorted(set(zip(groups.tolist(), places.tolist(), strict=True))):
        yield (groups == group) & (places == place), (groups != group) & (places != place)


SPLITS: Mapping[str, Callable[[Known], Folds]] = {
    "computation": _computations, "halves": _halves, "sitting": _sittings,
}  # fmt: skip
"""By their name in the protocol; `next` needs a GPU first."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """Intervals of one class: of its machine's check, and by split of the residuals."""

    name: str
    computations: int
    pooled: bool
    """Whether the class has no bounds of its own."""
    before: Score
    after: Mapping[str, Score]

    @property
    def broken(self) -> list[str]:
        """Splits in which the promise does not hold; of fewer trials than the protocol asks for none is promised."""
        return [name for name, one in self.after.items() if not self.pooled and not one.holds]

    @property
    def worse(self) -> list[str]:
        """Splits in which the score is no better than that of the check."""
        return [name for name, one in self.after.items() if one.score >= self.before.score]


ALL = "all"


def coverage(of: Known) -> list[Coverage]:
    """The classes of a machine with bounds of their own, what is pooled by part and computation, and ALL at the end.

    Intervals are without the spread between cards: the trials are of the recorded ones.
    """
    unseen = of.unseen()
    names = [tuple(each) for each in unseen.names.tolist()]
    bands = [checked_spread(one, of.machine) or UNCALIBRATED for one in of.trials]
    before = np.log([(min(1.0, least), max(1.0, most)) for least, most in bands])
    made = {split: _made(of, folds(of)) for split, folds in SPLITS.items()}
    owned = [unseen.class_of(each) for each in names]
    labels = np.array([chosen or each[2] for chosen, each in zip(owned, names, strict=True)])

    def of_rows(name: str, rows: NDArray[np.int64], pooled: bool) -> Coverage:
        after = {split: Score.of(low[rows], high[rows], of.residuals[rows]) for split, (low, high) in made.items()}
        return Coverage(name, len(set(unseen.groups[rows].tolist())), pooled,
                        Score.of(before[rows, 0], before[rows, 1], of.residuals[rows]), after)  # fmt: skip

    each = [of_rows(name, rows := np.flatnonzero(labels == name), owned[rows[0]] is None)
            for name in sorted(set(labels.tolist()))]  # fmt: skip
    return [*each, of_rows(ALL, np.arange(len(labels)), pooled=False)]


def _made(of: Known, folds: Folds) -> tuple[Values, Values]:
    """By trial, the ends of its interval, made of the residuals that count in its fold."""
    unseen, wider = of.unseen(), widening(of.distances)
    low, high = np.empty(len(wider)), np.empty(len(wider))
    for judged, counted in folds:
        ends: dict[tuple[str, ...], tuple[float, float]] = {}
        for number in np.flatnonzero(judged):
            names = tuple(unseen.names[number].tolist())
            if names not in ends:
                ends[names] = unseen.bounds(names, counted)
            low[number], high[number] = ends[names]
    return low * wider, high * wider


# The table of a machine, misses first.


@cache
def coverage_text(name: str) -> str:
    """Tables of `coverage` of the machine called *name*: what is missed, all trials by split, and the classes."""
    *classes, every = coverage(known(name))
    classes.sort(key=lambda each: (-len(each.broken), -len(each.worse), each.pooled, each.name))
    return "\n\n".join(
        ["", " ".join(_misses(classes)), _table(_by_split(every, classes)), _table(_by_class(classes)), ""]
    )


def _misses(classes: Sequence[Coverage]) -> Iterator[str]:
    broken = [f"{each.name} ({', '.join(each.broken)})" for each in classes if each.broken]
    worse = [f"{each.name} ({', '.join(each.worse)})" for each in classes if each.worse]
    yield f"**Missed**: not the promised share by {'; '.join(broken) or 'no class with 100 trials'}."
    yield f"No better score than before: {'; '.join(worse) or 'no class'}."


def _by_split(every: Coverage, classes: Sequence[Coverage]) -> Iterator[Sequence[str]]:
    yield "intervals", "inside", "95 %", "width", "score", "classes with 100 trials that hold"
    owned = [each for each in classes if not each.pooled]
    yield "before: of the check", *_cells(every.before), f"{sum(each.before.holds for each in owned)} of {len(owned)}"
    for split, score in every.after.items():
        holding = sum(each.after[split].holds for each in owned)
        yield f"without the trial's {WORDS[split]}", *_cells(score), f"{holding} of {len(owned)}"


WORDS = {"computation": "computation", "halves": "half of all computations", "sitting": "recording and computation"}


def _cells(score: Score) -> tuple[str, ...]:
    least, most = (f"{share:.0%}" for share in score.certain)
    return f"{score.inside:.0%}", f"{least} to {most}", f"{score.width:.3f}", f"{score.score:.3f}"


def _by_class(classes: Iterable[Coverage]) -> Iterator[Sequence[str]]:
    splits = [head for split in SPLITS for head in (split, "score")]
    yield "class", "trials", "computations", "before", "score", splits[0], "95 %", *splits[1:]
    for each in classes:
        inside, certain, _, score = zip(*map(_cells, each.after.values()), strict=True)
        bold = [f"**{share}**" if split in each.broken else share for split, share in zip(SPLITS, inside, strict=True)]
        others = [cell for two in zip(bold[1:], score[1:], strict=True) for cell in two]
        before = _cells(each.before)
        yield (each.name + " (pooled)" * each.pooled, str(each.before.trials), str(each.computations), before[0],
               before[3], bold[0], certain[0], score[0], *others)  # fmt: skip


def _table(rows: Iterable[Sequence[str]]) -> str:
    heads, *lines = rows
    return "\n".join(f"| {' | '.join(line)} |" for line in (heads, ["---"] * len(heads), *lines))


# A recording that the table was not made of.


def judged(timed: Iterable[tuple[Trial, float]]) -> dict[str, tuple[Score, Values]]:
    """By part and computation, and for ALL: the score of today's intervals on *timed* trials, and the errors.

    Cards count, as for anybody who asks. ValueError: a machine is unknown, or a trial is refused.
    """
    rows: dict[str, list[tuple[float, float, float]]] = {}
    for trial, time_s in timed:
        made = predict(trial, machines.machine(trial.machine), with_spans=False)
        row = (log(made.low_s / made.time_s), log(made.high_s / made.time_s), log(time_s / made.time_s))
        for name in (class_names(trial.part, trial.problem, trial.schedule.scheme)[2], ALL):
            rows.setdefault(name, []).append(row)
    columns = {name: np.array(each).T for name, each in sorted(rows.items(), key=lambda item: item[0] == ALL)}
    return {name: (Score.of(*each), np.abs(np.expm1(-each[2]))) for name, each in columns.items()}


def judged_text(path: Path) -> str:
    """The table of `judged` for the recording at *path*, with errors of the estimates."""
    timed = [(one.measurement.trial, one.measurement.time_s) for one in recordings.recordings(path)]
    rows: list[tuple[str, ...]] = [("trials of", "number", "error: median", "p90", "inside", "95 %", "width", "score")]
    for name, (score, off) in judged(timed).items():
        errors = percent_text(float(np.median(off))), percent_text(float(np.quantile(off, 0.9)))
        rows.append((name, str(score.trials), *errors, *_cells(score)))
    return _table(rows)


if __name__ == "__main__":
    print(judged_text(Path(sys.argv[1])))
