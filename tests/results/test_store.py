"""What goes into a store comes out, whoever writes or is killed; and a trial is known where it ran the same."""

from __future__ import annotations

import json
import os
import secrets
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pytest

from cluster.seating import Ranks
from kernels.fabric import parse
from kernels.files import Failed
from kernels.hardware import Execution, Hardware, source_print, source_prints
from kernels.machine import Machine
from kernels.outcome import Failure, Measurement, Sample
from kernels.trial import Trial
from tests.workbench.conftest import MakeExperiment
from workbench.experiment.experiment import Experiment
from workbench.experiment.run import Run, run
from workbench.experiment.sources import FromCluster
from workbench.experiment.space import Choice, Space
from workbench.results import database, frames, metrics
from workbench.results.store import SAME_SOURCES, SampleBuffer, Store

# What goes in comes out; several writers and a killed one lose nothing; whatever is wrong is one sentence.

MakeTrial = Callable[..., Trial]
Measure = Callable[..., Measurement]
HARDWARE = Hardware(model="a processor", link="shared memory", cores=1.0)
RAN = Execution("5" * 12, "6" * 12, HARDWARE)


def samples_of(measured: Measurement) -> list[Sample]:
    return [Sample(measured.trial.key, rank, index, seconds, 1e9 + index)
            for rank, mine in enumerate(measured.samples) for index, seconds in enumerate(mine)]  # fmt: skip


def keep(store: Store, run: str, measured: Measurement, ran: Execution = RAN) -> int:
    measured = replace(measured, **{each.name: getattr(ran, each.name) for each in fields(ran)})
    return store.add_outcome(run, measured, metrics.row_of(measured, run), samples=samples_of(measured))


