"""The sentences of the nine lessons that state numbers, made of the numbers that their cells and recordings show."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

from kernels.operators import OPERATORS
from workbench import lessons
from workbench.lesson import Lesson, lesson
from workbench.lessons import pieces_and_tiles, predictions, shapes_and_sms
from workbench.results import recordings

COUNTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
TILE = "128x256x3072"
"""The tile of lesson 3."""


def ms(seconds: float) -> str:
    return f"{seconds * 1e3:.0f} ms"


def us(seconds: float) -> str:
    return f"{seconds * 1e6:.0f} µs"


def percent(share: float) -> str:
    return f"{round(abs(100 * share))} %"


def of_sequential(rows: list[dict], axis: str) -> dict[int, float]:
    return {row["axes"][axis]: row["time_s"] / row["sequential_s"] for row in rows if axis in row["axes"]}


def recorded_of(case: Lesson, scheme: str, axis: str) -> dict[int, dict]:
    rows = case.recorded("sequential", scheme)
    return {row["axes"][axis]: row for row in rows if row["scheme"] == scheme}


def read_1() -> list[str]:
    case = pieces_and_tiles.over_recorded_link()
    (row,) = case.rows("sequential")
    saved = {}
    for ratio in (0.125, 1.0, 8.0):
        (linked,) = lesson("gemm_all_to_all", fabric=f"emulated:wire_to_compute={ratio}").rows("sequential")
        saved[ratio] = 1 - linked["floor_s"] / linked["time_s"]
    return [
        f"The time is the sum of both parts: {ms(row['time_s'])}.",
        f"the longer of the two parts: {ms(row['floor_s'])}.",
        f"both parts are equally long: {percent(saved[1.0])}.",
        f"at most {percent(saved[8.0])} or {percent(saved[0.125])} can be saved.",
        f"the computing is {ms(case.alone('compute', 'sequential').time_s)}.",
        f"faster than the machine file says: {ms(recorded_part('compute'))}.",
    ]


def recorded_part(part: str) -> float:
    """The fastest recorded time of one part alone of the sequential schedule."""
    every = [entry.measurement for entry in recordings.recordings("laptop_ladder_pieces_and_slices")]
    return min(each.time_s for each in every if each.trial.part == part)


def read_2() -> list[str]:
    experts = pieces_and_tiles.balanced()
    rows = {row["axes"]["pieces"]: row for row in experts.rows("decomposed", pieces=COUNTS)}
    (sequential,) = experts.rows("sequential")
    simulated = of_sequential([*rows.values()], "pieces")
    best = min(simulated, key=lambda count: simulated[count])
    assert rows[256]["time_s"] > sequential["time_s"]
    alone = {count: experts.alone("compute", "decomposed", pieces=count).time_s for count in (64, 256)}
    known = recorded_of(experts, "decomposed", "pieces")
    recorded = of_sequential([*known.values()], "pieces")
    first = min(recorded, key=lambda count: recorded[count])
    assert all(recorded[count] <= 1.03 * recorded[first] for count in (4, 8))
    assert abs(recorded[16] - 1) < 0.01
    assert min(recorded[32], recorded[64]) > 1.1
    (cores,) = {entry.provenance["cores"] for entry in recordings.recordings("laptop_ladder_pieces_and_slices")}
    two, eight = rows[2]["time_s"], rows[8]["time_s"]
    assert (ms(two), abs(eight - 0.1215) < 0.002) == ("162 ms", True), "the sum by hand is what is simulated"
    return [
        "With 1 piece the schedule *is* the sequential one.",
        f"Simulated, {best} pieces are best: {ms(rows[best]['time_s'])}, {simulated[best]:.2f} of the sequential time.",
        "From 16 to 64 pieces the curve is flat.",
        "256 pieces take longer than the sequential schedule.",
        f"With 64 pieces the computation alone takes {ms(alone[64])}, with 256 it takes {ms(alone[256])}",
        f"Recorded on a computer with {cores} cores.",
        f"Recorded, {first} pieces are best: {recorded[first]:.2f} of the sequential time.",
        "Recorded, 4 and 8 pieces come within 3 % of the best.",
        f"Recorded, 16 pieces save nothing: {ms(known[16]['time_s'])}, like sequential.",
        f"32 and 64 pieces are slower than sequential: {ms(known[32]['time_s'])} and {ms(known[64]['time_s'])}.",
        f"the notebook on {cores} cores.",
    ]


def read_3() -> list[str]:
    experts, sizes = pieces_and_tiles.balanced(), (1, 2, 4, 8, 16)
    rows = {order: {row["axes"]["slice_tiles"]: row for row in
                    experts.rows("fused", tile=TILE, slice_tiles=sizes, tile_order=order)}
            for order in ("natural", "rotated")}  # fmt: skip
    pieces = {row["axes"]["pieces"]: row for row in experts.rows("decomposed", pieces=COUNTS)}
    least = min(row["time_s"] for row in pieces.values())
    natural, rotated = ({size: row["time_s"] for size, row in rows[order].items()} for order in ("natural", "rotated"))
    simulated = of_sequential([*rows["rotated"].values()], "slice_tiles")
    known = recorded_of(experts, "fused", "slice_tiles")
    recorded = of_sequential([*known.values()], "slice_tiles")
    for shares in (recorded, simulated):
        assert shares[16] > shares[8] > shares[4]
    assert min(recorded, key=lambda size: recorded[size]) == 4
    assert min(simulated, key=lambda size: simulated[size]) == 1
    skew = {size: ms(row["skew_s"]) for size, row in known.items()}
    best_cut = min(row["time_s"] for row in recorded_of(experts, "decomposed", "pieces").values())
    return [
        "From 16 tiles down to 2, each halving of the slice about halves what is exposed.",
        f"`rotated` with 16 tiles, one message for all of the peer's rows, takes {ms(rotated[16])}.",
        f"`natural` with its finest slices takes {ms(natural[1])}.",
        "8 pieces and slices of 4 tiles cut equally fine.",
        f"Both take about the same: {ms(pieces[8]['time_s'])} and {ms(rotated[4])}.",
        f"slices of 1 tile take {ms(rotated[1])}, and the best number of pieces takes {ms(least)}.",
        (
            "- From 16 tiles to 4 both say the same: smaller slices are faster. With 4 tiles the recording has "
            f"{recorded[4]:.2f} of the sequential time, the simulator {simulated[4]:.2f}."
        ),
        (
            f"- Below 4 tiles they part. Simulated, slices of 1 tile are best: {simulated[1]:.2f}. Recorded, slices of "
            f"4 tiles are best, and 1 and 2 tiles have {recorded[1]:.2f} and {recorded[2]:.2f}."
        ),
        (
            f"- Look at the skew of 1 and 2 tiles: one rank took {skew[1]} and {skew[2]} longer than the other. "
            f"With 4 tiles it was {skew[4]}."
        ),
        f"The best recorded fused schedule takes {ms(known[4]['time_s'])},",
        f"the best recorded decomposed one {ms(best_cut)}.",
        f"The simulator has them close together ({ms(rotated[1])} and {ms(least)}).",
    ]


def read_4() -> list[str]:
    gather = lesson("all_gather_gemm", preset="laptop_ladder")
    uniform, first = (gather.estimate("decomposed", pieces=4, steps=how).time_s for how in ("uniform", "local_first"))
    times = {}
    for name, (operator, shape) in shapes_and_sms.SHAPES.items():
        case = shapes_and_sms.on_h200s(operator, **shape)
        times[name] = {scheme: us(each.time_s) for scheme, each in shapes_and_sms.recorded_of(case).items()}
    home, come, sums = (times[name] for name in ("tokens_go_home", "tokens_come_in", "sums_for_all"))
    for name in times:
        answer = lessons.questions_of(4)[name].answer()
        assert answer.estimate == answer.measured, "the estimates have the right winner"
    leads = {}
    for source in ("estimated", "recorded"):
        known = lessons.questions_of(4)["tokens_go_home"].answer().values
        fastest, second, *_ = sorted(each.value for each in known if each.source == source)
        leads[source] = second - fastest
    assert leads["estimated"] < leads["recorded"] / 2
    assert len({str(OPERATORS[operator].flow) for operator, _ in shapes_and_sms.SHAPES.values()}) == 3
    return [
        f"With 4 pieces that saves {ms(uniform - first)}.",
        f"{home['fused']} against {home['decomposed']} in pieces and {home['sequential']} sequential.",
        f"{come['decomposed']} against {come['fused']} fused.",
        f"{sums['sequential']}, and fused takes {sums['fused']}, pieces {sums['decomposed']}.",
    ]


def read_5() -> list[str]:
    gains = shapes_and_sms.recorded_gains()
    answer = lessons.questions_of(5)["crossover"].answer()
    assert isinstance(answer.measured, float)
    assert isinstance(answer.estimate, float)
    return [
        f"With 128 tokens the fused kernel takes {1 / gains[128]:.2f} times as long as computing first.",
        f"With 512 tokens it is as fast: it gains {percent(gains[512] - 1)}.",
        f"With 2048 tokens it gains {percent(gains[2048] - 1)}, with 8192 tokens {percent(gains[8192] - 1)}.",
        f"The crossover is near {answer.measured:.0f} tokens, between the recorded 128 and 512.",
        f"The estimate says {answer.estimate:.0f}.",
        f"trying costs {percent(1 / gains[128] - 1)}.",
        f"reads them once, and gains {percent(shapes_and_sms.spanning_gain(128) - 1)} with 128 tokens.",
    ]


def read_6() -> list[str]:
    by_sms = shapes_and_sms.fastest_by("comm_sms", "recorded", engine="sm")
    copied = shapes_and_sms.fastest_by("pieces", "recorded", engine="copy_engine")
    first = min(row["recorded_s"] for row in shapes_and_sms.drawn() if row["scheme"] == "sequential")
    best = min(copied, key=copied.__getitem__)
    assert min(by_sms, key=by_sms.__getitem__) == 8
    recorded, estimated = (shapes_and_sms.by_senders(source) for source in ("recorded", "estimated"))
    assert -(-512 // 132) == -(-512 // 128) < -(-512 // 124), "waves"
    assert estimated[8] - estimated[4] > estimated[0] - estimated[4]
    return [
        "all-gather -> GEMM of 4096 x 2048 x 4096.",
        f"With 8 SMs that send: {us(by_sms[8])}.",
        f"With 4 and with 16 it is {us(by_sms[4])} and {us(by_sms[16])}, with 32 SMs {us(by_sms[32])}.",
        f"Copy engines: {us(copied[best])}, with {best} pieces.",
        f"Computing after everything has arrived takes {us(first)}.",
        f"{percent(8 / 132)} of the SMs are enough to move the bytes",
        f"Recorded: {us(recorded[0])} where tiles leave by the SMs that compute them,",
        f"and {us(recorded[4])} with 4 SMs that only send.",
        f"Estimated: {us(estimated[0])} and {us(estimated[4])}, and {us(estimated[8])} with 8.",
    ]


def read_7() -> list[str]:
    plain, fused = (predictions.fastest(predictions.EXPERTS, scheme) for scheme in predictions.CLASSES)
    m, n, k = predictions.EXPERTS.values()
    compute_s, wire_s = 2 * m * n * k / 989e12, m * n * 2 / 2 / 450e9
    assert all(abs(row["estimated_s"] - row["measured_s"]) < 4e-6 for row in (plain, fused))
    assert plain["held_out"]
    assert fused["held_out"]
    return [
        f"Sequential takes {us(plain['measured_s'])}, and fused {us(fused['measured_s'])}.",
        f"The datasheet's sums, {us(compute_s + wire_s)} and {us(compute_s)}, are both too short",
    ]


def read_8() -> list[str]:
    at_random = lessons.questions_of(8)["at_random"].answer().measured
    by_estimate = lessons.questions_of(8)["by_estimate"].answer().measured
    every = predictions.space(predictions.SEARCHED)
    errors = [abs(row["estimated_s"] / row["measured_s"] - 1) for row in every]
    best = min(row["measured_s"] for row in every)
    assert sum(row["measured_s"] <= 1.02 * best for row in every) == 1
    assert by_estimate == 2
    assert isinstance(at_random, float)
    return [
        f"At random {at_random:.0f} measurements are needed on average, by a thousand shuffles",
        f"only one schedule of {len(every)} is within 2 % of the best.",
        f"In the median they are {percent(median(errors))} off.",
    ]


def read_9() -> list[str]:
    saved = [predictions.step(), predictions.step(dense=16.0), predictions.step(gigabytes=450.0),
             predictions.step("dlrm_dcnv2", ranks=128)]  # fmt: skip
    plain, dense, fast, other = (percent(row["reduction"]) for row in saved)
    return [
        f"With our sizes of DLRM on 1024 ranks the fused forward pass saves {plain} of a step.",
        f"has {lessons.questions_of(9)['many_hosts'].answer().values[1].value:.0f} %, and simulated it, too.",
        (f"With 16 times the dense work it saves {dense}, with a network as fast as the link inside a host {fast}."),
        f"In MLPerf's DLRM-DCNv2 it saves {other}.",
        "21 % and 0 % are both right answers",
    ]


READ: dict[str, Callable[[], list[str]]] = dict(
    zip((entry.file for entry in lessons.LESSONS),
        (read_1, read_2, read_3, read_4, read_5, read_6, read_7, read_8, read_9), strict=True)
)  # fmt: skip
"""The sentences with numbers of each lesson."""
