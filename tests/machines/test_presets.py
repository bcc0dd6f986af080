"""Every preset we ship is legal, has a source, and stays the model it is named after when the world changes."""

import re
import tomllib
from pathlib import Path

import pytest

from kernels.fabric import parse
from kernels.operators import OPERATORS, operator
from kernels.schedule import Refusal
from workbench import resources
from workbench.machines import presets
from workbench.machines.presets import Preset

FILES = sorted((resources.data_directory() / "problems").glob("*.toml"))
ALL = {each["name"]: path for path in FILES for each in tomllib.loads(path.read_text())["preset"]}
LAPTOP = [name for name in ALL if name.endswith("_laptop") or name in ("laptop_ladder", "laptop_overlap", "tiny")]
MODELS = ("llama3_8b", "llama3_70b", "mixtral_8x7b", "deepseek_v3", "dlrm_dcnv2", "dlrm_pooling")


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of runs in place of this person's."""
    monkeypatch.setattr(presets, "runs_directory", lambda: tmp_path)
    (tmp_path / "problems").mkdir()
    resources.begin()
    return tmp_path / "problems"


@pytest.mark.parametrize("name", ALL)
def test_a_shipped_preset_is_legal_at_its_own_world(name: str) -> None:
    found = presets.preset_named(name)
    assert len(found.problems()) == len(found.entries) >= 1
    assert {each.world for each in found.problems()} == {found.world}
    assert {each.dtype for each in found.problems()} == {found.dtype}


@pytest.mark.parametrize("name", ALL)
def test_a_preset_says_where_its_sizes_are_from(name: str) -> None:
    found = presets.preset_named(name)
    assert re.match(r"https://|chosen by this project", found.source)
    assert all(entry.note for entry in found.entries)
    assert bool(found.divided) == found.laptop


@pytest.mark.parametrize("world", [1, 2, 4])
@pytest.mark.parametrize("name", LAPTOP)
def test_a_laptop_preset_is_legal_and_fits_at_every_laptop_world(name: str, world: int) -> None:
    assert presets.preset_named(name).laptop
    for each in presets.preset(name, world=world):
        assert each.world == world
        assert presets.sizes(each).local_bytes < 0.5e9


def test_only_laptop_presets_are_marked_so() -> None:
    assert [each.name for each in presets.presets() if each.laptop] == [name for name in ALL if name in LAPTOP]


@pytest.mark.parametrize("model", MODELS)
def test_every_model_has_full_and_laptop_sizes(model: str) -> None:
    of_model = [each for each in presets.presets() if each.name.startswith(model)]
    assert {each.laptop for each in of_model} == {True, False}
    full = {entry.operator for each in of_model if not each.laptop for entry in each.entries}
    small = {entry.operator for each in of_model if each.laptop for entry in each.entries}
    assert full == small


@pytest.mark.parametrize("name", OPERATORS)
def test_every_operator_occurs_in_a_public_model(name: str) -> None:
    assert any(each.source.startswith("https://") for each in presets.offering(name))


@pytest.mark.parametrize("name", ["laptop_overlap", "tiny"])
def test_the_presets_for_every_operator_have_every_operator(name: str) -> None:
    assert {entry.operator for entry in presets.preset_named(name).entries} == set(OPERATORS)


def test_laptop_overlap_computes_the_same_per_rank_in_every_world() -> None:
    found = presets.preset_named("laptop_overlap")
    assert found.fabric is not None
    assert parse(found.fabric).wire_to_compute == 1
    for entry in found.entries:
        stated = operator(entry.operator)
        work = {stated.memory_bytes(found.problem(entry.operator, world=world)) for world in (1, 2, 4)}
        assert len(work) == 1, f"{entry.operator}: {work} bytes per rank"
        if stated.work == "gemm":
            assert stated.flops(found.problem(entry.operator)) >= 0.04 * 100e9  # 40 ms at 100 GFLOP/s


