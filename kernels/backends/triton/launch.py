"""How a kernel is launched: what it is called with, and how many of its programs are resident at once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import torch
import triton.language as tl
from torch import Tensor
from triton.compiler.compiler import make_backend
from triton.runtime.errors import OutOfResources
from triton.tools.tensor_descriptor import TensorDescriptor

from kernels.backends.triton.device import INTERPRETED
from kernels.backends.triton.limits import RANKS_MOST
from kernels.occupancy import BlockResources, SmLimits, padding
from kernels.schedule import Refusal

# Compiled kernels stay in this process for the trials that come: those that were used last, up to a number.

MOST = 256
"""Kernels of a process: each takes one to two megabytes of its memory, for the texts of all steps of compilation."""

_used: OrderedDict[int, tuple[Any, Any]] = OrderedDict()
"""Function and compiled kernel, the one used last at the end."""


def use(function: Any, compiled: Any) -> None:
    """*function*, a `triton.JITFunction`, is about to be launched as *compiled*."""
    _used[id(compiled)] = function, compiled
    _used.move_to_end(id(compiled))


def forget_oldest(most: int = MOST) -> int:
    """Leaves *most* kernels; how many went. Called between trials, when nothing of them is launched any more."""
    count = max(0, len(_used) - most)
    for _ in range(count):
        _, (function, compiled) = _used.popitem(last=False)
        _forget(function, compiled)
    return count


def _forget(function: Any, compiled: Any) -> None:
    """Out of Triton's own dictionaries, and out of the GPU where it was loaded: Triton would leave it there."""
    for kernels, *_ in function.device_caches.values():
        for key in [key for key, kernel in kernels.items() if kernel is compiled]:
            del kernels[key]
    if (module := getattr(compiled, "module", None)) is not None:
        from cuda.bindings import driver

        driver.cuModuleUnload(driver.CUmodule(module))


# Occupancy shaping: a kernel launched with more shared memory than it needs, so that an SM holds fewer of its blocks.

REGISTER_UNIT, PARTITIONS, SHARED_UNIT_BYTES = 256, 4, 128
"""Of compute capability 8.0 and 9.0 (CUDA C++ Programming Guide, technical specifications); no device tells them."""


