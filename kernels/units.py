"""Seconds, bytes, FLOP and bytes per second inside; people's units only here and at the screen."""

from __future__ import annotations

import math

KB, MB, GB, TB = 1e3, 1e6, 1e9, 1e12
"""Decimal, as vendors and nccl-tests count; KiB = 1024 is spelled out where it is meant."""

DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
"""Bytes of one element of each dtype a problem may have."""

_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_SIZES = ((TB, "TB"), (GB, "GB"), (MB, "MB"), (KB, "kB"), (1.0, "B"))


def _scaled(value: float, table: tuple[tuple[float, str], ...]) -> str:
    if value == 0 or not math.isfinite(value):
        return f"{value:g} {next(unit for scale, unit in table if scale == 1)}"
    rounded = float(f"{value:.3g}")  # first: 999.7 µs is 1 ms, not 1e+03 µs
    scale, unit = next(((s, u) for s, u in table if abs(rounded) >= s), table[-1])
    return f"{rounded / scale:.3g} {unit}" if abs(rounded) < 1000 * scale else f"{value / scale:.0f} {unit}"


def seconds_text(seconds: float) -> str:
    """*seconds* as a person reads it: `1.25 ms`."""
    return _scaled(seconds, _TIMES)


def bytes_text(num_bytes: float) -> str:
    """*num_bytes* in decimal units: `33.6 MB`."""
    return _scaled(num_bytes, _SIZES)


def rate_text(bytes_per_second: float) -> str:
    """*bytes_per_second* in decimal units: `450 GB/s`."""
    return f"{bytes_text(bytes_per_second)}/s"


def about(seconds: float) -> str:
    """A duration as roughly as it is known."""
    if seconds < 1:
        return "about a second"
    if seconds < 90:
        return f"about {seconds:.0f} s"
    return f"about {seconds / 60:.0f} min" if seconds < 5400 else f"about {seconds / 3600:.1f} hours"
