"""How many blocks of a kernel an SM can hold at once, and how padding of shared memory reduces that number.

The rule is that of CUDA's occupancy calculator: each block takes shared memory, registers, threads and a slot, and the
SM holds as many blocks as the scarcest of these four allows. Occupancy shaping (arXiv:2606.09200) gives each block more
shared memory than it needs, so that fewer are resident and blocks of another kernel fit next to them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kernels import fitted
from kernels.machine import Machine
from kernels.schedule import Refusal, Tile

BARRIER_BYTES = 132
"""Most bytes that Triton 3.6 and 3.7 add to a GEMM's operands and result for barriers and alignment on sm_90."""
OTHER_REGISTERS = 32
"""Registers of a thread without its sums: about what our half-precision GEMMs take for addresses and loops on sm_90."""
MMA_REGISTERS = 120
"""The same where tensor cores read operands from registers: as compiled for sm_80 and sm_120."""
REGISTERS_MOST = 255
"""Most registers that one thread can have."""
NUMBER_BYTES = 4
"""Bytes of a tile's number, which is loaded ahead as its operands are."""
LOAD_BYTES = 16
"""Bytes that a thread loads at once."""
SUM_BYTES = 4
"""Bytes of a sum: sums are made in float32, one 32-bit register each."""
FEWEST_TOKENS = 8
"""Fewest tokens that tensor cores multiply; those that do not exist are zeros."""


OLDEST, BULK = 80, 90
"""CUDA's oldest architecture that our kernels run on, and the first one with a bulk copy engine (TMA)."""
OPERANDS_IN_REGISTERS = (80, 86, 87, 89, 120, 121)
"""Architectures whose tensor cores read operands from registers (mma.sync); others read shared memory, or their own."""
SHARED_KIB = {80: 163, 87: 163, 86: 99, 89: 99, 120: 99, 121: 99}
"""Most KiB of shared memory of one block, by architecture (CUDA C++ Programming Guide, technical specifications)."""
USUAL_SHARED_KIB = 227
"""That of the others: sm_90, sm_100 and sm_103."""


def room_of(architecture: int) -> int:
    """Most bytes of shared memory of one block on GPUs of *architecture*."""
    return SHARED_KIB.get(architecture, USUAL_SHARED_KIB) * 1024


def has_bulk_copies(architecture: int) -> bool:
    """Whether GPUs of *architecture* have a bulk copy engine; so have those whose architecture nobody states (0)."""
    return not 0 < architecture < BULK


