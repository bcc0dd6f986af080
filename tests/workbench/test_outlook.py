"""Before a run begins it is said how much of it is not known yet, and how long about that takes."""

from dataclasses import replace

import pytest

from workbench.answer import FromCluster
from workbench.cli_measure import CREDIBLE, Pace
from workbench.experiment import run
from workbench.machines import machine
from workbench.outlook import Outlook, crowded, outlook
from workbench.request import Request
from workbench.store import Store

ASKED = Request(operator="gemm_all_to_all", preset="tiny", protocol="quick", schemes=("sequential", "fused"))


def test_what_is_known_is_not_ahead_any_more(store: Store, fake_cluster: object) -> None:
    laptop, experiment = machine("laptop_cpu"), ASKED.experiment(together=True, parts="baseline")
    before = outlook(experiment, laptop, store)
    sitting = run(experiment, store, FromCluster(fake_cluster), laptop)  # type: ignore[arg-type]
    timed = [found for found in sitting if hasattr(found, "seconds")]
    assert before.schedules == 2
    assert 0 < before.seconds < 60
    resolving = 10 * 2  # what an emulated link is resolved with is timed beside it
    assert before.samples + resolving == len(timed)
    assert outlook(experiment, laptop, store) == Outlook(schedules=0, trials=0, samples=0, seconds=0.0)
    again = outlook(replace(experiment, fresh=True), laptop, store)  # over the link as it was found
    assert (again.schedules, again.samples) == (before.schedules, before.samples)


def test_one_schedule_more_is_all_of_them_where_they_are_compared_together(store: Store, fake_cluster: object) -> None:
    laptop, experiment = machine("laptop_cpu"), ASKED.experiment()
    for _ in run(experiment, store, FromCluster(fake_cluster), laptop):  # type: ignore[arg-type]
        pass
    more = replace(ASKED, schemes=("sequential", "fused", "decomposed")).experiment()
    assert outlook(more, laptop, store).schedules == 1
    assert outlook(replace(more, together=True), laptop, store).schedules == 3


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ((1, 1, 20.0), "1 schedule is measured, about 20 s."),
        ((1, 2, 0.2), "1 schedule is measured and 1 baseline, about a second."),
        ((1200, 1203, 600.0), "1,200 schedules are measured and 3 baselines, about 10 min."),
    ],
)
def test_an_outlook_is_one_sentence(fields: tuple[int, int, float], words: str) -> None:
    schedules, trials, seconds = fields
    assert str(Outlook(schedules=schedules, trials=trials, samples=0, seconds=seconds)) == words


def test_the_time_left_follows_the_samples_once_there_are_some(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("workbench.cli_measure.time.monotonic", lambda: now[0])
    pace = Pace(Outlook(schedules=1, trials=1, samples=100, seconds=30.0))
    assert pace.left() == "about 30 s left"
    for _ in range(int(100 * CREDIBLE) + 40):
        pace.count()
        now[0] += 1.0
    assert pace.left() == "about 50 s left"
    assert [pace.is_due(), pace.is_due()] == [True, False]


def test_as_many_ranks_as_cores_are_no_crowd() -> None:
    assert crowded(2, 2) is None
    assert (crowded(2, 1) or "").startswith("2 ranks share 1 core here: ")
