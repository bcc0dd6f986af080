"""Samples on their way into the store: written together, but none waits longer than an eye notices."""

from __future__ import annotations

import threading
import time

from kernels.outcome import Sample
from workbench.store.store import Store

FLUSH_SECONDS = 0.05
"""A sample is in the file this long after it came, whether or not another follows."""
SETTLE_SECONDS = 1.0
"""What a run has stored outlives a power cut this long after, and at once when the run ends."""


class SampleBuffer:
    """Collects the samples of one run; a thread of its own writes them, one transaction per FLUSH_SECONDS."""

    def __init__(self, store: Store, run: str) -> None:
        self._store, self._run = store, run
        self._pending: list[Sample] = []
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closed = threading.Event()
        self._error: ValueError | None = None
        self._thread = threading.Thread(target=self._write, name="samples", daemon=True)
        self._thread.start()

    def add(self, sample: Sample) -> None:
        """Raises the store's ValueError if earlier samples could not be written."""
        if self._error is not None:
            raise self._error
        with self._lock:
            self._pending.append(sample)
        self._wake.set()

    def take(self) -> list[Sample]:
        """What is not written yet, for who writes it together with an outcome."""
        with self._lock:
            taken, self._pending = self._pending, []
        return taken

    def _write(self) -> None:
        settle_at = time.monotonic() + SETTLE_SECONDS
        while not self._closed.is_set():
            self._wake.wait(SETTLE_SECONDS)
            self._closed.wait(FLUSH_SECONDS)
            self._wake.clear()
            try:
                self._flush()
                if time.monotonic() >= settle_at:
                    self._store.settle()
                    settle_at = time.monotonic() + SETTLE_SECONDS
            except ValueError as error:
                self._error = error
                return

    def _flush(self) -> None:
        # the lock is held while writing: an outcome must not overtake its own samples
        with self._lock:
            if self._pending:
                self._store.add_samples(self._run, self._pending)
                self._pending = []

    def close(self) -> None:
        """Write what is left and end the thread."""
        self._closed.set()
        self._wake.set()
        self._thread.join(timeout=60)
        if self._error is None:
            self._flush()
