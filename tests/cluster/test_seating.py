"""Whether a gang can ever sit on what the broker describes: the same sentence for who asks and who grants."""

import pytest

from cluster.seating import WorkerDescription, Workers

CPU = tuple(WorkerDescription(f"rank{number}", "here", "cpu") for number in range(4))
GPUS = tuple(WorkerDescription(f"gpu{number}", "there", "triton") for number in range(2))


@pytest.mark.parametrize(
    ("workers", "world", "backend", "expected"),
    [
        (CPU, 4, "cpu", None),
        (CPU, 5, "cpu", "5 ranks are too many: the cluster has 4 workers. Accepted: at most 4"),
        (CPU, 1, "triton", "1 rank on backend = triton needs a GPU, but 0 of the cluster's 4 workers have one"),
        ((*CPU, *GPUS), 2, "triton", None),
        ((*CPU, *GPUS), 6, "cpu", "no host has more than 4 of the cluster's 6 workers"),
        (
            (*CPU[:3], WorkerDescription("rank3", "here", "cpu", "no room")),
            4,
            "cpu",
            "cannot keep a rank (rank3: no room)",
        ),
    ],
)
def test_what_can_never_be_seated_says_why(workers: tuple, world: int, backend: str, expected: str | None) -> None:
    refusal = Workers(workers).refusal(world, backend, shares_heap=True)
    assert refusal is None if expected is None else expected in str(refusal)


def test_ranks_that_the_network_links_need_several_hosts() -> None:
    refusal = Workers(CPU).refusal(2, "cpu", shares_heap=False, across=True)
    assert refusal == (
        "2 ranks that the network links need several hosts, and the cluster's 4 workers for them are on 1. Accepted: "
        "another fabric, or workers on several hosts."
    )
    assert Workers((*CPU, *GPUS)).refusal(2, "cpu", shares_heap=False, across=True) is None
    assert Workers(CPU).refusal(1, "cpu", shares_heap=False, across=True) is None, "1 rank has no link"


def test_who_would_sit_takes_hosts_in_turns_where_the_network_links_them_and_is_in_the_order_of_the_names() -> None:
    there = tuple(WorkerDescription(f"rank{number}", "there", "cpu") for number in (10, 9))
    workers = Workers((*reversed(CPU), *there))

    def names(across: bool) -> list[str]:
        return [f"{worker.name} {worker.host}" for worker in workers.gang(3, "cpu", across)]

    assert names(across=False) == ["rank0 here", "rank1 here", "rank2 here"]
    assert names(across=True) == ["rank0 here", "rank1 here", "rank9 there"]


def test_the_largest_gang_has_a_rank_on_every_worker_that_can_keep_one() -> None:
    ill = WorkerDescription("rank4", "here", "cpu", "no room")
    away = WorkerDescription("rank5", "here", "cpu")
    workers = Workers((*CPU, ill, *GPUS), away=(away,))
    assert (workers.seats("cpu"), workers.seats("triton")) == (7, 2)


def test_a_worker_that_may_come_back_counts_and_one_that_has_not_said_hello_may_have_a_gpu() -> None:
    description = {
        "workers": [{"name": "rank0", "host": "here", "trouble": None}],
        "away": [{"name": "rank1", "host": "here", "backend": "cpu", "trouble": ""}],
    }
    workers = Workers.from_description(description)
    assert len(workers) == 1
    assert workers.refusal(2, "cpu", shares_heap=True) is None
    assert workers.refusal(1, "triton", shares_heap=True) is None


def test_a_gpu_that_is_in_trouble_is_no_gpu_that_was_never_there() -> None:
    ill = WorkerDescription("gpu1", "there", "triton", "it has not answered for more than 14 s")
    refusal = str(Workers((*CPU, GPUS[0], ill)).refusal(2, "triton", shares_heap=True))
    assert refusal.startswith("2 ranks are too many now: 1 of the cluster's 6 workers cannot keep a rank (gpu1: it has")
    assert refusal.endswith("Accepted until that is mended: at most 1, or wait.")
    lost = WorkerDescription("gpu1", "there", "triton", "it left the cluster and did not come back")
    assert "gpu1: it left" in str(Workers((*CPU, GPUS[0]), (lost,)).refusal(2, "triton", shares_heap=True))
