"""Fits a machine of GPUs to what its probes measured: raw results in, a machine out, each value with its source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from statistics import fmean, geometric_mean, quantiles
from typing import Any

import numpy as np

from kernels.axes import tile
from kernels.machine import Collective, Machine, Rate
from kernels.operators import operator, problem
from kernels.outcome import Measurement
from kernels.problem import Problem
from kernels.schedule import Refusal
from kernels.schemes.base import num_tiles
from workbench.simulator.held_out import computation, held_out
from workbench.simulator.predict import predict
from workbench.simulator.price.tiles import SKEWED, SKEWED_GATHER, fixed_seconds, tile_width, work_share

Row = Mapping[str, Any]

UNFITTED, FITTED = "(datasheet only)", "(calibrated)"
"""How titles end."""
WAYS = ("registers", "tma", "copy_engine")
RAMP_BEGINS = 1 << 18
"""Bytes from which on a put says something of speed: below it is all fixed cost."""
BYTES_ARE_BYTES = ("float32", "bfloat16", "float16")
SAME_SPEED = {"bfloat16": ("bfloat16", "float16"), "float32": ("float32",)}
"""Dtypes that a curve holds for, by the one that was measured: of 16 bits both."""


def fitted(raw: Mapping[str, Any], machine: Machine, but: str = "") -> Machine:
    """*machine* with all that *raw* tells; what it does not tell stays as it was, with its provenance.

    Rows of problems that are held out (`workbench/simulator/held_out.py`) tell nothing, now or in curves of before, nor
    do those of computation *but*.
    ValueError where *raw* is of other GPUs than *machine* has, or holds nothing.
    """
    if raw.get("machine") != machine.name:
        raise ValueError(f"{machine.name} does not fit these raw results: they are of machine "
                         f"{raw.get('machine')!r}. Accepted: --machine {raw.get('machine')}.")  # fmt: skip
    known = [row for row in raw.get("rows", ()) if "refused" not in row]
    rows = [row for row in known if _may_tell(row, int(raw["world"]), but)]
    if not rows:
        raise ValueError(f"{machine.name} cannot be fitted: the raw results hold 0 measurements. Accepted: the "
                         "file that the probes wrote, with rows.")  # fmt: skip
    for row in known:
        machine = machine if row in rows else _without_curves(machine, row)
    fit = _Fit(machine, rows, f"{raw['world']} x {raw['gpu']}, {raw['date'][:10]}", int(raw["world"]))
    for step in (_fixed_costs, _memory, _puts, _collectives, _tiles, _curves):
        step(fit)
    title = fit.machine.title.replace(UNFITTED, FITTED)
    shapes = {listed(_asked(fit, row)) for row in rows if "operator" in row}
    fit.machine = replace(fit.machine, fitted_to=tuple(sorted(shapes)))
    return replace(fit.machine, title=title, calibrated=f"{raw['date']} on {raw['host']}", digest="")


@dataclass
class _Fit:
    """The machine so far."""

    machine: Machine
    rows: Sequence[Row]
    where: str
    world: int

    def of(self, probe: str, **facts: Any) -> list[Row]:
        """Rows of *probe* that have these *facts*."""
        return [row for row in self.rows if row["probe"] == probe and all(row.get(k) == v for k, v in facts.items())]

    def seconds(self, probe: str, **facts: Any) -> float | None:
        """Of the first such row."""
        rows = self.of(probe, **facts)
        return float(rows[0]["seconds"]) if rows else None

    def know(self, key: str, how: str) -> None:
        """Keeps where the value of *key* comes from."""
        source = {key: f"calibrated: {self.where}: {how}"}
        self.machine = replace(self.machine, provenance={**self.machine.provenance, **source})

    def cost(self, name: str, seconds: float | None, how: str) -> None:
        """Takes one cost over, if it was measured."""
        if seconds is None:
            return
        changed: dict[str, Any] = {name: seconds}
        self.machine = replace(self.machine, costs=replace(self.machine.costs, **changed))
        self.know(f"costs.{name}", how)

    def link(self, name: str, value: float | None, how: str) -> None:
        """Takes one property of the links over."""
        if value is None:
            return
        first, *others = self.machine.dimensions
        changed: dict[str, Any] = {name: value}
        self.machine = replace(self.machine, dimensions=(replace(first, **changed), *others))
        self.know(f"dimension.0.{name}", how)

    def curve(self, work: str, rates: Iterable[Rate], how: str) -> None:
        """Replaces the curves of *work* of the dtypes that *rates* have; equal places become one point."""
        places: dict[tuple[str, float, float], list[float]] = {}
        for rate in rates:
            places.setdefault((rate.dtype, rate.width, rate.size), []).append(rate.per_second)
        if not places:
            return
        dtypes = {dtype for dtype, *_ in places}
        kept = tuple(one for one in self.machine.rates if one.work != work or one.dtype not in dtypes)
        made = tuple(Rate(work, dtype, size, geometric_mean(speeds), width)
                     for (dtype, width, size), speeds in sorted(places.items()))  # fmt: skip
        self.machine = replace(self.machine, rates=kept + made)
        for dtype in sorted(dtypes):
            self.know(f"rate.{work}.{dtype}", how)

    def forget(self, work: str, instead: str) -> None:
        """Drops the curve of *work* where there is one of *instead*."""
        if any(rate.work == instead for rate in self.machine.rates):
            rates = tuple(rate for rate in self.machine.rates if rate.work != work)
            sources = {key: how for key, how in self.machine.provenance.items() if not key.startswith(f"rate.{work}.")}
            self.machine = replace(self.machine, rates=rates, provenance=sources)

    @property
    def way_seconds(self) -> float:
        """From a signal's write until a peer goes on."""
        return self.machine.dimensions[0].latency_seconds + self.machine.costs.signal_seconds


