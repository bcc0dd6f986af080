"""Captured calls of one GPU, timed in turns: in bursts, with a pause before each replay, and steadily, without any.

A GPU that rests between replays runs a long GEMM at its highest clock; under steady load the power cap takes it lower.
Times of the two kinds are never compared with each other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import torch

from kernels.backends.triton.timing import BarrierMembers, GraphReplay, turns
from kernels.nvml import Meter
from kernels.trial import PROTOCOLS
from tests.gpu.recording import without_who

ROUNDS = 15
PAUSE_S = 0.01
"""Before each replay of a burst: the clock recovers."""
STEADY_S = 0.4
"""Load before the first steady replay counts: the power cap has taken hold."""
PROTOCOL = (f"world 1, graphs of about 3 ms over rotated operand sets, {ROUNDS} replays of each in turns: burst with "
            f"{PAUSE_S * 1e3:.0f} ms of rest before each, steady after {STEADY_S} s of load without a pause; low, "
            "median and high are the middle 80 %, in us")  # fmt: skip
MIDDLE = 0.1, 0.9


@dataclass(slots=True)
class TimedCalls:
    """The captured calls of one candidate, and its samples in seconds per call."""

    name: str
    replay: GraphReplay
    count: int
    """Calls of one replay."""
    facts: dict[str, Any] = field(default_factory=dict)
    burst: list[float] = field(default_factory=list)
    steady: list[float] = field(default_factory=list)

    def row(self) -> dict[str, Any]:
        """Its facts, and low, median and high of both kinds."""
        return {"name": self.name, **self.facts, "calls_per_graph": self.count,
                "burst": in_us(self.burst), "steady": in_us(self.steady)}  # fmt: skip


def in_us(seconds: Sequence[float]) -> list[float] | None:
    """Low, median and high of the middle 80 % in us; None without samples."""
    if not seconds:
        return None
    ordered, last = sorted(seconds), len(seconds) - 1
    low, high = (ordered[round(share * last)] for share in MIDDLE)
    return [round(1e6 * value, 3) for value in (low, median(ordered), high)]


def captured(
    name: str, context: BarrierMembers, calls: Sequence[Callable[[], Any]], stream: torch.cuda.Stream,
    facts: dict[str, Any] | None = None,
) -> TimedCalls:  # fmt: skip
    """*calls*, one for each set of operands, in a graph that takes about 3 ms."""
    first = GraphReplay(context, calls[:2], stream, captured=True)
    typical = min(first.seconds() for _ in range(3))
    numbers = turns(PROTOCOLS["default"], len(calls), typical)[0]
    replay = GraphReplay(context, [calls[number] for number in numbers], stream, captured=True)
    return TimedCalls(name, replay, len(numbers), facts or {})


def time_bursts(timed: Sequence[TimedCalls], rounds: int = ROUNDS) -> None:
    """*rounds* samples of each in turns; each round begins with another one."""
    for number in range(rounds):
        first = number % len(timed)
        for one in (*timed[first:], *timed[:first]):
            time.sleep(PAUSE_S)
            one.burst.append(one.replay.seconds())


def time_steadily(timed: Sequence[TimedCalls], meter: Meter, rounds: int = ROUNDS) -> dict[str, Any]:
    """*rounds* samples of each in turns, enqueued ahead; returns the state of the loaded GPU."""
    stamps = torch.zeros(rounds, len(timed), 2, dtype=torch.int64, device="cuda")
    begin = time.monotonic()
    while time.monotonic() - begin < STEADY_S:
        for one in timed:
            one.replay.enqueue()
        torch.cuda.synchronize()
    for one in timed:  # the meter reads while these run
        one.replay.enqueue()
    condition = meter.read()
    for number in range(rounds):
        for at, one in enumerate(timed):
            one.replay.enqueue(stamps[number, at])
    torch.cuda.synchronize()
    for at, one in enumerate(timed):
        one.steady += [(stop - start) / 1e9 / one.count for start, stop in stamps[:, at].tolist()]
    return without_who(condition)


def meter() -> Meter:
    """What reads this GPU's clocks and power."""
    gpu = torch.cuda.get_device_properties(0)
    return Meter(str(gpu.uuid), gpu.name)
