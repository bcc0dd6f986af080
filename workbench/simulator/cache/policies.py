"""Cache policies of a replay, and the policy of a machine that follows a schedule's cache hints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from kernels.schedule import Refusal, Schedule
from kernels.schemes import axis_rules as hints

# Policies: how loads and stores are cached, which optimisations are on, which line is replaced, which hints are given.


class Loads(IntEnum):
    """How loads are cached."""

    BYPASS = 0
    """A load bypasses L1 and L2."""
    ALLOCATE = 1
    """A load allocates a line in L1 and in L2."""


class Stores(IntEnum):
    """How L2 caches stores. An L1 allocates nothing for a store; a line that it holds gets the new bytes."""

    THROUGH = 0
    """A store goes on to DRAM and allocates no line (write-through)."""
    BACK = 1
    """A store allocates a line, which is written to DRAM when it is evicted or flushed (write-back)."""


class Replacement(IntEnum):
    """Which line of a set is evicted."""

    LRU = 0
    RANDOM = 1
    SRRIP = 2
    """Re-reference interval prediction with two bits: lines that were hit stay longer than lines that were not."""


class Hint(IntEnum):
    """Cache hint of one access on NVIDIA GPUs. Lines of a lower hint are evicted before those of a higher one."""

    EVICT_FIRST = 0
    NORMAL = 1
    EVICT_LAST = 2
    PERSIST = 3
    """The line lies in the persisting part of its set, up to `Policy.persist_share` of the ways."""
    NO_ALLOCATE = 4
    """The line is looked up but not allocated in L2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One cache policy: the static policy of `loads` and `stores`, with optimisations and hints."""

    name: str
    title: str
    group: str
    """One of GROUPS."""
    loads: Loads = Loads.ALLOCATE
    stores: Stores = Stores.BACK
    allocation_bypass: bool = False
    """Whether a request bypasses the cache instead of stalling if every way of its set waits for DRAM."""
    rinsing: bool = False
    """Whether evicting a dirty line also writes back the other dirty lines of its DRAM row, which stay as clean."""
    predicted_bypass: bool = False
    """Whether instructions whose lines were not reused allocate no line; some sets always allocate, to learn.

    Stores of such instructions go through to DRAM, even in the learning sets, until one of their lines is reused.
    """
    replacement: Replacement = Replacement.LRU
    hints: Mapping[str, Hint] = field(default_factory=dict)
    """Hint for each role of a structure; NORMAL for roles that are not listed."""
    persist_share: float = 0.5


GROUPS = ("static", "optimised", "hint", "bound")
STACKED = "optimised"
"""Name of the policy with all three optimisations, which is compared with the best static one."""
UNCACHED = "uncached"
"""Name of the policy that relative cycles refer to."""

POLICIES: Mapping[str, Policy] = {
    policy.name: policy
    for policy in (
        Policy(name=UNCACHED, title="Uncached", group="static", loads=Loads.BYPASS, stores=Stores.THROUGH),
        Policy(name="cache_r", title="CacheR", group="static", stores=Stores.THROUGH),
        Policy(name="cache_rw", title="CacheRW", group="static"),
        Policy(name="allocation_bypass", title="CacheRW + allocation bypass", group="optimised",
               allocation_bypass=True),
        Policy(name="rinsing", title="CacheRW + rinsing", group="optimised", rinsing=True),
        Policy(name="predicted_bypass", title="CacheRW + predicted bypass", group="optimised", predicted_bypass=True),
        Policy(name="bypass_and_rinsing", title="CacheRW + allocation bypass + rinsing", group="optimised",
               allocation_bypass=True, rinsing=True),
        Policy(name=STACKED, title="All three", group="optimised", allocation_bypass=True, rinsing=True,
               predicted_bypass=True),
        Policy(name="evict_first", title="Outputs evict_first", group="hint",
               hints={"output": Hint.EVICT_FIRST, "peer buffer": Hint.EVICT_FIRST}),
        Policy(name="weights_evict_first", title="Weights evict_first", group="hint",
               hints={"weights": Hint.EVICT_FIRST}),
        Policy(name="evict_last", title="Weights evict_last", group="hint", hints={"weights": Hint.EVICT_LAST}),
        Policy(name="no_allocate", title="Outputs no_allocate", group="hint",
               hints={"output": Hint.NO_ALLOCATE, "peer buffer": Hint.NO_ALLOCATE}),
        Policy(name="persisting", title="Weights persist in half of L2", group="hint",
               hints={"weights": Hint.PERSIST}),
        Policy(name="random", title="Random replacement", group="bound", replacement=Replacement.RANDOM),
        Policy(name="srrip", title="SRRIP replacement", group="bound", replacement=Replacement.SRRIP),
    )
}  # fmt: skip
"""The table of policies. Belady's optimum is not in it, since it needs to know the future: see `whole_lines.py`."""


def policy(name: str) -> Policy:
    """The policy named *name*; Refusal lists the names."""
    if name not in POLICIES:
        raise Refusal(f"There is no cache policy {name!r}. Accepted: all, {', '.join(POLICIES)}.")
    return POLICIES[name]


# The policies of a schedule's cache hints.

USUAL = "cache_rw"
"""Name of the policy of an L2 without hints, or with hints that change nothing (wb, cg)."""
LOADS: Mapping[str, str] = {"evict_first": "weights_evict_first", "evict_last": "evict_last"}
STORES: Mapping[str, str] = {"cs": "evict_first", "wt": "cache_r"}
"""Name of the policy of each hint for loads by pointer (LOADS) and for stores of results (STORES)."""


def hints_of(schedule: Schedule) -> dict[str, str]:
    """The cache hints of *schedule* by axis, without axes that give no hint."""
    values = {axis: str(schedule.get(axis, hints.NO_HINT)) for axis in (hints.LOAD, hints.STORE)}
    return {axis: hint for axis, hint in values.items() if hint != hints.NO_HINT}


def policies_of(schedule: Schedule) -> tuple[Policy, ...]:
    """The default policy, followed by the policy of each hint of *schedule* by itself."""
    by_axis = hints_of(schedule)
    chosen = [LOADS.get(by_axis.get(hints.LOAD, ""), USUAL), STORES.get(by_axis.get(hints.STORE, ""), USUAL)]
    return tuple(POLICIES[name] for name in dict.fromkeys([USUAL, *chosen]))
