"""NCCL's library by ctypes, a second one next to torch's: communicators, windows, and the device communicators of GIN.

Only what its host interface needs for puts that kernels start. The structures are those of `wheel.VERSION`: their sizes
are compared when this file is imported, and their version is part of every call, so that another library refuses them.
"""

from __future__ import annotations

import ctypes as c
import os
from pathlib import Path
from threading import Thread
from typing import Any

import torch

from kernels.backends.base import Hang
from kernels.backends.triton.gin.wheel import FETCH, VERSION, VERSION_CODE
from kernels.backends.triton.nccl import ends_within
from kernels.schedule import Refusal

MAGIC = 0xCAFEBEEF
UNDEFINED = -(2**31)
"""NCCL_CONFIG_UNDEF_INT."""
SYMMETRIC = 1
"""NCCL_WIN_COLL_SYMMETRIC: a window that all ranks register with the same size."""
GIN_TYPES = {0: "none", 2: "proxy", 3: "GDAKI", 4: "GPI", 5: "EFA GDA"}
NO_GIN, PROXY, TO_ALL = 0, 2, 1
"""Values of ginType, and the connection type of every rank with every other."""
ABORT_SECONDS, TOGETHER_SECONDS = 20.0, 90.0
"""How long an abort may take until the process goes on without it, and a call that all ranks make together."""


class UniqueId(c.Structure):
    """ncclUniqueId: how the ranks of one communicator find each other; rank 0 draws it."""

    _fields_ = [("internal", c.c_char * 128)]


class CommProperties(c.Structure):
    """ncclCommProperties: what a communicator can do."""

    _fields_ = [
        ("size", c.c_size_t), ("magic", c.c_uint), ("version", c.c_uint), ("rank", c.c_int), ("nRanks", c.c_int),
        ("cudaDev", c.c_int), ("nvmlDev", c.c_int), ("deviceApiSupport", c.c_bool), ("multimemSupport", c.c_bool),
        ("ginType", c.c_int), ("nLsaTeams", c.c_int), ("hostRmaSupport", c.c_bool), ("railedGinType", c.c_int),
        ("commHash", c.c_uint64), ("ginMinStride", c.c_int), ("ginConnectionType", c.c_int),
        ("ginSupport", c.c_bool * 64), ("devCommRuntimeVersionSize", c.c_size_t), ("cftSupport", c.c_bool),
        ("cftMulticastSupport", c.c_bool), ("cftCountedSupport", c.c_bool),
    ]  # fmt: skip


class DevCommRequirements(c.Structure):
    """ncclDevCommRequirements: what a device communicator needs."""

    _fields_ = [
        ("size", c.c_size_t), ("magic", c.c_uint), ("version", c.c_uint), ("resourceRequirementsList", c.c_void_p),
        ("teamRequirementsList", c.c_void_p), ("lsaMultimem", c.c_bool), ("barrierCount", c.c_int),
        ("lsaBarrierCount", c.c_int), ("railGinBarrierCount", c.c_int), ("lsaLLA2ABlockCount", c.c_int),
        ("lsaLLA2ASlotCount", c.c_int),
        ("ginForceEnable", c.c_bool), ("ginContextCount", c.c_int), ("ginSignalCount", c.c_int),
        ("ginCounterCount", c.c_int), ("ginConnectionType", c.c_int), ("ginExclusiveContexts", c.c_bool),
        ("ginQueueDepth", c.c_int), ("ginTrafficClass", c.c_int), ("worldGinBarrierCount", c.c_int),
        ("ginStrongSignalsRequired", c.c_bool), ("ginVaSignalsRequired", c.c_bool), ("ginCustomStride", c.c_int),
        ("ginType", c.c_int), ("useRuntimeVersion", c.c_bool), ("cftCaps", c.c_int), ("cftBarrierCount", c.c_int),
    ]  # fmt: skip


class DevComm(c.Structure):
    """ncclDevComm, which kernels read from GPU memory; fields that nobody here reads have no name."""

    _fields_ = [
        ("magic", c.c_uint), ("version", c.c_uint), ("rank", c.c_int), ("nRanks", c.c_int), ("nRanks_rcp32", c.c_uint),
        ("lsaRank", c.c_int), ("lsaSize", c.c_int), ("lsaSize_rcp32", c.c_uint), ("first", c.c_uint8 * 64),
        ("ginConnectionCount", c.c_uint8), ("backendIndex", c.c_uint8), ("ginNetDeviceTypes", c.c_uint8 * 4),
        ("ginHandles", c.c_void_p * 4), ("ginSignalCount", c.c_int), ("ginCounterCount", c.c_int),
        ("ginSignalShadows", c.c_void_p), ("ginContextCount", c.c_uint32), ("second", c.c_uint8 * 92),
    ]  # fmt: skip


