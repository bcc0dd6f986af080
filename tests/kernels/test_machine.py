"""A machine file is loaded whole or refused with a sentence that names the file, the key and what is accepted."""

from pathlib import Path

import pytest

from kernels.machine import Machine, load

GOOD = """
name = "box"
title = "A box"
backend = "cpu"

[device]
kind = "cpu"
name = "a thread"
slots = 1
memory_bytes_per_second = 1e10
memory_bytes = 4e9
l2_bytes = 1e6
copy_engines = 0
shared_memory_per_slot_bytes = 0

[device.matrix_flops_per_second]
float32 = 5e10

[costs]
launch_seconds = 0
step_seconds = 2e-5
tile_seconds = 8e-6
signal_seconds = 6e-5
barrier_seconds = 2e-4
copy_engine_seconds = 0
library_seconds = 5e-4
library_share = 0.5
send_blocks = 0

[[dimension]]
topology = "switch"
count = 8
bandwidth_bytes_per_second = 5e9
latency_seconds = 1e-6

[[dimension]]
topology = "ring"
count = 4
bandwidth_bytes_per_second = 1e9
latency_seconds = 5e-6
message_seconds = 1e-6

[[rate]]
work = "gemm"
dtype = "float32"
size = 1e6
per_second = 4e10
width = 128

[provenance]
device = "datasheet: the box it came in"
"device.matrix_flops_per_second" = "calibrated: timed"
costs = "assumed: plausible"
"""


def loaded(folder: Path, text: str) -> Machine:
    path = folder / "box.toml"
    path.write_text(text)
    return load(path)


def test_a_file_becomes_a_machine(tmp_path: Path) -> None:
    machine = loaded(tmp_path, GOOD)
    assert (machine.name, machine.device.slots, machine.costs.library_share) == ("box", 1, 0.5)
    assert machine.dimensions[0].message_seconds == 0
    assert machine.rates[0].per_second == 4e10
    assert machine.calibrated is None
    assert machine.spread is None


def test_a_gpu_file_of_an_older_version_has_assumed_resident_blocks(tmp_path: Path) -> None:
    """Such a file has nothing to say of them, and its estimates stay as they were."""
    older = GOOD.replace('backend = "cpu"', 'backend = "triton"').replace('kind = "cpu"', 'kind = "gpu"')
    machine = loaded(tmp_path, older)
    assert machine.device.resident_blocks == {"gemv": 6, "gather": 28}
    assert machine.provenance_of("device.resident_blocks.gemv").startswith("assumed: not stated")
    assert machine.provenance_of("device.slots") == "datasheet: the box it came in"
    newer = loaded(tmp_path, older.replace("[costs]", "[device.resident_blocks]\ngemv = 2\n\n[costs]"))
    assert newer.device.resident_blocks == {"gemv": 2}
    assert newer.provenance_of("device.resident_blocks.gemv") == "datasheet: the box it came in"
    assert loaded(tmp_path, GOOD).device.resident_blocks == {}


def test_a_world_is_as_large_as_all_dimensions_together(tmp_path: Path) -> None:
    assert loaded(tmp_path, GOOD).max_world == 32


def test_the_longest_prefix_says_where_a_value_is_from(tmp_path: Path) -> None:
    machine = loaded(tmp_path, GOOD)
    assert machine.provenance_of("device.matrix_flops_per_second.float32") == "calibrated: timed"
    assert machine.provenance_of("device.slots") == "datasheet: the box it came in"
    assert machine.provenance_of("dimension.0.count") == "assumed: no source given"


def test_every_change_of_the_file_changes_its_digest(tmp_path: Path) -> None:
    first = loaded(tmp_path, GOOD).digest
    assert len(first) == 12
    assert loaded(tmp_path, GOOD).digest == first
    assert loaded(tmp_path, GOOD.replace("5e-4", "6e-4")).digest != first


