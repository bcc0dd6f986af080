"""A Plan's steps on one CPU rank, compiled to calls, and the loop that runs the first of the steps that are ready.

The highest priority goes first, then the lowest turn. There is one thread, and a running step is never interrupted.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from kernels.backends.base import Hang
from kernels.backends.cpu import gloo
from kernels.backends.cpu.heap import SegmentHeap, clock, fence, pause
from kernels.backends.cpu.layout import Memory, Rectangle
from kernels.backends.cpu.link import Egress
from kernels.backends.cpu.pooling import pool
from kernels.outcome import Span
from kernels.plan import Kind, Plan, Tiles
from kernels.schemes import axis_rules

# The calls that compute a tile: ATen with `out=`, and our pooling where ATen has none.

Action = Callable[[], Any]


def tile_action(memory: Memory, at: Rectangle, k: tuple[int, int], in_place: bool) -> Action:
    """The call that computes tile *at* over contraction range *k* into its target."""
    target = memory.target(at, in_place)
    if memory.operator.work == "gather":
        return _gather(memory, at, target)
    left, right = _factors(memory, at, k)
    if k[0] == 0:
        return lambda: torch.mm(left, right, out=target)
    return lambda: torch.addmm(target, left, right, out=target)


def _factors(memory: Memory, at: Rectangle, k: tuple[int, int]) -> tuple[Tensor, Tensor]:
    chunk, r0, r1, c0, c1 = at
    if memory.receives:
        left = memory.operand_rows(chunk, (r0, r1), k, memory.rank, "operand")
        right = next(value for name, value in memory.operands.items() if name in ("b", "expert"))
    else:
        first, right = memory.operands.values()
        start = chunk * memory.chunk
        left = first[start + r0 : start + r1, k[0] : k[1]]
    return left, right[k[0] : k[1], c0:c1]


def _gather(memory: Memory, at: Rectangle, target: Tensor) -> Action:
    """The call that pools the columns of tile *at*, which lie in one table or in several."""
    chunk, r0, r1, c0, c1 = at
    dim, start = memory.problem["dim"], chunk * memory.chunk
    tables, indices = memory.operands["tables"], memory.operands["indices"]
    calls = []
    for table in range(c0 // dim, -(-c1 // dim)):
        low, high = max(c0, table * dim), min(c1, (table + 1) * dim)
        calls.append(
            (
                tables[table][:, low - table * dim : high - table * dim],
                indices[start + r0 : start + r1, table],
                target[:, low - c0 : high - c0],
            )
        )

    def gather() -> None:
        for rows, which, out in calls:
            pool(rows, which, out)

    return gather


def reduce_action(memory: Memory, at: Rectangle) -> Action:
    """The call that sums all ranks' contributions to tile *at*."""
    summands, out = memory.summands(at)
    if memory.problem.world == 2:
        return lambda: torch.add(summands[0], summands[1], out=out)
    return lambda: torch.sum(summands, dim=0, out=out)


def copy_action(source: Tensor, target: Tensor) -> Action:
    """The call that copies *source* over *target*."""
    return lambda: target.copy_(source)


# Steps, and the loop that runs them.


@dataclass(slots=True)
class RankStep:
    """One step of this rank."""

    number: int
    """Its number in the plan, which is also that of its signal in the receiver's memory."""
    kind: Kind
    actions: Sequence[Action]
    local: Sequence[int]
    """Steps of this rank that it waits for."""
    remote: Sequence[int]
    """Puts of peers into this rank's memory that it waits for."""
    peer: int = -1
    num_bytes: int = 0
    turn: int = 0
    """Its place among this rank's steps."""
    followers: list[RankStep] = field(default_factory=list)
    """Steps of this rank that wait for it."""
    missing: int = 0
    """Number of `local` steps that are not done yet in this iteration."""
    blocker: int = -1
    """The last step that it waited for in this iteration, -1 for none."""