def _fixed_costs(fit: _Fit) -> None:
    fit.cost("launch_seconds", fit.seconds("graph_node"), "a kernel of one block, as one of many nodes of a graph")
    fit.cost("step_seconds", 0.0 if fit.of("gemm", by="ours") else None, "tiles were timed in whole kernels, with it")
    packet, signal = fit.seconds("packets"), fit.seconds("signal")
    if packet is not None and signal is not None:
        fit.link("latency_seconds", min(packet, signal), "half a ping-pong of packets, all pairs at once")
        fit.cost("signal_seconds", max(0.0, signal - packet), "half a ping-pong of signals, less that of packets")


def _memory(fit: _Fit) -> None:
    reads = [row["bytes"] / _beyond(row, fit.machine.costs.launch_seconds) for row in fit.of("read")]
    if reads:
        device = replace(fit.machine.device, memory_bytes_per_second=max(reads))
        fit.machine = replace(fit.machine, device=device)
        fit.know("device.memory_bytes_per_second", "best of reads of 16 to 512 MiB, on all GPUs at once")
        least = min(fit.of("read"), key=lambda row: float(row["bytes"]))
        rest = _beyond(least, fit.machine.costs.launch_seconds) - least["bytes"] / max(reads)
        fit.cost("cold_seconds", max(0.0, rest), "the smallest read, beyond its launch and its bytes at full speed")
    launch = fit.machine.costs.launch_seconds
    copies = [(row["bytes"], row["bytes"] / _beyond(row, launch)) for row in fit.of("copy", by="library")]
    points = [Rate("copy", dtype, size, speed) for size, speed in copies for dtype in BYTES_ARE_BYTES]
    fit.curve("copy", points, "torch's copies inside a GPU")


def _beyond(row: Row, fixed_s: float) -> float:
    """Seconds beside *fixed_s*; noise in what is subtracted may not leave less than a tenth."""
    return float(max(row["seconds"] - fixed_s, row["seconds"] / 10))


def _puts(fit: _Fit) -> None:
    """Per way a straight line through the smallest and the fastest says what is fixed; the rest is the ramp."""
    fixed: dict[str, float] = {}
    best: list[float] = []
    for way in WAYS:
        ramp = _ramp([row for row in fit.of("put", way=way, pattern="all_to_all") if row.get("streams", 1) == 1])
        if len(ramp) < 2:
            continue
        fixed[way] = _fixed_of(ramp)
        slots = 0 if way == "copy_engine" else fit.machine.device.slots
        few = [row for row in fit.of("put", way=way, pattern="all_to_all") if 0 < row.get("programs", 0) < slots]
        sized = [(row, slots) for row in ramp if row["bytes"] >= RAMP_BEGINS] + [(row, row["programs"]) for row in few]
        # of a small put little more than what is fixed is left, and the rest is no speed: no link is faster then
        link = ramp[-1]["bytes"] / _beyond(ramp[-1], fixed[way])
        points = [Rate("", "any", row["bytes"], min(link, row["bytes"] / _beyond(row, fixed[way])), width)
                  for row, width in sized]  # fmt: skip
        best.append(link)
        how = f"all ranks to all peers at once; {fixed[way] * 1e6:.2f} µs of a call are fixed"
        fit.curve(f"put_{way}", points, how)
    if best:
        how = "best of the largest puts by stores, bulk copies and copy engines"
        fit.link("bandwidth_bytes_per_second", max(best), how)
    launch, way_s = fit.machine.costs.launch_seconds, fit.way_seconds
    if "registers" in fixed:
        how = "a put of next to nothing, less its launch and the way of a signal"
        fit.cost("barrier_seconds", max(0.0, fixed["registers"] - launch - way_s), how)
    if "copy_engine" in fixed:
        rest = fixed["copy_engine"] - launch - fit.machine.costs.barrier_seconds - way_s
        fit.cost("copy_engine_seconds", max(0.0, rest), "a copy of next to nothing between two meetings, less those")


