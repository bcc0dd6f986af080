"""A schedule's cache hints as a policy that a replay knows: what a machine would do that takes them at their word."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from kernels.schedule import Refusal, Schedule
from kernels.schemes import axis_rules as hints

# Cache policies are values: how loads and stores are cached, what is added, who is replaced, who gets a hint.


class Loads(IntEnum):
    """What a load does."""

    BYPASS = 0
    """Goes around L1 and L2."""
    ALLOCATE = 1
    """Takes a line of L1 and of L2."""


class Stores(IntEnum):
    """What a store does in L2. No L1 keeps what is written; a line that is there has the new bytes."""

    THROUGH = 0
    """Goes on to DRAM, and takes no line."""
    BACK = 1
    """Takes a line, which goes to DRAM when it is replaced or flushed."""


class Replacement(IntEnum):
    """Which line of a set goes."""

    LRU = 0
    RANDOM = 1
    SRRIP = 2
    """Re-reference interval prediction, two bits: lines that were hit stay longer than lines that were not."""


class Hint(IntEnum):
    """What NVIDIA lets a kernel say of one access. Lines of a lower hint are replaced before those of a higher one."""

    EVICT_FIRST = 0
    NORMAL = 1
    EVICT_LAST = 2
    PERSIST = 3
    """The line is in the part of every set that others cannot take, up to `Policy.persist_share` of its ways."""
    NO_ALLOCATE = 4
    """The line is looked up, and takes no place in L2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One cache policy. Optimisations and hints add to the static policy that `loads` and `stores` are."""

    name: str
    title: str
    group: str
    """One of GROUPS."""
    loads: Loads = Loads.ALLOCATE
    stores: Stores = Stores.BACK
    allocation_bypass: bool = False
    """Where every way of the set waits for DRAM, the request goes around the cache and does not stall."""
    rinsing: bool = False
    """With a dirty line that is evicted go all other dirty lines of its DRAM row, which stay, clean."""
    predicted_bypass: bool = False
    """Loads and stores whose lines were not used again take no line; some sets always allocate, and so learn.

    Stores go through to DRAM, also where their line is kept to learn, until such a line was used again.
    """
    replacement: Replacement = Replacement.LRU
    hints: Mapping[str, Hint] = field(default_factory=dict)
    """By role of the structure; NORMAL where none is named."""
    persist_share: float = 0.5


GROUPS = ("static", "optimised", "hint", "bound")
STACKED = "optimised"
"""The policy with all three optimisations, which is compared with the best static one."""
UNCACHED = "uncached"
"""What cycles are relative to."""

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
"""The table of policies. Belady's optimum is no policy, since it knows the future: `lines.py`."""


def policy(name: str) -> Policy:
    """The policy called *name*; Refusal lists the names."""
    if name not in POLICIES:
        raise Refusal(f"There is no cache policy {name!r}. Accepted: all, {', '.join(POLICIES)}.")
    return POLICIES[name]


# A schedule's cache hints as a policy that a replay knows: what a machine would do that takes them at their word.

USUAL = "cache_rw"
"""What L2 does by itself, and where a hint says nothing that it would not do anyway (wb, cg)."""
LOADS: Mapping[str, str] = {"evict_first": "weights_evict_first", "evict_last": "evict_last"}
STORES: Mapping[str, str] = {"cs": "evict_first", "wt": "cache_r"}
"""Names of policies by hint: of what is loaded by pointers, and of results."""


def hints_of(schedule: Schedule) -> dict[str, str]:
    """By axis the hint of *schedule*, where it names one."""
    named = {axis: str(schedule.get(axis, hints.NO_HINT)) for axis in (hints.LOAD, hints.STORE)}
    return {axis: hint for axis, hint in named.items() if hint != hints.NO_HINT}


def policies_of(schedule: Schedule) -> tuple[Policy, ...]:
    """The policy of each hint of *schedule*, each by itself, behind the usual one; that alone where it has none."""
    named = hints_of(schedule)
    chosen = [LOADS.get(named.get(hints.LOAD, ""), USUAL), STORES.get(named.get(hints.STORE, ""), USUAL)]
    return tuple(POLICIES[name] for name in dict.fromkeys([USUAL, *chosen]))
