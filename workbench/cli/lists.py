"""Commands that list operators, schemes, machines, presets, and the papers' claims next to our numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from workbench.cli.options import Every, Json
from workbench.cli.output import (
    TableColumn,
    one_screen,
    said_if_slow,
    show_command,
    show_rows,
    show_table,
    show_text,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kernels.schedule import Axis, Value


def operators(json: Json = False) -> None:
    """List operators: computations and the collectives that depend on them."""
    from kernels.operators import OPERATORS

    rows = [
        {"operator": name, "title": operator.title, "words": operator.words, "flow": operator.flow.value,
         "collective": operator.collective, "shape": {key.name: key.doc for key in operator.keys},
         "splits": dict(operator.splits), "tile_means": operator.tile_means, "occurs": operator.occurs,
         "source": operator.source}
        for name, operator in OPERATORS.items()
    ]  # fmt: skip
    if json:
        show_rows(rows, {"count": len(rows)})
        return
    show_table([
        TableColumn("operator", [row["operator"] for row in rows], "name"),
        TableColumn("title", [row["title"] for row in rows]),
        TableColumn("in words", [row["words"] for row in rows]),
        TableColumn("flow", [row["flow"] for row in rows]),
        TableColumn("shape", [", ".join(row["shape"]) for row in rows], inline="shape: {}"),
        TableColumn("occurs", [row["occurs"] for row in rows], inline="in {}"),
    ])  # fmt: skip


def schemes(json: Json = False) -> None:
    """List schemes of overlap, and the values of their axes for an ordinary GEMM; other problems may have others."""
    from kernels.schemes import SCHEMES

    rows: list[dict[str, Any]] = [
        {"scheme": name, "idea": scheme.idea, "axes": (usual := _axes(name, "cpu")),
         "axes_on_gpus": {axis: doc for axis, doc in _axes(name, "triton").items() if axis not in usual},
         "source": scheme.source} for name, scheme in SCHEMES.items()
    ]  # fmt: skip
    values = {backend: {name: _axis_values(name, backend) for name in SCHEMES} for backend in ("cpu", "triton")}
    if json:
        named = [{**row, "values": values["cpu"][row["scheme"]], "values_on_gpus": values["triton"][row["scheme"]]}
                 for row in rows]  # fmt: skip
        show_rows(named, {"count": len(rows)})
        return
    show_table(
        [
            TableColumn("scheme", [row["scheme"] for row in rows], "name"),
            TableColumn("idea", [row["idea"] for row in rows]),
            TableColumn("axes", [", ".join(row["axes"]) for row in rows], inline="axes: {}"),
            TableColumn("on GPUs also", [", ".join(row["axes_on_gpus"]) for row in rows], inline="on GPUs also: {}"),
        ]
    )
    _show_values(values["cpu"], values["triton"])


def _show_values(of_cpu: Mapping[str, Mapping[str, list[Value]]],
                 of_gpus: Mapping[str, Mapping[str, list[Value]]]) -> None:  # fmt: skip
    """Prints the values of each axis once, those of CPU ranks before those that GPUs have in addition."""
    every: dict[str, list[Value]] = {}
    for of_backend in (of_cpu, of_gpus):
        for of_scheme in of_backend.values():
            for name, values in of_scheme.items():
                every[name] = list(dict.fromkeys([*every.get(name, ()), *values]))
    print()
    show_text(f"Values for {USUAL}; `workbench run` with another one says what its problem accepts:")
    show_table([
        TableColumn("axis", list(every), "name"),
        TableColumn("values", [_some_values(values) for values in every.values()]),
    ])  # fmt: skip


VALUES_SHOWN = 8
USUAL = "GEMM -> all-to-all with m = n = k = 1024 and 2 ranks"
"""The problem of which axes are listed."""


def _some_values(values: Sequence[Value]) -> str:
    """*values*, or the first few and the last, and how many they are."""
    texts = list(map(str, values))
    if len(texts) <= VALUES_SHOWN:
        return ", ".join(texts)
    return f"{', '.join(texts[: VALUES_SHOWN - 2])}, … {texts[-1]} ({len(texts)} values)"


def _axes(scheme: str, backend: str) -> dict[str, str]:
    """Names and descriptions of the axes of *scheme*, for an ordinary problem on ranks of *backend*."""
    return {axis.name: axis.doc for axis in _usual_axes(scheme, backend)}


def _axis_values(scheme: str, backend: str) -> dict[str, list[Value]]:
    return {axis.name: list(axis.values) for axis in _usual_axes(scheme, backend)}


def _usual_axes(scheme: str, backend: str) -> tuple[Axis, ...]:
    from kernels.operators import problem
    from workbench.experiment.space import of_backend

    return of_backend(backend, problem("gemm_all_to_all", {"m": 1024, "n": 1024, "k": 1024}), scheme)


def machines(json: Json = False) -> None:
    """List machines that can run or be simulated."""
    from workbench import resources
    from workbench.machines import readable

    rows = [{"machine": one.name, "title": one.title, "backend": one.backend, "max_world": one.max_world,
             "calibrated": one.calibrated, "digest": one.digest} for one in readable()]  # fmt: skip
    if json:
        show_rows(rows, {"count": len(rows), "left_out": resources.messages()})
        return
    show_table([
        TableColumn("machine", [row["machine"] for row in rows], "name"),
        TableColumn("ranks", [row["max_world"] for row in rows], "number", inline="{} ranks"),
        TableColumn("backend", [row["backend"] for row in rows], "name"),
        TableColumn("title", [row["title"] for row in rows]),
        TableColumn("calibrated", [row["calibrated"] and _without_clock(str(row["calibrated"])) for row in rows],
               inline="calibrated {}"),
    ])  # fmt: skip


def _without_clock(calibrated: str) -> str:
    """The day and the place of a calibration; only the document has the hour."""
    stamp, _, rest = calibrated.partition(" ")
    return f"{stamp.partition('T')[0]} {rest}"


def presets(json: Json = False) -> None:
    """List shapes of public models."""
    from workbench import resources
    from workbench.machines import presets as known

    rows: list[dict[str, Any]] = [
        {"preset": one.name, "title": one.title, "world": one.world, "dtype": one.dtype, "laptop": one.laptop,
         "operators": {entry.operator: dict(entry.shape) for entry in one.entries}, "source": one.source}
        for one in known.presets()
    ]  # fmt: skip
    if json:
        show_rows(rows, {"count": len(rows), "left_out": resources.messages()})
        return
    show_table(
        [
            TableColumn("preset", [row["preset"] for row in rows], "name"),
            TableColumn("ranks", [row["world"] for row in rows], "number", inline="{} ranks"),
            TableColumn("dtype", [row["dtype"] for row in rows], "name"),
            TableColumn("title", [row["title"] for row in rows]),
            TableColumn("operators", [", ".join(row["operators"]) for row in rows]),
        ]
    )


# Claims of papers.

if TYPE_CHECKING:
    from workbench.analysis.claims import ClaimAnswer

Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Only these claims, in detail.",
                                                 show_default=False)]  # fmt: skip
UNVERIFIED = " *"
CARRIES: dict[bool | None, str] = {True: "yes", False: "no"}


def claims(ids: Ids = None, every: Every = False, json: Json = False) -> None:
    """Compare published numbers with ours: recorded, estimated or missing, and whether direction and size agree.

    Where the two differ, a sentence says why. With IDs, each is shown with its machine, baseline and command.
    """
    from workbench import resources
    from workbench.analysis.claims import answers, unanswered

    with said_if_slow("Reading the recordings, and estimating what was not recorded."):
        chosen = answers(ids or ())
    others = [one.id for one in unanswered()]
    if json:
        rows = [answer.row() for answer in chosen]
        show_rows(rows, {"count": len(rows), "not_asked": others, "left_out": resources.messages()})
        return
    with one_screen(every or bool(ids)):
        if not ids:
            show_text(_agreement(chosen))
        _show(chosen)
        if any(not answer.published.verified for answer in chosen):
            show_text("* unverified: from notes of others, not from the paper's own abstract.")
        for answer in chosen:
            if ids:
                _show_answer(answer)
            elif answer.size != "similar" and not answer.is_input:
                show_text(f"{answer.published.id}: {answer.ours.why}")
        if not ids:
            show_text(f"{len(others)} more published numbers are in data/published.csv, which cannot be answered yet. "
                      "Similar: within a factor of 1.5. `workbench claims ID` shows one in detail.")  # fmt: skip


def _agreement(chosen: Sequence[ClaimAnswer]) -> str:
    """The answer: how many results have our sign, and our size; which rules hold in part, and what is no result."""
    results = [answer for answer in chosen if not answer.is_input]
    same = sum(answer.direction is True for answer in results)
    similar = sum(answer.size == "similar" for answer in results)
    parts = [f"{answer.published.id} in {answer.holds_in}" for answer in results if answer.holds_in]
    inputs = [answer.published.id for answer in chosen if answer.is_input]
    counts = (f"Of {len(results)} published results, {same} have the same sign as ours, and {similar} are within a "
              "factor of 1.5 of it.")  # fmt: skip
    partly = f"Partly covered: {', '.join(parts)} of our cases." if parts else ""
    studied = f"{', '.join(inputs)} counts inputs and has no sign." if inputs else ""
    return " ".join(filter(None, (counts, partly, studied)))


def _size(answer: ClaimAnswer) -> str | None:
    """The size of a result; of a rule that holds in part `1/4`."""
    return "input" if answer.is_input else (answer.holds_in or "").replace(" of ", "/") or answer.size


def _show(rows: Sequence[ClaimAnswer]) -> None:
    from workbench.naming import PUBLISHED, SIGNS

    show_table([
        TableColumn("id", [row.published.id for row in rows], "name"),
        TableColumn("claim", [row.published.scope for row in rows]),
        TableColumn("paper", [f"{row.published.paper} {row.published.version}" for row in rows], "name", goes_below=38),
        TableColumn(f"{SIGNS[PUBLISHED]} published", [_published(row) for row in rows], "name"),
        TableColumn("ours", [_ours(row) for row in rows], "name"),
        TableColumn("same\nsign", ["part" if row.holds_in else CARRIES.get(row.direction) for row in rows], "name"),
        TableColumn("size", list(map(_size, rows)), "name"),
    ])  # fmt: skip


def _published(answer: ClaimAnswer) -> str:
    """The published number in short, as `max 22 %` or `mean 13 % *`."""
    reported = answer.published
    which = f"{reported.aggregate} " if reported.aggregate in ("max", "mean", "min") else ""
    return f"{which}{reported.number}{'' if reported.verified else UNVERIFIED}"


def _ours(answer: ClaimAnswer) -> str | None:
    from workbench.naming import SIGNS

    ours = answer.ours
    return None if ours.value is None or ours.source is None else f"{SIGNS[ours.source]} {answer.in_unit(ours.value)}"


def _show_answer(answer: ClaimAnswer) -> None:
    """Prints all details of one claim as sentences."""
    reported, ours = answer.published, answer.ours
    mark = f" It is {reported.mark}." if reported.mark else ""
    show_text("")
    show_text(f"{reported.id}, {reported.scope}: {reported.text} ({reported.metric.replace('_', ' ')}), "
         f"over {reported.baseline}, on {reported.machine}. {reported.reference}.{mark}")  # fmt: skip
    if ours.value is not None:
        band = (
            ""
            if ours.low is None or ours.high is None
            else f" ({answer.in_unit(ours.low)} to {answer.in_unit(ours.high)})"
        )
        show_text(f"Ours: {answer.in_unit(ours.value)}{band}, {ours.source}, on {ours.machine}, over {ours.over}.")
    show_text(ours.why)
    if ours.command:
        show_command(ours.command)
