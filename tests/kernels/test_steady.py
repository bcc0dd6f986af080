"""Turns under steady load, on a device and a clock that a test has: nothing here needs a GPU."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest

from kernels import bench, steady
from kernels.backends.base import Ahead, Seat
from kernels.backends.cpu.backend import CpuBackend
from kernels.operators import problem
from kernels.outcome import Gather, Measurement
from kernels.regime import regime, settled
from kernels.steady import FLAT_SECONDS, LOAD_SECONDS_MOST, LOOK_SECONDS, TURNS, Sampler, Turns, grouped, is_flat
from kernels.trial import PROTOCOLS, Protocol

STEADY = PROTOCOLS["steady"]
RUN_SECONDS = 0.01


@dataclass
class Device:
    """A GPU whose clock falls from its highest to its lowest while it is loaded, and its moments in seconds."""

    falls_for_s: float
    """Seconds of load after which the clock is at its lowest; a rest of a second lets it rise again."""
    now: float = 1000.0
    loaded_s: float = 0.0
    ran: list[str] = field(default_factory=list)
    readings: list[dict[str, Any]] = field(default_factory=list)

    def run(self, name: str) -> float:
        if self.ran and self.ran[-1] != name:
            self.loaded_s = 0.0  # each schedule has its own clock
        self.ran.append(name)
        self.now += RUN_SECONDS
        self.loaded_s += RUN_SECONDS
        clock = max(1500.0, 1980.0 - 480.0 * self.loaded_s / self.falls_for_s) if self.falls_for_s else 1980.0
        self.readings.append({"sm_clock_mhz": clock, "throttled": ["power cap"], "at": self.now})
        return 1e-4 * 1980 / clock

    def between(self, start: float, stop: float) -> list[dict[str, Any]]:
        return [each for each in self.readings if start <= each["at"] <= stop]


@dataclass
class Prepared:
    """One trial that runs on a Device."""

    device: Device
    name: str
    forgotten: list[int] = field(default_factory=list)

    def run_ahead(self, count: int) -> Ahead:
        return Ahead([self.device.run(self.name) for _ in range(count)], 0.99)

    def forget(self) -> None:
        self.forgotten.append(len(self.device.ran))


def turns_of(device: Device, protocol: Protocol = STEADY, names: str = "AB") -> tuple[Turns, list[tuple[Any, ...]]]:
    """The Turns of some trials on *device*, run, and what was reported."""
    reported: list[tuple[Any, ...]] = []
    turns = Turns(protocol, device, lambda values: [list(values)], lambda: device.now)  # type: ignore[arg-type]
    prepared: Any = [Prepared(device, name) for name in names]
    turns.run(prepared, lambda number: reported.append(("load", names[number])),
              lambda number, index, seconds: reported.append(("sample", names[number], index, seconds)))  # fmt: skip
    return turns, reported


def test_each_trial_is_loaded_until_its_clock_is_flat_and_sampled_at_once() -> None:
    device = Device(falls_for_s=4.0)
    turns, reported = turns_of(device)
    samples = [each for each in reported if each[0] == "sample"]
    assert [name for _, name, *_ in samples] == ["A"] * 8 + ["B"] * 16 + ["A"] * 8, "in order, then in reverse order"
    for name in "AB":
        assert [index for _, which, index, _ in samples if which == name] == list(range(STEADY.repeats))
    assert {seconds for *_, seconds in samples} == {1e-4 * 1980 / 1500}, "all of them at the clock of the load"
    loads = [load for of_trial in turns.loads.values() for load in of_trial]
    assert len(loads) == 2 * TURNS
    assert all(load["flat"] for load in loads)
    assert 4.0 + FLAT_SECONDS < max(load["load_s"] for load in loads) < 4.0 + 4 * FLAT_SECONDS


def test_all_runs_of_the_last_look_become_samples() -> None:
    """Groups of neighbours: the first runs are in the first sample, the last ones in the last."""
    assert grouped([1.0, 1.0, 2.0, 2.0, 9.0, 9.0], 3) == [1.0, 2.0, 9.0]
    assert grouped([1.0, 3.0, 5.0, 7.0, 9.0], 2) == [2.0, 7.0]
    assert grouped([4.0, 6.0], 2) == [4.0, 6.0]


def test_a_clock_that_never_changes_is_loaded_for_the_seconds_of_the_protocol() -> None:
    turns, _ = turns_of(Device(falls_for_s=0.0))
    assert all(STEADY.load_seconds <= load["load_s"] < STEADY.load_seconds + 0.5
               for of_trial in turns.loads.values() for load in of_trial)  # fmt: skip


def test_a_clock_that_goes_on_falling_ends_the_load_and_is_not_flat() -> None:
    turns, _ = turns_of(Device(falls_for_s=20.0), names="A")
    first = turns.loads[0][0]
    assert first["flat"] is False
    assert LOAD_SECONDS_MOST <= first["load_s"] < LOAD_SECONDS_MOST + 0.5


def test_without_readings_the_load_is_as_long_as_the_protocol_says() -> None:
    device = Device(falls_for_s=4.0)
    turns = Turns(STEADY, Unread(), lambda values: [list(values)], lambda: device.now)  # type: ignore[arg-type]
    turns.run([Prepared(device, "A")], lambda number: None, lambda *sample: None)  # type: ignore[list-item]
    assert [load["flat"] for load in turns.loads[0]] == [None] * TURNS
    assert turns.conditions[0] == []


class Unread:
    """A Sampler where NVML is missing."""

    def between(self, start: float, stop: float) -> list[dict[str, Any]]:
        return []


def test_a_peer_whose_clock_still_falls_keeps_all_ranks_loading() -> None:
    device, looks = Device(falls_for_s=0.0), list[int]()

    def exchange(values: Sequence[float]) -> list[list[float]]:
        """The other rank's clock is flat from its 30th look on."""
        looks.append(len(looks))
        return [list(values), [*values[:3], float(len(looks) >= 30)]]

    turns = Turns(STEADY, device, exchange, lambda: device.now)  # type: ignore[arg-type]
    turns.run([Prepared(device, "A")], lambda number: None, lambda *sample: None)  # type: ignore[list-item]
    first = turns.loads[0][0]
    assert len(looks) > 30
    assert first["load_s"] > STEADY.load_seconds + 2
    assert first["flat"] is True


