"""Traces of applications, operators and files say what they are to say, and a damaged file is refused."""

from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from kernels import reference
from kernels.fabric import parse
from kernels.operators import OPERATORS, problem
from kernels.plan import Kind
from kernels.schedule import Refusal
from kernels.schemes import expand, schedule
from tests.simulator.cache.made import STRUCTURES, load, small, store, trace
from workbench.machines import machine
from workbench.simulator.cache import operators, popularity
from workbench.simulator.cache import trace as trace_file
from workbench.simulator.cache.hierarchy import LINE_BYTES
from workbench.simulator.cache.policies import POLICIES
from workbench.simulator.cache.replay import simulate
from workbench.simulator.cache.trace import ACCESS, PEER, WRITE, in_memory
from workbench.simulator.cache.workloads import WORKLOADS, workload

SHAPES = {
    "embedding_all_to_all": {"tables_per_rank": 2, "rows": 5000, "dim": 64, "batch": 256, "pooling": 4},
    "gemv_all_reduce": {"n": 1024, "k": 1024, "tokens": 2},
}
GEMM = {"m": 512, "n": 512, "k": 256}
GPU = machine("h200_nvl2")


def traced(name: str, world: int, units: int = 16, **axes: object):
    asked = problem(name, SHAPES.get(name, GEMM), dtype="float32" if "embedding" in name else "bfloat16", world=world)
    stated = schedule(asked, "fused", axes, GPU, parse("nvlink"))
    return asked, stated, operators.traced(asked, stated, units)


