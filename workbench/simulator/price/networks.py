"""What a machine says of the network between its ranks, for whoever prices more ranks than a Plan can have."""

from __future__ import annotations

from dataclasses import replace

from kernels.fabric import Fabric
from kernels.machine import NETWORK, Dimension, Machine
from workbench.simulator.price.collectives import call_seconds
from workbench.simulator.price.launches import start_seconds
from workbench.simulator.price.memory import copy_seconds
from workbench.simulator.price.rates import work_seconds
from workbench.simulator.price.routes import routes


def levels(machine: Machine) -> tuple[Dimension, ...]:
    """The levels of *machine*'s network, the innermost first."""
    return machine.dimensions


def memory_rate(machine: Machine) -> float:
    """Bytes per second at which one rank of *machine* reads and writes its own memory."""
    return machine.device.memory_bytes_per_second


def library_seconds(machine: Machine) -> float:
    """Fixed cost of one collective of the library, beside what its messages take."""
    return machine.costs.library_seconds


def put_seconds(machine: Machine) -> float:
    """From the last byte of a slice to the peer's going on, the link's latency not counted: its step and its signal."""
    return machine.costs.step_seconds + machine.costs.signal_seconds


def told_seconds(machine: Machine) -> float:
    """What a rank's own processor takes to tell a peer of one slice, or to begin one sum: a step."""
    return machine.costs.step_seconds


def meeting_seconds(machine: Machine) -> float:
    """By how much a kernel that communicates begins later than one that only computes: its ranks meet."""
    meets, alone = (start_seconds(machine, one_kernel=True, collective=None, communicates=each)
                    for each in (True, False))  # fmt: skip
    return meets - alone


def stores_over(machine: Machine, level: Dimension) -> bool:
    """Whether a rank's own processor stores over *level*: SMs inside a host, and CPU ranks everywhere; else NICs send.

    What a fabric file states is taken for NICs.
    """
    return puts_anywhere(machine) or _is_own(level)


def library_levels(machine: Machine, of: tuple[Dimension, ...]) -> tuple[Dimension, ...]:
    """The levels *of* as the library drives them: a share of a host's own links, and all of others."""
    share = machine.costs.library_share
    return tuple(level if not _is_own(level) else
                 replace(level, bandwidth_bytes_per_second=share * level.bandwidth_bytes_per_second)
                 for level in of)  # fmt: skip


def _is_own(level: Dimension) -> bool:
    """Whether it is a host's own link."""
    return level.link not in ("", NETWORK)


def one_host_seconds(machine: Machine, world: int, name: str, num_bytes: float) -> float:
    """One call of the library among *world* ranks of a host, in which *num_bytes* leave each: as tier B prices it."""
    return float(call_seconds(machine, routes(world, machine, inside_fabric(machine)), name, num_bytes))


def inside_fabric(machine: Machine) -> Fabric:
    """What links the ranks of one host as it is: its own links, or shared memory."""
    return Fabric(kind="nvlink" if machine.backend == "triton" else "shared_memory")


def kernel_seconds(machine: Machine, dtype: str, num_bytes: float) -> float:
    """A kernel that only moves memory: *num_bytes* read and written, and its launch."""
    return float(work_seconds(machine, "copy", dtype, num_bytes)) + machine.costs.launch_seconds


def puts_anywhere(machine: Machine) -> bool:
    """Whether ranks put into the memory of peers on other hosts by themselves: CPU ranks do, over emulated links."""
    return machine.device.kind == "cpu"


def issue_seconds(machine: Machine, num_bytes: float) -> float:
    """What a rank spends on its own processor to send *num_bytes*: CPU ranks copy them, and GPUs have others do it."""
    if not puts_anywhere(machine):
        return 0.0
    return float(copy_seconds(machine, "float32", num_bytes))
