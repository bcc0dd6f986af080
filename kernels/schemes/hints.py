"""Cache hints: what a kernel of pointers may say of its loads and stores, and how Triton spells it.

Bulk copies take none. Triton 3.6 knows no other eviction policies and store modifiers than these. It drops a policy
where it loads ahead through shared memory: PTX of our GEMV has the same `cp.async` with and without it.
"""

from __future__ import annotations

from collections.abc import Mapping

from kernels.axes import Axis
from kernels.schedule import Schedule

LOAD, STORE = "load_hint", "store_hint"
"""The axes. Of loads: of rows of tables. Of stores: of sums of rows, and of tiles that threads store."""
NORMAL = "normal"
"""What kernels did before they could be told, and what no schedule names."""
EVICTION: Mapping[str, str] = {NORMAL: "", "evict_first": "evict_first", "evict_last": "evict_last"}
MODIFIER: Mapping[str, str] = {NORMAL: "", "wb": ".wb", "cg": ".cg", "cs": ".cs", "wt": ".wt"}


def eviction(schedule: Schedule) -> str:
    """The eviction policy of a `tl.load`."""
    return EVICTION[str(schedule.get(LOAD, NORMAL))]


def modifier(schedule: Schedule) -> str:
    """The cache modifier of a `tl.store`."""
    return MODIFIER[str(schedule.get(STORE, NORMAL))]


def axes() -> tuple[Axis, Axis]:
    """Both, with every value that Triton takes."""
    return (
        Axis(LOAD, tuple(EVICTION), NORMAL, "Which lines the cache gives up first: those of this kernel's operands, "
             "or others."),
        Axis(STORE, tuple(MODIFIER), NORMAL, "How results are stored: back from L2 (wb, cg), streaming (cs), or "
             "through (wt)."),
    )  # fmt: skip
