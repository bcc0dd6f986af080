"""What a rank's death broke off runs again by itself, so often and no more, and a person is told of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kernels import events
from kernels.fabric import parse
from kernels.machine import Machine
from kernels.outcome import Failure, Sample
from kernels.trial import Trial
from tests.workbench.conftest import MakeExperiment
from workbench.cli.measuring import WAITED_S, WAITING_S, WaitNotices
from workbench.experiment.experiment import Block, Experiment
from workbench.experiment.retries import ALONE_MOST, FRUITLESS_MOST, Retries, RetryReport
from workbench.experiment.run import Run, run
from workbench.experiment.sources import FromCluster, WaitReport
from workbench.experiment.space import Choice, Space
from workbench.results.store import Store

Measure = Callable[[Experiment], Run]
PIECES = Space((Choice("decomposed", (("pieces", (1, 2, 4, 8)),)),))


def pieces(trials: Sequence[Trial]) -> list[int]:
    return [int(trial.schedule["pieces"]) for trial in trials if trial.schedule.scheme == "decomposed"]


def dying_at(count: int, number: int) -> Callable[[int, list[Trial]], Trial | None]:
    """A rank dies at the schedule of *number* pieces, in the first *count* lists that hold it."""
    deaths: list[int] = []

    def dies(_: int, trials: list[Trial]) -> Trial | None:
        found = next((trial for trial in trials if number in pieces([trial])), None)
        if found is None or len(deaths) == count:
            return None
        deaths.append(number)
        return found

    return dies


def failed(store: Store, sitting: Run) -> list[tuple[str, str]]:
    return [(row["stage"], row["part"]) for row in store.rows(sitting.run) if row["outcome"] == "failure"]


def test_the_trials_beside_a_death_run_again_with_baselines_of_their_own_and_the_suspect_alone(
    store: Store, fake_cluster: Any, make_experiment: MakeExperiment, measure_it: Measure
) -> None:
    fake_cluster.dies = dying_at(1, 4)
    sitting = measure_it(make_experiment(PIECES))
    assert [pieces(trials) for trials in fake_cluster.lists] == [[1, 2, 4, 8], [1, 2, 8], [4]]
    assert all([trial.part for trial in trials[:3]] == ["compute", "communication", "whole"]
               for trials in fake_cluster.lists)  # fmt: skip
    assert failed(store, sitting) == []
    rows = [row for row in store.rows(sitting.run) if row["scheme"] == "decomposed" and row["source"] == "measured"]
    assert len(rows) == 4
    assert all(row["sequential_s"] for row in rows), "each has a baseline in its own block"
    assert (sitting.progress.done, sitting.progress.failed, sitting.progress.total) == (4, 0, 4)
    told = sitting.progress.again
    assert sitting.progress.counted()[-1] == str(told) == "4 run again after a rank was lost"
    assert told.message() == "4 trials were broken off when a rank was lost, and ran again. because of lost"
    kept = store.run(sitting.run)["provenance"]["run_again"]
    assert [(each["axes"]["pieces"], each["in_vain"]) for each in kept] == [
        (1, False),
        (2, False),
        (4, False),
        (8, False),
    ]


def test_one_that_kills_its_rank_each_time_fails_and_takes_no_other_along_twice(
    store: Store, fake_cluster: Any, make_experiment: MakeExperiment, measure_it: Measure
) -> None:
    fake_cluster.dies = dying_at(99, 4)
    sitting = measure_it(make_experiment(PIECES))
    assert [pieces(trials) for trials in fake_cluster.lists] == [[1, 2, 4, 8], [1, 2, 8], *[[4]] * ALONE_MOST]
    (row,) = [row for row in store.rows(sitting.run) if row["outcome"] == "failure" and row["part"] == "whole"
              and row["scheme"] == "decomposed"]  # fmt: skip
    assert (row["stage"], row["axes"]["pieces"]) == ("lost", 4)
    assert row["message"] == "Broken off 2 times. because of lost"
    assert sitting.progress.again.message().startswith(
        "4 trials were broken off when a rank was lost; 3 ran again, 1 did not. because of lost"
    )
    assert (sitting.progress.done, sitting.progress.failed) == (4, 1)


def test_a_cluster_on_which_ranks_always_die_is_not_asked_for_ever(
    store: Store, fake_cluster: Any, make_experiment: MakeExperiment, measure_it: Measure
) -> None:
    fake_cluster.dies = lambda number, trials: next(trial for trial in trials if trial.part == "compute")
    sitting = measure_it(make_experiment(PIECES))
    assert len(fake_cluster.lists) == 1 + FRUITLESS_MOST
    whole = [row for row in store.rows(sitting.run) if row["outcome"] == "failure" and row["scheme"] == "decomposed"]
    assert [row["stage"] for row in whole] == ["lost"] * 4, "nobody cancelled them: the command's status tells of it"
    assert sitting.progress.failed == 4


def test_what_finds_no_ranks_when_it_is_asked_for_again_has_not_run(
    store: Store, fake_cluster: Any, make_experiment: MakeExperiment, measure_it: Measure
) -> None:
    fake_cluster.dies = dying_at(1, 4)
    fake_cluster.before = lambda trial: fake_cluster.failures.update(decomposed=("launch", None))
    sitting = measure_it(make_experiment(PIECES))
    assert sitting.progress.again.message().startswith(
        "4 trials were broken off when a rank was lost; 0 ran again, 4 did not. because of lost"
    )
    assert all(each["in_vain"] for each in store.run(sitting.run)["provenance"]["run_again"])


def test_the_measure_of_a_relative_link_runs_again_too(
    store: Store, fake_cluster: Any, make_experiment: MakeExperiment, measure_it: Measure
) -> None:
    fake_cluster.dies = lambda number, trials: trials[0] if number == 1 else None
    sitting = measure_it(make_experiment(PIECES, fabric=parse("emulated:wire_to_compute=1")))
    assert [len(trials) for trials in fake_cluster.lists] == [1, 1, 7]
    assert failed(store, sitting) == []


def test_what_somebody_stopped_does_not_run_again(
    store: Store, fake_cluster: Any, machine: Machine, make_experiment: MakeExperiment
) -> None:
    sitting = run(make_experiment(PIECES), store, FromCluster(fake_cluster), machine)
    fake_cluster.before = lambda trial: sitting.cancelled.set()
    list(sitting)
    assert len(fake_cluster.lists) == 1
    assert {stage for stage, _ in failed(store, sitting)} == {"cancelled"}


def test_what_fails_by_itself_does_not_run_again_and_ends_no_other(
    store: Store, fake_cluster: Any, make_experiment: MakeExperiment, measure_it: Measure
) -> None:
    fake_cluster.failures["decomposed"] = ("wrong", 1)
    measure_it(make_experiment(PIECES))
    assert len(fake_cluster.lists) == 1


def test_a_baseline_that_breaks_its_gang_by_itself_is_left_out_when_the_others_run_again(
    fake_cluster: Any, make_trial: Callable[..., Trial]
) -> None:
    base, hanging = make_trial(), make_trial(part="communication")
    schedules = tuple(make_trial("decomposed", pieces=number) for number in (1, 2))
    block, again = Block((hanging, base), schedules), Retries(RetryReport())
    broken_off = [Failure(trial=one, stage="cancelled", message="m", rank=1) for one in (base, *schedules)]
    hung = Failure(trial=hanging, stage="hang", message="it hung", rank=1)
    assert again.final(block, broken_off, [hung]) == []
    assert again.groups() == [list(schedules)]
    assert again.without_spoilt(block).baselines == (base,)
    assert again.groups() == []


def test_the_limit_counts_attempts_of_which_nothing_came(make_trial: Callable[..., Trial], measure: Any) -> None:
    trials = [make_trial("decomposed", pieces=number) for number in (1, 2, 4, 8, 16, 32)] * 2
    again = Retries(RetryReport())
    rest = list(dict.fromkeys(trials))
    for _ in range(FRUITLESS_MOST - 1):
        done, *rest = rest
        broken_off = [Failure(trial=one, stage="cancelled", message="m", rank=1) for one in rest]
        assert again.final(Block((), (done, *rest)), broken_off, [measure(done)]) == []
        assert again.groups() == [rest]


def test_where_all_were_lost_nobody_is_the_suspect(make_trial: Callable[..., Trial]) -> None:
    trials = [make_trial("decomposed", pieces=number) for number in (1, 2)]
    again = Retries(RetryReport())
    lost = [Failure(trial=one, stage="lost", message="m", rank=1) for one in trials]
    assert again.final(Block((), tuple(trials)), lost, []) == []
    assert again.groups() == [trials]


def test_a_wait_is_told_while_it_lasts(
    store: Store, fake_cluster: Any, machine: Machine, make_experiment: MakeExperiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = fake_cluster.stream

    def waiting(trials: Sequence[Trial], **ask: Any) -> Any:
        for seconds, why in ((4.0, "1 request is before"), (0.0, "")):
            yield events.WaitingEvent(kind="waiting", trial=None, world=2, seconds=seconds, why=why)
            told.append(str(sitting.progress.waiting))
        yield from stream(trials, **ask)

    told: list[str] = []
    monkeypatch.setattr(fake_cluster, "stream", waiting)
    sitting = run(make_experiment(PIECES), store, FromCluster(fake_cluster, wait_s=7.0), machine)
    assert [found for found in sitting if isinstance(found, Sample)]
    assert told == ["waiting for 2 ranks for 4 s of at most 7 s (1 request is before)", ""]
    assert {limits.wait_s for limits in fake_cluster.limits} == {7.0}
    assert all(limits.expected_s for limits in fake_cluster.limits)
    assert str(WaitReport(1, 2.0, "w0 is starting")) == "waiting for 1 rank for 2 s (w0 is starting)"
    assert (
        str(WaitReport(1, 2.0, "w0 is starting", 7.0)) == "waiting for 1 rank for 2 s of at most 7 s (w0 is starting)"
    )


def test_without_a_terminal_a_long_wait_is_told_now_and_then() -> None:
    patience = WaitNotices()
    told = [second for second in range(200) if patience.is_due(float(second))]
    assert told == [WAITED_S, WAITED_S + WAITING_S, WAITED_S + 2 * WAITING_S, WAITED_S + 3 * WAITING_S]
    assert not patience.is_due(0.0)
    assert patience.is_due(WAITED_S), "the next wait is told anew"
