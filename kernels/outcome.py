"""The outcome of a trial: a Measurement, an Estimate or a Failure, and the samples and spans in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple

from kernels.events import ResultEvent, TrialEvent
from kernels.fabric import TIMES_ARE_NOT
from kernels.hardware import Hardware
from kernels.regime import BURST, STEADY, Regime, regime, settled
from kernels.trial import Trial

SOURCES = ("measured", "recorded", "estimated", "published")
STAGES = ("refused", "compile", "launch", "hang", "wrong", "lost", "cancelled")

ROW_KEYS = (
    "outcome",
    "source",
    "key",
    "run",
    "operator",
    "shape",
    "dtype",
    "world",
    "scheme",
    "axes",
    "backend",
    "machine",
    "fabric",
    "protocol",
    "regime",
    "part",
    "time_s",
    "low_s",
    "high_s",
    "calibrated",
    "floor_s",
    "compute_s",
    "comm_s",
    "sequential_s",
    "wire_bytes_per_rank",
    "correct",
    "max_relative_error",
    "samples",
    "skew_s",
    "others_share",
    "others",
    "stage",
    "message",
    "block",
    "hardware",
    "source_print",
    "versions_print",
    "pipeline_floor_s",
    "decomposition_loss",
    "contention_loss",
    "ideal_speedup",
    "share_of_ideal",
    "time_ratio",
    "against_streams",
    "overlap_ratio",
)
"""Columns that all outcomes share, in the order of `run --json`; one that does not apply is None."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One timed iteration on one rank."""

    key: str
    """Key of the trial."""
    rank: int
    index: int
    seconds: float
    at: float
    """Unix time at which it ended."""
    block: str | None = None
    """The block that it was timed in."""


class TileTimes(NamedTuple):
    """Times of one tile of a step, of one sum, or of one program's share of a put, on one SM of a GPU."""

    number: int
    """Its place in the rank's tile order; for a put, the program that moved this share."""
    processor: int
    start_s: float
    waited_s: float
    """End of its wait."""
    computed_s: float
    sent_s: float


