"""Whether a machine's description may be of the ranks at hand: model, memory and link, as drivers tell them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from kernels.hardware import NVLINK, PCIE, Hardware
from kernels.machine import Machine

MEMORY_APART = 0.12
"""A driver counts up to 7 % more memory than a data sheet; variants of one model differ by a sixth at least."""
VENDORS = {"NVIDIA", "AMD", "INSTINCT", "TESLA", "CORPORATION"}
WITHOUT_MEANING = {"OAM", "VF", "ONE", "GCD", "GENERATION"}
FORMS = {"SXM": "sxm", "SXM2": "sxm", "SXM3": "sxm", "SXM4": "sxm", "SXM5": "sxm", "PCIE": "pcie", "NVL": "nvl"}
"""How a board is built, as its name says it."""
PLAIN = {"H20": "sxm", "H200": "sxm", "B200": "sxm", "B300": "sxm"}
"""Models whose name says no form where it is SXM: their other boards are called PCIe or NVL."""
MEMORY_OF_SXM = {"HBM3", "HBM3E"}
"""Words that the drivers put behind an SXM board of H100 and H800 instead of its form."""
ONE_THREAD = "one thread of "
"""How the name of a CPU rank's device begins; the processor follows."""


@dataclass(frozen=True, slots=True)
class Model:
    """What the name of a GPU says."""

    chip: str
    """Such as H100, MI300X or GEFORCE RTX 4090."""
    form: str = ""
    """sxm, pcie or nvl; empty where the name does not tell."""
    memory_bytes: float | None = None
    """As far as the name tells."""


def model(name: str) -> Model:
    """*name* of a GPU taken apart, by a driver or in a machine's file: `NVIDIA A100-SXM4-80GB`, `NVIDIA H100 SXM`."""
    text = name.upper()
    sizes = re.findall(r"\b(\d+)\s?GB\b", text)
    words = re.findall(r"[A-Z0-9]+", re.sub(r"\b\d+\s?GB\b", " ", text))
    form = next((FORMS[word] for word in words if word in FORMS), "")
    if not form and MEMORY_OF_SXM & set(words):
        form = "sxm"
    known = VENDORS | WITHOUT_MEANING | MEMORY_OF_SXM | set(FORMS)
    chip = " ".join(word for word in words if word not in known)
    return Model(chip, form or PLAIN.get(chip, ""), float(sizes[0]) * 1e9 if sizes else None)


def misfit(machine: Machine, ranks: Hardware, processor: str | None) -> str | None:
    """What *machine* says that is not so of *ranks*, as words; None where nothing is known to differ.

    *processor* is this computer's: a machine of CPU ranks that names none is of this computer.
    """
    on_cpus = ranks.cores is not None
    if (machine.backend == "cpu") != on_cpus:
        return f"Its ranks are {machine.device.kind.upper()} ranks, but theirs are of {ranks.model}"
    if on_cpus:
        return _of_processor(machine, ranks, processor)
    return _of_model(machine, ranks) or _of_memory(machine, ranks) or _of_link(machine, ranks)


def refusal(machine: Machine, ranks: Hardware, processor: str | None, fits: Machine | None) -> str | None:
    """Why times of *ranks* are not to be stored as those of *machine*, or None; *fits* is the one that is accepted."""
    sentence = misfit(machine, ranks, processor)
    if sentence is None:
        return None
    accepted = (
        f"--machine {fits.name}, or none" if fits is not None else "no --machine: one is made from what they tell"
    )
    return f"Machine {machine.name} is not what these ranks are. {sentence}. Accepted: {accepted}."


def fitting(machines: Iterable[Machine], ranks: Hardware, count: int, processor: str | None) -> Machine | None:
    """Of *machines* the one that *ranks* may be, *count* of which are on a host; None where there is none.

    Of those that have enough ranks, the one with the fewest; a calibrated one before others.
    """
    able = [one for one in machines if one.ranks_per_host >= count and misfit(one, ranks, processor) is None]
    return min(able, key=lambda one: (one.max_world, one.calibrated is None, one.name), default=None)


def _of_model(machine: Machine, ranks: Hardware) -> str | None:
    said, theirs = model(machine.device.name), model(ranks.model)
    forms = said.form and theirs.form and said.form != theirs.form
    if said.chip == theirs.chip and not forms:
        return None
    return f"Its GPU is {machine.device.name}, but theirs is {ranks.model}"


def _of_memory(machine: Machine, ranks: Hardware) -> str | None:
    named = model(ranks.model).memory_bytes
    theirs = ranks.memory_bytes if ranks.memory_bytes is not None else named
    said = machine.device.memory_bytes
    if theirs is None or abs(theirs / said - 1) <= MEMORY_APART:
        return None
    return f"Its GPU has {said / 1e9:.0f} GB of memory, but theirs ({ranks.model}) has {theirs / 1e9:.0f} GB"


def _of_link(machine: Machine, ranks: Hardware) -> str | None:
    said = machine.dimensions[0].link
    if not said or ranks.link not in (NVLINK, PCIE) or said == ranks.link:
        return None
    return f"Its GPUs are linked by {said}, but theirs ({ranks.model}) by {ranks.link}"


def _of_processor(machine: Machine, ranks: Hardware, processor: str | None) -> str | None:
    name = machine.device.name
    said = processor if name == f"{ONE_THREAD}this CPU" else name.removeprefix(ONE_THREAD)
    if not name.startswith(ONE_THREAD) or said is None or said in ranks.models:
        return None
    return f"Its ranks are threads of {said}, but theirs are of {ranks.model}"
