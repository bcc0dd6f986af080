"""What GPUs get of our kernels, by the rules of memory order of device.py: no interpreter can see those broken.

Every rule is also shown a text that breaks it, made from the compiled one: a rule that cannot fail proves nothing.
"""

import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from triton import knobs

from tests.kernels.backends.triton.compile_sm90 import Compiled, compile_kernel, compile_meeting
from tests.kernels.backends.triton.conftest import gpu_trial, in_shots
from tests.kernels.backends.triton.ptx import (
    OWN,
    STAYS,
    Instruction,
    Kernel,
    distances,
    every_rule,
    groups,
    order,
    roles,
    scopes,
    spills_in_loops,
    widths,
)

GEMM = {"m": 8192, "n": 4096, "k": 4096}
LONG = {"m": 4096, "n": 4096, "k": 14336}
"""A product of which each wave leaves while SMs compute the next one."""
FEW_ROWS = {"m": 512, "n": 4096, "k": 4096}
EVEN = {"tables_per_rank": 4, "rows": 1000, "dim": 256, "batch": 256, "pooling": 32}
ODD = {"tables_per_rank": 3, "rows": 1000, "dim": 248, "batch": 252, "pooling": 5}
CALL = {"credits_at", "done_at"}
COUNTED = {*CALL, "counters_at"}
AWAITED = {"credits_at", "counters_at"}
"""Of kernels that have awaited all that peers send when they end: they do not meet again."""
PARKED_BYTES = 32
"""Of each thread's registers, in memory during a whole tile: a few words that loops do not touch."""

SENDERS = {
    "gemm_all_to_all tma": ("gemm_all_to_all", GEMM, "tma", CALL),
    "gemm_all_to_all registers": ("gemm_all_to_all", GEMM, "registers", CALL),
    "gemm_reduce_scatter tma": ("gemm_reduce_scatter", GEMM, "tma", AWAITED),
    "gemm_reduce_scatter ring": ("gemm_reduce_scatter", GEMM, "tma", COUNTED),
    "gemm_reduce_scatter registers": ("gemm_reduce_scatter", GEMM, "registers", AWAITED),
    "gemm_all_reduce tma": ("gemm_all_reduce", GEMM, "tma", COUNTED),
    "gemm_all_reduce registers": ("gemm_all_reduce", GEMM, "registers", COUNTED),
    "gemm_all_to_all relayed": ("gemm_all_to_all", LONG, "tma", COUNTED),
    "gemm_reduce_scatter relayed": ("gemm_reduce_scatter", LONG, "tma", AWAITED),
    "gemm_all_reduce relayed": ("gemm_all_reduce", LONG, "tma", COUNTED),
    "all_gather_gemm tma": ("all_gather_gemm", GEMM, "tma", AWAITED),
    "all_gather_gemm registers": ("all_gather_gemm", GEMM, "registers", AWAITED),
    "all_gather_gemm spanning": ("all_gather_gemm", FEW_ROWS, "tma", {"done_at", "counters_at", "pushed"}),
    "gemm_reduce_scatter spanning": ("gemm_reduce_scatter", FEW_ROWS, None, {"counters_at", "added"}),
    "embedding even": ("embedding_all_to_all", EVEN, None, CALL),
    "embedding odd": ("embedding_all_to_all", ODD, None, CALL),
}
"""Operator, shape, store where the kernel reads it, and the counters that its kernel raises."""
RELAYED = [name for name in SENDERS if name.endswith("relayed")]
ORDERS: dict[str, dict[str, Any]] = {
    "gemm_reduce_scatter tma": {"tile_order": "rotated"}, "gemm_reduce_scatter ring": {"tile_order": "ring"},
    **{name: {"tile_order": "rotated", "comm_sms": 4, "world": 2} for name in RELAYED},
    "gemm_reduce_scatter spanning": {"tile_order": "spanning", "tile": "128x256x64"},
    "all_gather_gemm spanning": {"tile_order": "spanning", "tile": "128x256x64", "split_k": 1, "comm_sms": 16},
}  # fmt: skip
"""Axes besides the store, and the world where it is not four."""
GEMMS = [name for name in SENDERS if "gemm" in name]
GEMVS = {
    "gemv of one token": {"n": 8192, "k": 8192, "tokens": 1},
    "gemv of 8 tokens": {"n": 8192, "k": 8192, "tokens": 8},
    "gemv in two shots": {"n": 16384, "k": 4096, "tokens": 8},
    "gemv of one token in two shots": {"n": 8192, "k": 8192, "tokens": 1},
    "gemv of a large output in one shot": {"n": 65536, "k": 1024, "tokens": 8},
    "gemv of 6 tokens that no block divides": {"n": 8200, "k": 8224, "tokens": 6},
    "gemv of 8 tokens value by value": {"n": 8192, "k": 8196, "tokens": 8},
}
SHOTS = {"gemv of one token in two shots": 2, "gemv of a large output in one shot": 1}
"""Where they are not what schedules mean that do not say it."""


