"""The caches and the DRAM of one device, read from a TOML file: a trace is replayed on such a Hierarchy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from kernels import files
from kernels.machine import PROVENANCES, Machine
from kernels.schedule import Refusal
from workbench.resources import data_directory, toml

LINE_BYTES, SECTOR_BYTES = 128, 32
"""Bytes of a cache line, and of a sector, the part of it that DRAM delivers."""
KIND = files.TextKind("cache file", "a cache description", "a TOML file")
UNEVEN = 0.06
"""Default of `Hierarchy.uneven` for an L2 with 16 ways a set, fitted to replays at many sizes."""
STUDY = "gcn3_hbm"
"""Name of the caches of the study in arXiv:1910.00134, as far as they are known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hierarchy:
    """The memory system of a device: an L1 in every unit, L2 in slices, DRAM in channels.

    Sizes are in bytes, times in cycles of the device's clock.
    """

    name: str
    title: str
    devices: tuple[str, ...]
    """`device.name` of the machines that have these caches."""
    clock_hertz: float
    units: int
    """Number of SMs or CUs. Each issues one request (of one line) a cycle."""
    in_flight: int
    """Requests that a unit may have in flight."""
    l1_bytes: int
    """L1 size of one unit in bytes; 0 if the device has no L1."""
    l1_ways: int
    l1_cycles: int
    """Latency of an L1 hit."""
    l2_bytes: int
    l2_ways: int
    l2_slices: int
    l2_cycles: int
    """Latency of an L2 hit; a request to DRAM starts after it."""
    l2_port_bytes: int
    """Bytes that one slice transfers in a cycle; a request occupies the slice's pipeline for at least one cycle."""
    l2_misses: int
    """Misses that one slice may have in flight (its miss-status registers)."""
    dram_channels: int
    dram_banks: int
    """Banks of one channel."""
    dram_row_bytes: int
    dram_interleave_bytes: int
    """Consecutive bytes that lie in one channel before the next channel follows."""
    dram_bytes_per_second: float
    """Bandwidth of all channels together."""
    dram_cycles: int
    """Time from a request to its first byte if its row is open."""
    dram_activate_cycles: int
    """Additional time to close one row and open another."""
    dram_turnaround_cycles: int
    """Time between a read and a write on one channel."""
    dram_write_queue: int
    """Writes that a channel collects; a full queue is drained, with the writes of a row grouped."""
    flushes: bool
    """Whether dirty lines of L2 are written to DRAM when a kernel ends, because the host reads memory past L2."""
    hashed: bool = True
    """Whether slices, sets and channels also depend on higher address bits."""
    partitions: int = 1
    """L2 partitions, 1 or 2. Only the reuse tier reads this field and those below; a replay has one partition."""
    far_copies: float = 0.0
    """Share of the lines homed in the other partition that a partition also keeps when its SMs read them."""
    sm_groups: int = 1
    """Number of groups of consecutive units (GPCs of an NVIDIA GPU); consecutive groups share a partition."""
    merged: float = 0.0
    """Share of reads that do not reach L2, among reads of the same data by a group's units at about the same time."""
    pace_spread: float = 0.0
    """Standard deviation of the paces of groups, as a share of a tile's time: persistent programs drift apart."""
    uneven: float = UNEVEN
    """Share of L2's size: the first line is lost if the touched bytes are so much below it, the last so much above."""
    provenance: Mapping[str, str]

    def __post_init__(self) -> None:
        if (message := _fault(self)) is not None:
            raise Refusal(f"{self.name}: {message}")

    @property
    def l1_sets(self) -> int:
        """L1 sets of one unit."""
        return self.l1_bytes // (LINE_BYTES * self.l1_ways)

    @property
    def l2_sets(self) -> int:
        """L2 sets of one slice."""
        return self.l2_bytes // (LINE_BYTES * self.l2_ways * self.l2_slices)

    @property
    def sector_cycles(self) -> float:
        """Cycles for which one sector occupies its channel's bus."""
        return SECTOR_BYTES * self.dram_channels * self.clock_hertz / self.dram_bytes_per_second

    def with_l2(self, num_bytes: int) -> Hierarchy:
        """A copy with another L2 size; Refusal if the size is no whole number of sets."""
        return replace(self, l2_bytes=num_bytes)


_MAY_BE_0 = {"l1_bytes", "l1_cycles", "l2_cycles", "dram_cycles", "dram_activate_cycles", "dram_turnaround_cycles",
             "far_copies", "merged", "pace_spread"}  # fmt: skip
_LEAST = {"uneven": 0.001}
_NOT_NUMBERS = {"name", "title", "devices", "provenance", "flushes", "hashed"}


