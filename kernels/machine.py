"""A Machine is data: devices, links and costs, each value with its provenance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

PROVENANCES = ("datasheet", "calibrated", "assumed")
WORKS = ("gemm", "gemv", "gather", "gather_power_law", "reduce", "copy", "library_gemm", "library_gemv", "own_gemv",
         "put_registers", "put_tma", "put_copy_engine")  # fmt: skip
"""What a speed curve is of: tiles of our kernels; whole calls of the library (cuBLAS) and of our own; puts, by way."""
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
TUNED = "library_tuned_"
"""Begins the name of a collective's curve that is of the library's fastest setting at each size."""
LIMITED = (8, 16)
"""Channels that the library has at most, of collectives that have a curve for it."""


def limited(channels: int) -> str:
    """Begins the name of a collective's curve where the library has *channels*, each of which is a block."""
    return f"library_{channels}_channels_"


CURVES_OF_COLLECTIVES = (*COLLECTIVES, *(f"{TUNED}{name}" for name in COLLECTIVES),
                         *(f"{limited(count)}{name}" for count in LIMITED for name in COLLECTIVES))  # fmt: skip
LIMITS = ("shared_memory_per_block_bytes", "shared_memory_unit_bytes", "registers", "register_unit", "partitions",
          "warp_threads", "threads", "blocks", "reserved_bytes_per_block")  # fmt: skip
"""Of one SM; the last one may be left out, and is 0 then."""
STEP = ("latency", "own", "own_byte", "own_value_byte", "deep", "busy", "busy_byte", "busy_value_byte", "busy_warps",
        "start", "found")  # fmt: skip
"""Seconds of a step of a kernel that waits for memory (workbench/simulator/price/waiting.py); absent ones are 0.

Of a block: *latency* of what it asks for, shared by the steps that are ahead; *own* work, for each byte that it loads
and each byte of values, too; *deep*: beside, with three steps ahead. Of its SM: *busy*, for each byte of both, and with
8 warps instead of 4. *start*: once a kernel, until the first step. *found*: a step whose rows the L2 has."""
NO_SOURCE = "assumed: no source given"
TOPOLOGIES = ("switch", "ring", "fully_connected", "torus")
NETWORK = "network"
BACKENDS = {"cpu": ("emulated", "shared_memory", NETWORK), "triton": ("nvlink", NETWORK)}
"""Who runs plans, and what can link the ranks of each, the usual link first; of GPUs, a network is simulated only."""
LINKS = ("nvlink", "pcie", "infinity_fabric", "memory", NETWORK)
"""What joins the ranks of one dimension: inside a host, or between hosts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One rank's processor."""

    kind: str
    """`gpu` or `cpu`."""
    name: str
    slots: int
    """Tiles computed at the same time: SMs or CUs of a GPU, 1 on a CPU rank (one thread)."""
    matrix_flops_per_second: Mapping[str, float]
    """Dense peak by dtype, whole device."""
    memory_bytes_per_second: float
    """HBM of a GPU, main memory share of a CPU rank."""
    memory_bytes: float
    l2_bytes: float
    copy_engines: int
    """DMA engines that move bytes without SMs; 0 where there is none."""
    shared_memory_per_slot_bytes: float
    """Shared memory (LDS) of one SM (CU); 0 on a CPU."""
    resident_blocks: Mapping[str, float] = field(default_factory=dict)
    """By work, blocks that share an SM where a kernel waits for memory alone; 1 of what is not named."""
    limits: Mapping[str, float] = field(default_factory=dict)
    """By name (LIMITS), what one SM has for resident blocks (kernels/occupancy.py); empty: not stated."""
    load_bytes_per_second: float = 0.0
    """At which one SM loads the operands of a matrix tile, for the most part from the L2; 0: as fast as it computes."""
    load_latency_seconds: float = 0.0
    """From asking for operands of a matrix tile until the first of them are in shared memory; 0: not measured."""
    shared_bytes_per_second: float = 0.0
    """To and from the shared memory of one SM, while a kernel of ours multiplies; 0: not measured."""
    cold_latency_ratio: float = 1.0
    """How much longer operands take that no cache holds than those that the L2 has."""
    short_bytes_per_second: float = 0.0
    """Operands to one SM whose tiles have fewer rows than tensor cores multiply at a time; 0: not measured."""
    results_bytes_per_second: float = 0.0
    """From one SM, results of tiles while it multiplies nothing else; 0: not measured, a tile costs `tile_seconds`."""
    spill_bytes_per_second: float = 0.0
    """To and from the L1 of one SM, where sums go that find no registers; 0: not stated, they cost nothing more."""
    awaited_memory_share: float = 1.0
    """Of `memory_bytes_per_second`, what a kernel of ours gets that waits for its loads."""
    loads_in_flight: Mapping[str, float] = field(default_factory=dict)
    """By bytes of operands that an SM's blocks have asked for and not yet got: bytes per second that it loads then."""
    gemv_step: Mapping[str, float] = field(default_factory=dict)
    """By name (STEP), seconds of a step of our GEMV of one token; empty: not measured."""
    few_tokens_step: Mapping[str, float] = field(default_factory=dict)
    """The same of several tokens, which tensor cores multiply."""
    gather_step: Mapping[str, float] = field(default_factory=dict)
    """The same of our pooled lookup, a step of which brings the rows of one load."""


