"""A command that asks a question gets one option for each field of a Request: a new field is an option of all."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from workbench.cli import exit_status
from workbench.cli.output import document, documents, show_json
from workbench.experiment import fields

# The options that several commands share: those of the fields of a Request, and those beside it.


def option_of(field: str) -> Any:
    """The option that asks for *field* of a Request."""
    known = fields.option(field)
    return typer.Option(*([known.flag] if known.flag else []), help=known.help)


def argument_of(field: str) -> Any:
    """The argument that asks for *field* of a Request."""
    return typer.Argument(help=fields.option(field).help, show_default=False)


Machine = Annotated[str | None, option_of("machine")]
Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster", help=("A Dask scheduler's address or file. Default: the lab's, or one started for this command.")
    ),
]
Estimated = Annotated[
    str | None,
    typer.Option("--cluster", help="Estimate for the machine of its ranks: a Dask scheduler's address or file."),
]
Wait = Annotated[
    float, typer.Option("--wait", min=1.0, help="Give up when no ranks are granted within so many seconds.")
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Measure again what is known.")]
Every = Annotated[bool, typer.Option("--all", help="Print every row, not the first few of each problem.")]
StorePath = Annotated[Path | None, typer.Option("--store", help="Default: store.sqlite beside your runs.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
Output = Annotated[Path, typer.Option("-o", "--output", help="The file to write; one of the same kind is replaced.")]
Login = Annotated[bool, typer.Option("--login", help="Name who made the run, too; it is left out otherwise.")]
Force = Annotated[
    bool, typer.Option("--force", help="Replace a file of another kind, too. What is read is never replaced.")
]


# A command that asks a question gets one option for each field of a Request: a new field is an option of all.

if TYPE_CHECKING:
    from workbench.experiment.question import Request

Words = Mapping[str, Any]
"""What was typed, by the name of the field."""


def asking(*, without: tuple[str, ...] = ()) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Makes a command of a function whose first parameter is Words: an option for each field, then its other ones.

    *without*: fields that mean nothing to this command.
    """
    names = [name for name in fields.FIELDS if name not in without]

    def of(function: Callable[..., int]) -> Callable[..., int]:
        @wraps(function)
        def command(**given: Any) -> int:
            words = {name: given.pop(name) for name in names}
            return function(words, **given)

        hints = get_type_hints(function, include_extras=True)
        _, *others = inspect.signature(function).parameters.values()
        parameters = [*map(_parameter, names), *(other.replace(annotation=hints[other.name]) for other in others)]
        command.__signature__ = inspect.Signature(parameters, return_annotation=int)  # type: ignore[attr-defined]
        command.__annotations__ = {each.name: each.annotation for each in parameters}
        return command

    return of


def _parameter(name: str) -> Parameter:
    """The parameter of a command that typer makes the option, or the argument, of a field."""
    known = fields.option(name)
    if known.is_required:
        return Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, annotation=Annotated[known.typed, argument_of(name)])
    default = None if known.read else fields.FIELDS[name].default
    return Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, default=default,
                     annotation=Annotated[known.typed, option_of(name)])  # fmt: skip


def request(words: Words) -> Request:
    """The Request that was typed; Refusal where an option cannot be read."""
    from workbench.experiment.question import Request

    return Request(**fields.values(words))


@contextmanager
def documented(json: bool, words: Words, source: str) -> Iterator[None]:
    """What ends a command prints its failure document, too: what was typed, as far as a document has a place for it."""
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        if json and not documents():
            show_json(document({**fields.document(words), "source": source, **exit_status.failure(error)}))
        raise
