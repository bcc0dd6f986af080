"""Every default kernel compiles for every GPU that people own, fits it and keeps the rules; older GPUs load by threads.

sm_90 itself is in test_ptx.py. For sm_86 and sm_89 the PTX of sm_80 is assembled: theirs differs in its target alone.
"""

import re
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from triton import knobs

from kernels.backends.triton.collectives import FEW, MANY
from kernels.backends.triton.probes import suite
from kernels.backends.triton.probes.suite import ProbeSite
from kernels.backends.triton.refusals import of_gpu
from kernels.machine import Machine, load
from kernels.occupancy import SHARED_KIB, USUAL_SHARED_KIB, gemm_block, room_of
from kernels.operators import OPERATORS, problem
from kernels.ops.arguments import trial as operator_trial
from kernels.schedule import Refusal, tile
from kernels.trial import Trial
from tests.kernels.backends.triton import test_collectives, test_decomposed, test_playground, test_probes, tutorial
from tests.kernels.backends.triton.compile_sm90 import Compiled, UnbackedHeap, compile_meeting, kernels_of, warmed_up
from tests.kernels.backends.triton.conftest import ROOT, InterpretedGang, gpu_trial
from tests.kernels.backends.triton.ptx import Kernel, distances, groups, order, scopes, waits_before_adds, widths
from tests.kernels.backends.triton.test_interpreted import GEMM as RAGGED
from tests.kernels.backends.triton.test_interpreted import passed
from tests.kernels.backends.triton.test_ptx import EVEN, GEMM, ODD, PARKED_BYTES, sizes_found, strong_stores

MACHINES = ROOT / "data" / "machines"
A100, A40, H200 = (load(MACHINES / f"{name}.toml") for name in ("a100_nvl8", "a40_pcie4", "h200_nvl8"))
GEMMS = [name for name, each in OPERATORS.items() if each.work == "gemm"]
EPILOGUE_BYTES = 264
"""Of each thread's registers on sm_100, in memory while sums are made; none in the loop over k."""
PARKED_ON_120 = {"few shares are summed": 72, "probe put": 8}
"""Of each thread's registers on sm_120, in memory: blocks of 1,024 threads, which have 64 registers each there."""
SHAPES = {"gemm": GEMM, "gemv": {"n": 8192, "k": 8192, "tokens": 1}, "gather": EVEN}


def of(like: Machine, architecture: int) -> Machine:
    """A machine like *like* whose GPUs have another architecture."""
    return replace(like, device=replace(like.device, architecture=architecture))


HERE = {80: A100, 86: A40, 89: of(A40, 89), 100: of(H200, 100), 120: of(A40, 120)}
"""A machine with the default schedules of each architecture."""


def named(operator: str, architecture: int, scheme: str = "fused", **axes: Any) -> Trial:
    shape = SHAPES[OPERATORS[operator].work]
    return gpu_trial(operator, shape, world=4, dtype="bfloat16", scheme=scheme, machine=HERE[architecture], **axes)


def trial(name: str, architecture: int) -> Trial:
    """`operator form`: the default schedule of a scheme, or what else has a kernel of its own."""
    operator, _, form = name.partition(" ")
    match form:
        case "fused" | "stamped":
            return named(operator, architecture)
        case "pieces":
            return named(operator, architecture, "decomposed", launches="one")
        case "alone":
            chosen = {} if OPERATORS[operator].work == "gather" else {"kernel": "ours"}
            return named(operator, architecture, "sequential", **chosen)
        case "odd":
            return gpu_trial(operator, ODD, world=4, dtype="bfloat16", machine=HERE[architecture])
        case _:
            shape = {"n": 8192, "k": 8192, "tokens": 8}
            return gpu_trial(operator, shape, world=4, dtype="bfloat16", machine=HERE[architecture])


KERNELS = [
    *(f"{name} {form}" for name in OPERATORS for form in ("fused", "alone", "stamped")),
    *(f"{name} pieces" for name in GEMMS), "gemv_all_reduce few", "embedding_all_to_all odd", "meet",
]  # fmt: skip


def tutorials(architecture: int) -> Compiled:
    """The operator that a reader of the tutorial writes."""
    with tempfile.TemporaryDirectory() as folder, tutorial.importable(Path(folder)):
        return test_playground.compiled(import_module("norm_all_to_all"), architecture)


