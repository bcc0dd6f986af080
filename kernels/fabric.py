"""A Fabric is how the ranks of one trial are linked: shared memory, an emulated link or a real network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from kernels.schedule import Refusal

if TYPE_CHECKING:
    from kernels.machine import Machine

KINDS = ("emulated", "shared_memory", "network", "nvlink")
"""`emulated`: a modelled link between CPU ranks; `shared_memory`: nothing between them; `network`: gloo or NCCL
between hosts; `nvlink`: peer access between GPUs."""
OF_BACKEND = {"cpu": ("emulated", "shared_memory", "network"), "triton": ("nvlink", "network", "emulated")}
"""What can link the ranks of a backend; of GPUs, an emulated link is simulated only."""

NUMBERS = ("wire_to_compute", "bandwidth_bytes_per_second", "latency_seconds", "message_seconds")
DEFAULT = "emulated:wire_to_compute=1"
LATENCY_SECONDS = 100e-6
MESSAGE_SECONDS = 150e-6
"""Latency and per-message gap of the emulated link unless stated. Chosen so that, at the laptop presets' 40 ms and
more of compute, they weigh about what some microseconds do against a GPU's 100 µs: pieces can be too small."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """One rank's egress link. An emulated fabric is *resolved* once its bandwidth is known."""

    kind: str = "emulated"
    wire_to_compute: float | None = None
    """Minimal wire time over compute time; the bandwidth follows from it, once per machine and problem."""
    bandwidth_bytes_per_second: float | None = None
    """Per rank and direction; None: not yet resolved, or whatever the real link gives."""
    latency_seconds: float = 0.0
    """From the last byte's leaving to its being visible."""
    message_seconds: float = 0.0
    """Gap that one message adds on its link whatever its size (LogGP's g)."""

    @property
    def emulated(self) -> bool:
        return self.kind == "emulated"

    @property
    def resolved(self) -> bool:
        """Whether a trial can be run on it as it stands."""
        return not self.emulated or self.bandwidth_bytes_per_second is not None

    def resolve(self, wire_bytes: int, compute_seconds: float) -> Fabric:
        """The same fabric with the bandwidth at which *wire_bytes* take wire_to_compute x *compute_seconds*.

        *wire_bytes* is the operator's minimum per rank, *compute_seconds* the sequential schedule's computation alone.
        With nothing to send (world 1) the bandwidth is of no consequence; one byte stands in for it.
        """
        if self.resolved or self.wire_to_compute is None:
            return self
        found = emulated_bandwidth(max(1, wire_bytes), self.wire_to_compute, compute_seconds)
        return replace(self, bandwidth_bytes_per_second=found)

    def wire_seconds(self, num_bytes: float, num_messages: int = 1) -> float:
        """Time that one egress direction is busy with *num_bytes* in *num_messages*."""
        if self.bandwidth_bytes_per_second is None:
            return 0.0
        return num_bytes / self.bandwidth_bytes_per_second + num_messages * self.message_seconds

    def __str__(self) -> str:
        stated = {name: value for name, value in asdict(self).items() if name != "kind" and value is not None}
        stated = stated if self.emulated else {}
        return self.kind + (":" + ",".join(f"{n}={v:.6g}" for n, v in stated.items()) if stated else "")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Fabric:
        return cls(**data)


def emulated_bandwidth(wire_bytes: Any, wire_to_compute: Any, compute_seconds: Any) -> Any:
    """Bytes per second at which the wire takes wire_to_compute times as long as the computation; numbers or columns."""
    return wire_bytes / (wire_to_compute * compute_seconds)


def parse(text: str) -> Fabric:
    """The fabric written as `kind` or `kind:name=value,...`; Refusal says what is accepted.

    `emulated` alone means wire_to_compute = 1; `emulated:wire_to_compute=0.5`;
    `emulated:bandwidth_bytes_per_second=2e9,latency_seconds=1e-4`; `shared_memory`; `network`; `nvlink`. Where both
    the ratio and the bandwidth are stated, as `str` of a resolved fabric does, the bandwidth counts.
    """
    kind, _, rest = text.partition(":")
    if kind not in KINDS:
        raise Refusal(f"fabric = {text!r} was asked for; its kind {kind!r} is unknown. Accepted: {', '.join(KINDS)}.")
    numbers = dict(_number(part, text) for part in rest.split(",") if part)
    if kind != "emulated":
        if numbers:
            raise Refusal(f"fabric = {text!r} was asked for; only an emulated link takes numbers. Write {kind!r}.")
        return Fabric(kind=kind)
    if "bandwidth_bytes_per_second" not in numbers:
        numbers.setdefault("wire_to_compute", 1.0)
    numbers.setdefault("latency_seconds", LATENCY_SECONDS)
    numbers.setdefault("message_seconds", MESSAGE_SECONDS)
    return Fabric(kind=kind, **numbers)


def refusal(fabric: Fabric, machine: Machine) -> str | None:
    """Why the ranks of *machine* cannot be linked by *fabric*, or None."""
    accepted = OF_BACKEND[machine.backend]
    if fabric.kind in accepted:
        return None
    return (
        f"fabric = {fabric.kind} was asked for on machine {machine.name}, whose {machine.device.kind.upper()} ranks "
        f"have no such link. Accepted: {', '.join(accepted)}."
    )


def _number(part: str, text: str) -> tuple[str, float]:
    name, _, value = part.partition("=")
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if (
        name not in NUMBERS
        or not 0 <= number < float("inf")
        or (number == 0 and not name.endswith("latency_seconds") and name != "message_seconds")
    ):
        raise Refusal(
            f"fabric = {text!r} was asked for, but {part!r} is not a positive number of "
            f"{', '.join(NUMBERS)}. Accepted: such as emulated:wire_to_compute=0.5."
        )
    return name, number
