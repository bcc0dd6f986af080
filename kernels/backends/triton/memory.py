"""Where one trial's tensors and signals lie on every rank: what a kernel needs in addition to its operands."""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from datetime import timedelta
from functools import partial
from math import prod
from typing import Any, Protocol

import torch
import torch.distributed
from torch import Tensor

from kernels.backends.base import LONGEST_COMPILATION_SECONDS, Region, Seat, aligned, heap_bytes, place, regions
from kernels.backends.triton import nccl
from kernels.backends.triton.device import (
    CREDIT,
    DONE,
    ERROR_WORDS,
    MEET,
    PACKET,
    PARTIAL,
    PIECE,
    ROWS,
    SIGNAL,
    SLICE,
    TILE,
    UNSENT,
)
from kernels.occupancy import has_bulk_copies
from kernels.operators import OPERATORS
from kernels.operators.base import Flow
from kernels.plan import Plan
from kernels.reference import torch_dtype
from kernels.schedule import Refusal
from kernels.schemes import axis_rules, spanning
from kernels.schemes.concurrent import problems
from kernels.units import bytes_text

# The process group and the symmetric heap of GPU ranks: one allocation of torch's symmetric memory per rank.


def meeting_place() -> Any:
    """A TCP store on a free port, through which the ranks of this host find each other; this process outlives them."""
    dist: Any = torch.distributed
    return dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


LEAVING_SECONDS, LEAVING_HOSTS_SECONDS = 3.0, 30.0
"""How long peers of an earlier gang are waited for until they leave, too: on one host, and between hosts, where another
communicator ends first. Who is idle looks twice a second. Who is dead or busy never leaves."""
ENDING_SECONDS = 10.0
"""How long NCCL may take to end a communicator. It ends at once where the others are dead, never with a busy one."""
_joined: RankProcessGroup | None = None
"""The process group that this process is in, maybe of an earlier gang."""


class RankProcessGroup:
    """The process group of one gang of GPU ranks: NCCL between GPUs, gloo for numbers on the host.

    NCCL ends a communicator only together with all ranks of a host (NVIDIA/nccl#863). So a gang that ends leaves its
    group as it is. The rank leaves it when it joins the next one, and its peers when they see that: see `leave_too`.
    """

    def __init__(self, seat: Seat, device: torch.device) -> None:
        if seat.rendezvous is None:
            raise ValueError("GPU ranks meet through a rendezvous, and this gang started without one.")
        # every rank sees its GPU as number 0; torch would take that for one GPU shared by all ranks
        os.environ.setdefault("TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES", "1")
        across = {} if seat.shares_heap else nccl.OF_NETWORK
        for name, value in (nccl.OF_RANKS | across).items():
            os.environ.setdefault(name, value)
        os.environ.update(_of_shared_gpu(seat) if seat.shares_gpu else {})
        self.seat, self._dist = seat, torch.distributed
        host, port = seat.rendezvous
        # a peer may be compiling; the watchdog that receives its reports notices a hanging peer sooner
        limit = timedelta(seconds=max(seat.deadline_s, LONGEST_COMPILATION_SECONDS))
        dist: Any = self._dist
        self._store = dist.PrefixStore(seat.session, dist.TCPStore(host, port, is_master=False, timeout=limit))
        (_joined or self).close()  # of an earlier gang
        dist.init_process_group(
            "cpu:gloo,cuda:nccl", store=self._store, rank=seat.rank, world_size=seat.world, timeout=limit,
            device_id=device,
        )  # fmt: skip
        self.nccl = dist.group.WORLD
        self._join()
        if seat.shares_heap and device.type == "cuda":
            exchanges_in_step(self.exchange, partial(exchanges_made, device))

    def barrier(self) -> None:
        """All ranks meet on the host."""
        self.exchange([0.0])

    def exchange(self, values: Sequence[float]) -> list[list[float]]:
        """The *values* of all ranks, by rank; all ranks pass equally many."""
        dist: Any = self._dist
        sent = torch.tensor(values, dtype=torch.float64)
        received = [torch.empty_like(sent) for _ in range(self.seat.world)]
        dist.all_gather(received, sent)
        return [[float(value) for value in by_rank] for by_rank in received]

    def _join(self) -> None:
        global _joined
        _joined = self

    def _keys(self, count: int) -> bool:
        """Whether *count* ranks or more say that they leave."""
        try:
            return sum(self._store.check([f"{LEFT}/{rank}"]) for rank in range(self.seat.world)) >= count
        except RuntimeError:  # the store was in the process of a peer, which has another one by now
            return True

    def is_left(self) -> bool:
        """Whether a peer leaves this group; then its communicator waits for this rank."""
        return self._keys(1)

    def leave(self) -> bool:
        """Says that this rank leaves; whether all do, so that the communicator can end."""
        with suppress(RuntimeError):
            self._store.set(f"{LEFT}/{self.seat.rank}", "")
        return self._keys(self.seat.world)

    def close(self) -> None:
        """Ends the process group of this rank, whichever gang it belongs to, once its peers leave or are waited for.

        RuntimeError where it does not end: whatever this process calls next would wait for it.
        """
        if not self._dist.is_initialized():
            return
        limit_s = LEAVING_SECONDS if self.seat.shares_heap else LEAVING_HOSTS_SECONDS
        give_up_at = time.monotonic() + limit_s
        while _joined is self and not self.leave() and time.monotonic() < give_up_at:
            time.sleep(LOOK_SECONDS)
        self._end()

    def _end(self) -> None:
        """Ends the communicators."""
        global _joined
        nccl.leave()
        forget_workspaces()
        _joined = None
        if not nccl.ends_within(ENDING_SECONDS, self._dist.destroy_process_group, "the end of a process group"):
            raise RuntimeError(
                f"The process group of an earlier gang has not ended after {ENDING_SECONDS:.0f} s: a peer is still in "
                "it. This process is not used again."
            )


