"""Replays of traces: computed by hand, and equal to a plain simulator of dictionaries, access by access."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.schedule import Refusal
from tests.simulator.cache.made import STRUCTURES, load, small, store, trace
from tests.simulator.cache.oracle import Oracle
from workbench.simulator.cache import step
from workbench.simulator.cache.hierarchy import LINE_BYTES, Hierarchy
from workbench.simulator.cache.policies import POLICIES, Policy, Replacement
from workbench.simulator.cache.policies import policy as policies_policy
from workbench.simulator.cache.replay import counted, replayed, simulate
from workbench.simulator.cache.trace import ACCESS, ALL_SECTORS, DIRECT, PEER, WRITE, Trace, in_memory
from workbench.simulator.cache.whole_lines import NEVER, Optimum, lru_misses, next_reads

# Traces of a few accesses, whose cycles and bytes are computed by hand beside them.

LRU = POLICIES["cache_rw"]


def test_hits_and_open_rows_cost_what_they_say() -> None:
    """One request at a time. A miss: 100 to DRAM, 500 where its row is closed, 1000, and 4 sectors. A hit: 100."""
    replay = simulate(trace([load(0), load(0), load(1), load(0), load(2)]), small(), LRU)
    assert replay.cycles == (100 + 500 + 1000 + 4) + 100 + (100 + 1000 + 4) + 100 + (100 + 1000 + 4)
    assert replay.total.l2_hit_rate == 8 / 20
    assert (replay.total.dram_read_bytes, replay.total.dram_write_bytes) == (3 * LINE_BYTES, 0)
    assert replay.row_hit_rate == 2 / 3


def test_without_a_cache_every_load_goes_to_dram() -> None:
    replay = simulate(trace([load(0), load(0)]), small(), POLICIES["uncached"])
    assert replay.cycles == (100 + 500 + 1000 + 4) + (100 + 1000 + 4)
    assert replay.total.l2_hit_rate == 0.0
    assert replay.total.dram_read_bytes == 2 * LINE_BYTES


def test_l1_answers_sooner_and_forgets_when_the_kernel_ends() -> None:
    on = small(l1_bytes=LINE_BYTES)
    replay = simulate(trace([load(0), load(0)], [load(0)]), on, LRU)
    assert replay.cycles == (10 + 100 + 500 + 1000 + 4) + 10 + (10 + 100)
    assert replay.total.l1_hit_rate == 4 / 12
    assert replay.total.l2_hit_rate == 4 / 8
    direct = simulate(trace([load(0, flags=2), load(0, flags=2)]), on, LRU)
    assert direct.total.l1_hit_rate is None


def test_only_missing_sectors_are_fetched() -> None:
    replay = simulate(trace([load(0, sectors=0b0001), load(0, sectors=0b0011)]), small(), LRU)
    assert replay.total.dram_read_bytes == 2 * 32
    assert replay.total.l2_hit_rate == 1 / 3
    assert replay.total.l2_line_misses == 1


def test_a_dirty_line_is_written_when_it_goes_and_rinsing_takes_its_row_along() -> None:
    accesses = trace([store(0), store(1), load(2)])
    plain, rinsed = (simulate(accesses, small(), POLICIES[name]) for name in ("cache_rw", "rinsing"))
    assert (plain.total.dram_write_bytes, plain.rinsed_lines) == (LINE_BYTES, 0)
    assert (rinsed.total.dram_write_bytes, rinsed.rinsed_lines) == (2 * LINE_BYTES, 1)
    loaded = 100 + 100 + (100 + 500 + 1000 + 4)
    assert plain.cycles == loaded + 1000 + 4
    assert rinsed.cycles == loaded + 1000 + 4 + 4
    assert rinsed.row_hit_rate == 2 / 3


def test_a_rinsed_line_stays_and_is_not_written_again() -> None:
    accesses = trace([store(0), store(1), load(2), load(1), load(3), load(4)])
    replay = simulate(accesses, small(), POLICIES["rinsing"])
    assert replay.total.dram_write_bytes == 2 * LINE_BYTES
    assert replay.structures["w"].l2_hit_rate == 1 / 4


def test_a_store_that_goes_through_is_written_at_once_and_takes_no_line() -> None:
    replay = simulate(trace([store(0), store(0), load(0)]), small(), POLICIES["cache_r"])
    assert replay.structures["y"].dram_write_bytes == 2 * LINE_BYTES
    assert replay.total.l2_hit_rate == 0.0
    combined = simulate(trace([store(0), store(0), load(0)]), small(), LRU)
    assert combined.total.dram_write_bytes == 0
    assert combined.total.l2_hit_rate == 1.0


def test_what_is_dirty_is_flushed_at_a_kernels_end_where_the_machine_asks_for_it() -> None:
    kernels = trace([store(0)], [load(0)])
    kept, flushed = (simulate(kernels, small(flushes=flushes), LRU) for flushes in (False, True))
    assert (kept.total.dram_write_bytes, flushed.total.dram_write_bytes) == (0, LINE_BYTES)
    assert kept.total.l2_hit_rate == flushed.total.l2_hit_rate == 1.0
    assert kept.cycles == 100 + 100
    assert flushed.cycles == 100 + (500 + 1000 + 4) + 100


def test_a_request_waits_for_a_way_or_goes_around() -> None:
    """Both ways wait for DRAM, until 1604 and 1608. The third request comes at 4: the port takes 2 cycles a line."""
    on = small(in_flight=3)
    waits = simulate(trace([load(0), load(1), load(2)]), on, LRU)
    assert (waits.total.stalls, waits.total.stall_cycles) == (1, 1604 - 4)
    assert waits.cycles == 1604 + 100 + 1000 + 4
    around = simulate(trace([load(0), load(1), load(2)]), on, POLICIES["allocation_bypass"])
    assert (around.total.stalls, around.total.bypassed) == (0, 1)
    assert around.cycles == 1608 + 4


def test_a_line_waits_for_a_miss_status_register() -> None:
    """The only register is free at 1604."""
    on = small(in_flight=2, l2_misses=1)
    replay = simulate(trace([load(0), load(1)]), on, LRU)
    assert replay.cycles == 1604 + 100 + 1000 + 4
    assert replay.total.stalls == 0


def test_a_full_write_queue_holds_up_who_writes() -> None:
    """The second write finds the queue of one full, and comes into it when the first one is in DRAM."""
    on = small(dram_write_queue=1)
    replay = simulate(trace([store(0), store(1)]), on, POLICIES["uncached"])
    first = 100 + (100 + 500 + 1000 + 4)
    assert replay.cycles == first + 1000 + 4


def test_banks_open_rows_side_by_side() -> None:
    """The row of the other bank opens while the first one's bytes come: only its 4 sectors are added."""
    on = small(dram_banks=2, in_flight=2)
    replay = simulate(trace([load(0), load(4)]), on, POLICIES["uncached"])
    assert replay.cycles == 100 + 500 + 1000 + 4 + 4


