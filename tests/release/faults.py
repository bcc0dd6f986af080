"""Checks of what goes wrong in mid-sweep: Ctrl-C, a rank killed, one stopped. All is told, and the next run works."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psutil

from tests.release.commands import Answer, Began, require
from tests.release.measuring import QUICK, RUN_S, SWEEP_S, accounted
from tests.release.questions import GEMM
from tests.release.site import READY_S, Figures, Site
from workbench.results.store import Store

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
        status, kept = store.run("last")["status"], len(store.samples_since(0)[0])
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
