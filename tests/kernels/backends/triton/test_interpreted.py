"""The kernels that GPUs run, interpreted on CPU ranks: right on poisoned outputs, and with every cache hint."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from kernels.operators import OPERATORS
from kernels.operators.base import Flow
from kernels.schedule import Refusal, Schedule
from kernels.schemes import BASELINE, axis_rules
from kernels.trial import Trial
from tests.kernels.backends.triton.compile_sm90 import compile_kernel
from tests.kernels.backends.triton.conftest import H200, InterpretedGang, gpu_trial, in_shots

# The kernels that GPUs run, interpreted on CPU ranks: right on poisoned outputs, call after call.

CALLS = 3
GEMM = {"m": 136, "n": 80, "k": 64}
"""Sizes that no tile divides."""


STORES, WORLDS = ("tma", "registers"), (2, 4)


def every_second(*axes: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Half of all combinations: those of all axes but one are all there."""
    places = (place for place in product(*(range(len(axis)) for axis in axes)) if sum(place) % 2 == 0)
    return [tuple(axis[number] for axis, number in zip(axes, place, strict=True)) for place in places]


def passed(answers: list[dict[str, Any]], calls: int = CALLS) -> None:
    assert all("failure" not in answer for answer in answers), answers
    assert all(answer["error_of_bound"] <= 1 for answer in answers), answers
    assert all(answer["epoch"] == calls for answer in answers), answers


@pytest.mark.slow(keeps=1)
@pytest.mark.parametrize(
    ("operator", "store", "world"),
    every_second(("gemm_all_to_all", "gemm_reduce_scatter", "gemm_all_reduce"), STORES, WORLDS),
)
def test_gemm_tiles_reach_their_owners(
    gangs: dict[int, InterpretedGang], operator: str, store: str, world: int
) -> None:
    trial = gpu_trial(operator, GEMM, world=world, dtype="float16", tile="32x32x32", store=store)
    passed(gangs[world].call(trial, CALLS))


@pytest.mark.parametrize(("tile_order", "world"), every_second(("ring", "rotated", "interleaved"), WORLDS))
def test_sums_reach_their_owners_in_every_order(gangs: dict[int, InterpretedGang], tile_order: str, world: int) -> None:
    """Added by one rank after the other, or all by their owner."""
    axes = {"tile": "32x32x32", "store": "tma", "tile_order": tile_order}
    axes |= {} if tile_order == "rotated" else {"slice_tiles": 2}
    small = replace(H200, device=replace(H200.device, slots=4))  # a ring of more ranks needs tiles
    trial = gpu_trial("gemm_reduce_scatter", GEMM, world=world, dtype="float16", machine=small, **axes)
    passed(gangs[world].call(trial, CALLS))


PACKETS = [
    (76, 1, "16x1x32", "float16"),
    (64, 1, "8x1x32", "float32"),
    (76, 3, "16x4x64", "float32"),
    (76, 5, "16x2x32", "float16"),
    (40, 6, "64x8x32", "float16"),
]
"""Rows, tokens, tile, dtype."""


@pytest.mark.slow(keeps=1)
@pytest.mark.parametrize(("sizes", "world", "shots"), every_second(PACKETS, WORLDS, (1, 2)))
def test_packets_of_every_rank_are_summed(
    gangs: dict[int, InterpretedGang], sizes: tuple[int, int, str, str], world: int, shots: int
) -> None:
    """By everybody, or by the owner of their rows, who sends the sums to all."""
    n, tokens, tile, dtype = sizes
    trial = gpu_trial("gemv_all_reduce", {"n": n, "k": 2 * n, "tokens": tokens}, world=world, dtype=dtype, tile=tile)
    passed(gangs[world].call(in_shots(trial, shots), CALLS))


@pytest.mark.slow(keeps=1)
@pytest.mark.parametrize("shots", [1, 2])
def test_large_outputs_fly_once_or_twice(gangs: dict[int, InterpretedGang], shots: int) -> None:
    """More than 64 Ki values: two shots, as long as a schedule does not say one; tiles of 256 rows cover them exactly.

    In one shot they are more than a share for each of the programs that are resident. Packets of more ranks and calls
    are above, in small.
    """
    shape = {"n": 8704, "k": 16, "tokens": 8}
    trial = gpu_trial("gemv_all_reduce", shape, world=2, dtype="float16", tile="256x8x16")
    passed(gangs[2].call(in_shots(trial, shots), 2), 2)


