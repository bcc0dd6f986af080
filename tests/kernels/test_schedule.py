"""A Schedule is a frozen choice that survives JSON, reads its axes and is built complete and legal, or refused."""

import json
from collections.abc import Callable

import pytest

from kernels.fabric import parse
from kernels.machine import Machine
from kernels.operators import problem
from kernels.schedule import Refusal, Schedule
from kernels.schemes import SCHEMES, axes, refusal, schedule

PROBLEM = problem("gemm_all_to_all", {"m": 64, "n": 64, "k": 32}, world=2)
EMULATED = parse("emulated")


Build = Callable[..., Schedule]


@pytest.fixture
def build(cpu_machine: Machine) -> Build:
    """build(scheme, {axis: value, ...})."""
    return lambda scheme, values=None: schedule(PROBLEM, scheme, values or {}, cpu_machine, EMULATED)


@pytest.mark.parametrize("scheme", ["sequential", "decomposed", "fused"])
def test_a_schedule_survives_json(build: Build, scheme: str) -> None:
    made = build(scheme)
    assert Schedule.from_json(json.loads(json.dumps(made.to_json()))) == made


@pytest.mark.parametrize("scheme", ["sequential", "decomposed", "fused"])
def test_a_built_schedule_has_every_axis_in_the_schemes_order(build: Build, cpu_machine: Machine, scheme: str) -> None:
    assert [name for name, _ in build(scheme).axes] == [a.name for a in axes(PROBLEM, scheme, cpu_machine, EMULATED)]


@pytest.mark.parametrize("scheme", ["sequential", "decomposed", "fused"])
def test_the_defaults_are_legal(build: Build, cpu_machine: Machine, scheme: str) -> None:
    assert refusal(PROBLEM, build(scheme), cpu_machine, EMULATED) is None


def test_equal_choices_are_one_key(build: Build) -> None:
    assert (
        len(
            {build("fused", {"slice_tiles": 2}), build("fused", {"slice_tiles": 2}), build("fused", {"slice_tiles": 1})}
        )
        == 2
    )


def test_axes_are_read_by_name(build: Build) -> None:
    made = build("decomposed", {"pieces": 4})
    assert (made["pieces"], made.count("pieces"), made.get("write"), made.get("write", "none")) == (4, 4, None, "none")
    assert str(made).startswith("decomposed(tile=")
    with pytest.raises(KeyError):
        made["write"]


def test_what_is_not_stated_gives_way_to_what_is(build: Build) -> None:
    """A ring moves one peer's piece at a time, so that the default grouping cannot stay."""
    assert build("decomposed", {"pattern": "ring"})["grouping"] == "unfused"


@pytest.mark.parametrize(
    ("scheme", "values", "asked", "accepted"),
    [
        ("fused", {"pieces": 4}, "axis 'pieces'", "slice_tiles"),
        ("fused", {"write": "sideways"}, "write = sideways", "zero_copy, staged"),
        ("fused", {"slice_tiles": 0}, "slice_tiles = 0", "1"),
        ("fused", {"tile": "128x0x1"}, "tile = 128x0x1", "x"),
        ("decomposed", {"pieces": 64, "split": "rows"}, "pieces = 64", "at most 32"),
        ("decomposed", {"pattern": "ring", "grouping": "fused"}, "pattern = ring", "grouping = unfused"),
        ("decomposed", {"split": "contraction"}, "split = contraction", "rows, columns"),
        ("sequential", {"collective": "library"}, "collective = library", "direct"),
        ("concurrent", {}, "scheme = concurrent", "sequential, decomposed, fused"),
        ("magic", {}, "scheme 'magic'", ", ".join(SCHEMES)),
    ],
)
def test_a_refusal_says_what_was_asked_and_what_is_accepted(
    build: Build, scheme: str, values: dict[str, int | str], asked: str, accepted: str
) -> None:
    with pytest.raises(Refusal) as refused:
        build(scheme, values)
    sentence = str(refused.value)
    assert asked in sentence
    assert accepted in sentence.partition("Accepted:")[2]


def test_a_world_larger_than_the_machine_is_refused_with_both_numbers(cpu_machine: Machine) -> None:
    wide = problem("gemm_all_to_all", {"m": 64, "n": 64, "k": 32}, world=16)
    with pytest.raises(Refusal, match=r"16 > 8\. Accepted: world 1\.\.8"):
        schedule(wide, "fused", {}, cpu_machine, EMULATED)


def test_a_rank_alone_calls_no_library(cpu_machine: Machine) -> None:
    alone = problem("gemm_all_to_all", {"m": 64, "n": 64, "k": 32}, world=1)
    with pytest.raises(Refusal, match="collective = library"):
        schedule(alone, "sequential", {"collective": "library"}, cpu_machine, parse("shared_memory"))
