"""The checks before a release, their table, and the loop that judges them: none is left out as another failed."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import util
from typing import Any

import psutil

from kernels.fabric import TIMES_ARE_NOT
from kernels.trial import PROTOCOLS
from tests.release.commands import Answer, Began, Miss, require
from tests.release.questions import GEMM, REFUSED, Refused, SpaceFile
from tests.release.site import READY_S, Figures, Site, require_sound
from tests.release.summary import FAILED, NO_GPU, PASSED, Result
from workbench.results.store import Store

# Checks of what is measured: the cluster is there, each operator has verified times, a sweep is known afterwards.

RUN_S = 90.0
"""One problem: compiled, verified, timed."""
SWEEP_S = 120.0
QUICK = "quick"


def cluster(site: Site) -> Figures:
    """Every rank is idle, and has a GPU of its own where there are GPUs, or the one that all share."""
    figures = site.up()
    rows = site.commands.ask("cluster", "status", "--json", within_s=30.0).document()["rows"]
    require(len(rows) == site.world, f"{len(rows)} workers are there instead of {site.world}.")
    gpus = {row["gpu"] for row in rows if row["gpu"]}
    expected = 1 if site.share_gpu else site.world if site.on_gpus else 0
    require(len(gpus) == expected, f"{site.world} ranks have {len(gpus)} GPUs instead of {expected}.")
    backends = {row["backend"] for row in rows}
    require(backends == {site.backend}, f"The ranks' backends are {', '.join(map(str, backends))}.")
    return {**figures, "ranks": len(rows), "gpus": len(gpus) if site.on_gpus else NO_GPU}


def doctor(site: Site) -> Figures:
    """Every place says what it has."""
    rows = site.commands.ask("doctor", "--json", within_s=90.0).document()["rows"]
    require(len(rows) == 1 + site.world, f"The doctor tells of {len(rows)} places instead of {1 + site.world}.")
    trouble = [row["trouble"] for row in rows if row.get("trouble")]
    require(not trouble, f"The doctor found trouble: {'; '.join(trouble)}")
    keys = ("gpus", "gpu_driver", "nvlink", "cuda", "nccl", "symmetric_memory", "peer_access", "gpu_clock", "multicast")
    return {key: rows[0].get(key) for key in keys}


def operator(site: Site, name: str) -> Figures:
    """The schemes of one operator: verified, timed, with a timeline, each beside the best baseline of its block."""
    words = ("--world", str(site.world), "--protocol", QUICK, "--store", str(site.store("operators")))
    answer = site.commands.ask("run", name, *site.sizes(name), *words, "--json", within_s=RUN_S)
    rows = answer.document()["rows"]
    schemes = [row["scheme"] for row in rows]
    require(sorted(schemes) == sorted(site.questions.schemes(name)), f"{name} has rows of {', '.join(schemes)}.")
    for row in rows:
        _require_measured(row, site)
    beside = {row["scheme"]: row["sequential_s"] for row in rows}
    without = [scheme for scheme, seconds in beside.items() if not seconds]
    require(not without, f"{name} has no baseline in the block of {', '.join(without)}.")
    times = {row["scheme"]: row["time_s"] for row in rows}
    return {
        "command_s": answer.seconds, "shape": rows[0]["shape"], "dtype": rows[0]["dtype"], "time_s": times,
        "best_baseline_s": beside["fused"], "fused_of_best_baseline": times["fused"] / beside["fused"],
        "max_relative_error": max(row["max_relative_error"] for row in rows),
    }  # fmt: skip


def _require_measured(row: dict[str, Any], site: Site) -> None:
    name = f"{row['scheme']} of {row['operator']}"
    state = (row["outcome"], row["source"])
    require(state == ("measurement", "measured"), f"{name} is a {' '.join(map(str, state))}: {row['message']}")
    require(row["correct"] is True and row["time_s"] > 0, f"{name}: correct {row['correct']}, {row['time_s']} s.")
    samples = site.world * PROTOCOLS[QUICK].repeats
    require(row["samples"] >= samples, f"{name} has {row['samples']} samples: fewer than {samples}.")
    remark = (row["message"] or "").removeprefix(TIMES_ARE_NOT).strip()
    refused = site.share_gpu and remark.startswith("No timeline of ")  # of two streams
    require(not remark or refused, f"{name} has no timeline: {row['message']}")
    if site.share_gpu:
        require(TIMES_ARE_NOT in row["message"], f"{name} does not say that its time is not real.")
        link = f"one GPU shared by {site.world} ranks"
        require(row["hardware"]["link"] == link, f"{name} was timed over {row['hardware']['link']}, not {link}.")
    require(row["hardware"] and row["source_print"] and row["versions_print"], f"{name} does not tell what ran it.")


def sweep(site: Site) -> Figures:
    """A space is measured, and known when it is asked again."""
    space, store = str(site.space("sweep", site.questions.sweep)), str(site.store("sweep"))
    first, again = (site.commands.ask("sweep", space, "--json", "--store", store, within_s=SWEEP_S) for _ in range(2))
    came, known = (accounted(answer, site.questions.sweep.count) for answer in (first, again))
    for which, summary in (("first", came), ("second", known)):
        count = summary["measurement"]
        require(count == site.questions.sweep.count, f"{count} schedules have a time in the {which} sweep.")
    sources = {row["source"] for row in again.document()["rows"] if row["outcome"] == "measurement"}
    require(sources == {"recorded"}, f"What was known is {', '.join(sources)} in the second sweep.")
    best = came["best"]
    return {
        "command_s": first.seconds, "again_s": again.seconds, "schedules": came["measurement"],
        "best": {"scheme": best["scheme"], "axes": best["axes"], "time_s": best["time_s"]},
    }  # fmt: skip


def accounted(answer: Answer, count: int) -> dict[str, Any]:
    """The summary of a sweep, each of whose *count* schedules has a time or a sentence."""
    document = answer.document()
    summary: dict[str, Any] = document["summary"]
    require_sound(document["rows"])
    told = summary["measurement"] + summary["failure"]
    require(told == count, f"{told} of {count} schedules have a time or a sentence.")
    silent = [row for row in document["rows"] if row["outcome"] == "failure" and not row["message"]]
    require(not silent, f"{len(silent)} failures have no sentence.")
    return summary


# Check of bad input: each command is refused in a sentence, with its status and one document.

REFUSE_S = 60.0
ABREAST = 4
"""So many commands at once: each imports for a second."""


def bad_input(site: Site) -> Figures:
    """All of them, several at once."""
    names, slowest_s = list(REFUSED), 0.0
    for first in range(0, len(names), ABREAST):
        some = names[first : first + ABREAST]
        began = [site.commands.begin(*words_of(site, REFUSED[name])) for name in some]
        for name, each in zip(some, began, strict=True):
            answer = each.end(site.commands.left_s(REFUSE_S))
            _require_refused(name, answer, REFUSED[name])
            slowest_s = max(slowest_s, answer.seconds)
    return {"refusals": len(names), "slowest_s": slowest_s}


def words_of(site: Site, refused: Refused) -> list[str]:
    """The command's words, SIZES filled in."""
    return [word for part in refused.words.split() for word in (site.sizes(GEMM) if part == "SIZES" else [part])]


