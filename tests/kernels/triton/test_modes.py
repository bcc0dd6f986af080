"""Two streams in all modes: scenarios by a committed seed, and what is timed together of each, by plain times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from unittest import mock

import pytest

from kernels.outcome import Measurement, Outcome
from kernels.schemes import BASELINE, stream_controls
from kernels.trial import Trial
from tests.gpu import concurrent_scenarios, modes, sittings, tables
from tests.gpu.sittings import Block
from tests.gpu.tables import DEVICE
from tests.kernels.triton.test_sittings import RANKS

DRAWN = concurrent_scenarios.problems(2)
QUESTIONS = [modes.Modes(DRAWN[name][1]) for name in ("cb-ar", "mb-ar", "cb-a2a", "mb-a2a")]


def measured(trials: Sequence[Trial], fastest: str) -> Iterator[Outcome]:
    """Every trial takes as long, but for those whose schedule has *fastest* in its words."""
    for trial in trials:
        took = 0.5 if fastest in str(trial.schedule) else 1.0
        yield Measurement(trial=trial, samples=((took,), (took,)), correct=True)


def played(question: modes.Modes, fastest: str) -> list[Block]:
    talk = question.blocks(DEVICE, RANKS)
    blocks, came = [], None
    while (block := tables.answered(talk, came)) is not None:
        blocks.append(block)
        came = list(measured(block.trials, fastest))
    return blocks


def test_each_workload_has_a_scenario_in_each_part_of_the_range() -> None:
    assert concurrent_scenarios.problems(2) == DRAWN
    assert len(list(chain(*DRAWN.values()))) >= 16
    for name, some in DRAWN.items():
        for (low, high), one in zip(concurrent_scenarios.RATIOS, some, strict=True):
            assert low * 0.98 <= concurrent_scenarios.ratio(one) <= high * 1.02, (name, one)
            assert concurrent_scenarios.workload_of(one) == name
        assert len(set(some)) == len(some)
        assert sum(0.7 <= concurrent_scenarios.ratio(one) <= 1.4 for one in some) >= 2, "where there is most to gain"


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda each: concurrent_scenarios.workload_of(each.problem))
def test_all_modes_stand_in_one_block_beside_the_best_baselines(question: modes.Modes) -> None:
    first, further, last = played(question, "comm_sms=16")
    assert [block.kind for block in (first, further, last)] == ["first", "further", "last"]
    wholes = [trial.schedule for trial in last.trials if trial.part == "whole"]
    assert len(wholes) <= sittings.MOST
    baselines, streams = ([each for each in wholes if (each.scheme == BASELINE) is plain] for plain in (True, False))
    assert len(baselines) == sittings.FASTEST
    assert [stream_controls.mode(dict(each.axes)) for each in streams] == [
        stream_controls.STREAMS, stream_controls.STREAMS, stream_controls.SHAPING, stream_controls.PRIORITISED,
        stream_controls.BOTH, stream_controls.SHARED,
    ]  # fmt: skip
    assert {each["micro_batches"] for each in streams} == {modes.MICRO_BATCHES}
    assert streams[1] == stream_controls.streams_alone(streams[2]) == stream_controls.streams_alone(streams[4])
    assert streams[0] == stream_controls.streams_alone(streams[3])


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda each: concurrent_scenarios.workload_of(each.problem))
def test_sms_are_set_aside_by_every_partner_before_and_the_halves_are_timed_alone(question: modes.Modes) -> None:
    _, further, last = played(question, "comm_sms=32")
    shares = {(each.schedule["collective"], each.schedule["comm_sms"]) for each in further.trials}
    assert shares >= {("library", 8), ("library", 16), ("library", 32)}
    assert {collective for collective, _ in shares} == (
        {"library", "direct", "copy_engine"} if "a2a" in concurrent_scenarios.workload_of(question.problem)
        else {"library", "two_shot"}
    )  # fmt: skip
    assert sum(each.part == "whole" for each in further.trials) <= sittings.MOST
    halves = {(each.part, each.schedule.scheme) for each in last.trials if each.part != "whole"}
    assert halves == {(part, scheme) for part in ("compute", "communication") for scheme in (BASELINE, modes.SCHEME)}
    assert all(each.schedule.get("comm_priority") in (None, "normal") for each in last.trials if each.part != "whole")
    assert len({each.key for each in last.trials}) == len(last.trials)


def test_where_nothing_with_sms_set_aside_comes_back_the_modes_are_timed_all_the_same() -> None:
    with mock.patch.object(sittings, "fastest", return_value=None):
        *_, last = played(QUESTIONS[0], "nothing")
    streams = [each for each in last.trials if each.part == "whole" and each.schedule.scheme != BASELINE]
    assert len(streams) == len(modes.MODES)
