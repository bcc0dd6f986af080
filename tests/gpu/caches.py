"""What our kernels read from DRAM on a GPU, as its counters say: `python -m tests.gpu.caches OUT.json [SECONDS]`."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernels import files
from kernels.outcome import Measurement
from kernels.trial import PROTOCOLS
from tests.gpu import caches_drawn, caches_kernels, gang, recording
from tests.gpu.caches_rank import REPEATS
from workbench.simulator.cache import counters

# ncu around one process: which metrics it knows here, and the launches of a batch of kernels, by kernel.

GRID = "Grid Size"
"""The column of ncu's raw page that holds the launch grid."""
UNITS = {"ns": 1e-9, "nsecond": 1e-9, "us": 1e-6, "usecond": 1e-6, "ms": 1e-3, "msecond": 1e-3, "Kbyte": 1e3,
         "Mbyte": 1e6, "Gbyte": 1e9}  # fmt: skip
"""Factor of each unit of ncu to seconds or bytes; a unit that is not listed has factor 1."""
FLAGS = ("--cache-control", "all", "--clock-control", "none", "--print-units", "base", "--csv", "--page", "raw",
         "--profile-from-start", "off", "--target-processes", "all")  # fmt: skip
LISTED = re.compile(r"lts__t_sectors_srcunit_(tex|ltcfabric)(_op_read)?(_lookup_(hit|miss))?")
QUERY_S = 120.0
END_S = 20.0
"""What a process that is to end may take."""
TAIL = 900
"""Characters that are kept of what ncu and its process said."""
Row = dict[str, Any]


class NotCounted(RuntimeError):
    """Why a batch has kernels without numbers; *is_of_a_kernel*: others may be counted all the same."""

    def __init__(self, sentence: str, *, is_of_a_kernel: bool) -> None:
        super().__init__(sentence)
        self.is_of_a_kernel = is_of_a_kernel


