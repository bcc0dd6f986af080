"""A launch with flat arguments: what the driver gets, what a call changes, and what it keeps of operands."""

import gc
import weakref
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from triton import knobs
from triton.tools.tensor_descriptor import TensorDescriptor

from kernels.backends.triton import direct_launch
from kernels.backends.triton.direct_launch import (
    BEGINNING,
    MAPS_MOST,
    DirectLaunch,
    FlatArguments,
    TensorMaps,
    as_nested,
    in_a_row,
    is_watched,
)

Made = list[tuple[int, tuple[int, ...], tuple[int, ...], list[int]]]


def encoder(made: Made) -> Any:
    """Stands for Triton's: the map is its number, and *made* has what it was made of."""

    def encode(descriptor: TensorDescriptor, metadata: Any) -> list[Any]:
        made.append((descriptor.base.data_ptr(), tuple(descriptor.shape), tuple(descriptor.strides),
                     list(descriptor.block_shape)))  # fmt: skip
        return [f"map {len(made)} {metadata}", *descriptor.shape, *descriptor.strides]

    return encode


def described(tensor: Tensor) -> TensorDescriptor:
    return TensorDescriptor.from_tensor(tensor, [16, 16])


def test_arguments_are_flat_without_constants_and_in_their_places() -> None:
    left, out, word = torch.zeros(32, 64), torch.zeros(32, 16), torch.zeros(4)
    types = ["tensordesc<fp32[16, 16]>", "*fp32", "i32", "constexpr", ("*fp32", "constexpr", "*fp32"), "constexpr"]
    arguments = [described(left), out, 7, 16, (word, None, out), "name"]
    flat = FlatArguments.of(types, arguments, ["meta"], encoder([]), in_a_row)
    assert flat.values == ["map 1 meta", 32, 64, 64, 1, out.data_ptr(), 7, word.data_ptr(), out.data_ptr()]
    assert flat.place == (0, 5, 6, 7, 7, 9)
    assert list(flat.maps) == [0]
    nested = FlatArguments.of(types, arguments, ["meta"], encoder([]), as_nested)
    assert nested.values == [
        "map 1 meta", 32, 64, 64, 1, out.data_ptr(), 7, 16, (word.data_ptr(), None, out.data_ptr()), "name",
    ]  # fmt: skip
    assert nested.place == (0, 5, 6, 7, 8, 9)


def maps_of(made: Made) -> TensorMaps:
    flat = FlatArguments.of(["tensordesc<>"], [described(torch.zeros(32, 64))], [None], encoder(made), in_a_row)
    made.clear()
    return flat.maps[0]


def test_a_map_is_made_once_for_each_address_shape_and_strides() -> None:
    made: Made = []
    maps, one, other = maps_of(made), torch.zeros(32, 64), torch.zeros(32, 64)
    whole = maps.of(one, 0, (32, 64), (64, 1))
    assert maps.of(one, 0, (32, 64), (64, 1)) is whole
    assert maps.of(one[:], 0, (32, 64), (64, 1)) is whole, "another tensor at the same address"
    assert maps.of(one, 0, (16, 64), (64, 1)) is not whole
    assert maps.of(one, 64, (16, 64), (64, 1))[1:] == [16, 64, 64, 1]
    maps.of(other, 0, (32, 64), (64, 1))
    address = one.data_ptr()
    assert made == [
        (address, (32, 64), (64, 1), [16, 16]), (address, (16, 64), (64, 1), [16, 16]),
        (address + 64 * 4, (16, 64), (64, 1), [16, 16]), (other.data_ptr(), (32, 64), (64, 1), [16, 16]),
    ]  # fmt: skip


def test_a_map_keeps_no_operand_alive() -> None:
    maps, operand = maps_of([]), torch.zeros(32, 64)
    gone = weakref.ref(operand.untyped_storage())
    maps.of(operand, 0, (32, 64), (64, 1))
    del operand
    gc.collect()
    assert gone() is None
    assert len(maps) == 1


