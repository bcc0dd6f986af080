"""Gangs of several hosts are refused in words before anything is allocated, on all ranks alike."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from cluster.rank import RankServer
from kernels.backends.base import Seat
from kernels.backends.triton import backend
from kernels.backends.triton.gin import context, gang
from kernels.backends.triton.gin.gang import (
    HOST_NAME,
    QUEUE_SIZE,
    NetworkGang,
    WithoutGin,
    count_hosts,
    one_rank_a_host,
    short_queue,
)
from kernels.backends.triton.gin.library import NcclError
from kernels.schedule import Refusal

CPU = torch.device("cpu")


def seat(*addresses: str, rank: int = 0) -> Seat:
    return Seat(rank=rank, world=len(addresses), session="s", shares_heap=False, addresses=addresses)


class Members:
    """Rank *rank* of ranks of which some report that something lacks."""

    def __init__(self, place: Seat, lacking: Sequence[int]) -> None:
        self.seat, self._lacking = place, lacking

    def barrier(self) -> None:
        raise AssertionError("nobody gets here")

    def exchange(self, values: Sequence[float]) -> list[list[float]]:
        return [list(values) if rank == self.seat.rank else [float(rank in self._lacking)] * len(values)
                for rank in range(self.seat.world)]  # fmt: skip


class Meeting:
    """Rank *rank* of ranks that are threads of this process and really wait for each other."""

    def __init__(self, place: Seat, meets: Barrier, board: list[list[float]], log: list[str]) -> None:
        self.seat, self._meets, self._board, self.log = place, meets, board, log

    def barrier(self) -> None:
        self.exchange([0.0])
        self.log.append("met")

    def exchange(self, values: Sequence[float]) -> list[list[float]]:
        self._board[self.seat.rank] = list(values)
        self._meets.wait(5)
        everything = list(self._board)
        self._meets.wait(5)
        return everything


def on_ranks(addresses: Sequence[str], run: Callable[[Meeting], Any]) -> list[Any]:
    """What *run* returns on each rank, or the sentence with which it refuses."""
    world = len(addresses)
    meets, board, log = Barrier(world), [[0.0]] * world, list[str]()

    def on_rank(rank: int) -> Any:
        try:
            return run(Meeting(seat(*addresses, rank=rank), meets, board, log))
        except Refusal as refused:
            return refused

    with ThreadPoolExecutor(world) as threads:
        return list(threads.map(on_rank, range(world), timeout=20))


class Library:
    """A library of NCCL that makes communicators without a GPU; *fails* names the calls that fail."""

    def __init__(self, fails: Sequence[str] = (), gin_type: int = 2) -> None:
        self.fails, self.gin_type, self.calls = fails, gin_type, list[str]()

    def call(self, name: str, *arguments: Any) -> None:
        self.calls.append(name)
        if name in self.fails:
            raise NcclError(f"{name} failed with 2: out of luck.")
        if name == "ncclCommInitRank":
            arguments[0]._obj.value = 1 << 20
        if name == "ncclCommQueryProperties":
            arguments[1]._obj.ginType = self.gin_type
        if name in ("ncclMemAlloc", "ncclCommWindowRegister"):
            arguments[0 if name == "ncclMemAlloc" else 3]._obj.value = 1 << 30

    def call_together(self, name: str, *arguments: Any) -> None:
        self.call(name, *arguments)
        self.calls[-1] += " together"

    def unique_id(self) -> bytes:
        self.call("ncclGetUniqueId")
        return bytes(range(128))

    def take_device(self) -> None:
        """It has no GPU."""

    def abandon(self, handle: Any) -> None:
        self.calls.append("ncclCommAbort")


@pytest.fixture
def libraries(monkeypatch: pytest.MonkeyPatch) -> list[Library]:
    """The libraries of two ranks, which gangs load."""
    made = [Library(), Library()]
    monkeypatch.setattr(gang, "wheel", SimpleNamespace(FOLDER=Path(), Wheel=lambda folder: SimpleNamespace(
        lacking=lambda: None, library=folder)))  # fmt: skip
    monkeypatch.setattr(gang, "Nccl", lambda number, device: made[int(str(number))])
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1 << 34, 1 << 37))
    return made


def opened(members: Meeting) -> NetworkGang:
    return NetworkGang(members, CPU, Path(str(members.seat.rank)))


def test_a_host_with_two_ranks_and_a_world_of_one_are_refused_with_both_numbers() -> None:
    assert one_rank_a_host(seat("10.0.0.1", "10.0.0.2"), 2) is None
    assert "4 ranks are on 2 here: 4 > 2" in (one_rank_a_host(seat("a", "a", "b", "b"), 2) or "")
    assert "world = 1: 1 < 2" in (one_rank_a_host(seat("a"), 1) or "")


@pytest.mark.parametrize(
    ("addresses", "names", "hosts"),
    [
        (("a", "b"), ({}, {}), 2),
        (("a", "a"), ({}, {}), 1),
        (("a", "a"), ({HOST_NAME: "first"}, {HOST_NAME: "second"}), 2),
        (("a", "b"), ({HOST_NAME: "same"}, {HOST_NAME: "same"}), 1),
        (("a", "a", "b"), ({HOST_NAME: "first"}, {}, {}), 3),
    ],
)
def test_hosts_are_counted_as_nccl_tells_them_apart(
    addresses: Sequence[str], names: Sequence[Mapping[str, str]], hosts: int
) -> None:
    counted = on_ranks(addresses, lambda members: count_hosts(members, names[members.seat.rank]))
    assert counted == [hosts] * len(addresses)


@pytest.mark.parametrize(
    ("size", "is_refused"), [("32", False), ("64", False), ("0", False), ("16", True), ("x", True)]
)
def test_queues_that_somebody_made_shorter_are_refused(size: str, is_refused: bool) -> None:
    """NCCL takes its default for 0; what is no number is not known to mean the default."""
    assert (short_queue({QUEUE_SIZE: size}) is not None) is is_refused
    assert short_queue({}) is None


def test_what_lacks_here_is_said_here(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=r"lacks 2 of 2 files"):
        NetworkGang(Members(seat("a", "b"), lacking=[0]), torch.device("cpu"), tmp_path)


def test_what_lacks_elsewhere_is_refused_here_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernels.backends.triton.gin.wheel.Wheel.lacking", lambda wheel: None)
    monkeypatch.setattr(gang, "Nccl", lambda path, device: Library())
    with pytest.raises(Refusal, match=r"lacks something on 1 of 2 hosts, first on that of rank 1"):
        NetworkGang(Members(seat("a", "b"), lacking=[1]), torch.device("cpu"), tmp_path)


# What fails on one rank alone is refused on all of them, which never wait for it.


def test_a_name_that_rank_0_cannot_draw_ends_all_ranks_in_words(libraries: list[Library]) -> None:
    libraries[0].fails = ["ncclGetUniqueId"]
    first, second = map(str, on_ranks("ab", opened))
    assert "does not start on rank 0 of 2. NcclError: ncclGetUniqueId failed with 2: out of luck. Accepted" in first
    assert "lacks something on 1 of 2 hosts, first on that of rank 0" in second
    assert not any("ncclCommInitRank together" in each.calls for each in libraries)


def test_a_library_that_one_rank_cannot_load_ends_all_ranks_in_words(
    libraries: list[Library], monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(number: Path, device: torch.device) -> Library:
        if int(str(number)) == 1:
            raise Refusal("another version: 22803 != 23203")
        return libraries[0]

    monkeypatch.setattr(gang, "Nccl", load)
    first, second = map(str, on_ranks("ab", opened))
    assert "lacks something on 1 of 2 hosts, first on that of rank 1" in first
    assert second == "another version: 22803 != 23203"


@pytest.mark.parametrize("alone", [False, True])
def test_hosts_without_gin_end_their_communicator_before_they_refuse(libraries: list[Library], alone: bool) -> None:
    if alone:
        libraries[1].fails = ["ncclCommQueryProperties"]
    else:
        libraries[0].gin_type = libraries[1].gin_type = 0
    answers = on_ranks("ab", opened)
    assert all(isinstance(answer, WithoutGin) for answer in answers), answers
    assert [each.calls[-1] for each in libraries] == ["ncclCommAbort"] * 2
    assert "GIN type 0 instead of 2" in str(answers[0]) or alone
    assert not any("sequential" in str(answer) for answer in answers), "that needs the communicator, too"


def test_a_gang_without_gin_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def make(*place: Any) -> None:
        made.append(place)
        raise WithoutGin("these hosts have no GIN")

    monkeypatch.setattr(backend, "NetworkGang", make)
    rank: Any = SimpleNamespace(_without_gin=None, _network=None, _group=object(), _device=CPU)
    for _ in range(3):
        with pytest.raises(Refusal, match="these hosts have no GIN"):
            backend.TritonBackend._network_gang(rank)
    assert len(made) == 1


def test_what_can_be_mended_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wheel may be fetched while the ranks live."""
    answers: list[Any] = [Refusal("lacks 2 of 2 files"), object()]

    def make(*place: Any) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Refusal):
            raise answer
        return answer

    monkeypatch.setattr(backend, "NetworkGang", make)
    rank: Any = SimpleNamespace(_without_gin=None, _network=None, _group=object(), _device=CPU)
    with pytest.raises(Refusal):
        backend.TritonBackend._network_gang(rank)
    assert backend.TritonBackend._network_gang(rank) is rank._network
    assert rank._network is not None


