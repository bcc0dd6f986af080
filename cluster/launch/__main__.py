"""The process that keeps a detached cluster: `python -m cluster.launch ORDER`, where ORDER is JSON."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

from cluster import scheduler_file
from cluster.certificate import Certificate
from cluster.launch.detached import ENDED
from cluster.launch.kinds import kind_of
from cluster.launch.lifetime import hold
from cluster.scheduler_file import SchedulerTarget
from kernels.files import Failed

LOOK_S = 2.0
"""Seconds between two checks of the keeper that its scheduler still accepts connections."""
GONE_S = 60.0
"""Seconds without a connection after which a scheduler is gone: a network may fail while the ranks work on."""
GIVE_UP_S = 8.0
"""Seconds after which a cluster that must end while it is starting is killed, in any state."""


class _StopRequested(BaseException):
    """Raised in the main thread while the cluster starts; no handler there takes it for a failure."""


class _EndSignal:
    """Handles the signals that end a cluster: they interrupt a start, and a running cluster waits for them."""

    def __init__(self) -> None:
        self.received = threading.Event()
        self.is_starting = True
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle)

    def _handle(self, *_: Any) -> None:
        is_first = not self.received.is_set()
        self.received.set()
        if self.is_starting and is_first:
            give_up = threading.Timer(GIVE_UP_S, _end_at_once)
            give_up.daemon = True
            give_up.start()
            raise _StopRequested


def main() -> int:
    """Keep the cluster until a signal comes or its scheduler is gone; print an error after `ENDED`, on one line."""
    end_signal = _EndSignal()
    request = json.loads(sys.argv[1])
    try:
        certificate = Certificate(Path(request["certificate"]).read_text()) if request.get("certificate") else None
        kind = kind_of(request["kind"], request["options"])
        with hold(kind, detached=True, folder=Path(request["folder"]), certificate=certificate) as record:
            end_signal.is_starting = False
            watch(scheduler_file.target_at(record.address), end_signal.received)
    except _StopRequested:
        print(ENDED, "The cluster did not start: its process received a signal to end before that.", file=sys.stderr)
        return 1
    except Exception as error:
        traceback.print_exc()
        print(ENDED, " ".join(str(error).split()) or type(error).__name__, file=sys.stderr)
        return 1
    return 0


def watch(target: SchedulerTarget, ended: threading.Event, look_s: float = LOOK_S, gone_s: float = GONE_S) -> None:
    """Return when *ended* is set; Failed when *target* accepted no connection for *gone_s*."""
    accepted_at = time.monotonic()
    while not ended.wait(look_s):
        try:
            scheduler_file.reach(target, scheduler_file.KNOCK_S)
            accepted_at = time.monotonic()
        except OSError as error:
            if time.monotonic() - accepted_at > gone_s:
                raise Failed(
                    f"The scheduler {target.address} is gone: it accepted no connection for {gone_s:.0f} s ({error})."
                ) from error


def _end_at_once() -> None:
    """Kill this process and its workers: threads that wait for missing workers would wait on."""
    if os.getpgrp() == os.getpid():
        with contextlib.suppress(OSError):
            os.killpg(0, signal.SIGKILL)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