def cases(*names: Any) -> list[Any]:
    """*names*; `make test` leaves one out, since it has the stores of one other kernel and the sums of another."""
    each = [name if isinstance(name, tuple) else (name,) for name in names]
    return [pytest.param(*one, marks=[pytest.mark.slow] if one[0] == "gemm_all_reduce registers" else [])
            for one in each]  # fmt: skip


def trial(operator: str, shape: dict[str, int], store: str | None = None, world: int = 4, **axes: Any) -> Any:
    axes |= {"store": store} if store else {}
    return gpu_trial(operator, shape, world=world, dtype="bfloat16", **axes)


def gemv(name: str) -> Any:
    usual = trial("gemv_all_reduce", GEMVS[name])
    return in_shots(usual, SHOTS[name]) if name in SHOTS else usual


@cache
def compiled(name: str) -> Compiled:
    """Each once for all tests; with default axes but for the store."""
    if name == "meet":
        return compile_meeting(trial("gemm_all_to_all", GEMM))
    if name in GEMVS:
        return compile_kernel(gemv(name))
    operator, shape, store, _ = SENDERS[name]
    return compile_kernel(trial(operator, shape, store, **ORDERS.get(name, {})))


@cache
def stamped(name: str) -> Kernel:
    """The same kernel, writing stamps."""
    chosen = gemv(name) if name in GEMVS else trial(*SENDERS[name][:3], **ORDERS.get(name, {}))
    found = compile_kernel(chosen, stamped=True)
    return Kernel(found.ptx, found.arguments)


@cache
def read(name: str) -> Kernel:
    return Kernel(compiled(name).ptx, compiled(name).arguments)


def releases(kernel: Kernel, word: str) -> list[Instruction]:
    return [each for each in kernel.instructions if each.is_release and word in kernel.words(each)]


def rewritten(kernel: Kernel, changes: dict[Instruction, str]) -> Kernel:
    """The same kernel, but for some instructions."""
    lines = kernel.text.splitlines()
    for each, text in changes.items():
        assert each.text in lines[each.line - 1]
        lines[each.line - 1] = lines[each.line - 1].replace(each.text, text, 1)
    return Kernel("\n".join(lines), kernel.arguments)


def before(kernel: Kernel, last: Instruction, name: str) -> Instruction:
    """The nearest instruction *name* before *last*."""
    earlier = kernel.instructions[: kernel.instructions.index(last)]
    return next(each for each in reversed(earlier) if each.name == name)


# ---- what holds


@pytest.mark.parametrize("name", cases(*SENDERS, *GEMVS, "meet"))
def test_words_of_several_ranks_have_system_scope(name: str) -> None:
    kernel = read(name)
    assert scopes(kernel) == []
    raised = {word for each in kernel.instructions if each.is_release for word in kernel.words(each)}
    expected = set(SENDERS[name][3]) if name in SENDERS else {"counters_at"} if name == "meet" else set()
    expected |= {"arrived"} if "done_at" in expected else set()
    assert raised - {"error"} == expected


