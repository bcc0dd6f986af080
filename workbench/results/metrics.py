"""Derived numbers, one function each, and the join that completes a row from the trials of the same problem."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.machine import Machine
from kernels.operators import OPERATORS
from kernels.operators.base import Flow
from kernels.outcome import Outcome, Span, row
from kernels.plan import Ints, Kind, Plan, Pool
from kernels.problem import Problem
from kernels.schedule import Schedule
from kernels.schemes import BASELINE, axis_rules, expand, library, sequential, stream_controls
from kernels.schemes.concurrent import problems
from kernels.trial import Trial
from workbench.results.rows import computation_of, problem_of
from workbench.simulator.price import messages, tiles

# How fast a collective is, as nccl-tests counts it.


def algbw(problem: Problem, comm_s: float) -> float:
    """Bytes of the collective's buffer per second, as nccl-tests counts them."""
    return _buffer_bytes(problem) / comm_s


def busbw(problem: Problem, comm_s: float) -> float:
    """algbw times nccl-tests' factor: what one link direction carries, whatever the world."""
    world = problem.world
    share = 2 if OPERATORS[problem.operator].collective == "all_reduce" else 1
    return algbw(problem, comm_s) * share * (world - 1) / world


def _buffer_bytes(problem: Problem) -> int:
    """nccl-tests' size: the larger of what a rank puts in and gets out."""
    operator = OPERATORS[problem.operator]
    extent = operator.extent(problem)
    width = extent.contraction if operator.flow == "receive -> compute" else extent.columns
    return extent.rows * width * problem.itemsize


# What a pipeline needs beside computation and wire: its first slice, and the rate at which puts were measured.

EMULATED = "what the emulated link carries"
MEASURED = "calibrated"
"""How the provenance begins of what was measured on a running machine."""


@dataclass(frozen=True, slots=True)
class PutRate:
    """How fast puts leave one rank."""

    bytes_per_second: float
    source: str
    """Where it comes from, as the machine's file says."""


def put_rate(trial: Trial, machine: Machine | None) -> PutRate | None:
    """Of the puts of *trial*'s schedule; None where nobody measured them: datasheets say nothing of puts.

    On GPUs the machine's calibrated curve of the way that its bytes leave (`store`, copy engines, how many SMs send),
    at the bytes that leave each rank. An emulated link carries what it was told to.
    """
    if trial.fabric.emulated:
        known = emulated_rate(trial)
        return None if known is None else PutRate(known, EMULATED)
    if machine is None or trial.world == 1:
        return None
    axes = dict(trial.schedule.axes)
    source = machine.provenance_of(f"rate.{messages.way(axes)}.any")
    if not source.startswith(MEASURED):
        return None
    byte_seconds = messages.put_byte_seconds(trial.problem, machine, trial.fabric, axes)
    return None if byte_seconds is None else PutRate(1.0 / float(byte_seconds), source)


def emulated_rate(trial: Trial) -> float | None:
    """The highest rate at which the least bytes of *trial* leave a rank of an emulated fabric; None: not resolved.

    Of several hosts, what each peer gets of its own crosses once for each peer, and what is the same for all ranks of a
    host once for the host, however it is handed on there.
    """
    fabric, world = trial.fabric, trial.world
    each_its_own = OPERATORS[trial.problem.operator].collective == "all_to_all" or world == 1
    return fabric.rate(world, None if each_its_own else (fabric.hosts - 1) / (world - 1))


def first_slice_share(trial: Trial, machine: Machine | None) -> float | None:
    """What of the computation alone no put can hide, as a share; None for schedules that do not overlap.

    Before the wire begins, the first slice is computed; where operands come in, the last one is after the wire has
    ended. Tiles are computed in waves, as many at once as the device has slots. A GPU's kernel sends each tile as soon
    as it is done, so that its first slice is one wave.
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
    """How often *slots* tiles at once are computed until *tiles* are."""
    return -(-tiles // slots)


def first_tiles(plan: Plan) -> int | None:
    """Tiles that the rank that begins last has computed when its first put leaves; None where none waits for tiles."""
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
    """How many tiles wait for the last operands that come in; None where none waits."""
    waiting, _ = _waits(plan, (Kind.COMPUTE,), (Kind.PUT, Kind.COPY))
    if not len(waiting):
        return None
    last = waiting.max()
    return int(plan.tile_stop[last] - plan.tile_start[last])


def _waits(plan: Plan, waiting: Sequence[Kind], needed: Sequence[Kind]) -> tuple[Ints, Ints]:
    """Pairs of steps: one of the kinds *waiting*, and one of the kinds *needed* that it waits for."""
    who = np.repeat(np.arange(len(plan)), np.diff(plan.after_start))
    chosen = np.isin(plan.kind[who], waiting) & np.isin(plan.kind[plan.after], needed)
    return who[chosen], plan.after[chosen]


# When a rank is busy: spans as intervals, how long the slowest rank computes or moves bytes, how far both overlap, and

BUSY_COMPUTE = Pool.COMPUTE.word
"""The pool whose spans say when a rank's processors are busy."""
SENDS = frozenset(kind.word for kind in (Kind.PUT, Kind.COLLECTIVE))

