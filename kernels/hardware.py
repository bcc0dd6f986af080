"""Hardware is what ran a gang, as its workers found it: a time is known for the hardware that it is from, no other."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

SHARED_MEMORY, NETWORK, NVLINK, PCIE = "shared memory", "network", "nvlink", "pcie"
UNKNOWN_LINK = "unknown link"
"""GPUs of one host, where nothing is installed that could tell how they are linked."""
ALONE = "one rank"
"""The link of a gang of one: nobody is there to be linked to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """What one worker has for its rank, as found there."""

    kind: str
    """`gpu`, or `cpu` where it has none."""
    model: str
    """The GPU as its driver calls it, or else the processor."""
    processor: str
    """The processor, which ranks of backend = cpu compute on whatever else is there."""
    cores: tuple[int, ...]
    """Numbers of the host's cores that its rank may run on; other workers of the host may have the same ones."""
    memory_bytes: int | None = None
    """Of the GPU; None without one, and where the driver does not tell."""
    uuid: str = ""
    """The GPU's; empty without one, and where the driver does not tell."""
    links: tuple[str, ...] | None = None
    """UUIDs of the GPUs that its own reaches over NVLink; None where nothing is installed that could tell."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"cores": list(self.cores), "links": None if self.links is None else list(self.links)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Device:
        links = data["links"]
        plain = {"cores": tuple(data["cores"]), "links": None if links is None else tuple(links)}
        return cls(**{**data, **plain})


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """What ran a gang. Two gangs with equal hardware may take each other's times for their own."""

    model: str
    """The GPU or the processor; where a gang has several kinds of them, each with its count."""
    link: str
    """How the ranks are linked: SHARED_MEMORY, NETWORK, NVLINK, PCIE, UNKNOWN_LINK or ALONE."""
    memory_bytes: int | None = None
    """Of the GPU that has least; None of CPU ranks."""
    cores: float | None = None
    """Per CPU rank, where they have fewest: 0.5 where two ranks share one. None of GPU ranks."""

    def __str__(self) -> str:
        memory = [] if self.memory_bytes is None else [f"{self.memory_bytes / 2**30:.0f} GiB"]
        noun = "core" if self.cores == 1 else "cores"
        cores = [] if self.cores is None else [f"{self.cores:.3g} {noun} per rank"]
        return ", ".join([self.model, *memory, *cores, self.link])

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Hardware:
        return cls(**data)

    @property
    def models(self) -> tuple[str, ...]:
        """Each kind of GPU or processor that the gang has."""
        return tuple(filter(None, re.split(r"(?:^| and )\d+ x ", self.model)))

    @property
    def text(self) -> str:
        """Equal texts are equal hardware: what a store compares."""
        return json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))


def hardware_of(backend: str, devices: Sequence[Device], hosts: Sequence[str]) -> Hardware | None:
    """What a gang of *backend* is on these *devices*, one per rank, on *hosts*, in the same order.

    None where they cannot form one: there are no ranks, or one of backend = triton has no GPU.
    """
    on_gpus = backend != "cpu"
    if not devices or (on_gpus and any(device.kind != "gpu" for device in devices)):
        return None
    models = [device.model if on_gpus else device.processor for device in devices]
    if on_gpus:
        memories = [device.memory_bytes for device in devices if device.memory_bytes is not None]
        link = _link_of_gpus(devices, hosts)
        return Hardware(model=_counted(models), link=link, memory_bytes=min(memories, default=None))
    link = ALONE if len(devices) == 1 else SHARED_MEMORY if len(set(hosts)) == 1 else NETWORK
    return Hardware(model=_counted(models), link=link, cores=_cores_per_rank(devices, hosts))


def _counted(models: Sequence[str]) -> str:
    counts = sorted(Counter(models).items())
    return counts[0][0] if len(counts) == 1 else " and ".join(f"{count} x {model}" for model, count in counts)


def _cores_per_rank(devices: Sequence[Device], hosts: Sequence[str]) -> float:
    """Where ranks of one host may run on the same cores, they share them."""
    cores: dict[str, set[int]] = {}
    for device, host in zip(devices, hosts, strict=True):
        cores.setdefault(host, set()).update(device.cores)
    return min(len(cores[host]) / count for host, count in Counter(hosts).items())


def _link_of_gpus(devices: Sequence[Device], hosts: Sequence[str]) -> str:
    if len(devices) == 1:
        return ALONE
    if len(set(hosts)) > 1:
        return NETWORK
    if any(device.links is None for device in devices):
        return UNKNOWN_LINK
    everybody = {device.uuid for device in devices}
    linked = all(everybody - {device.uuid} <= set(device.links or ()) for device in devices)
    return NVLINK if linked else PCIE
