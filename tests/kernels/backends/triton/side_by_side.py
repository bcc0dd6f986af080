"""Interpreted programs of one launch side by side, a process for each, as a GPU runs them.

The interpreter runs the programs of a rank one after the other, so that none may wait for a later one. Programs that
only send come last and are waited for by those that compute, of this rank and of its peers.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from typing import Any

from torch import Tensor
from triton.runtime import interpreter


def shared(tensor: Tensor) -> Tensor:
    """*tensor*, whose memory processes that are forked from now on share, with all of its views."""
    tensor.untyped_storage().share_memory_()
    return tensor


def side_by_side(launch: Callable[[], Any], programs: int) -> Callable[[], None]:
    """A call of *launch*, of one interpreted program, that runs *programs* of them and returns when all have ended.

    What they write has to lie in shared memory. RuntimeError where one of them raised.
    """

    def call() -> None:
        children = [_forked(launch, number, programs) for number in range(programs)]
        ended = [os.waitpid(child, 0)[1] for child in children]
        if any(ended):
            raise RuntimeError(f"programs ended with {ended}: the traceback is above")

    return call


def _forked(launch: Callable[[], Any], number: int, programs: int) -> int:
    """The process that runs program *number*."""
    if child := os.fork():
        return child
    status = 1
    try:
        builder = interpreter.interpreter_builder
        sized, placed = builder.set_grid_dim, builder.set_grid_idx
        builder.set_grid_dim = lambda *_: sized(programs, 1, 1)
        builder.set_grid_idx = lambda *_: placed(number, 0, 0)
        launch()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)  # without what the rank would do at its own end
