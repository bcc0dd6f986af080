"""Which axes the kernels read: the one table from which axes are offered, left out of a schedule, and refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernels.operators import OPERATORS
from kernels.operators.base import Flow
from kernels.problem import Problem
from kernels.schedule import UNNAMED, Axis, Schedule, Value

# Cache hints: what a kernel of pointers may say of its loads and stores, and how Triton spells it.

LOAD, STORE = "load_hint", "store_hint"
"""The axes. Of loads: of rows of tables. Of stores: of sums of rows, and of tiles that threads store."""
NO_HINT = "normal"
"""What kernels did before they could be told, and what no schedule names."""
EVICTION: Mapping[str, str] = {NO_HINT: "", "evict_first": "evict_first", "evict_last": "evict_last"}
MODIFIER: Mapping[str, str] = {NO_HINT: "", "wb": ".wb", "cg": ".cg", "cs": ".cs", "wt": ".wt"}


def eviction(schedule: Schedule) -> str:
    """The eviction policy of a `tl.load`."""
    return EVICTION[str(schedule.get(LOAD, NO_HINT))]


def modifier(schedule: Schedule) -> str:
    """The cache modifier of a `tl.store`."""
    return MODIFIER[str(schedule.get(STORE, NO_HINT))]


def axes() -> tuple[Axis, Axis]:
    """Both, with every value that Triton takes."""
    return (
        Axis(LOAD, tuple(EVICTION), NO_HINT, "Which lines the cache gives up first: those of this kernel's operands, "
             "or others."),
        Axis(STORE, tuple(MODIFIER), NO_HINT, "How results are stored: back from L2 (wb, cg), streaming (cs), or "
             "through (wt)."),
    )  # fmt: skip


# Packets, of which a GPU's GEMV is made: values that carry their signal, sent to everybody in one shot or two.

SHOTS = "shots"
"""The axis that says how often a value flies before everybody has the sum."""
PACKET_BYTES = 8
"""A value and the epoch of its call, in 4 bytes each: one store, so that whoever sees the epoch sees the value."""
ONE_SHOT_VALUES = 64 * 1024
"""Values of the output up to which everybody sends all partial sums to everybody, as long as nobody says otherwise.

At world 4 one shot puts 24 bytes a value on the wire and two shots 12, which pays for a second flight of about 1.5 us.
"""


def are_sent(problem: Problem, schedule: Schedule) -> bool:
    """Whether *schedule* sends packets: one kernel of a GPU that computes a GEMV. CPU ranks copy tiles."""
    return (
        OPERATORS[problem.operator].work == "gemv" and schedule.scheme == "fused" and "num_warps" in dict(schedule.axes)
    )


def value_bytes(problem: Problem, schedule: Schedule) -> int:
    """Bytes that leave for each value that is sent."""
    return PACKET_BYTES if are_sent(problem, schedule) else problem.itemsize


def shots(problem: Problem, schedule: Schedule) -> int:
    """1: partial sums go to all, who sum alone. 2: they go to the owner of their rows, who sends the sums to all.

    As *schedule* says. One that says nothing means what `unnamed` says, as all did before there was a choice.
    """
    return int(schedule.get(SHOTS) or packets_unnamed(problem))


def packets_unnamed(problem: Problem) -> int:
    """The value of `shots` that no schedule of *problem* names: trials had it before they could name one.

    It is what stored keys mean, so it stays as it is, whatever the default becomes.
    """
    extent = OPERATORS[problem.operator].extent(problem)
    return unnamed_of(extent.rows * extent.columns)


def unnamed_of(values: Any) -> Any:
    """The same for so many values of the output, a number or a column."""
    return 1 + (values > ONE_SHOT_VALUES)


# Which axes the kernels read: the one table from which axes are offered, left out of a schedule, and refused.

TILE_ORDER = "tile_order"
"""The axis that decides whether another one is read."""
REGISTERS = "registers"
BY_THREADS = f"store = {REGISTERS}"
"""How tiles leave where stores take hints."""
IN_TURNS = "interleaved"
"""The tile order that sends a slice of each rank's rows in turns."""
FUSED = ("tile", "store", "num_warps", "num_stages", "group_rows", "tile_order", "slice_tiles", "write", "grid",
         "comm_sms", SHOTS, LOAD, STORE)  # fmt: skip
