"""What one GPU is asked for every world can be asked: seats, links and schedules, as if torch found a single GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from kernels.backends import capabilities
from kernels.backends.base import Seat
from kernels.backends.triton import nccl, playground, refusals
from kernels.backends.triton.memory import RankProcessGroup
from kernels.bench import Emit
from kernels.fabric import parse
from kernels.problem import Problem
from kernels.schemes import expand
from kernels.trial import Trial
from tests.gpu import gang, one_gpu, ops, wrapping
from tests.gpu.standin_gangs import Threads, in_threads
from tests.gpu.test_kernels import trials, trials_here
from tests.kernels.backends.triton.conftest import gpu_trial
from tests.kernels.ops import ops_gang
from workbench import machines

__all__ = ["in_threads"]

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def single(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host with one GPU, as torch tells."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)


def test_one_gpu_has_every_world_and_several_have_a_gpu_for_each_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {}
    for count in (0, 1, 2, 8):
        monkeypatch.setattr(torch.cuda, "device_count", lambda count=count: count)
        found[count] = gang.worlds(), [gang.shares_gpu(world) for world in (1, 2, 8)]
    assert found == {
        0: ([], [False] * 3), 1: ([2, 4, 8], [False, True, True]), 2: ([2], [False, False, True]),
        8: ([2, 4, 8], [False] * 3),
    }  # fmt: skip


def test_ranks_of_one_gpu_are_told_so_and_their_trials_are_of_that_link(single: None, in_threads: Threads) -> None:
    heard: list[tuple[int, int, str]] = []

    class Heard:
        def __init__(self, seat: Seat, emit: Emit) -> None:
            self._seat = seat

        def run(self, sitting: Sequence[Trial]) -> None:
            heard.extend((self._seat.rank, self._seat.ranks_on_gpu, trial.fabric.kind) for trial in sitting)

    assert list(gang.run([trials(4, "fused")[:1]], 4, 40.0, Heard)) == []
    assert sorted(heard) == [(rank, 4, "shared_gpu") for rank in range(4)]


@pytest.mark.slow(keeps=2)
@pytest.mark.parametrize("world", [2, 4, 8])
def test_every_operator_and_scheme_is_asked_and_nothing_that_needs_two_gpus(single: None, world: int) -> None:
    every = [Trial.from_json(entry) for sitting in one_gpu.schedules(world) for entry in sitting]
    assert len({trial.key for trial in every}) == len(every)
    assert {trial.schedule.scheme for trial in every} == {"sequential", "concurrent", "decomposed", "fused"}
    assert {trial.problem.operator for trial in every if trial.schedule.scheme == "fused"} == set(ops.OPERATORS)
    assert "copy_engine" not in {value for trial in every for _, value in trial.schedule.axes}
    assert all(len({entry["problem"]["operator"] for entry in sitting}) == 1 for sitting in one_gpu.schedules(world))
    with pytest.raises(pytest.skip.Exception, match=f"needs real links: {world} ranks share 1 GPU"):
        trials_here(world, "copy_engine")


@pytest.mark.parametrize("world", [2, 4, 8])
def test_numbers_wrap_in_every_scheme_and_operator_that_counts(world: int) -> None:
    asked = [Trial.from_json(entry) for entry in wrapping.trials(world)]
    by_scheme: dict[str, set[str]] = {}
    for trial in asked:
        by_scheme.setdefault(trial.schedule.scheme, set()).add(trial.problem.operator)
        assert gang.runs(trial.to_json(), world), trial.schedule
    gemms = {name for name, each in ops.OPERATORS.items() if each.work == "gemm"}
    assert by_scheme == {"fused": {*ops.OPERATORS}, "decomposed": gemms,
                         **{scheme: {*wrapping.DIRECT} for scheme in ("sequential", "concurrent")}}  # fmt: skip
    assert {*ops.OPERATORS} - {*wrapping.DIRECT} == {"gemm_all_reduce", "gemv_all_reduce"}


def test_calls_are_told_by_every_rank_or_the_line_says_how_many_did(
    single: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []

    def answered(work: Any, entries: list[dict[str, Any]], world: int, seconds: float) -> gang.Answers:
        asked.extend(entries)
        right, once = {"wrong": 0, "failure": None}, {"lists": [{}, {"kernels": 0, "results": 1}]}
        told = {number: [right if entry["work"] != "a second list" else once] * world
                for number, entry in enumerate(entries)}  # fmt: skip
        told[0] = [right] * (world - 1)
        told[1] = [right] * (world - 1) + [{"wrong": 7, "failure": None}]
        return told

    monkeypatch.setattr(gang, "answered", answered)
    lines = list(one_gpu.calls(2, 10.0))
    assert {entry["work"] for entry in asked} == {"stress", "epochs", "a second list"}
    assert {entry["trial"]["fabric"]["kind"] for entry in asked} == {"shared_gpu"}
    assert [wrong for _, wrong in lines if wrong] == ["1 of 2 ranks answered", "{'wrong': 7, 'failure': None}"]
    assert len(lines) == len(asked)


def test_ranks_of_one_gpu_are_asked_of_torch_operators_what_needs_no_links(
    single: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Checked:
        def __init__(self, world: int) -> None:
            asked[world] = []
            self._asked = asked[world]

        def check(self, name: str, dtype: str, **_: Any) -> None:
            self._asked.append(name)

        def close(self) -> None:
            self._asked.append("closed")

    asked: dict[int, list[str]] = {}
    monkeypatch.setattr(ops, "gang_of", Checked)
    assert all(not wrong for world in (2, 4, 8) for _, wrong in one_gpu.operators(world, 60.0))
    every = {name for name, _, _ in ops.CASES}
    assert {*asked[2]} == every - {*ops.OF_SEVERAL} | {"closed"}
    assert {*asked[4]} == {*asked[8]} == {*one_gpu.OF_OPS, "closed"}
    assert {*ops.OF_SEVERAL} < every
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert ops.asked(2) == ops.CASES, "ranks with a GPU each are asked everything"


@pytest.mark.parametrize("world", [2, 4, 8])
def test_a_rank_is_killed_and_stopped_in_every_world(world: int, monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[str] = []

    def answered(work: Any, entries: list[dict[str, Any]], world: int, seconds: float, *, leaving: int) -> gang.Answers:
        left.append(work.keywords["how"])
        return {0: [{"failure": "Rank 0 waited", "seconds": 1.0}] * (world - leaving)}

    monkeypatch.setattr(gang, "answered", answered)
    assert list(one_gpu.leaves(world, 60.0)) == [("a rank is killed", ""), ("a rank is stopped", "")]
    assert left == ["killed", "stopped"]


def test_a_file_of_checks_says_where_its_numbers_come_from(single: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recording of another day is told apart by its GPUs, versions, source print and date."""
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda number: "NVIDIA H100 80GB HBM3")
    origin = ops.origin()
    assert {"gpus", "versions", "source_print", "machine", "date", "git_commit"} <= origin.keys()
    assert (origin["machine"], origin["launched_by"]) == ("h100_nvl2", "tests/gpu/ops.py, without Dask")


