"""Which worker has which GPU: one each at most, by UUID, dealt before its rank process starts, kept until it leaves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cluster.gpus import Gpu

Dealt = tuple[str, Gpu | None]
"""A worker, and the GPU that it has; None: its ranks are CPU ranks."""


class Dealer:
    """All GPUs of one cluster. A GPU is known by its UUID, so that hosts, containers and pods need no names here."""

    def __init__(self) -> None:
        self._has: dict[str, Gpu | None] = {}
        self._undecided: dict[str, Sequence[Gpu]] = {}

    def sees(self, worker: str, gpus: Sequence[Gpu]) -> list[Dealt]:
        """What *worker* gets of *gpus*, if that is decided at once: it asks again, or it has no choice.

        A worker that may have any of several waits for the next `decide`: others that come meanwhile may depend on one.
        """
        if worker not in self._has and len(gpus) > 1:
            self._undecided[worker] = gpus
            return []
        return [self._deal(worker, gpus)]

    def decide(self) -> list[Dealt]:
        """What those get that had a choice: who has the fewest to choose from goes first, then who came first."""
        waiting, self._undecided = self._undecided, {}
        return [self._deal(worker, waiting[worker]) for worker in sorted(waiting, key=lambda name: len(waiting[name]))]

    def back(self, worker: str) -> None:
        """*worker* has left: its GPU is for the next one that asks."""
        self._has.pop(worker, None)
        self._undecided.pop(worker, None)

    def _deal(self, worker: str, gpus: Iterable[Gpu]) -> Dealt:
        if worker not in self._has:
            taken = {gpu.uuid for gpu in self._has.values() if gpu is not None}
            # in the worker's own order: dask-cuda turns the list of each worker so that its own GPU comes first
            self._has[worker] = next((gpu for gpu in gpus if gpu.uuid and gpu.uuid not in taken), None)
        return worker, self._has[worker]
