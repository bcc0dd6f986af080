"""Puts between hosts on one GPU: `python -m tests.gpu.gin OUT [FOLDER [WORLD ..]]`, processes that look like hosts.

They reach each other over loopback. FOLDER has NCCL's wheel unpacked (default: where `workbench doctor --fetch-nccl`
puts it). The parent compiles the stand-in for GDRCopy, starts 2 and then 4 ranks, or WORLD, and writes OUT.json.
`python -m tests.gpu.gin shipped OUT.json ..` prints data/checks/gin_one_gpu.json.

Every operator makes ROUNDS calls without a synchronisation in between, on operands of two values in turns, with ranks
that pause; each result is compared on the GPU. Then all-reduces of torch's own NCCL stand between calls, in both
orders, and each operator runs as the bench runs it, alone and beside its baseline. A rank is killed in mid-call, and in
another gang one is stopped: the others must end by the deadline with the sentence, and the next gang must work.
How many of the others' communicators end when they are aborted is recorded, and is no promise.
Times are those of sockets and of time slices of one GPU: they say nothing of a network.
"""

from __future__ import annotations

import gc
import json
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kernels.backends.triton.gin import wheel
from kernels.backends.triton.gin.library import ABORT_SECONDS

WORLDS, ROUNDS, SEED, LIMIT_S = (2, 4), 100, 20261127, 6.0
STACKS_S = 3.0
"""How long a process may write where its threads stand."""
GANG_S = 120.0
"""Deadline of one gang, start and compilation included."""
FAILURES, AGAIN = ("killed", "stopped"), "again"
"""What happens to the last rank of a gang; and the gang after it, of new processes."""
FAILS_AT = 20
"""The call in which the last rank of a gang is killed or stopped."""
PAUSE_MOST_CYCLES = 2_000_000
"""About a millisecond."""
TRIALS: Mapping[str, tuple[dict[str, int], str, dict[str, Any]]] = {
    "embedding_all_to_all": (
        {"tables_per_rank": 8, "rows": 10_000, "dim": 64, "pooling": 8}, "float32",
        {"tile": "8x64x8", "slice_tiles": 64},
    ),
    "gemm_all_to_all": (
        {"n": 512, "k": 256}, "bfloat16", {"tile": "64x128x64", "slice_tiles": 4},
    ),
    "all_gather_gemm": ({"n": 512, "k": 256}, "bfloat16", {"tile": "64x128x64", "slice_tiles": 4}),
}  # fmt: skip
"""Shape without what the world decides, dtype, and axes: a slice has 64 whole rows."""
ROWS_OF_RANK = 256
LIBRARY, BENCH, BLOCK = " by the library, without GIN", " as the bench runs it", " in a block with sequential"
WAYS = 4
"""Each operator runs back to back, and then in these three ways."""
ORDERS, TOGETHER_ROUNDS = ("ours first", "torch's first"), 20
"""Our kernel and an all-reduce of torch's NCCL on one stream, in the same order on all ranks; rounds of each order."""
ADDENDS = 4096
WHAT_TIMES_ARE = "sockets and time slices of one GPU: no statement about a network"


# The parent: compiles the stand-in, starts gangs, and collects what their ranks say.


@dataclass(frozen=True)
class Place:
    """Where everything lies."""

    out: Path
    folder: Path

    @property
    def scratch(self) -> Path:
        return self.out.with_suffix(".ranks")


def standin(place: Place) -> Path:
    """The folder with a libgdrapi.so that copies by copy engines."""
    source, target = Path(__file__).with_name("gdrcopy_standin.c"), place.scratch / "libgdrapi.so"
    command = ["gcc", "-O2", "-msse4.1", "-shared", "-fPIC", "-o", str(target), str(source), "-ldl", "-lpthread"]
    subprocess.run(command, check=True, timeout=120)
    return target.parent


