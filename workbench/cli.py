"""The command line: every command is a function of a cli_ file, and every error one sentence."""

from __future__ import annotations

import sys
from importlib import metadata
from typing import Annotated, Any, cast

import typer
from typer.core import TyperGroup

from workbench import cli_answer, cli_lab, cli_lists, cli_machine, cli_runs
from workbench.cli_show import say


class Stopped(Exception):
    """A person's Ctrl-C, by a name that typer does not take for its own."""


class Commands(TyperGroup):
    """All commands."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Stopped from None


app = typer.Typer(name="workbench", add_completion=False, no_args_is_help=True, rich_markup_mode=None,
                  pretty_exceptions_enable=False, cls=Commands)  # fmt: skip


def _version(asked: bool) -> None:
    if asked:
        print(f"overlap-workbench {metadata.version('overlap-workbench')}")
        raise typer.Exit


for command in (cli_lab.lab, cli_answer.run, cli_answer.predict, cli_answer.sweep, cli_answer.recommend,
                cli_runs.runs, cli_runs.compare, cli_runs.validate, cli_runs.report, cli_runs.export,
                cli_lists.operators, cli_lists.schemes, cli_lists.machines, cli_lists.presets,
                cli_lab.doctor, cli_machine.calibrate, cli_machine.benchmark):  # fmt: skip
    app.command()(command)
app.add_typer(cli_lab.cluster, name="cluster")


@app.callback()
def workbench(
    version: Annotated[bool, typer.Option("--version", is_eager=True, callback=_version, help="Which one.")] = False,
) -> None:
    """Explore, measure and simulate how computation hides communication. `workbench COMMAND --help` says more."""


_USAGE = cast(type[Exception], typer.BadParameter.__mro__[2])
"""What typer raises for a command line that it cannot read: click's ClickException, wherever typer keeps click."""


def main() -> None:
    """Exit 0 on success, 2 on bad input or a refusal, 1 on a failed trial, 130 when a person stopped it."""
    sys.exit(status(sys.argv[1:]))


def status(arguments: list[str]) -> int:
    """The exit status of one command line."""
    try:
        return int(app(arguments, prog_name=app.info.name, standalone_mode=False) or 0)
    except _USAGE as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            print(cast(Any, error).ctx.get_help())
            return 0
        say(_usage(error))
        return 2
    except ValueError as error:
        say(str(error))
        return 2
    except (Stopped, KeyboardInterrupt, typer.Abort):
        say("Stopped.")
        return 130


def _usage(error: Any) -> str:
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "workbench"
    return f"{error.format_message().rstrip('.')}. `{path} --help` says what is accepted."


if __name__ == "__main__":
    main()
