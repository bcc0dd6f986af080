"""How a CPU rank waits: spin briefly, then sleep, and never beyond a deadline."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from kernels.backends.base import Hang

clock = time.perf_counter
"""CLOCK_MONOTONIC on Linux: all processes of a host read the same time."""

SPIN_SECONDS = 200e-6
NAP_SECONDS = 50e-6


def pause(since: float, now: float) -> None:
    """Lets others run: yields while the wait is young, sleeps once it is not."""
    if now - since < SPIN_SECONDS:
        os.sched_yield()
    else:
        time.sleep(NAP_SECONDS)


def until(ready: Callable[[], bool], deadline_s: float, what: Callable[[], str]) -> None:
    """Returns once *ready*; raises Hang with the sentence *what* after *deadline_s* seconds."""
    since = clock()
    while not ready():
        now = clock()
        if now - since > deadline_s:
            raise Hang(f"{what()} Waited {deadline_s:g} s.")
        pause(since, now)


def sleep_until(moment: float) -> None:
    """Returns at *moment* of `clock`: sleeps, then spins the last stretch."""
    while (left := moment - clock()) > 0:
        if left > SPIN_SECONDS:
            time.sleep(left - SPIN_SECONDS / 2)
