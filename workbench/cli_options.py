"""The options that several commands share: those of the fields of a Request, and those beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from workbench import typed


def option_of(field: str) -> Any:
    """The option that asks for *field* of a Request."""
    known = typed.option(field)
    return typer.Option(*([known.flag] if known.flag else []), help=known.help)


def argument_of(field: str) -> Any:
    """The argument that asks for *field* of a Request."""
    return typer.Argument(help=typed.option(field).help, show_default=False)


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