def _require_refused(name: str, answer: Answer, refused: Refused) -> None:
    require(answer.status == refused.status, f"{name}: {answer} Expected: status {refused.status}.")
    require(refused.sentence in answer.err, f"{name}: {answer} Expected: {refused.sentence!r}.")
    require("Traceback" not in answer.err, f"{name}: a traceback was printed.")
    if "--json" not in answer.words:
        require(not answer.out, f"{name}: something is on stdout: {answer.out[:100]}")
        return
    document = answer.document()
    failures = document.get("rows", [document])
    require(failures and all(each["outcome"] == "failure" and each["message"] for each in failures),
            f"{name}: its document is no failure.")  # fmt: skip


# Check of what people take away: a run becomes a report, a trace, a table and a recording.

WRITE_S = 60.0
NEEDED = ("altair", "vl_convert", "nbformat", "nbconvert", "nbclient", "bleach", "tinycss2", "bs4", "soupsieve")
"""What reports are written with; a GPU host that only measures may lack it."""


def report_and_trace(site: Site) -> Figures:
    """Measured for this, so that it does not depend on other checks."""
    store = str(site.store("report"))
    words = ("--world", str(site.world), "--protocol", QUICK, "--store", store)
    site.commands.ask("run", GEMM, *site.sizes(GEMM), *words, "--json", within_s=RUN_S)
    return {**_reports(site, store), **_exports(site, store)}


