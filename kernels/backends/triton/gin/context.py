"""Where a trial's tensors, slices and signals lie when ranks are on several hosts: a window, a device communicator.

No rank addresses another's memory. A window is the heap of a rank, registered with the library, and equally large on
all; a place in it is a number of bytes from its start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from kernels.backends.base import Region, aligned, place
from kernels.backends.triton.device import INTERPRETED
from kernels.backends.triton.gin import transport, wheel
from kernels.backends.triton.gin.library import Communicator, DevComm
from kernels.backends.triton.gin.table import HALVES, SliceTable, slice_of
from kernels.backends.triton.memory import Context, OutOfReachError, SymmetricHeap, private_bytes
from kernels.operators import OPERATORS
from kernels.operators.base import Flow
from kernels.plan import Plan
from kernels.problem import Problem
from kernels.reference import torch_dtype
from kernels.schedule import Refusal

ROWS_AT_ONCE = 8
"""Rows that landed and that one program copies before it takes others."""
NO_COUNTER = -1
"""In the tables: nothing of this rank is counted."""
MEETING_BYTES = 16
"""Bytes that a rank puts to each peer to say that it is at a barrier."""


def network_regions(problem: Problem, start: int) -> dict[str, Region]:
    """Regions of one trial's puts from *start* on: what leaves (`stage`), where it lands (`landing`), and `meeting`.

    stage: [W, chunk, columns], by owner; of received operands [chunk, k], this rank's rows.
    landing: [2, W, chunk, columns], by parity and source; of received operands [2, m, k], the operand itself.
    """
    operator, world = OPERATORS[problem.operator], problem.world
    extent, chunk = operator.extent(problem), operator.chunk_rows(problem)
    width = extent.contraction if operator.flow is Flow.RECEIVE else extent.columns
    staged = (chunk, width) if operator.flow is Flow.RECEIVE else (world, chunk, width)
    data = place({"stage": staged, "landing": (HALVES, world, chunk, width)}, problem.itemsize, start)
    end = max(aligned(region.offset + problem.itemsize * prod(region.shape)) for region in data.values())
    return data | place({"meeting": (1 + world, MEETING_BYTES)}, 1, end)


def network_bytes(problem: Problem) -> int:
    """Bytes of `network_regions`."""
    meeting = network_regions(problem, 0)["meeting"]
    return aligned(meeting.offset + prod(meeting.shape))


def network_trial_bytes(plan: Plan) -> int:
    """Bytes of what one trial has in its window behind the data that trials share."""
    return private_bytes(plan, 0) + network_bytes(plan.problem)


class Link(Protocol):
    """How one trial's kernels reach the other hosts: a device communicator with signals of its own."""

    pointer: int
    """What kernels take as `comm`: the address of the device communicator, or of a twin's table."""
    window: int
    """The window over the heap, on every rank."""


class NetworkLink:
    """A device communicator of *communicator* for one trial, in GPU memory. Making one is collective."""

    def __init__(self, communicator: Communicator, window: int, table: SliceTable, device: torch.device) -> None:
        self.window, self._communicator = window, communicator
        self._structure: DevComm | None = communicator.device(table.signals, table.contexts)
        self._copy = torch.frombuffer(bytearray(bytes(self._structure)), dtype=torch.uint8).to(device)
        self.pointer = self._copy.data_ptr()

    def close(self) -> None:
        """Frees it once no kernel uses it; all ranks call it."""
        if self._structure is not None:
            self._communicator.forget(self._structure)
            self._structure = None


class SharedMemoryLink:
    """The twin of a device communicator for interpreted ranks, whose heap every rank maps from byte 0 on."""

    window = 0

    def __init__(self, heap: SymmetricHeap, rank: int, table: SliceTable, start: int) -> None:
        """*start*: bytes before the signals of this trial in the heap; this rank clears them, then all ranks meet."""
        count, world = table.contexts * table.signals, table.world
        signals = [heap.tensor(other, start, (count,), torch.int64) for other in range(world)]
        signals[rank].zero_()
        data = [heap.tensor(other, 0, (1,), torch.uint8).data_ptr() for other in range(world)]
        words = [rank, world, table.signals, *data, *(each.data_ptr() for each in signals)]
        assert len(words) == transport.ADDRESSES.value + 2 * world
        self._words = torch.tensor(words, dtype=torch.int64)
        self.pointer = self._words.data_ptr()

    @staticmethod
    def num_bytes(table: SliceTable) -> int:
        """Bytes of the signals of one trial."""
        return 8 * table.contexts * table.signals


