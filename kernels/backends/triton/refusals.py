"""Why the triton backend cannot run a trial. Forms and command lines ask here, without torch or Triton."""

from __future__ import annotations

from kernels.backends.triton import recipes
from kernels.fabric import SHARED_GPU
from kernels.occupancy import BULK, has_bulk_copies, too_old
from kernels.operators import OPERATORS
from kernels.plan import Plan
from kernels.schemes import axis_rules, fitted_tiles
from kernels.schemes.axis_rules import GIN, TRANSPORT, puts_between_hosts
from kernels.trial import Trial

LINKS = ("nvlink", SHARED_GPU, "network")
LIBRARY = {"collective": "library", "engine": "library"}
"""Axes and the value with which NCCL moves everything, between hosts too."""
ONE_GPU_LACKS = {
    ("collective", "copy_engine"): "A copy engine moves bytes between 2 GPUs",
    ("engine", "copy_engine"): "A copy engine moves bytes between 2 GPUs",
    ("collective", "library_tuned"): "NCCL registers memory for it, and takes only 1 rank on each GPU then",
}
"""Values of axes that ranks of one GPU cannot have, and why."""
DTYPES = {
    "gemm": ("bfloat16", "float16"),
    "gemv": ("bfloat16", "float16"),
    "gather": ("float32", "bfloat16", "float16"),
}


def of_gpu(trial: Trial, architecture: int) -> str | None:
    """Why a GPU of *architecture* cannot run *trial*, or None: it may not be what the machine's file says."""
    ours = trial.schedule.get(axis_rules.KERNEL, axis_rules.OURS) == axis_rules.OURS
    if trial.schedule.get("store") == "tma" and not has_bulk_copies(architecture):
        return (
            f"store = tma does not run on this GPU. The bulk copy engine came with sm_{BULK}, and this is "
            f"sm_{architecture}: {architecture} < {BULK}. Accepted: store = registers."
        )
    if fitted_tiles.is_one(trial.problem, trial.schedule) and architecture and ours:
        return fitted_tiles.refusal(trial.problem, trial.schedule, architecture)
    return too_old(architecture, "This host's GPU")


def refusal(trial: Trial, shares_heap: bool) -> str | None:
    """Why GPU ranks cannot run *trial*, or None."""
    accepted = DTYPES[OPERATORS[trial.problem.operator].work]
    if trial.problem.dtype not in accepted:
        return (
            f"dtype = {trial.problem.dtype} does not run {trial.problem.operator} on backend = triton. Its kernels "
            f"know {len(accepted)} dtypes. Accepted: {', '.join(accepted)}."
        )
    if (sharing := int(trial.schedule.get(axis_rules.PER_HOST) or 1)) > 1:
        return (
            f"{axis_rules.PER_HOST} = {sharing} does not run on backend = triton, which runs 1 rank on each host: "
            f"{sharing} > 1. Accepted: {axis_rules.PER_HOST} = 1; hosts of several GPUs are simulated only."
        )
    if trial.fabric.kind not in LINKS:
        return (
            f"fabric = {trial.fabric.kind} cannot be measured on backend = triton. GPUs store over the 1 link that "
            f"they have; any other is simulated only. Accepted: {', '.join(LINKS)}."
        )
    if (reason := _of_transport(trial)) is not None:
        return reason
    if (reason := _needs_two_gpus(trial)) is not None:
        return reason
    recipe = recipes.of(trial.problem, trial.schedule)
    if recipe is None:
        schemes = recipes.schemes(trial.problem)
        return (
            f"scheme = {trial.schedule.scheme} does not run on backend = triton, which has kernels for "
            f"{len(schemes)} schemes. Accepted: {', '.join(schemes)}."
        )
    if not shares_heap and trial.world > 1 and not trial.fabric.across:
        return (
            f"fabric = {trial.fabric.kind} does not link GPUs of several hosts, which share 0 bytes of memory. "
            "Accepted: fabric = network, or a world that fits one host."
        )
    return recipe.refusal(trial)


def _of_transport(trial: Trial) -> str | None:
    """Why *trial* cannot reach its peers on its fabric, or None: stores end at the host, and puts are for several."""
    puts = puts_between_hosts(trial.schedule)
    if puts and not trial.fabric.across:
        return (
            f"{TRANSPORT} = {GIN} is measured between hosts only, and fabric = {trial.fabric.kind} links ranks of 1 "
            f"host. Accepted: fabric = network, or {TRANSPORT} = peer."
        )
    by_library = any(trial.schedule.get(axis) == value for axis, value in LIBRARY.items())
    if trial.fabric.across and not puts and not by_library:
        return (
            f"scheme = {trial.schedule.scheme} does not reach other hosts here: it stores into its peers' memory, and "
            f"reaches 0 of {trial.world - 1} peers. Accepted: fused with {TRANSPORT} = {GIN}, sequential with "
            "collective = library, or decomposed with engine = library."
        )
    return None


def _needs_two_gpus(trial: Trial) -> str | None:
    """Why ranks that share a GPU cannot run *trial*, or None."""
    for (axis, value), why in ONE_GPU_LACKS.items() if trial.fabric.shares_gpu else ():
        if trial.schedule.get(axis) == value:
            return (
                f"{axis} = {value} does not run where ranks share a GPU. {why}, and {trial.world} ranks are on 1. "
                f"Accepted: another {axis}, or ranks with a GPU each."
            )
    return None


def unseen(trial: Trial, plan: Plan) -> str | None:
    """Why *trial*, which expands into *plan*, has no timeline; None where it has one.

    Stamps of streams are laid on each other by a moment that both know; on a shared GPU a slice may end in between.
    """
    if puts_between_hosts(trial.schedule):
        return (
            f"No timeline of {trial.schedule}: its kernels write 0 stamps of what the network moves. Accepted: "
            f"{TRANSPORT} = peer."
        )
    if trial.fabric.across:  # its barrier stores into peers' memory
        return (
            f"No timeline of {trial.schedule}: the ranks of a timeline meet in memory that they share, and ranks of "
            "several hosts share 0 bytes. Accepted: ranks of 1 host."
        )
    streams = len(set(plan.launches.stream[plan.launch[plan.steps_of(0)]].tolist()))  # all ranks have as many
    if not trial.fabric.shares_gpu or streams < 2:
        return None
    return (
        f"No timeline of {trial.schedule}: its calls are on {streams} streams, and where ranks share a GPU only 1 "
        "can be followed. Accepted: a schedule of 1 stream, or ranks with a GPU each."
    )
