"""Questions and exercises of lessons 7 to 9: predict and find the wrong term, search with a budget, many hosts."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from math import isfinite
from statistics import mean, median
from typing import Any

from kernels.units import seconds_text
from workbench.analysis.accuracy import Term, terms, validate_recordings
from workbench.analysis.published import number as published
from workbench.lessons.questions import Answer, ChoiceValue, Exercise, Question, Unreadable, Wrong, number
from workbench.machines import shipped_machine
from workbench.simulator.scaling.model import model
from workbench.simulator.scaling.network import of_machine
from workbench.simulator.scaling.prices import Prices
from workbench.simulator.scaling.step import StepSetting, Stragglers, rows

H200S = "h200_nvl2"
RECORDED_ON = "recorded on two H200s of one host, NVLink, in November 2026"
Rows = list[dict[str, Any]]


_reading = threading.Lock()
"""Held while a recording is read, which takes seconds: a class hands in at once, and by a cache alone each reads it."""


def compared(name: str) -> tuple[dict[str, Any], ...]:
    """The trials of the shipped recording *name*, each with its estimate on two H200s."""
    with _reading:
        return _compared(name)


@cache
def _compared(name: str) -> tuple[dict[str, Any], ...]:
    every, _ = validate_recordings([name], shipped_machine(H200S))
    return tuple(every)


# Lesson 7.

EXPERTS = {"m": 8192, "n": 4096, "k": 1792}
FEW_TOKENS = {"m": 2048, "n": 4096, "k": 1792}
CLASSES = ("sequential", "fused")


def of_shape(shape: Mapping[str, int]) -> Rows:
    """The recorded trials of one expert's GEMM -> all-to-all, parts included."""
    return [row for row in compared("h200_nvl2_gemm") if row["shape"] == shape]


def fastest(shape: Mapping[str, int], scheme: str) -> dict[str, Any]:
    """The fastest recorded whole trial of that scheme."""
    wholes = [row for row in of_shape(shape) if row["part"] == "whole" and row["scheme"] == scheme]
    return min(wholes, key=lambda row: row["measured_s"])


def _time_of(scheme: str) -> Callable[[], Answer]:
    def answer() -> Answer:
        row = fastest(EXPERTS, scheme)
        return Answer(row["estimated_s"] * 1e6, row["measured_s"] * 1e6, "recorded", RECORDED_ON)

    return answer


def terms_of(shape: Mapping[str, int], scheme: str) -> list[Term]:
    """The terms of the estimate of the fastest schedule, each recorded and estimated."""
    return terms(of_shape(shape), fastest(shape, scheme))


ADDING = ("computation alone", "communication alone", "the rest")


def wrongest_term(shape: Mapping[str, int], scheme: str) -> str:
    """The one of ADDING with the largest error in seconds."""
    named = {term.name: abs(term.error_s) for term in terms_of(shape, scheme)}
    return max(ADDING, key=lambda name: named[name])


def _term_rule(value: Any) -> str:
    if value not in ADDING:
        raise Unreadable(f"{str(value)[:40]!r} is no term. Accepted: {', '.join(ADDING)}.")
    right = wrongest_term(FEW_TOKENS, CLASSES[1])
    off = {term.name: term.error_s for term in terms_of(FEW_TOKENS, CLASSES[1])}
    if value != right:
        raise Wrong(f"The error of {value} is {abs(off[value]) * 1e6:.1f} µs, and another term is further off.")
    return f"{value.capitalize()} is {off[value] * 1e6:+.1f} µs off: the last tiles end earlier than estimated."


def examples(scheme: str) -> Rows:
    """What a model of one's own is tried on: sizes of each recorded expert GEMM -> all-to-all, without its times."""
    return [{**row["shape"], "scheme": scheme} for row in _class_rows(scheme)]


@cache
def _class_rows(scheme: str) -> tuple[dict[str, Any], ...]:
    best: dict[tuple[Any, ...], dict[str, Any]] = {}
    operator = compared("h200_nvl2_gemm")[0]["operator"]
    every = [*compared("h200_nvl2_gemm"), *compared("h200_nvl2_pieces")]
    for row in every:
        if (row["operator"], row["scheme"], row["part"]) == (operator, scheme, "whole"):
            key = tuple(row["shape"].values())
            best[key] = min(best.get(key, row), row, key=lambda each: each["measured_s"])
    return tuple(best.values())


