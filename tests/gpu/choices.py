"""How well schedules are chosen: candidates on recorded problems, by a protocol that was committed before the rules.

`python -m tests.gpu.choices` writes kernels/schemes/auto.json, the table of `auto`, and `python -m tests.gpu.documents`
docs/results/choice.md. data/checks/choice_protocol.toml has the groups of problems and the measures.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from functools import cache, cached_property
from itertools import product
from math import ceil
from statistics import fmean, median
from typing import Any

from kernels import files, operators
from kernels.fabric import Fabric
from kernels.hardware import source_print, versions
from kernels.machine import Machine
from kernels.operators import OPERATORS
from kernels.ops.auto import decided
from kernels.problem import Problem
from kernels.schedule import Refusal, Schedule
from kernels.schemes import BASELINE, auto, axis_rules
from kernels.schemes.auto import CANDIDATES, candidate_axes, legal_schedule
from kernels.trial import Trial, protocol
from workbench.analysis import under_load
from workbench.experiment.advice import advice, signature
from workbench.machines import shipped_machine
from workbench.machines.calibrate_gpu import problem_text
from workbench.resources import data_directory
from workbench.results import recordings
from workbench.simulator.predict import PREDICTOR, UNCALIBRATED, predict

NVLINK = Fabric(kind="nvlink")


@cache
def rules_of_study() -> Mapping[str, Any]:
    """The committed protocol."""
    return tomllib.loads((data_directory() / "checks" / "choice_protocol.toml").read_text())


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU that the table knows."""

    model: str
    """Its driver's name begins so."""
    machines: Mapping[int, str]
    """Machine file of each world."""


GPUS = (
    Gpu("NVIDIA H200", {2: "h200_nvl2", 4: "h200_nvl4", 8: "h200_nvl8"}),
    Gpu("NVIDIA H100", {2: "h100_nvl2"}),
)  # fmt: skip
"""The protocol's first, then those that came later."""

# Units: recorded problems with the times of their candidates.

GROUPS = ("rules", "thresholds", "by_shape", "by_size", "by_world", "by_card")
HELD_OUT = GROUPS[2:]


@dataclass(frozen=True, eq=False)
class Unit:
    """One problem of one recording and one way of calling."""

    recording: str
    problem: Problem
    machine: str
    one_call: bool
    seconds: Mapping[Schedule, float]
    """Every timed schedule, the median over blocks."""
    date: str
    """When it was measured."""
    noise: float
    """The largest spread of one schedule's time over blocks: largest over smallest, minus 1; 0 without repetition."""

    @property
    def best_s(self) -> float:
        return min(self.seconds.values())

    @property
    def is_drawn(self) -> bool:
        """Whether its schedules were drawn: they have other tiles than the candidates that they are nearest to."""
        return "_space" in self.recording

    @property
    def sequential_s(self) -> float:
        """The best sequential schedule; infinite where none was timed."""
        return min((taken for each, taken in self.seconds.items() if each.scheme == BASELINE), default=float("inf"))

    @property
    def gpu(self) -> str:
        """The GPU by its name in the table."""
        return next(gpu.model for gpu in GPUS if self.machine in gpu.machines.values())

    @property
    def group(self) -> str:
        """The group of the protocol; `by_card`, which it does not know, for recordings of a GPU that came later."""
        stated, of = rules_of_study(), shipped_machine(self.machine)
        if self.gpu != GPUS[0].model:
            return "by_card"
        if self.problem.world != 2:
            return "by_world"
        if not stated["small_s"] <= floor_s(self.problem, of) <= stated["large_s"]:
            return "by_size"
        text = " ".join([self.problem.operator, *(f"{key}={size}" for key, size in self.problem.shape)])
        quarter = int(hashlib.sha256(text.encode()).hexdigest()[:8], 16) % 4
        return {3: "by_shape", 2: "thresholds"}.get(quarter, "rules")

    @cached_property
    def timed(self) -> dict[str, float]:
        """By candidate the time of the timed schedule that is nearest to it."""
        wanted = {
            name: legal_schedule(name, self.problem, shipped_machine(self.machine), NVLINK) for name in CANDIDATES
        }
        found = {name: self._nearest(name, schedule) for name, schedule in wanted.items() if schedule is not None}
        return {name: taken for name, taken in found.items() if taken is not None}

    def _nearest(self, name: str, wanted: Schedule) -> float | None:
        """The time of the schedule of candidate *name* that differs from *wanted* in the fewest axes, the slowest of
        several."""
        axes, here = candidate_axes(name, self.problem.operator), dict(wanted.axes)
        kind = {**axes, axis_rules.KERNEL: wanted.get(axis_rules.KERNEL)}

        def all_axes(each: Schedule) -> Mapping[str, Any]:
            return axis_rules.all_axes(self.problem, each, "triton")

        same_kind = [each for each in self.seconds if each.scheme == wanted.scheme
                     and all(each.get(axis) == value for axis, value in kind.items())]  # fmt: skip
        if not same_kind:
            return None

        def differing(each: Schedule) -> int:
            then = all_axes(each)
            return sum(then.get(axis, value) != value for axis, value in here.items())

        fewest = min(map(differing, same_kind))
        return max(self.seconds[each] for each in same_kind if differing(each) == fewest)


