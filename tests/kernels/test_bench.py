"""A bench stays open from list to list, and trials of one sitting take turns forwards and backwards."""

import time
import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch.distributed

from kernels.backends.base import Compiling, MissingSpans, Seat
from kernels.backends.cpu.backend import CpuBackend, CpuTrial
from kernels.backends.cpu.gloo import Library
from kernels.backends.cpu.program import PlanProgram
from kernels.bench import Bench, DeviceReadings, interleaved, warm_up
from kernels.operators import problem
from kernels.outcome import Span
from kernels.reference import factor
from kernels.schedule import Refusal, tile
from kernels.trial import Protocol, Trial

# A bench stays open from list to list, and takes over how long each of them may wait.


def seat(rank: int = 0, world: int = 1, **more: Any) -> Seat:
    return Seat(rank=rank, world=world, session="s-1", shares_heap=True, deadline_s=20.0, **more)


@pytest.fixture
def libraries() -> Iterator[list[Library]]:
    """Of two ranks, both in this process."""
    make: Any = torch.distributed
    store = make.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    port = store.port
    with ThreadPoolExecutor(2) as pool:
        yield list(pool.map(lambda rank: Library(seat(rank, 2, rendezvous=("127.0.0.1", port))), range(2)))
    del store


def test_an_open_backend_waits_as_long_as_the_list_at_hand_may(make_trial: Any) -> None:
    events: list[dict[str, Any]] = []
    bench = Bench(seat(), events.append)
    trials = [make_trial(problem("gemm_all_to_all", {"m": 64, "n": 32, "k": 16}, world=1), "sequential")]
    bench.run(trials)
    (backend,) = bench._backends.values()
    assert isinstance(backend, CpuBackend)
    heap = backend._heap
    bench.wait_at_most(1.5)
    bench.run(trials)
    assert backend._heap is heap
    assert heap is not None
    assert (backend.seat.deadline_s, heap.seat.deadline_s) == (1.5, 1.5)
    assert [event["kind"] for event in events].count("result") == 2
    bench.close()


def test_a_process_group_that_is_open_waits_no_longer_than_it_may_now(libraries: list[Library]) -> None:
    for library in libraries:
        library.wait_at_most(0.3)
    begin = time.monotonic()
    with pytest.raises(RuntimeError, match=r"[Tt]imed out"):
        libraries[0].barrier()
    assert time.monotonic() - begin < 15.0, "of the 20 s that it waited before; the peer never comes"


@pytest.mark.parametrize(("repeats", "read_after"), [(15, [0, 3, 6, 9, 12]), (7, [0, 2, 3, 5, 6]), (2, [0, 1])])
def test_the_device_is_asked_between_samples_some_times_in_a_sitting(
    make_trial: Any, monkeypatch: pytest.MonkeyPatch, repeats: int, read_after: list[int]
) -> None:
    events: list[dict[str, Any]] = []
    seen: list[int] = []

    def condition(self: CpuBackend) -> dict[str, Any]:
        seen.append(sum(event["kind"] == "sample" for event in events))
        return {"sm_clock_mhz": 1000 + len(seen)}

    monkeypatch.setattr(CpuBackend, "condition", condition)
    asked = Protocol(name="blocks", warmups=0, repeats=repeats)
    one = make_trial(problem("gemm_all_to_all", {"m": 64, "n": 32, "k": 16}, world=1), "sequential", protocol=asked)
    bench = Bench(seat(), events.append)
    bench.run([one, one.of_part("compute")])
    bench.close()
    assert seen == [2 * index + 1 for index in read_after]
    for event in events:
        if event["kind"] == "result":
            said = [{**each, "at": None} for each in event["facts"]["conditions"]]
            assert said == [
                {"sm_clock_mhz": 1001 + number, "samples": [index, index], "at": None}
                for number, index in enumerate(read_after)
            ]


def test_what_a_device_says_again_is_one_reading_with_the_samples_that_it_holds_for() -> None:
    readings = DeviceReadings(15)
    said = iter([{"power_watts": 120.0, "throttled": []}] * 2 + [{"power_watts": 140.0, "throttled": []}] * 3)
    for index in range(15):
        readings.after(index, lambda: next(said))
    assert [(each["power_watts"], each["samples"]) for each in readings.kept] == [(120.0, [0, 3]), (140.0, [6, 12])]
    assert next(said, None) is None


GEMM = {"m": 64, "n": 32, "k": 16}
LOOKUPS = {"tables_per_rank": 2, "rows": 100, "dim": 16, "batch": 32, "pooling": 4}


@pytest.mark.parametrize("operator", ["gemm_all_to_all", "all_gather_gemm", "gemm_reduce_scatter", "gemm_all_reduce",
                                      "embedding_all_to_all"])  # fmt: skip
