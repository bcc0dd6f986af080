"""A model under schemes becomes the tasks of one step: forward from the first layer, backward from the last."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kernels.operators import operator, problem
from kernels.operators.base import Flow
from kernels.problem import Problem
from kernels.units import DTYPE_BYTES
from workbench.simulator.scaling.model import OPERATOR_OF, Instance, Layer, Model, behind, instances
from workbench.simulator.scaling.network import Network
from workbench.simulator.scaling.prices import LibraryTransfer, OperatorPrice, Prices, buffer_bytes

# Tasks: the nodes of a step's graph, with their dependencies and the resources of a rank that they hold.

COMPUTE = "compute"
"""The resource that is a rank's processor; its links are `level 0`, `level 1`, ..."""
FORWARD, BACKWARD = "forward", "backward"
GRADIENTS = "gradients"
"""The pass of the collectives that sum the gradients of weights, during the backward pass."""


def level_name(level: int) -> str:
    """Name of the resource for a rank's links of *level*."""
    return f"level {level}"


@dataclass(frozen=True, slots=True)
class RankSubset:
    """The ranks of a collective: blocks of *size* neighbours, or one rank of every such block."""

    size: int
    neighbours: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One computation, one collective, or an overlapped pair of both."""

    name: str
    layer: str
    passes: str
    """`forward`, `backward` or `gradients`; of a bucket of gradients, the layer is its last."""
    seconds: float
    compute_s: float = 0.0
    """Seconds of computation, which a slow rank takes longer for."""
    holds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """For each held resource, the beginning and end of holding it, in seconds after the task's start."""
    after: tuple[int, ...] = ()
    """Numbers of the tasks that it waits for; all are smaller than its own."""
    group: RankSubset | None = None
    """The ranks that communicate; None without communication."""
    collective: str = ""
    num_bytes: float = 0.0
    """Bytes as the collective counts them: one rank's whole buffer, or its contribution to a gather."""

    uneven: bool = False
    """Whether ranks have different shares of the work, as tables and experts are not equally popular."""
    by_level: tuple[float, ...] = ()
    """Seconds for which the links of each level are busy; exposed time is divided in proportion to them."""

    @property
    def overlaps(self) -> bool:
        """Whether the task computes and communicates at once."""
        return self.group is not None and self.compute_s > 0


# A graph under construction: computations, collectives, overlapped pairs, and gradients in buckets.

BUCKET_BYTES = 25 * 2**20
"""Gradients that are summed in one call: the default of torch's DistributedDataParallel."""


@dataclass(frozen=True, slots=True)
class TaskCommunication:
    """The collective of a task, its size and its ranks."""

    collective: str
    num_bytes: float
    """Bytes as the collective counts them."""
    group: RankSubset


@dataclass(slots=True)
class Gradients:
    """A bucket of gradients that wait to be summed over one group."""

    num_bytes: float = 0.0
    tasks: list[int] = field(default_factory=list)
    layers: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Graph:
    """The tasks so far, and the model, prices and schemes that they are made from."""

    model: Model
    prices: Prices
    schemes: Mapping[str, str]
    """The scheme of operators by pass."""
    dense_scale: float = 1.0
    tasks: list[Task] = field(default_factory=list)
    _gradients: dict[RankSubset, Gradients] = field(default_factory=dict)

    @property
    def network(self) -> Network:
        return self.prices.network

    @property
    def itemsize(self) -> int:
        """Bytes of an element of a weight's gradient."""
        return DTYPE_BYTES[self.model.dtype]

    def dtype(self, of: Layer) -> str:
        """Type of the operands of layer *of*."""
        return of.dtype or self.model.dtype

    def size(self, of: Layer, key: str) -> int:
        """The size *key* of a layer in this world."""
        size = of.weights if key == "weights" else of.sizes.get(key, self.model.samples)
        return self.model.size(size, f"{key} of layer {of.name}", self.network.world)

    def neighbours(self, of: Layer) -> RankSubset:
        """The ranks that share the computation of layer *of*."""
        return RankSubset(self.model.group(of.group, self.network.world))

    def links(self, group: RankSubset) -> Network:
        """The part of the network that joins the ranks of *group*."""
        return self.network.inner(group.size) if group.neighbours else self.network.outer(group.size)

    def computes(self, of: Instance, passes: str, part: str, seconds: float, after: Sequence[int]) -> int:
        """Add a task that computes and sends nothing; return its number."""
        return self._add(Task(name=f"{of.label} {part}".strip(), layer=of.layer.name, passes=passes, seconds=seconds,
                              compute_s=seconds, holds={COMPUTE: (0.0, seconds)}, after=tuple(after),
                              uneven=of.layer.is_uneven))  # fmt: skip

    def moves(
        self, of: Instance, passes: str, sent: TaskCommunication, moved: LibraryTransfer, after: Sequence[int]
    ) -> int:
        """Add a call of the library, which holds the links of its levels until its end; return its number."""
        return self._add(_call(f"{of.label} {sent.collective}", of.layer.name, passes, sent, moved, after))

    def both(
        self, of: Instance, passes: str, sent: TaskCommunication, priced: OperatorPrice, after: Sequence[int]
    ) -> int:
        """Add a task that computes and sends at once, which holds its links until its end; return its number."""
        holds = {COMPUTE: (0.0, priced.held_s), **_links(priced.by_level, priced.whole_s)}
        return self._add(Task(name=f"{of.label} {sent.collective}", layer=of.layer.name, passes=passes,
                              seconds=priced.whole_s, compute_s=priced.compute_s, holds=holds, after=tuple(after),
                              group=sent.group, collective=sent.collective, num_bytes=sent.num_bytes,
                              by_level=priced.by_level, uneven=of.layer.is_uneven))  # fmt: skip

    def sums(self, of: Instance, num_bytes: float, group: RankSubset, task: int) -> None:
        """Put the gradient that *task* computes into the bucket of its group; a full bucket is summed."""
        if self.links(group).world == 1:
            return
        waiting = self._gradients.setdefault(group, Gradients())
        waiting.num_bytes += num_bytes
        waiting.tasks.append(task)
        waiting.layers.append(of.layer.name)
        if waiting.num_bytes >= BUCKET_BYTES:
            self._sum(group)

    def sum_rest(self) -> None:
        """Sum the gradients remaining in all buckets."""
        for group in list(self._gradients):
            self._sum(group)

    def _sum(self, group: RankSubset) -> None:
        waiting = self._gradients.pop(group)
        sent = TaskCommunication("all_reduce", waiting.num_bytes, group)
        moved = self.prices.collective(self.links(group), sent.collective, sent.num_bytes)
        names = f"{waiting.layers[0]} .. {waiting.layers[-1]}" if len(set(waiting.layers)) > 1 else waiting.layers[0]
        self._add(_call(f"gradients of {names}", waiting.layers[-1], GRADIENTS, sent, moved, waiting.tasks))

    def _add(self, task: Task) -> int:
        self.tasks.append(task)
        return len(self.tasks) - 1


