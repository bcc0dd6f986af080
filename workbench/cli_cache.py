"""The command that replays accesses on simulated caches: of an operator, a trace file, or the study's applications."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workbench import cli_options as options
from workbench.cli_asking import request as request_of
from workbench.cli_options import option_of
from workbench.cli_show import say, show_rows, tell
from workbench.cli_table import Column, show_table

if TYPE_CHECKING:
    from kernels.machine import Machine as Place
    from workbench.request import Request
    from workbench.simulator.cache.hierarchy import Hierarchy
    from workbench.simulator.cache.trace import Trace

GPU = "h200_nvl2"
"""The machine where none is named: CPU ranks have no caches that we describe."""
USUAL = "cache_rw"
"""The policy where none is named: all that GPUs do by themselves."""
MIB = 2**20
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
    scheme: Annotated[str, typer.Option(help="Whose tiles and order.")] = "fused",
    settings: Annotated[Texts, option_of("settings")] = None,
    machine: Annotated[str, typer.Option(help="Whose caches, and on what it would run.")] = GPU,
    caches: Caches = None,
    l2_bytes: L2 = None,
    save: Save = None,
    json: options.Json = False,
) -> None:
    """Replay every load and store on simulated caches: who stays in L2, and what DRAM moves.

    Exactly one of OPERATOR, --trace and --workloads is stated. Rates and bytes stand for each structure in --json.
    """
    from workbench.simulator.cache import study
    from workbench.simulator.cache.hierarchy import STUDY

    _one_of(operator, trace, workloads, save)
    chosen = study.chosen_policies(policies or (["all"] if workloads else [USUAL]))
    if workloads:
        on = _caches(caches or STUDY, None, l2_bytes)
        applications = study.chosen_workloads(workloads)
        rows = study.study(applications, study.Asked(on, chosen, optimum="all" in (policies or ["all"])))
        found = study.summary(rows)
        _show(rows, {**found, "caches": on.name, "l2_bytes": on.l2_bytes}, json)
        return
    if trace is not None:
        from workbench.simulator.cache.trace_file import read

        on, made = _caches(caches, _machine(machine), l2_bytes), read(trace)
        facts: Row = {"trace_file": str(trace)}
    else:
        request = request_of({"operator": operator, "preset": preset, "shape": shape, "dtype": dtype, "world": world,
                              "schemes": scheme, "settings": settings, "machine": machine})  # fmt: skip
        on = _caches(caches, request.machine_description(), l2_bytes)
        made, facts = _traced(request, on, save)
    rows = study.rows(made, study.Asked(on, chosen, optimum="all" in (policies or [])))
    _show(rows, {**facts, "caches": on.name, "l2_bytes": on.l2_bytes, "policies": len(rows)}, json)


def _one_of(operator: str | None, trace: Path | None, workloads: list[str] | None, save: Path | None) -> None:
    stated = [name for name, value in (("OPERATOR", operator), ("--trace", trace), ("--workloads", workloads)) if value]
    if len(stated) != 1:
        told = " and ".join(stated) or "None of them"
        raise ValueError(f"{told} {'are' if len(stated) > 1 else 'is'} stated, {len(stated)} of 3, and one is needed. "
                         "Accepted: exactly one of OPERATOR, --trace FILE and --workloads all.")  # fmt: skip
    if save is not None and operator is None:
        raise ValueError("--save writes the trace of an operator, and none is stated. Accepted: OPERATOR with --save.")


def _machine(name: str) -> Place:
    from workbench.machines import machine

    return machine(name)


def _caches(name: str | None, machine: Place | None, l2_bytes: int | None) -> Hierarchy:
    from workbench.simulator.cache.hierarchy import hierarchy, of_machine

    if name is None:
        assert machine is not None, "nobody said whose caches"
        on = of_machine(machine)
    else:
        on = hierarchy(name)
    return on if l2_bytes is None else on.with_l2(l2_bytes)


def _traced(request: Request, on: Hierarchy, save: Path | None) -> tuple[Trace, Row]:
    """The trace of the one schedule that is asked for, and what it is of."""
    from workbench.simulator.cache.operators import traced
    from workbench.simulator.cache.trace_file import write

    place = request.machine_description()
    problem = request.problem(place)
    points = request.experiment().points(problem, place)
    if not points.schedules:
        raise ValueError(points.refused[0][1])
    schedule = points.schedules[0]
    made = traced(problem, schedule, on.units)
    if save is not None:
        if save.exists():
            raise ValueError(f"{save} is there already, and a trace replaces no file. Accepted: a new name.")
        say(f"{write(made, save):,} accesses are in {save}.")
    return made, {"operator": problem.operator, "shape": dict(problem.shape), "dtype": problem.dtype,
                  "world": problem.world, "scheme": schedule.scheme, "axes": dict(schedule.axes),
                  "machine": place.name}  # fmt: skip


def _show(rows: list[Row], summary: Row, json: bool) -> None:
    if json:
        show_rows(rows, summary)
        return
    several = len({row.get("application") for row in rows}) > 1
    show_table([
        *([Column("application", [row["application"] for row in rows], "name")] if several else []),
        Column("policy", [row["policy"] for row in rows], "name"),
        Column("of Uncached", [_number(row["relative_cycles"], "{:.3f}") for row in rows], "number"),
        Column("cycles", [_number(row["cycles"], "{:,.0f}") for row in rows], "number"),
        Column("L2 hits", [_number(row["l2_hit_rate"], "{:.1%}") for row in rows], "number"),
        Column("DRAM read", [_number(row.get("dram_read_bytes"), "{:,.0f}") for row in rows], "number"),
        Column("written", [_number(row.get("dram_write_bytes"), "{:,.0f}") for row in rows], "number"),
        Column("lines missed", [_number(row["l2_line_misses"], "{:,.0f}") for row in rows], "number"),
    ])  # fmt: skip
    for sentence in _told(summary):
        tell(sentence)


def _number(value: float | None, form: str) -> str | None:
    return None if value is None else form.format(value)


def _told(summary: Row) -> list[str]:
    """What the rows show, in sentences."""
    told = [f"Caches: {summary['caches']}, L2 of {summary['l2_bytes'] / MIB:g} MiB. Simulated; bytes in DRAM columns."]
    if summary.get("applications"):
        told.append(f"The applications are {summary['labels']} from their names.")
    if summary.get("best_static_differs") is not None:
        told.append(f"The best static policy is {summary['usual_best_static']} for most, and another one for "
                    f"{summary['best_static_differs']} of {summary['applications']} applications.")  # fmt: skip
    if summary.get("worst_regret") is not None:
        told.append(f"All optimisations together are within 2 % of the best static policy for "
                    f"{summary['optimised_within_2pct_of_best_static']} of {summary['applications']}; the worst is "
                    f"{summary['worst_regret_application']}, {summary['worst_regret']:+.1%}.")  # fmt: skip
    return told
