"""The protocol of puts between hosts as a model: late, reordered and lost messages give no wrong result, only a wait.

The model makes the calls of `transport.py` with the signals, contexts and halves of `table.py` and `context.py`, in any
order that a network and ranks of any speed may bring about. Variants that break one rule each are found to be wrong.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kernels.backends.triton.gin.table import HALVES, QUEUE, SliceTable, queue_refusal


@dataclass(frozen=True)
class Rules:
    """The protocol, or a variant of it that breaks one rule."""

    halves: int = HALVES
    signal_of_each_source: bool = True
    signal_of_each_half: bool = True
    flushes: bool = True


@dataclass
class Put:
    source: int
    peer: int
    number: int
    half: int
    payload: int | None = None
    """What the network has read of the source; None: it has not read it yet."""
    taken: bool = False


@dataclass
class Rank:
    call: int = 1
    sent: int = 0
    """Puts of this call that were posted."""
    read: bool = False
    """Whether what landed in this call was read, so that only the flush is left."""
    stage: dict[tuple[int, int], int] = field(default_factory=dict)
    landing: dict[tuple[int, int, int], int] = field(default_factory=dict)
    signals: dict[int, int] = field(default_factory=dict)
    wrong: int = 0


class Gang:
    """Ranks that call again and again, and the messages between them."""

    def __init__(self, table: SliceTable, calls: int, rules: Rules, lost: frozenset[int] = frozenset()) -> None:
        self.table, self.calls, self.rules, self.lost = table, calls, rules, lost
        self.ranks = [Rank() for _ in range(table.world)]
        self.messages: list[Put] = []
        self.posted = 0

    def run(self, choices: Sequence[int]) -> None:
        """Takes the enabled events that *choices* name, then the first one, until none is enabled."""
        taken = 0
        while events := self.events():
            kind, who = events[choices[taken] % len(events) if taken < len(choices) else 0]
            taken += 1
            getattr(self, kind)(who)

    def events(self) -> list[tuple[str, int]]:
        """What may happen next: the network takes or delivers a message, or a rank makes a step."""
        network = [("deliver" if put.taken else "take", at) for at, put in enumerate(self.messages)]
        return network + [("step", number) for number in range(self.table.world) if self.may_step(number)]

    def take(self, at: int) -> None:
        """The network reads the source of a put."""
        put = self.messages[at]
        put.payload, put.taken = self.ranks[put.source].stage[put.peer, put.number], True

    def deliver(self, at: int) -> None:
        """Data land, then the signal of the same put rises: no other order is promised."""
        put = self.messages.pop(at)
        peer, signal = self.ranks[put.peer], self.signal(put.source, put.number, put.half)
        assert put.payload is not None
        peer.landing[put.half % self.rules.halves, put.source, put.number] = put.payload
        peer.signals[signal] = peer.signals.get(signal, 0) + 1

    def signal(self, source: int, number: int, half: int) -> int:
        half = half if self.rules.signal_of_each_half else 0
        return self.table.signal(source if self.rules.signal_of_each_source else 0, number, half)

    def expected(self, call: int) -> int:
        """What the counters of a call have reached once its puts are here: the calls of its parity."""
        return (call + 1) // 2 if self.rules.signal_of_each_half else call

    def puts(self, rank: int) -> list[tuple[int, int]]:
        return [(peer, number) for number in range(len(self.table)) for peer in self.peers(rank)]

    def peers(self, rank: int) -> list[int]:
        return [other for other in range(self.table.world) if other != rank]

    def may_step(self, number: int) -> bool:
        rank, sources = self.ranks[number], 1 if self.rules.signal_of_each_source else self.table.world - 1
        if rank.call > self.calls:
            return False
        if rank.sent < len(self.puts(number)):
            return True
        if rank.read:
            return not self.rules.flushes or not any(put.source == number and not put.taken for put in self.messages)
        half, least = self.half_of(rank.call), sources * self.expected(rank.call)
        return all(rank.signals.get(self.signal(source, each, half), 0) >= least
                   for source in self.peers(number) for each in range(len(self.table)))  # fmt: skip

    def half_of(self, call: int) -> int:
        return (call - 1) % HALVES

    def step(self, number: int) -> None:
        """Stages and posts one slice; or reads all that landed; or ends the call."""
        rank, half = self.ranks[number], self.half_of(self.ranks[number].call)
        if rank.sent < len(self.puts(number)):
            peer, each = self.puts(number)[rank.sent]
            rank.stage[peer, each] = rank.call
            rank.sent += 1
            self.posted += 1
            if self.posted not in self.lost:
                self.messages.append(Put(number, peer, each, half))
        elif not rank.read:
            rank.wrong += sum(rank.landing.get((half % self.rules.halves, source, each)) != rank.call
                              for source in self.peers(number) for each in range(len(self.table)))  # fmt: skip
            rank.read = True
        else:
            rank.call, rank.sent, rank.read = rank.call + 1, 0, False

    @property
    def wrong(self) -> int:
        return sum(rank.wrong for rank in self.ranks)

    @property
    def waiting(self) -> int:
        """Ranks that would wait until the deadline."""
        return sum(rank.call <= self.calls for rank in self.ranks)


def table_of(world: int, slices: int) -> SliceTable:
    return SliceTable(world, tuple((number, number + 1) for number in range(slices)))


CHOICES = st.lists(st.integers(0, 997), max_size=120)


@settings(max_examples=60, deadline=None)
@given(world=st.integers(2, 4), slices=st.integers(1, 3), calls=st.integers(1, 4), choices=CHOICES)
def test_late_and_reordered_messages_never_give_a_wrong_result(
    world: int, slices: int, calls: int, choices: list[int]
) -> None:
    gang = Gang(table_of(world, slices), calls, Rules())
    gang.run(choices)
    assert gang.wrong == 0
    assert gang.waiting == 0, "every message arrived, so that nobody reaches a deadline"


@settings(max_examples=60, deadline=None)
@given(world=st.integers(2, 3), slices=st.integers(1, 2), lost=st.integers(1, 6), choices=CHOICES)
@example(world=2, slices=1, lost=1, choices=[])
def test_a_lost_message_ends_in_a_deadline_and_in_no_wrong_result(
    world: int, slices: int, lost: int, choices: list[int]
) -> None:
    gang = Gang(table_of(world, slices), 4, Rules(), frozenset({lost}))
    gang.run(choices)
    assert gang.wrong == 0
    assert gang.waiting > 0, "whoever waits for it, or for a rank that does, reaches its deadline"


BROKEN = {
    "one signal for all sources and halves": replace(Rules(), signal_of_each_source=False, signal_of_each_half=False),
    "one signal for both halves": replace(Rules(), signal_of_each_half=False),
    "one half": replace(Rules(), halves=1),
    "no flush": replace(Rules(), flushes=False),
}


@pytest.mark.slow(keeps=1)
@pytest.mark.parametrize("name", BROKEN)
def test_the_model_finds_what_each_broken_rule_breaks(name: str) -> None:
    """Otherwise it could not find it in the protocol either."""
    wrong = [gang.wrong for gang in walks(BROKEN[name])]
    assert sum(wrong) > 0, f"{name}: no order gave a wrong result"
    assert all(gang.wrong == gang.waiting == 0 for gang in walks(Rules())), "the same orders, with every rule"


def walks(rules: Rules) -> Iterator[Gang]:
    """Gangs of three ranks after 300 random orders of events, the same for all rules."""
    for seed in range(300):
        gang = Gang(table_of(3, 1), 4, rules)
        gang.run(Random(seed).choices(range(997), k=120))
        yield gang


# No queue is ever full, by the table.


@given(world=st.integers(2, 8), slices=st.integers(1, 200), contexts=st.integers(1, 8))
@settings(max_examples=50, deadline=None)
def test_a_table_that_is_accepted_never_fills_a_queue(world: int, slices: int, contexts: int) -> None:
    table = replace(table_of(world, slices), contexts=contexts)
    fullest = max(sum(queue == each for each in table.puts(0)) for queue in set(table.puts(0)))
    assert (table.refusal() is None) == (fullest <= QUEUE) == (-(-slices // contexts) <= QUEUE)
    numbers = product(range(world), range(slices), range(HALVES))
    used = {(table.context(number), table.signal(source, number, half)) for source, number, half in numbers}
    assert len(used) == HALVES * world * slices, "no two slices share a counter"
    assert max(signal for _, signal in used) < table.meeting < table.signals


def test_too_many_slices_are_refused_with_both_numbers() -> None:
    table = table_of(2, 129)
    assert table.refusal() == (
        "slice_tiles cuts a chunk into 129 slices, which is too many for transport = gin: 4 contexts hold 32 puts each "
        "for a peer, and one would get 33: 33 > 32. Accepted: slices so large that a chunk has at most 128."
    )
    assert table_of(2, 128).refusal() is None
    assert queue_refusal(1, 1, [[(0, 1)] * (QUEUE + 1)]) is not None