def _call(
    name: str, layer: str, passes: str, sent: TaskCommunication, moved: LibraryTransfer, after: Sequence[int]
) -> Task:
    return Task(name=name, layer=layer, passes=passes, seconds=moved.seconds,
                holds=_links(moved.by_level, moved.seconds), after=tuple(after), group=sent.group,
                collective=sent.collective, num_bytes=sent.num_bytes, by_level=moved.by_level)  # fmt: skip


def _links(by_level: Sequence[float], seconds: float) -> dict[str, tuple[float, float]]:
    return {level_name(at): (0.0, seconds) for at, busy in enumerate(by_level) if busy}


# Kinds of layers: their tasks forward and backward.

UPDATE = 2.0
"""Duration of an embedding's update in lookups: it reads and writes the rows (assumed, without optimizer state)."""
MIRROR: Mapping[str, str | None] = {
    "all_gather_gemm": "gemm_reduce_scatter",
    "gemm_reduce_scatter": "all_gather_gemm",
    "all_to_all_gemm": "gemm_all_to_all",
    "gemm_all_to_all": "all_to_all_gemm",
    "gemm_all_reduce": None,
}
"""For each operator, the one whose GEMM and collective compute the gradient of its input; None: a GEMM alone."""


def _operate(graph: Graph, of: Instance, passes: str, after: Sequence[int], of_layer: Problem) -> tuple[int, int]:
    """Add an operator; return the task that computes and the last task, which differ without overlap."""
    group, kind = graph.neighbours(of.layer), operator(of_layer.operator)
    priced = graph.prices.operator(of_layer, graph.schemes[passes], graph.links(group))
    sent = TaskCommunication(kind.collective, buffer_bytes(of_layer) if of_layer.world > 1 else 0.0, group)
    if of_layer.world == 1:
        alone = graph.computes(of, passes, "", priced.whole_s, after)
        return alone, alone
    if priced.overlaps:
        both = graph.both(of, passes, sent, priced, after)
        return both, both
    moved = LibraryTransfer(priced.comm_s, priced.by_level)
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
    """Add the gradients of the input, sent to where it came from, and of the weights, summed over the replicas."""
    layer, mirror = of.layer, MIRROR[of.layer.kind]
    m, n, k = (graph.size(layer, key) for key in ("m", "n", "k"))
    if mirror is None:
        computes = last = graph.computes(of, BACKWARD, "dgrad", graph.prices.gemm(graph.dtype(layer), m, k, n), after)
    else:
        computes, last = _operate(graph, of, BACKWARD, after, _problem(graph, layer, mirror, "m", "k", "n"))
    seconds = graph.prices.gemm(graph.dtype(layer), k, n, m)
    weights = graph.computes(of, BACKWARD, "wgrad", seconds, [computes])
    num_bytes = float(graph.size(layer, "weights") * n * k * graph.itemsize)
    graph.sums(of, num_bytes, RankSubset(graph.neighbours(layer).size, neighbours=False), weights)
    return last


