"""A GPU's counters: which ones are asked for, and the launches of ncu's CSV with them.

Nothing but the standard library, since GPU hosts that count have little else.
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
ASKED, HIT, MISSED = f"{TEX}.sum", f"{TEX}_lookup_hit.sum", f"{TEX}_lookup_miss.sum"
SECONDS = "gpu__time_duration.sum"
NEEDED = (READ, WRITTEN, SECONDS)
TEX_ONLY = (*NEEDED, HIT, MISSED)
METRICS = (*TEX_ONLY, ASKED, f"{FABRIC}.sum", f"{FABRIC}_lookup_hit.sum", f"{FABRIC}_lookup_miss.sum")
"""Far reads are looked up near and at home, so that lts__t_sectors_op_read has them twice: it is not asked for."""
GRID, PROGRAMS = "Grid Size", "programs"
"""The column of ncu's raw page that says how many programs were launched, and their number in a row."""
UNITS = {"ns": 1e-9, "nsecond": 1e-9, "us": 1e-6, "usecond": 1e-6, "ms": 1e-3, "msecond": 1e-3, "Kbyte": 1e3,
         "Mbyte": 1e6, "Gbyte": 1e9}  # fmt: skip
"""Of one in seconds or bytes; what is not here is one of its own."""


def has_rows(text: str) -> bool:
    """Whether *text* has the heading of ncu's table."""
    return any(map(_is_heading, text.splitlines()))


def csv_rows(text: str) -> list[dict[str, float]]:
    """By profiled launch, in order, its metrics: of ncu's `--csv` output, `--page raw` or `details`.

    Seconds and bytes, and the number of programs where it stands there. Lines before the heading, which ncu and the
    program print, are passed over. ValueError says what is missing.
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
    """The metrics of one line: all of a launch on a raw page, one of them elsewhere."""
    is_long = "Metric Name" in row
    cells = [(row["Metric Name"], row["Metric Value"], row["Metric Unit"])] if is_long else [
        (name, cell, units.get(name, "")) for name, cell in row.items()]  # fmt: skip
    numbers = {name: number * UNITS.get(unit, 1.0) for name, cell, unit in cells
               if name in METRICS and (number := _number(cell)) is not None}  # fmt: skip
    programs = [int(number) for number in re.findall(r"\d+", row.get(GRID) or "")]
    return {**numbers, PROGRAMS: float(math.prod(programs))} if programs else numbers


def _number(text: str) -> float | None:
    """ncu may group digits by commas; what it could not count, as `n/a`, is no number."""
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


def hit_rate(metrics: Mapping[str, float]) -> float | None:
    """Of the tex units' reads, None where the counters are not there."""
    if HIT not in metrics or MISSED not in metrics:
        return None
    looked_up = metrics[HIT] + metrics[MISSED]
    return metrics[HIT] / looked_up if looked_up else None
