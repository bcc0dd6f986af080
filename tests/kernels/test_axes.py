"""An Axis takes its legal values, and open ones whatever has their form; a Tile is written rows x columns x depth."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.schedule import Axis, Tile, is_tile, tile

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
