"""Runs all probes on all GPUs of this host, without Dask.

`python3 -m kernels.backends.triton.probes MACHINE.toml OUT.json SECONDS [WORLD]`; MACHINE.toml gives expected times.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import multiprocessing
import os
import platform
import queue
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from math import isnan, nan
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import torch

from kernels import files
from kernels.backends.base import Hang, Seat
from kernels.backends.triton import playground
from kernels.backends.triton.memory import meeting_place
from kernels.backends.triton.probes.suite import BLOCKS, Probe, ProbeRank, suite
from kernels.hardware import source_print
from kernels.machine import Machine, load
from kernels.units import bytes_text

# A row of raw results as a line of text: probe, measured time, expected time.

LABEL_FACTS = ("way", "by", "collective", "pattern", "programs", "streams", "packets", "waves", "rows_under_way")


def title() -> str:
    """Header of the table."""
    return f"{'probe':64} {'measured':>11} {'low':>9} {'high':>9} {'expected':>10}  {'reached':>12}"


def line(row: Mapping[str, Any]) -> str:
    """One row of the table."""
    labels = [str(row[name]) for name in LABEL_FACTS if name in row]
    if "shape" in row:
        labels.append("x".join(map(str, row["shape"].values())))
    elif "bytes" in row:
        labels.append(bytes_text(row["bytes"]))
    what = f"{row['probe']} {' '.join(labels)}"
    if "refused" in row:
        return f"{what:64} refused: {row['refused']}"
    measured = f"{row['seconds'] * 1e6:9.3f}µs {row['low_s'] * 1e6:9.3f} {row['high_s'] * 1e6:9.3f}"
    return f"{what:64} {measured} {row['expected_s'] * 1e6:8.3f}µs  {speed(row):>12}"


def speed(row: Mapping[str, Any]) -> str:
    """The speed in bytes or FLOP per second; empty for a probe that measures a latency."""
    if row["probe"] == "gemm":
        return f"{row['flops'] / row['seconds'] / 1e12:.0f} TFLOP/s"
    moved = row.get("wire_bytes", row.get("bytes"))
    return f"{moved / row['seconds'] / 1e9:.0f} GB/s" if moved else ""


def bounds(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Compares each pooled lookup with the fastest read-only gather of the same indices, which bounds it."""
    least: dict[str, float] = {}
    ours: dict[str, float] = {}
    for row in rows:
        if row["probe"] != "gather" or "refused" in row:
            continue
        what = f"{row['dtype']} {' '.join(f'{key}={size}' for key, size in row['shape'].items())}"
        if row["by"] == "read_only":
            least[what] = min(row["seconds"], least.get(what, row["seconds"]))
        else:
            ours[what] = row["seconds"]
    for what in least.keys() & ours.keys():
        lookup_us, rows_us = ours[what] * 1e6, least[what] * 1e6
        yield f"lookup {what}: {lookup_us:.1f} µs, rows alone {rows_us:.1f} µs: {rows_us / lookup_us:.0%} of the bound"


# One rank of a calibration: all probes in order while there is time; rank 0 reports each result at once.

Emit = Callable[[dict[str, Any]], None]
FORMAT = 1
"""Version of the raw results; it rises with every change that readers have to handle."""
MESSAGE_CHARACTERS = 400
"""Most characters of a recorded error message."""
T = TypeVar("T")


def measure(probe_rank: ProbeRank, machine: Machine, limit_s: float, emit: Emit) -> None:
    """Runs the suite for about *limit_s* seconds; *emit* gets a dictionary per probe, on rank 0 only.

    A probe that cannot be prepared is reported with its error message. `Hang` ends the suite, since the state of the
    signals is then unknown.
    """
    until = time.monotonic() + limit_s
    for probe in suite(probe_rank.seat.world, probe_rank.processors, machine):
        if _any(probe_rank, time.monotonic() > until):
            return
        row = _measured(probe_rank, probe)
        if probe_rank.seat.rank == 0:
            emit(row)


def _any(probe_rank: ProbeRank, value: bool) -> bool:
    """Whether *value* is true on any rank."""
    return any(flag for (flag,) in probe_rank.exchange([float(value)]))


def _measured(probe_rank: ProbeRank, probe: Probe) -> dict[str, Any]:
    begin, about = time.monotonic(), {"probe": probe.name, **probe.facts, "expected_s": probe.expected_s}
    timed, refused = _attempt(lambda: probe.prepare(probe_rank))
    if _any(probe_rank, timed is None):
        return {**about, "refused": refused or "another rank refused it"}
    assert timed is not None
    times, refused = _attempt(timed)
    failed = [bool(value) for (value,) in probe_rank.exchange([float(times is None)])]
    if all(failed):  # it failed on all ranks, as a compiler error does: no rank is left waiting
        return {**about, "refused": refused}
    if any(failed):
        raise Hang(f"{probe.name} {probe.facts}: {refused or 'another rank failed'}")
    statistics = _statistics(probe_rank, [seconds * probe.share for seconds in times or ()])
    return {**about, **statistics, **_state(probe_rank.device), "wall_s": round(time.monotonic() - begin, 3)}


def _attempt(action: Callable[[], T]) -> tuple[T | None, str | None]:
    """The result of *action*, or its error message; raises `Hang` itself, since signals are then out of step."""
    try:
        return action(), None
    except Hang:
        raise
    except Exception as error:  # libraries and compilers raise any exception; the other probes go on
        return None, f"{type(error).__name__}: {error}"[:MESSAGE_CHARACTERS]


