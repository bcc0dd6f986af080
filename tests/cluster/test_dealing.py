"""Every worker gets one GPU that no other worker has, or none: as a table, and as events and commands."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.gang import Gang, GpuDealer
from cluster.gang_messages import (
    Command,
    GpuMessage,
    GrantMessage,
    RankReady,
    RequestMessage,
    Tick,
    WorkerJoined,
    WorkerLeft,
    WorkerSees,
)
from cluster.hosts import Gpu

A, B, C, D = (Gpu(number=number, name="NVIDIA H200", uuid=f"GPU-{letter}") for number, letter in enumerate("abcd"))


def dealt(**sees: Sequence[Gpu]) -> dict[str, Gpu | None]:
    """Who has what when all workers have said at once what they see, in this order."""
    dealer = GpuDealer()
    at_once = [answer for worker, gpus in sees.items() for answer in dealer.sees(worker, gpus)]
    return dict([*at_once, *dealer.decide()])


def test_workers_that_see_all_gpus_of_a_host_get_one_each() -> None:
    assert dealt(w0=[A, B], w1=[A, B]) == {"w0": A, "w1": B}


def test_dask_cudas_turned_lists_give_everybody_the_first_of_its_own() -> None:
    assert dealt(w2=[C, D, A, B], w0=[A, B, C, D], w1=[B, C, D, A]) == {"w0": A, "w1": B, "w2": C}


def test_the_surplus_gets_none() -> None:
    assert dealt(w0=[A, B], w1=[A, B], w2=[A, B]) == {"w0": A, "w1": B, "w2": None}


def test_who_may_have_one_gpu_only_gets_it_before_those_who_may_have_several() -> None:
    assert dealt(w0=[A, B, C], w1=[A, B], w2=[A]) == {"w0": C, "w1": B, "w2": A}


def test_a_worker_that_sees_none_is_told_so_at_once_though_others_are_free() -> None:
    assert GpuDealer().sees("w0", []) == [("w0", None)]


def test_a_gpu_without_a_name_is_dealt_to_nobody() -> None:
    assert GpuDealer().sees("w0", [Gpu(number=0, name="NVIDIA H200")]) == [("w0", None)]


def test_a_worker_that_asks_again_keeps_its_own_and_one_that_left_gives_it_back() -> None:
    dealer = GpuDealer()
    dealer.sees("w0", [A, B])
    dealer.decide()
    assert dealer.sees("w0", [B, A]) == [("w0", A)]
    assert dealer.sees("w1", [A]) == [("w1", None)]
    dealer.free("w0")
    assert dealer.sees("w2", [A]) == [("w2", A)]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["sees", "leave", "decide"]), st.integers(0, 5), st.permutations([A, B, C]),
                  st.integers(0, 3)),
        max_size=40,
    )
)  # fmt: skip
def test_no_gpu_is_ever_of_two_workers(steps: list[tuple[str, int, list[Gpu], int]]) -> None:
    dealer, has = GpuDealer(), dict[str, Gpu | None]()
    for step, number, gpus, count in steps:
        worker = f"w{number}"
        match step:
            case "sees":
                before, answers = has.get(worker), dealer.sees(worker, gpus[:count])
                assert before is None or answers == [(worker, before)], "kept for life"
                has |= answers
            case "leave":
                dealer.free(worker)
                has.pop(worker, None)
            case "decide":
                has |= dealer.decide()
        held = [gpu for gpu in has.values() if gpu is not None]
        assert len(held) == len(set(held))


def join(gang: Gang, worker: str, *gpus: Gpu, host: str = "h1") -> list[Command]:
    return gang.handle(WorkerJoined(0.0, worker, worker.partition("#")[0], host), WorkerSees(0.0, worker, gpus))


def test_a_worker_with_a_choice_is_answered_at_the_next_tick_and_one_without_at_once() -> None:
    gang = Gang("s")
    assert join(gang, "w0", A, B) == []
    assert join(gang, "w1", A) == [GpuMessage("w1", A)]
    assert join(gang, "w2") == [GpuMessage("w2", None)]
    assert gang.handle(Tick(1.0)) == [GpuMessage("w0", B)]
    assert gang.handle(Tick(2.0)) == []


def test_a_grant_names_the_gpu_of_each_place_and_a_new_rank_process_has_the_same() -> None:
    gang = Gang("s")
    join(gang, "w0", A, B)
    join(gang, "w1", A, B)
    gang.handle(Tick(1.0))
    gang.handle(*(RankReady(1.0, worker, "1", "kernels", "triton") for worker in ("w0", "w1")))
    gang.handle(RankReady(2.0, "w1", "2", "kernels", "triton"))
    (granted,) = gang.handle(RequestMessage(3.0, "a", "0", 2, True, "triton"))
    assert isinstance(granted, GrantMessage)
    assert [place.gpu for place in granted.places] == [A, B]


def test_a_worker_that_its_nanny_brought_back_gets_a_gpu_again() -> None:
    gang = Gang("s")
    for worker in ("w0#1", "w1#1"):
        join(gang, worker, A, B)
    gang.handle(Tick(1.0))
    gang.handle(WorkerLeft(2.0, "w0#1"))
    join(gang, "w0#2", A, B)
    assert gang.handle(Tick(3.0)) == [GpuMessage("w0#2", A)]


def test_what_a_stranger_sees_is_not_answered() -> None:
    assert Gang("s").handle(WorkerSees(0.0, "w9", (A,))) == []
