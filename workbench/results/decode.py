"""Columns of the store become values again; what no workbench wrote is told by table, entry and value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, wraps
from math import isfinite
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar, cast

from kernels import files
from kernels.fabric import KINDS as FABRICS
from kernels.fabric import parse
from kernels.hardware import Hardware
from kernels.machine import BACKENDS
from kernels.operators import OPERATORS, problem
from kernels.outcome import ROW_KEYS, SOURCES, SPAN_NEEDS, STAGES, TIMED_HOW, Sample, Span, all_span_values, span
from kernels.schedule import Refusal, is_tile
from kernels.schemes import SCHEMES, too_many_steps
from kernels.trial import PARTS, Trial
from kernels.units import DTYPE_BYTES
from workbench.results import database
from workbench.results.rows import with_all_axes

# What values that were read must be: a table of forms, and one sentence for the first value that has another.

MOST = 2**62
"""No count is larger: what multiplies a few of them would leave the numbers of arrays and databases."""


class WrongForm(ValueError):
    """A value is not what it must be: which one, what it is, what would be accepted."""


class ValueForm(NamedTuple):
    """What one value may be."""

    words: str
    """What is accepted."""
    holds: Callable[[Any], bool]


def _is_count(value: Any, least: int) -> bool:
    return type(value) is int and least <= value < MOST


def _is_finite(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < MOST and isfinite(value)


TEXT = ValueForm("a text", lambda value: isinstance(value, str))
TRUTH = ValueForm("true or false", lambda value: isinstance(value, bool))
WHOLE = ValueForm("a whole number from 0", lambda value: _is_count(value, 0))
COUNT = ValueForm("a whole number from 1", lambda value: _is_count(value, 1))
NUMBER = ValueForm("a finite number", _is_finite)
SECONDS = ValueForm("a finite number above 0", lambda value: _is_finite(value) and value > 0)
ANY_NUMBER = ValueForm("a number", lambda value: type(value) in (int, float))
MOMENT = ValueForm("a moment in Unix seconds", lambda value: _is_finite(value) and 0 <= value < 250e9)
PROCESS = ValueForm("the number of a process", lambda value: _is_count(value, 1) and value < 2**31)
TABLE = ValueForm("a table", lambda value: isinstance(value, dict))
LIST = ValueForm("a list", lambda value: isinstance(value, list | tuple))
TABLES = ValueForm(
    "a list of tables", lambda value: LIST.holds(value) and all(isinstance(entry, dict) for entry in value)
)
SIZES = ValueForm(
    "a table of whole numbers from 1, or words",
    lambda value: (
        isinstance(value, dict) and all(_is_count(size, 1) or isinstance(size, str) for size in value.values())
    ),
)
VALUES = ValueForm(
    "a table of whole numbers or words",
    lambda value: isinstance(value, dict) and all(type(each) in (int, str) for each in value.values()),
)


def one_of(words: Sequence[str] | Mapping[str, Any]) -> ValueForm:
    """One of these words."""
    known = frozenset(words)
    return ValueForm(", ".join(words), lambda value: isinstance(value, str) and value in known)


def optional(form: ValueForm) -> ValueForm:
    """That, or nothing."""
    return ValueForm(f"{form.words}, or null", lambda value: value is None or form.holds(value))


def checked(
    data: Any, forms: Mapping[str, ValueForm], what: str, optional: Mapping[str, ValueForm] | None = None
) -> Any:
    """*data*, a table in which every key of *forms* has its form, and of *optional*, if it is there.

    WrongForm names the first value that has another; *what* is what the table is of. Other keys are not looked at.
    """
    if not isinstance(data, dict):
        raise WrongForm(f"{what} is {shown(data)}. Accepted: a table")
    for key, form in forms.items():
        if key not in data:
            raise WrongForm(f"{what} has no {key!r}. Accepted: {form.words}")
        if not form.holds(data[key]):
            raise WrongForm(f"{what} has {key} = {shown(data[key])}. Accepted: {form.words}")
    for key, form in (optional or {}).items():
        if key in data and not form.holds(data[key]):
            raise WrongForm(f"{what} has {key} = {shown(data[key])}. Accepted: {form.words}")
    return data


def entries(data: Any, forms: Sequence[ValueForm], what: str, least: int | None = None) -> Any:
    """*data*, a list of values of these forms in this order; those after *least* may be absent."""
    most = len(forms)
    if not LIST.holds(data) or not (most if least is None else least) <= len(data) <= most:
        raise WrongForm(f"{what} is {shown(data)}. Accepted: a list of {most} values")
    for number, (value, form) in enumerate(zip(data, forms, strict=False), 1):
        if not form.holds(value):
            raise WrongForm(f"{what} has {shown(value)} as its value {number}. Accepted: {form.words}")
    return data


def shown(value: Any) -> str:
    """*value* as far as it fits a sentence."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # thousands of digits, thousands of brackets
        return f"a huge {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}..."


