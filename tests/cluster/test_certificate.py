"""Certificates, and a cluster that speaks TLS only: anybody without the certificate is one sentence, and soon."""

from __future__ import annotations

import asyncio
import json
import ssl
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import certificates
import dask
import fake_bench
import pytest
from cryptography import x509
from distributed import Nanny, Scheduler, Security, SpecCluster
from distributed.comm.core import connect
from fake_cluster import measured
from loops import apart

from cluster import connection, launch
from cluster.broker import dask_settings
from cluster.certificate import Certificate, security
from cluster.connection import ANSWER_S, open_client
from cluster.scheduler_file import SchedulerTarget, exposure, write_target
from kernels.files import Failed

# A certificate by itself: from when it is valid, and what is said where the clock of a host does not agree.


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


# A cluster that speaks TLS only: who has its certificate is in, anybody else is one sentence, and soon.

REFUSED_S = 4 * ANSWER_S
"""Sooner than Dask itself, which tries for 30 s; on a busy host later than one limit."""


@pytest.fixture(scope="module")
def encrypted(
    folder: Path, certificate: Certificate, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SchedulerTarget]:
    """A cluster of two ranks as our kinds start them, but on loopback."""
    pem = tmp_path_factory.mktemp("cluster") / "cluster.pem"
    pem.write_text(certificate.pem)
    common = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0", "protocol": "tls", "security": security(pem)}
    worker = {"cls": Nanny, "options": common | {"nthreads": 1, "memory_limit": 0}}
    head = {"cls": Scheduler, "options": common | {"port": 0}}
    with (
        dask.config.set(dask_settings()),
        SpecCluster({"w0": worker, "w1": worker}, head, security=security(pem), silence_logs=40) as cluster,
    ):
        yield SchedulerTarget(cluster.scheduler_address, certificate)


@pytest.fixture
def file(tmp_path: Path, encrypted: SchedulerTarget) -> Path:
    """What a client is given."""
    write_target(tmp_path / "cluster.json", encrypted)
    return tmp_path / "cluster.json"


@pytest.mark.slow
def test_who_has_the_file_measures_there(file: Path, encrypted: SchedulerTarget) -> None:
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert json.loads(file.read_text())["address"] == encrypted.address
    with launch.attach(file, entry=fake_bench.ENTRY) as cluster:
        assert measured(cluster, world=2) == [0, 1]
        spoken = {*cluster.client.scheduler_info(n_workers=-1)["workers"], cluster.address}
    assert {address.partition("://")[0] for address in spoken} == {"tls"}


