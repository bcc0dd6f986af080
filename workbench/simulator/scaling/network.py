"""Tier C's network: hierarchical fabrics, and what a collective costs on them, as pure functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import gcd, log2, prod
from pathlib import Path
from typing import Any

import numpy as np

from kernels import files
from kernels.machine import COLLECTIVES, Dimension, Machine, dimensions
from kernels.schedule import Refusal
from workbench.resources import data_directory
from workbench.simulator.price import networks
from workbench.simulator.price.messages import Routes, num_links

# A Network is levels of links, the innermost first: read from a TOML file, or cut from a machine's.

KIND = files.TextKind("fabric file", "a fabric", "a TOML file with [[dimension]] tables")
MEMORY_BYTES_PER_SECOND = 4.8e12
"""Assumed where a file does not state it: the HBM of an H200, and what astra_sim.json was made with."""
ENDPOINT_SECONDS = 1e-8
"""Assumed where a file does not state it: 10 ns at the receiver of each message, as astra_sim.json was made with."""
_NUMBERS = ("memory_bytes_per_second", "endpoint_seconds")
_KEYS = ("name", "dimension", *_NUMBERS, "provenance")


@dataclass(frozen=True, slots=True)
class Network:
    """What links ranks. Rank r has place r % count in the innermost level, r // count % the next count in the next."""

    name: str
    levels: tuple[Dimension, ...]
    memory_bytes_per_second: float = MEMORY_BYTES_PER_SECOND
    """Of one rank's own memory, in which contributions are summed."""
    endpoint_seconds: float = ENDPOINT_SECONDS
    """What a rank does for each message that it takes, beside the link's latency."""

    @property
    def world(self) -> int:
        """Ranks that it links."""
        return prod(level.count for level in self.levels)

    @property
    def counts_text(self) -> str:
        """`8 x 128`: the counts of the levels that lead to anybody, the innermost first."""
        return " x ".join(str(level.count) for level in self.levels if level.count > 1) or "1"

    @property
    def outermost(self) -> int:
        """The outermost level that leads to anybody; 0 of one rank."""
        return max((at for at, level in enumerate(self.levels) if level.count > 1), default=0)

    def inner(self, count: int) -> Network:
        """The first *count* ranks: neighbours fill the inner levels first. Refusal if they do not fill them evenly."""
        return self._with(self._shares(count))

    def outer(self, count: int) -> Network:
        """One rank of every block of *count* neighbours."""
        shares = self._shares(count)
        return self._with([level.count // share for level, share in zip(self.levels, shares, strict=True)])

    def with_rates(self, level: int, bytes_per_second: float) -> Network:
        """The same with another bandwidth of *level*."""
        changed = list(self.levels)
        changed[level] = replace(changed[level], bandwidth_bytes_per_second=bytes_per_second)
        return replace(self, levels=tuple(changed))

    def _with(self, counts: list[int]) -> Network:
        pairs = zip(self.levels, counts, strict=True)
        return replace(self, levels=tuple(some_of(level, count) for level, count in pairs))

    def _shares(self, count: int) -> list[int]:
        """By level, how many of its places *count* neighbours fill."""
        shares, left = [], count
        for level in self.levels:
            units, whole = left, level.count
            shares.append(gcd(whole, left) if left % whole else whole)
            left //= shares[-1]
            if shares[-1] < whole:
                break
        if left != 1:
            groups = str(units) if units == count else f"{units} groups of {count // units}"
            raise Refusal(f"{count} ranks do not fill the levels {self.counts_text} of {self.name} evenly: of {groups} and a "
                          f"level of {whole} neither divides the other. Accepted: "
                          f"{_near_counts(self, count)}.")  # fmt: skip
        return shares + [1] * (len(self.levels) - len(shares))

    def byte_seconds(self, level: int) -> np.ndarray:
        """Of the messages from place 0 of *level* to places 1, 2, ...: seconds per byte while nothing else is sent."""
        one = self.levels[level]
        return Routes(one.count, (one,)).between(0, np.arange(1, one.count)).byte_seconds

    def links(self, level: int) -> int:
        """Among how many links of a rank the level's bandwidth is divided."""
        return max(1, num_links(self.levels[level]))  # none of a level that leads to nobody


def some_of(level: Dimension, count: int) -> Dimension:
    """*count* ranks of *level*. Where a link leads to one peer each, links to the others carry nothing for them."""
    if level.topology != "fully_connected" or not 1 < count < level.count:
        return replace(level, count=count)
    rate = level.bandwidth_bytes_per_second * (count - 1) / (level.count - 1)
    return replace(level, count=count, bandwidth_bytes_per_second=rate)


def _near_counts(network: Network, count: int) -> str:
    """Some counts about *count* that do fill the levels."""
    reached, counts = 1, {1}
    for level in network.levels:
        counts |= {reached * part for part in range(1, level.count + 1) if level.count % part == 0}
        reached *= level.count
    near = sorted(sorted(counts, key=lambda one: (abs(one - count), one))[:3])
    return ", ".join(map(str, near))


def named(fabric: Path) -> Network:
    """The Network in file *fabric*, or the shipped one that is called so."""
    shipped = data_directory() / "fabrics" / f"{fabric}.toml"
    return load(shipped if not fabric.exists() and not fabric.suffix and shipped.exists() else fabric)


def load(path: Path) -> Network:
    """The Network in TOML file *path*; ValueError names the file and the key that is wrong."""
    data = files.toml(path, KIND)
    if unknown := [key for key in data if key not in _KEYS]:
        raise ValueError(f"{path.name} has the unknown key {unknown[0]!r}. Accepted: {', '.join(_KEYS)}.")
    tables = data.get("dimension")
    if not isinstance(tables, list) or not tables:
        raise ValueError(
            f"{path.name} has no [[dimension]], and every fabric needs 1 or more. Accepted: {KIND.accepted}."
        )
    return Network(str(data.get("name", path.stem)), dimensions(tables, path.name),
                   **{key: _positive(data[key], key, path.name) for key in _NUMBERS if key in data})  # fmt: skip


def _positive(value: Any, key: str, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise ValueError(f"{where}: {key} = {value!r} does not fit. Accepted: a finite number above 0.")
    return float(value)


def of_machine(machine: Machine, world: int) -> Network:
    """The network between *world* ranks of *machine*; Refusal if it does not link as many, or not evenly."""
    whole = Network(machine.name, networks.levels(machine), networks.memory_rate(machine))
    check_world(world, whole.world, machine.name)
    return whole.inner(world)


def check_world(world: int, most: int, name: str) -> None:
    """Refusal if there are no *world* ranks, or more than the *most* that *name* links."""
    if world < 1:
        raise Refusal(f"world = {world} is too small: {world} < 1. Accepted: 1 to {most:,} ranks.")
    if world > most:
        raise Refusal(f"world = {world} is too large for {name}, which links {most} ranks: {world} > {most}. "
                      f"Accepted: world 1..{most}.")  # fmt: skip


def checked(network: Network, world: int | None) -> Network:
    """*network*, which must link exactly *world* ranks where that is stated; Refusal otherwise."""
    if world is None or world == network.world:
        return network
    check_world(world, network.world, network.name)
    raise Refusal(f"{network.name} does not fit world = {world}: its counts {network.counts_text} multiply to "
                  f"{network.world}, not to {world}. Accepted: world = {network.world}, or other counts.")  # fmt: skip


# What a collective costs on a network: pure functions of bytes, one for each way to do it, and the bound of all.

TWO_LINKS = ("ring", "torus")
"""Topologies on which a ring of ranks sends both ways round."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one call takes, for each of its ranks."""

    seconds: float
    by_level: tuple[float, ...]
    """Seconds for which the call holds the links of each level of the network."""


@dataclass(frozen=True, slots=True)
class Phase:
    """One pass over all ranks: everybody has a message of *piece* bytes for, or of, everybody else."""

    network: Network
    piece: float
    passes: str
    """`exchange`, `gather`, or `reduce` (a gather backwards, contributions being summed)."""

    @property
    def sum_seconds(self) -> float:
        """To sum one message into what is there: two reads and a write."""
        return 3 * self.piece / self.network.memory_bytes_per_second if self.passes == "reduce" else 0.0


Way = Callable[[Phase], Cost]


def collective(
    network: Network, name: str, num_bytes: float, algorithm: str, *, chunks: int = 1, inside: str | None = None
) -> Cost:
    """One call of collective *name* among all ranks of *network*.

    *num_bytes*: of all_gather, one rank's contribution; of the others, the whole buffer of one rank. *chunks*: equal
    parts of the buffer that follow each other through the levels. *inside*: what `hierarchical` does on each level;
    None: whatever is fastest there. `direct` and the others send to all ranks alike, whichever level leads to them.
    """
    _check(name, num_bytes, algorithm, chunks)
    if inside is not None and inside not in WAYS:
        raise Refusal(f"inside = {inside!r} is no way to do one level. Accepted: {', '.join(WAYS)}.")
    if network.world == 1:
        return Cost(0.0, (0.0,) * len(network.levels))
    part = num_bytes / chunks
    if algorithm == HIERARCHICAL:
        return _hierarchical(network, name, part, chunks, [WAYS[inside]] if inside else None)
    costs = [WAYS[algorithm](phase) for phase in phases(network, name, part)]
    return _times(_sum(costs), chunks)


def phases(network: Network, name: str, num_bytes: float) -> list[Phase]:
    """What collective *name* consists of when all ranks of *network* take part at once."""
    piece = num_bytes if name == "all_gather" else num_bytes / network.world
    return [Phase(network, piece, passes) for passes in PASSES[name]]


PASSES = {"all_to_all": ("exchange",), "all_gather": ("gather",), "reduce_scatter": ("reduce",),
          "all_reduce": ("reduce", "gather")}  # fmt: skip


def bound(network: Network, name: str, num_bytes: float) -> float:
    """Seconds below which no algorithm is: the least bytes that must cross each level, at its bandwidth.

    No reduction inside the network; *num_bytes* as in `collective`.
    """
    whole = num_bytes * network.world if name == "all_gather" else num_bytes
    seconds, reached = 0.0, 1
    for level in network.levels:
        # an exchange sends each byte over the outermost level that it must cross; sums are made inside first
        share = (level.count - 1) * reached / network.world if name == "all_to_all" else (level.count - 1) / (
            level.count * reached)  # fmt: skip
        seconds = max(seconds, len(PASSES[name]) * whole * share / level.bandwidth_bytes_per_second)
        reached *= level.count
    return seconds


def _hierarchical(network: Network, name: str, num_bytes: float, chunks: int, ways: list[Way] | None) -> Cost:
    """Level by level: sums from the innermost outwards, what is gathered inwards again; the fastest of *ways* on each.

    Chunks follow each other: the first fills all levels, then the busiest level says when the next one is through.
    """
    held = [0.0] * len(network.levels)
    for level, phase in _stages(network, name, num_bytes):
        held[level] += min(way(phase).seconds for way in ways or _possible(phase))
    return Cost(sum(held) + (chunks - 1) * max(held), tuple(chunks * one for one in held))


def _stages(network: Network, name: str, num_bytes: float) -> list[tuple[int, Phase]]:
    """Level and phase of each stage; a level of one rank has none."""
    alone = [replace(network, levels=(level,)) for level in network.levels]
    inside = [prod(level.count for level in network.levels[:at]) for at in range(len(alone))]
    stages = []
    for passes in PASSES[name]:
        for at in range(len(alone)) if passes != "gather" else reversed(range(len(alone))):
            count = alone[at].world
            if passes == "exchange":
                piece = num_bytes / count
            elif passes == "reduce" or name == "all_reduce":
                piece = num_bytes / inside[at] / count
            else:  # a gather from outside in: what has been fetched from other blocks is passed on with one's own
                piece = num_bytes * prod(one.world for one in alone[at + 1 :])
            if count > 1:
                stages.append((at, Phase(alone[at], piece, passes)))
    return stages


def _possible(phase: Phase) -> list[Way]:
    """The ways that *phase* can go."""
    return [way for name, way in WAYS.items() if name != HALVING or _is_power_of_two(phase.network.world)]


def direct(phase: Phase) -> Cost:
    """To all peers at once: each level is busy with what goes to peers that it is the last to lead to."""
    network, held, last = phase.network, [], 0.0
    for level, (one, near) in enumerate(zip(network.levels, _near(network), strict=True)):
        gaps = (one.count - 1) * one.message_seconds
        busy = near * (gaps + phase.piece * float(network.byte_seconds(level).sum()) / network.links(level))
        held.append(busy)
        if one.count > 1:
            last = max(last, busy + one.latency_seconds)
    return Cost(last + network.endpoint_seconds + phase.sum_seconds, tuple(held))


def pairwise(phase: Phase) -> Cost:
    """One peer after the other: each message has the link to itself, and waits for the one before to arrive."""
    network, held = phase.network, []
    for level, (one, near) in enumerate(zip(network.levels, _near(network), strict=True)):
        fixed = one.latency_seconds + one.message_seconds + network.endpoint_seconds
        held.append(near * ((one.count - 1) * fixed + phase.piece * float(network.byte_seconds(level).sum())))
    sums = _sums_pairwise(phase)
    return Cost(sum(held) + sums, tuple(held))


def _sums_pairwise(phase: Phase) -> float:
    """A peer's contribution is summed while the next one's is on its way, but for every second one."""
    return phase.network.world / 2 * phase.sum_seconds


def ring(phase: Phase) -> Cost:
    """Round a ring of all ranks. An exchange is passed on from neighbour to neighbour, as often as its owner is far.

    Of several levels there are as many rings as a block has ranks, each with another rank's link out of the block.
    """
    network = phase.network
    world, used = network.world, [at for at, level in enumerate(network.levels) if level.count > 1]
    slowest = max(float(network.byte_seconds(at)[0]) / _both_ways(network, at) / _near(network)[at] for at in used)
    latency = max(network.levels[at].latency_seconds + network.levels[at].message_seconds for at in used)
    hop = latency + network.endpoint_seconds + phase.piece * slowest + phase.sum_seconds
    seconds = (world * (world - 1) / 2 if phase.passes == "exchange" else world - 1) * hop
    return Cost(seconds, tuple(seconds if at in used else 0.0 for at in range(len(network.levels))))


def halving_doubling(phase: Phase) -> Cost:
    """Partners at distance 1, 2, 4, ...: of sums half as much at each step, of an exchange half of everything."""
    network = phase.network
    world = network.world
    if not _is_power_of_two(world):
        raise Refusal(f"algorithm = {HALVING} needs a power of 2 of ranks, and there are {world}. Accepted: ring, "
                      "direct, pairwise, hierarchical.")  # fmt: skip
    held = [0.0] * len(network.levels)
    for step in range(round(log2(world))):
        distance, level = 2**step, 0
        while distance >= network.levels[level].count:
            distance //= network.levels[level].count
            level += 1
        messages = world // 2 if phase.passes == "exchange" else world // 2 ** (step + 1)
        one, byte_seconds = network.levels[level], float(network.byte_seconds(level)[distance - 1])
        fixed = one.latency_seconds + one.message_seconds + network.endpoint_seconds
        held[level] += fixed + messages * (phase.sum_seconds + phase.piece * byte_seconds)
    return Cost(sum(held), tuple(held))


HALVING, HIERARCHICAL = "halving_doubling", "hierarchical"
WAYS: dict[str, Way] = {"ring": ring, "direct": direct, "pairwise": pairwise, HALVING: halving_doubling}
ALGORITHMS = (*WAYS, HIERARCHICAL)


def _near(network: Network) -> list[int]:
    """By level: peers behind each place of it, which are the ranks of one block of the levels inside."""
    return [prod(level.count for level in network.levels[:at]) for at in range(len(network.levels))]


def peers_by_level(network: Network) -> list[int]:
    """By level: how many peers of a rank it is the last to lead to."""
    return [near * (level.count - 1) for near, level in zip(_near(network), network.levels, strict=True)]


def _both_ways(network: Network, level: int) -> int:
    """How many links of a rank a ring of ranks uses on *level*."""
    one = network.levels[level]
    return 2 if one.topology in TWO_LINKS and one.count > 2 else 1


def _is_power_of_two(count: int) -> bool:
    return count & (count - 1) == 0


def _sum(costs: list[Cost]) -> Cost:
    by_level = tuple(map(sum, zip(*(cost.by_level for cost in costs), strict=True)))
    return Cost(sum(cost.seconds for cost in costs), by_level)


def _times(cost: Cost, count: int) -> Cost:
    return Cost(cost.seconds * count, tuple(one * count for one in cost.by_level))


def _check(name: str, num_bytes: float, algorithm: str, chunks: int) -> None:
    if name not in COLLECTIVES:
        raise Refusal(f"There is no collective {name!r}. Accepted: {', '.join(COLLECTIVES)}.")
    if algorithm not in ALGORITHMS:
        raise Refusal(f"There is no algorithm {algorithm!r}. Accepted: {', '.join(ALGORITHMS)}.")
    if not 0 < num_bytes < float("inf"):
        raise Refusal(f"bytes = {num_bytes:g} does not fit. Accepted: a finite number above 0.")
    if chunks < 1:
        raise Refusal(f"chunks = {chunks} is too small: {chunks} < 1. Accepted: 1 or more.")


# A collective by each algorithm, beside the bound of all: the rows of a table.

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


# Tier C's network: hierarchical fabrics, and what a collective costs on them, as pure functions.

__all__ = ["ALGORITHMS", "Cost", "Network", "collective", "load", "of_machine"]
