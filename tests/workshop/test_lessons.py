"""The class board and the lessons fit together: the scheduler finds lesson 8's check, and a guess reaches the board."""

from __future__ import annotations

import ast
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cluster.scheduler_file import SchedulerTarget
from cluster.workshop.board import FIELDS, Board
from cluster.workshop.classroom import _checked
from cluster.workshop.client import ClassBoard
from cluster.workshop.hosting import CHECKS, _questions
from workbench import lessons
from workbench.lessons import ledger
from workbench.lessons.predictions import best_found


def test_the_scheduler_checks_an_answer_to_lesson_8_as_the_lesson_does() -> None:
    assert _checked(CHECKS["8"], (3, 1, 2)) == best_found([3, 1, 2])
    with pytest.raises(ValueError, match="list of numbers of schedules"):
        _checked(CHECKS["8"], ["the best one"])


def test_the_cell_of_every_notebook_answers_no_lesson_and_no_answer_is_there_to_be_copied() -> None:
    page = (Path(__file__).parents[2] / "docs" / "workshop.md").read_text()
    cells = [cell for cell in re.findall(r"^```\n(.*?)^```", page, re.DOTALL | re.MULTILINE) if "board." in cell]
    every, of_lesson_8 = cells
    assert "board.follow" in every
    assert "board.answer" not in every
    called = [each for each in ast.walk(ast.parse(of_lesson_8)) if isinstance(each, ast.Call)]
    assert [ast.unparse(each.args[1]) for each in called] == ["budget.tried"]


def test_a_guess_of_a_lesson_is_one_of_the_board() -> None:
    assert tuple(ledger.FIELDS) == FIELDS


def test_the_board_takes_the_default_guess_of_every_question_and_no_text_for_a_number() -> None:
    board = Board(questions=_questions())
    for (lesson, name), question in lessons.every_question().items():
        entry = {"lesson": lesson, "question": name, "alias": "heron", "guess": question.default, "unit": question.unit}
        board.submit("a", entry)
        with pytest.raises(ValueError, match=r"does not fit lesson \d, .*Accepted: "):
            board.submit("b", {**entry, "alias": "lynx", "guess": "x"})
    assert len(board.guesses()) == len(lessons.every_question())


def test_what_a_ledger_keeps_is_sent_under_the_alias_that_was_granted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(ledger, "path", lambda: tmp_path / ledger.FILE)
    monkeypatch.setattr(ledger, "_alias", [])
    monkeypatch.setattr(ledger, "_listeners", [])
    kept, board = Board(), ClassBoard(SchedulerTarget("tcp://127.0.0.1:9"))
    sent: list[Mapping[str, Any]] = []

    def call(question: str, **facts: Any) -> dict[str, Any]:
        if question == "claim":
            kept.claim(facts["owner"], facts["alias"])
        else:
            kept.submit(facts["owner"], facts["entry"])
            sent.append(facts["entry"])
        return {"board": kept.name}

    monkeypatch.setattr(board, "_call", call)
    end = board.follow("blue heron", ledger)
    entry = {"lesson": 1, "question": "total_time", "guess": 3.0, "unit": "ms", "estimate": 2.5, "measured": 2.7,
             "source": "measured", "default": False}  # fmt: skip
    assert ledger.add(entry) == ""
    end()
    for _ in range(200):
        if sent:
            break
        time.sleep(0.05)
    assert [(each["alias"], each["guess"]) for each in kept.guesses()] == [("blue heron", 3.0)]
    assert ledger._listeners == []
