"""Concurrent schedules on two GPUs in one go: `python -m tests.gpu.concurrent_trial OUT SECONDS [PART ...]`.

Parts: `controls` (residency, priority, shares of SMs, on one GPU), `right` (every legal schedule of each operator, and
calls back to back), `times` (all modes on a few shapes, each in one block with sequential schedules and their parts).
Each result is a line of OUT/concurrent.jsonl as soon as it is there; what fails is one line more and ends nothing else.
OUT/occupancy.json has the measured resident blocks as the chart of them reads it, OUT/controls.json what controls did.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

import torch

from kernels.backends.triton.refusals import refusal
from kernels.fabric import parse
from kernels.operators import problem
from kernels.outcome import Measurement
from kernels.problem import Problem
from kernels.schedule import Refusal
from kernels.schemes import schedule
from kernels.trial import Protocol, Trial
from tests.gpu import controls, gang
from tests.gpu.recording import provenance
from tests.gpu.sittings import MICRO_BATCHES
from tests.gpu.tables import machine_here
from tests.gpu.test_concurrent import CALLS, controlled, sittings, stressed
from tests.gpu.test_decomposed import words

QUICK = Protocol(name="concurrent", warmups=1, repeats=7)
SHARE_OF_SECONDS = {"controls": 0.3, "right": 0.4, "times": 1.0}
"""Of the seconds that are left when a part begins; the last one has all of them."""
TILES = ("128x256x64", "128x128x64", "64x128x64", "64x64x64")
SHAPED = "64x128x64"
"""The tile of which an SM holds two blocks, and with padding one."""
SHAPES = (
    ("gemm_all_reduce", (4096, 8192, 2048)), ("gemm_all_reduce", (8192, 4096, 4096)),
    ("gemm_all_reduce", (16384, 4096, 512)), ("gemm_all_to_all", (8192, 4096, 2048)),
    ("gemm_all_to_all", (16384, 8192, 512)),
)  # fmt: skip
"""Compute-bound and memory-bound ones, with about as much communication as computation: m, n, k of one rank."""
OF_LIBRARY: tuple[dict[str, Any], ...] = (
    {"comm_priority": "normal"}, {}, *({"comm_sms": count} for count in (4, 16, 24, 32)),
)  # fmt: skip
"""Streams alone, with priority, and with a share of the SMs."""
OF_OURS: tuple[dict[str, Any], ...] = (
    {"comm_priority": "normal", "tile": SHAPED}, {"comm_priority": "normal", "tile": SHAPED, "resident_blocks": 1},
    {"tile": SHAPED}, {"tile": SHAPED, "resident_blocks": 1}, {"tile": SHAPED, "comm_sms": 16}, {"comm_sms": 16},
)  # fmt: skip
"""The same with shaping, which is for our kernel alone: streams, shaped, priority, both, and shares."""
MOVED = ("library", "direct", "two_shot", "copy_engine")

Part = Callable[[float, TextIO], None]


def block(of: Problem, collective: str) -> gang.Sitting:
    """Sequential and concurrent schedules with one collective, and the parts that bounds are made of."""
    listed: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
        ("sequential", {}, ("whole", "compute", "communication")),
        ("sequential", {"kernel": "ours"}, ("whole", "compute")),
        ("sequential", {"kernel": "ours", "tile": SHAPED}, ("whole", "compute")),
        *(("concurrent", axes, ("whole",)) for axes in OF_LIBRARY),
        *(("concurrent", {"kernel": "ours", **axes}, ("whole",)) for axes in OF_OURS),
    ]
    moved = {"collective": collective}
    trials = [trial for scheme, axes, parts in listed for trial in _trials(of, scheme, axes | moved, parts)]
    return list({json.dumps(trial, sort_keys=True): trial for trial in trials}.values())


def _trials(of: Problem, scheme: str, axes: dict[str, Any], parts: tuple[str, ...]) -> list[dict[str, Any]]:
    """None where the schedule is refused."""
    machine, fabric = machine_here(), parse("nvlink")
    count = {"micro_batches": MICRO_BATCHES} if scheme == "concurrent" else {}
    try:
        chosen = schedule(of, scheme, axes | count, machine, fabric)
    except Refusal:
        return []
    whole = Trial(problem=of, schedule=chosen, backend="triton", machine=machine.name, fabric=fabric, protocol=QUICK)
    if refusal(whole, shares_heap=True) is not None:
        return []
    return [whole.of_part(part).to_json() for part in parts]


def told(outcome: Any) -> dict[str, Any]:
    """A line of the log."""
    trial = outcome.trial
    line = {"operator": trial.problem.operator, "shape": list(dict(trial.problem.shape).values()), "part": trial.part,
            "schedule": trial.schedule.to_json()}  # fmt: skip
    if not isinstance(outcome, Measurement):
        return line | {"failure": words(outcome)}
    return line | {
        "us": round(outcome.time_s * 1e6, 1), "correct": outcome.correct, "error": outcome.max_relative_error,
        "facts": {name: value for name, value in outcome.facts.items() if name != "nccl"}, "unseen": outcome.unseen,
        "spans": [[span.step, span.stream, round(span.start_s * 1e6, 1), round(span.stop_s * 1e6, 1), len(span.tiles)]
                  for span in outcome.spans],
    }  # fmt: skip


def played(sitting: list[gang.Sitting], seconds: float, out: TextIO, *, quiet: bool) -> None:
    """Writes what each trial came to; the screen has times, or only what is not right."""
    right, bad = 0, 0
    for one in gang.run(sitting, torch.cuda.device_count(), seconds):
        line = {"broken": one} if isinstance(one, str) else told(one[0])
        write(out, line)
        is_right = "us" in line and line["correct"] is not False
        right, bad = right + is_right, bad + (not is_right)
        if not is_right and bad <= 8:
            print("BAD", json.dumps({name: value for name, value in line.items() if name != "spans"})[:700], flush=True)
        elif is_right and not quiet:
            axes = " ".join(f"{name}={value}" for name, value in line["schedule"]["axes"].items())
            unmet = line["facts"].get("controls", {})
            print(f"{line['us']:9.1f} {line['part'][:5]:5} {line['operator']} {line['shape']} "
                  f"{line['schedule']['scheme']} {axes}", *_unmet(unmet), flush=True)  # fmt: skip
    print({"right": right, "bad": bad}, flush=True)


def _unmet(said: Any) -> list[str]:
    """Controls that a graph did not show; of rank 0 where ranks differ."""
    first = said[0] if isinstance(said, list) else said
    return [f"UNMET {sentence}" for sentence in first.get("unmet", ())] + (["UNREAD"] if "unread" in first else [])


def write(out: TextIO, line: dict[str, Any]) -> None:
    print(json.dumps(line), file=out, flush=True)


def of_controls(seconds: float, out: TextIO) -> None:
    """Residency for each tile, then priority and shares of SMs; what one says does not depend on another."""
    asked = [*((tile, ["residency"]) for tile in TILES), (TILES[0], ["priorities"]), (TILES[0], ["shares"]),
             (SHAPED, ["shares"])]  # fmt: skip
    entries = [{"trial": controlled(tile), "names": names} for tile, names in asked]
    answers, rows, every = gang.answered(controls.several, entries, 1, seconds), [], []
    for number, (tile, names) in enumerate(asked):
        for said in answers.get(number, [{"error": "nothing was said"}]):
            every.append({"control": names, "tile": tile, **said})
            write(out, every[-1])
            print(tile, json.dumps(said)[:1500], flush=True)
            rows += [measured for row in said.get("residency", {}).get("rows", ()) for measured in _points(tile, row)]
    facts = provenance(machine_here().name)
    for name, key, some in (("occupancy", "rows", rows), ("controls", "controls", every)):
        text = json.dumps({"provenance": facts, key: some}, indent=1)
        (Path(out.name).parent / f"{name}.json").write_text(text + "\n")


def _points(tile: str, row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A row of the chart for each way by which resident blocks were measured."""
    kept = {name: row[name] for name in ("shared_bytes", "registers", "threads", "padding_bytes")}
    for name, by in (("driver", "occupancy API"), ("stamps", "stamps")):
        if row[name] is not None:
            yield {"machine": machine_here().name, "tile": tile, **kept, "resident_blocks": row[name], "by": by}


