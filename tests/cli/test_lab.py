"""The lab opens the explorer with a token and a cluster beside it, and leaves nothing behind, even when killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

import psutil
import pytest
import zmq

from workbench import lab, resources
from workbench.cli import lab as cli_lab

# The lab opens the explorer with a token and a cluster beside it, and leaves nothing behind.


@pytest.mark.slow
def test_the_lab_serves_the_explorer_to_who_has_its_token_until_its_terminal_closes(tmp_path: Path) -> None:
    """Ctrl-C ends the labs of tests/browser/explorer_lab.py, with status 0, too."""
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "JUPYTER_RUNTIME_DIR": str(tmp_path / "runtime")}
    command = [sys.executable, "-m", "workbench.cli", "lab", "--no-browser", "--no-calibration", "--ranks", "1"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        parts = urlsplit(url)
        assert (parts.hostname, parts.path) == ("127.0.0.1", "/lab/tree/explore.ipynb")
        with urllib.request.urlopen(url, timeout=100) as page:
            assert page.status == 200
        with pytest.raises(urllib.error.HTTPError, match="403") as forbidden:
            urllib.request.urlopen(f"http://{parts.netloc}/api/contents", timeout=100)
        forbidden.value.close()
        assert process.stderr is not None
        assert process.stderr.readline().startswith("Cluster: 1 ranks at tcp://127.0.0.1:")
        everything = psutil.Process(process.pid).children(recursive=True)
        assert not any(parts.query.partition("=")[2] in " ".join(child.cmdline()) for child in everything)
        process.send_signal(signal.SIGHUP)
        _, err = process.communicate(timeout=200)
    finally:
        process.kill()
        process.communicate()
    assert (process.returncode, "Traceback" in err) == (0, False), err
    _, alive = psutil.wait_procs(everything, timeout=60)
    assert not alive


def test_the_page_runs_exactly_the_explorer_that_we_ship() -> None:
    folder = resources.labextensions_directory() / "overlap-workbench"
    shipped = json.loads((resources.notebooks_directory() / lab.EXPLORER).read_text())
    cells = [[cell["cell_type"], "".join(cell["source"])] for cell in shipped["cells"]]
    assert json.loads((folder / "static" / "explorer.json").read_text()) == cells, "explorer.json follows the notebook"
    package = json.loads((folder / "package.json").read_text())
    assert package["name"] == folder.name, "JupyterLab looks for an extension in a folder of its name"
    script = (folder / package["jupyterlab"]["_build"]["load"]).read_text()
    assert f'["{package["name"]}"]' in script
    assert f'"{lab.SHOWN}"' in script, "page and lab mean the same word"


@pytest.mark.parametrize(
    ("screen", "flag", "opened"), [({}, False, 0), ({"DISPLAY": ":0"}, False, 1), ({"DISPLAY": ":0"}, True, 0)]
)
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there always is a screen")
def test_without_a_screen_no_browser_of_letters_is_opened(
    screen: dict[str, str],
    flag: bool,
    opened: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown: list[str] = []
    monkeypatch.setattr("webbrowser.open", shown.append)
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    for name, value in screen.items():
        monkeypatch.setenv(name, value)
    url = "http://127.0.0.1:1/lab/tree/explore.ipynb?a=b&token=secret"
    server = lab.Server(None, "secret", tmp_path / "lab.html")  # type: ignore[arg-type]
    cli_lab.show_address(url, server, no_browser=flag)
    assert capsys.readouterr().out == f"{url}\n"
    assert len(shown) == opened
    if opened:
        assert shown == [(tmp_path / "lab.html").as_uri()], "everybody can read the command line of a browser"
        assert stat.S_IMODE((tmp_path / "lab.html").stat().st_mode) == 0o600
        assert url.replace("&", "&amp;") in (tmp_path / "lab.html").read_text()


@pytest.mark.parametrize(
    "first", ["import workbench", "from workbench.charts.quick_start import import_jsonschema as start; start()"]
)
def test_who_asks_for_the_grammar_by_name_has_it(first: str, tmp_path: Path) -> None:
    (tmp_path / "rfc3987_syntax.py").write_text("is_valid_syntax = 'a library of the user'")
    code = f"{first}; import sys, rfc3987_syntax; sys.exit('user' not in rfc3987_syntax.is_valid_syntax)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", "")))}
    assert subprocess.run([sys.executable, "-c", code], timeout=200, env=environment).returncode == 0


@pytest.mark.parametrize("fails", ["_send", "_start_kernel"])
def test_the_address_is_shown_whatever_fails_while_the_kernel_is_warmed(
    fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise zmq.ZMQError(24, "Too many open files")

    monkeypatch.setattr(lab, "_send", lambda *_: b"")
    monkeypatch.setattr(lab, fails, broken)
    server = SimpleNamespace(address=lambda: "http://127.0.0.1:1/", token="t", explorer=lambda address: f"{address}lab")
    shown: list[str] = []
    with lab.opened(server, shown.append) as page:  # type: ignore[arg-type]
        page.check()
    assert shown == ["http://127.0.0.1:1/lab"]


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


def test_in_a_checkout_too_lessons_are_private_copies_that_follow_what_is_shipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped, runs = tmp_path / "notebooks", tmp_path / "data" / "runs"
    shipped.mkdir()
    for name in (lab.EXPLORER, "01.ipynb", "02.ipynb"):
        (shipped / name).write_text(f"{name}, first edition")
    monkeypatch.setattr(resources, "notebooks_directory", lambda: shipped)
    monkeypatch.setattr(resources, "runs_directory", lambda: runs)
    own = lab.notebooks()
    assert own.is_relative_to(runs), "git ignores runs"
    (own / "01.ipynb").write_text("run by its owner")
    assert (shipped / "01.ipynb").read_text() == "01.ipynb, first edition"
    for name in ("01.ipynb", "02.ipynb", "03.ipynb"):
        (shipped / name).write_text(f"{name}, second edition")
    assert lab.notebooks() == own
    texts = {path.name: path.read_text() for path in own.glob("*.ipynb")}
    assert texts == {
        lab.EXPLORER: f"{lab.EXPLORER}, first edition",
        "01.ipynb": "run by its owner",
        "02.ipynb": "02.ipynb, second edition",
        "03.ipynb": "03.ipynb, second edition",
    }


def test_the_lab_of_this_checkout_opens_a_folder_that_git_ignores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab, "_copy_folder", lambda shipped, target: None)
    monkeypatch.setattr(lab, "_follow", lambda shipped, copies: None)
    folder = resources.data_directory().parent
    lesson = str(lab.notebooks() / lab.EXPLORER)
    assert subprocess.run(["git", "check-ignore", "--quiet", lesson], cwd=folder, check=False).returncode == 0


def test_missing_notebooks_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "notebooks_directory", lambda: tmp_path)
    with pytest.raises(ValueError, match=r"explore\.ipynb is missing\. Install the workbench again"):
        lab.notebooks()


# A lab that is killed has no time to end anything: what it started ends by itself.

GONE_S = 60.0
LAB = """
import time
from workbench.lab import jupyter
with jupyter() as server:
    print(server.process.pid, server.address(), flush=True)
    time.sleep(600)
