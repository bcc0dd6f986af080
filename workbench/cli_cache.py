"""The command that replays accesses on simulated caches: of an operator, a trace file, or the study's applications."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workbench import cli_options as options
from workbench.cli_asking import request as request_of
from workbench.cli_cache_show import Progress, show
from workbench.cli_options import option_of
from workbench.cli_show import say

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kernels.machine import Machine as Place
    from kernels.problem import Problem
    from kernels.schedule import Schedule
    from workbench.request import Request
    from workbench.simulator.cache.hierarchy import Hierarchy
    from workbench.simulator.cache.policies import Policy
    from workbench.simulator.cache.study import Asked
    from workbench.simulator.cache.trace import Trace

    Point = tuple[Problem, Schedule, Place]

GPUS = ("h200_nvl2", "h200_nvl4", "h200_nvl8")
"""Where no machine is named, the first of these with enough ranks: CPU ranks have no caches that we describe."""
SCHEME = "fused"
"""The scheme where none is named."""
USUAL = "cache_rw"
"""The policy where none is named: all that GPUs do by themselves."""
TIERS = ("reuse", "lines")
"""Who answers for an operator."""
Row = dict[str, Any]

Several = Annotated[
    list[str] | None, typer.Option("--workloads", help="Applications of the study by name, or all; once per name.")
]
Policies = Annotated[
    list[str] | None,
    typer.Option("--policies", help="Cache policies by name, or all. Default: cache_rw; of --workloads all."),
]
File = Annotated[Path | None, typer.Option("--trace", help="A trace file: Parquet, as docs/caches.md says.")]
Caches = Annotated[
    str | None, typer.Option("--caches", help="A file of data/caches. Default: the machine's; of --workloads gcn3_hbm.")
]
L2 = Annotated[int | None, typer.Option("--l2-bytes", help="Another size of L2.")]
Sweep = Annotated[bool, typer.Option("--l2-sweep", help="The same at L2s of 8 to 256 MiB, a row for each.")]
Tier = Annotated[
    str | None,
    typer.Option(
        help=(
            "Of an operator: reuse, which counts tiles that share operands (a millisecond; L2 in two partitions, SMs "
            "that drift), or lines, which replays every access. Default: reuse; with --policies, --save or cache hints "
            "lines."
        )
    ),
]
Save = Annotated[Path | None, typer.Option("--save", help="Write the operator's trace to this new file, too.")]
Operator = Annotated[str | None, typer.Argument(help="A name that `workbench operators` lists.", show_default=False)]
Texts = list[str] | None


def cache(
    operator: Operator = None,
    trace: File = None,
    workloads: Several = None,
    policies: Policies = None,
    preset: Annotated[str | None, option_of("preset")] = None,
    shape: Annotated[Texts, option_of("shape")] = None,
    dtype: Annotated[str | None, option_of("dtype")] = None,
    world: Annotated[int | None, option_of("world")] = None,
    scheme: Annotated[str | None, typer.Option(help=f"Whose tiles and order. Default: {SCHEME}.")] = None,
    settings: Annotated[Texts, option_of("settings")] = None,
    machine: Annotated[
        str | None, typer.Option(help=f"Whose caches, and on what it runs. Default: {GPUS[0]}, or more such GPUs.")
    ] = None,
    tier: Tier = None,
    caches: Caches = None,
    l2_bytes: L2 = None,
    l2_sweep: Sweep = False,
    save: Save = None,
    json: options.Json = False,
) -> None:
    """Who stays in the cache: simulated L2 hits and DRAM bytes of an operator, a trace or applications.

    Exactly one of OPERATOR, --trace and --workloads is stated. Rates and bytes stand for each structure in --json.
    """
    _one_of({"OPERATOR": operator, "--trace": trace, "--workloads": workloads})
    if operator is None:
        _of_operators_only({"--preset": preset, "--shape": shape, "--dtype": dtype, "--world": world,
                            "--scheme": scheme, "--set": settings, "--save": save, "--tier": tier})  # fmt: skip
    _one_size(l2_sweep, {"--workloads": workloads, "--l2-bytes": l2_bytes})
    replays = _Replays.of(policies or (["all"] if workloads else [USUAL]), _sizes(l2_sweep))
    if workloads:
        show(*_of_workloads(workloads, _study_caches(caches, machine, l2_bytes), replays), json)
        return
    if trace is not None:
        on, (rows_at, facts) = _caches(caches, _machine(machine), l2_bytes), _of_file(trace, replays)
    else:
        request = _on_enough_ranks({"operator": operator, "preset": preset, "shape": shape, "dtype": dtype,
                                    "world": world, "schemes": [scheme or SCHEME], "settings": settings,
                                    "machine": machine})  # fmt: skip
        on = _caches(caches, request.machine_description(), l2_bytes)
        point, facts = _point(request)
        if not (policies or save or tier) and (names := _hinted(point)):
            replays = _Replays.of(names, _sizes(l2_sweep))
            rows_at = partial(_beside_measured, point, partial(replays.rows, _traced(point, on, None), None))
        elif _tier(tier, policies, save) == "reuse":
            rows_at = partial(_estimated, point)
        else:
            rows_at = partial(replays.rows, _traced(point, on, save), None)
    summary = {**facts, "caches": on.name, "l2_bytes": None if l2_sweep else on.l2_bytes, "policies": replays.count}
    show(_swept(on, rows_at, replays.progress) if l2_sweep else rows_at(on), summary, json)


@dataclass(frozen=True, slots=True)
class _Replays:
    """Which policies traces are replayed under, and who is told how far that is."""

    policies: tuple[Policy, ...]
    optimum: bool
    progress: Progress

    @classmethod
    def of(cls, names: list[str], sizes: int) -> _Replays:
        """The policies called *names*, each at so many *sizes* of L2."""
        from workbench.simulator.cache.study import chosen_policies

        made = cls(chosen_policies(names), "all" in names, Progress())
        made.progress.replays = made.count * sizes
        return made

    @property
    def count(self) -> int:
        return len(self.policies) + self.optimum

    def on(self, caches: Hierarchy) -> Asked:
        """All of them on *caches*."""
        from workbench.simulator.cache.study import Asked

        return Asked(caches, self.policies, self.optimum)

    def rows(self, made: Trace, path: Path | None, caches: Hierarchy) -> list[Row]:
        """The rows of *made*; what is wrong with an access that stands in a file is told with the file's name."""
        from kernels.schedule import Refusal
        from workbench.simulator.cache.study import rows

        try:
            return rows(self.progress.watched(made), self.on(caches), self.progress.told)
        except Refusal as error:
            if path is None or str(path) in str(error):
                raise
            raise Refusal(f"{path}: {error}") from None


