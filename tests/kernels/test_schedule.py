"""A Schedule is a frozen choice of axes' values: it survives JSON and is built complete and legal, or refused."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.fabric import parse
from kernels.machine import Machine, load
from kernels.operators import OPERATORS, problem
from kernels.schedule import OMITTED_DEFAULTS, Axis, Refusal, Schedule, Tile, is_tile, tile
from kernels.schemes import SCHEMES, axes, refusal, schedule

# A Schedule is a frozen choice that survives JSON, reads its axes and is built complete and legal, or refused.

PROBLEM = problem("gemm_all_to_all", {"m": 64, "n": 64, "k": 32}, world=2)
EMULATED = parse("emulated")
MACHINES = Path(__file__).parents[2] / "data" / "machines"
SIZES: dict[str, dict[str, int]] = {
    "gemm": {"m": 64, "n": 64, "k": 32}, "gemv": {"n": 64, "k": 64, "tokens": 2},
    "gather": {"tables_per_rank": 2, "rows": 100, "dim": 16, "batch": 64, "pooling": 4},
}  # fmt: skip


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
    known = [axis.name for axis in axes(PROBLEM, scheme, cpu_machine, EMULATED)]
    made = build(scheme)
    assert [name for name, _ in made.axes] == [name for name in known if name in dict(made.axes)]
    assert {*known} == {name for name, _ in made.axes} | ({*known} & {*OMITTED_DEFAULTS.get(scheme, {})})


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


@given(
    st.sampled_from(list(OMITTED_DEFAULTS)), st.permutations([("tile", "1x2x3"), ("collective", "direct")]), st.data()
)
def test_what_no_schedule_names_is_read_all_the_same_and_changes_no_key(
    scheme: str, axes: list[tuple[str, str]], data: st.DataObject
) -> None:
    unnamed = OMITTED_DEFAULTS[scheme]
    name = data.draw(st.sampled_from(list(unnamed)))
    plain, named = Schedule(scheme, tuple(axes)), Schedule(scheme, (*axes, (name, unnamed[name])))
    other = Schedule(scheme, (*axes, (name, "another")))
    assert plain == named == Schedule.from_json({"scheme": scheme, "axes": {**dict(axes), **unnamed}})
    assert (plain[name], plain.get(name), other[name]) == (unnamed[name], unnamed[name], "another")
    assert name not in plain.to_json()["axes"]
    assert other.to_json()["axes"][name] == "another"
    with pytest.raises(KeyError):
        Schedule("decomposed", tuple(axes))[name]


GPU_REFUSALS = [
    ("all_gather_gemm", {"pieces": 3}, "pieces = 3 with split = rows does not cut evenly", "such as 2, 4"),
    ("all_gather_gemm", {"pieces": 6, "split": "rows_and_contraction"}, "(3 along contraction)", "such as 2, 4"),
    ("gemm_all_to_all", {"split": "contraction"}, "split = contraction is not a legal value", "rows, columns"),
    ("all_gather_gemm", {"launches": "one", "grouping": "unfused"}, "launches = one", "grouping = fused"),
    ("all_gather_gemm", {"launches": "one", "pattern": "ring"}, "pattern = ring", "pattern = all_to_all"),
    ("all_gather_gemm", {"launches": "one", "engine": "library"}, "launches = one", "launches = per_piece"),
    ("all_gather_gemm", {"comm_sms": 8, "engine": "copy_engine"}, "comm_sms = 8", "a schedule without comm_sms"),
    ("all_gather_gemm", {"launches": "two"}, "launches = two", "per_piece, one"),
    ("gemv_all_reduce", {"launches": "one"}, "launches = one", "per_piece"),
    ("all_gather_gemm", {"engine": "library", "pattern": "ring"}, "pattern = ring", "another engine"),
]  # fmt: skip


@pytest.mark.parametrize(("operator", "values", "asked", "accepted"), GPU_REFUSALS)
def test_a_gpu_s_pieces_are_refused_in_a_sentence_that_says_what_is_accepted(
    operator: str, values: dict[str, int | str], asked: str, accepted: str
) -> None:
    machine, link = load(MACHINES / "h200_nvl4.toml"), parse("nvlink")
    one = problem(operator, SIZES[OPERATORS[operator].work], world=4, dtype="bfloat16")
    with pytest.raises(Refusal) as refused:
        schedule(one, "decomposed", values, machine, link)
    assert asked in str(refused.value)
    assert accepted in str(refused.value).partition("Accepted:")[2]


def test_an_engine_that_the_machine_lacks_is_refused() -> None:
    machine, link = load(MACHINES / "h200_nvl4.toml"), parse("nvlink")
    without = replace(machine, device=replace(machine.device, copy_engines=0))
    one = problem("all_gather_gemm", SIZES["gemm"], world=4, dtype="bfloat16")
    with pytest.raises(Refusal, match=r"engine = copy_engine is not a legal value here\..*Accepted: sm, library\."):
        schedule(one, "decomposed", {"engine": "copy_engine"}, without, link)


@pytest.mark.parametrize("axis", ["launches", "comm_sms"])
def test_a_cpu_rank_has_no_launches_to_choose(build: Build, axis: str) -> None:
    with pytest.raises(Refusal, match=f"{axis} = 1 changes nothing .* 1 thread for everything"):
        build("decomposed", {axis: 1})


@pytest.mark.parametrize("operator", OPERATORS)
def test_who_computes_is_chosen_on_gpus_where_a_library_could(operator: str, cpu_machine: Machine) -> None:
    machine, link = load(MACHINES / "h200_nvl4.toml"), parse("nvlink")
    asked = problem(operator, SIZES[OPERATORS[operator].work], world=4, dtype="bfloat16")
    offered = {axis.name: axis for axis in axes(asked, "sequential", machine, link)}
    if OPERATORS[operator].work == "gather":
        with pytest.raises(Refusal, match=r"kernel = ours changes nothing in .*: it has one computation only"):
            schedule(asked, "sequential", {"kernel": "ours"}, machine, link)
    else:
        assert offered["kernel"].values == ("library", "ours")
        usual, stated, ours = (schedule(asked, "sequential", values, machine, link)
                               for values in ({}, {"kernel": "library"}, {"kernel": "ours"}))  # fmt: skip
        assert usual == stated != ours
        assert [name for name, _ in ours.axes] == ["tile", "collective", "kernel"]
    here = problem(operator, SIZES[OPERATORS[operator].work], world=2)
    assert "kernel" not in {axis.name for axis in axes(here, "sequential", cpu_machine, EMULATED)}


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
        ("concurrent", {"micro_batches": 1}, "1 < 2", "2 to 32"),
        ("concurrent", {"micro_batches": 64}, "64 > 32", "2 to 32"),
        ("concurrent", {"comm_priority": "low"}, "comm_priority = low", "high, normal"),
        ("concurrent", {"comm_sms": 8}, "comm_sms = 8 changes nothing", "without comm_sms"),
        ("concurrent", {"collective": "library"}, "collective = library", "direct"),
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


@pytest.fixture(scope="module")
def h200() -> Machine:
    return load(MACHINES / "h200_nvl2.toml")


@pytest.mark.parametrize(("blocks", "tile"), [(1, "128x256x64"), (2, "64x128x64"), (3, "64x64x64"), (4, "32x64x64")])
def test_resident_blocks_find_our_kernel_and_the_largest_tile_that_leaves_room(
    h200: Machine, blocks: int, tile: str
) -> None:
    asked, link = problem("gemm_all_reduce", {"m": 4096, "n": 4096, "k": 4096}, dtype="bfloat16"), parse("nvlink")
    chosen = schedule(asked, "concurrent", {"resident_blocks": blocks}, h200, link)
    assert (chosen["kernel"], chosen["tile"], chosen["comm_priority"]) == ("ours", tile, "high")
    usual = schedule(asked, "concurrent", {}, h200, link)
    assert (usual["kernel"], usual["tile"], usual.get("resident_blocks")) == ("library", "128x256x64", None)


def test_padding_beyond_the_shared_memory_of_an_sm_is_refused_with_both_byte_counts(h200: Machine) -> None:
    asked, link = problem("gemm_all_reduce", {"m": 4096, "n": 4096, "k": 4096}, dtype="bfloat16"), parse("nvlink")
    with pytest.raises(Refusal, match=r"213124 > 115712\. Accepted: 1, or a smaller tile\."):
        schedule(asked, "concurrent", {"resident_blocks": 2, "tile": "128x256x64"}, h200, link)
    with pytest.raises(Refusal, match=r"kernel = ours can be padded"):
        schedule(asked, "concurrent", {"resident_blocks": 2, "kernel": "library"}, h200, link)
    with pytest.raises(Refusal, match=r"comm_sms = 132 is not a legal value here\. SMs, of 132, that"):
        schedule(asked, "concurrent", {"comm_sms": 132}, h200, link)


# An Axis takes its legal values, and open ones whatever has their form; a Tile is written rows x columns x depth.

WRITE = Axis("write", ("zero_copy", "staged"), "zero_copy", "Where results go.")
PIECES = Axis("pieces", (1, 2, 4), 2, "Into how many.", open=True)
SIZE = Axis("tile", ("32x64x16",), "32x64x16", "What is computed at once.", open=True)


@pytest.mark.parametrize(("axis", "value"), [(WRITE, "staged"), (PIECES, 4), (PIECES, 3), (SIZE, "1x7x9")])
def test_legal_values_are_taken(axis: Axis, value: int | str) -> None:
    assert axis.refusal(value) is None


@pytest.mark.parametrize(
    ("axis", "value"), [(WRITE, "both"), (WRITE, 1), (PIECES, 0), (PIECES, "two"), (SIZE, "32x64"), (SIZE, 32)]
)
def test_other_values_are_refused_in_three_parts(axis: Axis, value: int | str) -> None:
    sentence = axis.refusal(value)
    assert sentence is not None
    assert sentence.startswith(
        f"{axis.name} = {value} " + ("has the wrong form." if axis.open else "is not a legal value here.")
    )
    assert axis.doc in sentence
    such_as = "values such as " if axis.open else ""
    assert sentence.endswith(f"Accepted: {such_as}{', '.join(str(v) for v in axis.values)}.")


def test_text_becomes_the_axes_kind_of_value() -> None:
    assert PIECES.parse("8") == 8
    assert PIECES.parse("many") == "many"
    assert SIZE.parse("8") == "8"


@given(st.integers(1, 10_000), st.integers(1, 10_000), st.integers(1, 10_000))
def test_a_tile_reads_back_as_it_is_written(m: int, n: int, k: int) -> None:
    assert tile(str(Tile(m, n, k))) == Tile(m, n, k)


@pytest.mark.parametrize("text", ["", "128", "128x64", "0x1x1", "1x-2x3", "1x2x3x4", "axbxc", "1x2x3 ", 7, None])
def test_what_is_no_tile_is_refused_with_the_form(text: object) -> None:
    assert not is_tile(text)
    with pytest.raises(ValueError, match="Accepted: values such as 128x256x64"):
        tile(text)