@dataclass(slots=True)
class PlanProgram:
    """One plan on one rank. `run` is called by all ranks together."""

    plan: Plan
    memories: Sequence[Memory]
    """This rank's tensors by micro-batch."""
    heap: SegmentHeap
    egress: Egress
    library: gloo.Library | None
    steps: list[RankStep] = field(default_factory=list)
    arrivals: list[int] = field(default_factory=list)
    records: list[list[tuple[int, str, float, float, int]]] = field(default_factory=list)
    """Records by iteration: (step, name of the pool, start, stop, blocker)."""

    def __post_init__(self) -> None:
        rank, turn, priority = self.rank, self.plan.turn, self.plan.launches.priority[self.plan.launch]
        numbers = sorted((int(s) for s in self.plan.steps_of(rank)), key=lambda s: (-int(priority[s]), int(turn[s])))
        calls: dict[int, gloo.Call] = {}
        self.steps = [self._compile(number, calls) for number in numbers]
        self._obey_streams()
        self.arrivals = [int(step) for step in self.plan.arrivals(rank)]
        by_number = {step.number: step for step in self.steps}
        for place, step in enumerate(self.steps):
            step.turn = place
            for needed in step.local:
                by_number[needed].followers.append(step)
        self._rewind()

    @property
    def rank(self) -> int:
        return self.memories[0].rank

    def _obey_streams(self) -> None:
        """Makes the steps of a launch wait for all of the launch before it on its stream."""
        of_launch: dict[int, list[RankStep]] = {}
        for step in self.steps:
            of_launch.setdefault(int(self.plan.launch[step.number]), []).append(step)
        for before, after in self.plan.next_launches().items():
            earlier = [step.number for step in of_launch.get(before, ())]
            for step in of_launch.get(after, ()):
                step.local = list(dict.fromkeys((*step.local, *earlier)))

    def _rewind(self) -> None:
        """Resets all steps for the next iteration; called after one, off the clock."""
        for step in self.steps:
            step.missing, step.blocker = len(step.local), -1

    def _compile(self, number: int, calls: dict[int, gloo.Call]) -> RankStep:
        plan, rank = self.plan, self.rank
        waits = [int(step) for step in plan.waits_for(number)]
        kind = Kind(int(plan.kind[number]))
        return RankStep(
            number=number,
            kind=kind,
            actions=self._actions(kind, number, calls),
            local=[step for step in waits if plan.rank[step] == rank],
            remote=[step for step in waits if plan.rank[step] != rank and kind is not Kind.COLLECTIVE],
            peer=int(plan.peer[number]),
            num_bytes=int(plan.num_bytes[number]),
        )

    def _memory(self, number: int) -> Memory:
        """The tensors of the problem that step *number* works on."""
        return self.memories[int(self.plan.micro_batch[number])]

    def _actions(self, kind: Kind, number: int, calls: dict[int, gloo.Call]) -> list[Action]:
        plan, memory, tiles = self.plan, self._memory(number), self.plan.tiles[self.rank]
        at = (int(plan.tile_start[number]), int(plan.tile_stop[number]))
        if kind is Kind.COMPUTE:
            k, in_place = (int(plan.k_start[number]), int(plan.k_stop[number])), _stores_at_peer(plan)
            return [tile_action(memory, tile, k, in_place) for tile in tile_list(tiles, at)]
        if kind is Kind.REDUCE:
            return [reduce_action(memory, area) for area in rectangles(tiles, at)]
        if kind is Kind.COLLECTIVE:
            assert self.library is not None
            calls[number] = gloo.Call(memory, self.library, plan, number)
            last = [calls[number].unpack] if memory.operator.collective == "all_reduce" else []
            return [calls[number].start, *last]
        if kind is Kind.COPY:
            lands = memory.hosts is not None and at[0] < at[1]
            return self._copies(number, tiles, at) if lands else [self._copy(number, calls)]
        assert kind is Kind.PUT, f"{plan.address(number)}: a CPU rank runs no {kind.word}"
        return self._put(number, tiles, at)

    def _put(self, number: int, tiles: Tiles, at: tuple[int, int]) -> list[Action]:
        plan, memory, peer = self.plan, self._memory(number), int(self.plan.peer[number])
        if plan.in_place[number]:
            return []
        if memory.crosses(peer):
            source, target = memory.slice_out(peer, self._rows_of(tiles, at))
            return [copy_action(source, target)]
        if not memory.receives:
            return [copy_action(memory.leaving(area), memory.landing(peer, area)) for area in rectangles(tiles, at)]
        rows, k = self._operand_range(number)
        name = "staging" if plan.schedule.get("write") == "staged" else "operand"
        if (origin := plan.origin(number)) != memory.rank:
            brought = memory.operand_rows(origin, rows, k, memory.rank, name)
            return [copy_action(brought, memory.operand_rows(origin, rows, k, peer, name))]
        source = memory.shard(peer)[slice(*rows), slice(*k)]
        return [copy_action(source, memory.operand_rows(memory.rank, rows, k, peer, name))]

    @staticmethod
    def _rows_of(tiles: Tiles, at: tuple[int, int]) -> slice:
        """The rows of a chunk that whole rows of tiles cover."""
        return slice(int(tiles.row_start[slice(*at)].min()), int(tiles.row_stop[slice(*at)].max()))

    def _copies(self, number: int, tiles: Tiles, at: tuple[int, int]) -> list[Action]:
        """The calls that copy a slice that landed from another host into the result."""
        landed = self._memory(number).slice_in(int(self.plan.peer[number]), self._rows_of(tiles, at))
        return [copy_action(source, target) for source, target in landed]

    def _copy(self, number: int, calls: dict[int, gloo.Call]) -> Action:
        """The call that empties a staging buffer: that of a peer's put, or of the collective that it waits for."""
        for step in self.plan.waits_for(number):
            if int(step) in calls:
                return calls[int(step)].unpack
        rows, k = self._operand_range(number)
        memory, source = self._memory(number), int(self.plan.peer[number])
        views = [memory.operand_rows(source, rows, k, memory.rank, name) for name in ("staging", "operand")]
        return copy_action(*views)

    def _operand_range(self, number: int) -> tuple[tuple[int, int], tuple[int, int]]:
        plan = self.plan
        return (
            (int(plan.row_start[number]), int(plan.row_stop[number])),
            (int(plan.k_start[number]), int(plan.k_stop[number])),
        )

    def run(self, start: float, epoch: int) -> float:
        """Runs one iteration from the common moment *start*; returns seconds until all data for this rank are here."""
        self.egress.begin(start)
        record: list[tuple[int, str, float, float, int]] = []
        working: dict[int, tuple[RankStep, Any, float]] = {}
        open_steps, since = [step for step in self.steps if not step.missing], start
        while open_steps or working:
            self._finish(working, open_steps, record)
            ready = next((i for i, step in enumerate(open_steps) if not self._blocked(step, epoch)), None)
            if ready is None:
                now = clock()
                if now - since > self.heap.seat.deadline_s:
                    raise Hang(self._stuck(open_steps, epoch))
                pause(since, now)
                continue
            step = open_steps.pop(ready)
            self._do(step, working, record, epoch)
            if step.number not in working:
                _done(step, open_steps)
            since = clock()
        self._await_arrivals(epoch)
        seconds = clock() - start
        self.records.append(record)
        self._rewind()
        return seconds

    def _blocked(self, step: RankStep, epoch: int) -> bool:
        """Whether data of peers are missing; steps of this rank were counted before."""
        signal, stamp = self.heap.own_segment.signal, self.heap.own_segment.stamp
        for needed in step.remote:
            if signal[needed] < epoch or stamp[needed] > clock():
                step.blocker = needed
                return True
        if step.remote:
            fence()
        return False

    def _do(
        self,
        step: RankStep,
        working: dict[int, tuple[RankStep, Any, float]],
        record: list[tuple[int, str, float, float, int]],
        epoch: int,
    ) -> None:
        begin = clock()
        if step.kind is Kind.COLLECTIVE:
            working[step.number] = (step, step.actions[0](), begin)
            return
        for action in step.actions:
            action()
        if step.actions:
            record.append((step.number, "compute", begin, clock(), step.blocker))
        if step.kind is Kind.PUT:
            begins, ends, arrives = self.egress.send(step.num_bytes, step.peer)
            self._signal(step, arrives, epoch)
            if ends > begins:
                record.append((step.number, self.egress.name(step.peer), begins, ends, step.blocker))

    def _signal(self, step: RankStep, arrives: float, epoch: int) -> None:
        segment = self.heap.segments[step.peer]
        segment.stamp[step.number] = arrives
        fence()
        segment.signal[step.number] = epoch

    def _finish(
        self,
        working: dict[int, tuple[RankStep, Any, float]],
        open_steps: list[RankStep],
        record: list[tuple[int, str, float, float, int]],
    ) -> None:
        for number, (step, work, begin) in list(working.items()):
            if not work.get_future().done():
                continue
            work.wait()
            record.append((number, "library", begin, clock(), step.blocker))
            for action in step.actions[1:]:
                action()
            del working[number]
            _done(step, open_steps)

    def _await_arrivals(self, epoch: int) -> None:
        """Waits until all data for this rank can be read, which ends the call."""
        signal, stamp, since = self.heap.own_segment.signal, self.heap.own_segment.stamp, clock()
        for step in self.arrivals:
            while signal[step] < epoch or stamp[step] > clock():
                now = clock()
                if now - since > self.heap.seat.deadline_s:
                    raise Hang(self._hang_message(step, epoch))
                pause(since, now)
        fence()

    def _stuck(self, pending: Sequence[RankStep], epoch: int) -> str:
        return self._hang_message(next((step.blocker for step in pending if step.blocker >= 0), -1), epoch)

    def _hang_message(self, step: int, epoch: int) -> str:
        seat = self.heap.seat
        seen = int(self.heap.own_segment.signal[step]) if step >= 0 else 0
        what = self.plan.address(step) if step >= 0 else "a collective of the library"
        return (
            f"Rank {self.rank} waited {seat.deadline_s:g} s for {what}: signal {step} shows epoch {seen} "
            f"instead of epoch {epoch}."
        )

    def spans(self, iteration: int, start: float) -> list[Span]:
        """This rank's spans of *iteration*, in seconds from the common moment *start*."""
        plan, rank, stream, problem = self.plan, self.rank, self.plan.stream, self.plan.problem_of_call
        return [
            Span(
                plan.address(step),
                rank,
                Kind(int(plan.kind[step])).word,
                pool,
                begin - start,
                end - start,
                plan.address(blocker) if blocker >= 0 else None,
                stream=int(stream[step]),
                micro_batch=problem[step],
            )
            for step, pool, begin, end, blocker in self.records[iteration]
        ]


