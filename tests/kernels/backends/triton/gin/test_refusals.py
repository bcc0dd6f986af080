"""What the triton backend answers about puts between hosts: which fabric, which baseline, and no timeline yet."""

from dataclasses import replace
from typing import Any

import pytest

from kernels.backends.triton import refusals
from kernels.fabric import parse
from kernels.schemes import expand
from kernels.trial import Trial
from tests.kernels.backends.triton.conftest import gpu_trial
from tests.kernels.backends.triton.gin.test_kernels import GEMMS, by_network

GEMM = {"m": 1024, "n": 1024, "k": 512}
BFLOAT16: dict[str, Any] = {"world": 2, "dtype": "bfloat16"}


def between(trial: Trial) -> Trial:
    """*trial* on a fabric of several hosts."""
    return replace(trial, fabric=parse("network"))


def on_one_host(scheme: str = "fused", **axes: Any) -> Trial:
    return gpu_trial("gemm_all_to_all", GEMM, scheme=scheme, **BFLOAT16, **axes)


def refusal(of: Trial, shares_heap: bool = False) -> str:
    return refusals.refusal(of, shares_heap) or ""


@pytest.mark.parametrize("operator", GEMMS)
def test_puts_run_between_hosts_and_not_on_one(operator: str) -> None:
    puts = by_network(operator, GEMM, **BFLOAT16)
    assert refusal(between(puts)) == ""
    reason = refusal(puts, shares_heap=True)
    assert reason.startswith("transport = gin is measured between hosts only, and fabric = nvlink links ranks of 1")
    assert refusal(on_one_host(), shares_heap=True) == ""


def test_slices_that_no_queue_holds_are_refused_by_their_axis() -> None:
    many = by_network(
        "gemm_all_to_all", {"m": 2 * 130 * 64, "n": 64, "k": 64}, tile="64x64x64", slice_tiles=1, **BFLOAT16
    )
    assert refusal(between(many)).startswith("slice_tiles cuts a chunk into 130 slices, which is too many")


def test_between_hosts_nothing_stores_into_a_peer() -> None:
    assert "reaches 0 of 1 peers" in refusal(between(on_one_host()))
    assert refusal(between(on_one_host("sequential", collective="library"))) == ""
    assert refusal(between(on_one_host("decomposed", engine="library"))) == ""
    assert "reaches 0 of 1 peers" in refusal(between(on_one_host("sequential", collective="direct")))
    assert "reaches 0 of 1 peers" in refusal(between(on_one_host("decomposed", engine="copy_engine")))


def test_ranks_of_several_hosts_need_the_fabric_that_says_so() -> None:
    assert "fabric = nvlink does not link GPUs of several hosts" in refusal(on_one_host(), shares_heap=False)


@pytest.mark.parametrize("puts", [True, False])
def test_what_the_network_moves_has_no_timeline_yet(puts: bool) -> None:
    trial = by_network("gemm_all_to_all", GEMM, **BFLOAT16) if puts else on_one_host()
    reason = refusals.unseen(trial, expand(trial.problem, trial.schedule))
    assert (reason is not None and "0 stamps" in reason) is puts


def test_ranks_of_several_hosts_do_not_meet_in_memory_for_a_timeline() -> None:
    trial = between(on_one_host("sequential", collective="library"))
    reason = refusals.unseen(trial, expand(trial.problem, trial.schedule))
    assert "ranks of several hosts share 0 bytes" in (reason or "")
