"""Which tensors of a trial lie in symmetric memory, and at which offsets: the same on every rank and every backend."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Protocol

from kernels.operators import OPERATORS
from kernels.operators.base import Flow
from kernels.outcome import Span
from kernels.problem import Problem
from kernels.schedule import Schedule
from kernels.trial import Trial

# What every backend offers to the bench: prepare a trial, run it once, show its result and its spans.

LONGEST_COMPILATION_SECONDS = 60.0
"""One compilation that takes longer has stopped: the largest kernel, a GEMM that sums, takes 3 s of one core."""

Compiling = Callable[[Trial, int], None]
"""Called with the trial that is compiled next, and how many were before it: a rank says nothing while it compiles."""


VALUES = 2
"""That operands drawn from one seed take in turns (kernels/reference.py): of micro-batch i 2 i and 2 i + 1."""


def agreed_seed(exchange: Callable[[Sequence[float]], list[list[float]]]) -> int:
    """A seed that was not used before, the same on all ranks: rank 0's, by the gang's *exchange*."""
    everyone = exchange([float(secrets.randbits(31))])
    return int(everyone[0][0])


def unheard(trial: Trial, number: int) -> None:
    """For those whom nobody waits for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """A rank's place in a gang."""

    rank: int
    world: int
    session: str
    """Names the gang of rank processes; the same on all of them, never used twice."""
    shares_heap: bool
    """Whether all ranks can map each other's memory (one host)."""
    rendezvous: tuple[str, int] | None = None
    """Host and port of a TCPStore, where the library's process group is needed."""
    addresses: tuple[str, ...] = ()
    """Address of each rank's host, by rank."""
    deadline_s: float = 30.0
    """How long one wait inside a trial may take."""


class Hang(TimeoutError):
    """A wait that outlasted its deadline; the sentence names rank, signal and epochs."""


class MissingSpans(RuntimeError):
    """Spans could not be taken, and the sentence says why; what was timed stands."""

    alone = False
    """Whether this rank no longer knows how far its peers are: there is nothing more to be done together."""


class PreparedTrial(Protocol):
    """One trial, compiled and with its buffers in place. All ranks call the same methods in the same order."""

    @property
    def roundings(self) -> int:
        """How often a value is rounded to the problem's dtype on its way to the output."""

    @property
    def seed(self) -> int:
        """That its operands were drawn from, the same on all ranks, and not that of other runs."""

    def facts(self) -> Mapping[str, Any]:
        """How it is timed, beside its protocol, for who reads its times; known once it was rehearsed or run."""

    def rehearse(self) -> Iterator[int]:
        """Runs what is to be verified. At each stop `result` has to be that of the operands' values that it names.

        Calls on both values come before, so that one that leaves an earlier result in place is seen. Each micro-batch
        of a call has a stop. All ranks go through all stops.
        """

    def run(self) -> float:
        """One iteration of all ranks together; seconds from the common start until all data are here.

        Of several micro-batches in one iteration: seconds of each, which are those of all divided by their number.
        """

    def result(self) -> Any:
        """This rank's output tensor, as the reference shapes it."""

    def spans(self, iteration: int) -> Sequence[Span]:
        """When the steps of one of the iterations since the last call of `forget` ran, or of one more; or Unseen."""

    def forget(self) -> None:
        """Drops the spans so far: the next iteration is number 0."""


class Backend(Protocol):
    """One rank's end of a gang."""

    seat: Seat
    """Replaced between lists of trials by one with another deadline and otherwise the same."""

    device: str
    """Where operands are drawn and the reference is computed, as torch names it."""

    def refusal(self, trial: Trial) -> str | None:
        """Why *trial* cannot run in this gang, or None: the same on every rank."""

    def prepare(self, trials: Sequence[Trial], compiling: Compiling = unheard) -> Sequence[PreparedTrial]:
        """Compiles trials of one problem, none of them refused; their operands are the same tensors.

        Calls *compiling* before each of them. No rank is ahead of another by more than one compilation.
        """

    def barrier(self) -> float:
        """All ranks meet; returns the common moment of leaving."""

    def exchange(self, values: Sequence[float]) -> list[list[float]]:
        """Everybody's *values* by rank (equal lengths)."""

    def condition(self) -> dict[str, Any]:
        """This rank's device just now: clocks, power, temperature; empty where nobody says."""

    def close(self) -> None:
        """Gives memory and connections back."""


# Which tensors of a trial lie in symmetric memory, and at which offsets: the same on every rank and every backend.

ALIGNMENT = 128
"""Bytes: a line of a GPU's L2, and what its bulk copy engine asks for."""


@dataclass(frozen=True, slots=True)
class Region:
    """One tensor of the heap: the same offset on every rank."""

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
    elif operator.reduces:
        shapes = {"stage": (world, chunk, extent.columns), "out": (chunk, extent.columns)}
    else:
        shapes = {"out": operator.local(problem)["output"]}
    return place(shapes, problem.itemsize)


def place(shapes: Mapping[str, tuple[int, ...]], itemsize: int, start: int = 0) -> dict[str, Region]:
    """Tensors of *itemsize* bytes an element one after the other from offset *start*."""
    placed, offset = {}, start
    for name, shape in shapes.items():
        placed[name] = Region(offset, shape)
        offset = aligned(offset + prod(shape) * itemsize)
    return placed


def aligned(num_bytes: int) -> int:
    """*num_bytes*, or the next offset at which a tensor may begin."""
    return -(-num_bytes // ALIGNMENT) * ALIGNMENT


def heap_bytes(problem: Problem, schedule: Schedule) -> int:
    """Bytes of heap that *schedule* needs on every rank."""
    return max(region.offset + problem.itemsize * prod(region.shape) for region in regions(problem, schedule).values())