@pytest.mark.slow(keeps=2)
@pytest.mark.parametrize(
    ("operator", "tile_order", "store", "world"),
    every_second(("all_gather_gemm", "all_to_all_gemm"), ("rotated", "natural"), STORES, WORLDS),
)
def test_gemm_tiles_wait_for_their_rows(
    gangs: dict[int, InterpretedGang], operator: str, tile_order: str, store: str, world: int
) -> None:
    axes = {"tile": "32x32x32", "slice_tiles": 3, "tile_order": tile_order}
    passed(gangs[world].call(gpu_trial(operator, GEMM, world=world, dtype="float16", store=store, **axes), CALLS))


@pytest.mark.slow(keeps=2)
@pytest.mark.parametrize("collective", ["library", "two_shot"])
@pytest.mark.parametrize(("operator", "shape", "tile"), [
    ("gemm_all_reduce", GEMM, "32x32x32"), ("gemv_all_reduce", {"n": 76, "k": 152, "tokens": 3}, "16x4x64"),
])  # fmt: skip
def test_our_kernel_computes_alone_where_the_collective_reads(
    gangs: dict[int, InterpretedGang], operator: str, shape: dict[str, int], tile: str, collective: str
) -> None:
    """In the library's buffer, and in symmetric memory."""
    trial = gpu_trial(operator, shape, world=2, dtype="float16", scheme="sequential", tile=tile, kernel="ours",
                      collective=collective).of_part("compute")  # fmt: skip
    answers = gangs[2].call(trial, CALLS)
    assert all("failure" not in answer and answer["error_of_bound"] <= 1 for answer in answers), answers


LOOKUPS = {"tables_per_rank": 3, "rows": 50, "dim": 24, "pooling": 5}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tile", "dtype", "world"),
    [("2x24x4", "float16", 4), ("4x8x8", "float32", 2), ("2x48x8", "float16", 2)],
)
def test_pooled_vectors_reach_the_owners_of_their_samples(
    gangs: dict[int, InterpretedGang], tile: str, dtype: str, world: int
) -> None:
    """Tiles of one table's vectors, of a third of them, and of two tables' out of three; an owner has three samples."""
    trial = gpu_trial("embedding_all_to_all", {**LOOKUPS, "batch": 3 * world}, world=world, dtype=dtype, tile=tile)
    passed(gangs[world].call(trial, CALLS))


def test_pooled_vectors_of_even_sizes_need_no_mask(gangs: dict[int, InterpretedGang]) -> None:
    even = {"tables_per_rank": 2, "rows": 50, "dim": 32, "batch": 16, "pooling": 2, "indices": "power_law"}
    trial = gpu_trial("embedding_all_to_all", even, world=2, dtype="float32", tile="4x32x2")
    passed(gangs[2].call(trial, CALLS))


@pytest.mark.slow(keeps=1)
@pytest.mark.parametrize("store", STORES)
def test_programs_that_have_pushed_help_with_the_last_tiles(gangs: dict[int, InterpretedGang], store: str) -> None:
    axes = {"tile": "32x32x32", "slice_tiles": 3, "comm_sms": 16}
    trial = gpu_trial("all_to_all_gemm", GEMM, world=4, dtype="float16", store=store, **axes)
    passed(gangs[4].call(trial, CALLS, programs=3))  # the first pushes and helps, the others compute


# Numbers of calls wrap: every counter of every operator and scheme passes 2^31 and 2^32, and results stay right.

