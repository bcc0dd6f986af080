"""What the workbench exported becomes a run again, never a measured one; anything else is one sentence."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kernels.hardware import Execution, Hardware
from kernels.outcome import Estimate, Failure, Measurement, Sample
from kernels.trial import Trial
from workbench.results import frames, imports, metrics, recordings
from workbench.results.comparison import with_ratios
from workbench.results.imports import ImportedRun, import_run
from workbench.results.store import Store

RAN = Execution("source", "versions", Hardware(model="a processor", link="shared memory", cores=1.0))
CHANGES = ("id", "run", "at", "key")
"""Columns that another run has to have otherwise; a table does not say the key's protocol to the last digit."""


@pytest.fixture
def run(store: Store, make_trial: Callable[..., Trial], measure: Callable[..., Measurement]) -> str:
    """A run with measurements, parts, an estimate and a failure."""
    made = store.begin_run({}, {"host": "there", "user": "ada"})
    for trial in (make_trial(), make_trial("fused"), make_trial("decomposed", pieces=2), make_trial(part="compute")):
        measured = replace(measure(trial), source_print=RAN.source_print, versions_print=RAN.versions_print,
                           hardware=RAN.hardware, block=f"{made}.1")  # fmt: skip
        samples = [
            Sample(trial.key, rank, index, seconds, 1e9 + index, measured.block)
            for rank, of_rank in enumerate(measured.samples)
            for index, seconds in enumerate(of_rank)
        ]
        store.add_outcome(made, measured, metrics.row_of(measured, made), samples=samples)
    estimate = Estimate(trial=make_trial("fused"), time_s=1e-6, low_s=5e-7, high_s=2e-6, calibrated=True, predictor="p",
                        digest="d")  # fmt: skip
    failure = Failure(trial=make_trial("decomposed", pieces=4), stage="hang", message='rank 1 said, "no"\nand hung')
    for outcome in (estimate, failure):
        store.add_outcome(made, outcome, metrics.row_of(outcome, made))
    store.end_run(made)
    return made


@pytest.fixture
def table(store: Store, run: str, tmp_path: Path) -> Callable[[str], bytes]:
    """table(kind): the bytes of the exported run."""

    def export(kind: str) -> bytes:
        if kind == "jsonl":
            return recordings.write(store, run, tmp_path / "run.jsonl").read_bytes()
        return frames.export(frames.frame(with_ratios(store.rows(run))), kind, tmp_path / f"run.{kind}").read_bytes()

    return export


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_an_exported_table_comes_back_as_a_run_in_every_column(
    store: Store, run: str, table: Callable[[str], bytes], kind: str
) -> None:
    imported = import_run(store, f"a folder/exported.{kind}", table(kind)).id
    before, after = store.rows(run), store.rows(imported)
    for earlier, later in zip(before, after, strict=True):
        source = {"measured": "recorded"}.get(earlier["source"], earlier["source"])
        changed = {name for name in earlier if earlier[name] != later[name]} - set(CHANGES)
        assert changed <= {"source"}
        assert later["source"] == source
    assert {row["source"] for row in after} == {"recorded", "estimated"}
    stored = store.run(imported)
    digest = hashlib.sha256(table(kind)).hexdigest()
    assert (stored["title"], stored["provenance"]) == (
        f"imported from exported.{kind}", {"imported_from": f"exported.{kind}", "imported_sha256": digest})  # fmt: skip
    assert store.recorded(imported) == [], "a table has no samples: there is nothing to replay"


def test_a_page_says_what_each_column_of_a_table_means(store: Store, run: str, table: Callable[[str], bytes]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "store.md").read_text()
    lines = page.partition("## Rows in Python")[2].partition("\n## ")[0].splitlines()
    described = {name for line in lines if line.startswith("| `")
                 for name in re.findall(r"`(\w+)`", line.split("|")[1])}  # fmt: skip
    columns = set(table("csv").decode().splitlines()[0].split(",")) | set(store.frame(run).columns)
    axes = {name for row in store.rows(run) for name in (*row["shape"], *row["axes"])}
    assert columns - axes - described == set()
    assert described - columns == set()


def test_an_imported_recording_has_samples_and_provenance_and_is_not_known(
    store: Store, run: str, table: Callable[[str], bytes], tmp_path: Path
) -> None:
    content = table("jsonl")
    with Store(tmp_path / "other.sqlite") as other:
        imported = import_run(other, "run.jsonl", content).id
        assert other.run("last")["id"] == imported
        assert other.run(imported)["provenance"] == {
            "host": "there", "imported_from": "run.jsonl", "imported_sha256": hashlib.sha256(content).hexdigest()
        }  # fmt: skip
        assert {row["source"] for row in other.rows(imported)} == {"recorded"}
        assert [len(samples) for _, samples in other.recorded(imported)] == [10] * 4
        key = other.rows(imported)[0]["key"]
        assert (store.known(key, RAN) is not None, other.known(key, RAN)) == (True, None)
        assert recordings.write(other, imported, tmp_path / "again.jsonl").read_bytes().count(b"\n") == 4


def test_the_same_file_is_imported_once_until_its_run_is_deleted(
    store: Store, run: str, table: Callable[[str], bytes]
) -> None:
    first = import_run(store, "rows.csv", table("csv"))
    again = import_run(store, "another name.csv", table("csv"))
    assert (first.is_new, again) == (True, ImportedRun(first.id, is_new=False))
    other = import_run(store, "fewer.csv", b"".join(table("csv").splitlines(keepends=True)[:-1]))
    assert (other.is_new, other.id != first.id) == (True, True)
    store.annotations.delete(first.id)
    after = import_run(store, "rows.csv", table("csv"))
    assert (after.is_new, after.id != first.id) == (True, True)