def model_errors(scheme: str, own_model: Callable[[Mapping[str, Any]], float]) -> dict[str, float]:
    """Median error of *own_model* on the recorded examples of a class, of our estimates, and of the roofline."""
    timed = _class_rows(scheme)
    predicted = [number(own_model(each), "seconds") for each in examples(scheme)]
    if not all(isfinite(each) and each > 0 for each in predicted):
        raise Wrong(f"Your model predicts {min(predicted):g} s somewhere: a time is above 0.")
    columns = {"yours": predicted, "ours": [row["estimated_s"] for row in timed],
               "roofline": [row["trivial_s"] for row in timed]}  # fmt: skip
    return {name: median(abs(seconds / row["measured_s"] - 1) for seconds, row in zip(column, timed, strict=True))
            for name, column in columns.items()}  # fmt: skip


def _model_rule(value: Any) -> str:
    if not isinstance(value, dict) or len(value) != 1 or not set(value) <= set(CLASSES):
        raise Unreadable(f"The answer is a dictionary from one of {', '.join(CLASSES)} to your function.")
    ((scheme, own_model),) = value.items()
    if not callable(own_model):
        raise Unreadable(f"{str(own_model)[:40]!r} is no function of an example. Accepted: one that returns seconds.")
    errors = model_errors(scheme, own_model)
    if errors["yours"] >= errors["roofline"]:
        raise Wrong(f"Your median error is {errors['yours']:.0%} on {scheme}, and a roofline alone has "
                    f"{errors['roofline']:.0%}.")  # fmt: skip
    result = "beats ours" if errors["yours"] < errors["ours"] else "loses against ours"
    return f"On {scheme} your model is {errors['yours']:.1%} off in the median and {result}: {errors['ours']:.1%}."


def simple_model(example: Mapping[str, Any]) -> float:
    """A model of ten lines: the share of the peak that GEMMs reach, and the share of the link."""
    m, n, k = (example[name] for name in "mnk")
    compute_s = 2 * m * n * k / 745e12
    wire_s = m * n * 2 / 2 / 375e9
    start_s = 6e-6
    one_after_the_other = {"sequential": True, "fused": False}[example["scheme"]]
    if one_after_the_other:
        return compute_s + wire_s + start_s
    return max(compute_s, wire_s) + 2 * start_s


# Lesson 8.

SEARCHED, BUDGETED = "all_to_all_gemm", "all_gather_gemm"
SPACES = {SEARCHED: "h200_nvl2_space_all_to_all_gemm", BUDGETED: "h200_nvl2_spaces"}
NEAR = 1.02
BUDGET = 12
SHUFFLES = 1000


@cache
def space(operator: str) -> tuple[dict[str, Any], ...]:
    """The recorded schedules of a drawn space, each once with its best time: scheme, axes, recorded and estimated s."""
    best: dict[str, dict[str, Any]] = {}
    for row in compared(SPACES[operator]):
        if row["operator"] == operator and row["part"] == "whole":
            best[row["key"]] = min(best.get(row["key"], row), row, key=lambda each: each["measured_s"])
    return tuple(best[key] for key in sorted(best))


def measurements(order: Iterable[Mapping[str, Any]]) -> int:
    """How many schedules of a whole space, measured in this *order*, until one is within 2 % of the best."""
    listed = list(order)
    best = min(row["measured_s"] for row in listed)
    return next(place for place, row in enumerate(listed, start=1) if row["measured_s"] <= NEAR * best)


def by_estimate(operator: str) -> list[dict[str, Any]]:
    """The schedules of the space, the lowest estimate first."""
    return sorted(space(operator), key=lambda row: row["estimated_s"])


def _at_random() -> Answer:
    every = list(space(SEARCHED))
    best = min(row["measured_s"] for row in every)
    near = sum(row["measured_s"] <= NEAR * best for row in every)
    expected = (len(every) + 1) / (near + 1)
    drawn = random.Random(0)
    counted = mean(measurements(drawn.sample(every, len(every))) for _ in range(SHUFFLES))
    where = f"the mean of {SHUFFLES:,} shuffles of what was {RECORDED_ON}"
    return Answer(expected, counted, "recorded", where, estimated_by="the formula for a draw at random")


def _by_estimates() -> Answer:
    believed = "the simulator takes its first one for the best"
    return Answer(1.0, float(measurements(by_estimate(SEARCHED))), "recorded", RECORDED_ON, estimated_by=believed)


