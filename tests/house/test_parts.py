"""`make test-all` runs every test once, in one of two parts, and its status is that of both; `make test` fewer."""

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import ALONE, leave_out, pytest_ignore_collect, select_part
from tests.parts import (
    AGAIN,
    FAILED,
    NO_TESTS,
    PLAIN,
    PROCESSES_MOST,
    TOGETHER,
    TRITON,
    UNCOMPILED,
    Scheduling,
    calls,
    main,
    status,
)


@pytest.mark.parametrize(
    ("statuses", "both"),
    [
        ([0, 0], 0), ([1, 0], 1), ([0, 1], 1), ([2], 2), ([4], 4),
        ([NO_TESTS, 0], 0), ([0, NO_TESTS], 0), ([NO_TESTS, 1], 1), ([1, NO_TESTS], 1),
        ([NO_TESTS, NO_TESTS], NO_TESTS),
    ],
)  # fmt: skip
def test_a_part_without_tests_passes_and_one_that_fails_is_the_status(statuses: list[int], both: int) -> None:
    assert status(statuses) == both


@pytest.mark.parametrize(("first", "runs"), [(0, 2), (FAILED, 3)])
def test_what_failed_runs_once_more_with_its_values_and_has_failed_all_the_same(
    first: int, runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls_made: list[tuple[list[str], dict[str, str]]] = []

    def run(command: list[str], env: dict[str, str]) -> Any:
        calls_made.append((command, env))
        return SimpleNamespace(returncode=first if len(calls_made) == 1 else 0)  # a test that fails now and then

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setenv(UNCOMPILED, "1")
    assert main(["tests/cluster"]) == first
    assert len(calls_made) == runs
    assert [command[-1] for command, _ in calls_made] == [PLAIN, *[AGAIN] * (runs - 2), PLAIN]
    assert all(UNCOMPILED not in environment and environment["PATH"] for _, environment in calls_made)


def test_files_with_slow_tests_come_first_and_keep_their_order() -> None:
    named = [("quick.py", ()), ("slow.py", ()), ("slow.py", ("slow",)), ("other.py", ()), ("late.py", ("slow",))]
    items = [SimpleNamespace(path=file, number=number, get_closest_marker=lambda name, of=marks: name in of or None)
             for number, (file, marks) in enumerate(named)]  # fmt: skip
    hook = SimpleNamespace(pytest_deselected=lambda items: None)
    select_part(SimpleNamespace(getoption=lambda _: "together", hook=hook), items)  # type: ignore[arg-type]
    assert [item.number for item in items] == [1, 2, 4, 0, 3]


@pytest.mark.parametrize(("quick", "left"), [(True, ["a[1]", "b[x]", "b[y]", "c", "d"]), (False, None)])
def test_of_slow_tests_the_first_cases_are_run_that_their_mark_keeps(quick: bool, left: list[str] | None) -> None:
    """`make test` is quick; `make test-all`, and a test that is asked for by name, run all cases."""
    slow = {"a": {"keeps": 1}, "b": {"keeps": 2}, "long": {}}
    names = ["a[1]", "b[x]", "a[2]", "b[y]", "long", "b[z]", "c", "a[3]", "d"]

    def test_called(name: str) -> Any:
        keeps = slow.get(name.partition("[")[0])
        mark = None if keeps is None else SimpleNamespace(kwargs=keeps)
        return SimpleNamespace(path=Path("test_it.py"), name=name, get_closest_marker={"slow": mark}.get)

    items = [test_called(name) for name in names]
    dropped: list[Any] = []
    hook = SimpleNamespace(pytest_deselected=lambda items: dropped.extend(items))
    leave_out(SimpleNamespace(getoption=lambda _: quick, hook=hook), items)  # type: ignore[arg-type]
    assert sorted(item.name for item in items) == (left or sorted(names))
    assert len(items) + len(dropped) == len(names)


def test_files_that_need_the_same_run_in_one_process(root: Path) -> None:
    listed = [file for files in TOGETHER for file in files]
    assert all((root / file).exists() for file in listed)
    assert len(set(listed)) == len(listed)
    others = ("tests/analysis/test_claims.py", "tests/gpu/test_ways.py")
    scheduling = Scheduling.__new__(Scheduling)  # without a session that has processes
    scopes = {file: scheduling._split_scope(f"{file}::test_of_it[1-2]") for file in (*listed, *others)}
    for files in TOGETHER:
        assert {scopes[file] for file in files} == {files[0]}
    assert [scopes[file] for file in others] == [*others]


def test_files_that_need_a_gang_of_interpreted_ranks_are_together(root: Path) -> None:
    """One that was left out would start all six ranks again, unnoticed."""
    folder = root / TRITON
    needs = {file for file in folder.rglob("test_*.py") if "dict[int, InterpretedGang]" in file.read_text()}
    assert needs
    assert {str(file.relative_to(root)) for file in needs} <= set(TOGETHER[1])


def test_only_the_first_part_has_several_processes_and_both_have_what_a_person_says() -> None:
    together, alone = calls(2, ["tests/cluster", "-k", "hang"])
    assert "--numprocesses=2" in together
    assert not any(word.startswith("--numprocesses") for word in alone)
    assert together[-3:] == alone[-3:] == ["tests/cluster", "-k", "hang"]
    assert f"--numprocesses={PROCESSES_MOST}" in calls(64, [])[0]


def test_the_part_that_is_alone_reads_every_file_that_marks_a_test_so(tmp_path: Path) -> None:
    marked, other = tmp_path / "test_marked.py", tmp_path / "test_other.py"
    marked.write_text(f"pytestmark = [pytest.{ALONE}]\n")
    other.write_text("def test_that_reads_alone() -> None: ...\n")
    for part, kept in (("alone", [True, None]), ("together", [None, None]), ("all", [None, None])):
        config = SimpleNamespace(getoption=lambda _, part=part: part)
        ignored = [pytest_ignore_collect(path, config) for path in (other, marked, tmp_path)]  # type: ignore[arg-type]
        assert ignored == [*kept, None]


@pytest.mark.parametrize(
    ("file", "markers", "alone"),
    [
        ("kernels/test_plan.py", (), False), ("kernels/test_plan.py", ("slow",), False),
        ("kernels/test_plan.py", ("alone",), True), ("reports/test_pdf.py", ("browser",), False),
        ("cluster/test_rank.py", ("slow",), False), ("browser/test_explorer.py", ("alone", "browser"), True),
    ],
)  # fmt: skip
def test_every_test_is_in_one_of_the_parts(root: Path, file: str, markers: tuple[str, ...], alone: bool) -> None:
    dropped: list[Any] = []
    hook = SimpleNamespace(pytest_deselected=lambda items: dropped.extend(items))
    item = SimpleNamespace(
        path=root / "tests" / file, get_closest_marker=lambda name: name if name in markers else None
    )
    for part in ("alone", "together"):
        left, before = [item], len(dropped)
        select_part(SimpleNamespace(getoption=lambda _, part=part: part, hook=hook), left)
        assert (left == [item]) == (alone == (part == "alone")) == (len(dropped) == before)
