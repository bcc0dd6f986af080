"""Commands about runs that were made: runs, compare, validate, report, export."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from workbench import cli_options as options
from workbench.cli_show import say, schedule, show_rows, show_table

if TYPE_CHECKING:
    from workbench.store import Store

RunName = Annotated[str, typer.Argument(help="A run's id, the beginning of one, or `last`.")]
RECENT = 50


class ExportKind(StrEnum):
    """What a run is exported as."""

    PARQUET = "parquet"
    CSV = "csv"
    PERFETTO = "perfetto"
    RECORDING = "recording"


class ReportKind(StrEnum):
    """What a report is written as."""

    HTML = "html"
    PDF = "pdf"
    MD = "md"


def _reading(path: Path | None) -> Store:
    """The store at *path*, which is not begun for being read, or one's own."""
    from workbench.store import Store

    if path is not None and not path.exists():
        raise ValueError(f"The store {path} was asked for, and there is no such file. Accepted: a file that "
                         "`workbench run --store PATH` wrote; without --store, your own.")  # fmt: skip
    return Store(path)


def runs(store: options.StorePath = None, json: options.Json = False) -> None:
    """What was run here, the newest first."""
    from datetime import datetime

    with _reading(store) as opened:
        found = opened.runs(RECENT)
    rows = [{"run": run["id"], "started_at": run["started_at"], "ended_at": run["ended_at"], "status": run["status"],
             "title": run["title"], "host": run["provenance"].get("host")} for run in found]  # fmt: skip
    if json:
        show_rows(rows, {"count": len(rows)})
        return
    show_table("", ("run", "started", "status", "title"), [
        (row["run"], datetime.fromtimestamp(row["started_at"]).isoformat(" ", "minutes"), row["status"], row["title"])
        for row in rows])  # fmt: skip


def compare(
    first: RunName,
    second: RunName,
    store: options.StorePath = None,
    json: options.Json = False,
) -> None:
    """Two runs side by side: the schedules that both timed, and what else differs."""
    from kernels.units import seconds_text
    from workbench.comparison import compare as compared

    with _reading(store) as opened:
        rows, differences = compared(opened, first, second)
    if json:
        show_rows(rows, {"count": len(rows), "differences": differences})
        return
    lines = [(schedule(row), seconds_text(row["first_s"]), seconds_text(row["second_s"]), f"{row['ratio']:.2f} x",
              row["second_is"]) for row in rows]  # fmt: skip
    show_table("", ("schedule", "first", "second", "ratio", "the second is"), lines, right=("first", "second", "ratio"))
    for name, (one, other) in differences.items():
        say(f"{name} differs: {one} and {other}")


def validate(
    run: Annotated[str | None, typer.Argument(help="A run; default: the newest runs.", show_default=False)] = None,
    recording: Annotated[
        list[str] | None, typer.Option(help="A recording instead of runs; may be given more than once.")
    ] = None,
    machine: Annotated[
        str | None, typer.Option(help="With --recording: whose estimates. Default: the machine that was recorded.")
    ] = None,
    store: options.StorePath = None,
    json: options.Json = False,
) -> None:
    """How well today's estimates predict what was measured."""
    from kernels.units import seconds_text
    from workbench import machines
    from workbench.validation import by_kind, validate_recordings
    from workbench.validation import validate as validated

    if recording:
        rows, summary = validate_recordings(recording, machines.machine(machine) if machine else None)
    else:
        with _reading(store) as opened:
            names = [opened.run(run)["id"]] if run else [found["id"] for found in reversed(opened.runs(RECENT))]
            rows, summary = validated(opened, names)
    if json:
        show_rows(rows, summary)
        return
    lines = [(schedule(row), row["part"], seconds_text(row["measured_s"]), seconds_text(row["estimated_s"]),
              f"{row['error']:+.0%}") for row in sorted(rows, key=lambda row: -abs(row["error"]))]  # fmt: skip
    show_table(
        "", ("schedule", "part", "measured", "estimated", "error"), lines, right=("measured", "estimated", "error")
    )
    kinds = [(k["operator"], k["scheme"], k["collective"], k["part"], str(k["count"]), f"{k['ratio']:.2f}",
              f"{k['lowest']:.2f} to {k['highest']:.2f}") for k in by_kind(rows)]  # fmt: skip
    show_table("", ("operator", "scheme", "by", "part", "trials", "estimated / measured", "from"), kinds,
               right=("trials", "estimated / measured"))  # fmt: skip
    if rows:
        say(f"{summary['count']} trials: median error {summary['median_absolute_error']:.0%}, "
            f"{summary['within_15_percent']:.0%} within 15 %; "
            f"{'calibrated' if summary['calibrated'] else 'not calibrated: `workbench calibrate`'}.")  # fmt: skip
    else:
        say("0 measurements are stored: `workbench run` makes some.")


def report(
    source: Annotated[str, typer.Argument(metavar="RUN|NOTEBOOK", help="A run, or the path of an .ipynb file.")],
    output: options.Output,
    to: Annotated[ReportKind | None, typer.Option(help="Default: what the file is called.")] = None,
    store: options.StorePath = None,
) -> None:
    """Write a stored run or a notebook as one file."""
    kind = to or _kind_of(output)
    from workbench.reports.export import export as written

    if source.endswith(".ipynb"):
        say(str(written(Path(source), output, kind=kind.value)))
        return
    from workbench.reports.stored import stored_report

    with _reading(store) as opened:
        say(str(written(stored_report(opened, source), output, kind=kind.value)))


def _kind_of(output: Path) -> ReportKind:
    kinds = [kind.value for kind in ReportKind]
    if output.suffix[1:] not in kinds:
        raise ValueError(f"A report named {output.name} was asked for, whose ending is none of {', '.join(kinds)}. "
                         "Accepted: such an ending, or --to.")  # fmt: skip
    return ReportKind(output.suffix[1:])


def export(
    run: RunName,
    to: Annotated[ExportKind, typer.Option(help="parquet and csv: rows; perfetto: a trace; recording: JSON lines.")],
    output: options.Output,
    samples: Annotated[
        bool, typer.Option("--samples", help="Every raw sample instead of rows; parquet and csv.")
    ] = False,
    store: options.StorePath = None,
) -> None:
    """Write a run down for other tools."""
    from workbench import recordings, trace
    from workbench.store import frames

    with _reading(store) as opened:
        name = opened.run(run)["id"]
        match to:
            case ExportKind.PERFETTO:
                trace.write(opened, name, output)
            case ExportKind.RECORDING:
                recordings.write(opened, name, output)
            case _:
                table = opened.sample_frame(name) if samples else opened.frame(name)
                frames.export(table, to.value, output)
    say(str(output))
