"""A Machine is data: devices, links and costs, each value with its provenance, read from a TOML file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from math import isfinite
from pathlib import Path
from typing import Any

from kernels import files

# The data of a Machine.

PROVENANCES = ("datasheet", "calibrated", "assumed")
WORKS = ("gemm", "gemv", "gather", "gather_power_law", "reduce", "copy", "library_gemm", "library_gemv", "own_gemv",
         "put_registers", "put_tma", "put_copy_engine")  # fmt: skip
"""Kinds of work with a speed curve: tiles of our kernels, whole calls of the library and of ours, puts by mover."""
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
TUNED = "library_tuned_"
"""Prefix of a collective's curve that was measured with the library's fastest setting at each size."""
LIMITED = (8, 16)
"""Limits of the library's channels with which curves of collectives were measured."""


def limited(channels: int) -> str:
    """Prefix of a collective's curve that was measured with *channels* of the library, each of which is a block."""
    return f"library_{channels}_channels_"


CURVES_OF_COLLECTIVES = (*COLLECTIVES, *(f"{TUNED}{name}" for name in COLLECTIVES),
                         *(f"{limited(count)}{name}" for count in LIMITED for name in COLLECTIVES))  # fmt: skip
LIMITS = ("shared_memory_per_block_bytes", "shared_memory_unit_bytes", "registers", "register_unit", "partitions",
          "warp_threads", "threads", "blocks", "reserved_bytes_per_block")  # fmt: skip
"""Names of the resources of one SM that limit its blocks; the last one is 0 where it is left out."""
STEP = ("latency", "own", "own_byte", "own_value_byte", "deep", "busy", "busy_byte", "busy_value_byte", "busy_warps",
        "start", "found")  # fmt: skip
"""Names of the times, in seconds, of a step of a kernel that waits for memory (workbench/simulator/price/latency.py).

Times of a block: *latency* of its loads, divided by the number of steps loaded ahead; *own* work, as a constant, for
each byte of weights or rows, and for each byte of values; *deep* is added with three steps ahead. Times in which its
SM does nothing else: *busy*, as a constant, for each byte of the two kinds, and with 8 warps instead of 4. *start*
counts once per kernel, before the first step; *found* is a step whose rows are in the L2. Absent times are 0."""
NO_SOURCE = "assumed: no source given"
TOPOLOGIES = ("switch", "ring", "fully_connected", "torus")
NETWORK = "network"
BACKENDS = {"cpu": ("emulated", "shared_memory", NETWORK), "triton": ("nvlink", NETWORK)}
"""Backends, each with the fabrics that can link its ranks, the usual one first; a network of GPUs is only simulated."""
LINKS = ("nvlink", "pcie", "infinity_fabric", "memory", NETWORK)
"""Links that join the ranks of one dimension, inside a host or between hosts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One rank's processor."""

    kind: str
    """`gpu` or `cpu`."""
    name: str
    slots: int
    """Tiles computed at the same time: SMs or CUs of a GPU, 1 on a CPU rank (one thread)."""
    matrix_flops_per_second: Mapping[str, float]
    """Dense peak of the whole device by dtype."""
    memory_bytes_per_second: float
    """Bandwidth of a GPU's HBM, or a CPU rank's share of the main memory's bandwidth."""
    memory_bytes: float
    l2_bytes: float
    copy_engines: int
    """DMA engines that move bytes without SMs; 0 where there is none."""
    shared_memory_per_slot_bytes: float
    """Shared memory (LDS) of one SM (CU); 0 on a CPU."""
    architecture: int = 0
    """CUDA's architecture: 80 is sm_80, of compute capability 8.0; 0: not stated, or no GPU of NVIDIA's."""
    resident_blocks: Mapping[str, float] = field(default_factory=dict)
    """Blocks that share an SM where a kernel only waits for memory, by work; 1 for all other work."""
    limits: Mapping[str, float] = field(default_factory=dict)
    """Resources of one SM for resident blocks (kernels/occupancy.py), by name (LIMITS); empty: not given."""
    load_bytes_per_second: float = 0.0
    """Speed at which one SM loads the operands of a matrix tile, mostly from the L2; 0: as fast as it computes."""
    load_latency_seconds: float = 0.0
    """Time from the load of a matrix tile's operands until the first are in shared memory; 0: not measured."""
    shared_bytes_per_second: float = 0.0
    """Speed of one SM's shared memory, both ways, while a kernel of ours multiplies; 0: not measured."""
    cold_latency_ratio: float = 1.0
    """Latency of operands that no cache holds over that of operands in the L2."""
    short_bytes_per_second: float = 0.0
    """Speed at which warps of one SM read tiles with fewer rows than tensor cores read themselves; 0: not measured."""
    results_bytes_per_second: float = 0.0
    """Speed at which one SM writes results of tiles while it does not multiply; 0: a tile costs `tile_seconds`."""
    spill_bytes_per_second: float = 0.0
    """Speed of one SM's L1, both ways, for sums that do not fit into registers; 0: not given, they cost nothing."""
    awaited_memory_share: float = 1.0
    """Share of `memory_bytes_per_second` that a kernel of ours gets where it waits for its loads."""
    apart_memory_share: float = 0.0
    """The same where blocks that load the same weights, which exceed the L2, compute rows of different ranks and begin
    apart, so that memory gives some weights again; 0: as `awaited_memory_share`."""
    loads_in_flight: Mapping[str, float] = field(default_factory=dict)
    """Bytes per second that an SM loads, by the bytes of operands that its blocks have in flight."""
    gemv_step: Mapping[str, float] = field(default_factory=dict)
    """Seconds of a step of our GEMV of one token, by name (STEP); empty: not measured."""
    few_tokens_step: Mapping[str, float] = field(default_factory=dict)
    """Seconds of a step of our GEMV of several tokens, which tensor cores multiply, by name (STEP)."""
    gather_step: Mapping[str, float] = field(default_factory=dict)
    """Seconds of a step of our pooled lookup, which loads rows once, by name (STEP)."""


