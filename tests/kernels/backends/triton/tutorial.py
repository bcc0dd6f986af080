"""The files that the tutorial notebook writes: what its reader runs is what is tested, and there is no second copy."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NOTEBOOK = Path(__file__).parents[4] / "notebooks" / "appendix_new_operator.ipynb"
MARK = "%%writefile {scratch.name}/"


def files() -> dict[str, str]:
    """Text by file name, as the cells have it."""
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    parts = [source.removeprefix(MARK).split("\n", 1) for source in sources if source.startswith(MARK)]
    return {name: text + "\n" for name, text in parts}


def write(folder: Path) -> None:
    """All of them into *folder*."""
    for name, text in files().items():
        (folder / name).write_text(text)


@contextmanager
def importable(folder: Path) -> Iterator[None]:
    """All of them in *folder*, from which this process and the ranks that it starts import them."""
    write(folder)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in files():
            sys.modules.pop(name.removesuffix(".py"), None)
