"""What computations and collectives of a step take: tier B inside a host, one rank that stands for all beyond it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from kernels.axes import Value
from kernels.fabric import Fabric
from kernels.machine import NETWORK, Machine
from kernels.operators import Flow, Operator, operator, problem
from kernels.plan import Kind
from kernels.problem import Problem
from kernels.schedule import Refusal, Schedule
from kernels.schemes import BASELINE, expand, schedule
from workbench.simulator.network import ALGORITHMS, Network, collective
from workbench.simulator.network.collectives import HALVING, PASSES
from workbench.simulator.network.levels import some_of
from workbench.simulator.play import play
from workbench.simulator.price import memory, networks, pushers
from workbench.simulator.price.pushers import SLICE, Waves
from workbench.simulator.price.steps import step_costs
from workbench.simulator.step.slices import Alone, Priced, by_puts, stored_by_itself

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
        return all(level.link != NETWORK and some_of(whole, level.count) == level for level, whole in used)

    def operator(self, of: Problem, scheme: str, network: Network) -> Priced:
        """Operator problem *of*, whose world is that of *network*, under *scheme* with its default axes."""
        key = ("operator", of, scheme, network)
        if key not in self._kept:
            if network.world == 1:
                seconds = self._alone(of, BASELINE)[0].seconds
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

    def _alone(self, of: Problem, scheme: str, near: int = 1) -> tuple[Alone, Schedule]:
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
            self._kept[key] = Alone(seconds, slices), plan.schedule
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


def _one_after_the_other(prices: Prices, of: Problem, scheme: str, network: Network) -> Priced:
    """The computation, the library's collective, and what it leaves packed is moved once more."""
    kind = operator(of.operator)
    (alone, _), moved = prices._alone(of, scheme), prices.collective(network, kind.collective, buffer_bytes(of))
    unpacked = _unpack_seconds(prices.machine, of, kind)
    computed = alone.seconds + unpacked
    return Priced(computed + moved.seconds, computed, moved.seconds, moved.by_level, computed, False)


def _overlapped(prices: Prices, of: Problem, scheme: str, network: Network) -> Priced:
    kind, machine, num_bytes = operator(of.operator), prices.machine, buffer_bytes(of)
    stored = stored_by_itself(machine, network, kind.collective, num_bytes)
    alone, cut = prices._alone(of, scheme, stored.peers + 1)
    slower = pushers.slower(machine, of, dict(cut.axes), stored)
    alone = replace(alone, slower=slower, sums_s=_sum_seconds(machine, of, kind), receives=kind.flow is Flow.RECEIVE,
                    sends_last=kind.flow is Flow.SEND and not kind.reduces)  # fmt: skip
    waves: list[Waves | None] = [*pushers.waves(machine, of, cut, stored)]
    ways = [_PIPELINED[scheme](prices, network, kind.collective, num_bytes, replace(alone, waves=each))
            for each in waves or [None]]  # fmt: skip
    return min(ways, key=lambda way: way.whole_s)


def _by_pieces(prices: Prices, network: Network, name: str, num_bytes: float, alone: Alone) -> Priced:
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
    return Priced(whole, compute, pieces * moved.seconds, by_level, held, True)


def _by_slices(prices: Prices, network: Network, name: str, num_bytes: float, alone: Alone) -> Priced:
    return by_puts(prices.machine, network, name, num_bytes, alone)


def _in_a_row(prices: Prices, network: Network, name: str, num_bytes: float, alone: Alone) -> Priced:
    moved = prices.collective(network, name, num_bytes)
    return Priced(alone.seconds + moved.seconds, alone.seconds, moved.seconds, moved.by_level, alone.seconds, False)


_Pipelined = Callable[[Prices, Network, str, float, Alone], Priced]
_Across = Callable[[Prices, Problem, str, Network], Priced]
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
