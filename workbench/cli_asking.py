"""A command that asks a question gets one option for each field of a Request: a new field is an option of all."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from inspect import Parameter
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

from workbench import cli_status, typed
from workbench.cli_options import argument_of, option_of
from workbench.cli_show import document, documents, show_json

if TYPE_CHECKING:
    from workbench.request import Request

Words = Mapping[str, Any]
"""What was typed, by the name of the field."""


def asking(*, without: tuple[str, ...] = ()) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Makes a command of a function whose first parameter is Words: an option for each field, then its other ones.

    *without*: fields that mean nothing to this command.
    """
    names = [name for name in typed.FIELDS if name not in without]

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
    known = typed.option(name)
    if known.is_required:
        return Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, annotation=Annotated[known.typed, argument_of(name)])
    default = None if known.read else typed.FIELDS[name].default
    return Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, default=default,
                     annotation=Annotated[known.typed, option_of(name)])  # fmt: skip


def request(words: Words) -> Request:
    """The Request that was typed; Refusal where an option cannot be read."""
    from workbench.request import Request

    return Request(**typed.values(words))


@contextmanager
def documented(json: bool, words: Words, source: str) -> Iterator[None]:
    """What ends a command prints its failure document, too: what was typed, as far as a document has a place for it."""
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        if json and not documents():
            show_json(document({**typed.document(words), "source": source, **cli_status.failure(error)}))
        raise
