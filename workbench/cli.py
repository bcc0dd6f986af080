"""The command line: every command is a function of a cli_ file, and every error one sentence."""

from __future__ import annotations

import atexit
import codecs
import os
import signal
import sys
from importlib import metadata
from io import TextIOWrapper
from typing import Annotated, Any, cast

import typer
from typer.core import TyperGroup

from workbench import cli_answer, cli_lab, cli_lists, cli_machine, cli_runs, cli_show, cli_status
from workbench.cli_show import say
from workbench.cli_status import Stopped


class Commands(TyperGroup):
    """All commands."""

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        try:
            return super().make_context(*arguments, **options)
        except KeyboardInterrupt:  # while words are read typer imports much, and would end without one
            raise Stopped from None

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Stopped from None
        except BrokenPipeError:  # who reads has seen enough; click would call it a failure
            return cli_status.DONE


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


JSON = "--json"
IN_ASCII = "in ascii"
"""How signs are written that a terminal does not have: they must not cost the numbers beside them."""
ASCII = str.maketrans({"µ": "u", "–": "-", "…": "...", "●": "*", "■": "#", "○": "o", "◇": "+"})


def _in_ascii(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    lost = error.object[error.start : error.end]
    return lost.translate(ASCII).encode("ascii", "replace").decode(), error.end


def main() -> None:
    """Exit 0 on success, 1 where something failed, 2 for what cannot be asked, 130 when a person stopped it."""
    # at the very end Python would give Ctrl-C back to the system, and with it the exit status
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
    codecs.register_error(IN_ASCII, _in_ascii)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors=IN_ASCII)
    code = _printed(status(sys.argv[1:]))
    # all is said and stored: Ctrl-C now does not interrupt what puts threads away, but does it sooner
    signal.signal(signal.SIGINT, lambda *_: os._exit(code))
    sys.exit(code)


def status(arguments: list[str]) -> int:
    """The exit status of one command line. With --json one document is printed, whatever happens."""
    cli_show.begin()
    try:
        return int(app(arguments, prog_name=app.info.name, standalone_mode=False) or cli_status.DONE)
    except (Exception, KeyboardInterrupt) as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            print(cast(Any, error).ctx.get_help())
            return cli_status.DONE
        told = ValueError(_usage(error)) if isinstance(error, _USAGE) else error
        if JSON in arguments and not cli_show.documents():
            cli_show.show_json(cli_show.document(cli_status.failure(told)))
        if (code := cli_status.of_error(told)) is None:
            raise
        say(cli_status.sentence(told))
        return code


def _printed(code: int) -> int:
    """*code*, unless what was printed does not fit where it goes."""
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python would try again and complain
        if not isinstance(error, BrokenPipeError):
            say(cli_status.sentence(error))
            return code or cli_status.FAILED
    return code


def _usage(error: Any) -> str:
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "workbench"
    return f"{error.format_message().rstrip('.')}. `{path} --help` says what is accepted."


if __name__ == "__main__":
    main()
