"""Checks of two clients at once: they take turns with all ranks, and gangs of one rank do not wait for each other."""

from __future__ import annotations

from tests.release.commands import Answer, require
from tests.release.measuring import SWEEP_S, accounted
from tests.release.questions import SpaceFile
from tests.release.site import Figures, Site
from tests.release.summary import NO_GPU
from workbench.results.store import Store


def two_clients(site: Site) -> Figures:
    """Two sweeps of all ranks at once take turns, and both come to their end."""
    answers = _both(site, "client", site.questions.sweep, site.world)
    return {"command_s": [answer.seconds for answer in answers]}


def two_gangs(site: Site) -> Figures:
    """Two gangs of one rank are timed at the same moment, on GPUs each on its own."""
    answers = _both(site, "gang", site.questions.alone, 1)
    blocks, gpus = zip(*(_timed(site, f"gang-{number}") for number in range(2)), strict=True)
    overlap_s = sum(max(0.0, min(a[1], b[1]) - max(a[0], b[0])) for a in blocks[0] for b in blocks[1])
    require(overlap_s > 0, "No block of one gang was timed while one of the other was.")
    figures = {"command_s": [answer.seconds for answer in answers], "both_timed_s": overlap_s}
    if not site.on_gpus:
        return figures | {"gpus": NO_GPU}
    require([len(each) for each in gpus] == [1, 1], f"The gangs were timed on {len(gpus[0])} and {len(gpus[1])} GPUs.")
    require(gpus[0] != gpus[1], "Both gangs were timed on the same GPU.")
    return figures | {"gpus": len(gpus[0] | gpus[1])}


def _both(site: Site, name: str, space: SpaceFile, world: int) -> list[Answer]:
    """What two clients came to that sweep *space* at once, each with a store of its own."""
    path = str(site.space(name, space, world))
    began = [site.commands.begin("sweep", path, "--json", "--store", str(site.store(f"{name}-{number}")))
             for number in range(2)]  # fmt: skip
    answers = [each.end(site.commands.left_s(SWEEP_S)) for each in began]
    for answer in answers:
        require(answer.status == 0, str(answer))
        count = accounted(answer, space.count)["measurement"]
        require(count == space.count, f"{count} of {space.count} schedules have a time.")
    return answers


def _timed(site: Site, name: str) -> tuple[list[tuple[float, float]], set[str]]:
    """When the first and the last sample of each block of a store came, and the GPUs that they were timed on."""
    by_block: dict[str, list[float]] = {}
    with Store(site.store(name)) as store:
        for sample in store.samples_since(0)[0]:
            by_block.setdefault(sample["block"], []).append(sample["at"])
        recorded = store.recorded(store.run("last")["id"])
    gpus = {told["gpu"] for measured, _ in recorded for told in measured.conditions if "gpu" in told}
    return [(min(moments), max(moments)) for moments in by_block.values()], gpus
