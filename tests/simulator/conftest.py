"""Two machines with round numbers: a CPU rank like a laptop's, and a GPU with copy engines on two levels of links."""

import pytest

from kernels.machine import Costs, Device, Dimension, Machine, Rate


@pytest.fixture(scope="session")
def laptop() -> Machine:
    return Machine(
        name="laptop", title="A laptop with round numbers", backend="cpu",
        device=Device(kind="cpu", name="one thread", slots=1, matrix_flops_per_second={"float32": 1e11},
                      memory_bytes_per_second=1e10, memory_bytes=8e9, l2_bytes=2e6, copy_engines=0,
                      shared_memory_per_slot_bytes=0),
        costs=Costs(launch_seconds=0.0, step_seconds=20e-6, tile_seconds=8e-6, signal_seconds=50e-6,
                    barrier_seconds=0.0, copy_engine_seconds=0.0, library_seconds=300e-6, library_share=0.8,
                    send_blocks=0),
        dimensions=(Dimension(topology="switch", count=8, bandwidth_bytes_per_second=2e9, latency_seconds=1e-5),),
        rates=(Rate("gemm", "float32", 1e6, 4e10, 32), Rate("gemm", "float32", 1e8, 8e10, 32),
               Rate("gemm", "float32", 1e6, 5e10, 128), Rate("gemm", "float32", 1e8, 1e11, 128),
               Rate("gemv", "float32", 1e5, 2e9, 1), Rate("gemv", "float32", 1e7, 4e9, 8),
               Rate("gather", "float32", 1e6, 5e9), Rate("reduce", "float32", 1e6, 1.2e10),
               Rate("copy", "float32", 1e5, 1e10), Rate("copy", "float32", 1e7, 1.5e10)),
        provenance={"device": "assumed: round numbers", "costs": "assumed: round numbers"},
    )  # fmt: skip


@pytest.fixture(scope="session")
def gpu_pod() -> Machine:
    return Machine(
        name="pod", title="Two hosts of four GPUs with round numbers", backend="triton",
        device=Device(kind="gpu", name="GPU", slots=132, matrix_flops_per_second={"bfloat16": 9e14, "float32": 4e14},
                      memory_bytes_per_second=4e12, memory_bytes=1e11, l2_bytes=5e7, copy_engines=3,
                      shared_memory_per_slot_bytes=2e5, resident_blocks={"gemv": 6, "gather": 28}),
        costs=Costs(launch_seconds=3e-6, step_seconds=1e-6, tile_seconds=1e-6, signal_seconds=1e-6,
                    barrier_seconds=5e-6, copy_engine_seconds=4e-6, library_seconds=15e-6, library_share=0.85,
                    send_blocks=16),
        dimensions=(Dimension(topology="fully_connected", count=4, bandwidth_bytes_per_second=4e11,
                              latency_seconds=2e-6),
                    Dimension(topology="switch", count=2, bandwidth_bytes_per_second=5e10, latency_seconds=5e-6,
                              message_seconds=1e-6)),
        provenance={"device": "datasheet: round numbers", "costs": "assumed: round numbers"},
    )  # fmt: skip
