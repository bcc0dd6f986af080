"""Sentences about why one schedule is faster: the verdict comes first, parts are named by size, nothing is made up."""

from __future__ import annotations

from typing import Any

import pytest

from kernels import fabric as fabrics
from kernels import operators
from kernels.schemes import schedule
from workbench.analysis.why import Explained, against_floor, against_other, runner_up, short_names, simulated_parts
from workbench.machines import shipped_machine
from workbench.results.deltas import Pinned

ROUNDS = (1.0, 1.01, 0.99, 1.02, 0.98, 1.0, 1.01, 0.99, 1.0, 1.01)
PARTS = {"floor": 0.1, "disturbance": 0.002, "fill and drain": 0.011, "waiting": 0.0, "decomposition": 0.003,
         "contention": 0.004, "unexplained": 0.012}  # fmt: skip
FEWER = {**PARTS, "fill and drain": 0.002, "decomposition": 0.004}
SLICES = {"tile": "64x128x64", "slice_tiles": 8}


def row(time_s: float, scheme: str = "fused", **given: Any) -> dict[str, Any]:
    noisy = [time_s * (each if number % 2 else 2 - each) for number, each in enumerate(ROUNDS)]
    return {"key": f"{scheme}{time_s}", "source": "measured", "block": "b", "part": "whole", "time_s": time_s,
            "rounds_s": noisy, "scheme": scheme, "axes": SLICES, "operator": "gemm_all_to_all", "shape": {"m": 1},
            "dtype": "float32", "world": 2, "machine": "laptop_cpu", "fabric": "shared_memory", "protocol": "quick",
            **given}  # fmt: skip


def explained(of: dict[str, Any], parts: dict[str, Any], source: str = "measured") -> Explained:
    return Explained(of, parts, sum(seconds or 0.0 for seconds in parts.values()), source)


FUSED = explained(row(sum(FEWER.values())), FEWER)
PIECES = explained(row(sum(PARTS.values()), "decomposed", axes={"tile": "64x128x64", "pieces": 4}), PARTS)


def test_the_difference_is_named_with_its_parts_the_largest_first() -> None:
    assert against_other(FUSED, PIECES) == (
        "fused, tile 64x128x64, tiles per slice 8 is 8 ms (6 %) faster than decomposed, tile 64x128x64, pieces 4: "
        "its fill and drain is 9 ms shorter, its computation 1 ms longer."
    )
    assert "is 8 ms (6 %) slower than fused" in against_other(PIECES, FUSED)


def test_what_is_within_noise_is_not_called_faster() -> None:
    noise = [0.9, 1.1, 0.95, 1.05, 1.12, 0.88, 1.03, 0.97, 1.08, 0.92]
    near = explained({**PIECES.row, "time_s": 0.1250, "rounds_s": [0.125 * each for each in noise]}, PARTS)
    text = against_other(FUSED, near)
    assert "is not certain, within noise" in text
    assert "faster than" not in text
    assert " is faster is not certain" in text


def test_blocks_that_took_no_turns_are_not_compared() -> None:
    apart = explained({**PIECES.row, "block": "other"}, PARTS)
    assert "took 6 % less time than" in against_other(FUSED, apart)
    assert "not in turns with it" in against_other(FUSED, apart)
    bases = [row(0.2, "sequential", axes={}), row(0.1, "sequential", axes={}, block="other")]
    text = against_other(FUSED, apart, bases)
    assert f"took {Pinned.of(apart.row, bases).delta(FUSED.row).percent.lstrip('-')} less time" in text
    assert "by shares of sequential" in text


def test_the_difference_is_the_one_that_a_comparison_shows() -> None:
    chosen = explained({**FUSED.row, "time_s": 0.9 * FUSED.row["time_s"]}, FEWER)
    delta = Pinned.of(PIECES.row).delta(chosen.row)
    assert delta.seconds != pytest.approx(chosen.row["time_s"] - PIECES.row["time_s"], rel=0.1)
    assert f"is {delta.time.lstrip('-')} ({delta.percent.lstrip('-')}) faster than" in against_other(chosen, PIECES)


def test_estimates_are_called_estimates_and_have_no_verdict_against_times() -> None:
    one, other = (explained({**each.row, "source": "estimated"}, dict(each.parts), "estimated")
                  for each in (FUSED, PIECES))  # fmt: skip
    assert against_other(one, other).startswith("By estimate, fused, ")
    mixed = against_other(FUSED, other)
    assert "measured, has 8 ms (6 %) less time than decomposed" in mixed
    assert "estimated; an estimate has no verdict" in mixed


