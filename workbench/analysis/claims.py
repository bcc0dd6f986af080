"""Claims of papers, compared with ours: our recorded or estimated value for each published number that we can answer.

No value is typed in: recorded values are computed from `data/recordings` on each call, and estimates are computed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import cache
from itertools import pairwise
from pathlib import Path
from statistics import mean, median
from typing import Any

from kernels.files import TextKind, json_value
from kernels.hardware import executed
from kernels.operators import OPERATORS
from kernels.outcome import BLOCK_KIND, CHOOSING, row
from kernels.schemes import BASELINE
from kernels.trial import MANY_CALLS
from workbench.analysis import between_hosts
from workbench.analysis.published import UNITS, PublishedNumber, published
from workbench.lesson import Lesson, lesson
from workbench.machines import shipped_machine
from workbench.naming import baseline_title
from workbench.resources import data_directory
from workbench.results import metrics, recordings
from workbench.results.comparison import leading
from workbench.results.provenance import provenance
from workbench.results.recordings import Recorded
from workbench.results.rows import Row, by_problem
from workbench.simulator.scaling.model import model
from workbench.simulator.scaling.network import collective, named, of_machine
from workbench.simulator.scaling.prices import Prices
from workbench.simulator.scaling.step import StepSetting, band, rows

# Comparison of a published number with ours: whether direction and size agree, by one rule.

NEAR = 1.5
"""Two effects are of similar size if neither is more than this many times the other."""
BASES = {"x": 1.0}
"""The value without effect by unit; 0 for other units."""

WRITTEN = {**UNITS, "percent": "{:.0f} %", "x": "{:.2f}x", "holds": "in {:.0%}"}
"""Format of our values by unit, with fewer digits than they have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OurNumber:
    """Our value for a published number, in its unit."""

    value: float | None
    """None: not measured or computed."""
    low: float | None = None
    high: float | None = None
    """The band over `cases`, or over the range that `why` gives."""
    source: str | None = None
    """`measured`, `recorded` or `estimated`; None without a value."""
    machine: str = ""
    over: str = ""
    """Our baseline."""
    command: str = ""
    """A command that shows or recomputes it."""
    why: str = ""
    """Its basis, and possible differences to the paper."""
    cases: Sequence[Mapping[str, Any]] = ()
    """The rows from which it was computed."""
    covered: tuple[int, int] | None = None
    """In how many of how many cases of ours a rule holds; None for other numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimAnswer:
    """One row of `workbench claims`."""

    published: PublishedNumber
    ours: OurNumber

    @property
    def ratio(self) -> float | None:
        """Our effect over the published one; None without a value of ours, or if the published effect is 0."""
        base = BASES.get(self.published.unit, 0.0)
        effect = self.published.value - base
        return None if self.ours.value is None or not effect else (self.ours.value - base) / effect

    @property
    def is_input(self) -> bool:
        """Whether the number counts what was studied: it is no result, and has no sign."""
        return self.published.unit == "count"

    @property
    def holds_in(self) -> str | None:
        """`1 of 4` for a rule that holds in some of our cases only: it is neither confirmed nor refuted."""
        if self.ours.covered is None:
            return None
        count, of = self.ours.covered
        return f"{count} of {of}" if 0 < count < of else None

    @property
    def direction(self) -> bool | None:
        """Whether our effect has the sign of the published one; None of inputs, and of rules that hold in part."""
        is_open = self.ratio is None or self.is_input or self.holds_in is not None
        return None if is_open else self.ratio is not None and self.ratio > 0

    @property
    def size(self) -> str | None:
        """`similar`, `smaller` or `larger`, by NEAR; None if the direction differs or is open."""
        if self.ratio is None or not self.direction:
            return None
        return "similar" if 1 / NEAR <= self.ratio <= NEAR else "larger" if self.ratio > NEAR else "smaller"

    def in_unit(self, value: float) -> str:
        """*value* in the unit of the published one, such as `28 %` or `1.52x`."""
        return WRITTEN[self.published.unit].format(value)

    def row(self) -> dict[str, Any]:
        """The row of `workbench claims --json`."""
        reported, ours = self.published, asdict(self.ours)
        return {
            "id": reported.id, "scope": reported.scope, "operator": reported.operator or None,
            "scheme": reported.scheme or None, "metric": reported.metric, "aggregate": reported.aggregate,
            "unit": reported.unit, "published": reported.value, "paper": reported.paper, "version": reported.version,
            "section": reported.section, "verified": reported.verified, "published_machine": reported.machine,
            "published_baseline": reported.baseline, "ours": ours["value"], "ours_low": ours["low"],
            "ours_high": ours["high"], "source": ours["source"], "machine": ours["machine"] or None,
            "over": ours["over"] or None, "command": ours["command"] or None, "direction": self.direction,
            "holds_in": ours["covered"] and list(ours["covered"]), "is_input": self.is_input,
            **{f"{name}_reduction": reported.as_reduction(value) for name, value in (
                ("published", reported.value), ("ours", ours["value"]), ("low", ours["low"]), ("high", ours["high"]))},
            "size": self.size, "ratio": self.ratio, "why": ours["why"], "cases": [dict(case) for case in ours["cases"]],
        }  # fmt: skip


# Answers from GPU recordings: gains of each recorded problem over both baselines of its block.

Book = Mapping[str, Sequence[Row]]
"""Joined rows by recording."""
GPU = "triton"
PERCENT = 100.0
AGGREGATES: Mapping[str, Callable[[Iterable[float]], float]] = {"mean": mean, "max": max, "min": min}
"""A published mean is compared with our mean, and a maximum with our maximum."""


def gpu_rows() -> dict[str, list[Row]]:
    """The joined rows of GPU recordings with many calls per graph, without blocks that only chose baselines."""
    return {name: rows for name, entries in recordings.shipped().items() if (rows := _rows(name, entries))}


def _rows(name: str, entries: Sequence[Recorded]) -> list[Row]:
    """Joined rows of the problems whose baselines were all tried first: a gain needs a chosen baseline."""
    kinds = {entry.measurement.facts.get(BLOCK_KIND) for entry in entries}
    chosen = {entry.measurement.trial.problem for entry in entries
              if kinds == {None} or entry.measurement.facts.get(BLOCK_KIND) == CHOOSING}  # fmt: skip
    measured = [entry for entry in entries if entry.measurement.trial.backend == GPU
                and entry.measurement.trial.compared_as == MANY_CALLS and entry.measurement.trial.problem in chosen
                and entry.measurement.trial.world > 1  # one rank has nobody to send to
                and entry.measurement.facts.get(BLOCK_KIND) != CHOOSING]  # fmt: skip
    rows = metrics.fill([row(entry.measurement) for entry in measured])
    dates = [entry.provenance.get("date") for entry in measured]
    return [{**each, "recording": name, "date": date} for each, date in zip(rows, dates, strict=True)]


def cases(book: Book, operator: str, scheme: str) -> list[dict[str, Any]]:
    """A case for each recorded problem of *operator* with *scheme*, from its newest recording only."""
    newest: dict[Any, list[Row]] = {}
    for recorded in sorted(book.values(), key=lambda recorded: str(recorded[0]["date"])):
        newest.update(by_problem(each for each in recorded if each["operator"] == operator))
    return [case for recorded in newest.values() if (case := _case(recorded, scheme)) is not None]


def _case(rows: Sequence[Row], scheme: str) -> dict[str, Any] | None:
    """The best schedule of *scheme* with the references of its block; None if it or a baseline was not timed."""
    overlapping = [each for each in leading(rows) if each["scheme"] == scheme and each["sequential_s"]]
    if not overlapping:
        return None
    best = overlapping[0]
    plain = min((each for each in rows if each["block"] == best["block"] and each["time_s"] == best["sequential_s"]),
                key=lambda each: str(each["axes"]))  # fmt: skip
    library_s = best["library_s"]
    return {
        **{key: best[key] for key in ("operator", "shape", "dtype", "world", "machine", "recording", "date", "time_s")},
        "schedule": {"scheme": best["scheme"], **best["axes"]}, "best_baseline": baseline_title(plain["axes"]),
        "best_baseline_s": best["sequential_s"], "library_s": library_s, "compute_s": best["compute_s"],
        "comm_s": best["comm_s"], "reduction": 1 - best["time_s"] / best["sequential_s"],
        "library_reduction": 1 - best["time_s"] / library_s if library_s else None,
    }  # fmt: skip


def within_a_node(reported: PublishedNumber, book: Book) -> OurNumber:
    """The share of the time that a scheme saved on the machine that was recorded last; `why` has other machines."""
    names = [reported.operator] if reported.operator else list(OPERATORS)
    known = [case for name in names for case in cases(book, name, reported.scheme)]
    if not known:
        return OurNumber(value=None, why=f"No recording of a GPU has {reported.operator or 'an operator'} by "
                                    f"{reported.scheme} yet.")  # fmt: skip
    last = max(known, key=lambda case: (str(case["date"]), case["world"]))["machine"]
    here = [case for case in known if case["machine"] == last]
    saved = [PERCENT * case["reduction"] for case in here]
    over_library = [PERCENT * case["library_reduction"] for case in here if case["library_reduction"] is not None]
    aggregate = AGGREGATES[reported.aggregate]
    names = sorted({str(case["recording"]) for case in here})
    sentences = [
        f"{len(here)} recorded problems on {last}, each over the fastest baseline of its block.",
        f"Over NCCL: {aggregate(over_library):.0f} %." if over_library else "",
        _elsewhere([case for case in known if case["machine"] != last], aggregate),
        "Their shapes and GPUs are others.",
    ]
    return OurNumber(
        value=aggregate(saved), low=min(saved), high=max(saved), source="recorded", machine=str(last),
        over="the fastest sequential schedule of the same block, NCCL and all other collectives that were timed",
        command="workbench validate --all " + " ".join(f"--recording {name}" for name in names),
        why=" ".join(filter(None, sentences)), cases=here,
    )  # fmt: skip


def _elsewhere(others: Sequence[Row], aggregate: Callable[[Iterable[float]], float]) -> str:
    """The shares that were saved on machines recorded earlier."""
    machines = sorted({str(case["machine"]) for case in others})
    parts = [f"{name} {aggregate([PERCENT * case['reduction'] for case in others if case['machine'] == name]):.0f} %"
             for name in machines]  # fmt: skip
    return f"Recorded earlier: {', '.join(parts)}." if parts else ""


# Estimates for many hosts: the fused lookup between nodes, and the DLRM step as a band, with cases without gain.

MACHINE = between_hosts.MACHINE
PAPER_NODES, SMALL_BATCH = 1024, 128
"""Ranks of 128 nodes of eight, and of the setting in which MLPerf's batch is small."""
RATES, DENSE = (25e9, 50e9), (1.0, 4.0)
"""Bytes per second between nodes (200 and 400 Gb/s), and factors of the dense layers' time."""
FORWARD, BOTH = "fused_forward", "fused"
TORUS = "torus128"
"""The network in data/fabrics that the paper simulated, by recollection."""
MUCH_DENSE = 16.0
"""Factor of dense work in the case without gain: a fused backward pass waits for sums of gradients instead."""
NOT_MEASURED = "Nothing between hosts was measured."


