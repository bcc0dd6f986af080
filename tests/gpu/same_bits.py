"""Fused calls that are made a thousand times on the same operands and leave the same bits, and what is said of them.

`tests/gpu/one_process.py bits` makes them, with ranks that noise shifts against each other. This table needs no GPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kernels.fabric import parse
from kernels.operators import OPERATORS, problem
from kernels.operators.base import Flow
from kernels.schemes import axis_rules, schedule
from kernels.trial import PROTOCOLS, Trial
from tests.gpu.wrapping import LARGE, RELAYED, SHAPES, relaying
from workbench.machines import machine

CALLS = 1000
"""Calls after the first one, whose result is verified against float64 and then compared."""
MACHINES = {2: "h200_nvl2", 4: "h200_nvl4", 8: "h200_nvl8"}
"""By world, whose default schedules are taken."""
FEW_ROWS = {"m": 128, "n": 7168, "k": 8192}
"""Tiles span ranks by default."""
CUT = ({"m": 64, "n": 2048, "k": 8192}, {"m": 128, "n": 1024, "k": 13184})
"""Fewer tiles than SMs, and long contractions: cut by default where tiles span ranks."""
SPANNING: dict[str, Any] = {axis_rules.TILE_ORDER: axis_rules.SPANNING}
LATER: dict[str, Any] = {**SPANNING, axis_rules.COMM_SMS: 16}
"""Programs that only push bring the later columns of rows that come in."""
WHOLE_TABLE = (2, 4)
"""Worlds that make all calls; with more ranks a program of each has few SMs, and only some are made."""
Row = Mapping[str, Any]


def trials(world: int) -> list[Trial]:
    """The calls of *world* ranks, each once: defaults, cuts where results leave and come in, and other ways to send."""
    gemms = [name for name, each in OPERATORS.items() if each.work == "gemm"]
    receiving = [name for name in gemms if OPERATORS[name].flow is Flow.RECEIVE]
    chosen: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        *((name, shape, {}) for name, shape in SHAPES.items()),
        *((name, FEW_ROWS, {}) for name in gemms),
        *((name, shape, SPANNING) for shape in CUT for name in gemms),
        *((name, FEW_ROWS, LATER) for name in receiving),
    ]
    if world in WHOLE_TABLE:
        chosen += [
            ("gemv_all_reduce", SHAPES["gemv_all_reduce"], {axis_rules.SHOTS: 2}),
            *((name, LARGE, {}) for name in gemms),
            ("gemm_reduce_scatter", LARGE, {axis_rules.TILE_ORDER: axis_rules.RING}),
            *((name, LARGE, RELAYED) for name in relaying(world)),
        ]
    return list(dict.fromkeys(trial(name, shape, world, **axes) for name, shape, axes in chosen))


def trial(name: str, shape: Mapping[str, Any], world: int, **axes: Any) -> Trial:
    """One of *world* H200s, fused, with default values of all axes but *axes*."""
    here, fabric = machine(MACHINES[world]), parse("nvlink")
    of = problem(name, dict(shape), world=world, dtype="bfloat16")
    return Trial(problem=of, schedule=schedule(of, "fused", axes, here, fabric), backend="triton", machine=here.name,
                 fabric=fabric, protocol=PROTOCOLS["default"])  # fmt: skip


def ways(one: Trial) -> list[str]:
    """What a person says of how *one* sends, beside its operator and shape."""
    axes = dict(one.schedule.axes)
    parts, sending = axes.get(axis_rules.SPLIT_K, axis_rules.WHOLE), axes.get(axis_rules.COMM_SMS, 0)
    order = axes.get(axis_rules.TILE_ORDER)
    said = [str(order)] if order else []
    said += [f"k/{parts}"] if parts != axis_rules.WHOLE else []
    said += [f"{sending} send"] if sending else []
    return said + ([f"{axes[axis_rules.SHOTS]} shots"] if axis_rules.SHOTS in axes else [])


def judged(one: Trial, facts: Row) -> dict[str, Any]:
    """The row of *one*; *facts*: programs of a rank, calls that were made, those with `other` bits, and `wrong`.

    Other bits are wrong, too.
    """
    other = facts.get("other")
    sentence = facts["wrong"] or (f"{other} of {facts['calls']} calls left other bits" if other else "")
    return {"operator": one.problem.operator, "shape": dict(one.problem.shape), "world": one.world,
            "machine": one.machine, "way": " ".join(ways(one)), "axes": dict(one.schedule.axes),
            **facts, "wrong": sentence}  # fmt: skip


def line(row: Row) -> str:
    """What a person reads of a row."""
    sizes = "x".join(map(str, row["shape"].values()))
    what = f"w{row['world']} {row['operator']:20} {sizes:18} {row['way']:24}"
    if row["wrong"]:
        return f"FAILED {what} {row['wrong']}"
    return f"ok     {what} {row['other']} of {row['calls']} calls with other bits, {row['seconds']} s"


def summary(rows: Iterable[Row]) -> str:
    """What a person reads at the end."""
    every = list(rows)
    right = [row for row in every if not row["wrong"]]
    calls = sum(row["calls"] for row in right)
    return f"{len(right)} of {len(every)} schedules left the same bits, in {calls:,} calls"
