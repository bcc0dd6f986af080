"""The script of the clock's probes, on a device, a clock and an NVML that a test has; no GPU is needed."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
import triton
from triton.backends.compiler import GPUTarget

from kernels import events
from tests.gpu import steady
from tests.gpu.steady import Clock, Probe, all_probed, lines, probed, settled_s, trials
from workbench.machines import machine
from workbench.results.recordings import parsed

CALL_S = 0.003
MACHINE = "h100_nvl2"


@dataclass
class Device:
    """A GPU with a power cap: its clock falls by 100 MHz for each second of work, to 1,500 MHz."""

    now: float = 1000.0
    worked_s: float = 0.0
    readings: list[dict[str, Any]] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self._read()

    def work(self) -> None:
        self.now += CALL_S
        self.worked_s += CALL_S
        self._read()

    def _read(self) -> None:
        clock = max(1500.0, 1980.0 - 100.0 * self.worked_s)
        self.readings.append({
            "gpu": "GPU-1", "gpu_name": "a card", "sm_clock_mhz": clock, "power_now_watts": 690.0, "at": self.now,
            "temperature_celsius": 60, "memory_clock_mhz": 3201, "throttled": ["power cap"] if clock <= 1500.0 else [],
        })  # fmt: skip

    def between(self, start: float, stop: float) -> list[dict[str, Any]]:
        return [each for each in self.readings if start <= each["at"] <= stop]

    @property
    def clock(self) -> Clock:
        return Clock(lambda: self.now, self.sleep)


def test_a_probe_works_for_its_seconds_and_has_the_state_of_its_last_ones() -> None:
    gpu = Device()
    row = probed(Probe("gemm", gpu.work, calls=2, amount=6e9, seconds=8.0), gpu, gpu.clock)
    assert row["runs"] == pytest.approx(8.0 / CALL_S, abs=10)
    assert row["seconds_per_call"] == pytest.approx(CALL_S / 2)
    assert row["per_second"] == pytest.approx(6e9 / (CALL_S / 2))
    assert (row["sm_clock_mhz"], row["power_now_watts"], row["regime"]) == (1500.0, 690.0, "steady")
    assert row["settled_s"] == pytest.approx(4.8 + 2.0, abs=0.7), "480 MHz fall in 4.8 s, and two windows are flat then"
    assert not {"gpu", "gpu_name"} & set(row["readings"][0]), "it names no single card"
    json.dumps(row)


def test_an_idle_card_and_a_duty_cycle_rest() -> None:
    gpu = Device()
    idle = probed(Probe("idle", None), gpu, gpu.clock)
    assert (idle["runs"], idle["seconds_per_call"], idle["duty"], idle["regime"]) == (0, None, 0.0, "burst")
    half = probed(Probe("half", gpu.work, duty=0.5), gpu, gpu.clock)
    assert half["runs"] * CALL_S / steady.LOAD_S == pytest.approx(0.5, abs=0.06)
    assert half["seconds_per_call"] == pytest.approx(CALL_S)


def test_without_nvml_a_probe_has_its_rate_and_says_what_is_missing() -> None:
    gpu = Device()
    unread = Device()
    row = probed(Probe("gemm", gpu.work, seconds=1.0), unread, gpu.clock)
    assert row["seconds_per_call"] == pytest.approx(CALL_S)
    assert (row["sm_clock_mhz"], row["settled_s"], row["regime"]) == (None, None, "unknown")
    assert row["why"].startswith("No clock was read")


def test_a_clock_that_still_falls_has_not_settled() -> None:
    falling = [{"sm_clock_mhz": 1980.0 - 40 * second, "at": 100 + 0.1 * at} for at in range(60)
               for second in [at / 10]]  # fmt: skip
    assert settled_s(falling, 100.0) is None
    assert settled_s([], 100.0) is None


def test_a_probe_that_fails_leaves_the_others_and_what_has_no_time_is_named() -> None:
    gpu = Device()

    def broken(name: str) -> Probe:
        raise RuntimeError(f"no memory for {name}")

    makes = [partial(broken, "first"), partial(Probe, "second", gpu.work), partial(Probe, "third", gpu.work)]
    first, second, left = all_probed(makes, gpu, gpu.clock, until=gpu.now + 1.0)
    assert first == {"probe": "first", "error": "RuntimeError: no memory for first"}
    assert second["probe"] == "second"
    assert (left["probe"], left["count"]) == ("left out", 1)


def test_the_probes_fit_their_half_of_the_budget() -> None:
    makes = steady.probes(machine(MACHINE))
    seconds = sum(make.keywords.get("seconds", steady.LOAD_S) + steady.REST_S for make in makes)  # type: ignore[attr-defined]
    assert seconds < steady.BUDGET_S / 2
    names = [make.args[0] for make in makes]  # type: ignore[attr-defined]
    assert len(set(names)) == len(names)


class FakeBench:
    """A bench whose every trial takes 10 us, but for one that fails."""

    def __init__(self, gpu: Device, sent: list[Any]) -> None:
        self.gpu, self.sent = gpu, sent

    def run(self, block: list[Any]) -> None:
        for trial in block:
            self.gpu.now += 10.0
            about: dict[str, Any] = {"trial": trial.key, "rank": 0}
            if dict(trial.problem.shape)["m"] == 128 and trial.schedule.scheme == "fused":
                self.sent.append(events.FailureEvent(kind="failure", stage="launch", message="no", **about))
                continue
            for index in range(trial.protocol.repeats):
                self.sent.append(events.SampleEvent(kind="sample", index=index, seconds=1e-5, at=self.gpu.now, **about))
            conditions = [{**each, "samples": [0, 3]} for each in (self.gpu.readings or [{}])[-1:]]
            facts = {"timed": {"seed": 1}, "conditions": conditions}
            self.sent.append(events.ResultEvent(
                kind="result", correct=True, spans=[], max_relative_error=0.0, facts=facts, **about))  # fmt: skip


def test_both_protocols_become_a_recording_that_can_be_read(capsys: pytest.CaptureFixture[str], tmp_path: Any) -> None:
    gpu, sent = Device(), list[Any]()
    gpu.worked_s = 10.0
    gpu.sleep(0.0)
    facts, some = {"machine": MACHINE}, steady.problems(["gemms"])
    written = list(lines(FakeBench(gpu, sent), sent, facts, gpu.clock, gpu.now + 1e4, some))
    entries = parsed("\n".join(written), tmp_path / "steady.jsonl")
    assert len(entries) == 2 * 2 * len(steady.SHAPES) - 2, "two failures are shown, and are no lines"
    assert {each.measurement.trial.protocol.name for each in entries} == {"default", "steady"}
    assert len({each.measurement.block for each in entries}) == 2 * len(steady.SHAPES), "a block has one protocol"
    assert {json.loads(line)["regime"] for line in written} == {"steady"}
    capsys.readouterr()
    assert list(lines(FakeBench(gpu, sent), sent, facts, gpu.clock, gpu.now - 1, some)) == []
    assert capsys.readouterr().out.count("left out") == 2 * len(steady.SHAPES)


def test_a_block_has_both_schedules_and_one_protocol() -> None:
    from tests.gpu.against_cublas import gemm

    block = trials(gemm(4096, 4096, 4096), name="steady", on=machine(MACHINE))
    assert [each.schedule.scheme for each in block] == ["sequential", "fused"]
    assert all(each.protocol.is_steady for each in block)
    waiting = [trials(of, name="steady", on=machine(MACHINE)) for of in steady.problems(["others"])]
    assert [block[1].problem.operator for block in waiting] == ["gemv_all_reduce", "embedding_all_to_all"]


@pytest.mark.parametrize("sleeps", [False, True])
def test_the_kernel_that_spins_compiles_for_an_h200(sleeps: bool) -> None:
    types = {"signal": "*i32", "until_ns": "i32", "SLEEP": "constexpr"}
    source = triton.compiler.ASTSource(steady.spin, types, constexprs={"SLEEP": sleeps})
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4})
    polls = made.asm["ptx"]
    assert ("nanosleep" in polls) is sleeps
    assert "ld.volatile" in polls
    assert "globaltimer" in polls
