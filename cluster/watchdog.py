"""What went wrong in a gang, decided from what its ranks reported and when: pure, without a clock or a socket.

`Watchdog` hears every event of an attempt and blames: which rank is guilty, of which trial, and what to do with
the others. The first rank that failed by itself is guilty. A rank that only saw a peer vanish or not answer is a
witness; then guilty is who was silent. When a rank says nothing for `silence_s`, guilty is the stopped process, or who
got least far. Ranks report each trial that they compile; until the next report they may be silent for `compiling_s`.
A list that goes on talking ends, too, once it takes longer than `total_s`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeGuard

from kernels.events import FailureEvent, RankEvent, TrialEvent

OPENING_S = 30.0
"""What a cold gang may take beside the deadline: starting the tasks, building the heap and the process group."""
WAIT_S = 600.0
"""Who is granted no ranks within this time gives up, unless another limit was stated."""
GRACE_S = 0.25
"""So long after a witness the cause may still be reported."""
PATIENCE = 0.8
"""Ranks wait for each other for this share of the deadline, so that their more exact sentence comes first."""

_POISON = frozenset({"launch", "hang", "lost"})
"""Stages after which a rank process cannot be trusted; the others only concern their trial."""
_COMPILES = frozenset({"open", "compile", "timeline"})
"""Stages that begin with a compilation, or with what all ranks open together: no report can come before its end."""


@dataclass(frozen=True, slots=True)
class Deadlines:
    """How long a rank may say nothing, and how long a list of trials may take beside the opening of the benches."""

    silence_s: float
    total_s: float
    compiling_s: float = 0.0
    """How long it may say nothing while it compiles one trial, where that is longer."""
    expected_s: float | None = None
    """How long the list is expected to take; None where nobody can say."""
    wait_s: float = WAIT_S
    """How long one waits for ranks."""


@dataclass(frozen=True, slots=True)
class Blame:
    """Who broke the gang. `trial` is None when it was no trial's fault: then all of them end, or all try again."""

    rank: int | None
    """None when it was no rank's fault."""
    stage: str
    trial: str | None
    sentence: str


@dataclass(frozen=True, slots=True)
class _Trouble:
    at: float
    stage: str
    witness: bool
    sentence: str


