"""Calibrating a machine of GPUs: its probes run on this host or were run elsewhere; the file is written from them."""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import fmean, geometric_mean, quantiles
from typing import Any

import numpy as np

from cluster import hosts
from kernels import files
from kernels.backends.triton.nccl import CHANNELS, DEFAULT, WINDOWS
from kernels.files import Failed
from kernels.machine import LIMITED, TUNED, Collective, Machine, Rate, limited, toml
from kernels.operators import operator, problem
from kernels.outcome import Measurement
from kernels.problem import Problem
from kernels.schedule import Refusal, tile
from kernels.schemes.base import num_tiles
from workbench import machines
from workbench.machines import own, write
from workbench.results import recordings
from workbench.results.files import FileTarget
from workbench.simulator.predict import predict
from workbench.simulator.price import tiles
from workbench.simulator.price.collectives import measured_seconds
from workbench.simulator.price.tiles import SKEWED, SKEWED_GATHER, fixed_seconds, tile_width, work_share

# Which problems no machine is fitted to: drawn by a committed seed, by what one rank computes; one operator whole.

SEED = 43
"""The first of 0, 1, 2, ... by which LEAST of each other operator's computations are held out, and LEAST are not.

It was chosen by counting, before any estimate was looked at.
"""
SHARE = 0.5
"""How likely a computation is to be held out."""
LEAST = 0.4
"""Of those that two H200s recorded, and of those that their probes timed: less says nothing of an operator."""
WHOLE: Mapping[str, bool] = {"gemm_reduce_scatter": True}
"""By operator, whether it is held out whole: so one sees what an estimate of another operator is worth."""


def held_out(of: Problem) -> bool:
    """Whether nothing may be fitted to *of*."""
    return WHOLE.get(of.operator, False) or is_drawn(computation(of), SEED)


def computation(of: Problem) -> str:
    """What one rank computes of *of*, in words: operators that differ in their collective alone have the same."""
    kind = operator(of.operator)
    extent = kind.extent(of)
    return f"{kind.work} {extent.rows} x {extent.columns} x {extent.contraction}"


@cache
def is_drawn(name: str, seed: int) -> bool:
    """Whether *seed* holds computation *name* out: a draw of its own for each."""
    return random.Random(f"{seed}: {name}").random() < SHARE


# Fits a machine of GPUs to what its probes measured: raw results in, a machine out, each value with its source.

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

    Rows of problems that are held out (``held_out``) tell nothing, now or in curves of before, nor
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
    fit = _GpuFit(machine, rows, f"{raw['world']} x {raw['gpu']}, {raw['date'][:10]}", int(raw["world"]))
    for step in (_fixed_costs, _memory, _puts, _collectives, _tiles, _curves):
        step(fit)
    title = fit.machine.title.replace(UNFITTED, FITTED)
    shapes = {listed(_asked(fit, row)) for row in rows if "operator" in row}
    fit.machine = replace(fit.machine, fitted_to=tuple(sorted(shapes)))
    return replace(fit.machine, title=title, calibrated=f"{raw['date']} on {raw['host']}", digest="")


@dataclass
class _GpuFit:
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


def _fixed_costs(fit: _GpuFit) -> None:
    fit.cost("launch_seconds", fit.seconds("graph_node"), "a kernel of one block, as one of many nodes of a graph")
    fit.cost("step_seconds", 0.0 if fit.of("gemm", by="ours") else None, "tiles were timed in whole kernels, with it")
    packet, signal = fit.seconds("packets"), fit.seconds("signal")
    if packet is not None and signal is not None:
        fit.link("latency_seconds", min(packet, signal), "half a ping-pong of packets, all pairs at once")
        fit.cost("signal_seconds", max(0.0, signal - packet), "half a ping-pong of signals, less that of packets")


def _memory(fit: _GpuFit) -> None:
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


def _puts(fit: _GpuFit) -> None:
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


def _collectives(fit: _GpuFit) -> None:
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


def _tiles(fit: _GpuFit) -> None:
    """Two waves less one, at several depths: what does not grow with the depth is fixed."""
    waves = _by_depth(fit)
    if len(waves) < 2:
        return
    depths, seconds = np.array(list(waves)), np.array(list(waves.values()))
    slope, fixed = np.polyfit(depths, seconds, 1, w=1 / seconds)
    if slope > 0:
        fixed = float(np.clip(fixed, 0.0, seconds.min() / 2))
        fit.cost("tile_seconds", fixed, "a second wave of GEMM tiles at five depths, at depth 0")


