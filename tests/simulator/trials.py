"""Trials for the simulator's tests: every operator at a size whose tiles and pieces do not all come out even."""

from collections.abc import Sequence

from kernels.fabric import Fabric
from kernels.machine import Machine
from kernels.operators import problem
from kernels.problem import Problem
from kernels.schedule import Axis, Schedule
from kernels.schemes import axes
from kernels.trial import Trial, protocol
from tests.kernels import covering


def ask(operator: str, world: int, scale: int = 1) -> Problem:
    """About 20 ms of computation on the test's laptop at scale 1."""
    if operator == "gemv_all_reduce":
        return problem(operator, {"n": 2000 * scale, "k": 8000, "tokens": 3}, world=world)
    if operator == "embedding_all_to_all":
        sizes = {"tables_per_rank": 4, "rows": 100_000, "dim": 64, "batch": 4000 * scale, "pooling": 16}
        return problem(operator, sizes, world=world)
    return problem(operator, {"m": 1000 * scale, "n": 1000, "k": 1000}, world=world)


def legal(
    asked: Problem, scheme: str, machine: Machine, fabric: Fabric, *, pairs: bool = True, turn: int = 0
) -> list[Schedule]:
    """Legal schedules with every value that is offered, and with *pairs* every two values where both may stand.

    Another *turn* puts other values together.
    """
    known = axes(asked, scheme, machine, fabric)
    return covering.covering(known, covering.legal(asked, scheme, machine, fabric), pairs=pairs, turn=turn)


def whatever(scheme: str, known: Sequence[Axis]) -> list[Schedule]:
    """Schedules with every two values of *known*, legal or not."""
    usual = {axis.name: axis.default for axis in known}
    return covering.covering(known, lambda values: Schedule(scheme, tuple({**usual, **values}.items())))


def trial(asked: Problem, chosen: Schedule, machine: Machine, fabric: Fabric) -> Trial:
    """A trial on *machine*."""
    return Trial(problem=asked, schedule=chosen, backend=machine.backend, machine=machine.name, fabric=fabric,
                 protocol=protocol("quick"))  # fmt: skip
