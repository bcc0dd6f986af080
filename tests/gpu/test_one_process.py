"""Ranks that truly run side by side on one GPU: credits, order, sums and numbers that wrap, without time slices."""

import pytest

from tests.gpu import one_process, same_bits
from tests.gpu.wrapping import LARGE

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]


@pytest.mark.parametrize("world", one_process.WORLDS)
@pytest.mark.parametrize("check", [one_process.back_to_back, one_process.where_numbers_wrap])
def test_ranks_on_shares_of_one_gpu_are_right(check: object, world: int) -> None:
    assert callable(check)
    wrong = {trial.problem.operator: check(trial) for trial in one_process.trials(world)}
    assert not any(wrong.values()), wrong


@pytest.mark.parametrize("world", one_process.WORLDS)
@pytest.mark.parametrize("check", [one_process.back_to_back, one_process.where_numbers_wrap])
def test_tiles_that_leave_by_sms_that_only_send_are_right(check: object, world: int) -> None:
    assert callable(check)
    wrong = {trial.problem.operator: check(trial) for trial in one_process.relayed(world, LARGE)}
    assert not any(wrong.values()), wrong


@pytest.mark.parametrize("world", one_process.WORLDS)
def test_a_thousand_calls_of_each_schedule_leave_the_same_bits(world: int) -> None:
    rows = list(one_process.all_bits([world]))
    assert rows
    assert [same_bits.line(row) for row in rows if row["wrong"]] == []
