"""Decoding of stored JSON and columns into values; WrongForm names the first value that no workbench wrote.

`*_from_json` takes parsed JSON, `*_from_column` the text of a column, `*_from_entry` a row of SQLite.
"""

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
from kernels.regime import REGIMES, regime
from kernels.schedule import Refusal, is_tile
from kernels.schemes import SCHEMES, too_many_steps
from kernels.trial import PARTS, Trial
from kernels.units import DTYPE_BYTES
from workbench.results import database
from workbench.results.rows import with_all_axes

# Forms of values, and the check of a table against them.

MAX_MAGNITUDE = 2**62
"""Numbers stay below it, so that products of a few counts fit into arrays and databases."""


class WrongForm(ValueError):
    """Names a value with a wrong form, and what is accepted."""


class ValueForm(NamedTuple):
    """The form of one value."""

    accepted: str
    """Description of accepted values."""
    holds: Callable[[Any], bool]


def _is_count(value: Any, least: int) -> bool:
    return type(value) is int and least <= value < MAX_MAGNITUDE


def _is_finite(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < MAX_MAGNITUDE and isfinite(value)


TEXT = ValueForm("a text", lambda value: isinstance(value, str))
TRUTH = ValueForm("true or false", lambda value: isinstance(value, bool))
WHOLE = ValueForm("a whole number from 0", lambda value: _is_count(value, 0))
COUNT = ValueForm("a whole number from 1", lambda value: _is_count(value, 1))
NUMBER = ValueForm("a finite number", _is_finite)
SECONDS = ValueForm("a finite number above 0", lambda value: _is_finite(value) and value > 0)
ANY_NUMBER = ValueForm("a number", lambda value: type(value) in (int, float))
LAST_MOMENT = 250e9
MOMENT = ValueForm("a moment in Unix seconds", lambda value: _is_finite(value) and 0 <= value < LAST_MOMENT)
PROCESS = ValueForm("the number of a process", lambda value: _is_count(value, 1) and value < 2**31)
TABLE = ValueForm("a table", lambda value: isinstance(value, dict))
TEXTS = ValueForm("a list of texts", lambda value: isinstance(value, list) and all(map(TEXT.holds, value)))
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


def one_of(names: Sequence[str] | Mapping[str, Any]) -> ValueForm:
    """The form of a text that is one of *names*."""
    known = frozenset(names)
    return ValueForm(", ".join(names), lambda value: isinstance(value, str) and value in known)


def optional(form: ValueForm) -> ValueForm:
    """The form of None or a value of *form*."""
    return ValueForm(f"{form.accepted}, or null", lambda value: value is None or form.holds(value))


def checked(
    data: Any, forms: Mapping[str, ValueForm], what: str, optional: Mapping[str, ValueForm] | None = None
) -> Any:
    """*data*, a table whose values have the *forms* of their keys; those of *optional* may be absent.

    WrongForm names the first other value; *what* is the subject of its message. Other keys are ignored.
    """
    if not isinstance(data, dict):
        raise WrongForm(f"{what} is {shown(data)}. Accepted: a table")
    for key, form in forms.items():
        if key not in data:
            raise WrongForm(f"{what} has no {key!r}. Accepted: {form.accepted}")
        if not form.holds(data[key]):
            raise WrongForm(f"{what} has {key} = {shown(data[key])}. Accepted: {form.accepted}")
    for key, form in (optional or {}).items():
        if key in data and not form.holds(data[key]):
            raise WrongForm(f"{what} has {key} = {shown(data[key])}. Accepted: {form.accepted}")
    return data


def entries(data: Any, forms: Sequence[ValueForm], what: str, least: int | None = None) -> Any:
    """*data*, a list of values with these *forms* in order; those after number *least* may be absent."""
    most = len(forms)
    if not LIST.holds(data) or not (most if least is None else least) <= len(data) <= most:
        raise WrongForm(f"{what} is {shown(data)}. Accepted: a list of {most} values")
    for number, (value, form) in enumerate(zip(data, forms, strict=False), 1):
        if not form.holds(value):
            raise WrongForm(f"{what} has {shown(value)} as its value {number}. Accepted: {form.accepted}")
    return data


def shown(value: Any) -> str:
    """*value* as text, cut to 60 characters."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # thousands of digits, thousands of brackets
        return f"a huge {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}..."


# Values from parsed JSON.

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
"""Axes that a plan needs, by scheme."""
_COUNTED = {"slice_tiles": COUNT}
_FABRIC = {"kind": one_of(FABRICS), "wire_to_compute": optional(SECONDS),
           "bandwidth_bytes_per_second": optional(SECONDS), "latency_seconds": NUMBER,
           "message_seconds": NUMBER, "hosts": COUNT, "between_slowdown": SECONDS,
           "between_latency_seconds": NUMBER}  # fmt: skip
_PROTOCOL = {"name": TEXT, "warmups": WHOLE, "repeats": COUNT, "cuda_graph": TRUTH, "cold_l2": TRUTH,
             "calls_per_graph": WHOLE, "load_seconds": NUMBER}  # fmt: skip
_HARDWARE = {"model": TEXT, "link": TEXT, "memory_bytes": optional(WHOLE), "cores": optional(SECONDS)}
_TEXT_OR_NOT, _NUMBER_OR_NOT = optional(TEXT), optional(NUMBER)
_PROVENANCE = {"host": _TEXT_OR_NOT, "user": _TEXT_OR_NOT, "cpu": _TEXT_OR_NOT, "cores": optional(COUNT),
          "versions": optional(TABLE), "ranks": optional(TABLE), "process": optional(TABLE),
          "source_print": _TEXT_OR_NOT, "machine": _TEXT_OR_NOT, "git_commit": _TEXT_OR_NOT}  # fmt: skip
_PROCESS = {"host": TEXT, "pid": PROCESS}
_EXPERIMENT = {"space": optional(TABLES), "protocol": optional(TABLE)}
_RUN = {"id": TEXT, "started_at": MOMENT, "ended_at": optional(MOMENT), "status": TEXT, "title": TEXT,
        "note": TEXT, "deleted_at": optional(MOMENT)}  # fmt: skip


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
    "regime": optional(one_of(REGIMES)), "others": _TEXT_OR_NOT, "hardware": optional(TABLE),
    "source_print": _TEXT_OR_NOT, "versions_print": _TEXT_OR_NOT,
    "decomposition_loss": optional(TABLE), "contention_loss": optional(TABLE), "share_of_ideal": optional(ANY_NUMBER),
}  # fmt: skip
_SEVERAL = ValueForm(
    "a list of finite numbers above 0", lambda value: LIST.holds(value) and all(map(SECONDS.holds, value))
)
_ROUNDS = {"rounds_s": optional(_SEVERAL)}
"""A column that rows have since there are verdicts."""


def trial_from_json(data: Any) -> Trial:
    """The Trial written as *data*; WrongForm names the first impossible value."""
    checked(data, _TRIAL, "its trial")
    check_question(data["problem"], data["schedule"])
    checked(data["fabric"], {"kind": _FABRIC["kind"]}, "its fabric", _FABRIC)
    checked(data["protocol"], {"name": TEXT, "warmups": WHOLE, "repeats": COUNT}, "its protocol", _PROTOCOL)
    for name, known in (("fabric", _FABRIC), ("protocol", _PROTOCOL)):
        if unknown := sorted(set(data[name]) - set(known)):
            raise WrongForm(f"its {name} has the unknown {unknown[0]!r}. Accepted: {', '.join(known)}")
    world, hosts = data["problem"]["world"], data["fabric"].get("hosts", 1)
    if world % hosts:
        raise WrongForm(f"its fabric has {hosts} hosts for {world} ranks. Accepted: hosts that divide the ranks")
    return Trial.from_json(data)


def check_question(of_problem: Any, schedule: Any) -> None:
    """Raise WrongForm unless today's operators have *of_problem*, and today's schemes *schedule*."""
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


def executed_trial_from_json(data: Any) -> Trial:
    """A Trial that ran, and so has a plan. A refused one may have axes that no plan can have."""
    trial = trial_from_json(data)
    checked(data["schedule"]["axes"], _AXES[trial.schedule.scheme], "its schedule", _COUNTED)
    if (message := too_many_steps(trial.problem, trial.schedule)) is not None:
        raise WrongForm(f"its schedule cannot be: {message}")
    return trial


def hardware_from_json(data: Any) -> Hardware | None:
    """The Hardware written as *data*, or None if it was unknown."""
    if data is None:
        return None
    checked(data, {"model": TEXT, "link": TEXT}, "its hardware", _HARDWARE)
    if unknown := sorted(set(data) - set(_HARDWARE)):
        raise WrongForm(f"its hardware has the unknown {unknown[0]!r}. Accepted: {', '.join(_HARDWARE)}")
    return Hardware.from_json(data)


def spans_from_json(data: Any) -> tuple[Span, ...]:
    """The Spans written as *data*, each as a list of its fields."""
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


def provenance_from_json(data: Any) -> dict[str, Any]:
    """The provenance of a run, as `workbench.results.provenance` returns it."""
    circumstances: dict[str, Any] = checked(data, {}, "its provenance", _PROVENANCE)
    if (ranks := circumstances.get("ranks")) is not None:
        checked(ranks, {}, "the ranks of its provenance", {"versions": optional(TABLE)})
    if (process := circumstances.get("process")) is not None:
        checked(process, _PROCESS, "the process of its provenance", {"began": _TEXT_OR_NOT})
    return circumstances


def experiment_from_json(data: Any) -> dict[str, Any]:
    """The request of a run, as far as reports show it."""
    question: dict[str, Any] = checked(data, {}, "its experiment", _EXPERIMENT)
    for choice in question.get("space") or ():
        values = choice.get("values")
        if values is not None and not (TABLE.holds(values) and all(map(LIST.holds, values.values()))):
            raise WrongForm(f"the space of its experiment has values = {shown(values)}. Accepted: lists by axis")
    return question


def run_from_json(data: Any) -> dict[str, Any]:
    """Names and times of one run."""
    values: dict[str, Any] = checked(data, _RUN, "it")
    return values


def row_from_json(data: Any) -> dict[str, Any]:
    """The row of one outcome; keys that older workbenches did not write are None."""
    if not isinstance(data, dict):
        raise WrongForm(f"its row is {shown(data)}. Accepted: a table")
    values: dict[str, Any] = checked(dict.fromkeys(ROW_KEYS) | data, _ROW, "its row", _ROUNDS)
    if values["outcome"] != "failure" and values["time_s"] is None:
        raise WrongForm("its row has no time_s. Accepted: a finite number above 0")
    if values["outcome"] == "failure" and values["stage"] is None:
        raise WrongForm(f"its row has no stage. Accepted: {', '.join(STAGES)}")
    hardware_from_json(values["hardware"])
    if values["regime"] is None and values["outcome"] == "measurement" and values["backend"] not in (None, "cpu"):
        values["regime"] = regime(values.get("conditions") or (), values["world"] or 1).name  # older than regimes
    return values


def samples_from_json(entries: Any, world: int) -> list[tuple[int, int, float, float]]:
    """Rank, number, seconds and moment of each sample; WrongForm if one of *world* ranks has none."""
    if not LIST.holds(entries):
        raise WrongForm(f"its samples are {shown(entries)}. Accepted: a list")
    if not _are_samples(entries):
        for entry in entries:
            check_sample(entry)
    seconds_by_rank([(entry[0], entry[2]) for entry in entries], world)
    return [(rank, number, float(seconds), float(at)) for rank, number, seconds, at in entries]


def _are_samples(entries: Sequence[Any]) -> bool:
    """Whether `check_sample` passes all *entries*, by columns, in a fifth of its time; False where that is unclear."""
    try:
        ranks, numbers, seconds, moments = zip(*entries, strict=True)
        return (
            set(map(type, ranks + numbers)) == {int} and min(ranks + numbers) >= 0
            and max(ranks + numbers) < MAX_MAGNITUDE
            and {int, float}.issuperset(map(type, seconds + moments)) and all(map(isfinite, seconds + moments))
            and 0 < min(seconds) <= max(seconds) < MAX_MAGNITUDE and min(moments) >= 0 and max(moments) < LAST_MOMENT
            and set(map(type, entries)) <= {list, tuple}
        )  # fmt: skip
    except (TypeError, ValueError, OverflowError):
        return False


def check_sample(entry: Any) -> None:
    """Raise WrongForm unless *entry* is rank, number, seconds and moment."""
    if not LIST.holds(entry) or len(entry) != 4 or not (
        WHOLE.holds(entry[0]) and WHOLE.holds(entry[1]) and SECONDS.holds(entry[2]) and MOMENT.holds(entry[3])
    ):  # fmt: skip
        raise WrongForm(f"its samples hold {shown(entry)}. Accepted: rank, number, seconds above 0, moment")


def seconds_by_rank(entries: Sequence[tuple[int, float]], world: int) -> tuple[tuple[float, ...], ...]:
    """The seconds of each rank; WrongForm if one of *world* ranks has none, or there is another rank."""
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


_MEASURED = {"correct": optional(TRUTH), "max_relative_error": optional(ANY_NUMBER), "message": _TEXT_OR_NOT}
_MEASURED_OPTIONAL = {"block": _TEXT_OR_NOT, "source_print": _TEXT_OR_NOT, "conditions": TABLES, "facts": TABLE,
                      "versions_print": _TEXT_OR_NOT}  # fmt: skip


def measurement_facts_from_json(data: Any, what: str = "it") -> Mapping[str, Any]:
    """What a recording or a row says of a measurement in addition to its trial and samples."""
    facts: Mapping[str, Any] = checked(data, _MEASURED, what, _MEASURED_OPTIONAL)
    return facts


# Values from columns and entries of the store.

if TYPE_CHECKING:
    import sqlite3

    from workbench.results.database import Database

RUNNING, FINISHED, CANCELLED, REFUSED = "running", "finished", "cancelled", "refused"
LOST = "lost"
"""Status of a run that says it is running, but whose process is gone; it is never written."""

Entry = Mapping[str, Any]
Params = ParamSpec("Params")
Value = TypeVar("Value")
_PLACED: Mapping[str, ValueForm] = {"run": TEXT, "origin": optional(TEXT), "at": MOMENT, "block": optional(TEXT)}


class HasDatabase(Protocol):
    """A reader of a store."""

    _database: Database


Reader = TypeVar("Reader", bound=HasDatabase)


def reads(method: Callable[Concatenate[Reader, Params], Value]) -> Callable[Concatenate[Reader, Params], Value]:
    """Decorate *method* of a HasDatabase: its WrongForm becomes a ValueError that names the store's file."""

    @wraps(method)
    def checked_reader(self: Reader, *args: Params.args, **kwargs: Params.kwargs) -> Value:
        try:
            return method(self, *args, **kwargs)
        except WrongForm as error:
            raise ValueError(
                f"The store {self._database.path} holds what no workbench writes: {error}. Nothing was changed in it. "
                "Accepted: a store that `workbench run --store PATH` wrote. Or move this one away, and the next run "
                "begins a new store."
            ) from error

    return cast("Callable[Concatenate[Reader, Params], Value]", checked_reader)


def json_from_column(text: Any) -> Any:
    """The value in a JSON column."""
    try:
        return files.parsed(text)
    except (ValueError, TypeError) as error:
        reason = error if isinstance(error, ValueError) else "it is no text"
        raise WrongForm(f"a column that should be JSON is not readable, {reason}") from None


def run_from_entry(entry: sqlite3.Row) -> dict[str, Any]:
    """One run; its status is LOST if it says it is running, but its process is gone."""
    values = run_from_json(dict(entry))
    facts = provenance_from_json(json_from_column(entry["provenance"]))
    process, status = facts.pop("process", None), entry["status"]
    if status == RUNNING and database.is_gone(process):
        status = LOST
    tags = json_from_column(entry["tags"])
    checked({"tags": tags}, {"tags": TEXTS}, "it")
    question = experiment_from_json(json_from_column(entry["experiment"]))
    return {**values, "status": status, "tags": sorted(tags), "experiment": question, "provenance": facts}


def row_from_entry(entry: sqlite3.Row) -> dict[str, Any]:
    """A row as it was stored, with its present run."""
    values = {
        name: each for name, each in row_from_json(json_from_column(entry["row"])).items() if name not in TIMED_HOW
    }
    placed = {key: entry[key] for key in ("run", "origin", "id", "at", "block")}
    return {**with_all_axes(values), **checked(placed, _PLACED, f"number {entry['id']} of outcomes")}


def timed_how_from_column(text: Any) -> dict[str, Any]:
    """Conditions and method of an outcome's timing, as far as its ranks reported them."""
    measured = json_from_column(text)
    measurement_facts_from_json(measured)
    return {name: measured[name] for name in TIMED_HOW if name in measured}


def best_from_entry(entry: Entry) -> dict[str, Any]:
    """The fastest schedule of one problem of a run."""
    checked(dict(entry), {"best_s": SECONDS}, f"run {entry['run']}")
    problem, schedule = json_from_column(entry["problem"]), json_from_column(entry["schedule"])
    check_question(problem, schedule)
    return {**entry, **problem, **schedule}


def trial_from_column(text: Any) -> Trial:
    """The trial in a JSON column."""
    return trial_from_json(json_from_column(text))


def executed_trial_from_column(text: Any) -> Trial:
    """The trial of an outcome with a time."""
    return executed_trial_from_json(json_from_column(text))


def hardware_from_column(text: Any) -> Hardware | None:
    """The hardware of an outcome, or None if it was not stored."""
    return hardware_from_json(json_from_column(text)) if text else None


def spans_from_column(text: Any) -> tuple[Span, ...]:
    """The spans in a JSON column."""
    return spans_from_json(json_from_column(text))


def sample_from_entry(entry: sqlite3.Row) -> Sample:
    """A Sample, from columns in the order of its fields."""
    timed = Sample(*entry)
    check_sample((timed.rank, timed.index, timed.seconds, timed.at))
    return timed


def sample_row_from_entry(entry: sqlite3.Row) -> dict[str, Any]:
    """One sample as a row for charts and tables."""
    check_sample((entry["rank"], entry["index"], entry["seconds"], entry["at"]))
    return dict(entry)


def right_whole_from_entry(entry: sqlite3.Row) -> dict[str, Any]:
    """A correct measurement of a whole trial, with trial and provenance: a candidate for the fastest."""
    outcome = dict(entry)
    checked(outcome, {"time_s": SECONDS, "at": MOMENT}, f"number {entry['id']} of outcomes")
    executed_trial_from_column(entry["trial"])
    return {**outcome, "trial": json_from_column(entry["trial"]),
            "provenance": provenance_from_json(json_from_column(entry["provenance"])),
            "hardware": hardware_from_column(entry["hardware"])}  # fmt: skip


def execution_from_entry(entry: sqlite3.Row) -> dict[str, Any]:
    """The fields of a Measurement that say what ran it: source, libraries and hardware."""
    prints = {"source_print": entry["source_print"], "versions_print": entry["versions_print"]}
    checked(prints, dict.fromkeys(prints, optional(TEXT)), "an outcome")
    return {**prints, "hardware": hardware_from_column(entry["hardware"])}
