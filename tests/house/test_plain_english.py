"""What people read is plain English: refusals, captions, help and documents say who does what, in short sentences."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from click import Command
from typer.main import get_command

from workbench.cli.app import app

WORDS_MOST = 35
"""Of one sentence, a filled-in value counted as one word."""
PACKAGES = ("kernels/", "cluster/", "workbench/")
STILTED = re.compile(
    r"\b(was|were|are|is) asked for\b|\bwas asked to\b|\bwhich is unknown\b|\bwhich nothing reads\b"
    r"|\b(was|were) to be\b|Accepted: such\b|\bwhat is asked cannot be\b|\bcannot be had\b|\bcould not be had\b"
    r"|\bsays nothing of\b|\bis begun\b|^Of [a-z]+ the\b"
)
"""Turns of phrase that hide who does what; the plain form of each is a sentence whose verb comes early."""
PRIVATE = re.compile(
    r"\b(beside|told|tells|outdone|sittings?|is asked|was asked|are asked|what is asked"
    r"|stands? (in|at|there|where|here|beside|once|on|alone)"
    r"|nobody of|those that stand|by who|has not any)\b"
)
"""Words of ours for which the field, or plain English, has another: next to, reports, run, is in, requested."""
GLUED = re.compile(r"(?<![`\w.])[a-z]{2,}\.[A-Z][a-z]+ [a-z]")
"""Two sentences without a space between them: somebody replaced more than they meant."""
ROOT = Path(__file__).parents[2]
DOCUMENTS = (
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    *sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/**/*.md")),
)
NO_PROSE = re.compile(r"^```.*?^```$|<!--.*?-->|^\|.*?$|^!\[.*?$", re.MULTILINE | re.DOTALL)
"""Code blocks, comments, tables and pictures of a document."""
SAID = re.compile(r"[A-Z{`].*[.!?:]$|\bAccepted\b")
"""A text that is a sentence, or ends as one: what is neither (SQL, names of tags) may be long."""


def test_sentences_that_people_read_are_plain_and_short(root: Path, python_files: list[Path]) -> None:
    ours = [path for path in python_files if str(path).startswith(PACKAGES)]
    faulty = [f"{path} line {number}: {fault}: {text}" for path in ours
             for number, text in texts(root / path) for fault in faults(text)]  # fmt: skip
    assert not faulty, "\n".join(faulty)


def test_lessons_are_plain(root: Path) -> None:
    faulty = [f"{path.name}: {fault}: {text}" for path in sorted((root / "notebooks").glob("*.ipynb"))
             for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "markdown"
             for text in cell.source.split("\n\n") for fault in faults(" ".join(text.split()))]  # fmt: skip
    assert not faulty, "\n".join(faulty)


def test_help_is_plain() -> None:
    faulty = [f"{name}: {fault}: {text}" for name, command in commands(get_command(app))
             for text in [command.help or "", *(getattr(each, "help", "") or "" for each in command.params)]
             for fault in faults(" ".join(text.split()))]  # fmt: skip
    assert not faulty, "\n".join(faulty)


def test_docstrings_are_plain(root: Path, room_files: list[Path]) -> None:
    faulty = [f"{path} line {number}: {fault}: {text}" for path in room_files
              for number, text in docstrings(root / path) for fault in docstring_faults(text)]  # fmt: skip
    assert not faulty, f"{len(faulty)}:\n" + "\n".join(faulty)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_documents_are_plain(root: Path, document: str) -> None:
    faulty = [f"{fault}: {text}" for text in prose((root / document).read_text()) for fault in faults(text)]
    assert not faulty, "\n".join(faulty)


@pytest.mark.parametrize(
    "stilted",
    [
        "scheme = concurrent was asked for, but this version has 0 of the 1 expansions it needs.",
        "operator 'gemm' was asked for, which is unknown. Accepted: gemm_all_to_all.",
        "No estimate: what is asked cannot be. The form says why.",
        "Of decoding the recordings tell better than the estimate.",
        "A report named x was written. Accepted: such an ending, or --to.",
        "The report was to be written to x, which is a folder.",
        "Accepted: mappings from column to value.Keep this timeline above the next ones.",
        " ".join(["Words", *["word"] * WORDS_MOST]) + ".",
    ],
)
def test_a_stilted_sentence_is_found(stilted: str) -> None:
    assert list(faults(stilted))


@pytest.mark.parametrize(
    "plain",
    [
        "scheme = concurrent does not run yet. It is one of 4 schemes, and 3 run. Accepted: sequential.",
        "world = 16 is too large for x, which connects 8 ranks: 16 > 8. Accepted: world 1..8.",
        "A piece is no longer needed.",
    ],
)
def test_a_plain_sentence_is_not(plain: str) -> None:
    assert not list(faults(plain))


def test_prose_is_what_a_document_says_without_its_code_and_tables() -> None:
    text = (
        "# Title\n\nOne sentence\ngoes on.\n\n```\ncode\n```\n| a | b |\n|---|---|\n- An item\n  goes on.\n- Another."
    )
    assert list(prose(text)) == ["# Title", "One sentence goes on.", "- An item goes on.", "- Another."]


def prose(text: str) -> Iterator[str]:
    """Paragraphs and items of a list, each on one line."""
    for paragraph in re.split(r"\n\s*\n|\n(?=- )", NO_PROSE.sub("", text)):
        if words := " ".join(paragraph.split()):
            yield words


def commands(command: Command) -> Iterator[tuple[str, Command]]:
    yield str(command.name), command
    for below in getattr(command, "commands", {}).values():
        yield from commands(below)


def faults(text: str) -> Iterator[str]:
    for turn in STILTED.finditer(text):
        yield f"stilted ({turn[0]})"
    if glued := GLUED.search(text):
        yield f"two sentences run together ({glued[0]})"
    for sentence in re.split(r"(?<=[.!?:;])\s+", re.sub(r"Accepted[^.]*:.*", "", text)):
        if len(words := sentence.split()) > WORDS_MOST and SAID.search(text):
            yield f"{len(words)} words in one sentence"


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """Every string that is a statement: docstrings, and what is written below a value."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value


def docstring_faults(text: str) -> Iterator[str]:
    """What `faults` says of each paragraph; then private words, and a first line that is a genitive without a verb."""
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*[-|] )", NO_PROSE.sub("", text)):
        yield from faults(" ".join(paragraph.split()))
    for word in PRIVATE.finditer(text):
        yield f"a private word ({word[0]})"
    if re.match(r"Of [^,]*[.;]", text):
        yield "no verb"


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Sentences in code but for docstrings."""
    tree = ast.parse(path.read_text())
    nodes = list(ast.walk(tree))
    silent = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    silent |= {
        id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in ast.walk(node) if part is not node
    }
    for node in nodes:
        if id(node) not in silent and (text := said(node)) and text.count(" ") > 2:
            yield node.lineno, text


def said(node: ast.AST) -> str:
    """The text of a string; a value that is filled in stands as `{}`."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return " ".join(node.value.split())
    if isinstance(node, ast.JoinedStr):
        parts = (part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
        return " ".join("".join(map(str, parts)).split())
    return ""
