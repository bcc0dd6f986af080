"""The TOML file of a Machine: read, and written again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, asdict, fields, replace
from math import isfinite
from pathlib import Path
from typing import Any

from kernels import texts
from kernels.machine import (
    BACKENDS,
    CURVES_OF_COLLECTIVES,
    LIMITS,
    LINKS,
    NO_SOURCE,
    PROVENANCES,
    STEP,
    TOPOLOGIES,
    WORKS,
    Collective,
    Costs,
    Device,
    Dimension,
    Machine,
    Rate,
)

KIND = texts.TextKind("machine file", "a machine", "a TOML file")
RESIDENT_BLOCKS: Mapping[str, float] = {"gemv": 6, "gather": 28}
"""Of a GPU whose file does not state them: as our GEMV and our pooled lookup compile for H200s."""
ENDLESS = "assumed: not measured; operands are taken to come as fast as tiles are computed"
WARM = "assumed: not measured; memory is taken to give its full speed at once"
UNMEASURED = {
    "costs.copy_engine_gap_seconds": "assumed: not measured; all of a launch",
    "device.load_latency_seconds": "assumed: not measured; operands are taken to come as fast as tiles are computed",
    "device.shared_bytes_per_second": "assumed: not measured; shared memory is taken to keep up with tensor cores",
    "device.cold_latency_ratio": "assumed: not measured; operands of memory come as soon as those of the L2",
    "device.short_bytes_per_second": "assumed: not measured; tiles of few rows have the curve of tiles",
    "device.results_bytes_per_second": "assumed: not measured; every tile costs the same beside its work",
    "device.spill_bytes_per_second": "assumed: not stated; sums are taken to find registers",
    "device.awaited_memory_share": "assumed: not measured; loads get all of the memory's speed",
    "costs.push_bytes_per_second": "assumed: not measured; SMs push as fast as where nobody computes",
    "costs.exchange_blocks": "assumed: not measured; as many as of other collectives",
    "costs.cluster_room": "assumed: not measured; blocks begin one by one",
    "costs.stream_seconds": "assumed: not measured; a launch",
    "costs.computing_beside": "assumed: not measured; streams on SMs of their own take nothing from each other",
    "costs.sending_beside": "assumed: not measured; streams on SMs of their own take nothing from each other",
    "costs.streaming_beside": "assumed: not measured; streams on SMs of their own take nothing from each other",
    "costs.own_kernel_seconds": "assumed: not measured; kernels cost their launch alone",
    "costs.library_tile_seconds": "assumed: not measured; calls of the library have speeds of their own",
}
"""Of what schedules on several streams, and calls of the library, are estimated with."""
UNSTATED = "assumed: not stated; as our GEMV and pooled lookup compile for H200s"


def load(path: Path) -> Machine:
    """The Machine in TOML file *path*; ValueError names the file and the key that is wrong."""
    text = texts.text(path, KIND)
    machine = _with_assumed(_machine(texts.toml_of(text, path, KIND), path.name))
    return replace(machine, digest=hashlib.sha256(text.encode()).hexdigest()[:12])


def _with_assumed(machine: Machine) -> Machine:
    """*machine* as files of older versions mean it: what they do not state is assumed, and says so."""
    device, sources = machine.device, {}
    if device.kind == "gpu" and not device.resident_blocks:
        device = replace(device, resident_blocks=RESIDENT_BLOCKS)
        sources["device.resident_blocks"] = UNSTATED
    unmeasured = {"device.load_bytes_per_second": ENDLESS, "costs.cold_seconds": WARM, **UNMEASURED}
    sources |= {key: how for key, how in unmeasured.items() if machine.provenance_of(key) == NO_SOURCE}
    return replace(machine, device=device, provenance={**machine.provenance, **sources})


_KEYS = {"name", "title", "backend", "device", "costs", "dimension", "rate", "collective", "provenance", "calibrated",
         "spread", "streams_spread", "fitted_to"}  # fmt: skip

_FORMS = {
    "str": ("a text", lambda value: isinstance(value, str)),
    "int": ("a whole number from 0", lambda value: type(value) is int and value >= 0),
    "float": ("a finite number from 0", lambda value: _is_number(value) and value >= 0),
    "Mapping[str, float]": (
        "a table of finite numbers above 0",
        lambda value: isinstance(value, dict) and value and all(_is_number(v) and v > 0 for v in value.values()),
    ),
}
"""What a field of each type may hold."""

_ABOVE_0 = {"slots", "count", "memory_bytes", "memory_bytes_per_second", "bandwidth_bytes_per_second", "library_share",
            "size", "per_second", "world", "seconds", "num_bytes"}  # fmt: skip
"""What something is divided by."""

_WORDS = {"backend": tuple(BACKENDS), "kind": ("cpu", "gpu"), "topology": TOPOLOGIES, "work": WORKS,
          "link": LINKS}  # fmt: skip


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def _machine(data: dict[str, Any], where: str) -> Machine:
    _check_known(data, _KEYS, where)
    _check_top(data, where)
    try:
        return Machine(
            name=data["name"],
            title=data["title"],
            backend=data["backend"],
            device=_fields(Device, data["device"], f"{where} [device]"),
            costs=_fields(Costs, data["costs"], f"{where} [costs]"),
            dimensions=dimensions(data["dimension"], where),
            rates=tuple(_fields(Rate, entry, f"{where} [[rate]]") for entry in data.get("rate", ())),
            collectives=tuple(_collective(entry, where) for entry in data.get("collective", ())),
            provenance=data["provenance"],
            calibrated=data.get("calibrated"),
            spread=tuple(data["spread"]) if "spread" in data else None,
            streams_spread=tuple(data["streams_spread"]) if "streams_spread" in data else None,
            fitted_to=tuple(data.get("fitted_to", ())),
        )
    except KeyError as error:
        raise ValueError(f"{where} has no {error.args[0]!r}, and every machine needs it.") from None


def dimensions(entries: list[dict[str, Any]], where: str) -> tuple[Dimension, ...]:
    """The [[dimension]] tables of a file, checked; *where* names the file in what is wrong."""
    return tuple(_fields(Dimension, entry, f"{where} [[dimension]]") for entry in entries)


def _fields(kind: type, entry: dict[str, Any], where: str) -> Any:
    _check_known(entry, {field.name for field in fields(kind)}, where)
    for field in fields(kind):
        if field.name in entry:
            _check_value(field.name, entry[field.name], str(field.type), where)
    needed = [field.name for field in fields(kind) if field.default is MISSING and field.default_factory is MISSING]
    if absent := [name for name in needed if name not in entry]:
        raise ValueError(f"{where} has no {absent[0]!r}. It needs {', '.join(needed)}.")
    return kind(**entry)


def _collective(entry: dict[str, Any], where: str) -> Collective:
    point: Collective = _fields(Collective, entry, f"{where} [[collective]]")
    if point.name not in CURVES_OF_COLLECTIVES:
        raise ValueError(
            f"{where} [[collective]]: name = {point.name!r} is unknown. Accepted: {', '.join(CURVES_OF_COLLECTIVES)}."
        )
    return point


def _check_known(entry: object, known: set[str], where: str) -> None:
    if not isinstance(entry, dict):
        raise ValueError(f"{where} holds {entry!r}, which is not a table. Accepted: {', '.join(sorted(known))} = ....")
    if unknown := sorted(set(entry) - known):
        raise ValueError(f"{where} has the unknown key {unknown[0]!r}. Accepted: {', '.join(sorted(known))}.")


def _check_value(name: str, value: object, form: str, where: str) -> None:
    rule, holds = _FORMS[form]
    if name in _ABOVE_0:
        rule = rule.replace("from 0", "above 0")
    if not holds(value) or (name in _ABOVE_0 and value == 0):
        raise ValueError(f"{where}: {name} = {value!r} does not fit. Accepted: {rule}.")
    if name == "limits":
        _check_limits(value, where)
    if name.endswith("_step"):
        _check_known(value, set(STEP), f"{where} {name}")
    if name in _WORDS and value not in _WORDS[name]:
        raise ValueError(f"{where}: {name} = {value!r} is unknown. Accepted: {', '.join(_WORDS[name])}.")


def _check_limits(value: Any, where: str) -> None:
    _check_known(value, set(LIMITS), f"{where} limits")
    if absent := [key for key in LIMITS[:-1] if key not in value]:
        raise ValueError(f"{where} limits has no {absent[0]!r}. It needs {', '.join(LIMITS[:-1])}.")
    if broken := [key for key in value if value[key] != int(value[key])]:
        raise ValueError(f"{where} limits: {broken[0]} = {value[broken[0]]} does not fit. Accepted: a whole number.")


def _check_top(data: dict[str, Any], where: str) -> None:
    for name in ("name", "title", "backend", "calibrated"):
        if name in data:
            _check_value(name, data[name], "str", where)
    for name in ("dimension", "rate", "collective"):
        if not isinstance(data.get(name, []), list):
            raise ValueError(f"{where}: [{name}] is one table, but a machine may have several. Accepted: [[{name}]].")
    for name in ("spread", "streams_spread"):
        ends = data.get(name, [1.0, 1.0])
        if not (isinstance(ends, list) and len(ends) == 2 and all(map(_is_number, ends)) and 0 < ends[0] <= ends[1]):
            raise ValueError(
                f"{where}: {name} = {ends!r} does not fit. Accepted: two numbers above 0, [lowest, highest]."
            )
    problems = data.get("fitted_to", [])
    if not (isinstance(problems, list) and all(isinstance(each, str) for each in problems)):
        raise ValueError(f"{where}: fitted_to = {problems!r} does not fit. Accepted: a list of texts.")
    provenance = data.get("provenance", {})
    if not isinstance(provenance, dict):
        raise ValueError(f"{where}: provenance = {provenance!r} does not fit. Accepted: a table from key to source.")
    for key, source in provenance.items():
        if str(source).split(":")[0] not in PROVENANCES or not isinstance(source, str):
            raise ValueError(
                f"{where}: provenance of {key} is {source!r}. Accepted: a text that begins with one of "
                f"{', '.join(PROVENANCES)}."
            )


def toml(machine: Machine) -> str:
    """*machine* as a file; its digest is not in it, since it is the file's own."""
    return "\n".join(_lines(machine)) + "\n"


def _lines(machine: Machine) -> Iterator[str]:
    for key in ("name", "title", "backend", "calibrated", "spread", "streams_spread", "fitted_to"):
        value = getattr(machine, key)
        if value not in (None, ()):
            yield f"{key} = {_value(value)}"
    device = asdict(machine.device)
    of_device = {f"device.{key}": table for key, table in device.items() if isinstance(table, dict) and table}
    sources = {json.dumps(key): source for key, source in machine.provenance.items()}
    plain = {key: value for key, value in device.items() if not isinstance(value, dict)}
    tables = {"device": plain, **of_device, "costs": asdict(machine.costs)}
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