# Windows.


def grown(libraries: list[Library], monkeypatch: pytest.MonkeyPatch, fails: int | None) -> list[tuple[Any, list[str]]]:
    """The answer of both ranks to a larger window, where the memory of rank *fails* is full, and their calls."""
    monkeypatch.setattr(torch, "as_tensor", lambda memory, device: torch.ones(4))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)

    def run(members: Meeting) -> Any:
        made, library = opened(members), libraries[members.seat.rank]
        made.heap(1 << 28)
        library.calls.clear()
        library.fails = ["ncclMemAlloc"] if members.seat.rank == fails else []
        try:
            answer: Any = made.heap(3 << 28).capacity
        except Refusal as refused:
            answer = str(refused)
            assert made._heap is None, "the window that was closed is not used again"
        return answer, library.calls

    return on_ranks("ab", run)


def test_a_window_grows_on_all_ranks(libraries: list[Library], monkeypatch: pytest.MonkeyPatch) -> None:
    for capacity, calls in grown(libraries, monkeypatch, None):
        assert capacity == 1 << 30
        assert calls == ["ncclCommWindowDeregister together", "ncclMemFree", "ncclMemAlloc",
                         "ncclCommWindowRegister together"]  # fmt: skip


def test_a_rank_without_room_keeps_all_ranks_from_registering(
    libraries: list[Library], monkeypatch: pytest.MonkeyPatch
) -> None:
    (first, its), (second, others) = grown(libraries, monkeypatch, 1)
    assert "lacks something on 1 of 2 hosts, first on that of rank 1" in first
    assert "a window of 1.07 GB on every GPU, and that of rank 1, with 17.2 GB free, gives 0 bytes" in second
    assert its[-2:] == ["ncclMemAlloc", "ncclMemFree"]
    assert others[-1] == "ncclMemAlloc"


