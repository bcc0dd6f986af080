"""Every operator x scheme has a right Plan, all offered values are legal somewhere, and Plans are kept by bytes."""

from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from functools import cache
from threading import Thread

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from kernels import schemes
from kernels.fabric import Fabric, parse
from kernels.machine import Machine
from kernels.operators import OPERATORS, problem
from kernels.operators.base import Flow
from kernels.plan import Kind, Plan, Planner, Pool, Step, index_of
from kernels.problem import Problem
from kernels.schedule import Schedule
from kernels.schemes import PlanCache, axis_rules, decomposed, library
from tests.kernels import covering
from tests.kernels.ragged import MACHINE, ON_CPUS, WORLDS, ask, covered, known_axes, linked
from workbench.machines import shipped_machine

# Every operator x scheme: computed once, never before its data, no cycle, the right bytes, and nothing sent alone.


@cache
def plans(operator: str, scheme: str, world: int) -> tuple[Plan, ...]:
    """The different Plans of one problem of these schedules: the axes of a GPU's kernel alone leave it as it is."""
    return tuple({content(plan): plan for whole in calls(operator, scheme, world) for plan in split(whole)}.values())


@cache
def calls(operator: str, scheme: str, world: int) -> tuple[Plan, ...]:
    """The Plans of whole calls, which may be of several problems."""
    asked = ask(operator, world)
    schedules = dict.fromkeys(each for place in covered(operator, scheme, world) for each in place.schedules)
    return tuple(schemes.expand(asked, each) for each in schedules)


def split(plan: Plan) -> list[Plan]:
    """Each problem of *plan* as a Plan of its own, as if it had been asked for alone."""
    if (count := schemes.problems(plan.schedule)) == 1:
        return [plan]
    kept = [plan._keep(plan.micro_batch == number) for number in range(count)]
    columns = [{name: getattr(each, name) for name in ("rank", "kind", "peer")} for each in kept]
    return [
        replace(each, index=index_of(own, plan.problem.world), launch=each.launch - each.launch.min())
        for each, own in zip(kept, columns, strict=True)
    ]


def content(plan: Plan) -> bytes:
    """What tells *plan* from others: a kernel's own axes leave it as it is."""
    columns = [getattr(plan, column.name) for column in fields(plan)]
    arrays = [column for column in columns if isinstance(column, np.ndarray)]
    arrays += [getattr(tiles, column.name) for tiles in plan.tiles for column in fields(tiles)]
    return b"|".join(array.tobytes() for array in arrays)


LONG = ("gemm_all_to_all", "gemm_reduce_scatter", "gemm_all_reduce")
"""Operators whose fused schedules of four ranks are searched for seconds: `make test` has those of two."""
pairs = pytest.mark.parametrize(
    ("operator", "scheme", "world"),
    [
        pytest.param(o, s, w, marks=[pytest.mark.slow] if (o in LONG and s == "fused" and w == 4) else [])
        for o in OPERATORS for s in schemes.SCHEMES for w in WORLDS
    ],
)  # fmt: skip


@pytest.mark.slow(keeps=16)
@pairs
def test_every_pair_has_legal_schedules(operator: str, scheme: str, world: int) -> None:
    assert len(plans(operator, scheme, world)) >= 1 + (scheme != schemes.BASELINE)


@pytest.mark.slow(keeps=24)
@pairs
def test_every_element_of_the_computation_is_computed_once_per_rank(operator: str, scheme: str, world: int) -> None:
    for plan in plans(operator, scheme, world):
        for rank in range(world):
            assert (computed(plan, rank) == 1).all(), plan.schedule


def drawn(asked: Problem, scheme: str, machine: Machine, fabric: Fabric, data: st.DataObject) -> Schedule:
    """Of values drawn for every axis those that go together; rejects a problem that has no schedule at all."""
    complete, values, chosen = covering.legal(asked, scheme, machine, fabric), {}, None
    for axis in known_axes(asked, scheme, machine, fabric):
        value = data.draw(st.sampled_from(axis.values), label=axis.name)
        if (richer := complete({**values, axis.name: value})) is not None:
            chosen, values = richer, {**values, axis.name: value}
    return chosen if chosen is not None else reject()


