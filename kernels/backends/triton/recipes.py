"""Which kernels a trial compiles on GPU ranks, told without torch or Triton: those that two trials share, only once.

Triton compiles a kernel for each combination of constants and options, and of every number whether it is 1, a multiple
of 16, or neither. tests/kernels/triton/test_compilations.py compares this with what Triton itself tells apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import gcd
from typing import Any, NamedTuple

from kernels.backends.triton import limits
from kernels.backends.triton.limits import piece, tiles_are_whole
from kernels.operators import OPERATORS
from kernels.operators.base import Flow
from kernels.problem import Problem
from kernels.schedule import Schedule, tile
from kernels.schemes import SCHEMES, axis_rules, fused
from kernels.schemes.axis_rules import KERNEL as KERNEL_AXIS
from kernels.schemes.axis_rules import ONE, shots
from kernels.schemes.base import num_tiles
from kernels.schemes.decomposed import pieces_of
from kernels.schemes.fused import slice_rows
from kernels.schemes.library import OVERLAPPED
from kernels.schemes.sequential import OURS, is_ours
from kernels.trial import Trial

# What a recipe is: how GPU ranks run one scheme over one flow, in words; what runs it is imported on use.


class Compilation(NamedTuple):
    """One kernel that Triton compiles; equal ones are compiled once."""

    family: str
    """What takes about the same time to compile."""
    facts: tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How one scheme runs over one flow. Forms and shells ask it, which have neither torch nor Triton."""

    refusal: Callable[[Trial], str | None]
    """Why it cannot run a trial, or None."""
    compilations: Callable[[Trial], tuple[Compilation, ...]]
    """What tells the kernels of a trial that take long to compile from others: one for each of `kernels`, in order."""
    module: str
    """Where its `kernels`, `calls` and `watched` stand (`calls.Runner`)."""


# Fused: one kernel computes and communicates. What differs from flow to flow is a value, `KernelRecipe`.

