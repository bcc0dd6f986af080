"""Recordings are real runs as JSON lines: the keys of `run --json`, the trial, every raw sample and the provenance."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernels.hardware import Hardware
from kernels.outcome import Measurement, Sample, row, span, span_values, timed_how
from kernels.problem import Problem
from kernels.trial import Trial
from workbench import resources, targets
from workbench.answer import Recorded
from workbench.blocks import older_block
from workbench.file_kinds import EXPORTS
from workbench.provenance import for_others
from workbench.store import Store
from workbench.targets import Target

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
            f"There is no recording {str(name)!r}. Accepted: a {SUFFIX} file, or one of "
            f"{', '.join(known) or 'none yet'}."
        )
    return read(path)


def read(path: Path) -> list[Recorded]:
    """The measurements in *path*; ValueError names the line that cannot be read.

    What was recorded before there were blocks counts as one block for each problem of the file.
    """
    found: list[Recorded] = []
    numbers: dict[Problem, int] = {}
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read as a recording: {error}. Accepted: a file of JSON lines.") from error
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                found.append(_recorded(json.loads(line), path.stem, numbers))
            except (ValueError, KeyError, TypeError, IndexError) as error:
                raise ValueError(
                    f"{path} line {number} is not a recorded trial: {error!r}. Accepted: lines that `workbench "
                    "export RUN --to recording` writes."
                ) from error
    return found


def _recorded(line: Mapping[str, Any], name: str, numbers: dict[Problem, int]) -> Recorded:
    """One line of the recording *name*, whose older problems have *numbers* so far."""
    trial = Trial.from_json(line["trial"])
    if (block := line.get("block")) is None:
        block = older_block(name, numbers.setdefault(trial.problem, len(numbers) + 1))
    samples = tuple(Sample(trial.key, int(r), int(n), float(s), float(at), block) for r, n, s, at in line["raw"])
    by_rank = [tuple(s.seconds for s in samples if s.rank == rank) for rank in range(trial.world)]
    if not all(by_rank):
        raise ValueError(f"rank {by_rank.index(())} of {trial.world} has no samples")
    measurement = Measurement(
        trial=trial, samples=tuple(by_rank), source="recorded", correct=line["correct"],
        max_relative_error=line["max_relative_error"], spans=tuple(map(span, line["spans"])), unseen=line["message"],
        conditions=tuple(line.get("conditions", ())), facts=line.get("facts", {}), block=block,
        source_print=line.get("source_print"), versions_print=line.get("versions_print"),
        hardware=Hardware.from_json(told) if (told := line.get("hardware")) else None,
    )  # fmt: skip
    return Recorded(measurement=measurement, samples=samples, provenance=line["provenance"])


def of_run(store: Store, run: str) -> list[Recorded]:
    """The measurements of a run of one's own."""
    provenance = store.run(run)["provenance"]
    return [Recorded(measurement=measured, samples=tuple(raw), provenance=provenance)
            for measured, raw in store.recorded(run)]  # fmt: skip


def write(store: Store, run: str, target: Target | Path, *, login: bool = False) -> Path:
    """The measurements of *run* as a recording; ValueError when there are none. *login*: it names who measured."""
    found = of_run(store, run)
    if not found:
        raise ValueError(f"Run {run} cannot become a recording: it has 0 measurements. Accepted: a run with some.")
    lines = [json.dumps(_line(entry, run, login)) for entry in found]
    return targets.of(target, store.path).write(EXPORTS["recording"], ("\n".join(lines) + "\n").encode())


def _line(entry: Recorded, run: str, login: bool) -> dict[str, Any]:
    raw = [[s.rank, s.index, s.seconds, s.at] for s in entry.samples]
    known = for_others(entry.provenance, login=login)
    facts = {"provenance": known, "trial": entry.measurement.trial.to_json(), "raw": raw,
             "spans": [span_values(span) for span in entry.measurement.spans]}  # fmt: skip
    return {**row(entry.measurement, run), **facts, **timed_how(entry.measurement)}
