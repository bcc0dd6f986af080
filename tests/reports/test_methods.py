"""The sentences around the numbers say what is known and no more: sources, ways of timing, published, derived."""

from __future__ import annotations

import unicodedata
from typing import Any

from kernels import outcome
from kernels.outcome import Span
from tests.reports.conftest import joined, row
from workbench.charts.theme import SHAPES, SOURCE_LOOKS
from workbench.naming import SIGNS
from workbench.reports.cases import cases
from workbench.reports.methods import (
    HEADINGS,
    MEANING,
    MEANINGS,
    cautions,
    derived,
    derived_table,
    legend,
    methods,
    num_published,
    published_table,
    timing_notes,
)
from workbench.reports.run_report import CaseDrawing, run_report

# The sentences around the numbers say what is known and no more.


def test_times_of_cpu_ranks_are_labelled() -> None:
    assert "Plan executed on CPU ranks" in cautions({}, [row("fused", 0.1)])[0]
    assert cautions({}, [row("fused", 0.1, backend="triton")]) == []


def test_more_ranks_than_cores_is_said_with_both_numbers() -> None:
    sentence = "4 ranks share 2 cores: they take turns, so times show the order, not the speed."
    assert sentence in cautions({"world": 4, "cores": 2}, [row("fused", 0.1)])
    assert sentence not in cautions({"world": 2, "cores": 2}, [row("fused", 0.1)])
    assert cautions({"world": 4, "cores": 2}, [row("fused", 0.1, backend="triton")]) == [], "GPU ranks need no cores"


def test_uncalibrated_estimates_and_wrong_results_are_said() -> None:
    said = cautions({}, [row("fused", 0.1, "estimated", calibrated=False), row("fused", None, stage="wrong")])
    assert ["not calibrated" in said[0], said[1].startswith("1 schedule gave a wrong result")] == [True, True]


def test_the_method_counts_what_was_verified() -> None:
    text = methods({"protocol": {"warmups": 3, "repeats": 15}}, [row("fused", 0.1), row("fused", 0.1, correct=None)])
    assert "3 times to warm up" in text
    assert "1 of 2 were found correct" in text


def test_a_part_alone_is_not_counted_as_unverified() -> None:
    text = methods({}, [row("fused", 0.1), row("fused", 0.1, part="compute", correct=None)])
    assert "1 of 1 were found correct" in text


def test_the_method_says_what_a_speed_up_by_paired_rounds_is() -> None:
    two = [row("fused", 0.1, key="f"), row("sequential", 0.2, key="s")]
    assert "centre of the ratios of rounds that took turns" in methods({}, two).replace("\\", "")
    assert "took turns" not in methods({}, two[:1])
    assert "took turns" not in methods({}, [row("fused", 0.1, "estimated"), row("sequential", 0.2, "estimated")])


def test_the_hardware_of_the_ranks_is_named_where_it_is_known() -> None:
    hardware = {"model": "NVIDIA H200", "link": "nvlink", "memory_bytes": 141 << 30, "cores": None}
    text = methods({}, [row("fused", 0.1, hardware=hardware), row("sequential", 0.2, hardware=hardware)])
    assert text.count("The ranks ran on NVIDIA H200, 141 GiB, nvlink.") == 1
    assert "ran on" not in methods({}, [row("fused", 0.1)])


def test_the_predictor_is_named() -> None:
    assert "(play 1)" in methods({}, [row("fused", 0.1, "estimated", predictor="play 1")])


def test_nothing_is_said_of_what_did_not_happen() -> None:
    assert methods({}, []) == "Nothing was run."
    estimated = methods({"protocol": "default"}, [row("fused", 0.1, "estimated")])
    assert "simulator" in estimated
    assert "clock" not in estimated


# Four sources, told apart by sign and word.


def test_charts_and_reports_know_the_same_sources() -> None:
    assert tuple(SIGNS) == tuple(MEANINGS) == outcome.SOURCES
    assert set(SIGNS) == set(SOURCE_LOOKS)
    assert len(set(SIGNS.values())) == len(SIGNS)


def test_a_chart_draws_the_sign_that_a_table_writes() -> None:
    drawn = {name: (look.shape, look.filled) for name, look in SOURCE_LOOKS.items()}
    assert drawn == {name: SHAPES[sign] for name, sign in SIGNS.items()}
    for name, sign in SIGNS.items():
        word = unicodedata.name(sign)  # BLACK CIRCLE, WHITE DIAMOND
        assert word.split() == ["BLACK" if drawn[name][1] else "WHITE", drawn[name][0].upper()]


def test_the_legend_counts_rows_with_a_time() -> None:
    rows = [row("fused", 0.1), row("fused", 0.1, "estimated"), row("fused", None), row("fused", 0.2, "elsewhere")]
    counted = {line[0].text.split()[-1]: line[2].text for line in legend(rows).rows}
    assert counted == {"measured": "1", "recorded": "none", "estimated": "1", "published": "none", "elsewhere": "1"}


# A report says how times were taken: operands, graphs, NCCL, clocks; each once however many trials say it.

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


