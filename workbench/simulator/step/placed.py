"""A model's layers in their places: chains and repeated blocks laid out, and who waits for whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from workbench.simulator.step.model import Layer, Model


@dataclass(frozen=True, slots=True)
class Instance:
    """A layer in its place: the n-th of a chain, or of a repeated block."""

    layer: Layer
    label: str
    after: tuple[int, ...]
    """Places of the layers that it waits for."""


def instances(model: Model) -> list[Instance]:
    """All layers as often as they stand in the model, in order."""
    made: list[Instance] = []
    last: dict[str, int] = {}
    for block, layers in groupby(model.layers, key=lambda layer: layer.block):
        neighbours, rounds = list(layers), model.repeat[block] if block else 1
        for turn in range(rounds):
            for layer in neighbours:
                for link in range(layer.repeat):
                    label = layer.name + (f" {turn + 1}" if rounds > 1 else "") + (f".{link + 1}" * (layer.repeat > 1))
                    made.append(Instance(layer, label, _after(layer, link, made, last)))
                last[layer.name] = len(made) - 1
    return made


def _after(layer: Layer, link: int, made: Sequence[Instance], last: Mapping[str, int]) -> tuple[int, ...]:
    if link or layer.after is None:
        return (len(made) - 1,) if made else ()
    return tuple(last[name] for name in layer.after)


def behind(placed: Sequence[Instance]) -> list[list[int]]:
    """By place: those that wait for it."""
    waiting: list[list[int]] = [[] for _ in placed]
    for number, each in enumerate(placed):
        for before in each.after:
            waiting[before].append(number)
    return waiting
