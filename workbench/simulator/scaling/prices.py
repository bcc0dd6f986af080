"""What computations and collectives of a step take: tier B inside a host, one rank that stands for all beyond it."""

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
from kernels.schemes import BASELINE, expand, schedule
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

# Slices that leave while others are computed: what an operator takes whose computation and wire run side by side.

Edges = tuple[tuple[float, float], ...]
MESH = "fully_connected"
"""The topology whose links lead to one peer each."""


@dataclass(frozen=True, slots=True)
class OperatorPrice:
    """One operator under one scheme. Where it overlaps, *whole_s* is less than the sum of its parts."""

    whole_s: float
    compute_s: float
    comm_s: float
    by_level: tuple[float, ...]
    held_s: float
    """For how long it has the processor: a NIC sends the last slices alone, SMs that store into peers do not end."""
    overlaps: bool


@dataclass(frozen=True, slots=True)
class UnsharedComputation:
    """The computation of one rank that nobody waits for."""

    seconds: float
    slices: int
    """How often it could send: its steps."""
    waves: PushWaves | None = None
    """Where tiles are computed in waves: they are done at once, in however many slices they leave."""
    slower: float = 1.0
    """How many times as long as links are stated to take what a rank stores by itself is on them."""
    sums_s: float = 0.0
    """What it takes to sum all contributions to one's own part."""
    to_all: bool = False
    """Whether each of them has something for every peer; else peers have their turn, and one's own part is the last."""
    receives: bool = False
    """Whether slices are awaited: one's own part is then the first, and peers push theirs."""
    sends_last: bool = False
    """Whether nothing is left to compute once the last slice has been sent."""


@dataclass(frozen=True, slots=True)
class _SlicedComputation:
    """A computation among those of peers, slice by slice."""

    seconds: float
    """With what it does for peers. Its sums are not counted."""
    first_s: float
    """Its first slice, or its last: no less than a wave."""
    world: int
    per_peer: float
    """Slices of each rank's part: messages to each peer."""
    sums_s: float
    in_turns: bool
    """Whether peers have their slices in turns, not one after the other."""
    receives: bool
    any_order: bool
    """Whether it goes on with whatever is here, in place of waiting for whose turn it is."""
    edges: Edges
    """Shares of what is sent, and what is computed beside all of that: before, or of who receives behind."""


@dataclass(frozen=True, slots=True)
class _LevelTransfer:
    """One level, in one pass over all peers."""

    seconds: float
    """For how long it is busy."""
    peers: int
    """Those that it is the last to lead to: 0 where it leads to nobody."""
    nearer: float
    """The share of ranks that inner levels lead to."""
    after: float
    """From the last byte's leaving to the peer's going on."""
    links: int
    """Those that lead to one peer each, or to what lies behind it; 1 where peers share one, or several."""
    stored: bool
    """Whether a rank's own processor stores over it; else a NIC sends."""


def by_puts(
    machine: Machine, network: Network, name: str, num_bytes: float, alone: UnsharedComputation
) -> OperatorPrice:
    """Each slice leaves for its owner as soon as it is done, and all levels are used at once.

    Two stages that follow each other slice by slice, on each level: the slowest one counts. A collective of two passes
    sums between them. What a rank does for the peers that it stores into by itself is part of its computation.
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
        ends = [*_told(computed, wires), compute + max(wire.after for wire in wires)]
    else:
        one_sum = computed.sums_s / per_peer
        ends = [compute, *(_left(computed, wire) + wire.after + one_sum for wire in wires)]
    whole, comm = max(ends), max(count * (wire.seconds + wire.after) for wire in wires)
    by_level, held = tuple(count * wire.seconds for wire in wires), compute if alone.sends_last else whole
    return OperatorPrice(whole, compute, comm, by_level, held, True)


def stored_by_itself(machine: Machine, network: Network, name: str, num_bytes: float) -> PeerStores:
    """What a rank's own processor stores on peers, in all passes."""
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
    """What who computes does for peers. GPUs have SMs of their own that push what others wait for."""
    if alone.receives and not networks.puts_anywhere(machine):
        return 0.0
    in_place = not (alone.to_all or alone.receives)  # slices are stored where they belong
    return _issued(machine, wires, per_peer, 0.0 if in_place else piece)


def _issued(machine: Machine, wires: Sequence[_LevelTransfer], per_peer: float, copied: float) -> float:
    """To tell each peer that a rank stores into of *per_peer* slices, and to copy so many bytes for it."""
    peers = sum(wire.peers for wire in wires if wire.stored)
    return peers * per_peer * networks.slice_seconds(machine) + networks.issue_seconds(machine, peers * copied)


def _held(machine: Machine, wires: Sequence[_LevelTransfer]) -> float:
    """For how long SMs store sums on peers, and do nothing else meanwhile."""
    return 0.0 if networks.puts_anywhere(machine) else sum(wire.links * wire.seconds for wire in wires if wire.stored)


