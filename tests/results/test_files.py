"""Where a file may be written: said before any work, in one sentence; nobody's file is lost, whatever is typed."""

from __future__ import annotations

import errno
import os
import resource
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from kernels import files
from kernels.files import Failed
from kernels.machine import toml
from workbench import cli, machines, resources
from workbench.experiment.run import Replay
from workbench.machines import shipped_machine
from workbench.reports.export import ReportFormat, export
from workbench.resources import LAPTOP
from workbench.results import recordings
from workbench.results.files import EXPORTS, MACHINE, REPORTS, FileTarget, replacement_note
from workbench.results.store import Store
from workbench.widgets.results import ReportButton

REPORT = REPORTS["html"]


def test_what_cannot_be_written_is_refused_with_what_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"which is a folder. Accepted: the name of a file, such as .*/report\.html\."):
        FileTarget(tmp_path).refuse(REPORT)
    with pytest.raises(ValueError, match=r"there is no folder .*/missing. Accepted: a folder that exists"):
        FileTarget(tmp_path / "missing" / "run.html").refuse(REPORT)
    with pytest.raises(ValueError, match=r"cannot be written to /dev/null, which is a device or a pipe"):
        FileTarget(Path(os.devnull), force=True).refuse(REPORT)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(ValueError, match=r"export cannot be written to .* does not allow writing. Accepted: a place"):
        FileTarget(tmp_path / "run.csv").refuse(EXPORTS["csv"])


def test_a_file_that_may_not_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "run.html"
    target.write_text("kept")
    monkeypatch.setattr(os, "access", lambda path, mode: path != target)
    with pytest.raises(ValueError, match=r"cannot be written to .*/run\.html does not allow writing"):
        FileTarget(target, force=True).refuse(REPORT)


def test_a_file_that_is_replaced_is_told_of() -> None:
    assert [replacement_note(Path("a.html"), was_there) for was_there in (False, True)] == [
        "a.html", "a.html (replaces the file that was there)",
    ]  # fmt: skip


# Whole or not at all


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_a_new_file_has_the_permissions_that_the_umask_leaves_and_a_replaced_one_keeps_its_own(
    umask: int, tmp_path: Path
) -> None:
    before = os.umask(umask)
    try:
        files.write(tmp_path / "new", "text")
        (tmp_path / "old").touch(mode=0o600)
        (tmp_path / "old").chmod(0o640)
        files.write(tmp_path / "old", "text")
        files.write(tmp_path / "private", "text", mode=0o600)
    finally:
        os.umask(before)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("new", "old", "private")]
    assert modes == [0o666 & ~umask, 0o640, 0o600]


def test_a_symbolic_link_stays_one_and_a_hard_link_keeps_what_it_had(tmp_path: Path) -> None:
    kept, link, hard = tmp_path / "kept", tmp_path / "link", tmp_path / "hard"
    kept.write_text("old")
    link.symlink_to(kept)
    hard.hardlink_to(kept)
    files.write(link, "new")
    assert (link.is_symlink(), kept.read_text(), hard.read_text()) == (True, "new", "old")


@pytest.mark.parametrize("was_there", [False, True])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_what_is_broken_off_leaves_what_was_there_and_nothing_else(
    was_there: bool, error: BaseException, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    if was_there:
        path.write_text("old")

    def broken_off() -> None:
        with files.whole(path) as unfinished:
            unfinished.write_text("half")
            raise error

    with pytest.raises(type(error)):
        broken_off()
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("file", "old")] * was_there


# Every command


Answer = tuple[int, str, str]


