"""What one GPU's clock and power do under work of each kind, and bursts beside protocol `steady`.

`python -m tests.gpu.steady OUT.jsonl [probes|gemms|others ..]`, on one GPU, takes eight minutes at most: what is not
begun by then is left out, and named. First comes the provenance, then a line for each probe, then a recording's lines.

Readings are NVML's, ten a second, with power at the instant. It took four minutes on an H100 (2026-11-28).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
import triton
import triton.language as tl

from kernels.backends.base import Seat
from kernels.backends.triton import device
from kernels.bench import Bench
from kernels.fabric import parse
from kernels.machine import Machine
from kernels.operators import problem
from kernels.outcome import Gather, Measurement, Sample
from kernels.problem import Problem
from kernels.regime import of_readings
from kernels.schemes import schedule
from kernels.steady import FLAT_SECONDS, Sampler, is_flat
from kernels.trial import PROTOCOLS, Trial
from tests.gpu import against_cublas, in_turns
from tests.gpu.recording import provenance, recorded, told, without_who
from tests.gpu.tables import machine_here
from workbench.machines import machine

BUDGET_S = 440.0
"""No probe and no block begins later: a block takes about half a minute."""
LOAD_S, REST_S = 4.0, 1.0
"""Seconds of each probe, and of rest before it: each begins with the clock that an idle card has."""
SETTLING_S = 12.0
"""Seconds of the probe that shows how long a clock takes to settle."""
LAST_S = 2.0
"""The last seconds of a probe, of which its clock and power are."""
PERIOD_S = 0.02
"""Seconds of one cycle of work and rest: shorter than NVML refreshes, so that its power is the mean of both."""
DUTIES = (0.25, 0.5, 0.75)
FABRIC = parse("nvlink")
SIDES = ((4096, 4096, 4096), (8192, 8192, 7168))
"""m, n, k of the probes' GEMMs."""
SHAPES = (
    (8192, 4096, 1792), (4096, 4096, 4096), (8192, 8192, 8192), (2048, 8192, 7168), (8192, 8192, 7168),
    (4096, 14336, 4096), (1024, 8192, 8192), (128, 7168, 8192),
)  # fmt: skip
"""m, n, k of both protocols: four that were timed before with five pauses, and four more; the last waits for memory."""
WAITING: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("gemv_all_reduce", {"n": 8192, "k": 28672, "tokens": 4}, "bfloat16"),
    ("embedding_all_to_all", {"tables_per_rank": 16, "rows": 100_000, "dim": 128, "batch": 4096, "pooling": 64},
     "float32"),
)  # fmt: skip
"""Operator, shape and dtype of work that waits for memory: its two regimes may not differ."""
GEMMS, OTHERS, PROBES = "gemms", "others", "probes"
PARTS = (PROBES, GEMMS, OTHERS)

# Probes: one kind of work without a pause, or with rests, and the readings meanwhile.


@dataclass(frozen=True, slots=True)
class Probe:
    """One kind of work, which is enqueued and waited for."""

    name: str
    work: Callable[[], Any] | None
    """Some milliseconds of work, waited for; None rests."""
    calls: int = 1
    """Calls that one piece of work makes."""
    amount: float = 0.0
    """FLOP or bytes of a call."""
    duty: float = 1.0
    """Share of each PERIOD_S for which it works."""
    seconds: float = LOAD_S


@dataclass(frozen=True, slots=True)
class Clock:
    """The host's clock, which a test replaces."""

    now: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep


def probed(probe: Probe, sampler: Any, clock: Clock) -> dict[str, Any]:
    """The row of *probe*: its rate, and the medians of clock and power in its last seconds, with all readings."""
    clock.sleep(REST_S)
    begin, runs, busy_s = clock.now(), 0, 0.0
    while (now := clock.now()) - begin < probe.seconds:
        if probe.work is None:
            clock.sleep(PERIOD_S)
            continue
        while clock.now() - now < probe.duty * PERIOD_S:
            probe.work()
            runs += 1
        busy_s += clock.now() - now
        if probe.duty < 1:
            clock.sleep(max(0.0, (1 - probe.duty) * PERIOD_S))
    end = clock.now()
    readings = sampler.between(begin, end)
    last = [each for each in readings if each["at"] >= end - LAST_S]
    per_call = busy_s / (runs * probe.calls) if runs else None
    regime = of_readings(last)
    return {
        "probe": probe.name, "duty": probe.duty if probe.work else 0.0, "runs": runs, "seconds_per_call": per_call,
        "calls": probe.calls, "seconds": round(end - begin, 3),
        "per_second": probe.amount / per_call if per_call and probe.amount else None,
        **{name: _median(last, name) for name in ("sm_clock_mhz", "memory_clock_mhz", "power_now_watts",
                                                  "temperature_celsius")},
        "regime": regime.name, "why": regime.why, "settled_s": settled_s(readings, begin),
        "readings": [{**without_who(each), "at": round(each["at"] - begin, 3)} for each in readings],
    }  # fmt: skip