def _sizes(l2_sweep: bool) -> int:
    """How many sizes of L2 are asked about."""
    from workbench.simulator.cache.sizes import SIZES

    return len(SIZES) if l2_sweep else 1


def _one_size(l2_sweep: bool, values: Mapping[str, object]) -> None:
    """Refuses what has sizes of its own beside a sweep of them."""
    if l2_sweep and (stray := [name for name, value in values.items() if value]):
        raise ValueError(f"--l2-sweep and {stray[0]} are stated, 2 > 1. Accepted: --l2-sweep without {stray[0]}.")


def _of_workloads(names: list[str], on: Hierarchy, replays: _Replays) -> tuple[list[Row], Row]:
    """The rows of the study, and its summary."""
    from workbench.simulator.cache import study

    rows = study.study(study.chosen_workloads(names), replays.on(on), replays.progress.told)
    return rows, {**study.summary(rows), "caches": on.name, "l2_bytes": on.l2_bytes}


def _study_caches(caches: str | None, machine: str | None, l2_bytes: int | None) -> Hierarchy:
    """The caches of the study, unless others are named."""
    from workbench.simulator.cache.hierarchy import STUDY

    return _caches(caches if caches or machine else STUDY, _machine(machine), l2_bytes)


def _of_file(path: Path, replays: _Replays) -> tuple[partial[list[Row]], Row]:
    """Who makes rows of the trace in *path*, and what it is."""
    from workbench.simulator.cache.trace_file import read

    return partial(replays.rows, read(path), path), {"trace_file": str(path)}


def _swept(on: Hierarchy, rows_at: partial[list[Row]], progress: Progress) -> list[Row]:
    from workbench.simulator.cache.sizes import swept

    return swept(on, rows_at, progress.told)


def _tier(tier: str | None, policies: list[str] | None, save: Path | None) -> str:
    """Who answers; refused where it cannot."""
    needs = "--policies" if policies not in (None, [USUAL]) else "--save" if save is not None else None
    if tier is None:
        return "lines" if policies or save else "reuse"
    if tier not in TIERS:
        raise ValueError(f"There is no tier {tier!r}. Accepted: {', '.join(TIERS)}.")
    if tier == "reuse" and needs is not None:
        raise ValueError(f"--tier reuse knows 1 policy, {USUAL}, and replays 0 accesses: {needs} needs them. "
                         f"Accepted: --tier lines, or no {needs}.")  # fmt: skip
    return tier