@dataclass(frozen=True, slots=True)
class Rate:
    """One measured or assumed point of a speed curve: pieces of *size* FLOP or bytes run at *per_second*."""

    work: str
    """One of WORKS."""
    dtype: str
    """A dtype, or `any` for puts, whose speed depends on bytes alone."""
    size: float
    """FLOP (gemm, gemv) or bytes read and written (gather, reduce, copy) of one tile or block; those of a whole call
    for library_gemm, library_gemv and own_gemv; for puts, bytes that leave each rank in a call."""
    per_second: float
    """FLOP/s or bytes/s of the whole device at that size, without the fixed cost of a tile, step or call."""
    width: float = 0.0
    """A second size that matters: rows of a gemm, tokens of a gemv, row bytes of a gather, SMs that put; 0: any."""


@dataclass(frozen=True, slots=True)
class Collective:
    """One measured point of the library's collectives (NCCL, gloo), which are opaque to us."""

    name: str
    """One of CURVES_OF_COLLECTIVES."""
    world: int
    num_bytes: float
    """Bytes that leave each rank at least, without reduction inside the network."""
    seconds: float
    """Time of one call with its launch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Costs of a schedule in addition to its FLOPs and its bytes on the wire."""

    launch_seconds: float
    """Time from the end of one host-launched step to the start of the next one of its pool."""
    step_seconds: float
    """Time per step inside a running kernel (slice bookkeeping); on a CPU rank, the time of Python around one step."""
    tile_seconds: float
    """Time per tile: prologue and epilogue, or the call of a compiled kernel."""
    signal_seconds: float
    """Time from the write of a signal until a waiting peer continues."""
    barrier_seconds: float
    """Time for all ranks to meet: the start handshake or the end of a call."""
    copy_engine_seconds: float
    """Time to launch one copy-engine transfer; 0 where there is no copy engine."""
    library_seconds: float
    """Fixed cost of one collective of the library (NCCL, gloo)."""
    library_share: float
    """Share of the link's bandwidth that a library collective reaches."""
    send_blocks: int
    """SMs that a library or SM-driven collective takes from compute while it runs; 0 on a CPU rank."""
    copy_engine_gap_seconds: float = 0.0
    """Part of `copy_engine_seconds` that a transfer takes right behind another one on its engine; 0: all of it."""
    push_bytes_per_second: float = 0.0
    """Speed of one SM that pushes to peers while others compute; 0: as fast as where no SM computes."""
    exchange_blocks: int = 0
    """SMs that the library's all-to-all takes from compute while it runs; 0: `send_blocks`."""
    cluster_room: float = 1.0
    """Free SMs that a library's collective needs to begin, over its number of blocks, which start in clusters."""
    stream_seconds: float = 0.0
    """Time from a kernel's end to the start of one that waits for it on another stream, beyond that on the same one."""
    computing_beside: float = 1.0
    """Time of tiles while bytes move on other SMs of a GPU or by its copy engines, over their time alone."""
    sending_beside: float = 1.0
    """Time of a collective on a share of the SMs while the others compute, which slows the clock, over that alone."""
    streaming_beside: float = 1.0
    """Time of a library GEMM that waits for memory, and of concurrent transfers, over their time alone."""
    library_tile_seconds: float = 0.0
    """Time per tile of the library's GEMM without its multiplications; 0: unknown, its calls have a curve instead."""
    own_kernel_seconds: float = 0.0
    """Time of a GEMM of ours without its tiles: until its first loads, and until the last results are out."""
    cold_seconds: float = 0.0
    """Time until operands that no cache holds come at the memory's full speed; 0 on a CPU rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension:
    """One level of the network: a rank's neighbours over one kind of link."""

    topology: str
    count: int
    bandwidth_bytes_per_second: float
    """Bandwidth per rank and direction."""
    latency_seconds: float
    """Latency end to end."""
    message_seconds: float = 0.0
    """Gap that one message adds on its link whatever its size (LogGP's g)."""
    link: str = ""
    """One of LINKS; empty where the file does not say."""

    def wire_seconds(self, num_bytes: float, num_messages: int = 1) -> float:
        """Seconds for which one egress direction is busy with *num_bytes* in *num_messages*."""
        return num_bytes / self.bandwidth_bytes_per_second + num_messages * self.message_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Hardware on which trials run or are simulated."""

    name: str
    title: str
    backend: str
    """`cpu` or `triton`."""
    device: Device
    costs: Costs
    dimensions: tuple[Dimension, ...]
    rates: tuple[Rate, ...] = ()
    collectives: tuple[Collective, ...] = ()
    """Measured collectives; they replace library_seconds and library_share for their world and collective."""
    provenance: Mapping[str, str]
    """Dotted key (or its prefix) -> "datasheet|calibrated|assumed: where from"."""
    calibrated: str | None = None
    """When and where this file was fitted to a running machine (ISO time, host); None: never."""
    spread: tuple[float, float] | None = None
    """Lowest and highest ratio of measured to estimated time in its last check; None: never checked."""
    streams_spread: tuple[float, float] | None = None
    """The same two ratios for schedules whose streams share the SMs."""
    fitted_to: tuple[str, ...] = ()
    """Problems whose measured times its values were fitted to, so that their errors say little about others."""
    digest: str = ""
    """Hash of the file's content, stored with every estimate."""

    @property
    def max_world(self) -> int:
        """Number of ranks that all dimensions together connect."""
        count = 1
        for dimension in self.dimensions:
            count *= dimension.count
        return count

    @property
    def ranks_per_host(self) -> int:
        """Number of ranks that reach each other without a network."""
        count = 1
        for dimension in self.dimensions:
            if dimension.link == NETWORK:
                break
            count *= dimension.count
        return count

    @property
    def has_network(self) -> bool:
        """Whether some of its ranks are on other hosts, as far as its file says."""
        return any(dimension.link in ("", NETWORK) for dimension in self.dimensions)

    def provenance_of(self, key: str) -> str:
        """The provenance of dotted *key*: its own or that of the longest prefix that has one."""
        parts = key.split(".")
        for end in range(len(parts), 0, -1):
            if (source := self.provenance.get(".".join(parts[:end]))) is not None:
                return source
        return NO_SOURCE


