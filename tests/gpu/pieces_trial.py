"""Pieces on two GPUs in one go: `python -m tests.gpu.pieces_trial OUT SECONDS [STEP ...]`.

Steps: `right` (every legal schedule of each operator once), `stress` (calls back to back), `times` (the shapes of
issue 12, all engines and launches, with baselines and parts): about 100 s. Only where they are named: `left`, one
minute (ranks that are killed or stopped in mid-call), and `lanes`, half a minute (pieces to one peer on two copy
streams in turns, to learn whether one's latency hides behind the other's bytes). Each result is a line of
OUT/pieces.jsonl as soon as it is there, and what fails is a line of the log; nothing that fails ends the rest.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import torch

from kernels import plan
from kernels.backends.base import Seat
from kernels.bench import Bench, Emit
from kernels.fabric import parse
from kernels.operators import problem
from kernels.outcome import Measurement
from kernels.plan import Ints, Kind
from kernels.problem import Problem
from kernels.schedule import Refusal, Schedule
from kernels.schemes import launches, schedule
from kernels.trial import Protocol, Trial
from tests.gpu import gang
from tests.gpu.tables import machine_here
from tests.gpu.test_decomposed import LEAVES, left_behind, sittings, stressed_schedules, words
from tests.kernels.backends.triton.pieces import SPLITS

QUICK = Protocol(name="pieces", warmups=1, repeats=7)
CALLS = 200
RECEIVED = ((4096, 2048, 4096), (8192, 1024, 8192), (8192, 2048, 8192), (8192, 3584, 8192))
SHAPES = {
    "all_gather_gemm": RECEIVED,
    "gemm_reduce_scatter": ((8192, 8192, 3584), (8192, 4096, 2048)),
    "gemm_all_to_all": ((8192, 4096, 1792), (8192, 7168, 2048)),
    "gemm_all_reduce": ((8192, 8192, 3584),),
    "all_to_all_gemm": ((8192, 2048, 8192),),
}
BASELINES: tuple[dict[str, Any], ...] = (
    {"collective": "library"}, {"collective": "copy_engine"}, {"collective": "direct"},
    {"collective": "library", "kernel": "ours"}, {"collective": "overlapped"}, {"collective": "two_shot"},
)  # fmt: skip


def schedules(of: Problem) -> Iterator[dict[str, Any]]:
    """Numbers of pieces by launches, cut by rows and along the contraction; then the other engines."""
    for pieces in (1, 2, 4):
        yield {"pieces": pieces, "engine": "copy_engine", "launches": "per_piece"}
    for pieces in (2, 4, 8):
        yield {"pieces": pieces, "engine": "copy_engine", "launches": "one"}
        if "contraction" in SPLITS[of.operator]:
            yield {"pieces": pieces, "engine": "copy_engine", "launches": "one", "split": "contraction"}
    yield {"pieces": 2, "engine": "sm", "launches": "per_piece", "comm_sms": 16}
    yield {"pieces": 4, "engine": "sm", "launches": "one", "comm_sms": 16}
    yield {"pieces": 2, "engine": "library", "steps": "uniform", "launches": "per_piece"}


def parts_of(baseline: dict[str, Any]) -> tuple[str, ...]:
    """What of a baseline exists and is measured once: torch's own operator has no parts."""
    if baseline["collective"] == "overlapped":
        return ("whole",)
    return ("whole", "compute", "communication") if len(baseline) == 1 else ("whole", "compute")


def is_told_apart(axes: dict[str, Any]) -> bool:
    """Whether its computation and its communication are timed alone, too."""
    return axes["pieces"] == 2 and axes["engine"] == "copy_engine"


def block(of: Problem) -> gang.Sitting:
    """Baselines with their parts, and all schedules of pieces, some with their parts."""
    machine, fabric = machine_here(), parse("nvlink")
    listed: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
        *(("sequential", axes, parts_of(axes)) for axes in BASELINES),
        ("fused", {}, ("whole",)),
        *(("decomposed", axes, ("whole", "compute", "communication") if is_told_apart(axes) else ("whole",))
          for axes in schedules(of)),
    ]  # fmt: skip
    trials = []
    for scheme, axes, parts in listed:
        try:
            chosen = schedule(of, scheme, axes, machine, fabric)
        except Refusal:
            continue
        whole = Trial(problem=of, schedule=chosen, backend="triton", machine=machine.name, fabric=fabric,
                      protocol=QUICK)  # fmt: skip
        trials += [whole.of_part(part).to_json() for part in parts]
    return list({json.dumps(trial, sort_keys=True): trial for trial in trials}.values())


def on_two_lanes(seat: Seat, emit: Emit) -> Bench:
    """The bench of a rank whose copies to one peer take two streams in turns."""
    plain = launches._streams

    def laned(schedule: Schedule, columns: launches.Columns) -> Ints:
        streams, puts = plain(schedule, columns), columns["kind"] == Kind.PUT
        world = int(columns["rank"].max()) + 1
        streams[puts] += world * (plan.nth(columns["rank"][puts] * world + columns["peer"][puts]) % 2)
        return streams

    launches._streams = laned
    return gang.gpu_bench(seat, emit)


