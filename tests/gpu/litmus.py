"""Litmus tests on GPUs: a million messages by each way of device.py under load of the links, and how many were stale.

`python -m tests.gpu.litmus OUT.json [ROUNDS] [LOADERS]`. Every way has a twin that breaks one rule of memory order.
Whether hardware shows that is luck, so those are counted and not judged: the PTX lint rejects each of them
(tests/kernels/backends/triton/test_litmus.py).
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from kernels.backends.base import Region, aligned, place
from kernels.backends.triton import device
from kernels.backends.triton.memory import SymmetricHeap, meeting_place
from tests.gpu import gang, messages, recording
from tests.gpu.messages import BURST, ROW
from tests.gpu.tables import machine_here

SLOTS, PARITIES, HANDED_SLOTS = 4, 2, 8
"""Places of a message: a writer is two rounds ahead of its reader, three with late signals; of packets one (rule 5).
Where another block signals, the writer itself waits for its reader, which a few rounds in the interpreter need not."""
WARPS = 4
"""The first of them stores early in messages.late."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to send a message."""

    name: str
    kernel: Any
    form: int
    breaks: str = ""
    """The rule that it breaks; empty: none, so that no round may be broken."""


PROTOCOL = "each way once; ranks in pairs, all channels at once, beside programs that load the links"
CERTAIN = "data and flag, stale data"
"""What breaks every round wherever it runs."""
VARIANTS = (
    Variant("data and flag", messages.data_and_flag, messages.SIGNAL.value),
    Variant("counted in, another block signals", messages.third_party, messages.COUNTED.value),
    Variant("packets", messages.packets_whole, messages.PACKET.value),
    Variant("bulk, drain", messages.bulk_and_flag, messages.DRAIN.value),
    Variant("bulk, drain but one", messages.bulk_and_flag, messages.BUT_ONE.value),
    Variant("bulk, signal but one", messages.bulk_and_flag, messages.SIGNAL_BUT_ONE.value),
    Variant(
        "data and flag, no barrier", messages.data_and_flag, messages.NO_BARRIER.value, "threads meet before the signal"
    ),
    Variant("data and flag, relaxed signal", messages.data_and_flag, messages.RELAXED.value, "a signal is a release"),
    Variant(
        "data and flag, no acquire",
        messages.data_and_flag,
        messages.NO_ACQUIRE.value,
        "who has waited reads with acquire",
    ),
    Variant(
        "counted in relaxed, another block signals",
        messages.third_party,
        messages.COUNTED_RELAXED.value,
        "who signals for others counts with acq_rel",
    ),
    Variant(CERTAIN, messages.data_and_flag, messages.STALE.value, "data are of their round"),
    Variant(
        "packets in two halves", messages.packets_whole, messages.TWO_HALVES.value, "a packet is one store of 8 bytes"
    ),
    Variant(
        "bulk, no drain", messages.bulk_and_flag, messages.NO_DRAIN.value, "bulk stores are written before the signal"
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much of everything."""

    rounds: int = 1_000_000
    """Of all channels of a rank together."""
    channels: int = 16
    loaders: int = 64
    """Programs of background load."""
    words: int = 2048
    """Of a message: 4 bytes of data, or packets."""
    chain: int = 1 << 24
    """int32 words of the memory that `late` reads, a power of two: more than the L2 holds."""
    limit_s: float = 10.0
    """How long one kernel may wait."""

    @property
    def each(self) -> int:
        """Rounds of one channel."""
        return -(-self.rounds // self.channels)


class Places:
    """What the kernels are called with on one rank: messages, counters and load in symmetric memory, counts beside."""

    def __init__(self, heap: SymmetricHeap, rank: int, world: int, size: Size, where: torch.device) -> None:
        if world not in (2, 4, 8):
            raise ValueError(f"world = {world} was asked for; ranks exchange in pairs. Accepted: 2, 4, 8.")
        self._heap, self._rank, self._world, self._size, self._where = heap, rank, world, size, where
        self._regions = regions(size)
        self._counts = torch.zeros(3 + len(device.ERROR_WORDS), dtype=torch.int32, device=where)
        self._chain = torch.randint(0, size.chain, (size.chain,), dtype=torch.int32, device=where)
        self._chain[0] = 0
        self._handed = torch.zeros(2, size.channels, dtype=torch.int32, device=where)

    def _of(self, rank: int, name: str) -> Tensor:
        dtype = torch.int64 if name == "packets" else torch.int32
        region = self._regions[name]
        return self._heap.tensor(rank, region.offset, region.shape, dtype)

    def _table(self, name: str) -> Tensor:
        """int64 [W]: where *name* lies on each rank."""
        found = [self._of(rank, name).data_ptr() for rank in range(self._world)]
        return torch.tensor(found, dtype=torch.int64, device=self._where)

    def clear(self) -> None:
        """Everything of this rank is 0; all ranks have to before one begins."""
        for name in self._regions:
            self._of(self._rank, name).zero_()
        self._counts.zero_()
        self._handed.zero_()

    def arguments(self, variant: Variant) -> tuple[Any, ...]:
        """Of *variant*'s kernel, in its order."""
        size, (violations, stored, arrived, *_) = self._size, self._counts.split(1)
        limit_ns = int(size.limit_s * 1e9)
        ends = (violations, stored, arrived, self._counts[3:], limit_ns, size.each, size.channels, self._rank)
        tables = (self._table("counters"), self._table("load"))
        if variant.kernel is messages.bulk_and_flag:
            rows = size.words // ROW.value
            inboxes = [self._of(rank, "inbox").view(-1, ROW.value) for rank in range(self._world)]
            to = [TensorDescriptor.from_tensor(inbox, [rows, ROW.value]) for inbox in inboxes]
            return *to, *[to[0]] * (8 - len(to)), self._table("inbox"), *tables, *ends
        if variant.kernel is messages.packets_whole:
            inbox: Any = tuple(self._of(rank, "packets") for rank in range(self._world))
        else:
            inbox = self._table("inbox")
        handed = (self._handed,) if variant.kernel is messages.third_party else ()
        return inbox, *tables, self._chain, size.chain, *handed, *ends

    def constants(self, variant: Variant) -> dict[str, int]:
        slots = {messages.packets_whole: PARITIES, messages.third_party: HANDED_SLOTS}.get(variant.kernel, SLOTS)
        return {"WORLD": self._world, "SIZE": self._size.words, "SLOTS": slots, "FORM": variant.form}

    def launcher(self, variant: Variant) -> Callable[[], None]:
        """Compiled; launches all channels and the load on the current stream. All ranks have to be cleared."""
        blocks = 2 if variant.kernel is messages.third_party else 1
        programs = blocks * self._size.channels + self._size.loaders
        arguments, constants = self.arguments(variant), {}
        if not device.INTERPRETED.value:
            constants = {"num_warps": WARPS, "launch_cooperative_grid": True}
            variant.kernel.warmup(*arguments, **self.constants(variant), **constants, grid=(1,))
        constants |= self.constants(variant)
        return lambda: variant.kernel[(programs,)](*arguments, **constants)

    def found(self) -> dict[str, Any]:
        """Broken rounds, bytes of load, and what a wait that gave up says; waits for the stream."""
        broken, bursts, ended, *error = self._counts.tolist()
        return {
            "broken": broken,
            "ended": ended,
            "load_bytes": bursts * BURST.value * 4,
            "failure": dict(zip(device.ERROR_WORDS, error, strict=True)) if error[0] else None,
        }


def regions(size: Size) -> dict[str, Region]:
    """Where everything lies in symmetric memory."""
    words = {
        "counters": (size.channels,), "load": (max(1, size.loaders), BURST.value),
        "inbox": (size.channels, HANDED_SLOTS, size.words),
    }  # fmt: skip
    placed = place(words, 4)
    end_of_words = placed["inbox"].offset + 4 * size.channels * HANDED_SLOTS * size.words
    return placed | place({"packets": (size.channels, PARITIES, size.words)}, 8, aligned(end_of_words))


def heap_bytes(size: Size) -> int:
    """Bytes of symmetric memory of each rank."""
    return aligned(regions(size)["packets"].offset + 8 * size.channels * PARITIES * size.words)


def gpu_main(rank: int, world: int, port: int, size: Size, answers: Any) -> None:
    """One GPU rank: every variant once; a row of each goes to the parent."""
    import faulthandler

    from kernels.backends.base import Seat
    from kernels.backends.triton.memory import DeviceHeap, RankProcessGroup

    faulthandler.dump_traceback_later(100.0)
    where = torch.device("cuda", rank)
    torch.cuda.set_device(where)
    seat = Seat(rank=rank, world=world, session="litmus", shares_heap=True, rendezvous=("127.0.0.1", port))
    group = RankProcessGroup(seat, where)
    places = Places(DeviceHeap(group, where, heap_bytes(size)), rank, world, size, where)
    for variant in VARIANTS:
        places.clear()
        launch = places.launcher(variant)
        torch.cuda.synchronize()
        group.barrier()
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        launch()
        stop.record()
        found = places.found() | recording.state(where)
        group.barrier()
        seconds = start.elapsed_time(stop) / 1e3
        answers.put({"rank": rank, "name": variant.name, "breaks": variant.breaks, "rounds": size.each * size.channels,
                     "seconds": seconds, "load_gb_per_s": found["load_bytes"] / seconds / 1e9, **found})  # fmt: skip
    answers.close()
    answers.join_thread()
    os._exit(0)  # process groups may hang when one rank has gone


def on_gpus(world: int, size: Size, deadline_s: float = 120.0) -> list[dict[str, Any]]:
    """A row of every variant and rank of *world* GPUs, as far as they came by *deadline_s*."""
    context = multiprocessing.get_context("spawn")
    answers, store = context.Queue(), meeting_place()
    ranks = [context.Process(target=gpu_main, args=(rank, world, store.port, size, answers)) for rank in range(world)]
    for process in ranks:
        process.start()
    rows: list[dict[str, Any]] = []
    until = time.monotonic() + deadline_s
    while len(rows) < world * len(VARIANTS) and time.monotonic() < until:
        try:
            rows.append(answers.get(timeout=2.0))
        except queue.Empty:
            if any(process.exitcode not in (None, 0) for process in ranks):
                until = min(until, time.monotonic() + gang.AFTER_END_S)
    for process in ranks:
        process.kill()
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """A line of each variant and rank; those that may not break a round come first."""
    return "\n".join(
        f"rank {row['rank']} {row['name']:42} {row['rounds']} rounds, {row['broken']:8} broken, "
        f"{row['seconds']:6.2f} s, load {row['load_gb_per_s']:6.1f} GB/s {row['failure'] or ''}"
        for row in sorted(rows, key=lambda row: (bool(row["breaks"]), row["name"], row["rank"]))
    )


def main() -> int:
    """0 where all came to their end and no right way broke a round."""
    named = {name: int(value) for name, value in zip(("rounds", "loaders"), sys.argv[2:], strict=False)}
    size, world = Size(**named), min(8, 1 << (torch.cuda.device_count().bit_length() - 1))
    rows = on_gpus(world, size)
    facts = {"provenance": recording.provenance(machine_here().name), "world": world, "size": asdict(size),
             "protocol": PROTOCOL}  # fmt: skip
    recording.write(Path(sys.argv[1]), facts | {"rows": rows})
    print(table(rows))
    missing = world * len(VARIANTS) - len(rows)
    wrong = [row["name"] for row in rows if not row["breaks"] and (row["broken"] or row["failure"])]
    print(f"{missing} rows are missing; right ways that broke rounds: {', '.join(wrong) or 'none'}")
    return 1 if missing or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