# The TOML file of a Machine: reading, checking, writing.

KIND = files.TextKind("machine file", "a machine", "a TOML file")
RESIDENT_BLOCKS: Mapping[str, float] = {"gemv": 6, "gather": 28}
"""Default `resident_blocks` of a GPU: as our GEMV and our pooled lookup compile for H200s."""
ENDLESS = "assumed: not measured; operands are taken to come as fast as tiles are computed"
WARM = "assumed: not measured; memory is taken to give its full speed at once"
UNMEASURED = {
    "costs.copy_engine_gap_seconds": "assumed: not measured; all of a launch",
    "device.architecture": "assumed: not stated; where it is a GPU, it is taken to have a bulk copy engine",
    "device.load_latency_seconds": "assumed: not measured; operands are taken to come as fast as tiles are computed",
    "device.shared_bytes_per_second": "assumed: not measured; shared memory is taken to keep up with tensor cores",
    "device.cold_latency_ratio": "assumed: not measured; operands of memory come as soon as those of the L2",
    "device.short_bytes_per_second": "assumed: not measured; tiles of few rows have the curve of tiles",
    "device.results_bytes_per_second": "assumed: not measured; every tile costs the same in addition to its work",
    "device.spill_bytes_per_second": "assumed: not stated; sums are taken to find registers",
    "device.awaited_memory_share": "assumed: not measured; loads get all of the memory's speed",
    "device.apart_memory_share": "assumed: not measured; memory gives weights once",
    "costs.push_bytes_per_second": "assumed: not measured; SMs push as fast as where nobody computes",
    "costs.exchange_blocks": "assumed: not measured; as many as of other collectives",
    "costs.cluster_room": "assumed: not measured; blocks begin one by one",
    "costs.stream_seconds": "assumed: not measured; a launch",
    "costs.computing_beside": "assumed: not measured; streams on SMs of their own take nothing from each other",
    "costs.sending_beside": "assumed: not measured; streams on SMs of their own take nothing from each other",
    "costs.streaming_beside": "assumed: not measured; streams on SMs of their own take nothing from each other",
    "costs.own_kernel_seconds": "assumed: not measured; kernels cost their launch alone",
    "costs.library_tile_seconds": "assumed: not measured; calls of the library have speeds of their own",
}
"""Provenance of values that a file leaves out, by key: schedules on several streams and library calls use them."""
UNSTATED = "assumed: not stated; as our GEMV and pooled lookup compile for H200s"


