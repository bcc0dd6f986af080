"""The front of time and a resource: what nothing beats at both, and what may belong to it."""

from __future__ import annotations

from typing import Any

import numpy as np

from workbench.analysis.front import MAYBE, OFF, ON, standings

ROUNDS = (1.0, 1.01, 0.99, 1.02, 0.98, 1.0, 1.01, 0.99, 1.0, 1.01)


def timed(time_s: float, sms: int | None, **given: Any) -> dict[str, Any]:
    noisy = [time_s * (each if number % 2 else 2 - each) for number, each in enumerate(ROUNDS)]
    return {"source": "measured", "block": "b", "time_s": time_s, "sms": sms, "rounds_s": noisy, "operator": "o",
            "shape": {"m": 1}, "dtype": "float32", "world": 2, **given}  # fmt: skip


def test_the_front_is_what_nothing_beats_at_both() -> None:
    rows = [timed(3.0, 0), timed(2.0, 8), timed(1.0, 16), timed(2.5, 16), timed(4.0, 0), timed(1.5, 32)]
    assert standings(rows, "sms") == [ON, ON, ON, OFF, OFF, OFF]


def test_what_is_within_noise_of_it_may_be_on_it() -> None:
    noise = [0.97, 1.03, 0.98, 1.02, 1.04, 0.96, 1.01, 0.99, 1.03, 0.97]
    near = timed(1.002, 0, rounds_s=[1.002 * each for each in noise])
    rows = [timed(1.0, 0), near, timed(1.5, 0)]
    assert standings(rows, "sms") == [ON, MAYBE, OFF]


def test_blocks_that_were_not_timed_together_leave_it_open_but_within_one_it_is_certain() -> None:
    rows = [timed(1.0, 0), timed(1.3, 0, block="other"), timed(1.6, 0, block="other")]
    assert standings(rows, "sms") == [ON, MAYBE, OFF]


def test_estimates_have_another_front_by_their_intervals() -> None:
    estimates = [timed(0.5, 0, source="estimated"), timed(0.51, 0, source="estimated")]
    assert standings([timed(1.0, 0), *estimates], "sms") == [ON, ON, OFF]
    wide = [{**each, "low_s": 0.9 * each["time_s"], "high_s": 1.1 * each["time_s"]} for each in estimates]
    far = timed(0.7, 0, source="estimated", low_s=0.63, high_s=0.77)
    assert standings([*wide, far], "sms") == [ON, MAYBE, OFF]


def test_what_is_not_known_has_no_standing() -> None:
    assert standings([timed(1.0, None), {**timed(1.0, 0), "time_s": None}], "sms") == [None, None]
    assert standings([], "sms") == []


def test_of_a_hundred_thousand_estimates_the_front_falls() -> None:
    rng = np.random.default_rng(0)
    rows = [{"source": "estimated", "time_s": float(each), "sms": int(sms)}
            for each, sms in zip(rng.lognormal(size=100_000), rng.integers(0, 32, 100_000), strict=True)]  # fmt: skip
    stands = standings(rows, "sms")
    on_it = sorted((row["sms"], row["time_s"]) for row, each in zip(rows, stands, strict=True) if each == ON)
    assert on_it == sorted(on_it, key=lambda point: -point[1]), "more of the resource is faster"
    assert min(row["time_s"] for row in rows) == on_it[-1][1]
