"""Puts between hosts through Dask: `python -m tests.gpu.gin_through_dask OUT [FOLDER]`, two workers as two hosts.

They are on two addresses of this computer, and share its first GPU. FOLDER has NCCL's wheel unpacked (default: where
`workbench doctor --fetch-nccl` puts it). gcc compiles the stand-in for GDRCopy. `workbench` measures each operator
alone, then in a block with its baselines by torch's NCCL. Then a worker is killed in mid-sweep: a sentence must come,
and the next run must work. OUT.json has one entry a check; the status is 1 where one failed.
Times are those of sockets and of time slices of one GPU: they say nothing of a network.
`--backend cpu` makes the same checks with CPU ranks and pieces of gloo, for a computer without a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from cluster import hosts
from cluster.launch.contract import ARGUMENTS, environment
from cluster.launch.contract import RESOURCE as RANK
from cluster.launch.roster import status
from kernels import files
from kernels.backends.triton.gin import wheel
from kernels.fabric import TIMES_ARE_NOT
from kernels.machine import Machine, toml
from tests.gpu import gin
from tests.release import checks, summary
from tests.release.commands import Answer, Began, Commands, Miss, require
from tests.release.site import GONE_S, IDLE, LOOK_S, require_sound
from tests.release.summary import FAILED, PASSED, Result
from workbench import machines
from workbench.machines import matching
from workbench.results.store import Store

ADDRESSES = ("127.0.0.1", "127.0.0.2")
"""Of the hosts; all of 127.0.0.0/8 answers on Linux."""
WORLD = len(ADDRESSES)
MACHINE = "two_hosts_of_one_gpu"
NETWORK_OF = "h200_ib"
"""The machine whose network stands in the file of ours, as an assumption: nothing here has one."""
LINK = f"one GPU shared by {WORLD} hosts"
WITHIN_S, UP_S, RUN_S, FAULT_S, READY_S = 560.0, 60.0, 150.0, 200.0, 90.0
QUICK, LONG = "quick", "thorough"
SAMPLES = 40
"""So many in the store are of a sweep that is well under way."""


WHAT_TIMES_ARE = {hosts.TRITON: gin.WHAT_TIMES_ARE, hosts.CPU: "gloo over loopback: no statement about a network"}

# What the hosts measure, by backend.


@dataclass(frozen=True, slots=True)
class Question:
    """One operator's schedules on the two hosts, as words of `run` and as a file for `sweep`."""

    backend: str
    machine: str
    operator: str
    shape: Mapping[str, int]
    dtype: str
    scheme: str
    axes: Mapping[str, Any]

    @property
    def words(self) -> list[str]:
        """What stands behind `workbench run`."""
        sizes = [word for name, value in self.shape.items() for word in ("--shape", f"{name}={value}")]
        settings = [word for name, value in self.axes.items() for word in ("--set", f"{name}={value}")]
        return [self.operator, *sizes, "--dtype", self.dtype, "--backend", self.backend, "--machine", self.machine,
                "--fabric", "network", "--world", str(WORLD), "--scheme", self.scheme, *settings]  # fmt: skip

    def space(self, protocol: str, several: Mapping[str, Sequence[Any]] | None = None) -> str:
        """The space of these axes without baselines; *several*: axes of which it has many values."""
        fields = {"operator": self.operator, "backend": self.backend, "machine": self.machine, "fabric": "network",
                  "dtype": self.dtype, "protocol": protocol, "world": WORLD, "parts": "none"}  # fmt: skip
        tables = {"": fields, "[shape]\n": self.shape, f"[scheme.{self.scheme}]\n": dict(self.axes) | (several or {})}
        return "\n".join(head + "".join(f"{name} = {json.dumps(value)}\n" for name, value in table.items())
                         for head, table in tables.items())  # fmt: skip


def question(backend: str, operator: str) -> Question:
    """Puts by the GPU; or pieces by the library, which CPU ranks of two hosts have."""
    shape, dtype, axes = gin.TRIALS[operator]
    sized = gin.sized(operator, shape, WORLD)
    if backend == hosts.TRITON:
        return Question(backend, MACHINE, operator, sized, dtype, "fused", axes | {"transport": "gin"})
    return Question(backend, machines.LAPTOP, operator, sized, "float32", "decomposed", {"engine": "library"})


