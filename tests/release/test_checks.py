"""A check that fails is told and stops no other; a command that does not end is ended; a short check is really made."""

import json
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.release import commands
from tests.release.checks import FIRST, LAST, results
from tests.release.commands import ROOT, Commands, Miss, require
from tests.release.site import Figures, Site
from tests.release.summary import FAILED, PASSED, private


class FakeSite:
    """Its cluster was started anew before the check that is said to be troubled."""

    def __init__(self, folder: Path, within_s: float = 60.0) -> None:
        self.commands = Commands(folder, within_s)
        self.notes: list[str | None] = []

    def ready(self) -> str | None:
        return self.notes.pop(0) if self.notes else None


def judged(site: FakeSite, **checks: Any) -> dict[str, tuple[str, str | None]]:
    return {each.check: (each.outcome, each.message) for each in results(cast(Site, site), checks)}


def good(site: Site) -> Figures:
    return {"figure": 1}


def missed(site: Site) -> Figures:
    require(1 == 2, "One is not two.")
    return {}


def broken(site: Site) -> Figures:
    return {"figure": cast(Any, None)["figure"]}


def test_a_failing_check_stops_no_other(tmp_path: Path) -> None:
    came = judged(FakeSite(tmp_path), cluster=good, missed=missed, broken=broken, last=good)
    assert came["missed"] == (FAILED, "One is not two.")
    assert came["broken"][0] == FAILED
    assert str(came["broken"][1]).startswith("TypeError: ")
    assert (came["cluster"], came["last"]) == ((PASSED, None), (PASSED, None))


def test_a_cluster_that_was_started_anew_is_told(tmp_path: Path) -> None:
    site = FakeSite(tmp_path)
    site.notes = ["Anew.", "Anew."]
    assert judged(site, good=good, missed=missed) == {
        "good": (PASSED, "Anew."),
        "missed": (FAILED, "Anew. One is not two."),
    }


def test_without_time_a_check_is_not_begun(tmp_path: Path) -> None:
    assert judged(FakeSite(tmp_path, 0.0), good=good) == {"good": (FAILED, "No time was left to begin it.")}


@pytest.fixture
def sleeper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    """Commands that only say something and sleep."""
    script = tmp_path / "sleeper"
    script.write_text("#!/bin/sh\necho waiting >&2\nsleep 100\n")
    script.chmod(0o700)
    monkeypatch.setattr(commands, "sys", SimpleNamespace(executable=str(script)))
    return Commands(tmp_path, 60.0)


def test_a_command_that_does_not_end_is_ended(sleeper: Commands) -> None:
    began = sleeper.begin("run", "x")
    sleeper.wait("its word", 30.0, lambda: sleeper.processes() or None)
    with pytest.raises(Miss, match=r"`workbench run x` did not end within 1 s: "):
        began.end(1.0)
    assert not began.runs
    sleeper.begin("run", "y")
    sleeper.end_all()
    sleeper.wait("all having ended", 30.0, lambda: not sleeper.processes())


def test_what_does_not_come_is_named(sleeper: Commands) -> None:
    began = sleeper.begin("run", "x")
    with pytest.raises(Miss, match=r"^0 s passed without a sample\.$"):
        sleeper.wait("a sample", 0.1, lambda: None, began)
    began.kill()
    with pytest.raises(Miss, match=r"`workbench run x` ended with status -9 .* It ended before a sample\.$"):
        sleeper.wait("a sample", 30.0, lambda: None, began)


@pytest.mark.slow
def test_a_short_check_is_made_with_cpu_ranks(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    words = ["--backend", "cpu", "--only", "gemm_all_to_all", "ctrl_c", "-o", str(path)]
    began_at = time.monotonic()
    answer = subprocess.run([sys.executable, "-m", "tests.gpu.through_dask", *words], cwd=ROOT, capture_output=True,
                            text=True, timeout=400)  # fmt: skip
    summary = json.loads(answer.stdout)
    assert [each["check"] for each in summary["checks"]] == [FIRST, "gemm_all_to_all", "ctrl_c", LAST]
    assert answer.returncode == 0, answer.stderr
    assert path.read_text() == answer.stdout
    assert private(summary) == []
    assert summary["seconds"] < time.monotonic() - began_at
    assert "Traceback" not in answer.stderr
