"""Every kind of step is priced, played and drawn, and every pool has a row of the timeline: a new one is told here."""

import numpy as np
import pytest

from kernels.fabric import LINK_NAMES, Fabric
from kernels.machine import Machine
from kernels.operators import OPERATORS, problem
from kernels.plan import Kind, Plan, Pool
from kernels.schemes import expand, schedule
from workbench.charts import timeline
from workbench.charts.theme import SPAN_COLOURS
from workbench.machines import shipped_machine
from workbench.naming import ENGINES, engine_title
from workbench.simulator.play import play, spans
from workbench.simulator.price.steps import step_costs

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
