"""A guess is typed, locked, drawn with its answer and kept; a lesson out of order says one sentence."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest

from kernels.files import Failed
from workbench import resources
from workbench.lessons import ledger
from workbench.lessons.questions import Answer, ChoiceValue, Question
from workbench.reports.pictures import CHART, PICTURE
from workbench.widgets import guess_box, lesson_page
from workbench.widgets.guess_box import GuessBox
from workbench.widgets.lesson_page import GuessFirst, LessonPage

NUMBER = Question("How long?", 100.0, lambda: Answer(177.0, 143.0, "recorded", "somewhere"), "ms")
CHOICE = Question(
    "Which?", "b", lambda: Answer("a", "b or c", "recorded", "somewhere", "Time in ms",
                                  (ChoiceValue("a", "estimated", 1.0), ChoiceValue("b", "recorded", 2.0))),
    choices=("a", "b", "c"),
)  # fmt: skip


@pytest.fixture(autouse=True)
def own_guesses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "runs_directory", lambda: tmp_path / "runs")
    monkeypatch.setattr(ledger, "_alias", [])
    monkeypatch.delenv(ledger.ALIAS, raising=False)


@pytest.fixture
def outputs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What cells display, and a person at the keyboard."""
    shown: list[Any] = []

    class Handle:
        def update(self, data: Any, **_: Any) -> None:
            shown.append(data)

    def display(data: Any, **_: Any) -> Handle:
        shown.append(data)
        return Handle()

    for module in (guess_box, lesson_page):
        monkeypatch.setattr(module, "display", display)
        monkeypatch.setattr(module, "somebody_is_there", lambda: True)
    return shown


def box(question: Question = NUMBER) -> GuessBox:
    return GuessBox(1, "how_long", question)


def test_a_guess_locks_on_reveal_is_drawn_with_estimate_and_answer_and_is_kept(outputs: list[Any]) -> None:
    shown = box()
    shown.show()
    assert outputs[0] is shown.view
    assert not any(CHART in data for data in outputs if isinstance(data, dict)), "no answer before the guess"
    shown.field.value = "150"
    shown.button.click()
    assert shown.is_locked
    assert shown.field.disabled
    assert shown.button.disabled
    drawn = outputs[-1]
    for text in ("your guess", "150 ms", "177 ms", "143 ms", "Your guess is nearly exact", "In ms", "somewhere"):
        assert text in drawn[PICTURE], text
    (entry,) = ledger.entries()
    assert (entry["guess"], entry["estimate"], entry["measured"], entry["default"]) == (150.0, 177.0, 143.0, False)


def test_a_second_press_changes_nothing(outputs: list[Any]) -> None:
    shown = box()
    shown.show()
    shown.field.value = "150"
    shown.reveal()
    shown.field.value = "143"
    shown.reveal()
    assert shown.guess == 150.0
    assert len(ledger.entries()) == 1


@pytest.mark.parametrize("typed", ["", "soon", "-1", "nan", "<img src=x onerror=alert(1)>"])
def test_a_guess_that_is_no_number_is_one_sentence_and_the_box_stays_open(typed: str, outputs: list[Any]) -> None:
    shown = box()
    shown.show()
    shown.field.value = typed
    shown.reveal()
    assert not shown.is_locked
    assert not shown.button.disabled
    assert "Accepted: a number, such as 100, in ms." in shown.message.value
    assert "<img" not in shown.message.value, "markup is text"
    assert ledger.entries() == []


def test_a_choice_is_drawn_on_the_scale_of_all_choices(outputs: list[Any]) -> None:
    shown = box(CHOICE)
    shown.show()
    shown.reveal()
    assert not shown.is_locked, "nothing was chosen yet"
    shown.field.value = "c"
    shown.reveal()
    picture = outputs[-1][PICTURE]
    for text in ("a<", "b ✓", "c ✓", "▽ your guess", "That is right", "Time in ms"):
        assert text in picture, text


def test_with_nobody_at_the_keyboard_the_default_guess_is_taken_and_marked(
    outputs: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guess_box, "somebody_is_there", lambda: False)
    shown = box()
    shown.show()
    assert "default guess" in outputs[-1][PICTURE]
    assert "The default guess is 1.4 times too short" in outputs[-1][PICTURE]
    assert [entry["default"] for entry in ledger.entries()] == [True]
    monkeypatch.setattr(guess_box, "somebody_is_there", lambda: True)
    shown.show()
    assert not shown.is_locked, "a person still may guess"


def test_a_new_kernel_shows_the_guess_that_was_locked_before(outputs: list[Any]) -> None:
    first = box()
    first.show()
    first.field.value = "150"
    first.reveal()
    second = box()
    second.show()
    assert second.guess == 150.0
    assert second.field.disabled
    assert "The first one counts" in second.message.value
    assert CHART in outputs[-1]
    ledger.path().unlink()
    third = box()
    third.show()
    assert not third.is_locked, "a deleted ledger begins anew"


def until(true: Callable[[], bool], seconds: float = 10.0) -> None:
    ends = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < ends, "did not come true"
        time.sleep(0.01)


def test_whoever_ticks_it_gets_a_measurement_of_this_computer(outputs: list[Any]) -> None:
    timed = Answer(177.0, 160.0, "measured", "measured here")
    shown = box(Question("How long?", 100.0, NUMBER.answer, "ms", timed=lambda: timed))
    shown.show()
    shown.times_here.value, shown.field.value = True, "150"
    shown.reveal()
    assert shown.field.disabled, "locked while it measures"
    until(lambda: bool(ledger.entries()))
    (entry,) = ledger.entries()
    assert (entry["measured"], entry["source"]) == (160.0, "measured")
    until(lambda: "measured here" in str(outputs[-1]))


