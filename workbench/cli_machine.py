"""Commands about this computer: calibrate, benchmark."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Annotated

import typer

from workbench import cli_options as options
from workbench.cli_show import say, show_rows, show_table


def calibrate(
    quick: Annotated[bool, typer.Option("--quick", help="Three seconds instead of a quarter of a minute.")] = False,
    cluster: options.Cluster = None,
    json: options.Json = False,
) -> None:
    """Fit the machine of CPU ranks to this computer; estimates are then credible."""
    from dataclasses import asdict
    from threading import Event

    from workbench import machines
    from workbench.calibration import Unsound
    from workbench.calibration import calibrate as calibrated
    from workbench.cli_measure import OnDemand, stoppable
    from workbench.simulator.calibrate import FULL_SECONDS, QUICK_SECONDS

    stop = Event()
    with OnDemand(cluster, 2) as found, stoppable(stop):
        try:
            machine, path = calibrated(found, QUICK_SECONDS if quick else FULL_SECONDS, stop)
        except Unsound as error:
            say(str(error))
            raise typer.Exit(1) from None
    values = [asdict(value) for value in machines.stated(machine) if value.provenance == "calibrated"]
    if json:
        show_rows(values, {"machine": machine.name, "path": str(path), "calibrated": machine.calibrated,
                           "spread": machine.spread})  # fmt: skip
        return
    show_table("", ("value", "found", "how"), [(v["key"], f"{v['value']:.3g}", v["source"]) for v in values
                                               if isinstance(v["value"], float)], right=("found",))  # fmt: skip
    low, high = machine.spread or (None, None)
    say(f"{machine.name} is calibrated: {machine.calibrated}. Measured times of its check were {low:.2f} to {high:.2f} "
        f"times the estimates. The file is {path}.")  # fmt: skip


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
