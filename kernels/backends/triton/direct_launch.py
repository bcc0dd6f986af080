"""A launch whose arguments are flat already: a call only writes the addresses that changed.

It meets neither Triton's binder nor its checks of types, which cost an eager call more than the launch itself.

What a kernel is compiled for (dtypes, alignment, the values of its numbers) is the same in every call of one
`Repeated`. So it is bound once. Tensors are passed as addresses, for which the driver is not asked, and tensor maps are
encoded once for each address.

It is on for the launchers of Triton 3.6 and 3.7. With another one, and while a profiler hears of launches, Triton
launches. `python -m tests.gpu.ops OUT.json alone direct_launches_are_right` verifies it on a GPU, and times both ways.
"""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor
from triton import knobs
from triton.backends.nvidia import driver as nvidia
from triton.runtime import driver
from triton.tools.tensor_descriptor import TensorDescriptor

MAPS_MOST = 256
"""Tensor maps that one argument keeps, of 128 bytes each: the latest."""
ENCODED = "tensordesc"
"""How the type of an argument begins that the driver takes as a tensor map."""
Encode = Callable[..., list[Any]]
"""Makes the flat arguments of a descriptor and its `metadata`: the map, then shape and strides."""


@dataclass(slots=True)
class TensorMaps:
    """The tensor maps of one argument by address, shape and strides; dtype and block are those of the argument.

    A map is a value that holds an address: it keeps no tensor alive. Whatever lies at the same address in the same
    shape later has the same map.
    """

    encode: Callable[[TensorDescriptor], list[Any]]
    block: tuple[int, ...]
    _known: OrderedDict[tuple[Any, ...], list[Any]] = field(default_factory=OrderedDict)

    def of(self, tensor: Tensor, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> list[Any]:
        """The flat arguments of the view of *tensor* that begins *offset* elements after its first one."""
        key = tensor.data_ptr() + offset * tensor.element_size(), shape, strides
        if (arguments := self._known.get(key)) is None:
            view = tensor.detach().as_strided(shape, strides, tensor.storage_offset() + offset)
            arguments = self._known[key] = self.encode(TensorDescriptor.from_tensor(view, list(self.block)))
            if len(self._known) > MAPS_MOST:
                self._known.popitem(last=False)
        return arguments

    def __len__(self) -> int:
        return len(self._known)

    def forget(self) -> None:
        """Makes the next map anew."""
        self._known.clear()


@dataclass(frozen=True, slots=True)
class FlatArguments:
    """The arguments of a kernel as a launcher takes them: tensors as addresses, descriptors as their values."""

    values: list[Any]
    place: tuple[int, ...]
    """Where the values of each argument begin."""
    maps: Mapping[int, TensorMaps]
    """By number of the argument: those that are descriptors."""

    @classmethod
    def of(
        cls, types: Sequence[Any], arguments: Sequence[Any], metas: Sequence[Any] | None, encode: Encode,
        plain: Callable[[Any, Any], list[Any]],
    ) -> FlatArguments:  # fmt: skip
        """Those of *arguments* with Triton's *types*; *metas*: what it needs to encode each descriptor, in order.

        *plain* makes the values of an argument that is no descriptor, from its type.
        """
        values: list[Any] = []
        place, maps, known = [], {}, iter(metas or ())
        for number, (kind, argument) in enumerate(zip(types, arguments, strict=True)):
            place.append(len(values))
            if is_descriptor(kind):
                meta = next(known)
                maps[number] = TensorMaps(partial(encode, metadata=meta), tuple(argument.block_shape))
                values += encode(argument, meta)
            else:
                values += plain(kind, argument)
        return cls(values, tuple(place), maps)


def is_descriptor(kind: Any) -> bool:
    """Whether Triton's type *kind* is that of a tensor descriptor."""
    return isinstance(kind, str) and kind.startswith(ENCODED)


def in_a_row(kind: Any, argument: Any) -> list[Any]:
    """The values of *argument* where a launcher takes what the kernel reads: several of a tuple, none of a constant."""
    if isinstance(kind, tuple):
        return [value for both in zip(kind, argument, strict=True) for value in in_a_row(*both)]
    return [] if kind == CONSTANT else [_value(argument)]


def as_nested(kind: Any, argument: Any) -> list[Any]:
    """The value of *argument* where a launcher takes tuples and constants as they are."""
    if isinstance(kind, tuple):
        return [tuple(value for both in zip(kind, argument, strict=True) for value in as_nested(*both))]
    return [argument if kind == CONSTANT else _value(argument)]


CONSTANT = "constexpr"


def _value(argument: Any) -> Any:
    return argument.data_ptr() if isinstance(argument, Tensor) else argument


@dataclass(frozen=True, slots=True)
class DirectLaunch:
    """One compiled kernel on one GPU, ready to be launched with flat arguments."""

    flat: FlatArguments
    index: int
    """Number of the GPU."""
    _launch: Callable[[int, list[Any]], None]
    """Takes the stream and the arguments."""

    def __call__(self, values: list[Any]) -> None:
        """Launches on the current stream with *values*, a changed copy of `flat.values`."""
        self._launch(torch._C._cuda_getCurrentRawStream(self.index), values)

    @classmethod
    def of(
        cls, compiled: Any, every_argument: Sequence[Any], programs: int, device: torch.device
    ) -> DirectLaunch | None:
        """That of *programs* thread blocks of *compiled*; None where Triton's launcher has to see the arguments.

        It does where the kernel needs scratch memory, and in versions of Triton whose launcher takes other arguments.
        """
        run = compiled.run
        if getattr(run, "global_scratch_size", 1) or getattr(run, "profile_scratch_size", 1):
            return None
        types, metas = list(compiled.src.signature.values()), getattr(compiled.metadata, "tensordesc_meta", None)
        if sum(map(is_descriptor, types)) != len(metas or ()):
            return None
        for launcher in (_of_module, _of_utils):
            if (known := launcher(compiled, programs)) is not None:
                plain, num_values, launch = known
                flat = FlatArguments.of(types, every_argument, metas, nvidia.make_tensordesc_arg, plain)
                fits = num_values in (None, len(flat.values))
                return cls(flat, device.index or 0, launch) if fits else None
        return None


Launcher = tuple[Callable[[Any, Any], list[Any]], int | None, Callable[[int, list[Any]], None]]
"""How an argument becomes values, how many values there are if that is known, and the launch."""


def _of_utils(compiled: Any, programs: int) -> Launcher | None:
    """Triton 3.7: one launcher for all kernels takes the values in a list, and a signature."""
    run = compiled.run
    if not hasattr(run, "kernel_signature"):
        return None
    utils = driver.active.utils
    if not hasattr(utils, "launch"):
        return None
    count, launch = len(run.kernel_signature), utils.launch
    each = nvidia.PyKernelArg(nested_tuple=None, type=nvidia.ARG_KERNEL)
    hooks_and_scratch = (None,) * 5
    after = (compiled.function, run.launch_cooperative_grid, run.launch_pdl, compiled.packed_metadata,
             *hooks_and_scratch, [each] * count, run.kernel_signature)  # fmt: skip
    return in_a_row, count, lambda stream, values: launch(programs, 1, 1, stream, *after, values)


def _of_module(compiled: Any, programs: int) -> Launcher | None:
    """Triton 3.6: a launcher that was compiled for the kernel takes every argument, after a fixed beginning."""
    if getattr(nvidia, "_BASE_ARGS_FORMAT", "") != BEGINNING:
        return None
    run = compiled.run
    launch = _unwrapped(run.launch)
    scratch, hooks = (None, None), (None, None)
    after = (compiled.function, run.launch_cooperative_grid, run.launch_pdl, *scratch, compiled.packed_metadata, None,
             *hooks)  # fmt: skip
    return as_nested, None, lambda stream, values: launch(programs, 1, 1, stream, *after, *values)


BEGINNING = "iiiKKppOOOOOO"
"""Grid, stream, function, two flags, two pieces of scratch memory, two of metadata and two hooks: Triton 3.6."""


def _unwrapped(launch: Callable[..., None]) -> Callable[..., None]:
    """Triton's compiled launcher, which is wrapped where a descriptor has to be encoded first."""
    if not inspect.isfunction(launch):
        return launch
    inner: Callable[..., None] = inspect.getclosurevars(launch).nonlocals["launcher"]
    return inner


_IS_DIRECT = [True]


def launch_directly(on: bool) -> None:
    """Sets whether first calls from now on prepare a direct launch, as they do by default."""
    _IS_DIRECT[0] = on


def is_direct() -> bool:
    """Whether a first call prepares a direct launch."""
    return _IS_DIRECT[0]


def is_watched() -> bool:
    """Whether a profiler wants to hear of each launch, which Triton then has to make."""
    hooks = knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook
    return any(getattr(hook, "calls", hook) for hook in hooks)