def test_readings_are_those_of_the_samples_and_of_the_last_windows_of_their_load() -> None:
    device = Device(falls_for_s=1.0)
    turns, _ = turns_of(device)
    for number in (0, 1):
        kept = turns.conditions[number]
        assert [each["turn"] for each in kept] == sorted(each["turn"] for each in kept)
        assert {tuple(each["samples"]) for each in kept} == {(0, 7), (8, 15)}
        last = [each["sm_clock_mhz"] for each in kept if each["turn"] == 1][-STEADY.repeats // TURNS :]
        assert set(last) == {1500.0}, "those of the samples"
        per_turn = (2 * FLAT_SECONDS + LOOK_SECONDS) / RUN_SECONDS
        assert len(kept) == pytest.approx(TURNS * per_turn, abs=4)


def test_the_load_reports_often_enough_not_to_be_taken_for_a_hang() -> None:
    _, reported = turns_of(Device(falls_for_s=4.0), names="A")
    assert sum(each[0] == "load" for each in reported) > 2 * STEADY.load_seconds


@pytest.mark.parametrize(
    ("clocks", "flat"),
    [([1500] * 10, True), ([1505] * 5 + [1500] * 5, True), ([1500] * 5 + [1515] * 5, True),
     ([1530] * 5 + [1500] * 5, False), ([1500] * 5, None), ([], None)],
)  # fmt: skip
def test_flat_is_two_windows_with_one_mean(clocks: list[int], flat: bool | None) -> None:
    now = 50.0
    moments = [now - 0.05 - FLAT_SECONDS / 5 * number for number in reversed(range(len(clocks)))]
    readings = [{"sm_clock_mhz": clock, "at": at} for clock, at in zip(clocks, moments, strict=True)]
    assert is_flat(readings, now) is flat


def test_the_thread_reads_until_the_end_and_ends() -> None:
    enough, values = threading.Event(), iter(range(1000))

    def read() -> dict[str, Any]:
        if (value := next(values)) >= 3:
            enough.set()
        return {} if value == 1 else {"sm_clock_mhz": value}  # nothing could be read once

    with Sampler(read, period_s=0.001) as sampler:
        assert enough.wait(10), "four readings did not come within 10 s"
    clocks = [each["sm_clock_mhz"] for each in sampler.between(0, float("inf"))]
    assert clocks[:3] == [0, 2, 3]
    assert not [each for each in threading.enumerate() if each.name == "readings of the device"]
    assert next(values) < 1000, "it reads no more"


@pytest.fixture
def quick_steady(monkeypatch: pytest.MonkeyPatch) -> Protocol:
    """A steady protocol of a tenth of a second that CPU ranks accept, with a GPU's readings: the bench's own path."""
    monkeypatch.setattr(CpuBackend, "refusal", lambda self, trial: None)
    monkeypatch.setattr(CpuBackend, "condition", lambda self: {
        "sm_clock_mhz": 1500, "power_now_watts": 690.0, "throttled": ["power cap"]})  # fmt: skip
    monkeypatch.setattr(bench, "Sampler", partial(Sampler, period_s=0.002))
    monkeypatch.setattr(steady, "FLAT_SECONDS", 0.04)
    return replace(STEADY, load_seconds=0.1, repeats=4)


def test_the_bench_loads_samples_and_tells_of_the_regime(make_trial: Any, quick_steady: Protocol) -> None:
    events: list[Any] = []
    of = problem("gemm_all_to_all", {"m": 64, "n": 32, "k": 16}, world=1)
    one = make_trial(of, "sequential", protocol=quick_steady)
    on_rank = bench.Bench(Seat(rank=0, world=1, session="s", shares_heap=True), events.append)
    on_rank.run([one, one.of_part("compute")])
    on_rank.close()
    for trial in (one, one.of_part("compute")):
        gather = Gather(trial)
        fed = [gather.feed(event) for event in events if event["trial"] == trial.key]
        (measured,) = [each for each in fed if isinstance(each, Measurement)]
        assert len(measured.samples[0]) == 4
        assert [set(load) for load in measured.facts["loads"]] == [{"load_s", "runs", "flat"}] * TURNS, (
            "a CPU rank has no queue"
        )
        assert all(load["load_s"] >= 0.1 for load in measured.facts["loads"])
        assert {reading["turn"] for reading in measured.conditions} == {0, 1}
        on_gpu = replace(measured, trial=replace(trial, backend="triton"))
        assert on_gpu.regime is not None
        assert on_gpu.regime.name == "steady"


def test_a_clock_that_was_not_read_during_the_load_is_no_flat_one() -> None:
    """A thread that ended early leaves good readings of the beginning, which say nothing of the samples."""
    reading = {"sm_clock_mhz": 1500, "power_now_watts": 690.0, "throttled": ["power cap"]}
    loads = {True: [{"flat": True}], None: [{"flat": True}, {"flat": None}]}
    regimes = {flat: regime([reading], 1, settled=settled({"loads": of_turns})) for flat, of_turns in loads.items()}
    assert [regimes[True].name, regimes[None].name] == ["steady", "unknown"]
    assert "was not flat" in regimes[None].why
