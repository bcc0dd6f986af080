"""cuBLAS on fewer SMs: its own target for the number of SMs, which it reads at every call, also in a capture."""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch


@contextmanager
def leaving(sms: int, device: torch.device) -> Iterator[None]:
    """What is called inside plans for *sms* fewer SMs than *device* has; 0 changes nothing.

    torch's carveout reaches cuBLASLt alone in torch 2.11, and `mm` goes by cuBLAS: the target of torch's handle is set,
    too. NVIDIA calls both a hint: `nodes` shows how many blocks were launched.
    """
    if not sms or device.type != "cuda":
        yield
        return
    total = int(torch.cuda.get_device_properties(device).multi_processor_count)
    _carve(sms)
    _target(total - sms)
    try:
        yield
    finally:
        _target(0)
        _carve(None)


def on_fewer(call: Callable[[], None], sms: int, device: torch.device) -> Callable[[], None]:
    """*call*, which leaves *sms* SMs free."""

    def called() -> None:
        with leaving(sms, device):
            call()

    return called if sms else call


def _carve(sms: int | None) -> None:
    with warnings.catch_warnings():  # torch warns that it may drop it; then `nodes` shows it
        warnings.simplefilter("ignore")
        torch._C._set_sm_carveout_experimental(sms)


def _target(sms: int) -> None:
    """Of the handle that torch calls cuBLAS with on this thread; 0: all."""
    status = _library().cublasSetSmCountTarget(ctypes.c_void_p(torch.cuda.current_blas_handle()), sms)
    if status:
        raise RuntimeError(f"cuBLAS does not take {sms} as its number of SMs: status {status}.")


@cache
def _library() -> Any:
    """The cuBLAS that torch has loaded: one process has one of this name."""
    major = str(torch.version.cuda).partition(".")[0]
    return ctypes.CDLL(f"libcublas.so.{major}")