@pytest.mark.slow
@settings(deadline=None, max_examples=150)
@given(
    operator=st.sampled_from(list(OPERATORS)),
    scheme=st.sampled_from(list(schemes.SCHEMES)),
    world=st.sampled_from(WORLDS),
    height=st.integers(1, 33),
    width=st.integers(1, 21),
    depth=st.integers(1, 17),
    data=st.data(),
)
def test_whatever_the_sizes_every_element_is_computed_once_after_its_data(
    operator: str, scheme: str, world: int, height: int, width: int, depth: int, data: st.DataObject
) -> None:
    asked = ask(operator, world, height, width, depth)
    machine, fabric = data.draw(st.sampled_from(list(linked(world))))
    schedule = drawn(asked, scheme, machine, fabric, data)
    least = OPERATORS[operator].wire_bytes(asked)
    for plan in {content(each): each for each in split(schemes.expand(asked, schedule))}.values():
        assert all((computed(plan, rank) == 1).all() for rank in range(world))
        assert Walk(plan).complaints() == []
        assert all(plan.wire_bytes(rank) >= least for rank in range(world))


@pytest.mark.slow(keeps=18)
@pairs
def test_nothing_is_read_before_it_is_there(operator: str, scheme: str, world: int) -> None:
    for plan in plans(operator, scheme, world):
        assert Walk(plan).complaints() == [], plan.schedule


@pytest.mark.slow(keeps=23)
@pairs
def test_the_walk_sees_what_is_missing_when_no_step_waits(operator: str, scheme: str, world: int) -> None:
    for plan in plans(operator, scheme, world):
        if len(plan.after):
            no_waits = replace(plan, after=plan.after[:0], after_start=np.zeros_like(plan.after_start))
            assert Walk(no_waits).complaints(), plan.schedule


@pairs
def test_a_rank_waits_only_for_its_own_steps_and_for_puts_into_its_memory(
    operator: str, scheme: str, world: int
) -> None:
    """A signal lies in the receiver's memory; only a collective is begun by all ranks together.

    Sums that go round a ring lie at their owner, and the rank before signals the next one.
    """
    for plan in plans(operator, scheme, world):
        waiting, needed = np.repeat(np.arange(len(plan)), np.diff(plan.after_start)), plan.after
        near = plan.rank[needed] == plan.rank[waiting]
        comes_here = (plan.kind[needed] == Kind.PUT) & (plan.peer[needed] == plan.rank[waiting])
        if axis_rules.sums_in_ring(plan.schedule):
            comes_here |= (plan.kind[needed] == Kind.PUT) & (plan.rank[needed] == (plan.rank[waiting] + 1) % world)
        assert (near | comes_here | (plan.kind[waiting] == Kind.COLLECTIVE)).all(), plan.schedule


@pairs
def test_bytes_moved_are_those_of_the_algorithm(operator: str, scheme: str, world: int) -> None:
    """Everything but one shot moves the operator's minimum; one shot sends every result to every rank.

    Packets of a GPU carry 4 more bytes for each 4. Results for other hosts are first collected inside this one.
    """
    for plan in plans(operator, scheme, world):
        extent, least = OPERATORS[operator].extent(plan.problem), OPERATORS[operator].wire_bytes(plan.problem)
        in_packets = axis_rules.sends_packets(plan.problem, plan.schedule)
        once = (world - 1) * extent.rows * extent.columns * plan.problem.itemsize
        one_shot = plan.schedule.get("collective") == "one_shot"
        gemv = OPERATORS[operator].work == "gemv"
        one_shot |= in_packets and gemv and axis_rules.shots(plan.problem, plan.schedule) == 1
        expected = (once if one_shot else least) * (axis_rules.PACKET_BYTES if in_packets else 4) // 4
        if axis_rules.puts_between_hosts(plan.schedule) and OPERATORS[operator].flow is not Flow.RECEIVE:
            each = plan.schedule.count(axis_rules.PER_HOST)  # others' ranks have a collector, mostly another rank
            expected += least // (world - 1) * (world // each - 1) * (each - 1)
        assert [plan.wire_bytes(rank) for rank in range(world)] == [expected] * world, plan.schedule
        assert expected >= least