def load(path: Path) -> Machine:
    """The Machine in TOML file *path*; ValueError names the file and the key that is wrong."""
    text = files.text(path, KIND)
    machine = _with_assumed(_machine(files.toml_of(text, path, KIND), path.name))
    return replace(machine, digest=hashlib.sha256(text.encode()).hexdigest()[:12])


def _with_assumed(machine: Machine) -> Machine:
    """*machine* with defaults and their provenance in place of values that files of older versions leave out."""
    device, sources = machine.device, {}
    if device.kind == "gpu" and not device.resident_blocks:
        device = replace(device, resident_blocks=RESIDENT_BLOCKS)
        sources["device.resident_blocks"] = UNSTATED
    unmeasured = {"device.load_bytes_per_second": ENDLESS, "costs.cold_seconds": WARM, **UNMEASURED}
    sources |= {key: how for key, how in unmeasured.items() if machine.provenance_of(key) == NO_SOURCE}
    return replace(machine, device=device, provenance={**machine.provenance, **sources})


_KEYS = {"name", "title", "backend", "device", "costs", "dimension", "rate", "collective", "provenance", "calibrated",
         "spread", "streams_spread", "fitted_to"}  # fmt: skip

_FORMS = {
    "str": ("a text", lambda value: isinstance(value, str)),
    "int": ("a whole number from 0", lambda value: type(value) is int and value >= 0),
    "float": ("a finite number from 0", lambda value: _is_number(value) and value >= 0),
    "Mapping[str, float]": (
        "a table of finite numbers above 0",
        lambda value: isinstance(value, dict) and value and all(_is_number(v) and v > 0 for v in value.values()),
    ),
}
"""The rule of each type of field as text, and a function that checks a value."""

