"""Warm gangs of CPU ranks for the tests of kernels: processes without Dask, one gang per world and session."""

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch.distributed import TCPStore

from kernels.fabric import parse
from kernels.machine import Device, Dimension, Machine
from kernels.operators import OPERATORS, problem
from kernels.outcome import Failure, Gather, Measurement
from kernels.problem import Problem
from kernels.schemes import schedule
from kernels.trial import Protocol, Trial
from tests.forked import ForkedRanks
from tests.kernels.ragged import FREE

ONCE = Protocol(name="once", warmups=0, repeats=2)


@pytest.fixture(scope="session")
def cpu_machine() -> Machine:
    """A CPU of 8 ranks whose costs are of no consequence: it only decides what is legal."""
    device = Device(
        kind="cpu",
        name="any",
        slots=1,
        matrix_flops_per_second={"float32": 1e11},
        memory_bytes=8e9,
        memory_bytes_per_second=1e10,
        l2_bytes=2e6,
        copy_engines=0,
        shared_memory_per_slot_bytes=0,
    )
    switch = Dimension(topology="switch", count=8, bandwidth_bytes_per_second=1e9, latency_seconds=0)
    return Machine(
        name="any_cpu",
        title="any",
        backend="cpu",
        device=device,
        costs=replace(FREE, library_share=0.9),
        dimensions=(switch,),
        provenance={"device": "assumed: a test"},
    )


SMALL: dict[str, dict[str, int]] = {
    "embedding_all_to_all": {"tables_per_rank": 3, "rows": 200, "dim": 24, "batch": 148, "pooling": 5},
    "gemv_all_reduce": {"n": 148, "k": 96, "tokens": 3},
}
"""Sizes that no tile divides; the GEMM operators share one."""


def small(operator: str, world: int, dtype: str = "float32") -> Problem:
    """A problem of *operator* with ragged tiles."""
    return problem(operator, SMALL.get(operator, {"m": 148, "n": 75, "k": 96}), dtype=dtype, world=world)


@pytest.fixture(scope="session")
def make_trial(cpu_machine: Machine) -> Any:
    """make_trial(problem, scheme, fabric=..., protocol=..., **axes) -> Trial."""

    def make(
        asked: Problem,
        scheme: str,
        *,
        fabric: str = "emulated:bandwidth_bytes_per_second=1e9",
        protocol: Protocol = ONCE,
        **axes: Any,
    ) -> Trial:
        link = parse(fabric)
        chosen = schedule(asked, scheme, axes, cpu_machine, link)
        return Trial(
            problem=asked, schedule=chosen, backend="cpu", machine=cpu_machine.name, fabric=link, protocol=protocol
        )

    return make


class Gang:
    """Rank processes that are kept for the session."""

    def __init__(self, world: int) -> None:
        # it listens where nobody does before ranks are told the port: one that was only looked up may be taken by then
        self._store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        session, root = uuid.uuid4().hex[:8], Path(__file__).parents[2]
        self._forked = ForkedRanks("tests.kernels.rank_main", world, [session, str(self._store.port)],
                                   {"PYTHONPATH": str(root), "PATH": ""}, ["-W", "ignore"])  # fmt: skip
        self.ranks = self._forked.ranks

    def events(self, trials: Sequence[Trial]) -> list[Mapping[str, Any]]:
        """All ranks' events of one list, rank after rank."""
        line = json.dumps([trial.to_json() for trial in trials]) + "\n"
        for rank in self.ranks:
            rank.stdin.write(line)
            rank.stdin.flush()
        answers = [rank.stdout.readline() for rank in self.ranks]
        return [event for answer in answers for event in json.loads(answer)]

    def outcomes(self, trials: Sequence[Trial]) -> list[Measurement | Failure]:
        """The outcome of every trial, in order."""
        events = self.events(trials)
        return [_outcome(trial, events) for trial in trials]

    def close(self) -> None:
        self._forked.ended(timeout=100)


def _outcome(trial: Trial, events: Sequence[Mapping[str, Any]]) -> Measurement | Failure:
    gather = Gather(trial)
    found = [gather.feed(event) for event in events if event["trial"] == trial.key]
    ends = [one for one in found if isinstance(one, Measurement | Failure)]
    assert ends, f"no rank said how {trial.schedule} ended"
    return ends[0]


@pytest.fixture(scope="session")
def gangs() -> Iterator[Any]:
    """gangs(world) -> the session's Gang of that world."""
    made: dict[int, Gang] = {}

    def of(world: int) -> Gang:
        return made.setdefault(world, Gang(world)) if world not in made else made[world]

    yield of
    for gang in made.values():
        gang.close()


assert set(SMALL) <= set(OPERATORS)