def between_nodes(reported: PublishedNumber) -> OurNumber:
    """The share of the time that puts by a kernel would save between two hosts, over a list of shapes."""
    cases = list(between_hosts.cases())
    saved = [PERCENT * case["reduction"] for case in cases]
    worlds = {world: [PERCENT * case["reduction"] for case in cases if case["world"] == world]
              for world in between_hosts.WORLDS}  # fmt: skip
    by_world = ", ".join(f"{mean(each):.0f} % on {world}" for world, each in worlds.items())
    return OurNumber(
        value=AGGREGATES[reported.aggregate](saved), low=min(saved), high=max(saved), source="estimated",
        machine=MACHINE, over="lookup, then the library's all-to-all", command=f"workbench claims {reported.id} --json",
        why=f"{len(cases)} cases of ours on two hosts of 1 and of 8 GPUs: {_listed(between_hosts.TABLES)} tables a "
            f"rank, {_listed(between_hosts.POOLING)} lookups, {between_hosts.BATCH_PER_RANK} samples a rank. Mean "
            f"{by_world} ranks. The latency and the cost of a put are assumed. {NOT_MEASURED}",
        cases=cases,
    )  # fmt: skip


def _listed(values: Sequence[int]) -> str:
    return f"{', '.join(map(str, values[:-1]))} or {values[-1]}"


