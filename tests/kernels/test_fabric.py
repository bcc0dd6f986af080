"""A fabric is one word with numbers; what cannot be is refused, and an emulated one gets its bandwidth once."""

import json

import pytest

from kernels.fabric import (
    BETWEEN_LATENCY_SECONDS,
    BETWEEN_SLOWDOWN,
    DEFAULT,
    LATENCY_SECONDS,
    MESSAGE_SECONDS,
    Fabric,
    least_wait_s,
    parse,
    refusal,
    sharing_mismatch,
)
from kernels.machine import Machine
from kernels.schedule import Refusal
from workbench import machines


def test_emulated_alone_means_wire_as_long_as_compute() -> None:
    assert parse("emulated") == parse(DEFAULT) == parse("emulated:wire_to_compute=1")
    assert parse("emulated").latency_seconds == LATENCY_SECONDS
    assert parse("emulated").message_seconds == MESSAGE_SECONDS


def test_numbers_are_taken_as_stated() -> None:
    found = parse("emulated:bandwidth_bytes_per_second=2e9,latency_seconds=0,message_seconds=1e-6")
    assert found == Fabric(kind="emulated", bandwidth_bytes_per_second=2e9, message_seconds=1e-6)


@pytest.mark.parametrize("kind", ["shared_memory", "network", "nvlink", "shared_gpu"])
def test_real_fabrics_are_one_word_and_can_be_run_on_as_they_are(kind: str) -> None:
    assert parse(kind) == Fabric(kind=kind)
    assert parse(kind).resolved
    assert not parse(kind).emulated
    assert parse(kind).rate(2) is None


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("string", r"has the unknown kind 'string'\. Accepted: emulated, shared_memory, network, nvlink"),
        ("", r"has the unknown kind ''"),
        ("nvlink:latency_seconds=1e-6", r"but only an emulated link takes them\. Accepted: nvlink\."),
        ("emulated:speed=3", r"no number of a fabric is called 'speed'\. Accepted: wire_to_compute, bandwidth_bytes"),
        ("emulated:wire_to_compute=0", r"wire_to_compute = 0, which is no number above 0\. Accepted: numbers above 0"),
        ("emulated:wire_to_compute=-1", r"wire_to_compute = -1, which is no number above 0"),
        ("emulated:latency_seconds=-1", r"latency_seconds = -1, which is no number from 0 on"),
        ("emulated:wire_to_compute=nan", r"wire_to_compute = nan, which is no number above 0"),
        ("emulated:wire_to_compute=fast", r"wire_to_compute = fast, which is no number above 0"),
        (
            "emulated:bandwidth_bytes_per_second=inf",
            r"_second = inf, which .* emulated:bandwidth_bytes_per_second=1e9\.",
        ),
        (
            "emulated:wire_to_compute",
            r"wire_to_compute = nothing, .* as in emulated:wire_to_compute=0\.5\.",
        ),
        ("emulated:hosts=0", r"hosts = 0, which is no number above 0"),
        ("emulated:hosts=2.5", r"'hosts=2\.5', which is no whole number of hosts\. Accepted: hosts=1, hosts=2"),
        ("emulated:hosts=2,between_slowdown=0.5", r"'between_slowdown=0\.5', which is less than 1"),
        ("emulated:between_slowdown=8", r"states between_slowdown for 1 host, .* fewer than 2\. Accepted: hosts=2"),
    ],
)
def test_what_cannot_be_is_refused_with_what_was_asked(text: str, sentence: str) -> None:
    with pytest.raises(Refusal, match=sentence) as refused:
        parse(text)
    assert repr(text) in str(refused.value)


def test_a_resolved_link_takes_the_stated_share_of_compute() -> None:
    found = parse("emulated:wire_to_compute=0.5").resolve(1_000_000, compute_seconds=0.04, world=2)
    (link,) = found.links(2)
    assert found.resolved
    assert link.wire_seconds(1_000_000, num_messages=0) == pytest.approx(0.02)
    assert link.wire_seconds(1_000_000, num_messages=8) == pytest.approx(0.02 + 8 * MESSAGE_SECONDS)


def test_what_is_resolved_stays_as_it_is() -> None:
    found = parse("emulated:bandwidth_bytes_per_second=2e9")
    assert found.resolve(wire_bytes=1, compute_seconds=1.0, world=2) is found
    assert parse("nvlink").resolve(wire_bytes=1, compute_seconds=1.0, world=2) == Fabric(kind="nvlink")


def test_a_bandwidth_counts_where_the_share_is_stated_too() -> None:
    found = parse("emulated:wire_to_compute=1,bandwidth_bytes_per_second=1e9")
    assert found.resolved
    assert found.resolve(wire_bytes=10**9, compute_seconds=4.0, world=2) == found
    assert found.links(2)[0].wire_seconds(1e9, num_messages=0) == 1.0


def test_one_rank_alone_can_be_resolved_too() -> None:
    assert parse("emulated").resolve(wire_bytes=0, compute_seconds=0.04, world=1).resolved


