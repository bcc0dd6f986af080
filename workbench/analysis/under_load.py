"""What steady load leaves of overlap's gain: estimated, and then measured.

`python -m workbench.analysis.under_load [MACHINE ..]` prints the tables of docs/results/steady.md. A schedule that
communicates while it does not compute draws less meanwhile, and that pays for a faster clock
(`simulator/price/power.py`). Overlap takes that rest away.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import median

from kernels.backends.capabilities import MeasuringRanks
from kernels.fabric import parse
from kernels.operators import problem
from kernels.outcome import BLOCK_KIND, CHOOSING, Estimate, Measurement
from kernels.problem import Problem
from kernels.regime import UNKNOWN
from kernels.schemes import BASELINE, SCHEMES
from kernels.trial import PROTOCOLS
from workbench.analysis.power import DTYPE, card
from workbench.experiment.recommend import leaders
from workbench.machines import shipped_machine
from workbench.results import recordings
from workbench.simulator.predict import loaded_work
from workbench.simulator.price.power import PowerModel, Work, overlaps_by_itself

LINK, WORLD = "nvlink", 2
RECORDING = "_regimes"
"""End of the name of a recording of SHAPES in both protocols, after a machine's."""
ROUNDED = 0.005
"""Ratios are compared as they are shown, with two digits."""
MACHINES = ("h100_nvl2", "h200_nvl2")
SHAPES = (
    ("gemm_all_to_all", {"m": 8192, "n": 4096, "k": 1792}),
    ("gemm_all_to_all", {"m": 16384, "n": 4096, "k": 3584}),
    ("gemm_all_to_all", {"m": 4096, "n": 4096, "k": 14336}),
    ("all_gather_gemm", {"m": 2048, "n": 7168, "k": 8192}),
    ("all_gather_gemm", {"m": 8192, "n": 7168, "k": 8192}),
    ("all_to_all_gemm", {"m": 16384, "n": 1024, "k": 5120}),
    ("all_to_all_gemm", {"m": 8192, "n": 14336, "k": 4096}),
    ("gemm_reduce_scatter", {"m": 8192, "n": 8192, "k": 7168}),
    ("gemm_all_reduce", {"m": 8192, "n": 8192, "k": 7168}),
)
"""A long GEMM of each operator of docs/results, and four more; one (16384 x 1024 x 5120) is from pieces.md."""
ENERGY_ERROR = 0.02
"""How far the energy of a FLOP may be off, for each schedule by itself. Six of the seven longest computations that the
model was held to are within 1.2 %, one is off by 5.2 % (docs/simulator.md)."""
GAINS = 0.98
"""A ratio in bursts below it is a gain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One scheme against sequential in both regimes. Times are in seconds, ratios scheme over sequential."""

    operator: str
    shape: Mapping[str, int]
    scheme: str
    in_torch: bool
    """Whether the baseline is an operator of torch that overlaps by itself."""
    sequential: Work
    overlapped: Work
    burst: float
    """The ratio in bursts."""
    steady: tuple[float, float, float]
    """The ratio under steady load: least, middle, most over what is not known (`PowerModel.draws`, ENERGY_ERROR)."""
    clocks: tuple[float, float]
    """SM clocks of sequential and of the scheme, as shares of the highest one."""

    @property
    def change(self) -> tuple[float, float]:
        """By what the estimated ratio of bursts is multiplied, least and most."""
        low, _, high = self.steady
        return low / self.burst, high / self.burst


