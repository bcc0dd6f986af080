"""What each kind of layer does in a step: its tasks forward, and its tasks backward."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kernels.operators import operator, problem
from kernels.operators.base import Flow
from kernels.problem import Problem
from workbench.simulator.step.graph import Graph, Sent
from workbench.simulator.step.model import OPERATOR_OF, Layer
from workbench.simulator.step.placed import Instance
from workbench.simulator.step.prices import Moved, buffer_bytes
from workbench.simulator.step.tasks import BACKWARD, FORWARD, Group

UPDATE = 2.0
"""An embedding's update takes as long as so many lookups: it reads and writes the rows (assumed, without the
optimizer's state)."""
MIRROR: Mapping[str, str | None] = {
    "all_gather_gemm": "gemm_reduce_scatter",
    "gemm_reduce_scatter": "all_gather_gemm",
    "all_to_all_gemm": "gemm_all_to_all",
    "gemm_all_to_all": "all_to_all_gemm",
    "gemm_all_reduce": None,
}
"""By operator, the one whose GEMM and collective make the gradient of its input; None: a GEMM alone does."""


def _operate(graph: Graph, of: Instance, passes: str, after: Sequence[int], wanted: Problem) -> tuple[int, int]:
    """An operator of ours: the task that computes, and the last one. Without overlap they are two."""
    group, kind = graph.neighbours(of.layer), operator(wanted.operator)
    priced = graph.prices.operator(wanted, graph.schemes[passes], graph.links(group))
    sent = Sent(kind.collective, buffer_bytes(wanted) if wanted.world > 1 else 0.0, group)
    if wanted.world == 1:
        alone = graph.computes(of, passes, "", priced.whole_s, after)
        return alone, alone
    if priced.overlaps:
        both = graph.both(of, passes, sent, priced, after)
        return both, both
    moved = Moved(priced.comm_s, priced.by_level)
    if kind.flow is Flow.RECEIVE:
        computes = graph.computes(of, passes, "", priced.compute_s, [graph.moves(of, passes, sent, moved, after)])
        return computes, computes
    computes = graph.computes(of, passes, "", priced.compute_s, after)
    return computes, graph.moves(of, passes, sent, moved, [computes])


def _problem(graph: Graph, of: Layer, name: str, m: str, n: str, k: str) -> Problem:
    """The problem of operator *name* with these sizes of the layer, over its group."""
    shape = {"m": graph.size(of, m), "n": graph.size(of, n), "k": graph.size(of, k)}
    return problem(name, shape, dtype=graph.dtype(of), world=graph.neighbours(of).size)


def _gemm_forward(graph: Graph, of: Instance, after: Sequence[int]) -> int:
    return _operate(graph, of, FORWARD, after, _problem(graph, of.layer, of.layer.kind, "m", "n", "k"))[1]


def _gemm_backward(graph: Graph, of: Instance, after: Sequence[int]) -> int:
    """The gradient of the input goes where the input came from; that of the weights is summed over the replicas."""
    layer, mirror = of.layer, MIRROR[of.layer.kind]
    m, n, k = (graph.size(layer, key) for key in ("m", "n", "k"))
    if mirror is None:
        computes = last = graph.computes(of, BACKWARD, "dgrad", graph.prices.gemm(graph.dtype(layer), m, k, n), after)
    else:
        computes, last = _operate(graph, of, BACKWARD, after, _problem(graph, layer, mirror, "m", "k", "n"))
    seconds = graph.prices.gemm(graph.dtype(layer), k, n, m)
    weights = graph.computes(of, BACKWARD, "wgrad", seconds, [computes])
    num_bytes = float(graph.size(layer, "weights") * n * k * graph.itemsize)
    graph.sums(of, num_bytes, Group(graph.neighbours(layer).size, neighbours=False), weights)
    return last


def _dense_seconds(graph: Graph, of: Layer, m: str, n: str, k: str) -> float:
    sizes = (graph.size(of, key) for key in (m, n, k))
    return graph.dense_scale * graph.prices.gemm(graph.dtype(of), *sizes)


def _dense_forward(graph: Graph, of: Instance, after: Sequence[int]) -> int:
    return graph.computes(of, FORWARD, "", _dense_seconds(graph, of.layer, "m", "n", "k"), after)


