"""Derived numbers, one function each, and the join that completes a row from other trials of its problem."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from kernels.machine import Machine
from kernels.operators import OPERATORS
from kernels.operators.base import Flow
from kernels.outcome import Measurement, Outcome, Span, row
from kernels.plan import Ints, Kind, Plan, Pool
from kernels.problem import Problem
from kernels.schedule import Schedule
from kernels.schemes import BASELINE, axis_rules, expand, library, sequential, stream_controls
from kernels.schemes.concurrent import problems
from kernels.trial import Trial
from workbench.results import quiet
from workbench.results.rows import Row, computation_of, problem_of
from workbench.simulator.price import messages, tiles

# How fast a collective is, as nccl-tests counts it.


def algbw(problem: Problem, comm_s: float) -> float:
    """Bytes of the collective's buffer per second, counted as nccl-tests does."""
    return _buffer_bytes(problem) / comm_s


def busbw(problem: Problem, comm_s: float) -> float:
    """algbw times nccl-tests' factor: bytes per second of one link direction, comparable between worlds."""
    world = problem.world
    share = 2 if OPERATORS[problem.operator].collective == "all_reduce" else 1
    return algbw(problem, comm_s) * share * (world - 1) / world


def _buffer_bytes(problem: Problem) -> int:
    """Buffer size of nccl-tests: the larger of a rank's input and output."""
    operator = OPERATORS[problem.operator]
    extent = operator.extent(problem)
    width = extent.contraction if operator.flow == "receive -> compute" else extent.columns
    return extent.rows * width * problem.itemsize


# Inputs of the pipeline floor: the first slice, and the measured rate of puts.

EMULATED = "what the emulated link carries"
MEASURED = "calibrated"
"""Beginning of the provenance of values that were measured on a running machine."""


@dataclass(frozen=True, slots=True)
class PutRate:
    """Rate at which puts leave one rank."""

    bytes_per_second: float
    source: str
    """Its provenance in the machine's file."""


def put_rate(trial: Trial, machine: Machine | None) -> PutRate | None:
    """The rate of the puts of *trial*'s schedule; None if it was not measured, since datasheets do not have it.

    On GPUs it is a point of the machine's calibrated curve for the way in which bytes leave (`store`, copy engines,
    number of sending SMs), at the bytes that leave each rank. An emulated link has the rate that was requested.
    """
    if trial.fabric.emulated:
        rate = emulated_rate(trial)
        return None if rate is None else PutRate(rate, EMULATED)
    if machine is None or trial.world == 1:
        return None
    axes = dict(trial.schedule.axes)
    source = machine.provenance_of(f"rate.{messages.way(axes)}.any")
    if not source.startswith(MEASURED):
        return None
    byte_seconds = messages.put_byte_seconds(trial.problem, machine, trial.fabric, axes)
    return None if byte_seconds is None else PutRate(1.0 / float(byte_seconds), source)


def emulated_rate(trial: Trial) -> float | None:
    """The highest rate at which the minimal bytes of *trial* leave a rank of an emulated fabric; None if unresolved.

    Between hosts, data that differs for each peer crosses once per peer. Data that is the same for all ranks of a host
    crosses once per host, however it is distributed there.
    """
    fabric, world = trial.fabric, trial.world
    differs_by_peer = OPERATORS[trial.problem.operator].collective == "all_to_all" or world == 1
    return fabric.rate(world, None if differs_by_peer else (fabric.hosts - 1) / (world - 1))


