"""A report with its files can be checked and measured again from them alone, and destroys nothing of others."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from kernels import machine as machines_of
from kernels.operators import problem
from workbench.experiment.experiment import Experiment, Search
from workbench.experiment.question import Request, load, space_text
from workbench.reports import archive
from workbench.reports.run_report import NO_COMMAND, stored_report
from workbench.results.files import FileTarget
from workbench.results.store import Store

CFF_KEYS = {
    *("abstract", "authors", "cff-version", "commit", "contact", "date-released", "doi", "identifiers", "keywords"),
    *("license", "license-url", "message", "preferred-citation", "references", "repository", "repository-artifact"),
    *("repository-code", "title", "type", "url", "version"),
}
"""The keys that the schema of the Citation File Format 1.2.0 knows."""
CFF_NEEDED = {"authors", "cff-version", "message", "title"}


@pytest.fixture
def laptop_run(store: Store, fake_cluster: Any, measure_it: Callable[[Any], Any]) -> str:
    request = Request(operator="gemm_all_to_all", preset="laptop_overlap", settings=(("slice_tiles", ("1", "2")),),
                      schemes=("sequential", "fused"))  # fmt: skip
    return str(measure_it(request.experiment(fresh=True)).run)


@pytest.fixture
def content(store: Store, laptop_run: str) -> dict[str, bytes]:
    return archive.parts(store, laptop_run, stored_report(store, laptop_run))


def trial_keys(experiment: Experiment, of: Any) -> set[str]:
    return {experiment.trial(one, schedule, experiment.fabric).key
            for one in experiment.problems for schedule in experiment.points(one, of).schedules}  # fmt: skip


def test_the_files_have_the_rows_the_machine_the_command_and_the_question(
    store: Store, laptop_run: str, content: dict[str, bytes], tmp_path: Path
) -> None:
    assert content[archive.REPORT].startswith(b"<!DOCTYPE html>")
    rows = pd.read_parquet(io.BytesIO(content[archive.ROWS]))
    assert len(rows) == len(store.rows(laptop_run))
    assert {"speed_up", "verdict", "time_s", "slice_tiles"} <= set(rows.columns)
    again = content[archive.AGAIN].decode()
    assert "\nworkbench run gemm_all_to_all --shape" in again
    (tmp_path / "laptop_cpu.toml").write_bytes(content["machine_laptop_cpu.toml"])
    assert machines_of.load(tmp_path / "laptop_cpu.toml").name == "laptop_cpu"


def test_the_question_is_read_back_as_the_same_trials(
    store: Store, laptop_run: str, content: dict[str, bytes], tmp_path: Path, machine: Any
) -> None:
    path = tmp_path / archive.QUESTION
    path.write_bytes(content[archive.QUESTION])
    asked, read = Experiment.from_json(store.run(laptop_run)["experiment"]), load(path)
    assert trial_keys(read, machine) == trial_keys(asked, machine)
    assert (read.search, read.parts, read.title) == (asked.search, asked.parts, asked.title)


def test_lists_of_sizes_and_a_search_are_read_back_and_other_problems_have_no_file(tmp_path: Path) -> None:
    one = Request(operator="gemm_all_to_all", preset="laptop_overlap").experiment()
    sizes = [problem("gemm_all_to_all", {"m": m, "n": n, "k": 512}, world=2) for m in (512, 1024) for n in (256, 512)]
    several = replace(
        one, problems=tuple(sizes), search=Search(kind="random", count=5, seed=3), title='a "title" of “two”\nlines'
    )
    path = tmp_path / "space.toml"
    path.write_text(space_text(several.to_json()))
    read = load(path)
    assert (set(read.problems), read.search, read.title) == (set(sizes), several.search, several.title)
    assert space_text(replace(one, problems=tuple(sizes[:3])).to_json()) == ""
    assert space_text({"replay": "h200_nvl2_gemm"}) == ""


def test_the_citation_is_valid_and_names_nobody_unless_it_is_wanted(store: Store, laptop_run: str) -> None:
    run = {**store.run(laptop_run), "title": 'GEMM: "fused"\n- not: yaml'}
    run["provenance"] = {**run["provenance"], "user": "lovelace"}
    yaml = pytest.importorskip("yaml")
    work = yaml.safe_load(archive.citation(run))
    assert CFF_NEEDED <= set(work) <= CFF_KEYS
    assert (work["cff-version"], work["type"], work["version"]) == ("1.2.0", "dataset", laptop_run)
    assert work["title"] == f'GEMM: "fused" - not: yaml, run {laptop_run}'
    (software,) = work["references"]
    assert {"authors", "title", "type"} <= set(software)
    assert software["version"] == run["provenance"]["versions"]["overlap-workbench"]
    assert "lovelace" not in json.dumps(work)
    assert yaml.safe_load(archive.citation(run, login=True))["authors"][0]["alias"] == "lovelace"


@pytest.mark.slow
def test_a_replay_says_that_no_command_measures_it(store: Store, content: dict[str, bytes], laptop_run: str) -> None:
    store.add_facts(laptop_run, {"machine": "laptop_cpu", "machine_digest": "0ther"})
    with_other = archive.parts(store, laptop_run, stored_report(store, laptop_run))[archive.AGAIN].decode()
    assert "# The description of laptop_cpu was 0ther when this was measured" in with_other
    replay = archive._again({"id": "r", "title": "t", "experiment": {"replay": "x"}, "provenance": {}}, {},
                           has_question=False)  # fmt: skip
    assert NO_COMMAND in replay
    assert not [line for line in replay.splitlines() if not line.startswith("#")]


def test_a_zip_and_a_folder_hold_the_same_and_a_second_one_replaces_the_first(
    content: dict[str, bytes], tmp_path: Path
) -> None:
    for _ in range(2):
        packed = archive.write_zip(FileTarget(tmp_path / "run.zip"), content)
        folder = archive.write_folder(FileTarget(tmp_path / "run"), content)
    with zipfile.ZipFile(packed) as opened:
        assert {name: opened.read(name) for name in opened.namelist()} == content
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == content


def test_nothing_of_somebody_else_is_replaced_and_nothing_is_half_written(
    content: dict[str, bytes], tmp_path: Path
) -> None:
    (tmp_path / "theirs.zip").write_bytes(b"PK somebody's")
    with pytest.raises(ValueError, match="is not a report with its files of the workbench"):
        archive.write_zip(FileTarget(tmp_path / "theirs.zip"), content)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / archive.CITATION).write_text("their citation")
    with pytest.raises(ValueError, match=r"CITATION\.cff: the file that is there is not a file of a report"):
        archive.write_folder(FileTarget(tmp_path / "run"), content)
    assert [path.name for path in (tmp_path / "run").iterdir()] == [archive.CITATION]
    (tmp_path / "file").write_text("x")
    with pytest.raises(ValueError, match="cannot be written to"):
        archive.write_folder(FileTarget(tmp_path / "file"), content)
    with pytest.raises(ValueError, match="cannot be written to"):
        archive.write_folder(FileTarget(tmp_path / "missing" / "run"), content)


@pytest.mark.slow
def test_what_is_read_is_never_replaced(store: Store, content: dict[str, bytes], tmp_path: Path) -> None:
    folder = FileTarget(store.path.parent, (store.path.with_name(archive.ROWS),), force=True)
    store.path.with_name(archive.ROWS).write_bytes(content[archive.ROWS])
    with pytest.raises(ValueError, match="that would destroy"):
        archive.write_folder(folder, content)


def test_no_text_of_an_imported_file_becomes_a_command() -> None:
    run = {"id": "r", "title": "a\ntouch OWNED\x85b", "experiment": {},
           "provenance": {"machine": "m", "machine_digest": "abc\ntouch OWNED\n#"}}  # fmt: skip
    lines = archive._again(run, {"m": ("", "0f")}, has_question=False).splitlines()
    assert "# The description of m was abc touch OWNED # when this was measured; the one here is 0f." in lines
    assert all(line.startswith("#") for line in lines)
