"""A gang for a kernel of one's own: it answers by rank, each on its GPU, and waits for nobody for ever."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from kernels import backends
from kernels.backends.base import Seat
from kernels.backends.triton import backend, playground
from kernels.backends.triton.backend import TritonBackend
from kernels.backends.triton.kernels.tiles import tile_table
from kernels.backends.triton.playground import RankFailure, RankGang, ranks
from kernels.schedule import Refusal
from kernels.schemes import axis_rules, expand
from tests.kernels.backends.triton import playground_ranks, ptx, tutorial
from tests.kernels.backends.triton.compile_sm90 import Compiled, warmed_up
from tests.kernels.backends.triton.conftest import gpu_trial
from tests.kernels.backends.triton.test_ptx import sizes_found
from workbench.lessons import order_of_signals

# A gang for a kernel of one's own: it answers by rank, says why it fails, and waits for nobody for ever.

LINES_MOST = 80
"""A person writes a new fused operator in fewer lines than these: kernel, host code and check."""
ORDERS = ("natural", "remote_first", "rotated", "interleaved")
ERROR_MOST = {torch.float32: 2e-6, torch.float16: 4e-3}
"""Four roundings of values below 8; of float32 some more, since sums are taken in another order."""
AHEAD_S = 10.0
"""A deadline that no test waits for."""
SHORT_S = 3.0
"""A run's deadline once all ranks have imported what they run; to answer takes them milliseconds."""


@pytest.fixture(scope="module", params=[2, pytest.param(4, marks=pytest.mark.slow)])
def gang(request: pytest.FixtureRequest) -> Iterator[RankGang]:
    """One that no test breaks."""
    with ranks(request.param, interpreted=True, limit_s=60.0) as made:
        yield made


