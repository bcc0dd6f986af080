"""A variable names its thing: words that say how it was come by, and not what it is, become fewer in every folder."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

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
