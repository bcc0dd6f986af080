"""Kind ssh: a scheduler on the first host and workers on all of them, started over SSH by Dask's own launcher."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from distributed import SpecCluster
from distributed.deploy import ssh

from cluster.certificate import SCHEME, options, security
from cluster.launch.contract import CERTIFIES, LOOPBACK_ANY_PORT, OPTIONS, missing, too_many

HANDED_S = 30.0
"""Seconds within which the certificate must be copied to a host."""
BACK_S = 5.0
"""Seconds within which it must be removed from a host; after that it stays there."""
_TAKE = """umask 077 && folder="$HOME/.cache/overlap-workbench" && mkdir -p "$folder" && cat > "$folder/{name}.$$" \
&& mv "$folder/{name}.$$" "$folder/{name}" && printf %s "$folder/{name}\""""
"""Shell command that writes its standard input to a file only this user can read, and prints the path."""


@dataclass(frozen=True, slots=True)
class CertificateHandover:
    """Copies a certificate to one process, inside SSH: a command line could be read by everybody.

    Each process has a file of its own: others on its host, or in a shared home folder, need theirs longer.
    """

    pem: Path
    name: str = field(default_factory=lambda: f"{uuid.uuid4().hex}.pem")

    async def deliver(self, address: str, connect_options: dict[str, Any]) -> str:
        """Copy it to the host at *address*, and return its path there."""
        text = self.pem.read_text()
        return str(await self._run(HANDED_S, address, connect_options, _TAKE.format(name=self.name), input=text))

    async def remove(self, address: str, connect_options: dict[str, Any]) -> None:
        """Remove it there; an unreachable host keeps it, but the cluster has ended."""
        with contextlib.suppress(Exception):
            await self._run(BACK_S, address, connect_options, f'rm -f "$HOME/.cache/overlap-workbench/{self.name}"')

    async def _run(
        self, within_s: float, address: str, connect_options: dict[str, Any], command: str, **how: Any
    ) -> Any:
        import asyncssh

        async with asyncio.timeout(within_s), asyncssh.connect(address, **connect_options) as connection:
            return (await connection.run(command, check=True, **how)).stdout


class _Certified(ssh.Process):
    """One of Dask's processes on another host, which receives its certificate before it starts."""

    kwargs: dict[str, Any]
    connect_options: dict[str, Any]

    def __init__(self, *, pem: Path, **how: Any) -> None:
        super().__init__(**how)
        self.handover = CertificateHandover(pem)
        self.host = how["address"]  # kept, because a started scheduler replaces `address` by the one with its port

    async def start(self) -> None:
        try:
            self.kwargs = self.kwargs | {
                "security": options(await self.handover.deliver(self.host, self.connect_options))
            }
            await super().start()
        except BaseException:  # Dask does not close what did not start
            await self.handover.remove(self.host, self.connect_options)
            raise

    async def close(self) -> None:
        try:
            await super().close()
        finally:
            await self.handover.remove(self.host, self.connect_options)


class SshWorker(_Certified, ssh.Worker):
    """A Dask worker on another host."""

    def __init__(self, scheduler: str, **how: Any) -> None:
        super().__init__(scheduler=scheduler, **how)


class Scheduler(_Certified, ssh.Scheduler):
    """The Dask scheduler on the first host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ssh:
    """Ranks on hosts that this user can reach by `ssh HOST` without typing anything; ~/.ssh/config is used.

    The scheduler listens on the network of the first host, and accepts those that have its certificate. SSH copies the
    certificate to the hosts, into a file that only this user can read, and removes it at the end.
    """

    name: ClassVar[str] = "ssh"
    encrypted: ClassVar[bool] = True

    hosts: Sequence[str]
    """Names or addresses; the scheduler runs on the first of them."""
    ranks_per_host: int = 1
    """Ranks on each host; the first ones have a GPU each, as far as the host has GPUs."""
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
        requested = f"{len(self.hosts)} hosts with ranks_per_host = {self.ranks_per_host}"
        if (message := too_many(requested, self.num_ranks)) is not None:
            return message
        return missing("ssh", "asyncssh", "ssh") or missing("ssh", CERTIFIES, "ssh")

    def start(self, pem: Path | None) -> SpecCluster:
        """Start scheduler and workers; returns when all workers have reported their address."""
        assert pem is not None
        scheduler, workers = self.spec(pem)
        return SpecCluster(workers, scheduler, name="overlap-workbench", security=security(pem))

    def spec(self, pem: Path) -> tuple[dict[str, Any], dict[str, Any]]:
        """Scheduler and workers as `dask.distributed.SSHCluster` specifies them, with worker names and *pem* added."""
        options: dict[str, Any] = {"connect_options": {}, "remote_python": self.python, "pem": pem}
        scheduler = {"port": 0, "dashboard_address": LOOPBACK_ANY_PORT, "protocol": SCHEME}
        workers = {}
        for host in self.hosts:
            for rank in range(self.ranks_per_host):
                name = f"{host}-rank{rank}"
                # the name is an option of the worker, so that it stays the same after a restart by its nanny
                worker = {"address": host, "kwargs": OPTIONS | {"name": name}}
                workers[name] = {"cls": SshWorker, "options": options | worker}
        head = {"address": self.hosts[0], "kwargs": scheduler}
        return {"cls": Scheduler, "options": options | head}, workers
