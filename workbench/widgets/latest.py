"""Work that takes longer than a page may stand still: in a thread, and of several requests only the newest."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable
from typing import Any

_LOG = logging.getLogger(__name__)

REST_S = 0.5
"""The usual pause of work that takes up to a second, such as the estimates of a space: until a slider rests."""
Work = Callable[[], Any]
Shown = Callable[[Any], Any]


class Latest:
    """Does one piece of work after another in a thread; a piece that a newer one replaces is not shown.

    *failed* gets the sentence of a ValueError, as a Refusal is one; other errors are logged. A request that failed may
    be made again.
    """

    def __init__(self, name: str, failed: Callable[[str], Any]) -> None:
        self._name, self._failed = name, failed
        self._news = threading.Condition()
        """Held while the requested key or the thread changes. Never held while something is done or shown."""
        self._thread: threading.Thread | None = None
        self._request: tuple[Work, Shown] | None = None
        self._key: Hashable = None
        self._pause_s = 0.0
        self._count = 0
        """Grows with each request and whenever all is forgotten: which piece of work is the newest."""
        self._closed = False

    def ask(self, key: Hashable, work: Work, shown: Shown, pause_s: float = 0.0) -> bool:
        """Calls *shown* with the result of *work* soon, in the thread; False where *key* is what was requested last.

        With a *pause_s* it begins once nothing else was requested for so many seconds: none while a slider moves.
        """
        with self._news:
            if self._closed or key == self._key:
                return False
            self._key, self._request, self._count = key, (work, shown), self._count + 1
            self._pause_s = pause_s
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=f"workbench {self._name}", daemon=True)
                self._thread.start()
            self._news.notify_all()
            return True

    def forget(self) -> None:
        """Nothing counts as requested any more: what waits is not done, what is being done is not shown."""
        with self._news:
            self._key, self._request, self._count = None, None, self._count + 1
            self._news.notify_all()

    def close(self) -> None:
        """Nothing is done or shown from now on, but for what is being done."""
        with self._news:
            self._closed, self._request = True, None
            self._news.notify_all()

    def wait(self, seconds: float) -> bool:
        """Waits at most *seconds* until nothing is left to do, and returns whether that is so; for tests."""
        with self._news:
            return self._news.wait_for(lambda: self._thread is None, seconds)

    def _run(self) -> None:
        while True:
            with self._news:
                self._rest()
                (request, self._request), count = (self._request, None), self._count
                if request is None:
                    self._thread = None
                    self._news.notify_all()
                    return
            self._do(count, *request)

    def _rest(self) -> None:
        """Waits until what is requested stayed the same for the pause; the lock is held."""
        until, before = 0.0, -1
        while self._request is not None and not self._closed:
            if before != self._count:
                until, before = time.monotonic() + self._pause_s, self._count
            if (left_s := until - time.monotonic()) <= 0:
                return
            self._news.wait(left_s)

    def _do(self, count: int, work: Work, shown: Shown) -> None:
        try:
            result = work()
            if self._count == count and not self._closed:  # else a newer one follows
                shown(result)
        except ValueError as refusal:
            self._fail(count, str(refusal))
        except Exception:  # a view that fails leaves the page alive
            _LOG.exception("%s failed.", self._name)
            self._fail(count, "This could not be computed: the log of the kernel says why.")

    def _fail(self, count: int, message: str) -> None:
        """Says so unless a newer request follows; the same one may be made again."""
        with self._news:
            if self._count != count or self._closed:
                return
            self._key = None
        self._failed(message)
