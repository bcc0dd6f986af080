"""A Machine as the TOML text that `kernels.machine.load` reads back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from kernels.machine import Machine


def toml(machine: Machine) -> str:
    """*machine* as a file; its digest is not in it, since it is the file's own."""
    return "\n".join(_lines(machine)) + "\n"


def _lines(machine: Machine) -> Iterator[str]:
    for key in ("name", "title", "backend", "calibrated", "spread"):
        value = getattr(machine, key)
        if value is not None:
            yield f"{key} = {_value(value)}"
    device = asdict(machine.device)
    peaks = device.pop("matrix_flops_per_second")
    sources = {json.dumps(key): source for key, source in machine.provenance.items()}
    tables = {"device": device, "device.matrix_flops_per_second": peaks, "costs": asdict(machine.costs)}
    for title, table in (*tables.items(), ("provenance", sources)):
        yield from ("", f"[{title}]")
        yield from _table(table)
    lists: dict[str, tuple[Any, ...]] = {
        "dimension": machine.dimensions, "rate": machine.rates, "collective": machine.collectives,
    }  # fmt: skip
    for title, entries in lists.items():
        for entry in entries:
            yield from ("", f"[[{title}]]")
            yield from _table(asdict(entry))


def _table(entries: dict[str, Any]) -> Iterator[str]:
    """What nobody said is not written."""
    return (f"{key} = {_value(value)}" for key, value in entries.items() if value != "")


def _value(value: Any) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, tuple):
        return f"[{', '.join(_value(one) for one in value)}]"
    return repr(value)