@pytest.mark.parametrize("name", cases(*SENDERS, *GEMVS, "meet"))
def test_data_are_there_before_their_signal_and_seen_before_they_are_read(name: str) -> None:
    assert order(read(name)) == []


@pytest.mark.parametrize("name", cases(*SENDERS, "meet"))
def test_counters_are_compared_by_distance_since_they_wrap(name: str) -> None:
    assert distances(read(name)) == []


@pytest.mark.parametrize("name", [name for name, each in SENDERS.items() if each[2] == "tma"])
def test_each_bulk_store_is_a_group_of_its_own(name: str) -> None:
    assert sum(each.is_bulk_store for each in read(name).instructions) >= 1
    assert groups(read(name)) == []


@pytest.mark.parametrize("name", ["gemv of 8 tokens", "gemv of 6 tokens that no block divides"])
def test_weights_come_by_wide_copies_and_tokens_are_turned_as_they_are_read(name: str) -> None:
    """Not value by value through registers, which takes longer than the weights do."""
    ptx = compiled(name).ptx
    assert len(re.findall(r"ldmatrix\.\S*\.trans\.", ptx)) >= 8
    assert ptx.count("cp.async.cg.shared.global") >= 16
    assert "st.shared.b16" not in ptx


@pytest.mark.slow(keeps=4)
@pytest.mark.usefixtures("object_dump")
@pytest.mark.parametrize("name", GEMVS)
def test_gemvs_have_registers_for_all_they_load(name: str, tmp_path: Path) -> None:
    assert not spills_in_loops(compiled(name).sass(tmp_path), "LDGSTS")


@pytest.mark.parametrize("name", cases(*SENDERS, *GEMVS, "meet"))
def test_no_barrier_of_the_whole_block_is_in_code_that_some_warps_run(name: str) -> None:
    assert roles(read(name)) == []


@pytest.mark.parametrize("name", cases(*SENDERS, *GEMVS))
def test_data_leave_sixteen_bytes_at_once_and_packets_whole(name: str) -> None:
    kernel = read(name)
    assert widths(kernel) == []
    bulk = [each for each in kernel.instructions if each.is_bulk_store and {"to_0", "aside_0"} & kernel.words(each)]
    leave = [each for each in kernel.instructions if each.is_store and not kernel.words(each) & {*STAYS, *OWN}]
    assert bool(bulk) == (name in SENDERS and SENDERS[name][2] == "tma")
    assert leave or (bulk and name not in RELAYED), "who only sends stores what others put aside"


@pytest.mark.parametrize("operator", ["gemm_all_to_all", "all_gather_gemm"])
def test_a_computation_alone_waits_for_nothing_at_its_end(operator: str) -> None:
    """It counts itself in after all threads have read the epoch, and before it stores."""
    made = compile_kernel(trial(operator, GEMM, "tma"), alone=True)
    kernel = Kernel(made.ptx, made.arguments)
    assert every_rule(kernel) == []
    each, place = kernel.instructions, kernel.instructions.index
    [loaded] = [one for one in each if one.suffixes[0] == "ld" and kernel.words(one) == {"epoch_at"}]
    [counted] = [one for one in each if one.suffixes[0] == "atom" and kernel.words(one) == {"arrived"}]
    stores = [one for one in each if one.is_bulk_store]
    assert place(loaded) < place(before(kernel, counted, "bar.sync")) < place(counted) < place(stores[0])
    left = [one for one in each if one.name == "cp.async.bulk.wait_group.read"]
    assert place(stores[-1]) < place(left[-1]), "shared memory is free when the kernel ends"
    assert not [one for one in each if one.name == "cp.async.bulk.wait_group"]


