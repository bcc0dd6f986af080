"""A run becomes a file of JSON lines and comes back as it was; what is no recording is named by its line."""

import json
import os
import threading
import tomllib
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pandas as pd
import pytest

from kernels.hardware import Hardware
from kernels.outcome import ROW_KEYS, Measurement, Sample
from kernels.schedule import OMITTED_DEFAULTS, Schedule
from kernels.schemes import BASELINE, expand
from kernels.trial import Trial
from workbench import resources
from workbench.experiment.run import Replay
from workbench.experiment.sources import FromRecordings
from workbench.machines import machine as machine_named
from workbench.results import decode, frames, metrics, recordings
from workbench.results.store import Store

HARDWARE = Hardware(model="NVIDIA H200", link="nvlink", memory_bytes=141 << 30)
RAN = {"source_print": "source", "versions_print": "versions", "hardware": HARDWARE}
MakeTrial = Callable[..., Trial]
Measure = Callable[..., Measurement]


@pytest.fixture
def recorded(store: Store, make_trial: MakeTrial, measure: Measure, tmp_path: Path) -> tuple[Path, Measurement]:
    measured, run = replace(measure(make_trial("fused")), **RAN), store.begin_run({}, {"host": "there", "user": "ada"})
    samples = [Sample(measured.trial.key, rank, index, seconds, 100.0 + index)
               for rank, mine in enumerate(measured.samples) for index, seconds in enumerate(mine)]  # fmt: skip
    store.add_outcome(run, measured, metrics.row_of(measured, run), samples=samples)
    return recordings.write(store, run, tmp_path / "run.jsonl"), measured


def test_a_recording_comes_back_as_it_was(recorded: tuple[Path, Measurement]) -> None:
    path, measured = recorded
    (again,) = recordings.recordings(path)
    assert (again.measurement.trial, again.measurement.samples, again.measurement.spans) == (
        measured.trial, measured.samples, measured.spans)  # fmt: skip
    assert again.measurement.source == "recorded"
    assert {key: getattr(again.measurement, key) for key in RAN} == RAN
    assert [sample.at for sample in again.samples] == sorted(100.0 + index for index in range(5) for _ in range(2))
    assert again.provenance == {"host": "there"}


def test_what_ran_it_is_a_column_of_exports_and_empty_in_older_runs(
    recorded: tuple[Path, Measurement], store: Store, measure: Measure, make_trial: MakeTrial, tmp_path: Path
) -> None:
    older = measure(make_trial())
    store.add_outcome(store.runs()[0]["id"], older, metrics.row_of(older))
    table = pd.read_parquet(frames.export(store.frame(store.runs()[0]["id"]), "parquet", tmp_path / "rows.parquet"))
    new, old = (row for _, row in table.iterrows())
    assert (json.loads(new["hardware"]), new["source_print"]) == (HARDWARE.to_json(), "source")
    assert all(pd.isna(old[key]) for key in RAN)


def test_its_lines_have_the_keys_of_run_json(recorded: tuple[Path, Measurement]) -> None:
    line = json.loads(recorded[0].read_text())
    assert set(ROW_KEYS) <= set(line)
    assert line["provenance"] == {"host": "there"}


def test_a_recording_from_before_there_were_blocks_is_one_block_for_each_of_its_problems() -> None:
    found = recordings.recordings("laptop_overlap_2_ranks")
    blocks = {entry.measurement.trial.problem: entry.measurement.block for entry in found}
    assert len(set(blocks.values())) == len(blocks) == 7
    assert all(entry.measurement.block == blocks[entry.measurement.trial.problem] for entry in found)
    assert {sample.block for entry in found for sample in entry.samples} == set(blocks.values())
    ladder = {entry.measurement.block for entry in recordings.recordings("laptop_ladder_pieces_and_slices")}
    assert not ladder & set(blocks.values())