def _reports(site: Site, store: str) -> Figures:
    if absent := [name for name in NEEDED if util.find_spec(name) is None]:
        return {"report": f"skipped: {', '.join(absent)} not installed"}
    sizes = {}
    for name, sign in (("report.html", "<html"), ("report.md", "# ")):
        path = site.commands.folder / name
        site.commands.ask("report", "last", "-o", str(path), "--store", store, within_s=WRITE_S)
        text = path.read_text()
        require(sign in text, f"{name} does not look like a report.")
        require("fused" in text, f"{name} names no fused schedule.")
        sizes[name] = len(text)
    return {"report_characters": sizes}


def _exports(site: Site, store: str) -> Figures:
    folder = site.commands.folder
    for kind, name in (("perfetto", "trace.json"), ("recording", "run.jsonl"), ("parquet", "rows.parquet")):
        words = ("--to", kind, "-o", str(folder / name), "--store", store)
        site.commands.ask("export", "last", *words, within_s=WRITE_S)
    recorded = [json.loads(line) for line in (folder / "run.jsonl").read_text().splitlines()]
    require(recorded, "The recording is empty.")
    return {**_trace(site, (folder / "trace.json").read_text()), "recorded": len(recorded)}


def _trace(site: Site, text: str) -> Figures:
    """Of the measured fused schedule all ranks are there, and on GPUs their SMs."""
    events = json.loads(text)["traceEvents"]
    names = [event["args"]["name"] for event in events if event["ph"] == "M"]
    steps = [event for event in events if event["ph"] == "X"]
    ranks = {name.rpartition(" ")[2] for name in names if name.startswith("fused(") and ", measured, rank " in name}
    require(len(ranks) == site.world, f"The trace has {len(ranks)} ranks of the measured fused schedule.")
    sms = {name for name in names if name.startswith("SM ")}
    require(sms or not site.on_gpus, "The trace has no track of an SM.")
    require(steps and all(event["dur"] >= 0 for event in steps), "A step of the trace ends before it begins.")
    return {"trace_steps": len(steps), "trace_sms": len(sms) if site.on_gpus else NO_GPU}


# Checks of two clients at once: they take turns with all ranks, and gangs of one rank do not wait for each other.


def two_clients(site: Site) -> Figures:
    """Two sweeps of all ranks at once take turns, and both come to their end."""
    answers = _both(site, "client", site.questions.sweep, site.world)
    return {"command_s": [answer.seconds for answer in answers]}


def two_gangs(site: Site) -> Figures:
    """Two gangs of one rank are timed at the same moment, on GPUs each on its own."""
    if site.share_gpu:
        return {"gangs": "skipped: ranks that share a GPU are 2 or more, and two gangs need a GPU each"}
    answers = _both(site, "gang", site.questions.alone, 1)
    first, second = (_timed(site, f"gang-{number}") for number in range(2))
    pairs = [(one, other) for one in first for other in second if one.overlap_s(other) > 0]
    require(bool(pairs), "No block of one gang was timed while one of the other was.")
    overlap_s = sum(one.overlap_s(other) for one, other in pairs)
    figures = {"command_s": [answer.seconds for answer in answers], "both_timed_s": overlap_s}
    if not site.on_gpus:
        return figures | {"gpus": NO_GPU}
    same = sum(bool(one.gpus & other.gpus) for one, other in pairs)
    require(not same, f"{same} of {len(pairs)} pairs of blocks were timed at the same moment on the same GPU.")
    return figures | {"gpus": len(set().union(*(block.gpus for pair in pairs for block in pair)))}


@dataclass(slots=True)
class TimedBlock:
    """When a block of a gang was timed, in Unix time, and on which GPUs."""

    start: float
    stop: float
    gpus: set[str] = field(default_factory=set)

    def overlap_s(self, other: TimedBlock) -> float:
        """Seconds in which both were timed."""
        return max(0.0, min(self.stop, other.stop) - max(self.start, other.start))


def _both(site: Site, name: str, space: SpaceFile, world: int) -> list[Answer]:
    """What two clients came to that sweep *space* at once, each with a store of its own."""
    path = str(site.space(name, space, world))
    began = [site.commands.begin("sweep", path, "--json", "--store", str(site.store(f"{name}-{number}")))
             for number in range(2)]  # fmt: skip
    answers = [each.end(site.commands.left_s(SWEEP_S)) for each in began]
    for answer in answers:
        require(answer.status == 0, str(answer))
        count = accounted(answer, space.count)["measurement"]
        require(count == space.count, f"{count} of {space.count} schedules have a time.")
    return answers


