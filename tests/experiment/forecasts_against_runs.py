"""Twenty drawn questions on CPU ranks: what the forecast said of each run, and what happened.

`python -m tests.experiment.forecasts_against_runs` measures them here, prints the table and replaces RECORD. It takes
about four minutes, and its times mean something only while nobody else uses the computer.
"""

import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from cluster.client import Cluster
from cluster.hosts import cpu_model, usable_cores
from cluster.launch import local
from workbench import machines
from workbench.experiment import question
from workbench.experiment.experiment import Experiment
from workbench.experiment.forecast import Forecast, forecast
from workbench.experiment.run import Run
from workbench.experiment.sources import FromCluster
from workbench.experiment.time_left import LEAST_SECONDS
from workbench.results.store import Store

RECORD = Path(__file__).parents[2] / "data" / "checks" / "forecasts.json"
SEED, COUNT, MOST_WORLD = 25, 20, 4
LOOK_S = 0.1
"""The time left is read this often: twice as often as a bar is drawn."""

# What is asked: spaces as a person writes them.

SIZES = {"m": (1536, 2048, 3072, 4096), "n": (384, 768, 1024), "k": (384, 512, 1536), "tokens": (1, 4),
         "tables_per_rank": (2, 4), "rows": (20_000, 100_000), "dim": (32, 64), "batch": (512, 1024),
         "pooling": (8, 16)}  # fmt: skip
KEYS = {"gemv_all_reduce": ("n", "k", "tokens"),
        "embedding_all_to_all": ("tables_per_rank", "rows", "dim", "batch", "pooling")}  # fmt: skip
OPERATORS = ("gemm_all_to_all", "all_gather_gemm", "all_to_all_gemm", "gemm_reduce_scatter", "gemm_all_reduce", *KEYS)
SCHEMES: Sequence[Mapping[str, Mapping[str, object]]] = (
    {"sequential": {}, "decomposed": {"pieces": [1, 2, 4, 8]}},
    {"fused": {"slice_tiles": [1, 2, 4]}},
    {"decomposed": {"pieces": [1, 2, 4, 8, 16]}, "fused": {}},
    {"sequential": {}, "concurrent": {"micro_batches": [2, 4]}, "fused": {}},
    {"decomposed": {"pieces": "all"}, "fused": {"tile_order": "all"}},
)
LINKS = ("emulated:wire_to_compute=1", "emulated:wire_to_compute=0.5", "shared_memory")


def space(draw: random.Random) -> str:
    """One drawn space as the text of its TOML file."""
    operator = draw.choice(OPERATORS)
    fields = [f'operator = "{operator}"', f"world = [{draw.randint(1, MOST_WORLD)}]", 'protocol = "quick"',
              f'fabric = "{draw.choice(LINKS)}"', "[shape]"]  # fmt: skip
    fields += [f"{key} = {draw.choice(SIZES[key])}" for key in KEYS.get(operator, ("m", "n", "k"))]
    for scheme, axes in draw.choice(SCHEMES).items():
        fields += [f"[scheme.{scheme}]", *(f"{name} = {json.dumps(values)}" for name, values in axes.items())]
    return "\n".join(fields)


def drawn(count: int = COUNT, seed: int = SEED) -> list[tuple[str, Experiment]]:
    """*count* spaces that can be measured, with their experiments."""
    draw, spaces = random.Random(seed), []
    while len(spaces) < count:
        text = space(draw)
        try:
            experiment = loaded(text)
            place = machines.machine(experiment.machine)
            legal = [experiment.points(each, place, measured=True).schedules for each in experiment.problems]
        except ValueError:  # an axis that the operator does not have
            continue
        if all(legal):
            spaces.append((text, experiment))
    return spaces