def _median(readings: Sequence[dict[str, Any]], name: str) -> float | None:
    values = [each[name] for each in readings if name in each]
    return float(median(values)) if values else None


def settled_s(readings: Sequence[dict[str, Any]], begin: float) -> float | None:
    """Seconds after *begin* at which the clock was flat for good; None where it never was, or nobody read it."""
    first: float | None = None
    for each in readings:
        flat = is_flat(readings, each["at"]) if each["at"] - begin >= 2 * FLAT_SECONDS else False
        first = (each["at"] if first is None else first) if flat else None
    return None if first is None else round(first - begin, 3)


def all_probed(
    probes: Sequence[Callable[[], Probe]], sampler: Any, clock: Clock, until: float
) -> Iterator[dict[str, Any]]:
    """The rows of *probes*, each made when it begins, one for each that failed, and one that says what was left out."""
    left = 0
    for make in probes:
        if clock.now() > until:
            left += 1
            continue
        try:
            yield probed(make(), sampler, clock)
        except Exception as error:  # out of memory, a kernel that does not compile: the others go on
            yield {"probe": getattr(make, "args", ("",))[0], "error": f"{type(error).__name__}: {error}"}
    if left:
        yield {"probe": "left out", "count": left, "why": f"no time was left of {BUDGET_S:g} s"}


# The work of each probe, on the first GPU.


@triton.jit
def spin(signal, until_ns, SLEEP: tl.constexpr):
    """Polls *signal* for *until_ns* nanoseconds in every program, with or without a nanosleep between two reads."""
    begin = device.now()
    raised = tl.load(signal, volatile=True)
    while (device.now() - begin < until_ns) & (raised == 0):
        if SLEEP:
            tl.inline_asm_elementwise(
                "nanosleep.u32 200; mov.u32 $0, 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1
            )
        raised = tl.load(signal, volatile=True)


def waited(work: Callable[[], Any], times: int) -> Callable[[], None]:
    """*times* calls of *work* in a captured graph, which is waited for."""
    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(times):
            work()

    def replayed() -> None:
        graph.replay()
        torch.cuda.synchronize()

    return replayed