def limits() -> SmLimits:
    """What an SM of the current GPU has for blocks, as the driver says."""
    from cuda.bindings import driver

    gpu = torch.cuda.get_device_properties(torch.cuda.current_device())
    attributes = driver.CUdevice_attribute

    def told(attribute: Any) -> int:
        status, value = driver.cuDeviceGetAttribute(attribute, torch.cuda.current_device())
        return int(_good(status, value))

    return SmLimits(
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


def shared_bytes(compiled: Any, blocks: int, of: SmLimits) -> int:
    """With how much a block of *compiled* is launched, so that an SM holds exactly *blocks*: the least that does it.

    Refusal, with both numbers, where an SM does not hold so many.
    """
    block = BlockResources(int(compiled.metadata.shared), int(compiled.n_regs), 32 * int(compiled.metadata.num_warps))
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


# How a kernel is launched: what it is called with, and how many of its programs are resident at once.

TRITON_DTYPES = {"float32": tl.float32, "float16": tl.float16, "bfloat16": tl.bfloat16}


def descriptors(slots: Sequence[Tensor], rows: int, columns: int) -> list[TensorDescriptor]:
    """One per possible rank, for blocks of *rows* x *columns*: the last one again beyond the world."""
    made = [TensorDescriptor.from_tensor(slot, [rows, columns]) for slot in slots]
    return made + made[-1:] * (RANKS_MOST - len(made))


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchableKernel:
    """One kernel of one trial on one rank, with everything that it is called with."""

    function: Any
    """A `triton.JITFunction`."""
    arguments: tuple[Any, ...]
    constants: Mapping[str, Any]
    num_warps: int = 4
    num_stages: int = 3
    items: int
    """Tiles or blocks of work: more programs than these have nothing to do."""
    grid: int = 0
    """Programs that the schedule states; 0: as many as are resident."""
    spared: int = 0
    """SMs that it leaves to others: what it waits for must be able to begin beside it."""
    resident: int = 0
    """Blocks of it that an SM holds, forced by padding its shared memory; 0: as compiled."""
    beside: bool = False
    """Whether it runs beside another kernel, and waits for nobody: then it begins with the SMs that are free. A
    cooperative grid begins when all of its blocks fit at once."""
    records: int = 0
    """What a call writes stamps of, beginning with the tiles (kernels/stamp.py)."""

    def stamped(self, stamps: Tensor) -> LaunchableKernel:
        """The same, writing its *stamps*: the last argument, which is None where there are none."""
        return replace(self, arguments=(*self.arguments[:-1], stamps))

    def launcher(self, interpreted: int = 1) -> Callable[[], None]:
        """Compiles, and returns what launches: programs that are all resident at once, since they wait for each other.

        The interpreter runs *interpreted* programs one after the other.
        """
        launch = self.launching(interpreted)
        return lambda: launch(self.arguments)

    def launching(self, interpreted: int = 1) -> Callable[[Sequence[Any]], None]:
        """As `launcher`, but what launches takes the arguments: those of this kernel, or others of the same kinds."""
        if INTERPRETED.value:
            return _launching(self.function, self.constants, interpreted, {})
        num_bytes = self._shared_bytes()
        resident = self._resident(num_bytes)
        if self.grid > resident and not self.beside:
            raise Refusal(
                f"grid = {self.grid} is too large. Programs that wait for each other must all be resident, and "
                f"the GPU holds {resident} of this kernel: {self.grid} > {resident}. Accepted: up to {resident}, "
                "or 0 for all."
            )
        programs = self._programs(resident)
        if self.resident:
            return launching(self._loaded, self.function, self.constants, programs, num_bytes)
        return _launching(self.function, self.constants, programs, self.options)

    def _programs(self, resident: int) -> int:
        """How many are launched, where *resident* fit: beside others as many on each SM that is left to it.

        A GPU deals blocks to all SMs before it deals an SM two.
        """
        left = _sms() - self.spared
        programs = min(self.grid or resident - self.spared * resident // _sms(), self.items)
        return programs - programs % left if self.beside and self.spared and programs > left else programs

    @property
    def options(self) -> Mapping[str, Any]:
        """What Triton is told beside the constants."""
        return {"num_warps": self.num_warps, "num_stages": self.num_stages, "launch_cooperative_grid": not self.beside}

    def compiled(self) -> Any:
        """Compiles, unless this process has it or reads it from Triton's files; what Triton made of it."""
        return self._compiled(self.arguments)

    def _compiled(self, arguments: Sequence[Any]) -> Any:
        made = self.function.warmup(*arguments, **self.constants, **self.options, grid=(1,))
        use(self.function, made)
        return made

    def _loaded(self, arguments: Sequence[Any]) -> Any:
        """What Triton made of it for *arguments*, on the GPU; Refusal where a block of it fits no SM."""
        compiled = self._compiled(arguments)
        try:
            compiled._init_handles()
        except OutOfResources as error:
            unit = "bytes of " if error.name == "shared memory" else ""
            raise Refusal(
                f"{self.function.__name__} does not fit an SM. It needs {error.required} {unit}{error.name}, and there "
                f"are {error.limit}: {error.required} > {error.limit}. Accepted: a smaller tile, fewer stages."
            ) from None
        return compiled

    def _shared_bytes(self) -> int:
        """That each block gets at a launch: its own, or so many that an SM holds as few as it has to."""
        compiled = self._loaded(self.arguments)
        if not self.resident:
            return int(compiled.metadata.shared)
        num_bytes = shared_bytes(compiled, self.resident, limits())
        allow(compiled, num_bytes)  # or the driver would say that none fits
        return num_bytes

    def _resident(self, num_bytes: int) -> int:
        """SMs times blocks of this kernel that fit one, each with *num_bytes* of shared memory."""
        blocks = resident_blocks(self._loaded(self.arguments), num_bytes)
        if blocks == 0:
            raise Refusal(
                f"{self.function.__name__} does not fit an SM: it needs {num_bytes} bytes of shared "
                f"memory for {32 * self.num_warps} threads. Accepted: a smaller tile, fewer stages."
            )
        if self.resident and blocks != self.resident:
            raise Refusal(
                f"resident_blocks = {self.resident} cannot be forced. With {num_bytes} bytes of shared memory for each "
                f"block the driver lets an SM hold {blocks}: {blocks} != {self.resident}. Accepted: 0, or {blocks}."
            )
        return blocks * _sms()


def _sms() -> int:
    """Of this GPU."""
    return int(torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count)


def _launching(
    function: Any, constants: Mapping[str, Any], programs: int, options: Mapping[str, Any]
) -> Callable[[Sequence[Any]], None]:
    """What launches *function*; it keeps no arguments alive."""

    def launch(arguments: Sequence[Any]) -> None:
        function[(programs,)](*arguments, **constants, **options)

    return launch