FEW_LOOKUPS = {"tables_per_rank": 1, "rows": 8, "dim": 8, "pooling": 2}
ONE_TILE = {"tile": "32x32x32"}
PIECES = {"scheme": "decomposed", "tile": "16x16x16"}
SENT = {"collective": "direct"}
DIRECT = [name for name, each in OPERATORS.items() if each.work == "gemm" and each.flow is not Flow.BROADCAST]
WRAPPING: dict[str, tuple[str, dict[str, Any], int]] = {
    **{f"fused {name}": (name, {**ONE_TILE, "tile_order": "rotated"}, 1)
       for name, each in OPERATORS.items() if each.work == "gemm"},
    "fused, spanning ranks": ("all_gather_gemm", {**ONE_TILE, "tile_order": "spanning"}, 1),
    "fused, spanning sums": ("gemm_all_reduce", {**ONE_TILE, "tile_order": "spanning", "store": "registers"}, 1),
    "fused, sums in packets": ("gemm_all_reduce", {**ONE_TILE, "tile_order": "spanning", "store": "packets"}, 1),
    "fused, scattered in packets": ("gemm_reduce_scatter", {**ONE_TILE, "tile_order": "spanning", "store": "packets"},
                                    1),
    "fused, spanning results": ("gemm_all_to_all", {**ONE_TILE, "tile_order": "spanning"}, 1),
    "fused, with pushers": ("all_to_all_gemm", {**ONE_TILE, "slice_tiles": 3, "comm_sms": 16}, 3),
    "fused, one shot": ("gemv_all_reduce", {"tile": "16x1x32"}, 1),
    "fused, two shots": ("gemv_all_reduce", {"tile": "16x1x32"}, 1),
    "fused lookups": ("embedding_all_to_all", {"tile": "4x8x4"}, 1),
    **{f"pieces {name}": (name, {**PIECES, "pieces": 2}, 1) for name, each in OPERATORS.items() if each.work == "gemm"},
    "pieces by SMs": ("all_gather_gemm", {**PIECES, "pieces": 2, "engine": "sm"}, 1),
    "pieces of the contraction": (
        "all_gather_gemm", {**PIECES, "pieces": 2, "split": "contraction", "launches": "one"}, 1
    ),
    "pieces in one launch": ("all_to_all_gemm", {**PIECES, "pieces": 2, "launches": "one"}, 1),
    "tiles of pieces": ("gemm_all_to_all", {**PIECES, "pieces": 1, "launches": "one"}, 1),
    "tiles of summed pieces": ("gemm_all_reduce", {**PIECES, "pieces": 2, "launches": "one"}, 1),
    **{f"sequential {name}": (name, {"scheme": "sequential", **SENT}, 1) for name in DIRECT},
    "concurrent gemm_reduce_scatter": (
        "gemm_reduce_scatter", {"scheme": "concurrent", "micro_batches": 2, **SENT}, 1
    ),
    "sequential lookups": ("embedding_all_to_all", {"scheme": "sequential", **SENT, "tile": "4x8x4"}, 1),
    "concurrent lookups": (
        "embedding_all_to_all", {"scheme": "concurrent", "micro_batches": 2, **SENT, "tile": "4x8x4"}, 1
    ),
}  # fmt: skip
"""Operator, its axes, and programs. The library sends all-reduces that are not fused or in pieces.

A concurrent call sends as sequential ones do, in turns: one GEMM and the lookups show that."""
OF_FOUR = ("fused gemm_all_reduce", "fused all_gather_gemm", "fused, spanning ranks", "fused, spanning sums",
           "fused, sums in packets", "fused, with pushers", "fused, two shots", "fused lookups",
           "pieces gemm_all_reduce", "sequential gemm_reduce_scatter")  # fmt: skip
"""Those in which a counter that several peers raise, or a number of slices, grows with the world.

An all-reduce sums as a reduce-scatter does, and tiles of pieces raise the counters that pieces raise."""


def wrapping(name: str, world: int) -> tuple[Trial, int]:
    """A tiny trial, and its programs."""
    operator, axes, programs = WRAPPING[name]
    few_rows = axes.get("collective") == "direct"  # one block of a copy for each peer
    shape = {"m": (8 if few_rows else 32) * world, "n": 32, "k": 32}
    if operator == "gemv_all_reduce":
        shape = {"n": 64, "k": 64, "tokens": 1}
    elif operator == "embedding_all_to_all":
        shape = {**FEW_LOOKUPS, "batch": 2 * world}
    trial = gpu_trial(operator, shape, world=world, dtype="float16", **axes)
    return in_shots(trial, 2) if name == "fused, two shots" else trial, programs


