"""Exercises about bursts and steady load: the same GEMM at its power cap, and what overlap keeps there."""

from __future__ import annotations

from dataclasses import replace
from statistics import geometric_mean
from typing import Any

import pandas as pd

from kernels.regime import BURST, STEADY
from kernels.units import percent_text, seconds_text
from workbench.analysis.power import card, flops
from workbench.lessons.questions import Exercise, Wrong, close, number
from workbench.simulator.price.power import PowerModel, Work

GEMM = {"m": 8192, "n": 8192, "k": 8192}
COMPUTE, COMMUNICATE, JOULES = 160e-6, 100e-6, 0.1033
"""The second exercise: seconds of computation and communication in a burst, and the energy of the FLOP."""


def simple() -> PowerModel:
    """The card of the second exercise: as an H200, but the energy of a FLOP stays, and waiting draws idle power."""
    model = card()
    return replace(model, energy_exponent=0.0, waiting_watts=(model.idle_watts, model.idle_watts),
                   link_joules_per_byte=(0.0, 0.0))  # fmt: skip


def timed() -> pd.DataFrame:
    """The same four GEMMs of cuBLAS in both regimes, measured on one H200 on 2026-11-23."""
    return pd.DataFrame([{
        "m x n x k": "{m:.0f} x {n:.0f} x {k:.0f}".format(**each), BURST: seconds_text(each["burst_s"]),
        STEADY: seconds_text(each["steady_s"]), "longer by": percent_text(each["steady_s"] / each["burst_s"] - 1),
        "SM clock": f"{each['clock_hertz'] / 1e6:,.0f} MHz", "power": f"{each['watts']:.0f} W",
    } for each in card().timed]).set_index("m x n x k")  # fmt: skip


def calls() -> dict[str, Work]:
    """The two schedules of the second exercise."""
    after = Work(burst_s=COMPUTE + COMMUNICATE, compute_s=COMPUTE, flop_joules=JOULES, memory_bytes=0.0)
    return {"sequential": after, "overlapped": replace(after, burst_s=COMPUTE, hidden_s=COMMUNICATE)}


def ratios() -> dict[str, float]:
    """Overlapped over sequential, by regime."""
    bursts = {name: work.burst_s for name, work in calls().items()}
    loads = {name: simple().seconds(work) for name, work in calls().items()}
    return {regime: times["overlapped"] / times["sequential"] for regime, times in ((BURST, bursts), (STEADY, loads))}


def _time_rule(value: Any) -> str:
    close(value, _capped_us(), "µs", 1.03)
    (measured,) = [each["steady_s"] for each in card().timed if GEMM.items() <= each.items()]
    return f"Measured on one H200: {seconds_text(measured)}."


def _capped_us() -> float:
    """By all that the card drew for a FLOP, its waiting and its bytes included."""
    per_flop = geometric_mean(each["watts"] * each["steady_s"] / flops(each) for each in card().timed)
    return flops(GEMM) * per_flop / card().held_watts * 1e6


def _ratio_rule(value: Any) -> str:
    right = ratios()
    if abs(number(value) - right[BURST]) < 0.01 * right[BURST]:
        raise Wrong("That is the ratio in bursts. At the cap both schedules take longer, and not by as much.")
    close(value, right[STEADY], "", 1.01)
    return f"In bursts it is {right[BURST]:.2f}."


EXERCISES = {
    "time_at_the_cap": Exercise(
        "**The same GEMM without a pause.** cuBLAS multiplies 8192 x 8192 x 8192 in bfloat16 in 1,374 µs when the card "
        "rests between calls. Without rests an H200 draws 692 W, and a FLOP takes 1.03 pJ, all that the card draws "
        "included. How many microseconds does the GEMM take then?",
        _time_rule,
        ("how many FLOP has it, and how many joules are that?",
         "2 x 8192³ is 1.1 x 10¹² FLOP, which is 1.14 J. A watt is a joule a second."),
        "1.14 J over 692 W is 1,641 µs.",
        _capped_us,
    ),
    "ratio_under_load": Exercise(
        "**What is left of the gain?** A computation takes 160 µs in a burst, and its FLOP take 0.1033 J. Its "
        "communication takes 100 µs. The card draws 134 W in every second, whatever it does, and no more than 692 W in "
        "the mean. In bursts overlap that hides all of it takes 160 of 260 µs: a ratio of 0.62. Which ratio is left "
        "under steady load, if a FLOP takes as much energy at every clock?",
        _ratio_rule,
        ("what is left of 692 W for the FLOP? How long does it have to flow to pay for them?",
         "558 W pay for 0.1033 J in 185 µs. How long does each schedule take in a burst?"),
        "558 W pay for the FLOP in 185 µs. The sequential call has 260 µs for that, so it takes as long as in a burst. "
        "The overlapped one takes 185 µs in place of 160: 0.71.",
        lambda: ratios()[STEADY],
    ),
}  # fmt: skip
