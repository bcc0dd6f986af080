"""What was written down becomes a value again, or one sentence says what in it nobody of us wrote.

For the lines of recordings and the columns of stores: both may be damaged, or made by somebody else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from kernels.axes import is_tile
from kernels.fabric import KINDS as FABRICS
from kernels.fabric import parse
from kernels.hardware import Hardware
from kernels.machine import BACKENDS
from kernels.operators import OPERATORS, problem
from kernels.outcome import ROW_KEYS, SOURCES, SPAN_NEEDS, STAGES, Span, all_span_values, span
from kernels.schedule import Refusal
from kernels.schemes import SCHEMES
from kernels.schemes.limits import too_many_steps
from kernels.trial import PARTS, Trial
from kernels.units import DTYPE_BYTES
from workbench.forms import (
    ANY_NUMBER,
    COUNT,
    LIST,
    MOMENT,
    NUMBER,
    PROCESS,
    SECONDS,
    SIZES,
    TABLE,
    TABLES,
    TEXT,
    TRUTH,
    VALUES,
    WHOLE,
    Form,
    WrongForm,
    checked,
    one_of,
    optional,
    shown,
)

_BACKENDS = one_of(BACKENDS)
_TRIAL = {"problem": TABLE, "schedule": TABLE, "backend": _BACKENDS, "machine": TEXT, "fabric": TABLE,
          "protocol": TABLE, "part": one_of(PARTS)}  # fmt: skip
_PROBLEM = {"operator": one_of(OPERATORS), "shape": SIZES, "dtype": one_of(DTYPE_BYTES), "world": COUNT}
_SCHEDULE = {"scheme": one_of(SCHEMES), "axes": VALUES}
_TILE = Form("a tile such as 128x256x64", is_tile)
_AXES: Mapping[str, Mapping[str, Form]] = {
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
    "fabric": Form("a fabric such as shared_memory", _is_fabric), "protocol": TEXT, "part": one_of(PARTS),
    "time_s": optional(SECONDS), "low_s": optional(SECONDS), "high_s": optional(SECONDS),
    "calibrated": optional(TRUTH), "correct": optional(TRUTH), "max_relative_error": optional(ANY_NUMBER),
    "samples": optional(WHOLE), "stage": optional(one_of(STAGES)), "message": _TEXT_OR_NOT, "block": _TEXT_OR_NOT,
    "hardware": optional(TABLE), "source_print": _TEXT_OR_NOT, "versions_print": _TEXT_OR_NOT,
    "decomposition_loss": optional(TABLE), "contention_loss": optional(TABLE), "share_of_ideal": optional(ANY_NUMBER),
}  # fmt: skip


def trial(data: Any) -> Trial:
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


def ran(data: Any) -> Trial:
    """A Trial that came to a time, and so has a plan; one that was refused may state axes that no plan can have."""
    made = trial(data)
    checked(data["schedule"]["axes"], _AXES[made.schedule.scheme], "its schedule", _COUNTED)
    if (sentence := too_many_steps(made.problem, made.schedule)) is not None:
        raise WrongForm(f"its schedule cannot be: {sentence}")
    return made


def hardware(data: Any) -> Hardware | None:
    """The Hardware that was written down as *data*, None where nobody knew it."""
    if data is None:
        return None
    checked(data, {"model": TEXT, "link": TEXT}, "its hardware", _HARDWARE)
    if unknown := sorted(set(data) - set(_HARDWARE)):
        raise WrongForm(f"its hardware has the unknown {unknown[0]!r}. Accepted: {', '.join(_HARDWARE)}")
    return Hardware.from_json(data)


def spans(data: Any) -> tuple[Span, ...]:
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


def facts(data: Any) -> dict[str, Any]:
    """The circumstances of a run, as `workbench.provenance` tells them."""
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


def run(data: Any) -> dict[str, Any]:
    """One run, of which a list shows the names and times."""
    values: dict[str, Any] = checked(data, _RUN, "it")
    return values


def row(data: Any) -> dict[str, Any]:
    """The row of one outcome; keys that older workbenches did not have are None."""
    if not isinstance(data, dict):
        raise WrongForm(f"its row is {shown(data)}. Accepted: a table")
    values: dict[str, Any] = checked(dict.fromkeys(ROW_KEYS) | data, _ROW, "its row")
    if values["outcome"] != "failure" and values["time_s"] is None:
        raise WrongForm("its row has no time_s. Accepted: a finite number above 0")
    if values["outcome"] == "failure" and values["stage"] is None:
        raise WrongForm(f"its row has no stage. Accepted: {', '.join(STAGES)}")
    hardware(values["hardware"])
    return values


def samples(entries: Any, world: int) -> list[tuple[int, int, float, float]]:
    """Rank, number, seconds and moment of each sample of *world* ranks; WrongForm where a rank has none."""
    if not LIST.holds(entries):
        raise WrongForm(f"its samples are {shown(entries)}. Accepted: a list")
    for entry in entries:
        sample(entry)
    by_rank([(entry[0], entry[2]) for entry in entries], world)
    return [(rank, number, float(seconds), float(at)) for rank, number, seconds, at in entries]


def sample(entry: Any) -> None:
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


_SEEN: Mapping[str, Form] = {"correct": optional(TRUTH), "max_relative_error": optional(ANY_NUMBER),
                             "message": _TEXT_OR_NOT}  # fmt: skip
_MAYBE_SEEN: Mapping[str, Form] = {"block": _TEXT_OR_NOT, "source_print": _TEXT_OR_NOT, "conditions": TABLES,
                                   "facts": TABLE, "versions_print": _TEXT_OR_NOT}  # fmt: skip


def measured(data: Any, what: str = "it") -> Mapping[str, Any]:
    """What stands beside trial and samples of a measurement, in a recording or a row."""
    seen: Mapping[str, Any] = checked(data, _SEEN, what, _MAYBE_SEEN)
    return seen
