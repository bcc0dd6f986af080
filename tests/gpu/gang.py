"""A gang of GPU ranks without Dask: lists of trials in, outcomes out. `python -m tests.gpu.gang TRIALS.json OUT.jsonl`.

TRIALS.json is a list of lists of trials (`Trial.to_json`): each inner list is one sitting of interleaved trials. OUT is
a recording, one line per measured trial with samples and provenance; a table goes to the screen.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import platform
import queue
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from cluster.devices import local_ranks
from kernels.backends.base import Seat
from kernels.backends.triton import own_gpu
from kernels.backends.triton.heap import meeting_place
from kernels.bench import Bench
from kernels.outcome import Gather, Measurement, Outcome, Sample, row, span_values
from kernels.prints import source_print
from kernels.reference import SEED
from kernels.trial import Trial

DEADLINE_S = 20.0
Work = Callable[[Seat, dict[str, Any]], dict[str, Any]]
"""What a rank does with one trial."""
AFTER_END_S = 8.0
"""What is still said after one rank has ended or broken is waited for so long."""


def rank_main(rank: int, world: int, port: int, sittings: list[list[dict[str, Any]]], events: Any) -> None:
    """One rank: all events of all sittings go back to the parent."""
    import faulthandler

    faulthandler.dump_traceback_later(60.0)
    own_gpu.take(rank)
    seat = Seat(rank=rank, world=world, session="gang", shares_heap=True, deadline_s=DEADLINE_S,
                rendezvous=("127.0.0.1", port))  # fmt: skip
    bench = Bench(seat, lambda event: events.put((rank, event)))
    for sitting in sittings:
        try:
            bench.run([Trial.from_json(entry) for entry in sitting])
        except Exception as error:
            ends = isinstance(error, TimeoutError | ConnectionError) or "CUDA error" in str(error)
            events.put((rank, {"kind": "broken", "ends": ends, "message": traceback.format_exc()[-900:]}))
            if ends:
                break
    events.put((rank, {"kind": "end"}))
    events.close()
    events.join_thread()
    os._exit(0)  # process groups may hang when one rank has gone


def run(
    sittings: list[list[dict[str, Any]]], world: int, deadline_s: float
) -> Iterator[tuple[Outcome, list[Sample]] | str]:
    """Outcomes of all trials of *world* ranks as they come with their samples, and what broke."""
    context = multiprocessing.get_context("spawn")
    events, store = context.Queue(), meeting_place()
    ranks = [
        context.Process(target=rank_main, args=(rank, world, store.port, sittings, events)) for rank in range(world)
    ]
    for process in ranks:
        process.start()
    gathers = {t.key: Gather(t) for sitting in sittings for t in map(Trial.from_json, sitting)}
    samples: dict[str, list[Sample]] = {}
    ended, until = 0, time.monotonic() + deadline_s
    while ended < world and time.monotonic() < until:
        try:
            rank, event = events.get(timeout=2.0)
        except queue.Empty:
            if any(process.exitcode not in (None, 0) for process in ranks):
                until = min(until, time.monotonic() + AFTER_END_S)
            continue
        if event["kind"] == "end":
            ended += 1
        elif event["kind"] == "broken":
            until = min(until, time.monotonic() + AFTER_END_S) if event["ends"] else until
            yield f"rank {rank}: {event['message']}"
        else:
            found = gathers[event["trial"]].feed(event)
            if isinstance(found, Sample):
                samples.setdefault(found.key, []).append(found)
            elif found is not None:
                yield found, samples.pop(found.trial.key, [])
    if ended < world:
        yield f"only {ended} of {world} ranks had ended after {deadline_s:.0f} s"
    for process in ranks:
        process.kill()


def work_main(rank: int, world: int, port: int, trials: list[dict[str, Any]], work: Work, answers: Any) -> None:
    """One rank of a gang that does something else than measure: a dictionary per trial goes back."""
    own_gpu.take(rank)
    for number, entry in enumerate(trials):
        seat = Seat(rank=rank, world=world, session=f"work{number}", shares_heap=True, deadline_s=DEADLINE_S,
                    rendezvous=("127.0.0.1", port))  # fmt: skip
        try:
            answers.put((rank, number, work(seat, entry)))
        except Exception:
            answers.put((rank, number, {"error": traceback.format_exc()[-900:]}))
    answers.close()
    answers.join_thread()
    os._exit(0)


Answers = dict[int, list[dict[str, Any]]]
"""By trial, what every rank said."""


def stressed(trials: list[dict[str, Any]], world: int, calls: int, deadline_s: float) -> Answers:
    """By trial, what every rank that came to its end says of *calls* calls."""
    from tests.gpu.stress import stress

    return answered(partial(stress, calls=calls), trials, world, deadline_s)


def answered(work: Work, trials: list[dict[str, Any]], world: int, deadline_s: float) -> Answers:
    """By trial, what *work* answers on every rank that came to its end."""
    context = multiprocessing.get_context("spawn")
    answers, store = context.Queue(), meeting_place()
    ranks = [
        context.Process(target=work_main, args=(rank, world, store.port, trials, work, answers))
        for rank in range(world)
    ]
    for process in ranks:
        process.start()
    found: Answers = {}
    until = time.monotonic() + deadline_s
    while sum(map(len, found.values())) < world * len(trials) and time.monotonic() < until:
        try:
            _, number, answer = answers.get(timeout=2.0)
        except queue.Empty:
            if any(process.exitcode not in (None, 0) for process in ranks):
                until = min(until, time.monotonic() + AFTER_END_S)
            continue
        found.setdefault(number, []).append(answer)
    for process in ranks:
        process.kill()
    return found


def provenance(machine: str) -> dict[str, Any]:
    """What the rows were measured on and with, as a run's own."""
    versions: dict[str, Any] = {"python": platform.python_version()}
    gpus = "none"
    if torch.cuda.is_available():
        gpus = f"{torch.cuda.device_count()} x {torch.cuda.get_device_name(0)}"
        versions |= {"cuda": torch.version.cuda, "nccl": ".".join(map(str, torch.cuda.nccl.version()))}
    names = ("torch", "triton", "numpy")
    return {
        "gpus": gpus,
        "system": platform.platform(),
        "versions": versions | {name: metadata.version(name) for name in names},
        "nccl_settings": {name: value for name, value in sorted(os.environ.items()) if name.startswith("NCCL_")},
        "git_commit": os.environ.get("GIT_COMMIT", "not told"),
        "source_print": source_print("triton"),
        "machine": machine,
        "seed": SEED,
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "launched_by": "tests/gpu/gang.py, one process per GPU, without Dask",
    }