@dataclass
class MeasuringBudget:
    """Replays recorded times of the space, twelve schedules at most."""

    operator: str = BUDGETED
    tried: list[int] = field(default_factory=list)

    def candidates(self) -> Any:
        """A table of all schedules, without times: scheme and the axes that differ."""
        import pandas as pd

        listed = [{"scheme": row["scheme"], **{name: str(value) for name, value in row["axes"].items()}}
                  for row in space(self.operator)]  # fmt: skip
        table = pd.DataFrame(listed).fillna("").rename_axis("number")
        return table.loc[:, table.nunique() > 1]

    def measure(self, *numbers: int) -> Any:
        """A table of the recorded times of schedules *numbers*; ValueError says what is left of the budget."""
        import pandas as pd

        every = space(self.operator)
        for each in numbers:
            if not isinstance(each, int) or not 0 <= each < len(every):
                raise ValueError(f"There is no schedule {each!r}. Accepted: 0 to {len(every) - 1}.")
            if each in self.tried:
                continue
            if len(self.tried) == BUDGET:
                raise ValueError(f"The budget of {BUDGET} measurements is spent: {self.tried}. Accepted: the best of "
                                 "them.")  # fmt: skip
            self.tried.append(each)
        times = [{"number": each, "scheme": every[each]["scheme"], "recorded": seconds_text(every[each]["measured_s"])}
                 for each in numbers]  # fmt: skip
        return pd.DataFrame(times).set_index("number")


def best_found(numbers: Iterable[int]) -> tuple[int, float]:
    """The fastest of the schedules *numbers* of the budgeted space and its recorded seconds, for a class board.

    Wrong says why *numbers* are no list of a budget.
    """
    every = space(BUDGETED)
    listed = list(numbers) if isinstance(numbers, list | tuple) else []
    if not listed or not all(type(each) is int and 0 <= each < len(every) for each in listed):
        raise Unreadable(f"The answer is a list of numbers of schedules, 0 to {len(every) - 1}.")
    if len(set(listed)) > BUDGET:
        raise Wrong(f"You measured {len(set(listed))} schedules, and the budget is {BUDGET}.")
    best = min(listed, key=lambda each: every[each]["measured_s"])
    return best, float(every[best]["measured_s"])


def _budget_rule(value: Any) -> str:
    best, seconds = best_found(value)
    least = min(row["measured_s"] for row in space(BUDGETED))
    if seconds > NEAR * least:
        raise Wrong(f"Your best one takes {seconds_text(seconds)}, {seconds / least - 1:.0%} more than the best of "
                    "the space.")  # fmt: skip
    return f"Schedule {best} takes {seconds_text(seconds)}, after {len(set(value))} measurements."


def _right_budget() -> list[int]:
    numbers = {row["key"]: place for place, row in enumerate(space(BUDGETED))}
    return [numbers[row["key"]] for row in by_estimate(BUDGETED)[:BUDGET]]


# Lesson 9.

SAVES = ("about 21 %", "about 0 %")
TURNS = {"ranks": 1024, "gigabytes": 50.0, "dense": 1.0, "stragglers": 0.0}
"""What decides how much is saved, and its value: ranks, GB/s between hosts, dense work, share of slow ranks."""
NOTHING = 0.02


def step(name: str = "dlrm", *, ranks: int = 1024, gigabytes: float = 50.0, dense: float = 1.0,
         stragglers: float = 0.0) -> dict[str, Any]:  # fmt: skip
    """One training step with the forward pass fused, as estimated on `h200_ib`: row of `workbench predict-step`."""
    machine = shipped_machine("h200_ib")
    network = of_machine(machine, ranks)
    network = network.with_rates(len(network.levels) - 1, gigabytes * 1e9)
    prices, slow = Prices(machine, network), Stragglers(probability=stragglers)
    setting = replace(StepSetting(model=model(name), prices=prices, stragglers=slow), dense_scale=dense)
    (row,) = rows(setting, ("fused_forward",))
    return dict(row)


def _many_hosts() -> Answer:
    ours, paper = step()["reduction"] * 100, published("R11")
    estimate = SAVES[0] if abs(ours - 21) < abs(ours) else SAVES[1]
    values = (ChoiceValue(estimate, "estimated", ours), ChoiceValue(SAVES[0], "published", paper.value))
    where = f"published, {paper.paper} ({paper.version}, {paper.section}), itself simulated"
    return Answer(estimate, SAVES[0], "published", where, "Time saved in %", values)


def _setting(name: str, value: float) -> dict[str, Any]:
    return {name: int(value) if name == "ranks" else value}


