"""Every benchmark yields well-formed rows on a real cluster with tiny sizes; how long it takes is not held here."""

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster import launch
from cluster.client import Cluster
from kernels.machine import Machine
from kernels.schedule import Refusal
from kernels.trial import Protocol
from workbench.cli import benchmark_parts
from workbench.cli.benchmark import BENCHMARKS, benchmark
from workbench.cli.benchmark_parts import ONCE, BenchmarkTarget, Effort, Row, small
from workbench.machines.calibrate_cpu import QUICK_SECONDS

KEYS = ["name", "value", "unit", "target", "met", "spread", "n", "how"]
COMPARED = ("sequential", "decomposed", "fused")
NAMES = {
    "play": ["play_estimates"],
    "grid": ["grid_estimates", "grid_estimates_unlike"],
    "store": ["store_outcomes", "store_samples"],
    "chart": ["chart_append"],
    "gang": ["gang_cold", "gang_warm"],
    "overhead": ["overhead_per_trial"],
    "latency": ["sample_latency", "sample_latency_p95"],
    "overlap": [
        *(f"overlap_{scheme}" for scheme in COMPARED), "overlap_limit", "fused_to_limit", "decomposed_to_sequential",
        "fused_to_sequential", "decomposed_compute_alone", "fused_compute_alone",
        *(f"{scheme}_to_play{machine}" for scheme in COMPARED for machine in ("", "_same_compute")),
    ],
    "pieces": ["pieces_1", "pieces_2", "pieces_4", "pieces_curve"],
    "world_4": [f"world_4_{scheme}" for scheme in COMPARED],
    "fairness": ["fairness"],
}  # fmt: skip
HELD = {
    "gang_warm": "<= 0.1", "overhead_per_trial": "<= 0.015", "grid_estimates": ">= 5e+06", "fairness": "<= 1.5",
    "fused_to_limit": "<= 1.2", "decomposed_to_sequential": "<= 0.75", "fused_to_sequential": "<= 0.75",
    "pieces_curve": "<= 1", **{f"{scheme}_to_play": "0.85 to 1.15" for scheme in COMPARED},
}  # fmt: skip
"""The targets of the workbench, by row."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with launch.local(4, published=False) as record, Cluster.connect(record.address) as connected:
        yield connected


@pytest.fixture
def effort(tmp_path: Path) -> Effort:
    return Effort(gangs=2, trials=4, samples=5, sweep_s=0.5, lists_s=(0.05, 0.1), plays=3, points=300, outcomes=3,
                  appends=2, preset="tiny", protocol="quick", pieces=(1, 2, 4), calibration_s=QUICK_SECONDS,
                  folder=tmp_path)  # fmt: skip


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_yields_its_rows_with_their_targets(name: str, cluster: Cluster, effort: Effort) -> None:
    found = benchmark([name], cluster, effort=effort)
    assert [row["name"] for row in found["rows"]] == NAMES[name], found["rows"]
    for row in found["rows"]:
        assert list(row) == KEYS
        assert math.isfinite(row["value"])
        assert row["value"] > 0
        assert row["unit"] in ("s", "1/s", "ratio")
        assert row["target"] == HELD.get(row["name"])
        assert row["met"] is None if row["target"] is None else row["met"] in (True, False)
        assert row["spread"] is None or row["spread"][0] <= row["spread"][1]
        assert row["n"] >= 1
        assert row["how"].endswith(".")
    assert found["summary"]["failed"] == []
    assert found["summary"]["cluster"] == cluster.address
    assert cluster.client.status == "running", "a cluster that was given stays connected"


@pytest.mark.slow
def test_without_a_cluster_a_private_one_is_started_and_ended(effort: Effort) -> None:
    found = benchmark(["latency"], effort=effort)
    assert found["summary"]["cluster"] == "private"
    assert found["rows"][0]["n"] == 2 * effort.samples


def test_an_unknown_benchmark_is_refused_with_the_known_ones() -> None:
    with pytest.raises(Refusal, match=r"There is no benchmark 'speed'\. Accepted: play, grid"):
        benchmark(["speed"])


class TooFew:
    """A cluster in which every list is refused."""

    address = "nowhere"

    def describe(self) -> dict[str, list[dict[str, bool]]]:
        return {"workers": [{"ready": True, "busy": False}] * 2}

    def ranks(self, *_: object) -> None:
        """None can be seated."""

    def stream(self, trials: list, **_: object) -> Iterator[dict[str, object]]:
        for trial in trials:
            yield {"kind": "failure", "trial": trial.key, "rank": None, "stage": "refused", "message": "too few ranks."}


def test_what_cannot_be_run_is_a_row_that_says_why_and_the_others_go_on(effort: Effort) -> None:
    found = benchmark(["gang", "world_4", "store"], TooFew(), effort=effort)  # type: ignore[arg-type]
    first, second, *stored = found["rows"]
    for row in (first, second):
        assert (row["value"], row["n"], row["met"]) == (None, 0, None)
        assert row["how"] == "It did not run: too few ranks."
    assert [row["name"] for row in stored] == NAMES["store"]
    assert found["summary"]["failed"] == ["gang", "world_4"]


def test_a_target_holds_what_it_says() -> None:
    assert BenchmarkTarget(most=1.2).met(1.2)
    assert not BenchmarkTarget(most=1.2).met(1.21)
    assert BenchmarkTarget(least=0.85, most=1.15).met(1.0)
    assert not BenchmarkTarget(least=0.85, most=1.15).met(0.84)
    assert not BenchmarkTarget(most=1.2).met(math.nan)
    row = Row(name="x", value=None, unit="s", how="It could not be.", target=BenchmarkTarget(least=3))
    assert row.met is False, "what was not found does not keep its target"


def test_the_summary_counts_what_was_met_and_names_what_was_missed(effort: Effort, monkeypatch) -> None:
    made = [
        Row(name="good", value=1.0, unit="s", how="So.", target=BenchmarkTarget(most=2)),
        Row(name="bad", value=3.0, unit="s", how="So.", target=BenchmarkTarget(most=2)),
        Row(name="free", value=3.0, unit="s", how="So."),
    ]
    monkeypatch.setitem(BENCHMARKS, "play", lambda setting: iter(made))
    summary = benchmark(["play"], TooFew(), effort=effort)["summary"]  # type: ignore[arg-type]
    assert (summary["targets"], summary["met"], summary["missed"]) == (2, 1, ["bad"])


def test_the_spread_leaves_a_tenth_out_on_both_sides() -> None:
    row = benchmark_parts.typical("x", [float(number) for number in range(11)], "s", "So.")
    assert (row.value, row.spread, row.n) == (5.0, (1.0, 9.0), 11)
    assert benchmark_parts.quantile([3.0, 1.0, 2.0], 0.95) == 3.0


def test_an_iteration_is_as_long_as_its_slowest_rank() -> None:
    def sample(trial: str, rank: int, index: int, seconds: float) -> dict[str, object]:
        return {"kind": "sample", "trial": trial, "rank": rank, "index": index, "seconds": seconds}

    events = [sample("a", 0, 0, 1.0), sample("a", 1, 0, 2.0), sample("a", 0, 1, 5.0), sample("b", 0, 0, 10.0),
              {"kind": "result", "trial": "a", "rank": 0}]  # fmt: skip
    assert benchmark_parts.timed_s(events) == 2.0 + 5.0 + 10.0


def test_lists_hold_different_trials_of_one_sitting(machine: Machine) -> None:
    trials = benchmark_parts.different(machine, 50)
    assert len({trial.key for trial in trials}) == 50
    assert {(trial.problem, trial.protocol) for trial in trials} == {(trials[0].problem, benchmark_parts.TIMED)}


def test_a_small_trial_s_wire_takes_as_long_as_is_asked(machine: Machine) -> None:
    trial = small(machine, Protocol(name="p", warmups=0, repeats=1), iteration_s=0.25)
    wire_bytes = 64 // 2 * 64 * 4
    assert trial.fabric.links(2)[0].wire_seconds(wire_bytes, 0) == pytest.approx(0.25)
    assert small(machine).protocol == ONCE


def test_fused_is_held_to_its_limit_with_eight_slices(machine: Machine) -> None:
    problem = small(machine).problem
    _, _, fused = benchmark_parts.compared(problem, machine)
    assert fused["slice_tiles"] == max(1, -(-len(benchmark_parts.tile_order(problem, fused, 0)) // 8))
