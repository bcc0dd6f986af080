"""What a host has for puts between hosts that kernels start, and what lacks: a sentence for each in `workbench doctor`.

Everything here is read from files and names, without torch and without a GPU. What real clusters need is named by the
libraries' documentation; none of it was tried here.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kernels.backends.triton.gin import wheel

GPUDIRECT, FABRIC = "libgdrapi.so", "libnccl-net.so"
"""Libraries: of GDRCopy, and of the plugin (aws-ofi-nccl) that NCCL needs on EFA."""
CARDS = Path("/sys/class/infiniband")
"""Where the kernel lists network cards with verbs, EFA included."""
MODULE, DEVICE = Path("/sys/module/gdrdrv/version"), Path("/dev/gdrdrv")
"""GDRCopy's kernel module: its version, and its device."""
NONE, UNTRIED = "none", "not yet run on a GPU"
"""UNTRIED stands with everything that offers puts between hosts until they ran on GPUs."""


@dataclass(frozen=True, slots=True)
class Network:
    """What one host has for puts between hosts."""

    lacking_nccl: str | None
    """Why kernels cannot be linked with NCCL, or None."""
    libraries: Mapping[str, bool]
    """Whether each library loads, by name."""
    module: str | None
    """Version of GDRCopy's kernel module; None: not loaded."""
    device: bool
    """Whether its device exists."""
    cards: tuple[str, ...]

    def facts(self) -> dict[str, str]:
        """One fact for each part, in the doctor's order."""
        return {"puts_between_hosts": self._nccl(), "gdrcopy": self._gdrcopy(), "network_cards": self._cards()}

    def _nccl(self) -> str:
        return self.lacking_nccl or f"NCCL {wheel.VERSION} in {wheel.FOLDER}; {UNTRIED}"

    def _gdrcopy(self) -> str:
        """GDRCopy, without which NCCL's window over TCP comes back empty."""
        needed = {GPUDIRECT: self.libraries[GPUDIRECT], str(DEVICE): self.device}
        absent = [name for name, exists in needed.items() if not exists]
        if absent:
            return f"missing: {', '.join(absent)}; NCCL's GIN by a proxy needs both, and NCCL_GDRCOPY_ENABLE=1"
        return f"{GPUDIRECT}, gdrdrv {self.module or 'of unknown version'}; set NCCL_GDRCOPY_ENABLE=1; {UNTRIED}"

    def _cards(self) -> str:
        """Network cards, and what those of EFA need."""
        names = ", ".join(self.cards) or NONE
        if not any(name.startswith(("efa", "rdmap")) for name in self.cards) or self.libraries[FABRIC]:
            return names
        return f"{names}; EFA needs aws-ofi-nccl, and {FABRIC} is missing (untested here)"


def here() -> Network:
    """What this host has."""
    return Network(
        lacking_nccl=wheel.lacking(),
        libraries={name: _loads(name) for name in (GPUDIRECT, FABRIC)},
        module=_version(MODULE),
        device=DEVICE.exists(),
        cards=tuple(sorted(path.name for path in CARDS.iterdir())) if CARDS.is_dir() else (),
    )


def _loads(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def _version(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None