@pytest.mark.parametrize("name", RELAYED)
def test_the_next_tile_is_loaded_while_one_is_put_aside_or_added(name: str) -> None:
    """No loop around those stores begins to load anew. That of the last tiles, which leave by themselves, does."""
    kernel = read(name)
    each_loop = loops(kernel)
    products = [at for at, each in enumerate(kernel.instructions) if each.name.startswith("wgmma.mma_async")]
    inner = [next(loop for loop in each_loop if at in loop) for at in products]
    begun: dict[str, set[bool]] = defaultdict(set)
    for at, each in enumerate(kernel.instructions):
        around = [loop for loop in each_loop if at in loop and loop & set(products)]
        if each.is_bulk_store and around:
            loads = [place for place in around[0] if kernel.words(kernel.instructions[place]) & {"a"}]
            [word, *_] = sorted(kernel.words(each))
            begun[f"add {word}" if each.is_bulk_add else word] |= {not any(one in of for of in inner) for one in loads}
    own = {"ours" if name.startswith("gemm_all_to_all") else "add ours": {False}}
    last = {"ours": {True, False}, "theirs": {True, False}} if name.startswith("gemm_all_reduce") else {}
    assert begun == {"aside_0": {False}, **own, **last}


@pytest.mark.slow(keeps=2)
@pytest.mark.parametrize("world", [2, 8])
@pytest.mark.parametrize("shape", [FEW_ROWS, {"m": 128, "n": 7168, "k": 8192}])
def test_one_flat_loop_waits_for_later_columns_midway(shape: dict[str, int], world: int, tmp_path: Path) -> None:
    """Where they are all here first, the same loop has no wait: as many products, in flight as long.

    A wait stands before each load that may be of later columns, and the bulk copy engine is told of it.
    """
    axes = {"tile_order": "spanning", "split_k": 1}
    waiting, plain = (compile_kernel(trial("all_gather_gemm", shape, "tma", world, **axes, comm_sms=number))
                      for number in (16, 0))  # fmt: skip
    kernel = Kernel(waiting.ptx, waiting.arguments)
    each = kernel.instructions
    for name in ("wgmma.mma_async", "wgmma.wait_group.sync.aligned 1", "wgmma.wait_group.sync.aligned 0"):
        assert waiting.ptx.count(name) == plain.ptx.count(name) > 0
    product = next(at for at, one in enumerate(each) if one.name.startswith("wgmma.mma_async"))
    loop = next(one for one in loops(kernel) if product in one)
    asked = [at for at in loop if "acquire" in each[at].suffixes and kernel.words(each[at]) == {"counters_at"}]
    loads = [at for at in loop if each[at].is_bulk_load and kernel.words(each[at]) == {"landed"}]
    assert len(asked) == len(loads) == 1
    assert asked[0] < product < loads[0], "loads of later steps are issued behind a product that is in flight"
    assert waiting.local_bytes(tmp_path) == 0
    fence = next(one for one in each[asked[0] :] if one.name == "fence.proxy.async")
    assert any("rows were waited for" in fault for fault in order(rewritten(kernel, {fence: ""})))


def loops(kernel: Kernel) -> list[set[int]]:
    """The places of each loop, the smallest first. Blocks that seldom run lie at the end, and jump back without one."""
    ways: tuple[dict[int, list[int]], dict[int, list[int]]] = defaultdict(list), defaultdict(list)
    for at in range(len(kernel.instructions)):
        for to in kernel.successors(at):
            ways[0][at].append(to)
            ways[1][to].append(at)
    jumps = [(to, at) for at, each in ways[0].items() for to in each if to <= at]
    loops = [reached(ways[1], at, to) & reached(ways[0], to) for to, at in jumps]
    return sorted((each for each in loops if len(each) > 1), key=len)


def reached(ways: dict[int, list[int]], first: int, last: int = -1) -> set[int]:
    """All places that *ways* lead to from *first*, which go no further than *last*."""
    known: set[int] = set()
    ahead = [first]
    while ahead:
        if (at := ahead.pop()) not in known:
            known.add(at)
            ahead += ways.get(at, []) if at != last else []
    return known


def reads(kernel: Kernel, register: str) -> int:
    return sum(register in each.operands for each in kernel.instructions)


