"""The accesses of one rank's kernel for an operator and a schedule, with the stores of its peers interleaved.

Tiles come in the order of the Plan and are dealt to SMs round-robin, as the persistent kernels do; SMs advance in
lockstep. A tile reads its whole contraction, at least one line of each row at a time. GEMM operands bypass L1, as bulk
copies do. Results for a peer leave over the link and touch nothing here. Puts of peers arrive evenly over the whole
kernel; the reads of a later sum over them are ignored.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from kernels.operators import OPERATORS
from kernels.operators.base import Flow
from kernels.plan import Kind, Plan, Tiles
from kernels.problem import Problem
from kernels.schedule import Schedule, tile
from kernels.schemes import expand
from workbench.simulator.cache.hierarchy import LINE_BYTES
from workbench.simulator.cache.patterns import AccessProgram, Array, KernelAccesses, Lines, Touch, stacked, where
from workbench.simulator.cache.popularity import EXPONENT
from workbench.simulator.cache.trace import DIRECT, PEER, WRITE, Accesses, Chunk, Trace, accesses

RANK = 0
INDEX_BYTES, SEED = 8, 0
"""Bytes of a lookup index, and the seed that indices are drawn with by the law of kernels/reference.py."""


def traced(problem: Problem, schedule: Schedule, units: int) -> Trace:
    """The accesses of rank 0 on *units* SMs."""
    plan = expand(problem, schedule)
    program = AccessProgram(f"{problem.operator} {schedule.scheme}")
    if OPERATORS[problem.operator].work == "gather":
        _lookups(program, problem, plan.tiles[RANK])
    else:
        _product(program, problem, schedule, plan.tiles[RANK])
    incoming = _incoming(program, problem, plan)
    trace = program.trace(units)
    trace = replace(trace, counted=cache(trace.count))
    if not len(incoming):
        return trace
    return replace(trace, chunks=lambda: _interleaved(trace, incoming), counted=lambda: trace.count() + len(incoming))


def _product(program: AccessProgram, problem: Problem, schedule: Schedule, tiles: Tiles) -> None:
    """Add the kernel of a product: a tile reads rows of the left operand and columns of the right one, then stores."""
    operator, item = OPERATORS[problem.operator], problem.itemsize
    extent, flags = operator.extent(problem), DIRECT if operator.work == "gemm" else 0
    names = [name for name in operator.local(problem) if name != "output"]
    sizes = (extent.rows * extent.contraction, extent.contraction * extent.columns)
    left, right = (program.array(name, _role(name), count * item) for name, count in zip(names, sizes, strict=True))
    out = program.array("output", "output", extent.rows * extent.columns * item)
    grid = _Grid(tiles, operator.chunk_rows(problem), extent.columns * item, extent.contraction * item)
    size = tile(schedule["tile"])
    depth = max(size.k, LINE_BYTES // item)
    parts = [
        _Part(left, extent.contraction * item, size.m, depth * item),
        _Part(right, extent.columns * item, depth, size.n * item),
        _Part(out, extent.columns * item, size.m, size.n * item),
    ]  # fmt: skip
    steps = -(-extent.contraction // depth)
    remote = operator.flow is not Flow.RECEIVE

    def lines(block: Lines, step: Lines) -> Lines:
        at, ends = grid.at(block), step == steps
        leaves = (at.chunk != RANK) & remote
        rows = [parts[0].lines(at.row, at.rows, step * depth * item, grid.depth_bytes),
                parts[1].lines(step * depth, np.minimum(depth, extent.contraction - step * depth), at.column * item,
                               at.column_stop * item),
                parts[2].lines(at.row, at.rows, at.column * item, at.column_stop * item)]  # fmt: skip
        kept = [where(~ends[..., None], rows[0]), where(~ends[..., None], rows[1]),
                where((ends & ~leaves)[..., None], rows[2])]  # fmt: skip
        shape = np.broadcast_shapes(block.shape, step.shape)
        return np.concatenate([np.broadcast_to(each, (*shape, each.shape[-1])) for each in kept], axis=-1)

    touches = [touch for verb, part, flag in zip(("load", "load", "store"), parts, (flags, flags, 0), strict=True)
               for touch in [program.touch("kernel", verb, part.array, flags=flag)] * part.count]  # fmt: skip
    program.kernels.append(KernelAccesses(len(tiles), steps + 1, tuple(touches), lines))


def _role(name: str) -> str:
    return "weights" if name in ("b", "expert", "weights") else "activations"


@dataclass(frozen=True, slots=True)
class _BlockPlace:
    """Positions of blocks in the output, as arrays of shape [B, 1]."""

    chunk: Lines
    row: Lines
    rows: Lines
    column: Lines
    column_stop: Lines


@dataclass(frozen=True, slots=True)
class _Grid:
    """A rank's tiles as the blocks of a grid."""

    tiles: Tiles
    chunk_rows: int
    width_bytes: int
    depth_bytes: int

    def at(self, block: Lines) -> _BlockPlace:
        """The places of *block*; rows are counted over all chunks."""
        of = self.tiles
        chunk, start = of.chunk[block], of.row_start[block]
        return _BlockPlace(
            chunk, chunk * self.chunk_rows + start, of.row_stop[block] - start, of.col_start[block], of.col_stop[block]
        )


