"""What a GPU counted of caches, as documents say it: how far the reuse tier is off by class, and what hints do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from tests.gpu.caches_measured import measured_kernels
from workbench.analysis import kernel_counters
from workbench.machines import machine
from workbench.simulator.cache import measured
from workbench.simulator.cache.counters import READ, WRITTEN, hit_rate
from workbench.simulator.cache.hierarchy import of_machine

Facts = Mapping[str, Any]
NAMES = {"gemm": "GEMM", "gemv": "GEMV"}


def counted_text(where: str, told: Facts) -> str:
    """Two tables, of classes and of the deepest GEMMs, both of kernels that were held out; then which bounds hold."""
    counted = measured_kernels(told)
    rows = list(measured.errors(counted, of_machine(machine(told["provenance"]["machine"]))))
    deep = [row for row in rows if row["shape"] == kernel_counters.DEEP]
    axes = {kernel["number"]: kernel["axes"] for kernel in told["kernels"]}
    broken = kernel_counters.broken_bounds(rows)
    parts = [
        f"{where}: {len(counted)} of {len(told['kernels'])} kernels are counted. Those that were held out:",
        _table(("class", "kernels", "DRAM bytes off, median", "p90", "hit rate off, mean"), [
            (NAMES.get(work, work), of["kernels"], f"{of['median_off']:.1%}", f"{of['p90_off']:.1%}",
             "" if of["mean_points_off"] is None else f"{of['mean_points_off']:.1f} points")
            for work, of in measured.by_class(rows).items() if of["kernels"]
        ]),
        *([_table(("8192x8192x28672: tile order, `group_rows`", "GB read", "spread", "estimated", "off"), [
            (f"{axes[row['number']]['tile_order']}, {axes[row['number']]['group_rows']}",
             f"{row['dram_read_bytes'] / 1e9:.2f}", f"{row['spread']:.1%}", f"{row['estimated_bytes'] / 1e9:.2f}",
             f"{row['off']:+.0%}") for row in deep
        ])] if deep else []),
        "All bounds hold." if not broken else " ".join(f"Missed: {sentence}" for sentence in broken),
    ]  # fmt: skip
    return _framed(parts)


def hints_text(told: Facts) -> str:
    """A table of kernels with hints, and what it advises."""
    kernels = [kernel for kernel in told["kernels"] if kernel.get("seconds") and kernel.get("repeats")]
    rows = []
    for operator in kernel_counters.hint_results(kernels):
        of = [kernel for kernel in kernels if kernel["operator"] == operator["operator"]]
        rows += [_hinted(kernel, times) for kernel, times in zip(of, operator["rows"], strict=True)]
    table = _table(("operator", "hint", "µs, middle 80 %", "L2 hits", "MB read", "MB written", "replayed: MB read",
                    "MB written"), rows)  # fmt: skip
    return _framed([table, " ".join(kernel_counters.advice(kernels))])


def _framed(parts: Sequence[str]) -> str:
    """Paragraphs on lines of their own: a table does not begin behind a mark."""
    return "\n\n" + "\n\n".join(parts) + "\n\n"


def _hinted(kernel: Facts, times: Facts) -> tuple[str, ...]:
    words = ", ".join(f"{name} = {value}" for name, value in times["hints"].items()) or "none"
    low, middle, high = (f"{times[name] * 1e6:.1f}" for name in ("low_s", "time_s", "high_s"))
    rates = [rate for each in kernel["repeats"] if (rate := hit_rate(each)) is not None]
    simulated = kernel.get("simulated", {})
    return (
        f"`{kernel['operator']}`", words, f"{middle} ({low} to {high})", f"{median(rates):.1%}" if rates else "",
        *(f"{median(each[name] for each in kernel['repeats']) / 1e6:.1f}" for name in (READ, WRITTEN)),
        *(f"{simulated[name] / 1e6:.1f}" if name in simulated else ""
          for name in ("dram_read_bytes", "dram_write_bytes")),
    )  # fmt: skip


def _table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)
