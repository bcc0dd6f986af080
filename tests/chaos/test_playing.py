"""A minute of chaos: faults of one seed against a cluster of its own, with own mounts where this user may have them."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos import left
from tests.chaos.disk import LIMIT_BYTES, Limited
from tests.chaos.judging import Stores
from tests.chaos.keeping import Kept
from tests.chaos.playing import VICTIM_S, Patience

ROOT = Path(__file__).parents[2]
SEED, ROUND = 4, 104
"""Kills a worker, a rank, its successor and clients, stops the scheduler and ranks, and fills the disk."""
PATIENCE_S, ENDS_S = 240, 60
"""Ends what hangs. How soon the world recovers is judged by the long run, where nobody else uses the cores."""
IN_ALL_S = 2 * PATIENCE_S
"""A quiet host needs a minute; below the limit of a test, so that a play that hangs says what it saw."""


@pytest.mark.slow
def test_nothing_is_lost_wrong_or_left_behind_after_a_few_faults() -> None:
    words = f"--seed {SEED} --round {ROUND} --ranks 2 --clients 2 --recovery {PATIENCE_S}"
    command = [sys.executable, "-m", "tests.chaos", *words.split()]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, **pipes) as playing:
        try:
            stdout, stderr = playing.communicate(timeout=IN_ALL_S)
        except subprocess.TimeoutExpired:
            playing.send_signal(signal.SIGINT)  # it ends what it began
            stdout, stderr = playing.communicate(timeout=ENDS_S)
    assert playing.returncode == 0, stdout[-4000:] + stderr[-2000:]
    figures = next(json.loads(line) for line in stdout.splitlines() if line.startswith("{"))
    assert figures["faults"] >= 4
    assert figures["outcomes"]["measurement"] > 0
    assert len(figures["clients_by_status"]) > 1, "some clients were struck"


@pytest.mark.parametrize(("recovery_s", "never_s", "rest_s"), [(30.0, 120.0, 90.0), (400.0, 400.0, 400.0)])
def test_a_slow_host_is_given_all_the_time_that_was_asked_for(recovery_s: float, never_s: float, rest_s: float) -> None:
    patience = Patience(recovery_s)
    assert (patience.never_s, patience.rest_s) == (never_s, rest_s)
    assert patience.victim_s >= VICTIM_S


def test_a_trial_that_is_not_measured_again_in_time_is_a_trouble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", tmp_path / "slow")
    (tmp_path / "slow").write_text("#!/bin/sh\nexec sleep 60\n")
    (tmp_path / "slow").chmod(0o755)
    row = {"key": "k", "axes": {"pieces": 2}, "operator": "gemm_all_to_all", "world": 2, "protocol": "quick",
           "machine": "laptop_cpu", "scheme": "decomposed"}  # fmt: skip
    stores = Stores(again_s=0.2)
    (tmp_path / "store.sqlite").touch()
    stores._measured.append((tmp_path / "store.sqlite", row))
    assert stores.once_more(1, "tcp://127.0.0.1:9") == ["trial k was not measured again within 0 s"]


def test_a_command_about_the_cluster_that_does_not_end_is_a_trouble(tmp_path: Path) -> None:
    kept = Kept(tmp_path, 1, up_s=0.0)
    (tmp_path / "cluster0.log").touch()
    kept._order = "up"
    kept._command = subprocess.Popen(["sleep", "60"])
    kept.tick()
    assert kept.troubles == ["`workbench cluster up` did not end within 0 s."]
    assert not kept.busy


def test_a_limit_stands_in_for_a_full_disk(tmp_path: Path) -> None:
    disk = Limited(tmp_path / "disk")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, text=True) as user:
        try:
            disk.fill([user.pid])
            assert resource.prlimit(user.pid, resource.RLIMIT_FSIZE)[0] == LIMIT_BYTES
            disk.lift([user.pid])
            assert resource.prlimit(user.pid, resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
        finally:
            user.communicate("\n", timeout=60)


def test_what_is_left_behind_is_noticed(tmp_path: Path) -> None:
    assert left.files(tmp_path, left.DASKS) == []
    (tmp_path / "dask-scratch-space").mkdir()
    for name in ("purge.lock", "global.lock", "worker-abc"):
        (tmp_path / "dask-scratch-space" / name).touch()
    assert left.files(tmp_path, left.DASKS) == ["dask-scratch-space/worker-abc"]
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, text=True) as child:
        try:
            assert [name for name in left.processes() if name.startswith(f"{child.pid} ")]
            assert child.pid in {process.pid for process in left.descendants()}
        finally:
            child.communicate("\n", timeout=60)
    assert not [name for name in left.processes() if name.startswith(f"{child.pid} ")]
