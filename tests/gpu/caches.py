"""What our kernels read from DRAM on a GPU, as its counters say: `python -m tests.gpu.caches OUT.json [SECONDS]`.

`ncu` runs one process for each batch of kernels. OUT.json is written after each batch, and a second call goes on where
the first one ended. `python -m tests.gpu.caches fit OUT.json` fits the reuse tier to half of the kernels, says how far
it is off on the others, and writes the fitted values into the device's file of data/caches.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.gpu import caches_kernels, recording
from tests.gpu.caches_rank import REPEATS
from workbench.machines import machine
from workbench.resources import data_directory
from workbench.simulator.cache import measured
from workbench.simulator.cache.hierarchy import of_machine

BATCH, BATCH_S, LEAST_BATCH_S = 8, 180.0, 60.0
"""Kernels of one process, and what it may take: 14 launches were seen to take 20 s, and each kernel is compiled. With
less time left than the last number none begins."""
FLAGS = ("--cache-control", "all", "--clock-control", "none", "--print-units", "base", "--csv", "--page", "raw",
         "--profile-from-start", "off", "--target-processes", "all")  # fmt: skip
Row = dict[str, Any]


def measure(out: Path, seconds: float) -> None:
    """Counts as many kernels as *seconds* allow that are not in *out* yet."""
    until = time.monotonic() + seconds
    document = json.loads(out.read_text()) if out.exists() else _begun()
    metrics = known_metrics()
    waiting = [row for row in document["kernels"] if not row.get("repeats")]
    for start in range(0, len(waiting), BATCH):
        left = until - time.monotonic()
        if left < LEAST_BATCH_S:
            break
        batch = waiting[start : start + BATCH]
        try:
            repeats_of = counted(batch, metrics, min(BATCH_S, left))
        except (RuntimeError, ValueError, subprocess.TimeoutExpired) as error:  # the next batch may count all the same
            print(f"not counted: {str(error)[-1500:]}", flush=True)
            continue
        for row, repeats in zip(batch, repeats_of, strict=True):
            row["repeats"] = repeats
        out.write_text(json.dumps(document, indent=1) + "\n")
        print(f"{sum(bool(row.get('repeats')) for row in document['kernels'])} of {len(document['kernels'])} kernels")


def _begun() -> Row:
    return {"provenance": recording.provenance(caches_kernels.MACHINE), "seed": caches_kernels.SEED,
            "flags": " ".join(FLAGS), "kernels": caches_kernels.kernels()}  # fmt: skip


def known_metrics() -> list[str]:
    """Those of measured.METRICS that this ncu and GPU have; RuntimeError where one is missing that is needed."""
    text = subprocess.run(["ncu", "--query-metrics"], capture_output=True, text=True, timeout=60, check=True).stdout
    names = {line.split()[0] for line in text.splitlines() if line.split()}
    known = [name for name in measured.METRICS if name.rsplit(".", 1)[0] in names]
    if missing := [name for name in measured.METRICS if name not in known]:
        print(f"not known here: {', '.join(missing)}")
    if lost := [name for name in measured.NEEDED if name not in known]:
        raise RuntimeError(f"ncu knows {len(known)} metrics of ours, and {lost[0]} is not among them.")
    return known


def counted(batch: Sequence[Row], metrics: Sequence[str], seconds: float) -> list[list[dict[str, float]]]:
    """By kernel of *batch* its repeats; RuntimeError with ncu's last lines where there are fewer launches."""
    with tempfile.TemporaryDirectory() as folder:
        rows_file, log = Path(folder) / "batch.json", Path(folder) / "ncu.csv"
        rows_file.write_text(json.dumps(list(batch)))
        command = ["ncu", *FLAGS, "--metrics", ",".join(metrics), "--log-file", str(log),
                   sys.executable, "-m", "tests.gpu.caches_rank", str(rows_file)]  # fmt: skip
        ended = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
        text = log.read_text() if log.exists() else ""
    if ended.returncode:
        raise RuntimeError(f"ncu ended with {ended.returncode}: {(text + ended.stdout + ended.stderr)[-3000:]}")
    return grouped(measured.csv_rows(text), len(batch))


def grouped(launches: list[dict[str, float]], count: int) -> list[list[dict[str, float]]]:
    """The launches of *count* kernels, REPEATS each: others would be of the wrong kernel."""
    if len(launches) != count * REPEATS:
        raise RuntimeError(f"ncu has {len(launches)} launches, and {count} kernels x {REPEATS} were made.")
    return [launches[at * REPEATS : (at + 1) * REPEATS] for at in range(count)]


def fit(out: Path, into: Path) -> dict[str, Row]:
    """Writes the fitted values into the cache file *into*; what is off on held-out kernels, by class."""
    document = json.loads(out.read_text())
    known = measured.truths(document)
    best = measured.fitted(known, of_machine(machine(caches_kernels.MACHINE)))
    rows = list(measured.errors(known, best))
    from_where = document["provenance"]
    count = sum(each.part == "fit" for each in known)
    source = f"{from_where['gpus']}, {from_where['date'][:10]}: bytes that ncu counts of {count} kernels"
    into.write_text(measured.written_into(into.read_text(), best, source))
    print(f"far_copies = {best.far_copies:g}, pace_spread = {best.pace_spread:g}")
    for row in rows:
        points = "not counted" if row["points_off"] is None else f"off by {row['points_off']:.1f} points"
        print(f"{row['number']:3} {row['work']:20} {row['part']:8} {row['dram_read_bytes'] / 1e9:9.3f} GB read, "
              f"estimated {row['off']:+.1%}, spread {row['spread']:.1%}, hits {points}")  # fmt: skip
    classes = measured.by_class(rows)
    print(json.dumps(classes, indent=1))
    return classes


if __name__ == "__main__":
    if sys.argv[1] == "fit":
        fit(Path(sys.argv[2]), data_directory() / "caches" / "h200.toml")
    else:
        measure(Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 540.0)
