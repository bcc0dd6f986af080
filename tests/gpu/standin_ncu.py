"""Stands for ncu in tests: lists metrics, says its version, and writes launches of a batch that nobody launched.

The batch's rows may say what goes wrong: `breaks` ends the process in that kernel with a traceback, `sleeps` there
without end. The variable STANDIN says what this ncu cannot do: `counters`, or `fabric`, which it then refuses.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

REPEATS = 5
NAMES = ("dram__bytes_read", "dram__bytes_write", "gpu__time_duration", "lts__t_sectors_srcunit_tex_op_read",
         "lts__t_sectors_srcunit_tex_op_read_lookup_hit", "lts__t_sectors_srcunit_tex_op_read_lookup_miss",
         "lts__t_sectors_srcunit_ltcfabric")  # fmt: skip
UNITS = {"dram__bytes_read.sum": "byte", "dram__bytes_write.sum": "byte", "gpu__time_duration.sum": "ns"}


def main(words: list[str]) -> int:
    """What ncu would exit with."""
    unable = os.environ.get("STANDIN", "")
    if "--version" in words:
        print("NVIDIA (R) Nsight Compute Command Line Profiler\nVersion 2026.1 (stand-in)")
    elif "--query-metrics" in words:
        print("Device NVIDIA H200 (GH100)\n--------")
        print("\n".join(f"{name:60} Counter  byte  # words" for name in NAMES))
    elif unable == "counters":
        print("==ERROR== Failed to initialize the profiler: LibraryNotLoaded")
        return 1
    else:
        return profiled(words, unable)
    return 0


def profiled(words: list[str], unable: str) -> int:
    """The launches of all kernels before the one that breaks, and some of that."""
    metrics = words[words.index("--metrics") + 1].split(",")
    if unable == "fabric" and any("fabric" in name for name in metrics):
        print("==ERROR== Failed to find metric")
        return 1
    log, (batch, ended) = Path(words[words.index("--log-file") + 1]), map(Path, words[-2:])
    lines, number = (
        [("ID", "Kernel Name", "Grid Size", *metrics), ("", "", "", *(UNITS.get(m, "") for m in metrics))],
        0,
    )
    status = 0
    for row in json.loads(batch.read_text()):
        if row.get("sleeps"):
            time.sleep(60)
        for turn in range(2 if row.get("breaks") else REPEATS):
            values = [1000 * row["number"] + turn for _ in metrics]
            lines.append((number, "gemm_send", "(132, 1, 1)", *values))
            number += 1
        if row.get("breaks"):
            print("Traceback (most recent call last):\nRuntimeError: out of memory")
            status = 1
            break
        with ended.open("a") as file:
            file.write(f"{row['number']}\n")
    text = "".join(",".join(f'"{cell}"' for cell in line) + "\n" for line in lines)
    log.write_text("==PROF== Connected\n" + text)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
