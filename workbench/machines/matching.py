"""The machine of the ranks at hand: the one whose description fits them, or one that is made from what they tell."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from cluster import hosts as specification
from cluster.hosts import Specification, cpu_model, local_ranks, visible_gpus
from cluster.seating import Workers
from kernels import files
from kernels.hardware import NVLINK, PCIE, Hardware
from kernels.machine import Device, Machine, toml
from kernels.schedule import Refusal
from workbench import machines
from workbench.machines import TOLD

# Whether a machine's description may be of the ranks at hand: model, memory and link, as drivers tell them.

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
class GpuModel:
    """What the name of a GPU says."""

    chip: str
    """Such as H100, MI300X or GEFORCE RTX 4090."""
    form: str = ""
    """sxm, pcie or nvl; empty where the name does not tell."""
    memory_bytes: float | None = None
    """As far as the name tells."""


def model(name: str) -> GpuModel:
    """*name* of a GPU taken apart, by a driver or in a machine's file: `NVIDIA A100-SXM4-80GB`, `NVIDIA H100 SXM`."""
    text = name.upper()
    sizes = re.findall(r"\b(\d+)\s?GB\b", text)
    words = re.findall(r"[A-Z0-9]+", re.sub(r"\b\d+\s?GB\b", " ", text))
    form = next((FORMS[word] for word in words if word in FORMS), "")
    if not form and MEMORY_OF_SXM & set(words):
        form = "sxm"
    known = VENDORS | WITHOUT_MEANING | MEMORY_OF_SXM | set(FORMS)
    chip = " ".join(word for word in words if word not in known)
    return GpuModel(chip, form or PLAIN.get(chip, ""), float(sizes[0]) * 1e9 if sizes else None)


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


def fitting_refusal(machine: Machine, ranks: Hardware, processor: str | None, fits: Machine | None) -> str | None:
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


# A machine that no file describes, made from what its workers tell; what they do not tell is assumed, and says so.

FLOP_PER_CLOCK = {(8, 0): (2048, 128), (8, 6): (1024, 256), (8, 9): (1024, 256), (9, 0): (4096, 256),
                  (10, 0): (8192, 256)}  # fmt: skip
