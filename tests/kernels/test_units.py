"""People read three digits with a fitting unit; inside there are seconds and bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from kernels.units import (
    DTYPE_BYTES,
    GB,
    KB,
    MB,
    TB,
    bytes_text,
    bytes_typed,
    percent_text,
    rate_text,
    ratio_text,
    seconds_text,
    seconds_typed,
)


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
    ("typed", "seconds"),
    [
        ("150 us", 150e-6), ("150 µs", 150e-6), ("150 \N{GREEK SMALL LETTER MU}s", 150e-6), ("150us", 150e-6),
        ("0.15 ms", 150e-6), ("1,5 ms", 1.5e-3), ("2 s", 2.0), (" 3 ", 3e-3), (".5", 0.5e-3), ("40 ns", 40e-9),
        ("1.5E-3 s", 1.5e-3), ("0,150 ms", 150e-6), ("5 MS", 5e-3),
    ],
)  # fmt: skip
def test_a_time_is_typed_with_its_unit_or_counts_in_the_one_that_is_meant(typed: str, seconds: float) -> None:
    assert seconds_typed(typed) == pytest.approx(seconds)
    assert seconds_typed("3", unit="s") == 3.0


@pytest.mark.parametrize("typed", ["soon", "", "-1", "0", "inf", "nan", "1 min", "3 m", "1.2.3", "1e999", "1,500 us"])
def test_what_is_no_time_names_the_forms_that_are(typed: str) -> None:
    with pytest.raises(ValueError, match=r"Accepted: 150 µs, 0\.15 ms, 2 s, or a number of ms") as refused:
        seconds_typed(typed)
    assert f"“{typed}”" in str(refused.value)


@given(some.floats(1e-9, 1e3))
def test_what_is_written_can_be_typed_again(seconds: float) -> None:
    assert seconds_typed(seconds_text(seconds)) == pytest.approx(seconds, rel=6e-3)


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


def test_a_ratio_and_a_share_are_written_one_way() -> None:
    assert [ratio_text(ratio) for ratio in (1, 1.768, 42, 1234, 0.004)] == [
        "1.00x",
        "1.77x",
        "42.00x",
        "1,234x",
        "0.004x",
    ]
    assert [percent_text(share) for share in (0.12, 0.004, 0)] == ["12 %", "0.4 %", "0 %"]
    assert [percent_text(error, "+") for error in (0.12, -0.3)] == ["+12 %", "-30 %"]


@pytest.mark.parametrize(("typed", "count"), [
    ("100MB", 1e8), ("64 MiB", 2**26), ("1.5gb", 1.5e9), ("2KiB", 2048), ("3kB", 3000), ("1e9", 1e9), ("512", 512),
])  # fmt: skip
def test_bytes_are_read_with_their_unit(typed: str, count: float) -> None:
    assert bytes_typed(typed) == count


@pytest.mark.parametrize("typed", ["", "-5", "MB", "100 miles", "1,000", "nan", "1e999999 B B"])
def test_what_is_no_number_of_bytes_is_refused_with_an_example(typed: str) -> None:
    with pytest.raises(ValueError, match=r"is no number of bytes\. Accepted: 100MB \(10\^6\), 64MiB"):
        bytes_typed(typed)
