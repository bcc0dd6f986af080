"""What kernels write of every tile, and how stamps become spans on the common clock."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kernels.backends.triton import timeline
from kernels.backends.triton.kernels import gemm_scattered, gemv
from kernels.backends.triton.kernels.gemv import ReductionShares
from kernels.backends.triton.kernels.sync import COMPUTED, PROCESSOR, SENT, STARTED, WAITED, WORDS
from kernels.outcome import Span
from kernels.plan import Kind, Plan
from kernels.schemes import expand
from kernels.trial import Trial
from tests.kernels.backends.triton.conftest import InterpretedGang, gpu_trial, in_shots

# Made-up stamps as spans: each step of the Plan once, over its own tiles, on the common clock; few enough tiles.

GEMM = {"m": 1024, "n": 512, "k": 256}
START_NS, TICK_S = 5_000, 32e-9
SMS = 6


def planned(operator: str, shape: dict[str, int], scheme: str = "fused", world: int = 2, **axes: Any) -> Plan:
    trial = gpu_trial(operator, shape, world=world, dtype="bfloat16", scheme=scheme, **axes)
    return expand(trial.problem, trial.schedule)


def words(count: int, columns: tuple[int, ...] = (0, 1, 2, 3), sms: int = SMS) -> NDArray[np.int64]:
    """Record r began at 100 r, and every further moment came 10 later; SMs take turns. Only *columns* are written."""
    found = np.zeros((count, WORDS.value), dtype=np.int64)
    for column in columns:
        found[:, column] = START_NS + 100 * np.arange(count) + 10 * column
    found[:, 4] = np.arange(count) % sms
    return found


def read(plan: Plan, written: NDArray[np.int64], rank: int = 0) -> dict[str, Span]:
    spans = timeline.of_kernel(plan, rank, timeline.Stamps.read(written, START_NS, TICK_S))
    assert len({span.step for span in spans}) == len(spans)
    return {span.step: span for span in spans}


def steps(plan: Plan, rank: int, *kinds: Kind) -> dict[str, int]:
    return {plan.address(s): int(s) for s in plan.steps_of(rank) if plan.kind[s] in kinds}


def microseconds(span: Span) -> tuple[float, float]:
    return pytest.approx(span.start_s * 1e9), pytest.approx(span.stop_s * 1e9)  # type: ignore[return-value]


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("operator", ["gemm_all_to_all", "gemm_reduce_scatter", "gemm_all_reduce"])
def test_tiles_that_are_sent_and_summed(operator: str, rank: int) -> None:
    plan = planned(operator, GEMM)
    count = len(plan.tiles[rank])
    sums = (
        gemm_scattered.sums_of(plan, rank, np.arange(count))[0] if operator != "gemm_all_to_all" else np.arange(count)
    )
    found = read(plan, np.concatenate([words(count, (0, 2, 3)), words(len(sums))]), rank)
    assert found.keys() == steps(plan, rank, Kind.COMPUTE, Kind.PUT, Kind.REDUCE).keys()
    for address, step in steps(plan, rank, Kind.COMPUTE).items():
        start, stop = int(plan.tile_start[step]), int(plan.tile_stop[step])
        # it waited for nobody, so it computed from its start
        assert (100 * start, 100 * (stop - 1) + 20) == microseconds(found[address])
        assert [each.number for each in found[address].tiles] == list(range(start, stop))
        assert found[address].tick_s == TICK_S
    for address, step in steps(plan, rank, Kind.REDUCE).items():
        at = np.arange(plan.tile_start[step], plan.tile_stop[step])
        numbers, tiles = gemm_scattered.sums_of(plan, rank, at)
        assert (100 * numbers.min() + 10, 100 * numbers.max() + 20) == microseconds(found[address])
        assert sorted(each.number for each in found[address].tiles) == sorted(tiles.tolist())
    for address, step in steps(plan, rank, Kind.PUT).items():
        start, stop = int(plan.tile_start[step]), int(plan.tile_stop[step])
        assert (100 * start + 20, 100 * (stop - 1) + 30) == microseconds(found[address])
        assert found[address].pool == "link"


@pytest.mark.parametrize("shots", [1, 2])
@pytest.mark.parametrize("shape", [{"n": 4096, "k": 4096, "tokens": 4}, {"n": 16384, "k": 1024, "tokens": 8}])
def test_shares_of_packets_are_the_sums_of_own_rows_or_of_all(shape: dict[str, int], shots: int) -> None:
    """In two shots the sums go out from there; in one shot everybody sums everything."""
    trial, rank = in_shots(gpu_trial("gemv_all_reduce", shape, world=2, dtype="bfloat16"), shots), 1
    plan = expand(trial.problem, trial.schedule)
    count, shares = len(plan.tiles[rank]), gemv.ReductionShares.of(trial.problem, trial.schedule).count
    found = read(plan, np.concatenate([words(count, (0, 2, 3)), words(shares)]), rank)
    assert found.keys() == steps(plan, rank, Kind.COMPUTE, Kind.PUT, Kind.REDUCE).keys()
    sums = steps(plan, rank, Kind.REDUCE)
    assert min(found[address].start_s for address in sums) == pytest.approx(10 / 1e9)
    assert max(found[address].stop_s for address in sums) == pytest.approx((100 * (shares - 1) + 20) / 1e9)
    told = [tile.number for address in sums for tile in found[address].tiles]
    assert sorted(told) == list(range(shares))


@pytest.mark.parametrize("comm_sms", [0, 16])
def test_tiles_that_wait_and_the_puts_of_their_rows(comm_sms: int) -> None:
    plan, rank = planned("all_to_all_gemm", GEMM, comm_sms=comm_sms, tile_order="rotated"), 0
    count, puts, programs = len(plan.tiles[rank]), len(steps(plan, rank, Kind.PUT)), 3
    pushed = words(programs * puts, (0, 3))
    idle = np.zeros((5, WORDS.value), dtype=np.int64)
    found = read(plan, np.concatenate([words(count), pushed, np.tile(idle, (puts, 1))]), rank)
    assert found.keys() == steps(plan, rank, Kind.COMPUTE, Kind.PUT).keys()
    for address, step in steps(plan, rank, Kind.COMPUTE).items():
        start, stop = int(plan.tile_start[step]), int(plan.tile_stop[step])
        assert (100 * start + 10, 100 * (stop - 1) + 20) == microseconds(found[address])
    in_order = sorted((found[address] for address in steps(plan, rank, Kind.PUT)), key=lambda span: span.start_s)
    for number, span in enumerate(in_order):
        assert (100 * number, 100 * ((programs - 1) * puts + number) + 30) == microseconds(span)
        assert [tile.number for tile in span.tiles] == list(range(programs))


def test_of_many_tiles_those_of_some_sms_are_kept() -> None:
    shape = {"tables_per_rank": 16, "rows": 1000, "dim": 128, "batch": 4096, "pooling": 16}
    plan = planned("embedding_all_to_all", shape, world=4, tile="4x128x4")
    count = len(plan.tiles[0])
    found = read(plan, words(count, (0, 2, 3), sms=132))
    tiles = [tile for span in found.values() for tile in span.tiles]
    assert count > timeline.TILES_MOST / 4 >= len(tiles) > 0
    kept = {tile.processor for tile in tiles}
    assert len(tiles) == sum(number % 132 in kept for number in range(count))
    assert found.keys() == steps(plan, 0, Kind.COMPUTE, Kind.PUT).keys()


@pytest.mark.parametrize("collective", ["library", "copy_engine"])
@pytest.mark.parametrize(("operator", "computes_first"), [("gemm_all_to_all", True), ("all_gather_gemm", False)])
def test_halves_of_a_sequential_call(operator: str, computes_first: bool, collective: str) -> None:
    plan = planned(operator, GEMM, "sequential", collective=collective)
    spans = timeline.of_halves(plan, 1, (1_000, 4_000), TICK_S)
    assert {span.step for span in spans} == steps(plan, 1, Kind.COMPUTE, Kind.PUT, Kind.COLLECTIVE).keys()
    for span in spans:
        first = (span.kind == "compute") == computes_first
        assert (span.start_s, span.stop_s) == ((0.0, 1e-6) if first else (1e-6, 4e-6))
        assert span.tick_s == TICK_S


def test_a_step_waited_for_the_one_that_ended_last() -> None:
    plan = planned("gemm_reduce_scatter", GEMM)
    by_rank = []
    for rank in range(2):
        count = len(plan.tiles[rank])
        found = read(plan, np.concatenate([words(count, (0, 2, 3)), words(count)]), rank)
        by_rank.append([found[address] for address in found])
    ends = np.max([timeline.ends(plan, mine) for mine in by_rank], axis=0).tolist()
    for mine in by_rank:
        for span in timeline.waited_for(plan, mine, ends):
            (step,) = (s for s in range(len(plan)) if plan.address(s) == span.step)
            needed = plan.waits_for(step)
            assert span.waited_for == (plan.address(int(max(needed, key=lambda s: ends[s]))) if len(needed) else None)


# What kernels write of every tile, interpreted on CPU ranks: each moment once, and in order.

ALL = (STARTED.value, WAITED.value, COMPUTED.value, SENT.value)
UNWAITED = (STARTED.value, COMPUTED.value, SENT.value)
"""Of tiles that wait for nobody."""

Words = NDArray[np.int64]


def stamped(gang: InterpretedGang, trial: Trial, programs: int = 1) -> list[Words]:
    """int64 [records, WORDS] by rank, of the second call; the result was right with stamps, too."""
    answers = gang.call(trial, 2, programs, stamped=True)
    assert all(answer.get("error_of_bound", 2.0) <= 1 for answer in answers), answers
    return [np.array(answer["stamps"]) for answer in answers]


def in_order(words: Words, which: tuple[int, ...]) -> None:
    """One program has written *which* moments of each of *words*, one after the other, and no others."""
    moments = words[:, list(which)].ravel()
    assert (moments > 0).all()
    assert (np.diff(moments) > 0).all()
    assert not np.delete(words[:, : PROCESSOR.value], list(which), axis=1).any()


def covers(plan: Plan, rank: int, words: Words) -> None:
    """Every step of the plan that the kernel takes is seen, in time."""
    spans = timeline.of_kernel(plan, rank, timeline.Stamps.read(words, int(words[:, 0][words[:, 0] > 0].min()), 1e-9))
    taken = {plan.address(step) for step in plan.steps_of(rank)}
    assert [span.step for span in spans] == [step for step in map(plan.address, plan.steps_of(rank)) if step in taken]
    assert all(0 <= span.start_s <= span.stop_s for span in spans)
    assert all(len(span.tiles) > 0 for span in spans if span.kind == "compute")


@pytest.mark.slow(keeps=2)
@pytest.mark.parametrize("flights", [1, 2])
@pytest.mark.parametrize(
    "shape", [{"n": 76, "k": 152, "tokens": 1}, {"n": 76, "k": 152, "tokens": 3}, {"n": 8704, "k": 16, "tokens": 8}]
)
def test_gemv_tiles_and_then_the_shares_of_packets(
    gangs: dict[int, InterpretedGang], shape: dict[str, Any], flights: int
) -> None:
    tile = "256x8x16" if shape["tokens"] == 8 else f"16x{1 << (shape['tokens'] - 1).bit_length()}x32"
    trial = in_shots(gpu_trial("gemv_all_reduce", shape, world=2, dtype="float16", tile=tile), flights)
    plan = expand(trial.problem, trial.schedule)
    for rank, words in enumerate(stamped(gangs[2], trial)):
        tiles = len(plan.tiles[rank])
        assert len(words) == tiles + ReductionShares.of(trial.problem, trial.schedule).count
        in_order(words[:tiles], UNWAITED)
        in_order(words[tiles:], ALL)
        covers(plan, rank, words)


@pytest.mark.slow(keeps=1)
@pytest.mark.parametrize("tile", ["4x24x4", "4x8x2"])
def test_tiles_of_pooled_vectors(gangs: dict[int, InterpretedGang], tile: str) -> None:
    lookups = {"tables_per_rank": 3, "rows": 50, "dim": 24, "batch": 10, "pooling": 5}
    trial = gpu_trial("embedding_all_to_all", lookups, world=2, dtype="float32", tile=tile)
    plan = expand(trial.problem, trial.schedule)
    for rank, words in enumerate(stamped(gangs[2], trial)):
        assert len(words) == len(plan.tiles[rank])
        in_order(words, UNWAITED)
        covers(plan, rank, words)


STAMPED_GEMM = {"m": 136, "n": 80, "k": 64}
"""Sizes that no tile divides."""


@pytest.mark.slow(keeps=5)
@pytest.mark.parametrize("store", ["tma", "registers"])
@pytest.mark.parametrize("operator", ["gemm_all_to_all", "gemm_reduce_scatter", "gemm_all_reduce"])
def test_gemm_tiles_and_the_sums_of_own_ones(gangs: dict[int, InterpretedGang], operator: str, store: str) -> None:
    axes = {"tile": "32x32x32", "store": store} | ({"tile_order": "rotated"} if operator != "gemm_all_to_all" else {})
    trial = gpu_trial(operator, STAMPED_GEMM, world=2, dtype="float16", **axes)
    plan = expand(trial.problem, trial.schedule)
    for rank, words in enumerate(stamped(gangs[2], trial)):
        tiles = len(plan.tiles[rank])
        own = plan.tiles[rank].chunk == rank
        in_order(words[:tiles], UNWAITED)
        covers(plan, rank, words)
        if operator == "gemm_all_to_all":
            assert not words[tiles:].any()
            continue
        in_order(words[tiles:][own], ALL)
        assert not words[tiles:][~own].any()
        # a sum is made between its tile's computation and its end
        assert (words[:tiles][own, COMPUTED.value] < words[tiles:][own, STARTED.value]).all()


def test_gemm_tiles_and_the_sums_that_ranks_add(gangs: dict[int, InterpretedGang]) -> None:
    """A rank adds half of its tiles, and waits for each; its own ones are sums of the plan."""
    axes = {"tile": "32x32x32", "tile_order": "ring", "slice_tiles": 2}
    trial = gpu_trial("gemm_reduce_scatter", STAMPED_GEMM, world=2, dtype="float16", **axes)
    plan = expand(trial.problem, trial.schedule)
    for rank, words in enumerate(stamped(gangs[2], trial)):
        tiles, half = len(plan.tiles[rank]), len(plan.tiles[rank]) // 2
        in_order(words[:tiles], UNWAITED)
        covers(plan, rank, words)
        assert not words[tiles:][:half].any()
        in_order(words[tiles:][half:], (STARTED.value, WAITED.value, COMPUTED.value))
        added = plan.steps_of(rank)[plan.kind[plan.steps_of(rank)] == Kind.REDUCE]
        assert len(added) > 1
        assert set(plan.tiles[rank].chunk[plan.tile_start[added]].tolist()) == {rank}


@pytest.mark.parametrize("store", ["tma", "registers"])
@pytest.mark.parametrize("comm_sms", [0, 16])
def test_gemm_tiles_that_wait_and_the_puts_of_their_rows(
    gangs: dict[int, InterpretedGang], comm_sms: int, store: str
) -> None:
    """One program pushes all and then computes all, or the first of three pushes and helps with the last tiles."""
    axes = {"tile": "32x32x32", "slice_tiles": 3, "comm_sms": comm_sms, "store": store}
    trial = gpu_trial("all_to_all_gemm", STAMPED_GEMM, world=2, dtype="float16", **axes)
    plan = expand(trial.problem, trial.schedule)
    for rank, words in enumerate(stamped(gangs[2], trial, 3 if comm_sms else 1)):
        tiles = len(plan.tiles[rank])
        puts = int(((plan.rank == rank) & (plan.kind == Kind.PUT)).sum())
        for each in words[:tiles]:  # tickets may come in between
            in_order(each[None, :], ALL)
        for each in words[tiles : tiles + puts]:  # one pusher; a put is signalled when the next one has begun
            in_order(each[None, :], (STARTED.value, SENT.value))
        assert (np.diff(words[tiles : tiles + puts, SENT.value]) > 0).all()
        assert not words[tiles + puts :].any()
        covers(plan, rank, words)
