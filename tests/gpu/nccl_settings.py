"""What an NCCL baseline is chosen from: message sizes of the tables' shapes, settings, and the best of their rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kernels.operators import OPERATORS
from kernels.operators.base import Flow
from kernels.problem import Problem
from tests.gpu import tables
from tests.gpu.sittings import Question

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
DEFAULT, GROUPED = "default", "grouped send and receive"
ENOUGH = 0.03
"""A default that is within so much of the best needs no other."""
SAMPLE_S = 1.5e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How NCCL is told to work: variables of its processes, for the collectives that these concern."""

    name: str
    environment: Mapping[str, str] = field(default_factory=dict)
    collectives: tuple[str, ...] = COLLECTIVES
    windows: bool = False
    """Buffers are registered as symmetric windows (ncclCommWindowRegister)."""


def _channels(count: int) -> Setting:
    return Setting(name=f"{count} channels",
                   environment={"NCCL_MIN_NCHANNELS": str(count), "NCCL_MAX_NCHANNELS": str(count)})  # fmt: skip


def _p2p_channels(count: int) -> Setting:
    names = ("NCCL_MIN_P2P_NCHANNELS", "NCCL_MAX_P2P_NCHANNELS", "NCCL_NCHANNELS_PER_PEER")
    environment = dict.fromkeys(names, str(count)) | {"NCCL_MAX_NCHANNELS": str(max(32, count))}
    return Setting(name=f"{count} channels to each peer", environment=environment, collectives=("all_to_all",))


def _protocol(name: str) -> Setting:
    return Setting(name=f"protocol {name}", environment={"NCCL_PROTO": name}, collectives=COLLECTIVES[:3])


def _algorithm(name: str) -> Setting:
    return Setting(name=f"algorithm {name}", environment={"NCCL_ALGO": f"allreduce:{name}"},
                   collectives=("all_reduce",))  # fmt: skip


SETTINGS = (
    Setting(name=DEFAULT), _channels(16), _channels(32), _p2p_channels(16), _p2p_channels(32), _protocol("Simple"),
    _protocol("LL128"), _protocol("LL"), _algorithm("tree"),
    Setting(name="windows", windows=True),
    Setting(name="windows, no thread blocks", environment={"NCCL_CTA_POLICY": "2"}, windows=True),
    _channels(24), _channels(8), _algorithm("ring"),
)  # fmt: skip
"""The most promising first: what the time does not suffice for is named."""


def message_bytes(problem: Problem) -> int:
    """Bytes of one rank's whole buffer in the operator's collective, as nccl-tests count them."""
    stated = OPERATORS[problem.operator]
    extent = stated.extent(problem)
    return extent.rows * (extent.contraction if stated.flow is Flow.RECEIVE else extent.columns) * problem.itemsize


def messages(world: int) -> list[tuple[str, int]]:
    """Collective and bytes of all problems of the tables, each once, small ones first."""
    kinds: tuple[Callable[[int], Iterable[Question]], ...] = (
        tables.gemv, tables.embedding, tables.gemm, tables.layers,
    )  # fmt: skip
    problems = [question.problem for kind in kinds for question in kind(world)]
    return sorted({(OPERATORS[p.operator].collective, message_bytes(p)) for p in problems}, key=lambda each: each[1])


def calls_of(num_bytes: int) -> int:
    """Calls of one graph: the same on all ranks, so no measurement decides it."""
    return max(3, min(48, round(SAMPLE_S / (2e-5 + num_bytes / 2e11))))


def best(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """By collective and bytes: the default's time, the best setting's, and what is gained; seconds in microseconds."""
    found: dict[tuple[str, int], dict[str, float]] = {}
    for row in rows:
        if "median_us" in row:
            times = found.setdefault((row["collective"], row["bytes"]), {})
            times[row["setting"]] = min(row["median_us"], times.get(row["setting"], float("inf")))
    summed = []
    for (collective, size), times in sorted(found.items()):
        name = min(times, key=lambda setting: times[setting])
        default = times.get(DEFAULT)
        summed.append({
            "collective": collective, "bytes": size, "default_us": default, "best": name, "best_us": times[name],
            "gain": None if default is None else 1 - times[name] / default,
        })  # fmt: skip
    return summed


def line(one: Mapping[str, Any]) -> str:
    """A row of the table that is shown."""
    default = "      none" if one["default_us"] is None else f"{one['default_us']:10.1f}"
    gain = "" if one["gain"] is None else f"{one['gain']:6.1%}"
    return f"{one['collective']:15} {one['bytes']:>11,} bytes {default} us, best {one['best_us']:10.1f} us {gain}  " + (
        one["best"] if one["gain"] is None or one["gain"] > ENOUGH else f"default suffices ({one['best']})"
    )
