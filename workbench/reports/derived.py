"""What follows from the times of one schedule, for people: a number with its unit, and what it means in one line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernels.outcome import Span
from kernels.problem import Problem
from kernels.units import percent_text, rate_text, seconds_text
from workbench import bandwidths, busy, metrics
from workbench.metrics import JOINED
from workbench.reports.tables import Cell, Column, Table

Row = Mapping[str, Any]

MEANING: Mapping[str, str] = {
    "time ratio": "its time over the sequential one: below 1 is faster",
    "against streams alone": "its time over the same two streams without priority, shaping or SMs set aside",
    "exposed communication": "what communication adds to the computation",
    "of the library's exposed": "this exposed communication over that of computing first and calling the library then",
    "pipeline floor": "computation alone, or the first slice and then the wire at the measured rate of puts",
    "of the pipeline floor": "its time over that floor: what its slices leave to be gained",
    "put rate": "bytes that leave a rank per second, its puts alone",
    "overlap efficiency": "saved time, of the most that overlap can save",
    "ideal speed-up": "of perfect overlap: the best computation and the fastest transfer alone, one after the other",
    "share of ideal": "gained speed-up, of the one of perfect overlap",
    "overlap ratio": "of the time in which a rank communicates, it computes as well",
    "decomposition loss": "computation alone, cut and ordered as this schedule does, over the best one alone",
    "contention loss": "its computation beside communication over the same alone",
    "decomposition loss of communication": "its pieces moved alone over the fastest transfer of the same bytes",
    "contention loss of communication": "its bytes on their way beside computation over the same alone",
    "algbw": "the collective alone: bytes of its buffer per second, as nccl-tests counts them",
    "busbw": "the collective alone: what one link direction carries, as nccl-tests counts it",
}


@dataclass(frozen=True, slots=True)
class Derived:
    """One derived number of one schedule."""

    name: str
    text: str
    """The value with its unit."""
    meaning: str


def derived(row: Row, spans: Sequence[Span], pieces_alone_s: float | None) -> list[Derived]:
    """Those of *row* that are known: *spans* and *pieces_alone_s* are as for `busy.waterfall`."""
    time_s, pipeline_s, compute_s, comm_s, sequential_s, plain_s, library_s, whole_s, transfer_s = (
        row.get(key) for key in ("time_s", "pipeline_floor_s", *JOINED[1:])
    )
    losses, together = (row.get(key) or {} for key in ("decomposition_loss", "contention_loss"))
    problem = Problem(row["operator"], tuple(row["shape"].items()), row["dtype"], row["world"])
    wire_s = comm_s if problem.world > 1 and comm_s else None  # a rank alone has nobody to send to
    computing_s = busy.computing_seconds(busy.per_problem(spans, row)) or None
    known = {
        "time ratio": _said(_ratio, metrics.time_ratio, time_s, sequential_s),
        "against streams alone": _said(_ratio, float, row.get("against_streams")),
        "exposed communication": _said(seconds_text, metrics.exposed_communication, time_s, compute_s),
        "of the library's exposed": _said(_share, metrics.exposed_share, time_s, library_s, compute_s),
        "pipeline floor": _said(seconds_text, float, pipeline_s),
        "of the pipeline floor": _said(_ratio, metrics.time_ratio, time_s, pipeline_s),
        "put rate": _said(_from(row), float, row.get("put_bytes_per_second") if pipeline_s else None),
        "overlap efficiency": _said(_share, metrics.overlap_efficiency, time_s, plain_s, compute_s, wire_s),
        "ideal speed-up": _said(_ratio, metrics.ideal_speedup, whole_s, transfer_s),
        "share of ideal": _said(_share, metrics.share_of_ideal, time_s, whole_s, transfer_s),
        "overlap ratio": _said(_share, busy.overlap_ratio, spans),
        "decomposition loss": _said(_ratio, metrics.decomposition_loss, pieces_alone_s, whole_s),
        "contention loss": _said(_ratio, float, together.get(metrics.COMPUTE))
        or _said(_ratio, metrics.contention_loss, computing_s, pieces_alone_s),
        "decomposition loss of communication": _said(_ratio, float, losses.get(metrics.COMMUNICATION)),
        "contention loss of communication": _said(_ratio, float, together.get(metrics.COMMUNICATION)),
        "algbw": _said(rate_text, bandwidths.algbw, problem, wire_s),
        "busbw": _said(rate_text, bandwidths.busbw, problem, wire_s),
    }
    return [Derived(name, text, MEANING[name]) for name, text in known.items() if text is not None]


def derived_table(numbers: Sequence[Derived]) -> Table:
    """One line a number."""
    columns = (Column(heading="Derived number"), Column(heading="Value", figure=True), Column(heading="What it means"))
    return Table(columns=columns, rows=tuple(tuple(map(Cell, (n.name, n.text, n.meaning))) for n in numbers))


def _said(written: Callable[[float], str], number: Callable[..., float | None], *given: Any) -> str | None:
    """The number of what is *given*, written; None while a part of it is missing."""
    value = None if None in given else number(*given)
    return None if value is None else written(value)


def _from(row: Row) -> Callable[[float], str]:
    """A rate with where it comes from."""
    return lambda rate: f"{rate_text(rate)} ({row.get('put_rate_from')})"


def _ratio(value: float) -> str:
    return f"{value:.3g} ×"


def _share(value: float) -> str:
    return percent_text(value)