def of_right(seconds: float, out: TextIO) -> None:
    """Every legal schedule once, then one of each operator and collective back to back."""
    from kernels.operators import OPERATORS

    until, world = time.monotonic() + seconds, torch.cuda.device_count()
    every = [sitting for operator in OPERATORS for sitting in sittings(operator, world)]
    played(every, 0.6 * seconds, out, quiet=True)
    trials = stressed(world)
    answers = gang.stressed(trials, world, CALLS // 5, max(20.0, until - time.monotonic()))
    for number, trial in enumerate(trials):
        line = {"stress": trial["schedule"], "operator": trial["problem"]["operator"], "answers": answers.get(number)}
        write(out, line)
        said = answers.get(number, [])
        if not said:
            print("not reached:", line["operator"], line["stress"]["axes"]["collective"], flush=True)
        elif len(said) < world or any(answer.get("wrong") != 0 or answer.get("failure") for answer in said):
            print("BAD", json.dumps(line)[:600], flush=True)


def of_times(seconds: float, out: TextIO) -> None:
    """All modes; first NCCL on every shape, then the other collectives."""
    world = torch.cuda.device_count()
    problems = [problem(name, dict(zip("mnk", shape, strict=True)), world=world, dtype="bfloat16")
                for name, shape in SHAPES]  # fmt: skip
    blocks = [made for collective in MOVED for of in problems if (made := block(of, collective))]
    played(blocks, seconds, out, quiet=False)


PARTS: dict[str, Part] = {"controls": of_controls, "right": of_right, "times": of_times}


def main() -> int:
    folder, until = Path(sys.argv[1]), time.monotonic() + float(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "concurrent.jsonl").open("a") as out:
        names = sys.argv[3:] or list(PARTS)
        for name in names:
            begin = time.monotonic()
            share = 1.0 if name == names[-1] else SHARE_OF_SECONDS[name]
            try:
                PARTS[name](share * (until - begin), out)
            except Exception:
                print(f"## {name} FAILED", traceback.format_exc(), flush=True)
                write(out, {"part": name, "failed": traceback.format_exc()[-900:]})
            print(f"## {name}: {time.monotonic() - begin:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
