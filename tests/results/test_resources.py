"""What a schedule takes beside time is read from its Plan: SMs, bytes that leave at once, memory that peers write."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from kernels import fabric as fabrics
from kernels import operators
from kernels.schedule import Refusal, Schedule
from kernels.schemes import SCHEMES, axes, schedule
from workbench.machines import shipped_machine
from workbench.results.resources import (
    IN_FLIGHT,
    MEMORY,
    READ,
    RESOURCES,
    SMS,
    resources_of,
    with_resource,
)

GPUS = shipped_machine("h200_nvl8")
LINK = fabrics.parse(fabrics.usual(GPUS, 4))
M, N, K, WORLD = 8192, 4096, 1792, 4
PROBLEM = operators.problem("gemm_all_to_all", {"m": M, "n": N, "k": K}, dtype="bfloat16", world=WORLD)
PEERS = WORLD - 1


def made(scheme: str, **values: Any) -> Schedule:
    return schedule(PROBLEM, scheme, values, GPUS, LINK)


def taken(scheme: str, **values: Any) -> dict[str, int | None]:
    return resources_of(PROBLEM, made(scheme, **values), GPUS)


def test_sms_are_those_that_do_not_compute_meanwhile() -> None:
    assert taken("decomposed", engine="sm", comm_sms=16)[SMS] == 16
    assert taken("decomposed", engine="copy_engine")[SMS] == 0
    assert taken("fused")[SMS] == 0, "the SMs that compute also send"
    assert taken("sequential", collective="library")[SMS] == 0, "nothing computes meanwhile"
    assert taken("decomposed", engine="library")[SMS] in range(1, GPUS.device.slots)
    limited = next(axis.values for axis in axes(PROBLEM, "concurrent", GPUS, LINK) if axis.name == "comm_sms")[1]
    assert taken("concurrent", collective="library", comm_sms=limited)[SMS] <= limited


def test_without_a_machine_the_blocks_of_a_call_are_not_known_and_cpu_ranks_have_no_sms() -> None:
    by_library = made("decomposed", engine="library")
    assert resources_of(PROBLEM, by_library, None)[SMS] is None
    assert resources_of(PROBLEM, made("fused"), None)[SMS] == 0
    assert resources_of(PROBLEM, made("fused"), shipped_machine("laptop_cpu"))[SMS] is None


def test_bytes_in_flight_are_those_of_one_step_to_all_peers() -> None:
    whole = PEERS * (M // WORLD) * N * 2
    assert taken("sequential", collective="direct")[IN_FLIGHT] == whole
    assert taken("sequential", collective="library")[IN_FLIGHT] == whole
    for pieces in (2, 4, 8):
        assert taken("decomposed", pieces=pieces, engine="copy_engine")[IN_FLIGHT] == whole // pieces
    one = taken("fused", tile="128x256x64", tile_order="interleaved", slice_tiles=1)[IN_FLIGHT]
    assert one == PEERS * 128 * 256 * 2
    assert taken("fused", tile="128x256x64", tile_order="interleaved", slice_tiles=4)[IN_FLIGHT] == 4 * one


def test_memory_is_of_all_problems_of_a_call() -> None:
    assert taken("fused")[MEMORY] == M * N * 2, "a rank's result has the rows of all sources"
    micro_batches = next(
        axis.values for axis in axes(PROBLEM, "concurrent", GPUS, LINK) if axis.name == "micro_batches"
    )
    each = {count: taken("concurrent", micro_batches=count)[MEMORY] for count in micro_batches}
    assert all(num_bytes == count * M * N * 2 for count, num_bytes in each.items())


@pytest.mark.slow(keeps=7)
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("resource", RESOURCES)
@pytest.mark.parametrize("operator", ["gemm_all_to_all", "all_gather_gemm", "gemm_all_reduce"])
def test_a_resource_depends_on_no_axis_that_is_not_read(operator: str, resource: str, scheme: str) -> None:
    """`with_resource` computes schedules that agree in the axes it reads once."""
    problem = operators.problem(operator, {"m": 1024, "n": 512, "k": 512}, dtype="bfloat16", world=WORLD)
    for axis in axes(problem, scheme, GPUS, LINK):
        if axis.name in READ[resource]:
            continue
        for others in SETTINGS.get(scheme, ({},)):
            amounts = set()
            for value in axis.values:
                try:
                    chosen = schedule(problem, scheme, {**others, axis.name: value}, GPUS, LINK)
                except Refusal:
                    continue
                same = {name: chosen.get(name) for name in READ[resource]}
                amounts.add((*same.items(), resources_of(problem, chosen, GPUS)[resource]))
            assert len(amounts) == len({each[:-1] for each in amounts}), axis.name


SETTINGS: dict[str, Any] = {
    "decomposed": [{"engine": engine, "pieces": 4} for engine in ("sm", "copy_engine", "library")],
    "fused": [{}, {"tile_order": "interleaved", "slice_tiles": 2}],
}


def row(scheme: str, time_s: float | None = 1.0, **values: Any) -> dict[str, Any]:
    chosen = made(scheme, **values)
    return {
        "operator": PROBLEM.operator, "shape": dict(PROBLEM.shape), "dtype": PROBLEM.dtype, "world": WORLD,
        "scheme": scheme, "axes": dict(chosen.axes), "backend": "triton", "machine": GPUS.name, "time_s": time_s,
    }  # fmt: skip


def test_rows_get_the_column_and_equal_ones_are_computed_once() -> None:
    looked_up: list[str] = []

    def machine_of(name: str) -> Any:
        looked_up.append(name)
        return shipped_machine(name)

    rows = [row("decomposed", pieces=pieces, engine="copy_engine") for pieces, _ in product((2, 4), range(50))]
    complete = with_resource([*rows, row("fused", None)], IN_FLIGHT, machine_of)
    assert looked_up == [GPUS.name]
    assert [each[IN_FLIGHT] for each in complete[:-1]] == [
        taken("decomposed", pieces=each["axes"]["pieces"], engine="copy_engine")[IN_FLIGHT] for each in rows
    ]
    assert complete[-1][IN_FLIGHT] is None
