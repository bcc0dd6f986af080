"""The other price of a tile's DRAM bytes: what the reuse tier counts, where a price takes each operand once.

Nobody asks it for an estimate today: on what two H200s measured it makes none better (docs/caches.md), since the rates
of tiles were fitted to kernels that read again. A test compares both and says when that changes.
"""

from __future__ import annotations

from dataclasses import replace

from kernels.machine import Machine
from kernels.operators import OPERATORS
from kernels.trial import Trial
from workbench.simulator.cache.hierarchy import of_machine
from workbench.simulator.cache.reuse import parts, total


def share(trial: Trial, machine: Machine) -> float:
    """How many times the bytes of operands and result, each once, the fused kernel of *trial* moves; at least 1."""
    kind = OPERATORS[trial.problem.operator]
    resident = int(machine.device.resident_blocks.get(kind.work, 1))
    moved = total(parts(trial.problem, trial.schedule, of_machine(machine), resident))
    return max(1.0, (moved.dram_read + moved.dram_written) / kind.memory_bytes(trial.problem))


def slower_memory(trial: Trial, machine: Machine) -> Machine:
    """*machine* with a memory that takes so many times as long: prices then are of the bytes that the tier counts."""
    rate = machine.device.memory_bytes_per_second / share(trial, machine)
    return replace(machine, device=replace(machine.device, memory_bytes_per_second=rate))
