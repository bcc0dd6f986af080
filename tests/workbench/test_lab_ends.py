"""A lab that is killed has no time to end anything: what it started ends by itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

GONE_S = 60.0
LAB = """
import time
from workbench.lab import jupyter
with jupyter() as server:
    print(server.process.pid, server.address(), flush=True)
    time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux's kernel tells a process of its parent's end")
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGQUIT], ids=["killed", "ctrl_backslash"])
def test_jupyterlab_does_not_outlive_its_lab(end: signal.Signals, tmp_path: Path) -> None:
    environment = {**os.environ, "JUPYTER_RUNTIME_DIR": str(tmp_path / "runtime")}
    with subprocess.Popen([sys.executable, "-c", LAB], stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        server = psutil.Process(int(process.stdout.readline().split()[0]))
        try:
            process.send_signal(end)
            gone, _ = psutil.wait_procs([server], timeout=GONE_S)
            assert gone, f"{server} listens on"
        finally:
            if server.is_running():
                server.kill()
