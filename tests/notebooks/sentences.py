"""The sentences of the lessons that state numbers, made of the numbers that cells and recordings show."""

from collections import defaultdict
from collections.abc import Callable
from functools import cache
from statistics import median

from kernels.outcome import BLOCK_KIND
from kernels.units import percent_text, seconds_text
from workbench.analysis.accuracy import validate_recordings
from workbench.lesson import Lesson, lesson
from workbench.machines import shipped_machine
from workbench.results import metrics, recordings

# The sentences with numbers of the rung about pieces and engines, made of the recording that it shows.

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


# The sentences of the lessons that state numbers, made of the numbers that the lessons' cells show.

COUNTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
TILE = "128x256x3072"
"""Of the third rung."""
EIGHT = ("h200_nvl8", "mi300x_mesh8")
FEW_TOKENS = (128, 512)
"""As many tokens as a layer has at least: fewer tiles than a GPU has SMs, or hardly more."""
"""Tokens of the shortest recorded layers."""
TABLES = ("embedding", "gemm", "gemv", "layers")
"""The recordings of two H200s that tell what fusing saves: of models' shapes, many calls in a graph."""


@cache
def gpu_case(operator: str, preset: str, machine: str) -> Lesson:
    return lesson(operator, preset=preset, machine=machine, world=8)


@cache
def experts_on(machine: str) -> Lesson:
    return gpu_case("gemm_all_to_all", "mixtral_8x7b_experts_8192", machine)


@cache
def lookups_on(machine: str) -> Lesson:
    return gpu_case("embedding_all_to_all", "dlrm_dcnv2", machine)


@cache
def decode_on(machine: str) -> Lesson:
    return gpu_case("gemv_all_reduce", "llama3_70b_attention_decode", machine)


def fastest_s(case: Lesson, scheme: str, collective: str = "library") -> float:
    axes = {"sequential": {"collective": collective}, "decomposed": {"pieces": "all", "engine": ("copy_engine", "sm")},
            "fused": {"slice_tiles": "all", "tile_order": "all"}}  # fmt: skip
    return case.fastest(scheme, tile="all", **axes[scheme]).time_s


def reduction(case: Lesson, scheme: str) -> float:
    return 1 - fastest_s(case, scheme) / fastest_s(case, "sequential")


def wire_share(case: Lesson) -> float:
    """Of a sequential call, what communication takes."""
    wire, compute = (case.alone(part, "sequential").time_s for part in ("communication", "compute"))
    return wire / (wire + compute)


def slower_than_library(case: Lesson) -> float:
    """How much longer the GEMM of the fastest fused schedule takes alone than the library's, as a share of that."""
    fused = case.fastest("fused", tile="all", slice_tiles="all", tile_order="all").trial.schedule
    ours, library = case.alone("compute", "fused", **dict(fused.axes)), case.alone("compute", "sequential")
    return ours.time_s / library.time_s - 1


@cache
def two_h200s() -> dict[str, dict[str, list[float]]]:
    """Of each operator what fusing saved over each recorded shape: recorded, and estimated; in the shapes' order.

    Of each shape in the block whose sequential schedule is the fastest.
    """
    rows, _ = validate_recordings([f"h200_nvl2_{table}" for table in TABLES], shipped_machine("h200_nvl2"))
    best: dict[tuple[str, str], dict[str, dict]] = defaultdict(dict)
    blocks: dict[tuple[str, str], dict[str, dict]] = {}
    for row in rows:
        if row["part"] == "whole" and row["scheme"] in ("sequential", "fused"):
            case = best[row["operator"], row["block"]]
            case[row["scheme"]] = min(case.get(row["scheme"], row), row, key=lambda each: each["measured_s"])
    saved: dict[str, dict[str, list]] = defaultdict(lambda: {"recorded": [], "estimated": [], "shapes": []})
    for (operator, _), case in best.items():
        if len(case) < 2:
            continue  # a block of baselines alone
        shape = operator, str(case["fused"]["shape"])
        blocks[shape] = min(blocks.get(shape, case), case, key=lambda each: each["sequential"]["measured_s"])
    for (operator, _), case in blocks.items():
        for source, time_s in (("recorded", "measured_s"), ("estimated", "estimated_s")):
            saved[operator][source].append(1 - case["fused"][time_s] / case["sequential"][time_s])
        saved[operator]["shapes"].append(case["fused"]["shape"])
    return saved


def of_sequential(rows: list[dict], axis: str) -> dict[int, float]:
    return {row["axes"][axis]: row["time_s"] / row["sequential_s"] for row in rows if axis in row["axes"]}


