"""Accuracy of the simulator: stored measurements against today's estimates.

The estimate from before the measurement is kept, too, and never changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import ceil, isclose, sqrt
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels import files
from kernels.hardware import source_print
from kernels.machine import Machine
from kernels.outcome import row as row_of
from kernels.schemes import BASELINE
from kernels.trial import MANY_CALLS, ONE_CALL_ALONE, Trial, compared_as
from kernels.units import num_text, percent_text, ratio_text
from workbench import machines
from workbench.machines.calibrate_gpu import is_unseen
from workbench.naming import operator_title
from workbench.resources import LAPTOP, data_directory
from workbench.results import recordings
from workbench.results.quiet import is_busy
from workbench.results.rows import Row
from workbench.results.store import Store, same_source
from workbench.simulator.intervals import PROMISED
from workbench.simulator.predict import predict, resolved
from workbench.simulator.price.steps import trivial_seconds

# Bounds: a committed file says how large the errors of each kind of estimate may be. Its numbers only fall.

KIND = files.TextKind("file of bounds", "bounds of errors of estimates", "a TOML file as data/checks/estimates.toml")
ERRORS = ("median", "p90", "weighted")
NAMES = ("machine", "operator", "scheme")


def bounds(path: Path | None = None) -> list[dict[str, Any]]:
    """The `[[bound]]` tables: a kind, and an upper bound of each of its errors."""
    place = path or data_directory() / "checks" / "estimates.toml"
    content = files.toml_of(files.text(place, KIND), place, KIND).get("bound", [])
    for entry in content:
        if set(entry) != {*NAMES, *ERRORS} or not all(entry[name] >= 0 for name in ERRORS):
            raise KIND.unreadable(place, f"a bound has {', '.join(entry)}, and not {', '.join((*NAMES, *ERRORS))}")
    return list(content)


def broken_bounds(kinds: Iterable[Row], known: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """The errors of *kinds* (see `accuracy`) above their bounds in *known*; kinds without a bound break none."""
    bound_of = {tuple(entry[name] for name in NAMES): entry for entry in known}
    for kind in kinds:
        bound = bound_of.get(tuple(kind[name] for name in NAMES), {})
        for error in ERRORS:
            if error in bound and kind[error] > bound[error]:
                yield {**{name: kind[name] for name in NAMES}, "error": error, "is": kind[error], "bound": bound[error]}


def broken_bound_message(broken: Row) -> str:
    """One broken bound as text."""
    error, bound = percent_text(broken["is"]), percent_text(broken["bound"])
    kind = f"{broken['operator']} {broken['scheme']} on {broken['machine']}"
    return f"{kind}: {broken['error']} error {error}, accepted {bound}"


# Terms of an estimate's error: parts of a time, each measured alone and estimated.

PARTS = {"compute": "computation alone", "communication": "communication alone"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One part of a time."""

    name: str
    measured_s: float
    estimated_s: float
    adds: bool
    """Whether the errors of these terms add up to that of the whole trial."""

    @property
    def error_s(self) -> float:
        """Estimated less measured seconds."""
        return self.estimated_s - self.measured_s


def terms(rows: Iterable[Row], whole: Row) -> list[Term]:
    """Terms of the time of *whole*, one of *rows*: its parts alone, the least that they take, the rest, and the whole.

    Parts are from its block: of the same schedule, or the fastest. Parts of the baseline follow each other, so the
    least is their sum; in other schedules it is the longer part. The rest is unhidden time, or the cost of overlap.

    ValueError: a part was not measured in its block.
    """
    block = [row for row in rows if row["block"] == whole["block"]]
    parts = [_term(name, _part(block, whole, part), adds=False) for part, name in PARTS.items()]
    combined, name = (sum, "both parts") if whole["scheme"] == BASELINE else (max, "the longer part")
    least = Term(name=name, measured_s=combined(part.measured_s for part in parts),
                 estimated_s=combined(part.estimated_s for part in parts), adds=True)  # fmt: skip
    itself = _term("the whole trial", whole, adds=False)
    rest = Term(name="the rest", measured_s=_difference(itself.measured_s, least.measured_s),
                estimated_s=_difference(itself.estimated_s, least.estimated_s), adds=True)  # fmt: skip
    return [*parts, least, rest, itself]


