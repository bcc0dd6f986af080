"""From a seed alone: which fault happens, at what moment, against whom. Each round is drawn by itself."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum


class Act(StrEnum):
    """What happens to somebody."""

    KILL = "kill"
    STOP = "stop"
    INTERRUPT = "interrupt"
    INTERRUPT_TWICE = "interrupt twice"
    TERMINATE = "terminate"
    FILL = "fill"
    RESTART = "restart"


class Whom(StrEnum):
    """To whom it happens."""

    RANK = "rank"
    NEWEST = "newest rank"
    WORKER = "worker"
    SCHEDULER = "scheduler"
    CLIENT = "client"
    DISK = "disk"
    MEMORY = "shared memory"
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True)
class Fault:
    """One line of the script."""

    round: int
    number: int
    """Inside its round, from 1."""
    act: Act
    whom: Whom
    which: int
    """Chooses among those that live then: modulo their number, the oldest first."""
    outcomes: int
    """It waits until so many outcomes were stored since the fault before, though no longer than `MOMENT_S`."""
    wait_s: float
    """Then it waits so long."""
    lasts_s: float
    """What is stopped or filled is so for this time; 0 where nothing is lifted again."""

    @property
    def name(self) -> str:
        return f"{self.round}.{self.number}"

    @property
    def is_long(self) -> bool:
        """The cluster has to work around it, instead of waiting for its end."""
        return self.lasts_s >= LONG_S[0]

    def __str__(self) -> str:
        lasts = f" for {self.lasts_s:.2f} s" if self.lasts_s else ""
        when = f"after {self.outcomes} outcomes and {self.wait_s:.2f} s"
        return f"fault {self.name}: {self.act} {self.whom} (choice {self.which}){lasts}, {when}"


MOMENT_S = 0.6
"""A fault that waits for progress happens after this time, whether there was any or not."""
SIZES = (4, 60)
"""A round has so many faults, at least and at most."""
SHORT_S, LONG_S = (0.05, 2.5), (16.0, 20.0)
"""How long what is stopped or filled stays so. Long ones are longer than a worker may be silent."""
LONG_SHARE = 0.02
SUCCESSOR_SHARE = 0.25
"""So often the rank process that takes the place of a killed one is killed while it starts."""

ODDS: tuple[tuple[int, Act, Whom], ...] = (
    (12, Act.KILL, Whom.RANK),
    (16, Act.STOP, Whom.RANK),
    (3, Act.KILL, Whom.WORKER),
    (10, Act.STOP, Whom.WORKER),
    (1, Act.KILL, Whom.SCHEDULER),
    (10, Act.STOP, Whom.SCHEDULER),
    (8, Act.KILL, Whom.CLIENT),
    (12, Act.STOP, Whom.CLIENT),
    (12, Act.INTERRUPT, Whom.CLIENT),
    (3, Act.INTERRUPT_TWICE, Whom.CLIENT),
    (3, Act.TERMINATE, Whom.CLIENT),
    (7, Act.FILL, Whom.DISK),
    (3, Act.FILL, Whom.MEMORY),
    (1, Act.RESTART, Whom.CLUSTER),
)
"""How often each kind happens, in relation to the others."""
LASTING = (Act.STOP, Act.FILL)
MAY_LAST_LONG = (Whom.RANK, Whom.WORKER, Whom.CLIENT)


def faults_of(seed: int, number: int) -> tuple[Fault, ...]:
    """Round *number* (from 1) of the script of *seed*: always the same."""
    draw = random.Random(f"{seed}/{number}")
    size = draw.randint(*SIZES)
    faults: list[Fault] = []
    has_long = False
    while len(faults) < size:
        ((_, act, whom),) = draw.choices(ODDS, weights=[odds[0] for odds in ODDS])
        lasts_s = _lasts_s(draw, act, whom, has_long)
        has_long = has_long or lasts_s >= LONG_S[0]
        faults.append(_fault(draw, number, len(faults) + 1, act, whom, lasts_s))
        if (act, whom) == (Act.KILL, Whom.RANK) and draw.random() < SUCCESSOR_SHARE:
            faults.append(_fault(draw, number, len(faults) + 1, Act.KILL, Whom.NEWEST, 0.0))
    return tuple(faults)


def _lasts_s(draw: random.Random, act: Act, whom: Whom, has_long: bool) -> float:
    if act not in LASTING:
        return 0.0
    is_long = whom in MAY_LAST_LONG and draw.random() < LONG_SHARE and not has_long
    return round(draw.uniform(*(LONG_S if is_long else SHORT_S)), 2)


def _fault(draw: random.Random, number: int, within: int, act: Act, whom: Whom, lasts_s: float) -> Fault:
    is_successor = whom is Whom.NEWEST
    return Fault(
        round=number,
        number=within,
        act=act,
        whom=whom,
        which=draw.randrange(1000),
        outcomes=0 if is_successor else draw.choice((0, 0, 0, 1, 4)),
        wait_s=round(draw.uniform(0.1, 2.0) if is_successor else draw.uniform(0.0, 0.4), 2),
        lasts_s=lasts_s,
    )
