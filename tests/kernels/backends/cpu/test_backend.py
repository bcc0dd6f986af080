"""The cpu backend equals the reference, refuses with a sentence, leaks nothing; its heap and its waits are bounded."""

import os
from collections import namedtuple
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernels.backends.base import Hang, Seat
from kernels.backends.cpu import heap
from kernels.backends.cpu.backend import CpuBackend
from kernels.backends.cpu.heap import SegmentHeap
from kernels.fabric import parse
from kernels.operators import OPERATORS, problem
from kernels.outcome import Failure, Measurement
from kernels.plan import Kind
from kernels.reference import expected, verdict
from kernels.schedule import Refusal
from kernels.schemes import expand, schedule
from kernels.trial import PROTOCOLS, Trial
from tests.kernels.conftest import small
from workbench.machines import machine

# The cpu backend equals the reference for every operator and scheme, refuses with a sentence, and leaks nothing.

SCHEDULES: dict[str, list[dict[str, Any]]] = {
    "sequential": [{}, {"collective": "one_shot"}],
    "concurrent": [{"micro_batches": 3}, {"micro_batches": 2, "comm_priority": "normal", "collective": "one_shot"}],
    "decomposed": [
        {"pieces": 3},
        {"pieces": 2, "steps": "local_first"},
        {"pieces": 2, "grouping": "unfused", "steps": "local_first"},
        {"pieces": 2, "pattern": "ring"},
        {"pieces": 4, "split": "columns"},
        {"pieces": 4, "split": "tables"},
        {"pieces": 3, "split": "contraction"},
        {"pieces": 6, "split": "rows_and_contraction"},
    ],
    "fused": [
        {"slice_tiles": 1},
        {"slice_tiles": 3, "write": "staged"},
        {"slice_tiles": 2, "tile_order": "natural"},
        {"slice_tiles": 2, "tile_order": "remote_first"},
    ],
}


def _applies(operator: str, axes: dict[str, Any]) -> bool:
    stated, split = OPERATORS[operator], axes.get("split")
    one_shot = axes.get("collective") == "one_shot"
    return (split is None or split in stated.splits) and (not one_shot or stated.collective == "all_reduce")


def _trials(make_trial: Any, operator: str, world: int, dtype: str = "float32", **more: Any) -> list[Any]:
    """All SCHEDULES among the most ranks; the first of each scheme among fewer, whose peers are a part of those."""
    asked = small(operator, world, dtype)
    return [
        make_trial(asked, scheme, **{"tile": _tile(operator), **axes, **more})
        for scheme, listed in SCHEDULES.items()
        for axes in (listed if world == 4 else listed[:1])
        if _applies(operator, axes)
    ]


def _tile(operator: str) -> str:
    return "16x32x96" if operator != "gemv_all_reduce" else "16x2x96"


@pytest.mark.slow(keeps=1)
@pytest.mark.parametrize("world", [2, 4, 1])
@pytest.mark.parametrize("operator", OPERATORS)
def test_every_schedule_equals_the_reference(gangs: Any, make_trial: Any, operator: str, world: int) -> None:
    trials = _trials(make_trial, operator, world)
    for trial, outcome in zip(trials, gangs(world).outcomes(trials), strict=True):
        assert isinstance(outcome, Measurement), f"{trial.schedule}: {outcome}"
        assert outcome.correct is True, f"{trial.schedule}"
        assert [len(mine) for mine in outcome.samples] == [2] * world


@pytest.mark.slow(keeps=1)
@pytest.mark.parametrize("operator", OPERATORS)
def test_bfloat16_equals_the_reference(gangs: Any, make_trial: Any, operator: str) -> None:
    trials = _trials(make_trial, operator, 4, "bfloat16")
    assert all(isinstance(one, Measurement) and one.correct for one in gangs(4).outcomes(trials))


@pytest.mark.slow(keeps=6)
@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.parametrize("operator", OPERATORS)
def test_the_librarys_collectives_equal_the_reference(gangs: Any, make_trial: Any, operator: str, world: int) -> None:
    asked = small(operator, world)
    trials = [
        make_trial(asked, "sequential", fabric="shared_memory", collective="library", tile=_tile(operator)),
        make_trial(asked, "decomposed", fabric="shared_memory", engine="library", pieces=3, tile=_tile(operator)),
        make_trial(asked, "concurrent", fabric="shared_memory", collective="library", micro_batches=3),
    ]
    assert all(isinstance(one, Measurement) and one.correct for one in gangs(world).outcomes(trials))


