"""Where a command's ranks are: their machine is the default, and one that is not theirs is refused at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from kernels.machine import BACKENDS
from kernels.schedule import Refusal

if TYPE_CHECKING:
    from workbench.place import Place
    from workbench.request import Request


def is_elsewhere(address: str | None) -> bool:
    """Whether the ranks that would be asked are not of the local cluster."""
    from cluster.launch import running
    from cluster.launch.local import Local

    return address is not None or ((cluster := running()) is not None and cluster.kind != Local.name)


def placed(request: Request, address: str | None) -> Request:
    """*request* for the machine of the ranks that would be asked; Refusal where it states one of other hardware."""
    from workbench import machines, place

    named = None if request.machine is None else machines.machine(request.machine)
    backend = request.backend or (named.backend if named is not None else "cpu")
    if backend not in BACKENDS:
        return request
    with _place(address, backend) as place_of_ranks:
        if place_of_ranks is None:
            return request
        if named is None:
            return replace(request, machine=place.settled(place_of_ranks).name)
        if (sentence := place.refusal(named, place_of_ranks.hardware, place_of_ranks.count)) is not None:
            raise Refusal(sentence)
    return request


def estimated(request: Request, address: str | None) -> Request:
    """*request* for the machine of the ranks at *address*, without naming it; as it is where there is no address.

    Refusal where it states a machine of other hardware, or where no ranks there are of its backend.
    """
    if address is None:
        return request
    of_ranks = placed(request, address)
    if of_ranks.machine is None:
        raise Refusal(
            f"The cluster {address} has 0 ranks of backend {request.backend or 'cpu'} that say what they are, and so "
            "no machine to estimate for. Accepted: --machine, another --backend, or a cluster whose ranks have started."
        )
    return of_ranks


@contextmanager
def _place(address: str | None, backend: str) -> Iterator[Place | None]:
    from cluster.dispatch import Cluster
    from cluster.launch import attach
    from workbench import place

    if not is_elsewhere(address):
        yield place.here(backend)
        return
    with Cluster.connect() if address is None else attach(address) as cluster:
        yield place.of(cluster, backend)
