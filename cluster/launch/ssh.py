"""Kind ssh: a scheduler on the first host and workers on all of them, started over SSH by Dask's own launcher."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from distributed import SpecCluster
from distributed.deploy import ssh

from cluster.launch.contract import NEARBY, OPTIONS, missing


@dataclass(frozen=True, slots=True, kw_only=True)
class Ssh:
    """Ranks on hosts that this user can reach by `ssh HOST` without typing anything; ~/.ssh/config counts.

    The scheduler listens on the network of the first host: whoever reaches its port can run code there.
    """

    name: ClassVar[str] = "ssh"

    hosts: Sequence[str]
    """Names or addresses; the scheduler runs on the first of them."""
    ranks_per_host: int = 1
    """On a host with GPUs each of its first ranks has one of its own; as many as it has make all of them GPU ranks."""
    python: str = sys.executable
    """The Python on the hosts, with this distribution installed in the same version."""

    @property
    def num_ranks(self) -> int:
        return len(self.hosts) * self.ranks_per_host

    @property
    def patience_s(self) -> float:
        return 120.0

    def refusal(self) -> str | None:
        if self.num_ranks < 1 or isinstance(self.hosts, str):
            return (
                f"hosts = {self.hosts!r} with ranks_per_host = {self.ranks_per_host} is too small. Accepted: a "
                "list of one host or more, and at least 1 rank on each."
            )
        return missing("ssh", "asyncssh", "ssh")

    def start(self) -> SpecCluster:
        """Returns when all workers said where they are."""
        scheduler, workers = self.spec()
        return SpecCluster(workers, scheduler, name="overlap-workbench")

    def spec(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """What `dask.distributed.SSHCluster` would make of the hosts, but with a name for every worker."""
        options: dict[str, Any] = {"connect_options": {}, "remote_python": self.python}
        scheduler = {"port": 0, "dashboard_address": NEARBY}
        workers = {}
        for host in self.hosts:
            for rank in range(self.ranks_per_host):
                name = f"{host}-rank{rank}"
                # a name as an option of the worker: after a restart by its nanny it is still the same
                worker = {"address": host, "kwargs": OPTIONS | {"name": name}}
                workers[name] = {"cls": ssh.Worker, "options": options | worker}
        head = {"address": self.hosts[0], "kwargs": scheduler}
        return {"cls": ssh.Scheduler, "options": options | head}, workers
