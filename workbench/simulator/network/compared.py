"""A collective by each algorithm, beside the bound of all: the rows of a table."""

from __future__ import annotations

from typing import Any

from kernels.schedule import Refusal
from workbench.simulator.network.collectives import ALGORITHMS, HIERARCHICAL, bound, collective
from workbench.simulator.network.levels import Network

Row = dict[str, Any]
GATHERED = "all_gather"
"""Of it *num_bytes* are what one rank contributes, and travel whole."""


def priced(
    network: Network, name: str, num_bytes: float, *, algorithm: str | None = None, chunks: int = 1,
    inside: str | None = None
) -> list[Row]:  # fmt: skip
    """A row for *algorithm*, or for all of them; one that cannot be has its refusal as message, and no time.

    Refusal if *algorithm* itself cannot be. Times in seconds, sizes in bytes.
    """
    if inside is not None and algorithm not in (None, HIERARCHICAL):
        raise Refusal(f"inside = {inside} changes nothing with algorithm = {algorithm}: only {HIERARCHICAL} goes level "
                      f"by level. Accepted: algorithm = {HIERARCHICAL}, or no inside.")  # fmt: skip
    parts = chunks * (1 if name == GATHERED else network.world)
    if chunks > 1 and 0 < num_bytes < parts:
        most = int(num_bytes * chunks / parts)
        accepted = f"1 to {most:,} chunks" if most > 1 else "1 chunk"
        raise Refusal(f"chunks = {chunks:,} cuts {num_bytes:,.0f} bytes into messages of less than one: {parts:,} "
                      f"parts > {num_bytes:,.0f} bytes. Accepted: {accepted}.")  # fmt: skip
    if algorithm is not None:
        return [_row(network, name, num_bytes, algorithm, chunks, inside)]
    rows = []
    for each in ALGORITHMS:
        try:
            rows.append(_row(network, name, num_bytes, each, chunks, inside))
        except Refusal as error:
            if each == ALGORITHMS[-1] or not rows:  # what is wrong with all of them is no matter of one
                raise
            rows.append({**rows[0], "algorithm": each, "time_s": None, "of_bound": None, "levels": [],
                         "message": str(error)})  # fmt: skip
    return rows


def _row(network: Network, name: str, num_bytes: float, algorithm: str, chunks: int, inside: str | None) -> Row:
    cost = collective(network, name, num_bytes, algorithm, chunks=chunks, inside=inside)
    least = bound(network, name, num_bytes)
    levels = [{"topology": level.topology, "count": level.count, "busy_s": busy}
              for level, busy in zip(network.levels, cost.by_level, strict=True)]  # fmt: skip
    return {
        "collective": name, "algorithm": algorithm, "bytes": num_bytes, "world": network.world, "fabric": network.name,
        "time_s": cost.seconds, "bound_s": least, "of_bound": least / cost.seconds if cost.seconds else 1.0,
        "levels": levels, "chunks": chunks, "inside": inside, "source": "estimated",
        "memory_bytes_per_second": network.memory_bytes_per_second, "endpoint_seconds": network.endpoint_seconds,
        "message": None,
    }  # fmt: skip
