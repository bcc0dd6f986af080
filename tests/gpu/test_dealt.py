"""Through Dask on several GPUs: gangs that run at once are each on GPUs of their own, told by torch from inside."""

from __future__ import annotations

from importlib import import_module, util
from typing import Any

import pytest
import torch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(300),
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="two gangs need a GPU each, and there are fewer than 2"),
    pytest.mark.skipif(util.find_spec("distributed") is None, reason="Dask is not installed here"),
]


@pytest.fixture
def dealt() -> Any:
    """Imported late: on a host without Dask the other tests of this folder run all the same."""
    return import_module("tests.gpu.dealt")


@pytest.mark.parametrize("sees", ["as on ssh", "numbers", "as dask-cuda turns them", "one may have the first only"])
def test_two_gangs_on_workers_of_any_environment(dealt: Any, sees: str) -> None:
    with dealt.somebody_elses(dealt.SEES[sees]) as address:
        dealt.check(address)


def test_two_gangs_on_the_local_cluster(dealt: Any) -> None:
    with dealt.our_own() as address:
        dealt.check(address)


def test_more_workers_than_gpus_leave_cpu_ranks(dealt: Any) -> None:
    dealt.check_surplus()
