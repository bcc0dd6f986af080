"""How a run's times were taken, beside their protocol, as the ranks told it: operands, graphs, NCCL, clocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kernels.units import ratio_text

How = Mapping[str, Any]
"""`conditions` and `facts` of one measurement (kernels/outcome.py: timed_how)."""


def sentences(hows: Sequence[How]) -> list[str]:
    """What is known of all measurements of a run together."""
    facts = [how.get("facts") or {} for how in hows]
    conditions = [reading for how in hows for reading in how.get("conditions") or ()]
    return [*_operands(facts), *_graphs(facts), *_nccl(facts), *_clocks(conditions)]


def _operands(facts: Sequence[How]) -> list[str]:
    """Fresh for each sitting; on GPUs how cold they were."""
    seeds = len(set(_values(facts, "seed")))
    if not seeds:
        return []
    drawn = "from one seed" if seeds == 1 else f"from {seeds} seeds, another one for each sitting"
    said = f"Operands were drawn anew {drawn}, and two values of them took turns"
    if not (sets := _values(facts, "operand_sets")):
        return [f"{said}."]
    times = _range(_values(facts, "operand_times_l2"), ratio_text)
    return [f"{said} in {_range(sets)} sets, which filled the L2 {times}."]


def _graphs(facts: Sequence[How]) -> list[str]:
    calls = _values(facts, "calls_per_graph")
    if not calls:
        return []
    if set(calls) == {1}:
        return ["A sample is one call per graph: it pays alone for all that begins and ends it."]
    return [f"A sample is the mean of the calls of one CUDA graph, of which there were {_range(calls)}."]


def _nccl(facts: Sequence[How]) -> list[str]:
    """Once if all ranks of all trials had the same settings."""
    every = [one for nccl in _values(facts, "nccl") for one in (nccl if isinstance(nccl, list) else [nccl])]
    said = dict.fromkeys(
        f"NCCL {one.get('version')}" + "".join(f", {name}={value}" for name, value in one.items() if name != "version")
        for one in every if one
    )  # fmt: skip
    tuned = dict.fromkeys(_values(facts, "library_tuned"))
    more = [f"library_tuned took {' and '.join(tuned)}."] if tuned else []
    return [*([f"The ranks had {'; or '.join(said)}."] if said else []), *more]


def _clocks(conditions: Iterable[How]) -> list[str]:
    """Each reading once: all trials of a sitting keep the same ones."""
    readings = list({str(sorted(reading.items())): reading for reading in conditions}.values())
    clocks = _values(readings, "sm_clock_mhz")
    if not clocks:
        return []
    power = _values(readings, "power_watts")
    slowed = [reading for reading in readings if reading.get("throttled")]
    reasons = dict.fromkeys(reason for reading in slowed for reason in reading["throttled"])
    said = f"SM clocks were {_range(clocks, '{:,} MHz'.format)}" + (
        f", power at most {max(power):.0f} W" if power else ""
    )
    said += f", in {len(readings)} reading{'s' * (len(readings) != 1)}"
    why = f"{len(slowed)} of them say that clocks were lowered: {', '.join(reasons)}" if slowed else "none was lowered"
    return [f"{said}; {why}."]


def _values(said: Iterable[How], name: str) -> list[Any]:
    return [one[name] for one in said if one.get(name) is not None]


def _range(values: Sequence[Any], text: Callable[[Any], str] = str) -> str:
    """One value, or the ends of several."""
    low, high = text(min(values)), text(max(values))
    return low if low == high else f"{low} to {high}"
