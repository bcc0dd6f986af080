"""One shot or two: as the schedule says, or as all schedules meant before they could say it."""

import pytest

from kernels.operators import problem
from kernels.schedule import Schedule
from kernels.schemes import packets


@pytest.mark.parametrize(("rows", "expected"), [(8192, 1), (65536, 1), (65540, 2), (131072, 2)])
def test_a_schedule_that_says_nothing_means_what_all_schedules_meant(rows: int, expected: int) -> None:
    asked = problem("gemv_all_reduce", {"n": rows, "k": 512, "tokens": 1}, world=4)
    assert packets.shots(asked, Schedule("fused")) == expected


@pytest.mark.parametrize("value", [1, 2])
def test_what_a_schedule_says_goes(value: int) -> None:
    asked = problem("gemv_all_reduce", {"n": 8192, "k": 512, "tokens": 1}, world=4)
    assert packets.shots(asked, Schedule("fused", (("shots", value),))) == value
