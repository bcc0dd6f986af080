"""What a reader must know to believe a report: the cautions before the numbers, the method after them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernels.hardware import Hardware
from kernels.protocol import BESIDE_ONE_CALL, is_one_call
from workbench.naming import OF_ONE, TIMED, is_of_one
from workbench.off_estimates import off
from workbench.reports import timed_how
from workbench.reports.outcomes import Row, is_failure, is_stop, parts_of
from workbench.reports.values import markdown_text, value_text


def cautions(facts: Mapping[str, Any], rows: Sequence[Row]) -> list[str]:
    """Sentences that stand above all numbers, because each changes what the numbers mean."""
    said = []
    timed = [row for row in rows if not is_failure(row)]
    on_cpu = [row for row in timed if row.get("backend") == "cpu" and row.get("source") in TIMED]
    if on_cpu:
        said.append(
            "Plan executed on CPU ranks: the arithmetic, the waiting and the times are real, the device is not a GPU."
        )
    world, cores = facts.get("world"), facts.get("cores") or (facts.get("provenance") or {}).get("cores")
    if world and cores and world > cores:
        said.append(f"{world} ranks shared {cores} cores, so they slowed each other down beyond what overlap explains.")
    if any(row.get("calibrated") is False for row in timed):
        said.append(
            "Some estimates use a machine description that was not calibrated: read their order, not their size."
        )
    if any(map(is_of_one, timed)):
        said.append(f"{OF_ONE.capitalize()}: a call's time was divided by them, who were there together.")
    if _beside_one_call(timed):
        said.append(f"Each call was timed alone, one per graph; {BESIDE_ONE_CALL}.")
    said += [f"{each} {each.advice}" for each in off(rows)]
    wrong = sum(row.get("stage") == "wrong" for row in rows)
    if wrong:
        said.append(f"{wrong} schedule{'s' * (wrong != 1)} gave a wrong result and have no time.")
    return said


def _beside_one_call(timed: Sequence[Row]) -> bool:
    """Whether estimates stand beside times of one call per graph."""
    sources = {row.get("source") for row in timed if is_one_call(row.get("protocol"), row.get("backend"))}
    return "estimated" in sources and len(sources) > 1


def methods(facts: Mapping[str, Any], rows: Sequence[Row]) -> str:
    """How the numbers were taken, as one Markdown paragraph made of what is known about this run."""
    timed = [row for row in rows if not is_failure(row)]
    ran = [row for row in timed if row.get("source") in TIMED]
    sentences = []
    if ran:
        sentences += [*_running(facts.get("protocol")), *_checking(ran), *_hardware(ran)]
        sentences += timed_how.sentences(facts.get("timed_how") or ())
    if any(row.get("floor_s") is not None for row in timed):
        sentences.append(
            "The floor is the larger of computation alone at its fastest and the least bytes that must cross the wire, "
            "divided by the bandwidth that one link direction achieves."
        )
    if any(row.get("source") == "estimated" for row in timed):
        sentences.append(
            f"An estimate is the simulator's{_by(timed)}: the schedule's plan, played on the machine's description; "
            "the range behind it is the one that the simulator itself gives."
        )
    if any(row.get("source") == "recorded" for row in timed):
        sentences.append("Recorded times were read from a recording, not taken again.")
    if any(is_failure(row) and not is_stop(row) for row in rows):
        sentences.append("A schedule that failed is listed with its reason; none was left out.")
    return " ".join(map(markdown_text, sentences)) or "Nothing was run."


def _running(protocol: Any) -> list[str]:
    """What the protocol says was repeated, as far as it says."""
    headline = (
        "A time is the slowest rank's median; the range behind it holds the middle 80 % of that rank's samples, "
        "the skew is what the fastest rank's median was less."
    )
    if not isinstance(protocol, Mapping) or not {"warmups", "repeats"} <= set(protocol):
        return [f"Protocol: {value_text('protocol', protocol)}.", headline] if protocol else [headline]
    warmups, repeats = protocol["warmups"], protocol["repeats"]
    return [
        f"Every schedule ran {warmups} times to warm up, unrecorded, and then {repeats} times on the clock.",
        headline,
    ]


def _by(timed: Sequence[Row]) -> str:
    """The predictors' names and versions, as far as the rows say."""
    names = sorted({str(row["predictor"]) for row in timed if row.get("predictor")})
    return f" ({', '.join(names)})" if names else ""


def _hardware(ran: Sequence[Row]) -> list[str]:
    """What the ranks ran on, as far as it was written down."""
    models = dict.fromkeys(str(Hardware.from_json(row["hardware"])) for row in ran if row.get("hardware"))
    return [f"The ranks ran on {'; or on '.join(models)}."] if models else []


def _checking(ran: Sequence[Row]) -> list[str]:
    """How many results were compared with the reference, and the largest difference."""
    ran, _ = parts_of(ran)  # a part alone computes no result that could be compared
    if not ran:
        return []
    right = sum(row.get("correct") is True for row in ran)
    errors = [row["max_relative_error"] for row in ran if row.get("max_relative_error") is not None]
    largest = f" (largest relative error {max(errors):.2g})" if errors else ""
    return [
        "Before the clock started, every result was compared with a slow reference on the same operands.",
        f"{right} of {len(ran)} were found correct{largest}; a wrong result is a failure, never a time.",
    ]