@pytest.mark.parametrize("scheme", schemes.SCHEMES)
@pytest.mark.parametrize("operator", OPERATORS)
def test_one_rank_alone_communicates_with_nobody(operator: str, scheme: str) -> None:
    for plan in plans(operator, scheme, 1):
        assert not np.isin(plan.kind, (Kind.PUT, Kind.COLLECTIVE)).any(), plan.schedule
        assert plan.wire_bytes(0) == 0


@pairs
def test_the_parts_of_a_plan_are_its_steps_with_the_waits_among_them(operator: str, scheme: str, world: int) -> None:
    for plan in plans(operator, scheme, world)[:6]:
        compute, rest = plan.part("compute"), plan.part("communication")
        assert len(compute) + len(rest) == len(plan)
        assert (compute.kind == Kind.COMPUTE).all()
        assert (rest.kind != Kind.COMPUTE).all()
        assert [rest.wire_bytes(r) for r in range(world)] == [plan.wire_bytes(r) for r in range(world)]
        for part in (compute, rest):
            assert ancestors(part) is not None


@pairs
def test_several_problems_in_one_call_are_alike_and_wait_for_each_other_on_streams_alone(
    operator: str, scheme: str, world: int
) -> None:
    for plan in calls(operator, scheme, world):
        each = split(plan)
        assert len({content(one) for one in each}) == 1, plan.schedule
        assert sum(map(len, each)) == len(plan)
        assert [plan.wire_bytes(r) for r in range(world)] == [len(each) * each[0].wire_bytes(r) for r in range(world)]
        waiting = np.repeat(np.arange(len(plan)), np.diff(plan.after_start))
        assert (plan.micro_batch[waiting] == plan.micro_batch[plan.after]).all()
        assert (plan.rank == plan.launches.rank[plan.launch]).all()


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("operator", OPERATORS)
def test_what_was_queued_first_goes_first_and_no_stream_waits_for_itself(operator: str, world: int) -> None:
    """Computation i + 1 was queued before collective i could begin; where operands come in it is the other way."""
    receives = OPERATORS[operator].flow is Flow.RECEIVE
    for plan in calls(operator, "concurrent", world):
        behind = plan.next_launches()
        of_launch = [np.flatnonzero(plan.launch == launch) for launch in range(len(plan.launches))]
        ordered = [(step, int(needed)) for before, after in behind.items()
                   for step in of_launch[after].tolist() for needed in of_launch[before]]  # fmt: skip
        assert ancestors(plan, ordered) is not None, plan.schedule
        first_come = np.argsort(plan.turn[plan.rank == 0], kind="stable")
        ours = np.flatnonzero(plan.rank == 0)[first_come]
        begins = (plan.kind[ours] == Kind.COMPUTE) != receives
        queued = dict.fromkeys(zip(begins.tolist(), plan.micro_batch[ours].tolist(), strict=True))
        count = schemes.problems(plan.schedule)
        both = [(True, 0), *(pair for i in range(1, count) for pair in ((True, i), (False, i - 1))), (False, count - 1)]
        assert list(queued) == [pair for pair in both if pair in queued]
        high = plan.schedule["comm_priority"] == axis_rules.HIGH
        assert set(plan.launches.priority[plan.launch[plan.kind != Kind.COMPUTE]]) <= {int(high)}
        assert not plan.launches.priority[plan.launch[plan.kind == Kind.COMPUTE]].any()


@pairs
def test_a_step_has_one_address(operator: str, scheme: str, world: int) -> None:
    for plan in calls(operator, scheme, world)[:6]:
        assert len({plan.address(step) for step in range(len(plan))}) == len(plan)


def test_the_tile_order_is_the_one_the_plan_has() -> None:
    plan = plans("gemm_all_to_all", "fused", 2)[0]
    order = schemes.tile_order(plan.problem, plan.schedule, 1)
    assert order.chunk.tolist() == plan.tiles[1].chunk.tolist()
    assert order.row_start.tolist() == plan.tiles[1].row_start.tolist()


