"""The sentences with numbers of the rung about pieces and engines, made of the recording that it shows."""

from collections import defaultdict
from collections.abc import Callable
from functools import cache
from statistics import median

from kernels.outcome import BLOCK_KIND
from kernels.units import percent_text, seconds_text
from workbench.lesson import Lesson
from workbench.results import metrics, recordings

PIECES = "h200_nvl2_pieces"
"""The recording of scenarios whose pieces copy engines move."""
DRAWN = "h200_nvl2_spaces"
"""The recording of drawn schedules, whose pieces SMs move as well."""
GATHERED = {"m": 16384, "n": 1024, "k": 8192}
"""The scenario whose timeline is shown."""


@cache
def in_pieces() -> dict[str, list[dict]]:
    """By operator, of each scenario the rows of its last block: the fastest pieces, and the fused schedule."""
    last = [entry.measurement for entry in recordings.recordings(PIECES)
            if entry.measurement.facts[BLOCK_KIND] == "last"]  # fmt: skip
    blocks: dict[str, dict[str, dict]] = defaultdict(dict)
    for row in metrics.fill([metrics.row_of(each) for each in last]):
        if row["part"] == "whole" and row["scheme"] != "sequential":
            blocks[row["block"]][row["scheme"]] = row
    found = defaultdict(list)
    for block in blocks.values():
        found[block["decomposed"]["operator"]].append(block)
    return found


def longer_s(block: dict) -> float:
    return max(block["decomposed"]["whole_s"], block["decomposed"]["transfer_s"])


def by_sms() -> list[float]:
    """The time of the fastest pieces that SMs move over that of copy engines', of each problem that has both."""
    fastest: dict[str, dict[str, float]] = defaultdict(dict)
    for each in (entry.measurement for entry in recordings.recordings(DRAWN)):
        if each.trial.part == "whole" and (engine := each.trial.schedule.get("engine")):
            of = fastest[each.trial.problem.operator]
            of[engine] = min(each.time_s, of.get(engine, each.time_s))
    return sorted(of["sm"] / of["copy_engine"] for of in fastest.values())


def read_8(experts: Lesson) -> list[str]:
    operators = in_pieces()
    every = [block for blocks in operators.values() for block in blocks]

    def middle(value: Callable[[dict], float]) -> dict[str, float]:
        return {operator: median(map(value, blocks)) for operator, blocks in operators.items()}

    shares = middle(lambda block: block["decomposed"]["share_of_ideal"])
    gains = middle(lambda block: block["decomposed"]["sequential_s"] / block["decomposed"]["time_s"])
    over_fused = middle(lambda block: block["fused"]["time_s"] / block["decomposed"]["time_s"])
    more = middle(lambda block: block["decomposed"]["time_s"] - longer_s(block))
    (first, second), (third, *_, last) = _halves(over_fused)
    short, long = (median(block["decomposed"]["share_of_ideal"] for block in every if which(longer_s(block)))
                   for which in (lambda took: took <= 50e-6, lambda took: took > 200e-6))  # fmt: skip
    (shown,) = (block["decomposed"] for block in every if block["decomposed"]["shape"] == GATHERED)
    spans = next(entry.measurement.spans for entry in recordings.recordings(PIECES)
                 if entry.measurement.spans and entry.measurement.trial.key == shown["key"])  # fmt: skip
    byte_s, end_s = (max(span.stop_s for span in spans if span.kind in kinds)
                     for kinds in (("put",), ("put", "compute")))  # fmt: skip
    assert set(map(len, operators.values())) == {7}, "seven of each operator"
    assert max(shares, key=shares.__getitem__) == "all_to_all_gemm"
    assert min(gains.values()) > 1
    assert [first[0], second[0]] == ["gemm_all_to_all", "gemm_all_reduce"]
    nearer, further = by_sms()
    return [
        f"fastest pieces by SMs take {nearer:.2f} and {further:.2f} times as long as the fastest by copy engines",
        f"The last byte is here after {seconds_text(byte_s)},",
        f"all is done after {seconds_text(end_s)}.",
        f"The share of ideal is {percent_text(shares['all_to_all_gemm'])} in all-to-all -> GEMM, where it is highest,",
        f"and {percent_text(shares['gemm_all_reduce'])} in GEMM -> all-reduce.",
        f"pieces are {min(gains.values()):.2f} to {max(gains.values()):.2f} times as fast.",
        f"In GEMM -> all-to-all pieces are {first[1]:.2f} times as fast, in GEMM -> all-reduce {second[1]:.2f} times.",
        f"pieces are {third[1]:.2f} to {last[1]:.2f} times as fast.",
        f"A call takes {min(more.values()) * 1e6:.0f} to {max(more.values()) * 1e6:.0f} µs more than its longer half,",
        f"Up to 50 µs the share of ideal is {percent_text(short)}, beyond 200 µs it is {percent_text(long)}.",
    ]


def _halves(ratios: dict[str, float]) -> tuple[list[tuple[str, float]], list[tuple[str, float]]]:
    """Operators and ratios in order: those below 1, and the others."""
    ordered = sorted(ratios.items(), key=lambda each: each[1])
    return [each for each in ordered if each[1] < 1], [each for each in ordered if each[1] >= 1]