def compared(operator: str, shape: Mapping[str, int], machine_name: str) -> Iterator[Comparison]:
    """The best schedule of each overlapping scheme by estimates of bursts, against the best sequential one."""
    machine, model, link = shipped_machine(machine_name), card(machine_name), parse(LINK)
    of = problem(operator, dict(shape), world=WORLD, dtype=DTYPE)
    best = {scheme: estimates[0] for scheme, estimates in
            leaders(of, MeasuringRanks(machine, link), tuple(SCHEMES), {}, PROTOCOLS["default"]).items()}  # fmt: skip
    baseline = best.pop(BASELINE)

    def work(estimate: Estimate) -> Work:
        return loaded_work(estimate.trial, machine, estimate.time_s, model)

    sequential = work(baseline)
    for scheme, estimate in best.items():
        overlapped = work(estimate)
        yield Comparison(
            operator=operator, shape=shape, scheme=scheme, sequential=sequential, overlapped=overlapped,
            in_torch=overlaps_by_itself(baseline.trial.schedule),
            burst=estimate.time_s / baseline.time_s, steady=_ratios(model, overlapped, sequential),
            clocks=(model.clock(sequential), model.clock(overlapped)),
        )  # fmt: skip


def _ratios(model: PowerModel, one: Work, other: Work) -> tuple[float, float, float]:
    errors = (1 - ENERGY_ERROR, 1 + ENERGY_ERROR)
    middle, *corners = model.draws()
    reached = [model.seconds(one.at(error), draw) / model.seconds(other.at(its), draw)
               for draw, error, its in product(corners, errors, errors)]  # fmt: skip
    return min(reached), model.seconds(one, middle) / model.seconds(other, middle), max(reached)


def every(machine_name: str) -> list[Comparison]:
    """All of SHAPES."""
    return [each for operator, shape in SHAPES for each in compared(operator, shape, machine_name)]


# The same schedules, measured in turns and under steady load.


@dataclass(frozen=True, slots=True)
class Reading:
    """A schedule over the fastest sequential one of its block."""

    ratio: float
    by_turn: tuple[float, float]
    """The ratios of the first and of the last half of the samples; under steady load those of the two turns."""
    regime: str
    """What its readings say; in turns those of the whole block."""
    sequential_regime: str
    clocks: tuple[float, float] | None
    """Median SM clocks of the slower ranks under the sequential schedule and this one, Hz; None for a whole block."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A scheme of one problem in both protocols."""

    operator: str
    shape: tuple[int, ...]
    scheme: str
    tile: str
    in_torch: bool
    """Whether the fastest sequential schedule is an operator of torch that overlaps by itself."""
    turns: Reading
    steady: Reading | None
    """None where it was not measured."""


def measured(machine_name: str) -> list[Pair]:
    """The overlapping schedules of the recording, problem after problem; [] without one."""
    path = recordings.paths().get(f"{machine_name}{RECORDING}")
    rows = [] if path is None else [each.measurement for each in recordings.read(path)]
    kept_rows = [row for row in rows if row.facts.get(BLOCK_KIND) != CHOOSING and row.correct]
    of: dict[Problem, dict[bool, list[Measurement]]] = {}
    for row in kept_rows:
        of.setdefault(row.trial.problem, {False: [], True: []})[row.trial.protocol.is_steady].append(row)
    return [pair for some in of.values() for pair in _pairs(some[False], some[True])]


def _pairs(turns: Sequence[Measurement], steady: Sequence[Measurement]) -> Iterator[Pair]:
    block_regime = next((row.regime.name for row in turns if row.regime is not None and row.conditions), UNKNOWN)
    loaded = {row.trial.schedule: row for row in steady}
    for row in turns:
        if (scheme := row.trial.schedule.scheme) == BASELINE:
            continue
        under = loaded.get(row.trial.schedule)
        yield Pair(
            row.trial.problem.operator, tuple(value for _, value in row.trial.problem.shape if isinstance(value, int)),
            scheme, str(row.trial.schedule["tile"]), overlaps_by_itself(_baseline(steady or turns).trial.schedule),
            _reading(row, turns, block_regime), None if under is None else _reading(under, steady),
        )  # fmt: skip


