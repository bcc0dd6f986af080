"""A launch with flat arguments: what the driver gets, what a call changes, and what it keeps of operands."""

import gc
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor
from triton import knobs
from triton.tools.tensor_descriptor import TensorDescriptor

from kernels.backends.triton.direct_launch import MAPS_MOST, FlatArguments, TensorMaps, is_watched

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
    flat = FlatArguments.of(types, arguments, ["meta"], encoder([]))
    assert flat.values == ["map 1 meta", 32, 64, 64, 1, out.data_ptr(), 7, word.data_ptr(), out.data_ptr()]
    assert flat.place == (0, 5, 6, 7, 7, 9)
    assert list(flat.maps) == [0]


def maps_of(made: Made) -> TensorMaps:
    flat = FlatArguments.of(["tensordesc<>"], [described(torch.zeros(32, 64))], [None], encoder(made))
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
