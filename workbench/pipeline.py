"""What a pipeline needs beside computation and wire: its first slice, and the rate at which puts were measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernels.machine import Machine
from kernels.operators import OPERATORS, Flow
from kernels.plan import Ints, Kind, Plan
from kernels.schemes import BASELINE, expand
from kernels.trial import Trial
from workbench.simulator.price import messages, tiles

EMULATED = "what the emulated link carries"
MEASURED = "calibrated"
"""How the provenance begins of what was measured on a running machine."""


@dataclass(frozen=True, slots=True)
class PutRate:
    """How fast puts leave one rank."""

    bytes_per_second: float
    source: str
    """Where it comes from, as the machine's file says."""


def put_rate(trial: Trial, machine: Machine | None) -> PutRate | None:
    """Of the puts of *trial*'s schedule; None where nobody measured them: datasheets say nothing of puts.

    On GPUs the machine's calibrated curve of the way that its bytes leave (`store`, copy engines, how many SMs send),
    at the bytes that leave each rank. An emulated link carries what it was told to.
    """
    if trial.fabric.emulated:
        known = emulated_rate(trial)
        return None if known is None else PutRate(known, EMULATED)
    if machine is None or trial.world == 1:
        return None
    axes = dict(trial.schedule.axes)
    source = machine.provenance_of(f"rate.{messages.way(axes)}.any")
    if not source.startswith(MEASURED):
        return None
    byte_seconds = messages.put_byte_seconds(trial.problem, machine, trial.fabric, axes)
    return None if byte_seconds is None else PutRate(1.0 / float(byte_seconds), source)


def emulated_rate(trial: Trial) -> float | None:
    """The highest rate at which the least bytes of *trial* leave a rank of an emulated fabric; None: not resolved.

    Of several hosts, what each peer gets of its own crosses once for each peer, and what is the same for all ranks of a
    host once for the host, however it is handed on there.
    """
    fabric, world = trial.fabric, trial.world
    each_its_own = OPERATORS[trial.problem.operator].collective == "all_to_all" or world == 1
    return fabric.rate(world, None if each_its_own else (fabric.hosts - 1) / (world - 1))


def first_slice_share(trial: Trial, machine: Machine | None) -> float | None:
    """What of the computation alone no put can hide, as a share; None for schedules that do not overlap.

    Before the wire begins, the first slice is computed; where operands come in, the last one is after the wire has
    ended. Tiles are computed in waves, as many at once as the device has slots. A GPU's kernel sends each tile as soon
    as it is done, so that its first slice is one wave.
    """
    if trial.schedule.scheme == BASELINE or machine is None:
        return None
    plan, is_gpu = expand(trial.problem, trial.schedule), machine.device.kind == "gpu"
    kind = OPERATORS[trial.problem.operator]
    slots = int(machine.device.slots * tiles.resident_blocks(machine, kind.work))
    waited_for = last_tiles(plan) if kind.flow is Flow.RECEIVE else first_tiles(plan)
    if waited_for is None:
        return None
    sent = 1 if is_gpu and kind.flow is not Flow.RECEIVE else waited_for
    return waves(sent, slots) / waves(max(len(each) for each in plan.tiles), slots)


def waves(tiles: int, slots: int) -> int:
    """How often *slots* tiles at once are computed until *tiles* are."""
    return -(-tiles // slots)


def first_tiles(plan: Plan) -> int | None:
    """Tiles that the rank that begins last has computed when its first put leaves; None where none waits for tiles."""
    puts, computed = _waits(plan, (Kind.PUT,), (Kind.COMPUTE,))
    if not len(puts):
        return None
    waited_for = np.zeros(len(plan), dtype=np.int64)
    np.maximum.at(waited_for, puts, plan.tile_stop[computed])
    never = np.iinfo(np.int64).max
    begun = np.full(plan.problem.world, never)
    np.minimum.at(begun, plan.rank[puts], waited_for[puts])
    return int(begun[begun < never].max())


def last_tiles(plan: Plan) -> int | None:
    """How many tiles wait for the last operands that come in; None where none waits."""
    waiting, _ = _waits(plan, (Kind.COMPUTE,), (Kind.PUT, Kind.COPY))
    if not len(waiting):
        return None
    last = waiting.max()
    return int(plan.tile_stop[last] - plan.tile_start[last])


def _waits(plan: Plan, waiting: Sequence[Kind], needed: Sequence[Kind]) -> tuple[Ints, Ints]:
    """Pairs of steps: one of the kinds *waiting*, and one of the kinds *needed* that it waits for."""
    who = np.repeat(np.arange(len(plan)), np.diff(plan.after_start))
    chosen = np.isin(plan.kind[who], waiting) & np.isin(plan.kind[plan.after], needed)
    return who[chosen], plan.after[chosen]
