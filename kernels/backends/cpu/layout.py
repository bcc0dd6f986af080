"""The tensors of a CPU rank: which are private, which lie in the heap, and at which offsets.

Legend of shape suffixes: W world, C rows of a chunk, M all rows (W x C), N columns, K contraction.
"""

from __future__ import annotations

from math import prod

from torch import Tensor

from kernels.backends.base import Region, aligned, place, regions
from kernels.backends.cpu.heap import SegmentHeap
from kernels.operators import OPERATORS
from kernels.operators.base import Flow, ResultLayout
from kernels.plan import Plan
from kernels.problem import Problem
from kernels.reference import Operands, torch_dtype
from kernels.schedule import Schedule
from kernels.schemes import axis_rules
from kernels.schemes.hosts import hosts

Rectangle = tuple[int, int, int, int, int]
"""A chunk, the rows inside it from first to last + 1, and the columns from first to last + 1."""


def all_regions(problem: Problem, schedule: Schedule) -> dict[str, Region]:
    """The heap's tensors for *schedule* by name, with those of puts between hosts.

    leaving [H, C, G x N]: by host, what the G ranks of this host computed for the rank of this place there, side by
    side. landing [H, C, G x N]: the same by the host that it came from.
    """
    known, operator = regions(problem, schedule), OPERATORS[problem.operator]
    if not axis_rules.puts_between_hosts(schedule) or operator.flow is Flow.RECEIVE:
        return known
    of = hosts(problem, schedule)
    shape = of.count, operator.chunk_rows(problem), of.each * operator.extent(problem).columns
    return known | place({"leaving": shape, "landing": shape}, problem.itemsize, _end(known, problem))


def _end(placed: dict[str, Region], problem: Problem) -> int:
    """The first free byte behind the tensors *placed* at which another may begin."""
    return aligned(max(region.offset + problem.itemsize * prod(region.shape) for region in placed.values()))


def num_bytes(problem: Problem, schedule: Schedule) -> int:
    """Bytes of heap from one of the problems of a call to the next."""
    return _end(all_regions(problem, schedule), problem)


