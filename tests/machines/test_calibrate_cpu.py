"""Calibration recovers a machine that it can only ask for times, keeps to its budget, and says what it did."""

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kernels.fabric import parse
from kernels.machine import Machine, Rate, load
from kernels.outcome import Failure, Measurement, Outcome
from kernels.schemes import COMPARED, schedule
from kernels.trial import Trial
from tests.kernels.conftest import Gang
from tests.simulator.trials import ask, trial
from workbench import machines
from workbench.machines.calibrate_cpu import FULL_SECONDS, QUICK_SECONDS, calibrate
from workbench.simulator.predict import predict

Answer = Callable[[Sequence[Trial]], Iterator[Outcome]]


@pytest.fixture(scope="module")
def hidden(laptop: Machine) -> Machine:
    """What is to be found out: a computer whose speed depends on nothing but the work."""
    speeds = {"gemm": 3e10, "gemv": 5e9, "gather": 4e9, "copy": 9e9, "reduce": 7e9}
    rates = tuple(Rate(work, dtype, 1e6, speed) for work, speed in speeds.items() for dtype in ("float32", "bfloat16"))
    costs = replace(laptop.costs, step_seconds=31e-6, tile_seconds=4e-6, signal_seconds=70e-6, barrier_seconds=12e-6,
                    library_seconds=900e-6, library_share=0.4)  # fmt: skip
    dimension = replace(laptop.dimensions[0], bandwidth_bytes_per_second=4.5e9)
    return replace(laptop, rates=rates, costs=costs, dimensions=(dimension,), digest="truth")


def answer_as(machine: Machine) -> Answer:
    """Every iteration takes exactly what is estimated for *machine*."""

    def answer(trials: Sequence[Trial]) -> Iterator[Outcome]:
        for one in trials:
            seconds = predict(one, machine, with_spans=False).time_s
            yield Measurement(trial=one, samples=((seconds,) * one.protocol.repeats,) * one.world)

    return answer


def calibrated(answer: Answer, seconds: float, folder: Path) -> Machine:
    path = folder / "laptop_cpu.toml"
    path.write_text(calibrate(answer, machines.shipped_machine("laptop_cpu"), seconds).text)
    return load(path)


def disturbed(machine: Machine, factors: Callable[[Trial], Sequence[float]]) -> Answer:
    """As *machine*, but iteration i takes the i-th of the trial's *factors* times that, over and over."""

    def answer(trials: Sequence[Trial]) -> Iterator[Outcome]:
        for one in answer_as(machine)(trials):
            assert isinstance(one, Measurement)
            times = itertools.cycle(factors(one.trial))
            samples = tuple(seconds * factor for seconds, factor in zip(one.samples[0], times, strict=False))
            yield replace(one, samples=(samples,) * one.trial.world)

    return answer


