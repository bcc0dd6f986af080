"""What follows from the times of one schedule, for people: a number with its unit, and what it means in one line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernels.hardware import Hardware
from kernels.outcome import Span
from kernels.problem import Problem
from kernels.trial import BESIDE_ONE_CALL, is_one_call
from kernels.units import percent_text, rate_text, ratio_text, seconds_text
from workbench.analysis.accuracy import wrong_estimates
from workbench.analysis.published import published
from workbench.naming import OF_ONE, PUBLISHED, TIMED, is_of_one, operator_title, source_title
from workbench.reports.cases import Case
from workbench.reports.tables import (
    Cell,
    ReportColumn,
    Table,
    is_failure,
    is_stop,
    markdown_text,
    parts_of,
    value_text,
)
from workbench.reports.tables import (
    Row as TablesRow,
)
from workbench.results import metrics
from workbench.results.metrics import JOINED

# Where a number comes from: four words, each with its own sign, so that they are told apart without colour.

MEANINGS = {
    "measured": "timed in this run, on the machine named above, after its result was found correct",
    "recorded": "timed in an earlier run, here or elsewhere, and played back from its recording",
    "estimated": "computed by the simulator; nothing was run for it",
    "published": "copied from a publication; neither run nor computed here",
}
"""In the order in which they are trusted about this machine."""


def legend(rows: Iterable[Mapping[str, Any]], num_published: int = 0) -> Table:
    """What each word means and how many rows of this report it stands for; *num_published* stand beside them."""
    counts = Counter(row.get("source") for row in rows if row.get("time_s") is not None)
    counts[PUBLISHED] += num_published
    strange = [source for source in counts if source not in MEANINGS and source is not None]
    lines = [(source_title(name), meaning, counts[name]) for name, meaning in MEANINGS.items()]
    lines += [(str(name), "a source that this report does not know", counts[name]) for name in strange]
    return Table(
        columns=(
            ReportColumn(heading="Source"),
            ReportColumn(heading="What it means"),
            ReportColumn(heading="Rows", figure=True),
        ),
        rows=tuple(
            (Cell(name), Cell(meaning), Cell(str(count) if count else "none")) for name, meaning, count in lines
        ),
    )


# How a run's times were taken, beside their protocol, as the ranks told it: operands, graphs, NCCL, clocks.

How = Mapping[str, Any]
"""`conditions` and `facts` of one measurement (kernels/outcome.py: timed_how)."""


def timed_how_sentences(hows: Sequence[How]) -> list[str]:
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


# What a reader must know to believe a report: the cautions before the numbers, the method after them.


def cautions(facts: Mapping[str, Any], rows: Sequence[TablesRow]) -> list[str]:
    """Sentences that stand above all numbers, because each changes what the numbers mean."""
    said = []
    timed = [row for row in rows if not is_failure(row)]
    on_cpu = [row for row in timed if row.get("backend") == "cpu" and row.get("source") in TIMED]
    if on_cpu:
        said.append(
            "Plan executed on CPU ranks: the arithmetic, the waiting and the times are real, the device is not a GPU."
        )
    world, cores = facts.get("world"), facts.get("cores") or (facts.get("provenance") or {}).get("cores")
    if world and cores and world > cores:
        said.append(f"{world} ranks shared {cores} cores, so they slowed each other down beyond what overlap explains.")
    if any(row.get("calibrated") is False for row in timed):
        said.append(
            "Some estimates use a machine description that was not calibrated: read their order, not their size."
        )
    if any(map(is_of_one, timed)):
        said.append(f"{OF_ONE.capitalize()}: a call's time was divided by them, who were there together.")
    if _beside_one_call(timed):
        said.append(f"Each call was timed alone, one per graph; {BESIDE_ONE_CALL}.")
    said += [f"{each} {each.advice}" for each in wrong_estimates(rows)]
    wrong = sum(row.get("stage") == "wrong" for row in rows)
    if wrong:
        said.append(f"{wrong} schedule{'s' * (wrong != 1)} gave a wrong result and have no time.")
    return said


def _beside_one_call(timed: Sequence[TablesRow]) -> bool:
    """Whether estimates stand beside times of one call per graph."""
    sources = {row.get("source") for row in timed if is_one_call(row.get("protocol"), row.get("backend"))}
    return "estimated" in sources and len(sources) > 1


def methods(facts: Mapping[str, Any], rows: Sequence[TablesRow]) -> str:
    """How the numbers were taken, as one Markdown paragraph made of what is known about this run."""
    timed = [row for row in rows if not is_failure(row)]
    ran = [row for row in timed if row.get("source") in TIMED]
    sentences = []
    if ran:
        sentences += [*_running(facts.get("protocol")), *_checking(ran), *_hardware(ran)]
        sentences += timed_how_sentences(facts.get("timed_how") or ())
    if any(row.get("floor_s") is not None for row in timed):
        sentences.append(
            "The floor is the larger of computation alone at its fastest and the least bytes that must cross the wire, "
            "divided by the bandwidth that one link direction achieves."
        )
    if any(row.get("source") == "estimated" for row in timed):
        sentences.append(
            f"An estimate is the simulator's{_by(timed)}: the schedule's plan, played on the machine's description; "
            "the range behind it is the one that the simulator itself gives."
        )
    if any(row.get("source") == "recorded" for row in timed):
        sentences.append("Recorded times were read from a recording, not taken again.")
    if any(is_failure(row) and not is_stop(row) for row in rows):
        sentences.append("A schedule that failed is listed with its reason; none was left out.")
    return " ".join(map(markdown_text, sentences)) or "Nothing was run."


def _running(protocol: Any) -> list[str]:
    """What the protocol says was repeated, as far as it says."""
    headline = (
        "A time is the slowest rank's median; the range behind it holds the middle 80 % of that rank's samples, "
        "the skew is what the fastest rank's median was less."
    )
    if not isinstance(protocol, Mapping) or not {"warmups", "repeats"} <= set(protocol):
        return [f"Protocol: {value_text('protocol', protocol)}.", headline] if protocol else [headline]
    warmups, repeats = protocol["warmups"], protocol["repeats"]
    return [
        f"Every schedule ran {warmups} times to warm up, unrecorded, and then {repeats} times on the clock.",
        headline,
    ]


def _by(timed: Sequence[TablesRow]) -> str:
    """The predictors' names and versions, as far as the rows say."""
    names = sorted({str(row["predictor"]) for row in timed if row.get("predictor")})
    return f" ({', '.join(names)})" if names else ""


