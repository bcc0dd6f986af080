"""What the triton backend cannot run, in words alone: whoever offers a choice asks here, without torch or Triton."""

from __future__ import annotations

from kernels.axes import tile
from kernels.backends.triton.tiles import check
from kernels.operators import OPERATORS
from kernels.schedule import Refusal
from kernels.trial import Trial

LINK = "nvlink"
DTYPES = {
    "gemm": ("bfloat16", "float16"),
    "gemv": ("bfloat16", "float16"),
    "gather": ("float32", "bfloat16", "float16"),
}
SCHEMES = ("sequential", "fused")
"""Those that are compared; of decomposed, torch's own operators are one schedule (overlapped.py)."""
OVERLAPPED = ("all_gather_gemm", "gemm_reduce_scatter")
OVERLAPPED_AXES = {
    "pieces": 1, "split": "rows", "steps": "uniform", "grouping": "unfused", "pattern": "ring", "engine": "copy_engine",
}  # fmt: skip
"""The one decomposed schedule that torch's own overlapped operators are (overlapped.py)."""
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
    if trial.schedule.scheme not in (*SCHEMES, "decomposed"):
        return (
            f"scheme = {trial.schedule.scheme} does not run on backend = triton, which has kernels for "
            f"{len(SCHEMES)} schemes. Accepted: {', '.join(SCHEMES)}."
        )
    if not shares_heap and trial.world > 1:
        return (
            f"{trial.schedule.scheme} does not run on GPUs of several hosts, which share 0 bytes of memory. "
            "Accepted: a world that fits one host."
        )
    if trial.schedule.scheme == "decomposed":
        return _overlapped_refusal(trial)
    if trial.schedule.scheme == "fused":
        return _fused_refusal(trial)
    return _tile_refusal(trial) if operator.work == "gather" else None  # which no library computes


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


def _overlapped_refusal(trial: Trial) -> str | None:
    """Why a decomposed *trial* is not what torch's operators do, or None."""
    operator = trial.problem.operator
    if operator not in OVERLAPPED:
        return (
            f"scheme = decomposed does not run {operator} on backend = triton. There it is one of torch's own "
            f"overlapped operators, and torch has {len(OVERLAPPED)}. Accepted: {', '.join(OVERLAPPED)}; or scheme = "
            "fused."
        )
    for name, needed in OVERLAPPED_AXES.items():
        if trial.schedule[name] != needed:
            return (
                f"{name} = {trial.schedule[name]} does not run on backend = triton. There scheme = decomposed is "
                f"torch's own {operator}, which has 1 schedule. Accepted: "
                f"{', '.join(f'{axis} = {value}' for axis, value in OVERLAPPED_AXES.items())}."
            )
    if trial.world == 1:
        return "world = 1 is too small: torch's overlapped operators need peers, and 1 < 2. Accepted: 2 or more."
    if trial.part != "whole":
        return (
            f"part = {trial.part} does not exist for scheme = decomposed on backend = triton: 1 call of torch "
            "computes and sends. Accepted: whole; or scheme = sequential."
        )
    return None
