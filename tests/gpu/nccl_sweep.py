"""The NCCL baseline is the best of a recorded sweep: `python3 -m tests.gpu.nccl_sweep OUT.jsonl SECONDS [SETTING ...]`.

Each setting has processes of its own, since NCCL reads its variables once. They are forked off a server that has
imported torch, and are given so many seconds; a setting that fails or hangs is dropped with a line that says so.
"""

from __future__ import annotations

import json
import multiprocessing
import queue
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.gpu import recording
from tests.gpu.nccl_rank import ALWAYS, OWN_WORDS, rank_main
from tests.gpu.nccl_settings import SETTINGS, Setting, best, line, messages

SETTING_S, FIRST_S = 9.0, 30.0
"""What a setting may take, and the first one, which also begins the driver."""
LEAST_S = 4.0
"""With less left, no setting is begun."""

Messages = list[tuple[str, int]]
Child = Callable[[Setting, int, int, Messages, str, Any], None]


def sweep(
    settings: Sequence[Setting], sizes: Messages, world: int, seconds: float, child: Child = rank_main
) -> Iterator[dict[str, Any]]:
    """A row of each setting, collective and size as they come, and one of how each setting ended."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.gpu.nccl_rank"])
    until = time.monotonic() + seconds
    for number, setting in enumerate(settings):
        left = until - time.monotonic()
        if left < LEAST_S:
            yield {"setting": setting.name, "dropped": f"{left:.0f} s were left"}
            continue
        limit = min(left, SETTING_S if number else FIRST_S)
        with tempfile.TemporaryDirectory() as folder:
            told = context.Queue()
            ranks = [
                context.Process(target=child, args=(setting, rank, world, sizes, folder, told)) for rank in range(world)
            ]
            for process in ranks:
                process.start()
            try:
                yield from _of_all_ranks(setting, told, ranks, time.monotonic() + limit)
            finally:
                for process in ranks:
                    process.kill()
                    process.join(timeout=5.0)


def _of_all_ranks(setting: Setting, told: Any, ranks: Sequence[Any], until: float) -> Iterator[dict[str, Any]]:
    """Rows that all ranks have told, of the slowest one; then how the setting ended."""
    waiting: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    ends: list[dict[str, Any]] = []
    world = len(ranks)
    while len(ends) < world and time.monotonic() < until:
        try:
            row = told.get(timeout=0.5)
        except queue.Empty:
            if any(process.exitcode not in (None, 0) for process in ranks):
                break
            continue
        if "end" in row:
            ends.append(row)
            if row["end"]:
                break
            continue
        same = waiting.setdefault((row["setting"], row["collective"], row["bytes"], row["captured"]), [])
        same.append(row)
        if len(same) == world:
            slowest = max(same, key=lambda one: one["median_us"])
            yield {name: value for name, value in slowest.items() if name != "rank"} | {"world": world}
    yield _ended(setting, ends, world)


def _ended(setting: Setting, ends: list[dict[str, Any]], world: int) -> dict[str, Any]:
    """How *setting* ended, with what NCCL's log says."""
    log = next((end["log"] for end in ends if end["rank"] == 0), ends[0]["log"] if ends else [])
    facts: dict[str, Any] = {"setting": setting.name, "environment": ALWAYS | setting.environment, "log": log}
    broken = [f"rank {end['rank']}: {end['end'].splitlines()[-1]}" for end in ends if end["end"]]
    if broken:
        return facts | {"dropped": "; ".join(broken)}
    if len(ends) < world:
        return facts | {"dropped": f"{world - len(ends)} of {world} ranks had not ended in time"}
    if setting.windows:
        facts["verified"] = any(OWN_WORDS.search(said) for said in log)
    return facts


def main() -> int:
    out, seconds, names = Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]
    import torch

    world = torch.cuda.device_count()
    settings = [each for each in SETTINGS if not names or each.name in names]
    rows = []
    with out.open("w") as file:
        for row in sweep(settings, messages(world), world, seconds):
            rows.append(row)
            print(json.dumps(row), file=file, flush=True)
            if "median_us" not in row:
                seen = "" if row.get("verified", True) else "NCCL's log says nothing of windows"
                print(f"{row['setting']:28} {row.get('dropped', 'done')} {seen}", flush=True)
        summary = best(rows)
        print(json.dumps({"best": summary, "provenance": recording.provenance(f"{world} GPUs")}), file=file)
    print("\n".join(map(line, summary)))
    return 0 if summary else 1


if __name__ == "__main__":
    sys.exit(main())
