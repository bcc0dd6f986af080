"""How a run's numbers were taken and what they mean: sources, timing, cautions, method, derived numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernels.hardware import Hardware
from kernels.outcome import Span
from kernels.problem import Problem
from kernels.schemes import BASELINE
from kernels.trial import ONE_CALL_NOTE, is_one_call
from kernels.units import num_text, percent_text, rate_text, ratio_text, seconds_text
from workbench.analysis.accuracy import wrong_estimates
from workbench.analysis.published import published
from workbench.machines import crowded
from workbench.naming import PER_PROBLEM_NOTE, PUBLISHED, TIMED, is_per_problem, operator_title, source_title
from workbench.reports.cases import Case
from workbench.reports.tables import (
    Cell,
    ReportColumn,
    Table,
    is_failure,
    markdown_text,
    parts_of,
    value_text,
)
from workbench.results import metrics
from workbench.results.metrics import JOINED
from workbench.results.quiet import busy_sentence, caution, distrust, least_disturbed
from workbench.results.rows import Row, is_stop

# The four sources of numbers, each with its own sign, so that they differ without colour.

MEANINGS = {
    "measured": "timed in this run, on the machine named above, after its result was found correct",
    "recorded": "timed in an earlier run, here or elsewhere, and played back from its recording",
    "estimated": "computed by the simulator; nothing was run for it",
    "published": "copied from a publication; neither run nor computed here",
}
"""What each source means; the source that says most about this machine comes first."""


def legend(rows: Iterable[Mapping[str, Any]], num_published: int = 0) -> Table:
    """A table of the sources: what each means, and its number of rows; *num_published* published rows are added."""
    counts = Counter(row.get("source") for row in rows if row.get("time_s") is not None)
    counts[PUBLISHED] += num_published
    strange = [source for source in counts if source not in MEANINGS and source is not None]
    lines = [(source_title(name), meaning, counts[name]) for name, meaning in MEANINGS.items()]
    lines += [(str(name), "a source that this report does not know", counts[name]) for name in strange]
    return Table(
        columns=(
            ReportColumn(heading="Source", word=True),
            ReportColumn(heading="What it means"),
            ReportColumn(heading="Rows", figure=True),
        ),
        rows=tuple(
            (Cell(name), Cell(meaning), Cell(str(count) if count else "none")) for name, meaning, count in lines
        ),
    )


# How a run's times were taken, as the ranks reported it: operands, graphs, NCCL, clocks.

TimingRecord = Mapping[str, Any]
"""Type of `conditions` and `facts` of one measurement (kernels/outcome.py: timed_how)."""


def timing_notes(records: Sequence[TimingRecord]) -> list[str]:
    """Sentences about how all measurements of a run were taken."""
    facts = [record.get("facts") or {} for record in records]
    conditions = [reading for record in records for reading in record.get("conditions") or ()]
    return [*_operands(facts), *_graphs(facts), *_nccl(facts), *_clocks(conditions)]


def _operands(facts: Sequence[TimingRecord]) -> list[str]:
    """How operands were drawn for each session, and on GPUs how much of the L2 they filled."""
    seeds = len(set(_values(facts, "seed")))
    if not seeds:
        return []
    drawn = "from one seed" if seeds == 1 else f"from {seeds} seeds, another one for each session"
    drawing = f"Operands were drawn anew {drawn}, and two values of them alternated"
    if not (sets := _values(facts, "operand_sets")):
        return [f"{drawing}."]
    times = _range(_values(facts, "operand_times_l2"), ratio_text)
    return [f"{drawing} in {_range(sets)} sets, which filled the L2 {times}."]


def _graphs(facts: Sequence[TimingRecord]) -> list[str]:
    calls = _values(facts, "calls_per_graph")
    if not calls:
        return []
    if set(calls) == {1}:
        return ["A sample is one call per graph: it pays alone for all that begins and ends it."]
    return [f"A sample is the mean of the calls of one CUDA graph, of which there were {_range(calls)}."]


def _nccl(facts: Sequence[TimingRecord]) -> list[str]:
    """The settings of NCCL, once if all ranks of all trials had the same."""
    every = [settings for nccl in _values(facts, "nccl") for settings in (nccl if isinstance(nccl, list) else [nccl])]
    settings_text = dict.fromkeys(
        f"NCCL {settings.get('version')}"
        + "".join(f", {name}={value}" for name, value in settings.items() if name != "version")
        for settings in every if settings
    )  # fmt: skip
    tuned = dict.fromkeys(_values(facts, "library_tuned"))
    more = [f"library_tuned took {' and '.join(tuned)}."] if tuned else []
    return [*([f"The ranks had {'; or '.join(settings_text)}."] if settings_text else []), *more]


def _clocks(conditions: Iterable[TimingRecord]) -> list[str]:
    """The clock readings, each once, since all trials of a session share them."""
    readings = list({str(sorted(reading.items())): reading for reading in conditions}.values())
    clocks = _values(readings, "sm_clock_mhz")
    if not clocks:
        return []
    power = _values(readings, "power_watts")
    slowed = [reading for reading in readings if reading.get("throttled")]
    reasons = dict.fromkeys(reason for reading in slowed for reason in reading["throttled"])
    clock_text = f"SM clocks were {_range(clocks, '{:,} MHz'.format)}" + (
        f", power at most {max(power):.0f} W" if power else ""
    )
    clock_text += f", in {len(readings)} reading{'s' * (len(readings) != 1)}"
    why = f"{len(slowed)} of them say that clocks were lowered: {', '.join(reasons)}" if slowed else "none was lowered"
    return [f"{clock_text}; {why}."]


def _values(records: Iterable[TimingRecord], name: str) -> list[Any]:
    return [record[name] for record in records if record.get(name) is not None]


def _range(values: Sequence[Any], text: Callable[[Any], str] = str) -> str:
    """The smallest and the largest of *values* as text, or the only one."""
    low, high = text(min(values)), text(max(values))
    return low if low == high else f"{low} to {high}"


# The cautions before the numbers, and the method after them.


def trusted(rows: Sequence[Row]) -> list[str]:
    """What supports the times: how busy the computer was, samples, verification, calibration."""
    ran = [row for row in rows if row.get("source") in TIMED and not is_failure(row) and row.get("time_s")]
    wholes = [row for row in ran if row.get("part") in (None, "whole")]
    notes = []
    shares = [row["others_share"] for row in least_disturbed(ran) if row.get("others_share") is not None]
    if shares and not busy_sentence(ran):
        notes.append(f"The computer was quiet: others used at most {max(shares):.0%} of the cores.")
    elif not shares and any(row.get("backend") == "cpu" for row in ran):
        notes.append("Nobody read how much of the cores others used meanwhile.")
    if rounds := [row["samples"] // (row.get("world") or 1) for row in wholes if row.get("samples")]:
        notes.append(f"Each schedule was timed in {_range(rounds)} rounds, interleaved with the others of its block.")
    if wholes and all(row.get("correct") for row in wholes):
        notes.append("Every result was verified before its clock started.")
    estimates = [row for row in rows if row.get("source") == "estimated"]
    if estimates and all(row.get("calibrated") for row in estimates):
        notes.append("Estimates are of a machine description that was calibrated.")
    return notes


def cautions(facts: Mapping[str, Any], rows: Sequence[Row]) -> list[str]:
    """Warnings to be read before the numbers, because each changes what the numbers mean."""
    notes = []
    timed = [row for row in rows if not is_failure(row)]
    on_cpu = [row for row in timed if row.get("backend") == "cpu" and row.get("source") in TIMED]
    if on_cpu:
        notes.append(
            "Plan executed on CPU ranks: the arithmetic, the waiting and the times are real, the device is not a GPU."
        )
    if sentence := caution([row for row in timed if row.get("source") in TIMED]):
        notes.append(sentence)
    world, cores = facts.get("world"), facts.get("cores")
    if world and cores and on_cpu and (shared := crowded(world, cores, "")):
        notes.append(shared)
    if any(row.get("calibrated") is False for row in timed):
        notes.append(
            "Some estimates use a machine description that was not calibrated: read their order, not their size."
        )
    if any(map(is_per_problem, timed)):
        notes.append(
            f"{PER_PROBLEM_NOTE.capitalize()}: a call's time was divided by their number, as they share the call."
        )
    if _mixes_estimates_with_single_calls(timed):
        notes.append(f"Each call was timed alone, one per graph; {ONE_CALL_NOTE}.")
    notes += [f"{each} {each.advice}" for each in wrong_estimates(rows)]
    wrong = sum(row.get("stage") == "wrong" for row in rows)
    if wrong:
        notes.append(f"{wrong} schedule{'s' * (wrong != 1)} gave a wrong result and have no time.")
    return notes


def _mixes_estimates_with_single_calls(timed: Sequence[Row]) -> bool:
    """Whether *timed* mixes estimates with times of one call per graph."""
    sources = {row.get("source") for row in timed if is_one_call(row.get("protocol"), row.get("backend"))}
    return "estimated" in sources and len(sources) > 1


def methods(facts: Mapping[str, Any], rows: Sequence[Row]) -> str:
    """How the numbers were taken, as one Markdown paragraph about what is known of this run."""
    timed = [row for row in rows if not is_failure(row)]
    ran = [row for row in timed if row.get("source") in TIMED]
    sentences = []
    if ran:
        sentences += [*_running(facts.get("protocol")), *_checking(ran), *_hardware(ran)]
        sentences += timing_notes(facts.get("timed_how") or ())
    whole, _ = parts_of(ran)
    if len({row.get("key") for row in whole if row.get("rounds_s")}) > 1:
        sentences.append(PAIRED)
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


PAIRED = (
    "A speed-up by paired rounds, and a gain, is the centre of the ratios of rounds that took turns. The ratio of the "
    "two times, which the page's Table and a terminal have, differs a little."
)


def _running(protocol: Any) -> list[str]:
    """Sentences about warm-ups and repeats of *protocol*, and how a time is computed."""
    headline = (
        "A time is the slowest rank's median; the range behind it holds the middle 80 % of that rank's samples, "
        "the skew is what the fastest rank's median was less."
    )
    if not isinstance(protocol, Mapping) or not {"warmups", "repeats"} <= set(protocol):
        return [f"Protocol: {value_text('protocol', protocol)}.", headline] if protocol else [headline]
    often = [num_text(protocol[name], "time") for name in ("warmups", "repeats")]
    return [
        f"Every schedule ran {often[0]} to warm up, unrecorded, and then {often[1]} on the clock.",
        headline,
    ]


def _by(timed: Sequence[Row]) -> str:
    """The predictors' names and versions in parentheses, if the rows have them."""
    names = sorted({str(row["predictor"]) for row in timed if row.get("predictor")})
    return f" ({', '.join(names)})" if names else ""


