"""What the cpu backend cannot run, in words alone: whoever offers a choice asks here, without torch."""

from __future__ import annotations

from kernels.machine import BACKENDS
from kernels.schemes import needs_peer_memory
from kernels.trial import Trial

DTYPES = ("float32", "bfloat16")


def refusal(trial: Trial, shares_heap: bool) -> str | None:
    """Why this backend cannot run *trial*, or None."""
    if trial.problem.dtype not in DTYPES:
        return (
            f"dtype = {trial.problem.dtype} does not run on backend = cpu. Its kernels know {len(DTYPES)} dtypes. "
            f"Accepted: {', '.join(DTYPES)}."
        )
    if trial.fabric.kind not in BACKENDS["cpu"]:
        return (
            f"fabric = {trial.fabric.kind} does not exist on backend = cpu: CPU ranks have no such link. Accepted: "
            f"{', '.join(BACKENDS['cpu'])}."
        )
    if not shares_heap and needs_peer_memory(trial.schedule):
        return (
            f"{trial.schedule} does not run across hosts. It stores into its peers' memory, and hosts share 0 "
            "bytes of it. Accepted: sequential with collective = library, or decomposed with engine = library."
        )
    return None
