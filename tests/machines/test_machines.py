"""Every machine we ship loads, says where values are from, survives being written, and gives way to calibrated."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from kernels.fabric import Fabric
from kernels.machine import Machine, load, toml
from kernels.operators import problem
from kernels.schedule import Refusal
from kernels.schemes import axes
from workbench import machines, resources

# Every machine we ship loads, says where each value is from, and gives way to what was calibrated here.

MEASURED = ("h100_nvl2", "h200_nvl2", "h200_nvl4", "h200_nvl8", "h200_ib")
"""Shipped machines whose GPUs were measured; all others are what documents say."""
SHIPPED = sorted(path.stem for path in (resources.data_directory() / "machines").glob("*.toml"))


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of runs in place of this person's."""
    monkeypatch.setattr(machines, "runs_directory", lambda: tmp_path)
    (tmp_path / "machines").mkdir()
    return tmp_path / "machines"


def text_of(name: str) -> str:
    return (resources.data_directory() / "machines" / f"{name}.toml").read_text()


def test_the_promised_machines_are_there(runs: Path) -> None:
    wanted = {"laptop_cpu", "h100_nvl2", "h100_nvl8", "h200_nvl2", "h200_nvl4", "h200_nvl8", "h200_ib", "a100_nvl8",
              "a40_pcie4", "mi210_mesh4", "mi250x_gcd8", "mi300x_mesh8"}  # fmt: skip
    assert wanted <= set(machines.names())
    assert machines.names()[0] == machines.LAPTOP


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_machine_loads_under_its_own_name_and_says_whether_it_was_measured(runs: Path, name: str) -> None:
    found = machines.machine(name)
    assert found.name == name
    assert (found.calibrated is not None) == (name in MEASURED)
    assert re.fullmatch(r"[0-9a-f]{12}", found.digest)
    assert found.backend == ("cpu" if found.device.kind == "cpu" else "triton")


@pytest.mark.parametrize("name", SHIPPED)
def test_every_value_says_where_it_is_from(runs: Path, name: str) -> None:
    allowed = ("datasheet", "assumed", "calibrated") if name in MEASURED else ("datasheet", "assumed")
    silent = [
        each.key
        for each in machines.machine_values(machines.machine(name))
        if each.provenance not in allowed or len(each.source) < 10 or each.source == "no source given"
    ]
    assert not silent, f"{name}: {', '.join(silent)} have no document and no reason"


@pytest.mark.parametrize("name", SHIPPED)
def test_every_provenance_belongs_to_a_value(runs: Path, name: str) -> None:
    found = machines.machine(name)
    spreads = (each for each in ("spread", "streams_spread") if getattr(found, each))
    keys = {*(each.key for each in machines.machine_values(found)), *spreads}
    lost = [key for key in found.provenance if not any(f"{each}.".startswith(f"{key}.") for each in keys)]
    assert not lost, f"{name}: nothing is called {', '.join(lost)}"


@pytest.mark.parametrize("name", SHIPPED)
def test_costs_are_assumed_until_somebody_calibrates(runs: Path, name: str) -> None:
    costs = [each for each in machines.machine_values(machines.machine(name)) if each.key.startswith("costs.")]
    assert {each.provenance for each in costs} <= ({"assumed", "calibrated"} if name in MEASURED else {"assumed"})


@pytest.mark.parametrize(
    ("name", "bytes_per_second"),
    [
        ("h100_nvl8", 450e9),
        ("h200_nvl4", 450e9),
        ("a100_nvl8", 300e9),
        ("mi300x_mesh8", 7 * 64e9),
        ("a40_pcie4", 31.5e9),
    ],
)
def test_links_are_counted_in_one_direction(runs: Path, name: str, bytes_per_second: float) -> None:
    assert machines.machine(name).dimensions[0].bandwidth_bytes_per_second == bytes_per_second


def test_a_cluster_has_a_slower_second_dimension(runs: Path) -> None:
    inside, between = machines.machine("h200_ib").dimensions
    assert (inside.count, between.bandwidth_bytes_per_second) == (8, 50e9)
    assert machines.machine("h200_ib").max_world == 8 * between.count


@pytest.mark.parametrize("name", SHIPPED)
def test_schemes_find_their_axes_on_every_machine(runs: Path, name: str) -> None:
    found = machines.machine(name)
    asked = problem("gemm_all_to_all", {"m": 1024, "n": 512, "k": 256}, world=2)
    kind = "emulated" if found.backend == "cpu" else "nvlink"
    assert axes(asked, "fused", found, Fabric(kind=kind))[0].name == "tile"


def test_what_was_calibrated_here_is_preferred(runs: Path) -> None:
    path = machines.calibrated_path("laptop_cpu")
    assert path.parent == runs
    text = text_of("laptop_cpu").replace("float32 = 6e10", "float32 = 7e10")
    path.write_text(text.replace('backend = "cpu"', 'backend = "cpu"\ncalibrated = "2026-01-02T03:04:05 host"'))
    assert machines.machine("laptop_cpu").calibrated == "2026-01-02T03:04:05 host"
    assert machines.machine("laptop_cpu").device.matrix_flops_per_second["float32"] == 7e10
    assert machines.shipped_machine("laptop_cpu").calibrated is None


def test_a_file_that_is_written_again_is_read_again(runs: Path) -> None:
    path = machines.calibrated_path("laptop_cpu")
    path.write_text(text_of("laptop_cpu"))
    before = machines.machine("laptop_cpu")
    path.write_text(text_of("laptop_cpu").replace("count = 64", "count = 128"))
    assert machines.machine("laptop_cpu").max_world == 128
    assert machines.machine("laptop_cpu").digest != before.digest