def _on_enough_ranks(words: Row) -> Request:
    """The request; where no machine is stated, on the first of GPUS that has as many ranks as the problem."""
    if words["machine"] is not None:
        return request_of(words)
    for name in GPUS:
        request = request_of({**words, "machine": name})
        known = request.machine_description()
        if request.problem(known).world <= known.ranks_per_host:
            break
    return request


def _one_of(sources: Mapping[str, object]) -> None:
    named = [name for name, value in sources.items() if value]
    if len(named) != 1:
        subject = f"{' and '.join(named)} are stated" if named else f"None of {', '.join(sources)} is stated"
        raise ValueError(f"{subject}, and one is needed. "
                         "Accepted: exactly one of OPERATOR, --trace FILE and --workloads all.")  # fmt: skip


def _of_operators_only(values: Mapping[str, object]) -> None:
    """Refuses what says how an operator runs where none is stated: it would change nothing, silently."""
    if stray := [name for name, value in values.items() if value]:
        raise ValueError(f"{stray[0]} is of the trace of an operator, and none is stated. "
                         f"Accepted: OPERATOR with {stray[0]}, or no {stray[0]}.")  # fmt: skip


def _machine(name: str | None) -> Place:
    from workbench.machines import machine

    return machine(name or GPUS[0])


def _caches(name: str | None, machine: Place, l2_bytes: int | None) -> Hierarchy:
    from workbench.simulator.cache.hierarchy import hierarchy, of_machine

    on = of_machine(machine) if name is None else hierarchy(name)
    return on if l2_bytes is None else on.with_l2(l2_bytes)


def _point(request: Request) -> tuple[Point, Row]:
    """The one schedule that is asked for with its problem, and what stands in the summary of it."""
    place = request.machine_description()
    problem = request.problem(place)
    points = request.experiment().points(problem, place)
    if not points.schedules:
        raise ValueError(points.refused[0][1])
    if len(points.schedules) > 1:
        raise ValueError(f"--set asks for {len(points.schedules)} schedules at once: {len(points.schedules)} > 1. "
                         "Accepted: one value of each axis.")  # fmt: skip
    schedule = points.schedules[0]
    return (problem, schedule, place), {
        "operator": problem.operator, "shape": dict(problem.shape), "dtype": problem.dtype, "world": problem.world,
        "scheme": schedule.scheme, "axes": dict(schedule.axes), "machine": place.name,
    }  # fmt: skip


def _estimated(point: Point, on: Hierarchy) -> list[Row]:
    """The row of the reuse tier, and the one that a GPU counted where these are its caches."""
    from workbench.simulator.cache.reuse import row
    from workbench.simulator.price.rereads import residents

    problem, schedule, place = point
    resident = residents(place, problem, schedule)
    return _beside_measured(point, lambda caches: [row(problem, schedule, caches, resident)], on)


def _beside_measured(point: Point, rows_at: Callable[[Hierarchy], list[Row]], on: Hierarchy) -> list[Row]:
    """What *rows_at* says of *on*, and what a GPU counted where these are its caches."""
    from workbench import counted

    simulated = [{"l2_bytes": on.l2_bytes, **row, "source": "estimated"} for row in rows_at(on)]
    return [*simulated, *counted.points(*point[:2], on)]


def _hinted(point: Point) -> list[str]:
    """Policies that a replay compares, since the schedule has cache hints, which no count of tiles knows; else none."""
    from workbench.simulator.cache.hinted import hints_of, policies_of

    return [policy.name for policy in policies_of(point[1])] if hints_of(point[1]) else []


def _traced(point: Point, on: Hierarchy, save: Path | None) -> Trace:
    """The trace of the schedule, which is saved, too, where that is asked for."""
    from workbench.simulator.cache.operators import traced

    made = traced(*point[:2], on.units)
    if save is not None:
        if save.exists():
            raise ValueError(f"{save} is there already, and a trace replaces no file. Accepted: a new name.")
        say(f"{_saved(made, save):,} accesses are in {save}.")
    return made


def _saved(made: Trace, path: Path) -> int:
    """How many accesses the new file *path* has; it is there as a whole, or not at all."""
    from workbench.file_kinds import FileKind
    from workbench.simulator.cache.trace_file import write
    from workbench.targets import Target

    counts: list[int] = []
    kind = FileKind("trace", "a trace", lambda _: False)
    Target(path).write(kind, lambda unfinished: counts.append(write(made, unfinished)))
    return counts[0]
