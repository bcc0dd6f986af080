"""Commands about this computer: calibrate, benchmark."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from kernels.machine import Machine
from workbench import cli_options as options
from workbench.cli_show import say, show_rows, show_table


def calibrate(
    quick: Annotated[bool, typer.Option("--quick", help="Three seconds instead of a quarter of a minute.")] = False,
    machine: options.Machine = None,
    probes: Annotated[
        Path | None, typer.Option(help="Raw results of a machine of GPUs, measured elsewhere: fit them.")
    ] = None,
    devices_of: Annotated[
        str | None, typer.Option(help="A calibrated machine of fewer such GPUs, each of which is taken over.")
    ] = None,
    links: Annotated[bool, typer.Option("--links", help="With --devices-of: the speed of puts as well.")] = False,
    recording: Annotated[
        list[str] | None, typer.Option(help="Check estimates against it; may be given more than once.")
    ] = None,
    to: Annotated[Path | None, typer.Option(help="The file to write. Default: beside your runs.")] = None,
    cluster: options.Cluster = None,
    json: options.Json = False,
) -> None:
    """Fit a machine to this computer, by default that of CPU ranks; estimates are then credible."""
    from workbench import machines

    if probes is None and devices_of is None and machine in (None, machines.LAPTOP):
        found, path = _of_ranks(quick, cluster)
    else:
        found, path = _of_gpus(machine, quick, (probes, devices_of, links), recording or [], to)
    _show_calibration(found, path, json)


def _of_ranks(quick: bool, cluster: str | None) -> tuple[Machine, Path]:
    from threading import Event

    from workbench.calibration import Unsound
    from workbench.calibration import calibrate as calibrated
    from workbench.cli_measure import OnDemand, stoppable
    from workbench.simulator.calibrate import FULL_SECONDS, QUICK_SECONDS

    stop = Event()
    with OnDemand(cluster, 2) as found, stoppable(stop):
        try:
            return calibrated(found, QUICK_SECONDS if quick else FULL_SECONDS, stop)
        except Unsound as error:
            say(str(error))
            raise typer.Exit(1) from None


def _of_gpus(
    name: str | None, quick: bool, given: tuple[Path | None, str | None, bool], against: list[str], to: Path | None
) -> tuple[Machine, Path]:
    """From raw results, from another machine's devices, or by probes on this host."""
    from workbench import calibration_gpus, machines

    raw, devices_of, links = given
    if devices_of is not None:
        onto = machines.of_gpus().name if name is None else name
        return calibration_gpus.keep(calibration_gpus.carry(devices_of, onto, against, links=links), to)
    if raw is None:
        place = machines.shipped_machine(str(name))
        raw = machines.calibrated_path(place.name).with_name(f"{place.name}_raw.json")
        raw.parent.mkdir(parents=True, exist_ok=True)
        calibration_gpus.probe(place, calibration_gpus.QUICK_SECONDS if quick else calibration_gpus.SECONDS, raw)
    return calibration_gpus.keep(calibration_gpus.fit(raw, against), to)


def _show_calibration(machine: Machine, path: Path, json: bool) -> None:
    from dataclasses import asdict

    from workbench import machines

    values = [asdict(value) for value in machines.stated(machine) if value.provenance == "calibrated"]
    if json:
        show_rows(values, {"machine": machine.name, "path": str(path), "calibrated": machine.calibrated,
                           "spread": machine.spread})  # fmt: skip
        return
    show_table("", ("value", "found", "how"), [(v["key"], f"{v['value']:.3g}", v["source"]) for v in values
                                               if isinstance(v["value"], float)], right=("found",))  # fmt: skip
    checked = "It was not checked: --recording names measurements to check it against."
    if machine.spread is not None:
        low, high = machine.spread
        checked = f"Measured times of its check were {low:.2f} to {high:.2f} times the estimates."
    say(f"{machine.name} is calibrated: {machine.calibrated}. {checked} The file is {path}.")


def benchmark(
    names: Annotated[list[str] | None, typer.Argument(help="Default: all of them.", show_default=False)] = None,
    cluster: options.Cluster = None,
    json: options.Json = False,
) -> None:
    """What the workbench costs and reaches on this computer, with targets beside the numbers. Takes minutes."""
    from cluster.launch import attach
    from workbench.benchmark import benchmark as benchmarked

    with ExitStack() as stack:
        found = stack.enter_context(attach(cluster)) if cluster is not None else None
        answer = benchmarked(names or None, found)
    rows, summary = answer["rows"], answer["summary"]
    if json:
        show_rows(rows, summary)
        return
    lines = [(row["name"], _value(row["value"], row["unit"]), row["target"] and f"{row['target']} {row['unit']}",
              {True: "yes", False: "no"}.get(row["met"]), row["n"], row["how"]) for row in rows]  # fmt: skip
    show_table("", ("benchmark", "found", "target", "met", "of", "how"), lines, right=("found", "target", "of"))
    say(f"{summary['met']} of {summary['targets']} targets met; {summary['note']}")


def _value(value: float | None, unit: str) -> str | None:
    from kernels.units import seconds_text

    if value is None:
        return None
    return seconds_text(value) if unit == "s" else f"{value:.3g} {'' if unit == 'ratio' else unit}".strip()
