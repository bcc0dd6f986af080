"""Commands that estimate a collective, or a step of a model on many ranks, on a network of several levels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workbench.cli import options
from workbench.cli.output import TableColumn, say, show_json, show_rows, show_table, show_text

# One collective on a hierarchical fabric, by one algorithm or by all.

if TYPE_CHECKING:
    from workbench.simulator.scaling.network import Network

Row = dict[str, Any]
MACHINE = "h200_ib"
"""The machine of the default network, which has many hosts."""

Collective = Annotated[
    str, typer.Argument(help="all_to_all, all_gather, reduce_scatter or all_reduce.", metavar="COLLECTIVE")
]
Bytes = Annotated[
    str,
    typer.Option("--bytes", help="One rank's whole buffer, as 100MB, 64MiB or 1e9; of all_gather its part."),
]
Algorithm = Annotated[
    str | None,
    typer.Option(help="ring, direct, pairwise, halving_doubling or hierarchical. Default: a row for each."),
]
NetworkFile = Annotated[
    Path | None,
    typer.Option(help="A TOML file of [[dimension]] tables, the innermost first; or a name of data/fabrics."),
]
NetworkMachine = Annotated[
    str | None, typer.Option(help=f"The machine whose network is used instead of a file. Default: {MACHINE}.")
]
NetworkWorld = Annotated[int | None, typer.Option(help="Ranks. Default: all that the fabric links.")]
Chunks = Annotated[int, typer.Option(help="Equal parts of the buffer that follow each other through the levels.")]
Inside = Annotated[
    str | None, typer.Option(help="What hierarchical does on each level. Default: what is fastest there.")
]


def predict_collective(
    collective: Collective,
    typed_bytes: Bytes,
    algorithm: Algorithm = None,
    fabric: NetworkFile = None,
    machine: NetworkMachine = None,
    world: NetworkWorld = None,
    chunks: Chunks = 1,
    inside: Inside = None,
    json: options.Json = False,
) -> None:
    """Estimate a collective on a fabric of several levels by a closed form, with the lower bound of all algorithms."""
    from kernels.units import bytes_typed
    from workbench.simulator.scaling.network import priced

    num_bytes = bytes_typed(typed_bytes)
    network = network_of(fabric, machine, world)
    rows = priced(network, collective, num_bytes, algorithm=algorithm, chunks=chunks, inside=inside)
    if json and algorithm is not None:
        show_json(rows[0])
    elif json:
        show_rows(rows, {"fabric": network.name, "world": network.world, "source": "estimated"})
    else:
        _show_collective(rows, network, num_bytes)


def network_of(fabric: Path | None, machine: str | None, world: int | None) -> Network:
    """The network of the file *fabric*, which links *world* ranks, or that of *machine*, cut to *world* ranks."""
    from workbench import machines
    from workbench.simulator.scaling import network as networks

    if fabric is None:
        on = machines.machine(machine or MACHINE)
        return networks.of_machine(on, on.max_world if world is None else world)
    if machine is not None:
        raise ValueError("--fabric and --machine are stated, 2 networks, and 1 is needed. Accepted: either of them.")
    return networks.checked(networks.named(fabric), world)


def _show_collective(rows: list[Row], network: Network, num_bytes: float) -> None:
    from kernels.units import bytes_text, seconds_text

    possible = sorted((row for row in rows if row["time_s"] is not None), key=lambda row: float(row["time_s"]))
    what = f"{rows[0]['collective']} of {bytes_text(num_bytes)}"
    where = f"{network.name}, {network.shape} {'rank' if network.world == 1 else 'ranks'}"
    bound = f"No algorithm takes less than {seconds_text(rows[0]['bound_s'])}."
    if network.world == 1:
        show_text(f"One rank sends nothing: {what} on {where} takes no time.")
    elif possible:
        best = possible[0]
        show_text(
            f"{best['algorithm']} takes {seconds_text(best['time_s'])} for {what} on {where}, by estimate. {bound}"
        )
    else:
        show_text(f"No algorithm here does {what} on {where}. {bound}")
    rows = [*possible, *(row for row in rows if row["time_s"] is None)]
    show_table([
        TableColumn("algorithm", [row["algorithm"] for row in rows], "name"),
        TableColumn("time", [None if row["time_s"] is None else seconds_text(row["time_s"]) for row in rows], "number"),
        TableColumn("bound\nof time", [None if row["time_s"] is None else f"{row['of_bound']:.1%}" for row in rows],
                    "number"),
        TableColumn("note", [row["message"] for row in rows]),
    ])  # fmt: skip
    show_text("All times are estimates; none was measured.")


# A step of a model on many ranks, with and without overlap.

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernels.machine import Machine as Place
    from workbench.simulator.scaling.model import Model
    from workbench.simulator.scaling.network import Network
    from workbench.simulator.scaling.step import StepSetting, StepTime


WORLD = 1024
"""The default number of ranks: 128 hosts of 8."""
PARTS = 3
"""Number of layers in the sentence about exposed time."""

ModelName = Annotated[str, typer.Argument(help="A name of data/models, or a TOML file.", metavar="MODEL")]
StepMachine = Annotated[
    str, typer.Option(help="The machine that computes; also its network, unless --fabric is given.")
]
StepWorld = Annotated[
    int | None, typer.Option(help=f"Ranks. Default: {WORLD}, or all that the fabric or machine links.")
]
StepNetworkFile = Annotated[
    Path | None, typer.Option(help="Another network: a TOML file of [[dimension]] tables, or a name of data/fabrics.")
]
Rates = Annotated[
    list[float] | None, typer.Option("--network-rate", help="Bytes/s per rank of the outermost level; once per rate.")
]
Scales = Annotated[
    list[float] | None, typer.Option("--dense-scale", help="Dense layers take this many times as long; once per value.")
]
Which = Annotated[
    list[str] | None,
    typer.Option("--configuration", help="fused_forward, fused_backward, fused or decomposed. Default: all."),
]
Probability = Annotated[float, typer.Option(help="Probability that a rank is slow in a step.")]
Slowdown = Annotated[float, typer.Option(help="How many times as long a slow rank computes.")]
Imbalance = Annotated[
    float, typer.Option(help="A rank's lookups and routed tokens are within this share of the usual.")
]
Chakra = Annotated[
    Path | None, typer.Option(help="Write the step's graph to this new file, as a Chakra execution trace of one rank.")
]
Perfetto = Annotated[
    Path | None, typer.Option(help="Write the step's timeline to this new file, as Perfetto opens it.")
]
Seed = Annotated[int, typer.Option(help="The seed that draws the slow ranks and those with more work.", min=0)]


def predict_step(
    model: ModelName,
    machine: StepMachine = MACHINE,
    world: StepWorld = None,
    fabric: StepNetworkFile = None,
    network_rate: Rates = None,
    dense_scale: Scales = None,
    configuration: Which = None,
    stragglers: Probability = 0.0,
    slowdown: Slowdown = 1.5,
    imbalance: Imbalance = 0.0,
    seed: Seed = 0,
    chakra: Chakra = None,
    perfetto: Perfetto = None,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Estimate a training or inference step on many ranks: how much fused operators save, and what stays exposed.

    Operators are priced tile by tile inside a host, and by one representative rank between hosts. --chakra and
    --perfetto write the step of the named configuration, or the sequential one.
    """
    from workbench import machines
    from workbench.reports.traces import KINDS, WAYS
    from workbench.results.files import FileTarget, refuse, replacement_note, write
    from workbench.simulator.scaling import model as models
    from workbench.simulator.scaling import step as steps
    from workbench.simulator.scaling.prices import Prices
    from workbench.simulator.scaling.step import StepSetting, Stragglers

    _refuse_other_files(Path(model))
    known, on = models.model(model), machines.machine(machine)
    network = _network(on, fabric, world)
    slow = Stragglers(probability=stragglers, slowdown=slowdown, imbalance=imbalance, seed=seed)
    setting = StepSetting(model=known, prices=Prices(on, network), stragglers=slow)
    targets = {
        kind: FileTarget(path, force=force) for kind, path in (("chakra", chakra), ("perfetto", perfetto)) if path
    }
    if targets:
        _one_step({"--network-rate": network_rate, "--dense-scale": dense_scale, "--configuration": configuration})
        refuse([(target, KINDS[kind]) for kind, target in targets.items()])
    rows = steps.band(setting, rates=network_rate or (), dense_scales=dense_scale or (), names=configuration)
    if targets:
        one, title = _step(setting, rows[0], configuration), f"{known.title}, {network.shape}"
        written = [replacement_note(target.path, target.path.exists()) for target in targets.values()]
        write([(target, KINDS[kind], WAYS[kind](one, title)) for kind, target in targets.items()])
        for name in written:
            say(name)
    if json:
        show_rows(rows, _step_summary(known, on, network, rows))
        return
    _show_step(rows, _step_summary(known, on, network, rows))


