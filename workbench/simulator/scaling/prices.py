"""Prices of a step's computations and collectives: tier B inside a host, one representative rank across hosts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from kernels.fabric import Fabric
from kernels.machine import NETWORK, Machine
from kernels.operators import operator, problem
from kernels.operators.base import Flow, Operator
from kernels.plan import Kind
from kernels.problem import Problem
from kernels.schedule import Refusal, Schedule, Value
from kernels.schemes import BASELINE, axis_rules, expand, schedule
from workbench.simulator.play import play
from workbench.simulator.price import networks
from workbench.simulator.price import rates as memory
from workbench.simulator.price.networks import SLICE, PeerStores, PushWaves
from workbench.simulator.price.steps import step_costs
from workbench.simulator.scaling.network import (
    ALGORITHMS,
    HALVING,
    PASSES,
    Network,
    Phase,
    collective,
    direct,
    peers_by_level,
    phases,
    some_of,
)

# Slices that are sent while others are computed: the time of an operator whose computation and links overlap.

Edges = tuple[tuple[float, float], ...]
MESH = "fully_connected"
"""The topology in which every link leads to one peer."""


@dataclass(frozen=True, slots=True)
class OperatorPrice:
    """Times of one operator under one scheme. With overlap, *whole_s* is less than the sum of its parts."""

    whole_s: float
    compute_s: float
    comm_s: float
    by_level: tuple[float, ...]
    held_s: float
    """Seconds for which it holds the processor: a NIC sends the last slices alone, but SMs must store theirs."""
    overlaps: bool


@dataclass(frozen=True, slots=True)
class UnsharedComputation:
    """The computation of one rank without communication."""

    seconds: float
    slices: int
    """Number of slices that it could send: its steps."""
    waves: PushWaves | None = None
    """Waves in which tiles are computed, if any: the tiles of a wave finish at once."""
    slower: float = 1.0
    """Factor on the link time of what a rank's own processor stores."""
    sums_s: float = 0.0
    """Seconds to sum all contributions to the rank's own part."""
    to_all: bool = False
    """Whether each slice has data for every peer; else peers take turns, and the rank's own part is the last."""
    receives: bool = False
    """Whether it waits for slices of peers; the rank's own part is then the first."""
    sends_last: bool = False
    """Whether nothing remains to be computed after the last slice has been sent."""


@dataclass(frozen=True, slots=True)
class _SlicedComputation:
    """A computation in slices, with the work that it does for peers."""

    seconds: float
    """Seconds of computation, with the work for peers and without sums."""
    first_s: float
    """Seconds of its first or last slice, at least one wave."""
    world: int
    per_peer: float
    """Slices of each rank's part, which are messages to each peer."""
    sums_s: float
    interleaved: bool
    """Whether slices of different peers are interleaved; else all slices of a peer are consecutive."""
    receives: bool
    any_order: bool
    """Whether it continues with whichever slice has arrived, instead of waiting for the next peer in order."""
    edges: Edges
    """Pairs of a share of the sent bytes and the seconds of computation that do not overlap it."""


@dataclass(frozen=True, slots=True)
class _LevelTransfer:
    """The transfers on one level in one pass over all peers."""

    seconds: float
    """Seconds for which the level is busy."""
    peers: int
    """Number of peers for which it is the outermost level on the way; 0 for a level of one rank."""
    nearer: float
    """Share of the ranks that are reached over inner levels alone."""
    after: float
    """Seconds from sending the last byte until the peer continues."""
    links: int
    """Number of links that lead to one peer each; 1 if peers share links."""
    stored: bool
    """Whether a rank's own processor stores over the level; else a NIC sends."""