def laned_block(of: Problem) -> gang.Sitting:
    """Pieces by copy engines: whole, and their communication alone."""
    plain = [json.loads(json.dumps(trial)) for trial in block(of)]
    return [trial for trial in plain if trial["schedule"]["axes"].get("engine") == "copy_engine"
            and trial["part"] != "compute"]  # fmt: skip


def told(outcome: Any) -> dict[str, Any]:
    """A line of the log."""
    trial = outcome.trial
    axes = " ".join(f"{name}={value}" for name, value in trial.schedule.axes if name not in ("tile", "pattern"))
    line = {"operator": trial.problem.operator, "shape": list(dict(trial.problem.shape).values()), "part": trial.part,
            "schedule": f"{trial.schedule.scheme} {axes}"}  # fmt: skip
    if isinstance(outcome, Measurement):
        line |= {"us": round(outcome.time_s * 1e6, 1), "correct": outcome.correct, "error": outcome.max_relative_error,
                 "spans": [[span.step, span.stream, round(span.start_s * 1e6, 1), round(span.stop_s * 1e6, 1)]
                           for span in outcome.spans],
                 "unseen": outcome.unseen}  # fmt: skip
    else:
        line |= {"failure": words(outcome)}
    return line


def played(
    sitting: list[gang.Sitting], world: int, seconds: float, out: TextIO, *, quiet: bool,
    opened: gang.Opened = gang.gpu_bench,
) -> tuple[int, int]:  # fmt: skip
    """How many came right, and how many did not."""
    right, bad = 0, 0
    for one in gang.run(sitting, world, seconds, opened):
        line = {"broken": one} if isinstance(one, str) else told(one[0])
        print(json.dumps(line), file=out, flush=True)
        is_right = "us" in line and line["correct"] is not False
        right, bad = right + is_right, bad + (not is_right)
        if not is_right and bad <= 6:
            print("BAD", json.dumps({name: value for name, value in line.items() if name != "spans"})[:700], flush=True)
        elif is_right and not quiet:
            print(f"{line['us']:9.1f} {line['part'][:5]:5} {line['operator']} {line['shape']} {line['schedule']}"
                  + (" UNSEEN" if line["unseen"] else ""), flush=True)  # fmt: skip
    return right, bad


def of_right(world: int, until: float, out: TextIO) -> None:
    """Every legal schedule of each operator once."""
    every = [sitting for operator in SPLITS for sitting in sittings(operator, world)]
    every.sort(key=lambda sitting: sitting[-1]["schedule"]["axes"]["launches"] == "one")
    print(played(every, world, min(110.0, until - time.monotonic()), out, quiet=True), flush=True)


def of_stress(world: int, until: float, out: TextIO) -> None:
    """Calls back to back."""
    trials = stressed_schedules(world)
    answers = gang.stressed(trials, world, CALLS, min(60.0, until - time.monotonic()))
    for number, trial in enumerate(trials):
        line = {"stress": trial["schedule"], "operator": trial["problem"]["operator"], "answers": answers.get(number)}
        print(json.dumps(line), file=out, flush=True)
        if len(said := answers.get(number, [])) < world or any(
            answer.get("wrong") != 0 or answer.get("failure") for answer in said
        ):
            print("BAD" if said else "not reached:", json.dumps(line)[:600], flush=True)


def of_left(world: int, until: float, out: TextIO) -> None:
    """Ranks that leave in mid-call."""
    for operator, launched, how in LEAVES:
        said = left_behind(operator, launched, how)
        print(json.dumps({"left": [operator, launched, how], **said}), file=out, flush=True)
        is_told = "waited" in (said["failure"] or "")
        print("told" if is_told else "BAD", operator, launched, how, said, flush=True)


def of_times(world: int, until: float, out: TextIO, *, lanes: bool = False) -> None:
    """The shapes of issue 12 by all engines; *lanes*: copies to one peer on two streams in turns."""
    made, opened = (laned_block, on_two_lanes) if lanes else (block, gang.gpu_bench)
    blocks = [made(problem(name, dict(zip("mnk", shape, strict=True)), world=world, dtype="bfloat16"))
              for name, shapes in SHAPES.items() for shape in shapes]  # fmt: skip
    print(json.dumps({"begins": "lanes" if lanes else "times"}), file=out, flush=True)
    print(played(blocks, world, until - time.monotonic(), out, quiet=False, opened=opened), flush=True)


STEPS: dict[str, Callable[[int, float, TextIO], None]] = {
    "right": of_right, "stress": of_stress, "times": of_times, "left": of_left, "lanes": partial(of_times, lanes=True),
}  # fmt: skip


def main() -> int:
    out_folder, until = Path(sys.argv[1]), time.monotonic() + float(sys.argv[2])
    steps, world = sys.argv[3:] or ["right", "stress", "times"], torch.cuda.device_count()
    out_folder.mkdir(parents=True, exist_ok=True)
    with (out_folder / "pieces.jsonl").open("a") as out:
        for step in steps:
            begin = time.monotonic()
            try:
                STEPS[step](world, until, out)
            except Exception:
                print(f"## {step} FAILED", traceback.format_exc(), flush=True)
            print(f"## {step}: {time.monotonic() - begin:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
