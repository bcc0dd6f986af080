"""How commands end: 1 where anything failed, 2 for what cannot be asked, 130 when stopped; always one document."""

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from cluster import hosts
from kernels.backends.triton.gin import wheel
from kernels.files import Failed
from kernels.schedule import Refusal
from workbench import cli
from workbench.cli import app, exit_status
from workbench.cli.output import DOCUMENT_KEYS
from workbench.results import database
from workbench.results.store import Store

TINY = ("gemm_all_to_all", "--preset", "tiny", "--protocol", "quick", "--fabric", "shared_memory")
SPACE = ('operator = "gemm_all_to_all"\npreset = "tiny"\nprotocol = "quick"\nfabric = "shared_memory"\n'
         "[scheme.decomposed]\npieces = [1, 2, 4]\n")  # fmt: skip

Answer = tuple[int, str, str]


@pytest.fixture
def command(tmp_path: Path, capsys: pytest.CaptureFixture[str], connected_fake: None) -> Callable[..., Answer]:
    """command(words...) -> status, stdout, stderr; the fake cluster measures. `sweep` sweeps SPACE."""

    (tmp_path / "space.toml").write_text(SPACE)

    def run(*words: str, store: bool = True) -> Answer:
        given = [*words, str(tmp_path / "space.toml")] if words == ("sweep",) else list(words)
        status = cli.status([*given, *(("--store", str(tmp_path / "store.sqlite")) if store else ())])
        return status, *capsys.readouterr()

    return run


def document(answer: Answer) -> Any:
    """stdout is one JSON document and nothing else."""
    assert answer[1].count("\n") == 1, answer
    return json.loads(answer[1])


def test_a_sweep_in_which_something_failed_ends_with_one(command: Callable[..., Answer], fake_cluster: Any) -> None:
    fake_cluster.failures["decomposed"] = ("hang", 1)
    assert command("sweep")[0] == 1
    summary = document(command("run", *TINY, "--json"))["summary"]
    assert (summary["failure"], summary["status"]) == (1, 1)
    assert summary["status_about"].startswith("1 of 3 schedules failed and 1 of ")


def test_a_sweep_of_failures_only_promises_no_report_and_ends_with_one(
    command: Callable[..., Answer], fake_cluster: Any, tmp_path: Path
) -> None:
    fake_cluster.failures |= dict.fromkeys(("sequential", "decomposed"), ("wrong", 1))
    space = tmp_path / "space.toml"
    space.write_text('operator = "gemm_all_to_all"\npreset = "tiny"\nprotocol = "quick"\n'
                     'fabric = "shared_memory"\n[scheme.decomposed]\n')  # fmt: skip
    status, _, err = command("sweep", str(space))
    assert (status, err.splitlines()[-1]) == (1, "0 measured, 1 failed, 3 of their baselines and parts failed.")


@pytest.mark.parametrize("part", ["compute", "communication"])
def test_what_stands_beside_the_schedules_counts_too(
    part: str, command: Callable[..., Answer], fake_cluster: Any
) -> None:
    measured = fake_cluster._measured

    def failing(trial: Any, world: int) -> Iterator[dict[str, Any]]:
        if trial.part == part:
            yield {"kind": "failure", "trial": trial.key, "rank": 1, "stage": "hang", "message": "rank 1 is silent"}
        else:
            yield from measured(trial, world)

    fake_cluster._measured = failing
    status, _, err = command("run", *TINY)
    assert status == 1
    assert re.search(rf"\({part} alone\) ha(s|ve) no time: rank 1 is silent", err)
    answer = command("run", *TINY, "--fresh", "--json")
    summary = document(answer)["summary"]
    assert (answer[0], summary["status"], summary["failure"]) == (1, 1, 0)
    assert re.fullmatch(r"\d of the baselines and parts failed\. rank 1 is silent", summary["status_about"])


# A document whatever happens


def test_an_option_that_cannot_be_read_has_its_document(command: Callable[..., Answer]) -> None:
    for words in (("run", *TINY, "--world", "x"), ("runs", "--nothing"), ("measure",), ("export", "last", "--to", "x")):
        answer = command(*words, "--json", store=False)
        failed = document(answer)
        assert (answer[0], list(failed)) == (2, list(DOCUMENT_KEYS))
        assert (failed["outcome"], failed["stage"], failed["message"]) == ("failure", "refused", answer[2].strip())


