"""Who computes: one backend per folder, found by name."""

from __future__ import annotations

from collections.abc import Callable

from kernels.backends.base import Backend, Seat
from kernels.schedule import Refusal

BACKENDS = ("cpu",)


def open_backend(name: str, seat: Seat) -> Backend:
    """The backend called *name*, opened for one rank of a gang."""
    opens: dict[str, Callable[[Seat], Backend]] = {"cpu": _cpu}
    if name not in opens:
        raise Refusal(f"backend {name!r} was asked for, which this rank does not have. Accepted: {', '.join(opens)}.")
    return opens[name](seat)


def warm_backends() -> None:
    """Imports and compiles what does not depend on a trial."""
    import kernels.backends.cpu.backend
    from kernels.backends.cpu import pooling

    assert kernels.backends.cpu.backend
    pooling.warm()


def _cpu(seat: Seat) -> Backend:
    from kernels.backends.cpu.backend import CpuBackend

    return CpuBackend(seat)