def _computed(
    machine: Machine, alone: UnsharedComputation, world: int, per_peer: float, for_peers: float
) -> _SlicedComputation:
    """*alone* behind a meeting, with what it does for peers, and on fewer SMs while some push."""
    waves, step = alone.waves, networks.slice_seconds(machine)
    seconds = networks.meeting_seconds(machine) + alone.seconds + for_peers + (waves.away_s if waves else 0.0)
    first, edges = seconds / (per_peer if alone.to_all else per_peer * world), Edges()
    if waves is not None:
        wave_s, beside = waves.seconds or seconds / waves.count, alone.slices * step + for_peers
        first, edges = max(first, wave_s), _edges(waves, world, alone.receives, seconds, beside, wave_s)
    sums = alone.sums_s + per_peer * step if alone.sums_s else 0.0
    any_order = alone.receives and networks.puts_anywhere(machine)
    in_turns = waves is not None and waves.interleaved
    return _SlicedComputation(seconds, first, world, per_peer, sums, in_turns, alone.receives, any_order, edges)


def _edges(waves: PushWaves, world: int, receives: bool, seconds: float, beside: float, wave_s: float) -> Edges:
    """The last wave, of which all is sent behind it; or the first one and the last but one, which wait for rows.

    Of *seconds* *beside* are bookkeeping of slices, which goes on while those of a wave are sent.
    """
    before_last, stays = (waves.count - 1) * waves.share, 0.0 if waves.interleaved else 1 / world
    ends = [(waves.share, None), (before_last, min(seconds, 2 * wave_s))] if receives else [(1 - before_last, None)]
    return tuple((max(0.0, share - stays) / (1 - stays), seconds - beside * share if least is None else least)
                 for share, least in ends)  # fmt: skip


def _pieces_left(compute: float, pieces: float, wire_s: float) -> float:
    """Until all pieces are computed and sent: the slower of the two stages, and one piece of the other one."""
    return max(compute + wire_s / pieces, compute / pieces + wire_s)


def _left(of: _SlicedComputation, wire: _LevelTransfer) -> float:
    """Until all is computed, and what leaves over *wire* has left; or backwards: is here, and is computed.

    Peers have their turn, and those nearby are the first at the worst. Links of one peer each are used in turns, too;
    of what comes over them the last slices of all peers are there at once.
    """
    compute, away = of.seconds, 1 - 1 / of.world
    if not wire.peers:
        return compute
    by_waves = [least + share * wire.seconds for share, least in of.edges]
    last = wire.seconds / (of.per_peer * wire.peers)
    nearer = compute * wire.nearer
    if of.any_order:
        nearer = min(nearer, of.first_s * wire.nearer * of.world)
    if wire.links > 1 and not of.in_turns:
        turns = compute * (1 - (1 + wire.peers / wire.links) / of.world)
        nearer = max(nearer, min(turns, compute * away / of.per_peer) if of.receives else turns)
    return max(compute, compute * away + last, min(compute, nearer + of.first_s) + wire.seconds, *by_waves)


def _told(of: _SlicedComputation, wires: Sequence[_LevelTransfer]) -> list[float]:
    """By level, when all have all sums: they leave behind the contributions, and no sooner than one's own part is done.

    That is computed last. The first sum waits for its first slice, and for that of the peer whose turn was the last.
    """
    compute, one_sum = of.seconds, of.sums_s / of.per_peer
    left = [_left(of, wire) for wire in wires]
    begin, last_turn = (min(compute, compute * (1 - turns / of.world) + of.first_s) for turns in (1, 2))
    for wire in wires:
        if wire.peers:
            one = wire.seconds / (of.per_peer * wire.peers)
            full = compute * wire.nearer + of.first_s + wire.seconds - (of.per_peer - 1) * one
            begin = max(begin, max(last_turn + one, full) + wire.after)
    arrived = max(each + wire.after for each, wire in zip(left, wires, strict=True))
    last = max(compute + of.sums_s, arrived + one_sum)
    return [max(begin + one_sum + wire.seconds, each + wire.seconds, last + wire.seconds / of.per_peer) + wire.after
            for each, wire in zip(left, wires, strict=True)]  # fmt: skip


# What computations and collectives of a step take: tier B inside a host, one rank that stands for all beyond it.

PIECES = 8
"""Parts that a computation is cut into where pieces are moved beyond a host; their rows lie together."""
CUT: Mapping[str, Mapping[str, int]] = {"decomposed": {"pieces": PIECES}}
"""By scheme, the axes of a computation that is played alone, where they are not the defaults."""
DIRECT = "direct"
"""How the library of CPU ranks does all of its collectives."""
CHUNKS = (1, 4, 16)
"""Into how many equal parts the library cuts a buffer that goes through several levels: whichever is fastest."""


@dataclass(frozen=True, slots=True)
class LibraryTransfer:
    """A collective by the library."""

    seconds: float
    by_level: tuple[float, ...]
    """Seconds for which it holds the links of each level."""


