"""Students of the load test: each joins by a link, guesses, and presses Run again and again until the time is over.

`python -m tests.workshop.student FIRST:STOP OPTIONS` is as many students, each a thread. It reads their links and then
the moment of the first Run from stdin, and prints lines of JSON.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from cluster.client import Cluster
from cluster.watchdog import Deadlines
from cluster.workshop import client
from cluster.workshop.client import ClassBoard
from cluster.workshop.links import Link

JOINING_MOST = 8
"""Students of one process who join at the same moment: they share its one core."""
SHARED_EVERY = 4
"""Every so many presses of Run the list is that of the lesson, which is the same for all."""
_BEFORE = re.compile(r"(\d+) requests? (?:is|are) before")


def say(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


class Student:
    """One client on its cluster; `press` is one Run."""

    def __init__(self, number: int, options: Mapping[str, Any], link: str, *, entry: Any = None) -> None:
        self.number, self.options = number, options
        admitted = client.admission(Link.parse(link))
        self.cluster = Cluster.connect(admitted.target, entry=entry)
        self.board = ClassBoard(admitted.target)
        self.board._owner = f"student {number}"
        self.facts: dict[str, Any] = {"number": number, "client": self.cluster.client.id, "runs": 0, "lost": 0,
                                      "places": [], "first_s": None, "shared_runs": 0, "held_s": 0.0}  # fmt: skip

    def press(self, run: int, pressed_at: float) -> None:
        """One Run: its first sample is the first point of the student's chart."""
        is_shared = run % SHARED_EVERY == SHARED_EVERY - 1
        began, held_since = True, None
        for event in self._events(run, is_shared):
            if event["kind"] == "waiting":
                if match := _BEFORE.search(event["why"]):
                    self.facts["places"].append(int(match[1]))
                continue
            held_since = held_since or time.time()
            if event["kind"] == "sample" and began:
                began = False
                if self.facts["first_s"] is None:
                    self.facts["first_s"] = time.time() - pressed_at
            elif event["kind"] == "failure":
                self.facts["lost"] += 1
                self.facts["why"] = event["message"][:200]
        self.facts["held_s"] = max(self.facts["held_s"], time.time() - (held_since or time.time()))
        self.facts["runs"] += 1
        self.facts["shared_runs"] += is_shared

    def _events(self, run: int, is_shared: bool) -> Iterator[Any]:
        trials = self._trials(run, is_shared)
        limits = Deadlines(60.0, 120.0, wait_s=600.0, shared=True)
        return self.cluster.stream(trials, world=2, shares_heap=True, deadline_s=limits)

    def _trials(self, run: int, is_shared: bool) -> Sequence[Any]:
        """The trials of a Run: the lesson's, or this student's own."""
        whose = f"lesson-{run}" if is_shared else f"{self.number}-{run}"
        if self.options["real"]:
            return real_trials(run if is_shared else 1 + self.number * 1000 + run)
        from fake_bench import FakeTrial

        # short and long lists, so that turns alone would be unfair
        length_s = self.options["trial_s"] * (0.5 + (self.number % 5) / 4)
        return [FakeTrial(key=whose, num_samples=5, seconds=length_s / 5)]

    def work(self, at: float) -> dict[str, Any]:
        """Press Run at the moment *at* (Unix time), and again until the time is over; returns what happened."""
        time.sleep(max(0.0, at - time.time()))
        run, pressed_at = 0, time.time()
        while True:
            self.press(run, pressed_at)
            run += 1
            self.board.submit({"lesson": 1, "question": f"run {run % 3}", "alias": f"student {self.number}",
                               "guess": float(run), "unit": "runs"})  # fmt: skip
            if time.time() - at > self.options["seconds"]:
                return self.facts


def real_trials(number: int) -> Sequence[Any]:
    """Sequential and fused of a small problem, which the *number* makes another one."""
    from kernels.fabric import parse
    from kernels.operators import problem
    from kernels.schemes import schedule
    from kernels.trial import PROTOCOLS, Trial
    from workbench import machines

    machine = machines.shipped_machine(machines.LAPTOP)
    fabric = parse(f"emulated:bandwidth_bytes_per_second={1e9 + number:.10g}")
    asked_for = problem("gemm_all_to_all", {"m": 512, "n": 512, "k": 256}, world=2)
    return [Trial(problem=asked_for, schedule=schedule(asked_for, scheme, {}, machine, fabric), backend="cpu",
                  machine=machine.name, fabric=fabric, protocol=PROTOCOLS["quick"])
            for scheme in ("sequential", "fused")]  # fmt: skip


def main() -> None:
    first, stop = map(int, sys.argv[1].split(":"))
    options, entry = json.loads(sys.argv[2]), None
    if not options["real"]:
        import fake_bench

        entry = fake_bench.ENTRY
    links = [sys.stdin.readline().strip() for _ in range(first, stop)]
    with ThreadPoolExecutor(JOINING_MOST) as joining:
        students = list(joining.map(lambda number, link: Student(number, options, link, entry=entry),
                                    range(first, stop), links))  # fmt: skip
    say(clients=[student.cluster.client.id for student in students])
    at = float(sys.stdin.readline())
    with ThreadPoolExecutor(len(students)) as working:
        say(facts=list(working.map(lambda student: student.work(at), students)))
    for student in students:
        student.board.close()
        student.cluster.close()


if __name__ == "__main__":
    main()
