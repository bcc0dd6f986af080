"""What the notebooks read out of their tables and charts is true of the numbers, of Plans and of machines."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from statistics import median

import nbformat
import pytest

from kernels.occupancy import (
    NCCL,
    SHOT,
    BlockResources,
    blocks_alongside,
    gemm_block,
    limits_of,
    padding,
    resident_blocks,
)
from kernels.operators import OPERATORS, problem
from kernels.outcome import Span
from kernels.schedule import tile
from tests.notebooks import lesson_sentences, sentences
from tests.notebooks.lesson_sentences import COUNTS, TILE
from tests.notebooks.sentences import (
    FEW_TOKENS,
    decode_on,
    experts_on,
    lookups_on,
    reduction,
    two_h200s,
    wire_share,
)
from workbench.lesson import Lesson, lesson
from workbench.machines import shipped_machine
from workbench.resources import notebooks_directory

# What the notebooks read out of their tables and charts is true of the numbers that they show.

READ = {**lesson_sentences.READ, **sentences.READ}
NAMES = (
    r"`[^`]*`|lesson \d|Lesson \d|DLRM-DCNv2|an H200\b|arXiv:[\d.]+|H200s|MI300Xs|\[[^]]*\]\([^)]*\)"
    r"|workbench \w+ --machine \w+"
)
"""What has digits and states no number."""


@pytest.fixture(scope="module")
def experts() -> Lesson:
    return lesson("gemm_all_to_all", preset="laptop_ladder")


def times(rows: list[dict], axis: str) -> dict:
    return {row["axes"].get(axis): row["time_s"] for row in rows}


def test_lesson_1_sequential_is_the_sum_of_its_parts_and_twice_the_floor(experts: Lesson) -> None:
    (row,) = experts.rows("sequential")
    compute, wire = (experts.alone(part, "sequential").time_s for part in ("compute", "communication"))
    assert row["time_s"] == pytest.approx(compute + wire, rel=0.01)
    assert row["floor_s"] / row["time_s"] == pytest.approx(0.5, abs=0.01)


def test_lesson_1_most_can_be_saved_at_balance_and_a_ninth_far_from_it(experts: Lesson) -> None:
    def saved(ratio: float) -> float:
        (row,) = experts.linked(f"emulated:wire_to_compute={ratio}").rows("sequential")
        return 1 - row["floor_s"] / row["time_s"]

    assert saved(1) == max(saved(ratio) for ratio in (0.125, 0.25, 0.5, 1, 2, 4, 8))
    assert saved(1) == pytest.approx(1 / 2, abs=0.01)
    assert saved(0.125) == pytest.approx(1 / 9, abs=0.01)
    assert saved(8) == pytest.approx(1 / 9, abs=0.01)


def test_lesson_1_the_plan_has_the_four_steps_that_are_explained(experts: Lesson) -> None:
    steps = experts.steps("sequential")
    assert list(steps.index) == ["0/compute/-1/0", "1/compute/-1/0", "0/put/1/0", "1/put/0/0"]
    assert steps.loc["0/put/1/0", "waits for"] == "0/compute/-1/0"
    assert 2 * steps.loc["0/put/1/0", "tiles"] == steps.loc["0/compute/-1/0", "tiles"]


def test_lesson_2_pieces_make_a_u_that_is_flat_from_16_to_64_and_ends_steeply(experts: Lesson) -> None:
    by_pieces = times(experts.rows("decomposed", pieces=COUNTS), "pieces")
    (sequential,) = experts.rows("sequential")
    assert by_pieces[1] == pytest.approx(sequential["time_s"], rel=1e-6)
    assert by_pieces[1] > by_pieces[2] > by_pieces[4] > by_pieces[8] > by_pieces[16]
    assert by_pieces[2] / by_pieces[1] == pytest.approx(0.75, abs=0.01), "a quarter of the time is gone"
    flat = [by_pieces[count] for count in (16, 32, 64)]
    assert max(flat) / min(flat) < 1.05
    assert by_pieces[256] > 1.5 * by_pieces[128] > 1.5 * by_pieces[64]


def test_lesson_2_both_parts_grow_with_the_pieces_and_the_computation_shoots_up(experts: Lesson) -> None:
    compute = [experts.alone("compute", "decomposed", pieces=count).time_s for count in COUNTS]
    wire = [experts.alone("communication", "decomposed", pieces=count).time_s for count in COUNTS]
    assert compute == sorted(compute)
    assert wire[1:] == sorted(wire[1:])
    assert compute[-3] < 1.1 * compute[0], "64 pieces still cost little"
    assert compute[-1] > 2 * compute[0]


def test_lesson_2_a_fast_link_wants_fewer_pieces_and_nine_tenths_are_hidden(experts: Lesson) -> None:
    best = {}
    for ratio in (0.25, 0.5, 1.0, 2.0, 4.0):
        rows = experts.linked(f"emulated:wire_to_compute={ratio}").rows("decomposed", pieces=COUNTS)
        best[ratio] = min(rows, key=lambda row: row["time_s"])
    counts = [row["axes"]["pieces"] for row in best.values()]
    assert counts == sorted(counts)
    assert counts[0] < counts[-1]
    for row in best.values():
        hidden = (row["sequential_s"] - row["time_s"]) / min(row["compute_s"], row["comm_s"])
        assert hidden == pytest.approx(0.9, abs=0.06)


def test_lesson_3_the_order_is_worth_more_than_the_slice(experts: Lesson) -> None:
    sizes = (1, 2, 4, 8, 16)
    natural, rotated = (times(experts.rows("fused", tile=TILE, slice_tiles=sizes, tile_order=order), "slice_tiles")
                        for order in ("natural", "rotated"))  # fmt: skip
    assert max(rotated.values()) < min(natural.values())
    assert list(rotated.values()) == sorted(rotated.values())


def test_lesson_3_small_slices_about_halve_what_is_exposed(experts: Lesson) -> None:
    rows = experts.rows("fused", tile=TILE, slice_tiles=(2, 4, 8, 16))
    exposed = [row["time_s"] - row["compute_s"] for row in rows]
    for finer, coarser in pairwise(exposed):
        assert 0.4 < finer / coarser < 0.6


def test_lesson_3_pieces_and_slices_of_one_grain_come_out_alike_and_fused_goes_on(experts: Lesson) -> None:
    (eight,) = experts.rows("decomposed", pieces=8)
    (slices,) = experts.rows("fused", tile=TILE, slice_tiles=4)
    assert slices["time_s"] == pytest.approx(eight["time_s"], rel=0.02)
    finest = min(row["time_s"] for row in experts.rows("decomposed", pieces=COUNTS))
    assert experts.rows("fused", tile=TILE, slice_tiles=1)[0]["time_s"] < finest


def test_lesson_3_with_four_ranks_natural_loses_a_fifth_and_the_others_are_alike() -> None:
    four = lesson("gemm_all_to_all", preset="laptop_ladder", world=4)
    rows = four.rows("fused", tile=TILE, tile_order="all", slice_tiles=(1, 2, 4, 8))
    best = {order: min(row["time_s"] for row in rows if row["axes"]["tile_order"] == order)
            for order in ("natural", "remote_first", "rotated")}  # fmt: skip
    assert best["remote_first"] == pytest.approx(best["rotated"], rel=1e-6)
    assert best["natural"] > 1.2 * best["rotated"]


def test_lesson_4_the_own_shard_first_takes_the_fill_away() -> None:
    gather = lesson("all_gather_gemm", preset="laptop_ladder")
    for count in (4, 16):
        uniform, first = (gather.estimate("decomposed", pieces=count, steps=steps)
                          for steps in ("uniform", "local_first"))  # fmt: skip
        begins = [min(span.start_s for span in found.spans if span.kind == "compute") for found in (uniform, first)]
        assert begins[0] > 5 * begins[1]
        assert first.time_s < uniform.time_s
    steps = gather.steps("decomposed", pieces=2)
    assert (steps[steps.kind == "put"]["waits for"] == "nothing").all()


def test_lesson_4_both_schemes_save_two_fifths_or_more_in_every_flow_and_fused_the_most() -> None:
    operators = ("gemm_all_to_all", "all_gather_gemm", "gemm_reduce_scatter", "gemm_all_reduce")
    assert len({OPERATORS[name].flow for name in operators}) == 3
    left = {}
    for name in operators:
        case = lesson(name, preset="laptop_ladder")
        for scheme, axes in (("decomposed", {"pieces": 8}), ("fused", {"tile": f"64x512x{case.problem['k']}"})):
            (row,) = case.rows(scheme, **axes)
            left[name, scheme] = row["time_s"] / row["sequential_s"]
    assert all(0.5 < ratio < 0.61 for ratio in left.values()), left
    assert all(left[name, "fused"] < left[name, "decomposed"] for name in operators), left
    assert max(left, key=lambda which: left[which]) == ("gemm_all_reduce", "decomposed")


def test_the_appendix_about_gpus_says_where_overlap_pays_on_gpus_and_where_not() -> None:
    for machine in ("h200_nvl8", "mi300x_mesh8"):
        experts = experts_on(machine)
        assert reduction(experts, "fused") == pytest.approx(reduction(experts, "decomposed"), abs=0.05)
        assert reduction(lookups_on(machine), "fused") > 0.4, "above the published average"
        for scheme in ("fused", "decomposed"):
            assert 0.1 < reduction(experts, scheme) < wire_share(experts), "nobody can save more"
        assert reduction(decode_on(machine), "decomposed") < 0, "cutting makes it slower"
    assert wire_share(experts_on("h200_nvl8")) < wire_share(experts_on("mi300x_mesh8")) < 0.24
    assumed = decode_on("mi300x_mesh8")
    free = replace(assumed.machine, costs=replace(assumed.machine.costs, step_seconds=0.0))
    assert reduction(replace(assumed, machine=free), "fused") == pytest.approx(2 / 3, abs=0.06)


@pytest.mark.slow
def test_the_appendix_about_gpus_gathers_of_few_tokens_gain_little() -> None:
    gathers = two_h200s()["all_gather_gemm"]
    few = [saved for saved, shape in zip(gathers["recorded"], gathers["shapes"], strict=True)
           if shape["m"] in FEW_TOKENS]  # fmt: skip
    assert len(few) == len(FEW_TOKENS)
    assert all(-0.01 < saved < 0.05 for saved in few)


def readings(text: str) -> list[str]:
    """What a cell reads out of a table or chart: from `Reading it` on, or what is folded until the guess."""
    if "**Reading it.**" in text:
        text = text[text.index("**Reading it.**") :]
    elif "<details>" not in text:
        return []
    folded = text.partition("</summary>")[2] or text
    return [re.split(r"</details>|^## |^\*\*Measure it|^\*\*Try", folded, flags=re.MULTILINE)[0]]


@pytest.mark.slow(keeps=9)
@pytest.mark.parametrize("name", READ)
def test_every_number_that_a_notebook_reads_out_is_the_one_that_its_cells_show(name: str) -> None:
    cells = nbformat.read(notebooks_directory() / name, as_version=4).cells
    texts = [" ".join(text.split()) for cell in cells for text in readings(cell.source)]
    assert texts
    left = "\n".join(texts)
    for sentence in READ[name]():
        assert sentence in left, sentence
        left = left.replace(sentence, "", 1)
    unread = re.findall(r"[^.]*\d[^.]*", re.sub(NAMES, "", left))
    assert not unread, f"{name} states numbers that no test reads: {unread}"


def test_the_appendix_about_gpus_says_what_two_h200s_were_recorded_to_save() -> None:
    middle = {operator: {source: median(found[source]) for source in ("recorded", "estimated")}
              for operator, found in two_h200s().items()}  # fmt: skip
    for operator in ("gemm_all_to_all", "embedding_all_to_all", "gemv_all_reduce", "gemm_reduce_scatter"):
        assert 0 < middle[operator]["recorded"] == pytest.approx(middle[operator]["estimated"], abs=0.05)


# What lesson 6 and the appendix about two streams show is true of the Plan, the residency rule and machines.

HOPPER, AMPERE = (limits_of(shipped_machine(name)) for name in ("h200_nvl2", "a40_pcie4"))
SMALL = gemm_block(tile("64x128x32"), itemsize=2, stages=2, warps=8)


@pytest.fixture(scope="module")
def sms_experts() -> Lesson:
    ladder = lesson("gemm_all_to_all", preset="laptop_ladder")
    sizes = {"m": 512, "n": 1024, "k": 1024}
    return replace(ladder, problem=problem("gemm_all_to_all", sizes, world=2)).linked("emulated:wire_to_compute=1")


def spans_of(experts: Lesson, priority: str, kind: str, pool: str) -> list[Span]:
    axes = {"tile": "128x256x1024", "micro_batches": 4, "comm_priority": priority}
    spans = experts.estimate("concurrent", **axes).spans
    return sorted((each for each in spans if (each.rank, each.kind, each.pool) == (0, kind, pool)),
                  key=lambda span: span.start_s)  # fmt: skip


def test_with_priority_a_put_goes_before_the_next_computation_and_without_behind_it(sms_experts: Lesson) -> None:
    for priority, before in (("high", 1), ("normal", 2)):
        computed = spans_of(sms_experts, priority, "compute", "compute")
        first_put = spans_of(sms_experts, priority, "put", "compute")[0]
        done = [each for each in computed if each.stop_s <= first_put.start_s + 1e-9]
        assert len(computed) == 4
        assert len(done) == before, priority
    last = {priority: spans_of(sms_experts, priority, "put", "link")[-1].stop_s for priority in ("high", "normal")}
    assert last["high"] < last["normal"]


def test_on_two_gpus_a_collective_waits_for_an_sm_unless_some_are_set_aside() -> None:
    here = lesson("gemm_all_reduce", preset="llama3_70b_attention_8192", machine="h200_nvl2", world=2)
    sizes = problem("gemm_all_reduce", {"m": 4096, "n": 8192, "k": 2240}, dtype="bfloat16", world=2)
    layer, left = replace(here, problem=sizes), {"micro_batches": 8, "comm_priority": "normal"}

    def of(kind: str, **axes: int | str) -> list[Span]:
        spans = layer.estimate("concurrent", **{**left, **axes}).spans
        return sorted((each for each in spans if each.rank == 0 and each.kind == kind), key=lambda span: span.start_s)

    waits, shared = {}, {"comm_priority": "high", "comm_sms": 16}
    for name, axes in (("streams", {}), ("set aside", shared)):
        waits[name] = of("collective", **axes)[0].start_s
        ends = [each.stop_s for each in of("compute", **axes)]
        assert waits[name] == pytest.approx(ends[1 if name == "streams" else 0], rel=0.03), name
    assert of("compute", **shared)[0].stop_s > of("compute")[0].stop_s
    time_s = {name: layer.estimate("concurrent", **{**left, **axes}).time_s for name, axes in {
        "streams": {}, "set aside": shared, "ours": {"kernel": "ours", "tile": "64x128x64"},
        "shaped": {"kernel": "ours", "tile": "64x128x64", "resident_blocks": 1},
    }.items()}  # fmt: skip
    assert time_s["set aside"] > time_s["streams"], "NCCL is slower on 16 SMs than on its 24"
    assert time_s["shaped"] > time_s["ours"], "NCCL finds no room, and the GEMM is slower"


def held(block: BlockResources) -> int:
    return resident_blocks(HOPPER, block.shared_bytes, block.registers, block.threads)


def test_a_block_of_nccl_fits_beside_nothing_and_one_of_two_shot_beside_two_small_blocks() -> None:
    assert 16 * HOPPER.partitions * HOPPER.registers_of(NCCL) == 15 * HOPPER.registers
    assert [blocks_alongside(HOPPER, SMALL, count, NCCL) for count in (1, 2)] == [0, 0]
    assert 2 * HOPPER.partitions * HOPPER.registers_of(SHOT) == HOPPER.registers
    assert [blocks_alongside(HOPPER, SMALL, count, SHOT) for count in (1, 2, 3)] == [1, 1, 0]
    assert padding(AMPERE, SMALL, 1).fewest < padding(HOPPER, SMALL, 1).fewest


@pytest.mark.parametrize(("size", "count", "fits_beside", "fits_beside_one"), [
    ("64x64x64", 3, False, True), ("64x128x64", 2, True, True), ("128x128x64", 1, True, True),
    ("128x256x64", 1, False, False),
])  # fmt: skip
def test_the_tile_decides_whether_padding_can_let_a_block_in(size: str, count: int, fits_beside: bool,
                                                             fits_beside_one: bool) -> None:  # fmt: skip
    block = gemm_block(tile(size), itemsize=2, stages=3, warps=8)
    assert held(block) == count
    assert (blocks_alongside(HOPPER, block, count, SHOT) > 0) is fits_beside
    padded = replace(block, shared_bytes=block.shared_bytes + padding(HOPPER, block, 1).fewest)
    assert (blocks_alongside(HOPPER, padded, 1, SHOT) > 0) is fits_beside_one
    assert blocks_alongside(HOPPER, padded, 1, NCCL) == 0
