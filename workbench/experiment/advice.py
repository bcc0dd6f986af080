"""The rule in words: which kind of schedule, from three numbers of a problem, with a reason that states them.

It is a check on estimates that a person can follow. Its numbers were chosen from the recorded problems that
data/checks/choice_protocol.toml sets aside for that. docs/results/choice.md says how often it is right.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernels.fabric import Fabric
from kernels.machine import Machine
from kernels.operators import OPERATORS
from kernels.operators.base import Flow
from kernels.problem import Problem
from kernels.schemes import BASELINE, schedule
from kernels.schemes.auto import STORES
from kernels.schemes.fused import spans_by_default
from kernels.trial import Trial, protocol
from kernels.units import percent_text, seconds_text
from workbench.results.metrics import link_bytes_per_second
from workbench.simulator.predict import compute_alone_seconds, resolved

TILE = (128, 256)
"""The tile that fills an SM of sm_90 (rows x columns): what a wave is counted in."""
FEW_WAVES, FEW_WAVES_TO_SEND = 1.0, 1.5
"""Tiles for each SM below which a GEMM that receives, or sends, has nothing to compute while bytes move."""
SHORT_WIRE = 0.3
"""Wire over computation below which a GEMM of few tiles that receives rows is not cut in pieces."""
LITTLE = 0.02
"""A share that overlap can save at most which is no reason for anything."""


@dataclass(frozen=True, slots=True)
class Signature:
    """What the rule reads of a problem."""

    compute_s: float
    """The computation alone, by estimate."""
    wire_s: float
    """The fewest bytes over one link."""
    tiles: int
    """Tiles of `TILE` on one rank."""
    slots: int
    """SMs of one GPU."""
    spans: bool = False
    """Whether the default fused kernel computes all ranks' rows together."""

    @property
    def waves(self) -> float:
        return self.tiles / self.slots

    @property
    def hidden_most(self) -> float:
        """The most that overlap can save, as a share of computing and communicating one after the other."""
        return min(self.compute_s, self.wire_s) / (self.compute_s + self.wire_s)


@dataclass(frozen=True, slots=True)
class Advice:
    """What the rule says: kinds of schedules as candidates of `auto`, the best first, and why."""

    kinds: tuple[str, ...]
    reason: str


def signature(problem: Problem, machine: Machine, fabric: Fabric) -> Signature:
    """The numbers of *problem* on *machine* over *fabric*."""
    extent, link = OPERATORS[problem.operator].extent(problem), resolved(fabric, problem, machine)
    trial = Trial(problem=problem, schedule=schedule(problem, BASELINE, {}, machine, link), backend=machine.backend,
                  machine=machine.name, fabric=link, protocol=protocol("default"))  # fmt: skip
    rate = link_bytes_per_second(trial, machine) or float("inf")
    wire_bytes = OPERATORS[problem.operator].wire_bytes(problem)
    tiles = -(-extent.rows // TILE[0]) * -(-extent.columns // TILE[1])
    return Signature(compute_alone_seconds(problem, machine, fabric), wire_bytes / rate, tiles, machine.device.slots,
                     spans_by_default(problem, machine, link))  # fmt: skip


def advice(problem: Problem, of: Signature) -> Advice:
    """The rule for *problem* with the signature *of*."""
    known, under = OPERATORS[problem.operator], _under(of)
    if problem.world == 1:
        return Advice((STORES, "library"), "A rank alone has nothing to overlap with.")
    if known.work != "gemm":
        small = "Small results leave a fused kernel as soon as each is computed, and no second kernel starts."
        return Advice(("fused", STORES), f"{under if of.hidden_most >= LITTLE else _wire(of) + '.'} {small}")
    receives = known.flow is Flow.RECEIVE
    few = of.waves < (FEW_WAVES if receives else FEW_WAVES_TO_SEND)
    waves = f"{of.tiles} tiles make {of.waves:.1f} waves of {of.slots} SMs."
    if of.spans and few:
        why = f"{waves} Its tiles have the rows of all ranks, so weights stream once, and no second kernel starts."
        return Advice(("fused", STORES), f"{under} {why}")
    if few and not (receives and of.wire_s > SHORT_WIRE * of.compute_s):
        why = f"{waves} Little is left to compute while bytes move, so compute first."
        return Advice((STORES, "tuned", "library"), f"{under} {why}")
    if receives or known.collective == "reduce_scatter":
        what = "Rows that come in" if receives else "Sums that leave"
        why = f"{what} can be moved by copy engines while the SMs compute, so cut it in pieces."
        return Advice(("pieces", "fused", "overlapped", STORES), f"{under} {why}")
    why = "Each tile can leave while the next ones are computed, so fuse."
    return Advice(("fused", "pieces", STORES), " ".join(filter(None, (under, waves if of.slots > 1 else "", why))))


def _wire(of: Signature) -> str:
    return f"The wire takes {seconds_text(of.wire_s)} under {seconds_text(of.compute_s)} of computation"


def _under(of: Signature) -> str:
    return f"{_wire(of)}: overlap can save {percent_text(of.hidden_most)} at most."
