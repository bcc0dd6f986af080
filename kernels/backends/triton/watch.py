"""One call more than is timed, in which everything is written down: when its steps and tiles ran, and on which SM."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from kernels.backends.base import Hang, Unseen
from kernels.backends.triton import clock, timeline
from kernels.backends.triton.context import Context
from kernels.backends.triton.graph import Replay
from kernels.outcome import Span

Call = Callable[[], None]
Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class Watched:
    """Calls that write down when what they do happens, one per set of operands."""

    each: Sequence[Call]
    written: Tensor
    """int64, by the call that came last."""
    spans: Callable[[timeline.Ints, int, float], list[Span]]
    """Of what was written, the moment of the common start and the clock's tick in seconds."""


class Gang(Protocol):
    """What is needed of the backend: all ranks call it in the same order."""

    stream: torch.cuda.Stream

    def barrier(self) -> float:
        """All ranks meet on the host."""

    def exchange(self, values: Sequence[float]) -> list[list[float]]:
        """Everybody's *values*, by rank (equal lengths)."""


def spans(
    gang: Gang, context: Context, make: Callable[[], Watched], warm: Callable[[], None], *, captured: bool
) -> list[Span]:
    """Spans of one call of all ranks together, with operands as cold and clocks as high as those of samples.

    *warm* enqueues a sample's calls. Unseen on all ranks where it did not work on one: what was timed stands.
    """
    try:
        watched = _on_all(gang, make)
        found = _on_all(gang, lambda: _seen(gang, context, watched, warm, captured))
        everyone = gang.exchange(timeline.ends(context.plan, found))
        return timeline.waited_for(context.plan, found, [max(by_rank) for by_rank in zip(*everyone, strict=True)])
    except Unseen:
        raise
    except Exception as error:  # peers are gone
        raise Unseen(f"The call that was to be written down was left by a peer: {error}") from error


def _seen(gang: Gang, context: Context, watched: Watched, warm: Callable[[], None], captured: bool) -> list[Span]:
    """The calls on other operands come first, so that those of the one that is seen are cold."""
    tick_s = clock.measured(context.device).tick_s
    first, others = watched.each[:1], watched.each[1:] or watched.each
    gang.barrier()
    Replay(context, first, gang.stream, captured=False).moments()  # no graph has what was never called
    _check(context)
    replay = Replay(context, first, gang.stream, captured=captured, before=others)
    gang.barrier()
    warm()
    start, _ = replay.moments()
    _check(context)
    return watched.spans(watched.written.cpu().numpy(), start, tick_s)


def _check(context: Context) -> None:
    if sentence := context.failure():
        raise Hang(sentence)


def _on_all(gang: Gang, make: Callable[[], Made]) -> Made:
    """What *make* gives, when it works on all ranks: they go on together or not at all."""
    made, why = None, ""
    try:
        made = make()
    except Exception as error:
        why = f": {type(error).__name__}: {error}"
    failed = [rank for rank, (mine,) in enumerate(gang.exchange([float(made is None)])) if mine]
    if made is None or failed:
        ranks = ", ".join(map(str, failed))
        raise Unseen(f"The call that was to be written down failed on rank {ranks}{why}")
    return made
