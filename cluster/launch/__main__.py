"""The process that keeps a detached cluster: `python -m cluster.launch '{"kind": .., "options": .., "folder": ..}'`."""

from __future__ import annotations

import json
import signal
import sys
import threading
import traceback
from pathlib import Path

from cluster import scheduler_file
from cluster.launch.detached import ENDED
from cluster.launch.held import hold
from cluster.launch.kinds import kind_of

LOOK_S = 2.0
"""How often the keeper looks whether its scheduler still takes connections."""


def main() -> int:
    """Until a signal comes or the scheduler is gone. What went wrong is a line that begins with `ENDED`."""
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    order = json.loads(sys.argv[1])
    try:
        with hold(kind_of(order["kind"], order["options"]), detached=True, folder=Path(order["folder"])) as record:
            target = scheduler_file.own(record.address)
            while not ended.wait(LOOK_S):
                scheduler_file.knock(target, scheduler_file.KNOCK_S)
    except Exception as error:
        traceback.print_exc()
        print(ENDED, " ".join(str(error).split()) or type(error).__name__, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