DIVISOR = 16
"""Triton asks of numbers and addresses whether they are multiples of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRecipe:
    """The kernel of one computation and flow: fused with its puts, or alone as the computation of another scheme."""

    refusal: Callable[[Trial], str | None]
    """Why it cannot compute a trial, alone or not; or None."""
    ranks_most: int | None = None
    """Ranks that it can reach; None: any number."""
    facts: Callable[[Problem, Schedule, bool], tuple[str, tuple[Any, ...]]]
    """Its family (`Compilation`), and what tells it from others of one dtype and tile; the last argument: alone."""
    module: str
    """Where it stands, with `kernel`, which says what it is launched with (`calls.fused.Launch`)."""

    def compilations(self, problem: Problem, schedule: Schedule, *, alone: bool) -> tuple[Compilation, ...]:
        """What Triton compiles of it for the fused *schedule*: where it is not alone also the form that is watched."""
        family, facts = self.facts(problem, schedule, alone)
        of_all = (problem.dtype, alone, str(tile(schedule["tile"])), *facts)
        return tuple(Compilation(family, (*of_all, watched)) for watched in ((False,) if alone else (False, True)))


def kinds(*numbers: int) -> tuple[int, ...]:
    """Of each number what Triton tells apart."""
    return tuple(1 if number == 1 else DIVISOR if number % DIVISOR == 0 else 0 for number in numbers)


def fused_recipe(one: KernelRecipe) -> Recipe:
    """Fused schedules whose kernel is *one*."""
    return Recipe(
        refusal=partial(_fused_refusal, one),
        compilations=lambda trial: one.compilations(trial.problem, trial.schedule, alone=trial.part == "compute"),
        module="kernels.backends.triton.schemes.fused",
    )


def _fused_refusal(one: KernelRecipe, trial: Trial) -> str | None:
    if trial.part == "communication":
        return (
            "part = communication does not exist for scheme = fused on backend = triton: its 1 kernel computes and "
            "sends. Accepted: whole, compute; or scheme = sequential."
        )
    if one.ranks_most is not None and trial.world > one.ranks_most:
        return (
            f"world = {trial.world} is too large for {trial.problem.operator} on backend = triton. Its kernel "
            f"takes one descriptor per rank: {trial.world} > {one.ranks_most}. Accepted: world 1..{one.ranks_most}."
        )
    return one.refusal(trial)


# A pooled lookup, fused: a warp sums up a vector and stores it straight into the output of the sample's owner.


def _fused_gather_facts(problem: Problem, schedule: Schedule, alone: bool) -> tuple[str, tuple[Any, ...]]:
    """What its walk through a tile is made of."""
    operator, size = OPERATORS[problem.operator], tile(schedule["tile"])
    dim, tables, world = problem["dim"], problem["tables_per_rank"], problem.world
    chunk, columns = operator.chunk_rows(problem), operator.extent(problem).columns
    even = chunk % size.m == 0 and tables % max(1, size.n // dim) == 0
    rows, width = (problem["batch"], columns) if alone else (chunk, world * columns)
    numbers = num_tiles(problem, str(size)), rows, problem["rows"], tables, width
    hints = axis_rules.eviction(schedule), axis_rules.modifier(schedule)
    return "lookup", (world, dim, problem["pooling"], even, *hints, *kinds(*numbers))


FUSED_GATHER_KERNEL = KernelRecipe(
    refusal=limits.of_tile, facts=_fused_gather_facts, module="kernels.backends.triton.kernels.embedding"
)


# A GEMV and its all-reduce, fused: partial sums leave as packets, which say themselves that they are there.


def _fused_gemv_facts(problem: Problem, schedule: Schedule, alone: bool) -> tuple[str, tuple[Any, ...]]:
    """Constants of the problem are compiled into it."""
    return "gemv", (problem, schedule["num_warps"], schedule["num_stages"], shots(problem, schedule))


FUSED_GEMV_KERNEL = KernelRecipe(refusal=limits.of_tile, facts=_fused_gemv_facts,
                   module="kernels.backends.triton.kernels.gemv")  # fmt: skip


# A GEMM whose operand rows come in, fused: some of its programs push rows while the others compute what is there.


def _fused_receive_facts(problem: Problem, schedule: Schedule, alone: bool) -> tuple[str, tuple[Any, ...]]:
    operator = OPERATORS[problem.operator]
    extent, chunk = operator.extent(problem), operator.chunk_rows(problem)
    return "receive", (
        schedule["store"], schedule["num_warps"], schedule["num_stages"], 1 if alone else problem.world,
        *kinds(num_tiles(problem, schedule["tile"]), chunk, extent.columns, extent.contraction),
        *_of_puts(problem, schedule, 0 if alone or problem.world == 1 else schedule.count("comm_sms")),
    )  # fmt: skip


def _of_puts(problem: Problem, schedule: Schedule, comm: int) -> tuple[Any, ...]:
    """What the kernel is told of the rows that leave."""
    operator, size, slices = OPERATORS[problem.operator], tile(schedule["tile"]), slice_rows(problem, schedule)
    chunk, contraction = operator.chunk_rows(problem), operator.extent(problem).contraction
    put = piece(problem, size)
    pieces = -(-slices[0][1] // put.m) * -(-contraction // put.k)
    return (operator.collective, chunk % size.m == 0, put.k,
            *kinds((problem.world - 1) * len(slices), pieces, comm))  # fmt: skip


FUSED_RECEIVE_KERNEL = KernelRecipe(refusal=limits.of_gemm, ranks_most=limits.RANKS_MOST, facts=_fused_receive_facts,
                   module="kernels.backends.triton.kernels.gemm_receive")  # fmt: skip


# A GEMM that sends, fused: each tile leaves for its owner as soon as it is done, and is summed there where asked.


def _fused_send_facts(problem: Problem, schedule: Schedule, alone: bool) -> tuple[str, tuple[Any, ...]]:
    operator = OPERATORS[problem.operator]
    extent, sums = operator.extent(problem), operator.reduces and not alone
    rows = extent.rows if alone else operator.chunk_rows(problem)
    return "send and sum" if sums else "send", (
        schedule["store"], axis_rules.modifier(schedule), schedule["num_warps"], schedule["num_stages"],
        1 if alone else problem.world, sums, operator.flow is Flow.BROADCAST and not alone,
        *kinds(num_tiles(problem, schedule["tile"]), rows, extent.columns, extent.contraction),
    )  # fmt: skip


KERNEL = KernelRecipe(refusal=limits.of_gemm, ranks_most=limits.RANKS_MOST, facts=_fused_send_facts,
                   module="kernels.backends.triton.kernels.gemm_send")  # fmt: skip


# Sequential: the computation by cuBLAS or by our kernel alone, then a collective, or the other way round.


def sequential_recipe(one: KernelRecipe) -> Recipe:
    """Sequential schedules whose computation, where no library makes it, is *one* alone."""
    return Recipe(
        refusal=partial(refusal, one),
        compilations=partial(_sequential_compilations, one),
        module="kernels.backends.triton.schemes.sequential",
    )


def refusal(one: KernelRecipe, trial: Trial) -> str | None:
    """Why *one* cannot be the computation of *trial*, or None; a library can always be."""
    if trial.part == "communication" or not is_ours(trial.problem, trial.schedule):
        return None
    sentence = one.refusal(trial)
    chosen = trial.schedule.get(KERNEL_AXIS) == OURS  # else there is no other
    return (
        f"{KERNEL_AXIS} = {OURS} cannot be: {sentence} Or {KERNEL_AXIS} = library." if sentence and chosen else sentence
    )


def _sequential_compilations(one: KernelRecipe, trial: Trial) -> tuple[Compilation, ...]:
    """*one* alone, where it computes."""
    problem, schedule = trial.problem, trial.schedule
    if not is_ours(problem, schedule):
        return ()
    return one.compilations(problem, fused.alone(problem, schedule["tile"]), alone=True)


# Concurrent: the halves of sequential schedules on two streams, for several micro-batches at once.

TORCH_BLOCKS = 24
"""Most blocks of torch's all-reduces over symmetric memory (torch 2.11, CUDASymmetricMemoryOps.cu, max_num_blocks)."""
TORCH_CALLS = ("one_shot", "two_shot")
"""Values of `collective` that are torch's."""
TUNED = "library_tuned"
"""The value whose number of channels a sweep has chosen."""


