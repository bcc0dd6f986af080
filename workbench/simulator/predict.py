"""The estimate of one trial: its Plan is played, and an interval says how far the time may be off."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from kernels.fabric import SLICE_SECONDS, Fabric
from kernels.machine import Machine
from kernels.operators import operator
from kernels.outcome import Estimate, Span
from kernels.problem import Problem
from kernels.schedule import Refusal, Schedule
from kernels.schemes import BASELINE, axis_rules, expand, refusal, schedule
from kernels.schemes.concurrent import problems
from kernels.trial import PROTOCOLS, Trial
from workbench.simulator import intervals
from workbench.simulator.columns import Identity
from workbench.simulator.play import play, spans
from workbench.simulator.price import power
from workbench.simulator.price.messages import are_measured
from workbench.simulator.price.shared import shares_are_measured, shares_sms
from workbench.simulator.price.steps import step_costs

PREDICTOR = "play 19"
"""Name and version; the version rises whenever one machine file would give another number."""

UNCALIBRATED = (0.7, 3.0)
"""Assumed band of measured over estimated times, for machines without a comparison. As a rule, a half or less of
datasheet peaks is reached (so up to 3 x the estimate), and an assumed fixed cost may be too high (so down to 0.7 x)."""


def predict(trial: Trial, machine: Machine, *, with_spans: bool = True) -> Estimate:
    """The simulator's estimate for *trial* on *machine*; Refusal if the schedule is illegal there.

    Under steady load it is of what the power cap pays for (price/power.py), without spans: those are of a burst.
    """
    today = axis_rules.effective(
        trial.problem, trial.schedule, machine.backend
    )  # older trials have axes that are not read
    message = refusal(trial.problem, today, machine, trial.fabric) or no_estimate(trial.fabric)
    if message is not None:
        raise Refusal(message)
    trial = replace(trial, fabric=resolved(trial.fabric, trial.problem, machine))
    with_spans = with_spans and not trial.protocol.is_steady
    question = trial.problem, trial.schedule, trial.part, trial.fabric
    call_s, timeline = _played(*question, machine) if with_spans else (_call_seconds(*question, Identity(machine)), ())
    time_s = call_s / problems(trial.schedule)
    if trial.protocol.is_steady:
        time_s = _loaded_seconds(trial, machine, time_s)
    calibrated = is_calibrated(trial, machine)
    low, high = interval(time_s, replace(machine, spread=_spread(replace(trial, schedule=today), machine)))
    return Estimate(
        trial=trial, time_s=time_s, low_s=low, high_s=high, calibrated=calibrated,
        predictor=PREDICTOR, digest=machine.digest, spans=timeline,
    )  # fmt: skip


def _played(
    problem: Problem, schedule: Schedule, part: str, fabric: Fabric, machine: Machine
) -> tuple[float, tuple[Span, ...]]:
    """Seconds of a call on *machine* in a burst, over the resolved *fabric*, and its spans."""
    plan = expand(problem, schedule).part(part)
    costs = step_costs(plan, machine, fabric)
    played = play(plan, costs)
    return played.time_s, spans(plan, played, costs)


@lru_cache(maxsize=8192)
def _call_seconds(problem: Problem, schedule: Schedule, part: str, fabric: Fabric, on: Identity) -> float:
    """Seconds of a call as `_played` has them: searches, checks and documents ask for the same again and again."""
    plan = expand(problem, schedule).part(part)
    return play(plan, step_costs(plan, on.value, fabric)).time_s


def _loaded_seconds(trial: Trial, machine: Machine, burst_s: float) -> float:
    """Seconds of *trial* under steady load, which takes *burst_s* in a burst; Refusal where that is not known."""
    if (clause := power.unknown(trial, machine)) is not None:
        raise Refusal(
            f"protocol = {trial.protocol.name} has no estimate here: {clause}. Accepted: a run on GPUs, or another "
            "protocol."
        )
    model = power.of_device(machine.device.name)
    assert model is not None, "it is known"
    return model.seconds(loaded_work(trial, machine, burst_s, model))


def loaded_work(trial: Trial, machine: Machine, burst_s: float, model: power.PowerModel) -> power.Work:
    """What one call of *trial* takes of a card, by the estimates of its parts in bursts."""
    burst = _after_one_another(replace(trial, protocol=PROTOCOLS["default"]))
    compute_s, communicate_s = (
        burst_s if trial.part == part else predict(burst.of_part(part), machine, with_spans=False).time_s
        for part in ("compute", "communication")
    )
    return power.work(trial, model, burst_s, compute_s, communicate_s)


def _after_one_another(trial: Trial) -> Trial:
    """*trial* without torch's overlapped operators, whose computation alone has the gather inside."""
    if not power.overlaps_by_itself(trial.schedule):
        return trial
    axes = {**dict(trial.schedule.axes), "collective": "direct"}
    return replace(trial, schedule=replace(trial.schedule, axes=tuple(axes.items())))


def no_estimate(fabric: Fabric) -> str | None:
    """Why nothing is estimated over *fabric*, or None."""
    if not fabric.shares_gpu:
        return None
    return (
        f"fabric = {fabric.kind} has no estimate. Its ranks take turns on 1 GPU, in slices of about "
        f"{SLICE_SECONDS * 1e3:g} ms, which no machine file describes. Accepted: a run, or another fabric."
    )


def _spread(trial: Trial, machine: Machine) -> tuple[float, float] | None:
    """Least and most measured over estimated times of trials like this one; None where none were compared."""
    if trial.part == "whole" and not shares_are_measured(problems(trial.schedule), machine):
        return checked_spread(trial, machine)
    return intervals.interval(trial, machine) or checked_spread(trial, machine)


def checked_spread(trial: Trial, machine: Machine) -> tuple[float, float] | None:
    """Least and most measured over estimated times in the machine's check; None where none were compared."""
    if trial.part != "whole" or not shares_sms(problems(trial.schedule), machine):
        return machine.spread
    return machine.streams_spread if shares_are_measured(problems(trial.schedule), machine) else None


def is_calibrated(trial: Trial, machine: Machine) -> bool:
    """Whether all that the estimate of *trial* rests on was measured: devices, the links it crosses, shares of SMs."""
    crosses = trial.part != "compute"
    links_are = not crosses or are_measured(trial.world, machine, trial.fabric)
    shares_are = trial.part != "whole" or shares_are_measured(problems(trial.schedule), machine)
    return machine.calibrated is not None and links_are and shares_are


def interval(time_s: float, machine: Machine) -> tuple[float, float]:
    """*time_s* times the spread of measured over estimated times, or times an assumed band where there is none."""
    low, high = machine.spread or UNCALIBRATED
    return time_s * min(1.0, low), time_s * max(1.0, high)


def resolved(fabric: Fabric, problem: Problem, machine: Machine) -> Fabric:
    """*fabric* with a bandwidth: computed from the machine where it is given as wire_to_compute."""
    if fabric.resolved:
        return fabric
    wire_bytes = operator(problem.operator).wire_bytes(problem)
    return fabric.resolve(wire_bytes, compute_alone_seconds(problem, machine, fabric), problem.world)


def compute_alone_seconds(problem: Problem, machine: Machine, fabric: Fabric) -> float:
    """Seconds that `wire_to_compute` is relative to: the default sequential schedule's computation alone."""
    plan = expand(problem, schedule(problem, BASELINE, {}, machine, fabric)).part("compute")
    return play(plan, step_costs(plan, machine, Fabric(kind="shared_memory"))).time_s
