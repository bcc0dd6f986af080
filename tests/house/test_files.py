"""Every file says its idea first, is small enough to be read in one sitting, and names things by what they are."""

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

# Every file says its idea first, names no machine's folders, and is small enough for git.

FILE_BYTES_MOST = 4_500_000
"""A recording is kept whole: the largest has every sample of 35 problems on GPUs."""

# An absolute path of somebody's machine; not the /work of a URL, nor folders every Linux has (/dev/shm, /usr/bin).
MACHINE_PATH = re.compile(r"(?<![\w.~/-])/(?:work|opt|root|home|tmp|mnt|Users)/[\w.]")


def test_the_first_line_of_every_python_file_is_its_idea(root: Path, python_files: list[Path]) -> None:
    speechless = [f"{path} does not begin with a docstring" for path in python_files if not idea(root / path)]
    assert not speechless, "\n".join(speechless)


def test_no_file_names_a_folder_of_one_machine(root: Path, kept_files: list[Path]) -> None:
    found = [
        f"{path} line {number}: {line.strip()[:120]}"
        for path in kept_files
        for number, line in enumerate((root / path).read_text(errors="ignore").splitlines(), start=1)
        if MACHINE_PATH.search(line)
    ]
    assert not found, "a path that exists on one machine only:\n" + "\n".join(found)


def test_no_file_is_too_big_for_git(root: Path, kept_files: list[Path]) -> None:
    sizes = {path: (root / path).stat().st_size for path in kept_files}
    big = [f"{path} has {size:,} bytes" for path, size in sizes.items() if size > FILE_BYTES_MOST]
    assert not big, f"at most {FILE_BYTES_MOST:,} bytes a file:\n" + "\n".join(big)


def idea(path: Path) -> str | None:
    text = path.read_text()
    return ast.get_docstring(ast.parse(text)) if text.startswith('"""') else None


# A file is one subject that a person can name; a function is read in one sitting. Raising a limit needs a reason.

FILE_LINES_MOST, LONG_FILE_LINES_MOST = 800, 1000
LONG_FILES: Mapping[str, str] = {}
"""Files of up to 1,000 lines, and why a second file would be worse."""
SHORT_FILE_LINES = 60
SHORT_FILES: Mapping[str, str] = {
    "cluster/launch/kinds.py": "the table of kinds of clusters",
    "kernels/backends/cpu/refusals.py": "the torch-free half of a backend",
    "kernels/backends/triton/schemes/overlapped.py": "an entry of the table of recipes",
    "kernels/problem.py": "a value of the field, and every other file imports it",
    "workbench/cli/lessons.py": "a group of commands, and no other file lists or writes lessons",
    "workbench/cli/missing.py": "loaded where a library is missing, so it needs none",
    "workbench/simulator/cache/counters.py": "imports the standard library alone, for GPU hosts that have little else",
    "workbench/charts/quick_start.py": "loaded before every library that it makes quicker",
    "workbench/reports/class_page.py": "the files of a page whose markup and code are templates",
    "workbench/results/frames.py": "loaded late, since it brings pandas",
}
"""Files under 60 lines, and why their text is not in a larger one. Faces of packages and `__main__` need no reason."""
FACES = ("__init__.py", "__main__.py")

FUNCTION_LINES_MOST = 60
PARAMETERS_MOST = 6

# A device kernel cannot be cut into small functions without cost, and its sizes and strides are its parameters.
DEVICE_CODE, DEVICE_FUNCTION_LINES_MOST = "kernels/backends/triton/", 120
# In typer a command's options *are* its parameters, so the command line has as many as the commands have options.
MANY_PARAMETERS = (DEVICE_CODE, "workbench/cli")

ROOMS = ("analysis", "charts", "cli", "experiment", "lessons", "machines", "reports", "results", "simulator", "widgets")
ROOT_FILES_MOST = 6
"""One of them, old_names, goes with the next release."""

