"""Interpreted programs of one launch side by side, a process for each, as a GPU runs them.

The interpreter runs the programs of a rank one after the other, so that none may wait for a later one. Programs that
only send come last and are waited for by those that compute, of this rank and of its peers.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable
from itertools import cycle
from typing import Any

from torch import Tensor
from triton.runtime import interpreter

LATER_S = 0.02
"""How much later each program begins than the one before it: as long as the interpreter takes for a small tile."""


def shared(tensor: Tensor) -> Tensor:
    """*tensor*, whose memory processes that are forked from now on share, with all of its views."""
    tensor.untyped_storage().share_memory_()
    return tensor


def side_by_side(launch: Callable[[], Any], programs: int) -> Callable[[], None]:
    """A call of *launch*, of one interpreted program, that runs *programs* of them and returns when all have ended.

    One begins after the other: first the last one, and in every second call the first one. What they write has to lie
    in shared memory. RuntimeError where one of them raised.
    """
    rewrite_all()
    orders = cycle((range(programs)[::-1], range(programs)))

    def call() -> None:
        children = [_forked(launch, number, programs, LATER_S * place) for place, number in enumerate(next(orders))]
        ended = [os.waitpid(child, 0)[1] for child in children]
        if any(ended):
            raise RuntimeError(f"programs ended with {ended}: the traceback is above")

    return call


def rewrite_all() -> None:
    """Rewrites all functions of our kernels once, as the interpreter does: what processes do, they do each."""
    modules = [module for name, module in sys.modules.items() if name.startswith("kernels.backends.triton")]
    functions = [value for module in modules for value in vars(module).values()]
    for function in functions:
        if isinstance(function, interpreter.InterpretedFunction):
            function.rewrite()


def _forked(launch: Callable[[], Any], number: int, programs: int, late_s: float) -> int:
    """The process that runs program *number*, *late_s* from now."""
    if child := os.fork():
        return child
    status = 1
    try:
        builder = interpreter.interpreter_builder
        sized, placed = builder.set_grid_dim, builder.set_grid_idx
        builder.set_grid_dim = lambda *_: sized(programs, 1, 1)
        builder.set_grid_idx = lambda *_: placed(number, 0, 0)
        time.sleep(late_s)
        launch()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)  # without what the rank would do at its own end
