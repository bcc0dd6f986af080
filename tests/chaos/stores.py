"""What the stores of ended clients hold, beside what these clients showed; then one trial is measured once more."""

from __future__ import annotations

import contextlib
import json
import random
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.chaos import judging
from tests.chaos.judging import Ended
from tests.chaos.sweeping import LINK, Client
from workbench.results.decode import RUNNING
from workbench.results.store import Store

AGAIN_S = 120.0


class Stores:
    """Looks at clients that have ended, at their stores, and counts what is in them."""

    def __init__(self, again_s: float = AGAIN_S) -> None:
        self._again_s = again_s
        self.outcomes: Counter[str] = Counter()
        """By what they are; failures by their stage."""
        self.statuses: Counter[int] = Counter()
        self._measured: list[tuple[Path, dict[str, Any]]] = []
        """One measurement of each store that was looked through."""

    def look_at(self, client: Client) -> tuple[Ended, list[str]]:
        """How *client* ended, and what is wrong with it and with the run that it wrote."""
        ended = Ended(client.status, client.printed, client.said, client.signals, _began_run(client), client.hung,
                      client.space.schedules)  # fmt: skip
        self.statuses[ended.status] += 1
        troubles = list(judging.breaches(ended))
        document, run = ended.document, ended.run
        if document is not None and run is not None:
            with Store(client.store) as store:
                troubles += judging.differences(document["rows"], store.rows(run))
                if (status := store.run(run)["status"]) == RUNNING:
                    troubles.append(f"its run {run} says that it is {status}, and its process is gone")
        return ended, [f"{client}: {trouble}" for trouble in troubles]

    def look_through(self, path: Path) -> list[str]:
        """All of one store that nobody writes any more."""
        if not path.exists():
            return []
        troubles = [f"SQLite says: {text}" for text in _integrity(path) if text != "ok"]
        with Store(path) as store:
            rows = store.rows_since(0)[0]
            troubles += judging.faulty_rows(rows)
            troubles += judging.faulty_samples(rows, store.samples_since(0)[0])
            troubles += [f"run {run['id']} is {run['status']}, and nobody writes it" for run in store.runs(10_000)
                         if run["status"] == RUNNING]  # fmt: skip
        for row in rows:
            if row["source"] == "measured":
                self.outcomes[row["stage"] or row["outcome"]] += 1
        whole = [row for row in rows if row["outcome"] == "measurement" and row["part"] == "whole"]
        self._measured += [(path, row) for row in whole[-1:]]
        return [f"store {path.name}: {trouble}" for trouble in troubles]

    def once_more(self, seed: int, address: str) -> list[str]:
        """Measure a trial of the last store again: right again, with other operands, and as many bytes on the wire."""
        there = [each for each in self._measured if each[0].exists()]
        if not there:
            return ["no store holds a measurement, so that none can be repeated"]
        path, row = random.Random(seed).choice(there)
        with _gone_afterwards(path) as space:
            space.write_text(_space_of(row))
            words = ["sweep", str(space), "--cluster", address, "--store", str(path), "--fresh", "--json"]
            try:
                ran = subprocess.run([sys.executable, "-m", "workbench.cli", *words], capture_output=True, text=True,
                                     timeout=self._again_s)  # fmt: skip
            except subprocess.TimeoutExpired:
                return [f"trial {row['key']} was not measured again within {self._again_s:.0f} s"]
        rows = json.loads(ran.stdout).get("rows", []) if ran.stdout else []
        same = ("operator", "world", "scheme", "axes", "part")
        again = [each for each in rows if each["source"] == "measured" and all(each[key] == row[key] for key in same)]
        if not again:
            return [f"trial {row['key']} could not be measured again: {ran.stdout[-300:]} {ran.stderr[-300:]}"]
        return list(unlike(row, again))


def unlike(row: dict[str, Any], again: list[dict[str, Any]]) -> Iterator[str]:
    """In what a trial that is measured again differs from *row*, times and errors apart: its operands are new."""
    for each in again:
        if not each["correct"]:
            yield f"trial {row['key']} was right, and measured again it is not: {each}"
        elif each["wire_bytes_per_rank"] != row["wire_bytes_per_rank"]:
            yield f"trial {row['key']} moved {row['wire_bytes_per_rank']} bytes, then {each['wire_bytes_per_rank']}"


def _space_of(row: dict[str, Any]) -> str:
    """A space of this one schedule."""
    axes = "\n".join(f"{name} = {json.dumps([value])}" for name, value in row["axes"].items())
    return (f'operator = {json.dumps(row["operator"])}\npreset = "tiny"\nworld = [{row["world"]}]\n'
            f'protocol = "{row["protocol"]}"\nmachine = "{row["machine"]}"\nfabric = "{LINK}"\n'
            f'[scheme.{row["scheme"]}]\n{axes}\n')  # fmt: skip


@contextlib.contextmanager
def _gone_afterwards(beside: Path) -> Iterator[Path]:
    """A file beside *beside* that is gone afterwards."""
    path = beside.with_suffix(".toml")
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def _began_run(client: Client) -> bool:
    """Whether its store knows a run of this process."""
    if not client.store.exists():
        return False
    with contextlib.closing(sqlite3.connect(client.store)) as connection, contextlib.suppress(sqlite3.OperationalError):
        of_process = "SELECT 1 FROM runs WHERE json_extract(provenance, '$.process.pid') = ?"
        return connection.execute(of_process, (client.process.pid,)).fetchone() is not None
    return False


def _integrity(path: Path) -> list[str]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return [row[0] for row in connection.execute("PRAGMA integrity_check")]
