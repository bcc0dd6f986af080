"""Matching of machines with ranks: the machine whose description fits, or one derived from what the ranks report."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from cluster import hosts
from cluster.hosts import Specification, cpu_model, local_ranks
from cluster.seating import Workers
from kernels import files
from kernels.fabric import Fabric, sharing_mismatch
from kernels.hardware import NVLINK, PCIE, Hardware
from kernels.machine import Device, Machine, toml
from kernels.schedule import Refusal
from workbench import machines
from workbench.machines import FROM_WORKERS

# Fit of a description to ranks: model, memory and link, as drivers report them.

MEMORY_TOLERANCE = 0.12
"""Tolerance: a driver counts up to 7 % more memory than a datasheet; variants of a model differ by at least a sixth."""
VENDORS = {"NVIDIA", "AMD", "INSTINCT", "TESLA", "CORPORATION"}
WITHOUT_MEANING = {"OAM", "VF", "ONE", "GCD", "GENERATION"}
FORMS = {"SXM": "sxm", "SXM2": "sxm", "SXM3": "sxm", "SXM4": "sxm", "SXM5": "sxm", "PCIE": "pcie", "NVL": "nvl"}
"""Form of a board by the word in its name."""
PLAIN = {"H20": "sxm", "H200": "sxm", "B200": "sxm", "B300": "sxm"}
"""Models whose SXM boards have no form in their name: their other boards are called PCIe or NVL."""
MEMORY_OF_SXM = {"HBM3", "HBM3E"}
"""Words in drivers' names of SXM boards of H100 and H800, instead of the form."""
ONE_THREAD = "one thread of "
"""Beginning of the device name of CPU ranks; the processor follows."""


@dataclass(frozen=True, slots=True)
class GpuModel:
    """Chip, form and memory in the name of a GPU."""

    chip: str
    """Such as H100, MI300X or GEFORCE RTX 4090."""
    form: str = ""
    """sxm, pcie or nvl; empty if the name has none."""
    memory_bytes: float | None = None
    """None if the name has no size."""


def gpu_model(name: str) -> GpuModel:
    """The parts of a GPU *name* from a driver or a machine file: `NVIDIA A100-SXM4-80GB`, `NVIDIA H100 SXM`."""
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
    """The first known difference between *machine* and *ranks* as text, or None.

    *processor* is this computer's: a machine of CPU ranks without a processor name is of this computer.
    """
    on_cpus = ranks.cores is not None
    if (machine.backend == "cpu") != on_cpus:
        return f"Its ranks are {machine.device.kind.upper()} ranks, but theirs are of {ranks.model}"
    if on_cpus:
        return _processor_misfit(machine, ranks, processor)
    return _model_misfit(machine, ranks) or _memory_misfit(machine, ranks) or _link_misfit(machine, ranks)


def misfit_message(machine: Machine, ranks: Hardware, processor: str | None, fits: Machine | None) -> str | None:
    """Why times of *ranks* must not be stored as those of *machine*, or None; *fits* is the accepted one."""
    difference = misfit(machine, ranks, processor)
    if difference is None:
        return None
    derived = "none stated, so that one is derived from what they report"
    accepted = f"machine {fits.name}" if fits is not None else derived
    return f"Machine {machine.name} is not what these ranks are. {difference}. Accepted: {accepted}."


def best_fitting(machines: Iterable[Machine], ranks: Hardware, count: int, processor: str | None) -> Machine | None:
    """The machine among *machines* that fits *ranks*, *count* of which are on a host; None if there is none.

    It is the smallest one with enough ranks; calibrated ones are preferred.
    """
    able = [each for each in machines if each.ranks_per_host >= count and misfit(each, ranks, processor) is None]
    return min(able, key=lambda each: (each.max_world, each.calibrated is None, each.name), default=None)


def _model_misfit(machine: Machine, ranks: Hardware) -> str | None:
    described, reported = gpu_model(machine.device.name), gpu_model(ranks.model)
    other_form = described.form and reported.form and described.form != reported.form
    if described.chip == reported.chip and not other_form:
        return None
    return f"Its GPU is {machine.device.name}, but theirs is {ranks.model}"


def _memory_misfit(machine: Machine, ranks: Hardware) -> str | None:
    in_name = gpu_model(ranks.model).memory_bytes
    reported = ranks.memory_bytes if ranks.memory_bytes is not None else in_name
    described = machine.device.memory_bytes
    if reported is None or abs(reported / described - 1) <= MEMORY_TOLERANCE:
        return None
    return f"Its GPU has {described / 1e9:.0f} GB of memory, but theirs ({ranks.model}) has {reported / 1e9:.0f} GB"


