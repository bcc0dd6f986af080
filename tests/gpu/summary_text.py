"""The text around the GPU tables of docs/results/: measured with what, how, and what is lost."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from cluster.hosts import MULTICAST_OFF
from kernels.backends.triton.nccl import OF_RANKS
from tests.gpu.summary import EXPOSED, MANY, NO_GAIN, ONCE, TIMES, Line, joined, lines, once, table
from workbench.results.recordings import Recorded

WIDTH = 124
INTRO = """
Microseconds of one call on GPUs of one host, bfloat16 (float32 for embeddings). *Compute alone* is the faster of
cuBLAS and our kernel. *Pipeline floor*: no schedule in these slices beats computation alone at its fastest, or the
first slice and then the wire at the rate that puts alone reach. *Best baseline* is the fastest schedule that the
workbench has and that is not ours fused. cuBLAS or our kernel computes; then NCCL at its defaults, NCCL as a sweep on
two GPUs found it fastest (tuned), our own stores, copy engines or torch's symmetric all-reduces communicate. Torch's
overlapped operators count, too. All numbers of a row are of one block: schedules taken in turns, forwards and
backwards. A sample is one replay of a CUDA graph, divided by its calls; all ranks meet on their streams before the
first. Every result, the timed ones included, was verified on poisoned outputs against float64.
"""
"""What is said above all tables: how they are made, whatever was measured."""
FAULTS = {
    ("h200_nvl4", "2026-11-21"): """
These recordings have two known faults. Ranks began together only as exactly as a barrier on the host allows. And
cuBLAS alone, for operands that come in (`all_gather_gemm`, `all_to_all_gemm`), multiplied memory that nobody had
written. A GPU clocks higher on such memory, so these times alone are 10 to 15 % too short. Baselines are NCCL as it
comes and torch's symmetric all-reduces alone.
""",
}  # fmt: skip
"""What is wrong with older recordings, by machine and day."""
MULTICAST = {"NCCL": "NCCL_NVLS_ENABLE", "torch": "TORCH_SYMM_MEM_DISABLE_MULTICAST"}
"""By whom NVLink multicast is used, and the variable that stops it."""
REGISTRATION = "NCCL did not register the buffers of graphs, neither here nor in the sweep behind *tuned*."
NUMBERS = {2: "two", 4: "four", 8: "eight"}
VERSIONS = (("torch", "torch"), ("cuda", "CUDA"), ("triton", "Triton"), ("nccl", "NCCL"), ("driver", "driver"))


def text(entries: Sequence[Recorded]) -> str:
    """The tables of every world, the newest first, each with its small print; older kernels are marked."""
    by_world: dict[int, list[Recorded]] = {}
    for entry in sorted(entries, key=lambda each: each.measurement.trial.world):
        by_world.setdefault(entry.measurement.trial.world, []).append(entry)
    newest = max(dates(mine) for mine in by_world.values())
    worlds = [of_world(world, mine, dates(mine) == newest) for world, mine in by_world.items()]
    return "\n\n".join([wrapped(INTRO), *worlds])


def of_world(world: int, entries: Sequence[Recorded], is_newest: bool) -> str:
    """Times; what communication adds; one call in each graph; then how it was measured. Older kernels: times alone."""
    by_protocol = lines(joined(entries))
    many, single = by_protocol.get(MANY, []), by_protocol.get(ONCE, [])
    title = f"{NUMBERS.get(world, str(world)).capitalize()} GPUs"
    when = dates(entries) if is_newest else f"older kernels, {dates(entries)}"
    parts = [f"**{title}, {when}: microseconds of one call**", *_tables(TIMES, many)]
    with_parts = [line for line in many if line.compute and is_newest]
    if with_parts:
        parts += [f"**{title}: microseconds that communication adds to the computation alone**",
                  *_tables(EXPOSED, with_parts)]  # fmt: skip
    if single:
        parts += [f"**{title}: one call in each graph, as decoding calls it**", *_tables(once(many, single), single)]
    parts += [wrapped(sentences) for sentences in (losses(many), small_print(entries, many), faults(entries))]
    return "\n\n".join(filter(None, parts))


def _tables(columns: Any, found: Sequence[Line]) -> list[str]:
    return ["\n".join(table(columns, found))] if found else []


def wrapped(sentences: str) -> str:
    """As a document has them."""
    return textwrap.fill(" ".join(sentences.split()), WIDTH, break_long_words=False, break_on_hyphens=False)


def losses(found: Sequence[Line]) -> str:
    """In how many rows the fused kernel wins nothing."""
    lost = sum(line.ratio >= NO_GAIN for line in found)
    if not lost:
        return f"The fused kernel is faster than the best baseline in all {len(found)} rows." if found else ""
    return f"In {lost} of {len(found)} rows the fused kernel is not faster than the best baseline: their ratio is bold."


def small_print(entries: Sequence[Recorded], found: Sequence[Line]) -> str:
    """With what and how it was measured, in sentences; what older recordings do not say is left out."""
    told = (_machine, _multicast, _registration, _samples, _operands, _clocks, lambda _: _blocks(found))
    return " ".join(filter(None, (tell(entries) for tell in told)))


def faults(entries: Sequence[Recorded]) -> str:
    """What is known to be wrong with some of *entries*."""
    known = {(entry.measurement.trial.machine, str(entry.provenance["date"])[:10]) for entry in entries}
    return " ".join(sentences for place, sentences in FAULTS.items() if place in known)


def dates(entries: Sequence[Recorded]) -> str:
    """The days on which it was measured."""
    return " and ".join(sorted({str(entry.provenance["date"])[:10] for entry in entries}))


def _machine(entries: Sequence[Recorded]) -> str:
    versions = [entry.provenance["versions"] for entry in entries]
    known = [f"{title} {every(each.get(name) for each in versions)}" for name, title in VERSIONS
             if every(each.get(name) for each in versions)]  # fmt: skip
    gpus = every(entry.provenance.get("gpus") for entry in entries)
    commits = every(entry.provenance.get("git_commit") for entry in entries)
    settings = every(_setting(name, value) for entry in entries for name, value in _nccl(entry).items())
    nccl = f" The ranks' NCCL settings: {settings}." if settings else ""
    return f"{gpus}, {', '.join(known)}; commit {commits}.{nccl}"


def _nccl(entry: Recorded) -> Mapping[str, Any]:
    """NCCL's settings as the ranks had them, or as older recordings have those of the parent."""
    of_ranks = entry.measurement.facts.get("nccl")
    return of_ranks if isinstance(of_ranks, dict) else entry.provenance.get("nccl_settings") or {}