class Memory:
    """One rank's tensors for one problem of a plan: its operands, its local buffer, views of all ranks' heaps."""

    def __init__(
        self, plan: Plan, rank: int, heap: SegmentHeap, operands: Operands, local_MN: Tensor, begins: int = 0
    ) -> None:
        self.problem, self.plan, self.rank = plan.problem, plan, rank
        self.operator = OPERATORS[plan.problem.operator]
        self.chunk = self.operator.chunk_rows(plan.problem)
        self.columns = self.operator.extent(plan.problem).columns
        self.operands = operands
        self.one_shot = plan.schedule.get("collective") == "one_shot"
        self.library = "library" in (plan.schedule.get("collective"), plan.schedule.get("engine"))
        self._dtype = torch_dtype(plan.problem)
        self._regions = all_regions(plan.problem, plan.schedule)
        between = axis_rules.puts_between_hosts(plan.schedule)
        self.hosts = hosts(plan.problem, plan.schedule) if between else None
        """The hosts between which this plan puts, or None."""
        self._heap, self._begins = heap, begins
        self.receives = self.operator.flow is Flow.RECEIVE
        self.local_MN = local_MN
        """[M, N] results that are not sent yet; where operands come in, the result itself."""
        self.place()

    def of(self, rank: int, name: str) -> Tensor:
        """The heap's tensor *name* on *rank*."""
        region = self._regions[name]
        # across hosts each rank is alone in its heap
        segment = rank if len(self._heap.segments) > 1 else 0
        return self._heap.tensor(segment, self._begins + region.offset, region.shape, self._dtype)

    def shard(self, peer: int) -> Tensor:
        """[C, K] operand rows that this rank holds for *peer*."""
        if "shard" in self.operands:
            return self.operands["shard"]
        return self.operands["tokens"][peer * self.chunk : (peer + 1) * self.chunk]

    def place(self) -> None:
        """Copies this rank's share of the incoming operand to where the rest will arrive; again after each change."""
        if self.receives:
            self.of(self.rank, "operand")[self._rows(self.rank)] = self.shard(self.rank)

    def _rows(self, chunk: int) -> slice:
        return slice(chunk * self.chunk, (chunk + 1) * self.chunk)

    def slot(self, owner: int, source: int) -> Tensor:
        """[C, N] the place on *owner* for what *source* computed for it ([M, N] for one_shot)."""
        if self.operator.reduces:
            return self.of(owner, "stage")[source]
        out = self.of(owner, "out")
        if self.operator.layout is ResultLayout.COLUMNS:
            return out[:, source * self.columns : (source + 1) * self.columns]
        return out[self._rows(source)]

    def target(self, at: Rectangle, in_place: bool) -> Tensor:
        """The place where this rank stores the result of tile *at*."""
        chunk, *_ = at
        if self.one_shot:
            return self.cut(self.slot(self.rank, self.rank)[self._rows(chunk)], at)
        if self.hosts is not None and self.crosses(chunk):
            collector = self.hosts.at(self.hosts.host(self.rank), self.hosts.place(chunk))
            return self.cut(self._part(self.of(collector, "leaving")[self.hosts.host(chunk)], self.rank), at)
        if self.receives or self.library or (chunk != self.rank and not in_place):
            return self.cut(self.local_MN[self._rows(chunk)], at)
        return self.cut(self.slot(chunk, self.rank), at)

    def crosses(self, chunk: int) -> bool:
        """Whether results for *chunk* leave this rank's host by the network."""
        return self.hosts is not None and not self.receives and self.hosts.host(chunk) != self.hosts.host(self.rank)

    def _part(self, side_by_side: Tensor, source: int) -> Tensor:
        """[C, N] the columns of *source* among those of all ranks of its host."""
        assert self.hosts is not None
        first = self.hosts.place(source) * self.columns
        return side_by_side[:, first : first + self.columns]

    def slice_out(self, peer: int, rows: slice) -> tuple[Tensor, Tensor]:
        """Rows of what all ranks of this host computed for *peer*, and the place there where they land."""
        assert self.hosts is not None
        host = self.hosts.host
        return self.of(self.rank, "leaving")[host(peer)][rows], self.of(peer, "landing")[host(self.rank)][rows]

    def slice_in(self, carrier: int, rows: slice) -> list[tuple[Tensor, Tensor]]:
        """Rows that *carrier* put here and their place in the result, for each rank of its host."""
        assert self.hosts is not None
        host = self.hosts.host(carrier)
        landed = self.of(self.rank, "landing")[host]
        sources = (self.hosts.at(host, place) for place in range(self.hosts.each))
        return [(self._part(landed, each)[rows], self.slot(self.rank, each)[rows]) for each in sources]

    def leaving(self, at: Rectangle) -> Tensor:
        """The elements that a put of tile *at* reads."""
        chunk, *_ = at
        if self.one_shot:
            return self.cut(self.slot(self.rank, self.rank)[self._rows(chunk)], at)
        source = self.of(self.rank, "out") if chunk == self.rank else self.local_MN
        return self.cut(source[self._rows(chunk)], at)

    def landing(self, peer: int, at: Rectangle) -> Tensor:
        """The place on *peer* that a put of tile *at* writes to."""
        chunk, *_ = at
        if self.one_shot:
            return self.cut(self.slot(peer, self.rank)[self._rows(chunk)], at)
        if chunk == self.rank:
            return self.cut(self.of(peer, "out")[self._rows(chunk)], at)
        return self.cut(self.slot(peer, self.rank), at)

    def summands(self, at: Rectangle) -> tuple[Tensor, Tensor]:
        """[W, rows, columns] contributions to tile *at*, and the place of their sum."""
        chunk, r0, r1, c0, c1 = at
        stage, out = self.of(self.rank, "stage"), self.of(self.rank, "out")
        if self.one_shot:
            stage = stage[:, self._rows(chunk)]
        whole = self.operator.flow is Flow.BROADCAST
        return stage[:, r0:r1, c0:c1], self.cut(out[self._rows(chunk)] if whole else out, at)

    @staticmethod
    def cut(tensor: Tensor, at: Rectangle) -> Tensor:
        _, r0, r1, c0, c1 = at
        return tensor[r0:r1, c0:c1]

    def operand_rows(self, chunk: int, rows: tuple[int, int], k: tuple[int, int], owner: int, name: str) -> Tensor:
        """Rows of source *chunk* in *owner*'s tensor *name*: its operand or its staging buffer."""
        start = chunk * self.chunk
        return self.of(owner, name)[start + rows[0] : start + rows[1], k[0] : k[1]]

    def result(self) -> Tensor:
        """This rank's output, shaped as the operator's `local` says."""
        return self.local_MN if self.receives else self.of(self.rank, "out")

    def poison(self) -> None:
        """Fills everything that a run has to write with NaN."""
        self.local_MN.fill_(float("nan"))
        for name in self._regions:
            self.of(self.rank, name).fill_(float("nan"))
        self.place()
