"""What this host and the workers of a cluster are made of: facts as rows, found without measuring or printing."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster import gpus, probe_gpu

if TYPE_CHECKING:
    from distributed import Client

Facts = dict[str, Any]

PACKAGES = ("overlap-workbench", "torch", "triton", "numpy", "dask", "distributed")
SHARED_MEMORY = Path("/dev/shm")
ANSWER_S = 5.0
"""A worker that does not say by then how it is counts as stuck."""
_SILENT = "no answer within"
TORCH_S = 60.0
"""Importing torch from a cold network disk takes long."""


def here() -> Facts:
    """This process's host; what cannot be found out, or is not installed, is None."""
    from distributed.system import MEMORY_LIMIT  # knows what a container may use

    return {
        "host": socket.gethostname(),
        "cpu": cpu_model(),
        "cores": usable_cores(),
        "memory_bytes": int(MEMORY_LIMIT),
        "shared_memory_free_bytes": shutil.disk_usage(SHARED_MEMORY).free if SHARED_MEMORY.is_dir() else None,
        "python": platform.python_version(),
        **{name: version(name) for name in PACKAGES},
    }


def here_with_torch(hidden: bool = True) -> Facts:
    """The same, and what the driver and torch find: GPUs and their links, gloo, NCCL. Takes seconds.

    Not *hidden*: torch is shown GPUs, too, that this process does not see; else a worker with one knows of no peer.
    """
    known = here() | probe_gpu.facts()
    environment = {name: value for name, value in os.environ.items() if hidden or name != gpus.VISIBLE}
    command = [sys.executable, "-c", probe_gpu.ASK_TORCH]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=TORCH_S, env=environment)
    except subprocess.TimeoutExpired:
        return known | {"trouble": f"torch took longer than {TORCH_S:.0f} s to import"}
    if answer.returncode != 0:
        last_line = answer.stderr.strip().rpartition("\n")[2]
        return known | {"trouble": f"torch cannot be used: {last_line}"}
    return known | json.loads(answer.stdout)


def rows(client: Client | None = None) -> list[Facts]:
    """The doctor's facts: this host first, then each worker of the client's cluster."""
    first = {"place": "here"} | here_with_torch()
    if client is None:
        return [first]
    workers: Mapping[str, Any] = client.scheduler_info(n_workers=-1).get("workers", {})
    on_host = {str(worker["host"]): address for address, worker in workers.items()}
    # torch tells all workers of a host the same, but for the one GPU that each may see
    of_hosts = ask(client, list(on_host.values()), _of_worker, TORCH_S + ANSWER_S)
    of_gpus = ask(client, list(workers), _of_its_gpu, 2 * ANSWER_S)
    return [first] + [
        {"place": worker["name"], "address": address} | of_hosts[on_host[str(worker["host"])]] | of_gpus[address]
        for address, worker in workers.items()
    ]


def _of_worker(worker: Any) -> Facts:
    return here_with_torch(hidden=False)


def _of_its_gpu(worker: Any) -> Facts:
    return probe_gpu.facts()


def ask(
    client: Client, workers: list[str], what: Callable[..., Facts], deadline_s: float = ANSWER_S
) -> dict[str, Facts]:
    """What each worker answers, by address; one that cannot answer in time has the fact `trouble`.

    `what` runs in a thread of the worker, beside its event loop and its one task. A parameter of the name
    `dask_worker` would be the worker.
    """

    async def one(worker: str) -> Facts:
        try:
            answers = await asyncio.wait_for(client.run(_in_a_thread, what, workers=[worker]), deadline_s)
            return dict(answers[worker])
        except TimeoutError:
            return silence(deadline_s)
        except OSError as error:  # its connection ended: it has died, or its next process begins
            return {"trouble": f"{_SILENT} the life of its connection ({error})"}
        except Exception as error:  # whatever goes wrong over there is what is asked about
            return {"trouble": f"{type(error).__name__}: {error}"}

    async def everyone() -> dict[str, Facts]:
        return dict(zip(workers, await asyncio.gather(*map(one, workers)), strict=True))

    return client.sync(everyone, callback_timeout=deadline_s + ANSWER_S)


def silence(deadline_s: float) -> Facts:
    """What is known of a worker that does not answer."""
    return {"trouble": f"{_SILENT} {deadline_s:.0f} s"}


def is_silence(answer: Mapping[str, Any]) -> bool:
    """Whether *answer* is of a worker that did not answer: it is stopped or busy, and may be like all others."""
    return str(answer.get("trouble") or "").startswith(_SILENT)


async def _in_a_thread(what: Callable[[Any], Facts], dask_worker: Any) -> Facts:
    return await asyncio.to_thread(what, dask_worker)


def version(package: str) -> str | None:
    """The installed version, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(core_numbers())


def core_numbers() -> tuple[int, ...]:
    """Their numbers, in order."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def cpu_model() -> str | None:
    """The processor's name as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or None
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
