"""Commands about stored runs: runs, compare, validate, report, export."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernels.files import Failed
from workbench.cli import options
from workbench.cli.output import say, say_off, show_rows

if TYPE_CHECKING:
    from workbench.results.files import FileTarget
    from workbench.results.store import Store

RunName = Annotated[str, typer.Argument(help="A run's id, the beginning of one, or `last`.")]
RECENT = 50


class ExportKind(StrEnum):
    """The formats of an exported run."""

    PARQUET = "parquet"
    CSV = "csv"
    PERFETTO = "perfetto"
    RECORDING = "recording"


class ReportKind(StrEnum):
    """The formats of a report."""

    HTML = "html"
    PDF = "pdf"
    MD = "md"


def _reading(path: Path | None) -> Store:
    """The store at *path*, or the person's own; ValueError where there is none."""
    from workbench.results.store import Store, store_path

    if path is not None and not path.exists():
        raise ValueError(f"There is no store {path}. Accepted: a file that `workbench run --store PATH` wrote; "
                         "without --store, your own.")  # fmt: skip
    if not store_path(path).exists():
        raise ValueError(f"You have no store yet: {store_path(path)} is not there. `workbench run` begins it. Accepted "
                         "until then: --store PATH.")  # fmt: skip
    return Store(path)


def _has_no_store(path: Path | None) -> bool:
    """Whether the person's own store is requested, but does not exist yet."""
    from workbench.results.store import store_path

    return path is None and not store_path().exists()


def runs(store: options.StorePath = None, json: options.Json = False) -> None:
    """List your runs, the newest first."""
    from workbench.cli.history import show_runs
    from workbench.results.runs import summaries

    rows = []
    if not _has_no_store(store):
        with _reading(store) as opened:
            rows = summaries(opened, RECENT)
    if json:
        show_rows(rows, {"count": len(rows)})
    else:
        show_runs(rows)


def compare(
    first: RunName,
    second: RunName,
    store: options.StorePath = None,
    every: options.Every = False,
    json: options.Json = False,
) -> None:
    """Compare two runs: the schedules that both timed, and other differences."""
    from workbench.cli.history import show_comparison
    from workbench.results import runs as stored

    with _reading(store) as opened:
        rows, differences = stored.compare(opened, first, second)
        names = [opened.run(name)["id"] for name in (first, second)]
    if json:
        show_rows(rows, {"count": len(rows), "differences": differences})
        return
    show_comparison(rows, differences, names, every=every)


def validate(
    run: Annotated[str | None, typer.Argument(help="A run; default: the newest runs.", show_default=False)] = None,
    recording: Annotated[
        list[str] | None, typer.Option(help="A recording instead of runs; may be given more than once.")
    ] = None,
    machine: Annotated[
        str | None, typer.Option(help="With --recording: the machine to estimate for. Default: the recorded one.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Also write the chart and its numbers: .html, .pdf or .md.")
    ] = None,
    store: options.StorePath = None,
    every: options.Every = False,
    json: options.Json = False,
) -> None:
    """Compare today's estimates with measurements. Status 1 where an error exceeds its committed bound."""
    from workbench import machines
    from workbench.analysis import accuracy
    from workbench.cli.history import show_validation

    target = _drawn_to(output, recording or [])
    whose = machines.machine(machine) if machine is not None else None
    if whose is not None and not recording:
        raise ValueError(f"--machine {whose.name} says whose estimates a recording is compared with, and 0 recordings "
                         "are named. Accepted: both; runs are compared with their own machine.")  # fmt: skip
    if recording:
        rows, summary = accuracy.validate_recordings(recording, whose)
    else:
        with _reading(store) as opened:
            names = [opened.run(run)["id"]] if run else [recent["id"] for recent in reversed(opened.runs(RECENT))]
            rows, summary = accuracy.validate(opened, names)
    if target is not None:
        _draw(rows, summary, target)
    if json:
        show_rows(rows, summary)
    else:
        show_validation(rows, summary, "recorded" if recording else "measured", every=every)
        if not recording:
            say_off(accuracy.wrong_estimates_today(rows))
    if broken := summary.get("broken_bounds"):
        details = "; ".join(map(accuracy.broken_bound_message, broken))
        raise Failed(f"{len(broken)} bounds of data/checks/estimates.toml are broken. {details}.")


