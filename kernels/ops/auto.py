"""What a call without a schedule runs: the choice of a table, or of a measurement at set-up. All ranks agree on it.

By the table alone (kernels/schemes/auto.py) the same call makes the same choice, and so the same bits, in every run:
that is the default. A measurement decides between candidates that the table cannot rank; it may change bits from run to
run. Off means `FUSED`, which was the default of calls without a schedule before there was a table.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import torch

from kernels import files
from kernels.hardware import source_print, source_prints, versions
from kernels.machine import Machine
from kernels.ops.arguments import FUSED, GroupRanks, fabric_of
from kernels.problem import Problem
from kernels.schedule import Refusal, Schedule
from kernels.schemes import SCHEMES
from kernels.schemes import auto as auto_table

# Settings of this process, and what was chosen.

TABLE, MEASURED, OFF = "table", "measured", "off"
MODES = {
    TABLE: "the table alone, equal in every run",
    MEASURED: "the table, and where it cannot tell a measurement at set-up",
    OFF: f"always {FUSED} with the default of every axis",
}


@dataclass(frozen=True, slots=True)
class Chosen:
    """The schedule that calls of one problem run where they name none."""

    problem: Problem
    schedule: str
    reason: str
    seconds: Mapping[str, float] = field(default_factory=dict)
    """By schedule the seconds of a call, where candidates were measured."""
    setup_s: float = 0.0
    """Seconds that compilation and set-up of the measured candidates took."""

    def __str__(self) -> str:
        sizes = " ".join(f"{name}={value}" for name, value in self.problem.shape)
        return f"{self.problem.operator} {sizes}, {self.problem.world} ranks: {self.schedule}. {self.reason}"


_MODE = [TABLE]
_CHOSEN: dict[Problem, Chosen] = {}


def choose_by(mode: str) -> None:
    """Sets how calls without a schedule get one, before the first call of a group; all ranks alike.

    `table`, the default: by the table alone. `measured`: where the table cannot tell, two or three candidates are
    timed at the first call of a shape, which all ranks make together; results may then differ in their last bits from
    run to run. `off`: the fused schedule with its defaults.
    """
    if mode not in MODES:
        accepted = ", ".join(f"{name} ({meaning})" for name, meaning in MODES.items())
        raise Refusal(f"There is no mode {mode!r}. Accepted: {accepted}.")
    _MODE[0] = mode


def chosen() -> tuple[Chosen, ...]:
    """What calls without a schedule run in this process, in the order of their first calls; print it."""
    return tuple(_CHOSEN.values())


# One group's choices.


Measure = Callable[[Sequence[str]], Mapping[str, float]]
"""Seconds of a call of each schedule, on the slowest rank."""


@dataclass(slots=True)
class GroupChoices:
    """The choices of one group. All ranks make the same ones, in the same order."""

    ranks: GroupRanks
    machine: Machine
    offered: Collection[str]
    """The candidates that calls can run here."""

    def schedule(self, problem: Problem, measure: Measure) -> str:
        """The schedule of calls of *problem* that name none. Collective: all ranks call it together."""
        self._agree()
        if _MODE[0] == OFF:
            return self._keep(Chosen(problem, FUSED, "The choice is off."))
        legal = {name: str(made) for name in self.offered if (made := self.legal(name, problem)) is not None}
        table = auto_table.shipped()
        choice = auto_table.choose(problem, self.machine.device.name, table, list(legal), source_print("triton"))
        reason = f"By table {table.digest} of {table.made}: {choice.reason}"
        close = choice.close or (() if choice.source else tuple(legal))
        if _MODE[0] == TABLE or len(close) < 2:
            return self._keep(Chosen(problem, legal[choice.name], reason))
        return self._keep(self._measured(problem, [legal[name] for name in close], measure))

    def legal(self, name: str, problem: Problem) -> Schedule | None:
        """Candidate *name* for *problem*; None where it is not legal here."""
        return auto_table.legal_schedule(name, problem, self.machine, fabric_of(self.machine))

    def _keep(self, choice: Chosen) -> str:
        _CHOSEN[choice.problem] = choice
        return choice.schedule

    def _agree(self) -> None:
        """Raises Refusal where ranks would choose by different rules.

        They say so at every choice: a rank whose mode is as it was cannot know whether a peer's has changed.
        """
        here = f"{_MODE[0]}, table {auto_table.shipped().digest}"
        of_ranks = self.ranks.everyone(here)
        if len(set(of_ranks)) > 1:
            listed = "; ".join(f"rank {rank}: {there}" for rank, there in enumerate(of_ranks))
            raise Refusal(
                f"The {len(of_ranks)} ranks of one group choose schedules in {len(set(of_ranks))} ways ({listed}). "
                "Accepted: the same kernels.ops.choose_by(...) and the same table on all ranks."
            )

    def _measured(self, problem: Problem, close: Sequence[str], measure: Measure) -> Chosen:
        """What rank 0 decides, from an earlier measurement or a new one."""
        path = _path(problem, self.machine.device.name, close)
        kept = self.ranks.everyone(_read(path, close) if self.ranks.seat.rank == 0 else None)[0]
        since = time.perf_counter()
        seconds = dict(kept or measure(close))
        setup_s = 0.0 if kept else time.perf_counter() - since
        schedule = self.ranks.everyone(decided(seconds))[0]
        if self.ranks.seat.rank == 0 and not kept:
            with suppress(OSError):  # without a folder to write to, the next process measures again
                path.parent.mkdir(parents=True, exist_ok=True)
                files.write(path, json.dumps({"problem": problem.operator, "seconds": seconds}))
        times = ", ".join(f"{text} {1e6 * taken:.1f} us" for text, taken in seconds.items())
        when = "in an earlier process" if kept else f"at set-up, which took {setup_s:.1f} s with compilation"
        return Chosen(problem, schedule, f"Measured {when}: {times}.", seconds, setup_s)


NOISE = 0.02
"""Share by which a schedule must be faster to be taken before a simpler one; the spread of repeated blocks."""
_SIMPLE = tuple(SCHEMES)


def decided(seconds: Mapping[str, float]) -> str:
    """The simplest schedule among the fastest of *seconds*, those within NOISE of the best."""
    best = min(seconds.values())
    equal = [text for text, taken in seconds.items() if taken <= best * (1 + NOISE)]
    return min(equal, key=lambda text: (_SIMPLE.index(text.replace("(", " ").split()[0]), seconds[text]))


def _path(problem: Problem, hardware: str, close: Sequence[str]) -> Path:
    """Where the measurement of these schedules is kept, by everything that it depends on."""
    facts = [
        problem.operator,
        problem.shape,
        problem.dtype,
        problem.world,
        hardware,
        close,
        source_prints(),
        versions(),
    ]
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "overlap_workbench"
    return folder / f"auto_{hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]}.json"


def _read(path: Path, wanted: Sequence[str]) -> dict[str, float] | None:
    """The kept seconds of those of the *wanted* schedules that could be made then, or None."""
    try:
        seconds = json.loads(path.read_text())["seconds"]
        known = {text: float(seconds[text]) for text in wanted if text in seconds}
        return known if known and all(map(math.isfinite, known.values())) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


# Timing at set-up: in turns, so that clocks are the same for all.

BUDGET_S = 0.05
"""GPU time of all turns together."""
FEWEST_ROUNDS, MOST_ROUNDS = 3, 25
TURN_S = 0.5e-3
"""A turn of a GPU repeats short calls until it lasts about so long."""
MOST_CALLS = 16


def in_turns(calls: Mapping[str, Callable[[], Any]], device: torch.device, ranks: GroupRanks) -> dict[str, float]:
    """Median seconds of each of *calls*, on the slowest rank, timed in turns by all ranks together.

    Every call was made before, so that nothing is compiled here. Refusal where there is none.
    """
    if not calls:
        raise Refusal(
            "0 of the schedules to measure can be made here. Accepted: a schedule with the call; its refusal says why."
        )
    turns = [_graph_turn(call, device, ranks) if device.type == "cuda" else _host_turn(call) for call in calls.values()]
    warm = [turn() for turn, _ in turns]
    whole_s = max(ranks.everyone(sum(taken * count for taken, (_, count) in zip(warm, turns, strict=True))))
    rounds = min(max(int(BUDGET_S / whole_s), FEWEST_ROUNDS), MOST_ROUNDS)
    samples = [[turn() for turn, _ in turns] for _ in range(rounds)]
    medians = ranks.everyone([median(of_call) for of_call in zip(*samples, strict=True)])
    return dict(zip(calls, map(max, zip(*medians, strict=True)), strict=True))


Turn = tuple[Callable[[], float], int]
"""A function that makes so many calls and returns the seconds of one."""


def _host_turn(call: Callable[[], Any]) -> Turn:
    def turn() -> float:
        since = time.perf_counter()
        call()
        return time.perf_counter() - since

    return turn, 1


def _graph_turn(call: Callable[[], Any], device: torch.device, ranks: GroupRanks) -> Turn:
    """A CUDA graph of several calls: eager launches would take longer than short kernels."""
    eager_s = max(ranks.everyone(_between_events(call, device)))
    count = min(max(round(TURN_S / eager_s), 1), MOST_CALLS)
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        for _ in range(count):
            call()
    return lambda: _between_events(graph.replay, device) / count, count


def _between_events(call: Callable[[], Any], device: torch.device) -> float:
    """Seconds of GPU time between the begin and the end of *call*."""
    stream = torch.cuda.current_stream(device)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record(stream)
    call()
    end.record(stream)
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1e3
