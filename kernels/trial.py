"""A Trial is everything that decides a time: problem, schedule, backend, machine, fabric, protocol and part."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from kernels.fabric import Fabric
from kernels.problem import Problem
from kernels.protocol import Protocol, is_one_call
from kernels.schedule import Schedule

PARTS = ("whole", "compute", "communication")


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One thing to be timed. Two trials with the same key ask the same question."""

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
        """Whether the network links its ranks: on one host alone they would be timed over something else."""
        return self.fabric.across

    @property
    def world(self) -> int:
        return self.problem.world

    @property
    def is_one_call(self) -> bool:
        """Whether a call is timed alone, which is compared with no other time."""
        return is_one_call(self.protocol.name, self.backend) or (
            self.backend != "cpu" and self.protocol.calls_per_graph == 1
        )

    @cached_property
    def key(self) -> str:
        """16 hexadecimal digits, the same in every process."""
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