# What was written down becomes a value again, or one sentence says what in it nobody of us wrote.

_BACKENDS = one_of(BACKENDS)
_TRIAL = {"problem": TABLE, "schedule": TABLE, "backend": _BACKENDS, "machine": TEXT, "fabric": TABLE,
          "protocol": TABLE, "part": one_of(PARTS)}  # fmt: skip
_PROBLEM = {"operator": one_of(OPERATORS), "shape": SIZES, "dtype": one_of(DTYPE_BYTES), "world": COUNT}
_SCHEDULE = {"scheme": one_of(SCHEMES), "axes": VALUES}
_TILE = ValueForm("a tile such as 128x256x64", is_tile)
_AXES: Mapping[str, Mapping[str, ValueForm]] = {
    "sequential": {"tile": _TILE, "collective": TEXT},
    "concurrent": {"tile": _TILE, "micro_batches": COUNT, "collective": TEXT, "comm_priority": TEXT},
    "decomposed": {"tile": _TILE, "pieces": COUNT, "pattern": TEXT, "steps": TEXT, "grouping": TEXT, "engine": TEXT},
    "fused": {"tile": _TILE, "tile_order": TEXT},
}  # fmt: skip
"""What a plan cannot be made without."""
_COUNTED = {"slice_tiles": COUNT}
_FABRIC = {"kind": one_of(FABRICS), "wire_to_compute": optional(SECONDS),
           "bandwidth_bytes_per_second": optional(SECONDS), "latency_seconds": NUMBER,
           "message_seconds": NUMBER, "hosts": COUNT, "between_slowdown": SECONDS,
           "between_latency_seconds": NUMBER}  # fmt: skip
_PROTOCOL = {"name": TEXT, "warmups": WHOLE, "repeats": COUNT, "cuda_graph": TRUTH, "cold_l2": TRUTH,
             "calls_per_graph": WHOLE}  # fmt: skip
_HARDWARE = {"model": TEXT, "link": TEXT, "memory_bytes": optional(WHOLE), "cores": optional(SECONDS)}
_TEXT_OR_NOT, _NUMBER_OR_NOT = optional(TEXT), optional(NUMBER)
_FACTS = {"host": _TEXT_OR_NOT, "user": _TEXT_OR_NOT, "cpu": _TEXT_OR_NOT, "cores": optional(COUNT),
          "versions": optional(TABLE), "ranks": optional(TABLE), "process": optional(TABLE),
          "source_print": _TEXT_OR_NOT, "machine": _TEXT_OR_NOT, "git_commit": _TEXT_OR_NOT}  # fmt: skip
_PROCESS = {"host": TEXT, "pid": PROCESS}
_EXPERIMENT = {"space": optional(TABLES), "protocol": optional(TABLE)}
_RUN = {"id": TEXT, "started_at": MOMENT, "ended_at": optional(MOMENT), "status": TEXT, "title": TEXT}


def _is_fabric(text: Any) -> bool:
    return isinstance(text, str) and _parsed(text)