def _refuse_other_files(path: Path) -> None:
    """Raises ValueError of an existing path that is not a TOML file; as a name it would only be unknown."""
    if path.suffix != ".toml" and len(path.parts) + bool(path.suffix) > 1 and path.exists():
        reason = "it is a folder" if path.is_dir() else f"it ends in {path.suffix or path.name!r}"
        raise ValueError(f"{path} cannot be read as a model: {reason}. Accepted: a TOML file, or a name, as in "
                         "`workbench predict-step dlrm`.")  # fmt: skip


def _one_step(options_given: dict[str, list[Any] | None]) -> None:
    """Raises ValueError where several steps are requested, as only one is written."""
    for option, values in options_given.items():
        if values and len(values) > 1:
            raise ValueError(f"{option} has {len(values)} values, and 1 step is written. Accepted: one value of it.")


def _step(setting: StepSetting, row: Row, configuration: list[str] | None) -> StepTime:
    """The step of the named configuration, or the sequential one, at the rate and the dense scale of *row*."""
    from workbench.simulator.scaling.step import CONFIGURATIONS, SEQUENTIAL, step

    network = setting.prices.network
    prices = setting.prices.over(network.with_rates(len(network.levels) - 1, row["network_bytes_per_second"]))
    at = replace(setting, prices=prices, dense_scale=row["dense_scale"])
    return step(at, CONFIGURATIONS[configuration[0]] if configuration else SEQUENTIAL)


