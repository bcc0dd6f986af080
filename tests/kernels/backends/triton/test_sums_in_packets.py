"""Sums of few bytes leave in packets: right by interpreted processes, bit by bit as by signals, and as compiled."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernels.backends.triton import memory
from kernels.operators import OPERATORS
from kernels.operators.base import Flow
from kernels.plan import Kind
from kernels.schedule import Refusal
from kernels.schemes import axis_rules, expand
from kernels.trial import Trial
from tests.kernels.backends.triton.compile_sm90 import compile_kernel
from tests.kernels.backends.triton.conftest import InterpretedGang, gpu_trial
from tests.kernels.backends.triton.ptx import Kernel, every_rule
from tests.kernels.backends.triton.spanning import EVEN, RAGGED, SMALL, spanning, spans_by_rank

SUMMED = ("gemm_reduce_scatter", "gemm_all_reduce")
PACKETS, REGISTERS = axis_rules.PACKETS, axis_rules.REGISTERS
CUT = {"split_k": 2, "grid": 8}
AT_MOST, WIDE = {"m": 64, "n": 2048, "k": 8192}, {"m": 32, "n": 4096, "k": 8192}
"""256 KB of results in bfloat16: in one shot a rank gets as many from its peer. The first one's tiles are cut."""
NEAR = 20
"""Most instructions between two loads that are in flight together; the sums of a poll are more than 100."""


@pytest.mark.slow(keeps=4)
@pytest.mark.parametrize("operator", SUMMED)
@pytest.mark.parametrize(("world", "shape", "axes", "programs"), [
    (2, EVEN, {"tile": "64x32x32"}, 1),  # each tile has rows of both
    (2, RAGGED, {}, 3),  # a chunk of 20 rows: the second tile begins inside the second chunk's rows
    (4, RAGGED, {"tile": "16x32x16"}, 1),  # chunks of 10 rows in tiles of 16: one has rows of three owners
    (4, EVEN, {"tile": "16x16x16", "grid": 8}, 2),  # 24 tiles, of as many packets as a block has threads
    (2, EVEN, {"tile": "32x64x32", **CUT}, 1),  # four tiles, all cut, each added by two programs
    (4, RAGGED, {"tile": "16x32x16", **CUT}, 1),  # nine tiles in waves of eight: one is cut
])  # fmt: skip
def test_they_are_right_and_have_the_bits_of_sums_that_are_signalled(
    gangs: dict[int, InterpretedGang], operator: str, world: int, shape: dict[str, int], axes: dict[str, Any],
    programs: int,
) -> None:  # fmt: skip
    """Five calls, so that each half is used again; the last one on other values than those before."""
    bits = []
    for store in (PACKETS, REGISTERS):
        answers = gangs[world].call(spanning(operator, shape, world, store=store, **axes), 5, programs)
        assert all(answer.get("failure") is None and answer["error_of_bound"] < 1 for answer in answers), answers
        assert {answer["epoch"] for answer in answers} == {5}
        bits.append([answer["bits"] for answer in answers])
    assert bits[0] == bits[1]


@pytest.mark.parametrize("operator", SUMMED)
def test_packets_carry_one_float32_as_they_carry_two_values_of_16_bits(
    gangs: dict[int, InterpretedGang], operator: str
) -> None:
    """The interpreter multiplies float16 and float32 rightly, but no bfloat16."""
    axes = {"tile": "16x32x16", "num_warps": 4, "num_stages": 2, "tile_order": axis_rules.SPANNING}
    bits = []
    for store in (PACKETS, REGISTERS):
        of = gpu_trial(operator, RAGGED, world=4, dtype="float32", machine=SMALL, store=store, **axes)
        answers = gangs[4].call(of, 2)
        assert all(answer.get("failure") is None and answer["error_of_bound"] < 1 for answer in answers), answers
        bits.append([answer["bits"] for answer in answers])
    assert bits[0] == bits[1]


@pytest.mark.parametrize(("operator", "world", "axes"), [
    ("gemm_reduce_scatter", 2, {}), ("gemm_all_reduce", 2, {}), ("gemm_all_reduce", 4, {}),
    ("gemm_all_reduce", 4, {"tile": "64x32x32", **CUT}),
])  # fmt: skip
def test_every_step_of_the_plan_has_a_span(
    gangs: dict[int, InterpretedGang], operator: str, world: int, axes: dict[str, Any]
) -> None:
    of = spanning(operator, EVEN, world, store=PACKETS, **axes)
    for spans in spans_by_rank(gangs, of):
        sums = [span for span in spans.values() if span.kind == "reduce"]
        assert sums
        assert all(span.stop_s >= span.start_s for span in sums)


# The rule, the Plan and the memory.


def by_default(operator: str, shape: dict[str, int], world: int, **axes: Any) -> Trial:
    return gpu_trial(operator, shape, world=world, dtype="bfloat16", **axes)


@pytest.mark.parametrize(("operator", "world", "columns"), [
    ("gemm_all_reduce", 2, 2048), ("gemm_reduce_scatter", 2, 4096),  # half of the rows come from the peer
    ("gemm_reduce_scatter", 8, 2336), ("gemm_all_reduce", 8, 2336),  # 7/8 of the bytes of 64 rows: 261,632
])  # fmt: skip
def test_up_to_256_kb_from_all_peers_leave_in_packets_and_more_are_refused(
    operator: str, world: int, columns: int
) -> None:
    few, more = ({**AT_MOST, "n": n} for n in (columns, columns + 64))
    assert by_default(operator, few, world).schedule["store"] == PACKETS
    other = by_default(operator, more, world).schedule
    assert axis_rules.spans_ranks(other)
    assert other.get("store") is None, "counted by signals, as ever"
    with pytest.raises(
        Refusal, match=r"store = packets doubles the 2\d\d kB .* more than 262 kB, .* store = registers"
    ):
        by_default(operator, more, world, store=PACKETS, tile_order=axis_rules.SPANNING)


