"""The same schedules have the same Plans, trial keys and estimates as at a recorded commit, wherever source files move.

`python -m tests.simulator.test_plan_digest > data/checks/plan_digest.json` records them anew.
"""

import json
import platform
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime
from hashlib import sha256
from itertools import chain, product
from math import fsum
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from kernels.fabric import parse, usual
from kernels.operators import OPERATORS, operator, problem
from kernels.plan import Launches, Plan, Tiles
from kernels.problem import Problem
from kernels.schedule import Axis, Refusal, Value
from kernels.schemes import SCHEMES, axes, expand
from kernels.trial import PARTS, PROTOCOLS, Trial, is_steady
from tests.kernels.covering import legal
from workbench.machines import shipped_machine
from workbench.results.provenance import provenance
from workbench.simulator.predict import predict

RECORD = Path(__file__).parents[2] / "data" / "checks" / "plan_digest.json"
MACHINES, WORLDS = ("h200_nvl2", "h200_nvl4", "laptop_cpu"), (2, 4)
"""Two GPUs refuse four ranks, so that the record has refusals, too."""
PAIRS = list(product(sorted(OPERATORS), sorted(SCHEMES)))
CPU_LINKS = ("emulated:bandwidth_bytes_per_second=2e9", "emulated:wire_to_compute=1", "emulated:hosts=2",
             "shared_memory")  # fmt: skip
SEED, DRAWN = 20261123, 300
SIZES = {"m": (512, 16, 40), "n": (512, 16, 40), "k": (512, 16, 40), "tokens": (2, 1, 8), "tables_per_rank": (4, 1, 6),
         "rows": (1000, 100, 10), "dim": (64, 8, 16), "batch": (512, 16, 20), "pooling": (4, 1, 8)}  # fmt: skip
"""Of the default schedules; a drawn size is one of the first so many multiples (third number) of a unit (second),
or 8 times that."""
PART_WORDS = {"schedules": "The number of legal schedules", "refusals": "The number of refusals",
              "plans": "The digest of the Plans", "keys": "The digest of the trial keys",
              "estimates": "The digest of the estimates", "sum_s": "The sum of the estimates"}  # fmt: skip
Rows = Mapping[str, Mapping[str, Any]]
"""By group (default or drawn, operator, scheme) a value for each of PART_WORDS."""


def default_trials() -> Iterator[tuple[str, Trial | None]]:
    """Group and trial of the schedules whose every axis has its default; None for a refusal."""
    for (name, scheme), machine, world in product(PAIRS, MACHINES, WORLDS):
        sizes = {key.name: SIZES[key.name][0] for key in operator(name).keys if not key.words}
        on_cpus = shipped_machine(machine).backend == "cpu"
        dtype = "float32" if on_cpus or operator(name).work == "gather" else "bfloat16"
        link = CPU_LINKS[0] if on_cpus else usual(shipped_machine(machine), world)
        of = problem(name, sizes, dtype=dtype, world=world)
        yield f"default {name} {scheme}", trial_of(of, scheme, machine, link, None)


def drawn_trials() -> Iterator[tuple[str, Trial | None]]:
    """The same of DRAWN legal schedules, each by a seed of its own, so that a change of one moves no other."""
    count = number = 0
    while count < DRAWN:
        random, (name, scheme) = Random(SEED + number), PAIRS[number % len(PAIRS)]
        machine, world = random.choice(MACHINES), random.choice(WORLDS)
        on_cpus = shipped_machine(machine).backend == "cpu"
        sizes = {key.name: random.choice(key.words) if key.words else drawn_size(key.name, random)
                 for key in operator(name).keys}  # fmt: skip
        dtype = random.choice(("float32",) if on_cpus else ("bfloat16", "float32"))
        link = random.choice(CPU_LINKS) if on_cpus else usual(shipped_machine(machine), world)
        of = problem(name, sizes, dtype=dtype, world=world)
        trial = trial_of(of, scheme, machine, link, random)
        yield f"drawn {name} {scheme}", trial
        count, number = count + (trial is not None), number + 1


def trial_of(of: Problem, scheme: str, machine: str, link: str, random: Random | None) -> Trial | None:
    """With the default of each axis or, given *random*, with those of the drawn values that go together."""
    place, fabric = shipped_machine(machine), parse(link)
    complete = legal(of, scheme, place, fabric)
    if (chosen := complete({})) is None:
        return None
    trial = Trial(problem=of, schedule=chosen, backend=place.backend, machine=machine, fabric=fabric,
                  protocol=PROTOCOLS["default"])  # fmt: skip
    if random is None:
        return trial
    values: dict[str, Value] = {}
    offered = {axis.name: axis for axis in axes(of, scheme, place, fabric)}
    for axis in sorted(sorted(offered), key=lambda _: random.random()):  # what comes first excludes some of the rest
        more = {**values, axis: drawn_value(offered[axis], random)}
        if (richer := complete(more)) is not None:
            chosen, values = richer, more
    protocol = PROTOCOLS[random.choice(sorted(name for name in PROTOCOLS if not is_steady(name)))]  # it has no estimate
    return replace(trial, schedule=chosen, protocol=protocol, part=random.choice(("whole", *PARTS)))


