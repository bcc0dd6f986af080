"""What our kernels read from DRAM on a GPU, as its counters say: `python -m tests.gpu.caches OUT.json [SECONDS]`.

`ncu` runs one process for each batch of kernels. OUT.json is written after each batch, and a second call goes on where
the first one ended. Kernels with cache hints are timed as well, without ncu. `python -m tests.gpu.caches fit OUT.json`
fits the reuse tier to half of the kernels, says how far it is off on the others, writes the fitted values into the
device's file of data/caches, and puts OUT.json where tests, documents and charts read it.
`python -m tests.gpu.caches OUT.json SECONDS drawn` has other kernels, to which nothing is fitted (`caches_drawn.py`),
and times all of them.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernels import files
from kernels.outcome import Measurement
from kernels.trial import PROTOCOLS
from tests.gpu import caches_drawn, caches_kernels, gang, recording
from tests.gpu.caches_ncu import Counter, NotCounted

SECONDS, BATCH_S, HINTS_S = 540.0, 150.0, 120.0
"""Of a call, of one process under ncu, and of the kernels that are timed."""
BATCH_MOST, FIRST_S = 24, 18.0
"""Kernels of one process, and seconds of one kernel until some were counted: 14 launches were seen to take 20 s."""
STRIKES = 3
"""So many batches in a row without any number, and the fault is not that of a kernel."""
TOGETHER = 4
"""Drawn kernels that are timed in turns: so many have their operands in memory at once."""
MARGIN = 1.3
"""A batch may take so much longer for each kernel than the one before it."""
Row = dict[str, Any]


def measure(out: Path, seconds: float, counter: Counter | None = None, *, drawn: bool = False) -> bool:
    """Counts as many kernels as *seconds* allow that are not in *out* yet; whether none is left.

    *drawn*: those of caches_drawn in place of those of caches_kernels.
    A kernel that fails keeps the sentence that says why, and is not tried again.
    """
    until, counter = time.monotonic() + seconds, counter or Counter()
    document = json.loads(out.read_text()) if out.exists() else _begun(counter, drawn=drawn)
    counter.choose_metrics()
    document |= {"metrics": list(counter.metrics), "listed": counter.listed}
    pace, strikes = FIRST_S, 0
    while batch := next_batch(document["kernels"], pace, until - time.monotonic()):
        began = time.monotonic()
        try:
            counter.count(batch, min(BATCH_S, until - began))
        except NotCounted as error:
            print(error, flush=True)
            strikes = 0 if any(row.get("repeats") for row in batch) else strikes + 1
            nothing_works = not any(row.get("repeats") for row in document["kernels"])
            if strikes == STRIKES or (nothing_works and not error.is_of_a_kernel):
                raise
            if len(batch) == 1:
                batch[0].setdefault("failed", str(error))
        pace = max(0.5, (time.monotonic() - began) / max(1, sum(_is_over(row) for row in batch)))
        _written(out, document)
        if not any(_is_timed(row) for row in document["kernels"]) and until - time.monotonic() > HINTS_S:
            time_them(sittings(document["kernels"]), HINTS_S)
            _written(out, document)
    return not any(not _is_over(row) for row in document["kernels"])


def next_batch(kernels: Sequence[Row], pace: float, left_s: float) -> list[Row]:
    """The kernels to count next, at *pace* seconds each: as many as there is time for; none where that is over."""
    waiting = caches_kernels.in_turns([row for row in kernels if not _is_over(row)])
    if left_s < min(MARGIN * pace, BATCH_S):
        return []
    return waiting[: min(BATCH_MOST, max(1, int(min(BATCH_S, left_s) / (MARGIN * pace))))]


def _is_over(row: Row) -> bool:
    return bool(row.get("repeats") or row.get("failed"))


def _is_timed(row: Row) -> bool:
    return "seconds" in row or "not_timed" in row


def _begun(counter: Counter, *, drawn: bool) -> Row:
    facts = recording.provenance(caches_kernels.MACHINE)
    facts |= {"launched_by": "tests/gpu/caches.py, one process under ncu for each batch", "ncu": counter.version()}
    chosen = caches_drawn if drawn else caches_kernels
    return {"provenance": facts, "seed": chosen.SEED, "flags": counter.flags, "metrics": [],
            "kernels": chosen.kernels()}  # fmt: skip


def _written(out: Path, document: Row) -> None:
    files.write(out, json.dumps(document, indent=1) + "\n")
    kernels = document["kernels"]
    done, failed = (sum(bool(row.get(key)) for row in kernels) for key in ("repeats", "failed"))
    print(f"{done} of {len(kernels)} kernels are counted, {failed} failed", flush=True)


def sittings(kernels: Sequence[Row]) -> list[list[Row]]:
    """Those that are timed in turns: of hints all kernels of an operator, of drawn ones few, which nobody compares."""
    compared = [row for row in kernels if row["work"] == caches_kernels.COMPARED]
    if compared:
        return [[row for row in compared if row["operator"] == operator]
                for operator in dict.fromkeys(row["operator"] for row in compared)]  # fmt: skip
    return [list(kernels[begin : begin + TOGETHER]) for begin in range(0, len(kernels), TOGETHER)]


def time_them(groups: Sequence[Sequence[Row]], seconds: float, opened: gang.Opened = gang.gpu_bench) -> None:
    """Times the kernels of each group in turns, by the bench that times all trials."""
    timed = replace(PROTOCOLS["thorough"], name="hints")
    rows = {caches_kernels.trial(row, timed).key: row for group in groups for row in group}
    blocks = [[caches_kernels.trial(row, timed).to_json() for row in group] for group in groups]
    for news in gang.run(blocks, 1, seconds, opened):
        if isinstance(news, str):
            print(news, flush=True)
        elif isinstance(news[0], Measurement):
            rows[news[0].trial.key]["seconds"] = [round(one, 9) for one in news[0].samples[0]]
    for row in rows.values():
        if "seconds" not in row:
            row["not_timed"] = f"It was not timed within {seconds:.0f} s."


if __name__ == "__main__":
    if sys.argv[1] == "fit":
        from tests.gpu.caches_fit import main  # compiles estimates, for which a GPU host lacks what it needs

        main(Path(sys.argv[2]))
    else:
        seconds = float(sys.argv[2]) if len(sys.argv) > 2 else SECONDS
        is_whole = measure(Path(sys.argv[1]), seconds, drawn="drawn" in sys.argv[3:])
        print("All kernels are counted." if is_whole else "Some are left: the same command goes on.")
