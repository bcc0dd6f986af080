"""A Fabric is how the ranks of one trial are linked: shared memory, an emulated link or a real network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from kernels.machine import BACKENDS, Machine
from kernels.schedule import Refusal

KINDS = ("emulated", "shared_memory", "network", "nvlink")
"""`emulated`: a modelled link between CPU ranks; `shared_memory`: nothing between them; `network`: gloo or NCCL
between hosts; `nvlink`: peer access between GPUs."""

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
    def across(self) -> bool:
        """Whether ranks that it links sit on several hosts."""
        return self.kind == "network"

    @property
    def resolved(self) -> bool:
        """Whether a trial can be run on it as it stands."""
        return not self.emulated or self.bandwidth_bytes_per_second is not None

    @property
    def as_asked(self) -> Fabric:
        """Without the bandwidth that followed from a ratio: two sittings resolve it differently."""
        return self if self.wire_to_compute is None else replace(self, bandwidth_bytes_per_second=None)

    def resolve(self, wire_bytes: int, compute_seconds: float) -> Fabric:
        """The same fabric with the bandwidth at which *wire_bytes* take wire_to_compute x *compute_seconds*.

        *wire_bytes* is the operator's minimum per rank, *compute_seconds* the sequential schedule's computation alone.
        With nothing to send (world 1) the bandwidth is of no consequence; one byte stands in for it.
        """
        if self.resolved or self.wire_to_compute is None:
            return self
        bandwidth = emulated_bandwidth(max(1, wire_bytes), self.wire_to_compute, compute_seconds)
        return replace(self, bandwidth_bytes_per_second=bandwidth)

    def wire_seconds(self, num_bytes: float, num_messages: int = 1) -> float:
        """Time that one egress direction is busy with *num_bytes* in *num_messages*."""
        if self.bandwidth_bytes_per_second is None:
            return 0.0
        return num_bytes / self.bandwidth_bytes_per_second + num_messages * self.message_seconds

    def __str__(self) -> str:
        numbers = {name: value for name, value in asdict(self).items() if name != "kind" and value is not None}
        numbers = numbers if self.emulated else {}
        return self.kind + (":" + ",".join(f"{n}={v:.6g}" for n, v in numbers.items()) if numbers else "")

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
    kind, numbers = kind_and_numbers(text)
    if kind != "emulated":
        if numbers:
            raise Refusal(f"fabric = {text!r} has numbers, but only an emulated link takes them. Accepted: {kind}.")
        return Fabric(kind=kind)
    if "bandwidth_bytes_per_second" not in numbers:
        numbers.setdefault("wire_to_compute", 1.0)
    numbers.setdefault("latency_seconds", LATENCY_SECONDS)
    numbers.setdefault("message_seconds", MESSAGE_SECONDS)
    return Fabric(kind=kind, **numbers)


def kind_and_numbers(text: str) -> tuple[str, dict[str, float]]:
    """The kind and the numbers that *text* itself states, nothing added; Refusal as of `parse`."""
    kind, _, rest = text.partition(":")
    if kind not in KINDS:
        raise Refusal(f"fabric = {text!r} has the unknown kind {kind!r}. Accepted: {', '.join(KINDS)}.")
    return kind, dict(_number(part, text) for part in rest.split(",") if part)


def usual(machine: Machine, world: int) -> str:
    """What links *world* ranks of *machine* where nobody says; as text."""
    if machine.backend == "cpu":
        return DEFAULT
    return "nvlink" if world <= machine.ranks_per_host else "network"


def refusal(fabric: Fabric, machine: Machine, world: int = 1) -> str | None:
    """Why *world* ranks of *machine* cannot be linked by *fabric*, or None."""
    gpus = machine.backend == "triton"
    accepted = [kind for kind in BACKENDS[machine.backend]
                if kind != "network" or not gpus or machine.has_network]  # fmt: skip
    if fabric.emulated and gpus:
        return (
            f"fabric = emulated has no price on machine {machine.name}. Its gap of {MESSAGE_SECONDS * 1e6:.0f} µs a "
            f"message suits CPU ranks; GPUs store over the 1 link that they have. Accepted: {', '.join(accepted)}."
        )
    if fabric.kind == "nvlink" and gpus and world > (most := machine.ranks_per_host):
        return (
            f"fabric = nvlink does not link {world} ranks of machine {machine.name}. NVLink ends at the host, which "
            f"has {most} GPUs: {world} > {most}. Accepted: world 1..{most}, or fabric = network."
        )
    if fabric.kind in accepted:
        return None
    return (
        f"fabric = {fabric.kind} does not exist on machine {machine.name}: {machine.device.kind.upper()} ranks "
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
            f"fabric = {text!r} has {part!r}, which is not a positive number of {', '.join(NUMBERS)}. Accepted: "
            "values such as emulated:wire_to_compute=0.5."
        )
    return name, number
