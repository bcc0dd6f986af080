"""One home for what things cost: in the simulator, prices alone read a Machine's numbers."""

import ast
from collections.abc import Iterator
from pathlib import Path

from workbench.simulator import price

NUMBERS = {"costs", "device", "dimensions", "rates", "collectives"}
"""The parts of a Machine that hold numbers."""
HOME = "workbench/simulator/price/"
FITTING = "workbench/simulator/calibrate"
"""Who fits these numbers to what was measured reads them, too."""


def numbers_read(source: str) -> Iterator[str]:
    """Line and name of what *source* reads of a Machine, or of anything that has parts of these names."""
    read = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)]
    named = {id(node.value) for node in read if node.attr == "name"}  # what a device is called is no number
    for node in read:
        if node.attr in NUMBERS and id(node) not in named:
            yield f"{node.lineno} reads .{node.attr}"


def test_only_prices_read_the_numbers_of_a_machine(root: Path, room_files: list[Path]) -> None:
    files = [path for path in room_files if path.as_posix().startswith("workbench/simulator/")]
    others = [path for path in files if not path.as_posix().startswith((HOME, FITTING))]
    assert len(files) > len(others) > 0
    readers = [f"{path} line {line}" for path in others for line in numbers_read((root / path).read_text())]
    assert not readers, "; ".join(readers) + f". Accepted: a function of {HOME}"


def test_prices_are_where_this_rule_says(root: Path) -> None:
    assert Path(price.__file__).parent == root / HOME


def test_reading_a_number_is_seen() -> None:
    assert list(numbers_read("x = machine.costs.launch_seconds")) == ["1 reads .costs"]
    assert list(numbers_read("x = machine.device")) == ["1 reads .device"]
    assert not list(numbers_read("x = machine.name + machine.device.name"))
