"""Guesses of tests go into a folder of their own, and nobody's alias is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench import resources
from workbench.lessons import ledger


@pytest.fixture(autouse=True)
def own_guesses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of this test's guesses."""
    folder = tmp_path / "runs"
    monkeypatch.setattr(resources, "runs_directory", lambda: folder)
    monkeypatch.delenv(ledger.ALIAS, raising=False)
    monkeypatch.setattr(ledger, "_alias", [])
    monkeypatch.setattr(ledger, "_listeners", [])
    return folder / ledger.FILE
