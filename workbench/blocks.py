"""A Block is timed in turns in one grant: at most eight schedules of one problem beside what they are compared with.

A sweep is a row of blocks. A run cuts them here to ask for them, and the forecast cuts them here to count them. On GPU
ranks the first block of a problem holds every baseline; the two fastest then stand in all that follow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kernels.axes import Value
from kernels.fabric import Fabric
from kernels.machine import Machine
from kernels.problem import Problem
from kernels.schedule import Schedule
from kernels.schemes import BASELINE, controls, library, reads, schedule
from kernels.schemes.sequential import OURS
from kernels.trial import Trial

MOST = 8
"""Schedules of one block, the baseline not counted."""
FASTEST = 2
"""So many of several baselines stand in every block: one of them may be torch's, which overlaps and has no parts."""
LONGEST_SECONDS = 8.0
"""A block that is expected to take longer holds fewer schedules, so that others get their turn."""
PARTS = ("none", "baseline", "each")
"""What stands beside the schedules: nothing; the sequential baseline, its computation and its communication alone; or
these and the computation of each schedule alone."""

Legal = Callable[[Value], Sequence[Schedule]]
Seconds = Callable[[Sequence[Trial], Sequence[Trial]], float]
"""How long trials are expected to take, all together, after others of their block: these may have compiled for them."""


@dataclass(frozen=True, slots=True)
class Block:
    """Everything that is timed in turns; ratios are formed inside it and nowhere else."""

    baselines: tuple[Trial, ...]
    schedules: tuple[Trial, ...]
    """Those that were asked for; the baseline is among them where it was."""
    parts: tuple[Trial, ...] = ()
    """The computation of each schedule alone."""
    first: bool = False
    """Whether its schedules are all baselines, from which those of the other blocks are chosen."""

    @property
    def trials(self) -> list[Trial]:
        """Each of them once: what the schedules are compared with comes first, so that ratios are there at once."""
        return list({trial.key: trial for trial in (*self.baselines, *self.schedules, *self.parts)}.values())


@dataclass(frozen=True, slots=True)
class Beside:
    """What stands beside the schedules of one problem in every block."""

    base: Trial
    """The sequential schedule, everything at its default."""
    parts: str
    machine: Machine
    legal: tuple[Trial, ...] = ()
    """All baselines to choose from, in a first block; none where there is one baseline only."""
    standing: tuple[Trial, ...] = ()
    """Those that stand in every block, the fastest first; empty: `base` alone."""

    def first(self, some: Sequence[Trial] = ()) -> Block:
        """All baselines, or *some* that are timed again, with what their floor is made of."""
        return Block(tuple(self._parts(self.base, ())), tuple(some) or self.legal, first=True)

    def chosen(self, seconds: Mapping[str, float]) -> Beside:
        """The same with the fastest of all baselines, whose times are *seconds* by key; `base` where none is known."""
        timed = sorted((trial for trial in self.legal if trial.key in seconds), key=lambda trial: seconds[trial.key])
        return replace(self, standing=tuple(timed[:FASTEST]))

    def with_all(self) -> Beside:
        """The same with all baselines in every block: estimates cost little."""
        return replace(self, standing=self.legal)

    @property
    def baselines(self) -> tuple[Trial, ...]:
        """What stands in every block: what overlaps needs one beside it that has parts."""
        return self.standing or (self.base,)

    def block(self, schedules: Sequence[Trial]) -> Block:
        """*schedules* and what they are compared with: every tile is computed alone, or the floor would not hold."""
        if self.parts == "none" or not schedules:
            return Block((), tuple(schedules))
        plain = next((trial for trial in self.baselines if has_parts(trial)), self.base)
        each = [compute_alone(trial) for trial in schedules if has_parts(trial)] if self.parts == "each" else []
        each += self.own_parts(schedules) if self.parts == "each" else []
        return Block((*self._parts(plain, schedules), *self.baselines), tuple(schedules), tuple(each))

    def _parts(self, plain: Trial, schedules: Sequence[Trial]) -> list[Trial]:
        """Computations alone, and the communication of *plain*."""
        alone = [compute_alone(self.base)]
        if self.legal:  # the library computes alike whatever the tile is
            alone += [compute_alone(trial) for trial in self.legal if is_ours(trial)][:1]
        alone += [compute_alone(self._sequential(trial.schedule)) for trial in schedules]
        return alone + ([plain.of_part("communication")] if plain.world > 1 else [])

    def own_parts(self, schedules: Sequence[Trial]) -> list[Trial]:
        """Computation and communication alone of what has streams for each, and the communication in one piece.

        That adds nothing: it is what T_comm is the fastest of, where the baselines' communication sums. Beside two
        streams with controls stand the same streams without any.
        """
        linked = [trial for trial in schedules if trial.world > 1]
        cut = [trial for trial in linked if trial.schedule.get(reads.LAUNCHES) is not None]
        in_one = [replace(trial, schedule=in_one_piece(trial, self.machine)) for trial in cut]
        moved = [trial.of_part("communication") for trial in (*cut, *in_one)]
        return [*map(compute_alone, cut), *moved, *_beside_streams(linked)]

    def _sequential(self, other: Schedule) -> Trial:
        """The sequential schedule with the tile of *other*, computed by us where a library takes no notice of tiles."""
        base, problem, chosen = self.base, self.base.problem, any(map(is_ours, self.legal))
        by_library = other.scheme == BASELINE and other[reads.KERNEL] != OURS
        if other["tile"] == base.schedule["tile"] or (chosen and by_library):
            return base
        values = {"tile": other["tile"], **({reads.KERNEL: OURS} if chosen else {})}
        return replace(base, schedule=schedule(problem, BASELINE, values, self.machine, base.fabric))

    def tile_alone(self, other: Schedule) -> Value:
        """The tile of the computation that is timed alone beside *other*."""
        return self._sequential(other).schedule["tile"]

    def others(self, schedules: Sequence[Trial]) -> list[Trial]:
        """*schedules* but for the baselines, where these stand in every block anyway."""
        stand = {trial.key for trial in self.baselines}
        return [trial for trial in schedules if self.parts == "none" or trial.key not in stand]

    def blocks(
        self, schedules: Sequence[Trial], seconds: Seconds, longest_s: float = LONGEST_SECONDS
    ) -> Iterator[Block]:
        """*schedules*, each in exactly one block but for the baseline, which stands in all of them.

        *seconds* is asked anew for every block: what was measured until then corrects what is expected.
        """
        rest = self.others(schedules)
        base = [trial for trial in schedules if trial not in rest]
        if not rest and base:
            yield self.block(base)
        while rest:
            alone = self.block(rest[:1]).trials
            baselines_s = seconds([trial for trial in alone if trial.key != rest[0].key], rest[:1])
            costs_s = [seconds([trial], rest[:number]) for number, trial in enumerate(rest[:MOST])]
            count = fit(costs_s, baselines_s, longest_s)
            yield self.block([*base, *rest[:count]])
            rest = rest[count:]


