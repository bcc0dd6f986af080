"""What no file can be, and what no process can help: one sentence that names it, with the status that fits."""

import errno
import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from importlib import metadata
from pathlib import Path

import pytest

from cluster import connection as noise
from cluster import scheduler_file
from kernels import files
from workbench import cli, machines, resources
from workbench.cli import exit_status, missing
from workbench.results import recordings
from workbench.results.store import Store

(ENTRY,) = metadata.entry_points(group="console_scripts", name="workbench")
GEMM = ("gemm_all_to_all", "--shape", "m=256", "--shape", "n=128", "--shape", "k=64")
DEEP = "[" * 100_000 + "]" * 100_000
KIND = files.TextKind("space file", "a space", "a TOML file", most_bytes=1000)
KIND_OF_MEGABYTES = files.TextKind("space file", "a space", "a TOML file")

Refused = Callable[..., str]


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Refused:
    """refused(words...) -> the one line on stderr; with --json there is one failure document, too."""

    def run(*words: object, expected: int = 2) -> str:
        status = cli.status([str(word) for word in words])
        out, err = capsys.readouterr()
        assert (status, err.count("\n")) == (expected, 1), err
        assert out == "" or json.loads(out)["outcome"] == "failure"
        return err

    return run


@pytest.fixture(params=["device", "pipe", "deep", "long", "folder", "huge"])
def hostile(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A path that must not be read, or not read on."""
    path = tmp_path / f"{request.param}.ipynb"
    match request.param:
        case "device":
            path.symlink_to("/dev/zero")
        case "pipe":
            os.mkfifo(path)
        case "deep":
            path.write_text(DEEP)
        case "long":
            path = tmp_path / ("x" * 300 + ".ipynb")
        case "folder":
            path.mkdir()
        case "huge":
            with path.open("wb") as file:
                file.truncate(3 * 2**30)
    return path


INPUTS: dict[str, Callable[[Path], tuple[object, ...]]] = {
    "space": lambda path: ("sweep", path, "--json"),
    "notebook": lambda path: ("report", path, "-o", path.with_name("report.html")),
    "recording": lambda path: ("validate", "--recording", path),
    "probes": lambda path: ("calibrate", "--probes", path),
    "scheduler": lambda path: ("cluster", "status", "--cluster", path),
}


@pytest.mark.slow(keeps=27)
@pytest.mark.parametrize("words", INPUTS.values(), ids=INPUTS)
def test_an_input_file_that_has_no_end_or_no_bottom(
    words: Callable[[Path], tuple[object, ...]], hostile: Path, refused: Refused
) -> None:
    assert hostile.name in refused(*words(hostile))


@pytest.mark.parametrize("kind", ["device", "pipe"])
def test_a_store_that_is_no_file(kind: str, tmp_path: Path, refused: Refused) -> None:
    path = tmp_path / "store.sqlite"
    path.symlink_to("/dev/zero") if kind == "device" else os.mkfifo(path)
    assert f"The store {path} cannot be opened: it is a device or a pipe and no file." in refused(
        "runs", "--store", path
    )


@pytest.mark.parametrize("version", [-1, -5, -(2**31)])
def test_a_store_of_a_negative_version_is_named_and_left_alone(version: int, tmp_path: Path, refused: Refused) -> None:
    path = tmp_path / "store.sqlite"
    Store(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    content = path.read_bytes()
    assert f"{path} has version {version}, which no workbench writes: {version} < 0." in refused(
        "runs", "--store", path
    )
    assert path.read_bytes() == content


def test_a_file_larger_than_its_kind_may_be_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "space.toml"
    path.write_text("#" * 1001)
    with pytest.raises(ValueError, match=r"space\.toml cannot be read as a space: it has 1 kB, and at most 1 kB are"):
        files.text(path, KIND)
    path.write_text("#" * 1000)
    assert files.toml(path, KIND) == {}


@pytest.mark.parametrize("content", ["a = " + "[" * 70 + "]" * 70])
def test_what_is_nested_too_deeply_to_be_walked_is_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / "space.toml"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"space\.toml cannot be read as a space: its brackets are nested more than"):
        files.toml(path, KIND)


@pytest.mark.parametrize(
    "key",
    ["a." * 20_000 + "a", "[" + ".".join("a" * 90) + "]", "x = {" + "a . " * 70, '"a".' * 70, r'"a\"b".' * 20_000],
)
def test_a_key_of_thousands_of_parts_is_refused_within_a_second(key: str, tmp_path: Path) -> None:
    path = tmp_path / "space.toml"
    path.write_text(f"{key} = 1")
    began = time.monotonic()
    with pytest.raises(
        ValueError, match=r"one of its keys has more than 64 parts between dots\. Accepted: a TOML file"
    ):
        resources.toml(path, KIND_OF_MEGABYTES)
    assert time.monotonic() - began < 1


DOTS = "a." * 90 + "a"


@pytest.mark.parametrize("text", [f'"{DOTS}"', f"'{DOTS}'", f'"""\n{DOTS}"""', f"'''\n{DOTS}'''", f"1 # {DOTS}"])
def test_a_text_with_many_dots_is_no_key(text: str, tmp_path: Path) -> None:
    path = tmp_path / "space.toml"
    path.write_text(f"a = {text}")
    assert list(resources.toml(path, KIND)) == ["a"]


def test_toml_of_more_than_is_parsed_in_a_second_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "space.toml"
    path.write_text("x = [" + "1," * 2**20 + "]")
    with pytest.raises(ValueError, match=r"it has 2\.1 MB, and at most 262 kB of TOML are parsed"):
        resources.toml(path, KIND_OF_MEGABYTES)


def test_the_slowest_toml_of_that_size_takes_a_few_times_as_long_as_plain_keys(tmp_path: Path) -> None:
    """Dotted keys below a deep table, which the parser walks part by part; a ratio, since computers differ."""
    path, keys = tmp_path / "space.toml", f"[{'a.' * 62}a]\n"
    line = "b." * 62 + "k{} = 1\n"
    began = time.process_time()
    path.write_text("".join(f"k{number} = 1\n" for number in range(20_000)))
    assert len(resources.toml(path, KIND_OF_MEGABYTES)) == 20_000
    plain = time.process_time() - began
    path.write_text(keys + "".join(line.format(number) for number in range(resources.TOML_BYTES // 140)))
    began = time.process_time()
    with pytest.raises(ValueError, match="nested more than 64 levels deep"):
        resources.toml(path, KIND_OF_MEGABYTES)
    assert time.process_time() - began < 20 * plain, "about 8 times 0.25 s; with a megabyte it would be 32 times"


# One bad file stops nothing else


@pytest.fixture
def own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This person's machines and presets, and one damaged recording among those that are shipped."""
    for folder in ("machines", "problems"):
        (tmp_path / folder).mkdir()
    for module in ("machines", "machines.presets"):
        monkeypatch.setattr(f"workbench.{module}.runs_directory", lambda: tmp_path)
    shipped = recordings.paths()
    (tmp_path / "damaged.jsonl").write_text("{\n")
    monkeypatch.setattr(recordings, "paths", lambda: {**shipped, "damaged": tmp_path / "damaged.jsonl"})
    return tmp_path


@pytest.mark.parametrize(("command", "folder"), [("machines", "machines"), ("presets", "problems")])
def test_a_list_goes_on_without_a_bad_file_and_says_so(
    command: str, folder: str, own_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (own_data / folder / "mine.toml").write_text("[[preset]")
    assert cli.status([command, "--json"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert found["summary"]["count"] == len(found["rows"]) > 5
    assert "mine.toml" in err
    assert found["summary"]["left_out"] == [err.strip()]


def test_the_winners_are_found_without_a_damaged_recording(own_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.status(["recommend", *GEMM, "--store", str(own_data / "none.sqlite")]) == 0
    assert "Left out: " in (err := capsys.readouterr().err)
    assert "damaged.jsonl line 1 is not a recorded trial" in err


def test_what_was_mended_is_no_longer_left_out(tmp_path: Path) -> None:
    def read(name: str) -> str:
        if name == broken:
            raise ValueError(f"{name} is broken.")
        return name

    resources.begin()
    broken = "b"
    assert list(resources.readable("abc", read)) == ["a", "c"]
    assert resources.messages() == ("Left out: b is broken.",)
    broken = ""
    assert list(resources.readable("abc", read)) == ["a", "b", "c"]
    assert resources.messages() == ()


# Options


OPTIONS = {
    "a power as a number": (("cluster", "up", "--set", "num_ranks=²"), "--set num_ranks=² does not fit"),
    "a million ranks": (("cluster", "up", "--set", "num_ranks=1000000"), "num_ranks = 1000000 is too large: 1,000,000"),
    "a number of many digits": (("cluster", "up", "--set", "gpus=" + "9" * 5000), "--set gpus=999"),
    "a lab of a million ranks": (("lab", "--no-browser", "--ranks", "1000000"), "num_ranks = 1000000 is too large"),
    "a world of a million": (
        ("predict", "gemm_all_to_all", "--shape", "m=1000000", "--shape", "n=8", "--shape", "k=8", "--world=1000000"),
        "world = 1000000 is too large: 1000000 > 65536. Accepted: 1 to 65536 ranks.",
    ),
    "pieces of many digits": (
        ("predict", *GEMM, "--scheme", "decomposed", "--set", "pieces=" + "9" * 5000), "pieces = 999",
    ),
    "a machine that is none": (("validate", "--machine", "nonsense"), "There is no machine 'nonsense'. Accepted: "),
    "a machine without recordings": (("validate", "--machine", machines.LAPTOP), "0 recordings are named. Accepted: "),
}  # fmt: skip


@pytest.mark.parametrize(("words", "sentence"), OPTIONS.values(), ids=OPTIONS)
def test_a_number_or_name_that_cannot_be(words: tuple[str, ...], sentence: str, refused: Refused) -> None:
    assert sentence in refused(*words)


SPACES = {
    "operator = []": "operator = [] is an empty list. Accepted: 1 value or more.",
    "operator = 'gemm_all_to_all'\npreset = 'tiny'\nworld = []": "world = [] is an empty list",
    "operator = 'gemm_all_to_all'\nshape = {m = [], n = 1, k = 1}": "m = [] is an empty list",
    "operator = 'gemm_all_to_all'\npreset = 'tiny'\ndtype = {a = 1}": "dtype = {'a': 1} does not fit",
    "operator = 'gemm_all_to_all'\npreset = 'tiny'\nscheme = {}": "scheme has 0 tables",
    "operator = 'gemm_all_to_all'\npreset = 'tiny'\nscheme.decomposed.pieces = []": "pieces = [] is an empty",
    "operator = 'gemm_all_to_all'\n[shape]\nm = {0}\nn = {0}\nk = {0}": "too many problems: 1,000,000 > 10,000",
    "operator = 'gemm'\npreset = 'tiny'": "There is no operator 'gemm'",
}


@pytest.mark.parametrize(("content", "sentence"), SPACES.items())
def test_a_space_that_cannot_be_is_named(content: str, sentence: str, tmp_path: Path, refused: Refused) -> None:
    path = tmp_path / "space.toml"
    path.write_text(content.replace("{0}", str(list(range(1, 101)))))
    assert sentence in (said := refused("sweep", path))
    assert said.startswith("space.toml")


# Errors of the system


def test_what_the_system_says_of_a_file_is_a_sentence(tmp_path: Path) -> None:
    read_only = OSError(errno.EROFS, os.strerror(errno.EROFS), "/state/file")
    said = "/state/file cannot be used: Read-only file system. Accepted: a place where you may write."
    assert (exit_status.message(read_only), exit_status.of_error(read_only)) == (said, 1)
    too_long = OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), "x" * 300)
    assert "a name in it is too long, 300 bytes of 255. Accepted: a shorter one." in exit_status.message(too_long)
    assert exit_status.of_error(too_long) == 2
    assert exit_status.message(ValueError("There is no a\nb\x1b[31m.")) == "There is no a b\\x1b[31m."


def test_a_calibration_that_cannot_be_written_measures_nothing(
    tmp_path: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    from workbench.experiment import calibration

    (tmp_path / "runs").write_text("a file where a folder should be")
    monkeypatch.setattr(calibration, "fit", lambda *_: pytest.fail("it was measured"))
    said = refused("calibrate", "--quick")
    assert f"The calibration cannot be written to {tmp_path / 'runs' / 'machines' / 'laptop_cpu.toml'}" in said


@pytest.mark.parametrize("content", ["{", "[]", '{"workbench": 3}', '{"workbench": {"pid": "x"}}', DEEP])
def test_a_damaged_record_of_a_cluster_is_no_cluster(
    content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler_file, "path", lambda: tmp_path / "scheduler.json")
    (tmp_path / "scheduler.json").write_text(content)
    assert scheduler_file.read() is None
    assert scheduler_file.running() is None


def test_what_dask_says_goes_into_a_file(tmp_path: Path) -> None:
    """In a process of its own, whose Dask has the handlers that it came with."""
    code = (
        "import asyncio, logging\nfrom distributed.comm.core import CommClosedError\nfrom cluster import connection\n"
        "connection.log_to_file(); connection.log_to_file()\n"
        "logging.getLogger('distributed.client').error('gone', exc_info=CommClosedError('in <TCP>'))\n"
        "logging.getLogger('distributed.worker').error('gone, too')\n"
        "logging.getLogger('asyncio').error('never retrieved', exc_info=CommClosedError('in <TCP>'))\n"
        "logging.getLogger('asyncio').error('of somebody else', exc_info=ValueError('own'))\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100,
                         env={**os.environ, "XDG_STATE_HOME": str(tmp_path)})  # fmt: skip
    assert (ran.returncode, ran.stdout) == (0, "")
    assert "of somebody else" in ran.stderr
    assert "CommClosedError" not in ran.stderr
    (file,) = tmp_path.rglob(noise.log_path().name)
    assert [file.read_text().count(word) for word in ("gone", "gone, too", "never retrieved")] == [2, 1, 1]


def test_ctrl_c_while_the_commands_are_loaded_ends_in_one_word(tmp_path: Path) -> None:
    """It is pressed when the first file but the door's own is looked for."""
    code = (
        "import sys\n"
        "class Pressing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name not in ('workbench', 'workbench.cli', *sys.builtin_module_names):\n"
        "            sys.meta_path.remove(self)\n            import os\n            os.kill(os.getpid(), 2)\n"
        "sys.meta_path.insert(0, Pressing())\nsys.argv = ['workbench', 'presets', '--json']\n"
        f"from {ENTRY.module} import {ENTRY.attr}\n{ENTRY.attr}()\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100,
                         cwd=resources.data_directory().parent)  # fmt: skip
    assert (ran.returncode, ran.stderr) == (130, "Stopped.\n")
    assert json.loads(ran.stdout)["stage"] == "cancelled"


# Libraries


WITHOUT = {
    "nbconvert": ("report", "last", "-o", "report.html"),
    "nbclient": ("report", "notebook.ipynb", "-o", "report.html"),
    "pandas": ("export", "last", "--to", "csv", "-o", "rows.csv"),
    "distributed": ("run", *GEMM, "--json"),
    "typer": ("presets", "--json"),
}


@pytest.mark.slow(keeps=1)
@pytest.mark.parametrize(("library", "words"), WITHOUT.items(), ids=WITHOUT)
def test_a_library_that_is_not_installed_is_named_with_what_installs_it(
    library: str, words: tuple[str, ...], tmp_path: Path
) -> None:
    with Store(tmp_path / "store.sqlite"):
        pass
    (tmp_path / "notebook.ipynb").write_text('{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}')
    store = () if library in ("typer", "nbclient") else ("--store", str(tmp_path / "store.sqlite"))
    code = f"import sys\nsys.modules[{library!r}] = None\nsys.argv = {['workbench', *words, *store]!r}\n"
    ran = subprocess.run([sys.executable, "-c", f"{code}from workbench import cli\ncli.main()"], capture_output=True,
                         text=True, timeout=100, cwd=tmp_path)  # fmt: skip
    named = f"The Python package {library} is not installed, and this needs it. Accepted: pip install '{library}>="
    assert (ran.returncode, ran.stderr.startswith(named), ran.stderr.count("\n")) == (1, True, 1), ran.stderr
    assert ran.stdout == "" or json.loads(ran.stdout)["message"] == ran.stderr.strip()


def test_a_library_of_an_extra_and_one_that_another_brings_along() -> None:
    extra = missing.message(ModuleNotFoundError("no", name="dask_jobqueue.slurm"))
    assert str(extra).endswith(" Accepted: pip install 'overlap-workbench[jobqueue]'.")
    assert "Accepted: pip install bs4, or all of the" in str(missing.message(ModuleNotFoundError("no", name="bs4")))
    broken = missing.message(ImportError("libcudart.so is missing", name="torch"))
    assert str(broken).startswith("The Python package torch cannot be loaded (libcudart.so is missing), and this")
    assert missing.message(ModuleNotFoundError("no", name="workbench.nothing")) is None


# What has no estimate


def test_a_recording_of_a_machine_that_is_unknown_here_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shipped = recordings.paths()["laptop_overlap_2_ranks"].read_text()
    path = tmp_path / "elsewhere.jsonl"
    path.write_text(shipped.replace(f'"{machines.LAPTOP}"', '"nowhere_cpu"'))
    count = len(shipped.splitlines())
    assert cli.status(["validate", "--recording", str(path)]) == 0
    said = f"{count} trials are left out: There is no machine 'nowhere_cpu'. Accepted: {machines.LAPTOP}, "
    err = capsys.readouterr().err
    assert err.startswith(said)
    assert "Nothing is left to compare: `workbench run` measures again" in err
    assert cli.status(["validate", "--recording", str(path), "--recording", "laptop_overlap_2_ranks", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)["summary"]
    assert [reason["count"] for reason in summary["without_estimate"]] == [count]
    assert summary["count"] == count
