"""Retries of trials that were interrupted when a gang lost a rank: which trials, how often, and the report about them.

A block is timed interleaved, so that the loss of a rank ends all of it. The trial that was timed may be the cause:
it runs once more, alone. The others run again in a block of their own with their own baselines. A trial that fails by
itself (it hangs, its result is wrong) does not run again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kernels.outcome import Failure, Outcome

if TYPE_CHECKING:
    from kernels.trial import Trial
    from workbench.experiment.experiment import Block

FRUITLESS_MOST = 5
"""The most retries in a row of blocks that gave no outcome."""
ALONE_MOST = 1
"""The most retries, alone, of a trial during which a rank died."""
NEVER_RAN = frozenset({"lost", "launch", "cancelled", "refused"})
"""Failure stages of trials that did not run to their own end."""


@dataclass(slots=True)
class RetryReport:
    """The trials of a run that ran again, for people and for the store."""

    attempts: Counter[str] = field(default_factory=Counter)
    """Number of interruptions by key."""
    trials: dict[str, Trial] = field(default_factory=dict)
    causes: dict[str, str] = field(default_factory=dict)
    """The last cause of an interruption by key."""
    in_vain: set[str] = field(default_factory=set)
    """Keys of trials that did not run in the end."""

    def __str__(self) -> str:
        """The part of a run's progress line about retries."""
        return f"{len(self.trials):,} run again after a rank was lost" if self.trials else ""

    def message(self) -> str:
        """Which trials ran again, why, and which did not; empty where none was interrupted."""
        if not self.trials:
            return ""
        causes = list(dict.fromkeys(self.causes.values()))
        more = f" {len(causes) - 1} more such {'cause' if len(causes) == 2 else 'causes'}." if len(causes) > 1 else ""
        count, vain = len(self.trials), len(self.in_vain)
        then = f"; {count - vain:,} ran again, {vain:,} did not" if vain else ", and ran again"
        were = "trial was" if count == 1 else "trials were"
        return f"{count:,} {were} broken off when a rank was lost{then}. {causes[0]}{more}"

    def settle(self, outcome: Outcome) -> None:
        """Records the final outcome of a trial."""
        key = outcome.trial.key
        if key in self.trials and isinstance(outcome, Failure) and outcome.stage in NEVER_RAN:
            self.in_vain.add(key)

    def to_json(self) -> list[dict[str, Any]]:
        """One entry per interrupted trial."""
        return [
            {"key": key, "scheme": trial.schedule.scheme, "axes": dict(trial.schedule.axes), "part": trial.part,
             "broken_off": self.attempts[key], "message": self.causes[key], "in_vain": key in self.in_vain}
            for key, trial in self.trials.items()
        ]  # fmt: skip

    def add(self, trial: Trial, cause: str) -> None:
        """Records that *cause* interrupted *trial*."""
        self.attempts[trial.key] += 1
        self.trials[trial.key], self.causes[trial.key] = trial, cause


class Retries:
    """The retries of one list of trials that is measured block by block."""

    def __init__(self, report: RetryReport) -> None:
        self.report = report
        self._together: list[Trial] = []
        self._alone: list[Trial] = []
        self._times_alone: Counter[str] = Counter()
        self._fruitless = 0
        self.has_begun = False
        """Whether the blocks measured now are retries."""
        self._spoilt: set[str] = set()
        """Keys of baselines that failed by themselves: they would fail in the next block, too."""

    def final(self, block: Block, broken_off: Sequence[Failure], outcomes: Iterable[Outcome]) -> list[Failure]:
        """The failures of *broken_off* that are final; the other trials are in the next `groups`.

        *outcomes* are all other outcomes of *block*. Its baselines and parts run again together with its schedules.
        """
        if not broken_off:
            return []
        wanted = {trial.key for trial in block.schedules or block.baselines}
        settled = list(outcomes)
        self._spoilt |= {one.trial.key for one in settled if isinstance(one, Failure) and one.trial.key not in wanted}
        self._fruitless = 0 if any(one.trial.key in wanted for one in settled) else self._fruitless + 1
        lost = [failed for failed in broken_off if failed.stage == "lost"]
        suspect = lost[0].trial.key if len(lost) == 1 else None  # all of them lost: the cause is unknown
        cause = (lost or broken_off)[0].message
        ended = []
        for failed in broken_off:
            if failed.trial.key in wanted:
                self.report.add(failed.trial, cause)
                if not self._try(failed.trial, failed.trial.key == suspect):
                    ended.append(failed)
        if not (self._together or self._alone):
            ended += [failed for failed in broken_off if failed.trial.key not in wanted]
        return [_given_up(failed, self.report.attempts[failed.trial.key]) for failed in ended]

    def _try(self, trial: Trial, is_suspect: bool) -> bool:
        """Queues *trial* for a retry; whether it may run again."""
        if self._fruitless > FRUITLESS_MOST or (is_suspect and self._times_alone[trial.key] >= ALONE_MOST):
            return False
        self._times_alone[trial.key] += is_suspect
        (self._alone if is_suspect else self._together).append(trial)
        return True

    def groups(self) -> list[list[Trial]]:
        """The trials to retry now, each group in blocks of its own; empty once all are settled."""
        groups = [self._together, *([trial] for trial in self._alone)]
        self._together, self._alone, self.has_begun = [], [], True
        return [group for group in groups if group]

    def without_spoilt(self, block: Block) -> Block:
        """*block* without the baselines that failed by themselves."""
        return replace(block, baselines=tuple(one for one in block.baselines if one.key not in self._spoilt))


def is_broken_off(outcome: Outcome) -> bool:
    """Whether *outcome* is due to the loss of the gang rather than to its trial, unless a person stopped the run."""
    if not isinstance(outcome, Failure):
        return False
    return outcome.stage == "cancelled" or (outcome.stage == "lost" and outcome.rank is not None)


def _given_up(failed: Failure, attempts: int) -> Failure:
    """*failed* as the final failure of a trial that did not run, which is not one that a person cancelled."""
    tries = f"Broken off {attempts} times. " if attempts > 1 else ""
    return replace(failed, stage="lost", message=f"{tries}{failed.message}")