def first_slice_share(trial: Trial, machine: Machine | None) -> float | None:
    """The share of the computation alone that no put can hide; None for schedules that do not overlap.

    The first slice is computed before the wire begins. If operands are received, the last slice is computed after the
    wire has ended. Tiles are computed in waves, as many at once as the device has slots. A GPU's kernel sends each tile
    as soon as it is done, so that its first slice is one wave.
    """
    if trial.schedule.scheme == BASELINE or machine is None:
        return None
    plan, is_gpu = expand(trial.problem, trial.schedule), machine.device.kind == "gpu"
    kind = OPERATORS[trial.problem.operator]
    slots = int(machine.device.slots * tiles.resident_blocks(machine, kind.work))
    waited_for = last_tiles(plan) if kind.flow is Flow.RECEIVE else first_tiles(plan)
    if waited_for is None:
        return None
    sent = 1 if is_gpu and kind.flow is not Flow.RECEIVE else waited_for
    return waves(sent, slots) / waves(max(len(each) for each in plan.tiles), slots)


def waves(tiles: int, slots: int) -> int:
    """Number of waves of *slots* tiles that compute *tiles*."""
    return -(-tiles // slots)


def first_tiles(plan: Plan) -> int | None:
    """Number of tiles computed before the first put, on the rank that begins to send last; None if no put waits."""
    puts, computed = _waits(plan, (Kind.PUT,), (Kind.COMPUTE,))
    if not len(puts):
        return None
    waited_for = np.zeros(len(plan), dtype=np.int64)
    np.maximum.at(waited_for, puts, plan.tile_stop[computed])
    never = np.iinfo(np.int64).max
    begun = np.full(plan.problem.world, never)
    np.minimum.at(begun, plan.rank[puts], waited_for[puts])
    return int(begun[begun < never].max())


def last_tiles(plan: Plan) -> int | None:
    """Number of tiles that wait for the last received operands; None if none waits."""
    waiting, _ = _waits(plan, (Kind.COMPUTE,), (Kind.PUT, Kind.COPY))
    if not len(waiting):
        return None
    last = waiting.max()
    return int(plan.tile_stop[last] - plan.tile_start[last])


def _waits(plan: Plan, waiting: Sequence[Kind], needed: Sequence[Kind]) -> tuple[Ints, Ints]:
    """Pairs of steps: a step of the kinds *waiting*, and a step of the kinds *needed* that it waits for."""
    waiter = np.repeat(np.arange(len(plan)), np.diff(plan.after_start))
    chosen = np.isin(plan.kind[waiter], waiting) & np.isin(plan.kind[plan.after], needed)
    return waiter[chosen], plan.after[chosen]


# Busy times of ranks, from spans: computing, moving bytes, and their overlap.

COMPUTE_POOL = Pool.COMPUTE.word
"""Pool of a rank's processors."""
SENDS = frozenset(kind.word for kind in (Kind.PUT, Kind.COLLECTIVE))

LOSSES = ("disturbance", "fill and drain", "waiting", "decomposition", "contention")
"""The parts of a waterfall between the floor and the unexplained rest."""


def overlap_ratio(spans: Iterable[Span]) -> float | None:
    """Time in which compute and communication both run, over the time in which communication runs; over all ranks.

    Processors that move the bytes of a put do not compute meanwhile. A stream without computation is communication,
    whatever moves the bytes: SMs that push on a separate stream leave the others to compute.
    """
    of_rank: dict[int, list[Span]] = defaultdict(list)
    for span in spans:
        of_rank[span.rank].append(span)
    both = communicating = 0.0
    for each in of_rank.values():
        computing = {span.stream for span in each if span.kind == "compute"}
        here = [span for span in each if span.pool == COMPUTE_POOL and span.stream in computing]
        computes = merged(span for span in here if span.kind not in SENDS)
        sends = merged(span for span in each if span.pool != COMPUTE_POOL or span.stream not in computing)
        communicating += sum(stop - start for start, stop in sends)
        both += sum(max(0.0, min(a[1], b[1]) - max(a[0], b[0])) for a in computes for b in sends)
    return both / communicating if communicating > 0 else None


def waterfall(
    measured: Mapping[str, Any], spans: Sequence[Span], pieces_alone_s: float | None
) -> dict[str, float | None] | None:
    """The parts from the floor to the measured time, in seconds; the known ones sum to time_s.

    A part is None if its inputs were not timed. The result is None without floor or time. *spans* are of one iteration,
    *pieces_alone_s* is the compute part of the same schedule. Of the slowest rank's busier resource, processors or
    links, fill and drain is the idle time before its first and after its last work, and waiting is that in between. The
    floor takes the fastest computation, the other parts take the usual one: the disturbance is the difference of these
    two. A loss of computation counts only above the floor: below it, the wire hides it.
    """
    floor_s, compute_s, time_s = (measured.get(key) for key in ("floor_s", "compute_s", "time_s"))
    if floor_s is None or time_s is None:
        return None
    spans = per_problem(spans, measured)
    times = (compute_s, pieces_alone_s, computing_seconds(spans) if spans else None)
    usual_s, pieces_s, together_s = (None if each is None else max(floor_s, each) for each in times)
    idle = _idle(spans_of_slowest(spans)) if spans else None
    losses: dict[str, float | None] = {
        "floor": floor_s,
        "disturbance": _difference(usual_s, floor_s),
        "fill and drain": idle.at_ends if idle else None,
        "waiting": idle.between if idle else None,
        "decomposition": _difference(pieces_s, usual_s),
        "contention": _difference(together_s, pieces_s),
    }
    return {**losses, "unexplained": time_s - sum(each for each in losses.values() if each is not None)}


def unknown_losses(parts: Mapping[str, float | None]) -> list[str]:
    """The unknown losses of a waterfall."""
    return [part for part in LOSSES if parts.get(part) is None]


def _difference(later_s: float | None, before_s: float | None) -> float | None:
    """*later_s* less *before_s*, or None if one is unknown."""
    return None if later_s is None or before_s is None else later_s - before_s


class _Idle(NamedTuple):
    """Idle seconds of one rank's busier resource, processors or links."""

    at_ends: float
    """Before its first and after its last work."""
    between: float


def _idle(slowest: Sequence[Span]) -> _Idle:
    processors = merged(span for span in slowest if span.pool == COMPUTE_POOL)
    sends = merged(span for span in slowest if span.pool != COMPUTE_POOL)
    busier = max(processors, sends, key=total_seconds)
    at_ends = busier[0][0] + max(span.stop_s for span in slowest) - busier[-1][1]
    return _Idle(at_ends, busier[-1][1] - busier[0][0] - total_seconds(busier))


def per_problem(spans: Sequence[Span], row: Mapping[str, Any]) -> Sequence[Span]:
    """*spans* of one call of *row*'s schedule, divided by the number of problems of a call, as its time is."""
    count = problems(Schedule(str(row.get("scheme")), tuple((row.get("axes") or {}).items())))
    if count == 1:
        return spans
    return [span._replace(start_s=span.start_s / count, stop_s=span.stop_s / count) for span in spans]


def computing_seconds(spans: Sequence[Span]) -> float:
    """How long the slowest rank computes in the iteration of *spans*; 0 without any."""
    return total_seconds(merged(span for span in spans_of_slowest(spans) if span.kind == "compute"))


def moving_seconds(spans: Sequence[Span]) -> float:
    """How long bytes of the slowest rank are in flight, whatever moves them."""
    return total_seconds(merged(span for span in spans_of_slowest(spans) if span.kind in SENDS))


def spans_of_slowest(spans: Sequence[Span]) -> list[Span]:
    """The spans of the rank that ends last."""
    slowest = max(spans, key=lambda span: span.stop_s).rank if spans else None
    return [span for span in spans if span.rank == slowest]


def total_seconds(intervals: Sequence[tuple[float, float]]) -> float:
    """Total length of *intervals* that do not overlap."""
    return sum(stop - start for start, stop in intervals)


def merged(spans: Iterable[Span]) -> list[tuple[float, float]]:
    """The union of *spans* as intervals that do not overlap, in order."""
    intervals: list[tuple[float, float]] = []
    for start, stop in sorted((span.start_s, span.stop_s) for span in spans):
        if intervals and start <= intervals[-1][1]:
            intervals[-1] = intervals[-1][0], max(stop, intervals[-1][1])
        else:
            intervals.append((start, stop))
    return intervals


# Derived numbers, and the join that completes a row.

PIPELINE_KEYS = ("put_bytes_per_second", "put_rate_from", "first_slice_share")
"""Inputs of the pipeline floor; columns of schedules that overlap."""
SIGNATURE_KEYS = ("adds", "computing_s", "moving_s")
"""Inputs of the signatures of pieces (`signatures`)."""
ROUNDS = "rounds_s"
"""Column of the seconds by round of the rank whose median is the row's time; verdicts pair them."""
EXTRA_KEYS = ("minimal_wire_bytes", "link_bytes_per_second", "predictor", "machine_digest", *PIPELINE_KEYS,
              *SIGNATURE_KEYS, ROUNDS)  # fmt: skip
"""Columns in addition to kernels.outcome.ROW_KEYS: inputs of floors, signatures and verdicts, and the source of an
estimate."""
FLOOR = "floor_s"
JOINED = (FLOOR, "compute_s", "comm_s", "sequential_s", "plain_s", "library_s", "whole_s", "transfer_s")
"""Columns that `fill` adds to a row: the floor is of its problem, the rest of its block.

sequential_s is the fastest baseline, plain_s the fastest that does not overlap, library_s the fastest whose collective
is the library's (NCCL, gloo). whole_s is T_c, the best whole computation alone, and transfer_s is T_comm, the fastest
transfer of the minimal bytes without sums. `fill` also adds pipeline_floor_s and the signatures of the row's pieces.
"""


def floor(compute_s: float, minimal_wire_bytes: float, link_bytes_per_second: float) -> float:
    """Seconds that no schedule beats: the fastest compute alone, or the minimal bytes over one link direction."""
    return max(compute_s, minimal_wire_bytes / link_bytes_per_second)


def pipeline_floor(
    compute_s: float, minimal_wire_bytes: float, put_bytes_per_second: float, first_slice_s: float
) -> float:
    """Seconds that no schedule in these slices beats: computation alone, or the first slice and then the wire.

    The wire takes the minimal bytes at the measured rate of puts, and has nothing to send before the first slice is
    computed. If operands are received, the last slice is computed after the wire. A fused kernel is bound in this way
    (arXiv:2305.06942): tiles that other ranks need are computed and sent first, and the rest hides the wire.
    """
    return max(compute_s, minimal_wire_bytes / put_bytes_per_second + first_slice_s)


def exposed_communication(time_s: float, compute_s: float) -> float:
    """Seconds that communication adds to the computation."""
    return time_s - compute_s


def exposed_share(time_s: float, library_s: float, compute_s: float) -> float | None:
    """Exposed communication over that of the library's sequential schedule.

    0: all of it is hidden; above 1: more is exposed than by computing first and calling NCCL (or gloo) then. None if
    the library exposes nothing.
    """
    exposed_s = exposed_communication(library_s, compute_s)
    return exposed_communication(time_s, compute_s) / exposed_s if exposed_s > 0 else None


def overlap_efficiency(time_s: float, plain_s: float, compute_s: float, comm_s: float) -> float | None:
    """Saved time over the most that could be saved; None if there is nothing to hide.

    *plain_s*: the fastest baseline that does not overlap; the parts of torch's overlapped operators are unknown.
    """
    hideable = min(compute_s, comm_s)
    return (plain_s - time_s) / hideable if hideable > 0 else None


def decomposition_loss(pieces_alone_s: float, whole_alone_s: float) -> float:
    """Time of the pieces over the time of the whole, with nothing else running."""
    return pieces_alone_s / whole_alone_s


def contention_loss(together_s: float, alone_s: float) -> float:
    """Time of a part together with the other part, over its time alone."""
    return together_s / alone_s


def ideal_speedup(whole_s: float, transfer_s: float) -> float:
    """S_ideal, the speedup of perfect overlap: (T_c + T_comm) / max(T_c, T_comm) (arXiv:2512.10236)."""
    return (whole_s + transfer_s) / max(whole_s, transfer_s)


def share_of_ideal(time_s: float, whole_s: float, transfer_s: float) -> float | None:
    """(S - 1) / (S_ideal - 1), S = (T_c + T_comm) / T; below 0 if overlap costs time, None if nothing can be hidden.

    *whole_s* is the best whole computation alone, *transfer_s* the fastest transfer of the minimal bytes without sums,
    both measured in the block of *time_s*.
    """
    ideal = ideal_speedup(whole_s, transfer_s) - 1
    return ((whole_s + transfer_s) / time_s - 1) / ideal if ideal > 0 else None


def time_ratio(time_s: float, sequential_s: float) -> float:
    """Time over that of the sequential schedule; below 1 is faster."""
    return time_s / sequential_s


def against_streams(time_s: float, streams_s: float) -> float:
    """Time over that of the same two streams without controls; below 1 is faster.

    arXiv:2606.09200 calls it the normalised time. *streams_s* is of the same block, computation and collective.
    """
    return time_s / streams_s


def above_longer(time_s: float, compute_s: float, comm_s: float) -> float:
    """Excess of a time over the longer part alone, as a share of it; 0 if the other part is hidden."""
    return time_s / max(compute_s, comm_s) - 1


def speed_up(time_s: float, sequential_s: float) -> float:
    """Time of the sequential schedule over *time_s*; above 1 is faster."""
    return sequential_s / time_s


def gain(row: Row) -> float | None:
    """The speed-up of *row* over the best sequential schedule of its block; None if none was timed there.

    Every table, sentence and chart takes a schedule's speed-up from here: another block may have been quieter.
    """
    time_s, sequential_s = row.get("time_s"), row.get("sequential_s")
    return speed_up(time_s, sequential_s) if time_s and sequential_s else None


def above_floor(time_s: float, floor_s: float) -> float:
    """Excess of a time over its floor, as a share of the floor."""
    return time_s / floor_s - 1


def wire_bytes(trial: Trial) -> int:
    """Bytes that leave the rank that sends most, by the trial's plan; per problem, as its time is."""
    plan = expand(trial.problem, trial.schedule).part(trial.part)
    return max(plan.wire_bytes(rank) for rank in range(trial.world)) // problems(trial.schedule)


def adds(trial: Trial) -> bool:
    """Whether the communication of *trial* also sums contributions: then it is no pure transfer."""
    plan = expand(trial.problem, trial.schedule)
    sums = (Kind.REDUCE, Kind.COLLECTIVE) if OPERATORS[trial.problem.operator].reduces else (Kind.REDUCE,)
    return any(kind in plan.kind for kind in sums)


def link_bytes_per_second(trial: Trial, machine: Machine | None) -> float | None:
    """The rate at which a rank's minimal bytes can leave: over emulated links, or the machine's fastest."""
    if trial.fabric.emulated:
        return emulated_rate(trial)
    if machine is None or not machine.dimensions:
        return None
    return max(dimension.bandwidth_bytes_per_second for dimension in machine.dimensions)


def row_of(outcome: Outcome, run: str | None = None, machine: Machine | None = None) -> dict[str, Any]:
    """*outcome* as a row with all axes, the bytes and bandwidth of its plan and fabric, and EXTRA_KEYS."""
    trial = outcome.trial
    refused = getattr(outcome, "stage", None) == "refused"
    rate = None if refused else put_rate(trial, machine)
    values = row(outcome, run)
    spans = per_problem(getattr(outcome, "spans", ()), values)
    return values | {
        "axes": axis_rules.all_axes(trial.problem, trial.schedule, trial.backend),
        "wire_bytes_per_rank": None if refused else wire_bytes(trial),
        "minimal_wire_bytes": OPERATORS[trial.problem.operator].wire_bytes(trial.problem),
        "link_bytes_per_second": link_bytes_per_second(trial, machine),
        "predictor": getattr(outcome, "predictor", None),
        "machine_digest": getattr(outcome, "digest", None),
        "put_bytes_per_second": rate and rate.bytes_per_second,
        "put_rate_from": rate and rate.source,
        "first_slice_share": None if refused else first_slice_share(trial, machine),
        "adds": None if refused else adds(trial),
        "overlap_ratio": overlap_ratio(spans) if trial.part == "whole" else None,
        "computing_s": computing_seconds(spans) or None,
        "moving_s": moving_seconds(spans) or None,
        ROUNDS: rounds_of(outcome.samples) if isinstance(outcome, Measurement) else None,
        "disturbed_rounds": quiet.disturbed_rounds(outcome) if isinstance(outcome, Measurement) else None,
    }


def rounds_of(samples: Sequence[Sequence[float]]) -> list[float] | None:
    """Seconds by round of the rank with the largest median; None without samples. *samples* are by rank."""
    known = [of_rank for of_rank in samples if of_rank]
    return list(max(known, key=median)) if known else None


FASTEST, PLAIN, LIBRARY = "compute at its fastest", "whole, not overlapped", "whole by the library"
"""Keys in Joins: bounds of the computation, and two kinds of sequential schedules."""
WHOLE, TRANSFER = "computation in one piece", "transfer that adds nothing"
"""Keys in Joins: the trials whose fastest are T_c and T_comm."""
COMPUTE, COMMUNICATION = "compute", "communication"
"""The parts of a trial, and of a loss."""
STREAMS, ANY_BLOCK = "two streams without controls", "any block"
"""Key in Joins for the reference of schedules with controls, and the block of bounds that hold for all blocks."""


@dataclass(frozen=True, slots=True)
class PiecesAlone:
    """Seconds of a schedule's pieces alone, for each part; None if the part was not timed in the block."""

    compute_s: float | None = None
    communication_s: float | None = None
    computing_s: float | None = None
    """Busy time in the part's spans, if there are any: busy times are compared only with busy times."""
    moving_s: float | None = None


def signatures(row: Row, alone: PiecesAlone) -> dict[str, Any]:
    """The losses and the share of ideal of a filled *row*; None if a part is missing, or *row* is a part itself.

    Decomposition loss: pieces alone over the whole alone. Contention loss: pieces together over pieces alone.
    """
    whole_s, transfer_s, time_s = (row.get(key) for key in ("whole_s", "transfer_s", "time_s"))
    if row.get("part") not in (None, "whole") or not time_s or row.get("scheme") == BASELINE:
        return dict.fromkeys(("decomposition_loss", "contention_loss", "ideal_speedup", "share_of_ideal"))
    decomposed = {COMPUTE: (alone.compute_s, whole_s), COMMUNICATION: (alone.communication_s, transfer_s)}
    together = {COMPUTE: (row.get("computing_s"), alone.computing_s or alone.compute_s),
                COMMUNICATION: (row.get("moving_s"), alone.moving_s or alone.communication_s)}  # fmt: skip
    best = (whole_s, transfer_s) if whole_s and transfer_s else None
    return {
        "decomposition_loss": _losses(decomposition_loss, decomposed),
        "contention_loss": _losses(contention_loss, together),
        "ideal_speedup": ideal_speedup(*best) if best else None,
        "share_of_ideal": share_of_ideal(time_s, *best) if best else None,
    }


def _losses(
    loss: Callable[[float, float], float], parts: Mapping[str, tuple[float | None, float | None]]
) -> dict[str, float | None] | None:
    """The *loss* of each part whose two times are known; None if no part has one."""
    known = {part: loss(*times) if None not in times and times[1] else None for part, times in parts.items()}  # type: ignore[arg-type]
    return known if any(known.values()) else None


class Joins:
    """The best times so far by block and problem, which complete rows; estimates are joined with estimates only.

    A ratio is formed inside one block. Recordings from before there were blocks have one per file and problem.
    """

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self._best: dict[tuple[Any, ...], float] = {}
        self._busy: dict[tuple[Any, ...], float | None] = {}
        for each in rows:
            self.add(each)

    def add(self, row: Row) -> None:
        """Remember the times of *row* for the rows of its problem."""
        if row.get("time_s") is None:
            return
        part = row.get("part")
        if part in (COMPUTE, COMMUNICATION):
            self._lower((part, *same_part(row, part)), row["time_s"])
            self._busy[part, *same_part(row, part)] = row.get("computing_s" if part == COMPUTE else "moving_s")
        axes = row.get("axes") or {}
        if part in (None, "whole") and stream_controls.has_controls(axes) and stream_controls.off(axes) == axes:
            self._lower((STREAMS, *_same_streams(row)), row["time_s"])
        if part == COMMUNICATION and row.get("adds") is False and _is_minimal(row):
            self._lower((TRANSFER, *same_problem(row)), row["time_s"])
        if part == COMPUTE and row.get("scheme") == BASELINE:
            self._lower((WHOLE, *same_compute(row)), row["time_s"])
        if part == COMPUTE:
            self._lower((part, *same_compute(row)), row["time_s"])
            self._lower((FASTEST, *same_compute(row)), _fastest_compute_s(row))
            self._lower((FASTEST, *same_compute(_any_block(row))), _fastest_compute_s(row))
        if row.get("scheme") == BASELINE and part in ("communication", "whole"):
            self._lower((part, *same_problem(row)), row["time_s"])
            collective = axes.get("collective")
            if part == "whole" and collective != library.OVERLAPPED:
                self._lower((PLAIN, *same_problem(row)), row["time_s"])
            if part == "whole" and collective in library.CALLS:
                self._lower((LIBRARY, *same_problem(row)), row["time_s"])

    def _lower(self, key: tuple[Any, ...], seconds: float) -> None:
        self._best[key] = min(seconds, self._best.get(key, seconds))

    def fill(self, row: Row) -> dict[str, Any]:
        """*row* with the numbers of JOINED and pipeline_floor_s; None if their trials are missing."""
        compute_s = self._best.get(("compute", *same_compute(row)))
        fastest_s = self._best.get((FASTEST, *same_compute(row)))
        joined = {
            "compute_s": compute_s,
            "comm_s": self._best.get(("communication", *same_problem(row))),
            "sequential_s": self._best.get(("whole", *same_problem(row))),
            "plain_s": self._best.get((PLAIN, *same_problem(row))),
            "library_s": self._best.get((LIBRARY, *same_problem(row))),
            "whole_s": self._best.get((WHOLE, *same_compute(row))),
            "transfer_s": self._best.get((TRANSFER, *same_problem(row))),
            "floor_s": _floor_of(row, self._best.get((FASTEST, *same_compute(_any_block(row))))),
            "pipeline_floor_s": _pipeline_floor_of(row, fastest_s),
        }
        return _with_ratio({**row, **joined, **signatures({**row, **joined}, self._alone(row)), **self._against(row)})

    def completed(self, row: Row) -> dict[str, Any]:
        """*row* filled from all rows added so far; a number that is missing now keeps its earlier value."""
        return {**row, **{key: value for key, value in self.fill(row).items() if value is not None}}

    def _against(self, row: Row) -> dict[str, float | None]:
        """The column against_streams, for a row of a whole trial with controls; else None."""
        streams_s = self._best.get((STREAMS, *_same_streams(row)))
        controlled = stream_controls.has_controls(row.get("axes") or {})
        whole = controlled and row.get("part") in (None, "whole") and row.get("time_s")
        return {"against_streams": against_streams(row["time_s"], streams_s) if whole and streams_s else None}

    def _alone(self, row: Row) -> PiecesAlone:
        """Times of the row's own pieces alone, and their busy times if there were spans."""
        times = [self._best.get((part, *same_part(row, part))) for part in (COMPUTE, COMMUNICATION)]
        busy = [self._busy.get((part, *same_part(row, part))) for part in (COMPUTE, COMMUNICATION)]
        return PiecesAlone(*times, *busy)


def fill(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """All *rows* with the numbers of JOINED and pipeline_floor_s, from the trials among *rows*."""
    return [*map(Joins(rows).fill, rows)]


def agreed_in_block(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """*rows* with equal joined numbers in each block: an early row was joined with fewer trials."""
    least: dict[tuple[Any, ...], float] = {}
    join_keys = [dict.fromkeys(JOINED, same_problem(each)) | {FLOOR: same_problem(_any_block(each))} for each in rows]
    for each, join_key in zip(rows, join_keys, strict=True):
        for key in JOINED:
            if (seconds := each.get(key)) is not None:
                least[key, *join_key[key]] = min(seconds, least.get((key, *join_key[key]), seconds))
    return [_with_ratio({**each, **{key: least.get((key, *join_key[key])) for key in JOINED}})
            for each, join_key in zip(rows, join_keys, strict=True)]  # fmt: skip


def _with_ratio(row: dict[str, Any]) -> dict[str, Any]:
    """A joined *row* with its time over that of the best sequential schedule; None for parts."""
    time_s, sequential_s = row.get("time_s"), row.get("sequential_s")
    known = row.get("part") in (None, "whole") and time_s and sequential_s
    return row | {"time_ratio": time_ratio(row["time_s"], row["sequential_s"]) if known else None}


def same_part(row: Row, part: str) -> tuple[Any, ...]:
    """Key of schedules whose *part* alone is the same trial; computation alone does not depend on the link."""
    half = sequential.of_half if row.get("scheme") == BASELINE else stream_controls.of_half
    axes = half(row.get("axes") or {}, part)
    return *same_compute(row), row.get("scheme"), tuple(sorted(axes.items()))


def _same_streams(row: Row) -> tuple[Any, ...]:
    """Key of two-stream schedules that differ only in their controls."""
    return *same_problem(row), row.get("scheme"), tuple(sorted(stream_controls.off(row.get("axes") or {}).items()))


def _is_minimal(row: Row) -> bool:
    """Whether only the bytes that the operator needs leave a rank."""
    return bool(row.get("minimal_wire_bytes")) and row.get("wire_bytes_per_rank") == row.get("minimal_wire_bytes")


def _fastest_compute_s(row: Row) -> float:
    """The fastest time of computation alone: bounds must hold on a computer without other load.

    It is the fast tenth of measured samples. The low end of an estimate is its uncertainty, and no bound.
    """
    low_s = None if row.get("source") == "estimated" else row.get("low_s")
    return float(row["time_s"] if low_s is None else low_s)


def _floor_of(row: Row, compute_s: float | None) -> float | None:
    needed, link = row.get("minimal_wire_bytes"), row.get("link_bytes_per_second")
    if compute_s is None or needed is None:
        return None
    return compute_s if needed == 0 else link and floor(compute_s, needed, link)


def _pipeline_floor_of(row: Row, compute_s: float | None) -> float | None:
    """The pipeline floor of *row*; None if puts were not measured, or nothing is sent in slices."""
    needed, rate, share = (row.get(key) for key in ("minimal_wire_bytes", "put_bytes_per_second", "first_slice_share"))
    if compute_s is None or not needed or rate is None or share is None:
        return None
    return pipeline_floor(compute_s, needed, rate, share * compute_s)


def same_compute(row: Row) -> tuple[Any, ...]:
    """Key of rows with the same computation alone: in one block, all measured or all estimated, over any link."""
    return row.get("source") == "estimated", row.get("block"), *computation_of(row)


def _any_block(row: Row) -> Row:
    """*row* in one block for all: the floor of a problem is one number."""
    return {**row, "block": ANY_BLOCK}


def same_problem(row: Row) -> tuple[Any, ...]:
    """Key of rows of one problem and block, all measured or all estimated: ratios are formed among these."""
    return row.get("source") == "estimated", row.get("block"), *problem_of(row)