def _reading(row: Measurement, block: Sequence[Measurement], block_regime: str = "") -> Reading:
    baseline = _baseline(block)
    first, last = (_half_s(row, late) / _half_s(baseline, late) for late in (False, True))
    regime, sequential_regime = (
        block_regime or (one.regime.name if one.regime else UNKNOWN) for one in (row, baseline)
    )
    return Reading(row.time_s / baseline.time_s, (first, last), regime, sequential_regime,
                   None if block_regime else (_clock_hertz(baseline), _clock_hertz(row)))  # fmt: skip


def _half_s(row: Measurement, late: bool) -> float:
    """The slowest rank's median of the first or the *late* half of its samples."""
    middle = len(row.samples[0]) // 2
    return max(median(each[middle:] if late else each[:middle]) for each in row.samples)


def _baseline(block: Sequence[Measurement]) -> Measurement:
    return min((each for each in block if each.trial.schedule.scheme == BASELINE), key=lambda each: each.time_s)


def _clock_hertz(row: Measurement) -> float:
    by_rank: dict[int, list[float]] = {}
    for each in row.conditions:
        by_rank.setdefault(each["rank"], []).append(each["sm_clock_mhz"])
    return min(map(median, by_rank.values()), default=float("nan")) * 1e6


# Texts.


def table(rows: Sequence[Comparison], model: PowerModel) -> list[str]:
    """The lines of the table of docs/results/steady.md."""
    heads = ("operator and shape", "scheme", "sequential computes", "and communicates", "ratio in bursts",
             "under steady load", "change of the ratio", "SM clocks, sequential and scheme")  # fmt: skip
    lines = [f"| {' | '.join(heads)} |", "|---|---|" + "---:|" * (len(heads) - 2)]
    for each in rows:
        low, middle, high = each.steady
        rest_s = each.sequential.burst_s - each.sequential.compute_s
        clocks = ", ".join(f"{share * model.highest_clock_hertz / 1e6:,.0f}" for share in each.clocks)
        cells = (f"`{each.operator}` {' x '.join(map(str, each.shape.values()))}", f"`{each.scheme}`",
                 f"{each.sequential.compute_s * 1e6:.0f} µs", f"{rest_s * 1e6:.0f} µs" + " (torch's)" * each.in_torch,
                 f"{each.burst:.2f}", f"{middle:.2f} ({low:.2f} to {high:.2f})",
                 "{:.2f} to {:.2f}".format(*each.change), f"{clocks} MHz")  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def measured_table(pairs: Sequence[Pair], rows: Sequence[Comparison]) -> list[str]:
    """The lines of the table of what was measured, with the estimates of *rows* for the same shapes and schemes."""
    estimates = _by_scheme(rows)
    heads = ("operator and shape", "scheme, tile", "in turns", "regime of the block", "under steady load, both turns",
             "regimes, sequential and scheme", "SM clocks, sequential and scheme", "estimated")  # fmt: skip
    lines = [f"| {' | '.join(heads)} |", "|---|---|---:|---|---:|---|---:|---:|"]
    for each in pairs:
        under = each.steady
        if under is None or under.clocks is None:
            continue
        cells = (f"`{each.operator}` {' x '.join(map(str, each.shape))}" + " (torch's)" * each.in_torch,
                 f"`{each.scheme}`, {each.tile}", f"{each.turns.ratio:.2f}", each.turns.regime,
                 f"{under.ratio:.2f} ({under.by_turn[0]:.2f}, {under.by_turn[1]:.2f})",
                 f"{under.sequential_regime}, {under.regime}",
                 f"{under.clocks[0] / 1e6:,.0f}, {under.clocks[1] / 1e6:,.0f} MHz",
                 _verdict(under, estimates.get(_name(each))))  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _name(pair: Pair) -> tuple[str, tuple[int, ...], str]:
    return pair.operator, pair.shape, pair.scheme


def _by_scheme(rows: Sequence[Comparison]) -> dict[tuple[str, tuple[int, ...], str], Comparison]:
    return {(each.operator, tuple(each.shape.values()), each.scheme): each for each in rows}