class Counter:
    """One ncu. *program* is its command, *rank* that of the process which launches the kernels of a batch."""

    def __init__(self, program: Sequence[str] = (), rank: Sequence[str] = ()) -> None:
        self._program = list(program) or [installed()]
        self._rank = list(rank) or [sys.executable, "-m", "tests.gpu.caches_rank"]
        self.metrics: tuple[str, ...] = counters.METRICS
        self.listed: list[str] = []
        """Metrics of the L2 that ncu lists here, for who wonders about one that it does not know."""
        self._works = False

    @property
    def flags(self) -> str:
        return " ".join(FLAGS)

    def version(self) -> str:
        """The last line that `ncu --version` says."""
        told = subprocess.run([*self._program, "--version"], capture_output=True, text=True, timeout=QUERY_S,
                              check=False)  # fmt: skip
        return told.stdout.strip().splitlines()[-1] if told.stdout.strip() else "not told"

    def choose_metrics(self) -> None:
        """Leaves out of counters.METRICS what this ncu and GPU do not have.

        Where it lists none of those that are needed, its list is of another form than we know: all are tried.
        """
        try:
            text = subprocess.run([*self._program, "--query-metrics"], capture_output=True, text=True, timeout=QUERY_S,
                                  check=False).stdout  # fmt: skip
        except subprocess.TimeoutExpired:
            text = ""
        names = {line.split()[0].split(".")[0] for line in text.splitlines() if line.split()}
        self.listed = sorted(filter(LISTED.fullmatch, names))
        known = tuple(name for name in counters.METRICS if name.split(".")[0] in names)
        self.metrics = known if set(counters.NEEDED) <= set(known) else counters.METRICS
        if missing := [name for name in counters.METRICS if name not in known]:
            print(f"ncu does not list {', '.join(missing)}; asked for are {len(self.metrics)} metrics", flush=True)

    def count(self, batch: Sequence[Row], limit_s: float) -> None:
        """Gives each kernel of *batch* its `repeats`, and the one that failed its sentence.

        NotCounted where some have neither. Where ncu counts nothing at all, it is asked for fewer metrics.
        """
        for metrics in self._fewer():
            self.metrics = metrics
            try:
                self._counted(batch, limit_s)
            except NotCounted as error:
                if error.is_of_a_kernel or metrics == counters.NEEDED:
                    raise
                print(f"{error}\nOnce more with fewer than {len(metrics)} metrics.", flush=True)
            else:
                self._works = True
                return

    def _fewer(self) -> list[tuple[str, ...]]:
        """The metrics of now, and as long as nothing was counted what is left of them without the less important."""
        less = [tuple(name for name in self.metrics if name in kept) for kept in (counters.TEX_ONLY, counters.NEEDED)]
        return list(dict.fromkeys([self.metrics, *([] if self._works else less)]))

    def _counted(self, batch: Sequence[Row], limit_s: float) -> None:
        with tempfile.TemporaryDirectory() as folder:
            files = [Path(folder) / name for name in ("batch.json", "ended.txt", "ncu.csv")]
            files[0].write_text(json.dumps(list(batch)))
            status, said = run([*self._program, *FLAGS, "--metrics", ",".join(self.metrics), "--log-file",
                                str(files[2]), *self._rank, str(files[0]), str(files[1])], limit_s)  # fmt: skip
            ended, text = (file.read_text() if file.exists() else "" for file in files[1:])
        numbers = {int(line) for line in ended.split()}
        over = [row for row in batch if row["number"] in numbers]
        launches = csv_rows(text) if has_rows(text) else []
        if launches or status == 0:
            for row, repeats in zip(over, grouped(launches, len(over)), strict=True):
                row["repeats"] = repeats
        words = [line for line in text.splitlines() if line.startswith("==")]
        self._judge(batch, status, "\n".join([*words, said])[-TAIL:].strip())

    def _judge(self, batch: Sequence[Row], status: int | None, said: str) -> None:
        """NotCounted where a kernel has no repeats; the first of those failed, unless time was over."""
        waiting = [row for row in batch if not row.get("repeats")]
        if not waiting:
            return
        why = "took too long" if status is None else f"ended with status {status}"
        is_own = len(waiting) < len(batch) or "Traceback" in said
        sentence = f"ncu {why}, {len(batch) - len(waiting)} of {len(batch)} kernels are counted: {said}"
        if is_own and status is not None:  # the last line alone: others name folders
            waiting[0]["failed"] = f"ncu {why}: {said.splitlines()[-1] if said else 'nothing'}"
        raise NotCounted(sentence, is_of_a_kernel=is_own or status is None)


def installed() -> str:
    """ncu's command, on the PATH or beside CUDA's compiler; FileNotFoundError where there is none."""
    if name := shutil.which("ncu"):
        return name
    from torch.utils.cpp_extension import CUDA_HOME

    beside = Path(CUDA_HOME or "") / "bin" / "ncu"
    if CUDA_HOME and beside.exists():
        return str(beside)
    raise FileNotFoundError(f"0 of 2 places have ncu: PATH, bin of CUDA_HOME = {CUDA_HOME}.")


def run(command: Sequence[str], limit_s: float) -> tuple[int | None, str]:
    """Status and output of *command*; None where it outlasted *limit_s*, and was ended with all that it started."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               start_new_session=True)  # fmt: skip
    try:
        said, _ = process.communicate(timeout=limit_s)
        return process.returncode, said
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        try:
            said, _ = process.communicate(timeout=END_S)
        except subprocess.TimeoutExpired:
            said = ""
        return None, said


def grouped(launches: list[Row], count: int) -> list[list[Row]]:
    """The launches of the first *count* kernels, REPEATS each; NotCounted where there are others.

    Behind them may be launches of a kernel that failed, fewer than REPEATS.
    """
    short = len(launches) - count * REPEATS
    if short < 0 or short >= REPEATS:
        raise NotCounted(f"ncu has {len(launches)} launches, and {count} kernels x {REPEATS} ended.",
                         is_of_a_kernel=False)  # fmt: skip
    return [launches[at * REPEATS : (at + 1) * REPEATS] for at in range(count)]


# ncu's CSV.


def has_rows(text: str) -> bool:
    """Whether *text* has the heading line of ncu's table."""
    return any(map(_is_heading, text.splitlines()))


