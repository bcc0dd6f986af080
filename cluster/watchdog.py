"""Decides what went wrong in a gang, from the reports of its ranks and their times: pure, without a clock or a socket.

`Watchdog` hears every event of an attempt and decides which rank is guilty, of which trial, and what happens to the
others. The first rank that failed by itself is guilty. A rank that only saw a peer vanish or not answer is a witness;
then the silent rank is guilty. When a rank reports nothing for `silence_s`, the stopped process is guilty, or the rank
that got least far. Ranks report each trial that they compile; until the next report they may be silent for
`compiling_s`. A list whose ranks keep reporting ends, too, once it takes longer than `total_s`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeGuard

from kernels.events import FailureEvent, RankEvent, TrialEvent

OPENING_S = 30.0
"""Time of a cold gang in addition to the deadline, s: to start the tasks, build the heap and the process group."""
WAIT_S = 600.0
"""Default limit of the wait for ranks, s."""
GRACE_S = 0.25
"""How long after a witness the cause may still be reported, s."""
REPORTED_S, REPORTED_MOST = 2.0, 4
"""Silence of a rank that opens its bench until the client hears of it, s, and how many such ranks are named."""
PATIENCE = 0.8
"""Share of the deadline for which ranks wait for each other, so that their more exact message comes first."""

_POISON = frozenset({"launch", "hang", "lost"})
"""Stages of failures after which a rank process cannot be trusted; the others only concern their trial."""
_COMPILES = frozenset({"open", "compile", "timeline"})
"""Stages that begin with a compilation, or with what all ranks open together: no report comes before its end."""


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Terms of a list of trials. In s: silence of a rank, and total time without the opening of the benches."""

    silence_s: float
    total_s: float
    compiling_s: float = 0.0
    """Limit of a rank's silence while it compiles one trial, where that is longer."""
    expected_s: float | None = None
    """How long the list is expected to take; None where that is unknown."""
    wait_s: float = WAIT_S
    """Limit of the wait for ranks."""
    shared: bool = False
    """Whether in a workshop another client's answer to the same list will do, so that it is measured once."""


@dataclass(frozen=True, slots=True)
class Blame:
    """Who broke the gang. `trial` is None when no trial is to blame: then all of them end, or all run again."""

    rank: int | None
    """None when no rank is to blame."""
    stage: str
    trial: str | None
    message: str


@dataclass(frozen=True, slots=True)
class _Trouble:
    at: float
    stage: str
    witness: bool
    message: str


@dataclass(slots=True)
class _RankState:
    label: str
    heard_at: float
    num_heard: int = 0
    trial: str | None = None
    last_report: str = "nothing"
    compiles: bool = False
    """Whether its last report began a compilation."""
    opened: bool = False
    done: bool = False
    stopped: bool = False
    settled: set[str] = field(default_factory=set)
    """Trials with a result or a failure of this rank."""
    trouble: _Trouble | None = None
    sticky: bool = False
    """Whether it is unusable and must be replaced; its peers are not to blame and live on."""
    idle: bool = False
    """Whether it has finished or left its list, and waits for orders."""


