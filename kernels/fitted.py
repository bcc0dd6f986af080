"""Fitted tiles: one side is no power of two, so that the tiles of a GEMM alone just fill its waves.

Tensor cores of sm_90 multiply 64 rows by N columns with one instruction (wgmma), and N may be any multiple of 8 up to
256. Either side of a tile can be N: its columns, or its rows where the instruction computes the transposed product. The
tile alone says which one: N is the side that is no power of two. The other side is M, a multiple of 64.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernels.problem import Problem
from kernels.schedule import Schedule, Tile, tile

ARCHITECTURE = 90
"""The only one with this instruction: later ones have others."""
PLAIN = "gemm_all_to_all"
"""The operator that is a plain GEMM where one rank has all rows."""
ITEMSIZE, STEP = 2, 64
"""Bytes of a value, and elements of the contraction in a step: 128 bytes, the widest swizzle of shared memory."""
GROUP_ROWS, GROUP_WARPS, GROUPS_MOST = 64, 4, 2
"""Rows that a group of warps multiplies with one instruction, warps of a group, and groups: 128 rows at once."""
ROWS = (64, 128, 256)
"""Values of M: with 256 each group multiplies two times 64 rows."""
EIGHTH, MOST = 8, 256
"""N is a multiple of the first and at most the second (PTX ISA, wgmma)."""
PANEL = 64
"""Columns of b that lie next to each other in shared memory, 128 bytes: N is a multiple of it where it are columns."""
SUMS_MOST = 160
"""Most sums of a thread: with them, addresses and the results that leave, ptxas needs no memory."""
LOADING_WARPS = 4
"""Warps of a block that do not multiply: one loads, and Triton starts whole groups."""
STAGES_FEWEST, STAGES_MOST = 3, 8
AROUND_BYTES = 1024 + 256
"""Shared memory besides operands: barriers in a unit of swizzled memory, and arguments of the warp that loads."""
SHARED_BYTES = 227 * 1024
"""Most shared memory of a block on sm_90."""


def is_fitted(size: Tile) -> bool:
    """Whether a side of *size*, rows or columns, is no power of two."""
    return any(side & (side - 1) for side in (size.m, size.n))


@dataclass(frozen=True, slots=True)
class Sides:
    """A fitted tile as its instruction sees it."""

    m: int
    n: int
    swapped: bool
    """Whether N are rows of a, so that the instruction computes the transposed tile."""

    @property
    def warps(self) -> int:
        """Warps that multiply."""
        return GROUP_WARPS * min(GROUPS_MOST, self.m // GROUP_ROWS)

    @property
    def step_bytes(self) -> int:
        """Bytes of both operands of a step."""
        return (self.m + self.n) * STEP * ITEMSIZE

    @property
    def sums(self) -> int:
        """Sums of a thread."""
        return self.m * self.n // (32 * self.warps)

    @property
    def stages(self) -> int:
        """Steps that shared memory holds."""
        return min(STAGES_MOST, (SHARED_BYTES - AROUND_BYTES) // self.step_bytes)

    @property
    def pieces(self) -> tuple[int, ...]:
        """N as powers of two, the largest first: Triton's tensors have no other sides."""
        return tuple(1 << bit for bit in range(7, 2, -1) if self.n >> bit & 1)


def sides(size: Tile) -> Sides:
    """The sides of the fitted tile *size*; of none that `trouble` refuses."""
    return Sides(size.n, size.m, True) if size.m & (size.m - 1) else Sides(size.m, size.n, False)


def shared_bytes(size: Tile, stages: int) -> int:
    """Shared memory of a block: the results of a tile leave from the room of its last steps."""
    return stages * sides(size).step_bytes + AROUND_BYTES


ACCEPTED = "Accepted: sides that are powers of two"


def trouble(size: Tile) -> str | None:
    """Why no instruction computes the fitted tile *size*, or None."""
    of, (rows, columns) = sides(size), ("rows", "columns")
    if of.swapped:
        rows, columns = columns, rows
    multiple, such = EIGHTH if of.swapped else PANEL, f"{ACCEPTED}, or tiles such as 136x128x64 and 128x192x64."
    begun = f"tile = {size} does not run on sm_{ARCHITECTURE}."
    if of.m not in ROWS:
        each = ", ".join(map(str, ROWS[:-1]))
        return f"{begun} Next to {of.n} {columns} its {rows} must be {each} or {ROWS[-1]}, and they are {of.m}. {such}"
    if of.n % multiple or of.n > MOST:
        return (
            f"{begun} One instruction computes {columns} in multiples of {multiple}, at most {MOST}, and here are "
            f"{of.n}. {such}"
        )
    if size.k != STEP:
        return f"{begun} A step of {of.n} {columns} takes {STEP} of the contraction, and here {size.k}. {such}"
    if of.sums > SUMS_MOST:
        return f"{begun} A thread has registers for {SUMS_MOST} sums, and here are {of.sums} for each. {such}"
    return None


def refused_problem(problem: Problem) -> str | None:
    """Why no kernel computes *problem* in fitted tiles, as the end of a sentence, or None."""
    contraction = dict(problem.shape).get("k", 0)
    if problem.operator != PLAIN:
        return f"only {PLAIN} has a kernel of such tiles, 1 operator of several, and this is {problem.operator}"
    if problem.world != 1:
        return f"only 1 rank alone computes such tiles, and here are {problem.world}"
    if problem.itemsize != ITEMSIZE:
        return f"values of such tiles have {ITEMSIZE} bytes, and those of {problem.dtype} have {problem.itemsize}"
    if contraction <= STEP:
        return f"such tiles take 2 steps of {STEP} at least, and the contraction is {contraction} <= {STEP}"
    return None


def refusal(problem: Problem, schedule: Schedule, architecture: int = ARCHITECTURE) -> str | None:
    """Why GPUs of *architecture* do not compute *problem* in the fitted tile of *schedule*, or None."""
    size = tile(schedule["tile"])
    reason = refused_problem(problem)
    if schedule.scheme == "decomposed":
        reason = "scheme = decomposed has a kernel of 0 such tiles"
    elif architecture != ARCHITECTURE:
        reason = f"its instruction exists on sm_{ARCHITECTURE} only, and this is sm_{architecture}"
    if reason is not None:
        return f"tile = {size} has a side that is no power of two: {reason}. {ACCEPTED}."
    return trouble(size) or _refused_axis(schedule, size)


def _refused_axis(schedule: Schedule, size: Tile) -> str | None:
    """Why another axis of *schedule* does not go with the fitted tile *size*, or None."""
    needed = {"store": "tma", "num_warps": sides(size).warps, "split_k": 1}
    for axis, value in needed.items():
        if schedule.get(axis, value) != value:
            return (
                f"{axis} = {schedule[axis]} does not go with tile = {size}, a side of which is no power of two: its "
                f"kernel has {axis} = {value} only. Accepted: {axis} = {value}, or sides that are powers of two."
            )
    stages, most = int(schedule.get("num_stages") or STAGES_FEWEST), sides(size).stages
    if STAGES_FEWEST <= stages <= most:
        return None
    return (
        f"num_stages = {stages} does not go with tile = {size}: shared memory holds {STAGES_FEWEST} to {most} steps of "
        f"{sides(size).step_bytes} bytes, and {stages} is {'more' if stages > most else 'fewer'}. Accepted: "
        f"{STAGES_FEWEST}..{most}."
    )
