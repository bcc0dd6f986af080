"""CPU ranks on emulated hosts put whole rows between them, one put for each pair of hosts and slice, and are right."""

from typing import Any

import pytest

from kernels.fabric import LINK_NAMES
from kernels.operators import OPERATORS
from kernels.operators.base import Flow
from kernels.outcome import Measurement
from kernels.plan import Kind
from kernels.schedule import Refusal
from kernels.schemes import axis_rules, expand
from tests.kernels.conftest import small

RATE = "bandwidth_bytes_per_second=1e9"
TWO, FOUR, ONE = f"emulated:{RATE},hosts=2", f"emulated:{RATE},hosts=4", f"emulated:{RATE}"
PLACES = [(2, TWO, 1), (4, TWO, 2), (4, TWO, 1), (4, FOUR, 1), (4, ONE, 1), (4, "shared_memory", 2)]
"""World, fabric, and ranks of a host that share a put."""
TURNS: list[dict[str, Any]] = [{}, {"slice_tiles": 100}, {"tile_order": "natural"}, {"tile_order": "remote_first"}]
puts = pytest.mark.parametrize("operator", sorted(axis_rules.BETWEEN_HOSTS))


def trials(make_trial: Any, operator: str, place: tuple[int, str, int], dtype: str = "float32") -> list[Any]:
    world, fabric, each = place
    problem = small(operator, world, dtype)
    return [make_trial(problem, "fused", fabric=fabric, transport="gin", ranks_per_host=each,
                       **{"tile": "16x32x96", "slice_tiles": 3, **turn}) for turn in TURNS]  # fmt: skip


@pytest.mark.slow(keeps=1)
@puts
@pytest.mark.parametrize("place", PLACES)
def test_puts_between_hosts_equal_the_reference(gangs: Any, make_trial: Any, operator: str, place: Any) -> None:
    listed = trials(make_trial, operator, place)
    listed = listed if place == PLACES[1] else listed[:1]  # several ranks of several hosts turn in every order
    for trial, outcome in zip(listed, gangs(place[0]).outcomes(listed), strict=True):
        assert isinstance(outcome, Measurement), f"{trial.schedule}: {outcome}"
        assert outcome.correct is True, f"{trial.schedule}"


@pytest.mark.slow(keeps=1)
@puts
def test_bfloat16_equals_the_reference(gangs: Any, make_trial: Any, operator: str) -> None:
    outcomes = gangs(4).outcomes(trials(make_trial, operator, (4, TWO, 2), "bfloat16"))
    assert all(isinstance(one, Measurement) and one.correct for one in outcomes)


@puts
@pytest.mark.parametrize(("each", "fabric"), [(2, TWO), (1, FOUR)])
def test_a_pair_of_hosts_has_one_put_for_each_slice_and_place(
    make_trial: Any, operator: str, each: int, fabric: str
) -> None:
    """Results: of all ranks of a host at once, to their receiver. Rows: to one rank of a host, who stores them on."""
    trial, *_ = trials(make_trial, operator, (4, fabric, each))
    plan = expand(trial.problem, trial.schedule)
    is_put, host = plan.kind == Kind.PUT, lambda rank: rank // each
    crosses = is_put & (host(plan.rank) != host(plan.peer))
    assert (plan.rank[crosses] % each == plan.peer[crosses] % each).all()
    slices = {plan.index[s] for s in range(len(plan)) if crosses[s] and plan.rank[s] == 0 and plan.peer[s] == each}
    assert crosses.sum() == 4 * (4 // each - 1) * len(slices)
    least = OPERATORS[operator].wire_bytes(trial.problem) // 3 * (4 // each - 1)
    together = 1 if OPERATORS[operator].flow is Flow.RECEIVE else each
    for rank in range(4):
        assert plan.num_bytes[crosses & (plan.rank == rank)].sum() == least * together


def test_what_crosses_hosts_is_on_the_link_between_them(gangs: Any, make_trial: Any) -> None:
    trial, *_ = trials(make_trial, "gemm_all_to_all", (4, TWO, 2))
    (outcome,) = gangs(4).outcomes([trial])
    assert isinstance(outcome, Measurement)
    puts_of = {link: {(span.rank, int(span.step.split("/")[2])) for span in outcome.spans if span.pool == link}
               for link in LINK_NAMES}  # fmt: skip
    assert puts_of[LINK_NAMES[0]] == {(0, 1), (1, 0), (2, 3), (3, 2)}
    assert puts_of[LINK_NAMES[1]] == {(0, 2), (1, 3), (2, 0), (3, 1)}


@pytest.mark.parametrize(
    ("world", "fabric", "axes", "sentence"),
    [
        (1, ONE, {}, "nobody to put to in world = 1: 1 < 2"),
        (4, TWO, {"ranks_per_host": 3}, "does not divide 4 ranks: 4 / 3 is not whole"),
        (4, TWO, {"ranks_per_host": 4}, "leaves 1 host for 4 ranks, and no put goes between fewer than 2"),
        (4, FOUR, {"ranks_per_host": 2}, "does not fit hosts of 1 ranks: 1 / 2 is not whole"),
        (2, TWO, {"slice_tiles": 2}, "is less than a row of tiles of 16x32x96, which has 3: 2 < 3"),
        (2, TWO, {"write": "staged"}, "what crosses hosts is staged"),
        (2, "network", {}, "0 network cards that a kernel can start"),
    ],
)
def test_what_cannot_be_put_is_refused(
    make_trial: Any, world: int, fabric: str, axes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(Refusal) as refused:
        make_trial(small("gemm_all_to_all", world), "fused", fabric=fabric, transport="gin", tile="16x32x96", **axes)
    assert sentence in str(refused.value)
    assert "Accepted: " in str(refused.value)


def test_other_operators_have_no_such_kernel(make_trial: Any) -> None:
    with pytest.raises(Refusal, match="3 operators have a kernel that puts between hosts"):
        make_trial(small("gemm_reduce_scatter", 2), "fused", fabric=TWO, transport="gin")
