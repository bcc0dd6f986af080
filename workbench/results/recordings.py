"""Recordings are real runs as JSON lines: the keys of `run --json`, the trial, every raw sample and the provenance."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from kernels import files as texts
from kernels.outcome import Measurement, Sample, row, span_values, timed_how
from kernels.problem import Problem
from workbench import resources
from workbench.results import decode
from workbench.results import files as targets
from workbench.results.decode import LIST, TABLE, checked
from workbench.results.files import EXPORTS, FileTarget
from workbench.results.provenance import for_others
from workbench.results.store import Store

SUFFIX = ".jsonl"
KIND = texts.TextKind("recording", "a recording", "a file of JSON lines", most_bytes=2**30)


def paths() -> dict[str, Path]:
    """The recordings that are shipped, by name."""
    files = sorted((resources.data_directory() / "recordings").glob(f"*{SUFFIX}"))
    return {path.stem: path for path in files}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A measurement of an earlier run with its raw samples in the order in which they came."""

    measurement: Measurement
    samples: tuple[Sample, ...]
    provenance: Mapping[str, Any]


def older_block(sitting: str, number: int) -> str:
    """The block of problem *number* of a *sitting* (a run, a recorded file) from before there were blocks."""
    return f"{sitting}.p{number}"


def recordings(name: str | Path) -> list[Recorded]:
    """The recording called *name*, or in file *name*; ValueError lists what there is."""
    known = paths()
    path = known.get(str(name), Path(name))
    if not os.path.lexists(path):
        raise ValueError(
            f"There is no recording {str(name)!r}. Accepted: a {SUFFIX} file, or one of "
            f"{', '.join(known) or 'none yet'}."
        )
    return _shipped(path) if path in known.values() else read(path)


def shipped() -> dict[str, list[Recorded]]:
    """The recordings that are shipped, by name, without those that are damaged."""
    return dict(resources.readable(paths().values(), _with_name))


def _with_name(path: Path) -> tuple[str, list[Recorded]]:
    return path.stem, _shipped(path)


def _shipped(path: Path) -> list[Recorded]:
    return list(_load(path, texts.modified_ns(path)))


@lru_cache(maxsize=32)
def _load(path: Path, modified_ns: int) -> tuple[Recorded, ...]:
    """*modified_ns* is in the key, as of machines: reading all that are shipped takes a second."""
    return tuple(read(path))


def read(path: Path) -> list[Recorded]:
    """The measurements in *path*; ValueError names the line that cannot be read.

    What was recorded before there were blocks counts as one block for each problem of the file.
    """
    recorded: list[Recorded] = []
    numbers: dict[Problem, int] = {}
    for number, line in enumerate(texts.text(path, KIND).splitlines(), start=1):
        if line.strip():
            try:
                recorded.append(_recorded(texts.parsed(line), path.stem, numbers))
            except ValueError as error:
                raise ValueError(
                    f"{path} line {number} is not a recorded trial: {str(error).rstrip('.')}. Lines are those that "
                    "`workbench export RUN --to recording` writes."
                ) from error
    return recorded


def _recorded(line: Any, name: str, numbers: dict[Problem, int]) -> Recorded:
    """One line of the recording *name*, whose older problems have *numbers* so far."""
    checked(line, {"trial": TABLE, "raw": LIST, "spans": LIST, "provenance": TABLE}, "it")
    seen, trial, raw = decode.decoded_measured(line), decode.decoded_ran(line["trial"]), line["raw"]
    if (block := seen.get("block")) is None:
        block = older_block(name, numbers.setdefault(trial.problem, len(numbers) + 1))
    samples = tuple(Sample(trial.key, *entry, block) for entry in decode.samples(raw, trial.world))
    by_rank = [tuple(s.seconds for s in samples if s.rank == rank) for rank in range(trial.world)]
    measurement = Measurement(
        trial=trial, samples=tuple(by_rank), source="recorded", correct=seen["correct"],
        max_relative_error=seen["max_relative_error"], spans=decode.decoded_spans(line["spans"]),
        unseen=seen["message"],
        conditions=tuple(seen.get("conditions", ())), facts=seen.get("facts", {}), block=block,
        source_print=seen.get("source_print"), versions_print=seen.get("versions_print"),
        hardware=decode.decoded_hardware(line.get("hardware")),
    )  # fmt: skip
    return Recorded(measurement=measurement, samples=samples, provenance=decode.decoded_facts(line["provenance"]))


def of_run(store: Store, run: str) -> list[Recorded]:
    """The measurements of a run of one's own."""
    provenance = store.run(run)["provenance"]
    return [Recorded(measurement=measured, samples=tuple(raw), provenance=provenance)
            for measured, raw in store.recorded(run)]  # fmt: skip


def write(store: Store, run: str, target: FileTarget | Path, *, login: bool = False) -> Path:
    """The measurements of *run* as a recording; ValueError when there are none. *login*: it names who measured."""
    entries = of_run(store, run)
    if not entries:
        raise ValueError(f"Run {run} cannot become a recording: it has 0 measurements. Accepted: a run with some.")
    lines = [json.dumps(_line(entry, run, login)) for entry in entries]
    return targets.of(target, store.path).write(EXPORTS["recording"], ("\n".join(lines) + "\n").encode())


def _line(entry: Recorded, run: str, login: bool) -> dict[str, Any]:
    raw = [[s.rank, s.index, s.seconds, s.at] for s in entry.samples]
    known = for_others(entry.provenance, login=login)
    facts = {"provenance": known, "trial": entry.measurement.trial.to_json(), "raw": raw,
             "spans": [span_values(span) for span in entry.measurement.spans]}  # fmt: skip
    return {**row(entry.measurement, run), **facts, **timed_how(entry.measurement)}