def floor_s(problem: Problem, machine: Machine) -> float:
    """The least time of one rank's computation: FLOP over the peak, or bytes over the memory's bandwidth."""
    known, device = OPERATORS[problem.operator], machine.device
    peak = device.matrix_flops_per_second.get(problem.dtype, float("inf"))
    return max(known.flops(problem) / peak, known.memory_bytes(problem) / device.memory_bytes_per_second)


@cache
def units() -> tuple[Unit, ...]:
    """All units of the shipped recordings of GPUs with two kinds of candidates or more."""
    every = (unit for name, entries in recordings.shipped().items() for unit in _units_of(name, entries))
    return tuple(unit for unit in every if len(unit.timed) > 1)


def _units_of(name: str, entries: Sequence[Any]) -> Iterator[Unit]:
    times: dict[tuple[Problem, str, bool], dict[Schedule, list[float]]] = defaultdict(lambda: defaultdict(list))
    for entry in entries:
        trial, measured = entry.measurement.trial, entry.measurement
        if (
            trial.backend == "triton"
            and trial.part == "whole"
            and measured.correct
            and trial.schedule.scheme != "concurrent"
            and trial.world > 1
            and not trial.protocol.is_steady
            and not name.endswith(under_load.RECORDING)  # few samples, in blocks of which many reach the power cap
        ):
            times[trial.problem, trial.machine, trial.is_one_call][trial.schedule].append(measured.time_s)
    overlaps = any(each.scheme != BASELINE for by_schedule in times.values() for each in by_schedule)
    for (problem, machine, one_call), by_schedule in times.items():
        if overlaps and all(each.scheme == BASELINE for each in by_schedule):
            continue  # its sitting ended before anything else was timed: it says nothing of the choice
        spreads = [max(each) / min(each) - 1 for each in by_schedule.values()]
        yield Unit(name, problem, machine, one_call, {key: median(each) for key, each in by_schedule.items()},
                   max(entry.provenance["date"] for entry in entries), max(spreads, default=0.0))  # fmt: skip


# Estimates of candidates.


@cache
def estimated(problem: Problem, machine_name: str) -> Mapping[str, float]:
    """By candidate the simulator's estimate, seconds; candidates that are not legal are left out."""
    machine = shipped_machine(machine_name)
    legal = {name: legal_schedule(name, problem, machine, NVLINK) for name in CANDIDATES}
    return {name: _predicted(problem, schedule, machine) for name, schedule in legal.items() if schedule is not None}


def _predicted(problem: Problem, schedule: Schedule, machine: Machine) -> float:
    trial = Trial(problem=problem, schedule=schedule, backend=machine.backend, machine=machine.name, fabric=NVLINK,
                  protocol=protocol("default"))  # fmt: skip
    return predict(trial, machine, with_spans=False).time_s


# The table of `auto`: a grid of estimates, and what was recorded.

ALONE = {"gemm": auto.STORES, "gemv": "fused", "gather": "fused"}
"""What a rank alone runs, by work: cuBLAS for GEMMs, by a sequential schedule that is legal without peers (ours takes
1.07 of its time in the median, docs/kernels.md), our
kernels for the others."""
_POWERS = {"m": (64, 16384), "n": (1024, 65536), "k": (512, 16384)}
LEAST_KINDS = 3
"""A recorded problem is a point of the table where it has so many candidates, one that spins among them."""
RECORDED_SPREAD = (0.98, 1.02)
"""Of times of one block; docs/results/choice.md has the noise of repeated blocks."""


Content = dict[str, Any]
"""The table as a JSON document."""


