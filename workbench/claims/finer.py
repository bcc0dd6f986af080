"""What this workbench says of finer-grain overlap (arXiv:2512.10236): its ideal, its schedules, its loss, its mesh."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from kernels.operators import OPERATORS
from kernels.schemes import BASELINE
from workbench import metrics
from workbench.claims.answers import Ours
from workbench.claims.recorded import Row, cases
from workbench.lesson import Lesson, lesson
from workbench.machines import shipped_machine
from workbench.published import Published
from workbench.simulator.network import collective, of_machine

MESH, SWITCH, WORLD = "mi300x_mesh8", "h200_nvl8", 8
MOVED = ("all_gather", "all_to_all")
"""Of the collectives that the paper cuts, those that add nothing: the ideal is of a transfer."""
PROBLEMS = (
    ("all_gather_gemm", "llama3_70b_attention_8192"), ("all_gather_gemm", "llama3_70b_mlp_8192"),
    ("gemm_reduce_scatter", "llama3_70b_attention_8192"), ("gemm_reduce_scatter", "llama3_70b_mlp_8192"),
    ("all_to_all_gemm", "mixtral_8x7b_experts_8192"), ("gemm_all_to_all", "mixtral_8x7b_experts_8192"),
)  # fmt: skip
"""Operators and presets that are estimated: the paper's sixteen are not known."""
ROWS = (512, 2048, 8192)
"""Tokens of the presets over which the loss of pieces is followed."""
SERIES = (("all_gather_gemm", "llama3_70b_mlp"), ("gemm_reduce_scatter", "llama3_70b_mlp"),
          ("gemm_all_to_all", "mixtral_8x7b_experts"), ("all_to_all_gemm", "deepseek_v3_experts"))  # fmt: skip
SHARD_BYTES = 2**24
"""One rank's contribution in the comparison of mesh and switch."""
NOT_FITTED = "The machine is a datasheet: nothing was fitted to it."


def ideal(reported: Published, book: Mapping[str, Sequence[Row]]) -> Ours:
    """The most that perfect overlap could gain: both parts timed alone, over the longer one."""
    names = [name for name, kind in OPERATORS.items() if kind.work == "gemm" and kind.collective in MOVED]
    known = [case for name in names for case in cases(book, name, "fused") if case["compute_s"] and case["comm_s"]]
    if not known:
        return Ours(value=None, why="No recording of a GPU has a GEMM with its parts alone.")
    shown = [{**case, "ideal": metrics.ideal_speedup(case["compute_s"], case["comm_s"])} for case in known]
    best = max(shown, key=lambda case: case["ideal"])
    names = sorted({str(case["recording"]) for case in shown})
    return Ours(
        value=best["ideal"], low=min(case["ideal"] for case in shown), high=best["ideal"], source="recorded",
        machine=" and ".join(sorted({str(case["machine"]) for case in shown})), over="computation, then communication",
        command="workbench validate --all " + " ".join(f"--recording {name}" for name in names), cases=shown,
        why=f"(compute + wire) / the longer one: parts of {len(shown)} recorded GEMM problems, each timed alone. "
            "No ratio of this form can be above 2x: how near it comes depends on the shapes chosen.",
    )  # fmt: skip


def schedules(reported: Published, book: Mapping[str, Sequence[Row]]) -> Ours:
    """The most that pieces gain over the fastest sequential schedule: recorded on GPUs, else estimated."""
    known = [case for name in OPERATORS for case in cases(book, name, reported.scheme)]
    if known:
        shown = [{**case, "speed_up": 1 / (1 - case["reduction"])} for case in known]
        best = max(shown, key=lambda case: case["speed_up"])
        return Ours(value=best["speed_up"], low=min(case["speed_up"] for case in shown), high=best["speed_up"],
                    source="recorded", machine=str(best["machine"]), over="the fastest sequential one of its block",
                    command=f"workbench validate --all --recording {best['recording']}", cases=shown,
                    why=f"{len(shown)} recorded problems; the best of each, by search.")  # fmt: skip
    estimated = [_estimated(operator, preset, reported.scheme) for operator, preset in PROBLEMS]
    best = max(estimated, key=lambda case: case["speed_up"])
    return Ours(
        value=best["speed_up"], low=min(case["speed_up"] for case in estimated), high=best["speed_up"],
        source="estimated", machine=MESH, over="the fastest sequential schedule, all collectives of ours included",
        command=f"workbench recommend {best['operator']} --preset {best['preset']} --world {WORLD} --machine {MESH}",
        why=f"No recording of a GPU has decomposed schedules. {NOT_FITTED} {len(estimated)} problems of public models; "
            "a search over all axes and no heuristic.",
        cases=estimated,
    )  # fmt: skip


