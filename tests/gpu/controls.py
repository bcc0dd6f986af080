"""Do the controls of concurrent schedules act? Measured on one GPU: resident blocks, a priority, SMs that are left.

A census is what one asks: blocks that note their SM and the moment at which they begin, and then hold their place. Each
has all of an SM's shared memory, so that it fits no SM on which a block of a GEMM lies: those who begin while the GEMM
runs say which SMs it has left free.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl
from numpy.typing import NDArray
from torch import Tensor

from kernels.backends.base import Seat
from kernels.backends.triton import device, streams
from kernels.backends.triton import launch as padded
from kernels.backends.triton.backend import TritonBackend
from kernels.backends.triton.kernels.sync import PROCESSOR, SENT, STARTED, WORDS, write_now
from kernels.backends.triton.launch import LaunchableKernel
from kernels.backends.triton.schemes import concurrent
from kernels.occupancy import resident_blocks
from kernels.schedule import Refusal
from kernels.trial import Trial

Call = Callable[[], None]
Ints = NDArray[np.int64]

HOLD_NS, READY_NS, BEFORE_NS = 20_000, 150_000, 30_000
"""How long a block of the census holds its place; after how long the census may begin; and the GEMM, which is first."""
SIDE = 8192
"""Of a GEMM that lasts about 1.6 ms."""
SHARES = (0, 4, 8, 16, 24, 32)


@triton.jit(do_not_specialize=["hold_ns"])
def census(record, hold_ns):
    """Each program writes its SM and when it began into *record* [programs, 2] int64, and stays for *hold_ns*."""
    place = record + 2 * tl.program_id(0)
    begun = device.now()
    tl.store(place, device.processor().to(tl.int64))
    tl.store(place + 1, begun)
    now = begun
    while now - begun < hold_ns:
        now = device.now()


class Counted(NamedTuple):
    """What a census saw beside a kernel, in nanoseconds from the kernel's start."""

    ended: int
    """When the kernel had ended."""
    ready: int
    """When the census could begin, had it had room."""
    begun: Ints
    """[blocks] when each of its blocks began."""
    processors: Ints
    """[blocks] and where."""

    def free(self) -> int:
        """SMs on which the census began in the first half of the kernel: later its own last tiles leave some."""
        return len(set(self.processors[self.begun < self.ended // 2].tolist()))

    def waited(self) -> int:
        """How long its first block waited for room."""
        return int(self.begun.min()) - self.ready


def most_at_once(begun: Ints, ended: Ints, processors: Ints) -> dict[int, int]:
    """By SM, blocks that were there together at the most. [blocks] each."""
    most: dict[int, int] = {}
    for processor in np.unique(processors).tolist():
        here = processors == processor
        moments = np.concatenate([begun[here], ended[here]])
        changes = np.concatenate([np.ones(here.sum(), dtype=np.int64), -np.ones(here.sum(), dtype=np.int64)])
        order = np.lexsort((changes, moments))  # who leaves goes before who comes at the same tick
        most[processor] = int(np.cumsum(changes[order]).max())
    return most


def beside(call: Call, *, priority: int = 0) -> Counted:
    """*call*, a kernel that lasts a millisecond or more, and a census of one block per SM on a stream of *priority*."""
    gpu = torch.device("cuda", 0)
    sms = torch.cuda.get_device_properties(gpu).multi_processor_count
    records = torch.zeros(sms + 2, 2, dtype=torch.int64, device=gpu)
    ends = torch.zeros(2, dtype=torch.int64, device=gpu)
    counted = _whole_sms(records[2:], sms)
    main, other = torch.cuda.Stream(gpu), torch.cuda.Stream(gpu, priority=priority)
    graph = torch.cuda.CUDAGraph()

    def both() -> None:
        other.wait_stream(main)
        census[(1,)](records[1:], BEFORE_NS, num_warps=1)  # the other's timer has begun when the GEMM does
        write_now[(1,)](ends, num_warps=1)
        call()
        write_now[(1,)](ends[1:], num_warps=1)
        with torch.cuda.stream(other):
            census[(1,)](records, READY_NS, num_warps=1)
            counted()
        main.wait_stream(other)

    with torch.cuda.stream(main):
        both()
    torch.cuda.synchronize(gpu)
    with torch.cuda.graph(graph, stream=main):
        both()
    for _ in range(2):
        graph.replay()
        torch.cuda.synchronize(gpu)
    start, end = ends.tolist()
    words = records.cpu().numpy()
    return Counted(end - start, int(words[0, 1]) + READY_NS - start, words[2:, 1] - start, words[2:, 0])


def _whole_sms(record: Tensor, blocks: int) -> Call:
    """A census whose blocks have all of an SM's shared memory each."""
    kernel = LaunchableKernel(
        function=census, arguments=(record, HOLD_NS), constants={}, num_warps=1, items=blocks, concurrent=True
    )
    made = kernel._loaded
    num_bytes = padded.limits().most_shared_bytes
    padded.allow(made(kernel.arguments), num_bytes)
    launch = padded.padded_launcher(made, census, {}, blocks, num_bytes)
    return lambda: launch(kernel.arguments)


def residency(seat: Seat, entry: dict[str, Any]) -> dict[str, Any]:
    """Of our kernel in the trial *entry*, for each number of blocks that an SM can be made to hold, what it does hold.

    `formula`: what the padding is chosen for; `driver`: the driver's own answer; `stamps`: most blocks that were on one
    SM at once, seen by their stamps; `padding_bytes`: what was added.
    """
    kernel = _own_kernel(seat, entry)
    compiled, limits = kernel._loaded(kernel.arguments), padded.limits()
    own, threads = int(compiled.metadata.shared), 32 * kernel.num_warps
    held = resident_blocks(limits, own, int(compiled.n_regs), threads)
    rows = []
    for blocks in range(held, 0, -1):
        num_bytes = padded.shared_bytes(compiled, blocks, limits)
        padded.allow(compiled, num_bytes)
        rows.append({
            "formula": blocks, "driver": padded.resident_blocks(compiled, num_bytes),
            "stamps": seen_if_possible(kernel, blocks), "padding_bytes": num_bytes - own, "shared_bytes": own,
            "registers": int(compiled.n_regs), "threads": threads,
        })  # fmt: skip
    return {"rows": rows, "as_compiled": seen_if_possible(kernel, 0)}


def seen_if_possible(kernel: LaunchableKernel, blocks: int) -> int | None:
    """`seen_resident`; None where the form that writes stamps takes too much, so that other rows are told."""
    try:
        return seen_resident(kernel, blocks)
    except Refusal:
        return None


def seen_resident(kernel: LaunchableKernel, blocks: int) -> int:
    """Most blocks of *kernel* on one SM, seen by stamps: a block for each tile, many more than there is room for."""
    stamps = torch.zeros(kernel.records, WORDS.value, dtype=torch.int64, device="cuda")
    replace(kernel.stamped(stamps), resident=blocks, spared=0, grid=kernel.items).launcher()()
    torch.cuda.synchronize()
    words = stamps.cpu().numpy()[: kernel.items]
    return max(most_at_once(words[:, STARTED.value], words[:, SENT.value], words[:, PROCESSOR.value]).values())


def priorities(seat: Seat, entry: dict[str, Any]) -> dict[str, Any]:
    """How long a census waits beside our kernel with a block for each tile, by the census's priority, in nanoseconds.

    `tile_ns`: how long the SM's own block lasts: nobody is interrupted, so about so long waits who goes first.
    """
    kernel = _own_kernel(seat, entry)
    every = replace(kernel, resident=0, spared=0, grid=kernel.items)
    launch = every.launcher()
    least, greatest = torch.cuda.Stream.priority_range()
    told: dict[str, Any] = {"range": [least, greatest]}
    for word, priority in (("normal", 0), ("high", -1)):
        seen = beside(launch, priority=priority)
        told[word] = {"waited_ns": seen.waited(), "kernel_ns": seen.ended, "ready_ns": seen.ready}
    stamps = torch.zeros(kernel.records, WORDS.value, dtype=torch.int64, device="cuda")
    every.stamped(stamps).launcher()()
    torch.cuda.synchronize()
    words = stamps.cpu().numpy()[: kernel.items]
    return told | {"tile_ns": int(np.median(words[:, SENT.value] - words[:, STARTED.value]))}


def shares(seat: Seat, entry: dict[str, Any]) -> dict[str, Any]:
    """By the SMs that are left: how many a census found free beside cuBLAS and beside our kernel, and their grids."""
    kernel = replace(_own_kernel(seat, entry), resident=0)
    a, b = (torch.randn(SIDE, SIDE, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    out, gpu = torch.empty_like(a), torch.device("cuda", 0)
    rows = []
    for share in SHARES:
        mine = replace(kernel, spared=share).launcher()
        of_library = streams.on_fewer(lambda: _multiply(a, b, out), share, gpu)
        for who, call in (("library", of_library), ("ours", mine)):
            seen = beside(call)
            (node, *_) = sorted(concurrent.captured_kernels(call), key=lambda each: -each.blocks)
            rows.append({"who": who, "comm_sms": share, "free": seen.free(), "us": seen.ended / 1e3,
                         "kernel": node.name, "blocks": node.blocks, "threads": node.threads,
                         "shared_bytes": node.shared_bytes})  # fmt: skip
    return {"rows": rows}


def _multiply(a: Tensor, b: Tensor, out: Tensor) -> None:
    torch.mm(a, b, out=out)


def _own_kernel(seat: Seat, entry: dict[str, Any]) -> LaunchableKernel:
    """Our kernel as the concurrent trial *entry* launches it, with all that it points to."""
    backend = TritonBackend(seat)
    (prepared,) = backend.prepare([Trial.from_json(entry)])
    KEPT.append(prepared)
    kernel: LaunchableKernel = prepared.calls.components[0].kernels[0][0]
    return kernel


KEPT: list[Any] = []
"""Trials whose memory kernels point to, for the life of a rank."""

MEASURES: Mapping[str, Callable[[Seat, dict[str, Any]], dict[str, Any]]] = {
    "residency": residency, "priorities": priorities, "shares": shares,
}  # fmt: skip


def every(seat: Seat, entry: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Each measure of *names* by itself: what one of them cannot say does not keep the others from speaking."""
    return dict(_each(seat, entry, names))


def several(seat: Seat, entry: dict[str, Any]) -> dict[str, Any]:
    """`every` of the trial and the names in *entry*, so that one process measures several of them."""
    return every(seat, entry["trial"], entry["names"])


def _each(seat: Seat, entry: dict[str, Any], names: Sequence[str]) -> Iterator[tuple[str, Any]]:
    for name in names:
        try:
            yield name, MEASURES[name](seat, entry)
        except Exception:
            yield name, {"error": traceback.format_exc()[-900:]}
