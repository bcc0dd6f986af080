"""Commands that list what can be asked for: operators, schemes, machines, presets."""

from __future__ import annotations

from typing import Any

from workbench.cli_options import Json
from workbench.cli_show import show_rows
from workbench.cli_table import Column, show_table


def operators(json: Json = False) -> None:
    """What can be computed: computations and the collectives that depend on them."""
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
        Column("operator", [row["operator"] for row in rows], "name"),
        Column("title", [row["title"] for row in rows]),
        Column("in words", [row["words"] for row in rows]),
        Column("flow", [row["flow"] for row in rows]),
        Column("shape", [", ".join(row["shape"]) for row in rows], inline="shape: {}"),
        Column("occurs", [row["occurs"] for row in rows], inline="in {}"),
    ])  # fmt: skip


def schemes(json: Json = False) -> None:
    """How it can be overlapped. The values of an axis depend on the problem: see `run`'s refusals and the explorer."""
    from kernels.schemes import SCHEMES

    rows = [{"scheme": name, "idea": scheme.idea, "axes": (usual := _axes(name, "cpu")),
             "axes_on_gpus": {axis: doc for axis, doc in _axes(name, "triton").items() if axis not in usual},
             "source": scheme.source} for name, scheme in SCHEMES.items()]  # fmt: skip
    if json:
        show_rows(rows, {"count": len(rows)})
        return
    show_table(
        [
            Column("scheme", [row["scheme"] for row in rows], "name"),
            Column("idea", [row["idea"] for row in rows]),
            Column("axes", [", ".join(row["axes"]) for row in rows], inline="axes: {}"),
            Column("on GPUs also", [", ".join(row["axes_on_gpus"]) for row in rows], inline="on GPUs also: {}"),
        ]
    )


def _axes(scheme: str, backend: str) -> dict[str, str]:
    """Names and sentences, as an ordinary problem on ranks of *backend* shows them."""
    from kernels.operators import problem
    from workbench.axes_by_backend import of_backend

    usual = problem("gemm_all_to_all", {"m": 1024, "n": 1024, "k": 1024})
    return {axis.name: axis.doc for axis in of_backend(backend, usual, scheme)}


def machines(json: Json = False) -> None:
    """Where it can run or be simulated."""
    from workbench import left_out
    from workbench.machines import readable

    rows = [{"machine": one.name, "title": one.title, "backend": one.backend, "max_world": one.max_world,
             "calibrated": one.calibrated, "digest": one.digest} for one in readable()]  # fmt: skip
    if json:
        show_rows(rows, {"count": len(rows), "left_out": left_out.sentences()})
        return
    show_table([
        Column("machine", [row["machine"] for row in rows], "name"),
        Column("ranks", [row["max_world"] for row in rows], "number", inline="{} ranks"),
        Column("backend", [row["backend"] for row in rows], "name"),
        Column("title", [row["title"] for row in rows]),
        Column("calibrated", [row["calibrated"] and _without_clock(str(row["calibrated"])) for row in rows],
               inline="calibrated {}"),
    ])  # fmt: skip


def _without_clock(calibrated: str) -> str:
    """The day of a calibration, then where; the hour is in the document."""
    stamp, _, rest = calibrated.partition(" ")
    return f"{stamp.partition('T')[0]} {rest}"


def presets(json: Json = False) -> None:
    """Shapes of public models."""
    from workbench import left_out
    from workbench.presets import presets as known

    rows: list[dict[str, Any]] = [
        {"preset": one.name, "title": one.title, "world": one.world, "dtype": one.dtype, "laptop": one.laptop,
         "operators": {entry.operator: dict(entry.shape) for entry in one.entries}, "source": one.source}
        for one in known()
    ]  # fmt: skip
    if json:
        show_rows(rows, {"count": len(rows), "left_out": left_out.sentences()})
        return
    show_table(
        [
            Column("preset", [row["preset"] for row in rows], "name"),
            Column("ranks", [row["world"] for row in rows], "number", inline="{} ranks"),
            Column("dtype", [row["dtype"] for row in rows], "name"),
            Column("title", [row["title"] for row in rows]),
            Column("operators", [", ".join(row["operators"]) for row in rows]),
        ]
    )
