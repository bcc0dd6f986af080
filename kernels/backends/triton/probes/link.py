"""Bytes to peers: stores by all threads, bulk copies, copy engines; to all peers in turn or to the next rank only."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from kernels.backends.triton.graph import Meeting
from kernels.backends.triton.kernels.probe import put, put_bulk
from kernels.backends.triton.launch import descriptors
from kernels.backends.triton.probes.site import Call, Site
from kernels.backends.triton.shares import at_once

PIECE_BYTES = 16 * 1024
ROW = 128
"""bfloat16 values of a row of a piece: what the bulk copy engine swizzles at once, twice."""
PIECE_ROWS = PIECE_BYTES // 2 // ROW
SETS_MOST = 64
"""Places that calls write in turns."""
WARPS = 4


def peers(world: int, pattern: str) -> int:
    """How many peers each rank sends to: `all_to_all` or `ring`."""
    return world - 1 if pattern == "all_to_all" else 1


def pieces_per_peer(count: int, num_bytes: int) -> int:
    """Pieces for each of *count* peers when about *num_bytes* leave each rank."""
    return max(1, num_bytes // count // PIECE_BYTES)


def puts(site: Site, way: str, pattern: str, num_bytes: int, programs: int) -> list[Call]:
    """Calls that put about *num_bytes* of each rank into peers' memory by *way* = registers or tma, all ranks at once.

    A call ends when all bytes for this rank are here. Calls write other places in turns, and read others.
    """
    count = peers(site.world, pattern)
    each = pieces_per_peer(count, num_bytes)
    items = each * count
    sets = min(SETS_MOST, max(1, site.source.nbytes // PIECE_BYTES // each))
    ends = (site.addresses("done"), site.epoch, site.arrived, site.error, site.limit_ns, site.rank)
    grid, options = (min(items, programs),), {"WORLD": site.world, "PEERS": count, "num_warps": WARPS}
    if way == "registers":
        slots = site.slots()

        def registers(first: int) -> Call:
            return lambda: put[grid](site.source, slots, items, first, *ends, PIECE=PIECE_BYTES // 4, **options)

        return [registers(number * each) for number in range(sets)]
    source = TensorDescriptor.from_tensor(_rows(site.source), [PIECE_ROWS, ROW])
    landings = descriptors([_rows(site.slot(peer)) for peer in range(site.world)], PIECE_ROWS, ROW)

    def bulk(first: int) -> Call:
        return lambda: put_bulk[grid](source, *landings, items, first, *ends, ROWS=PIECE_ROWS, **options)

    return [bulk(number * each) for number in range(sets)]


def _rows(words: torch.Tensor) -> torch.Tensor:
    return words.view(torch.bfloat16).view(-1, ROW)


def copies(site: Site, pattern: str, num_bytes: int, streams: int) -> list[Call]:
    """Calls in which copy engines push about *num_bytes* of each rank, between two meetings of all ranks.

    Each peer's share is cut over *streams* streams.
    """
    each = pieces_per_peer(peers(site.world, pattern), num_bytes) * PIECE_BYTES // 4
    sets = min(SETS_MOST, max(1, site.source.numel() // each))
    meeting = Meeting(site)
    to = [(site.rank + 1 + near) % site.world for near in range(peers(site.world, pattern))]
    lanes = [torch.cuda.Stream(site.device) for _ in range(len(to) * streams + 1)]

    def pushed(number: int) -> Call:
        part = slice(number * each, (number + 1) * each)
        pairs = [
            pair
            for peer in to
            for pair in zip(
                site.slot(peer)[part].chunk(streams), site.source[part].chunk(streams), strict=True
            )
        ]  # fmt: skip
        return lambda: _pushed(meeting, pairs, lanes, site.device)

    return [pushed(number) for number in range(sets)]


def _pushed(
    meeting: Meeting,
    pairs: Sequence[tuple[torch.Tensor, torch.Tensor]],
    lanes: Sequence[torch.cuda.Stream],
    device: torch.device,
) -> None:
    meeting()
    at_once(pairs, lanes, device)
    meeting()
