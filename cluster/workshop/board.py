"""The class board: guesses of all by alias, hidden answers until the reveal, and verified schedules. Pure: no Dask.

An entry is a dictionary with the keys of `FIELDS`. Whoever speaks is known by an *owner*, a text that only their own
computer has: an alias belongs to its first owner.
"""

from __future__ import annotations

import math
import unicodedata
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kernels.outcome import Measurement

FIELDS = ("lesson", "question", "alias", "guess", "unit", "estimate", "measured", "source", "default", "at")
"""Keys of a guess: its lesson and question, who guessed what, and what was estimated and measured, with its source."""
ANSWERS = ("estimate", "measured", "source")
"""Keys that nobody else sees before the reveal."""
ALIAS_MOST, TEXT_MOST = 24, 200
"""The most characters of an alias, and of any other text."""
ALIASES_MOST = 3
"""The most aliases of one person, who may change their mind but not take all good names."""
ENTRIES_MOST = 20_000
"""The most guesses, schedules and aliases of a board: a program that runs wild must not fill the scheduler."""
BEST_MOST = 10
"""The most schedules that are shown for one problem."""

_LOOKALIKE = {"LATIN", "GREEK", "CYRILLIC", "ARMENIAN", "COPTIC", "CHEROKEE"}
"""Scripts with letters that look like those of another one, as the names of characters begin."""
_BLANKS = ("BLANK", "FILLER")
"""Ends of the names of characters that show nothing, and are no spaces."""

Entry = dict[str, Any]


@dataclass(frozen=True, slots=True)
class QuestionKind:
    """What a question takes: numbers in one unit, or one of its choices. One chart has all guesses of a question."""

    is_number: bool
    unit: str = ""
    choices: tuple[str, ...] = ()
    """Empty for a number, and where any text will do."""

    @classmethod
    def of(cls, entry: Entry) -> QuestionKind:
        """The kind of a question that no lesson has, by its first guess: a unit belongs to a number."""
        return cls(bool(entry["unit"]) or not isinstance(entry["guess"], str), entry["unit"])

    @property
    def accepted(self) -> str:
        """What a guess may be, in words."""
        if self.is_number:
            return f"a finite number in {self.unit or 'no unit'}"
        return f"one of {', '.join(self.choices)}" if self.choices else "a text without a unit"

    def refuse_other(self, entry: Entry) -> None:
        """ValueError with one sentence where the guess, an answer or the unit of *entry* is of another kind."""
        which = f"lesson {entry['lesson']}, {entry['question']!r}"
        for name in ("guess", "estimate", "measured"):
            value = entry[name]
            fits = isinstance(value, int | float) and not isinstance(value, bool) if self.is_number else (
                isinstance(value, str) and (not self.choices or name != "guess" or value in self.choices))  # fmt: skip
            if not fits and (name == "guess" or value is not None):
                raise ValueError(f"The {name} {str(value)[:40]!r} does not fit {which}. Accepted: {self.accepted}.")
        if entry["unit"] != self.unit:
            raise ValueError(f"The unit {entry['unit'][:40]!r} does not fit {which}, where all guesses are on one axis."
                             f" Accepted: {self.accepted}.")  # fmt: skip


Questions = Mapping[tuple[str, str], QuestionKind]
"""Kinds of the questions of all lessons, by lesson and name."""


@dataclass(frozen=True, slots=True)
class VerifiedSchedule:
    """A schedule of one person with its time, which ranks of this cluster measured, or the workbench looked up."""

    lesson: str
    alias: str
    key: str
    problem: str
    schedule: str
    time_s: float
    low_s: float
    high_s: float
    at: float

    @classmethod
    def of(cls, lesson: str, alias: str, measured: Measurement, at: float) -> VerifiedSchedule:
        """The schedule that was *measured*, of the person called *alias*."""
        return cls(
            lesson=lesson,
            alias=alias,
            key=measured.trial.key,
            problem=f"{measured.trial.problem.operator} {_sizes(measured)}",
            schedule=str(measured.trial.schedule),
            time_s=measured.time_s,
            low_s=measured.quantile_s(0.1),
            high_s=measured.quantile_s(0.9),
            at=at,
        )

    def to_json(self) -> Entry:
        return {name: getattr(self, name) for name in self.__slots__}