def csv_rows(text: str) -> list[dict[str, float]]:
    """The metrics of each profiled launch, in order, from ncu's `--csv` output (`--page raw` or `details`).

    Times are in seconds and sizes in bytes; the number of programs is included where ncu reports the grid. Lines that
    ncu and the program print before the heading are skipped. ValueError says what is missing.
    """
    lines = text.splitlines()
    begin = next((at for at, line in enumerate(lines) if _is_heading(line)), None)
    if begin is None:
        raise ValueError('The text has no line that begins with "ID", 0 of 1. Accepted: what ncu --csv prints.')
    rows = list(csv.DictReader(io.StringIO("\n".join(line for line in lines[begin:] if not line.startswith("==")))))
    units = next((row for row in rows if not row["ID"]), {})  # of a raw page
    launches: dict[str, dict[str, float]] = {}
    for row in rows:
        if row["ID"]:
            launches.setdefault(row["ID"], {}).update(_numbers(row, units))
    return list(launches.values())


def _is_heading(line: str) -> bool:
    return line.startswith(('"ID",', "ID,"))


def _numbers(row: Mapping[str, str], units: Mapping[str, str]) -> dict[str, float]:
    """The metrics of one CSV line: all metrics of a launch on a raw page, a single one on a details page."""
    is_long = "Metric Name" in row
    cells = [(row["Metric Name"], row["Metric Value"], row["Metric Unit"])] if is_long else [
        (name, cell, units.get(name, "")) for name, cell in row.items()]  # fmt: skip
    numbers = {name: number * UNITS.get(unit, 1.0) for name, cell, unit in cells
               if name in counters.METRICS and (number := _number(cell)) is not None}  # fmt: skip
    programs = [int(number) for number in re.findall(r"\d+", row.get(GRID) or "")]
    return {**numbers, counters.PROGRAMS: float(math.prod(programs))} if programs else numbers


def _number(text: str) -> float | None:
    """The number in a cell, whose digits may be grouped by commas; None for a cell such as `n/a`."""
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


# What our kernels read from DRAM on a GPU, as its counters say: `python -m tests.gpu.caches OUT.json [SECONDS]`.
#
# `ncu` runs one process for each batch of kernels. OUT.json is written after each batch, and a second call goes on
# where the first one ended. Kernels with cache hints are timed as well, without ncu. `python -m tests.gpu.caches fit
# OUT.json` fits the reuse tier to half of the kernels, says how far it is off on the others, writes the fitted values
# into the device's file of data/caches, and puts OUT.json where tests, documents and charts read it. `python -m
# tests.gpu.caches OUT.json SECONDS drawn` has other kernels, to which nothing is fitted (`caches_drawn.py`), and times
# all of them.

SECONDS, BATCH_S, HINTS_S = 540.0, 150.0, 120.0
"""Of a call, of one process under ncu, and of the kernels that are timed."""
BATCH_MOST, FIRST_S = 24, 18.0
"""Kernels of one process, and seconds of one kernel until some were counted: 14 launches were seen to take 20 s."""
STRIKES = 3
"""So many batches in a row without any number, and the fault is not that of a kernel."""
TOGETHER = 4
"""Drawn kernels that are timed in turns: so many have their operands in memory at once."""
MARGIN = 1.3
"""A batch may take so much longer for each kernel than the one before it."""


def measure(out: Path, seconds: float, counter: Counter | None = None, *, drawn: bool = False) -> bool:
    """Counts as many kernels as *seconds* allow that are not in *out* yet; whether none is left.

    *drawn*: those of caches_drawn in place of those of caches_kernels.
    A kernel that fails keeps the sentence that says why, and is not tried again.
    """
    until, counter = time.monotonic() + seconds, counter or Counter()
    document = json.loads(out.read_text()) if out.exists() else _begun(counter, drawn=drawn)
    counter.choose_metrics()
    document |= {"metrics": list(counter.metrics), "listed": counter.listed}
    pace, strikes = FIRST_S, 0
    while batch := next_batch(document["kernels"], pace, until - time.monotonic()):
        began = time.monotonic()
        try:
            counter.count(batch, min(BATCH_S, until - began))
        except NotCounted as error:
            print(error, flush=True)
            strikes = 0 if any(row.get("repeats") for row in batch) else strikes + 1
            nothing_works = not any(row.get("repeats") for row in document["kernels"])
            if strikes == STRIKES or (nothing_works and not error.is_of_a_kernel):
                raise
            if len(batch) == 1:
                batch[0].setdefault("failed", str(error))
        pace = max(0.5, (time.monotonic() - began) / max(1, sum(_is_over(row) for row in batch)))
        _written(out, document)
        if not any(_is_timed(row) for row in document["kernels"]) and until - time.monotonic() > HINTS_S:
            time_them(sittings(document["kernels"]), HINTS_S)
            _written(out, document)
    return not any(not _is_over(row) for row in document["kernels"])


