"""A GPU's counters: the metrics that ncu collects, and a reader of its CSV.

It imports only the standard library, since the GPU hosts that run ncu have little else.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Mapping

TEX = "lts__t_sectors_srcunit_tex_op_read"
FABRIC = "lts__t_sectors_srcunit_ltcfabric"
READ, WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"
REQUESTED, HIT, MISSED = f"{TEX}.sum", f"{TEX}_lookup_hit.sum", f"{TEX}_lookup_miss.sum"
SECONDS = "gpu__time_duration.sum"
NEEDED = (READ, WRITTEN, SECONDS)
TEX_ONLY = (*NEEDED, HIT, MISSED)
METRICS = (*TEX_ONLY, REQUESTED, f"{FABRIC}.sum", f"{FABRIC}_lookup_hit.sum", f"{FABRIC}_lookup_miss.sum")
"""All metrics. lts__t_sectors_op_read is not among them: it counts reads of the other partition twice."""
GRID, PROGRAMS = "Grid Size", "programs"
"""The column of ncu's raw page that holds the launch grid, and the key of the number of programs in our rows."""
UNITS = {"ns": 1e-9, "nsecond": 1e-9, "us": 1e-6, "usecond": 1e-6, "ms": 1e-3, "msecond": 1e-3, "Kbyte": 1e3,
         "Mbyte": 1e6, "Gbyte": 1e9}  # fmt: skip
"""Factor of each unit of ncu to seconds or bytes; a unit that is not listed has factor 1."""


def has_rows(text: str) -> bool:
    """Whether *text* has the heading line of ncu's table."""
    return any(map(_is_heading, text.splitlines()))


def csv_rows(text: str) -> list[dict[str, float]]:
    """The metrics of each profiled launch, in order, from ncu's `--csv` output (`--page raw` or `details`).

    Times are in seconds and sizes in bytes; the number of programs is included where ncu reports the grid. Lines that
    ncu and the program print before the heading are skipped. ValueError says what is missing.
    """
    lines = text.splitlines()
    begin = next((at for at, line in enumerate(lines) if _is_heading(line)), None)
    if begin is None:
        raise ValueError('The text has no line that begins with "ID", 0 of 1. Accepted: what ncu --csv prints.')
    rows = list(csv.DictReader(io.StringIO("\n".join(line for line in lines[begin:] if not line.startswith("==")))))
    units = next((row for row in rows if not row["ID"]), {})  # of a raw page
    launches: dict[str, dict[str, float]] = {}
    for row in rows:
        if row["ID"]:
            launches.setdefault(row["ID"], {}).update(_numbers(row, units))
    return list(launches.values())


def _is_heading(line: str) -> bool:
    return line.startswith(('"ID",', "ID,"))


def _numbers(row: Mapping[str, str], units: Mapping[str, str]) -> dict[str, float]:
    """The metrics of one CSV line: all metrics of a launch on a raw page, a single one on a details page."""
    is_long = "Metric Name" in row
    cells = [(row["Metric Name"], row["Metric Value"], row["Metric Unit"])] if is_long else [
        (name, cell, units.get(name, "")) for name, cell in row.items()]  # fmt: skip
    numbers = {name: number * UNITS.get(unit, 1.0) for name, cell, unit in cells
               if name in METRICS and (number := _number(cell)) is not None}  # fmt: skip
    programs = [int(number) for number in re.findall(r"\d+", row.get(GRID) or "")]
    return {**numbers, PROGRAMS: float(math.prod(programs))} if programs else numbers


def _number(text: str) -> float | None:
    """The number in a cell, whose digits may be grouped by commas; None for a cell such as `n/a`."""
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


def hit_rate(metrics: Mapping[str, float]) -> float | None:
    """L2 hit rate of the tex units' reads, or None if the counters are absent."""
    if HIT not in metrics or MISSED not in metrics:
        return None
    looked_up = metrics[HIT] + metrics[MISSED]
    return metrics[HIT] / looked_up if looked_up else None
