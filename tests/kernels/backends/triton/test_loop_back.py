"""A loop-back world leaves what its truth says, so that what is timed there is a whole call."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kernels.backends.triton.loop_back_main import CHOSEN

ROOT = Path(__file__).parents[4]


@pytest.mark.slow
def test_every_fused_operator_is_right_in_a_loop_back_world() -> None:
    command = [sys.executable, "-W", "ignore", "-m", "tests.kernels.backends.triton.loop_back_main"]
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(command, cwd=ROOT, env=environment, text=True, capture_output=True, timeout=280)
    assert ran.returncode == 0, ran.stderr[-2000:]
    rows = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [(name, world) for name, world, *_ in rows] == [(name, world) for name, world, _ in CHOSEN]
    assert not [row for row in rows if row[2]]  # what each call leaves is right
    assert not [row for row in rows if not row[3]]  # and rows in another order are not
