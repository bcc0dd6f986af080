"""The machine of a cluster is the one that fits by what drivers tell; where none does, one is made."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cluster import hosts
from cluster.hosts import Gpu, Specification, specification_from
from cluster.seating import Ranks, Workers
from kernels.fabric import Fabric
from kernels.hardware import NVLINK, PCIE, SHARED_MEMORY, Hardware, WorkerDevice
from kernels.machine import Machine, load
from kernels.operators import problem
from kernels.schedule import Refusal
from kernels.schemes import schedule
from kernels.trial import PROTOCOLS, Trial
from tests.machines.test_machines import SHIPPED
from tests.workbench.conftest import MakeExperiment
from workbench import cli, machines
from workbench.cli.output import notes
from workbench.cli.sessions import placed
from workbench.experiment import calibration
from workbench.experiment import question as space_file
from workbench.experiment.question import Request
from workbench.experiment.run import run
from workbench.experiment.sources import FromCluster
from workbench.machines import matching, shipped_machine
from workbench.machines.calibrate_cpu import QUICK_SECONDS
from workbench.machines.matching import GpuModel, RankSite, best_fitting, gpu_model, misfit
from workbench.machines.matching import misfit_message as refusal
from workbench.results.metrics import row_of
from workbench.results.store import Store
from workbench.simulator.predict import predict
from workbench.widgets.cluster_watch import begin_with
from workbench.widgets.form import Availability, QuestionForm

# The machine of a cluster is the one that fits; where none does, one is made of what workers tell.

L40S = Hardware(model="NVIDIA L40S", link=PCIE, memory_bytes=46_068 * 2**20)
TOLD = specification_from(
    {"multi_processor_count": 142, "total_memory": 46_068 * 2**20, "L2_cache_size": 100_663_296,
     "shared_memory_per_multiprocessor": 102_400, "major": 8, "minor": 9, "clock_rate": 2_520_000,
     "memory_clock_rate": 9_001_000, "memory_bus_width": 384},
    {"nvlinks": 0, "pcie": [4, 16]},
)  # fmt: skip
EPYC = Hardware(model="AMD EPYC 9999 96-Core Processor", link="shared memory", cores=2)


def gpu_device(number: int, name: str) -> WorkerDevice:
    return WorkerDevice(kind="gpu", model=name, processor="a processor", cores=(0, 1), memory_bytes=143_771 * 2**20,
                  uuid=f"GPU-{number}", links=tuple(f"GPU-{n}" for n in range(4) if n != number))  # fmt: skip


def workers(name: str, count: int = 4) -> list[dict[str, Any]]:
    """As a broker tells of them."""
    return [{"name": f"rank{number}", "host": "far", "address": f"tcp://{number}", "backend": "triton", "trouble": "",
             "versions": {"torch": "2.13.0"}, "device": gpu_device(number, name).to_json()}
            for number in range(count)]  # fmt: skip


def far(name: str) -> Any:
    """A cluster of four GPUs called *name* on another host."""
    told = {"workers": workers(name)}
    return SimpleNamespace(describe=lambda: told, client=None,
                           ranks=Workers.from_description(told).ranks)  # fmt: skip


@pytest.fixture
def h200s(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four of them on this host."""
    found = tuple(Gpu(number=n, name="NVIDIA H200", uuid=f"GPU-{n}", memory_bytes=143_771 * 2**20) for n in range(4))
    monkeypatch.setattr("cluster.hosts.visible_gpus", lambda: found)
    monkeypatch.setattr("cluster.hosts.visible_gpus", lambda: found)


def test_this_host_s_gpus_are_their_machine(h200s: None) -> None:
    assert matching.machine_of_local_gpus().name == "h200_nvl4"
    assert placed(Request(operator="gemm_all_to_all", backend="triton"), None).machine == "h200_nvl4"


@pytest.mark.parametrize("wrong", ["mi300x_mesh8", "a40_pcie4", "h100_nvl8"])
def test_a_command_that_states_another_machine_is_refused(h200s: None, wrong: str, tmp_path: Path) -> None:
    said = rf"Machine {wrong} is not what these ranks are\..* theirs is NVIDIA H200\. Accepted: machine h200_nvl4"
    with pytest.raises(Refusal, match=said):
        placed(Request(operator="gemm_all_to_all", machine=wrong), None)
    space = tmp_path / "space.toml"
    space.write_text(f'operator = "gemm_all_to_all"\nmachine = "{wrong}"\n[shape]\nm = 256\nn = 256\nk = 256\n')
    with pytest.raises(Refusal, match=said):
        space_file.load(space, lambda request: placed(request, None))


