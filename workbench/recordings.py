"""Recordings are real runs as JSON lines: the keys of `run --json`, the trial, every raw sample and the provenance."""

from __future__ import annotations

import json
import os
from functools import lru_cache
from pathlib import Path
from typing import Any

from kernels import texts
from kernels.outcome import Measurement, Sample, row, span_values, timed_how
from kernels.problem import Problem
from workbench import left_out, legible, resources, targets
from workbench.answer import Recorded
from workbench.blocks import older_block
from workbench.file_kinds import EXPORTS
from workbench.forms import LIST, TABLE, checked
from workbench.provenance import for_others
from workbench.store import Store
from workbench.targets import Target

SUFFIX = ".jsonl"
KIND = texts.TextKind("recording", "a recording", "a file of JSON lines", most_bytes=2**30)


def paths() -> dict[str, Path]:
    """The recordings that are shipped, by name."""
    files = sorted((resources.data_directory() / "recordings").glob(f"*{SUFFIX}"))
    return {path.stem: path for path in files}


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
    return dict(left_out.readable(paths().values(), _with_name))


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
    seen, trial, raw = legible.measured(line), legible.ran(line["trial"]), line["raw"]
    if (block := seen.get("block")) is None:
        block = older_block(name, numbers.setdefault(trial.problem, len(numbers) + 1))
    samples = tuple(Sample(trial.key, *entry, block) for entry in legible.samples(raw, trial.world))
    by_rank = [tuple(s.seconds for s in samples if s.rank == rank) for rank in range(trial.world)]
    measurement = Measurement(
        trial=trial, samples=tuple(by_rank), source="recorded", correct=seen["correct"],
        max_relative_error=seen["max_relative_error"], spans=legible.spans(line["spans"]), unseen=seen["message"],
        conditions=tuple(seen.get("conditions", ())), facts=seen.get("facts", {}), block=block,
        source_print=seen.get("source_print"), versions_print=seen.get("versions_print"),
        hardware=legible.hardware(line.get("hardware")),
    )  # fmt: skip
    return Recorded(measurement=measurement, samples=samples, provenance=legible.facts(line["provenance"]))


def of_run(store: Store, run: str) -> list[Recorded]:
    """The measurements of a run of one's own."""
    provenance = store.run(run)["provenance"]
    return [Recorded(measurement=measured, samples=tuple(raw), provenance=provenance)
            for measured, raw in store.recorded(run)]  # fmt: skip


def write(store: Store, run: str, target: Target | Path, *, login: bool = False) -> Path:
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