FAULTED = "gemm_all_to_all"
MANY: Mapping[str, tuple[str, Sequence[Any]]] = {
    hosts.TRITON: ("slice_tiles", [4, 8, 16, 32]), hosts.CPU: ("pieces", [1, 2, 4, 8]),
}  # fmt: skip
"""The axis of the sweep in which a worker is killed, and its values."""


def machine() -> Machine:
    """This computer's first GPU on two hosts with one each; their network is an assumption that no check reads."""
    here, network = matching.machine_of_local_gpus(), machines.shipped_machine(NETWORK_OF).dimensions[-1]
    inside = replace(here.dimensions[0], count=1)
    why = f"assumed: as {NETWORK_OF} has it; what was tried is loopback"
    kept = {key: how for key, how in here.provenance.items() if not key.startswith("dimension.1")}
    return replace(here, name=MACHINE, title="Two hosts that share one GPU, over loopback",
                   dimensions=(inside, replace(network, count=WORLD)),
                   provenance=kept | {"dimension.1": why})  # fmt: skip


# The two hosts: a scheduler and a worker on each address.


class Hosts:
    """A cluster of two hosts that *commands* ask, and what they ask it with."""

    def __init__(self, commands: Commands, backend: str, place: gin.Place) -> None:
        self.commands, self.backend, self._place = commands, backend, place
        self._processes: list[subprocess.Popen[bytes]] = []
        self.address = ""

    def up(self) -> dict[str, Any]:
        """Start them; a rank process each comes with the first command that connects."""
        file = self.commands.folder / "scheduler.json"
        self._start("scheduler", "--host", ADDRESSES[0], "--port", "0", "--no-dashboard", "--dashboard-address",
                    f"{ADDRESSES[0]}:0", "--scheduler-file", str(file))  # fmt: skip
        began_at = time.monotonic()
        self.commands.wait("a scheduler", UP_S, lambda: file.exists() and file.stat().st_size > 0)
        self.address = json.loads(file.read_text())["address"]
        for number, address in enumerate(ADDRESSES):
            self._start("worker", self.address, "--host", address, "--name", f"host{number}-rank0", *ARGUMENTS,
                        "--resources", f"{RANK}=1 {hosts.RESOURCE}={1 / WORLD}", rank=number)  # fmt: skip
        space = self.space("first", question(self.backend, FAULTED).space(QUICK))
        answer = self.ask("sweep", space, "--store", str(self.store("first")), within_s=RUN_S)
        self.wait_idle()
        rows = self.ranks()
        require({row["host"] for row in rows} == set(ADDRESSES), f"The hosts are {[row['host'] for row in rows]}.")
        gpus = {row["gpu"] for row in rows if row["gpu"]}
        require(len(gpus) == (self.backend == hosts.TRITON), f"They have {len(gpus)} GPUs.")
        return {"up_s": time.monotonic() - began_at, "first_run_s": answer.seconds}

    def _start(self, what: str, *words: str, rank: int = 0) -> None:
        variables = self.commands.environment | environment()
        if self.backend == hosts.TRITON:
            kept = {name: value for name, value in gin.environment(self._place, rank).items()
                    if os.environ.get(name) != value}  # fmt: skip
            variables = variables | kept | hosts.environment(hosts.visible_gpus()[0])
        with (self.commands.folder / f"{what}-{rank}.log").open("wb") as log:
            self._processes.append(subprocess.Popen(
                [sys.executable, "-m", f"distributed.cli.dask_{what}", *words], env=variables, stdout=log,
                stderr=subprocess.STDOUT, cwd=self.commands.folder, start_new_session=True,
            ))  # fmt: skip

    def begin(self, *words: str) -> Began:
        return self.commands.begin(*words, "--cluster", self.address, "--json")

    def ask(self, *words: str, within_s: float, status: int | None = 0) -> Answer:
        return self.commands.ask(*words, "--cluster", self.address, "--json", within_s=within_s, status=status)

    def store(self, name: str) -> Path:
        return self.commands.folder / f"{name}.sqlite"

    def space(self, name: str, text: str) -> str:
        path = self.commands.folder / f"{name}.toml"
        path.write_text(text)
        return str(path)

    def ranks(self) -> list[dict[str, Any]]:
        """A row per worker, as `workbench cluster status` has it."""
        return status(self.address)

    def wait_idle(self) -> float:
        """Seconds until both ranks are idle."""
        began_at, states = time.monotonic(), list[str]()

        def all_idle() -> bool:
            time.sleep(LOOK_S)
            with suppress(ValueError, OSError, RuntimeError):
                states[:] = [row["state"] for row in self.ranks()]
            return states == [IDLE] * WORLD

        try:
            self.commands.wait(f"{WORLD} ranks being idle", READY_S, all_idle)
        except Miss as missed:
            raise Miss(f"{missed} They are: {', '.join(states) or 'not there'}.") from None
        return time.monotonic() - began_at

    def last_words(self) -> dict[str, str]:
        """The end of what scheduler and workers printed."""
        return {path.stem: path.read_text(errors="replace")[-1500:] for path in self.commands.folder.glob("*.log")}

    def close(self) -> None:
        """End both workers, then the scheduler, and what did not end with them."""
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(GONE_S)
        self.commands.kill_all(GONE_S)