def ms(row: dict) -> str:
    return f"{row['time_s'] * 1e3:.0f} ms"


def recorded_of(case: Lesson, scheme: str, axis: str) -> tuple[dict, dict[int, dict]]:
    rows = case.recorded("sequential", scheme)
    (base,) = [row for row in rows if row["scheme"] == "sequential"]
    return base, {row["axes"][axis]: row for row in rows if row["scheme"] == scheme}


def cores_that_recorded() -> int:
    (cores,) = {entry.provenance["cores"] for entry in recordings.recordings("laptop_ladder_pieces_and_slices")}
    return cores


def read_1(experts: Lesson) -> list[str]:
    (row,) = experts.rows("sequential")
    saved = {ratio: 1 - found["floor_s"] / found["time_s"] for ratio in (0.125, 1.0, 8.0)
             for found in experts.linked(f"emulated:wire_to_compute={ratio}").rows("sequential")}  # fmt: skip
    return [
        f"Here the sum is {ms(row)} and the floor is {row['floor_s'] * 1e3:.0f} ms.",
        f"both parts are equally long: {saved[1.0]:.0%}".replace("%", " %"),
        f"hiding all of the shorter one saves {saved[8.0]:.0%} or {saved[0.125]:.0%}.".replace("%", " %"),
    ]


def read_2(experts: Lesson) -> list[str]:
    rows = {row["axes"]["pieces"]: row for row in experts.rows("decomposed", pieces=COUNTS)}
    (sequential,) = experts.rows("sequential")
    simulated = of_sequential([*rows.values()], "pieces")
    best = min(simulated, key=lambda count: simulated[count])
    assert rows[256]["time_s"] > sequential["time_s"]
    alone = {count: experts.alone("compute", "decomposed", pieces=count).time_s * 1e3 for count in (64, 256)}
    linked, hidden = {}, []
    for ratio in (0.25, 0.5, 1.0, 2.0, 4.0):
        found = experts.linked(f"emulated:wire_to_compute={ratio}").rows("decomposed", pieces=COUNTS)
        row = min(found, key=lambda each: each["time_s"])
        linked[ratio] = row["axes"]["pieces"]
        hidden.append((row["sequential_s"] - row["time_s"]) / min(row["compute_s"], row["comm_s"]))
    (others,) = {count for ratio, count in linked.items() if ratio > 0.25}
    _, known = recorded_of(experts, "decomposed", "pieces")
    recorded = of_sequential([*known.values()], "pieces")
    first = min(recorded, key=lambda count: recorded[count])
    assert all(recorded[count] <= 1.03 * recorded[first] for count in (4, 8))
    assert abs(recorded[16] - 1) < 0.01
    assert min(recorded[32], recorded[64]) > 1.1
    cores, spread = cores_that_recorded(), (known[16]["low_s"] * 1e3, known[16]["high_s"] * 1e3)
    return [
        "With 1 piece the schedule *is* the sequential one.",
        f"Simulated, {best} pieces are best: {ms(rows[best])}, {simulated[best]:.2f} of the sequential time.",
        "From 16 to 64 pieces the curve is flat.",
        "256 pieces take longer than the sequential schedule.",
        f"With 64 pieces the computation alone takes {alone[64]:.0f} ms, with 256 it takes {alone[256]:.0f} ms",
        f"On the fastest link {linked[0.25]} pieces are best, on all others {others}",
        f"{min(hidden):.2f} to {max(hidden):.2f}, about nine tenths",
        f"This one comes from a computer with {cores} cores.",
        (
            f"- Simulated, {best} pieces are best: {simulated[best]:.2f} of the sequential time. "
            f"Recorded, {first} pieces are best: {recorded[first]:.2f} of the sequential time."
        ),
        "- Recorded, 4 and 8 pieces come within 3 % of the best.",
        f"- Recorded, 16 pieces save nothing: {ms(known[16])}, like sequential.",
        f"32 and 64 pieces are slower than sequential: {ms(known[32])} and {ms(known[64])}.",
        f"the notebook on {cores} cores.",
        f"the samples of 16 pieces lie between {spread[0]:.0f} ms and {spread[1]:.0f} ms.",
    ]


