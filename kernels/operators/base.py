"""What every operator states, and nothing about how it is done: flow, extents, owners, work and bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import reduce
from operator import and_
from typing import Any

from kernels.problem import Problem


class Flow(StrEnum):
    """Which way data runs between the computation and its collective."""

    SEND = "compute -> send"
    RECEIVE = "receive -> compute"
    BROADCAST = "reduce -> broadcast"


class ResultLayout(StrEnum):
    """Where a rank's result holds what each rank computed for it."""

    ROWS = "one rank's rows below the other's"
    COLUMNS = "one rank's columns beside the other's"
    WHOLE = "no part of it is one rank's alone"


@dataclass(frozen=True, slots=True)
class Extent:
    """What one rank computes: rows x columns of output over a contraction. Rows are cut into `world` equal chunks."""

    rows: int
    columns: int
    contraction: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One size of an operator's shape."""

    name: str
    doc: str
    words: tuple[str, ...] = ()
    """Accepted words when it is not a count; the first is the default."""
    shared: bool = False
    """Whether the ranks share it out evenly, so that world divides it."""
    most: int | None = None
    """The largest value; None where there is none."""
    beyond: str = ""
    """Who takes more: "gemm_all_reduce for more"."""


Sizes = Mapping[str, tuple[int, ...]]
Shape = tuple[Any, ...]
"""Of one tensor: ints, or symbols of torch's tracer that stand for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """A computation and the collective that depends on it. Schemes are written over `flow` and `extent` alone."""

    name: str
    """For machines: what is typed and stored."""
    title: str
    """For people, everywhere: "GEMM -> all-to-all"."""
    words: str
    """One sentence about it: "expert GEMM, then tokens go home"."""
    occurs: str
    source: str
    flow: Flow
    collective: str
    """Field name of the collective: all_to_all, all_gather, reduce_scatter, all_reduce."""
    work: str
    """`gemm`, `gemv` or `gather`: which speed curve of the machine it runs on."""
    reduces: bool
    layout: ResultLayout
    keys: tuple[Key, ...]
    splits: Mapping[str, str]
    """Name of each legal split -> the direction it cuts: rows, columns, contraction, rows_and_contraction."""
    tile_means: str
    """What block_m x block_n x block_k are for this operator."""
    extent: Callable[[Problem], Extent]
    flops: Callable[[Problem], int]
    """FLOP of one rank."""
    memory_bytes: Callable[[Problem], int]
    """Bytes one rank must read and write in its own memory (HBM), each operand once."""
    local: Callable[[Problem], Sizes]
    """Shapes of one rank's two operands and its result, `output`."""
    operand_words: tuple[str, str]
    """Shapes of the same operands in words of `keys`: "[m, k]"."""
    sizes: Callable[[Shape, Shape, int], Mapping[str, Any]]
    """Shapes of the two operands and world -> sizes by key: the inverse of `local`."""
    whole: Callable[[Problem], Sizes]
    """Shapes of the same over all ranks."""

    def operands(self) -> dict[str, int]:
        """The two operands as `local` calls them, each with its number of dimensions."""
        smallest = Problem(self.name, tuple((key.name, 1) for key in self.keys), "float32", 1)
        return {name: len(shape) for name, shape in self.local(smallest).items() if name != "output"}

    def rule(self, problem: Problem) -> str | None:
        """The sentence that says why the sizes cannot be, or None."""
        return next((why for key in self.keys if (why := _too_large(key, problem) or _uneven(key, problem))), None)

    def obeys(self, sizes: Problem) -> Any:
        """Whether there is no such sentence. *sizes* may hold columns."""
        shared = [sizes[key.name] % sizes.world == 0 for key in self.keys if key.shared]
        return reduce(and_, [*shared, *(sizes[key.name] <= key.most for key in self.keys if key.most is not None)])

    def chunk_rows(self, problem: Problem) -> int:
        """Rows that one owner (destination, source) has."""
        return self.extent(problem).rows // problem.world

    def wire_bytes(self, problem: Problem) -> int:
        """Minimal bytes that leave one rank, without reduction inside the network."""
        extent, others = self.extent(problem), problem.world - 1
        width = extent.contraction if self.flow is Flow.RECEIVE else extent.columns
        once = others * self.chunk_rows(problem) * width * problem.itemsize
        return 2 * once if self.flow is Flow.BROADCAST else once


def _too_large(key: Key, problem: Problem) -> str | None:
    if key.most is None or problem[key.name] <= key.most:
        return None
    name, size = key.name, problem[key.name]
    return (
        f"{name} = {size} is too many: {problem.operator} takes 1 to {key.most} {name}, and {size} > {key.most}. "
        f"Accepted: {name} 1..{key.most}{key.beyond and f', or {key.beyond}'}."
    )


def _uneven(key: Key, problem: Problem) -> str | None:
    if not key.shared or problem[key.name] % problem.world == 0:
        return None
    name, low = key.name, problem[key.name] // problem.world * problem.world
    near = " or ".join(str(v) for v in (low, low + problem.world) if v > 0)
    return (
        f"{name} = {problem[name]} does not share out evenly: each rank owns {name}/world rows, and world = "
        f"{problem.world} does not divide {problem[name]}. Accepted: multiples of {problem.world}, such as {near}."
    )
