"""A report with all that it was made from, as a folder or a zip: command, question, rows, machine and citation."""

from __future__ import annotations

import io
import json
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from nbformat import NotebookNode

from kernels.machine import toml
from workbench import machines
from workbench.experiment.question import commands, space_text
from workbench.reports.render import page
from workbench.reports.run_report import NO_COMMAND
from workbench.results import files, frames
from workbench.results.comparison import with_ratios
from workbench.results.files import EXPORTS, REPORTS, SIGNATURE, FileKind, FileTarget
from workbench.results.rows import Row
from workbench.results.store import Store

REPORT, ROWS, AGAIN, QUESTION, CITATION = (
    "report.html", "rows.parquet", "measure_again.sh", "question.toml", "CITATION.cff",
)  # fmt: skip
"""Names of the files; each machine has a file of its name besides."""
EARLIEST = (1980, 1, 1, 0, 0, 0)
"""The date of the files in a zip: the same report gives the same zip."""


def parts(store: Store, run: str, report: NotebookNode, *, login: bool = False) -> dict[str, bytes]:
    """The files of the *report* of *run* by name. *login*: the author in the citation is the login of who made it."""
    known = store.run(run)
    rows = store.rows(known["id"])
    of_machines = _machines(rows)
    question = space_text(known["experiment"])
    content = {
        REPORT: page(report).encode(),
        AGAIN: _again(known, of_machines, has_question=bool(question)).encode(),
        ROWS: _parquet(rows),
        CITATION: citation(known, login=login).encode(),
        **{f"machine_{name}.toml": _signed(text).encode() for name, (text, _) in of_machines.items()},
    }
    return {**content, QUESTION: _signed(question).encode()} if question else content


def _signed(text: str) -> str:
    return f"{text}# {SIGNATURE}\n"


def _machines(rows: Sequence[Row]) -> dict[str, tuple[str, str]]:
    """Text and digest of today's description of each machine of *rows* that is known here, by name."""
    known = (machines.known(name) for name in dict.fromkeys(str(row["machine"]) for row in rows))
    return {machine.name: (toml(machine), machine.digest) for machine in known if machine is not None}


def _again(run: Mapping[str, Any], of_machines: Mapping[str, tuple[str, str]], *, has_question: bool) -> str:
    """A script with the commands that measure *run* again, or a remark that says why there is none."""
    written = commands(run["experiment"])
    if not written and has_question:
        written = [f"workbench sweep {QUESTION} --fresh"]
    remarks = [] if written else [_remark(NO_COMMAND)]
    name, digest = (run["provenance"].get(key) for key in ("machine", "machine_digest"))
    if name in of_machines and of_machines[name][1] != digest:
        remarks.append(_remark(f"The description of {name} was {digest} when this was measured; the one here is "
                               f"{of_machines[name][1]}."))  # fmt: skip
    lines = ["#!/bin/sh", _remark(f"Measures run {run['id']} again: {run['title']}"), *remarks, *written]
    return _signed("\n".join(lines) + "\n")


def _remark(text: str) -> str:
    """*text* as a remark of a script, on one line: what an imported file says becomes no command."""
    return "# " + " ".join("".join(each if each.isprintable() else " " for each in text).split())


def _parquet(rows: Sequence[Row]) -> bytes:
    with tempfile.TemporaryDirectory(prefix="workbench-rows-") as folder:
        return frames.export(frames.frame(with_ratios(rows)), "parquet", Path(folder) / ROWS).read_bytes()


def citation(run: Mapping[str, Any], *, login: bool = False) -> str:
    """The citation of *run* in the Citation File Format 1.2: its measurements, and the software that made them."""
    provenance, started = run["provenance"], datetime.fromtimestamp(run["started_at"]).astimezone()
    author = {"name": f"Author of run {run['id']}"}
    user = provenance.get("user") if login else None
    software = {
        "type": "software", "title": "Overlap Workbench", "authors": [{"name": "Overlap Workbench contributors"}],
        "version": (provenance.get("versions") or {}).get("overlap-workbench") or _version(), "license": "Apache-2.0",
        **({"commit": commit} if (commit := str(provenance.get("git_commit") or "").rstrip("+")) else {}),
    }  # fmt: skip
    work = {
        "cff-version": "1.2.0",
        "message": "Please cite these measurements, and the software that made them.",
        "type": "dataset",
        "title": " ".join(f"{run['title'] or 'Measurements'}, run {run['id']}".split()),
        "authors": [{**author, "alias": user} if user else author],
        "version": run["id"],
        "date-released": started.strftime("%Y-%m-%d"),
        "references": [software],
    }
    # a value in JSON is one in YAML
    lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in work.items()]
    return _signed("\n".join(lines) + "\n")


def _version() -> str:
    try:
        return version("overlap-workbench")
    except PackageNotFoundError:  # a folder of sources that is not installed
        return "unknown"


# Written whole or not at all, as a zip or a folder.


def write_zip(target: FileTarget, content: Mapping[str, bytes]) -> Path:
    """Writes the files *content* as one zip to *target*; ValueError says what is in the way."""
    return target.write(REPORTS["zip"], zipped(content))


def zipped(content: Mapping[str, bytes]) -> bytes:
    """The files *content* as one zip: the same files give the same bytes."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.comment = SIGNATURE.encode()
        for name, data in content.items():
            archive.writestr(zipfile.ZipInfo(name, EARLIEST), data, zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def write_folder(target: FileTarget, content: Mapping[str, bytes]) -> Path:
    """Writes the files *content* into the folder of *target*, which is made if it does not exist; all or none."""
    folder, is_new = target.path, not target.path.exists()
    written = [(replace(target, path=folder / name), _kind(name), data) for name, data in content.items()]
    try:
        with files.readable_errors(folder, "report"):
            folder.mkdir(exist_ok=True)
        files.write(written)
    except ValueError:
        if is_new:
            with suppress(OSError):
                folder.rmdir()
        raise
    return folder


def _kind(name: str) -> FileKind:
    return REPORTS["html"] if name == REPORT else EXPORTS["parquet"] if name == ROWS else files.COMPANION
