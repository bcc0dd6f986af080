"""Puts between hosts on one machine: `python -m tests.gpu.gin OUT [FOLDER [WORLD ..]]`, processes that look like hosts.

They reach each other over loopback. FOLDER has NCCL's wheel unpacked (default: where `workbench doctor --fetch-nccl`
puts it). The parent compiles the stand-in for GDRCopy, starts 2 and then 4 ranks, or WORLD, and writes OUT.json.
Each rank has a GPU of its own and sees no other one. With one GPU all share it; with several, worlds that fit run.
`python -m tests.gpu.gin shipped OUT.json ..` prints data/checks/gin_one_gpu.json, and data/checks/gin_two_gpus.json.

Every operator makes ROUNDS calls without a synchronisation in between, on operands of two values in turns, with ranks
that pause; each result is compared on the GPU. Then all-reduces of torch's own NCCL stand between calls, in both
orders, and each operator runs as the bench runs it, alone and beside its baseline. A rank is killed in mid-call, and in
another gang one is stopped: the others must end by the deadline with the sentence, and the next gang must work.
How many of the others' communicators end when they are aborted is recorded, and is no promise.
On GPUs of their own the same operators run once more as ranks of one host, by peer memory, for comparison.
Times are those of sockets, and on one GPU of its time slices (`what_times_are`): they say nothing of a network.
"""

from __future__ import annotations

import gc
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from kernels.backends.base import Seat
from kernels.backends.triton import nccl, playground
from kernels.backends.triton.gin import wheel
from kernels.backends.triton.gin.library import ABORT_SECONDS

WORLDS, ROUNDS, SEED, LIMIT_S = (2, 4), 100, 20261127, 6.0
STACKS_S = 3.0
"""How long a process may write where its threads stand."""
GANG_S = 120.0
"""Deadline of one gang, start and compilation included."""
FAILURES, AGAIN = ("killed", "stopped"), "again"
"""What happens to the last rank of a gang; and the gang after it, of new processes."""
WAITED = re.compile(r"^Rank \d+ waited .* (by|for) the network")
"""The sentence of a wait: for what a peer puts, or for the network to take a put, whichever the failure meets first."""
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
PEER = " by peer memory, in a block with sequential"
"""The way of the gang whose ranks are on one host."""
SAMPLES = 40
"""Of each timed trial, in turns with the others of its block."""
COLUMNS = {
    "gin": (BENCH, "fused"), "torch_nccl": (LIBRARY, "sequential"),
    "gin_in_block": (BLOCK, "fused"), "torch_nccl_in_block": (BLOCK, "sequential"),
    "peer": (PEER, "fused"), "torch_nccl_by_peer": (PEER, "sequential"),
}  # fmt: skip
"""Of the table of times: way and scheme. torch's NCCL goes over sockets, too, except beside `peer`."""
ORDERS, TOGETHER_ROUNDS = ("ours first", "torch's first"), 20
"""Our kernel and an all-reduce of torch's NCCL on one stream, in the same order on all ranks; rounds of each order."""
ADDENDS = 4096
WHAT_TIMES_ARE = "sockets and time slices of one GPU: no statement about a network"
"""Where all ranks share a GPU."""


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


def worlds() -> tuple[int, ...]:
    """Those of WORLDS whose ranks have a GPU each; all of them on one GPU."""
    return tuple(world for world in WORLDS if gpus_of(world) == world) or WORLDS


def gpus_of(world: int) -> int:
    """How many GPUs *world* ranks have here: one each, or the first one for all."""
    import torch

    return world if torch.cuda.device_count() >= world else 1


def what_times_are(gpus: int, one_host: bool) -> str:
    """What the times of ranks on *gpus* GPUs are; *one_host*: as ranks of one host."""
    if gpus == 1:
        return WHAT_TIMES_ARE
    if one_host:
        return f"peer memory of {gpus} GPUs of one host"
    return (
        f"sockets over loopback between {gpus} GPUs of one host, through host memory by a stand-in for GDRCopy: no "
        "network"
    )


def of_own_gpu(seat: Seat) -> dict[str, str]:
    """Variables of a rank that has a GPU: between hosts it sees no other one, so that nothing can go by NVLink."""
    visible = playground.environment(seat.rank, seat.world)
    if seat.shares_heap:
        return visible | {**nccl.LOOPBACK, "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NCCL_GDRCOPY_ENABLE": "0"}
    return {
        **nccl.LOOPBACK,
        playground.VISIBLE: visible[playground.VISIBLE].partition(",")[0],
        nccl.HOST_NAME: seat.addresses[seat.rank],
    }