def operand(values: str, rows: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
    """A matrix of zeros, of ones, or of standard normal numbers."""
    if values == "normal":
        return torch.randn(rows, columns, dtype=dtype, device="cuda")
    return torch.full((rows, columns), float(values == "constant"), dtype=dtype, device="cuda")


def gemm(name: str, sides: tuple[int, int, int], values: str, dtype: torch.dtype, **more: Any) -> Probe:
    """cuBLAS on operands of *values*."""
    m, n, k = sides
    a, b = operand(values, m, k, dtype), operand(values, k, n, dtype)
    out, flop = torch.empty(m, n, dtype=dtype, device="cuda"), 2.0 * m * n * k
    times = max(1, round(2e12 / flop))  # about 3 ms
    return Probe(name, waited(partial(torch.mm, a, b, out=out), times), times, flop, **more)


def tiled(name: str, tile: str, on: Machine) -> Probe:
    """Our kernel with tiles of size *tile*, on standard normal operands."""
    of = against_cublas.gemm(*SIDES[0])
    one = schedule(of, "fused", {"tile": tile}, on, FABRIC)
    (timed,) = against_cublas.prepared(of, [one], against_cublas.operands_of(of))
    return Probe(name, timed.replay.seconds, timed.count, 2.0 * SIDES[0][0] * SIDES[0][1] * SIDES[0][2])


def copies(name: str, num_bytes: int) -> Probe:
    """Copies that read and write *num_bytes* each; few bytes stay in the L2."""
    source = torch.zeros(num_bytes, dtype=torch.uint8, device="cuda")
    to, times = torch.empty_like(source), max(1, 2**33 // num_bytes // 4)
    return Probe(name, waited(partial(to.copy_, source), times), times, 2.0 * num_bytes)


def reads(name: str, num_bytes: int) -> Probe:
    """Sums of *num_bytes*, which stay in the L2."""
    source = torch.ones(num_bytes // 4, dtype=torch.float32, device="cuda")
    out, times = torch.empty((), device="cuda"), 200
    return Probe(name, waited(lambda: torch.sum(source, dim=0, out=out), times), times, float(num_bytes))


def spins(name: str, sleeps: bool) -> Probe:
    """One program on every SM polls a signal that never comes, for a millisecond."""
    signal = torch.zeros(1, dtype=torch.int32, device="cuda")
    grid = (torch.cuda.get_device_properties(0).multi_processor_count,)
    return Probe(name, waited(lambda: spin[grid](signal, 1_000_000, SLEEP=sleeps, num_warps=4), 3), 3)


def probes(on: Machine) -> list[Callable[[], Probe]]:
    """All probes, the ones that matter most first."""
    half, usual = torch.float16, torch.bfloat16
    made: list[Callable[[], Probe]] = [
        partial(gemm, "gemm settling", SIDES[1], "normal", usual, seconds=SETTLING_S), partial(Probe, "idle", None),
    ]  # fmt: skip
    for sides in SIDES:
        size = "x".join(map(str, sides))
        made += [partial(gemm, f"gemm {size} bfloat16 {values}", sides, values, usual)
                 for values in ("normal", "constant", "zeros")]  # fmt: skip
    made += [
        partial(gemm, "gemm 4096x4096x4096 float16 normal", SIDES[0], "normal", half),
        partial(spins, "spin", False), partial(spins, "spin with nanosleep", True),
        partial(copies, "copy 2 GiB", 2**31), partial(reads, "L2 read 16 MiB", 2**24),
    ]  # fmt: skip
    made += [partial(gemm, f"gemm duty {duty:g}", SIDES[0], "normal", usual, duty=duty) for duty in DUTIES]
    made += [partial(tiled, f"tile {tile}", tile, on) for tile in ("128x256x64", "128x128x64", "64x128x64")]
    return made


# Both protocols, through the bench of one rank.


def problems(parts: Sequence[str]) -> list[Problem]:
    """What is timed in both protocols, of *parts*: GEMMs, and work that waits for memory."""
    of = [problem("gemm_all_to_all", dict(zip("mnk", sides, strict=True)), dtype="bfloat16", world=1)
          for sides in SHAPES if GEMMS in parts]  # fmt: skip
    if OTHERS in parts:
        of += [problem(name, shape, dtype=dtype, world=1) for name, shape, dtype in WAITING]
    return of


def trials(of: Problem, name: str, on: Machine) -> list[Trial]:
    """Both schedules of *of*, timed in one block by the protocol called *name*."""
    return [Trial(problem=of, schedule=schedule(of, scheme, {}, on, FABRIC), backend="triton",
                  machine=on.name, fabric=FABRIC, protocol=PROTOCOLS[name])
            for scheme in ("sequential", "fused")]  # fmt: skip


def lines(bench: Any, events: list[Any], facts: dict[str, Any], clock: Clock, until: float,
          some: Sequence[Problem]) -> Iterator[str]:  # fmt: skip
    """A recording's line of every trial that *bench*, which appends to *events*, has measured; a text on the screen."""
    on = machine(facts["machine"])
    for number, of in enumerate(some):
        for name in ("default", "steady"):
            if clock.now() > until:
                print(f"{of} {name}: left out, no time was left of {BUDGET_S:g} s", flush=True)
                continue
            events.clear()
            block = trials(of, name, on)
            bench.run(block)
            for trial in block:
                yield from _lines(trial, events, facts, f"steady.p{number + 1}.{name}")


def _lines(trial: Trial, events: Sequence[Any], facts: dict[str, Any], block: str) -> Iterator[str]:
    gather = Gather(trial)
    fed = [gather.feed(event) for event in events if event["trial"] == trial.key]
    samples = [each for each in fed if isinstance(each, Sample)]
    for outcome in fed:
        if isinstance(outcome, Measurement):
            print(told(outcome), outcome.regime, flush=True)
            yield recorded(outcome, samples, facts, block=block)
        elif outcome is not None and not isinstance(outcome, Sample):
            print(told(outcome), flush=True)


def main(out: Path, parts: Sequence[str]) -> None:
    """Probes, then both protocols."""
    clock = Clock()
    until = clock.now() + BUDGET_S
    meter, on = in_turns.meter(), machine_here()
    facts = provenance(on.name) | {"launched_by": "tests/gpu/steady.py, one process", "limits": meter.limits()}
    with out.open("w") as file:
        print(json.dumps({"provenance": facts}), file=file, flush=True)
        with Sampler(lambda: meter.read() | meter.limits()) as sampler:
            chosen = probes(on) if PROBES in parts else []
            for row in all_probed(chosen, sampler, clock, until - BUDGET_S / 2):
                print(json.dumps(row, separators=(",", ":")), file=file, flush=True)
                print({name: value for name, value in row.items() if name != "readings"}, flush=True)
                torch.cuda.empty_cache()
        events: list[Any] = []
        bench = Bench(Seat(rank=0, world=1, session=f"steady-{int(clock.now())}", shares_heap=True), events.append)
        for line in lines(bench, events, facts, clock, until, problems(parts)):
            print(line, file=file, flush=True)
        bench.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:] or PARTS)
