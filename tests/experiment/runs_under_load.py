"""Forty runs on a quiet computer and forty at load 8: how many of them say that others used the cores.

`python -m tests.experiment.runs_under_load` measures both here, prints a line for each run and both shares, and
replaces RECORD. It takes about half an hour, and says something only while nobody else uses the computer. `--loads 0`
or `--runs 5` are for a look: they print, and replace nothing.
"""

import argparse
import io
import json
import tempfile
import time
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cluster.hosts import usable_cores
from cluster.launch import local
from tests.experiment.forecasts_against_runs import facts
from tests.load import load
from workbench import cli
from workbench.results.quiet import BUSY_SHARE
from workbench.results.store import Store

RECORD = Path(__file__).parents[2] / "data" / "checks" / "runs_under_load.json"
LOADS, COUNT = (0, 8), 40
ASKED = ("run", "gemm_all_to_all", "--preset", "laptop_overlap", "--protocol", "quick", "--fresh")
SAID = "not trustworthy"
"""What the terminal says of a run that others disturbed, and of no other."""
SETTLE_S = 5.0
"""Ranks have started, and the load of before has ended, after this time, s."""


@dataclass(frozen=True)
class TimedRun:
    """One run of the command."""

    load: int
    said: bool
    """Whether its last words were that its times are not trustworthy."""
    share: float
    """The largest share of the cores that others had during one of its schedules."""
    timed_again: int
    """Blocks that were timed twice."""
    fused_s: float
    """The least time of `fused`."""
    took_s: float


def timed_run(asked: Sequence[str], store: Path, busy: int) -> TimedRun:
    """Runs the command *asked* while *busy* other processes compute, and reads what it said and stored."""
    printed, began = io.StringIO(), time.monotonic()
    with redirect_stdout(printed):
        status = cli.status([*asked, "--store", str(store)])
    took_s = time.monotonic() - began
    if status:
        raise RuntimeError(f"The run ended with status {status}: {printed.getvalue()}")
    with Store(store) as opened:
        run = opened.run()
        rows = [row for row in opened.rows(run["id"]) if row["source"] == "measured" and row["part"] == "whole"]
    shares = [row["others_share"] for row in rows]
    if None in shares:
        raise RuntimeError("Nobody read what others used of the cores.")
    return TimedRun(busy, SAID in " ".join(printed.getvalue().split()), max(shares),
                    run["provenance"].get("timed_again", 0),
                    min(row["time_s"] for row in rows if row["scheme"] == "fused"), round(took_s, 2))  # fmt: skip


def said_share(runs: Sequence[TimedRun], busy: int) -> float:
    """The share of the *runs* at load *busy* that said it."""
    of_load = [run.said for run in runs if run.load == busy]
    return sum(of_load) / len(of_load)


def recorded(path: Path = RECORD) -> list[TimedRun]:
    """The runs of the record."""
    return [TimedRun(**each) for each in json.loads(path.read_text())["runs"]]


def line(run: TimedRun) -> str:
    """*run* as a line of text."""
    said = "said" if run.said else "not said"
    return (f"load {run.load}: {said:8}  others had {run.share:4.0%}  fused {run.fused_s * 1e3:6.1f} ms  "
            f"{run.timed_again} timed again  {run.took_s:5.1f} s")  # fmt: skip


def measured(loads: Sequence[int], count: int) -> list[TimedRun]:
    """*count* runs at each of *loads*, one after the other, on warm ranks."""
    runs = []
    with local(max(2, usable_cores()), gpus=0, published=False) as cluster, tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store.sqlite"
        asked = (*ASKED, "--cluster", cluster.address)
        timed_run(asked, store, 0)  # ranks compile and meet
        for busy in loads:
            with load(busy):
                time.sleep(SETTLE_S)
                for _ in range(count):
                    runs.append(timed_run(asked, store, busy))
                    print(line(runs[-1]), flush=True)
    return runs


def record(runs: Sequence[TimedRun], before: dict[str, Any], path: Path = RECORD) -> None:
    """Replaces the record with *runs*; *before*: what was known when they began."""
    said = {f"load {busy}": said_share(runs, busy) for busy in dict.fromkeys(run.load for run in runs)}
    written = {**before, "asked": " ".join(("workbench", *ASKED)), "busy_above": BUSY_SHARE, "said": said,
               "runs": [asdict(run) for run in runs]}  # fmt: skip
    path.write_text(json.dumps(written, indent=1) + "\n")


def main() -> None:
    """Measures, and replaces the record unless less than all was measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--loads", type=int, nargs="+", default=LOADS, help="busy processes (default: 0 and 8)")
    parser.add_argument("--runs", type=int, default=COUNT, help=f"runs at each load (default: {COUNT})")
    options = parser.parse_args()
    before = facts(
        "runs of one command on warm CPU ranks, and whether each said that others used the cores; a load is the "
        "number of other busy processes", "tests.experiment.runs_under_load"
    )  # fmt: skip
    runs = measured(options.loads, options.runs)
    for busy in dict.fromkeys(options.loads):
        of_load = [run for run in runs if run.load == busy]
        print(f"load {busy}: {sum(run.said for run in of_load)} of {len(of_load)} runs said that others used the cores")
    if tuple(options.loads) == LOADS and options.runs == COUNT:
        record(runs, before)


if __name__ == "__main__":
    main()
