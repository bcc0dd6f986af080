"""How rows of simulated caches are shown: a table, what they say in sentences, and how far a long replay has come."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kernels.units import about
from workbench.cli_show import say, show_rows, tell
from workbench.cli_table import Column, show_table

if TYPE_CHECKING:
    from workbench.simulator.cache.trace import Chunk, Trace

MIB = 2**20
QUIET_S, BETWEEN_S = 2.0, 5.0
"""Nothing is said of what takes no longer than the first, and then every so often."""
Row = dict[str, Any]


@dataclass
class Progress:
    """Says on stderr how far replays have come."""

    due: float = field(default_factory=lambda: time.monotonic() + QUIET_S)
    replays: int = 1
    """How often the trace is replayed in all: under each policy, at each size of L2."""
    replayed: int = 0
    begun: float | None = None
    """When the first access was replayed."""

    def told(self, count: int, most: int, ended: str) -> None:
        """So many of so many replays have ended, and that one just did."""
        self._say(lambda: f"{count} of {most} replays have ended, {ended} just now.")

    def watched(self, trace: Trace) -> Trace:
        """*trace*, whose replays tell how many accesses they have taken."""

        def chunks() -> Iterator[Chunk]:
            for chunk in trace.chunks():
                self.begun = self.begun or time.monotonic()  # the first took longer: accesses were counted for it
                yield chunk
                self.replayed += len(chunk.accesses)
                self._say(lambda: self._so_far(trace))

        return replace(trace, chunks=chunks)

    def _so_far(self, trace: Trace) -> str:
        """Where nothing but the number of accesses tells how long it takes, replays are as fast as until now."""
        most = max(self.replayed, self.replays * trace.count())
        taken_s = time.monotonic() - (self.begun or 0.0)
        left = f", {about(taken_s * (most - self.replayed) / self.replayed)} left" if taken_s > QUIET_S else ""
        return f"{self.replayed / 1e6:,.0f} of {most / 1e6:,.0f} million accesses are replayed{left}."

    def _say(self, sentence: Callable[[], str]) -> None:
        if time.monotonic() >= self.due:
            self.due = time.monotonic() + BETWEEN_S
            say(sentence())


def show(rows: list[Row], summary: Row, json: bool) -> None:
    """The rows and what they say, or one document of them."""
    if json:
        show_rows(rows, summary)
        return
    show_table([*_named(rows), *_counted(rows)])
    for sentence in _sentences(rows, summary):
        tell(sentence)


def _named(rows: list[Row]) -> list[Column]:
    """What tells rows apart."""
    several = len({row.get("application") for row in rows}) > 1
    sizes = [_number(row.get("l2_bytes"), "{:,.0f}", MIB) for row in rows]
    return [
        *([Column("application", [row["application"] for row in rows], "name")] if several else []),
        *([Column("L2\nMiB", sizes, "number")] if any(sizes) else []),
        *([Column("source", [row["source"] for row in rows], "name")] if _measured(rows) else []),
        Column("policy", [row["policy"] for row in rows], "name"),
    ]


def _measured(rows: list[Row]) -> list[Row]:
    """Those that a GPU counted."""
    return [row for row in rows if row.get("source") == "measured"]


def _counted(rows: list[Row]) -> list[Column]:
    """Numbers; a column in which nothing stands is left out."""
    relative = any(row["relative_cycles"] for row in rows)
    columns = [
        Column("of\nUncached", [_number(row["relative_cycles"], "{:.3f}") for row in rows], "number"),
        Column("cycles", [_number(row["cycles"], "{:,.0f}") for row in rows], "number", goes_below=int(relative)),
        Column("L2\nhits", [_number(row["l2_hit_rate"], "{:.1%}") for row in rows], "number"),
        Column("DRAM\nread", [_number(row.get("dram_read_bytes"), "{:,.0f}") for row in rows], "number"),
        Column("DRAM\nwritten", [_number(row.get("dram_write_bytes"), "{:,.0f}") for row in rows], "number"),
        Column("lines\nmissed", [_number(row["l2_line_misses"], "{:,.0f}") for row in rows], "number"),
    ]
    return [column for column in columns if any(cell is not None for cell in column.cells)]


def _number(value: float | None, form: str, unit: float = 1) -> str | None:
    return None if value is None else form.format(value / unit)


def _sentences(rows: list[Row], summary: Row) -> list[str]:
    """What the rows show, in sentences."""
    size = f"L2 of {summary['l2_bytes'] / MIB:g} MiB" if summary["l2_bytes"] else "L2 as stated in each row"
    how = "every access is replayed" if rows[0]["tier"] == "lines" else "tiles that share operands are counted"
    known = _measured(rows)
    which = "What is not measured" if known else "All"
    sentences = [f"Caches: {summary['caches']}, {size}. {which} is simulated, {how}; DRAM columns are in bytes."]
    if known:
        sentences.append(f"Measured: {known[0]['gpus']}, {known[0]['date']}, the median of {known[0]['repeats']} "
                         "launches, the caches flushed before each.")  # fmt: skip
    count = summary.get("applications")
    if count:
        sentences.append(f"The applications are {summary['labels']} from their names.")
    if summary.get("best_static_differs") is not None:
        sentences.append(f"The best static policy is {summary['usual_best_static']} for most, and another one for "
                         f"{summary['best_static_differs']} of {count} applications.")  # fmt: skip
    if summary.get("worst_regret") is not None:
        sentences.append(f"All optimisations together are within 2 % of the best static policy for "
                         f"{summary['optimised_within_2pct_of_best_static']} of {count}; the worst is "
                         f"{summary['worst_regret_application']}, {summary['worst_regret']:+.1%}.")  # fmt: skip
    return sentences
