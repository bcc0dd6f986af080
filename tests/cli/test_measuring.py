"""Commands that make ranks of their own: measured, stopped, killed, and ended by Ctrl-C before they have begun."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from workbench.results.store import Store

pytestmark = pytest.mark.slow
TINY = ("gemm_all_to_all", "--preset", "tiny", "--protocol", "quick")


def start(words: tuple[str, ...], environment: dict[str, str], **how: Any) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-m", "workbench.cli", *words], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, env=environment, **how)  # fmt: skip


def test_run_from_a_shell_makes_its_own_ranks(tmp_path: Path, environment: dict[str, str]) -> None:
    store = str(tmp_path / "store.sqlite")
    process = start(("run", *TINY, "--scheme", "fused", "--json", "--store", store), environment)
    out, err = process.communicate(timeout=200)
    found = json.loads(out)
    assert (process.returncode, found["outcome"], found["correct"]) == (0, "measurement", True)
    assert "\nNo cluster is running: 2 ranks are started for this command." in err
    assert err.startswith("1 fused schedule and 4 baselines in 1 block are measured, ")
    assert "Traceback" not in err


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
def test_a_sweep_that_is_stopped_keeps_what_was_measured(
    by: signal.Signals, tmp_path: Path, environment: dict[str, str]
) -> None:
    space, path = tmp_path / "space.toml", tmp_path / "store.sqlite"
    space.write_text('operator = "gemm_all_to_all"\npreset = "tiny"\nprotocol = "thorough"\n[scheme.decomposed]\n'
                     'pieces = "all"\nsteps = "all"\ntile = "all"\n[scheme.fused]\ntile = "all"\n')  # fmt: skip
    with Store(path) as store:
        process = start(("sweep", str(space), "--json", "--store", str(path)), environment)
        deadline = time.monotonic() + 200
        while len(store.samples_since(0)[0]) < 200:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline, "no samples came within 200 s"
            time.sleep(0.05)
        process.send_signal(by)
        out, err = process.communicate(timeout=200)
        assert process.returncode == 130, err
        assert json.loads(out)["summary"]["stopped"] is True
        assert store.run("last")["status"] == "cancelled"
        stored = [row for row in store.rows(store.run("last")["id"]) if row["source"] == "measured"]
        assert any(row["outcome"] == "measurement" for row in stored)
        assert "Traceback" not in err
        assert "leaked" not in err


def test_a_run_whose_process_was_killed_is_lost(tmp_path: Path, environment: dict[str, str]) -> None:
    path = tmp_path / "store.sqlite"
    words = ("run", *TINY[:2], "laptop_overlap", "--protocol", "thorough", "--store", str(path))
    with Store(path) as store:
        process = start(words, environment)
        deadline = time.monotonic() + 200
        while not store.samples_since(0)[0]:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline, "no samples came within 200 s"
            time.sleep(0.05)
        assert [run["status"] for run in store.runs()] == ["running"]
        process.kill()
        process.communicate(timeout=200)
        assert [run["status"] for run in store.runs()] == ["lost"]


@pytest.mark.slow(keeps=1)
@pytest.mark.parametrize("seconds", [0.1, 0.5, 0.9])
def test_ctrl_c_while_ranks_start_is_silent(seconds: float, tmp_path: Path, environment: dict[str, str]) -> None:
    """A terminal sends it to every process that was started from it."""
    words = ("run", *TINY, "--store", str(tmp_path / "store.sqlite"))
    process = start(words, environment, start_new_session=True)
    assert process.stderr is not None
    told = [process.stderr.readline(), process.stderr.readline()]
    assert told[1].startswith("No cluster is running")
    time.sleep(seconds)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=200)
    assert (process.returncode, out) == (130, "")
    assert set(err.splitlines()) <= {
        "Stopped.", "Stopping; what was measured is kept. Ctrl-C again ends at once.",
        "Stopped before anything was measured.",
    }  # fmt: skip
