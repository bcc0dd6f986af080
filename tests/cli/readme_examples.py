"""Examples of documents as a terminal of 100 columns has them; `python -m tests.cli.readme_examples` writes them.

An example stands between <!-- NAME --> and <!-- /NAME -->; its first line is the command. What would be measured is
replayed from a recording that is shipped, on machines as shipped: the text is the same on every computer.
"""

from __future__ import annotations

import re
import shlex
import tempfile
from pathlib import Path

from tests.cli.terminals import ROOT, Command, run_on

PLACES = {"run": "README.md", "predict": "docs/cli.md"}
"""By name, the document of each example."""
COLUMNS = 100
RECORDING = "laptop_overlap_2_ranks"
FENCE = "```"


def examples() -> dict[str, str]:
    """The lines of every example as the documents have them, its command first."""
    return {name: example(name, (ROOT / document).read_text()) for name, document in PLACES.items()}


def example(name: str, text: str) -> str:
    block = re.search(rf"<!-- {name} -->\n{FENCE}\n(.*?){FENCE}\n<!-- /{name} -->", text, re.DOTALL)
    assert block, f"{PLACES[name]} has no example {name}"
    return block[1]


def printed(examples: list[str]) -> list[str]:
    """What a terminal holds after the command of each of *examples*."""
    commands = [text.partition("\n")[0] for text in examples]
    words = [tuple(shlex.split(command.removeprefix("$ workbench "))) for command in commands]
    with tempfile.TemporaryDirectory() as folder:
        answers = run_on([Command(words=each, columns=COLUMNS) for each in words], Path(folder), RECORDING)
    return [f"{command}\n{shown.out}" for command, shown in zip(commands, answers, strict=True)]


def main() -> None:
    known = examples()
    for (name, before), after in zip(known.items(), printed(list(known.values())), strict=True):
        path = ROOT / PLACES[name]
        path.write_text(path.read_text().replace(before, after))


if __name__ == "__main__":
    main()
