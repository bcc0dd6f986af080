"""A Trial is everything that decides a time: problem, schedule, backend, machine, fabric, protocol and part."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

from kernels.fabric import Fabric
from kernels.problem import Problem
from kernels.schedule import Refusal, Schedule

# Protocols.


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """How often and in what state a trial is timed: warm-ups are dropped, each repeat is a sample on every rank."""

    name: str
    warmups: int
    repeats: int
    cuda_graph: bool = True
    """Whether a captured graph is replayed (GPUs only; CPU ranks always call)."""
    cold_l2: bool = True
    """Whether operands rotate so that the L2 is cold (GPUs only)."""
    calls_per_graph: int = 0
    """Number of calls between two meetings of the ranks; 0: as many as fill some milliseconds.

    Many calls share the cost of the meetings, a single call pays all of it (GPUs only).
    """
    load_seconds: float = 0.0
    """Seconds for which each turn of a trial loads the device without a pause before its samples (GPUs only).

    0: trials take turns sample by sample, and the device may rest between them (kernels/steady.py).
    """

    @property
    def is_steady(self) -> bool:
        """Whether its samples are taken under steady load."""
        return self.load_seconds > 0

    def to_json(self) -> dict[str, Any]:
        """The protocol as JSON, without the fields of _NEWER at their default, so that older trials keep their keys."""
        values = ((field.name, getattr(self, field.name)) for field in fields(self))
        return {name: value for name, value in values if name not in _NEWER or value}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Protocol:
        return cls(**data)


_NEWER = ("calls_per_graph", "load_seconds")
"""Fields that the first trials did not have."""
GPU_ONLY = ("cuda_graph", "cold_l2", *_NEWER)
"""Fields without an effect on CPU ranks."""
LOAD_SECONDS = 2.0
"""Seconds of load before samples of protocol `steady`: two windows of kernels/steady.py.

