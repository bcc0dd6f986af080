"""A minute of chaos: faults of one seed against a cluster of its own, with own mounts where this user may have them."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos import family, left
from tests.chaos.disk import LIMIT_BYTES, Limited

ROOT = Path(__file__).parents[2]
SEED, ROUND = 4, 104
"""Kills a worker, a rank, its successor and clients, stops the scheduler and ranks, and fills the disk."""
PATIENCE_S = 400
"""Ends what hangs. How soon the world recovers is judged by the long run, where nobody else uses the cores."""


@pytest.mark.alone
@pytest.mark.slow
def test_nothing_is_lost_wrong_or_left_behind_after_a_few_faults() -> None:
    words = f"--seed {SEED} --round {ROUND} --ranks 2 --clients 2 --recovery {PATIENCE_S}"
    command = [sys.executable, "-m", "tests.chaos", *words.split()]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True,
                         timeout=PATIENCE_S, env=os.environ | {"PYTHONPATH": str(ROOT)})  # fmt: skip
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-2000:]
    figures = next(json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{"))
    assert figures["faults"] >= 4
    assert figures["outcomes"]["measurement"] > 0
    assert len(figures["clients_by_status"]) > 1, "some clients were struck"


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
            assert child.pid in {process.pid for process in family.descendants()}
        finally:
            child.communicate("\n", timeout=60)
    assert not [name for name in left.processes() if name.startswith(f"{child.pid} ")]
