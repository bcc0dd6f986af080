"""What the triton backend answers about puts between hosts: which fabric, which operator, which baseline."""

from dataclasses import replace
from typing import Any

import pytest

from kernels.backends.triton import refusals
from kernels.fabric import parse
from kernels.schedule import Schedule
from kernels.schemes import expand
from kernels.trial import Trial
from tests.kernels.backends.triton.conftest import gpu_trial
from tests.kernels.backends.triton.gin.test_kernels import by_network

GEMM = {"m": 1024, "n": 1024, "k": 512}


def between(trial: Trial) -> Trial:
    """*trial* on a fabric of several hosts."""
    return replace(trial, fabric=parse("network"))


def trial(operator: str = "gemm_all_to_all", scheme: str = "fused", **axes: Any) -> Trial:
    return gpu_trial(operator, GEMM, world=2, dtype="bfloat16", scheme=scheme, **axes)


def refusal(of: Trial, shares_heap: bool = False) -> str:
    return refusals.refusal(of, shares_heap) or ""


def test_three_operators_put_between_hosts() -> None:
    assert refusal(between(by_network(trial()))) == ""
    assert refusal(between(by_network(trial("all_gather_gemm", comm_sms=0)))) == ""
    other = refusal(between(by_network(trial("gemm_reduce_scatter"))))
    assert other.startswith("transport = gin does not run gemm_reduce_scatter")
    accepted = other.partition("Accepted: ")[2].rstrip(".").split(", ")
    assert sorted(accepted) == ["all_gather_gemm", "embedding_all_to_all", "gemm_all_to_all"]


def test_on_one_host_ranks_store_and_do_not_put() -> None:
    reason = refusal(by_network(trial()), shares_heap=True)
    assert reason.startswith("transport = gin is measured between hosts only, and fabric = nvlink links ranks of 1")
    assert refusal(trial(), shares_heap=True) == ""


def test_between_hosts_nothing_stores_into_a_peer() -> None:
    assert "reaches 0 of 1 peers" in refusal(between(trial()))
    assert refusal(between(trial(scheme="sequential", collective="library"))) == ""
    assert refusal(between(trial(scheme="decomposed", engine="library"))) == ""
    assert "reaches 0 of 1 peers" in refusal(between(trial(scheme="sequential", collective="direct")))
    assert "reaches 0 of 1 peers" in refusal(between(trial(scheme="decomposed", engine="copy_engine")))


def test_ranks_of_several_hosts_need_the_fabric_that_says_so() -> None:
    assert "fabric = nvlink does not link GPUs of several hosts" in refusal(trial(), shares_heap=False)


@pytest.mark.parametrize("puts", [True, False])
def test_what_the_network_moves_has_no_timeline_yet(puts: bool) -> None:
    plain = trial(group_rows=1, slice_tiles=8, tile="128x128x64")
    asked = by_network(plain) if puts else plain
    reason = refusals.unseen(asked, expand(asked.problem, asked.schedule))
    assert (reason is not None and "0 stamps" in reason) is puts


def test_a_schedule_without_the_axis_stores() -> None:
    plain = trial().schedule
    assert "transport" not in dict(plain.axes) or plain["transport"] == "peer"
    assert isinstance(plain, Schedule)