def test_a_table_with_the_mark_and_the_order_of_a_spreadsheet_is_read(
    store: Store, run: str, table: Callable[[str], bytes]
) -> None:
    rows = list(csv.DictReader(io.StringIO(table("csv").decode(), newline="")))
    written = io.StringIO()
    columns = sorted(rows[0], reverse=True)
    writer = csv.DictWriter(written, [*columns, "a column of mine"], lineterminator="\r\n")
    writer.writeheader()
    writer.writerows(reversed(rows))
    imported = import_run(store, "sheet.csv", written.getvalue().encode("utf-8-sig")).id
    times = [row["time_s"] for row in store.rows(imported)]
    assert times == [row["time_s"] for row in store.rows(run)][::-1]


def cut(content: bytes, *columns: str) -> bytes:
    """The CSV *content* without *columns*."""
    rows = list(csv.DictReader(io.StringIO(content.decode(), newline="")))
    written = io.StringIO()
    writer = csv.DictWriter(written, [name for name in rows[0] if name not in columns], extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
    return written.getvalue().encode()


@pytest.mark.parametrize(("make", "message"), [
    (lambda made: b"name,age\nada,36\n", r"such as name, age; it lacks outcome, .* and so on: 14 of the 14"),
    (lambda made: cut(made("csv"), "fabric", "machine"), r"columns are missing; it lacks machine, fabric: 2 of the 14"),
    (lambda made: made("csv").replace(b"gemm_all_to_all", b"gemm_all_to_none", 1), "row 1 is no outcome: its row has"),
    (lambda made: made("csv").decode().encode("utf-16"), r"byte 0 of it is no UTF-8\."),
    (lambda made: "outcome,é".encode("latin-1"), r"byte 8 of it is no UTF-8\."),
    (lambda made: made("csv").splitlines()[0], "it has 0 rows"),
    (lambda made: b"  \n", "it is empty"),
    (lambda made: made("csv").splitlines()[0] + b"\n" + b"x" * 200_000, "it is no CSV"),
    (lambda made: made("jsonl")[:-40], "line 4 is not a recorded trial"),
    (lambda made: made("parquet")[:500], "it is no Parquet file"),
    (lambda made: b'{"a": 1}\n', "line 1 is not a recorded trial"),
    (lambda made: b"SQLite format 3\0" + bytes(range(256)), "is no UTF-8"),
])  # fmt: skip
def test_what_is_no_run_is_one_sentence_and_nothing_is_stored(
    store: Store, table: Callable[[str], bytes], make: Callable[[Callable[[str], bytes]], bytes], message: str
) -> None:
    content = make(table)
    before = [each["id"] for each in store.runs()]
    with pytest.raises(ValueError, match=message) as refused:
        import_run(store, "other.csv", content)
    assert "\n" not in str(refused.value)
    assert "Nothing was stored" in str(refused.value)
    assert [each["id"] for each in store.runs()] == before


@pytest.mark.parametrize("kind", ["csv", "parquet", "jsonl"])
def test_too_many_rows_are_refused_with_both_numbers_before_they_are_read(
    store: Store, table: Callable[[str], bytes], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imports, "ROWS_MOST", 3)
    monkeypatch.setattr(imports, "_outcome", lambda *_: pytest.fail("a row was read"))
    monkeypatch.setattr(recordings, "parsed", lambda *_: pytest.fail("a line was read"))
    with pytest.raises(ValueError, match=r"it has \d rows: \d > 3\. Nothing was stored\. Accepted: fewer rows"):
        import_run(store, f"many.{kind}", table(kind))
    monkeypatch.setattr(imports, "BYTES_MOST", 100)
    with pytest.raises(ValueError, match=r"it has .*B, and at most 100 B are read"):
        import_run(store, f"large.{kind}", table(kind))


def test_how_far_it_is_is_said_before_the_work(store: Store, table: Callable[[str], bytes]) -> None:
    sentences: list[str] = []
    import_run(store, "run.csv", table("csv"), report=sentences.append)
    assert sentences[0].startswith("run.csv: 8 lines are read"), json.dumps(sentences)
    assert sentences[-1] == "run.csv: 6 rows are stored …"


def test_a_digest_that_is_no_number_is_refused(
    store: Store, run: str, table: Callable[[str], bytes], tmp_path: Path
) -> None:
    digest = "abc\ntouch OWNED\n#"
    for kind in ("jsonl", "csv"):
        content = table(kind).decode()
        if kind == "jsonl":
            content = content.replace('"host": "there"', f'"host": "there", "machine_digest": {json.dumps(digest)}')
        else:
            lines = list(csv.DictReader(io.StringIO(content)))
            target = io.StringIO()
            writer = csv.DictWriter(target, list(lines[0]))
            writer.writeheader()
            writer.writerows({**line, "machine_digest": digest} for line in lines)
            content = target.getvalue()
        with (
            Store(tmp_path / f"{kind}.sqlite") as other,
            pytest.raises(ValueError, match=r"its machine_digest is 'abc.* is no hexadecimal number"),
        ):
            import_run(other, f"run.{kind}", content.encode())
