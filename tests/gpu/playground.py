"""The tutorial's operator on all GPUs: right, right call after call, and timed beside torch.

`python -m tests.gpu.playground OUT.json`: every run has a deadline. OUT.json holds what the table on the screen shows.
Two ranks share a single GPU: nothing is timed then, and the file says why.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import rms_norm

from kernels.backends.triton.playground import Rank, RankGang, ranks
from tests.gpu import recording
from tests.gpu.gang import fewer, needs_links
from tests.gpu.tables import machine_here
from tests.kernels.backends.triton import tutorial

CALLS = 200
ODD = (257, 16, 128)
"""Tokens of each rank, heads, dim: the tile's 16 rows do not divide 257."""
TIMED = (8192, 32, 128)
ERROR_MOST = 4 * torch.finfo(torch.bfloat16).eps
"""Half a unit of the last place of values from 4 to 8, twice."""
NOISE_MOST_CYCLES = 400_000
"""About 0.2 ms: several calls of a peer."""
DEADLINE_S = 60.0
PROTOCOL = "rank.seconds: 20 calls in a graph that all ranks begin together, 9 replays, the slowest rank's median"


def back_to_back(rank: Rank, shape: tuple[int, int, int], calls: int) -> int:
    """Wrong values in *calls* calls without synchronisation: slow ranks and noise between, operands of the other sign.

    Each result is compared by the next kernel of the stream, then poisoned: a peer that comes too early would show.
    """
    operator: Any = import_module("norm_all_to_all")
    own = slice(rank.rank * shape[1] // rank.world, (rank.rank + 1) * shape[1] // rank.world)
    every = [torch.randn(shape, generator=torch.Generator().manual_seed(source)) for source in range(rank.world)]
    every = [each.to(rank.device, torch.bfloat16) for each in every]
    weight = torch.linspace(0.5, 1.5, shape[2]).to(every[0])
    norms = [rms_norm(each.double(), shape[2:], weight.double(), operator.EPSILON) for each in every]
    truth, x = torch.cat([each[:, own] for each in norms]), every[rank.rank].clone()
    call, out = operator.fused(rank, x, weight, "interleaved")
    chance, wrong = random.Random(rank.rank), torch.zeros((), dtype=torch.int64, device=rank.device)
    noise = torch.randn(1024, 1024, device=rank.device)
    for number in range(calls):
        if chance.random() < 0.1:
            torch.cuda._sleep(chance.randrange(NOISE_MOST_CYCLES))
        call()
        if chance.random() < 0.1:
            noise = noise @ noise * 1e-3
        right = (out.double() - (-1) ** number * truth).abs() <= ERROR_MOST
        wrong += (~right).sum()
        out.fill_(float("nan"))
        x.neg_()
    rank.check()
    return int(wrong)


def state(rank: Rank) -> dict[str, Any]:
    """Of a rank's GPU and its NCCL."""
    return recording.state(rank.device)


@contextmanager
def gang() -> Iterator[RankGang]:
    """One rank per GPU, or two that share the only one, which can import the files of the tutorial."""
    world = max(2, min(8, torch.cuda.device_count()))
    asked = ranks(world, interpreted=False, heap_bytes=1 << 29, deadline_s=DEADLINE_S)
    with tempfile.TemporaryDirectory() as folder, tutorial.importable(Path(folder)), asked as made:
        yield made


def main() -> int:
    from tests.gpu import playground  # ranks import what they run by its name

    with gang() as made:
        operator, message, total = map(import_module, ("norm_all_to_all", "one_message", "sum_of_all"))
        orders, timing = import_module("orders").ORDERS, import_module("timing")
        found = {
            "world": made.world,
            "first steps": [made.run(message.send), made.run(total.add)],
            "largest error": {order: max(made.run(operator.check, ODD, 20, torch.bfloat16, order)) for order in orders},
            "wrong values back to back": made.run(playground.back_to_back, ODD, fewer(CALLS, made.world)),
            **({"not timed": why} if (why := needs_links(made.world)) else
               {"seconds": made.run(timing.compared, TIMED, orders)[0]}),
            "ranks": made.run(playground.state),
        }  # fmt: skip
    facts = {"provenance": recording.provenance(machine_here().name), "protocol": PROTOCOL,
             "shape": dict(zip(("tokens", "heads", "dim"), TIMED, strict=True)), "dtype": "bfloat16"}  # fmt: skip
    recording.write(Path(sys.argv[1]), facts | found)
    for name, value in found.items():
        print(f"{name:26} {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
