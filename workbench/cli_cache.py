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
    from collections.abc import Mapping

    from kernels.machine import Machine as Place
    from workbench.request import Request
    from workbench.simulator.cache.hierarchy import Hierarchy
    from workbench.simulator.cache.study import Asked
    from workbench.simulator.cache.trace import Trace

GPU = "h200_nvl2"
"""The machine where none is named: CPU ranks have no caches that we describe."""
SCHEME = "fused"
"""The scheme where none is named."""
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
    scheme: Annotated[str | None, typer.Option(help=f"Whose tiles and order. Default: {SCHEME}.")] = None,
    settings: Annotated[Texts, option_of("settings")] = None,
    machine: Annotated[str | None, typer.Option(help=f"Whose caches, and on what it runs. Default: {GPU}.")] = None,
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

    _one_of({"OPERATOR": operator, "--trace": trace, "--workloads": workloads})
    if operator is None:
        _of_operators_only({"--preset": preset, "--shape": shape, "--dtype": dtype, "--world": world,
                            "--scheme": scheme, "--set": settings, "--save": save})  # fmt: skip
    chosen = study.chosen_policies(policies or (["all"] if workloads else [USUAL]))
    if workloads:
        on = _caches(caches if caches or machine else STUDY, _machine(machine), l2_bytes)
        applications = study.chosen_workloads(workloads)
        rows = study.study(applications, study.Asked(on, chosen, optimum="all" in (policies or ["all"])))
        _show(rows, {**study.summary(rows), "caches": on.name, "l2_bytes": on.l2_bytes}, json)
        return
    if trace is not None:
        from workbench.simulator.cache.trace_file import read

        on, made = _caches(caches, _machine(machine), l2_bytes), read(trace)
        facts: Row = {"trace_file": str(trace)}
    else:
        request = request_of({"operator": operator, "preset": preset, "shape": shape, "dtype": dtype, "world": world,
                              "schemes": scheme or SCHEME, "settings": settings,
                              "machine": machine or GPU})  # fmt: skip
        on = _caches(caches, request.machine_description(), l2_bytes)
        made, facts = _traced(request, on, save)
    rows = _replayed(made, study.Asked(on, chosen, optimum="all" in (policies or [])), trace)
    _show(rows, {**facts, "caches": on.name, "l2_bytes": on.l2_bytes, "policies": len(rows)}, json)


def _one_of(sources: Mapping[str, object]) -> None:
    named = [name for name, value in sources.items() if value]
    if len(named) != 1:
        subject = " and ".join(named) or "None of them"
        raise ValueError(f"{subject} {'are' if len(named) > 1 else 'is'} stated, {len(named)} of 3, and one is needed. "
                         "Accepted: exactly one of OPERATOR, --trace FILE and --workloads all.")  # fmt: skip


def _of_operators_only(values: Mapping[str, object]) -> None:
    """Refuses what says how an operator runs where none is stated: it would change nothing, silently."""
    if stray := [name for name, value in values.items() if value]:
        raise ValueError(f"{stray[0]} is of the trace of an operator, and none is stated. "
                         f"Accepted: OPERATOR with {stray[0]}, or no {stray[0]}.")  # fmt: skip


def _machine(name: str | None) -> Place:
    from workbench.machines import machine

    return machine(name or GPU)


def _caches(name: str | None, machine: Place, l2_bytes: int | None) -> Hierarchy:
    from workbench.simulator.cache.hierarchy import hierarchy, of_machine

    on = of_machine(machine) if name is None else hierarchy(name)
    return on if l2_bytes is None else on.with_l2(l2_bytes)


def _traced(request: Request, on: Hierarchy, save: Path | None) -> tuple[Trace, Row]:
    """The trace of the one schedule that is asked for, and what it is of."""
    from workbench.simulator.cache.operators import traced

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
        say(f"{_saved(made, save):,} accesses are in {save}.")
    return made, {"operator": problem.operator, "shape": dict(problem.shape), "dtype": problem.dtype,
                  "world": problem.world, "scheme": schedule.scheme, "axes": dict(schedule.axes),
                  "machine": place.name}  # fmt: skip


def _saved(made: Trace, path: Path) -> int:
    """How many accesses the new file *path* has; it is there as a whole, or not at all."""
    from workbench.file_kinds import FileKind
    from workbench.simulator.cache.trace_file import write
    from workbench.targets import Target

    counts: list[int] = []
    kind = FileKind("trace", "a trace", lambda _: False)
    Target(path).write(kind, lambda unfinished: counts.append(write(made, unfinished)))
    return counts[0]


def _replayed(made: Trace, wanted: Asked, path: Path | None) -> list[Row]:
    """The rows of *made*; what is wrong with an access that stands in a file is told with the file's name."""
    from kernels.schedule import Refusal
    from workbench.simulator.cache.study import rows

    try:
        return rows(made, wanted)
    except Refusal as error:
        if path is None or str(path) in str(error):
            raise
        raise Refusal(f"{path}: {error}") from None


def _show(rows: list[Row], summary: Row, json: bool) -> None:
    if json:
        show_rows(rows, summary)
        return
    several = len({row.get("application") for row in rows}) > 1
    show_table([
        *([Column("application", [row["application"] for row in rows], "name")] if several else []),
        Column("policy", [row["policy"] for row in rows], "name"),
        Column("of\nUncached", [_number(row["relative_cycles"], "{:.3f}") for row in rows], "number"),
        Column("cycles", [_number(row["cycles"], "{:,.0f}") for row in rows], "number",
               goes_below=1 if any(row["relative_cycles"] for row in rows) else 0),
        Column("L2\nhits", [_number(row["l2_hit_rate"], "{:.1%}") for row in rows], "number"),
        Column("DRAM\nread", [_number(row.get("dram_read_bytes"), "{:,.0f}") for row in rows], "number"),
        Column("DRAM\nwritten", [_number(row.get("dram_write_bytes"), "{:,.0f}") for row in rows], "number"),
        Column("lines\nmissed", [_number(row["l2_line_misses"], "{:,.0f}") for row in rows], "number"),
    ])  # fmt: skip
    for sentence in _sentences(summary):
        tell(sentence)


def _number(value: float | None, form: str) -> str | None:
    return None if value is None else form.format(value)


def _sentences(summary: Row) -> list[str]:
    """What the rows show, in sentences."""
    size = f"L2 of {summary['l2_bytes'] / MIB:g} MiB"
    sentences = [f"Caches: {summary['caches']}, {size}. All is simulated; DRAM columns are in bytes."]
    count = summary.get("applications")
    if count:
        sentences.append(f"The applications are {summary['labels']} from their names.")
    if summary.get("best_static_differs") is not None:
        sentences.append(f"The best static policy is {summary['usual_best_static']} for most, and another one for "
                         f"{summary['best_static_differs']} of {count} applications.")  # fmt: skip
    if summary.get("worst_regret") is not None:
        sentences.append(f"All optimisations together are within 2 % of the best static policy for "
                         f"{summary['optimised_within_2pct_of_best_static']} of {count}; the worst is "
                         f"{summary['worst_regret_application']}, {summary['worst_regret']:+.1%}.")  # fmt: skip
    return sentences
