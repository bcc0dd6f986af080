"""The tasks of a step while they are made: what computes, what moves, what does both, and gradients in buckets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kernels.units import DTYPE_BYTES
from workbench.simulator.network import Network
from workbench.simulator.step.model import Layer, Model
from workbench.simulator.step.placed import Instance
from workbench.simulator.step.prices import Moved, Prices
from workbench.simulator.step.slices import Priced
from workbench.simulator.step.tasks import COMPUTE, GRADIENTS, Group, Task, level_name

BUCKET_BYTES = 25 * 2**20
"""Gradients that are summed in one call: the default of torch's DistributedDataParallel."""


@dataclass(frozen=True, slots=True)
class Sent:
    """What a task communicates, and with whom."""

    collective: str
    num_bytes: float
    """As the collective counts them."""
    group: Group


@dataclass(slots=True)
class Gradients:
    """What waits to be summed over one group."""

    num_bytes: float = 0.0
    tasks: list[int] = field(default_factory=list)
    layers: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Graph:
    """The tasks so far, and what they are made from."""

    model: Model
    prices: Prices
    schemes: Mapping[str, str]
    """The scheme of operators by pass."""
    dense_scale: float = 1.0
    tasks: list[Task] = field(default_factory=list)
    _gradients: dict[Group, Gradients] = field(default_factory=dict)

    @property
    def network(self) -> Network:
        return self.prices.network

    @property
    def itemsize(self) -> int:
        """Bytes of an element of a weight's gradient."""
        return DTYPE_BYTES[self.model.dtype]

    def dtype(self, of: Layer) -> str:
        """Of the operands of layer *of*."""
        return of.dtype or self.model.dtype

    def size(self, of: Layer, key: str) -> int:
        """The size *key* of a layer in this world."""
        size = of.weights if key == "weights" else of.sizes.get(key, self.model.samples)
        return self.model.size(size, f"{key} of layer {of.name}", self.network.world)

    def neighbours(self, of: Layer) -> Group:
        """The ranks that share in what layer *of* computes."""
        return Group(self.model.group(of.group, self.network.world))

    def links(self, group: Group) -> Network:
        """The part of the network that joins the ranks of *group*."""
        return self.network.inner(group.size) if group.neighbours else self.network.outer(group.size)

    def computes(self, of: Instance, passes: str, words: str, seconds: float, after: Sequence[int]) -> int:
        """A task that has the processor to itself."""
        return self._add(Task(name=f"{of.label} {words}".strip(), layer=of.layer.name, passes=passes, seconds=seconds,
                              compute_s=seconds, holds={COMPUTE: (0.0, seconds)}, after=tuple(after),
                              uneven=of.layer.is_uneven))  # fmt: skip

    def moves(self, of: Instance, passes: str, sent: Sent, moved: Moved, after: Sequence[int]) -> int:
        """A call of the library: it has the links of the levels that it uses until its end."""
        return self._add(_call(f"{of.label} {sent.collective}", of.layer.name, passes, sent, moved, after))

    def both(self, of: Instance, passes: str, sent: Sent, priced: Priced, after: Sequence[int]) -> int:
        """A task that computes and sends: it has its links until its end."""
        holds = {COMPUTE: (0.0, priced.held_s), **_links(priced.by_level, priced.whole_s)}
        return self._add(Task(name=f"{of.label} {sent.collective}", layer=of.layer.name, passes=passes,
                              seconds=priced.whole_s, compute_s=priced.compute_s, holds=holds, after=tuple(after),
                              group=sent.group, collective=sent.collective, num_bytes=sent.num_bytes,
                              by_level=priced.by_level, uneven=of.layer.is_uneven))  # fmt: skip

    def sums(self, of: Instance, num_bytes: float, group: Group, task: int) -> None:
        """The gradient that *task* made waits in the bucket of its group; a full bucket is summed."""
        if self.links(group).world == 1:
            return
        waiting = self._gradients.setdefault(group, Gradients())
        waiting.num_bytes += num_bytes
        waiting.tasks.append(task)
        waiting.layers.append(of.layer.name)
        if waiting.num_bytes >= BUCKET_BYTES:
            self._sum(group)

    def sum_rest(self) -> None:
        """What is left in buckets is summed."""
        for group in list(self._gradients):
            self._sum(group)

    def _sum(self, group: Group) -> None:
        waiting = self._gradients.pop(group)
        sent = Sent("all_reduce", waiting.num_bytes, group)
        moved = self.prices.collective(self.links(group), sent.collective, sent.num_bytes)
        names = f"{waiting.layers[0]} .. {waiting.layers[-1]}" if len(set(waiting.layers)) > 1 else waiting.layers[0]
        self._add(_call(f"gradients of {names}", waiting.layers[-1], GRADIENTS, sent, moved, waiting.tasks))

    def _add(self, task: Task) -> int:
        self.tasks.append(task)
        return len(self.tasks) - 1


def _call(name: str, layer: str, passes: str, sent: Sent, moved: Moved, after: Sequence[int]) -> Task:
    return Task(name=name, layer=layer, passes=passes, seconds=moved.seconds,
                holds=_links(moved.by_level, moved.seconds), after=tuple(after), group=sent.group,
                collective=sent.collective, num_bytes=sent.num_bytes, by_level=moved.by_level)  # fmt: skip


def _links(by_level: Sequence[float], seconds: float) -> dict[str, tuple[float, float]]:
    return {level_name(at): (0.0, seconds) for at, busy in enumerate(by_level) if busy}
