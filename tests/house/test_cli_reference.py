"""docs/cli.md says what --help says, on any terminal and with any version of typer."""

import pytest

from tests.house import cli_reference


def test_the_page_says_what_help_says() -> None:
    page, now = cli_reference.stated(), cli_reference.reference()
    sentence = "docs/cli.md is not what --help says: run `python -m tests.house.cli_reference`"
    assert cli_reference.words(page) == cli_reference.words(now), sentence


def test_the_page_depends_on_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = cli_reference.reference()
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("NO_COLOR", "1")
    assert cli_reference.reference() == wide
    assert max(map(len, wide.splitlines())) <= cli_reference.COLUMNS


def test_types_have_other_names_in_other_versions() -> None:
    assert cli_reference.words("--world <int>  Ranks. [x>=1]") == cli_reference.words("--world INTEGER  Ranks.\n x>=1")
    assert cli_reference.words("run [OPTIONS] {operator}") == cli_reference.words("run [OPTIONS] OPERATOR")
    assert cli_reference.words("Replace a file.") != cli_reference.words("Keep a file.")
