"""How a row differs from the one that a person pinned as baseline: signed time, what the verdict says, what else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from kernels.schemes import BASELINE
from kernels.units import percent_text, ratio_text, seconds_text
from workbench.naming import TIMED, axis_title, baseline_title, column_title, schedule_title, shape_title
from workbench.results import verdict
from workbench.results.rows import PLACE, Key, Row, is_timed_whole, problem_of, question_of

# A signed difference: below zero is faster.

PINNED, WITHIN_NOISE = "baseline", "within noise"
"""Words in addition to those of the verdict: of the pinned row, and of rows whose rounds differ only by chance."""
IDENTITY = ("run", "key", "block", "source", "scheme", "axes")
"""The columns that tell one row from all others; estimates of a space have the last three alone."""
APART = "two blocks"
"""What a difference rests on where the rounds of both were not paired, and no baseline is common."""
SHARES = "shares of"
"""Begins what a difference rests on where both have a baseline in common, each in its block."""
SAME = 1e-6
"""A smaller share is a difference of the last digits."""
BOTH_ESTIMATED = "both estimated"
"""The word of two estimates. Where one of both is one, the word names both sources: `measured against estimated`."""


@dataclass(frozen=True, slots=True)
class Delta:
    """The signed difference of a row to the pinned baseline."""

    word: str
    """`faster`, `slower`, WITHIN_NOISE, `not certain`, `not compared`, PINNED, or which sources both have, since an
    estimate has no verdict."""
    why: str
    """The numbers behind *word*, or what is missing; without a full stop."""
    share: float | None = None
    """Difference as a share of the baseline: -0.1 is 10 % less time. None where one has no time, or of two problems."""
    seconds: float | None = None
    """The same in seconds at the baseline's time; None between blocks of one place, whose seconds do not compare."""
    basis: str = ""
    """What *share* rests on where it is not the rounds that both ran in turns; empty otherwise."""

    @property
    def percent(self) -> str:
        """The share as text with its sign: `-31 %`; empty where there is none."""
        return "" if self.share is None or self.word == PINNED else percent_text(self.share, "+" if self.share else "")

    @property
    def time(self) -> str:
        """The seconds as text with their sign: `-26.5 ms`; empty where there are none."""
        if self.seconds is None or self.word == PINNED:
            return ""
        return f"{'+' if self.seconds > 0 else ''}{seconds_text(self.seconds)}"

    @property
    def remark(self) -> str:
        """The word, and what the share rests on: `not compared: shares of sequential`."""
        return ": ".join(filter(None, (self.word, self.basis)))

    @property
    def text(self) -> str:
        """All in short: `-26.5 ms (-31 %), faster`."""
        number = f"{self.time} ({self.percent})" if self.time else self.percent
        return ", ".join(filter(None, (number, self.remark)))

    def sentence(self, name: str) -> str:
        """The difference as a sentence about the schedule *name*."""
        if self.word == PINNED:
            return f"{name} is the baseline."
        if self.share is None:
            return f"{name} cannot be compared with the baseline: {self.why}."
        if abs(self.share) < SAME:
            return f"{name} takes as long as the baseline, {self.word}: {self.why}."
        time, percent = self.time.lstrip("+-"), self.percent.lstrip("+-")
        size, less = f"{time} ({percent})" if time else percent, "less" if self.share < 0 else "more"
        if self.word in (verdict.FASTER, verdict.SLOWER):
            return f"{name} is {size} {self.word} than the baseline: {self.why}."
        # the two times may differ by another share than those of their blocks' sequential schedules
        by = f" by {SHARES} {BASELINE}" if self.basis.startswith(SHARES) else ""
        return f"{name} has {size} {less} time than the baseline{by}, {self.word}: {self.why}."


