"""Missing libraries, which are not installed or cannot be loaded: which one it is, and what installs it."""

from __future__ import annotations

import re
from importlib import metadata

DISTRIBUTION = "overlap-workbench"
OURS = ("workbench", "cluster", "kernels")
"""Our packages: a missing module of these is a bug, and its traceback is shown."""
PIP_NAMES = {"cuda": "cuda-bindings", "pynvml": "nvidia-ml-py", "vl_convert": "vl-convert-python"}
"""The names that pip has for modules."""

_NAME = re.compile(r"[A-Za-z0-9._-]+")
_EXTRA = re.compile(r"extra == ['\"]([a-z]+)['\"]")


def message(error: ImportError) -> str | None:
    """The message of *error* about a missing library; None where it is about no library."""
    module = (error.name or "").partition(".")[0]
    if not module or module in OURS:
        return None
    what = "is not installed" if isinstance(error, ModuleNotFoundError) else f"cannot be loaded ({error})"
    return f"The Python package {module} {what}, and this needs it. Accepted: {_remedy(module)}."


def _remedy(module: str) -> str:
    """The command that installs *module*, which is one of our requirements or a part of one."""
    name = _plain(PIP_NAMES.get(module, module))
    for requirement in _requirements():
        wanted, _, marker = requirement.partition(";")
        named = _NAME.match(wanted)
        if named is not None and _plain(named[0]) == name:
            extra = _EXTRA.search(marker)
            return f"pip install '{f'{DISTRIBUTION}[{extra[1]}]' if extra else wanted.strip()}'"
    return f"pip install {name}, or all of the workbench anew (`make clean`, then `make lab`)"


def _plain(name: str) -> str:
    return re.sub("[-_.]+", "-", name).lower()


def _requirements() -> list[str]:
    try:
        return metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:  # a folder of sources that is not installed
        return []
