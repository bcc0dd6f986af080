"""The 17 applications of arXiv:1910.00134, reconstructed from their names, with sizes of our choice.

The paper's text was not available: names and groups are from its abstract and from memory. Each is the pattern of
a common way to compute the layer, in float32 unless its name says otherwise, and many times larger than the L1s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from kernels.schedule import Refusal
from workbench.simulator.cache.hierarchy import LINE_BYTES
from workbench.simulator.cache.patterns import (
    AccessProgram,
    Array,
    KernelAccesses,
    Lines,
    ProductPattern,
    elementwise,
    product,
    stacked,
    where,
)
from workbench.simulator.cache.trace import Trace

MIB = 2**20
KIB = 2**10
RECONSTRUCTED = "reconstructed by us"
"""A note that is shown with the labels."""


@dataclass(frozen=True, slots=True)
class Workload:
    """One application: its name, what it computes, and the function that adds its kernels."""

    name: str
    text: str
    build: Callable[[AccessProgram], None]

    def trace(self, units: int) -> Trace:
        """The accesses of the application on *units* SMs."""
        program = AccessProgram(self.name)
        self.build(program)
        return program.trace(units)


def workload(name: str) -> Workload:
    """The application named *name*; Refusal lists the names."""
    if name not in WORKLOADS:
        raise Refusal(f"There is no workload {name!r}. Accepted: all, {', '.join(WORKLOADS)}.")
    return WORKLOADS[name]


def _activation(program: AccessProgram) -> None:
    x, y = (program.array(name, role, 8 * MIB) for name, role in (("x", "activations"), ("y", "output")))
    elementwise(program, "relu", [x], [y])


def _activation_backward(program: AccessProgram) -> None:
    y, dy = (program.array(name, "activations", 6 * MIB) for name in ("y", "dy"))
    elementwise(program, "relu backward", [y, dy], [program.array("dx", "output", 6 * MIB)])


POOLED, WIDE = 64, 4
"""Rows of a plane after pooling, and lines of a row before it.

