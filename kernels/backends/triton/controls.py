"""Whether the controls of a concurrent schedule act: what was asked for, beside what a captured graph holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from kernels.backends.triton import nodes
from kernels.backends.triton.kernels.meet import meet, write_now
from kernels.backends.triton.nodes import Node
from kernels.plan import Plan

OF_THE_CLOCK = (meet.__name__, write_now.__name__)
"""Kernels of one thread block that count nobody's SMs."""


def captured(call: Callable[[], None]) -> list[Node]:
    """The kernels that *call* would launch: it is captured by itself, and never runs."""
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph):
        call()
    return nodes.kernels(graph)


def facts(plan: Plan, rank: int, every: Sequence[Node], computes: set[str], device: torch.device) -> dict[str, Any]:
    """The kernels of one graph by half, and a sentence for each control that they do not show.

    *computes*: the names of those that compute; all others but the clock's are the collective's.
    """
    computing = [node for node in every if node.name in computes]
    others = [node for node in every if node.name not in computes and node.name not in OF_THE_CLOCK]
    sms = int(torch.cuda.get_device_properties(device).multi_processor_count)
    high = bool((plan.launches.priority[plan.launches.rank == rank] > 0).any())
    share = plan.schedule.count("comm_sms")
    unmet = [*of_priority(high, others), *of_share(share, sms, computing, others)]
    return {"controls": {"compute": nodes.facts(computing), "communication": nodes.facts(others), "unmet": unmet}}


def of_priority(high: bool, others: Sequence[Node]) -> list[str]:
    """What the kernels of a collective do not show of its priority."""
    odd = [node for node in others if (node.priority < 0) != high]
    if not odd:
        return []
    sentence = (
        f"comm_priority = {'high' if high else 'normal'} has not reached the graph: {len(odd)} of {len(others)} "
        f"kernels of the collective have priority {odd[0].priority}, {odd[0].name} among them."
    )
    return [sentence]


def of_share(share: int, sms: int, computing: Sequence[Node], others: Sequence[Node]) -> list[str]:
    """What the kernels do not show of *share* of *sms* SMs, which the computation leaves to the collective."""
    if not share:
        return []
    sentences, left = [], sms - share
    largest = max(computing, key=lambda node: node.blocks, default=None)
    if largest is not None and largest.blocks > left and largest.blocks % left:  # else each SM has the same number
        sentences.append(
            f"comm_sms = {share} does not limit the computation: {largest.name} has {largest.blocks} blocks, and "
            f"{left} SMs were left to it."
        )
    largest = max(others, key=lambda node: node.blocks, default=None)
    if largest is not None and largest.blocks > share:
        sentences.append(
            f"comm_sms = {share} does not limit the collective: {largest.name} has {largest.blocks} blocks: "
            f"{largest.blocks} > {share}."
        )
    return sentences