def _timed(site: Site, name: str) -> list[TimedBlock]:
    """The blocks of the last run of a store; a gang may have another GPU in each."""
    with Store(site.store(name)) as store:
        recorded = store.recorded(store.run("last")["id"])
    blocks: dict[str | None, TimedBlock] = {}
    for measured, samples in recorded:
        moments = [sample.at for sample in samples]
        block = blocks.setdefault(measured.block, TimedBlock(min(moments), max(moments)))
        block.start, block.stop = min(block.start, *moments), max(block.stop, *moments)
        block.gpus.update(each["gpu"] for each in measured.conditions if "gpu" in each)
    return list(blocks.values())


# Checks of what goes wrong in mid-sweep: Ctrl-C, a rank killed, one stopped. All is told, and the next run works.

STOP_S = 20.0
"""Ctrl-C ends a sweep in about two seconds, on a busy host later."""
HANG_S = 200.0
"""A silent rank is given up after its deadline; then the rest of the sweep is measured."""
SAMPLES = 40
"""So many in the store are of a sweep that is well under way."""


def ctrl_c(site: Site) -> Figures:
    """The command ends at once, says so, and what was measured is kept."""
    with _sweeping(site, "ctrl_c") as (sweep, store):
        seen = len(store.samples_since(0)[0])
        began_at = time.monotonic()
        sweep.signal(signal.SIGINT)
        answer = sweep.end(site.commands.left_s(STOP_S))
        stop_s = time.monotonic() - began_at
        require(answer.status == 130, f"{answer} Expected: status 130.")
        summary = answer.document()["summary"]
        require(summary["stopped"] is True, "The document does not say that the sweep was stopped.")
        status, kept = store.run(summary["run"])["status"], len(store.samples_since(0)[0])
    require(status == "cancelled", f"The store calls the stopped run {status}.")
    require(kept >= seen, f"{seen} samples were stored before the stop, and {kept} after it.")
    _require_calm(answer)
    idle_s = site.wait_idle(READY_S)
    return {"stop_s": stop_s, "ranks_idle_s": idle_s, "samples_kept": kept, "measured": summary["measurement"],
            **_works(site, "ctrl_c")}  # fmt: skip


def rank_killed(site: Site) -> Figures:
    """SIGKILL of one rank: the sweep goes on without it, and says what it cost."""
    return _fault(site, "rank_killed", signal.SIGKILL, SWEEP_S)


def rank_stopped(site: Site) -> Figures:
    """SIGSTOP of one rank: it is found, told, and replaced."""
    return _fault(site, "rank_stopped", signal.SIGSTOP, HANG_S)


def _fault(site: Site, name: str, number: signal.Signals, within_s: float) -> Figures:
    """*number* for the last rank in the midst of a sweep."""
    victim = max(site.ranks(), key=lambda row: str(row["name"]))["rank_pid"]
    with _sweeping(site, name) as (sweep, store):
        began_at, moment = time.monotonic(), time.time()
        os.kill(victim, number)
        try:
            answer = sweep.end(site.commands.left_s(within_s))
        finally:
            _resume(victim)
        end_s = time.monotonic() - began_at
        failures = [row for row in _outcomes(store) if row["outcome"] == "failure"]
        later = [row for row in _outcomes(store) if row["outcome"] == "measurement" and row["at"] > moment]
    summary = accounted(answer, site.questions.long.count)
    _require_calm(answer)
    # a baseline that stood beside the schedules counts as well
    require(
        answer.status == (1 if failures else 0), f"{answer} Expected: 1 where something failed, {len(failures)} did."
    )
    stages = {row["stage"] for row in failures}
    require(stages <= {"lost", "hang", "launch", "cancelled"}, f"Failures are of the stages {', '.join(stages)}.")
    require(later, "Nothing was measured after the fault.")
    ran_again = summary["run_again"]
    sentences = [each["message"] for each in (*sorted(failures, key=_cause), *ran_again)]
    require(sentences, "No sentence tells of the fault.")
    idle_s = site.wait_idle(READY_S)
    pids = [row["rank_pid"] for row in site.ranks()]
    require(victim not in pids, "The rank process that was hit is still the one of its worker.")
    told_s = min((row["at"] - moment for row in failures), default=None)
    return {
        "told_s": told_s, "end_s": end_s, "ranks_idle_s": idle_s, "measured": summary["measurement"],
        "failed": len(failures), "ran_again": len(ran_again), "sentence": sentences[0], **_works(site, name),
    }  # fmt: skip


