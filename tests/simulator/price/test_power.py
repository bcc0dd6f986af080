"""Steady load is priced from the energy of work and the power cap; what is not known is refused in one sentence."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kernels.fabric import parse
from kernels.operators import problem
from kernels.schedule import Refusal
from kernels.schemes import schedule
from kernels.trial import PROTOCOLS, Trial
from workbench.analysis import power as fit
from workbench.machines import shipped_machine
from workbench.resources import data_directory
from workbench.simulator.predict import predict
from workbench.simulator.price import power
from workbench.simulator.price.power import PowerModel, load

H200 = "h200_nvl2"
CARD = PowerModel(
    name="card", title="a card", devices=("NVIDIA H200 SXM",), cap_watts=700.0, held_watts=600.0,
    highest_clock_hertz=2e9, clock_exponent=0.5, joules_per_flop={"bfloat16": 1e-12},
)  # fmt: skip
GEMM = {"m": 8192, "n": 8192, "k": 8192}


def trial(protocol: str, shape: dict[str, int] = GEMM, *, world: int = 1, dtype: str = "bfloat16") -> Trial:
    of = problem("gemm_all_to_all", shape, world=world, dtype=dtype)
    on = shipped_machine(H200)
    one = schedule(of, "sequential", {}, on, parse("nvlink"))
    return Trial(problem=of, schedule=one, backend="triton", machine=H200, fabric=parse("nvlink"),
                 protocol=PROTOCOLS[protocol])  # fmt: skip


def test_the_cap_pays_for_so_many_flop_a_second() -> None:
    assert CARD.capped_seconds(6e14, "bfloat16") == pytest.approx(1.0)
    rested = replace(CARD, idle_watts=100.0)
    assert rested.capped_seconds(5e14, "bfloat16") == pytest.approx(1.0), "idle power is not left for work"
    assert CARD.clock_hertz(1.0, 1.0) == 2e9
    assert CARD.clock_hertz(1.0, 1.2) == pytest.approx(2e9 / 1.44)


BUSY = power.Work(compute_s=0.8, capped_s=1.0, rest_s=0.0)
KEEPS = power.Draw(rest_share=0.4, hidden_share=0.1, energy_exponent=0.0)


def test_a_rest_comes_back_as_time_and_what_is_hidden_costs_some() -> None:
    assert CARD.mixed_seconds(BUSY, KEEPS) == pytest.approx(1.0), "no rest: the cap alone"
    assert CARD.mixed_seconds(replace(BUSY, rest_s=0.1), KEEPS) == pytest.approx(0.1 + 1.0 - 0.06)
    assert CARD.mixed_seconds(replace(BUSY, hidden_s=0.1), KEEPS) == pytest.approx(1.01)
    assert CARD.mixed_seconds(replace(BUSY, rest_s=10.0), KEEPS) == pytest.approx(10.8), "never faster than a burst"
    dearer = replace(KEEPS, energy_exponent=0.5)  # as much as the exponent of the clock: a half comes back
    assert CARD.mixed_seconds(replace(BUSY, rest_s=0.1), dearer) == pytest.approx(0.1 + 1.0 - 0.03)
    assert CARD.mixed_seconds(replace(BUSY, rest_s=0.1).at(2.0), KEEPS) == pytest.approx(0.1 + 2.0 - 0.06)


def test_a_card_without_assumptions_has_no_draws() -> None:
    assert CARD.draws() == []
    known = replace(CARD, rest_share=(0.2, 0.6), hidden_share=(0.0, 0.2), energy_exponent=(0.0, 1.0))
    assert known.draws()[0] == power.Draw(pytest.approx(0.4), 0.1, 0.5)
    assert len(known.draws()) == 1 + 8


def test_both_regimes_come_from_one_description(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(power, "of_device", lambda name: CARD)
    on = shipped_machine(H200)
    burst, steady = predict(trial("default"), on), predict(trial("steady"), on)
    assert steady.time_s == pytest.approx(2.0 * 8192**3 * 1e-12 / 600.0)
    assert steady.time_s > burst.time_s
    assert steady.low_s <= steady.time_s <= steady.high_s
    assert steady.spans == ()
    assert burst.spans, "those are of a burst"
    monkeypatch.setattr(power, "of_device", lambda name: replace(CARD, held_watts=650.0))
    assert predict(trial("default"), on).time_s == burst.time_s, "bursts are as before"
    assert predict(trial("steady"), on).time_s == pytest.approx(steady.time_s * 600.0 / 650.0)


@pytest.mark.parametrize(
    ("steady", "clause"),
    [
        (trial("steady", world=2), "the energy of bytes on a link and of waiting for them is not known"),
        (trial("steady", dtype="float16"), "the energy of float16 is not known, that of bfloat16 alone"),
        (trial("steady", {"m": 128, "n": 7168, "k": 8192}), "what else it spends energy on is not known"),
    ],
)  # fmt: skip
def test_what_is_not_known_is_refused_in_a_sentence(steady: Trial, clause: str) -> None:
    with pytest.raises(Refusal, match=r"^protocol = steady has no estimate here: ") as refused:
        predict(steady, shipped_machine(H200))
    assert clause in str(refused.value)
    predict(replace(steady, protocol=PROTOCOLS["default"]), shipped_machine(H200))


def test_a_card_without_a_file_has_no_estimate_under_steady_load() -> None:
    assert power.of_device("NVIDIA A100") is None
    assert power.of_device(shipped_machine("h200_nvl8").device.name) is not None, "a card is in several machines"


def test_the_shipped_values_are_the_fit_to_the_shipped_gemms() -> None:
    model = load(data_directory() / "power" / "h200.toml")
    again = fit.fitted(model, model.timed)
    assert model.held_watts == pytest.approx(again.held_watts, rel=1e-3)
    assert model.clock_exponent == pytest.approx(again.clock_exponent, rel=2e-3)
    assert dict(model.joules_per_flop) == pytest.approx(dict(again.joules_per_flop), rel=1e-3)


def test_a_fit_is_checked_on_gemms_that_it_has_not_seen() -> None:
    model = load(data_directory() / "power" / "h200.toml")
    errors = list(fit.held_out(model, 2))
    assert len(errors) == 6 * 2
    assert max(abs(each.seconds) for each in errors) < min(-each.as_burst for each in errors)
    assert "fits to 2 of 4, on the others: median error of seconds 2.1%, at most 3.6%" in fit.text(model, 2)


def test_a_fit_of_a_card_with_known_energies_finds_them() -> None:
    true = replace(CARD, idle_watts=90.0)
    timed = []
    for m in (2048, 4096, 8192):
        gemm = {"m": m, "n": 4096, "k": 4096, "watts": 600.0}
        steady_s = true.capped_seconds(fit.flops(gemm), "bfloat16")
        clock = true.clock_hertz(0.8 * steady_s, steady_s)
        timed.append({**gemm, "burst_s": 0.8 * steady_s, "steady_s": steady_s, "clock_hertz": clock})
    made = fit.fitted(replace(true, joules_per_flop={"bfloat16": 1.0}, clock_exponent=1.0), timed)
    assert made.joules_per_flop["bfloat16"] == pytest.approx(1e-12)
    assert made.clock_exponent == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("line", "by", "message"),
    [
        ("cap_watts = 700.0", "cap_watts = -1", "cap_watts = -1 does not fit. Accepted: a finite number above 0."),
        ("cap_watts = 700.0", "watts = 700.0", "has the unknown key 'watts'."),
        ("cap_watts = 700.0", "", "cap_watts"),
        ("rest_share = [0.2, 0.6]", "rest_share = [0.6, 0.2]", "two finite numbers from 0 up, the least first"),
        ("rest_share = [0.2, 0.6]", "rest_share = 0.2", "rest_share = 0.2 does not fit."),
        ('"rest_share" = "assumed', '"rest_share" = "rumour', "rest_share has no source."),
        ("held_watts = 692.25", "held_watts = 692.25\nidle_watts = 700.0", "idle_watts has no source."),
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
    text = text.replace("held_watts = 692.25", "held_watts = 692.25\nidle_watts = 700.0")
    (path := tmp_path / "card.toml").write_text(
        text.replace("[provenance]", '[provenance]\n"idle_watts" = "assumed: x"')
    )
    with pytest.raises(ValueError, match=r"idle_watts = 700 leaves no power for work: 700 >= 692\.25\."):
        load(path)