def _sizes(measured: Measurement) -> str:
    problem = measured.trial.problem
    return " ".join([*(f"{name}={size}" for name, size in problem.shape), problem.dtype, f"x{problem.world}"])


@dataclass(slots=True)
class Board:
    """All that the class has said so far."""

    name: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Changes when the board begins anew, so that clients say again what they said."""
    questions: Questions = field(default_factory=dict)
    """Those of the lessons; another question has the kind of its first guess."""
    _owners: dict[str, str] = field(default_factory=dict)
    """Owner of each alias, by its comparable form."""
    _spellings: dict[str, str] = field(default_factory=dict)
    """Each alias as it was written first, by its comparable form."""
    _kinds: dict[tuple[str, str], QuestionKind] = field(default_factory=dict)
    """Kinds of questions that no lesson has, by lesson and question."""
    _guesses: dict[tuple[str, str, str], Entry] = field(default_factory=dict)
    """By lesson, question and alias."""
    _schedules: dict[tuple[str, str, str], VerifiedSchedule] = field(default_factory=dict)
    """By lesson, alias and key of the trial."""
    _revealed: set[tuple[str, str]] = field(default_factory=set)
    """Lessons with questions whose answers are shown."""

    def claim(self, owner: str, alias: Any) -> str:
        """The alias as the board writes it, which is *owner*'s from now on; ValueError where it cannot be."""
        return self._claimed(owner, _alias(alias))

    def submit(self, owner: str, entry: Mapping[str, Any]) -> None:
        """Take a guess, or replace an earlier one; ValueError with one sentence where it cannot be taken."""
        checked = _checked(entry)
        self._refuse_full()
        question = str(checked["lesson"]), checked["question"].replace(" ", "_")
        if (of_lesson := self.questions.get(question)) is not None:
            checked["question"] = question[1]
        question = question[0], checked["question"]
        kind = of_lesson or self._kinds.get(question) or QuestionKind.of(checked)
        kind.refuse_other(checked)
        checked["alias"] = self._claimed(owner, checked["alias"])
        if of_lesson is None:
            self._kinds[question] = kind
        self._guesses[*question, checked["alias"]] = checked

    def enter(self, owner: str, alias: Any, lesson: Any, measured: Measurement, at: float) -> None:
        """Take a schedule that ranks of this cluster *measured*; ValueError where the alias is taken."""
        self._refuse_full()
        lesson = _lesson(lesson)
        self._keep(VerifiedSchedule.of(lesson, self.claim(owner, alias), measured, at))

    def enter_recorded(self, owner: str, alias: Any, lesson: Any, best: tuple[int, float], at: float) -> None:
        """Take the number and the recorded seconds of the *best* schedule that somebody's answer has."""
        self._refuse_full()
        lesson = _lesson(lesson)
        number, seconds = best
        self._keep(
            VerifiedSchedule(
                lesson=lesson,
                alias=self.claim(owner, alias),
                key=f"recorded {number}",
                problem=f"Lesson {lesson}, recorded times",
                schedule=f"schedule {number} of the lesson",
                time_s=float(seconds),
                low_s=float(seconds),
                high_s=float(seconds),
                at=at,
            )
        )

    def _keep(self, verified: VerifiedSchedule) -> None:
        self._schedules[verified.lesson, verified.alias, verified.key] = verified

    def reveal(self, lesson: Any, question: str, shown: bool = True) -> None:
        """Show the answers of a question, or hide them again."""
        change = self._revealed.add if shown else self._revealed.discard
        change((str(lesson), question))

    def guesses(self) -> list[Entry]:
        """All guesses in their order; without their answers where the question is not revealed."""
        return [
            {**entry, **({} if shown else dict.fromkeys(ANSWERS)), "revealed": shown}
            for (lesson, question, _), entry in self._guesses.items()
            for shown in [(lesson, question) in self._revealed]
        ]

    def best(self) -> list[Entry]:
        """The fastest schedule of each person by lesson and problem, the fastest first."""
        of_problem: dict[tuple[str, str], dict[str, VerifiedSchedule]] = {}
        for each in sorted(self._schedules.values(), key=lambda one: one.time_s):
            of_problem.setdefault((each.lesson, each.problem), {}).setdefault(each.alias, each)
        return [each.to_json() for people in of_problem.values() for each in list(people.values())[:BEST_MOST]]

    def _claimed(self, owner: str, alias: str) -> str:
        """*alias* as its first spelling, and *owner*'s from now on; ValueError where somebody else has it."""
        holder = self._owners.get(_comparable(alias))
        if holder is None:
            self._refuse_full()
        if holder is None and list(self._owners.values()).count(owner) >= ALIASES_MOST:
            raise ValueError(f"{alias!r} would be your alias number {ALIASES_MOST + 1}, and a person has "
                             f"{ALIASES_MOST} at most. Accepted: one that you have used.")  # fmt: skip
        if holder is None or holder == owner:
            self._owners[_comparable(alias)] = owner
            return self._spellings.setdefault(_comparable(alias), alias)
        raise ValueError(
            f"The alias {alias!r} is taken: 2 people would have 1 name on the board. Accepted: another one, such as "
            f"{self._free(alias)!r}."
        )

    def _free(self, alias: str) -> str:
        """An alias like *alias* that nobody has."""
        for number in range(2, len(self._owners) + 3):
            like = f"{alias[: ALIAS_MOST - len(str(number)) - 1].rstrip()} {number}"
            if _comparable(like) not in self._owners:
                return like
        return uuid.uuid4().hex[:8]

    def _refuse_full(self) -> None:
        if len(self._guesses) + len(self._schedules) + len(self._owners) >= ENTRIES_MOST:
            raise ValueError(f"The board is full: it has {ENTRIES_MOST:,} entries, the most that it takes. Accepted: a "
                             "new workshop, with `workbench workshop down` and `up`.")  # fmt: skip


