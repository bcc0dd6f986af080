"""The lessons are listed on 80 columns, and their pages are refused where they would replace something else."""

import json
from pathlib import Path

import pytest

from workbench import cli, lessons


def test_the_list_fits_eighty_columns_and_has_all_lessons(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.status(["lessons", "list"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 80 for line in printed[:10])
    for entry in lessons.LESSONS:
        assert any(entry.title in line and Path(entry.file).stem in line for line in printed[:10])


def test_with_json_it_is_one_document_with_questions_and_exercises(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.status(["lessons", "list", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [row["lesson"] for row in document["rows"]] == list(range(1, 10))
    assert document["rows"][0]["questions"] == ["total_time", "longest_term"]
    assert all(row["exercises"] for row in document["rows"])


def test_pages_are_not_written_over_somebody_elses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "index.html").write_text("my own page")
    assert cli.status(["lessons", "export", str(tmp_path)]) == 2
    assert "index.html" in capsys.readouterr().err
    assert (tmp_path / "index.html").read_text() == "my own page"