# The checks.


def require_between(row: Mapping[str, Any], backend: str) -> None:
    """*row* is a verified time of two hosts, and says of what; a Miss tells the first thing that is wrong."""
    name = f"{row['scheme']} of {row['operator']}"
    state = (row["outcome"], row["source"])
    require(state == ("measurement", "measured"), f"{name} is a {' '.join(map(str, state))}: {row['message']}")
    require(row["correct"] is True, f"The result of {name} is wrong.")
    require(row["fabric"] == "network", f"{name} was timed over {row['fabric']}.")
    link = row["hardware"]["link"]
    if backend != hosts.TRITON:
        require(link == "network", f"{name} was timed on {link}.")
        return
    require(link == LINK, f"{name} was timed on {link}, not {LINK}.")
    require(TIMES_ARE_NOT in (row["message"] or ""), f"{name} does not say that its time is not real.")
    if row["scheme"] == "fused":
        require(row["axes"].get("transport") == "gin", f"{name} had the transport {row['axes'].get('transport')}.")


def refusals(of: Hosts) -> dict[str, Any]:
    """What two hosts with a rank each cannot do is one sentence."""
    words = question(of.backend, FAULTED).words
    questions = {"more ranks than hosts": [*words, "--world", str(2 * WORLD)]}
    if of.backend == hosts.TRITON:
        inside = [word if word != "network" else "nvlink" for word in words]
        questions["memory of another host"] = [word if word != "transport=gin" else "transport=peer" for word in inside]
    sentences = {}
    for name, asks in questions.items():
        answer = of.ask("run", *asks, "--protocol", QUICK, "--store", str(of.store("refused")), within_s=RUN_S,
                        status=None)  # fmt: skip
        require(answer.status in (1, 2), f"{name}: {answer} Expected: a refusal.")
        require("Traceback" not in answer.err, f"{name}: a traceback was printed.")
        require("Accepted" in answer.err, f"{name}: {answer} Expected: what would be accepted.")
        sentences[name] = " ".join(answer.err.split())[-300:]
    return {"refusals": len(sentences), "sentences": sentences}


def alone(of: Hosts, operator: str, store: str = "alone") -> dict[str, Any]:
    """One schedule of *operator*, without a baseline; a *store* of its own makes it run again."""
    one = question(of.backend, operator)
    space = of.space(f"alone-{operator}", one.space(QUICK))
    answer = of.ask("sweep", space, "--store", str(of.store(store)), within_s=RUN_S)
    rows = answer.document()["rows"]
    timed = [row for row in rows if row["source"] != "estimated"]  # a busy computer times twice
    others = {(row["scheme"], row["part"]) for row in timed} - {(one.scheme, "whole")}
    require(timed and not others, f"{operator} alone has {len(timed)} times, and besides those of {others}.")
    for row in timed:
        require_between(row, of.backend)
    return {"command_s": answer.seconds, "samples": timed[0]["samples"],
            "max_relative_error": timed[0]["max_relative_error"], "time_s": timed[0]["time_s"]}  # fmt: skip


