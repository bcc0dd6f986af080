"""Quiet or busy: whether others used so much of the cores meanwhile that times cannot be trusted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from kernels.fabric import SHARED_GPU, TIMES_ARE_NOT
from kernels.hardware import Hardware
from kernels.outcome import Measurement
from kernels.schemes import BASELINE
from workbench.naming import TIMED
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
    """*rows* without those of a block that was timed again because others disturbed it, where the other is quieter.

    A whole block goes, so that what was timed in turns stays together; a repetition in which a trial failed replaces
    only what it has. A baseline is in every block: it goes with the last schedule that is compared with it.
    """
    repeated = _repeated(rows)
    rows = [row for row in rows if _block(row) not in repeated]
    least: dict[tuple[str, str], float] = {}
    for row in rows:
        if row.get("others_share") is not None:
            least[_trial(row)] = min(row["others_share"], least.get(_trial(row), row["others_share"]))
    kept = [row for row in rows if not is_busy(row.get("others_share")) or row["others_share"] <= least[_trial(row)]]
    needed = {_block(row) for row in kept if row.get("scheme") != BASELINE}
    ids = {id(row) for row in kept}
    return [row for row in rows if id(row) in ids or (row.get("scheme") == BASELINE and _block(row) in needed)]


def _repeated(rows: Sequence[Row]) -> set[tuple[str, str]]:
    """The disturbed blocks of which another block timed all schedules while others used less."""
    blocks: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        blocks.setdefault(_block(row), []).append(row)
    schedules = {block: {row.get("key") for row in same if row.get("scheme") != BASELINE}
                 or {row.get("key") for row in same} for block, same in blocks.items()}  # fmt: skip
    worst = {block: max(row.get("others_share") or 0.0 for row in same) for block, same in blocks.items()}
    return {block for block, keys in schedules.items() if is_busy(worst[block])
            and any(keys <= schedules[other] and worst[other] < worst[block]
                    for other in blocks if other[0] == block[0])}  # fmt: skip


def _trial(row: Row) -> tuple[str, str]:
    return str(row.get("run")), str(row.get("key"))


def _block(row: Row) -> tuple[str, str]:
    return str(row.get("run")), str(row.get("block"))


def busy_sentence(rows: Iterable[Row]) -> str:
    """One sentence on how much others used while *rows* were timed; empty if the computer was quiet.

    A disturbed row does not count where its trial was timed again on a quieter computer. Parts that were timed alone
    count only where no whole schedule was disturbed, so that all who show the same times name the same share.
    """
    known = list(rows)
    wholes = [row for row in known if row.get("part") in (None, "whole") and row.get("others_share") is not None]
    if not (busy := busy_rows(least_disturbed(wholes)) or busy_rows(least_disturbed(known))):
        return ""
    return f"Others used the cores meanwhile ({busy[0]['others']}): these times are not trustworthy."


def busiest_party(uses: Sequence[HostUse]) -> str:
    """Who uses most of the cores of the host that others use most; empty where nobody was named."""
    worst = max(uses, key=lambda use: use.share, default=None)
    return "" if worst is None else max(worst.whom, key=lambda party: worst.whom[party], default="")


def share_gpu(rows: Iterable[Row]) -> bool:
    """Whether some of *rows* were timed on ranks that took turns on one GPU, or on hosts that did."""
    return any((row.get("fabric") == SHARED_GPU or _on_shared_gpu(row)) and row.get("source") in TIMED for row in rows)


def _on_shared_gpu(row: Row) -> bool:
    """Whether the hardware of *row* is a GPU that several ranks, or hosts, take turns on."""
    hardware = row.get("hardware")
    return isinstance(hardware, Mapping) and Hardware.from_json(hardware).shares_gpu


def distrust(rows: Sequence[Row]) -> str | None:
    """Why the times of *rows* cannot be trusted, as part of a sentence; None where they can."""
    if share_gpu(rows):
        return "ranks share a GPU, so times are not real"
    worst = next(iter(busy_rows(rows)), None)
    return None if worst is None else f"others used the cores meanwhile ({worst.get('others') or 'unknown'})"


def caution(rows: Sequence[Row]) -> str:
    """The sentences on times of *rows* that cannot be trusted; empty if all can."""
    return " ".join(filter(None, (TIMES_ARE_NOT if share_gpu(rows) else "", busy_sentence(rows))))


def busy_host_sentence(uses: Sequence[HostUse]) -> str:
    """One sentence on how much others use of the cores now; empty where all hosts are quiet."""
    worst = max(uses, key=lambda use: use.share, default=None)
    if worst is None or not is_busy(worst.share):
        return ""
    whom = busiest_party(uses)
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