_ABOVE_0 = {"slots", "count", "memory_bytes", "memory_bytes_per_second", "bandwidth_bytes_per_second", "library_share",
            "size", "per_second", "world", "seconds", "num_bytes"}  # fmt: skip
"""Keys whose values must be above 0, since something is divided by them."""

_CHOICES = {"backend": tuple(BACKENDS), "kind": ("cpu", "gpu"), "topology": TOPOLOGIES, "work": WORKS,
            "link": LINKS}  # fmt: skip


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def _machine(data: dict[str, Any], where: str) -> Machine:
    _check_known(data, _KEYS, where)
    _check_top(data, where)
    try:
        return Machine(
            name=data["name"],
            title=data["title"],
            backend=data["backend"],
            device=_fields(Device, data["device"], f"{where} [device]"),
            costs=_fields(Costs, data["costs"], f"{where} [costs]"),
            dimensions=dimensions(data["dimension"], where),
            rates=tuple(_fields(Rate, entry, f"{where} [[rate]]") for entry in data.get("rate", ())),
            collectives=tuple(_collective(entry, where) for entry in data.get("collective", ())),
            provenance=data["provenance"],
            calibrated=data.get("calibrated"),
            spread=tuple(data["spread"]) if "spread" in data else None,
            streams_spread=tuple(data["streams_spread"]) if "streams_spread" in data else None,
            fitted_to=tuple(data.get("fitted_to", ())),
        )
    except KeyError as error:
        raise ValueError(f"{where} has no {error.args[0]!r}, and every machine needs it.") from None


def dimensions(entries: list[dict[str, Any]], where: str) -> tuple[Dimension, ...]:
    """The [[dimension]] tables of a file, checked; *where* names the file in messages."""
    return tuple(_fields(Dimension, entry, f"{where} [[dimension]]") for entry in entries)


def _fields(kind: type, entry: dict[str, Any], where: str) -> Any:
    _check_known(entry, {each.name for each in fields(kind)}, where)
    for each in fields(kind):
        if each.name in entry:
            _check_value(each.name, entry[each.name], str(each.type), where)
    needed = [each.name for each in fields(kind) if each.default is MISSING and each.default_factory is MISSING]
    if absent := [name for name in needed if name not in entry]:
        raise ValueError(f"{where} has no {absent[0]!r}. It needs {', '.join(needed)}.")
    return kind(**entry)


def _collective(entry: dict[str, Any], where: str) -> Collective:
    point: Collective = _fields(Collective, entry, f"{where} [[collective]]")
    if point.name not in CURVES_OF_COLLECTIVES:
        raise ValueError(
            f"{where} [[collective]]: name = {point.name!r} is unknown. Accepted: {', '.join(CURVES_OF_COLLECTIVES)}."
        )
    return point


def _check_known(entry: object, known: set[str], where: str) -> None:
    if not isinstance(entry, dict):
        raise ValueError(f"{where} holds {entry!r}, which is not a table. Accepted: {', '.join(sorted(known))} = ....")
    if unknown := sorted(set(entry) - known):
        raise ValueError(f"{where} has the unknown key {unknown[0]!r}. Accepted: {', '.join(sorted(known))}.")