@pytest.fixture(scope="module")
def lesson(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """The operator of the tutorial; the other files beside it can be imported, too."""
    with tutorial.importable(tmp_path_factory.mktemp("tutorial")):
        yield importlib.import_module("norm_all_to_all")


def test_every_rank_is_a_process_of_its_own_and_answers_in_order(gang: RankGang) -> None:
    told = gang.run(playground_ranks.who, "hello", 7)
    assert [answer[:3] for answer in told] == [(rank, gang.world, True) for rank in range(gang.world)]
    assert len({answer[3] for answer in told} | {os.getpid()}) == gang.world + 1
    assert {answer[4:] for answer in told} == {("hello", 7)}


def test_symmetric_tensors_are_addressed_by_all_and_begin_at_zero_in_every_run(gang: RankGang) -> None:
    assert gang.run(playground_ranks.addressed) == [[[rank, rank] for rank in range(gang.world)]] * gang.world
    for _ in range(2):
        assert gang.run(playground_ranks.dirty) == [[0.0] * 8] * gang.world


@pytest.mark.parametrize("name", ORDERS)
def test_tiles_in_order_are_those_of_the_plan(gang: RankGang, name: str) -> None:
    """Five tiles for each owner, where they take turns in slices of two: the last slice is narrower."""
    slices = {"slice_tiles": 2} if name == axis_rules.INTERLEAVED else {}
    asked = gpu_trial("gemm_all_to_all", {"m": 80 * gang.world, "n": 16, "k": 16}, world=gang.world, dtype="float16",
                      tile="16x16x16", tile_order=name, group_rows=1, **slices)  # fmt: skip
    plan = expand(asked.problem, asked.schedule)
    expected = [tile_table(plan, rank)[:, [0, 3]].tolist() for rank in range(gang.world)]
    assert len(expected[0]) == 5 * gang.world
    assert gang.run(playground_ranks.order, 5, 2, name) == expected


@pytest.mark.usefixtures("lesson")
def test_the_first_steps_of_the_tutorial_send_around_and_sum_up(gang: RankGang) -> None:
    one_message, sum_of_all = map(importlib.import_module, ("one_message", "sum_of_all"))
    assert gang.run(one_message.send) == [[10 + (rank - 1) % gang.world] * 8 for rank in range(gang.world)]
    factor = gang.world * (gang.world + 1) // 2
    assert gang.run(sum_of_all.add) == [[factor * value for value in range(8)]] * gang.world


@pytest.mark.slow(keeps=1)
@pytest.mark.parametrize(
    ("name", "dtype"), [*((name, torch.float32) for name in ORDERS), ("interleaved", torch.float16)]
)
def test_the_operator_of_the_tutorial_is_right_call_after_call(
    gang: RankGang, lesson: ModuleType, name: str, dtype: torch.dtype
) -> None:
    errors = gang.run(lesson.check, (33, 8, 16), 3, dtype, name)
    assert max(errors) <= ERROR_MOST[dtype], errors


def test_the_operator_of_the_tutorial_is_short() -> None:
    text = tutorial.files()["norm_all_to_all.py"]
    assert len(text.splitlines()) < LINES_MOST
    assert "device.put(" in text


def test_the_files_of_the_tutorial_are_written_as_the_house_writes(tmp_path: Path) -> None:
    tutorial.write(tmp_path)
    assert len(list(tmp_path.iterdir())) == 5
    for command in (["check", "--ignore", "I001"], ["format", "--check"]):  # where its own files are sorted in
        options = ["--config", "pyproject.toml", "--no-cache", str(tmp_path)]
        ruff = [sys.executable, "-m", "ruff", *command, *options]
        done = subprocess.run(ruff, capture_output=True, text=True, timeout=200, cwd=Path(__file__).parents[4])
        assert done.returncode == 0, done.stdout


# ---- what its compiler makes of it


def compiled(module: ModuleType, architecture: int = 90) -> Compiled:
    """As rank 2 of 4 would launch it."""
    x, counters = torch.empty(1024, 32, 128, dtype=torch.bfloat16), torch.zeros(4, dtype=torch.int64)
    own = torch.zeros(8, dtype=torch.int32)
    arguments = (x, x, 1024, counters, counters, counters, own, own, own, 10**9, 2)
    constants = {"WORLD": 4, "HEADS": 32, "DIM": 128, "ROWS": 16, "ORDER": "rotated", "EPSILON": 1e-6,
                 "DTYPE": module.DTYPES[x.dtype]}  # fmt: skip
    options = {"num_warps": 4, "launch_cooperative_grid": True}
    return warmed_up(module.norm_all_to_all, arguments, constants | options, architecture)


def test_the_operator_of_the_tutorial_obeys_the_rules_of_memory_order(lesson: ModuleType) -> None:
    made = compiled(lesson)
    kernel = ptx.Kernel(made.ptx, made.arguments)
    assert ptx.every_rule(kernel) == []
    assert sizes_found(kernel) >= 2, "counters are compared by distance, and the rule would say if they were not"
    leave = [each for each in kernel.instructions if each.is_store and kernel.words(each) & {"out_at"}]
    assert leave, "heads leave for their owners"


def test_a_signal_of_the_tutorial_without_the_meeting_of_threads_is_found(lesson: ModuleType, tmp_path: Path) -> None:
    text, ends = Path(lesson.__file__ or "").read_text(), "    device.finish("
    wrong = "    tl.atomic_add(device.peer(done_at, 0, tl.int32) + rank, 1, sem='release', scope='sys')\n"
    assert text.count(ends) == 1
    (tmp_path / "hasty.py").write_text(text.replace(ends, wrong + ends))
    sys.path.insert(0, str(tmp_path))
    try:
        made = compiled(importlib.import_module("hasty"))
    finally:
        sys.path.remove(str(tmp_path))
    assert any("have stored and not met" in broken for broken in ptx.order(ptx.Kernel(made.ptx, made.arguments)))


@pytest.mark.parametrize(("name", "is_found"), [("place 4", False), ("the signal is relaxed", True)])
def test_the_relaxed_signal_of_the_exercise_is_found_in_the_code_that_a_gpu_runs(
    name: str, is_found: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exercise says that no interpreted check finds it, and that this one does."""
    module = f"signal_{is_found}".lower()
    (tmp_path / f"{module}.py").write_text(order_of_signals.variants()[name])
    monkeypatch.syspath_prepend(tmp_path)
    kernel = importlib.import_module(module)
    data, tables, error = torch.zeros(16), torch.zeros(4, dtype=torch.int64), torch.zeros(8, dtype=torch.int32)
    constants = {"PIECES": kernel.PIECES, "SIZE": kernel.SIZE, "PIECE_NS": kernel.PIECE_NS, "num_warps": 4}
    made = warmed_up(kernel.send, (data, tables, tables, data, 3, error, 10**9, 2), constants)
    broken = ptx.scopes(ptx.Kernel(made.ptx, made.arguments))
    assert any("a signal is a release" in each for each in broken) == is_found
    assert is_found or broken == []


# ---- what goes wrong


@pytest.mark.slow
def test_an_exception_of_a_rank_comes_back_as_its_sentence_and_ends_the_gang() -> None:
    with ranks(2, interpreted=True) as gang:
        running = [process.pid for process in gang._processes]
        with pytest.raises(RankFailure, match="tokens = 3") as told:
            gang.run(playground_ranks.raises, 1)
        assert str(told.value) == "Rank 1 raised ValueError: tokens = 3 were asked for, heads take 4"
        assert "playground_ranks.py" in told.value.__notes__[0], "where it was raised is a note"
        assert not any(Path(f"/proc/{pid}").exists() for pid in running)
        with pytest.raises(Refusal, match="This gang has ended and runs nothing more"):
            gang.run(playground_ranks.who)


@pytest.mark.slow
def test_a_rank_that_dies_is_named_and_nobody_waits_for_it() -> None:
    with ranks(2, interpreted=True) as gang:
        began = time.monotonic()
        with pytest.raises(RankFailure, match=r"The process of rank 0 died \(exit code 3"):
            gang.run(playground_ranks.dies, 0)
        assert time.monotonic() - began < 100, "of the 120 s that a run may take"


@pytest.mark.slow
def test_a_wait_that_expires_says_who_waited_for_what() -> None:
    with ranks(2, interpreted=True, limit_s=0.5) as gang:
        began = time.monotonic()
        with pytest.raises(RankFailure, match=r"waited 0\.5 s for signal 4: the counter was 0 instead of 1"):
            gang.run(playground_ranks.expires)
        assert 0.5 <= time.monotonic() - began < 100, "of the 120 s that a run may take"


@pytest.mark.slow
def test_after_a_wait_that_expired_no_other_one_of_the_rank_lasts_and_the_first_is_told() -> None:
    """A graph of many calls would last a deadline for each."""
    with ranks(2, interpreted=True, limit_s=0.5) as gang:
        for left_s, sentence in gang.run(playground_ranks.fails_first, AHEAD_S):
            assert min(left_s) > 0, "the second wait and the packets ended before their deadline"
            assert "signal 4: the counter was 0 instead of 1" in sentence


WRAPS = 2**31
REACHED = [(0, 0), (5, 4), (-1, -2), (-WRAPS, WRAPS - 1), (0, -1), (-WRAPS + 7, WRAPS - 2), (3, -5)]
"""Counters, and numbers that they have reached, some of them before they went on from the highest at the lowest."""


def test_a_wait_compares_by_distance_and_says_unsigned_numbers() -> None:
    behind = [(expected, value) for value, expected in REACHED if value != expected]
    with ranks(1, interpreted=True, limit_s=0.05) as gang:
        (said,) = gang.run(playground_ranks.reached, REACHED + behind)
    assert said[: len(REACHED)] == [None] * len(REACHED)
    for (value, expected), sentence in zip(behind, said[len(REACHED) :], strict=True):
        assert f"the counter was {value % (2 * WRAPS)} instead of {expected % (2 * WRAPS)}, in call 1" in str(sentence)


@pytest.mark.slow
def test_packets_carry_epochs_beyond_the_highest_number() -> None:
    epochs = [WRAPS - 1, -WRAPS, -2, -1, 0, 1]
    with ranks(1, interpreted=True, limit_s=0.05) as gang:
        (told,) = gang.run(playground_ranks.packed, epochs)
    for epoch, (values, upper, sentence) in zip(epochs, told, strict=True):
        assert (values, upper) == ([-2, -1, 0, 1], [epoch] * 4)
        told_epoch, next_epoch = epoch % (2 * WRAPS), (epoch + 1) % (2 * WRAPS)
        assert f"block 7: the counter was 4 instead of {next_epoch}, in call {told_epoch} of" in str(sentence)


@pytest.mark.slow
def test_a_run_has_a_deadline_that_names_who_is_late() -> None:
    with ranks(2, interpreted=True) as gang:
        gang.run(playground_ranks.who)
        gang._deadline_s = SHORT_S
        with pytest.raises(RankFailure, match=r"Waited 3 s for sleeps: rank 1 did not answer; 1 of 2 did"):
            gang.run(playground_ranks.sleeps, 1)


@pytest.mark.slow
def test_what_cannot_be_pickled_is_a_sentence() -> None:
    with ranks(1, interpreted=True) as gang, pytest.raises(RankFailure, match=r"Rank 0 raised .*pickle"):
        gang.run(playground_ranks.unspeakable)


def test_interpreted_kernels_are_not_timed(gang: RankGang) -> None:
    (sentence,) = set(gang.run(playground_ranks.refused, "timed"))
    assert "says nothing about a GPU" in sentence


def test_a_heap_that_is_full_says_both_numbers_and_what_would_do(gang: RankGang) -> None:
    (sentence,) = set(gang.run(playground_ranks.refused, "greedy"))
    assert "4.29 GB" in sentence
    assert "has 67.1 MB" in sentence
    assert "heap_bytes=4294" in sentence


@pytest.mark.slow
def test_more_memory_than_there_is_is_refused_before_anybody_waits() -> None:
    with pytest.raises(RankFailure, match="of shared memory"), ranks(2, interpreted=True, heap_bytes=1 << 50):
        pass


def test_what_ranks_cannot_have_is_refused() -> None:
    with pytest.raises(Refusal, match="world = 0"), ranks(0):
        pass
    with pytest.raises(Refusal, match="99 > "), ranks(99, interpreted=False):
        pass


def test_a_function_that_ranks_cannot_import_is_refused(gang: RankGang, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playground_ranks.who, "__module__", "__main__")
    with pytest.raises(Refusal, match="%%writefile"):
        gang.run(playground_ranks.who)


# A rank works on the first GPU that its process sees; without a broker a gang's processes take them in order.

BACKENDS = Path(backends.__file__).parent


@pytest.mark.parametrize(
    ("shown", "seen"),
    [(None, ["0,1", "1,0"]), ("6,4,2", ["6,4", "4,6"]), ("GPU-b, GPU-a", ["GPU-b,GPU-a", "GPU-a,GPU-b"])],
)
def test_each_rank_sees_its_own_first(shown: str | None, seen: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(playground.VISIBLE, shown or "")  # put back afterwards, whatever becomes of it
    if shown is None:
        monkeypatch.delenv(playground.VISIBLE)
    assert [playground.environment(rank, 2)[playground.VISIBLE] for rank in (0, 1)] == seen
    playground.take(1, 2)
    assert os.environ[playground.VISIBLE] == seen[1]


def test_a_seat_decides_no_device_though_the_process_sees_as_many_as_there_are_ranks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken: list[Any] = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "set_device", taken.append)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: None)
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="6f1a", name="NVIDIA H200")
    )
    monkeypatch.setattr(backend, "RankProcessGroup", lambda seat, device: taken.append(device))
    made = TritonBackend(Seat(rank=3, world=4, session="s", shares_heap=True, rendezvous=("127.0.0.1", 1)))
    assert [str(device) for device in taken] == ["cuda:0"] * 2
    assert made.device == "cuda:0"
    said = made.condition()
    assert (said["gpu"], said["gpu_name"]) == ("GPU-6f1a", "NVIDIA H200"), "a measurement keeps which GPU it is of"


def test_nowhere_in_the_backends_does_a_number_pick_a_gpu() -> None:
    named = re.compile(r"""(?:device\(["']cuda["']\s*,\s*|["']cuda:)([^)"']*)""")
    picked = {
        f"{path.relative_to(BACKENDS)}: {number}"
        for path in BACKENDS.rglob("*.py")
        for number in named.findall(path.read_text())
        if number != "0" and "nccl" not in number
    }
    assert picked == set()


def test_ranks_share_one_gpu_where_there_are_fewer_gpus_than_ranks_and_nobody_says_otherwise() -> None:
    found = {(world, gpus): playground._shares(world, gpus, None) for world in (1, 2, 8, 9) for gpus in (0, 1, 2)}
    assert [pair for pair, shares in found.items() if shares] == [(2, 1), (8, 1), (8, 2)]
    assert not playground._shares(2, 1, False)
    assert playground._shares(2, 1, True)
    with pytest.raises(Refusal, match=r"does not fit world = 2: 2 to 8 ranks share a GPU .* torch finds 2 here"):
        playground._shares(2, 2, True)
