"""What a gang is and what runs on it: its hardware, the print of our sources, the print of the libraries."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import grimp
import pytest

from kernels.hardware import (
    ABSENT,
    LIBRARIES,
    Hardware,
    WorkerDevice,
    different_versions,
    executed,
    hardware_of,
    source_print,
    source_prints,
    versions,
    versions_print,
)
from kernels.machine import BACKENDS

# What a gang is, made of what its workers found: the same for the same gang, another wherever times would be.

CPU = WorkerDevice(kind="cpu", model="a processor", processor="a processor", cores=(0, 1))
GPUS = [
    WorkerDevice(kind="gpu", model="NVIDIA H200", processor="a processor", cores=(0, 1), memory_bytes=141 << 30,
           uuid=f"GPU-{number}", links=tuple(f"GPU-{other}" for other in range(4) if other != number))
    for number in range(4)
]  # fmt: skip


@pytest.mark.parametrize(
    ("devices", "hosts", "words"),
    [
        ([CPU], "a", "a processor, 2 cores per rank, one rank"),
        ([CPU, CPU], "aa", "a processor, 1 core per rank, shared memory"),
        ([CPU] * 4, "aaaa", "a processor, 0.5 cores per rank, shared memory"),
        ([CPU] * 3, "aab", "a processor, 1 core per rank, network"),
        ([CPU, replace(CPU, cores=(2, 3))], "aa", "a processor, 2 cores per rank, shared memory"),
        ([CPU, replace(CPU, processor="another")], "ab",
         "1 x a processor and 1 x another, 2 cores per rank, network"),
        (GPUS[:2], "aa", "a processor, 1 core per rank, shared memory"),
    ],
)  # fmt: skip
def test_cpu_ranks_are_their_processor_their_cores_and_their_link(
    devices: list[WorkerDevice], hosts: str, words: str
) -> None:
    assert str(hardware_of("cpu", devices, hosts)) == words


def test_ranks_that_share_a_gpu_are_other_hardware_than_ranks_with_one_each() -> None:
    shared = [replace(GPUS[0], ranks_on_gpu=4, links=None)] * 2
    found, apart = hardware_of("triton", shared, "aa"), hardware_of("triton", GPUS[:2], "aa")
    assert found is not None
    assert apart is not None
    assert str(found) == "NVIDIA H200, 141 GiB, one GPU shared by 2 ranks"
    assert (found.shares_gpu, apart.shares_gpu) == (True, False)
    assert found.text != apart.text, "no time of the one is known for the other"
    old = {name: value for name, value in GPUS[0].to_json().items() if name != "ranks_on_gpu"}
    assert WorkerDevice.from_json(old) == GPUS[0], "a worker that says nothing has its GPU alone"


@pytest.mark.parametrize(
    ("devices", "words"),
    [
        ([replace(GPUS[0], ranks_on_gpu=2)] * 2, "one GPU shared by 2 hosts"),
        ([GPUS[0]] * 2, "one GPU shared by 2 hosts"),
        ([replace(gpu, ranks_on_gpu=4) for gpu in GPUS[:2]], "one GPU shared by 4 ranks on each of 2 hosts"),
        ([replace(gpu, uuid="") for gpu in GPUS[:2]], "network"),
    ],
)
def test_hosts_that_take_turns_on_a_gpu_are_not_linked_by_a_network(devices: list[WorkerDevice], words: str) -> None:
    hardware = hardware_of("triton", devices, "ab")
    assert hardware is not None
    assert hardware.link == words
    assert hardware.shares_gpu is (words != "network")


@pytest.mark.parametrize(
    ("devices", "hosts", "words"),
    [
        (GPUS[:1], "a", "NVIDIA H200, 141 GiB, one rank"),
        (GPUS, "aaaa", "NVIDIA H200, 141 GiB, nvlink"),
        (GPUS[:2], "ab", "NVIDIA H200, 141 GiB, network"),
        ([GPUS[0], replace(GPUS[1], links=())], "aa", "NVIDIA H200, 141 GiB, pcie"),
        ([GPUS[0], replace(GPUS[1], links=None)], "aa", "NVIDIA H200, 141 GiB, unknown link"),
        ([GPUS[0], replace(GPUS[1], model="NVIDIA H100", memory_bytes=80 << 30)], "aa",
         "1 x NVIDIA H100 and 1 x NVIDIA H200, 80 GiB, nvlink"),
    ],
)  # fmt: skip
def test_gpu_ranks_are_their_gpus_and_how_these_are_linked(devices: list[WorkerDevice], hosts: str, words: str) -> None:
    assert str(hardware_of("triton", devices, hosts)) == words


def test_ranks_without_a_gpu_are_no_gang_of_triton() -> None:
    assert hardware_of("triton", [GPUS[0], CPU], "aa") is None
    assert hardware_of("cpu", [], "") is None


def test_the_order_of_ranks_and_the_numbers_of_cores_and_gpus_change_nothing() -> None:
    assert hardware_of("triton", GPUS[:2], "aa") == hardware_of("triton", GPUS[:1:-1], "bb")
    assert hardware_of("cpu", [CPU], "a") == hardware_of("cpu", [replace(CPU, cores=(6, 7))], "b")


def test_what_is_sent_and_stored_is_the_same_again() -> None:
    for device in (CPU, *GPUS):
        assert WorkerDevice.from_json(json.loads(json.dumps(device.to_json()))) == device
    known = hardware_of("triton", GPUS, "aaaa")
    assert known is not None
    assert Hardware.from_json(json.loads(known.text)) == known
    assert known.text != replace(known, link="pcie").text


# The source print is of what the files in use execute; the versions print is of the libraries below them.

FILES = (
    "bench.py", "schemes/fused.py", "ops/cpu.py", "backends/__init__.py", "backends/cpu/__init__.py",
    "backends/cpu/heap.py", "backends/triton/__init__.py", "backends/triton/kernels/gemv.py",
    "backends/triton/probes/link.py", "backends/triton/playground.py",
)  # fmt: skip


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    """A folder of such files."""
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"NAME = {name!r}\n")
    return tmp_path


@pytest.mark.parametrize(
    ("changed", "whose"),
    [
        ("bench.py", {"cpu", "triton"}),
        ("schemes/fused.py", {"cpu", "triton"}),
        ("backends/__init__.py", {"cpu", "triton"}),
        ("backends/cpu/heap.py", {"cpu"}),
        ("backends/triton/kernels/gemv.py", {"triton"}),
        ("backends/triton/probes/link.py", set()),
        ("backends/triton/playground.py", set()),
        ("ops/cpu.py", set()),
        ("schemes/new.py", {"cpu", "triton"}),
    ],
)
def test_a_change_changes_the_prints_of_those_that_use_the_file(kernels: Path, changed: str, whose: set[str]) -> None:
    before = source_prints(kernels)
    (kernels / changed).write_text("NAME = 'changed'\n")
    after = source_prints(kernels)
    assert {backend for backend in BACKENDS if before[backend] != after[backend]} == whose


def test_names_of_files_and_which_file_holds_what_are_no_change(kernels: Path) -> None:
    before = source_prints(kernels)
    (kernels / "__pycache__").mkdir()
    (kernels / "__pycache__" / "bench.cpython-311.pyc").write_bytes(b"compiled")
    (kernels / "bench.py").rename(kernels / "bank.py")
    (kernels / "bank.py").write_text((kernels / "bank.py").read_text() + (kernels / "schemes" / "fused.py").read_text())
    (kernels / "schemes" / "fused.py").unlink()
    assert source_prints(kernels) == before


SOURCE = '''"""A file."""
from __future__ import annotations
import torch
from kernels.units import about as words, bytes_text
MOST: int = 3
"""A number."""
TABLE = {"a": 1.5, "b": (1, None, ...), **{}}
@dataclass(frozen=True)
class Rank(Base, metaclass=Kind):
    """A rank."""
    number: int = 0
    """Its number."""
    async def put(self, *tiles: int, last: bool = True, **rest: int) -> None:
        """Puts."""
        with suppress(OSError), lock as held:
            return f"{self.number!r:>{MOST}} of {len(tiles):,}" f" and {last=}" "\\n"
        for one in [x for x in tiles if (y := x) > 0]:
            match one:
                case {"a": 1, **others} | Rank(number=2) | [1, *_] if last:
                    yield from others
                case _:
                    try:
                        del one
                    except* ValueError as error:
                        raise KeyError from error
                    finally:
                        global MOST
        assert lambda a, /, b=1, *, c: ~a @ b // 1_000j, b"\\x00"  # why
'''
PRINT = "6f998b685d0c"
"""Of SOURCE, on every Python from 3.11 on."""


def test_the_print_of_a_source_is_equal_on_every_python() -> None:
    assert hashlib.sha256("\n".join(executed(SOURCE)).encode()).hexdigest()[:12] == PRINT


@pytest.mark.parametrize(
    ("old", "new", "is_change"),
    [
        ('"""Puts."""', '"""Sends."""', False),
        ("  # why", "  # because", False),
        ('"""A number."""\n', "", False),
        ("kernels.units", "kernels.words", False),
        ("bytes_text", "rate_text", True),
        ("about as words", "about", True),
        ("MOST: int = 3", "MOST: int = 4", True),
        ("import torch", "import numpy", True),
        ("of {len", "and {len", True),
    ],
)
def test_what_is_executed_counts_and_what_people_read_does_not(old: str, new: str, is_change: bool) -> None:
    assert SOURCE.count(old) == 1
    assert (executed(SOURCE.replace(old, new)) != executed(SOURCE)) == is_change


@pytest.mark.slow
def test_what_this_process_has_is_what_the_files_were_and_no_two_backends_share_it() -> None:
    assert {backend: source_print(backend) for backend in BACKENDS} == source_prints()
    assert len(set(source_prints().values())) == len(BACKENDS)


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_trial_imports_what_its_print_leaves_out(backend: str) -> None:
    """Refusals of all backends are words, which load alone (below); what else only others use, nothing imports."""
    others = "".join(rf"|backends\.{other}" for other in BACKENDS if other != backend)
    left_out = re.compile(rf"kernels\.(ops|backends\.triton\.(probes|playground){others})\b(?!\.refusals)")
    graph = grimp.build_graph("kernels", cache_dir=None)
    words = re.compile(r"kernels\.backends(\.\w+\.refusals)?$")
    in_use = [module for module in graph.modules if not left_out.match(module) and not words.match(module)]
    assert len(in_use) > 35
    imports = {module: graph.find_modules_directly_imported_by(module) for module in in_use}
    assert not {module: wrong for module, those in imports.items() if (wrong := set(filter(left_out.match, those)))}


def test_what_backends_refuse_and_compile_is_told_by_words_alone() -> None:
    """A CPU rank, a form and a shell ask; none of them has Triton, and torch takes them seconds."""
    asked = "kernels.backends.capabilities", "kernels.backends.triton.recipes"
    program = f"import {', '.join(asked)}, sys; print(*sys.modules)"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=200, check=True)
    loaded = {name.partition(".")[0] for name in told.stdout.split()}
    assert not loaded & {"torch", "triton", "numba", "cuda"}
    gpus = {name.removeprefix("kernels.backends.triton.").partition(".")[0] for name in told.stdout.split()
            if name.startswith("kernels.backends.triton.")}  # fmt: skip
    assert gpus == {"refusals", "recipes", "limits", "gin"}


def test_every_library_counts_and_an_absent_one_is_a_version() -> None:
    here = versions()
    assert set(here) == set(LIBRARIES)
    prints = {versions_print(here), *(versions_print({**here, name: "0.0.1"}) for name in LIBRARIES)}
    assert len(prints) == 1 + len(LIBRARIES)
    assert versions_print({"torch": "2.13.0"}) == versions_print({"torch": "2.13.0", "triton": ABSENT})


def test_what_differs_is_named_with_its_places() -> None:
    there = {"a": {"torch": "2.13.0", "numba": "1"}, "b": {"torch": "2.13.0+cpu", "numba": "1"}}
    assert different_versions(there) == "torch is 2.13.0 on a, 2.13.0+cpu on b"
    assert different_versions({"a": there["a"], "b": there["a"]}) == ""
