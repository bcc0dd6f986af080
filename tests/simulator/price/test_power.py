"""Steady load is priced from the energy of work and the power cap; what is not known is refused in one sentence."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest

from kernels.fabric import parse
from kernels.operators import problem
from kernels.schedule import Refusal
from kernels.schemes import schedule
from kernels.trial import PROTOCOLS, Trial
from workbench.analysis import power as fit
from workbench.machines import shipped_machine
from workbench.resources import data_directory
from workbench.simulator.predict import loaded_work, predict
from workbench.simulator.price import power
from workbench.simulator.price.power import PowerModel, load

H200 = "h200_nvl2"
CARD = PowerModel(
    name="card", title="a card", devices=("NVIDIA H200 SXM",), cap_watts=700.0, held_watts=600.0,
    highest_clock_hertz=2e9, idle_watts=100.0, waiting_watts=(100.0, 200.0), joules_per_flop={"bfloat16": 1e-12},
    joules_per_byte=1e-10, link_joules_per_byte=(0.0, 0.0), clock_exponent=0.5, energy_exponent=0.0,
)  # fmt: skip
GEMM = {"m": 8192, "n": 8192, "k": 8192}


def trial(protocol: str, shape: dict[str, int] = GEMM, *, world: int = 1, dtype: str = "bfloat16") -> Trial:
    of = problem("gemm_all_to_all", shape, world=world, dtype=dtype)
    on = shipped_machine(H200)
    one = schedule(of, "sequential", {}, on, parse("nvlink"))
    return Trial(problem=of, schedule=one, backend="triton", machine=H200, fabric=parse("nvlink"),
                 protocol=PROTOCOLS[protocol])  # fmt: skip


BUSY = power.Work(burst_s=0.8, compute_s=0.8, flop_joules=500.0, memory_bytes=0.0)
"""500 J at 600 W, of which 100 W are drawn anyhow: a second."""
IDLE, SPINS = power.Draw(100.0, 0.0), power.Draw(200.0, 0.0)


def test_the_cap_pays_for_so_many_joules_a_second() -> None:
    assert CARD.seconds(BUSY) == pytest.approx(1.0)
    assert CARD.clock(BUSY) == pytest.approx(0.64), "time follows its root"
    assert CARD.seconds(replace(BUSY, memory_bytes=5e11)) == pytest.approx(1.1), "50 J of bytes"
    assert CARD.seconds(BUSY.at(0.5)) == 0.8, "a burst, where the cap is not reached"
    assert CARD.clock(BUSY.at(0.5)) == 1.0


def test_a_rest_comes_back_as_time_and_what_waits_costs_some() -> None:
    rested = replace(BUSY, burst_s=0.9)
    assert CARD.seconds(rested, IDLE) == pytest.approx(1.0), "a rest saves 500 W a second, as much as it takes"
    assert CARD.seconds(rested, SPINS) == pytest.approx(1.02)
    assert CARD.seconds(replace(rested, link_bytes=1e10), power.Draw(100.0, 1e-9)) == pytest.approx(1.02)
    assert CARD.seconds(replace(BUSY, burst_s=1.8), IDLE) == 1.8, "never faster than a burst"


def test_hidden_communication_does_not_follow_the_clock() -> None:
    bound = replace(BUSY, burst_s=1.0, hidden_s=1.0)
    assert CARD.seconds(bound, IDLE) == pytest.approx(1.0), "the computation has a second, and needs it"
    assert CARD.seconds(replace(bound, burst_s=1.05, hidden_s=0.9), IDLE) == pytest.approx(1.05)
    longer = replace(BUSY, hidden_s=0.5)
    assert CARD.seconds(longer, IDLE) == CARD.seconds(BUSY, IDLE), "as long as it stays hidden"


def test_energy_that_rises_with_the_clock_gives_less_back() -> None:
    dear = replace(CARD, energy_exponent=1.0)
    assert CARD.seconds(BUSY.at(1.2)) == pytest.approx(1.2)
    assert 0.8 < dear.seconds(BUSY.at(1.2)) < 1.2, "its FLOP are cheaper at a lower clock"
    one, more = (dear.seconds(replace(BUSY, burst_s=0.8 + rest_s), IDLE) - rest_s for rest_s in (0.0, 0.1))
    assert one - more < 0.1, "less comes back than was rested"


def test_what_is_known_as_a_range_has_a_middle_and_corners() -> None:
    assert CARD.draws()[0] == power.Draw(150.0, 0.0)
    assert len(CARD.draws()) == 1 + 4


def test_both_regimes_come_from_one_description(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(power, "of_device", lambda name: CARD)
    on = shipped_machine(H200)
    burst, steady = predict(trial("default"), on), predict(trial("steady"), on)
    kept_bytes = 3 * 8192**2 * 2 * 1e-10
    assert steady.time_s == pytest.approx((2.0 * 8192**3 * 1e-12 + kept_bytes) / 500.0, rel=1e-2)
    assert steady.time_s > burst.time_s
    assert steady.low_s <= steady.time_s <= steady.high_s
    assert steady.spans == ()
    assert burst.spans, "those are of a burst"
    monkeypatch.setattr(power, "of_device", lambda name: replace(CARD, held_watts=650.0))
    assert predict(trial("default"), on).time_s == burst.time_s, "bursts are as before"
    assert predict(trial("steady"), on).time_s == pytest.approx(steady.time_s * 500.0 / 550.0, rel=1e-2)


def test_parts_and_ranks_have_the_work_that_is_theirs() -> None:
    whole = trial("steady", world=2)
    on, model = shipped_machine(H200), power.of_device(shipped_machine(H200).device.name)
    assert model is not None
    done = loaded_work(whole, on, 2e-3, model)
    assert done.link_bytes == 8192 * 8192 * 2 / 2
    assert done.hidden_s == 0.0, "sequential communicates afterwards"
    computed = loaded_work(whole.of_part("compute"), on, 1.5e-3, model)
    assert (computed.compute_s, computed.link_bytes, computed.burst_s) == (1.5e-3, 0.0, 1.5e-3)
    assert computed.memory_bytes == done.memory_bytes - 2 * done.link_bytes
    sent = loaded_work(whole.of_part("communication"), on, 1e-3, model)
    assert (sent.compute_s, sent.flop_joules, sent.memory_bytes) == (0.0, 0.0, 2 * sent.link_bytes)
    estimates = [predict(replace(whole, protocol=PROTOCOLS[name]), on).time_s for name in ("default", "steady")]
    assert estimates[0] < estimates[1] < 1.3 * estimates[0]


def test_work_that_waits_for_memory_takes_as_long_as_in_a_burst() -> None:
    of = problem("gemv_all_reduce", {"n": 8192, "k": 8192, "tokens": 4}, world=2, dtype="bfloat16")
    on = shipped_machine(H200)
    one = schedule(of, "sequential", {}, on, parse("nvlink"))
    estimates = [
        predict(Trial(problem=of, schedule=one, backend="triton", machine=H200, fabric=parse("nvlink"),
                      protocol=PROTOCOLS[name]), on).time_s
        for name in ("default", "steady")
    ]  # fmt: skip
    assert estimates[0] == estimates[1]


def test_what_is_not_known_is_refused_in_a_sentence() -> None:
    steady = trial("steady", dtype="float16")
    with pytest.raises(Refusal, match=r"^protocol = steady has no estimate here: ") as refused:
        predict(steady, shipped_machine(H200))
    assert "the energy of float16 is not known, that of bfloat16 alone" in str(refused.value)
    predict(replace(steady, protocol=PROTOCOLS["default"]), shipped_machine(H200))


def test_a_card_without_a_file_has_no_estimate_under_steady_load() -> None:
    assert power.of_device("NVIDIA A100") is None
    assert power.of_device(shipped_machine("h200_nvl8").device.name) is not None, "a card is in several machines"


FITTED = ("held_watts", "idle_watts", "waiting_watts", "joules_per_byte", "clock_exponent", "energy_exponent")


@pytest.mark.parametrize("name", [fit.PROBED, fit.OTHER])
def test_the_shipped_values_are_the_fit_to_what_was_measured(name: str) -> None:
    model, again = load(data_directory() / "power" / f"{name}.toml"), fit.refitted(name)
    for key in FITTED:
        assert getattr(model, key) == pytest.approx(getattr(again, key), rel=2e-3), key
    assert dict(model.joules_per_flop) == pytest.approx(dict(again.joules_per_flop), rel=2e-3)


@pytest.mark.slow
def test_calls_that_nothing_was_fitted_to_are_within_8_percent() -> None:
    for name, count in zip(fit.RECORDINGS, (16, 40), strict=True):
        calls = list(fit.recorded(name))
        assert len(calls) == count, "those whose regime is steady"
        errors = [abs(each.error) for each in calls]
        assert median(errors) < 0.08
        assert median(errors) < 0.5 * median(abs(each.as_burst) for each in calls)


def test_computation_that_nothing_was_fitted_to_is_within_2_percent() -> None:
    calls = list(fit.recorded(fit.RECORDINGS[0]))
    fused = [each for each in calls if each.name.startswith("fused") and " 128x" not in each.name]
    assert len(fused) == 7
    assert sorted(abs(each.error) for each in fused)[5] < 0.016, "the seventh is 1024x8192x8192"
    assert all(each.as_burst < -0.08 for each in fused), "bursts are shorter"


def test_gemms_with_rests_on_another_card_are_as_the_energies_say() -> None:
    checked = list(fit.paused(fit.refitted(fit.OTHER)))
    assert len(checked) == 4
    for sizes, low, high, measured in checked:
        assert 0.97 * low <= measured <= 1.01 * high, f"{sizes}: bursts themselves differ by 2 %"
    (large,) = [each for each in checked if each[0] == "8192x8192x8192"]
    assert large[1] > 1.05 * 1374e-6, "it is no burst"
    assert large[2] < 0.91 * 1669e-6, "nor does it run as without rests"


def test_a_fit_finds_the_energies_of_points_that_have_them() -> None:
    points = [fit.Point(seconds=clock**-0.5, clock=clock, joules_per_flop=2e-12 * clock**0.8) for clock in (0.6, 0.9)]
    assert fit._at_highest(replace(CARD, energy_exponent=0.8), points) == pytest.approx(2e-12)
    assert fit._slope([0.0, 1.0, 2.0], [1.0, 3.0, 5.0]) == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("line", "by", "message"),
    [
        ("cap_watts = 700.0", "cap_watts = -1", "cap_watts = -1 does not fit. Accepted: a finite number above 0."),
        ("cap_watts = 700.0", "watts = 700.0", "has the unknown key 'watts'."),
        ("cap_watts = 700.0", "", "cap_watts"),
        ("waiting_watts = [134.1, 156.6]", "waiting_watts = [156.6, 134.1]", "two finite numbers from 0 up, the least"),
        ("waiting_watts = [134.1, 156.6]", "waiting_watts = 134.1", "waiting_watts = 134.1 does not fit."),
        ('"idle_watts" = "assumed', '"idle_watts" = "rumour', "idle_watts has no source."),
        ('"cap_watts" = "datasheet', '"cap_watts" = "rumour', "cap_watts has no source."),
    ],
)
def test_a_file_that_does_not_fit_names_its_key(tmp_path: Path, line: str, by: str, message: str) -> None:
    text = (data_directory() / "power" / "h200.toml").read_text()
    assert line in text
    (path := tmp_path / "card.toml").write_text(text.replace(line, by, 1))
    with pytest.raises(ValueError, match=r"card\.toml") as wrong:
        load(path)
    assert message in str(wrong.value)


def test_idle_power_must_leave_some_for_work(tmp_path: Path) -> None:
    text = (data_directory() / "power" / "h200.toml").read_text()
    assert "idle_watts = 134.1" in text
    (path := tmp_path / "card.toml").write_text(text.replace("idle_watts = 134.1", "idle_watts = 700.0", 1))
    with pytest.raises(ValueError, match=r"idle_watts and waiting_watts leave no power for work: 700 >= 692\.25\."):
        load(path)
