"""One play: a cluster of its own, clients that sweep, a script of faults, and what must hold between and after them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos import left
from tests.chaos.disk import Full
from tests.chaos.judging import AGAIN_S, Stores
from tests.chaos.keeping import UP_S, Kept
from tests.chaos.script import MOMENT_S, Fault, Whom, faults_of
from tests.chaos.striking import Striker
from tests.chaos.sweeping import HANGS_S, STORE_BYTES, Clients

TICK_S, REAP_S = 0.03, 0.5
VICTIM_S = 4.0
"""A fault whose victim does not come to life within this time does not happen."""
NEVER_S = 120.0
"""Without a complete sweep for so long the cluster is ended and begun anew."""
GONE_S = 5.0
"""Segments of ranks that nobody uses are gone within this time."""
REST_EVERY = 8
"""After so many rounds all clients end, and the cluster is looked at while it is idle."""
REST_S = 90.0
RECENT = 4
"""So many of the last faults are named where recovery failed."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Limits of a host on which a sweep completes within `recovery_s` of the last fault; none is below its default."""

    recovery_s: float

    @property
    def never_s(self) -> float:
        return max(NEVER_S, self.recovery_s)

    @property
    def rest_s(self) -> float:
        return max(REST_S, self.recovery_s)

    @property
    def victim_s(self) -> float:
        return max(VICTIM_S, self.recovery_s / 15)

    @property
    def gone_s(self) -> float:
        return max(GONE_S, self.recovery_s / 15)


@dataclass(frozen=True, slots=True)
class Rooms:
    """Where a play happens."""

    folder: Path
    """Of its own; `state` and `tmp` in it are where its processes leave what they leave."""
    disk: Full
    memory: Full | None
    """Its own /dev/shm; None where it shares the host's, which is never filled."""


@dataclass(slots=True)
class Struck:
    """A fault that happened."""

    fault: Fault
    over_at: float
    """When it happened, or for what is lifted soon: when that is lifted."""


@dataclass
class Tally:
    """What a play came to."""

    faults: Counter[str] = field(default_factory=Counter)
    without_victim: int = 0
    rounds: int = 0
    recoveries_s: list[float] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)