LOSSES = ("disturbance", "fill and drain", "decomposition", "contention")
"""The parts of a waterfall between the floor and what is left unexplained."""


def overlap_ratio(spans: Iterable[Span]) -> float | None:
    """Time in which compute and communication both run, over the time in which communication runs; over all ranks.

    Processors that move the bytes of a put do not compute meanwhile. What runs on a stream on which nothing is computed
    is communication, whoever moves it: SMs that push on a stream of their own leave the others to compute.
    """
    of_rank: dict[int, list[Span]] = defaultdict(list)
    for span in spans:
        of_rank[span.rank].append(span)
    both = communicating = 0.0
    for each in of_rank.values():
        computing = {span.stream for span in each if span.kind == "compute"}
        here = [span for span in each if span.pool == BUSY_COMPUTE and span.stream in computing]
        computes = merged(span for span in here if span.kind not in SENDS)
        sends = merged(span for span in each if span.pool != BUSY_COMPUTE or span.stream not in computing)
        communicating += sum(stop - start for start, stop in sends)
        both += sum(max(0.0, min(a[1], b[1]) - max(a[0], b[0])) for a in computes for b in sends)
    return both / communicating if communicating > 0 else None


def waterfall(
    measured: Mapping[str, Any], spans: Sequence[Span], pieces_alone_s: float | None
) -> dict[str, float | None] | None:
    """From the floor to the measured time, in seconds by part: those that are known sum to time_s.

    A part is None while what it is made of was not timed; None without floor or time. *spans* are of one iteration,
    *pieces_alone_s* is the compute part of the same schedule. Fill and drain is the time before the busier of the
    slowest rank's processors and links begins and after it ends. The floor is of computation at its fastest, the other
    parts are of what it usually takes: the disturbance leads from the one to the other. A loss of computation counts
    from the floor upwards: below it, it hides behind the wire.
    """
    floor_s, compute_s, time_s = (measured.get(key) for key in ("floor_s", "compute_s", "time_s"))
    if floor_s is None or time_s is None:
        return None
    spans = per_problem(spans, measured)
    times = (compute_s, pieces_alone_s, computing_seconds(spans) if spans else None)
    usual_s, pieces_s, together_s = (None if each is None else max(floor_s, each) for each in times)
    losses: dict[str, float | None] = {
        "floor": floor_s,
        "disturbance": _more(usual_s, floor_s),
        "fill and drain": _fill_and_drain(of_slowest(spans)) if spans else None,
        "decomposition": _more(pieces_s, usual_s),
        "contention": _more(together_s, pieces_s),
    }
    return {**losses, "unexplained": time_s - sum(each for each in losses.values() if each is not None)}


def unknown(parts: Mapping[str, float | None]) -> list[str]:
    """The losses of a waterfall that are not known."""
    return [part for part in LOSSES if parts.get(part) is None]


def _more(later_s: float | None, before_s: float | None) -> float | None:
    """What *later_s* is more than *before_s*, where both are known."""
    return None if later_s is None or before_s is None else later_s - before_s


def _fill_and_drain(slowest: Sequence[Span]) -> float:
    """The time before the busier of processors and links begins and after it ends, of the spans of one rank."""
    processors = merged(span for span in slowest if span.pool == BUSY_COMPUTE)
    sends = merged(span for span in slowest if span.pool != BUSY_COMPUTE)
    busier = max(processors, sends, key=total)
    return busier[0][0] + max(span.stop_s for span in slowest) - busier[-1][1]


