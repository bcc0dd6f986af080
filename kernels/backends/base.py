"""What every backend offers to the bench, and the layout of its symmetric memory, which all backends share."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple, Protocol

from kernels.operators import OPERATORS
from kernels.operators.base import Flow
from kernels.outcome import Span
from kernels.problem import Problem
from kernels.schedule import Schedule
from kernels.schemes import axis_rules
from kernels.trial import Trial

# Backend and PreparedTrial: prepare a trial, run it once, show its result and its spans.

LONGEST_COMPILATION_SECONDS = 60.0
"""Seconds after which a compilation counts as stuck: the largest kernel, a GEMM that sums, takes 3 s of one core."""

Compiling = Callable[[Trial, int], None]
"""Called before each compilation with the trial and its number from 0, since a rank is silent while it compiles."""


VALUES = 2
"""Sets of operand values for each seed (kernels/reference.py): micro-batch i uses sets 2 i and 2 i + 1, alternately."""


def agreed_seed(exchange: Callable[[Sequence[float]], list[list[float]]]) -> int:
    """A new random seed, the same on all ranks: rank 0 draws it, and the gang's *exchange* hands it out."""
    everyone = exchange([float(secrets.randbits(31))])
    return int(everyone[0][0])


def report_nothing(trial: Trial, number: int) -> None:
    """A `Compiling` that reports nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """A rank's place in a gang."""

    rank: int
    world: int
    session: str
    """Name of the gang of rank processes; the same on all of them, never used twice."""
    shares_heap: bool
    """Whether all ranks can map each other's memory (one host)."""
    rendezvous: tuple[str, int] | None = None
    """Host and port of a TCPStore, where the library's process group is needed."""
    addresses: tuple[str, ...] = ()
    """Address of each rank's host, by rank."""
    deadline_s: float = 30.0
    """Seconds that one wait inside a trial may take."""
    ranks_on_gpu: int = 1
    """How many rank processes take turns on this rank's GPU, those of other gangs included; 1: it has it alone."""

    @property
    def shares_gpu(self) -> bool:
        return self.ranks_on_gpu > 1


class Hang(TimeoutError):
    """A wait that outlasted its deadline; the message names rank, signal and epochs."""


class MissingSpans(RuntimeError):
    """Raised where spans could not be recorded, with the reason; the times that were measured remain valid."""

    alone = False
    """Whether this rank has lost track of its peers, so that the ranks can do nothing more together."""


class Ahead(NamedTuple):
    """Iterations that were enqueued one behind the other."""

    seconds: list[float]
    """Of each iteration, as `PreparedTrial.run` returns them."""
    busy_share: float | None
    """The share of time, from the first start to the last end, in which an iteration ran; None where nobody knows."""


class PreparedTrial(Protocol):
    """One trial, compiled and with its buffers in place. All ranks call the same methods in the same order."""

    @property
    def roundings(self) -> int:
        """How often a value is rounded to the problem's dtype on its way to the output."""

    @property
    def seed(self) -> int:
        """Seed of its operands: the same on all ranks, another one in every run."""

    def facts(self) -> Mapping[str, Any]:
        """How it is timed, in addition to its protocol; known once it was rehearsed or run."""

    def rehearse(self) -> Iterator[int]:
        """Runs the trial for verification. At each stop it yields the set of values that `result` must belong to.

        Calls on both sets come before, so that a call that leaves an earlier result in place is detected. Each
        micro-batch of a call has a stop. All ranks go through all stops.
        """

    def run(self) -> float:
        """Runs one iteration on all ranks together; returns seconds from the common start until all data are here.

        An iteration of several micro-batches returns the seconds of all of them divided by their number.
        """

    def run_ahead(self, count: int) -> Ahead:
        """Runs *count* iterations, the next enqueued while one runs, so that the device does not rest in between."""

    def result(self) -> Any:
        """This rank's output tensor, as the reference shapes it."""

    def spans(self, iteration: int) -> Sequence[Span]:
        """Spans of one iteration since the last call of `forget`, or of one more; MissingSpans where there are none."""

    def forget(self) -> None:
        """Drops the spans so far: the next iteration is number 0."""


class Backend(Protocol):
    """One rank of a gang, as the bench sees it."""

    seat: Seat
    """This rank's place; between two lists of trials only its deadline may change."""

    device: str
    """Torch's name of the device on which operands are drawn and the reference is computed."""

    def refusal(self, trial: Trial) -> str | None:
        """Why *trial* cannot run in this gang, or None: the same on every rank."""

    def prepare(self, trials: Sequence[Trial], compiling: Compiling = report_nothing) -> Sequence[PreparedTrial]:
        """Compiles trials of one problem, none of them refused; their operands are the same tensors.

        Calls *compiling* before each of them. Ranks differ by at most one compilation.
        """

    def barrier(self) -> float:
        """Waits until all ranks are here; returns the common moment of leaving."""

    def exchange(self, values: Sequence[float]) -> list[list[float]]:
        """All ranks' *values* by rank (equal lengths)."""

    def condition(self) -> dict[str, Any]:
        """The device's present clocks, power and temperature; empty where they cannot be read."""

    def close(self) -> None:
        """Frees memory and closes connections."""


# The heap: which tensors lie in symmetric memory, and at which offsets. It is the same on every rank and backend.

ALIGNMENT = 128
"""Bytes of a line of a GPU's L2, which is also the alignment that its bulk copy engine needs."""


@dataclass(frozen=True, slots=True)
class Region:
    """One tensor of the heap, at the same offset on every rank."""

    offset: int
    shape: tuple[int, ...]


def regions(problem: Problem, schedule: Schedule) -> dict[str, Region]:
    """Offsets and shapes of the heap's tensors for *schedule*, by name."""
    operator, extent, world = OPERATORS[problem.operator], OPERATORS[problem.operator].extent(problem), problem.world
    rows, chunk = extent.rows, operator.chunk_rows(problem)
    if operator.flow is Flow.RECEIVE:
        shapes: dict[str, tuple[int, ...]] = {
            "operand": (rows, extent.contraction),
            "staging": (rows, extent.contraction),
        }
    elif operator.flow is Flow.BROADCAST:
        staged = rows if schedule.get("collective") == "one_shot" else chunk
        shapes = {"stage": (world, staged, extent.columns), "out": (rows, extent.columns)}
    elif operator.reduces and not axis_rules.sums_in_ring(schedule):
        shapes = {"stage": (world, chunk, extent.columns), "out": (chunk, extent.columns)}
    else:
        shapes = {"out": operator.local(problem)["output"]}
    if axis_rules.relays(problem, schedule):
        shapes |= {"stage": (world, chunk, extent.columns)}
    return place(shapes, problem.itemsize)


def place(shapes: Mapping[str, tuple[int, ...]], itemsize: int, start: int = 0) -> dict[str, Region]:
    """Lays tensors with *itemsize* bytes an element one after the other from offset *start*."""
    placed, offset = {}, start
    for name, shape in shapes.items():
        placed[name] = Region(offset, shape)
        offset = aligned(offset + prod(shape) * itemsize)
    return placed


def aligned(num_bytes: int) -> int:
    """The first offset from *num_bytes* on at which a tensor may begin."""
    return -(-num_bytes // ALIGNMENT) * ALIGNMENT


def heap_bytes(problem: Problem, schedule: Schedule) -> int:
    """Bytes of heap that *schedule* needs on every rank."""
    return max(region.offset + problem.itemsize * prod(region.shape) for region in regions(problem, schedule).values())