def fit(schedules_s: Sequence[float], baselines_s: float, longest_s: float = LONGEST_SECONDS) -> int:
    """How many of the next schedules go into one block with baselines that take *baselines_s*.

    At least one, at most MOST. Where baselines take long, schedules may take as long as they do: otherwise baselines
    would be most of what is measured.
    """
    room_s = max(longest_s - baselines_s, baselines_s)
    taken_s = 0.0
    for count, schedule_s in enumerate(schedules_s[:MOST]):
        taken_s += schedule_s
        if count and taken_s > room_s:
            return count
    return min(len(schedules_s), MOST)


def beside(base: Trial, tiles: Iterable[Value], parts: str, machine: Machine, legal: Legal | None = None) -> Beside:
    """For a run of schedules with *tiles*, whose *base* has everything else at its default.

    *legal* says which baselines with a tile there are to choose from, where there are several.
    """
    assert parts in PARTS, parts
    made = replace(base, schedule=baseline(tiles, base.problem, machine, base.fabric))
    several = legal(made.schedule["tile"]) if legal is not None and parts != "none" else ()
    return Beside(made, parts, machine, tuple(replace(base, schedule=one) for one in several))


def baseline(tiles: Iterable[Value], problem: Problem, machine: Machine, fabric: Fabric) -> Schedule:
    """The sequential schedule beside schedules with *tiles*: where all of them have one tile, it has it, too."""
    several = set(tiles)
    return schedule(problem, BASELINE, {"tile": several.pop()} if len(several) == 1 else {}, machine, fabric)


def older_block(sitting: str, number: int) -> str:
    """The block of problem *number* of a *sitting* (a run, a recorded file) from before there were blocks."""
    return f"{sitting}.p{number}"


def _beside_streams(schedules: Sequence[Trial]) -> list[Trial]:
    """The halves alone of each that has controls of two streams, and these streams with every control off.

    Halves that differ in nothing that they read are one trial.
    """
    controlled = [trial for trial in schedules if controls.has_controls(dict(trial.schedule.axes))]
    halves = [replace(trial, schedule=controls.half(trial.schedule, part)).of_part(part)
              for part in (controls.COMPUTE, controls.COMMUNICATION) for trial in controlled]  # fmt: skip
    return [
        *(compute_alone(each) if each.part == controls.COMPUTE else each for each in halves),
        *(replace(trial, schedule=controls.streams_alone(trial.schedule)) for trial in controlled),
    ]


def is_baseline(trial: Trial) -> bool:
    """Whether schedules are compared with *trial*: a part, or a whole of the sequential scheme."""
    return trial.part != "whole" or trial.schedule.scheme == BASELINE


def has_parts(trial: Trial) -> bool:
    """Whether its computation can be timed alone: torch's overlapped operators are one call."""
    return trial.schedule.scheme != BASELINE or trial.schedule["collective"] != library.OVERLAPPED


def is_ours(trial: Trial) -> bool:
    """Whether a baseline computes by our kernel where the library could."""
    return trial.schedule[reads.KERNEL] == OURS


def in_one_piece(trial: Trial, machine: Machine) -> Schedule:
    """The schedule of *trial* in one piece by its engine; everything else as it is by default."""
    kept: dict[str, Value] = {name: trial.schedule[name] for name in ("tile", "engine")}
    if trial.world > 2 and trial.schedule[reads.LAUNCHES] == reads.ONE:  # whose sums of several peers stand in no step
        kept[reads.LAUNCHES] = reads.ONE
    return schedule(trial.problem, trial.schedule.scheme, {**kept, "pieces": 1}, machine, trial.fabric)


def compute_alone(trial: Trial) -> Trial:
    """The computation of *trial* alone. No emulated link is crossed, so that one trial serves all of them."""
    fabric = Fabric(kind="shared_memory") if trial.fabric.emulated else trial.fabric
    return replace(trial, fabric=fabric, part="compute")