APART: dict[str, Callable[[int], Compiled]] = {
    "rows are put": partial(test_collectives.compiled, "gemm_all_to_all", "put", MANY),
    "few rows are put": partial(test_collectives.compiled, "gemm_all_to_all", "put", FEW),
    "rows are put between meetings": partial(test_collectives.compiled, "gemm_all_to_all", "meets", MANY),
    "shares are summed": partial(test_collectives.compiled, "gemm_reduce_scatter", "sum", MANY),
    "few shares are summed": partial(test_collectives.compiled, "gemm_reduce_scatter", "sum", FEW),
    "pieces are put": test_decomposed.compiled_puts,
    "the tutorial's": tutorials,
    **{f"probe {name}": partial(test_probes.of, name) for name in test_probes.KERNELS},
}
"""Kernels of collectives, pieces, probes and the playground: none is compiled for a trial before it is timed."""
BULK_PROBE = "probe put_bulk"
"""Refused before sm_90."""
EVERY = [*KERNELS, *APART]


@cache
def compiled(name: str, architecture: int) -> Compiled:
    if name == "meet":
        return compile_meeting(named("gemm_all_to_all", architecture), architecture)
    if name in APART:
        return APART[name](architecture)
    kernel = kernels_of(trial(name, architecture), architecture=architecture)[0]
    if name.endswith("stamped"):
        kernel = kernel.stamped(torch.zeros(1, dtype=torch.int64))
    return warmed_up(kernel.function, kernel.arguments, {**kernel.constants, **kernel.options}, architecture)


def assembled(ptx: str, architecture: int, folder: Path) -> bytes:
    """What ptxas makes of *ptx* for GPUs of *architecture*."""
    source, binary = folder / "kernel.ptx", folder / "assembled.cubin"
    source.write_text(re.sub(r"\.target sm_\d+", f".target sm_{architecture}", ptx))
    command = [knobs.nvidia.ptxas.path, f"--gpu-name=sm_{architecture}", str(source), "-o", str(binary)]
    subprocess.run(command, check=True, capture_output=True, timeout=200)
    return binary.read_bytes()


def broken(found: Compiled, name: str, architecture: int, folder: Path) -> list[str]:
    """The rules that a kernel breaks on GPUs of *architecture*."""
    kernel, room = Kernel(found.ptx, found.arguments), room_of(architecture)
    rules = [*order(kernel), *scopes(kernel), *widths(kernel), *distances(kernel)]
    rules += [*groups(kernel), *waits_before_adds(kernel)]
    packets = found.ptx.count("st.global.wt.")
    if packets and (strong := strong_stores(found.sass(folder))) < packets:
        rules.append(f"{packets - strong} of {packets} packets are not stored strong to the system")
    if found.shared_bytes > room:
        rules.append(f"{found.shared_bytes} bytes of shared memory do not fit {room}")
    sums = "gemm" in name and OPERATORS[name.partition(" ")[0]].reduces and not name.endswith(("pieces", "alone"))
    most = EPILOGUE_BYTES if sums and architecture == 100 else PARKED_BYTES if "gem" in name else 0
    if architecture == 120:
        most = max(most, PARKED_ON_120.get(name, 0))
    if (spilled := found.local_bytes(folder)) > most:
        rules.append(f"{spilled} bytes of each thread's registers are in memory, more than {most}")
    if architecture < 90:
        rules += [f"sm_{architecture} has no {word}" for word in ("cp.async.bulk", "fence.proxy", "mbarrier", "wgmma")
                  if word in found.ptx]  # fmt: skip
        if "gemm" in name and "cp.async.cg.shared.global" not in found.ptx:
            rules.append("operands are not loaded ahead")
    return rules


@pytest.mark.slow(keeps=7)
@pytest.mark.parametrize(("name", "architecture"), [
    (name, architecture) for name in EVERY for architecture in (80, 100, 120)
    if (architecture == 80 or not name.endswith("stamped"))  # stamps know no architecture; of sm_90 in test_ptx.py
    and (architecture >= 90 or name != BULK_PROBE)
])  # fmt: skip
def test_default_kernels_fit_and_keep_the_rules(name: str, architecture: int, tmp_path: Path) -> None:
    assert broken(compiled(name, architecture), name, architecture, tmp_path) == []