def _difference(later_s: float, before_s: float) -> float:
    """*later_s* less *before_s*; 0 if they differ only by rounding."""
    return 0.0 if isclose(later_s, before_s) else later_s - before_s


def _term(name: str, row: Row, *, adds: bool) -> Term:
    return Term(name=name, measured_s=row["measured_s"], estimated_s=row["estimated_s"], adds=adds)


def _part(block: Sequence[Row], whole: Row, part: str) -> Row:
    """The *part* of *whole*'s schedule; if that was not timed the fastest one, preferably of its scheme."""
    alone = [row for row in block if row["part"] == part]
    if not alone:
        raise ValueError(f"{PARTS[part]} was not measured in block {whole['block']}, which has {len(block)} trials. "
                         "Accepted: a trial whose parts were timed in its block.")  # fmt: skip
    return min(alone, key=lambda row: (row["axes"] != whole["axes"], row["scheme"] != whole["scheme"],
                                       row["measured_s"]))  # fmt: skip


# Wrong estimates: how many fresh measurements are outside their estimate's interval, and by how much.

MIN_OUTSIDE = 5
"""Fewer measurements outside their intervals say nothing."""
CERTAIN = 1.96
"""Standard deviations to either side of a 95 % interval."""


def binomial(share: float, count: int) -> tuple[float, float]:
    """The 95 % interval of a *share* of *count* (Wilson, JASA 22, 1927)."""
    over = CERTAIN**2 / count
    middle, half = share + over / 2, CERTAIN * sqrt(share * (1 - share) / count + over / (4 * count))
    return (middle - half) / (1 + over), (middle + half) / (1 + over)


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateError:
    """Measurements of one operator on one machine that are outside their estimates' intervals."""

    machine: str
    backend: str
    operator: str
    outside: int
    count: int
    """Number of fresh measurements with an estimate."""
    ratio: float
    """Measured over estimated time, the median of those outside."""

    def __str__(self) -> str:
        return (
            f"The estimates of {operator_title(self.operator)} on {self.machine} are off: {self.outside} of "
            f"{self.count} measured times lie outside their estimate's interval, and took {ratio_text(self.ratio)} the "
            "estimate (median)."
        )

    @property
    def advice(self) -> str:
        """The command that corrects the estimates."""
        if self.machine == LAPTOP:
            return "`workbench calibrate` fits the machine."
        if self.backend == "cpu":
            return "`workbench calibrate --cluster ADDRESS` fits the machine where its ranks are."
        return f"`workbench calibrate --machine {self.machine}` fits the machine."

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def wrong_estimates(rows: Iterable[Row]) -> list[EstimateError]:
    """The kinds of which more fresh measurements are outside their estimates' intervals than is promised.

    These are at least MIN_OUTSIDE, and so many that chance leaves out fewer: an interval holds PROMISED of the times.
    """
    return wrong_estimates_of_pairs(_fresh_pairs(rows)[0])


def coverage_of_run(rows: Iterable[Row]) -> dict[str, Any] | None:
    """Of a run's fresh measurements, as `validate` has it: the share with an estimate, its median error, and the share
    inside its interval. None where nothing was measured."""
    pairs, count = _fresh_pairs(rows)
    if not count:
        return None
    inside = [estimate["low_s"] <= timed["time_s"] <= estimate["high_s"] for timed, estimate in pairs]
    errors = [abs(estimate["time_s"] / timed["time_s"] - 1) for timed, estimate in pairs]
    return {
        **_shares(count, inside), "inside_interval": fmean(inside) if inside else None,
        "median_absolute_error": median(errors) if errors else None,
    }  # fmt: skip


