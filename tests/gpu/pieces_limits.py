"""Why a call in pieces takes more than the longer of its halves: by its timeline, which is of one call more."""

from __future__ import annotations

from dataclasses import dataclass

from tests.gpu.summary import Row
from workbench.results import metrics


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds of the timeline of the slowest rank, as the longer half sees it."""

    before_s: float
    """Until it begins: ranks meet, launches begin, and what is sent first is computed."""
    between_s: float
    """In which it waits after it began."""
    after_s: float
    """After it ended, until all is done."""
    slower_s: float
    """That it is under way longer than alone in one piece."""

    traced_s: float
    """That the traced call takes longer than the timed ones: events between launches cost time."""


def limits(row: Row) -> Limits | None:
    """Of a whole *row* whose block has T_c and T_comm; None where its timeline was not recorded.

    Copies of all ranks count: what a rank waits for is another one's copy.
    """
    spans, whole_s, transfer_s = row["spans"], row["whole_s"], row["transfer_s"]
    computes = metrics.merged(span for span in metrics.spans_of_slowest(spans) if span.kind == "compute")
    copies = metrics.merged(span for span in spans if span.kind in metrics.SENDS)
    if not computes or not copies or not whole_s or not transfer_s:
        return None
    longer, alone_s = (computes, whole_s) if whole_s >= transfer_s else (copies, transfer_s)
    end_s, under_way_s = max(span.stop_s for span in spans), metrics.total_seconds(longer)
    begin_s, stop_s = longer[0][0], longer[-1][1]
    return Limits(begin_s, stop_s - begin_s - under_way_s, end_s - stop_s, under_way_s - alone_s,
                  end_s - row["time_s"])  # fmt: skip
