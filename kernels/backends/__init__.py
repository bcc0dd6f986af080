"""The backends that run plans on a rank: one folder each, opened by name."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from importlib import util

from kernels.backends.base import Backend, Seat
from kernels.backends.capabilities import dtypes, refusal
from kernels.schedule import Refusal

__all__ = ["dtypes", "is_left", "leave", "open_backend", "refusal", "warm_backends"]


def open_backend(name: str, seat: Seat) -> Backend:
    """Opens the backend called *name* for one rank of a gang; Refusal lists the names."""
    if name not in _OPENS:
        raise Refusal(f"This rank has no backend {name!r}. Accepted: {', '.join(_OPENS)}.")
    return _OPENS[name](seat)


def warm_backends() -> None:
    """Imports and compiles everything that does not depend on a trial."""
    import kernels.backends.cpu.backend
    from kernels.backends.cpu import pooling

    assert kernels.backends.cpu.backend  # so that the import counts as used
    pooling.warm()
    _warm_gpu()


_GROUPS = "kernels.backends.triton.memory"
"""The module of process groups between GPUs, which a process may be in after the backend was closed."""


def is_left() -> bool:
    """Whether peers wait for this process to leave a process group, of this gang or an earlier one."""
    return _GROUPS in sys.modules and bool(sys.modules[_GROUPS].is_left())


def leave() -> None:
    """Leaves that group, as far as its peers do; called again until they have."""
    if _GROUPS in sys.modules:
        sys.modules[_GROUPS].leave()


def _warm_gpu() -> None:
    """Imports Triton and starts CUDA on a rank with a GPU, so that no trial waits for these seconds."""
    import torch

    if not (torch.cuda.is_available() and util.find_spec("triton")):
        return
    with contextlib.suppress(Exception):  # a trial that needs them reports what is wrong
        import kernels.backends.triton.backend

        assert kernels.backends.triton.backend
        torch.empty(1, device="cuda")


def _cpu(seat: Seat) -> Backend:
    from kernels.backends.cpu.backend import CpuBackend

    return CpuBackend(seat)


def _triton(seat: Seat) -> Backend:
    import torch

    if not torch.cuda.is_available():
        raise Refusal(
            "backend = triton needs a GPU, and torch finds 0 on this host. Accepted: backend = cpu here, or a "
            "cluster whose workers have NVIDIA GPUs."
        )
    from kernels.backends.triton.backend import TritonBackend

    return TritonBackend(seat)


_OPENS: dict[str, Callable[[Seat], Backend]] = {"cpu": _cpu, "triton": _triton}
"""Functions that open a backend, by its name; the names are those of `kernels.machine.BACKENDS`."""