class WindowHeap:
    """This rank's window, as a heap that no other rank addresses: `allocate` on each rank, then `register` on all."""

    window: int
    """The window on every rank, once it is registered."""

    def __init__(self, communicator: Communicator, device: torch.device, num_bytes: int) -> None:
        self.capacity, self._rank = num_bytes, communicator.rank
        self._communicator, self._device = communicator, device
        self._address: int | None = None

    def allocate(self) -> None:
        """Takes the memory; NcclError where this GPU has no room. It waits for no other rank."""
        self._address = self._communicator.allocate(self.capacity)

    def register(self) -> None:
        """Clears the memory and makes it a window; all ranks call it, once all of them have memory."""
        assert self._address is not None
        self._buffer = torch.as_tensor(_Memory(self._address, self.capacity), device=self._device)
        self._buffer.zero_()
        torch.cuda.synchronize(self._device)
        self.window = self._communicator.window(self._address, self.capacity)

    def close(self) -> None:
        """Gives window and memory back; all ranks call it, and no tensor of it is used any more."""
        self._communicator.deregister(self.window)
        self.free()

    def free(self) -> None:
        """Gives the memory back, if this rank has any; a rank calls it alone where there is no window."""
        address, self._address = self._address, None
        if address is not None:
            self._communicator.free(address)

    def tensor(self, rank: int, offset: int, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """A view of this rank's memory at *offset* bytes."""
        if rank != self._rank:
            raise OutOfReachError(self._rank, rank)
        num_bytes = prod(shape) * dtype.itemsize
        return self._buffer[offset : offset + num_bytes].view(dtype).view(*shape)


class _Memory:
    """GPU memory that torch has not allocated, as torch takes it."""

    def __init__(self, address: int, num_bytes: int) -> None:
        self.__cuda_array_interface__ = {"shape": (num_bytes,), "typestr": "|u1", "data": (address, False),
                                         "version": 3}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sent:
    """What a kernel needs to put its slices and to copy those that land, on one rank."""

    arguments: tuple[Tensor, ...]
    """network, calls, counts, slices, arrivals, landing: see `transport.py`."""
    slice_of_tile: Tensor
    """int32 [tiles]: number of the slice, owner by owner, of each tile in the order of the plan."""
    arrivals: int
    """Blocks of rows that land."""
    columns: int
    """Elements of a row that lands."""
    libraries: Mapping[str, str] | None
    """What Triton links into the kernel; None where it is interpreted."""


class NetworkContext(Context):
    """Tensors, slices and signals of one trial whose ranks are on several hosts, on one rank."""

    def __init__(
        self, heap: SymmetricHeap, plan: Plan, rank: int, device: torch.device, *, start: int, limit_s: float,
        table: SliceTable | None = None,
    ) -> None:  # fmt: skip
        super().__init__(heap, plan, rank, device, start=start, limit_s=limit_s)
        self.table = SliceTable.of_plan(plan) if table is None else table
        if (reason := self.table.refusal()) is not None:
            raise Refusal(reason)
        end = start + private_bytes(plan, rank)
        for name, region in network_regions(plan.problem, end).items():
            self.places[name] = region, torch.uint8 if name == "meeting" else torch_dtype(plan.problem)
        if self.lands:  # rows land where they are read
            landing, dtype = self.places["landing"]
            halves, world, chunk, width = landing.shape
            self.places["operand"] = Region(landing.offset, (halves * world * chunk, width)), dtype
        self.calls = torch.zeros(1, dtype=torch.int64, device=device)
        """The epoch with 64 bits."""
        self.meetings = torch.zeros(1, dtype=torch.int64, device=device)
        self.link: Link | None = None
        self.libraries = None if INTERPRETED.value else extern_libraries()
        """What Triton links into its kernels."""

    def sent(self) -> Sent:
        """The tables of an operator that sends results; the tables' words are those of `transport.py`."""
        rank, device, arriving = self.rank, self.device, self.arriving()
        columns = OPERATORS[self.problem.operator].extent(self.problem).columns
        tiles = self.plan.tiles[rank]
        first, last = slice_of(self.table, tiles.row_start), slice_of(self.table, tiles.row_stop - 1)
        assert (first == last).all(), f"a tile of {self.plan.schedule} lies in two slices"
        of_tile = torch.from_numpy((tiles.chunk * len(self.table) + first).astype("int32"))
        counted = torch.bincount(of_tile, minlength=self.world * len(self.table))
        leaving = torch.tensor([
            self.leaving(*divmod(at, len(self.table)), tiles=count) for at, count in enumerate(counted.tolist())
        ])  # fmt: skip
        return Sent(
            arguments=(
                self.network(len(arriving)), self.calls,
                torch.zeros(len(counted), dtype=torch.int32, device=device), leaving.to(device),
                torch.tensor(arriving, dtype=torch.int32, device=device), self.of(rank, "landing"),
            ),
            slice_of_tile=of_tile, arrivals=len(arriving), columns=columns, libraries=self.libraries,
        )  # fmt: skip

    def network(self, arrivals: int) -> Tensor:
        """int64 [NETWORK_WORDS]: what all functions of `transport.py` read; *arrivals* are the entries that arrive."""
        words = [
            *self.sending(),
            self._chunk_bytes * self.world,
            self.table.half_signals,
            self.table.contexts,
            arrivals,
        ]
        assert len(words) == transport.NETWORK_WORDS
        return torch.tensor(words, dtype=torch.int64, device=self.device)

    @property
    def _row_bytes(self) -> int:
        """Bytes of a row that is put: of results, or of received operands."""
        extent = OPERATORS[self.problem.operator].extent(self.problem)
        return (extent.contraction if self.receives else extent.columns) * self.problem.itemsize

    @property
    def _chunk_bytes(self) -> int:
        """Bytes of the rows that one rank puts to another."""
        return OPERATORS[self.problem.operator].chunk_rows(self.problem) * self._row_bytes

    def leaving(self, owner: int, number: int, *, tiles: int = 0, counter: int = NO_COUNTER) -> list[int]:
        """SLICE_WORDS of slice *number* to *owner*; its *tiles* raise *counter*. Operand rows are the same for all."""
        start, stop = self.table.rows[number]
        chunk = 0 if self.receives else owner * self._chunk_bytes
        return [tiles, counter, self.at("stage") + chunk + start * self._row_bytes,
                self.at("landing") + self.rank * self._chunk_bytes + start * self._row_bytes,
                (stop - start) * self._row_bytes, self.table.context(number), self.table.signal(self.rank, number),
                owner]  # fmt: skip

    def arriving(self, rows: int = ROWS_AT_ONCE) -> list[list[int]]:
        """ARRIVAL_WORDS of blocks of *rows* rows, slice by slice and from the next rank on: as they are expected."""
        return [
            [source, number, top, min(rows, stop - top), self.table.context(number),
             self.table.signal(source, number), NO_COUNTER]
            for number, (start, stop) in enumerate(self.table.rows)
            for source in ((self.rank - step) % self.world for step in range(1, self.world))
            for top in range(start, stop, rows)
        ]  # fmt: skip

    def at(self, name: str) -> int:
        """Bytes from the start of the window to tensor *name*, on every rank."""
        return self.places[name][0].offset

    def sending(self) -> tuple[int, int]:
        """What kernels take first: communicator and window; 0 for a context that is only compiled for."""
        return (0, 0) if self.link is None else (self.link.pointer, self.link.window)

    def addresses(self, name: str) -> Tensor:
        """int64 [W]: where this rank's tensor *name* lies; 0 for others, whose memory no kernel may address."""
        address = self.of(self.rank, name).data_ptr()
        return torch.tensor([address * (rank == self.rank) for rank in range(self.world)], device=self.device)

    @property
    def lands(self) -> bool:
        """Whether operand rows are put to this rank, and not moved by the library."""
        return self.receives and len(self.table) > 0

    @property
    def half_rows(self) -> int | None:
        """Rows from one half of the received operand to the other; None where results are sent, or nothing is put."""
        return OPERATORS[self.problem.operator].extent(self.problem).rows if self.lands else None


def extern_libraries(folder: Path = wheel.FOLDER) -> dict[str, str]:
    """What Triton links into kernels that put: our entry points, then NCCL's device functions."""
    shim = wheel.SHIM
    return {"overlap_gin": str(shim), "nccl_device": str(wheel.Wheel(folder).bitcode)}
