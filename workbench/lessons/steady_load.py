"""Exercises about bursts and steady load: the same GEMM at its power cap, and what overlap keeps there."""

from __future__ import annotations

from typing import Any

import pandas as pd

from kernels.regime import BURST, STEADY
from kernels.units import percent_text, seconds_text
from workbench.analysis.power import DTYPE, card, flops
from workbench.lessons.questions import Exercise, Wrong, close
from workbench.simulator.price.power import Draw, Work

GEMM = {"m": 8192, "n": 8192, "k": 8192}
COMPUTE, CAPPED, COMMUNICATE = 160e-6, 185e-6, 100e-6
"""Seconds of the second exercise: computation in a burst and at the cap, and communication."""
DRAWS = Draw(rest_share=0.4, hidden_share=0.0, energy_exponent=0.0)
"""A rest draws 0.4 of the cap; hidden communication costs nothing, and all that is saved comes back as time."""


def timed() -> pd.DataFrame:
    """The same four GEMMs of cuBLAS in both regimes, measured on one H200 on 2026-11-23."""
    return pd.DataFrame([{
        "m x n x k": "{m:.0f} x {n:.0f} x {k:.0f}".format(**each), BURST: seconds_text(each["burst_s"]),
        STEADY: seconds_text(each["steady_s"]), "longer by": percent_text(each["steady_s"] / each["burst_s"] - 1),
        "SM clock": f"{each['clock_hertz'] / 1e6:,.0f} MHz", "power": f"{each['watts']:.0f} W",
    } for each in card().timed]).set_index("m x n x k")  # fmt: skip


def calls() -> dict[str, Work]:
    """The two schedules of the second exercise."""
    one = {"compute_s": COMPUTE, "capped_s": CAPPED}
    return {"sequential": Work(**one, rest_s=COMMUNICATE),
            "overlapped": Work(**one, rest_s=0.0, hidden_s=COMMUNICATE)}  # fmt: skip


def ratios() -> dict[str, float]:
    """Overlapped over sequential, by regime."""
    of = calls()
    bursts = {name: work.compute_s + work.rest_s for name, work in of.items()}
    loads = {name: card().mixed_seconds(work, DRAWS) for name, work in of.items()}
    return {regime: times["overlapped"] / times["sequential"] for regime, times in ((BURST, bursts), (STEADY, loads))}


def _time_rule(value: Any) -> str:
    close(value, _capped_us(), "µs", 1.03)
    (measured,) = [each["steady_s"] for each in card().timed if GEMM.items() <= each.items()]
    return f"Measured on one H200: {seconds_text(measured)}."


def _capped_us() -> float:
    return card().capped_seconds(flops(GEMM), DTYPE) * 1e6


def _ratio_rule(value: Any) -> str:
    right = ratios()
    if isinstance(value, int | float) and abs(value - right[BURST]) < 0.01 * right[BURST]:
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
        "**What is left of the gain?** A computation takes 160 µs in a burst, and 185 µs where the cap alone limits "
        "it. Its communication takes 100 µs, and the card draws 0.4 of its cap meanwhile. In bursts overlap that hides "
        "all of it takes 160 of 260 µs: a ratio of 0.62. Under steady load a rest pays for a faster clock. Which ratio "
        "is left there, if hidden communication costs nothing?",
        _ratio_rule,
        ("at the cap's power, how many microseconds of energy does a sequential call need? How long is it in bursts?",
         "its energy is 185 + 0.4 x 100 = 225 µs at the cap, less than the 260 µs of a burst. Overlap has no rest."),
        "The sequential call takes 260 µs in both: its rest pays for the full clock. The overlapped one takes 185 µs: "
        "0.71.",
        lambda: ratios()[STEADY],
    ),
}  # fmt: skip
