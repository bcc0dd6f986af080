"""Why the cpu backend refuses a trial, computed without torch, so that every form and command can ask."""

from __future__ import annotations

from kernels.machine import BACKENDS
from kernels.operators import OPERATORS
from kernels.operators.base import Extent
from kernels.schedule import Tile, tile
from kernels.schemes import needs_peer_memory
from kernels.trial import Trial, protocol_refusal

DTYPES = ("float32", "bfloat16")
TILES_MOST = 2**14
"""Tiles of a rank: each takes one call, and a narrow one reads a line of memory for a few columns. 86,142 tiles of 7x7
in 4096 x 1024 over 768 took 3.9 s in one thread of a server (estimated: 0.8 s), and the comparison eight minutes."""


def refusal(trial: Trial, shares_heap: bool) -> str | None:
    """Why this backend cannot run *trial*, or None."""
    if trial.problem.dtype not in DTYPES:
        return (
            f"dtype = {trial.problem.dtype} does not run on backend = cpu. Its kernels know {len(DTYPES)} dtypes. "
            f"Accepted: {', '.join(DTYPES)}."
        )
    if trial.fabric.kind not in BACKENDS["cpu"]:
        return (
            f"fabric = {trial.fabric.kind} does not exist on backend = cpu: CPU ranks have no such link. Accepted: "
            f"{', '.join(BACKENDS['cpu'])}."
        )
    size, area = tile(trial.schedule["tile"]), OPERATORS[trial.problem.operator].extent(trial.problem)
    if (count := _tiles(area, size)) > TILES_MOST:
        return (
            f"tile = {trial.schedule['tile']} cuts {area.rows} x {area.columns} into {count:,} tiles, and a CPU rank "
            f"calls each by itself: {count:,} > {TILES_MOST:,}. Accepted: larger tiles, such as {_larger(area, size)}."
        )
    if (reason := protocol_refusal(trial.protocol, trial.backend)) is not None:
        return reason
    if not shares_heap and needs_peer_memory(trial.schedule):
        return (
            f"{trial.schedule} does not run across hosts. It stores into its peers' memory, and hosts share 0 "
            "bytes of it. Accepted: sequential with collective = library, or decomposed with engine = library."
        )
    return None


def _tiles(area: Extent, size: Tile) -> int:
    return -(-area.rows // size.m) * -(-area.columns // size.n)


def _larger(area: Extent, size: Tile) -> Tile:
    """The smallest square tile with a power of two as its edge that makes few enough tiles."""
    edge = 32
    while _tiles(area, Tile(edge, edge, size.k)) > TILES_MOST:
        edge *= 2
    return Tile(min(edge, area.rows), min(edge, area.columns), size.k)
