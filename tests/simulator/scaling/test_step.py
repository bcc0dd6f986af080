"""Steps of models: equal to tier B inside a host, near ASTRA-sim, never slower on faster links."""

import json
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernels.operators import OPERATORS, problem
from kernels.schedule import Refusal
from kernels.schemes import BASELINE, schedule
from kernels.trial import Trial, protocol
from tests.simulator.scaling.made import GEMMS, MACHINE, Written, prices, switch
from workbench.simulator.predict import predict
from workbench.simulator.price.networks import inside_fabric
from workbench.simulator.scaling import step as configurations
from workbench.simulator.scaling.graph import COMPUTE, LAYERS, MIRROR, tasks
from workbench.simulator.scaling.model import SIZES, Model, load, model, names
from workbench.simulator.scaling.network import Network, named
from workbench.simulator.scaling.prices import SCHEMES, Prices
from workbench.simulator.scaling.schedule import on_all_ranks, timed
from workbench.simulator.scaling.step import CONFIGURATIONS, SEQUENTIAL, StepSetting, Stragglers, band, rows, span, step

# Steps of models: equal to tier B inside a host, without communication alone, never slower on faster links.


def setting(name: str, world: int) -> StepSetting:
    """One step of the model called *name*."""
    return StepSetting(model=model(name), prices=prices(world))


def chain(folder: Path, training: bool = False) -> Model:
    """A model whose layers are operators of ours, one after the other."""
    text = (f"name = 'chain'\ntitle = 'Chain'\nsource = 'made for a test'\ndtype = 'bfloat16'\nsamples = 4096\n"
            f"training = {str(training).lower()}\n")  # fmt: skip
    for name, (m, n, k) in GEMMS.items():
        text += f"[[layer]]\nname = '{name}'\nkind = '{name}'\nm = {m}\nn = {n}\nk = {k}\n"
    path = folder / "chain.toml"
    path.write_text(text)
    return load(path)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_step_of_one_host_is_the_sum_of_what_tier_b_estimates(tmp_path: Path, scheme: str) -> None:
    fabric, total = inside_fabric(MACHINE), 0.0
    for name, (m, n, k) in GEMMS.items():
        one = problem(name, {"m": m, "n": n, "k": k}, dtype="bfloat16", world=8)
        chosen = schedule(one, scheme, {}, MACHINE, fabric)
        total += predict(Trial(problem=one, schedule=chosen, backend=MACHINE.backend, machine=MACHINE.name,
                               fabric=fabric, protocol=protocol("latency")), MACHINE).time_s  # fmt: skip
    made = tasks(chain(tmp_path), prices(8), {"forward": scheme, "backward": BASELINE})
    assert timed(made).time_s == pytest.approx(total, rel=1e-9)


@pytest.mark.parametrize("name", names())
def test_one_rank_does_not_communicate(name: str) -> None:
    made = tasks(model(name), prices(1), SEQUENTIAL)
    assert not any(task.group for task in made)
    assert timed(made).time_s == pytest.approx(sum(task.compute_s for task in made))
    assert all(row["reduction"] == 0 and row["exposed_s"] == pytest.approx(0, abs=1e-12)
               for row in rows(setting(name, 1)))  # fmt: skip


@pytest.mark.slow(keeps=4)
@pytest.mark.parametrize(("name", "world"), [*product(("dlrm", "dlrm_dcnv2"), (16, 1024)), ("mixtral_8x7b", 32)])
def test_twice_the_bandwidth_never_slows_a_step(name: str, world: int) -> None:
    known, rates, first = model(name), 1.25e10 * 2.0 ** np.arange(4), prices(world)
    for schemes in (*CONFIGURATIONS.values(), SEQUENTIAL):
        linked = [first.over(first.network.with_rates(1, float(rate))) for rate in rates]
        times = [timed(tasks(known, each, schemes)).time_s for each in linked]
        assert all(faster <= slower * (1 + 1e-9) for slower, faster in pairwise(times))


def test_every_rank_in_order_is_the_rank_that_stands_for_all() -> None:
    made = tasks(model("dlrm"), prices(128), CONFIGURATIONS["fused"])
    when = timed(made)
    assert on_all_ranks(made, when.order, np.ones(128)) == pytest.approx(np.full(128, when.time_s))


def test_slow_ranks_make_all_of_their_group_late() -> None:
    known = setting("dlrm", 128)
    usual = step(known).time_s
    slow = [
        step(replace(known, stragglers=Stragglers(probability=each, slowdown=2.0))).time_s for each in (0.002, 0.5, 1)
    ]
    assert usual < slow[0] < slow[1] <= slow[2] * (1 + 1e-9)
    assert slow[2] <= usual + step(known).exposed.compute_s * (1 + 1e-9)
    assert step(replace(known, stragglers=Stragglers(probability=1.0, slowdown=1.0))).time_s == pytest.approx(usual)