def _link_misfit(machine: Machine, ranks: Hardware) -> str | None:
    described = machine.dimensions[0].link
    if not described or ranks.link not in (NVLINK, PCIE) or described == ranks.link:
        return None
    return f"Its GPUs are linked by {described}, but theirs ({ranks.model}) by {ranks.link}"


def _processor_misfit(machine: Machine, ranks: Hardware, processor: str | None) -> str | None:
    name = machine.device.name
    described = processor if name == f"{ONE_THREAD}this CPU" else name.removeprefix(ONE_THREAD)
    if not name.startswith(ONE_THREAD) or described is None or described in ranks.models:
        return None
    return f"Its ranks are threads of {described}, but theirs are of {ranks.model}"


# A machine derived from what its workers report; other values are assumed, and their provenance says so.

FLOP_PER_CLOCK = {(8, 0): (2048, 128), (8, 6): (1024, 256), (8, 9): (1024, 256), (9, 0): (4096, 256),
                  (10, 0): (8192, 256)}  # fmt: skip
"""Dense FLOP of one SM per clock by compute capability: half precision on tensor cores, and float32 without them.

From NVIDIA's whitepapers of A100, GA102, Ada and H100; 10.0 is assumed to have twice the FLOP of 9.0.
"""
USUAL_CAPABILITY = (8, 0)
"""The capability whose numbers replace unknown ones: the fewest FLOP per clock in float32."""
USUAL_CLOCK_HZ = 1.5e9
NVLINK_BYTES_PER_SECOND = {10: 5e10}
"""One link and direction by the first number of the capability; older ones have 25 GB/s (NVLink 2 to 4)."""
USUAL_NVLINK = 2.5e10
PCIE_LANE_BYTES_PER_SECOND = {3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
"""One lane and direction by generation, after coding (PCI-SIG)."""
USUAL_PCIE = (4, 16)
OF_LINK = {NVLINK: "h100_nvl8"}
USUAL_COSTS = "a40_pcie4"
"""With OF_LINK, the machines whose fixed costs are assumed, by link."""


def derived_gpu_machine(ranks: Hardware, count: int, gpu: Specification, costs_of: Machine) -> Machine:
    """A machine of *count* GPUs of one host, with the fixed costs of *costs_of*."""
    like = f"assumed: as of {costs_of.name}"
    device, sources = _device(ranks, gpu, costs_of)
    link, source = _link(ranks, gpu)
    name = gpu_name(ranks, count)
    reason = f"{FROM_WORKERS} ({ranks})"
    provenance = {
        "device": reason, **sources, "costs": like, "dimension.0": like, "dimension.0.link": reason,
        "dimension.0.count": "assumed: as many as a host of the cluster has",
        "dimension.0.topology": "assumed: each reaches each at full speed",
        "dimension.0.bandwidth_bytes_per_second": f"assumed: {source}",
    }  # fmt: skip
    dimension = replace(costs_of.dimensions[0], count=count, topology="switch", link=_link_kind(ranks),
                        bandwidth_bytes_per_second=link)  # fmt: skip
    return Machine(
        name=name, title=f"{count} x {ranks.model}, {_link_kind(ranks)} (assumed from what its workers tell)",
        backend="triton", device=device, costs=costs_of.costs, dimensions=(dimension,), provenance=provenance,
    )  # fmt: skip


def derived_cpu_machine(ranks: Hardware, count: int, plain: Machine) -> Machine:
    """A machine of CPU ranks on another computer's processors: the generic one *plain* under a new name."""
    device = replace(plain.device, name=f"{ONE_THREAD}{ranks.model}")
    first = plain.dimensions[0]
    return replace(
        plain, name=processor_name(ranks), title=f"CPU ranks on {ranks.model}", device=device, digest="",
        dimensions=(replace(first, count=max(first.count, count)), *plain.dimensions[1:]),
        provenance={**plain.provenance, "device.name": f"{FROM_WORKERS} ({ranks})"},
    )  # fmt: skip


def costs_like(ranks: Hardware) -> str:
    """The name of the machine whose fixed costs are assumed for GPUs that are linked like *ranks*."""
    return OF_LINK.get(_link_kind(ranks), USUAL_COSTS)


def gpu_name(ranks: Hardware, count: int) -> str:
    """The name of a derived machine, such as l40s_pcie4 or b200_nvl8."""
    short = _short(re.sub(r"^(nvidia|amd|tesla)\s+", "", ranks.model, flags=re.IGNORECASE))
    link = "nvl" if _link_kind(ranks) == NVLINK else "pcie"
    return f"{short}{'' if short.endswith(f'_{link}') else f'_{link}'}{count}"


def processor_name(ranks: Hardware) -> str:
    """The name of a derived machine of CPU ranks, such as amd_epyc_9654_cpu."""
    plain = re.sub(r"\((r|tm)\)|\bcpu\b|\bprocessor\b|\d+-core|@.*", " ", ranks.model, flags=re.IGNORECASE)
    return f"{_short(plain)}_cpu"


def _short(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_") or "unknown"


def _link_kind(ranks: Hardware) -> str:
    """The reported link; if unknown, NVLink for boards that are made for it, else PCI Express."""
    if ranks.link in (NVLINK, PCIE):
        return ranks.link
    return NVLINK if gpu_model(ranks.model).form == "sxm" else PCIE


def _device(ranks: Hardware, gpu: Specification, like: Machine) -> tuple[Device, dict[str, str]]:
    """The device, and the provenance of its values that workers do not report."""
    usual = like.device
    sources = {f"device.{key}": f"assumed: as of {like.name}" for key in ("copy_engines", "resident_blocks", "limits")}
    reported = {
        "slots": gpu.slots, "memory_bytes": ranks.memory_bytes or gpu.memory_bytes, "l2_bytes": gpu.l2_bytes,
        "shared_memory_per_slot_bytes": gpu.shared_memory_per_slot_bytes,
        "memory_bytes_per_second": gpu.memory_bytes_per_second,
    }  # fmt: skip
    sources |= {
        f"device.{key}": f"assumed: not told; as of {like.name}" for key, value in reported.items() if not value
    }
    known: dict[str, Any] = {key: value or getattr(usual, key) for key, value in reported.items()}
    if gpu.memory_bytes_per_second:
        sources["device.memory_bytes_per_second"] = "assumed: twice the memory's clock times its width, as torch tells"
    capability = gpu.capability if gpu.capability in FLOP_PER_CLOCK else USUAL_CAPABILITY
    clock = gpu.clock_hz or USUAL_CLOCK_HZ
    half, single = (each * clock * known["slots"] for each in FLOP_PER_CLOCK[capability])
    as_of = ".".join(map(str, capability))
    clock_source = "the clock that torch tells" if gpu.clock_hz else "no clock was told; at"
    sources["device.matrix_flops_per_second"] = (
        f"assumed: {known['slots']} SMs x {FLOP_PER_CLOCK[capability][0]} FLOP of compute capability {as_of} x "
        f"{clock_source} {clock / 1e9:.3g} GHz"
    )
    device = Device(
        kind="gpu", name=ranks.model, copy_engines=usual.copy_engines, resident_blocks=usual.resident_blocks,
        limits=_limits(usual, int(known["shared_memory_per_slot_bytes"])),
        matrix_flops_per_second={"bfloat16": half, "float16": half, "float32": single}, **known,
        architecture=0 if gpu.capability is None else 10 * gpu.capability[0] + gpu.capability[1],
    )  # fmt: skip
    return device, sources


def _limits(usual: Device, shared_bytes: int) -> dict[str, float]:
    """The limits of *usual* with an SM's *shared_bytes*, of which a block may have all that is not reserved."""
    limits = dict(usual.limits)
    if shared_bytes != usual.shared_memory_per_slot_bytes and limits:
        limits["shared_memory_per_block_bytes"] = shared_bytes - limits.get("reserved_bytes_per_block", 0)
    return limits


def _link(ranks: Hardware, gpu: Specification) -> tuple[float, str]:
    """Bytes per second of one direction, and their source."""
    if _link_kind(ranks) == NVLINK and gpu.nvlinks:
        major = (gpu.capability or USUAL_CAPABILITY)[0]
        each = NVLINK_BYTES_PER_SECOND.get(major, USUAL_NVLINK)
        return gpu.nvlinks * each, f"{gpu.nvlinks} NVLinks are up, at {each / 1e9:g} GB/s each way"
    if _link_kind(ranks) == NVLINK:
        return 12 * USUAL_NVLINK, "nobody told how many NVLinks are up; as 12 of 25 GB/s each way"
    generation, lanes = gpu.pcie or USUAL_PCIE
    lane = PCIE_LANE_BYTES_PER_SECOND.get(generation, PCIE_LANE_BYTES_PER_SECOND[USUAL_PCIE[0]])
    source = "as the driver tells" if gpu.pcie else "nobody told"
    return lanes * lane, f"{lanes} lanes of PCI Express {generation}, {source}; all GPUs under one switch"


# The machine of available ranks.

if TYPE_CHECKING:
    from cluster.client import Cluster


@dataclass(frozen=True, slots=True)
class RankSite:
    """Hardware on which ranks of one backend would run."""

    hardware: Hardware
    count: int = 1
    """GPUs of a host; 1 for CPU ranks, whose machine does not depend on their number."""
    gpu: Callable[[], Specification] = lambda: hosts.local_specification()
    """Reads the properties of one of the GPUs; called only if no machine fits."""

    @property
    def on_cpus(self) -> bool:
        return self.hardware.cores is not None


def local_site(backend: str) -> RankSite | None:
    """This host; None if it cannot run *backend*."""
    count = 1 if backend == "cpu" else len(hosts.visible_gpus())
    ranks = local_ranks(count, backend) if count else None
    return None if ranks is None else RankSite(ranks.hardware, count)


def cluster_site(cluster: Cluster, backend: str) -> RankSite | None:
    """The hosts of *cluster*; None while its workers do not report, or if none is of *backend*."""
    one_rank = cluster.ranks(1, backend)
    if one_rank is None or backend == "cpu":
        return None if one_rank is None else RankSite(one_rank.hardware)
    described = cluster.describe()["workers"]
    seats = [worker for worker in described if worker.get("backend") == backend]
    names = [worker["host"] for worker in seats]
    uuids = {worker["gpu"]["uuid"] for worker in seats if worker.get("gpu")}
    count = min(max(map(names.count, names)), len(uuids) or len(names))  # workers may share a GPU
    ranks = Workers.from_description({"workers": seats}).ranks(count, backend) or one_rank
    return RankSite(ranks.hardware, count, partial(hosts.worker_specification, cluster.client, seats[0]["address"]))


def machine_of_local_gpus() -> Machine:
    """The machine of this host's GPUs; Refusal without GPUs."""
    place = local_site("triton")
    if place is not None:
        return saved_machine(place)
    offered = [known.name for known in machines.readable() if known.backend == "triton"]
    raise Refusal(
        f"backend = triton needs a machine, and none describes this host's {len(hosts.visible_gpus())} GPUs. Accepted: "
        f"an estimate (`workbench predict`) with --machine, one of {', '.join(offered)}; to measure, a host or a "
        "--cluster with GPUs."
    )


def fitting_machine(place: RankSite) -> Machine | None:
    """The machine whose description fits *place*, or None if there is none."""
    return best_fitting(machines.readable(), place.hardware, place.count, cpu_model())


def machine_of(place: RankSite) -> Machine:
    """The machine that fits *place*, or one derived from what its ranks report; Refusal for GPUs of two kinds."""
    known = fitting_machine(place)
    if known is not None:
        return known
    if place.on_cpus:
        plain = machines.shipped_machine(machines.LAPTOP)
        return derived_cpu_machine(place.hardware, place.count, plain)
    if " and " in place.hardware.model:
        raise Refusal(
            f"These ranks have GPUs of several kinds: {place.hardware.model}. A machine has 1 kind. "
            "Accepted: workers whose GPUs are of 1 kind."
        )
    costs_of = machines.shipped_machine(costs_like(place.hardware))
    return derived_gpu_machine(place.hardware, place.count, place.gpu(), costs_of)


def saved_machine(place: RankSite) -> Machine:
    """The `machine_of` *place*, whose file is saved in the runs folder if it is a derived one."""
    machine = machine_of(place)
    if machine.name not in machines.names():
        path = machines.calibrated_path(machine.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write(path, toml(machine))
    return machines.machine(machine.name)


def sharing_refusal(fabric: Fabric, ranks: Hardware, world: int) -> str | None:
    """Why *ranks*, a gang of *world*, do not fit *fabric*, or None: both share a GPU, none does, or hosts do."""
    if world == 1 or ranks.cores is not None:
        return None
    return sharing_mismatch(fabric, "triton", world if ranks.shares_gpu else 1)


def refusal(machine: Machine, ranks: Hardware, count: int) -> str | None:
    """Why times of *ranks* must not be stored as those of *machine*, or None; it names the one that fits *count*."""
    processor = cpu_model()
    if misfit(machine, ranks, processor) is None:
        return None
    site = RankSite(ranks, 1 if ranks.cores is not None else count)
    return misfit_message(machine, ranks, processor, fitting_machine(site))