A GEMM without a pause took an H100 within 2 % of its lasting clock after half a second (data/probes/h100_power.jsonl).
"""

PROTOCOLS = {
    "quick": Protocol(name="quick", warmups=1, repeats=5),
    "default": Protocol(name="default", warmups=3, repeats=15),
    "thorough": Protocol(name="thorough", warmups=5, repeats=50),
    "latency": Protocol(name="latency", warmups=5, repeats=50, calls_per_graph=1),
    "steady": Protocol(name="steady", warmups=3, repeats=16, load_seconds=LOAD_SECONDS),
}


ONE_CALL = "latency"
"""Suffix of the names of protocols with one call per graph, here and in gangs without Dask."""


def is_one_call(name: str | None, backend: str | None = None) -> bool:
    """Whether the protocol called *name* times one call per graph; such times are only compared with each other.

    A single call pays the whole cost of its start and end, which many in a row share. CPU ranks have no graphs.
    """
    known = PROTOCOLS.get(name or "")
    return backend != "cpu" and _is_one_call(known, name or "")


def _is_one_call(known: Protocol | None, name: str) -> bool:
    return known.calls_per_graph == 1 if known else name.endswith(ONE_CALL)


STEADY = "steady"
"""Suffix of the names of protocols of steady load, here and in gangs without Dask."""


def is_steady(name: str | None) -> bool:
    """Whether the protocol called *name* times under steady load; such times are only compared with each other."""
    known = PROTOCOLS.get(name or "")
    return known.is_steady if known else (name or "").endswith(STEADY)


SHORT = "burst_"
"""Prefix of the names of protocols of few samples, so that a block need not reach the power cap: without Dask."""
MANY_CALLS, ONE_CALL_ALONE, UNDER_LOAD, SHORT_BLOCK = "many calls", "one call", "steady load", "a short block"
"""What a time is of: `compared_as`."""


def compared_as(name: str | None, backend: str | None = None) -> str:
    """What times of the protocol called *name* are of: only times of the same are compared, joined or fitted together.

    MANY_CALLS in a row, ONE_CALL_ALONE per graph, calls UNDER_LOAD, or few samples of a SHORT_BLOCK.
    """
    if is_steady(name):
        return UNDER_LOAD
    if (name or "").startswith(SHORT):
        return SHORT_BLOCK
    return ONE_CALL_ALONE if is_one_call(name, backend) else MANY_CALLS


def protocol_refusal(of: Protocol, backend: str) -> str | None:
    """Why ranks of *backend* cannot time by protocol *of*, or None."""
    if backend != "cpu" or not of.is_steady:
        return None
    return (
        f"protocol = {of.name} does not run on backend = cpu. It loads a GPU for {of.load_seconds:g} s until its power "
        f"cap decides its clock, and 0 clocks of CPU ranks are read. Accepted: {', '.join(_rested())}."
    )


def _rested() -> list[str]:
    return [name for name, known in PROTOCOLS.items() if not known.is_steady]


ONE_CALL_NOTE = "estimates are of many calls in a row, which share what begins and ends them"
"""Note for tables that show estimates with times of one call per graph."""


FIRST_LOOK, AT_LENGTH = "first_", "device"
"""Prefixes of protocols of gangs without Dask: a few iterations of everything, then many of the best."""


def protocol_text(name: str | None, backend: str | None = None) -> str:
    """A description of the protocol called *name*; empty without a name."""
    if not name:
        return ""
    meanings = {
        "a first look, few iterations": name.startswith(FIRST_LOOK),
        "at length, many iterations": name.startswith(AT_LENGTH),
        "one call per graph": is_one_call(name, backend),
        "under steady load": is_steady(name),
    }
    text = ", ".join(meaning for meaning, holds in meanings.items() if holds)
    return f"protocol {name}: {text}" if text else f"protocol {name}"


def protocol(name: str) -> Protocol:
    """The protocol called *name*."""
    if name not in PROTOCOLS:
        raise Refusal(f"There is no protocol {name!r}. Accepted: {', '.join(PROTOCOLS)}.")
    return PROTOCOLS[name]


# Trials.

PARTS = ("whole", "compute", "communication")


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Everything that determines one time. Trials with equal keys are interchangeable."""

    problem: Problem
    schedule: Schedule
    backend: str
    machine: str
    """Name of the machine that it runs on or is simulated for."""
    fabric: Fabric
    protocol: Protocol
    part: str = "whole"
    """`whole`, `compute` alone or `communication` alone."""

    @property
    def across(self) -> bool:
        """Whether the network links its ranks, so that it cannot be timed on one host."""
        return self.fabric.across

    @property
    def world(self) -> int:
        return self.problem.world

    @property
    def is_one_call(self) -> bool:
        """Whether single calls are timed, which are only compared with each other."""
        return is_one_call(self.protocol.name, self.backend) or (
            self.backend != "cpu" and self.protocol.calls_per_graph == 1
        )

    @property
    def compared_as(self) -> str:
        """What its time is of (`compared_as`): it is only compared with times of the same."""
        if self.protocol.is_steady:
            return UNDER_LOAD
        return ONE_CALL_ALONE if self.is_one_call else compared_as(self.protocol.name, self.backend)

    @cached_property
    def key(self) -> str:
        """Its identity: 16 hexadecimal digits, the same in every process."""
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def of_part(self, part: str) -> Trial:
        """The same trial of another part."""
        return replace(self, part=part)

    def to_json(self) -> dict[str, Any]:
        return {
            "problem": self.problem.to_json(),
            "schedule": self.schedule.to_json(),
            "backend": self.backend,
            "machine": self.machine,
            "fabric": self.fabric.to_json(),
            "protocol": self.protocol.to_json(),
            "part": self.part,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Trial:
        return cls(
            problem=Problem.from_json(data["problem"]),
            schedule=Schedule.from_json(data["schedule"]),
            backend=data["backend"],
            machine=data["machine"],
            fabric=Fabric.from_json(data["fabric"]),
            protocol=Protocol.from_json(data["protocol"]),
            part=data["part"],
        )
