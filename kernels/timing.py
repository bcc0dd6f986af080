"""The timing loop: trials of one sitting taken in turns, forwards and backwards, so that drift falls on all alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernels.backends.base import Prepared


def warm_up(prepared: Sequence[Prepared], warmups: int, each: Callable[[int], None]) -> None:
    """Runs every trial *warmups* times untimed; calls each(trial number) before every one of these iterations."""
    for _ in range(warmups):
        for number, one in enumerate(prepared):
            each(number)
            one.run()


def interleaved(prepared: Sequence[Prepared], repeats: int, each: Callable[[int, int, float], None]) -> None:
    """Runs every trial *repeats* times, A B C C B A ...; what ran before is forgotten.

    Calls each(trial number, sample index, seconds) after every iteration.
    """
    numbers = list(range(len(prepared)))
    for one in prepared:
        one.forget()
    for index in range(repeats):
        for number in numbers if index % 2 == 0 else reversed(numbers):
            each(number, index, prepared[number].run())
