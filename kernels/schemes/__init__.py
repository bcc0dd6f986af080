"""The table of schemes, and the one way to build a complete, legal Schedule and its Plan."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, product
from threading import Lock

from kernels import fabric as fabrics
from kernels.fabric import Fabric
from kernels.machine import Machine
from kernels.occupancy import too_old
from kernels.plan import Plan, Tiles
from kernels.problem import Problem
from kernels.schedule import Axis, Refusal, Schedule, Value, tile
from kernels.schemes import axis_rules, concurrent, decomposed, fused, library, sequential
from kernels.schemes.base import TILES_MOST, Scheme, num_tiles, too_large
from kernels.schemes.concurrent import problems
from kernels.schemes.fused import STEPS_MOST, slice_size

# The cache of Plans.

BYTES_MOST = 256 * 2**20
"""Most bytes of Plans that a process keeps. One of 30,720 steps takes 5 MB, the largest legal ones some 50."""


class PlanCache:
    """Plans by problem and schedule, for any thread. The least recently used one is dropped first."""

    def __init__(self, bytes_most: int = BYTES_MOST) -> None:
        self.bytes_most, self.num_bytes = bytes_most, 0
        self._plans: OrderedDict[tuple[Problem, Schedule], Plan] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._plans)

    def plan(self, problem: Problem, schedule: Schedule, make: Callable[[Problem, Schedule], Plan]) -> Plan:
        """The cached Plan, or a new one by *make*; a Plan larger than the whole cache is not kept."""
        key = (problem, schedule)
        with self._lock:
            if key in self._plans:
                self._plans.move_to_end(key)
                return self._plans[key]
        plan = make(problem, schedule)
        num_bytes = plan.memory_bytes
        with self._lock:
            if key not in self._plans and num_bytes <= self.bytes_most:
                self._plans[key] = plan
                self.num_bytes += num_bytes
            while self.num_bytes > self.bytes_most:
                self.num_bytes -= self._plans.popitem(last=False)[1].memory_bytes
        return plan

    def clear(self) -> None:
        """Drops all Plans."""
        with self._lock:
            self._plans.clear()
            self.num_bytes = 0


# The table of schemes.

__all__ = [
    "BASELINE",
    "COMPARED",
    "PLANS",
    "SCHEMES",
    "Scheme",
    "axes",
    "expand",
    "needs_peer_memory",
    "problems",
    "refusal",
    "run_by",
    "schedule",
    "scheme",
    "tile_order",
]

SCHEMES: dict[str, Scheme] = {
    "sequential": sequential.SCHEME,
    "concurrent": concurrent.SCHEME,
    "decomposed": decomposed.SCHEME,
    "fused": fused.SCHEME,
}
BASELINE = "sequential"
"""The scheme that every other one is compared with."""
COMPARED = tuple(name for name, each in SCHEMES.items() if each.is_compared)
"""The schemes that are compared by default: those that compute one problem in a call, not several at once."""


def scheme(name: str) -> Scheme:
    """The scheme called *name*; Refusal lists the names."""
    if name not in SCHEMES:
        raise Refusal(f"There is no scheme {name!r}. Accepted: {', '.join(SCHEMES)}.")
    return SCHEMES[name]


def run_by(backend: str) -> tuple[str, ...]:
    """The schemes that ranks of *backend* run; the other ones can only be estimated."""
    return tuple(name for name, each in SCHEMES.items() if backend in each.run_by)


def axes(problem: Problem, name: str, machine: Machine, fabric: Fabric) -> tuple[Axis, ...]:
    """The axes of scheme *name* with the values that are legal here."""
    known = scheme(name)
    if (reason := too_large(problem, machine)) is not None:
        raise Refusal(reason)
    return known.axes(problem, machine, fabric)


def refusal(problem: Problem, chosen: Schedule, machine: Machine, fabric: Fabric) -> str | None:
    """Why the complete schedule *chosen* is illegal for *problem* on *machine* over *fabric*, or None."""
    reason = _problem_refusal(problem, machine, fabric)
    return reason or _refusal(problem, chosen, machine, fabric, axes(problem, chosen.scheme, machine, fabric))


def _problem_refusal(problem: Problem, machine: Machine, fabric: Fabric) -> str | None:
    """Why no schedule of *problem* is legal on *machine* over *fabric*, or None."""
    if (reason := too_old(machine.device.architecture, machine.name)) is not None:
        return reason
    if problem.world > machine.max_world and not fabric.shares_gpu:  # one GPU has room for more ranks
        return (
            f"world = {problem.world} is too large for {machine.name}, which connects {machine.max_world} ranks: "
            f"{problem.world} > {machine.max_world}. Accepted: world 1..{machine.max_world}."
        )
    return fabrics.refusal(fabric, machine, problem.world) or too_large(problem, machine)


def _refusal(
    problem: Problem, chosen: Schedule, machine: Machine, fabric: Fabric, offered: Sequence[Axis]
) -> str | None:
    """Why *chosen* is illegal with the axes *offered*, or None: single values first, then their combination."""
    known = {axis.name: axis for axis in offered}
    for name, value in chosen.axes:
        if name not in known:
            return _axis_refusal(problem, chosen, name, machine, known)
        if (reason := _value_refusal(problem, known[name], value, fabric)) is not None:
            return reason
    ignored_axis = axis_rules.refusal(problem, chosen, machine.backend)
    by_scheme = scheme(chosen.scheme).refusal
    return ignored_axis or too_many_steps(problem, chosen) or by_scheme(problem, chosen, machine, fabric)


def _value_refusal(problem: Problem, axis: Axis, value: Value, fabric: Fabric) -> str | None:
    """Why *axis* cannot have *value*, whatever the other axes are, or None."""
    return library.emulated_link_refusal(problem, axis, value, fabric) or axis.refusal(value)


def _axis_refusal(problem: Problem, chosen: Schedule, name: str, machine: Machine, known: Iterable[str]) -> str:
    """Why *chosen* cannot have axis *name*: the scheme has no such axis, or it is ignored here."""
    alone = Schedule(chosen.scheme, ((name, chosen[name]),))
    ignored_axis = axis_rules.refusal(problem, alone, machine.backend)
    return ignored_axis or f"{chosen.scheme} has no axis {name!r}. Accepted: {', '.join(known)}."


def schedule(problem: Problem, name: str, values: Mapping[str, Value], machine: Machine, fabric: Fabric) -> Schedule:
    """The legal schedule with *values*; other axes take their default, or the next legal value.

    Ignored axes are left out: a GPU's fused schedule has slices only with tile_order = interleaved. Raises Refusal
    where *values* are illegal.
    """
    known = axes(problem, name, machine, fabric)
    by_name = {axis.name: axis for axis in known}
    incomplete = Schedule(name, tuple(values.items()))
    for axis, value in values.items():  # no other axis makes up for a value that is illegal by itself
        if axis not in by_name:
            raise Refusal(_axis_refusal(problem, incomplete, axis, machine, by_name))
        if (reason := _value_refusal(problem, by_name[axis], value, fabric)) is not None:
            raise Refusal(reason)
    first_reason = _problem_refusal(problem, machine, fabric)
    if first_reason is not None:
        raise Refusal(first_reason)
    defaults = scheme(name).dependent_defaults(problem, machine, fabric, values)
    known = tuple(replace(axis, default=defaults.get(axis.name, axis.default)) for axis in known)
    for choice in chain([[values.get(axis.name, axis.default) for axis in known]], _choices(known, values)):
        complete = Schedule(name, tuple(zip(by_name, choice, strict=True)))
        ignored = axis_rules.ignored_axes(problem, name, dict(complete.axes), machine.backend)
        chosen = axis_rules.effective(problem, complete, machine.backend)
        in_vain = tuple((axis, value) for axis, value in values.items() if axis in ignored)  # a refusal names them
        named = replace(chosen, axes=(*chosen.axes, *in_vain)) if in_vain else chosen
        if (reason := _refusal(problem, named, machine, fabric, known)) is None:
            return chosen
        first_reason = first_reason or reason
    raise Refusal(first_reason)


def _choices(known: Sequence[Axis], values: Mapping[str, Value]) -> Iterable[Sequence[Value]]:
    """Combinations of all values of axes that are neither in *values* nor open, defaults first.

    The last axis varies fastest, so that the first legal combination keeps the defaults of most axes.
    """

    def offered(axis: Axis) -> Sequence[Value]:
        if axis.name in values:
            return [values[axis.name]]
        return [axis.default] if axis.open else [axis.default, *(each for each in axis.values if each != axis.default)]

    return product(*map(offered, known))


PLANS = PlanCache()
"""The Plans of this process."""


def expand(problem: Problem, chosen: Schedule) -> Plan:
    """The Plan of a complete schedule."""
    return PLANS.plan(problem, chosen, _expand)


def _expand(problem: Problem, chosen: Schedule) -> Plan:
    tile(chosen["tile"])
    return scheme(chosen.scheme).expand(problem, chosen)


def tile_order(problem: Problem, chosen: Schedule, rank: int) -> Tiles:
    """The tiles of *rank* in the order in which every backend and simulator computes them."""
    return expand(problem, chosen).tiles[rank]


def needs_peer_memory(chosen: Schedule) -> bool:
    """Whether the ranks must address each other's memory, and so be on one host."""
    return scheme(chosen.scheme).needs_peer_memory(chosen)


def too_many_steps(problem: Problem, schedule: Schedule) -> str | None:
    """Why *schedule* would have too many tiles or units for a Plan, or None."""
    tiles = num_tiles(problem, schedule["tile"])
    if tiles > TILES_MOST:
        return (
            f"tile = {schedule['tile']} is too small. It cuts one rank's result into {tiles} tiles: {tiles} > "
            f"{TILES_MOST}. Accepted: a larger tile."
        )
    units = -(-tiles // slice_size(problem, schedule)) if schedule.scheme == "fused" else 1
    units = schedule.count("pieces") * problem.world if schedule.scheme == "decomposed" else units
    if units * problem.world <= STEPS_MOST:
        return None
    axis = "slice_tiles" if schedule.scheme == "fused" else "pieces"
    return (
        f"{axis} = {schedule.get(axis, 'default')} sends too many units: {units * problem.world} > "
        f"{STEPS_MOST}. Accepted: fewer and larger ones."
    )
