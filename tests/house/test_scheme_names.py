"""Only schemes know schemes, and only operators operators: nothing else compares their names, but for BASELINE."""

import ast
from collections.abc import Container, Iterator
from pathlib import Path

from kernels.operators import OPERATORS
from kernels.schemes import SCHEMES

HOME = "kernels/schemes/"
"""Where a scheme's name may be compared. Elsewhere it may be a key of a table, or a default."""


def compared_names(source: str, names: Container[object] = SCHEMES) -> list[int]:
    """Lines of *source* that compare with one of *names*: ==, in, startswith, or a case of match.

    A constant of the file that holds such a name counts as the name.
    """
    tree = ast.parse(source)
    constants = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign) and _is_name(node.value, names, frozenset())
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return sorted({line for node in ast.walk(tree) for line in _lines(node, names, frozenset(constants))})


def _lines(node: ast.AST, names: Container[object], constants: frozenset[str]) -> Iterator[int]:
    match node:
        case ast.Compare(left, _, others):
            operands = (left, *others)
        case ast.MatchValue(value):
            operands = (value,)
        case ast.Call(ast.Attribute(attr="startswith" | "endswith"), arguments):
            operands = tuple(arguments)
        case _:
            return
    if any(_is_name(operand, names, constants) for operand in operands):
        yield operands[0].lineno


def _is_name(operand: ast.expr, names: Container[object], constants: frozenset[str]) -> bool:
    match operand:
        case ast.Constant(value):
            return isinstance(value, str) and value in names
        case ast.Name(name):
            return name in constants
        case ast.Tuple(members) | ast.List(members) | ast.Set(members):
            return any(_is_name(member, names, constants) for member in members)
    return False


def test_names_of_schemes_are_compared_in_schemes_alone(root: Path, room_files: list[Path]) -> None:
    elsewhere = [path for path in room_files if not path.as_posix().startswith(HOME)]
    places = [f"{path}:{line}" for path in elsewhere for line in compared_names((root / path).read_text())]
    assert not places, (
        "these lines compare a scheme's name. Accepted: a column of the Plan, a function of kernels/schemes, a table "
        "keyed by scheme, or BASELINE:\n" + "\n".join(places)
    )


def test_names_of_operators_are_compared_nowhere(root: Path, room_files: list[Path]) -> None:
    sources = {path: (root / path).read_text() for path in room_files}
    places = [f"{path}:{line}" for path, source in sources.items() for line in compared_names(source, OPERATORS)]
    assert not places, (
        "these lines compare an operator's name. Accepted: a field of Operator, or a table keyed by operator:\n"
        + "\n".join(places)
    )


def test_every_way_to_compare_a_name_is_seen_and_tables_are_not() -> None:
    seen = (
        'x.scheme == "fused"',
        '"fused" != x',
        'x in ("library", "sequential")',
        'match x:\n case "fused": pass',
        'match x:\n case "a" | "decomposed": pass',
        'x.startswith("fused")',
        'OURS = "fused"\nx == OURS',
        'OURS = ("fused", "decomposed")\nx in OURS',
    )
    assert [bool(compared_names(source)) for source in seen] == [True] * len(seen)
    unseen = ('{"fused": 1}[x]', "x == BASELINE", 'f("fused")', 'x == "library"', 'x in {"fused": 1}')
    assert not any(compared_names(source) for source in unseen)