def _dense_seconds(graph: Graph, of: Layer, m: str, n: str, k: str) -> float:
    sizes = (graph.size(of, key) for key in (m, n, k))
    return graph.dense_scale * graph.prices.gemm(graph.dtype(of), *sizes)


def _dense_forward(graph: Graph, of: Instance, after: Sequence[int]) -> int:
    return graph.computes(of, FORWARD, "", _dense_seconds(graph, of.layer, "m", "n", "k"), after)


def _dense_backward(graph: Graph, of: Instance, after: Sequence[int]) -> int:
    """Add the gradients of a dense layer; every rank has all of its weights, so that they are summed over all ranks."""
    layer = of.layer
    inputs = graph.computes(of, BACKWARD, "dgrad", _dense_seconds(graph, layer, "m", "k", "n"), after)
    weights = graph.computes(of, BACKWARD, "wgrad", _dense_seconds(graph, layer, "k", "n", "m"), [inputs])
    num_bytes = graph.dense_scale * graph.size(layer, "n") * graph.size(layer, "k") * graph.itemsize
    graph.sums(of, num_bytes, RankSubset(graph.network.world), weights)
    return inputs


def _matmul_seconds(graph: Graph, of: Layer) -> float:
    sizes = (graph.size(of, key) for key in ("m", "n", "k"))
    return graph.size(of, "count") * graph.prices.gemm(graph.dtype(of), *sizes)


def _matmul_forward(graph: Graph, of: Instance, after: Sequence[int]) -> int:
    return graph.computes(of, FORWARD, "", _matmul_seconds(graph, of.layer), after)


def _matmul_backward(graph: Graph, of: Instance, after: Sequence[int]) -> int:
    """Add the gradients of both operands, each a product of the same size."""
    return graph.computes(of, BACKWARD, "", 2 * _matmul_seconds(graph, of.layer), after)


def _memory(passes: str) -> Callable[[Graph, Instance, Sequence[int]], int]:
    """A builder of a memory-bound layer's task; the gradient moves as many bytes as the layer."""

    def task(graph: Graph, of: Instance, after: Sequence[int]) -> int:
        seconds = graph.prices.memory(graph.dtype(of.layer), graph.size(of.layer, "bytes"))
        return graph.computes(of, passes, "", seconds, after)

    return task


def lookup(graph: Graph, of: Layer) -> Problem:
    """The lookup of the rank with most tables: whole tables, or columns of one if there are more ranks than tables."""
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
    """Add the exchange of the pooled vectors' gradients and the update of the tables; no operator of ours does both."""
    forward, group = lookup(graph, of.layer), graph.neighbours(of.layer)
    alone = graph.prices.operator(_one_rank(forward), graph.schemes[BACKWARD], graph.network.inner(1)).whole_s
    if forward.world == 1:
        return graph.computes(of, BACKWARD, "update", UPDATE * alone, after)
    sent = TaskCommunication(operator(forward.operator).collective, buffer_bytes(forward), group)
    priced = graph.prices.pipelined(graph.schemes[BACKWARD], graph.links(group), sent.collective, sent.num_bytes,
                                    UPDATE * alone)  # fmt: skip
    if priced.overlaps:
        return graph.both(of, BACKWARD, sent, priced, after)
    moved = graph.moves(of, BACKWARD, sent, LibraryTransfer(priced.comm_s, priced.by_level), after)
    return graph.computes(of, BACKWARD, "update", priced.compute_s, [moved])


def _one_rank(of: Problem) -> Problem:
    return problem(of.operator, dict(of.shape), dtype=of.dtype, world=1)


AddTasks = Callable[[Graph, Instance, Sequence[int]], int]
"""Function that adds the tasks of a layer after others, and returns the task that the next layer waits for."""
LAYERS: Mapping[str, tuple[AddTasks, AddTasks]] = {
    "embedding": (_embedding_forward, _embedding_backward),
    "dense": (_dense_forward, _dense_backward),
    "matmul": (_matmul_forward, _matmul_backward),
    "memory": (_memory(FORWARD), _memory(BACKWARD)),
    **dict.fromkeys(MIRROR, (_gemm_forward, _gemm_backward)),
}
"""The forward and backward function of each kind of layer."""


# The step of a model.


def tasks(model: Model, prices: Prices, schemes: Mapping[str, str], *, dense_scale: float = 1.0) -> tuple[Task, ...]:
    """The tasks of one step of *model* over the network of *prices*; *schemes* has one for each pass.

    *dense_scale* scales the time of dense layers and the size of their gradients.
    """
    graph, placed = Graph(model, prices, schemes, dense_scale), instances(model)
    ends: list[int] = []
    for each in placed:
        ends.append(LAYERS[each.layer.kind][0](graph, each, [ends[place] for place in each.after]))
    if model.training:
        used, done = behind(placed), dict[int, int]()
        for place in reversed(range(len(placed))):
            after = [done[each] for each in used[place]] or [ends[place]]
            done[place] = LAYERS[placed[place].layer.kind][1](graph, placed[place], after)
        graph.sum_rest()
    return tuple(graph.tasks)