A plane has 2 * POOLED rows before pooling; 3 x 3 windows overlap.
"""


def _pooling(program: AccessProgram, planes: int = 192) -> None:
    x = program.array("x", "activations", planes * 2 * POOLED * WIDE * LINE_BYTES)
    y = program.array("y", "output", planes * POOLED * WIDE // 2 * LINE_BYTES)
    _pool(program, x, y, planes)


def _pool(program: AccessProgram, x: Array, y: Array, planes: int) -> None:
    """Add a pooling kernel: a block computes a row of windows from three rows, and the next block rereads the last."""

    def lines(block: Lines, step: Lines) -> Lines:
        plane, row = block // POOLED, block % POOLED
        window = np.minimum(2 * row + step, 2 * POOLED - 1)
        loads = [x.line((plane * 2 * POOLED + window) * WIDE + i) for i in range(WIDE)]
        stores = [where(step == 2, y.line(block * (WIDE // 2) + i)) for i in range(WIDE // 2)]
        return stacked(*loads, *stores)

    touches = [program.touch("pool", "load", x)] * WIDE + [program.touch("pool", "store", y)] * (WIDE // 2)
    program.kernels.append(KernelAccesses(planes * POOLED, 3, tuple(touches), lines))


def _pooling_backward(program: AccessProgram, planes: int = 128) -> None:
    """Add the backward kernel of pooling: a block accumulates a row of windows into three rows of dx, which overlap."""
    dy = program.array("dy", "activations", planes * POOLED * WIDE // 2 * LINE_BYTES)
    at = program.array("positions", "indices", planes * POOLED * WIDE // 2 * LINE_BYTES)
    dx = program.array("dx", "output", planes * 2 * POOLED * WIDE * LINE_BYTES)

    def lines(block: Lines, step: Lines) -> Lines:
        plane, row = block // POOLED, block % POOLED
        window = np.minimum(2 * row + step, 2 * POOLED - 1)
        reads = [where(step == 0, each.line(block * (WIDE // 2) + i)) for each in (dy, at) for i in range(WIDE // 2)]
        sums = [dx.line((plane * 2 * POOLED + window) * WIDE + i) for i in range(WIDE)]
        return stacked(*reads, *sums, *sums)

    name, half = "pool backward", WIDE // 2
    touches = ([program.touch(name, "load", dy)] * half + [program.touch(name, "load", at)] * half
               + [program.touch(name, "load", dx)] * WIDE + [program.touch(name, "store", dx)] * WIDE)  # fmt: skip
    program.kernels.append(KernelAccesses(planes * POOLED, 3, tuple(touches), lines))


def _passes(
    program: AccessProgram, name: str, arrays: tuple[list[Array], Array], rows: tuple[int, int], passes: int
) -> None:
    """Add a kernel whose blocks read a row of all inputs *passes* times, and write in the last pass.

    *rows* is the number of rows, and the lines of each.
    """
    inputs, output = arrays
    count, wide = rows

    def lines(block: Lines, step: Lines) -> Lines:
        at = block * wide + step % wide
        return stacked(*(each.line(at) for each in inputs), where(step >= (passes - 1) * wide, output.line(at)))

    touches = [*(program.touch(name, "load", each) for each in inputs), program.touch(name, "store", output)]
    program.kernels.append(KernelAccesses(count, passes * wide, tuple(touches), lines))


def _softmax(program: AccessProgram) -> None:
    """Softmax of 512 rows of 4,096 classes, in three passes: maximum, sum, result."""
    x, y = program.array("x", "activations", 8 * MIB), program.array("y", "output", 8 * MIB)
    _passes(program, "softmax", ([x], y), (512, 128), 3)


def _softmax_backward(program: AccessProgram) -> None:
    y, dy = (program.array(name, "activations", 8 * MIB) for name in ("y", "dy"))
    _passes(program, "softmax backward", ([y, dy], program.array("dx", "output", 8 * MIB)), (512, 128), 2)


def _batch_norm(program: AccessProgram, num_bytes: int = 8 * MIB) -> None:
    """Batch norm of 128 channels, each read three times: for its mean, its variance, and the result."""
    x, y = program.array("x", "activations", num_bytes), program.array("y", "output", num_bytes)
    _passes(program, "batch norm", ([x], y), (128, num_bytes // LINE_BYTES // 128), 3)


def _batch_norm_backward(program: AccessProgram) -> None:
    x, dy = (program.array(name, "activations", 6 * MIB) for name in ("x", "dy"))
    dx = program.array("dx", "output", 6 * MIB)
    _passes(program, "batch norm backward", ([x, dy], dx), (128, 6 * MIB // LINE_BYTES // 128), 2)


def _local_response(program: AccessProgram) -> None:
    """Local response normalisation: each of 64 channels of 16 images reads two channels on either side."""
    images, channels, plane = 16, 64, 28
    num_bytes = images * channels * plane * LINE_BYTES
    x, scale, y = (program.array(name, role, num_bytes)
                   for name, role in (("x", "activations"), ("scale", "output"), ("y", "output")))  # fmt: skip

    def lines(block: Lines, step: Lines) -> Lines:
        image, channel = block // channels, block % channels
        neighbours = [channel + offset for offset in range(-2, 3)]
        reads = [where((c >= 0) & (c < channels), x.line((image * channels + c) * plane + step)) for c in neighbours]
        return stacked(*reads, scale.line(block * plane + step), y.line(block * plane + step))

    touches = [program.touch("lrn", "load", x)] * 5 + [program.touch("lrn", "store", each) for each in (scale, y)]
    program.kernels.append(KernelAccesses(images * channels, plane, tuple(touches), lines))


def _fully_connected(program: AccessProgram) -> None:
    """A fully connected layer: 64 samples of 2,048 features, 2,048 x 1,024 weights."""
    x, w = program.array("x", "activations", 512 * KIB), program.array("w", "weights", 8 * MIB)
    product(program, "fc", ProductPattern(64, 1024, 2048, 32, 32), (x, w, program.array("y", "output", 256 * KIB)))


def _sgemm(program: AccessProgram) -> None:
    a, b, c = _square(program, 4 * MIB)
    product(program, "sgemm", ProductPattern(1024, 1024, 1024, 64, 64), (a, b, c))


def _dgemm(program: AccessProgram) -> None:
    a, b, c = _square(program, 768 * 768 * 8)
    product(program, "dgemm", ProductPattern(768, 768, 768, 64, 64, itemsize=8), (a, b, c))


def _square(program: AccessProgram, num_bytes: int) -> tuple[Array, Array, Array]:
    return (program.array("a", "activations", num_bytes), program.array("b", "weights", num_bytes),
            program.array("c", "output", num_bytes))  # fmt: skip


HIDDEN, BATCH = 256, 32
"""Hidden units and samples of the recurrent layers."""


def _recurrent(gates: int, steps: int, backward: bool) -> Callable[[AccessProgram], None]:
    """A builder of a recurrent layer: in each time step gates = inputs + h U, and the new h from the gates.

    Backward it goes through the time steps in reverse, and accumulates dU over all of them.
    """
    state = BATCH * HIDDEN * 4

    def build(program: AccessProgram) -> None:
        u = program.array("u", "weights", gates * HIDDEN * HIDDEN * 4)
        inputs = [program.array("inputs", "activations", gates * state)] if steps else []
        kept = [program.array(f"gates {t}", "activations", gates * state) for t in range(steps if backward else 1)]
        h, c = program.array("h", "activations", state), program.array("c", "activations", state)
        for t in range(steps):
            now = kept[t % len(kept)]
            product(program, "gates", ProductPattern(BATCH, gates * HIDDEN, HIDDEN, 16, 32), (h, u, now))
            elementwise(program, "add inputs", [*inputs, now], [now], 4)
            _pointwise(program, "cell", now, (h, c), gates)
        if backward:
            du = program.array("du", "output", gates * HIDDEN * HIDDEN * 4)
            dgates = program.array("dgates", "activations", gates * state)
            for t in reversed(range(steps)):
                elementwise(program, "cell backward", [kept[t]], [dgates], 4)
                product(program, "dh", ProductPattern(BATCH, HIDDEN, gates * HIDDEN, 16, 32), (dgates, u, h))
                product(
                    program, "du", ProductPattern(HIDDEN, gates * HIDDEN, BATCH, 32, 64), (h, dgates, du), adds=True
                )

    return build


def _pointwise(program: AccessProgram, name: str, gates: Array, states: tuple[Array, Array], count: int) -> None:
    """Add a kernel that computes the new states from *count* gates of each unit and the old states."""
    wide = HIDDEN * 4 // LINE_BYTES

    def lines(block: Lines, step: Lines) -> Lines:
        loads = [gates.line((block * count + gate) * wide + step) for gate in range(count)]
        both = [state.line(block * wide + step) for state in states]
        return stacked(*loads, *both, *both)

    touches = [program.touch(name, "load", gates)] * count
    touches += [program.touch(name, verb, state) for verb in ("load", "store") for state in states]
    program.kernels.append(KernelAccesses(BATCH, wide, tuple(touches), lines))


def _composed(program: AccessProgram) -> None:
    """A chain of layers that read each other's output: product, batch norm, ReLU, pooling, product, softmax."""
    planes = 16
    size = planes * 2 * POOLED * WIDE * LINE_BYTES
    images = program.array("patches", "activations", size)
    w = program.array("w", "weights", 256 * 256 * 4)
    hidden = [program.array(name, "activations", size) for name in ("features", "normed", "active")]
    product(program, "layer", ProductPattern(1024, 256, 256, 32, 32), (images, w, hidden[0]))
    _passes(program, "batch norm", ([hidden[0]], hidden[1]), (64, size // LINE_BYTES // 64), 3)
    elementwise(program, "relu", [hidden[1]], [hidden[2]])
    pooled = program.array("pooled", "activations", size // 4)
    _pool(program, hidden[2], pooled, planes)
    v, y = program.array("v", "weights", 1024 * 512 * 4), program.array("y", "output", 64 * 512 * 4)
    product(program, "last", ProductPattern(64, 512, 1024, 32, 32), (pooled, v, y))
    _passes(program, "softmax", ([y], program.array("shares", "output", 64 * 512 * 4)), (64, 16), 3)


WORKLOADS: Mapping[str, Workload] = {
    each.name: each
    for each in (
        Workload("CM", "composed model: product, batch norm, ReLU, pooling, product, softmax", _composed),
        Workload("DGEMM", "matrix product, float64", _dgemm),
        Workload("SGEMM", "matrix product, float32", _sgemm),
        Workload("FwAct", "activation", _activation),
        Workload("BwAct", "activation, backward", _activation_backward),
        Workload("FwPool", "pooling", _pooling),
        Workload("BwPool", "pooling, backward", _pooling_backward),
        Workload("FwSoft", "softmax", _softmax),
        Workload("BwSoft", "softmax, backward", _softmax_backward),
        Workload("FwBN", "batch norm", _batch_norm),
        Workload("BwBN", "batch norm, backward", _batch_norm_backward),
        Workload("FwLRN", "local response normalisation", _local_response),
        Workload("FwFc", "fully connected", _fully_connected),
        Workload("FwGRU", "GRU", _recurrent(3, 16, backward=False)),
        Workload("FwLSTM", "LSTM", _recurrent(4, 12, backward=False)),
        Workload("FwBwGRU", "GRU, forward and backward", _recurrent(3, 5, backward=True)),
        Workload("FwBwLSTM", "LSTM, forward and backward", _recurrent(4, 4, backward=True)),
    )
}
"""All applications by name."""
