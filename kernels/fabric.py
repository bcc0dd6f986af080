"""A Fabric is how the ranks of one trial are linked: shared memory, an emulated link or a real network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from kernels.machine import BACKENDS, NETWORK, Dimension, Machine
from kernels.schedule import Refusal

SHARED_GPU = "shared_gpu"
KINDS = ("emulated", "shared_memory", "network", "nvlink", SHARED_GPU)
"""`emulated`: a modelled link between CPU ranks; `shared_memory`: nothing between them; `network`: gloo or NCCL
between hosts; `nvlink`: peer access between GPUs; `shared_gpu`: one GPU's memory, which gives its ranks turns."""

FEWEST_SHARING, MOST_SHARING = 2, 8
"""Ranks that may share a GPU: our GEMM kernels take one tensor descriptor per rank, at most 8."""
SLICE_SECONDS = 2e-3
"""How long a GPU runs one process before the next one of those that share it, as one H200 did it."""
SLICES_LEAST = 100
"""A wait for a peer that shares the GPU lasts one slice of every rank; its deadline is so many times as long."""
TIMES_ARE_NOT = "Ranks share a GPU: order and results are real, times are not."
"""Stands with every time of such ranks."""


def least_wait_s(ranks_on_gpu: int) -> float:
    """The shortest deadline of a wait, s, between *ranks_on_gpu* ranks of one GPU; 0 where each has one."""
    return SLICES_LEAST * SLICE_SECONDS * ranks_on_gpu if ranks_on_gpu > 1 else 0.0


LINK_NAMES = ("link", "link_between_hosts")
"""Names in spans of the links that bytes leave on, by level: inside a host (the pool's name), and between hosts."""
BETWEEN = ("between_slowdown", "between_latency_seconds")
"""Names of the numbers that describe the link between hosts."""
EXAMPLES = {"bandwidth_bytes_per_second": "1e9", "latency_seconds": "1e-4", "message_seconds": "1e-4", "hosts": "2",
            "between_slowdown": "8", "between_latency_seconds": "4e-4"}  # fmt: skip