def next_batch(kernels: Sequence[Row], pace: float, left_s: float) -> list[Row]:
    """The kernels to count next, at *pace* seconds each: as many as there is time for; none where that is over."""
    waiting = caches_kernels.in_turns([row for row in kernels if not _is_over(row)])
    if left_s < min(MARGIN * pace, BATCH_S):
        return []
    return waiting[: min(BATCH_MOST, max(1, int(min(BATCH_S, left_s) / (MARGIN * pace))))]


def _is_over(row: Row) -> bool:
    return bool(row.get("repeats") or row.get("failed"))


def _is_timed(row: Row) -> bool:
    return "seconds" in row or "not_timed" in row


def _begun(counter: Counter, *, drawn: bool) -> Row:
    facts = recording.provenance(caches_kernels.MACHINE)
    facts |= {"launched_by": "tests/gpu/caches.py, one process under ncu for each batch", "ncu": counter.version()}
    chosen = caches_drawn if drawn else caches_kernels
    return {"provenance": facts, "seed": chosen.SEED, "flags": counter.flags, "metrics": [],
            "kernels": chosen.kernels()}  # fmt: skip


def _written(out: Path, document: Row) -> None:
    files.write(out, json.dumps(document, indent=1) + "\n")
    kernels = document["kernels"]
    done, failed = (sum(bool(row.get(key)) for row in kernels) for key in ("repeats", "failed"))
    print(f"{done} of {len(kernels)} kernels are counted, {failed} failed", flush=True)


def sittings(kernels: Sequence[Row]) -> list[list[Row]]:
    """Those that are timed in turns: of hints all kernels of an operator, of drawn ones few, which nobody compares."""
    compared = [row for row in kernels if row["work"] == caches_kernels.COMPARED]
    if compared:
        return [[row for row in compared if row["operator"] == operator]
                for operator in dict.fromkeys(row["operator"] for row in compared)]  # fmt: skip
    return [list(kernels[begin : begin + TOGETHER]) for begin in range(0, len(kernels), TOGETHER)]


def time_them(groups: Sequence[Sequence[Row]], seconds: float, opened: gang.Opened = gang.gpu_bench) -> None:
    """Times the kernels of each group in turns, by the bench that times all trials."""
    timed = replace(PROTOCOLS["thorough"], name="hints")
    rows = {caches_kernels.trial(row, timed).key: row for group in groups for row in group}
    blocks = [[caches_kernels.trial(row, timed).to_json() for row in group] for group in groups]
    for news in gang.run(blocks, 1, seconds, opened):
        if isinstance(news, str):
            print(news, flush=True)
        elif isinstance(news[0], Measurement):
            rows[news[0].trial.key]["seconds"] = [round(one, 9) for one in news[0].samples[0]]
    for row in rows.values():
        if "seconds" not in row:
            row["not_timed"] = f"It was not timed within {seconds:.0f} s."


if __name__ == "__main__":
    if sys.argv[1] == "fit":
        from tests.gpu.caches_fit import main  # compiles estimates, for which a GPU host lacks what it needs

        main(Path(sys.argv[2]))
    else:
        seconds = float(sys.argv[2]) if len(sys.argv) > 2 else SECONDS
        is_whole = measure(Path(sys.argv[1]), seconds, drawn="drawn" in sys.argv[3:])
        print("All kernels are counted." if is_whole else "Some are left: the same command goes on.")
