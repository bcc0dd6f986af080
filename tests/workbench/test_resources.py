"""The workbench where it is installed: its files are found, and a laptop without Triton measures elsewhere."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kernels.hardware import Hardware, source_print, versions_print
from workbench import resources

# Notebooks, data and runs are found in a checkout and in an installed wheel.


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "workbench"
    folder.mkdir()
    monkeypatch.setattr(resources, "_PACKAGE", folder)
    return folder


def test_a_checkout_uses_its_own_folders(package: Path) -> None:
    assert resources.notebooks_directory() == package.parent / "notebooks"
    assert resources.data_directory() == package.parent / "data"
    assert resources.runs_directory() == package.parent / "data" / "runs"


def test_a_wheel_uses_what_it_carries(package: Path) -> None:
    (package / "_notebooks").mkdir()
    (package / "_data").mkdir()
    assert resources.notebooks_directory() == package / "_notebooks"
    assert resources.data_directory() == package / "_data"


def test_the_runs_of_a_wheel_lie_outside_of_it(package: Path) -> None:
    (package / "_data").mkdir()
    assert not resources.runs_directory().is_relative_to(package.parent)
    assert resources.runs_directory().name == "runs"


def test_this_checkout_is_found_from_the_package() -> None:
    assert (resources.data_directory().parent / "pyproject.toml").is_file()


# A laptop without Triton, with a CPU's torch, measures on GPUs elsewhere, and knows what these have measured.

THERE = {"torch": "2.13.0", "triton": "3.7.1", "numpy": "2.4.6", "numba": "0.68.1"}
GPUS = Hardware(model="NVIDIA H200", link="nvlink", memory_bytes=141 << 30)

LAPTOP = """
import sys
from contextlib import contextmanager
from dataclasses import replace
from importlib import metadata, util

def absent(what, known=metadata.version):
    if what == "triton":
        raise metadata.PackageNotFoundError(what)
    return "2.13.0+cpu" if what == "torch" else known(what)

metadata.version, sys.modules["triton"] = absent, None
from cluster import hosts
hosts.visible_gpus = lambda: ()
from tests.workbench.conftest import FakeCluster
from tests.workbench.test_resources import GPUS, THERE
from cluster.seating import Ranks
from workbench import cli
from workbench.cli import measuring, sessions
from workbench.machines.matching import RankSite

ranks = FakeCluster()
ranks.gang = lambda world, backend: Ranks(THERE, GPUS if world == 2 else replace(GPUS, link="one rank"))

@contextmanager
def connected(address, num_ranks, backend, *, share_gpu=False):
    yield ranks

@contextmanager
def place(address, backend):
    yield RankSite(GPUS, 2)

measuring.connected, sessions._place = connected, place
words = ["run", "gemm_all_to_all", "--shape", "m=1024", "--shape", "n=512", "--shape", "k=256", "--protocol", "quick"]
words += ["--backend", "triton", "--machine", "h200_nvl2", "--world", "2", "--scheme", "fused", "--json"]
sent = []
for _ in range(2):
    status = cli.status([*words, "--cluster", "tcp://gpus:8786", "--store", sys.argv[1]])
    sent.append(len(ranks.lists))
print(status, *sent, file=sys.stderr)
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """Of one question, asked twice where no Triton can be imported."""
    store = tmp_path_factory.mktemp("laptop") / "store.sqlite"
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", LAPTOP, str(store)]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=60)


@pytest.mark.slow
def test_what_the_gpus_measure_is_of_their_versions_and_hardware(answers: subprocess.CompletedProcess[str]) -> None:
    assert answers.returncode == 0, answers.stderr
    first = json.loads(answers.stdout.splitlines()[0])
    assert (first["outcome"], first["source"]) == ("measurement", "measured")
    assert first["hardware"] == GPUS.to_json()
    assert first["versions_print"] == versions_print(THERE), "not the laptop's"
    assert first["source_print"] == source_print("triton")


def test_what_they_have_measured_is_known_to_the_laptop(answers: subprocess.CompletedProcess[str]) -> None:
    second = json.loads(answers.stdout.splitlines()[1])
    assert (second["source"], second["hardware"]) == ("recorded", GPUS.to_json())
    assert answers.stderr.splitlines()[-1] == "0 2 2", "all baselines, then one block of both: for the first question"