@pytest.mark.parametrize("operator", SUMMED)
def test_a_schedule_without_the_axis_is_the_one_of_before(operator: str) -> None:
    """So stored schedules mean what they meant. To name the older way is no axis that changes nothing."""
    named = by_default(operator, AT_MOST, 2, store=REGISTERS)
    assert axis_rules.spans_ranks(named.schedule)
    assert named.schedule.get("store") is None
    assert not axis_rules.sends_packets(named.problem, named.schedule)
    shown = axis_rules.all_axes(named.problem, named.schedule, "triton")
    assert shown["store"] == REGISTERS
    named_in_full = replace(named.schedule, axes=tuple(shown.items()))
    assert axis_rules.refusal(named.problem, named_in_full, "triton") is None
    assert axis_rules.effective(named.problem, named_in_full, "triton") == named.schedule


@pytest.mark.parametrize(("operator", "axes", "sentence"), [
    ("gemm_reduce_scatter", {"tile_order": "rotated"}, "tile_order = rotated: .* such tiles have those of 1"),
    ("gemm_all_reduce", {"tile": "16x16x16", "num_warps": 8}, "tile = 16x16x16 has 128 packets, and 128 < 256"),
    ("gemm_all_to_all", {}, "store = packets is not a legal value here"),
    ("all_gather_gemm", {}, "store = packets is not a legal value here"),
])  # fmt: skip
def test_what_does_not_go_with_them_is_refused(operator: str, axes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(Refusal, match=sentence):
        spanning(operator, EVEN, store=PACKETS, **axes)


@pytest.mark.parametrize("operator", SUMMED)
@pytest.mark.parametrize("world", [2, 8])
def test_the_plan_has_the_same_steps_and_packets_take_eight_bytes_for_four(operator: str, world: int) -> None:
    by = {store: by_default(operator, AT_MOST, world, store=store) for store in (PACKETS, REGISTERS)}
    packets, counted = (expand(of.problem, of.schedule) for of in by.values())
    for column in ("rank", "kind", "peer", "tile_start", "tile_stop"):
        np.testing.assert_array_equal(getattr(packets, column), getattr(counted, column))
    puts = packets.kind == Kind.PUT
    np.testing.assert_array_equal(packets.num_bytes[puts], 2 * counted.num_bytes[puts])
    flow, height = OPERATORS[operator].flow, 64 if (operator, world) == ("gemm_all_reduce", 2) else 64 // world
    places = memory.private_regions(packets, 0, 0)
    slots = world * (2 if flow is Flow.BROADCAST and world > 2 else 1)
    assert places["packets"].shape == (2, slots, height * 2048 // 2), "two values in each"
    assert places[memory.LANDED].shape == (2, 0, 0)
    assert memory.private_regions(counted, 0, 0)["packets"].shape == (2, world, 0)


def test_each_program_takes_one_block_and_each_thread_sixteen_bytes_of_each_rank() -> None:
    """Blocks are parts of tiles; no more than ADDERS of them, but none has fewer than PACKETS_EACH for a thread."""
    of = by_default("gemm_reduce_scatter", AT_MOST, 2)
    size, warps = axis_rules.tile(of.schedule["tile"]), of.schedule.count("num_warps")
    assert (str(size), warps) == ("64x64x128", 4)
    for rows in (8, 16, 32, 64):
        each = axis_rules.packet_rows(of.problem, size, warps, rows)
        assert each * size.n // 2 >= axis_rules.PACKETS_EACH * 32 * warps
        assert -(-rows // each) * (2048 // size.n) <= axis_rules.ADDERS
    assert axis_rules.rows_summed(of.problem, of.schedule) == 8, "rows of 32 for each rank"


# What a GPU gets.


@pytest.mark.parametrize(("operator", "world", "shape"), [
    ("gemm_all_reduce", 2, AT_MOST), ("gemm_all_reduce", 8, AT_MOST), ("gemm_reduce_scatter", 8, AT_MOST),
    ("gemm_all_reduce", 2, {"m": 16, "n": 8192, "k": 4096}), ("gemm_reduce_scatter", 8, WIDE),
])  # fmt: skip
def test_it_spills_nothing_moves_sixteen_bytes_at_once_and_releases_nothing(
    operator: str, world: int, shape: dict[str, int], tmp_path: Path
) -> None:
    of = by_default(operator, shape, world)
    assert of.schedule["store"] == PACKETS
    compiled = compile_kernel(of)
    assert compiled.local_bytes(tmp_path) == 0
    broken = every_rule(Kernel(compiled.ptx, compiled.arguments))
    assert not [each for each in broken if "st.global.v2.b32" not in each], "but sums, which go to own memory"
    assert "st.global.wt.v2.b64" in compiled.ptx
    assert "ld.volatile.global.v2.b64" in compiled.ptx
    assert not re.search(r"st\.global\.wt\.b64|ld\.volatile\.global\.b64", compiled.ptx), "8 bytes at once"
    assert not re.search(r"sys\S*\.release|release\S*\.sys", compiled.ptx), "a signal"
    assert "cp.async.bulk.wait_group 0" not in compiled.ptx, "a drain"
    code = [line for line in compiled.sass(tmp_path).splitlines() if re.search(r"/\*[0-9a-f]{4,5}\*/", line)]
    loads = [at for at, line in enumerate(code) if "LDG.E.128.STRONG.SYS" in line]
    apart = np.diff(loads) > NEAR
    first = int(np.argmax(apart)) + 1
    assert first % world == 0, "those of all ranks, before the first is used"
