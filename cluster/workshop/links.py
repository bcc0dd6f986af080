"""A link lets one person into the cluster of a workshop: it is a key, and it is exchanged for the cluster's own key.

`https://HOST:PORT/join#TOKEN.PRINT`: the part after # is never sent by a browser, so it is in no log of a server. The
token is sent in the body of one request, to nobody but the holder of the certificate with that fingerprint.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import queue
import re
import secrets
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from distributed.comm.addressing import get_address_host_port

from cluster.certificate import Certificate
from cluster.hosts import package_version
from cluster.launch.contract import DISTRIBUTION
from cluster.scheduler_file import SchedulerTarget

PATH = "/join"
_CHARACTERS = 16
"""Length of a token and of a fingerprint: 96 bits each, in the letters of a URL."""
EXCHANGE_S = 10.0
"""The host of a link answers within this time, s."""
_ANSWER_BYTES = 64_000
_LINK = re.compile(r"(https?)://([^/\s#]+)/join#([\w-]{16})(?:\.([\w-]{16}))?")
_ACCEPTED = (
    "Accepted: a link of `workbench workshop up`, whole and between quotes, such as 'https://HOST:8788/join#...'"
)
_ASK = "ask the lecturer for a link of today (`workbench workshop up` prints them)"


@dataclass(frozen=True, slots=True)
class Link:
    """One person's way in."""

    origin: str
    """Beginning of the URL: who answers the exchange."""
    token: str = field(repr=False)
    certificate_print: str = ""
    """Fingerprint of the certificate that `origin` must show; empty on loopback, where nothing is encrypted."""

    @property
    def text(self) -> str:
        """The link itself; whoever has it can join."""
        return f"{self.origin}{PATH}#{'.'.join(filter(None, (self.token, self.certificate_print)))}"

    def __str__(self) -> str:
        """The link without its key, for messages."""
        return f"{self.origin}{PATH}#..."

    @classmethod
    def parse(cls, text: str) -> Link:
        """The link that *text* is; ValueError, which does not repeat it, where it is none."""
        match = _LINK.fullmatch(text.strip().strip("'\"<>"))
        if match is None:
            raise ValueError(f"This is not the link of a workshop ({len(text.strip())} characters). {_ACCEPTED}.")
        scheme, place, token, certificate_print = match.groups()
        if scheme == "https" and not certificate_print:
            raise ValueError(f"The end of this link is missing: it names no certificate. {_ACCEPTED}.")
        link = cls(f"{scheme}://{place}", token, certificate_print or "")
        try:
            link.host_and_port()
        except ValueError as error:
            raise ValueError(f"{link} names no port from 1 to 65535. {_ACCEPTED}.") from error
        return link

    def host_and_port(self) -> tuple[str, int]:
        parts = urlsplit(self.origin)
        if not parts.hostname or not parts.port:
            raise ValueError(self.origin)
        return parts.hostname, parts.port


def new_token() -> str:
    """A key for one link, or for the lecturer's page."""
    return secrets.token_urlsafe(12)


def token_digest(token: str) -> str:
    """What the scheduler keeps of a token: it opens nothing."""
    return hashlib.sha256(token.encode(errors="surrogatepass")).hexdigest()


def certificate_print(der: bytes) -> str:
    """The fingerprint of a certificate, given as DER."""
    return base64.urlsafe_b64encode(hashlib.sha256(der).digest()).decode()[:_CHARACTERS]


def print_of(certificate: Certificate | None) -> str:
    """The fingerprint of a cluster's certificate; empty where it has none."""
    if certificate is None:
        return ""
    first = certificate.pem[: certificate.pem.index("-----END CERTIFICATE-----")] + "-----END CERTIFICATE-----\n"
    return certificate_print(ssl.PEM_cert_to_DER_cert(first))


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """What the exchange of a link gives."""

    target: SchedulerTarget
    seat: int
    """Number of the link, from 1."""
    ends_at: float
    """Unix time after which the link lets nobody in."""