LEFT, LOOK_SECONDS = "left", 0.05
"""What the keys begin with that ranks set in their gang's store when they leave, and seconds between two looks."""


def is_left() -> bool:
    """Whether peers leave the process group that this process is in."""
    return _joined is not None and _joined.is_left()


def leave() -> None:
    """Says that this rank leaves its process group, too, and ends it once all ranks do. Called while a rank is idle."""
    if _joined is not None and _joined.leave():
        _joined.close()


# Two things that torch's symmetric memory keeps by process, and that every gang must find as its peers do.


def forget_workspaces() -> None:
    """Frees the buffers of torch's overlapped operators: they are kept by name of a group, and names come again."""
    symmetric = importlib.import_module("torch.distributed._symmetric_memory")
    getattr(symmetric, "_group_name_to_workspace_tensor", {}).clear()


def exchanges_in_step(exchange: Callable[[Sequence[float]], list[list[float]]], made: Callable[[], int]) -> None:
    """Makes exchanges alone until this process has *made* as many as any peer.

    torch numbers the exchanges of its symmetric memory by process, and not by group, until 2.13 at least
    (pytorch#196082). Ranks that were in other gangs before, or were replaced, would wait for each other for ever.
    RuntimeError on all ranks where their numbers cannot be made equal: all begin anew.
    """
    number = made()
    most = max(int(value) for (value,) in exchange([float(number)]))
    while number < most:
        number = made()
    numbers = sorted({int(value) for (value,) in exchange([float(number)])})
    if len(numbers) > 1:
        raise RuntimeError(
            f"The ranks have made {' and '.join(map(str, numbers))} exchanges of symmetric memory, so they cannot "
            "meet. This process is not used again."
        )


_MOST_AHEAD = 4096
"""A process makes fewer exchanges between two looks: larger numbers are not searched."""
_last_made = 0
"""Exchanges of this process when they were last counted."""


