"""The timing loop: trials of one sitting taken in turns, forwards and backwards, so that drift falls on all alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernels.backends.base import Prepared


def interleaved(
    prepared: Sequence[Prepared], warmups: int, repeats: int, each: Callable[[int, int, float], None]
) -> None:
    """Runs every trial *warmups* times untimed, then *repeats* times, A B C C B A ...

    Calls each(trial number, sample index, seconds) after every timed iteration.
    """
    numbers = list(range(len(prepared)))
    for _ in range(warmups):
        for one in prepared:
            one.run()
    for one in prepared:
        one.forget()
    for index in range(repeats):
        for number in numbers if index % 2 == 0 else reversed(numbers):
            each(number, index, prepared[number].run())
