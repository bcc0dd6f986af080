"""Which exit status an error and a list of outcomes have, and what it is said to be about: plain values."""

from typing import Any

import pytest
import typer

from kernels.files import Failed
from kernels.schedule import Refusal
from workbench.cli import exit_status


@pytest.mark.parametrize(
    ("error", "status", "stage"),
    [
        (ValueError("x"), 2, "refused"), (Refusal("x"), 2, "refused"), (Failed("x"), 1, "lost"),
        (OSError(28, "No space left on device"), 1, "lost"), (KeyboardInterrupt(), 130, "cancelled"),
        (typer.Abort(), 130, "cancelled"), (exit_status.Interrupted(), 130, "cancelled"),
        (TypeError("x"), None, "lost"),
    ],
)  # fmt: skip
def test_each_error_has_one_status(error: BaseException, status: int | None, stage: str) -> None:
    assert (exit_status.of_error(error), exit_status.failure(error)["stage"]) == (status, stage)


def row(stage: str | None) -> dict[str, Any]:
    return {"outcome": "failure" if stage else "measurement", "stage": stage}


@pytest.mark.parametrize(
    ("stages", "status"),
    [
        ([None], 0), ([None, "refused"], 0), ([None, "cancelled"], 0), (["refused", "refused"], 2), ([], 1),
        *(([None, "refused", stage], 1) for stage in ("compile", "launch", "hang", "wrong", "lost")),
    ],
)  # fmt: skip
def test_a_refused_combination_is_no_failure(stages: list[str | None], status: int) -> None:
    assert exit_status.of_rows(map(row, stages)) == status


def test_what_a_status_is_about_says_how_many_and_why() -> None:
    timed, refused, failed = (row(stage) | {"message": f"It is {stage}."} for stage in (None, "refused", "hang"))
    assert exit_status.status_reason([timed, refused]) is None
    assert exit_status.status_reason([refused, refused]) == "All of 2 schedules were refused. It is refused."
    assert exit_status.status_reason([timed, failed, refused], [failed]) == (
        "1 of 3 schedules failed and 1 of the baselines and parts failed. It is hang."
    )