def with_baseline(of: Hosts, operator: str) -> dict[str, Any]:
    """`workbench run` of *operator*: its schedule and the baselines of its block."""
    one = question(of.backend, operator)
    answer = of.ask("run", *one.words, "--protocol", QUICK, "--store", str(of.store("beside")), within_s=RUN_S)
    document = answer.document()
    rows = document.get("rows", [document])  # one schedule is a document of its own
    chosen = [row for row in rows if row["scheme"] == one.scheme]
    require(chosen, f"{operator} has no row of {one.scheme}.")
    for row in rows:
        require_between(row, of.backend)
    require(chosen[0]["sequential_s"], f"{operator} has no baseline in its block.")
    return {"command_s": answer.seconds, "rows": len(rows), "baseline_s": chosen[0]["sequential_s"],
            "time_s": chosen[0]["time_s"]}  # fmt: skip


def worker_killed(of: Hosts) -> dict[str, Any]:
    """SIGKILL of the second host's worker in mid-sweep: a sentence comes, it is brought back, and the next run works.

    Its rank process ends with it, so that the first host's kernel waits for puts that nobody makes.
    """
    axis, values = MANY[of.backend]
    space = of.space("killed", question(of.backend, FAULTED).space(LONG, {axis: values}))
    hit = next(row["rank_pid"] for row in of.ranks() if row["host"] == ADDRESSES[1])
    with Store(of.store("killed")) as store:
        sweep = of.begin("sweep", space, "--store", str(of.store("killed")))
        of.commands.wait(f"{SAMPLES} samples being stored", RUN_S,
                         lambda: len(store.samples_since(0)[0]) >= SAMPLES, sweep)  # fmt: skip
        began_at = time.monotonic()
        os.kill(psutil.Process(hit).ppid(), signal.SIGKILL)
        answer = sweep.end(of.commands.left_s(FAULT_S))
        end_s = time.monotonic() - began_at
    require("Traceback" not in answer.err, f"A traceback was printed: {answer}")
    document = answer.document()
    require_sound(document["rows"])
    count = document["summary"]
    require(count["measurement"] + count["failure"] == len(values),
            f"{count['measurement']} of {len(values)} have a time, {count['failure']} a sentence.")  # fmt: skip
    failed = [row["message"] for row in document["rows"] if row["outcome"] == "failure"]
    sentences = [*failed, *(each["message"] for each in count["run_again"])]
    require(sentences and all(sentences), "No sentence tells of the fault.")
    require(answer.status == (1 if failed else 0), f"{answer} Expected: 1 where something failed, {len(failed)} did.")
    idle_s = of.wait_idle()
    require(hit not in [row["rank_pid"] for row in of.ranks()], "The rank process that was hit is still there.")
    return {"end_s": end_s, "ranks_idle_s": idle_s, "measured": count["measurement"], "failed": len(failed),
            "ran_again": len(count["run_again"]), "sentence": sentences[0]}  # fmt: skip


def nothing_left(of: Hosts) -> dict[str, Any]:
    """Workers and scheduler end when they are told to, with all that they started."""
    began_at = time.monotonic()
    for process in reversed(of._processes):
        process.terminate()
    with suppress(Miss):
        of.commands.wait("every process having ended", READY_S, lambda: not of.commands.processes())
    left = [" ".join(each.cmdline()[:4]) for each in of.commands.processes()]
    require(not left, f"{len(left)} processes outlive the cluster: {', '.join(left)}.")
    return {"down_s": time.monotonic() - began_at}


Check = Callable[[Hosts], dict[str, Any]]


