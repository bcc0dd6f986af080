"""How GPU ranks run each scheme: one table of refusals, compilations and modules. It needs neither torch nor Triton.

Triton compiles a kernel for each combination of constants and options, and of every number whether it is 1, a multiple
of 16, or neither. tests/kernels/backends/triton/test_recipes.py compares this with Triton's own keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from math import gcd
from typing import Any, NamedTuple

from kernels import fitted
from kernels.backends.triton import limits
from kernels.backends.triton.gin.table import SliceTable
from kernels.backends.triton.limits import gathered_piece, piece, tiles_are_whole
from kernels.operators import OPERATORS
from kernels.operators.base import Flow
from kernels.problem import Problem
from kernels.schedule import Schedule, tile
from kernels.schemes import SCHEMES, axis_rules, base, fused, spanning
from kernels.schemes.axis_rules import GIN, ONE, puts_between_hosts, shots
from kernels.schemes.base import num_tiles
from kernels.schemes.decomposed import pieces_of
from kernels.schemes.fused import slice_rows
from kernels.schemes.library import OVERLAPPED
from kernels.schemes.sequential import OURS, is_ours
from kernels.trial import Trial


class Compilation(NamedTuple):
    """One kernel that Triton compiles; equal ones are compiled once."""

    family: str
    """Name of kernels that take about the same time to compile."""
    facts: tuple[Any, ...]
    """What distinguishes it from other kernels of the family."""


Facts = tuple[str, tuple[Any, ...]]
"""Family and facts of a `Compilation`, apart from dtype, tile and stamps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRecipe:
    """Our kernel of one computation and flow: fused with its puts, or *alone* as the computation of another scheme."""

    refusal: Callable[[Trial], str | None]
    """Why it cannot compute a trial, or None."""
    ranks_most: int | None = None
    """Most ranks that it can send to; None: any number."""
    facts: Callable[[Problem, Schedule, bool], Facts]
    """Facts of the kernel for a problem and a fused schedule; the last argument: alone."""
    module: str
    """Its module, whose `kernel` prepares the launch (`schemes.fused.FusedKernelModule`)."""
    spanning: str = ""
    """The module of its kernel whose tiles span ranks."""
    in_ring: str = ""
    """The module of its kernel whose sums go from rank to rank."""
    relayed: str = ""
    """The module of its kernel whose tiles leave by SMs that only send."""
    fitted: str = ""
    """The module of its kernel of fitted tiles (`kernels/fitted.py`)."""

    def module_of(self, problem: Problem, schedule: Schedule) -> str:
        """The module of the kernel that runs the fused *schedule* of *problem*."""
        if self.fitted and fitted.is_fitted(tile(schedule["tile"])):
            return self.fitted
        if axis_rules.relays(problem, schedule):
            return self.relayed
        if axis_rules.sums_in_ring(schedule):
            return self.in_ring
        return self.spanning if axis_rules.spans_ranks(schedule) else self.module

    def compilations(self, problem: Problem, schedule: Schedule, *, alone: bool) -> tuple[Compilation, ...]:
        """What Triton compiles for the fused *schedule*; unless it is alone, also the form that writes stamps."""
        family, facts = self.facts(problem, schedule, alone)
        common = (problem.dtype, alone, str(tile(schedule["tile"])), *facts)
        return tuple(Compilation(family, (*common, stamped)) for stamped in ((False,) if alone else (False, True)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How one scheme runs one computation and flow."""

    refusal: Callable[[Trial], str | None]
    """Why it cannot run a trial, or None."""
    compilations: Callable[[Trial], tuple[Compilation, ...]]
    """The kernels of a trial that take long to compile: one for each of the module's `kernels`, in order."""
    module: str
    """Module with its `kernels`, `calls` and `watched` (`schemes.SchemeModule`)."""


# Facts of our kernels: the constants of each, and what Triton distinguishes of its numbers.

DIVISOR = 16
"""Triton distinguishes whether numbers and addresses are multiples of it."""


def kinds(*numbers: int) -> tuple[int, ...]:
    """The properties of *numbers* that Triton compiles different kernels for."""
    return tuple(1 if number == 1 else DIVISOR if number % DIVISOR == 0 else 0 for number in numbers)


def _gemm_send_facts(problem: Problem, schedule: Schedule, alone: bool) -> Facts:
    if fitted.is_fitted(tile(schedule["tile"])):
        return _gemm_fitted_facts(problem, schedule)
    if axis_rules.relays(problem, schedule) and not alone:
        return _gemm_relay_facts(problem, schedule)
    if axis_rules.spans_ranks(schedule):
        return _gemm_scattered_facts(problem, schedule, alone)
    operator = OPERATORS[problem.operator]
    if axis_rules.sums_in_ring(schedule) and not alone:
        return _gemm_ring_facts(problem, schedule)
    extent, sums = operator.extent(problem), operator.reduces and not alone
    rows = extent.rows if alone else operator.chunk_rows(problem)
    return "send and sum" if sums else "send", (
        schedule["store"], axis_rules.modifier(schedule), schedule["num_warps"], schedule["num_stages"],
        1 if alone else problem.world, sums, operator.flow is Flow.BROADCAST and not alone,
        schedule.get(axis_rules.SPLIT_K, axis_rules.WHOLE) != axis_rules.WHOLE,
        *kinds(num_tiles(problem, schedule["tile"]), rows, extent.columns, extent.contraction),
    )  # fmt: skip


def _gemm_fitted_facts(problem: Problem, schedule: Schedule) -> Facts:
    contraction = OPERATORS[problem.operator].extent(problem).contraction
    return "fitted", (schedule["num_stages"], *kinds(num_tiles(problem, schedule["tile"]), contraction))


def _gemm_ring_facts(problem: Problem, schedule: Schedule) -> Facts:
    operator, tiles = OPERATORS[problem.operator], num_tiles(problem, schedule["tile"])
    extent = operator.extent(problem)
    return "ring", (
        schedule["num_warps"], schedule["num_stages"], problem.world,
        *kinds(tiles, tiles // problem.world, operator.chunk_rows(problem), extent.columns, extent.contraction),
    )  # fmt: skip


def _gemm_relay_facts(problem: Problem, schedule: Schedule) -> Facts:
    operator, tiles = OPERATORS[problem.operator], num_tiles(problem, schedule["tile"])
    extent = operator.extent(problem)
    return "relay", (
        schedule["num_warps"], schedule["num_stages"], problem.world, operator.reduces,
        operator.flow is Flow.BROADCAST,
        *kinds(tiles, tiles // problem.world * (problem.world - 1), operator.chunk_rows(problem), extent.columns,
               extent.contraction),
    )  # fmt: skip


def _gemm_gathered_facts(problem: Problem, schedule: Schedule, alone: bool) -> Facts:
    operator, size, put = OPERATORS[problem.operator], tile(schedule["tile"]), gathered_piece(problem)
    extent, chunk = operator.extent(problem), operator.chunk_rows(problem)
    limits = spanning.limits(problem, schedule)
    later = 0 if alone else len(limits) - 2
    return "gathered", (
        schedule["store"], schedule["num_warps"], schedule["num_stages"], 1 if alone else problem.world,
        schedule[axis_rules.SPLIT_K] != axis_rules.WHOLE, operator.collective, chunk % put.m == 0, put.m, put.k,
        later,
        *kinds(num_tiles(base.whole(problem), str(size)), -(-chunk // put.m), chunk, extent.rows, extent.columns,
               extent.contraction, *limits[1 : 3 if later else 2]),
    )  # fmt: skip


def _gemm_scattered_facts(problem: Problem, schedule: Schedule, alone: bool) -> Facts:
    operator, one_shot = OPERATORS[problem.operator], axis_rules.spans_in_one_shot(problem)
    extent, broadcasts = operator.extent(problem), operator.flow is Flow.BROADCAST and not one_shot
    height = extent.rows if one_shot else operator.chunk_rows(problem)
    packets, size = axis_rules.sends_packets(problem, schedule) and not alone, tile(schedule["tile"])
    taken = axis_rules.packet_rows(problem, size, schedule.count("num_warps"), extent.rows) if packets else 0
    return "scattered", (
        schedule["num_warps"], schedule["num_stages"], 1 if alone else problem.world, operator.reduces, one_shot,
        broadcasts and not alone, schedule[axis_rules.SPLIT_K] != axis_rules.WHOLE,
        packets, axis_rules.rows_summed(problem, schedule) if packets else 0, taken,
        *kinds(num_tiles(base.whole(problem), schedule["tile"]), height, extent.rows, extent.columns,
               extent.contraction),
    )  # fmt: skip


def _gemm_receive_facts(problem: Problem, schedule: Schedule, alone: bool) -> Facts:
    if axis_rules.spans_ranks(schedule):
        return _gemm_gathered_facts(problem, schedule, alone)
    operator, size, slices = OPERATORS[problem.operator], tile(schedule["tile"]), slice_rows(problem, schedule)
    extent, chunk, put = operator.extent(problem), operator.chunk_rows(problem), piece(problem, size)
    comm_sms = 0 if alone or problem.world == 1 else schedule.count("comm_sms")
    pieces = -(-slices[0][1] // put.m) * -(-extent.contraction // put.k)
    return "receive", (
        schedule["store"], schedule["num_warps"], schedule["num_stages"], 1 if alone else problem.world,
        *kinds(num_tiles(problem, schedule["tile"]), chunk, extent.columns, extent.contraction),
        operator.collective, chunk % size.m == 0, put.k,
        *kinds((problem.world - 1) * len(slices), pieces, comm_sms),
    )  # fmt: skip


def _gemv_facts(problem: Problem, schedule: Schedule, alone: bool) -> Facts:
    """Facts of the GEMV kernel, into which the numbers of the problem are compiled as constants."""
    return "gemv", (problem, schedule["num_warps"], schedule["num_stages"], shots(problem, schedule))


def _lookup_facts(problem: Problem, schedule: Schedule, alone: bool) -> Facts:
    operator, size = OPERATORS[problem.operator], tile(schedule["tile"])
    dim, tables, world = problem["dim"], problem["tables_per_rank"], problem.world
    chunk, columns = operator.chunk_rows(problem), operator.extent(problem).columns
    even = chunk % size.m == 0 and tables % max(1, size.n // dim) == 0
    rows, width = (problem["batch"], columns) if alone else (chunk, world * columns)
    numbers = num_tiles(problem, str(size)), rows, problem["rows"], tables, width
    hints = axis_rules.eviction(schedule), axis_rules.modifier(schedule)
    return "lookup", (world, dim, problem["pooling"], even, *hints, *kinds(*numbers))


def _pieces_facts(problem: Problem, schedule: Schedule, alone: bool) -> Facts:
    """Facts of the GEMM that computes all pieces of a decomposed schedule in one launch."""
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
    return "pieces", (
        problem.dtype, str(tile(schedule["tile"])), receives, sums, problem.world if sums else 1,
        ranges if receives else 1, rows, onto, waits, several and not receives and not alone, whole, *kinds(*numbers),
    )  # fmt: skip


# Refusals and compilations by scheme. Each takes our kernel of the trial's computation and flow, used or not.


def _fused_refusal(kernel: KernelRecipe, trial: Trial) -> str | None:
    if trial.part == "communication":
        return (
            "part = communication does not exist for scheme = fused on backend = triton: its 1 kernel computes and "
            "sends. Accepted: whole, compute; or scheme = sequential."
        )
    puts = puts_between_hosts(trial.schedule)
    if kernel.ranks_most is not None and not puts and trial.world > kernel.ranks_most:
        return (
            f"world = {trial.world} is too large for {trial.problem.operator} on backend = triton. Its kernel "
            f"takes one descriptor per rank: {trial.world} > {kernel.ranks_most}. Accepted: world "
            f"1..{kernel.ranks_most}."
        )
    if puts:
        rows = tuple(slice_rows(trial.problem, trial.schedule))
        if (reason := SliceTable(trial.world, rows).refusal()) is not None:
            return reason
    return kernel.refusal(trial)


def _fused_compilations(kernel: KernelRecipe, trial: Trial) -> tuple[Compilation, ...]:
    if puts_between_hosts(trial.schedule) and trial.part != "compute":
        return _network_compilations(kernel, trial.problem, trial.schedule)
    return kernel.compilations(trial.problem, trial.schedule, alone=trial.part == "compute")


def _network_compilations(kernel: KernelRecipe, problem: Problem, schedule: Schedule) -> tuple[Compilation, ...]:
    """A lookup that puts, or a GEMM and its courier; none of them writes stamps."""
    operator, size = OPERATORS[problem.operator], str(tile(schedule["tile"]))
    if operator.work != "gemm":
        (lookup,) = kernel.compilations(problem, schedule, alone=False)[:1]
        return (Compilation("lookup that puts", lookup.facts),)
    extent, chunk = operator.extent(problem), operator.chunk_rows(problem)
    receives, whole = operator.flow is Flow.RECEIVE, tiles_are_whole(problem, schedule)
    numbers = kinds(num_tiles(problem, schedule["tile"]), extent.contraction, extent.columns, chunk)
    carried = problem.dtype, problem.world, receives, *kinds(extent.columns, chunk)
    return Compilation("pieces", (problem.dtype, size, receives, whole, *numbers, GIN)), Compilation("courier", carried)


def _sequential_refusal(kernel: KernelRecipe, trial: Trial) -> str | None:
    """Why *kernel* cannot be the computation of *trial*, or None; a library computes any problem that has one."""
    if trial.part == "communication" or not is_ours(trial.problem, trial.schedule):
        return None
    reason, axis = kernel.refusal(trial), axis_rules.KERNEL
    if not reason or trial.schedule.get(axis) != OURS:  # without the axis no other computation exists
        return reason
    return f"{axis} = {OURS} cannot be: {reason} Or {axis} = library."


def _sequential_compilations(kernel: KernelRecipe, trial: Trial) -> tuple[Compilation, ...]:
    """*kernel* alone, if it computes."""
    problem, schedule = trial.problem, trial.schedule
    if not is_ours(problem, schedule):
        return ()
    return kernel.compilations(problem, fused.alone(problem, schedule["tile"]), alone=True)


TORCH_BLOCKS = 24
"""Most blocks of torch's all-reduces over symmetric memory (torch 2.11, CUDASymmetricMemoryOps.cu, max_num_blocks)."""
TORCH_COLLECTIVES = ("one_shot", "two_shot")
"""Values of `collective` that torch implements."""
TUNED = "library_tuned"
"""The value of `collective` whose number of channels a sweep has chosen."""


def _concurrent_refusal(kernel: KernelRecipe, trial: Trial) -> str | None:
    """As `_sequential_refusal`; then why the collective cannot keep to the SMs that are set aside for it."""
    if reason := _sequential_refusal(kernel, trial):
        return reason
    share, collective = trial.schedule.count("comm_sms"), str(trial.schedule["collective"])
    if collective in TORCH_COLLECTIVES and 0 < share < TORCH_BLOCKS:
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


def _concurrent_compilations(kernel: KernelRecipe, trial: Trial) -> tuple[Compilation, ...]:
    """As `_sequential_compilations`, but launched on the free SMs; for a whole trial also the form with stamps."""
    forms = (False, True) if trial.part == "whole" else (False,)
    return tuple(Compilation(timed.family, (*timed.facts, "concurrent", stamped))
                 for timed in _sequential_compilations(kernel, trial) for stamped in forms)  # fmt: skip


def _decomposed_refusal(kernel: KernelRecipe, trial: Trial) -> str | None:
    """Why the pieces of *trial* cannot be moved or computed: they must start at multiples of 16 bytes."""
    if reason := limits.of_gemm(trial):
        return reason
    problem, schedule = trial.problem, trial.schedule
    pieces, step = pieces_of(problem, schedule), limits.BULK_BYTES // problem.itemsize
    starts = {"n": pieces.columns[0], "k": pieces.k[0]}
    if schedule["launches"] == ONE:
        step_k = tile(schedule["tile"]).k
        if len({int(start) for start in pieces.k[0]}) > 1 and any(int(stop) % step_k for stop in pieces.k[1]):
            return (
                f"pieces = {schedule['pieces']} does not go with tile = {schedule['tile']} and launches = {ONE}. A "
                f"piece of the contraction ends at {int(pieces.k[1][0])}, which is no multiple of {step_k}, what a "
                f"tile takes at once. Accepted: a number of pieces that divides {problem['k'] // step_k}, or launches "
                "= per_piece."
            )
    for key, every in starts.items():
        if odd := next((int(start) for start in every if int(start) % step), None):
            return (
                f"pieces = {schedule['pieces']} does not run on backend = triton. A piece of {key} would begin at "
                f"{odd}, and 16 bytes are {step} elements: {odd} is no multiple of {step}. Accepted: pieces that "
                f"divide {problem[key] // gcd(problem[key], step)}."
            )
    return None


def _decomposed_compilations(kernel: KernelRecipe, trial: Trial) -> tuple[Compilation, ...]:
    """With `launches = one` the GEMM; all other kernels are cuBLAS, or compile fast."""
    if trial.schedule["launches"] != ONE:
        return ()
    return (Compilation(*_pieces_facts(trial.problem, trial.schedule, trial.part == "compute")),)


def _overlapped_refusal(kernel: KernelRecipe, trial: Trial) -> str | None:
    if trial.part == "whole":
        return None
    return (
        f"part = {trial.part} does not exist for collective = {OVERLAPPED}: 1 operator of torch computes and "
        "communicates. Accepted: whole; or another collective."
    )


def _overlapped_compilations(kernel: KernelRecipe, trial: Trial) -> tuple[Compilation, ...]:
    """None: torch's operators are compiled already."""
    return ()


# The tables: our kernel of each computation and flow, and scheme by computation and flow how GPU ranks run it.

FOLDER = "kernels.backends.triton"

Key = tuple[str, Flow]
"""A computation and a flow: the `work` and the `flow` of an operator."""
_GEMM_SEND = KernelRecipe(refusal=limits.of_gemm, ranks_most=limits.RANKS_MOST, facts=_gemm_send_facts,
                          module=f"{FOLDER}.kernels.gemm_send",
                          spanning=f"{FOLDER}.kernels.gemm_scattered",
                          in_ring=f"{FOLDER}.kernels.gemm_ring",
                          relayed=f"{FOLDER}.kernels.gemm_relay",
                          fitted=f"{FOLDER}.kernels.gemm_fitted")  # fmt: skip
KERNELS: Mapping[Key, KernelRecipe] = {
    ("gemm", Flow.SEND): _GEMM_SEND,
    ("gemm", Flow.BROADCAST): _GEMM_SEND,
    ("gemm", Flow.RECEIVE): KernelRecipe(refusal=limits.of_gemm, ranks_most=limits.RANKS_MOST,
                                         facts=_gemm_receive_facts, module=f"{FOLDER}.kernels.gemm_receive",
                                         spanning=f"{FOLDER}.kernels.gemm_gathered"),
    ("gemv", Flow.BROADCAST): KernelRecipe(refusal=limits.of_tile, facts=_gemv_facts, module=f"{FOLDER}.kernels.gemv"),
    ("gather", Flow.SEND): KernelRecipe(refusal=limits.of_tile, facts=_lookup_facts,
                                        module=f"{FOLDER}.kernels.embedding"),
}  # fmt: skip
"""Our kernel of each computation and flow."""

GEMMS = tuple(key for key in KERNELS if key[0] == "gemm")
TORCH_GEMMS = ("gemm", Flow.SEND), ("gemm", Flow.RECEIVE)
"""GEMMs that torch's own overlapped operators compute."""


def _row(
    keys: Iterable[Key], scheme: str, refusal: Callable[[KernelRecipe, Trial], str | None],
    compilations: Callable[[KernelRecipe, Trial], tuple[Compilation, ...]],
) -> Mapping[Key, Recipe]:  # fmt: skip
    """The recipes of one scheme for *keys*: one module, and the same rules for the kernel of each."""
    return {key: Recipe(refusal=partial(refusal, KERNELS[key]), compilations=partial(compilations, KERNELS[key]),
                        module=f"{FOLDER}.schemes.{scheme}") for key in keys}  # fmt: skip


TABLE: Mapping[str, Mapping[Key, Recipe]] = {
    "sequential": _row(KERNELS, "sequential", _sequential_refusal, _sequential_compilations),
    "concurrent": _row(KERNELS, "concurrent", _concurrent_refusal, _concurrent_compilations),
    OVERLAPPED: _row(TORCH_GEMMS, "overlapped", _overlapped_refusal, _overlapped_compilations),
    "decomposed": _row(GEMMS, "decomposed", _decomposed_refusal, _decomposed_compilations),
    "fused": _row(KERNELS, "fused", _fused_refusal, _fused_compilations),
}
"""Recipes by scheme, then by computation and flow. A collective that is a scheme of its own has its own row."""

AXES = ("tile", "store", "num_warps", "num_stages", "slice_tiles", "comm_sms", "shots", "load_hint",
        "store_hint")  # fmt: skip
"""Axes for which kernels may be compiled differently; kernels read the others as numbers."""


def of(problem: Problem, schedule: Schedule) -> Recipe | None:
    """How *schedule* runs *problem* on GPUs, or None if it does not."""
    collective = str(schedule.get("collective"))
    return TABLE.get(collective if collective in TABLE else schedule.scheme, {}).get(_key(problem))


def kernel(problem: Problem) -> KernelRecipe:
    """Our kernel of *problem*'s computation and flow."""
    return KERNELS[_key(problem)]


def schemes(problem: Problem) -> tuple[str, ...]:
    """The schemes that run *problem* on GPUs."""
    return tuple(name for name in SCHEMES if _key(problem) in TABLE.get(name, {}))


def compilations(trial: Trial) -> tuple[Compilation, ...]:
    """The kernels of *trial* that take long to compile; for a whole trial also the form with stamps. None on CPUs."""
    recipe = of(trial.problem, trial.schedule)
    if trial.backend != "triton" or trial.part == "communication" or recipe is None:
        return ()
    return recipe.compilations(trial)


def _key(problem: Problem) -> Key:
    operator = OPERATORS[problem.operator]
    return operator.work, operator.flow
