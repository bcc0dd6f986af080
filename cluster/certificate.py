"""The certificate of one cluster: whoever has it may do everything there, and everybody else is refused.

Scheduler, workers and clients share one self-signed certificate and its private key. Each side accepts the other only
with that certificate, so neither an authority nor a host name is checked.
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
_BEGIN = "-----BEGIN "
"""Beginning of the first line of whatever is in a PEM file."""
_BACKDATED, _LIFETIME = datetime.timedelta(days=1), datetime.timedelta(days=365)
"""It is valid from a day ago, so that a host whose clock is behind accepts it, too."""
SCHEME = "tls://"
"""Beginning of the addresses of encrypted schedulers."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate and its private key."""

    pem: str
    """Certificate, then key, as in a PEM file; whoever reads it can run code on the cluster."""

    @classmethod
    def create(cls) -> Certificate:
        """A new certificate that lasts a year; needs the library `cryptography`."""
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import rsa

        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, _NAME)])
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateBuilder(
            name, name, key.public_key(), x509.random_serial_number(), now - _BACKDATED, now + _LIFETIME
        ).add_extension(x509.SubjectAlternativeName([x509.DNSName(_NAME)]), critical=False)
        pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        certificate = builder.sign(key, hashes.SHA256()).public_bytes(pem)
        return cls((certificate + key.private_bytes(pem, pkcs8, serialization.NoEncryption())).decode())

    def security(self) -> Security:
        """Dask's settings for a client; the key stays in this process."""
        return security(self.pem)

    def greet(self, connection: socket.socket) -> None:
        """Do a TLS handshake with the scheduler at the other end, then close; ssl.SSLError where it has another one."""
        _client_context(self.pem).wrap_socket(connection).close()

    def trouble(self) -> str | None:
        """Why the certificate cannot be used, as the end of a sentence, or None; tests it with itself."""
        if not self.pem.strip():
            return "is empty"
        if _BEGIN not in self.pem:  # Dask takes other text for the path of a file
            return f"cannot be read (it has no line {_BEGIN}...)"
        try:
            _handshake_in_memory(self.security())
        except ssl.SSLCertVerificationError as error:
            return rejection(error)
        except (ssl.SSLError, OSError, ValueError) as error:
            return f"cannot be read ({getattr(error, 'reason', None) or error})"
        return None


def is_about_dates(error: ssl.SSLCertVerificationError) -> bool:
    """Whether only its dates are wrong: it is the right certificate at the wrong time."""
    return error.verify_code in (_NOT_YET, _EXPIRED)


def rejection(error: ssl.SSLCertVerificationError) -> str:
    """Why a certificate was rejected, as the end of a sentence."""
    reasons = {_NOT_YET: "is not valid yet: compare the clocks of the hosts", _EXPIRED: "has expired"}
    return reasons.get(error.verify_code, f"is not valid ({error.verify_message})")


def security(pem: str | Path) -> Security:
    """Dask's settings for all roles, from a PEM file or its text; nothing is sent unencrypted."""
    roles = {f"tls_{role}_{part}": str(pem) for role in ("client", "scheduler", "worker") for part in ("cert", "key")}
    return Security(require_encryption=True, tls_ca_file=str(pem), **roles)


def options(path: str) -> dict[str, str | bool]:
    """The same settings as JSON for Dask's processes on another host, where the PEM file lies at *path*."""
    roles = {f"tls_{role}_{part}": path for role in ("scheduler", "worker") for part in ("cert", "key")}
    return {"require_encryption": True, "tls_ca_file": path, **roles}


@functools.cache
def _client_context(pem: str) -> ssl.SSLContext:
    return security(pem).get_connection_args("client")["ssl_context"]


def _handshake_in_memory(settings: Security) -> None:
    """Raise ssl.SSLError where client and server with these settings would reject each other."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = settings.get_connection_args("client")["ssl_context"].wrap_bio(to_client, to_server)
    server = settings.get_listen_args("scheduler")["ssl_context"].wrap_bio(to_server, to_client, server_side=True)
    for _ in range(2):  # greetings, then certificates
        for end in (client, server):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
