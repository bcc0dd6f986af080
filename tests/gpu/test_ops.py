"""torch.ops.workbench on GPUs, one process per GPU: as on CPU ranks, and graphs, streams, calls beside slow ranks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tests.gpu.ops import ALONE, CASES, DEADLINE_S, asked, gang_of
from tests.kernels.ops.ops_gang import OpsGang

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]

WORLD = max(2, torch.cuda.device_count())


@pytest.fixture(scope="module")
def gang() -> Iterator[OpsGang]:
    """A rank for each GPU, or two that share the only one."""
    made = gang_of(WORLD)
    yield made
    made.close()


@pytest.fixture(scope="module")
def alone() -> Iterator[OpsGang]:
    made = OpsGang(1, "cuda")
    yield made
    made.close()


@pytest.mark.skipif(torch.cuda.device_count() < 1, reason="ranks need a GPU, and there is none")
@pytest.mark.parametrize(("check", "dtype", "arguments"), asked(WORLD))
def test_on_all_gpus_of_this_host(gang: OpsGang, check: str, dtype: str, arguments: dict[str, Any]) -> None:
    gang.check(check, dtype, deadline_s=DEADLINE_S, **arguments)


@pytest.mark.parametrize(("check", "dtype", "arguments"), [case for case in CASES if case[0] in ALONE])
def test_on_one_gpu(alone: OpsGang, check: str, dtype: str, arguments: dict[str, Any]) -> None:
    alone.check(check, dtype, deadline_s=DEADLINE_S, **arguments)