@dataclass(frozen=True, slots=True)
class _Part:
    """A rectangle of a row-major array that a step touches: at most *most_rows* rows of *most_bytes* each."""

    array: Array
    stride: int
    """Bytes from one row to the next."""
    most_rows: int
    most_bytes: int

    @property
    def across(self) -> int:
        """Lines of one row; a row that may begin inside a line needs more."""
        whole = self.stride % LINE_BYTES == 0 and self.most_bytes % LINE_BYTES == 0
        return self.most_bytes // LINE_BYTES if whole else self.most_bytes // LINE_BYTES + 2

    @property
    def count(self) -> int:
        return self.most_rows * self.across

    def lines(self, row: Lines, rows: Lines, begin: Lines, end: Lines | int) -> Lines:
        """Lines of *rows* rows from *row* on, between bytes *begin* and *end* of a row; shape [B, S, count]."""
        number, part = np.arange(self.count) // self.across, np.arange(self.count) % self.across
        start = (row[..., None] + number) * self.stride
        first = (start + begin[..., None]) // LINE_BYTES
        stop = start + np.minimum(begin + self.most_bytes, end)[..., None]
        line = first + part
        return where((number < rows[..., None]) & (line * LINE_BYTES < stop), self.array.line(line))


def _lookups(program: AccessProgram, problem: Problem, tiles: Tiles) -> None:
    """Add the kernel of a lookup: a step looks up one row for one sample, and the sum is stored after the last step."""
    item, dim, pooling = problem.itemsize, problem["dim"], problem["pooling"]
    num_tables, rows = problem["tables_per_rank"], problem["rows"]
    tables = program.array("tables", "weights", num_tables * rows * dim * item)
    indices = program.array("indices", "indices", problem["batch"] * num_tables * pooling * INDEX_BYTES)
    out = program.array("output", "output", problem["batch"] * num_tables * dim * item)
    looked_up = _indices(problem)
    samples = int((tiles.row_stop - tiles.row_start).max())
    vectors = -(-int((tiles.col_stop - tiles.col_start).max()) // dim)
    part = min(dim, int((tiles.col_stop - tiles.col_start).max())) * item
    wide, chunk_rows = max(1, -(-part // LINE_BYTES)), OPERATORS[problem.operator].chunk_rows(problem)

    def lines(block: Lines, step: Lines) -> Lines:
        pair, number = step // pooling, step % pooling
        row = tiles.row_start[block] + pair // vectors
        column = tiles.col_start[block] + pair % vectors * dim
        is_there = (row < tiles.row_stop[block]) & (column < tiles.col_stop[block])
        table, sample = np.minimum(column // dim, num_tables - 1), tiles.chunk[block] * chunk_rows + row
        sample = np.minimum(sample, problem["batch"] - 1)
        place = (sample * num_tables + table) * pooling + number
        vector = ((table * rows + looked_up[sample, table, number]) * dim + column % dim) * item
        reads = [where(is_there & (i * LINE_BYTES < part), tables.line(vector // LINE_BYTES + i)) for i in range(wide)]
        index = where(is_there & ((number == 0) | (place * INDEX_BYTES % LINE_BYTES == 0)),
                      indices.line(place * INDEX_BYTES // LINE_BYTES))  # fmt: skip
        sums = ((sample * num_tables + table) * dim + column % dim) * item
        stays = is_there & (number == pooling - 1) & (tiles.chunk[block] == RANK)
        return stacked(index, *reads, *(where(stays, out.line(sums // LINE_BYTES + i)) for i in range(wide)))

    sectors = (1 << min(4, -(-part // 32))) - 1
    touches = [program.touch("kernel", "load", indices), *[program.touch("kernel", "load", tables, sectors)] * wide,
               *[program.touch("kernel", "store", out, sectors)] * wide]  # fmt: skip
    program.kernels.append(KernelAccesses(len(tiles), samples * vectors * pooling, tuple(touches), lines))


def _indices(problem: Problem) -> Lines:
    """Row numbers [batch, tables, pooling], uniform or by the power law of kernels/reference.py, from a fixed seed."""
    rng, rows = np.random.default_rng(SEED), problem["rows"]
    uniform = rng.random((problem["batch"], problem["tables_per_rank"], problem["pooling"]))
    if problem.word("indices") == "uniform":
        return (uniform * rows).astype(np.int64)
    share = 1.0 - EXPONENT
    popular = ((uniform * ((rows + 1.0) ** share - 1.0) + 1.0) ** (1.0 / share)).astype(np.int64).clip(1, rows) - 1
    return rng.permutation(rows)[popular]


def _incoming(program: AccessProgram, problem: Problem, plan: Plan) -> Accesses:
    """The stores of peers into this rank's receive buffer: as many bytes as the Plan puts there."""
    puts = np.flatnonzero((plan.kind == Kind.PUT) & (plan.peer == RANK))
    num_lines = int(-(-plan.num_bytes[puts].sum() // LINE_BYTES))
    if num_lines == 0:
        return accesses(np.zeros(0, np.int64))
    buffer = program.array("peers' bytes", "peer buffer", num_lines * LINE_BYTES)
    touch: Touch = program.touch("peer", "store", buffer)
    return accesses(buffer.line(np.arange(num_lines)), instruction=touch.instruction, structure=touch.structure,
                    flags=WRITE | PEER)  # fmt: skip


def _interleaved(trace: Trace, incoming: Accesses) -> Iterator[Chunk]:
    """The chunks of *trace* with the accesses *incoming* spread evenly over them."""
    total, seen, sent = trace.count(), 0, 0
    for chunk in trace.chunks():
        seen += len(chunk.accesses)
        upto = len(incoming) * seen // total
        places = np.arange(1, upto - sent + 1) * len(chunk.accesses) // max(1, upto - sent)
        yield Chunk(chunk.kernel, np.insert(chunk.accesses, places, incoming[sent:upto]))
        sent = upto
