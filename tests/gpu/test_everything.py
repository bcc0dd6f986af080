"""One command measures all that docs/results/ says of GPUs, in the seconds that it is given; tested without a GPU."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from kernels.outcome import BLOCK_KIND
from kernels.trial import Protocol
from tests.gpu import everything, tables
from tests.gpu.everything import LOG, STEPS, TARBALL, Step
from tests.gpu.standin_gangs import cpu_bench
from tests.gpu.test_sittings import RANKS

ROOT = Path(__file__).parents[2]
WRITES = "import sys,pathlib; pathlib.Path(sys.argv[1]).write_text(sys.argv[2] + '\\n'); print('said', sys.argv[2])"
CHILD = "import subprocess,sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); "


def step(name: str, code: str, *arguments: str, limit_s: float = 60.0) -> Step:
    return Step(name, code, arguments, limit_s)


@pytest.fixture
def in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step's module is code instead."""
    usual = everything.command

    def command(one: Step, data: Path, machine: str, limit_s: float) -> list[str]:
        python, _, code, *arguments = usual(one, data, machine, limit_s)
        return [python, "-c", code, *arguments]

    monkeypatch.setattr(everything, "command", command)


def names(tarball: Path) -> list[str]:
    with tarfile.open(tarball) as archive:
        return archive.getnames()


@pytest.mark.usefixtures("in_python")
def test_steps_follow_each_other_and_what_was_measured_is_packed_after_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = [
        step("table", WRITES, "{data}/recordings/{machine}_t.jsonl", "{seconds}"),
        step("broken", "raise SystemExit(3)"),
        step("hangs", CHILD + "import time; time.sleep(600)", limit_s=1.0),
        step("probe", WRITES, "{data}/probes/{machine}_p.json", "last"),
    ]
    begin = time.monotonic()
    assert not everything.everything(steps, tmp_path, 500.0, "h200_nvl2")
    assert time.monotonic() - begin < 300.0, "one that hangs is stopped, with its children"
    said = capsys.readouterr().out.splitlines()
    ended = [line.rpartition(",")[0] for line in said]
    assert ended == ["table: done", "broken: exit status 3", "hangs: stopped after 1 s", "probe: done"]
    assert names(tmp_path / TARBALL) == ["probes/h200_nvl2_p.json", "recordings/h200_nvl2_t.jsonl"]
    log = (tmp_path / LOG).read_text()
    assert "said 52" in log, "a table is told its limit without what starting takes"
    assert "#### broken: exit status 3" in log


def test_an_empty_table_is_not_packed(tmp_path: Path) -> None:
    (tmp_path / "data" / "recordings").mkdir(parents=True)
    for name, text in (("none.jsonl", ""), ("some.jsonl", "{}\n")):
        (tmp_path / "data" / "recordings" / name).write_text(text)
    everything.pack(tmp_path / "data", tmp_path / TARBALL)
    assert names(tmp_path / TARBALL) == ["recordings/some.jsonl"]


@pytest.mark.usefixtures("in_python")
def test_a_step_that_has_too_few_seconds_left_does_not_begin(tmp_path: Path) -> None:
    begin = time.monotonic()
    assert not everything.everything([step("late", "import time; time.sleep(600)")], tmp_path, 15.0, "h200_nvl2")
    assert time.monotonic() - begin < 10.0
    assert "late: did not begin: 10 s were left" in (tmp_path / LOG).read_text()


def test_its_steps_fit_two_runs_of_ten_minutes_and_name_what_exists() -> None:
    assert sum(one.limit_s for one in STEPS) < 2 * 600
    for one in STEPS:
        assert (ROOT / Path(*one.module.split("."))).with_suffix(".py").is_file()
        if one.module == "tests.gpu.tables":
            plain, _, how = one.name.partition("@")
            assert plain in tables.TABLES
            assert how in tables.HOW
    assert set(tables.USUAL) == {one.name for one in STEPS if one.module == "tests.gpu.tables"}


BLOCKED = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("dask", "distributed", "pandas", "altair", "ipywidgets", "typer"):
            raise ImportError(f"{name} is not on a GPU host")
sys.meta_path.insert(0, Blocked())
import tests.gpu.everything, tests.gpu.tables, tests.gpu.stamps, tests.gpu.litmus, tests.gpu.playground
print("imported")
"""


@pytest.mark.slow
def test_what_measures_needs_neither_dask_nor_what_draws() -> None:
    found = subprocess.run([sys.executable, "-c", BLOCKED], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert found.stdout.split() == ["imported"], found.stderr


@pytest.mark.slow
def test_a_table_is_measured_by_real_processes_block_after_block(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """CPU ranks take the place of GPUs: the same conversation, bench, recording and limits."""
    from dataclasses import replace

    from kernels.fabric import parse
    from kernels.operators import problem
    from tests.gpu.sittings import Question
    from workbench.machines import shipped_machine
    from workbench.results import recordings

    ranks = replace(RANKS, machine=shipped_machine("laptop_cpu"), fabric=parse("shared_memory"))
    asked = [problem("gemm_all_to_all", {"m": 128, "n": 64, "k": k}, world=2, dtype="float32") for k in (32, 64)]
    questions = [Question(one, ({"slice_tiles": 1},)) for one in asked]
    table = tables.Table("cpu_t", questions, Protocol(name="device", warmups=1, repeats=6), ranks)
    path = tmp_path / "cpu_t.jsonl"
    assert tables.measure(table, path, 240.0, cpu_bench), capsys.readouterr().out
    found = recordings.read(path)
    blocks = list(dict.fromkeys(each.measurement.block for each in found))
    assert len(blocks) == 6
    kinds = {each.measurement.block: each.measurement.facts[BLOCK_KIND] for each in found}
    assert [kinds[block] for block in blocks] == ["first", "further", "last"] * 2
    for block in blocks:
        mine = [each.measurement for each in found if each.measurement.block == block]
        wholes = {each.trial.schedule.scheme for each in mine if each.trial.part == "whole"}
        assert wholes == ({"sequential"} if mine[0].trial.protocol.name == "first_device" else {"sequential", "fused"})
        assert len({each.trial.problem for each in mine}) == 1
    said = capsys.readouterr().out
    assert "== cpu_t gemm_all_to_all 128x64x32: " in said
    assert "## cpu_t: 2 of 2 problems" in said
    assert all(json.loads(line)["provenance"]["git_commit"] for line in path.read_text().splitlines())


def test_a_table_that_has_no_time_left_names_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables.gang, "BEGIN_S", 1e9)
    table = tables.Table("t", list(tables.gemm(2)), tables.DEVICE, RANKS)
    assert not tables.measure(table, tmp_path / "t.jsonl", 0.0)
    said = capsys.readouterr().out
    assert "## t: 0 of 5 problems" in said
    assert "Without a ratio in a last block: gemm_all_to_all 8192x4096x1792; " in said


@pytest.mark.parametrize(
    ("count", "name", "machine"),
    [
        (2, "NVIDIA H100 80GB HBM3", "h100_nvl2"),
        (3, "NVIDIA H100 80GB HBM3", "h100_nvl8"),
        (2, "NVIDIA H200", "h200_nvl2"),
        (3, "NVIDIA H200", "h200_nvl4"),
    ],
)
def test_gpus_are_the_smallest_machine_that_holds_them(
    count: int, name: str, machine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: count)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda _: name)
    assert tables.machine_here().name == machine
