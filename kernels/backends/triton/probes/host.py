"""All probes on all GPUs of this host, without Dask.

`python3 -m kernels.backends.triton.probes MACHINE.toml OUT.json SECONDS [WORLD]`: MACHINE.toml is what is expected.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import multiprocessing
import os
import queue
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from kernels import files
from kernels.backends.base import Seat
from kernels.backends.triton import own_gpu
from kernels.backends.triton.heap import meeting_place
from kernels.backends.triton.probes.ground import Ground
from kernels.backends.triton.probes.measure import measure, provenance
from kernels.backends.triton.probes.table import bounds, line, title
from kernels.machine import Machine
from kernels.machine_file import load

RANK_LIMIT_S = 15.0
"""Longest wait of one rank for another."""
GRACE_S = 45.0
"""For imports, rendezvous, and the probe under way when time is up."""


def rank_main(seat: Seat, machine: Path, limit_s: float, events: Any) -> None:
    """One rank: rows of rank 0 and everybody's end go to the parent."""
    faulthandler.dump_traceback_later(limit_s + GRACE_S - RANK_LIMIT_S)  # where it hangs, if it does
    own_gpu.take(seat.rank, seat.world)
    try:
        measure(Ground(seat), load(machine), limit_s, lambda row: events.put(("row", row)))
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
                    Raw(out, load(machine), world))  # fmt: skip
    for process in ranks:
        process.kill()
    return found


class Raw:
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


def _gather(events: Any, alive: Callable[[], bool], world: int, until: float, raw: Raw) -> list[str]:
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