@contextmanager
def _sweeping(site: Site, name: str) -> Iterator[tuple[Began, Store]]:
    """A long sweep that is well under way, and its store."""
    space, path = site.space(name, site.questions.long), site.store(name)
    with Store(path) as store:
        sweep = site.commands.begin("sweep", str(space), "--json", "--store", str(path))
        try:
            site.commands.wait(f"{SAMPLES} samples being stored", SWEEP_S,
                               lambda: len(store.samples_since(0)[0]) >= SAMPLES, sweep)  # fmt: skip
            yield sweep, store
        finally:
            if sweep.runs:
                sweep.kill()


def _outcomes(store: Store) -> list[dict[str, Any]]:
    return [row for row in store.rows(store.run("last")["id"]) if row["source"] == "measured"]


def _cause(failure: dict[str, Any]) -> bool:
    """What was only cancelled comes after what broke the gang."""
    return bool(failure["stage"] == "cancelled")


def _works(site: Site, name: str) -> Figures:
    """The same ranks measure the next problem."""
    words = ("--world", str(site.world), "--protocol", QUICK, "--store", str(site.store(f"{name}-after")))
    answer = site.commands.ask("run", GEMM, *site.sizes(GEMM), *words, "--json", within_s=RUN_S)
    require(all(row["correct"] for row in answer.document()["rows"]), "A result after the fault is wrong.")
    return {"next_run_s": answer.seconds}


def _require_calm(answer: Answer) -> None:
    require("Traceback" not in answer.err, f"A traceback was printed: {answer}")


def _resume(pid: int) -> None:
    """Nothing stays stopped, whoever ends it."""
    with suppress(psutil.Error):
        if psutil.Process(pid).status() == psutil.STATUS_STOPPED:
            os.kill(pid, signal.SIGCONT)


# The table of checks before a release, and the loop that judges them: none is left out because another one failed.

Check = Callable[[Site], Figures]
FIRST, LAST = "cluster", "nothing_left"
"""The first starts the cluster; the last one ends it."""


def table(operators: Sequence[str]) -> dict[str, Check]:
    """Every check by its name, in order."""
    return {
        FIRST: cluster,
        "doctor": doctor,
        "bad_input": bad_input,
        **{name: partial(operator, name=name) for name in operators},
        "sweep": sweep,
        "two_clients": two_clients,
        "two_gangs": two_gangs,
        "report_and_trace": report_and_trace,
        "ctrl_c": ctrl_c,
        "rank_killed": rank_killed,
        "rank_stopped": rank_stopped,
        LAST: nothing_left,
    }


def nothing_left(site: Site) -> Figures:
    """The cluster ends when it is told to, and leaves no process and no shared memory."""
    began_at = time.monotonic()
    site.down()
    left = site.left_behind()
    require(not left, f"{len(left)} things outlive the cluster: {', '.join(left)}.")
    return {"down_s": time.monotonic() - began_at, "ranks_seen": len(site.pids)}


def results(site: Site, checks: dict[str, Check]) -> Iterator[Result]:
    """What each of *checks* came to."""
    for name, check in checks.items():
        yield judged(site, name, check)


def judged(site: Site, name: str, check: Check) -> Result:
    """What *check* came to; whatever it raises is told of it alone."""
    began_at = time.monotonic()
    note: str | None = None
    try:
        require(site.commands.left_s(1.0) > 0, "No time was left to begin it.")
        note = None if name == FIRST else site.ready()
        figures = check(site)
    except Exception as error:
        sentence = str(error) if isinstance(error, Miss) else f"{type(error).__name__}: {error}"
        sentence = f"{note} {sentence}" if note else sentence
        return Result(name, FAILED, time.monotonic() - began_at, sentence)
    finally:
        site.commands.end_all()
    return Result(name, PASSED, time.monotonic() - began_at, note, figures)


def tell(result: Result) -> None:
    """A line for who waits."""
    line = f"{result.outcome:8} {result.check:22} {result.seconds:6.1f} s  {result.message or ''}".rstrip()
    print(line, file=sys.stderr, flush=True)