def per_problem(spans: Sequence[Span], row: Mapping[str, Any]) -> Sequence[Span]:
    """*spans* of one call of *row*'s schedule, shortened by the number of problems of a call, as its time is."""
    count = problems(Schedule(str(row.get("scheme")), tuple((row.get("axes") or {}).items())))
    if count == 1:
        return spans
    return [span._replace(start_s=span.start_s / count, stop_s=span.stop_s / count) for span in spans]


def computing_seconds(spans: Sequence[Span]) -> float:
    """How long the slowest rank computes in the iteration of *spans*; 0 without any."""
    return total(merged(span for span in of_slowest(spans) if span.kind == "compute"))


def moving_seconds(spans: Sequence[Span]) -> float:
    """How long bytes of the slowest rank are on their way, by whoever moves them."""
    return total(merged(span for span in of_slowest(spans) if span.kind in SENDS))


def of_slowest(spans: Sequence[Span]) -> list[Span]:
    """Those of the rank that ends last."""
    slowest = max(spans, key=lambda span: span.stop_s).rank if spans else None
    return [span for span in spans if span.rank == slowest]


def total(intervals: Sequence[tuple[float, float]]) -> float:
    """Seconds of intervals that do not touch."""
    return sum(stop - start for start, stop in intervals)


def merged(spans: Iterable[Span]) -> list[tuple[float, float]]:
    """The spans as intervals that do not touch."""
    merged: list[tuple[float, float]] = []
    for start, stop in sorted((span.start_s, span.stop_s) for span in spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(stop, merged[-1][1])
        else:
            merged.append((start, stop))
    return merged


# Derived numbers, one function each, and the join that completes a row from the trials of the same problem.

Row = Mapping[str, Any]

PIPELINE_KEYS = ("put_bytes_per_second", "put_rate_from", "first_slice_share")
"""Columns of schedules that overlap: what the pipeline floor is computed from (workbench/results/metrics.py)."""
SIGNATURE_KEYS = ("adds", "computing_s", "moving_s")
"""Columns that the signatures of pieces are computed from (`row_of`)."""
EXTRA_KEYS = ("minimal_wire_bytes", "link_bytes_per_second", "predictor", "machine_digest", *PIPELINE_KEYS,
              *SIGNATURE_KEYS)  # fmt: skip
"""Columns beside kernels.outcome.ROW_KEYS: what floors are computed from, and what an estimate rests on."""
FLOOR = "floor_s"
JOINED = (FLOOR, "compute_s", "comm_s", "sequential_s", "plain_s", "library_s", "whole_s", "transfer_s")
"""What `fill` adds to a row: the floor of its problem, the rest of its block. sequential_s is the fastest baseline,
plain_s the fastest that does not overlap, library_s the fastest whose collective is the library's (NCCL, gloo). whole_s
is T_c, the best whole computation alone, and transfer_s is T_comm, the fastest transfer of the minimal bytes in which
nothing is added. It adds pipeline_floor_s, too, of the row's own slices, and the signatures of its own pieces."""


def floor(compute_s: float, minimal_wire_bytes: float, link_bytes_per_second: float) -> float:
    """No schedule is faster: compute alone at its fastest, or the minimal bytes over one link direction."""
    return max(compute_s, minimal_wire_bytes / link_bytes_per_second)


def pipeline_floor(
    compute_s: float, minimal_wire_bytes: float, put_bytes_per_second: float, first_slice_s: float
) -> float:
    """Seconds that no schedule in these slices beats: computation alone, or the first slice and then the wire.

    The wire takes the minimal bytes at the rate at which puts were measured, and has nothing to send before the first
    slice is computed (where operands come in, the last slice is computed after it). So a fused kernel is bound as
    arXiv:2305.06942 describes it: tiles that others need are computed and sent first, and the rest hides the wire.
    """
    return max(compute_s, minimal_wire_bytes / put_bytes_per_second + first_slice_s)


def exposed_communication(time_s: float, compute_s: float) -> float:
    """Seconds that communication adds to the computation."""
    return time_s - compute_s


def exposed_share(time_s: float, library_s: float, compute_s: float) -> float | None:
    """Of the communication that the library's sequential schedule exposes, the share that this one exposes.

    0: all of it is hidden; above 1: more is exposed than by computing first and calling NCCL (or gloo) then. None where
    the library exposes nothing.
    """
    exposed_s = exposed_communication(library_s, compute_s)
    return exposed_communication(time_s, compute_s) / exposed_s if exposed_s > 0 else None


def overlap_efficiency(time_s: float, plain_s: float, compute_s: float, comm_s: float) -> float | None:
    """Saved time over the most that could be saved; None where there is nothing to hide.

    *plain_s*: the fastest baseline that does not overlap; of torch's overlapped operators nobody knows the parts.
    """
    hideable = min(compute_s, comm_s)
    return (plain_s - time_s) / hideable if hideable > 0 else None


def decomposition_loss(pieces_alone_s: float, whole_alone_s: float) -> float:
    """How much slower the pieces compute than the whole, nothing else running."""
    return pieces_alone_s / whole_alone_s


def contention_loss(together_s: float, alone_s: float) -> float:
    """How much slower something is beside the other part than alone."""
    return together_s / alone_s


def ideal_speedup(whole_s: float, transfer_s: float) -> float:
    """S_ideal, of perfect overlap over one after the other: (T_c + T_comm) / max(T_c, T_comm) (arXiv:2512.10236)."""
    return (whole_s + transfer_s) / max(whole_s, transfer_s)


def share_of_ideal(time_s: float, whole_s: float, transfer_s: float) -> float | None:
    """(S - 1) / (S_ideal - 1), S = (T_c + T_comm) / T; None where nothing can be hidden, and below 0 where it is worse.

    *whole_s* is the best whole computation alone, *transfer_s* the fastest transfer of the minimal bytes that adds
    nothing, both measured in the block of *time_s*.
    """
    ideal = ideal_speedup(whole_s, transfer_s) - 1
    return ((whole_s + transfer_s) / time_s - 1) / ideal if ideal > 0 else None


def time_ratio(time_s: float, sequential_s: float) -> float:
    """Below 1 is faster than sequential."""
    return time_s / sequential_s


def against_streams(time_s: float, streams_s: float) -> float:
    """What the controls of two streams bring: below 1 is faster than the same streams with every control off.

    arXiv:2606.09200 calls it the normalised time. *streams_s* is of the same block, computation and collective.
    """
    return time_s / streams_s


def above_longer(time_s: float, compute_s: float, comm_s: float) -> float:
    """What a time is more than the longer of both parts alone, as a share of it: 0 where the other one is hidden."""
    return time_s / max(compute_s, comm_s) - 1


def speed_up(time_s: float, sequential_s: float) -> float:
    """Above 1 is faster than sequential."""
    return sequential_s / time_s


def gain(row: Row) -> float | None:
    """The speed-up of *row* over the best sequential schedule of its own block, or None where none was timed there.

    Every table, sentence and chart takes the ratio of a schedule from here: another block may have been quieter.
    """
    time_s, sequential_s = row.get("time_s"), row.get("sequential_s")
    return speed_up(time_s, sequential_s) if time_s and sequential_s else None


def above_floor(time_s: float, floor_s: float) -> float:
    """What a time is more than its floor, as a share of the floor."""
    return time_s / floor_s - 1


def apart(first: Row, second: Row) -> bool:
    """Whether two times can be told from each other: neither lies within the other's spread, its middle 80 %."""
    return not (_within(first, second) or _within(second, first))


def _within(one: Row, other: Row) -> bool:
    """Whether the time of *one* lies within the spread of *other*."""
    low_s, high_s = (other["time_s"] if other.get(key) is None else other[key] for key in ("low_s", "high_s"))
    return bool(low_s <= one["time_s"] <= high_s)


def wire_bytes(trial: Trial) -> int:
    """Bytes that leave the rank that sends most, by the trial's plan; of one problem, as its time is."""
    plan = expand(trial.problem, trial.schedule).part(trial.part)
    return max(plan.wire_bytes(rank) for rank in range(trial.world)) // problems(trial.schedule)


def adds(trial: Trial) -> bool:
    """Whether what *trial* does beside computing sums contributions, too: then it is no transfer alone."""
    plan = expand(trial.problem, trial.schedule)
    sums = (Kind.REDUCE, Kind.COLLECTIVE) if OPERATORS[trial.problem.operator].reduces else (Kind.REDUCE,)
    return any(kind in plan.kind for kind in sums)


def link_bytes_per_second(trial: Trial, machine: Machine | None) -> float | None:
    """The rate at which a rank's least bytes can leave: over emulated links, else over the machine's fastest."""
    if trial.fabric.emulated:
        return emulated_rate(trial)
    if machine is None or not machine.dimensions:
        return None
    return max(dimension.bandwidth_bytes_per_second for dimension in machine.dimensions)


def row_of(outcome: Outcome, run: str | None = None, machine: Machine | None = None) -> dict[str, Any]:
    """*outcome* as a row, all its axes named, with the bytes and bandwidth of its plan and fabric, and EXTRA_KEYS."""
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
    }


