"""README's examples are what the commands print."""

from tests.workbench.readme_examples import COLUMNS, NAMES, README, example, printed


def test_examples_are_what_a_terminal_of_100_columns_prints() -> None:
    text = README.read_text()
    examples = [example(name, text) for name in NAMES]
    for stated, found in zip(examples, printed(examples), strict=True):
        assert stated == found, "`python -m tests.workbench.readme_examples` writes them"
        assert max(map(len, found.splitlines()[1:])) <= COLUMNS
