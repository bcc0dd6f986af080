"""Trials for the simulator's tests: every operator at a size whose tiles and pieces do not all come out even."""

from collections.abc import Iterator, Mapping

from kernels.fabric import Fabric
from kernels.machine import Machine
from kernels.operators import OPERATORS, problem
from kernels.problem import Problem
from kernels.protocol import protocol
from kernels.schedule import Refusal, Schedule
from kernels.schemes import reads, schedule
from kernels.trial import Trial

SCHEMES = ("sequential", "decomposed", "fused")

AXES: dict[str, list[Mapping[str, int | str]]] = {
    "sequential": [
        *({"collective": name} for name in ("direct", "one_shot", "two_shot", "library", "overlapped")),
        *({"collective": name, "kernel": "ours"} for name in ("library", "direct", "two_shot", "copy_engine")),
    ],
    "decomposed": [
        {"pieces": pieces, "split": split, "steps": steps, "grouping": grouping, "pattern": pattern, "engine": engine}
        for pieces in (1, 4, 16)
        for split in ("rows", "columns", "contraction", "rows_and_contraction", "batch", "tables")
        for steps in ("uniform", "local_first")
        for grouping, pattern in (("fused", "all_to_all"), ("unfused", "all_to_all"), ("unfused", "ring"))
        for engine in ("sm", "copy_engine", "library")
    ],
    "fused": [
        {"slice_tiles": size, "tile_order": order, "write": write}
        for size in (1, 4, 16) for order in ("natural", "remote_first", "rotated")
        for write in ("zero_copy", "staged")
    ],
}  # fmt: skip


def ask(operator: str, world: int, scale: int = 1) -> Problem:
    """About 20 ms of computation on the test's laptop at scale 1."""
    if operator == "gemv_all_reduce":
        return problem(operator, {"n": 2000 * scale, "k": 8000, "tokens": 3}, world=world)
    if operator == "embedding_all_to_all":
        sizes = {"tables_per_rank": 4, "rows": 100_000, "dim": 64, "batch": 4000 * scale, "pooling": 16}
        return problem(operator, sizes, world=world)
    return problem(operator, {"m": 1000 * scale, "n": 1000, "k": 1000}, world=world)


def legal(asked: Problem, scheme: str, machine: Machine, fabric: Fabric) -> Iterator[Schedule]:
    """The schedules of AXES that are legal."""
    splits = OPERATORS[asked.operator].splits
    for values in AXES[scheme]:
        if values.get("split", next(iter(splits))) not in splits:
            continue
        unread = reads.unread(asked, scheme, values, machine.backend)
        read = {name: value for name, value in values.items() if name not in unread}
        try:
            yield schedule(asked, scheme, read, machine, fabric)
        except Refusal:
            continue


def trial(asked: Problem, chosen: Schedule, machine: Machine, fabric: Fabric) -> Trial:
    """A trial on *machine*."""
    return Trial(problem=asked, schedule=chosen, backend=machine.backend, machine=machine.name, fabric=fabric,
                 protocol=protocol("quick"))  # fmt: skip