class Play:
    """Plays rounds of the script of *seed*; whatever is wrong becomes a sentence in its tally."""

    def __init__(self, rooms: Rooms, seed: int, num_ranks: int, num_clients: int, recovery_s: float) -> None:
        self.rooms, self.seed, self.num_ranks = rooms, seed, num_ranks
        self.patience = Patience(recovery_s)
        self.kept = Kept(rooms.folder, num_ranks, max(UP_S, recovery_s))
        self.clients = Clients(rooms.folder, rooms.disk, num_clients, max(HANGS_S, recovery_s))
        self.striker = Striker(self.kept, self.clients, rooms.disk, rooms.memory)
        self.stores = Stores(max(AGAIN_S, recovery_s))
        self.tally = Tally()
        self._completed: list[tuple[float, float]] = []
        """Begin and end of every sweep that measured all it was asked for."""
        self._ports: set[int] = set()
        self._was_in_memory = {path.name for path in left.SHARED.iterdir()}
        self._num_told = 0
        self._reaped_at = 0.0

    # the parts of a play

    def begin(self) -> None:
        """A cluster, and a sweep that nothing disturbs."""
        began = time.monotonic()
        never_s = self.patience.never_s
        if not self._until(lambda: self._complete_since(began) is not None, never_s):
            self.tally.troubles.append(f"no sweep was complete within {never_s:.0f} s before the first fault")

    def round(self, number: int) -> None:
        """The faults of one round, then recovery from each of them."""
        struck: list[Struck] = []
        for fault in faults_of(self.seed, number):
            self._moment(fault)
            if self._strike(fault):
                self.tally.faults[f"{fault.act} {fault.whom}"] += 1
                lasts_s = 0.0 if fault.is_long else fault.lasts_s
                struck.append(Struck(fault, time.monotonic() + lasts_s))
            else:
                self.tally.without_victim += 1
        recovered_s = self._recovered(struck)
        self.tally.rounds += 1
        self.tell(f"round {number}: {len(struck)} faults, a sweep was complete {_after(recovered_s)} the last one; "
                   f"{sum(self.tally.faults.values())} faults so far")  # fmt: skip

    def rest(self) -> None:
        """All clients end; then the cluster is idle, and stores are looked through."""
        self.clients.resting = True
        if not self._until(lambda: not self.clients.running, self.patience.rest_s + self.patience.never_s):
            self.tally.troubles.append(f"clients do not end: {', '.join(map(str, self.clients.running.values()))}")
        self._until(lambda: self.kept.address is not None, self.patience.never_s)
        whole = self._until(self._is_whole, self.patience.rest_s)
        if not whole:
            self.tally.troubles.append(
                f"after {self.patience.rest_s:.0f} s without clients the cluster is not whole: {self._parts()}"
            )
        self._ports |= left.listening()
        if segments := left.until_nothing(left.segments if self.rooms.memory else list, self.patience.gone_s):
            self.tally.troubles.append(f"segments are left while nobody measures: {', '.join(segments)}")
        self._look_through()
        self.clients.resting = False
        self.tell("all clients ended, the cluster idle")

    def end(self) -> None:
        """Everything ends; whatever is left is a trouble."""
        self.clients.resting = True
        self.striker.lift_all()
        self._until(lambda: not self.clients.running, self.patience.rest_s + self.patience.never_s)
        self._until(lambda: self.kept.address is not None, self.patience.never_s)
        if self.kept.address is not None:
            self.tally.troubles += self.stores_once_more()
        self._look_through()
        self._ports |= left.listening()
        self.kept.end()
        self._until(lambda: not self.kept.busy, self.patience.never_s)
        self.tally.troubles += self.kept.troubles
        troubles = {
            "processes": left.until_nothing(left.processes),
            "shared memory": left.until_nothing(
                lambda: left.in_memory(self.rooms.memory is not None, self._was_in_memory), self.patience.gone_s),
            "temporary files": left.files(self.rooms.folder / "tmp", left.DASKS),
            "state": left.files(self.rooms.folder / "state", left.LOG),
            "open ports": [str(port) for port in left.open_ports(self._ports)],
        }  # fmt: skip
        self.tally.troubles += [f"left behind, {what}: {', '.join(names)}" for what, names in troubles.items() if names]

    def stores_once_more(self) -> list[str]:
        """The stores in use, and one of their trials again."""
        paths = sorted(self.rooms.disk.folder.glob("*.sqlite"))
        troubles = [trouble for path in paths for trouble in self.stores.look_through(path)]
        assert self.kept.address is not None
        troubles += self.stores.once_more(self.seed, self.kept.address)
        for path in paths:
            path.unlink()
        return troubles

    def tell(self, words: str) -> None:
        """New troubles, then *words*."""
        for trouble in self.tally.troubles[self._num_told :]:
            print(f"  TROUBLE (seed {self.seed}, round {self.tally.rounds}): {trouble}", flush=True)
        self._num_told = len(self.tally.troubles)
        print(words, flush=True)

    # waiting

    def _tick(self) -> None:
        self.striker.tick()
        self.kept.tick()
        if time.monotonic() > self._reaped_at + REAP_S:
            self._reaped_at = time.monotonic()
            left.reap_orphans({*self.clients.pids(), self.kept.pid or 0})
        self.clients.tick(self.kept.address)
        if not self.striker.lasts:  # a store on a full disk cannot be opened
            self._look_at_ended()
        time.sleep(TICK_S)

    def _until(self, true: Callable[[], bool], within_s: float) -> bool:
        give_up_at = time.monotonic() + within_s
        while not true():
            if time.monotonic() > give_up_at:
                return False
            self._tick()
        return True

    def _moment(self, fault: Fault) -> None:
        wanted = self.clients.num_outcomes() + fault.outcomes
        self._until(lambda: not fault.outcomes or self.clients.num_outcomes() >= wanted, MOMENT_S)
        until = time.monotonic() + fault.wait_s
        self._until(lambda: time.monotonic() >= until, fault.wait_s + 1)

    def _strike(self, fault: Fault) -> bool:
        """Whether it happened; a successor that is to be killed may take a while to begin."""
        if fault.whom is Whom.MEMORY and self.rooms.memory is None:
            return False
        return self._until(lambda: self.striker.strike(fault) is not None, self.patience.victim_s)

    # recovery

    def _complete_since(self, began: float) -> float | None:
        """When the first complete sweep ended that began after *began*."""
        return min((ended for begun, ended in self._completed if begun >= began), default=None)

    def _recovered(self, struck: list[Struck]) -> float | None:
        """How long after the last of these faults the first sweep was complete that began after it; None: never."""
        last_at = max((one.over_at for one in struck), default=time.monotonic())
        self._until(lambda: time.monotonic() >= last_at, self.patience.never_s)
        self._until(lambda: self._complete_since(last_at) is not None, self.patience.never_s)
        self._until(lambda: not self.striker.lasts, self.patience.never_s)
        ended_at = self._complete_since(last_at)
        recovered_s = None if ended_at is None else ended_at - last_at
        if recovered_s is not None:
            self.tally.recoveries_s += [recovered_s] * len(struck)
        if recovered_s is None or recovered_s > self.patience.recovery_s:
            faults = "; ".join(str(one.fault) for one in struck[-RECENT:])
            self.tally.troubles.append(f"a sweep was complete {_after(recovered_s)} the last fault, accepted: "
                                       f"{self.patience.recovery_s:.0f} s. {self._parts()} Last: {faults}")  # fmt: skip
        if recovered_s is None:
            self.kept.restart()
            self._until(lambda: not self.kept.busy and self.kept.address is not None, self.patience.never_s)
        return recovered_s

    # looking

    def _look_at_ended(self) -> None:
        for client in self.clients.ended:
            ended, troubles = self.stores.look_at(client)
            self.tally.troubles += troubles
            if ended.complete:
                self._completed.append((client.began_at, client.ended_at))
            if not troubles:
                for ending in (".json", ".err"):
                    client.output.with_suffix(ending).unlink()
        self.clients.ended.clear()

    def _look_through(self) -> None:
        """Stores that are big enough, when no client runs."""
        self._look_at_ended()
        big = [path for path in self.rooms.disk.folder.glob("*.sqlite") if path.stat().st_size > STORE_BYTES]
        for path in big:
            self.tally.troubles += self.stores.look_through(path)
            for each in path.parent.glob(f"{path.name}*"):
                each.unlink()
        if big:
            self.clients.put_away()

    def _is_whole(self) -> bool:
        return (len(left.ranks()), len(left.workers()), len(left.keepers())) == (self.num_ranks,) * 2 + (1,)

    def _parts(self) -> str:
        return (f"There are {len(left.ranks())} ranks, {len(left.workers())} workers and {len(left.keepers())} "
                f"schedulers; wanted: {self.num_ranks}, {self.num_ranks} and 1.")  # fmt: skip


def _after(seconds: float | None) -> str:
    return "never after" if seconds is None else f"{seconds:.1f} s after"