def environment(place: Place, rank: int) -> dict[str, str]:
    """Variables of a rank's process; those that begin with NCCL_ reach torch's NCCL, too."""
    return os.environ | {
        "NCCL_GDRCOPY_ENABLE": "1", "NCCL_GDRCOPY_SYNC_ENABLE": "0", "NCCL_GDRCOPY_FIFO_ENABLE": "0",
        "NCCL_GIN_TYPE": "2", "NCCL_MNNVL_ENABLE": "0", "NCCL_NVLS_ENABLE": "0", "NCCL_CUMEM_ENABLE": "1",
        "NCCL_DEBUG": "WARN", "TRITON_CACHE_DIR": str(place.scratch / f"triton{rank}"), "PYTHONUNBUFFERED": "1",
        "PYTHONFAULTHANDLER": "1",
        "LD_LIBRARY_PATH": f"{place.scratch}:{os.environ.get('LD_LIBRARY_PATH', '')}",
    }  # fmt: skip


def gang(place: Place, world: int, failure: str = "") -> dict[str, Any]:
    """What *world* ranks say; with a *failure* the last one is killed or stopped in mid-call."""
    from kernels.backends.triton.memory import meeting_place

    store, session, begin = meeting_place(), uuid.uuid4().hex[:8], time.monotonic()
    ranks, files = [], []
    for rank in range(world):
        files.append((place.scratch / f"{session}-{rank}.out").open("w+"))
        words = ["rank", str(rank), str(world), session, str(store.port), failure, str(place.folder)]
        ranks.append(subprocess.Popen([sys.executable, "-m", "tests.gpu.gin", *words], stdout=files[-1],
                                      stderr=subprocess.STDOUT, env=environment(place, rank)))  # fmt: skip
    fails = failure in FAILURES
    statuses = [_ended(rank, begin + GANG_S) for rank in (ranks[:-1] if fails else ranks)]
    if fails:
        ranks[-1].kill()  # one that is stopped ends by this
        statuses.append(_ended(ranks[-1], time.monotonic() + 10))
    texts = [file.seek(0) or file.read() for file in files]
    lines = [[json.loads(line) for line in text.splitlines() if line.startswith("{")] for text in texts]
    return {"world": world, "failure": failure, "seconds": round(time.monotonic() - begin, 1), "statuses": statuses,
            "ranks": lines, "last_words": [text[-4000:] for text in texts] if any(statuses) else []}  # fmt: skip


