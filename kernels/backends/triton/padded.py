"""Occupancy shaping: a kernel launched with more shared memory than it needs, so that an SM holds fewer of its blocks.

Triton has no option for it. What it launches is a `CompiledKernel`, whose packed metadata tell its launcher how many
bytes a block gets: a copy with another number there is launched as Triton launches its own, arguments and all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any

import torch
from triton.compiler.compiler import make_backend

from kernels.occupancy import Block, Limits, padding

REGISTER_UNIT, PARTITIONS, SHARED_UNIT_BYTES = 256, 4, 128
"""Of compute capability 8.0 and 9.0 (CUDA C++ Programming Guide, technical specifications); no device tells them."""


def limits() -> Limits:
    """What an SM of the current GPU has for blocks, as the driver says."""
    from cuda.bindings import driver

    gpu = torch.cuda.get_device_properties(torch.cuda.current_device())
    attributes = driver.CUdevice_attribute

    def told(attribute: Any) -> int:
        status, value = driver.cuDeviceGetAttribute(attribute, torch.cuda.current_device())
        return int(_good(status, value))

    return Limits(
        shared_bytes=told(attributes.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR),
        most_shared_bytes=told(attributes.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
        reserved_bytes=told(attributes.CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK),
        shared_unit_bytes=SHARED_UNIT_BYTES,
        registers=told(attributes.CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR),
        register_unit=REGISTER_UNIT,
        partitions=PARTITIONS,
        warp_threads=int(gpu.warp_size),
        threads=int(gpu.max_threads_per_multi_processor),
        blocks=told(attributes.CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR),
    )


def shared_bytes(compiled: Any, blocks: int, of: Limits) -> int:
    """With how much a block of *compiled* is launched, so that an SM holds exactly *blocks*: the least that does it.

    Refusal, with both numbers, where an SM does not hold so many.
    """
    block = Block(int(compiled.metadata.shared), int(compiled.n_regs), 32 * int(compiled.metadata.num_warps))
    return block.shared_bytes + padding(of, block, blocks).fewest


def with_shared(compiled: Any, num_bytes: int) -> Any:
    """*compiled* as it is launched with *num_bytes* of shared memory for each block; the original stays as it is."""
    other = copy(compiled)
    other.metadata = compiled.metadata._replace(shared=num_bytes)
    other.packed_metadata = make_backend(compiled.metadata.target).pack_metadata(other.metadata)
    return other


def launching(
    made: Callable[[Sequence[Any]], Any], function: Any, constants: Mapping[str, Any], programs: int, num_bytes: int
) -> Callable[[Sequence[Any]], None]:
    """What launches *programs* blocks of *function*, each with *num_bytes* of shared memory.

    *made*: what Triton compiled for the arguments of a launch; it has its handles.
    """
    padded: dict[int, tuple[Any, Any]] = {}

    def launch(arguments: Sequence[Any]) -> None:
        compiled = made(arguments)
        if id(compiled) not in padded:
            allow(compiled, num_bytes)
            padded[id(compiled)] = compiled, with_shared(compiled, num_bytes)
        padded[id(compiled)][1][(programs, 1, 1)](*every_argument(function, arguments, constants))

    return launch


def every_argument(function: Any, arguments: Sequence[Any], constants: Mapping[str, Any]) -> list[Any]:
    """*arguments*, then *constants* in the order in which *function* takes them: what Triton's launchers are given."""
    return [*arguments, *(constants[name] for name in function.arg_names[len(arguments) :])]


def allow(compiled: Any, num_bytes: int) -> None:
    """Lets blocks of *compiled* have so much: without it the driver refuses more than 48 KiB.

    Never less than before: other launches of it may be padded more.
    """
    from cuda.bindings import driver

    attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    status, allowed = driver.cuFuncGetAttribute(attribute, compiled.function)
    if _good(status, allowed) < num_bytes:
        (status,) = driver.cuFuncSetAttribute(compiled.function, attribute, num_bytes)
        _good(status, None)


def resident_blocks(compiled: Any, num_bytes: int) -> int:
    """Blocks of *compiled*, each with *num_bytes* of shared memory, that an SM holds: the driver's own answer.

    0 where it has none, because one block is too large.
    """
    from cuda.bindings import driver

    threads = 32 * int(compiled.metadata.num_warps)
    status, blocks = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(compiled.function, threads, num_bytes)
    return int(blocks) if status == driver.CUresult.CUDA_SUCCESS else 0


def _good(status: Any, value: Any) -> Any:
    """*value*, where the driver did what it was told."""
    if status.value:
        raise RuntimeError(f"The CUDA driver refused what shared memory needs: {status.name}.")
    return value
