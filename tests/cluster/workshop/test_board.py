"""The class board: one owner per alias, answers after the reveal, and schedules that ranks verified."""

from __future__ import annotations

import re
from typing import Any

import pytest

from cluster.shared import SharedAnswers
from cluster.workshop.board import ALIAS_MOST, ALIASES_MOST, Board, QuestionKind
from kernels.fabric import parse
from kernels.operators import problem
from kernels.outcome import Measurement
from kernels.schedule import Schedule
from kernels.trial import PROTOCOLS, Trial


def make_trial(scheme: str) -> Trial:
    wanted = problem("gemm_all_to_all", {"m": 256, "n": 128, "k": 64}, world=2)
    return Trial(problem=wanted, schedule=Schedule(scheme, ()), backend="cpu", machine="test",
                 fabric=parse("emulated:bandwidth_bytes_per_second=1e9"), protocol=PROTOCOLS["quick"])  # fmt: skip


def guess(alias: str, value: Any = 3.0, **more: Any) -> dict[str, Any]:
    return {"lesson": 1, "question": "total time", "alias": alias, "guess": value, "unit": "ms", "estimate": 2.5,
            "measured": 2.7, "source": "measured", "default": False, "at": 1.0} | more  # fmt: skip


def test_answers_are_hidden_until_the_reveal() -> None:
    board = Board()
    board.submit("a", guess("heron"))
    (before,) = board.guesses()
    assert (before["guess"], before["measured"], before["estimate"], before["revealed"]) == (3.0, None, None, False)
    board.reveal(1, "total time")
    (after,) = board.guesses()
    assert (after["measured"], after["estimate"], after["source"], after["revealed"]) == (2.7, 2.5, "measured", True)
    board.reveal("1", "total time", shown=False)
    assert board.guesses() == [before]


def test_a_person_who_guesses_again_has_one_guess() -> None:
    board = Board()
    board.submit("a", guess("heron"))
    board.submit("a", guess("heron", 4.0))
    assert [each["guess"] for each in board.guesses()] == [4.0]


@pytest.mark.parametrize("alias", ["heron", "Heron", " he ron ", "\N{FULLWIDTH LATIN SMALL LETTER H}eron"])
def test_no_alias_is_there_twice_and_a_free_one_is_offered(alias: str) -> None:
    board = Board()
    board.submit("a", guess("heron"))
    with pytest.raises(ValueError, match=r"is taken.* Accepted: another one, such as '.* 2'\.") as refused:
        board.submit("b", guess(alias))
    board.submit("b", guess(str(refused.value).rsplit("'", 2)[1]))
    assert len(board.guesses()) == 2


def test_a_long_alias_that_is_taken_has_a_free_one_like_it() -> None:
    board, long = Board(), "x" * ALIAS_MOST
    board.submit("a", guess(long))
    with pytest.raises(ValueError, match=f"'{'x' * (ALIAS_MOST - 2)} 2'"):
        board.submit("b", guess(long))


def test_nobody_takes_all_names() -> None:
    board = Board()
    for number in range(ALIASES_MOST):
        board.submit("a", guess(f"name {number}"))
    with pytest.raises(ValueError, match="a person has 3 at most"):
        board.submit("a", guess("one more"))


@pytest.mark.parametrize(
    "alias",
    [
        *("", "   ", None, 7, "x" * (ALIAS_MOST + 1), "a\nb\x00", "a\N{RIGHT-TO-LEFT OVERRIDE}b"),
        *("a\N{BRAILLE PATTERN BLANK}", "\N{HANGUL FILLER}", "h\N{CYRILLIC SMALL LETTER IE}ron"),
    ],
)
def test_an_alias_is_a_short_printable_text(alias: Any) -> None:
    board = Board()
    with pytest.raises(ValueError, match="Accepted: 1 to 24 letters"):
        board.submit("a", guess(alias))
    assert board.guesses() == []


@pytest.mark.parametrize("alias", ["серая цапля", "ερωδιός 2", "青いサギ", "héron cendré", "왜가리"])
def test_an_alias_may_be_of_any_language(alias: str) -> None:
    board = Board()
    board.submit("a", guess(alias))
    assert board.guesses()[0]["alias"] == alias


