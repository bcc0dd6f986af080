"""What the triton backend cannot run, in words alone: whoever offers a choice asks here, without torch or Triton."""

from __future__ import annotations

from kernels.axes import tile
from kernels.backends.triton.tiles import check
from kernels.operators import OPERATORS
from kernels.schedule import Refusal
from kernels.schemes.library import OVERLAPPED
from kernels.schemes.reads import KERNEL
from kernels.schemes.sequential import OURS, is_ours
from kernels.trial import Trial

LINK = "nvlink"
DTYPES = {
    "gemm": ("bfloat16", "float16"),
    "gemv": ("bfloat16", "float16"),
    "gather": ("float32", "bfloat16", "float16"),
}
SCHEMES = ("sequential", "fused")
RANKS_MOST = 8
"""Descriptors are arguments of a GEMM's kernel, one per rank."""
BULK_BYTES = 16
"""What rows that the bulk copy engine moves must be multiples of."""


def refusal(trial: Trial, shares_heap: bool) -> str | None:
    """Why GPU ranks cannot run *trial*, or None."""
    operator = OPERATORS[trial.problem.operator]
    accepted = DTYPES[operator.work]
    if trial.problem.dtype not in accepted:
        return (
            f"dtype = {trial.problem.dtype} does not run {trial.problem.operator} on backend = triton. Its kernels "
            f"know {len(accepted)} dtypes. Accepted: {', '.join(accepted)}."
        )
    if trial.fabric.kind != LINK:
        return (
            f"fabric = {trial.fabric.kind} cannot be measured on backend = triton. GPUs store over the 1 link that "
            f"they have; any other is simulated only. Accepted: {LINK}."
        )
    if trial.schedule.scheme not in SCHEMES:
        return (
            f"scheme = {trial.schedule.scheme} does not run on backend = triton, which has kernels for "
            f"{len(SCHEMES)} schemes. Accepted: {', '.join(SCHEMES)}."
        )
    if not shares_heap and trial.world > 1:
        return (
            f"{trial.schedule.scheme} does not run on GPUs of several hosts, which share 0 bytes of memory. "
            "Accepted: a world that fits one host."
        )
    return _fused_refusal(trial) if trial.schedule.scheme == "fused" else _sequential_refusal(trial)


def _sequential_refusal(trial: Trial) -> str | None:
    """Why the computation, or the call that is no computation and collective apart, cannot run; or None."""
    if trial.schedule["collective"] == OVERLAPPED and trial.part != "whole":
        return (
            f"part = {trial.part} does not exist for collective = {OVERLAPPED}: 1 operator of torch computes and "
            "communicates. Accepted: whole; or another collective."
        )
    if trial.part == "communication" or not is_ours(trial.problem, trial.schedule):
        return None
    if OPERATORS[trial.problem.operator].work == "gather":
        return _tile_refusal(trial)
    sentence = _bulk_refusal(trial) if OPERATORS[trial.problem.operator].work == "gemm" else None
    sentence = sentence or _tile_refusal(trial)
    return sentence and f"{KERNEL} = {OURS} cannot be: {sentence} Or {KERNEL} = library."


def _fused_refusal(trial: Trial) -> str | None:
    """Why no kernel can run *trial*, or None."""
    if trial.part == "communication":
        return (
            "part = communication does not exist for scheme = fused on backend = triton: its 1 kernel computes and "
            "sends. Accepted: whole, compute; or scheme = sequential."
        )
    if OPERATORS[trial.problem.operator].work == "gemm":
        if trial.world > RANKS_MOST:
            return (
                f"world = {trial.world} is too large for {trial.problem.operator} on backend = triton. Its kernel "
                f"takes one descriptor per rank: {trial.world} > {RANKS_MOST}. Accepted: world 1..{RANKS_MOST}."
            )
        if (sentence := _bulk_refusal(trial)) is not None:
            return sentence
    return _tile_refusal(trial)


def _tile_refusal(trial: Trial) -> str | None:
    try:
        check(trial.problem, tile(trial.schedule["tile"]))
    except Refusal as refusal:
        return str(refusal)
    return None


def _bulk_refusal(trial: Trial) -> str | None:
    """Why no GEMM kernel can run *trial*, or None: all of them load operands by the bulk copy engine."""
    problem = trial.problem
    for key in ("k", "n"):
        if problem[key] * problem.itemsize % BULK_BYTES:
            step = BULK_BYTES // problem.itemsize
            low = problem[key] // step * step
            near = " or ".join(str(size) for size in (low, low + step) if size)
            return (
                f"{key} = {problem[key]} does not run {problem.operator} on backend = triton. Bulk copies move "
                f"multiples of {BULK_BYTES} bytes, and a row has {problem[key] * problem.itemsize}. Accepted: "
                f"multiples of {step}, such as {near}."
            )
    return None