def exchanges_made(device: torch.device) -> int:
    """How many exchanges of symmetric memory this process has made, with a few alone just now; 0 if torch hides it."""
    global _last_made
    symmetric: Any = importlib.import_module("torch.distributed._symmetric_memory")
    library: Any = importlib.import_module("torch._C._distributed_c10d")
    store, name = torch.distributed.HashStore(), "workbench: one rank"
    alone = library.ProcessGroup(store, 0, 1)  # torch itself does not hold it
    library._register_process_group(name, alone)
    try:
        symmetric.rendezvous(symmetric.empty(1, dtype=torch.uint8, device=device), name)
    finally:
        library._unregister_process_group(name)
    ahead = range(_last_made, _last_made + _MOST_AHEAD)
    _last_made = 1 + max((number for number in ahead if store.check([f"CUDASymmetricMemory/{number}/0"])), default=-1)
    return _last_made


def _of_shared_gpu(seat: Seat) -> dict[str, str]:
    """Environment variables of a rank in *seat* that shares its GPU: its host is a process, or else an address."""
    if seat.shares_heap or not seat.addresses:
        return nccl.of_shared_gpu(os.getpid())
    return nccl.of_host_on_shared_gpu(seat.addresses[seat.rank], os.environ)


class OutOfReachError(RuntimeError):
    """A tensor of a rank on another host, of which no address exists here."""

    def __init__(self, rank: int, other: int) -> None:
        super().__init__(f"Rank {rank} has no address of the memory of rank {other}, which is on another host.")


class HeapMakers(Protocol):
    """The ranks that allocate a heap together: a `RankProcessGroup`, or a process group of a caller."""

    seat: Seat
    nccl: Any
    """Their process group."""

    def barrier(self) -> None:
        """All ranks meet on the host."""

    def exchange(self, values: Sequence[float]) -> list[list[float]]:
        """The *values* of all ranks, by rank; all ranks pass equally many."""


