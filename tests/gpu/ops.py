"""torch.ops.workbench on all GPUs of this host, one process per GPU: `python -m tests.gpu.ops OUT.json [CHECK ...]`.

A single GPU is shared by two ranks, and then no call is timed.

Every check of `CASES`, or those named, whatever failed before, within a deadline each; without names also what a call
costs. One rank alone makes the checks of ALONE, and says where the host time of an eager call goes: without names, or
where the first one is `alone`, which leaves out the ranks together. Pytest is not needed.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from kernels.operators import OPERATORS
from tests.gpu import recording
from tests.gpu.gang import shares_gpu
from tests.gpu.tables import machine_here
from tests.kernels.ops.ops_checks import DIFFERENTIABLE
from tests.kernels.ops.ops_gang import SHARED, OpsGang
from tests.kernels.ops.ops_main import CALLED

OF_SEVERAL = (
    "calls_without_a_schedule_run_what_is_chosen", "every_operator_is_right_as_measured",
    "ranks_that_choose_differently_are_refused",
)  # fmt: skip
"""What ranks that share a GPU are not asked: torch's overlapped operators, which are candidates, need links."""
Case = tuple[str, str, dict[str, Any]]
"""A check, the dtype of its operands, and its arguments."""
CHOSEN = {CALLED: ""}
"""Calls that name no schedule, and run what the table chooses."""
CASES: list[Case] = [
    ("every_operator_is_right", "bfloat16", {}),
    ("fresh_operands_groups_and_shapes_in_turns", "bfloat16", {"calls": 56}),
    ("the_result_is_no_view_and_output_is_one", "bfloat16", {}),
    ("operands_of_other_layouts_are_copied", "bfloat16", {}),
    *(("torch_finds_nothing_wrong", "bfloat16", {"operator": operator}) for operator in OPERATORS),
    ("calls_of_any_rows_run_in_buckets", "bfloat16", {}),
    ("a_row_has_the_bits_of_its_bucket", "bfloat16", {}),
    ("an_all_reduce_has_any_number_of_rows", "bfloat16", {}),
    ("ranks_that_mean_different_things_are_told", "bfloat16", {}),
    ("a_graph_is_replayed_with_changed_inputs", "bfloat16", {}),
    ("direct_launches_are_right", "bfloat16", {}),
    ("two_graphs_in_turns_share_a_heap", "bfloat16", {}),
    ("a_rank_that_replays_once_more_ends_by_the_deadline", "bfloat16", {}),
    ("calls_beside_another_groups_collective", "bfloat16", {"calls": 100}),
    ("a_first_call_inside_a_graph_is_refused", "bfloat16", {}),
    ("calls_on_two_streams_come_one_after_the_other", "bfloat16", {}),
    *(("calls_back_to_back_with_slow_ranks", "bfloat16", {"operator": operator, "calls": 200})
      for operator in OPERATORS),
    *(("gradients_are_those_of_the_whole", "bfloat16", {"operator": operator}) for operator in DIFFERENTIABLE),
    ("only_the_gradient_that_is_asked_for_is_made", "bfloat16", {}),
    ("no_gradient_of_decoding", "bfloat16", {}),
    *(("a_compiled_model_is_the_same", "bfloat16", {"operator": operator, "backend": "aot_eager"})
      for operator in OPERATORS),
    ("a_compiled_model_is_the_same", "bfloat16", {"operator": "gemm_all_to_all", "backend": "inductor"}),
    ("a_graph_is_replayed_with_changed_inputs", "bfloat16", CHOSEN),
    ("two_graphs_in_turns_share_a_heap", "bfloat16", CHOSEN),
    *(("gradients_are_those_of_the_whole", "bfloat16", {"operator": operator, **CHOSEN})
      for operator in DIFFERENTIABLE),
    *(("a_compiled_model_is_the_same", "bfloat16", {"operator": operator, "backend": "aot_eager", **CHOSEN})
      for operator in OPERATORS),
    *(("calls_back_to_back_with_slow_ranks", "bfloat16", {"operator": operator, "calls": 100, **CHOSEN})
      for operator in OPERATORS),
    *((name, "bfloat16", {}) for name in OF_SEVERAL),
    ("a_rank_that_stays_away_is_told", "bfloat16", {}),
    ("closing_gives_memory_back_and_the_next_call_begins_anew", "bfloat16", {}),
]  # fmt: skip
ALONE = (
    "every_operator_is_right",
    "direct_launches_are_right",
    "a_graph_is_replayed_with_changed_inputs",
    "gradients_are_those_of_the_whole",
)
"""What one GPU by itself is asked, too."""
DEADLINE_S = 150.0
"""Of one check; the first calls of many shapes compile."""


def asked(world: int) -> list[Case]:
    """What *world* ranks of this host are asked."""
    return [case for case in CASES if not (shares_gpu(world) and case[0] in OF_SEVERAL)]


def gang_of(world: int) -> OpsGang:
    """*world* ranks with a GPU each, or all on the first one."""
    kept = {"XDG_CACHE_HOME": tempfile.mkdtemp()}  # choices that were measured earlier are not found there
    return OpsGang(world, SHARED if shares_gpu(world) else "cuda", kept)


def origin() -> dict[str, Any]:
    """Where the numbers of the file come from: GPUs, versions, source print and date."""
    return recording.provenance(machine_here().name) | {"launched_by": "tests/gpu/ops.py, without Dask"}


def main() -> int:
    """All checks whatever fails before, and what a call costs; the number of those that failed."""
    found: dict[str, Any] = {"provenance": origin(), "checks": []}
    names, alone = sys.argv[2:], sys.argv[2:3] == ["alone"]
    names = names[1:] if alone else names
    world_here = max(2, torch.cuda.device_count())
    for world, cases in ((world_here, asked(world_here)), (1, [case for case in CASES if case[0] in ALONE])):
        if world > 1 and alone:
            continue
        gang = gang_of(world)
        for check, dtype, arguments in cases:
            if names and check not in names:
                continue
            since, wrong, answers = time.monotonic(), "", [None]
            try:
                answers = gang.check(check, dtype, deadline_s=DEADLINE_S, **arguments)
            except (AssertionError, OSError) as error:
                wrong = str(error)
            took = time.monotonic() - since
            found["checks"].append({"world": world, "check": check, **arguments, "seconds": took, "wrong": wrong,
                                    **({"said": answers[0]} if answers[0] else {})})  # fmt: skip
            named = " ".join(map(str, arguments.values()))
            print(f"w{world} {'FAILED' if wrong else 'ok':6} {took:5.1f} s {check} {named}", flush=True)
            if wrong:
                print(wrong[-1500:], flush=True)
        if world > 1 and not names and not shares_gpu(world):
            found["microseconds"] = gang.check("what_a_call_costs", "bfloat16", deadline_s=DEADLINE_S)
        elif world == 1 and (alone or not names):
            found["host_microseconds"] = gang.check("where_host_time_goes", "bfloat16", deadline_s=DEADLINE_S)
        gang.close()
    recording.write(Path(sys.argv[1]), found)
    for kind in ("microseconds", "host_microseconds"):
        for operator, times in found.get(kind, [{}])[0].items():
            print(f"{operator:22}", *(f"{name} {value:8.1f} us" for name, value in times.items()), sep="  ")
    return sum(bool(check["wrong"]) for check in found["checks"])


if __name__ == "__main__":
    sys.exit(main())
