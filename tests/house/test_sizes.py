"""Files and functions stay small enough to be read in one sitting. Raising a budget needs a sentence beside it."""

import ast
from pathlib import Path
from statistics import median
from typing import NamedTuple

import pytest

FILE_LINES_MOST, FILE_LINES_MEDIAN = 400, 120
FUNCTION_LINES_MOST, FUNCTION_LINES_MEDIAN = 60, 12
PARAMETERS_MOST = 6

# A device kernel cannot be cut into small functions without cost, and its sizes and strides are its parameters.
DEVICE_CODE, DEVICE_FUNCTION_LINES_MOST = "kernels/backends/triton/", 120
# In typer a command's options *are* its parameters, so the command line has as many as the commands have options.
MANY_PARAMETERS = (DEVICE_CODE, "workbench/cli")


class Function(NamedTuple):
    place: str
    lines: int
    parameters: int


@pytest.fixture(scope="module")
def room_functions(root: Path, room_files: list[Path]) -> list[Function]:
    return [function for path in room_files for function in functions_of(root, path)]


def functions_of(root: Path, path: Path) -> list[Function]:
    tree = ast.parse((root / path).read_text())
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [
        Function(f"{path}:{node.lineno} {node.name}", node.end_lineno - node.lineno + 1, parameters_of(node))
        for node in nodes
        if node.end_lineno
    ]


def parameters_of(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def test_no_file_is_too_long(root: Path, python_files: list[Path]) -> None:
    lengths = {path: line_count(root / path) for path in python_files}
    long = [f"{path} has {lines} lines" for path, lines in lengths.items() if lines > FILE_LINES_MOST]
    assert not long, f"at most {FILE_LINES_MOST} lines a file:\n" + "\n".join(long)


def test_the_architecture_is_short(root: Path) -> None:
    lines = line_count(root / "ARCHITECTURE.md")
    assert lines <= FILE_LINES_MOST, (
        f"ARCHITECTURE.md has {lines} lines: what is a record, or of one part alone, is for docs/"
    )


def test_the_usual_file_is_short(root: Path, room_files: list[Path]) -> None:
    usual = median(line_count(root / path) for path in room_files)
    assert usual <= FILE_LINES_MEDIAN, f"the median file has {usual} lines, {FILE_LINES_MEDIAN} are allowed"


def test_no_function_is_too_long(root: Path, python_files: list[Path]) -> None:
    long = [
        f"{function.place} has {function.lines} lines, {most} are allowed"
        for path in python_files
        for most in [DEVICE_FUNCTION_LINES_MOST if path.as_posix().startswith(DEVICE_CODE) else FUNCTION_LINES_MOST]
        for function in functions_of(root, path)
        if function.lines > most
    ]
    assert not long, "\n".join(long)


def test_the_usual_function_is_short(room_functions: list[Function]) -> None:
    usual = median(function.lines for function in room_functions)
    assert usual <= FUNCTION_LINES_MEDIAN, f"the median function has {usual} lines, {FUNCTION_LINES_MEDIAN} are allowed"


def test_no_function_takes_too_many_parameters(room_functions: list[Function]) -> None:
    wide = [
        f"{function.place} takes {function.parameters} parameters, {PARAMETERS_MOST} are allowed"
        for function in room_functions
        if function.parameters > PARAMETERS_MOST and not function.place.startswith(MANY_PARAMETERS)
    ]
    assert not wide, "\n".join(wide)


def line_count(path: Path) -> int:
    return len(path.read_text().splitlines())
