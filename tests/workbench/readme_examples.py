"""README's examples as a terminal of 100 columns prints them; `python -m tests.workbench.readme_examples` writes them.

An example stands between <!-- NAME --> and <!-- /NAME -->; its first line is the command. What would be measured is
replayed from a recording that is shipped, on machines as shipped: the text is the same on every computer.
"""

from __future__ import annotations

import re
import shlex
import tempfile
from pathlib import Path

from tests.workbench.terminals import ROOT, Command, run_on

README = ROOT / "README.md"
COLUMNS = 100
RECORDING = "laptop_overlap_2_ranks"
NAMES = ("run", "predict")
FENCE = "```"


def example(name: str, text: str) -> str:
    """The lines of one example, its command first."""
    block = re.search(rf"<!-- {name} -->\n{FENCE}\n(.*?){FENCE}\n<!-- /{name} -->", text, re.DOTALL)
    assert block, f"README.md has no example {name}"
    return block[1]


def printed(examples: list[str]) -> list[str]:
    """What a terminal holds after the command of each of *examples*."""
    commands = [text.partition("\n")[0] for text in examples]
    words = [tuple(shlex.split(command.removeprefix("$ workbench "))) for command in commands]
    with tempfile.TemporaryDirectory() as folder:
        answers = run_on([Command(words=each, columns=COLUMNS) for each in words], Path(folder), RECORDING)
    return [f"{command}\n{shown.out}" for command, shown in zip(commands, answers, strict=True)]


def main() -> None:
    text = README.read_text()
    examples = [example(name, text) for name in NAMES]
    for before, after in zip(examples, printed(examples), strict=True):
        text = text.replace(before, after)
    README.write_text(text)


if __name__ == "__main__":
    main()
