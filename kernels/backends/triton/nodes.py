"""What a captured graph holds: each kernel with its grid, its shared memory and its priority, as the driver says.

Controls of a schedule are asked for on streams and handles; here one reads whether they have arrived at the launches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch


class Node(NamedTuple):
    """One kernel of a graph."""

    name: str
    blocks: int
    threads: int
    """Of a block."""
    shared_bytes: int
    """That each block is given at the launch, beside what the kernel has by itself."""
    priority: int
    """CUDA's: a lower number goes first."""


def kernels(graph: torch.cuda.CUDAGraph) -> list[Node]:
    """Those of *graph*, which was captured with `keep_graph`."""
    from cuda.bindings import driver

    whole = driver.CUgraph(graph.raw_cuda_graph())
    count = _told(driver.cuGraphGetNodes(whole))[1]
    listed = _told(driver.cuGraphGetNodes(whole, count))[0]
    kernel = driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_KERNEL
    return [_node(driver, each) for each in listed if _told(driver.cuGraphNodeGetType(each))[0] == kernel]


def _node(driver: Any, node: Any) -> Node:
    (parameters,) = _told(driver.cuGraphKernelNodeGetParams(node))
    attribute = driver.CUkernelNodeAttrID.CU_LAUNCH_ATTRIBUTE_PRIORITY
    (value,) = _told(driver.cuGraphKernelNodeGetAttribute(node, attribute))
    return Node(
        _name(driver, parameters),
        parameters.gridDimX * parameters.gridDimY * parameters.gridDimZ,
        parameters.blockDimX * parameters.blockDimY * parameters.blockDimZ,
        parameters.sharedMemBytes,
        value.priority,
    )


def _name(driver: Any, parameters: Any) -> str:
    """Of the kernel; a runtime's may be known by another handle than a driver's."""
    for handle, ask in ((parameters.func, driver.cuFuncGetName), (parameters.kern, driver.cuKernelGetName)):
        if int(handle):
            status, name = ask(handle)
            if not status.value:
                return str(name.decode() if isinstance(name, bytes) else name)
    return "a kernel without a name"


def _told(answer: Sequence[Any]) -> Sequence[Any]:
    """What the driver says behind its status."""
    status, *values = answer
    if status.value:
        raise RuntimeError(f"The captured graph cannot be read: {status.name}.")
    return values


def facts(nodes: Iterable[Node]) -> dict[str, list[dict[str, int]]]:
    """By name the different launches of *nodes*, each with how many of them there are: what a measurement keeps."""
    counted: dict[Node, int] = {}
    for node in nodes:
        counted[node] = counted.get(node, 0) + 1
    by_name: dict[str, list[dict[str, int]]] = {}
    for node, count in counted.items():
        numbers = {name: value for name, value in node._asdict().items() if name != "name"}
        by_name.setdefault(node.name, []).append({**numbers, "count": count})
    return by_name
