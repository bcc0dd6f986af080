"""The rule of `auto` is a pure function of a table, and the committed table says what estimates and recordings do."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest

from kernels.fabric import Fabric
from kernels.operators import OPERATORS, problem
from kernels.problem import Problem
from kernels.schemes import BASELINE, auto
from kernels.schemes.auto import CANDIDATES, Point, Table, choose, legal_schedule, shipped
from tests.gpu import choices
from workbench.machines import shipped_machine

H200 = "NVIDIA H200"
KERNELS = "here"
EVERY = tuple(CANDIDATES)


def gemm(m: int = 1024, operator: str = "gemm_all_to_all", world: int = 2, dtype: str = "bfloat16") -> Problem:
    return problem(operator, {"m": m, "n": 4096, "k": 2048}, dtype=dtype, world=world)


def table(source: str = auto.ESTIMATED, low: float = 0.9, high: float = 1.1, **seconds: float) -> Table:
    """A table of one point, `gemm()`, whose times are off by *low* to *high*."""
    point = Point((10.0, 12.0, 11.0), source, seconds)
    return Table("digest", KERNELS, "2026-11-26", {auto.spread_key(H200, source, 2): (low, high)}, {"gemm": "library"},
                 {H200: {"gemm_all_to_all bfloat16 2": (point,)}})  # fmt: skip


def test_only_schedules_that_overlap_spin_and_the_simplest_come_first() -> None:
    assert [name for name, each in CANDIDATES.items() if each.spins] == ["pieces", "fused"]
    schemes = [each.scheme for each in CANDIDATES.values()]
    assert schemes == sorted(schemes, key=[BASELINE, "decomposed", "fused"].index)


@pytest.mark.parametrize("operator", OPERATORS)
def test_each_operator_has_sequential_candidates_and_fused_ones(operator: str) -> None:
    shape = {"embedding_all_to_all": {"tables_per_rank": 8, "rows": 1000, "dim": 128, "batch": 4096, "pooling": 8},
             "gemv_all_reduce": {"n": 8192, "k": 8192, "tokens": 1}}  # fmt: skip
    asked = problem(operator, shape.get(operator, {"m": 4096, "n": 4096, "k": 4096}), dtype="bfloat16", world=2)
    machine, fabric = shipped_machine("h200_nvl2"), Fabric(kind="nvlink")
    made = {name: legal_schedule(name, asked, machine, fabric) for name in CANDIDATES}
    legal = {name for name, schedule in made.items() if schedule is not None}
    assert {"library", "tuned", auto.STORES, "fused"} <= legal
    assert ("overlapped" in legal) == (operator in ("all_gather_gemm", "gemm_reduce_scatter"))
    assert len({str(made[name]) for name in legal}) == len(legal)


def test_a_schedule_that_spins_needs_an_upper_bound_below_the_lower_bound_of_what_does_not() -> None:
    sure = choose(gemm(), H200, table(library=100e-6, fused=79e-6), EVERY, KERNELS)
    assert (sure.name, sure.close) == ("fused", ())
    unsure = choose(gemm(), H200, table(library=100e-6, fused=81e-6), EVERY, KERNELS)
    assert (unsure.name, unsure.close) == ("library", ("library", "fused"))
    assert "its upper bound 89.1 µs is not 2 % below 90 µs, the lower bound of library" in unsure.reason
    nearly = choose(gemm(), H200, table(library=100e-6, fused=80.2e-6, low=0.99, high=1.22), EVERY, KERNELS)
    assert (nearly.name, nearly.close) == ("library", ("library", "fused")), "its best is not what it takes"


def test_of_equals_the_simplest_is_taken_and_of_many_three_are_measured() -> None:
    equal = choose(gemm(), H200, table(library=101e-6, tuned=100e-6, stores=100e-6), EVERY, KERNELS)
    assert (equal.name, equal.close) == ("library", ("library", "tuned", "stores"))
    equal = choose(gemm(), H200, table(library=100e-6, tuned=102e-6, stores=101e-6), EVERY, KERNELS)
    assert (equal.name, equal.close) == ("library", ()), "nothing that spins can be faster"
    close = choose(
        gemm(), H200, table(library=101e-6, stores=102e-6, pieces=98e-6, fused=99e-6, tuned=110e-6), EVERY, KERNELS
    )
    assert close.close == ("library", "pieces", "fused")


def test_rows_are_bucketed_and_other_sizes_are_not() -> None:
    known = table(library=100e-6, fused=60e-6)
    answers = {choose(gemm(m), H200, known, EVERY, KERNELS) for m in (726, 1024, 1448)}
    assert len(answers) == 1
    assert choose(gemm(1450), H200, known, EVERY, KERNELS).low_s < next(iter(answers)).low_s, "further from its point"


def test_bounds_widen_with_the_distance_and_with_other_kernels() -> None:
    known = table(library=100e-6, fused=78e-6)
    assert choose(gemm(), H200, known, EVERY, KERNELS).name == "fused"
    assert choose(gemm(), H200, known, EVERY, "other kernels").name == "library"
    assert choose(gemm(8192), H200, known, EVERY, KERNELS).name == "library"


@pytest.mark.parametrize(
    ("asked", "model", "reason"),
    [
        (gemm(), "NVIDIA A100-SXM4-80GB", "the table has no NVIDIA A100-SXM4-80GB, only NVIDIA H200"),
        (gemm(world=4), H200, "the table has no gemm_all_to_all bfloat16 4 ranks"),
        (gemm(dtype="float32"), H200, "the table has no gemm_all_to_all float32 2 ranks"),
        (gemm(2**17), H200, "its nearest point is 7.0 doublings away"),
    ],
)
def test_what_the_table_does_not_know_has_the_default_and_says_why(asked: Problem, model: str, reason: str) -> None:
    choice = choose(asked, model, table(library=1e-4, fused=5e-5), EVERY, KERNELS)
    assert (choice.name, choice.source, choice.close) == (auto.DEFAULT, "", ())
    assert reason in choice.reason


def test_only_what_is_offered_is_chosen() -> None:
    known = table(library=100e-6, stores=90e-6, fused=50e-6)
    assert choose(gemm(), H200, known, ("library",), KERNELS).name == "library"
    assert (
        choose(gemm(), H200, known, ("tuned",), KERNELS).reason
        == "tuned is the default: none of its candidates runs here."
    )
    assert choose(gemm(world=1), H200, known, EVERY, KERNELS).name == "library"
    assert choose(gemm(world=1), H200, known, ("stores", "fused"), KERNELS).name == "fused", "the default"


def test_a_recorded_point_goes_before_an_estimated_one_that_is_a_little_nearer() -> None:
    key, [estimated] = next(iter(table(library=100e-6, fused=60e-6).points[H200].items()))
    recorded = replace(
        estimated, sizes=(10.0, 12.4, 11.0), source=auto.RECORDED, seconds={"library": 5e-5, "fused": 9e-5}
    )
    bounds = {auto.ESTIMATED: (0.9, 1.1), auto.RECORDED: (0.98, 1.02)}
    both = replace(
        table(library=1.0),
        spread={auto.spread_key(H200, source, 2): of_source for source, of_source in bounds.items()},
        points={H200: {key: (estimated, recorded)}},
    )
    assert choose(gemm(), H200, both, EVERY, KERNELS).source == auto.RECORDED


@pytest.mark.slow
def test_the_committed_table_is_what_estimates_and_recordings_say_today() -> None:
    """`python -m tests.gpu.choices` writes it."""
    content = json.loads(auto.PLACE.read_text())
    assert choices.with_recorded(content) == content, "the recorded points"
    for gpu in choices.GPUS:
        rows = {(auto.key_of(each), auto.sizes_of(each)): each for each in choices.grid_problems(gpu)}
        grid = {(key, tuple(row[: row.index("e")])): row for key, known in content["points"][gpu.model].items()
                for row in known if "e" in row}  # fmt: skip
        assert grid.keys() == rows.keys()
        for key in random.Random(28).sample(sorted(grid), 40):
            estimates = choices.estimated(rows[key], gpu.machines[rows[key].world])
            today = choices.row(rows[key], auto.ESTIMATED, estimates)
            assert grid[key] == today, f"{key}: estimates have changed since {content['made']}"
    names = [name for gpu in choices.GPUS for name in gpu.machines.values()]
    assert content["machines"] == {name: shipped_machine(name).digest for name in names}


def test_a_recorded_problem_gets_the_fastest_candidate_of_its_newest_recording() -> None:
    """Drawn schedules of other tiles once stood for the candidates of README's problems."""
    newest: dict[tuple[str, Problem], choices.Unit] = {}
    for unit in sorted(choices.units(), key=lambda unit: unit.date):
        if not unit.one_call and not unit.is_drawn and {"fused", "stores", "library"} <= unit.timed.keys():
            newest[unit.gpu, unit.problem] = unit
    assert len(newest) > 100
    for (model, of), unit in newest.items():
        choice = choose(of, model, shipped(), EVERY, shipped().kernels)
        taken = [unit.timed[name] for name in choice.close or (choice.name,) if name in unit.timed]
        assert min(taken) <= 1.05 * min(unit.timed.values()), (unit.recording, of, choice, unit.timed)


def test_the_digest_is_of_all_that_the_table_says() -> None:
    content = json.loads(auto.PLACE.read_text())
    content["points"][H200]["gemm_all_to_all bfloat16 2"][0][-1] += 1
    assert Table.of(content).digest != shipped().digest