def _hardware(ran: Sequence[Row]) -> list[str]:
    """A sentence about the ranks' hardware, if the rows have it."""
    models = dict.fromkeys(str(Hardware.from_json(row["hardware"])) for row in ran if row.get("hardware"))
    return [f"The ranks ran on {'; or on '.join(models)}."] if models else []


def _checking(ran: Sequence[Row]) -> list[str]:
    """Sentences about how many results were compared with the reference, and the largest difference."""
    ran, _ = parts_of(ran)  # parts alone have no result to compare
    if not ran:
        return []
    right = sum(row.get("correct") is True for row in ran)
    errors = [row["max_relative_error"] for row in ran if row.get("max_relative_error") is not None]
    largest = f" (largest relative error {max(errors):.2g})" if errors else ""
    return [
        "Before the clock started, every result was compared with a slow reference on the same operands.",
        f"{right} of {len(ran)} were found correct{largest}; a wrong result is a failure, never a time.",
    ]


# Published reductions for the operators of a run, next to the run's own in separate lines.

CAUTION = "Papers have other shapes and machines than this run: compare the signs, not the sizes."
HEADINGS = ("Operator and scheme", "Source", "Time saved", "Against", "Where")


def published_table(cases: Sequence[Case]) -> Table | None:
    """Published reductions for the operators and schemes of *cases*, below the run's own; None without any."""
    rows = [row for case in cases for row in _rows(case)]
    columns = tuple(
        ReportColumn(heading=heading, figure=heading == "Time saved", word=heading == "Source") for heading in HEADINGS
    )
    return Table(columns=columns, rows=tuple(dict.fromkeys(rows))) if rows else None