def test_tiny_problems_are_tiny() -> None:
    for each in presets.preset("tiny"):
        assert operator(each.operator).flops(each) < 1e6
        assert presets.sizes(each).local_bytes < 1e5


@pytest.mark.parametrize("name", [name for name in ALL if name.startswith("llama3")])
def test_a_model_under_tensor_parallelism_does_not_change_with_the_world(name: str) -> None:
    found = presets.preset_named(name)
    for entry in found.entries:
        whole = [presets.sizes(found.problem(entry.operator, world=world)).whole for world in (1, 2, 4, 8)]
        assert whole == [whole[0]] * 4


@pytest.mark.parametrize(
    ("name", "operator_name", "tensor", "shape"),
    [
        ("llama3_8b_mlp_2048", "gemm_reduce_scatter", "b", (14336, 4096)),
        ("llama3_8b_attention_512", "all_gather_gemm", "b", (4096, 6144)),
        ("llama3_70b_mlp_8192", "all_gather_gemm", "b", (8192, 2 * 28672)),
        ("llama3_70b_mlp_decode", "gemv_all_reduce", "weights", (8192, 28672)),
        ("mixtral_8x7b_experts_2048", "gemm_all_to_all", "experts", (8, 14336, 4096)),
        ("deepseek_v3_experts_512", "all_to_all_gemm", "tokens", (8 * 512 * 8, 7168)),
        ("deepseek_v3_attention_2048", "gemm_all_reduce", "b", (16384, 7168)),
        ("dlrm_dcnv2", "embedding_all_to_all", "indices", (65536, 32, 7)),
        ("dlrm_pooling", "embedding_all_to_all", "tables", (8, 1_000_000, 64)),
    ],
)
def test_whole_sizes_are_those_of_the_models_configuration(
    name: str, operator_name: str, tensor: str, shape: tuple[int, ...]
) -> None:
    (asked,) = presets.preset(name, operator_name)
    assert presets.sizes(asked).whole[tensor] == shape


def test_sizes_are_shown_side_by_side() -> None:
    (asked,) = presets.preset("llama3_8b_mlp_2048", "gemm_reduce_scatter")
    assert str(presets.sizes(asked)) == (
        "one rank: a 2048 x 1792, b 1792 x 4096, output 256 x 4096 (24.1 MB); "
        "all ranks: a 2048 x 14336, b 14336 x 4096, output 2048 x 4096"
    )


def test_indices_count_eight_bytes_each() -> None:
    (asked,) = presets.preset("tiny", "embedding_all_to_all")
    tables, indices, output = 2 * 100 * 16 * 4, 16 * 2 * 4 * 8, 8 * 2 * 2 * 16 * 4
    assert presets.sizes(asked).local_bytes == tables + indices + output


def test_world_and_dtype_may_be_asked_for() -> None:
    (asked,) = presets.preset("llama3_8b_mlp_2048", "gemm_all_reduce", world=4, dtype="float32")
    assert (asked.world, asked.dtype, asked["k"]) == (4, "float32", 14336 // 4)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"name": "llama9"}, r"There is no preset 'llama9'\. Accepted: .*laptop_overlap.*tiny\."),
        (
            {"name": "tiny", "operator": "gemm_all_to_nobody"},
            r"There is no operator 'gemm_all_to_nobody'\. Accepted: embedding_all_to_all,",
        ),
        (
            {"name": "llama3_8b_mlp_2048", "operator": "gemm_all_to_all"},
            r"Preset llama3_8b_mlp_2048 has no problem of gemm_all_to_all.* Accepted: all_gather_gemm, .*mixtral_8x7b",
        ),
        (
            {"name": "llama3_8b_mlp_2048", "operator": "gemm_all_reduce", "world": 3},
            r"world = 3 does not fit: k is 14336 / world, and 3 does not divide 14336\. Accepted: world 1, 2, 4, 7,",
        ),
        ({"name": "tiny", "world": 3}, r"batch = 16 does not share out evenly: .* world = 3 does not divide 16"),
        ({"name": "tiny", "world": 0}, r"world = 0 is too small: 0 < 1"),
        ({"name": "tiny", "dtype": "int8"}, r"There is no dtype 'int8'\. Accepted: float32, bfloat16, float16"),
    ],
)
def test_what_cannot_be_is_refused_in_three_parts(arguments: dict, sentence: str) -> None:
    with pytest.raises(Refusal, match=sentence):
        presets.preset(**arguments)


