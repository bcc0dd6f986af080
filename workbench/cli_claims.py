"""The command that lays the papers' numbers beside ours: one row each, with whether direction and size carry over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from workbench.cli_options import Json
from workbench.cli_show import show_rows, tell, tell_command
from workbench.cli_table import Column, show_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workbench.claims.answers import Answer

Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Some of them, with where ours is from.",
                                                 show_default=False)]  # fmt: skip
UNVERIFIED = " *"
CARRIES: dict[bool | None, str] = {True: "yes", False: "no"}


def claims(ids: Ids = None, json: Json = False) -> None:
    """Published numbers beside ours: recorded, estimated or missing, and whether direction and size carry over.

    Where the two differ, a sentence says why. With IDs, each is told with its machine, baseline and command.
    """
    from workbench import left_out
    from workbench.claims import answers, not_asked

    chosen = answers(ids or ())
    others = [one.id for one in not_asked()]
    if json:
        rows = [answer.row() for answer in chosen]
        show_rows(rows, {"count": len(rows), "not_asked": others, "left_out": left_out.sentences()})
        return
    _show(chosen)
    if any(not answer.published.verified for answer in chosen):
        tell("* unverified: from notes of others, not from the paper's own abstract.")
    if ids:
        for answer in chosen:
            _tell(answer)
        return
    for answer in chosen:
        if answer.size != "similar":
            tell(f"{answer.published.id}: {answer.ours.why}")
    tell(f"{len(others)} more published numbers stand in data/published.csv; nothing here can be asked about them yet. "
         "Similar: within a factor of 1.5. `workbench claims ID` says more of one.")  # fmt: skip


def _show(rows: Sequence[Answer]) -> None:
    from workbench.naming import PUBLISHED, SIGNS

    show_table([
        Column("id", [row.published.id for row in rows], "name"),
        Column("claim", [row.published.scope for row in rows]),
        Column("paper", [f"{row.published.paper} {row.published.version}" for row in rows], "name", goes_below=38),
        Column(f"{SIGNS[PUBLISHED]} published", [_published(row) for row in rows], "name"),
        Column("ours", [_ours(row) for row in rows], "name"),
        Column("same\nsign", [CARRIES.get(row.direction) for row in rows], "name"),
        Column("size", [row.size for row in rows], "name"),
    ])  # fmt: skip


def _published(answer: Answer) -> str:
    """`max 22 %`, `mean 13 % *`: in few columns."""
    reported = answer.published
    which = f"{reported.aggregate} " if reported.aggregate in ("max", "mean", "min") else ""
    return f"{which}{reported.number}{'' if reported.verified else UNVERIFIED}"


def _ours(answer: Answer) -> str | None:
    from workbench.naming import SIGNS

    ours = answer.ours
    return None if ours.value is None or ours.source is None else f"{SIGNS[ours.source]} {answer.in_unit(ours.value)}"


def _tell(answer: Answer) -> None:
    """Everything about one of them, in sentences."""
    reported, ours = answer.published, answer.ours
    mark = f" It is {reported.mark}." if reported.mark else ""
    tell("")
    tell(f"{reported.id}, {reported.scope}: {reported.words} ({reported.metric.replace('_', ' ')}), "
         f"over {reported.baseline}, on {reported.machine}. {reported.reference}.{mark}")  # fmt: skip
    if ours.value is not None:
        band = (
            ""
            if ours.low is None or ours.high is None
            else f" ({answer.in_unit(ours.low)} to {answer.in_unit(ours.high)})"
        )
        tell(f"Ours: {answer.in_unit(ours.value)}{band}, {ours.source}, on {ours.machine}, over {ours.over}.")
    tell(ours.why)
    if ours.command:
        tell_command(ours.command)