def test_estimates_are_for_the_machine_of_a_cluster_without_naming_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("cluster.launch.lifetime.attach", lambda address: nullcontext(far("NVIDIA H200")))
    words = ["gemm_all_to_all", "--shape", "m=4096", "--shape", "n=1024", "--shape", "k=1024", "--json"]
    for command in ("predict", "recommend"):
        typed = [command, *words, "--world", "4", "--backend", "triton", "--cluster", "tcp://gpus:8786"]
        assert cli.status(typed) == 0
        rows = json.loads(capsys.readouterr().out)["rows"]
        assert {row["machine"] for row in rows if row["source"] == "estimated"} == {"h200_nvl4"}
    assert cli.status(["predict", *words, "--machine", "h100_nvl8", "--cluster", "tcp://gpus:8786"]) == 2
    assert "theirs is NVIDIA H200. Accepted: machine h200_nvl4" in capsys.readouterr().err
    monkeypatch.setattr("workbench.machines.matching.cluster_site", lambda cluster, backend: None)
    assert cli.status(["predict", *words, "--cluster", "tcp://gpus:8786"]) == 2
    assert "The cluster tcp://gpus:8786 has 0 ranks of backend cpu that report" in capsys.readouterr().err


def test_the_form_greys_out_machines_that_the_workers_contradict() -> None:
    judge = Availability(True, Workers.from_description({"workers": workers("NVIDIA H200")}))
    said = {name: judge.machine_refusal(machines.machine(name)) for name in machines.names()}
    fit = [name for name, sentence in said.items() if sentence is None]
    assert {"h200_nvl2", "h200_nvl4", "h200_nvl8", "h200_ib"} == set(fit) - {machines.LAPTOP}
    assert "theirs is NVIDIA H200" in str(said["mi300x_mesh8"])
    assert Availability(False, judge.workers).machine_refusal(machines.machine("mi300x_mesh8")) is None


def test_a_cluster_elsewhere_has_the_machine_of_its_workers() -> None:
    found = matching.cluster_site(far("NVIDIA H200"), "triton")
    assert found is not None
    assert (found.hardware.link, found.count) == (NVLINK, 4)
    assert matching.saved_machine(found).name == "h200_nvl4"
    assert matching.cluster_site(far("NVIDIA H200"), "cpu") is not None
    assert matching.local_site("triton") is None


def test_a_machine_that_no_file_describes_is_made_of_what_its_workers_tell() -> None:
    found = matching.saved_machine(RankSite(L40S, 4, lambda: TOLD))
    assert found == load(machines.calibrated_path("l40s_pcie4"))
    assert (found.name, found.calibrated, found.spread) == ("l40s_pcie4", None, None)
    device, link = found.device, found.dimensions[0]
    assert (device.slots, device.memory_bytes, device.l2_bytes) == (142, 46_068 * 2**20, 100_663_296)
    assert device.memory_bytes_per_second == pytest.approx(864e9, rel=1e-3)
    assert device.matrix_flops_per_second["bfloat16"] == pytest.approx(366e12, rel=1e-2)
    assert (link.link, link.count) == (PCIE, 4)
    assert link.bandwidth_bytes_per_second == pytest.approx(31.5e9, rel=1e-3)
    assert {value.provenance for value in machines.machine_values(found)} == {"assumed"}
    assert "L40S" in found.provenance_of("device.slots")
    again = matching.saved_machine(RankSite(L40S, 4, lambda: pytest.fail("asked again")))
    assert again.name == found.name


