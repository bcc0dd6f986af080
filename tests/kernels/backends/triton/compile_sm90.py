"""Kernels as a GPU's ranks launch them, compiled for sm_90 or another where there is no GPU, to read their PTX."""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from unittest import mock

import torch
from torch import Tensor
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from kernels.backends.triton import timing
from kernels.backends.triton.launch import LaunchableKernel
from kernels.backends.triton.memory import Context, shared_bytes
from kernels.backends.triton.schemes import fused, runner
from kernels.operators import OPERATORS
from kernels.problem import Problem
from kernels.reference import Operands, torch_dtype
from kernels.schemes import expand
from kernels.trial import Trial

RANK, LIMIT_S = 2, 20.0
"""Ranks 0 and 1 would be specialised: 0 is divisible by 16, and 1 is taken for a constant."""
SCRATCH = ("global_scratch", "profile_scratch")
"""Arguments that Triton adds behind ours."""


@dataclass(frozen=True, slots=True)
class NoDriver:
    """What Triton asks a driver for before it compiles; nothing is ever launched."""

    architecture: int = 90

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.architecture, 32)

    def get_current_device(self) -> str:
        return f"nobody's sm_{self.architecture}"

    def get_current_stream(self, device: str) -> int:
        return 0


class UnbackedHeap:
    """Tensors with addresses as aligned as the symmetric heap's; whose they are does not matter."""

    capacity = 1 << 62

    def tensor(self, rank: int, offset: int, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        return torch.empty(*shape, dtype=dtype)


@dataclass(frozen=True, slots=True)
class Compiled:
    """One kernel: its PTX, the name of each argument there, and what ptxas made of it."""

    ptx: str
    arguments: tuple[str, ...]
    cubin: bytes
    shared_bytes: int
    """Of one block, as Triton tells the driver."""

    def sass(self, folder: Path) -> str:
        return self._object_dump(folder, "-sass")

    def local_bytes(self, folder: Path) -> int:
        """Bytes of each thread's registers and arrays that ptxas put into memory."""
        found = re.findall(r"(?:STACK|LOCAL):(\d+)", self._object_dump(folder, "-res-usage"))
        assert found, "cuobjdump says nothing of local memory"
        return sum(map(int, found))

    def registers(self, folder: Path) -> int:
        """Of one thread."""
        told = re.search(r"REG:(\d+)", self._object_dump(folder, "-res-usage"))
        assert told, "cuobjdump says nothing of registers"
        return int(told[1])

    def _object_dump(self, folder: Path, option: str) -> str:
        path = folder / "kernel.cubin"
        path.write_bytes(self.cubin)
        command = [knobs.nvidia.cuobjdump.path, option, str(path)]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=200).stdout


def key_of(kernel: LaunchableKernel) -> str:
    """What Triton would compile for a launch of *kernel*, in its own words: the same once, in each process and file."""
    found: list[str] = []

    def asked(**facts: Any) -> bool:
        found.append(f"{kernel.function.__name__} {facts['key']}")
        return True  # and compiled no more

    named = {**kernel.constants, **kernel.options}
    # without what this process has compiled before: of that nobody is asked
    unknown = mock.patch.object(kernel.function, "device_caches", defaultdict(kernel.function.create_binder))
    with _nobodys_gpu(), unknown, mock.patch.object(knobs.runtime, "jit_cache_hook", asked):
        kernel.function.warmup(*kernel.arguments, **named, grid=(1,))
    return found[0]


def compile_kernel(trial: Trial, *, stamped: bool = False, alone: bool = False, **options: int) -> Compiled:
    """What the launcher of *trial* would compile on rank 2, or 1 of two; *options* replace those of its schedule."""
    context = context_of(trial, min(RANK, trial.world - 1))
    kernel = fused.kernel(context, unwritten(trial.problem), alone=alone)
    if stamped:
        kernel = kernel.stamped(torch.zeros(1, dtype=torch.int64))
    chosen = {"num_warps": kernel.num_warps, "num_stages": kernel.num_stages, "launch_cooperative_grid": True}
    return warmed_up(kernel.function, kernel.arguments, dict(kernel.constants) | chosen | options)


def compile_meeting(trial: Trial, architecture: int = 90) -> Compiled:
    """`meet`, as the graph around *trial*'s calls launches it."""
    found: list[Compiled] = []

    class Launched:
        """Stands for a `triton.JITFunction`: compiles where that would launch."""

        def __init__(self, function: Any) -> None:
            self.function = function

        def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
            return lambda *arguments, **named: found.append(warmed_up(self.function, arguments, named, architecture))

    with (
        mock.patch.object(timing, "meet", Launched(timing.meet)),
        mock.patch.object(timing, "write_now", Launched(timing.write_now)),
    ):
        timing.GraphReplay(context_of(trial), [], cast(torch.cuda.Stream, None), captured=False)._play()
    return found[0]


def context_of(trial: Trial, rank: int = RANK, limit_s: float = LIMIT_S) -> Context:
    """Over memory that nobody shares."""
    plan = expand(trial.problem, trial.schedule)
    return Context(UnbackedHeap(), plan, rank, torch.device("cpu"), start=shared_bytes(plan), limit_s=limit_s)


def unwritten(problem: Problem) -> Operands:
    """Unwritten ones: a compiler sees their types and addresses only."""
    shapes = {name: shape for name, shape in OPERATORS[problem.operator].local(problem).items() if name != "output"}
    return {
        name: torch.empty(shape, dtype=torch.int64 if name == "indices" else torch_dtype(problem))
        for name, shape in shapes.items()
    }


def kernels_of(
    trial: Trial, rank: int = RANK, limit_s: float = LIMIT_S, architecture: int = 90
) -> list[LaunchableKernel]:
    """What *rank* compiles before *trial* is timed."""
    context = context_of(trial, rank, limit_s)
    context.architecture = architecture
    return runner(trial).kernels(context, unwritten(trial.problem), trial.part)


@contextmanager
def _nobodys_gpu(architecture: int = 90) -> Iterator[None]:
    driver.set_active(cast(Any, NoDriver(architecture)))
    try:
        yield
    finally:
        driver.set_active(cast(Any, None))  # the next one who asks finds the machine's own


def warmed_up(function: Any, arguments: Sequence[Any], named: dict[str, Any], architecture: int = 90) -> Compiled:
    """What a launch of *function* with these arguments, constants and options would compile."""
    with _nobodys_gpu(architecture):
        made = function.warmup(*arguments, **named, grid=(1,))
    names = [name for argument, kind in made.src.signature.items() for name in _flat(argument, kind)]
    return Compiled(made.asm["ptx"], (*names, *SCRATCH), made.asm["cubin"], made.metadata.shared)


def _flat(name: str, kind: Any) -> list[str]:
    """Arguments in PTX of one in Triton: none of a constant; of a descriptor itself, then its sides and strides."""
    if kind == "constexpr":
        return []
    if isinstance(kind, tuple):
        return [flat for each in kind for flat in _flat(name, each)]
    if not kind.startswith("tensordesc"):
        return [name]
    block = re.search(r"\[(.*?)\]", kind)
    assert block, f"{kind} has no sides"
    return [name] + [f"sides of {name}"] * (2 * len(block[1].split(",")))
