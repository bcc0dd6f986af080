"""All probes on all GPUs of this host, without Dask.

`python3 -m kernels.backends.triton.probes MACHINE.toml OUT.json SECONDS [WORLD]`: MACHINE.toml is what is expected.
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

# A row of raw results as a line for people: what was measured, how long it took, what was expected.

FACTS = ("way", "by", "collective", "pattern", "programs", "streams", "packets", "waves", "rows_under_way")


def title() -> str:
    """The head of the table."""
    return f"{'probe':64} {'measured':>11} {'low':>9} {'high':>9} {'expected':>10}  {'reached':>12}"


def line(row: Mapping[str, Any]) -> str:
    """One row."""
    words = [str(row[name]) for name in FACTS if name in row]
    if "shape" in row:
        words.append("x".join(map(str, row["shape"].values())))
    elif "bytes" in row:
        words.append(bytes_text(row["bytes"]))
    what = f"{row['probe']} {' '.join(words)}"
    if "refused" in row:
        return f"{what:64} refused: {row['refused']}"
    measured = f"{row['seconds'] * 1e6:9.3f}µs {row['low_s'] * 1e6:9.3f} {row['high_s'] * 1e6:9.3f}"
    return f"{what:64} {measured} {row['expected_s'] * 1e6:8.3f}µs  {speed(row):>12}"


def speed(row: Mapping[str, Any]) -> str:
    """What the time means: bytes or FLOP per second; nothing where a time is a time."""
    if row["probe"] == "gemm":
        return f"{row['flops'] / row['seconds'] / 1e12:.0f} TFLOP/s"
    moved = row.get("wire_bytes", row.get("bytes"))
    return f"{moved / row['seconds'] / 1e9:.0f} GB/s" if moved else ""


def bounds(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Each pooled lookup beside the faster read-only gather of the same indices, which bounds it."""
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
        mine_us, rows_us = ours[what] * 1e6, least[what] * 1e6
        yield f"lookup {what}: {mine_us:.1f} µs, rows alone {rows_us:.1f} µs: {rows_us / mine_us:.0%} of the bound"


# One rank of a calibration: all probes in order while there is time; rank 0 tells each result as it comes.

Emit = Callable[[dict[str, Any]], None]
FORMAT = 1
"""Of the raw results; rises when a reader has to know."""
SENTENCE_MOST = 400
T = TypeVar("T")


def measure(ground: ProbeRank, machine: Machine, limit_s: float, emit: Emit) -> None:
    """Runs the suite for about *limit_s* seconds; *emit* gets a dictionary per probe, on rank 0 only.

    A probe that cannot be prepared is told with its sentence and left out. `Hang` ends all: what was signalled until
    then is not known.
    """
    until = time.monotonic() + limit_s
    for probe in suite(ground.seat.world, ground.processors, machine):
        if _any(ground, time.monotonic() > until):
            return
        row = _measured(ground, probe)
        if ground.seat.rank == 0:
            emit(row)


def _any(ground: ProbeRank, mine: bool) -> bool:
    return any(value for (value,) in ground.exchange([float(mine)]))


def _measured(ground: ProbeRank, probe: Probe) -> dict[str, Any]:
    begin, about = time.monotonic(), {"probe": probe.name, **probe.facts, "expected_s": probe.expected_s}
    timed, refused = _told(lambda: probe.prepare(ground))
    if _any(ground, timed is None):
        return {**about, "refused": refused or "another rank refused it"}
    assert timed is not None
    mine, refused = _told(timed)
    failed = [bool(value) for (value,) in ground.exchange([float(mine is None)])]
    if all(failed):  # the same way on all, as a compiler does: nobody waits
        return {**about, "refused": refused}
    if any(failed):
        raise Hang(f"{probe.name} {probe.facts}: {refused or 'another rank failed'}")
    return {**about, **_statistics(ground, [seconds * probe.share for seconds in mine or ()]), **_state(ground.device),
            "wall_s": round(time.monotonic() - begin, 3)}  # fmt: skip