@pytest.mark.slow(keeps=2)
@pytest.mark.parametrize("name", names())
def test_what_is_exposed_adds_up(name: str) -> None:
    for row in rows(setting(name, 16)):
        assert row["exposed_s"] == pytest.approx(row["fused_s"] - row["compute_s"])
        for prefix in ("", "baseline_"):
            whole = row[f"{prefix}exposed_s"]
            for part in ("level", "layer"):
                parts = sum(each["exposed_s"] for each in row[f"{prefix}exposed_by_{part}"])
                assert parts == pytest.approx(whole, rel=1e-6, abs=1e-9)
        assert row["reduction"] == pytest.approx(1 - row["fused_s"] / row["baseline_s"])


def test_dlrm_gains_by_what_is_fused_and_by_the_rate_of_the_network() -> None:
    """The paper's 21 and 10 % lie inside what network rate and passes span; two cases gain nothing."""
    made = band(setting("dlrm", 128), rates=(2.5e10, 5e10))
    spans = span(made)
    low, high = spans["fused_forward"][0], spans["fused"][1]
    assert low < 0.21 < high
    by_rate = {row["network_bytes_per_second"]: row for row in made if row["configuration"] == "fused"}
    one_pass = {row["network_bytes_per_second"]: row for row in made if row["configuration"] == "fused_forward"}
    assert all(by_rate[rate]["reduction"] > one_pass[rate]["reduction"] for rate in by_rate)
    dense = band(setting("dlrm", 128), dense_scales=(16.0,), names=["fused"])
    small = band(setting("dlrm_dcnv2", 128), names=["fused"])
    assert all(abs(row["reduction"]) < 0.05 for row in (*dense, *small))


def test_a_rate_is_that_of_the_outermost_level_that_leads_to_anybody() -> None:
    """Eight ranks are one host, whose own links are what a stated rate is of."""
    inside = setting("dlrm", 8).prices.network.levels[0].bandwidth_bytes_per_second
    usual, slow = (band(setting("dlrm", 8), rates=rates, names=["fused"])[0] for rates in ((), (inside / 4,)))
    assert [row["network_bytes_per_second"] for row in (usual, slow)] == [inside, inside / 4]
    assert slow["baseline_s"] > usual["baseline_s"]


def test_on_the_network_that_the_paper_is_recalled_to_have_each_pass_gains_a_tenth() -> None:
    """Its versions say about 10 and 21 %; sizes and network are recalled, and which passes were fused is not known."""
    torus = StepSetting(model=model("dlrm"), prices=Prices(MACHINE, named(Path("torus128"))))
    made = {row["configuration"]: row["reduction"] for row in rows(torus)}
    assert 0.05 < made["fused_forward"] < 0.15 < made["fused"] < 0.25


def test_pieces_hide_the_network_as_well_but_for_their_calls() -> None:
    made = {row["configuration"]: row["reduction"] for row in rows(setting("dlrm", 128))}
    assert 0.15 < made["decomposed"] < made["fused"]


def test_another_fabric_is_taken_for_all_that_is_sent() -> None:
    flat = Network("flat", (switch(128, 5e10, 5e-6),))
    row = rows(StepSetting(model=model("dlrm"), prices=Prices(MACHINE, flat)), ["fused"])[0]
    assert (row["network"], len(row["exposed_by_level"])) == ("128", 1)
    assert 0.2 < row["reduction"] < 0.4


def test_every_kind_of_layer_can_be_done_and_every_gemm_has_a_mirror() -> None:
    assert LAYERS.keys() == SIZES.keys()
    assert MIRROR.keys() == {name for name, each in OPERATORS.items() if each.work == "gemm"}
    assert {name for name in MIRROR.values() if name} < MIRROR.keys()


def test_whoever_overlaps_has_its_processor_no_longer_than_it_lasts() -> None:
    for world, schemes in product((2, 64), CONFIGURATIONS.values()):
        for task in tasks(model("dlrm"), prices(world), schemes):
            assert all(0 <= begin <= end <= task.seconds * (1 + 1e-12) for begin, end in task.holds.values())
            assert task.compute_s <= task.holds.get(COMPUTE, (0.0, 0.0))[1] * (1 + 1e-12)


def test_uneven_lookups_make_a_step_longer_and_dense_layers_not() -> None:
    known = setting("dlrm", 128)
    uneven = step(replace(known, stragglers=Stragglers(imbalance=0.3))).time_s
    assert step(known).time_s < uneven < 1.3 * step(known).time_s
    dense = setting("llama3_70b", 16)
    assert step(replace(dense, stragglers=Stragglers(imbalance=0.3))).time_s == pytest.approx(step(dense).time_s)


@pytest.mark.parametrize("values", [{"probability": 1.5}, {"probability": -0.1}, {"slowdown": 0.5}, {"imbalance": 2.0}])
def test_stragglers_that_cannot_be_are_refused(values: dict[str, float]) -> None:
    with pytest.raises(Refusal, match="Accepted"):
        Stragglers(**values)