def _turn_rule(value: Any) -> str:
    if not isinstance(value, dict) or len(value) != 1 or next(iter(value)) not in TURNS:
        raise Unreadable(f"The answer is a dictionary with one of {', '.join(TURNS)} and its new value.")
    ((name, new),) = value.items()
    new_value = number(new)
    try:
        saved = step(**_setting(name, new_value))["reduction"]
    except (ValueError, ArithmeticError) as error:
        raise Unreadable(f"{name} = {new} is no setting: {str(error)[:160]}") from error
    if not abs(saved) <= NOTHING:
        raise Wrong(f"With {name} = {new} the step still saves {saved:.1%}: more than {NOTHING:.0%}.")
    return f"With {name} = {new} the step saves {saved:.1%}."


# What the lessons ask.

QUESTIONS = {
    7: {
        "sequential_time": Question(
            "8192 tokens on each of two H200s: compute everything, then send. How many microseconds?", 155.0,
            _time_of("sequential"), "µs",
        ),
        "fused_time": Question(
            "And if one fused kernel sends each tile as soon as it is done?", 122.0, _time_of("fused"), "µs",
        ),
    },
    8: {
        "at_random": Question(
            "Of 85 recorded schedules, one after the other at random: how many until one is within 2 % of the "
            "best?", 20.0,
            _at_random, "measurements",
        ),
        "by_estimate": Question(
            "And in the order of the simulator's estimates, the lowest first?", 10.0, _by_estimates, "measurements",
        ),
    },
    9: {
        "many_hosts": Question(
            "A training step of a recommendation model (DLRM) on 128 nodes of 8 GPUs: how much time do fused operators "
            "save?", SAVES[1], _many_hosts, choices=SAVES,
        ),
    },
}  # fmt: skip

EXERCISES = {
    7: {
        "wrong_term": Exercise(
            "Now 2048 tokens, fused: the estimate is further off there. Which term is wrong? Answer "
            "`\"computation alone\"`, `\"communication alone\"` or `\"the rest\"`.",
            _term_rule,
            ("print `page.kit.terms_of(page.kit.FEW_TOKENS, \"fused\")`, and look at the errors in seconds.",
             "both parts alone are right to half a microsecond."),
            "\"the rest\": estimated 15 µs, recorded 11 µs.",
            lambda: wrongest_term(FEW_TOKENS, CLASSES[1]),
        ),
        "own_model": Exercise(
            "Write a model of your own in ten lines: a function from an example (`m`, `n`, `k`, `scheme`) to seconds. "
            "Hand it in with the class that it is for, such as `{\"fused\": my_model}`. It has to beat the roofline; "
            "whether it beats ours, the check says.",
            _model_rule,
            ("a GEMM reaches about three quarters of the peak of 989 TFLOP/s, and a store about 375 of 450 GB/s.",
             "sequential is the sum of both times, fused the longer one; add a few microseconds to begin and to end."),
            "`page.kit.simple_model` is one: 2mnk / 745e12 and mn / 375e9, plus 6 µs or 12 µs.",
            lambda: {"fused": simple_model},
        ),
    },
    8: {
        "budget_of_12": Exercise(
            "Another operator, another space: all-gather -> GEMM. `budget.measure(number, ...)` tells recorded times "
            "of at most 12 schedules. Hand in `budget.tried`: its best one has to be within 2 % of the best of all.",
            _budget_rule,
            ("let the simulator choose: `page.kit.by_estimate(page.kit.BUDGETED)` has the lowest estimates first.",
             "pieces that a copy engine moves, and few of them."),
            "the first 12 of `by_estimate`; the first one is within 1 % already.",
            _right_budget,
        ),
    },
    9: {
        "what_turns_it": Exercise(
            "Change one value so that the saving is gone, 2 % at most: `ranks` (1024), `gigabytes` per second between "
            "hosts (50), `dense` work (1) or `stragglers` (0). Answer with a dictionary, such as `{\"gigabytes\": "
            "100}`.",
            _turn_rule,
            ("overlap needs two parts of about equal length: make one of them far longer.",
             "with much more dense work the network is hidden without any fusing: try dense = 8, 16, ..."),
            "{\"dense\": 32}: 1.7 %. Or a network so slow that nothing can hide it, such as 0.5 GB/s.",
            lambda: {"dense": 32.0},
        ),
    },
}  # fmt: skip

__all__ = ["BUDGETED", "EXERCISES", "EXPERTS", "FEW_TOKENS", "QUESTIONS", "SEARCHED", "MeasuringBudget", "best_found",
           "by_estimate", "compared", "examples", "model", "model_errors", "simple_model", "space", "step",
           "terms_of"]  # fmt: skip