def table() -> dict[str, Check]:
    """Every check by its name, in order; the first starts the hosts."""
    return {
        "hosts": Hosts.up,
        "refusals": refusals,
        **{f"{operator} alone": partial(alone, operator=operator) for operator in gin.TRIALS},
        **{operator: partial(with_baseline, operator=operator) for operator in gin.TRIALS},
        "worker_killed": worker_killed,
        "after it": partial(alone, operator="embedding_all_to_all", store="after it"),
        "nothing_left": nothing_left,
    }


def judged(of: Hosts, name: str, check: Check) -> Result:
    """What *check* came to; whatever it raises is an entry of its own."""
    began_at = time.monotonic()
    try:
        require(of.commands.left_s(1.0) > 0, "No time was left to begin it.")
        figures = check(of)
    except Exception as error:
        sentence = str(error) if isinstance(error, Miss) else f"{type(error).__name__}: {error}"
        return Result(name, FAILED, time.monotonic() - began_at, sentence, {"last_words": of.last_words()})
    finally:
        of.commands.end_all()
    return Result(name, PASSED, time.monotonic() - began_at, None, figures)


# The program.


def lacking(backend: str, folder: Path) -> str | None:
    """Why this computer cannot make the checks, or None."""
    if sys.platform != "linux":
        return f"{len(ADDRESSES)} addresses of loopback answer on Linux only, and this is {sys.platform}."
    if backend == hosts.CPU:
        return None
    if not hosts.visible_gpus():
        return "backend = triton needs a GPU, and this host has 0. Accepted: a host with 1, or --backend cpu."
    return wheel.lacking(wheel.FOLDER if wheel.FOLDER.exists() else folder)  # ranks look there


@contextmanager
def prepared(backend: str, folder: Path) -> Iterator[None]:
    """The machine's file and the wheel where ranks look for them, for as long as this lasts."""
    if backend == hosts.CPU:
        yield
        return
    path = machines.calibrated_path(MACHINE)
    path.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as ends:
        files.write(path, toml(machine()))
        ends.callback(path.unlink)
        if wheel.lacking(wheel.FOLDER) is not None:
            wheel.FOLDER.parent.mkdir(parents=True, exist_ok=True)
            wheel.FOLDER.symlink_to(folder)
            ends.callback(wheel.FOLDER.unlink)
        yield


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.gin_through_dask", description=__doc__)
    parser.add_argument("out", type=Path, help="The summary, as a file that ends in .json.")
    parser.add_argument("folder", type=Path, nargs="?", default=wheel.FOLDER, help="NCCL's wheel, unpacked.")
    parser.add_argument("--backend", choices=(hosts.TRITON, hosts.CPU), default=hosts.TRITON)
    parser.add_argument("--within", type=float, default=WITHIN_S, help="Seconds for all checks.")
    parser.add_argument("--only", nargs="+", choices=tuple(table()), metavar="CHECK", help="These and the first.")
    chosen = parser.parse_args(arguments)
    folder, out = chosen.folder.resolve(), chosen.out.resolve().with_suffix(".json")
    if (reason := lacking(chosen.backend, folder)) is not None:
        print(reason, file=sys.stderr)
        return 2
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    every, results = table(), list[Result]()
    names = [name for name in every if not chosen.only or name in (*chosen.only, "hosts")]
    with prepared(chosen.backend, folder), tempfile.TemporaryDirectory(prefix="gin-dask-") as scratch:
        place = gin.Place(Path(scratch) / "gin.json", folder)
        place.scratch.mkdir()
        if chosen.backend == hosts.TRITON:
            gin.standin(place)
        of = Hosts(Commands(Path(scratch), chosen.within), chosen.backend, place)
        try:
            for name in names:
                results.append(judged(of, name, every[name]))
                checks.tell(results[-1])
        finally:
            of.close()
    facts = summary.circumstances(chosen.backend, WORLD, QUICK)
    facts |= {"command": "python -m tests.gpu.gin_through_dask", "times_are": WHAT_TIMES_ARE[chosen.backend]}
    document = summary.document(results, facts)
    print(summary.text(document), end="")
    files.write(out, summary.text(document))
    return 1 if document[FAILED] else 0


if __name__ == "__main__":
    sys.exit(main())
