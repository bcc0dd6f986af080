"""Numbers as text with units, and times that people type; all other code counts in seconds, bytes and FLOP."""

from __future__ import annotations

import math
import re

KB, MB, GB, TB = 1e3, 1e6, 1e9, 1e12
"""Decimal units, as vendors and nccl-tests count; binary ones are written KiB = 1024."""

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


def spread_text(seconds: float, low_s: float | None, high_s: float | None) -> str:
    """*seconds* with a range: `47.3 ms (46.0 to 49.1)`; the time alone without one."""
    time, spread = time_and_spread(seconds, low_s, high_s)
    return f"{time} ({spread})" if spread else time


def time_and_spread(seconds: float, low_s: float | None, high_s: float | None) -> tuple[str, str]:
    """A time and its range: `47.3 ms` and `46.0 to 49.1`, in one unit and to the same digits; empty without a range."""
    time = seconds_text(seconds)
    if low_s is None or high_s is None or low_s == high_s:
        return time, ""
    number, unit = time.split(" ")
    scale = next(scale for scale, name in _TIMES if name == unit)
    digits = max(0, 2 - math.floor(math.log10(abs(float(number))))) if float(number) else 0
    return time, f"{low_s / scale:.{digits}f} to {high_s / scale:.{digits}f}"


def bytes_text(num_bytes: float) -> str:
    """*num_bytes* in decimal units: `33.6 MB`."""
    return _scaled(num_bytes, _SIZES)


def rate_text(bytes_per_second: float) -> str:
    """*bytes_per_second* in decimal units: `450 GB/s`."""
    return f"{bytes_text(bytes_per_second)}/s"


def ratio_text(ratio: float) -> str:
    """*ratio* as a person reads it: `1.77x`, with fewer decimals where it is large or small."""
    if 0.01 <= ratio < 100:
        return f"{ratio:.2f}x"
    return f"{ratio:,.0f}x" if ratio >= 100 else f"{ratio:.1g}x"


def percent_text(share: float, sign: str = "") -> str:
    """*share* in per cent: `12 %`; `+12 %` where *sign* is `+`. Values below one per cent have one digit."""
    digits = ".0f" if abs(share) >= 0.01 or share == 0 else ".1g"
    return f"{100 * share:{sign}{digits}} %"


_TYPED = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ns": 1e-9}
"""Units that people type; Unicode has two characters for µ."""
_DURATION = re.compile(r"(\d+[.,]?\d*|[.,]\d+)(?:[eE]([+-]?\d+))?\s*([^\W\d_]*)")
_THOUSANDS = re.compile(r"[1-9]\d{0,2}(,\d{3})+\D*")


def seconds_typed(text: str, unit: str = "ms") -> float:
    """The seconds of `150 us`, `0.15 ms` or `1,5 s` as a person types them; a bare number counts in *unit*.

    ValueError says in one sentence what would be accepted.
    """
    typed = text.strip()
    forms = f"Accepted: 150 µs, 0.15 ms, 2 s, or a number of {unit}."
    if _THOUSANDS.fullmatch(typed):
        raise ValueError(f"“{typed}” can be read in two ways. {forms}")
    form = _DURATION.fullmatch(typed)
    if form is None or (form[3] or unit).lower() not in _TYPED:
        raise ValueError(f"“{typed}” is no time. {forms}")
    seconds = float(f"{form[1].replace(',', '.')}e{form[2] or 0}") * _TYPED[(form[3] or unit).lower()]
    if not 0 < seconds < math.inf:
        raise ValueError(f"“{typed}” is no time above zero. {forms}")
    return seconds


_SIZES_TYPED = {"": 1.0, "b": 1.0, "kb": KB, "mb": MB, "gb": GB, "tb": TB,
                "kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30, "tib": 2.0**40}  # fmt: skip
"""Units of sizes that people type, in lower case."""
_SIZE = re.compile(r"(\d+\.?\d*|\.\d+)(?:[eE]([+-]?\d+))?\s*([A-Za-z]*)")


def bytes_typed(text: str) -> float:
    """The bytes of `100MB`, `1.5 GiB` or `1e9` as a person types them; ValueError says what would be accepted."""
    form = _SIZE.fullmatch(text.strip())
    if form is None or form[3].lower() not in _SIZES_TYPED:
        raise ValueError(f"{text.strip()!r} is no number of bytes. Accepted: 100MB (10^6), 64MiB (2^20), 1.5GB, 1e9.")
    return float(f"{form[1]}e{form[2] or 0}") * _SIZES_TYPED[form[3].lower()]


def num_text(count: int, noun: str) -> str:
    """*count* with its noun: `1 trial`, `2,000 trials`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def about(seconds: float) -> str:
    """A duration, roughly: `about 12 s`, `about 3 min`."""
    if seconds < 1:
        return "about a second"
    if seconds < 90:
        return f"about {seconds:.0f} s"
    return f"about {seconds / 60:.0f} min" if seconds < 5400 else f"about {seconds / 3600:.1f} hours"
