"""Work in a thread: the newest request is shown, what failed may be requested again, what is forgotten is not shown."""

from __future__ import annotations

import threading
import time
from typing import Any

from workbench.widgets.latest import Latest


def test_a_failure_may_be_requested_again() -> None:
    shown: list[Any] = []
    failures: list[str] = []
    work = Latest("test", failures.append)

    def fails() -> None:
        raise KeyError("nothing")

    assert work.ask("a", fails, shown.append)
    assert work.wait(10)
    assert len(failures) == 1
    assert work.ask("a", lambda: 1, shown.append)
    assert work.wait(10)
    assert shown == [1]
    assert not work.ask("a", lambda: 2, shown.append)
    work.forget()
    assert work.ask("a", lambda: 3, shown.append)
    assert work.wait(10)
    assert shown == [1, 3]


def test_neither_result_nor_failure_of_an_older_request_is_shown() -> None:
    shown: list[Any] = []
    failures: list[str] = []
    work, begun, may_end = Latest("test", failures.append), threading.Event(), threading.Event()

    def fails_late() -> None:
        begun.set()
        assert may_end.wait(10)
        raise ValueError("old")

    work.ask("a", fails_late, shown.append)
    assert begun.wait(10)
    work.ask("b", lambda: 1, shown.append)
    may_end.set()
    assert work.wait(10)
    assert (shown, failures) == ([1], [])


def test_with_a_pause_work_begins_once_nothing_else_was_requested_for_so_long() -> None:
    shown: list[Any] = []
    work = Latest("test", shown.append)
    for number in range(4):
        work.ask(number, lambda number=number: number, shown.append, 0.5)
        time.sleep(0.02)
    assert shown == []
    assert work.wait(10)
    assert shown == [3]
    work.ask("closed", lambda: 4, shown.append, 600.0)
    work.close()
    assert work.wait(10), "a page that closes waits for no pause"
    assert shown == [3]
