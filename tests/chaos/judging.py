"""What must hold of a client that ended and of the store it leaves: breaches as sentences, one trial once more."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

from kernels import schedule
from kernels.outcome import ROW_KEYS
from tests.chaos.sweeping import LINK, Client, Schedule
from workbench.results.decode import RUNNING
from workbench.results.store import Store

# What must hold of a client that ended and of the store it leaves: plain values in, breaches as sentences out.

Row = Mapping[str, Any]
NORMAL = (0, 1)
REFUSED = 2
"""Where every schedule was: ranks that die again and again as they start are nobody to wait for."""
ROOT = Path(__file__).parents[2]
TOLD = 400
"""So many characters of what a client said are told."""
STOPPED = 130
STOPS = frozenset({signal.SIGINT, signal.SIGTERM})
"""A command that gets one of them ends in good order, with what it has."""


@dataclass(frozen=True)
class Ended:
    """How a client ended and what it showed."""

    status: int
    printed: str
    said: str
    signals: Sequence[int] = ()
    """What was sent to it."""
    began_run: bool = False
    """Its store has a run that it began."""
    hung: bool = False
    asked: frozenset[Schedule] = field(default_factory=frozenset)

    @property
    def document(self) -> dict[str, Any] | None:
        """What it printed on standard output; None where that is not one document."""
        try:
            parsed = json.loads(self.printed)
        except ValueError:
            return None
        return parsed if isinstance(parsed, dict) else None

    @property
    def killed(self) -> bool:
        """By a signal that nobody answers: kill, Ctrl-C again, or one that came too early or when all was said."""
        if -self.status not in self.signals:
            return False
        said_all = self.document is not None
        again = sum(number in STOPS for number in self.signals) > 1
        return -self.status == signal.SIGKILL or said_all or again or not self.began_run

    @property
    def unbegun(self) -> bool:
        """Ctrl-C came while Python itself began, before it had read a line of this project."""
        ours = [line for line in self.said.splitlines() if line.lstrip().startswith(f'File "{ROOT}')]
        return signal.SIGINT in self.signals and self.said.endswith("KeyboardInterrupt\n") and not ours

    @property
    def run(self) -> str | None:
        """The run that its document is of."""
        shown = self.document
        return shown["summary"]["run"] if shown and "summary" in shown else None

    @property
    def refused(self) -> bool:
        """All that it was asked for was refused, one by one."""
        shown = self.document or {}
        return {row["stage"] for row in shown.get("rows", ()) if _is_asked(row)} == {"refused"}

    @property
    def complete(self) -> bool:
        """It measured all that it was asked for."""
        shown = self.document
        if self.status != 0 or shown is None:
            return False
        return self.asked == {_schedule(row) for row in shown.get("rows", ()) if _is_asked(row) and row["correct"]}


def breaches(ended: Ended) -> Iterator[str]:
    """Of one client alone."""
    if ended.hung:
        yield "it did not end by itself and was killed"
        return
    if "Traceback" in ended.said and not ended.unbegun:
        yield f"it printed a traceback: {ended.said.strip()[-TOLD:]}"
    if ended.killed or ended.unbegun:
        return
    stopped = STOPS.intersection(ended.signals)
    accepted = [*NORMAL, *([STOPPED] if stopped else []), *([REFUSED] if ended.refused else [])]
    if ended.status not in accepted:
        yield f"its status is {ended.status}, accepted: {', '.join(map(str, accepted))}"
    if ended.document is None:
        printed = f"{len(ended.printed)} characters that are not one document: {ended.printed[:120]!r}"
        yield f"it printed {printed}; its status is {ended.status}; it said: {ended.said[-TOLD:]!r}"
        return
    yield from untold(ended, bool(stopped))


def untold(ended: Ended, stopped: bool) -> Iterator[str]:
    """Every trial is measured, or a sentence says why not; who was stopped may leave the rest out."""
    shown = ended.document or {}
    if "rows" not in shown:
        if not is_sentence(shown.get("message")):
            yield f"it measured nothing and gives no reason: {ended.printed[:200]}"
        return
    settled = {_schedule(row) for row in shown["rows"] if _is_asked(row)}
    mute = [row["key"] for row in shown["rows"] if row["outcome"] == "failure" and not is_sentence(row["message"])]
    if mute:
        yield f"{len(mute)} failures have no sentence: {', '.join(mute[:3])}"
    missing = ended.asked - settled
    if missing and not stopped and not is_sentence(shown["summary"]["message"]):
        yield f"{len(missing)} of {len(ended.asked)} schedules are neither measured nor told: {sorted(missing)[0]}"


def differences(shown: Sequence[Row], stored: Sequence[Row]) -> Iterator[str]:
    """What the document shows is what the store holds, number by number."""
    ours = [_as_json(row) for row in shown]
    theirs = [_as_json(row) for row in stored]
    if len(ours) != len(theirs):
        yield f"{len(ours)} outcomes are shown and {len(theirs)} are stored"
        return
    for one, other in zip(ours, theirs, strict=True):
        if one != other:
            unlike = {key: (one[key], other[key]) for key in ROW_KEYS if one[key] != other[key]}
            yield f"outcome {one['key']} is shown otherwise than it is stored: {unlike}"


def faulty_rows(rows: Iterable[Row]) -> Iterator[str]:
    """Of the outcomes of one store: none twice, none wrong, none without words."""
    stored = list(rows)
    twice = Counter((row["run"], row["key"], row["block"], row["source"] == "estimated") for row in stored)
    for mark, count in twice.items():
        if count > 1:
            yield f"outcome {mark} is stored {count} times"
    for row in stored:
        if row["outcome"] == "measurement" and (row["correct"] is False or not row["time_s"]):
            yield f"a measurement is stored that is not right: {_as_json(row)}"
        if row["outcome"] == "failure" and not is_sentence(row["message"]):
            yield f"a failure is stored without a sentence: {_as_json(row)}"


def faulty_samples(rows: Iterable[Row], samples: Iterable[Row]) -> Iterator[str]:
    """Every measurement of this store has all its samples, each once."""
    counted = Counter((each["run"], each["key"], each["block"]) for each in samples)
    for row in rows:
        if row["outcome"] == "measurement" and row["source"] == "measured":
            count = counted[row["run"], row["key"], row["block"]]
            if count != row["samples"]:
                yield f"outcome {row['key']} of {row['block']} tells of {row['samples']} samples, {count} are stored"


def is_sentence(text: Any) -> bool:
    """Something that a person can read to its end."""
    return isinstance(text, str) and len(text) > 5 and text.rstrip()[-1] in ".!?)" and "Traceback" not in text


def _is_asked(row: Row) -> bool:
    return row["part"] == "whole" and row["source"] != "estimated"


def _schedule(row: Row) -> Schedule:
    """As `Space.schedules` has it: a row shows axes at their defaults that a schedule omits."""
    shown = schedule.Schedule.from_json(row)
    return row["operator"], json.dumps(shown.to_json(), sort_keys=True)


def _as_json(row: Row) -> dict[str, Any]:
    """As a document writes it: numbers that are not finite are null."""
    values = ((key, row[key]) for key in ROW_KEYS)
    finite = {key: None if isinstance(value, float) and not isfinite(value) else value for key, value in values}
    return json.loads(json.dumps(finite, default=str))


# What the stores of ended clients hold, beside what these clients showed; then one trial is measured once more.

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
        troubles = list(breaches(ended))
        document, run = ended.document, ended.run
        if document is not None and run is not None:
            with Store(client.store) as store:
                troubles += differences(document["rows"], store.rows(run))
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
            troubles += faulty_rows(rows)
            troubles += faulty_samples(rows, store.samples_since(0)[0])
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
