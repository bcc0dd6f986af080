"""The files of an encrypted cluster: one for its own processes, one to hand to clients; nobody else reads them."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cluster.certificate import Certificate
from cluster.launch.contract import Kind
from cluster.scheduler_file import Target, write_target
from kernels import files
from kernels.failed import Failed


@dataclass(frozen=True, slots=True)
class Secret:
    """A certificate and where it lies on this host."""

    certificate: Certificate
    pem: Path
    """What scheduler and workers read."""

    @classmethod
    @contextlib.contextmanager
    def kept(cls, folder: Path, kind: Kind) -> Iterator[Secret | None]:
        """A new one in *folder* for as long as the `with` lasts; None for a kind of cluster that is not encrypted.

        A user has one cluster on a host, and so one pair of files.
        """
        if not kind.encrypted:
            yield None
            return
        secret = cls(Certificate.made(), folder / f"{socket.gethostname()}.pem")
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            files.write(secret.pem, secret.certificate.pem, mode=0o600)
        except OSError as error:
            raise Failed(
                f"The cluster of kind {kind.name} did not start: its certificate cannot be kept in {folder} "
                f"({error.strerror or error}). Accepted: a folder that you may write."
            ) from error
        try:
            yield secret
        finally:
            for file in (secret.pem, secret._file):
                file.unlink(missing_ok=True)

    def for_clients(self, target: Target) -> Path:
        """The file that clients of *target* need, written anew."""
        write_target(self._file, target)
        return self._file

    @property
    def _file(self) -> Path:
        return self.pem.with_suffix(".json")
