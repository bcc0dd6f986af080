"""Who asks what a gang would run on is stopped at once, and hears which scheduler does not answer."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from cluster.client import Cluster
from kernels.files import Failed


class Frozen(Cluster):
    """Its scheduler never answers."""

    def __init__(self) -> None:
        self.address = "tcp://127.0.0.1:1"

    def call(self, question: str, *, stop: threading.Event | None = None, within_s: float = 20.0, **facts: Any) -> Any:
        if stop is not None and stop.is_set():
            raise InterruptedError("stopped")
        raise TimeoutError(f"no answer within {within_s:.0f} s")


def test_stop_ends_the_question_although_the_scheduler_does_not_answer() -> None:
    stop = threading.Event()
    stop.set()
    assert Frozen().ranks(2, "cpu", stop) is None


def test_a_scheduler_that_does_not_answer_is_named() -> None:
    with pytest.raises(Failed, match=r"The scheduler tcp://127.0.0.1:1 does not say .* \(no answer within 20 s\)"):
        Frozen().ranks(2, "cpu")