@pytest.mark.parametrize(
    ("scheme", "axis", "accepted"), [("sequential", "collective", "direct"), ("decomposed", "engine", "sm")]
)
def test_the_library_is_refused_on_an_emulated_fabric(make_trial: Any, scheme: str, axis: str, accepted: str) -> None:
    with pytest.raises(Refusal) as refused:
        make_trial(small("gemm_all_to_all", 2), scheme, **{axis: "library"})
    assert str(refused.value) == (
        f"{axis} = library does not run on an emulated link. Only our own puts cross that link; the "
        f"library (NCCL, gloo) would go past it. Accepted: {accepted}; library where the link is real."
    )


def test_float16_is_refused_with_a_sentence(gangs: Any, make_trial: Any) -> None:
    (outcome,) = gangs(2).outcomes([make_trial(small("gemm_all_to_all", 2, "float16"), "fused")])
    assert isinstance(outcome, Failure)
    assert outcome.stage == "refused"
    assert "Accepted: float32, bfloat16" in outcome.message


def test_one_refused_trial_leaves_the_others_of_its_sitting_alone(gangs: Any, make_trial: Any) -> None:
    asked = small("gemm_all_to_all", 2)
    never = make_trial(asked, "fused", fabric="emulated:bandwidth_bytes_per_second=1")
    unknown = make_trial(asked, "fused", fabric="emulated:wire_to_compute=1")
    slow, open_link, fine = gangs(2).outcomes([never, unknown, make_trial(asked, "fused")])
    assert (slow.stage, open_link.stage, fine.correct) == ("refused", "refused", True)
    assert "a rank waits at most 60 s" in slow.message
    assert "has no bandwidth yet" in open_link.message


def test_parts_are_timed_without_a_verdict_and_take_less_than_the_whole(gangs: Any, make_trial: Any) -> None:
    whole = make_trial(small("gemm_all_to_all", 2), "sequential", fabric="emulated:bandwidth_bytes_per_second=1e5")
    outcomes = gangs(2).outcomes([whole, whole.of_part("compute"), whole.of_part("communication")])
    assert [one.correct for one in outcomes] == [True, None, None]
    total, compute, communication = (one.time_s for one in outcomes)
    wire = OPERATORS["gemm_all_to_all"].wire_bytes(whole.problem) / 1e5
    assert compute < wire <= min(communication, total)


@pytest.mark.slow
def test_a_sample_of_micro_batches_is_the_time_of_one_and_its_spans_are_those_of_all(
    gangs: Any, make_trial: Any
) -> None:
    link = "emulated:bandwidth_bytes_per_second=1e5"
    whole = make_trial(small("gemm_all_to_all", 2), "concurrent", fabric=link, micro_batches=4)
    outcomes = gangs(2).outcomes([whole, whole.of_part("compute"), whole.of_part("communication")])
    wire_s = OPERATORS["gemm_all_to_all"].wire_bytes(whole.problem) / 1e5
    assert [wire_s <= one.time_s < 2 * wire_s for one in outcomes] == [True, False, True]
    assert outcomes[1].time_s < wire_s
    ends = max(span.stop_s for span in outcomes[0].spans)
    assert 4 * wire_s <= ends < 8 * wire_s
    assert [{span.micro_batch for span in one.spans} for one in outcomes] == [{0, 1, 2, 3}] * 3


@pytest.mark.parametrize(("priority", "first"), [("high", "0/put/1/0"), ("normal", "0/compute/-1/1")])
def test_with_priority_a_put_goes_before_the_computation_that_was_queued_earlier(
    gangs: Any, make_trial: Any, priority: str, first: str
) -> None:
    trial = make_trial(small("gemm_all_to_all", 2), "concurrent", micro_batches=4, comm_priority=priority)
    (outcome,) = gangs(2).outcomes([trial])
    began = [span for span in outcome.spans if span.rank == 0 and span.pool == "compute"]
    ordered = [span.step for span in sorted(began, key=lambda span: span.start_s)]
    assert ordered[:2] == ["0/compute/-1/0", first]
    streams = {span.kind: span.stream for span in began}
    assert streams == {"compute": 0, "put": 2}


def test_spans_carry_the_plans_addresses_and_what_was_waited_for(gangs: Any, make_trial: Any) -> None:
    trial = make_trial(small("gemm_reduce_scatter", 2), "fused", tile="16x32x96", slice_tiles=2)
    (outcome,) = gangs(2).outcomes([trial])
    kinds = {(span.kind, span.pool) for span in outcome.spans}
    assert {("compute", "compute"), ("put", "link"), ("reduce", "compute")} <= kinds
    assert {span.rank for span in outcome.spans} == {0, 1}
    assert all(0 <= span.start_s <= span.stop_s for span in outcome.spans)
    assert any("/put/" in (span.waited_for or "") for span in outcome.spans if span.kind == "reduce")


