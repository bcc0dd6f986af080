"""Steps against ASTRA-sim: its own DLRM on one and two levels, and a DLRM whose exchanges are cut into chunks."""

import json
from pathlib import Path
from typing import Any

import pytest

from workbench.simulator.scaling.network import Network
from workbench.simulator.scaling.schedule import timed

from .made import Written, switch

PEER = json.loads((Path(__file__).parents[1] / "network" / "astra_sim.json").read_text())
US = 1e-6
CLOSE = 0.05
EMBEDDING, EXCHANGE = 0.3 * US, 98304
BOTTOM = ((1280, 794, 896, 13312), (2560, 2560, 1792, 524288), (2560, 2560, 1792, 524288), (800, 1280, 800, 16384))
TOP = ((6400, 6400, 4480, 1064960), (2560, 2560, 1792, 524288), (2560, 2560, 1792, 524288))
"""DLRM_HybridParallel.txt of ASTRA-sim: ns forward, of the input's gradient, of the weights'; bytes that are summed."""


def text_step(network: Network, way: str) -> float:
    """Its two passes: weights' gradients first, each summed while the next layer computes."""
    made = Written(network)

    def backward(layers: Any, after: int) -> int:
        for _, inputs, weights, num_bytes in reversed(layers):
            after = made.computes(weights * 1e-9, after)
            made.moves("all_reduce", num_bytes, "hierarchical", after, inside=way)
            after = made.computes(inputs * 1e-9, after)
        return after

    looked_up = made.computes(EMBEDDING)
    exchanged = made.moves("all_to_all", EXCHANGE, "hierarchical", looked_up, inside=way)
    bottom = made.chain([each[0] * 1e-9 for each in BOTTOM], looked_up)
    top = made.computes(TOP[0][0] * 1e-9, bottom, exchanged)
    top = backward(TOP, made.chain([each[0] * 1e-9 for each in TOP[1:]], top))
    returned = made.moves("all_to_all", EXCHANGE, "hierarchical", top, inside=way)
    made.chain([EMBEDDING, EMBEDDING], backward(BOTTOM, top), returned)
    return timed(made.tasks).time_s


@pytest.mark.parametrize(("theirs", "way"), [("ring", "ring"), ("direct1", "pairwise")])
@pytest.mark.parametrize("row", PEER["text_steps"], ids=lambda row: f"{row['npus']} ranks")
def test_its_own_dlrm_takes_as_long_here(row: dict[str, Any], theirs: str, way: str) -> None:
    levels = zip(row["npus_per_dim"], row["bw_GBps"], row["lat_hop_ns"], strict=True)
    network = Network("peer", tuple(switch(count, rate * 1e9, 2e-9 * hop) for count, rate, hop in levels))
    assert text_step(network, way) == pytest.approx(row[theirs]["time_us"] * US, rel=CLOSE)


def chunked_step(row: dict[str, Any]) -> float:
    """Half of the dense layers below; gradients in buckets of 25 MB, summed by halving and doubling."""
    made = Written(Network("peer", (switch(row["npus"], 5e10, 5e-6),)))
    num_bytes, chunks, dense = row["a2a_MB"] * 1e6, row["chunks_fwd"], row["mlp_fwd_us"] * US / 2
    looked_up, exchanged = [], []
    for _ in range(chunks):
        looked_up.append(made.computes(row["emb_fwd_us"] * US / chunks, *looked_up[-1:]))
        exchanged.append(made.moves("all_to_all", num_bytes / chunks, "direct", looked_up[-1]))
    last = made.computes(dense, made.computes(dense, looked_up[-1]), *exchanged)

    def backward(after: int) -> int:
        gradients = row["dense_grad_MB"] * 1e6 / 2
        buckets = max(1, -(-int(gradients) // 25_000_000))
        for _ in range(buckets):
            after = made.computes(2 * dense / buckets, after)
            made.moves("all_reduce", gradients / buckets, "halving_doubling", after)
        return after

    last, chunks = backward(last), row["chunks_bwd"]
    returned = [made.moves("all_to_all", num_bytes / chunks, "direct", last) for _ in range(chunks)]
    last = backward(last)
    for each in returned:
        last = made.computes(row["emb_bwd_us"] * US / chunks, last, each)
    return timed(made.tasks).time_s


@pytest.mark.parametrize("row", PEER["fused_steps"], ids=lambda row: f"{row['case'][:9]} {row['chunks_fwd']}")
def test_a_dlrm_in_chunks_takes_as_long_here(row: dict[str, Any]) -> None:
    assert chunked_step(row) == pytest.approx(row["time_us"] * US, rel=CLOSE)