@pytest.mark.slow(keeps=7)
@pytest.mark.parametrize(
    ("name", "architecture"), [(name, 86 + 3 * (number % 2)) for number, name in enumerate(EVERY) if name != BULK_PROBE]
)
def test_default_kernels_of_sm_80_fit_its_successors(name: str, architecture: int, tmp_path: Path) -> None:
    """One of the two in turns: both have the same instructions, registers and shared memory.

    But for the rows of a put, which need less memory there: those are compiled.
    """
    assert room_of(86) == room_of(89)
    found = compiled(name, 86 if "all_gather" in name or "all_to_all_gemm" in name else 80)
    there = replace(found, cubin=assembled(found.ptx, architecture, tmp_path))
    assert broken(there, name, architecture, tmp_path) == []


@pytest.mark.slow(keeps=2)
@pytest.mark.parametrize("architecture", [80, 100, 120])
def test_what_breaks_a_rule_is_found_on_every_architecture(architecture: int, tmp_path: Path) -> None:
    meeting = compiled("meet", architecture)
    assert sizes_found(Kernel(meeting.ptx, meeting.arguments)) >= 3, "a counter that is compared by size"
    packets = compiled("probe ping_pong_packets", architecture)
    weak = packets.sass(tmp_path).replace(".STRONG.SYS", "", 1)
    assert strong_stores(weak) < packets.ptx.count("st.global.wt."), "a packet that is stored weak"
    if architecture >= 90:
        by_bulk = compiled(BULK_PROBE, architecture)
        for wrong in ("", "cp.async.bulk.commit_group; cp.async.bulk.commit_group;"):
            text = by_bulk.ptx.replace("cp.async.bulk.commit_group;", wrong, 1)
            assert groups(Kernel(text, by_bulk.arguments)), "a store that is not alone in its group"


@pytest.mark.slow(keeps=1)
@pytest.mark.parametrize("architecture", [86, 89])
def test_ptx_of_the_successors_differs_in_its_target_alone(architecture: int) -> None:
    first, other = (compiled("gemm_reduce_scatter fused", each).ptx for each in (80, architecture))
    assert re.sub(r"sm_\d+", "sm_", first) == re.sub(r"sm_\d+", "sm_", other)


# What the rule says that a block takes where tensor cores read registers, beside what Triton compiles.


@pytest.mark.slow(keeps=2)
@pytest.mark.parametrize("architecture", [80, 120])
@pytest.mark.parametrize(("operator", "stages"), [("gemm_all_to_all", 3), ("gemm_reduce_scatter", 2)])
def test_a_block_takes_what_the_rule_says(operator: str, stages: int, architecture: int) -> None:
    chosen = named(operator, architecture, num_stages=stages)
    (kernel, *_) = kernels_of(chosen, architecture=architecture)
    found = warmed_up(kernel.function, kernel.arguments, {**kernel.constants, **kernel.options}, architecture)
    size = tile(chosen.schedule["tile"])
    block = gemm_block(size, 2, stages, 8, architecture=architecture)
    assert 0 <= block.shared_bytes - found.shared_bytes <= 132


def test_shared_memory_of_an_architecture_is_what_the_machines_state() -> None:
    for path in sorted(MACHINES.glob("*.toml")):
        device = load(path).device
        if device.architecture:
            assert device.limits["shared_memory_per_block_bytes"] == room_of(device.architecture), path.name
    assert max(SHARED_KIB.values()) < USUAL_SHARED_KIB


# The same kernels interpreted, so that their masks and edges are verified.


@pytest.mark.slow
@pytest.mark.parametrize("operator", GEMMS)
def test_tiles_that_threads_load_are_right_at_every_edge(gangs: dict[int, InterpretedGang], operator: str) -> None:
    """Neither rows, columns nor the contraction are whole tiles."""
    shape = RAGGED | {"k": 72}
    axes = {"tile": "32x32x32"} | ({"slice_tiles": 3} if OPERATORS[operator].flow.value == "receive" else {})
    chosen = gpu_trial(operator, shape, world=2, dtype="float16", machine=A100, **axes)
    assert chosen.schedule["store"] == "registers"
    passed(gangs[2].call(chosen, architecture=80))