"""Dense FLOP of one SM per clock by compute capability: half precision on tensor cores, and float32 without them.
NVIDIA's whitepapers of A100, GA102, Ada and H100; of 10.0 as twice 9.0."""
USUAL_CAPABILITY = (8, 0)
"""Whose numbers stand in where the capability is none of these: the fewest FLOP per clock in float32."""
USUAL_CLOCK_HZ = 1.5e9
NVLINK_BYTES_PER_SECOND = {10: 5e10}
"""One link and direction by the first number of the capability; of all before 25 GB/s (NVLink 2 to 4)."""
USUAL_NVLINK = 2.5e10
PCIE_LANE_BYTES_PER_SECOND = {3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
"""One lane and direction by generation, after coding (PCI-SIG)."""
USUAL_PCIE = (4, 16)
OF_LINK = {NVLINK: "h100_nvl8"}
USUAL_COSTS = "a40_pcie4"
"""The machines whose fixed costs are assumed, by link."""


def derived_machine_of_gpus(ranks: Hardware, count: int, gpu: Specification, costs_of: Machine) -> Machine:
    """The machine of *count* GPUs of one host. Its fixed costs are those of *costs_of*."""
    like = f"assumed: as of {costs_of.name}"
    device, sources = _device(ranks, gpu, costs_of)
    link, how = _link(ranks, gpu)
    name = gpu_name(ranks, count)
    reason = f"{TOLD} ({ranks})"
    provenance = {
        "device": reason, **sources, "costs": like, "dimension.0": like, "dimension.0.link": reason,
        "dimension.0.count": "assumed: as many as a host of the cluster has",
        "dimension.0.topology": "assumed: each reaches each at full speed",
        "dimension.0.bandwidth_bytes_per_second": f"assumed: {how}",
    }  # fmt: skip
    dimension = replace(costs_of.dimensions[0], count=count, topology="switch", link=_kind(ranks),
                        bandwidth_bytes_per_second=link)  # fmt: skip
    return Machine(
        name=name, title=f"{count} x {ranks.model}, {_kind(ranks)} (assumed from what its workers tell)",
        backend="triton", device=device, costs=costs_of.costs, dimensions=(dimension,), provenance=provenance,
    )  # fmt: skip


def of_processor(ranks: Hardware, count: int, plain: Machine) -> Machine:
    """The machine of CPU ranks on the processors of another computer: *plain*, which is of any, under its own name."""
    device = replace(plain.device, name=f"{ONE_THREAD}{ranks.model}")
    first = plain.dimensions[0]
    return replace(
        plain, name=processor_name(ranks), title=f"CPU ranks on {ranks.model}", device=device, digest="",
        dimensions=(replace(first, count=max(first.count, count)), *plain.dimensions[1:]),
        provenance={**plain.provenance, "device.name": f"{TOLD} ({ranks})"},
    )  # fmt: skip


def costs_like(ranks: Hardware) -> str:
    """The name of the machine whose fixed costs are assumed of GPUs that are linked like *ranks*."""
    return OF_LINK.get(_kind(ranks), USUAL_COSTS)


def gpu_name(ranks: Hardware, count: int) -> str:
    """Such as l40s_pcie4 and b200_nvl8."""
    short = _short(re.sub(r"^(nvidia|amd|tesla)\s+", "", ranks.model, flags=re.IGNORECASE))
    link = "nvl" if _kind(ranks) == NVLINK else "pcie"
    return f"{short}{'' if short.endswith(f'_{link}') else f'_{link}'}{count}"


def processor_name(ranks: Hardware) -> str:
    """Such as amd_epyc_9654_cpu."""
    plain = re.sub(r"\((r|tm)\)|\bcpu\b|\bprocessor\b|\d+-core|@.*", " ", ranks.model, flags=re.IGNORECASE)
    return f"{_short(plain)}_cpu"


def _short(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_") or "unknown"


def _kind(ranks: Hardware) -> str:
    """Where nobody tells, boards that are made for NVLink have it; others reach each other over PCI Express."""
    if ranks.link in (NVLINK, PCIE):
        return ranks.link
    return NVLINK if model(ranks.model).form == "sxm" else PCIE


def _device(ranks: Hardware, gpu: Specification, like: Machine) -> tuple[Device, dict[str, str]]:
    """The device, and where each value is from that is not simply told."""
    usual = like.device
    sources = {f"device.{key}": f"assumed: as of {like.name}" for key in ("copy_engines", "resident_blocks", "limits")}
    given = {
        "slots": gpu.slots, "memory_bytes": ranks.memory_bytes or gpu.memory_bytes, "l2_bytes": gpu.l2_bytes,
        "shared_memory_per_slot_bytes": gpu.shared_memory_per_slot_bytes,
        "memory_bytes_per_second": gpu.memory_bytes_per_second,
    }  # fmt: skip
    sources |= {f"device.{key}": f"assumed: not told; as of {like.name}" for key, value in given.items() if not value}
    known: dict[str, Any] = {key: value or getattr(usual, key) for key, value in given.items()}
    if gpu.memory_bytes_per_second:
        sources["device.memory_bytes_per_second"] = "assumed: twice the memory's clock times its width, as torch tells"
    capability = gpu.capability if gpu.capability in FLOP_PER_CLOCK else USUAL_CAPABILITY
    clock = gpu.clock_hz or USUAL_CLOCK_HZ
    half, single = (each * clock * known["slots"] for each in FLOP_PER_CLOCK[capability])
    as_of = ".".join(map(str, capability))
    told_clock = "the clock that torch tells" if gpu.clock_hz else "no clock was told; at"
    sources["device.matrix_flops_per_second"] = (
        f"assumed: {known['slots']} SMs x {FLOP_PER_CLOCK[capability][0]} FLOP of compute capability {as_of} x "
        f"{told_clock} {clock / 1e9:.3g} GHz"
    )
    device = Device(
        kind="gpu", name=ranks.model, copy_engines=usual.copy_engines, resident_blocks=usual.resident_blocks,
        limits=_limits(usual, int(known["shared_memory_per_slot_bytes"])),
        matrix_flops_per_second={"bfloat16": half, "float16": half, "float32": single}, **known,
    )  # fmt: skip
    return device, sources


def _limits(usual: Device, shared_bytes: int) -> dict[str, float]:
    """Those of *usual*, but for what follows from an SM's *shared_bytes*: a block may have all that is not reserved."""
    limits = dict(usual.limits)
    if shared_bytes != usual.shared_memory_per_slot_bytes and limits:
        limits["shared_memory_per_block_bytes"] = shared_bytes - limits.get("reserved_bytes_per_block", 0)
    return limits


def _link(ranks: Hardware, gpu: Specification) -> tuple[float, str]:
    """Bytes per second of one direction, and why."""
    if _kind(ranks) == NVLINK and gpu.nvlinks:
        major = (gpu.capability or USUAL_CAPABILITY)[0]
        each = NVLINK_BYTES_PER_SECOND.get(major, USUAL_NVLINK)
        return gpu.nvlinks * each, f"{gpu.nvlinks} NVLinks are up, at {each / 1e9:g} GB/s each way"
    if _kind(ranks) == NVLINK:
        return 12 * USUAL_NVLINK, "nobody told how many NVLinks are up; as 12 of 25 GB/s each way"
    generation, lanes = gpu.pcie or USUAL_PCIE
    lane = PCIE_LANE_BYTES_PER_SECOND.get(generation, PCIE_LANE_BYTES_PER_SECOND[USUAL_PCIE[0]])
    said = "as the driver tells" if gpu.pcie else "nobody told"
    return lanes * lane, f"{lanes} lanes of PCI Express {generation}, {said}; all GPUs under one switch"


# The machine of the ranks at hand: the one whose description fits them, or one that is made from what they tell.

if TYPE_CHECKING:
    from cluster.client import Cluster


@dataclass(frozen=True, slots=True)
class RankSite:
    """Where ranks of one backend would run."""

    hardware: Hardware
    count: int = 1
    """GPUs of a host; of CPU ranks 1: however many they are, their machine is the same."""
    gpu: Callable[[], Specification] = lambda: specification.local_specification()
    """What one of the GPUs is like; it is asked only where no machine fits."""

    @property
    def on_cpus(self) -> bool:
        return self.hardware.cores is not None


def here(backend: str) -> RankSite | None:
    """This host; None where it has nothing for *backend*."""
    count = 1 if backend == "cpu" else len(visible_gpus())
    ranks = local_ranks(count, backend) if count else None
    return None if ranks is None else RankSite(ranks.hardware, count)


def of(cluster: Cluster, backend: str) -> RankSite | None:
    """Where a *cluster* has its ranks; None while they do not tell, or where none is of *backend*."""
    one = cluster.ranks(1, backend)
    if one is None or backend == "cpu":
        return None if one is None else RankSite(one.hardware)
    described = cluster.describe()["workers"]
    seats = [worker for worker in described if worker.get("backend") == backend]
    hosts = [worker["host"] for worker in seats]
    count = max(map(hosts.count, hosts))
    ranks = Workers.from_description({"workers": seats}).ranks(count, backend) or one
    place = partial(specification.worker_specification, cluster.client, seats[0]["address"])
    return RankSite(ranks.hardware, count, place)


def of_gpus() -> Machine:
    """The machine that this host's GPUs make; Refusal where it has none, to state one."""
    place = here("triton")
    if place is not None:
        return settled(place)
    offered = [known.name for known in machines.readable() if known.backend == "triton"]
    raise Refusal(
        f"backend = triton needs a machine, and none describes this host's {len(visible_gpus())} GPUs. Accepted: "
        f"--machine with one of {', '.join(offered)}."
    )


def fits(place: RankSite) -> Machine | None:
    """The machine whose description fits *place*, or None."""
    return fitting(machines.readable(), place.hardware, place.count, cpu_model())


def machine_of(place: RankSite) -> Machine:
    """The machine that fits *place*, or one made of what its ranks tell; Refusal where they are of two kinds."""
    known = fits(place)
    if known is not None:
        return known
    if place.on_cpus:
        plain = machines.shipped_machine(machines.LAPTOP)
        return of_processor(place.hardware, place.count, plain)
    if " and " in place.hardware.model:
        raise Refusal(
            f"These ranks have GPUs of several kinds: {place.hardware.model}. A machine has 1 kind. "
            "Accepted: workers whose GPUs are of 1 kind."
        )
    costs_of = machines.shipped_machine(costs_like(place.hardware))
    return derived_machine_of_gpus(place.hardware, place.count, place.gpu(), costs_of)


def settled(place: RankSite) -> Machine:
    """The same, and a made one is written beside the runs: it has a name and a file like any other from then on."""
    machine = machine_of(place)
    if machine.name not in machines.names():
        path = machines.calibrated_path(machine.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write(path, toml(machine))
    return machines.machine(machine.name)


def refusal(machine: Machine, ranks: Hardware, count: int) -> str | None:
    """Why times of *ranks* are not to be stored as those of *machine*, or None; names the one that fits *count*."""
    processor = cpu_model()
    if misfit(machine, ranks, processor) is None:
        return None
    return fitting_refusal(machine, ranks, processor, fits(RankSite(ranks, 1 if ranks.cores is not None else count)))
