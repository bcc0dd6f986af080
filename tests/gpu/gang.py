"""A gang of GPU ranks without Dask, in conversation: a sitting goes to all ranks, its outcomes decide about the next.

`python -m tests.gpu.gang TRIALS.json OUT.jsonl`: TRIALS.json is a list of lists of trials (`Trial.to_json`), each inner
list one sitting of interleaved trials. OUT is a recording, one line per measured trial; a table goes to the screen.

Where there are fewer GPUs than ranks, all ranks are on the first one: order and results are real, times are not.

Nobody waits for ever. A rank ends when no sitting comes for IDLE_S. The parent gives up a gang that is silent for
SILENT_S, that lost a rank, or that outlasts its seconds; then it goes on with the next sitting and a new gang.
"""

from __future__ import annotations

import faulthandler
import json
import multiprocessing
import os
import queue
import sys
import time
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from cluster.hosts import local_ranks
from kernels import events
from kernels.backends.base import LONGEST_COMPILATION_SECONDS, Seat
from kernels.backends.triton import playground, refusals
from kernels.backends.triton.memory import meeting_place
from kernels.bench import Bench, Emit
from kernels.events import RankEvent, TrialEvent
from kernels.fabric import SHARED_GPU, parse
from kernels.outcome import Failure, Gather, Measurement, Outcome, Sample
from kernels.trial import Trial
from tests.gpu.recording import provenance, recorded, told

DEADLINE_S = 20.0
"""How long one wait inside a trial may take."""
SILENT_S = LONGEST_COMPILATION_SECONDS + DEADLINE_S
"""A rank that says nothing for so long has stopped."""
IDLE_S = 180.0
"""A rank that is given nothing to do for so long ends: its parent has gone, or waits for others."""
AFTER_END_S = 8.0
"""What is still said after one rank has ended or broken is waited for so long."""
POLL_S = 2.0
"""So often the parent looks whether its ranks still live."""
BEGIN_S = 12.0
"""No sitting begins with less time left: what it measured would be lost with it."""
SHARED_CALLS = 240
"""Calls back to back of ranks that share a GPU, over their number: each waits some milliseconds for every peer."""
GANGS_MOST = 4
"""A gang that ends is replaced; with so many gone something is wrong that the next one meets as well."""

Work = Callable[[Seat, dict[str, Any]], dict[str, Any]]
"""What a rank does with one trial."""
Sitting = list[dict[str, Any]]
"""Trials as `Trial.to_json` writes them, timed in turns."""
Measured = tuple[Outcome, list[Sample]]
Conversation = Generator[Sitting, list[Outcome], None]
"""Yields the next sitting, and is sent the outcomes of the one before, as far as there are any."""
Opened = Callable[[Seat, Emit], Any]
"""Makes what runs the sittings of one rank: a `Bench` on its GPU."""


class Ended(Exception):
    """A gang that is of no more use, and the sentence that says why."""


def gpu_bench(seat: Seat, emit: Emit) -> Bench:
    """The bench of one rank, on the GPU with its number, or on the one that all share."""
    playground.take(seat.rank, seat.world, share_gpu=seat.shares_gpu)
    return Bench(seat, emit)


def shares_gpu(world: int) -> bool:
    """Whether *world* ranks are all on the first GPU of this host, because it has fewer."""
    return 0 < torch.cuda.device_count() < world


def worlds() -> list[int]:
    """The worlds that this host's GPUs are tried with: one GPU has all of them, several have a GPU for each rank."""
    count = torch.cuda.device_count()
    return [world for world in (2, 4, 8) if world <= count or count == 1]


