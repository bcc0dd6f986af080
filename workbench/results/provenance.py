"""Provenance of a run: the circumstances that a reader needs to trust or repeat it."""

from __future__ import annotations

import getpass
import json
import os
import platform
import socket
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

from cluster.hosts import PACKAGES, cpu_model, package_version, usable_cores
from kernels import hardware
from kernels.machine import Machine

NCCL = ("nvidia-nccl-cu13", "nvidia-nccl-cu12")
"""Packages of NCCL that torch brings, one for each major version of CUDA."""
KEPT_PRINTS = "source_prints.json"
"""The file of fingerprints, in the folder of Python's compiled modules."""


def provenance(machine: Machine | None = None, seed: int | None = None) -> dict[str, Any]:
    """Plain values about this process and host; None for what is unknown."""
    return {
        "host": socket.gethostname(),
        "user": _user(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "git_commit": _git_commit(),
        **what_times_depend_on(machine),
        "machine": machine and machine.name,
        "machine_digest": machine and machine.digest,
        "seed": seed,
    }


def what_times_depend_on(machine: Machine | None = None) -> dict[str, Any]:
    """The part of the provenance by which a measured time is compared with one of here."""
    return {
        "cpu": cpu_model(),
        "cores": usable_cores(),
        "versions": {name: package_version(name) for name in PACKAGES}
        | {"nccl": next(filter(None, map(package_version, NCCL)), None)},
        "source_print": machine and source_print_here(machine.backend),
    }


@cache
def source_print_here(backend: str) -> str:
    """`source_print`, which takes a third of a second, kept next to compiled modules by what the files contain."""
    folder = Path(hardware.__file__).parent
    contents = blake2b(digest_size=16)
    for path in sorted(folder.rglob("*.py")):
        contents.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    digest, kept = contents.hexdigest(), Path(cache_from_source(hardware.__file__)).with_name(KEPT_PRINTS)
    if (known := _kept_print(kept, digest, backend)) is not None:
        return known
    made = hardware.source_prints()
    with suppress(OSError):  # a folder that nobody may write to: it is computed each time
        kept.parent.mkdir(parents=True, exist_ok=True)
        unfinished = kept.with_suffix(f".{os.getpid()}")
        unfinished.write_text(json.dumps({"digest": digest, "prints": made}))
        unfinished.replace(kept)
    return made[backend]


def _kept_print(path: Path, digest: str, backend: str) -> str | None:
    """The fingerprint in *path*, if it is of files with this *digest*."""
    try:
        kept = json.loads(path.read_bytes())
        return str(kept["prints"][backend]) if kept["digest"] == digest else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


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
