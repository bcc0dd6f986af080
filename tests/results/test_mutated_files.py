"""Files of every kind, damaged some hundred times: each is read, or refused in one sentence that names it."""

import json
import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import nbformat.v4
import pytest

from kernels.machine import load as load_machine
from kernels.outcome import Measurement, Sample
from kernels.trial import Trial
from workbench import resources
from workbench.experiment import question
from workbench.machines import presets
from workbench.reports.export import read as read_notebook
from workbench.results import metrics, recordings
from workbench.results.provenance import provenance
from workbench.results.store import Store

SEED, TIMES = 14, 70
HOSTILE = ("[]", "{}", "null", "-1", "0", "1e999", "NaN", '"x"', "9" * 30, "true", "\0", "[" * 2000, '{"a":' * 500, "²",
           "10000000000000", "= =", "\n\n", '"', "]")  # fmt: skip
VALUES = (None, [], {}, -1, 0, 2**70, "x", "²", True, 1e300, float("nan"), [[]], {"a": []}, "a" * 300)


def spoilt_text(text: str, chance: random.Random) -> str:
    """*text* with a part of it cut out, doubled, or replaced by something that has no place there."""
    start = chance.randrange(len(text) + 1)
    stop = min(len(text), start + chance.choice((0, 1, 1, 5, 40, len(text))))
    return text[:start] + chance.choice((*HOSTILE, "", text[start:stop] * 2)) + text[stop:]


def spoilt_value(value: Any, chance: random.Random) -> Any:
    """*value* with one value somewhere in it replaced, or left out."""
    if isinstance(value, dict) and value and chance.random() < 0.9:
        key = chance.choice(list(value))
        rest = {name: each for name, each in value.items() if name != key}
        return rest if chance.random() < 0.1 else {**value, key: spoilt_value(value[key], chance)}
    if isinstance(value, list) and value and chance.random() < 0.8:
        number = chance.randrange(len(value))
        return [*value[:number], spoilt_value(value[number], chance), *value[number + 1 :]]
    return chance.choice(VALUES)


def read_recording(path: Path) -> None:
    metrics.fill([metrics.row_of(each.measurement) for each in recordings.read(path)])


def read_store(path: Path) -> None:
    with Store(path) as store:
        store.annotations.deleted()
        for run in store.runs():
            store.rows(run["id"])
            store.recorded(run["id"])
            store.spans(run["id"], "x")
            store.trials(run["id"])
        store.bests([run["id"] for run in store.runs()])
        store.right_wholes("gemm_all_to_all")


def refused_or_read(path: Path, read: Callable[[Path], object], how: str) -> None:
    """Asserts that *path* is read, or refused in one line that names it; *how* finds it again."""
    said = f"{path.name} was read"
    try:
        read(path)
    except ValueError as error:
        said = str(error)
    except Exception as error:
        pytest.fail(f"{how}: {path} ends in {error!r}")
    assert path.name in said, how
    assert "\n" not in said, how


@pytest.fixture
def samples(tmp_path: Path, make_trial: Callable[..., Trial], measure: Callable[..., Measurement]) -> dict[str, Path]:
    """A small valid file of every kind."""
    with Store(tmp_path / "valid.sqlite") as store:
        run = store.begin_run({"space": [{"scheme": "fused", "values": {"slice_tiles": [1]}}]}, provenance(), "a title")
        for trial in (make_trial(), make_trial("fused")):
            measured = measure(trial)
            raw = [Sample(trial.key, rank, index, seconds, 1e9 + index)
                   for rank, mine in enumerate(measured.samples) for index, seconds in enumerate(mine)]  # fmt: skip
            store.add_outcome(run, measured, metrics.row_of(measured, run), samples=raw)
        store.end_run(run)
        store.annotations.note(run, "a note")
        store.annotations.tag(run, ["a tag"])
        recordings.write(store, run, tmp_path / "valid.jsonl")
        store._database._connection.execute("PRAGMA journal_mode = DELETE")
    cells = [nbformat.v4.new_markdown_cell("Words."), nbformat.v4.new_code_cell("1 + 1")]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "valid.ipynb")
    for kind, shipped in (("machine", "machines/laptop_cpu"), ("space", "spaces/u_curve"), ("preset", "problems/tiny")):
        shutil.copy(resources.data_directory() / f"{shipped}.toml", tmp_path / f"valid_{kind}.toml")
    texts = {kind: tmp_path / f"valid_{kind}.toml" for kind in ("machine", "space", "preset")}
    return {**texts, "recording": tmp_path / "valid.jsonl", "notebook": tmp_path / "valid.ipynb",
            "store": tmp_path / "valid.sqlite"}  # fmt: skip


READERS: dict[str, Callable[[Path], object]] = {
    "machine": load_machine,
    "space": question.load,
    "preset": lambda path: presets._load(path, random.random()),  # type: ignore[arg-type]
    "recording": read_recording,
    "notebook": read_notebook,
}


@pytest.mark.parametrize("kind", READERS)
def test_a_damaged_text_is_read_or_refused_by_name(kind: str, samples: dict[str, Path], tmp_path: Path) -> None:
    chance, valid = random.Random(f"{SEED} {kind}"), samples[kind].read_text()
    READERS[kind](samples[kind])
    for number in range(TIMES):
        path = tmp_path / f"damaged_{number}{samples[kind].suffix}"
        if kind in ("recording", "notebook") and number % 2:
            lines = valid.splitlines() if kind == "recording" else [valid]
            damaged = json.dumps(spoilt_value(json.loads(lines[0]), chance))
        else:
            damaged = spoilt_text(valid, chance)
        path.write_text(damaged)
        refused_or_read(path, READERS[kind], f"{kind} {number} of seed {SEED}")


COLUMNS = {
    "runs": ("id", "started_at", "ended_at", "status", "title", "experiment", "provenance", "note", "deleted_at"),
    "tags": ("run", "tag"),
    "trials": ("trial",),
    "outcomes": ("at", "outcome", "source", "origin", "row", "spans", "block", "source_print", "hardware"),
    "samples": ("rank", "number", "seconds", "at"),
}
JSON_COLUMNS = ("experiment", "provenance", "trial", "row", "spans", "hardware")


def test_a_damaged_store_is_read_or_refused_by_name(samples: dict[str, Path], tmp_path: Path) -> None:
    chance, valid = random.Random(SEED), samples["store"].read_bytes()
    read_store(samples["store"])
    for number in range(TIMES):
        path = tmp_path / f"damaged_{number}.sqlite"
        if number % 3 == 0:
            damaged = bytearray(valid)
            for _ in range(chance.choice((1, 10, 300))):
                damaged[chance.randrange(len(damaged))] = chance.randrange(256)
            path.write_bytes(damaged)
        else:
            path.write_bytes(valid)
            _spoil_column(path, chance)
        refused_or_read(path, read_store, f"store {number} of seed {SEED}")


def _spoil_column(path: Path, chance: random.Random) -> None:
    table = chance.choice(list(COLUMNS))
    column = chance.choice(COLUMNS[table])
    with closing(sqlite3.connect(path)) as connection:
        (text,) = connection.execute(f"SELECT {column} FROM {table} LIMIT 1").fetchone()
        value: Any = chance.choice((-5, "abc", b"\xff\x00", 9e999, "", "[" * 2000))
        if column in JSON_COLUMNS and text and chance.random() < 0.8:
            value = json.dumps(spoilt_value(json.loads(text), chance))
        connection.execute(f"UPDATE OR IGNORE {table} SET {column} = ?", (value,))
        connection.commit()
