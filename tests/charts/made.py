"""Made-up rows and spans for the tests of charts, and a chart drawn as SVG. None of these numbers was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import vl_convert

from kernels.outcome import ROW_KEYS, Span

FABRIC = "emulated:wire_to_compute=1,bandwidth_bytes_per_second=5.33e+08,latency_seconds=0.0001"
EVIL = "<img src=x onerror=alert(1)> <b>bold</b>"
"""What somebody may have called something."""


def made_row(key: str, time_s: float | None = 0.06, **given: Any) -> dict[str, Any]:
    """A measurement with all ROW_KEYS, or, without a time, a failure."""
    spread = (None, None) if time_s is None else (time_s * 0.97, time_s * 1.06)
    return {
        **dict.fromkeys(ROW_KEYS), "outcome": "failure" if time_s is None else "measurement", "source": "measured",
        "key": key, "operator": "gemm_all_to_all", "shape": {"m": 2048, "n": 512, "k": 1024}, "dtype": "float32",
        "world": 2, "scheme": "fused", "axes": {"tile": "128x128x64", "slice_tiles": 8}, "backend": "cpu",
        "machine": "laptop", "fabric": FABRIC, "protocol": "default", "part": "whole", "time_s": time_s,
        "low_s": spread[0], "high_s": spread[1], "correct": True, "floor_s": 0.043, "sequential_s": 0.085, **given,
    }  # fmt: skip


def estimate_of(row: Mapping[str, Any], time_s: float) -> dict[str, Any]:
    """The simulator's row of the same trial."""
    given = {"source": "estimated", "outcome": "estimate", "time_s": time_s, "low_s": time_s, "high_s": time_s}
    return {**row, **given, "correct": None, "calibrated": True}


def made_span(
    address: str, start_s: float, stop_s: float, *, pool: str = "compute", after: str | None = None, stream: int = 0
) -> Span:
    """A Span whose rank and kind are those of its address."""
    rank, kind, _, _ = address.split("/")
    return Span(address, int(rank), kind, pool, start_s, stop_s, after, stream=stream)


def svg(chart: alt.TopLevelMixin, datasets: Mapping[str, Sequence[Mapping[str, Any]]] | None = None) -> str:
    """*chart* drawn, with rows for its named datasets."""
    spec = chart.to_dict()
    spec["datasets"] = {**spec.get("datasets", {}), **(datasets or {})}
    return vl_convert.vegalite_to_svg({"width": 600, **spec}, vl_version="6.4", allowed_base_urls=[])
