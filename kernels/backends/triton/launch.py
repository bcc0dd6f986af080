"""How a kernel is launched: what it is called with, and how many of its programs are resident at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import triton.language as tl
from torch import Tensor
from triton.runtime.errors import OutOfResources
from triton.tools.tensor_descriptor import TensorDescriptor

from kernels.backends.triton import kept
from kernels.backends.triton.device import INTERPRETED
from kernels.backends.triton.limits import RANKS_MOST
from kernels.schedule import Refusal

TRITON_DTYPES = {"float32": tl.float32, "float16": tl.float16, "bfloat16": tl.bfloat16}


def descriptors(slots: Sequence[Tensor], rows: int, columns: int) -> list[TensorDescriptor]:
    """One per possible rank, for blocks of *rows* x *columns*: the last one again beyond the world."""
    made = [TensorDescriptor.from_tensor(slot, [rows, columns]) for slot in slots]
    return made + made[-1:] * (RANKS_MOST - len(made))


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
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
    records: int = 0
    """What a call writes stamps of, beginning with the tiles (kernels/stamp.py)."""

    def stamped(self, stamps: Tensor) -> Kernel:
        """The same, writing its *stamps*: the last argument, which is None where there are none."""
        return replace(self, arguments=(*self.arguments[:-1], stamps))

    def launcher(self, interpreted: int = 1) -> Callable[[], None]:
        """Compiles, and returns what launches: all programs resident at once, since they wait for each other.

        The interpreter runs *interpreted* programs one after the other.
        """
        launch = self.launching(interpreted)
        return lambda: launch(self.arguments)

    def launching(self, interpreted: int = 1) -> Callable[[Sequence[Any]], None]:
        """As `launcher`, but what launches takes the arguments: those of this kernel, or others of the same kinds."""
        if INTERPRETED.value:
            return _launching(self.function, self.constants, interpreted, {})
        resident = self._resident()
        if self.grid > resident:
            raise Refusal(
                f"grid = {self.grid} is too large. Programs that wait for each other must all be resident, and "
                f"the GPU holds {resident} of this kernel: {self.grid} > {resident}. Accepted: up to {resident}, "
                "or 0 for all."
            )
        programs = min(self.grid or resident - self.spared * resident // _sms(), self.items)
        return _launching(self.function, self.constants, programs, self._options)

    @property
    def _options(self) -> Mapping[str, Any]:
        return {"num_warps": self.num_warps, "num_stages": self.num_stages, "launch_cooperative_grid": True}

    def compiled(self) -> Any:
        """Compiles, unless this process has it or reads it from Triton's files; what Triton made of it."""
        made = self.function.warmup(*self.arguments, **self.constants, **self._options, grid=(1,))
        kept.use(self.function, made)
        return made

    def _resident(self) -> int:
        """SMs times blocks of this kernel that fit one."""
        compiled = self.compiled()
        try:
            compiled._init_handles()
        except OutOfResources as error:
            unit = "bytes of " if error.name == "shared memory" else ""
            raise Refusal(
                f"{self.function.__name__} does not fit an SM. It needs {error.required} {unit}{error.name}, and there "
                f"are {error.limit}: {error.required} > {error.limit}. Accepted: a smaller tile, fewer stages."
            ) from None
        from cuda.bindings import driver

        threads = 32 * compiled.metadata.num_warps
        status, blocks = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(
            compiled.function, threads, compiled.metadata.shared
        )
        if status != driver.CUresult.CUDA_SUCCESS or blocks == 0:
            raise Refusal(
                f"{self.function.__name__} does not fit an SM: it needs {compiled.metadata.shared} bytes of shared "
                f"memory for {threads} threads ({status.name}). Accepted: a smaller tile, fewer stages."
            )
        return int(blocks * _sms())


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
