"""The ledger keeps every guess, survives damage and deletion, and scores what people guessed."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from workbench.lessons import ledger


def guess(lesson: int = 1, question: str = "total_time", **more: Any) -> dict[str, Any]:
    plain = {"guess": 150.0, "unit": "ms", "estimate": 177.0, "measured": 143.0, "source": "recorded", "default": False}
    return {"lesson": lesson, "question": question, **plain, **more}


def test_an_entry_has_the_fields_that_a_class_board_reads(own_guesses: Path) -> None:
    assert ledger.entries() == []
    assert ledger.add(guess()) == ""
    (line,) = own_guesses.read_text().splitlines()
    assert list(json.loads(line)) == list(ledger.FIELDS)
    (entry,) = ledger.entries()
    assert (entry["alias"], entry["guess"], entry["default"]) == (ledger.NOBODY, 150.0, False)
    assert entry["at"] > 1.7e9


def test_the_alias_is_the_one_that_was_granted_or_that_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ledger.ALIAS, "heron")
    ledger.add(guess())
    ledger.use_alias("<b>otter</b>")
    ledger.add(guess())
    assert [entry["alias"] for entry in ledger.entries()] == ["heron", "<b>otter</b>"]


def test_whoever_polls_gets_what_is_new_and_all_of_a_file_that_began_anew(own_guesses: Path) -> None:
    for number in range(3):
        ledger.add(guess(guess=float(number + 1)))
    assert [entry["guess"] for entry in ledger.entries(2)] == [3.0]
    assert ledger.entries(3) == []
    own_guesses.unlink()
    assert ledger.entries(3) == []
    ledger.add(guess(guess=9.0))
    assert [entry["guess"] for entry in ledger.entries(3)] == [9.0]


def test_listeners_hear_each_new_guess_until_they_end_and_a_broken_one_disturbs_nobody() -> None:
    heard: list[Any] = []

    def broken(_: ledger.Entry) -> None:
        raise RuntimeError("the board is gone")

    ledger.on_new(broken)
    end = ledger.on_new(lambda entry: heard.append(entry["guess"]))
    ledger.add(guess())
    end()
    ledger.add(guess(guess=1.0))
    assert heard == [150.0]
    assert len(ledger.entries()) == 2


def test_a_torn_line_costs_itself_alone(own_guesses: Path) -> None:
    ledger.add(guess())
    with own_guesses.open("a") as file:
        file.write('{"lesson": 2, "quest')
    ledger.add(guess(guess=99.0))
    assert [entry["guess"] for entry in ledger.entries()] == [150.0, 99.0]


def test_many_who_write_at_once_lose_nothing() -> None:
    with ThreadPoolExecutor(8) as pool:
        messages = list(pool.map(lambda number: ledger.add(guess(guess=float(number))), range(1, 101)))
    assert set(messages) == {""}
    assert sorted(entry["guess"] for entry in ledger.entries()) == [float(number) for number in range(1, 101)]


def test_a_file_in_the_place_of_the_folder_is_one_sentence(own_guesses: Path) -> None:
    own_guesses.parent.write_text("no folder")
    message = ledger.add(guess())
    assert message.startswith("Your guess counts here, but it is not kept")
    assert "Accepted: a folder that you may write." in message


def test_the_first_guess_counts_and_one_by_default_only_until_somebody_guesses() -> None:
    ledger.add(guess(guess=500.0, default=True))
    assert ledger.locked(1, "total_time") is None
    ledger.add(guess(guess=150.0))
    ledger.add(guess(guess=143.0))
    (entry,) = ledger.counted(ledger.entries())
    assert entry["guess"] == 150.0
    kept = ledger.locked(1, "total_time")
    assert kept is not None
    assert kept["guess"] == 150.0


def test_whoever_takes_an_alias_after_the_reveal_guesses_no_second_time() -> None:
    ledger.add(guess(guess=500.0))
    ledger.use_alias("heron")
    kept = ledger.locked(1, "total_time")
    assert kept is not None
    assert (kept["alias"], kept["guess"]) == (ledger.NOBODY, 500.0)
    ledger.add(guess(guess=143.0))
    assert [entry["guess"] for entry in ledger.counted(ledger.entries())] == [500.0]


def test_the_score_is_the_share_within_a_factor_of_two_and_the_share_of_right_winners() -> None:
    numbers = {71.6: True, 286.0: True, 71.4: False, 287.0: False}
    for place, number in enumerate(numbers):
        ledger.add(guess(question=f"q{place}", guess=number))
    winner = {"unit": "", "estimate": "16", "measured": "2 or 4 or 8"}
    for place, choice in enumerate(("4", "16", "8")):
        ledger.add(guess(2, f"w{place}", guess=choice, **winner))
    ledger.add(guess(3, "nobody", guess=1.0, default=True))
    assert ledger.score(ledger.entries()) == {"within 2x": (2, 4), "right winner": (2, 3)}
    text = ledger.score_text(ledger.entries())
    assert "2 of 4 numbers within a factor of 2" in text
    assert "2 of 3 choices right" in text


def test_the_table_of_the_report_has_each_guess_once_and_marks_defaults() -> None:
    ledger.add(guess())
    ledger.add(guess(2, "best_pieces", guess="16", unit="", estimate="16", measured="2 or 4 or 8", default=True))
    table = ledger.table(ledger.entries())
    assert list(table["guess"]) == ["150 ms", "16 (default guess)"]
    assert list(table["counts"]) == ["yes", ""]
    assert list(ledger.table([]).columns) == list(table.columns)


def test_without_guesses_the_sentence_says_what_to_do() -> None:
    text = ledger.score_text([])
    assert "press Reveal" in text
    assert str(ledger.path()) in text
