"""The kinds of clusters by name, one file each, and the kind with a user's options."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

from cluster.launch.contract import ClusterKind
from cluster.launch.kubernetes import Kubernetes
from cluster.launch.local import Local
from cluster.launch.slurm import Slurm
from cluster.launch.ssh import Ssh

KINDS: dict[str, Callable[..., ClusterKind]] = {"local": Local, "ssh": Ssh, "slurm": Slurm, "kubernetes": Kubernetes}
"""Kinds by name; the fields of each are its options."""


def kind_of(name: str, options: dict[str, Any]) -> ClusterKind:
    """The kind *name* with these options; ValueError with what is accepted, or with what is not installed."""
    if name not in KINDS:
        raise ValueError(f"There is no cluster of kind {name!r}. Accepted: {', '.join(KINDS)}.")
    fields = signature(KINDS[name]).parameters
    unknown = [f"the unknown {option}" for option in options if option not in fields]
    absent = [f"no {field}" for field, how in fields.items() if how.default is how.empty and field not in options]
    if unknown or absent:
        raise ValueError(
            f"A cluster of kind {name} does not start with {' and '.join(unknown + absent)}. Accepted: "
            f"{', '.join(fields)}."
        )
    kind = KINDS[name](**options)
    if (message := kind.refusal()) is not None:
        raise ValueError(message)
    return kind