@dataclass(slots=True)
class _RankState:
    label: str
    heard_at: float
    num_heard: int = 0
    trial: str | None = None
    words: str = "nothing"
    compiles: bool = False
    """Whether it began a compilation with its last report."""
    opened: bool = False
    done: bool = False
    stopped: bool = False
    settled: set[str] = field(default_factory=set)
    """Trials with a result or a failure of this rank."""
    trouble: _Trouble | None = None
    sticky: bool = False
    """It is of no use any more, and its peers are not to blame: they live on."""
    idle: bool = False
    """It came to the end of its list, or out of it, and waits for orders."""


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
        """When the last rank opened its bench; until then nobody is expected to get on."""
        self.failed: set[str] = set()
        """Trials whose failure the caller has seen."""
        self.sampled: set[str] = set()

    def begin(self, labels: Sequence[str], now: float) -> None:
        """The gang is granted: from now on time counts. `labels` are what people call the ranks."""
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
        assert number is not None, "only a client tells failures that are no rank's"
        rank = self.ranks[number]
        if event["kind"] == "state":
            rank.stopped = event["stopped"]
            return False
        rank.heard_at = now
        rank.num_heard += 1
        match event["kind"]:
            case "opened":
                rank.opened = True
                rank.words = "that its bench is open"
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
            rank.words = f"the beginning of stage {event['stage']}{which}"
        elif event["kind"] == "sample":
            rank.words = f"sample {event['index']}"
            self.sampled.add(trial)
        elif event["kind"] == "result":
            rank.words = "a result"
            rank.settled.add(trial)
        elif event["stage"] in _POISON:
            rank.trouble = rank.trouble or _Trouble(now, event["stage"], event["stage"] == "hang", event["message"])
            return False
        else:
            rank.words = f"a failure of stage {event['stage']}"
            rank.settled.add(trial)
            self.failed.add(trial)
        return True

    def _check_complete(self, now: float) -> None:
        """At the end every trial has a result of every rank or a failure of one."""
        for rank in self.ranks if self.done else []:
            missing = [trial for trial in self.trials if trial not in rank.settled and trial not in self.failed]
            if missing:
                sentence = f"it ended its list without a result for {len(missing)} of {len(self.trials)} trials"
                rank.trouble = rank.trouble or _Trouble(now, "launch", False, sentence)

    # verdicts

    def verdict(self, now: float) -> Blame | None:
        """Who broke the gang, or None while there is hope."""
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
        waited = [rank for rank in self.ranks if not rank.done]
        since, more_s = (0.0, OPENING_S) if self.opened_at is None else (self.opened_at, 0.0)
        if any(now - max(rank.heard_at, since) > self._allowed_s(rank) + more_s for rank in waited):
            return self._silent(waited, now)
        late = now - self.started_at > OPENING_S + self.limits.total_s
        return self._endless(waited, now - self.started_at) if waited and late else None

    def _allowed_s(self, rank: _RankState) -> float:
        """How long *rank* may say nothing after what it reported last."""
        return max(self.limits.silence_s, self.limits.compiling_s) if rank.compiles else self.limits.silence_s

    def _endless(self, ranks: list[_RankState], seconds: float) -> Blame:
        rank = min(ranks, key=lambda rank: rank.num_heard)
        sentence = (
            f"{rank.label} does not come to an end. After {seconds:.1f} s it reported {rank.words}, but its list "
            f"of {len(self.trials)} trials may take {self.limits.total_s:.1f} s, and its opening {OPENING_S:.0f} s."
        )
        return Blame(self.ranks.index(rank), "hang", self._trial_of(rank), sentence)

    def _silent(self, ranks: list[_RankState], now: float, witness: _RankState | None = None) -> Blame:
        rank = min(ranks, key=lambda rank: (not rank.stopped, rank.num_heard, rank.heard_at))
        what = "its process is stopped" if rank.stopped else "it does not answer"
        sentence = (
            f"{rank.label} hung: {what}. It last reported {rank.words}, {now - rank.heard_at:.1f} s ago; the "
            f"deadline is {self._allowed_s(rank):.1f} s."
        )
        if witness is not None and witness.trouble is not None:
            sentence += f" {witness.label} saw: {witness.trouble.sentence}"
        elif len(ranks) > 1:
            others = [f"{other.label} after {other.words}" for other in ranks if other is not rank]
            sentence += f" Waiting too: {', '.join(others)}."
        return Blame(self.ranks.index(rank), "hang", self._trial_of(rank), sentence)

    def _guilty(self, rank: _RankState) -> Blame:
        assert rank.trouble is not None
        if rank.trouble.stage == "refused":  # no rank and no trial did anything wrong
            return Blame(None, "refused", None, rank.trouble.sentence)
        sentence = f"{rank.label}: {rank.trouble.sentence}; it last reported {rank.words}."
        return Blame(self.ranks.index(rank), rank.trouble.stage, self._trial_of(rank), sentence)

    def lost(self, number: int, sentence: str) -> Blame:
        """The verdict when the broker says that a rank's worker is gone."""
        rank = self.ranks[number]
        return Blame(number, "lost", self._trial_of(rank), f"{sentence} It last reported {rank.words}.")

    def _trial_of(self, rank: _RankState) -> str | None:
        """The trial that the rank was at: the one it spoke of last, or the first that is not settled."""
        if self.opened_at is None:
            return None
        pending = [trial for trial in self.trials if trial not in rank.settled and trial not in self.failed]
        return rank.trial if rank.trial in pending else next(iter(pending), None)

    # consequences

    def unsure(self, verdict: Blame) -> list[int]:
        """Where only the guilty rank is to be replaced: the others that have not said yet that they are idle."""
        return [number for number, rank in enumerate(self.ranks) if number != verdict.rank and not rank.idle]

    def _pending(self) -> list[str]:
        settled = [set(rank.settled) for rank in self.ranks]
        everywhere = set.intersection(*settled) if settled else set()
        return [trial for trial in self.trials if trial not in everywhere and trial not in self.failed]

    def again(self, verdict: Blame) -> list[str]:
        """Trials that another gang may try at once: all of a list that no rank had begun. What is timed in turns ends
        together, and whoever asked for it asks again (workbench/experiment/retries.py)."""
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
            stage, message = verdict.stage, verdict.sentence
            if verdict.trial not in (None, trial):
                stage = "cancelled"
                message = f"Not measured: a trial timed beside it broke the gang ({verdict.stage}): {message}"
            failures.append(FailureEvent(kind="failure", trial=trial, rank=verdict.rank, stage=stage, message=message))
        return failures


def _when(rank: _RankState) -> float:
    assert rank.trouble is not None
    return rank.trouble.at