def test_what_the_same_kernels_measured_in_other_files_is_known(
    store: Store, make_trial: MakeTrial, measure: Measure, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured, moved = measure(make_trial()), replace(RAN, source_print="moved")
    keep(store, store.begin_run({}, {}), measured)
    assert store.known(measured.trial.key, moved) is None
    monkeypatch.setattr("workbench.results.store.SAME_SOURCES", {"moved": (RAN.source_print,)})
    assert store.known(measured.trial.key, moved) is not None


def test_winners_are_not_taken_from_a_busy_computer(store: Store, make_trial: MakeTrial, measure: Measure) -> None:
    measured, run = replace(measure(make_trial()), source="measured"), store.begin_run({}, {})
    use = {"rank": 0, "reading": 0, "samples": [0, 0], "cores": 2.0, "others_cores": 1.2, "whom": {}}
    keep(store, run, replace(measured, conditions=(use,), block="busy"))
    assert store.right_wholes("gemm_all_to_all") == []
    keep(store, run, replace(measured, block="quiet"))
    assert [each["block"] for each in store.right_wholes("gemm_all_to_all")] == ["quiet"]


def test_sources_that_equal_older_ones_are_todays() -> None:
    assert set(SAME_SOURCES) <= set(source_prints().values()), "these kernels have changed: delete their entry"


def test_a_measurement_comes_out_as_it_went_in_and_is_recorded(
    store: Store, make_trial: MakeTrial, measure: Measure
) -> None:
    measured, run = measure(make_trial()), store.begin_run({}, {})
    keep(store, run, measured)
    known = store.known(measured.trial.key, RAN)
    assert known is not None
    again, origin = known
    assert (again.trial, again.samples, again.spans, again.correct) == (
        measured.trial, measured.samples, measured.spans, True)  # fmt: skip
    assert (again.source, origin) == ("recorded", run)


@pytest.mark.parametrize("other", [
    {"source_print": "other kernels"}, {"versions_print": "other libraries"},
    {"hardware": replace(HARDWARE, cores=0.5)},
    {"hardware": replace(HARDWARE, model="another processor")}, {"hardware": replace(HARDWARE, link="network")},
])  # fmt: skip
def test_other_kernels_libraries_and_hardware_know_nothing_of_it(
    store: Store, make_trial: MakeTrial, measure: Measure, other: dict[str, Any]
) -> None:
    measured = measure(make_trial())
    keep(store, store.begin_run({}, {}), measured)
    assert store.known_trials(measured.trial.problem, RAN) == (measured.trial,)
    assert store.known(measured.trial.key, replace(RAN, **other)) is None
    assert store.known_trials(measured.trial.problem, replace(RAN, **other)) == ()
    assert store.known(make_trial("fused").key, RAN) is None


def test_a_failure_is_a_row_but_not_known(store: Store, make_trial: MakeTrial) -> None:
    failed, run = Failure(trial=make_trial(), stage="hang", message="rank 1 waited for ever"), store.begin_run({}, {})
    store.add_outcome(run, failed, metrics.row_of(failed, run))
    assert store.rows(run)[0]["message"] == "rank 1 waited for ever"
    assert store.known(failed.trial.key, RAN) is None


def test_a_recorded_outcome_keeps_its_samples_where_they_are(
    store: Store, make_trial: MakeTrial, measure: Measure
) -> None:
    measured, first, second = measure(make_trial()), store.begin_run({}, {}), store.begin_run({}, {})
    keep(store, first, measured)
    known = store.known(measured.trial.key, RAN)
    assert known is not None
    again, origin = known
    store.add_outcome(second, again, metrics.row_of(again, second), origin=origin)
    assert store.samples_since(0, second)[0] == []
    assert [(row["source"], row["origin"], row["run"]) for row in store.rows(second)] == [("recorded", first, second)]
    replayed, raw = store.recorded(second)[0]
    assert replayed == again
    assert len(raw) == 10


def test_a_clock_before_1970_begins_no_run_that_no_reader_accepts(
    store: Store, make_trial: MakeTrial, measure: Measure, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = store.begin_run({}, {})
    monkeypatch.setattr(time, "time", lambda: -86400.0)
    with pytest.raises(Failed, match=r"says -86,400 s, which is before 1970: -86,400 < 0\..* Accepted: a clock that"):
        store.begin_run({}, {})
    keep(store, run, measure(make_trial()))
    store.end_run(run)  # the clock went back while it ran: what was measured can still be read
    assert store.run(run)["ended_at"] == 0


def test_a_cursor_brings_only_what_is_new(store: Store, make_trial: MakeTrial, measure: Measure) -> None:
    run, other = store.begin_run({}, {}), store.begin_run({}, {})
    keep(store, run, measure(make_trial()))
    rows, cursor = store.rows_since(0, run)
    assert [row["scheme"] for row in rows] == ["sequential"]
    keep(store, other, measure(make_trial("decomposed")))
    keep(store, run, measure(make_trial("fused")))
    assert [row["scheme"] for row in store.rows_since(cursor, run)[0]] == ["fused"]
    assert [row["scheme"] for row in store.rows_since(cursor)[0]] == ["decomposed", "fused"]
    samples, after = store.samples_since(0, run)
    assert len(samples) == 20
    assert store.samples_since(after, run) == ([], after)


def test_rows_of_a_run_are_joined_with_its_parts(store: Store, make_trial: MakeTrial, measure: Measure) -> None:
    run, baseline = store.begin_run({}, {}), make_trial()
    for part, seconds in (("whole", 5e-3), ("compute", 2e-3), ("communication", 3e-3)):
        keep(store, run, measure(baseline.of_part(part), seconds))
    assert store.rows(run)[0]["comm_s"] == pytest.approx(3e-3)
    table = store.frame(run)
    assert list(table["part"]) == ["whole", "compute", "communication"]
    assert set(table["tile"]) == {baseline.schedule["tile"]}
    assert set(table["m"]) == {256}
    assert store.spans(run, baseline.key)[0].kind == "compute"
    assert store.trials(run)[baseline.key] == baseline


def test_runs_are_found_by_id_and_by_its_beginning(store: Store) -> None:
    first = store.begin_run({"asked": 1}, {"host": "here"}, "A title")
    time.sleep(0.001)
    store.begin_run({}, {})
    store.end_run(first, "cancelled")
    assert store.run(first)["experiment"] == {"asked": 1}
    assert store.run(first)["status"] == "cancelled"
    with pytest.raises(ValueError, match=r"There is no run 'nope'\. Accepted: last, or one of 2"):
        store.run("nope")
    with pytest.raises(ValueError, match="'2' begins the names of several runs"):
        store.run("2")


def test_an_empty_store_says_how_to_fill_it(store: Store) -> None:
    with pytest.raises(ValueError, match="none yet: workbench run"):
        store.run("last")


def test_compute_time_behind_a_fabric_is_decided_once(store: Store, make_trial: MakeTrial) -> None:
    asked = make_trial().problem
    assert store.compute_seconds("test", asked, HARDWARE) is None
    assert store.keep_compute_seconds("test", asked, HARDWARE, 0.25, "a run") == 0.25
    assert store.keep_compute_seconds("test", asked, HARDWARE, 0.5, "a later run") == 0.25
    assert store.compute_seconds("other machine", asked, HARDWARE) is None
    other = replace(HARDWARE, model="another processor")
    assert store.compute_seconds("test", asked, other) is None
    assert store.keep_compute_seconds("test", asked, other, 0.5, "a run elsewhere") == 0.5
    assert store.compute_seconds("test", asked, HARDWARE) == 0.25
    assert store.keep_compute_seconds("test", asked, None, 0.75, "who knows where") == 0.75, "used, not remembered"


def test_buffered_samples_are_in_the_file_although_none_follows(store: Store, make_trial: MakeTrial) -> None:
    run, key = store.begin_run({}, {}), make_trial().key
    buffer = SampleBuffer(store, run)
    try:
        buffer.add(Sample(key, 0, 0, 1e-3, 0.0))
        deadline = time.monotonic() + 60
        while not store.samples_since(0, run)[0]:
            assert time.monotonic() < deadline, "the sample was not written within 60 s"
            time.sleep(0.01)
    finally:
        buffer.close()


def test_a_closed_buffer_has_written_everything(store: Store, make_trial: MakeTrial) -> None:
    run, key = store.begin_run({}, {}), make_trial().key
    buffer = SampleBuffer(store, run)
    for index in range(100):
        buffer.add(Sample(key, 0, index, 1e-3, float(index)))
    buffer.close()
    assert [sample["index"] for sample in store.samples_since(0, run)[0]] == list(range(100))


def test_threads_share_one_store(store: Store, make_trial: MakeTrial) -> None:
    run, key = store.begin_run({}, {}), make_trial().key

    def write(rank: int) -> None:
        for index in range(50):
            store.add_samples(run, [Sample(key, rank, index, 1e-3, 0.0)])

    threads = [threading.Thread(target=write, args=(rank,)) for rank in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert len(store.samples_since(0, run)[0]) == 200


WRITER = """
import json, sys
from kernels.outcome import Measurement, Sample
from kernels.trial import Trial
from pathlib import Path
from workbench.results import metrics
from workbench.results import Store
path, text, count = sys.argv[1:]
trial = Trial.from_json(json.loads(text))
store = Store(Path(path))
run = store.begin_run({}, {})
for number in range(int(count)):
    measured = Measurement(trial=trial, samples=((1e-3,) * 5,) * 2, correct=True)
    raw = [Sample(trial.key, rank, number, 1e-3, 0.0) for rank in range(2)]
    cursor = store.add_outcome(run, measured, metrics.row_of(measured, run), samples=raw)
    print(run, cursor, flush=True)
"""


def writer(path: Path, trial: Trial, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(path), json.dumps(trial.to_json()), str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_several_processes_write_one_file(tmp_path: Path, make_trial: MakeTrial) -> None:
    """They also race to begin it."""
    path = tmp_path / "new" / "store.sqlite"
    processes = [writer(path, make_trial(), 50) for _ in range(3)]
    printed = [line.split() for process in processes for line in process.communicate(timeout=200)[0].splitlines()]
    assert [process.returncode for process in processes] == [0, 0, 0]
    with Store(path) as store:
        assert len(store.rows_since(0)[0]) == 150
        assert {row["run"] for row in store.rows_since(0)[0]} == {run for run, _ in printed}


def test_a_killed_writer_loses_at_most_the_trial_in_flight(tmp_path: Path, make_trial: MakeTrial) -> None:
    path = tmp_path / "store.sqlite"
    with writer(path, make_trial(), 1_000_000) as process:
        assert process.stdout is not None
        seen = [process.stdout.readline().split() for _ in range(30)]
        os.kill(process.pid, signal.SIGKILL)
        seen += [line.split() for line in process.stdout.read().splitlines() if len(line.split()) == 2]
    with Store(path) as store:
        stored = store.rows_since(0)[0]
        assert {int(cursor) for _, cursor in seen if cursor} <= {row["id"] for row in stored}
        assert len(store.samples_since(0)[0]) == 2 * len(stored)
        assert store.run("last")["status"] == "lost"
        store.begin_run({}, {})


# What can be wrong with the file


def test_a_damaged_store_is_named_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    path.write_bytes(b"this is no database, whatever its name says" * 100)
    with pytest.raises(ValueError, match=r"store\.sqlite is damaged.*Nothing was changed.*Move it away"):
        Store(path)
    assert path.read_bytes().startswith(b"this is no database")


def test_a_store_damaged_in_the_middle_is_named(tmp_path: Path, make_trial: MakeTrial, measure: Measure) -> None:
    path = tmp_path / "store.sqlite"
    with Store(path) as store:
        run = store.begin_run({}, {})
        for _ in range(50):
            keep(store, run, measure(make_trial()))
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (size - 4096))
    with Store(path) as store, pytest.raises(ValueError, match="is damaged"):
        store.rows(run)


def test_a_store_of_a_newer_workbench_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    Store(path).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(ValueError, match="has version 99, but this workbench reads versions up to"):
        Store(path)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    with pytest.raises(ValueError, match=r"cannot be opened or written.*Accepted: a file in a folder that you may"):
        Store(in_the_way / "store.sqlite")


def test_a_read_only_store_can_be_read_but_refuses_a_run(
    tmp_path: Path, make_trial: MakeTrial, measure: Measure
) -> None:
    path = tmp_path / "store.sqlite"
    with Store(path) as store:
        run = store.begin_run({}, {})
        keep(store, run, measure(make_trial()))
    with Store(path) as store:
        store._database._connection.execute("PRAGMA query_only = ON")
        with pytest.raises(ValueError, match=r"is read-only, but a run must be stored\. Accepted"):
            store.begin_run({}, {})
        assert len(store.rows(run)) == 1


@pytest.mark.parametrize("left_over", [False, True])
def test_a_store_in_a_folder_of_somebody_else_can_be_read(
    tmp_path: Path, make_trial: MakeTrial, measure: Measure, monkeypatch: pytest.MonkeyPatch, left_over: bool
) -> None:
    path = tmp_path / "store.sqlite"
    writes = Store(path)
    run = writes.begin_run({}, {})
    keep(writes, run, measure(make_trial()))
    if not left_over:
        writes.close()
    monkeypatch.setattr(database, "writable", lambda path: False)
    with Store(path) as store:
        assert len(store.rows(run)) == 1
        with pytest.raises(ValueError, match="is read-only, but a run must be stored"):
            store.begin_run({}, {})
    writes.close()


def test_a_full_disk_loses_nothing_that_was_stored(store: Store, make_trial: MakeTrial, measure: Measure) -> None:
    run, measured = store.begin_run({}, {}), measure(make_trial())
    connection = store._database._connection
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages + 2}")
    stored: list[int] = []

    def fill_up() -> None:
        while len(stored) < 1000:
            stored.append(keep(store, run, measured))

    with pytest.raises(ValueError, match=r"cannot grow: its disk or quota is full.*What was stored is safe"):
        fill_up()
    assert [row["id"] for row in store.rows(run)] == stored
    connection.execute("PRAGMA max_page_count = 100000")
    keep(store, run, measured)
    assert len(store.rows(run)) == len(stored) + 1


def test_a_buffer_passes_on_what_the_disk_says(store: Store, make_trial: MakeTrial) -> None:
    run, key = store.begin_run({}, {}), make_trial().key
    store._database._connection.execute("PRAGMA query_only = ON")
    buffer = SampleBuffer(store, run)

    def add() -> None:
        for _ in range(6000):
            buffer.add(Sample(key, 0, 0, 1e-3, 0.0))
            time.sleep(0.01)

    try:
        with pytest.raises(ValueError, match="read-only"):
            add()
    finally:
        buffer.close()


def test_network_file_systems_get_a_rollback_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def mode(store: Store) -> str:
        return str(store._database._connection.execute("PRAGMA journal_mode").fetchone()[0])

    with Store(tmp_path / "local.sqlite") as store:
        assert mode(store) == "wal"
    monkeypatch.setattr(database, "on_network", lambda path: True)
    with Store(tmp_path / "shared.sqlite") as store:
        assert mode(store) == "delete"
    with Store(tmp_path / "local.sqlite") as store:
        assert mode(store) == "delete"


# Export


def test_a_frame_comes_back_from_parquet_and_csv(
    store: Store, make_trial: MakeTrial, measure: Measure, tmp_path: Path
) -> None:
    run = store.begin_run({}, {})
    keep(store, run, measure(make_trial()))
    keep(store, run, measure(make_trial("decomposed", pieces=4)))
    table = store.frame(run)
    parquet = pd.read_parquet(frames.export(table, "parquet", tmp_path / "run.parquet"))
    csv = pd.read_csv(frames.export(table, "csv", tmp_path / "run.csv"))
    assert list(parquet["time_s"]) == list(csv["time_s"]) == list(table["time_s"])
    assert json.loads(parquet["axes"][1])["pieces"] == 4
    assert len(store.sample_frame(run)) == 20


def test_an_axis_of_words_and_numbers_fits_into_parquet(tmp_path: Path) -> None:
    table = frames.frame([{"shape": {"k": 1}, "axes": {"grid": 4}}, {"shape": {"k": 2}, "axes": {"grid": "all"}}, {}])
    stored = pd.read_parquet(frames.export(table, "parquet", tmp_path / "mixed.parquet"))
    assert list(stored["grid"][:2]) == ["4", "all"]


def test_an_export_says_what_is_in_its_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = frames.frame([{"shape": {}, "axes": {}}])
    with pytest.raises(ValueError, match=r"There is no export to 'xlsx'\. Accepted: parquet, csv"):
        frames.export(table, "xlsx", tmp_path / "run.xlsx")
    with pytest.raises(ValueError, match=r"cannot be written to .*missing"):
        frames.export(table, "csv", tmp_path / "missing" / "run.csv")

    def absent(*_: object, **__: object) -> None:
        raise ImportError("Unable to find a usable engine")

    monkeypatch.setattr(pd.DataFrame, "to_parquet", absent)
    with pytest.raises(ValueError, match=r"pyarrow.* is not installed.*pip install pyarrow"):
        frames.export(table, "parquet", tmp_path / "run.parquet")


# The store as a file: who may read it, and what of it outlives a power cut.


def test_a_store_is_for_its_owners_eyes_and_so_is_what_lies_beside_it(store: Store) -> None:
    store.begin_run({}, {"host": "there", "user": "ada"})
    files = sorted(store.path.parent.glob(f"{store.path.name}*"))
    assert len(files) == 3, "the store, its WAL and what its readers share"
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


def test_runs_that_begin_in_the_same_second_and_draw_the_same_letters_have_ids_of_their_own(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = iter(["aaaa", "aaaa", "aaaa", "bbbb"])
    monkeypatch.setattr(secrets, "token_hex", lambda _: next(drawn))
    monkeypatch.setattr(time, "strftime", lambda _: "20260101-120000")
    runs = [store.begin_run({}, {}) for _ in range(2)]
    assert runs == ["20260101-120000-aaaa", "20260101-120000-bbbb"]


def test_a_run_is_not_lost_because_the_clock_was_set(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    run = store.begin_run({}, {})
    later = psutil.Process().create_time() + 120
    monkeypatch.setattr(psutil.Process, "create_time", lambda self: later)
    assert store.run(run)["status"] == "running"


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Every file that was brought to the disk, and how many bytes it had then."""
    seen: list[tuple[str, int]] = []
    fsync = os.fsync

    def told(descriptor: int) -> None:
        fsync(descriptor)
        seen.append((Path(f"/proc/self/fd/{descriptor}").readlink().name, os.fstat(descriptor).st_size))

    monkeypatch.setattr(os, "fsync", told)
    return seen


def wal(store: Store) -> tuple[str, int]:
    file = store.path.with_name(f"{store.path.name}-wal")
    return file.name, file.stat().st_size


def test_a_run_that_ended_is_on_the_disk(store: Store, settled: list[tuple[str, int]]) -> None:
    store.end_run(store.begin_run({}, {}))
    assert wal(store) in settled


def test_an_outcome_is_on_the_disk_soon_whether_or_not_another_follows(
    store: Store, make_trial: Callable[..., Trial], measure: Callable[..., Measurement], settled: list[tuple[str, int]]
) -> None:
    run, measured = store.begin_run({}, {}), measure(make_trial("fused"))
    buffer = SampleBuffer(store, run)
    try:
        store.add_outcome(run, measured, metrics.row_of(measured, run))
        give_up_at = time.monotonic() + 60.0
        while wal(store) not in settled:
            assert time.monotonic() < give_up_at, settled
            time.sleep(0.01)
    finally:
        buffer.close()


# A trial is known where the same source and libraries ran it on the same hardware; elsewhere it is measured again.


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


@pytest.mark.slow(keeps=2)
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
