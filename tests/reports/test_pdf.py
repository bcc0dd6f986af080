"""Printing: a PDF where Chromium is, one sentence where it is not, never a wait without end."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from workbench.reports.render import browser, pdf


def program(folder: Path, script: str) -> None:
    fake = folder / "chromium"
    fake.write_text(f"#!/bin/sh\n{script}\n")
    fake.chmod(0o755)


def test_without_chromium_there_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ValueError, match=r"needs Chromium or Chrome.*apt install chromium.*html"):
        browser()


def test_a_chromium_that_hangs_is_ended_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, f"sleep 600 & echo $! > {tmp_path}/child; wait")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    began = time.monotonic()
    with pytest.raises(ValueError, match="did not print the report within 2 s"):
        pdf("<p>x</p>", deadline_s=2)
    assert time.monotonic() - began < 60, "of the 600 s that it would take"
    assert _gone(int((tmp_path / "child").read_text()))


def test_a_chromium_that_fails_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "echo no display >&2; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(ValueError, match=r"wrote no PDF.*no display.*html"):
        pdf("<p>x</p>")


@pytest.mark.browser
def test_a_page_is_printed() -> None:
    assert pdf("<h1>Printed</h1>").startswith(b"%PDF-")


def _gone(pid: int) -> bool:
    """Whether the process has ended; an orphan that nobody reaps stays as a zombie."""
    for _ in range(300):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.1)
    return False
