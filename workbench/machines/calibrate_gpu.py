"""Calibration of GPUs: raw results of probes, from this host or another, become a machine file."""

from __future__ import annotations

import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from statistics import fmean, geometric_mean, quantiles
from typing import Any

import numpy as np

from cluster import hosts
from cluster.cpu_use import (
    CoreReading,
    GangOnHost,
    HostUse,
    Parties,
    by_party,
    client_process,
    core_reading,
    others_cores,
    parties,
    stolen_cores,
)
from kernels import files
from kernels.files import Failed
from kernels.machine import LIMITED, TUNED, Collective, Machine, Rate, limited, toml
from kernels.operators import operator, problem
from kernels.outcome import Measurement
from kernels.problem import Problem
from kernels.schedule import Refusal, tile
from kernels.schemes.base import num_tiles
from kernels.trial import MANY_CALLS
from workbench import machines
from workbench.machines import BusyComputer, calibrated_target, use_text, write
from workbench.results import recordings
from workbench.results.files import FileTarget
from workbench.results.quiet import is_busy
from workbench.results.rows import Row
from workbench.simulator.predict import predict
from workbench.simulator.price import tiles
from workbench.simulator.price.collectives import measured_seconds
from workbench.simulator.price.tiles import SKEWED, SKEWED_GATHER, fixed_seconds, tile_width, work_share

# Held-out problems, to which no machine is fitted: computations drawn with a committed seed, and one whole operator.

SEED = 43
"""The first of 0, 1, 2, ... that both holds out and keeps at least MIN_SHARE of the computations of every
operator that is not held out as a whole.

It was chosen by counting, before any estimate was seen.
"""
SHARE = 0.5
"""Probability that a computation is held out."""
MIN_SHARE = 0.4
"""Least share of an operator's computations; it holds for recordings of two H200s and for their probes."""
WHOLLY_HELD_OUT: Mapping[str, bool] = {"gemm_reduce_scatter": True}
"""Operators that are held out as a whole, to see the errors of estimates for a new operator."""


def held_out(of: Problem) -> bool:
    """Whether no machine may be fitted to *of*."""
    return WHOLLY_HELD_OUT.get(of.operator, False) or is_drawn(computation(of), SEED)


def is_unseen(of: Problem, machine: Machine) -> bool:
    """Whether nothing of *machine* was fitted to *of*."""
    return held_out(of) and problem_text(of) not in machine.fitted_to


def computation(of: Problem) -> str:
    """The computation of one rank of *of*, as text: equal for operators that differ only in their collective."""
    kind = operator(of.operator)
    extent = kind.extent(of)
    return f"{kind.work} {extent.rows} x {extent.columns} x {extent.contraction}"


@cache
def is_drawn(name: str, seed: int) -> bool:
    """Whether *seed* holds out the computation *name*; each has its own draw."""
    return random.Random(f"{seed}: {name}").random() < SHARE


# Fit of a machine to raw results of probes, with the source of each value.

UNFITTED_TITLE, FITTED_TITLE = "(datasheet only)", "(calibrated)"
"""Endings of a machine's title before and after its fit."""
WAYS = ("registers", "tma", "copy_engine")
"""Ways in which a put moves its bytes: stores of threads, bulk copies, or copy engines."""
RAMP_BEGINS = 1 << 18
"""Least bytes of a put whose time shows its speed; the time of smaller ones is fixed cost."""
BYTES_ARE_BYTES = ("float32", "bfloat16", "float16")
"""Dtypes of a curve of copies or lookups, whose speed depends on bytes alone."""
SAME_SPEED = {"bfloat16": ("bfloat16", "float16"), "float32": ("float32",)}
"""Dtypes for which a curve holds, by the measured one: both dtypes of 16 bits have one curve."""


