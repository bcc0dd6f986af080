"""What costs time without moving much: a signal there and back, packets, a meeting, a node of a graph, a launch."""

from __future__ import annotations

import torch

from kernels.backends.triton import clock
from kernels.backends.triton.graph import Meeting
from kernels.backends.triton.kernels.meet import write_now
from kernels.backends.triton.kernels.probe import ping_pong, ping_pong_packets
from kernels.backends.triton.probes.site import Call, Site

ROUNDS = 100
"""There and back, in one call of a ping-pong."""


def signals(site: Site, rounds: int = ROUNDS) -> list[Call]:
    """Pairs of ranks signal each other, all pairs at once; half a round is one signal's way."""
    partner = site.partner
    if partner is None:
        return [lambda: None]
    at = site.addresses("ping")
    return [
        lambda: ping_pong[(1,)](
            at, site.rounds[:1], site.error, site.limit_ns, site.rank, partner, rounds, num_warps=4
        )
    ]  # fmt: skip


def packets(site: Site, values: int, rounds: int = ROUNDS) -> list[Call]:
    """As `signals`, with *values* packets each way."""
    partner = site.partner
    if partner is None:
        return [lambda: None]
    places, sent = (site.of(site.rank, "packets"), site.of(partner, "packets")), torch.randn(values, device=site.device)
    return [
        lambda: ping_pong_packets[(1,)](
            places, site.rounds[1:], site.error, site.limit_ns, site.rank, partner, rounds, sent, VALUES=values,
            num_warps=min(4, max(1, values // 32)),
        )
    ]  # fmt: skip


def meetings(site: Site) -> list[Call]:
    """All ranks meet, by a kernel of one block."""
    return [Meeting(site)]


def nodes(site: Site) -> list[Call]:
    """A kernel of one block that stores one word."""
    word = torch.zeros(1, dtype=torch.int64, device=site.device)
    return [lambda: write_now[(1,)](word, num_warps=1)]


def clock_step(site: Site) -> list[float]:
    """Seconds of the smallest step of the GPU's clock."""
    return [clock.measured(site.device).tick_s]
