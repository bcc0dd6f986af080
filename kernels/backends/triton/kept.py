"""Compiled kernels stay in this process for the trials that come: those that were used last, up to a number.

Triton keeps what it compiled twice: in each process, by function, kinds of arguments, constants and options; and in
files of the user on each host, which other processes read instead of compiling. It never empties either. The files are
the user's to delete; here the oldest kernels leave the process, and would be read from the files again.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

MOST = 256
"""Kernels of a process: each takes one to two megabytes of its memory, for the texts of all steps of compilation."""

_used: OrderedDict[int, tuple[Any, Any]] = OrderedDict()
"""Function and compiled kernel, the one used last at the end."""


def use(function: Any, compiled: Any) -> None:
    """*function*, a `triton.JITFunction`, is about to be launched as *compiled*."""
    _used[id(compiled)] = function, compiled
    _used.move_to_end(id(compiled))


def forget_oldest(most: int = MOST) -> int:
    """Leaves *most* kernels; how many went. Called between trials, when nothing of them is launched any more."""
    count = max(0, len(_used) - most)
    for _ in range(count):
        _, (function, compiled) = _used.popitem(last=False)
        _forget(function, compiled)
    return count


def _forget(function: Any, compiled: Any) -> None:
    """Out of Triton's own dictionaries, and out of the GPU where it was loaded: Triton would leave it there."""
    for kernels, *_ in function.device_caches.values():
        for key in [key for key, kernel in kernels.items() if kernel is compiled]:
            del kernels[key]
    if (module := getattr(compiled, "module", None)) is not None:
        from cuda.bindings import driver

        driver.cuModuleUnload(driver.CUmodule(module))
