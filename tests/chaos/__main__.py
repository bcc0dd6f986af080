"""`python -m tests.chaos --seed N --minutes M`: a cluster of its own meets the faults that the seed tells.

Kills, stops and resumes ranks, workers, the scheduler and clients, fills a small disk and a small /dev/shm of its own,
ends and begins the cluster, while clients sweep. Each client that ends and each store is compared with what must
hold (judging.py); after each round the world has recovered from each of its faults. `--round R` plays one round again.
Status 0 where all held. Otherwise 1, and every trouble is a line with the seed, the fault and how to play it again.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

from tests.chaos import left
from tests.chaos.disk import DISK_BYTES, MEMORY_BYTES, SHARED, Full, Limited, Mounted, again_with_own_mounts
from tests.chaos.playing import REST_EVERY, Play, Rooms
from workbench.results.provenance import provenance

RECOVERY_S = 30.0


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description="Faults of a seed against a cluster.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1.0, help="No round begins after this time.")
    parser.add_argument("--round", type=int, help="Play only this round of the seed's script.")
    parser.add_argument("--faults", type=int, default=10**9, help="No round begins after so many faults.")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--clients", type=int, default=3)
    parser.add_argument("--recovery", type=float, default=RECOVERY_S, help="Seconds within which a sweep completes.")
    parser.add_argument("--mounts", choices=("own", "none"), help="none: nothing is mounted, a limit stands in.")
    return parser.parse_args()


def rooms_in(folder: Path, has_own_mounts: bool) -> Rooms:
    """Everything that the processes of a play write lies in *folder*."""
    for name, variable in (("state", "XDG_STATE_HOME"), ("data", "XDG_DATA_HOME"), ("tmp", "TMPDIR")):
        (folder / name).mkdir()
        os.environ[variable] = str(folder / name)
    tempfile.tempdir = None
    disk: Full = Mounted(folder / "disk", DISK_BYTES) if has_own_mounts else Limited(folder / "disk")
    return Rooms(folder, disk, Mounted(SHARED, MEMORY_BYTES) if has_own_mounts else None)


def play(told: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Play as *told* says; the figures."""
    began = time.monotonic()
    rooms = rooms_in(folder, told.mounts == "own")
    playing = Play(rooms, told.seed, told.ranks, told.clients, told.recovery)
    playing.begin()
    numbers = count(1) if told.round is None else iter([told.round])
    for number in numbers:
        playing.round(number)
        faults = sum(playing.tally.faults.values())
        if time.monotonic() - began > 60 * told.minutes or faults >= told.faults:
            break
        if number % REST_EVERY == 0:
            playing.rest()
    playing.end()
    playing.tell("everything ended")
    if not playing.tally.troubles:
        rooms.disk.close()
    return figures(playing, time.monotonic() - began)


def figures(playing: Play, seconds: float) -> dict[str, Any]:
    """What a play came to, as one document."""
    tally = playing.tally
    recoveries = sorted(tally.recoveries_s) or [0.0]
    here = provenance()
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": here["git_commit"],
        "cpu": here["cpu"],
        "cores": here["cores"],
        "seed": playing.seed,
        "ranks": playing.num_ranks,
        "faults": sum(tally.faults.values()),
        "faults_by_kind": dict(tally.faults.most_common()),
        "without_victim": tally.without_victim,
        "rounds": tally.rounds,
        "clients": playing.clients.num_begun,
        "clients_by_status": {str(status): num for status, num in playing.stores.statuses.most_common()},
        "outcomes": dict(playing.stores.outcomes.most_common()),
        "recovery_median_s": round(statistics.median(recoveries), 1),
        "recovery_p95_s": round(recoveries[int(0.95 * (len(recoveries) - 1))], 1),
        "recovery_most_s": round(recoveries[-1], 1),
        "minutes": round(seconds / 60, 1),
        "load_average": round(os.getloadavg()[1], 1),
        "mounts": playing.rooms.memory is not None,
        "troubles": len(tally.troubles),
    }


def main() -> int:
    told = options()
    if told.mounts is None:
        again_with_own_mounts([*sys.argv[1:], "--mounts", "own"])
        told.mounts = "none"
    left.adopt_orphans()
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    try:
        result = play(told, folder)
    finally:
        for killed in left.end_all():
            print(f"killed at the end: {killed}", file=sys.stderr)
    print(json.dumps(result), flush=True)
    if result["troubles"]:
        print(f"{result['troubles']} troubles. All again: python -m tests.chaos --seed {told.seed} --minutes "
              f"{told.minutes:g} --ranks {told.ranks} --clients {told.clients}. One round R alone: --round R. What the "
              f"clients in trouble said is in {folder}.")  # fmt: skip
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