def test_two_recordings_of_one_problem_are_two_blocks() -> None:
    """The ways of two H200s were timed in another sitting than their layers: no ratio reaches from one to the other."""
    names = ("h200_nvl2_layers", "h200_nvl2_ways")
    found = [(name, metrics.row_of(entry.measurement)) for name in names for entry in recordings.recordings(name)]
    filled = metrics.fill([row for _, row in found])
    for name in names:
        mine = [row for (other, _), row in zip(found, filled, strict=True) if other == name]
        alone = metrics.fill([row for other, row in found if other == name])
        assert [row["sequential_s"] for row in mine] == [row["sequential_s"] for row in alone]


@pytest.mark.slow(keeps=6)
@pytest.mark.parametrize("name", recordings.paths())
def test_recorded_keys_are_what_the_same_questions_have_today(name: str) -> None:
    """An axis that came later is named in rows, and not in keys."""
    lines = [json.loads(line) for line in recordings.paths()[name].read_text().splitlines()]
    for line in lines:
        trial = Trial.from_json(line["trial"])
        assert trial.key == line["key"]
        unnamed = OMITTED_DEFAULTS.get(trial.schedule.scheme, {})
        axes = tuple({**unnamed, **line["axes"]}.items())
        assert replace(trial, schedule=Schedule(trial.schedule.scheme, axes)).key == line["key"]
        assert not unnamed.items() & dict(trial.schedule.axes).items()


def test_rows_name_who_computes_where_that_can_be_chosen() -> None:
    def said(name: str, operator: str) -> set[str | None]:
        rows = [metrics.row_of(entry.measurement) for entry in recordings.recordings(name)]
        return {
            row["axes"].get("kernel") for row in rows if row["scheme"] == "sequential" and row["operator"] == operator
        }

    assert said("h200_nvl4_gemv_and_embedding", "gemv_all_reduce") == {"library"}
    assert said("h200_nvl4_gemv_and_embedding", "embedding_all_to_all") == {None}
    assert said("laptop_overlap_2_ranks", "gemm_all_to_all") == {None}


def test_torch_s_overlapped_operators_stay_readable_as_the_decomposed_schedules_that_they_were() -> None:
    found = recordings.recordings("h200_nvl2_ways")
    decomposed = [entry for entry in found if entry.measurement.trial.schedule.scheme == "decomposed"]
    assert len(decomposed) == 6
    player = FromRecordings(found, speed=None)
    for entry in decomposed:
        trial = entry.measurement.trial
        assert player.absence(trial) is None
        assert entry.measurement in [
            replace(one, source="recorded") for one in player.answer([trial], threading.Event())
            if isinstance(one, Measurement)
        ]  # fmt: skip
        assert expand(trial.problem, trial.schedule).wire_bytes(0) > 0


def test_a_broken_line_is_named(recorded: tuple[Path, Measurement]) -> None:
    path, _ = recorded
    path.write_text(path.read_text() + '{"trial": 3}\n')
    with pytest.raises(ValueError, match=r"run\.jsonl line 2 is not a recorded trial"):
        recordings.read(path)


FITS = (0, 3, 1e-3, 1e9)
ODD = (True, -1, 0, 2**70, 10**400, 2**62, float("nan"), float("inf"), 250e9, 249e9, "0", None, 0.5, [], {})


@pytest.mark.parametrize("entries", [
    *([FITS, (*FITS[:at], odd, *FITS[at + 1 :])] for at in range(4) for odd in ODD), [FITS], [list(FITS)], [], ["abcd"],
    [FITS[:3]], [(*FITS, 1)], [dict.fromkeys(FITS)], [FITS, 4], [(0, 0, 1, 1)],
], ids=str)  # fmt: skip
def test_samples_are_accepted_by_columns_as_each_is_by_itself(entries: list) -> None:
    def fits(entry: object) -> bool:
        try:
            decode.check_sample(entry)
        except decode.WrongForm:
            return False
        return True

    assert decode._are_samples(entries) is (bool(entries) and all(map(fits, entries)))


def test_a_rank_without_samples_is_no_measurement(recorded: tuple[Path, Measurement]) -> None:
    path, _ = recorded
    line = json.loads(path.read_text())
    line["raw"] = [entry for entry in line["raw"] if entry[0] == 0]
    path.write_text(json.dumps(line))
    with pytest.raises(ValueError, match="rank 1 of 2 has no samples"):
        recordings.read(path)


