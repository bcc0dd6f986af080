"""Recordings: measured runs as JSON lines, with the keys of `run --json`, the trial, raw samples and provenance."""

from __future__ import annotations

import gc
import json
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from kernels import files
from kernels.outcome import BLOCK_KIND, CHOOSING, Measurement, Sample, row, span_values, timed_how
from kernels.problem import Problem
from workbench import resources
from workbench.results import decode
from workbench.results.decode import LIST, TABLE, checked
from workbench.results.files import EXPORTS, FileTarget, file_target
from workbench.results.provenance import shared_provenance
from workbench.results.store import Store

SUFFIX = ".jsonl"
ABOUT = "about.toml"
"""The file of the recordings' sentences, in the folder of recordings."""
ABOUT_KIND = files.TextKind("list of recordings", "a sentence for each recording", "a TOML file")
KIND = files.TextKind("recording", "a recording", "a file of JSON lines", most_bytes=2**30)


def paths() -> dict[str, Path]:
    """The shipped recordings by name."""
    folder = resources.data_directory() / "recordings"
    return {path.stem: path for path in sorted(folder.glob(f"*{SUFFIX}"))}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A measurement of an earlier run with its raw samples in order of arrival."""

    measurement: Measurement
    samples: tuple[Sample, ...]
    provenance: Mapping[str, Any]


RECORDED = "recorded"
"""The key of `origin` in the provenance of a replay, whose other entries are of who played it."""
VERSIONS = ("torch", "triton", "nccl", "driver", "numpy")
"""Packages whose versions a reader of a replay needs."""


def origin(entries: Sequence[Recorded]) -> dict[str, Any]:
    """Machine, dates, hosts, hardware, cores, protocols and versions of what was recorded; without what is unknown."""
    wholes = [entry for entry in entries if entry.measurement.trial.part == "whole"] or list(entries)
    known = [entry.provenance for entry in wholes]
    dates = [str(entry.provenance.get("date") or datetime.fromtimestamp(max(each.at for each in entry.samples)))
             for entry in wholes if entry.provenance.get("date") or entry.samples]  # fmt: skip
    days = sorted({date[:10] for date in dates})
    versions = {name: _each(_versions(one).get(name) for one in known) for name in VERSIONS}
    facts = {
        "machine": _each(entry.measurement.trial.machine for entry in wholes),
        "date": " to ".join(dict.fromkeys((days[0], days[-1]))) if days else "",
        "host": _each(one.get("host") for one in known),
        "hardware": _each(one.get("gpus") if isinstance(one.get("gpus"), str) else one.get("cpu") for one in known),
        "cores": next((one["cores"] for one in known if one.get("cores")), None),
        "protocol": _each(entry.measurement.trial.protocol.name for entry in wholes),
        "versions": {name: text for name, text in versions.items() if text},
    }
    return {name: value for name, value in facts.items() if value}


def _versions(provenance: Mapping[str, Any]) -> dict[str, Any]:
    ranks = provenance.get("ranks") or {}
    return {**(provenance.get("versions") or {}), **(ranks.get("versions") or {})}


def _each(values: Iterable[Any]) -> str:
    """Each of *values* once, as text."""
    return ", ".join(dict.fromkeys(str(value) for value in values if value))


@dataclass(frozen=True, slots=True)
class Summary:
    """What a person reads of a shipped recording before its replay."""

    name: str
    question: str
    """One sentence, the question that it answers; empty where `about.toml` has none."""
    schedules: int
    """Number of whole schedules that a replay shows; the others are parts or computations alone."""


def summaries() -> list[Summary]:
    """The shipped recordings that can be replayed, the most instructive first: those with whole schedules.

    Damaged ones are left out. Only what is counted is read: all trials would take a second.
    """
    known = paths()
    questions = _questions()
    order = [*(name for name in questions if name in known), *(name for name in known if name not in questions)]
    counts = dict(resources.readable((known[name] for name in order), _counted))
    summed = [Summary(name, questions.get(name, ""), counts[name]) for name in order if name in counts]
    return [summary for summary in summed if summary.schedules]


def _questions() -> dict[str, str]:
    """By name, the sentence of each recording, in the order in which they are offered."""
    path = resources.data_directory() / "recordings" / ABOUT
    return {name: str(text) for name, text in files.toml(path, ABOUT_KIND).items()} if path.exists() else {}


def _counted(path: Path) -> tuple[str, int]:
    return path.stem, _count(path, files.modified_ns(path))


@lru_cache(maxsize=64)
def _count(path: Path, modified_ns: int) -> int:
    """The number of whole schedules in *path* that a replay plays, cached by *modified_ns* too."""
    lines = [files.parsed(line) for line in files.text(path, KIND).splitlines() if line.strip()]
    shown = [line for line in lines if isinstance(line, dict) and line.get("part") == "whole"]
    return len({line.get("key") for line in shown if (line.get("facts") or {}).get(BLOCK_KIND) != CHOOSING})


def older_block(session: str, number: int) -> str:
    """The name of a block for problem *number* of a *session* (a run or a recording) that is older than blocks."""
    return f"{session}.p{number}"


def recordings(name: str | Path) -> list[Recorded]:
    """The recording called *name* or in file *name*; ValueError lists the shipped ones."""
    known = paths()
    path = known.get(str(name), Path(name))
    if not os.path.lexists(path):
        raise ValueError(
            f"There is no recording {str(name)!r}. Accepted: a {SUFFIX} file, or one of "
            f"{', '.join(known) or 'none yet'}."
        )
    return _shipped(path) if path in known.values() else read(path)


def shipped() -> dict[str, list[Recorded]]:
    """The shipped recordings by name, without damaged ones."""
    with _no_collection():
        return dict(resources.readable(paths().values(), _with_name))


def _with_name(path: Path) -> tuple[str, list[Recorded]]:
    return path.stem, _shipped(path)


def _shipped(path: Path) -> list[Recorded]:
    return list(_load(path, files.modified_ns(path)))


@lru_cache(maxsize=32)
def _load(path: Path, modified_ns: int) -> tuple[Recorded, ...]:
    """The recording in *path*, cached by *modified_ns* too: reading all shipped ones takes a second."""
    return tuple(read(path))


# Headlines: the lines of one operator without samples, provenance and spans, which are nine tenths of a recording.

_BEYOND_ROW = re.compile(r',\s?"provenance":')
"""Where the row of a line ends, as `write` orders its keys. Inside a text the quotation marks would be escaped."""
_BLOCK = re.compile(r'"block":\s?"')


@dataclass(frozen=True, slots=True)
class Headline:
    """A line of a recording of which the row alone was read."""

    name: str
    """The recording."""
    row: Mapping[str, Any]
    block: str
    line: str

    def recorded(self) -> Recorded:
        """The whole line; ValueError where it is damaged."""
        return _recorded(files.parsed(self.line), lambda _: self.block)


def headlines(operator: str) -> dict[str, tuple[Headline, ...]]:
    """By shipped recording, the headlines of its trials of *operator*; without damaged recordings."""
    return dict(resources.readable(paths().values(), lambda path: _headlines_of(path, operator)))


def _headlines_of(path: Path, operator: str) -> tuple[str, tuple[Headline, ...]]:
    return path.stem, _load_headlines(path, files.modified_ns(path), operator)


@lru_cache(maxsize=256)
def _load_headlines(path: Path, modified_ns: int, operator: str) -> tuple[Headline, ...]:
    """The headlines of *operator* in *path*, cached by *modified_ns* too."""
    lines = [(number, line) for number, line in enumerate(files.text(path, KIND).splitlines(), 1) if line.strip()]
    numbers: dict[str, int] = {}
    if not all(_BLOCK.search(line) for _, line in lines):  # blocks are named after problems of the file, in order
        for number, line in lines:
            numbers.setdefault(_problem_of(_row(line, path, number)), len(numbers) + 1)
    rows = [(line, _row(line, path, number)) for number, line in lines if f'"{operator}"' in line]
    return tuple(
        Headline(path.stem, row, row.get("block") or older_block(path.stem, numbers[_problem_of(row)]), line)
        for line, row in rows if row.get("operator") == operator
    )  # fmt: skip


def _row(line: str, path: Path, number: int) -> dict[str, Any]:
    """The row of *line*, which is *number* in *path*; all of the line where its keys come in another order."""
    end = _BEYOND_ROW.search(line)
    try:
        row = files.parsed(f"{line[: end.start()]}}}") if end else {}
    except ValueError:
        row = {}
    try:
        row = row if isinstance(row, dict) and "shape" in row else files.parsed(line)
        return dict(checked(row, {"shape": TABLE}, "it"))
    except ValueError as error:
        raise _not_a_trial(path, number, error) from error


def _problem_of(row: Mapping[str, Any]) -> str:
    """A text that rows of one problem share."""
    return str([row.get("operator"), *row["shape"].items(), row.get("dtype"), row.get("world")])


def read(path: Path) -> list[Recorded]:
    """The measurements in *path*; ValueError names the unreadable line.

    Trials without a block, which are older than blocks, count as one block for each problem of the file.
    """
    return parsed(files.text(path, KIND), path)


def parsed(content: str, path: Path) -> list[Recorded]:
    """The measurements in *content*, which was read from file *path*."""
    recorded: list[Recorded] = []
    numbers: dict[Problem, int] = {}

    def named(problem: Problem) -> str:
        return older_block(path.stem, numbers.setdefault(problem, len(numbers) + 1))

    with _no_collection():
        for number, line in enumerate(content.splitlines(), start=1):
            if line.strip():
                try:
                    recorded.append(_recorded(files.parsed(line), named))
                except ValueError as error:
                    raise _not_a_trial(path, number, error) from error
    return _with_readings_of_blocks(recorded)


_READING = threading.RLock()
"""The collector is one for all threads: two that overlap could leave it off."""


@contextmanager
def _no_collection() -> Iterator[None]:
    """Python looks for no cycles meanwhile: samples have none, and the search would take half of the time."""
    with _READING:
        was_on = gc.isenabled()
        gc.disable()
        try:
            yield
        finally:
            if was_on:
                gc.enable()


def _with_readings_of_blocks(recorded: Sequence[Recorded]) -> list[Recorded]:
    """*recorded*, where trials that took turns sample by sample share the readings that one line of their block has."""
    of_blocks: dict[str | None, Measurement] = {}
    for each in recorded:
        if each.measurement.conditions:
            of_blocks.setdefault(each.measurement.block, each.measurement)
    return [_with_readings(each, of_blocks.get(each.measurement.block)) for each in recorded]


def _with_readings(one: Recorded, of_block: Measurement | None) -> Recorded:
    """*one* with the readings of its block, where it has none and they are of the same gang."""
    timed = one.measurement
    if of_block is None or timed.conditions or timed.trial.protocol.is_steady:
        return one
    if of_block.trial.world != timed.trial.world:
        return one
    return replace(one, measurement=replace(timed, conditions=of_block.conditions))


def _not_a_trial(path: Path, number: int, error: ValueError) -> ValueError:
    return ValueError(
        f"{path} line {number} is not a recorded trial: {str(error).rstrip('.')}. Lines are those that "
        "`workbench export RUN --to recording` writes."
    )


def _recorded(line: Any, named: Callable[[Problem], str]) -> Recorded:
    """One *line* of a recording; *named* names the block of a problem whose line has none."""
    checked(line, {"trial": TABLE, "raw": LIST, "spans": LIST, "provenance": TABLE}, "it")
    facts, trial = decode.measurement_facts_from_json(line), decode.executed_trial_from_json(line["trial"])
    if (block := facts.get("block")) is None:
        block = named(trial.problem)
    samples = tuple(Sample(trial.key, *entry, block) for entry in decode.samples_from_json(line["raw"], trial.world))
    by_rank = (tuple(s.seconds for s in samples if s.rank == rank) for rank in range(trial.world))
    measurement = Measurement(
        trial=trial, samples=tuple(by_rank), source="recorded", correct=facts["correct"],
        max_relative_error=facts["max_relative_error"], spans=decode.spans_from_json(line["spans"]),
        unseen=facts["message"],
        conditions=tuple(facts.get("conditions", ())), facts=facts.get("facts", {}), block=block,
        source_print=facts.get("source_print"), versions_print=facts.get("versions_print"),
        hardware=decode.hardware_from_json(line.get("hardware")),
    )  # fmt: skip
    return Recorded(
        measurement=measurement, samples=samples, provenance=decode.provenance_from_json(line["provenance"])
    )


def recordings_of_run(store: Store, run: str) -> list[Recorded]:
    """The measurements of *run* in *store*."""
    provenance = store.run(run)["provenance"]
    return [Recorded(measurement=measured, samples=tuple(raw), provenance=provenance)
            for measured, raw in store.recorded(run)]  # fmt: skip


def write(store: Store, run: str, target: FileTarget | Path, *, login: bool = False) -> Path:
    """Write the measurements of *run* as a recording; ValueError if there are none.

    *login*: whether its provenance keeps the name of the user's login.
    """
    entries = recordings_of_run(store, run)
    if not entries:
        raise ValueError(f"Run {run} cannot become a recording: it has 0 measurements. Accepted: a run with some.")
    lines = [json.dumps(_line(entry, run, login)) for entry in entries]
    return file_target(target, store.path).write(EXPORTS["recording"], ("\n".join(lines) + "\n").encode())


def _line(entry: Recorded, run: str, login: bool) -> dict[str, Any]:
    raw = [[s.rank, s.index, s.seconds, s.at] for s in entry.samples]
    known = shared_provenance(entry.provenance, login=login)
    facts = {"provenance": known, "trial": entry.measurement.trial.to_json(), "raw": raw,
             "spans": [span_values(span) for span in entry.measurement.spans]}  # fmt: skip
    return {**row(entry.measurement, run), **facts, **timed_how(entry.measurement)}