def dlrm_step(reported: PublishedNumber) -> OurNumber:
    """The median of a band over network rate, fused passes and dense work, and cases without gain."""
    machine = shipped_machine(MACHINE)
    at = StepSetting(model=model("dlrm"), prices=Prices(machine, of_machine(machine, PAPER_NODES)))
    torus = rows(replace(at, prices=Prices(machine, named(Path(TORUS)))), (FORWARD, BOTH))
    inside = [*band(at, rates=RATES, dense_scales=DENSE, names=(FORWARD, BOTH)), *torus]
    saved = [PERCENT * row["reduction"] for row in inside]
    dense, sums, one_pass = _cases_without_gain()
    holds = "lies inside" if min(saved) <= reported.value <= max(saved) else "lies outside"
    on_torus = {row["configuration"]: PERCENT * row["reduction"] for row in torus}
    return OurNumber(
        value=median(saved), low=min(saved), high=max(saved), source="estimated",
        machine=f"{MACHINE} and {TORUS}", over="the sequential step with the library's collectives",
        command=f"workbench predict-step dlrm --machine {MACHINE} --world {PAPER_NODES}"
                + "".join(f" --network-rate {rate:g}" for rate in RATES)
                + "".join(f" --dense-scale {scale:g}" for scale in DENSE),
        why=f"The middle of a band over networks, dense work and fused passes; {reported.number} {holds}. On the torus "
            f"that the paper is recalled to have simulated, one pass saves {on_torus[FORWARD]:.0f} %, both "
            f"{on_torus[BOTH]:.0f} %. Which of them it fuses is not known, and its sizes are recalled. "
            f"Fusing both passes ({BOTH}) gains nothing on {dense['world']} ranks where dense layers take "
            f"{MUCH_DENSE:g} times as long ({PERCENT * dense['reduction']:.1f} %; {FORWARD} alone saves "
            f"{PERCENT * one_pass['reduction']:.1f} %), nor on {sums['world']} where sums of gradients fill the "
            f"network ({sums['model']}, {PERCENT * sums['reduction']:.1f} %). {NOT_MEASURED}",
        cases=[*map(_step_columns, inside), dense, sums],
    )  # fmt: skip