def computed(plan: Plan, rank: int) -> np.ndarray:
    """[rows, columns, contraction] how often *rank* computes each element."""
    extent = OPERATORS[plan.problem.operator].extent(plan.problem)
    counts = np.zeros((extent.rows, extent.columns, extent.contraction), dtype=np.int64)
    for step in np.flatnonzero((plan.rank == rank) & (plan.kind == Kind.COMPUTE)):
        for rows, columns in areas(plan, step):
            counts[rows, columns, plan.k_start[step] : plan.k_stop[step]] += 1
    return counts


def areas(plan: Plan, step: int) -> list[tuple[slice, slice]]:
    """Rows (over all chunks) and columns of each tile of *step*."""
    tiles, chunk = plan.tiles[plan.rank[step]], OPERATORS[plan.problem.operator].chunk_rows(plan.problem)
    return [
        (
            slice(tiles.chunk[t] * chunk + tiles.row_start[t], tiles.chunk[t] * chunk + tiles.row_stop[t]),
            slice(tiles.col_start[t], tiles.col_stop[t]),
        )
        for t in range(plan.tile_start[step], plan.tile_stop[step])
    ]


def ancestors(plan: Plan, more: Iterable[tuple[int, int]] = ()) -> list[int]:
    """By step, the set of steps before it as bits; fails where steps wait for each other, *more* of them included."""
    found: dict[int, int] = {}
    left, waits = set(range(len(plan))), [list(map(int, plan.waits_for(step))) for step in range(len(plan))]
    for step, needed in more:
        waits[step].append(needed)
    while left:
        ready = [step for step in left if all(needed in found for needed in waits[step])]
        assert ready, f"{len(left)} steps of {plan.schedule} wait for each other"
        for step in ready:
            found[step] = 0
            for needed in waits[step]:
                found[step] |= found[needed] | 1 << needed
        left -= set(ready)
    return [found[step] for step in range(len(plan))]


