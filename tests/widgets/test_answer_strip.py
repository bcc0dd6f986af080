"""The answer above the charts: shown by itself, used with a click, measured within a budget, asked again afterwards."""

from __future__ import annotations

import pytest

from tests.widgets.conftest import FakeLab, eventually, run
from workbench.results.store import Store
from workbench.widgets.answer_strip import LOOKING, MEASURE_BEST
from workbench.widgets.cluster_watch import SIMULATE
from workbench.widgets.explorer_page import Explorer


@pytest.fixture
def asked(explorer: Explorer) -> Explorer:
    """An explorer whose strip shows the answer."""
    assert eventually(lambda: explorer.answer.answer is not None)
    return explorer


@pytest.mark.slow
def test_the_answer_comes_by_itself_with_its_reasons_folded_away(asked: Explorer) -> None:
    strip = asked.answer
    assert "<b>Not known:</b> laptop_cpu is not calibrated. Try " in strip.text.value
    assert "<details" in strip.why.value
    assert "Times may be 0.7 to 3 times as estimated" in strip.why.value
    assert not strip.use.disabled
    assert eventually(lambda: not strip.measure.disabled), "the cluster has ranks"


@pytest.mark.slow
def test_another_schedule_of_the_same_problem_is_no_new_question_and_another_problem_is(asked: Explorer) -> None:
    shown = asked.answer.text.value
    asked.form.scheme.value = "sequential"
    assert asked.answer.text.value == shown
    asked.form.problem.operator.value = "gemm_all_reduce"
    assert LOOKING in asked.answer.text.value
    assert asked.answer.use.disabled
    assert eventually(lambda: asked.answer.answer is not None)
    assert asked.answer.answer is not None
    assert asked.answer.answer.problem.operator == "gemm_all_reduce"
    asked.form.problem.operator.value = "gemm_all_to_all"
    assert asked.answer.answer.problem.operator == "gemm_all_to_all", "it was kept"


def test_use_it_sets_the_form_to_the_answer(asked: Explorer) -> None:
    answer = asked.answer.answer
    assert answer is not None
    asked.form.scheme.value = "sequential" if answer.schedule.scheme != "sequential" else "fused"
    asked.answer.use.click()
    assert asked.form.question.schedule(asked.form.machine_value) == answer.schedule


@pytest.mark.slow
def test_the_best_are_measured_in_one_block_and_the_answer_is_theirs(
    asked: Explorer, lab: FakeLab, store: Store
) -> None:
    assert eventually(lambda: not asked.answer.measure.disabled)
    asked.answer.budget.value = 600.0
    asked.answer.measure.click()
    assert asked.session.wait(100)
    rows = [row for row in store.rows(asked.run_id) if row["part"] == "whole" and row["source"] == "measured"]
    overlapping = {str(row["axes"]) for row in rows if row["scheme"] != "sequential"}
    assert 1 <= len(overlapping) <= 5
    assert str(dict(asked.form.question.schedule(asked.form.machine_value).axes)) in {str(row["axes"]) for row in rows}
    assert len({row["block"] for row in rows}) == 1
    assert eventually(lambda: asked.answer.answer is not None and asked.answer.answer.source == "recorded")


@pytest.mark.slow
def test_what_others_disturbed_does_not_count_and_the_answer_says_so(asked: Explorer, lab: FakeLab) -> None:
    use = {"windows": [[1e9 - 1, 1e9 + 100, 1.0]], "cores": 2.0, "whom": {"other programs": 1.0}}
    lab.facts = {rank: {"core_use": use} for rank in range(2)}
    assert "disturbed" not in asked.answer.text.value
    run(asked)
    disturbed = ", and what was measured here was disturbed by other programs, and does not count. Try "
    assert eventually(lambda: disturbed in asked.answer.text.value)


def test_a_budget_that_two_schedules_do_not_fit_is_refused_with_both_numbers(asked: Explorer) -> None:
    assert eventually(lambda: not asked.answer.measure.disabled)
    asked._forecast_of = lambda experiment: type("Long", (), {"seconds": 40.0})()  # type: ignore[method-assign,assignment,return-value]
    asked.answer.budget.value = 5.0
    asked.answer.measure.click()
    assert "the budget is 5 s: 40 &gt; 5. Accepted: a longer budget" in asked.page.message.value
    assert asked.run_id is None


@pytest.mark.slow
def test_a_machine_that_these_ranks_are_not_cannot_be_measured(asked: Explorer) -> None:
    assert eventually(lambda: not asked.answer.measure.disabled)
    asked.source.source.value = SIMULATE
    asked.form.choose_machine("h200_nvl2")
    assert eventually(lambda: asked.answer.answer is not None and asked.answer.answer.machine == "h200_nvl2")
    assert asked.answer.measure.disabled
    assert "backend = triton" in asked.answer.measure.tooltip
    asked.form.choose_machine("laptop_cpu")
    assert eventually(lambda: not asked.answer.measure.disabled)
    assert asked.answer.measure.tooltip == MEASURE_BEST


def test_without_a_cluster_nothing_can_be_measured(make_explorer: object) -> None:
    explorer = make_explorer(cluster=None)  # type: ignore[operator]
    assert eventually(lambda: explorer.answer.answer is not None)
    assert explorer.answer.measure.disabled
    assert not explorer.answer.use.disabled
