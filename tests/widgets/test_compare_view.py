"""The view of two schedules says which is faster and what differs, and its buttons pin, swap and measure together."""

from __future__ import annotations

import re
from typing import Any

import pytest

from workbench.charts import pair
from workbench.widgets import compare_view
from workbench.widgets.compare_view import ALIKE, GONE, HINT, ILLEGAL, CompareView
from workbench.widgets.controls import HIDDEN
from workbench.widgets.exploration import Explored, PinBaseline, Scene, Select, row_id

ROUNDS = (0.97, 1.02, 1.01, 0.98, 1.0, 1.03, 0.99, 1.02)


def row(scheme: str, seconds: float | None, block: str = "r.1", **more: Any) -> dict[str, Any]:
    problem = {"operator": "gemm_all_to_all", "shape": {"m": 64, "n": 64, "k": 64}, "dtype": "float32", "world": 2}
    place = {"backend": "cpu", "machine": "laptop_cpu", "fabric": "shared_memory", "protocol": "quick"}
    return {"run": "r", "key": f"{scheme} {seconds}", "block": block, "source": "measured", "part": "whole", **problem,
            **place, "scheme": scheme, "axes": {}, "time_s": seconds,
            "rounds_s": seconds and [seconds * one for one in ROUNDS], **more}  # fmt: skip


BASE = row("sequential", 0.1, axes={"collective": "direct"})
FASTER = row("fused", 0.08, low_s=0.078, high_s=0.083, floor_s=0.06, axes={"slice_tiles": 4})
APART = row("fused", 0.08, "r.2")


class Page:
    """A view on a page of its own: events change the state, and the view is drawn again."""

    def __init__(self, *rows: dict[str, Any], **more: Any) -> None:
        self.explored, self.rows = Explored(), rows
        self.measured: list[Any] = []
        self.view = CompareView(self.explored.dispatch, self.measured.append, **more)
        self.explored.on_change(lambda _before, _after: self.draw())
        self.draw()

    def draw(self) -> None:
        self.view.draw(Scene(self.explored.state, self.rows))

    def choose(self, base: dict[str, Any] | None, selected: dict[str, Any] | None) -> None:
        for event, each in ((PinBaseline, base), (Select, selected)):
            self.explored.dispatch(event(None if each is None else row_id(each)))

    @property
    def text(self) -> str:
        return re.sub(r"<[^>]+>", "", self.view.sentence.value)

    @property
    def buttons(self) -> list[str]:
        shown = (self.view.pin, self.view.unpin, self.view.swap, self.view.together)
        return [control.description for control in shown if control.layout.display != HIDDEN]


def test_before_anything_is_pinned_it_says_what_to_do_and_one_click_pins() -> None:
    page = Page(BASE, FASTER)
    assert (page.text, page.buttons) == (HINT, [])
    page.choose(None, BASE)
    assert page.buttons == ["Pin baseline"]
    page.view.pin.click()
    assert page.explored.state.baseline == row_id(BASE)
    assert page.text == "The baseline is sequential, collective direct. Select another row to compare it."


def test_two_rows_of_a_block_have_the_verdict_both_times_and_what_differs() -> None:
    page = Page(BASE, FASTER)
    page.choose(BASE, FASTER)
    assert page.text.startswith(
        "fused, tiles per slice 4 is 20 ms (20 %) faster than the baseline: 80 ms against 100 ms"
    )
    assert "wb-faster" in page.view.sentence.value
    assert [(each["name"], each["time_ms"]) for each in page.view.chart.rows(pair.DATASET)] == [
        ("baseline", 100.0), ("selected", 80.0),
    ]  # fmt: skip
    (table,) = page.view.differ.parts
    assert [[cell["text"] for cell in line["cells"]] for line in table["rows"]] == [
        ["Scheme", "sequential", "fused"], ["Collective", "direct", "–"], ["Tiles per slice", "–", "4"],
    ]  # fmt: skip
    assert page.buttons == ["Pin baseline", "Unpin", "Swap"]


