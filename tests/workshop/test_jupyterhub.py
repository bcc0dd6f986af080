"""The documented configuration of JupyterHub is executed as the Hub does, and hands a student the cluster's file."""

from __future__ import annotations

import os
import pwd
import stat
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cluster import scheduler_file
from cluster.scheduler_file import SchedulerTarget, target_in, write_target
from workbench import resources

CONFIGURATION = Path(__file__).parents[2] / "docs" / "jupyterhub_config.py"


class Section(SimpleNamespace):
    """Stands for a section of `c`, whose traits may all be set."""


@pytest.fixture
def configured() -> dict[str, Any]:
    """What is defined once the configuration was executed, with its `c`."""
    c = SimpleNamespace(Spawner=Section(), JupyterHub=Section())
    defined: dict[str, Any] = {"get_config": lambda: c, "__file__": str(CONFIGURATION), "__name__": "config"}
    exec(compile(CONFIGURATION.read_text(), str(CONFIGURATION), "exec"), defined)
    return defined


def test_servers_open_the_explorer_with_our_extension(configured: dict[str, Any]) -> None:
    spawner = configured["c"].Spawner
    assert spawner.default_url.endswith("/explore.ipynb")
    assert (resources.notebooks_directory() / "explore.ipynb").is_file()
    assert spawner.args == [f"--LabApp.extra_labextensions_path={resources.labextensions_directory()}"]
    assert resources.labextensions_directory().is_dir()
    assert configured["c"].JupyterHub.bind_url.startswith("http://127.0.0.1"), "the Hub itself is behind a proxy"


def test_a_student_gets_the_cluster_where_notebooks_look_for_it(
    configured: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    known = pwd.getpwuid(os.getuid())
    student = pwd.struct_passwd((known.pw_name, "x", os.getuid(), os.getgid(), "", str(home), known.pw_shell))
    monkeypatch.setattr(pwd, "getpwnam", lambda name: student)
    real = subprocess.run

    def run(command: Any, *, env: dict[str, str], **options: Any) -> Any:
        return real(command, env=env | {"PYTHONPATH": str(CONFIGURATION.parents[1])}, **options)

    monkeypatch.setattr(subprocess, "run", run)
    configured["SCHEDULER_FILE"] = tmp_path / "scheduler.json"
    write_target(configured["SCHEDULER_FILE"], SchedulerTarget("tcp://127.0.0.1:4711"))
    spawner = SimpleNamespace(user=SimpleNamespace(name="student"), notebook_dir="")
    configured["c"].Spawner.pre_spawn_hook(spawner)

    assert (Path(spawner.notebook_dir) / "explore.ipynb").is_file()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    assert target_in(None).address == "tcp://127.0.0.1:4711"
    assert stat.S_IMODE(scheduler_file.path().stat().st_mode) == 0o600
