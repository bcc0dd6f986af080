"""What was broken off when a gang lost a rank runs again by itself: which trials, how often, and what is told of it.

A block is timed in turns, so that a rank's death ends all of it. The trials beside the one that was timed just then are
asked for again in a block of their own, with baselines of their own. The one itself may be to blame: it runs once more,
alone. A trial that fails by itself (it hangs, its result is wrong) does not run again.
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
"""So often in a row a block is asked for again of which nothing came."""
ALONE_MOST = 1
"""So often a trial at which a rank died is asked for again, alone."""
NEVER_RAN = frozenset({"lost", "launch", "cancelled", "refused"})
"""Stages of what came to no end of its own."""


@dataclass(slots=True)
class RetryReport:
    """What a person is told of the trials of a run that ran again."""

    attempts: Counter[str] = field(default_factory=Counter)
    """By key: how often it was broken off."""
    trials: dict[str, Trial] = field(default_factory=dict)
    causes: dict[str, str] = field(default_factory=dict)
    """By key: what broke its gang, the last time."""
    in_vain: set[str] = field(default_factory=set)
    """Keys of what still did not run."""

    def __str__(self) -> str:
        """A clause for the progress of a run."""
        return f"{len(self.trials):,} run again after a rank was lost" if self.trials else ""

    def sentence(self) -> str:
        """What ran again, why, and what did not; nothing where all went well."""
        if not self.trials:
            return ""
        causes = list(dict.fromkeys(self.causes.values()))
        more = f" {len(causes) - 1} more such {'cause' if len(causes) == 2 else 'causes'}." if len(causes) > 1 else ""
        count, vain = len(self.trials), len(self.in_vain)
        then = f"; {count - vain:,} ran again, {vain:,} did not" if vain else ", and ran again"
        were = "trial was" if count == 1 else "trials were"
        return f"{count:,} {were} broken off when a rank was lost{then}. {causes[0]}{more}"

    def settle(self, outcome: Outcome) -> None:
        """What came of a trial in the end."""
        key = outcome.trial.key
        if key in self.trials and isinstance(outcome, Failure) and outcome.stage in NEVER_RAN:
            self.in_vain.add(key)

    def to_json(self) -> list[dict[str, Any]]:
        """Each of them."""
        return [
            {"key": key, "scheme": trial.schedule.scheme, "axes": dict(trial.schedule.axes), "part": trial.part,
             "broken_off": self.attempts[key], "message": self.causes[key], "in_vain": key in self.in_vain}
            for key, trial in self.trials.items()
        ]  # fmt: skip

    def add(self, trial: Trial, cause: str) -> None:
        """*trial* was broken off by *cause*."""
        self.attempts[trial.key] += 1
        self.trials[trial.key], self.causes[trial.key] = trial, cause


class Retries:
    """Of one list of trials that is asked for block by block."""

    def __init__(self, record: RetryReport) -> None:
        self.told = record
        self._together: list[Trial] = []
        self._alone: list[Trial] = []
        self._times_alone: Counter[str] = Counter()
        self._fruitless = 0
        self.has_begun = False
        """Whether what is asked for now runs again."""
        self._spoilt: set[str] = set()
        """Baselines that failed by themselves: they would break the next block, too."""

    def final(self, block: Block, broken_off: Sequence[Failure], outcomes: Iterable[Outcome]) -> list[Failure]:
        """Those of *broken_off* that stay what they are; the others are in the next `groups`.

        *outcomes* is all else that came of *block*. What only stood beside its schedules is asked for with these.
        """
        if not broken_off:
            return []
        wanted = {trial.key for trial in block.schedules or block.baselines}
        came = list(outcomes)
        self._spoilt |= {one.trial.key for one in came if isinstance(one, Failure) and one.trial.key not in wanted}
        self._fruitless = 0 if any(one.trial.key in wanted for one in came) else self._fruitless + 1
        lost = [failed for failed in broken_off if failed.stage == "lost"]
        suspect = lost[0].trial.key if len(lost) == 1 else None  # all of them lost: nobody knows whose fault it was
        cause = (lost or broken_off)[0].message
        ended = []
        for failed in broken_off:
            if failed.trial.key in wanted:
                self.told.add(failed.trial, cause)
                if not self._try(failed.trial, failed.trial.key == suspect):
                    ended.append(failed)
        if not (self._together or self._alone):
            ended += [failed for failed in broken_off if failed.trial.key not in wanted]
        return [_given_up(failed, self.told.attempts[failed.trial.key]) for failed in ended]

    def _try(self, trial: Trial, is_suspect: bool) -> bool:
        """Whether it runs again."""
        if self._fruitless > FRUITLESS_MOST or (is_suspect and self._times_alone[trial.key] >= ALONE_MOST):
            return False
        self._times_alone[trial.key] += is_suspect
        (self._alone if is_suspect else self._together).append(trial)
        return True

    def groups(self) -> list[list[Trial]]:
        """What is to be asked for now, each group in blocks of its own; nothing once all is settled."""
        groups = [self._together, *([trial] for trial in self._alone)]
        self._together, self._alone, self.has_begun = [], [], True
        return [group for group in groups if group]

    def without_spoilt(self, block: Block) -> Block:
        """*block* but for the baselines that broke one before."""
        return replace(block, baselines=tuple(one for one in block.baselines if one.key not in self._spoilt))


def is_broken_off(outcome: Outcome) -> bool:
    """Whether *outcome* is the end of a gang rather than of its trial, as far as nobody stopped the run."""
    if not isinstance(outcome, Failure):
        return False
    return outcome.stage == "cancelled" or (outcome.stage == "lost" and outcome.rank is not None)


def _given_up(failed: Failure, attempts: int) -> Failure:
    """It did not run: a failure, and nothing that a person cancelled."""
    tries = f"Broken off {attempts} times. " if attempts > 1 else ""
    return replace(failed, stage="lost", message=f"{tries}{failed.message}")
