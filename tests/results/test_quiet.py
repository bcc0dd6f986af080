"""One sentence on a busy computer, and which of two timings of a trial counts."""

from __future__ import annotations

from typing import Any

from cluster.cpu_use import HostUse
from workbench.results import quiet


def row(block: str, share: float | None, key: str = "k") -> dict[str, Any]:
    others = None if share is None else f"other programs: {2 * share:.1f} of 2 cores"
    return {"run": "r", "key": key, "block": block, "others_share": share, "others": others}


def test_nothing_is_said_of_a_quiet_computer_or_where_nobody_read() -> None:
    assert quiet.busy_sentence([row("1", 0.02), row("1", None)]) == ""
    assert quiet.busy_host_sentence([HostUse("h", 2.0, 0.1)]) == ""


def test_the_sentence_names_who_used_most_and_how_much_of_what() -> None:
    sentence = quiet.busy_sentence([row("1", 0.2), row("1", 0.65)])
    assert sentence == (
        "Others used the cores meanwhile (other programs: 1.3 of 2 cores): these times are not trustworthy."
    )
    now = quiet.busy_host_sentence([HostUse("h", 2.0, 1.3, {"another gang": 1.0, "other programs": 0.3})])
    assert now.startswith("This computer is busy: others use 1.3 of 2 cores, mostly another gang.")


def test_of_two_timings_of_a_trial_the_quieter_counts() -> None:
    rows = [row("1", 0.6), row("2", 0.01), row("1", 0.5, "other")]
    assert quiet.least_disturbed(rows) == [rows[1], rows[2]]
    assert quiet.least_disturbed([row("1", 0.3), row("2", 0.6)]) == [row("1", 0.3)]
