"""The workshop: nine lessons with a guess, a measurement and an exercise each. Their list, and where one is in it."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workbench.lessons.questions import Exercise, Question


@dataclass(frozen=True, slots=True)
class LessonEntry:
    """A lesson in the list."""

    number: int
    title: str
    file: str
    """Its notebook, in the folder of notebooks."""
    minutes: int
    idea: str
    """The one idea, as a sentence."""
    questions: str
    """The module of this package that has its questions and exercises."""


LESSONS: tuple[LessonEntry, ...] = (
    LessonEntry(1, "Read a timeline", "01_read_a_timeline.ipynb", 15,
                "Compute everything, then send everything: the time is the sum of two parts.", "pieces_and_tiles"),
    LessonEntry(2, "Cut it in pieces", "02_cut_it_in_pieces.ipynb", 20,
                "Send a piece while the next one is computed; too many pieces cost more than they hide.",
                "pieces_and_tiles"),
    LessonEntry(3, "Fuse it", "03_fuse_it.ipynb", 25,
                "One kernel sends its tiles as soon as they are done, and their order decides.", "pieces_and_tiles"),
    LessonEntry(4, "Three flows", "04_three_flows.ipynb", 20,
                "Data come in, go out, or are summed for all, and another scheme wins each time.", "shapes_and_sms"),
    LessonEntry(5, "When not to overlap", "05_when_not_to_overlap.ipynb", 20,
                "Below some size overlap costs more than it hides.", "shapes_and_sms"),
    LessonEntry(6, "Who gets the SMs, who moves the bytes", "06_who_gets_the_sms.ipynb", 30,
                "Communication takes something from the computation: SMs, or a copy engine and a latency.",
                "shapes_and_sms"),
    LessonEntry(7, "Predict before you run", "07_predict_before_you_run.ipynb", 30,
                "An estimate is a sum of terms, and an error belongs to one of them.", "predictions"),
    LessonEntry(8, "Search and choose", "08_search_and_choose.ipynb", 20,
                "An estimate that only ranks well saves nearly all measurements.", "predictions"),
    LessonEntry(9, "Many hosts, and your report", "09_many_hosts.ipynb", 20,
                "The same change saves a fifth or nothing, and one value decides which.", "predictions"),
)  # fmt: skip
"""All lessons in their order; notebooks, pages and the lecturer's page take their list from here."""

APPENDICES: dict[str, str] = {
    "appendix_new_operator.ipynb": "Write a fused operator of your own",
    "appendix_layers.ipynb": "Layers in a model",
    "appendix_gpus.ipynb": "The same plans on other GPUs",
    "appendix_pieces_and_engines.ipynb": "Pieces and engines",
    "appendix_two_streams.ipynb": "Several problems on two streams",
    "appendix_steady_load.ipynb": "Bursts and steady load",
    "appendix_cache_policies.ipynb": "Who stays in the cache?",
    "appendix_claims.ipynb": "Do the papers' numbers hold here?",
    "scale_out.ipynb": "A step on thousands of ranks",
}
"""Notebooks for after the workshop: file and title."""
APPENDIX_EXERCISES: dict[str, str] = {
    "appendix_new_operator.ipynb": "order_of_signals", "appendix_steady_load.ipynb": "steady_load",
}  # fmt: skip
"""The module of this package that has the exercises of an appendix, by file."""


def lesson_entry(number: int) -> LessonEntry:
    """The lesson of that number; ValueError lists the numbers."""
    for entry in LESSONS:
        if entry.number == number:
            return entry
    raise ValueError(f"There is no lesson {number!r}. Accepted: 1 to {len(LESSONS)}.")


def questions_of(number: int) -> dict[str, Question]:
    """The questions of a lesson by name, in their order."""
    return dict(import_module(f"{__name__}.{lesson_entry(number).questions}").QUESTIONS[number])


def every_question() -> dict[tuple[int, str], Question]:
    """The questions of all lessons, by lesson and name."""
    return {(each.number, name): question for each in LESSONS for name, question in questions_of(each.number).items()}


def exercises_of(number: int) -> dict[str, Exercise]:
    """The exercises of a lesson by name, in their order."""
    return dict(import_module(f"{__name__}.{lesson_entry(number).questions}").EXERCISES[number])


def appendix_module(file: str) -> str:
    """The module with the exercises of that appendix; ValueError lists the files that have some."""
    if file not in APPENDIX_EXERCISES:
        raise ValueError(f"{file!r} is no appendix with exercises. Accepted: {', '.join(APPENDIX_EXERCISES)}.")
    return APPENDIX_EXERCISES[file]


def appendix_exercises(file: str) -> dict[str, Exercise]:
    """The exercises of an appendix by name, in their order."""
    return dict(import_module(f"{__name__}.{appendix_module(file)}").EXERCISES)


def place_text(number: int) -> str:
    """Where a lesson is in the list, as Markdown with links to its neighbours and to the appendices after the last."""
    here = lesson_entry(number)
    parts = [f"**Lesson {number} of {len(LESSONS)}**, {here.minutes} minutes. {here.idea}"]
    if number > 1:
        before = lesson_entry(number - 1)
        parts.append(f"Before: [{before.title}]({before.file}).")
    if number < len(LESSONS):
        after = lesson_entry(number + 1)
        parts.append(f"Next: [{after.title}]({after.file}).")
    else:
        parts.append("After the workshop: " + ", ".join(f"[{title}]({file})" for file, title in APPENDICES.items()))
    return " ".join(parts)
