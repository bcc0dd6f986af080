"""What steady load leaves of overlap's gain, estimated before anybody measured it.

`python -m workbench.analysis.under_load` prints the tables of docs/results/steady.md. A schedule that communicates
while it does not compute rests meanwhile, and the rest pays for a faster clock (`simulator/price/power.py`). Overlap
takes that rest away.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from statistics import median

from kernels.backends.capabilities import MeasuringRanks
from kernels.fabric import Fabric, parse
from kernels.machine import Machine
from kernels.operators import OPERATORS, problem
from kernels.outcome import Estimate
from kernels.schemes import BASELINE, SCHEMES
from kernels.trial import PROTOCOLS, Trial
from workbench.analysis.power import DTYPE, MACHINE, card, flops
from workbench.experiment.recommend import leaders
from workbench.machines import shipped_machine
from workbench.simulator.predict import predict
from workbench.simulator.price.power import Draw, PowerModel, Work

LINK, WORLD = "nvlink", 2
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
"""Shapes of docs/results/fused.md whose GEMM reaches the power cap."""
ENERGY_ERROR = 0.036
"""The largest error of a GEMM's time at the cap where the energy was fitted to two others (docs/simulator.md)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """One scheme against sequential in both regimes. Times are in seconds, ratios scheme over sequential."""

    operator: str
    shape: Mapping[str, int]
    scheme: str
    sequential: Work
    overlapped: Work
    burst: float
    """The ratio in bursts."""
    steady: tuple[float, float, float]
    """The ratio under steady load: least, middle, most over what is assumed (`PowerModel.draws`)."""

    @property
    def change(self) -> tuple[float, float]:
        """By what the ratio of bursts is multiplied, least and most: holds for a measured ratio of bursts, too."""
        low, _, high = self.steady
        return low / self.burst, high / self.burst


def kept(operator: str, shape: Mapping[str, int], model: PowerModel, machine: Machine, link: Fabric) -> Iterator[Kept]:
    """The best schedule of each overlapping scheme by estimates of bursts, against the best sequential one."""
    of = problem(operator, dict(shape), world=WORLD, dtype=DTYPE)
    capped_s = model.capped_seconds(OPERATORS[operator].flops(of), DTYPE)
    best = {scheme: estimates[0] for scheme, estimates in
            leaders(of, MeasuringRanks(machine, link), tuple(SCHEMES), {}, PROTOCOLS["default"]).items()}  # fmt: skip
    baseline = best.pop(BASELINE)
    sequential = work(baseline, machine, capped_s)
    for scheme, estimate in best.items():
        overlapped = work(estimate, machine, capped_s)
        yield Kept(
            operator=operator, shape=shape, scheme=scheme, sequential=sequential, overlapped=overlapped,
            burst=estimate.time_s / baseline.time_s, steady=_ratios(model, overlapped, sequential),
        )  # fmt: skip


def work(estimate: Estimate, machine: Machine, capped_s: float) -> Work:
    """The seconds of a call: what is not computation is rest, and communication that does not fit in it is hidden."""
    compute_s = _part_s(_in_order(estimate.trial), machine, "compute")
    communicate_s = _part_s(estimate.trial, machine, "communication")
    rest_s = max(0.0, estimate.time_s - compute_s)
    hidden_s = max(0.0, communicate_s - rest_s)
    return Work(compute_s=compute_s, capped_s=capped_s, rest_s=rest_s, hidden_s=hidden_s)


def _part_s(trial: Trial, machine: Machine, part: str) -> float:
    return predict(trial.of_part(part), machine, with_spans=False).time_s


def _in_order(trial: Trial) -> Trial:
    """The same computation without torch's overlapped operators, whose computation has the gather inside."""
    if trial.schedule.get("collective") != "overlapped":
        return trial
    axes = {**dict(trial.schedule.axes), "collective": "direct"}
    return replace(trial, schedule=replace(trial.schedule, axes=tuple(axes.items())))


def _ratios(model: PowerModel, one: Work, other: Work) -> tuple[float, float, float]:
    def ratio(draw: Draw, energy: float) -> float:
        return model.mixed_seconds(one.at(energy), draw) / model.mixed_seconds(other.at(energy), draw)

    middle, *corners = model.draws()
    reached = [ratio(*each) for each in product(corners, (1 - ENERGY_ERROR, 1 + ENERGY_ERROR))]
    return min(reached), ratio(middle, 1.0), max(reached)


def every() -> list[Kept]:
    """All of SHAPES."""
    machine, model = shipped_machine(MACHINE), card()
    return [each for operator, shape in SHAPES for each in kept(operator, shape, model, machine, parse(LINK))]


# GEMMs with a rest between replays, which nothing was fitted to.


def paused(model: PowerModel) -> Iterator[tuple[str, float, float, float]]:
    """Each GEMM that was timed with rests: its sizes, seconds of computation as estimated, least and most, as measured.

    What it draws in a rest is assumed as for seconds that only communicate.
    """
    bursts = {_sizes(each): each["burst_s"] for each in model.timed}
    for each in model.paused:
        low, high = (each["pause_s"] / calls for calls in reversed(each["calls"]))
        capped_s = model.capped_seconds(flops(each), DTYPE)
        works = [Work(compute_s=bursts[_sizes(each)], capped_s=capped_s, rest_s=rest_s) for rest_s in (low, high)]
        seconds = [
            model.mixed_seconds(work.at(energy), draw) - work.rest_s
            for work, draw, energy in product(works, model.draws(), (1 - ENERGY_ERROR, 1 + ENERGY_ERROR))
        ]
        yield _sizes(each), min(seconds), max(seconds), each["seconds"]


def _sizes(gemm: Mapping[str, float]) -> str:
    return "x".join(f"{gemm[name]:.0f}" for name in ("m", "n", "k"))


# Texts.


def table(rows: Sequence[Kept]) -> list[str]:
    """The lines of the table of docs/results/steady.md."""
    heads = ("operator and shape", "scheme", "computes", "rests in sequential", "rests in scheme", "ratio in bursts",
             "under steady load", "change of the ratio")  # fmt: skip
    lines = [f"| {' | '.join(heads)} |", "|---|---|" + "---:|" * (len(heads) - 2)]
    for each in rows:
        low, middle, high = each.steady
        cells = (f"`{each.operator}` {' x '.join(map(str, each.shape.values()))}", f"`{each.scheme}`",
                 f"{each.overlapped.compute_s * 1e6:.0f} µs", f"{each.sequential.rest_s * 1e6:.0f} µs",
                 f"{each.overlapped.rest_s * 1e6:.0f} µs", f"{each.burst:.2f}",
                 f"{middle:.2f} ({low:.2f} to {high:.2f})", "{:.2f} to {:.2f}".format(*each.change))  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def main() -> None:
    """Prints the table, the median of what is kept, and the check on GEMMs with rests."""
    rows = every()
    print("\n".join(table(rows)))
    gains = [each for each in rows if each.burst < 0.98]
    print(f"{len(gains)} with a gain in bursts: ratio {median(each.burst for each in gains):.2f} there, "
          f"{median(each.steady[1] for each in gains):.2f} under steady load, in the median")  # fmt: skip
    for sizes, low, high, measured in paused(card()):
        print(f"{sizes} with rests: {low * 1e6:.0f} to {high * 1e6:.0f} us estimated, {measured * 1e6:.0f} measured")


if __name__ == "__main__":
    main()