def fitted(raw: Mapping[str, Any], machine: Machine, excluded: str = "") -> Machine:
    """*machine* fitted to the *raw* results; other values keep their provenance.

    Rows of problems that are held out (``held_out``) are ignored, and older curves from them are dropped; so are those
    of computation *excluded*. ValueError if *raw* is of another machine, or empty.
    """
    if raw.get("machine") != machine.name:
        raise ValueError(f"{machine.name} does not fit these raw results: they are of machine "
                         f"{raw.get('machine')!r}. Accepted: --machine {raw.get('machine')}.")  # fmt: skip
    known = [row for row in raw.get("rows", ()) if "refused" not in row]
    rows = [row for row in known if _is_fittable(row, int(raw["world"]), excluded)]
    if not rows:
        raise ValueError(f"{machine.name} cannot be fitted: the raw results hold 0 measurements. Accepted: the "
                         "file that the probes wrote, with rows.")  # fmt: skip
    for row in known:
        machine = machine if row in rows else _without_curves(machine, row)
    fit = _GpuFit(machine, rows, f"{raw['world']} x {raw['gpu']}, {raw['date'][:10]}", int(raw["world"]))
    for step in (_fixed_costs, _memory, _puts, _collectives, _tiles, _curves):
        step(fit)
    title = fit.machine.title.replace(UNFITTED_TITLE, FITTED_TITLE)
    shapes = {problem_text(_row_problem(fit, row)) for row in rows if "operator" in row}
    fit.machine = replace(fit.machine, fitted_to=tuple(sorted(shapes)))
    return replace(fit.machine, title=title, calibrated=f"{raw['date']} on {raw['host']}", digest="")


@dataclass
class _GpuFit:
    """A GPU machine during its fit."""

    machine: Machine
    rows: Sequence[Row]
    where: str
    world: int

    def of(self, probe: str, **facts: Any) -> list[Row]:
        """Rows of *probe* with these *facts*."""
        return [row for row in self.rows if row["probe"] == probe and all(row.get(k) == v for k, v in facts.items())]

    def seconds(self, probe: str, **facts: Any) -> float | None:
        """Time of the first row of *probe* with these *facts*, or None."""
        rows = self.of(probe, **facts)
        return float(rows[0]["seconds"]) if rows else None

    def set_provenance(self, key: str, how: str) -> None:
        """Set the provenance of the value of *key*."""
        source = {key: f"calibrated: {self.where}: {how}"}
        self.machine = replace(self.machine, provenance={**self.machine.provenance, **source})

    def cost(self, name: str, seconds: float | None, how: str) -> None:
        """Set one cost if it was measured."""
        if seconds is None:
            return
        changed: dict[str, Any] = {name: seconds}
        self.machine = replace(self.machine, costs=replace(self.machine.costs, **changed))
        self.set_provenance(f"costs.{name}", how)

    def link(self, name: str, value: float | None, how: str) -> None:
        """Set one property of the links if it was measured."""
        if value is None:
            return
        first, *others = self.machine.dimensions
        changed: dict[str, Any] = {name: value}
        self.machine = replace(self.machine, dimensions=(replace(first, **changed), *others))
        self.set_provenance(f"dimension.0.{name}", how)

    def curve(self, work: str, rates: Iterable[Rate], how: str) -> None:
        """Replace the curves of *work* for the dtypes of *rates*; rates of equal size and width become one point."""
        places: dict[tuple[str, float, float], list[float]] = {}
        for rate in rates:
            places.setdefault((rate.dtype, rate.width, rate.size), []).append(rate.per_second)
        if not places:
            return
        dtypes = {dtype for dtype, *_ in places}
        kept = tuple(rate for rate in self.machine.rates if rate.work != work or rate.dtype not in dtypes)
        added = tuple(Rate(work, dtype, size, geometric_mean(speeds), width)
                      for (dtype, width, size), speeds in sorted(places.items()))  # fmt: skip
        self.machine = replace(self.machine, rates=kept + added)
        for dtype in sorted(dtypes):
            self.set_provenance(f"rate.{work}.{dtype}", how)

    def forget(self, work: str, instead: str) -> None:
        """Drop the curve of *work* if there is one of *instead*."""
        if any(rate.work == instead for rate in self.machine.rates):
            rates = tuple(rate for rate in self.machine.rates if rate.work != work)
            sources = {key: how for key, how in self.machine.provenance.items() if not key.startswith(f"rate.{work}.")}
            self.machine = replace(self.machine, rates=rates, provenance=sources)

    @property
    def way_seconds(self) -> float:
        """Seconds from a signal's write until its peer continues."""
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
        fit.set_provenance("device.memory_bytes_per_second", "best of reads of 16 to 512 MiB, on all GPUs at once")
        least = min(fit.of("read"), key=lambda row: float(row["bytes"]))
        rest = _beyond(least, fit.machine.costs.launch_seconds) - least["bytes"] / max(reads)
        fit.cost("cold_seconds", max(0.0, rest), "the smallest read, beyond its launch and its bytes at full speed")
    launch = fit.machine.costs.launch_seconds
    copies = [(row["bytes"], row["bytes"] / _beyond(row, launch)) for row in fit.of("copy", by="library")]
    points = [Rate("copy", dtype, size, speed) for size, speed in copies for dtype in BYTES_ARE_BYTES]
    fit.curve("copy", points, "torch's copies inside a GPU")


