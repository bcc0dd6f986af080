"""Calibrating a machine of GPUs: its probes run on this host or were run elsewhere; the file is written from them."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster import gpus
from kernels import texts
from kernels.failed import Failed
from kernels.machine import Machine
from kernels.machine_file import toml
from kernels.outcome import Measurement
from kernels.schedule import Refusal
from workbench import machines, recordings
from workbench.calibration import own, write
from workbench.simulator.calibrate_carried import carried
from workbench.simulator.calibrate_gpus import checked, fitted, ratios
from workbench.simulator.calibrate_loads import with_loads
from workbench.simulator.calibrate_nccl import with_tuned
from workbench.simulator.held_out import computation, held_out
from workbench.targets import Target

PROBES = "kernels.backends.triton.probes"
KIND = texts.TextKind("file", "raw results of probes", f"what `python3 -m {PROBES}` wrote", most_bytes=2**28)
SWEEP = texts.TextKind("file", "a sweep of NCCL's settings", "what `python -m tests.gpu.nccl_sweep` wrote")
SECONDS, QUICK_SECONDS = 100.0, 30.0
BEYOND_SECONDS = 90.0
"""For what the probes' processes need before they begin and after time is up."""


def probe(machine: Machine, seconds: float, raw: Path) -> None:
    """Runs the probes on this host's GPUs for about *seconds* into file *raw*, their table on standard error.

    Refusal where this host has too few GPUs: it names the command for the host that has them.
    """
    count = len(gpus.here())
    if count < machine.max_world:
        raise Refusal(
            f"machine {machine.name} cannot be calibrated here. It has {machine.max_world} GPUs, but this host has "
            f"{count}: {count} < {machine.max_world}. Accepted: on the host that has them, `python3 -m {PROBES} "
            f"data/machines/{machine.name}.toml RAW.json {SECONDS:.0f}`, then here `workbench calibrate --probes "
            "RAW.json`."
        )
    with tempfile.TemporaryDirectory() as folder:
        expected = Path(folder) / f"{machine.name}.toml"
        expected.write_text(toml(machine))
        command = [sys.executable, "-m", PROBES, str(expected), str(raw), str(seconds), str(machine.max_world)]
        try:
            subprocess.run(command, stdout=sys.stderr, timeout=seconds + BEYOND_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            raise Failed(
                f"The probes of {machine.name} should take {seconds:.0f} s and still ran {BEYOND_SECONDS:.0f} s "
                f"later. Accepted: GPUs that nothing else uses. What was measured is in {raw}."
            ) from None


def calibrate_here(
    name: str, seconds: float, against: Iterable[str] = (), to: Target | None = None
) -> tuple[Machine, Path]:
    """Probes machine *name* on this host's GPUs, and writes it fitted to what they tell."""
    place = machines.shipped_machine(name)
    raw = machines.calibrated_path(place.name).with_name(f"{place.name}_raw.json")
    raw.parent.mkdir(parents=True, exist_ok=True)
    probe(place, seconds, raw)
    return keep(fit(raw, against), to)


def fit(raw: Path, against: Iterable[str] = (), sweep: Path | None = None) -> Machine:
    """The machine that *raw* is of, fitted to it; its spread from those recordings *against* that are of it.

    What these tell of loads, which no probe times, is fitted to a part of them.

    *sweep*: what NCCL's settings took on the same machine, by which `library_tuned` is estimated.
    """
    content = _content(raw)
    place = machines.shipped_machine(str(content.get("machine")))
    raws = _Raw(content, place, None if sweep is None else _rows(sweep), measured(place.name, against))
    return checked(raws.machine(), list(raws.apart()), "each by a fit without its computation")


@dataclass(frozen=True, slots=True)
class _Raw:
    """What a machine is fitted to."""

    content: dict[str, Any]
    place: Machine
    sweep: Sequence[Mapping[str, Any]] | None
    recorded: Sequence[Measurement]

    def machine(self, but: str = "") -> Machine:
        """Fitted to all of it, or to all but computation *but*."""
        machine = fitted(self.content, self.place, but)
        if self.sweep is not None:
            machine = with_tuned(machine, self.sweep)
        return with_loads(machine, [one for one in self.recorded if computation(one.trial.problem) != but])

    def apart(self) -> Iterator[float]:
        """Measured over estimated times, each by a fit that knows nothing of its computation.

        So an interval is as wide as for problems that are new: times are nearer to the estimates of their own fit.
        """
        for name in sorted({computation(one.trial.problem) for one in self.recorded}):
            its_own = [one for one in self.recorded if computation(one.trial.problem) == name]
            yield from ratios(self.machine(name), its_own)


def carry(source: str, onto: str, against: Iterable[str] = (), *, links: bool = False) -> Machine:
    """Machine *onto* with each device of machine *source*, which has fewer of the same GPUs; *links*: its link, too."""
    machine = carried(machines.machine(source), machines.shipped_machine(onto), puts=links)
    return checked(machine, list(ratios(machine, measured(onto, against))), f"by devices of {source}")


def keep(machine: Machine, to: Target | None) -> tuple[Machine, Path]:
    """Writes *machine* to file *to*, or beside the runs, from where it is preferred to the shipped one."""
    target = to or own(machine.name)
    return write(toml(machine), target), target.path


def measured(machine: str, names: Iterable[str]) -> list[Measurement]:
    """What recordings *names* tell of *machine* to fit: of calls in a row, as estimates are; of nothing held out."""
    recorded = [one.measurement for name in names for one in recordings.recordings(name)]
    return [one for one in recorded if one.trial.machine == machine and not one.trial.is_one_call
            and not held_out(one.trial.problem)]  # fmt: skip


def _rows(sweep: Path) -> list[dict[str, Any]]:
    content = texts.text(sweep, SWEEP)
    try:
        rows = [texts.parsed(line) for line in content.splitlines() if line.strip()]
    except ValueError as error:
        raise SWEEP.unreadable(sweep, error) from None
    if not all(isinstance(row, dict) for row in rows):
        raise SWEEP.unreadable(sweep, "a line is no object")
    return rows


def _content(raw: Path) -> dict[str, Any]:
    content = texts.json_value(raw, KIND)
    if isinstance(content, dict) and isinstance(content.get("rows"), list):
        return content
    raise KIND.unreadable(raw, "it has no rows")
