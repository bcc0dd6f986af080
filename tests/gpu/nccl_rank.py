"""One rank of one NCCL setting: every collective at every size, verified once and timed in turns, as rows."""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed

from kernels.backends.triton.nccl import OF_RANKS
from tests.gpu.nccl_settings import DEFAULT, GROUPED, Setting, calls_of

Call = Callable[[int], None]

SAMPLES = 7
SETS = 3
"""Buffers that calls take in turns: more than the L2 at sizes where that matters."""
LIMIT_S = 8
LINES_MOST = 40
AHEAD_CYCLES = 400_000
"""About 0.2 ms, in which the host has said all that is to follow."""
# multicast stays off on these machines; a log tells what NCCL chose
ALWAYS = OF_RANKS | {"NCCL_NVLS_ENABLE": "0", "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "REG,TUNING"}
OWN_WORDS = re.compile(r"symmetric|window|\bCE\b|copy engine", re.IGNORECASE)
"""What NCCL's log says where windows are used."""

dist: Any = torch.distributed


class Buffers:
    """Inputs of small whole numbers, whose sums are exact in bfloat16, and outputs, each *num_bytes*."""

    def __init__(self, rank: int, world: int, num_bytes: int, group: Any) -> None:
        self.rank, self.world, self.device = rank, world, torch.device("cuda", rank)
        self.count = num_bytes // 2
        pool = nullcontext() if group is None else torch.cuda.use_mem_pool(group[1])
        with pool:
            self.inputs = [self._empty() for _ in range(SETS)]
            self.outputs = [self._empty() for _ in range(SETS)]
        if group is not None:
            group[0].register_mem_pool(group[1], symm=True)
        for number, values in enumerate(self.inputs):
            values.copy_(self.values(rank, number))

    def _empty(self) -> torch.Tensor:
        return torch.empty(self.count, dtype=torch.bfloat16, device=self.device)

    def values(self, rank: int, number: int) -> torch.Tensor:
        """What *rank* has in input *number*: every rank can say so of all."""
        generator = torch.Generator(self.device).manual_seed(100 * number + rank)
        made = torch.randint(-8, 9, (self.count,), dtype=torch.int8, generator=generator, device=self.device)
        return made.to(torch.bfloat16)

    def call(self, collective: str, num_bytes: int) -> Call:
        """One call on buffers *number*; all-reduce works in the output, which holds the input before."""
        n, part = num_bytes // 2, num_bytes // 2 // self.world
        ins, outs = self.inputs, self.outputs
        match collective:
            case "all_reduce":
                return lambda i: dist.all_reduce(outs[i][:n])
            case "all_gather":
                return lambda i: dist.all_gather_into_tensor(outs[i][:n], ins[i][:part])
            case "reduce_scatter":
                return lambda i: dist.reduce_scatter_tensor(outs[i][:part], ins[i][:n])
            case "all_to_all":
                return lambda i: dist.all_to_all_single(outs[i][:n], ins[i][:n])
        return lambda i: dist.all_to_all(list(outs[i][:n].chunk(self.world)), list(ins[i][:n].chunk(self.world)))

    def refill(self, num_bytes: int) -> None:
        """All-reduces add up what they left: they begin anew."""
        for mine, result in zip(self.inputs, self.outputs, strict=True):
            result[: num_bytes // 2].copy_(mine[: num_bytes // 2])

    def right(self, collective: str, num_bytes: int) -> bool:
        """Whether one call on buffers 0 gives what all ranks' inputs say."""
        n, part = num_bytes // 2, num_bytes // 2 // self.world
        everyone = [self.values(rank, 0)[:n] for rank in range(self.world)]
        self.outputs[0].fill_(float("nan"))
        mine = slice(self.rank * part, (self.rank + 1) * part)
        if collective == "all_reduce":
            self.outputs[0][:n].copy_(self.inputs[0][:n])
        self.call(collective, num_bytes)(0)
        expected = {
            "all_reduce": lambda: sum(everyone), "reduce_scatter": lambda: sum(values[mine] for values in everyone),
            "all_gather": lambda: torch.cat([values[:part] for values in everyone]),
        }.get(collective, lambda: torch.cat([values[mine] for values in everyone]))()  # fmt: skip
        return torch.equal(self.outputs[0][: len(expected)], expected)


def rank_main(setting: Setting, rank: int, world: int, sizes: list[tuple[str, int]], folder: str, told: Any) -> None:
    """A process: its rows go into *told*, last how it ended; then it is gone, whatever NCCL still does."""
    os.environ.update(ALWAYS | setting.environment | {"NCCL_DEBUG_FILE": f"{folder}/log.{rank}"})
    try:
        for row in measured(setting, rank, world, sizes, folder):
            told.put({"setting": setting.name, "rank": rank} | row)
        told.put({"setting": setting.name, "rank": rank, "end": "", "log": log(Path(folder) / f"log.{rank}")})
    except Exception:
        end = traceback.format_exc()[-500:]
        told.put({"setting": setting.name, "rank": rank, "end": end, "log": log(Path(folder) / f"log.{rank}")})
    told.close()
    told.join_thread()
    os._exit(0)


def measured(setting: Setting, rank: int, world: int, sizes: list[tuple[str, int]], folder: str) -> Any:
    """Rows: eager ones first where graphs may hang, then those of graphs."""
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", init_method=f"file://{folder}/store", rank=rank, world_size=world,
                            device_id=device, timeout=timedelta(seconds=LIMIT_S))  # fmt: skip
    group = None
    if setting.windows:
        backend = dist.distributed_c10d._get_default_group()._get_backend(device)
        group = backend, torch.cuda.MemPool(backend.mem_allocator)
    wanted = [each for each in sizes if each[0] in setting.collectives]
    buffers = Buffers(rank, world, max(size for _, size in wanted), group)
    if setting.name == DEFAULT:
        wanted += [("grouped", size) for name, size in wanted if name == "all_to_all"]
    for name in dict.fromkeys(name for name, _ in wanted):
        if not buffers.right(name, max(size for other, size in wanted if other == name)):
            raise ValueError(f"{name} gave wrong values")
    meeting = torch.zeros(1, device=device)
    for captured in (False, True) if setting.windows else (True,):
        plays = {each: play(buffers, *each, captured=captured) for each in wanted}
        seconds: dict[tuple[str, int], list[float]] = {each: [] for each in wanted}
        for index in range(SAMPLES + 1):  # the first warms up
            for each in wanted if index % 2 else reversed(wanted):
                if each[0] == "all_reduce":
                    buffers.refill(each[1])
                seconds[each].append(timed(plays[each], meeting) / calls_of(each[1]))
        for (name, size), all_of in seconds.items():
            yield row(name, size, [one * 1e6 for one in all_of[1:]], captured)


def play(buffers: Buffers, name: str, size: int, *, captured: bool) -> Callable[[], None]:
    """All calls of one sample."""
    one = buffers.call(name, size)

    def calls() -> None:
        for number in range(calls_of(size)):
            one(number % SETS)

    one(0)  # makes its connections
    if not captured:
        return calls
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        calls()
    return graph.replay


def timed(calls: Callable[[], None], meeting: torch.Tensor) -> float:
    """Seconds of one sample, all ranks having met on the stream before."""
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    torch.cuda._sleep(AHEAD_CYCLES)
    dist.all_reduce(meeting)
    start.record()
    calls()
    stop.record()
    stop.synchronize()
    return float(start.elapsed_time(stop) / 1e3)


def row(name: str, size: int, samples: list[float], captured: bool) -> dict[str, Any]:
    """One rank's row, microseconds; grouped calls are all-to-alls of another setting."""
    named = {"collective": "all_to_all", "setting": GROUPED} if name == "grouped" else {"collective": name}
    ordered = sorted(samples)
    return named | {
        "bytes": size, "median_us": median(ordered), "low_us": ordered[0], "high_us": ordered[-1],
        "calls": calls_of(size), "captured": captured,
    }  # fmt: skip


def log(path: Path) -> list[str]:
    """What NCCL said that it chose, each once, without who said it; of windows first."""
    text = path.read_text(errors="replace") if path.exists() else ""
    said = dict.fromkeys(re.sub(r"^.*?NCCL INFO ", "", each).strip() for each in text.splitlines())
    ordered = sorted(filter(None, said), key=lambda each: not OWN_WORDS.search(each))
    return ordered[:LINES_MOST]
