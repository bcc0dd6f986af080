"""A trial is known where the same source and libraries ran it on the same hardware; elsewhere it is measured again."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from cluster.seating import Ranks
from kernels.fabric import parse
from kernels.hardware import Hardware, source_print
from kernels.machine import Machine
from tests.workbench.conftest import MakeExperiment
from workbench.experiment.experiment import Experiment
from workbench.experiment.run import Run, run
from workbench.experiment.sources import FromCluster
from workbench.experiment.space import Choice, Space
from workbench.results.store import Store


def test_a_known_trial_is_one_with_the_same_kernels(
    store: Store, fake_cluster: Any, make_experiment: MakeExperiment, measure_it: Callable[[Experiment], Run],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    measure_it(make_experiment())
    fake_cluster.lists.clear()
    measure_it(make_experiment())
    assert fake_cluster.lists == [], "nothing has changed"
    monkeypatch.setattr("cluster.seating.source_print", lambda backend: "other kernels")
    measure_it(make_experiment())
    assert sum(map(len, fake_cluster.lists)) == 5


GANG = Ranks({"torch": "2.13.0"}, Hardware(model="a processor", link="shared memory", cores=1.0))


@pytest.mark.parametrize(
    "other",
    [
        replace(GANG, versions={"torch": "2.13.1"}),
        replace(GANG, hardware=replace(GANG.hardware, model="another processor")),
        replace(GANG, hardware=replace(GANG.hardware, cores=0.25)),
        None,
    ],
    ids=["other versions", "another processor", "fewer cores", "not told"],
)
def test_what_one_cluster_measured_is_not_known_on_another(
    store: Store, fake_cluster: Any, make_experiment: MakeExperiment, measure_it: Callable[[Experiment], Run],
    other: Ranks | None,
) -> None:  # fmt: skip
    fake_cluster.gang = lambda *asked: GANG
    first = measure_it(make_experiment())
    fake_cluster.lists.clear()
    fake_cluster.gang = lambda *asked: other
    second = measure_it(make_experiment())
    assert sum(map(len, fake_cluster.lists)) == 5, "all of it is measured again"
    assert {row["source"] for row in store.rows(second.run)} == {"measured", "estimated"}
    fake_cluster.lists.clear()
    fake_cluster.gang = lambda *asked: GANG
    third = measure_it(make_experiment())
    assert fake_cluster.lists == []
    recorded = [row for row in store.rows(third.run) if row["source"] == "recorded"]
    assert {row["origin"] for row in recorded} == {first.run}
    assert all(row["hardware"] == GANG.hardware.to_json() for row in recorded)


@pytest.mark.parametrize("across", [False, True])
def test_what_the_network_links_is_known_on_ranks_of_several_hosts(
    store: Store, fake_cluster: Any, machine: Machine, make_experiment: MakeExperiment, across: bool
) -> None:
    experiment = make_experiment(Space((Choice("sequential"),)), fabric=parse("network" if across else "shared_memory"))
    sitting = run(experiment, store, FromCluster(fake_cluster), machine)
    for _ in sitting:
        pass
    assert set(fake_cluster.across) == {across}


def test_a_relative_link_is_resolved_anew_on_other_hardware(
    store: Store, fake_cluster: Any, make_experiment: MakeExperiment, measure_it: Callable[[Experiment], Run]
) -> None:
    relative = make_experiment(fabric=parse("emulated:wire_to_compute=1"))
    slower = replace(GANG, hardware=replace(GANG.hardware, model="a slower processor"))
    for gang, seconds in ((GANG, 1e-3), (slower, 4e-3)):
        fake_cluster.gang = lambda *asked, gang=gang: gang
        fake_cluster.seconds = lambda trial, seconds=seconds: seconds
        fake_cluster.lists.clear()
        measure_it(relative)
        assert [trial.part for trial in fake_cluster.lists[0]] == ["compute"], "its computation alone is timed first"
    (asked,) = relative.problems
    known = [store.compute_seconds(relative.machine, asked, gang.hardware) for gang in (GANG, slower)]
    assert known == [1e-3, 4e-3]


def test_what_ranks_measured_is_kept_under_the_kernels_that_they_ran(
    store: Store, fake_cluster: Any, make_experiment: MakeExperiment, measure_it: Callable[[Experiment], Run]
) -> None:
    fake_cluster.kernels, fake_cluster.gang = "what ran", lambda *asked: GANG
    sitting = measure_it(make_experiment())
    assert set(fake_cluster.source_prints) == {source_print("cpu")}, "the ranks are told which kernels are meant"
    own = GANG.execution("cpu")
    for key in store.trials(sitting.run):
        assert store.known(key, replace(own, source_print="what ran")) is not None
        assert store.known(key, own) is None


def test_a_run_says_what_its_ranks_were(
    store: Store, fake_cluster: Any, make_experiment: MakeExperiment, measure_it: Callable[[Experiment], Run]
) -> None:
    fake_cluster.gang = lambda *asked: GANG
    sitting = measure_it(make_experiment())
    own = GANG.execution("cpu")
    facts = store.run(sitting.run)["provenance"]
    assert facts["source_print"] == own.source_print
    assert facts["ranks"] == {
        "versions": {"torch": "2.13.0"}, "versions_print": own.versions_print,
        "hardware": {"world 2": "a processor, 1 core per rank, shared memory"},
    }  # fmt: skip
    for row in store.rows(sitting.run):
        said = (row["source_print"], row["versions_print"], row["hardware"])
        timed = (own.source_print, own.versions_print, own.hardware.to_json())
        assert said == (timed if row["source"] == "measured" else (None, None, None)), "an estimate ran nowhere"