STAMPED = (
    "gemm_all_to_all tma", "gemm_reduce_scatter tma", "gemm_reduce_scatter ring", "gemm_all_reduce registers",
    "gemm_all_reduce relayed", "all_gather_gemm tma", "embedding even", "gemv of one token", "gemv in two shots",
    "gemv of 8 tokens value by value",
)  # fmt: skip
"""Each place in which a kernel writes stamps: tiles that leave, sums, rows that come in, lookups, packets."""


@pytest.mark.parametrize("name", cases(*STAMPED))
def test_stamps_obey_the_rules_and_are_nothing_where_there_are_none(name: str) -> None:
    """Without them the clock is read for deadlines only, and no instruction asks for the SM."""
    plain, with_stamps = read(name), stamped(name)
    assert every_rule(with_stamps) == []
    assert "stamps" not in plain.arguments
    assert reads(plain, "%smid") == 0
    written = sum(each.is_store and with_stamps.words(each) == {"stamps"} for each in with_stamps.instructions)
    clock = reads(with_stamps, "%globaltimer") - reads(plain, "%globaltimer")
    assert written == clock + reads(with_stamps, "%smid")
    assert written >= 4


@pytest.mark.parametrize(("name", "moments"), cases(*((name, 1) for name in [*SENDERS, *GEMVS]), ("meet", 2)))
def test_all_threads_of_a_block_leave_a_wait_in_the_same_turn(name: str, moments: int) -> None:
    """Whoever left alone, by its own clock, would wait at another barrier than its neighbours for ever.

    A kernel reads the clock to set its deadline, a meeting for its stamp too, and in a wait only to agree.
    """
    kernel = read(name)
    agreements = sum(each.name.startswith("bar.red.or") for each in kernel.instructions)
    assert agreements >= 1
    assert reads(kernel, "%globaltimer") == moments + agreements


@pytest.mark.parametrize("name", cases(*SENDERS, *GEMVS, "meet"))
def test_a_wait_that_failed_before_ends_the_others_for_all_threads_of_a_block_alike(name: str) -> None:
    """The word is part of what the threads agree about: a reading for each agreement, just before it.

    Where each thread polls a counter of its own, it reads that once more in between.
    """
    kernel = read(name)
    asked = [at for at, each in enumerate(kernel.instructions) if "relaxed" in each.suffixes
             and kernel.words(each) == {"error"}]  # fmt: skip
    agreed = [at for at, each in enumerate(kernel.instructions) if each.name.startswith("bar.red.or")]
    assert asked
    for first, last in zip(asked, agreed, strict=True):
        between = [each.name for each in kernel.instructions[first:last] if not each.name.endswith(":")]
        assert between[:4] == ["ld.relaxed.gpu.global.u32", "mov.u64", "setp.ge.u64", "setp.ne.or.u32"]
        assert between[4:] in ([], AFTER_POLLS, AFTER_POLL, MIDWAY)
        assert "raised" in kernel.instructions[first].operands
        assert "raised" in kernel.instructions[first + 3].operands


AFTER_POLLS = ["bra", "bar.warp.sync", "mov.u32", "setp.ne.u32", "ld.acquire.sys.global.u32", "sub.s32", "setp.lt.s32"]
"""What each thread does when it has polled its own counter, before all agree."""
AFTER_POLL = ["bra", "bar.warp.sync", "ld.acquire.sys.global.u32", "sub.s32", "setp.lt.s32", "fence.proxy.async"]
"""What it does in a flat loop when all have polled one counter."""
MIDWAY = ["bra", "bar.warp.sync", "setp.lt.s32"]
"""What it does in the middle of a contraction, where each poll acquires."""


@pytest.mark.parametrize("name", cases(*GEMMS))
def test_gemms_use_the_tensor_cores_of_hopper(name: str) -> None:
    assert "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16" in compiled(name).ptx


@pytest.fixture
def object_dump() -> None:
    if not Path(knobs.nvidia.cuobjdump.path).exists():
        pytest.skip("Triton came without cuobjdump, which says what ptxas made of a kernel")