def _hardware(ran: Sequence[TablesRow]) -> list[str]:
    """What the ranks ran on, as far as it was written down."""
    models = dict.fromkeys(str(Hardware.from_json(row["hardware"])) for row in ran if row.get("hardware"))
    return [f"The ranks ran on {'; or on '.join(models)}."] if models else []


def _checking(ran: Sequence[TablesRow]) -> list[str]:
    """How many results were compared with the reference, and the largest difference."""
    ran, _ = parts_of(ran)  # a part alone computes no result that could be compared
    if not ran:
        return []
    right = sum(row.get("correct") is True for row in ran)
    errors = [row["max_relative_error"] for row in ran if row.get("max_relative_error") is not None]
    largest = f" (largest relative error {max(errors):.2g})" if errors else ""
    return [
        "Before the clock started, every result was compared with a slow reference on the same operands.",
        f"{right} of {len(ran)} were found correct{largest}; a wrong result is a failure, never a time.",
    ]


# What papers report of the operators of a run, beside what the run found: told apart, and never one line.

CAUTION = "Papers have other shapes and machines than this run: compare the signs, not the sizes."
HEADINGS = ("Operator and scheme", "Source", "Time saved", "Against", "Where")


def beside_published(cases: Sequence[Case]) -> Table | None:
    """Published reductions of the operators and schemes of *cases*, each below what was found; None without any."""
    rows = [row for case in cases for row in _rows(case)]
    columns = tuple(ReportColumn(heading=heading, figure=heading == "Time saved") for heading in HEADINGS)
    return Table(columns=columns, rows=tuple(dict.fromkeys(rows))) if rows else None


def num_published(table: Table | None) -> int:
    """How many of the rows of `beside_published` are of papers."""
    return 0 if table is None else sum(row[1].text == source_title(PUBLISHED) for row in table.rows)


def _rows(case: Case) -> list[tuple[Cell, ...]]:
    best = next(iter(case.overlapping), None)
    ratio = None if best is None else metrics.gain(best)
    if best is None or ratio is None:
        return []
    reported = [one for one in published() if one.reduction is not None
                and (one.operator, one.scheme) == (best["operator"], best["scheme"])]  # fmt: skip
    if not reported:
        return []
    name = f"{operator_title(best['operator'])}, {best['scheme']}"
    ours = (name, source_title(best["source"]), percent_text(1 - 1 / ratio), "the best sequential schedule beside it",
            f"{best['world']} ranks, {best['machine']}")  # fmt: skip
    theirs = [(f"{one.scope}, {one.scheme}", source_title(PUBLISHED), one.text, one.baseline,
               ", ".join(filter(None, (one.machine, one.reference, one.mark)))) for one in reported]  # fmt: skip
    return [tuple(map(Cell, texts)) for texts in (ours, *theirs)]


# What follows from the times of one schedule, for people: a number with its unit, and what it means in one line.

Row = Mapping[str, Any]