@pytest.mark.parametrize(
    "text",
    ["emulated", "emulated:bandwidth_bytes_per_second=2e9", "shared_memory", "network", "emulated:hosts=2",
     "emulated:hosts=3,between_slowdown=2,between_latency_seconds=0,bandwidth_bytes_per_second=1e9"],
)  # fmt: skip
def test_a_fabric_survives_json_and_its_own_text(text: str) -> None:
    found = parse(text)
    assert Fabric.from_json(json.loads(json.dumps(found.to_json()))) == found
    assert parse(str(found)) == found


def test_hosts_have_a_slower_link_between_them() -> None:
    fabric = parse("emulated:hosts=2,bandwidth_bytes_per_second=8e8")
    inside, between = fabric.links(4)
    assert (inside.count, between.count) == (2, 2)
    assert (inside.bandwidth_bytes_per_second, inside.latency_seconds) == (8e8, LATENCY_SECONDS)
    assert between.bandwidth_bytes_per_second == pytest.approx(8e8 / BETWEEN_SLOWDOWN)
    assert between.latency_seconds == BETWEEN_LATENCY_SECONDS
    assert [[fabric.level(source, peer, 4) for peer in range(4)] for source in (0, 3)] == [[0, 0, 1, 1], [1, 1, 0, 0]]


def test_the_ratio_holds_over_both_links_together() -> None:
    """2 of the 3 shards that leave a rank of 4 cross between two hosts: they take what was asked for."""
    fabric = parse("emulated:hosts=2,wire_to_compute=0.5").resolve(wire_bytes=3_000_000, compute_seconds=0.04, world=4)
    assert fabric.links(4)[1].wire_seconds(2_000_000, num_messages=0) == pytest.approx(0.02)
    assert fabric.rate(4) == pytest.approx(3_000_000 / 0.02)


def test_both_links_together_are_a_bound() -> None:
    """What crosses once for each host (1 of 3 shards) hardly loads a link that is as fast as the one inside."""
    fabric = parse("emulated:hosts=2,between_slowdown=1,bandwidth_bytes_per_second=1e9")
    assert fabric.rate(4, crossing=1 / 3) == pytest.approx(2e9)
    assert fabric.rate(4) == pytest.approx(1.5e9)


def test_one_host_is_not_named() -> None:
    """Trials from before there were several hosts keep their keys."""
    assert parse("emulated:hosts=1") == parse("emulated")
    assert "hosts" not in parse("emulated").to_json()
    assert "hosts" not in str(parse("emulated"))


@pytest.mark.parametrize(("hosts", "world"), [(3, 4), (4, 2), (2, 1)])
def test_hosts_divide_the_ranks(hosts: int, world: int, cpu_machine: Machine) -> None:
    sentence = refusal(parse(f"emulated:hosts={hosts}"), cpu_machine, world)
    assert sentence is not None
    assert f"hosts = {hosts} does not divide {world} rank" in sentence
    assert refusal(parse("emulated:hosts=2"), cpu_machine, 4) is None


# Ranks that share a GPU.


@pytest.mark.parametrize(
    ("world", "sentence"),
    [
        (1, "fabric = shared_gpu does not fit world = 1: 2 to 8 ranks share a GPU, and 1 < 2."),
        (9, "fabric = shared_gpu does not fit world = 9: 2 to 8 ranks share a GPU, and 9 > 8."),
    ],
)
def test_from_two_to_eight_ranks_share_a_gpu_whatever_the_machine_connects(world: int, sentence: str) -> None:
    h200 = machines.machine("h200_nvl2")
    assert [refusal(parse("shared_gpu"), h200, each) for each in (2, 4, 8)] == [None] * 3
    assert refusal(parse("shared_gpu"), h200, world) == f"{sentence} Accepted: world 2..8, or fabric = nvlink."
    said = refusal(parse("shared_gpu"), machines.machine("laptop_cpu"), 2)
    assert said == (
        "fabric = shared_gpu does not exist on machine laptop_cpu: CPU ranks have 0 GPUs to share. Accepted: emulated, "
        "shared_memory, network, or a machine of GPUs."
    )


def test_a_link_and_the_ranks_that_were_dealt_agree_or_are_refused_with_both_numbers() -> None:
    assert sharing_mismatch(parse("shared_gpu"), "triton", 4) is None
    assert sharing_mismatch(parse("nvlink"), "triton", 1) is None
    assert sharing_mismatch(parse("emulated"), "cpu", 4) is None, "CPU ranks compute beside a shared GPU as ever"
    assert sharing_mismatch(parse("network"), "triton", 2) is None, "hosts may be addresses of one computer"
    assert sharing_mismatch(parse("nvlink"), "triton", 4) == (
        "fabric = nvlink needs a GPU for each rank, but 4 ranks share the GPU here. Accepted: fabric = shared_gpu "
        "(--share-gpu, or “Share this GPU” on the page), or a GPU for each rank."
    )
    assert sharing_mismatch(parse("shared_gpu"), "triton", 1) == (
        "fabric = shared_gpu is not how these ranks are linked: each GPU has 1 rank, and ranks that share one are 2 or "
        "more. Accepted: fabric = nvlink, or `workbench cluster up --set share_gpu=yes`."
    )


def test_a_wait_for_a_rank_of_the_same_gpu_lasts_a_hundred_slices_of_each_at_least() -> None:
    assert [least_wait_s(ranks) for ranks in (1, 2, 8)] == [0.0, 0.4, 1.6]
