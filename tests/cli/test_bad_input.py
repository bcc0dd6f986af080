"""All bad input: one sentence on stderr that names the value and what is accepted, status 2 (1: no fault of it)."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import typer

from workbench import cli
from workbench.cli import measuring
from workbench.cli.app import EXAMPLES, app
from workbench.results.store import Store

GEMM = "gemm_all_to_all"
SIZES = ("--shape", "m=256", "--shape", "n=128", "--shape", "k=64")
TINY = ("run", GEMM, "--preset", "tiny")


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is wrong is told before a cluster is started."""

    @contextmanager
    def connected(address: str | None, num_ranks: int, backend: str, *, share_gpu: bool = False) -> Iterator[Any]:
        pytest.fail("a cluster was started for nothing")
        yield

    monkeypatch.setattr(measuring, "connected", connected)


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """refused(words...) -> the one sentence on stderr; nothing is on stdout, the status is 2, or the one expected."""

    def run(*words: str, expected: int = 2) -> str:
        status = cli.status(list(words))
        out, err = capsys.readouterr()
        assert (status, out) == (expected, ""), err
        assert err.count("\n") == 1, err
        return err

    return run


COMMAND_LINES = {
    "unknown command": (("measure",), "No such command 'measure'. `workbench --help` says what is accepted."),
    "a command that is nearly one": (("reprot",), "'report', 'export'? `workbench --help` says what is accepted."),
    "unknown option": (("run", GEMM, "--sizes", "3"), "--sizes"),
    "no operator": (("run",), "Missing argument 'operator'. For example: `workbench run gemm_all_to_all --preset "),
    "no sizes": (
        ("predict", GEMM),
        "Accepted: --shape m=SIZE --shape n=SIZE --shape k=SIZE, or --preset NAME of `work",
    ),
    "a folder as a chart": (
        ("validate", "--recording", "h200_nvl2_gemm", "-o", "."),
        "written to ., which is a folder.",
    ),
    "a folder as a report": (
        ("report", "last", "-o", "."),
        "The report cannot be written to ., which is a folder. Acc",
    ),
    "an option without its value": (("run", GEMM, "--store"), "Option '--store' requires an argument. `workbench"),
    "lessons without a folder": (
        ("lessons", "export"),
        "Missing argument 'DIR'. `workbench lessons export --help`",
    ),
    "an axis where none can be set": (("cluster", "up", "--grid", "3"), "No such option: --grid"),
    "an axis as an option": (("run", GEMM, "--tile", "64x64x64"), "No such option: --tile: tile is an axis. Accepted"),
    "more ranks than the machine has": (
        ("predict", GEMM, "--preset", "deepseek_v3_experts_512", "--machine", "h200_nvl2"),
        "world = 8 is more than machine h200_nvl2 has: 8 > 2 ranks. Accepted: --world 1..2, or",
    ),
    "no kind of export": (("export", "last", "-o", "x.csv"), "Choose from: parquet, csv, perfetto, recording. For"),
    "no number": (("run", GEMM, "--world", "x"), " as an integer. `workbench run --help` says what is accepted."),
    "unknown operator": (
        ("run", "gemm", *SIZES),
        "There is no operator 'gemm'. Accepted: embedding",
    ),
    "unknown scheme": (
        ("run", GEMM, *SIZES, "--scheme", "fuzed"),
        "There is no scheme 'fuzed'. Did you mean fused? Accep",
    ),
    "one micro-batch": (
        ("run", GEMM, *SIZES, "--scheme", "concurrent", "--set", "micro_batches=1"),
        "and 1 < 2. Accepted: 2 to 32.",
    ),
    "a priority that no device has": (
        ("run", GEMM, *SIZES, "--scheme", "concurrent", "--set", "comm_priority=-9"),
        "comm_priority = -9 is not a legal value here",
    ),
    "a share of all SMs": (
        ("predict", GEMM, *SIZES, "--machine", "h200_nvl2", "--scheme", "concurrent", "--set", "comm_sms=132"),
        "SMs, of 132, that computation leaves",
    ),
    "unknown axis": (("run", GEMM, *SIZES, "--set", "peices=2"), "has an axis 'peices'"),
    "illegal axis value": (
        ("run", GEMM, *SIZES, "--scheme", "decomposed", "--set", "split=diagonal"),
        "split = diagonal is not a legal value here",
    ),
    "too many pieces": (
        ("run", GEMM, *SIZES, "--scheme", "decomposed", "--set", "pieces=4096"),
        "4096 > 128. Accepted: at most 128 that way.",
    ),
    "not a tile": (("run", GEMM, *SIZES, "--scheme", "fused", "--set", "tile=big"), "tile = big has the wrong form"),
    "not a setting": (("run", GEMM, *SIZES, "--set", "pieces"), "name=value. Accepted: values such as --set pieces=8."),
    "unknown shape key": (("run", GEMM, "--shape", "q=1"), "gemm_all_to_all has no shape key 'q'"),
    "missing size": (("run", GEMM, "--shape", "m=256"), "gemm_all_to_all needs n"),
    "not a size": (("run", GEMM, "--shape", "m=many", *SIZES[2:]), "m = many is not a size"),
    "a size twice": (("run", GEMM, *SIZES, "--shape", "m=512"), "--shape states m 2 times: 2 > 1"),
    "not a pair": (("run", GEMM, "--shape", "256"), "--shape '256' does not have the form name=value"),
    "sizes that do not divide": (
        ("run", GEMM, *SIZES, "--world", "3"),
        "3 does not divide 256. Accepted: multiples of 3",
    ),
    "too large a world": (("run", GEMM, *SIZES, "--world", "128"), "128 > 64. Accepted: world 1..64."),
    "no world": (("run", GEMM, *SIZES, "--world", "0"), "world = 0 is too small"),
    "not a world": (("run", GEMM, *SIZES, "--world", "two"), "--world"),
    "unknown dtype": (
        ("run", GEMM, *SIZES, "--dtype", "int3"),
        "There is no dtype 'int3'. Accepted:",
    ),
    "unknown fabric": (("run", GEMM, *SIZES, "--fabric", "wire"), "fabric = 'wire' has"),
    "a link that CPU ranks have not": (
        ("run", GEMM, *SIZES, "--fabric", "nvlink"),
        "fabric = nvlink does not exist on machine laptop_cpu: CPU ranks have no such link. Accepted: emul",
    ),
    "a link that GPUs have not": (
        ("predict", GEMM, *SIZES, "--machine", "h200_nvl8", "--fabric", "shared_memory"),
        "on machine h200_nvl8: GPU ranks have no such link. Accepted: nvlink.",
    ),
    "a link that is not priced": (
        ("predict", GEMM, *SIZES, "--machine", "h200_nvl4", "--fabric", "emulated"),
        "fabric = emulated has no price on machine h200_nvl4. Its gap of 150 µs a message suits CPU ranks",
    ),
    "a network inside a host": (
        ("predict", GEMM, *SIZES, "--machine", "h200_nvl4", "--fabric", "network"),
        "fabric = network does not exist on machine h200_nvl4: GPU ranks have no such link. Accepted: nvlink.",
    ),
    "NVLink between hosts": (
        ("predict", GEMM, *SIZES, "--machine", "h200_ib", "--world", "16", "--fabric", "nvlink"),
        "NVLink ends at the host, which has 8 GPUs: 16 > 8. Accepted: world 1..8, or fabric = network.",
    ),
    "a link that GPUs cannot emulate": (
        ("run", GEMM, *SIZES, "--backend", "triton", "--machine", "h200_nvl4", "--fabric", "emulated"),
        "GPUs store over the 1 link that they have. Accepted: nvlink.",
    ),
    "unknown protocol": (("run", GEMM, *SIZES, "--protocol", "fast"), "There is no protocol 'fast'"),
    "unknown machine": (("predict", GEMM, *SIZES, "--machine", "h900"), "There is no machine 'h900'"),
    "unknown backend": (("run", GEMM, *SIZES, "--backend", "gpu"), "There is no backend 'gpu'"),
    "unknown preset": (
        ("predict", GEMM, "--preset", "nope"),
        "There is no preset 'nope'. Accepted: ",
    ),
    "preset without the operator": (
        ("predict", GEMM, "--preset", "dlrm_dcnv2"),
        "has no problem of gemm_all_to_all",
    ),
    "unknown kind of cluster": (("cluster", "up", "--kind", "yarn"), "There is no cluster of kind 'yarn'"),
    "unknown field of a cluster": (
        ("cluster", "up", "--set", "ranks=4"),
        "Accepted: num_ranks, gpus, share_gpu, host, port.",
    ),
    "neither yes nor no": (
        ("cluster", "up", "--set", "share_gpu=maybe"),
        "--set share_gpu=maybe does not fit. Accepted: yes or no, such as share_gpu=yes.",
    ),
    "not a number of ranks": (
        ("cluster", "up", "--set", "num_ranks=few"),
        "--set num_ranks=few does not fit. Accepted: a whole number",
    ),
    "samples of a trace": (("export", "last", "--to", "perfetto", "--samples", "-o", "x"), "--to parquet or --to csv."),
    "unknown kind of export": (("export", "last", "--to", "xls", "-o", "x"), "xls"),
    "report of unknown ending": (("report", "last", "-o", "run.doc"), "Accepted: one of these endings, or --to."),
    "report of a missing notebook": (
        ("report", "nope.ipynb", "-o", "run.html"),
        "There is no notebook nope.ipynb",
    ),
    "sweep of a missing file": (
        ("sweep", "nope.toml"),
        "There is no space file ",
    ),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_of_a_command_without_its_words_is_one_that_it_reads(
    name: str, refused: Callable[..., str]
) -> None:
    assert f"For example: `workbench {name} {EXAMPLES[name]}`." in refused(name)
    typer.main.get_command(app).commands[name].make_context(name, EXAMPLES[name].split())  # type: ignore[attr-defined]


@pytest.mark.parametrize(("words", "sentence"), COMMAND_LINES.values(), ids=COMMAND_LINES)
def test_a_command_line_that_cannot_be(words: tuple[str, ...], sentence: str, refused: Callable[..., str]) -> None:
    assert sentence in refused(*words)


@pytest.mark.parametrize("words", [(*TINY, "--machine", "h200_nvl8"), (*TINY, "--fabric", "nvlink")])
def test_what_these_ranks_cannot_measure_leaves_no_run(
    words: tuple[str, ...], refused: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench.machines.hosts.visible_gpus", lambda: ())
    sentence = refused(*words, "--store", str(tmp_path / "store.sqlite"))
    assert "h200_nvl8 cannot be measured here. Its backend is triton, but the ranks have cpu. Acc" in sentence or (
        "fabric = nvlink does not exist on machine laptop_cpu" in sentence
    )
    assert not (tmp_path / "store.sqlite").exists()


def test_more_ranks_than_this_host_has_gpus_leave_no_run(
    refused: Callable[..., str], host_with_gpus: Callable[..., None], tmp_path: Path
) -> None:
    host_with_gpus(2)
    store = tmp_path / "store.sqlite"
    words = ("run", GEMM, *SIZES, "--backend", "triton", "--machine", "h200_nvl4", "--world", "4")
    assert refused(*words, "--store", str(store)) == (
        "world = 4 is too large for backend = triton. Every rank needs a GPU of its own, and this host has 2. "
        "Accepted: world 1 to 2, --share-gpu for ranks that share one, or `workbench predict` with the same options.\n"
    )
    assert not store.exists()


def test_a_refusal_prints_its_failure_document_too(capsys: pytest.CaptureFixture[str]) -> None:
    status = cli.status(["run", GEMM, *SIZES, "--scheme", "decomposed", "--set", "pieces=4096", "--json"])
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert (status, found["outcome"], found["stage"]) == (2, "failure", "refused")
    assert (found["operator"], found["scheme"], found["axes"]) == (GEMM, "decomposed", {"pieces": "4096"})
    assert found["message"] + "\n" == err


# Files


FILES = {
    "space without sizes": ("sweep", f'operator = "{GEMM}"\nscheme.fused = {{}}', "Accepted: m=SIZE n=SIZE k=SIZE."),
    "corrupt space": ("sweep", "operator = [", "space.toml cannot be read as a space"),
    "space that is no text": ("sweep", b"\xff\xfe\x00", "space.toml cannot be read as a space"),
    "space with an unknown key": (
        "sweep",
        "operator = 'gemm_all_to_all'\nfoo = 1",
        "has the unknown key 'foo'",
    ),
}


@pytest.mark.parametrize(("command", "content", "sentence"), FILES.values(), ids=FILES)
def test_a_file_that_cannot_be_read(
    command: str, content: str | bytes, sentence: str, refused: Callable[..., str], tmp_path: Path
) -> None:
    path = tmp_path / "space.toml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert sentence in refused(command, str(path))


def test_a_corrupt_machine_or_preset_file_is_named(
    refused: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("workbench.machines.runs_directory", lambda: tmp_path)
    (tmp_path / "machines").mkdir()
    (tmp_path / "machines" / "own.toml").write_text("name = ")
    assert "own.toml cannot be read as a machine" in refused("predict", GEMM, *SIZES, "--machine", "own")
    (tmp_path / "machines" / "laptop_cpu.toml").write_text("name = ")
    assert cli.status(["predict", GEMM, *SIZES]) == 0
    (said,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("Left out: ")]
    assert "laptop_cpu.toml cannot be read as a machine" in said
    assert said.endswith(" The machine is taken as it is shipped, not calibrated.")
    monkeypatch.undo()
    monkeypatch.setattr("workbench.machines.presets.runs_directory", lambda: tmp_path)
    (tmp_path / "problems").mkdir()
    (tmp_path / "problems" / "mine.toml").write_text("[[preset]")
    status = cli.status(["predict", GEMM, "--preset", "tiny", "--scheme", "sequential"])
    assert status == 0
    assert "Left out: " in (err := capsys.readouterr().err)
    assert "mine.toml cannot be read as presets" in err


# The store


READERS = {
    "run": TINY,
    "predict": ("predict", GEMM, "--preset", "tiny"),
    "runs": ("runs",),
    "compare": ("compare", "last", "last"),
    "validate": ("validate",),
    "report": ("report", "last", "-o", "run.html"),
    "export": ("export", "last", "--to", "csv", "-o", "run.csv"),
}


@pytest.mark.parametrize("words", READERS.values(), ids=READERS)
def test_a_damaged_store(words: tuple[str, ...], refused: Callable[..., str], tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    path.write_bytes(b"not a database" * 1000)
    assert "store.sqlite is damaged: " in refused(*words, "--store", str(path))
    assert path.read_bytes() == b"not a database" * 1000


def test_a_store_where_nothing_can_be_written(refused: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    sentence = refused(*TINY, "--store", str(tmp_path / "file" / "store.sqlite"))
    assert "cannot be opened or written" in sentence
    assert "--store PATH" in sentence


def _limit_pages(store: Store) -> None:
    connection = store._database._connection
    connection.execute(f"PRAGMA max_page_count = {connection.execute('PRAGMA page_count').fetchone()[0]}")


def _forbid_writing(store: Store) -> None:
    store._database._connection.execute("PRAGMA query_only = ON")


@pytest.mark.parametrize(
    ("spoil", "sentence", "expected"),
    [
        (_limit_pages, "cannot grow: its disk or quota is full", 1),
        (_forbid_writing, "is read-only, but a run must be stored", 2),
    ],
)
def test_a_full_disk_and_a_read_only_store(
    spoil: Callable[[Store], None], sentence: str, expected: int, refused: Callable[..., str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, fake_cluster: Any,
) -> None:  # fmt: skip
    """A run that was stored before is still there."""
    path = tmp_path / "store.sqlite"
    with Store(path) as store:
        kept = store.begin_run({"note": "x" * 3000}, {})
    opens = Store.__init__

    def spoilt(self: Store, where: Path | None = None) -> None:
        opens(self, where)
        spoil(self)

    @contextmanager
    def connected(address: str | None, num_ranks: int, backend: str, *, share_gpu: bool = False) -> Iterator[Any]:
        yield fake_cluster

    monkeypatch.setattr(measuring, "connected", connected)
    monkeypatch.setattr(Store, "__init__", spoilt)
    assert sentence in refused(*TINY, "--store", str(path), expected=expected)
    monkeypatch.undo()
    with Store(path) as store:
        assert store.run(kept)["id"] == kept


UNKNOWN_RUN = (
    ("report", "2019", "-o", "run.html"),
    ("compare", "2019", "2018"),
    ("export", "2019", "--to", "csv", "-o", "run.csv"),
    ("validate", "2019"),
)


@pytest.mark.parametrize("words", UNKNOWN_RUN)
def test_a_run_that_does_not_exist(words: tuple[str, ...], refused: Callable[..., str], tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    Store(path).close()
    sentence = refused(*words, "--store", str(path))
    assert sentence.startswith("There is no run '2019'. Accepted: last, or one of none yet")


@pytest.mark.parametrize("name", ["h200_nvl2_gemm", "of_a_friend.jsonl"])
@pytest.mark.parametrize("command", ["validate", "searches"])
def test_a_recording_in_place_of_a_run_is_named_as_one(command: str, name: str, refused: Callable[..., str]) -> None:
    """Whether or not there is a store: the option is what the person lacks."""
    sentence = refused(command, name)
    assert sentence.startswith(f"There is no run {name}: it is the name of a recording")
    assert f"`workbench {command} --recording {name}`" in sentence


@pytest.mark.parametrize("words", [("runs",), ("validate",), *UNKNOWN_RUN], ids=lambda words: words[0])
def test_a_store_that_does_not_exist_is_not_begun_for_being_read(
    words: tuple[str, ...], refused: Callable[..., str], tmp_path: Path
) -> None:
    path = tmp_path / "store.sqlite"
    assert f"There is no store {path}. Accepted" in refused(*words, "--store", str(path))
    assert not path.exists()


# Clusters


def test_a_scheduler_that_does_not_answer(
    refused: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    asked = (*TINY, "--store", str(tmp_path / "store.sqlite"), "--cluster")
    assert f"The scheduler {address} cannot be reached: nobody answered" in refused(*asked, address, expected=1)
    assert "there is no scheduler file" in refused(*asked, str(tmp_path / "scheduler.json"))


@pytest.mark.slow
def test_shared_memory_that_is_too_small(tmp_path: Path) -> None:
    """In a mount namespace of its own, where /dev/shm has one megabyte."""
    words = [*TINY[:2], "--preset", "laptop_overlap", "--scheme", "fused", "--store", str(tmp_path / "store.sqlite")]
    inside = 'mount -t tmpfs -o size=1M tmpfs /dev/shm && exec "$@"'
    command = ["unshare", "--mount", "sh", "-c", inside, "sh"]
    if subprocess.run([*command, "true"], capture_output=True, timeout=100).returncode:
        pytest.skip("this machine does not allow mount namespaces")
    ran = subprocess.run([*command, sys.executable, "-m", "workbench.cli", *words], capture_output=True, text=True,
                         timeout=200, env={**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")})  # fmt: skip
    # on a busy computer ranks take a while to start, and that is told, too
    lines = [line for line in ran.stderr.splitlines() if not line.startswith("Waiting for 2 ranks for ")]
    ahead, *crowded, started, sentence = lines
    assert (ran.returncode, started.split(":")[0]) == (2, "No cluster is running")
    assert (" measured, " in ahead, [" ranks share " in line for line in crowded]) == (True, [True] * len(crowded))
    assert "of shared memory, but /dev/shm has" in sentence
    assert "Accepted: a smaller shape or world, or a larger /dev/shm." in sentence