SIZES = {CommProperties: 152, DevCommRequirements: 120, DevComm: 248}
"""Bytes of each structure in `wheel.VERSION`, from its headers."""


class NcclError(RuntimeError):
    """A call of the library that failed, with its name and its reason."""


class Nccl:
    """One loaded library. Its calls never land in torch's library, whose functions have the same names."""

    def __init__(self, path: Path, device: torch.device) -> None:
        """Loads *path* for calls on *device*; Refusal if it is no library of NCCL or of another version."""
        self.device = device
        try:
            self._library = c.CDLL(str(path), mode=os.RTLD_NOW | os.RTLD_LOCAL | os.RTLD_DEEPBIND)
            self._library.ncclGetErrorString.restype = c.c_char_p
            self._library.ncclGetLastError.restype = c.c_char_p
            self._library.ncclGetLastError.argtypes = [c.c_void_p]
            version = self.version()
        except (OSError, AttributeError) as error:
            raise Refusal(
                f"transport = gin needs NCCL {VERSION} next to torch's own, and {path} cannot be loaded: {error}. "
                f"Accepted: `{FETCH}`."
            ) from None
        if version != VERSION_CODE:
            raise Refusal(
                f"transport = gin is linked with the device functions of NCCL {VERSION}, and {path} is another "
                f"version: {version} != {VERSION_CODE}. Accepted: `{FETCH}`."
            )

    def call(self, name: str, *arguments: Any) -> None:
        """Calls a function that returns ncclResult_t; NcclError unless it succeeds."""
        status = getattr(self._library, name)(*arguments)
        if status != 0:
            reason = self._library.ncclGetErrorString(status).decode()
            last = self._library.ncclGetLastError(None).decode()
            raise NcclError(f"{name} failed with {status}: {reason}. {last}".strip())

    def call_together(self, name: str, *arguments: Any) -> None:
        """As `call`, for what all ranks do together; Hang where a peer has not come in TOGETHER_SECONDS.

        The library waits without a deadline, so it waits in a thread of its own. After a Hang the process is replaced.
        """

        def called() -> None:
            self.take_device()
            self.call(name, *arguments)

        if not ends_within(TOGETHER_SECONDS, called, name):
            raise Hang(
                f"{name} waited {TOGETHER_SECONDS:g} s for the ranks of other hosts. They have to reach each other by "
                "the interface that NCCL chose, or that NCCL_SOCKET_IFNAME names on every host."
            )

    def take_device(self) -> None:
        """Makes this rank's GPU that of the current thread: a new thread has GPU 0."""
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)

    def abandon(self, handle: c.c_void_p) -> None:
        """Aborts a communicator from a thread of its own; what that returns does not matter any more."""
        self.take_device()
        self._library.ncclCommAbort(handle)

    def version(self) -> int:
        """The library's version as a number, 23203 for 2.32.3; it needs no driver."""
        value = c.c_int()
        self.call("ncclGetVersion", c.byref(value))
        return value.value

    def unique_id(self) -> bytes:
        """A new name of a communicator, 128 bytes; rank 0 hands it to the others."""
        value = UniqueId()
        self.call("ncclGetUniqueId", c.byref(value))
        return bytes(c.string_at(c.byref(value), c.sizeof(value)))