def recipe(one: KernelRecipe) -> Recipe:
    """Concurrent schedules whose computation, where no library makes it, is *one* alone."""
    return Recipe(
        refusal=partial(_concurrent_refusal, one),
        compilations=partial(_concurrent_compilations, one),
        module="kernels.backends.triton.schemes.concurrent",
    )


def _concurrent_refusal(one: KernelRecipe, trial: Trial) -> str | None:
    return refusal(one, trial) or _of_share(trial)


def _of_share(trial: Trial) -> str | None:
    """Why the collective cannot keep to the SMs that are set aside for it, or None."""
    share, collective = trial.schedule.count("comm_sms"), str(trial.schedule["collective"])
    if collective in TORCH_CALLS and 0 < share < TORCH_BLOCKS:
        return (
            f"comm_sms = {share} does not go with collective = {collective}: torch launches up to {TORCH_BLOCKS} "
            f"blocks for it, and {TORCH_BLOCKS} > {share}. Accepted: comm_sms = 0 or at least {TORCH_BLOCKS}, or "
            "collective = library."
        )
    if collective == TUNED and share:
        return (
            f"comm_sms = {share} does not go with collective = {TUNED}, whose channels a sweep has chosen: they may be "
            f"more than {share}. Accepted: comm_sms = 0, or collective = library."
        )
    return None


def _concurrent_compilations(one: KernelRecipe, trial: Trial) -> tuple[Compilation, ...]:
    """*one* alone, where it computes, launched with the SMs that are free; of a whole trial also its stamped form."""
    problem, schedule = trial.problem, trial.schedule
    if trial.part == "communication" or not is_ours(problem, schedule):
        return ()
    timed = one.compilations(problem, fused.alone(problem, schedule["tile"]), alone=True)
    forms = (False, True) if trial.part == "whole" else (False,)
    return tuple(Compilation(made.family, (*made.facts, "beside", form)) for made in timed for form in forms)


# Decomposed: pieces computed by cuBLAS or by one kernel of ours, moved by copy engines, SMs or the library.


def _decomposed_refusal(trial: Trial) -> str | None:
    """Why its pieces cannot be moved or computed, or None."""
    if sentence := limits.of_gemm(trial):
        return sentence
    return _of_pieces(trial.problem, trial.schedule)


def _of_pieces(problem: Problem, schedule: Schedule) -> str | None:
    """Pieces begin where our kernels can load and store 16 bytes, and cuBLAS needs no slower kernel."""
    pieces, step = pieces_of(problem, schedule), limits.BULK_BYTES // problem.itemsize
    sizes = {"n": pieces.columns, "k": pieces.k}
    if schedule["launches"] == ONE:
        sizes["k"], step_k = pieces.k, tile(schedule["tile"]).k
        if len({int(start) for start in pieces.k[0]}) > 1 and any(int(stop) % step_k for stop in pieces.k[1]):
            most = problem["k"] // step_k
            return (
                f"pieces = {schedule['pieces']} does not go with tile = {schedule['tile']} and launches = {ONE}. A "
                f"piece of the contraction ends at {int(pieces.k[1][0])}, which is no multiple of {step_k}, what a "
                f"tile takes at once. Accepted: a number of pieces that divides {most}, or launches = per_piece."
            )
    for key, (starts, _) in sizes.items():
        if odd := next((int(start) for start in starts if int(start) % step), None):
            return (
                f"pieces = {schedule['pieces']} does not run on backend = triton. A piece of {key} would begin at "
                f"{odd}, and 16 bytes are {step} elements: {odd} is no multiple of {step}. Accepted: pieces that "
                f"divide {problem[key] // gcd(problem[key], step)}."
            )
    return None


def _compilations(trial: Trial) -> tuple[Compilation, ...]:
    """Of `launches = one` the GEMM; the rest are cuBLAS, engines, and kernels of a few lines."""
    problem, schedule = trial.problem, trial.schedule
    if schedule["launches"] != ONE or trial.part == "communication":
        return ()
    return (Compilation("pieces", _facts(problem, schedule, trial.part == "compute")),)