def test_where_nothing_can_be_measured_the_recorded_answer_is_shown_and_says_why(outputs: list[Any]) -> None:
    def fails() -> Answer:
        raise Failed("no ranks could be started")

    shown = box(Question("How long?", 100.0, NUMBER.answer, "ms", timed=fails))
    shown.show()
    shown.times_here.value, shown.field.value = True, "150"
    shown.reveal()
    until(lambda: "no ranks could be started" in shown.message.value)
    assert [entry["source"] for entry in ledger.entries()] == ["recorded"]


def test_an_answer_that_cannot_be_read_keeps_the_box_open_and_says_why(outputs: list[Any]) -> None:
    def damaged() -> Answer:
        raise ValueError("There is no recording here. Accepted: another one.")

    shown = box(Question("How long?", 100.0, damaged, "ms"))
    shown.show()
    shown.field.value = "150"
    shown.reveal()
    assert "There is no recording here" in shown.message.value
    assert not shown.is_locked
    assert not shown.button.disabled


# The page of a lesson.


def test_a_cell_out_of_order_says_which_box_to_lock_first(outputs: list[Any]) -> None:
    page = LessonPage(1)
    with pytest.raises(GuessFirst, match="the box about 'total time' is not locked") as raised:
        page.locked("total_time")
    assert raised.value._render_traceback_() == [str(raised.value)], "a notebook shows the sentence alone"
    page.guess("total_time")
    page.box("total_time").lock(150.0, answer=NUMBER.answer())
    page.locked("total_time")
    with pytest.raises(GuessFirst, match="longest term"):
        page.locked()


def test_with_nobody_at_the_keyboard_nothing_waits_for_a_guess(
    outputs: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lesson_page, "somebody_is_there", lambda: False)
    LessonPage(1).locked()


def test_a_cell_that_shows_solutions_opens_after_the_answers_or_where_nobody_is(
    outputs: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = LessonPage(1)
    with pytest.raises(GuessFirst, match=r"Answer first: .* solution of bytes of two ranks and of bytes of four ranks"):
        page.solved()
    for exercise in page.exercises:
        page.check(exercise, page.exercises[exercise].right())
    page.solved()
    monkeypatch.setattr(lesson_page, "somebody_is_there", lambda: False)
    LessonPage(1).solved()


def test_an_appendix_has_exercises_and_a_file_without_some_is_refused(outputs: list[Any]) -> None:
    page = lesson_page.appendix_page("appendix_new_operator.ipynb")
    assert lesson_page.appendix_page("appendix_new_operator.ipynb") is page, "tries are counted in one place"
    assert "# place 4" in page.kit.numbered()
    assert page.kit.SIGNAL not in page.kit.numbered(), "the kernel has a gap"
    with pytest.raises(ValueError, match="This appendix has no exercise 'speed'"):
        page.task("speed")
    with pytest.raises(ValueError, match=r"Accepted: appendix_new_operator\.ipynb"):
        lesson_page.appendix_page("appendix_layers.ipynb")


def test_names_that_are_none_are_refused_with_those_that_are(outputs: list[Any]) -> None:
    page = LessonPage(1)
    with pytest.raises(ValueError, match=r"Lesson 1 has no question 'speed'. Accepted: total_time, longest_term\."):
        page.guess("speed")
    with pytest.raises(ValueError, match="Lesson 1 has no exercise 'speed'"):
        page.check("speed", 1)


def test_a_check_prints_its_sentence_and_counts_wrong_tries_of_this_page(
    outputs: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    page = LessonPage(1)
    page.check("bytes_of_two_ranks", None)
    page.check("bytes_of_two_ranks", 4194304)
    page.check("bytes_of_two_ranks", 4194304)
    page.check("bytes_of_two_ranks", 2097152)
    missing, first, second, right = capsys.readouterr().out.splitlines()
    assert "There is no answer yet" in missing
    assert "Hint" not in first
    assert "Hint: " in second
    assert right == "bytes of two ranks: Right. 2.10 MB leave each rank."


def test_the_guesses_of_all_lessons_are_a_table_with_a_score(
    outputs: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    page = LessonPage(9)
    assert len(page.guesses()) == 0
    assert "press Reveal" in capsys.readouterr().out
    shown = box()
    shown.show()
    shown.field.value = "150"
    shown.reveal()
    assert list(page.guesses()["guess"]) == ["150 ms"]
    assert "1 of 1 numbers within a factor of 2" in capsys.readouterr().out


def test_the_report_is_the_saved_notebook_with_its_table_of_guesses(
    outputs: list[Any], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, saved = LessonPage(9), tmp_path / "mine.ipynb"
    monkeypatch.delenv(lesson_page.SESSION, raising=False)
    page.report("my_report.html")
    assert "`workbench report 09_many_hosts.ipynb -o my_report.html`" in capsys.readouterr().out
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# Mine\n\nI was surprised.")]), saved)
    monkeypatch.setenv(lesson_page.SESSION, str(saved))
    page.report("my_report.html")
    assert str(tmp_path / "my_report.html") in capsys.readouterr().out
    assert "I was surprised." in (tmp_path / "my_report.html").read_text()