"""All that a fused kernel was ever told."""
KERNEL = "kernel"
"""The axis of sequential and concurrent schedules that says who computes."""
OURS = "ours"
"""Its value of our kernel."""
RESIDENT = "resident_blocks"
"""The axis of concurrent schedules that says how many blocks of the computation an SM holds."""
DECIDED_BY = {"slice_tiles": TILE_ORDER, RESIDENT: KERNEL}
"""Axes that are read or not as another one says."""
HIGH, NORMAL = "high", "normal"
"""Values of `comm_priority`."""
CONCURRENT = ("tile", "micro_batches", "collective", KERNEL, "comm_priority", RESIDENT, "comm_sms")
CONCURRENT_ON_CPU = ("tile", "micro_batches", "collective", "comm_priority")
SENT_IN_PACKETS = frozenset(name for name, each in OPERATORS.items() if each.work == "gemv")
"""Operators whose GPU kernel has the axis `shots`."""
LAUNCHES = "launches"
"""The axis of decomposed schedules that only GPUs have; Plans of those without it know no streams."""
PER_PIECE, ONE = "per_piece", "one"
"""Its values: the library computes each step by a call of its own, or one launch of ours computes all and waits."""
DECOMPOSED = ("tile", "pieces", "split", "steps", "grouping", "pattern", "engine", LAUNCHES, "comm_sms")
CPU = ("tile", "tile_order", "slice_tiles", "write")
GEMM = ("tile", "store", "num_warps", "num_stages", "group_rows", "tile_order", "slice_tiles")
GPU = {
    ("gemm", False): (*GEMM, "grid", STORE),
    ("gemm", True): (*GEMM, "grid", "comm_sms"),
    ("gemv", False): ("tile", "num_warps", "num_stages", "tile_order", "grid", SHOTS),
    ("gather", False): ("tile", "tile_order", "slice_tiles", "grid", LOAD, STORE),
}
"""By what is computed, and whether its operand comes in. A GEMV's packets carry their own signal, so it has no slices.
A lookup is one warp without a pipeline. Blocks that only send, and staging, are for operands that come in. Hints are
for its loads and stores, and for tiles that threads store: bulk copies take none, and what a GEMV loads ahead
(`cp.async`) loses them in Triton."""


def of_fused(problem: Problem, backend: str) -> tuple[str, ...]:
    """The axes that the fused kernel of *backend* reads for *problem*, in the order of a schedule."""
    return _of_operator(problem.operator, backend)


def _of_operator(name: str, backend: str) -> tuple[str, ...]:
    operator = OPERATORS[name]
    return CPU if backend == "cpu" else GPU[operator.work, operator.flow is Flow.RECEIVE]


def of_sequential(problem: Problem, backend: str) -> tuple[str, ...]:
    """The axes of a sequential schedule: who computes is chosen where a library and a kernel of ours both can."""
    chosen = backend == "triton" and OPERATORS[problem.operator].work != "gather"
    return ("tile", "collective", *((KERNEL,) if chosen else ()))


def of_concurrent(problem: Problem, backend: str) -> tuple[str, ...]:
    """The axes of a concurrent schedule: who computes is chosen as in a sequential one."""
    if backend == "cpu":
        return CONCURRENT_ON_CPU
    chosen = KERNEL in of_sequential(problem, backend)
    return tuple(name for name in CONCURRENT if chosen or name != KERNEL)


def all_axes(problem: Problem, schedule: Schedule, backend: str) -> dict[str, Value]:
    """The axes of *schedule* as they are shown, with those whose value no schedule names."""
    values = dict(schedule.axes)
    rest = unnamed(problem, schedule.scheme, backend, values)
    return {**values, **{name: value for name, value in rest.items() if name not in values}}


def later(operator: str, scheme: str, backend: str) -> frozenset[str]:
    """The axes that came after schedules of *scheme* had been stored."""
    names = frozenset(UNNAMED.get(scheme, {}))
    if scheme != "fused":
        return names
    sent = (SHOTS,) if backend != "cpu" and operator in SENT_IN_PACKETS else ()
    return names.intersection(_of_operator(operator, backend)).union(sent)


def unnamed(problem: Problem, scheme: str, backend: str, beside: Mapping[str, Value]) -> dict[str, Value]:
    """The axes that came after schedules of *scheme* had been stored, with the value that no schedule names.

    Those of kernels.schedule.UNNAMED that are read *beside* other values, and the one whose value depends on the
    problem.
    """
    values = dict(UNNAMED.get(scheme, {}))
    if SHOTS in later(problem.operator, scheme, backend):
        values[SHOTS] = packets_unnamed(problem)
    left_out = unread(problem, scheme, {**beside, **values}, backend)
    return {name: value for name, value in values.items() if name not in left_out}