def _cases_without_gain() -> list[dict[str, Any]]:
    """Two steps in which fusing both passes saves next to nothing, and the first one with one pass, which saves."""
    machine = shipped_machine(MACHINE)

    def step(name: str, world: int, dense: float, configuration: str = BOTH) -> dict[str, Any]:
        prices = Prices(machine, of_machine(machine, world))
        (row,) = rows(StepSetting(model=model(name), prices=prices, dense_scale=dense), (configuration,))
        return _step_columns(row)

    return [step("dlrm", PAPER_NODES, MUCH_DENSE), step("dlrm_dcnv2", SMALL_BATCH, 1.0),
            step("dlrm", PAPER_NODES, MUCH_DENSE, FORWARD)]  # fmt: skip


STEP_COLUMNS = ("model", "machine", "world", "network", "network_bytes_per_second", "dense_scale", "configuration",
                "baseline_s", "fused_s", "reduction", "exposed_share", "baseline_exposed_share")  # fmt: skip
"""Columns of a step's row that a claim keeps."""


def _step_columns(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in STEP_COLUMNS}


WAYS: Mapping[str, Callable[[PublishedNumber], OurNumber]] = {
    **dict.fromkeys(("R01", "R02", "R06"), between_nodes), **dict.fromkeys(("R11", "R12"), dlrm_step),
}  # fmt: skip
"""By the id of a published number."""


