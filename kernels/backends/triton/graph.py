"""A timed graph: all ranks meet, several calls run back to back over rotated operands, and both moments are kept.

Eager launches from a host take longer than many of these calls; a captured graph's nodes follow each other in a
microsecond. The clock is the GPU's own (globaltimer), read by the stream before the first and after the last call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import lcm
from typing import Protocol

import torch
from torch import Tensor

from kernels import protocol
from kernels.backends.triton import nodes
from kernels.backends.triton.kernels.meet import meet, write_now

Call = Callable[[], None]

GRAPH_SECONDS = 3e-3
"""A sample is one replay of about this long, divided by its calls, where the protocol leaves that open."""
CALLS_MOST = 50


def turns(asked: protocol.Protocol, sets: int, typical_s: float) -> list[list[int]]:
    """By graph, the number of the set of operands that each of its calls takes: all *sets* come round in turn.

    An open number of calls is a multiple of *sets*, so that one graph takes all of them alike. Where these would take
    much longer than a graph should, several graphs share them.
    """
    count = asked.calls_per_graph
    if not count:
        count = _open_count(sets, typical_s) if asked.cuda_graph else sets
    return [[(graph * count + call) % sets for call in range(count)] for graph in range(lcm(sets, count) // count)]


def _open_count(sets: int, typical_s: float) -> int:
    """Calls of one graph, where the protocol leaves that open."""
    count = min(CALLS_MOST, max(1, round(GRAPH_SECONDS / typical_s)))
    if sets * typical_s <= 1.5 * GRAPH_SECONDS:
        return max(sets, count // sets * sets)
    return max(each for each in range(1, count + 1) if sets % each == 0)


class Met(Protocol):
    """Whose ranks meet: a trial's Context, or the site of the probes."""

    rank: int
    world: int
    device: torch.device
    limit_ns: int
    met: Tensor
    """int32 [1]: how often they have met."""
    error: Tensor

    def addresses(self, name: str) -> Tensor:
        """int64 [W]: where tensor *name* lies on each rank."""


class Meeting:
    """All ranks meet on the current stream, as often as it is called: of one trial on one count, whoever calls it."""

    def __init__(self, context: Met, stamp: Tensor | None = None) -> None:
        self._context, self._counters = context, context.addresses("meet")
        unread = torch.zeros(1, dtype=torch.int64, device=context.device)
        self._stamp = unread if stamp is None else stamp

    def __call__(self) -> None:
        context = self._context
        meet[(1,)](
            self._counters, context.met, context.error, context.limit_ns, self._stamp, context.rank,
            WORLD=context.world, num_warps=1,
        )  # fmt: skip


class Replay:
    """Some calls of one trial, captured once; all ranks replay it the same number of times."""

    def __init__(
        self, context: Met, calls: Sequence[Call], stream: torch.cuda.Stream, *, captured: bool,
        before: Sequence[Call] = (), kept: bool = False,
    ) -> None:  # fmt: skip
        """*before*: calls that come before the ranks meet. *kept*: `kernels` can be asked for."""
        self._calls, self._before, self._stream = list(calls), list(before), stream
        self._stamps = torch.zeros(2, dtype=torch.int64, device=context.device)
        self._meeting = Meeting(context, self._stamps)
        self._graph: torch.cuda.CUDAGraph | None = None
        if captured:
            self._graph = torch.cuda.CUDAGraph(keep_graph=True) if kept else torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph, stream=stream):
                self._play()
            if kept:
                self._graph.instantiate()

    def _play(self) -> None:
        for call in self._before:
            call()
        self._meeting()
        for call in self._calls:
            call()
        write_now[(1,)](self._stamps[1:], num_warps=1)

    def kernels(self) -> list[nodes.Node]:
        """Those that were captured."""
        return nodes.kernels(self._graph) if self._graph is not None else []

    def enqueue(self) -> None:
        """One replay, which is not waited for."""
        with torch.cuda.stream(self._stream):
            if self._graph is not None:
                self._graph.replay()
            else:
                self._play()

    def moments(self) -> tuple[int, int]:
        """One replay: this rank's clock in nanoseconds at the common start and after the last call."""
        self.enqueue()
        self._stream.synchronize()
        start, stop = self._stamps.tolist()
        return start, stop

    def seconds(self) -> float:
        """One replay: seconds of one call, on this rank's clock from the common start."""
        start, stop = self.moments()
        return float((stop - start) / 1e9 / len(self._calls))
