"""Options of commands; commands that take a request get one option for each field of Request."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from kernels.schedule import Refusal
from workbench.cli import exit_status
from workbench.cli.output import document, documents, say, show_json
from workbench.experiment import fields

# Options that several commands share.


def option_of(field: str) -> Any:
    """The option for *field* of Request."""
    known = fields.option(field)
    return typer.Option(*([known.flag] if known.flag else []), help=known.help)


def argument_of(field: str) -> Any:
    """The argument for *field* of Request."""
    return typer.Argument(help=fields.option(field).help, show_default=False)


Machine = Annotated[str | None, option_of("machine")]


def _say_exposure(address: str | None) -> str | None:
    """*address*; says where other users can read the scheduler file that it names."""
    if address is not None and "://" not in address:
        from cluster.scheduler_file import exposure

        if (warning := exposure(address)) is not None:
            say(warning)
    return address


Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        help="A Dask scheduler's address or file. Default: the lab's, or one started for this command.",
        callback=_say_exposure,
    ),
]
Estimated = Annotated[
    str | None,
    typer.Option("--cluster", help="Estimate for the machine of its ranks: a Dask scheduler's address or file."),
]
Wait = Annotated[
    float, typer.Option("--wait", min=1.0, help="Give up when no ranks are granted within so many seconds.")
]
Budget = Annotated[
    float | None, typer.Option("--budget", help="No block begins after so many seconds; overrides the file.")
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Measure known schedules again.")]
Every = Annotated[bool, typer.Option("--all", help="Print every row, not the first few or one screen.")]
StorePath = Annotated[Path | None, typer.Option("--store", help="Default: store.sqlite in the folder of your runs.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
Output = Annotated[Path, typer.Option("-o", "--output", help="The file to write; one of the same kind is replaced.")]
Login = Annotated[bool, typer.Option("--login", help="Include the login name of the run's author.")]
Force = Annotated[
    bool, typer.Option("--force", help="Also replace a file of another kind. A file that is read is never replaced.")
]


# Commands that take a request.

if TYPE_CHECKING:
    from workbench.experiment.question import Request

Typed = Mapping[str, Any]
"""The typed texts by the name of the field."""


def request_command(*, without: tuple[str, ...] = ()) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Makes a command of a function whose first parameter is Typed: an option for each field, then its other options.

    *without*: fields that this command does not use.
    """
    names = [name for name in fields.FIELDS if name not in without]

    def make(function: Callable[..., int]) -> Callable[..., int]:
        @wraps(function)
        def command(**given: Any) -> int:
            typed = {name: given.pop(name) for name in names}
            return function(typed, **given)

        hints = get_type_hints(function, include_extras=True)
        _, *others = inspect.signature(function).parameters.values()
        parameters = [*map(_parameter, names), *(other.replace(annotation=hints[other.name]) for other in others)]
        command.__signature__ = inspect.Signature(parameters, return_annotation=int)  # type: ignore[attr-defined]
        command.__annotations__ = {each.name: each.annotation for each in parameters}
        return command

    return make


def _parameter(name: str) -> Parameter:
    """The command parameter from which typer makes the option or argument of field *name*."""
    known = fields.option(name)
    if known.is_required:
        return Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, annotation=Annotated[known.typed, argument_of(name)])
    default = None if known.read else fields.FIELDS[name].default
    return Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, default=default,
                     annotation=Annotated[known.typed, option_of(name)])  # fmt: skip


def request(typed: Typed) -> Request:
    """The typed Request; Refusal where an option cannot be read."""
    from workbench.experiment.question import Request

    return Request(**fields.values(typed))


@contextmanager
def documented(json: bool, typed: Typed, source: str) -> Iterator[None]:
    """Prints the failure document, which contains the typed request, when the command ends with an error.

    Sizes that the request lacks are named as the options that give them: a file would have them without `--shape`.
    """
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        ending = _by_options(error) if isinstance(error, Refusal) else error
        if json and not documents():
            show_json(document({**fields.document(typed), "source": source, **exit_status.failure(ending)}))
        if ending is error:
            raise
        raise ending from error


_SIZES_NEEDED = re.compile(r"Accepted: (\w+=SIZE(?: \w+=SIZE)*)\.")
"""How an operator names the sizes that it needs."""


def _by_options(refusal: Refusal) -> Refusal:
    """*refusal*, or one that names options where it asks for sizes."""

    def options(accepted: re.Match[str]) -> str:
        sizes = " ".join(f"--shape {size}" for size in accepted[1].split())
        return f"Accepted: {sizes}, or --preset NAME of `workbench presets`."

    text = _SIZES_NEEDED.sub(options, str(refusal))
    return refusal if text == str(refusal) else Refusal(text)
