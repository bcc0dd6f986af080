"""The lab opens the explorer with a token and a cluster beside it, and leaves nothing behind."""

import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from workbench import lab, resources


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGHUP], ids=["ctrl_c", "closed_terminal"])
def test_the_lab_serves_the_explorer_to_who_has_its_token(tmp_path: Path, end: signal.Signals) -> None:
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "JUPYTER_RUNTIME_DIR": str(tmp_path / "runtime")}
    command = [sys.executable, "-m", "workbench.cli", "lab", "--no-browser", "--no-calibration", "--ranks", "1"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        parts = urlsplit(url)
        assert (parts.hostname, parts.path) == ("127.0.0.1", "/lab/tree/explore.ipynb")
        with urllib.request.urlopen(url, timeout=30) as page:
            assert page.status == 200
        with pytest.raises(urllib.error.HTTPError, match="403") as forbidden:
            urllib.request.urlopen(f"http://{parts.netloc}/api/contents", timeout=30)
        forbidden.value.close()
        everything = psutil.Process(process.pid).children(recursive=True)
        assert not any(parts.query.partition("=")[2] in " ".join(child.cmdline()) for child in everything)
        process.send_signal(end)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert (process.returncode, "Traceback" in err) == (0, False), err
    assert err.startswith("Cluster: 1 ranks at tcp://127.0.0.1:")
    _, alive = psutil.wait_procs(everything, timeout=10)
    assert not alive


def test_notebooks_of_a_wheel_are_copied_to_where_they_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site-packages" / "workbench"
    (package / "_notebooks").mkdir(parents=True)
    (package / "_notebooks" / lab.EXPLORER).write_text("{}")
    monkeypatch.setattr(resources, "__file__", str(package / "resources.py"))
    monkeypatch.setattr(resources, "notebooks_directory", lambda: package / "_notebooks")
    monkeypatch.setattr(resources, "runs_directory", lambda: tmp_path / "mine" / "runs")
    own = lab.notebooks()
    assert own == tmp_path / "mine" / "notebooks"
    (own / lab.EXPLORER).write_text("changed by its owner")
    assert (lab.notebooks() / lab.EXPLORER).read_text() == "changed by its owner"


def test_missing_notebooks_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "notebooks_directory", lambda: tmp_path)
    with pytest.raises(ValueError, match=r"explore\.ipynb is missing\. Install the workbench again"):
        lab.notebooks()
