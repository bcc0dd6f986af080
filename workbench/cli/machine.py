"""Commands about this computer: calibrate, benchmark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernels.files import Failed
from kernels.machine import Machine
from workbench.cli import exit_status, options
from workbench.cli.exit_status import Interrupted
from workbench.cli.output import TableColumn, say, show_rows, show_table

if TYPE_CHECKING:
    from workbench.results.files import FileTarget

CURVES = ("rate.", "collective.")
"""Prefixes of the keys of points of curves."""
RATES = ("bytes_per_second", "loads_in_flight")
"""Parts of the keys of values in bytes per second."""


def calibrate(
    quick: Annotated[bool, typer.Option("--quick", help="Three seconds instead of a quarter of a minute.")] = False,
    machine: options.Machine = None,
    probes: Annotated[
        Path | None, typer.Option(help="Fit raw results of a machine of GPUs that were measured elsewhere.")
    ] = None,
    nccl: Annotated[
        Path | None, typer.Option(help="With --probes: what NCCL's settings took there, for library_tuned.")
    ] = None,
    devices_of: Annotated[
        str | None, typer.Option(help="A calibrated machine with fewer of the same GPUs: take over its devices.")
    ] = None,
    links: Annotated[
        bool, typer.Option("--links", help="With --devices-of: take over the bandwidth of links as well.")
    ] = False,
    recording: Annotated[
        list[str] | None, typer.Option(help="Check a machine of GPUs against it; may be given more than once.")
    ] = None,
    to: Annotated[
        Path | None, typer.Option(help="The file of a machine of GPUs. Default: in the folder of your runs.")
    ] = None,
    force: options.Force = False,
    undo: Annotated[
        bool, typer.Option("--undo", help="Measure nothing: bring back the calibration before the last one.")
    ] = False,
    busy: Annotated[
        bool, typer.Option("--busy", help="Calibrate although others use the cores; the machine's file then says so.")
    ] = False,
    cluster: options.Cluster = None,
    json: options.Json = False,
) -> None:
    """Fit a machine, by default that of CPU ranks, to this computer or a cluster, so that estimates are reliable."""
    from workbench import machines

    if undo:
        _undo(
            machine or machines.LAPTOP,
            any((quick, busy, probes, nccl, devices_of, links, recording, to, cluster)),
            json,
        )
        return
    _check_sources(probes, nccl)
    if probes is None and devices_of is None and (machine is None or machines.machine(machine).backend == "cpu"):
        _refuse_of_gpus({"--to": to, "--recording": recording, "--links": links})
        fitted, path = _of_ranks(quick, cluster, machine, busy)
    else:
        target = _target(to, [each for each in (probes, nccl) if each], recording or [], force)
        fitted, path = _of_gpus(machine, (quick, busy), (probes, nccl, devices_of, links), recording or [], target)
    _show_calibration(fitted, path, json)


def _undo(name: str, measures: bool, json: bool) -> None:
    """Brings back the calibration of machine *name* before the last one, and says which."""
    from workbench import machines

    if measures:
        raise ValueError("--undo measures and writes nothing new, so it takes no option of a calibration. "
                         "Accepted: --undo alone, or with --machine and --json.")  # fmt: skip
    restored, path = machines.undo(name), machines.calibrated_path(name)
    undone = path.with_name(f"{path.name}{machines.UNDONE}")
    if json:
        show_rows([], {"machine": name, "path": str(path) if path.exists() else None,
                       "calibrated": restored.calibrated, "undone": str(undone)})  # fmt: skip
        return
    if path.exists():
        back = f"as it was before: {_calibrated(restored)}"
    else:
        back = "as it is shipped, not calibrated: it had no calibration before"
    say(f"{name} is {back}. What was undone is kept in {undone}.")


def _calibrated(machine: Machine) -> str:
    return f"calibrated {machine.calibrated}" if machine.calibrated else "not calibrated"


def _of_ranks(quick: bool, cluster: str | None, name: str | None, busy: bool) -> tuple[Machine, Path]:
    from threading import Event

    from workbench.cli.measuring import LazyCluster, stoppable
    from workbench.experiment import calibration
    from workbench.machines.calibrate_cpu import FULL_SECONDS, QUICK_SECONDS

    stop = Event()
    with LazyCluster(cluster, 2) as ranks, stoppable(stop):
        try:
            seconds, load = QUICK_SECONDS if quick else FULL_SECONDS, calibration.INSIST if busy else calibration.REFUSE
            return calibration.calibrate(ranks, seconds, stop, name=name, busy=load)
        except Failed:
            if stop.is_set():
                raise Interrupted("Stopped: the machine stays as it was.") from None
            raise


def _refuse_of_gpus(given: Mapping[str, object]) -> None:
    """Raises ValueError of options that would have no effect on CPU ranks: one says where the file is written."""
    for option, value in given.items():
        if value:
            named = option if value is True else f"{option} {value[0] if isinstance(value, list) else value}"
            raise ValueError(f"{named} is of a machine of GPUs, and CPU ranks are calibrated: their file is in the "
                             "folder of your runs, where estimates look for it, and is checked by the ranks. Accepted: "
                             f"no {option}, or --probes, --devices-of or a --machine of GPUs with it.")  # fmt: skip


def _check_sources(probes: Path | None, nccl: Path | None) -> None:
    if nccl is not None and probes is None:
        raise ValueError(f"--nccl {nccl} needs --probes. It says what each setting takes of NCCL's default, and the "
                         "default is among the probes. Accepted: both, or --probes alone.")  # fmt: skip


def _target(to: Path | None, read: list[Path], against: list[str], force: bool) -> FileTarget | None:
    """The file to write, None by default; one that must not be replaced is refused before anything is measured."""
    if to is None:
        return None
    from workbench.results.files import MACHINE, FileTarget

    target = FileTarget(to, (*read, *map(Path, against)), force)
    target.refuse(MACHINE)
    return target


def _of_gpus(
    name: str | None,
    how: tuple[bool, bool],
    given: tuple[Path | None, Path | None, str | None, bool],
    against: list[str],
    to: FileTarget | None,
) -> tuple[Machine, Path]:
    """Fits a machine of GPUs from raw results, another machine's devices, or probes on this host."""
    from workbench.machines import calibrate_gpu, matching

    raw, sweep, devices_of, links = given
    if devices_of is not None:
        onto = matching.machine_of_local_gpus().name if name is None else name
        return calibrate_gpu.keep(calibrate_gpu.carry(devices_of, onto, against, links=links), to)
    if raw is None:
        quick, busy = how
        seconds = calibrate_gpu.QUICK_SECONDS if quick else calibrate_gpu.SECONDS
        return calibrate_gpu.calibrate_here(str(name), seconds, against, to, busy=busy)
    return calibrate_gpu.keep(calibrate_gpu.fit(raw, against, sweep), to)


