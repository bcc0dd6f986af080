"""What the documents name exists: files, functions, links, commands and words."""

import ast
import inspect
import re
from pathlib import Path

import pytest
import typer.main

from cluster.gang import Gang
from kernels.fabric import KINDS as FABRICS
from kernels.operators import OPERATORS
from kernels.outcome import SOURCES, STAGES
from kernels.plan import Kind, Pool
from kernels.schemes import SCHEMES
from kernels.trial import PARTS
from workbench.cli.app import app

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(str(path.relative_to(ROOT)) for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")))
FOLDERS = "kernels|cluster|workbench|notebooks|tests|data|docs"

FILE = re.compile(rf"`((?:{FOLDERS})/[\w./-]*)")
FUNCTION = re.compile(rf"`((?:{FOLDERS})/[\w/]+\.py): ([\w.]+)`")
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)")
YOURS = ("data/runs",)
"""What a person's own work makes."""


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_file_that_is_named_exists(document: str) -> None:
    path = ROOT / document
    text = path.read_text()
    named = {name: ROOT / name for name in FILE.findall(text)} | {
        link: path.parent / link for link in LINK.findall(text)
    }
    missing = sorted(name for name, place in named.items() if not place.exists() and not name.startswith(YOURS))
    assert not missing, f"{document} names what does not exist: {', '.join(missing)}"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_function_that_is_named_exists(document: str) -> None:
    for file, name in FUNCTION.findall((ROOT / document).read_text()):
        assert name in definitions(ROOT / file), f"{document} names {name}, which {file} does not define"


def test_every_command_is_in_the_reference() -> None:
    text = (ROOT / "docs" / "cli.md").read_text()
    absent = [command for command in commands() if f"workbench {command}" not in text]
    assert not absent, f"docs/cli.md says nothing of: {', '.join(absent)}"


def test_every_command_of_the_documents_exists() -> None:
    known = {command.split()[0] for command in commands()}
    for document in DOCUMENTS:
        told = re.findall(r"(?:^|`|\$ )workbench ([a-z-]+)", (ROOT / document).read_text(), re.MULTILINE)
        assert not set(told) - known, f"{document} tells of commands that are none: {set(told) - known}"


def test_every_word_that_people_meet_is_explained() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    plan_words = [member.name for enum in (Kind, Pool) for member in enum]
    words = [*OPERATORS, *SCHEMES, *SOURCES, *STAGES, *PARTS, *FABRICS, *plan_words]
    absent = [word for word in words if f"`{word}`" not in text]
    assert not absent, f"ARCHITECTURE.md does not explain: {', '.join(absent)}"


@pytest.mark.parametrize("document", ["README.md", "docs/clusters.md"])
def test_a_frozen_client_keeps_its_ranks_as_long_as_the_documents_say(document: str) -> None:
    lease_s = inspect.signature(Gang).parameters["lease_s"].default
    sentences = [each for each in re.split(r"[.;]\s", (ROOT / document).read_text()) if "froze" in each]
    assert sentences
    assert all(f"{lease_s:.0f} s" in " ".join(each.split()) for each in sentences), sentences


def commands() -> list[str]:
    """All commands, those of groups with their group's name before them."""
    found = []
    for name, command in typer.main.get_group(app).commands.items():
        inner = getattr(command, "commands", None)
        found += [f"{name} {each}" for each in inner] if inner else [name]
    return found


def definitions(path: Path) -> set[str]:
    """Functions, classes and methods of a file, methods as Class.method."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{each.name}" for each in node.body if isinstance(each, ast.FunctionDef)}
    return found
