"""Fitted tiles: one side is no power of two, so that the tiles of a GEMM alone just fill its waves.

Tensor cores of sm_90 multiply 64 rows by N columns with one instruction (wgmma), and N may be any multiple of 8 up to
256. Either side of a tile can be N: its columns, or its rows where the instruction computes the transposed product. The
tile alone says which one: N is the side that is no power of two. The other side is M, a multiple of 64.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernels.schedule import Tile

ARCHITECTURE = 90
"""The only one with this instruction: later ones have others."""
ITEMSIZE, STEP = 2, 64
"""Bytes of a value, and elements of the contraction in a step: 128 bytes, the widest swizzle of shared memory."""
GROUP_ROWS, GROUP_WARPS, GROUPS_MOST = 64, 4, 2
"""Rows that a group of warps multiplies with one instruction, warps of a group, and groups: 128 rows at once."""
ROWS = (64, 128, 256)
"""Values of M: with 256 each group multiplies two times 64 rows."""
EIGHTH, MOST = 8, 256
"""N is a multiple of the first and at most the second (PTX ISA, wgmma)."""
PANEL, HALF = 64, 32
"""Columns of b that lie next to each other in shared memory, 128 bytes or half of it: N is a multiple of the second
where it are columns."""
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
    def panel_bytes(self) -> int:
        """Bytes of columns that lie next to each other, of the operand and the result whose columns are N or M."""
        return (PANEL if self.swapped or self.n % PANEL == 0 else HALF) * ITEMSIZE

    @property
    def is_slow(self) -> bool:
        """Whether tensor cores wait for half panels: those of 96 columns took a fifth longer, or half as long again."""
        return self.panel_bytes < PANEL * ITEMSIZE and self.sums < SUMS_MOST

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


def runs(size: Tile) -> bool:
    """Whether *size* is a fitted tile that an instruction computes."""
    return is_fitted(size) and trouble(size) is None


def trouble(size: Tile) -> str | None:
    """Why no instruction computes the fitted tile *size*, or None."""
    of, (rows, columns) = sides(size), ("rows", "columns")
    if of.swapped:
        rows, columns = columns, rows
    multiple, such = EIGHTH if of.swapped else HALF, f"{ACCEPTED}, or tiles such as 136x128x64 and 128x192x64."
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
