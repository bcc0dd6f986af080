"""torch.ops.workbench on all GPUs of this host, one process per GPU: `python -m tests.gpu.ops OUT.json`.

Every check of `CASES`, whatever failed before it, within a deadline each; then what a call costs. Pytest is not needed.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch

from kernels.operators import OPERATORS
from tests.kernels.ops.ops_checks import DIFFERENTIABLE
from tests.kernels.ops.ops_gang import OpsGang

CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("every_operator_is_right", "bfloat16", {}),
    ("fresh_operands_groups_and_shapes_in_turns", "bfloat16", {"calls": 56}),
    ("the_result_is_no_view_and_output_is_one", "bfloat16", {}),
    ("operands_of_other_layouts_are_copied", "bfloat16", {}),
    *(("torch_finds_nothing_wrong", "bfloat16", {"operator": operator}) for operator in OPERATORS),
    ("ranks_that_mean_different_things_are_told", "bfloat16", {}),
    ("a_graph_is_replayed_with_changed_inputs", "bfloat16", {}),
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
    ("a_rank_that_stays_away_is_told", "bfloat16", {}),
    ("closing_gives_memory_back_and_the_next_call_begins_anew", "bfloat16", {}),
]  # fmt: skip
ALONE = ("every_operator_is_right", "a_graph_is_replayed_with_changed_inputs", "gradients_are_those_of_the_whole")
"""What one GPU by itself is asked, too."""
DEADLINE_S = 150.0
"""Of one check; the first calls of many shapes compile."""


def main() -> int:
    """All checks whatever fails before, and what a call costs; the number of those that failed."""
    found: dict[str, Any] = {"gpus": f"{torch.cuda.device_count()} x {torch.cuda.get_device_name(0)}", "checks": []}
    for world, cases in ((torch.cuda.device_count(), CASES), (1, [case for case in CASES if case[0] in ALONE])):
        gang = OpsGang(world, "cuda")
        for check, dtype, arguments in cases:
            since, wrong = time.monotonic(), ""
            try:
                gang.check(check, dtype, deadline_s=DEADLINE_S, **arguments)
            except (AssertionError, OSError) as error:
                wrong = str(error)
            took = time.monotonic() - since
            found["checks"].append({"world": world, "check": check, **arguments, "seconds": took, "wrong": wrong})
            named = " ".join(map(str, arguments.values()))
            print(f"w{world} {'FAILED' if wrong else 'ok':6} {took:5.1f} s {check} {named}", flush=True)
            if wrong:
                print(wrong[-1500:], flush=True)
        if world > 1:
            found["microseconds"] = gang.check("what_a_call_costs", "bfloat16", deadline_s=DEADLINE_S)
        gang.close()
    Path(sys.argv[1]).write_text(json.dumps(found, indent=1))
    for operator, times in found.get("microseconds", [{}])[0].items():
        print(f"{operator:22}", *(f"{name} {value:8.1f} us" for name, value in times.items()), sep="  ")
    return sum(bool(check["wrong"]) for check in found["checks"])


if __name__ == "__main__":
    sys.exit(main())
