"""Two streams in all their modes beside the best baselines: which trials of one scenario are timed together.

Pure decisions over plain values, as tests/gpu/sittings.py: first all baselines; then the ways to set SMs aside, by
every partner; last, in one block, the modes of arXiv:2606.09200 and the best of these ways, of which the row is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from kernels.backends.capabilities import MeasuringRanks, refusal
from kernels.outcome import CHOOSING
from kernels.problem import Problem
from kernels.schedule import Refusal, Schedule, Value
from kernels.schemes import axis_rules, schedule, stream_controls
from kernels.schemes.library import CALLS
from kernels.trial import Protocol, Trial
from tests.gpu import sittings
from tests.gpu.sittings import Axes, Block, Talk

SCHEME = "concurrent"
MICRO_BATCHES = 16
TILE = "64x128x64"
"""Of our kernel: an SM of an H200 holds two of its blocks. torch's `two_shot` fits beside one or both, NCCL never."""
LEFT, FIRST = ({stream_controls.PRIORITY: value} for value in (axis_rules.NORMAL, axis_rules.HIGH))
OURS: Axes = {"kernel": "ours", "tile": TILE}
SHAPED: Axes = {**OURS, axis_rules.RESIDENT: 1}
MODES: tuple[Axes, ...] = (
    LEFT, {**OURS, **LEFT}, {**SHAPED, **LEFT}, FIRST, {**SHAPED, **FIRST},
)  # fmt: skip
"""Two streams; the same with our kernel, from which shaping differs in nothing else; + shaping; + priority; + both."""
SHARES = (8, 16, 24, 32)
"""SMs that are left to the library's collective."""
PARTNERS: tuple[Axes, ...] = (
    {"collective": "direct", stream_controls.SHARE: 16}, {"collective": "direct", stream_controls.SHARE: 32},
    {"collective": "two_shot"}, {"collective": "two_shot", stream_controls.SHARE: 24}, {"collective": "copy_engine"},
    {"collective": "copy_engine", stream_controls.SHARE: 4},
)  # fmt: skip
"""Others that may communicate: our own stores, torch's symmetric all-reduce in its 24 blocks, copy engines, which need
no SM for copies but places for the kernels in which ranks meet."""


@dataclass(frozen=True, slots=True)
class Modes:
    """One scenario: a problem whose schedules on two streams are laid beside each other."""

    problem: Problem

    def blocks(self, protocol: Protocol, ranks: MeasuringRanks) -> Talk:
        """All baselines; SMs set aside by every partner; all modes, with the fastest way to set SMs aside.

        The first two choose with few samples; ratios are formed in the last one alone.
        """
        few = replace(
            protocol, name=f"first_{protocol.name}", warmups=1, repeats=max(5, protocol.repeats // sittings.FIRST_SHARE)
        )  # fmt: skip
        legal = sittings.baselines(self.problem, ranks)
        came = yield Block(CHOOSING, tuple(self._trials(legal, few, ranks)))
        beside = self._trials(sittings.chosen(came, legal)[: sittings.FASTEST], protocol, ranks)
        shares = self._trials(self.schedules(shares_of(ranks), ranks), few, ranks)
        measured = yield Block("further", sittings.unique(shares))
        modes = self._trials(self.schedules(MODES, ranks), protocol, ranks)
        if best := sittings.fastest(measured):
            modes.append(replace(best.trial, protocol=protocol))
        yield Block(sittings.LAST, sittings.unique([*beside, *self._alone(beside, modes, ranks), *modes]))

    def schedules(self, several: Iterator[Axes] | tuple[Axes, ...], ranks: MeasuringRanks) -> list[Schedule]:
        """Those of *several* that are legal here, each once; what ranks refuse is a failure of its own."""
        made = []
        for axes in several:
            with suppress(Refusal):
                values: dict[str, Value] = {"micro_batches": MICRO_BATCHES, **axes}
                made.append(schedule(self.problem, SCHEME, values, ranks.machine, ranks.fabric))
        return list(dict.fromkeys(made))

    def _trials(self, schedules: list[Schedule], protocol: Protocol, ranks: MeasuringRanks) -> list[Trial]:
        return [replace(ranks.trial(self.problem, each), protocol=protocol) for each in schedules]

    def _alone(self, beside: list[Trial], modes: list[Trial], ranks: MeasuringRanks) -> Iterator[Trial]:
        """What T_c and T_comm, and the losses of contention are formed of: halves of baselines and of modes alone."""
        legal = [each for each in sittings.baselines(self.problem, ranks) if each["collective"] == CALLS[0]]
        plain = self._trials(legal, beside[0].protocol, ranks)
        for part, several in ((stream_controls.COMPUTE, plain), (stream_controls.COMMUNICATION, beside)):
            able = [each for each in several if refusal(each.of_part(part), ranks.shares_heap) is None]
            alike = [replace(trial, schedule=stream_controls.half(trial.schedule, part)) for trial in modes]
            yield from sittings.unique(trial.of_part(part) for trial in (*able, *alike))


def shares_of(ranks: MeasuringRanks) -> Iterator[Axes]:
    """The ways to set SMs aside, communication first in all of them."""
    yield from ({stream_controls.SHARE: count} for count in SHARES if count < ranks.machine.device.slots)
    yield from PARTNERS
