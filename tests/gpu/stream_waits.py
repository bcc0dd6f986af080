"""Whether a captured stream can wait for a word of memory without a kernel: `python -m tests.gpu.stream_waits OUT`.

A piece that an engine moves is awaited by a kernel of one warp, which needs an SM and a launch. The driver has
operations of a stream for it (`cuStreamWaitValue32`, `cuStreamWriteValue32`), and says by attributes of the device
whether they exist. Two streams hand a word to each other, captured and not, by these operations, by kernels of one
warp, and by the operations on one side. Each way is right only if both streams end, and its time is that of one
hand-over. NCCL captures such operations for its copy engines (`ncclMemOpSync`). On an H200 the driver takes them in
graphs, and they are no faster than kernels: 3.8 against 3.9 us (2026-11-29, `data/probes/h200_stream_waits.jsonl`).
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.backends.triton import device
from tests.gpu.recording import provenance

ATTRIBUTES = {"can_use_stream_mem_ops_v1": 92, "can_use_64_bit_stream_mem_ops": 122,
              "can_use_stream_wait_value_nor": 123, "can_flush_remote_writes": 98}  # fmt: skip
"""Numbers of `CUdevice_attribute` in cuda.h."""
AT_LEAST = 0
"""`CU_STREAM_WAIT_VALUE_GEQ`: until the signed distance of the word to the value is not negative."""
HANDED, SAMPLES, LIMIT_NS = 100, 15, 2_000_000_000
"""Hand-overs of one replay."""

Enqueue = Callable[[Tensor, int], None]
"""Enqueues a wait for a word to reach a number, or a write of it, on the current stream."""


class DriverRefusal(RuntimeError):
    """The driver's answer to an operation that it does not take."""


def driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def checked(status: int, what: str) -> None:
    """DriverRefusal with the driver's own name of *status* unless it is 0."""
    if status:
        name = ctypes.c_char_p()
        driver().cuGetErrorName(status, ctypes.byref(name))
        raise DriverRefusal(f"{what}: {(name.value or b'').decode()} ({status})")


def attributes() -> dict[str, int]:
    """What device 0 says of such operations."""
    values = {}
    for name, number in ATTRIBUTES.items():
        value = ctypes.c_int()
        checked(driver().cuDeviceGetAttribute(ctypes.byref(value), number, 0), name)
        values[name] = value.value
    return values


def _operation(function: str, flags: int) -> Enqueue:
    """An operation of the current stream on a word."""

    def enqueue(word: Tensor, number: int) -> None:
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        place = ctypes.c_uint64(word.data_ptr())
        checked(getattr(driver(), function)(stream, place, ctypes.c_uint32(number), ctypes.c_uint32(flags)), function)

    return enqueue


@triton.jit(do_not_specialize=["number"])
def wait_kernel(word, number, error, limit_ns):
    """Waits for *word* to reach *number*."""
    device.wait(word, number, device.deadline_after(limit_ns), error, 0, device.PIECE, 0)


@triton.jit(do_not_specialize=["number"])
def write_kernel(word, number):
    """Sets *word* to *number* after all that was enqueued before."""
    tl.atomic_xchg(word, number, sem="release", scope="sys")


def kernels(error: Tensor) -> tuple[Enqueue, Enqueue]:
    """Wait and write as kernels of one warp."""

    def wait(word: Tensor, number: int) -> None:
        wait_kernel[(1,)](word, number, error, LIMIT_NS, num_warps=1)

    def write(word: Tensor, number: int) -> None:
        write_kernel[(1,)](word, number, num_warps=1)

    return wait, write


def handed_over(wait: Enqueue, write: Enqueue, *, captured: bool) -> list[float]:
    """Microseconds of a hand-over between two streams, by sample; DriverRefusal where an operation is not taken."""
    words = torch.zeros(2, 32, dtype=torch.int32, device="cuda")
    write(words[0], 1)  # a wait whose write is refused would never end
    wait(words[0], 1)
    torch.cuda.synchronize()
    streams = torch.cuda.Stream(), torch.cuda.Stream()

    def side(number: int, turns: range) -> None:
        """What one stream does: it writes its own word and waits for the other's, or the other way round."""
        mine, other = words[number, :1], words[1 - number, :1]
        for turn in turns:
            for operation, word in ((write, mine), (wait, other))[:: 1 - 2 * number]:
                operation(word, turn + 1)

    def enqueued(first: int) -> list[Callable[[], None]]:
        """Per stream what enqueues HANDED hand-overs from number *first* on."""
        turns = range(first, first + HANDED)
        if not captured:
            return [lambda number=number: side(number, turns) for number in range(2)]
        graphs = [torch.cuda.CUDAGraph() for _ in streams]
        for number, (graph, stream) in enumerate(zip(graphs, streams, strict=True)):
            with torch.cuda.graph(graph, stream=stream):
                side(number, turns)
        return [graph.replay for graph in graphs]

    samples = []
    for sample in range(SAMPLES + 1):
        words.zero_()  # a graph's numbers are fixed
        enqueue = enqueued(0)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        for number, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                torch.cuda._sleep(2_000_000)  # so that both are enqueued before one begins
                if number == 0:
                    begin.record()
                enqueue[number]()
                if number == 0:
                    end.record()
        torch.cuda.synchronize()
        if sample:
            samples.append(begin.elapsed_time(end) * 1e3 / (2 * HANDED))
    return samples


def rows() -> list[dict[str, Any]]:
    """A row for each way, captured and not."""
    error = torch.zeros(8, dtype=torch.int32, device="cuda")
    by_stream = _operation("cuStreamWaitValue32_v2", AT_LEAST), _operation("cuStreamWriteValue32_v2", 0)
    by_kernel = kernels(error)
    by_kernel[1](error[7:], 0)
    by_kernel[0](error[7:], 0)  # compiled and loaded before a capture
    ways = {
        "kernels": by_kernel,
        "stream operations": by_stream,
        "stream waits, kernel writes": (by_stream[0], by_kernel[1]),
    }
    answers = []
    for name, (wait, write) in ways.items():
        for captured in (False, True):
            row: dict[str, Any] = {"way": name, "captured": captured}
            try:
                times = handed_over(wait, write, captured=captured)
                row |= {"us": round(median(times), 2), "low": round(min(times), 2), "high": round(max(times), 2)}
            except (DriverRefusal, RuntimeError) as refusal:
                row |= {"refused": str(refusal).splitlines()[0]}
            answers.append(row | {"late": int(error[0])})
            print(json.dumps(answers[-1]), flush=True)
    return answers


def main(out: Path) -> None:
    """Writes attributes and rows as JSON lines."""
    lines = [
        {"provenance": provenance("h200_nvl2") | {"launched_by": "tests/gpu/stream_waits.py"}},
        {"attributes": attributes()},
        *rows(),
    ]
    out.write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
