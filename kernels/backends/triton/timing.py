"""Timing with CUDA graphs: after a barrier of all ranks several calls run back to back over rotated operands.

Eager launches from a host take longer than many of these calls; a captured graph's nodes follow each other within a
microsecond. The GPU's clock (globaltimer) is read on the stream before the first and after the last call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from math import lcm
from typing import Any, NamedTuple, Protocol

import torch
import torch.distributed
from torch import Tensor

from kernels import trial
from kernels.backends.base import Ahead
from kernels.backends.triton.kernels.sync import meet, steps, write_now
from kernels.backends.triton.launch import Call
from kernels.units import seconds_text

# The GPU's clock (globaltimer): its tick is measured, since no time is more accurate than that.

READS = 50_000
"""Reads of the clock in one measurement: about a millisecond, many ticks even of a clock of one microsecond."""


@dataclass(frozen=True, slots=True)
class Clock:
    """Measured properties of one GPU's clock."""

    tick_s: float
    """Smallest difference of two readings that differ, in seconds."""
    read_s: float
    """Seconds of one reading."""

    def __str__(self) -> str:
        return f"ticks every {seconds_text(self.tick_s)}, read in {seconds_text(self.read_s)}"


@cache
def measured(device: torch.device) -> Clock:
    """The clock of *device*, measured once per process."""
    smallest_and_whole = torch.zeros(2, dtype=torch.int64, device=device)
    steps[(1,)](smallest_and_whole, READS, num_warps=1)
    smallest, whole = smallest_and_whole.tolist()
    return Clock(smallest / 1e9, whole / 1e9 / READS)


# The kernels of a captured graph with grid, shared memory and priority, as the driver reports them.


class Node(NamedTuple):
    """One kernel of a captured graph."""

    name: str
    blocks: int
    """Thread blocks of its grid."""
    threads: int
    """Threads of a thread block."""
    shared_bytes: int
    """Dynamic shared memory of a thread block, in addition to the kernel's static one."""
    priority: int
    """CUDA's: a lower number goes first."""


def kernels(graph: torch.cuda.CUDAGraph) -> list[Node]:
    """The kernels of *graph*, which was captured with `keep_graph`."""
    from cuda.bindings import driver

    whole = driver.CUgraph(graph.raw_cuda_graph())
    count = _values(driver.cuGraphGetNodes(whole))[1]
    listed = _values(driver.cuGraphGetNodes(whole, count))[0]
    kernel = driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_KERNEL
    return [_node(driver, each) for each in listed if _values(driver.cuGraphNodeGetType(each))[0] == kernel]


def _node(driver: Any, node: Any) -> Node:
    (parameters,) = _values(driver.cuGraphKernelNodeGetParams(node))
    attribute = driver.CUkernelNodeAttrID.CU_LAUNCH_ATTRIBUTE_PRIORITY
    (value,) = _values(driver.cuGraphKernelNodeGetAttribute(node, attribute))
    return Node(
        _name(driver, parameters),
        parameters.gridDimX * parameters.gridDimY * parameters.gridDimZ,
        parameters.blockDimX * parameters.blockDimY * parameters.blockDimZ,
        parameters.sharedMemBytes,
        value.priority,
    )


def _name(driver: Any, parameters: Any) -> str:
    """Name of the kernel; kernels of the CUDA runtime may have another handle than those of the driver."""
    for handle, name_of in ((parameters.func, driver.cuFuncGetName), (parameters.kern, driver.cuKernelGetName)):
        if int(handle):
            status, name = name_of(handle)
            if not status.value:
                return str(name.decode() if isinstance(name, bytes) else name)
    return "a kernel without a name"


def _values(answer: Sequence[Any]) -> Sequence[Any]:
    """The values that the driver returns after its status; RuntimeError if the status is an error."""
    status, *values = answer
    if status.value:
        raise RuntimeError(f"The captured graph cannot be read: {status.name}.")
    return values


def facts(nodes: Iterable[Node]) -> dict[str, list[dict[str, int]]]:
    """The different launches of *nodes* by kernel name, each with its count: recorded with a measurement."""
    counted: dict[Node, int] = {}
    for node in nodes:
        counted[node] = counted.get(node, 0) + 1
    by_name: dict[str, list[dict[str, int]]] = {}
    for node, count in counted.items():
        numbers = {name: value for name, value in node._asdict().items() if name != "name"}
        by_name.setdefault(node.name, []).append({**numbers, "count": count})
    return by_name


# A timed graph.


@cache
def load_after_meeting(device: torch.device) -> None:
    """Loads what a replay launches behind the meeting of its ranks, once a process and *device*.

    The first launch of a kernel loads its module, and that may wait for a kernel that spins at the meeting. Ranks that
    a thread of the host brings messages, with calls of the driver, would then wait for each other until the deadline.
    """
    if device.type != "cuda":  # the interpreter loads nothing
        return
    stamps = torch.zeros(2, dtype=torch.int64, device=device)
    for aligned_or_not in (stamps, stamps[1:]):  # Triton compiles another kernel for each
        write_now[(1,)](aligned_or_not, num_warps=1)
    stamps.copy_(stamps.clone())
    torch.cuda.synchronize(device)


GRAPH_SECONDS = 3e-3
"""Seconds of one replay, about, if the protocol does not set its number of calls; a sample is their mean."""
CALLS_MOST = 50