@pytest.mark.parametrize("slowdown", [0.5, 1e7, float("inf"), float("nan")])
def test_a_slowdown_outside_its_range_is_refused_with_both_ends(slowdown: float) -> None:
    with pytest.raises(Refusal, match=rf"slowdown = {slowdown:g} is outside 1 to 1,000,000\.".replace("+", r"\+")):
        Stragglers(slowdown=slowdown)


def test_an_unknown_configuration_is_refused() -> None:
    with pytest.raises(Refusal, match=r"There is no configuration 'magic'. Accepted: fused_forward"):
        configurations.named(["magic"], model("dlrm"))


# Steps against ASTRA-sim: its own DLRM on one and two levels, and a DLRM whose exchanges are cut into chunks.

PEER = json.loads((Path(__file__).parent / "astra_sim.json").read_text())
US = 1e-6
CLOSE = 0.05
EMBEDDING, EXCHANGE = 0.3 * US, 98304
BOTTOM = ((1280, 794, 896, 13312), (2560, 2560, 1792, 524288), (2560, 2560, 1792, 524288), (800, 1280, 800, 16384))
TOP = ((6400, 6400, 4480, 1064960), (2560, 2560, 1792, 524288), (2560, 2560, 1792, 524288))
"""DLRM_HybridParallel.txt of ASTRA-sim: ns forward, of the input's gradient, of the weights'; bytes that are summed."""


def text_step(network: Network, way: str) -> float:
    """Its two passes: weights' gradients first, each summed while the next layer computes."""
    made = Written(network)

    def backward(layers: Any, after: int) -> int:
        for _, inputs, weights, num_bytes in reversed(layers):
            after = made.computes(weights * 1e-9, after)
            made.moves("all_reduce", num_bytes, "hierarchical", after, inside=way)
            after = made.computes(inputs * 1e-9, after)
        return after

    looked_up = made.computes(EMBEDDING)
    exchanged = made.moves("all_to_all", EXCHANGE, "hierarchical", looked_up, inside=way)
    bottom = made.chain([each[0] * 1e-9 for each in BOTTOM], looked_up)
    top = made.computes(TOP[0][0] * 1e-9, bottom, exchanged)
    top = backward(TOP, made.chain([each[0] * 1e-9 for each in TOP[1:]], top))
    returned = made.moves("all_to_all", EXCHANGE, "hierarchical", top, inside=way)
    made.chain([EMBEDDING, EMBEDDING], backward(BOTTOM, top), returned)
    return timed(made.tasks).time_s


@pytest.mark.parametrize(("theirs", "way"), [("ring", "ring"), ("direct1", "pairwise")])
@pytest.mark.parametrize("row", PEER["text_steps"], ids=lambda row: f"{row['npus']} ranks")
def test_its_own_dlrm_takes_as_long_here(row: dict[str, Any], theirs: str, way: str) -> None:
    levels = zip(row["npus_per_dim"], row["bw_GBps"], row["lat_hop_ns"], strict=True)
    network = Network("peer", tuple(switch(count, rate * 1e9, 2e-9 * hop) for count, rate, hop in levels))
    assert text_step(network, way) == pytest.approx(row[theirs]["time_us"] * US, rel=CLOSE)


def chunked_step(row: dict[str, Any]) -> float:
    """Half of the dense layers below; gradients in buckets of 25 MB, summed by halving and doubling."""
    made = Written(Network("peer", (switch(row["npus"], 5e10, 5e-6),)))
    num_bytes, chunks, dense = row["a2a_MB"] * 1e6, row["chunks_fwd"], row["mlp_fwd_us"] * US / 2
    looked_up, exchanged = [], []
    for _ in range(chunks):
        looked_up.append(made.computes(row["emb_fwd_us"] * US / chunks, *looked_up[-1:]))
        exchanged.append(made.moves("all_to_all", num_bytes / chunks, "direct", looked_up[-1]))
    last = made.computes(dense, made.computes(dense, looked_up[-1]), *exchanged)

    def backward(after: int) -> int:
        gradients = row["dense_grad_MB"] * 1e6 / 2
        buckets = max(1, -(-int(gradients) // 25_000_000))
        for _ in range(buckets):
            after = made.computes(2 * dense / buckets, after)
            made.moves("all_reduce", gradients / buckets, "halving_doubling", after)
        return after

    last, chunks = backward(last), row["chunks_bwd"]
    returned = [made.moves("all_to_all", num_bytes / chunks, "direct", last) for _ in range(chunks)]
    last = backward(last)
    for each in returned:
        last = made.computes(row["emb_bwd_us"] * US / chunks, last, each)
    return timed(made.tasks).time_s


@pytest.mark.parametrize("row", PEER["fused_steps"], ids=lambda row: f"{row['case'][:9]} {row['chunks_fwd']}")
def test_a_dlrm_in_chunks_takes_as_long_here(row: dict[str, Any]) -> None:
    assert chunked_step(row) == pytest.approx(row["time_us"] * US, rel=CLOSE)