# Answers on the cache paper, from a summary of the replays of all applications, which take minutes.

COMMAND = "workbench cache --workloads all --policies all"
KEEPING = f"{COMMAND} --json | python -m workbench.analysis"
KIND = TextKind("summary of replays", "a summary of replays", "a JSON file that `python -m workbench.analysis` writes")
KEPT_PROVENANCE = ("git_commit", "cpu", "python")
"""Provenance of the replays that is kept: simulated cycles are the same on every computer."""
NEEDED = {"applications": int, "optimised_within_2pct_of_best_static": int, "worst_regret": float,
          "worst_regret_application": str, "best_static_differs": int, "caches": str}  # fmt: skip
REPLAYS = ("hierarchy", "patterns", "policies", "replay", "step", "study", "trace", "whole_lines", "workloads")
"""The files of workbench/simulator/cache/ that replay an application."""
HOLDS = 1.0


def studied(reported: PublishedNumber) -> OurNumber:
    """The number of applications that are replayed here."""
    kept = _kept()
    return _replayed_number(reported, kept, float(kept["summary"]["applications"]),
                 "Their names and sizes are reconstructed from public lists, not the paper's own.")  # fmt: skip


def best_static(reported: PublishedNumber) -> OurNumber:
    """The share of applications for which the stacked optimisations are as good as the best static policy."""
    kept = _kept()
    summary = kept["summary"]
    close, count = summary["optimised_within_2pct_of_best_static"], summary["applications"]
    worst = f"{summary['worst_regret_application']}, {100 * summary['worst_regret']:+.1f} %"
    made = _replayed_number(reported, kept, HOLDS * close / count,
                 f"Within 2 % of the best static policy for {close} of {count} applications; the worst: {worst}. "
                 f"Another policy than usual is the best for {summary['best_static_differs']}.")  # fmt: skip
    return replace(made, covered=(close, count))


def _replayed_number(reported: PublishedNumber, kept: Mapping[str, Any], value: float, basis: str) -> OurNumber:
    is_current = kept["simulator_print"] == simulator_print()
    stale = "" if is_current else f" The simulator has changed since: `{KEEPING}` in a checkout keeps it anew."
    return OurNumber(
        value=value, source="estimated", machine=str(kept["summary"]["caches"]), over=reported.baseline,
        command=COMMAND, why=f"{basis} Replayed {kept['date']}, commit {kept['provenance']['git_commit']}.{stale}",
        cases=[{"application": name, "regret": regret, "best_static": kept["summary"]["best_static"][name]}
               for name, regret in kept["summary"]["regret"].items()],
    )  # fmt: skip


def path() -> Path:
    """The shipped file."""
    return data_directory() / "checks" / "cache_workloads.json"


def _kept() -> dict[str, Any]:
    """The kept summary; ValueError if the file has another form."""
    kept = json_value(path(), KIND)
    summary = kept.get("summary") if isinstance(kept, dict) else None
    if not isinstance(summary, dict):
        raise KIND.unreadable(path(), "it has no summary")
    for name, kind in NEEDED.items():
        if not isinstance(summary.get(name), kind):
            raise KIND.unreadable(
                path(), f"its {name} is {summary.get(name)!r}, and one of type {kind.__name__} is needed"
            )
    return kept


