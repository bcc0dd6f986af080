"""Which axes the kernels of each scheme read: the one table by which axes are offered, left out, and refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernels.operators import OPERATORS
from kernels.operators.base import Flow
from kernels.problem import Problem
from kernels.schedule import OMITTED_DEFAULTS, Axis, Schedule, Tile, Value, tile

# Cache hints of loads and stores, and how Triton spells them.

LOAD, STORE = "load_hint", "store_hint"
"""Axes with the hints for loads (of rows of tables) and stores (of sums of rows, and of tiles that threads store)."""
NO_HINT = "normal"
"""The value without a hint, which schedules omit."""
EVICTION: Mapping[str, str] = {NO_HINT: "", "evict_first": "evict_first", "evict_last": "evict_last"}
MODIFIER: Mapping[str, str] = {NO_HINT: "", "wb": ".wb", "cg": ".cg", "cs": ".cs", "wt": ".wt"}


def eviction(schedule: Schedule) -> str:
    """The eviction policy of a `tl.load`."""
    return EVICTION[str(schedule.get(LOAD, NO_HINT))]


def modifier(schedule: Schedule) -> str:
    """The cache modifier of a `tl.store`."""
    return MODIFIER[str(schedule.get(STORE, NO_HINT))]


def hint_axes() -> tuple[Axis, Axis]:
    """The axes of the load hint and of the store hint, with every value that Triton takes."""
    return (
        Axis(LOAD, tuple(EVICTION), NO_HINT, "Which lines the cache gives up first: those of this kernel's operands, "
             "or others."),
        Axis(STORE, tuple(MODIFIER), NO_HINT, "How results are stored: back from L2 (wb, cg), streaming (cs), or "
             "through (wt)."),
    )  # fmt: skip


# Packets carry their signal: those of a GPU's GEMV, in one shot or two, and of a GEMM whose sums are few bytes.

SHOTS = "shots"
"""The axis with the number of transfers of a value until all ranks have the sum."""
PACKET_BYTES, WORD_BYTES = 8, 4
"""Bytes of a packet and of its half: a word, and the epoch of its call. They are one store, so that the epoch arrives
with the word: a float32, or two values of 16 bits."""
ONE_SHOT_VALUES = 64 * 1024
"""Most values of an output for which one shot is the default: every rank sends all partial sums to all ranks.

At world 4 one shot sends 24 bytes a value and two shots 12. For more values than these, two shots are faster although
their second transfer takes about 1.5 us.
"""


PACKETS = "packets"
"""The value of the axis `store` with which a GEMM's sums leave in packets."""
PACKETS_MOST = 256 * 1024
"""Most bytes of values that come in from all peers in one shot for packets of a GEMM. Packets are twice as many bytes:
by a sum 256 KB more take 0.6 us at 450 GB/s. Without a link they saved up to 3.8 us of four and eight ranks, and of two
0.9 at most, and cost 0.4 at most (h200_loop_back_packets.jsonl)."""
ADDERS = 128
"""Blocks of packets that a rank takes, at most, unless each is larger than a tile: about one for each SM."""
PACKETS_EACH = 2
"""Packets of a rank that a thread takes at once, at least: a load of 16 bytes."""


def sends_packets(problem: Problem, schedule: Schedule) -> bool:
    """Whether *schedule* sends packets, as one kernel of a GPU that computes a GEMV does. CPU ranks copy tiles."""
    if schedule.scheme != "fused":
        return False
    by_gemv = OPERATORS[problem.operator].work == "gemv" and "num_warps" in dict(schedule.axes)
    return by_gemv or schedule.get("store") == PACKETS


def value_bytes(problem: Problem, schedule: Schedule) -> int:
    """Bytes on the wire for each value that is sent."""
    return packed_bytes(problem) if sends_packets(problem, schedule) else problem.itemsize


def packed_bytes(problem: Problem) -> int:
    """Bytes of each value in packets. A GEMV's are float32, and a GEMM's are rounded before they leave."""
    rounded = OPERATORS[problem.operator].work == "gemm"
    return PACKET_BYTES * problem.itemsize // WORD_BYTES if rounded else PACKET_BYTES


def may_send_packets(problem: Problem) -> bool:
    """Whether sums of *problem* can leave in packets if they are few: those of a GEMM whose tiles span ranks."""
    operator = OPERATORS[problem.operator]
    return may_span(problem) and operator.reduces and operator.flow is not Flow.RECEIVE