def by_puts(
    machine: Machine, network: Network, name: str, num_bytes: float, alone: UnsharedComputation
) -> OperatorPrice:
    """Price of a fused scheme: each slice is sent to its owner as soon as it is done, over all levels at once.

    Computation and transfer form a two-stage pipeline on each level; the slowest level counts. A collective of two
    passes sums between them. Work for peers that a rank's own processor stores into is part of its computation.
    """
    passes, world = phases(network, name, num_bytes), network.world
    per_peer = alone.slices if alone.to_all else -(-alone.slices // world)
    wires, piece, count = _wires(machine, network, passes[0], per_peer, alone.slower), passes[0].piece, len(passes)
    computed = _computed(machine, alone, world, per_peer, _for_peers(machine, alone, wires, per_peer, piece))
    compute = computed.seconds + computed.sums_s
    if count > 1:
        compute += _issued(machine, wires, per_peer, piece) + _held(machine, wires)
    if alone.to_all:
        ends = [
            _pieces_left(compute, per_peer, count * wire.seconds) + count * wire.after for wire in wires if wire.peers
        ]
    elif count > 1:
        ends = [*_sums_received(computed, wires), compute + max(wire.after for wire in wires)]
    else:
        one_sum = computed.sums_s / per_peer
        ends = [compute, *(_sent_seconds(computed, wire) + wire.after + one_sum for wire in wires)]
    whole, comm = max(ends), max(count * (wire.seconds + wire.after) for wire in wires)
    by_level, held = tuple(count * wire.seconds for wire in wires), compute if alone.sends_last else whole
    return OperatorPrice(whole, compute, comm, by_level, held, True)


def stored_by_itself(machine: Machine, network: Network, name: str, num_bytes: float) -> PeerStores:
    """The stores of a rank's own processor into peers, in all passes."""
    passes = phases(network, name, num_bytes)
    links = [networks.stores_over(machine, level) for level in network.levels]
    ranks = prod(level.count for level, is_own in zip(network.levels, links, strict=True) if is_own)
    busy = sum(seconds for one in passes for seconds, is_own in zip(direct(one).by_level, links, strict=True) if is_own)
    return PeerStores(ranks - 1, len(passes) * (ranks - 1) * passes[0].piece, busy)


def _wires(machine: Machine, network: Network, one_pass: Phase, per_peer: float, slower: float) -> list[_LevelTransfer]:
    peers, busy = peers_by_level(network), direct(one_pass).by_level
    made = []
    for at, (seconds, count, level) in enumerate(zip(busy, peers, network.levels, strict=True)):
        gaps = (per_peer - 1) * count * level.message_seconds  # of the messages to each peer beyond one
        after = level.latency_seconds + networks.put_seconds(machine) if count else 0.0
        stored, nearer = networks.stores_over(machine, level), sum(peers[:at]) / network.world
        links = network.links(at) if level.topology == MESH else 1
        made.append(_LevelTransfer((slower if stored else 1.0) * seconds + gaps, count, nearer, after, links, stored))
    return made


def _for_peers(
    machine: Machine, alone: UnsharedComputation, wires: Sequence[_LevelTransfer], per_peer: float, piece: float
) -> float:
    """Seconds of the computation's work for peers. GPUs that receive have separate SMs that push."""
    if alone.receives and not networks.puts_anywhere(machine):
        return 0.0
    in_place = not (alone.to_all or alone.receives)  # slices are stored where they belong
    return _issued(machine, wires, per_peer, 0.0 if in_place else piece)


def _issued(machine: Machine, wires: Sequence[_LevelTransfer], per_peer: float, copied: float) -> float:
    """Seconds to signal *per_peer* slices to each peer that a rank stores into, and to copy *copied* bytes for it."""
    peers = sum(wire.peers for wire in wires if wire.stored)
    return peers * per_peer * networks.slice_seconds(machine) + networks.issue_seconds(machine, peers * copied)


def _held(machine: Machine, wires: Sequence[_LevelTransfer]) -> float:
    """Seconds for which SMs store sums on peers and do nothing else."""
    return 0.0 if networks.puts_anywhere(machine) else sum(wire.links * wire.seconds for wire in wires if wire.stored)


def _computed(
    machine: Machine, alone: UnsharedComputation, world: int, per_peer: float, for_peers: float
) -> _SlicedComputation:
    """*alone* after a rendezvous, with its work for peers, and on fewer SMs while some push."""
    waves, step = alone.waves, networks.slice_seconds(machine)
    seconds = networks.meeting_seconds(machine) + alone.seconds + for_peers + (waves.away_s if waves else 0.0)
    first, edges = seconds / (per_peer if alone.to_all else per_peer * world), Edges()
    if waves is not None:
        wave_s, bookkeeping = waves.seconds or seconds / waves.count, alone.slices * step + for_peers
        first, edges = max(first, wave_s), _edges(waves, world, alone.receives, seconds, bookkeeping, wave_s)
    sums = alone.sums_s + per_peer * step if alone.sums_s else 0.0
    any_order = alone.receives and networks.puts_anywhere(machine)
    interleaved = waves is not None and waves.interleaved
    return _SlicedComputation(seconds, first, world, per_peer, sums, interleaved, alone.receives, any_order, edges)


def _edges(waves: PushWaves, world: int, receives: bool, seconds: float, bookkeeping: float, wave_s: float) -> Edges:
    """Edges of the overlap: the last wave, sent after it; or, of a receiver, the first wave and the last but one.

    *bookkeeping* of *seconds* goes to slices, and continues while those of a wave are sent.
    """
    before_last, stays = (waves.count - 1) * waves.share, 0.0 if waves.interleaved else 1 / world
    ends = [(waves.share, None), (before_last, min(seconds, 2 * wave_s))] if receives else [(1 - before_last, None)]
    return tuple((max(0.0, share - stays) / (1 - stays), seconds - bookkeeping * share if least is None else least)
                 for share, least in ends)  # fmt: skip


def _pieces_left(compute: float, pieces: float, wire_s: float) -> float:
    """Seconds until all pieces are computed and sent: the slower stage, plus one piece of the other stage."""
    return max(compute + wire_s / pieces, compute / pieces + wire_s)


def _sent_seconds(of: _SlicedComputation, wire: _LevelTransfer) -> float:
    """Seconds until all is computed and sent over *wire*; or, of a receiver, until all has arrived and is computed.

    Peers take turns, at worst the near ones first. Links of one peer each are used in turn as well; the last slices of
    all peers arrive over them at once.
    """
    compute, away = of.seconds, 1 - 1 / of.world
    if not wire.peers:
        return compute
    by_waves = [least + share * wire.seconds for share, least in of.edges]
    last = wire.seconds / (of.per_peer * wire.peers)
    nearer = compute * wire.nearer
    if of.any_order:
        nearer = min(nearer, of.first_s * wire.nearer * of.world)
    if wire.links > 1 and not of.interleaved:
        turns = compute * (1 - (1 + wire.peers / wire.links) / of.world)
        nearer = max(nearer, min(turns, compute * away / of.per_peer) if of.receives else turns)
    return max(compute, compute * away + last, min(compute, nearer + of.first_s) + wire.seconds, *by_waves)


def _sums_received(of: _SlicedComputation, wires: Sequence[_LevelTransfer]) -> list[float]:
    """For each level, the time at which all ranks have all sums, which are sent after the contributions.

    A rank's own part is computed last. The first sum waits for its first slice, and for that of the last peer in turn.
    """
    compute, one_sum = of.seconds, of.sums_s / of.per_peer
    sent = [_sent_seconds(of, wire) for wire in wires]
    begin, last_turn = (min(compute, compute * (1 - turns / of.world) + of.first_s) for turns in (1, 2))
    for wire in wires:
        if wire.peers:
            one = wire.seconds / (of.per_peer * wire.peers)
            full = compute * wire.nearer + of.first_s + wire.seconds - (of.per_peer - 1) * one
            begin = max(begin, max(last_turn + one, full) + wire.after)
    arrived = max(each + wire.after for each, wire in zip(sent, wires, strict=True))
    last = max(compute + of.sums_s, arrived + one_sum)
    return [max(begin + one_sum + wire.seconds, each + wire.seconds, last + wire.seconds / of.per_peer) + wire.after
            for each, wire in zip(sent, wires, strict=True)]  # fmt: skip


# Prices: tier B inside a host, one representative rank across hosts.

PIECES = 8
"""Pieces that a computation is cut into across hosts; the rows of a piece are contiguous."""
CUT: Mapping[str, Mapping[str, int]] = {"decomposed": {"pieces": PIECES}}
"""For each scheme, the axes of a computation without communication that differ from the defaults."""
BLOCK = "tile", "num_warps", "num_stages"
"""Axes of our kernel's block, whose defaults depend on the rows that each rank owns."""
DIRECT = "direct"
"""The algorithm of all collectives of the library of CPU ranks."""
CHUNKS = (1, 4, 16)
"""Numbers of equal parts that the library may cut a buffer into; the fastest is taken."""


@dataclass(frozen=True, slots=True)
class LibraryTransfer:
    """Times of a collective by the library."""

    seconds: float
    by_level: tuple[float, ...]
    """Seconds for which it holds the links of each level."""


class Prices:
    """Prices on *machine* over parts of *network*; each shape is computed once."""

    def __init__(
        self, machine: Machine, network: Network, kept: dict[tuple[object, ...], object] | None = None
    ) -> None:
        self.machine = machine
        self.network = network
        self._levels = networks.levels(machine)
        self._kept: dict[tuple[object, ...], object] = {} if kept is None else kept

    def over(self, network: Network) -> Prices:
        """Prices of the same machine over another network, with the same memo."""
        return Prices(self.machine, network, self._kept)

    def gemm(self, dtype: str, m: int, n: int, k: int) -> float:
        """Seconds of one GEMM that sends nothing."""
        return self._alone(problem(GEMM, {"m": m, "n": n, "k": k}, dtype=dtype, world=1), BASELINE)[0].seconds

    def memory(self, dtype: str, num_bytes: float) -> float:
        """Seconds of a memory-bound kernel that reads and writes *num_bytes*."""
        return networks.kernel_seconds(self.machine, dtype, num_bytes)

    def collective(self, network: Network, name: str, num_bytes: float) -> LibraryTransfer:
        """One call of the library among the ranks of *network*: its fixed cost plus the fastest algorithm."""
        if network.world == 1:
            return LibraryTransfer(0.0, (0.0,) * len(network.levels))
        key = ("collective", network, name, num_bytes)
        if key not in self._kept:
            self._kept[key] = self._collective(network, name, num_bytes)
        return self._kept[key]  # type: ignore[return-value]

    def _collective(self, network: Network, name: str, num_bytes: float) -> LibraryTransfer:
        if self.inside_a_host(network):
            leaving = len(PASSES[name]) * (network.world - 1) * _piece(name, num_bytes, network.world)
            seconds = networks.one_host_seconds(self.machine, network.world, name, leaving)
            return LibraryTransfer(seconds, _on_used_levels(network, seconds))
        driven = replace(network, levels=networks.library_levels(self.machine, network.levels))
        ways = (DIRECT,) if networks.puts_anywhere(self.machine) else ALGORITHMS
        costs = [collective(driven, name, num_bytes, way, chunks=chunks) for way in ways for chunks in CHUNKS
                 if way != HALVING or network.world & (network.world - 1) == 0]  # fmt: skip
        best = min(costs, key=lambda cost: cost.seconds)
        return LibraryTransfer(best.seconds + networks.library_seconds(self.machine), best.by_level)

    def inside_a_host(self, network: Network) -> bool:
        """Whether *network* is links of the machine inside one host, which tier B plays tile by tile."""
        if len(network.levels) != len(self._levels):
            return False
        used = [pair for pair in zip(network.levels, self._levels, strict=True) if pair[0].count > 1]
        return all(level.link != NETWORK and some_of(whole, level.count) == level for level, whole in used)

    def operator(self, of: Problem, scheme: str, network: Network) -> OperatorPrice:
        """Operator problem *of*, whose world is that of *network*, under *scheme* with its default axes."""
        key = ("operator", of, scheme, network)
        if key not in self._kept:
            if network.world == 1:
                seconds = self._alone(of, BASELINE)[0].seconds
                self._kept[key] = OperatorPrice(seconds, seconds, 0.0, (0.0,) * len(network.levels), seconds, False)
            elif self.inside_a_host(network):
                self._kept[key] = self._played(of, scheme, network)
            else:
                self._kept[key] = _ACROSS[scheme](self, of, scheme, network)
        return self._kept[key]  # type: ignore[return-value]

    def pipelined(self, scheme: str, network: Network, name: str, num_bytes: float, compute_s: float) -> OperatorPrice:
        """A computation of *compute_s* overlapped with a collective that no operator has, under *scheme*."""
        return _PIPELINED[scheme](self, network, name, num_bytes, UnsharedComputation(compute_s, network.world))

    def _played(self, of: Problem, scheme: str, network: Network) -> OperatorPrice:
        """The estimate of tier B, inside a host."""
        fabric = networks.inside_fabric(self.machine)
        plan = expand(of, self._usual(of, scheme, fabric))
        whole = play(plan, step_costs(plan, self.machine, fabric)).time_s
        part = plan.part("compute")
        compute = play(part, step_costs(part, self.machine, fabric)).time_s
        overlaps = scheme != BASELINE
        return OperatorPrice(
            whole, compute, whole - compute, _on_used_levels(network, whole - compute), whole, overlaps
        )

    def _usual(self, of: Problem, scheme: str, fabric: Fabric) -> Schedule:
        """The default schedule, but tiles end with a rank's rows and owners sum, as they do beyond a host."""
        usual = schedule(of, scheme, {}, self.machine, fabric)
        if not axis_rules.spans_ranks(usual) and not axis_rules.sums_in_ring(usual):
            return usual
        return schedule(of, scheme, {axis_rules.TILE_ORDER: "rotated"}, self.machine, fabric)

    def _alone(self, of: Problem, scheme: str, near: int = 1) -> tuple[UnsharedComputation, Schedule]:
        """The computation of *of* on one rank, and its schedule; the shape is the same at every world.

        *near*: ranks that its processor stores into, itself included, which decide the size of slices.
        """
        key = ("alone", replace(of, world=1), scheme, near)
        if key not in self._kept:
            one = replace(of, world=1)
            fabric = networks.inside_fabric(self.machine)
            plan = expand(one, self._cut(of, near, scheme, fabric)).part("compute")
            seconds = play(plan, step_costs(plan, self.machine, fabric)).time_s
            slices = _slices(plan.schedule, int((plan.kind == Kind.COMPUTE).sum()))
            self._kept[key] = UnsharedComputation(seconds, slices), plan.schedule
        return self._kept[key]  # type: ignore[return-value]

    def _cut(self, of: Problem, near: int, scheme: str, fabric: Fabric) -> Schedule:
        """The schedule of a computation without communication; the defaults if it is too small for the pieces."""
        one, axes = replace(of, world=1), CUT.get(scheme, {})
        for wanted in ({**axes, **self._shared(replace(of, world=near), scheme, fabric)}, axes):
            try:
                return schedule(one, scheme, wanted, self.machine, fabric)
            except Refusal:
                continue
        return schedule(one, scheme, {}, self.machine, fabric)

    def _shared(self, several: Problem, scheme: str, fabric: Fabric) -> Mapping[str, Value]:
        """Defaults among the ranks of *several* that one rank alone has others of: slices, and our kernel's block."""
        try:
            usual = dict(self._usual(several, scheme, fabric).axes)
        except Refusal:
            return {}
        shared = (SLICE, *BLOCK) if BLOCK[-1] in usual else (SLICE,)
        return {name: usual[name] for name in shared if name in usual}


def _slices(of: Schedule, steps: int) -> int:
    """Number of parts of a schedule's computation."""
    pieces = of.get("pieces")
    return pieces if isinstance(pieces, int) else steps


def _one_after_the_other(prices: Prices, of: Problem, scheme: str, network: Network) -> OperatorPrice:
    """Price of the sequential scheme: the computation, the library's collective, and an unpacking copy."""
    kind = operator(of.operator)
    (alone, _), moved = prices._alone(of, scheme), prices.collective(network, kind.collective, buffer_bytes(of))
    unpacked = _unpack_seconds(prices.machine, of, kind)
    computed = alone.seconds + unpacked
    return OperatorPrice(computed + moved.seconds, computed, moved.seconds, moved.by_level, computed, False)


def _overlapped(prices: Prices, of: Problem, scheme: str, network: Network) -> OperatorPrice:
    kind, machine, num_bytes = operator(of.operator), prices.machine, buffer_bytes(of)
    stored = stored_by_itself(machine, network, kind.collective, num_bytes)
    alone, cut = prices._alone(of, scheme, stored.peers + 1)
    slower = networks.slower(machine, of, dict(cut.axes), stored)
    alone = replace(alone, slower=slower, sums_s=_sum_seconds(machine, of, kind), receives=kind.flow is Flow.RECEIVE,
                    sends_last=kind.flow is Flow.SEND and not kind.reduces)  # fmt: skip
    waves: list[PushWaves | None] = [*networks.waves(machine, of, cut, stored)]
    ways = [_PIPELINED[scheme](prices, network, kind.collective, num_bytes, replace(alone, waves=each))
            for each in waves or [None]]  # fmt: skip
    return min(ways, key=lambda way: way.whole_s)


def _by_pieces(
    prices: Prices, network: Network, name: str, num_bytes: float, alone: UnsharedComputation
) -> OperatorPrice:
    """Price of pieces: each is sent while the next is computed, by a call of the library or by puts of CPU ranks."""
    pieces = min(alone.slices, PIECES)
    if networks.puts_anywhere(prices.machine):
        return by_puts(prices.machine, network, name, num_bytes, replace(alone, slices=pieces, to_all=True))
    compute = alone.seconds + alone.sums_s
    moved = prices.collective(network, name, num_bytes / pieces)
    each = compute / pieces
    whole = each + moved.seconds + (pieces - 1) * max(each, moved.seconds)
    by_level = tuple(pieces * one for one in moved.by_level)
    held = compute if alone.sends_last else whole
    return OperatorPrice(whole, compute, pieces * moved.seconds, by_level, held, True)


def _by_slices(
    prices: Prices, network: Network, name: str, num_bytes: float, alone: UnsharedComputation
) -> OperatorPrice:
    return by_puts(prices.machine, network, name, num_bytes, alone)


def _in_a_row(
    prices: Prices, network: Network, name: str, num_bytes: float, alone: UnsharedComputation
) -> OperatorPrice:
    moved = prices.collective(network, name, num_bytes)
    return OperatorPrice(
        alone.seconds + moved.seconds, alone.seconds, moved.seconds, moved.by_level, alone.seconds, False
    )


_Pipelined = Callable[[Prices, Network, str, float, UnsharedComputation], OperatorPrice]
_Across = Callable[[Prices, Problem, str, Network], OperatorPrice]
_PIPELINED: Mapping[str, _Pipelined] = {"sequential": _in_a_row, "decomposed": _by_pieces, "fused": _by_slices}
_ACROSS: Mapping[str, _Across] = {
    "sequential": _one_after_the_other, "decomposed": _overlapped, "fused": _overlapped,
}  # fmt: skip
SCHEMES = tuple(_ACROSS)
"""Schemes of a step."""
GEMM = "gemm_all_to_all"
"""The operator whose computation is only a GEMM; on one rank it sends nothing."""


def buffer_bytes(of: Problem) -> float:
    """Bytes of the collective of *of*: one rank's whole buffer, or its contribution to a gather."""
    kind = operator(of.operator)
    sent = kind.wire_bytes(of) / len(PASSES[kind.collective])
    return sent / (of.world - 1) * (1 if kind.flow is Flow.RECEIVE and kind.collective == "all_gather" else of.world)


def _piece(name: str, num_bytes: float, world: int) -> float:
    return num_bytes if name == "all_gather" else num_bytes / world


def _on_used_levels(network: Network, seconds: float) -> tuple[float, ...]:
    return tuple(seconds if level.count > 1 else 0.0 for level in network.levels)


def _unpack_seconds(machine: Machine, of: Problem, kind: Operator) -> float:
    """Seconds to unpack the library's result; CPU ranks copy what they send instead."""
    if networks.puts_anywhere(machine):
        return networks.issue_seconds(machine, kind.wire_bytes(of))
    if kind.flow is not Flow.SEND or kind.reduces or not memory.unpacks(machine, of, in_pieces=False):
        return 0.0
    return float(memory.copy_seconds(machine, of.dtype, buffer_bytes(of)))


def _sum_seconds(machine: Machine, of: Problem, kind: Operator) -> float:
    """Seconds for the owner to sum the partial sums stored at it; 0 without a reduction."""
    if not kind.reduces:
        return 0.0
    return float(memory.sum_seconds(machine, of.dtype, buffer_bytes(of) / of.world, of.world))