def simulator_print() -> str:
    """12 hexadecimal digits of the statements that replay, without docstrings and comments, and of their caches."""
    folder = Path(__file__).parents[1] / "simulator" / "cache"
    statements = [text for name in REPLAYS for text in executed((folder / f"{name}.py").read_text(encoding="utf-8"))]
    statements.append((data_directory() / "caches" / "gcn3_hbm.toml").read_text(encoding="utf-8"))
    return hashlib.sha256("\0".join(statements).encode()).hexdigest()[:12]


def keep(document: Mapping[str, Any]) -> dict[str, Any]:
    """The summary in *document*, the output of `workbench cache --json`, with date and provenance."""
    known = provenance()
    return {"command": COMMAND, "date": str(datetime.now(UTC).date()), "simulator_print": simulator_print(),
            "provenance": {name: known[name] for name in KEPT_PROVENANCE}, "summary": document["summary"]}  # fmt: skip


# Answers on finer-grain overlap (arXiv:2512.10236): ideal, schedules, losses and mesh.

MESH, SWITCH, WORLD = "mi300x_mesh8", "h200_nvl8", 8
TRANSFERS = ("all_gather", "all_to_all")
"""The paper's collectives without sums, because its ideal is of a pure transfer."""
PROBLEMS = (
    ("all_gather_gemm", "llama3_70b_attention_8192"), ("all_gather_gemm", "llama3_70b_mlp_8192"),
    ("gemm_reduce_scatter", "llama3_70b_attention_8192"), ("gemm_reduce_scatter", "llama3_70b_mlp_8192"),
    ("all_to_all_gemm", "mixtral_8x7b_experts_8192"), ("gemm_all_to_all", "mixtral_8x7b_experts_8192"),
)  # fmt: skip
"""Estimated operators and presets; the paper's sixteen are unknown."""
TOKENS = (512, 2048, 8192)
"""Tokens of the presets for the loss of pieces by size."""
SERIES = (("all_gather_gemm", "llama3_70b_mlp"), ("gemm_reduce_scatter", "llama3_70b_mlp"),
          ("gemm_all_to_all", "mixtral_8x7b_experts"), ("all_to_all_gemm", "deepseek_v3_experts"))  # fmt: skip
SHARD_BYTES = 2**24
"""One rank's contribution in the comparison of mesh and switch, in bytes."""
NOT_FITTED = "The machine is a datasheet: nothing was fitted to it."


def ideal(reported: PublishedNumber, book: Book) -> OurNumber:
    """The most that perfect overlap could gain: the sum of both parts alone, over the longer one."""
    names = [name for name, kind in OPERATORS.items() if kind.work == "gemm" and kind.collective in TRANSFERS]
    known = [case for name in names for case in cases(book, name, "fused") if case["compute_s"] and case["comm_s"]]
    if not known:
        return OurNumber(value=None, why="No recording of a GPU has a GEMM with its parts alone.")
    shown = [{**case, "ideal": metrics.ideal_speedup(case["compute_s"], case["comm_s"])} for case in known]
    best = max(shown, key=lambda case: case["ideal"])
    names = sorted({str(case["recording"]) for case in shown})
    return OurNumber(
        value=best["ideal"], low=min(case["ideal"] for case in shown), high=best["ideal"], source="recorded",
        machine=" and ".join(sorted({str(case["machine"]) for case in shown})), over="computation, then communication",
        command="workbench validate --all " + " ".join(f"--recording {name}" for name in names), cases=shown,
        why=f"(compute + wire) / the longer one: parts of {len(shown)} recorded GEMM problems, each timed alone. "
            "No ratio of this form can be above 2x: how near it comes depends on the shapes chosen.",
    )  # fmt: skip


