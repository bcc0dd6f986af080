"""The tutorial's operator compiled on all GPUs: first steps, calls back to back, a time beside torch and NCCL.

Two ranks share a single GPU, and are not timed.
"""

from collections.abc import Iterator
from importlib import import_module

import pytest
import torch

from kernels.backends.triton.playground import RankFailure, RankGang
from tests.gpu import playground
from tests.gpu.gang import fewer, needs_links

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(240),
    pytest.mark.skipif(torch.cuda.device_count() < 1, reason="GPU ranks need a GPU, and there is none"),
]


@pytest.fixture(scope="module")
def gang() -> Iterator[RankGang]:
    with playground.gang() as made:
        yield made


def test_messages_come_and_sums_are_everybodys(gang: RankGang) -> None:
    one_message, sum_of_all = map(import_module, ("one_message", "sum_of_all"))
    assert gang.run(one_message.send) == [[10 + (rank - 1) % gang.world] * 8 for rank in range(gang.world)]
    factor = gang.world * (gang.world + 1) // 2
    assert gang.run(sum_of_all.add) == [[factor * value for value in range(8)]] * gang.world


@pytest.mark.parametrize("order", ["natural", "remote_first", "rotated", "interleaved"])
def test_the_operator_is_right_on_poisoned_results(gang: RankGang, order: str) -> None:
    errors = gang.run(import_module("norm_all_to_all").check, playground.ODD, 20, torch.bfloat16, order)
    assert max(errors) <= playground.ERROR_MOST


def test_calls_back_to_back_with_slow_ranks_and_noise_are_right(gang: RankGang) -> None:
    calls = fewer(playground.CALLS, gang.world)
    assert gang.run(playground.back_to_back, playground.ODD, calls) == [0] * gang.world


def test_it_is_timed_beside_torch_and_nccl(gang: RankGang) -> None:
    """Their results are compared by `compared` itself."""
    if why := needs_links(gang.world):
        pytest.skip(why)
    (found, *others) = gang.run(import_module("timing").compared, playground.TIMED, ("rotated", "interleaved"))
    assert all(other == found for other in others), "the slowest rank's median is everybody's"
    assert set(found) == {"torch + NCCL", "fused, rotated", "fused, interleaved"}
    assert all(0 < seconds < 0.1 for seconds in found.values())


def test_every_rank_tells_its_gpus_condition_and_nccls_settings(gang: RankGang) -> None:
    for told in gang.run(playground.state):
        assert told["nccl"]["NCCL_GRAPH_REGISTER"] == "0"
        assert not {"gpu", "gpu_name"} & set(told["condition"])


def test_a_wait_that_expires_is_a_sentence_and_the_process_of_a_rank_ends(gang: RankGang) -> None:
    """The last one: it ends the gang."""
    with pytest.raises(RankFailure, match=r"Rank 0 waited 5 s for signal 0: .* was 0 instead of 1"):
        gang.run(import_module("one_message").forget)