def _beyond(row: Row, fixed_s: float) -> float:
    """Seconds of *row* less *fixed_s*, but at least a tenth of them: *fixed_s* is noisy."""
    return float(max(row["seconds"] - fixed_s, row["seconds"] / 10))


def _puts(fit: _GpuFit) -> None:
    """Set fixed costs and curves of puts; the fixed cost of a way is its extrapolated time for 0 bytes."""
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
        # a small put has little more than the fixed cost: the rest is noise, and no rate may exceed the link's
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
    """The rows with the most programs, by size."""
    most = max((row.get("programs", 0) for row in rows), default=0)
    return sorted((row for row in rows if row.get("programs", 0) == most), key=lambda row: row["bytes"])


def _fixed_of(ramp: Sequence[Row]) -> float:
    """Extrapolated seconds of a put of no bytes."""
    least = ramp[0]
    slopes = [(row["seconds"] - least["seconds"]) / (row["bytes"] - least["bytes"]) for row in ramp[1:]
              if row["bytes"] > least["bytes"]]  # fmt: skip
    per_byte = min((slope for slope in slopes if slope > 0), default=0.0)
    return float(max(0.0, least["seconds"] - least["bytes"] * per_byte))


def _collectives(fit: _GpuFit) -> None:
    rows = fit.of("nccl")
    if not rows:
        return
    timed = tuple(Collective(row["collective"], fit.world, row["wire_bytes"], row["seconds"]) for row in rows)
    names = {(call.name, call.world) for call in timed}
    kept = tuple(call for call in fit.machine.collectives if (call.name, call.world) not in names)
    fit.machine = replace(fit.machine, collectives=kept + timed)
    fit.set_provenance("collective", "NCCL as it chooses, calls captured in a graph, buffers of its own")
    exchanges = sorted(fit.of("nccl", collective="all_to_all"), key=lambda row: row["bytes"])
    if exchanges:
        small, large = exchanges[0], exchanges[-1]
        speed = large["wire_bytes"] / _beyond(large, small["seconds"])
        share = min(1.0, speed / fit.machine.dimensions[0].bandwidth_bytes_per_second)
        fit.cost("library_seconds", small["seconds"], "the smallest all-to-all")
        fit.cost("library_share", share, "the largest all-to-all, of the best put")


def _tiles(fit: _GpuFit) -> None:
    """Set the fixed cost of a tile: the time of a second wave at several contractions, extrapolated to 0."""
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


def problem_text(of: Problem) -> str:
    """A problem as text, as machine files list those that they were fitted to."""
    shape = " ".join(f"{key}={size}" for key, size in of.shape)
    return f"{of.operator} {shape} {of.dtype} on {of.world} ranks"


def _row_problem(fit: _GpuFit, row: Row) -> Problem:
    return _problem(row, fit.world)


def _problem(row: Row, world: int) -> Problem:
    return problem(row["operator"], row["shape"], dtype=row["dtype"], world=world)


def _is_fittable(row: Row, world: int, excluded: str) -> bool:
    """Whether a machine may be fitted to *row*; sizes of waves follow from the number of SMs, so none is held out."""
    if "operator" not in row or "waves" in row:
        return True
    of = _problem(row, world)
    return not held_out(of) and computation(of) != excluded


def _without_curves(machine: Machine, row: Row) -> Machine:
    """*machine* without the curves that may have *row* as a point: older fits held out no problems."""
    work = row["probe"]
    curves = {work, f"own_{work}", f"library_{work}", *([SKEWED_GATHER] if work == "gather" else [])}
    rates = tuple(rate for rate in machine.rates if rate.work not in curves)
    sources = {key: how for key, how in machine.provenance.items()
               if not any(key.startswith(f"rate.{name}.") for name in curves)}  # fmt: skip
    return replace(machine, rates=rates, provenance=sources)