def _show_calibration(machine: Machine, path: Path, json: bool) -> None:
    from dataclasses import asdict

    from workbench import machines

    values = [asdict(value) for value in machines.machine_values(machine) if value.provenance == "calibrated"]
    if json:
        show_rows(values, {"machine": machine.name, "path": str(path), "calibrated": machine.calibrated,
                           "spread": machine.spread, "distrusted": machines.distrusted(machine)})  # fmt: skip
        return
    plain = [{**value, "source": value["source"].partition(machines.DISTRUSTED)[0]} for value in values]
    _show_values([value for value in plain if isinstance(value["value"], float)])
    checked = "It was not checked: --recording names measurements to check it against."
    if machine.spread is not None:
        low, high = machine.spread
        checked = f"Measured times of its check were {low:.2f} to {high:.2f} times the estimates."
    say(f"{machine.name} is calibrated: {machine.calibrated}. {checked} The file is {path}.")
    if distrusted := machines.distrusted(machine):
        say(_distrust(distrusted))
    if path == machines.calibrated_path(machine.name):
        undo = "workbench calibrate --undo" + ("" if machine.name == machines.LAPTOP else f" --machine {machine.name}")
        say(f"What it replaces is kept: `{undo}` brings it back.")


def _distrust(distrusted: Mapping[str, str]) -> str:
    """Which values were measured while others used the cores, points of one curve together."""
    rows: dict[str, int] = {}
    for key in distrusted:
        is_point = key.startswith(CURVES)
        name = ".".join(key.split(".")[:3]) if is_point else key
        rows[name] = rows.get(name, 0) + is_point
    texts = [f"{name} ({count} {'point' if count == 1 else 'points'})" if count else name
             for name, count in rows.items()]  # fmt: skip
    count = "1 value is" if len(distrusted) == 1 else f"{len(distrusted)} values are"
    return (f"{count} not to be trusted, since others used the cores meanwhile ({next(iter(distrusted.values()))}): "
            f"{', '.join(texts)}.")  # fmt: skip


