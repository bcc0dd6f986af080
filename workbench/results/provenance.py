"""Provenance of a run: the circumstances that a reader needs to trust or repeat it."""

from __future__ import annotations

import getpass
import platform
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cluster.hosts import PACKAGES, cpu_model, package_version, usable_cores
from kernels.hardware import source_print
from kernels.machine import Machine

NCCL = ("nvidia-nccl-cu13", "nvidia-nccl-cu12")
"""Packages of NCCL that torch brings, one for each major version of CUDA."""


def provenance(machine: Machine | None = None, seed: int | None = None) -> dict[str, Any]:
    """Plain values about this process and host; None for what is unknown."""
    return {
        "host": socket.gethostname(),
        "user": _user(),
        "cpu": cpu_model(),
        "cores": usable_cores(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: package_version(name) for name in PACKAGES}
        | {"nccl": next(filter(None, map(package_version, NCCL)), None)},
        "git_commit": _git_commit(),
        "source_print": machine and source_print(machine.backend),
        "machine": machine and machine.name,
        "machine_digest": machine and machine.digest,
        "seed": seed,
    }


def shared_provenance(known: Mapping[str, Any], *, login: bool) -> dict[str, Any]:
    """*known* for reports and recordings: without the login of the user, unless *login* includes it."""
    return {key: value for key, value in known.items() if login or key != "user"}


def _user() -> str | None:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return None


def _git_commit() -> str | None:
    """The checkout's commit, with a plus sign if files differ from it; None outside a checkout."""
    checkout = Path(__file__).parents[2]
    if not (checkout / ".git").exists():  # a wheel may be inside another project's checkout
        return None
    try:
        command = ["git", "describe", "--always", "--abbrev=12", "--dirty=+", "--exclude=*"]
        answer = subprocess.run(command, cwd=checkout, capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() or None
