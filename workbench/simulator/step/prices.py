"""What computations and collectives of a step take: tier B inside a host, one rank that stands for all beyond it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from kernels.fabric import Fabric
from kernels.machine import NETWORK, Machine
from kernels.operators import Flow, Operator, operator, problem
from kernels.plan import Kind
from kernels.problem import Problem
from kernels.schedule import Refusal, Schedule
from kernels.schemes import BASELINE, expand, schedule
from workbench.simulator.network import ALGORITHMS, Network, collective
from workbench.simulator.network.collectives import HALVING, PASSES, direct, peers_by_level, phases
from workbench.simulator.play import play
from workbench.simulator.price import memory, networks
from workbench.simulator.price.steps import step_costs

PIECES = 8
"""Parts that a computation is cut into where pieces are moved beyond a host; their rows lie together."""
CUT: Mapping[str, Mapping[str, int]] = {"decomposed": {"pieces": PIECES}}
"""By scheme, the axes of a computation that is played alone, where they are not the defaults."""
DIRECT = "direct"
"""How the library of CPU ranks does all of its collectives."""
CHUNKS = (1, 4, 16)
"""Into how many equal parts the library cuts a buffer that goes through several levels: whichever is fastest."""


@dataclass(frozen=True, slots=True)
class Moved:
    """A collective by the library."""

    seconds: float
    by_level: tuple[float, ...]
    """Seconds for which it holds the links of each level."""


@dataclass(frozen=True, slots=True)
class Priced:
    """One operator under one scheme. Where it overlaps, *whole_s* is less than the sum of its parts."""

    whole_s: float
    compute_s: float
    comm_s: float
    by_level: tuple[float, ...]
    held_s: float
    """For how long it has the processor: a NIC sends the last slices alone, SMs that store into peers do not end."""
    overlaps: bool


@dataclass(frozen=True, slots=True)
class Alone:
    """The computation of one rank that nobody waits for."""

    seconds: float
    slices: int
    """How often it could send: its steps."""
    to_all: bool = False
    """Whether each of them has something for every peer; else peers have their turn, and one's own part is the last."""
    sends_last: bool = False
    """Whether nothing is left to compute once the last slice has been sent."""


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
        return self._alone(problem(GEMM, {"m": m, "n": n, "k": k}, dtype=dtype, world=1), BASELINE).seconds

    def memory(self, dtype: str, num_bytes: float) -> float:
        """Seconds of a kernel that reads and writes *num_bytes* and does little else."""
        return networks.kernel_seconds(self.machine, dtype, num_bytes)

    def collective(self, network: Network, name: str, num_bytes: float) -> Moved:
        """One call of the library among the ranks of *network*: its fixed cost, and the fastest algorithm."""
        if network.world == 1:
            return Moved(0.0, (0.0,) * len(network.levels))
        key = ("collective", network, name, num_bytes)
        if key not in self._kept:
            self._kept[key] = self._collective(network, name, num_bytes)
        return self._kept[key]  # type: ignore[return-value]

    def _collective(self, network: Network, name: str, num_bytes: float) -> Moved:
        if self.inside_a_host(network):
            leaving = len(PASSES[name]) * (network.world - 1) * _piece(name, num_bytes, network.world)
            seconds = networks.one_host_seconds(self.machine, network.world, name, leaving)
            return Moved(seconds, _on_used_levels(network, seconds))
        driven = replace(network, levels=networks.library_levels(self.machine, network.levels))
        ways = (DIRECT,) if networks.puts_anywhere(self.machine) else ALGORITHMS
        costs = [collective(driven, name, num_bytes, way, chunks=chunks) for way in ways for chunks in CHUNKS
                 if way != HALVING or network.world & (network.world - 1) == 0]  # fmt: skip
        best = min(costs, key=lambda cost: cost.seconds)
        return Moved(best.seconds + networks.library_seconds(self.machine), best.by_level)

    def inside_a_host(self, network: Network) -> bool:
        """Whether *network* is links of the machine inside one host, which tier B plays tile by tile."""
        if len(network.levels) != len(self._levels):
            return False
        used = [pair for pair in zip(network.levels, self._levels, strict=True) if pair[0].count > 1]
        return all(level.link != NETWORK and replace(level, count=whole.count) == whole for level, whole in used)

    def operator(self, of: Problem, scheme: str, network: Network) -> Priced:
        """Operator problem *of*, whose world is that of *network*, under *scheme* with its default axes."""
        key = ("operator", of, scheme, network)
        if key not in self._kept:
            if network.world == 1:
                seconds = self._alone(of, BASELINE).seconds
                self._kept[key] = Priced(seconds, seconds, 0.0, (0.0,) * len(network.levels), seconds, False)
            elif self.inside_a_host(network):
                self._kept[key] = self._played(of, scheme, network)
            else:
                self._kept[key] = _ACROSS[scheme](self, of, scheme, network)
        return self._kept[key]  # type: ignore[return-value]

    def pipelined(self, scheme: str, network: Network, name: str, num_bytes: float, compute_s: float) -> Priced:
        """A computation of *compute_s* beside a collective that no operator of ours has, under *scheme*."""
        return _PIPELINED[scheme](self, network, name, num_bytes, Alone(compute_s, network.world))

    def _played(self, of: Problem, scheme: str, network: Network) -> Priced:
        """Inside a host: tier B's own estimate."""
        fabric = networks.inside_fabric(self.machine)
        plan = expand(of, schedule(of, scheme, {}, self.machine, fabric))
        whole = play(plan, step_costs(plan, self.machine, fabric)).time_s
        part = plan.part("compute")
        compute = play(part, step_costs(part, self.machine, fabric)).time_s
        overlaps = scheme != BASELINE
        return Priced(whole, compute, whole - compute, _on_used_levels(network, whole - compute), whole, overlaps)

    def _alone(self, of: Problem, scheme: str) -> Alone:
        """The computation of *of* on one rank, played: its shape is the same at every world."""
        key = ("alone", replace(of, world=1), scheme)
        if key not in self._kept:
            one = replace(of, world=1)
            fabric = networks.inside_fabric(self.machine)
            plan = expand(one, self._cut(one, scheme, fabric)).part("compute")
            seconds = play(plan, step_costs(plan, self.machine, fabric)).time_s
            self._kept[key] = Alone(seconds, _slices(plan.schedule, int((plan.kind == Kind.COMPUTE).sum())))
        return self._kept[key]  # type: ignore[return-value]

    def _cut(self, one: Problem, scheme: str, fabric: Fabric) -> Schedule:
        """The schedule of a computation that is played alone; too small for so many pieces, it has what is usual."""
        try:
            return schedule(one, scheme, CUT.get(scheme, {}), self.machine, fabric)
        except Refusal:
            return schedule(one, scheme, {}, self.machine, fabric)