def _fresh_pairs(rows: Iterable[Row]) -> tuple[list[tuple[Row, Row]], int]:
    """Fresh measurements of *rows* with their estimates, and how many there are, with an estimate or not.

    Known measurements are not fresh. The newest time of a trial counts if it was timed in several blocks. Estimates
    are for many calls per graph, and hold neither for one nor under steady load. What was timed on a busy computer
    says nothing about them.
    """
    estimates: dict[str, Row] = {}
    measured: dict[str, Row] = {}
    for row in rows:
        if row.get("time_s") is None or row.get("key") is None:
            continue
        if row["source"] == "estimated":
            estimates.setdefault(row["key"], row)
        elif row["source"] == "measured" and not is_busy(row.get("others_share")):
            measured[row["key"]] = row
    pairs = [(row, estimates[key]) for key, row in measured.items()
             if key in estimates and compared_as(row.get("protocol"), row.get("backend")) == MANY_CALLS]  # fmt: skip
    return pairs, len(measured)


def wrong_estimates_of_pairs(pairs: Iterable[tuple[Row, Row]]) -> list[EstimateError]:
    """`wrong_estimates` of *pairs*: a measured row and the row of its estimate."""
    ratios: dict[tuple[str, str, str], list[tuple[bool, float]]] = {}
    for timed, estimate in pairs:
        is_outside = not estimate["low_s"] <= timed["time_s"] <= estimate["high_s"]
        group = timed["machine"], timed["backend"], timed["operator"]
        ratios.setdefault(group, []).append((is_outside, timed["time_s"] / estimate["time_s"]))
    wrong = []
    for (machine, backend, operator), each in ratios.items():
        outside = [ratio for is_outside, ratio in each if is_outside]
        if len(outside) >= MIN_OUTSIDE and binomial(len(outside) / len(each), len(each))[0] > 1 - PROMISED:
            wrong.append(
                EstimateError(
                    machine=machine,
                    backend=backend,
                    operator=operator,
                    outside=len(outside),
                    count=len(each),
                    ratio=median(outside),
                )
            )
    return wrong


# Quality of estimates by kind: errors, order, intervals, speed-ups, and the errors of the trivial estimate.

NEAR_BEST = 0.05
"""A good choice takes at most this share longer than the best."""
MIN_CASE = 2
"""The fewest schedules of a problem for an order."""
MIN_SPACE = 80
"""The fewest schedules of a problem that are a space: two H200s measured 115, 108 and 85 of three problems."""
TOP, AS_GOOD = 0.05, 0.01
"""The share of a space that is measured because its estimates are fast, and the tolerance of a best time."""


def table(rows: Iterable[Row]) -> dict[str, Any]:
    """Errors of whole trials among *rows* in all (None without trials) and by kind, and errors of speed-ups."""
    known = whole_trials(rows)
    return {
        "count": len(known), "problems": len(_by(known, lambda row: (row["machine"], *_case(row)))),
        "all": errors(known) if known else None, "accuracy": accuracy(known), "speed_ups": speed_ups(known),
    }  # fmt: skip