@lru_cache(maxsize=1024)
def _parsed(text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return True


_ROW = dict.fromkeys(ROW_KEYS, _NUMBER_OR_NOT) | {
    "outcome": one_of(("measurement", "estimate", "failure")), "source": one_of(SOURCES), "key": TEXT,
    "run": _TEXT_OR_NOT, "operator": one_of(OPERATORS), "shape": SIZES, "dtype": one_of(DTYPE_BYTES), "world": COUNT,
    "scheme": one_of(SCHEMES), "axes": VALUES, "backend": _BACKENDS, "machine": TEXT,
    "fabric": ValueForm("a fabric such as shared_memory", _is_fabric), "protocol": TEXT, "part": one_of(PARTS),
    "time_s": optional(SECONDS), "low_s": optional(SECONDS), "high_s": optional(SECONDS),
    "calibrated": optional(TRUTH), "correct": optional(TRUTH), "max_relative_error": optional(ANY_NUMBER),
    "samples": optional(WHOLE), "stage": optional(one_of(STAGES)), "message": _TEXT_OR_NOT, "block": _TEXT_OR_NOT,
    "hardware": optional(TABLE), "source_print": _TEXT_OR_NOT, "versions_print": _TEXT_OR_NOT,
    "decomposition_loss": optional(TABLE), "contention_loss": optional(TABLE), "share_of_ideal": optional(ANY_NUMBER),
}  # fmt: skip


def decoded_trial(data: Any) -> Trial:
    """The Trial that was written down as *data*; WrongForm names the first value of it that cannot be."""
    checked(data, _TRIAL, "its trial")
    asked(data["problem"], data["schedule"])
    checked(data["fabric"], {"kind": _FABRIC["kind"]}, "its fabric", _FABRIC)
    checked(data["protocol"], {"name": TEXT, "warmups": WHOLE, "repeats": COUNT}, "its protocol", _PROTOCOL)
    for name, known in (("fabric", _FABRIC), ("protocol", _PROTOCOL)):
        if unknown := sorted(set(data[name]) - set(known)):
            raise WrongForm(f"its {name} has the unknown {unknown[0]!r}. Accepted: {', '.join(known)}")
    world, hosts = data["problem"]["world"], data["fabric"].get("hosts", 1)
    if world % hosts:
        raise WrongForm(f"its fabric has {hosts} hosts for {world} ranks. Accepted: hosts that divide the ranks")
    return Trial.from_json(data)


def asked(of_problem: Any, schedule: Any) -> None:
    """WrongForm where *of_problem* is no problem of today's operators, or *schedule* none of today's schemes."""
    checked(of_problem, _PROBLEM, "its problem")
    checked(schedule, _SCHEDULE, "its schedule")
    names = [key.name for key in OPERATORS[of_problem["operator"]].keys]
    if list(of_problem["shape"]) != names:
        raise WrongForm(
            f"its problem has shape = {shown(of_problem['shape'])}. Accepted: {', '.join(names)}, in this order"
        )
    try:
        problem(of_problem["operator"], of_problem["shape"], dtype=of_problem["dtype"], world=of_problem["world"])
    except Refusal as refusal:
        raise WrongForm(f"its problem cannot be: {refusal}") from None


def decoded_ran(data: Any) -> Trial:
    """A Trial that came to a time, and so has a plan; one that was refused may state axes that no plan can have."""
    made = decoded_trial(data)
    checked(data["schedule"]["axes"], _AXES[made.schedule.scheme], "its schedule", _COUNTED)
    if (sentence := too_many_steps(made.problem, made.schedule)) is not None:
        raise WrongForm(f"its schedule cannot be: {sentence}")
    return made


def decoded_hardware(data: Any) -> Hardware | None:
    """The Hardware that was written down as *data*, None where nobody knew it."""
    if data is None:
        return None
    checked(data, {"model": TEXT, "link": TEXT}, "its hardware", _HARDWARE)
    if unknown := sorted(set(data) - set(_HARDWARE)):
        raise WrongForm(f"its hardware has the unknown {unknown[0]!r}. Accepted: {', '.join(_HARDWARE)}")
    return Hardware.from_json(data)


def decoded_spans(data: Any) -> tuple[Span, ...]:
    """The Spans that were written down as *data*, each a list of its fields."""
    if not LIST.holds(data):
        raise WrongForm(f"its spans are {shown(data)}. Accepted: a list")
    if (wrong := next((entry for entry in data if not _is_span(entry)), None)) is not None:
        raise WrongForm(f"its spans hold {shown(wrong)}. Accepted: step, rank, kind, pool, start, stop and so on")
    return tuple(map(span, data))


def _is_span(entry: Any) -> bool:
    if not LIST.holds(entry) or not SPAN_NEEDS <= len(entry) <= len(Span._fields):
        return False
    step, rank, kind, pool, start_s, stop_s, waited_for, tick_s, tiles, stream, micro_batch = all_span_values(entry)
    return (
        isinstance(step, str) and WHOLE.holds(rank) and isinstance(kind, str) and isinstance(pool, str)
        and NUMBER.holds(start_s) and NUMBER.holds(stop_s) and (waited_for is None or isinstance(waited_for, str))
        and NUMBER.holds(tick_s) and LIST.holds(tiles) and all(map(_is_tile, tiles))
        and WHOLE.holds(stream) and (micro_batch is None or WHOLE.holds(micro_batch))
    )  # fmt: skip


def _is_tile(entry: Any) -> bool:
    return LIST.holds(entry) and len(entry) == 6 and all(map(NUMBER.holds, entry))


def decoded_facts(data: Any) -> dict[str, Any]:
    """The circumstances of a run, as `workbench.results.provenance` tells them."""
    circumstances: dict[str, Any] = checked(data, {}, "its provenance", _FACTS)
    if (ranks := circumstances.get("ranks")) is not None:
        checked(ranks, {}, "the ranks of its provenance", {"versions": optional(TABLE)})
    if (process := circumstances.get("process")) is not None:
        checked(process, _PROCESS, "the process of its provenance", {"began": _TEXT_OR_NOT})
    return circumstances


def experiment(data: Any) -> dict[str, Any]:
    """What a run was asked, as far as reports show it."""
    question: dict[str, Any] = checked(data, {}, "its experiment", _EXPERIMENT)
    for choice in question.get("space") or ():
        values = choice.get("values")
        if values is not None and not (TABLE.holds(values) and all(map(LIST.holds, values.values()))):
            raise WrongForm(f"the space of its experiment has values = {shown(values)}. Accepted: lists by axis")
    return question


def decoded_run(data: Any) -> dict[str, Any]:
    """One run, of which a list shows the names and times."""
    values: dict[str, Any] = checked(data, _RUN, "it")
    return values


def decoded_row(data: Any) -> dict[str, Any]:
    """The row of one outcome; keys that older workbenches did not have are None."""
    if not isinstance(data, dict):
        raise WrongForm(f"its row is {shown(data)}. Accepted: a table")
    values: dict[str, Any] = checked(dict.fromkeys(ROW_KEYS) | data, _ROW, "its row")
    if values["outcome"] != "failure" and values["time_s"] is None:
        raise WrongForm("its row has no time_s. Accepted: a finite number above 0")
    if values["outcome"] == "failure" and values["stage"] is None:
        raise WrongForm(f"its row has no stage. Accepted: {', '.join(STAGES)}")
    decoded_hardware(values["hardware"])
    return values


def samples(entries: Any, world: int) -> list[tuple[int, int, float, float]]:
    """Rank, number, seconds and moment of each sample of *world* ranks; WrongForm where a rank has none."""
    if not LIST.holds(entries):
        raise WrongForm(f"its samples are {shown(entries)}. Accepted: a list")
    for entry in entries:
        decoded_sample(entry)
    by_rank([(entry[0], entry[2]) for entry in entries], world)
    return [(rank, number, float(seconds), float(at)) for rank, number, seconds, at in entries]


def decoded_sample(entry: Any) -> None:
    """WrongForm where *entry* is not rank, number, seconds and moment."""
    if not LIST.holds(entry) or len(entry) != 4 or not (
        WHOLE.holds(entry[0]) and WHOLE.holds(entry[1]) and SECONDS.holds(entry[2]) and MOMENT.holds(entry[3])
    ):  # fmt: skip
        raise WrongForm(f"its samples hold {shown(entry)}. Accepted: rank, number, seconds above 0, moment")


def by_rank(entries: Sequence[tuple[int, float]], world: int) -> tuple[tuple[float, ...], ...]:
    """The seconds of each rank; WrongForm where one of *world* ranks has none, or a rank is none of them."""
    seconds_of: dict[int, list[float]] = {}
    for rank, seconds in entries:
        seconds_of.setdefault(rank, []).append(seconds)
    missing = next((rank for rank in range(world) if rank not in seconds_of), None)
    if missing is not None:
        raise WrongForm(f"rank {missing} of {world} has no samples. Accepted: samples of each rank")
    if len(seconds_of) > world:
        raise WrongForm(
            f"its samples are of {len(seconds_of)} ranks: {len(seconds_of)} > {world}. Accepted: samples of each rank"
        )
    return tuple(tuple(seconds_of[rank]) for rank in range(world))


_SEEN: Mapping[str, ValueForm] = {"correct": optional(TRUTH), "max_relative_error": optional(ANY_NUMBER),
                             "message": _TEXT_OR_NOT}  # fmt: skip
_MAYBE_SEEN: Mapping[str, ValueForm] = {"block": _TEXT_OR_NOT, "source_print": _TEXT_OR_NOT, "conditions": TABLES,
                                   "facts": TABLE, "versions_print": _TEXT_OR_NOT}  # fmt: skip


def decoded_measured(data: Any, what: str = "it") -> Mapping[str, Any]:
    """What stands beside trial and samples of a measurement, in a recording or a row."""
    seen: Mapping[str, Any] = checked(data, _SEEN, what, _MAYBE_SEEN)
    return seen


# Columns of the store become values again; what no workbench wrote is told by table, entry and value.

if TYPE_CHECKING:
    import sqlite3

    from workbench.results.database import Database

RUNNING, FINISHED, CANCELLED = "running", "finished", "cancelled"
LOST = "lost"
"""Never written: what a run is called that says it is running, and whose process is gone."""

Entry = Mapping[str, Any]
Given = ParamSpec("Given")
Value = TypeVar("Value")
_PLACED: Mapping[str, ValueForm] = {"run": TEXT, "origin": optional(TEXT), "at": MOMENT, "block": optional(TEXT)}


class HasDatabase(Protocol):
    """What reads a store."""

    _database: Database


Reader = TypeVar("Reader", bound=HasDatabase)


def reads(method: Callable[Concatenate[Reader, Given], Value]) -> Callable[Concatenate[Reader, Given], Value]:
    """*method* of what has a `_database`; a WrongForm inside it becomes the sentence that names the store's file."""

    @wraps(method)
    def checked_reader(self: Reader, *given: Given.args, **named: Given.kwargs) -> Value:
        try:
            return method(self, *given, **named)
        except WrongForm as error:
            raise ValueError(
                f"The store {self._database.path} holds what no workbench writes: {error}. Nothing was changed in it. "
                "Accepted: a store that `workbench run --store PATH` wrote. Or move this one away, and the next run "
                "begins a new store."
            ) from error

    return cast("Callable[Concatenate[Reader, Given], Value]", checked_reader)


def value(text: Any) -> Any:
    """What stands in a column of JSON."""
    try:
        return files.parsed(text)
    except (ValueError, TypeError) as error:
        said = error if isinstance(error, ValueError) else "it is no text"
        raise WrongForm(f"a column that should be JSON is not readable, {said}") from None


def run(entry: sqlite3.Row) -> dict[str, Any]:
    """One run; one that says it is running, and whose process is gone, is lost."""
    values = decoded_run(dict(entry))
    facts = decoded_facts(value(entry["provenance"]))
    process, status = facts.pop("process", None), entry["status"]
    if status == RUNNING and database.is_gone(process):
        status = LOST
    return {**values, "status": status, "experiment": experiment(value(entry["experiment"])),
            "provenance": facts}  # fmt: skip


def row(entry: sqlite3.Row) -> dict[str, Any]:
    """A row as it was given, under the run that it is of now."""
    values = {name: each for name, each in decoded_row(value(entry["row"])).items() if name not in TIMED_HOW}
    placed = {key: entry[key] for key in ("run", "origin", "id", "at", "block")}
    return {**with_all_axes(values), **checked(placed, _PLACED, f"number {entry['id']} of outcomes")}


def timed_how(text: Any) -> dict[str, Any]:
    """Under which conditions and how an outcome was timed, where its ranks said so."""
    measured = value(text)
    decoded_measured(measured)
    return {name: measured[name] for name in TIMED_HOW if name in measured}


def best(entry: Entry) -> dict[str, Any]:
    """The fastest of one problem of a run."""
    checked(dict(entry), {"best_s": SECONDS}, f"run {entry['run']}")
    problem, schedule = value(entry["problem"]), value(entry["schedule"])
    asked(problem, schedule)
    return {**entry, **problem, **schedule}


def trial(text: Any) -> Trial:
    """A trial that was written down."""
    return decoded_trial(value(text))


def ran(text: Any) -> Trial:
    """The trial of an outcome that has a time."""
    return decoded_ran(value(text))


def hardware(text: Any) -> Hardware | None:
    """The hardware of an outcome; None where nobody wrote it down."""
    return decoded_hardware(value(text)) if text else None


def spans(text: Any) -> tuple[Span, ...]:
    """The spans of an outcome."""
    return decoded_spans(value(text))


def sample(entry: sqlite3.Row) -> Sample:
    """One sample, from its columns in the order of Sample's fields."""
    timed = Sample(*entry)
    decoded_sample((timed.rank, timed.index, timed.seconds, timed.at))
    return timed


def sample_row(entry: sqlite3.Row) -> dict[str, Any]:
    """One sample as a row for charts and tables."""
    decoded_sample((entry["rank"], entry["index"], entry["seconds"], entry["at"]))
    return dict(entry)


def whole(entry: sqlite3.Row) -> dict[str, Any]:
    """One right measurement, with trial and circumstances: a candidate for the fastest."""
    outcome = dict(entry)
    checked(outcome, {"time_s": SECONDS, "at": MOMENT}, f"number {entry['id']} of outcomes")
    ran(entry["trial"])
    return {**outcome, "trial": value(entry["trial"]), "provenance": decoded_facts(value(entry["provenance"])),
            "hardware": hardware(entry["hardware"])}  # fmt: skip


def known_by(entry: sqlite3.Row) -> dict[str, Any]:
    """The fields of a Measurement that make it known: who ran it, with which libraries, on what."""
    prints = {"source_print": entry["source_print"], "versions_print": entry["versions_print"]}
    checked(prints, dict.fromkeys(prints, optional(TEXT)), "an outcome")
    return {**prints, "hardware": hardware(entry["hardware"])}
