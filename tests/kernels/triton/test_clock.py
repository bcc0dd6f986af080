"""The clock's tick is the smallest step that it is seen to make, and never 0."""

import os
import subprocess
import sys

from kernels.backends.triton.timing import Clock
from tests.kernels.triton.conftest import ROOT

MEASURE = """
import torch
from kernels.backends.triton import timing
timing.READS = 50
found = timing.measured(torch.device("cpu"))
assert 0 < found.tick_s <= 1e-3, found
assert found.tick_s <= found.read_s < 1, found
assert timing.measured(torch.device("cpu")) is found
"""
"""The interpreter's clock is the host's, which steps at every reading."""


def test_it_is_measured_by_reading_it_again_and_again() -> None:
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-W", "ignore", "-c", MEASURE], check=True, env=environment, timeout=200, cwd=ROOT)


def test_it_is_said_in_words() -> None:
    assert str(Clock(tick_s=1.024e-6, read_s=2e-8)) == "ticks every 1.02 µs, read in 20 ns"