WORDS_MOST = {"README.md": 2000, "ARCHITECTURE.md": 2300, "CONTRIBUTING.md": 900}
"""Whoever reads these reads them whole. What is a record, or of one part alone, is for docs/."""


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
    lengths = {path.as_posix(): line_count(root / path) for path in python_files}
    long = [f"{path} has {lines} lines" for path, lines in lengths.items()
            if lines > (LONG_FILE_LINES_MOST if path in LONG_FILES else FILE_LINES_MOST)]  # fmt: skip
    assert not long, f"at most {FILE_LINES_MOST} lines a file: is there a second subject in it?\n" + "\n".join(long)
    assert not [path for path in LONG_FILES if lengths.get(path, 0) <= FILE_LINES_MOST], "a reason is not needed"


def test_a_short_file_has_a_reason(root: Path, room_files: list[Path]) -> None:
    short = {path.as_posix() for path in room_files
             if path.name not in FACES and line_count(root / path) < SHORT_FILE_LINES}  # fmt: skip
    without = sorted(short - set(SHORT_FILES))
    assert not without, f"under {SHORT_FILE_LINES} lines: which larger file has this subject?\n" + "\n".join(without)
    assert not set(SHORT_FILES) - short, "a reason is not needed"


def test_the_workbench_has_its_rooms_and_few_files_at_its_root(room_files: list[Path]) -> None:
    inside = [path.parts[1] for path in room_files if path.parts[0] == "workbench"]
    assert {name for name in inside if not name.endswith(".py")} == set(ROOMS)
    files = sorted(name for name in inside if name.endswith(".py"))
    assert len(files) <= ROOT_FILES_MOST, f"{len(files)} files: {', '.join(files)}"


@pytest.mark.parametrize("document", WORDS_MOST)
def test_a_document_that_is_read_whole_is_short(root: Path, document: str) -> None:
    words = len((root / document).read_text().split())
    assert words <= WORDS_MOST[document], f"{document} has {words} words, {WORDS_MOST[document]} are allowed"


def test_no_function_is_too_long(root: Path, python_files: list[Path]) -> None:
    long = [
        f"{function.place} has {function.lines} lines, {most} are allowed"
        for path in python_files
        for most in [DEVICE_FUNCTION_LINES_MOST if path.as_posix().startswith(DEVICE_CODE) else FUNCTION_LINES_MOST]
        for function in functions_of(root, path)
        if function.lines > most
    ]
    assert not long, "\n".join(long)


def test_no_function_takes_too_many_parameters(room_functions: list[Function]) -> None:
    wide = [
        f"{function.place} takes {function.parameters} parameters, {PARAMETERS_MOST} are allowed"
        for function in room_functions
        if function.parameters > PARAMETERS_MOST and not function.place.startswith(MANY_PARAMETERS)
    ]
    assert not wide, "\n".join(wide)


def line_count(path: Path) -> int:
    return len(path.read_text().splitlines())


# A variable names its thing: words that say how it was come by, and not what it is, become fewer in every folder.

EMPTY = frozenset({"asked", "found", "mine", "own", "stated", "told"})
"""Participles of nothing: a `found` is a schedule, a file or a sentence, and its name says so."""

MOST = {
    "kernels/backends/triton": 1,
}
"""By folder, how many variables and parameters have such a name. A number here only falls."""


def test_no_folder_has_more_empty_names_than_before(root: Path, room_files: list[Path]) -> None:
    counts = Counter(path.parent.as_posix() for path in room_files for _ in empty_names((root / path).read_text()))
    more = [f"{folder} has {count}, {MOST.get(folder, 0)} are allowed" for folder, count in counts.items()
            if count > MOST.get(folder, 0)]  # fmt: skip
    assert not more, f"variables called {', '.join(sorted(EMPTY))}: name what they are:\n" + "\n".join(more)


def test_what_is_bound_is_counted_and_what_is_read_is_not() -> None:
    code = "def f(asked, *, own=1):\n    found = [told for told in asked]\n    found[0] = stated\n    return found.mine"
    assert sorted(empty_names(code)) == ["asked", "found", "own", "told"]


def empty_names(code: str) -> Iterator[str]:
    """Every parameter and every assignment to such a name, loops and comprehensions included."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.arg) and node.arg in EMPTY:
            yield node.arg
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in EMPTY:
            yield node.id