REFUSED = {
    "runs": ("runs",),
    "compare": ("compare", "a", "b"),
    "validate": ("validate",),
    "doctor": ("doctor", "--cluster", "nowhere.json"),
    "status": ("cluster", "status", "--cluster", "nowhere.json"),
    "benchmark": ("benchmark", "nothing"),
    "calibrate": ("calibrate", "--machine", "nothing"),
    "sweep": ("sweep", "nothing.toml"),
    "recommend": ("recommend", "nothing"),
    "predict": ("predict", *TINY, "--machine", "nothing"),
    "up": ("cluster", "up", "--kind", "nothing"),
}


@pytest.mark.parametrize("words", REFUSED.values(), ids=REFUSED)
def test_every_refusal_has_its_document(words: tuple[str, ...], command: Callable[..., Answer], tmp_path: Path) -> None:
    has_store = words[0] in ("runs", "compare", "validate")
    answer = command(*words, "--json", store=has_store)
    failed = document(answer)
    assert (answer[0], failed["outcome"], failed["stage"]) == (2, "failure", "refused")
    assert failed["message"] == answer[2].strip()


def test_what_nobody_has_a_sentence_for_has_a_document_and_its_trace(
    command: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise TypeError("a mistake of ours")

    monkeypatch.setattr("workbench.experiment.sources.predictions_and_baselines", broken)
    with pytest.raises(TypeError):
        command("predict", *TINY, "--json")
    failed = json.loads(capsys.readouterr().out)
    assert (failed["stage"], failed["message"]) == ("lost", "TypeError: a mistake of ours")
    assert failed["operator"] == "gemm_all_to_all"


@pytest.mark.slow
def test_a_scheduler_that_is_dead_is_a_failure(command: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr("cluster.connection.ANSWER_S", 0.2)
    dead = ("--cluster", "tcp://127.0.0.1:1")
    for words in (("run", *TINY, "--scheme", "fused"), ("cluster", "status"), ("doctor",)):
        answer = command(*words, *dead, "--json", store=words[0] == "run")
        assert answer[0] == 1, words
        if words[0] == "doctor":
            assert document(answer)["rows"][0]["place"] == "here"
            assert "cannot be reached" in document(answer)["summary"]["cluster"]
        else:
            assert document(answer)["stage"] == "lost"


def lost(fake_cluster: Any, after: int) -> None:
    """Its scheduler goes when *after* lists were answered."""
    stream = fake_cluster.stream

    def gone(trials: Any, **more: Any) -> Iterator[dict[str, Any]]:
        if len(fake_cluster.lists) < after:
            yield from stream(trials, **more)
            return
        raise Failed("The scheduler is gone.")

    fake_cluster.stream = gone


def many(tmp_path: Path) -> None:
    """A space of more than one block."""
    (tmp_path / "space.toml").write_text(SPACE + 'steps = "all"\nsplit = "all"\n[scheme.fused]\n')


@pytest.mark.parametrize("as_json", [False, True])
def test_a_scheduler_that_dies_in_a_sweep_leaves_what_was_measured(
    as_json: bool, command: Callable[..., Answer], fake_cluster: Any, tmp_path: Path
) -> None:
    many(tmp_path)
    lost(fake_cluster, after=1)
    answer = command("sweep", str(tmp_path / "space.toml"), *(["--json"] if as_json else []))
    assert answer[0] == 1
    assert answer[2].splitlines()[-2:] == ["5 schedules were not begun.", "The scheduler is gone."]
    if as_json:
        told = document(answer)
        assert told["summary"]["not_begun"] == 5
        assert sum(each["outcome"] == "measurement" for each in told["rows"]) >= 8
        assert (told["summary"]["message"], told["summary"]["stopped"]) == ("The scheduler is gone.", False)
        assert told["summary"]["status_about"] == "The scheduler is gone."


@pytest.mark.parametrize("scheme", [None, "fused"])
def test_a_scheduler_that_dies_before_the_first_time_leaves_a_failure_document(
    scheme: str | None, command: Callable[..., Answer], fake_cluster: Any
) -> None:
    lost(fake_cluster, after=0)
    answer = command("run", *TINY, *(["--scheme", scheme] if scheme else []), "--json")
    failed = document(answer)
    assert (answer[0], failed["outcome"], failed["stage"], failed["message"]) == (
        1, "failure", "lost", "The scheduler is gone.")  # fmt: skip
    assert (failed["operator"], failed["scheme"], failed["source"]) == ("gemm_all_to_all", scheme, "measured")


@pytest.mark.parametrize("words", [("sweep",), ("run",)])
def test_on_a_full_disk_what_was_stored_is_printed(
    words: tuple[str, ...], command: Callable[..., Answer], fake_cluster: Any, tmp_path: Path
) -> None:
    """The disk is full from the second block on, or after some trials of the first."""
    path = tmp_path / "store.sqlite"
    many(tmp_path)

    def fill(trial: Any) -> None:
        if trial.schedule.scheme == "fused" and trial.part == "whole":
            connection = next(each for each in opened if each.path == path)._connection
            pages = connection.execute("PRAGMA page_count").fetchone()[0]
            connection.execute(f"PRAGMA max_page_count = {pages}")

    opened: list[database.Database] = []
    set_up = database.Database._set_up

    def remembered(self: database.Database) -> None:
        opened.append(self)
        set_up(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database.Database, "_set_up", remembered)
        fake_cluster.before = fill
        asked = ("sweep", str(tmp_path / "space.toml")) if words == ("sweep",) else ("run", *TINY)
        answer = command(*asked, "--json")
    told = document(answer)
    assert answer[0] == 1
    assert "cannot grow: its disk or quota is full" in told["summary"]["message"]
    assert any(each["outcome"] == "measurement" for each in told["rows"])


def test_a_run_that_is_stopped_prints_what_it_has(
    command: Callable[..., Answer], fake_cluster: Any, tmp_path: Path
) -> None:
    many(tmp_path)

    def stop(trial: Any) -> None:
        if trial.schedule.scheme == "fused":
            signal.raise_signal(signal.SIGINT)

    fake_cluster.before = stop
    answer = command("sweep", str(tmp_path / "space.toml"), "--json")
    told = document(answer)
    assert (answer[0], told["summary"]["stopped"]) == (130, True)
    assert sum(each["outcome"] == "measurement" for each in told["rows"]) >= 2


def test_ctrl_c_before_the_first_time_leaves_a_document(command: Callable[..., Answer], fake_cluster: Any) -> None:
    def stop(trial: Any) -> None:
        raise KeyboardInterrupt

    fake_cluster.before = stop
    answer = command("run", *TINY, "--scheme", "fused", "--json")
    failed = document(answer)
    assert (answer[0], failed["outcome"], failed["stage"]) == (130, "failure", "cancelled")


def test_ctrl_c_while_the_words_are_read_leaves_a_document_and_a_sentence(
    command: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Typer imports a library then, and of itself it would end without a word."""

    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(app.TyperGroup, "parse_args", stop)
    answer = command("run", *TINY, "--json")
    failed = document(answer)
    assert (answer[0], failed["stage"], answer[2]) == (130, "cancelled", "Stopped.\n")


ENDS = """
import os, signal, sys, threading
from workbench import cli
class Last:
    def __del__(self, kill=os.kill, process=os.getpid(), number=signal.SIGINT):
        kill(process, number)
{when}
sys.argv = ["workbench", "schemes", "--json"]
cli.main()
"""


@pytest.mark.slow(keeps=1)
@pytest.mark.parametrize("when", ["threading._register_atexit(Last().__del__)", "sys.modules['last'] = Last()"])
def test_ctrl_c_when_all_is_said_changes_nothing(when: str) -> None:
    """While threads are put away, and while modules are."""
    ran = subprocess.run([sys.executable, "-c", ENDS.format(when=when)], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout.count("\n"), ran.stderr) == (0, 1, "")


def test_a_benchmark_that_is_stopped_prints_what_it_has(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from workbench.cli import benchmark
    from workbench.cli.benchmark_parts import Row

    def stop(_: Any) -> Iterator[Row]:
        raise KeyboardInterrupt
        yield

    def one(value: float | None) -> Callable[[Any], Iterator[Row]]:
        return lambda _: iter([Row(name="a", value=value, unit="s", how="")])

    for values, ends, expected in (([1.0], [stop], 130), ([1.0, None], [], 1), ([1.0], [], 0)):
        chosen = [*map(one, values), *ends]
        monkeypatch.setattr(benchmark, "BENCHMARKS", {str(number): each for number, each in enumerate(chosen)})
        assert cli.status(["benchmark", "--json"]) == expected
        assert len(json.loads(capsys.readouterr().out)["rows"]) == len(values)


# Reading begins no store


@pytest.fixture
def no_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("workbench.resources.runs_directory", lambda: tmp_path / "own")
    return tmp_path / "own" / "store.sqlite"


@pytest.mark.slow
def test_who_reads_begins_no_store(no_runs: Path, command: Callable[..., Answer]) -> None:
    assert command("runs", store=False)[:2] == (0, "")
    assert document(command("runs", "--json", store=False)) == {"rows": [], "summary": {"count": 0, "deleted": {}}}
    for words in (("compare", "a", "b"), ("validate",), ("export", "last", "--to", "csv", "-o", "x")):
        status, _, err = command(*words, store=False)
        assert status == 2
        assert f"You have no store yet: {no_runs} is not there. `workbench run` begins it." in err
    assert f"{no_runs} is not there yet" in document(command("doctor", "--json", store=False))["summary"]["store"]
    assert not no_runs.parent.exists()


# From a shell


@pytest.mark.slow
def test_what_does_not_fit_where_it_is_printed_is_a_failure(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "workbench.cli", "operators", "--json"]
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert (ran.returncode, ran.stderr) == (1, "The output cannot be printed: No space left on device.\n")
    reader, writer = os.pipe()
    os.close(reader)
    ran = subprocess.run(words, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60)
    os.close(writer)
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.slow
def test_ctrl_c_on_a_terminal_ends_with_130_and_a_document(tmp_path: Path) -> None:
    """Of ranks that are starting: the terminal sends it to all of its processes."""
    controller, terminal = pty.openpty()
    words = [sys.executable, "-m", "workbench.cli", "run", *TINY, "--json", "--store", str(tmp_path / "store.sqlite")]
    process = subprocess.Popen(words, stdin=terminal, stdout=subprocess.PIPE, stderr=terminal, start_new_session=True,
                               env={**os.environ, "XDG_STATE_HOME": str(tmp_path)})  # fmt: skip
    os.close(terminal)
    told = b""
    give_up_at = time.monotonic() + 60
    while b"No cluster is running" not in told and time.monotonic() < give_up_at:
        told += os.read(controller, 1000)
    os.killpg(process.pid, signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out.count(b"\n")) == (130, 1)
    assert json.loads(out)["stage"] == "cancelled"
    with contextlib.suppress(OSError):  # nobody is at the other end any more
        told += os.read(controller, 4000)
    os.close(controller)
    assert b"Traceback" not in told
    with Store(tmp_path / "store.sqlite") as store:
        assert [run["status"] for run in store.runs()] == ["cancelled"]


# Which exit status an error and a list of outcomes have, and what it is said to be about: plain values.


@pytest.mark.parametrize(
    ("error", "status", "stage"),
    [
        (ValueError("x"), 2, "refused"), (Refusal("x"), 2, "refused"), (Failed("x"), 1, "lost"),
        (OSError(28, "No space left on device"), 1, "lost"), (KeyboardInterrupt(), 130, "cancelled"),
        (typer.Abort(), 130, "cancelled"), (exit_status.Interrupted(), 130, "cancelled"),
        (TypeError("x"), None, "lost"),
    ],
)  # fmt: skip
def test_each_error_has_one_status(error: BaseException, status: int | None, stage: str) -> None:
    assert (exit_status.of_error(error), exit_status.failure(error)["stage"]) == (status, stage)


def row(stage: str | None) -> dict[str, Any]:
    return {"outcome": "failure" if stage else "measurement", "stage": stage}


@pytest.mark.parametrize(
    ("stages", "status"),
    [
        ([None], 0), ([None, "refused"], 0), ([None, "cancelled"], 0), (["refused", "refused"], 2), ([], 1),
        *(([None, "refused", stage], 1) for stage in ("compile", "launch", "hang", "wrong", "lost")),
    ],
)  # fmt: skip
def test_a_refused_combination_is_no_failure(stages: list[str | None], status: int) -> None:
    assert exit_status.of_rows(map(row, stages)) == status


def test_what_a_status_is_about_says_how_many_and_why() -> None:
    timed, refused, failed = (row(stage) | {"message": f"It is {stage}."} for stage in (None, "refused", "hang"))
    assert exit_status.status_reason([timed, refused]) is None
    assert exit_status.status_reason([refused, refused]) == "All of 2 schedules were refused. It is refused."
    assert exit_status.status_reason([timed, failed, refused], [failed]) == (
        "1 of 3 schedules failed and 1 of the baselines and parts failed. It is hang."
    )


@pytest.mark.parametrize(
    ("words", "close"),
    [
        ("predict gemm_all_to_al --preset tiny", "gemm_all_to_all"),
        ("predict gemm_all_to_all --preset laptop_overlp", "laptop_overlap"),
        ("predict gemm_all_to_all --preset tiny --machine Laptop_cp", "laptop_cpu"),
        ("predict gemm_all_to_all --preset tiny --scheme fusd", "fused"),
        ("predict gemm_all_to_all --preset tiny --scheme decomposed --set peces=4", "pieces"),
        ("predict gemm_all_to_all --preset tiny --scheme fused --set tile_order=rotatd", "rotated"),
        ("predict gemm_all_to_all --preset tiny --fabric emulatd", "emulated"),
        ("predict gemm_all_to_all --preset tiny --fabric emulated:wire_to_comput=1", "wire_to_compute"),
        ("predict gemm_all_to_all --preset tiny --protocol quik", "quick"),
        ("predict gemm_all_to_all --preset tiny --dtype flaot32", "float32"),
        ("predict-step dlm", "dlrm"),
        ("validate --recording laptop_overlap", "laptop_overlap_2_ranks"),
        ("cache --workloads FwFCs", "FwFc"),
    ],
)
def test_a_mistyped_name_is_answered_with_the_close_one(words: str, close: str, command: Callable[..., Answer]) -> None:
    status, _, message = command(*words.split(), store=False)
    assert status == exit_status.REFUSED
    assert f"Did you mean {close}? Accepted: " in message.replace("\n", " ")


@pytest.mark.parametrize(
    "text",
    [
        "There is no preset 'zebra'. Accepted: tiny, laptop_overlap.",
        "world = 16 is not a legal value here. Ranks. Accepted: 1, 160.",
        "There is no file 'a/tiny.txt'. Accepted: a TOML file, or one that you may read.",
        "The scheduler cannot be reached.",
    ],
)
def test_what_is_close_to_nothing_stays_as_it_is(text: str) -> None:
    assert exit_status.message(ValueError(text)) == text


# The doctor fetches the NCCL that kernels link, or says why it could not.


def test_a_download_that_fails_is_a_failure_with_its_sentence(
    command: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable() -> wheel.Wheel:
        raise Failed("It was not fetched: no network. Accepted: a network.")

    monkeypatch.setattr(wheel, "fetch", unreachable)
    status, out, err = command("doctor", "--fetch-nccl", store=False)
    assert (status, out, err) == (1, "", "It was not fetched: no network. Accepted: a network.\n")


def test_a_download_says_where_it_is_and_under_which_license(
    command: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(wheel, "fetch", lambda: wheel.Wheel(tmp_path / "nccl"))
    monkeypatch.setattr(hosts, "doctor_rows", lambda client: [{"place": "here"}])
    status, _, err = command("doctor", "--fetch-nccl", store=False)
    said = " ".join(err.split())
    assert status == 0
    assert f"NCCL {wheel.VERSION} is in {tmp_path / 'nccl'}. Its license: unknown." in said