def test_an_estimate_has_no_verdict_until_both_are_measured_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare_view, "together", lambda rows: object())
    estimate = {**BASE, "run": None, "key": None, "block": None, "rounds_s": None, "source": "estimated"}
    page = Page(estimate, FASTER)
    page.choose(estimate, FASTER)
    assert "measured against estimated" in page.text
    assert "faster" not in page.text
    assert "Measure together" in page.buttons
    page.view.together.click()
    assert page.measured == [[FASTER, estimate]]
    same = {**FASTER, "run": None, "key": None, "rounds_s": None, "source": "estimated"}
    page.rows = (same, FASTER)
    page.choose(same, FASTER)
    assert "Measure together" not in page.buttons, "they are one schedule"


def test_a_pinned_estimate_that_the_form_cannot_have_says_so() -> None:
    page = Page(FASTER)
    page.explored.dispatch(PinBaseline('/fused {"pieces": 3}//estimated'))
    assert page.text == ILLEGAL


def test_swap_and_unpin_are_events_of_the_page() -> None:
    page = Page(BASE, FASTER)
    page.choose(BASE, FASTER)
    page.view.swap.click()
    assert (page.explored.state.baseline, page.explored.state.selected) == (row_id(FASTER), row_id(BASE))
    assert "slower than the baseline" in page.text
    page.view.unpin.click()
    assert page.explored.state.baseline is None
    assert page.buttons == ["Pin baseline"]


def test_rows_of_two_blocks_are_offered_to_be_measured_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare_view, "together", lambda rows: object())
    page = Page(BASE, FASTER, APART)
    page.choose(BASE, FASTER)
    assert "Measure together" not in page.buttons
    page.choose(BASE, APART)
    assert "not compared" in page.text
    assert "Measure together" in page.buttons
    page.view.together.click()
    assert [[each["block"] for each in rows] for rows in page.measured] == [["r.2", "r.1"]]


def test_what_nobody_can_measure_here_is_not_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare_view, "together", lambda rows: None)
    page = Page(BASE, APART)
    page.choose(BASE, APART)
    assert "Measure together" not in page.buttons


def test_versions_of_two_runs_are_among_what_differs() -> None:
    facts = {"r": {"versions": {"torch": "2.11"}}, "s": {"versions": {"torch": "2.13"}}}
    later = {**FASTER, "run": "s", "axes": BASE["axes"], "scheme": "sequential"}
    page = Page(BASE, later, provenance=lambda run: facts[run])
    page.choose(BASE, later)
    assert page.view.differ.text.splitlines() == ["torch", "2.11", "2.13"]


def test_rows_alike_say_so() -> None:
    page = Page(BASE, {**BASE, "key": "again", "run": "s", "block": "s.1"})  # a run has one time of a schedule
    page.choose(*page.rows)
    assert ALIKE in page.view.differ.text


@pytest.mark.parametrize(("selected", "sentence"), [
    (row("fused", 0.08, shape={"m": 8, "n": 64, "k": 64}), "cannot be compared with the baseline: the baseline is of"),
    (row("fused", None, stage="hang"), "cannot be compared with the baseline: it has no time: hang."),
])  # fmt: skip
def test_what_cannot_be_compared_is_one_sentence(selected: dict[str, Any], sentence: str) -> None:
    page = Page(BASE, selected)
    page.choose(BASE, selected)
    assert sentence in page.text


def test_a_baseline_without_a_time_and_one_that_is_not_shown_are_one_sentence_each() -> None:
    failed = row("decomposed", None, stage="hang")
    page = Page(failed, FASTER)
    page.choose(failed, FASTER)
    assert page.text.startswith("decomposed cannot be the baseline: it has no time")
    page.rows = (FASTER,)
    page.draw()
    assert page.text == GONE


def test_a_store_that_goes_away_is_one_sentence() -> None:
    def gone(run: str) -> dict[str, Any]:
        raise ValueError(f"There is no run {run}. Accepted: an existing one.")

    page = Page(BASE, {**FASTER, "run": "s"}, provenance=gone)
    page.choose(*page.rows)
    assert page.text == "There is no run r. Accepted: an existing one."