@pytest.mark.slow(keeps=3)
@pytest.mark.parametrize(("name", "world"), [*((name, 2) for name in WRAPPING), *((name, 4) for name in OF_FOUR)])
def test_results_stay_right_where_numbers_of_calls_wrap(
    gangs: dict[int, InterpretedGang], name: str, world: int
) -> None:
    trial, programs = wrapping(name, world)
    stamped = trial.schedule.scheme == "fused"  # what is watched follows the same numbers
    answers = gangs[world].call(trial, programs=programs, stamped=stamped, way="wraps")
    assert all("failure" not in answer and answer["error_of_bound"] <= 1 for answer in answers), answers
    rises = {amount for answer in answers for amount in answer["rises"]}
    sums = trial.schedule.scheme == "fused" and OPERATORS[trial.problem.operator].reduces and "gemm" in name
    assert not sums or rises == {1, world - 1}
    assert not name.startswith("tiles") or max(rises) >= 2, "a piece has that many tiles"


MET = f"the counter was {2 * CALLS} instead of {2 * CALLS + 1}"
ALONE = {
    **{f"fused {name}": f"permission to write into rank 1's buffers: the counter was {CALLS} instead of {CALLS + 1}"
       for name, each in OPERATORS.items() if each.work == "gemm"},
    "fused lookups": f"permission to write into rank 1's buffers: the counter was {CALLS} instead of {CALLS + 1}",
    "fused, spanning ranks": f"operand rows, slice 1: the counter was {CALLS} instead of {CALLS + 1}",
    "fused, spanning sums": f"the contributions of all peers to tile 0: the counter was {CALLS} instead of {CALLS + 1}",
    "fused, sums in packets": rf"packets of block 0: the counter was \d+ instead of {CALLS + 1}",
    "fused, one shot": rf"packets of block 0: the counter was \d+ instead of {CALLS + 1}",
    "pieces all_gather_gemm": f"permission to write into rank 1's buffers: the counter was {CALLS}",
    "sequential gemm_reduce_scatter": f"permission to write into rank 1's buffers: {MET}",
}  # fmt: skip
"""What rank 0 says that it waits for in a call that nobody else makes."""


@pytest.mark.slow(keeps=2)
@pytest.mark.parametrize("name", ALONE)
def test_a_rank_that_calls_once_more_than_its_peers_ends_by_the_deadline_with_the_sentence(
    gangs: dict[int, InterpretedGang], name: str
) -> None:
    trial, programs = wrapping(name, 2)
    alone, peer = gangs[2].call(trial, CALLS, programs, way="one more")
    assert re.search(rf"^Rank 0 waited 2 s for {ALONE[name]}", alone["alone"] or "nothing was said"), alone
    assert 2 <= alone["seconds"] < 100, "one deadline, however busy this computer is"
    assert peer["alone"] is None
    if trial.schedule.scheme != BASELINE:  # it only meets, and counts no calls
        assert (alone["epoch"], peer["epoch"]) == (CALLS + 1, CALLS)


# Cache hints stand in the PTX of the kernel that offers them, change no result, and are offered nowhere else.

EVEN = {"tables_per_rank": 4, "rows": 1000, "dim": 256, "batch": 256, "pooling": 32}
SMALL = {"tables_per_rank": 1, "rows": 8, "dim": 8, "batch": 4, "pooling": 2}
ROWS = "ld.global{}.v4.b32"
SUMS = "st.global{}.v4.b32"


def lookups(shape: dict[str, int] = EVEN, world: int = 4, **axes: Any) -> Trial:
    return gpu_trial("embedding_all_to_all", shape, world=world, dtype="bfloat16", **axes)


def counted(trial: Trial) -> Counter[str]:
    """The instructions of its PTX by their name."""
    return Counter(word for line in compile_kernel(trial).ptx.splitlines() for word in line.split() if "." in word)


def test_without_hints_rows_and_sums_say_nothing() -> None:
    plain = counted(lookups())
    assert plain[ROWS.format("")] > 0
    assert plain[SUMS.format("")] > 0
    assert not [name for name in plain if "evict_last" in name]


@pytest.mark.parametrize("hint", [name for name in axis_rules.EVICTION if name != axis_rules.NO_HINT])
def test_rows_are_loaded_as_they_are_asked_to_be(hint: str) -> None:
    plain, hinted = counted(lookups()), counted(lookups(load_hint=hint))
    said = ROWS.format(f".L1::{hint}.L2::cache_hint")
    assert hinted[said] == plain[ROWS.format("")] > 0
    assert hinted[ROWS.format("")] == plain[said] == 0


