"""Every file says its idea first, names no machine's folders, and is small enough for git."""

import ast
import re
from pathlib import Path

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
