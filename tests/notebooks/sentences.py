"""The sentences of the appendices that state numbers, made of the numbers that cells and recordings show."""

from collections import defaultdict
from collections.abc import Callable
from functools import cache
from statistics import median

from kernels.outcome import BLOCK_KIND
from kernels.units import percent_text, seconds_text
from workbench.analysis.accuracy import validate_recordings
from workbench.lesson import Lesson, lesson
from workbench.lessons import steady_load
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


def read_pieces() -> list[str]:
    operators = in_pieces()
    every = [block for blocks in operators.values() for block in blocks]

    def middle(value: Callable[[dict], float]) -> dict[str, float]:
        return {operator: median(map(value, blocks)) for operator, blocks in operators.items()}

    shares = middle(lambda block: block["decomposed"]["share_of_ideal"])
    gains = middle(lambda block: block["decomposed"]["sequential_s"] / block["decomposed"]["time_s"])
    over_fused = middle(lambda block: block["fused"]["time_s"] / block["decomposed"]["time_s"])
    more = middle(lambda block: block["decomposed"]["time_s"] - longer_s(block))
    first, second, third, fourth, last = sorted(over_fused.items(), key=lambda each: each[1])
    short, long = (median(block["decomposed"]["share_of_ideal"] for block in every if which(longer_s(block)))
                   for which in (lambda took: took <= 50e-6, lambda took: took > 200e-6))  # fmt: skip
    (shown,) = (block["decomposed"] for block in every if block["decomposed"]["shape"] == GATHERED)
    spans = next(entry.measurement.spans for entry in recordings.recordings(PIECES)
                 if entry.measurement.spans and entry.measurement.trial.key == shown["key"])  # fmt: skip
    byte_s, end_s = (max(span.stop_s for span in spans if span.kind in kinds)
                     for kinds in (("put",), ("put", "compute")))  # fmt: skip
    assert [*map(len, operators.values())] == [7] * 5, "seven of each operator"
    assert max(shares, key=shares.__getitem__) == "all_to_all_gemm"
    assert min(gains.values()) > 1
    assert [first[0], second[0], third[0]] == ["gemm_all_to_all", "gemm_reduce_scatter", "gemm_all_reduce"]
    assert third[1] < 0.99 < 1.05 < fourth[1], "pieces lose where results go out, and gain where operands come in"
    nearer, further = by_sms()
    return [
        f"fastest pieces by SMs take {nearer:.2f} and {further:.2f} times as long as the fastest by copy engines",
        f"The last byte is here after {seconds_text(byte_s)},",
        f"all is done after {seconds_text(end_s)}.",
        f"The share of ideal is {percent_text(shares['all_to_all_gemm'])} in all-to-all -> GEMM, where it is highest,",
        f"and {percent_text(shares['gemm_all_reduce'])} in GEMM -> all-reduce.",
        f"pieces are {min(gains.values()):.2f} to {max(gains.values()):.2f} times as fast.",
        f"In GEMM -> all-to-all pieces are {first[1]:.2f} times as fast,",
        f"in GEMM -> reduce-scatter {second[1]:.2f} times, in GEMM -> all-reduce {third[1]:.2f} times.",
        f"pieces are {fourth[1]:.2f} to {last[1]:.2f} times as fast.",
        f"A call takes {min(more.values()) * 1e6:.0f} to {max(more.values()) * 1e6:.0f} µs more than its longer half,",
        f"Up to 50 µs the share of ideal is {percent_text(short)}, beyond 200 µs it is {percent_text(long)}.",
    ]


# The sentences of the appendix about GPUs, made of the numbers that its cells show.

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

    Of each shape in the block whose fused schedule is the fastest: some blocks have further ones alone.
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
        blocks[shape] = min(blocks.get(shape, case), case, key=lambda each: each["fused"]["measured_s"])
    for (operator, _), case in blocks.items():
        for source, time_s in (("recorded", "measured_s"), ("estimated", "estimated_s")):
            saved[operator][source].append(1 - case["fused"][time_s] / case["sequential"][time_s])
        saved[operator]["shapes"].append(case["fused"]["shape"])
    return saved


def shares(find: Callable[[str], Lesson], scheme: str) -> list[str]:
    """What *scheme* saves on each of the two GPU machines; a loss has its sign."""
    return [f"{round(100 * reduction(find(name), scheme))} %" for name in EIGHT]


def percent(number: float) -> str:
    return f"{round(abs(100 * number))} %"


def read_gpus() -> list[str]:
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
        *read_gpus_with_recordings(expert, expert_amd, token),
    ]


def read_gpus_with_recordings(expert: str, expert_amd: str, token: str) -> list[str]:
    saved = {(operator, source): found[source] for operator, found in two_h200s().items()
             for source in ("recorded", "estimated")}  # fmt: skip

    def middle(operator: str) -> str:
        recorded, estimated = (percent(median(saved[operator, source])) for source in ("recorded", "estimated"))
        return f"recorded {recorded}, estimated {estimated}."

    decoded, guessed = saved["gemv_all_reduce", "recorded"], saved["gemv_all_reduce", "estimated"]
    gathered = {tokens: saving_of("all_gather_gemm", tokens) for tokens in FEW_TOKENS}
    assert min(decoded) > 0
    assert abs(min(guessed) - min(decoded)) < 0.005
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


def read_steady() -> list[str]:
    card, times = steady_load.card(), {name: work.compute_s for name, work in steady_load.calls().items()}
    longer = [each["steady_s"] / each["burst_s"] - 1 for each in card.timed]
    largest = max(card.timed, key=lambda each: each["burst_s"])
    loads = {name: steady_load.simple().seconds(work) for name, work in steady_load.calls().items()}
    ratios = steady_load.ratios()
    assert all(
        each["burst_s"] / each["steady_s"] > each["clock_hertz"] / card.highest_clock_hertz for each in card.timed
    )
    assert loads["sequential"] == times["sequential"] + steady_load.COMMUNICATE
    assert f"{loads['overlapped'] * 1e6:.0f}" == "185"
    return [
        f"below the highest clock, {card.highest_clock_hertz / 1e6:,.0f} MHz.",
        f"The same GEMM takes {percent(min(longer))} to {percent(max(longer))} longer.",
        f"The largest one takes {seconds_text(largest['burst_s'])} and {seconds_text(largest['steady_s'])}.",
        f"In the exercise it takes {loads['sequential'] * 1e6:.0f} µs in both regimes.",
        f"{times['overlapped'] * 1e6:.0f} µs become {loads['overlapped'] * 1e6:.0f} µs",
        f"rises from {ratios['burst']:.2f} to {ratios['steady']:.2f}.",
    ]


READ = {"appendix_gpus.ipynb": read_gpus, "appendix_pieces_and_engines.ipynb": read_pieces,
        "appendix_steady_load.ipynb": read_steady}  # fmt: skip
"""The sentences with numbers of each appendix, made of the numbers that its cells show."""