def of_decomposed(problem: Problem, backend: str) -> tuple[str, ...]:
    """The axes of a decomposed Plan of *problem*: where there is one direction to cut, nobody chooses it."""
    return tuple(name for name in DECOMPOSED if name not in _left_out_of_decomposed(problem, backend))


def _left_out_of_decomposed(problem: Problem, backend: str) -> dict[str, str]:
    """The axes that nobody chooses for *problem*, each with the reason in words."""
    left_out = {} if len(OPERATORS[problem.operator].splits) > 1 else {"split": "it can be cut in 1 direction only"}
    if backend == "cpu":
        left_out |= dict.fromkeys((LAUNCHES, "comm_sms"), "a CPU rank has 1 thread for everything")
    return left_out


def unread(problem: Problem, scheme: str, values: Mapping[str, Value], backend: str) -> dict[str, str]:
    """The axes among *values* that change nothing beside the others, each with the reason in words."""
    if scheme == "decomposed":
        unchosen = _left_out_of_decomposed(problem, backend)
        if values.get("engine", "sm") != "sm":
            unchosen.setdefault("comm_sms", "only engine = sm takes SMs")
        return {name: reason for name, reason in unchosen.items() if name in values}
    if scheme == "sequential":
        read = of_sequential(problem, backend)
        return {name: "it has one computation only" for name in values if name == KERNEL and name not in read}
    if scheme == "concurrent":
        return _unread_in_concurrent(problem, values, backend)
    if scheme != "fused":
        return {}
    read = of_fused(problem, backend)
    left_out = {name: "its kernel does not read it" for name in values if name in FUSED and name not in read}
    if not slices_matter(problem, values.get("tile_order"), backend) and "slice_tiles" in values:
        left_out.setdefault("slice_tiles", f"tiles leave one by one unless tile_order = {IN_TURNS}")
    if STORE in values and "store" in read and values.get("store") != REGISTERS:
        left_out.setdefault(STORE, f"the bulk copy engine takes no hint, and tiles leave by it unless {BY_THREADS}")
    return left_out


def _unread_in_concurrent(problem: Problem, values: Mapping[str, Value], backend: str) -> dict[str, str]:
    """The axes among *values* that change nothing: our kernel alone can be padded, and nothing is shared on a CPU."""
    left_out = {KERNEL: "it has one computation only", RESIDENT: "a CPU rank has no SMs",
                "comm_sms": "a CPU rank has no SMs"}  # fmt: skip
    reasons = {name: left_out[name] for name in CONCURRENT if name not in of_concurrent(problem, backend)}
    if values.get(KERNEL, OURS) != OURS:
        reasons.setdefault(
            RESIDENT, f"blocks of the library's kernels are as they are; {KERNEL} = {OURS} can be padded"
        )
    return {name: reason for name, reason in reasons.items() if name in values}


def slices_matter(problem: Problem, tile_order: Value | None, backend: str) -> bool:
    """Whether tiles leave, or are ordered, by slices: a GPU's kernel sends each tile as soon as it is done."""
    return backend == "cpu" or OPERATORS[problem.operator].flow is Flow.RECEIVE or tile_order == IN_TURNS


def read(problem: Problem, schedule: Schedule, backend: str) -> Schedule:
    """*schedule* without the axes that change nothing or say what no schedule names.

    That is what older versions measured, as it is asked for today.
    """
    left_out = unread(problem, schedule.scheme, dict(schedule.axes), backend)
    usual = unnamed(problem, schedule.scheme, backend, dict(schedule.axes))
    named = ((name, value) for name, value in schedule.axes if name not in left_out and usual.get(name) != value)
    return Schedule(schedule.scheme, tuple(named))


def refusal(problem: Problem, schedule: Schedule, backend: str) -> str | None:
    """Why a time of *schedule* would be told apart by an axis that changes nothing, or None."""
    values = dict(schedule.axes)
    for name, reason in unread(problem, schedule.scheme, values, backend).items():
        return (
            f"{name} = {values[name]} changes nothing in {problem.operator} with scheme = {schedule.scheme} on "
            f"backend = {backend}: {reason}, so that all its values are 1 schedule. Accepted: a schedule without "
            f"{name}."
        )
    return None
