"""The reuse tier against a GPU's counters: kernels that nothing was fitted to keep the bounds that were set before."""

from collections.abc import Sequence

from tests.gpu.caches_measured import measured_kernels
from workbench.analysis import kernel_counters
from workbench.machines import machine
from workbench.simulator.cache import measured
from workbench.simulator.cache.hierarchy import of_machine

MISSED: Sequence[str] = ()
"""Beginnings of the sentences of bounds that are known to be broken: docs/caches.md says why. One that holds again
goes."""


def test_what_was_held_out_is_estimated_within_its_bounds() -> None:
    document = kernel_counters.document()
    assert document is not None
    kernels = measured_kernels(document)
    rows = list(measured.errors(kernels, of_machine(machine(document["provenance"]["machine"]))))
    assert len(rows) >= 60
    broken = kernel_counters.broken_bounds(rows)
    assert [sentence for sentence in broken if not sentence.startswith(tuple(MISSED))] == []
    assert [known for known in MISSED if not any(sentence.startswith(known) for sentence in broken)] == []
    gemms = measured.by_class(rows)["gemm"]
    assert 2 * gemms["beyond_operands"] >= gemms["kernels"], "half of them read operands again"