class DeviceHeap:
    """One rank's view of the heap. Creating one is collective; `Refusal` if a GPU has no room."""

    def __init__(self, group: HeapMakers | None, device: torch.device, num_bytes: int, *, shared: bool = True) -> None:
        """Without *shared* no other rank reaches it, as between hosts where the library moves everything."""
        free, _ = torch.cuda.mem_get_info(device)
        least = min(value for (value,) in group.exchange([float(free)])) if group else float(free)
        if num_bytes > least:
            raise Refusal(
                f"The ranks' heap needs {bytes_text(num_bytes)} on every GPU, but the fullest one has "
                f"{bytes_text(least)} free. Accepted: a smaller shape, or fewer schedules at once."
            )
        self.capacity, self._rank = num_bytes, group.seat.rank if group else 0
        self._handle: Any = None
        if group and shared:
            import torch.distributed._symmetric_memory as symmetric

            self._buffer = symmetric.empty(num_bytes, dtype=torch.uint8, device=device)
            self._handle = symmetric.rendezvous(self._buffer, group.nccl)
        else:
            self._buffer = torch.empty(num_bytes, dtype=torch.uint8, device=device)
        self._buffer.zero_()
        torch.cuda.synchronize(device)
        if group:
            group.barrier()

    def tensor(self, rank: int, offset: int, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """A view of *rank*'s memory at *offset* bytes, the same offset on every rank."""
        num_bytes = prod(shape) * dtype.itemsize
        if rank == self._rank:
            return self._buffer[offset : offset + num_bytes].view(dtype).view(*shape)
        if self._handle is None:
            raise OutOfReachError(self._rank, rank)
        view: Tensor = self._handle.get_buffer(rank, (num_bytes,), torch.uint8, offset)
        return view.view(dtype).view(*shape)


# Tensors and signals of one trial in the heap.

SIGNALS = {
    CREDIT.value: "permission to write into rank {index}'s buffers",
    DONE.value: "the end of rank {index}'s part of the call",
    TILE.value: "the contributions of all peers to tile {index}",
    ROWS.value: "operand rows, slice {index}",
    PACKET.value: "packets of block {index}",
    MEET.value: "rank {index} at the meeting point",
    SIGNAL.value: "signal {index}",
    PIECE.value: "the piece that raises counter {index}",
    PARTIAL.value: "the partial sums of tile {index}",
    SLICE.value: "slice {low} of rank {high} by the network",
    UNSENT.value: "the network to take the puts of context {index}",
}
"""Label of what each kind of wait waits for, for messages."""

SLICES_MOST = 1 << 16
"""Index of a slice from another host: its source times this, plus its number."""

RISING = ("credits", "done", "meet", "counters")
"""Tensors of signals, which rise in every call, modulo WRAP."""
WRAP = 1 << 32
NOT_A_NUMBER = 0x7FC00000
"""Bits of a float32 that is no number."""

LANDED = "landed"
"""[2, ..]: operand rows or partial sums of all ranks, in halves that alternate by call, where tiles span the ranks."""
COUNTERS = 4
"""Most counters of one tile: a piece that is a single tile is counted when it is computed, when it has left, and when
its sum has left, on the sender and on the receiver."""


class SymmetricHeap(Protocol):
    """Symmetric memory: of GPUs (`DeviceHeap`), or shared memory of CPU ranks (the cpu backend's heap)."""

    capacity: int

    def tensor(self, rank: int, offset: int, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """A view of *rank*'s memory at *offset*."""


def private_regions(plan: Plan, rank: int, start: int) -> dict[str, Region]:
    """Regions of *rank*'s signals, packets and landed rows of one trial, from *start* on: trials share only other data.

    What alternates by call is private, too: a peer writes it before this rank has left another trial's call.
    """
    problem, tiles = plan.problem, len(plan.tiles[rank])
    world = problem.world
    each = max(COUNTERS, world) if axis_rules.spans_ranks(plan.schedule) else COUNTERS  # one for each source
    counters = max(each * max(1, tiles), world * spanning.later_ranges(problem, plan.schedule))
    counted = place(
        {"credits": (world,), "done": (world,), "meet": (world,), "counters": (counters,)},
        4,
        start,
    )
    end = max(_end(region, 4) for region in counted.values())
    slots = packet_slots(plan)
    landed = axis_rules.landed(problem) if axis_rules.spans_ranks(plan.schedule) and not slots[1] else (0, 0)
    known = counted | place({"packets": (2, *slots)}, 8, end)
    return known | place({LANDED: (2, *landed)}, problem.itemsize, _end(known["packets"], 8))


def packet_slots(plan: Plan) -> tuple[int, int]:
    """How many slots of packets a half has, and the packets of each: one slot for each rank that sends parts of sums.

    Behind them lie slots for the sums of each owner, where a GEMM sends its sums to all in a second shot. Those of a
    GEMV lie in rows of its slots where it gets no parts.
    """
    problem, operator = plan.problem, OPERATORS[plan.problem.operator]
    if operator.work == "gemv":
        extent = operator.extent(problem)
        return problem.world, extent.rows * extent.columns
    if not axis_rules.sends_packets(problem, plan.schedule):
        return problem.world, 0
    rows, columns = axis_rules.landed(problem)
    again = operator.flow is Flow.BROADCAST and not axis_rules.spans_in_one_shot(problem)
    words = rows // problem.world * columns * problem.itemsize // axis_rules.WORD_BYTES
    return problem.world * (1 + again), words


def private_bytes(plan: Plan, rank: int) -> int:
    """Bytes of `private_regions`."""
    return _end(private_regions(plan, rank, 0)[LANDED], plan.problem.itemsize)


def _end(region: Region, itemsize: int) -> int:
    """The first offset behind *region* at which a tensor may begin."""
    return aligned(region.offset + itemsize * prod(region.shape))


def architecture_of(device: torch.device) -> int:
    """CUDA's architecture of a GPU, 90 for sm_90; 0 for a CPU, which interprets kernels."""
    major, minor = torch.cuda.get_device_capability(device) if device.type == "cuda" else (0, 0)
    return 10 * major + minor


class RankEndpoint:
    """One rank's view of symmetric memory: named tensors of all ranks, and the epoch and deadline of its calls.

    The signals start at 0 on all ranks, which meet before any rank's first call. They wrap at 2^32.
    """

    def __init__(self, heap: SymmetricHeap, rank: int, world: int, device: torch.device, *, limit_s: float) -> None:
        self.heap, self.rank, self.world, self.device = heap, rank, world, device
        self.limit_ns = int(limit_s * 1e9)
        self.architecture = architecture_of(device)
        """The GPU's, for which kernels are compiled; tests of others set it."""
        self.places: dict[str, tuple[Region, torch.dtype]] = {}
        words = torch.zeros(4 + len(ERROR_WORDS) + spanning.LATER_MOST, dtype=torch.int32, device=device)
        self.epoch, self.arrived, self.met = (words[each : each + 1] for each in range(3))
        """The number of the call, and programs of this rank that are counted in it."""
        self.error, self.pushed = words[4:].split((len(ERROR_WORDS), spanning.LATER_MOST))
        """The error word, and programs of this rank that have pushed, of each range of later columns."""

    @property
    def bulk(self) -> bool:
        """Whether kernels load and store by the bulk copy engine; else threads do."""
        return has_bulk_copies(self.architecture)

    def of(self, rank: int, name: str) -> Tensor:
        """Tensor *name* on *rank*."""
        region, dtype = self.places[name]
        return self.heap.tensor(rank, region.offset, region.shape, dtype)

    def addresses(self, name: str) -> Tensor:
        """int64 [W]: where tensor *name* lies on each rank, as this process maps it.

        0 on ranks of other hosts, whose memory no kernel of such a gang reads or writes.
        """
        addresses = [self._address(rank, name) for rank in range(self.world)]
        return torch.tensor(addresses, dtype=torch.int64, device=self.device)

    def _address(self, rank: int, name: str) -> int:
        try:
            return self.of(rank, name).data_ptr()
        except OutOfReachError:
            return 0

    def rising(self) -> list[Tensor]:
        """This rank's words that rise in every call, each by an amount of its own."""
        signals = [self.of(self.rank, name) for name in RISING if name in self.places]
        return [self.epoch, self.met, *signals]

    def go_on_after(self, calls: int) -> None:
        """After a first call: epoch and signals become those after *calls* calls; all ranks meet before the next one.

        For tests of numbers that wrap.
        """
        assert int(self.epoch) <= 1, f"the epoch is {int(self.epoch)}: more than one call was made"
        for words in self.rising():
            words.copy_((words.to(torch.int64) * calls).to(torch.int32))

    def failure(self) -> str | None:
        """The error word as a message, or None; it reads device memory and therefore waits for the stream."""
        raised, rank, signal, index, expected, seen = self.error.tolist()
        if not raised:
            return None
        high, low = divmod(index, SLICES_MOST)
        what = SIGNALS.get(signal, "a signal that has no name").format(index=index, high=high, low=low)
        return (
            f"Rank {rank} waited {self.limit_ns / 1e9:.3g} s for {what}: the counter was {seen % WRAP} "
            f"instead of {expected % WRAP}, in call {(int(self.epoch.item()) + 1) % WRAP} of {self.title()}."
        )

    def title(self) -> str:
        """What the calls run, for messages."""
        return "this kernel"


class Context(RankEndpoint):
    """Tensors, signals and the plan of one trial, on one rank."""

    def __init__(
        self, heap: SymmetricHeap, plan: Plan, rank: int, device: torch.device, *, start: int, limit_s: float
    ) -> None:
        super().__init__(heap, rank, plan.problem.world, device, limit_s=limit_s)
        self._elsewhere: Mapping[str, Tensor] = {}
        self.plan, self.problem, self.dtype = plan, plan.problem, torch_dtype(plan.problem)
        private = private_regions(plan, rank, start)
        self.places |= {name: (region, self.dtype) for name, region in regions(plan.problem, plan.schedule).items()}
        dtypes = {"packets": torch.int64, LANDED: self.dtype}
        self.places |= {name: (region, dtypes.get(name, torch.int32)) for name, region in private.items()}
        for name in private:
            self.of(rank, name).zero_()
        self._private = frozenset(private)
        self._local: Tensor | None = None
        self._sums: tuple[Tensor, Tensor] | None = None

    def computing(self, plan: Plan, places: Mapping[str, Tensor], local: Tensor) -> Context:
        """The same context for the computation alone, in the order of *plan*: its results go to *local*.

        *places*: tensors of this rank that do not lie in symmetric memory.
        """
        other = copy(self)
        other.plan, other._elsewhere, other._local = plan, places, local
        return other

    def of_problem(self, number: int) -> Context:
        """Context of problem *number* of a call with several problems: separate data, but the same signals."""
        other, step = copy(self), number * problem_bytes(self.plan)
        other.places = {
            name: (region if name in self._private else Region(region.offset + step, region.shape), dtype)
            for name, (region, dtype) in self.places.items()
        }
        other._local, other._elsewhere = None, {}
        return other

    def of(self, rank: int, name: str) -> Tensor:
        return self._elsewhere[name] if rank == self.rank and name in self._elsewhere else super().of(rank, name)

    def go_on_after(self, calls: int) -> None:
        """Packets, too, become those of the last two calls; their values are no numbers."""
        super().go_on_after(calls)
        for epoch in (calls - 1, calls):
            signed = (epoch + WRAP // 2) % WRAP - WRAP // 2
            self.of(self.rank, "packets")[epoch & 1].fill_((signed << 32) | NOT_A_NUMBER)

    def title(self) -> str:
        return str(self.plan.schedule)

    @property
    def half_rows(self) -> int | None:
        """Rows between the halves of a received operand, which alternate by call; None: it has one place."""
        return None

    def local_in(self, allocate: Callable[[Sequence[int]], Tensor]) -> None:
        """Puts `local` into memory that *allocate* returns for its shape, unless it exists already."""
        if self._local is None:
            extent = OPERATORS[self.problem.operator].extent(self.problem)
            self._local = allocate((extent.rows, extent.columns))

    def partial_sums(self, shape: Sequence[int], units: Sequence[int]) -> tuple[Tensor, Tensor]:
        """float32 memory of *shape* for partial sums, and a counter for each tile, which rises by its *units* a call.

        Both are this rank's own, and the same for all sets of operands.
        """
        if self._sums is None:
            each = torch.tensor(units, dtype=torch.int32, device=self.device)
            self._sums = torch.empty(*shape, dtype=torch.float32, device=self.device), self.epoch * each
        return self._sums

    def rising(self) -> list[Tensor]:
        return super().rising() if self._sums is None else [*super().rising(), self._sums[1]]

    @property
    def receives(self) -> bool:
        return OPERATORS[self.problem.operator].flow is Flow.RECEIVE

    @property
    def local(self) -> Tensor:
        """[M, N] in this rank's own memory: results before they are sent, or the result if operands are received."""
        self.local_in(lambda shape: torch.empty(*shape, dtype=self.dtype, device=self.device))
        assert self._local is not None
        return self._local

    def result(self) -> Tensor:
        """This rank's output, shaped as the operator's `local` says."""
        return self.local if self.receives else self.of(self.rank, "out")


def problem_bytes(plan: Plan) -> int:
    """Bytes of the data of one problem."""
    return aligned(heap_bytes(plan.problem, plan.schedule))


def shared_bytes(plan: Plan) -> int:
    """Bytes of the data of all problems of a call; trials of one session use them one after another."""
    return problems(plan.schedule) * problem_bytes(plan)
