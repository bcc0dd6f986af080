"""People read three digits with a fitting unit; inside there are seconds and bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from kernels.units import DTYPE_BYTES, GB, KB, MB, TB, bytes_text, rate_text, seconds_text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (1.25e-3, "1.25 ms"),
        (40e-3, "40 ms"),
        (2.5, "2.5 s"),
        (3600.0, "3600 s"),
        (999.4e-6, "999 µs"),
        (999.7e-6, "1 ms"),
        (5e-9, "5 ns"),
        (5e-13, "0.0005 ns"),
        (-1.5e-6, "-1.5 µs"),
        (float("inf"), "inf s"),
        (float("nan"), "nan s"),
    ],
)
def test_seconds_are_read_with_a_fitting_unit(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (33_554_432, "33.6 MB"), (999_999, "1 MB"), (8e10, "80 GB"),
     (5.3e12, "5.3 TB"), (5.3e15, "5300 TB")],
)  # fmt: skip
def test_bytes_are_decimal(num_bytes: float, text: str) -> None:
    assert bytes_text(num_bytes) == text


def test_rates_are_bytes_per_second() -> None:
    assert rate_text(450e9) == "450 GB/s"


@given(some.floats(min_value=1e-9, max_value=1e3, exclude_max=True))
def test_no_time_is_written_with_an_exponent(seconds: float) -> None:
    assert "e" not in seconds_text(seconds)


def test_decimal_units_are_a_thousand_apart() -> None:
    assert [MB / KB, GB / MB, TB / GB] == [1000, 1000, 1000]


def test_half_types_take_half_the_bytes() -> None:
    assert DTYPE_BYTES == {"float32": 4, "bfloat16": 2, "float16": 2}
