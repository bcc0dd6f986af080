"""Recordings of GPUs as README's tables and text: `python -m tests.gpu.summary RECORDING ...`, a row a problem."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from cluster.hosts import MULTICAST_OFF
from kernels.backends.triton.nccl import OF_RANKS
from kernels.outcome import BLOCK_KIND
from kernels.regime import AGREEING
from kernels.schemes import BASELINE
from kernels.schemes.axis_rules import LAUNCHES
from kernels.schemes.library import CALLS
from kernels.units import percent_text
from tests.gpu.sittings import LAST
from workbench import machines
from workbench.results import metrics, recordings
from workbench.results.recordings import Recorded
from workbench.results.rows import question_of
from workbench.simulator.columns import Identity

# What problems and baselines of the GPU tables are called.

Row = Mapping[str, Any]

ORDER = ("gemv_all_reduce", "embedding_all_to_all", "gemm_all_to_all", "all_gather_gemm", "all_to_all_gemm",
         "gemm_reduce_scatter", "gemm_all_reduce")  # fmt: skip
COLLECTIVES = {
    "library": "NCCL", "library_tuned": "NCCL tuned", "direct": "our stores", "copy_engine": "copy engines",
    "one_shot": "torch's one shot", "two_shot": "torch's two shot", "overlapped": "torch's overlapped",
}  # fmt: skip
WHO = {"library": "cuBLAS", "ours": "our kernel"}


def problem_words(row: Row) -> str:
    """Operator and sizes, as the tables' first column."""
    shape = row["shape"]
    match row["operator"]:
        case "gemv_all_reduce":
            sizes = f"{shape['n']} x {shape['k']}, {shape['tokens']} token{'s' if shape['tokens'] > 1 else ''}"
        case "embedding_all_to_all":
            indices = str(shape["indices"]).replace("_", " ")
            sizes = (
                f"{shape['tables_per_rank']} tables, batch {shape['batch']}, {shape['pooling']} lookups of "
                f"{shape['dim']}, {indices}"
            )
        case _:
            sizes = f"{shape['m']} x {shape['n']} x {shape['k']}"
    return f"`{row['operator']}` {sizes}"


def baseline_words(row: Row) -> str:
    """Who computes and who communicates; a lookup is always ours."""
    if row["scheme"] == "decomposed":
        return COLLECTIVES["overlapped"]
    collective = str(row["axes"]["collective"])
    moved = COLLECTIVES.get(collective, collective)
    if row["operator"] == "embedding_all_to_all" or collective == "overlapped":
        return moved
    return f"{WHO[str(row['axes'].get('kernel', 'library'))]} + {moved}"


# Recordings of GPUs as the tables of docs/results/: `python -m tests.gpu.summary RECORDING ...`, a row a problem.
#
# Microseconds of one call: the slowest rank's median, with the tenth and nine tenths of its samples. All numbers of a
# row are of one block of one file: the last block that tests/gpu/sittings.py keeps for the winner. It has to hold a
# right baseline and a right fused schedule: without such a block there is no row. What recordings from before there
# were blocks hold of one problem counts as one block for each file.

NONE = "–"
MANY, ONCE = "device", "device_latency"
"""Protocols of tests/gpu/tables.py: as many calls in a graph as fill some milliseconds, and one."""
CUT = "decomposed"
"""The scheme that older recordings have torch's overlapped operators as, without LAUNCHES: our own came with it."""

NO_GAIN = 0.995
"""What is written 1.00 or more is no gain."""


@dataclass(frozen=True, slots=True)
class Line:
    """One problem by one protocol: all of one block."""

    rows: Sequence[Row]
    """Of the block, joined (workbench/results/metrics.py)."""
    baseline: Row
    fused: Row
    others: tuple[float, ...] = ()
    """The ratios of the same two schedules in the problem's earlier blocks."""

    @property
    def world(self) -> int:
        return int(self.fused["world"])

    @property
    def ratio(self) -> float:
        return metrics.time_ratio(self.fused["time_s"], self.baseline["time_s"])

    @property
    def compute(self) -> Row | None:
        """The faster of cuBLAS and our kernel, alone."""
        return fastest(self.rows, "compute")

    @property
    def floor_s(self) -> float | None:
        return self.fused["pipeline_floor_s"]

    @property
    def library(self) -> Row | None:
        """NCCL's fastest sequential schedule, whoever computes."""
        return fastest(row for row in baselines(self.rows) if row["axes"].get("collective") in CALLS)

    def exposed_s(self, row: Row | None) -> float | None:
        """What communication adds to the computation alone."""
        if row is None or self.compute is None:
            return None
        return metrics.exposed_communication(row["time_s"], self.compute["time_s"])

    @property
    def share(self) -> float | None:
        """Of NCCL's exposed communication, what the fused schedule exposes."""
        if self.library is None or self.compute is None:
            return None
        return metrics.exposed_share(self.fused["time_s"], self.library["time_s"], self.compute["time_s"])