def test_weights_stay_where_a_hint_says_so() -> None:
    scan = [load(0), *(load(line, structure=1) for line in range(1, 4)), load(0)]
    for name, kept in (("cache_rw", False), ("evict_last", True), ("persisting", True)):
        replay = simulate(trace(scan), small(), POLICIES[name])
        assert replay.structures["w"].l2_hit_rate == (0.5 if kept else 0.0), name


def test_outputs_give_way_where_a_hint_says_so() -> None:
    accesses = trace([load(0), load(1, structure=1), store(2), load(0), load(1, structure=1)])
    for name, hits in (("cache_rw", 0), ("no_allocate", 8)):
        assert simulate(accesses, small(), POLICIES[name]).total.l2_hit_rate == hits / 16, name
    accesses = trace([load(0), store(2), load(1, structure=1), load(0)])
    for name, hits in (("cache_rw", 0), ("evict_first", 4)):
        assert simulate(accesses, small(), POLICIES[name]).total.l2_hit_rate == hits / 12, name


def test_an_instruction_whose_lines_are_not_used_again_goes_around() -> None:
    """Instruction 0 streams, instruction 1 reads four lines over and over: 31 of 32 sets are spared the stream."""
    accesses = [load(64 + 7 * i, instruction=0) if i % 2 else load(i // 2 % 4, instruction=1) for i in range(4000)]
    on = small(l2_bytes=64 * 2 * LINE_BYTES)
    plain, predicted = (simulate(trace(accesses), on, POLICIES[name]) for name in ("cache_rw", "predicted_bypass"))
    assert plain.total.bypassed == 0
    assert 1500 < predicted.total.bypassed < 2000
    assert predicted.total.l2_line_misses <= plain.total.l2_line_misses


def test_a_store_goes_through_until_a_line_of_it_was_read_again() -> None:
    """One set, in which instruction 0 learns: its first line is kept, and is in DRAM. It is read: the next waits."""
    accesses = [store(2), load(2, structure=2, instruction=1), store(3)]
    for name, written in (("cache_rw", 0), ("predicted_bypass", 128)):
        replay = simulate(trace(accesses), small(), POLICIES[name])
        assert replay.structures["y"].dram_write_bytes == written, name
        assert replay.structures["y"].dram_read_bytes == 0, name
    unread = [store(2), store(3), store(4)]
    assert simulate(trace(unread), small(), POLICIES["predicted_bypass"]).total.dram_write_bytes == 3 * 128


def test_stores_that_nobody_reads_leave_room_for_what_just_fits() -> None:
    """32 lines fit, and are read 50 times; one more is written behind each: 1 of 32 sets keeps it, the others do not.

    So 31 x 49 of 1,600 loads can hit, less those of the first round in which the predictor learns.
    """
    rounds = [access for turn in range(50) for line in range(32)
              for access in (load(line), store(1000 + 32 * turn + line, instruction=1))]  # fmt: skip
    on = small(l2_bytes=32 * LINE_BYTES, l2_ways=1)
    plain, predicted = (simulate(trace(rounds), on, POLICIES[name]) for name in ("cache_rw", "predicted_bypass"))
    assert plain.structures["w"].l2_hit_rate == 0
    assert 0.94 < predicted.structures["w"].l2_hit_rate <= 49 * 31 / (50 * 32)


def test_a_peers_store_holds_no_unit_up() -> None:
    incoming = store(5, flags=1 | 4)
    replay = simulate(trace([load(0), incoming, incoming, load(0)]), small(), LRU)
    assert replay.cycles == 1604 + 100
    assert replay.structures["y"].sectors == 8


def test_an_unknown_policy_is_refused_with_the_names() -> None:
    with pytest.raises(Refusal, match=r"There is no cache policy 'lfu'\. Accepted: all, uncached, cache_r"):
        policies_policy("lfu")


def test_a_trace_of_more_units_than_the_machine_has_is_refused() -> None:
    with pytest.raises(Refusal, match=r"made has accesses of 2 units, and small has 1: 2 > 1"):
        simulate(trace([load(0, unit=1)], units=2), small(), LRU)
    with pytest.raises(Refusal, match=r"made has an access of unit 3 and names 1"):
        simulate(trace([load(0, unit=3)], units=1), small(), LRU)


# The compiled simulator equals a plain one of dictionaries, access by access, in counts and in cycles.

PLAIN = [policy for policy in POLICIES.values() if policy.replacement is not Replacement.RANDOM]


@st.composite
def hierarchies(draw: st.DrawFn) -> Hierarchy:
    ways, l1_ways, slices = draw(st.integers(2, 4)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    return small(
        units=draw(st.integers(1, 3)), in_flight=draw(st.integers(1, 6)), l1_ways=l1_ways, l2_ways=ways,
        l1_bytes=LINE_BYTES * l1_ways * draw(st.integers(0, 2)), l2_slices=slices, hashed=draw(st.booleans()),
        l2_bytes=LINE_BYTES * ways * slices * draw(st.integers(1, 40)), l2_misses=draw(st.integers(1, 4)),
        dram_channels=draw(st.integers(1, 3)), dram_banks=draw(st.integers(1, 3)),
        dram_write_queue=draw(st.integers(1, 5)),
    )  # fmt: skip


@st.composite
def traces(draw: st.DrawFn, units: int) -> Trace:
    """Few lines, so that they meet; some kernels, sectors, instructions and writes of peers."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    kernels = []
    for length in draw(st.lists(st.integers(0, 300), min_size=1, max_size=3)):
        rows = np.zeros(length, ACCESS)
        rows["line"] = rng.integers(0, draw(st.sampled_from([6, 40, 600])), length)
        rows["unit"], rows["instruction"] = rng.integers(0, units, length), rng.integers(0, 4, length)
        rows["structure"] = rng.integers(0, len(STRUCTURES), length)
        rows["sectors"] = np.where(rng.random(length) < 0.5, ALL_SECTORS, rng.integers(1, 16, length))
        rows["flags"] = rng.choice([0, 0, 0, WRITE, WRITE, DIRECT, WRITE | PEER], length)
        kernels.append(rows)
    return in_memory("drawn", kernels, STRUCTURES, units)


@pytest.mark.slow
@given(st.data(), st.sampled_from(PLAIN))
@settings(max_examples=150)
def test_counts_and_cycles_are_those_of_the_oracle(data: st.DataObject, policy: Policy) -> None:
    on = data.draw(hierarchies())
    trace = data.draw(traces(on.units))
    oracle = Oracle(trace, on, policy)
    state, plain = replayed(trace, on, policy)
    counts = counted(state, plain)
    for number in range(len(STRUCTURES)):
        told = dict(zip(step.COLUMNS, counts[number], strict=True))
        assert told == pytest.approx({word: oracle.counts[number, word] for word in step.COLUMNS}), policy.name
    totals = dict(zip(step.TOTALS, state.times[plain.totals :], strict=True))
    expected = {word: oracle.totals[word] for word in step.TOTALS} | {"accesses": oracle.now, "cycles": oracle.cycles}
    assert totals == pytest.approx(expected), policy.name


@given(st.data(), st.sampled_from(list(POLICIES.values())))
@settings(max_examples=60)
def test_what_comes_into_l2_leaves_it_or_is_there(data: st.DataObject, policy: Policy) -> None:
    on = replace(data.draw(hierarchies()), flushes=data.draw(st.booleans()))
    trace = data.draw(traces(on.units))
    state, plain = replayed(trace, on, policy)
    totals = dict(zip(step.TOTALS, state.times[plain.totals :], strict=True))
    l2 = slice(plain.l2_first, plain.cells)
    facts = state.words[plain.facts + l2.start : plain.facts + l2.stop]
    facts = facts[state.words[plain.tag + l2.start : plain.tag + l2.stop] != step.EMPTY]
    there, dirty = (sum(int(each >> at & 15).bit_count() for each in facts) for at in (step.SECTORS, step.DIRTY))
    assert totals["filled"] == totals["dropped"] + there
    assert totals["dirtied"] == totals["cleaned"] + dirty
    assert not (on.flushes and dirty)
    counts = dict(zip(step.COLUMNS, counted(state, plain).sum(axis=0), strict=True))
    assert counts["dram_written"] + dirty <= counts["sectors_written"]
    assert counts["dram_read"] == counts["l2_asked"] - counts["l2_hit"] <= counts["sectors_read"]
    busy = (counts["dram_read"] + counts["dram_written"]) * on.sector_cycles / on.dram_channels
    assert totals["cycles"] >= busy * (1 - 1e-12)


@given(st.data(), st.sampled_from(list(POLICIES.values())))
@settings(max_examples=60)
def test_no_policy_misses_fewer_lines_than_the_optimum(data: st.DataObject, policy: Policy) -> None:
    on = replace(data.draw(hierarchies()), l1_bytes=0)
    trace = data.draw(traces(on.units))
    best = Optimum(trace, on)
    replay = simulate(trace, on, policy)
    assert best.line_misses <= replay.total.l2_line_misses
    assert best.line_misses <= best.line_reads


def test_lines_that_lie_far_apart_are_read_next_as_those_side_by_side() -> None:
    rng = np.random.default_rng(3)
    lines, writes = rng.integers(0, 50, 400), rng.integers(0, 2, 400).astype(bool)
    later = [next((j for j in range(i + 1, 400) if lines[j] == lines[i]), None) for i in range(400)]
    expected = [NEVER if j is None or writes[j] else j for j in later]
    assert next_reads(lines, writes).tolist() == expected
    assert next_reads(lines * 10**12, writes).tolist() == expected


def test_the_same_trace_gives_the_same_numbers_however_it_is_cut() -> None:
    rng = np.random.default_rng(5)
    rows = np.zeros(3000, ACCESS)
    rows["line"], rows["unit"] = rng.integers(0, 300, 3000), rng.integers(0, 3, 3000)
    rows["sectors"], rows["flags"] = 15, rng.integers(0, 2, 3000)
    whole = in_memory("whole", [rows], STRUCTURES, 3)
    cut = Trace("whole", whole.structures, whole.instructions, 3,
                lambda: (part for chunk in whole.chunks() for part in _parts(chunk)))  # fmt: skip
    on = small(units=3, l2_bytes=64 * LINE_BYTES, l1_bytes=4 * LINE_BYTES)
    for policy in POLICIES.values():
        assert simulate(whole, on, policy) == simulate(whole, on, policy) == simulate(cut, on, policy)


def _parts(chunk):
    return (chunk._replace(accesses=chunk.accesses[i : i + 70]) for i in range(0, len(chunk.accesses), 70))


@given(st.lists(st.integers(0, 100), max_size=400), st.sampled_from([1, 2, 8]), st.integers(1, 5))
def test_the_fast_lru_is_an_ordered_dictionary_for_each_set(lines: list[int], num_sets: int, ways: int) -> None:
    sets: list[dict[int, None]] = [{} for _ in range(num_sets)]
    misses = 0
    for line in lines:
        of_set = sets[line % num_sets]
        misses += line not in of_set
        of_set.pop(line, None)
        of_set[line] = None
        if len(of_set) > ways:
            del of_set[next(iter(of_set))]
    assert lru_misses(np.array(lines, np.int64), num_sets, ways) == misses