NUMBERS = ("wire_to_compute", "bandwidth_bytes_per_second", "latency_seconds", "message_seconds", "hosts", *BETWEEN)
DEFAULT = "emulated:wire_to_compute=1"
LATENCY_SECONDS = 100e-6
MESSAGE_SECONDS = 150e-6
"""Default latency and per-message gap of the emulated link. Chosen so that, at the laptop presets' 40 ms and more of
compute, they weigh about what some microseconds do against a GPU's 100 µs: pieces can be too small."""
BETWEEN_SLOWDOWN = 8.0
BETWEEN_LATENCY_SECONDS = 4 * LATENCY_SECONDS
"""Default slowdown and latency of the link between emulated hosts. Chosen: 450 GB/s of NVLink 4 over 50 GB/s of a
400 Gbit/s NIC are 9, and a NIC's 5 µs and more are a few times NVLink's 1 to 2 µs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """How ranks are linked: each rank's egress link, and with several hosts a second one between them.

    An emulated fabric is *resolved* once its bandwidth is known. Emulated hosts hold equally many ranks, in order. A
    rank sends inside its host over one link and to other hosts over the other, at the same time.
    """

    kind: str = "emulated"
    wire_to_compute: float | None = None
    """Minimal wire time over compute time; the bandwidth follows from it, once per machine and problem."""
    bandwidth_bytes_per_second: float | None = None
    """Bandwidth per rank and direction, inside a host; None: not yet resolved, or whatever the real link gives."""
    latency_seconds: float = 0.0
    """Time from when the last byte leaves until it is visible."""
    message_seconds: float = 0.0
    """Gap that one message adds on its link whatever its size (LogGP's g)."""
    hosts: int = 1
    """Number of emulated hosts."""
    between_slowdown: float = 1.0
    """Bandwidth inside a host over bandwidth between hosts; 1 for one host."""
    between_latency_seconds: float = 0.0
    """Latency between hosts, as `latency_seconds`; 0 for one host."""

    @property
    def emulated(self) -> bool:
        return self.kind == "emulated"

    @property
    def across(self) -> bool:
        """Whether the ranks that it links are on several hosts."""
        return self.kind == "network"

    @property
    def shares_gpu(self) -> bool:
        """Whether its ranks take turns on one GPU, so that times say nothing."""
        return self.kind == SHARED_GPU

    @property
    def resolved(self) -> bool:
        """Whether a trial can run on it without `resolve`."""
        return not self.emulated or self.bandwidth_bytes_per_second is not None

    @property
    def as_requested(self) -> Fabric:
        """The requested fabric, without a bandwidth that follows from a ratio: two runs resolve it differently."""
        return self if self.wire_to_compute is None else replace(self, bandwidth_bytes_per_second=None)

    def resolve(self, wire_bytes: int, compute_seconds: float, world: int) -> Fabric:
        """The same fabric with the bandwidth at which *wire_bytes* take wire_to_compute x *compute_seconds*.

        *wire_bytes* is the operator's minimum per rank, in equal shares to all peers of *world* ranks,
        *compute_seconds* the sequential schedule's computation alone. With nothing to send (world 1) the bandwidth does
        not matter, and is computed as if there were one byte.
        """
        if self.resolved or self.wire_to_compute is None:
            return self
        rate = emulated_bandwidth(max(1, wire_bytes), self.wire_to_compute, compute_seconds)
        return replace(self, bandwidth_bytes_per_second=rate / self.pace(world))

    def pace(self, world: int, crossing: float | None = None) -> float:
        """The highest rate at which bytes can leave a rank of *world*, over the bandwidth inside a host.

        *crossing*: the share of the bytes that must cross between hosts; None: that of equal shares to all peers. Both
        links work at the same time, so that their sum is one bound; the slower link with its share is the other.
        """
        if self.hosts == 1 or world == 1:
            return 1.0
        share = (world - world // self.hosts) / (world - 1) if crossing is None else crossing
        return min(1 + 1 / self.between_slowdown, 1 / (self.between_slowdown * share))

    def rate(self, world: int, crossing: float | None = None) -> float | None:
        """Bytes per second at `pace`; None where the fabric has no bandwidth of its own."""
        known = self.bandwidth_bytes_per_second
        return None if known is None else known * self.pace(world, crossing)

    def links(self, world: int) -> tuple[Dimension, ...]:
        """The egress links of each of *world* ranks of a resolved emulated fabric: inside a host, then between."""
        rate = self.bandwidth_bytes_per_second
        assert rate is not None, f"{self} must be resolved before its links are known"
        inside = Dimension(topology="switch", count=world // self.hosts, bandwidth_bytes_per_second=rate,
                           latency_seconds=self.latency_seconds, message_seconds=self.message_seconds)  # fmt: skip
        if self.hosts == 1:
            return (inside,)
        slower = rate / self.between_slowdown
        return inside, replace(inside, count=self.hosts, bandwidth_bytes_per_second=slower,
                               latency_seconds=self.between_latency_seconds, link=NETWORK)  # fmt: skip

    def level(self, source: int, peer: int, world: int) -> int:
        """The place in `links` of the link from *source* to *peer*."""
        on_each = world // self.hosts
        return int(source // on_each != peer // on_each)

    def __str__(self) -> str:
        numbers = {name: value for name, value in self.to_json().items() if name != "kind" and value is not None}
        numbers = numbers if self.emulated else {}
        return self.kind + (":" + ",".join(f"{n}={v:.6g}" for n, v in numbers.items()) if numbers else "")

    def to_json(self) -> dict[str, Any]:
        """The fabric as JSON. A single host is left out, so that trials from before the axis keep their keys."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # flat: nothing to copy
        return values if self.hosts > 1 else {name: values[name] for name in values if name not in ("hosts", *BETWEEN)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Fabric:
        return cls(**data)


def emulated_bandwidth(wire_bytes: Any, wire_to_compute: Any, compute_seconds: Any) -> Any:
    """Bytes per second at which the wire takes wire_to_compute times as long as the computation; numbers or columns."""
    return wire_bytes / (wire_to_compute * compute_seconds)


def parse(text: str) -> Fabric:
    """The fabric written as `kind` or `kind:name=value,...`; Refusal says what is accepted.

    `emulated` alone means wire_to_compute = 1; `emulated:wire_to_compute=0.5`;
    `emulated:bandwidth_bytes_per_second=2e9,latency_seconds=1e-4`; `emulated:hosts=2,between_slowdown=8`;
    `shared_memory`; `network`; `nvlink`; `shared_gpu`. Where both the ratio and the bandwidth are given, as in the text
    of a resolved fabric, the bandwidth counts.
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
    return Fabric(kind=kind, **{**numbers, **_between(numbers, text)})  # type: ignore[arg-type]


def _between(numbers: Mapping[str, float], text: str) -> dict[str, float]:
    """The hosts and the link between them; Refusal where one host has numbers of that link."""
    hosts = int(numbers.get("hosts", 1))
    if hosts > 1:
        usual = {"between_slowdown": BETWEEN_SLOWDOWN, "between_latency_seconds": BETWEEN_LATENCY_SECONDS}
        return {"hosts": hosts, **{name: numbers.get(name, value) for name, value in usual.items()}}
    if between := [name for name in BETWEEN if name in numbers]:
        raise Refusal(
            f"fabric = {text!r} states {between[0]} for 1 host, and no link lies between fewer than 2. Accepted: "
            f"hosts=2 or more with it, or no {between[0]}."
        )
    return {"hosts": hosts}


def kind_and_numbers(text: str) -> tuple[str, dict[str, float]]:
    """The kind and the numbers in *text*, without defaults; Refusal as in `parse`."""
    kind, _, rest = text.partition(":")
    if kind not in KINDS:
        raise Refusal(f"fabric = {text!r} has the unknown kind {kind!r}. Accepted: {', '.join(KINDS)}.")
    return kind, dict(_number(part, text) for part in rest.split(",") if part)


def usual(machine: Machine, world: int) -> str:
    """The default fabric of *world* ranks of *machine*, as text."""
    if machine.backend == "cpu":
        return DEFAULT
    return "nvlink" if world <= machine.ranks_per_host else "network"


def ranks_on_host(fabric: Fabric, machine: Machine, world: int) -> int:
    """How many of *world* ranks of *machine* are on a host: as many as it has GPUs, or one each where they are fewer.

    On a fabric inside one host it is all of them.
    """
    if fabric.emulated:
        return max(1, world // fabric.hosts)
    if not fabric.across:
        return world
    return machine.ranks_per_host if world > machine.ranks_per_host else 1


def refusal(fabric: Fabric, machine: Machine, world: int = 1) -> str | None:
    """Why *world* ranks of *machine* cannot be linked by *fabric*, or None."""
    gpus = machine.backend == "triton"
    if fabric.shares_gpu:
        return _sharing_refusal(machine, world)
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
        return _uneven(fabric, world)
    return (
        f"fabric = {fabric.kind} does not exist on machine {machine.name}: {machine.device.kind.upper()} ranks "
        f"have no such link. Accepted: {', '.join(accepted)}."
    )


def _sharing_refusal(machine: Machine, world: int) -> str | None:
    """Why *world* ranks of *machine* cannot share a GPU, or None; how many GPUs it has does not matter."""
    if machine.backend != "triton":
        return (
            f"fabric = {SHARED_GPU} does not exist on machine {machine.name}: CPU ranks have 0 GPUs to share. "
            f"Accepted: {', '.join(BACKENDS[machine.backend])}, or a machine of GPUs."
        )
    if FEWEST_SHARING <= world <= MOST_SHARING:
        return None
    bound = f"{world} < {FEWEST_SHARING}" if world < FEWEST_SHARING else f"{world} > {MOST_SHARING}"
    return (
        f"fabric = {SHARED_GPU} does not fit world = {world}: {FEWEST_SHARING} to {MOST_SHARING} ranks share a GPU, "
        f"and {bound}. Accepted: world {FEWEST_SHARING}..{MOST_SHARING}, or fabric = nvlink."
    )


def sharing_mismatch(fabric: Fabric, backend: str, ranks_on_gpu: int) -> str | None:
    """Why ranks of *backend*, of which *ranks_on_gpu* are dealt each GPU, do not fit *fabric*, or None.

    Hosts that are only addresses of one computer may share its GPU: the link of their hardware says so.
    """
    if backend != "triton" or fabric.across or fabric.shares_gpu == (ranks_on_gpu > 1):
        return None
    if fabric.shares_gpu:
        return (
            f"fabric = {SHARED_GPU} is not how these ranks are linked: each GPU has {ranks_on_gpu} rank, and ranks "
            f"that share one are {FEWEST_SHARING} or more. Accepted: fabric = nvlink, or `workbench cluster up --set "
            "share_gpu=yes`."
        )
    return (
        f"fabric = {fabric.kind} needs a GPU for each rank, but {ranks_on_gpu} ranks share the GPU here. Accepted: "
        f"fabric = {SHARED_GPU} (--share-gpu, or “Share this GPU” on the page), or a GPU for each rank."
    )


def _uneven(fabric: Fabric, world: int) -> str | None:
    """Why *world* ranks cannot be spread evenly over the fabric's hosts, or None."""
    if world % fabric.hosts == 0:
        return None
    even = ", ".join(str(hosts) for hosts in range(1, world + 1) if world % hosts == 0)
    ranks = "1 rank" if world == 1 else f"{world} ranks"
    return (
        f"fabric = emulated with hosts = {fabric.hosts} does not divide {ranks}. Each host has as many, and "
        f"{world} / {fabric.hosts} is not whole. Accepted: hosts = {even}, or a world that {fabric.hosts} divides."
    )


def _number(part: str, text: str) -> tuple[str, float]:
    name, _, value = part.partition("=")
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    may_be_0 = name.endswith("latency_seconds") or name == "message_seconds"
    if name not in NUMBERS:
        raise Refusal(f"fabric = {text!r} has {part!r}, and no number of a fabric is called {name!r}. Accepted: "
                      f"{', '.join(NUMBERS)}, as in emulated:wire_to_compute=0.5.")  # fmt: skip
    if not 0 <= number < float("inf") or (number == 0 and not may_be_0):
        least = "from 0 on" if may_be_0 else "above 0"
        raise Refusal(f"fabric = {text!r} has {name} = {value or 'nothing'}, which is no number {least}. Accepted: "
                      f"numbers {least}, as in emulated:{name}={EXAMPLES.get(name, '0.5')}.")  # fmt: skip
    if name == "hosts" and number != int(number):
        raise Refusal(f"fabric = {text!r} has {part!r}, which is no whole number of hosts. Accepted: hosts=1, hosts=2 "
                      "and so on, as far as the ranks divide.")  # fmt: skip
    if name == "between_slowdown" and number < 1:
        raise Refusal(f"fabric = {text!r} has {part!r}, which is less than 1: no link between hosts is faster than the "
                      "one inside. Accepted: 1 or more.")  # fmt: skip
    return name, number