def read_3(experts: Lesson) -> list[str]:
    sizes = (1, 2, 4, 8, 16)
    rows = {order: {row["axes"]["slice_tiles"]: row for row in
                    experts.rows("fused", tile=TILE, slice_tiles=sizes, tile_order=order)}
            for order in ("natural", "rotated")}  # fmt: skip
    pieces = {row["axes"]["pieces"]: row for row in experts.rows("decomposed", pieces=COUNTS)}
    least = min(pieces.values(), key=lambda row: row["time_s"])
    four = lesson("gemm_all_to_all", preset="laptop_ladder", world=4)
    best = {order: min(row["time_s"] for row in
                       four.rows("fused", tile=TILE, tile_order=order, slice_tiles=(1, 2, 4, 8)))
            for order in ("natural", "rotated")}  # fmt: skip
    simulated = of_sequential([*rows["rotated"].values()], "slice_tiles")
    _, known = recorded_of(experts, "fused", "slice_tiles")
    assert {row["axes"]["tile_order"] for row in known.values()} == {"rotated"}
    recorded = of_sequential([*known.values()], "slice_tiles")
    for found in (recorded, simulated):
        assert found[16] > found[8] > found[4]
    assert min(recorded, key=lambda size: recorded[size]) == 4
    assert min(simulated, key=lambda size: simulated[size]) == 1
    skew = {size: f"{row['skew_s'] * 1e3:.0f} ms" for size, row in known.items()}
    _, cut = recorded_of(experts, "decomposed", "pieces")
    best_cut = min(cut.values(), key=lambda row: row["time_s"])
    natural, rotated = rows["natural"], rows["rotated"]
    return [
        "From 16 tiles down to 2, each halving of the slice about halves what is exposed.",
        (
            f"`rotated` with 16 tiles, one message for all of the peer's rows, takes {ms(rotated[16])}. "
            f"`natural` with its finest slices takes {ms(natural[1])}."
        ),
        "8 pieces and slices of 4 tiles cut equally fine.",
        f"Both take about the same: {ms(pieces[8])} and {ms(rotated[4])}.",
        f"slices of 1 tile take {ms(rotated[1])}, and the best number of pieces takes {ms(least)}.",
        f"Still `natural` takes {best['natural'] / best['rotated']:.2f} times as long as `rotated`",
        f"the same computer as that of rung 2, with {cores_that_recorded()} cores.",
        (
            f"- From 16 tiles to 4 both say the same: smaller slices are faster. With 4 tiles the recording has "
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
        f"The best recorded fused schedule takes {ms(known[4])}, the best recorded decomposed one {ms(best_cut)}.",
        f"The simulator has them close together ({ms(rotated[1])} and {ms(least)}).",
    ]


def read_4(experts: Lesson) -> list[str]:
    gather = lesson("all_gather_gemm", preset="laptop_ladder")
    saved = {}
    for count in (4, 16):
        uniform, first = (gather.estimate("decomposed", pieces=count, steps=how) for how in ("uniform", "local_first"))
        saved[count] = (uniform.time_s - first.time_s) * 1e3
    left: dict[str, list[float]] = defaultdict(list)
    for name in ("gemm_all_to_all", "all_gather_gemm", "gemm_reduce_scatter", "gemm_all_reduce"):
        case = lesson(name, preset="laptop_ladder")
        for scheme, axes in (("decomposed", {"pieces": 8}), ("fused", {"tile": f"64x512x{case.problem['k']}"})):
            (row,) = case.rows(scheme, **axes)
            left[scheme].append(row["time_s"] / row["sequential_s"])
    cut, fused = (f"{min(ratios):.2f} to {max(ratios):.2f}" for ratios in left.values())
    return [
        f"With 4 pieces that saves {saved[4]:.0f} ms, with 16 pieces {saved[16]:.0f} ms.",
        f"Decomposed leaves {cut} of the sequential time, fused {fused}.",
        "a row of tiles has 64 rows here.",
    ]


def shares(find: Callable[[str], Lesson], scheme: str) -> list[str]:
    """What *scheme* saves on each of the two GPU machines; a loss has its sign."""
    return [f"{round(100 * reduction(find(name), scheme))} %" for name in EIGHT]


def percent(number: float) -> str:
    return f"{round(abs(100 * number))} %"


def read_5(experts: Lesson) -> list[str]:
    case = experts_on("mi300x_mesh8")
    (lookup, lookup_amd), (expert, expert_amd) = shares(lookups_on, "fused"), shares(experts_on, "fused")
    wire, wire_amd = (percent(wire_share(experts_on(name))) for name in EIGHT)
    pieces, pieces_amd = shares(experts_on, "decomposed")
    (cut, cut_amd), (token, token_amd) = shares(decode_on, "decomposed"), shares(decode_on, "fused")
    anyhow = (
        fastest_s(found, "sequential", "all") / fastest_s(found, "sequential") for found in map(lookups_on, EIGHT)
    )
    stores, stores_amd = (percent(1 - ratio) for ratio in anyhow)
    share, share_amd = (percent(lookups_on(name).machine.costs.library_share) for name in EIGHT)
    assert all(15e-6 < fastest_s(decode_on(name), "sequential") < 25e-6 for name in EIGHT)
    return [
        f"{seconds_text(fastest_s(case, 'fused'))} against {seconds_text(fastest_s(case, 'decomposed'))}.",
        "A reduction of 20 % means a fifth less time than sequential.",
        f"In embedding -> all-to-all fused saves {lookup} on the H200s and {lookup_amd} on the MI300Xs.",
        f"our own stores already saves {stores} and {stores_amd}.",
        f"The library is assumed to reach only {share} and {share_amd} of the link.",
        f"the communication is {wire} and {wire_amd} of the time, and nobody can save more.",
        f"Pieces save {pieces} and {pieces_amd}, fused saves {expert} and {expert_amd}.",
        f"On the H200s our kernel alone takes {percent(slower_than_library(experts_on(EIGHT[0])))} longer than cuBLAS",
        "GEMV -> all-reduce takes about 20 µs.",
        f"So cutting makes it slower: {cut} and {cut_amd}.",
        f"{token} on the H200s, {token_amd} on the MI300Xs.",
        f"The abstract says 20 % on average. Our estimates are {lookup} and {lookup_amd}",
        f"The MI300Xs are estimated to save {token_amd} in decoding.",
        "(`costs.step_seconds` = 0)",
        "up to 1.6 times as fast as serial ones. That is 37.5 % less time.",
        *read_5_beside_recordings(expert, expert_amd, token),
    ]


def read_5_beside_recordings(expert: str, expert_amd: str, token: str) -> list[str]:
    saved = {(operator, source): found[source] for operator, found in two_h200s().items()
             for source in ("recorded", "estimated")}  # fmt: skip

    def middle(operator: str) -> str:
        recorded, estimated = (percent(median(saved[operator, source])) for source in ("recorded", "estimated"))
        return f"recorded {recorded}, estimated {estimated}."

    decoded, guessed = saved["gemv_all_reduce", "recorded"], saved["gemv_all_reduce", "estimated"]
    gathered = {tokens: saving_of("all_gather_gemm", tokens) for tokens in FEW_TOKENS}
    assert 0 < min(guessed) < min(decoded)
    most = percent(max(saved["gemm_all_to_all", "recorded"]))
    return [
        f"GEMM -> all-to-all: {middle('gemm_all_to_all')}",
        f"Embedding -> all-to-all: {middle('embedding_all_to_all')}",
        f"GEMV -> all-reduce: {middle('gemv_all_reduce')}",
        f"It gains {percent(min(decoded))} where it gains least. The least estimate is {percent(min(guessed))}.",
        f"GEMM -> reduce-scatter: {middle('gemm_reduce_scatter')}",
        *(
            f"With {tokens} tokens fused {saves(recorded)} in all-gather -> GEMM, and the estimate says that it "
            f"{would(estimated)}."
            for tokens, (recorded, estimated) in gathered.items()
        ),
        f'The abstract says "up to 20 %". Our estimates are {expert} and {expert_amd}.',
        f"Recorded shapes with more to send save more, up to {most}.",
        (
            f'The abstract says "up to 22 %". Two H200s were recorded at {percent(min(decoded))} to '
            f"{percent(max(decoded))}. Eight are estimated at {token}."
        ),
    ]


def saves(share: float) -> str:
    return f"{'saved' if share > 0 else 'lost'} {percent(abs(share))}"


def would(share: float) -> str:
    return f"{'saves' if share > 0 else 'loses'} {percent(abs(share))}"


def saving_of(operator: str, tokens: int) -> tuple[float, float]:
    """What fusing was recorded and estimated to save over the one shape of *tokens* rows."""
    of_operator = two_h200s()[operator]
    place = [shape["m"] for shape in of_operator["shapes"]].index(tokens)
    return of_operator["recorded"][place], of_operator["estimated"][place]


READ = {"01_sequential.ipynb": read_1, "02_decomposed.ipynb": read_2, "03_fused.ipynb": read_3,
        "04_three_flows.ipynb": read_4, "05_gpus.ipynb": read_5,
        "08_pieces_and_engines.ipynb": read_8}  # fmt: skip
"""The sentences with numbers of each rung, made of the numbers that its cells show."""