def _tile_rates(fit: _GpuFit, rows: Iterable[Row]) -> Iterator[Rate]:
    """The rates of tiles with which estimates equal the measured times of these kernels."""
    for row in rows:
        of, size, slots = _row_problem(fit, row), tile(row["axes"]["tile"]), fit.machine.device.slots
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
    """Rows by the name of their curve: lookups with skewed indices have a separate one."""
    curves: dict[str, list[Row]] = {}
    for row in rows:
        skewed = row["shape"].get("indices") == SKEWED
        curves.setdefault(SKEWED_GATHER if skewed else row["probe"], []).append(row)
    return curves


def _call_rates(fit: _GpuFit, work: str, by: str) -> Iterator[Rate]:
    """Rates of whole calls of an implementation: *by* is `ours` or `library`."""
    for row in fit.of(work, by=by):
        of = _row_problem(fit, row)
        extent = operator(of.operator).extent(of)
        speed = row["flops"] / _beyond(row, fit.machine.costs.launch_seconds)
        for dtype in SAME_SPEED[of.dtype]:
            yield Rate("", dtype, row["flops"], speed, float(extent.rows if work == "gemm" else extent.columns))


def with_spread(machine: Machine, ratios: Sequence[float], how: str) -> Machine:
    """*machine* with the spread of *ratios*, measured over estimated times: a tenth is below, a tenth above it.

    *how* says in the provenance where they come from.
    """
    if len(ratios) < 2:
        return machine
    tenths = quantiles(ratios, n=10, method="inclusive")  # never beyond the measured ones, even if there are few
    source = f"calibrated: {len(ratios)} recorded trials, measured over estimated, mean {fmean(ratios):.2f}; {how}"
    return replace(machine, spread=(tenths[0], tenths[-1]), provenance={**machine.provenance, "spread": source})


def ratios(machine: Machine, measured: Iterable[Measurement]) -> Iterator[float]:
    """Measured over estimated times; trials that are refused today have no estimate, and are ignored."""
    for each in measured:
        with suppress(Refusal):
            yield each.time_s / predict(each.trial, machine, with_spans=False).time_s


# Carrying values of each device over to a machine with more of the same GPUs; its links stay unchanged.

PER_DEVICE = ("device.memory_bytes_per_second", "costs.launch_seconds", "costs.step_seconds", "costs.tile_seconds",
              "costs.signal_seconds", "costs.barrier_seconds", "costs.copy_engine_seconds",
              "costs.cold_seconds", "device.load_bytes_per_second", "device.loads_in_flight",
              "device.load_latency_seconds", "device.shared_bytes_per_second",
              "device.short_bytes_per_second", "device.results_bytes_per_second", "costs.own_kernel_seconds",
              "device.awaited_memory_share", "device.apart_memory_share", "device.gemv_step", "device.few_tokens_step",
              "device.gather_step", "costs.push_bytes_per_second",
              "costs.stream_seconds", "costs.computing_beside", "costs.sending_beside", "costs.library_tile_seconds",
              "costs.cluster_room", "costs.copy_engine_gap_seconds", "costs.streaming_beside",
              "dimension.0.latency_seconds")  # fmt: skip
"""Values that do not depend on the number of GPUs: of one GPU, or of a pair behind the same switch."""
PUT, SWITCH = "put_", "switch"
ITS_OWN_LINKS = "each GPU has links of its own to the switch, which were this fast with fewer GPUs behind it"
"""Provenance of rates of puts that are assumed for more GPUs."""


