"""The words load in every rank, notebook and shell: quickly, and without torch or any other library but numpy."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

# The promise is 100 ms above numpy; twice that still tells a heavy import from a busy machine.
PROMISED_SECONDS = 0.1
ALLOWED_SECONDS = 2 * PROMISED_SECONDS

PROBE = """
import importlib, json, sys, time
import numpy
before = set(sys.modules)
start = time.process_time()
for name in sys.argv[1:]:
    importlib.import_module(name)
seconds = time.process_time() - start
loaded = {name.partition(".")[0] for name in set(sys.modules) - before}
print(json.dumps({"seconds": seconds, "loaded": sorted(loaded)}))
"""


@pytest.fixture(scope="module")
def words(root: Path) -> list[str]:
    """The lowest floor of the import contract, as far as it is built, with operators and schemes."""
    contracts = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    floors = next(contract["layers"] for contract in contracts if contract.get("containers") == ["kernels"])
    names = [name.strip(" ()") for floor in floors[-3:] for name in floor.split(":")]
    built = [name for name in names if list((root / "kernels").glob(f"{name}*"))]
    return [f"kernels.{name}" for name in built]


def probe(root: Path, words: list[str]) -> dict:
    command = [sys.executable, "-c", PROBE, *words]
    answer = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=200)
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)


def test_words_load_no_library_but_numpy(root: Path, words: list[str]) -> None:
    loaded = probe(root, words)["loaded"]
    strangers = [name for name in loaded if name not in sys.stdlib_module_names and name not in {"kernels", "numpy"}]
    assert not strangers, f"importing {', '.join(words)} also loads {', '.join(strangers)}"


def test_the_command_line_begins_without_what_takes_seconds(root: Path) -> None:
    loaded = probe(root, ["workbench.cli.app"])["loaded"]
    assert not set(loaded) & {"torch", "triton", "pandas", "numba", "altair", "distributed"}


def test_words_load_in_a_blink(root: Path, words: list[str]) -> None:
    seconds = min(probe(root, words)["seconds"] for _ in range(3))
    assert seconds <= ALLOWED_SECONDS, (
        f"the words took {seconds:.3f} s of CPU to import: {PROMISED_SECONDS} s promised, {ALLOWED_SECONDS} s allowed"
    )