def _check_value(name: str, value: object, form: str, where: str) -> None:
    rule, holds = _FORMS[form]
    if name in _ABOVE_0:
        rule = rule.replace("from 0", "above 0")
    if not holds(value) or (name in _ABOVE_0 and value == 0):
        raise ValueError(f"{where}: {name} = {value!r} does not fit. Accepted: {rule}.")
    if name == "limits":
        _check_limits(value, where)
    if name.endswith("_step"):
        _check_known(value, set(STEP), f"{where} {name}")
    if name in _CHOICES and value not in _CHOICES[name]:
        raise ValueError(f"{where}: {name} = {value!r} is unknown. Accepted: {', '.join(_CHOICES[name])}.")


def _check_limits(value: Any, where: str) -> None:
    _check_known(value, set(LIMITS), f"{where} limits")
    if absent := [key for key in LIMITS[:-1] if key not in value]:
        raise ValueError(f"{where} limits has no {absent[0]!r}. It needs {', '.join(LIMITS[:-1])}.")
    if broken := [key for key in value if value[key] != int(value[key])]:
        raise ValueError(f"{where} limits: {broken[0]} = {value[broken[0]]} does not fit. Accepted: a whole number.")


def _check_top(data: dict[str, Any], where: str) -> None:
    for name in ("name", "title", "backend", "calibrated"):
        if name in data:
            _check_value(name, data[name], "str", where)
    for name in ("dimension", "rate", "collective"):
        if not isinstance(data.get(name, []), list):
            raise ValueError(f"{where}: [{name}] is one table, but a machine may have several. Accepted: [[{name}]].")
    for name in ("spread", "streams_spread"):
        ends = data.get(name, [1.0, 1.0])
        if not (isinstance(ends, list) and len(ends) == 2 and all(map(_is_number, ends)) and 0 < ends[0] <= ends[1]):
            raise ValueError(
                f"{where}: {name} = {ends!r} does not fit. Accepted: two numbers above 0, [lowest, highest]."
            )
    problems = data.get("fitted_to", [])
    if not (isinstance(problems, list) and all(isinstance(each, str) for each in problems)):
        raise ValueError(f"{where}: fitted_to = {problems!r} does not fit. Accepted: a list of texts.")
    provenance = data.get("provenance", {})
    if not isinstance(provenance, dict):
        raise ValueError(f"{where}: provenance = {provenance!r} does not fit. Accepted: a table from key to source.")
    for key, source in provenance.items():
        if str(source).split(":")[0] not in PROVENANCES or not isinstance(source, str):
            raise ValueError(
                f"{where}: provenance of {key} is {source!r}. Accepted: a text that begins with one of "
                f"{', '.join(PROVENANCES)}."
            )


def toml(machine: Machine) -> str:
    """*machine* as the text of a file, without its digest, which is a hash of that text."""
    return "\n".join(_lines(machine)) + "\n"


def _lines(machine: Machine) -> Iterator[str]:
    for key in ("name", "title", "backend", "calibrated", "spread", "streams_spread", "fitted_to"):
        value = getattr(machine, key)
        if value not in (None, ()):
            yield f"{key} = {_value(value)}"
    device = asdict(machine.device)
    of_device = {f"device.{key}": table for key, table in device.items() if isinstance(table, dict) and table}
    sources = {json.dumps(key): source for key, source in machine.provenance.items()}
    plain = {key: value for key, value in device.items() if not isinstance(value, dict)}
    tables = {"device": plain, **of_device, "costs": asdict(machine.costs)}
    for title, table in (*tables.items(), ("provenance", sources)):
        yield from ("", f"[{title}]")
        yield from _table(table)
    lists: dict[str, tuple[Any, ...]] = {
        "dimension": machine.dimensions, "rate": machine.rates, "collective": machine.collectives,
    }  # fmt: skip
    for title, entries in lists.items():
        for entry in entries:
            yield from ("", f"[[{title}]]")
            yield from _table(asdict(entry))


def _table(entries: dict[str, Any]) -> Iterator[str]:
    return (f"{key} = {_value(value)}" for key, value in entries.items() if value != "")


def _value(value: Any) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, tuple):
        return f"[{', '.join(_value(entry) for entry in value)}]"
    return repr(value)