def _drawn_to(output: Path | None, read: list[str]) -> FileTarget | None:
    """The file of the chart; refused before anything is estimated."""
    if output is None:
        return None
    from workbench.results.files import REPORTS, FileTarget

    target = FileTarget(output, tuple(map(Path, read)))
    target.refuse(REPORTS[_kind_of(output)])
    return target


def _draw(rows: list[dict[str, Any]], summary: dict[str, Any], target: FileTarget) -> None:
    from workbench.analysis.accuracy import bounds
    from workbench.reports import export as exports
    from workbench.reports.side_by_side import error_report

    if not rows:
        raise ValueError(f"{target.path} cannot show 0 estimates. Accepted: a recording or runs with trials that "
                         "have one.")  # fmt: skip
    exports.export(error_report(rows, summary, bounds()), target, kind=_kind_of(target.path).value)


def report(
    sources: Annotated[
        list[str], typer.Argument(metavar="RUN...|NOTEBOOK", help="Runs side by side, or the path of an .ipynb file.")
    ],
    output: options.Output,
    to: Annotated[ReportKind | None, typer.Option(help="Default: the ending of the file's name.")] = None,
    note: Annotated[str, typer.Option(help="Your remark, which is printed below the title.")] = "",
    login: options.Login = False,
    force: options.Force = False,
    store: options.StorePath = None,
) -> None:
    """Write stored runs or a notebook as one report file, which replaces an older report of that name."""
    kind = to or _kind_of(output, "one of these endings, or --to")
    from workbench.reports import export as exports
    from workbench.results.files import REPORTS, FileTarget, replacement_note
    from workbench.results.store import store_path

    target = FileTarget(output, (store_path(store), *map(Path, sources)), force)
    target.refuse(REPORTS[kind])
    was_there = output.exists()
    notebooks = [source for source in sources if source.endswith(".ipynb")]
    if notebooks and (len(sources) > 1 or note):
        other = "a note" if note else f"{len(sources) - 1} more"
        raise ValueError(f"The report of {notebooks[0]} cannot hold {other} as well: a notebook is reported as it is. "
                         "Accepted: one notebook, or runs.")  # fmt: skip
    if notebooks:
        exports.export(Path(notebooks[0]), target, kind=kind.value)
    else:
        from workbench.reports.side_by_side import stored_runs

        with _reading(store) as opened:
            exports.export(stored_runs(opened, sources, note=note, login=login), target, kind=kind.value)
    say(replacement_note(output, was_there))


def _kind_of(output: Path, accepted: str = "one of these endings") -> ReportKind:
    kinds = [kind.value for kind in ReportKind]
    if output.suffix[1:] not in kinds:
        raise ValueError(f"A report cannot be named {output.name}: its ending is not one of {', '.join(kinds)}. "
                         f"Accepted: {accepted}.")  # fmt: skip
    return ReportKind(output.suffix[1:])


def export(
    run: RunName,
    to: Annotated[ExportKind, typer.Option(help="parquet and csv: rows; perfetto: a trace; recording: JSON lines.")],
    output: options.Output,
    samples: Annotated[
        bool, typer.Option("--samples", help="Every raw sample instead of rows; parquet and csv.")
    ] = False,
    login: options.Login = False,
    force: options.Force = False,
    store: options.StorePath = None,
) -> None:
    """Export a run for other tools."""
    from workbench.reports import traces
    from workbench.results import frames, recordings
    from workbench.results.comparison import with_ratios
    from workbench.results.files import EXPORTS, FileTarget, replacement_note
    from workbench.results.store import store_path

    target = FileTarget(output, (store_path(store),), force)
    target.refuse(EXPORTS[to])
    was_there = output.exists()
    with _reading(store) as opened:
        name = opened.run(run)["id"]
        match to:
            case ExportKind.PERFETTO:
                traces.write(opened, name, target)
            case ExportKind.RECORDING:
                recordings.write(opened, name, target, login=login)
            case _:
                table = opened.sample_frame(name) if samples else frames.frame(with_ratios(opened.rows(name)))
                frames.export(table, to.value, target)
    say(replacement_note(output, was_there))
