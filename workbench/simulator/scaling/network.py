"""Tier C's network: hierarchical fabrics, and the cost of collectives on them as pure functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from math import gcd, log2, prod
from pathlib import Path
from typing import Any

import numpy as np

from kernels import files
from kernels.machine import COLLECTIVES, Dimension, Machine, dimensions
from kernels.schedule import Refusal
from workbench.resources import data_directory, toml
from workbench.simulator.price import networks
from workbench.simulator.price.messages import Routes, num_links

# Networks: levels of links, the innermost first, read from a TOML file or taken from a machine.

KIND = files.TextKind("fabric file", "a fabric", "a TOML file with [[dimension]] tables")
MEMORY_BYTES_PER_SECOND = 4.8e12
"""Default of a fabric file: the HBM of an H200, as astra_sim.json was made with."""
ENDPOINT_SECONDS = 1e-8
"""Default of a fabric file: 10 ns at the receiver of each message, as astra_sim.json was made with."""
MOST_BYTES = 1e18
"""The largest buffer of a rank: more than the memory of any computer."""
_NUMBERS = ("memory_bytes_per_second", "endpoint_seconds")
_KEYS = ("name", "dimension", *_NUMBERS, "provenance")


@dataclass(frozen=True, slots=True)
class Network:
    """The levels of links between ranks.

    Rank r has place r % count in the innermost level, and r // count % (the next count) in the next level.
    """

    name: str
    levels: tuple[Dimension, ...]
    memory_bytes_per_second: float = MEMORY_BYTES_PER_SECOND
    """Bandwidth of one rank's memory, in which contributions are summed."""
    endpoint_seconds: float = ENDPOINT_SECONDS
    """Overhead of the receiver for each message, in addition to the link's latency."""

    @property
    def world(self) -> int:
        """Number of ranks."""
        return prod(level.count for level in self.levels)

    @property
    def shape(self) -> str:
        """Counts of the levels with more than one rank, the innermost first, such as `8 x 128`."""
        return " x ".join(str(level.count) for level in self.levels if level.count > 1) or "1"

    @property
    def outermost(self) -> int:
        """Index of the outermost level with more than one rank; 0 for a single rank."""
        return max((at for at, level in enumerate(self.levels) if level.count > 1), default=0)

    def inner(self, count: int) -> Network:
        """The network of the first *count* ranks, which fill inner levels first; Refusal if not evenly."""
        return self._with(self._shares(count))

    def outer(self, count: int) -> Network:
        """The network of one rank of every block of *count* neighbours."""
        shares = self._shares(count)
        return self._with([level.count // share for level, share in zip(self.levels, shares, strict=True)])

    def with_rates(self, level: int, bytes_per_second: float) -> Network:
        """A copy with another bandwidth of *level*."""
        changed = list(self.levels)
        changed[level] = replace(changed[level], bandwidth_bytes_per_second=bytes_per_second)
        return replace(self, levels=tuple(changed))

    def _with(self, counts: list[int]) -> Network:
        pairs = zip(self.levels, counts, strict=True)
        return replace(self, levels=tuple(some_of(level, count) for level, count in pairs))

    def _shares(self, count: int) -> list[int]:
        """For each level, the number of its places that *count* neighbours fill."""
        shares, remaining = [], count
        for level in self.levels:
            units, whole = remaining, level.count
            shares.append(gcd(whole, remaining) if remaining % whole else whole)
            remaining //= shares[-1]
            if shares[-1] < whole:
                break
        if remaining != 1:
            groups = str(units) if units == count else f"{units} groups of {count // units}"
            raise Refusal(f"{count} ranks do not fill the levels {self.shape} of {self.name} evenly: of {groups} and a "
                          f"level of {whole} neither divides the other. Accepted: "
                          f"counts that do, such as {_nearest_counts(self, count)}.")  # fmt: skip
        return shares + [1] * (len(self.levels) - len(shares))

    def byte_seconds(self, level: int) -> np.ndarray:
        """Seconds per byte of a lone message from place 0 of *level* to each of places 1, 2, ..."""
        one = self.levels[level]
        return Routes(one.count, (one,)).between(0, np.arange(1, one.count)).byte_seconds

    def links(self, level: int) -> int:
        """Number of links of a rank that share the bandwidth of *level*."""
        return max(1, num_links(self.levels[level]))  # a level of one rank has no links


def some_of(level: Dimension, count: int) -> Dimension:
    """A copy of *level* with *count* ranks. In a full mesh the links to the other ranks are unused."""
    if level.topology != "fully_connected" or not 1 < count < level.count:
        return replace(level, count=count)
    rate = level.bandwidth_bytes_per_second * (count - 1) / (level.count - 1)
    return replace(level, count=count, bandwidth_bytes_per_second=rate)


def _nearest_counts(network: Network, count: int) -> str:
    """The three counts nearest to *count* that fill the levels evenly, as text."""
    reached, counts = 1, {1}
    for level in network.levels:
        counts |= {reached * part for part in range(1, level.count + 1) if level.count % part == 0}
        reached *= level.count
    nearest = sorted(sorted(counts, key=lambda one: (abs(one - count), one))[:3])
    return ", ".join(map(str, nearest))


def named(fabric: Path) -> Network:
    """The Network in file *fabric*, or the shipped one of that name."""
    shipped = data_directory() / "fabrics" / f"{fabric}.toml"
    return load(shipped if not fabric.exists() and not fabric.suffix and shipped.exists() else fabric)


def load(path: Path) -> Network:
    """The Network in the TOML file *path*; ValueError names the file and the wrong key."""
    data = toml(path, KIND)
    if unknown := [key for key in data if key not in _KEYS]:
        raise ValueError(f"{path.name} has the unknown key {unknown[0]!r}. Accepted: {', '.join(_KEYS)}.")
    tables = data.get("dimension")
    if not isinstance(tables, list) or not tables:
        raise ValueError(
            f"{path.name} has no [[dimension]], and every fabric needs 1 or more. Accepted: {KIND.accepted}."
        )
    if not isinstance(name := data.get("name", path.stem), str):
        raise ValueError(f"{path.name}: name = {name!r} does not fit. Accepted: a text.")
    _check_provenance(data.get("provenance", {}), len(tables), path.name)
    return Network(name, dimensions(tables, path.name),
                   **{key: _positive(data[key], key, path.name) for key in _NUMBERS if key in data})  # fmt: skip


def _check_provenance(provenance: object, count: int, where: str) -> None:
    """Raises ValueError where *provenance* is no table of texts, or states the source of a value that no fabric has."""
    if not isinstance(provenance, dict):
        raise ValueError(f"{where}: provenance = {provenance!r} does not fit. Accepted: a table from key to source.")
    values = [f"dimension.{number}.{each.name}" for number in range(count) for each in fields(Dimension)]
    levels = [f"dimension.{number}" for number in range(count)]
    for key, source in provenance.items():
        if key not in ("dimension", *levels, *values, *_NUMBERS):
            raise ValueError(f"{where} [provenance] has the unknown key {key!r}. Accepted: dimension, "
                             f"{', '.join((*values[: len(fields(Dimension))], *_NUMBERS))}; its [[dimension]] tables "
                             f"have the numbers 0 to {count - 1}.")  # fmt: skip
        if not isinstance(source, str):
            raise ValueError(f"{where}: provenance of {key} is {source!r}. Accepted: a text.")


def _positive(value: Any, key: str, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise ValueError(f"{where}: {key} = {value!r} does not fit. Accepted: a finite number above 0.")
    return float(value)


def of_machine(machine: Machine, world: int) -> Network:
    """The network between *world* ranks of *machine*; Refusal if it links fewer, or not evenly."""
    whole = Network(machine.name, networks.levels(machine), networks.memory_rate(machine))
    check_world(world, whole.world, machine.name)
    return whole.inner(world)


def check_world(world: int, most: int, name: str) -> None:
    """Refuse a *world* below 1, or above the *most* ranks that *name* links."""
    if world < 1:
        raise Refusal(f"world = {world} is too small: {world} < 1. Accepted: 1 to {most:,} ranks.")
    if world > most:
        raise Refusal(f"world = {world} is too large for {name}, which links {most} ranks: {world} > {most}. "
                      f"Accepted: world 1..{most}.")  # fmt: skip


def checked(network: Network, world: int | None) -> Network:
    """*network*, after a check that it links exactly *world* ranks; None accepts any number. Refusal otherwise."""
    if world is None or world == network.world:
        return network
    check_world(world, network.world, network.name)
    raise Refusal(f"{network.name} does not fit world = {world}: its counts {network.shape} multiply to "
                  f"{network.world}, not to {world}. Accepted: world = {network.world}, or other counts.")  # fmt: skip


# Costs of a collective: one function for each algorithm, and the lower bound of all.

TWO_LINKS = ("ring", "torus")
"""Topologies on which a ring of ranks sends in both directions."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Time of one call, equal for all of its ranks."""

    seconds: float
    by_level: tuple[float, ...]
    """Seconds for which the call occupies the links of each level."""


@dataclass(frozen=True, slots=True)
class Phase:
    """One pass over all ranks, in which every rank exchanges a message of *piece* bytes with every other."""

    network: Network
    piece: float
    passes: str
    """`exchange`, `gather`, or `reduce` (a gather backwards, contributions being summed)."""

    @property
    def sum_seconds(self) -> float:
        """Seconds to sum one message into the local buffer: two reads and a write."""
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
    """The phases of collective *name* among all ranks of *network*."""
    piece = num_bytes if name == "all_gather" else num_bytes / network.world
    return [Phase(network, piece, passes) for passes in PASSES[name]]


PASSES = {"all_to_all": ("exchange",), "all_gather": ("gather",), "reduce_scatter": ("reduce",),
          "all_reduce": ("reduce", "gather")}  # fmt: skip


def bound(network: Network, name: str, num_bytes: float) -> float:
    """Lower bound in seconds of all algorithms: the least bytes that must cross each level, at its bandwidth.

    The network itself reduces nothing; *num_bytes* as in `collective`.
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
    """The level and phase of each stage; a level of one rank has no stage."""
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
    """The algorithms that are possible for *phase*."""
    return [way for name, way in WAYS.items() if name != HALVING or _is_power_of_two(phase.network.world)]


def direct(phase: Phase) -> Cost:
    """Send to all peers at once: a level is busy with messages to peers for which it is the outermost."""
    network, held, last = phase.network, [], 0.0
    for level, (one, ranks) in enumerate(zip(network.levels, _ranks_per_place(network), strict=True)):
        gaps = (one.count - 1) * one.message_seconds
        busy = ranks * (gaps + phase.piece * float(network.byte_seconds(level).sum()) / network.links(level))
        held.append(busy)
        if one.count > 1:
            last = max(last, busy + one.latency_seconds)
    return Cost(last + network.endpoint_seconds + phase.sum_seconds, tuple(held))


def pairwise(phase: Phase) -> Cost:
    """Send to one peer after the other: a message has the link to itself, and waits for the one before to arrive."""
    network, held = phase.network, []
    for level, (one, ranks) in enumerate(zip(network.levels, _ranks_per_place(network), strict=True)):
        fixed = one.latency_seconds + one.message_seconds + network.endpoint_seconds
        held.append(ranks * ((one.count - 1) * fixed + phase.piece * float(network.byte_seconds(level).sum())))
    sums = _sums_pairwise(phase)
    return Cost(sum(held) + sums, tuple(held))


def _sums_pairwise(phase: Phase) -> float:
    """Seconds of sums that are exposed: every second contribution is summed while the next one is in flight."""
    return phase.network.world / 2 * phase.sum_seconds


def ring(phase: Phase) -> Cost:
    """Send around a ring of all ranks. Messages of an exchange hop from neighbour to neighbour up to their owner.

    With several levels there are as many rings as a block has ranks; each leaves the block over another rank's link.
    """
    network = phase.network
    world, used = network.world, [at for at, level in enumerate(network.levels) if level.count > 1]
    slowest = max(
        float(network.byte_seconds(at)[0]) / _both_ways(network, at) / _ranks_per_place(network)[at] for at in used
    )
    latency = max(network.levels[at].latency_seconds + network.levels[at].message_seconds for at in used)
    hop = latency + network.endpoint_seconds + phase.piece * slowest + phase.sum_seconds
    seconds = (world * (world - 1) / 2 if phase.passes == "exchange" else world - 1) * hop
    return Cost(seconds, tuple(seconds if at in used else 0.0 for at in range(len(network.levels))))


def halving_doubling(phase: Phase) -> Cost:
    """Exchange with partners at distance 1, 2, 4, ...: half as much each step, or half of all for all_to_all."""
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


def _ranks_per_place(network: Network) -> list[int]:
    """For each level, the number of ranks at one place of it: those of one block of the inner levels."""
    return [prod(level.count for level in network.levels[:at]) for at in range(len(network.levels))]


def peers_by_level(network: Network) -> list[int]:
    """For each level, the number of a rank's peers for which it is the outermost level on the way."""
    return [ranks * (level.count - 1) for ranks, level in zip(_ranks_per_place(network), network.levels, strict=True)]


def _both_ways(network: Network, level: int) -> int:
    """Number of a rank's links on *level* that a ring of ranks uses."""
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
    if not 0 < num_bytes <= MOST_BYTES:
        raise Refusal(f"bytes = {num_bytes:g} is not between 0 and {MOST_BYTES:g}. Accepted: a number above 0, at most "
                      f"{MOST_BYTES:g}, a million TB.")  # fmt: skip
    if chunks < 1:
        raise Refusal(f"chunks = {chunks} is too small: {chunks} < 1. Accepted: 1 or more.")


# Rows: a collective by each algorithm, with the lower bound.

Row = dict[str, Any]
GATHERED = "all_gather"
"""The collective whose *num_bytes* are one rank's contribution."""


def priced(
    network: Network, name: str, num_bytes: float, *, algorithm: str | None = None, chunks: int = 1,
    inside: str | None = None
) -> list[Row]:  # fmt: skip
    """A row for *algorithm*, or for all of them; an impossible one has its refusal as message, and no time.

    Refusal if *algorithm* itself is impossible. Times in seconds, sizes in bytes.
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
            if each == ALGORITHMS[-1] or not rows:  # the input is wrong for all algorithms
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


__all__ = ["ALGORITHMS", "Cost", "Network", "collective", "load", "of_machine"]
