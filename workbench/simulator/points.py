"""Many points of one scheme at once: schedules, sizes and link speeds as columns, and what their pieces cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernels.axes import Tile, tile
from kernels.fabric import Fabric, emulated_bandwidth
from kernels.machine import Machine
from kernels.operators import Flow, operator
from kernels.problem import Problem
from kernels.schedule import UNNAMED, Refusal
from kernels.schemes import axes, library, reads
from kernels.schemes.base import default_tile, peers_from
from kernels.schemes.slices import told_together
from workbench.simulator import gpu_costs
from workbench.simulator.cost import fixed_seconds, slots_left, start_seconds, work_share
from workbench.simulator.links import links
from workbench.simulator.rates import collective_seconds, work_seconds

Floats = NDArray[np.float64]
Column = NDArray[Any]

FABRIC_NUMBERS = ("wire_to_compute", "bandwidth_bytes_per_second", "latency_seconds", "message_seconds")


class _Sizes:
    """Looks like a Problem to an operator, but its counts are columns."""

    def __init__(self, problem: Problem, counts: Mapping[str, Column]) -> None:
        self._problem, self._counts = problem, counts
        self.operator, self.itemsize, self.world = problem.operator, problem.itemsize, problem.world

    def __getitem__(self, key: str) -> Column:
        return self._counts[key]

    def word(self, key: str) -> str:
        return self._problem.word(key)


class Points:
    """Columns of equal length. What is not among them is the problem's size, or the axis's default for that problem."""

    def __init__(self, problem: Problem, scheme: str, columns: Mapping[str, ArrayLike], machine: Machine,
                 fabric: Fabric) -> None:  # fmt: skip
        self.problem, self.scheme, self.machine, self.fabric = problem, scheme, machine, fabric
        self.axes = {axis.name: axis for axis in axes(problem, scheme, machine, fabric)}
        self.given = {name: np.atleast_1d(np.asarray(values)) for name, values in columns.items()}
        self._size_keys = [key for key, size in problem.shape if isinstance(size, int)]
        self._check_names()
        self.count = max((len(values) for values in self.given.values()), default=1)
        self.operator, self.world = operator(problem.operator), problem.world
        self.receives = self.operator.flow is Flow.RECEIVE
        self.broadcasts = self.operator.flow is Flow.BROADCAST
        counts = {key: self._column(key, problem[key]) for key in self._size_keys}
        self.sizes = cast(Problem, _Sizes(problem, counts))
        extent = self.operator.extent(self.sizes)
        self.rows, self.columns, self.contraction = (
            np.broadcast_to(length, (self.count,)) for length in (extent.rows, extent.columns, extent.contraction)
        )
        self.chunk = self.rows // self.world
        self.tile_m, self.tile_n = self._tiles()

    def _check_names(self) -> None:
        known = [*self._size_keys, *self.axes, "tile_m", "tile_n", *FABRIC_NUMBERS]
        if unknown := [name for name in self.given if name not in known]:
            raise Refusal(f"{self.problem.operator} with {self.scheme} has no column {unknown[0]!r}. Accepted: "
                          f"{', '.join(known)}.")  # fmt: skip

    def _column(self, name: str, default: Any) -> Column:
        return np.broadcast_to(self.given.get(name, np.asarray(default)), (self.count,))

    def axis(self, name: str) -> Column:
        """The values of an axis; where no column states one, that of schedules without it, or else the default."""
        return self._column(name, UNNAMED.get(self.scheme, {}).get(name, self.axes[name].default))

    def word(self, name: str) -> str | None:
        """The value of an axis that is the same for all points; None if the scheme has no such axis."""
        return str(self.axis(name)[0]) if name in self.axes else None

    def number(self, name: str) -> Column:
        """The values of an axis that counts; below 1, which is illegal, as 1."""
        return np.maximum(1, self.axis(name).astype(np.int64))

    def _tiles(self) -> tuple[Column, Column]:
        texts, which = np.unique(self.given.get("tile", np.array([self.axes["tile"].default])), return_inverse=True)
        stated = np.array([_sides(tile(text)) for text in texts])[which]
        m, n = self._column("tile_m", stated[:, 0]), self._column("tile_n", stated[:, 1])
        return np.maximum(1, m.astype(np.int64)), np.maximum(1, n.astype(np.int64))

    @cached_property
    def slots(self) -> Column:
        """Tiles computed at once."""
        zero = np.zeros(1, dtype=np.int64)
        grid, taken = (self.axis(n) if n in self.axes else zero for n in ("grid", "comm_sms"))
        return np.broadcast_to(slots_left(self.machine, grid, taken, self.word("engine")), (self.count,))

    @property
    def carried_out(self) -> Points:
        """The same points of the scheme whose Plan they have, as kernels.schemes.library.carried_out says."""
        if self.word("collective") != library.OVERLAPPED:
            return self
        read = reads.of_decomposed(self.problem)
        told = {name: values for name, values in self.given.items() if name not in ("collective", reads.KERNEL)}
        more = {name: np.array([value]) for name, value in library.OVERLAPPED_AXES.items() if name in read}
        return Points(self.problem, "decomposed", {**told, **more}, self.machine, self.fabric)

    @property
    def direction(self) -> str:
        """Of the cut of a decomposed schedule: as stated, or the only one that the operator has."""
        splits = self.operator.splits
        return splits[self.word("split") or next(iter(splits))]

    @cached_property
    def slice_tiles(self) -> Column:
        """Tiles of one step: as stated, or as the Plan tells them where tiles leave one by one."""
        if reads.slices_matter(self.problem, self.word("tile_order"), self.machine.backend):
            return self.number("slice_tiles")
        tiles = self.world * -(-self.chunk // self.tile_m) * -(-self.columns // self.tile_n)
        return np.asarray(told_together(self.problem, tiles))

    def everything(self) -> Floats:
        """The one compute step of a sequential trial, its overhead not counted."""
        alone = gpu_costs.library_seconds(self.problem, self.sizes, self.machine, self.word(reads.KERNEL))
        if alone is not None:
            return alone
        return self.step(self.world, self.chunk, self.columns, self.contraction)

    def step(self, blocks: ArrayLike, rows: Column, columns: Column, k: Column) -> Floats:
        """A compute step over *blocks* equal rectangles, its overhead not counted."""
        return self._step(blocks, rows, columns, k, (self.tile_m, self.tile_n, self.slots))

    def _step(self, blocks: ArrayLike, rows: Column, columns: Column, k: Column,
              size: tuple[Column, Column, Column]) -> Floats:  # fmt: skip
        m, n, slots = size
        blocks = np.asarray(blocks)
        if self.machine.device.kind == "gpu":
            waves = -(-blocks * -(-rows // m) * -(-columns // n) // slots)
            return np.maximum(waves * self.one_tile(m, n, k), self.memory(blocks * rows, columns, k))
        down, right = rows // m, columns // n
        bottom, edge = rows - down * m, columns - right * n
        total = down * right * self.one_tile(m, n, k)
        for count, height, width in ((right, bottom, n), (down, m, edge), (1, bottom, edge)):
            if (height > 0).any() and (width > 0).any():
                total = total + np.where((height > 0) & (width > 0), count * self.one_tile(height, width, k), 0.0)
        return np.asarray(blocks * total, dtype=float)

    def one_tile(self, rows: Column, columns: Column, k: Column) -> Floats:
        """One tile on one slot."""
        work, share = work_share(self.sizes)
        width: Column | float = rows if work == "gemm" else columns
        if work == "gather":
            width = self.sizes["dim"] * self.sizes.itemsize
        seconds = work_seconds(self.machine, work, self.problem.dtype, share * rows * columns * k, width)
        return fixed_seconds(self.machine, work) + seconds * self.machine.device.slots

    def memory(self, rows: Column, columns: Column, k: Column) -> Floats:
        """As cost: a step's operands once, where no measured curve contains them."""
        work, share = work_share(self.sizes)
        if not gpu_costs.memory_bounds(self.machine, work, self.problem.dtype):
            return np.zeros(1)
        if work == "gather":
            num_bytes = share * rows * columns * k
        else:
            num_bytes = (rows * k + k * columns + rows * columns) * self.problem.itemsize
        return np.asarray(num_bytes / self.machine.device.memory_bytes_per_second)

    def kernel_memory_seconds(self) -> Floats:
        """As cost: the whole operator's bytes once, where no measured curve contains them."""
        if not gpu_costs.memory_bounds(self.machine, self.operator.work, self.problem.dtype):
            return np.zeros(1)
        return np.asarray(self.operator.memory_bytes(self.sizes) / self.machine.device.memory_bytes_per_second)

    @property
    def overhead(self) -> float:
        """As cost.step_overhead."""
        launch = 0.0 if self.scheme == "fused" else self.machine.costs.launch_seconds
        return self.machine.costs.step_seconds + launch

    def copy(self, num_bytes: Column) -> Floats:
        """One read and one write of each byte."""
        return work_seconds(self.machine, "copy", self.problem.dtype, 2 * num_bytes)

    def reduce(self, num_bytes: Column) -> Floats:
        """The sum of all ranks' contributions to results of *num_bytes*, its overhead counted."""
        return self.overhead + work_seconds(self.machine, "reduce", self.problem.dtype, (self.world + 1) * num_bytes)

    @cached_property
    def peer_links(self) -> list[int]:
        """Which egress link each peer is reached by, the next rank first."""
        if self.fabric.emulated:
            return [0] * (self.world - 1)
        return [int(self._table.number[0, peer]) for peer in peers_from(0, self.world)]

    @cached_property
    def _table(self) -> Any:
        return links(self.world, self.machine, self.fabric)

    @cached_property
    def put_byte_seconds(self) -> Floats | None:
        """As gpu_costs: per byte of a put where that was measured."""
        words = {name: self.word(name) for name in ("engine", "collective", "store")}
        taken = {"comm_sms": self.axis("comm_sms")} if "comm_sms" in self.axes else {}
        return gpu_costs.put_byte_seconds(self.sizes, self.machine, self.fabric, {**words, **taken})

    def transit(self, peer: int, num_bytes: Column) -> Floats:
        """How long a message holds the link to the *peer*-th peer."""
        if self.fabric.emulated:
            return num_bytes / self.bandwidth + self._column("message_seconds", self.fabric.message_seconds)
        at = (0, peers_from(0, self.world)[peer])
        measured = self.put_byte_seconds
        byte_seconds = self._table.byte_seconds[at] if measured is None else measured
        return np.asarray(num_bytes * byte_seconds + self._table.message_seconds[at])

    def delay(self, peer: int) -> Floats:
        """From the last byte's leaving until the *peer*-th peer goes on."""
        latency: Any = self._column("latency_seconds", self.fabric.latency_seconds)
        if not self.fabric.emulated:
            latency = self._table.latency_seconds[0, peers_from(0, self.world)[peer]]
        return np.asarray(latency + self.machine.costs.signal_seconds)

    def collective(self, num_bytes: Column) -> Floats:
        """One library call in which *num_bytes* leave each rank."""
        costs = self.machine.costs
        name, by = self.operator.collective, self.word("collective")
        measured = collective_seconds(self.machine, name, self.world, num_bytes, by)
        if measured is not None:
            return measured
        return np.asarray(costs.library_seconds + num_bytes * self._table.collective_byte_seconds / costs.library_share)

    @cached_property
    def bandwidth(self) -> Floats:
        """Of the emulated link: as stated, or resolved at each point's own sizes."""
        stated = "bandwidth_bytes_per_second" in self.given
        if stated or (self.fabric.resolved and "wire_to_compute" not in self.given):
            return self._column("bandwidth_bytes_per_second", self.fabric.bandwidth_bytes_per_second)
        asked = self._column("wire_to_compute", self.fabric.wire_to_compute or 1.0)
        least = np.maximum(1, self.operator.wire_bytes(self.sizes))
        return np.asarray(emulated_bandwidth(least, asked, self._sequential_compute_seconds()))

    def _sequential_compute_seconds(self) -> Floats:
        """Computation alone as the sequential schedule does it by default: what wire_to_compute is relative to."""
        work = gpu_costs.library_seconds(self.problem, self.sizes, self.machine, "library")
        if work is None:
            m, n = self.of_each_shape(lambda shaped: _sides(default_tile(shaped, self.machine)))
            slots = np.full(self.count, self.machine.device.slots)
            work = self._step(self.world, self.chunk, self.columns, self.contraction, (m, n, slots))
        start, costs = start_seconds(self.machine, "sequential", None, False), self.machine.costs
        return start + costs.step_seconds + costs.launch_seconds + work

    def of_each_shape(self, found: Callable[[Problem], Sequence[Any]]) -> Column:
        """[numbers, points] what *found* says of the problem of each point; asked once for points of equal sizes."""
        varied = [key for key in self._size_keys if key in self.given]
        if not varied:
            return np.repeat(np.array([found(self.problem)]).T, self.count, axis=1)
        table = np.stack([self._column(key, 0) for key in varied])
        shapes, which = np.unique(table, axis=1, return_inverse=True)
        answers = [found(self._with(dict(zip(varied, sizes, strict=True)))) for sizes in shapes.T.tolist()]
        return np.array(answers)[which.reshape(-1)].T

    def _with(self, sizes: Mapping[str, int]) -> Problem:
        shape = tuple((key, sizes.get(key, size)) for key, size in self.problem.shape)
        return Problem(self.problem.operator, shape, self.problem.dtype, self.world)


def _sides(size: Tile) -> tuple[int, int]:
    return size.m, size.n
