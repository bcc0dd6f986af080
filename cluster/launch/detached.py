"""A detached cluster: it stays when the command that started it ends, and its own process keeps it until `down`."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil

from cluster import scheduler_file
from cluster.launch.contract import ClusterKind
from cluster.launch.kinds import kind_of
from cluster.launch.lifetime import refuse_second
from cluster.scheduler_file import Record
from kernels.files import Failed

END_S = 20.0
"""A keeper ends its cluster within this time, s, or is killed; then its workers notice that it is gone."""

ENDED = "cluster ended:"
"""Beginning of the line with the keeper's error, in its log."""

_started: list[subprocess.Popen[bytes]] = []
"""Keepers that this process started; they may outlive it."""


def up(kind: str, folder: Path | None = None, certificate: Path | None = None, **options: Any) -> Record:
    """Start a cluster that stays until `down`; ValueError when it cannot be started.

    *folder*: where the certificate of an encrypted one is kept, by default the scheduler file's. *certificate*: a PEM
    file with the one that it uses instead of a new one.

    Returns when its scheduler answers. The workers of a local cluster have joined by then; others join as they can.
    """
    chosen = kind_of(kind, options)
    refuse_second()
    log = scheduler_file.path().with_suffix(".log")
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    files = {"folder": str(folder or log.parent), "certificate": certificate and str(certificate)}
    order = json.dumps({"kind": kind, "options": options, **files})
    # the keeper imports from the same folders as this process, however that was started
    path = os.pathsep.join(place or str(Path.cwd()) for place in sys.path)
    with log.open("w") as text:
        keeper = subprocess.Popen(
            [sys.executable, "-m", "cluster.launch", order],
            stdin=subprocess.DEVNULL,
            stdout=text,
            stderr=text,
            start_new_session=True,
            env=os.environ | {"PYTHONPATH": path},
        )
    _started.append(keeper)
    try:
        return _record_of(keeper, chosen, log)
    except BaseException:
        _end(keeper.pid)
        raise


def _record_of(keeper: subprocess.Popen[bytes], kind: ClusterKind, log: Path) -> Record:
    """The record that the keeper writes once its cluster runs; Failed where it does not start."""
    give_up_at = time.monotonic() + kind.patience_s
    while time.monotonic() < give_up_at:
        record = scheduler_file.read()
        if record is not None and record.pid == keeper.pid:
            return record
        if keeper.poll() is not None:
            raise Failed(f"{_last_error(log, kind)} More in {log}.")
        time.sleep(0.05)
    raise Failed(
        f"The cluster of kind {kind.name} did not start: its scheduler did not answer within {kind.patience_s:.0f} "
        f"s. More in {log}."
    )


def _last_error(log: Path, kind: ClusterKind) -> str:
    errors = [line.removeprefix(ENDED).strip() for line in log.read_text().splitlines() if line.startswith(ENDED)]
    return errors[-1] if errors else f"The cluster of kind {kind.name} did not start: its process ended at once."


def down() -> Record:
    """End the cluster that `up` left; ValueError when there is none. A lab's cluster ends with its lab."""
    record = scheduler_file.read()
    if record is None or not record.alive:
        raise ValueError(
            "There is no cluster to stop: you run 0 on this host. Accepted: a cluster that `workbench cluster up` "
            "started here."
        )
    if not record.detached:
        raise ValueError(
            f"The cluster at {record.address} belongs to a lab (process {record.pid}) and ends with it. Accepted: "
            "end the lab, with Ctrl-C where it runs."
        )
    _end(record.pid)
    scheduler_file.remove(record)
    return record


def _end(pid: int) -> None:
    """End a keeper; if its cluster does not end in time, kill all processes that it started on this host."""
    with contextlib.suppress(psutil.NoSuchProcess):
        keeper = psutil.Process(pid)
        keeper.terminate()
        if _ends(keeper):
            return
        os.killpg(pid, signal.SIGKILL)
        if not _ends(keeper):
            raise Failed(
                f"The cluster's process {pid} was killed and is still there after {END_S:.0f} s. It waits for a disk "
                "or a device. Accepted: `workbench cluster down` once more, when that answers."
            )


def _ends(keeper: psutil.Process) -> bool:
    """Whether *keeper* ends in time. A zombie has ended: the first process of a container may never collect it."""
    give_up_at = time.monotonic() + END_S
    while time.monotonic() < give_up_at:
        for started in _started:
            started.poll()
        if not keeper.is_running() or keeper.status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.02)
    return False