def too_old(architecture: int, name: str) -> str | None:
    """Why no kernel of ours runs on *name*, a machine or GPU of *architecture*, or None."""
    if not 0 < architecture < OLDEST:
        return None
    return (
        f"{name} is too old for backend = triton. Its GPU is sm_{architecture}, and kernels need sm_{OLDEST} or newer: "
        f"{architecture} < {OLDEST}. Accepted: a GPU from A100 on, or backend = cpu."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SmLimits:
    """Resources of one SM (on AMD: CU) for blocks, as its machine file gives them."""

    shared_bytes: int
    """Shared memory (LDS) of the SM."""
    most_shared_bytes: int
    """Most shared memory of one block."""
    reserved_bytes: int
    """Shared memory that the driver reserves for each block, in addition to the block's."""
    shared_unit_bytes: int
    """Shared memory is allocated in multiples of it."""
    registers: int
    """Registers of 32 bits of the SM."""
    register_unit: int
    """A warp's registers are allocated in multiples of it."""
    partitions: int
    """Equal parts of the SM (SIMD units) that each hold their own registers; a block's warps are dealt to them."""
    warp_threads: int
    threads: int
    blocks: int

    def shared_of(self, shared_bytes: int) -> int:
        """Bytes that an SM allocates for a block that requests *shared_bytes*."""
        return _up(shared_bytes + self.reserved_bytes, self.shared_unit_bytes)

    def warps_of(self, threads: int) -> int:
        """Warps of a block of *threads* on each partition."""
        return -(-threads // (self.warp_threads * self.partitions))

    def registers_of(self, block: BlockResources) -> int:
        """Registers that each partition allocates for *block*."""
        return self.warps_of(block.threads) * _up(block.registers * self.warp_threads, self.register_unit)


@dataclass(frozen=True, slots=True)
class BlockResources:
    """Resources that one block of a kernel takes."""

    shared_bytes: int
    registers: int
    """Registers of each thread."""
    threads: int


NCCL = BlockResources(82_240, 96, 544)
"""A block of NCCL 2.28 on Hopper: threads and shared memory of an all-reduce in captured graphs of two H200s (its
all-to-all has 640 threads), and at most 96 registers a thread by its sources (makefiles/common.mk). Its 17 warps take
15/16 of the registers of a Hopper SM, where it has never begun next to a block of a GEMM."""
SHOT = BlockResources(0, 32, 1024)
"""A block of torch's `two_shot` all-reduce, from the same graphs; it began next to two blocks of 256 threads with 59
registers each, which leave it at most 32 a thread."""


@dataclass(frozen=True, slots=True)
class Padding:
    """Fewest and most bytes by which a block's shared memory must grow for a number of resident blocks."""

    fewest: int
    most: int


def limits_of(machine: Machine) -> SmLimits:
    """The limits of an SM of *machine*; Refusal where its file does not state them."""
    given, device = machine.device.limits, machine.device
    if not given:
        raise Refusal(
            f"The machine {machine.name} does not say how many blocks an SM holds. Its file has no [device.limits]. "
            "Accepted: a machine of GPUs that states them, such as h200_nvl8."
        )
    return SmLimits(
        shared_bytes=int(device.shared_memory_per_slot_bytes),
        most_shared_bytes=int(given["shared_memory_per_block_bytes"]),
        reserved_bytes=int(given.get("reserved_bytes_per_block", 0)),
        shared_unit_bytes=int(given["shared_memory_unit_bytes"]),
        registers=int(given["registers"]),
        register_unit=int(given["register_unit"]),
        partitions=int(given["partitions"]),
        warp_threads=int(given["warp_threads"]),
        threads=int(given["threads"]),
        blocks=int(given["blocks"]),
    )


def resident_blocks(limits: SmLimits, shared_bytes: int, registers: int, threads: int) -> int:
    """Number of blocks of *threads* threads, with *registers* each and *shared_bytes* together, that one SM holds.

    Source: CUDA's occupancy calculator (cuda_occupancy.h).
    """
    return blocks_alongside(limits, BlockResources(0, 0, 0), 0, BlockResources(shared_bytes, registers, threads))


def blocks_alongside(limits: SmLimits, resident: BlockResources, count: int, other: BlockResources) -> int:
    """Number of blocks like *other* that still fit on an SM that holds *count* blocks like *resident*.

    Where it is 0, a communication kernel waits for a block of the computation to end, whatever its priority.
    """
    if other.shared_bytes > limits.most_shared_bytes:
        return 0
    shared = limits.shared_bytes - count * limits.shared_of(resident.shared_bytes)
    registers = limits.registers // limits.partitions - count * limits.registers_of(resident)
    room = [
        shared // limits.shared_of(other.shared_bytes) if limits.shared_of(other.shared_bytes) else limits.blocks,
        (limits.threads - count * resident.threads) // max(other.threads, 1),
        limits.blocks - count,
    ]
    if needed := limits.registers_of(other):
        room.append(registers // needed)
    return max(0, min(room))


def padding(limits: SmLimits, block: BlockResources, blocks: int) -> Padding:
    """How much larger *block*'s shared memory must be for exactly *blocks* of them to be resident.

    Refusal, with both byte counts, where the block takes too much already, or where another limit allows fewer.
    """
    most = _down(limits.shared_bytes // blocks, limits.shared_unit_bytes) - limits.reserved_bytes
    most = min(most, limits.most_shared_bytes)
    needed = block.shared_bytes
    if needed > most:
        raise Refusal(
            f"resident_blocks = {blocks} is too many. Each block takes {needed} bytes of shared memory, and {blocks} "
            f"of them leave {most} for one: {needed} > {most}. Accepted: {_fewer(limits, block)}."
        )
    held = resident_blocks(limits, block.shared_bytes, block.registers, block.threads)
    if held < blocks:
        raise Refusal(
            f"resident_blocks = {blocks} is too many. Its {block.threads} threads of {block.registers} registers let "
            f"an SM hold {held}: {blocks} > {held}. Accepted: {_fewer(limits, block)}."
        )
    one_more = _down(limits.shared_bytes // (blocks + 1), limits.shared_unit_bytes) - limits.reserved_bytes
    fewest = max(one_more + 1, block.shared_bytes) if held > blocks else block.shared_bytes
    return Padding(fewest - block.shared_bytes, most - block.shared_bytes)


def gemm_block(
    tile: Tile, itemsize: int, stages: int, warps: int, *, staged: bool = True, architecture: int = 0
) -> BlockResources:
    """Approximate resources of a block of our GEMM, on sm_90 unless *architecture* is another one.

    In shared memory: the operands of *stages* steps and, where *staged*, its result, which bulk copies read from there;
    in registers: its float32 sums. Shared bytes are never below what Triton compiles for sm_90, and at most 132 above
    it. Source: papers on residency use stages x (m k + k n) x itemsize; the rest was read from compiled kernels. Where
    tensor cores read registers, these hold the operands of one step, and shared memory those of one step less.
    """
    if itemsize == fitted.ITEMSIZE and fitted.runs(tile):
        return _fitted_block(tile, stages)
    threads, by_registers = 32 * warps, architecture in OPERANDS_IN_REGISTERS
    operands = (stages - by_registers) * (tile.m * tile.k + tile.k * tile.n) * itemsize
    result = tile.m * tile.n * itemsize if staged and has_bulk_copies(architecture) else 0
    registers = tile.m * tile.n // threads + (MMA_REGISTERS if by_registers else OTHER_REGISTERS)
    return BlockResources(operands + result + BARRIER_BYTES, min(registers, REGISTERS_MOST), threads)


def _fitted_block(tile: Tile, stages: int) -> BlockResources:
    """The same of a fitted tile: Triton launches its blocks with as many registers as an SM has for one."""
    threads = 32 * (fitted.sides(tile).warps + fitted.LOADING_WARPS)
    return BlockResources(fitted.shared_bytes(tile, stages), min(REGISTERS_MOST, 65536 // threads // 8 * 8), threads)


def room_refusal(tile: Tile, itemsize: int, stages: int, *, staged: bool, architecture: int) -> str | None:
    """Why an SM of *architecture* cannot hold a block of our GEMM, or None; its warps do not matter.

    None also for GPUs whose architecture nobody states.
    """
    if architecture == 0:
        return None
    block = gemm_block(tile, itemsize, stages, 1, staged=staged, architecture=architecture)
    needed, most = block.shared_bytes - BARRIER_BYTES, room_of(architecture)
    if needed <= most:
        return None
    return (
        f"tile = {tile} with {stages} stages does not fit an SM. Each block needs {needed} bytes of shared memory, and "
        f"on sm_{architecture} it has {most}: {needed} > {most}. Accepted: a smaller tile, or fewer stages."
    )


def gemv_block(tile: Tile, itemsize: int, stages: int, warps: int) -> BlockResources:
    """Approximate resources of a block of our GEMV: weights of the steps ahead, values of *tile*'s tokens, registers.

    Values of several tokens are there as well, in rows of at least 8, and at the end the results. Source: of one token,
    random kernels as Triton compiles them for sm_90; of several, the blocks of `tests/gpu/against_cublas.py`. Shared
    bytes are never below theirs; registers are a linear fit to theirs, by the 16-byte loads of a thread.
    """
    tokens, threads = tile.n if tile.n == 1 else max(FEWEST_TOKENS, tile.n), 32 * warps
    weights, values = tile.m * tile.k * itemsize, tokens * tile.k * itemsize
    loads, fixed = weights / (LOAD_BYTES * threads), BARRIER_BYTES + stages * NUMBER_BYTES
    if tile.n == 1:
        return BlockResources((stages - 1) * (weights + values) + fixed, int(40 + 4 * loads), threads)
    results = tile.m * tokens * itemsize
    shared = (stages - 1) * (weights + values) + results + fixed
    return BlockResources(shared, min(int(20 + 3.2 * loads), REGISTERS_MOST), threads)


def _fewer(limits: SmLimits, block: BlockResources) -> str:
    held = resident_blocks(limits, block.shared_bytes, block.registers, block.threads)
    if not held:
        return "a smaller tile"
    return f"{'1' if held == 1 else f'1 to {held}'}, or a smaller tile"


def _up(count: int, unit: int) -> int:
    return -(-count // unit) * unit


def _down(count: int, unit: int) -> int:
    return count // unit * unit


def __getattr__(name: str) -> Any:
    """Returns the object that the previous release called *name*."""
    from kernels.old_names import renamed

    return renamed(__name__, name, {"beside": "blocks_alongside"})
