"""The suite in two calls of pytest: what shares the cores, one process for each; then what times, on its own.

`python -m tests.parts [ARGUMENTS OF PYTEST]` is what `make test` calls. Tests that are marked `alone` share the cores
with nobody (conftest.py).
"""

import os
import subprocess
import sys
from collections.abc import Sequence

from xdist.scheduler import LoadFileScheduling

PROCESSES_MOST = 4
"""Each imports torch and may have gangs of its own: a gigabyte or two."""
UNCOMPILED = "PYTHONDONTWRITEBYTECODE"
PLAIN, AGAIN = "--assert=plain", "--last-failed"
"""Pytest rewrites each `assert` so that a failure shows its values: 20 s for all files, in every process."""
FAILED, NO_TESTS = 1, 5
"""Pytest's status when a test failed, and when nothing was selected."""
GO_ON = (0, 1, NO_TESTS)
"""After Ctrl-C and after a wrong option there is no second call."""

TRITON = "tests/kernels/backends/triton"
TOGETHER = (
    # estimates of the same recordings, which a process keeps
    ("tests/analysis/test_residuals.py", "tests/analysis/test_coverage.py", "tests/machines/test_held_out.py",
     "tests/gpu/test_documents.py"),
    # gangs whose ranks interpret kernels: six processes that import torch and Triton
    tuple(f"{TRITON}/{name}.py" for name in (
        "test_architectures", "test_collectives", "test_concurrent", "test_decomposed", "test_gathered",
        "test_interpreted", "test_relayed", "test_scattered", "test_sums_in_packets", "test_timeline",
        "gin/test_kernels")),
    # gangs of CPU ranks
    tuple(f"tests/kernels/backends/cpu/{name}.py" for name in ("test_backend", "test_hosts", "test_two_hosts")),
    # the replay, which numba compiles for half a minute in a tree that is new
    tuple(f"tests/simulator/cache/{name}.py" for name in ("test_replay", "test_reuse", "test_study", "test_traces")),
)  # fmt: skip
"""Files of which one process runs all, since it keeps what takes long to make."""


class Scheduling(LoadFileScheduling):
    """Gives a file's tests to one process, and files that need the same to the same."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return next((files[0] for files in TOGETHER if file in files), file)


def calls(cores: int, arguments: Sequence[str]) -> list[list[str]]:
    """The arguments of each of the two calls of pytest."""
    # a file's tests stay in one process, in their order: they share gangs and rendered pages
    together = ["--part=together", f"--numprocesses={min(cores, PROCESSES_MOST)}", "--dist=loadfile",
                "--no-loadscope-reorder"]  # fmt: skip
    return [[*together, *arguments], ["--part=alone", *arguments]]


def status(statuses: Sequence[int]) -> int:
    """Of both calls: a part in which nothing was selected is as good as one that passed, if the other had tests."""
    ran = [one for one in statuses if one != NO_TESTS]
    return max(ran, default=NO_TESTS)


def main(arguments: Sequence[str]) -> int:
    """Run both parts, so that each prints what failed in it, which then runs once more with the values of its asserts.

    Hundreds of processes import the same files: where Python is told not to keep what it compiles, each does it again.
    """
    statuses, environment = [], {name: value for name, value in os.environ.items() if name != UNCOMPILED}
    for call in calls(len(os.sched_getaffinity(0)), arguments):
        command = [sys.executable, "-m", "pytest", *call]
        statuses.append(subprocess.run([*command, PLAIN], env=environment).returncode)
        if statuses[-1] == FAILED:
            print("Once more what failed, with the values of its asserts:", flush=True)
            subprocess.run([*command, AGAIN], env=environment)
        if statuses[-1] not in GO_ON:
            break
    return status(statuses)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