def drawn_size(key: str, random: Random) -> int:
    _, unit, most = SIZES[key]
    return unit * random.randrange(1, most + 1) * (random.choice((1, 1, 8)) if key in ("m", "n", "k") else 1)


def drawn_value(axis: Axis, random: Random) -> Value:
    """One that is offered or, of an axis that takes more, at times another number or tile."""
    if not axis.open or random.randrange(3):
        return random.choice(sorted(axis.values, key=str))
    if isinstance(axis.default, int):
        return random.randrange(1, 24)
    return "x".join(str(8 * random.randrange(2, 17)) for _ in range(3))


def columns_of(table: Plan | Tiles | Launches) -> Iterator[bytes]:
    """Name, dtype, shape and bytes of every column, those of tiles and launches included."""
    for column in fields(table):
        match getattr(table, column.name):
            case np.ndarray() as array:
                yield f"{column.name} {array.dtype.str} {array.shape} ".encode() + array.tobytes()
            case Launches() as launches:
                yield from columns_of(launches)
            case (Tiles(), *_) as tiles:
                yield from chain.from_iterable(map(columns_of, tiles))
            case tuple() as names:
                yield f"{column.name} {names} ".encode()
            case described:  # the problem and the schedule
                yield json.dumps(described.to_json()).encode()


def estimate_text(trial: Trial) -> tuple[str, float]:
    """Its time and interval to nine digits, as another CPU may change the last bit; a refusal has no sentence here."""
    try:
        estimate = predict(trial, shipped_machine(trial.machine), with_spans=False)
    except Refusal:
        return "refused", 0.0
    return " ".join(f"{each:.9g}" for each in (estimate.time_s, estimate.low_s, estimate.high_s)), estimate.time_s


def row(trials: Sequence[Trial | None]) -> dict[str, Any]:
    """What the record has of one group, by part."""
    accepted = [trial for trial in trials if trial is not None]
    plans = [expand(trial.problem, trial.schedule) for trial in accepted]
    estimates = [estimate_text(trial) for trial in accepted]
    refusals = len(trials) - len(accepted) + sum(text == "refused" for text, _ in estimates)
    contents = (b"".join(b"".join([*columns_of(plan), plan.turn.tobytes()]) for plan in plans),
                "\n".join(trial.key for trial in accepted).encode(),
                "\n".join(text for text, _ in estimates).encode())  # fmt: skip
    digests = (sha256(content).hexdigest()[:16] for content in contents)
    values = (len(accepted), refusals, *digests, f"{fsum(time for _, time in estimates):.9g}")
    return dict(zip(PART_WORDS, values, strict=True))


def digest() -> dict[str, dict[str, Any]]:
    groups: defaultdict[str, list[Trial | None]] = defaultdict(list)
    for group, trial in chain(default_trials(), drawn_trials()):
        groups[group].append(trial)
    return {group: row(trials) for group, trials in groups.items()}


def differences(before: Rows, after: Rows) -> list[str]:
    """One sentence for each part of each group that changed."""
    return [f"{words} of {group} changed from {before.get(group, {}).get(part)} to {after.get(group, {}).get(part)}."
            for group in sorted({*before, *after}) for part, words in PART_WORDS.items()
            if before.get(group, {}).get(part) != after.get(group, {}).get(part)]  # fmt: skip


@pytest.mark.slow
def test_plans_keys_and_estimates_are_those_of_the_record() -> None:
    record = json.loads(RECORD.read_text())
    changes = differences(record["groups"], digest())
    assert not changes, f"since commit {record['commit']}:\n" + "\n".join(changes)


def record_text(groups: Rows) -> str:
    """As it is printed and kept, one line for each group."""
    facts = {"format": 1, "command": "python -m tests.simulator.test_plan_digest", "date": f"{datetime.now(UTC):%F}",
             "commit": provenance()["git_commit"], "python": platform.python_version(), "numpy": np.__version__,
             "seed": SEED, "schedules": sum(each["schedules"] for each in groups.values())}  # fmt: skip
    lines = ",\n".join(f"  {json.dumps(group)}: {json.dumps(each)}" for group, each in groups.items())
    return f'{json.dumps(facts, indent=1).removesuffix("}").rstrip()},\n "groups": {{\n{lines}\n }}\n}}'


if __name__ == "__main__":
    print(record_text(digest()))
