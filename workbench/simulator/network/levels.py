"""A Network is levels of links, the innermost first: read from a TOML file, or cut from a machine's."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd, prod
from pathlib import Path
from typing import Any

import numpy as np

from kernels import texts
from kernels.machine import Dimension, Machine
from kernels.machine_file import dimensions
from kernels.schedule import Refusal
from workbench.resources import data_directory
from workbench.simulator.price import networks
from workbench.simulator.price.routes import Routes, num_links

KIND = texts.TextKind("fabric file", "a fabric", "a TOML file with [[dimension]] tables")
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
    def words(self) -> str:
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
            raise Refusal(f"{count} ranks do not fill the levels {self.words} of {self.name} evenly: of {groups} and a "
                          f"level of {whole} neither divides the other. Accepted: {_near(self, count)}.")  # fmt: skip
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


def _near(network: Network, count: int) -> str:
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
    data = texts.toml(path, KIND)
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
    raise Refusal(f"{network.name} does not fit world = {world}: its counts {network.words} multiply to "
                  f"{network.world}, not to {world}. Accepted: world = {network.world}, or other counts.")  # fmt: skip