def _facts(problem: Problem, schedule: Schedule, alone: bool) -> tuple[Any, ...]:
    operator = OPERATORS[problem.operator]
    extent = operator.extent(problem)
    pieces, receives = pieces_of(problem, schedule), operator.flow is Flow.RECEIVE
    ranges, several = len({int(start) for start in pieces.k[0]}), problem.world > 1
    mixed = schedule["steps"] == "uniform" and int(pieces.rectangle[-1]) > 0  # own tiles between those of peers
    whole, sums = tiles_are_whole(problem, schedule), operator.reduces and not alone
    rows = receives and several and ranges == 1 and not mixed
    onto = sums and problem.world == 2 and whole and not mixed
    waits = (sums or receives) and several and not (rows or onto)
    numbers = num_tiles(problem, schedule["tile"]), extent.contraction, extent.columns, operator.chunk_rows(problem)
    return (problem.dtype, str(tile(schedule["tile"])), receives, sums, problem.world if sums else 1,
            ranges if receives else 1, rows, onto, waits, several and not receives and not alone, whole,
            *kinds(*numbers))  # fmt: skip


DECOMPOSED_RECIPE = Recipe(
    refusal=_decomposed_refusal, compilations=_compilations, module="kernels.backends.triton.schemes.decomposed"
)


# Sequential, collective = overlapped: torch's own operators, which compute and communicate at once.


def _refusal(trial: Trial) -> str | None:
    """Why torch has no such part, or None."""
    if trial.part == "whole":
        return None
    return (
        f"part = {trial.part} does not exist for collective = {OVERLAPPED}: 1 operator of torch computes and "
        "communicates. Accepted: whole; or another collective."
    )


RECIPE = Recipe(refusal=_refusal, compilations=lambda trial: (), module="kernels.backends.triton.schemes.overlapped")
"""It compiles nothing: torch did."""


# The table of what GPU ranks run: scheme by flow, one module each. Its words load without torch or Triton.

KERNELS: Mapping[tuple[str, Flow], KernelRecipe] = {
    ("gemm", Flow.SEND): KERNEL,
    ("gemm", Flow.BROADCAST): KERNEL,
    ("gemm", Flow.RECEIVE): FUSED_RECEIVE_KERNEL,
    ("gemv", Flow.BROADCAST): FUSED_GEMV_KERNEL,
    ("gather", Flow.SEND): FUSED_GATHER_KERNEL,
}
"""Our kernel of each computation and flow."""

TABLE: Mapping[str, Mapping[tuple[str, Flow], Recipe]] = {
    "sequential": {flow: sequential_recipe(one) for flow, one in KERNELS.items()},
    "concurrent": {flow: recipe(one) for flow, one in KERNELS.items()},
    OVERLAPPED: {("gemm", Flow.SEND): RECIPE, ("gemm", Flow.RECEIVE): RECIPE},
    "decomposed": {flow: DECOMPOSED_RECIPE for flow in KERNELS if flow[0] == "gemm"},
    "fused": {flow: fused_recipe(one) for flow, one in KERNELS.items()},
}
"""By scheme, then by computation and flow. A collective that is a scheme of its own has a line of its own."""


def of(problem: Problem, schedule: Schedule) -> Recipe | None:
    """How *schedule* runs *problem* on GPUs, or None where it does not."""
    collective = str(schedule.get("collective"))
    return TABLE.get(collective if collective in TABLE else schedule.scheme, {}).get(_flow(problem))


def kernel(problem: Problem) -> KernelRecipe:
    """Our kernel of *problem*'s computation and flow."""
    return KERNELS[_flow(problem)]


def schemes(problem: Problem) -> tuple[str, ...]:
    """The schemes that run *problem* on GPUs."""
    return tuple(name for name in SCHEMES if _flow(problem) in TABLE.get(name, {}))


def _flow(problem: Problem) -> tuple[str, Flow]:
    operator = OPERATORS[problem.operator]
    return operator.work, operator.flow


# Which kernels a trial compiles on GPU ranks, told without torch or Triton: those that two trials share, only once.

AXES = ("tile", "store", "num_warps", "num_stages", "slice_tiles", "comm_sms", "shots", "load_hint",
        "store_hint")  # fmt: skip
"""Axes that kernels may be compiled differently for; the others are numbers that a kernel reads."""


def compilations(trial: Trial) -> tuple[Compilation, ...]:
    """The kernels of *trial* that take long: of a whole one also the form that is watched. None for CPU ranks."""
    recipe = of(trial.problem, trial.schedule)
    if trial.backend != "triton" or trial.part == "communication" or recipe is None:
        return ()
    return recipe.compilations(trial)
