"""What an operator computes and communicates, whatever carries it out: flow, extents, owners, work and bytes."""

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
    """How the parts that each rank computed for a rank lie in its result."""

    ROWS = "one rank's rows below the other's"
    COLUMNS = "one rank's columns beside the other's"
    WHOLE = "no part of it is one rank's alone"


@dataclass(frozen=True, slots=True)
class Extent:
    """The computation of one rank: rows x columns of output over a contraction. Rows form `world` equal chunks."""

    rows: int
    columns: int
    contraction: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One size of an operator's shape."""

    name: str
    doc: str
    words: tuple[str, ...] = ()
    """Accepted values of a key that is not a count; the first is the default."""
    shared: bool = False
    """Whether the ranks share it out evenly, so that world divides it."""
    most: int | None = None
    """The largest value; None where there is none."""
    beyond: str = ""
    """What takes larger values: "gemm_all_reduce for more"."""


Sizes = Mapping[str, tuple[int, ...]]
Shape = tuple[Any, ...]
"""Shape of one tensor: ints, or symbols of torch's tracer that represent them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """A computation and the collective that depends on it. Schemes use its `flow` and `extent` alone."""

    name: str
    """Name in commands and files."""
    title: str
    """Name for people, everywhere: "GEMM -> all-to-all"."""
    words: str
    """Short description: "expert GEMM, then tokens go home"."""
    occurs: str
    """Kinds of models or parallelism that use it."""
    source: str
    """Paper that it is from."""
    flow: Flow
    collective: str
    """Field name of the collective: all_to_all, all_gather, reduce_scatter, all_reduce."""
    work: str
    """`gemm`, `gemv` or `gather`: which speed curve of the machine it runs on."""
    reduces: bool
    """Whether results of all ranks are summed."""
    layout: ResultLayout
    keys: tuple[Key, ...]
    splits: Mapping[str, str]
    """Name of each legal split -> the direction it cuts: rows, columns, contraction, rows_and_contraction."""
    tile_means: str
    """Meaning of block_m x block_n x block_k for this operator."""
    extent: Callable[[Problem], Extent]
    flops: Callable[[Problem], int]
    """FLOP of one rank."""
    memory_bytes: Callable[[Problem], int]
    """Bytes that one rank must read and write in its memory (HBM), each operand once."""
    local: Callable[[Problem], Sizes]
    """Shapes of one rank's two operands and its result, `output`."""
    operand_shapes: tuple[str, str]
    """Shapes of the same operands as text with the names of `keys`: "[m, k]"."""
    sizes: Callable[[Shape, Shape, int], Mapping[str, Any]]
    """Sizes by key from the shapes of the two operands and world: the inverse of `local`."""
    whole: Callable[[Problem], Sizes]
    """Shapes of operands and result over all ranks."""

    def operands(self) -> dict[str, int]:
        """Number of dimensions of the two operands by their names in `local`."""
        smallest = Problem(self.name, tuple((key.name, 1) for key in self.keys), "float32", 1)
        return {name: len(shape) for name, shape in self.local(smallest).items() if name != "output"}

    def rule(self, problem: Problem) -> str | None:
        """Why the sizes are illegal, or None."""
        return next((why for key in self.keys if (why := _too_large(key, problem) or _uneven(key, problem))), None)

    def obeys(self, sizes: Problem) -> Any:
        """Whether the sizes are legal: one answer, or a column of answers where *sizes* holds columns of values."""
        shared = [sizes[key.name] % sizes.world == 0 for key in self.keys if key.shared]
        return reduce(and_, [*shared, *(sizes[key.name] <= key.most for key in self.keys if key.most is not None)])

    def chunk_rows(self, problem: Problem) -> int:
        """Number of rows of a chunk: the part of a result that one rank gets, or of an operand that one rank has."""
        return self.extent(problem).rows // problem.world

    def wire_bytes(self, problem: Problem) -> int:
        """Fewest bytes that must leave one rank, without reduction inside the network."""
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
    nearest = " or ".join(str(v) for v in (low, low + problem.world) if v > 0)
    return (
        f"{name} = {problem[name]} does not share out evenly: each rank owns {name}/world rows, and world = "
        f"{problem.world} does not divide {problem[name]}. Accepted: multiples of {problem.world}, such as {nearest}."
    )
