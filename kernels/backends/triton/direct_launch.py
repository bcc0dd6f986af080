"""A launch whose arguments are flat already: a call only writes the addresses that changed.

It meets neither Triton's binder nor its checks of types, which cost an eager call more than the launch itself.

What a kernel is compiled for (dtypes, alignment, the values of its numbers) is the same in every call of one
`Repeated`. So it is bound once. Tensors are passed as addresses, for which the driver is not asked, and tensor maps are
encoded once for each address.

It is off until somebody calls `launch_directly(True)`: it has not run on a GPU yet. `python -m tests.gpu.ops OUT.json
alone direct_launches_are_right` verifies it there, and times both ways.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    """The arguments of a kernel as the driver takes them: no constants, tuples in a row, tensors as addresses."""

    values: list[Any]
    place: tuple[int, ...]
    """Where the flat values of each argument begin."""
    maps: Mapping[int, TensorMaps]
    """By number of the argument: those that are descriptors."""

    @classmethod
    def of(
        cls, types: Sequence[Any], arguments: Sequence[Any], metas: Sequence[Any] | None, encode: Encode
    ) -> FlatArguments:
        """Those of *arguments* with Triton's *types*; *metas*: what it needs to encode each descriptor, in order."""
        values: list[Any] = []
        place, maps, known = [], {}, iter(metas or ())
        for number, (kind, argument) in enumerate(zip(types, arguments, strict=True)):
            place.append(len(values))
            if isinstance(kind, str) and kind.startswith(ENCODED):
                meta = next(known)
                maps[number] = TensorMaps(partial(encode, metadata=meta), tuple(argument.block_shape))
                values += encode(argument, meta)
            else:
                values += _flat(kind, argument)
        return cls(values, tuple(place), maps)


def _flat(kind: Any, argument: Any) -> Iterator[Any]:
    """The values of *argument*: none where it is compiled in, several where it is a tuple."""
    if isinstance(kind, tuple):
        for each_kind, each in zip(kind, argument, strict=True):
            yield from _flat(each_kind, each)
    elif kind != "constexpr":
        yield argument.data_ptr() if isinstance(argument, Tensor) else argument


@dataclass(frozen=True, slots=True)
class DirectLaunch:
    """One compiled kernel on one GPU, ready to be launched with flat arguments."""

    flat: FlatArguments
    index: int
    """Number of the GPU."""
    _launch: Callable[..., None]
    _before: tuple[Any, ...]
    """What the launcher takes before and after the stream."""
    _after: tuple[Any, ...]

    def __call__(self, values: list[Any]) -> None:
        """Launches on the current stream with *values*, a changed copy of `flat.values`."""
        stream = torch._C._cuda_getCurrentRawStream(self.index)
        self._launch(*self._before, stream, *self._after, values)

    @classmethod
    def of(
        cls, compiled: Any, every_argument: Sequence[Any], programs: int, device: torch.device
    ) -> DirectLaunch | None:
        """That of *programs* thread blocks of *compiled*; None where Triton's launcher has to see the arguments.

        It does where the kernel needs scratch memory, and in versions of Triton whose launcher takes other arguments.
        """
        run, utils = compiled.run, driver.active.utils
        names = ("arg_annotations", "kernel_signature", "launch_cooperative_grid", "launch_pdl")
        if any(not hasattr(run, name) for name in names) or not hasattr(utils, "launch"):
            return None
        if run.global_scratch_size or run.profile_scratch_size:
            return None
        types, metas = list(compiled.src.signature.values()), getattr(compiled.metadata, "tensordesc_meta", None)
        described = [kind for kind in types if isinstance(kind, str) and kind.startswith(ENCODED)]
        if len(described) != len(metas or ()):
            return None
        flat = FlatArguments.of(types, every_argument, metas, nvidia.make_tensordesc_arg)
        if len(flat.values) != len(run.kernel_signature):
            return None
        each = nvidia.PyKernelArg(nested_tuple=None, type=nvidia.ARG_KERNEL)
        hooks_and_scratch = (None,) * 5
        after = (compiled.function, run.launch_cooperative_grid, run.launch_pdl, compiled.packed_metadata,
                 *hooks_and_scratch, [each] * len(flat.values), run.kernel_signature)  # fmt: skip
        return cls(flat, device.index or 0, utils.launch, (programs, 1, 1), after)


_IS_DIRECT = [False]


def launch_directly(on: bool) -> None:
    """Sets whether first calls from now on prepare a direct launch; it has not run on a GPU yet, and is off."""
    _IS_DIRECT[0] = on


def is_direct() -> bool:
    """Whether a first call prepares a direct launch."""
    return _IS_DIRECT[0]


def is_watched() -> bool:
    """Whether a profiler wants to hear of each launch, which Triton then has to make."""
    hooks = knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook
    return any(getattr(hook, "calls", hook) for hook in hooks)