GOOD = """
source = "https://example.org/config.json"
[[preset]]
name = "mine"
title = "Mine"
world = 2
dtype = "float32"
[[preset.problem]]
operator = "gemm_all_to_all"
shape = { m = 8, n = "16 / world", k = "4*world" }
"""


def test_a_preset_of_ones_own_is_a_file_beside_the_runs(runs: Path) -> None:
    (runs / "own.toml").write_text(GOOD)
    (asked,) = presets.preset("mine")
    assert dict(asked.shape) == {"m": 8, "n": 8, "k": 8}
    assert isinstance(presets.preset_named("mine"), Preset)
    (runs / "own.toml").write_text(GOOD.replace("m = 8", "m = 32"))
    assert presets.preset("mine")[0]["m"] == 32


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('name = "mine"', 'name = "mine', r"own\.toml cannot be read as presets: .* Accepted: a TOML file\."),
        (
            'name = "mine"',
            'name = "tiny"',
            r"own\.toml has the preset 'tiny', but .*/tiny\.toml has 1 of this name already",
        ),
        ('name = "mine"', "name = 3", r"own\.toml, preset 3: name = 3 does not fit\. Accepted: a text"),
        (
            'source = "https://example.org/config.json"',
            "",
            r"preset 'mine': source = None does not fit\. Accepted: a text",
        ),
        ("world = 2", "", r"own\.toml \[\[preset\]\] has no 'world'\. It needs dtype, name, problem, title, world"),
        ("world = 2", 'world = "two"', r"world = a whole number"),
        ("world = 2", "world = 3", r"preset 'mine': world = 3 does not fit: n is 16 / world"),
        ("world = 2", "worlds = 2", r"has the unknown key 'worlds'\. Accepted: .*world"),
        ("world = 2", 'world = 2\nfabric = "string"', r"preset 'mine': fabric = 'string' has the unknown kind"),
        ('"gemm_all_to_all"', '"gemm"', r"preset 'mine': There is no operator 'gemm'"),
        ("k = ", "q = ", r"preset 'mine': gemm_all_to_all has no shape key 'q'"),
        ('"16 / world"', '"world / 16"', r"preset 'mine': n = world / 16 is not a size"),
        ("{ m = 8,", "7 # {", r"shape = 7 does not fit\. Accepted: a table of sizes"),
        (
            "[[preset]]",
            "[preset]",
            r"own\.toml: \[preset\] is one table, but a file may have several\. Accepted: \[\[preset\]\]",
        ),
    ],
)
def test_a_wrong_file_is_named_with_what_is_wrong(runs: Path, old: str, new: str, sentence: str) -> None:
    assert old in GOOD
    (runs / "own.toml").write_text(GOOD.replace(old, new, 1))
    assert "tiny" in [each.name for each in presets.presets()]
    (left,) = resources.messages()
    assert left.startswith("Left out: ")
    assert re.search(sentence, left)
    (runs / "own.toml").write_text(GOOD)
    assert presets.preset_named("mine").name == "mine"
    assert resources.messages() == ()


def test_an_operator_occurs_once_in_a_preset(runs: Path) -> None:
    (runs / "own.toml").write_text(GOOD + GOOD[GOOD.index("[[preset.problem]]") :])
    presets.presets()
    (left,) = resources.messages()
    assert "has 2 problems of gemm_all_to_all, but a preset has 1 of each operator" in left