@pytest.mark.parametrize(
    ("hardware", "count", "told", "name", "bytes_per_second"),
    [
        (Hardware(model="NVIDIA B200", link=NVLINK, memory_bytes=183_359 * 2**20), 8,
         Specification(slots=148, capability=(10, 0), clock_hz=1.965e9, nvlinks=18), "b200_nvl8", 900e9),
        (Hardware(model="NVIDIA H100 PCIe", link=PCIE, memory_bytes=81_559 * 2**20), 4,
         Specification(slots=114, capability=(9, 0), pcie=(5, 16)), "h100_pcie4", 63e9),
        (Hardware(model="NVIDIA GeForce RTX 4090", link="one rank"), 1, Specification(), "geforce_rtx_4090_pcie1",
         31.5e9),
    ],
)  # fmt: skip
def test_what_nobody_told_is_assumed(
    hardware: Hardware, count: int, told: Specification, name: str, bytes_per_second: float
) -> None:
    found = matching.saved_machine(RankSite(hardware, count, lambda: told))
    assert (found.name, found.max_world) == (name, count)
    assert found.dimensions[0].bandwidth_bytes_per_second == pytest.approx(bytes_per_second, rel=0.01)
    major, minor = told.capability or (0, 0)
    assert found.device.architecture == 10 * major + minor
    assert {value.provenance for value in machines.machine_values(found)} == {"assumed"}
    assert "not told" in found.provenance_of("device.l2_bytes")
    asked = problem("gemm_all_to_all", {"m": 2048, "n": 1024, "k": 512}, dtype="bfloat16", world=count)
    link = Fabric(kind="nvlink")
    trial = Trial(problem=asked, schedule=schedule(asked, "fused", {}, found, link), backend="triton",
                  machine=found.name, fabric=link, protocol=PROTOCOLS["default"])  # fmt: skip
    estimate = predict(trial, found)
    assert estimate.time_s > 0
    assert not estimate.calibrated
    said = notes([SimpleNamespace(clock=None, guess=row_of(estimate, None, found))])  # type: ignore[list-item]
    assert said == ["estimates assumed, not calibrated: only their order counts"]


def test_gpus_of_several_kinds_are_no_machine() -> None:
    mixed = Hardware(model="2 x NVIDIA A40 and 2 x NVIDIA H200", link=PCIE)
    with pytest.raises(Refusal, match="GPUs of several kinds"):
        matching.machine_of(RankSite(mixed, 4))


def test_ranks_of_another_processor_are_calibrated_where_they_are(fake_cluster: Any) -> None:
    shipped = machines.shipped_machine(machines.LAPTOP)
    fake_cluster.seconds = lambda trial: predict(trial, shipped, with_spans=False).time_s
    fake_cluster.gang = lambda world, backend: Ranks({}, EPYC) if backend == "cpu" else None
    there = RankSite(EPYC)
    before = matching.saved_machine(there)
    assert (before.name, before.calibrated) == ("amd_epyc_9999_cpu", None)
    assert calibration._uncalibrated_machine(fake_cluster) == "amd_epyc_9999_cpu"
    fitted, path = calibration.calibrate(fake_cluster, QUICK_SECONDS)
    assert path == machines.calibrated_path("amd_epyc_9999_cpu")
    assert fitted.device.name == "one thread of AMD EPYC 9999 96-Core Processor"
    assert str(fitted.calibrated).endswith("on AMD EPYC 9999 96-Core Processor, quick")
    assert machines.machine(machines.LAPTOP).calibrated is None
    assert matching.saved_machine(there) == fitted
    assert calibration._uncalibrated_machine(fake_cluster) is None
    said = matching.refusal(machines.machine(machines.LAPTOP), EPYC, 2)
    assert str(said).endswith("Accepted: machine amd_epyc_9999_cpu.")
    with pytest.raises(Refusal, match="theirs are of AMD EPYC"):
        calibration.calibrate(fake_cluster, QUICK_SECONDS, name=machines.LAPTOP)


def test_what_torch_and_the_driver_do_not_tell_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "_torch_properties", dict)
    assert hosts.local_specification() == Specification()


def test_the_form_begins_with_the_machine_of_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = far("NVIDIA H200")
    question = QuestionForm("tiny", machines.LAPTOP)
    begin_with(question, Workers.from_description({"workers": workers("NVIDIA H200")}), lambda: cluster)
    assert question.machine.value == "h200_nvl4"
    others = far("NVIDIA L40S")
    monkeypatch.setattr("cluster.hosts.worker_specification", lambda client, address: TOLD)
    question = QuestionForm("tiny", machines.LAPTOP)
    begin_with(question, Workers.from_description({"workers": workers("NVIDIA L40S")}), lambda: others)
    assert question.machine.value == "l40s_nvl4"
    assert question.machine.label.startswith("4 x NVIDIA L40S")
    question.machine.value = "a40_pcie4"
    begin_with(question, Workers.from_description({"workers": workers("NVIDIA H200")}), lambda: cluster)
    assert question.machine.value == "a40_pcie4"