def _ramp(rows: Sequence[Row]) -> list[Row]:
    """By size, with as many programs as there were at most."""
    most = max((row.get("programs", 0) for row in rows), default=0)
    return sorted((row for row in rows if row.get("programs", 0) == most), key=lambda row: row["bytes"])


def _fixed_of(ramp: Sequence[Row]) -> float:
    """Seconds of a put of no bytes."""
    least = ramp[0]
    slopes = [(row["seconds"] - least["seconds"]) / (row["bytes"] - least["bytes"]) for row in ramp[1:]
              if row["bytes"] > least["bytes"]]  # fmt: skip
    per_byte = min((slope for slope in slopes if slope > 0), default=0.0)
    return float(max(0.0, least["seconds"] - least["bytes"] * per_byte))


def _collectives(fit: _Fit) -> None:
    rows = fit.of("nccl")
    if not rows:
        return
    made = tuple(Collective(row["collective"], fit.world, row["wire_bytes"], row["seconds"]) for row in rows)
    again = {(one.name, one.world) for one in made}
    kept = tuple(one for one in fit.machine.collectives if (one.name, one.world) not in again)
    fit.machine = replace(fit.machine, collectives=kept + made)
    fit.know("collective", "NCCL as it chooses, calls captured in a graph, buffers of its own")
    exchanges = sorted(fit.of("nccl", collective="all_to_all"), key=lambda row: row["bytes"])
    if exchanges:
        small, large = exchanges[0], exchanges[-1]
        speed = large["wire_bytes"] / _beyond(large, small["seconds"])
        share = min(1.0, speed / fit.machine.dimensions[0].bandwidth_bytes_per_second)
        fit.cost("library_seconds", small["seconds"], "the smallest all-to-all")
        fit.cost("library_share", share, "the largest all-to-all, of the best put")


def _tiles(fit: _Fit) -> None:
    """Two waves less one, at several depths: what does not grow with the depth is fixed."""
    waves = _by_depth(fit)
    if len(waves) < 2:
        return
    depths, seconds = np.array(list(waves)), np.array(list(waves.values()))
    slope, fixed = np.polyfit(depths, seconds, 1, w=1 / seconds)
    if slope > 0:
        fixed = float(np.clip(fixed, 0.0, seconds.min() / 2))
        fit.cost("tile_seconds", fixed, "a second wave of GEMM tiles at five depths, at depth 0")


def _by_depth(fit: _Fit) -> dict[int, float]:
    """Seconds of a wave of GEMM tiles by its contraction."""
    times = {
        waves: {row["shape"]["k"]: row["seconds"] for row in fit.of("gemm", by="ours", waves=waves)} for waves in (1, 2)
    }
    return {k: two - times[1][k] for k, two in sorted(times[2].items()) if k in times[1] and two > times[1][k]}


def _curves(fit: _Fit) -> None:
    for work in ("gemm", "gather"):
        ours = [row for row in fit.of(work, by="ours") if "waves" not in row]
        for name, rows in _by_curve(fit, ours).items():
            fit.curve(name, list(_tile_rates(fit, rows)), "whole kernels of ours, computation alone, operands cold")
    fit.curve("own_gemv", list(_call_rates(fit, "gemv", "ours")), "whole kernels of ours, operands cold")
    fit.forget("gemv", "own_gemv")
    for work in ("gemm", "gemv"):
        fit.curve(f"library_{work}", list(_call_rates(fit, work, "library")), "cuBLAS, operands cold")
    fit.curve("gemm", [*_wave_rates(fit), *(r for r in fit.machine.rates if r.work == "gemm")],
              "whole kernels of ours and second waves of tiles, operands cold")  # fmt: skip


