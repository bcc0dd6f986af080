"""A question has an answer that is revealed, and an exercise a value that is checked; both are stated once."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

NOT_CERTAIN = "not certain"
"""The answer of a student whose samples do not decide."""
OR = " or "
"""Between choices that are equally right."""
WITHIN = 2.0
"""A guess that is off by at most this factor counts."""

_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?")
"""A number as the lessons write it: `2,097,152`."""

Guessed = float | str
"""A number in the question's unit, or one of its choices."""


# What is guessed and revealed.


@dataclass(frozen=True, slots=True)
class ChoiceValue:
    """The number behind one choice, for the chart."""

    choice: str
    source: str
    """`measured`, `recorded`, `estimated` or `published`."""
    value: float
    """In the unit of the answer."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a question reveals."""

    estimate: Guessed
    measured: Guessed
    """The timed or published answer; choices that are equally right are joined by OR."""
    source: str
    """Where `measured` is from: `measured`, `recorded` or `published`."""
    where: str
    """In words: on what it was timed, and when."""
    unit: str = ""
    """Unit of `values`, for the axis of the chart."""
    values: tuple[ChoiceValue, ...] = ()
    """The numbers behind the choices; empty where the answer is a number."""
    estimated_by: str = "the simulator, on machine files as shipped"
    """In words: what the estimate is from."""


@dataclass(frozen=True, slots=True)
class Question:
    """A guess that is locked before its answer is shown."""

    text: str
    default: Guessed
    """The guess where nobody is at the keyboard."""
    answer: Callable[[], Answer]
    """From recordings and estimates; takes a second or two."""
    unit: str = ""
    """Unit of a number; empty for a choice."""
    choices: tuple[str, ...] = ()
    """What can be chosen; empty where a number is guessed."""
    timed: Callable[[], Answer] | None = None
    """The same answer from CPU ranks of this computer, in some ten seconds; None where it cannot be timed here."""

    def read(self, typed: object) -> Guessed:
        """The guess that was typed or chosen; ValueError says in one sentence why it is none."""
        text = str(typed).strip()
        if self.choices:
            if text not in self.choices:
                raise ValueError(f"{text[:40]!r} is not one of the choices. Accepted: {', '.join(self.choices)}.")
            return text
        try:
            number = number_typed(text, self.unit)
        except ValueError:
            number = float("nan")
        if not isfinite(number) or number <= 0:
            shown = f"{text[:40]!r} is no number above 0" if text else "The box is empty"
            raise ValueError(f"{shown}. Accepted: a number, such as {self.default:g}, in {self.unit or 'no unit'}.")
        return number

    def is_right(self, guess: Guessed, measured: Guessed) -> bool:
        """Whether *guess* counts: within WITHIN of the number, or one of the right choices."""
        return counts(guess, measured)

    def verdict(self, guess: Guessed, answer: Answer) -> str:
        """One sentence that compares the guess with the answer."""
        if isinstance(guess, str) or isinstance(answer.measured, str):
            right = "right" if counts(guess, answer.measured) else "not it"
            return f"Your guess: {guess}. {answer.source.capitalize()}: {answer.measured}. That is {right}."
        off = max(guess / answer.measured, answer.measured / guess)
        side = "too long" if guess > answer.measured else "too short"
        if self.unit not in ("ms", "µs", "s"):
            side = "too high" if guess > answer.measured else "too low"
        how_far = "nearly exact" if off < 1.05 else f"{off:.1f} times {side}"
        texts = value_text(guess, self.unit), value_text(answer.measured, self.unit)
        return f"Your guess: {texts[0]}. {answer.source.capitalize()}: {texts[1]}. Your guess is {how_far}."


def number_typed(text: str, unit: str = "") -> float:
    """The number of a text, with or without its unit and commas between thousands; ValueError where it is none."""
    bare = text.strip().removesuffix(unit).strip()
    return float(bare.replace(",", "") if _THOUSANDS.fullmatch(bare) else bare)


def value_text(value: Guessed, unit: str = "") -> str:
    """A guess or an answer with its unit: three digits that count, and thousands in full."""
    if isinstance(value, str):
        return value
    return f"{value:,.0f} {unit}".strip() if value >= 100 else f"{value:.3g} {unit}".strip()