class Watchdog:
    """Watches one attempt: the ranks of one grant at one list of trials."""

    def __init__(self, trials: Sequence[str], world: int, limits: Deadlines, *, forgiving: bool = False) -> None:
        self.trials = list(trials)
        self.ranks = [_RankState(f"rank {rank}", 0.0) for rank in range(world)]
        self.limits = limits
        self.forgiving = forgiving
        """Whether a gang that was lost before it began may try everything again."""
        self.started_at: float | None = None
        self.opened_at: float | None = None
        """When the last rank opened its bench; until then no rank is expected to progress."""
        self.failed: set[str] = set()
        """Trials whose failure the caller has seen."""
        self.sampled: set[str] = set()

    def begin(self, labels: Sequence[str], now: float) -> None:
        """Start the clock: the gang is granted. `labels` name the ranks in messages."""
        self.started_at = now
        for rank, label in zip(self.ranks, labels, strict=True):
            rank.label, rank.heard_at = label, now

    @property
    def done(self) -> bool:
        """Whether all ranks have come to the end of the list."""
        return all(rank.done for rank in self.ranks)

    def heard(self, event: RankEvent, now: float) -> TypeGuard[TrialEvent]:
        """Take an event of a rank; True when the caller should see it."""
        number = event["rank"]
        assert number is not None, "only a client reports failures without a rank"
        rank = self.ranks[number]
        if event["kind"] == "state":
            rank.stopped = event["stopped"]
            return False
        rank.heard_at = now
        rank.num_heard += 1
        match event["kind"]:
            case "opened":
                rank.opened = True
                rank.last_report = "that its bench is open"
                self.opened_at = now if all(rank.opened for rank in self.ranks) else None
            case "done":
                rank.done = rank.idle = True
                self._check_complete(now)
            case "gone":
                rank.trouble = rank.trouble or _Trouble(now, "lost", False, event["message"])
            case "broken":
                rank.sticky = event["sticky"]
                rank.idle = not rank.sticky
                rank.trouble = rank.trouble or _Trouble(now, event["stage"], event["witness"], event["message"])
            case "stage" | "sample" | "result" | "failure":
                return self._heard_of_trial(rank, event, now)
        return False

    def _heard_of_trial(self, rank: _RankState, event: TrialEvent, now: float) -> bool:
        trial = event["trial"]
        rank.trial, rank.compiles = trial, event["kind"] == "stage" and event["stage"] in _COMPILES
        if event["kind"] == "stage":
            which = f", trial {event['number']} of {event['of']}" if "number" in event else ""
            rank.last_report = f"the beginning of stage {event['stage']}{which}"
        elif event["kind"] == "sample":
            rank.last_report = f"sample {event['index']}"
            self.sampled.add(trial)
        elif event["kind"] == "result":
            rank.last_report = "a result"
            rank.settled.add(trial)
        elif event["stage"] in _POISON:
            rank.trouble = rank.trouble or _Trouble(now, event["stage"], event["stage"] == "hang", event["message"])
            return False
        else:
            rank.last_report = f"a failure of stage {event['stage']}"
            rank.settled.add(trial)
            self.failed.add(trial)
        return True

    def _check_complete(self, now: float) -> None:
        """At the end of the list, check that every trial has a result of every rank or a failure of one."""
        for rank in self.ranks if self.done else []:
            missing = [trial for trial in self.trials if trial not in rank.settled and trial not in self.failed]
            if missing:
                message = f"it ended its list without a result for {len(missing)} of {len(self.trials)} trials"
                rank.trouble = rank.trouble or _Trouble(now, "launch", False, message)

    # verdicts

    def verdict(self, now: float) -> Blame | None:
        """Who broke the gang, or None while it may still finish."""
        troubled = [rank for rank in self.ranks if rank.trouble]
        roots = [rank for rank in troubled if rank.trouble and not rank.trouble.witness]
        if roots:
            return self._guilty(min(roots, key=_when))
        if troubled:  # witnesses only
            first = min(troubled, key=_when)
            if now - _when(first) < GRACE_S:
                return None
            quiet = [rank for rank in self.ranks if not rank.trouble and not rank.done]
            return self._silent(quiet, now, first) if quiet else self._guilty(first)
        return self._overdue(now)

    def _overdue(self, now: float) -> Blame | None:
        if self.started_at is None:
            return None
        busy = [rank for rank in self.ranks if not rank.done]
        since, more_s = (0.0, OPENING_S) if self.opened_at is None else (self.opened_at, 0.0)
        if any(now - max(rank.heard_at, since) > self._allowed_s(rank) + more_s for rank in busy):
            return self._silent(busy, now)
        late = now - self.started_at > OPENING_S + self.limits.total_s
        return self._endless(busy, now - self.started_at) if busy and late else None

    def _allowed_s(self, rank: _RankState) -> float:
        """How long *rank* may be silent after its last report, s."""
        return max(self.limits.silence_s, self.limits.compiling_s) if rank.compiles else self.limits.silence_s

    def _endless(self, ranks: list[_RankState], seconds: float) -> Blame:
        rank = min(ranks, key=lambda rank: rank.num_heard)
        message = (
            f"{rank.label} does not come to an end. After {seconds:.1f} s it reported {rank.last_report}, but its list "
            f"of {len(self.trials)} trials may take {self.limits.total_s:.1f} s, and its opening {OPENING_S:.0f} s."
        )
        return Blame(self.ranks.index(rank), "hang", self._trial_of(rank), message)

    def _silent(self, ranks: list[_RankState], now: float, witness: _RankState | None = None) -> Blame:
        rank = min(ranks, key=lambda rank: (not rank.stopped, rank.num_heard, rank.heard_at))
        state = "its process is stopped" if rank.stopped else "it does not answer"
        message = (
            f"{rank.label} hung: {state}. It last reported {rank.last_report}, {now - rank.heard_at:.1f} s ago; the "
            f"deadline is {self._allowed_s(rank):.1f} s."
        )
        if witness is not None and witness.trouble is not None:
            message += f" {witness.label} saw: {witness.trouble.message}"
        elif len(ranks) > 1:
            others = [f"{other.label} after {other.last_report}" for other in ranks if other is not rank]
            message += f" Waiting too: {', '.join(others)}."
        return Blame(self.ranks.index(rank), "hang", self._trial_of(rank), message)

    def _guilty(self, rank: _RankState) -> Blame:
        assert rank.trouble is not None
        if rank.trouble.stage == "refused":  # no rank and no trial did anything wrong
            return Blame(None, "refused", None, rank.trouble.message)
        message = f"{rank.label}: {rank.trouble.message}; it last reported {rank.last_report}."
        return Blame(self.ranks.index(rank), rank.trouble.stage, self._trial_of(rank), message)

    def lost(self, number: int, message: str) -> Blame:
        """The verdict when the broker reports that a rank's worker is gone."""
        rank = self.ranks[number]
        return Blame(number, "lost", self._trial_of(rank), f"{message} It last reported {rank.last_report}.")

    def _trial_of(self, rank: _RankState) -> str | None:
        """The rank's current trial: the one that it reported last, or the first that is not settled."""
        if self.opened_at is None:
            return None
        pending = [trial for trial in self.trials if trial not in rank.settled and trial not in self.failed]
        return rank.trial if rank.trial in pending else next(iter(pending), None)

    # news

    def waits_s(self, now: float) -> float:
        """Seconds since the last report of the rank that has been silent for longest; 0 before the grant."""
        busy = [rank.heard_at for rank in self.ranks if not rank.done]
        return now - min(busy) if busy and self.started_at is not None else 0.0

    def waits_for(self, now: float) -> str:
        """The ranks that keep the others waiting, and why: stopped processes, and benches that are late to open."""
        stopped = [f"the process of {rank.label} is stopped" for rank in self.ranks if rank.stopped and not rank.done]
        late = [
            f"{rank.label} has not opened its bench"
            for rank in self.ranks
            if self.opened_at is None and not rank.opened and not rank.stopped and now - rank.heard_at > REPORTED_S
        ]
        return "; ".join([*stopped, *late][:REPORTED_MOST])

    # consequences

    def unsure(self, verdict: Blame) -> list[int]:
        """The ranks, other than the guilty one, that have not reported yet that they are idle."""
        return [number for number, rank in enumerate(self.ranks) if number != verdict.rank and not rank.idle]

    def _pending(self) -> list[str]:
        settled = [set(rank.settled) for rank in self.ranks]
        everywhere = set.intersection(*settled) if settled else set()
        return [trial for trial in self.trials if trial not in everywhere and trial not in self.failed]

    def again(self, verdict: Blame) -> list[str]:
        """Trials that another gang may run at once: all of a list that no rank had begun.

        Interleaved trials end together; `workbench/experiment/retries.py` requests those again.
        """
        is_idle = verdict.trial is None and verdict.stage == "lost" and self._unbegun()
        return self._pending() if self.forgiving and is_idle else []

    def _unbegun(self) -> bool:
        return self.started_at is not None and self.opened_at is None

    def failures(self, verdict: Blame) -> list[FailureEvent]:
        """One failure event for each trial that ends here without a result of every rank."""
        again = set(self.again(verdict))
        failures = []
        for trial in self._pending():
            if trial in again:
                continue
            stage, message = verdict.stage, verdict.message
            if verdict.trial not in (None, trial):
                stage = "cancelled"
                message = f"Not measured: a trial timed with it broke the gang ({verdict.stage}): {message}"
            failures.append(FailureEvent(kind="failure", trial=trial, rank=verdict.rank, stage=stage, message=message))
        return failures


def _when(rank: _RankState) -> float:
    assert rank.trouble is not None
    return rank.trouble.at
