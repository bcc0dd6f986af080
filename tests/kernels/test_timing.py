"""Trials of one sitting take turns forwards and backwards, and warm-ups are not counted."""

from collections.abc import Iterator, Sequence
from typing import Any

from kernels.bench import interleaved, warm_up
from kernels.outcome import Span


class Fake:
    roundings = seed = 0

    def __init__(self, name: str, log: list[str]) -> None:
        self.name, self.log = name, log

    def run(self) -> float:
        self.log.append(self.name)
        return 1.0

    def forget(self) -> None:
        self.log.append(f"forget {self.name}")

    def facts(self) -> dict[str, Any]:
        return {}

    def rehearse(self) -> Iterator[int]:
        return iter(())

    def result(self) -> None: ...

    def spans(self, iteration: int) -> Sequence[Span]:
        return ()


def test_turns_go_forwards_and_backwards_after_the_warm_ups() -> None:
    log: list[str] = []
    seen: list[tuple[int, int]] = []
    trials = [Fake(name, log) for name in "ABC"]
    warm_up(trials, 2, lambda number: log.append(f"say {number}"))
    interleaved(trials, 2, lambda number, index, seconds: seen.append((number, index)))
    warmed = ["say 0", "A", "say 1", "B", "say 2", "C"]
    assert log == [*warmed, *warmed, "forget A", "forget B", "forget C", *"ABC", *"CBA"]
    assert seen == [(0, 0), (1, 0), (2, 0), (2, 1), (1, 1), (0, 1)]
