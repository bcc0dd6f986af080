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
from cluster.launch.contract import CERTIFIES, NEARBY, OPTIONS, missing, too_many

HANDED_S = 30.0
"""A host takes the certificate within this time."""
BACK_S = 5.0
"""A host lets go of it within this time, or keeps it."""
_TAKE = """umask 077 && folder="$HOME/.cache/overlap-workbench" && mkdir -p "$folder" && cat > "$folder/{name}.$$" \
&& mv "$folder/{name}.$$" "$folder/{name}" && printf %s "$folder/{name}\""""
"""A shell there keeps its standard input in a file of this user's own and says where; hosts may share it."""


@dataclass(frozen=True, slots=True)
class CertificateHandover:
    """A certificate on its way to one process. It travels inside SSH: a command line is there for everybody to read.

    A file of its own for each process: others of its host, or of a home folder that hosts share, need theirs longer.
    """

    pem: Path
    name: str = field(default_factory=lambda: f"{uuid.uuid4().hex}.pem")

    async def over(self, address: str, connect_options: dict[str, Any]) -> str:
        """Where it lies on that host from now on."""
        text = self.pem.read_text()
        return str(await self._run(HANDED_S, address, connect_options, _TAKE.format(name=self.name), input=text))

    async def back(self, address: str, connect_options: dict[str, Any]) -> None:
        """Remove it there; a host that is gone keeps a certificate of a cluster that is gone, too."""
        with contextlib.suppress(Exception):
            await self._run(BACK_S, address, connect_options, f'rm -f "$HOME/.cache/overlap-workbench/{self.name}"')

    async def _run(
        self, within_s: float, address: str, connect_options: dict[str, Any], command: str, **how: Any
    ) -> Any:
        import asyncssh

        async with asyncio.timeout(within_s), asyncssh.connect(address, **connect_options) as connection:
            return (await connection.run(command, check=True, **how)).stdout


class _Certified(ssh.Process):
    """One of Dask's processes on another host, which is handed its certificate before it starts."""

    kwargs: dict[str, Any]
    connect_options: dict[str, Any]

    def __init__(self, *, pem: Path, **how: Any) -> None:
        super().__init__(**how)
        self.handed, self.host = (
            CertificateHandover(pem),
            how["address"],
        )  # a scheduler's address becomes that of its port

    async def start(self) -> None:
        try:
            self.kwargs = self.kwargs | {"security": options(await self.handed.over(self.host, self.connect_options))}
            await super().start()
        except BaseException:  # Dask does not close what did not start
            await self.handed.back(self.host, self.connect_options)
            raise

    async def close(self) -> None:
        try:
            await super().close()
        finally:
            await self.handed.back(self.host, self.connect_options)


class SshWorker(_Certified, ssh.Worker):
    """A worker."""

    def __init__(self, scheduler: str, **how: Any) -> None:
        super().__init__(scheduler=scheduler, **how)


class Scheduler(_Certified, ssh.Scheduler):
    """The scheduler."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ssh:
    """Ranks on hosts that this user can reach by `ssh HOST` without typing anything; ~/.ssh/config counts.

    The scheduler listens on the network of the first host, and takes those that have its certificate. It is brought to
    the hosts over SSH, into a file that only this user can read there, and taken away at the end.
    """

    name: ClassVar[str] = "ssh"
    encrypted: ClassVar[bool] = True

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
        words = f"{len(self.hosts)} hosts with ranks_per_host = {self.ranks_per_host}"
        if (sentence := too_many(words, self.num_ranks)) is not None:
            return sentence
        return missing("ssh", "asyncssh", "ssh") or missing("ssh", CERTIFIES, "ssh")

    def start(self, pem: Path | None) -> SpecCluster:
        """Returns when all workers said where they are."""
        assert pem is not None
        scheduler, workers = self.spec(pem)
        return SpecCluster(workers, scheduler, name="overlap-workbench", security=security(pem))

    def spec(self, pem: Path) -> tuple[dict[str, Any], dict[str, Any]]:
        """What `dask.distributed.SSHCluster` would make of the hosts, but with a name for every worker, and *pem*."""
        options: dict[str, Any] = {"connect_options": {}, "remote_python": self.python, "pem": pem}
        scheduler = {"port": 0, "dashboard_address": NEARBY, "protocol": SCHEME}
        workers = {}
        for host in self.hosts:
            for rank in range(self.ranks_per_host):
                name = f"{host}-rank{rank}"
                # a name as an option of the worker: after a restart by its nanny it is still the same
                worker = {"address": host, "kwargs": OPTIONS | {"name": name}}
                workers[name] = {"cls": SshWorker, "options": options | worker}
        head = {"address": self.hosts[0], "kwargs": scheduler}
        return {"cls": Scheduler, "options": options | head}, workers
