"""The process that keeps a detached cluster: `python -m cluster.launch '{"kind": .., "options": .., "folder": ..}'`."""

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
from cluster.launch.detached import ENDED
from cluster.launch.kinds import kind_of
from cluster.launch.lifetime import hold
from cluster.scheduler_file import SchedulerTarget
from kernels.files import Failed

LOOK_S = 2.0
"""How often the keeper looks whether its scheduler still takes connections."""
GONE_S = 60.0
"""A scheduler that took none for so long is gone: a network may fail for a while, and its ranks work on."""
GIVE_UP_S = 8.0
"""A cluster that is told to end while it is being started is given up within this time, in whatever state."""


class _StopRequested(BaseException):
    """Raised wherever the main thread is while the cluster is being started; nothing there takes it for a failure."""


class _Ending:
    """What a signal does: it breaks off a start, and it is waited for by a cluster that runs."""

    def __init__(self) -> None:
        self.told = threading.Event()
        self.is_starting = True
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._hear)

    def _hear(self, *_: Any) -> None:
        first = not self.told.is_set()
        self.told.set()
        if self.is_starting and first:
            give_up = threading.Timer(GIVE_UP_S, _end_at_once)
            give_up.daemon = True
            give_up.start()
            raise _StopRequested


def main() -> int:
    """Until a signal comes or the scheduler is gone. What went wrong is a line that begins with `ENDED`."""
    ending = _Ending()
    order = json.loads(sys.argv[1])
    try:
        with hold(kind_of(order["kind"], order["options"]), detached=True, folder=Path(order["folder"])) as record:
            ending.is_starting = False
            watch(scheduler_file.own(record.address), ending.told)
    except _StopRequested:
        print(ENDED, "The cluster did not start: its process was told to end before.", file=sys.stderr)
        return 1
    except Exception as error:
        traceback.print_exc()
        print(ENDED, " ".join(str(error).split()) or type(error).__name__, file=sys.stderr)
        return 1
    return 0


def watch(target: SchedulerTarget, ended: threading.Event, look_s: float = LOOK_S, gone_s: float = GONE_S) -> None:
    """Return when *ended* is set; Failed when nobody at *target* took a connection for *gone_s*."""
    taken_at = time.monotonic()
    while not ended.wait(look_s):
        try:
            scheduler_file.reach(target, scheduler_file.KNOCK_S)
            taken_at = time.monotonic()
        except OSError as error:
            if time.monotonic() - taken_at > gone_s:
                raise Failed(
                    f"The scheduler {target.address} is gone: it took no connection for {gone_s:.0f} s ({error})."
                ) from error


def _end_at_once() -> None:
    """This process and its workers; whatever waits in it for workers that do not come would wait on."""
    if os.getpgrp() == os.getpid():
        with contextlib.suppress(OSError):
            os.killpg(0, signal.SIGKILL)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