def gang(place: Place, world: int, failure: str = "", *, one_host: bool = False) -> dict[str, Any]:
    """What *world* ranks say; with a *failure* the last one is killed or stopped in mid-call.

    *one_host*: they are ranks of one host, which reach each other's memory.
    """
    from kernels.backends.triton.memory import meeting_place

    store, session, begin, gpus = meeting_place(), uuid.uuid4().hex[:8], time.monotonic(), gpus_of(world)
    ranks, files = [], []
    for rank in range(world):
        seat = Seat(rank=rank, world=world, session=session, shares_heap=one_host, rendezvous=("127.0.0.1", store.port),
                    addresses=tuple(f"host{each}" for each in range(world)), ranks_on_gpu=world // gpus)  # fmt: skip
        files.append((place.scratch / f"{session}-{rank}.out").open("w+"))
        words = ["rank", json.dumps(asdict(seat)), failure, str(place.folder)]
        variables = environment(place, rank) | (of_own_gpu(seat) if gpus > 1 else {})
        ranks.append(subprocess.Popen([sys.executable, "-m", "tests.gpu.gin", *words], stdout=files[-1],
                                      stderr=subprocess.STDOUT, env=variables))  # fmt: skip
    fails = failure in FAILURES
    statuses = [_ended(rank, begin + GANG_S) for rank in (ranks[:-1] if fails else ranks)]
    if fails:
        ranks[-1].kill()  # one that is stopped ends by this
        statuses.append(_ended(ranks[-1], time.monotonic() + 10))
    texts = [file.seek(0) or file.read() for file in files]
    lines = [[json.loads(line) for line in text.splitlines() if line.startswith("{")] for text in texts]
    return {"world": world, "gpus": gpus, "one_host": one_host, "times_are": what_times_are(gpus, one_host),
            "failure": failure, "seconds": round(time.monotonic() - begin, 1), "statuses": statuses,
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
    name = f"{world} ranks" + (f", {report['failure']}" if report["failure"] else "") + PEER * report["one_host"]
    least = len(TRIALS) * (1 if report["failure"] == AGAIN or report["one_host"] else WAYS)
    wrong = []
    for rank, lines in enumerate(report["ranks"][: world - 1 if failure else world]):
        ends = [line for line in lines if "operator" in line]
        if len(ends) < least and not failure:
            wrong.append(f"{name}: rank {rank} finished {len(ends)} of {least} operators and ways")
        if failure and not any(WAITED.search(str(line.get("sentence"))) for line in ends):
            wrong.append(f"{name}: rank {rank} ended without the sentence of a wait")
        if report["statuses"][rank]:
            wrong.append(f"{name}: the process of rank {rank} ended with status {report['statuses'][rank]}, or was "
                         f"killed {GANG_S:g} s after the start")  # fmt: skip
        both = [line for line in lines if "two_nccls" in line]
        if not (report["failure"] or report["one_host"]) and len(both) < len(TRIALS) * len(ORDERS):
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


def times(reports: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Microseconds of a call by world and operator, in COLUMNS: the slowest rank's median."""
    rows: dict[tuple[int, str], dict[str, Any]] = {}
    for report in reports:
        timed = [line for lines in report["ranks"] for line in lines if "microseconds" in line]
        for name in TRIALS:
            for column, (way, scheme) in COLUMNS.items():
                if of_ranks := [line["microseconds"][scheme] for line in timed if line["operator"] == name + way]:
                    start = {"world": report["world"], "gpus": report["gpus"], "operator": name}
                    rows.setdefault((report["world"], name), start)[column] = max(of_ranks)
    return list(rows.values())


def main(place: Place, worlds: Sequence[int]) -> int:
    """All gangs of *worlds*, written after each of them; 1 if anything was wrong."""
    place.scratch.mkdir(parents=True, exist_ok=True)
    standin(place)
    reports: list[dict[str, Any]] = []
    for world in worlds:
        failures = [each for failing in FAILURES for each in (failing, AGAIN)]
        gangs = [partial(gang, place, world, failure) for failure in ("", *failures)]
        if gpus_of(world) > 1:
            gangs.insert(1, partial(gang, place, world, one_host=True))
        for run in gangs:
            reports.append(run())
            place.out.write_text(json.dumps(document(reports), indent=1))
    wrong = document(reports)["wrong"]
    means = "; ".join(dict.fromkeys(report["times_are"] for report in reports))
    print("\n".join(wrong) or f"{len(reports)} gangs: everything was right. Times: {means}")
    return int(bool(wrong))


def document(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What *reports* of gangs come to."""
    return {"nccl": wheel.VERSION, "rounds": ROUNDS, "samples": SAMPLES, "microseconds": times(reports),
            "wrong": [sentence for report in reports for sentence in troubles(report)],
            "aborts": [aborts(report) for report in reports if report["failure"] in FAILURES],
            "abort_deadline_s": ABORT_SECONDS, "gangs": list(reports)}  # fmt: skip


def shipped(paths: Sequence[Path]) -> str:
    """Several OUT.json in one, judged anew, without the last words of ranks, which name folders of that machine."""
    runs = [json.loads(path.read_text()) for path in paths]
    for run in runs:
        run["wrong"] = [sentence for gang in run["gangs"] for sentence in troubles(gang)]
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


def trial_of(
    name: str, shape: dict[str, int], dtype: str, axes: dict[str, Any], world: int, transport: str = "gin"
) -> Any:
    """The trial of an operator whose ranks are on a host each, or by another *transport*."""
    from tests.kernels.backends.triton.conftest import gpu_trial

    return gpu_trial(name, sized(name, shape, world), world=world, dtype=dtype, transport=transport, **axes)


def baseline_of(name: str, shape: dict[str, int], dtype: str, world: int) -> Any:
    """The same problem by the library: it computes, then torch's NCCL communicates."""
    from tests.kernels.backends.triton.conftest import gpu_trial

    return gpu_trial(name, sized(name, shape, world), world=world, dtype=dtype, scheme="sequential",
                     collective="library")  # fmt: skip


def sized(name: str, shape: Mapping[str, int], world: int) -> dict[str, int]:
    """*shape* with what the world decides: each rank has ROWS_OF_RANK rows."""
    return {**shape, "batch" if name == "embedding_all_to_all" else "m": ROWS_OF_RANK * world}


def seat_of(text: str) -> Seat:
    """The seat that `gang` wrote."""
    written = json.loads(text)
    return Seat(**{name: tuple(value) if isinstance(value, list) else value for name, value in written.items()})


def run_rank(seat: Seat, failure: str, folder: Path) -> None:
    """All operators, with ROUNDS calls each; or the first one with a *failure* of the last rank.

    A rank of one host only runs what the bench does.
    """
    import torch

    from kernels.backends.triton.gin.gang import NetworkGang
    from kernels.backends.triton.memory import RankProcessGroup

    if seat.shares_heap:
        run_backend(seat, folder)
        os._exit(0)
    rank, world = seat.rank, seat.world
    device, chance = torch.device("cuda", 0), random.Random(rank)
    torch.cuda.set_device(device)
    members = RankProcessGroup(seat, device)
    place: Any = NetworkGang(members, device, folder)
    place.members = members
    properties = place.communicator.properties()
    say(rank=rank, nccl=place.communicator.nccl.version(), torch_nccl=".".join(map(str, torch.cuda.nccl.version())),
        gin_type=properties.ginType, teams=properties.nLsaTeams, gpu=properties.nvmlDev)  # fmt: skip
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
        run_backend(replace(seat, session=f"{seat.session}b"), folder)
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


def run_backend(seat: Seat, folder: Path) -> None:
    """Each operator as the bench runs it: verified, captured behind the barrier of hosts, and timed.

    First `sequential` by torch's NCCL, for which no communicator of ours is made; then the puts, alone, and in a block
    with it. Ranks of one host make one block by peer memory.
    """
    import torch

    from kernels.backends.triton.backend import TritonBackend
    from kernels.backends.triton.gin.gang import NetworkGang

    backend = TritonBackend(seat)
    assert backend._group is not None
    for way in (PEER,) if seat.shares_heap else (LIBRARY, BENCH, BLOCK):
        if way == BENCH:
            assert backend._network is None, "the library alone needs no GIN"
            backend._network = NetworkGang(backend._group, torch.device("cuda", 0), folder)
        for name in TRIALS:
            timed(backend, name, way)
    gc.collect()  # NCCL ends no communicator whose calls a graph still holds
    begin = time.monotonic()
    backend.close()
    say(closed=True, rank=seat.rank, seconds=round(time.monotonic() - begin, 2))


def timed(backend: Any, name: str, way: str) -> None:
    """Operator *name* in one *way*: its trials in turns, with the median of each."""
    from kernels.bench import interleaved
    from kernels.fabric import parse

    (shape, dtype, axes), seat = TRIALS[name], backend.seat
    transport, fabric = ("peer", "nvlink") if way == PEER else ("gin", "network")
    trials = [] if way == LIBRARY else [trial_of(name, shape, dtype, axes, seat.world, transport)]
    trials += [] if way == BENCH else [baseline_of(name, shape, dtype, seat.world)]
    trials = [replace(trial, fabric=parse(fabric)) for trial in trials]
    prepared = backend.prepare(trials)
    wrong = [_wrong(trial, each, seat.rank) for trial, each in zip(trials, prepared, strict=True)]
    samples: dict[str, list[float]] = {trial.schedule.scheme: [] for trial in trials}
    interleaved(prepared, SAMPLES, lambda at, _, seconds: samples[trials[at].schedule.scheme].append(seconds))
    say(operator=name + way, rank=seat.rank, wrong=sum(wrong), sentence=None,
        microseconds={scheme: round(1e6 * median(each), 1) for scheme, each in samples.items()})  # fmt: skip


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
        run_rank(seat_of(sys.argv[2]), sys.argv[3], Path(sys.argv[4]))
    elif sys.argv[1] == "shipped":
        print(shipped(list(map(Path, sys.argv[2:]))))
    else:
        chosen = Path(sys.argv[2]) if len(sys.argv) > 2 else wheel.FOLDER
        these_worlds = tuple(map(int, sys.argv[3:])) or worlds()
        sys.exit(main(Place(Path(sys.argv[1]).resolve().with_suffix(".json"), chosen.resolve()), these_worlds))