@dataclass(frozen=True, slots=True)
class Pinned:
    """A row that all others are compared with, and the sequential schedules of all blocks, which blocks have in
    common."""

    row: Row
    question: Key
    """The problem of *row*."""
    bases: Mapping[Key, Mapping[str, Row]]
    """By problem and block, the row of each sequential schedule."""

    @classmethod
    def of(cls, row: Row, rows: Iterable[Row] = ()) -> Pinned:
        """*row* as baseline of *rows*; ValueError where it has no time."""
        if row.get("time_s") is None:
            schedule = schedule_title(str(row.get("scheme")), row.get("axes") or {})
            raise ValueError(f"{schedule} cannot be the baseline: it has no time, it is a failure "
                             f"({row.get('stage') or 'unknown'}). Accepted: a row with a time.")  # fmt: skip
        bases: dict[Key, dict[str, Row]] = {}
        for each in (row, *rows):
            if each.get("scheme") == BASELINE and is_timed_whole(each):
                bases.setdefault(_place(each), {}).setdefault(_axes(each), each)
        return cls(row, question_of(row), bases)

    def is_of(self, rows: Sequence[Row]) -> bool:
        """Whether *rows*, which are of one problem, are of that of the baseline."""
        return bool(rows) and question_of(rows[0]) == self.question

    def delta(self, row: Row) -> Delta:
        """The difference of *row* to the pinned one. Only rows of one block have a verdict; others say on what the
        number rests.

        The share inside a block is the centre of the ratios of paired rounds, on which the verdict rests: it may
        differ a little from the ratio of the two medians.
        """
        if is_same(row, self.row):
            return Delta(PINNED, "it is the baseline", 0.0, 0.0)
        if row.get("time_s") is None:
            return Delta(verdict.NOT_COMPARED, f"it has no time: {row.get('stage') or 'unknown'}")
        if question_of(row) != self.question:
            return Delta(verdict.NOT_COMPARED, "the baseline is of another problem")
        if row.get("source") not in TIMED or self.row.get("source") not in TIMED:
            return self._of_estimates(row)
        decided = verdict.decide(row, self.row)
        return self._apart(row) if decided.word == verdict.NOT_COMPARED else self._paired(row, decided)

    def _paired(self, row: Row, decided: verdict.Verdict) -> Delta:
        base_s = float(self.row["time_s"])
        share = (1 / decided.ratio if decided.ratio else float(row["time_s"]) / base_s) - 1
        is_noise = decided.low is not None and decided.high is not None and decided.low <= 1 <= decided.high
        word = WITHIN_NOISE if is_noise and not decided.is_certain else decided.word
        return Delta(word, decided.why, share, share * base_s)

    def _apart(self, row: Row) -> Delta:
        """The difference of two rows that took no turns: as shares of a common baseline if they have one."""
        if other_place := self._elsewhere(row, PLACE):
            return self._plain(row, other_place, f"timed with {other_place}")
        here, there = self.bases.get(_place(self.row), {}), self.bases.get(_place(row), {})
        common = min(here.keys() & there, key=lambda axes: float(here[axes]["time_s"]), default=None)
        if common is None:
            return self._plain(row, APART, "timed in two blocks, not in turns, without a common sequential schedule")
        shares = [float(of["time_s"]) / float(base["time_s"])
                  for of, base in ((row, there[common]), (self.row, here[common]))]  # fmt: skip
        how = ", ".join(filter(None, (BASELINE, baseline_title(here[common].get("axes")))))
        own_blocks = f"{ratio_text(shares[0])} against {ratio_text(shares[1])} of {how} in its own block"
        why = f"timed in two blocks, not in turns, {own_blocks}"
        return Delta(verdict.NOT_COMPARED, why, shares[0] / shares[1] - 1, basis=f"{SHARES} {how}")

    def _of_estimates(self, row: Row) -> Delta:
        """The difference where not both were timed: the word says which is what, and that is no verdict."""
        sources = [str(each.get("source")) for each in (row, self.row)]
        both = set(sources) == {"estimated"}
        word = BOTH_ESTIMATED if both else " against ".join(sources)
        why = "neither was timed" if both else "an estimate has no rounds, so that nothing is certain"
        other_place = self._elsewhere(row, PLACE[:2])  # an estimate is of no protocol
        delta = self._plain(row, other_place, f"{why}; with {other_place}" if other_place else why)
        return replace(delta, word=word)

    def _elsewhere(self, row: Row, place: Sequence[str]) -> str:
        """The first of the columns *place* in which *row* is elsewhere: `another machine`; empty where it is not."""
        elsewhere = [key for key in place if problem_of({**self.row, key: row.get(key)}) != problem_of(self.row)]
        return f"another {column_title(elsewhere[0]).lower()}" if elsewhere else ""

    def _plain(self, row: Row, basis: str, why: str) -> Delta:
        base_s = float(self.row["time_s"])
        seconds = None if basis == APART else float(row["time_s"]) - base_s
        return Delta(verdict.NOT_COMPARED, why, float(row["time_s"]) / base_s - 1, seconds, basis)


def pinned_of(pinned: Pinned | None, rows: Sequence[Row]) -> Pinned | None:
    """*pinned*, if it is of the problem of *rows*."""
    return pinned if pinned is not None and pinned.is_of(rows) else None


def is_same(row: Row, other: Row) -> bool:
    """Whether both are one stored row."""
    return all(row.get(key) == other.get(key) for key in IDENTITY)


def _place(row: Row) -> Key:
    """Key of the rows of one problem that took turns."""
    return row.get("block") or row.get("run"), *problem_of(row)


def _axes(row: Row) -> str:
    return str(sorted((row.get("axes") or {}).items()))


# What differs between two rows, and nothing else.

WHAT = ("operator", "dtype", "world", "scheme", "backend", *PLACE, "part", "source", "source_print")
RUN = ("host", "cpu", "cores", "git_commit", "machine_digest")
"""Facts of a run's provenance that a time depends on, besides its versions."""


class Difference(NamedTuple):
    """One thing in which two rows differ; a value is None where a row does not have it."""

    key: str
    """Name for machines: a column, a size, an axis, or a package."""
    name: str
    """Name for people."""
    first: Any
    second: Any


def differences(
    first: Row, second: Row, provenances: tuple[Mapping[str, Any], Mapping[str, Any]] = ({}, {})
) -> list[Difference]:
    """What differs between two rows: problem, schedule, place and hardware, then versions of their runs'
    *provenances*."""
    pairs = [(key, column_title(key), first.get(key), second.get(key)) for key in WHAT]
    for column, title in (("shape", shape_title), ("axes", axis_title), ("hardware", column_title)):
        pairs += _entries(first.get(column), second.get(column), title)
    one, other = provenances
    pairs += [(key, column_title(key), one.get(key), other.get(key)) for key in RUN]
    pairs += _entries(one.get("versions"), other.get("versions"), str)
    return [Difference(*pair) for pair in pairs if pair[2] != pair[3]]


def _entries(first: Any, second: Any, title: Any) -> list[tuple[str, str, Any, Any]]:
    """The entries of two tables side by side, with the title of each name."""
    one, other = first or {}, second or {}
    return [(name, title(name), one.get(name), other.get(name)) for name in {**one, **other}]