FASTEST, PLAIN, LIBRARY = "compute at its fastest", "whole, not overlapped", "whole by the library"
"""What Joins remembers bounds of the computation by, and sequential schedules that are told apart."""
WHOLE, TRANSFER = "computation in one piece", "transfer that adds nothing"
"""And what T_c and T_comm are the fastest of."""
COMPUTE, COMMUNICATION = "compute", "communication"
"""The parts of a trial, and of a loss."""
STREAMS, ANY_BLOCK = "two streams without controls", "any block"
"""And what a schedule with controls is compared with."""


@dataclass(frozen=True, slots=True)
class PiecesAlone:
    """What the pieces of one schedule take alone, each part in seconds; None where it was not timed in the block."""

    compute_s: float | None = None
    communication_s: float | None = None
    computing_s: float | None = None
    """As spans of that part say it, where there are any: only what is busy is compared with what is busy."""
    moving_s: float | None = None


def signatures(row: Row, alone: PiecesAlone) -> dict[str, Any]:
    """The losses and the share of ideal of a filled *row*; None where a part is missing, and of parts themselves.

    Decomposition: pieces alone over the whole alone, T_c and T_comm. Contention: pieces together over pieces alone.
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
    """*loss* of each part whose two times are known; None where no part has one."""
    known = {part: loss(*times) if None not in times and times[1] else None for part, times in parts.items()}  # type: ignore[arg-type]
    return known if any(known.values()) else None


class Joins:
    """The best times of the parts seen so far, by block and problem; estimates are joined with estimates alone.

    A ratio is formed inside one block; what was recorded before there were blocks is of one for each file and problem.
    """

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self._best: dict[tuple[Any, ...], float] = {}
        self._busy: dict[tuple[Any, ...], float | None] = {}
        for each in rows:
            self.add(each)

    def add(self, row: Row) -> None:
        """Remember what *row* says about its problem."""
        if row.get("time_s") is None:
            return
        part = row.get("part")
        if part in (COMPUTE, COMMUNICATION):
            self._lower((part, *own_part(row, part)), row["time_s"])
            self._busy[part, *own_part(row, part)] = row.get("computing_s" if part == COMPUTE else "moving_s")
        axes = row.get("axes") or {}
        if part in (None, "whole") and stream_controls.has_controls(axes) and stream_controls.off(axes) == axes:
            self._lower((STREAMS, *_streams(row)), row["time_s"])
        if part == COMMUNICATION and row.get("adds") is False and _is_minimal(row):
            self._lower((TRANSFER, *same_problem(row)), row["time_s"])
        if part == COMPUTE and row.get("scheme") == BASELINE:
            self._lower((WHOLE, *same_compute(row)), row["time_s"])
        if part == COMPUTE:
            self._lower((part, *same_compute(row)), row["time_s"])
            self._lower((FASTEST, *same_compute(row)), _fastest(row))
            self._lower((FASTEST, *same_compute(_of_any_block(row))), _fastest(row))
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
        """*row* with the numbers of JOINED and pipeline_floor_s; None where their trials are missing."""
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
            "floor_s": _floor_of(row, self._best.get((FASTEST, *same_compute(_of_any_block(row))))),
            "pipeline_floor_s": _pipeline_floor_of(row, fastest_s),
        }
        return _with_ratio({**row, **joined, **signatures({**row, **joined}, self._alone(row)), **self._against(row)})

    def completed(self, row: Row) -> dict[str, Any]:
        """*row* with what follows from all that was added by now; what it was told before stays where nothing does."""
        return {**row, **{key: value for key, value in self.fill(row).items() if value is not None}}

    def _against(self, row: Row) -> dict[str, float | None]:
        """What the controls of a whole row bring over the same streams without any."""
        streams_s = self._best.get((STREAMS, *_streams(row)))
        controlled = stream_controls.has_controls(row.get("axes") or {})
        whole = controlled and row.get("part") in (None, "whole") and row.get("time_s")
        return {"against_streams": against_streams(row["time_s"], streams_s) if whole and streams_s else None}

    def _alone(self, row: Row) -> PiecesAlone:
        """What the row's own pieces take alone, and for how long they are busy then where spans said it."""
        times = [self._best.get((part, *own_part(row, part))) for part in (COMPUTE, COMMUNICATION)]
        busy = [self._busy.get((part, *own_part(row, part))) for part in (COMPUTE, COMMUNICATION)]
        return PiecesAlone(*times, *busy)