@pytest.mark.slow(keeps=2)
@pytest.mark.parametrize(("operator", "world", "axes"), [
    ("all_gather_gemm", 2, {"split": "contraction", "steps": "uniform"}), ("all_to_all_gemm", 2, {}),
    ("gemm_all_to_all", 2, {"split": "columns"}), ("gemm_reduce_scatter", 2, {}), ("gemm_all_reduce", 4, {}),
])  # fmt: skip
def test_one_launch_of_pieces_is_right_without_bulk_copies(
    gangs: dict[int, InterpretedGang], operator: str, world: int, axes: dict[str, str]
) -> None:
    shape = {"m": 136, "n": 80, "k": 64}
    chosen = gpu_trial(operator, shape, world=world, dtype="float16", scheme="decomposed", tile="16x32x16", pieces=2,
                       launches="one", machine=A100, **axes)  # fmt: skip
    answers = gangs[world].call(chosen, 2, architecture=80)
    assert all("failure" not in answer and answer["error_of_bound"] <= 1 for answer in answers), answers


# What cannot be is refused in words, with both numbers.


def test_a_gpu_that_is_too_old_is_refused_whatever_is_asked() -> None:
    for scheme in ("sequential", "fused"):
        with pytest.raises(Refusal, match=r"Its GPU is sm_75, and kernels need sm_80 or newer: 75 < 80\. Accepted: "):
            gpu_trial("gemm_all_to_all", GEMM, world=4, dtype="float16", scheme=scheme, machine=of(A40, 75))


def test_bulk_stores_are_refused_where_there_are_none() -> None:
    with pytest.raises(Refusal, match=r"came with sm_90, and this is sm_86: 86 < 90\. Accepted: registers"):
        named("gemm_all_to_all", 86, store="tma")


@pytest.mark.parametrize(("scheme", "axes"), [
    ("fused", {"num_stages": 4}), ("sequential", {"kernel": "ours"}), ("concurrent", {"kernel": "ours"}),
    ("decomposed", {"launches": "one"}),
])  # fmt: skip
def test_a_tile_that_is_too_large_is_refused(scheme: str, axes: dict[str, Any]) -> None:
    with pytest.raises(Refusal, match=r"does not fit an SM\. Each block needs \d+ bytes .* it has 101376: "):
        named("gemm_all_to_all", 86, scheme, tile="256x256x64", **axes)


def test_a_rank_asks_again_for_the_gpu_that_it_has() -> None:
    """A recorded schedule, or a machine file that states no architecture, may meet another GPU."""
    hopper = gpu_trial("gemm_all_to_all", GEMM, world=4, dtype="bfloat16")
    assert of_gpu(hopper, 90) is of_gpu(named("gemm_all_to_all", 80), 80) is None
    assert "came with sm_90, and this is sm_80: 80 < 90. Accepted: store = registers." in str(of_gpu(hopper, 80))
    assert "sm_70, and kernels need sm_80 or newer: 70 < 80." in str(of_gpu(named("gemm_all_to_all", 80), 70))


def test_torch_operators_ask_the_same_refusals() -> None:
    asked = problem("gemm_all_to_all", GEMM, world=4, dtype="bfloat16")
    assert operator_trial(asked, "", HERE[86]).schedule == named("gemm_all_to_all", 86).schedule
    for text, machine, words in (("", of(A40, 75), "75 < 80"), ("fused store=tma", A40, "86 < 90"),
                                 ("fused tile=256x256x64 num_stages=3", A40, "> 101376")):  # fmt: skip
        with pytest.raises(Refusal, match=words):
            operator_trial(asked, text, machine)


def test_a_probe_of_bulk_puts_is_refused_where_there_are_none() -> None:
    there = ProbeSite(UnbackedHeap(), 2, 4, 1 << 22, torch.device("cpu"))
    there.architecture = 86
    with pytest.raises(Refusal, match=r"way = tma cannot be probed here\. .* 86 < 90\. Accepted: registers"):
        suite.puts(there, "tma", "all_to_all", 1 << 20, 64)
