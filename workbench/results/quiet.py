"""Quiet or busy: whether others used so much of the cores meanwhile that times cannot be trusted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kernels.outcome import Measurement
from workbench.results.rows import Row

if TYPE_CHECKING:
    from cluster.cpu_use import HostUse

BUSY_SHARE = 0.10
"""Share of the cores that others may use before times are not trusted.

CPU ranks share cores with whatever others run, so a tenth of the cores makes times longer by some 10 %, which is what
schedules of one problem often differ by. A window of a second is read to some 3 % of two cores: the kernel counts in
ticks of 10 ms, for each core and each process of the gang.
"""


def is_busy(share: float | None) -> bool:
    """Whether others used more than `BUSY_SHARE` of the cores; False where nobody read it."""
    return share is not None and share > BUSY_SHARE


def busy_rows(rows: Iterable[Row]) -> list[Row]:
    """Those of *rows* that were timed on a busy computer, the worst first."""
    busy = [row for row in rows if is_busy(row.get("others_share"))]
    return sorted(busy, key=lambda row: -float(row["others_share"]))


def least_disturbed(rows: Sequence[Row]) -> list[Row]:
    """*rows* without those of a block that was timed again because others disturbed it, where the other is quieter."""
    least: dict[tuple[str, str], float] = {}
    for row in rows:
        if row.get("others_share") is not None:
            trial = str(row.get("run")), str(row.get("key"))
            least[trial] = min(row["others_share"], least.get(trial, row["others_share"]))
    return [row for row in rows if not is_busy(row.get("others_share"))
            or row["others_share"] <= least[str(row.get("run")), str(row.get("key"))]]  # fmt: skip


def busy_sentence(rows: Iterable[Row]) -> str:
    """One sentence on how much others used while *rows* were timed; empty if the computer was quiet."""
    if not (busy := busy_rows(rows)):
        return ""
    return f"Others used the cores meanwhile ({busy[0]['others']}): these times are not trustworthy."


def busy_host_sentence(uses: Sequence[HostUse]) -> str:
    """One sentence on how much others use of the cores now; empty where all hosts are quiet."""
    busy = [use for use in uses if is_busy(use.share)]
    if not busy:
        return ""
    worst = max(busy, key=lambda use: use.share)
    whom = max(worst.whom, key=lambda party: worst.whom[party], default="")
    mostly = f", mostly {whom}" if whom else ""
    return (
        f"This computer is busy: others use {worst.others_cores:.1f} of {worst.cores:g} cores{mostly}. "
        "Times taken now are not trustworthy."
    )


def disturbed_rounds(outcome: Measurement) -> list[int] | None:
    """Numbers of the rounds of *outcome* during which others used too much; None where nobody read it."""
    if not outcome.core_use:
        return None
    marked = {number for each in outcome.core_use if is_busy(each["others_cores"] / each["cores"])
              for number in range(each["samples"][0], each["samples"][1] + 1)}  # fmt: skip
    return sorted(marked)
