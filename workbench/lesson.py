"""One problem on one machine, simulated in one call, for the teaching notebooks.

A lesson plays plans on a machine file as shipped, so that everybody reads the same numbers.
"""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kernels import files, schemes
from kernels.backends.capabilities import MeasuringRanks
from kernels.fabric import Fabric, parse, usual
from kernels.machine import Machine
from kernels.outcome import Estimate, Failure, Measurement
from kernels.plan import Kind, Pool
from kernels.problem import Problem
from kernels.schedule import Value
from kernels.schemes import axis_rules, expand, schedule
from kernels.trial import PROTOCOLS, Trial
from kernels.units import bytes_text
from workbench import machines, resources
from workbench.experiment.experiment import Experiment
from workbench.experiment.recommend import fastest
from workbench.experiment.sources import FromCluster, predictions
from workbench.experiment.space import EVERY, Choice, Space
from workbench.machines import presets
from workbench.results import metrics, recordings
from workbench.simulator.predict import predict, resolved

if TYPE_CHECKING:
    import pandas as pd

RECORDED_ROWS = files.TextKind("recorded rows", "recorded rows", "a JSON file")
Row = Mapping[str, Any]
Values = Value | Sequence[Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """A problem on a machine over a fabric whose bandwidth is known."""

    problem: Problem
    machine: Machine
    fabric: Fabric

    def trial(self, scheme: str, **axes: Value) -> Trial:
        """The trial of one schedule; other axes keep their default. Refusal where it is illegal."""
        chosen = schedule(self.problem, scheme, axes, self.machine, self.fabric)
        return Trial(problem=self.problem, schedule=chosen, backend=self.machine.backend, machine=self.machine.name,
                     fabric=self.fabric, protocol=PROTOCOLS["default"])  # fmt: skip

    def estimate(self, scheme: str, **axes: Value) -> Estimate:
        """The estimated time and, in `spans`, what every rank does when."""
        return predict(self.trial(scheme, **axes), self.machine)

    def alone(self, part: str, scheme: str, **axes: Value) -> Estimate:
        """The estimate of its `compute` alone, or of its `communication` alone."""
        return predict(self.trial(scheme, **axes).of_part(part), self.machine)

    def rows(self, scheme: str, **axes: Values) -> list[dict[str, Any]]:
        """Estimates over all combinations of the values of *axes*, with floor and sequential time.

        The charts of workbench.charts draw these rows, and `table` prints them.
        """
        return predictions(self._experiment(_choice(scheme, axes)), self.machine)

    def fastest(self, scheme: str, **axes: Values) -> Estimate:
        """The lowest estimate of all combinations; `all` means every value of an axis.

        Axes that the kernel of this problem ignores are left out.
        """
        known = {axis.name for axis in schemes.axes(self.problem, scheme, self.machine, self.fabric)}
        ignored = {name for name, values in axes.items() if values == EVERY and name in axis_rules.FUSED} - known
        space = Space((_choice(scheme, {name: values for name, values in axes.items() if name not in ignored}),))
        best, _ = fastest(self.problem, MeasuringRanks(self.machine, self.fabric), space, PROTOCOLS["default"], 1,
                          measured=False)  # fmt: skip
        return best[0]

    def _experiment(self, choice: Choice) -> Experiment:
        return Experiment(problems=(self.problem,), space=Space((choice,)), backend=self.machine.backend,
                          machine=self.machine.name, fabric=self.fabric)  # fmt: skip

    def recorded(self, *schemes: str) -> list[dict[str, Any]]:
        """Rows of the whole trials of this problem in the shipped recordings, on whatever computer they were made."""
        measured = [entry.measurement for entries in recordings.shipped().values() for entry in entries]
        of_problem = [each for each in measured if each.trial.problem == self.problem]
        rows = metrics.fill([metrics.row_of(each, None, self.machine) for each in of_problem])
        return [row for row in rows if row["part"] == "whole" and row["scheme"] in schemes]

    def measured(self, *trials: Trial) -> list[Measurement]:
        """Measurements of *trials*, interleaved on CPU ranks of this computer, a few samples each; nothing is stored.

        The ranks are started and ended for it, which takes some seconds. ValueError where a trial fails.
        """
        from cluster import launch
        from cluster.client import Cluster

        timed = [replace(trial, protocol=PROTOCOLS["quick"]) for trial in trials]
        with launch.local(self.problem.world, gpus=0, published=False) as ranks, Cluster.connect(ranks.address) as home:
            answers = list(FromCluster(home).answer(timed, threading.Event()))
        if failed := [each for each in answers if isinstance(each, Failure)]:
            raise ValueError(failed[0].message)
        return [each for each in answers if isinstance(each, Measurement)]

    def linked(self, fabric: str) -> Lesson:
        """This lesson over another fabric, written like `emulated:wire_to_compute=0.5`."""
        return replace(self, fabric=resolved(parse(fabric), self.problem, self.machine))

    def sizes(self) -> pd.DataFrame:
        """The shapes of operands and result, on one rank and over all ranks."""
        import pandas as pd

        sizes = presets.sizes(self.problem)
        both = zip(sizes.local.items(), sizes.whole.values(), strict=True)
        shapes = {name: (_times(of_one), _times(of_all)) for (name, of_one), of_all in both}
        return pd.DataFrame.from_dict(shapes, orient="index", columns=["one rank", f"all {self.problem.world} ranks"])

    def steps(self, scheme: str, **axes: Value) -> pd.DataFrame:
        """The Plan: every step of every rank, what it occupies and what it waits for."""
        import pandas as pd

        plan = expand(self.problem, self.trial(scheme, **axes).schedule)
        return pd.DataFrame([{
            "step": plan.address(step), "kind": Kind(int(plan.kind[step])).word,
            "pool": Pool(int(plan.pool[step])).word,
            "tiles": int(plan.tile_stop[step] - plan.tile_start[step]), "bytes": bytes_text(int(plan.num_bytes[step])),
            "waits for": ", ".join(plan.address(int(other)) for other in plan.waits_for(step)) or "nothing",
        } for step in range(len(plan))]).set_index("step")  # fmt: skip


def _choice(scheme: str, axes: Mapping[str, Values]) -> Choice:
    listed = {name: (value,) if isinstance(value, int | str) else tuple(value) for name, value in axes.items()}
    return Choice(scheme, tuple(listed.items()))


def lesson(operator: str, preset: str = "laptop_ladder", *, world: int | None = None, machine: str = machines.LAPTOP,
           fabric: str | None = None) -> Lesson:  # fmt: skip
    """The problem of *operator* in *preset* on a machine as shipped, over the preset's or the machine's link."""
    shipped = machines.shipped_machine(machine)
    (problem,) = presets.preset(preset, operator, world=world)
    of_preset = presets.preset_named(preset).fabric if shipped.backend == "cpu" else None
    link = parse(fabric or of_preset or usual(shipped, problem.world))
    return Lesson(problem=problem, machine=shipped, fabric=resolved(link, problem, shipped))


def table(rows: Sequence[Row], *axes: str) -> pd.DataFrame:
    """A table with one line per row: scheme, values of *axes*, time, and the hidden share of communication."""
    import pandas as pd

    return pd.DataFrame([_line(row, axes) for row in rows]).set_index(["scheme", *axes])


def beside(simulated: Sequence[Row], recorded: Sequence[Row], axis: str) -> pd.DataFrame:
    """A table with one line per recorded value of *axis*: both times, each also relative to its sequential time."""
    import pandas as pd

    estimates = {row["axes"][axis]: row for row in simulated}
    pairs = [(estimates[row["axes"][axis]], row) for row in recorded if row["axes"].get(axis) in estimates]
    return pd.DataFrame([{
        axis: known["axes"][axis],
        "simulated (ms)": round(estimate["time_s"] * 1e3, 1),
        "simulated, of sequential": round(metrics.time_ratio(estimate["time_s"], estimate["sequential_s"]), 2),
        "recorded (ms)": round(known["time_s"] * 1e3, 1),
        "recorded, of sequential": round(metrics.time_ratio(known["time_s"], known["sequential_s"]), 2),
        "middle 80 % (ms)": f"{known['low_s'] * 1e3:.0f} to {known['high_s'] * 1e3:.0f}",
        "skew (ms)": round(known["skew_s"] * 1e3, 1),
    } for estimate, known in pairs]).set_index(axis)  # fmt: skip


def _line(row: Row, axes: Sequence[str]) -> dict[str, Any]:
    time_s, sequential_s, compute_s, comm_s = (row[key] for key in ("time_s", "sequential_s", "compute_s", "comm_s"))
    hidden = metrics.overlap_efficiency(time_s, row["plain_s"], compute_s, comm_s)
    return {
        "scheme": row["scheme"], **{axis: row["axes"].get(axis, "") for axis in axes},
        "time (ms)": round(time_s * 1e3, 2), "floor (ms)": round(row["floor_s"] * 1e3, 2),
        "of sequential": round(metrics.time_ratio(time_s, sequential_s), 2),
        "exposed (ms)": round(metrics.exposed_communication(time_s, compute_s) * 1e3, 2),
        "hidden share": None if hidden is None else round(hidden, 2),
    }  # fmt: skip


def _times(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape))


# Rows of a lesson that were recorded, for computers that cannot run it.


def recorded(name: str) -> dict[str, Any]:
    """The recorded rows in `data/probes/NAME.json`, with their provenance."""
    return dict(files.json_value(resources.data_directory() / "probes" / f"{name}.json", RECORDED_ROWS))


def recorded_without_triton(name: str) -> dict[str, Any] | None:
    """None where Triton is installed; otherwise the rows of `recorded`, after what installs it was printed."""
    if importlib.util.find_spec("triton") is not None:
        return None
    rows = recorded(name)
    made = rows["provenance"]
    print(
        "Triton is not installed, so that no kernel runs here. On Linux (x86_64) this installs it: "
        "pip install 'overlap-workbench[gpu]', or in a checkout pip install -e '.[gpu]'; then restart the kernel. "
        f"Until then the cells below show rows that were recorded on {made['date'][:10]} with Triton "
        f"{made['versions']['triton']}, interpreted."
    )
    return rows