def test_a_call_that_leaves_the_result_of_the_call_before_is_wrong(
    make_trial: Any, monkeypatch: pytest.MonkeyPatch, operator: str
) -> None:
    run, calls = CpuTrial.run, list[int]()

    def lazy(self: CpuTrial) -> float:
        """The first call writes; the second one finds its result there already."""
        calls.append(len(calls))
        return run(self) if len(calls) == 1 else 1e-3

    monkeypatch.setattr(CpuTrial, "run", lazy)
    events: list[dict[str, Any]] = []
    bench = Bench(seat(), events.append)
    of = problem(operator, LOOKUPS if operator == "embedding_all_to_all" else GEMM, world=1)
    bench.run([make_trial(of, "sequential")])
    bench.close()
    [failure] = [event for event in events if event["kind"] in ("failure", "result")]
    assert failure["stage"] == "wrong"
    assert "It is that of an earlier call, on other operands" in failure["message"]


@pytest.mark.parametrize("operator", ["gemm_all_to_all", "all_gather_gemm", "embedding_all_to_all"])
def test_a_result_of_another_micro_batch_is_wrong(
    make_trial: Any, monkeypatch: pytest.MonkeyPatch, operator: str
) -> None:
    of = problem(operator, LOOKUPS if operator == "embedding_all_to_all" else GEMM, world=1)
    trial = make_trial(of, "concurrent", micro_batches=3)
    bench, events = Bench(seat(), lambda event: events.append(event)), list[dict[str, Any]]()
    bench.run([trial])
    monkeypatch.setattr(CpuTrial, "result", lambda self: self.program.memories[1].result())
    bench.run([trial])
    bench.close()
    right, wrong = (event for event in events if event["kind"] in ("failure", "result"))
    assert right["correct"] is True
    assert wrong["stage"] == "wrong"


def test_every_micro_batch_has_a_factor_of_its_own_that_no_dtype_rounds() -> None:
    factors = [factor(values) for values in range(32)]
    assert len(set(factors)) == 16, "the sign tells the two values of one apart, and the first 8 from the next 8"
    assert all(factors[values] == -factors[values ^ 1] for values in range(32))
    assert {abs(each) for each in factors} == {2.0**power for power in range(-4, 4)}
    assert len({(factors[2 * number], factors[2 * number + 1]) for number in range(16)}) == 16


def test_operands_are_drawn_anew_with_each_problem_and_their_seed_is_kept(make_trial: Any) -> None:
    events: list[dict[str, Any]] = []
    bench = Bench(seat(), events.append)
    one, other = (make_trial(problem("gemm_all_to_all", {**GEMM, "n": n}, world=1), "sequential") for n in (32, 64))
    for trials in ([one, one.of_part("compute")], [one], [other], [one]):
        bench.run(trials)
    bench.close()
    results = [event for event in events if event["kind"] == "result"]
    seeds = [event["facts"]["timed"]["seed"] for event in results]
    assert len(set(seeds[:3])) == 1, "the reference of a problem that stays is kept"
    assert len({seeds[0], seeds[3], seeds[4]}) == 3
    assert [event["correct"] for event in results] == [True, None, True, True, True]