def test_a_run_measures_nothing_on_ranks_that_are_not_its_machine(
    fake_cluster: Any, store: Store, make_experiment: MakeExperiment
) -> None:
    """However it was begun: by a page, a command, a sweep or a notebook's own code."""
    laptop = machines.shipped_machine(machines.LAPTOP)
    fake_cluster.gang = lambda world, backend: Ranks({}, EPYC)
    sitting = run(replace(make_experiment(), machine=laptop.name), store, FromCluster(fake_cluster), laptop)
    with pytest.raises(Refusal, match=r"Machine laptop_cpu is not what these ranks are.* theirs are of AMD EPYC"):
        list(sitting)
    assert fake_cluster.lists == []
    assert store.run(sitting.run)["status"] == "refused"
    assert store.runs() == [], "a refused request is no run"


# Machines are told apart by what drivers tell: model, board, memory and link; the one that fits is the default.

MIB = 2**20
NAMES = {
    "NVIDIA H200": (GpuModel("H200", "sxm"), 143_771),
    "NVIDIA H200 NVL": (GpuModel("H200", "nvl"), 143_771),
    "NVIDIA H100 80GB HBM3": (GpuModel("H100", "sxm", 8e10), 81_559),
    "NVIDIA H100 PCIe": (GpuModel("H100", "pcie"), 81_559),
    "NVIDIA H100 NVL": (GpuModel("H100", "nvl"), 95_830),
    "NVIDIA H100": (GpuModel("H100"), 97_871),
    "NVIDIA A100-SXM4-80GB": (GpuModel("A100", "sxm", 8e10), 81_920),
    "NVIDIA A100-SXM4-40GB": (GpuModel("A100", "sxm", 4e10), 40_960),
    "NVIDIA A100 80GB PCIe": (GpuModel("A100", "pcie", 8e10), 81_920),
    "NVIDIA A100-PCIE-40GB": (GpuModel("A100", "pcie", 4e10), 40_960),
    "NVIDIA A40": (GpuModel("A40"), 46_068),
    "NVIDIA A40-48Q": (GpuModel("A40 48Q"), 49_152),
    "NVIDIA L40S": (GpuModel("L40S"), 46_068),
    "NVIDIA B200": (GpuModel("B200", "sxm"), 183_359),
    "NVIDIA GeForce RTX 4090": (GpuModel("GEFORCE RTX 4090"), 24_564),
    "AMD Instinct MI300X": (GpuModel("MI300X"), 196_592),
    "AMD Instinct MI300X VF": (GpuModel("MI300X"), 196_592),
    "AMD Instinct MI210": (GpuModel("MI210"), 65_520),
}
"""By name as drivers tell it: what it says, and MiB of memory as they tell it."""
LINKED = {"NVIDIA H200": NVLINK, "NVIDIA H100 80GB HBM3": NVLINK, "NVIDIA A100-SXM4-80GB": NVLINK, "NVIDIA A40": PCIE}
"""Those that a shipped machine is of, and how they are linked there."""


def ranks(name: str, link: str = "unknown link") -> Hardware:
    return Hardware(model=name, link=link, memory_bytes=NAMES[name][1] * MIB)


def chosen(hardware: Hardware, count: int) -> str | None:
    found = best_fitting(map(shipped_machine, SHIPPED), hardware, count, None)
    return found and found.name


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_taken_apart(name: str) -> None:
    assert gpu_model(name) == NAMES[name][0]


