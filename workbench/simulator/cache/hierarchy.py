"""A Hierarchy is what a trace is replayed on: the caches and the DRAM of one device, from a TOML file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from math import isfinite
from pathlib import Path
from typing import Any

from kernels import files
from kernels.machine import PROVENANCES, Machine
from kernels.schedule import Refusal
from workbench.resources import data_directory
from workbench.simulator.cache.trace import LINE_BYTES, SECTOR_BYTES

KIND = files.TextKind("cache file", "a cache description", "a TOML file")
UNEVEN = 0.06
"""Of the size of an L2 whose sets have 16 ways, chosen to replays at many sizes."""
STUDY = "gcn3_hbm"
"""The caches of the study of arXiv:1910.00134, as far as we can tell them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hierarchy:
    """L1 of every unit, L2 in slices, DRAM in channels. Bytes and cycles of the device's clock."""

    name: str
    title: str
    devices: tuple[str, ...]
    """`device.name` of the machines that have these caches."""
    clock_hertz: float
    units: int
    """SMs or CUs. Each issues one request (of one line) a cycle."""
    in_flight: int
    """Requests that a unit may wait for at a time."""
    l1_bytes: int
    """Of one unit; 0: there is none."""
    l1_ways: int
    l1_cycles: int
    """From a request to its bytes, where L1 has them."""
    l2_bytes: int
    l2_ways: int
    l2_slices: int
    l2_cycles: int
    """From a request to its bytes, where L2 has them; the way to DRAM begins after it."""
    l2_port_bytes: int
    """Bytes that one slice takes or gives in a cycle; a request holds the slice's pipeline for one cycle at least."""
    l2_misses: int
    """Lines of one slice that may wait for DRAM at a time (its miss-status registers)."""
    dram_channels: int
    dram_banks: int
    """Of one channel."""
    dram_row_bytes: int
    dram_interleave_bytes: int
    """Neighbouring bytes that one channel holds before the next one follows."""
    dram_bytes_per_second: float
    """Of all channels together."""
    dram_cycles: int
    """From a request to its first byte where its row is open."""
    dram_activate_cycles: int
    """To close one row and open another, on top of that."""
    dram_turnaround_cycles: int
    """Between a read and a write on one channel."""
    dram_write_queue: int
    """Writes that a channel collects; a full queue is written, those of one row together."""
    flushes: bool
    """Whether dirty lines of L2 are written to DRAM when a kernel ends: the host reads memory without asking L2."""
    hashed: bool = True
    """Whether higher address bits decide slices, sets and channels, too."""
    partitions: int = 1
    """Of L2: 1 or 2. This and what follows is read by the reuse tier; accesses are replayed on one partition."""
    far_copies: float = 0.0
    """Of lines at home in the other partition, the share that a partition keeps, too, when its SMs read them."""
    sm_groups: int = 1
    """Units that follow each other are of one group (an NVIDIA GPU's GPC), groups that do of one partition."""
    merged: float = 0.0
    """Of what units of a group read at about the same time as another one of it, the share that does not reach L2."""
    pace_spread: float = 0.0
    """Standard deviation of the paces of groups: persistent programs drift apart by so much of each tile's time."""
    uneven: float = UNEVEN
    """Of L2's size: the first line is lost when so much less was touched than fits, the last when so much more was."""
    provenance: Mapping[str, str]

    def __post_init__(self) -> None:
        if (sentence := _fault(self)) is not None:
            raise Refusal(f"{self.name}: {sentence}")

    @property
    def l1_sets(self) -> int:
        """Of one unit."""
        return self.l1_bytes // (LINE_BYTES * self.l1_ways)

    @property
    def l2_sets(self) -> int:
        """Of one slice."""
        return self.l2_bytes // (LINE_BYTES * self.l2_ways * self.l2_slices)

    @property
    def sector_cycles(self) -> float:
        """How long one sector holds its channel's bus."""
        return SECTOR_BYTES * self.dram_channels * self.clock_hertz / self.dram_bytes_per_second

    def with_l2(self, num_bytes: int) -> Hierarchy:
        """The same with another size of L2; Refusal where its sets would not be whole."""
        return replace(self, l2_bytes=num_bytes)


_MAY_BE_0 = {"l1_bytes", "l1_cycles", "l2_cycles", "dram_cycles", "dram_activate_cycles", "dram_turnaround_cycles",
             "far_copies", "merged", "pace_spread"}  # fmt: skip
_LEAST = {"uneven": 0.001}
_WORDS = {"name", "title", "devices", "provenance", "flushes", "hashed"}


def _fault(of: Hierarchy) -> str | None:
    """Why there are no such caches, or None."""
    for each in fields(of):
        value, least = getattr(of, each.name), 0 if each.name in _MAY_BE_0 else _LEAST.get(each.name, 1)
        if each.name not in _WORDS and not (isfinite(value) and value >= least):
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
    for name, part, words in parts:
        if (value := getattr(of, name)) % part or (value == 0 and name not in _MAY_BE_0):
            low = value // part * part
            near = " or ".join(f"{size:,}" for size in (low, low + part) if size)
            return (
                f"{name} = {value:,} is no multiple of {words} = {part:,} bytes, {value % part:,} are left over. "
                f"Accepted: {near}."
            )
    return None


def names() -> tuple[str, ...]:
    """Names of all cache files."""
    return tuple(sorted(path.stem for path in _folder().glob("*.toml")))


def hierarchy(name: str) -> Hierarchy:
    """The caches called *name*; Refusal lists the names."""
    if name not in names():
        raise Refusal(f"There are no caches {name!r}. Accepted: {', '.join(names())}.")
    return load(_folder() / f"{name}.toml")


def of_machine(machine: Machine) -> Hierarchy:
    """The caches of *machine*'s device; Refusal where no cache file names it."""
    known = [hierarchy(name) for name in names()]
    for each in known:
        if machine.device.name in each.devices:
            return each
    devices = ", ".join(device for each in known for device in each.devices)
    raise Refusal(
        f"Machine {machine.name} has the device {machine.device.name}, and 0 of {len(known)} cache descriptions "
        f"name it. Accepted: machines with one of {devices}."
    )


@lru_cache(maxsize=64)
def of_device(name: str) -> Hierarchy | None:
    """The caches of the device called *name*, None where no file names it; read once in a process."""
    return next((each for each in map(hierarchy, names()) if name in each.devices), None)


def load(path: Path) -> Hierarchy:
    """The caches in TOML file *path*; ValueError names the file and the key that is wrong."""
    data = files.toml(path, KIND)
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
    """What would be accepted for a key of type *form*, or None where *value* is."""
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
