"""Rows in words: units, what is missing, what CPU ranks are."""

from __future__ import annotations

import pandas as pd
import pytest

from tests.charts.made import FABRIC, estimate_of, made_row
from workbench.charts import labels


def test_a_link_is_said_in_peoples_units() -> None:
    assert labels.fabric_label(FABRIC) == "emulated link, wire : compute = 1, 533 MB/s, latency 100 µs"
    assert labels.fabric_label("shared_memory") == "shared memory"
    assert labels.fabric_label("somebody's:speed=fast") == "somebody's:speed=fast"


def test_what_is_missing_in_a_frame_is_none() -> None:
    frame = pd.DataFrame([{"time_s": 1.0, "stage": None}, {"time_s": float("nan"), "stage": "hang"}])
    assert labels.listed(frame)[1]["time_s"] is None
    assert labels.listed(frame)[0]["stage"] is None


@pytest.mark.parametrize(
    ("correct", "source", "verdict"),
    [
        (True, "measured", "yes, equal to the reference"),
        (False, "measured", "no, the result is wrong"),
        (None, "measured", "not stated"),
        (None, "estimated", "does not apply: simulated, nothing was computed"),
    ],
)
def test_verified_is_never_claimed_for_what_was_not(correct: bool | None, source: str, verdict: str) -> None:
    assert labels.verdict_text(made_row("a", correct=correct, source=source)) == verdict


def test_only_timed_rows_of_cpu_ranks_are_called_so() -> None:
    row = made_row("a")
    assert labels.machine_label(row) == "laptop, plan executed on CPU ranks"
    assert labels.machine_label(estimate_of(row, 0.05)) == "laptop"
    assert labels.machine_label({**row, "backend": "triton"}) == "laptop"


def test_the_context_is_what_all_rows_have_in_common() -> None:
    said = labels.context([made_row("a"), made_row("b", world=4)])
    assert said == (
        "GEMM -> all-to-all · m = 2048, n = 512, k = 1024 · float32 · laptop, plan executed on CPU ranks"
        " · emulated link"
    )


def test_a_long_subtitle_breaks_between_its_parts() -> None:
    lines = labels.title("Why?", labels.context([made_row("a")])).to_dict()["subtitle"]
    assert len(lines) == 2
    assert lines[1].startswith("laptop, plan executed on CPU ranks")
    assert not any(line.endswith("·") for line in lines)