def loaded(text: str) -> Experiment:
    """The experiment of a space's *text*."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "drawn.toml"
        path.write_text(text)
        return question.load(path)


# What was said, and what happened.


@dataclass(frozen=True)
class Row:
    """One question."""

    question: str
    world: int
    schedules: int
    said_s: float
    took_s: float
    blocks_said: int
    blocks_cut: int
    growth: float
    """The largest factor by which the shown time left grew between any two looks."""
    failed: int = 0
    timed_again: int = 0
    """Blocks that others disturbed, which nobody can foresee."""

    @property
    def ratio(self) -> float:
        """What was said over what it took."""
        return self.said_s / self.took_s


def growth(shown_s: Sequence[float], least_s: float = LEAST_SECONDS) -> float:
    """The largest ratio of a later to an earlier of *shown_s*; less than *least_s* counts as that."""
    largest, lowest_s = 1.0, float("inf")
    for seconds in shown_s:
        lowest_s = min(lowest_s, max(seconds, least_s))
        largest = max(largest, seconds / lowest_s)
    return largest


def happened(text: str, experiment: Experiment, cluster: Cluster) -> Row:
    """Measures *experiment* on *cluster* as a command does."""
    place = machines.machine(experiment.machine)
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "store.sqlite") as store:
        of_cluster = cluster.ranks
        said = forecast(experiment, place, store, ranks=of_cluster)
        began = time.monotonic()
        run = Run(experiment, store, FromCluster(cluster), place)
        shown = watched(run)
        took_s = time.monotonic() - began
        return row(text, experiment, said, (took_s, run, shown))


def row(text: str, experiment: Experiment, said: Forecast, happening: tuple[float, Run, Sequence[float]]) -> Row:
    """The row of a run that is over."""
    took_s, run, shown = happening
    assert said.seconds is not None
    assert run.progress.left is not None
    return Row(" ".join(text.split("\n")), experiment.problems[0].world, said.count, round(said.seconds, 2),
               round(took_s, 2), said.blocks, run.progress.left.block, round(growth(shown), 2),
               run.progress.failed, run.progress.timed_again)  # fmt: skip


def watched(run: Run) -> list[float]:
    """Runs *run* to its end; returns the time left as it was shown."""
    ended, shown = threading.Event(), []

    def look() -> None:
        while not ended.wait(LOOK_S):
            if run.progress.left is not None:
                shown.append(run.progress.left.seconds())

    thread = threading.Thread(target=look)
    thread.start()
    try:
        for _ in run:
            pass
    finally:
        ended.set()
        thread.join()
    return shown


# The table.


@dataclass(frozen=True)
class Summary:
    """What the rows say together."""

    median_off: float
    """The median of the larger of said / took and took / said."""
    least: float
    """The smallest of said / took."""
    most: float
    growth: float
    other_blocks: int
    """Number of questions that were cut into more or fewer blocks than was said, without those timed again."""


def summary(rows: Sequence[Row]) -> Summary:
    """The numbers of *rows* that have bounds."""
    ratios = [each.ratio for each in rows]
    return Summary(median(max(ratio, 1 / ratio) for ratio in ratios), min(ratios), max(ratios),
                   max(each.growth for each in rows),
                   sum(each.blocks_said != each.blocks_cut - each.timed_again for each in rows))  # fmt: skip


def recorded(path: Path = RECORD) -> list[Row]:
    """The rows of the record."""
    return [Row(**each) for each in json.loads(path.read_text())["rows"]]


def facts(
    what: str = "the forecast of each of 20 drawn questions, and the run that followed, on warm CPU ranks",
    module: str = "tests.experiment.forecasts_against_runs",
) -> dict[str, Any]:
    """*what* a record has, the *module* that measures it, and where and when it does."""
    commit = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=False,
                            cwd=RECORD.parent)  # fmt: skip
    return {
        "what": what, "command": f"python -m {module}",
        "date": date.today().isoformat(), "commit": commit.stdout.strip(),
        "machine": f"{cpu_model()}, {usable_cores()} cores; load before: {os.getloadavg()[0]:.1f}",
        "calibrated": machines.machine(machines.LAPTOP).calibrated,
        "versions": {"python": platform.python_version(), "torch": version("torch"), "numpy": version("numpy")},
    }  # fmt: skip


def table(rows: Sequence[Row]) -> str:
    """*rows* as lines of text."""
    head = " said s  took s  ratio  blocks  growth  ranks  question"
    return "\n".join([head, *(
        f"{each.said_s:7.1f} {each.took_s:7.1f} {each.ratio:6.2f} {each.blocks_said:4d}/{each.blocks_cut:<3d}"
        f"{each.growth:6.2f} {each.world:6d}  {each.question[:150]}" for each in rows)])  # fmt: skip


def main(path: Path = RECORD) -> None:
    """Measures all questions and replaces the record."""
    before, rows = facts(), []
    spaces = drawn()
    with local(MOST_WORLD, gpus=0, published=False) as record, Cluster.connect(record.address) as cluster:
        for world in range(1, MOST_WORLD + 1):  # the first gang of a world waits for its ranks to report
            cluster.ranks(world, "cpu")
        for text, experiment in spaces:
            rows.append(happened(text, experiment, cluster))
            print(table(rows[-1:]).split("\n")[1], flush=True)
    written = {**before, **asdict(summary(rows)), "rows": [asdict(each) for each in rows]}
    path.write_text(json.dumps(written, indent=1) + "\n")
    print(f"{table(rows)}\n{summary(rows)}")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