def test_less_room_than_the_window_needs_is_refused_alike_before_anything_is_taken(
    libraries: list[Library], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1 << 20, 1 << 37))
    answers = set(map(str, on_ranks("ab", lambda members: opened(members).heap(1 << 28))))
    (sentence,) = answers
    assert "a window of 268 MB on every GPU, and the fullest one has 1.05 MB free. Accepted: a smaller" in sentence
    assert not any("ncclMemAlloc" in each.calls for each in libraries)


def test_links_are_freed_with_a_deadline(libraries: list[Library]) -> None:
    made = on_ranks("ab", opened)[0]
    link = object.__new__(context.NetworkLink)
    link._communicator, link._structure = made.communicator, context.DevComm()
    link.close()
    assert libraries[0].calls[-1] == "ncclDevCommDestroy together"


# The end of a gang.


def test_at_the_end_no_rank_leaves_before_all_have_come(libraries: list[Library]) -> None:
    def run(members: Meeting) -> list[str]:
        made, library = opened(members), libraries[members.seat.rank]
        library.abandon = lambda handle: pytest.fail("all have come")  # type: ignore[method-assign]
        made.close()
        assert library.calls[-1] == "ncclCommDestroy"
        return members.log

    log, _ = on_ranks("ab", run)
    assert log == ["met", "met"]


def test_a_communicator_that_does_not_end_is_said_and_its_process_is_not_used_again(
    libraries: list[Library], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gang, "CLOSING_SECONDS", 0.05)
    first, _ = on_ranks("ab", opened)
    monkeypatch.setattr(first.communicator, "abort", lambda: False)
    with pytest.raises(RuntimeError, match=r"had 0\.05 s to do so together, and its abort 20 s\.") as said:
        first.close()
    event = RankServer({}, lambda event: None)._broken(said.value)
    assert (event["sticky"], event["witness"]) == (True, False)


def test_a_peer_that_has_gone_holds_nobody_up(libraries: list[Library], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gang, "CLOSING_SECONDS", 0.05)
    first, _ = on_ranks("ab", opened)
    first.close()
    assert libraries[0].calls[-1] == "ncclCommAbort"
    assert "met" not in first._members.log


def test_after_a_failure_nobody_is_waited_for(libraries: list[Library], monkeypatch: pytest.MonkeyPatch) -> None:
    first, _ = on_ranks("ab", opened)
    monkeypatch.setattr(first._members, "barrier", lambda: pytest.fail("it has failed"))
    assert first.abort()
    monkeypatch.setattr(first, "_end_together", lambda: pytest.fail("it has failed"))
    monkeypatch.setattr(gang, "Thread", lambda **words: pytest.fail("it has failed"))
    first.close()
    assert libraries[0].calls.count("ncclCommAbort") == 1