def _told(do: Callable[[], T]) -> tuple[T | None, str | None]:
    """What *do* returns, or what it raised as a sentence; `Hang` goes through, since signals are then out of step."""
    try:
        return do(), None
    except Hang:
        raise
    except Exception as error:  # libraries and compilers raise what they like; the other probes go on
        return None, f"{type(error).__name__}: {error}"[:SENTENCE_MOST]


def _statistics(ground: ProbeRank, mine: Sequence[float]) -> dict[str, Any]:
    """The slowest rank of each block; the block in the middle, and the extremes."""
    everyone = ground.exchange([*mine, *[nan] * (BLOCKS - len(mine))])
    blocks = [[seconds for seconds in one if not isnan(seconds)] for one in everyone]
    slowest = [max(each) for each in zip(*blocks, strict=True)]
    return {"seconds": median(slowest), "low_s": min(slowest), "high_s": max(slowest), "blocks": blocks}


def _state(device: torch.device) -> dict[str, float]:
    """Clock and power right after the last replay, where the driver tells them."""
    found, _ = _told(lambda: (torch.cuda.clock_rate(device) * 1e6, torch.cuda.power_draw(device) / 1e3))
    return dict(zip(("clock_hz", "power_w"), found, strict=True)) if found else {}


def provenance(machine: Machine) -> dict[str, Any]:
    """What is measured, with what, and when."""
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


# All probes on all GPUs of this host, without Dask.

RANK_LIMIT_S = 15.0
"""Longest wait of one rank for another."""
GRACE_S = 45.0
"""For imports, rendezvous, and the probe under way when time is up."""


def rank_main(seat: Seat, machine: Path, limit_s: float, events: Any) -> None:
    """One rank: rows of rank 0 and everybody's end go to the parent."""
    faulthandler.dump_traceback_later(limit_s + GRACE_S - RANK_LIMIT_S)  # where it hangs, if it does
    playground.take(seat.rank, seat.world)
    try:
        measure(ProbeRank(seat), load(machine), limit_s, lambda row: events.put(("row", row)))
    except Exception:  # told, whatever it is: the parent ends the others
        events.put(("broken", f"rank {seat.rank}: {traceback.format_exc()[-1500:]}"))
    events.put(("end", seat.rank))
    events.close()
    events.join_thread()
    os._exit(0)  # process groups may hang when one rank has gone


def run(machine: Path, out: Path, limit_s: float, world: int) -> list[str]:
    """Measures; *out* holds everything until now, whenever it is read. What broke, as sentences."""
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
    found = _gather(events, lambda: any(process.is_alive() for process in ranks), world, until,
                    RawFile(out, load(machine), world))  # fmt: skip
    for process in ranks:
        process.kill()
    return found


class RawFile:
    """The file of raw results, written whole again after every row."""

    def __init__(self, path: Path, machine: Machine, world: int) -> None:
        self._path = path
        self._content: dict[str, Any] = {**provenance(machine), "world": world, "broken": [], "rows": []}

    def add(self, kind: str, value: Any) -> None:
        """A row, or what broke."""
        self._content[kind].append(value)
        files.write(self._path, json.dumps(self._content, indent=1))


def refusal(machine: Path, out: Path) -> str | None:
    """Why *out* cannot be written: only older raw results are replaced."""
    if not out.exists():
        return None
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        if not machine.samefile(out) and isinstance(json.loads(out.read_text())["rows"], list):
            return None
    return f"{out} is there and holds no raw results of probes. Accepted: the name of a new file."


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
        broken.append(f"only {ended} of {world} ranks had ended in time")
        raw.add("broken", broken[-1])
    return broken


def main() -> int:
    """0 if nothing broke, 1 if something did, 2 where OUT.json must not be written."""
    machine, out, limit_s = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])
    world = int(sys.argv[4]) if len(sys.argv) > 4 else torch.cuda.device_count()
    if (sentence := refusal(machine, out)) is not None:
        print(sentence, file=sys.stderr)
        return 2
    print(title(), flush=True)
    broken = run(machine, out, limit_s, world)
    for sentence in bounds(json.loads(out.read_text())["rows"] if out.exists() else ()):
        print(sentence, flush=True)
    for sentence in broken:
        print("BROKEN", sentence, flush=True)
    return 1 if broken else 0
