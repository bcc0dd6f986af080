"""The three homes of answers speak alike: samples, one outcome per trial, and what ranks compile meanwhile."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.watchdog import Deadlines
from kernels import events
from kernels.events import ProgressEvent, StageEvent
from kernels.fabric import parse
from kernels.machine import Machine
from kernels.operators import problem
from kernels.outcome import Estimate, Failure, Measurement, Sample
from kernels.schemes import schedule
from kernels.trial import PROTOCOLS, Trial
from workbench import machines
from workbench.cli import measuring
from workbench.experiment.experiment import Experiment
from workbench.experiment.forecast import expected
from workbench.experiment.question import Request
from workbench.experiment.run import Progress, run
from workbench.experiment.sources import (
    DEADLINE_SECONDS,
    LEAST_DEADLINE_SECONDS,
    PATIENCE,
    Answer,
    CompileProgress,
    FromCluster,
    FromRecordings,
    FromSimulator,
    SlowestRank,
)
from workbench.machines import machine
from workbench.results.recordings import Recorded
from workbench.results.store import Store

# The three homes of answers speak alike: samples, then one outcome per trial, whose source says who spoke.

MakeTrial = Callable[..., Trial]
Measure = Callable[..., Measurement]


def ask(home: Answer, *trials: Trial, cancelled: threading.Event | None = None) -> list[Any]:
    return list(home.answer(trials, cancelled or threading.Event()))


def record(measured: Measurement, spacing_s: float = 0.0) -> Recorded:
    samples = [Sample(measured.trial.key, rank, index, mine[index], 100.0 + spacing_s * index)
               for index in range(5) for rank, mine in enumerate(measured.samples)]  # fmt: skip
    return Recorded(measurement=measured, samples=tuple(samples), provenance={"host": "there"})


def test_the_cluster_yields_samples_then_a_measurement(fake_cluster: Any, make_trial: MakeTrial) -> None:
    trial = make_trial("fused")
    *samples, outcome = ask(FromCluster(fake_cluster), trial)
    assert len(samples) == 2 * trial.protocol.repeats
    assert all(isinstance(sample, Sample) and sample.key == trial.key for sample in samples)
    assert isinstance(outcome, Measurement)
    assert (outcome.source, outcome.correct, outcome.time_s) == ("measured", True, 1e-3)


def test_a_failure_that_two_ranks_report_is_one_outcome(fake_cluster: Any, make_trial: MakeTrial) -> None:
    fake_cluster.failures["fused"] = ("wrong", 0)
    found = ask(FromCluster(fake_cluster), make_trial("fused"), make_trial("sequential"))
    failures = [outcome for outcome in found if isinstance(outcome, Failure)]
    assert [(failed.stage, failed.rank) for failed in failures] == [("wrong", 0)]
    assert isinstance(found[-1], Measurement), "the next trial is measured all the same"


def test_trials_of_other_worlds_go_to_other_gangs(fake_cluster: Any, make_trial: MakeTrial) -> None:
    ask(FromCluster(fake_cluster), make_trial(world=1), make_trial(world=2), make_trial("fused", world=2))
    assert [[trial.world for trial in each] for each in fake_cluster.lists] == [[1], [2, 2]]


def test_a_hang_is_found_by_the_longest_single_stage_and_not_by_the_length_of_the_list(
    fake_cluster: Any, make_trial: MakeTrial
) -> None:
    home, trials = FromCluster(fake_cluster), [make_trial("fused", slice_tiles=each) for each in (1, 2, 4)] * 8
    for iteration_s in (1e-3, 2.0):
        found = expected(trials, [iteration_s] * len(trials))
        assert found.total_s > len(trials) * 7 * iteration_s
        assert list(home.answer(trials, threading.Event(), found))
    short, long = fake_cluster.limits
    assert short.silence_s == LEAST_DEADLINE_SECONDS["cpu"] < DEADLINE_SECONDS
    assert long.silence_s == PATIENCE * 2.0, "one iteration of the slowest"
    assert long.total_s == PATIENCE * found.total_s


def test_operands_that_take_long_to_make_are_waited_for(make_trial: MakeTrial) -> None:
    small = make_trial("fused")
    large = replace(small, problem=problem("gemm_all_to_all", {"m": 8192, "n": 8192, "k": 8192}, world=2))
    found = [expected([trial], [1e-3]).silent_s for trial in (small, large)]
    assert found[0] < 0.1
    assert found[1] > 3 * 2 * 8192**2 * 4 / 1e9


def test_ranks_of_whose_trials_nothing_is_expected_may_be_silent_for_longer(
    fake_cluster: Any, make_trial: MakeTrial
) -> None:
    ask(FromCluster(fake_cluster), make_trial("fused"), make_trial("sequential"))
    assert fake_cluster.limits == [Deadlines(DEADLINE_SECONDS, 2 * DEADLINE_SECONDS)]
    assert PATIENCE * expected([make_trial()], [None]).silent_s == DEADLINE_SECONDS, "nor may those it cannot estimate"


def test_the_simulator_estimates_and_refuses(machine: Machine, make_trial: MakeTrial) -> None:
    trial = make_trial("decomposed")
    axes = {**dict(trial.schedule.axes), "pieces": 4096}
    illegal = replace(trial, schedule=replace(trial.schedule, axes=tuple(axes.items())))
    legal, refused = ask(FromSimulator(machine), trial, illegal)
    assert isinstance(legal, Estimate)
    assert legal.time_s > 0
    assert (refused.stage, refused.source) == ("refused", "estimated")


def test_a_recording_plays_its_samples_and_says_that_it_is_one(make_trial: MakeTrial, measure: Measure) -> None:
    trial = make_trial("fused")
    *samples, outcome = ask(FromRecordings([record(measure(trial))], speed=None), trial)
    assert [sample.index for sample in samples] == [index for index in range(5) for _ in range(2)]
    assert outcome == replace(measure(trial), source="recorded")


def test_a_recording_answers_for_another_machine_and_protocol(make_trial: MakeTrial, measure: Measure) -> None:
    recorded = make_trial("fused")
    home = FromRecordings([record(measure(recorded))], speed=None)
    asked = replace(recorded, machine="mine", protocol=PROTOCOLS["thorough"])
    assert home.matching_trial(asked) == recorded
    assert ask(home, asked)[-1].trial == recorded, "the outcome keeps the machine that it was recorded on"


def test_a_recording_of_bursts_does_not_answer_for_steady_load(make_trial: MakeTrial, measure: Measure) -> None:
    recorded = make_trial("fused")
    home = FromRecordings([record(measure(recorded))], speed=None)
    steady = replace(recorded, protocol=PROTOCOLS["steady"])
    assert home.matching_trial(steady) == steady
    assert home.absence(recorded) is None
    assert "not among" in (home.absence(steady) or "")


def test_nothing_is_estimated_under_steady_load(machine: Machine, make_trial: MakeTrial) -> None:
    steady = replace(make_trial("fused"), protocol=PROTOCOLS["steady"])
    (refused,) = ask(FromSimulator(machine), steady)
    assert (refused.stage, refused.source) == ("refused", "estimated")
    assert refused.message.startswith("protocol = steady has no estimate here: no file of data/power describes")


def test_a_relative_link_finds_the_bandwidth_it_was_recorded_with(make_trial: MakeTrial, measure: Measure) -> None:
    unresolved = make_trial("fused", fabric="emulated:wire_to_compute=1")
    recorded = replace(unresolved, fabric=unresolved.fabric.resolve(1000, 1e-3, 2))
    home = FromRecordings([record(measure(recorded))], speed=None)
    assert home.fabric(unresolved.problem, unresolved.fabric) == recorded.fabric
    assert isinstance(ask(home, unresolved)[-1], Measurement)
    other = make_trial("fused", fabric="emulated:wire_to_compute=2")
    assert isinstance(ask(home, other)[-1], Failure)


def test_only_recordings_have_a_link_and_trials_of_their_own(
    fake_cluster: Any, make_trial: MakeTrial, machine: Machine
) -> None:
    trial = make_trial("fused", fabric="emulated:wire_to_compute=1")
    for home in (FromSimulator(machine), FromCluster(fake_cluster)):
        assert home.fabric(trial.problem, trial.fabric) is None
        assert home.matching_trial(trial) is trial


def test_what_was_not_recorded_is_refused_with_what_was(make_trial: MakeTrial, measure: Measure) -> None:
    home = FromRecordings([record(measure(make_trial("fused")))], speed=None)
    (refused,) = ask(home, make_trial("sequential"))
    assert refused.stage == "refused"
    assert "not among the 1 recorded trials. Accepted: fused(" in refused.message


def test_a_replay_keeps_the_rhythm_and_shortens_pauses(
    make_trial: MakeTrial, measure: Measure, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    cancelled = threading.Event()
    monkeypatch.setattr(cancelled, "wait", waited.append)
    trial = make_trial("fused")
    ask(FromRecordings([record(measure(trial), spacing_s=0.5)], speed=2.0), trial, cancelled=cancelled)
    assert [pause for pause in waited if pause] == [0.25] * 4
    waited.clear()
    ask(FromRecordings([record(measure(trial), spacing_s=3600.0)], speed=1.0), trial, cancelled=cancelled)
    assert max(waited) == 1.0


def test_every_home_stops_when_it_is_cancelled(
    fake_cluster: Any, machine: Machine, make_trial: MakeTrial, measure: Measure
) -> None:
    cancelled = threading.Event()
    cancelled.set()
    trial = make_trial("fused")
    assert ask(FromSimulator(machine), trial, cancelled=cancelled) == []
    assert ask(FromRecordings([record(measure(trial))]), trial, cancelled=cancelled) == []
    (stopped,) = ask(FromCluster(fake_cluster), trial, cancelled=cancelled)
    assert stopped.stage == "cancelled"


@pytest.mark.parametrize("collective", ["library", "library_tuned", "direct"])
def test_gpu_ranks_share_memory_whoever_moves_the_bytes(fake_cluster: Any, collective: str) -> None:
    of = problem("gemm_all_to_all", {"m": 512, "n": 256, "k": 64}, dtype="bfloat16", world=2)
    machine, link = machines.shipped_machine("h200_nvl2"), parse("nvlink")
    chosen = schedule(of, "sequential", {"collective": collective}, machine, link)
    asked = Trial(problem=of, schedule=chosen, backend="triton", machine=machine.name, fabric=link,
                  protocol=PROTOCOLS["quick"])  # fmt: skip
    ask(FromCluster(fake_cluster), asked)
    ask(FromCluster(fake_cluster), replace(asked, fabric=parse("network")))
    assert fake_cluster.shared == [True, False], "ranks of several hosts share nothing"


# What ranks compile is told as the slowest of them says it, and no longer once none of them compiles.


def compiles(rank: int, number: int, of: int = 24) -> StageEvent:
    return events.StageEvent(kind="stage", trial="t", rank=rank, stage="compile", number=number, of=of)


def stage(rank: int, name: str) -> StageEvent:
    return events.StageEvent(kind="stage", trial="t", rank=rank, stage=name)


def test_the_slowest_rank_is_told() -> None:
    gang = SlowestRank(2)
    said = [gang.update(event) for event in (
        stage(0, "open"), compiles(0, 1), compiles(0, 2), stage(1, "open"), compiles(1, 1), compiles(0, 3),
        compiles(1, 2), compiles(1, 3), stage(1, "verify"), compiles(0, 4), stage(0, "verify"),
    )]  # fmt: skip
    assert said == [
        None,
        None,
        None,
        None,
        CompileProgress(1, 24),
        None,
        CompileProgress(2, 24),
        CompileProgress(3, 24),
        None,
        CompileProgress(4, 24),
        CompileProgress(),
    ]


def test_the_next_problem_of_a_list_is_compiled_from_the_first_trial_on() -> None:
    gang = SlowestRank(1)
    said = [gang.update(event) for event in (compiles(0, 2, 2), stage(0, "time"), stage(0, "open"), compiles(0, 1, 3))]
    assert said == [CompileProgress(2, 2), CompileProgress(), None, CompileProgress(1, 3)]


def test_it_is_a_few_words_of_the_progress() -> None:
    assert Progress(total=8, compiling=CompileProgress(3, 24)).counted() == ["0 of 8 schedules", "compiling 3 of 24"]
    assert Progress(total=8).counted() == ["0 of 8 schedules"]


def test_a_run_says_how_long_it_still_takes_until_it_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "REPORT_S", 0.01)
    sitting, said = SimpleNamespace(progress=Progress(total=8, done=4)), list[str]()
    with measuring._reporting(sitting, lambda share, words: said.append(words), quiet=False):  # type: ignore[arg-type]
        while not said:
            time.sleep(0.01)
    assert said[0] == "4 of 8 schedules, about a second left"
    assert said[-1] == "4 of 8 schedules"


def test_a_run_tells_while_its_ranks_compile_and_no_longer(store: Store, fake_cluster: Any) -> None:
    laptop = machine("laptop_cpu")
    experiment: Experiment = Request(operator="gemm_all_to_all", preset="tiny", protocol="quick").experiment()
    sitting = run(experiment, store, FromCluster(fake_cluster), laptop)
    told: list[list[str]] = []
    stream: Callable[..., Iterator[ProgressEvent]] = fake_cluster.stream

    def compiling_first(trials: Sequence[Trial], *, world: int, **how: Any) -> Iterator[ProgressEvent]:
        for number in range(1, len(trials) + 1):
            yield from (compiles(rank, number, len(trials)) for rank in range(world))
            told.append(sitting.progress.counted())
        yield from stream(trials, world=world, **how)

    fake_cluster.stream = compiling_first
    list(sitting)
    counted = [(number, len(trials)) for trials in fake_cluster.lists for number in range(1, len(trials) + 1)]
    assert [words[-1] for words in told] == [f"compiling {number} of {of}" for number, of in counted]
    assert not sitting.progress.compiling.number


def test_gpu_ranks_that_do_not_compile_are_found_sooner_than_those_that_do(
    fake_cluster: Any, make_trial: Callable[..., Trial]
) -> None:
    trial = replace(make_trial("fused"), backend="triton")
    list(FromCluster(fake_cluster).answer([trial], Event()))
    (limits,) = fake_cluster.limits
    assert limits.silence_s == LEAST_DEADLINE_SECONDS["triton"] < limits.compiling_s == 60.0
