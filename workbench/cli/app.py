"""The table of commands; every command is a function of a file of this folder."""

from __future__ import annotations

from importlib import metadata
from typing import Annotated, Any, cast

import typer
from typer.core import TyperGroup

from workbench.cli import (
    ask,
    cache,
    exit_status,
    lab,
    lessons,
    lists,
    machine,
    runs,
    scale,
    workshop,
)
from workbench.cli.exit_status import Interrupted
from workbench.naming import AXES


class Commands(TyperGroup):
    """The group of all commands."""

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        try:
            return super().make_context(*arguments, **options)
        except KeyboardInterrupt:  # typer imports much while it reads arguments, and would end without a message
            raise Interrupted from None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Lists each command with its whole first sentence, which click would shorten."""
        named = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, each.get_short_help_str(limit=1_000)) for name, each in named if each])

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Interrupted from None
        except BrokenPipeError:  # the reader has closed the pipe; click would call it a failure
            return exit_status.DONE


app = typer.Typer(name="workbench", add_completion=False, no_args_is_help=True, rich_markup_mode=None,
                  pretty_exceptions_enable=False, cls=Commands)  # fmt: skip


def _version(wanted: bool) -> None:
    if wanted:
        print(f"overlap-workbench {metadata.version('overlap-workbench')}")
        raise typer.Exit


for command in (lab.lab, ask.run, ask.predict, ask.sweep, ask.recommend,
                cache.cache, lists.claims, scale.predict_collective, scale.predict_step,
                runs.runs, runs.compare, runs.validate, runs.searches, runs.report, runs.export,
                lists.operators, lists.schemes, lists.machines, lists.presets,
                lab.doctor, machine.calibrate, machine.benchmark, workshop.join):  # fmt: skip
    app.command()(command)
app.add_typer(lab.cluster, name="cluster")
app.add_typer(workshop.workshop, name="workshop")
app.add_typer(lessons.lessons, name="lessons")


@app.callback()
def workbench(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Show the version and exit.")
    ] = False,
) -> None:
    """Explore, measure and simulate how computation hides communication. `workbench COMMAND --help` says more."""


USAGE = cast(type[Exception], typer.BadParameter.__mro__[2])
"""The error of a command line that cannot be read: click's ClickException, wherever typer keeps click."""


def help_of(error: Any) -> str:
    """The help to print where no command was named, from the error about it."""
    return str(error.ctx.get_help())


EXAMPLES = {
    "run": "gemm_all_to_all --preset laptop_overlap",
    "predict": "gemm_all_to_all --preset laptop_overlap",
    "recommend": "gemm_all_to_all --preset tiny",
    "sweep": "data/spaces/u_curve.toml",
    "compare": "RUN last",
    "report": "last -o report.html",
    "export": "last --to csv -o rows.csv",
    "predict-collective": "all_to_all --machine h200_ib --bytes 1e8",
    "predict-step": "dlrm --machine h200_ib --world 1024",
}
"""By command that needs words: what a person may type first."""
WITH_AXES = ("run", "predict", "recommend", "cache")
"""Commands whose `--set` takes an axis of a schedule."""


def usage(error: Any) -> str:
    """The message of *error*, which is a USAGE error."""
    context: Any = getattr(error, "ctx", None)
    path = context.command_path if context else "workbench"
    text = " ".join(error.format_message().replace("Value error, ", "").split())  # it lays out choices with tabs
    ended = text if text.endswith("?") else f"{text.rstrip('.')}."  # click asks "Did you mean ...?"
    command = path.removeprefix("workbench ")
    if text.startswith("Missing") and (words := EXAMPLES.get(command)):
        return f"{ended} For example: `{path} {words}`. `{path} --help` says what is accepted."
    axis = getattr(error, "option_name", "").lstrip("-").replace("-", "_")
    if text.startswith("No such option") and axis in AXES and command in WITH_AXES:
        return f"{text.split(' (')[0]}: {axis} is an axis. Accepted: `--set {axis}=VALUE`; `{path} --help` says more."
    return f"{ended} `{path} --help` says what is accepted."
