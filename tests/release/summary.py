"""What the check before a release came to, as one JSON document that names no host, no person and no folder."""

from __future__ import annotations

import getpass
import json
import os
import platform
import re
import socket
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cluster import hosts
from kernels.hardware import source_print
from workbench.results.provenance import provenance

FORMAT = 1
KEPT = Path(__file__).parents[2] / "data" / "checks"
"""Where summaries lie that were worth keeping."""
PASSED, FAILED = "passed", "failed"
NO_GPU = "skipped: no GPU"
"""The figure of what only GPUs can show."""
DIGITS = 4
COMMIT = "GIT_COMMIT"
"""The variable that names the commit where a copy of the tree is checked, without its history."""
PACKAGES = ("torch", "triton", "dask", "distributed", "numpy", "nvidia-nccl-cu13")

PATH = re.compile(r"(?<![\w.~/:-])~?(?:/[\w.@+-]+){2,}/?")
"""An absolute path: at least a folder and what lies in it."""
ADDRESS = re.compile(r"\b(?:tcp|tls|https?)://[^\s,;)\"']+|\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b")
WORKER = re.compile(r"\b(?!HOST-)[\w.-]+-rank\d+\b")
"""Workers are called after their host."""
PRIVATE_KEYS = ("host", "hostname", "user", "login", "path", "folder", "address")


@dataclass(frozen=True, slots=True)
class Result:
    """What one check came to."""

    check: str
    outcome: str
    seconds: float
    message: str | None = None
    figures: Mapping[str, Any] = field(default_factory=dict)


def document(results: Iterable[Result], facts: Mapping[str, Any]) -> dict[str, Any]:
    """The summary of *results* under the circumstances *facts*."""
    checks = [asdict(each) for each in results]
    counts = Counter(each["outcome"] for each in checks)
    totals = {outcome: counts[outcome] for outcome in (PASSED, FAILED)}
    seconds = {"seconds": sum(each["seconds"] for each in checks)}
    return dict(_nameless(_rounded({"format": FORMAT, **facts, **totals, **seconds, "checks": checks})))


def circumstances(backend: str, world: int, protocol: str) -> dict[str, Any]:
    """Where, when and of what the checks were made; what cannot be found out is None."""
    here = hosts.visible_gpus() if backend == hosts.TRITON else ()
    told = provenance()
    return {
        "command": "python -m tests.gpu.through_dask", "backend": backend, "world": world, "protocol": protocol,
        "date": datetime.now(UTC).isoformat(timespec="seconds"), "commit": os.environ.get(COMMIT) or told["git_commit"],
        "source_print": source_print(backend),
        "gpu": {"models": sorted({gpu.name for gpu in here}), "count": len(here),
                "driver": hosts.gpu_facts()["gpu_driver"] if here else None},
        "cpu": told["cpu"], "cores": told["cores"], "system": f"{platform.system()} {platform.machine()}",
        "versions": {"python": platform.python_version(), **{name: hosts.package_version(name) for name in PACKAGES}},
    }  # fmt: skip


def text(summary: Mapping[str, Any]) -> str:
    """As it is printed and kept, with its checks one a line."""
    checks = ",\n".join(f"  {json.dumps(each)}" for each in summary["checks"])
    facts = json.dumps({key: value for key, value in summary.items() if key != "checks"}, indent=1)
    return f'{facts.removesuffix("}").rstrip()},\n "checks": [\n{checks}\n ]\n}}\n'


def private(value: Any) -> list[str]:
    """What in *value* names a host, a person, an address or a folder."""
    keys = [key for key in _keys(value) if key in PRIVATE_KEYS]
    return keys + [hit[0] for said in _texts(value) for sign in (PATH, ADDRESS, WORKER) for hit in sign.finditer(said)]


def _nameless(value: Any) -> Any:
    """*value* with words in the place of what `private` would find, and of this host's and this person's name."""
    match value:
        case Mapping():
            return {key: _nameless(each) for key, each in value.items()}
        case list() | tuple():
            return [_nameless(each) for each in value]
        case str():
            for name, word in _names().items():
                value = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", word, value)
            return WORKER.sub("HOST-rank", ADDRESS.sub("ADDRESS", PATH.sub("PATH", value)))
    return value


def _names() -> dict[str, str]:
    """Of this host and this person, longer ones first."""
    host = socket.gethostname()
    names = {host: "HOST", host.partition(".")[0]: "HOST"}
    with suppress(KeyError, OSError):
        names[getpass.getuser()] = "LOGIN"
    return {name: names[name] for name in sorted(names, key=len, reverse=True) if name}


def _rounded(value: Any) -> Any:
    """Numbers to a few digits: more are noise."""
    match value:
        case Mapping():
            return {key: _rounded(each) for key, each in value.items()}
        case list() | tuple():
            return [_rounded(each) for each in value]
        case float():
            return float(f"{value:.{DIGITS}g}")
    return value


def _keys(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        yield from value
    for each in _inner(value):
        yield from _keys(each)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for each in _inner(value):
        yield from _texts(each)


def _inner(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list | tuple) else ()