def _ended(process: subprocess.Popen[str] | subprocess.Popen[bytes], by: float) -> int:
    """The exit status of *process*, which is killed at the moment *by*, once it has written where its threads stand."""
    try:
        return process.wait(max(0.1, by - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)  # PYTHONFAULTHANDLER
        with suppress(subprocess.TimeoutExpired):
            return process.wait(STACKS_S)
        process.kill()
        return process.wait(10)


def troubles(report: Mapping[str, Any]) -> list[str]:
    """What is wrong with the report of one gang."""
    world, failure = report["world"], report["failure"] in FAILURES
    name = f"{world} ranks" + (f", {report['failure']}" if report["failure"] else "")
    least = len(TRIALS) * (1 if report["failure"] == AGAIN else WAYS)
    wrong = []
    for rank, lines in enumerate(report["ranks"][: world - 1 if failure else world]):
        ends = [line for line in lines if "operator" in line]
        if len(ends) < least and not failure:
            wrong.append(f"{name}: rank {rank} finished {len(ends)} of {least} operators and ways")
        if failure and not any(" by the network" in str(line.get("sentence")) for line in ends):
            wrong.append(f"{name}: rank {rank} ended without the sentence of a wait")
        if report["statuses"][rank]:
            wrong.append(f"{name}: the process of rank {rank} ended with status {report['statuses'][rank]}, or was "
                         f"killed {GANG_S:g} s after the start")  # fmt: skip
        both = [line for line in lines if "two_nccls" in line]
        if not report["failure"] and len(both) < len(TRIALS) * len(ORDERS):
            wrong.append(f"{name}: rank {rank} finished {len(both)} of {len(TRIALS) * len(ORDERS)} orders of two NCCLs")
        wrong += [f"{name}: rank {rank}, {line['two_nccls']}, {line['order']}: {line['wrong']} wrong values and "
                  f"{line['wrong_sums']} wrong sums, {line['sentence']}"
                  for line in both if line["wrong"] or line["wrong_sums"] or line["sentence"]]  # fmt: skip
        wrong += [f"{name}: rank {rank}, {line['operator']}: {line['wrong']} wrong values, {line['sentence']}"
                  for line in ends if not failure and (line["wrong"] or line["sentence"])]  # fmt: skip
    return wrong


def aborts(report: Mapping[str, Any]) -> dict[str, Any]:
    """How the survivors' communicators ended after a failure: a fact, since their processes end without it."""
    lines = [line for rank in report["ranks"] for line in rank if "abort_s" in line]
    return {
        "world": report["world"],
        "failure": report["failure"],
        "survivors": report["world"] - 1,
        "ended": sum(line["aborted"] for line in lines),
        "seconds": [line["abort_s"] for line in lines],
    }


def main(place: Place, worlds: Sequence[int]) -> int:
    """All gangs of *worlds*, written after each of them; 1 if anything was wrong."""
    place.scratch.mkdir(parents=True, exist_ok=True)
    standin(place)
    reports: list[dict[str, Any]] = []
    for world in worlds:
        for failure in ("", *(each for failing in FAILURES for each in (failing, AGAIN))):
            reports.append(gang(place, world, failure))
            place.out.write_text(json.dumps(document(reports), indent=1))
    wrong = document(reports)["wrong"]
    print("\n".join(wrong) or f"{len(reports)} gangs: everything was right. {WHAT_TIMES_ARE}")
    return int(bool(wrong))


def document(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What *reports* of gangs come to."""
    return {"nccl": wheel.VERSION, "rounds": ROUNDS, "times_are": WHAT_TIMES_ARE,
            "wrong": [sentence for report in reports for sentence in troubles(report)],
            "aborts": [aborts(report) for report in reports if report["failure"] in FAILURES],
            "abort_deadline_s": ABORT_SECONDS, "gangs": list(reports)}  # fmt: skip


def shipped(paths: Sequence[Path]) -> str:
    """Several OUT.json in one, without the last words of ranks, which name folders of that machine."""
    runs = [json.loads(path.read_text()) for path in paths]
    for run in runs:
        run["gangs"] = [{name: value for name, value in gang.items() if name != "last_words"} for gang in run["gangs"]]
    return json.dumps({"runs": runs}, indent=1)


# One rank.


def say(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


class RankCalls:
    """The calls of one operator on one rank, compared on the stream that makes them."""

    def __init__(self, place: Any, name: str) -> None:
        """*place*: a `NetworkGang` with its members; all ranks make the same."""
        import torch

        from kernels.backends.triton.gin.context import network_trial_bytes
        from kernels.backends.triton.memory import shared_bytes
        from kernels.backends.triton.schemes import fused
        from kernels.reference import bound, expected, operands, roundings
        from kernels.schemes import expand

        shape, dtype, axes = TRIALS[name]
        trial = trial_of(name, shape, dtype, axes, place.members.seat.world)
        of, rank, device = trial.problem, place.members.seat.rank, torch.device("cuda", 0)
        plan = expand(of, trial.schedule)
        start = shared_bytes(plan)
        self.context = place.context(place.heap(start + network_trial_bytes(plan)), plan, start, LIMIT_S)
        sets = [operands(of, rank, SEED, "cuda", values) for values in (0, 1)]
        self.calls = fused.calls(self.context, sets, "whole", None).each  # compiled and loaded before anything waits
        self.truths = [expected(of, rank, SEED, "cuda", values) for values in (0, 1)]
        rounded = bound(of, roundings(plan))
        self.limits = [rounded * float(truth.square().mean().sqrt()) for truth in self.truths]
        self.wrong = torch.zeros((), dtype=torch.int64, device=device)
        self.compare(0)
        torch.cuda._sleep(1)
        torch.cuda.synchronize()
        self.wrong.zero_()

    def call(self, number: int, pause: int) -> None:
        """Enqueues call *number* on a poisoned result after *pause* cycles, and its comparison."""
        import torch

        if pause:
            torch.cuda._sleep(pause)
        self.context.result().fill_(float("nan"))
        self.calls[number % 2]()
        self.compare(number % 2)

    def compare(self, values: int) -> None:
        """Counts the values that are wrong; one that is not a number is."""
        truth = self.truths[values]
        error = (self.context.result().double().view(truth.shape) - truth).abs()
        self.wrong += (~(error <= self.limits[values])).sum()


def trial_of(name: str, shape: dict[str, int], dtype: str, axes: dict[str, Any], world: int) -> Any:
    """The trial of an operator whose ranks are on a host each."""
    from tests.kernels.backends.triton.conftest import gpu_trial

    return gpu_trial(name, sized(name, shape, world), world=world, dtype=dtype, transport="gin", **axes)


def baseline_of(name: str, shape: dict[str, int], dtype: str, world: int) -> Any:
    """The same problem by the library: it computes, then torch's NCCL communicates."""
    from tests.kernels.backends.triton.conftest import gpu_trial

    return gpu_trial(name, sized(name, shape, world), world=world, dtype=dtype, scheme="sequential",
                     collective="library")  # fmt: skip


def sized(name: str, shape: Mapping[str, int], world: int) -> dict[str, int]:
    """*shape* with what the world decides: each rank has ROWS_OF_RANK rows."""
    return {**shape, "batch" if name == "embedding_all_to_all" else "m": ROWS_OF_RANK * world}


def run_rank(rank: int, world: int, session: str, port: int, failure: str, folder: Path) -> None:
    """All operators, with ROUNDS calls each; or the first one with a *failure* of the last rank."""
    import torch

    from kernels.backends.base import Seat
    from kernels.backends.triton.gin.gang import NetworkGang
    from kernels.backends.triton.memory import RankProcessGroup

    device, chance = torch.device("cuda", 0), random.Random(rank)
    torch.cuda.set_device(device)
    seat = Seat(rank=rank, world=world, session=session, shares_heap=False, rendezvous=("127.0.0.1", port),
                addresses=tuple(f"host{each}" for each in range(world)), ranks_on_gpu=world)  # fmt: skip
    members = RankProcessGroup(seat, device)
    place: Any = NetworkGang(members, device, folder)
    place.members = members
    properties = place.communicator.properties()
    say(rank=rank, nccl=place.communicator.nccl.version(), torch_nccl=".".join(map(str, torch.cuda.nccl.version())),
        gin_type=properties.ginType, teams=properties.nLsaTeams)  # fmt: skip
    for name in list(TRIALS)[:1] if failure in FAILURES else TRIALS:
        each = RankCalls(place, name)
        members.barrier()
        begin, fails = time.monotonic(), failure in FAILURES and rank == world - 1
        for number in range(ROUNDS):
            if fails and number == FAILS_AT:
                each.call(number, 0)  # its kernel runs, and what it put is on its way
                os.kill(os.getpid(), signal.SIGKILL if failure == "killed" else signal.SIGSTOP)
            each.call(number, chance.randrange(PAUSE_MOST_CYCLES) if chance.random() < 0.2 else 0)
            if number % 10 == 9:
                torch.cuda.synchronize()  # never so many launches that the driver blocks while a kernel spins
                if each.context.failure():
                    break
        torch.cuda.synchronize()
        seconds, sentence = time.monotonic() - begin, each.context.failure()
        say(operator=name, rank=rank, wrong=int(each.wrong) if not sentence else None, sentence=sentence,
            seconds_per_round=round(seconds / ROUNDS, 6), **(_aborted(place) if sentence else {}))  # fmt: skip
        if sentence:
            sys.stdout.flush()
            os._exit(0)  # nothing of this process is used again
        members.barrier()
    if not failure:
        for name in TRIALS:
            two_nccls(place, name)
    place.close()
    if not failure:
        run_backend(replace(seat, session=f"{session}b"), folder)
    os._exit(0)


def two_nccls(place: Any, name: str) -> None:
    """Calls of operator *name* between all-reduces of torch's NCCL, in both orders: never in flight together."""
    import torch

    members, dist = place.members, torch.distributed
    rank, world = members.seat.rank, members.seat.world
    each, addends = RankCalls(place, name), torch.full((ADDENDS,), rank + 1, dtype=torch.int64, device="cuda")
    wrong_sums = torch.zeros((), dtype=torch.int64, device="cuda")

    def reduce(number: int) -> None:
        summed = addends + number
        dist.all_reduce(summed, group=members.nccl)
        wrong_sums.add_((summed != world * (world + 1) // 2 + number * world).sum())

    reduce(0)  # connected and loaded before anything waits
    for order in ORDERS:
        torch.cuda.synchronize()
        members.barrier()
        each.wrong.zero_()
        for number in range(TOGETHER_ROUNDS):
            steps = [lambda number=number: each.call(number, 0), lambda number=number: reduce(number)]
            for step in steps if order == ORDERS[0] else reversed(steps):
                step()
            torch.cuda.synchronize()
        say(two_nccls=name, order=order, rank=rank, wrong=int(each.wrong), wrong_sums=int(wrong_sums),
            sentence=each.context.failure())  # fmt: skip


def _aborted(place: Any) -> dict[str, Any]:
    """Whether the communicator of *place* ended in ABORT_SECONDS, and after how many seconds this rank went on."""
    begin = time.monotonic()
    return {"aborted": place.abort(), "abort_s": round(time.monotonic() - begin, 2)}


def run_backend(seat: Any, folder: Path) -> None:
    """Each operator as the bench runs it: verified, captured behind the barrier of hosts, and timed.

    First `sequential` by torch's NCCL, for which no communicator of ours is made; then the puts, alone, and in a block
    with it.
    """
    import torch

    from kernels.backends.triton.backend import TritonBackend
    from kernels.backends.triton.gin.gang import NetworkGang
    from kernels.fabric import parse

    backend = TritonBackend(seat)
    assert backend._group is not None
    for way in (LIBRARY, BENCH, BLOCK):
        if way == BENCH:
            assert backend._network is None, "the library alone needs no GIN"
            backend._network = NetworkGang(backend._group, torch.device("cuda", 0), folder)
        for name, (shape, dtype, axes) in TRIALS.items():
            trials = [] if way == LIBRARY else [trial_of(name, shape, dtype, axes, seat.world)]
            trials += [] if way == BENCH else [baseline_of(name, shape, dtype, seat.world)]
            trials = [replace(trial, fabric=parse("network")) for trial in trials]
            prepared = backend.prepare(trials)
            wrong = [_wrong(trial, each, seat.rank) for trial, each in zip(trials, prepared, strict=True)]
            seconds = {trial.schedule.scheme: round(each.run(), 6)
                       for trial, each in zip(trials, prepared, strict=True)}  # fmt: skip
            say(operator=name + way, rank=seat.rank, wrong=sum(wrong), sentence=None, seconds=seconds)
    del prepared  # NCCL ends no communicator whose calls a graph still holds
    gc.collect()
    begin = time.monotonic()
    backend.close()
    say(closed=True, rank=seat.rank, seconds=round(time.monotonic() - begin, 2))


def _wrong(trial: Any, prepared: Any, rank: int) -> int:
    """Number of results of *prepared* that are wrong: of its first call, and of its graphs."""
    from kernels.reference import expected, verdict

    count = 0
    for values in prepared.rehearse():
        truth = expected(trial.problem, rank, prepared.seed, "cuda", values)
        judged = verdict(trial.problem, prepared.result().view(truth.shape), truth, prepared.roundings)
        count += not judged.error <= judged.bound  # one that is no number is wrong, too
    return count


if __name__ == "__main__":
    if sys.argv[1] == "rank":
        run_rank(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], int(sys.argv[5]), sys.argv[6], Path(sys.argv[7]))
    elif sys.argv[1] == "shipped":
        print(shipped(list(map(Path, sys.argv[2:]))))
    else:
        chosen = Path(sys.argv[2]) if len(sys.argv) > 2 else wheel.FOLDER
        asked_worlds = tuple(map(int, sys.argv[3:])) or WORLDS
        sys.exit(main(Place(Path(sys.argv[1]).resolve().with_suffix(".json"), chosen.resolve()), asked_worlds))