def _fault(of: Hierarchy) -> str | None:
    """The message that says why these values are impossible, or None if they are possible."""
    for each in fields(of):
        value, least = getattr(of, each.name), 0 if each.name in _MAY_BE_0 else _LEAST.get(each.name, 1)
        if each.name not in _NOT_NUMBERS and not (isfinite(value) and value >= least):
            return f"{each.name} = {value} is too small: {value} < {least}. Accepted: numbers from {least}."
    for name, most in (("partitions", 2), ("far_copies", 1.0), ("merged", 1.0), ("pace_spread", 0.5), ("uneven", 1.0)):
        if (value := getattr(of, name)) > most:
            return f"{name} = {value} is too large: {value} > {most}. Accepted: numbers up to {most}."
    if over := of.sm_groups % of.partitions:
        return (
            f"sm_groups = {of.sm_groups} is no multiple of partitions = {of.partitions}, {over} are left over. "
            f"Accepted: multiples of {of.partitions}."
        )
    parts = (("l1_bytes", LINE_BYTES * of.l1_ways, "line x ways"),
             ("l2_bytes", LINE_BYTES * of.l2_ways * of.l2_slices, "line x ways x slices"),
             ("dram_row_bytes", of.dram_interleave_bytes, "dram_interleave_bytes"),
             ("dram_interleave_bytes", LINE_BYTES, "line"))  # fmt: skip
    for name, part, label in parts:
        if (value := getattr(of, name)) % part or (value == 0 and name not in _MAY_BE_0):
            low = value // part * part
            near = " or ".join(f"{size:,}" for size in (low, low + part) if size)
            return (
                f"{name} = {value:,} is no multiple of {label} = {part:,} bytes, {value % part:,} are left over. "
                f"Accepted: {near}."
            )
    return None


def names() -> tuple[str, ...]:
    """Names of all cache files, sorted."""
    return tuple(sorted(path.stem for path in _folder().glob("*.toml")))


def hierarchy(name: str) -> Hierarchy:
    """The hierarchy named *name*; Refusal lists the names."""
    if name not in names():
        raise Refusal(f"There are no caches {name!r}. Accepted: {', '.join(names())}.")
    return load(_folder() / f"{name}.toml")


def of_machine(machine: Machine) -> Hierarchy:
    """The hierarchy of *machine*'s device; Refusal if no cache file lists the device."""
    known = [hierarchy(name) for name in names()]
    for each in known:
        if machine.device.name in each.devices:
            return each
    devices = ", ".join(device for each in known for device in each.devices)
    raise Refusal(
        f"Machine {machine.name} has the device {machine.device.name}, and 0 of {len(known)} cache descriptions "
        f"name it. Accepted: machines with one of {devices}."
    )


def lost_share(touched_bytes: Any, capacity: float, uneven: float) -> Any:
    """The probability that a line is evicted before it is read again, if *touched_bytes* others are touched meanwhile.

    It is 1/2 where these equal the capacity, and rises from 0 to 1 along a cubic with slope 0 at both ends.
    """
    beyond = np.clip((touched_bytes / capacity - 1.0) / uneven, -1.0, 1.0)
    return 0.5 + beyond * (3.0 - beyond * beyond) / 4.0


@lru_cache(maxsize=64)
def of_device(name: str) -> Hierarchy | None:
    """The hierarchy of the device named *name*, or None if no file lists it; read once per process."""
    return next((each for each in map(hierarchy, names()) if name in each.devices), None)


def load(path: Path) -> Hierarchy:
    """The hierarchy in the TOML file *path*; ValueError names the file and the wrong key."""
    data = toml(path, KIND)
    known = {each.name: str(each.type) for each in fields(Hierarchy)}
    if unknown := sorted(set(data) - set(known)):
        raise ValueError(f"{path.name} has the unknown key {unknown[0]!r}. Accepted: {', '.join(known)}.")
    for key, value in data.items():
        if (accepted := _wrong(value, known[key])) is not None:
            raise ValueError(f"{path.name}: {key} = {value!r} does not fit. Accepted: {accepted}.")
    try:
        return Hierarchy(**{**data, "devices": tuple(data.get("devices", ()))})
    except TypeError as error:
        raise ValueError(f"{path.name}: {error}. Accepted: all of {', '.join(known)}.") from None


def _wrong(value: Any, form: str) -> str | None:
    """A description of the values accepted for a key of type *form*, or None if *value* is one."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    fits = {
        "str": ("a text", isinstance(value, str)),
        "bool": ("true or false", isinstance(value, bool)),
        "int": ("a whole number", is_number and isinstance(value, int)),
        "float": ("a number", is_number),
        "tuple[str, ...]": ("a list of texts", isinstance(value, list) and all(isinstance(v, str) for v in value)),
        "Mapping[str, str]": (
            f"a table of texts that begin with one of {', '.join(PROVENANCES)}",
            isinstance(value, dict) and all(str(v).split(":")[0] in PROVENANCES for v in value.values()),
        ),
    }
    accepted, is_right = fits[form]
    return None if is_right else accepted


def _folder() -> Path:
    return data_directory() / "caches"