def accuracy(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """The errors of whole trials for each machine, operator and scheme."""
    kinds = _by(whole_trials(rows), lambda row: (row["machine"], row["operator"], row["scheme"]))
    return [dict(zip(("machine", "operator", "scheme"), kind, strict=True)) | errors(of_kind)
            for kind, of_kind in sorted(kinds.items())]  # fmt: skip


def errors(rows: Sequence[Row]) -> dict[str, Any]:
    """Statistics of the errors of *rows*, estimated over measured less 1, and of the trivial estimate's errors."""
    signed = np.array([row["error"] for row in rows])
    measured = np.array([row["measured_s"] for row in rows])
    trivial = np.abs(np.array([row["trivial_s"] for row in rows]) / measured - 1)
    return {
        "count": len(rows),
        "median": float(np.median(np.abs(signed))),
        "p90": float(np.quantile(np.abs(signed), 0.9)),
        "weighted": float((np.abs(signed) * measured).sum() / measured.sum()),
        "bias": float(np.median(signed)),
        "rank_correlation": _of_cases(rows, _rank_correlation),
        "best_within_5_percent": _of_cases(rows, _chose_well),
        "inside_interval": fmean(row["low_s"] <= row["measured_s"] <= row["high_s"] for row in rows),
        "half_width": median((row["high_s"] - row["low_s"]) / 2 / row["estimated_s"] for row in rows),
        "trivial_median": float(np.median(trivial)),
        "trivial_p90": float(np.quantile(trivial, 0.9)),
        "trivial_weighted": float((trivial * measured).sum() / measured.sum()),
    }  # fmt: skip


def speed_ups(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Errors of estimated speed-ups: estimated over measured ratio of a scheme's time to the baseline's, less 1.

    The pairs are the fastest measured schedules of one problem and block.
    """
    blocks = _by(whole_trials(rows), lambda row: (row["machine"], *_case(row), row["block"] or row["run"]))
    errors: dict[tuple[str, str], list[float]] = {}
    for block in blocks.values():
        fastest = {scheme: min(of_scheme, key=lambda row: float(row["measured_s"]))
                   for (scheme,), of_scheme in _by(block, lambda row: (row["scheme"],)).items()}  # fmt: skip
        if (base := fastest.pop(BASELINE, None)) is not None:
            for scheme, row in fastest.items():
                estimated, measured = (row[name] / base[name] for name in ("estimated_s", "measured_s"))
                errors.setdefault((row["machine"], scheme), []).append(estimated / measured - 1)
    return [
        {
            "machine": machine, "scheme": scheme, "pairs": len(signed), "median": median(signed),
            "p90": float(np.quantile(np.abs(signed), 0.9)),
        }
        for (machine, scheme), signed in sorted(errors.items())
    ]  # fmt: skip


def spaces(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Whether the TOP schedules by estimate include a best one, for each problem with MIN_SPACE measured schedules.

    A schedule that was measured several times counts once, with its median time.
    """
    cases = _by(whole_trials(rows), lambda row: (row["machine"], *_case(row)))
    large_spaces = []
    for (machine, *_), of_case in sorted(cases.items(), key=str):
        schedules = list(_by(of_case, lambda row: (row["scheme"], str(sorted(row["axes"].items())))).values())
        if len(schedules) < MIN_SPACE:
            continue
        measured, estimated = (np.array([median(row[name] for row in each) for each in schedules])
                               for name in ("measured_s", "estimated_s"))  # fmt: skip
        top = np.argsort(estimated, kind="stable")[: ceil(TOP * len(schedules))]
        over_best = float(measured[top].min() / measured.min())
        errors = np.abs(estimated / measured - 1)
        large_spaces.append({
            "machine": machine, **{name: of_case[0][name] for name in ("operator", "shape", "dtype", "world")},
            "schedules": len(schedules), "top": len(top), "best_s": float(measured.min()), "over_best": over_best,
            "within_1_percent": over_best <= 1 + AS_GOOD, "median": float(np.median(errors)),
            "p90": float(np.quantile(errors, 0.9)),
        })  # fmt: skip
    return large_spaces


def whole_trials(rows: Iterable[Row]) -> list[Row]:
    """The rows of whole trials, between which a person chooses."""
    return [row for row in rows if row["part"] == "whole"]


def _by(rows: Iterable[Row], kind: Callable[[Row], tuple[Any, ...]]) -> dict[tuple[Any, ...], list[Row]]:
    kinds: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        kinds.setdefault(kind(row), []).append(row)
    return kinds


def _case(row: Row) -> tuple[Any, ...]:
    return row["operator"], tuple(sorted(row["shape"].items())), row["dtype"], row["world"], str(row["fabric"])


def _of_cases(rows: Sequence[Row], number: Callable[[Sequence[Row]], float | None]) -> float | None:
    """The mean of *number* over problems of which several schedules were measured; None where there is none."""
    cases = [case for case in _by(rows, _case).values() if len(case) >= MIN_CASE]
    numbers = [value for case in cases if (value := number(case)) is not None]
    return fmean(numbers) if numbers else None


def _rank_correlation(case: Sequence[Row]) -> float | None:
    """Spearman's correlation of both orders, from -1 to 1; equal times share their ranks."""
    estimated, measured = (_ranks([row[name] for row in case]) for name in ("estimated_s", "measured_s"))
    if min(np.ptp(estimated), np.ptp(measured)) == 0:
        return None
    return float(np.corrcoef(estimated, measured)[0, 1])


def _ranks(values: Sequence[float]) -> NDArray[np.float64]:
    _, which, counts = np.unique(np.array(values), return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray((ends - (counts - 1) / 2)[which])


def _chose_well(case: Sequence[Row]) -> float:
    """1 if the schedule with the fastest estimate takes at most NEAR_BEST longer than the fastest, else 0."""
    chosen = min(case, key=lambda row: float(row["estimated_s"]))
    return float(chosen["measured_s"] <= (1 + NEAR_BEST) * min(row["measured_s"] for row in case))


# Validation of runs and recordings by today's estimates.

CLOSE = 0.15
"""A close estimate is within this share of the measured time."""

DISTURBED = "Others used the cores while they were timed."
ONE_CALL = "They time one call per graph, and estimates are of calls in a row."
UNDER_STEADY_LOAD = "They time calls under steady load, and this check is of bursts."
NOT_CONTROLLED = "Their captured graphs do not show what a control of the schedule asks for."


def validate(store: Store, runs: list[str]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """One row per measured trial of *runs* (its newest measurement), and a summary of the errors.

    What was timed on a busy computer is no evidence, and only counted.
    """
    newest: dict[str, tuple[dict[str, Any], Any]] = {}
    disturbed: set[str] = set()
    before: dict[str, float] = {}
    for run in runs:
        trials = store.trials(run)
        for row in store.rows(run):
            if row["outcome"] == "estimate":
                before[row["key"]] = row["time_s"]
            elif row["outcome"] != "measurement" or row["source"] != "measured":
                continue
            elif is_busy(row.get("others_share")):
                disturbed.add(row["key"])
            else:
                newest[row["key"]] = ({**row, "predicted_s": before.get(row["key"])}, trials[row["key"]])
    rows, without = _estimated(newest.values(), None, Counter({DISTURBED: len(disturbed - newest.keys())}))
    off = [each.to_json() for each in wrong_estimates_today(rows)]
    return rows, {**_summary(rows), **_coverage(rows, without), "off": off}


def wrong_estimates_today(rows: Iterable[Row]) -> list[EstimateError]:
    """The wrong ones of today's estimates in the *rows* of `validate`; measurements of older kernels do not count."""
    fresh = [row for row in rows if row["source_print"] in same_source(source_print(row["backend"]))]
    return wrong_estimates_of_pairs(
        ({**row, "time_s": row["measured_s"]}, {**row, "time_s": row["estimated_s"]}) for row in fresh
    )


def validate_recordings(
    names: Iterable[str], machine: Machine | None = None
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """`validate` of recordings, by estimates for *machine*, or for the one that each trial names.

    Bounds are for estimates of the recorded machine: estimates for another one break none.
    """
    return validate_recorded({name: recordings.recordings(name) for name in names}, machine)


def validate_recorded(
    by_name: Mapping[str, Sequence[recordings.Recorded]], machine: Machine | None = None
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """`validate_recordings` of recordings that were read, by their names."""
    if empty := [name for name, trials in by_name.items() if not trials]:
        raise ValueError(f"{empty[0]} has 0 recorded trials. Accepted: a file that `workbench export RUN --to "
                         "recording` writes, with a line for each.")  # fmt: skip
    recorded = [one.measurement for trials in by_name.values() for one in trials]
    controlled = [one for one in recorded if not one.unmet]
    reasons = Counter({NOT_CONTROLLED: len(recorded) - len(controlled)})
    rows, without = _estimated([(row_of(one), one.trial) for one in controlled], machine, reasons)
    return rows, {**_summary(rows), **_coverage(rows, without)}


def by_kind(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Ratios of estimated to measured times by operator, scheme and part: count, median, extremes."""
    kinds: dict[tuple[str, ...], list[float]] = {}
    for row in rows:
        how = str(row["axes"].get("collective", "")) if row["scheme"] == BASELINE else ""
        kinds.setdefault((row["operator"], row["scheme"], how, row["part"]), []).append(1 + row["error"])
    names = ("operator", "scheme", "collective", "part")
    return [{**dict(zip(names, kind, strict=True)), "count": len(ratios), "ratio": median(ratios),
             "lowest": min(ratios), "highest": max(ratios)} for kind, ratios in sorted(kinds.items())]  # fmt: skip


def _estimated(
    measured: Iterable[tuple[Row, Trial]], machine: Machine | None, reasons: Counter[str]
) -> tuple[list[dict[str, Any]], Counter[str]]:
    """Rows with today's estimates, and the number of trials without one by reason.

    *reasons* already counts trials that were left out before.
    """
    rows = []
    for row, trial in measured:
        if trial.compared_as != MANY_CALLS:
            reasons[ONE_CALL if trial.compared_as == ONE_CALL_ALONE else UNDER_STEADY_LOAD] += 1
            continue
        try:
            by = machine or machines.machine(trial.machine)
            estimate = predict(trial, by, with_spans=False)
        except ValueError as reason:  # the machine is unknown, damaged, or cannot run the trial
            reasons[str(reason)] += 1
            continue
        keys = ("key", "run", "operator", "shape", "dtype", "world", "scheme", "axes", "part", "backend", "machine",
                "fabric", "block", "source_print")  # fmt: skip
        rows.append({
            **{key: row[key] for key in keys}, "measured_s": row["time_s"], "estimated_s": estimate.time_s,
            "low_s": estimate.low_s, "high_s": estimate.high_s, "calibrated": estimate.calibrated,
            "estimated_for": by.name,
            "error": estimate.time_s / row["time_s"] - 1, "predicted_s": row.get("predicted_s"),
            "trivial_s": trivial_seconds(trial.problem, trial.schedule.scheme, trial.part, by,
                                         resolved(trial.fabric, trial.problem, by)),
            "held_out": is_unseen(trial.problem, by),
        })  # fmt: skip
    return rows, +reasons


def _coverage(rows: Sequence[Row], without: Mapping[str, int]) -> dict[str, Any]:
    """How many trials there are, which share of them was estimated, and which share of these lies in its interval.

    What was timed among others, or did not do what it says, is no question to the estimates, and not counted.
    """
    count = len(rows) + sum(some for reason, some in without.items() if reason not in (DISTURBED, NOT_CONTROLLED))
    inside = [row["low_s"] <= row["measured_s"] <= row["high_s"] for row in rows]
    return {
        **_shares(count, inside),
        "without_estimate": [{"count": some, "message": message} for message, some in without.items()],
    }


def _shares(count: int, inside: Sequence[bool]) -> dict[str, Any]:
    """Coverage of *count* trials; *inside*: whether each estimated one lies in its interval."""
    return {
        "asked": count, "estimated_share": len(inside) / count if count else None, "promised_inside": PROMISED,
        "inside_95": binomial(fmean(inside), len(inside)) if inside else None,
    }  # fmt: skip


def coverage_text(summary: Mapping[str, Any]) -> str:
    """Coverage in two sentences: what was estimated at all, and what lies inside."""
    if summary["inside_95"] is None:
        return f"None of {num_text(summary['asked'], 'trial')} could be estimated."
    least, most = summary["inside_95"]
    estimated, inside = (percent_text(summary[name]) for name in ("estimated_share", "inside_interval"))
    return (f"Of {num_text(summary['asked'], 'trial')} {estimated} could be estimated at all. Of their times {inside} "
            f"lie inside their interval (95 % certain: {percent_text(least)} to {percent_text(most)}), "
            f"{percent_text(summary['promised_inside'])} are promised.")  # fmt: skip


def _summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    if not rows:
        return {"count": 0}
    errors = [abs(row["error"]) for row in rows]
    inside = sum(row["low_s"] <= row["measured_s"] <= row["high_s"] for row in rows)
    worst = max(rows, key=lambda row: abs(row["error"]))
    same_machine = [row for row in rows if row["estimated_for"] == row["machine"]]
    return {
        "count": len(rows),
        "whole": table(rows),
        "held_out": table(row for row in rows if row["held_out"]),
        "spaces": spaces(rows),
        "broken_bounds": list(broken_bounds(accuracy(same_machine), bounds())),
        "median_absolute_error": median(errors),
        "median_error": median(row["error"] for row in rows),
        "within_15_percent": sum(error <= CLOSE for error in errors) / len(rows),
        "inside_interval": inside / len(rows),
        "worst_error": worst["error"],
        "worst_key": worst["key"],
        "calibrated": all(row["calibrated"] for row in rows),
    }