def _dense_backward(graph: Graph, of: Instance, after: Sequence[int]) -> int:
    """Every rank has all of the weights: their gradients are summed over all."""
    layer = of.layer
    inputs = graph.computes(of, BACKWARD, "dgrad", _dense_seconds(graph, layer, "m", "k", "n"), after)
    weights = graph.computes(of, BACKWARD, "wgrad", _dense_seconds(graph, layer, "k", "n", "m"), [inputs])
    num_bytes = graph.dense_scale * graph.size(layer, "n") * graph.size(layer, "k") * graph.itemsize
    graph.sums(of, num_bytes, Group(graph.network.world), weights)
    return inputs


def _matmul_seconds(graph: Graph, of: Layer) -> float:
    sizes = (graph.size(of, key) for key in ("m", "n", "k"))
    return graph.size(of, "count") * graph.prices.gemm(graph.dtype(of), *sizes)


def _matmul_forward(graph: Graph, of: Instance, after: Sequence[int]) -> int:
    return graph.computes(of, FORWARD, "", _matmul_seconds(graph, of.layer), after)


def _matmul_backward(graph: Graph, of: Instance, after: Sequence[int]) -> int:
    """Both operands have a gradient, each a product of the same size."""
    return graph.computes(of, BACKWARD, "", 2 * _matmul_seconds(graph, of.layer), after)


def _memory(passes: str) -> Callable[[Graph, Instance, Sequence[int]], int]:
    """The gradient moves as many bytes as the layer."""

    def task(graph: Graph, of: Instance, after: Sequence[int]) -> int:
        seconds = graph.prices.memory(graph.dtype(of.layer), graph.size(of.layer, "bytes"))
        return graph.computes(of, passes, "", seconds, after)

    return task


def lookup(graph: Graph, of: Layer) -> Problem:
    """The lookup of the fullest rank: whole tables, or columns of one where there are more ranks than tables."""
    tables, dim, world = graph.size(of, "tables"), graph.size(of, "dim"), graph.neighbours(of).size
    per_rank = -(-tables // world)
    width = dim if world <= tables else -(-tables * dim // world)
    batch = graph.size(of, "m") * world
    shape = {"tables_per_rank": per_rank, "rows": graph.size(of, "rows"), "dim": width, "batch": batch,
             "pooling": graph.size(of, "pooling")}  # fmt: skip
    return problem(OPERATOR_OF[of.kind], shape, dtype=graph.dtype(of), world=world)


def _embedding_forward(graph: Graph, of: Instance, after: Sequence[int]) -> int:
    return _operate(graph, of, FORWARD, after, lookup(graph, of.layer))[1]


def _embedding_backward(graph: Graph, of: Instance, after: Sequence[int]) -> int:
    """Gradients of pooled vectors go to who has the table and updates its rows; no operator of ours does both."""
    forward, group = lookup(graph, of.layer), graph.neighbours(of.layer)
    alone = graph.prices.operator(_one_rank(forward), graph.schemes[BACKWARD], graph.network.inner(1)).whole_s
    if forward.world == 1:
        return graph.computes(of, BACKWARD, "update", UPDATE * alone, after)
    sent = Sent(operator(forward.operator).collective, buffer_bytes(forward), group)
    priced = graph.prices.pipelined(graph.schemes[BACKWARD], graph.links(group), sent.collective, sent.num_bytes,
                                    UPDATE * alone)  # fmt: skip
    if priced.overlaps:
        return graph.both(of, BACKWARD, sent, priced, after)
    moved = graph.moves(of, BACKWARD, sent, Moved(priced.comm_s, priced.by_level), after)
    return graph.computes(of, BACKWARD, "update", priced.compute_s, [moved])


def _one_rank(of: Problem) -> Problem:
    return problem(of.operator, dict(of.shape), dtype=of.dtype, world=1)


Makes = Callable[[Graph, Instance, Sequence[int]], int]
"""Adds the tasks of a layer that waits for others, and returns the one that the next layer waits for."""
LAYERS: Mapping[str, tuple[Makes, Makes]] = {
    "embedding": (_embedding_forward, _embedding_backward),
    "dense": (_dense_forward, _dense_backward),
    "matmul": (_matmul_forward, _matmul_backward),
    "memory": (_memory(FORWARD), _memory(BACKWARD)),
    **dict.fromkeys(MIRROR, (_gemm_forward, _gemm_backward)),
}
"""By kind of layer: forward, backward."""