def _set(entries: Sequence[Recorded], name: str, value: str) -> bool:
    """Whether *name* was *value* wherever anything was written down of NCCL's settings."""
    recorded = list(filter(None, map(_nccl, entries)))
    return bool(recorded) and all(settings.get(name) == value for settings in recorded)


def _multicast(entries: Sequence[Recorded]) -> str:
    """Who was told to leave NVLink multicast alone."""
    who = [library for library, name in MULTICAST.items() if _set(entries, name, MULTICAST_OFF[name])]
    return f"NVLink multicast was off for {' and '.join(who)}." if who else ""


def _registration(entries: Sequence[Recorded]) -> str:
    """Whether NCCL could register the buffers of graphs."""
    off = all(_set(entries, name, value) for name, value in OF_RANKS.items())
    return REGISTRATION if off else ""


def _setting(name: str, value: Any) -> str:
    return f"{name}={value}"


def _samples(entries: Sequence[Recorded]) -> str:
    def count(protocol: str) -> str:
        return every(len(entry.measurement.samples[0]) for entry in entries
                     if entry.measurement.trial.protocol.name == protocol)  # fmt: skip

    single = f"; of one call in each graph {count(ONCE)}" if count(ONCE) else ""
    return f"Each time is the slowest rank's median of {count(MANY)} samples, with the 10 % and 90 % of them{single}."


def _operands(entries: Sequence[Recorded]) -> str:
    facts = [entry.measurement.facts for entry in entries]
    sets, times = (_range([each[name] for each in facts if isinstance(each.get(name), int | float)])
                   for name in ("operand_sets", "operand_times_l2"))  # fmt: skip
    return f"Calls take {sets} sets of operands in turns, which fill the L2 {times} times." if sets else ""


def _clocks(entries: Sequence[Recorded]) -> str:
    seen = [each for entry in entries for each in entry.measurement.conditions]
    clocks = [int(each["sm_clock_mhz"]) for each in seen if "sm_clock_mhz" in each]
    capped = every(reason for each in seen for reason in each.get("throttled") or ())
    if not clocks:
        return ""
    words = f"SM clocks were {min(clocks):,} to {max(clocks):,} MHz while it was measured"
    return f"{words}; the GPUs reported: {capped}." if capped else f"{words}."


def _blocks(found: Sequence[Line]) -> str:
    """How far a ratio is from that of the problem's other blocks."""
    apart = [abs(line.ratio / other - 1) for line in found for other in line.others]
    if not apart:
        return ""
    return (
        f"Earlier blocks of the same two schedules ({len(apart)}): their ratio is {100 * median(apart):.1f} % from the "
        f"one shown (median), at most {100 * max(apart):.1f} %."
    )


def _range(values: Sequence[float]) -> str:
    if not values:
        return ""
    low, high = f"{min(values):g}", f"{max(values):g}"
    return low if low == high else f"{low} to {high}"


def every(values: Iterable[Any]) -> str:
    """The different ones of *values*, in order."""
    return ", ".join(sorted({str(value) for value in values if value not in (None, "")}))