def joined(entries: Sequence[Recorded]) -> list[dict[str, Any]]:
    """*entries* as rows with the numbers of their own block, their spans, when each was measured, the block's kind.

    Recordings that name no kind have whole sittings: the later one counts, as a last block does.
    """
    return metrics.fill([row_of(Identity(entry)) for entry in entries])


@lru_cache(maxsize=8192)
def row_of(of: Identity) -> Row:
    """The row of one entry alone: many tables are made of the same recordings."""
    timed, samples = of.value.measurement, of.value.samples
    kind = timed.facts.get(BLOCK_KIND, LAST)
    row = metrics.row_of(timed, None, machines.shipped_machine(timed.trial.machine))
    return row | {"at": max(sample.at for sample in samples), BLOCK_KIND: kind, "spans": timed.spans}


def fastest(rows: Iterable[Row], part: str = "whole") -> Row | None:
    """The right one of *part* that takes least."""
    right = [row for row in rows if row["part"] == part and row["time_s"] and row["correct"] is not False]
    return min(right, key=lambda row: float(row["time_s"]), default=None)


def baselines(rows: Iterable[Row]) -> list[Row]:
    """Those that anybody could have picked: sequential ones, and torch's own overlapped operators."""
    return [row for row in rows if row["scheme"] == BASELINE or is_torchs(row)]


def is_torchs(row: Row) -> bool:
    """Whether it is torch's overlapped operator as older recordings have it, and no pieces of ours."""
    return row["scheme"] == CUT and LAUNCHES not in row["axes"]


def of_block(rows: Sequence[Row]) -> Line | None:
    """The line of one block; None where it holds no baseline or no fused schedule."""
    baseline, fused = fastest(baselines(rows)), fastest(row for row in rows if row["scheme"] == "fused")
    return Line(rows, baseline, fused) if baseline and fused else None


def lines(rows: Iterable[Row]) -> dict[str, list[Line]]:
    """By protocol, a line a problem in the order of ORDER."""
    blocks: dict[tuple[Any, ...], dict[str, list[Row]]] = {}
    for row in rows:
        blocks.setdefault((row["protocol"], question_of(row)), {}).setdefault(row["block"], []).append(row)
    found: dict[str, list[Line]] = {}
    for (protocol, _), by_block in blocks.items():
        in_time = sorted(by_block.values(), key=lambda mine: max(row["at"] for row in mine))
        known = [line for line in map(of_block, in_time) if line]
        if lasts := [line for line in known if line.rows[0][BLOCK_KIND] == LAST]:
            last = lasts[-1]
            again = (same_pair(line.rows, last) for line in known[: known.index(last)])
            others = tuple(ratio for ratio in again if ratio is not None)
            found.setdefault(protocol, []).append(replace(last, others=others))
    return {protocol: sorted(mine, key=_place) for protocol, mine in found.items()}


def same_pair(rows: Iterable[Row], line: Line) -> float | None:
    """The ratio of the two schedules of *line* among *rows*; None where one of them is missing."""
    times = {row["key"]: row["time_s"] for row in rows if row["time_s"]}
    fused_s, baseline_s = times.get(line.fused["key"]), times.get(line.baseline["key"])
    return metrics.time_ratio(fused_s, baseline_s) if fused_s and baseline_s else None


def _place(line: Line) -> int:
    return ORDER.index(line.fused["operator"])


def spread(row: Row | None) -> str:
    """The median with the tenth and nine tenths of the samples."""
    if row is None:
        return NONE
    return f"{number(row['time_s'])} ({number(row['low_s'])} to {number(row['high_s'])})"


def number(seconds: float | None) -> str:
    """Microseconds with three digits."""
    if seconds is None:
        return NONE
    micro = seconds * 1e6
    return f"{micro:.0f}" if abs(micro) >= 100 else f"{micro:.1f}"


def percent(share: float | None) -> str:
    return NONE if share is None else f"{share * 100:.0f} %"


