"""The machine of the ranks at hand: the one whose description fits them, or one that is made from what they tell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from cluster import gpus, specification
from cluster.devices import local_ranks
from cluster.probe import cpu_model
from cluster.seating import Workers
from cluster.specification import Specification
from kernels import files
from kernels.hardware import Hardware
from kernels.machine import Machine
from kernels.machine_file import toml
from kernels.schedule import Refusal
from workbench import derived_machine, fitting, machines

if TYPE_CHECKING:
    from cluster.dispatch import Cluster


@dataclass(frozen=True, slots=True)
class Place:
    """Where ranks of one backend would run."""

    hardware: Hardware
    count: int = 1
    """GPUs of a host; of CPU ranks 1: however many they are, their machine is the same."""
    gpu: Callable[[], Specification] = lambda: specification.here()
    """What one of the GPUs is like; it is asked only where no machine fits."""

    @property
    def on_cpus(self) -> bool:
        return self.hardware.cores is not None


def here(backend: str) -> Place | None:
    """This host; None where it has nothing for *backend*."""
    count = 1 if backend == "cpu" else len(gpus.here())
    ranks = local_ranks(count, backend) if count else None
    return None if ranks is None else Place(ranks.hardware, count)


def of(cluster: Cluster, backend: str) -> Place | None:
    """Where a *cluster* has its ranks; None while they do not tell, or where none is of *backend*."""
    one = cluster.ranks(1, backend)
    if one is None or backend == "cpu":
        return None if one is None else Place(one.hardware)
    described = cluster.describe()["workers"]
    seats = [worker for worker in described if worker.get("backend") == backend]
    hosts = [worker["host"] for worker in seats]
    count = max(map(hosts.count, hosts))
    ranks = Workers.described({"workers": seats}).ranks(count, backend) or one
    return Place(ranks.hardware, count, partial(specification.of_worker, cluster.client, seats[0]["address"]))


def of_gpus() -> Machine:
    """The machine that this host's GPUs make; Refusal where it has none, to state one."""
    place = here("triton")
    if place is not None:
        return settled(place)
    offered = [known.name for known in machines.readable() if known.backend == "triton"]
    raise Refusal(
        f"backend = triton needs a machine, and none describes this host's {len(gpus.here())} GPUs. Accepted: "
        f"--machine with one of {', '.join(offered)}."
    )


def fits(place: Place) -> Machine | None:
    """The machine whose description fits *place*, or None."""
    return fitting.fitting(machines.readable(), place.hardware, place.count, cpu_model())


def machine_of(place: Place) -> Machine:
    """The machine that fits *place*, or one made of what its ranks tell; Refusal where they are of two kinds."""
    known = fits(place)
    if known is not None:
        return known
    if place.on_cpus:
        plain = machines.shipped_machine(machines.LAPTOP)
        return derived_machine.of_processor(place.hardware, place.count, plain)
    if " and " in place.hardware.model:
        raise Refusal(
            f"These ranks have GPUs of several kinds: {place.hardware.model}. A machine has 1 kind. "
            "Accepted: workers whose GPUs are of 1 kind."
        )
    costs_of = machines.shipped_machine(derived_machine.costs_like(place.hardware))
    return derived_machine.of_gpus(place.hardware, place.count, place.gpu(), costs_of)


def settled(place: Place) -> Machine:
    """The same, and a made one is written beside the runs: it has a name and a file like any other from then on."""
    machine = machine_of(place)
    if machine.name not in machines.names():
        path = machines.calibrated_path(machine.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write(path, toml(machine))
    return machines.machine(machine.name)


def refusal(machine: Machine, ranks: Hardware, count: int) -> str | None:
    """Why times of *ranks* are not to be stored as those of *machine*, or None; names the one that fits *count*."""
    processor = cpu_model()
    if fitting.misfit(machine, ranks, processor) is None:
        return None
    return fitting.refusal(machine, ranks, processor, fits(Place(ranks, 1 if ranks.cores is not None else count)))
