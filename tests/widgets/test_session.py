"""A run goes on in the background, its news come in order and at once, and it can be stopped."""

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from kernels.trial import Trial
from tests.widgets.conftest import FakeLab, eventually
from workbench.experiment.form import FormQuestion
from workbench.experiment.run import StoredRun
from workbench.experiment.run import run as experiment_run
from workbench.experiment.sources import FromCluster
from workbench.machines import machine
from workbench.results.store import Store
from workbench.widgets.session import RunNews, RunSession

SWEPT = FormQuestion(operator="gemm_all_to_all", shape=(("m", 512), ("n", 512), ("k", 64)), dtype="float32", world=2,
              scheme="fused", fabric="shared_memory", protocol="quick", swept=("slice_tiles",))  # fmt: skip


@pytest.fixture
def news() -> list[RunNews]:
    return []


@pytest.fixture
def session(store: Store, news: list[RunNews]) -> Iterator[RunSession]:
    made = RunSession(store, news.append)
    yield made
    made.stop()
    assert made.wait()


@pytest.fixture
def begin(store: Store, lab: FakeLab) -> Callable[[], StoredRun]:
    return lambda: experiment_run(
        SWEPT.experiment(machine("laptop_cpu")), store, FromCluster(lab), machine("laptop_cpu")
    )


def test_everything_that_is_stored_is_told_once_and_joined(
    session: RunSession, begin: Callable[[], StoredRun], news: list[RunNews], store: Store
) -> None:
    sitting = begin()
    session.start(sitting)
    assert session.wait(100)
    reported = [row for each in news for row in each.rows]
    assert [row["id"] for row in reported] == [row["id"] for row in store.rows(sitting.run)]
    assert sum(len(each.samples) for each in news) == len(store.samples_since(0, sitting.run)[0]) > 0
    assert [each.ended for each in news] == [False] * (len(news) - 1) + [True]
    measured = [row for row in reported if row["source"] == "measured" and row["part"] == "whole"]
    assert all(row["floor_s"] for row in measured), "the parts came before the schedules"


def test_news_come_while_the_run_goes_on(
    session: RunSession, begin: Callable[[], StoredRun], news: list[RunNews], lab: FakeLab
) -> None:
    go_on = threading.Event()
    slow = begin()
    lab.before = lambda trial: trial.schedule.scheme == "fused" and trial.part == "whole" and go_on.wait(100)
    session.start(slow)
    assert eventually(lambda: any(each.rows for each in news))
    assert not any(each.ended for each in news)
    go_on.set()
    assert session.wait(100)
    assert news[-1].ended


def test_a_stopped_run_ends_soon_keeps_what_it_has_and_another_can_begin(
    session: RunSession, begin: Callable[[], StoredRun], news: list[RunNews], lab: FakeLab, store: Store
) -> None:
    measured: list[Trial] = []

    def slowly(trial: Trial) -> None:
        measured.append(trial)
        time.sleep(0.05)

    lab.before = slowly
    sitting = begin()
    session.start(sitting)
    assert eventually(lambda: len(measured) > 2)
    session.stop()
    assert session.wait(60.0)
    assert news[-1].stopped
    assert store.run(sitting.run)["status"] == "cancelled"
    assert [row for row in store.rows(sitting.run) if row["source"] == "measured" and row["time_s"]]
    lab.before = lambda trial: None
    session.start(begin())
    assert session.wait(100)


def test_a_second_run_at_once_is_refused(session: RunSession, begin: Callable[[], StoredRun], lab: FakeLab) -> None:
    go_on = threading.Event()
    lab.before = lambda trial: go_on.wait(100)
    session.start(begin())
    with pytest.raises(ValueError, match="1 of at most 1"):
        session.start(begin())
    go_on.set()


def test_what_ends_a_run_early_is_told_as_a_sentence(
    session: RunSession, begin: Callable[[], StoredRun], news: list[RunNews], lab: FakeLab
) -> None:
    def broken(trial: Trial) -> None:
        raise ValueError("the disk is full, 0 bytes of 4 are free")

    lab.before = broken
    session.start(begin())
    assert session.wait(100)
    assert news[-1].error == "the disk is full, 0 bytes of 4 are free"


def test_a_listener_that_fails_does_not_end_the_telling(
    store: Store, begin: Callable[[], StoredRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    reported = []

    def tell(news: RunNews) -> None:
        reported.append(news)
        if len(reported) == 1:
            raise RuntimeError("a chart that cannot be drawn")

    logged: list[str] = []
    monkeypatch.setattr("workbench.widgets.session._LOG.exception", lambda sentence, *_: logged.append(sentence))
    session = RunSession(store, tell)
    session.start(begin())
    assert session.wait(100)
    assert reported[-1].ended
    assert "could not be shown" in logged[0]


def test_a_store_that_cannot_be_read_ends_the_run_and_is_told(
    session: RunSession, begin: Callable[[], StoredRun], news: list[RunNews], lab: FakeLab, store: Store,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def locked(*_: object) -> None:
        raise ValueError("Another process locked the store for more than 30 s.")

    lab.before = lambda trial: time.sleep(0.05)
    sitting = begin()
    monkeypatch.setattr(store, "rows_since", locked)
    session.start(sitting)
    assert session.wait(100)
    assert news[-1].ended
    assert news[-1].error == "Another process locked the store for more than 30 s."
    assert sitting.cancelled.is_set(), "the run would have gone on unseen"


def test_a_trial_shows_its_running_median_before_it_ends_and_keeps_it_when_it_is_stopped(
    session: RunSession, begin: Callable[[], StoredRun], news: list[RunNews], lab: FakeLab, store: Store
) -> None:
    """Once 95 samples left an empty chart."""
    go_on = threading.Event()
    half = lab._measured

    def slowly(trial: Trial, world: int) -> Iterator[dict[str, object]]:
        for number, event in enumerate(half(trial, world)):
            if trial.schedule.scheme == "fused" and number == 2 + 3 * world:
                assert go_on.wait(100)
            yield event

    lab._measured = slowly  # type: ignore[method-assign]
    sitting = begin()
    session.start(sitting)
    assert eventually(lambda: any(each.running and each.running[-1]["samples"] == 3 for each in news))
    row = next(each.running[-1] for each in news if each.running and each.running[-1]["samples"] == 3)
    assert (row["scheme"], row["time_s"], row["stopped"]) == ("fused", 1e-3, False)
    session.stop()
    go_on.set()
    assert session.wait(100)
    left = [row for row in news[-1].running if row["scheme"] == "fused"]
    if left:  # the trial that was being timed when Stop came may have come to its end
        assert all(row["stopped"] for row in left)
    unfinished = store.unfinished_samples(sitting.run)
    assert {sample["key"] for sample in unfinished} == {row["key"] for row in news[-1].running}