class Communicator:
    """The ranks of one gang, each on a host of its own. Making one is collective, as is `window` and `device`."""

    def __init__(self, nccl: Nccl, world: int, unique_id: bytes, rank: int) -> None:
        self.nccl, self.world, self.rank = nccl, world, rank
        name, self._handle = UniqueId(), c.c_void_p()
        c.memmove(c.byref(name), unique_id, c.sizeof(name))
        nccl.call_together("ncclCommInitRank", c.byref(self._handle), c.c_int(world), name, c.c_int(rank))

    def properties(self) -> CommProperties:
        """What the library made of these hosts."""
        value = CommProperties(size=c.sizeof(CommProperties), magic=MAGIC, version=VERSION_CODE)
        self.nccl.call("ncclCommQueryProperties", self._handle, c.byref(value))
        return value

    def lacking(self) -> str | None:
        """Why these hosts have no GIN by a proxy thread, as a sentence, or None; all ranks get the same answer."""
        kind = self.properties().ginType
        if kind == PROXY:
            return None
        reason = "finds no way" if kind == NO_GIN else f"chose {GIN_TYPES.get(kind, kind)}, which kernels do not link"
        return (
            f"transport = gin does not run on these {self.world} hosts: NCCL {VERSION} {reason} (GIN type {kind} "
            f"instead of {PROXY}). Accepted: GDRCopy on every host (libgdrapi.so and /dev/gdrdrv, with "
            f"NCCL_GDRCOPY_ENABLE=1), which its proxy needs, and NCCL_GIN_TYPE={PROXY}."
        )

    def allocate(self, num_bytes: int) -> int:
        """Address of new GPU memory that can be a window; memory of torch cannot."""
        value = c.c_void_p()
        self.nccl.call("ncclMemAlloc", c.byref(value), c.c_size_t(num_bytes))
        assert value.value is not None
        return value.value

    def window(self, address: int, num_bytes: int) -> int:
        """Handle of the window over *num_bytes* at *address*; Refusal where it comes back empty."""
        value = c.c_void_p()
        arguments = c.c_void_p(address), c.c_size_t(num_bytes), c.byref(value), c.c_int(SYMMETRIC)
        self.nccl.call_together("ncclCommWindowRegister", self._handle, *arguments)
        if value.value is None:  # success without a window: neither peer memory nor GIN reaches all ranks
            raise Refusal(
                f"transport = gin got an empty window of {num_bytes} bytes: NCCL {VERSION} reaches 0 of "
                f"{self.world - 1} peers by it. Accepted: what `workbench doctor` lists for puts between hosts."
            )
        return value.value

    def deregister(self, window: int) -> None:
        """Gives a window back, which no kernel uses any more; all ranks call it."""
        self.nccl.call_together("ncclCommWindowDeregister", self._handle, c.c_void_p(window))

    def free(self, address: int) -> None:
        """Gives memory back that is no window, or none any more; a rank calls it alone."""
        self.nccl.call("ncclMemFree", c.c_void_p(address))

    def device(self, signals: int, contexts: int) -> DevComm:
        """A device communicator whose signals are 0; Refusal where it has fewer contexts than asked for."""
        needs = DevCommRequirements(
            size=c.sizeof(DevCommRequirements), magic=MAGIC, version=VERSION_CODE, ginContextCount=contexts,
            ginSignalCount=signals, ginConnectionType=TO_ALL, ginTrafficClass=UNDEFINED, ginCustomStride=1,
        )  # fmt: skip
        value = DevComm()
        self.nccl.call_together("ncclDevCommCreate", self._handle, c.byref(needs), c.byref(value))
        if value.ginContextCount < contexts:
            self.forget(value)
            raise Refusal(
                f"transport = gin needs {contexts} contexts, and NCCL {VERSION} gives {value.ginContextCount} here: "
                f"{value.ginContextCount} < {contexts}. Accepted: larger slices do not help; another network does."
            )
        return value

    def forget(self, device: DevComm) -> None:
        """Frees a device communicator; no kernel uses it any more, and all ranks call it."""
        self.nccl.call_together("ncclDevCommDestroy", self._handle, c.byref(device))

    def abort(self) -> bool:
        """Ends the communicator from a thread of its own, whatever its peers do; False where it has not ended in time.

        Kernels that still spin leave their waits. After a failure the process is replaced, too.
        """
        thread = Thread(target=self._abort, name="abort of NCCL's communicator", daemon=True)
        thread.start()
        thread.join(ABORT_SECONDS)
        return not thread.is_alive()

    def destroy(self) -> None:
        """Ends the communicator, as all its ranks do: none of them has work of it under way."""
        self.nccl.call("ncclCommDestroy", self._handle)
        self._handle = c.c_void_p()

    def _abort(self) -> None:
        handle, self._handle = self._handle, c.c_void_p()
        if handle.value is not None:
            self.nccl.abandon(handle)


for _structure, _size in SIZES.items():
    assert c.sizeof(_structure) == _size, f"{_structure.__name__} has {c.sizeof(_structure)} bytes instead of {_size}"
