"""Writes the parts of the lecturer's page that follow from the lessons: `python -m tests.lessons.lecturers_page`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import nbformat

from workbench import lessons
from workbench.lessons.questions import value_text
from workbench.resources import notebooks_directory

PAGE = Path(__file__).parents[2] / "docs" / "workshop.md"
INTRODUCTION, PAUSES = 10, {3: 10, 6: 15}
"""Minutes before lesson 1, and minutes of a pause after a lesson."""


def timetable() -> str:
    """When each lesson begins, from the first minute on, with the pauses."""
    lines = ["| at | minutes | what |", "|---:|---:|---|", f"| 0:00 | {INTRODUCTION} | The first ten minutes (below) |"]
    at = INTRODUCTION
    for entry in lessons.LESSONS:
        lines.append(f"| {clock(at)} | {entry.minutes} | {entry.number}. {entry.title} |")
        at += entry.minutes
        if entry.number in PAUSES:
            lines.append(f"| {clock(at)} | {PAUSES[entry.number]} | Pause |")
            at += PAUSES[entry.number]
    return "\n".join([*lines, f"| {clock(at)} | | End |"])


def clock(minutes: int) -> str:
    return f"{minutes // 60}:{minutes % 60:02d}"


def answers() -> str:
    """Of each lesson the surprise, what its guesses reveal, and the solutions of its exercises."""
    return "\n\n".join("\n".join(lesson_lines(entry)) for entry in lessons.LESSONS)


def lesson_lines(entry: lessons.LessonEntry) -> Iterator[str]:
    yield f"### {entry.number}. {entry.title}\n"
    yield f"- *Surprise:* {surprise(entry)}"
    for name, question in lessons.questions_of(entry.number).items():
        answer = question.answer()
        estimate, measured = (value_text(each, question.unit) for each in (answer.estimate, answer.measured))
        yield f"- *Guess, {name.replace('_', ' ')}:* {answer.source} {measured}; estimated {estimate}."
    for name, exercise in lessons.exercises_of(entry.number).items():
        yield f"- *Exercise, {name.replace('_', ' ')}:* {exercise.solution}"


def surprise(entry: lessons.LessonEntry) -> str:
    """The sentence of the notebook that names its surprise."""
    cells = nbformat.read(notebooks_directory() / entry.file, as_version=4).cells
    (folded,) = [" ".join(cell.source.split()) for cell in cells if "After your guess:" in cell.source]
    named = re.search(r"(?:That is the|The) surprise(?: of this lesson)?: ([^*]+?)\*\*", folded)
    assert named is not None, entry.file
    sentence = named[1]
    return sentence[0].upper() + sentence[1:]


PARTS = {"timetable": timetable, "answers": answers}


def filled(text: str) -> str:
    """*text* with each part between its two comments replaced by what follows from the lessons."""
    for name, write in PARTS.items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(\n<!-- /{name} -->)", re.DOTALL)
        assert pattern.search(text), f"docs/workshop.md has no place for the {name}"
        text = pattern.sub(lambda place, write=write: f"{place[1]}{write()}{place[2]}", text)
    return text


def main() -> None:
    """Writes the page."""
    PAGE.write_text(filled(PAGE.read_text()))


if __name__ == "__main__":
    main()
