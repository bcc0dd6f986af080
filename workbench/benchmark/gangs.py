"""What a gang costs beside its work: asked for cold and warm, per trial inside a grant, per sample on its way here."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import cycle, islice

from kernels.events import ToldEvent
from kernels.machine import Machine
from kernels.protocol import Protocol
from kernels.schemes import COMPARED
from kernels.trial import Trial
from workbench.benchmark.rows import Row, Target, quantile, spread, typical
from workbench.benchmark.setting import DEADLINE_S, WORLD, Setting, small

Events = Sequence[ToldEvent]

COLD_GANGS = 5
LISTS = 5
TIMED = Protocol(name="timed", warmups=0, repeats=3)
SAMPLE_S = 0.01


def gangs(setting: Setting) -> Iterator[Row]:
    """The wall time of a list of one trial of next to no work, from asking to its last result."""
    setting.await_ranks()
    trial = small(setting.machine)
    # benches belong to a world, a heap and a deadline: a deadline that nobody asked for yet has none
    cold = [_wall_s(setting, [trial], DEADLINE_S + 1 + number) for number in range(COLD_GANGS)]
    how = "World 2, rank processes up, benches not opened: from asking for a list of one trial to its last result."
    yield typical("gang_cold", cold, "s", how)
    _wall_s(setting, [trial])
    warm = [_wall_s(setting, [trial]) for _ in range(setting.effort.gangs)]
    yield typical("gang_warm", warm, "s", "The same list to a gang whose benches are open, one after the other.",
                  Target(most=0.1))  # fmt: skip


def overhead(setting: Setting) -> Iterator[Row]:
    """Per trial of a list in one grant: its wall time without the timed iterations."""
    trials = different(setting.machine, setting.effort.trials)
    _wall_s(setting, trials)
    seconds = []
    for _ in range(LISTS):
        began = time.perf_counter()
        events = _events(setting, trials)
        seconds.append((time.perf_counter() - began - timed_s(events)) / len(trials))
    how = (
        f"World 2, lists of {len(trials)} real trials of three schemes: wall time minus timed iterations, by the "
        "number of trials. Verification is counted; warm-ups there are none."
    )
    yield typical("overhead_per_trial", seconds, "s", how, Target(most=0.015))


def latency(setting: Setting) -> Iterator[Row]:
    """How old a sample is when it arrives in this process; both ends read one clock, on one host."""
    paced = small(setting.machine, Protocol(name="paced", warmups=0, repeats=setting.effort.samples), SAMPLE_S)
    ages = []
    for event in setting.cluster.stream([paced], world=WORLD, shares_heap=True, deadline_s=DEADLINE_S):
        if event["kind"] == "sample":
            ages.append(time.time() - event["at"])
    how = f"World 2, an iteration each {SAMPLE_S * 1e3:.0f} ms: from its end on its rank until its sample is here."
    yield typical("sample_latency", ages, "s", how)
    yield Row(name="sample_latency_p95", value=quantile(ages, 0.95), unit="s", how=f"{how} 95 of 100 are younger.",
              spread=spread(ages), n=len(ages))  # fmt: skip


def timed_s(events: Events) -> float:
    """What all timed iterations took, each as long as its slowest rank."""
    slowest: dict[tuple[str, int], float] = {}
    for event in events:
        if event["kind"] == "sample":
            iteration = event["trial"], event["index"]
            slowest[iteration] = max(event["seconds"], slowest.get(iteration, 0.0))
    return sum(slowest.values())


def different(machine: Machine, count: int) -> list[Trial]:
    """*count* trials of one problem and three schemes, of which no two ask the same."""
    return list(islice(_trials(machine), count))


def _trials(machine: Machine) -> Iterator[Trial]:
    tiles = [f"{m}x{n}x64" for m in (8, 16, 32) for n in (8, 16, 32, 64)]
    for number, tile in enumerate(cycle(tiles)):
        iteration_s = 1e-3 + 1e-6 * number
        for scheme in COMPARED:
            yield small(machine, TIMED, iteration_s, scheme, tile=tile)


def _wall_s(setting: Setting, trials: Sequence[Trial], deadline_s: float = DEADLINE_S) -> float:
    began = time.perf_counter()
    _events(setting, trials, deadline_s)
    return time.perf_counter() - began


def _events(setting: Setting, trials: Sequence[Trial], deadline_s: float = DEADLINE_S) -> Events:
    events = list(setting.cluster.stream(trials, world=WORLD, shares_heap=True, deadline_s=deadline_s))
    if failed := [event for event in events if event["kind"] == "failure"]:
        raise ValueError(str(failed[0]["message"]))
    return events