def carried(source: Machine, onto: Machine, *, puts: bool = False) -> Machine:
    """*onto* with the measured values of each device of *source*, which has fewer GPUs of the same kind.

    Behind a switch, puts are assumed to be as fast as in *source*. *puts*: they are known to be, and the link's
    bandwidth is carried over, too. The library's collectives are not carried over.
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
        title=onto.title.replace(UNFITTED_TITLE, "(devices calibrated, links not)" if not puts else FITTED_TITLE),
        provenance={**kept, **sources},
        fitted_to=source.fitted_to,
        calibrated=source.calibrated and f"{source.calibrated}, each device of {source.name}",
        digest="",
    )


def _rates(source: Machine, onto: Machine, *, puts: bool) -> Iterator[Rate]:
    """The curves of *source*; those of puts only if they are known or assumed to be as fast."""
    behind_switch = _behind_one_switch(source) and _behind_one_switch(onto)
    for rate in source.rates:
        if puts or behind_switch or not rate.work.startswith(PUT):
            yield rate


def _behind_one_switch(machine: Machine) -> bool:
    """Whether all GPUs of a host are behind one switch."""
    inside = machine.dimensions[0]
    return inside.topology == SWITCH and inside.count == machine.ranks_per_host


def _provenance(source: Machine, key: str, *, puts: bool) -> str:
    """The provenance of the value of *key* that is carried over from *source*."""
    where = f"{source.provenance_of(key)}; carried over from {source.name}"
    is_put = key.startswith(f"rate.{PUT}")
    return f"assumed: {ITS_OWN_LINKS}; {where}" if is_put and not puts else where


# Speed at which an SM loads operands, from recorded kernels of ours whose small tiles wait for loads.

WAITED_SHARE = 0.9
"""If an estimate without loads is below this share of the measured time, the kernel waits for loads."""


def with_loads(machine: Machine, measured: Iterable[Measurement]) -> Machine:
    """*machine* with the speed of loads, fitted to those of *measured* that are our GEMMs, computing alone."""
    without = replace(machine, device=replace(machine.device, load_bytes_per_second=0.0))
    speeds: dict[str, list[float]] = {}
    for each in measured:
        problem = each.trial.problem
        is_ours = each.trial.schedule.get("num_warps") is not None
        if each.trial.part != "compute" or not is_ours or held_out(problem):
            continue
        if (
            operator(problem.operator).work == "gemm"
            and predict(each.trial, without).time_s < WAITED_SHARE * each.time_s
        ):
            speeds.setdefault(problem_text(problem), []).append(_speed(without, each))
    if not speeds:
        return machine
    mean_speed = geometric_mean(speed for of_problem in speeds.values() for speed in of_problem)
    count = sum(map(len, speeds.values()))
    how = f"calibrated: {count} recorded kernels of ours that wait for loads, of {len(speeds)} problems"
    return replace(
        machine,
        device=replace(machine.device, load_bytes_per_second=mean_speed),
        fitted_to=tuple(sorted({*machine.fitted_to, *speeds})),
        provenance={**machine.provenance, "device.load_bytes_per_second": how},
        digest="",
    )


def _speed(machine: Machine, measured: Measurement) -> float:
    """Bytes per second of one SM that explain the *measured* time beyond launch, memory and fixed cost of tiles."""
    problem, size = measured.trial.problem, tile(measured.trial.schedule["tile"])
    waves = -(-num_tiles(problem, str(size)) // machine.device.slots)
    memory_s = float(np.max(tiles.kernel_memory_seconds(machine, problem)))
    fixed_s = machine.costs.launch_seconds + waves * tiles.fixed_seconds(machine, "gemm") + memory_s
    loaded = waves * (size.m + size.n) * operator(problem.operator).extent(problem).contraction * problem.itemsize
    return loaded / max(measured.time_s - fixed_s, measured.time_s / 10)


# Curves of the library's settings: a machine's curves times the shares from a sweep of settings.


def _settings() -> tuple[str, dict[str, tuple[str, ...]]]:
    """NCCL's usual setting; and settings by the beginning of a curve's name.

    At each size, a curve has the time of the fastest of its settings.
    """
    from kernels.backends.triton.nccl import CHANNELS, DEFAULT, WINDOWS  # with torch: a notebook imports this file

    few = {limited(count): (f"{count} channels",) for count in LIMITED}
    return DEFAULT, {TUNED: (DEFAULT, WINDOWS, *CHANNELS), **few}


def with_tuned(machine: Machine, rows: Iterable[Row]) -> Machine:
    """*machine* with curves of `library_tuned` and of few channels for each collective in the sweep's *rows*.

    ValueError if the sweep compares nothing, or has another world than the machine.
    """
    rows = list(rows)
    usual, settings_of = _settings()
    shares = {begins: _shares(rows, usual, settings) for begins, settings in settings_of.items()}
    worlds = {world for _, world in shares[TUNED]}
    if worlds - {machine.max_world} or not worlds:
        raise ValueError(
            f"The sweep of NCCL's settings does not fit {machine.name}, which has {machine.max_world} GPUs: it "
            f"compares settings of {', '.join(map(str, sorted(worlds))) or 'no'} GPUs. Accepted: a file that "
            "`python -m tests.gpu.nccl_sweep` wrote on that machine."
        )
    for begins, of_setting in shares.items():
        machine = _with_curves(machine, begins, settings_of[begins], of_setting)
    return machine


def _with_curves(machine: Machine, begins: str, settings: Sequence[str],
                 shares: Mapping[tuple[str, int], Mapping[float, float]]) -> Machine:  # fmt: skip
    points = [
        point for (name, world), by_size in shares.items() for point in _curve(machine, begins, name, world, by_size)
    ]
    names = {point.name for point in points}
    kept = [call for call in machine.collectives if call.name not in names or call.world != machine.max_world]
    takes = "its fastest setting takes" if begins == TUNED else f"{settings[0]} take"
    how = f"the curve of NCCL as it chooses, times what {takes} of it in a sweep, both in graphs"
    where = machine.provenance_of("collective").split(": ")
    sources = {f"collective.{name}": ": ".join([*where[:2], how]) for name in sorted(names)}
    provenance = {**machine.provenance, **sources}
    return replace(machine, collectives=(*kept, *points), provenance=provenance, digest="")


def _shares(rows: Iterable[Row], usual: str, settings: Sequence[str]) -> dict[tuple[str, int], dict[float, float]]:
    """The fastest of *settings* over the *usual* one, of times: by collective and world, then by bytes that leave."""
    times: dict[tuple[str, int], dict[float, dict[str, float]]] = {}
    for row in rows:
        if row.get("captured") and row["setting"] in (usual, *settings):
            name, world = row["collective"], int(row["world"])
            leaving = row["bytes"] * (world - 1) / world * (2 if name == "all_reduce" else 1)
            times.setdefault((name, world), {}).setdefault(leaving, {})[row["setting"]] = row["median_us"]
    fastest = {
        key: {leaving: min(each[name] for name in settings if name in each) / each[usual]
              for leaving, each in sizes.items() if usual in each and not each.keys().isdisjoint(settings)}
        for key, sizes in times.items()
    }  # fmt: skip
    return {key: by_size for key, by_size in fastest.items() if by_size}


def _curve(machine: Machine, begins: str, name: str, world: int, by_size: Mapping[float, float]) -> list[Collective]:
    """The curve at the sizes of the machine's curve and of the sweep; shares are interpolated by log size."""
    measured = {call.num_bytes for call in machine.collectives if (call.name, call.world) == (name, world)}
    if not measured:
        return []
    sizes = np.array(sorted(measured | set(by_size)))
    known = np.array(sorted(by_size))
    shares = np.interp(np.log(sizes), np.log(known), [by_size[size] for size in known])
    default = measured_seconds(machine, name, world, sizes)
    assert default is not None
    return [
        Collective(f"{begins}{name}", world, float(size), float(seconds))
        for size, seconds in zip(sizes, default * shares, strict=True)
    ]


