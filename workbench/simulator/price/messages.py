"""What a put costs: to who issues it, to the link that it holds, and until its receiver goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernels.fabric import Fabric
from kernels.machine import Machine
from kernels.operators import operator
from kernels.plan import EVERYTHING, Pool
from kernels.problem import Problem
from workbench.simulator.price.launches import step_overhead
from workbench.simulator.price.memory import copy_seconds
from workbench.simulator.price.rates import has_curve, work_seconds
from workbench.simulator.price.routes import Route

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Puts:
    """What a Plan says of who moves a put: numbers or columns."""

    pool: ArrayLike
    share: ArrayLike
    in_place: ArrayLike
    packets: bool = False
    """Whether values carry their signals: then a put in place is nothing but the stores that computed it."""
    waits: bool = False
    """Whether a copy engine's stream waits in a kernel before each put, behind which its launch hides nowhere."""


def computes_too(machine: Machine, pool: ArrayLike, share: ArrayLike) -> NDArray[np.bool_]:
    """Whether who computes moves a put as well, by what its Plan says of it: numbers or columns.

    A CPU rank has one thread for everything. Blocks of a GPU that have a share of their own only send.
    """
    together = (np.asarray(pool) == Pool.COMPUTE) & (np.asarray(share) == EVERYTHING)
    return together | (machine.device.kind == "cpu")


def issue_seconds(machine: Machine, dtype: str, num_bytes: ArrayLike, puts: Puts, *, one_kernel: bool) -> Floats:
    """Seconds for which *puts* of *num_bytes* hold their share.

    Blocks of its own move a put while the wire is busy: their launch is all. So it is of a copy engine, beside what
    `held_seconds` says. Who computes copies it, if it is not in place already: then it is only signalled.
    """
    costs, together = machine.costs, computes_too(machine, puts.pool, puts.share)
    copied: Floats | float = 0.0
    if machine.device.kind == "cpu" and np.any(together & np.logical_not(puts.in_place)):  # nothing else pays for it
        copied = np.where(puts.in_place, 0.0, copy_seconds(machine, dtype, num_bytes))
    beside = step_overhead(machine, one_kernel=one_kernel)
    launched = costs.copy_engine_seconds
    launched += costs.stream_seconds if puts.waits else -engine_latency(machine)
    by_others = np.where(np.asarray(puts.pool) == Pool.COPY_ENGINE, launched, beside)
    signalled = np.where(np.logical_and(puts.packets, puts.in_place), 0.0, costs.step_seconds)
    return np.where(together, signalled + copied, by_others)


def engine_latency(machine: Machine) -> float:
    """Of the launch of a copy engine's transfer, what hides behind the transfers before it."""
    gap = machine.costs.copy_engine_gap_seconds
    return machine.costs.copy_engine_seconds - gap if gap else 0.0


def at_once(machine: Machine, pool: ArrayLike, peers: int) -> int:
    """Puts of *pool* that move at once, to one peer each, where they are not issued by who computes."""
    by_engines = min(machine.device.copy_engines, peers) if pool == Pool.COPY_ENGINE else 1
    return max(1, by_engines)


def held_seconds(machine: Machine, puts: Puts, transit: ArrayLike) -> Floats:
    """Of *transit*, what lies inside the time for which a put holds its share: a copy engine holds on to the end.

    So copies of one engine, or of one stream, never begin while the one before is on its way. Nor does who computes on
    a GPU go on before bytes have left that lie elsewhere than where it computed them.
    """
    pushed = computes_too(machine, puts.pool, puts.share) & np.logical_not(puts.in_place) & (
        machine.device.kind == "gpu")  # fmt: skip
    return np.where(pushed | (np.asarray(puts.pool) == Pool.COPY_ENGINE), transit, 0.0)


def transit_seconds(route: Route, num_bytes: ArrayLike, put_byte_seconds: Floats | None = None) -> Floats:
    """Seconds for which a message of *num_bytes* holds its link; *put_byte_seconds* where puts were measured."""
    byte_seconds = route.byte_seconds if put_byte_seconds is None else put_byte_seconds
    return np.asarray(np.asarray(num_bytes) * byte_seconds + route.message_seconds)


def delay_seconds(machine: Machine, route: Route, *, packets: bool = False, hides: Any = False) -> Floats:
    """Seconds from the last byte's leaving until the peer goes on; *packets* are their own signal.

    *hides*: of transfers of copy engines, whether part of their launch hides behind the one before.
    """
    launched = np.where(hides, engine_latency(machine), 0.0)
    return np.asarray(route.latency_seconds + launched + (0.0 if packets else machine.costs.signal_seconds))


def way(axes: Mapping[str, Any]) -> str:
    """How bytes leave for peers by a schedule's *axes*, as in the machine's rates of puts."""
    if "copy_engine" in (axes.get("engine"), axes.get("collective")):
        return "put_copy_engine"
    return "put_tma" if axes.get("store") == "tma" else "put_registers"


def put_byte_seconds(
    sizes: Problem, machine: Machine, fabric: Fabric, axes: Mapping[str, Any], num_bytes: float | None = None
) -> Floats | None:
    """Per byte of a put, when as many bytes leave each rank as *sizes* ask for; None where that was not measured.

    Of *axes* the SMs that send may be a column. *num_bytes*: those that leave, where others leave over another link.
    """
    name = way(axes)
    apart = machine.ranks_per_host > machine.dimensions[0].count
    if fabric.kind != "nvlink" or apart or not has_curve(machine, name, "any"):
        return None
    sending = np.asarray(axes.get("comm_sms", 0))
    processors = np.where(sending > 0, sending, machine.device.slots)
    wanted = operator(sizes.operator).wire_bytes(sizes) if num_bytes is None else num_bytes
    leaving, processors = np.broadcast_arrays(np.maximum(1.0, np.asarray(wanted, dtype=np.float64)), processors)
    return work_seconds(machine, name, "any", leaving, processors) / leaving


def sent_byte_seconds(
    sizes: Problem, machine: Machine, fabric: Fabric, axes: Mapping[str, Any], num_bytes: float | None = None
) -> Floats | None:
    """The same of puts by a schedule's *axes*: SMs that send while others compute are slower than where nobody does."""
    alone = put_byte_seconds(sizes, machine, fabric, axes, num_bytes)
    if alone is None or axes.get("collective") is not None:
        return alone
    if (engine := axes.get("engine")) is not None:
        return alone * (machine.costs.sending_beside if engine == "sm" else 1.0)
    sending, each = np.asarray(axes.get("comm_sms", 0)), machine.costs.push_bytes_per_second
    return np.where((sending > 0) & (each > 0), np.maximum(alone, 1 / np.maximum(1.0, each * sending)), alone)