def turns(protocol: trial.Protocol, sets: int, typical_s: float) -> list[list[int]]:
    """By graph, the number of the operand set of each call: the calls rotate through all *sets*.

    A number of calls that the protocol leaves open is a multiple of *sets*, so that one graph uses all sets equally.
    If these calls would take much longer than GRAPH_SECONDS, several graphs share the sets.
    """
    count = protocol.calls_per_graph
    if not count:
        count = _open_count(sets, typical_s) if protocol.cuda_graph else sets
    return [[(graph * count + call) % sets for call in range(count)] for graph in range(lcm(sets, count) // count)]


def _open_count(sets: int, typical_s: float) -> int:
    """Calls of one graph, if the protocol leaves the number open."""
    count = min(CALLS_MOST, max(1, round(GRAPH_SECONDS / typical_s)))
    if sets * typical_s <= 1.5 * GRAPH_SECONDS:
        return max(sets, count // sets * sets)
    return max(each for each in range(1, count + 1) if sets % each == 0)


class BarrierMembers(Protocol):
    """What a barrier on the stream needs of a rank: a trial's Context, or the site of the probes."""

    rank: int
    world: int
    device: torch.device
    limit_ns: int
    met: Tensor
    """int32 [1]: number of barriers so far."""
    error: Tensor

    def addresses(self, name: str) -> Tensor:
        """int64 [W]: where tensor *name* lies on each rank."""


class StreamBarrier:
    """A barrier of all ranks on the current stream, at every call; all barriers of a trial share one count."""

    def __init__(self, context: BarrierMembers, stamp: Tensor | None = None) -> None:
        self._context, self._counters = context, context.addresses("meet")
        ignored = torch.zeros(1, dtype=torch.int64, device=context.device)
        self._stamp = ignored if stamp is None else stamp

    def __call__(self) -> None:
        context = self._context
        meet[(1,)](
            self._counters, context.met, context.error, context.limit_ns, self._stamp, context.rank,
            WORLD=context.world, num_warps=1,
        )  # fmt: skip


class LibraryBarrier:
    """A barrier of ranks on several hosts by an all-reduce of *group*, where no kernel puts: they need no GIN then.

    Like the collectives that it begins, it has no deadline: the cluster's watchdog gives the gang up.
    """

    def __init__(self, group: Any, stamp: Tensor) -> None:
        self._group, self._stamp = group, stamp
        self._word = torch.zeros(1, dtype=torch.int32, device=stamp.device)

    def __call__(self) -> None:
        dist: Any = torch.distributed
        dist.all_reduce(self._word, group=self._group)
        write_now[(1,)](self._stamp, num_warps=1)


class GraphReplay:
    """Several calls of one trial, captured once; all ranks replay them the same number of times."""

    def __init__(
        self, context: BarrierMembers, calls: Sequence[Call], stream: torch.cuda.Stream, *, captured: bool,
        before: Sequence[Call] = (), keeps_nodes: bool = False, barrier: Callable[[Tensor], Call] | None = None,
    ) -> None:  # fmt: skip
        """*before*: calls before the barrier of the ranks. *keeps_nodes*: whether `kernels` can be read.

        *barrier* makes another barrier than that of one host's ranks, for a stamp.
        """
        load_after_meeting(context.device)
        self._calls, self._before, self._stream = list(calls), list(before), stream
        self._stamps = torch.zeros(2, dtype=torch.int64, device=context.device)
        self._barrier: Call = StreamBarrier(context, self._stamps) if barrier is None else barrier(self._stamps)
        self._graph: torch.cuda.CUDAGraph | None = None
        if captured:
            self._graph = torch.cuda.CUDAGraph(keep_graph=True) if keeps_nodes else torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph, stream=stream):
                self._play()
            if keeps_nodes:
                self._graph.instantiate()

    def _play(self) -> None:
        for call in self._before:
            call()
        self._barrier()
        for call in self._calls:
            call()
        write_now[(1,)](self._stamps[1:], num_warps=1)

    def kernels(self) -> list[Node]:
        """The captured kernels."""
        return kernels(self._graph) if self._graph is not None else []

    def enqueue(self, stamps: Tensor | None = None) -> None:
        """Enqueues one replay and does not wait for it; *stamps* int64 [2] get its start and end in nanoseconds."""
        with torch.cuda.stream(self._stream):
            if self._graph is not None:
                self._graph.replay()
            else:
                self._play()
            if stamps is not None:
                stamps.copy_(self._stamps)

    def moments(self) -> tuple[int, int]:
        """Runs one replay; this GPU's clock in nanoseconds at the common start and after the last call."""
        self.enqueue()
        self._stream.synchronize()
        start, stop = self._stamps.tolist()
        return start, stop

    def seconds(self) -> float:
        """Runs one replay; seconds per call on this GPU's clock, from the common start."""
        return self.per_call(*self.moments())

    def per_call(self, start: int, stop: int) -> float:
        """Seconds per call of a replay that ran from *start* to *stop*, in nanoseconds."""
        return float((stop - start) / 1e9 / len(self._calls))


AHEAD_MOST = 64
"""Replays that are enqueued before the host waits: some 200 ms, and few launches for the driver's queue."""


def replayed_ahead(replays: Sequence[GraphReplay], stream: torch.cuda.Stream, stamps: Tensor) -> Ahead:
    """Enqueues all *replays*, one behind the other; *stamps* int64 [len(replays), 2] get their starts and ends.

    In a replay the ranks meet on the GPU, so the hosts need not meet between two of them.
    """
    for replay, stamp in zip(replays, stamps, strict=True):
        replay.enqueue(stamp)
    stream.synchronize()
    moments = stamps.tolist()
    busy = sum(stop - start for start, stop in moments)
    seconds = [replay.per_call(*each) for replay, each in zip(replays, moments, strict=True)]
    return Ahead(seconds, busy / max(1, moments[-1][1] - moments[0][0]))
