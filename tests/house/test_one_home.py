"""One home for each knowledge: schemes, operators, prices; and every kind of step is priced, played and drawn."""

import ast
from collections.abc import Container, Iterator
from pathlib import Path

import numpy as np
import pytest

from kernels.fabric import LINK_NAMES, Fabric
from kernels.machine import Machine
from kernels.operators import OPERATORS, problem
from kernels.plan import Kind, Plan, Pool
from kernels.schemes import SCHEMES, expand, schedule
from workbench.charts import timeline
from workbench.charts.theme import SPAN_COLOURS
from workbench.machines import shipped_machine
from workbench.naming import ENGINES, engine_title
from workbench.simulator import price
from workbench.simulator.play import play, spans
from workbench.simulator.price.steps import step_costs

# Only schemes know schemes, and only operators operators: nothing else compares their names, but for BASELINE.

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


# One home for what things cost: in the simulator, prices alone read a Machine's numbers.

NUMBERS = {"costs", "device", "dimensions", "rates", "collectives"}
"""The parts of a Machine that hold numbers."""
HOME_OF_PRICES = "workbench/simulator/price/"
FITTING = "workbench/simulator/calibrate"
"""Who fits these numbers to what was measured reads them, too."""


def numbers_read(source: str) -> Iterator[str]:
    """Line and name of what *source* reads of a Machine, or of anything that has parts of these names."""
    read = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)]
    named = {id(node.value) for node in read if node.attr == "name"}  # what a device is called is no number
    for node in read:
        if node.attr in NUMBERS and id(node) not in named:
            yield f"{node.lineno} reads .{node.attr}"


def test_only_prices_read_the_numbers_of_a_machine(root: Path, room_files: list[Path]) -> None:
    files = [path for path in room_files if path.as_posix().startswith("workbench/simulator/")]
    others = [path for path in files if not path.as_posix().startswith((HOME_OF_PRICES, FITTING))]
    assert len(files) > len(others) > 0
    readers = [f"{path} line {line}" for path in others for line in numbers_read((root / path).read_text())]
    assert not readers, "; ".join(readers) + f". Accepted: a function of {HOME_OF_PRICES}"


def test_prices_are_where_this_rule_says(root: Path) -> None:
    assert Path(price.__file__).parent == root / HOME_OF_PRICES


def test_reading_a_number_is_seen() -> None:
    assert list(numbers_read("x = machine.costs.launch_seconds")) == ["1 reads .costs"]
    assert list(numbers_read("x = machine.device")) == ["1 reads .device"]
    assert not list(numbers_read("x = machine.name + machine.device.name"))


# Every kind of step is priced, played and drawn, and every pool has a row of the timeline: a new one is told here.

MACHINES = {"laptop_cpu": Fabric(kind="shared_memory"), "h200_nvl2": Fabric(kind="nvlink")}
LOOKUP = ("embedding_all_to_all", "sequential", {"collective": "library"})
MADE_OF: dict[Kind, tuple[str, str, dict[str, str]]] = {
    Kind.COMPUTE: LOOKUP,
    Kind.PUT: ("gemm_reduce_scatter", "fused", {}),
    Kind.REDUCE: ("gemm_reduce_scatter", "fused", {}),
    Kind.COPY: LOOKUP,
    Kind.COLLECTIVE: LOOKUP,
}
"""Operator, scheme and axes whose Plan has steps of a kind."""
SIZES = {"embedding_all_to_all": {"tables_per_rank": 4, "rows": 1000, "dim": 64, "batch": 512, "pooling": 4}}
GEMM = {"m": 512, "n": 512, "k": 512}


def plan_with(kind: Kind, machine: Machine) -> Plan:
    """A Plan of two ranks with steps of *kind*."""
    operator, scheme, axes = MADE_OF[kind]
    dtype = "float32" if machine.backend == "cpu" else "bfloat16"
    asked = problem(operator, SIZES.get(operator, GEMM), world=2, dtype=dtype)
    return expand(asked, schedule(asked, scheme, axes, machine, MACHINES[machine.name]))


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("kind", Kind, ids=lambda kind: kind.word)
def test_every_kind_of_step_is_priced_played_and_drawn(kind: Kind, name: str) -> None:
    machine = shipped_machine(name)
    plan = plan_with(kind, machine)
    costs = step_costs(plan, machine, MACHINES[name])
    played = play(plan, costs)
    steps = np.flatnonzero(plan.kind == kind)
    assert len(steps)
    assert (costs.issue[steps] + costs.transit[steps] > 0).all()
    assert (played.finish[steps] > played.start[steps]).all()
    drawn = {span.step: span.kind for span in spans(plan, played, costs)}
    assert {drawn[plan.address(int(step))] for step in steps} == {kind.word}


@pytest.mark.parametrize("kind", Kind, ids=lambda kind: kind.word)
def test_every_kind_of_step_has_a_colour_and_is_said_in_words(kind: Kind) -> None:
    assert kind.word in SPAN_COLOURS
    assert timeline.step_text(f"0/{kind.word}/1/0") != timeline.step_text("0/nobody's/1/0").replace(
        "nobody's", kind.word
    )


def test_every_pool_has_a_row_of_its_own_on_the_timeline() -> None:
    """And the link has two: bytes for other hosts leave by another one."""
    assert [word for word in ENGINES if word not in LINK_NAMES[1:]] == [pool.word for pool in Pool]
    assert set(LINK_NAMES) <= set(ENGINES)
    titles = [engine_title(pool.word, 0) for pool in Pool]
    assert len(set(titles)) == len(Pool)
    assert not any("_" in title for title in titles)


def test_what_plans_are_made_of_is_known_to_this_test() -> None:
    assert MADE_OF.keys() == set(Kind)
    assert {operator for operator, _, _ in MADE_OF.values()} <= OPERATORS.keys()
