"""Pieces in closed form: they leave when they are computed, or are computed when they are there."""

from __future__ import annotations

import numpy as np

from kernels.schemes import reads
from kernels.schemes.decomposed_plan import adds_up
from workbench.simulator.form.behind import OwnUnits, behind_operands, finish, operands
from workbench.simulator.form.calls import bytes_of, call_seconds, unpack_seconds
from workbench.simulator.form.pieces import begin_seconds, first_seconds, last_seconds, own_seconds, piece_seconds
from workbench.simulator.messages import Messages, issued_at, put_costs
from workbench.simulator.points import Column, Floats, Points


def on_streams(points: Points) -> bool:
    """Whether each call begins when what the one before brought has been unpacked: both have one stream."""
    return points.word(reads.LAUNCHES) is not None


def _calls_on_a_stream(pieces: Column, work: Floats, call: Floats, unpack: Floats) -> Floats:
    """*pieces* that are computed, sent by a call, and unpacked where nothing is computed just then.

    An unpacking waits for the piece that is under way: so as many whole pieces are computed as a call takes. When none
    is left, each call follows the one before at once.
    """
    computed = np.maximum(1, np.ceil(call / work)).astype(np.int64)
    beside = (pieces - 1) // computed
    return np.asarray(work + beside * (computed * work + unpack) + (pieces - beside) * (call + unpack))


def decomposed_send(points: Points) -> Floats:
    """Until all pieces have left, are there, and are summed where they are contributions."""
    peers, pieces = points.world - 1, points.number("pieces")
    part = bytes_of(points, points.chunk, points.columns) / pieces
    apart, in_one = points.word("steps") == "local_first", points.word(reads.LAUNCHES) == reads.ONE
    if points.word("engine") == "library":
        work = piece_seconds(points, points.world)
        call, unpack = call_seconds(points, part), unpack_seconds(points, part)
        if on_streams(points) and not points.broadcasts:
            return _calls_on_a_stream(pieces, work, call, unpack)
        behind = np.maximum(work + pieces * call, pieces * work + call) + unpack
        return np.maximum(pieces * (work + unpack), behind)
    puts, one = put_costs(points, part), piece_seconds(points, 1)
    ring, alone = points.word("pattern") == "ring", points.word("grouping") == "unfused"
    zero = np.zeros(points.count)
    if ring or alone:
        each = one + puts.on_lane
        step = pieces if ring else np.ones_like(pieces)
        period = each if ring else peers * each + (zero if apart else one)
        first = [(peer * step + 1) * each for peer in range(peers)]
        lane = begin_seconds(points) + pieces * peers * each + own_seconds(points)
    else:
        group = piece_seconds(points, peers + (not (apart or in_one)))
        period = group + peers * puts.on_lane
        begun = begin_seconds(points) + first_seconds(points, peers, group)
        first = [begun + (peer + 1) * puts.on_lane for peer in range(peers)]
        lane = begin_seconds(points) + pieces * period + (own_seconds(points) if apart or in_one else zero)
    between = one if in_one and not (apart or alone or ring) else zero  # own pieces, a step each
    period = period + between
    late = np.maximum(0, pieces - 2) if adds_up(points.problem, points.worded) else pieces - 1
    ready = [begin + (pieces - 1) * (period - between) + late * between for begin in first]
    numbers = [(p * pieces + 1, (p + 1) * pieces) if ring else (p + 1 + 0 * pieces, (pieces - 1) * peers + p + 1)
               for p in range(peers)]  # fmt: skip
    begin = first[0] if peers else zero
    issued = (
        issued_at(puts, first, [n for n, _ in numbers], begin),
        issued_at(puts, ready, [n for _, n in numbers], begin),
    )
    messages = Messages(*issued, pieces, part, part, zero, ring)
    computed = pieces * peers * each + one if ring else lane - (pieces - 1) * one if apart else period
    onto = one if adds_up(points.problem, points.worded) else None
    return finish(points, messages, lane, OwnUnits(computed, ring or apart, onto))


def decomposed_receive(points: Points) -> Floats:
    """Until all pieces are there and computed."""
    peers, pieces = points.world - 1, points.number("pieces")
    part = bytes_of(points, points.chunk, points.contraction) / pieces
    everything, one = piece_seconds(points, points.world), piece_seconds(points, 1)
    if points.word("engine") == "library":
        call, unpack = call_seconds(points, part), points.overhead + points.copy(points.world * part)
        if on_streams(points):
            return call + unpack + (pieces - 1) * (np.maximum(call, everything) + unpack) + everything
        return np.maximum(call + pieces * (unpack + everything), pieces * call + unpack + everything)
    ring, alone = points.word("pattern") == "ring", points.word("grouping") == "unfused"
    if ring or alone:
        total = begin_seconds(points) + pieces * peers * one + own_seconds(points)
        return behind_operands(points, operands(points, part, pieces, ring), total, (one, last_seconds(points, 1, one)))
    if points.word("steps") == "local_first" or points.word(reads.LAUNCHES) == reads.ONE:
        remote = piece_seconds(points, peers)
        total = begin_seconds(points) + own_seconds(points) + pieces * remote
        each = (remote, last_seconds(points, peers, remote))
        return behind_operands(points, operands(points, part, pieces), total, each, together=True)
    return behind_operands(
        points, operands(points, part, pieces), pieces * everything, (everything,) * 2, together=True
    )
