"""What ranks of a playground do in its tests: answer, allocate, raise, die, oversleep, list tiles in order."""

import os
import time
from typing import Any

import torch
import triton
import triton.language as tl

from kernels.backends.triton import device
from kernels.backends.triton.playground import Rank
from kernels.schedule import Refusal
from tests.kernels.backends.triton.quick_interpreter import quicken

if device.INTERPRETED.value:
    quicken()


def who(rank: Rank, *told: Any) -> tuple[Any, ...]:
    return rank.rank, rank.world, rank.interpreted, os.getpid(), *told


def dirty(rank: Rank) -> list[float]:
    """What the last rank's tensor holds before anybody has written; afterwards it holds something."""
    tensor, found = rank.tensor(4), rank.tensor(4).on[rank.world - 1].tolist()
    found += tensor.on[rank.world - 1].tolist()
    rank.barrier()
    tensor.mine.fill_(float("nan"))
    return found


def addressed(rank: Rank) -> list[list[float]]:
    """Everybody's number, read from everybody's tensor."""
    tensor = rank.tensor(2, dtype=torch.float16)
    tensor.mine.fill_(rank.rank)
    assert tensor.addresses.tolist() == [each.data_ptr() for each in tensor.on]
    rank.barrier()
    return [each.tolist() for each in tensor.on]


def refused(rank: Rank, what: str) -> str:
    """The sentence of what a rank may not do; all of them hear it."""
    try:
        if what == "timed":
            rank.seconds(lambda: None)
        rank.tensor(1 << 30)
    except Refusal as refusal:
        return str(refusal)
    return "nothing was refused"


def raises(rank: Rank, guilty: int) -> int:
    if rank.rank == guilty:
        raise ValueError("tokens = 3 were asked for, heads take 4")
    rank.barrier()
    return rank.rank


def dies(rank: Rank, guilty: int) -> None:
    if rank.rank == guilty:
        os._exit(3)
    rank.barrier()


def sleeps(rank: Rank, guilty: int) -> None:
    if rank.rank == guilty:
        time.sleep(300)


def unspeakable(rank: Rank) -> Any:
    return lambda: rank


@triton.jit(do_not_specialize=["rank"])
def waits(counter, error, limit_ns, rank):
    device.wait(counter, 1, device.deadline_after(limit_ns), error, rank, device.SIGNAL, 4)


def expires(rank: Rank) -> None:
    rank.launcher(waits, rank.signals(1).mine, rank.error, rank.limit_ns, rank.rank)()
    rank.check()


@triton.jit(do_not_specialize=["rank", "expected"])
def waits_for(counter, expected, error, limit_ns, rank):
    device.wait(counter, expected, device.deadline_after(limit_ns), error, rank, device.SIGNAL, 4)


def reached(rank: Rank, pairs: list[tuple[int, int]]) -> list[str | None]:
    """What a wait says for each counter and the number that it is to reach, both as int32."""
    counter, said = rank.signals(1).mine, []
    for value, expected in pairs:
        rank.error.zero_()
        counter.fill_(value)
        rank.launcher(waits_for, counter, expected, rank.error, rank.limit_ns, rank.rank)()
        said.append(rank.failure())
    return said


@triton.jit(do_not_specialize=["rank"])
def takes(packets, taken, epoch_at, error, limit_ns, rank):
    lanes = tl.arange(0, 4)
    epoch, deadline = device.epoch_now(epoch_at), device.deadline_after(limit_ns)
    device.put_packets(packets + lanes, (lanes - 2).to(tl.float32), epoch, lanes < 4)
    tl.store(taken + lanes, device.take_packets(packets + lanes, epoch, lanes < 4, deadline, error, rank, 6))
    device.take_packets(packets + lanes, epoch + 1, lanes < 4, device.deadline_after(0), error, rank, 7)


def packed(rank: Rank, epochs: list[int]) -> list[tuple[list[float], list[int], str | None]]:
    """Values of packets of each epoch, their upper words, and what is said where the next epoch's are waited for."""
    packets, taken, told = rank.tensor(4, dtype=torch.int64).mine, torch.zeros(4), []
    for epoch in epochs:
        rank.error.zero_()
        rank.epoch.fill_(epoch).sub_(1)
        rank.launcher(takes, packets, taken, rank.epoch, rank.error, rank.limit_ns, rank.rank)()
        told.append((taken.tolist(), (packets >> 32).tolist(), rank.failure()))
    return told


@triton.jit(do_not_specialize=["rank"])
def waits_on(counter, packets, error, limit_ns, left_ns, rank):
    deadline = device.deadline_after(limit_ns)
    device.wait(counter, 1, deadline, error, rank, device.SIGNAL, 5)
    tl.store(left_ns, deadline - device.now())
    lanes = tl.arange(0, 4)
    device.take_packets(packets + lanes, 1, lanes < 4, deadline, error, rank, 6)
    tl.store(left_ns + 1, deadline - device.now())


def fails_first(rank: Rank, limit_s: float) -> tuple[list[float], str | None]:
    """Seconds that were left when a wait and one for packets gave up, after one that failed on the same rank."""
    counter, left_ns = rank.signals(1).mine, torch.zeros(2, dtype=torch.int64)
    rank.launcher(waits, counter, rank.error, rank.limit_ns, rank.rank)()
    packets = rank.tensor(4, dtype=torch.int64).mine
    rank.launcher(waits_on, counter, packets, rank.error, int(limit_s * 1e9), left_ns, rank.rank)()
    return [left / 1e9 for left in left_ns.tolist()], rank.failure()


@triton.jit(do_not_specialize=["rank"])
def listed(found, tiles, slice_tiles, rank, ORDER: tl.constexpr, WORLD: tl.constexpr):
    for step in range(tiles * WORLD):
        owner, number = device.tile_in_order(step, tiles, slice_tiles, rank, ORDER, WORLD)
        tl.store(found + 2 * step, owner)
        tl.store(found + 2 * step + 1, number)


def order(rank: Rank, tiles: int, slice_tiles: int, name: str) -> list[list[int]]:
    """Owner and number of each tile of this rank, in its order."""
    found = torch.empty(tiles * rank.world, 2, dtype=torch.int32)
    rank.launcher(listed, found, tiles, slice_tiles, rank.rank, ORDER=name, WORLD=rank.world)()
    return found.tolist()
