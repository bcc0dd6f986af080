"""What operators state is consistent: shapes, owners, work and bytes, for any legal sizes and any world."""

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as some

from kernels.operators import OPERATORS, operator, problem
from kernels.operators.base import Flow, ResultLayout
from kernels.operators.embedding import INDEX_BYTES
from kernels.operators.gemv import MAX_TOKENS
from kernels.problem import Problem
from kernels.schedule import Refusal

GEMMS = [name for name, stated in OPERATORS.items() if stated.work == "gemm"]
DIRECTIONS = {"rows", "columns", "contraction", "rows_and_contraction"}


@some.composite
def problems(draw: some.DrawFn) -> Problem:
    """Any operator with small legal sizes."""
    world, name = draw(some.sampled_from([1, 2, 4, 8])), draw(some.sampled_from(list(OPERATORS)))
    count, cut = some.integers(1, 9), some.integers(1, 9).map(lambda size: size * world)
    if name == "embedding_all_to_all":
        keys = {key: draw(count) for key in ("tables_per_rank", "rows", "dim", "pooling")} | {"batch": draw(cut)}
    elif name == "gemv_all_reduce":
        keys = {"n": draw(cut), "k": draw(cut), "tokens": draw(some.integers(1, MAX_TOKENS))}
    else:
        keys = {"m": draw(cut), "n": draw(count), "k": draw(count)}
    return problem(name, keys, dtype=draw(some.sampled_from(["float32", "bfloat16"])), world=world)


def test_there_are_seven_operators_and_each_is_called_by_its_name() -> None:
    assert len(OPERATORS) == 7
    assert all(operator(name).name == name for name in OPERATORS)


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_states_what_a_reader_needs(name: str) -> None:
    stated = operator(name)
    assert stated.source.startswith("arXiv:")
    assert set(stated.splits.values()) <= DIRECTIONS
    assert name.endswith(stated.collective) or name.startswith(stated.collective)
    assert (stated.flow is Flow.RECEIVE) == name.startswith(stated.collective)
    assert stated.reduces == ("reduce" in stated.collective)
    assert all((stated.words, stated.occurs, stated.tile_means, *(key.doc for key in stated.keys)))


@given(problems())
def test_chunks_cover_the_rows(asked: Problem) -> None:
    stated = operator(asked.operator)
    assert stated.chunk_rows(asked) * asked.world == stated.extent(asked).rows


@given(problems())
def test_one_rank_alone_sends_nothing_and_others_do(asked: Problem) -> None:
    assert (operator(asked.operator).wire_bytes(asked) == 0) == (asked.world == 1)


@given(problems())
def test_reading_each_operand_once_is_part_of_the_memory_bytes(asked: Problem) -> None:
    stated = operator(asked.operator)
    extent = stated.extent(asked)
    written = extent.rows * extent.columns * asked.itemsize
    if stated.work == "gather":
        assert stated.memory_bytes(asked) - written == stated.flops(asked) // asked["dim"] * (
            asked["dim"] * asked.itemsize + INDEX_BYTES
        )
    else:
        read = extent.rows * extent.contraction + extent.contraction * extent.columns
        assert stated.memory_bytes(asked) == read * asked.itemsize + written
        assert stated.flops(asked) == 2 * extent.rows * extent.columns * extent.contraction


@given(problems())
def test_what_leaves_a_rank_is_what_the_others_lack(asked: Problem) -> None:
    stated = operator(asked.operator)
    local, whole, others = stated.local(asked), stated.whole(asked), asked.world - 1
    if stated.flow is Flow.RECEIVE:
        needed = next(shape for name, shape in whole.items() if name in ("a", "tokens"))
        received = prod(needed) // asked.world if "tokens" in whole else prod(needed)
        expected = received * others // asked.world
    elif stated.flow is Flow.BROADCAST:
        expected = 2 * prod(local["output"]) * others // asked.world
    elif stated.reduces:
        expected = prod(local["output"]) * others
    else:
        expected = prod(local["output"]) * others // asked.world
    assert stated.wire_bytes(asked) == expected * asked.itemsize


@given(problems())
def test_sizes_are_read_off_the_shapes_of_the_two_operands(asked: Problem) -> None:
    stated = operator(asked.operator)
    shapes = stated.local(asked)
    first, second = (shapes[name] for name in stated.operands())
    sizes = stated.sizes(first, second, asked.world)
    assert sizes == {key.name: asked[key.name] for key in stated.keys if not key.words}
    for words, shape in zip(stated.operand_shapes, (first, second), strict=True):
        named = [_size_in_words(word, asked) for word in words.strip("[]").split(", ")]
        assert tuple(named) == shape


def _size_in_words(word: str, asked: Problem) -> int:
    key, _, world = word.partition("/")
    return asked[key] // (asked.world if world else 1)


@given(problems())
def test_the_layout_of_a_result_says_where_the_share_of_each_rank_lies(asked: Problem) -> None:
    stated, extent = operator(asked.operator), operator(asked.operator).extent(asked)
    chunk, world = stated.chunk_rows(asked), asked.world
    shapes = {
        ResultLayout.ROWS: (world * chunk, extent.columns),
        ResultLayout.COLUMNS: (chunk, world * extent.columns),
        ResultLayout.WHOLE: (chunk if stated.flow is Flow.SEND else extent.rows, extent.columns),
    }
    assert stated.local(asked)["output"] == shapes[stated.layout]