def _verdict(under: Reading, estimate: Comparison | None) -> str:
    if estimate is None:
        return ""
    low, middle, high = estimate.steady
    return f"{middle:.2f} ({low:.2f} to {high:.2f})" + ("" if _meets(under, estimate) else ", outside")


def _meets(under: Reading, estimate: Comparison) -> bool:
    """Whether the range of an estimate and that of both turns have a ratio in common, as they are shown."""
    low, _, high = estimate.steady
    return min(under.by_turn) <= high + ROUNDED and max(under.by_turn) >= low - ROUNDED


def measured_summary(pairs: Sequence[Pair], rows: Sequence[Comparison]) -> str:
    """What the measured ratios say, and how far the estimates were off, in a few lines."""
    estimates = _by_scheme(rows)
    both = [(each, each.steady, estimates[_name(each)]) for each in pairs if each.steady]
    lines = []
    for scheme in dict.fromkeys(each.scheme for each in pairs):
        some = [(each.turns.ratio, under.ratio, estimate) for each, under, estimate in both if each.scheme == scheme]
        errors = [estimate.steady[1] / under - 1 for _, under, estimate in some]
        lines.append(
            f"- `{scheme}`, {len(some)} problems: ratio {median(each[0] for each in some):.2f} in turns and "
            f"{median(each[1] for each in some):.2f} under steady load, in the median; estimates are off by "
            f"{median(errors):+.0%} in the median, {min(errors):+.0%} to {max(errors):+.0%}."
        )
    plain = [(each.turns, under) for each, under, _ in both if not each.in_torch and each.turns.ratio < GAINS]
    ratios = [(under.ratio, *under.by_turn) for _, under in plain]
    shares = [[(1 - of_call[at]) / (1 - turns.ratio) for of_call, (turns, _) in zip(ratios, plain, strict=True)]
              for at in range(3)]  # fmt: skip
    pooled, first, last = map(median, shares)
    lines.append(
        f"- {len(plain)} schedules gain in turns over a sequential one that does not overlap by itself. They keep "
        f"{pooled:.0%} of the gain in the median ({first:.0%} and {last:.0%} in the two turns)."
    )
    clocks = [under.clocks for each, under, _ in both if not each.in_torch and under.clocks]
    higher = [each for each in clocks if each[0] > each[1]]
    lines.append(
        f"- {sum(_meets(under, estimate) for _, under, estimate in both)} of {len(both)} ratios meet their estimated "
        f"range. The sequential schedule had the higher clock in {len(higher)} of "
        f"{len(clocks)} comparisons with one that does not overlap by itself."
    )
    return "\n".join(lines)


def kept(rows: Sequence[Comparison]) -> str:
    """What is left of the gains of bursts, in one line; rows whose baseline overlaps by itself do not count."""
    gains = [each for each in rows if each.burst < GAINS and not each.in_torch]
    shares = [[(1 - each.steady[at]) / (1 - each.burst) for each in gains] for at in range(3)]
    most, middle, least = map(median, shares)
    return (
        f"{len(gains)} schedules with a gain in bursts: ratio {median(each.burst for each in gains):.3f} there and "
        f"{median(each.steady[1] for each in gains):.3f} under steady load, in the median. {middle:.0%} of the gain is "
        f"kept, {least:.0%} to {most:.0%} over what is not known."
    )


def main(machine_names: Sequence[str]) -> None:
    """Prints the table of each machine, and what is kept."""
    for name in machine_names:
        rows = every(name)
        print("\n".join([name, "", *table(rows, card(name)), "", kept(rows), ""]))
        if pairs := measured(name):
            print("\n".join([*measured_table(pairs, rows), "", measured_summary(pairs, rows), ""]))


if __name__ == "__main__":
    main(sys.argv[1:] or MACHINES)
