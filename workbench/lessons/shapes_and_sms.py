"""Questions and exercises of lessons 4 to 6: which scheme wins for which shape and size, and what it takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache
from math import exp, log
from typing import Any

from kernels import files
from kernels.machine import Machine
from kernels.occupancy import SHOT, BlockResources, SmLimits, gemm_block, limits_of, padding
from kernels.operators import OPERATORS, problem
from kernels.outcome import BLOCK_KIND, Measurement
from kernels.schedule import tile
from kernels.schemes import BASELINE, axis_rules
from kernels.units import seconds_text
from workbench.lesson import RECORDED_ROWS, Lesson, lesson
from workbench.lessons.questions import (
    Answer,
    ChoiceValue,
    Exercise,
    Question,
    Unreadable,
    Wrong,
    close,
    number,
    winners,
)
from workbench.machines import machine_values, shipped_machine
from workbench.resources import data_directory
from workbench.results import recordings
from workbench.simulator.predict import predict

H200S = "h200_nvl2"
RECORDED_ON = "recorded on two H200s of one host, NVLink, in November 2026"
SCHEMES = ("sequential", "decomposed", "fused")
LOOKED_AT: Mapping[str, Mapping[str, Any]] = {
    "sequential": {"tile": "all", "collective": "all"},
    "decomposed": {"tile": "all", "pieces": (2, 4, 8), "engine": ("copy_engine", "sm")},
    "fused": {"tile": "all"},
}
"""The schedules of each scheme among which the simulator looks for the fastest."""
CERTAIN = 0.03
"""A winner leads by more than this share."""


def on_h200s(operator: str, **shape: int) -> Lesson:
    """A GEMM operator of that shape, bfloat16, on two H200s; Refusal says why a shape is none."""
    sized = problem(operator, shape, dtype="bfloat16", world=2)
    plain = lesson("gemm_all_to_all", preset="mixtral_8x7b_experts_8192", machine=H200S, world=2)
    return replace(plain, problem=sized)


def estimates(case: Lesson) -> dict[str, float]:
    """By scheme, the seconds of its fastest schedule, as estimated."""
    return {name: case.fastest(name, **axes).time_s for name, axes in LOOKED_AT.items()}


# Lesson 4.

SHAPES = {
    "tokens_go_home": ("gemm_all_to_all", {"m": 3072, "n": 7168, "k": 640}),
    "tokens_come_in": ("all_to_all_gemm", {"m": 4096, "n": 1664, "k": 8192}),
    "sums_for_all": ("gemm_all_reduce", {"m": 3072, "n": 1024, "k": 5632}),
}
"""One recorded shape for each flow."""


@cache
def _pieces_recording() -> dict[Any, list[Measurement]]:
    """The whole trials of the recording of three schemes, by problem; of the block that counts."""
    of_problem: dict[Any, list[Measurement]] = {}
    for entry in recordings.recordings("h200_nvl2_pieces"):
        each = entry.measurement
        if each.trial.part == "whole" and each.facts[BLOCK_KIND] == "last":
            of_problem.setdefault((each.trial.problem.operator, each.trial.problem.shape), []).append(each)
    return of_problem


def recorded_of(case: Lesson) -> dict[str, Measurement]:
    """By scheme, the fastest recorded schedule of the problem; empty where none was recorded."""
    fastest: dict[str, Measurement] = {}
    for each in _pieces_recording().get((case.problem.operator, case.problem.shape), ()):
        known = fastest.get(each.trial.schedule.scheme)
        fastest[each.trial.schedule.scheme] = each if known is None or each.time_s < known.time_s else known
    return fastest


def _winner(name: str) -> Callable[[], Answer]:
    def answer() -> Answer:
        operator, shape = SHAPES[name]
        case = on_h200s(operator, **shape)
        recorded = recorded_of(case)
        values = [ChoiceValue(scheme, "recorded", recorded[scheme].time_s * 1e6) for scheme in SCHEMES]
        guessed = [ChoiceValue(scheme, "estimated", predict(recorded[scheme].trial, case.machine).time_s * 1e6)
                   for scheme in SCHEMES]  # fmt: skip
        unit = "Time in µs"
        return Answer(winners(guessed, 0.0), winners(values), "recorded", RECORDED_ON, unit, (*guessed, *values))

    return answer


def _shape_question(name: str) -> Question:
    operator, shape = SHAPES[name]
    sizes = " x ".join(map(str, shape.values()))
    return Question(
        f"{OPERATORS[operator].words}, m x n x k = {sizes}: which scheme is the fastest?", "fused", _winner(name),
        choices=SCHEMES,
    )  # fmt: skip


def lead(operator: str, **shape: int) -> tuple[str, float]:
    """The scheme with the least estimate on two H200s, and by which share it leads the second one."""
    first, second = sorted(estimates(on_h200s(operator, **shape)).items(), key=lambda pair: pair[1])[:2]
    return first[0], second[1] / first[1] - 1


def _shapes_rule(value: Any) -> str:
    if not isinstance(value, dict) or set(value) != set(SCHEMES):
        raise Unreadable(f"The answer is a dictionary with the keys {', '.join(SCHEMES)}.")
    sentences = []
    for scheme, pair in value.items():
        if not isinstance(pair, tuple | list) or len(pair) != 2 or not isinstance(pair[1], dict):
            raise Unreadable(f'For {scheme} it needs an operator and its sizes, such as ("gemm_all_to_all", {{...}}).')
        if (pair[0], dict(pair[1])) in [(name, shape) for name, shape in SHAPES.values()]:
            raise Wrong(f"The shape for {scheme} is one of the three above: find another one.")
        try:
            winner, ahead = lead(pair[0], **pair[1])
        except (ValueError, TypeError) as error:
            raise Unreadable(f"The shape for {scheme} is none: {str(error)[:160]}") from error
        if winner != scheme:
            raise Wrong(f"For your {scheme} shape {winner} is the fastest, as estimated: it leads by {ahead:.0%}.")
        if ahead < CERTAIN:
            raise Wrong(f"For your {scheme} shape the lead is {ahead:.1%}: that is not certain, and {CERTAIN:.0%} are.")
        sentences.append(f"{scheme} leads by {ahead:.0%}")
    return f"As estimated on two H200s, {', '.join(sentences)}."


WINNING = {
    "sequential": ("gemm_all_reduce", {"m": 512, "n": 1024, "k": 16384}),
    "decomposed": ("all_to_all_gemm", {"m": 8192, "n": 1664, "k": 8192}),
    "fused": ("gemm_all_to_all", {"m": 2048, "n": 7168, "k": 512}),
}
SOLUTION = "; ".join(
    f"{scheme}: {operator} with {', '.join(f'{key} = {size}' for key, size in shape.items())}"
    for scheme, (operator, shape) in WINNING.items()
)


# Lesson 5.

TOKENS = (128, 512, 2048, 8192)
"""Recorded sizes of the layer whose sums go to all."""


def layer(m: int) -> Lesson:
    """GEMM -> all-reduce of *m* tokens, with the weights of a Llama 3 70B layer, on two H200s."""
    return on_h200s("gemm_all_reduce", m=m, n=8192, k=7168)


def _recorded_gain(m: int, *, spanning: bool) -> float:
    """The fastest recorded sequential time over the fastest fused one, of *m* tokens; *spanning*: tiles span ranks."""
    times: dict[str, float] = {}
    for entry in recordings.recordings("h200_nvl2_layers"):
        each, chosen = entry.measurement, entry.measurement.trial.schedule
        if each.trial.problem != layer(m).problem or each.trial.part != "whole":
            continue
        if chosen.scheme == BASELINE or axis_rules.spans_ranks(chosen) == spanning:
            times[chosen.scheme] = min(each.time_s, times.get(chosen.scheme, each.time_s))
    return times["sequential"] / times["fused"]


@cache
def recorded_gains() -> dict[int, float]:
    """By number of tokens, what the fused kernel with tiles of one rank was recorded to gain."""
    return {m: _recorded_gain(m, spanning=False) for m in TOKENS}


@cache
def spanning_gain(m: int) -> float:
    """The same of the kernel whose tiles have the rows of both ranks, with *m* tokens."""
    return _recorded_gain(m, spanning=True)


@cache
def estimated_gain(m: int) -> float:
    """The fastest sequential estimate over the fastest fused one with tiles of one rank, with *m* tokens."""
    case = layer(m)
    fused = case.fastest("fused", **LOOKED_AT["fused"], **{axis_rules.TILE_ORDER: "rotated"})
    return case.fastest("sequential", **LOOKED_AT["sequential"]).time_s / fused.time_s


def crossing(gains: Mapping[int, float]) -> float:
    """The size at which the gain is 1, on a straight line of logarithms between the two sizes around it."""
    sizes = sorted(gains)
    below = max(m for m in sizes if gains[m] < 1)
    above = min(m for m in sizes if m > below)
    share = -log(gains[below]) / (log(gains[above]) - log(gains[below]))
    return exp(log(below) + share * (log(above) - log(below)))


def _crossover() -> Answer:
    estimated = crossing({m: estimated_gain(m) for m in (128, 192, 256, 384, 512, 768)})
    return Answer(estimated, crossing(recorded_gains()), "recorded",
                  f"interpolated between 128 and 512 tokens, {RECORDED_ON}")  # fmt: skip


DATASHEET = "h100_nvl8"
DECODING = {"preset": "llama3_70b_attention_decode", "world": 8}


def decoding(machine: Machine) -> Lesson:
    """GEMV -> all-reduce of one token, on eight ranks of *machine*."""
    plain = lesson("gemv_all_reduce", machine=DATASHEET, **DECODING)  # type: ignore[arg-type]
    return replace(plain, machine=machine)


def changed(machine: Machine, key: str, value: float) -> Machine:
    """*machine* with another value for the dotted *key*, such as `costs.step_seconds`; Wrong lists near keys."""
    known = {each.key: each.value for each in machine_values(machine)}
    if key not in known or isinstance(known[key], str):
        near = [each for each in known if each.split(".")[0] == key.split(".")[0] and not isinstance(known[each], str)]
        raise Unreadable(f"{key!r} is no number of {machine.name}. Some that are: "
                    f"{', '.join(near[:6] or list(known)[:6])}.")  # fmt: skip
    return replace(machine, **dict([_with(machine, key.split("."), value)]))


def _with(of: Any, path: list[str], value: float) -> tuple[str, Any]:
    """The field of *of* that *path* leads into, and its content with *value* at the end of the path."""
    name, *rest = path
    names = {each.name for each in fields(of)}
    name = name if name in names else f"{name}s"
    if name not in names:
        raise Unreadable(f"{'.'.join(path)} is no number that can be changed. Accepted: a number of the datasheet.")
    content = getattr(of, name)
    if not rest:
        return name, value
    if is_dataclass(content):
        return name, replace(content, **dict([_with(content, rest, value)]))  # type: ignore[type-var]
    if isinstance(content, tuple) and rest[0].isdigit():
        entries = list(content)
        place = int(rest[0])
        entries[place] = replace(entries[place], **dict([_with(entries[place], rest[1:], value)]))
        return name, tuple(entries)
    if isinstance(content, Mapping) and len(rest) == 1:
        return name, {**content, rest[0]: value}
    raise Unreadable(f"{'.'.join(path)} is no number that can be changed. Accepted: a number of the datasheet.")


def decoding_times(machine: Machine) -> dict[str, float]:
    """By scheme, the seconds of the fastest schedule of `decoding`, as estimated."""
    case = decoding(machine)
    looks = {**LOOKED_AT, "decomposed": {"pieces": (2, 4, 8)}}
    return {name: case.fastest(name, **axes).time_s for name, axes in looks.items()}


def _flip_rule(value: Any) -> str:
    if not isinstance(value, dict) or len(value) != 1:
        count = len(value) if isinstance(value, dict) else "no dictionary"
        raise Unreadable(f"The answer is a dictionary with one key and its new value, and yours has {count}.")
    ((key, new),) = value.items()
    shipped = shipped_machine(DATASHEET)
    new_value = number(new)
    if new_value <= 0:
        raise Unreadable(f"{key} = {new_value:g} is not above 0. Accepted: a number above 0.")
    before = decoding_times(shipped)
    after = decoding_times(changed(shipped, str(key), type(_number_at(shipped, str(key)))(new_value)))
    first, then = (min(times, key=times.__getitem__) for times in (before, after))
    if first == then:
        raise Wrong(f"With {key} = {new_value:g} {then} still wins: {seconds_text(after[then])}, the next one takes "
                    f"{seconds_text(sorted(after.values())[1])}.")  # fmt: skip
    return f"{first} won with {seconds_text(before[first])}, and now {then} wins with {seconds_text(after[then])}."


def _number_at(machine: Machine, key: str) -> Any:
    return next((each.value for each in machine_values(machine) if each.key == key), 0.0)


# Lesson 6.

GATHERED = {"m": 4096, "n": 2048, "k": 4096}
SM_COUNTS = (4, 8, 16, 32)
MOVERS = {"a copy engine": "copy_engine", "SMs": "sm"}


@cache
def drawn() -> list[dict[str, Any]]:
    """Whole trials of all-gather -> GEMM among the drawn schedules: axes, recorded and estimated seconds."""
    case = on_h200s("all_gather_gemm", **GATHERED)
    every = [entry.measurement for entry in recordings.recordings("h200_nvl2_spaces")]
    return [
        {**dict(each.trial.schedule.axes), "scheme": each.trial.schedule.scheme, "recorded_s": each.time_s,
         "estimated_s": predict(each.trial, case.machine, with_spans=False).time_s}
        for each in every if each.trial.problem == case.problem and each.trial.part == "whole"
    ]  # fmt: skip


def fastest_by(axis: str, source: str, **others: Any) -> dict[Any, float]:
    """By value of *axis*, the least seconds from *source* (`recorded` or `estimated`) of pieces with *others*."""
    rows = [row for row in drawn() if "pieces" in row and others.items() <= row.items()]
    values = dict.fromkeys(row[axis] for row in sorted(rows, key=lambda row: str(row[axis]).zfill(4)))
    return {value: min(row[f"{source}_s"] for row in rows if row[axis] == value) for value in values}


SENDERS = (0, 4, 8, 16)
"""Numbers of SMs that only send the sums of a layer."""


def by_senders(source: str, m: int = 2048) -> dict[int, float]:
    """By number of SMs that only send, seconds of the fused layer of *m* tokens, of those that *source* has."""
    case = layer(m)
    if source == "estimated":
        return {count: case.estimate("fused", tile_order="rotated", comm_sms=count).time_s for count in SENDERS}
    times: dict[int, float] = {}
    for entry in recordings.recordings("h200_nvl2_layers"):
        each, chosen = entry.measurement, entry.measurement.trial.schedule
        in_order = chosen.get(axis_rules.TILE_ORDER) in axis_rules.RELAYED
        if each.trial.problem == case.problem and each.trial.part == "whole" and in_order:
            count = int(chosen.get(axis_rules.COMM_SMS) or 0)
            times[count] = min(each.time_s, times.get(count, each.time_s))
    return dict(sorted(times.items()))


def _by_choice(names: Mapping[str, Any], axis: str, **others: Any) -> Answer:
    values = {
        source: [ChoiceValue(name, source, fastest_by(axis, source, **others)[value] * 1e6)
                 for name, value in names.items()]
        for source in ("estimated", "recorded")
    }  # fmt: skip
    where = f"{RECORDED_ON}, the fastest of the drawn schedules of each kind"
    return Answer(winners(values["estimated"], 0.0), winners(values["recorded"]), "recorded", where, "Time in µs",
                  (*values["estimated"], *values["recorded"]))  # fmt: skip


def _sms() -> Answer:
    return _by_choice({str(count): count for count in SM_COUNTS}, "comm_sms", engine="sm")


def _movers() -> Answer:
    return _by_choice(MOVERS, "engine")


def hopper() -> SmLimits:
    """What one SM of an H200 has."""
    return limits_of(shipped_machine(H200S))


def small_block() -> BlockResources:
    """A block of our GEMM with tiles of 64x64x64, 3 stages and 8 warps."""
    return gemm_block(tile("64x64x64"), itemsize=2, stages=3, warps=8)


def measured_residency() -> Any:
    """What an H200 was measured to hold: rows of the occupancy probe, for `workbench.charts.residency`."""
    probe = data_directory() / "probes" / f"{H200S}_occupancy.json"
    return files.json_value(probe, RECORDED_ROWS)["rows"]


def _padding_rule(value: Any) -> str:
    needed = padding(hopper(), small_block(), 1)
    close(value, needed.fewest, "bytes", 1.02)
    if number(value) < needed.fewest:
        raise Wrong(f"With {number(value):g} bytes more two blocks still fit: it is a little too small.")
    return f"From {needed.fewest:,} bytes on a second block finds no room; beyond {needed.most:,} not even one does."


def _turning_rule(value: Any) -> str:
    times = fastest_by("pieces", "recorded", engine="copy_engine")
    least = min(times.values())
    count = number(value)
    if count not in times:
        raise Wrong(f"{count:g} pieces were not recorded. Accepted: {', '.join(map(str, times))}.")
    if times[int(count)] > 1.02 * least:
        raise Wrong(f"{count:g} pieces take {times[int(count)] * 1e6:.0f} µs, and others take {least * 1e6:.0f} µs.")
    return f"{count:g} pieces take {times[int(count)] * 1e6:.0f} µs. One and two pieces are alike, and four are slower."


# What the lessons ask.

QUESTIONS = {
    4: {name: _shape_question(name) for name in SHAPES},
    5: {
        "crossover": Question(
            "A layer of Llama 3 70B, GEMM -> all-reduce on two H200s, tiles with rows of one rank. From how many "
            "tokens on is the fused kernel faster than computing first?", 64.0, _crossover, "tokens",
        ),
    },
    6: {
        "sms_for_communication": Question(
            "An H200 has 132 SMs. How many would you take from the computation, so that they send?",
            "16", _sms,
            choices=tuple(map(str, SM_COUNTS)),
        ),
        "who_moves_the_bytes": Question(
            "Who moves the pieces faster?", "SMs", _movers, choices=tuple(MOVERS),
        ),
    },
}  # fmt: skip

EXERCISES = {
    4: {
        "a_shape_for_each_winner": Exercise(
            "Find one shape for which each scheme wins, as estimated on two H200s, by 3 % or more. The three shapes "
            "above do not count. `lead(operator, m=..., n=..., k=...)` says who wins, and by how much.",
            _shapes_rule,
            ("few tokens have too few tiles for anything to hide: sequential wins there.",
             "large operands that come in suit pieces; results that go out suit fused, if sending takes as long."),
            f"for example {SOLUTION}.",
            lambda: WINNING,
        ),
    },
    5: {
        "one_number_flips_it": Exercise(
            "On eight H100s, as their datasheet has them, fused wins one token's GEMV -> all-reduce. Change **one** "
            "number of the datasheet so that another scheme wins. Answer with a dictionary, such as "
            "`{\"costs.launch_seconds\": 4e-6}`.",
            _flip_rule,
            ("what does a fused kernel pay that a kernel of the library does not? Look among `costs`.",
             "`costs.step_seconds` is what each slice costs inside a kernel: make it longer."),
            "{\"costs.step_seconds\": 5e-6}: ten times as long, and sequential wins.",
            lambda: {"costs.step_seconds": 5e-6},
        ),
    },
    6: {
        "padding_for_one_block": Exercise(
            "Three blocks of our small tiles are resident on an SM. How many *bytes* of shared memory must each block "
            "ask for in addition, so that only one is resident?",
            _padding_rule,
            ("two blocks must not fit: twice a block's memory has to be more than the SM has.",
             "a block has 57,476 bytes and 1,024 that the driver keeps; the SM has 233,472. Half of that is 116,736."),
            "58,237 bytes: 116,736 - 57,476 - 1,024 = 58,236, and one more.",
            lambda: padding(hopper(), small_block(), 1).fewest,
        ),
        "turning_point": Exercise(
            "Copy engines move the pieces. Which number of pieces is the last one that still pays? The recorded rows "
            "above decide; what is within 2 % of the best counts.",
            _turning_rule,
            ("read the recorded column from the top, and stop where it rises.",
             "every piece costs a launch of the copy engine: the turn comes early."),
            "2 pieces: 105 µs; with 1 piece 106 µs, which is alike, and with 4 pieces 115 µs.",
            lambda: 2,
        ),
    },
}  # fmt: skip

__all__ = ["EXERCISES", "GATHERED", "QUESTIONS", "SHAPES", "SHOT", "WINNING", "by_senders", "changed", "crossing",
           "decoding_times", "estimates", "fastest_by", "hopper", "layer", "lead", "machine_values",
           "measured_residency", "on_h200s", "recorded_gains", "recorded_of", "shipped_machine",
           "small_block"]  # fmt: skip
