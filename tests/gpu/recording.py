"""What a gang without Dask measured, as lines of a recording and as rows on the screen, with where it comes from."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from cluster.seating import Ranks
from kernels import files
from kernels.backends.triton import nccl
from kernels.hardware import source_print
from kernels.nvml import Meter, driver_version
from kernels.outcome import Measurement, Outcome, Sample, Span, row, span_values

WHO = ("gpu", "gpu_name")
"""Which card it was: the hardware says its model, and a recording for everybody names no single one."""
SECONDS_DIGITS, MOMENT_DIGITS, SPAN_DIGITS = 11, 4, 9
"""Of a sample to 10 ps, a moment to 0.1 ms, a span to 1 ns: its clock ticks every 32 ns."""


def provenance(machine: str) -> dict[str, Any]:
    """What was measured on and with, as a run's own; nothing that names this host or a folder of it."""
    versions: dict[str, Any] = {"python": platform.python_version()}
    gpus = "none"
    if torch.cuda.is_available():
        gpus = f"{torch.cuda.device_count()} x {torch.cuda.get_device_name(0)}"
        versions |= {"cuda": torch.version.cuda, "nccl": ".".join(map(str, torch.cuda.nccl.version()))} | driver()
    names = ("torch", "triton", "numpy")
    return {
        "gpus": gpus,
        "system": f"{platform.system()} {platform.machine()}",
        "versions": versions | {name: metadata.version(name) for name in names},
        "git_commit": os.environ.get("GIT_COMMIT", "not told"),
        "source_print": source_print("triton"),
        "machine": machine,
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "launched_by": "tests/gpu/gang.py, one process per GPU, without Dask",
    }


def driver() -> dict[str, str]:
    """The driver's version, where nvidia-ml-py is there to ask."""
    version = driver_version()
    return {} if version is None else {"driver": version}


def state(device: torch.device | str) -> dict[str, Any]:
    """How the GPU of this rank is now, and what its NCCL was told: a probe's answer holds it beside its numbers."""
    known = torch.cuda.get_device_properties(device)
    seen = Meter(str(known.uuid), known.name).read()
    return {"condition": without_who(seen), "nccl": nccl.settings(os.environ)}


def without_who(seen: Mapping[str, Any]) -> dict[str, Any]:
    """A device's condition, which names no single card."""
    return {name: value for name, value in seen.items() if name not in WHO}


def write(path: Path, document: Mapping[str, Any]) -> None:
    """*document* as a probe's file, beside its place and then renamed: no half of one is left."""
    files.write(path, json.dumps(document, indent=1) + "\n")


def recorded(
    outcome: Measurement, samples: Sequence[Sample], facts: Mapping[str, Any], *, block: str | None = None,
    ran: Ranks | None = None, with_spans: bool = True,
) -> str:  # fmt: skip
    """One line of a recording: workbench/results/recordings.py reads it.

    *ran*: the GPUs and libraries of this host. Tiles, most of the bytes of spans, come with KEEP_TILES=1 alone.
    """
    spans = outcome.spans if with_spans else ()
    if os.environ.get("KEEP_TILES") != "1":
        spans = tuple(span._replace(tiles=()) for span in spans)
    clock = {"clock_tick_s": spans[0].tick_s} if spans else {}
    conditions = [without_who(seen) for seen in outcome.conditions]
    line = {
        **row(_with_ranks(replace(outcome, block=block), ran)), "source": "recorded", "provenance": {**facts, **clock},
        "trial": outcome.trial.to_json(),
        "raw": [[s.rank, s.index, round(s.seconds, SECONDS_DIGITS), round(s.at, MOMENT_DIGITS)] for s in samples],
        "spans": [_rounded(span) for span in spans], **({"conditions": conditions} if any(conditions) else {}),
        **({"facts": dict(outcome.facts)} if outcome.facts else {}),
    }  # fmt: skip
    return json.dumps(line, separators=(",", ":"))


def _rounded(span: Span) -> list[Any]:
    return [round(value, SPAN_DIGITS) if isinstance(value, float) else value for value in span_values(span)]


def _with_ranks(outcome: Measurement, ran: Ranks | None) -> Measurement:
    """*outcome* with what ran it, where its ranks did not say."""
    if ran is None:
        return outcome
    told = ran.execution(outcome.trial.backend)
    return replace(
        outcome, source_print=told.source_print, versions_print=told.versions_print, hardware=told.hardware
    )  # fmt: skip


def told(outcome: Outcome) -> str:
    """The line of an outcome, and what slowed its GPUs down."""
    return line(row(outcome)) + (slowed(outcome.conditions) if isinstance(outcome, Measurement) else "")


def slowed(conditions: Sequence[Mapping[str, Any]]) -> str:
    """Why GPUs ran slower than they could, and at which clocks, where they did."""
    readings = [seen for seen in conditions if seen.get("throttled")]
    if not readings:
        return ""
    reasons = ", ".join(sorted({reason for seen in readings for reason in seen["throttled"]}))
    clocks = [seen["sm_clock_mhz"] for seen in conditions if "sm_clock_mhz" in seen] or [0]
    return (
        f" THROTTLED in {len(readings)} of {len(conditions)} readings ({reasons}; SM {min(clocks)}..{max(clocks)} MHz)"
    )


def line(found: Mapping[str, Any]) -> str:
    """A row of the table."""
    shape, axes = "x".join(map(str, found["shape"].values())), " ".join(f"{k}={v}" for k, v in found["axes"].items())
    what = f"w{found['world']} {found['operator']:22} {shape:18} {found['scheme']:10} {found['part'][:5]:5}"
    if not found["time_s"]:
        return f"{what} {found['stage']}: {found['message']} {axes}"
    low, middle, high = (found[key] * 1e6 for key in ("low_s", "time_s", "high_s"))
    return f"{what} {middle:9.2f} us [{low:.1f} {high:.1f}] err {found['max_relative_error'] or 0:.1e} {axes}"
