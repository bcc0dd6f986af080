"""A fabric is one word with numbers; what cannot be is refused, and an emulated one gets its bandwidth once."""

import json

import pytest

from kernels.fabric import DEFAULT, LATENCY_SECONDS, MESSAGE_SECONDS, Fabric, parse
from kernels.schedule import Refusal


def test_emulated_alone_means_wire_as_long_as_compute() -> None:
    assert parse("emulated") == parse(DEFAULT) == parse("emulated:wire_to_compute=1")
    assert parse("emulated").latency_seconds == LATENCY_SECONDS
    assert parse("emulated").message_seconds == MESSAGE_SECONDS


def test_numbers_are_taken_as_stated() -> None:
    found = parse("emulated:bandwidth_bytes_per_second=2e9,latency_seconds=0,message_seconds=1e-6")
    assert found == Fabric(kind="emulated", bandwidth_bytes_per_second=2e9, message_seconds=1e-6)


@pytest.mark.parametrize("kind", ["shared_memory", "network", "nvlink"])
def test_real_fabrics_are_one_word_and_can_be_run_on_as_they_are(kind: str) -> None:
    assert parse(kind) == Fabric(kind=kind)
    assert parse(kind).resolved
    assert not parse(kind).emulated
    assert parse(kind).wire_seconds(1e9) == 0


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("string", r"has the unknown kind 'string'\. Accepted: emulated, shared_memory, network, nvlink"),
        ("", r"has the unknown kind ''"),
        ("nvlink:latency_seconds=1e-6", r"but only an emulated link takes them\. Accepted: nvlink\."),
        (
            "emulated:speed=3",
            r"'speed=3', which is not a positive number of wire_to_compute, bandwidth_bytes_per_second",
        ),
        ("emulated:wire_to_compute=0", r"'wire_to_compute=0', which is not a positive number"),
        ("emulated:wire_to_compute=-1", r"'wire_to_compute=-1', which is not a positive number"),
        ("emulated:wire_to_compute=nan", r"'wire_to_compute=nan', which is not a positive number"),
        ("emulated:wire_to_compute=fast", r"'wire_to_compute=fast', which is not a positive number"),
        (
            "emulated:bandwidth_bytes_per_second=inf",
            r"'bandwidth_bytes_per_second=inf', which is not a positive number",
        ),
        (
            "emulated:wire_to_compute",
            (
                r"has 'wire_to_compute', which is not a positive number of .*\. "
                r"Accepted: values such as emulated:wire_to_compute=0\.5\."
            ),
        ),
    ],
)
def test_what_cannot_be_is_refused_with_what_was_asked(text: str, sentence: str) -> None:
    with pytest.raises(Refusal, match=sentence) as refused:
        parse(text)
    assert repr(text) in str(refused.value)


def test_a_resolved_link_takes_the_stated_share_of_compute() -> None:
    found = parse("emulated:wire_to_compute=0.5").resolve(wire_bytes=1_000_000, compute_seconds=0.04)
    assert found.resolved
    assert found.wire_seconds(1_000_000, num_messages=0) == pytest.approx(0.02)
    assert found.wire_seconds(1_000_000, num_messages=8) == pytest.approx(0.02 + 8 * MESSAGE_SECONDS)


def test_what_is_resolved_stays_as_it_is() -> None:
    found = parse("emulated:bandwidth_bytes_per_second=2e9")
    assert found.resolve(wire_bytes=1, compute_seconds=1.0) is found
    assert parse("nvlink").resolve(wire_bytes=1, compute_seconds=1.0) == Fabric(kind="nvlink")


def test_a_bandwidth_counts_where_the_share_is_stated_too() -> None:
    found = parse("emulated:wire_to_compute=1,bandwidth_bytes_per_second=1e9")
    assert found.resolved
    assert found.resolve(wire_bytes=10**9, compute_seconds=4.0) == found
    assert found.wire_seconds(1e9, num_messages=0) == 1.0


def test_one_rank_alone_can_be_resolved_too() -> None:
    assert parse("emulated").resolve(wire_bytes=0, compute_seconds=0.04).resolved


@pytest.mark.parametrize("text", ["emulated", "emulated:bandwidth_bytes_per_second=2e9", "shared_memory", "network"])
def test_a_fabric_survives_json_and_its_own_text(text: str) -> None:
    found = parse(text)
    assert Fabric.from_json(json.loads(json.dumps(found.to_json()))) == found
    assert parse(str(found)) == found