def listed(of: Problem) -> str:
    """A problem as a machine's file lists it among those that it was fitted to."""
    shape = " ".join(f"{key}={size}" for key, size in of.shape)
    return f"{of.operator} {shape} {of.dtype} on {of.world} ranks"


def _asked(fit: _Fit, row: Row) -> Problem:
    return _problem(row, fit.world)


def _problem(row: Row, world: int) -> Problem:
    return problem(row["operator"], row["shape"], dtype=row["dtype"], world=world)


def _may_tell(row: Row, world: int, but: str) -> bool:
    """Whether a machine may be fitted to *row*. Sizes of waves follow from the number of SMs: nobody records them."""
    if "operator" not in row or "waves" in row:
        return True
    of = _problem(row, world)
    return not held_out(of) and computation(of) != but


def _without_curves(machine: Machine, row: Row) -> Machine:
    """*machine* without the curves that *row* was a point of, should it have been fitted when nothing was held out."""
    work = row["probe"]
    curves = {work, f"own_{work}", f"library_{work}", *([SKEWED_GATHER] if work == "gather" else [])}
    rates = tuple(rate for rate in machine.rates if rate.work not in curves)
    sources = {key: how for key, how in machine.provenance.items()
               if not any(key.startswith(f"rate.{name}.") for name in curves)}  # fmt: skip
    return replace(machine, rates=rates, provenance=sources)


def _tile_rates(fit: _Fit, rows: Iterable[Row]) -> Iterator[Rate]:
    """What tiles must have run at for a kernel to take as long, by the rule that estimates are made with."""
    for row in rows:
        of, size, slots = _asked(fit, row), tile(row["axes"]["tile"]), fit.machine.device.slots
        work, share = work_share(of)
        waves = -(-num_tiles(of, str(size)) // slots)
        amount = share * size.m * size.n * operator(of.operator).extent(of).contraction
        wave_s = _beyond(row, fit.machine.costs.launch_seconds) / waves
        speed = amount * slots / max(wave_s - fixed_seconds(fit.machine, work), wave_s / 10)
        for dtype in BYTES_ARE_BYTES if work == "gather" else SAME_SPEED[of.dtype]:
            yield Rate(work, dtype, amount, speed, float(tile_width(of, size.m, size.n)))


def _wave_rates(fit: _Fit) -> Iterator[Rate]:
    rows = {row["shape"]["k"]: row for row in fit.of("gemm", by="ours", waves=2)}
    for depth, seconds in _by_depth(fit).items():
        size = tile(rows[depth]["axes"]["tile"])
        amount = 2.0 * size.m * size.n * depth
        speed = amount * fit.machine.device.slots / max(seconds - fit.machine.costs.tile_seconds, seconds / 10)
        for dtype in SAME_SPEED[rows[depth]["dtype"]]:
            yield Rate("gemm", dtype, amount, speed, float(size.m))


def _by_curve(fit: _Fit, rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Rows by the curve that they tell: lookups with skewed indices have one of their own."""
    curves: dict[str, list[Row]] = {}
    for row in rows:
        skewed = row["shape"].get("indices") == SKEWED
        curves.setdefault(SKEWED_GATHER if skewed else row["probe"], []).append(row)
    return curves


def _call_rates(fit: _Fit, work: str, by: str) -> Iterator[Rate]:
    """What whole calls ran at, as *by* computes them."""
    for row in fit.of(work, by=by):
        of = _asked(fit, row)
        extent = operator(of.operator).extent(of)
        speed = row["flops"] / _beyond(row, fit.machine.costs.launch_seconds)
        for dtype in SAME_SPEED[of.dtype]:
            yield Rate("", dtype, row["flops"], speed, float(extent.rows if work == "gemm" else extent.columns))


def checked(machine: Machine, ratios: Sequence[float], how: str) -> Machine:
    """*machine* with the spread of *ratios*, measured over estimated times: one tenth is below, one tenth above.

    *how* they were found is kept beside it.
    """
    if len(ratios) < 2:
        return machine
    tenths = quantiles(ratios, n=10, method="inclusive")  # never beyond what was seen, however few there are
    source = f"calibrated: {len(ratios)} recorded trials, measured over estimated, mean {fmean(ratios):.2f}; {how}"
    return replace(machine, spread=(tenths[0], tenths[-1]), provenance={**machine.provenance, "spread": source})


def ratios(machine: Machine, measured: Iterable[Measurement]) -> Iterator[float]:
    """Measured over estimated times. Trials that are illegal today have no estimate, and are left out."""
    for one in measured:
        with suppress(Refusal):
            yield one.time_s / predict(one.trial, machine, with_spans=False).time_s