def recorded(outcome: Outcome, samples: list[Sample], facts: dict[str, Any]) -> dict[str, Any]:
    """One line of a recording: workbench/recordings.py reads it. Tiles, most of its bytes, only with KEEP_TILES=1."""
    raw = [[sample.rank, sample.index, sample.seconds, sample.at] for sample in samples]
    spans = outcome.spans if isinstance(outcome, Measurement) else ()
    clock = {"clock_tick_s": spans[0].tick_s} if spans else {}
    kept = spans if os.environ.get("KEEP_TILES") == "1" else [replace(span, tiles=()) for span in spans]
    more = {"source": "recorded", "provenance": facts | clock, "trial": outcome.trial.to_json(), "raw": raw,
            "spans": [span_values(span) for span in kept]}  # fmt: skip
    seen = {"conditions": list(outcome.conditions)} if isinstance(outcome, Measurement) and outcome.conditions else {}
    return row(_with_ranks(outcome)) | more | seen


def _with_ranks(outcome: Outcome) -> Outcome:
    """*outcome* with what ran it: the GPUs and the libraries of this host."""
    ranks = local_ranks(outcome.trial.world, outcome.trial.backend)
    if ranks is None or not isinstance(outcome, Measurement):
        return outcome
    ran = ranks.ran(outcome.trial.backend)
    return replace(
        outcome, source_print=ran.source_print, versions_print=ran.versions_print, hardware=ran.hardware
    )  # fmt: skip


def told(outcome: Outcome) -> str:
    """The line of an outcome, and what slowed its GPUs down."""
    return line(row(outcome)) + (slowed(outcome.conditions) if isinstance(outcome, Measurement) else "")


def slowed(conditions: Sequence[Mapping[str, Any]]) -> str:
    """Why GPUs ran slower than they could, and at which clocks, where they did."""
    blocks = [seen for seen in conditions if seen.get("throttled")]
    if not blocks:
        return ""
    reasons = ", ".join(sorted({reason for seen in blocks for reason in seen["throttled"]}))
    clocks = [seen["sm_clock_mhz"] for seen in conditions if "sm_clock_mhz" in seen] or [0]
    return f" THROTTLED in {len(blocks)} of {len(conditions)} blocks ({reasons}; SM {min(clocks)}..{max(clocks)} MHz)"


def line(found: dict[str, Any]) -> str:
    """A row of the table."""
    shape, axes = "x".join(map(str, found["shape"].values())), " ".join(f"{k}={v}" for k, v in found["axes"].items())
    what = f"w{found['world']} {found['operator']:22} {shape:18} {found['scheme']:10} {found['part'][:5]:5}"
    if not found["time_s"]:
        return f"{what} {found['stage']}: {found['message']} {axes}"
    low, middle, high = (found[key] * 1e6 for key in ("low_s", "time_s", "high_s"))
    return f"{what} {middle:9.2f} us [{low:.1f} {high:.1f}] err {found['max_relative_error'] or 0:.1e} {axes}"


def main() -> int:
    by_world: dict[int, list[list[dict[str, Any]]]] = {}
    for sitting in json.loads(Path(sys.argv[1]).read_text()):
        by_world.setdefault(sitting[0]["problem"]["world"], []).append(sitting)
    with Path(sys.argv[2]).open("w") as out:
        facts: dict[str, Any] = {}
        for world, mine in by_world.items():
            for outcome in run(mine, world, float(sys.argv[3]) if len(sys.argv) > 3 else 240.0):
                if isinstance(outcome, str):
                    print("BROKEN", outcome, flush=True)
                    continue
                measured, samples = outcome
                facts = facts or provenance(measured.trial.machine)
                if isinstance(measured, Measurement):
                    print(json.dumps(recorded(measured, samples, facts)), file=out, flush=True)
                print(told(measured), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
