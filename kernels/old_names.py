"""Old module names: they import the new module with a FutureWarning, and go with the next release."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import FrameType, ModuleType
from typing import Any

MODULES = {
    "kernels.axes": "kernels.schedule",
    "kernels.backends.offers": "kernels.backends.capabilities",
    "kernels.backends.refusals": "kernels.backends.capabilities",
    "kernels.backends.triton.clock": "kernels.backends.triton.timing",
    "kernels.backends.triton.compilations": "kernels.backends.triton.recipes",
    "kernels.backends.triton.context": "kernels.backends.triton.memory",
    "kernels.backends.triton.graph": "kernels.backends.triton.timing",
    "kernels.backends.triton.heap": "kernels.backends.triton.memory",
    "kernels.backends.triton.meter": "kernels.backends.triton.timing",
    "kernels.backends.triton.own_gpu": "kernels.backends.triton.playground",
    "kernels.backends.triton.rank": "kernels.backends.triton.playground",
    "kernels.backends.triton.tiles": "kernels.backends.triton.limits",
    "kernels.failed": "kernels.files",
    "kernels.machine_file": "kernels.machine",
    "kernels.ops.gradients": "kernels.ops.registered",
    "kernels.prints": "kernels.hardware",
    "kernels.protocol": "kernels.trial",
    "kernels.ranges": "kernels.plan",
    "kernels.schemes.controls": "kernels.schemes.stream_controls",
    "kernels.schemes.hints": "kernels.schemes.axis_rules",
    "kernels.schemes.packets": "kernels.schemes.axis_rules",
    "kernels.schemes.reads": "kernels.schemes.axis_rules",
    "kernels.schemes.residency": "kernels.schemes.concurrent",
    "kernels.texts": "kernels.files",
    "kernels.timing": "kernels.bench",
    "kernels.verify": "kernels.reference",
}
"""New modules by old name."""
ATTRIBUTES: dict[str, dict[str, str]] = {
    "kernels.prints": {"Ran": "Execution"},
    "kernels.backends.triton.rank": {"Alone": "SingleRank", "Place": "RankPlace", "Meets": "HostBarrier"},
    "kernels.backends.triton.heap": {"Group": "RankProcessGroup", "Makers": "HeapMakers"},
}
"""New names by old one, by old module; all other names are unchanged."""


def spec(name: str, modules: Mapping[str, str] = MODULES,
         attributes: Mapping[str, Mapping[str, str]] = ATTRIBUTES) -> ModuleSpec | None:  # fmt: skip
    """The import spec of old module *name*; None for any other name."""
    if name in modules:
        return ModuleSpec(name, _Loader(modules[name], attributes.get(name, {})), is_package=True)  # type: ignore[arg-type]
    if any(old.startswith(f"{name}.") for old in modules):  # a package of old modules, which has no content of its own
        return ModuleSpec(name, _Loader(None, {}), is_package=True)  # type: ignore[arg-type]
    return None


class _Loader:
    """The loader of a module that answers with the names of module *new*; empty if *new* is None."""

    def __init__(self, new: str | None, attributes: Mapping[str, str]) -> None:
        self._new, self._attributes = new, attributes

    def create_module(self, spec: ModuleSpec) -> None:
        """None: the module is an ordinary one."""

    def exec_module(self, module: ModuleType) -> None:
        if self._new is None:
            return
        warn(module.__name__, self._new)
        new, attributes = import_module(self._new), self._attributes

        def answer(name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
            return getattr(new, attributes.get(name, name))

        module.__dict__.update(__doc__=new.__doc__, __getattr__=answer, __dir__=lambda: [*dir(new), *attributes])


def renamed(module: str, name: str, names: Mapping[str, str]) -> Any:
    """What *module* calls *name* today, by *names*; AttributeError for any other name."""
    if name not in names:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    warn(f"{module}.{name}", f"{module}.{names[name]}")
    return getattr(sys.modules[module], names[name])


def warn(old: str, new: str) -> None:
    """Warns at the line of the import outside of the import machinery that *old* is *new* now."""
    frame = sys._getframe(1)
    while _is_machinery(frame) and frame.f_back is not None:
        frame = frame.f_back
    message = f"{old} is now {new}. The old name goes with the next release."
    warnings.warn_explicit(message, FutureWarning, frame.f_code.co_filename, frame.f_lineno)


def _is_machinery(frame: FrameType) -> bool:
    code = frame.f_code
    return code.co_filename == __file__ or "importlib" in code.co_filename or code.co_name == "__getattr__"
