"""Many points of one scheme as columns: their schedules, sizes and links, and what the parts of a schedule cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernels.fabric import Fabric, emulated_bandwidth
from kernels.machine import Machine
from kernels.operators import operator
from kernels.operators.base import Flow
from kernels.problem import Problem
from kernels.schedule import OMITTED_DEFAULTS, Refusal, Schedule, Tile, tile
from kernels.schemes import BASELINE, axes, axis_rules, library
from kernels.schemes.base import default_tile, peers_from
from kernels.schemes.fused import default_slice_tiles
from workbench.simulator.columns import SizedByColumns, distinct_rows, distinct_values, once_for_equal_rows
from workbench.simulator.price import gemm, latency, messages, networks, rates, tiles
from workbench.simulator.price.collectives import call_seconds
from workbench.simulator.price.messages import Route, Routes, emulated, routes
from workbench.simulator.price.rates import start_seconds, step_overhead
from workbench.simulator.price.shared import Computation, room
from workbench.simulator.price.tiles import Tiling

Floats = NDArray[np.float64]
Column = NDArray[Any]

FABRIC_NUMBERS = ("wire_to_compute", "bandwidth_bytes_per_second", "latency_seconds", "message_seconds")
"""Numbers of an emulated fabric that may be columns."""

ONE_KERNEL: Mapping[str, bool] = {"sequential": False, "concurrent": False, "decomposed": False, "fused": True}
"""Whether each rank has a single launch, by scheme, as in the launches of its Plans."""


class PointColumns:
    """Points of one scheme as columns of equal length; other values are the problem's sizes or defaults of axes."""

    def __init__(self, problem: Problem, scheme: str, columns: Mapping[str, ArrayLike], machine: Machine,
                 fabric: Fabric, origin: int = 0) -> None:  # fmt: skip
        self.problem, self.scheme, self.machine, self.fabric = problem, scheme, machine, fabric
        self.origin = origin
        """The rank from which messages are sent."""
        self._omitted_axes: Sequence[str] = ()  # axes of the scheme that the Plan of these points does not know
        self.axes = {axis.name: axis for axis in axes(problem, scheme, machine, fabric)}
        self.given = {name: np.atleast_1d(np.asarray(values)) for name, values in columns.items()}
        self._size_keys = [key for key, size in problem.shape if isinstance(size, int)]
        self._check_names()
        self.count = max((len(values) for values in self.given.values()), default=1)
        self.operator, self.world = operator(problem.operator), problem.world
        self.receives = self.operator.flow is Flow.RECEIVE
        self.broadcasts = self.operator.flow is Flow.BROADCAST
        counts = {key: self._column(key, problem[key]) for key in self._size_keys}
        self.sizes = cast(Problem, SizedByColumns(problem, counts))
        extent = self.operator.extent(self.sizes)
        self.rows, self.columns, self.contraction = (
            np.broadcast_to(length, (self.count,)) for length in (extent.rows, extent.columns, extent.contraction)
        )
        self.chunk = self.rows // self.world
        self.tile_m, self.tile_n, self.tile_k = self._tile_sides()

    def _check_names(self) -> None:
        known = [*self._size_keys, *self.axes, "tile_m", "tile_n", "tile_k", *FABRIC_NUMBERS]
        if unknown := [name for name in self.given if name not in known]:
            raise Refusal(f"{self.problem.operator} with {self.scheme} has no column {unknown[0]!r}. Accepted: "
                          f"{', '.join(known)}.")  # fmt: skip

    def _column(self, name: str, default: Any) -> Column:
        return np.broadcast_to(self.given.get(name, np.asarray(default)), (self.count,))

    def axis(self, name: str) -> Column:
        """Values of an axis; without a column, the value for schedules that omit it, or else its default."""
        if name == axis_rules.COMM_SMS and (self._may_relay or self.spans):
            return self._column(name, 0)
        return self._column(name, OMITTED_DEFAULTS.get(self.scheme, {}).get(name, self.axes[name].default))

    def word(self, name: str) -> str | None:
        """Text value of an axis, which is the same for all points; None if the scheme has no such axis."""
        return str(self.axis(name)[0]) if name in self.axes else None

    @property
    def text_values(self) -> Schedule:
        """Schedule of all axes whose values are texts."""
        texts = (
            (name, word) for name in self.axes if isinstance(self.axes[name].default, str) and (word := self.word(name))
        )
        return Schedule(self.scheme, tuple(texts))

    def number(self, name: str) -> Column:
        """Values of an axis that counts something; values below 1, which are illegal, become 1."""
        return np.maximum(1, self.axis(name).astype(np.int64))

    def _tile_sides(self) -> tuple[Column, Column, Column]:
        texts = self.given.get("tile", np.array([self.axes["tile"].default]))
        sizes = distinct_values(texts)
        sides = np.array([_sides(tile(str(text))) for text in sizes.values])[sizes.which]
        m, n = self._column("tile_m", sides[:, 0]), self._column("tile_n", sides[:, 1])
        return np.maximum(1, m.astype(np.int64)), np.maximum(1, n.astype(np.int64)), self._column("tile_k", sides[:, 2])

    @cached_property
    def slots(self) -> Column:
        """Number of tiles computed at once."""
        grid, taken = self.axis("grid") if "grid" in self.axes else np.zeros(1, dtype=np.int64), self.sending
        if self.one_kernel and np.any(taken) and not self.spans:
            taken = taken * self._away(tiles.slots(self.machine, grid=grid))
        at_once = tiles.slots(self.machine, grid=grid, comm_sms=taken, engine=self.word("engine"))
        return np.broadcast_to(at_once, (self.count,))

    def _away(self, slots: Column) -> Floats:
        """Share of a kernel's computation during which its pushing SMs do not compute."""
        whole = self.kernel_seconds(self.num_tiles, slots)
        return networks.away(self.machine, self.sizes, self.fabric, self._put_axes, whole)

    @cached_property
    def num_tiles(self) -> Column:
        """Number of tiles of one rank."""
        if self.spans:
            return np.asarray(-(-self.rows // self.tile_m) * -(-self.columns // self.tile_n))
        return np.asarray(self.world * -(-self.chunk // self.tile_m) * -(-self.columns // self.tile_n))

    @property
    def sending(self) -> Column:
        """Number of SMs that only send; 0 if the schedule gives none, or an engine moves the bytes."""
        if "comm_sms" in self.axes and self.word("engine") in (None, "sm"):
            sms = self.axis("comm_sms")
            return np.where(self.sharing == 1, 0, sms) if self.between_hosts else sms
        return np.zeros(1, dtype=np.int64)

    @property
    def pushers(self) -> Column:
        """Number of programs that only push the later columns of rows that come in, where tiles span ranks."""
        return self.sending if self.spans and self.receives else np.zeros(1, dtype=np.int64)

    @property
    def _may_relay(self) -> bool:
        """Whether SMs that only send could bring results to peers."""
        offers = self.one_kernel and axis_rules.COMM_SMS in self.axes and not self.between_hosts
        return offers and axis_rules.may_relay(self.problem)

    @property
    def relayed(self) -> Column:
        """Where SMs that only send bring results to peers."""
        return self.sending > 0 if self._may_relay else np.zeros(1, dtype=np.bool_)

    @property
    def between_hosts(self) -> bool:
        """Whether a kernel puts between hosts."""
        return self.word(axis_rules.TRANSPORT) == axis_rules.GIN

    @property
    def spans(self) -> bool:
        """Whether tiles span the rows of all ranks."""
        return self.word(axis_rules.TILE_ORDER) == axis_rules.SPANNING

    @property
    def sharing(self) -> Column:
        """Ranks of a host that share a put."""
        return self.number(axis_rules.PER_HOST)

    @property
    def one_kernel(self) -> bool:
        """Whether each rank has a single launch."""
        return ONE_KERNEL[self.scheme]

    @property
    def in_streams(self) -> bool:
        """Whether one call computes several problems on two streams."""
        return "micro_batches" in self.axes

    @property
    def in_pieces(self) -> bool:
        """Whether shards are cut into pieces."""
        return "pieces" in self.axes

    @property
    def carried_out(self) -> PointColumns:
        """The same points in the scheme whose Plan they execute (`kernels.schemes.library.executed_schedule`)."""
        if self.word("collective") != library.OVERLAPPED:
            return self
        named = Schedule(self.scheme, (("tile", ""), ("collective", library.OVERLAPPED)))
        known = axis_rules.of_decomposed(self.problem, self.machine.backend)
        kept = {name: values for name, values in self.given.items() if name not in ("collective", axis_rules.KERNEL)}
        more = {name: np.array([value]) for name, value in library.OVERLAPPED_AXES.items() if name in known}
        omitted = [name for name in known if name not in library.OVERLAPPED_AXES and name != "tile"]
        return PointColumns(
            self.problem,
            library.executed_schedule(named).scheme,
            {**kept, **more},
            self.machine,
            self.fabric,
            self.origin,
        )._without(omitted)

    def _without(self, unnamed: Sequence[str]) -> PointColumns:
        """These points without the axes *unnamed*, which their Plan does not have."""
        self._omitted_axes, self.axes = unnamed, {name: of for name, of in self.axes.items() if name not in unnamed}
        return self

    def apart(self, chosen: Column, seconds: Callable[[PointColumns], Floats]) -> Floats:
        """*seconds* of these points, asked of those that are *chosen* and of the others by themselves."""
        total = np.empty(self.count)
        for part in (chosen, ~chosen):
            given = {name: column[part] if len(column) > 1 else column for name, column in self.given.items()}
            total[part] = seconds(PointColumns(self.problem, self.scheme, given, self.machine, self.fabric, self.origin)
                                  ._without(self._omitted_axes))  # fmt: skip
        return total

    def by_origin(self) -> Iterator[PointColumns]:
        """The same points as seen from one rank of each kind.

        All ranks are alike except on emulated hosts: the first rank of a host reaches other hosts' ranks later than
        the last one.
        """
        for origin in range(self.world // self.fabric.hosts if self.fabric.hosts > 1 else 1):
            given = (self.problem, self.scheme, self.given, self.machine, self.fabric)
            yield self if origin == self.origin else PointColumns(*given, origin)._without(self._omitted_axes)

    @property
    def direction(self) -> str:
        """Direction in which a decomposed schedule cuts: its `split`, or the operator's only one."""
        splits = self.operator.splits
        return splits[self.word("split") or next(iter(splits))]

    @cached_property
    def slice_tiles(self) -> Column:
        """Tiles of one step: from the axis, or the Plan's default where tiles leave one by one, or span ranks."""
        if self.spans:
            return np.asarray(default_slice_tiles(self.problem, self.num_tiles))
        if self.between_hosts:  # whole rows
            across = -(-self.columns // self.tile_n)
            return np.asarray(-(-self.number("slice_tiles") // across) * across)
        if axis_rules.slices_matter(self.problem, self.word("tile_order"), self.machine.backend):
            return self.number("slice_tiles")
        return np.asarray(default_slice_tiles(self.problem, self.num_tiles))

    def everything(self) -> Floats:
        """Seconds of the single compute step of a sequential trial, without its overhead."""
        alone = tiles.library_seconds(self.machine, self.sizes, self.word(axis_rules.KERNEL))
        if alone is not None:
            return alone
        return self.step(self.world, self.chunk, self.columns, self.contraction)

    def rooms(self, padded_to: Column) -> list[Column]:
        """Fields of FreeResources, as columns; padding makes *padded_to* blocks share an SM, 0: as many as fit."""
        shapes, which = np.unique(np.stack([self.tile_m, self.tile_n, padded_to]), axis=1, return_inverse=True)
        k, kernel = tile(str(self.axes["tile"].default)).k, self.word(axis_rules.KERNEL)
        each = [room(self.machine, self.problem, kernel, Tile(m, n, k), held) for m, n, held in shapes.T.tolist()]
        return [np.array(column)[which.ravel()] for column in zip(*each, strict=True)]

    def computation(self, resident: Column, in_flight: Column, seconds: Floats, comm_sms: Column | int) -> Computation:
        """Computation of one problem, for kernels that share the SMs block by block."""
        sides = (self.tile_m, self.tile_n)
        return Computation(self.sizes, sides, self.num_tiles, resident, in_flight, seconds, comm_sms)

    def step(self, blocks: ArrayLike, rows: Column, columns: Column, k: Column) -> Floats:
        """Seconds of a compute step over *blocks* equal rectangles, without its overhead."""
        if self.word(axis_rules.LAUNCHES) == axis_rules.PER_PIECE and tiles.in_calls(self.machine, self.sizes):
            return tiles.library_piece_seconds(self.machine, self.sizes, (blocks * rows, columns, k), self.slots)
        tiling, sides = Tiling(self.tile_m, self.tile_n, self.slots), (rows, columns, k)

        def by_tiles() -> Floats:
            return tiles.rectangles_seconds(self.machine, self.sizes, tiling, blocks, sides)

        unknown = self._blocks is None and self._memory_steps is None
        if self.word(axis_rules.KERNEL) is None or self.in_streams or unknown:  # the library computes pieces
            return by_tiles()
        number = np.asarray(blocks) * -(-rows // self.tile_m) * -(-columns // self.tile_n)
        least = self.least(np.asarray(blocks) * rows, columns, k)
        seconds = gemm.better(self.machine, self.sizes, self._blocks, (k, number, self.slots, least), by_tiles)
        return latency.no_sooner(self.machine, self._memory_steps, number, seconds)

    def kernel_seconds(self, num_tiles: Column, at_once: Column) -> Floats:
        """Seconds of one kernel that computes *num_tiles* tiles, *at_once* of them at the same time."""
        size = (self.tile_m, self.tile_n, self.contraction)
        seconds = gemm.kernel_seconds(self.machine, self.sizes, self._blocks, size, num_tiles, at_once)
        return latency.no_sooner(self.machine, self._memory_steps, num_tiles, seconds)

    @cached_property
    def whole_kernel_seconds(self) -> Floats:
        """Seconds of one kernel that computes all tiles in its slots, or cuts those of its last wave."""
        seconds = self.kernel_seconds(self.num_tiles, self.slots)
        if axis_rules.SPLIT_K not in self.axes:
            return seconds
        parts, programs = self.axis(axis_rules.SPLIT_K).astype(np.int64), self.number("grid")
        if not np.any(parts != axis_rules.WHOLE):
            return seconds
        sides = (self.tile_m, self.tile_n, self.contraction)
        cut = gemm.cut_kernel(
            self.machine, self.sizes, self._blocks, sides, self.tile_k, (self.num_tiles, programs, parts)
        )
        return np.where(parts != axis_rules.WHOLE, cut.total, seconds)

    @cached_property
    def _blocks(self) -> gemm.GemmBlocks | None:
        """Tile pipeline of our GEMM kernel, or None if it is not modelled."""
        if not gemm.is_known(self.machine, self.sizes):
            return None
        sides = (self.tile_m, self.tile_n, self.tile_k)
        knobs = self._knobs(gemm.usual(self.problem)) | (gemm.of_spanning(self.problem) if self.spans else {})
        if self.relayed.any():
            knobs |= {"grid": np.where(self.relayed, gemm.one_each(self.machine), knobs["grid"])}
        return gemm.blocks(self.machine, self.problem.itemsize, sides, knobs, self._piece_bytes())

    def _piece_bytes(self) -> Column:
        """Bytes of a piece of the rows that a block pushes, by tile and sizes."""
        if not self.one_kernel or self.world == 1 or self.operator.flow is not Flow.RECEIVE:
            return np.zeros(1, dtype=np.int64)

        def of_sizes(rows: int, m: int, k: int) -> int:
            sizes = cast(Problem, SizedByColumns(self.problem, {"m": m, "n": self.problem["n"], "k": k}))
            return int(gemm.piece_bytes(self.machine, sizes, rows, spans=self.spans))

        return once_for_equal_rows((self.tile_m, self.sizes["m"], self.sizes["k"]), of_sizes)

    @cached_property
    def _memory_steps(self) -> latency.Steps | None:
        """Steps of our kernel that waits for memory, or None if they were not measured."""
        if not latency.is_known(self.machine, self.sizes):
            return None
        sides, knobs = (self.tile_m, self.tile_n, self.tile_k), self._knobs(latency.usual(self.problem))
        return latency.steps(self.machine, self.sizes, sides, knobs)

    def _knobs(self, usual: Mapping[str, Any]) -> dict[str, Any]:
        return {name: self.axis(name) if name in self.axes else value for name, value in usual.items()}

    def one_tile(self, rows: Column, columns: Column, k: Column) -> Floats:
        """Seconds of one tile on one slot."""
        return tiles.tile_seconds(self.machine, self.sizes, rows, columns, k)

    def least(self, rows: Column, columns: Column, k: Column) -> Floats:
        """Least seconds of a compute step, by memory alone."""
        return tiles.memory_seconds(self.machine, self.sizes, rows, columns, k)

    @property
    def overhead(self) -> float:
        """Seconds that each step costs in addition to its work."""
        return step_overhead(self.machine, one_kernel=self.one_kernel)

    def copy(self, num_bytes: Column) -> Floats:
        """Seconds to read and write each byte once."""
        return rates.copy_seconds(self.machine, self.problem.dtype, num_bytes)

    def reduce(self, num_bytes: Column) -> Floats:
        """Seconds to sum all ranks' contributions of *num_bytes* each, with overhead; in a ring, to add one of them.

        So it is where SMs that only send have brought the other one.
        """
        written = self.problem.itemsize / self.value_bytes
        one = self.relayed | (self.word(axis_rules.TILE_ORDER) == axis_rules.RING)
        read = np.where(one, 1, self.world)
        results = num_bytes * ((read + written) / (self.world + 1))
        return self.overhead + rates.sum_seconds(self.machine, self.problem.dtype, results, self.world)

    @property
    def value_bytes(self) -> int:
        """Bytes sent for each value of a result."""
        return axis_rules.packed_bytes(self.problem) if self.packets else self.problem.itemsize

    @property
    def packets(self) -> bool:
        """Whether values are sent with their signal, in packets."""
        return axis_rules.SHOTS in self.axes or (self.spans and self.word("store") == axis_rules.PACKETS)

    @property
    def shots(self) -> Column:
        """Shots of packets; without a column, the value for schedules that omit the axis."""
        return self._column(axis_rules.SHOTS, axis_rules.shots_omitted_for(self.rows * self.columns))

    @cached_property
    def _routes(self) -> Routes:
        return routes(self.world, self.machine, self.fabric)

    @cached_property
    def _routes_to_peers(self) -> Sequence[Route]:
        """Route to each peer, the next rank first; emulated links have columns of numbers."""
        peers = peers_from(self.origin, self.world)
        if self.fabric.emulated:
            links = self._emulated_links
            return [links[self.fabric.level(self.origin, peer, self.world)] for peer in peers]
        to_peers = self._routes.between(self.origin, peers)
        columns = (to_peers.number, to_peers.byte_seconds, to_peers.message_seconds, to_peers.latency_seconds)
        return [Route(*costs) for costs in zip(*columns, strict=True)]

    @property
    def _emulated_links(self) -> Sequence[Route]:
        """Emulated links: inside a host, and between hosts."""
        fabric = self.fabric
        message_seconds = self._column("message_seconds", fabric.message_seconds)
        latency_seconds = self._column("latency_seconds", fabric.latency_seconds)
        between_seconds = np.full(self.count, fabric.between_latency_seconds)
        return (emulated(1.0 / self.bandwidth, message_seconds, latency_seconds),
                emulated(fabric.between_slowdown / self.bandwidth, message_seconds, between_seconds, 1))  # fmt: skip

    @cached_property
    def peer_links(self) -> list[int]:
        """Number of the egress link to each peer, the next rank first."""
        return [int(route.number) for route in self._routes_to_peers]

    @cached_property
    def put_byte_seconds(self) -> Floats | None:
        """Seconds per byte of a put; None if puts were not measured."""
        return messages.sent_byte_seconds(self.sizes, self.machine, self.fabric, self._put_axes)

    @cached_property
    def store_byte_seconds(self) -> Floats:
        """Seconds per byte of tiles that a kernel stores on peers while it computes."""
        return networks.store_byte_seconds(self.machine, self.sizes, self.fabric, self._put_axes)

    @cached_property
    def last_byte_seconds(self) -> Floats | float:
        """Seconds per byte of sums that leave without SMs that only send."""
        seconds = messages.last_byte_seconds(self.sizes, self.machine, self.fabric)
        return self._routes_to_peers[0].byte_seconds if seconds is None else seconds

    @cached_property
    def _put_axes(self) -> dict[str, Any]:
        """Axes by which a put is priced."""
        texts = {name: self.word(name) for name in ("engine", "collective", "store")}
        warps = {"num_warps": self.axis("num_warps")} if "num_warps" in self.axes else {}
        return {**texts, **warps, "comm_sms": self.sending}

    def transit(self, peer: int, num_bytes: Column) -> Floats:
        """Seconds for which a message holds the link to the *peer*-th peer."""
        return messages.transit_seconds(self._routes_to_peers[peer], num_bytes, self.put_byte_seconds)

    def delay(self, peer: int) -> Floats:
        """Seconds from when the last byte leaves until the *peer*-th peer continues."""
        return messages.delay_seconds(
            self.machine, self._routes_to_peers[peer], packets=self.packets,
            hides=self.by_engine and not self.waits_in_kernels,
        )  # fmt: skip

    @cached_property
    def waits_in_kernels(self) -> bool:
        """Whether copies wait, in kernels, for pieces of a launch that is still running."""
        return self.word(axis_rules.LAUNCHES) == axis_rules.ONE and not self.receives

    @cached_property
    def by_engine(self) -> bool:
        """Whether copy engines move the bytes."""
        return messages.way(self._put_axes) == "put_copy_engine"

    def collective(self, num_bytes: Column) -> Floats:
        """Seconds of one library call in which *num_bytes* leave each rank."""
        return call_seconds(self.machine, self._routes, self.operator.collective, num_bytes, self.word("collective"))

    @cached_property
    def bandwidth(self) -> Floats:
        """Bytes per second of the emulated link: as given, or resolved for the sizes of each point."""
        has_column = "bandwidth_bytes_per_second" in self.given
        if has_column or (self.fabric.resolved and "wire_to_compute" not in self.given):
            return self._column("bandwidth_bytes_per_second", self.fabric.bandwidth_bytes_per_second)
        ratio = self._column("wire_to_compute", self.fabric.wire_to_compute or 1.0)
        least = np.maximum(1, self.operator.wire_bytes(self.sizes))
        rate = emulated_bandwidth(least, ratio, self._sequential_compute_seconds())
        return np.asarray(rate / self.fabric.pace(self.world))

    def _sequential_compute_seconds(self) -> Floats:
        """Seconds of the default baseline's computation alone, which wire_to_compute is relative to."""
        one_kernel = ONE_KERNEL[BASELINE]
        work = tiles.library_seconds(self.machine, self.sizes, "library")
        if work is None:
            m, n, _ = self.by_shape(lambda shaped: _sides(default_tile(shaped, self.machine)))
            tiling, sides = Tiling(m, n, tiles.slots(self.machine)), (self.chunk, self.columns, self.contraction)
            work = tiles.rectangles_seconds(self.machine, self.sizes, tiling, self.world, sides)
        start = start_seconds(self.machine, one_kernel=one_kernel, collective=None, communicates=False)
        return start + step_overhead(self.machine, one_kernel=one_kernel) + work

    def by_shape(self, function: Callable[[Problem], Sequence[Any]]) -> Column:
        """Results of *function* for the problem of each point, [results, points]; it is called once for equal sizes."""
        varied = [key for key in self._size_keys if key in self.given]
        if not varied:
            return np.repeat(np.array([function(self.problem)]).T, self.count, axis=1)
        table = [self._column(key, 0) for key in varied]
        examples, which = distinct_rows([distinct_values(column) for column in table])
        shapes = np.stack(table, axis=1)[examples].tolist()
        results = [function(self._with(dict(zip(varied, sizes, strict=True)))) for sizes in shapes]
        return np.array(results)[which].T

    def _with(self, sizes: Mapping[str, int]) -> Problem:
        shape = tuple((key, sizes.get(key, size)) for key, size in self.problem.shape)
        return Problem(self.problem.operator, shape, self.problem.dtype, self.world)


def _sides(size: Tile) -> tuple[int, int, int]:
    return size.m, size.n, size.k