def _done(step: RankStep, open_steps: list[RankStep]) -> None:
    """Opens, by turn, the followers of *step* that wait for no other step of this rank."""
    for follower in step.followers:
        follower.missing -= 1
        if not follower.missing:
            follower.blocker = step.number
            insort(open_steps, follower, key=lambda each: each.turn)


def _stores_at_peer(plan: Plan) -> bool:
    """Whether the kernel writes results straight into their owner's memory."""
    return plan.schedule.get("write") == "zero_copy" or axis_rules.puts_between_hosts(plan.schedule)


def tile_list(tiles: Tiles, at: tuple[int, int]) -> list[Rectangle]:
    """Tiles at[0]..at[1] as plain numbers."""
    span = slice(*at)
    columns = (tiles.chunk, tiles.row_start, tiles.row_stop, tiles.col_start, tiles.col_stop)
    return list(zip(*(column[span].tolist() for column in columns), strict=True))


def rectangles(tiles: Tiles, at: tuple[int, int]) -> list[Rectangle]:
    """Tiles at[0]..at[1] as few rectangles: one per chunk where its tiles fill their bounding box."""
    merged: list[Rectangle] = []
    listed = tile_list(tiles, at)
    for chunk in dict.fromkeys(tile[0] for tile in listed):
        of_chunk = [tile for tile in listed if tile[0] == chunk]
        _, row_starts, row_stops, col_starts, col_stops = zip(*of_chunk, strict=True)
        box = (chunk, min(row_starts), max(row_stops), min(col_starts), max(col_stops))
        merged += [box] if _area([box]) == _area(of_chunk) else of_chunk
    return merged


def _area(boxes: Sequence[Rectangle]) -> int:
    return sum((r1 - r0) * (c1 - c0) for _, r0, r1, c0, c1 in boxes)
