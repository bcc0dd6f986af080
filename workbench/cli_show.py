"""What a command prints: one JSON document and nothing else, or a table; sentences go to stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kernels.outcome import ROW_KEYS
from kernels.units import rate_text, seconds_text

if TYPE_CHECKING:
    from rich.table import Table

DOCUMENT_KEYS = tuple(key for key in ROW_KEYS if key != "part")
"""What `run --json` and `predict --json` print of one outcome; it is always of the whole."""
NOTHING = "–"
PIPE_COLUMNS = 260
RUNS_NAMED = 3


def say(sentence: str) -> None:
    """To the person, beside what is printed."""
    print(sentence, file=sys.stderr, flush=True)


def show_json(value: Any) -> None:
    """One document; what is not a finite number is null, as JSON wants it."""
    print(json.dumps(_finite(value), allow_nan=False, default=str))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if abs(value) < float("inf") else None
    if isinstance(value, Mapping):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return value


def show_rows(rows: Sequence[Mapping[str, Any]], summary: Mapping[str, Any]) -> None:
    """The document of a listing, a sweep or a comparison."""
    show_json({"rows": list(rows), "summary": dict(summary)})


def document(row: Mapping[str, Any]) -> dict[str, Any]:
    """*row* with exactly the keys of the contract."""
    return {key: row.get(key) for key in DOCUMENT_KEYS}


def show_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], right: Sequence[str] = ()) -> None:
    """A table as wide as the terminal; columns named in *right* hold numbers."""
    from rich.table import Table
    from rich.text import Text

    if title:
        print(title)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, name in enumerate(columns):
        table.add_column(name, justify="right" if name in right else "left", overflow="fold", no_wrap=number == 0)
    for row in rows:
        # Text: a name in brackets is a name, not markup
        table.add_row(*(Text(NOTHING if cell is None else str(cell)) for cell in row))
    _print(table)


def _print(table: Table) -> None:
    from rich.console import Console

    # a pipe has no width of its own
    Console(highlight=False, width=None if sys.stdout.isatty() else PIPE_COLUMNS).print(table)


def show_outcomes(title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Timed and estimated schedules side by side, fastest first."""
    columns = ("schedule", "measured", "estimated", "of the floor", "faster than sequential", "skew", "correct")
    lines = [line[1:] for line in sorted(_lines(rows), key=lambda line: line[0])]
    if lines:
        said = [number for number, _ in enumerate(columns) if any(line[number] is not None for line in lines)]
        show_table(title, [columns[number] for number in said], ([line[n] for n in said] for line in lines),
                   right=columns[1:6])  # fmt: skip


def say_known(rows: Sequence[Mapping[str, Any]]) -> None:
    """Which of the schedules shown were measured earlier, and so perhaps not in one sitting."""
    from datetime import datetime

    since = {row["origin"]: row["known_since"] for row in rows if row["source"] == "recorded"}
    if not since:
        return
    runs = [f"run {run} of {datetime.fromtimestamp(since[run]).isoformat(' ', 'minutes')}" for run in sorted(since)]
    count = sum(row["source"] == "recorded" for row in rows)
    some = runs if len(runs) <= RUNS_NAMED else [*runs[:RUNS_NAMED], f"{len(runs) - RUNS_NAMED} more"]
    say(f"{count} of {len({row['key'] for row in rows})} schedules {'is' if count == 1 else 'are'} known from "
        f"{' and '.join(some)}: --fresh measures them together.")  # fmt: skip


def show_failures(rows: Sequence[Mapping[str, Any]]) -> None:
    """What failed, and why."""
    failed = [row for row in rows if row["outcome"] == "failure"]
    if failed:
        show_table("Failed", ("schedule", "stage", "why"), ((schedule(r), r["stage"], r["message"]) for r in failed))


def _lines(rows: Sequence[Mapping[str, Any]]) -> Iterable[tuple[Any, ...]]:
    """One per schedule: its time, then the cells."""
    by_key: dict[str, dict[str, Mapping[str, Any]]] = {}
    for row in rows:
        if row["time_s"] is not None:
            by_key.setdefault(row["key"], {})["guess" if row["source"] == "estimated" else "clock"] = row
    for found in by_key.values():
        row = found.get("clock") or found["guess"]
        time_s, floor_s, sequential_s = row["time_s"], row["floor_s"], row["sequential_s"]
        yield (
            time_s, schedule(row), _timed(found.get("clock")), _timed(found.get("guess")),
            floor_s and f"{time_s / floor_s:.2f} x", sequential_s and f"{sequential_s / time_s:.2f} x",
            seconds_text(row["skew_s"]) if row["skew_s"] is not None else None,
            {True: "yes", False: "no"}.get(row["correct"]),
        )  # fmt: skip


def _timed(row: Mapping[str, Any] | None) -> str | None:
    if row is None:
        return None
    marks = {"recorded": " (recorded)"}.get(row["source"], "")
    return seconds_text(row["time_s"]) + (" (not calibrated)" if row["calibrated"] is False else marks)


def schedule(row: Mapping[str, Any]) -> str:
    """The row's schedule as people write it."""
    axes = ", ".join(f"{name}={value}" for name, value in (row["axes"] or {}).items())
    return f"{row['scheme']}({axes})"


def link(row: Mapping[str, Any]) -> str:
    """The row's fabric: its kind, and of an emulated one the ratio and the bandwidth that follows from it."""
    kind, _, stated = str(row["fabric"]).partition(":")
    numbers = dict(part.partition("=")[::2] for part in stated.split(",") if part)
    said = [f"wire:compute {numbers['wire_to_compute']}"] if "wire_to_compute" in numbers else []
    if "bandwidth_bytes_per_second" in numbers:
        said.append(rate_text(float(numbers["bandwidth_bytes_per_second"])))
    return f"{kind} link, {', '.join(said)}" if said else kind


def problem(row: Mapping[str, Any]) -> str:
    """The row's problem, machine and link in one line; one rank alone has no link."""
    shape = ", ".join(f"{name}={value}" for name, value in (row["shape"] or {}).items())
    ranks = f"{row['world']} ranks" if row["world"] != 1 else "1 rank"
    said = f"{row['operator']}({shape}) {row['dtype']}, {ranks}, {row['machine']}"
    said += f", {link(row)}" if row["world"] != 1 else ""
    on_cpu = row["backend"] == "cpu" and row["source"] in ("measured", "recorded")
    return f"{said}; plan executed on CPU ranks" if on_cpu else said
