"""What steady load leaves of overlap's gain, estimated before anybody measured it.

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
from kernels.outcome import Estimate
from kernels.schemes import BASELINE, SCHEMES
from kernels.trial import PROTOCOLS
from workbench.analysis.power import DTYPE, card
from workbench.experiment.recommend import leaders
from workbench.machines import shipped_machine
from workbench.simulator.predict import loaded_work
from workbench.simulator.price.power import PowerModel, Work

LINK, WORLD = "nvlink", 2
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
            in_torch=baseline.trial.schedule.get("collective") == "overlapped",
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


if __name__ == "__main__":
    main(sys.argv[1:] or MACHINES)