def test_a_recording_that_is_not_there_is_told_from_those_that_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "recordings").mkdir()
    (tmp_path / "recordings" / "h200.jsonl").write_text("")
    monkeypatch.setattr(resources, "data_directory", lambda: tmp_path)
    assert recordings.recordings("h200") == []
    with pytest.raises(ValueError, match=r"There is no recording 'nope'\. Accepted: .*one of h200"):
        recordings.recordings("nope")


def test_a_shipped_recording_is_read_again_when_its_file_is_written_again(
    recorded: tuple[Path, Measurement], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _ = recorded
    monkeypatch.setattr(recordings, "paths", lambda: {path.stem: path})
    (first,), (again,) = recordings.shipped()[path.stem], recordings.recordings(path.stem)
    assert again is first
    path.write_text(path.read_text() * 2)
    os.utime(path, ns=(1, 1))
    assert len(recordings.shipped()[path.stem]) == 2


@pytest.mark.slow
def test_each_shipped_recording_has_one_question_and_says_what_a_replay_shows(store: Store) -> None:
    questions = tomllib.loads((resources.data_directory() / "recordings" / "about.toml").read_text())
    assert questions.keys() == recordings.paths().keys()
    assert all(text.count("?") == 1 and text.endswith("?") for text in map(str, questions.values()))
    summaries = recordings.summaries()
    for summary in summaries:
        replay = Replay(recordings.recordings(summary.name), store)
        assert summary.schedules == replay.progress.total > 0, summary.name
    assert set(recordings.paths()) - {each.name for each in summaries} == {"h200_nvl2_alone"}, "no whole schedule"


def test_the_recording_that_is_offered_first_compares_schemes_of_a_problem_with_timelines_and_is_short() -> None:
    """What the page shows of it, the fastest schedule of its first problem, has a timeline."""
    first = FromRecordings(recordings.recordings(recordings.summaries()[0].name))
    whole = [entry for entry in first.entries if entry.measurement.trial.part == "whole"]
    shown = [entry for entry in whole if entry.measurement.trial.problem == whole[0].measurement.trial.problem]
    drawn = {entry.measurement.trial.schedule for entry in shown if entry.measurement.spans}  # in any of its blocks
    assert min(shown, key=lambda entry: entry.measurement.time_s).measurement.trial.schedule in drawn
    assert {schedule.scheme for schedule in drawn} >= {BASELINE, "fused"}
    times = [sample.at for entry in whole for sample in entry.samples]
    assert sum(min(max(0.0, later - at), 1.0) for at, later in pairwise(times)) < 60


def test_a_run_without_measurements_cannot_be_recorded(store: Store, tmp_path: Path) -> None:
    run = store.begin_run({}, {})
    with pytest.raises(ValueError, match="0 measurements"):
        recordings.write(store, run, tmp_path / "run.jsonl")


@pytest.mark.slow
def test_every_shipped_recording_can_be_read() -> None:
    for path in recordings.paths().values():
        assert recordings.read(path), f"{path.name} is empty"


@pytest.mark.slow(keeps=1)
@pytest.mark.parametrize("name", [name for name in recordings.paths() if name.startswith("h200")])
def test_what_gpus_measured_is_right_and_above_its_floor(name: str) -> None:
    found = recordings.recordings(name)
    machine = machine_named(found[0].measurement.trial.machine)
    rows = metrics.fill([metrics.row_of(entry.measurement, machine=machine) for entry in found])
    whole = [row for row in rows if row["part"] == "whole"]
    assert whole or {row["world"] for row in rows} == {1}, "one rank has parts alone"
    assert all(row["correct"] for row in whole)
    floored = [row for row in whole if row["floor_s"]]
    assert not whole or bool(floored) == any(row["part"] == "compute" for row in rows), "a floor needs a computation"
    assert all(row["floor_s"] < row["time_s"] for row in floored)
    assert {row["source"] for row in rows} == {"recorded"}
    assert all(entry.provenance["versions"]["triton"] and entry.provenance["gpus"] for entry in found)


FACTS = {"seed": 5, "operand_sets": 64, "nccl": {"NCCL_GRAPH_REGISTER": "0"}}


def test_what_the_devices_said_comes_back_and_is_no_column(
    store: Store, make_trial: MakeTrial, measure: Measure, tmp_path: Path
) -> None:
    said = ({"rank": 0, "block": 0, "sm_clock_mhz": 1755, "throttled": ["power cap"]},)
    measured, run = replace(measure(make_trial("fused")), conditions=said, facts=FACTS), store.begin_run({}, {})
    samples = [Sample(measured.trial.key, rank, index, seconds, 100.0 + index)
               for rank, mine in enumerate(measured.samples) for index, seconds in enumerate(mine)]  # fmt: skip
    store.add_outcome(run, measured, metrics.row_of(measured, run), samples=samples)
    path = recordings.write(store, run, tmp_path / "run.jsonl")
    assert json.loads(path.read_text())["conditions"] == list(said)
    again = recordings.read(path)[0].measurement
    assert (again.conditions, again.facts) == (said, FACTS)
    assert all("conditions" not in row and "facts" not in row for row in store.rows(run))
    assert store.timed_how(run) == [{"conditions": list(said), "facts": FACTS}]
    assert store.measurement(store.rows(run)[0]["id"]).facts == FACTS


def test_a_recording_names_no_login_unless_it_is_asked_for(
    recorded: tuple[Path, Measurement], store: Store, tmp_path: Path
) -> None:
    asked = recordings.write(store, store.run("last")["id"], tmp_path / "asked.jsonl", login=True)
    for path, known in ((recorded[0], {"there"}), (asked, {"there", "ada"})):
        provenance = json.loads(path.read_text())["provenance"]
        assert {provenance.get("host"), provenance.get("user")} - {None} == known


def test_a_replay_counts_as_many_schedules_as_it_plays(store: Store) -> None:
    """Baselines of a first block are of another protocol: 74 of 59 schedules were done."""
    replay = Replay(recordings.recordings("h200_nvl2_gemm"), store, speed=None)
    list(replay)
    assert replay.progress.done == replay.progress.total > 0


# Headlines: what a search looks at, without reading samples.


@pytest.mark.parametrize("operator", ["gemm_all_to_all", "embedding_all_to_all"])
def test_a_headline_is_the_line_without_its_samples(operator: str) -> None:
    """Also of files that are older than blocks, whose blocks are named after the problems of the whole file."""
    lines = recordings.headlines(operator)
    for name, entries in recordings.shipped().items():
        of_operator = [each for each in entries if each.measurement.trial.problem.operator == operator]
        assert len(lines[name]) == len(of_operator)
        for line, entry in list(zip(lines[name], of_operator, strict=True))[::25]:
            assert (line.name, line.block, line.row["time_s"]) == (name, entry.measurement.block, line.row["time_s"])
            assert line.row["key"] == entry.measurement.trial.key
            alone = line.recorded()
            with_block = replace(alone, measurement=replace(alone.measurement, conditions=entry.measurement.conditions))
            assert with_block == entry, "the readings of its block may be in another line"
    assert any("block" not in line.row for line in lines["h200_nvl4_gemm"]) == (operator == "gemm_all_to_all")


def test_a_headline_is_read_in_whatever_order_its_keys_are(
    recorded: tuple[Path, Measurement], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, measured = recorded
    line = json.loads(path.read_text())
    path.write_text(json.dumps(dict(reversed(line.items()))))
    monkeypatch.setattr(recordings, "paths", lambda: {"run": path})
    ((headline,),) = recordings.headlines(measured.trial.problem.operator).values()
    assert headline.recorded().measurement.samples == measured.samples
    assert recordings.headlines("gemv_all_reduce") == {"run": ()}
    path.write_text('{"shape": 3}')
    os.utime(path, ns=(1, 1))  # another time than that of the lines that were read
    resources.begin()
    assert recordings.headlines(measured.trial.problem.operator) == {}
    assert f"{path} line 1 is not a recorded trial" in resources.messages()[0]