def _network(on: Place, fabric: Path | None, world: int | None) -> Network:
    if fabric is not None:
        return network_of(fabric, None, world)
    return network_of(None, on.name, min(WORLD, on.max_world) if world is None else world)


def _step_summary(model: Model, on: Place, network: Network, rows: Sequence[Row]) -> Row:
    from workbench.simulator.scaling.step import span

    return {
        "model": model.name, "title": model.title, "model_source": model.source,
        "provenance": dict(model.provenance), "machine": on.name, "fabric": network.name, "world": network.world,
        "network": network.shape, "reduction_spans": span(rows), "source": "estimated",
        "note": "Nothing between hosts was measured: fused steps say what they would save.",
    }  # fmt: skip


def _show_step(rows: Sequence[Row], summary: Row) -> None:
    from kernels.units import percent_text, rate_text, seconds_text
    from workbench.simulator.scaling.step import DRAWS

    several = {key: len({row[key] for row in rows}) > 1 for key in ("network_bytes_per_second", "dense_scale")}
    best = max(rows, key=lambda row: row["reduction"])
    of_row = f" at {rate_text(best['network_bytes_per_second'])}" if several["network_bytes_per_second"] else ""
    of_row += f", dense layers {best['dense_scale']:g}x" if several["dense_scale"] else ""
    less = f"{percent_text(abs(best['reduction']))} {'less' if best['reduction'] >= 0 else 'more'}"
    show_text(f"At best, with {best['configuration']}{of_row}, the step takes {seconds_text(best['fused_s'])} by "
              f"estimate, {less} than sequential, {seconds_text(best['baseline_s'])}.")  # fmt: skip
    show_table(
        [
            TableColumn("configuration", [row["configuration"] for row in rows], "name"),
            *(
                [TableColumn("network", [rate_text(row["network_bytes_per_second"]) for row in rows], "number")]
                if several["network_bytes_per_second"]
                else []
            ),
            *(
                [TableColumn("dense", [f"{row['dense_scale']:g}x" for row in rows], "number")]
                if several["dense_scale"]
                else []
            ),
            TableColumn("sequential", [seconds_text(row["baseline_s"]) for row in rows], "number"),
            TableColumn("overlapped", [seconds_text(row["fused_s"]) for row in rows], "number"),
            TableColumn("less", [percent_text(row["reduction"]) for row in rows], "number"),
            TableColumn("exposed\noverlapped", [seconds_text(row["exposed_s"]) for row in rows], "number"),
            TableColumn("exposed\nsequential", [seconds_text(row["baseline_exposed_s"]) for row in rows], "number"),
        ]
    )
    first = rows[0]
    ranks = "rank" if first["world"] == 1 else "ranks"
    show_text(f"{summary['title']}: one step of {summary['network']} {ranks} of {summary['machine']}, linked as in "
         f"{summary['fabric']}, {rate_text(first['network_bytes_per_second'])} a rank on the outermost level"
         f"{' of the first row' if several['network_bytes_per_second'] else ''}.")  # fmt: skip
    most = [f"{part['layer']} {part['pass']} {seconds_text(part['exposed_s'])}"
            for part in first["baseline_exposed_by_layer"][:PARTS]]  # fmt: skip
    if most:
        show_text(f"Sequential, communication exposes most in {', '.join(most)}.")
    if first["stragglers"] or first["imbalance"]:
        show_text(f"Each rank is slow with probability {first['stragglers']:g}, {first['slowdown']:g}x; its lookups "
             f"and routed tokens are within {percent_text(first['imbalance'])} of the usual. Times are means of "
             f"{DRAWS} draws, exposed parts those of ranks that are equal.")  # fmt: skip
    show_text(f"All times are estimates. {summary['note']}")
