"""Small problems that no tile divides, on GPUs and CPU ranks over each link, with schedules that cover their axes."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

from kernels import fabric as fabrics
from kernels.fabric import Fabric, parse
from kernels.machine import Costs, Device, Dimension, Machine
from kernels.operators import OPERATORS, problem
from kernels.problem import Problem
from kernels.schedule import Axis, Schedule
from tests.kernels import covering

WORLDS = (1, 2, 4)
FABRICS = ("emulated", "emulated:hosts=2", "shared_memory", "network", "nvlink")

FREE = Costs(
    launch_seconds=0,
    step_seconds=0,
    tile_seconds=0,
    signal_seconds=0,
    barrier_seconds=0,
    copy_engine_seconds=0,
    library_seconds=0,
    library_share=1,
    send_blocks=0,
)
"""Costs of no consequence."""

MACHINE = Machine(
    name="eight",
    title="Eight devices with copy engines",
    backend="triton",
    device=Device(
        kind="gpu",
        name="one",
        slots=4,
        matrix_flops_per_second={"float32": 1e12},
        memory_bytes_per_second=1e11,
        memory_bytes=1e9,
        l2_bytes=1e6,
        copy_engines=1,
        shared_memory_per_slot_bytes=1e5,
    ),
    costs=FREE,
    dimensions=(Dimension(topology="switch", count=8, bandwidth_bytes_per_second=1e9, latency_seconds=0),),
    provenance={},
)

ON_CPUS = replace(MACHINE, backend="cpu", device=replace(MACHINE.device, kind="cpu", copy_engines=0))
"""The same with ranks whose fused kernel stages."""

TILES = {"gemm": "4x8x16", "gemv": "4x2x16", "gather": "4x8x3"}
MORE = {"slice_tiles": (7, 1000), "micro_batches": (3,)}
"""Values of open axes that nobody offers: they divide nothing, or are more than there is."""


def ask(operator: str, world: int, height: int = 20, width: int = 10, depth: int = 6) -> Problem:
    """A problem with height x world rows in all; sizes that no tile divides."""
    if operator == "gemv_all_reduce":
        return problem(operator, {"n": height * world, "k": depth * world, "tokens": 1 + width % 8}, world=world)
    if operator == "embedding_all_to_all":
        tables = {"tables_per_rank": width, "rows": 50, "dim": 4, "batch": height * world, "pooling": depth}
        return problem(operator, tables, world=world)
    return problem(operator, {"m": height * world, "n": width, "k": depth}, world=world)


def linked(world: int) -> Iterator[tuple[Machine, Fabric]]:
    """GPUs and CPU ranks with each link that they may have."""
    for machine in (MACHINE, ON_CPUS):
        for fabric in map(parse, FABRICS):
            if fabrics.refusal(fabric, machine, world) is None:
                yield machine, fabric


def known_axes(asked: Problem, scheme: str, machine: Machine, fabric: Fabric) -> list[Axis]:
    """What is offered, a tile that leaves rests, and MORE."""
    known = covering.offered(asked, scheme, machine, fabric, TILES[OPERATORS[asked.operator].work])
    return [replace(axis, values=(*axis.values, *MORE.get(axis.name, ()))) for axis in known]


@dataclass(frozen=True)
class Covered:
    """Schedules of one machine and link with every value of every axis.

    In the largest world they have every two values where both may stand: rules of axes seldom know the world, and a
    step that is missing among few ranks is missing among many.
    """

    place: str
    known: list[Axis]
    schedules: list[Schedule]
    """Empty where the whole scheme is refused."""


@cache
def covered(operator: str, scheme: str, world: int) -> list[Covered]:
    asked, made = ask(operator, world), []
    for machine, fabric in linked(world):
        known = known_axes(asked, scheme, machine, fabric)
        complete, pairs = covering.legal(asked, scheme, machine, fabric), world == max(WORLDS)
        chosen = covering.covering(known, complete, pairs=pairs, turn=0 if pairs else world)
        made.append(Covered(f"{machine.backend} over {fabric.kind}", known, chosen))
    return made
