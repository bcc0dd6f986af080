"""Which trials of GPUs are timed together: baselines first, then what overlaps, played with plain times."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from pathlib import Path
from unittest import mock

import pytest

from kernels.backends.capabilities import MeasuringRanks
from kernels.fabric import parse
from kernels.machine import load
from kernels.operators import OPERATORS
from kernels.outcome import Failure, Measurement, Outcome
from kernels.problem import Problem
from kernels.schedule import Axis
from kernels.schemes import BASELINE, axes, schedule, stream_controls
from kernels.schemes.library import CALLS
from kernels.trial import Protocol, Trial, is_one_call
from tests.gpu import scenarios, sittings, tables
from tests.gpu.sittings import Block, Question, Regimes
from tests.gpu.tables import DEVICE

# GPU tables time all baselines first, then the two fastest in every block: pure decisions, played with plain times.

RANKS = MeasuringRanks(load(Path(__file__).parents[2] / "data" / "machines" / "h200_nvl2.toml"), parse("nvlink"))
QUESTIONS = [question for table in tables.TABLES.values() for question in table(2) if isinstance(question, Question)]
GEMM, RECEIVING = (next(q for q in QUESTIONS if q.problem.operator == name)
                   for name in ("gemm_all_to_all", "all_gather_gemm"))  # fmt: skip
Seconds = Callable[[Trial], float | None]
"""What a trial takes; None where it fails."""


def measured(trials: Sequence[Trial], seconds: Seconds) -> Iterator[Outcome]:
    for trial in trials:
        took = seconds(trial)
        if took is None:
            yield Failure(trial=trial, stage="refused", message="no room")
        else:
            yield Measurement(trial=trial, samples=((took,), (took / 2,)), correct=trial.part == "whole" or None)


def played(question: Question, seconds: Seconds) -> list[Block]:
    """The blocks of *question* where a trial takes *seconds*."""
    talk = sittings.talk(question, DEVICE, RANKS)
    blocks, came = [], None
    while (block := tables.answered(talk, came)) is not None:
        blocks.append(block)
        came = list(measured(block.trials, seconds))
    return blocks


def by_collective(**seconds: float) -> Seconds:
    """Sequential ones take what is said, our kernel 10 more, fused ones less the larger slices are, parts 1."""

    def of(trial: Trial) -> float | None:
        if trial.schedule.scheme != "sequential":
            return 1.0 / float(trial.schedule.get("slice_tiles") or trial.schedule.get("pieces") or 1)
        took = seconds.get(str(trial.schedule["collective"]))
        return None if took is None else took + 10.0 * (trial.schedule["kernel"] == "ours")

    return of


def collectives(block: Block) -> list[str]:
    wholes = [each for each in block.trials if each.part == "whole" and each.schedule.scheme == "sequential"]
    return [str(each.schedule["collective"]) for each in wholes]


@pytest.mark.parametrize("problem", {q.problem.operator: q.problem for q in QUESTIONS}.values(), ids=str)
def test_the_first_block_holds_every_baseline_that_is_legal(problem: Problem) -> None:
    known = {axis.name: axis for axis in axes(problem, "sequential", RANKS.machine, RANKS.fabric)}
    legal = sittings.baselines(problem, RANKS)
    for name in ("collective", "kernel"):
        axis: Axis | None = known.get(name)
        assert axis is None or {each[name] for each in legal} == set(axis.values), name
    assert len(set(legal)) == len(legal)
    if OPERATORS[problem.operator].flow != "reduce -> broadcast":
        assert "direct" in {each["collective"] for each in legal}


def test_the_two_fastest_and_the_librarys_stand_in_every_further_block() -> None:
    blocks = played(GEMM, by_collective(library=9.0, library_tuned=8.0, direct=5.0, copy_engine=6.0))
    first, *further = blocks
    assert first.kind == "first"
    assert {each.protocol.repeats for each in first.trials} == {5}
    assert {each.protocol.name for each in first.trials} == {"first_device"}
    assert [block.kind for block in further] == ["further", "last"]
    for block in further:
        assert {each.protocol for each in block.trials} == {DEVICE}
        assert set(collectives(block)) == {"direct", "copy_engine", "library_tuned"}
        parts = {(each.part, each.schedule.scheme) for each in block.trials if each.part != "whole"}
        assert parts == {("compute", "sequential"), ("compute", "fused"), ("communication", "sequential")}


def test_no_block_has_more_schedules_than_are_timed_in_turns_and_each_that_overlaps_is_measured() -> None:
    for question in QUESTIONS:
        blocks = played(question, by_collective(library=9.0, library_tuned=8.0, direct=5.0, one_shot=4.0))
        wanted = set(sittings.schedules(question, RANKS))
        assert wanted == {
            each.schedule for block in blocks for each in block.trials
            if each.part == "whole" and each.schedule.scheme != BASELINE
        }  # fmt: skip
        assert all(sum(each.part == "whole" for each in block.trials) <= sittings.MOST for block in blocks[1:])
        assert all(len({each.key for each in block.trials}) == len(block.trials) for block in blocks)
        assert all(each.problem == question.problem for block in blocks for each in block.trials)


def test_the_last_block_has_the_winner_and_the_default() -> None:
    last = played(GEMM, by_collective(library=9.0, direct=5.0))[-1]
    default, *others = sittings.schedules(GEMM, RANKS)
    winner = next(each for each in others if each.get("slice_tiles") == 32)
    fused = {each.schedule for each in last.trials if each.schedule.scheme == "fused" and each.part == "whole"}
    assert fused == {default, winner}


def test_where_no_baseline_comes_back_the_librarys_is_taken_and_without_a_fused_one_there_is_no_last_block() -> None:
    blocks = played(GEMM, lambda trial: None)
    assert [block.kind for block in blocks] == ["first", "further"]
    assert collectives(blocks[1]) == [CALLS[0]]


def test_a_wrong_result_is_no_baseline() -> None:
    legal = sittings.baselines(RECEIVING.problem, RANKS)
    wrong = Measurement(trial=RANKS.trial(RECEIVING.problem, legal[0]), samples=((1.0,), (1.0,)), correct=False)
    right = Measurement(trial=RANKS.trial(RECEIVING.problem, legal[1]), samples=((2.0,), (2.0,)), correct=True)
    assert sittings.chosen([wrong, right], legal) == [legal[1]]


def test_what_the_slowest_rank_takes_decides() -> None:
    legal = sittings.baselines(GEMM.problem, RANKS)
    times = ((1.0, 9.0), (5.0, 5.0), (6.0, 4.0))
    came = [
        Measurement(trial=RANKS.trial(GEMM.problem, each), samples=((one,), (other,)), correct=True)
        for each, (one, other) in zip(legal, times, strict=False)
    ]  # fmt: skip
    assert sittings.chosen(came, legal)[:2] == [legal[1], legal[2]]


@pytest.mark.parametrize("protocol", tables.HOW.values(), ids=lambda each: each.name)
def test_a_first_block_is_of_one_call_where_the_others_are(protocol: Protocol) -> None:
    first = next(sittings.talk(GEMM, protocol, RANKS))
    assert {each.is_one_call for each in first.trials} == {protocol.calls_per_graph == 1}
    assert {is_one_call(each.protocol.name, "triton") for each in first.trials} == {protocol.calls_per_graph == 1}


@pytest.mark.parametrize(("wrong", "complete"), [(None, True), ("fused", False), ("sequential", False)])
def test_a_block_is_complete_with_a_right_baseline_and_a_right_fused_schedule(
    wrong: str | None, complete: bool
) -> None:
    last = played(GEMM, by_collective(library=9.0, direct=5.0))[-1]
    came = [
        replace(one, correct=one.trial.schedule.scheme != wrong) if isinstance(one, Measurement) else one
        for one in measured(last.trials, by_collective(library=9.0, direct=5.0))
    ]
    assert sittings.is_complete(came) is complete


@pytest.mark.parametrize("world", [4, 8])
def test_every_table_can_be_asked_of_more_ranks(world: int) -> None:
    machine = load(Path(__file__).parents[2] / "data" / "machines" / f"h200_nvl{world}.toml")
    ranks = MeasuringRanks(machine, parse("nvlink"))
    for table in tables.TABLES.values():
        for question in table(world):
            assert len(sittings.baselines(question.problem, ranks)) >= 3
            if isinstance(question, Question):
                assert len(list(sittings.schedules(question, ranks))) >= 1
            elif isinstance(question, sittings.Modes):
                each_mode = question.schedules(sittings.MODES, ranks)
                assert {stream_controls.mode(dict(each.axes)) for each in each_mode} == {
                    stream_controls.STREAMS, stream_controls.SHAPING, stream_controls.PRIORITISED, stream_controls.BOTH,
                }  # fmt: skip


def test_scenarios_of_pieces_are_drawn_alike_over_operators_sizes_and_ratios() -> None:
    drawn = scenarios.problems(2)
    assert drawn == scenarios.problems(2)
    assert len(drawn) >= 30
    by_operator = {
        name: [each for each in drawn if each.operator == name] for name in dict.fromkeys(p.operator for p in drawn)
    }
    assert set(by_operator) == {name for name, each in OPERATORS.items() if each.work == "gemm"}
    for some in by_operator.values():
        ratios = [scenarios.ratio(each) for each in some]
        assert all(one < 1.001 * other for one, other in pairwise(ratios)), "each part of the range has one"
        assert 0.2 <= ratios[0] < 0.35
        assert 1.4 < ratios[-1] <= 2.0
        assert len(some) == scenarios.OF_EACH
    assert all(2048 <= each["m"] <= 16384 and each["n"] % 128 == each["k"] % 128 == 0 for each in drawn)


def test_every_scenario_has_legal_pieces_by_copy_engines_in_several_launches_and_in_one() -> None:
    for question in scenarios.questions(2):
        made = [
            schedule(question.problem, "decomposed", dict(each), RANKS.machine, RANKS.fabric)
            for each in question.pieces
        ]
        assert len(set(made)) == len(question.pieces)
        assert {each["engine"] for each in made} == {"copy_engine"}
        assert {each["launches"] for each in made} == {"per_piece", "one"}
        assert set(made) <= set(sittings.schedules(question, RANKS)), "the ranks run all of them"


def test_scenarios_fit_one_sitting_and_end_with_the_parts_of_pieces() -> None:
    """About 0.16 s a trial on two H200s, as 430 trials of ten shapes took with half the samples (63 s)."""
    asked = list(scenarios.questions(2))
    assert [each.problem.operator for each in asked[:5]] == list(dict.fromkeys(each.problem.operator for each in asked))
    count = 0
    for question in asked:
        blocks = played(question, by_collective(library=9.0, direct=5.0, copy_engine=6.0))
        count += sum(len(block.trials) for block in blocks)
        parts = {(each.schedule.scheme, each.part) for each in blocks[-1].trials}
        assert {("decomposed", "compute"), ("decomposed", "communication"), ("fused", "whole")} <= parts
        assert len(blocks) == 3
    assert count * 0.16 < 180


# Two streams in all modes: scenarios by a committed seed, and what is timed together of each, by plain times.

DRAWN = scenarios.streams_problems(2)
MODES_QUESTIONS = [sittings.Modes(DRAWN[name][1]) for name in ("cb-ar", "mb-ar", "cb-a2a", "mb-a2a")]


def modes_measured(trials: Sequence[Trial], fastest: str) -> Iterator[Outcome]:
    """Every trial takes as long, but for those whose schedule has *fastest* in its words."""
    for trial in trials:
        took = 0.5 if fastest in str(trial.schedule) else 1.0
        yield Measurement(trial=trial, samples=((took,), (took,)), correct=True)


def modes_played(question: sittings.Modes, fastest: str) -> list[Block]:
    talk = question.blocks(DEVICE, RANKS)
    blocks, came = [], None
    while (block := tables.answered(talk, came)) is not None:
        blocks.append(block)
        came = list(modes_measured(block.trials, fastest))
    return blocks


def test_each_workload_has_a_scenario_in_each_part_of_the_range() -> None:
    assert scenarios.streams_problems(2) == DRAWN
    assert len(list(chain(*DRAWN.values()))) >= 16
    for name, some in DRAWN.items():
        for (low, high), one in zip(scenarios.STREAMS_RATIOS, some, strict=True):
            assert low * 0.98 <= scenarios.streams_ratio(one) <= high * 1.02, (name, one)
            assert scenarios.workload_of(one) == name
        assert len(set(some)) == len(some)
        assert sum(0.7 <= scenarios.streams_ratio(one) <= 1.4 for one in some) >= 2, "where there is most to gain"


@pytest.mark.parametrize("question", MODES_QUESTIONS, ids=lambda each: scenarios.workload_of(each.problem))
def test_all_modes_stand_in_one_block_beside_the_best_baselines(question: sittings.Modes) -> None:
    first, further, last = modes_played(question, "comm_sms=16")
    assert [block.kind for block in (first, further, last)] == ["first", "further", "last"]
    wholes = [trial.schedule for trial in last.trials if trial.part == "whole"]
    assert len(wholes) <= sittings.MOST
    baselines, streams = ([each for each in wholes if (each.scheme == BASELINE) is plain] for plain in (True, False))
    assert len(baselines) == sittings.FASTEST
    assert [stream_controls.mode(dict(each.axes)) for each in streams] == [
        stream_controls.STREAMS, stream_controls.STREAMS, stream_controls.SHAPING, stream_controls.PRIORITISED,
        stream_controls.BOTH, stream_controls.SHARED,
    ]  # fmt: skip
    assert {each["micro_batches"] for each in streams} == {sittings.MICRO_BATCHES}
    assert streams[1] == stream_controls.streams_alone(streams[2]) == stream_controls.streams_alone(streams[4])
    assert streams[0] == stream_controls.streams_alone(streams[3])


@pytest.mark.parametrize("question", MODES_QUESTIONS, ids=lambda each: scenarios.workload_of(each.problem))
def test_sms_are_set_aside_by_every_partner_before_and_the_halves_are_timed_alone(question: sittings.Modes) -> None:
    _, further, last = modes_played(question, "comm_sms=32")
    shares = {(each.schedule["collective"], each.schedule["comm_sms"]) for each in further.trials}
    assert shares >= {("library", 8), ("library", 16), ("library", 32)}
    assert {collective for collective, _ in shares} == (
        {"library", "direct", "copy_engine"} if "a2a" in scenarios.workload_of(question.problem)
        else {"library", "two_shot"}
    )  # fmt: skip
    assert sum(each.part == "whole" for each in further.trials) <= sittings.MOST
    halves = {(each.part, each.schedule.scheme) for each in last.trials if each.part != "whole"}
    assert halves == {(part, scheme) for part in ("compute", "communication") for scheme in (BASELINE, sittings.SCHEME)}
    assert all(each.schedule.get("comm_priority") in (None, "normal") for each in last.trials if each.part != "whole")
    assert len({each.key for each in last.trials}) == len(last.trials)


def test_where_nothing_with_sms_set_aside_comes_back_the_modes_are_timed_all_the_same() -> None:
    with mock.patch.object(sittings, "fastest", return_value=None):
        *_, last = modes_played(MODES_QUESTIONS[0], "nothing")
    streams = [each for each in last.trials if each.part == "whole" and each.schedule.scheme != BASELINE]
    assert len(streams) == len(sittings.MODES)


@pytest.mark.slow
def test_a_problem_in_both_regimes_has_the_same_schedules_and_a_baseline_that_was_chosen() -> None:
    question = Regimes(GEMM.problem)

    def blocks(seconds: Seconds) -> list[Block]:
        talk, made, came = question.blocks(DEVICE, RANKS), [], None
        while (block := tables.answered(talk, came)) is not None:
            made.append(block)
            came = list(measured(block.trials, seconds))
        return made

    first, bursts, steady = blocks(by_collective(direct=5.0, library=5.1, two_shot=9.0))
    assert {trial.schedule.scheme for trial in first.trials} == {BASELINE}
    assert [trial.schedule for trial in bursts.trials] == [trial.schedule for trial in steady.trials]
    assert {trial.protocol.name for trial in bursts.trials} == {"burst_device"}
    assert {trial.protocol.name for trial in steady.trials} == {"steady"}
    baselines = [trial.schedule for trial in steady.trials if trial.schedule.scheme == BASELINE]
    assert len(baselines) == 2, "5.1 is within 3 % of 5"
    assert {trial.schedule.scheme for trial in steady.trials} == {BASELINE, "fused", "decomposed", "concurrent"}
    (only,) = [trial for trial in blocks(by_collective(direct=5.0, library=9.0, two_shot=9.0))[2].trials
               if trial.schedule.scheme == BASELINE]  # fmt: skip
    assert only.schedule["collective"] == "direct"


def test_a_baseline_that_overlaps_by_itself_has_a_plain_one_in_its_block() -> None:
    legal = sittings.baselines(RECEIVING.problem, RANKS)
    trials = [replace(RANKS.trial(RECEIVING.problem, each), protocol=DEVICE) for each in legal]
    came = list(measured(trials, by_collective(overlapped=5.0, direct=6.0, library=9.0)))
    names = [each["collective"] for each in sittings.nearest(came, legal)]
    assert names == ["overlapped", "direct"]
    assert sittings.nearest([], legal) == legal[:1]