def num_published(table: Table | None) -> int:
    """How many rows of a `published_table` are published ones."""
    return 0 if table is None else sum(row[1].text == source_title(PUBLISHED) for row in table.rows)


def _rows(case: Case) -> list[tuple[Cell, ...]]:
    best = next(iter(case.overlapping), None)
    ratio = None if best is None else metrics.gain(best)
    if best is None or ratio is None:
        return []
    reported = [claim for claim in published() if claim.reduction is not None
                and (claim.operator, claim.scheme) == (best["operator"], best["scheme"])]  # fmt: skip
    if not reported:
        return []
    name = f"{operator_title(best['operator'])}, {best['scheme']}"
    ours = (name, source_title(best["source"]), percent_text(1 - 1 / ratio),
            "the best sequential schedule of its block", f"{best['world']} ranks, {best['machine']}")  # fmt: skip
    theirs = [(f"{claim.scope}, {claim.scheme}", source_title(PUBLISHED), claim.text, claim.baseline,
               ", ".join(filter(None, (claim.machine, claim.reference, claim.mark))))
              for claim in reported]  # fmt: skip
    return [tuple(map(Cell, texts)) for texts in (ours, *theirs)]


# Numbers derived from the times of one schedule, each with its unit and meaning.

MEANING: Mapping[str, str] = {
    "time ratio": "its time over the sequential one: below 1 is faster",
    "against streams alone": "its time over the same two streams without priority, shaping or SMs set aside",
    "exposed communication": "what communication adds to the computation",
    "of the library's exposed": "this exposed communication over that of computing first and calling the library then",
    "pipeline floor": "computation alone, or the first slice and then the wire at the measured rate of puts",
    "of the pipeline floor": "its time over that floor: what its slices leave to be gained",
    "put rate": "bytes that leave a rank per second, its puts alone",
    "overlap efficiency": "saved time, as a share of the most that overlap can save",
    "ideal speed-up": "of perfect overlap: the best computation and the fastest transfer alone, one after the other",
    "share of ideal": "gained speed-up, as a share of that of perfect overlap",
    "overlap ratio": "share of a rank's communication time in which it computes as well",
    "decomposition loss": "computation alone, cut and ordered as this schedule does, over the best one alone",
    "contention loss": "its computation during communication over the same alone",
    "decomposition loss of communication": "its pieces moved alone over the fastest transfer of the same bytes",
    "contention loss of communication": "its transfers during computation over the same alone",
    "algbw": "the collective alone: bytes of its buffer per second, as nccl-tests counts them",
    "busbw": "the collective alone: what one link direction carries, as nccl-tests counts it",
}