class Prices:
    """Prices on *machine* over parts of *network*, each shape asked for once."""

    def __init__(
        self, machine: Machine, network: Network, kept: dict[tuple[object, ...], object] | None = None
    ) -> None:
        self.machine = machine
        self.network = network
        self._levels = networks.levels(machine)
        self._kept: dict[tuple[object, ...], object] = {} if kept is None else kept

    def over(self, network: Network) -> Prices:
        """The same machine over another network; shapes that are known stay known."""
        return Prices(self.machine, network, self._kept)

    def gemm(self, dtype: str, m: int, n: int, k: int) -> float:
        """Seconds of one GEMM that sends nothing."""
        return self._alone(problem(GEMM, {"m": m, "n": n, "k": k}, dtype=dtype, world=1), BASELINE)[0].seconds

    def memory(self, dtype: str, num_bytes: float) -> float:
        """Seconds of a kernel that reads and writes *num_bytes* and does little else."""
        return networks.kernel_seconds(self.machine, dtype, num_bytes)

    def collective(self, network: Network, name: str, num_bytes: float) -> LibraryTransfer:
        """One call of the library among the ranks of *network*: its fixed cost, and the fastest algorithm."""
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
        """A computation of *compute_s* beside a collective that no operator of ours has, under *scheme*."""
        return _PIPELINED[scheme](self, network, name, num_bytes, UnsharedComputation(compute_s, network.world))

    def _played(self, of: Problem, scheme: str, network: Network) -> OperatorPrice:
        """Inside a host: tier B's own estimate."""
        fabric = networks.inside_fabric(self.machine)
        plan = expand(of, schedule(of, scheme, {}, self.machine, fabric))
        whole = play(plan, step_costs(plan, self.machine, fabric)).time_s
        part = plan.part("compute")
        compute = play(part, step_costs(part, self.machine, fabric)).time_s
        overlaps = scheme != BASELINE
        return OperatorPrice(
            whole, compute, whole - compute, _on_used_levels(network, whole - compute), whole, overlaps
        )

    def _alone(self, of: Problem, scheme: str, near: int = 1) -> tuple[UnsharedComputation, Schedule]:
        """The computation of *of* on one rank, played, and how: its shape is the same at every world.

        *near*: ranks that it stores into by itself, which say how large its slices are.
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
        """The schedule of a computation that is played alone; too small for so many pieces, it has what is usual."""
        one, axes = replace(of, world=1), CUT.get(scheme, {})
        for wanted in ({**axes, **self._slice_of(replace(of, world=near), scheme, fabric)}, axes):
            try:
                return schedule(one, scheme, wanted, self.machine, fabric)
            except Refusal:
                continue
        return schedule(one, scheme, {}, self.machine, fabric)

    def _slice_of(self, several: Problem, scheme: str, fabric: Fabric) -> Mapping[str, Value]:
        """The size of slices that is usual among so many ranks, where there is one."""
        try:
            size = schedule(several, scheme, {}, self.machine, fabric).get(SLICE)
        except Refusal:
            return {}
        return {} if size is None else {SLICE: size}


def _slices(of: Schedule, steps: int) -> int:
    """Parts that a schedule's computation comes in."""
    pieces = of.get("pieces")
    return pieces if isinstance(pieces, int) else steps


def _one_after_the_other(prices: Prices, of: Problem, scheme: str, network: Network) -> OperatorPrice:
    """The computation, the library's collective, and what it leaves packed is moved once more."""
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
    """Pieces: each is moved while the next one is computed, by a call of the library, or by puts of CPU ranks."""
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
"""What a step can be asked for under."""
GEMM = "gemm_all_to_all"
"""The operator whose computation is a GEMM and nothing beside it; of one rank it sends nothing."""


def buffer_bytes(of: Problem) -> float:
    """What the collective of *of* counts: one rank's whole buffer, or its contribution to a gather."""
    kind = operator(of.operator)
    sent = kind.wire_bytes(of) / len(PASSES[kind.collective])
    return sent / (of.world - 1) * (1 if kind.flow is Flow.RECEIVE and kind.collective == "all_gather" else of.world)


def _piece(name: str, num_bytes: float, world: int) -> float:
    return num_bytes if name == "all_gather" else num_bytes / world


def _on_used_levels(network: Network, seconds: float) -> tuple[float, ...]:
    return tuple(seconds if level.count > 1 else 0.0 for level in network.levels)


def _unpack_seconds(machine: Machine, of: Problem, kind: Operator) -> float:
    """What the library leaves packed is moved once more; CPU ranks copy what they send instead."""
    if networks.puts_anywhere(machine):
        return networks.issue_seconds(machine, kind.wire_bytes(of))
    if kind.flow is not Flow.SEND or kind.reduces or not memory.unpacks(machine, of, in_pieces=False):
        return 0.0
    return float(memory.copy_seconds(machine, of.dtype, buffer_bytes(of)))


def _sum_seconds(machine: Machine, of: Problem, kind: Operator) -> float:
    """Whoever stores partial sums at their owner leaves it to the owner to sum them."""
    if not kind.reduces:
        return 0.0
    return float(memory.sum_seconds(machine, of.dtype, buffer_bytes(of) / of.world, of.world))
