"""A timed graph: all ranks meet, several calls run back to back over rotated operands, and both moments are kept.

Eager launches from a host take longer than many of these calls; a captured graph's nodes follow each other in a
microsecond. The clock is the GPU's own (globaltimer), read by the stream before the first and after the last call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module, util
from math import lcm
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from kernels import trial
from kernels.backends.triton.kernels.sync import meet, steps, write_now
from kernels.units import seconds_text

# The GPU's clock (globaltimer), measured before it is trusted: no moment is known better than its tick.

READS = 50_000
"""About a millisecond: many ticks, also of a clock that ticks once a microsecond."""


@dataclass(frozen=True, slots=True)
class Clock:
    """What one GPU's clock was found to be."""

    tick_s: float
    """The smallest difference of two moments that are not the same."""
    read_s: float
    """What reading it takes."""

    def __str__(self) -> str:
        return f"ticks every {seconds_text(self.tick_s)}, read in {seconds_text(self.read_s)}"


@cache
def measured(device: torch.device) -> Clock:
    """Of *device*, once for each process."""
    found = torch.zeros(2, dtype=torch.int64, device=device)
    steps[(1,)](found, READS, num_warps=1)
    smallest, whole = found.tolist()
    return Clock(smallest / 1e9, whole / 1e9 / READS)


# What a GPU is doing beside our kernels: clocks, power, temperature, and why it runs slower than it could (NVML).

REASONS = {
    0x2: "application clocks", 0x4: "power cap", 0x8: "hardware slowdown", 0x10: "clocks of another GPU",
    0x20: "heat (software)", 0x40: "heat (hardware)", 0x80: "power brake", 0x100: "display clocks",
}  # fmt: skip
"""Bits of nvmlDeviceGetCurrentClocksEventReasons, NVML's reference manual; bit 0, nothing to do, is none."""


class Meter:
    """The GPU whose UUID torch knows as *uuid*; only who it is where nvidia-ml-py or its driver is missing."""

    def __init__(self, uuid: str, name: str) -> None:
        self._who = {"gpu": uuid if uuid.startswith("GPU-") else f"GPU-{uuid}", "gpu_name": name}
        self._nvml: Any = import_module("pynvml") if util.find_spec("pynvml") else None
        self._handle: Any = None
        if self._nvml:
            with suppress(self._nvml.NVMLError):
                self._nvml.nvmlInit()
                self._handle = self._nvml.nvmlDeviceGetHandleByUUID(self._who["gpu"])

    def read(self) -> dict[str, Any]:
        """Now: takes some milliseconds. What this GPU does not tell is left out.

        `power_watts` is the mean of the last second; NVML refreshes what it says some ten times a second.
        """
        nvml, handle, found = self._nvml, self._handle, dict[str, Any](self._who)
        if handle is None:
            return found
        with suppress(nvml.NVMLError):
            found["sm_clock_mhz"] = int(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))
        with suppress(nvml.NVMLError):
            found["memory_clock_mhz"] = int(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM))
        with suppress(nvml.NVMLError):
            found["power_watts"] = nvml.nvmlDeviceGetPowerUsage(handle) / 1e3
        with suppress(nvml.NVMLError, AttributeError):  # a library from before there was one
            (now,) = nvml.nvmlDeviceGetFieldValues(handle, [nvml.NVML_FI_DEV_POWER_INSTANT])
            if now.nvmlReturn == 0:
                found["power_now_watts"] = now.value.uiVal / 1e3
        with suppress(nvml.NVMLError):
            found["temperature_celsius"] = int(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))
        with suppress(nvml.NVMLError):
            ask = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
            ask = ask or nvml.nvmlDeviceGetCurrentClocksThrottleReasons  # its name before CUDA 12.2
            found["throttled"] = reasons(ask(handle))
        return found


def reasons(bits: int) -> list[str]:
    """Why the clocks are lower than they could be; empty: they are not."""
    return [word for bit, word in REASONS.items() if bits & bit]


# What a captured graph holds: each kernel with its grid, its shared memory and its priority, as the driver says.


class Node(NamedTuple):
    """One kernel of a graph."""

    name: str
    blocks: int
    threads: int
    """Of a block."""
    shared_bytes: int
    """That each block is given at the launch, beside what the kernel has by itself."""
    priority: int
    """CUDA's: a lower number goes first."""