class Walk:
    """What each step may rely on: the areas that the steps before it have computed, sent, gathered and summed."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.operator = plan, OPERATORS[plan.problem.operator]
        self.extent, self.chunk = self.operator.extent(plan.problem), self.operator.chunk_rows(plan.problem)
        self.before = ancestors(plan)
        self.of_kind = {kind: [int(s) for s in np.flatnonzero(plan.kind == kind)] for kind in Kind}
        self.calls = bool(self.of_kind[Kind.COLLECTIVE])
        self.adds_up = decomposed.adds_up(plan.problem, library.executed_schedule(plan.schedule))

    def complaints(self) -> list[str]:
        receives = self.operator.flow is Flow.RECEIVE
        per_step = self._unread_operands if receives else self._unfinished_results
        found = [f"{self.plan.address(s)} {c}" for s in range(len(self.plan)) for c in per_step(s)]
        return found + [c for rank in range(self.plan.problem.world) for c in self._missing_at_the_end(rank)]

    def _earlier(self, step: int, kind: Kind) -> list[int]:
        return [other for other in self.of_kind[kind] if self.before[step] >> other & 1]

    def _map(self, steps: list[int], rank: int) -> np.ndarray:
        """[rows, columns] that *rank*'s *steps* cover."""
        covered = np.zeros((self.extent.rows, self.extent.columns), dtype=bool)
        for step in steps:
            if self.plan.rank[step] == rank:
                for area in areas(self.plan, step):
                    covered[area] = True
        return covered

    def _operand(self, steps: list[int], rank: int) -> np.ndarray:
        """[rows, contraction] of *rank*'s operand that is there after *steps*: its own shard, puts, collectives."""
        plan, there = self.plan, np.zeros((self.extent.rows, self.extent.contraction), dtype=bool)
        there[rank * self.chunk : (rank + 1) * self.chunk] = True
        for step in steps:
            sources = [plan.origin(step)] if plan.kind[step] == Kind.PUT else range(plan.problem.world)
            if plan.kind[step] == Kind.COPY and plan.peer[step] >= 0:
                sources = [plan.peer[step]]
            for source in sources:
                rows = slice(source * self.chunk + plan.row_start[step], source * self.chunk + plan.row_stop[step])
                there[rows, plan.k_start[step] : plan.k_stop[step]] = True
        return there

    def _landings(self, rank: int) -> list[int]:
        """The steps after which operand rows may be read on *rank*."""
        staged = self.calls or self.plan.schedule.get("write") == "staged"
        if staged:
            return [step for step in self.of_kind[Kind.COPY] if self.plan.rank[step] == rank]
        return [int(step) for step in self.plan.arrivals(rank)]

    def _unread_operands(self, step: int) -> Iterator[str]:
        plan, rank = self.plan, int(self.plan.rank[step])
        if plan.kind[step] == Kind.COPY:
            kind = Kind.COLLECTIVE if self.calls else Kind.PUT
            there = self._operand([s for s in self._earlier(step, kind) if self.calls or plan.peer[s] == rank], rank)
            if not (self._operand([step], rank) <= there).all():
                yield "empties a buffer before it is full"
        if plan.kind[step] != Kind.COMPUTE:
            return
        there = self._operand([s for s in self._landings(rank) if self.before[step] >> s & 1], rank)
        for rows, _ in areas(plan, step):
            if not there[rows, plan.k_start[step] : plan.k_stop[step]].all():
                yield "reads operand rows that are not there"
        yield from self._disordered_sums(step)

    def _disordered_sums(self, step: int) -> Iterator[str]:
        """The first range of the contraction overwrites, the others add: each must follow the one before it."""
        plan, rank = self.plan, int(self.plan.rank[step])
        if plan.k_start[step]:
            last = [s for s in self._earlier(step, Kind.COMPUTE) if plan.k_stop[s] == plan.k_start[step]]
            if not (self._map([step], rank) <= self._map(last, rank)).all():
                yield "adds to a sum that is not begun"

    def _unfinished_results(self, step: int) -> Iterator[str]:
        plan, rank, kind = self.plan, int(self.plan.rank[step]), self.plan.kind[step]
        sums_here = kind == Kind.REDUCE or step in self._sums(rank)
        if kind not in (Kind.PUT, Kind.COLLECTIVE) and not sums_here:
            return
        mine = self._map([step], rank)
        itself = [step] if kind == Kind.COMPUTE else []
        own = self._map([*self._earlier(step, Kind.COMPUTE), *itself], rank)
        sums = self._map(self._sums_before(step, rank), rank)
        broadcasts = kind == Kind.PUT and self.operator.flow is Flow.BROADCAST and sums.any()
        if not (mine <= (sums if broadcasts else own)).all():
            yield "sends or sums what is not computed"
        if sums_here:
            arrived = [s for s in self._earlier(step, Kind.PUT) if plan.peer[s] == rank]
            for peer in set(range(plan.problem.world)) - {rank}:
                if not (mine <= self._map(arrived, peer)).all():
                    yield f"sums before rank {peer}'s share is there"

    def _sums(self, rank: int) -> list[int]:
        """The steps in which *rank* sums what has arrived: by itself, or as it computes its own rows."""
        if not self.adds_up:
            return [step for step in self.of_kind[Kind.REDUCE] if self.plan.rank[step] == rank]
        return [step for step in self.of_kind[Kind.COMPUTE] if self.plan.rank[step] == rank and self._is_own(step)]

    def _sums_before(self, step: int, rank: int) -> list[int]:
        """The same of those that come before *step*."""
        return [each for each in self._sums(rank) if self.before[step] >> each & 1]

    def _is_own(self, step: int) -> bool:
        """Whether all tiles of *step* are of its rank's own rows."""
        rank, at = self.plan.rank[step], slice(self.plan.tile_start[step], self.plan.tile_stop[step])
        return bool((self.plan.tiles[rank].chunk[at] == rank).all())

    def _came(self, rank: int, peer: int, arrivals: list[int]) -> np.ndarray:
        """[rows, columns] of *peer*'s results that *rank* can read: from other hosts, those collected and copied."""
        plan = self.plan
        each = plan.schedule.count(axis_rules.PER_HOST) if axis_rules.puts_between_hosts(plan.schedule) else None
        if each is None or rank // each == peer // each:
            return self._map(arrivals, peer)
        covered = np.zeros((self.extent.rows, self.extent.columns), dtype=bool)
        for copy in (s for s in self.of_kind[Kind.COPY] if plan.rank[s] == rank):
            for put in (s for s in self._earlier(copy, Kind.PUT) if s in arrivals and plan.peer[s] == rank):
                carrier = int(plan.rank[put])
                if carrier != plan.peer[copy] or carrier // each != peer // each:
                    continue
                collected = [s for s in self._earlier(put, Kind.PUT) if plan.peer[s] == carrier]
                there = self._map(self._earlier(put, Kind.COMPUTE) if peer == carrier else collected, peer)
                covered |= there & self._map([put], carrier) & self._map([copy], rank)
        return covered

    def _missing_at_the_end(self, rank: int) -> Iterator[str]:
        """Whether *rank* has its whole result; what a library call gives it is taken on trust, if it covers all."""
        world, own = self.plan.problem.world, slice(rank * self.chunk, (rank + 1) * self.chunk)
        if self.operator.flow is Flow.RECEIVE:
            return
        arrivals = [int(s) for s in self.plan.arrivals(rank)]
        if self.calls:
            if not self._map(self.of_kind[Kind.COLLECTIVE], rank).all():
                yield f"rank {rank} has results in no collective"
        elif not self.operator.reduces:
            for peer in set(range(world)) - {rank}:
                if not self._came(rank, peer, arrivals)[own].all():
                    yield f"rank {rank} lacks results of rank {peer}"
        else:
            there = self._map(self._sums(rank), rank)
            for peer in range(world) if self.operator.flow is Flow.BROADCAST else ():
                sent = [s for s in arrivals if self._sums_before(s, peer)]
                there |= self._map(sent, peer)
            wanted = there if self.operator.flow is Flow.BROADCAST else there[own]
            if not wanted.all():
                yield f"rank {rank} lacks sums"