@pytest.mark.slow(keeps=3)
@pytest.mark.usefixtures("object_dump")
@pytest.mark.parametrize("name", cases(*SENDERS, *GEMVS, "meet"))
def test_default_tiles_fit_the_registers(name: str, tmp_path: Path) -> None:
    parked = PARKED_BYTES if name in (*GEMMS, *GEMVS) and name not in RELAYED else 0
    assert compiled(name).local_bytes(tmp_path) <= parked
    if name in GEMMS:
        assert spills_in_loops(compiled(name).sass(tmp_path)) == []


@pytest.mark.usefixtures("object_dump")
@pytest.mark.parametrize("name", ["meet", "gemm_reduce_scatter tma"])
def test_polls_are_strong_loads_and_only_signals_are_atomics_of_the_system(name: str, tmp_path: Path) -> None:
    """`atomic_add(p, 0)` is a load for this compiler: polls that were atomics would queue up at the counter."""
    kernel, sass = read(name), compiled(name).sass(tmp_path)
    raised = sum(each.suffixes[0] in ("atom", "red") and "sys" in each.suffixes for each in kernel.instructions)
    polled = sum(each.suffixes[0] == "ld" and "sys" in each.suffixes for each in kernel.instructions)
    assert len(re.findall(r"\bLDG?\.E\.STRONG\.SYS\b", sass)) >= polled >= 2
    assert 1 <= len(re.findall(r"\b(?:ATOMG?|REDG?)\.E\.[\w.]*STRONG\.SYS\b", sass)) <= raised


@pytest.mark.slow(keeps=5)
@pytest.mark.usefixtures("object_dump")
@pytest.mark.parametrize("name", GEMVS)
def test_packets_are_strong_stores_to_the_system(name: str, tmp_path: Path) -> None:
    assert strong_stores(compiled(name).sass(tmp_path)) >= compiled(name).ptx.count("st.global.wt.") > 0


def strong_stores(sass: str) -> int:
    return len(re.findall(r"\bSTG?\.E\.(?:64|128)\.STRONG\.SYS\b", sass))


# ---- what each rule finds


@pytest.mark.slow(keeps=7)
@pytest.mark.parametrize("word", sorted(COUNTED))
@pytest.mark.parametrize("semantics", ["release", "acquire", "relaxed"])
def test_a_scope_of_one_gpu_is_found(word: str, semantics: str) -> None:
    kernel = read("gemm_all_reduce tma")
    found = [e for e in kernel.instructions if semantics in e.suffixes and word in kernel.words(e)]
    assert found
    for each in found:
        [finding] = scopes(rewritten(kernel, {each: each.text.replace(".sys", ".gpu")}))
        assert "peers touch this word" in finding


def test_a_signal_that_releases_nothing_is_found() -> None:
    kernel = read("meet")
    for each in releases(kernel, "counters_at"):
        assert scopes(rewritten(kernel, {each: each.text.replace("release", "relaxed")}))
        assert scopes(rewritten(kernel, {each: each.text.replace("atom.global.sys.release.add.u32", "ld.global.b32")}))


def test_a_poll_without_an_acquire_is_found() -> None:
    kernel = read("gemm_reduce_scatter tma")
    each = next(e for e in kernel.instructions if "acquire" in e.suffixes and "counters_at" in kernel.words(e))
    [finding] = scopes(rewritten(kernel, {each: each.text.replace("acquire", "relaxed")}))
    assert finding == "counters_at is polled and never read with acquire"


def test_a_counter_that_is_compared_by_size_is_found() -> None:
    assert sizes_found(read("meet")) >= 2, "of all peers at once: inside the loop of polls, and after it"
    assert sizes_found(read("gemm_reduce_scatter tma")) >= 5, "and of one tile: before a loop, inside it, and after it"


def test_a_word_of_unknown_owner_is_found() -> None:
    kernel = read("meet")
    renamed = tuple("other_at" if name == "counters_at" else name for name in kernel.arguments)
    assert any("nobody says whose word" in finding for finding in scopes(Kernel(kernel.text, renamed)))