def _show_values(values: Sequence[Mapping[str, Any]]) -> None:
    """Prints single values with their units, and the number of points of each curve."""
    single = [value for value in values if not value["key"].startswith(CURVES)]
    curves: dict[str, list[Mapping[str, Any]]] = {}
    for value in values:
        if value["key"].startswith(CURVES):
            curves.setdefault(".".join(value["key"].split(".")[:2]), []).append(value)
    show_table(
        [
            TableColumn("result", [_with_unit(value["key"], value["value"]) for value in single], "number"),
            TableColumn("value", [value["key"] for value in single], "name"),
            TableColumn("how", [value["source"] for value in single], goes_below=16),
        ]
    )
    if curves:
        print()
        show_table(
            [
                TableColumn("curve", list(curves), "name"),
                TableColumn("points", [len(points) for points in curves.values()], "number", inline="{} points"),
                TableColumn(
                    "how", ["; ".join(dict.fromkeys(each["source"] for each in points)) for points in curves.values()]
                ),
            ]
        )


def _with_unit(key: str, number: float) -> str:
    """*number* with the unit that its *key* in the machine file has."""
    from kernels.units import rate_text, seconds_text

    if any(part in key for part in RATES):
        return rate_text(number)
    return seconds_text(number) if key.endswith("_seconds") else f"{number:.3g}"


def benchmark(
    names: Annotated[list[str] | None, typer.Argument(help="Default: all of them.", show_default=False)] = None,
    cluster: options.Cluster = None,
    json: options.Json = False,
) -> int:
    """Measure the overhead and performance of the workbench on this computer, with targets. Takes minutes."""
    from cluster.launch.lifetime import attach
    from workbench.cli import benchmark as benchmarks

    with ExitStack() as stack:
        ranks = stack.enter_context(attach(cluster)) if cluster is not None else None
        answer = benchmarks.benchmark(names or None, ranks)
    rows, summary = answer["rows"], answer["summary"]
    status = exit_status.FAILED if summary["failed"] else exit_status.DONE
    status = exit_status.STOPPED if summary["stopped"] else status
    if json:
        show_rows(rows, summary)
        return status
    show_table([
        TableColumn("result", [_value(row["value"], row["unit"]) for row in rows], "number"),
        TableColumn("target", [row["target"] and f"{row['target']} {row['unit']}".rstrip() for row in rows], "number",
               inline="target {}"),
        TableColumn("met", [{True: "yes", False: "no"}.get(row["met"]) for row in rows], "name", inline="met: {}"),
        TableColumn("of", [row["n"] for row in rows], "number", goes_below=33),
        TableColumn("benchmark", [row["name"] for row in rows]),
        TableColumn("how", [row["how"] for row in rows], goes_below=32),
    ])  # fmt: skip
    say(f"{summary['met']} of {summary['targets']} targets met; {summary['note']}")
    return status


def _value(value: float | None, unit: str) -> str | None:
    from kernels.units import seconds_text

    if value is None:
        return None
    return seconds_text(value) if unit == "s" else f"{value:.3g} {'' if unit == 'ratio' else unit}".strip()