def bold(ratio: float) -> str:
    """A ratio; one that is no gain stands out."""
    return f"**{ratio:.2f}**" if ratio >= NO_GAIN else f"{ratio:.2f}"


def named(row: Row) -> str:
    """A baseline's time and what it is."""
    return f"{spread(row)}, {baseline_words(row)}"


Of = TypeVar("Of")
"""What a row of a table is of."""
Column = tuple[str, Callable[[Of], str]]
PROBLEM: Column[Line] = ("operator and shape", lambda line: problem_words(line.fused))
RATIO: Column[Line] = ("ratio", lambda line: bold(line.ratio))
REGIME: Column[Line] = ("regime", lambda line: line.fused["regime"])
TIMES: tuple[Column[Line], ...] = (
    PROBLEM,
    ("compute alone", lambda line: number(line.compute and line.compute["time_s"])),
    ("pipeline floor", lambda line: number(line.floor_s)),
    ("best baseline", lambda line: named(line.baseline)),
    ("fused", lambda line: spread(line.fused)),
    RATIO,
    REGIME,
)
EXPOSED: tuple[Column[Line], ...] = (
    PROBLEM,
    ("NCCL exposes", lambda line: number(line.exposed_s(line.library))),
    ("best baseline exposes", lambda line: number(line.exposed_s(line.baseline))),
    ("fused exposes", lambda line: number(line.exposed_s(line.fused))),
    ("share of NCCL's", lambda line: percent(line.share)),
)


def table(columns: Sequence[Column[Of]], some: Sequence[Of]) -> list[str]:
    """Lines of Markdown; a column that nobody has a number in is left out."""
    cells = [[of(each) for _, of in columns] for each in some]
    kept = [at for at in range(len(columns)) if any(row[at] != NONE for row in cells)]
    heads = [columns[at][0] for at in kept]
    body = ["| " + " | ".join(row[at] for at in kept) + " |" for row in cells]
    return [f"| {' | '.join(heads)} |", "|---" + "|---:" * (len(heads) - 1) + "|", *body]


def once(many: Sequence[Line], single: Sequence[Line]) -> tuple[Column[Line], ...]:
    """Columns of one call in each graph, with the ratio of many calls beside."""
    beside = {question_of(line.fused): line for line in many}

    def ratio_of_many(line: Line) -> str:
        other = beside.get(question_of(line.fused))
        return f"{other.ratio:.2f}" if other else NONE

    ratios = (("ratio, one call", RATIO[1]), ("ratio, many calls", ratio_of_many))
    return (*TIMES[:2], *TIMES[3:5], *ratios, REGIME)


def read(paths: Sequence[Path]) -> list[Recorded]:
    """All that *paths* recorded."""
    return [entry for path in paths for entry in recordings.recordings(path)]


def main() -> int:

    print(text(read([Path(name) for name in sys.argv[1:]])))
    return 0


# Of each scenario its last block: what tables of scenarios have in common that a committed seed drew.


def last_blocks(entries: Sequence[Recorded]) -> list[list[Row]]:
    """The right rows of the newest last block of each problem, all numbers of that block joined."""
    blocks: dict[object, dict[str, list[Row]]] = {}
    for row in joined(entries):
        if row[BLOCK_KIND] == LAST and row["time_s"] and row["correct"] is not False:
            blocks.setdefault(question_of(row), {}).setdefault(row["block"], []).append(row)
    return [max(each.values(), key=lambda rows: max(row["at"] for row in rows)) for each in blocks.values()]


# The text around the GPU tables of docs/results/: measured with what, how, and what is lost.

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
REGIMES = f"""*Regime* is of a row's block: *burst* where {percent_text(AGREEING)} of each GPU's readings or more name
no reason for a low clock, *steady* where as many name the power cap, else *unknown*
([causes](../metrics.md#the-regime))."""
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
    """SM clocks, why they were low, and what the column *regime* says of them."""
    seen = [each for entry in entries for each in entry.measurement.conditions]
    clocks = [int(each["sm_clock_mhz"]) for each in seen if "sm_clock_mhz" in each]
    capped = every(reason for each in seen for reason in each.get("throttled") or ())
    if not clocks:
        return "No clocks were read, so the *regime* is unknown."
    words = f"SM clocks were {min(clocks):,} to {max(clocks):,} MHz while it was measured"
    words = f"{words}; the GPUs reported: {capped}." if capped else f"{words}."
    return f"{words} {REGIMES}" if capped else words


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


if __name__ == "__main__":
    sys.exit(main())