MEANING: Mapping[str, str] = {
    "time ratio": "its time over the sequential one: below 1 is faster",
    "against streams alone": "its time over the same two streams without priority, shaping or SMs set aside",
    "exposed communication": "what communication adds to the computation",
    "of the library's exposed": "this exposed communication over that of computing first and calling the library then",
    "pipeline floor": "computation alone, or the first slice and then the wire at the measured rate of puts",
    "of the pipeline floor": "its time over that floor: what its slices leave to be gained",
    "put rate": "bytes that leave a rank per second, its puts alone",
    "overlap efficiency": "saved time, of the most that overlap can save",
    "ideal speed-up": "of perfect overlap: the best computation and the fastest transfer alone, one after the other",
    "share of ideal": "gained speed-up, of the one of perfect overlap",
    "overlap ratio": "of the time in which a rank communicates, it computes as well",
    "decomposition loss": "computation alone, cut and ordered as this schedule does, over the best one alone",
    "contention loss": "its computation beside communication over the same alone",
    "decomposition loss of communication": "its pieces moved alone over the fastest transfer of the same bytes",
    "contention loss of communication": "its bytes on their way beside computation over the same alone",
    "algbw": "the collective alone: bytes of its buffer per second, as nccl-tests counts them",
    "busbw": "the collective alone: what one link direction carries, as nccl-tests counts it",
}


@dataclass(frozen=True, slots=True)
class DerivedNumber:
    """One derived number of one schedule."""

    name: str
    text: str
    """The value with its unit."""
    meaning: str


def derived(row: Row, spans: Sequence[Span], pieces_alone_s: float | None) -> list[DerivedNumber]:
    """Those of *row* that are known: *spans* and *pieces_alone_s* are as for `busy.waterfall`."""
    time_s, pipeline_s, compute_s, comm_s, sequential_s, plain_s, library_s, whole_s, transfer_s = (
        row.get(key) for key in ("time_s", "pipeline_floor_s", *JOINED[1:])
    )
    losses, together = (row.get(key) or {} for key in ("decomposition_loss", "contention_loss"))
    problem = Problem(row["operator"], tuple(row["shape"].items()), row["dtype"], row["world"])
    wire_s = comm_s if problem.world > 1 and comm_s else None  # a rank alone has nobody to send to
    computing_s = metrics.computing_seconds(metrics.per_problem(spans, row)) or None
    known = {
        "time ratio": _said(_ratio, metrics.time_ratio, time_s, sequential_s),
        "against streams alone": _said(_ratio, float, row.get("against_streams")),
        "exposed communication": _said(seconds_text, metrics.exposed_communication, time_s, compute_s),
        "of the library's exposed": _said(_share, metrics.exposed_share, time_s, library_s, compute_s),
        "pipeline floor": _said(seconds_text, float, pipeline_s),
        "of the pipeline floor": _said(_ratio, metrics.time_ratio, time_s, pipeline_s),
        "put rate": _said(_from(row), float, row.get("put_bytes_per_second") if pipeline_s else None),
        "overlap efficiency": _said(_share, metrics.overlap_efficiency, time_s, plain_s, compute_s, wire_s),
        "ideal speed-up": _said(_ratio, metrics.ideal_speedup, whole_s, transfer_s),
        "share of ideal": _said(_share, metrics.share_of_ideal, time_s, whole_s, transfer_s),
        "overlap ratio": _said(_share, metrics.overlap_ratio, spans),
        "decomposition loss": _said(_ratio, metrics.decomposition_loss, pieces_alone_s, whole_s),
        "contention loss": _said(_ratio, float, together.get(metrics.COMPUTE))
        or _said(_ratio, metrics.contention_loss, computing_s, pieces_alone_s),
        "decomposition loss of communication": _said(_ratio, float, losses.get(metrics.COMMUNICATION)),
        "contention loss of communication": _said(_ratio, float, together.get(metrics.COMMUNICATION)),
        "algbw": _said(rate_text, metrics.algbw, problem, wire_s),
        "busbw": _said(rate_text, metrics.busbw, problem, wire_s),
    }
    return [DerivedNumber(name, text, MEANING[name]) for name, text in known.items() if text is not None]


def derived_table(numbers: Sequence[DerivedNumber]) -> Table:
    """One line a number."""
    columns = (
        ReportColumn(heading="Derived number"),
        ReportColumn(heading="Value", figure=True),
        ReportColumn(heading="What it means"),
    )
    return Table(columns=columns, rows=tuple(tuple(map(Cell, (n.name, n.text, n.meaning))) for n in numbers))


def _said(written: Callable[[float], str], number: Callable[..., float | None], *given: Any) -> str | None:
    """The number of what is *given*, written; None while a part of it is missing."""
    value = None if None in given else number(*given)
    return None if value is None else written(value)


def _from(row: Row) -> Callable[[float], str]:
    """A rate with where it comes from."""
    return lambda rate: f"{rate_text(rate)} ({row.get('put_rate_from')})"


def _ratio(value: float) -> str:
    return f"{value:.3g} ×"


def _share(value: float) -> str:
    return percent_text(value)