"""


@pytest.mark.slow(keeps=1)
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


@pytest.mark.parametrize(
    ("gpus", "ranks", "shares"),
    [(0, None, False), (1, None, True), (1, 4, True), (1, 1, False), (1, 9, False), (2, None, False)],
)
def test_the_ranks_of_a_lab_share_the_only_gpu_of_its_host(
    gpus: int, ranks: int | None, shares: bool, host_with_gpus: Callable[..., None]
) -> None:
    from cluster import launch

    host_with_gpus(gpus)
    assert launch.shares_by_default(ranks) is shares


def test_a_second_lab_uses_the_cluster_of_the_one_that_was_quicker(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It printed its address and ended: both started while no cluster was published."""
    from cluster import launch

    command = cli_lab

    def refuse(num_ranks: int | None, *, share_gpu: bool) -> None:
        raise ValueError("A second cluster does not start.")

    others = object()
    monkeypatch.setattr(launch, "local", refuse)
    monkeypatch.setattr(launch, "running", lambda: others)
    with contextlib.ExitStack() as stack:
        assert command._started_or_anothers(stack, 2) is others
        assert "Another lab was quicker" in capsys.readouterr().err
        monkeypatch.setattr(launch, "running", lambda: None)
        with pytest.raises(ValueError, match="does not start"):
            command._started_or_anothers(stack, 2)


def test_a_taken_port_and_a_home_that_cannot_be_used_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = lab

    with socket.create_server((place.LOOPBACK, 0)) as taken:
        number = taken.getsockname()[1]
        with pytest.raises(ValueError, match=rf"port {number} of 127.0.0.1 \(Address already in use\)\. Accepted"):
            place._check_place(number)
    (tmp_path / "home").write_text("")
    monkeypatch.setattr(place, "jupyter_runtime_dir", lambda: str(tmp_path / "home" / "runtime"))
    with pytest.raises(ValueError, match=r"runtime, which cannot be written .*a HOME whose"):
        place._check_place(None)


def test_the_doctor_goes_on_where_a_package_is_missing_and_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    monkeypatch.delitem(sys.modules, "workbench.reports.render", raising=False)
    monkeypatch.delitem(sys.modules, "workbench.reports.pictures", raising=False)
    assert "vl-convert-python" in cli_lab._browser()
