"""What tests of steps are made from: tasks stated in seconds, and prices on the shipped machine of many hosts."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from kernels.machine import Dimension
from workbench.machines import shipped_machine
from workbench.simulator.scaling.graph import COMPUTE, RankSubset, Task
from workbench.simulator.scaling.network import Network, collective, of_machine
from workbench.simulator.scaling.prices import Prices

MACHINE = shipped_machine("h200_ib")
GEMMS = {"all_gather_gemm": (4096, 1024, 4096), "gemm_reduce_scatter": (4096, 4096, 1024),
         "all_to_all_gemm": (4096, 4096, 2048), "gemm_all_to_all": (4096, 2048, 4096),
         "gemm_all_reduce": (4096, 4096, 1024)}  # fmt: skip
"""By operator rows, columns and contraction of layers that follow each other."""


def prices(world: int, rate: float | None = None) -> Prices:
    """On *world* GPUs, NICs at *rate* bytes per second where it is stated."""
    network = of_machine(MACHINE, world)
    return Prices(MACHINE, network if rate is None else network.with_rates(1, rate))


def switch(count: int, bytes_per_second: float, latency_seconds: float) -> Dimension:
    return Dimension(topology="switch", count=count, bandwidth_bytes_per_second=bytes_per_second,
                     latency_seconds=latency_seconds)  # fmt: skip


@dataclass
class Written:
    """Tasks as a peer's graph has them: one processor, one network."""

    network: Network
    tasks: list[Task] = field(default_factory=list)

    def computes(self, seconds: float, *after: int) -> int:
        return self._add(Task(name="", layer="", passes="", seconds=seconds, compute_s=seconds,
                              holds={COMPUTE: (0.0, seconds)}, after=after))  # fmt: skip

    def moves(self, name: str, num_bytes: float, way: str, *after: int, inside: str | None = None) -> int:
        seconds = collective(self.network, name, num_bytes, way, inside=inside).seconds
        return self._add(Task(name="", layer="", passes="", seconds=seconds, holds={"network": (0.0, seconds)},
                              after=after, group=RankSubset(self.network.world)))  # fmt: skip

    def chain(self, seconds: Sequence[float], *after: int) -> int:
        """One after the other; the last one."""
        last = self.computes(seconds[0], *after)
        for each in seconds[1:]:
            last = self.computes(each, last)
        return last

    def _add(self, task: Task) -> int:
        self.tasks.append(task)
        return len(self.tasks) - 1