def _slices(of: Schedule, steps: int) -> int:
    """Parts that a schedule's computation comes in."""
    pieces = of.get("pieces")
    return pieces if isinstance(pieces, int) else steps


def _one_after_the_other(prices: Prices, of: Problem, scheme: str, network: Network) -> Priced:
    """The computation, the library's collective, and what it leaves packed is moved once more."""
    kind = operator(of.operator)
    alone, moved = prices._alone(of, scheme), prices.collective(network, kind.collective, buffer_bytes(of))
    unpacked = _unpack_seconds(prices.machine, of, kind)
    computed = alone.seconds + unpacked
    return Priced(computed + moved.seconds, computed, moved.seconds, moved.by_level, computed, False)


def _overlapped(prices: Prices, of: Problem, scheme: str, network: Network) -> Priced:
    kind = operator(of.operator)
    alone = prices._alone(of, scheme)
    compute = alone.seconds + _sum_seconds(prices.machine, of, kind)
    alone = replace(alone, seconds=compute, sends_last=kind.flow is Flow.SEND)
    return _PIPELINED[scheme](prices, network, kind.collective, buffer_bytes(of), alone)


def _by_pieces(prices: Prices, network: Network, name: str, num_bytes: float, alone: Alone) -> Priced:
    """Pieces: each is moved while the next one is computed, by a call of the library, or by puts of CPU ranks."""
    pieces = min(alone.slices, PIECES)
    if networks.puts_anywhere(prices.machine):
        return _by_puts(prices, network, name, num_bytes, replace(alone, slices=pieces, to_all=True))
    moved = prices.collective(network, name, num_bytes / pieces)
    each = alone.seconds / pieces
    whole = each + moved.seconds + (pieces - 1) * max(each, moved.seconds)
    by_level = tuple(pieces * one for one in moved.by_level)
    return Priced(whole, alone.seconds, pieces * moved.seconds, by_level, _held(alone, whole), True)


def _by_puts(prices: Prices, network: Network, name: str, num_bytes: float, alone: Alone) -> Priced:
    """Slices: each leaves for its owner as soon as it is done, and all levels are used at once.

    Two stages that follow each other slice by slice, on each level: the slowest one counts.
    """
    costs = [direct(phase) for phase in phases(network, name, num_bytes)]
    peers, slices = peers_by_level(network), alone.slices if alone.to_all else max(alone.slices, network.world)
    more = (slices - 1 if alone.to_all else slices / network.world - 1) * len(costs)  # messages to each, beyond one
    wires = [sum(busy) + more * count * level.message_seconds for *busy, count, level in
             zip(*(cost.by_level for cost in costs), peers, network.levels, strict=True)]  # fmt: skip
    # slices are stored where they belong; pieces are copied
    copied = len(costs) * _piece(name, num_bytes, network.world) * sum(peers) if alone.to_all else 0.0
    compute = alone.seconds + networks.issue_seconds(prices.machine, copied)
    latency = max(level.latency_seconds for level in network.levels if level.count > 1)
    after = len(costs) * (latency + networks.put_seconds(prices.machine))
    whole = max(_stages(replace(alone, seconds=compute, slices=slices), wire, network, level)
                for level, wire in enumerate(wires)) + after  # fmt: skip
    return Priced(whole, compute, max(wires) + after, tuple(wires), _held(alone, whole, compute), True)


def _stages(alone: Alone, wire: float, network: Network, level: int) -> float:
    """Until all is computed, and what leaves over *level* in *wire* seconds has left.

    Where peers have their turn, those nearby are the first at the worst.
    """
    peers, world, compute = peers_by_level(network), network.world, alone.seconds
    if not peers[level]:
        return compute
    first = compute / alone.slices
    if alone.to_all:
        return max(compute + wire / alone.slices, first + wire)
    nearer, last = sum(peers[:level]) / world, wire / (alone.slices * peers[level] / world)
    return max(compute, compute * (1 - 1 / world) + last, compute * nearer + first + wire)


def _held(alone: Alone, whole: float, compute: float | None = None) -> float:
    return (alone.seconds if compute is None else compute) if alone.sends_last else whole


def _in_a_row(prices: Prices, network: Network, name: str, num_bytes: float, alone: Alone) -> Priced:
    moved = prices.collective(network, name, num_bytes)
    return Priced(alone.seconds + moved.seconds, alone.seconds, moved.seconds, moved.by_level, alone.seconds, False)


_Pipelined = Callable[[Prices, Network, str, float, Alone], Priced]
_Across = Callable[[Prices, Problem, str, Network], Priced]
_PIPELINED: Mapping[str, _Pipelined] = {"sequential": _in_a_row, "decomposed": _by_pieces, "fused": _by_puts}
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
