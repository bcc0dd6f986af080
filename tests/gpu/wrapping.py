"""Where numbers of calls wrap: the calls from which a trial goes on, so that each of its counters passes 2^31 and 2^32.

A counter that rises by n in every call passes them after 2^31 / n and 2^32 / n calls, and signed numbers change their
order at the first. `python -m tests.gpu.wrapping` says of every operator and scheme on all GPUs whether results stay
right, a line each. The interpreted ranks of test_interpreted.py go on from the same numbers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from kernels.backends.triton.memory import WRAP, RankEndpoint
from kernels.operators import OPERATORS
from kernels.operators.base import Flow

BEFORE, BEYOND = 3, 1
"""Calls until a counter passes, that one included, and after it."""
CALLS = BEFORE + BEYOND
KINDS_MOST = 6
"""Different amounts by which the counters of one trial rise: 1, world - 1, pushers, tiles of a piece."""

Exchange = Callable[[Sequence[float]], list[list[float]]]


def amounts(context: RankEndpoint) -> list[int]:
    """By how much this rank's counters have risen in a first call, each amount once; the epoch by 1."""
    return sorted({1, *torch.cat([words.flatten() for words in context.rising()]).tolist()} - {0})


def starts(context: RankEndpoint, exchange: Exchange) -> Iterator[int]:
    """After a first call: numbers of calls after which *context* goes on, BEFORE each counter passes 2^31 or 2^32.

    The same on all ranks, which make CALLS calls each time; they meet before the first and after the last of them.
    """
    mine = amounts(context)
    assert len(mine) <= KINDS_MOST, f"counters rise by {len(mine)} amounts: {mine}"
    everyone = exchange([*mine, *[1] * (KINDS_MOST - len(mine))])
    risen = {int(amount) for row in everyone for amount in row}
    first = [(words, words.clone()) for words in context.rising()]
    for calls in sorted({limit // amount - BEFORE for amount in risen for limit in (WRAP // 2, WRAP)}):
        for words, after_first in first:
            words.copy_(after_first)
        context.go_on_after(calls)
        exchange([0.0])
        yield calls


# On GPUs: one trial of every operator and scheme whose signals are ours, and of pieces whose counters rise differently.

GEMM = {"m": 4000, "n": 1496, "k": 520}
"""Sizes that no tile divides."""
LARGE = {"m": 8200, "n": 2312, "k": 520}
"""Of four ranks, too, each owner has a tile for every SM: peers' tiles of two ranks are three waves."""
WHOLE = {"m": 4096, "n": 1536, "k": 512}
"""Sizes that tiles divide, so that tiles of a rank itself are added by bulk stores."""
FEW = {"m": 200, "n": 1496, "k": 520}
"""Few rows: tiles span those of all ranks."""
SHAPES: dict[str, dict[str, Any]] = {
    "gemv_all_reduce": {"n": 4104, "k": 4096, "tokens": 3},
    "embedding_all_to_all": {"tables_per_rank": 5, "rows": 1000, "dim": 64, "batch": 2000, "pooling": 7},
}
FUSED = tuple(OPERATORS)
PUSHED = ({"tile_order": "rotated", "comm_sms": 16}, {"tile_order": "rotated", "comm_sms": 0})
"""Gathers whose counters rise by the programs that only send, and by all of them."""
RELAYED: dict[str, Any] = {"tile_order": "rotated", "store": "tma", "comm_sms": 4}
"""GEMMs whose counters rise by the tiles of a wave, and by the programs that only send."""
PIECES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("all_gather_gemm", {"pieces": 2}), ("gemm_reduce_scatter", {"pieces": 2}),
    ("gemm_all_to_all", {"pieces": 2, "engine": "sm"}), ("all_to_all_gemm", {"pieces": 2, "launches": "one"}),
    ("gemm_all_reduce", {"pieces": 2, "launches": "one"}),
)  # fmt: skip
DIRECT = tuple(name for name, each in OPERATORS.items() if each.flow is not Flow.BROADCAST)
"""Operators whose sequential and concurrent calls our stores may send; the library sends the others'."""


def relaying(world: int) -> list[str]:
    """Operators whose tiles can leave by SMs that only send: of sums, those of two ranks."""
    sending = {name: each for name, each in OPERATORS.items() if each.work == "gemm" and each.flow is not Flow.RECEIVE}
    return [name for name, each in sending.items() if world == 2 or not each.reduces]


def trials(world: int) -> list[dict[str, Any]]:
    """As `Trial.to_json` writes them."""
    from tests.kernels.backends.triton.conftest import gpu_trial  # interpreted ranks, which import this, have no Pytest

    many = {"scheme": "concurrent", "collective": "direct", "micro_batches": 2}
    chosen = [
        *((name, SHAPES.get(name, GEMM), {}) for name in FUSED),
        *(("all_gather_gemm", GEMM, axes) for axes in PUSHED),
        *((name, LARGE, RELAYED) for name in relaying(world)),
        *((name, FEW, {"tile_order": "spanning"}) for name, each in OPERATORS.items() if each.work == "gemm"),
        *((name, WHOLE, {"scheme": "decomposed", **axes}) for name, axes in PIECES),
        *((name, SHAPES.get(name, GEMM), {"scheme": "sequential", "collective": "direct"}) for name in DIRECT),
        *((name, SHAPES.get(name, GEMM), many) for name in DIRECT),
    ]  # fmt: skip
    return [gpu_trial(name, shape, world=world, dtype="bfloat16", **axes).to_json() for name, shape, axes in chosen]


def is_right(answer: dict[str, Any]) -> bool:
    """Whether no value of a rank's calls was wrong, and no wait has expired."""
    return answer.get("wrong") == 0 and answer.get("failure") is None and "error" not in answer


def main() -> int:
    """The number of trials that are not right on all ranks."""
    from tests.gpu import gang
    from tests.gpu.stress import wrapped

    world = min(8, 1 << (torch.cuda.device_count().bit_length() - 1))
    chosen = trials(world)
    answers, wrong = gang.answered(wrapped, chosen, world, 500.0), 0
    for number, entry in enumerate(chosen):
        ranks = answers.get(number, [])
        right = len(ranks) == world and all(map(is_right, ranks))
        wrong += not right
        rises = sorted({amount for answer in ranks for amount in answer.get("rises", [])})
        print("ok    " if right else "FAILED", entry["problem"]["operator"], entry["schedule"], "rises by", rises)
        for answer in [] if right else ranks:
            print("      ", answer)
    print(f"world {world}: {len(chosen) - wrong} of {len(chosen)} right where numbers of calls wrap")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
