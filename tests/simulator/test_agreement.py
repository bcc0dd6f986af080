"""Tier A is near tier B on a sample of the committed grid and of schedules that nobody chose: none is beyond 15 %."""

import numpy as np

from kernels.schemes import COMPARED
from tests.simulator.agreement import MACHINES, NEAR, drawn_errors, errors

EVERY = 7
"""One schedule in so many; `python -m tests.simulator.agreement` asks all of them."""
MEDIAN, FEW = 0.01, 0.02
"""The middle of both; and how many of those that are drawn may be beyond NEAR: the target is none."""


def test_closed_form_and_play_agree_on_the_committed_grid() -> None:
    apart = np.abs([error for machine in MACHINES for scheme in COMPARED for error in errors(machine, scheme, EVERY)])
    assert len(apart) > 300
    assert np.median(apart) <= MEDIAN
    assert apart.max() <= NEAR


def test_they_agree_on_schedules_that_are_drawn() -> None:
    apart = np.abs([error for machine in MACHINES for error in drawn_errors(machine, each=3)])
    assert len(apart) > 150
    assert np.median(apart) <= MEDIAN
    assert np.mean(apart > NEAR) <= FEW
