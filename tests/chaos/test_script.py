"""The script comes from the seed alone, and is what the documents say of it."""

from collections import Counter

from tests.chaos.script import LASTING, ODDS, SIZES, Act, Whom, faults_of


def test_the_same_seed_tells_the_same_script_and_another_seed_another() -> None:
    assert [faults_of(7, number) for number in range(1, 9)] == [faults_of(7, number) for number in range(1, 9)]
    assert faults_of(7, 3) != faults_of(8, 3)
    assert faults_of(7, 3) != faults_of(7, 4)


def test_every_kind_of_fault_happens_and_faults_are_numbered() -> None:
    rounds = [faults_of(14, number) for number in range(1, 81)]
    kinds = Counter((fault.act, fault.whom) for faults in rounds for fault in faults)
    assert set(kinds) == {(act, whom) for _, act, whom in ODDS} | {(Act.KILL, Whom.NEWEST)}
    assert sum(kinds.values()) > 1000, "what a long run plays"
    for number, faults in enumerate(rounds, start=1):
        assert [fault.name for fault in faults] == [f"{number}.{each}" for each in range(1, len(faults) + 1)]
        assert SIZES[0] <= len(faults) <= SIZES[1] + 1
        assert sum(fault.is_long for fault in faults) <= 1, "the others of a round would wait for it"


def test_only_what_is_lifted_again_lasts() -> None:
    for fault in (fault for number in range(1, 51) for fault in faults_of(3, number)):
        assert (fault.lasts_s > 0) == (fault.act in LASTING), fault
