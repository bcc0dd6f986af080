"""Which calls are made a thousand times to see their bits: every operator, cut both ways, and every way to send."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from kernels.backends.triton import recipes
from kernels.operators import OPERATORS
from kernels.operators.base import Flow
from kernels.schemes import axis_rules, schedule
from tests.gpu import same_bits
from workbench.machines import machine

ROOT = Path(__file__).parents[2]
GEMMS = {name for name, each in OPERATORS.items() if each.work == "gemm"}


@pytest.mark.parametrize("world", same_bits.MACHINES)
def test_every_operator_runs_by_default_and_every_gemm_is_cut(world: int) -> None:
    chosen = same_bits.trials(world)
    assert [each for each in chosen if recipes.of(each.problem, each.schedule).refusal(each)] == []
    assert len({each.key for each in chosen}) == len(chosen)
    defaults = [schedule(each.problem, "fused", {}, machine(each.machine), each.fabric) for each in chosen]
    by_default = {each.problem.operator for each, usual in zip(chosen, defaults, strict=True) if each.schedule == usual}
    assert by_default == set(OPERATORS)
    cut = [each for each in chosen if each.schedule.get(axis_rules.SPLIT_K, axis_rules.WHOLE) != axis_rules.WHOLE]
    assert {(each.problem.operator, tuple(dict(each.problem.shape).values())) for each in cut} == {
        (name, tuple(shape.values())) for name in GEMMS for shape in same_bits.CUT
    }


def kernels_of(world: int) -> set[str]:
    return {recipes.kernel(each.problem).module_of(each.problem, each.schedule).rpartition(".")[2]
            for each in same_bits.trials(world)}  # fmt: skip


@pytest.mark.parametrize("world", same_bits.WHOLE_TABLE)
def test_every_kernel_that_sends_is_called(world: int) -> None:
    assert kernels_of(world) == {"gemm_send", "gemm_receive", "gemm_gathered", "gemm_scattered", "gemm_ring",
                                 "gemm_relay", "gemv", "embedding"}  # fmt: skip
    later = {each.problem.operator for each in same_bits.trials(world)
             if axis_rules.spans_ranks(each.schedule) and each.schedule.get(axis_rules.COMM_SMS)}  # fmt: skip
    assert later == {name for name in GEMMS if OPERATORS[name].flow is Flow.RECEIVE}


def test_other_processes_compile_the_same_calls() -> None:
    chosen = same_bits.trials(2)
    assert pickle.loads(pickle.dumps(chosen)) == chosen


def test_other_bits_are_wrong_and_a_person_reads_how_many() -> None:
    one = same_bits.trials(2)[0]
    facts = {"programs": 66, "calls": 1000, "other": 0, "seconds": 0.5, "wrong": ""}
    right, other = same_bits.judged(one, facts), same_bits.judged(one, facts | {"other": 3})
    assert json.loads(json.dumps(right))["wrong"] == ""
    assert other["wrong"] == "3 of 1000 calls left other bits"
    assert same_bits.line(right).startswith("ok ")
    assert "0 of 1000 calls" in same_bits.line(right)
    assert same_bits.line(other).startswith("FAILED w2 ")
    assert same_bits.judged(one, facts | {"wrong": "it hung"})["wrong"] == "it hung"
    assert same_bits.summary([right, other]) == "1 of 2 schedules left the same bits, in 1,000 calls"


def test_the_first_call_is_not_compared_and_one_bit_of_a_later_one_is_noted() -> None:
    """Interpreted in another process: this one may have loaded Triton's kernels to be compiled."""
    text = "\n".join([
        "import torch",
        "from tests.gpu.one_process import note_other_bits",
        "first, epoch = torch.arange(70, dtype=torch.int16), torch.zeros(1, dtype=torch.int32)",
        "others = torch.zeros(3, dtype=torch.int32)",
        "def after(call, changed):",
        "    result = first.clone()",
        "    result[changed] ^= 1",
        "    epoch.fill_(call)",
        "    note_other_bits[(2,)](result, first, epoch, others, 70, 3, BLOCK=16, POISON=7)",
        "    assert set(result.tolist()) == {7}",
        "    return others.tolist()",
        "print([after(0, [1]), after(1, [1]), after(2, []), after(3, [69]), after(4, []), after(5, [0])])",
    ])  # fmt: skip
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    ran = subprocess.run([sys.executable, "-W", "ignore", "-c", text], cwd=ROOT, env=environment, text=True,
                         capture_output=True, timeout=120)  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert json.loads(ran.stdout) == [[0, 0, 0]] * 3 + [[0, 1, 0]] * 3