@dataclass(frozen=True, slots=True)
class DerivedNumber:
    """One derived number of one schedule."""

    name: str
    text: str
    """The value with its unit, and in brackets where it comes from."""
    meaning: str

    @property
    def text_and_aside(self) -> tuple[str, str]:
        value, _, origin = self.text.partition(" (")
        return value, origin.removesuffix(")")


def derived(row: Row, spans: Sequence[Span], pieces_alone_s: float | None) -> list[DerivedNumber]:
    """The derived numbers of *row* that are known; *spans* and *pieces_alone_s* are as for `metrics.waterfall`.

    A baseline, and a row whose times cannot be trusted, has no share of ideal: it overlaps nothing, or others slowed
    its parts.
    """
    time_s, pipeline_s, compute_s, comm_s, sequential_s, plain_s, library_s, whole_s, transfer_s = (
        row.get(key) for key in ("time_s", "pipeline_floor_s", *JOINED[1:])
    )
    decomposition, contention = (row.get(key) or {} for key in ("decomposition_loss", "contention_loss"))
    problem = Problem(row["operator"], tuple(row["shape"].items()), row["dtype"], row["world"])
    wire_s = comm_s if problem.world > 1 and comm_s else None  # a single rank sends nothing
    computing_s = metrics.computing_seconds(metrics.per_problem(spans, row)) or None
    has_share = row.get("scheme") != BASELINE and distrust([row]) is None
    known = {
        "time ratio": _formatted(_ratio, metrics.time_ratio, time_s, sequential_s),
        "against streams alone": _formatted(_ratio, float, row.get("against_streams")),
        "exposed communication": _formatted(seconds_text, metrics.exposed_communication, time_s, compute_s),
        "of the library's exposed": _formatted(_share, metrics.exposed_share, time_s, library_s, compute_s),
        "pipeline floor": _formatted(seconds_text, float, pipeline_s),
        "of the pipeline floor": _formatted(_ratio, metrics.time_ratio, time_s, pipeline_s),
        "put rate": _formatted(_rate_with_origin(row), float, row.get("put_bytes_per_second") if pipeline_s else None),
        "overlap efficiency": _formatted(_share, metrics.overlap_efficiency, time_s, plain_s, compute_s, wire_s),
        "ideal speed-up": _formatted(_ratio, metrics.ideal_speedup, whole_s, transfer_s),
        "share of ideal": _formatted(
            _share, metrics.share_of_ideal, time_s if has_share else None, whole_s, transfer_s
        ),
        "overlap ratio": _formatted(_share, metrics.overlap_ratio, spans),
        "decomposition loss": _formatted(_ratio, metrics.decomposition_loss, pieces_alone_s, whole_s),
        "contention loss": _formatted(_ratio, float, contention.get(metrics.COMPUTE))
        or _formatted(_ratio, metrics.contention_loss, computing_s, pieces_alone_s),
        "decomposition loss of communication": _formatted(_ratio, float, decomposition.get(metrics.COMMUNICATION)),
        "contention loss of communication": _formatted(_ratio, float, contention.get(metrics.COMMUNICATION)),
        "algbw": _formatted(rate_text, metrics.algbw, problem, wire_s),
        "busbw": _formatted(rate_text, metrics.busbw, problem, wire_s),
    }
    return [DerivedNumber(name, text, MEANING[name]) for name, text in known.items() if text is not None]


def derived_table(numbers: Sequence[DerivedNumber]) -> Table:
    """A table with one line for each of *numbers*."""
    columns = (
        ReportColumn(heading="Derived number"),
        ReportColumn(heading="Value", figure=True),
        ReportColumn(heading="What it means"),
    )
    texts = [(number, *number.text_and_aside) for number in numbers]
    rows = tuple((Cell(number.name), Cell(text), Cell(number.meaning, aside)) for number, text, aside in texts)
    return Table(columns=columns, rows=rows)


def _formatted(to_text: Callable[[float], str], number: Callable[..., float | None], *arguments: Any) -> str | None:
    """The text of *number* of *arguments*; None if one of them or the number is missing."""
    value = None if None in arguments else number(*arguments)
    return None if value is None else to_text(value)


def _rate_with_origin(row: Row) -> Callable[[float], str]:
    """A function that writes a rate with its origin in *row*."""
    return lambda rate: f"{rate_text(rate)} ({row.get('put_rate_from')})"


def _ratio(value: float) -> str:
    return f"{value:.3g} ×"


def _share(value: float) -> str:
    return percent_text(value)
