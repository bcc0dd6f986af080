"""Commands that list what can be asked for: operators, schemes, machines, presets."""

from __future__ import annotations

from workbench.cli_options import Json
from workbench.cli_show import show_rows, show_table


def operators(json: Json = False) -> None:
    """What can be computed: computations and the collectives that depend on them."""
    from kernels.operators import OPERATORS

    rows = [
        {"operator": name, "words": stated.words, "flow": stated.flow.value, "collective": stated.collective,
         "shape": {key.name: key.doc for key in stated.keys}, "splits": dict(stated.splits),
         "tile_means": stated.tile_means, "occurs": stated.occurs, "source": stated.source}
        for name, stated in OPERATORS.items()
    ]  # fmt: skip
    if json:
        show_rows(rows, {"count": len(rows)})
        return
    columns = ("operator", "in words", "flow", "shape", "occurs")
    show_table("", columns, [(r["operator"], r["words"], r["flow"], ", ".join(r["shape"]), r["occurs"]) for r in rows])


def schemes(json: Json = False) -> None:
    """How it can be overlapped. The values of an axis depend on the problem: see `run`'s refusals and the explorer."""
    from kernels.schemes import SCHEMES

    rows = [{"scheme": name, "idea": stated.idea, "axes": _axes(name), "source": stated.source}
            for name, stated in SCHEMES.items()]  # fmt: skip
    if json:
        show_rows(rows, {"count": len(rows)})
        return
    show_table("", ("scheme", "idea", "axes"), [(r["scheme"], r["idea"], ", ".join(r["axes"])) for r in rows])


def _axes(scheme: str) -> dict[str, str]:
    """Names and sentences, as an ordinary problem on CPU ranks shows them."""
    from kernels.fabric import parse
    from kernels.operators import problem
    from kernels.schemes import axes
    from workbench.machines import LAPTOP, machine

    asked = problem("gemm_all_to_all", {"m": 1024, "n": 1024, "k": 1024})
    return {axis.name: axis.doc for axis in axes(asked, scheme, machine(LAPTOP), parse("shared_memory"))}


def machines(json: Json = False) -> None:
    """Where it can run or be simulated."""
    from workbench.machines import machine, names

    found = [machine(name) for name in names()]
    rows = [{"machine": one.name, "title": one.title, "backend": one.backend, "max_world": one.max_world,
             "calibrated": one.calibrated, "digest": one.digest} for one in found]  # fmt: skip
    if json:
        show_rows(rows, {"count": len(rows)})
        return
    columns = ("machine", "title", "backend", "ranks", "calibrated")
    show_table("", columns, [(r["machine"], r["title"], r["backend"], r["max_world"], r["calibrated"] or "no")
                             for r in rows], right=("ranks",))  # fmt: skip


def presets(json: Json = False) -> None:
    """Shapes of public models."""
    from workbench.presets import presets as known

    rows = [
        {"preset": one.name, "title": one.title, "world": one.world, "dtype": one.dtype, "laptop": one.laptop,
         "operators": {entry.operator: dict(entry.shape) for entry in one.entries}, "source": one.source}
        for one in known()
    ]  # fmt: skip
    if json:
        show_rows(rows, {"count": len(rows)})
        return
    lines = [(one.name, one.title, one.world, one.dtype, ", ".join(entry.operator for entry in one.entries))
             for one in known()]  # fmt: skip
    show_table("", ("preset", "title", "ranks", "dtype", "operators"), lines, right=("ranks",))
