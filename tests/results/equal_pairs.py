"""Real A-A blocks: schedules that CPU ranks timed twice in one block, so that every difference is a false alarm.

`python -m tests.results.equal_pairs` measures them here and replaces RECORD, in about three minutes. Others may use the
computer meanwhile: their disturbances are what a verdict must not take for a difference. The record says the load.
"""

from __future__ import annotations

import json
import os
import platform
import random
import sys
import threading
from dataclasses import replace
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

from cluster.client import Cluster
from cluster.hosts import cpu_model, usable_cores
from cluster.launch import local
from kernels.fabric import parse
from kernels.operators import problem
from kernels.outcome import Measurement
from kernels.schedule import Schedule
from kernels.schemes import schedule
from kernels.trial import Trial, protocol
from workbench import machines
from workbench.experiment.links import known_link
from workbench.experiment.sources import FromCluster
from workbench.results.metrics import rounds_of

RECORD = Path(__file__).parents[2] / "data" / "checks" / "equal_pairs.json"
SEED, BLOCKS, WORLD = 25, 100, 2
SCHEMES: tuple[tuple[str, dict[str, int]], ...] = (
    ("sequential", {}), ("decomposed", {"pieces": 2}), ("decomposed", {"pieces": 8}), ("fused", {}),
)  # fmt: skip
SIZES = {"m": (256, 512, 1024), "n": (256, 512), "k": (128, 256, 512)}
OPERATORS = ("gemm_all_to_all", "all_gather_gemm", "gemm_reduce_scatter", "gemm_all_reduce")
AGAIN = " again"
"""The end of the machine's name in the second timing: a trial with another key, of the same work."""


def drawn(count: int = BLOCKS, seed: int = SEED) -> list[list[Trial]]:
    """*count* blocks; each schedule is in its block twice, in a drawn order."""
    draw, blocks = random.Random(seed), []
    place, link = machines.machine(machines.LAPTOP), parse("emulated:wire_to_compute=1")
    timing = protocol("default")
    for _ in range(count):
        shape = {name: draw.choice(sizes) for name, sizes in SIZES.items()}
        asked = problem(draw.choice(OPERATORS), shape, world=WORLD)
        fabric = known_link(link, asked, place, None, None)
        several: list[Schedule] = [schedule(asked, name, axes, place, fabric) for name, axes in draw.sample(SCHEMES, 3)]
        once = [Trial(problem=asked, schedule=each, backend="cpu", machine=place.name, fabric=fabric, protocol=timing)
                for each in several]  # fmt: skip
        block = [*once, *(replace(each, machine=place.name + AGAIN) for each in once)]
        draw.shuffle(block)
        blocks.append(block)
    return blocks


def pairs_of(measured: list[Measurement]) -> list[dict[str, Any]]:
    """The pairs of one block with the seconds of their rounds; six digits are more than a clock tells."""
    rounds = {each.trial.key: rounds_of(each.samples) for each in measured}
    pairs = []
    for each in measured:
        other = rounds.get(replace(each.trial, machine=each.trial.machine + AGAIN).key)
        if other is not None:
            known = [[float(f"{seconds:.6g}") for seconds in some or ()] for some in (rounds[each.trial.key], other)]
            pairs.append({"scheme": each.trial.schedule.scheme, "operator": each.trial.problem.operator,
                          "rounds_s": known})  # fmt: skip
    return pairs


def main(path: Path = RECORD) -> None:
    """Measures all blocks and replaces the record."""
    pairs, load = [], [os.getloadavg()[0]]
    with local(WORLD, gpus=0, published=False) as record, Cluster.connect(record.address) as cluster:
        answer = FromCluster(cluster)
        for block in drawn():
            answers = answer.answer(block, threading.Event())
            pairs += pairs_of([each for each in answers if isinstance(each, Measurement)])
            load.append(os.getloadavg()[0])
    facts = {
        "what": "the rounds of schedules that were timed twice in one block, in turns, on CPU ranks",
        "command": "python -m tests.results.equal_pairs", "date": date.today().isoformat(),
        "machine": f"{cpu_model()}, {usable_cores()} cores; load {min(load):.1f} to {max(load):.1f}",
        "versions": {"python": platform.python_version(), "torch": version("torch"), "numpy": version("numpy")},
    }  # fmt: skip
    path.write_text(json.dumps({**facts, "pairs": pairs}) + "\n")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
