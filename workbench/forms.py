"""What values that were read must be: a table of forms, and one sentence for the first value that has another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Any, NamedTuple

MOST = 2**62
"""No count is larger: what multiplies a few of them would leave the numbers of arrays and databases."""


class WrongForm(ValueError):
    """A value is not what it must be: which one, what it is, what would be accepted."""


class Form(NamedTuple):
    """What one value may be."""

    words: str
    """What is accepted."""
    holds: Callable[[Any], bool]


def _is_count(value: Any, least: int) -> bool:
    return type(value) is int and least <= value < MOST


def _is_finite(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < MOST and isfinite(value)


TEXT = Form("a text", lambda value: isinstance(value, str))
TRUTH = Form("true or false", lambda value: isinstance(value, bool))
WHOLE = Form("a whole number from 0", lambda value: _is_count(value, 0))
COUNT = Form("a whole number from 1", lambda value: _is_count(value, 1))
NUMBER = Form("a finite number", _is_finite)
SECONDS = Form("a finite number above 0", lambda value: _is_finite(value) and value > 0)
ANY_NUMBER = Form("a number", lambda value: type(value) in (int, float))
MOMENT = Form("a moment in Unix seconds", lambda value: _is_finite(value) and 0 <= value < 250e9)
PROCESS = Form("the number of a process", lambda value: _is_count(value, 1) and value < 2**31)
TABLE = Form("a table", lambda value: isinstance(value, dict))
LIST = Form("a list", lambda value: isinstance(value, list | tuple))
TABLES = Form("a list of tables", lambda value: LIST.holds(value) and all(isinstance(entry, dict) for entry in value))
SIZES = Form(
    "a table of whole numbers from 1, or words",
    lambda value: (
        isinstance(value, dict) and all(_is_count(size, 1) or isinstance(size, str) for size in value.values())
    ),
)
VALUES = Form(
    "a table of whole numbers or words",
    lambda value: isinstance(value, dict) and all(type(each) in (int, str) for each in value.values()),
)


def one_of(words: Sequence[str] | Mapping[str, Any]) -> Form:
    """One of these words."""
    known = frozenset(words)
    return Form(", ".join(words), lambda value: isinstance(value, str) and value in known)


def optional(form: Form) -> Form:
    """That, or nothing."""
    return Form(f"{form.words}, or null", lambda value: value is None or form.holds(value))


def checked(data: Any, forms: Mapping[str, Form], what: str, optional: Mapping[str, Form] | None = None) -> Any:
    """*data*, a table in which every key of *forms* has its form, and of *optional*, if it is there.

    WrongForm names the first value that has another; *what* is what the table is of. Other keys are not looked at.
    """
    if not isinstance(data, dict):
        raise WrongForm(f"{what} is {shown(data)}. Accepted: a table")
    for key, form in forms.items():
        if key not in data:
            raise WrongForm(f"{what} has no {key!r}. Accepted: {form.words}")
        if not form.holds(data[key]):
            raise WrongForm(f"{what} has {key} = {shown(data[key])}. Accepted: {form.words}")
    for key, form in (optional or {}).items():
        if key in data and not form.holds(data[key]):
            raise WrongForm(f"{what} has {key} = {shown(data[key])}. Accepted: {form.words}")
    return data


def entries(data: Any, forms: Sequence[Form], what: str, least: int | None = None) -> Any:
    """*data*, a list of values of these forms in this order; those after *least* may be absent."""
    most = len(forms)
    if not LIST.holds(data) or not (most if least is None else least) <= len(data) <= most:
        raise WrongForm(f"{what} is {shown(data)}. Accepted: a list of {most} values")
    for number, (value, form) in enumerate(zip(data, forms, strict=False), 1):
        if not form.holds(value):
            raise WrongForm(f"{what} has {shown(value)} as its value {number}. Accepted: {form.words}")
    return data


def shown(value: Any) -> str:
    """*value* as far as it fits a sentence."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # thousands of digits, thousands of brackets
        return f"a huge {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}..."
