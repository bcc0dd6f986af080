"""JupyterHub for a workshop: each student's server opens the lab's notebooks, connected to the workshop's cluster.

On the host of the Hub, with the workbench installed in the Python that runs it:

    workbench workshop up --host 127.0.0.1 --students 30     # or a cluster elsewhere, and a copy of its file here
    jupyterhub -f jupyterhub_config.py                       # as root, so that servers run as their students

Students need no link: the Hub hands each of them the cluster's scheduler file when their server starts.
"""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from pathlib import Path
from typing import Any

from workbench import resources

c = get_config()  # type: ignore[name-defined]  # noqa: F821

SCHEDULER_FILE = Path("/etc/overlap-workbench/scheduler.json")
"""What lets students in: a copy of the file that `workbench cluster up` named, or of the lecturer's scheduler file in
`~/.local/state/overlap-workbench`. Whoever reads it may run programs on the cluster: only root should (mode 0600)."""

AS_STUDENT = """
import sys
from cluster import scheduler_file
from kernels import files
from workbench import lab
file = scheduler_file.path()
file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
files.write(file, sys.stdin.read(), mode=0o600)
print(lab.notebooks())
"""
"""Writes the scheduler file where notebooks look for it, copies the notebooks, and prints their folder."""
HANDOVER_S = 60.0


def hand_over(spawner: Any) -> None:
    """Give the student the scheduler file; as that student, because root must not write into somebody's folder."""
    student = pwd.getpwnam(spawner.user.name)
    is_root = os.geteuid() == 0
    done = subprocess.run(
        [sys.executable, "-c", AS_STUDENT],
        input=SCHEDULER_FILE.read_text(),
        env={"HOME": student.pw_dir, "PATH": os.defpath},
        cwd=student.pw_dir,
        user=student.pw_uid if is_root else None,
        group=student.pw_gid if is_root else None,
        extra_groups=os.getgrouplist(student.pw_name, student.pw_gid) if is_root else None,
        capture_output=True,
        text=True,
        check=True,
        timeout=HANDOVER_S,
    )
    spawner.notebook_dir = done.stdout.strip()


c.Spawner.pre_spawn_hook = hand_over
c.Spawner.default_url = "/lab/tree/explore.ipynb"
c.Spawner.args = [f"--LabApp.extra_labextensions_path={resources.labextensions_directory()}"]
c.Spawner.mem_limit = "2G"  # kept by spawners that can, such as SystemdSpawner
c.JupyterHub.concurrent_spawn_limit = 10  # thirty servers that import at once keep each other waiting
c.JupyterHub.bind_url = "http://127.0.0.1:8000"  # behind a proxy that speaks HTTPS
