"""The kernels of the probes: every word arrives, signals keep the rules, and what is compiled is what is meant."""

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, cast
from unittest import mock

import pytest
import torch

from kernels.backends.base import Hang
from kernels.backends.triton.launch import Call
from kernels.backends.triton.probes import suite
from kernels.backends.triton.probes.host import _measured, bounds, line, title
from kernels.backends.triton.probes.suite import Probe, ProbeSite, expected_seconds
from kernels.machine import load
from kernels.operators import problem
from tests.kernels.backends.triton.compile_sm90 import Compiled, UnbackedHeap, warmed_up
from tests.kernels.backends.triton.ptx import Kernel, every_rule
from tests.kernels.backends.triton.test_ptx import sizes_found

ROOT = Path(__file__).parents[4]
MACHINES = ROOT / "data" / "machines"


def interpreted(world: int) -> list[dict[str, Any]]:
    """What every rank of a gang of *world* says of all kernels that send."""
    session = uuid.uuid4().hex[:8]
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "ignore", "-m", "tests.kernels.backends.triton.probe_main"]
    ranks = [
        subprocess.Popen([*command, str(rank), str(world), session], cwd=ROOT, env=environment, stdout=subprocess.PIPE)
        for rank in range(world)
    ]
    try:
        return [json.loads(rank.communicate(timeout=250)[0]) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()


@pytest.mark.slow
def test_every_word_that_is_put_arrives_and_no_wait_is_in_vain() -> None:
    """Two ranks play, and a third one has no part in their rounds."""
    answers = interpreted(3)
    assert all(all(answer["puts"].values()) and len(answer["puts"]) == 8 for answer in answers), answers
    assert all(answer["failures"] == [None, None, None] and answer["met"] == 1 for answer in answers), answers
    assert [answer["rounds"] for answer in answers] == [[3, 3], [3, 3], [0, 0]]
    assert all(set(answer["around wraps"]) == {None} for answer in answers), "where numbers of calls wrap"


class Compiling:
    """Stands for a `triton.JITFunction`: compiles where that would launch."""

    def __init__(self, function: Any, architecture: int) -> None:
        self.function, self._architecture = function, architecture
        self.made: list[Compiled] = []

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return lambda *given, **named: self.made.append(warmed_up(self.function, given, named, self._architecture))


def site(architecture: int = 90) -> ProbeSite:
    made = ProbeSite(UnbackedHeap(), 2, 4, 1 << 22, torch.device("cpu"))
    made.architecture = architecture
    return made


POOL = torch.empty(1 << 18, dtype=torch.int64)
LOOKUP = problem(
    "embedding_all_to_all",
    {"tables_per_rank": 4, "rows": 1000, "dim": 128, "batch": 64, "pooling": 16},
    dtype="bfloat16", world=4,
)  # fmt: skip
KERNELS: dict[str, Callable[[ProbeSite], Sequence[Call]]] = {
    "put": lambda there: suite.puts(there, "registers", "all_to_all", 1 << 20, 64),
    "put_bulk": lambda there: suite.puts(there, "tma", "all_to_all", 1 << 20, 64),
    "ping_pong": suite.signals,
    "ping_pong_packets": lambda there: suite.packets(there, 1024),
    "read": lambda there: suite.reads(POOL, 1 << 20, 132),
    "copy": lambda there: suite.local_copies(POOL, 1 << 20, 132, by_kernel=True),
    "gather": lambda there: suite.gathers(there, LOOKUP, lookups(), 64),
}
"""By kernel, the calls of a probe that launch it."""
COUNTERS = ("put", "put_bulk", "ping_pong")
"""Kernels that wait for counters, which wrap; packets are compared by equality."""


def lookups() -> dict[str, torch.Tensor]:
    return {
        "tables": torch.empty(4, 1000, 128, dtype=torch.bfloat16),
        "indices": torch.zeros(64, 4, 16, dtype=torch.int64),
    }


@cache
def of(name: str, architecture: int = 90) -> Compiled:
    """What the first call of its probe would launch of kernel *name*."""
    compiling = Compiling(getattr(suite, name), architecture)
    with mock.patch.object(suite, name, compiling):
        KERNELS[name](site(architecture))[0]()
    return compiling.made[0]


@pytest.mark.parametrize("name", KERNELS)
def test_signals_keep_the_rules_of_memory_order_and_nothing_spills(name: str, tmp_path: Path) -> None:
    kernel = Kernel(of(name).ptx, of(name).arguments)
    assert every_rule(kernel) == []
    assert bool(sizes_found(kernel)) == (name in COUNTERS)
    assert of(name).local_bytes(tmp_path) == 0


def test_memory_is_read_by_16_bytes_a_thread_and_many_at_once() -> None:
    loads = {name: of(name).ptx.count("ld.global.v2.b64") for name in ("read", "copy")}
    assert loads == {"read": 8, "copy": 8}
    rows = of("gather").ptx
    assert rows.index("atom.global") > rows.rindex("ld.global.v4.b32")  # the branch that holds all loads back


def test_bulk_puts_leave_by_the_bulk_copy_engine_and_the_others_do_not() -> None:
    bulk = "cp.async.bulk.tensor.2d.global.shared::cta"
    assert bulk in of("put_bulk").ptx
    assert bulk not in of("put").ptx
    assert "st.global.v4.b32" in of("put").ptx


@pytest.mark.parametrize(("world", "more"), [(1, 0), (2, 70), (4, 80)])
def test_the_suite_is_the_same_on_all_ranks_and_expects_something_of_every_probe(world: int, more: int) -> None:
    machine = load(MACHINES / "h200_nvl8.toml")
    probes = list(suite.suite(world, 132, machine))
    assert [each.facts for each in probes] == [each.facts for each in suite.suite(world, 132, machine)]
    assert all(0 < each.expected_s < 1 for each in probes)
    assert len(probes) > 80 + more - 10
    assert ("put" in {each.name for each in probes}) == (world > 1)
    assert sum(each.expected_s for each in probes) < 0.1


def test_what_is_expected_of_a_put_is_never_above_the_link() -> None:
    machine = load(MACHINES / "h200_nvl2.toml")
    for way in ("registers", "tma", "copy_engine"):
        facts = {"way": way, "bytes": 1e9, "programs": 132}
        assert 1e9 / expected_seconds("put", facts, machine) < machine.dimensions[0].bandwidth_bytes_per_second


def test_bytes_on_the_wire_are_counted_as_nccl_tests_count_them() -> None:
    assert suite.wire_bytes("all_reduce", 800, 4) == 1200
    assert suite.wire_bytes("all_to_all", 800, 4) == 600


class FakeGround:
    """Two ranks of which the other one does as it is told."""

    device = torch.device("cpu")

    def __init__(self, other_fails: float = 0.0) -> None:
        self.seat, self.other_fails = type("Seat", (), {"rank": 0}), other_fails

    def exchange(self, values: Sequence[float]) -> list[list[float]]:
        return [list(values), [2 * seconds for seconds in values] if len(values) > 1 else [self.other_fails]]


def measured(prepare: Callable[[Any], Callable[[], list[float]]], other_fails: float = 0.0) -> dict[str, Any]:
    return _measured(cast(Any, FakeGround(other_fails)), Probe("signal", {"rounds": 3}, 1e-6, prepare, share=0.5))


def failing(*_: Any) -> Any:
    raise RuntimeError("no such instruction")


def test_the_slowest_rank_counts_and_a_call_of_many_is_shared_out() -> None:
    row = measured(lambda ground: lambda: [1e-6, 3e-6, 2e-6, 5e-6, 4e-6])
    assert row["seconds"] == pytest.approx(3e-6)  # the other rank takes twice as long, half of which is one
    assert (row["low_s"], row["high_s"]) == pytest.approx((1e-6, 5e-6))
    assert (row["probe"], row["rounds"], row["expected_s"]) == ("signal", 3, 1e-6)
    assert [len(blocks) for blocks in row["blocks"]] == [5, 5]


def test_a_probe_that_cannot_be_is_told_and_one_that_fails_on_one_rank_alone_ends_all() -> None:
    assert "no such instruction" in measured(failing)["refused"]
    with pytest.raises(Hang, match=r"signal .*no such instruction"):
        measured(lambda ground: failing)
    with pytest.raises(Hang, match="waited in vain"):
        measured(lambda ground: hanging)


def hanging() -> list[float]:
    raise Hang("waited in vain")


def test_each_lookup_is_told_beside_its_bound() -> None:
    about = {"probe": "gather", "dtype": "float32", "shape": {"dim": 128}}
    rows = [about | {"by": "read_only", "seconds": 9e-5}, about | {"by": "read_only", "seconds": 8e-5},
            about | {"by": "ours", "seconds": 1e-4}, about | {"by": "ours", "refused": "no"}]  # fmt: skip
    assert list(bounds(rows)) == ["lookup float32 dim=128: 100.0 µs, rows alone 80.0 µs: 80% of the bound"]


def test_a_row_is_one_line_with_its_speed_beside_what_was_expected() -> None:
    row = {"probe": "put", "way": "tma", "pattern": "ring", "bytes": 3e8, "seconds": 1e-3, "low_s": 9e-4,
           "high_s": 2e-3, "expected_s": 1.1e-3}  # fmt: skip
    assert "300 GB/s" in line(row)
    assert "1100.000µs" in line(row)
    assert "no room" in line({"probe": "gemm", "by": "ours", "expected_s": 1.0, "refused": "no room"})
    assert "expected" in title()
