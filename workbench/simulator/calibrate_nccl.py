"""Curves of the library's settings: a machine's own curves, times what a sweep of the settings says they take of it.

The sweep's times are not taken as they are: it calls over three buffers and reads other clocks than the probes, so its
default is not the machine's either. What a setting takes of the default of the same sweep is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kernels.backends.triton.winners import CHANNELS, DEFAULT, WINDOWS
from kernels.machine import LIMITED, TUNED, Collective, Machine, limited
from workbench.simulator.price.collectives import measured_seconds

Row = Mapping[str, Any]

OURS = (DEFAULT, WINDOWS, *CHANNELS)
"""Settings that `library_tuned` has."""
SETTINGS = {TUNED: OURS, **{limited(count): (f"{count} channels",) for count in LIMITED}}
"""By how a curve's name begins, the settings of which it is the fastest at each size."""


def with_tuned(machine: Machine, rows: Iterable[Row]) -> Machine:
    """*machine* with the curves of each collective that the sweep's *rows* have: of `library_tuned`, of few channels.

    ValueError where the sweep compares nothing, or has another world than the machine.
    """
    listed = list(rows)
    shares = {begins: _shares(listed, settings) for begins, settings in SETTINGS.items()}
    worlds = {world for _, world in shares[TUNED]}
    if worlds - {machine.max_world} or not worlds:
        raise ValueError(
            f"The sweep of NCCL's settings does not fit {machine.name}, which has {machine.max_world} GPUs: it "
            f"compares settings of {', '.join(map(str, sorted(worlds))) or 'no'} GPUs. Accepted: a file that "
            "`python -m tests.gpu.nccl_sweep` wrote on that machine."
        )
    for begins, of_setting in shares.items():
        machine = _with_curves(machine, begins, of_setting)
    return machine


def _with_curves(machine: Machine, begins: str, shares: Mapping[tuple[str, int], Mapping[float, float]]) -> Machine:
    made = [point for (name, world), taken in shares.items() for point in _curve(machine, begins, name, world, taken)]
    names = {point.name for point in made}
    kept = [one for one in machine.collectives if one.name not in names or one.world != machine.max_world]
    takes = "its fastest setting takes" if begins == TUNED else f"{SETTINGS[begins][0]} take"
    how = f"the curve of NCCL as it chooses, times what {takes} of it in a sweep, both in graphs"
    where = machine.provenance_of("collective").split(": ")
    sources = {f"collective.{name}": ": ".join([*where[:2], how]) for name in sorted(names)}
    provenance = {**machine.provenance, **sources}
    return replace(machine, collectives=(*kept, *made), provenance=provenance, digest="")


def _shares(rows: Iterable[Row], settings: Sequence[str]) -> dict[tuple[str, int], dict[float, float]]:
    """By collective and world, by bytes that leave each rank: the fastest of *settings* over the default."""
    times: dict[tuple[str, int], dict[float, dict[str, float]]] = {}
    for row in rows:
        if row.get("captured") and row["setting"] in (DEFAULT, *settings):
            name, world = row["collective"], int(row["world"])
            leaving = row["bytes"] * (world - 1) / world * (2 if name == "all_reduce" else 1)
            times.setdefault((name, world), {}).setdefault(leaving, {})[row["setting"]] = row["median_us"]
    fastest = {
        key: {leaving: min(each[name] for name in settings if name in each) / each[DEFAULT]
              for leaving, each in sizes.items() if DEFAULT in each and not each.keys().isdisjoint(settings)}
        for key, sizes in times.items()
    }  # fmt: skip
    return {key: taken for key, taken in fastest.items() if taken}


def _curve(machine: Machine, begins: str, name: str, world: int, taken: Mapping[float, float]) -> list[Collective]:
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
        Collective(f"{begins}{name}", world, float(size), float(seconds))
        for size, seconds in zip(sizes, default * shares, strict=True)
    ]
