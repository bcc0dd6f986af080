"""How a kernel is launched: its arguments and constants, and how many of its thread blocks are resident at once."""

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
from kernels.backends.triton.direct_launch import DirectLaunch
from kernels.backends.triton.limits import RANKS_MOST
from kernels.occupancy import BlockResources, SmLimits, padding
from kernels.schedule import Refusal

# Compiled kernels stay in this process for later trials: the most recently used ones, up to a limit.

MOST = 256
"""Compiled kernels that a process keeps: each takes 1 to 2 MB of host memory for the text of all compilation steps."""

_used: OrderedDict[int, tuple[Any, Any]] = OrderedDict()
"""Function and compiled kernel by the id of the latter, the most recently used last."""


def use(function: Any, compiled: Any) -> None:
    """Records that *function*, a `triton.JITFunction`, is about to be launched as *compiled*."""
    _used[id(compiled)] = function, compiled
    _used.move_to_end(id(compiled))


def forget_oldest(most: int = MOST) -> int:
    """Drops all but *most* kernels and returns how many were dropped; called between trials, when none is in use."""
    count = max(0, len(_used) - most)
    for _ in range(count):
        _, (function, compiled) = _used.popitem(last=False)
        _forget(function, compiled)
    return count


def _forget(function: Any, compiled: Any) -> None:
    """Removes a kernel from Triton's dictionaries, and unloads it from the GPU, which Triton would not do."""
    for kernels, *_ in function.device_caches.values():
        for key in [key for key, kernel in kernels.items() if kernel is compiled]:
            del kernels[key]
    if (module := getattr(compiled, "module", None)) is not None:
        from cuda.bindings import driver

        driver.cuModuleUnload(driver.CUmodule(module))


# Occupancy shaping: a kernel is launched with more shared memory than it needs, so that an SM holds fewer blocks.

REGISTER_UNIT, PARTITIONS, SHARED_UNIT_BYTES = 256, 4, 128
"""Allocation units and SM partitions of compute capability 8.0 and 9.0 (CUDA C++ Programming Guide, technical
specifications); the driver does not report them."""