def counts(guess: Guessed, measured: Guessed) -> bool:
    """Whether *guess* counts in the score: within WITHIN of a number, or one of the choices joined by OR."""
    if isinstance(guess, str) or isinstance(measured, str):
        return str(guess) in str(measured).split(OR)
    return max(guess / measured, measured / guess) <= WITHIN


def winners(values: Sequence[ChoiceValue], within: float = 0.03) -> str:
    """The choices with the least values, joined by OR: the least one, and those that are less than *within* above."""
    least = min(each.value for each in values)
    return OR.join(each.choice for each in values if each.value <= least * (1 + within))


# What is checked.


class Wrong(ValueError):
    """One sentence that says what is wrong with a value."""


class Unreadable(Wrong):
    """One sentence about a value that is no answer at all, and what would be accepted: it does not count as a try."""


@dataclass(frozen=True, slots=True)
class Exercise:
    """A task whose value is checked, with its hints and its solution."""

    task: str
    """Markdown."""
    rule: Callable[[Any], str]
    """The sentence for a right value; raises Wrong for any other one."""
    hints: tuple[str, str]
    solution: str
    right: Callable[[], Any] = field(repr=False)
    """A right value, for the lecturer's page and for tests."""


NO_TRY = "That does not count as a try."


class Attempts:
    """Checks values of exercises; what it adds to the sentence grows with each wrong try that can be read."""

    def __init__(self) -> None:
        self.count: dict[Any, int] = {}
        self.over: set[Any] = set()
        """Those that were solved, or whose solution was shown."""

    def check(self, key: Any, exercise: Exercise, value: Any) -> tuple[bool, str]:
        """Whether *value* is right, and what to say: what is wrong, then a hint, a second hint, then the solution."""
        if value is None or value is ...:
            return False, "There is no answer yet: put one in the cell, and run it again."
        try:
            praise = exercise.rule(value)
        except Unreadable as unreadable:
            return False, f"Not yet. {unreadable} {NO_TRY}"
        except Wrong as wrong:
            reason = str(wrong)
        except Exception as error:  # whatever a student's value or function raises
            why = f"{type(error).__name__}: {str(error)[:120]}"
            return False, f"Not yet. Your answer cannot be read as one ({why}). {NO_TRY}"
        else:
            self.count.pop(key, None)
            self.over.add(key)
            return True, f"Right. {praise}"
        tries = self.count[key] = self.count.get(key, 0) + 1
        helps = ("", f" Hint: {exercise.hints[0]}", f" Second hint: {exercise.hints[1]}",
                 f" The solution: {exercise.solution}")  # fmt: skip
        if tries >= len(helps):
            self.over.add(key)
        return False, f"Not yet. {reason}{helps[min(tries, len(helps)) - 1]}"


def number(value: Any, unit: str = "") -> float:
    """*value*, or the number that it writes, as a finite number; Unreadable otherwise."""
    try:
        if isinstance(value, bool):
            raise TypeError
        as_number = number_typed(_with_commas(value), unit) if isinstance(value, str | tuple) else float(value)
    except (TypeError, ValueError, OverflowError):
        as_number = float("nan")
    if not isfinite(as_number):
        raise Unreadable(f"{str(value)[:40]!r} is no number{f' of {unit}' if unit else ''}. Accepted: a finite number "
                         "such as 1500, '1,500' or 1.5e3.")  # fmt: skip
    return as_number


def _with_commas(value: str | tuple[Any, ...]) -> str:
    """*value* as a text; Python makes a tuple of `3,145,728`, which has three digits after each comma."""
    if isinstance(value, str):
        return value
    first, *rest = value or ("",)
    return ",".join([str(first), *(f"{each:03}" if type(each) is int else "?" for each in rest)])


def close(value: Any, to: float, unit: str, factor: float = 1.05) -> None:
    """Raises Wrong unless *value* is within *factor* of *to*; the sentence says on which side, and not the number."""
    given = number(value, unit)
    if given <= 0 or max(given / to, to / given) > factor:
        side = "too small" if given < to else "too large"
        off = f" by a factor of {max(given / to, to / given):.2g}" if given > 0 else ""
        raise Wrong(f"{given:g} {unit} is {side}{off}.")
