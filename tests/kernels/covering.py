"""Few schedules that have every value that `axes` offers, and every two values of two axes that are legal together."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import combinations

from kernels.fabric import Fabric
from kernels.machine import Machine
from kernels.problem import Problem
from kernels.schedule import Axis, Refusal, Schedule, Value
from kernels.schemes import axes, schedule
from kernels.schemes.axis_rules import COMM_SMS, PACKETS, REGISTERS, SHOTS, SPANNING, TILE_ORDER

Values = Mapping[str, Value]
Complete = Callable[[Values], Schedule | None]
"""The schedule with these values, the other axes as they may be; None where it is refused."""
Goal = frozenset[tuple[str, Value]]
"""One value, or two values of two axes, that some schedule is to have."""


def legal(problem: Problem, scheme: str, machine: Machine, fabric: Fabric) -> Complete:
    """Completes values by defaults, or by the next values that are legal beside them."""

    def complete(values: Values) -> Schedule | None:
        try:
            return schedule(problem, scheme, values, machine, fabric)
        except Refusal:
            return None

    return complete


def covering(known: Sequence[Axis], complete: Complete, *, pairs: bool = True, turn: int = 0) -> list[Schedule]:
    """Schedules with every value of *known*, and with *pairs* every two values of two axes where both may stand.

    Of an open axis with many values some take part in pairs (`few`), the others stand in one schedule each. *turn*
    begins at other values, so that a test over several worlds sees more combinations. Deterministic; empty where the
    scheme has no legal schedule at all.
    """
    if complete({}) is None:
        return []
    options = {axis.name: rotated(axis.values, turn) for axis in known}
    goals, refused = dict.fromkeys(_goals(known, options, pairs)), set[Goal]()
    chosen: dict[Schedule, None] = {}
    while goals:
        goal = next(iter(goals))
        if (made := _with(goal, options, (goals, refused), complete)) is None:
            del goals[goal]  # these values are refused together
            refused.add(goal)
            continue
        chosen[made] = None
        values = {axis.name: value_of(made, axis) for axis in known}
        reached = [each for each in goals if all(values[name] == value for name, value in each)]
        assert goal in reached, f"{made} was asked for {sorted(goal)}"
        for each in reached:
            del goals[each]
    return list(chosen)


def offered(problem: Problem, scheme: str, machine: Machine, fabric: Fabric, tile: str | None = None) -> list[Axis]:
    """The axes of *scheme*; a *tile* so small that the problem has many of them comes before those offered."""
    return [
        Axis(axis.name, (tile, *axis.values), tile, axis.doc, axis.open) if tile and axis.name == "tile" else axis
        for axis in axes(problem, scheme, machine, fabric)
    ]


def absent(known: Sequence[Axis], schedules: Sequence[Schedule]) -> list[str]:
    """The values of *known* that none of *schedules* has, as `axis = value`."""
    return [
        f"{axis.name} = {value}" for axis in known for value in axis.values
        if not any(value_of(each, axis) == value for each in schedules)
    ]  # fmt: skip


def value_of(schedule: Schedule, axis: Axis) -> Value | None:
    """The value that *schedule* has, also where it is the one that no schedule names; None where it is not read."""
    value, spans = schedule.get(axis.name), schedule.get(TILE_ORDER) == SPANNING
    if value is None and spans and PACKETS in axis.values:
        return REGISTERS  # of few sums
    if value is None and axis.name == COMM_SMS and not (spans and schedule.get("store") in (None, PACKETS)):
        return 0  # rows of ranks that tiles span are pushed by all; results of such tiles by nobody else
    return axis.default if value is None and axis.name == SHOTS else value


def few(axis: Axis, values: Sequence[Value]) -> Sequence[Value]:
    """Of an open axis the first, a middle and the last value; of others all."""
    return [values[at] for at in sorted({0, len(values) // 2, len(values) - 1})] if axis.open else values


def rotated(values: Sequence[Value], turn: int) -> Sequence[Value]:
    """*values* from another one on."""
    first = turn % len(values)
    return [*values[first:], *values[:first]]


def _goals(known: Sequence[Axis], options: Mapping[str, Sequence[Value]], pairs: bool) -> Iterator[Goal]:
    for one, other in combinations(known, 2) if pairs else ():
        for value in few(one, options[one.name]):
            yield from (frozenset({(one.name, value), (other.name, more)}) for more in few(other, options[other.name]))
    for axis in known:
        yield from (frozenset({(axis.name, value)}) for value in options[axis.name])


def _with(
    goal: Goal,
    options: Mapping[str, Sequence[Value]],
    known: tuple[Mapping[Goal, None], Collection[Goal]],
    complete: Complete,
) -> Schedule | None:
    """A schedule with *goal*, and of the other axes the values that reach most goals, as far as they are legal.

    *known*: the goals that are left, and those that were refused.
    """
    values, (goals, refused) = dict(goal), known
    made = complete(values)
    for name in options if made is not None else ():
        if name in values:
            continue
        reach = dict.fromkeys(options[name], 0)
        for each in goals:
            left = [pair for pair in each if values.get(pair[0]) != pair[1]]
            if len(left) == 1 and left[0][0] == name:
                reach[left[0][1]] += 1
        value = max(reach, key=lambda each: reach[each])
        if any(frozenset({(name, value), pair}) in refused for pair in values.items()):
            continue  # to see it again would take a search through all other values
        if (richer := complete({**values, name: value})) is not None:
            made, values[name] = richer, value
    return made