def test_a_call_that_cannot_be_seen_takes_nothing_from_what_was_timed(
    make_trial: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spans(self: CpuTrial, iteration: int) -> list[Span]:
        raise MissingSpans("Nobody saw it.")

    monkeypatch.setattr(CpuTrial, "spans", spans)
    events: list[dict[str, Any]] = []
    bench = Bench(seat(), events.append)
    bench.run([make_trial(problem("gemm_all_to_all", {"m": 64, "n": 32, "k": 16}, world=1), "sequential")])
    bench.close()
    [result] = [event for event in events if event["kind"] == "result"]
    assert (result["correct"], result["spans"], result["facts"]["unseen"]) == (True, [], "Nobody saw it.")


def test_a_rank_that_knows_no_more_of_its_peers_tells_all_it_has_timed_and_then_ends(
    make_trial: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def spans(self: CpuTrial, iteration: int) -> list[Span]:
        asked.append(iteration)
        gone = MissingSpans("Rank 1 is gone.")
        gone.alone = True
        raise gone

    monkeypatch.setattr(CpuTrial, "spans", spans)
    events: list[dict[str, Any]] = []
    bench = Bench(seat(), events.append)
    one = make_trial(problem("gemm_all_to_all", {"m": 64, "n": 32, "k": 16}, world=1), "sequential")
    with pytest.raises(ConnectionError, match="Rank 1 is gone"):
        bench.run([one, one.of_part("compute")])
    bench.close()
    results = [event for event in events if event["kind"] == "result"]
    assert [event["facts"]["unseen"] for event in results] == ["Rank 1 is gone."] * 2
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("alone", "together", "measured"),
    [({32}, 9, {16, 64}), ({16, 32, 64}, 9, set()), (set(), 2, set())],
    ids=["one does not fit", "none fits", "all fit, but not together"],
)
def test_a_schedule_that_there_is_no_room_for_takes_no_other_with_it(
    make_trial: Any, monkeypatch: pytest.MonkeyPatch, alone: set[int], together: int, measured: set[int]
) -> None:
    events: list[dict[str, Any]] = []
    prepare = CpuBackend.prepare

    def tight(self: CpuBackend, trials: Sequence[Trial], compiling: Compiling) -> Sequence[CpuTrial]:
        if len(trials) > together or any(tile(trial.schedule["tile"]).m in alone for trial in trials):
            raise Refusal("no room")
        return prepare(self, trials, compiling)

    monkeypatch.setattr(CpuBackend, "prepare", tight)
    of = problem("gemm_all_to_all", {"m": 128, "n": 32, "k": 16}, world=1)
    asked = {rows: make_trial(of, "sequential", tile=f"{rows}x32x16") for rows in (16, 32, 64)}
    bench = Bench(seat(), events.append)
    bench.run(list(asked.values()))
    bench.close()
    by_kind = {kind: [event["trial"] for event in events if event["kind"] == kind] for kind in ("result", "failure")}
    assert sorted(by_kind["result"]) == sorted(asked[rows].key for rows in measured)
    assert sorted(by_kind["failure"]) == sorted(asked[rows].key for rows in asked if rows not in measured)


def test_devices_that_say_nothing_leave_no_trace(make_trial: Any) -> None:
    events: list[dict[str, Any]] = []
    bench = Bench(seat(), events.append)
    bench.run([make_trial(problem("gemm_all_to_all", {"m": 64, "n": 32, "k": 16}, world=1), "sequential")])
    bench.close()
    [result] = [event for event in events if event["kind"] == "result"]
    assert list(result["facts"]) == ["iteration", "timed"]


def test_what_was_begun_before_a_refusal_is_gone_when_the_rest_is_prepared(
    make_trial: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Buffer:
        """Stands for memory of a GPU."""

    begun: list[weakref.ref[Buffer]] = []
    left: list[int] = []
    prepare = CpuBackend.prepare

    def tight(self: CpuBackend, trials: Sequence[Trial], compiling: Compiling) -> Sequence[CpuTrial]:
        left.append(sum(each() is not None for each in begun))
        buffer = Buffer()
        begun.append(weakref.ref(buffer))
        if any(tile(trial.schedule["tile"]).m == 32 for trial in trials):
            raise Refusal("no room")
        return prepare(self, trials, compiling)

    monkeypatch.setattr(CpuBackend, "prepare", tight)
    of = problem("gemm_all_to_all", {"m": 128, "n": 32, "k": 16}, world=1)
    bench = Bench(seat(), lambda event: None)
    bench.run([make_trial(of, "sequential", tile=f"{rows}x32x16") for rows in (16, 32)])
    bench.close()
    assert left == [0, 0, 0, 0]


def test_each_trial_is_reported_before_it_is_compiled(make_trial: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank says nothing while it compiles: the report before says how far it is."""
    heard: list[Any] = []
    build = PlanProgram.__init__

    def building(self: PlanProgram, *arguments: Any) -> None:
        heard.append("built")
        build(self, *arguments)

    monkeypatch.setattr(PlanProgram, "__init__", building)
    of = problem("gemm_all_to_all", {"m": 128, "n": 32, "k": 16}, world=1)
    trials = [make_trial(of, "sequential", tile=f"{rows}x32x16") for rows in (16, 32, 64)]
    bench = Bench(seat(), heard.append)
    bench.run(trials)
    bench.close()
    before = heard[:7]
    kinds = [one if one == "built" else (one["stage"], one.get("number"), one.get("of")) for one in before]
    assert kinds == [
        ("open", None, None), ("compile", 1, 3), "built", ("compile", 2, 3), "built", ("compile", 3, 3), "built",
    ]  # fmt: skip
    reported = [one["trial"] for one in before if one != "built" and one["stage"] == "compile"]
    assert reported == [trial.key for trial in trials]


# Trials of one sitting take turns forwards and backwards, and warm-ups are not counted.


class Fake:
    roundings = seed = 0

    def __init__(self, name: str, log: list[str]) -> None:
        self.name, self.log = name, log

    def run(self) -> float:
        self.log.append(self.name)
        return 1.0

    def forget(self) -> None:
        self.log.append(f"forget {self.name}")

    def facts(self) -> dict[str, Any]:
        return {}

    def rehearse(self) -> Iterator[int]:
        return iter(())

    def result(self) -> None: ...

    def spans(self, iteration: int) -> Sequence[Span]:
        return ()


def test_turns_go_forwards_and_backwards_after_the_warm_ups() -> None:
    log: list[str] = []
    seen: list[tuple[int, int]] = []
    trials = [Fake(name, log) for name in "ABC"]
    warm_up(trials, 2, lambda number: log.append(f"say {number}"))
    interleaved(trials, 2, lambda number, index, seconds: seen.append((number, index)))
    warmed = ["say 0", "A", "say 1", "B", "say 2", "C"]
    assert log == [*warmed, *warmed, "forget A", "forget B", "forget C", *"ABC", *"CBA"]
    assert seen == [(0, 0), (1, 0), (2, 0), (2, 1), (1, 1), (0, 1)]
