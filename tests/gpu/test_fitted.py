"""Our GEMM in tiles of any number of columns on a GPU: right, the same bits, and stamped. `pytest -m gpu tests/gpu`."""

import pytest

from tests.gpu import fitted

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]


@pytest.mark.parametrize("size", fitted.TILES)
def test_a_fitted_tile_is_right_for_sizes_that_it_does_not_divide(size: str) -> None:
    assert [text for sides in fitted.SIZES for text in fitted.troubles(size, *sides)] == []


def test_half_precision_is_right() -> None:
    assert fitted.troubles("136x128x64", *fitted.SIZES[0], dtype="float16") == []


@pytest.mark.parametrize("size", ["128x192x64", "160x256x64"])
def test_every_tile_has_stamps(size: str) -> None:
    assert fitted.stamps_trouble(size, *fitted.SIZES[0]) == ""