def _comparable(alias: str) -> str:
    """What makes two aliases one: case, spaces and the width or style of letters count as equal."""
    return "".join(unicodedata.normalize("NFKC", alias).casefold().split())


def _hides(alias: str) -> bool:
    """Whether *alias* has a blank that is no space, or letters of several scripts that share their shapes."""
    names = [unicodedata.name(each, "") for each in unicodedata.normalize("NFKC", alias)]
    scripts = {name.partition(" ")[0] for name in names} & _LOOKALIKE
    return len(scripts) > 1 or any(name.endswith(_BLANKS) for name in names)


def _alias(value: Any) -> str:
    text = " ".join(value.split()) if isinstance(value, str) else ""
    if not text or len(text) > ALIAS_MOST or not text.isprintable() or not _comparable(text) or _hides(text):
        length = len(value) if isinstance(value, str) else 0
        raise ValueError(
            f"An alias of {length} characters does not fit. Accepted: 1 to {ALIAS_MOST} letters, numbers or signs that "
            "can be seen, of 1 script, such as 'blue heron'; without an alias nothing is sent."
        )
    return text


def _checked(entry: Mapping[str, Any]) -> Entry:
    """*entry* with the keys of `FIELDS` and no others; ValueError where a value is no plain text or number."""
    if unknown := sorted(set(entry) - set(FIELDS)):
        raise ValueError(f"A guess has no {', '.join(unknown)}. Accepted: {', '.join(FIELDS)}.")
    checked = {name: entry.get(name) for name in FIELDS}
    checked["alias"] = _alias(checked["alias"])
    for name in ("lesson", "question", "guess"):
        if checked[name] is None or checked[name] == "":
            raise ValueError(f"A guess needs a {name}, and this one has none. Accepted: a text or a number.")
    checked["question"] = str(checked["question"])
    checked["default"] = bool(checked["default"])
    for name, value in checked.items():
        _refuse_unplain(value, f"{name} of a guess")
    checked["unit"] = "" if checked["unit"] is None else str(checked["unit"])
    return checked


def _lesson(value: Any) -> str:
    """The lesson of a schedule, as a text; ValueError where it is none."""
    if value is None or value == "":
        raise ValueError("A schedule needs a lesson, and this one has none. Accepted: a text or a number.")
    _refuse_unplain(value, "lesson of a schedule")
    return str(value)


def _refuse_unplain(value: Any, name: str) -> None:
    if not _is_plain(value):
        raise ValueError(
            f"The {name} is {type(value).__name__}, or too long. Accepted: a finite number, or a text of at most "
            f"{TEXT_MOST} characters."
        )


def _is_plain(value: Any) -> bool:
    if value is None or isinstance(value, bool | int):
        return True
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, str) and len(value) <= TEXT_MOST
