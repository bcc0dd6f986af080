"""The second NCCL: found by its folder, refused by version, checksum and absence, fetched into a folder of its own."""

import re
import subprocess
import time
from pathlib import Path
from threading import current_thread
from typing import Any

import pytest
import torch

from kernels.backends.base import Hang
from kernels.backends.triton.gin import library, wheel
from kernels.backends.triton.gin.wheel import Wheel
from kernels.files import Failed
from kernels.schedule import Refusal


def unpacked(
    folder: Path, version: str = wheel.VERSION, listed: bytes = b"device", bitcode: bytes = b"device"
) -> Wheel:
    """A wheel with the layout of NVIDIA's and nothing of its content."""
    made = Wheel(folder)
    made.library.parent.mkdir(parents=True)
    made.library.write_bytes(b"no library")
    made.bitcode.write_bytes(listed)
    digest = wheel._digest(made.bitcode)
    made.bitcode.write_bytes(bitcode)
    facts = folder / f"nvidia_nccl_cu13-{version}.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Name: nvidia-nccl-cu13\nVersion: {version}\nLicense-Expression: Theirs\n")
    (facts / "RECORD").write_text(f"{wheel.RESULT}{made.bitcode.name},sha256={digest},6\n")
    return made


def test_what_lacks_is_one_sentence_with_what_would_be_accepted(tmp_path: Path) -> None:
    whole = unpacked(tmp_path / "whole")
    assert whole.lacking() is None
    assert whole.license() == "Theirs"
    absent = Wheel(tmp_path / "nowhere").lacking() or ""
    assert "lacks 2 of 2 files: libnccl.so.2, libnccl_device.bc" in absent
    older = unpacked(tmp_path / "older", version="2.30.7").lacking() or ""
    assert "2.30.7 != 2.32.3" in older
    changed = unpacked(tmp_path / "changed", bitcode=b"another").lacking() or ""
    assert "another checksum" in changed
    assert all(f"Accepted: `{wheel.FETCH}`" in sentence for sentence in (absent, older, changed))


def test_what_is_no_library_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=r"libnccl.so.2 cannot be loaded: .* Accepted: `workbench doctor --fetch-nccl`"):
        library.Nccl(unpacked(tmp_path / "wheel").library, torch.device("cpu"))


def pip(monkeypatch: pytest.MonkeyPatch, version: str = wheel.VERSION, error: str = "") -> list[list[str]]:
    """Stands for pip: unpacks a wheel where it is told to, or fails with *error*."""
    commands: list[list[str]] = []

    def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        if not error:
            unpacked(Path(command[command.index("--target") + 1]), version)
        return subprocess.CompletedProcess(command, 1 if error else 0, "", error)

    monkeypatch.setattr(subprocess, "run", run)
    return commands


def test_the_wheel_is_fetched_once_into_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = pip(monkeypatch)
    folder = tmp_path / "share" / "nccl"
    assert wheel.fetch(folder).lacking() is None
    assert wheel.fetch(folder).folder == folder
    assert len(commands) == 1
    assert f"{wheel.PACKAGE}=={wheel.VERSION}" in commands[0]
    assert {"--no-deps", "--target"} < set(commands[0]), "the environment is not changed"
    assert [path.name for path in folder.parent.iterdir()] == ["nccl"], "no second folder is left"


def test_without_a_network_the_fetch_says_why_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pip(monkeypatch, error="WARNING: retrying\nERROR: No matching distribution found for nvidia-nccl-cu13\n\n")
    with pytest.raises(Failed, match=r"was not fetched into .*: ERROR: No matching distribution .* Accepted: "):
        wheel.fetch(tmp_path / "nccl")
    assert not list(tmp_path.iterdir())


def test_a_mirror_with_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip(monkeypatch, version="2.33.1")
    with pytest.raises(Failed, match=r"2.33.1 != 2.32.3"):
        wheel.fetch(tmp_path / "nccl")


def test_the_structures_have_the_sizes_of_the_headers() -> None:
    """Compared when the module is imported; the offsets that kernels or checks read are compared here."""
    assert library.DevComm.ginContextCount.offset == 152
    assert library.CommProperties.ginType.offset == 36
    assert library.DevCommRequirements.ginContextCount.offset == 60
    assert library.DevCommRequirements.ginSignalCount.offset == 64


# Calls of the library that all ranks make together have a deadline, and its thread never keeps the process.


class SlowLibrary(library.Nccl):
    """A library whose calls take *seconds*, or fail."""

    def __init__(self, seconds: float, error: str = "") -> None:
        self.device, self._seconds, self._error = torch.device("cpu"), seconds, error

    def call(self, name: str, *arguments: Any) -> None:
        time.sleep(self._seconds)
        if self._error:
            raise library.NcclError(self._error)


def test_a_peer_that_does_not_come_ends_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "TOGETHER_SECONDS", 0.05)
    with pytest.raises(Hang, match=r"ncclCommInitRank waited 0.05 s for the ranks of other hosts"):
        SlowLibrary(0.3).call_together("ncclCommInitRank")
    SlowLibrary(0.0).call_together("ncclCommInitRank")


def test_what_the_library_says_of_a_call_is_passed_on() -> None:
    with pytest.raises(library.NcclError, match="no interface"):
        SlowLibrary(0.0, "ncclCommInitRank failed with 2: no interface").call_together("ncclCommInitRank")


def test_the_thread_of_a_call_takes_this_ranks_gpu_first(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[Any] = []
    slow = SlowLibrary(0.0)
    slow.device = torch.device("cuda", 3)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: log.append((current_thread().name, device.index)))
    monkeypatch.setattr(slow, "call", lambda name: log.append((current_thread().name, name)))
    slow.call_together("ncclCommInitRank")
    assert log == [("ncclCommInitRank", 3), ("ncclCommInitRank", "ncclCommInitRank")]


def test_a_gpu_that_the_thread_cannot_take_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = SlowLibrary(0.0)
    monkeypatch.setattr(slow, "take_device", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        slow.call_together("ncclCommInitRank")


def test_a_library_of_something_else_is_refused() -> None:
    """The C library is one that every host can load; it has no function of NCCL."""
    with pytest.raises(Refusal, match=r"cannot be loaded: .*ncclGetErrorString"):
        library.Nccl(Path("libc.so.6"), torch.device("cpu"))


def header_fields(header: str, structure: str) -> list[str]:
    """Names of the members of a C *structure*, in order."""
    body = re.search(rf"struct {structure} {{(.*?)\n}}", header, re.DOTALL)
    assert body, f"{structure} is not in the header"
    code = re.sub(r"/\*.*?\*/|//[^\n]*", "", body[1], flags=re.DOTALL)
    return re.findall(r"(\w+)(?:\[\w+\])?\s*[,;]", code)


@pytest.mark.parametrize("structure", [library.CommProperties, library.DevCommRequirements])
def test_the_structures_have_the_members_of_the_headers_in_their_order(structure: Any) -> None:
    if (reason := wheel.lacking()) is not None:
        pytest.skip(reason)
    header = (wheel.FOLDER / "nvidia/nccl/include/nccl_device/host.h").read_text()
    names = header_fields(header, f"nccl{structure.__name__}")
    assert [name for name, _ in structure._fields_] == names
