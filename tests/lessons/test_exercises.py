"""No check passes a wrong answer: each exercise meets three wrong ones and the right one, and help grows with tries."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from workbench import lessons
from workbench.lessons import order_of_signals, pieces_and_tiles, predictions
from workbench.lessons.order_of_signals import DEADLINE, FIRST, NOTHING, SECOND
from workbench.lessons.pieces_and_tiles import FasterOf, samples
from workbench.lessons.predictions import BUDGETED, simple_model, space
from workbench.lessons.questions import Attempts, Exercise, Question, winners
from workbench.lessons.shapes_and_sms import SHAPES, WINNING


def slowest(count: int) -> list[int]:
    """The numbers of the slowest schedules of the budgeted space."""
    every = space(BUDGETED)
    return sorted(range(len(every)), key=lambda place: -every[place]["measured_s"])[:count]


OPERATOR, STEADY_LOAD = "appendix_new_operator.ipynb", "appendix_steady_load.ipynb"
FAILS = {
    "the signal comes before the data": FIRST, "nobody signals": DEADLINE, "data go to the sender": FIRST,
    "the signal goes to the sender": DEADLINE, "every call waits for signal 1": SECOND,
    "the signal is relaxed": NOTHING,
}  # fmt: skip
"""What each wrong kernel of the appendix fails."""
WRONG: dict[tuple[int | str, str], list[Any]] = {
    (1, "bytes_of_two_ranks"): [4194304, 1048576, "2 MB"],
    (1, "bytes_of_four_ranks"): [2097152, 4194304, 1048576],
    (1, "wire_time_of_four_ranks"): [0.103, 69, 137],
    (2, "cutting_stops_paying"): [512, 64, 2],
    (2, "one_or_eight"): [
        FasterOf("8 pieces", samples(1), samples(8)), FasterOf("1 piece", samples(1), samples(8)), "not certain",
    ],
    (4, "a_shape_for_each_winner"): [
        {**WINNING, "fused": WINNING["decomposed"]},
        {**WINNING, "fused": SHAPES["tokens_go_home"]},
        {"fused": WINNING["fused"]},
        {**WINNING, "sequential": ("gemm_all_reduce", {"m": 100, "n": 7})},
        {**WINNING, "decomposed": WINNING["fused"]},
    ],
    (5, "one_number_flips_it"): [
        {"costs.step_seconds": 5e-7}, {"costs.step_seconds": 5e-6, "costs.launch_seconds": 1e-6},
        {"costs.magic_seconds": 1.0}, {"device.name": 3}, {"costs.step_seconds": -1.0}, {"costs.step_seconds": "long"},
    ],
    (6, "padding_for_one_block"): [19325, 58200, 174972, 57476],
    (6, "turning_point"): [4, 8, 64, 3],
    (7, "wrong_term"): ["computation alone", "communication alone", "both parts"],
    (7, "own_model"): [
        {"fused": lambda example: 1e-4}, {"fused": lambda example: -1.0}, {"fused": lambda example: "long"},
        {"concurrent": simple_model}, {"fused": 0.5},
        {"sequential": lambda example: 2 * example["m"] * example["n"] * example["k"] / 989e12},
    ],
    (8, "budget_of_12"): [list(range(13, 40)), slowest(12), [], [5000], "all"],
    (9, "what_turns_it"): [{"dense": 8}, {"gigabytes": 100}, {"ranks": 8}, {"dense": 32, "ranks": 8}, {"weather": 1}],
    (OPERATOR, "place_of_the_signal"): [1, 2, 3, 5, 6, 7, "4"],
    (OPERATOR, "which_check_fails"): [
        {**FAILS, "the signal is relaxed": FIRST}, {**FAILS, "nobody signals": NOTHING},
        {**FAILS, "every call waits for signal 1": FIRST}, {**FAILS, "data go to the sender": DEADLINE},
        {**FAILS, "the signal comes before the data": SECOND}, {"nobody signals": DEADLINE},
        {**FAILS, "nobody signals": "the lint"},
    ],
    (STEADY_LOAD, "time_at_the_cap"): [1374, 1500, 1.64, "long"],
    (STEADY_LOAD, "ratio_under_load"): [160 / 260, 0.65, 1.0, 185],
    (3, "order_of_tiles"): [[0, 0, 1, 1, 2, 2, 3, 3], [1, 0, 2, 2, 3, 3, 1, 0], [1, 1, 1, 2, 2, 3, 0, 0]],
}  # fmt: skip
EVERY: list[tuple[int | str, str]] = [
    *((entry.number, name) for entry in lessons.LESSONS for name in lessons.exercises_of(entry.number)),
    *((file, name) for file in lessons.APPENDIX_EXERCISES for name in lessons.appendix_exercises(file)),
]


def exercise_of(lesson: int | str, name: str) -> Exercise:
    """The exercise of a lesson, or of an appendix by its file."""
    found = lessons.exercises_of(lesson) if isinstance(lesson, int) else lessons.appendix_exercises(lesson)
    return found[name]


def test_every_exercise_has_three_wrong_answers_here() -> None:
    assert set(WRONG) == set(EVERY)
    assert all(len(values) >= 3 for values in WRONG.values())


@pytest.mark.slow(keeps=11)
@pytest.mark.parametrize(("lesson", "name"), EVERY)
def test_the_right_answer_passes_and_each_wrong_one_is_refused_in_one_sentence(lesson: int | str, name: str) -> None:
    exercise = exercise_of(lesson, name)
    is_right, sentence = Attempts().check(name, exercise, exercise.right())
    assert is_right, sentence
    assert sentence.startswith("Right. ")
    for wrong in WRONG[lesson, name]:
        is_right, sentence = Attempts().check(name, exercise, wrong)
        assert not is_right, f"{wrong} passes"
        assert sentence.startswith("Not yet. ")
        assert sentence.endswith((".", "?"))


@pytest.mark.parametrize(("lesson", "name"), EVERY)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1, 0, "", [], {}, object(), True, lambda: 1])
def test_what_is_no_answer_at_all_never_passes_and_never_raises(lesson: int | str, name: str, value: Any) -> None:
    is_right, sentence = Attempts().check(name, exercise_of(lesson, name), value)
    assert not is_right
    assert sentence.startswith("Not yet. ")


@pytest.mark.slow(keeps=11)
@pytest.mark.parametrize(("lesson", "name"), EVERY)
def test_help_comes_step_by_step_and_ends_with_the_solution(lesson: int | str, name: str) -> None:
    exercise, attempts = exercise_of(lesson, name), Attempts()
    wrong = WRONG[lesson, name][0]
    first, second, third, fourth, fifth = (attempts.check(name, exercise, wrong)[1] for _ in range(5))
    assert "Hint" not in first
    assert exercise.hints[0] in second
    assert exercise.hints[1] in third
    assert exercise.solution in fourth
    assert fifth == fourth
    assert exercise.solution not in third


@pytest.mark.slow
def test_the_right_answers_of_the_appendix_are_what_two_ranks_show() -> None:
    assert exercise_of(OPERATOR, "place_of_the_signal").right() == 4
    assert exercise_of(OPERATOR, "which_check_fails").right() == FAILS


def test_two_ranks_show_that_the_right_place_passes_and_that_no_signal_is_a_deadline() -> None:
    """Two of the eleven variants, as the exercises run all."""
    variants = order_of_signals.variants()
    right, silent = order_of_signals._run([variants["place 4"], variants["nobody signals"]])
    assert (right.fails, silent.fails) == (NOTHING, FAILS["nobody signals"])


def test_an_exercise_is_over_when_it_is_solved_or_its_solution_was_shown() -> None:
    exercise, attempts = exercise_of(1, "bytes_of_two_ranks"), Attempts()
    for tries in range(1, 5):
        attempts.check("wrong", exercise, 1)
        assert ("wrong" in attempts.over) == (tries == 4)
    attempts.check("right", exercise, exercise.right())
    assert "right" in attempts.over


@pytest.mark.parametrize("written", ["2,097,152", " 2,097,152 bytes", "2.097152e6", (2, 97, 152), 2097152])
def test_a_number_may_have_the_commas_of_the_lessons(written: Any) -> None:
    is_right, sentence = Attempts().check("key", exercise_of(1, "bytes_of_two_ranks"), written)
    assert is_right, sentence


UNREADABLE: list[tuple[int, str, Any]] = [
    (1, "bytes_of_two_ranks", "2 MB"), (1, "bytes_of_two_ranks", "2,09,7152"), (1, "bytes_of_two_ranks", (2, 0.5)),
    (1, "bytes_of_two_ranks", float("nan")), (3, "order_of_tiles", "1, 2, 3"), (5, "one_number_flips_it", {}),
    (4, "a_shape_for_each_winner", []), (7, "wrong_term", "the network"), (7, "own_model", {"fused": 0.5}),
    (8, "budget_of_12", "all"), (9, "what_turns_it", {"weather": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("lesson", "name", "slip"), UNREADABLE)
def test_an_answer_that_cannot_be_read_costs_no_try_and_hears_what_is_accepted(
    lesson: int, name: str, slip: Any
) -> None:
    exercise, attempts = exercise_of(lesson, name), Attempts()
    for _ in range(5):
        is_right, sentence = attempts.check("key", exercise, slip)
        assert not is_right
        assert "Accepted: " in sentence or "The answer is a " in sentence or "An order is a list" in sentence
        assert sentence.endswith("That does not count as a try.")
        assert exercise.solution not in sentence
    assert not attempts.count
    assert not attempts.over


def test_what_a_function_of_a_student_raises_costs_no_try() -> None:
    attempts = Attempts()
    _, sentence = attempts.check("key", exercise_of(7, "own_model"), {"fused": lambda example: example["weather"]})
    assert "cannot be read as one (KeyError: 'weather'). That does not count as a try." in sentence
    assert not attempts.count


@pytest.mark.parametrize("missing", [None, ...])
def test_no_answer_yet_is_no_try(missing: Any) -> None:
    exercise, attempts = lessons.exercises_of(1)["bytes_of_two_ranks"], Attempts()
    assert attempts.check("key", exercise, missing) == (
        False, "There is no answer yet: put one in the cell, and run it again.")  # fmt: skip
    assert not attempts.count


def test_a_measured_answer_is_compared_with_the_samples_of_its_student() -> None:
    rule = lessons.exercises_of(2)["one_or_eight"].rule
    one, eight = ({**samples(pieces), "rounds_s": rounds} for pieces, rounds in
                  ((1, [0.1 + 0.001 * n for n in range(12)]), (8, [0.05 + 0.001 * n for n in range(12)])))  # fmt: skip
    assert "paired rounds" in rule(FasterOf("8 pieces", one, eight))
    assert "paired rounds" in rule(FasterOf("1 piece", eight, one))
    for answer in ("1 piece", "not certain"):
        with pytest.raises(ValueError, match="Your samples say something else"):
            rule(FasterOf(answer, one, eight))


# What is guessed.

QUESTIONS = [(entry.number, name) for entry in lessons.LESSONS for name in lessons.questions_of(entry.number)]


@pytest.mark.parametrize(("lesson", "name"), QUESTIONS)
def test_a_question_has_an_answer_with_estimate_source_and_place(lesson: int, name: str) -> None:
    question = lessons.questions_of(lesson)[name]
    answer = question.answer()
    assert answer.source in {"recorded", "published"}
    assert answer.where
    assert question.read(question.default) == question.default
    if question.choices:
        assert {each.choice for each in answer.values} <= set(question.choices)
        assert answer.unit, "the axis has a title"
        assert set(str(answer.measured).split(" or ")) <= set(question.choices)
        assert answer.estimate in question.choices
    else:
        assert answer.measured > 0
        assert answer.estimate > 0
        assert question.unit
    assert question.verdict(question.default, answer).startswith("Your guess: ")


@pytest.mark.parametrize("typed", ["", "a lot", "-3", "0", "nan", "inf", "1e999", "12 apples", "<b>5</b>"])
def test_a_guess_that_is_no_number_is_refused_with_a_way_forward(typed: str) -> None:
    question = lessons.questions_of(1)["total_time"]
    with pytest.raises(ValueError, match=r"Accepted: a number, such as 200, in ms\.$"):
        question.read(typed)


@pytest.mark.parametrize("typed", ["150", " 150 ", "150ms", "150 ms", "1.5e2", 150])
def test_a_number_is_read_with_or_without_its_unit(typed: Any) -> None:
    assert lessons.questions_of(1)["total_time"].read(typed) == 150


def test_a_guess_may_have_commas_between_thousands() -> None:
    question = lessons.questions_of(1)["total_time"]
    assert question.read("1,500 ms") == 1500
    with pytest.raises(ValueError, match="is no number above 0"):
        question.read("1,5")


def test_a_choice_that_is_none_is_refused_with_the_choices() -> None:
    question: Question = lessons.questions_of(2)["best_pieces"]
    with pytest.raises(ValueError, match="Accepted: 1, 2, 4, 8, 16"):
        question.read("3")


def test_choices_that_are_equally_good_are_equally_right() -> None:
    answer = lessons.questions_of(2)["best_pieces"].answer()
    assert answer.measured == "2 or 4 or 8"
    assert answer.estimate == "16", "the surprise of lesson 2"
    assert winners([each for each in answer.values if each.source == "recorded"], 0.0) == "2"


def test_an_order_of_tiles_is_played_by_the_simulator() -> None:
    memory, best = (pieces_and_tiles.played(order) for order in ([0, 0, 1, 1, 2, 2, 3, 3], [1, 1, 2, 2, 3, 3, 0, 0]))
    assert best.first_byte_s < memory.first_byte_s / 2
    assert best.time_s < memory.time_s
    natural = pieces_and_tiles.lesson("gemm_all_to_all", world=4).estimate(
        "fused", tile="128x1024x3072", slice_tiles=1, tile_order="rotated")  # fmt: skip
    assert best.time_s == pytest.approx(natural.time_s, rel=0.01), "the order that the workbench calls rotated"


def test_a_class_that_hands_in_at_once_reads_a_recording_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[str] = []

    def read_slowly(names: list[str], _: object) -> tuple[list[dict[str, Any]], None]:
        reads.extend(names)
        time.sleep(0.2)
        return [{"key": names[0]}], None

    monkeypatch.setattr(predictions, "validate_recordings", read_slowly)
    together = threading.Barrier(6)

    def hand_in() -> tuple[dict[str, Any], ...]:
        together.wait(10.0)
        return predictions.compared("a recording of this test")

    with ThreadPoolExecutor(6) as pool:
        answers = [pool.submit(hand_in) for _ in range(6)]
    assert {answer.result()[0]["key"] for answer in answers} == {"a recording of this test"} == set(reads)
    assert len(reads) == 1