class Span(NamedTuple):
    """The time during which one step ran: seconds from the start of its iteration on its rank.

    It is a tuple, since a Plan has tens of thousands of them.
    """

    step: str
    """The step's address: rank/kind/peer/index."""
    rank: int
    kind: str
    pool: str
    """Name of the Pool that the step held a share of, or of the link while its bytes left."""
    start_s: float
    stop_s: float
    waited_for: str | None = None
    """Address of the last step it waited for."""
    tick_s: float = 0.0
    """Resolution of its clock: shorter spans are not exact. 0: finer than anything shown."""
    tiles: tuple[TileTimes, ...] = ()
    """Times of its tiles on GPUs, on all SMs or on some that represent the others."""
    stream: int = 0
    """Stream of the step's launch; 0 also where the launch has none."""
    micro_batch: int | None = None
    """The problem that it works on, of several in one call; None where there is one problem."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """All samples of all ranks of one trial."""

    trial: Trial
    samples: tuple[tuple[float, ...], ...]
    """Seconds of every iteration, by rank."""
    source: str = "measured"
    correct: bool | None = None
    """Whether the result agreed with the reference before the clock started; None for a part, which has no result."""
    max_relative_error: float | None = None
    spans: tuple[Span, ...] = ()
    """Spans of the iteration nearest the median; on GPUs, of one more call that records them."""
    unseen: str | None = None
    """Why there are no spans where there should be some."""
    source_print: str | None = None
    """Fingerprint of the kernels that the ranks ran; None in older recordings."""
    versions_print: str | None = None
    """Fingerprint of the libraries on the ranks' hosts."""
    hardware: Hardware | None = None
    """Hardware that the ranks ran on."""
    conditions: tuple[Mapping[str, Any], ...] = ()
    """Conditions during the samples: rank, reading, the samples that it holds for, and the clocks and power that the
    backend reports. Of cores: `cores` that the ranks may use, `others_cores` that others had, and `whom`, by party."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """How it was timed in addition to its protocol: the seed and number of operand sets, NCCL's settings."""
    block: str | None = None
    """Block of trials that it was interleaved with in one grant, inside which ratios are formed; None: not recorded."""

    @property
    def unmet(self) -> tuple[str, ...]:
        """A message for each control of the schedule that had no effect on a rank, so that its time is without it."""
        controls = self.facts.get("controls")
        by_rank = controls if isinstance(controls, list) else [controls]
        of_each = (each["unmet"] for each in by_rank if isinstance(each, Mapping) and each.get("unmet"))
        return tuple(dict.fromkeys(str(message) for messages in of_each for message in messages))

    @property
    def remark(self) -> str | None:
        """Why its time or spans are incomplete: a shared GPU, controls without effect, a regime that is unknown under
        steady load, and spans that are missing.

        A measurement that is read from a row has the whole remark in `unseen`.
        """
        before = self.unseen or ""
        on_one = self.trial.fabric.shares_gpu or (self.hardware is not None and self.hardware.shares_gpu)
        shared = [TIMES_ARE_NOT] if on_one else []
        steady = [self.regime.why] if self.trial.protocol.is_steady and self.regime and self.regime.why else []
        unmet = [message for message in (*shared, *self.unmet, *steady) if message not in before]
        return " ".join([*unmet, before]).strip() or None

    @property
    def regime(self) -> Regime | None:
        """The regime of its GPUs, as their readings say; None for CPU ranks."""
        if self.trial.backend == "cpu":
            return None
        return regime(self.conditions, self.trial.world, settled=settled(self.facts))

    @property
    def core_use(self) -> tuple[Mapping[str, Any], ...]:
        """The conditions that are about cores, each of one window and one host; empty where nobody read them."""
        return tuple(each for each in self.conditions if "others_cores" in each)

    @property
    def _others_shares(self) -> dict[int, float]:
        """Share of the cores that others had over all samples, by the rank that read its host's cores."""
        by_rank: dict[int, list[tuple[int, float]]] = {}
        for each in self.core_use:
            first, last = each["samples"]
            by_rank.setdefault(each["rank"], []).append((last - first + 1, each["others_cores"] / each["cores"]))
        return {rank: sum(many * share for many, share in of) / sum(many for many, _ in of)
                for rank, of in by_rank.items()}  # fmt: skip

    @property
    def others_share(self) -> float | None:
        """Share of the cores that others had, on the worst host, over all samples; None where nobody read it."""
        return round(max(shares.values()), 4) if (shares := self._others_shares) else None

    @property
    def others(self) -> str | None:
        """How many cores others had on the worst host, and who had most of them; None where nobody read it."""
        if not (shares := self._others_shares):
            return None
        worst = max(shares, key=lambda rank: shares[rank])
        use = next(each for each in self.core_use if each["rank"] == worst)
        whom = max(use["whom"], key=lambda party: float(use["whom"][party]), default="")
        return f"{shares[worst] * use['cores']:.1f} of {use['cores']:g} cores" + (f", mostly {whom}" if whom else "")

    @property
    def medians(self) -> tuple[float, ...]:
        return tuple(median(of_rank) for of_rank in self.samples)

    @property
    def time_s(self) -> float:
        """The time that is reported: the slowest rank's median."""
        return max(self.medians)

    @property
    def skew_s(self) -> float:
        """Slowest minus fastest rank's median."""
        return max(self.medians) - min(self.medians)

    def quantile_s(self, share: float) -> float:
        """The *share* quantile of the slowest rank."""
        slowest = sorted(self.samples[self.medians.index(self.time_s)])
        return slowest[min(len(slowest) - 1, int(share * len(slowest)))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The simulator's prediction of a trial."""

    trial: Trial
    time_s: float
    low_s: float
    high_s: float
    calibrated: bool
    """Whether the machine file was fitted to a running machine."""
    predictor: str
    """Name and version of the predictor."""
    digest: str
    """Hash of the machine file."""
    spans: tuple[Span, ...] = ()
    source: str = "estimated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a trial has no time."""

    trial: Trial
    stage: str
    """One of STAGES."""
    message: str
    rank: int | None = None
    source: str = "measured"
    block: str | None = None
    """The block that it ran in, as in a Measurement."""


Outcome = Measurement | Estimate | Failure


def trial_row(trial: Trial) -> dict[str, Any]:
    """A row of ROW_KEYS that describes *trial*, without an outcome."""
    return dict.fromkeys(ROW_KEYS) | {
        "key": trial.key,
        "operator": trial.problem.operator,
        "shape": dict(trial.problem.shape),
        "dtype": trial.problem.dtype,
        "world": trial.world,
        "scheme": trial.schedule.scheme,
        "axes": dict(trial.schedule.axes),
        "backend": trial.backend,
        "machine": trial.machine,
        "fabric": str(trial.fabric),
        "protocol": trial.protocol.name,
        "part": trial.part,
    }


def row(outcome: Outcome, run: str | None = None) -> dict[str, Any]:
    """*outcome* as a flat row of ROW_KEYS; joined numbers (floor_s, compute_s, ...) stay None for metrics to fill."""
    values: dict[str, Any] = trial_row(outcome.trial) | {
        "outcome": type(outcome).__name__.lower(),
        "source": outcome.source,
        "run": run,
        "block": getattr(outcome, "block", None),
    }
    match outcome:
        case Measurement():
            values |= {
                "time_s": outcome.time_s,
                "low_s": outcome.quantile_s(0.1),
                "high_s": outcome.quantile_s(0.9),
                "correct": outcome.correct,
                "max_relative_error": outcome.max_relative_error,
                "samples": sum(len(of_rank) for of_rank in outcome.samples),
                "skew_s": outcome.skew_s,
                "others_share": outcome.others_share,
                "others": outcome.others,
                "regime": outcome.regime and outcome.regime.name,
                "message": outcome.remark,
                "hardware": outcome.hardware and outcome.hardware.to_json(),
                "source_print": outcome.source_print,
                "versions_print": outcome.versions_print,
            }
        case Estimate():
            values |= {
                "time_s": outcome.time_s,
                "low_s": outcome.low_s,
                "high_s": outcome.high_s,
                "calibrated": outcome.calibrated,
                "regime": _estimated_regime(outcome.trial),
            }
        case Failure():
            values |= {
                "stage": outcome.stage,
                "message": outcome.message,
                "correct": False if outcome.stage == "wrong" else None,
            }
    return values


def _estimated_regime(trial: Trial) -> str | None:
    """The regime that an estimate of *trial* is for; None for CPU ranks."""
    if trial.backend == "cpu":
        return None
    return STEADY if trial.protocol.is_steady else BURST


BLOCK_KIND, CHOOSING = "block_kind", "first"
"""A fact of a recorded block, and its value where all baselines were timed once to choose the fastest."""
TIMED_HOW = ("conditions", "facts")
"""Fields of a measurement that are stored in addition to its row and its samples."""


def timed_how(outcome: Outcome) -> dict[str, Any]:
    """The TIMED_HOW fields of *outcome* that are not empty, by name."""
    if not isinstance(outcome, Measurement):
        return {}
    values = {"conditions": list(outcome.conditions), "facts": dict(outcome.facts)}
    return {name: values[name] for name in TIMED_HOW if values[name]}


@dataclass
class Gather:
    """Combines the events of all ranks of one trial. Feed it every event; it returns a sample or the outcome."""

    trial: Trial
    _samples: dict[int, list[float]] = field(default_factory=dict)
    _ended_at: dict[int, list[float]] = field(default_factory=dict)
    """Unix times at which each rank's samples ended."""
    _results: dict[int, ResultEvent] = field(default_factory=dict)

    def feed(self, event: TrialEvent) -> Sample | Outcome | None:
        """A Sample for each sample event, the Outcome once every rank has its result or one has failed."""
        match event["kind"]:
            case "sample":
                self._samples.setdefault(event["rank"], []).append(event["seconds"])
                self._ended_at.setdefault(event["rank"], []).append(event["at"])
                return Sample(event["trial"], event["rank"], event["index"], event["seconds"], event["at"])
            case "failure":
                return Failure(trial=self.trial, stage=event["stage"], message=event["message"], rank=event["rank"])
            case "result":
                self._results[event["rank"]] = event
                return self._measurement() if len(self._results) == self.trial.world else None
        return None

    def _measurement(self) -> Measurement:
        by_rank = [self._results[rank] for rank in range(self.trial.world)]
        errors = [result["max_relative_error"] for result in by_rank if result["max_relative_error"] is not None]
        verdicts = [result["correct"] for result in by_rank]
        return Measurement(
            trial=self.trial,
            samples=tuple(tuple(self._samples[rank]) for rank in range(self.trial.world)),
            correct=None if None in verdicts else all(verdicts),
            max_relative_error=max(errors, default=None),
            spans=tuple(span(entry) for result in by_rank for entry in result["spans"]),
            unseen=next((why for result in by_rank if (why := result["facts"].get("unseen"))), None),
            source_print=by_rank[0].get("source_print"),
            versions_print=by_rank[0].get("versions_print"),
            hardware=Hardware.from_json(hardware) if (hardware := by_rank[0].get("hardware")) else None,
            conditions=tuple(
                {"rank": rank, "reading": number, **condition}
                for rank, result in enumerate(by_rank)
                for number, condition in enumerate(self._conditions(rank, result))
            ),
            facts=_agreed([result["facts"].get("timed", {}) for result in by_rank]),
        )

    def _conditions(self, rank: int, result: ResultEvent) -> list[Mapping[str, Any]]:
        """The readings of the rank's device, then those of its host's cores with the samples of each window."""
        readings: list[Mapping[str, Any]] = [*result["facts"].get("conditions", ())]
        use = result["facts"].get("core_use") or {"windows": ()}
        for start, stop, others_cores in use["windows"]:
            inside = [number for number, at in enumerate(self._ended_at.get(rank, ())) if start < at <= stop]
            if inside:
                readings.append({"samples": [inside[0], inside[-1]], "cores": use["cores"],
                                 "others_cores": others_cores, "whom": use["whom"], "at": stop})  # fmt: skip
        return readings


def _agreed(by_rank: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The facts of all ranks by name; a list by rank where ranks differ."""
    lists = {name: [facts.get(name) for facts in by_rank] for facts in by_rank for name in facts}
    return {name: values[0] if values.count(values[0]) == len(values) else values for name, values in lists.items()}


SPAN_NEEDS = 6
"""Number of fields that every written Span has."""
_NOT_WRITTEN = (None, 0.0, (), 0, None)
"""Values of the other fields in files that end earlier: before the step waited for, the tick or the tiles."""


def span_values(span: Span) -> tuple[Any, ...]:
    """The fields of *span* in order, for sending and storing; trailing defaults are left out."""
    if span.micro_batch is not None:
        return span
    return span[:-1] if span.stream else span[:-2]


def all_span_values(written: Sequence[Any]) -> tuple[Any, ...]:
    """Every field of the Span that was *written* with SPAN_NEEDS of them or more."""
    return (*written, *_NOT_WRITTEN[len(written) - SPAN_NEEDS :])


def span(written: Sequence[Any]) -> Span:
    """The Span that was sent or stored as a list of its fields."""
    *known, tiles, stream, micro_batch = all_span_values(written)
    fields = (*known, tuple(TileTimes(*each) for each in tiles), stream, micro_batch)
    return Span(*fields)
