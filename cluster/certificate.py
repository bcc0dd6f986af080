"""The certificate of one cluster: whoever has it may do everything there, and nobody else gets a word in.

Scheduler, workers and clients have the same certificate with its private key, which signed itself. Each side takes the
other only with that one, so that no authority and no name of a host is asked.
"""

from __future__ import annotations

import functools
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path

from distributed import Security

_EXPIRED = 10
"""X509_V_ERR_CERT_HAS_EXPIRED of <openssl/x509_vfy.h>."""
SCHEME = "tls://"
"""What the addresses of encrypted schedulers begin with."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate and its private key."""

    pem: str
    """Both, one after the other, as in a file; whoever reads it can run code on the cluster."""

    @classmethod
    def made(cls) -> Certificate:
        """A new one, for a year; needs the library `cryptography`."""
        made = Security.temporary()
        return cls(f"{made.tls_ca_file}{made.tls_client_key}")

    def security(self) -> Security:
        """What a client of Dask needs; the key stays in this process."""
        return security(self.pem)

    def greet(self, connection: socket.socket) -> None:
        """Shake hands with the scheduler at the other end and take leave; ssl.SSLError where it has another one."""
        _client_context(self.pem).wrap_socket(connection).close()

    def trouble(self) -> str | None:
        """Why nobody can use it, as the end of a sentence, or None: it is shown to itself, as both sides would."""
        try:
            _shake_hands(self.security())
        except ssl.SSLCertVerificationError as error:
            return "has expired" if error.verify_code == _EXPIRED else f"is not valid ({error.verify_message})"
        except (ssl.SSLError, OSError, ValueError) as error:
            return f"cannot be read ({getattr(error, 'reason', None) or error})"
        return None


def security(place: str | Path) -> Security:
    """Dask's settings for all roles, of the PEM file at *place* or of its text; nothing is sent unencrypted."""
    roles = {f"tls_{role}_{part}": str(place) for role in ("client", "scheduler", "worker") for part in ("cert", "key")}
    return Security(require_encryption=True, tls_ca_file=str(place), **roles)


def options(place: str) -> dict[str, str | bool]:
    """The same for Dask's processes elsewhere, as JSON; *place*: the PEM file there."""
    roles = {f"tls_{role}_{part}": place for role in ("scheduler", "worker") for part in ("cert", "key")}
    return {"require_encryption": True, "tls_ca_file": place, **roles}


@functools.cache
def _client_context(pem: str) -> ssl.SSLContext:
    return security(pem).get_connection_args("client")["ssl_context"]


def _shake_hands(settings: Security) -> None:
    """A handshake in memory; ssl.SSLError where one side would not take the other."""
    here, there = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = settings.get_connection_args("client")["ssl_context"].wrap_bio(here, there)
    server = settings.get_listen_args("scheduler")["ssl_context"].wrap_bio(there, here, server_side=True)
    for _ in range(2):  # greetings, then certificates
        for end in (client, server):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