@pytest.mark.parametrize(
    ("name", "moved", "words"),
    [
        ("cp.async.bulk.commit_group", "", "a bulk store is in no group"),
        ("cp.async.bulk.commit_group", "cp.async.bulk.commit_group; cp.async.bulk.commit_group;", "without a store"),
    ],
)
def test_bulk_stores_and_groups_that_do_not_match_are_found(name: str, moved: str, words: str) -> None:
    kernel = read("all_gather_gemm tma")
    for each in (e for e in kernel.instructions if e.name == name):
        assert any(words in finding for finding in groups(rewritten(kernel, {each: moved})))


def test_a_barrier_that_only_some_threads_come_to_is_found() -> None:
    kernel = read("meet")
    first = next(e for e in kernel.instructions if "%tid.x" in e.operands)
    register = first.operands.split(",")[0]
    for each in (e for e in kernel.instructions if e.name == "bar.sync"):
        [predicated] = roles(rewritten(kernel, {each: f"@%p1 {each.text}"}))
        assert "only some threads come" in predicated
        apart = f"setp.lt.s32 %p999, {register}, 32; @%p999 bra $L__apart;\n {each.text}\n$L__apart:\n"
        assert any("only some threads come" in finding for finding in roles(rewritten(kernel, {each: apart})))
    for finding in roles(rewritten(kernel, {first: f"setmaxnreg.dec.sync.aligned.u32 24; {first.text}"})):
        assert "warps of this block have roles" in finding


STORES_BEFORE = [
    ("gemm_reduce_scatter registers", "counters_at"), ("gemm_reduce_scatter tma", "counters_at"),
    ("gemm_reduce_scatter ring", "counters_at"), ("gemm_all_to_all relayed", "counters_at"),
    ("gemm_all_reduce registers", "counters_at"),
    ("all_gather_gemm tma", "counters_at"),
    ("all_gather_gemm registers", "counters_at"), ("gemm_all_to_all registers", "arrived"),
    ("embedding even", "arrived"), ("embedding odd", "arrived"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "word"), cases(*STORES_BEFORE))
def test_a_signal_before_all_threads_met_is_found(name: str, word: str) -> None:
    kernel = read(name)
    assert releases(kernel, word)
    for each in releases(kernel, word):
        gone = dict.fromkeys(since_last_store(kernel, each, "bar.sync"), "")
        assert any(finding.startswith(f"line {each.line}:") for finding in order(rewritten(kernel, gone)))


@pytest.mark.slow(keeps=9)
@pytest.mark.parametrize(
    "name",
    [
        "gemm_reduce_scatter tma",
        "gemm_reduce_scatter ring",
        "gemm_all_reduce tma",
        "gemm_all_to_all relayed",
        "all_gather_gemm tma",
    ],
)
@pytest.mark.parametrize(
    ("instruction", "instead"),
    [
        ("cp.async.bulk.wait_group", "cp.async.bulk.wait_group.read 0;"),
        ("cp.async.bulk.wait_group", "cp.async.bulk.wait_group 2;"),
        ("fence.proxy.async", ""),
        ("fence.proxy.async", "fence.proxy.async.shared::cta;"),
    ],
)
def test_a_signal_before_bulk_stores_are_written_is_found(name: str, instruction: str, instead: str) -> None:
    kernel = read(name)
    for each in releases(kernel, "counters_at"):
        weaker = dict.fromkeys(since_last_store(kernel, each, instruction), instead)
        assert any(finding.startswith(f"line {each.line}:") for finding in order(rewritten(kernel, weaker)))


@pytest.mark.parametrize("name", ["gemm_all_to_all tma", "gemm_all_reduce tma", "gemm_reduce_scatter ring",
                                  "gemm_all_to_all relayed"])  # fmt: skip
def test_a_call_that_ends_before_its_last_bulk_store_is_found(name: str) -> None:
    kernel = read(name)
    [arrives] = releases(kernel, "arrived")
    drained = before(kernel, arrives, "cp.async.bulk.wait_group")
    findings = order(rewritten(kernel, {drained: drained.text.replace(" 0", " 1")}))
    assert any("the last bulk store may still be on its way" in finding for finding in findings)


