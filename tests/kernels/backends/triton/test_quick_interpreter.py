"""The quickened interpreter of tests gives the same results bit for bit, and leaves another Triton's alone."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime import interpreter

from kernels.backends.triton import device
from tests.kernels.backends.triton import quick_interpreter
from tests.kernels.backends.triton.conftest import ROOT

SIDE = 16
WHERE = "tests.kernels.backends.triton.test_quick_interpreter"


@triton.jit
def scaled(values, factor):
    return tl.maximum(values * factor, -1.0) + tl.math.exp(-tl.abs(values))


@triton.jit
def worked(left, right, out, sums, counter, ROWS: tl.constexpr, DTYPE: tl.constexpr):
    """Products, device functions, masks, reductions, scans and atomics, on each of several programs."""
    number = tl.program_id(0)
    rows, columns = tl.arange(0, ROWS)[:, None], tl.arange(0, ROWS)[None, :]
    at = rows * ROWS + columns
    total = tl.dot(tl.load(left + at), tl.load(right + at), out_dtype=tl.float32)
    for step in range(3):
        total = scaled(total, 0.5 + step + number)
    tl.store(out + number * ROWS * ROWS + at, total.to(DTYPE), mask=columns < ROWS - number)
    tl.store(sums + number * ROWS + tl.arange(0, ROWS), tl.cumsum(tl.sum(total, axis=1), axis=0))
    tl.atomic_add(counter, tl.max(tl.ravel(at)).to(tl.int32) - number, sem="release", scope="sys")
    if tl.load(counter, volatile=True) > 0:
        tl.atomic_add(counter + 1, device.tile_in_order(number, 2, 2, 1, "natural", 2)[0])


def results() -> list[list[float]]:
    """What two programs of `worked` write for each type of number."""
    written = []
    for dtype, in_triton in ((torch.float32, tl.float32), (torch.float16, tl.float16), (torch.bfloat16, tl.bfloat16)):
        generator = torch.Generator().manual_seed(3)
        left, right = (torch.randn(SIDE, SIDE, generator=generator).to(dtype) for _ in range(2))
        out, sums = torch.zeros(2, SIDE, SIDE, dtype=dtype), torch.zeros(2, SIDE)
        counter = torch.zeros(2, dtype=torch.int32)
        worked[(2,)](left, right, out, sums, counter, ROWS=SIDE, DTYPE=in_triton)
        written += [each.double().flatten().tolist() for each in (out, sums, counter)]
    return written


def replaced() -> list[str]:
    """The functions of the interpreter that are not Triton's own."""
    known = quick_interpreter.PARAMETERS
    return [name for name in known if getattr(interpreter, name).__module__ != interpreter.__name__]


def answer(quick: bool) -> None:
    """Prints, in a process whose kernels are interpreted, what is written twice and which builtins are left."""
    known = quick and quick_interpreter.quicken()
    written = [results(), results()]
    left = [quick_interpreter.builtins(place) for place in (tl, tl.core, tl.core.tensor, tl.math)]
    print(json.dumps({"known": known, "written": written, "left": left, "replaced": replaced()}))


def asked(quick: bool) -> Any:
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "ignore", "-c", f"from {WHERE} import answer; answer({quick})"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, env=environment, timeout=200, cwd=ROOT)
    return json.loads(done.stdout)


@pytest.mark.slow
def test_results_are_the_same_bit_for_bit_and_builtins_are_put_back() -> None:
    usual, quick = asked(False), asked(True)
    assert quick["known"], "this Triton's interpreter is another one: tests of interpreted kernels take twice as long"
    assert all(any(numbers) for numbers in usual["written"][0])
    assert quick["written"] == usual["written"]
    assert quick["left"] == usual["left"]
    assert quick["left"][0], "a launch puts back the builtins that it has replaced"
    assert (usual["replaced"], quick["replaced"]) == ([], ["_patch_builtin", "_get_np_dtype"])


def lost(name: str) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.delattr(interpreter, name)


def renamed(name: str) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setattr(interpreter, name, lambda package, scope: None)


@pytest.mark.parametrize("name", quick_interpreter.PARAMETERS)
@pytest.mark.parametrize("other", [lost, renamed])
def test_another_triton_is_left_as_it_is(name: str, other: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    other(name)(monkeypatch)
    kept = dict(vars(interpreter))
    assert not quick_interpreter.quicken()
    assert dict(vars(interpreter)) == kept