def test_a_part_that_raises_is_a_line_and_the_table_counts_what_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    def half(world: int, seconds: float) -> Any:
        yield "first", ""
        raise OSError("no room")

    monkeypatch.setitem(one_gpu.PARTS, "calls", (half, 10.0))
    lines = list(one_gpu.played("calls", 2, until=1e12))
    assert [bool(line.wrong) for line in lines] == [False, True]
    assert "no room" in lines[1].wrong
    assert "!1 of 2, 0 s" in one_gpu.table(lines, [2])
    assert [line.wrong for line in one_gpu.played("calls", 2, until=0.0)] == ["not reached"]


def test_two_ranks_of_one_gpu_check_the_pytorch_operators_each_as_a_host_of_its_own(
    single: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[tuple[str, dict[str, str]]] = []

    class Process:
        stdout = ()

        def __init__(self, command: Sequence[str], *, env: dict[str, str], **_: Any) -> None:
            started.append((command[-1], env))

    monkeypatch.setattr(ops_gang.subprocess, "Popen", Process)
    monkeypatch.setattr(ops_gang, "_follow", lambda rank, lines: None)
    ops.gang_of(2)
    assert [device for device, _ in started] == ["cuda:0"] * 2
    assert [env["NCCL_HOSTID"] for _, env in started] == ["process0", "process1"]
    assert all(nccl.OF_SHARED_GPU.items() <= env.items() for _, env in started)


def test_a_rank_that_shares_its_gpu_sets_what_nccl_and_torch_need_before_its_group_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    environment: dict[str, str] = {}
    monkeypatch.setattr("kernels.backends.triton.memory.os.environ", environment)
    monkeypatch.setattr("kernels.backends.triton.memory.os.getpid", lambda: 4711)

    def nobody(*_: Any, **__: Any) -> None:
        raise ConnectionError("nobody listens")

    monkeypatch.setattr(torch.distributed, "TCPStore", nobody)
    monkeypatch.setattr(torch.cuda.nccl, "version", lambda: (2, 28, 9))
    with pytest.raises(ConnectionError):
        RankProcessGroup(_seat(2), torch.device("cpu"))
    assert environment.items() >= nccl.of_shared_gpu(4711).items()
    assert environment["NCCL_HOSTID"] == "process4711"
    assert nccl.settings(environment)["NCCL_HOSTID"] == "set", "no name of a process is recorded"


@pytest.mark.parametrize(("named", "host"), [({}, "127.0.0.2"), ({"NCCL_HOSTID": "left"}, "left")])
def test_a_host_that_is_an_address_is_called_by_it_or_as_a_person_said(
    monkeypatch: pytest.MonkeyPatch, named: dict[str, str], host: str
) -> None:
    monkeypatch.setattr("kernels.backends.triton.memory.os.environ", environment := dict(named))

    def nobody(*_: Any, **__: Any) -> None:
        raise ConnectionError("nobody listens")

    monkeypatch.setattr(torch.distributed, "TCPStore", nobody)
    seat = replace(_seat(2), rank=1, shares_heap=False, addresses=("127.0.0.1", "127.0.0.2"))
    with pytest.raises(ConnectionError):
        RankProcessGroup(seat, torch.device("cpu"))
    assert environment["NCCL_HOSTID"] == host
    assert environment.items() >= (nccl.OF_SHARED_GPU | nccl.OF_NETWORK).items()


def _seat(ranks_on_gpu: int) -> Seat:
    return Seat(rank=0, world=2, session="s", shares_heap=True, rendezvous=("127.0.0.1", 1), deadline_s=1.0,
                ranks_on_gpu=ranks_on_gpu)  # fmt: skip


def test_ranks_that_share_see_the_first_gpu_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(playground.VISIBLE, raising=False)
    assert playground.environment(3, 4, share_gpu=True) == {playground.VISIBLE: "0"}
    monkeypatch.setenv(playground.VISIBLE, "GPU-b,GPU-a")
    assert playground.environment(1, 2, share_gpu=True) == {playground.VISIBLE: "GPU-b"}


@pytest.mark.parametrize(
    ("scheme", "axes", "axis"),
    [("sequential", {"collective": "copy_engine"}, "collective"), ("decomposed", {}, "engine")],
)
def test_a_copy_engine_is_refused_where_ranks_share_a_gpu(scheme: str, axes: dict[str, str], axis: str) -> None:
    said = refusals.refusal(_shared("all_gather_gemm", scheme, **axes), shares_heap=True)
    assert said == (
        f"{axis} = copy_engine does not run where ranks share a GPU. A copy engine moves bytes between 2 GPUs, and 2 "
        f"ranks are on 1. Accepted: another {axis}, or ranks with a GPU each."
    )
    assert capabilities.fitting(*_asked(scheme)).get(axis) != "copy_engine", "the form takes another one"


def test_memory_that_nccl_registers_is_refused_where_ranks_share_a_gpu() -> None:
    """On one H100 torch said "NCCL mem allocator is not supported in this NCCL version" and the gang ended."""
    said = refusals.refusal(_shared("all_gather_gemm", "sequential", collective="library_tuned"), shares_heap=True)
    assert said is not None
    assert said.startswith("collective = library_tuned does not run where ranks share a GPU. NCCL registers memory")


def test_calls_of_two_streams_have_no_timeline_where_ranks_share_a_gpu_and_others_have() -> None:
    two, one = _shared("all_gather_gemm", "decomposed", engine="sm"), _shared("all_gather_gemm", "fused")
    said = refusals.unseen(two, expand(two.problem, two.schedule))
    assert said is not None
    assert said.startswith(f"No timeline of {two.schedule}: its calls are on 3 streams")
    assert refusals.unseen(one, expand(one.problem, one.schedule)) is None
    apart = replace(two, fabric=parse("nvlink"))
    assert refusals.unseen(apart, expand(apart.problem, apart.schedule)) is None


def _shared(operator: str, scheme: str, **axes: str) -> Trial:
    trial = gpu_trial(operator, {"m": 2048, "n": 512, "k": 1024}, world=2, dtype="bfloat16", scheme=scheme, **axes)
    return replace(trial, fabric=parse("shared_gpu"))


def _asked(scheme: str) -> tuple[Problem, str, capabilities.MeasuringRanks]:
    fabric = parse("shared_gpu")
    machine = machines.machine("h200_nvl2")
    return _shared("all_gather_gemm", scheme).problem, scheme, capabilities.MeasuringRanks(machine, fabric)