def schedules(reported: PublishedNumber, book: Book) -> OurNumber:
    """The largest gain of pieces over the fastest sequential schedule, recorded on GPUs or else estimated."""
    known = [case for name in OPERATORS for case in cases(book, name, reported.scheme)]
    if known:
        shown = [{**case, "speed_up": 1 / (1 - case["reduction"])} for case in known]
        best = max(shown, key=lambda case: case["speed_up"])
        return OurNumber(value=best["speed_up"], low=min(case["speed_up"] for case in shown), high=best["speed_up"],
                    source="recorded", machine=str(best["machine"]), over="the fastest sequential one of its block",
                    command=f"workbench validate --all --recording {best['recording']}", cases=shown,
                    why=f"{len(shown)} recorded problems; the best of each, by search.")  # fmt: skip
    estimated = [_estimated(operator, preset, reported.scheme) for operator, preset in PROBLEMS]
    best = max(estimated, key=lambda case: case["speed_up"])
    return OurNumber(
        value=best["speed_up"], low=min(case["speed_up"] for case in estimated), high=best["speed_up"],
        source="estimated", machine=MESH, over="the fastest sequential schedule, all collectives of ours included",
        command=f"workbench recommend {best['operator']} --preset {best['preset']} --world {WORLD} --machine {MESH}",
        why=f"No recording of a GPU has decomposed schedules. {NOT_FITTED} {len(estimated)} problems of public models; "
            "a search over all axes and no heuristic.",
        cases=estimated,
    )  # fmt: skip


def _estimated(operator: str, preset: str, scheme: str) -> dict[str, Any]:
    case = lesson(operator, preset=preset, machine=MESH, world=WORLD)
    plain = case.fastest(BASELINE, tile="all", collective="all")
    cut = case.fastest(scheme, tile="all", pieces="all", engine=("copy_engine", "sm"))
    return {"operator": operator, "preset": preset, "machine": MESH, "sequential_s": plain.time_s,
            "time_s": cut.time_s, "schedule": str(cut.trial.schedule),
            "speed_up": plain.time_s / cut.time_s}  # fmt: skip


def losses(reported: PublishedNumber, book: Book) -> OurNumber:
    """Whether the loss of pieces falls with the size: computation in pieces alone, over the whole alone.

    Estimates use the same pieces for all sizes. `why` also has GPU recordings of the fastest pieces of each size.
    """
    shown = [_series(operator, family, reported.scheme) for operator, family in SERIES]
    falls = sum(case["falls"] for case in shown)
    ends_lower = sum(case["decomposition_loss"][-1] < case["decomposition_loss"][0] for case in shown)
    return OurNumber(
        value=falls / len(shown), source="estimated", machine=SWITCH, over="the whole computation alone",
        command=f"workbench predict {SERIES[0][0]} --preset {SERIES[0][1]}_{TOKENS[0]} --machine {SWITCH} --scheme "
                f"{reported.scheme}",
        why=f"The loss of {WORLD} pieces falls at every size from {TOKENS[0]} to {TOKENS[-1]} tokens in {falls} of "
            f"{len(shown)} series, and from first to last in {ends_lower}: pieces of few rows leave SMs "
            f"idle. {recorded_losses(book, reported.scheme)}The other loss, contention, "
            "is assumed by the simulator and not found by it.",
        cases=shown, covered=(falls, len(shown)),
    )  # fmt: skip