def test_whoever_borrows_it_finds_it_without_the_file(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encrypted: SchedulerTarget
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with launch.borrow(file, entry=fake_bench.ENTRY) as record:
        file.unlink()
        assert launch.running() == record
        for asked in (None, encrypted.address):
            open_client(asked).close()
    with pytest.raises(ValueError, match="none was named"):
        open_client(encrypted.address)


def without(encrypted: SchedulerTarget) -> SchedulerTarget:
    return SchedulerTarget(encrypted.address)


def unencrypted(encrypted: SchedulerTarget) -> SchedulerTarget:
    return SchedulerTarget(encrypted.address.replace("tls://", "tcp://"))


def anothers(encrypted: SchedulerTarget) -> SchedulerTarget:
    return SchedulerTarget(encrypted.address, Certificate.create())


def expired(encrypted: SchedulerTarget) -> SchedulerTarget:
    assert encrypted.certificate is not None
    return SchedulerTarget(encrypted.address, certificates.expired(encrypted.certificate))


STRANGERS = {
    without: "it only answers clients that have its certificate, and none was named. Accepted: the file that",
    unencrypted: "it only answers clients that have its certificate. Accepted: the file that `workbench cluster up`",
    anothers: "it shows another certificate than the one that was named. Accepted: the file that",
    expired: "its certificate has expired. Accepted: the file that",
}


@pytest.mark.parametrize(("stranger", "says"), STRANGERS.items(), ids=[one.__name__ for one in STRANGERS])
def test_a_stranger_is_refused_soon_in_a_sentence(stranger: Any, says: str, encrypted: SchedulerTarget) -> None:
    target = stranger(encrypted)
    began = time.monotonic()
    with pytest.raises(ValueError, match=f"The scheduler {target.address} cannot be reached: {says}") as refused:
        open_client(target)
    assert time.monotonic() - began < REFUSED_S
    assert "\n" not in str(refused.value)
    assert "PRIVATE KEY" not in str(refused.value)


@pytest.mark.parametrize("stranger", [unencrypted, anothers, expired])
def test_the_scheduler_itself_hears_no_stranger(stranger: Any, encrypted: SchedulerTarget) -> None:
    """Whatever software asks: here Dask's own, which has no scruples."""
    target = stranger(encrypted)
    settings = target.certificate.security() if target.certificate else Security()

    async def asked() -> Any:
        comm = await connect(target.address, timeout=2, **settings.get_connection_args("client"))
        await comm.write({"op": "identity", "reply": True})
        return await comm.read()

    with pytest.raises(OSError):  # noqa: PT011 - of several kinds, and never an answer
        apart(asyncio.wait_for(asked(), 4))


@pytest.mark.slow
def test_a_worker_without_the_certificate_does_not_get_in(encrypted: SchedulerTarget, file: Path) -> None:
    command = [sys.executable, "-m", "distributed.cli.dask_worker", unencrypted(encrypted).address, "--no-nanny",
               "--death-timeout", "3", "--no-dashboard"]  # fmt: skip
    refused = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert refused.returncode != 0, refused.stderr
    with open_client(file) as client:
        assert len(client.scheduler_info(n_workers=-1)["workers"]) == 2


@pytest.mark.parametrize(("pem", "says"), [("", "is empty"), (" \n", "is empty"), ("/etc/hosts", "cannot be read")])
def test_an_empty_certificate_is_one_sentence(tmp_path: Path, pem: str, says: str) -> None:
    (tmp_path / "empty.json").write_text(json.dumps({"address": "tls://127.0.0.1:9", "certificate": pem}))
    with pytest.raises(Failed, match=f"its certificate {says}") as refused:
        open_client(tmp_path / "empty.json")
    assert "\n" not in str(refused.value)


def test_a_file_that_others_may_read_is_a_warning(tmp_path: Path, certificate: Certificate) -> None:
    file = tmp_path / "cluster.json"
    write_target(file, SchedulerTarget("tls://127.0.0.1:9", certificate))
    assert exposure(str(file)) is None
    file.chmod(0o640)
    assert f"`chmod 600 {file}`" in str(exposure(str(file)))
    write_target(tmp_path / "open.json", SchedulerTarget("tcp://127.0.0.1:9"))
    (tmp_path / "open.json").chmod(0o644)
    assert exposure(str(tmp_path / "open.json")) is None, "it holds no secret"
    (tmp_path / "open.json").chmod(0o602)
    assert f"may change {tmp_path / 'open.json'} (mode 602)" in str(exposure(str(tmp_path / "open.json")))
    assert exposure("tcp://127.0.0.1:9") is None


def test_a_damaged_certificate_is_one_sentence(file: Path) -> None:
    content = json.loads(file.read_text())
    file.write_text(json.dumps(content | {"certificate": content["certificate"][:200]}))
    with pytest.raises(ValueError, match="its certificate cannot be read") as refused:
        open_client(file)
    assert "\n" not in str(refused.value)


def test_a_scheduler_without_tls_is_told_from_one_with(address: str, certificate: Certificate) -> None:
    began = time.monotonic()
    with pytest.raises(ValueError, match="something answers there that is not a Dask scheduler"):
        open_client(SchedulerTarget(address.replace("tcp://", "tls://"), certificate))
    assert time.monotonic() - began < REFUSED_S
