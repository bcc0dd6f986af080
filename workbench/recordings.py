"""Recordings are real runs as JSON lines: the keys of `run --json`, the trial, every raw sample and the provenance."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernels.outcome import Measurement, Sample, row, span, span_values
from kernels.trial import Trial
from workbench import resources
from workbench.answer import Recorded
from workbench.store import Store

SUFFIX = ".jsonl"


def paths() -> dict[str, Path]:
    """The recordings that are shipped, by name."""
    found = sorted((resources.data_directory() / "recordings").glob(f"*{SUFFIX}"))
    return {path.stem: path for path in found}


def recordings(name: str | Path) -> list[Recorded]:
    """The recording called *name*, or in file *name*; ValueError lists what there is."""
    known = paths()
    path = known.get(str(name), Path(name))
    if not path.is_file():
        raise ValueError(
            f"Recording {str(name)!r} was asked for, and there is no such file. "
            f"Accepted: a {SUFFIX} file, or one of {', '.join(known) or 'none yet'}."
        )
    return read(path)


def read(path: Path) -> list[Recorded]:
    """The measurements in *path*; ValueError names the line that cannot be read."""
    found = []
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read as a recording: {error}. Accepted: a file of JSON lines.") from error
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                found.append(_recorded(json.loads(line)))
            except (ValueError, KeyError, TypeError, IndexError) as error:
                raise ValueError(
                    f"{path} line {number} is no recorded trial: {error!r}. Accepted: lines that "
                    "`workbench export RUN --to recording` writes."
                ) from error
    return found


def _recorded(line: Mapping[str, Any]) -> Recorded:
    trial = Trial.from_json(line["trial"])
    samples = tuple(Sample(trial.key, int(r), int(n), float(s), float(at)) for r, n, s, at in line["raw"])
    by_rank = [tuple(s.seconds for s in samples if s.rank == rank) for rank in range(trial.world)]
    if not all(by_rank):
        raise ValueError(f"rank {by_rank.index(())} of {trial.world} has no samples")
    measurement = Measurement(
        trial=trial, samples=tuple(by_rank), source="recorded", correct=line["correct"],
        max_relative_error=line["max_relative_error"], spans=tuple(map(span, line["spans"])), unseen=line["message"],
        conditions=tuple(line.get("conditions", ())),
    )  # fmt: skip
    return Recorded(measurement=measurement, samples=samples, provenance=line["provenance"])


def of_run(store: Store, run: str) -> list[Recorded]:
    """The measurements of a run of one's own."""
    provenance = store.run(run)["provenance"]
    return [Recorded(measurement=measured, samples=tuple(raw), provenance=provenance)
            for measured, raw in store.recorded(run)]  # fmt: skip


def write(store: Store, run: str, path: Path) -> Path:
    """The measurements of *run* as a recording; ValueError when there are none."""
    found = of_run(store, run)
    if not found:
        raise ValueError(f"A recording of run {run} was asked for, but it has 0 measurements. Accepted: one with some.")
    lines = [json.dumps(_line(entry, run)) for entry in found]
    try:
        path.write_text("\n".join(lines) + "\n")
    except OSError as error:
        raise ValueError(f"The recording cannot be written to {path}: {error.strerror}.") from error
    return path


def _line(entry: Recorded, run: str) -> dict[str, Any]:
    raw = [[s.rank, s.index, s.seconds, s.at] for s in entry.samples]
    facts = {"provenance": dict(entry.provenance), "trial": entry.measurement.trial.to_json(), "raw": raw,
             "spans": [span_values(span) for span in entry.measurement.spans]}  # fmt: skip
    seen = {"conditions": list(entry.measurement.conditions)} if entry.measurement.conditions else {}
    return {**row(entry.measurement, run), **facts, **seen}
