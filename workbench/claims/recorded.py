"""What GPU recordings say of a published number: gains of each recorded problem, over both baselines of its block."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import mean
from typing import Any

from kernels.operators import OPERATORS
from kernels.outcome import BLOCK_KIND, CHOOSING, row
from workbench import metrics, recordings
from workbench.answer import Recorded
from workbench.claims.answers import Ours
from workbench.compared import leading
from workbench.naming import baseline_title
from workbench.one_problem import by_problem
from workbench.published import Published

Row = Mapping[str, Any]
Cases = Sequence[Mapping[str, Any]]
GPU = "triton"
PERCENT = 100.0
AGGREGATES: Mapping[str, Callable[[Iterable[float]], float]] = {"mean": mean, "max": max, "min": min}
"""A mean of theirs stands beside a mean of ours, and a maximum beside a maximum."""


def gpu_rows() -> dict[str, list[Row]]:
    """The joined rows of GPU recordings with many calls in a graph, by recording; what only chose baselines is out."""
    return {name: rows for name, entries in recordings.shipped().items() if (rows := _rows(name, entries))}


def _rows(name: str, entries: Sequence[Recorded]) -> list[Row]:
    """Of problems whose baselines were all tried first: a gain over one that nobody chose is none."""
    kinds = {entry.measurement.facts.get(BLOCK_KIND) for entry in entries}
    chosen = {entry.measurement.trial.problem for entry in entries
              if kinds == {None} or entry.measurement.facts.get(BLOCK_KIND) == CHOOSING}  # fmt: skip
    kept = [entry for entry in entries if entry.measurement.trial.backend == GPU
            and not entry.measurement.trial.is_one_call and entry.measurement.trial.problem in chosen
            and entry.measurement.facts.get(BLOCK_KIND) != CHOOSING]  # fmt: skip
    rows = metrics.fill([row(entry.measurement) for entry in kept])
    known = [{"recording": name, "date": entry.provenance.get("date")} for entry in kept]
    return [{**one, **where} for one, where in zip(rows, known, strict=True)]


def cases(book: Mapping[str, Sequence[Row]], operator: str, scheme: str) -> list[dict[str, Any]]:
    """One case for each recorded problem of *operator* that *scheme* was timed for: of its newest recording alone."""
    newest: dict[Any, list[Row]] = {}
    for rows in sorted(book.values(), key=lambda rows: str(rows[0]["date"])):
        newest.update(by_problem(each for each in rows if each["operator"] == operator))
    return [case for rows in newest.values() if (case := _case(rows, scheme)) is not None]


def _case(rows: Sequence[Row], scheme: str) -> dict[str, Any] | None:
    """The best schedule of *scheme*, and what it was timed beside; None where it, or a baseline, was not timed."""
    overlapping = [each for each in leading(rows) if each["scheme"] == scheme and each["sequential_s"]]
    if not overlapping:
        return None
    best = overlapping[0]
    plain = min((each for each in rows if each["block"] == best["block"] and each["time_s"] == best["sequential_s"]),
                key=lambda each: str(each["axes"]))  # fmt: skip
    library_s = best["library_s"]
    return {
        **{key: best[key] for key in ("operator", "shape", "dtype", "world", "machine", "recording", "date", "time_s")},
        "schedule": {"scheme": best["scheme"], **best["axes"]}, "best_baseline": baseline_title(plain["axes"]),
        "best_baseline_s": best["sequential_s"], "library_s": library_s, "compute_s": best["compute_s"],
        "comm_s": best["comm_s"], "reduction": 1 - best["time_s"] / best["sequential_s"],
        "library_reduction": 1 - best["time_s"] / library_s if library_s else None,
    }  # fmt: skip


def within_a_node(reported: Published, book: Mapping[str, Sequence[Row]]) -> Ours:
    """What a scheme saved, of the machine that was recorded last; other machines are told beside it."""
    names = [reported.operator] if reported.operator else list(OPERATORS)
    known = [case for name in names for case in cases(book, name, reported.scheme)]
    if not known:
        return Ours(value=None, why=f"No recording of a GPU has {reported.operator or 'an operator'} by "
                                    f"{reported.scheme} yet.")  # fmt: skip
    last = max(known, key=lambda case: (str(case["date"]), case["world"]))["machine"]
    here = [case for case in known if case["machine"] == last]
    saved = [PERCENT * case["reduction"] for case in here]
    beside_library = [PERCENT * case["library_reduction"] for case in here if case["library_reduction"] is not None]
    aggregate = AGGREGATES[reported.aggregate]
    names = sorted({str(case["recording"]) for case in here})
    sentences = [
        f"{len(here)} recorded problems on {last}, each over the fastest baseline of its block.",
        f"Over NCCL: {aggregate(beside_library):.0f} %." if beside_library else "",
        _elsewhere([case for case in known if case["machine"] != last], aggregate),
        "Their shapes and GPUs are others.",
    ]
    return Ours(
        value=aggregate(saved), low=min(saved), high=max(saved), source="recorded", machine=str(last),
        over="the fastest sequential schedule of the same block, NCCL and all other collectives that were timed",
        command="workbench validate --all " + " ".join(f"--recording {name}" for name in names),
        why=" ".join(filter(None, sentences)), cases=here,
    )  # fmt: skip


def _elsewhere(others: Cases, aggregate: Callable[[Iterable[float]], float]) -> str:
    """The same of machines that were recorded before."""
    machines = sorted({str(case["machine"]) for case in others})
    parts = [f"{name} {aggregate([PERCENT * case['reduction'] for case in others if case['machine'] == name]):.0f} %"
             for name in machines]  # fmt: skip
    return f"Recorded earlier: {', '.join(parts)}." if parts else ""
