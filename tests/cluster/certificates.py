"""Certificates that nobody would be given: those whose time is over."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from cluster.certificate import Certificate

DAY = timedelta(days=1)


def expired(like: Certificate) -> Certificate:
    """The same key and names, until yesterday."""
    return _from(like, -2 * DAY)


def early(like: Certificate) -> Certificate:
    """The same key and names, from tomorrow on."""
    return _from(like, DAY)


def _from(like: Certificate, begin: timedelta) -> Certificate:
    """For a day that begins *begin* from now."""
    key, old = load_pem_private_key(like.pem.encode(), None), x509.load_pem_x509_certificate(like.pem.encode())
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(
        old.issuer, old.subject, old.public_key(), old.serial_number, now + begin, now + begin + DAY
    )
    certificate = builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()  # type: ignore[arg-type]
    return Certificate(certificate + like.pem[like.pem.index("-----BEGIN PRIVATE KEY") :])