# Calibration from probes to file.

PROBES = "kernels.backends.triton.probes"
KIND = files.TextKind("file", "raw results of probes", f"what `python3 -m {PROBES}` wrote", most_bytes=2**28)
SWEEP = files.TextKind("file", "a sweep of NCCL's settings", "what `python -m tests.gpu.nccl_sweep` wrote")
SECONDS, QUICK_SECONDS = 100.0, 30.0
BEYOND_SECONDS = 90.0
"""Extra time for starting and stopping the probes' processes."""


def refuse_without_gpus(machine: Machine) -> None:
    """Refusal if this host has too few GPUs for *machine*: it names the command for the host that has them."""
    count = len(hosts.visible_gpus())
    if count < machine.max_world:
        raise Refusal(
            f"machine {machine.name} cannot be calibrated here. It has {machine.max_world} GPUs, but this host has "
            f"{count}: {count} < {machine.max_world}. Accepted: on the host that has them, `python3 -m {PROBES} "
            f"data/machines/{machine.name}.toml RAW.json {SECONDS:.0f}`, then here `workbench calibrate --probes "
            "RAW.json`."
        )


def probe(machine: Machine, seconds: float, raw: Path) -> None:
    """Run the probes on this host's GPUs for about *seconds* into file *raw*, with their table on standard error."""
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


READ_SECONDS = 1.0
"""Length of the reading of this host's cores before the probes."""


@dataclass
class HostReading:
    """Who else uses this host's cores between its making and `use`: not this process, nor children that ended since."""

    first: CoreReading = field(default_factory=lambda: _counters())
    before: Parties = field(default_factory=lambda: _parties())

    def use(self) -> HostUse:
        """The use by others until now."""
        cores, last = hosts.allowed_cores(), _counters()
        others = others_cores(self.first, last, cores)
        stolen = stolen_cores(self.first, last)
        whom = by_party(self.before, _parties(), last.at - self.first.at, others, stolen)
        return HostUse("this host", cores, others, whom)


