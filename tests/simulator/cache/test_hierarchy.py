"""Cache files: those that we ship hold what they say, and a wrong one is refused in a sentence."""

from pathlib import Path

import pytest

from kernels.schedule import Refusal
from tests.simulator.cache.made import small
from workbench.machines import machine
from workbench.simulator.cache.hierarchy import Hierarchy, hierarchy, load, names, of_machine


@pytest.mark.parametrize("name", names())
def test_every_value_of_a_shipped_file_has_a_source(name: str) -> None:
    on = hierarchy(name)
    values = {"devices", *Hierarchy.__dataclass_fields__} - {"name", "title", "provenance"}
    assert set(on.provenance) | {"hashed"} == values
    assert on.name == name
    assert on.l2_sets * on.l2_ways * on.l2_slices * 128 == on.l2_bytes


def test_a_machine_has_the_caches_of_its_device() -> None:
    of = machine("h200_nvl2")
    on = of_machine(of)
    assert on.l2_bytes == of.device.l2_bytes
    assert on.units == of.device.slots
    with pytest.raises(Refusal, match=r"Machine laptop_cpu has the device .*, and 0 of 3 cache descriptions name it"):
        of_machine(machine("laptop_cpu"))


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"l2_ways": 0}, r"small: l2_ways = 0 is too small: 0 < 1\. Accepted: numbers from 1\."),
        ({"l2_bytes": 300}, r"l2_bytes = 300 is no multiple of line x ways x slices = 256 bytes, 44 .*256 or 512\."),
        ({"l1_bytes": 100}, r"l1_bytes = 100 is no multiple of line x ways = 128 bytes.*Accepted: 128\."),
        ({"dram_row_bytes": 200}, r"dram_row_bytes = 200 is no multiple of dram_interleave_bytes = 128"),
        ({"dram_bytes_per_second": float("nan")}, "dram_bytes_per_second = nan is too small"),
    ],
)  # fmt: skip
def test_caches_that_cannot_be_are_refused(values: dict[str, object], sentence: str) -> None:
    with pytest.raises(Refusal, match=sentence):
        small(**values)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("ways = 3", "has the unknown key 'ways'"), ("l2_ways = true", "l2_ways = True does not fit"),
        ("l2_ways = 4", "missing .* required keyword-only arguments"), ("l2_ways = [", "cannot be read as a cache"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "x.toml").write_text(text)
    with pytest.raises(ValueError, match=sentence):
        load(tmp_path / "x.toml")


def test_no_such_caches_are_refused_with_the_names() -> None:
    with pytest.raises(Refusal, match=r"There are no caches 'b200'\. Accepted: gcn3_hbm, h100, h200\."):
        hierarchy("b200")