@pytest.mark.parametrize("hint", [name for name in axis_rules.MODIFIER if name != axis_rules.NO_HINT])
def test_sums_are_stored_as_they_are_asked_to_be(hint: str) -> None:
    plain, hinted = counted(lookups()), counted(lookups(store_hint=hint))
    said = SUMS.format(f".{hint}")
    assert hinted[said] == plain[SUMS.format("")] > 0
    assert hinted[SUMS.format("")] == plain[said] == 0


def test_hints_change_no_result(gangs: dict[int, InterpretedGang]) -> None:
    passed(gangs[2].call(lookups(SMALL, world=2, load_hint="evict_last", store_hint="cs"), CALLS))


def test_keys_that_were_stored_before_hints_mean_none() -> None:
    trial = lookups()
    assert not {axis_rules.LOAD, axis_rules.STORE} & dict(trial.schedule.axes).keys()
    named = Schedule(
        "fused",
        (*trial.schedule.axes, (axis_rules.LOAD, axis_rules.NO_HINT), (axis_rules.STORE, axis_rules.NO_HINT)),
    )
    assert replace(trial, schedule=named).key == trial.key
    assert lookups(load_hint="evict_last").key != trial.key
    rest = axis_rules.all_axes(trial.problem, trial.schedule, "triton")
    assert (rest[axis_rules.LOAD], rest[axis_rules.STORE]) == (axis_rules.NO_HINT, axis_rules.NO_HINT)


@pytest.mark.slow(keeps=1)
@pytest.mark.parametrize("operator", ["gemm_all_to_all", "gemm_reduce_scatter"])
@pytest.mark.parametrize("hint", ["cs", "wt"])
def test_tiles_that_threads_store_are_stored_as_they_are_asked_to_be(operator: str, hint: str) -> None:
    shape = {"m": 8192, "n": 4096, "k": 4096}
    plain, hinted = (counted(gpu_trial(operator, shape, world=4, dtype="bfloat16", store="registers", **axes))
                     for axes in ({}, {axis_rules.STORE: hint}))  # fmt: skip
    said = SUMS.format(f".{hint}")
    assert hinted[said] > 0
    assert plain[said] == 0
    assert plain[SUMS.format("")] == hinted[said] + hinted[SUMS.format("")]


def test_a_bulk_copy_takes_no_hint() -> None:
    """Who asks for one and does not say how tiles leave has them stored by threads; who says tma is refused."""
    shape = {"m": 8192, "n": 4096, "k": 4096}
    trial = gpu_trial("gemm_all_to_all", shape, world=4, dtype="bfloat16", **{axis_rules.STORE: "cs"})
    assert trial.schedule["store"] == "registers"
    with pytest.raises(Refusal, match=r"the bulk copy engine takes no hint, .* unless store = registers"):
        gpu_trial("gemm_all_to_all", shape, world=4, dtype="bfloat16", store="tma", **{axis_rules.STORE: "cs"})
    usual = gpu_trial("gemm_all_to_all", shape, world=4, dtype="bfloat16")
    by_threads = gpu_trial("gemm_all_to_all", shape, world=4, dtype="bfloat16", store="registers")
    assert axis_rules.STORE not in axis_rules.all_axes(usual.problem, usual.schedule, "triton")
    assert (
        axis_rules.all_axes(by_threads.problem, by_threads.schedule, "triton")[axis_rules.STORE] == axis_rules.NO_HINT
    )


def test_only_kernels_that_read_them_have_them() -> None:
    """Operands of a GEMM come by bulk copies; of a GEMV Triton drops the policy, since it loads ahead."""
    having = {hint: {name for name in OPERATORS if hint in axis_rules.added_axes(name, "fused", "triton")}
              for hint in (axis_rules.LOAD, axis_rules.STORE)}  # fmt: skip
    lookups_of = {name for name, each in OPERATORS.items() if each.work == "gather"}
    sending = {name for name, each in OPERATORS.items() if each.work == "gemm" and each.flow is not Flow.RECEIVE}
    assert having == {axis_rules.LOAD: lookups_of, axis_rules.STORE: lookups_of | sending}
    assert not {axis_rules.LOAD, axis_rules.STORE} & axis_rules.added_axes("embedding_all_to_all", "fused", "cpu")