@given(problems())
def test_in_a_world_of_one_local_is_whole(asked: Problem) -> None:
    stated = operator(asked.operator)
    alone = Problem(asked.operator, asked.shape, asked.dtype, 1)
    sizes = [sorted(prod(shape) for shape in shapes.values()) for shapes in (stated.local(alone), stated.whole(alone))]
    assert sizes[0] == sizes[1]


def test_worked_example_of_a_reduce_scatter() -> None:
    asked, stated = problem("gemm_reduce_scatter", {"m": 8, "n": 6, "k": 4}, world=4), operator("gemm_reduce_scatter")
    assert dict(stated.local(asked)) == {"a": (8, 4), "b": (4, 6), "output": (2, 6)}
    assert dict(stated.whole(asked)) == {"a": (8, 16), "b": (16, 6), "output": (8, 6)}
    assert stated.wire_bytes(asked) == 3 * 2 * 6 * 4
    assert stated.flops(asked) == 2 * 8 * 6 * 4


def test_worked_example_of_an_embedding() -> None:
    shape = {"tables_per_rank": 3, "rows": 50, "dim": 8, "batch": 4, "pooling": 5, "indices": "power_law"}
    asked, stated = problem("embedding_all_to_all", shape, world=2), operator("embedding_all_to_all")
    assert stated.local(asked)["output"] == (2, 2 * 3 * 8)
    assert stated.whole(asked)["output"] == (4, 2 * 3 * 8)
    assert stated.wire_bytes(asked) == 2 * 3 * 8 * 4
    assert stated.flops(asked) == 4 * 3 * 5 * 8


@pytest.mark.parametrize(
    ("name", "shape", "more", "sentence"),
    [
        ("gemm", {}, {}, r"There is no operator 'gemm'\. Accepted: embedding_all_to_all, gemv"),
        ("gemm_all_to_all", {"m": 8, "n": 6}, {}, r"gemm_all_to_all needs k .contraction.* k=SIZE"),
        ("gemm_all_to_all", {"n": 6}, {}, r"needs m .rows.*, k .contraction.*\. Accepted: m=SIZE k=SIZE\."),
        (
            "gemm_all_to_all",
            {"m": 8, "n": 6, "q": 4},
            {},
            r"gemm_all_to_all has no shape key 'q'\. Accepted: m, n, k\.",
        ),
        (
            "gemm_all_to_all",
            {"m": 0, "n": 6, "k": 4},
            {},
            r"m = 0 is not a size .m: rows.* Accepted: a whole number from 1",
        ),
        ("gemm_all_to_all", {"m": "many", "n": 6, "k": 4}, {}, r"m = many is not a size"),
        ("gemm_all_to_all", {"m": 8.5, "n": 6, "k": 4}, {}, r"m = 8\.5 is not a size"),
        (
            "gemm_all_to_all",
            {"m": 10, "n": 6, "k": 4},
            {"world": 4},
            (
                r"m = 10 does not share out evenly: .* world = 4 does not divide 10\. "
                r"Accepted: multiples of 4, such as 8 or 12\."
            ),
        ),
        ("gemm_all_to_all", {"m": 1, "n": 6, "k": 4}, {"world": 2}, r"multiples of 2, such as 2\."),
        (
            "gemm_all_to_all",
            {"m": 8, "n": 6, "k": 4},
            {"dtype": "int4"},
            r"There is no dtype 'int4'\. Accepted: float32, bfloat16",
        ),
        ("gemm_all_to_all", {"m": 8, "n": 6, "k": 4}, {"world": 0}, r"world = 0 is too small"),
        (
            "gemv_all_reduce",
            {"n": 8, "k": 8, "tokens": 9},
            {},
            (
                r"tokens = 9 is too many: gemv_all_reduce takes 1 to 8 tokens, and 9 > 8\. "
                r"Accepted: tokens 1\.\.8, or gemm_all_reduce"
            ),
        ),
        (
            "gemv_all_reduce",
            {"n": 8, "k": 9, "tokens": 1},
            {},
            r"k = 9 does not share out evenly: .* world = 2 does not divide 9",
        ),
        (
            "gemv_all_reduce",
            {"n": 9, "k": 8, "tokens": 1},
            {},
            r"n = 9 does not share out evenly: .* world = 2 does not divide 9",
        ),
        (
            "embedding_all_to_all",
            {"tables_per_rank": 1, "rows": 9, "dim": 4, "batch": 4, "pooling": 1, "indices": "sorted"},
            {},
            r"indices = 'sorted' is unknown .* Accepted: uniform, power_law\.",
        ),
    ],
)
def test_a_shape_that_cannot_be_is_refused(name: str, shape: dict, more: dict, sentence: str) -> None:
    with pytest.raises(Refusal, match=sentence):
        problem(name, shape, **more)


@pytest.mark.parametrize("name", GEMMS)
def test_gemm_operators_share_their_keys_and_work(name: str) -> None:
    asked = problem(name, {"m": 16, "n": 6, "k": 4}, world=4)
    assert [key.name for key in operator(name).keys] == ["m", "n", "k"]
    assert operator(name).flops(asked) == 2 * 16 * 6 * 4
