"""The command `cache`: accesses of an operator, a trace file or the study's applications on simulated caches."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernels.units import about, bytes_text, num_text
from workbench.cli import options
from workbench.cli.options import option_of
from workbench.cli.options import request as request_of
from workbench.cli.output import (
    TableColumn,
    end_progress,
    one_screen,
    said_if_slow,
    say,
    say_progress,
    show_rows,
    show_table,
    show_text,
)

# Output of simulated caches: a table, sentences about it, and the progress of long replays.

if TYPE_CHECKING:
    from workbench.simulator.cache.trace import Chunk, Trace

MIB = 2**20
QUIET_S, BETWEEN_S = 2.0, 5.0
"""Progress is printed after the first time, then at intervals of the second."""
Row = dict[str, Any]


@dataclass
class ReplayProgress:
    """Prints the progress of replays to stderr."""

    due: float = field(default_factory=lambda: time.monotonic() + QUIET_S)
    replays: int = 1
    """The number of replays in all: under each policy, at each size of L2."""
    replayed: int = 0
    begun: float | None = None
    """When the first access was replayed."""

    def ended(self, count: int, most: int, ended: str) -> None:
        """Reports that *count* of *most* replays have ended, the last one called *ended*."""
        self._say(lambda: f"{count} of {most} replays have ended, {ended} just now.")

    def watched(self, trace: Trace) -> Trace:
        """*trace*, whose replays report the number of accesses."""

        def chunks() -> Iterator[Chunk]:
            for chunk in trace.chunks():
                self.begun = (
                    self.begun or time.monotonic()
                )  # the first one took longer, as accesses were counted for it
                yield chunk
                self.replayed += len(chunk.accesses)
                self._say(lambda: self._so_far(trace))

        return replace(trace, chunks=chunks)

    def _so_far(self, trace: Trace) -> str:
        """The replayed accesses, and the remaining time at the speed so far."""
        most = max(self.replayed, self.replays * trace.count())
        taken_s = time.monotonic() - (self.begun or 0.0)
        left = f", {about(taken_s * (most - self.replayed) / self.replayed)} left" if taken_s > QUIET_S else ""
        return f"{self.replayed / 1e6:,.0f} of {most / 1e6:,.0f} million accesses are replayed{left}."

    def _say(self, text: Callable[[], str]) -> None:
        if time.monotonic() >= self.due:
            self.due = time.monotonic() + BETWEEN_S
            say_progress(text())


def show(rows: list[Row], summary: Row, json: bool, every: bool = False) -> None:
    """Prints what the rows say and the rows, at most a screen or *every* one, or one document of them."""
    end_progress()
    if json:
        show_rows(rows, summary)
        return
    several = len(summary.get("regret") or ()) > 1
    with one_screen(every):
        show_text(_answer(rows, summary))
        if several:
            _show_best(rows, summary)
        else:
            show_table([*_named(rows), *_counted(rows)])
        for message in _messages(rows, summary):
            show_text(message)
        if several:
            show_table([*_named(rows), *_counted(rows)])


def _show_best(rows: list[Row], summary: Row) -> None:
    """Prints one line for each application: its best static policy, and all optimisations next to it."""
    best, regret = summary["best_static"], summary["regret"]
    relative = {(row["application"], row["policy"]): row["relative_cycles"] for row in rows}
    show_table([
        TableColumn("application", list(regret), "name"),
        TableColumn("best static\npolicy", [best[name] for name in regret], "name"),
        TableColumn("of\nUncached", [_number(relative[name, best[name]], "{:.3f}") for name in regret], "number"),
        TableColumn("all optimisations\nnext to it", [f"{each:+.1%}" for each in regret.values()], "number"),
    ])  # fmt: skip


def _named(rows: list[Row]) -> list[TableColumn]:
    """The columns that identify rows."""
    several = len({row.get("application") for row in rows}) > 1
    sizes = [_number(row.get("l2_bytes"), "{:,.0f}", MIB) for row in rows]
    return [
        *([TableColumn("application", [row["application"] for row in rows], "name")] if several else []),
        *([TableColumn("L2\nMiB", sizes, "number")] if any(sizes) else []),
        *([TableColumn("source", [row["source"] for row in rows], "name")] if _measured(rows) else []),
        TableColumn("policy", [row["policy"] for row in rows], "name"),
    ]


def _measured(rows: list[Row]) -> list[Row]:
    """The rows that a GPU counted."""
    return [row for row in rows if row.get("source") == "measured"]


def _counted(rows: list[Row]) -> list[TableColumn]:
    """The columns of numbers, without empty ones."""
    relative = any(row["relative_cycles"] for row in rows)
    columns = [
        TableColumn("of\nUncached", [_number(row["relative_cycles"], "{:.3f}") for row in rows], "number"),
        TableColumn("cycles", [_number(row["cycles"], "{:,.0f}") for row in rows], "number", goes_below=int(relative)),
        TableColumn("L2\nhits", [_number(row["l2_hit_rate"], "{:.1%}") for row in rows], "number"),
        TableColumn(
            "DRAM\nread", [_number(row.get("dram_read_bytes"), "{:,.0f}") for row in rows], "number", goes_below=2
        ),
        TableColumn(
            "DRAM\nwritten", [_number(row.get("dram_write_bytes"), "{:,.0f}") for row in rows], "number", goes_below=3
        ),
        TableColumn(
            "lines\nmissed", [_number(row["l2_line_misses"], "{:,.0f}") for row in rows], "number", goes_below=4
        ),
    ]
    return [column for column in columns if any(cell is not None for cell in column.cells)]


def _number(value: float | None, form: str, unit: float = 1) -> str | None:
    return None if value is None else form.format(value / unit)


def _answer(rows: list[Row], summary: Row) -> str:
    """What the rows say, in one sentence: how good all optimisations are, which policy is best, or what hits."""
    if summary.get("worst_regret") is not None:
        return (f"All optimisations together are within 2 % of the best static policy for "
                f"{summary['optimised_within_2pct_of_best_static']} of {summary['applications']}; the worst is "
                f"{summary['worst_regret_application']}, {summary['worst_regret']:+.1%}.")  # fmt: skip
    if len({row.get("l2_bytes") for row in rows}) > 1:
        least, most = rows[0], rows[-1]
        return (f"From {_size(least)} of L2 to {_size(most)}, {least['l2_hit_rate']:.1%} to {most['l2_hit_rate']:.1%} "
                f"hit; DRAM moves {_dram(least)} to {_dram(most)}.")  # fmt: skip
    timed = [row for row in rows if row.get("cycles") is not None]
    if len(timed) > 1:
        best = min(timed, key=lambda row: float(row["cycles"]))
        alike = sum(row["cycles"] == best["cycles"] for row in timed) - 1
        also = f", like {num_text(alike, 'other')}" if alike else ""
        return f"{best['policy']} takes the fewest cycles of {len(timed)} policies, {best['cycles']:,.0f}{also}."
    known = [*_measured(rows), *(row for row in rows if row not in _measured(rows))]
    return "; ".join(f"{row['l2_hit_rate']:.1%} hit in L2 and {_dram(row)} of DRAM move, {_source(row)}"
                     for row in known) + "."  # fmt: skip


def _size(row: Row) -> str:
    return f"{row['l2_bytes'] / MIB:,.0f} MiB"


def _dram(row: Row) -> str:
    """The bytes that DRAM reads and writes."""
    moved = [row.get(f"dram_{way}_bytes") for way in ("read", "write")]
    return bytes_text(sum(each for each in moved if each is not None))


def _source(row: Row) -> str:
    return "measured" if row.get("source") == "measured" else f"simulated under {row['policy']}"


def _messages(rows: list[Row], summary: Row) -> list[str]:
    """Sentences about the rows."""
    size = f"L2 of {summary['l2_bytes'] / MIB:g} MiB" if summary["l2_bytes"] else "L2 as in each row"
    how = "every access is replayed" if rows[0]["tier"] == "lines" else "tiles that share operands are counted"
    known = _measured(rows)
    which = "What is not measured" if known else "All"
    about_all = [f"Caches: {summary['caches']}, {size}. {which} is simulated, {how}; DRAM columns are in bytes."]
    if known:
        about_all.append(f"Measured: {known[0]['gpus']}, {known[0]['date']}, the median of {known[0]['repeats']} "
                         "launches, the caches flushed before each.")  # fmt: skip
    count = summary.get("applications")
    if count:
        about_all.append(f"The applications are {summary['labels']} from their names.")
    if summary.get("best_static_differs") is not None:
        about_all.append(f"The best static policy is {summary['usual_best_static']} for most, and another one for "
                         f"{summary['best_static_differs']} of {count} applications.")  # fmt: skip
    return about_all


# The command.

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kernels.machine import Machine as Place
    from kernels.problem import Problem
    from kernels.schedule import Schedule
    from workbench.experiment.question import Request
    from workbench.simulator.cache.hierarchy import Hierarchy
    from workbench.simulator.cache.policies import Policy
    from workbench.simulator.cache.study import StudyQuestion
    from workbench.simulator.cache.trace import Trace

    Point = tuple[Problem, Schedule, Place]

GPUS = ("h200_nvl2", "h200_nvl4", "h200_nvl8")
"""The default machine is the first of these with enough ranks: the caches of CPU ranks are not described."""
SCHEME = "fused"
"""The default scheme."""
DEFAULT_POLICY = "cache_rw"
"""The default policy: what GPUs do by themselves."""
TIERS = ("reuse", "lines")
"""The ways to estimate an operator."""


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
Sweep = Annotated[bool, typer.Option("--l2-sweep", help="Repeat at L2 sizes of 8 to 256 MiB, one row for each.")]
Tier = Annotated[
    str | None,
    typer.Option(
        help=(
            "For an operator: reuse counts tiles that share operands (a millisecond; L2 in two partitions, SMs that "
            "drift), lines replays every access. Default: reuse; with --policies, --save or cache hints lines."
        )
    ),
]
Save = Annotated[Path | None, typer.Option("--save", help="Also write the operator's trace to this new file.")]
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
    scheme: Annotated[
        str | None, typer.Option(help=f"The scheme whose tiles and order are replayed. Default: {SCHEME}.")
    ] = None,
    settings: Annotated[Texts, option_of("settings")] = None,
    machine: Annotated[
        str | None,
        typer.Option(help=f"The machine that runs it, with its caches. Default: {GPUS[0]}, or more such GPUs."),
    ] = None,
    tier: Tier = None,
    caches: Caches = None,
    l2_bytes: L2 = None,
    l2_sweep: Sweep = False,
    save: Save = None,
    every: options.Every = False,
    json: options.Json = False,
) -> None:
    """Simulate caches: L2 hits and DRAM bytes of an operator, a trace or applications.

    Give exactly one of OPERATOR, --trace and --workloads. --json has rates and bytes of each structure.
    """
    _one_of({"OPERATOR": operator, "--trace": trace, "--workloads": workloads})
    if operator is None:
        _of_operators_only({"--preset": preset, "--shape": shape, "--dtype": dtype, "--world": world,
                            "--scheme": scheme, "--set": settings, "--save": save, "--tier": tier})  # fmt: skip
    _one_size(l2_sweep, {"--workloads": workloads, "--l2-bytes": l2_bytes})
    replays = _Replays.of(policies or (["all"] if workloads else [DEFAULT_POLICY]), _sizes(l2_sweep))
    if workloads:
        show(*_of_workloads(workloads, _study_caches(caches, machine, l2_bytes), replays), json, every)
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
            rows_at = partial(_with_measured, point, partial(replays.rows, _traced(point, on, None), None))
        elif _tier(tier, policies, save) == "reuse":
            rows_at = partial(_estimated, point)
        else:
            rows_at = partial(replays.rows, _traced(point, on, save), None)
    summary = {**facts, "caches": on.name, "l2_bytes": None if l2_sweep else on.l2_bytes, "policies": replays.count}
    with said_if_slow("Simulating the caches."):
        rows = _swept(on, rows_at, replays.progress) if l2_sweep else rows_at(on)
    show(rows, summary, json, every)


@dataclass(frozen=True, slots=True)
class _Replays:
    """The policies that traces are replayed under, and the progress of the replays."""

    policies: tuple[Policy, ...]
    optimum: bool
    progress: ReplayProgress

    @classmethod
    def of(cls, names: list[str], sizes: int) -> _Replays:
        """Replays of the policies called *names*, each at *sizes* sizes of L2."""
        from workbench.simulator.cache.study import chosen_policies

        replays = cls(chosen_policies(names), "all" in names, ReplayProgress())
        replays.progress.replays = replays.count * sizes
        return replays

    @property
    def count(self) -> int:
        return len(self.policies) + self.optimum

    def on(self, caches: Hierarchy) -> StudyQuestion:
        """The question of all policies on *caches*."""
        from workbench.simulator.cache.study import StudyQuestion

        return StudyQuestion(caches, self.policies, self.optimum)

    def rows(self, trace: Trace, path: Path | None, caches: Hierarchy) -> list[Row]:
        """The rows of *trace*; a refusal of an access in file *path* names the file."""
        from kernels.schedule import Refusal
        from workbench.simulator.cache.study import rows

        try:
            return rows(self.progress.watched(trace), self.on(caches), self.progress.ended)
        except Refusal as error:
            if path is None or str(path) in str(error):
                raise
            raise Refusal(f"{path}: {error}") from None


def _sizes(l2_sweep: bool) -> int:
    """The number of requested sizes of L2."""
    from workbench.simulator.cache.study import SIZES

    return len(SIZES) if l2_sweep else 1


def _one_size(l2_sweep: bool, values: Mapping[str, object]) -> None:
    """Raises ValueError of a sweep of sizes together with an option that has sizes of its own."""
    if l2_sweep and (stray := [name for name, value in values.items() if value]):
        raise ValueError(f"--l2-sweep and {stray[0]} are stated, 2 > 1. Accepted: --l2-sweep without {stray[0]}.")


def _of_workloads(names: list[str], on: Hierarchy, replays: _Replays) -> tuple[list[Row], Row]:
    """The rows of the study, and its summary."""
    from workbench.simulator.cache import study

    rows = study.study(study.chosen_workloads(names), replays.on(on), replays.progress.ended)
    return rows, {**study.summary(rows), "caches": on.name, "l2_bytes": on.l2_bytes}


def _study_caches(caches: str | None, machine: str | None, l2_bytes: int | None) -> Hierarchy:
    """The named caches, by default those of the study."""
    from workbench.simulator.cache.hierarchy import STUDY

    return _caches(caches if caches or machine else STUDY, _machine(machine), l2_bytes)


def _of_file(path: Path, replays: _Replays) -> tuple[partial[list[Row]], Row]:
    """A function that makes rows of the trace in *path*, and facts about it."""
    from workbench.simulator.cache.trace import read

    return partial(replays.rows, read(path), path), {"trace_file": str(path)}


def _swept(on: Hierarchy, rows_at: partial[list[Row]], progress: ReplayProgress) -> list[Row]:
    from workbench.simulator.cache.study import swept

    return swept(on, rows_at, progress.ended)


def _tier(tier: str | None, policies: list[str] | None, save: Path | None) -> str:
    """The tier, or its default; ValueError where it cannot do what is requested."""
    needs = "--policies" if policies not in (None, [DEFAULT_POLICY]) else "--save" if save is not None else None
    if tier is None:
        return "lines" if policies or save else "reuse"
    if tier not in TIERS:
        raise ValueError(f"There is no tier {tier!r}. Accepted: {', '.join(TIERS)}.")
    if tier == "reuse" and needs is not None:
        raise ValueError(f"--tier reuse knows 1 policy, {DEFAULT_POLICY}, and replays 0 accesses: {needs} needs them. "
                         f"Accepted: --tier lines, or no {needs}.")  # fmt: skip
    return tier


def _on_enough_ranks(typed: Row) -> Request:
    """The request; without a machine, on the first of GPUS with as many ranks as the problem."""
    if typed["machine"] is not None:
        return request_of(typed)
    for name in GPUS:
        request = request_of({**typed, "machine": name})
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
    """Raises ValueError of options of an operator without an operator, as they would have no effect."""
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
    """The one requested schedule with its problem and machine, and their facts for the summary."""
    place = request.machine_description()
    problem = request.problem(place)
    points = request.experiment().points(problem, place)
    if not points.schedules:
        raise ValueError(points.refused[0][1])
    if len(points.schedules) > 1:
        raise ValueError(f"--set requests {len(points.schedules)} schedules at once: {len(points.schedules)} > 1. "
                         "Accepted: one value of each axis.")  # fmt: skip
    schedule = points.schedules[0]
    return (problem, schedule, place), {
        "operator": problem.operator, "shape": dict(problem.shape), "dtype": problem.dtype, "world": problem.world,
        "scheme": schedule.scheme, "axes": dict(schedule.axes), "machine": place.name,
    }  # fmt: skip


def _estimated(point: Point, on: Hierarchy) -> list[Row]:
    """The row of the reuse tier, and the row that a GPU with these caches counted, if any."""
    from workbench.simulator.cache.reuse import row
    from workbench.simulator.price.gemm import residents

    problem, schedule, place = point
    resident = residents(place, problem, schedule)
    return _with_measured(point, lambda caches: [row(problem, schedule, caches, resident)], on)


def _with_measured(point: Point, rows_at: Callable[[Hierarchy], list[Row]], on: Hierarchy) -> list[Row]:
    """The rows of *rows_at* on caches *on*, and those that a GPU with these caches counted."""
    from workbench.analysis import kernel_counters

    simulated = [{"l2_bytes": on.l2_bytes, **row, "source": "estimated"} for row in rows_at(on)]
    return [*simulated, *kernel_counters.points(*point[:2], on)]


def _hinted(point: Point) -> list[str]:
    """The policies that a replay compares for a schedule with cache hints, which the reuse tier ignores; else none."""
    from workbench.simulator.cache.policies import hints_of, policies_of

    return [policy.name for policy in policies_of(point[1])] if hints_of(point[1]) else []


def _traced(point: Point, on: Hierarchy, save: Path | None) -> Trace:
    """The trace of the schedule; also written to *save*, if given."""
    from workbench.simulator.cache.operators import traced

    trace = traced(*point[:2], on.units)
    if save is not None:
        if save.exists():
            raise ValueError(f"{save} is there already, and a trace replaces no file. Accepted: a new name.")
        say(f"{_saved(trace, save):,} accesses are in {save}.")
    return trace


def _saved(trace: Trace, path: Path) -> int:
    """Writes *trace* to the new file *path*, whole or not at all; returns its number of accesses."""
    from workbench.results.files import FileKind, FileTarget
    from workbench.simulator.cache.trace import write

    counts: list[int] = []
    kind = FileKind("trace", "a trace", lambda _: False)
    FileTarget(path).write(kind, lambda unfinished: counts.append(write(trace, unfinished)))
    return counts[0]