def test_what_an_older_version_calibrated_bounds_no_cluster_of_today(runs: Path) -> None:
    machines.calibrated_path("laptop_cpu").write_text(text_of("laptop_cpu").replace("count = 64", "count = 8"))
    assert machines.machine("laptop_cpu").max_world == 64


def test_a_machine_of_ones_own_is_a_file_beside_the_runs(runs: Path) -> None:
    (runs / "mine.toml").write_text(text_of("h100_nvl8").replace('name = "h100_nvl8"', 'name = "mine"'))
    assert "mine" in machines.names()
    assert machines.machine("mine").device.slots == 132
    assert machines.shipped_machine("mine").name == "mine"


@pytest.mark.parametrize("name", ["h2000", "../machines/h100_nvl8", ""])
def test_an_unknown_machine_is_refused_with_the_names(runs: Path, name: str) -> None:
    with pytest.raises(Refusal) as refused:
        machines.machine(name)
    assert repr(name) in str(refused.value)
    assert "Accepted: laptop_cpu, a100_nvl8," in str(refused.value)


def test_a_corrupt_file_is_named(runs: Path) -> None:
    (runs / "mine.toml").write_text("name = [")
    with pytest.raises(ValueError, match=r"/mine\.toml cannot be read as a machine: .* Accepted: a TOML file\.$"):
        machines.machine("mine")
    assert machines.known("mine") is None


def test_where_a_calibration_is_corrupt_the_shipped_machine_is_taken_until_it_is_mended(runs: Path) -> None:
    resources.begin()
    path = machines.calibrated_path("laptop_cpu")
    path.write_text("name = [")
    assert machines.machine("laptop_cpu") == machines.shipped_machine("laptop_cpu")
    (sentence,) = resources.messages()
    assert f"Left out: {path} cannot be read as a machine: " in sentence
    assert "laptop_cpu" in {each.name for each in machines.readable()}
    assert resources.messages() == (sentence,)
    path.unlink()
    machines.machine("laptop_cpu")
    assert resources.messages() == ()


def test_a_file_called_otherwise_than_its_machine_is_refused(runs: Path) -> None:
    (runs / "mine.toml").write_text(text_of("h100_nvl8"))
    with pytest.raises(ValueError, match=r"mine\.toml says name = 'h100_nvl8'.* Accepted: name = 'mine'"):
        machines.machine("mine")


def test_as_many_ranks_as_cores_are_no_crowd() -> None:
    assert machines.crowded(2, 2) is None
    assert (machines.crowded(2, 1) or "").startswith("2 ranks share 1 core here: ")


# A machine that is written down and loaded again is the same machine.


def reread(machine: Machine, folder: Path) -> Machine:
    path = folder / "written.toml"
    path.write_text(toml(machine))
    return replace(load(path), digest=machine.digest)


def test_the_tests_machines_survive_being_written(laptop: Machine, gpu_pod: Machine, tmp_path: Path) -> None:
    assert reread(laptop, tmp_path) == laptop
    assert reread(gpu_pod, tmp_path) == gpu_pod


@pytest.mark.parametrize("name", machines.names())
def test_every_shipped_machine_survives_being_written(name: str, tmp_path: Path) -> None:
    shipped = machines.shipped_machine(name)
    assert reread(shipped, tmp_path) == shipped


def test_what_calibration_adds_is_kept(laptop: Machine, tmp_path: Path) -> None:
    fitted = replace(laptop, calibrated='today "here", in Zürich', spread=(0.9, 1.25))
    assert reread(fitted, tmp_path) == fitted


# The calibration before the last one stays, and can be brought back.


def fitted(day: int) -> str:
    return toml(replace(machines.shipped_machine("laptop_cpu"), calibrated=f"2026-11-0{day}T10:00:00+00:00 on here"))


def test_a_calibration_is_undone_to_the_one_before_it(runs: Path) -> None:
    for day in (1, 2, 3):
        machines.write(fitted(day), machines.calibrated_target("laptop_cpu"))
    assert (runs / "laptop_cpu.toml.before").read_text() == fitted(2)
    assert machines.undo("laptop_cpu").calibrated == "2026-11-02T10:00:00+00:00 on here"
    assert (runs / "laptop_cpu.toml").read_text() == fitted(2)
    assert (runs / "laptop_cpu.toml.undone").read_text() == fitted(3)
    assert machines.names().count("laptop_cpu") == 1
    assert not [name for name in machines.names() if "before" in name or "undone" in name]


def test_the_first_calibration_is_undone_to_the_shipped_machine_once(runs: Path) -> None:
    machines.write(fitted(1), machines.calibrated_target("laptop_cpu"))
    assert machines.undo("laptop_cpu").calibrated is None
    assert (runs / "laptop_cpu.toml.undone").read_text() == fitted(1)
    with pytest.raises(Refusal, match="nothing to bring back for laptop_cpu: 0 calibrations"):
        machines.undo("laptop_cpu")


def test_an_undo_destroys_neither_a_machine_of_one_s_own_nor_the_present_calibration(runs: Path) -> None:
    (runs / "laptop_cpu.toml").write_text(text_of("laptop_cpu"))
    with pytest.raises(Refusal, match="0 calibrations of it are kept"):
        machines.undo("laptop_cpu")
    (runs / "laptop_cpu.toml").write_text(fitted(2))
    (runs / "laptop_cpu.toml.before").write_text("edited by hand [")
    with pytest.raises(ValueError, match=r"laptop_cpu\.toml\.before"):
        machines.undo("laptop_cpu")
    assert (runs / "laptop_cpu.toml").read_text() == fitted(2)