# Plans are kept by bytes: what was used longest ago leaves first, and nobody makes one twice that is kept.

ASKED = problem("gemm_all_to_all", {"m": 8, "n": 4, "k": 2}, world=2)


class Maker:
    """Makes Plans of as many steps as the schedule's tile says, and writes down which."""

    def __init__(self) -> None:
        self.made: list[int] = []

    def __call__(self, asked: Problem, schedule: Schedule) -> Plan:
        self.made.append(schedule.count("tile"))
        planner = Planner(asked, schedule, [])
        for _ in range(schedule.count("tile")):
            planner.add(Step(0, Kind.COMPUTE, Pool.COMPUTE))
        return planner.plan()


def of(steps: int) -> Schedule:
    return Schedule("fused", (("tile", steps),))


@pytest.fixture
def maker() -> Maker:
    return Maker()


def size(steps: int) -> int:
    return Maker()(ASKED, of(steps)).memory_bytes


def test_a_plan_s_bytes_are_those_of_its_columns() -> None:
    assert size(1001) - size(1) == 16 * 8 * 1000  # 15 columns, and where the steps that each waits for begin


def test_what_is_kept_is_not_made_again(maker: Maker) -> None:
    kept = PlanCache()
    assert kept.plan(ASKED, of(3), maker) is kept.plan(ASKED, of(3), maker)
    assert (maker.made, kept.num_bytes, len(kept)) == ([3], size(3), 1)
    kept.clear()
    kept.plan(ASKED, of(3), maker)
    assert (maker.made, kept.num_bytes) == ([3, 3], size(3))


def test_what_was_used_longest_ago_leaves_first(maker: Maker) -> None:
    kept = PlanCache(size(3) + size(4) + size(5) - 1)
    for steps in (3, 4, 3, 5):
        kept.plan(ASKED, of(steps), maker)
    assert (kept.num_bytes, len(kept)) == (size(3) + size(5), 2)
    for steps in (3, 5, 4):
        kept.plan(ASKED, of(steps), maker)
    assert maker.made == [3, 4, 5, 4]