def fewer(calls: int, world: int) -> int:
    """*calls*, or as many as ranks of one GPU make in a few seconds: a call takes a slice of each, and more."""
    return min(calls, SHARED_CALLS // world) if shares_gpu(world) else calls


def needs_links(world: int) -> str:
    """Why a test of copy engines, clocks or times is skipped; empty where each of *world* ranks has a GPU."""
    return f"needs real links: {world} ranks share {torch.cuda.device_count()} GPU" if shares_gpu(world) else ""


def runs(entry: dict[str, Any], world: int) -> bool:
    """Whether ranks of this host run the trial *entry*: a copy engine copies between two GPUs."""
    return refusals.refusal(Trial.from_json(linked(entry, world)), shares_heap=True) is None


def linked(entry: dict[str, Any], world: int) -> dict[str, Any]:
    """The trial *entry* as ranks of this host run it: over the GPU that they share, if they do."""
    return entry | {"fabric": parse(SHARED_GPU).to_json()} if shares_gpu(world) else entry


def seats_of(world: int, port: int, session: str) -> list[Seat]:
    """Where the ranks of *world* sit, all of them on this host; decided before any of them hides GPUs from itself."""
    ranks_on_gpu = world if shares_gpu(world) else 1
    return [Seat(rank=rank, world=world, session=session, shares_heap=True, deadline_s=DEADLINE_S,
                 rendezvous=("127.0.0.1", port), ranks_on_gpu=ranks_on_gpu) for rank in range(world)]  # fmt: skip


def rank_process(seat: Seat, orders: Any, said: Any, opened: Opened) -> None:
    """`rank_main` in a process of its own."""
    rank_main(seat, orders, said, opened)
    said.close()
    said.join_thread()
    os._exit(0)  # process groups may hang when one rank has gone


def rank_main(seat: Seat, orders: Any, said: Any, opened: Opened) -> None:
    """One rank: sittings come through the pipe *orders*, all events of them go into the queue *said*."""
    bench: Any = None
    number = 0

    def say(event: RankEvent) -> None:
        said.put((seat.rank, number, event))

    while (order := next_order(orders)) is not None:
        number, sitting = order
        faulthandler.dump_traceback_later(SILENT_S - DEADLINE_S / 2)
        ends = False
        try:
            if bench is None:
                bench = opened(seat, say)
            bench.run([Trial.from_json(entry) for entry in sitting])
        except Exception as error:
            ends = bench is None or isinstance(error, TimeoutError | ConnectionError) or "CUDA error" in str(error)
            say(
                events.BrokenEvent(
                    kind="broken", stage="launch", message=traceback.format_exc()[-900:], sticky=ends, witness=False
                )
            )
        say(events.DoneEvent(kind="done"))
        faulthandler.cancel_dump_traceback_later()
        if ends:
            break


def next_order(orders: Any) -> tuple[int, Sitting] | None:
    """The next sitting with its number; None where the parent has gone, or none comes."""
    try:
        return orders.recv() if orders.poll(IDLE_S) else None
    except EOFError:
        return None


class Gang:
    """The processes of one gang; all ranks get the same sittings in the same order."""

    def __init__(self, world: int, opened: Opened = gpu_bench) -> None:
        context: Any = multiprocessing.get_context("spawn")
        self._said, self._store = context.Queue(), meeting_place()
        ends = [context.Pipe(duplex=False) for _ in range(world)]
        self._orders, seats = [sender for _, sender in ends], seats_of(world, self._store.port, "gang")
        self._processes = [
            context.Process(target=rank_process, args=(seat, receiver, self._said, opened))
            for seat, (receiver, _) in zip(seats, ends, strict=True)
        ]
        for process, (receiver, _) in zip(self._processes, ends, strict=True):
            process.start()
            receiver.close()  # the rank's alone: it hears that this process ended

    def sit(self, number: int, sitting: Sitting, until: float) -> Iterator[Measured | str]:
        """Outcomes with their samples as they come, and what broke; Ended where the gang cannot go on."""
        try:
            for orders in self._orders:
                orders.send((number, sitting))
        except OSError as error:
            raise Ended(f"A rank took no sitting any more: {error}.") from error
        waited, collected, ends = Waited(len(self._orders), number, until), Collected(sitting), False
        while waited.ranks:
            rank, of, event = self._next(waited)
            if event["kind"] == "done":
                if of == number:
                    waited.ranks.discard(rank)
            elif event["kind"] == "broken":
                waited.shorten()
                ends = ends or event["sticky"]
                yield f"rank {rank}: {event['message']}"
            elif (news := collected.feed(event)) is not None:
                yield news
        if ends:
            raise Ended(f"A rank broke in sitting {number} so that its gang ends.")

    def _next(self, waited: Waited) -> tuple[int, int, RankEvent]:
        """A rank, the number of its sitting, and what it says next; Ended when nobody says anything any more."""
        while True:
            try:
                rank, number, event = self._said.get(timeout=waited.seconds())
            except queue.Empty:
                gone = {n: p.exitcode for n, p in enumerate(self._processes) if p.exitcode is not None}
                waited.check(gone)
                continue
            waited.heard(rank)
            return rank, number, event

    def close(self) -> None:
        """Ends all ranks."""
        for orders in self._orders:
            orders.close()
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.join(AFTER_END_S)


class Waited:
    """Who has not ended a sitting yet, since when each is silent, and when nobody waits any longer."""

    def __init__(self, world: int, number: int, until: float) -> None:
        self.ranks, self._number, self._until = set(range(world)), number, until
        self._why = "its seconds are over"
        self._heard = dict.fromkeys(range(world), time.monotonic())

    def heard(self, rank: int) -> None:
        self._heard[rank] = time.monotonic()

    def seconds(self) -> float:
        """How long to listen before `check` is asked again."""
        return max(0.01, min(POLL_S, self._until - time.monotonic()))

    def shorten(self, why: str = "a rank broke") -> None:
        """The others are waited for a little longer."""
        if (until := time.monotonic() + AFTER_END_S) < self._until:
            self._until, self._why = until, why

    def check(self, gone: dict[int, int]) -> None:
        """Ended where there is nothing to be waited for; *gone*: exit status of ranks whose processes have ended."""
        now, missing = time.monotonic(), sorted(self.ranks)
        if dead := {rank: status for rank, status in gone.items() if rank in self.ranks}:
            self.shorten(f"processes ended (rank: exit status): {dead}")
        silent = [rank for rank in missing if now - self._heard[rank] > SILENT_S]
        if silent:
            raise Ended(f"Sitting {self._number}: ranks {silent} said nothing for {SILENT_S:.0f} s.")
        if now >= self._until:
            raise Ended(f"Sitting {self._number}: ranks {missing} had not ended it, and {self._why}.")


class Collected:
    """The events of one sitting become outcomes with their samples, each outcome once."""

    def __init__(self, sitting: Sitting) -> None:
        self._gathers = {trial.key: Gather(trial) for trial in map(Trial.from_json, sitting)}
        self._samples: dict[str, list[Sample]] = {}
        self._failed: set[str] = set()

    def feed(self, event: TrialEvent) -> Measured | None:
        news = self._gathers[event["trial"]].feed(event) if event["trial"] in self._gathers else None
        if news is None:
            return None
        if isinstance(news, Sample):
            self._samples.setdefault(news.key, []).append(news)
            return None
        if isinstance(news, Failure):  # every rank says so
            if news.trial.key in self._failed:
                return None
            self._failed.add(news.trial.key)
        return news, self._samples.pop(news.trial.key, [])


def listed(sittings: Iterable[Sitting]) -> Conversation:
    """*sittings* one after the other, whatever comes out."""
    yield from (each for each in sittings)  # which takes what it is sent


def run(
    sittings: Iterable[Sitting] | Conversation, world: int, deadline_s: float, opened: Opened = gpu_bench
) -> Iterator[Measured | str]:
    """Outcomes of all trials of *world* ranks as they come with their samples, and what broke, in words.

    *sittings* is a list, or a conversation that is sent what each sitting came to.
    """
    talk = sittings if isinstance(sittings, Generator) else listed(sittings)
    until, made, gang = time.monotonic() + deadline_s, 0, None
    number, sitting = 0, next(talk, None)
    try:
        while sitting is not None:
            if until - time.monotonic() < min(BEGIN_S, deadline_s / 2):
                yield f"sitting {number} did not begin: less than {BEGIN_S:.0f} of {deadline_s:.0f} s were left"
                return
            if gang is None:
                made += 1
                if made > GANGS_MOST:
                    yield f"sitting {number} did not begin: {GANGS_MOST} gangs have ended before"
                    return
                gang = Gang(world, opened)
            outcomes: list[Outcome] = []
            try:
                for found in gang.sit(number, [linked(entry, world) for entry in sitting], until):
                    outcomes += [] if isinstance(found, str) else [found[0]]
                    yield found
            except Ended as ended:
                gang.close()
                gang = None
                yield str(ended)
            number, sitting = number + 1, _answer(talk, outcomes)
    finally:
        talk.close()
        if gang is not None:
            gang.close()


def _answer(talk: Conversation, outcomes: list[Outcome]) -> Sitting | None:
    """The sitting that *talk* wants next; None at its end."""
    try:
        return talk.send(outcomes)
    except StopIteration:
        return None


def work_main(seat: Seat, trials: list[dict[str, Any]], work: Work, answers: Any) -> None:
    """One rank of a gang that does something else than measure: a dictionary per trial goes back."""
    playground.take(seat.rank, seat.world, share_gpu=seat.shares_gpu)
    for number, entry in enumerate(trials):
        try:
            answers.put((seat.rank, number, work(replace(seat, session=f"work{number}"), entry)))
        except Exception:
            answers.put((seat.rank, number, {"error": traceback.format_exc()[-900:]}))
    answers.close()
    answers.join_thread()
    os._exit(0)


Answers = dict[int, list[dict[str, Any]]]
"""By trial, what every rank said."""


def stressed(trials: list[dict[str, Any]], world: int, calls: int, deadline_s: float) -> Answers:
    """By trial, what every rank that came to its end says of *calls* calls."""
    from tests.gpu.stress import stress

    return answered(partial(stress, calls=fewer(calls, world)), trials, world, deadline_s)


def answered(work: Work, trials: list[dict[str, Any]], world: int, deadline_s: float, *, leaving: int = 0) -> Answers:
    """By trial, what *work* answers on every rank that came to its end; *leaving* ranks of a trial never do."""
    context = multiprocessing.get_context("spawn")
    answers, store = context.Queue(), meeting_place()
    entries = [linked(entry, world) if "fabric" in entry else entry for entry in trials]
    ranks = [
        context.Process(target=work_main, args=(seat, entries, work, answers))
        for seat in seats_of(world, store.port, "work")
    ]
    for process in ranks:
        process.start()
    found: Answers = {}
    until = time.monotonic() + deadline_s
    while sum(map(len, found.values())) < (world - leaving) * len(trials) and time.monotonic() < until:
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


def main() -> int:
    by_world: dict[int, list[Sitting]] = {}
    for sitting in json.loads(Path(sys.argv[1]).read_text()):
        by_world.setdefault(sitting[0]["problem"]["world"], []).append(sitting)
    with Path(sys.argv[2]).open("w") as out:
        facts: dict[str, Any] = {}
        for world, mine in by_world.items():
            ran = local_ranks(world, "triton")
            for outcome in run(mine, world, float(sys.argv[3]) if len(sys.argv) > 3 else 240.0):
                if isinstance(outcome, str):
                    print("BROKEN", outcome, flush=True)
                    continue
                measured, samples = outcome
                facts = facts or provenance(measured.trial.machine)
                if isinstance(measured, Measurement):
                    print(recorded(measured, samples, facts, ran=ran), file=out, flush=True)
                print(told(measured), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
