"""The command that estimates one collective on a hierarchical fabric, by one algorithm or by all of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workbench import cli_options as options
from workbench.cli_show import show_json, show_rows, tell
from workbench.cli_table import Column, show_table

if TYPE_CHECKING:
    from workbench.simulator.network import Network

Row = dict[str, Any]
MACHINE = "h200_ib"
"""The machine whose network is taken where none is stated: the one that has many hosts."""

Name = Annotated[
    str, typer.Argument(help="all_to_all, all_gather, reduce_scatter or all_reduce.", metavar="COLLECTIVE")
]
Bytes = Annotated[
    float, typer.Option("--bytes", help="One rank's whole buffer; of all_gather, what one rank contributes.")
]
Algorithm = Annotated[
    str | None,
    typer.Option(help="ring, direct, pairwise, halving_doubling or hierarchical. Default: a row for each."),
]
Fabric = Annotated[
    Path | None,
    typer.Option(help="A TOML file of [[dimension]] tables, the innermost first; or a name of data/fabrics."),
]
Machine = Annotated[str | None, typer.Option(help=f"Whose network, instead of a file. Default: {MACHINE}.")]
World = Annotated[int | None, typer.Option(help="Ranks. Default: all that the fabric links.")]
Chunks = Annotated[int, typer.Option(help="Equal parts of the buffer that follow each other through the levels.")]
Inside = Annotated[
    str | None, typer.Option(help="What hierarchical does on each level. Default: what is fastest there.")
]


def predict_collective(
    collective: Name,
    num_bytes: Bytes,
    algorithm: Algorithm = None,
    fabric: Fabric = None,
    machine: Machine = None,
    world: World = None,
    chunks: Chunks = 1,
    inside: Inside = None,
    json: options.Json = False,
) -> None:
    """Estimate a collective on a fabric of several levels: a closed form, and the bound that no algorithm is below."""
    from workbench.simulator.network.compared import priced

    network = network_of(fabric, machine, world)
    rows = priced(network, collective, num_bytes, algorithm=algorithm, chunks=chunks, inside=inside)
    if json and algorithm is not None:
        show_json(rows[0])
    elif json:
        show_rows(rows, {"fabric": network.name, "world": network.world, "source": "estimated"})
    else:
        _show(rows, network, num_bytes)


def network_of(fabric: Path | None, machine: str | None, world: int | None) -> Network:
    """The network of the file *fabric*, which links *world* ranks, or that of *machine*, cut to *world* ranks."""
    from workbench.machines import machine as machine_called
    from workbench.simulator.network import levels

    if fabric is None:
        on = machine_called(machine or MACHINE)
        return levels.of_machine(on, on.max_world if world is None else world)
    if machine is not None:
        raise ValueError("--fabric and --machine are stated, 2 networks, and 1 is needed. Accepted: either of them.")
    return levels.checked(levels.named(fabric), world)


def _show(rows: list[Row], network: Network, num_bytes: float) -> None:
    from kernels.units import bytes_text, seconds_text

    show_table([
        Column("algorithm", [row["algorithm"] for row in rows], "name"),
        Column("time", [None if row["time_s"] is None else seconds_text(row["time_s"]) for row in rows], "number"),
        Column("bound", [seconds_text(row["bound_s"]) for row in rows], "number"),
        Column("of\nbound", [None if row["time_s"] is None else f"{row['of_bound']:.1%}" for row in rows], "number"),
        Column("note", [row["message"] for row in rows]),
    ])  # fmt: skip
    ranks = "rank" if network.world == 1 else "ranks"
    tell(f"{rows[0]['collective']} of {bytes_text(num_bytes)} on {network.name}, {network.words} {ranks}. All is "
         "estimated; nothing of it was measured.")  # fmt: skip
