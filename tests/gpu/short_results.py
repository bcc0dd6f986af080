"""README's table of results: of each group of recorded problems the best row and the worst one.

All numbers of a row are of one block, as in the tables of docs/results/ from which the rows are taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.gpu import pieces_summary, summary
from tests.gpu.summary import NO_GAIN, Column, baseline_words, bold, dates, number, problem_words, table, wrapped
from workbench.results import metrics
from workbench.results.recordings import Recorded

GROUPS = (("gemv_all_reduce",), ("embedding_all_to_all",), ("gemm_all_to_all", "all_gather_gemm", "all_to_all_gemm",
          "gemm_reduce_scatter", "gemm_all_reduce"))  # fmt: skip
"""Operators of the fused kernels whose rows are compared with each other."""


@dataclass(frozen=True)
class Result:
    """A schedule of ours and the best baseline of its block."""

    schedule: str
    ours: summary.Row
    baseline: summary.Row
    day: str

    @property
    def ratio(self) -> float:
        return metrics.time_ratio(self.ours["time_s"], self.baseline["time_s"])


COLUMNS: tuple[Column[Result], ...] = (
    ("operator and shape", lambda one: problem_words(one.ours)),
    ("GPUs, date, regime", lambda one: f"{one.ours['world']}, {one.day}, {one.ours['regime']}"),
    ("best baseline", lambda one: f"{number(one.baseline['time_s'])} µs, {baseline_words(one.baseline)}"),
    ("overlapped", lambda one: f"{number(one.ours['time_s'])} µs, {one.schedule}"),
    ("ratio", lambda one: bold(one.ratio)),
)


def text(entries: Sequence[Recorded], of_pieces: Sequence[Recorded]) -> str | None:
    """The table and how many rows lose; None where nothing is recorded."""
    many = summary.lines(summary.joined(entries)).get(summary.MANY, [])
    fused = [Result("`fused`", line.fused, line.baseline, days_of(line.fused, entries)) for line in many]
    pieces = [
        Result(f"`decomposed`, {pieces_summary.cut(line.pieces)}", line.pieces, line.baseline,
               days_of(line.pieces, of_pieces))
        for line in pieces_summary.lines(of_pieces)
    ]  # fmt: skip
    groups = [[one for one in fused if one.ours["operator"] in operators] for operators in GROUPS]
    rows = [one for group in [*groups, pieces] for one in ends(group)]
    if not rows:
        return None
    return "\n\n".join(["\n".join(table(COLUMNS, rows)), wrapped(f"{lost(fused, '`fused`')} {lost(pieces, 'pieces')}")])


def days_of(row: summary.Row, entries: Sequence[Recorded]) -> str:
    """The days on which the problem of *row* was measured."""
    problems = ((entry, entry.measurement.trial.problem) for entry in entries)
    return dates([entry for entry, problem in problems
                  if (problem.operator, dict(problem.shape)) == (row["operator"], row["shape"])])  # fmt: skip


def ends(group: Sequence[Result]) -> list[Result]:
    """The best and the worst of *group*."""
    ordered = sorted(group, key=lambda one: one.ratio)
    return [ordered[0], ordered[-1]] if len(ordered) > 1 else ordered


def lost(some: Sequence[Result], name: str) -> str:
    """In how many of *some* there is no gain."""
    if not some:
        return ""
    count = sum(one.ratio >= NO_GAIN for one in some)
    verb = "is" if count == 1 else "are"
    return f"Of all {len(some)} problems measured with {name}, {count} {verb} not faster than the best baseline."