def kernels(graph: torch.cuda.CUDAGraph) -> list[Node]:
    """Those of *graph*, which was captured with `keep_graph`."""
    from cuda.bindings import driver

    whole = driver.CUgraph(graph.raw_cuda_graph())
    count = _told(driver.cuGraphGetNodes(whole))[1]
    listed = _told(driver.cuGraphGetNodes(whole, count))[0]
    kernel = driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_KERNEL
    return [_node(driver, each) for each in listed if _told(driver.cuGraphNodeGetType(each))[0] == kernel]


def _node(driver: Any, node: Any) -> Node:
    (parameters,) = _told(driver.cuGraphKernelNodeGetParams(node))
    attribute = driver.CUkernelNodeAttrID.CU_LAUNCH_ATTRIBUTE_PRIORITY
    (value,) = _told(driver.cuGraphKernelNodeGetAttribute(node, attribute))
    return Node(
        _name(driver, parameters),
        parameters.gridDimX * parameters.gridDimY * parameters.gridDimZ,
        parameters.blockDimX * parameters.blockDimY * parameters.blockDimZ,
        parameters.sharedMemBytes,
        value.priority,
    )


def _name(driver: Any, parameters: Any) -> str:
    """Of the kernel; a runtime's may be known by another handle than a driver's."""
    for handle, ask in ((parameters.func, driver.cuFuncGetName), (parameters.kern, driver.cuKernelGetName)):
        if int(handle):
            status, name = ask(handle)
            if not status.value:
                return str(name.decode() if isinstance(name, bytes) else name)
    return "a kernel without a name"


def _told(answer: Sequence[Any]) -> Sequence[Any]:
    """What the driver says behind its status."""
    status, *values = answer
    if status.value:
        raise RuntimeError(f"The captured graph cannot be read: {status.name}.")
    return values


def facts(nodes: Iterable[Node]) -> dict[str, list[dict[str, int]]]:
    """By name the different launches of *nodes*, each with how many of them there are: what a measurement keeps."""
    counted: dict[Node, int] = {}
    for node in nodes:
        counted[node] = counted.get(node, 0) + 1
    by_name: dict[str, list[dict[str, int]]] = {}
    for node, count in counted.items():
        numbers = {name: value for name, value in node._asdict().items() if name != "name"}
        by_name.setdefault(node.name, []).append({**numbers, "count": count})
    return by_name


# A timed graph: all ranks meet, several calls run back to back over rotated operands, and both moments are kept.

Call = Callable[[], None]

GRAPH_SECONDS = 3e-3
"""A sample is one replay of about this long, divided by its calls, where the protocol leaves that open."""
CALLS_MOST = 50


def turns(asked: trial.Protocol, sets: int, typical_s: float) -> list[list[int]]:
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


class BarrierMembers(Protocol):
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


class StreamBarrier:
    """All ranks meet on the current stream, as often as it is called: of one trial on one count, whoever calls it."""

    def __init__(self, context: BarrierMembers, stamp: Tensor | None = None) -> None:
        self._context, self._counters = context, context.addresses("meet")
        unread = torch.zeros(1, dtype=torch.int64, device=context.device)
        self._stamp = unread if stamp is None else stamp

    def __call__(self) -> None:
        context = self._context
        meet[(1,)](
            self._counters, context.met, context.error, context.limit_ns, self._stamp, context.rank,
            WORLD=context.world, num_warps=1,
        )  # fmt: skip


class GraphReplay:
    """Some calls of one trial, captured once; all ranks replay it the same number of times."""

    def __init__(
        self, context: BarrierMembers, calls: Sequence[Call], stream: torch.cuda.Stream, *, captured: bool,
        before: Sequence[Call] = (), kept: bool = False,
    ) -> None:  # fmt: skip
        """*before*: calls that come before the ranks meet. *kept*: `kernels` can be asked for."""
        self._calls, self._before, self._stream = list(calls), list(before), stream
        self._stamps = torch.zeros(2, dtype=torch.int64, device=context.device)
        self._meeting = StreamBarrier(context, self._stamps)
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

    def kernels(self) -> list[Node]:
        """Those that were captured."""
        return kernels(self._graph) if self._graph is not None else []

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