def test_only_so_many_maps_are_kept() -> None:
    maps, operand = maps_of([]), torch.zeros(MAPS_MOST + 20, 16)
    for row in range(MAPS_MOST + 10):
        maps.of(operand, 16 * row, (1, 16), (16, 1))
    assert len(maps) == MAPS_MOST


def test_a_profiler_that_hears_of_launches_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_watched()
    monkeypatch.setattr(knobs.runtime.launch_enter_hook, "calls", [print])
    assert is_watched()


# Launchers of two versions of Triton, played: what they are given is what their drivers parse.


class PlayedKernel:
    """A compiled kernel of `[descriptor, pointer, constant]`, whose launcher writes down what it is given."""

    def __init__(self, run: Any) -> None:
        self.run, self.function, self.packed_metadata = run, "function", (4, 1, 1000)
        kinds = {"left": "tensordesc<fp32[16, 16]>", "out": "*fp32", "k": "constexpr"}
        self.src, self.metadata = SimpleNamespace(signature=kinds), SimpleNamespace(tensordesc_meta=["meta"])


def launched(run: Any, monkeypatch: pytest.MonkeyPatch) -> DirectLaunch | None:
    monkeypatch.setattr(direct_launch.nvidia, "make_tensordesc_arg", encoder([]), raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda index: 77, raising=False)
    operands = [described(torch.zeros(32, 64)), torch.zeros(4), 16]
    return DirectLaunch.of(PlayedKernel(run), operands, 132, torch.device("cuda:0"))


BARE = {"global_scratch_size": 0, "profile_scratch_size": 0, "launch_cooperative_grid": False, "launch_pdl": False}


def test_a_launcher_of_triton_3_6_gets_every_argument_after_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []

    def launcher(*arguments: Any) -> None:
        given[:] = arguments

    def wrapped(*arguments: Any) -> None:  # as Triton wraps where a descriptor is among the arguments
        launcher(*arguments, "encoded")

    monkeypatch.setattr(direct_launch.nvidia, "_BASE_ARGS_FORMAT", BEGINNING, raising=False)
    direct = launched(SimpleNamespace(launch=wrapped, **BARE), monkeypatch)
    assert direct is not None
    values = direct.flat.values.copy()
    values[direct.flat.place[1]] = 4096
    direct(values)
    assert given[:5] == [132, 1, 1, 77, "function"]
    assert given[5 : len(BEGINNING)] == [False, False, None, None, (4, 1, 1000), None, None, None]
    assert given[len(BEGINNING) :] == ["map 1 meta", 32, 64, 64, 1, 4096, 16]


def test_a_launcher_of_triton_3_7_gets_what_the_kernel_reads_in_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    utils = SimpleNamespace(launch=lambda *arguments: given.extend(arguments))
    monkeypatch.setattr(direct_launch, "driver", SimpleNamespace(active=SimpleNamespace(utils=utils)))
    monkeypatch.setattr(direct_launch.nvidia, "PyKernelArg", dict, raising=False)
    monkeypatch.setattr(direct_launch.nvidia, "ARG_KERNEL", 0, raising=False)
    direct = launched(SimpleNamespace(kernel_signature=b"123456", **BARE), monkeypatch)
    assert direct is not None
    direct(direct.flat.values.copy())
    assert given[:5] == [132, 1, 1, 77, "function"]
    assert len(given[-3]) == len(given[-2]) == len(given[-1]) == 6
    assert launched(SimpleNamespace(kernel_signature=b"12345", **BARE), monkeypatch) is None, "another signature"


def test_a_kernel_that_needs_scratch_memory_and_an_unknown_triton_are_left_to_triton(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(direct_launch, "driver", SimpleNamespace(active=SimpleNamespace(utils=None)))
    assert launched(SimpleNamespace(launch=print, **{**BARE, "global_scratch_size": 64}), monkeypatch) is None
    monkeypatch.setattr(direct_launch.nvidia, "_BASE_ARGS_FORMAT", "another", raising=False)
    assert launched(SimpleNamespace(launch=print, **BARE), monkeypatch) is None
