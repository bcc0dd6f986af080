"""What stamps cost, and how finely the clock ticks: `python -m tests.gpu.stamps OUT.json [WORLD]`, a minute or two.

Of each operator one problem: its fused kernel with and without stamps in turns, A B B A, in one sitting. Then the call
that a measurement's timeline is made of: how long taking it takes, and what it shows.
"""

from __future__ import annotations

import sys
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

import torch

from kernels.backends.base import MissingSpans, Seat
from kernels.backends.triton import timeline, timing
from kernels.backends.triton.backend import TritonBackend
from kernels.backends.triton.schemes import runner
from kernels.backends.triton.timing import GraphReplay, turns
from kernels.operators import problem
from kernels.trial import Trial
from tests.gpu import gang, recording, tables

REPEATS = 30
PROTOCOL = f"{REPEATS} samples with and without stamps in turns, A B B A, each one replay of a graph of calls"
MOST_PERCENT = 3.0
DEADLINE_S = 240.0
BROKEN_S = 6.0
"""How long ranks wait for each other where one fails on purpose."""
SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "gemv_all_reduce": ("bfloat16", {"n": 8192, "k": 8192, "tokens": 1}),
    "embedding_all_to_all": (
        "float32",
        {"tables_per_rank": 16, "rows": 100_000, "dim": 128, "batch": 4096, "pooling": 16},
    ),
    "gemm_all_to_all": ("bfloat16", {"m": 8192, "n": 4096, "k": 1792}),
    "all_gather_gemm": ("bfloat16", {"m": 8192, "n": 7168, "k": 8192}),
    "gemm_reduce_scatter": ("bfloat16", {"m": 8192, "n": 8192, "k": 7168}),
}


def compared(seat: Seat, entry: dict[str, Any]) -> dict[str, Any]:
    """Samples of one rank without and with stamps, and its clock."""
    backend, trial = TritonBackend(seat), Trial.from_json(entry)
    (prepared,) = backend.prepare([trial])
    prepared.run()
    (typical_s,) = map(max, zip(*backend.exchange([prepared.run()]), strict=True))
    watched = runner(trial).watched
    assert watched is not None
    forms = {"off": prepared.calls.each, "on": watched(prepared.context, prepared.calls).each}
    numbers = turns(trial.protocol, len(forms["off"]), typical_s)[0]
    replays = {}
    for name, each in forms.items():
        backend.barrier()
        GraphReplay(prepared.context, each[:1], backend.stream, captured=False).seconds()
        calls = [each[number] for number in numbers]
        replays[name] = GraphReplay(prepared.context, calls, backend.stream, captured=True)
    samples: dict[str, list[float]] = {name: [] for name in forms}
    for index in range(2 + REPEATS):
        for name in list(forms)[:: 1 if index % 2 else -1]:
            backend.barrier()
            seconds = replays[name].seconds()
            samples[name] += [seconds] if index >= 2 else []
    state, begin = recording.state(backend.device), time.monotonic()
    spans = prepared.spans(0)
    found = timing.measured(torch.device(backend.device))
    return {
        "rank": seat.rank, "samples": samples, "failure": prepared.context.failure(),
        "tick_s": found.tick_s, "read_s": found.read_s, "timeline_took_s": time.monotonic() - begin,
        "spans": len(spans), "tiles": sum(len(span.tiles) for span in spans),
        "seen_s": max((span.stop_s for span in spans), default=0.0), **state,
    }  # fmt: skip


def broken(seat: Seat, entry: dict[str, Any]) -> dict[str, Any]:
    """Rank 0 fails when it is to be seen, and the others wait for it: what every rank says, and after how long.

    Where they wait in a kernel of ours, all answer. In a call of NCCL they wait until they are ended (`watch._on_all`),
    and only rank 0 answers: when its peers have died, or after the group's timeout.
    """
    backend, trial = TritonBackend(replace(seat, deadline_s=BROKEN_S)), Trial.from_json(entry)
    (prepared,) = backend.prepare([trial])
    timed = [prepared.run() for _ in range(2)]
    begin = time.monotonic()
    said = ""
    with mock.patch.object(timeline, "_moments", fails) if seat.rank == 0 else nullcontext():
        try:
            prepared.spans(0)
        except MissingSpans as unseen:
            said = str(unseen)
    return {
        "rank": seat.rank,
        "timed": all(seconds > 0 for seconds in timed),
        "said": said,
        "after_s": time.monotonic() - begin,
    }


def fails(*_: Any) -> list[Any]:
    raise MemoryError("no room for stamps")


def row(operator: str, answers: list[dict[str, Any]]) -> dict[str, Any]:
    """The slowest rank's medians, and what stamps add to them."""
    off, on = (max(median(answer["samples"][name]) for answer in answers) for name in ("off", "on"))
    first = answers[0]
    return {
        "operator": operator, "shape": SHAPES[operator][1],
        "off_s": off, "on_s": on, "slower_percent": 100 * (on / off - 1),
        "tick_s": max(answer["tick_s"] for answer in answers), "read_s": first["read_s"],
        "timeline_took_s": max(answer["timeline_took_s"] for answer in answers),
        "seen_s": max(answer["seen_s"] for answer in answers),
        "spans": sum(answer["spans"] for answer in answers), "tiles": sum(answer["tiles"] for answer in answers),
        "failures": [answer["failure"] for answer in answers if answer["failure"]], "ranks": answers,
    }  # fmt: skip


def line(found: dict[str, Any]) -> str:
    """A row of the table."""
    verdict = "" if found["slower_percent"] < MOST_PERCENT else f"  more than {MOST_PERCENT:g} %"
    return (
        f"{found['operator']:22} off {found['off_s'] * 1e6:9.2f} us  on {found['on_s'] * 1e6:9.2f} us  "
        f"{found['slower_percent']:+6.2f} %  seen {found['seen_s'] * 1e6:9.2f} us, {found['spans']} spans, "
        f"{found['tiles']} tiles, taken in {found['timeline_took_s']:.1f} s{verdict} {' '.join(found['failures'])}"
    )


def main() -> int:
    out = Path(sys.argv[1])
    world = int(sys.argv[2]) if len(sys.argv) > 2 else torch.cuda.device_count()
    machine = tables.machine_here()
    asked = [problem(name, shape, world=world, dtype=dtype) for name, (dtype, shape) in SHAPES.items()]
    trials = tables.trials([(one, "fused", {}) for one in asked], machine)
    answers = gang.answered(compared, trials, world, DEADLINE_S)
    complete = {
        number: found for number, found in answers.items()
        if len(found) == world and not any("error" in answer for answer in found)
    }  # fmt: skip
    rows = [row(list(SHAPES)[number], found) for number, found in sorted(complete.items())]
    facts = {"provenance": recording.provenance(machine.name), "world": world, "protocol": PROTOCOL}
    recording.write(out, facts | {"rows": rows})
    for found in rows:
        print(line(found), flush=True)
    if rows:
        print(f"clock: ticks every {rows[0]['tick_s'] * 1e9:.0f} ns, reading it takes {rows[0]['read_s'] * 1e9:.1f} ns")
    for name in [name for number, name in enumerate(SHAPES) if number not in complete]:
        told = answers.get(list(SHAPES).index(name), [])
        print(f"{name}: {len(told)} of {world} ranks answered. {' '.join(answer.get('error', '') for answer in told)}")
    return 0 if len(rows) == len(SHAPES) else 1


if __name__ == "__main__":
    sys.exit(main())