@dataclass(frozen=True, slots=True)
class Rate:
    """One measured or assumed point of a speed curve: pieces of *size* FLOP or bytes run at *per_second*."""

    work: str
    """One of WORKS."""
    dtype: str
    """`any` where bytes are bytes, of puts."""
    size: float
    """FLOP (gemm, gemv) or bytes read and written (gather, reduce, copy) of one tile or block; of a whole call of
    library_gemm, library_gemv and own_gemv; bytes that leave each rank in a call, of puts."""
    per_second: float
    """FLOP/s or bytes/s of the whole device at that size, the fixed cost of a tile, step or call not counted."""
    width: float = 0.0
    """What else speed depends on: rows of a gemm, tokens of a gemv, row bytes of a gather, SMs that put; 0: any."""


@dataclass(frozen=True, slots=True)
class Collective:
    """One measured point of the library's collectives (NCCL, gloo), which are opaque to us."""

    name: str
    """One of CURVES_OF_COLLECTIVES."""
    world: int
    num_bytes: float
    """Bytes that leave each rank at least, without reduction inside the network."""
    seconds: float
    """Of one call, its launch counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What a schedule pays beside FLOPs and bytes on the wire."""

    launch_seconds: float
    """From the end of one host-launched step to the start of the next of its pool."""
    step_seconds: float
    """Per step inside a running kernel (slice bookkeeping); on a CPU rank: Python around one step."""
    tile_seconds: float
    """Per tile: prologue and epilogue, or the call of a compiled kernel."""
    signal_seconds: float
    """From a signal's write to a waiting peer's going on."""
    barrier_seconds: float
    """All ranks meet: start handshake or end of a call."""
    copy_engine_seconds: float
    """To launch one copy-engine transfer; 0 where there is none."""
    library_seconds: float
    """Fixed cost of one collective of the library (NCCL, gloo)."""
    library_share: float
    """Share of the link's bandwidth that a library collective reaches."""
    send_blocks: int
    """SMs that a library or SM-driven collective takes from compute while it runs; 0 on a CPU rank."""
    copy_engine_gap_seconds: float = 0.0
    """Of `copy_engine_seconds`, what a transfer takes right behind another one on its engine; 0: all of it."""
    push_bytes_per_second: float = 0.0
    """Of one SM that pushes to peers while others compute; 0: as fast as where nobody computes."""
    exchange_blocks: int = 0
    """SMs that the library's all-to-all takes from compute while it runs; 0: `send_blocks`."""
    cluster_room: float = 1.0
    """Times as many SMs as a library's collective has blocks must be free for it to begin: they come in clusters."""
    stream_seconds: float = 0.0
    """From a kernel's end to the start of one on another stream that waits for it, beyond that of one on its own."""
    computing_beside: float = 1.0
    """Times as long as alone that tiles take while bytes move on other SMs of a GPU or by its copy engines."""
    sending_beside: float = 1.0
    """The same of collectives on a share of the SMs while the others compute, which slows the clock."""
    streaming_beside: float = 1.0
    """The same of a GEMM of the library that waits for memory, and of what moves beside it."""
    library_tile_seconds: float = 0.0
    """Per tile of the library's GEMM, beside multiplications; 0: not known, its calls have speeds of their own."""
    own_kernel_seconds: float = 0.0
    """Of a GEMM of ours beside its tiles: until operands are asked for, and until the last results are out."""
    cold_seconds: float = 0.0
    """Until operands that no cache holds come at the memory's full speed; 0 on a CPU rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension:
    """One level of the network: a rank's neighbours over one kind of link."""

    topology: str
    count: int
    bandwidth_bytes_per_second: float
    """Per rank and direction."""
    latency_seconds: float
    """End to end."""
    message_seconds: float = 0.0
    """Gap that one message adds on its link whatever its size (LogGP's g)."""
    link: str = ""
    """One of LINKS; empty where nobody said."""

    def wire_seconds(self, num_bytes: float, num_messages: int = 1) -> float:
        """Time that one egress direction is busy with *num_bytes* in *num_messages*."""
        return num_bytes / self.bandwidth_bytes_per_second + num_messages * self.message_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Where trials run or are simulated."""

    name: str
    title: str
    backend: str
    """`cpu` or `triton`."""
    device: Device
    costs: Costs
    dimensions: tuple[Dimension, ...]
    rates: tuple[Rate, ...] = ()
    collectives: tuple[Collective, ...] = ()
    """Where there are some of a world and collective, they are taken instead of library_seconds and library_share."""
    provenance: Mapping[str, str]
    """Dotted key (or its prefix) -> "datasheet|calibrated|assumed: where from"."""
    calibrated: str | None = None
    """When and where this file was fitted to a running machine (ISO time, host); None: never."""
    spread: tuple[float, float] | None = None
    """Measured over estimated time of the schedules it was checked with: lowest and highest; None: never checked."""
    streams_spread: tuple[float, float] | None = None
    """The same of schedules whose streams share the SMs."""
    fitted_to: tuple[str, ...] = ()
    """The problems whose measured times its values were fitted to; an error of one of them says little."""
    digest: str = ""
    """Hash of the file's content, kept beside every estimate."""

    @property
    def max_world(self) -> int:
        """Ranks the fabric connects."""
        count = 1
        for dimension in self.dimensions:
            count *= dimension.count
        return count

    @property
    def ranks_per_host(self) -> int:
        """Ranks that reach each other without a network."""
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