def recorded_losses(book: Book, scheme: str) -> str:
    """The losses of the shorter and the longer half of all recorded computations; empty without recordings."""
    rows = [
        row for recorded in book.values() for row in recorded if row["scheme"] == scheme and row["decomposition_loss"]
    ]
    known = {row["block"]: (row["whole_s"], row["decomposition_loss"]["compute"]) for row in rows
             if row["decomposition_loss"]["compute"]}  # fmt: skip
    ordered = [loss for _, loss in sorted(known.values())]
    if len(ordered) < 2:
        return ""
    shorter, longer = ordered[: len(ordered) // 2], ordered[len(ordered) // 2 :]
    return (
        f"Recorded on GPUs, each computation in its fastest pieces: the {len(shorter)} shorter ones take "
        f"{median(shorter):.2f} of the whole, the {len(longer)} longer ones {median(longer):.2f} (medians). "
    )


def _series(operator: str, family: str, scheme: str) -> dict[str, Any]:
    by_tokens = [
        _loss(lesson(operator, preset=f"{family}_{rows}", machine=SWITCH, world=WORLD), scheme) for rows in TOKENS
    ]
    falls = all(later <= earlier for earlier, later in pairwise(by_tokens))
    return {"operator": operator, "preset": family, "tokens": list(TOKENS), "decomposition_loss": by_tokens,
            "falls": falls and by_tokens[-1] < by_tokens[0]}  # fmt: skip


def _loss(case: Lesson, scheme: str) -> float:
    return (case.alone("compute", scheme, pieces=WORLD, split="rows").time_s
            / case.alone("compute", BASELINE).time_s)  # fmt: skip


def mesh(reported: PublishedNumber) -> OurNumber:
    """The time of a ring of shards over that of sending to all peers at once, on a mesh and on a switch."""
    ratio = {name: _ring_over_direct(name) for name in (MESH, SWITCH)}
    return OurNumber(
        value=ratio[MESH], low=ratio[SWITCH], high=ratio[MESH], source="estimated", machine=MESH,
        over="every peer at once (direct)",
        command=f"workbench predict-collective all_gather --bytes {SHARD_BYTES} --machine {MESH} --world {WORLD}",
        why=f"A ring uses one link of {WORLD - 1} on the mesh: {ratio[MESH]:.1f}x as long. On {SWITCH}, a switch, "
            f"{ratio[SWITCH]:.2f}x: nothing is idle there. Communication alone; with a GEMM less of it shows. "
            f"{NOT_FITTED}",
        cases=[{"machine": name, "ring_over_direct": value, "bytes": SHARD_BYTES} for name, value in ratio.items()],
    )  # fmt: skip


def _ring_over_direct(name: str) -> float:
    network = of_machine(shipped_machine(name), WORLD)
    ring, direct = (collective(network, "all_gather", SHARD_BYTES, way).seconds for way in ("ring", "direct"))
    return ring / direct


# All answers.

Way = Callable[[PublishedNumber], OurNumber]


class ClaimSources:
    """The functions that answer published numbers, with recordings that are read once."""

    def __init__(self) -> None:
        self._book = cache(gpu_rows)
        self.ways: Mapping[str, Way] = {
            **WAYS,
            **dict.fromkeys(("R03", "R04", "R05", "R07", "R08", "R09", "R10"), self._by(within_a_node)),
            "R20": self._by(ideal), "R21": self._by(schedules), "R23": mesh,
            "R25": self._by(losses), "R30": self._by(within_a_node), "R40": studied,
            "R41": best_static,
        }  # fmt: skip
        """Functions by the id of a published number."""

    def _by(self, way: Callable[[PublishedNumber, Book], OurNumber]) -> Way:
        return lambda reported: way(reported, self._book())


def answers(ids: Sequence[str] = ()) -> list[ClaimAnswer]:
    """Our answers to the published numbers *ids*, or to all that we can answer; ValueError lists those."""
    ways = ClaimSources().ways
    wanted = [name.upper() for name in ids]
    known = [number.id for number in published() if number.id in ways]
    if unknown := [name for name in ids if name.upper() not in ways]:
        raise ValueError(f"{unknown[0]} is not among the {len(ways)} published numbers that we answer. Accepted: "
                         f"{', '.join(known)}.")  # fmt: skip
    chosen = [number for number in published() if number.id in (wanted or ways)]
    return [ClaimAnswer(published=number, ours=ways[number.id](number)) for number in chosen]


def unanswered() -> list[PublishedNumber]:
    """The published numbers that we cannot answer."""
    ways = ClaimSources().ways
    return [number for number in published() if number.id not in ways]