def _parties() -> Parties:
    """The parties of this host; ranks of any cluster are another gang."""
    host, process = client_process()
    return parties(GangOnHost(frozenset(), (host, process)))


def _counters() -> CoreReading:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return replace(core_reading(()), gang_s=sum(each.ru_utime + each.ru_stime for each in used))


def calibrate_here(
    name: str, seconds: float, against: Iterable[str] = (), to: FileTarget | None = None, *, busy: bool = False
) -> tuple[Machine, Path]:
    """Probe machine *name* on this host's GPUs, and write its fitted file.

    Raises Refusal if the host has too few GPUs, then BusyComputer where others use its cores, unless *busy* insists.
    The file says so if they did.
    """
    machine = machines.shipped_machine(name)
    refuse_without_gpus(machine)
    reading = HostReading()
    time.sleep(READ_SECONDS)
    if is_busy((before := reading.use()).share) and not busy:
        raise BusyComputer(name, f"Others use {use_text(before)}")
    raw = machines.calibrated_path(machine.name).with_name(f"{machine.name}_raw.json")
    raw.parent.mkdir(parents=True, exist_ok=True)
    reading = HostReading()
    probe(machine, seconds, raw)
    meanwhile, machine = reading.use(), fit(raw, against)
    if is_busy(meanwhile.share):
        machine = replace(machine, calibrated=f"{machine.calibrated}, on a busy computer: {use_text(meanwhile)}")
    return keep(machine, to)


def fit(raw: Path, against: Iterable[str] = (), sweep: Path | None = None) -> Machine:
    """The machine of *raw*, fitted to it, with a spread from those recordings *against* that are of this machine.

    The speed of loads, which no probe times, is fitted to some of these recordings.

    *sweep*: times of NCCL's settings on the same machine, for estimates of `library_tuned`.
    """
    content = _content(raw)
    shipped = machines.shipped_machine(str(content.get("machine")))
    recorded = fittable_measurements(shipped.name, against)
    inputs = _FitInputs(content, shipped, None if sweep is None else _rows(sweep), recorded)
    return with_spread(inputs.machine(), list(inputs.cross_validated_ratios()), "each by a fit without its computation")


@dataclass(frozen=True, slots=True)
class _FitInputs:
    """The raw results and recordings to which a machine is fitted."""

    content: dict[str, Any]
    shipped: Machine
    sweep: Sequence[Row] | None
    recorded: Sequence[Measurement]

    def machine(self, excluded: str = "") -> Machine:
        """The machine fitted to all inputs but those of computation *excluded*."""
        machine = fitted(self.content, self.shipped, excluded)
        if self.sweep is not None:
            machine = with_tuned(machine, self.sweep)
        return with_loads(machine, [each for each in self.recorded if computation(each.trial.problem) != excluded])

    def cross_validated_ratios(self) -> Iterator[float]:
        """Measured over estimated times, each by a fit without its computation.

        So the spread holds for new problems: times are nearer to estimates of a fit that includes them.
        """
        for name in sorted({computation(each.trial.problem) for each in self.recorded}):
            of_computation = [each for each in self.recorded if computation(each.trial.problem) == name]
            yield from ratios(self.machine(name), of_computation)


def carry(source: str, onto: str, against: Iterable[str] = (), *, links: bool = False) -> Machine:
    """Machine *onto* with device values of *source*, which has fewer of the same GPUs; *links*: its link, too."""
    machine = carried(machines.machine(source), machines.shipped_machine(onto), puts=links)
    return with_spread(machine, list(ratios(machine, fittable_measurements(onto, against))), f"by devices of {source}")


def keep(machine: Machine, to: FileTarget | None) -> tuple[Machine, Path]:
    """Write *machine* to file *to*, or to the runs folder, where it is preferred to the shipped one."""
    target = to or calibrated_target(machine.name)
    return write(toml(machine), target), target.path


def fittable_measurements(machine: str, names: Iterable[str]) -> list[Measurement]:
    """Measurements of *machine* in recordings *names* that may be fitted: many calls per graph, and not held out."""
    recorded = [each.measurement for name in names for each in recordings.recordings(name)]
    return [each for each in recorded if each.trial.machine == machine and each.trial.compared_as == MANY_CALLS
            and not held_out(each.trial.problem)]  # fmt: skip


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
