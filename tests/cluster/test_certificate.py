"""A certificate by itself: from when it is valid, and what is said where the clock of a host does not agree."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta

import certificates
import pytest
from cryptography import x509

from cluster import connection
from cluster.certificate import Certificate


@pytest.fixture(scope="module")
def certificate() -> Certificate:
    return Certificate.create()


def test_a_host_whose_clock_is_hours_behind_takes_it(certificate: Certificate) -> None:
    parsed, now = x509.load_pem_x509_certificate(certificate.pem.encode()), datetime.now(UTC)
    assert parsed.not_valid_before_utc < now - timedelta(hours=23)
    assert parsed.not_valid_after_utc > now + timedelta(days=364)
    assert certificate.trouble() is None


def test_one_that_is_not_valid_yet_says_compare_the_clocks(certificate: Certificate) -> None:
    reason = "is not valid yet: compare the clocks of the hosts"
    assert certificates.early(certificate).trouble() == reason
    assert certificates.expired(certificate).trouble() == "has expired"


@pytest.mark.parametrize(
    ("code", "says"),
    [(9, "the certificate that it shows is not valid yet: compare the clocks of the hosts"),
     (10, "the certificate that it shows has expired"),
     (18, "it shows another certificate than the one that was named")],
)  # fmt: skip
def test_what_the_other_side_shows_is_told_apart(code: int, says: str) -> None:
    error = ssl.SSLCertVerificationError(1, "refused")
    error.verify_code, error.verify_message = code, "refused"
    assert connection._reason(error, True, 5.0) == says