def fill(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """All *rows* with the numbers of JOINED and pipeline_floor_s, each from the trials among *rows*."""
    return [*map(Joins(rows).fill, rows)]


def agreed(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """*rows* with the joined numbers of their block alike: a row that came early was told of fewer trials."""
    least: dict[tuple[Any, ...], float] = {}
    homes = [dict.fromkeys(JOINED, same_problem(each)) | {FLOOR: same_problem(_of_any_block(each))} for each in rows]
    for each, home in zip(rows, homes, strict=True):
        for key in JOINED:
            if (seconds := each.get(key)) is not None:
                least[key, *home[key]] = min(seconds, least.get((key, *home[key]), seconds))
    return [_with_ratio({**each, **{key: least.get((key, *home[key])) for key in JOINED}})
            for each, home in zip(rows, homes, strict=True)]  # fmt: skip


def _with_ratio(row: dict[str, Any]) -> dict[str, Any]:
    """A joined *row* with its time over that of the best sequential schedule; None of parts."""
    time_s, sequential_s = row.get("time_s"), row.get("sequential_s")
    known = row.get("part") in (None, "whole") and time_s and sequential_s
    return row | {"time_ratio": time_ratio(row["time_s"], row["sequential_s"]) if known else None}


def own_part(row: Row, part: str) -> tuple[Any, ...]:
    """What schedules have in common whose *part* alone is the same; of computation alone the link is no matter."""
    half = sequential.of_half if row.get("scheme") == BASELINE else stream_controls.of_half
    axes = half(row.get("axes") or {}, part)
    return *same_compute(row), row.get("scheme"), tuple(sorted(axes.items()))


def _streams(row: Row) -> tuple[Any, ...]:
    """What two streams have in common that differ in their controls alone."""
    return *same_problem(row), row.get("scheme"), tuple(sorted(stream_controls.off(row.get("axes") or {}).items()))


def _is_minimal(row: Row) -> bool:
    """Whether no more bytes leave a rank than the operator needs."""
    return bool(row.get("minimal_wire_bytes")) and row.get("wire_bytes_per_rank") == row.get("minimal_wire_bytes")


def _fastest(row: Row) -> float:
    """Of computation alone: a bound is what it can take, not what it usually takes on a computer that does more.

    The fast tenth of measured samples; the low end of an estimate is its uncertainty, and no bound.
    """
    low_s = None if row.get("source") == "estimated" else row.get("low_s")
    return float(row["time_s"] if low_s is None else low_s)


def _floor_of(row: Row, compute_s: float | None) -> float | None:
    needed, link = row.get("minimal_wire_bytes"), row.get("link_bytes_per_second")
    if compute_s is None or needed is None:
        return None
    return compute_s if needed == 0 else link and floor(compute_s, needed, link)


def _pipeline_floor_of(row: Row, compute_s: float | None) -> float | None:
    """None where puts were not measured, or nothing is sent in slices."""
    needed, rate, share = (row.get(key) for key in ("minimal_wire_bytes", "put_bytes_per_second", "first_slice_share"))
    if compute_s is None or not needed or rate is None or share is None:
        return None
    return pipeline_floor(compute_s, needed, rate, share * compute_s)


def same_compute(row: Row) -> tuple[Any, ...]:
    """Rows whose computation alone is the same: of one block, measured or estimated; any link will do."""
    return row.get("source") == "estimated", row.get("block"), *computation_of(row)


def _of_any_block(row: Row) -> Row:
    """*row* as a question about its problem in every block: a floor, which no schedule beats, is one number."""
    return {**row, "block": ANY_BLOCK}


def same_problem(row: Row) -> tuple[Any, ...]:
    """Rows of one problem and one block, measured or estimated: ratios are formed among these."""
    return row.get("source") == "estimated", row.get("block"), *problem_of(row)