def limits() -> SmLimits:
    """Resources of an SM of the current GPU, as the driver reports them."""
    from cuda.bindings import driver

    gpu = torch.cuda.get_device_properties(torch.cuda.current_device())
    attributes = driver.CUdevice_attribute

    def value_of(attribute: Any) -> int:
        status, value = driver.cuDeviceGetAttribute(attribute, torch.cuda.current_device())
        return int(_checked(status, value))

    return SmLimits(
        shared_bytes=value_of(attributes.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR),
        most_shared_bytes=value_of(attributes.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
        reserved_bytes=value_of(attributes.CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK),
        shared_unit_bytes=SHARED_UNIT_BYTES,
        registers=value_of(attributes.CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR),
        register_unit=REGISTER_UNIT,
        partitions=PARTITIONS,
        warp_threads=int(gpu.warp_size),
        threads=int(gpu.max_threads_per_multi_processor),
        blocks=value_of(attributes.CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR),
    )


def shared_bytes(compiled: Any, blocks: int, of: SmLimits) -> int:
    """Fewest bytes of shared memory per thread block of *compiled* with which an SM holds exactly *blocks* of them.

    Raises Refusal, with both numbers, if an SM cannot hold that many.
    """
    block = BlockResources(int(compiled.metadata.shared), int(compiled.n_regs), 32 * int(compiled.metadata.num_warps))
    return block.shared_bytes + padding(of, block, blocks).fewest


def with_shared(compiled: Any, num_bytes: int) -> Any:
    """A copy of *compiled* that is launched with *num_bytes* of shared memory per thread block."""
    other = copy(compiled)
    other.metadata = compiled.metadata._replace(shared=num_bytes)
    other.packed_metadata = make_backend(compiled.metadata.target).pack_metadata(other.metadata)
    return other


def padded_launcher(
    compiled_for: Callable[[Sequence[Any]], Any],
    function: Any,
    constants: Mapping[str, Any],
    programs: int,
    num_bytes: int,
) -> Callable[[Sequence[Any]], None]:
    """A launcher of *programs* thread blocks of *function*, each with *num_bytes* of shared memory.

    *compiled_for* returns what Triton compiled for the arguments of a launch, loaded on the GPU.
    """
    padded: dict[int, tuple[Any, Any]] = {}

    def launch(arguments: Sequence[Any]) -> None:
        compiled = compiled_for(arguments)
        if id(compiled) not in padded:
            allow(compiled, num_bytes)
            padded[id(compiled)] = compiled, with_shared(compiled, num_bytes)
        padded[id(compiled)][1][(programs, 1, 1)](*every_argument(function, arguments, constants))

    return launch


def every_argument(function: Any, arguments: Sequence[Any], constants: Mapping[str, Any]) -> list[Any]:
    """*arguments*, then *constants* in the order in which *function* takes them, as Triton's launchers expect."""
    return [*arguments, *(constants[name] for name in function.arg_names[len(arguments) :])]


def allow(compiled: Any, num_bytes: int) -> None:
    """Raises the driver's limit of shared memory per thread block of *compiled*, which is 48 KiB by default.

    It never lowers the limit: other launches of the kernel may be padded more.
    """
    from cuda.bindings import driver

    attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    status, allowed = driver.cuFuncGetAttribute(attribute, compiled.function)
    if _checked(status, allowed) < num_bytes:
        (status,) = driver.cuFuncSetAttribute(compiled.function, attribute, num_bytes)
        _checked(status, None)


def resident_blocks(compiled: Any, num_bytes: int) -> int:
    """Thread blocks of *compiled* with *num_bytes* of shared memory that an SM holds, computed by the driver.

    0 if one block is too large.
    """
    from cuda.bindings import driver

    threads = 32 * int(compiled.metadata.num_warps)
    status, blocks = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(compiled.function, threads, num_bytes)
    return int(blocks) if status == driver.CUresult.CUDA_SUCCESS else 0


def _checked(status: Any, value: Any) -> Any:
    """*value*, or RuntimeError if the driver reports an error."""
    if status.value:
        raise RuntimeError(f"The CUDA driver refused a call that sets or reads shared memory: {status.name}.")
    return value


# One kernel with everything that it is launched with.

Call = Callable[[], None]
"""Enqueues work on the current CUDA stream; it takes no arguments, so that a graph can capture it."""

TRITON_DTYPES = {"float32": tl.float32, "float16": tl.float16, "bfloat16": tl.bfloat16}


def block(tensor: Tensor, rows: int, columns: int, *, bulk: bool) -> Any:
    """*tensor* as a kernel takes it whose tiles have *rows* x *columns*: a descriptor, or without *bulk* a pointer."""
    return TensorDescriptor.from_tensor(tensor, [rows, columns]) if bulk else tensor


def descriptors(slots: Sequence[Tensor], rows: int, columns: int, *, bulk: bool = True) -> list[Any]:
    """One descriptor for each of *slots*, by rank, for tiles of *rows* x *columns*; None for ranks beyond the world.

    Without *bulk* all are None: threads store by addresses.
    """
    by_rank = [block(slot, rows, columns, bulk=True) if bulk else None for slot in slots]
    return by_rank + [None] * (RANKS_MOST - len(by_rank))


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchableKernel:
    """One kernel of one trial on one rank, with its arguments, constants and launch options."""

    function: Any
    """The kernel: a `triton.JITFunction`."""
    arguments: tuple[Any, ...]
    constants: Mapping[str, Any]
    num_warps: int = 4
    num_stages: int = 3
    items: int
    """Number of tiles or other units of work: further programs would have nothing to do."""
    grid: int = 0
    """Programs that the schedule sets; 0: as many as are resident."""
    one_each: bool = False
    """Whether no SM gets a second program, so that all forms of the kernel and all ranks have equally many."""
    takes_fewer: bool = False
    """Whether fewer programs than `grid` compute the same: cut tiles wait for lower ones, a GEMV's for none."""
    spared: int = 0
    """SMs that it leaves free: kernels that it waits for must be able to start while it runs."""
    resident: int = 0
    """Thread blocks that an SM holds, forced by padding shared memory; 0: as compiled."""
    concurrent: bool = False
    """Whether it runs next to another kernel and waits for no peer: it then starts on whatever SMs are free. Otherwise
    it is a cooperative grid, which starts when all of its thread blocks fit at once."""
    libraries: Mapping[str, str] | None = None
    """Paths of bitcode that is linked into it, by name; None: no functions but Triton's own."""
    records: int = 0
    """Number of stamp records that a call writes, those of tiles first (kernels/backends/triton/kernels/sync.py)."""

    def stamped(self, stamps: Tensor) -> LaunchableKernel:
        """The same kernel, which also writes *stamps*: its last argument, None without stamps."""
        return replace(self, arguments=(*self.arguments[:-1], stamps))

    def launcher(self, interpreted: int = 1) -> Call:
        """Compiles the kernel and returns its launch; all programs are resident, since they wait for each other.

        The interpreter runs *interpreted* programs one after another.
        """
        launch = self.argument_launcher(interpreted)
        return lambda: launch(self.arguments)

    def argument_launcher(self, interpreted: int = 1) -> Callable[[Sequence[Any]], None]:
        """As `launcher`, but the launch takes the arguments: those of this kernel, or others of the same types."""
        if INTERPRETED.value:
            return _plain_launcher(self.function, self.constants, interpreted, {})
        num_bytes = self._shared_bytes()
        programs = self._fitting(num_bytes)
        if self.resident:
            return padded_launcher(self._loaded, self.function, self.constants, programs, num_bytes)
        return _plain_launcher(self.function, self.constants, programs, self.options)

    def direct_launch(self, device: torch.device) -> DirectLaunch | None:
        """The launch of this kernel for callers that change addresses only; None where Triton has to launch it."""
        if INTERPRETED.value or self.resident:
            return None
        programs = self._fitting(self._shared_bytes())
        flat = every_argument(self.function, self.arguments, self.constants)
        return DirectLaunch.of(self._loaded(self.arguments), flat, programs, device)

    def _fitting(self, num_bytes: int) -> int:
        """Number of programs to launch with *num_bytes* of shared memory each; Refusal if they are not all resident."""
        resident = self._resident(num_bytes)
        if self.grid > resident and not self.concurrent:
            raise Refusal(
                f"grid = {self.grid} is too large. Programs that wait for each other must all be resident, and "
                f"the GPU holds {resident} of this kernel: {self.grid} > {resident}. Accepted: up to {resident}, "
                "or 0 for all."
            )
        return self._programs(resident)

    def _programs(self, resident: int) -> int:
        """Number of programs to launch if *resident* fit; a concurrent kernel has equally many on each SM not spared.

        A GPU gives every SM one block before it gives any SM a second one.
        """
        remaining = _sms() - self.spared
        most = _sms() if self.one_each else resident - self.spared * resident // _sms()
        programs = min(self.grid or most, self.items)
        return programs - programs % remaining if self.concurrent and self.spared and programs > remaining else programs

    @property
    def options(self) -> Mapping[str, Any]:
        """Compilation and launch options for Triton, in addition to the constants."""
        linked = {} if self.libraries is None else {"extern_libs": dict(self.libraries)}
        return {
            "num_warps": self.num_warps,
            "num_stages": self.num_stages,
            "launch_cooperative_grid": not self.concurrent,
            **linked,
        }

    def compiled(self) -> Any:
        """The compiled kernel: from this process, from Triton's cache files, or compiled now."""
        return self._compiled(self.arguments)

    def _compiled(self, arguments: Sequence[Any]) -> Any:
        compiled = self.function.warmup(*arguments, **self.constants, **self.options, grid=(1,))
        use(self.function, compiled)
        return compiled

    def _loaded(self, arguments: Sequence[Any]) -> Any:
        """The kernel compiled for *arguments* and loaded on the GPU; Refusal if one thread block does not fit an SM."""
        compiled = self._compiled(arguments)
        try:
            compiled._init_handles()
        except OutOfResources as error:
            unit = "bytes of " if error.name == "shared memory" else ""
            raise Refusal(
                f"{self.function.__name__} does not fit an SM. It needs {error.required} {unit}{error.name}, and an SM "
                f"has {error.limit}: {error.required} > {error.limit}. Accepted: a smaller tile, fewer stages."
            ) from None
        return compiled

    def _shared_bytes(self) -> int:
        """Shared memory per thread block at a launch: as compiled, or padded so that an SM holds `resident` blocks."""
        compiled = self._loaded(self.arguments)
        if not self.resident:
            return int(compiled.metadata.shared)
        num_bytes = shared_bytes(compiled, self.resident, limits())
        allow(compiled, num_bytes)  # without this limit the driver reports that no block fits
        return num_bytes

    def _resident(self, num_bytes: int) -> int:
        """Thread blocks with *num_bytes* of shared memory that the whole GPU holds at once."""
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
    """Number of SMs of this GPU."""
    return int(torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count)


def _plain_launcher(
    function: Any, constants: Mapping[str, Any], programs: int, options: Mapping[str, Any]
) -> Callable[[Sequence[Any]], None]:
    """A launcher of *function* that keeps no arguments alive."""

    def launch(arguments: Sequence[Any]) -> None:
        function[(programs,)](*arguments, **constants, **options)

    return launch
