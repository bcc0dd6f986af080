"""Gangs of CPU ranks that interpret Triton kernels, and trials for an H200 that they can afford."""

import json
import os
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernels.fabric import parse
from kernels.machine import Machine, load
from kernels.operators import problem
from kernels.schedule import Schedule
from kernels.schemes import schedule
from kernels.trial import Protocol, Trial
from tests.forked import ForkedRanks

ROOT = Path(__file__).parents[4]
H200 = load(ROOT / "data" / "machines" / "h200_nvl8.toml")
ONCE = Protocol(name="once", warmups=0, repeats=1)


def gpu_trial(
    operator: str, shape: dict[str, Any], *, world: int, dtype: str, scheme: str = "fused", machine: Machine = H200,
    **axes: Any,
) -> Trial:  # fmt: skip
    """A trial for H200s or another *machine*, as the backend gets it."""
    fabric = parse("nvlink")
    asked = problem(operator, shape, world=world, dtype=dtype)
    chosen = schedule(asked, scheme, axes, machine, fabric)
    return Trial(problem=asked, schedule=chosen, backend="triton", machine=machine.name, fabric=fabric, protocol=ONCE)


def in_shots(trial: Trial, shots: int) -> Trial:
    """*trial* of a GEMV whose values fly once or twice."""
    axes = {**dict(trial.schedule.axes), "shots": shots}
    return replace(trial, schedule=Schedule(trial.schedule.scheme, tuple(axes.items())))


class InterpretedGang:
    """Processes that are kept for the session."""

    def __init__(self, world: int) -> None:
        session = uuid.uuid4().hex[:8]
        # numbers of calls wrap, and nothing is said about it
        ignored = ["-W", "ignore", "-W", "error:overflow encountered:RuntimeWarning"]
        environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        self._forked = ForkedRanks("tests.kernels.backends.triton.interpreted_main", world, [session], environment,
                                   ignored)  # fmt: skip
        self.ranks = self._forked.ranks

    def call(
        self, trial: Trial, calls: int = 3, programs: int = 1, *, stamped: bool = False, way: str = "in order",
        architecture: int = 0,
    ) -> list[dict[str, Any]]:  # fmt: skip
        """What every rank says of *calls* calls of *trial*, by *programs* programs that run one after the other.

        With the kernels of GPUs of *architecture*.
        """
        for rank in self.ranks:
            rank.stdin.write(json.dumps([trial.to_json(), calls, programs, stamped, way, architecture]) + "\n")
            rank.stdin.flush()
        lines = [rank.stdout.readline() for rank in self.ranks]
        assert all(lines), "a rank died: its traceback is above"
        return [json.loads(line) for line in lines]

    def close(self) -> None:
        self._forked.kill()


class Gangs(dict[int, InterpretedGang]):
    """By world, each begun when a test first asks for it."""

    def __missing__(self, world: int) -> InterpretedGang:
        return self.setdefault(world, InterpretedGang(world))


@pytest.fixture(scope="session")
def gangs() -> Iterator[dict[int, InterpretedGang]]:
    """By world: 2 and 4 ranks."""
    made = Gangs()
    yield made
    for gang in made.values():
        gang.close()
