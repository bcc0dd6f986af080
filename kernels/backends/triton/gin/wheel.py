"""The NCCL that kernels are linked with: its wheel in a folder of its own, next to torch's. Needs no torch or Triton.

torch names another version exactly, so that a package manager cannot have both. The bitcode of the device functions and
the library that serves them must be of one version, and our structures are those of that version.
"""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.metadata import PathDistribution
from pathlib import Path

from kernels.files import Failed

PACKAGE, VERSION = "nvidia-nccl-cu13", "2.32.3"
"""The wheel of NVIDIA; its license, LicenseRef-NVIDIA-Proprietary, allows no copy in this repository."""
VERSION_CODE = 23203
"""VERSION as the library states it."""
DOWNLOAD = "300 MB, and 360 MB on disk"
FOLDER = Path(sys.prefix) / "share" / "overlap-workbench" / f"nccl-{VERSION}"
"""Where `workbench doctor --fetch-nccl` puts the wheel: each virtual environment has its own."""
FETCH = "workbench doctor --fetch-nccl"
FETCH_SECONDS = 900
"""Deadline of the download."""
SHIM = Path(__file__).with_name("shim.ll")
"""Our entry points over the device functions, as text."""
RESULT = "nvidia/nccl/lib/"
"""Folder of library and bitcode inside the wheel."""


@dataclass(frozen=True, slots=True)
class Wheel:
    """An unpacked wheel of NCCL."""

    folder: Path

    @property
    def library(self) -> Path:
        """The library that a rank process loads."""
        return self.folder / RESULT / "libnccl.so.2"

    @property
    def bitcode(self) -> Path:
        """The device functions, which Triton links into kernels."""
        return self.folder / RESULT / "libnccl_device.bc"

    @property
    def version(self) -> str | None:
        """The version in the wheel's metadata, or None."""
        distribution = self._distribution()
        return None if distribution is None else distribution.version

    def lacking(self) -> str | None:
        """Why kernels cannot be linked with this wheel, as a sentence with what would be accepted, or None."""
        accepted = f"Accepted: `{FETCH}`, which downloads {DOWNLOAD}."
        absent = [path.name for path in (self.library, self.bitcode) if not path.is_file()]
        if absent:
            return (
                f"transport = gin needs NCCL {VERSION} next to torch's own, and {self.folder} lacks {len(absent)} of 2 "
                f"files: {', '.join(absent)}. {accepted}"
            )
        if self.version != VERSION:
            return (
                f"transport = gin is linked with the device functions of NCCL {VERSION}, and {self.folder} has "
                f"{self.version or 'no version'}: {self.version} != {VERSION}. {accepted}"
            )
        if (reason := self._changed()) is not None:
            return f"transport = gin needs library and bitcode of one version. {reason} {accepted}"
        return None

    def license(self) -> str:
        """The license that the wheel's metadata names."""
        distribution = self._distribution()
        return "unknown" if distribution is None else str(distribution.metadata["License-Expression"])

    def _distribution(self) -> PathDistribution | None:
        folders = sorted(self.folder.glob(f"{PACKAGE.replace('-', '_')}-*.dist-info"))
        return PathDistribution(folders[0]) if len(folders) == 1 else None

    def _changed(self) -> str | None:
        """Whether the bitcode is another one than the wheel's record lists; the library states its own version."""
        distribution = self._distribution()
        for line in ((distribution and distribution.read_text("RECORD")) or "").splitlines():
            name, digest, _ = line.rsplit(",", 2)
            if name == RESULT + self.bitcode.name:
                return None if digest == f"sha256={_digest(self.bitcode)}" else (
                    f"{self.bitcode.name} has another checksum than the record of {VERSION} lists."
                )  # fmt: skip
        return f"The record of {VERSION} lists 0 files named {self.bitcode.name}."


def _digest(path: Path) -> str:
    """A file's SHA-256 as a wheel's record spells it."""
    return base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).rstrip(b"=").decode()


def lacking(folder: Path = FOLDER) -> str | None:
    """Why kernels cannot be linked with the wheel in *folder*, or None."""
    return Wheel(folder).lacking()


def fetch(folder: Path = FOLDER) -> Wheel:
    """Downloads the wheel into *folder*, unless it is there; Failed says why it could not.

    The environment is not changed: pip unpacks into a folder that Python does not import from. An interrupted download
    leaves nothing behind.
    """
    wheel = Wheel(folder)
    if wheel.lacking() is None:
        return wheel
    folder.parent.mkdir(parents=True, exist_ok=True)
    unpacked = Path(tempfile.mkdtemp(prefix=f"{folder.name}-", dir=folder.parent))
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--only-binary=:all:", "--no-input", "--quiet",
               "--disable-pip-version-check", "--target", str(unpacked), f"{PACKAGE}=={VERSION}"]  # fmt: skip
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_SECONDS)
        if answer.returncode != 0:
            lines = [line for line in answer.stderr.splitlines() if line.strip()]
            raise Failed(_not_fetched(folder, lines[-1] if lines else f"pip ended with {answer.returncode}"))
        shutil.rmtree(folder, ignore_errors=True)
        unpacked.rename(folder)
    except subprocess.TimeoutExpired:
        raise Failed(_not_fetched(folder, f"pip took longer than {FETCH_SECONDS} s")) from None
    finally:
        shutil.rmtree(unpacked, ignore_errors=True)
    if (reason := wheel.lacking()) is not None:
        raise Failed(reason)
    return wheel


def _not_fetched(folder: Path, reason: str) -> str:
    return (
        f"{PACKAGE} {VERSION} was not fetched into {folder}: {reason.strip().rstrip('.')}. Accepted: a network that "
        f"reaches the package index, or a folder with {VERSION} unpacked there by hand."
    )