def test_a_calibrated_machine_says_when_and_how_well(tmp_path: Path) -> None:
    machine = loaded(tmp_path, 'calibrated = "2026-01-02T03:04:05 host"\nspread = [0.9, 1.2]\n' + GOOD)
    assert machine.calibrated == "2026-01-02T03:04:05 host"
    assert machine.spread == (0.9, 1.2)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('name = "box"', 'name = "box', r"box\.toml cannot be read as a machine: .* Accepted: a TOML file\."),
        ('name = "box"', "", r"box\.toml has no 'name', and every machine needs it"),
        ('name = "box"', "name = 7", r"name = 7 does not fit\. Accepted: a text"),
        ('backend = "cpu"', 'backend = "tpu"', r"backend = 'tpu' is unknown\. Accepted: cpu, triton"),
        ('backend = "cpu"', 'backend = "cpu"\nvendor = "us"', r"has the unknown key 'vendor'\. Accepted:"),
        ("slots = 1", "", r"box\.toml \[device\] has no 'slots'\. It needs kind, name, slots"),
        ("slots = 1", "slot = 1", r"box\.toml \[device\] has the unknown key 'slot'\. Accepted: .*slots"),
        ("slots = 1", "slots = 0", r"slots = 0 does not fit\. Accepted: a whole number above 0"),
        ("slots = 1", "slots = 1.5", r"slots = 1\.5 does not fit\. Accepted: a whole number above 0"),
        ("slots = 1", "slots = true", r"slots = True does not fit\. Accepted: a whole number above 0"),
        (
            "step_seconds = 2e-5",
            "step_seconds = -1",
            r"\[costs\]: step_seconds = -1 does not fit\. Accepted: a finite number from 0",
        ),
        (
            "step_seconds = 2e-5",
            "step_seconds = nan",
            r"step_seconds = nan does not fit\. Accepted: a finite number from 0",
        ),
        (
            "step_seconds = 2e-5",
            'step_seconds = "20 us"',
            r"step_seconds = '20 us' does not fit\. Accepted: a finite number from 0",
        ),
        (
            "float32 = 5e10",
            "float32 = 0",
            r"matrix_flops_per_second = .* does not fit\. Accepted: a table of finite numbers above 0",
        ),
        (
            "float32 = 5e10",
            "",
            r"matrix_flops_per_second = \{\} does not fit\. Accepted: a table of finite numbers above 0",
        ),
        (
            "float32 = 5e10",
            "float32 = 5e10\n[device.gather_step]\nwait = 1e-6",
            r"\[device\] gather_step has the unknown key 'wait'\. Accepted: busy, .*latency",
        ),
        (
            'topology = "switch"',
            'topology = "star"',
            r"topology = 'star' is unknown\. Accepted: switch, ring, fully_connected, torus",
        ),
        (
            "= 5e9",
            "= 0",
            r"\[\[dimension\]\]: bandwidth_bytes_per_second = 0 does not fit\. Accepted: a finite number above 0",
        ),
        (
            'work = "gemm"',
            'work = "conv"',
            r"\[\[rate\]\]: work = 'conv' is unknown\. Accepted: gemm, gemv, gather, gather_power_law, reduce, copy",
        ),
        ("[[rate]]", "[rate]", r"\[rate\] is one table, but a machine may have several\. Accepted: \[\[rate\]\]"),
        (
            "assumed: plausible",
            "guessed",
            r"provenance of costs is 'guessed'\. Accepted: a text that begins with one of datasheet, calibrated",
        ),
        (
            'costs = "assumed: plausible"',
            "costs = 3",
            r"provenance of costs is 3\. Accepted: a text that begins with one of",
        ),
        (
            'name = "box"',
            'name = "box"\nspread = [2, 1]',
            r"spread = \[2, 1\] does not fit\. Accepted: two numbers above 0",
        ),
    ],
)
def test_a_wrong_file_is_refused_with_a_sentence(tmp_path: Path, old: str, new: str, sentence: str) -> None:
    assert old in GOOD
    with pytest.raises(ValueError, match=sentence) as refused:
        loaded(tmp_path, GOOD.replace(old, new, 1))
    assert "box.toml" in str(refused.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", r"box\.toml has no 'name'"),
        (GOOD[: GOOD.index("[device]")] + "device = 3", r"box\.toml \[device\] holds 3, which is not a table"),
        (
            GOOD.replace("[[dimension]]", "[dimension]", 1).replace("[[dimension]]", "[other]"),
            r"has the unknown key 'other'",
        ),
    ],
)
def test_a_file_of_another_build_is_refused_with_a_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        loaded(tmp_path, text)


def test_a_file_that_is_not_there_or_not_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"There is no machine file .*/gone\.toml\. Accepted: a TOML file"):
        load(tmp_path / "gone.toml")
    (tmp_path / "bits.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match=r"/bits\.toml cannot be read as a machine"):
        load(tmp_path / "bits.toml")
