"""The lecturer's page has the timetable, the surprises and the answers of the lessons as they are."""

from tests.lessons import lecturers_page
from workbench import lessons


def test_the_page_says_what_the_lessons_say() -> None:
    text = lecturers_page.PAGE.read_text()
    assert lecturers_page.filled(text) == text, "python -m tests.lessons.lecturers_page writes it"


def test_every_lesson_is_in_the_timetable_and_it_is_half_a_day() -> None:
    table = lecturers_page.timetable()
    assert all(entry.title in table for entry in lessons.LESSONS)
    last = table.splitlines()[-1].split("|")[1].strip()
    hours, minutes = map(int, last.split(":"))
    assert 3 * 60 <= hours * 60 + minutes <= 4.5 * 60