@pytest.fixture(scope="module")
def two_replays(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A store that holds two replays."""
    path = tmp_path_factory.mktemp("replays") / "store.sqlite"
    with Store(path) as store:
        for _ in range(2):
            list(Replay(recordings.recordings("laptop_ladder_pieces_and_slices"), store, speed=None, title="ladder"))
    return path.read_bytes()


@pytest.fixture
def store_path(tmp_path: Path, two_replays: bytes) -> Path:
    path = tmp_path / "store.sqlite"
    path.write_bytes(two_replays)
    return path


@pytest.fixture
def replayed(store_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    """replayed(words...) -> status, stdout, stderr of a command on that store."""

    def run(*words: str) -> Answer:
        return cli.status([*words, "--store", str(store_path)]), *capsys.readouterr()

    return run


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports of runs have one picture and no chart: these are tests of files."""
    picture = new_output("display_data", {"image/svg+xml": '<svg xmlns="http://www.w3.org/2000/svg"/>'})
    cell = new_code_cell("", outputs=[picture])
    monkeypatch.setattr("workbench.reports.side_by_side.stored_runs", lambda *_, **__: new_notebook(cells=[cell]))


EXPORT = {kind: ("export", "last", "--to", kind) for kind in EXPORTS}
WRITERS = EXPORT | {"samples": (*EXPORT["csv"], "--samples"), "html": ("report", "last", "--to", "html"),
                    "md": ("report", "last", "--to", "md")}  # fmt: skip
"""Every command that writes a file for a person; calibrations and PDFs have their own tests."""


@pytest.mark.slow(keeps=5)
@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("words", WRITERS.values(), ids=WRITERS)
def test_a_file_of_the_same_kind_is_replaced_and_one_of_another_kind_by_force_only(
    words: tuple[str, ...], replayed: Callable[..., Answer], tmp_path: Path
) -> None:
    """The kind is told by what is in the file: none of these names has an ending."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for _ in range(2):
        assert replayed(*words, "-o", str(ours))[0] == 0
    theirs.write_bytes(b"<!DOCTYPE html>,%PDF-,{} import os")
    status, out, said = replayed(*words, "-o", str(theirs))
    assert (status, out) == (2, "")
    assert f"cannot be written to {theirs}: the file that is there is not a" in said
    assert said.endswith(" of the workbench. Accepted: another name, or --force, which replaces it.\n")
    assert theirs.read_bytes().startswith(b"<!DOCTYPE html>,")
    assert replayed(*words, "-o", str(theirs), "--force")[0] == 0
    assert replayed(*words, "-o", str(theirs))[0] == 0


def page(folder: Path) -> None:
    (folder / "theirs").write_text("<!DOCTYPE html>\n<html><body>My own page</body></html>")


def notebook(folder: Path) -> None:
    nbformat.write(new_notebook(cells=[new_markdown_cell("# A lesson")]), folder / "theirs")


def table(folder: Path) -> None:
    (folder / "theirs").write_text("name,salary\nme,1\n")


def trace(folder: Path) -> None:
    (folder / "theirs").write_text('{"schemaVersion": 1, "traceEvents": []}')


def lines(folder: Path) -> None:
    (folder / "theirs").write_text('{"a": 1}\n')


def text(folder: Path) -> None:
    (folder / "theirs").write_text("# My notes\n")


def rows(folder: Path) -> None:
    import pandas as pd

    pd.DataFrame({"run": [1]}).to_parquet(folder / "theirs")


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize(
    ("words", "make"),
    [
        (WRITERS["html"], page), (WRITERS["html"], notebook), (WRITERS["csv"], table), (WRITERS["perfetto"], trace),
        (WRITERS["recording"], lines), (WRITERS["md"], text), (WRITERS["parquet"], rows),
    ],
)  # fmt: skip
def test_what_another_program_wrote_in_the_same_format_is_not_ours(
    words: tuple[str, ...], make: Callable[[Path], None], replayed: Callable[..., Answer], tmp_path: Path
) -> None:
    make(tmp_path)
    before = (tmp_path / "theirs").read_bytes()
    assert replayed(*words, "-o", str(tmp_path / "theirs"))[0] == 2
    assert (tmp_path / "theirs").read_bytes() == before


def itself(path: Path) -> Path:
    return path


def by_symbolic_link(path: Path) -> Path:
    (path.parent / "link").symlink_to(path.name)
    return path.parent / "link"


def by_hard_link(path: Path) -> Path:
    (path.parent / "hard").hardlink_to(path)
    return path.parent / "hard"


def beside(path: Path) -> Path:
    """Where SQLite would look for what is not in the store yet, whether it lies there now or not."""
    return path.with_name(f"{path.name}-wal")


@pytest.mark.slow(keeps=11)
@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("words", WRITERS.values(), ids=WRITERS)
@pytest.mark.parametrize("name", [itself, by_symbolic_link, by_hard_link, beside])
def test_the_store_that_is_read_is_never_written(
    name: Callable[[Path], Path], words: tuple[str, ...], replayed: Callable[..., Answer], store_path: Path
) -> None:
    target, before = name(store_path), store_path.read_bytes()
    for force in ((), ("--force",)):
        status, out, said = replayed(*words, "-o", str(target), *force)
        assert (status, out) == (2, "")
        assert f": that would destroy {store_path}, which is read for it. Accepted: another name." in said
        assert store_path.read_bytes() == before
    assert not beside(store_path).exists()


@pytest.mark.parametrize("kind", ReportFormat)
@pytest.mark.parametrize("name", [itself, by_symbolic_link, by_hard_link])
def test_the_notebook_that_is_reported_is_never_written(
    name: Callable[[Path], Path], kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the command line and from Python."""
    path = tmp_path / "my.ipynb"
    notebook(tmp_path)
    (tmp_path / "theirs").rename(path)
    target, before = name(path), path.read_bytes()
    for force in ((), ("--force",)):
        assert cli.status(["report", str(path), "-o", str(target), "--to", kind, *force]) == 2
        assert f"that would destroy {path}, which is read for it" in capsys.readouterr().err
    with pytest.raises(ValueError, match="which is read for it"):
        export(path, target, kind=kind)
    assert path.read_bytes() == before


def around(path: Path) -> Path:
    return path.parent / ".." / path.parent.name / path.name


@pytest.mark.parametrize("to", ["--chakra", "--perfetto"])
@pytest.mark.parametrize("name", [itself, by_symbolic_link, by_hard_link, around])
@pytest.mark.parametrize("read", ["models/dlrm.toml", "fabrics/torus128.toml"])
def test_what_a_step_is_estimated_from_is_never_written(
    read: str, name: Callable[[Path], Path], to: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / Path(read).name
    path.write_bytes((resources.data_directory() / read).read_bytes())
    target, before = name(path), path.read_bytes()
    inputs = [str(path)] if read.startswith("models") else ["dlrm", "--fabric", str(path)]
    assert cli.status(["predict-step", *inputs, to, str(target), "--force"]) == 2
    assert "which is read for it. Accepted: another name." in capsys.readouterr().err
    assert path.read_bytes() == before


def test_what_a_command_read_by_its_name_is_never_written(tmp_path: Path) -> None:
    """Whoever read it: no command has to state its inputs."""
    path, other = tmp_path / "dlrm.toml", tmp_path / "other.toml"
    path.write_text("name")
    other.write_text("name")
    with resources.noting_reads():
        path.read_text()
        for target in (path, by_symbolic_link(path), by_hard_link(path), around(path)):
            with pytest.raises(ValueError, match="which is read for it"):
                FileTarget(target, force=True).refuse(REPORT)
        FileTarget(other, force=True).refuse(REPORT)
    FileTarget(path, force=True).refuse(REPORT)


def test_a_symbolic_link_is_followed_only_by_force(tmp_path: Path) -> None:
    link = by_symbolic_link(tmp_path / "run.html")
    with pytest.raises(ValueError, match=f"a symbolic link to {tmp_path / 'run.html'}. Accepted: .*--force"):
        FileTarget(link, force=False).refuse(REPORT)
    FileTarget(link, force=True).refuse(REPORT)


def test_who_cannot_say_force_is_not_offered_it(tmp_path: Path) -> None:
    """The page's button, Python, `validate -o` and `cache --save` have no such option."""
    link, theirs = by_symbolic_link(tmp_path / "run.html"), tmp_path / "theirs"
    theirs.write_text("mine")
    with pytest.raises(ValueError, match=r"Accepted: that file's name\.$"):
        FileTarget(link).refuse(REPORT)
    with pytest.raises(ValueError, match=r"Accepted: another name\.$"):
        FileTarget(theirs).refuse(REPORT)


def test_a_file_of_the_same_kind_that_was_read_is_no_exception(tmp_path: Path) -> None:
    """`calibrate --devices-of A --to A.toml` replaced the machine from which it took the devices."""
    path = tmp_path / "page.html"
    path.write_text("")
    with resources.noting_reads():
        FileTarget(path).refuse(REPORT)  # looking at what it is does not count
        path.read_text()
        with pytest.raises(ValueError, match="which is read for it"):
            FileTarget(path, force=True).refuse(REPORT)
        FileTarget(path, renews=True).refuse(REPORT)


def test_a_machine_from_which_devices_are_taken_is_never_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("workbench.machines.runs_directory", lambda: tmp_path)
    path = tmp_path / "machines" / "h200_nvl2.toml"
    path.parent.mkdir()
    path.write_bytes((resources.data_directory() / "machines" / path.name).read_bytes())
    before = path.read_bytes()
    words = ("calibrate", "--machine", "h200_nvl4", "--devices-of", "h200_nvl2", "--to", str(path))
    assert cli.status(list(words)) == 2
    assert f"would destroy {path}, which is read for it" in capsys.readouterr().err
    assert path.read_bytes() == before


@pytest.mark.parametrize("second", ["one.json", "./one.json"])
def test_two_outputs_of_one_command_are_two_files(
    second: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second replaced the first, and both were named as written."""
    monkeypatch.chdir(tmp_path)
    assert cli.status(["predict-step", "dlrm", "--perfetto", "one.json", "--chakra", second, "--force"]) == 2
    assert "2 outputs cannot be written to 1 file, one.json and one.json. Accepted: " in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_automatic_calibration_follows_no_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machines, "runs_directory", lambda: tmp_path)
    target = machines.calibrated_target(LAPTOP)
    target.path.symlink_to(tmp_path / "theirs.toml")
    with pytest.raises(ValueError, match=r"Accepted: a file in place of the link\.$"):
        target.refuse(MACHINE)


def test_the_button_of_the_explorer_keeps_the_same_rules(store_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.widgets.results.stored_runs", lambda *_, **__: new_notebook())
    with Store(store_path) as store:
        run = store.run("last")["id"]
        button = ReportButton(store, lambda: run)
        written = store_path.parent / "reports" / f"{run}.html"
        for _ in range(2):
            button._wanted = (run,)
            button._write((run,), "")
            assert "Download the report" in button.link.value
        written.write_text("<!DOCTYPE html>my own page")
        button._write((run,), "")
        assert "is not a report in HTML of the workbench" in button.link.value
    assert written.read_text() == "<!DOCTYPE html>my own page"


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> None:
    """No file may grow beyond 10 bytes while it is written for a person."""
    really = files.whole

    @contextmanager
    def whole(path: Path, mode: int | None = None) -> Iterator[Path]:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        with really(path, mode) as unfinished:
            resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
            try:
                yield unfinished
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, before)

    monkeypatch.setattr(files, "whole", whole)


@pytest.mark.slow(keeps=8)
@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("words", WRITERS.values(), ids=WRITERS)
@pytest.mark.parametrize("was_there", [False, True])
def test_on_a_full_disk_the_older_file_stays_and_the_command_failed(
    was_there: bool, words: tuple[str, ...], replayed: Callable[..., Answer], tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:  # fmt: skip
    target = tmp_path / "run"
    if was_there:
        assert replayed(*words, "-o", str(target))[0] == 0
    before = {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")}
    request.getfixturevalue("full")
    status, out, said = replayed(*words, "-o", str(target))
    assert (status, out) == (1, "")
    assert f"cannot be written to {target}: File too large. What was there before is unchanged. Make room" in said
    assert {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")} == before


def test_a_calibration_replaces_a_machine_but_neither_its_raw_results_nor_another_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Refused before anything is measured."""
    raw, other = tmp_path / "raw.json", tmp_path / "settings.toml"
    raw.write_text('{"rows": []}')
    other.write_text("answer = 42")
    for target, force, sentence in (
        (raw, "--force", f"destroy {raw}"),
        (other, None, "is not a machine of"),
    ):
        words = ["calibrate", "--probes", str(raw), "--to", str(target), *([force] if force else [])]
        assert cli.status(words) == 2
        assert sentence in capsys.readouterr().err
    assert (raw.read_text(), other.read_text()) == ('{"rows": []}', "answer = 42")
    path = tmp_path / "machine.toml"
    path.write_text(toml(shipped_machine(LAPTOP)))
    FileTarget(path).refuse(MACHINE)


def test_a_full_disk_is_no_bad_question(tmp_path: Path, full: None) -> None:
    with pytest.raises(Failed):
        FileTarget(tmp_path / "run.csv").write(EXPORTS["csv"], b"x" * 200)


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("words", [("report", "last", "-o"), ("export", "last", "--to", "csv", "-o")])
def test_report_and_export_say_the_same_of_their_file(
    words: tuple[str, ...], replayed: Callable[..., Answer], tmp_path: Path
) -> None:
    target = tmp_path / ("run.html" if words[0] == "report" else "run.csv")
    assert [replayed(*words, str(target))[2].strip() for _ in range(2)] == [
        str(target), f"{target} (replaces the file that was there)",
    ]  # fmt: skip
    for wrong in (tmp_path, tmp_path / "missing" / target.name):
        to = ("--to", "html") if words[0] == "report" else ()
        status, out, said = replayed(*words, str(wrong), *to)
        assert (status, out) == (2, "")
        assert said.count("\n") == 1
        assert "Accepted:" in said


@pytest.mark.slow
def test_a_note_and_several_runs_are_asked_for_on_the_command_line(
    replayed: Callable[..., Answer], tmp_path: Path
) -> None:
    with Store(tmp_path / "store.sqlite") as store:
        runs = [run["id"] for run in store.runs()]
    target = tmp_path / "runs.md"
    assert replayed("report", *runs, "--note", "Twice *the* same.", "-o", str(target))[0] == 0
    text = target.read_text()
    assert text.startswith("# 2 runs side by side: ladder\n")
    assert "> Twice \\*the\\* same." in text
    assert "## The same schedules, run by run" in text


@pytest.mark.parametrize("beside", [("--note", "x"), ("last",)])
def test_a_notebook_is_reported_as_it_is(
    beside: tuple[str, ...], replayed: Callable[..., Answer], tmp_path: Path
) -> None:
    status, _, said = replayed("report", "some.ipynb", *beside, "-o", str(tmp_path / "run.html"))
    assert status == 2
    assert "a notebook is reported as it is. Accepted: one notebook, or runs." in said
