"""What is known: whole trials that were measured and right, in the shipped recordings and in one's own runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernels.hardware import Hardware
from kernels.outcome import Measurement
from kernels.trial import Trial
from workbench import recordings
from workbench.answer import Recorded
from workbench.store import Store

Facts = Mapping[str, Any]
"""Under which circumstances something was, or would be, measured: the keys of `provenance`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """One whole trial that was measured and found right."""

    trial: Trial
    time_s: float
    where: str
    """The recording, or the run of one's own."""
    run: str | None
    """That run; None of a recording."""
    at: float
    """Unix time of its last sample."""
    block: str | None
    """What it was timed in turns with."""
    facts: Facts
    hardware: Hardware | None
    """What it ran on; None where nobody wrote it down."""
    measurement: Callable[[], Measurement]
    """With its samples."""
    beside: Callable[[], Sequence[Measurement]] = tuple
    """What its block was timed with, the baseline among them: the ratio of a known schedule is to that."""


def known(operator: str, store: Store | None = None, *, one_call: bool = False) -> list[Known]:
    """All whole trials of *operator* that were measured and right, in the shipped recordings and in *store*.

    *one_call*: those with one call per graph, instead of those with many in a row: no winner is found among both.
    """
    trials = [_recorded(entry, name, entries) for name, entries in recordings.shipped().items() for entry in entries
             if _is_right_whole(entry.measurement, operator)]  # fmt: skip
    trials += [_of_run(entry, store) for entry in store.right_wholes(operator)] if store else []
    return [each for each in trials if each.trial.is_one_call == one_call]


def _is_right_whole(measured: Measurement, operator: str) -> bool:
    return measured.trial.problem.operator == operator and measured.trial.part == "whole" and bool(measured.correct)


def _recorded(entry: Recorded, name: str, entries: Sequence[Recorded]) -> Known:
    return Known(
        trial=entry.measurement.trial, time_s=entry.measurement.time_s, where=f"recording {name}", run=None,
        at=max(sample.at for sample in entry.samples), block=entry.measurement.block,
        hardware=entry.measurement.hardware,
        facts=_with_print(entry.provenance, entry.measurement.source_print),
        measurement=lambda: entry.measurement,
        beside=lambda: [each.measurement for each in entries if each.measurement.block == entry.measurement.block],
    )  # fmt: skip


def _of_run(entry: Mapping[str, Any], store: Store) -> Known:
    return Known(
        trial=Trial.from_json(entry["trial"]), time_s=entry["time_s"], where=f"run {entry['run']}", run=entry["run"],
        at=entry["at"], block=entry["block"], facts=_with_print(entry["provenance"], entry["source_print"]),
        hardware=entry["hardware"],
        measurement=lambda: store.measurement(entry["id"]),
        beside=lambda: [one for one, _ in store.beside(store.measurement(entry["id"]).block or "")],
    )  # fmt: skip


def _with_print(facts: Facts, source_print: str | None) -> Facts:
    """*facts* with the measurement's own print: a run may outlive a change of the kernels."""
    return {**facts, "source_print": source_print} if source_print else facts