# A report lays published numbers of its operators beside what was found, and counts them as what they are.


def test_a_run_of_a_fused_operator_stands_beside_the_papers_numbers() -> None:
    rows = joined([row("sequential", 0.08), row("fused", 0.06)])
    table = published_table(cases(rows))
    assert table is not None
    ours, *theirs = [dict(zip(HEADINGS, (cell.text for cell in line), strict=True)) for line in table.rows]
    assert (ours["Time saved"], ours["Source"].split()[-1]) == ("25 %", "measured")
    assert {line["Source"].split()[-1] for line in theirs} == {"published"}
    assert any(line["Time saved"] == "up to 20 %" and "abstract" in line["Where"] for line in theirs)
    assert all("abstract" in line["Where"] or line["Where"].endswith("unverified") for line in theirs)
    assert num_published(table) == len(theirs)
    text = "\n".join(cell.source for cell in run_report({}, rows).cells)
    assert "Comparison with published results" in text


def test_a_run_that_has_no_ratio_or_whose_scheme_nobody_published_stands_alone() -> None:
    for rows in (joined([row("fused", 0.06)]), joined([row("sequential", 0.08), row("decomposed", 0.06)])):
        assert published_table(cases(rows)) is None
        assert "Comparison with published results" not in "\n".join(cell.source for cell in run_report({}, rows).cells)


# Derived numbers as people read them: each with its unit and a meaning, none that is not known.

TIMES: dict[str, Any] = {"floor_s": 0.04, "compute_s": 0.04, "comm_s": 0.02, "sequential_s": 0.06, "plain_s": 0.06,
                         "whole_s": 0.04, "transfer_s": 0.02}  # fmt: skip
OF_LIBRARY: dict[str, Any] = {
    "library_s": 0.065, "pipeline_floor_s": 0.046, "put_bytes_per_second": 360e9,
    "put_rate_from": "calibrated: somewhere", "decomposition_loss": {"compute": 1.1, "communication": 1.2},
    "contention_loss": {"compute": 1.09, "communication": 1.3}, "against_streams": 0.95,
}  # fmt: skip
SPANS = (
    Span("0/compute/-1/0", 0, "compute", "compute", 0.0, 0.048),
    Span("0/put/1/0", 0, "put", "link", 0.038, 0.05),
)


def test_every_derived_number_has_its_unit_and_its_meaning() -> None:
    found = derived(row("fused", 0.05, **TIMES, **OF_LIBRARY), SPANS, 0.044)
    assert {number.name: number.text for number in found} == {
        "time ratio": "0.833 ×",
        "against streams alone": "0.95 ×",
        "exposed communication": "10 ms",
        "of the library's exposed": "40 %",
        "pipeline floor": "46 ms",
        "of the pipeline floor": "1.09 ×",
        "put rate": "360 GB/s (calibrated: somewhere)",
        "overlap efficiency": "50 %",
        "ideal speed-up": "1.5 ×",
        "share of ideal": "40 %",
        "overlap ratio": "83 %",
        "decomposition loss": "1.1 ×",
        "contention loss": "1.09 ×",
        "decomposition loss of communication": "1.2 ×",
        "contention loss of communication": "1.3 ×",
        "algbw": "819 kB/s",
        "busbw": "410 kB/s",
    }
    assert [number.meaning for number in found] == list(MEANING.values())


def test_what_is_not_known_is_left_out() -> None:
    assert derived(row("fused", 0.05), (), None) == []
    found = derived(row("fused", 0.05, **{**TIMES, "comm_s": None}), (), None)
    assert [number.name for number in found] == [
        "time ratio", "exposed communication", "ideal speed-up", "share of ideal",
    ]  # fmt: skip


def test_neither_a_baseline_nor_a_disturbed_row_has_a_share_of_ideal() -> None:
    """A sequential winner of a busy computer had 343 % of what perfect overlap can gain, and 0 % efficiency."""
    disturbed = {"others_share": 0.4, "others": "0.8 of 2 cores, mostly other programs"}
    known = [row("fused", 0.05, **TIMES), row("sequential", 0.05, **TIMES), row("fused", 0.05, **TIMES, **disturbed)]
    names = [{number.name for number in derived(each, (), None)} for each in known]
    assert ["share of ideal" in each for each in names] == [True, False, False]
    assert all("ideal speed-up" in each for each in names)


def test_a_rank_alone_has_no_bandwidth() -> None:
    found = derived(row("fused", 0.05, **{**TIMES, "world": 1, "comm_s": 1e-6}), SPANS[:1], 0.044)
    assert not {"algbw", "busbw", "overlap efficiency", "overlap ratio"} & {number.name for number in found}


def test_the_report_lists_them() -> None:
    rows = [row("fused", 0.05, **TIMES)]
    report = run_report({}, rows, [CaseDrawing(numbers=derived(rows[0], SPANS, 0.044))])
    assert any("What follows from the times of the fastest" in cell.source for cell in report.cells)
    assert derived_table(derived(rows[0], SPANS, 0.044)).to_markdown() in [
        output.data["text/markdown"] for cell in report.cells for output in cell.get("outputs", ())
    ]
