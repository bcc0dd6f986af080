"""Every value of every axis that is offered is legal beside some others, at small sizes and at large ones."""

from dataclasses import replace

import pytest

from kernels import schemes
from kernels.fabric import parse
from kernels.machine import Machine
from kernels.operators import OPERATORS, problem
from tests.kernels import covering
from tests.kernels.ragged import MACHINE, ON_CPUS, WORLDS, covered


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("scheme", schemes.SCHEMES)
@pytest.mark.parametrize("operator", OPERATORS)
def test_every_value_that_is_offered_is_legal_beside_some_others(operator: str, scheme: str, world: int) -> None:
    for place in covered(operator, scheme, world):
        if place.schedules:
            assert not covering.absent(place.known, place.schedules), place.place


LARGE = {
    "gemm": {"m": 65_536, "n": 65_536, "k": 8192},
    "gemv": {"n": 65_536, "k": 65_536, "tokens": 8},
    "gather": {"tables_per_rank": 64, "rows": 1000, "dim": 128, "batch": 65_536, "pooling": 16},
}


@pytest.mark.parametrize(("machine", "link"), [(MACHINE, "nvlink"), (ON_CPUS, "shared_memory")])
@pytest.mark.parametrize("operator", OPERATORS)
def test_at_large_sizes_nothing_is_offered_that_is_cut_too_finely(operator: str, machine: Machine, link: str) -> None:
    asked = problem(operator, LARGE[OPERATORS[operator].work], world=4)
    large = replace(machine, device=replace(machine.device, memory_bytes=1e12))
    for scheme in schemes.SCHEMES:
        known, fabric = schemes.axes(asked, scheme, large, parse(link)), parse(link)
        chosen = covering.covering(known, covering.legal(asked, scheme, large, fabric), pairs=False)
        assert chosen
        assert not covering.absent(known, chosen), scheme