def test_the_simulators_parts_come_with_its_times_and_say_where_it_disagrees() -> None:
    by_simulator = [explained(each.row, dict(each.parts), "estimated") for each in (FUSED, PIECES)]
    assert "faster than decomposed, tile 64x128x64, pieces 4. The simulator (124 ms against 132 ms) says: its fill" in (
        against_other(*by_simulator)
    )
    reversed_parts = explained(FUSED.row, PARTS, "estimated"), explained(PIECES.row, FEWER, "estimated")
    assert "The simulator does not see that (132 ms against 124 ms)" in against_other(*reversed_parts)
    assert against_floor(by_simulator[0]).startswith("By the simulator it is ")


def test_parts_that_are_not_known_make_no_sentence() -> None:
    unknown = explained(PIECES.row, {**PARTS, "contention": None})
    assert against_other(FUSED, unknown).endswith("is not known: contention were not measured for both.")


def test_the_floor_says_what_it_is() -> None:
    of_wire = explained({**FUSED.row, "minimal_wire_bytes": 1e6, "link_bytes_per_second": 1e7}, FEWER)
    assert against_floor(of_wire) == (
        "It is 24 ms (24 %) above its floor of 100 ms, which is the wire: unexplained 12 ms, decomposition 4 ms, "
        "contention 4 ms."
    )
    computes = explained({**FUSED.row, "minimal_wire_bytes": 1e6, "link_bytes_per_second": 1e9}, FEWER)
    assert "which is the computation" in against_floor(computes)
    assert "floor is not known" in against_floor(explained(FUSED.row, {"floor": None}))


# The runner-up, and names.


def test_the_runner_up_is_the_best_other_schedule_of_the_problem() -> None:
    best, second, third = row(0.1), row(0.11, axes={"slice_tiles": 4}), row(0.12, axes={"slice_tiles": 2})
    again = row(0.105, axes=SLICES, block="b")
    elsewhere = row(0.101, axes={"slice_tiles": 16}, shape={"m": 2})
    rows = [third, best, again, second, elsewhere, row(0.0999, source="estimated", axes={"slice_tiles": 1})]
    assert runner_up(best, rows) is second
    assert runner_up(third, rows) is best
    assert runner_up(best, [best]) is None


def test_an_equal_estimate_is_no_runner_up() -> None:
    estimates = [row(0.1, source="estimated", axes={"slice_tiles": number}) for number in (1, 2)]
    slower = row(0.2, source="estimated", axes={"slice_tiles": 3})
    assert runner_up(estimates[0], [*estimates, slower]) is slower


def test_names_have_what_differs() -> None:
    one, other = row(0.1), row(0.1, axes={**SLICES, "slice_tiles": 4})
    assert short_names(one, other) == ("fused, tiles per slice 8", "fused, tiles per slice 4")
    baseline = row(0.1, "sequential", axes={"tile": "t", "collective": "direct"})
    assert short_names(one, baseline)[1] == "sequential, collective direct"


# The simulator's parts.


@pytest.mark.parametrize("scheme", ["sequential", "decomposed", "fused"])
def test_the_simulators_parts_sum_to_its_time_and_share_a_floor(scheme: str) -> None:
    machine = shipped_machine("laptop_cpu")
    problem = operators.problem("gemm_all_to_all", {"m": 2048, "n": 512, "k": 1024}, dtype="float32", world=2)
    link = "emulated:wire_to_compute=1,bandwidth_bytes_per_second=1e+09"
    rows = [
        {**problem.to_json(), "scheme": name, "fabric": link, "backend": "cpu", "source": "estimated", "time_s": 1.0,
         "axes": dict(schedule(problem, name, {}, machine, fabrics.parse(link)).axes)}
        for name in (scheme, "sequential")
    ]  # fmt: skip
    parts = simulated_parts(rows, machine)
    for each in parts:
        assert sum(seconds or 0.0 for seconds in each.parts.values()) == pytest.approx(each.time_s)
        assert each.unknown == []
        assert each.time_s >= (each.parts["floor"] or 0.0) * (1 - 1e-9)
    assert parts[0].parts["floor"] == parts[1].parts["floor"]


def test_a_problem_has_one_floor_also_where_the_parts_are_the_simulators() -> None:
    """The strip had the measured floor, 159 us, and the sentence the simulator's computation, 163 us, as its floor."""
    timed = [{**FUSED.row, "floor_s": 0.0805}, {**PIECES.row, "floor_s": 0.0805}]
    by_simulator = explained(FUSED.row, FEWER, "estimated")
    assert "above the longer of computation and wire alone, 100 ms: " in against_floor(by_simulator, timed)
    assert "above its floor of 100 ms" in against_floor(by_simulator, [{**row, "floor_s": None} for row in timed])
    mixed = against_other(FUSED, explained(PIECES.row, {**PARTS, "floor": 0.12}, "estimated"))
    assert "its computation or wire alone is 20 ms shorter" in mixed
    assert "above its floor" in against_floor(FUSED, timed), "it was measured"
