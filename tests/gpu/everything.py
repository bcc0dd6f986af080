"""All that docs/results/ says of GPUs, measured in one go: `python -m tests.gpu.everything OUT SECONDS [STEP ...]`.

Steps run one after the other, each in a process of its own with its own limit; SECONDS is for all of them. After each,
OUT/measured.tar.gz holds what there is so far, as it lies in data/, and OUT/log.txt what was said and how long each
step took: whatever ends this, what was measured until then is kept. GIT_COMMIT, in the environment, is written down.

Expected on two H200s: tables 5 to 8 minutes, one call in each graph 2 to 3, the rest 2 to 4. Where a run may take ten
minutes only, name some steps in one and the others in the next. Unpack with `tar -xzf measured.tar.gz -C data`; then
`python -m tests.gpu.documents` writes the documents.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ENDING_S = 5.0
"""So much is left for packing when the last step is stopped."""
LEAST_S = 20.0
"""A step does not begin with less: its ranks would just have started."""
TARBALL, LOG = "measured.tar.gz", "log.txt"


@dataclass(frozen=True, slots=True)
class Step:
    """One command, and the most that it may take."""

    name: str
    module: str
    arguments: tuple[str, ...]
    """{data}: the folder whose content becomes that of data/; {machine}: its name; {seconds}: what is left."""
    limit_s: float


def table(name: str, limit_s: float) -> Step:
    return Step(name, "tests.gpu.tables", ("{data}/recordings", "{seconds}", name), limit_s)


STEPS = (
    table("gemv", 150.0),
    table("embedding", 80.0),
    table("gemm", 80.0),
    table("layers", 300.0),
    table("gemv@latency", 60.0),
    table("short_layers@latency", 150.0),
    Step("tutorial", "tests.gpu.playground", ("{data}/probes/{machine}_tutorial.json",), 75.0),
    Step("litmus", "tests.gpu.litmus", ("{data}/probes/{machine}_litmus.json",), 140.0),
    Step("stamps", "tests.gpu.stamps", ("{data}/probes/{machine}_stamps.json",), 120.0),
)
START_S = 8.0
"""Between a table's own limit and that of its process: imports, and the last line of its log."""


def command(step: Step, data: Path, machine: str, limit_s: float) -> list[str]:
    """What runs *step*, which may take *limit_s*."""
    known = {"data": str(data), "machine": machine, "seconds": f"{max(1.0, limit_s - START_S):.0f}"}
    return [sys.executable, "-m", step.module, *(argument.format(**known) for argument in step.arguments)]


def run(step: Step, words: Sequence[str], log: Path, limit_s: float) -> str:
    """Runs *words*, whose output goes into *log*; in words how it ended. It is killed with all its processes."""
    with log.open("ab") as out:
        out.write(f"\n#### {step.name}: at most {limit_s:.0f} s\n".encode())
        out.flush()
        process = subprocess.Popen(words, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            status = process.wait(limit_s)
            ended = "done" if status == 0 else f"exit status {status}"
        except subprocess.TimeoutExpired:
            ended = f"stopped after {limit_s:.0f} s"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # its ranks, too
            process.wait()
    return ended


def pack(data: Path, target: Path) -> None:
    """All of *data* that holds anything into *target*, whole or not at all: an empty table replaces no good one."""
    unfinished = target.with_name(f"{target.name}.unfinished")
    with tarfile.open(unfinished, "w:gz") as archive:
        for path in sorted(data.rglob("*.json*")):
            if path.stat().st_size:
                archive.add(path, arcname=str(path.relative_to(data)))
    unfinished.replace(target)


def everything(steps: Sequence[Step], out: Path, seconds: float, machine: str) -> bool:
    """Whether all *steps* came to their end."""
    until, log, complete = time.monotonic() + seconds - ENDING_S, out / LOG, True
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        for name in ("recordings", "probes"):
            (data / name).mkdir()
        for step in steps:
            begin = time.monotonic()
            limit_s = min(step.limit_s, until - begin)
            if limit_s < min(LEAST_S, step.limit_s):
                ended = f"did not begin: {max(0.0, limit_s):.0f} s were left"
            else:
                ended = run(step, command(step, data, machine, limit_s), log, limit_s)
                pack(data, out / TARBALL)
            complete &= ended == "done"
            line = f"{step.name}: {ended}, {time.monotonic() - begin:.0f} s"
            with log.open("a") as told:
                print(f"#### {line}", file=told)
            print(line, flush=True)
    return complete


def main() -> int:
    from tests.gpu.tables import machine_here

    out, seconds, names = Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3:] or [step.name for step in STEPS]
    known = {step.name: step for step in STEPS}
    if unknown := [name for name in names if name not in known]:
        print(f"There are no steps {', '.join(unknown)}. Accepted: {', '.join(known)}.")
        return 2
    out.mkdir(parents=True, exist_ok=True)
    return 0 if everything([known[name] for name in names], out, seconds, machine_here().name) else 1


if __name__ == "__main__":
    sys.exit(main())