def admission(link: Link, within_s: float = EXCHANGE_S) -> Admission:
    """Exchange *link*; ValueError with one sentence where it is of no use any more, or the versions do not fit."""
    status, answer = _exchanged(link, within_s)
    if trouble := answer.get("trouble"):
        raise ValueError(f"{link} does not let you in: {trouble}. Accepted: {_ASK}.")
    if "software" in answer and (message := version_mismatch(answer["software"])) is not None:
        raise ValueError(message)
    if status != http.client.OK or not isinstance(answer.get("address"), str):
        raise ValueError(f"{link} was answered by something that is no workshop (status {status}). Accepted: {_ASK}.")
    host, _ = link.host_and_port()
    _, port = get_address_host_port(answer["address"])
    scheme = answer["address"].partition("://")[0]
    pem = answer.get("certificate")
    certificate, seat = None if pem is None else Certificate(str(pem)), int(answer["seat"])
    target = SchedulerTarget(f"{scheme}://{_bracketed(host)}:{port}", certificate, seat)
    return Admission(target=target, seat=seat, ends_at=float(answer["ends_at"]))


def software() -> dict[str, str | None]:
    """Versions that must be equal on both sides: of the workbench, Python's minor one, and Dask."""
    from platform import python_version_tuple

    packages = (DISTRIBUTION, "dask", "distributed")
    return {"python": ".".join(python_version_tuple()[:2])} | {name: package_version(name) for name in packages}


def version_mismatch(theirs: Mapping[str, Any]) -> str | None:
    """Why this side cannot take part in a workshop of a side with *theirs*, or None."""
    ours = software()
    differing = [name for name in ours if theirs.get(name) != ours[name]]
    if not differing:
        return None
    have = " and ".join(f"{name} {ours[name]}" for name in differing)
    need = " and ".join(f"{name} {theirs.get(name) or 'unknown'}" for name in differing)
    packages = [f"{name}=={theirs.get(name)}" for name in differing if name != "python"]
    how = f"`pip install {' '.join(packages)}` here" if packages and "python" not in differing else f"{need} here"
    return (f"This computer has {have}, and the workshop has {need}: both sides must have the same. "
            f"Accepted: {how}, then the link again.")  # fmt: skip


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _exchanged(link: Link, within_s: float) -> tuple[int, dict[str, Any]]:
    """Status and answer of the link's host; a thread asks, so that whoever answers byte by byte keeps nobody."""
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answers.put(_posted(link, within_s))
        except Exception as error:  # of any kind: these may be the bytes of any protocol
            answers.put(error)

    began = time.monotonic()
    threading.Thread(target=ask, name="workbench link", daemon=True).start()
    try:
        answer = answers.get(timeout=within_s)
    except queue.Empty:
        answer = TimeoutError()
    if isinstance(answer, tuple):
        return answer
    if isinstance(answer, _OtherCertificateError):
        raise ValueError(
            f"{link} is of another cluster: who answers there shows another certificate, so your key was not sent. "
            f"Accepted: {_ASK}."
        )
    why = str(answer).partition("\n")[0] or f"nothing came within {time.monotonic() - began:.0f} s"
    raise ValueError(
        f"The workshop at {link} is gone, or this computer cannot reach it ({why}). Accepted: another try when the "
        f"lecturer says that it runs; the network of the workshop, without a VPN; or {_ASK}."
    )


class _OtherCertificateError(Exception):
    """Somebody else answers."""


def _posted(link: Link, within_s: float) -> tuple[int, dict[str, Any]]:
    host, port = link.host_and_port()
    if link.certificate_print:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        # the fingerprint in the link says who it is; no authority could
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection(host, port, timeout=within_s, context=context)
    else:
        connection = http.client.HTTPConnection(host, port, timeout=within_s)  # type: ignore[assignment]
    try:
        connection.connect()
        if link.certificate_print:
            shown = connection.sock.getpeercert(binary_form=True) or b""
            if not secrets.compare_digest(certificate_print(shown), link.certificate_print):
                raise _OtherCertificateError
        body = json.dumps({"token": link.token, "software": software()})
        connection.request("POST", PATH, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        try:
            answer = json.loads(response.read(_ANSWER_BYTES))
        except ValueError:
            answer = {}
        return response.status, answer if isinstance(answer, dict) else {}
    finally:
        connection.close()