def _statistics(probe_rank: ProbeRank, times: Sequence[float]) -> dict[str, Any]:
    """Median, minimum and maximum of the slowest rank's time per block of calls, and all block times by rank."""
    everyone = probe_rank.exchange([*times, *[nan] * (BLOCKS - len(times))])
    blocks = [[seconds for seconds in by_block if not isnan(seconds)] for by_block in everyone]
    slowest = [max(each) for each in zip(*blocks, strict=True)]
    return {"seconds": median(slowest), "low_s": min(slowest), "high_s": max(slowest), "blocks": blocks}


def _state(device: torch.device) -> dict[str, float]:
    """Clock and power right after the last replay, if the driver reports them."""
    state, _ = _attempt(lambda: (torch.cuda.clock_rate(device) * 1e6, torch.cuda.power_draw(device) / 1e3))
    return dict(zip(("clock_hz", "power_w"), state, strict=True)) if state else {}


def provenance(machine: Machine) -> dict[str, Any]:
    """Machine, software and date of a calibration."""
    return {
        "format": FORMAT,
        "world": torch.cuda.device_count(),
        "gpu": torch.cuda.get_device_name(0) if torch.cuda.is_available() else None,
        "machine": machine.name,
        "machine_digest": machine.digest,
        "system": platform.platform(),
        "host": platform.node(),
        "versions": {
            "python": platform.python_version(),
            "cuda": torch.version.cuda,
            "nccl": ".".join(map(str, torch.cuda.nccl.version())) if torch.cuda.is_available() else None,
            **{name: metadata.version(name) for name in ("torch", "triton", "numpy")},
        },
        "source_print": source_print("triton"),
        "date": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()),
    }


# The processes of all ranks, and the file of results.

RANK_LIMIT_S = 15.0
"""Longest wait of one rank for another, in seconds."""
GRACE_S = 45.0
"""Seconds for imports, rendezvous, and the last probe when time is up."""


def rank_main(seat: Seat, machine: Path, limit_s: float, events: Any) -> None:
    """Runs one rank; it sends the rows of rank 0, failures, and its end to the parent process."""
    faulthandler.dump_traceback_later(limit_s + GRACE_S - RANK_LIMIT_S)  # shows where a hanging rank is
    playground.take(seat.rank, seat.world)
    try:
        measure(ProbeRank(seat), load(machine), limit_s, lambda row: events.put(("row", row)))
    except Exception:  # whatever it is, it is reported: the parent then ends the other ranks
        events.put(("broken", f"rank {seat.rank}: {traceback.format_exc()[-1500:]}"))
    events.put(("end", seat.rank))
    events.close()
    events.join_thread()
    os._exit(0)  # destroying a process group may hang when a rank has ended


def run(machine: Path, out: Path, limit_s: float, world: int) -> list[str]:
    """Measures and writes *out* after every row; returns a message for each failure."""
    context = multiprocessing.get_context("spawn")
    store = meeting_place()
    events = context.Queue()
    seats = [
        Seat(rank=rank, world=world, session="probes", shares_heap=True, deadline_s=RANK_LIMIT_S,
             rendezvous=("127.0.0.1", store.port))
        for rank in range(world)
    ]  # fmt: skip
    ranks = [context.Process(target=rank_main, args=(seat, machine, limit_s, events)) for seat in seats]
    for process in ranks:
        process.start()
    until = time.monotonic() + limit_s + GRACE_S
    broken = _gather(events, lambda: any(process.is_alive() for process in ranks), world, until,
                     RawFile(out, load(machine), world))  # fmt: skip
    for process in ranks:
        process.kill()
    return broken


class RawFile:
    """The file of raw results, rewritten after every row."""

    def __init__(self, path: Path, machine: Machine, world: int) -> None:
        self._path = path
        self._content: dict[str, Any] = {**provenance(machine), "world": world, "broken": [], "rows": []}

    def add(self, kind: str, value: Any) -> None:
        """Adds a row, or a failure (*kind* = rows or broken), and writes the file."""
        self._content[kind].append(value)
        files.write(self._path, json.dumps(self._content, indent=1))


def refusal(machine: Path, out: Path) -> str | None:
    """Why *out* must not be written, or None; only older raw results are replaced."""
    if not out.exists():
        return None
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        if not machine.samefile(out) and isinstance(json.loads(out.read_text())["rows"], list):
            return None
    return f"{out} exists and holds no raw results of probes. Accepted: the name of a new file."


def _gather(events: Any, alive: Callable[[], bool], world: int, until: float, raw: RawFile) -> list[str]:
    ended, broken = 0, []
    while ended < world and time.monotonic() < until:
        try:
            kind, value = events.get(timeout=1.0)
        except queue.Empty:
            if not alive():
                break
            continue
        if kind == "row":
            raw.add("rows", value)
            print(line(value), flush=True)
        elif kind == "broken":
            raw.add("broken", value)
            broken.append(value)
            until = min(until, time.monotonic() + RANK_LIMIT_S)
        else:
            ended += 1
    if ended < world:
        broken.append(f"only {ended} of {world} ranks ended in time")
        raw.add("broken", broken[-1])
    return broken


def main() -> int:
    """Runs the command; 0: no failure, 1: at least one failure, 2: OUT.json must not be written."""
    machine, out, limit_s = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])
    world = int(sys.argv[4]) if len(sys.argv) > 4 else torch.cuda.device_count()
    if (message := refusal(machine, out)) is not None:
        print(message, file=sys.stderr)
        return 2
    print(title(), flush=True)
    broken = run(machine, out, limit_s, world)
    for comparison in bounds(json.loads(out.read_text())["rows"] if out.exists() else ()):
        print(comparison, flush=True)
    for failure in broken:
        print("BROKEN", failure, flush=True)
    return 1 if broken else 0
