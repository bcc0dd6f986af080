"""Commands about stored runs: runs, compare, validate, report, export."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernels.files import Failed
from kernels.units import num_text
from workbench.cli import options
from workbench.cli.output import off_text, said_if_slow, say, show_rows

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
    ZIP = "zip"
    FOLDER = "folder"


FILE_KINDS = (ReportKind.HTML, ReportKind.PDF, ReportKind.MD)
"""The formats of one file without companions."""
WRITING = "Writing the report."


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


def _refuse_recording(run: str | None, command: str) -> None:
    """ValueError where *run* names a recording, which *command* takes by another option."""
    from workbench.results.recordings import SUFFIX, paths

    if run is not None and (run in paths() or run.endswith(SUFFIX)):
        raise ValueError(f"There is no run {run}: it is the name of a recording, and runs are in a store. Accepted: "
                         f"`workbench {command} --recording {run}`, or a run that `workbench runs` lists.")  # fmt: skip


def runs(
    note: Annotated[
        tuple[str, str] | None, typer.Option(metavar="RUN TEXT", help="Give a run a note; an empty one removes it.")
    ] = None,
    tag: Annotated[
        tuple[str, str] | None, typer.Option(metavar="RUN TAGS", help="Give a run tags, as a,b; -a takes one away.")
    ] = None,
    delete: Annotated[
        str | None, typer.Option(metavar="RUN", help="Delete a run: hidden at once, removed after 30 days.")
    ] = None,
    undo: Annotated[str | None, typer.Option(metavar="RUN", help="Bring a deleted run back; last: the latest.")] = None,
    purge: Annotated[bool, typer.Option("--purge", help="Remove deleted runs now, for good.")] = False,
    file: Annotated[
        Path | None, typer.Option("--import", help="Store a .csv, .parquet or .jsonl that `export` wrote as a run.")
    ] = None,
    store: options.StorePath = None,
    every: options.Every = False,
    json: options.Json = False,
) -> None:
    """List your runs, the newest first: the last 50, or --all. Or change them."""
    from workbench.cli.history import show_runs
    from workbench.cli.sessions import opened as created
    from workbench.results.runs import summaries

    changes = [*_annotating(note, tag), *_deleting(delete, undo, purge), *_importing(file)]
    rows, num_stored, deleted = [], 0, {}
    if changes or not _has_no_store(store):
        with created(store) if file is not None else _reading(store) as opened:
            for change in changes:
                say(change(opened))
            num_stored, deleted = opened.num_runs(), opened.annotations.deleted()
            rows = summaries(opened, num_stored if every else RECENT)
    if json:
        show_rows(rows, {"count": len(rows), "deleted": deleted})
    elif not changes:
        show_runs(rows, num_stored, deleted, every=every)


Change = Callable[["Store"], str]
"""Changes a store, and returns the sentence about it."""


def _annotating(note: tuple[str, str] | None, tag: tuple[str, str] | None) -> Iterator[Change]:
    """The changes that options --note and --tag ask for."""

    def write_note(store: Store, name: str, text: str) -> str:
        store.annotations.note(run := store.run(name)["id"], text)
        kept = store.run(run)["note"]
        return f"Run {run} has the note: {kept}" if kept else f"Run {run} has no note."

    def change_tags(store: Store, name: str, text: str) -> str:
        tags = [each.strip() for each in text.split(",")]
        removed = [each[1:] for each in tags if each.startswith("-")]
        run = store.run(name)["id"]
        store.annotations.tag(run, [each for each in tags if not each.startswith("-")], removed)
        return f"Run {run} has the tags: {', '.join(store.run(run)['tags']) or 'none'}."

    if note is not None:
        yield lambda store: write_note(store, *note)
    if tag is not None:
        yield lambda store: change_tags(store, *tag)


def _deleting(delete: str | None, undo: str | None, purge: bool) -> Iterator[Change]:
    """The changes that options --delete, --undo and --purge ask for."""
    from workbench.results.annotations import KEPT_DAYS

    def hide(store: Store) -> str:
        store.annotations.delete(run := store.run(delete or "")["id"])
        return f"Run {run} is deleted. For {KEPT_DAYS} days `workbench runs --undo {run}` brings it back."

    def bring_back(store: Store) -> str:
        name = next(iter(store.annotations.deleted()), undo or "") if undo == "last" else undo or ""
        store.annotations.undo(name)
        return f"Run {name} is back."

    def remove(store: Store) -> str:
        return f"{num_text(len(store.annotations.purge()), 'deleted run')} removed for good."

    yield from [hide] * (delete is not None) + [bring_back] * (undo is not None) + [remove] * purge


def _importing(file: Path | None) -> Iterator[Change]:
    """The change that option --import asks for."""
    from workbench import machines
    from workbench.cli.output import say_progress
    from workbench.results.imports import content, import_run

    def store_file(store: Store) -> str:
        assert file is not None
        run = import_run(store, file.name, content(file), machines.known, say_progress)
        rows = f"{num_text(len(store.rows(run.id)), 'row')}, none of them measured here"
        return f"{file.name} is run {run.id} {f'now: {rows}' if run.is_new else 'already. Nothing was stored again'}."

    if file is not None:
        yield store_file


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
    run: Annotated[
        str | None,
        typer.Argument(help="A run; default: the newest runs. A recording: --recording NAME.", show_default=False),
    ] = None,
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
    from workbench.results import recordings

    _refuse_recording(run, "validate")
    target = _drawn_to(output, recording or [])
    whose = machines.machine(machine) if machine is not None else None
    if whose is not None and not recording:
        raise ValueError(f"--machine {whose.name} says whose estimates a recording is compared with, and 0 recordings "
                         "are named. Accepted: both; runs are compared with their own machine.")  # fmt: skip
    recorded = {name: recordings.recordings(name) for name in recording or ()}  # refused before anything is said
    with said_if_slow("Estimating what was measured."):
        if recorded:
            rows, summary = accuracy.validate_recorded(recorded, whose)
        else:
            with _reading(store) as opened:
                names = [opened.run(run)["id"]] if run else [recent["id"] for recent in reversed(opened.runs(RECENT))]
                rows, summary = accuracy.validate(opened, names)
    if target is not None:
        _draw(rows, summary, target)
    if json:
        show_rows(rows, summary)
    else:
        off = [] if recording else list(map(off_text, accuracy.wrong_estimates_today(rows)))
        show_validation(rows, summary, "recorded" if recording else "measured", every=every, off=off)
    if broken := summary.get("broken_bounds"):
        details = "; ".join(map(accuracy.broken_bound_message, broken))
        bounds = "1 bound" if len(broken) == 1 else f"{len(broken)} bounds"
        raise Failed(f"{bounds} of data/checks/estimates.toml broken: {details}.")


def searches(
    run: Annotated[
        str | None, typer.Argument(help="A run's id, the beginning of one, or `last`.", show_default=False)
    ] = None,
    recording: Annotated[
        list[str] | None, typer.Option(help="A recording instead of a run; may be given more than once.")
    ] = None,
    store: options.StorePath = None,
    every: options.Every = False,
    json: options.Json = False,
) -> None:
    """Play searches over schedules that were measured: how few measurements each needs. It measures nothing.

    Sweep a space once (`workbench sweep`), then ask here which search to use for the next ones. Random is played
    with 200 seeds. Optuna needs the extra `search`.
    """
    from workbench.analysis import searches as played
    from workbench.cli.history import show_searches
    from workbench.results.recordings import recordings, recordings_of_run

    _refuse_recording(run, "searches")
    if run is not None and recording:
        raise ValueError(f"Both run {run} and {num_text(len(recording), 'recording')} are named, and searches are "
                         "played over one of them. Accepted: a run, or --recording.")  # fmt: skip
    if recording:
        measured = [each for name in recording for each in recordings(name)]
    else:
        with _reading(store) as opened:
            measured = recordings_of_run(opened, opened.run(run or "last")["id"])
    spaces = played.spaces(measured)
    if not spaces:
        raise ValueError(f"{num_text(len(measured), 'trial')} hold no problem with {played.FEWEST} whole schedules, "
                         "and 1 needs no search. Accepted: a run of `workbench sweep`, or its recording.")  # fmt: skip
    answers = [(space, played.played(space)) for space in spaces]
    if json:
        show_rows(
            [played.row_of(space, each) for space, several in answers for each in several], {"spaces": len(answers)}
        )
    else:
        show_searches(answers, every=every)


def _drawn_to(output: Path | None, read: list[str]) -> FileTarget | None:
    """The file of the chart; refused before anything is estimated."""
    if output is None:
        return None
    from workbench.results.files import REPORTS, FileTarget

    target = FileTarget(output, tuple(map(Path, read)))
    target.refuse(REPORTS[_kind_of(output, FILE_KINDS)])
    return target


def _draw(rows: list[dict[str, Any]], summary: dict[str, Any], target: FileTarget) -> None:
    from workbench.analysis.accuracy import bounds
    from workbench.reports import export as exports
    from workbench.reports.side_by_side import error_report

    if not rows:
        raise ValueError(f"{target.path} cannot show 0 estimates. Accepted: a recording or runs with trials that "
                         "have one.")  # fmt: skip
    exports.export(error_report(rows, summary, bounds()), target, kind=_kind_of(target.path, FILE_KINDS).value)


def report(
    sources: Annotated[
        list[str], typer.Argument(metavar="RUN...|NOTEBOOK", help="Runs side by side, or the path of an .ipynb file.")
    ],
    output: options.Output,
    to: Annotated[
        ReportKind | None,
        typer.Option(help="Default: the ending of the name. zip, folder: with command, question, rows and citation."),
    ] = None,
    note: Annotated[str, typer.Option(help="Your remark, which is printed below the title.")] = "",
    baseline: Annotated[
        str | None,
        typer.Option(metavar="RUN[/KEY]", help="Compare with a run's best schedules, or with the one of this key."),
    ] = None,
    login: options.Login = False,
    force: options.Force = False,
    store: options.StorePath = None,
) -> None:
    """Write stored runs or a notebook as one report file, which replaces an older report of that name."""
    kind = to or _kind_of(output, [*FILE_KINDS, ReportKind.ZIP], "one of these endings, or --to")
    from workbench.results.files import REPORTS, FileTarget, refuse_other_ending, replacement_note
    from workbench.results.store import store_path

    target = FileTarget(output, (store_path(store), *map(Path, sources)), force)
    if kind is not ReportKind.FOLDER:
        refuse_other_ending(output, kind.value, REPORTS)
        target.refuse(REPORTS[kind])
    was_there = _is_replaced(output, kind)
    notebooks = [source for source in sources if source.endswith(".ipynb")]
    if notebooks and (len(sources) > 1 or note or baseline):
        other = "a note" if note else "a baseline" if baseline else f"{len(sources) - 1} more"
        raise ValueError(f"The report of {notebooks[0]} cannot hold {other} as well: a notebook is reported as it is. "
                         "Accepted: one notebook, or runs.")  # fmt: skip
    if kind not in FILE_KINDS and (notebooks or len(sources) > 1):
        named = f"{sources[0]} is a notebook" if notebooks else f"{len(sources)} are named"
        raise ValueError(f"A {kind.value} is of 1 run, and {named}. Accepted: one run, or {', '.join(FILE_KINDS)}.")
    if notebooks:
        from workbench.reports.export import export, read  # late: refusals come before what takes seconds to import

        read(Path(notebooks[0]))  # what is none is refused before anything is said
        with said_if_slow(WRITING):
            export(Path(notebooks[0]), target, kind=kind.value)
    else:
        _report_runs(sources, target, kind, {"note": note, "login": login, "baseline": baseline}, store)
    say(replacement_note(output, was_there))


def _is_replaced(output: Path, kind: ReportKind) -> bool:
    """Whether a report of that name is there; other files of a folder stay as they are."""
    if kind is not ReportKind.FOLDER:
        return output.exists()
    from workbench.reports.archive import REPORT

    return (output / REPORT).exists()


def _report_runs(
    runs: list[str], target: FileTarget, kind: ReportKind, wanted: dict[str, Any], store: Path | None
) -> None:
    """Writes the report of *runs*, with the options *wanted*, and remembers that of a single one."""
    from workbench.reports import archive
    from workbench.reports.export import export
    from workbench.reports.run_report import remember
    from workbench.reports.side_by_side import stored_runs

    with _reading(store) as opened:
        of_baseline = (wanted["baseline"] or "").partition("/")[:1]
        for run in (*runs, *filter(None, of_baseline)):
            opened.run(run)  # an unknown one is refused before anything is said
        with said_if_slow(WRITING):
            made = stored_runs(opened, runs, **wanted)
            if kind in FILE_KINDS:
                export(made, target, kind=kind.value)
            else:
                write = archive.write_zip if kind is ReportKind.ZIP else archive.write_folder
                write(target, archive.parts(opened, runs[0], made, login=wanted["login"]))
        if len(runs) == 1 and (message := remember(opened, runs[0])):
            say(message)


def _kind_of(output: Path, accepted_kinds: Sequence[ReportKind], accepted: str = "one of these endings") -> ReportKind:
    if output.is_dir():  # its name has no ending either, but that is not what is wrong
        from workbench.results.files import REPORTS, FileTarget

        FileTarget(output).refuse(REPORTS[ReportKind.HTML])
    kinds = [kind.value for kind in accepted_kinds]
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
    from workbench.results.files import EXPORTS, FileTarget, refuse_other_ending, replacement_note
    from workbench.results.quiet import busy_sentence
    from workbench.results.store import store_path

    if samples and to not in (ExportKind.PARQUET, ExportKind.CSV):
        raise ValueError(f"--samples and --to {to.value} are stated, and only a table has rows of samples. Accepted: "
                         "--to parquet or --to csv.")  # fmt: skip
    target = FileTarget(output, (store_path(store),), force)
    refuse_other_ending(output, to.value, EXPORTS)
    target.refuse(EXPORTS[to])
    was_there = output.exists()
    with _reading(store) as opened:
        name = opened.run(run)["id"]
        busy = busy_sentence(opened.rows(name))
        match to:
            case ExportKind.PERFETTO:
                traces.write(opened, name, target)
            case ExportKind.RECORDING:
                recordings.write(opened, name, target, login=login)
            case _:
                table = opened.sample_frame(name) if samples else frames.frame(with_ratios(opened.rows(name)))
                frames.export(table, to.value, target)
    say(replacement_note(output, was_there))
    if busy:
        say(busy)
