"""Replays that run in threads end at their next chunk once nobody waits for them any more.

Ctrl-C reaches the main thread alone, and the end of the process waits for all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextvars import ContextVar, copy_context
from threading import Event
from typing import Any, TypeVar

T = TypeVar("T")
THREADS = 2
"""Compiled replays hold no lock, so that two of them run at a time."""


class Unwanted(Exception):
    """Ends a replay that nobody waits for."""


_unwanted: ContextVar[Event | None] = ContextVar("unwanted", default=None)
"""Set when whoever began the outermost jobs has given them up; of jobs that have jobs of their own it is the same."""


def heeded(chunks: Iterable[T]) -> Iterator[T]:
    """*chunks*, as long as somebody waits for what is made of them."""
    for chunk in chunks:
        event = _unwanted.get()
        if event is not None and event.is_set():
            raise Unwanted
        yield chunk


def together(
    jobs: Sequence[Callable[[], Any]], progress: Callable[[int, int], None] = lambda count, at: None
) -> list[Any]:
    """What *jobs* return, two at a time; *progress* is told how many have ended, and which one just did.

    Who is interrupted waits for one chunk of the jobs that run, and not for the other jobs.
    """
    outer = _unwanted.get()
    event = outer or Event()
    with ThreadPoolExecutor(THREADS) as threads:
        futures = {threads.submit(copy_context().run, _one, job, event): at for at, job in enumerate(jobs)}
        try:
            for count, future in enumerate(as_completed(futures), 1):
                future.result()
                progress(count, futures[future])
        except BaseException:
            if outer is None:  # else the first to fail would not be the one that is heard of
                event.set()
            threads.shutdown(wait=False, cancel_futures=True)
            raise
    return [future.result() for future in futures]


def _one(job: Callable[[], Any], event: Event) -> Any:
    _unwanted.set(event)
    return job()
