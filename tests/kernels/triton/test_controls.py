"""Controls of concurrent schedules as values: padding, priorities and shares of SMs, and what a graph would show."""

import ctypes
import sys
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernels.backends.triton import launch, nccl, streams, timing
from kernels.backends.triton.launch import LaunchableKernel
from kernels.backends.triton.schemes import concurrent
from kernels.backends.triton.timing import Node
from kernels.machine import load
from kernels.occupancy import SmLimits, limits_of, resident_blocks
from kernels.schedule import Refusal
from tests.kernels.triton.compile_sm90 import _nobodys_gpu, kernels_of
from tests.kernels.triton.conftest import ROOT, gpu_trial

SMS = 132
PRIORITY = -5


@pytest.fixture
def h200() -> SmLimits:
    return limits_of(load(ROOT / "data" / "machines" / "h200_nvl8.toml"))


@pytest.fixture(scope="module")
def compiled() -> Any:
    """Our GEMM next to a collective, as Triton compiles it for sm_90."""
    one = gpu_trial("gemm_all_to_all", {"m": 512, "n": 512, "k": 512}, world=4, dtype="bfloat16", scheme="concurrent",
                    kernel="ours", tile="64x64x64")  # fmt: skip
    kernel = kernels_of(one.of_part("compute"))[0]
    with _nobodys_gpu():
        made = kernel.compiled()
    made.n_regs = 64
    return kernel, made


def test_a_padded_kernel_differs_from_the_compiled_one_in_its_shared_memory_alone(compiled: Any) -> None:
    """What Triton's launcher reads is the third of the packed numbers, in 3.6 and 3.7."""
    _, made = compiled
    before = made.packed_metadata
    other = launch.with_shared(made, 100_000)
    assert (other.metadata.shared, other.packed_metadata[2]) == (100_000, 100_000)
    assert other.packed_metadata[:2] == before[:2]
    assert made.packed_metadata == before
    assert made.metadata.shared == before[2]
    assert other.kernel is made.kernel


@pytest.mark.parametrize("blocks", [1, 2])
def test_the_padding_forces_the_number_of_blocks_and_no_byte_less_does(
    compiled: Any, h200: SmLimits, blocks: int
) -> None:
    _, made = compiled
    threads = 32 * made.metadata.num_warps
    held = resident_blocks(h200, made.metadata.shared, made.n_regs, threads)
    assert held > blocks, "else nothing is forced"
    num_bytes = launch.shared_bytes(made, blocks, h200)
    assert resident_blocks(h200, num_bytes, made.n_regs, threads) == blocks
    assert resident_blocks(h200, num_bytes - 1, made.n_regs, threads) == blocks + 1