def made_table() -> Content:
    """The table of today's estimates and recordings."""
    spread: dict[str, Sequence[float]] = {}
    machines: dict[str, str] = {}
    for gpu in GPUS:
        for world, name in gpu.machines.items():
            machine = shipped_machine(name)
            machines[name] = machine.digest
            spread[auto.spread_key(gpu.model, auto.ESTIMATED, world)] = machine.spread or UNCALIBRATED
            spread[auto.spread_key(gpu.model, auto.RECORDED, world)] = RECORDED_SPREAD
    grid: Content = {
        "made": str(date.today()), "kernels": source_print("triton"), "predictor": PREDICTOR, "versions": versions(),
        "machines": machines, "spread": spread, "alone": ALONE, "points": {gpu.model: _grid(gpu) for gpu in GPUS},
    }  # fmt: skip
    return with_recorded(grid)


def _grid(gpu: Gpu) -> dict[str, list[list[Any]]]:
    """The estimated points of *gpu*, by what they are looked up in."""
    known: dict[str, list[list[Any]]] = defaultdict(list)
    for problem in grid_problems(gpu):
        seconds = estimated(problem, gpu.machines[problem.world])
        known[auto.key_of(problem)].append(row(problem, auto.ESTIMATED, seconds))
    return dict(sorted(known.items()))


def with_recorded(content: Content, without: Collection[str] = ()) -> Content:
    """*content* with the recorded points of all groups but *without*, in place of those that it has.

    Of several recordings of a problem that one counts which timed the most candidates, and of these the newest.
    """
    rows: dict[str, dict[tuple[str, tuple[int, ...]], list[Any]]] = {gpu.model: {} for gpu in GPUS}
    for unit in sorted(units(), key=lambda unit: (len(unit.timed), unit.date)):
        if unit.group not in without and not unit.one_call and not unit.is_drawn and _is_point(unit):
            key = auto.key_of(unit.problem), auto.sizes_of(unit.problem)
            rows[unit.gpu][key] = row(unit.problem, auto.RECORDED, unit.timed)
    points = {
        model: {key: [each for each in grid if auto.ESTIMATED[0] in each]
                + [each for (of_key, _), each in rows[model].items() if of_key == key] for key, grid in known.items()}
        for model, known in content["points"].items()
    }  # fmt: skip
    return {**content, "points": points}


def _is_point(unit: Unit) -> bool:
    timed = unit.timed
    return len(timed) >= LEAST_KINDS and any(CANDIDATES[name].spins for name in timed)


def row(problem: Problem, source: str, seconds: Mapping[str, float]) -> list[Any]:
    tenths = [round(seconds[name] * 1e7) if name in seconds else -1 for name in CANDIDATES]
    return [*auto.sizes_of(problem), source[0], *tenths]


def grid_problems(gpu: Gpu) -> Iterator[Problem]:
    """The problems of the grid: powers of two of every size, for each operator and world."""
    for name, known in OPERATORS.items():
        for world in gpu.machines:
            for shape in _shapes(known.work):
                dtype = "float32" if known.work == "gather" else "bfloat16"
                with suppress(Refusal):
                    yield operators.problem(name, shape, dtype=dtype, world=world)


def _shapes(work: str) -> Iterator[dict[str, int]]:
    if work == "gather":
        sizes = {"tables_per_rank": (2, 8, 32), "rows": (100_000,), "dim": (64, 128, 256),
                 "batch": (512, 2048, 8192, 32768), "pooling": (1, 8, 64)}  # fmt: skip
    elif work == "gemv":
        sizes = {"n": _powers("n"), "k": _powers("k"), "tokens": (1, 2, 4, 8)}
    else:
        sizes = {name: _powers(name) for name in _POWERS}
    for values in product(*sizes.values()):
        yield dict(zip(sizes, values, strict=True))


