"""The compiled simulator equals a plain one of dictionaries, access by access, in counts and in cycles."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulator.cache.made import STRUCTURES, small
from tests.simulator.cache.oracle import Oracle
from workbench.simulator.cache import step
from workbench.simulator.cache.hierarchy import Hierarchy
from workbench.simulator.cache.policies import POLICIES, Policy, Replacement
from workbench.simulator.cache.replay import counted, replayed, simulate
from workbench.simulator.cache.trace import ACCESS, ALL_SECTORS, DIRECT, LINE_BYTES, PEER, WRITE, Trace, in_memory
from workbench.simulator.cache.whole_lines import NEVER, Optimum, lru_misses, next_reads

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
