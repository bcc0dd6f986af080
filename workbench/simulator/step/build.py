"""A model under schemes becomes the tasks of one step: forward from the first layer, backward from the last."""

from __future__ import annotations

from collections.abc import Mapping

from workbench.simulator.step.graph import Graph
from workbench.simulator.step.layers import LAYERS
from workbench.simulator.step.model import Model
from workbench.simulator.step.placed import behind, instances
from workbench.simulator.step.prices import Prices
from workbench.simulator.step.tasks import Task


def tasks(model: Model, prices: Prices, schemes: Mapping[str, str], *, dense_scale: float = 1.0) -> tuple[Task, ...]:
    """The tasks of one step of *model* over the network of *prices*; *schemes* has one for each pass.

    *dense_scale*: how many times as long dense layers take, and as large as their gradients are.
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