def _powers(name: str) -> tuple[int, ...]:
    least, most = _POWERS[name]
    return tuple(least << power for power in range((most // least).bit_length()))


# Choosers, each of which names a candidate of those offered.

Chooser = Callable[[Unit, Mapping[str, float]], str]
"""Takes a unit and the times of its candidates, which only a chooser that measures may read."""


def by_table(table: auto.Table) -> Chooser:
    """The table alone."""
    return lambda unit, timed: _choice(unit, timed, table).name


def by_measurement(table: auto.Table) -> Chooser:
    """The table, and where it cannot tell the fastest of the candidates that it would measure."""

    def choose(unit: Unit, timed: Mapping[str, float]) -> str:
        choice = _choice(unit, timed, table)
        return min(choice.close, key=lambda name: timed[name]) if choice.close else choice.name

    return choose


def _choice(unit: Unit, timed: Mapping[str, float], table: auto.Table) -> auto.Choice:
    return auto.choose(unit.problem, unit.gpu, table, list(timed), table.kernels)


def by_estimates(unit: Unit, timed: Mapping[str, float]) -> str:
    """The shortest estimate."""
    known = estimated(unit.problem, unit.machine)
    return min(timed, key=lambda name: known.get(name, float("inf")))


def by_rule(unit: Unit, timed: Mapping[str, float]) -> str:
    """The rule in words."""
    machine = shipped_machine(unit.machine)
    kinds = advice(unit.problem, signature(unit.problem, machine, NVLINK)).kinds
    return next((name for name in kinds if name in timed), next(iter(timed)))


def always(name: str) -> Chooser:
    """One candidate, or where it was not timed the first that was."""
    return lambda unit, timed: name if name in timed else next(iter(timed))


# The study.


@dataclass(frozen=True, slots=True)
class Score:
    """How well one chooser did on the units of one group; see the protocol for each measure."""

    units: int
    right: float
    mean: float
    p90: float
    worst: float
    loss: float
    told_slower: float
    """Where it chooses what is not sequential: the most by which the best sequential of the unit was faster."""


@dataclass(frozen=True, slots=True)
class Judged:
    """One choice on one unit."""

    unit: Unit
    name: str
    time_s: float

    @property
    def regret(self) -> float:
        return self.time_s / self.unit.best_s - 1

    @property
    def loss(self) -> float:
        return self.time_s / self.unit.sequential_s - 1


def judged(group: str, chooser: Chooser) -> list[Judged]:
    """The choices of *chooser* among the timed candidates of each unit of *group*."""
    choices = []
    for unit in units():
        if unit.group == group:
            timed = unit.timed
            name = chooser(unit, timed)
            choices.append(Judged(unit, name, timed[name]))
    return choices


def score(choices: Sequence[Judged]) -> Score:
    """The measures of the protocol."""
    noise = rules_of_study()["noise"]
    wrong = [each.loss for each in choices if each.regret > noise]
    overlapped = [each.loss for each in choices if CANDIDATES[each.name].scheme != BASELINE]
    return Score(len(choices), *regret_measures([each.regret for each in choices]), max(wrong, default=0.0),
                 max(overlapped, default=0.0))  # fmt: skip


def regret_measures(regrets: Sequence[float]) -> tuple[float, float, float, float]:
    """The share of *regrets* within the protocol's noise, their mean, 90th percentile and largest."""
    ordered, noise = sorted(regrets), rules_of_study()["noise"]
    right = sum(each <= noise for each in ordered) / len(ordered)
    return right, fmean(ordered), ordered[ceil(0.9 * len(ordered)) - 1], ordered[-1]


# The document's tables.

CHOOSERS = ("table, then measured where it cannot tell", "table alone", "estimates alone", "rule in words alone",
            "always fused", "always our stores", "always NCCL")  # fmt: skip
WORST = 5


def choosers(table: auto.Table) -> dict[str, Chooser]:
    """By the name that the document has for each."""
    known = (by_measurement(table), by_table(table), by_estimates, by_rule, always("fused"), always(auto.STORES),
             always("library"))  # fmt: skip
    return dict(zip(CHOOSERS, known, strict=True))


def study_table() -> auto.Table:
    """The committed table without recordings of the held-out groups: the grid of estimates is the same."""
    return auto.Table.of(with_recorded(json.loads(auto.PLACE.read_text()), HELD_OUT))


@cache
def scores_text() -> str:
    """A row for each chooser and group."""
    known = choosers(study_table())
    heads = ("problems", "chooser", "of", "right", "mean regret", "p90", "worst", "loss when wrong",
             "slower than sequential")  # fmt: skip
    rows = []
    for group in (*HELD_OUT, "thresholds", "rules"):
        for name, chooser in known.items():
            of = score(judged(group, chooser))
            shares = (of.right, of.mean, of.p90, of.worst, max(of.loss, 0.0), max(of.told_slower, 0.0))
            rows.append((group, name, str(of.units), *map(_percent, shares)))
    return table_text(heads, rows)


@cache
def facts_text() -> str:
    """Coverage, and the noise of repeated blocks."""
    noise = sorted(unit.noise for unit in units() if unit.noise > 0)
    fitted = {name: set(shipped_machine(name).fitted_to) for gpu in GPUS for name in gpu.machines.values()}
    rows = []
    for group in GROUPS:
        of = [unit for unit in units() if unit.group == group]
        legal = [set(estimated(unit.problem, unit.machine)) for unit in of]
        timed = [set(unit.timed) for unit in of]
        covered = sum(len(one & two) for one, two in zip(legal, timed, strict=True)) / sum(map(len, legal))
        wanted = [by_estimates(unit, dict.fromkeys(names, 0.0)) for unit, names in zip(of, legal, strict=True)]
        was_timed = sum(name in names for name, names in zip(wanted, timed, strict=True)) / len(of)
        seen = sum(problem_text(unit.problem) in fitted[unit.machine] for unit in of) / len(of)
        rows.append((group, str(len(of)), _percent(covered), _percent(was_timed), _percent(seen)))
    heads = ("problems", "units", "candidates timed", "best estimate timed", "prices were fitted to")
    spread = f"{_percent(median(noise))} in the median, {_percent(noise[-1])} at most, of {len(noise)} problems"
    return f"{table_text(heads, rows)}\nA schedule's times in repeated blocks of one run differ by {spread}.\n\n"


@cache
def worst_text() -> str:
    """The largest regrets of the first chooser in the held-out groups."""
    chooser = next(iter(choosers(study_table()).values()))
    every = [each for group in HELD_OUT for each in judged(group, chooser)]
    worst = sorted(every, key=lambda each: -each.regret)[:WORST]
    rows = [(problem_text(each.unit.problem), each.name, f"{1e6 * each.time_s:.1f}", str(_best(each.unit)),
             f"{1e6 * each.unit.best_s:.1f}", _percent(each.regret)) for each in worst]  # fmt: skip
    return table_text(("problem", "chosen", "µs", "best timed", "µs", "regret"), rows)


def _best(unit: Unit) -> Schedule:
    return min(unit.seconds, key=lambda each: unit.seconds[each])


def _percent(share: float) -> str:
    return f"{share:.1%}"


def table_text(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    ruled = [heads, ["---"] * len(heads), *rows]
    return "\n\n" + "\n".join(f"| {' | '.join(each)} |" for each in ruled) + "\n\n"


def lines(content: Content) -> str:
    """*content* as JSON with a point in each line."""
    head = json.dumps({name: value for name, value in content.items() if name != "points"}, indent=1)
    points = ",\n".join(f"{json.dumps(model)}: {{\n{_of_gpu(known)}\n}}" for model, known in content["points"].items())
    return f'{head[:-2]},\n "points": {{\n{points}\n}}\n}}\n'


def _of_gpu(points: Mapping[str, list[list[Any]]]) -> str:
    return ",\n".join(
        f"{json.dumps(key)}: [\n" + ",\n".join(json.dumps(each, separators=(",", ":")) for each in rows) + "\n]"
        for key, rows in points.items()
    )


# Candidates timed twice on GPUs: the first times choose, the second ones judge.

FRESH = "chosen_h100.json"
"""What `python -m tests.gpu.chosen` wrote, in data/checks."""


@cache
def fresh_text() -> str:
    """How good choices at set-up are, by times of a set-up of their own, beside every fixed choice."""
    rows = json.loads((data_directory() / "checks" / FRESH).read_text())["rows"]
    texts = {row["schedules"][name]: name for row in rows for name in row["seconds"]}
    fixed = [name for name in CANDIDATES if any(name in row["again"] for row in rows)]
    choosers: dict[str, Callable[[Mapping[str, Any]], str]] = {
        "measured at set-up": lambda row: texts[decided({row["schedules"][name]: taken for name, taken
                                                         in row["seconds"].items()})],
        "the best sequential, had one known": lambda row: min(
            (name for name in row["again"] if not CANDIDATES[name].spins), key=lambda name: row["again"][name]),
        **{f"always {name}": lambda row, name=name: name if name in row["again"] else "library" for name in fixed},
    }  # fmt: skip
    lines = []
    for called, chooser in choosers.items():
        measures = regret_measures([row["again"][chooser(row)] / min(row["again"].values()) - 1 for row in rows])
        lines.append((called, str(len(rows)), *map(_percent, measures)))
    return table_text(("chooser", "problems", "right", "mean regret", "p90", "worst"), lines)


if __name__ == "__main__":
    files.write(auto.PLACE, lines(made_table()))
    print(f"written: {auto.PLACE.name}, {auto.PLACE.stat().st_size // 1024} KiB")