@pytest.mark.parametrize("name", ["all_gather_gemm tma", "gemm_all_to_all relayed", "gemm_all_reduce relayed"])
def test_rows_that_are_read_without_a_fence_are_found(name: str) -> None:
    """Waits of flat loops have it inside, before adds, which read nothing."""
    kernel = read(name)
    waits = [
        e for e in kernel.instructions if e.name == "ld.global.sys.acquire.b32" and "counters_at" in kernel.words(e)
    ]
    fences = [e for e in kernel.instructions if e.name == "fence.proxy.async"]
    without = {fence: order(rewritten(kernel, {fence: ""})) for fence in fences}
    needed = [fence for fence, faults in without.items() if any("rows were waited for" in each for each in faults)]
    assert len(needed) == len(waits) > 0


@pytest.mark.parametrize("narrow", ["st.global.b16", "st.global.v4.b16", "st.global.v2.b32"])
@pytest.mark.parametrize("name", ["gemm_reduce_scatter registers", "all_gather_gemm registers", "embedding even"])
def test_narrow_stores_to_peers_are_found(name: str, narrow: str) -> None:
    kernel = read(name)
    stores = [e for e in kernel.instructions if e.is_store and not kernel.words(e) & {*STAYS, *OWN}]
    for each in (stores[0], stores[-1]):
        [finding] = widths(rewritten(kernel, {each: each.text.replace("st.global.v4.b32", narrow)}))
        assert f"line {each.line}:" in finding


@pytest.mark.parametrize(
    ("suffix", "instead"), [("st.global.wt", "st.global"), ("ld.volatile", "ld"), ("wt.b64", "wt.b32")]
)
def test_packets_that_may_be_torn_or_kept_back_are_found(suffix: str, instead: str) -> None:
    kernel = read("gemv of one token")
    found = [e for e in kernel.instructions if suffix in e.name and "packets" in kernel.words(e)]
    assert found
    for each in found:
        assert len(widths(rewritten(kernel, {each: each.text.replace(suffix, instead)}))) == 1


@pytest.mark.usefixtures("object_dump")
def test_a_weak_packet_is_found(tmp_path: Path) -> None:
    """One plain store among the strong ones."""
    found = compiled("gemv of one token")
    sass = found.sass(tmp_path).replace(".STRONG.SYS", "", 1)
    assert strong_stores(sass) < found.ptx.count("st.global.wt.")


@pytest.mark.usefixtures("object_dump")
def test_a_tile_that_does_not_fit_the_registers_is_found(tmp_path: Path) -> None:
    """256 sums for each of 4 warps' threads, which have 255 registers."""
    spilt = compile_kernel(trial("gemm_all_to_all", GEMM), num_warps=4)
    assert spilt.local_bytes(tmp_path) > PARKED_BYTES
    assert spills_in_loops(spilt.sass(tmp_path))


def sizes_found(kernel: Kernel) -> int:
    """In how many places the rule finds a counter, put where its difference was compared."""
    findings = 0
    for each in (e for e in kernel.instructions if e.name == "sub.s32"):
        difference, counter, *_ = re.findall(r"%?[a-z]\w*", each.operands)
        for compared in (e for e in kernel.instructions if "setp" in e.suffixes):
            text = re.sub(rf"{difference}\b", counter, compared.text)
            findings += text != compared.text and len(distances(rewritten(kernel, {compared: text}))) == 1
    return findings


def since_last_store(kernel: Kernel, release: Instruction, name: str) -> list[Instruction]:
    """All instructions *name* between the store of data that stands nearest before *release*, and that."""
    at = kernel.instructions.index(release)
    stores = [
        place for place, each in enumerate(kernel.instructions[:at])
        if each.is_bulk_store or (each.is_store and "error" not in kernel.words(each))
    ]  # fmt: skip
    return [each for each in kernel.instructions[stores[-1] : at] if each.name == name]