def incoming_bytes(problem: Problem) -> Any:
    """Bytes of the parts of sums that come in from all peers where tiles span ranks; of an all-reduce in two shots,
    as many sums then do. *problem*: one, or one with columns of sizes."""
    rows, columns = landed(problem)
    return rows * columns * problem.itemsize // problem.world * (problem.world - 1)


def few_enough(problem: Problem) -> bool:
    """Whether sums of *problem* are few enough for packets."""
    return may_send_packets(problem) and bool(are_few(problem))


def are_few(problem: Problem) -> Any:
    """Whether what comes in is at most PACKETS_MOST; *problem*: one, or one with columns of sizes."""
    return incoming_bytes(problem) <= PACKETS_MOST


def packets_of(m: Any, n: Any, itemsize: int) -> Any:
    """Packets of a tile of *m* x *n* values, numbers or columns. Each thread needs one."""
    return m * n * itemsize // WORD_BYTES


def packet_rows(problem: Problem, size: Tile, warps: int, rows: int) -> int:
    """Rows of a block of packets that a program takes at once, of *rows* rows of results cut as by tiles of *size*.

    A power of two. So many that each thread has PACKETS_EACH packets of a rank, and that there are ADDERS blocks or
    fewer; but no more rows than a tile has.
    """
    columns = OPERATORS[problem.operator].extent(problem).columns
    across, words = -(-columns // size.n), max(1, size.n * problem.itemsize // WORD_BYTES)
    least = max(-(-PACKETS_EACH * 32 * warps // words), -(-rows * across // ADDERS), 1)
    return min(size.m, 1 << (least - 1).bit_length())


def shots(problem: Problem, schedule: Schedule) -> int:
    """The shots of *schedule*, or `omitted_shots` where it has no such axis.

    1: partial sums go to all ranks, each of which sums alone. 2: they go to the owner of their rows, which sends the
    sums to all.
    """
    return int(schedule.get(SHOTS) or omitted_shots(problem))


def omitted_shots(problem: Problem) -> int:
    """The value of `shots` that schedules of *problem* omit, since some trials were stored before the axis existed.

    Stored keys depend on it, so it may not change, whatever the default becomes.
    """
    extent = OPERATORS[problem.operator].extent(problem)
    return shots_omitted_for(extent.rows * extent.columns)


def shots_omitted_for(values: Any) -> Any:
    """`omitted_shots` for an output with so many *values*, a number or a column."""
    return 1 + (values > ONE_SHOT_VALUES)


# The tables of axes.

TILE_ORDER = "tile_order"
"""The axis that decides whether `slice_tiles` is read."""
REGISTERS = "registers"
BY_THREADS = f"store = {REGISTERS}"
"""The setting with which stores of tiles take hints."""
SPLIT_K = "split_k"
"""The axis with the ranges into which each tile of the last, partial wave is cut along the contraction."""
WHOLE = 1
"""The value of SPLIT_K with which no tile is cut."""
INTERLEAVED = "interleaved"
"""The tile order that alternates between slices of all ranks' rows."""
SPANNING = "spanning"
"""The tile order of a GEMM that computes all ranks' rows together: tiles span them."""
RING = "ring"
"""The tile order of a reduce-scatter whose sums go from rank to rank; a rank has rows of all owners at any time."""
ONE_SHOT_WORLD = 2
"""Most ranks that send tiles of sums to all in one shot: two send as many bytes as in two shots, more ranks more."""
COMM_SMS = "comm_sms"
"""The axis with the number of SMs that only communicate."""
RELAYED = ("rotated", "remote_first")
"""Tile orders with which SMs that only send can bring results to peers: theirs come first."""
TRANSPORT = "transport"
"""The axis that says how bytes reach a peer of a fused kernel."""
PEER, GIN = "peer", "gin"
"""Its values: stores into the peer's memory, and puts through the network that the kernel starts."""
PER_HOST = "ranks_per_host"
"""The axis with the number of ranks of a host that share a put to another host."""
BETWEEN_HOSTS = frozenset({"embedding_all_to_all", "gemm_all_to_all", "all_gather_gemm"})
"""Operators whose fused kernels can put between hosts."""
FUSED = ("tile", "store", "num_warps", "num_stages", "group_rows", "tile_order", "slice_tiles", "write", "grid",
         "comm_sms", SHOTS, SPLIT_K, LOAD, STORE, TRANSPORT, PER_HOST)  # fmt: skip
"""All axes that fused schedules have or had."""
KERNEL = "kernel"
"""The axis of sequential and concurrent schedules with the kernel that computes: the library's or ours."""
OURS = "ours"
"""The value of KERNEL for our kernel."""
RESIDENT = "resident_blocks"
"""The axis of concurrent schedules with the number of blocks of the computation that an SM holds."""
DECIDED_BY = {"slice_tiles": TILE_ORDER, "group_rows": TILE_ORDER, "comm_sms": TILE_ORDER, RESIDENT: KERNEL,
              PER_HOST: TRANSPORT}  # fmt: skip
"""Axes that are ignored for some values of another axis, with that axis."""
HIGH, NORMAL = "high", "normal"
"""Values of `comm_priority`."""
CONCURRENT = ("tile", "micro_batches", "collective", KERNEL, "comm_priority", RESIDENT, "comm_sms")
CONCURRENT_ON_CPU = ("tile", "micro_batches", "collective", "comm_priority")
SENT_IN_PACKETS = frozenset(name for name, each in OPERATORS.items() if each.work == "gemv")
"""Operators whose GPU kernel has the axis `shots`."""
SENT_IN_TILES = frozenset(
    name for name, each in OPERATORS.items() if each.work == "gemm" and each.flow is not Flow.RECEIVE
)
"""Operators whose GPU kernel got the axis `comm_sms` after schedules of it had been stored."""
LAUNCHES = "launches"
"""The axis of decomposed schedules that only GPUs have. Without it, the launches of a Plan have no streams."""
PER_PIECE, ONE = "per_piece", "one"
"""The values of LAUNCHES: one library call for each step, or one launch of our kernel that waits inside."""
DECOMPOSED = ("tile", "pieces", "split", "steps", "grouping", "pattern", "engine", LAUNCHES, "comm_sms")
CPU = ("tile", "tile_order", "slice_tiles", "write")
GEMM = ("tile", "store", "num_warps", "num_stages", "group_rows", "tile_order", "slice_tiles")
GPU = {
    ("gemm", False): (*GEMM, "grid", COMM_SMS, SPLIT_K, STORE),
    ("gemm", True): (*GEMM, "grid", COMM_SMS, SPLIT_K),
    ("gemv", False): ("tile", "num_warps", "num_stages", "tile_order", "grid", SHOTS),
    ("gather", False): ("tile", "tile_order", "slice_tiles", "grid", LOAD, STORE),
}
"""Axes of a GPU's fused kernel, by its work and whether its operand comes in.

A GEMV's packets carry their signal, so it has no slices. A lookup is one warp without a pipeline. Staging is for
incoming operands. Hints are for a lookup's loads and stores, and for tiles that threads
store: bulk copies take none, and a GEMV's loads ahead (`cp.async`) lose them in Triton."""


def of_fused(problem: Problem, backend: str) -> tuple[str, ...]:
    """The axes that the fused kernel of *backend* reads for *problem*, in the order of a schedule."""
    names = _of_operator(problem.operator, backend)
    alone = (TRANSPORT, PER_HOST) if problem.world == 1 else ()
    unread = alone if cuts_tiles(problem) else (SPLIT_K, *alone)
    if OPERATORS[problem.operator].flow is not Flow.RECEIVE and not may_relay(problem):
        unread = (COMM_SMS, *unread)
    return tuple(name for name in names if name not in unread)


def cuts_tiles(problem: Problem) -> bool:
    """Whether our GEMM can cut tiles of *problem* along the contraction: where a rank has all rows.

    It is alone and sums nothing, or its tiles span the rows of all ranks.
    """
    operator = OPERATORS[problem.operator]
    alone = operator.flow is Flow.SEND and not operator.reduces
    return operator.work == "gemm" and (alone or problem.world > 1)


def stores_alone(problem: Problem) -> bool:
    """Whether *problem* is the plain GEMM of one rank, which has all rows: nothing comes in, is summed, or leaves."""
    return cuts_tiles(problem) and problem.world == 1


def may_span(problem: Problem) -> bool:
    """Whether tiles of *problem* can span the rows of all ranks: those of a GEMM."""
    return problem.world > 1 and OPERATORS[problem.operator].work == "gemm"


def may_ring(problem: Problem) -> bool:
    """Whether sums of *problem* can go from rank to rank: those of a GEMM, which stay with their owners."""
    operator = OPERATORS[problem.operator]
    return may_span(problem) and operator.reduces and operator.flow is Flow.SEND


def may_relay(problem: Problem) -> bool:
    """Whether SMs that only send can bring the tiles of *problem* to peers: those of a GEMM, added by two ranks."""
    operator = OPERATORS[problem.operator]
    return may_span(problem) and operator.flow is not Flow.RECEIVE and (not operator.reduces or problem.world == 2)


def relays(problem: Problem, schedule: Schedule) -> bool:
    """Whether SMs that only send bring the tiles of *schedule* to peers."""
    sends = schedule.scheme == "fused" and bool(schedule.get(COMM_SMS)) and not puts_between_hosts(schedule)
    return sends and may_relay(problem)


def sums_in_ring(schedule: Schedule) -> bool:
    """Whether the sums of *schedule* go from rank to rank."""
    return schedule.scheme == "fused" and schedule.get(TILE_ORDER) == RING


def alternates(order: Value | None) -> bool:
    """Whether slices of all ranks' rows are computed in turns in the tile *order*."""
    return order in (INTERLEAVED, RING)


def spans_in_one_shot(problem: Problem) -> bool:
    """Whether ranks whose tiles span all rows send partial sums to all: an all-reduce of two, with as many bytes.

    With more ranks they go to the owner of their rows, who sends the sums to all.
    """
    return OPERATORS[problem.operator].flow is Flow.BROADCAST and problem.world <= ONE_SHOT_WORLD


def rows_summed(problem: Problem, schedule: Schedule) -> int:
    """Rows that a program adds at once where tiles span ranks: its tile's share of the rows of one rank.

    So an owner has about as many sums as a rank has tiles, and every SM adds. A power of two, as all sides of blocks.
    Of packets any program adds any, since no counter of a tile is awaited.
    """
    size = tile(schedule["tile"])
    if sends_packets(problem, schedule):
        height = landed(problem)[0] // problem.world
        return packet_rows(problem, size, schedule.count("num_warps"), height)
    return size.m if spans_in_one_shot(problem) else max(1, size.m >> (problem.world - 1).bit_length())


def landed(problem: Problem) -> tuple[int, int]:
    """Rows and columns of what lands in halves where tiles span ranks: operands, or each rank's part of a sum.

    Results that nobody adds land where they stay.
    """
    operator = OPERATORS[problem.operator]
    extent = operator.extent(problem)
    if operator.flow is Flow.SEND and not operator.reduces:
        return 0, extent.columns
    if operator.flow is Flow.RECEIVE:
        return extent.rows, extent.contraction
    return extent.rows * (problem.world if spans_in_one_shot(problem) else 1), extent.columns


def spans_ranks(schedule: Schedule) -> bool:
    """Whether the tiles of *schedule* span the rows of all ranks."""
    return schedule.scheme == "fused" and schedule.get(TILE_ORDER) == SPANNING


def _of_operator(name: str, backend: str) -> tuple[str, ...]:
    operator = OPERATORS[name]
    names = CPU if backend == "cpu" else GPU[operator.work, operator.flow is Flow.RECEIVE]
    return (*names, TRANSPORT, PER_HOST) if name in BETWEEN_HOSTS else names


def of_sequential(problem: Problem, backend: str) -> tuple[str, ...]:
    """The axes of a sequential schedule: KERNEL is one of them where both the library and our kernel can compute."""
    chosen = backend == "triton" and OPERATORS[problem.operator].work != "gather"
    return ("tile", "collective", *((KERNEL,) if chosen else ()))


def of_concurrent(problem: Problem, backend: str) -> tuple[str, ...]:
    """The axes of a concurrent schedule: KERNEL is one of them as in a sequential schedule."""
    if backend == "cpu":
        return CONCURRENT_ON_CPU
    chosen = KERNEL in of_sequential(problem, backend)
    return tuple(name for name in CONCURRENT if chosen or name != KERNEL)


def all_axes(problem: Problem, schedule: Schedule, backend: str) -> dict[str, Value]:
    """The axes of *schedule* for display, together with those that it omits."""
    values = dict(schedule.axes)
    rest = omitted(problem, schedule.scheme, backend, values)
    return {**values, **{name: value for name, value in rest.items() if name not in values}}


def added_axes(operator: str, scheme: str, backend: str) -> frozenset[str]:
    """The axes that were added to *scheme* after schedules of it had been stored."""
    names = frozenset(OMITTED_DEFAULTS.get(scheme, {}))
    if scheme != "fused":
        return names
    by_operator = {SHOTS: SENT_IN_PACKETS, COMM_SMS: SENT_IN_TILES}
    sent = {name for name, operators in by_operator.items() if backend != "cpu" and operator in operators}
    return names.intersection(_of_operator(operator, backend)).union(sent)


def omitted(problem: Problem, scheme: str, backend: str, others: Mapping[str, Value]) -> dict[str, Value]:
    """The axes that were added to *scheme* after schedules of it had been stored, with the value that schedules omit.

    They are those of kernels.schedule.OMITTED_DEFAULTS that are read with the values of *others*; `shots`, whose value
    depends on the problem; `comm_sms` of results and of tiles that span ranks: rows that come in slices had that
    axis from the beginning; and `store` of tiles that span ranks, where sums are few enough for packets.
    """
    values = dict(OMITTED_DEFAULTS.get(scheme, {}))
    added = added_axes(problem.operator, scheme, backend)
    values |= {SHOTS: omitted_shots(problem)} if SHOTS in added else {}
    spans = others.get(TILE_ORDER) == SPANNING
    values |= {COMM_SMS: 0} if COMM_SMS in added or spans else {}
    values |= {"store": REGISTERS} if scheme == "fused" and backend != "cpu" and spans and few_enough(problem) else {}
    ignored = ignored_axes(problem, scheme, {**others, **values}, backend)
    return {name: value for name, value in values.items() if name not in ignored}


def of_decomposed(problem: Problem, backend: str) -> tuple[str, ...]:
    """The axes of a decomposed schedule of *problem*; `split` is not one of them where there is only one direction."""
    return tuple(name for name in DECOMPOSED if name not in _ignored_in_decomposed(problem, backend))


def _ignored_in_decomposed(problem: Problem, backend: str) -> dict[str, str]:
    """The axes without a choice for *problem*, each with the reason as text."""
    ignored = {} if len(OPERATORS[problem.operator].splits) > 1 else {"split": "it can be cut in 1 direction only"}
    if backend == "cpu":
        ignored |= dict.fromkeys((LAUNCHES, "comm_sms"), "a CPU rank has 1 thread for everything")
    return ignored


def ignored_axes(problem: Problem, scheme: str, values: Mapping[str, Value], backend: str) -> dict[str, str]:
    """The axes among *values* that change nothing with these values of the others, each with the reason as text."""
    if scheme == "decomposed":
        ignored = _ignored_in_decomposed(problem, backend)
        if values.get("engine", "sm") != "sm":
            ignored.setdefault("comm_sms", "only engine = sm takes SMs")
        return {name: reason for name, reason in ignored.items() if name in values}
    if scheme == "sequential":
        read = of_sequential(problem, backend)
        return {name: "it has one computation only" for name in values if name == KERNEL and name not in read}
    if scheme == "concurrent":
        return _ignored_in_concurrent(problem, values, backend)
    if scheme != "fused":
        return {}
    read = of_fused(problem, backend)
    ignored = {name: "its kernel does not read it" for name in values if name in FUSED and name not in read}
    if by_network := values.get(TRANSPORT) == GIN:
        ignored |= _ignored_between_hosts(problem, values)
    elif PER_HOST in values:
        ignored.setdefault(PER_HOST, f"only puts of {TRANSPORT} = {GIN} are shared by the ranks of a host")
    if may_span(problem):
        for name, reason in _ignored_by_span(problem, values).items():
            ignored |= {name: reason} if name in values else {}
    if TRANSPORT in ignored:
        ignored[TRANSPORT] = _nobody_to_put_to(problem)
    if not by_network and not slices_matter(problem, values.get("tile_order"), backend) and "slice_tiles" in values:
        ignored.setdefault("slice_tiles", f"tiles leave one by one unless tile_order = {INTERLEAVED} or {RING}")
    if STORE in values and "store" in read and values.get("store") != REGISTERS:
        ignored.setdefault(STORE, f"the bulk copy engine takes no hint, and tiles leave by it unless {BY_THREADS}")
    return ignored


def _ignored_between_hosts(problem: Problem, values: Mapping[str, Value]) -> dict[str, str]:
    """The axes among *values* that change nothing where a kernel puts between hosts, each with the reason as text."""
    ignored = {"write": "what crosses hosts is staged, and what stays is not"} if "write" in values else {}
    leaves = OPERATORS[problem.operator].flow is not Flow.RECEIVE
    if (leaves or values.get(PER_HOST, 1) == 1) and COMM_SMS in values:
        ignored[COMM_SMS] = "the network card moves the bytes, and 0 SMs do"
    return ignored


def _ignored_by_span(problem: Problem, values: Mapping[str, Value]) -> dict[str, str]:
    """The axes that change nothing where tiles can span ranks, by whether they do, each with the reason."""
    receives = OPERATORS[problem.operator].flow is Flow.RECEIVE
    if values.get(TILE_ORDER) != SPANNING:
        why = f"tiles that end with the rows of a rank are whole, and only {TILE_ORDER} = {SPANNING} cuts"
        return {SPLIT_K: why}
    if receives:
        why = f"with {TILE_ORDER} = {SPANNING} every tile waits for the rows of all ranks"
        return dict.fromkeys(("slice_tiles", "group_rows"), why)
    why = f"with {TILE_ORDER} = {SPANNING} threads store each tile's rows into the memory of their owners"
    in_packets = values.get("store") == PACKETS  # those of many bytes are refused
    read = ("store",) if in_packets or (values.get("store") == REGISTERS and few_enough(problem)) else ()
    return {name: why for name in ("store", STORE, "slice_tiles", "group_rows", COMM_SMS) if name not in read}


def _nobody_to_put_to(problem: Problem) -> str:
    """Why a fused kernel of *problem* has no choice of transport."""
    if problem.operator in BETWEEN_HOSTS:
        return f"it has nobody to put to in world = {problem.world}: {problem.world} < 2"
    return f"{len(BETWEEN_HOSTS)} operators have a kernel that puts between hosts, {', '.join(sorted(BETWEEN_HOSTS))}"


def puts_between_hosts(schedule: Schedule) -> bool:
    """Whether *schedule* is of a kernel that puts between hosts."""
    return schedule.get(TRANSPORT) == GIN


def _ignored_in_concurrent(problem: Problem, values: Mapping[str, Value], backend: str) -> dict[str, str]:
    """The axes among *values* that change nothing: only our kernel can be padded, and CPU ranks have no SMs."""
    by_axis = {KERNEL: "it has one computation only", RESIDENT: "a CPU rank has no SMs",
               "comm_sms": "a CPU rank has no SMs"}  # fmt: skip
    reasons = {name: by_axis[name] for name in CONCURRENT if name not in of_concurrent(problem, backend)}
    if values.get(KERNEL, OURS) != OURS:
        reasons.setdefault(
            RESIDENT, f"blocks of the library's kernels are as they are; {KERNEL} = {OURS} can be padded"
        )
    return {name: reason for name, reason in reasons.items() if name in values}


def slices_matter(problem: Problem, tile_order: Value | None, backend: str) -> bool:
    """Whether tiles are sent or ordered by slices; otherwise a GPU's kernel sends each tile as soon as it is done."""
    return backend == "cpu" or OPERATORS[problem.operator].flow is Flow.RECEIVE or alternates(tile_order)


def effective(problem: Problem, schedule: Schedule, backend: str) -> Schedule:
    """*schedule* without the axes that change nothing and without the values that schedules omit.

    This makes stored schedules of older versions equal to those of today.
    """
    ignored = ignored_axes(problem, schedule.scheme, dict(schedule.axes), backend)
    defaults = omitted(problem, schedule.scheme, backend, dict(schedule.axes))
    kept = ((name, value) for name, value in schedule.axes if name not in ignored and defaults.get(name) != value)
    return Schedule(schedule.scheme, tuple(kept))


def refusal(problem: Problem, schedule: Schedule, backend: str) -> str | None:
    """Why *schedule* has an axis that changes nothing, so that equal schedules would differ, or None."""
    values = dict(schedule.axes)
    for name, reason in ignored_axes(problem, schedule.scheme, values, backend).items():
        return (
            f"{name} = {values[name]} changes nothing in {problem.operator} with scheme = {schedule.scheme} on "
            f"backend = {backend}: {reason}, so that all its values are 1 schedule. Accepted: a schedule without "
            f"{name}."
        )
    return None
