"""Curves of the library's fastest settings: a machine's own curves, times what a sweep of the settings says they save.

The sweep's times are not taken as they are: it calls over three buffers and reads other clocks than the probes, so its
default is not the machine's either. What a setting takes of the default of the same sweep is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from kernels.backends.triton.winners import CHANNELS, DEFAULT, WINDOWS
from kernels.machine import TUNED, Collective, Machine
from workbench.simulator.price.collectives import measured_seconds

Row = Mapping[str, Any]

OURS = (DEFAULT, WINDOWS, *CHANNELS)
"""Settings that `library_tuned` has."""


def with_tuned(machine: Machine, rows: Iterable[Row]) -> Machine:
    """*machine* with a curve of `library_tuned` for each collective that the sweep's *rows* have.

    ValueError where the sweep compares nothing, or has another world than the machine.
    """
    shares = _shares(rows)
    worlds = {world for _, world in shares}
    if worlds - {machine.max_world} or not shares:
        raise ValueError(
            f"The sweep of NCCL's settings does not fit {machine.name}, which has {machine.max_world} GPUs: it "
            f"compares settings of {', '.join(map(str, sorted(worlds))) or 'no'} GPUs. Accepted: a file that "
            "`python -m tests.gpu.nccl_sweep` wrote on that machine."
        )
    made = [point for (name, world), taken in shares.items() for point in _curve(machine, name, world, taken)]
    names = {point.name for point in made}
    kept = [one for one in machine.collectives if one.name not in names or one.world != machine.max_world]
    how = "the curve of NCCL as it chooses, times what its fastest setting takes of it in a sweep, both in graphs"
    where = machine.provenance_of("collective").split(": ")
    sources = {f"collective.{name}": ": ".join([*where[:2], how]) for name in sorted(names)}
    provenance = {**machine.provenance, **sources}
    return replace(machine, collectives=(*kept, *made), provenance=provenance, digest="")


def _shares(rows: Iterable[Row]) -> dict[tuple[str, int], dict[float, float]]:
    """By collective and world, by bytes that leave each rank: the fastest of our settings over the default."""
    times: dict[tuple[str, int], dict[float, dict[str, float]]] = {}
    for row in rows:
        if row.get("captured") and row["setting"] in OURS:
            name, world = row["collective"], int(row["world"])
            leaving = row["bytes"] * (world - 1) / world * (2 if name == "all_reduce" else 1)
            times.setdefault((name, world), {}).setdefault(leaving, {})[row["setting"]] = row["median_us"]
    return {
        key: {leaving: min(each.values()) / each[DEFAULT] for leaving, each in sizes.items() if DEFAULT in each}
        for key, sizes in times.items()
    }


def _curve(machine: Machine, name: str, world: int, taken: Mapping[float, float]) -> list[Collective]:
    """At the sizes of the machine's own curve and of the sweep; between two of these by the logarithm of the size."""
    measured = {one.num_bytes for one in machine.collectives if (one.name, one.world) == (name, world)}
    if not measured:
        return []
    sizes = np.array(sorted(measured | set(taken)))
    known = np.array(sorted(taken))
    shares = np.interp(np.log(sizes), np.log(known), [taken[size] for size in known])
    default = measured_seconds(machine, name, world, sizes)
    assert default is not None
    return [
        Collective(f"{TUNED}{name}", world, float(size), float(seconds))
        for size, seconds in zip(sizes, default * shares, strict=True)
    ]
