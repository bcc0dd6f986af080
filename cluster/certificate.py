"""The certificate of one cluster: whoever has it may do everything there, and nobody else gets a word in.

Scheduler, workers and clients have the same certificate with its private key, which signed itself. Each side takes the
other only with that one, so that no authority and no name of a host is asked.
"""

from __future__ import annotations

import datetime
import functools
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path

from distributed import Security

_NOT_YET, _EXPIRED = 9, 10
"""X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED of <openssl/x509_vfy.h>."""
_NAME = "overlap-workbench"
_AHEAD, _LASTS = datetime.timedelta(days=1), datetime.timedelta(days=365)
"""It is valid from a day ago: a host whose clock is behind takes it, too."""
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
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import rsa

        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, _NAME)])
        now = datetime.datetime.now(datetime.UTC)
        made = x509.CertificateBuilder(
            name, name, key.public_key(), x509.random_serial_number(), now - _AHEAD, now + _LASTS
        ).add_extension(x509.SubjectAlternativeName([x509.DNSName(_NAME)]), critical=False)
        pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        certificate = made.sign(key, hashes.SHA256()).public_bytes(pem)
        return cls((certificate + key.private_bytes(pem, pkcs8, serialization.NoEncryption())).decode())

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
            return refused(error)
        except (ssl.SSLError, OSError, ValueError) as error:
            return f"cannot be read ({getattr(error, 'reason', None) or error})"
        return None


def is_of_the_time(error: ssl.SSLCertVerificationError) -> bool:
    """Whether another moment would have done: it is the right certificate."""
    return error.verify_code in (_NOT_YET, _EXPIRED)


def refused(error: ssl.SSLCertVerificationError) -> str:
    """Why a certificate was not taken, as the end of a sentence."""
    known = {_NOT_YET: "is not valid yet: compare the clocks of the hosts", _EXPIRED: "has expired"}
    return known.get(error.verify_code, f"is not valid ({error.verify_message})")


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