def test_markup_is_kept_as_the_text_that_it_is() -> None:
    board = Board()
    board.submit("a", guess("<b>&amp;</b>"))
    assert board.guesses()[0]["alias"] == "<b>&amp;</b>"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"guess": None}, "needs a guess"),
        ({"lesson": ""}, "needs a lesson"),
        ({"guess": float("nan")}, "finite number"),
        ({"guess": [1]}, "is list"),
        ({"question": "x" * 300}, "too long"),
        ({"html": "x"}, "has no html"),
    ],
)
def test_what_is_no_guess_is_refused_in_a_sentence(change: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Board().submit("a", guess("heron", **change) if "guess" not in change else guess("heron") | change)


TOTAL, PIECES = QuestionKind(True, "ms"), QuestionKind(False, "", ("1", "2", "4"))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"guess": "x"}, "The guess 'x' does not fit lesson 1, 'total_time'. Accepted: a finite number in ms."),
        ({"guess": True}, "The guess 'True' does not fit"),
        ({"unit": "µs"}, "The unit 'µs' does not fit"),
        ({"measured": "soon"}, "The measured 'soon' does not fit"),
        ({"question": "pieces", "guess": 2.0, "unit": ""}, "The guess '2.0' does not fit lesson 1, 'pieces'"),
        (
            {"question": "pieces", "guess": "3", "unit": ""},
            "The guess '3' does not fit lesson 1, 'pieces'. Accepted: one of 1, 2",
        ),
    ],
)
def test_a_guess_that_is_of_another_kind_than_its_question_is_refused(change: dict[str, Any], says: str) -> None:
    board = Board(questions={("1", "total_time"): TOTAL, ("1", "pieces"): PIECES})
    with pytest.raises(ValueError, match="^" + re.escape(says)) as refused:
        board.submit("a", guess("heron") | change)
    assert "Accepted: " in str(refused.value)
    assert board.guesses() == []
    board.submit("a", guess("heron"))
    board.submit("a", guess("heron", question="total_time"))
    assert [each["question"] for each in board.guesses()] == ["total_time"], "one question has one chart"
    board.submit("a", guess("heron", "2", question="pieces", unit="", estimate="4", measured="1 or 2"))


def test_a_question_of_no_lesson_has_the_kind_of_its_first_guess() -> None:
    board = Board()
    with pytest.raises(ValueError, match="Accepted: a finite number in ms"):
        board.submit("a", guess("heron", "x"))
    board.submit("a", guess("heron", "red", unit=None, estimate=None, measured=None))
    with pytest.raises(ValueError, match="Accepted: a text without a unit"):
        board.submit("b", guess("lynx", 3.0))
    assert [each["guess"] for each in board.guesses()] == ["red"]


def test_one_person_with_two_spellings_of_an_alias_is_one_row_by_the_first() -> None:
    board = Board()
    board.submit("a", guess("Blue  Heron"))
    board.submit("a", guess("blue heron", 4.0))
    assert [(each["alias"], each["guess"]) for each in board.guesses()] == [("Blue Heron", 4.0)]
    board.enter_recorded("a", "BLUE HERON", 8, (1, 0.1), at=5.0)
    assert [each["alias"] for each in board.best()] == ["Blue Heron"]
    assert board.claim("a", "blue  heron") == "Blue Heron"


def events_of(trial: Any, seconds: float, *, correct: bool = True) -> list[dict[str, Any]]:
    of_ranks = range(trial.world)
    samples = [{"kind": "sample", "trial": trial.key, "rank": rank, "index": 0, "seconds": seconds, "at": 1.0}
               for rank in of_ranks]  # fmt: skip
    results = [{"kind": "result", "trial": trial.key, "rank": rank, "correct": correct, "spans": [],
                "max_relative_error": 0.0, "facts": {}} for rank in of_ranks]  # fmt: skip
    return [*samples, *results, *({"kind": "done", "rank": rank} for rank in of_ranks)]


def answered(trial: Any, *seconds: float, correct: bool = True) -> SharedAnswers:
    answers = SharedAnswers()
    for number, each in enumerate(seconds):
        answers.begin("c", str(number), f"list {number}", [{}] * trial.world)
        answers.take("c", str(number), events_of(trial, each, correct=correct))
        assert answers.end("c", str(number)) == f"list {number}"
    return answers


def test_a_schedule_has_the_time_that_ranks_measured() -> None:
    trial, board = make_trial("fused"), Board()
    measured = answered(trial, 0.3, 0.2).verified(trial)
    assert isinstance(measured, Measurement)
    board.enter("a", "heron", 8, measured, at=5.0)
    board.enter("b", "lynx", 8, answered(trial, 0.1).verified(trial), at=6.0)  # type: ignore[arg-type]
    assert [(each["alias"], each["time_s"]) for each in board.best()] == [("lynx", 0.1), ("heron", 0.2)]
    with pytest.raises(ValueError, match="is taken"):
        board.enter("b", "heron", 8, measured, at=7.0)


@pytest.mark.parametrize("lesson", ["x" * 5000, "", None, [8]])
def test_a_schedule_of_no_lesson_is_refused_in_a_sentence(lesson: Any) -> None:
    board = Board()
    measured = answered(make_trial("fused"), 0.3).verified(make_trial("fused"))
    assert measured is not None
    with pytest.raises(ValueError, match=r"lesson.* Accepted: a "):
        board.enter("a", "heron", lesson, measured, at=5.0)
    with pytest.raises(ValueError, match=r"lesson.* Accepted: a "):
        board.enter_recorded("a", "heron", lesson, (1, 0.1), at=5.0)
    assert board.best() == []


def test_aliases_alone_fill_a_board_and_people_keep_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cluster.workshop.board.ENTRIES_MOST", 3)
    board = Board()
    for number in range(3):
        board.claim(f"owner {number}", f"name {number}")
    with pytest.raises(ValueError, match="The board is full: it has 3 entries"):
        board.claim("one more", "another name")
    assert board.claim("owner 0", "name 0") == "name 0"


def test_a_schedule_that_was_wrong_or_not_measured_has_no_time() -> None:
    trial = make_trial("fused")
    assert answered(trial, 0.1, correct=False).verified(trial) is None
    assert answered(trial, 0.1).verified(make_trial("sequential")) is None
