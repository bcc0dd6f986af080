"""The examples of README and of docs/cli.md are what the commands print."""

from tests.workbench.readme_examples import COLUMNS, examples, printed


def test_examples_are_what_a_terminal_of_100_columns_prints() -> None:
    known = list(examples().values())
    for stated, shown in zip(known, printed(known), strict=True):
        assert stated == shown, "`python -m tests.workbench.readme_examples` writes them"
        assert max(map(len, shown.splitlines()[1:])) <= COLUMNS