@pytest.mark.parametrize(
    ("name", "link", "count", "expected"),
    [
        ("NVIDIA H200", NVLINK, 2, "h200_nvl2"),
        ("NVIDIA H200", NVLINK, 3, "h200_nvl4"),
        ("NVIDIA H200", "unknown link", 4, "h200_nvl4"),
        ("NVIDIA H200", NVLINK, 8, "h200_nvl8"),
        ("NVIDIA H200", NVLINK, 16, None),
        ("NVIDIA H200", PCIE, 2, None),
        ("NVIDIA H200 NVL", PCIE, 2, None),
        ("NVIDIA H100 80GB HBM3", NVLINK, 4, "h100_nvl8"),
        ("NVIDIA H100 PCIe", PCIE, 4, None),
        ("NVIDIA H100 NVL", PCIE, 2, None),
        ("NVIDIA H100", NVLINK, 8, None),
        ("NVIDIA A100-SXM4-80GB", NVLINK, 8, "a100_nvl8"),
        ("NVIDIA A100-SXM4-40GB", NVLINK, 8, None),
        ("NVIDIA A100 80GB PCIe", PCIE, 8, None),
        ("NVIDIA A40", PCIE, 4, "a40_pcie4"),
        ("NVIDIA A40", NVLINK, 2, None),
        ("NVIDIA A40-48Q", PCIE, 4, None),
        ("NVIDIA L40S", PCIE, 4, None),
        ("NVIDIA B200", NVLINK, 8, None),
        ("NVIDIA GeForce RTX 4090", PCIE, 1, None),
        ("AMD Instinct MI300X", "unknown link", 8, "mi300x_mesh8"),
        ("AMD Instinct MI210", "unknown link", 4, "mi210_mesh4"),
    ],
)
def test_the_machine_of_a_cluster_is_the_one_that_fits(name: str, link: str, count: int, expected: str | None) -> None:
    assert chosen(ranks(name, link), count) == expected


@pytest.mark.parametrize("wrong", ["mi300x_mesh8", "a40_pcie4", "h100_nvl8", "a100_nvl8"])
def test_four_h200s_pass_as_nothing_else(wrong: str) -> None:
    h200 = ranks("NVIDIA H200", NVLINK)
    right, stated = shipped_machine("h200_nvl4"), shipped_machine(wrong)
    assert refusal(right, h200, None, right) is None
    assert refusal(stated, h200, None, right) == (
        f"Machine {wrong} is not what these ranks are. Its GPU is {stated.device.name}, but theirs is NVIDIA H200. "
        "Accepted: machine h200_nvl4."
    )


def test_memory_and_link_tell_boards_of_one_name_apart() -> None:
    less = replace(ranks("NVIDIA A100-SXM4-40GB", NVLINK), model="NVIDIA A100")
    assert misfit(shipped_machine("a100_nvl8"), less, None) == (
        "Its GPU has 80 GB of memory, but theirs (NVIDIA A100) has 43 GB"
    )
    assert misfit(shipped_machine("h200_nvl2"), ranks("NVIDIA H200", PCIE), None) == (
        "Its GPUs are linked by nvlink, but theirs (NVIDIA H200) by pcie"
    )
    silent = Hardware(model="NVIDIA A100-SXM4-40GB", link=NVLINK)
    assert "has 40 GB" in str(misfit(shipped_machine("a100_nvl8"), silent, None))


def of_processor(name: str) -> Machine:
    plain = shipped_machine("laptop_cpu")
    return replace(plain, device=replace(plain.device, name=name))


def test_a_calibration_of_one_processor_is_not_another_s() -> None:
    epyc = Hardware(model="AMD EPYC 9654", link=SHARED_MEMORY, cores=4)
    assert misfit(of_processor("one thread of AMD EPYC 9654"), epyc, "Intel Core i7") is None
    assert misfit(of_processor("one thread of this CPU"), epyc, "AMD EPYC 9654") is None
    assert misfit(of_processor("one thread of this CPU"), epyc, "Intel Core i7") == (
        "Its ranks are threads of Intel Core i7, but theirs are of AMD EPYC 9654"
    )
    assert misfit(of_processor("one thread of Intel Core i7"), epyc, None) is not None
    assert misfit(of_processor("one thread of this CPU"), epyc, None) is None
    assert misfit(of_processor("one thread of this CPU"), epyc, "AMD EPYC") is not None  # a virtual one's short name
    both = replace(epyc, model="1 x AMD EPYC 9654 and 2 x Intel Core i7")
    assert misfit(of_processor("one thread of AMD EPYC 9654"), both, None) is None


def test_several_kinds_of_gpus_are_no_machine() -> None:
    mixed = Hardware(model="2 x NVIDIA A40 and 2 x NVIDIA H200", link=PCIE)
    assert chosen(mixed, 4) is None
