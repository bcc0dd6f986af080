"""A coroutine that a test runs to its end, whatever loop runs in the test's own thread."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

Result = TypeVar("Result")


def apart(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """What *coroutine* answers, in a thread of its own: a browser's test leaves a loop running in this one."""
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(asyncio.run, coroutine).result()