def test_every_kind_of_step_that_a_plan_has_is_run_and_measured(gangs: Any, make_trial: Any) -> None:
    ways = [
        make_trial(small("gemm_reduce_scatter", 2), "fused", tile="16x32x96", slice_tiles=2),
        make_trial(small("gemm_all_to_all", 2), "sequential", fabric="shared_memory", collective="library"),
        make_trial(small("all_gather_gemm", 2), "fused", write="staged"),
    ]
    outcomes = gangs(2).outcomes(ways)
    assert all(outcome.correct for outcome in outcomes)
    assert {span.kind for outcome in outcomes for span in outcome.spans} == {kind.word for kind in Kind}


def test_no_segment_is_left_behind(gangs: Any, make_trial: Any) -> None:
    gangs(2).outcomes([make_trial(small("gemm_all_to_all", 2), "fused")])
    assert not [path for path in heap.directory().glob("*overlap-*") if f"-{gangs(2).ranks[0].pid}" in path.name]


def test_a_dead_owners_segment_is_swept(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heap, "directory", lambda: tmp_path)
    dead, alive = tmp_path / "overlap-s-1-0-999999999", tmp_path / "overlap-s-1-0-1"
    dead.touch()
    alive.touch()
    assert heap.sweep() == 1
    assert alive.exists()
    assert not dead.exists()


# The symmetric heap: refused where it does not fit, bounded waits that name the rank, nothing left behind.

Room = namedtuple("Room", "f_bavail f_frsize")


@pytest.fixture
def segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(heap, "directory", lambda: tmp_path)
    return tmp_path


def seat(world: int, deadline_s: float = 0.2) -> Seat:
    return Seat(rank=0, world=world, session="s", shares_heap=True, deadline_s=deadline_s)


def test_a_peer_that_never_comes_is_named_after_the_deadline_and_nothing_is_left(segments: Path) -> None:
    with pytest.raises(Hang, match=r"Rank 0 waited for rank 1's segment .* Waited 0.2 s"):
        SegmentHeap(seat(2), 1, 4096, 16)
    assert list(segments.iterdir()) == []


def test_too_little_shared_memory_is_refused_with_both_numbers(segments: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: Room(64, 1_000_000))
    with pytest.raises(Refusal, match=r"needs 2 x 40 MB .* has 64 MB free"):
        SegmentHeap(seat(2), 1, 40_000_000, 16)


def test_what_a_faster_peer_has_taken_is_not_counted_against_the_gang(
    segments: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (segments / "overlap-s-1-1-7").touch()
    monkeypatch.setattr(os, "statvfs", lambda _: Room(50, 1_000_000))
    with pytest.raises(Hang, match="barrier 1"):
        _with_peer(segments)


def _with_peer(segments: Path) -> None:
    (segments / "overlap-s-1-1-7").write_bytes(bytes(60_000_000))
    SegmentHeap(seat(2), 1, 40_000_000, 16)


def test_ranges_that_a_gpu_computes_at_the_same_time_are_added_here_one_after_the_other() -> None:
    """No schedule of CPU ranks has them, but they obey the Plan of one that has."""
    gpu = machine("h200_nvl2")
    few = replace(gpu, device=replace(gpu.device, slots=8))
    of = problem("gemm_all_to_all", {"m": 320, "n": 64, "k": 256}, dtype="float32", world=1)
    by = schedule(of, "fused", {"tile": "32x32x16", "split_k": 2, "grid": 8}, few, parse("nvlink"))
    alone = CpuBackend(seat(1, 5.0))
    asked = Trial(problem=of, schedule=by, backend="cpu", machine="laptop_cpu", fabric=parse("shared_memory"),
                  protocol=PROTOCOLS["quick"])  # fmt: skip
    (prepared,) = alone.prepare([asked])
    for values in prepared.rehearse():
        judged = verdict(of, prepared.result(), expected(of, 0, prepared.seed, values=values), prepared.roundings)
        assert judged.error <= judged.bound
    assert len(prepared.spans(0)) == len(expand(of, by)) == 8 + 4 + 16
    alone.close()


def test_a_larger_heap_replaces_the_smaller_one(segments: Path) -> None:
    alone = CpuBackend(seat(1))
    made = []
    for num_bytes in (4096, 1_000_000, 4096):
        alone._heap_for_bytes(num_bytes, 16)
        assert alone._heap is not None
        made.append((alone._heap.generation, alone._heap.capacity))
    assert made == [(1, 4096), (2, 1_000_000), (2, 1_000_000)]
    assert list(segments.iterdir()) == []
    alone.close()


def test_a_segment_of_somebody_else_is_left_to_them(segments: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = segments / ".overlap-s-1-0-999999999"
    theirs.touch()

    def forbidden(*_: object, **__: object) -> None:
        raise PermissionError

    monkeypatch.setattr(Path, "unlink", forbidden)
    assert heap.sweep() == 0
    monkeypatch.undo()
    monkeypatch.setattr(heap, "directory", lambda: segments)
    assert heap.sweep() == 1
