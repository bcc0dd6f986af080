"""What puts between hosts would gain, and which network would turn that: estimated from the fused schedule's own Plan.

`python -m workbench.analysis.between_hosts` prints the table of docs/simulator.md. Nothing between hosts was measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import sqrt
from typing import Any

from kernels.fabric import parse
from kernels.machine import NETWORK, Machine
from kernels.operators import problem
from kernels.schemes import BASELINE, schedule
from kernels.units import seconds_text
from workbench.machines import shipped_machine
from workbench.simulator.closed_form.grid import times
from workbench.simulator.predict import compute_alone_seconds

MACHINE = "h200_ib"
OPERATOR, SCHEME = "embedding_all_to_all", "fused"
BATCH_PER_RANK, TABLE_ROWS, DIM = 512, 1_000_000, 128
TABLES, POOLING = (2, 8, 32), (4, 16, 70)
"""Tables of a rank and lookups of a sample: our choice, since the paper's shapes are unknown."""
WORLDS = (2, 16)
"""Ranks of two hosts: of one GPU each, and of eight each, which share puts."""
MIDDLE = (8, 16)
"""Tables and lookups of the shape in the table."""
STEPS, FURTHEST = 20, 1e5
"""Halvings of the interval in which a turn lies, and the largest factor that is tried."""


def over(numbers: Mapping[str, Any]) -> Machine:
    """MACHINE with other *numbers* of its network, such as latency_seconds."""
    machine = shipped_machine(MACHINE)
    levels = [replace(each, **numbers) if each.link == NETWORK else each for each in machine.dimensions]
    return replace(machine, dimensions=tuple(levels))


def case(world: int, tables: int, pooling: int, machine: Machine) -> dict[str, Any]:
    """Seconds of the library's sequence and of puts that the kernel starts, both with default axes, in closed form."""
    shape = {"tables_per_rank": tables, "rows": TABLE_ROWS, "dim": DIM, "batch": BATCH_PER_RANK * world,
             "pooling": pooling}  # fmt: skip
    of, fabric, seconds = problem(OPERATOR, shape, world=world), parse(NETWORK), {}
    for scheme in (BASELINE, SCHEME):
        chosen = schedule(of, scheme, {}, machine, fabric)
        seconds[scheme] = float(times(of, scheme, dict(chosen.axes), machine, fabric)[0])
    return {"machine": machine.name, "world": world, "shape": shape, "schedule": str(chosen),
            "compute_s": compute_alone_seconds(of, machine, fabric), "baseline_s": seconds[BASELINE],
            "time_s": seconds[SCHEME], "reduction": 1 - seconds[SCHEME] / seconds[BASELINE]}  # fmt: skip


def cases() -> Iterator[dict[str, Any]]:
    """A case for every shape, on two hosts of one and of eight GPUs."""
    machine = shipped_machine(MACHINE)
    return (case(*sizes, machine) for sizes in product(WORLDS, TABLES, POOLING))


@dataclass(frozen=True, slots=True)
class Turn:
    """The value of a network's *quantity* at which the gain is *share* of today's; None: not within FURTHEST."""

    world: int
    quantity: str
    present: float
    share: float
    value: float | None


QUANTITIES = {"latency_seconds": 1, "message_seconds": 1, "bandwidth_bytes_per_second": -1}
"""Numbers of a network: 1 where a larger one costs more, -1 where a smaller one does."""


def turn(world: int, quantity: str, share: float) -> Turn:
    """Where the gain of the middle shape falls to *share* of today's if only *quantity* gets worse."""
    network = next(each for each in shipped_machine(MACHINE).dimensions if each.link == NETWORK)
    present, sign = float(getattr(network, quantity)), QUANTITIES[quantity]

    def gain(factor: float) -> float:
        return float(case(world, *MIDDLE, over({quantity: present * factor**sign}))["reduction"])

    least, low, high = share * gain(1.0), 1.0, 2.0
    while gain(high) > least:
        low, high = high, 2 * high
        if high > FURTHEST:
            return Turn(world, quantity, present, share, None)
    for _ in range(STEPS):
        middle = sqrt(low * high)
        low, high = (middle, high) if gain(middle) > least else (low, middle)
    return Turn(world, quantity, present, share, present * high**sign)


def table() -> list[str]:
    """The lines of the table of docs/simulator.md."""
    heads = ("Ranks on two hosts", "Number of the network", "Today", "Half of the gain", "No gain")
    lines = [" | ".join(("", *heads, "")).strip(), "|" + "---|" * len(heads)]
    for world, quantity in product(WORLDS, QUANTITIES):
        turns = [turn(world, quantity, share) for share in (0.5, 0.0)]
        values = [turns[0].present, *(each.value for each in turns)]
        lines.append(f"| {world} | `{quantity}` | " + " | ".join(map(_text, values, [quantity] * 3)) + " |")
    return lines


def _text(value: float | None, quantity: str) -> str:
    if value is None:
        return f"not within a factor of {FURTHEST:,.0f}"
    return seconds_text(value) if quantity.endswith("_seconds") else f"{value / 1e9:.1f} GB/s"


if __name__ == "__main__":
    print("\n".join(table()))