def _estimated(operator: str, preset: str, scheme: str) -> dict[str, Any]:
    case = lesson(operator, preset=preset, machine=MESH, world=WORLD)
    plain = case.fastest(BASELINE, tile="all", collective="all")
    cut = case.fastest(scheme, tile="all", pieces="all", engine=("copy_engine", "sm"))
    return {"operator": operator, "preset": preset, "machine": MESH, "sequential_s": plain.time_s,
            "time_s": cut.time_s, "schedule": str(cut.trial.schedule),
            "speed_up": plain.time_s / cut.time_s}  # fmt: skip


def losses(reported: Published, book: Mapping[str, Sequence[Row]]) -> Ours:
    """Whether pieces lose less the larger the operator is: computation in pieces alone, over the whole alone.

    Estimated of the same pieces for all sizes; what GPUs recorded, of the pieces that are fastest for each, is told.
    """
    shown = [_series(operator, family, reported.scheme) for operator, family in SERIES]
    falls = sum(case["falls"] for case in shown)
    ends_lower = sum(case["decomposition_loss"][-1] < case["decomposition_loss"][0] for case in shown)
    return Ours(
        value=falls / len(shown), source="estimated", machine=SWITCH, over="the whole computation alone",
        command=f"workbench predict {SERIES[0][0]} --preset {SERIES[0][1]}_{ROWS[0]} --machine {SWITCH} --scheme "
                f"{reported.scheme}",
        why=f"The loss of {WORLD} pieces falls at every size from {ROWS[0]} to {ROWS[-1]} tokens in {falls} of "
            f"{len(shown)} series, and from first to last in {ends_lower}: pieces of few rows leave SMs "
            f"idle. {recorded_losses(book, reported.scheme)}The other loss, contention, "
            "is assumed by the simulator and not found by it.",
        cases=shown,
    )  # fmt: skip


def recorded_losses(book: Mapping[str, Sequence[Row]], scheme: str) -> str:
    """What the shorter and the longer half of all recorded computations lose; nothing without a recording."""
    rows = [row for of_one in book.values() for row in of_one if row["scheme"] == scheme and row["decomposition_loss"]]
    known = {row["block"]: (row["whole_s"], row["decomposition_loss"]["compute"]) for row in rows
             if row["decomposition_loss"]["compute"]}  # fmt: skip
    ordered = [loss for _, loss in sorted(known.values())]
    if len(ordered) < 2:
        return ""
    shorter, longer = ordered[: len(ordered) // 2], ordered[len(ordered) // 2 :]
    return (
        f"Recorded on GPUs, each computation in its fastest pieces: the {len(shorter)} shorter ones take "
        f"{median(shorter):.2f} of the whole, the {len(longer)} longer ones {median(longer):.2f} (medians). "
    )


def _series(operator: str, family: str, scheme: str) -> dict[str, Any]:
    by_tokens = [
        _loss(lesson(operator, preset=f"{family}_{rows}", machine=SWITCH, world=WORLD), scheme) for rows in ROWS
    ]
    falls = all(later <= earlier for earlier, later in pairwise(by_tokens))
    return {"operator": operator, "preset": family, "tokens": list(ROWS), "decomposition_loss": by_tokens,
            "falls": falls and by_tokens[-1] < by_tokens[0]}  # fmt: skip


def _loss(case: Lesson, scheme: str) -> float:
    return (case.alone("compute", scheme, pieces=WORLD, split="rows").time_s
            / case.alone("compute", BASELINE).time_s)  # fmt: skip


def mesh(reported: Published) -> Ours:
    """How much slower a ring of shards is than sending to all peers at once: on a mesh, and on a switch."""
    ratio = {name: _ring_over_direct(name) for name in (MESH, SWITCH)}
    return Ours(
        value=ratio[MESH], low=ratio[SWITCH], high=ratio[MESH], source="estimated", machine=MESH,
        over="every peer at once (direct)",
        command=f"workbench predict-collective all_gather --bytes {SHARD_BYTES} --machine {MESH} --world {WORLD}",
        why=f"A ring uses one link of {WORLD - 1} on the mesh: {ratio[MESH]:.1f}x as long. On {SWITCH}, a switch, "
            f"{ratio[SWITCH]:.2f}x: nothing is idle there. Communication alone; beside a GEMM less of it shows. "
            f"{NOT_FITTED}",
        cases=[{"machine": name, "ring_over_direct": value, "bytes": SHARD_BYTES} for name, value in ratio.items()],
    )  # fmt: skip


def _ring_over_direct(name: str) -> float:
    network = of_machine(shipped_machine(name), WORLD)
    ring, direct = (collective(network, "all_gather", SHARD_BYTES, way).seconds for way in ("ring", "direct"))
    return ring / direct
