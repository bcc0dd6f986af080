"""A report says how times were taken: operands, graphs, NCCL, clocks; each once however many trials say it."""

from typing import Any

from workbench.reports.methods import methods, timing_notes

NCCL = {"version": "2.28.9", "NCCL_GRAPH_REGISTER": "0"}
READINGS = [
    {"rank": 0, "reading": 0, "sm_clock_mhz": 1980, "power_watts": 159.9, "throttled": [], "at": 1.0},
    {"rank": 0, "reading": 1, "sm_clock_mhz": 1755, "power_watts": 651.5, "throttled": ["power cap"], "at": 2.0},
]


def facts_of(sets: int, times: float, calls: int, **more: Any) -> dict[str, Any]:
    facts = {"seed": 7, "operand_sets": sets, "operand_times_l2": times, "calls_per_graph": calls, "nccl": NCCL, **more}
    return {"facts": facts, "conditions": READINGS}


def test_what_all_trials_say_is_said_once() -> None:
    said = timing_notes(
        [facts_of(64, 2.6, 64), facts_of(4, 3.1, 48, library_tuned="32 channels"), facts_of(4, 3.1, 48)]
    )
    operands, graphs, nccl, tuned, clocks = said
    assert operands.endswith("two values of them alternated in 4 to 64 sets, which filled the L2 2.60x to 3.10x.")
    assert graphs == "A sample is the mean of the calls of one CUDA graph, of which there were 48 to 64."
    assert nccl == "The ranks had NCCL 2.28.9, NCCL_GRAPH_REGISTER=0."
    assert tuned == "library_tuned took 32 channels."
    assert clocks.startswith("SM clocks were 1,755 MHz to 1,980 MHz, power at most 652 W, in 2 readings; 1 of them")
    assert clocks.endswith("clocks were lowered: power cap.")


def test_one_call_per_graph_is_told_and_cpu_ranks_say_what_they_know() -> None:
    assert "A sample is one call per graph" in " ".join(timing_notes([facts_of(4, 3, 1)]))
    assert timing_notes([{"facts": {"seed": 1}}, {"facts": {"seed": 2}}, {}]) == [
        "Operands were drawn anew from 2 seeds, another one for each session, and two values of them alternated."
    ]
    assert timing_notes([]) == timing_notes([{}]) == []


def test_ranks_whose_settings_differ_are_told_apart() -> None:
    (said,) = timing_notes([{"facts": {"nccl": [NCCL, {"version": "2.28.9"}]}}])
    assert said == "The ranks had NCCL 2.28.9, NCCL_GRAPH_REGISTER=0; or NCCL 2.28.9."


def test_it_stands_in_the_method() -> None:
    row = {"time_s": 0.1, "source": "measured", "outcome": "measurement", "part": "whole", "correct": True}
    assert "NCCL 2.28.9" in methods({"timed_how": [facts_of(4, 3, 48)]}, [row]).replace("\\", "")
