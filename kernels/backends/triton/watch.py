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
    watched = _on_all(gang, make)
    first, others = watched.each[:1], watched.each[1:] or watched.each
    # once without a graph, since none can be made of what was never called
    _on_all(gang, lambda: _moments(context, Replay(context, first, gang.stream, captured=False)))
    replay = _on_all(gang, lambda: Replay(context, first, gang.stream, captured=captured, before=others))

    def seen() -> list[Span]:
        """The calls on other operands come before it, so that its own are cold."""
        warm()
        start, _ = _moments(context, replay)
        tick_s = clock.measured(context.device).tick_s
        return watched.spans(watched.written.cpu().numpy(), start, tick_s)

    found = _on_all(gang, seen)
    everyone = _together(lambda: gang.exchange(timeline.ends(context.plan, found)))
    return timeline.waited_for(context.plan, found, [max(by_rank) for by_rank in zip(*everyone, strict=True)])


def _moments(context: Context, replay: Replay) -> tuple[int, int]:
    found = replay.moments()
    if sentence := context.failure():
        raise Hang(sentence)
    return found


def _on_all(gang: Gang, make: Callable[[], Made]) -> Made:
    """What *make* gives, when it works on all ranks: they go on together or not at all.

    Nothing in *make* waits for a peer on the host, so that a rank that fails meets the others here. On the GPU our
    kernels wait until their deadline. A call of NCCL whose peer never comes has none, and its rank is silent: torch's
    watchdog ends the process after the group's timeout (`heap.Group`), but does not know calls in a captured
    graph; those end with their process, when whoever hears the ranks' reports (`cluster.deadline`) gives the gang up.
    The rank that failed waits for the others on the host no longer than that timeout, and says what it has timed.
    """
    made, why = None, ""
    try:
        made = make()
    except Exception as error:
        why = f": {type(error).__name__}: {error}"
    answers = _together(lambda: gang.exchange([float(made is None)]))
    failed = [rank for rank, (mine,) in enumerate(answers) if mine]
    if made is None or failed:
        ranks = ", ".join(map(str, failed))
        raise Unseen(f"The call that records the timeline failed on rank {ranks}{why}")
    _together(gang.barrier)  # what was made lies ready on all GPUs
    return made


def _together(meet: Callable[[], Made]) -> Made:
    """What all ranks say to each other; a peer that is not there in time is gone."""
    try:
        return meet()
    except Exception as error:
        gone = Unseen(f"A peer left the call that records the timeline: {error}")
        gone.alone = True
        raise gone from error
