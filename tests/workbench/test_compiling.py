"""What ranks compile is told as the slowest of them says it, and no longer once none of them compiles."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from kernels import events
from kernels.events import ProgressEvent, StageEvent
from kernels.trial import Trial
from workbench.cli import measuring
from workbench.experiment.experiment import Experiment
from workbench.experiment.question import Request
from workbench.experiment.run import Progress, run
from workbench.experiment.sources import LEAST_DEADLINE_SECONDS, CompileProgress, FromCluster, SlowestRank
from workbench.machines import machine
from workbench.results.store import Store


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