def test_a_plan_beyond_all_bytes_is_made_but_not_kept(maker: Maker) -> None:
    kept = PlanCache(size(10) - 1)
    assert len(kept.plan(ASKED, of(10), maker)) == 10
    assert (kept.num_bytes, len(kept)) == (0, 0)


def test_threads_count_a_plan_once(maker: Maker) -> None:
    kept = PlanCache()
    threads = [Thread(target=kept.plan, args=(ASKED, of(steps), maker)) for steps in (2, 3, 2, 3, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (kept.num_bytes, len(kept)) == (size(2) + size(3), 2)


def test_a_plan_that_is_too_large_to_keep_sends_nobody_away(maker: Maker) -> None:
    kept = PlanCache(size(3) + size(4))
    for steps in (3, 4, 1000, 3, 4):
        kept.plan(ASKED, of(steps), maker)
    assert (maker.made, len(kept)) == ([3, 4, 1000], 2)


# Every value of every axis that is offered is legal beside some others, at small sizes and at large ones.


@pairs
def test_every_value_that_is_offered_is_legal_beside_some_others(operator: str, scheme: str, world: int) -> None:
    for place in covered(operator, scheme, world):
        if place.schedules:
            assert not covering.absent(place.known, place.schedules), place.place


LARGE = {
    "gemm": {"m": 65_536, "n": 65_536, "k": 8192},
    "gemv": {"n": 65_536, "k": 65_536, "tokens": 8},
    "gather": {"tables_per_rank": 64, "rows": 1000, "dim": 128, "batch": 65_536, "pooling": 16},
}


@pytest.mark.slow(keeps=10)
@pytest.mark.parametrize(("machine", "link"), [(MACHINE, "nvlink"), (ON_CPUS, "shared_memory")])
@pytest.mark.parametrize("operator", OPERATORS)
def test_at_large_sizes_nothing_is_offered_that_is_cut_too_finely(operator: str, machine: Machine, link: str) -> None:
    asked = problem(operator, LARGE[OPERATORS[operator].work], world=4)
    large = replace(machine, device=replace(machine.device, memory_bytes=1e12))
    for scheme in schemes.SCHEMES:
        known, fabric = schemes.axes(asked, scheme, large, parse(link)), parse(link)
        chosen = covering.covering(known, covering.legal(asked, scheme, large, fabric), pairs=False)
        assert chosen
        assert not covering.absent(known, chosen), scheme


@pytest.mark.parametrize("world", [2, 3, 4, 8])
@pytest.mark.parametrize("rows", [512, 4096])
def test_sums_in_a_ring_visit_every_rank_once_and_ranks_have_tiles_of_all_owners(rows: int, world: int) -> None:
    """Each sum goes from a rank to the one before it, and takes as many puts as owners that sum themselves need."""
    h200 = shipped_machine("h200_nvl8")
    machine, fabric = replace(h200, device=replace(h200.device, slots=16)), parse("nvlink")
    asked = problem("gemm_reduce_scatter", {"m": rows * world, "n": 2048, "k": 1024}, dtype="bfloat16", world=world)
    ring, rotated = (schemes.expand(asked, schemes.schedule(asked, "fused", {"tile_order": order}, machine, fabric))
                     for order in ("ring", "rotated"))  # fmt: skip
    visits: dict[tuple[int, int, int], list[int]] = {}
    for place in range(len(ring.tiles[0])):
        for rank, tiles in enumerate(ring.tiles):
            tile = int(tiles.chunk[place]), int(tiles.row_start[place]), int(tiles.col_start[place])
            visits.setdefault(tile, []).append(rank)
    for (owner, *_), ranks in visits.items():
        assert ranks == [(ranks[0] - count) % world for count in range(world)]
        assert owner in ranks
    assert len({(tile[0] - ranks[0]) % world for tile, ranks in visits.items()}) == world
    assert [ring.wire_bytes(rank) for rank in range(world)] == [rotated.wire_bytes(rank) for rank in range(world)]
    each = len(ring.tiles[0]) // world
    assert set(ring.tiles[0].chunk[:each].tolist()) == set(range(world))
    for step in np.flatnonzero(ring.kind == Kind.REDUCE):
        assert len(ring.waits_for(int(step))) == 2, "what is added, and the sum of those before"
