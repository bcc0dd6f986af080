"""What is estimated of many hosts: the fused lookup between nodes, and the DLRM step as a band with negative cases."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import mean, median
from typing import Any

from kernels.operators import problem
from kernels.schemes import BASELINE
from workbench.claims.answers import Ours
from workbench.claims.recorded import AGGREGATES, PERCENT
from workbench.machines import shipped_machine
from workbench.published import Published
from workbench.simulator.network import of_machine
from workbench.simulator.network.levels import named
from workbench.simulator.step.band import band
from workbench.simulator.step.configurations import Setting, rows
from workbench.simulator.step.model import model
from workbench.simulator.step.prices import Prices

MACHINE = "h200_ib"
TWO_HOSTS, PAPER_NODES, SMALL_BATCH = 16, 1024, 128
"""Ranks: two hosts of eight, 128 nodes of eight, and those over which MLPerf's batch is small."""
BATCH_PER_RANK, ROWS, DIM = 512, 1_000_000, 128
TABLES, POOLING = (2, 8, 32), (4, 16, 70)
"""Tables of a rank and lookups of a sample: chosen by us, since the paper's shapes are not known."""
RATES, DENSE = (25e9, 50e9), (1.0, 4.0)
"""Bytes per second between nodes (200 and 400 Gb/s), and how many times as long the dense layers take."""
FORWARD, BOTH = "fused_forward", "fused"
TORUS = "torus128"
"""The network that the paper is recalled to have simulated: data/fabrics."""
MUCH_DENSE = 16.0
"""Of the negative case: so much dense work that the network is hidden without fusing."""
NOBODY = "Nothing between hosts was measured, and our kernels do not run there."


def between_nodes(reported: Published) -> Ours:
    """What fusing would save between hosts, over a stated list of shapes; kernels that do so are not ours."""
    cases = list(_lookups(reported))
    saved = [PERCENT * case["reduction"] for case in cases]
    return Ours(
        value=AGGREGATES[reported.aggregate](saved), low=min(saved), high=max(saved), source="estimated",
        machine=MACHINE, over="lookup, then the library's all-to-all", command=f"workbench claims {reported.id} --json",
        why=f"{len(cases)} shapes of ours on {TWO_HOSTS} and {PAPER_NODES} ranks: {_listed(TABLES)} tables a rank, "
            f"{_listed(POOLING)} lookups, {BATCH_PER_RANK} samples a rank. Mean {mean(saved):.0f} %. {NOBODY}",
        cases=cases,
    )  # fmt: skip


def _listed(values: Sequence[int]) -> str:
    return f"{', '.join(map(str, values[:-1]))} or {values[-1]}"


def _lookups(reported: Published) -> Iterator[dict[str, Any]]:
    machine = shipped_machine(MACHINE)
    for world in (TWO_HOSTS, PAPER_NODES):
        network = of_machine(machine, world)
        prices = Prices(machine, network)
        for tables, pooling in product(TABLES, POOLING):
            shape = {"tables_per_rank": tables, "rows": ROWS, "dim": DIM, "batch": BATCH_PER_RANK * world,
                     "pooling": pooling}  # fmt: skip
            lookup = problem(reported.operator, shape, world=world)
            plain, fused = (prices.operator(lookup, scheme, network) for scheme in (BASELINE, reported.scheme))
            yield {"machine": MACHINE, "world": world, "shape": shape, "baseline_s": plain.whole_s,
                   "compute_s": plain.compute_s, "comm_s": plain.comm_s, "time_s": fused.whole_s,
                   "reduction": 1 - fused.whole_s / plain.whole_s}  # fmt: skip


def dlrm_step(reported: Published) -> Ours:
    """The middle of a band over network rate, fused directions and dense work; and where nothing is gained."""
    machine = shipped_machine(MACHINE)
    at = Setting(model=model("dlrm"), prices=Prices(machine, of_machine(machine, PAPER_NODES)))
    torus = rows(replace(at, prices=Prices(machine, named(Path(TORUS)))), (FORWARD, BOTH))
    inside = [*band(at, rates=RATES, dense_scales=DENSE, names=(FORWARD, BOTH)), *torus]
    saved = [PERCENT * row["reduction"] for row in inside]
    never = _negative()
    holds = "lies inside" if min(saved) <= reported.value <= max(saved) else "lies outside"
    on_torus = {row["configuration"]: PERCENT * row["reduction"] for row in torus}
    return Ours(
        value=median(saved), low=min(saved), high=max(saved), source="estimated",
        machine=f"{MACHINE} and {TORUS}", over="the sequential step with the library's collectives",
        command=f"workbench predict-step dlrm --machine {MACHINE} --world {PAPER_NODES}"
                + "".join(f" --network-rate {rate:g}" for rate in RATES)
                + "".join(f" --dense-scale {scale:g}" for scale in DENSE),
        why=f"The middle of a band over networks, dense work and fused passes; {reported.number} {holds}. On the torus "
            f"that the paper is recalled to have simulated, one pass saves {on_torus[FORWARD]:.0f} %, both "
            f"{on_torus[BOTH]:.0f} %. Which of them it fuses is not known, and its sizes are recalled. "
            f"Fusing gains nothing where dense layers take {MUCH_DENSE:g} times as long "
            f"({PERCENT * never[0]['reduction']:.1f} %), or sums of gradients fill the network ({never[1]['model']}, "
            f"{PERCENT * never[1]['reduction']:.1f} %). {NOBODY}",
        cases=[*map(_short, inside), *never],
    )  # fmt: skip


def _negative() -> list[dict[str, Any]]:
    """Two steps in which both directions fused save next to nothing."""
    machine = shipped_machine(MACHINE)

    def step(name: str, world: int, dense: float) -> dict[str, Any]:
        prices = Prices(machine, of_machine(machine, world))
        (row,) = rows(Setting(model=model(name), prices=prices, dense_scale=dense), (BOTH,))
        return _short(row)

    return [step("dlrm", PAPER_NODES, MUCH_DENSE), step("dlrm_dcnv2", SMALL_BATCH, 1.0)]


KEPT = ("model", "machine", "world", "network", "network_bytes_per_second", "dense_scale", "configuration",
        "baseline_s", "fused_s", "reduction", "exposed_share", "baseline_exposed_share")  # fmt: skip
"""Columns of a step's row that a claim keeps."""


def _short(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in KEPT}


WAYS: Mapping[str, Callable[[Published], Ours]] = {
    **dict.fromkeys(("R01", "R02", "R06"), between_nodes), **dict.fromkeys(("R11", "R12"), dlrm_step),
}  # fmt: skip
"""By the id of a published number."""
