"""Before a run begins and while it goes on it is said how much is known, what comes, and how long it takes."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from cluster import scheduler_file
from cluster.seating import Ranks
from kernels.backends.capabilities import MeasuringRanks
from kernels.backends.triton.recipes import compilations
from kernels.fabric import parse
from kernels.hardware import Hardware, WorkerDevice, hardware_of
from kernels.operators import OPERATORS
from kernels.schedule import Refusal
from kernels.schemes import SCHEMES, axes, schedule
from kernels.trial import PROTOCOLS
from kernels.units import about
from tests.experiment.forecasts_against_runs import COUNT, RECORD, Row, drawn, growth, recorded, summary
from workbench.cli.measuring import STARTING_SECONDS, LazyCluster
from workbench.experiment.experiment import Experiment, Search
from workbench.experiment.forecast import (
    COMPILE_SECONDS,
    COUNTED_MOST,
    SAMPLED,
    Durations,
    Forecast,
    RemainingWork,
    WorkTotals,
    cutting,
    forecast,
    sampled,
)
from workbench.experiment.form import FormQuestion
from workbench.experiment.links import known_link
from workbench.experiment.question import Request
from workbench.experiment.run import run
from workbench.experiment.sources import FromCluster
from workbench.experiment.space import Choice, Space
from workbench.experiment.time_left import MOST_GROWTH, TimeLeft, bounded
from workbench.machines import machine
from workbench.results.comparison import MAX_BLOCK_SCHEDULES
from workbench.results.store import Store
from workbench.simulator.closed_form import grid

# Before a run begins it is said how much of it is known, in how many blocks the rest comes, and how long it takes.

ASKED = Request(operator="gemm_all_to_all", preset="tiny", protocol="quick", schemes=("sequential", "fused"))
FORM = FormQuestion(operator="gemm_all_to_all", shape=(("m", 512), ("n", 512), ("k", 64)), dtype="float32", world=2,
             scheme="fused", fabric="emulated:wire_to_compute=1", protocol="quick")  # fmt: skip


def planned(asked: FormQuestion, store: Store, measured: bool = True) -> Forecast:
    here = machine("laptop_cpu")
    return forecast(asked.experiment(here), here, store, measured=measured, most=COUNTED_MOST)


def test_what_is_known_is_not_ahead_any_more(store: Store, fake_cluster: Any) -> None:
    laptop, experiment = machine("laptop_cpu"), ASKED.experiment(together=True, parts="baseline")
    before = forecast(experiment, laptop, store)
    sitting = run(experiment, store, FromCluster(fake_cluster), laptop)
    timed = [news for news in sitting if hasattr(news, "seconds")]
    assert (before.count, before.known, before.blocks) == (2, 0, 1)
    assert 0 < before.seconds < 60
    assert before.samples == len(timed), "with those that the link is resolved with"
    after = forecast(experiment, laptop, store)
    assert (after.count, after.known, after.blocks, after.samples, after.seconds) == (0, 2, 0, 0, 0.0)
    assert str(after) == "2 known, nothing to measure."
    again = forecast(replace(experiment, fresh=True), laptop, store)
    assert (again.count, again.samples) == (before.count, before.samples)


@pytest.mark.slow
def test_what_is_asked_is_what_is_foretold(store: Store, fake_cluster: Any) -> None:
    """Schedules, blocks, trials and samples: of sweeps over tiles, of searches, of what is partly known."""
    here = machine("laptop_cpu")
    tiles = ("32x64x64", "64x64x64", "128x64x64")
    swept = Space((Choice("sequential"), Choice("decomposed", (("tile", tiles), ("pieces", (1, 2, 4, 8, 16))))))
    some = replace(ASKED.experiment(), space=swept, fabric=parse("emulated:bandwidth_bytes_per_second=1e9"))
    part = replace(some, space=Space((Choice("decomposed", (("pieces", (2, 4)),)),)))
    for experiment in (
        part, some, replace(some, fresh=True), replace(some, parts="each", fresh=True), replace(some, together=True),
        replace(some, fresh=True, search=Search(kind="random", count=9)),
        replace(some, fresh=True, search=Search(kind="estimate_first", count=3)), replace(some, parts="none"),
        replace(some, protocol=PROTOCOLS["thorough"]),
    ):  # fmt: skip
        before = forecast(experiment, here, store)
        fake_cluster.lists.clear()
        sitting = run(experiment, store, FromCluster(fake_cluster), here)
        list(sitting)
        trials_sent = [trial for trials in fake_cluster.lists for trial in trials]
        assert (before.blocks, before.trials) == (len(fake_cluster.lists), len(trials_sent)), experiment
        assert before.samples == sitting.progress.samples
        assert (before.known, before.known + before.count) == (sitting.progress.known, sitting.progress.total)


def test_the_explorer_and_the_command_line_say_the_same(store: Store) -> None:
    """Once 26 s against 45 s for one question."""
    here = machine("laptop_cpu")
    typed = Request(operator="gemm_all_to_all", shape=(("m", "512"), ("n", "512"), ("k", "64")), protocol="quick",
                    fabric="emulated:wire_to_compute=1")  # fmt: skip
    pairs = [
        (FORM, replace(typed, schemes=("fused",)).experiment(parts="each", together=True)),
        (replace(FORM, swept=("scheme",)), typed.experiment(parts="each", together=True)),
        (replace(FORM, swept=("slice_tiles", "tile_order")),
         replace(typed, schemes=("fused",),
                 settings=(("tile_order", ("all",)), ("slice_tiles", ("all",)))).experiment()),
    ]  # fmt: skip
    for form, experiment in pairs:
        said = planned(form, store)
        assert said == forecast(experiment, here, store)
        assert said.seconds > 0
        assert str(said) == str(forecast(experiment, here, store))


def test_one_schedule_more_is_all_of_them_where_they_are_compared_together(store: Store, fake_cluster: Any) -> None:
    laptop, experiment = machine("laptop_cpu"), ASKED.experiment()
    list(run(experiment, store, FromCluster(fake_cluster), laptop))
    more = replace(ASKED, schemes=("sequential", "fused", "decomposed")).experiment()
    ahead = forecast(more, laptop, store)
    assert (ahead.count, ahead.known) == (2, 1), "the baseline is timed again beside it"
    assert forecast(replace(more, together=True), laptop, store).count == 3


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ((0, 1, 1, 1, 20.0), "1 fused schedule in 1 block is measured, about 20 s."),
        ((3, 6, 9, 1, 12.0), "3 known, 6 fused schedules and 3 baselines in 1 block are measured, about 12 s."),
        ((0, 1200, 1650, 150, 600.0),
         "1,200 fused schedules and 450 baselines in 150 blocks are measured, about 10 min."),
        ((9, 0, 0, 0, 0.0), "9 known, nothing to measure."),
        ((0, 0, 0, 0, 0.0), "Nothing to measure."),
        ((0, 2, 2, 0, None), "2 fused schedules, nothing is timed."),
    ],
)  # fmt: skip
def test_a_forecast_is_one_sentence(fields: tuple[int, int, int, int, float], words: str) -> None:
    known, schedules, trials, blocks, seconds = fields
    ahead = Forecast(schedules={"fused": schedules}, known=known, trials=trials, blocks=blocks, seconds=seconds)
    assert str(ahead) == words


def test_a_comparison_names_every_scheme(store: Store) -> None:
    words = str(planned(replace(FORM, swept=("scheme",)), store))
    assert words.startswith("3 schedules (1 sequential, 1 decomposed, 1 fused) and 4 baselines in 1 block are measured")


def test_a_sweep_counts_what_will_run(store: Store) -> None:
    here = machine("laptop_cpu")
    for swept in (("slice_tiles",), ("slice_tiles", "scheme"), ("tile_order", "write")):
        experiment = replace(FORM, swept=swept).experiment(here)
        count = len(experiment.points(experiment.problems[0], here).schedules)
        assert planned(replace(FORM, swept=swept), store).count == count


def test_a_slider_of_a_swept_axis_has_nothing_counted_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[str] = []
    times = grid.times
    monkeypatch.setattr(
        grid, "times", lambda problem, scheme, *more: counted.append(scheme) or times(problem, scheme, *more)
    )
    form = replace(FORM, shape=(("m", 512), ("n", 512), ("k", 128)), swept=("slice_tiles", "tile_order"))
    first = planned(replace(form, values=(("fused", (("slice_tiles", 1),)),)), store)
    counted.clear()
    assert planned(replace(form, values=(("fused", (("slice_tiles", 2),)),)), store) == first
    assert counted == []


def test_it_is_quick_while_a_slider_is_moved(store: Store) -> None:
    """Ten milliseconds are the aim; a busy computer is given ten times as much."""
    form = replace(FORM, swept=("slice_tiles", "tile_order", "tile", "write"))
    planned(form, store)
    seconds = []
    for _ in range(10):
        began = time.thread_time()  # what other processes do meanwhile is not counted
        planned(form, store)
        seconds.append(time.thread_time() - began)
    assert min(seconds) < 0.1


def test_a_longer_protocol_takes_longer(store: Store) -> None:
    assert planned(replace(FORM, protocol="thorough"), store).seconds > planned(FORM, store).seconds


def test_gpu_ranks_compile_for_longer(store: Store) -> None:
    typed = Request(operator="gemm_all_to_all", preset="tiny", schemes=("fused",), world=2, dtype="bfloat16")
    seconds = {
        name: forecast(replace(typed, machine=name).experiment(), machine(name), store).seconds
        for name in ("laptop_cpu", "h200_nvl2")
    }
    assert seconds["h200_nvl2"] > 4 * 0.4 > seconds["laptop_cpu"]


GPUS = Request(operator="gemm_reduce_scatter", shape=(("m", "4096"), ("n", "4096"), ("k", "2048")), world=2,
               machine="h200_nvl2", schemes=("sequential", "fused"))  # fmt: skip


def swept(**axes: tuple[str, ...]) -> Experiment:
    """On two H200s, with what is compiled of it."""
    return replace(GPUS, settings=tuple(axes.items())).experiment()


def test_kernels_that_schedules_share_are_compiled_once_in_the_forecast(store: Store) -> None:
    """A sweep that said 16 s once took 127 s: kernels were not counted."""
    here = machine("h200_nvl2")
    one, orders, stages = (forecast(swept(**axes), here, store) for axes in (
        {}, {"tile_order": ("rotated", "natural", "remote_first")}, {"num_stages": ("2", "3", "4")},
    ))  # fmt: skip
    ring_s, sums_s = (2 * COMPILE_SECONDS[family] / 2 for family in ("ring", "send and sum"))
    assert one.seconds > ring_s, "the form that is timed and the one that is watched, by two ranks"
    kernels_s = [ahead.remaining[0].compiling.seconds(slice(None)) for ahead in (one, orders, stages)]
    assert kernels_s == pytest.approx([ring_s, sums_s, 3 * ring_s])
    assert stages.seconds - orders.seconds > (3 * ring_s - sums_s) / 2


@pytest.mark.parametrize("operator", OPERATORS)
def test_whatever_kernel_a_schedule_needs_its_seconds_are_known(operator: str) -> None:
    """`workbench run --set launches=one` once ended with a KeyError."""
    ranks = MeasuringRanks(machine("h200_nvl2"), parse("nvlink"))
    asked = Request(operator=operator, preset="tiny", machine="h200_nvl2").problem(ranks.machine)
    families = set()
    for scheme in SCHEMES:
        for axis in axes(asked, scheme, ranks.machine, ranks.fabric):
            for value in axis.values:
                with suppress(Refusal):
                    one = schedule(asked, scheme, {axis.name: value}, ranks.machine, ranks.fabric)
                    families |= {each.family for each in compilations(ranks.trial(asked, one))}
    assert families
    assert families <= COMPILE_SECONDS.keys()


def test_what_gpu_ranks_compiled_before_is_not_counted(store: Store, fake_cluster: Any) -> None:
    here = machine("h200_nvl2")
    device = WorkerDevice(kind="gpu", model="NVIDIA H200", processor="any", cores=(0,), memory_bytes=int(141e9))
    hardware = hardware_of("triton", [device, device], ["one", "one"])
    assert hardware is not None
    ranks = Ranks({"triton": "3.7"}, hardware)
    fake_cluster.gang = lambda world, backend: ranks
    first = forecast(swept(), here, store, ranks=fake_cluster.gang)
    list(run(swept(), store, FromCluster(fake_cluster), here))
    again = forecast(replace(swept(), fresh=True), here, store, ranks=fake_cluster.gang)
    assert first.seconds - again.seconds == pytest.approx((2 * COMPILE_SECONDS["ring"] + COMPILE_SECONDS["send"]) / 2)


def test_blocks_of_gpu_ranks_are_foretold_with_what_they_compile(store: Store, fake_cluster: Any) -> None:
    """A person who waits is not held for a minute: what compiles long comes in smaller blocks."""
    here = machine("h200_nvl2")
    experiment = swept(tile=("64x128x64", "128x128x64", "128x256x64"), num_stages=("2", "3"), num_warps=("4", "8"))
    before = forecast(experiment, here, store)
    sitting = run(experiment, store, FromCluster(fake_cluster), here)
    list(sitting)
    sizes = [len(trials) for trials in fake_cluster.lists]
    assert (before.blocks, before.trials) == (len(sizes), sum(sizes))
    assert max(sizes) < 3 + 2 + MAX_BLOCK_SCHEDULES
    assert sitting.progress.left is not None
    assert sum(limits.total_s for limits in fake_cluster.limits) > 12 * 2 * COMPILE_SECONDS["ring"] / 2


def test_nothing_is_timed_by_the_simulator(store: Store) -> None:
    assert planned(FORM, store, measured=False).seconds is None
    assert "nothing is timed" in str(planned(FORM, store, measured=False))


def test_too_many_points_are_refused(store: Store) -> None:
    here = machine("laptop_cpu")
    with pytest.raises(
        Refusal,
        match=r"fused with all values of .* has [\d,]+ schedules: [\d,]+ > 3\. Accepted: at most 3\. Fix some axes",
    ):
        forecast(replace(FORM, swept=("slice_tiles", "tile_order")).experiment(here), here, store, most=3)


@pytest.mark.parametrize(("seconds", "words"), [
    (0.2, "about a second"), (12.4, "about 12 s"), (100, "about 2 min"), (9000, "about 2.5 hours"),
])  # fmt: skip
def test_a_duration_is_as_rough_as_it_is_known(seconds: float, words: str) -> None:
    assert about(seconds) == words


# The time left follows what is left of blocks, and never jumps, whatever turns out.

TICK_S = 0.2
SPACE = Request(operator="gemm_all_to_all", preset="laptop_overlap", schemes=("decomposed",), fabric="shared_memory",
                settings=(("pieces", ("all",)), ("split", ("all",)), ("steps", ("all",))))  # fmt: skip


@pytest.fixture
def ahead(store: Store) -> tuple[RemainingWork, ...]:
    found = forecast(SPACE.experiment(), machine("laptop_cpu"), store)
    assert found.blocks > 5
    return found.remaining


@dataclass
class Course:
    """How a run goes: *slower* than estimated, ranks open after *opening_s*, every block waits *waiting_s*."""

    slower: float = 1.0
    opening_s: float = 0.0
    waiting_s: float = 0.0


def told(ahead: tuple[RemainingWork, ...], course: Course) -> list[tuple[float, float]]:
    """What is told at every tick of a whole run, and what is truly left then."""
    now = [0.0]
    left, said = TimeLeft(ahead, clock=lambda: now[0]), []

    def passes(seconds: float) -> None:
        end = now[0] + seconds
        while (tick := len(said) * TICK_S) <= end:
            now[0] = max(now[0], tick)
            said.append((now[0], left.seconds()))
        now[0] = end

    said.append((0.0, left.seconds()))
    correction, position = 1.0, 0
    (one,) = ahead
    while position < len(one.whole_s):
        rest = one.totals(position, cutting(correction))
        step = one.fits(position, cutting(correction))
        after = one.totals(position + step, cutting(correction))
        block = WorkTotals(
            1, rest.trials - after.trials, rest.overhead_s - after.overhead_s, rest.calls_s - after.calls_s
        )
        samples, timed = 100, 0.8
        left.begin(0, block, step, samples, timed)
        before_s = block.overhead_s + course.waiting_s + (course.opening_s if position == 0 else 0.0)
        passes(before_s + course.slower * block.calls_s * (1 - timed))
        for _ in range(samples):
            passes(course.slower * block.calls_s * timed / samples)
            left.sample()
        correction, position = course.slower, position + step
        left.end(correction)
    assert left.blocks == left.block
    return [(seconds, now[0] - at) for at, seconds in said]


def test_the_start_of_a_command_s_own_ranks_is_counted_until_they_begin(ahead: tuple[RemainingWork, ...]) -> None:
    """Ten seconds of which nothing was said."""
    now = [0.0]
    left = TimeLeft(ahead, 10.0, clock=lambda: now[0])
    without = TimeLeft(ahead, clock=lambda: now[0]).seconds()
    assert left.seconds() == pytest.approx(without + 10.0)
    (one,) = ahead
    left.begin(0, one.totals(), len(one.whole_s), 100, 0.8)
    now[0] = 4.0
    assert left.seconds() == pytest.approx(without + 6.0)
    assert left.share() == 0.0
    left.opened()
    now[0] = 5.0
    assert left.share() == pytest.approx(1.0 / without, rel=0.2), "from then on their work is counted"
    for _ in range(60):  # what is told shrinks slowly
        now[0] += 0.01
        told = left.seconds()
    assert told < without + 6.0 - 1.5


@pytest.mark.parametrize("course", [
    Course(), Course(slower=10.0), Course(slower=0.1), Course(opening_s=30.0), Course(waiting_s=6.0),
    Course(slower=10.0, opening_s=10.0, waiting_s=3.0),
], ids=str)  # fmt: skip
def test_it_never_jumps_and_comes_to_be_right(ahead: tuple[RemainingWork, ...], course: Course) -> None:
    said = told(ahead, course)
    seconds = [each for each, _ in said]
    for before, after in pairwise(seconds):
        assert after <= max(1.0, before) * MOST_GROWTH
        assert after >= (before - 1.0) / MOST_GROWTH
    late = said[len(said) // 2 :]
    assert all(1 / 3 < told_s / true_s < 3 for told_s, true_s in late if true_s > 5.0)


def test_a_busy_computer_s_pace_counts_before_half_of_a_long_run_is_done() -> None:
    """Each of 600 expected seconds takes two: after 240 s it said 800 s where 960 s were left."""
    now, block = [100.0], WorkTotals(1, 10, 30.0, 30.0)
    work = SimpleNamespace(start=0, resolving_s=lambda: 0.0, totals=lambda position, factor=1.0: WorkTotals(
        10 - position, 10 * (10 - position), 30.0 * (10 - position), 30.0 * (10 - position)))  # fmt: skip
    left = TimeLeft([work], clock=lambda: now[0])  # type: ignore[list-item]
    for number in range(2):
        left.begin(0, block, 1, 100, 0.8)
        left.opened()
        for _ in range(100):
            now[0] += 1.2
            left.sample()
            left.seconds()
        left.end(1.0)
        assert number == 0 or left.seconds() == pytest.approx(2 * 480, rel=0.05)


def test_a_run_as_expected_counts_down(ahead: tuple[RemainingWork, ...]) -> None:
    seconds = [each for each, _ in told(ahead, Course())]
    assert all(after <= 1.02 * before + 0.05 for before, after in pairwise(seconds))


def test_what_failed_is_not_left(ahead: tuple[RemainingWork, ...]) -> None:
    now = [0.0]
    left = TimeLeft(ahead, clock=lambda: now[0])
    blocks, share = left.blocks, left.share()
    assert share == 0.0
    left.begin(0, WorkTotals(1, 11, 1.0, 5.0), ahead[0].fits(0), 100, 0.8)
    now[0] = 0.5
    left.end(1.0)
    assert (left.block, left.blocks) == (1, blocks)
    assert 0.0 < left.share() < 0.5


def test_it_is_bounded_in_both_directions() -> None:
    assert bounded(100.0, 10.0, 0.5) == pytest.approx(10.0 * MOST_GROWTH**0.5)
    assert bounded(1.0, 10.0, 0.5) == pytest.approx(9.5 / MOST_GROWTH**0.5)
    assert bounded(9.5, 10.0, 0.5) == 9.5
    assert bounded(100.0, 10.0, 60.0) == 10.0 * MOST_GROWTH, "however long nobody asked"


def test_only_ranks_of_a_command_s_own_are_still_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler_file, "running", lambda: None)
    assert LazyCluster(None, 2).starting_s == STARTING_SECONDS
    monkeypatch.setattr(scheduler_file, "running", object)
    assert LazyCluster(None, 2).starting_s == 0.0


# What was said is what happens: ranks that share cores, verification, blocks, and a table of both.


def ranks_on(cores: float) -> Callable[[int, str], Ranks]:
    """Ranks of which each has so many cores."""
    hardware = Hardware(model="a processor", link="shared memory", cores=cores)
    return lambda world, backend: Ranks({}, hardware)


def of_world(operator: str, shape: dict[str, str], **schemes: Any) -> Experiment:
    return Request(operator=operator, shape=tuple(shape.items()), world=4, protocol="quick", **schemes).experiment()


def seconds_on(cores: float, experiment: Experiment, store: Store) -> float:
    said = forecast(experiment, machine("laptop_cpu"), store, ranks=ranks_on(cores)).seconds
    assert said is not None
    return said


def test_four_ranks_on_two_cores_take_about_twice_as_long_as_on_four(store: Store) -> None:
    gemm = of_world("gemm_all_to_all", {"m": "4096", "n": "1024", "k": "768"})
    assert 1.8 < seconds_on(0.5, gemm, store) / seconds_on(1.0, gemm, store) < 2.1
    assert seconds_on(4.0, gemm, store) == seconds_on(1.0, gemm, store), "a rank has one thread"


def test_the_reference_of_large_tables_is_counted_for_each_micro_batch(store: Store) -> None:
    sizes = {"tables_per_rank": "4", "rows": "100000", "dim": "64", "batch": "512", "pooling": "16"}
    plain = seconds_on(1.0, of_world("embedding_all_to_all", sizes, schemes=("fused",)), store)
    streams = seconds_on(1.0, of_world("embedding_all_to_all", sizes, schemes=("concurrent",),
                                       settings=(("micro_batches", ("4",)),)), store)  # fmt: skip
    assert plain > 2.0, "512 MB of operands are drawn and converted twice"
    assert streams - plain > 3.0, "and once more for each of four micro-batches"


@pytest.mark.slow
@pytest.mark.parametrize("slower", [0.01, 1.9])
def test_blocks_are_cut_as_was_said_however_fast_the_first_one_was(
    store: Store, fake_cluster: Any, slower: float
) -> None:
    experiment, place = SPACE.experiment(), machine("laptop_cpu")
    fabric = known_link(experiment.fabric, experiment.problems[0], place, store, None)
    durations = Durations(experiment.problems[0], fabric, place)
    fake_cluster.seconds = lambda trial: slower * (durations.of([trial])[0] or 1e-3)
    said = forecast(experiment, place, store)
    going = run(experiment, store, FromCluster(fake_cluster), place)
    list(going)
    assert going.progress.left is not None
    assert said.blocks == going.progress.left.block > 3


def test_the_growth_of_the_time_left_is_over_any_two_looks() -> None:
    assert growth([10.0, 8.0, 6.0, 9.0, 3.0]) == 1.5
    assert growth([5.0, 0.1, 0.9]) == 1.0, "below a second nobody counts"
    assert growth([]) == 1.0


def test_a_table_of_forecasts_is_off_by_its_median_in_either_direction() -> None:
    def row(said_s: float, took_s: float, blocks_cut: int = 1) -> Row:
        return Row("", 2, 3, said_s, took_s, 1, blocks_cut, growth=1.0)

    found = summary([row(1.0, 2.0), row(3.0, 3.0), row(4.0, 1.0, 2)])
    assert (found.median_off, found.least, found.most, found.other_blocks) == (2.0, 0.5, 4.0, 1)


def test_twenty_different_questions_of_one_to_four_ranks_are_drawn() -> None:
    texts = [text for text, _ in drawn()]
    assert len(set(texts)) == len(texts) == COUNT
    assert {experiment.problems[0].world for _, experiment in drawn()} == {1, 2, 3, 4}


@pytest.mark.skipif(not RECORD.exists(), reason="no quiet computer has recorded forecasts yet: see its module")
def test_recorded_forecasts_came_true() -> None:
    rows = recorded()
    found = summary(rows)
    assert len(rows) == COUNT
    assert found.median_off <= 1.5
    assert found.least >= 0.5
    assert found.growth < 2.0
    assert found.other_blocks == 0


# A sweep of thousands: some problems are looked at, and the others counted when they begin.


def many(count: int, **fields: Any) -> Experiment:
    problems = tuple(replace(ASKED.experiment().problems[0], shape=(("m", 64 * (1 + number % 40)), ("n", 128),
                     ("k", 64 * (1 + number // 40)))) for number in range(count))  # fmt: skip
    fabric = parse("emulated:bandwidth_bytes_per_second=1e9")
    return replace(ASKED.experiment(), problems=problems, fabric=fabric, **fields)


@pytest.mark.slow
def test_of_thousands_of_problems_some_are_looked_at_and_the_interval_is_said(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, experiment = machine("laptop_cpu"), many(400)
    sample = forecast(experiment, here, store)
    assert len(sample.remaining) == len(set(sample.looked)) == SAMPLED
    assert "as 24 of 400 problems tell" in str(sample)
    monkeypatch.setattr("workbench.experiment.forecast.SAMPLED", 400)
    whole = forecast(experiment, here, store)
    assert whole.interval_s is None
    assert whole.seconds is not None
    assert sample.interval_s is not None
    low_s, high_s = sample.interval_s
    assert low_s < whole.seconds < high_s < 1.5 * low_s
    assert (sample.blocks, sample.trials, sample.count) == (whole.blocks, whole.trials, whole.count)


def test_every_part_of_the_problems_has_one_that_is_looked_at() -> None:
    assert list(sampled(SAMPLED)) == list(range(SAMPLED))
    assert [number * SAMPLED // 4800 for number in sampled(4800)] == list(range(SAMPLED))


@pytest.mark.slow
def test_a_sweep_of_many_problems_counts_its_schedules_ahead_and_all_in_the_end(
    store: Store, fake_cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench.experiment.run.AHEAD", 10)
    counted: list[Any] = []
    points = Experiment.points
    monkeypatch.setattr(Experiment, "points", lambda self, problem, *rest, **more: counted.append(problem)
                        or points(self, problem, *rest, **more))  # fmt: skip
    experiment = many(60)
    going = run(experiment, store, FromCluster(fake_cluster), machine("laptop_cpu"))
    next(iter(going))
    assert len(counted) == 20, "of 60 problems, before the first row"
    assert going.progress.total == 120, "as the first ones tell"
    shown = [going.progress.left.blocks for _ in going if going.progress.left]
    assert going.progress.done == going.progress.total == 120
    assert len(counted) == 60
    assert set(shown) == {60}, "the mean of a few is that of all here"
    assert going.progress.left is not None
    assert going.progress.left.share() == 1.0
