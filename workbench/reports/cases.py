"""A case: one problem of one run, with what was timed of it together; it has one floor, one baseline, one fastest."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernels.protocol import protocol_words
from kernels.schemes import BASELINE
from workbench import compared
from workbench.charts.words import fabric_words
from workbench.metrics import FLOOR, JOINED, agreed
from workbench.naming import TIMED, operator_title
from workbench.one_problem import PROBLEM, Key, by_problem, computation_of, problem_of
from workbench.reports.outcomes import is_failure, is_stop, parts_of
from workbench.reports.values import value_text

Row = Mapping[str, Any]

SCHEDULE = ("scheme", "axes")


@dataclass(frozen=True, slots=True)
class Case:
    """The rows of one problem of one run. The rows of one block share the numbers of JOINED."""

    whole: tuple[Row, ...]
    parts: tuple[Row, ...] = ()

    @property
    def rows(self) -> tuple[Row, ...]:
        """What was tried: everything but what a stop left out."""
        return tuple(row for row in (*self.whole, *self.parts) if not is_stop(row))

    @property
    def stopped(self) -> list[Row]:
        """Schedules that were not measured because the run was stopped."""
        return [row for row in self.whole if is_stop(row)]

    @property
    def failed(self) -> list[Row]:
        return [row for row in self.whole if is_failure(row) and not is_stop(row)]

    @property
    def leading(self) -> list[Row]:
        """The schedules that a reader goes by, best first: timed ones, or estimates where nothing was timed."""
        return compared.leading(self.whole)

    @property
    def is_timed(self) -> bool:
        """Whether anything was timed at all."""
        return any(row.get("source") in TIMED for row in self.leading)

    @property
    def fastest(self) -> Row | None:
        return compared.fastest(self.whole)

    def baselines(self, row: Row) -> list[Row]:
        """The schedules of the block of *row* that do not overlap, fastest first: its ratio is to the first."""
        return compared.baselines(row, self.whole)

    @property
    def overlapping(self) -> list[Row]:
        """The other schedules, best first."""
        return [row for row in self.leading if row.get("scheme") != BASELINE]

    @property
    def alike(self) -> list[Row]:
        """The schedules whose spread touches the best one's. Estimates have a range, and no spread."""
        return compared.alike(self.whole)

    @property
    def together(self) -> str:
        """Which schedules have no ratio to which, and what to do; empty where all of it compares."""
        return compared.together(self.whole)


def cases(rows: Sequence[Row]) -> list[Case]:
    """The cases of *rows* in the order in which they were first heard of."""
    whole, parts = parts_of(rows)
    grouped = by_problem(_with_protocol(whole))
    made = [_case(same, [part for part in parts if _is_part_of(part, same[0])]) for same in grouped.values()]
    homeless = [part for part in parts if not any(_is_part_of(part, same[0]) for same in grouped.values())]
    return [*made, Case((), tuple(homeless))] if homeless else made


def titles(of: Sequence[Case]) -> list[str]:
    """What tells each of the cases from the others: the operator where there are several, then sizes, ranks, link."""
    parts: list[list[str]] = [[] for _ in of]
    for key in PROBLEM:
        values = [_value(case, key) for case in of]
        groups: dict[tuple[str, ...], set[str]] = {}
        for words, value in zip(parts, values, strict=True):
            groups.setdefault(tuple(words), set()).add(value)
        several = [len(groups[tuple(words)]) > 1 for words in parts]
        for words, value, differs in zip(parts, values, several, strict=True):
            words += [value] if differs else []
    return [", ".join(words) for words in parts]


def problem_text(key: str, value: Any) -> str:
    """*value* of one of `PROBLEM` for people."""
    if key == "operator":
        return operator_title(value)
    if key == "fabric" and isinstance(value, str):
        return fabric_words(value)
    if key == "world" and value is not None:
        return f"{value} rank{'s' * (value != 1)}"
    if key == "protocol" and isinstance(value, str):
        return protocol_words(value).removeprefix("protocol ")
    return value_text(key, value)


def _value(case: Case, key: str) -> str:
    row = case.whole[0] if case.whole else case.parts[0]
    return problem_text(key, row.get(key))


def _case(whole: Sequence[Row], parts: Sequence[Row]) -> Case:
    """Where anything was timed an estimate has the floor of that, and the rest of the block that timed its schedule."""
    settled = agreed(whole)
    timed = [row for row in settled if row.get("source") in TIMED and not is_failure(row)]
    homes = {_text(row, SCHEDULE): row for row in reversed(timed)}
    only: Row = timed[0] if len({row.get("block") for row in timed}) == 1 else {}
    if timed:
        for row in settled:
            if row.get("source") == "estimated":
                home = homes.get(_text(row, SCHEDULE), only)
                row.update({key: home.get(key) for key in JOINED} | {FLOOR: timed[0].get(FLOOR)})
    return Case(tuple(settled), tuple(parts))


def _is_part_of(part: Row, whole: Row) -> bool:
    """Computation alone crosses no link, and what resolves a link has a protocol of its own."""
    same = computation_of if part.get("part") == "compute" else problem_of
    return same({**part, "protocol": None}) == same({**whole, "protocol": None})


def _with_protocol(rows: Sequence[Row]) -> list[Row]:
    """*rows* with a protocol: an estimate that states none is of the first one that its problem was timed with."""
    first: dict[Key, Any] = {}
    for row in rows:
        if row.get("protocol") is not None:
            first.setdefault(problem_of({**row, "protocol": None}), row["protocol"])
    return [row if row.get("protocol") is not None else {**row, "protocol": first.get(problem_of(row))} for row in rows]


def _text(row: Row, keys: Sequence[str]) -> str:
    return json.dumps([row.get(key) for key in keys], sort_keys=True, default=str)