def _by_depth(fit: _GpuFit) -> dict[int, float]:
    """Seconds of a wave of GEMM tiles by its contraction."""
    times = {
        waves: {row["shape"]["k"]: row["seconds"] for row in fit.of("gemm", by="ours", waves=waves)} for waves in (1, 2)
    }
    return {k: two - times[1][k] for k, two in sorted(times[2].items()) if k in times[1] and two > times[1][k]}


def _curves(fit: _GpuFit) -> None:
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


def _asked(fit: _GpuFit, row: Row) -> Problem:
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


def _tile_rates(fit: _GpuFit, rows: Iterable[Row]) -> Iterator[Rate]:
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


def _wave_rates(fit: _GpuFit) -> Iterator[Rate]:
    rows = {row["shape"]["k"]: row for row in fit.of("gemm", by="ours", waves=2)}
    for depth, seconds in _by_depth(fit).items():
        size = tile(rows[depth]["axes"]["tile"])
        amount = 2.0 * size.m * size.n * depth
        speed = amount * fit.machine.device.slots / max(seconds - fit.machine.costs.tile_seconds, seconds / 10)
        for dtype in SAME_SPEED[rows[depth]["dtype"]]:
            yield Rate("gemm", dtype, amount, speed, float(size.m))


def _by_curve(fit: _GpuFit, rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Rows by the curve that they tell: lookups with skewed indices have one of their own."""
    curves: dict[str, list[Row]] = {}
    for row in rows:
        skewed = row["shape"].get("indices") == SKEWED
        curves.setdefault(SKEWED_GATHER if skewed else row["probe"], []).append(row)
    return curves


def _call_rates(fit: _GpuFit, work: str, by: str) -> Iterator[Rate]:
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


# A machine of more GPUs says what fewer of the same kind were measured to cost; how it is linked stays its own.

PER_DEVICE = ("device.memory_bytes_per_second", "costs.launch_seconds", "costs.step_seconds", "costs.tile_seconds",
              "costs.signal_seconds", "costs.barrier_seconds", "costs.copy_engine_seconds",
              "costs.cold_seconds", "device.load_bytes_per_second", "device.loads_in_flight",
              "device.load_latency_seconds", "device.shared_bytes_per_second",
              "device.short_bytes_per_second", "device.results_bytes_per_second", "costs.own_kernel_seconds",
              "device.awaited_memory_share", "device.gemv_step", "device.few_tokens_step", "device.gather_step",
              "costs.push_bytes_per_second",
              "costs.stream_seconds", "costs.computing_beside", "costs.sending_beside", "costs.library_tile_seconds",
              "costs.cluster_room", "costs.copy_engine_gap_seconds", "costs.streaming_beside",
              "dimension.0.latency_seconds")  # fmt: skip
"""What GPUs of one kind share, or pairs of them behind the same switch, however many there are."""
PUT, SWITCH = "put_", "switch"
ITS_OWN_LINKS = "each GPU has links of its own to the switch, which were this fast with fewer GPUs behind it"
"""Why puts are taken to be as fast among more GPUs, where nobody measured them."""


def carried(source: Machine, onto: Machine, *, puts: bool = False) -> Machine:
    """*onto* with what was measured of each device of *source*, whose GPUs are the same kind but fewer.

    Behind a switch puts are assumed to be as fast as they were in *source*. *puts*: they are known to be, and the
    link's bandwidth is taken over, too. The library's collectives stay behind.
    """
    if source.device.name != onto.device.name:
        raise ValueError(f"{onto.name} has {onto.device.name}, and {source.name} {source.device.name}. A "
                         "measurement of one says nothing about the other. "
                         "Accepted: machines of the same GPUs.")  # fmt: skip
    keys = (*PER_DEVICE, "dimension.0.bandwidth_bytes_per_second") if puts else PER_DEVICE
    known = {key for key in keys if source.provenance_of(key).startswith("calibrated")}
    values: dict[str, dict[str, Any]] = {"device": {}, "costs": {}, "dimension": {}}
    for key in known:
        table, name = key.split(".")[0], key.split(".")[-1]
        holder: Any = source.dimensions[0] if table == "dimension" else getattr(source, table)
        values[table][name] = getattr(holder, name)
    rates = tuple(_rates(source, onto, puts=puts))
    curves = {f"rate.{rate.work}.{rate.dtype}" for rate in rates}
    sources = {key: _provenance(source, key, puts=puts) for key in sorted(known | curves)}
    kept = {key: how for key, how in onto.provenance.items() if not key.startswith("rate.")}
    return replace(
        onto,
        device=replace(onto.device, **values["device"]),
        costs=replace(onto.costs, **values["costs"]),
        dimensions=(replace(onto.dimensions[0], **values["dimension"]), *onto.dimensions[1:]),
        rates=rates,
        title=onto.title.replace(UNFITTED, "(devices calibrated, links not)" if not puts else FITTED),
        provenance={**kept, **sources},
        fitted_to=source.fitted_to,
        calibrated=source.calibrated and f"{source.calibrated}, each device of {source.name}",
        digest="",
    )


def _rates(source: Machine, onto: Machine, *, puts: bool) -> Iterator[Rate]:
    """The curves of *source*: puts only where they are known or assumed to be as fast."""
    behind_switch = _behind_one_switch(source) and _behind_one_switch(onto)
    for rate in source.rates:
        if puts or behind_switch or not rate.work.startswith(PUT):
            yield rate


def _behind_one_switch(machine: Machine) -> bool:
    """Whether all GPUs of a host are."""
    inside = machine.dimensions[0]
    return inside.topology == SWITCH and inside.count == machine.ranks_per_host


def _provenance(source: Machine, key: str, *, puts: bool) -> str:
    """Where the value of *key* is from, as it came from *source*."""
    where = f"{source.provenance_of(key)}; carried over from {source.name}"
    is_put = key.startswith(f"rate.{PUT}")
    return f"assumed: {ITS_OWN_LINKS}; {where}" if is_put and not puts else where


# How fast one SM loads the operands of a tile: from recorded kernels of ours whose tiles are too small to compute.

SHORT = 0.9
"""An estimate without loads below this share of the measured time says that loads were waited for."""


def with_loads(machine: Machine, measured: Iterable[Measurement]) -> Machine:
    """*machine* with the speed of loads that those of *measured* tell which compute alone, by our own GEMMs."""
    without = replace(machine, device=replace(machine.device, load_bytes_per_second=0.0))
    speeds: dict[str, list[float]] = {}
    for one in measured:
        problem = one.trial.problem
        is_ours = one.trial.schedule.get("num_warps") is not None
        if one.trial.part != "compute" or not is_ours or held_out(problem):
            continue
        if operator(problem.operator).work == "gemm" and predict(one.trial, without).time_s < SHORT * one.time_s:
            speeds.setdefault(listed(problem), []).append(_speed(without, one))
    if not speeds:
        return machine
    each = geometric_mean(speed for of_problem in speeds.values() for speed in of_problem)
    count = sum(map(len, speeds.values()))
    how = f"calibrated: {count} recorded kernels of ours that wait for loads, of {len(speeds)} problems"
    return replace(
        machine,
        device=replace(machine.device, load_bytes_per_second=each),
        fitted_to=tuple(sorted({*machine.fitted_to, *speeds})),
        provenance={**machine.provenance, "device.load_bytes_per_second": how},
        digest="",
    )


def _speed(machine: Machine, one: Measurement) -> float:
    """Bytes per second of one SM that explain the time of *one* beyond its launch, its memory and its tiles' ends."""
    problem, size = one.trial.problem, tile(one.trial.schedule["tile"])
    waves = -(-num_tiles(problem, str(size)) // machine.device.slots)
    memory_s = float(np.max(tiles.kernel_memory_seconds(machine, problem)))
    fixed_s = machine.costs.launch_seconds + waves * tiles.fixed_seconds(machine, "gemm") + memory_s
    loaded = waves * (size.m + size.n) * operator(problem.operator).extent(problem).contraction * problem.itemsize
    return loaded / max(one.time_s - fixed_s, one.time_s / 10)


# Curves of the library's settings: a machine's own curves, times what a sweep of the settings says they take of it.

OURS = (DEFAULT, WINDOWS, *CHANNELS)
"""Settings that `library_tuned` has."""
SETTINGS = {TUNED: OURS, **{limited(count): (f"{count} channels",) for count in LIMITED}}
"""By how a curve's name begins, the settings of which it is the fastest at each size."""


def with_tuned(machine: Machine, rows: Iterable[Row]) -> Machine:
    """*machine* with the curves of each collective that the sweep's *rows* have: of `library_tuned`, of few channels.

    ValueError where the sweep compares nothing, or has another world than the machine.
    """
    listed = list(rows)
    shares = {begins: _shares(listed, settings) for begins, settings in SETTINGS.items()}
    worlds = {world for _, world in shares[TUNED]}
    if worlds - {machine.max_world} or not worlds:
        raise ValueError(
            f"The sweep of NCCL's settings does not fit {machine.name}, which has {machine.max_world} GPUs: it "
            f"compares settings of {', '.join(map(str, sorted(worlds))) or 'no'} GPUs. Accepted: a file that "
            "`python -m tests.gpu.nccl_sweep` wrote on that machine."
        )
    for begins, of_setting in shares.items():
        machine = _with_curves(machine, begins, of_setting)
    return machine


def _with_curves(machine: Machine, begins: str, shares: Mapping[tuple[str, int], Mapping[float, float]]) -> Machine:
    made = [point for (name, world), taken in shares.items() for point in _curve(machine, begins, name, world, taken)]
    names = {point.name for point in made}
    kept = [one for one in machine.collectives if one.name not in names or one.world != machine.max_world]
    takes = "its fastest setting takes" if begins == TUNED else f"{SETTINGS[begins][0]} take"
    how = f"the curve of NCCL as it chooses, times what {takes} of it in a sweep, both in graphs"
    where = machine.provenance_of("collective").split(": ")
    sources = {f"collective.{name}": ": ".join([*where[:2], how]) for name in sorted(names)}
    provenance = {**machine.provenance, **sources}
    return replace(machine, collectives=(*kept, *made), provenance=provenance, digest="")


def _shares(rows: Iterable[Row], settings: Sequence[str]) -> dict[tuple[str, int], dict[float, float]]:
    """By collective and world, by bytes that leave each rank: the fastest of *settings* over the default."""
    times: dict[tuple[str, int], dict[float, dict[str, float]]] = {}
    for row in rows:
        if row.get("captured") and row["setting"] in (DEFAULT, *settings):
            name, world = row["collective"], int(row["world"])
            leaving = row["bytes"] * (world - 1) / world * (2 if name == "all_reduce" else 1)
            times.setdefault((name, world), {}).setdefault(leaving, {})[row["setting"]] = row["median_us"]
    fastest = {
        key: {leaving: min(each[name] for name in settings if name in each) / each[DEFAULT]
              for leaving, each in sizes.items() if DEFAULT in each and not each.keys().isdisjoint(settings)}
        for key, sizes in times.items()
    }  # fmt: skip
    return {key: taken for key, taken in fastest.items() if taken}


def _curve(machine: Machine, begins: str, name: str, world: int, taken: Mapping[float, float]) -> list[Collective]:
    """At the sizes of the machine's own curve and of the sweep; between two of these by the logarithm of the size."""
    measured = {one.num_bytes for one in machine.collectives if (one.name, one.world) == (name, world)}
    if not measured:
        return []
    sizes = np.array(sorted(measured | set(taken)))
    known = np.array(sorted(taken))
    shares = np.interp(np.log(sizes), np.log(known), [taken[size] for size in known])
    default = measured_seconds(machine, name, world, sizes)
    assert default is not None
    return [
        Collective(f"{begins}{name}", world, float(size), float(seconds))
        for size, seconds in zip(sizes, default * shares, strict=True)
    ]


# Calibrating a machine of GPUs: its probes run on this host or were run elsewhere; the file is written from them.

PROBES = "kernels.backends.triton.probes"
KIND = files.TextKind("file", "raw results of probes", f"what `python3 -m {PROBES}` wrote", most_bytes=2**28)
SWEEP = files.TextKind("file", "a sweep of NCCL's settings", "what `python -m tests.gpu.nccl_sweep` wrote")
SECONDS, QUICK_SECONDS = 100.0, 30.0
BEYOND_SECONDS = 90.0
"""For what the probes' processes need before they begin and after time is up."""


def probe(machine: Machine, seconds: float, raw: Path) -> None:
    """Runs the probes on this host's GPUs for about *seconds* into file *raw*, their table on standard error.

    Refusal where this host has too few GPUs: it names the command for the host that has them.
    """
    count = len(hosts.visible_gpus())
    if count < machine.max_world:
        raise Refusal(
            f"machine {machine.name} cannot be calibrated here. It has {machine.max_world} GPUs, but this host has "
            f"{count}: {count} < {machine.max_world}. Accepted: on the host that has them, `python3 -m {PROBES} "
            f"data/machines/{machine.name}.toml RAW.json {SECONDS:.0f}`, then here `workbench calibrate --probes "
            "RAW.json`."
        )
    with tempfile.TemporaryDirectory() as folder:
        expected = Path(folder) / f"{machine.name}.toml"
        expected.write_text(toml(machine))
        command = [sys.executable, "-m", PROBES, str(expected), str(raw), str(seconds), str(machine.max_world)]
        try:
            subprocess.run(command, stdout=sys.stderr, timeout=seconds + BEYOND_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            raise Failed(
                f"The probes of {machine.name} should take {seconds:.0f} s and still ran {BEYOND_SECONDS:.0f} s "
                f"later. Accepted: GPUs that nothing else uses. What was measured is in {raw}."
            ) from None


def calibrate_here(
    name: str, seconds: float, against: Iterable[str] = (), to: FileTarget | None = None
) -> tuple[Machine, Path]:
    """Probes machine *name* on this host's GPUs, and writes it fitted to what they tell."""
    place = machines.shipped_machine(name)
    raw = machines.calibrated_path(place.name).with_name(f"{place.name}_raw.json")
    raw.parent.mkdir(parents=True, exist_ok=True)
    probe(place, seconds, raw)
    return keep(fit(raw, against), to)


def fit(raw: Path, against: Iterable[str] = (), sweep: Path | None = None) -> Machine:
    """The machine that *raw* is of, fitted to it; its spread from those recordings *against* that are of it.

    What these tell of loads, which no probe times, is fitted to a part of them.

    *sweep*: what NCCL's settings took on the same machine, by which `library_tuned` is estimated.
    """
    content = _content(raw)
    place = machines.shipped_machine(str(content.get("machine")))
    raws = _Raw(content, place, None if sweep is None else _rows(sweep), measured(place.name, against))
    return checked(raws.machine(), list(raws.apart()), "each by a fit without its computation")


@dataclass(frozen=True, slots=True)
class _Raw:
    """What a machine is fitted to."""

    content: dict[str, Any]
    place: Machine
    sweep: Sequence[Mapping[str, Any]] | None
    recorded: Sequence[Measurement]

    def machine(self, but: str = "") -> Machine:
        """Fitted to all of it, or to all but computation *but*."""
        machine = fitted(self.content, self.place, but)
        if self.sweep is not None:
            machine = with_tuned(machine, self.sweep)
        return with_loads(machine, [one for one in self.recorded if computation(one.trial.problem) != but])

    def apart(self) -> Iterator[float]:
        """Measured over estimated times, each by a fit that knows nothing of its computation.

        So an interval is as wide as for problems that are new: times are nearer to the estimates of their own fit.
        """
        for name in sorted({computation(one.trial.problem) for one in self.recorded}):
            its_own = [one for one in self.recorded if computation(one.trial.problem) == name]
            yield from ratios(self.machine(name), its_own)


def carry(source: str, onto: str, against: Iterable[str] = (), *, links: bool = False) -> Machine:
    """Machine *onto* with each device of machine *source*, which has fewer of the same GPUs; *links*: its link, too."""
    machine = carried(machines.machine(source), machines.shipped_machine(onto), puts=links)
    return checked(machine, list(ratios(machine, measured(onto, against))), f"by devices of {source}")


def keep(machine: Machine, to: FileTarget | None) -> tuple[Machine, Path]:
    """Writes *machine* to file *to*, or beside the runs, from where it is preferred to the shipped one."""
    target = to or own(machine.name)
    return write(toml(machine), target), target.path


def measured(machine: str, names: Iterable[str]) -> list[Measurement]:
    """What recordings *names* tell of *machine* to fit: of calls in a row, as estimates are; of nothing held out."""
    recorded = [one.measurement for name in names for one in recordings.recordings(name)]
    return [one for one in recorded if one.trial.machine == machine and not one.trial.is_one_call
            and not held_out(one.trial.problem)]  # fmt: skip


def _rows(sweep: Path) -> list[dict[str, Any]]:
    content = files.text(sweep, SWEEP)
    try:
        rows = [files.parsed(line) for line in content.splitlines() if line.strip()]
    except ValueError as error:
        raise SWEEP.unreadable(sweep, error) from None
    if not all(isinstance(row, dict) for row in rows):
        raise SWEEP.unreadable(sweep, "a line is no object")
    return rows


def _content(raw: Path) -> dict[str, Any]:
    content = files.json_value(raw, KIND)
    if isinstance(content, dict) and isinstance(content.get("rows"), list):
        return content
    raise KIND.unreadable(raw, "it has no rows")
