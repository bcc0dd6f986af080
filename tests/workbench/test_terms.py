"""An error is a sum over terms, by hand; parts are of the same block and of the same schedule where it was timed."""

from typing import Any

import pytest

from workbench.analysis.accuracy import terms


def row(part: str, measured: float, estimated: float, scheme: str = "fused", **given: Any) -> dict[str, Any]:
    return {"block": "one", "part": part, "scheme": scheme, "axes": {"tile": "a"}, "measured_s": measured,
            "estimated_s": estimated, **given}  # fmt: skip


ROWS = [row("compute", 5.0, 6.0), row("compute", 4.0, 4.0, axes={"tile": "b"}), row("communication", 3.0, 2.0),
        row("compute", 1.0, 1.0, block="two")]  # fmt: skip


@pytest.mark.parametrize(("scheme", "least", "rest"), [("fused", (5.0, 6.0), (2.0, 1.5)),
                                                       ("sequential", (8.0, 8.0), (-1.0, -0.5))])  # fmt: skip
def test_terms_by_hand(scheme: str, least: tuple[float, float], rest: tuple[float, float]) -> None:
    whole = row("whole", 7.0, 7.5, scheme)
    compute, communication, must, left, itself = terms(ROWS, whole)
    assert (compute.measured_s, compute.estimated_s, compute.error_s) == (5.0, 6.0, 1.0)
    assert (communication.measured_s, communication.estimated_s) == (3.0, 2.0)
    assert (must.measured_s, must.estimated_s) == least
    assert (left.measured_s, left.estimated_s) == rest
    assert sum(term.error_s for term in (must, left) if term.adds) == itself.error_s == 0.5


def test_the_fastest_part_stands_for_one_that_was_not_timed() -> None:
    compute, *_ = terms(ROWS, row("whole", 7.0, 7.5, axes={"tile": "c"}))
    assert compute.measured_s == 4.0


def test_without_a_part_there_are_no_terms() -> None:
    with pytest.raises(ValueError, match="communication alone was not measured in block two, which has 1 trials"):
        terms(ROWS, row("whole", 7.0, 7.5, block="two"))