def test_what_one_padding_may_have_is_not_taken_away_by_a_smaller_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials of 1 and of 2 resident blocks launch one function in turns, each with bytes of its own."""
    allowed = {"bytes": 49_152}

    def grows(function: int, attribute: str, num_bytes: int) -> tuple[Any]:
        allowed["bytes"] = num_bytes
        return (SimpleNamespace(value=0),)

    driver = SimpleNamespace(
        CUfunction_attribute=SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES="most"),
        cuFuncGetAttribute=lambda attribute, function: (SimpleNamespace(value=0), allowed["bytes"]),
        cuFuncSetAttribute=grows,
    )
    monkeypatch.setitem(sys.modules, "cuda", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "cuda.bindings", SimpleNamespace(driver=driver))
    for num_bytes in (118_000, 77_000):
        launch.allow(SimpleNamespace(function=1), num_bytes)
        assert allowed["bytes"] == 118_000


def test_more_blocks_than_fit_are_refused_with_both_byte_counts(compiled: Any, h200: SmLimits) -> None:
    _, made = compiled
    with pytest.raises(Refusal, match=rf"resident_blocks = 16 is too many.*{made.metadata.shared} > \d+"):
        launch.shared_bytes(made, 16, h200)


def test_a_launch_has_all_arguments_in_the_order_of_the_kernel(compiled: Any) -> None:
    kernel, _ = compiled
    every = launch.every_argument(kernel.function, kernel.arguments, kernel.constants)
    assert len(every) == len(kernel.function.arg_names)
    assert every[: len(kernel.arguments)] == list(kernel.arguments)
    assert dict(zip(kernel.function.arg_names, every, strict=True))["BLOCK_M"] == kernel.constants["BLOCK_M"]


class Loaded:
    """A compiled kernel on a GPU that holds three of its blocks as it is, and one for each 100 bytes less otherwise."""

    def __init__(self) -> None:
        self.metadata = SimpleNamespace(shared=300, num_warps=4)


@pytest.mark.parametrize(("asked", "programs"), [
    ({}, 3 * SMS), ({"spared": 8}, 3 * (SMS - 8)), ({"resident": 2}, 2 * SMS), ({"resident": 1, "spared": 32}, 100),
    ({"grid": 8}, 8), ({"grid": 9999}, 5000), ({"spared": 8, "items": SMS - 4}, SMS - 8), ({"items": SMS - 4}, SMS - 4),
    ({"spared": 8, "items": 3 * SMS - 25}, 2 * (SMS - 8)), ({"spared": 8, "items": 100}, 100),
])  # fmt: skip
def test_a_grid_beside_others_is_the_sms_that_are_left_times_the_blocks_of_one(
    monkeypatch: pytest.MonkeyPatch, asked: dict[str, int], programs: int
) -> None:
    launched: list[tuple[int, int]] = []
    kernel = LaunchableKernel(function=SimpleNamespace(__name__="gemm"), arguments=(), constants={}, concurrent=True,
                    **{"items": 5000, **asked})  # fmt: skip
    monkeypatch.setattr(launch.INTERPRETED, "value", False)
    monkeypatch.setattr(launch, "_sms", lambda: SMS)
    monkeypatch.setattr(LaunchableKernel, "_loaded", lambda self, arguments: Loaded())
    monkeypatch.setattr(launch, "limits", lambda: None)
    monkeypatch.setattr(launch, "allow", lambda made, num_bytes: None)
    monkeypatch.setattr(launch, "shared_bytes", lambda made, blocks, of: 900 // blocks)
    monkeypatch.setattr(launch, "resident_blocks", lambda made, num_bytes: 900 // num_bytes)
    monkeypatch.setattr(
        launch, "padded_launcher",
        lambda made, function, constants, count, num_bytes: launched.append((count, num_bytes)) or (lambda _: None),
    )  # fmt: skip
    monkeypatch.setattr(
        launch, "_plain_launcher", lambda function, constants, count, options: launched.append((count, 0))
    )
    kernel.argument_launcher()
    assert launched == [(programs, 900 // asked["resident"] if "resident" in asked else 0)]


def test_a_number_of_blocks_that_the_driver_does_not_confirm_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = LaunchableKernel(
        function=SimpleNamespace(__name__="gemm"), arguments=(), constants={}, items=1, concurrent=True, resident=2
    )
    monkeypatch.setattr(LaunchableKernel, "_loaded", lambda self, arguments: Loaded())
    monkeypatch.setattr(launch, "resident_blocks", lambda made, num_bytes: 1)
    with pytest.raises(Refusal, match=r"lets an SM hold 1: 1 != 2\. Accepted: 0, or 1\."):
        kernel._resident(450)


def of_name(name: str, *, blocks: int = 8, priority: int = 0) -> Node:
    return Node(name, blocks, 256, 0, priority)


def test_kernels_of_a_graph_are_told_by_name_and_each_difference_once() -> None:
    told = timing.facts([of_name("a"), of_name("b"), of_name("a"), of_name("a", priority=PRIORITY)])
    assert [(each["count"], each["priority"]) for each in told["a"]] == [(2, 0), (1, PRIORITY)]
    assert told["b"] == [{"blocks": 8, "threads": 256, "shared_bytes": 0, "priority": 0, "count": 1}]


def test_a_priority_that_has_not_reached_the_graph_is_said() -> None:
    high, normal = of_name("nccl", priority=PRIORITY), of_name("unpack")
    assert concurrent.unmet_priority(True, [high, high]) == concurrent.unmet_priority(False, [normal]) == []
    (sentence,) = concurrent.unmet_priority(True, [high, normal])
    assert "1 of 2 kernels of the collective have priority 0, unpack among them" in sentence
    (sentence,) = concurrent.unmet_priority(False, [high])
    assert sentence.startswith("comm_priority = normal has not reached the graph: 1 of 1")


@pytest.mark.parametrize(("share", "computes", "moves", "unmet"), [
    (0, 512, 999, []), (8, 124, 8, []), (8, 248, 4, []), (8, 100, 0, []),
    (8, 132, 8, ["computation"]), (8, 512, 16, ["computation", "collective"]), (32, 100, 33, ["collective"]),
])  # fmt: skip
def test_a_share_of_sms_that_has_not_reached_the_graph_is_said(
    share: int, computes: int, moves: int, unmet: list[str]
) -> None:
    sentences = concurrent.unmet_share(share, SMS, [of_name("gemm", blocks=computes)], [of_name("nccl", blocks=moves)])
    assert [f"comm_sms = {share} does not limit the {half}" for half in unmet] == [
        sentence.partition(":")[0] for sentence in sentences
    ]


def test_facts_tell_both_halves_apart_and_leave_the_clock_out(monkeypatch: pytest.MonkeyPatch) -> None:
    from kernels.schemes import expand

    one = gpu_trial("gemm_all_reduce", {"m": 512, "n": 512, "k": 512}, world=2, dtype="bfloat16", scheme="concurrent")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(multi_processor_count=SMS))
    every = [of_name("gemm", blocks=SMS), of_name("nccl", priority=PRIORITY), *map(of_name, concurrent.CLOCK_KERNELS)]
    told = concurrent.control_facts(expand(one.problem, one.schedule), 0, every, {"gemm"}, torch.device("cpu"))[
        "controls"
    ]
    assert (list(told["compute"]), list(told["communication"]), told["unmet"]) == (["gemm"], ["nccl"], [])


def test_cublas_plans_for_fewer_sms_inside_and_for_all_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where what is called fails; 0 touches nothing."""
    said: list[Any] = []

    def of_handle(handle: ctypes.c_void_p, count: int) -> int:
        said.append((handle.value, count))
        return 0

    monkeypatch.setattr(streams, "_library", lambda: SimpleNamespace(cublasSetSmCountTarget=of_handle))
    monkeypatch.setattr(torch.cuda, "current_blas_handle", lambda: 77)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(multi_processor_count=SMS))
    monkeypatch.setattr(torch._C, "_set_sm_carveout_experimental", said.append, raising=False)
    device = torch.device("cuda", 0)
    streams.on_fewer(lambda: said.append("called"), 8, device)()
    assert said == [8, (77, SMS - 8), "called", (77, 0), None]
    said.clear()
    with pytest.raises(ZeroDivisionError):
        streams.on_fewer(lambda: said.append(1 // 0), 16, device)()
    assert said == [16, (77, SMS - 16), (77, 0), None]
    said.clear()
    streams.on_fewer(lambda: said.append("called"), 0, device)()
    assert said == ["called"]


def test_a_communicator_of_few_blocks_is_made_once_for_a_group_and_goes_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limit, made = timedelta(seconds=61), []

    def of(least: int | None, most: int, seconds: timedelta, cluster: int | None = None) -> str:
        made.append((least, most, seconds, cluster))
        return f"at most {most}"

    monkeypatch.setattr(nccl, "_of", of)
    monkeypatch.setattr(nccl, "_limited", None)
    backend = SimpleNamespace(options=SimpleNamespace(_timeout=limit))
    group, other = (SimpleNamespace(_get_backend=lambda device: backend) for _ in range(2))
    device = torch.device("cpu")
    assert nccl.at_most(group, 0, device) is group
    assert [nccl.at_most(group, blocks, device) for blocks in (8, 16, 8)] == ["at most 8", "at most 16", "at most 8"]
    assert made == [(None, 8, limit, 1), (None, 16, limit, 1)]
    nccl.forget(group)
    assert nccl._limited is not None
    nccl.forget(other)
    assert nccl._limited is None


def test_sends_keep_to_their_share_of_sms_by_a_power_of_two() -> None:
    assert [nccl.channels(share, sends=True) for share in (0, 4, 8, 16, 24, 32)] == [0, 4, 8, 16, 16, 32]
    assert nccl.channels(24, sends=False) == 24