@pytest.fixture(scope="module")
def fitted(hidden: Machine, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    return calibrated(answer_as(hidden), FULL_SECONDS, tmp_path_factory.mktemp("machines"))


@pytest.mark.parametrize(
    "cost", ["step_seconds", "tile_seconds", "signal_seconds", "barrier_seconds", "library_seconds", "library_share"]
)
def test_every_cost_is_found(cost: str, hidden: Machine, fitted: Machine) -> None:
    assert getattr(fitted.costs, cost) == pytest.approx(getattr(hidden.costs, cost), rel=0.06, abs=2e-6)
    assert fitted.provenance_of(f"costs.{cost}").startswith("calibrated: ")


@pytest.mark.parametrize("work", ["gemm", "gemv", "gather", "copy", "reduce"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_curve_is_found(work: str, dtype: str, hidden: Machine, fitted: Machine) -> None:
    truth = next(rate.per_second for rate in hidden.rates if (rate.work, rate.dtype) == (work, dtype))
    found = [rate.per_second for rate in fitted.rates if (rate.work, rate.dtype) == (work, dtype)]
    assert len(found) >= 3
    assert found == pytest.approx([truth] * len(found), rel=0.1)
    assert fitted.provenance_of(f"rate.{work}.{dtype}.0.1000").startswith("calibrated: ")


def test_what_was_fitted_predicts_what_was_not_measured(hidden: Machine, fitted: Machine) -> None:
    fabric = parse("emulated:bandwidth_bytes_per_second=1e9,latency_seconds=1e-4,message_seconds=1e-5")
    for operator in ("gemm_all_to_all", "gemv_all_reduce", "embedding_all_to_all", "all_gather_gemm"):
        asked = ask(operator, 2)
        for scheme in COMPARED:
            one = trial(asked, schedule(asked, scheme, {}, fitted, fabric), fitted, fabric)
            found, truth = (predict(one, machine, with_spans=False).time_s for machine in (fitted, hidden))
            assert found == pytest.approx(truth, rel=0.05)


def test_a_machine_that_behaves_as_estimated_has_hardly_any_spread(fitted: Machine) -> None:
    assert fitted.spread is not None
    assert fitted.spread == (pytest.approx(1, abs=0.05), pytest.approx(1, abs=0.05))
    assert fitted.calibrated


def test_a_quick_calibration_fits_what_comes_first_and_keeps_the_rest(hidden: Machine, tmp_path: Path) -> None:
    found = calibrated(answer_as(hidden), QUICK_SECONDS, tmp_path)
    assert found.costs.step_seconds == pytest.approx(hidden.costs.step_seconds, rel=0.05)
    assert found.provenance_of("costs.library_share").startswith("assumed: ")
    assert found.calibrated is not None
    assert found.calibrated.endswith(", quick")


def test_a_computer_that_is_busy_half_of_the_time_is_calibrated_all_the_same(hidden: Machine, tmp_path: Path) -> None:
    answer = disturbed(hidden, lambda trial: (1.6, 1.0) if trial.part != "whole" else (1.0,))
    found = calibrate(answer, machines.shipped_machine("laptop_cpu"), FULL_SECONDS)
    assert found.sound
    path = tmp_path / "machine.toml"
    path.write_text(found.text)
    speeds = {rate.work: rate.per_second for rate in load(path).rates}
    assert speeds == pytest.approx({rate.work: rate.per_second for rate in hidden.rates}, rel=0.1)


@pytest.mark.parametrize(("factor", "seconds"), [(0.7, 0.0), (0.7, 1.0), (1.3, 0.0)])
def test_a_fit_that_is_off_says_so_and_by_how_much(factor: float, seconds: float, hidden: Machine) -> None:
    answer = disturbed(hidden, lambda trial: (factor,) if trial.part == "whole" and trial.fabric.emulated else (1.0,))
    begin = time.monotonic()
    found = calibrate(answer, machines.shipped_machine("laptop_cpu"), seconds)
    assert time.monotonic() - begin < seconds + 60.0, "it does not try for ever"
    assert not found.sound
    assert found.ratio == pytest.approx(factor, rel=0.1)


def test_what_the_check_finds_to_be_off_is_measured_again(hidden: Machine, tmp_path: Path) -> None:
    checks = 0
    asked: list[str] = []

    def factors(trial: Trial) -> Sequence[float]:
        nonlocal checks
        asked.append(trial.key)
        checks += dict(trial.problem.shape).get("n") == 768
        return (0.6,) if 0 < checks <= 3 and trial.part == "whole" else (1.0,)

    path = tmp_path / "machine.toml"
    found = calibrate(disturbed(hidden, factors), machines.shipped_machine("laptop_cpu"), QUICK_SECONDS)
    assert found.sound
    assert found.ratio == pytest.approx(1.0, abs=0.05)
    path.write_text(found.text)
    curves = [rate for rate in load(path).rates if (rate.work, rate.dtype) == ("gemm", "float32")]
    assert len(curves) == 6, "the curves of the second time, and none of the first"
    assert max(map(asked.count, asked)) == 2


def test_a_peak_is_calibrated_where_its_number_format_was_measured(hidden: Machine, tmp_path: Path) -> None:
    """Without time only float32 is."""
    for seconds, measured in ((0.0, ["float32"]), (QUICK_SECONDS, ["float32", "bfloat16"])):
        found = calibrated(answer_as(hidden), seconds, tmp_path)
        shipped = machines.shipped_machine("laptop_cpu").device.matrix_flops_per_second
        for dtype, peak in found.device.matrix_flops_per_second.items():
            source = found.provenance_of(f"device.matrix_flops_per_second.{dtype}").split(":")[0]
            assert (dtype, source) == (dtype, "calibrated" if dtype in measured else "assumed")
            truth = 3e10 if dtype in measured else shipped[dtype]
            assert peak == pytest.approx(truth, rel=0.1)


def test_when_time_is_up_the_rest_is_left_out(hidden: Machine, tmp_path: Path) -> None:
    found = calibrated(answer_as(hidden), 0.0, tmp_path)
    assert {rate.work for rate in found.rates} == {"gemm", "copy", "reduce"}


def test_ranks_that_cannot_measure_are_named_in_a_sentence(hidden: Machine, tmp_path: Path) -> None:
    def lost(trials: Sequence[Trial]) -> Iterator[Outcome]:
        return (Failure(trial=one, stage="lost", message="Worker 3 died.") for one in trials)

    with pytest.raises(ValueError, match=r"The calibration could not measure .*: Worker 3 died"):
        calibrated(lost, QUICK_SECONDS, tmp_path)


def test_a_calibration_that_is_ended_says_so(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="0 of 4 trials measured"):
        calibrated(lambda trials: iter(()), QUICK_SECONDS, tmp_path)


def test_a_gang_without_a_library_keeps_what_was_assumed_of_it(hidden: Machine, tmp_path: Path) -> None:
    able = answer_as(hidden)

    def answer(trials: Sequence[Trial]) -> Iterator[Outcome]:
        for one in trials:
            if one.schedule.get("collective") == "library":
                yield Failure(trial=one, stage="refused", message="No rendezvous.")
            else:
                yield from able([one])

    found = calibrated(answer, FULL_SECONDS, tmp_path)
    assert found.provenance_of("costs.library_share").startswith("assumed: ")
    assert found.spread is not None


@pytest.mark.slow
@pytest.mark.alone
def test_this_computer_is_calibrated_by_two_real_ranks(tmp_path: Path) -> None:
    gang = Gang(2)
    try:
        gang.outcomes(_any_trial())  # ranks are warm when a person calibrates: the lab has started them
        begin = time.monotonic()
        found = calibrated(lambda trials: iter(gang.outcomes(trials)), QUICK_SECONDS, tmp_path)
        assert time.monotonic() - begin < 120.0, "it does not try for ever"
    finally:
        gang.close()
    assert 0 < found.costs.step_seconds < 0.1
    assert all(rate.per_second > 0 for rate in found.rates)
    assert found.spread is not None
    assert found.spread[0] < found.spread[1]


def _any_trial() -> list[Trial]:
    machine, fabric = machines.shipped_machine("laptop_cpu"), parse("shared_memory")
    asked = ask("gemm_all_to_all", 2)
    return [trial(asked, schedule(asked, "sequential", {}, machine, fabric), machine, fabric).of_part("compute")]


# Values that were measured while others used the cores are marked in the file, and only those.


def used_by_others(machine: Machine, disturbs: Callable[[Trial], bool], cores: float = 1.2) -> Answer:
    """As *machine*, while other programs use *cores* of two during the trials that *disturbs* chooses."""

    def answer(trials: Sequence[Trial]) -> Iterator[Outcome]:
        for one in answer_as(machine)(trials):
            assert isinstance(one, Measurement)
            use = {
                "rank": 0,
                "reading": 0,
                "samples": [0, one.trial.protocol.repeats - 1],
                "cores": 2.0,
                "others_cores": cores if disturbs(one.trial) else 0.05,
                "whom": {"other programs": cores},
            }
            yield replace(one, conditions=(use,))

    return answer


def test_rates_and_costs_that_were_measured_under_load_are_distrusted_and_no_others(
    hidden: Machine, tmp_path: Path
) -> None:
    loaded = used_by_others(hidden, lambda trial: trial.schedule.get("tile") == "256x512x1024")
    found = calibrated(loaded, QUICK_SECONDS, tmp_path)
    marked = machines.distrusted(found)
    assert set(marked.values()) == {"1.2 of 2 cores, mostly other programs"}
    of_rates = ("rate.gemm.float32.256.", "rate.gemm.bfloat16.256.", "device.matrix_flops_per_second.")
    assert all(key.startswith(of_rates) for key in marked), "and the peak that is of them"
    values = {each.key: each for each in machines.machine_values(found)}
    assert all(each in values for each in marked), "each mark is of a value"
    untouched = [key for key, value in values.items() if key.startswith("rate.gemm.float32") and key not in marked]
    assert len(untouched) == 5
    assert not any("not trusted" in values[key].source for key in untouched)


def test_a_quiet_calibration_distrusts_nothing_and_a_loaded_one_all_that_it_measured(
    hidden: Machine, tmp_path: Path
) -> None:
    quiet = calibrated(used_by_others(hidden, lambda trial: True, cores=0.19), QUICK_SECONDS, tmp_path)
    assert machines.distrusted(quiet) == {}
    loaded = calibrated(used_by_others(hidden, lambda trial: True), QUICK_SECONDS, tmp_path)
    marked = machines.distrusted(loaded)
    rates = {f"rate.{each.work}.{each.dtype}.{each.width:g}.{each.size:g}" for each in loaded.rates}
    assert rates <= set(marked)
    assert {"costs.tile_seconds", "costs.barrier_seconds", "spread"} <= set(marked)
    assert {"device.matrix_flops_per_second.float32", "device.memory_bytes_per_second"} <= set(marked), "from the rates"
    assert str(loaded.calibrated).endswith(f", quick, {len(marked)} values not trusted")