@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_reads_its_operands_once_from_dram_where_all_of_them_fit(name: str, world: int) -> None:
    asked, stated, made = traced(name, world)
    replay = simulate(made, small(units=16, l2_bytes=64 * 2**20, l2_ways=16, in_flight=64), POLICIES["cache_rw"])
    sizes = {key: int(np.prod(shape)) * asked.itemsize for key, shape in OPERATORS[name].local(asked).items()}
    for key, traffic in replay.structures.items():
        if key in ("tables", "indices"):
            assert traffic.dram_read_bytes <= (sizes[key] if key == "tables" else 2 * sizes[key])
            assert traffic.dram_read_bytes > 0
        elif key == "shard":
            assert traffic.dram_read_bytes == sizes[key] * world
        elif key not in ("output", "peers' bytes"):
            assert traffic.dram_read_bytes == sizes[key], key
    plan = expand(asked, stated)
    put = int(plan.num_bytes[(plan.kind == Kind.PUT) & (plan.peer == 0)].sum())
    incoming = sum(int(((chunk.accesses["flags"] & PEER) != 0).sum()) for chunk in made.chunks())
    assert incoming == -(-put // LINE_BYTES)


def test_tiles_are_read_in_the_order_of_the_plan() -> None:
    """One unit: the rows of the left operand change as those of the tiles do."""
    asked, stated, made = traced("gemm_all_to_all", 2, units=1, tile="128x128x64")
    accesses = np.concatenate([chunk.accesses for chunk in made.chunks()])
    left = accesses[(accesses["structure"] == 0) & ((accesses["flags"] & WRITE) == 0)]["line"]
    rows = left * LINE_BYTES // (asked["k"] * asked.itemsize)
    per_tile = len(left) // len(expand(asked, stated).tiles[0])
    tiles = expand(asked, stated).tiles[0]
    first = tiles.chunk * (asked["m"] // 2) + tiles.row_start
    assert rows[::per_tile].tolist() == first.tolist()


def test_results_that_belong_to_peers_touch_nothing_here() -> None:
    asked, stated, made = traced("gemm_all_to_all", 2)
    counts: Counter[int] = Counter()
    for chunk in made.chunks():
        own = chunk.accesses[(chunk.accesses["flags"] & (WRITE | PEER)) == WRITE]
        counts.update(own["structure"].tolist())
    tiles = expand(asked, stated).tiles[0]
    kept = ((tiles.row_stop - tiles.row_start) * (tiles.col_stop - tiles.col_start))[tiles.chunk == 0].sum()
    assert sum(counts.values()) * LINE_BYTES == kept * asked.itemsize


def test_lookups_are_drawn_by_the_law_that_ranks_use() -> None:
    assert popularity.EXPONENT == reference.POWER_LAW_EXPONENT
    sizes = SHAPES["embedding_all_to_all"]
    reads = []
    for law in ("uniform", "power_law"):
        asked = problem("embedding_all_to_all", {**sizes, "indices": law}, world=1)
        made = operators.traced(asked, schedule(asked, "fused", {}, GPU, parse("nvlink")), 16)
        on = small(units=16, l2_bytes=2**20, l2_ways=16, in_flight=64)
        reads.append(simulate(made, on, POLICIES["cache_rw"]).structures["tables"].dram_read_bytes)
    assert reads[1] < reads[0] / 2


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_application_stays_inside_its_structures(name: str) -> None:
    made = workload(name).trace(64)
    kernels, lowest, highest, total = set(), {}, {}, 0
    for chunk in made.chunks():
        kernels.add(chunk.kernel)
        total += len(chunk.accesses)
        assert int(chunk.accesses["line"].min()) >= 0
        for number in np.unique(chunk.accesses["structure"]).tolist():
            lines = chunk.accesses["line"][chunk.accesses["structure"] == number]
            lowest[number] = min(lowest.get(number, 2**60), int(lines.min()))
            highest[number] = max(highest.get(number, 0), int(lines.max()))
    assert sorted(kernels) == list(range(len(kernels)))
    assert set(lowest) == set(range(len(made.structures))), "a structure that nobody touches"
    order = sorted(lowest)
    assert all(highest[a] < lowest[b] for a, b in pairwise(order))
    assert 50_000 < total < 2_000_000


def test_there_are_the_seventeen_applications_of_the_paper() -> None:
    assert len(WORKLOADS) == 17
    with pytest.raises(Refusal, match=r"There is no workload 'FwConv'\. Accepted: all, CM"):
        workload("FwConv")


def test_a_trace_comes_back_from_its_file(tmp_path: Path) -> None:
    made = trace([load(3), store(4, sectors=3, instruction=2)], [load(3)], units=1)
    assert trace_file.write(made, tmp_path / "t.parquet") == 3
    back = trace_file.read(tmp_path / "t.parquet")
    assert (back.name, back.structures, back.units) == (made.name, STRUCTURES, 1)
    pairs = list(zip(made.chunks(), back.chunks(), strict=True))
    assert all(a.kernel == b.kernel and (a.accesses == b.accesses).all() for a, b in pairs)
    for each in POLICIES.values():
        assert simulate(back, small(), each) == simulate(made, small(), each)


def test_a_file_that_is_cut_short_damaged_or_something_else_is_refused(tmp_path: Path) -> None:
    whole = tmp_path / "whole.parquet"
    rows = np.zeros(5000, ACCESS)
    rows["line"], rows["sectors"] = np.arange(5000) * 7919 % 4001, 15
    trace_file.write(in_memory("whole", [rows], STRUCTURES, 1), whole)
    content = whole.read_bytes()
    for name, part in (("cut", content[: len(content) // 2]), ("empty", b""), ("text", b"line,unit\n")):
        (tmp_path / name).write_bytes(part)
        with pytest.raises(Refusal, match=rf"{name} cannot be read as a trace: it is no whole Parquet file"):
            trace_file.read(tmp_path / name)
    middle = len(content) // 3
    (tmp_path / "bent").write_bytes(content[:middle] + bytes(8) + content[middle + 8 :])
    with pytest.raises(Refusal, match="bent cannot be read as a trace: it is damaged"):
        list(trace_file.read(tmp_path / "bent").chunks())
    with pytest.raises(Refusal, match="There is no trace file"):
        trace_file.read(tmp_path / "absent")
    parquet.write_table(pa.table({"address": [1]}), tmp_path / "other")
    with pytest.raises(Refusal, match="it has no column kernel of int32"):
        trace_file.read(tmp_path / "other")


@pytest.mark.parametrize(
    ("column", "values", "sentence"),
    [
        ("kernel", [1, 0], "a number falls"),
        ("flags", [0, 8], "flags above 7"),
        ("sectors", [16, 1], "sectors above 15"),
        ("sectors", [0, 1], "no sector"),
    ],
)
def test_rows_that_cannot_be_are_refused(tmp_path: Path, column: str, values: list[int], sentence: str) -> None:
    trace_file.write(trace([load(1), load(2)]), tmp_path / "good")
    table = parquet.read_table(tmp_path / "good")
    at = table.schema.get_field_index(column)
    changed = table.set_column(at, table.schema.field(at), pa.array(values, table.schema.field(at).type))
    parquet.write_table(changed, tmp_path / "bad")
    with pytest.raises(Refusal, match=sentence):
        simulate(trace_file.read(tmp_path / "bad"), small(), POLICIES["cache_rw"])
