"""The commands that take a request: run, predict, sweep, recommend."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cluster.watchdog import WAIT_S
from workbench.cli import exit_status, options
from workbench.cli.options import Typed, documented, request_command
from workbench.cli.options import request as request_of
from workbench.cli.output import (
    document,
    said_if_slow,
    say,
    say_known,
    say_off,
    show_failures,
    show_json,
    show_outcomes,
    show_rows,
)
from workbench.cli.sessions import RunResult, estimated, measured, opened, placed

if TYPE_CHECKING:
    from workbench.analysis.accuracy import EstimateError
    from workbench.experiment.answer import Answer
    from workbench.experiment.experiment import Experiment
    from workbench.experiment.question import Request


@request_command()
def run(
    typed: Typed,
    cluster: options.Cluster = None,
    wait: options.Wait = WAIT_S,
    fresh: options.Fresh = False,
    store: options.StorePath = None,
    json: options.Json = False,
) -> int:
    """Measure one schedule, or compare three, interleaved in one run with their baselines.

    Of the floor: the time over the longer of two, the fastest known computation alone and the fewest bytes over the
    link. Speed-up over sequential: how many times faster than the fastest sequential schedule, torch's overlapped
    operators among them.
    """
    with documented(json, typed, "measured"):
        placed_request, choice = placed(request_of(typed), cluster).chosen()
        if choice:
            say(choice)
        request = placed_request.measured()
        experiment = request.experiment(parts="each", together=True, fresh=fresh)
        result = measured(experiment, request.machine_description(), cluster, store, wait)
        wanted = result.requested()
        if not wanted:
            raise result.reason()
        if json:
            _show_documents(wanted, placed_request, result)
    if not json:
        whole = [row for row in result.rows if row["part"] == "whole"]
        show_outcomes(whole)
        say_known([row for row in whole if row["source"] != "estimated"])
    _say_failures(wanted, result.failed(), [row for row in result.rows if row["part"] == "whole"])
    say_off(_off(result.rows))
    _say_end(result)
    return result.status


@request_command()
def predict(
    typed: Typed,
    cluster: options.Estimated = None,
    store: options.StorePath = None,
    json: options.Json = False,
) -> int:
    """Estimate the same schedules by simulation, for this computer or any machine."""
    from workbench.experiment.sources import predictions_and_baselines

    with documented(json, typed, "estimated"):
        request, choice = estimated(request_of(typed), cluster).chosen()
        if choice:
            say(choice)
        known = opened(store) if _store_path(store).exists() else None
        rows, baselines = predictions_and_baselines(request.experiment(), request.machine_description(), known)
        _refuse_nothing(rows)
        if json:
            _show_documents(rows, request)
    if not json:  # with what the speed-ups are over
        show_outcomes([*rows, *baselines])
    _say_failures(rows, [row for row in rows if row["outcome"] == "failure"])
    return exit_status.of_rows(rows)


def sweep(
    space: Annotated[Path, typer.Argument(help="A TOML file: problems, schemes and lists of axis values.")],
    cluster: options.Cluster = None,
    wait: options.Wait = WAIT_S,
    budget: options.Budget = None,
    fresh: options.Fresh = False,
    estimate: Annotated[bool, typer.Option("--estimate", help="Simulate all of it, for any machine.")] = False,
    store: options.StorePath = None,
    every: options.Every = False,
    json: options.Json = False,
) -> int:
    """Measure a space of schedules, or estimate it; known ones are not measured again.

    \b
    A space, as in data/spaces/u_curve.toml.
    Every combination of the lists is measured:
      operator = "gemm_all_to_all"     # or a list
      preset = "laptop_ladder"         # or [shape], then m = 64, n = [32, 64]
      world = [2]
      search = {kind = "random", count = 20}   # default: "exhaustive"
      #        also budget_s = 60: seconds after which no block begins
      [scheme.sequential]
      [scheme.decomposed]
      pieces = [1, 2, 4, 8, 16, 32, 64]        # or "all"

    Other axes keep their default. A file may also set dtype, machine, fabric, protocol, title and parts. To tune, set
    kind = "estimate_first": schedules are measured in the order of their estimates, until the next lower bound exceeds
    the best measured time. `workbench recommend` names the winner.
    """
    from dataclasses import replace

    from workbench import machines
    from workbench.experiment import question
    from workbench.experiment.forecast import SAMPLED

    if estimate:
        return _estimate_space(space, cluster, store, every=every, json=json)
    with said_if_slow(f"Reading {space.name}."):
        experiment = replace(question.load(space, lambda request: placed(request, cluster)), fresh=fresh)
        if budget is not None:
            experiment = replace(experiment, search=replace(experiment.search, budget_s=budget))
    if (count := len(experiment.problems)) > SAMPLED:  # these take a while
        say(f"{space.name} has {count:,} problems.")
    result = measured(experiment, machines.machine(experiment.machine), cluster, store, wait)
    wanted = [row for row in result.rows if row["requested"]]
    if json:
        show_rows([_without_marks(row) for row in result.rows], _summary(wanted, result))
    else:
        show_outcomes(wanted, title=_title(experiment, space), every=every)
        show_failures([*wanted, *(row for row in result.failed() if not row["requested"])], every=every)
        say_known([row for row in wanted if row["source"] != "estimated"])
        say(_swept(wanted, result, store))
        if result.ended_early:
            say(result.ended_early)
        if text := _left_out(experiment):
            say(text)
        say_off(_off(result.rows))
    _say_end(result)
    return result.status


def _left_out(experiment: Experiment) -> str:
    """What a space that has every value of an axis leaves out; empty for others."""
    from workbench import machines
    from workbench.experiment.space import left_out_text

    place = machines.machine(experiment.machine)
    points = (experiment.points(each, place, measured=True) for each in experiment.problems)
    return left_out_text([*points]) if experiment.space.has_every else ""


def _title(experiment: Experiment, space: Path) -> str:
    """The title that the file *space* sets; empty where it sets none, since whoever typed its name knows it."""
    return experiment.title if experiment.title != space.stem else ""


def _estimate_space(space: Path, cluster: str | None, store: Path | None, *, every: bool, json: bool) -> int:
    """Estimates every combination of the file *space* for its machine; returns the exit status."""
    from workbench import machines
    from workbench.experiment import question
    from workbench.experiment.sources import predictions_and_baselines

    with said_if_slow(f"Estimating {space.name}."):
        experiment = question.load(space, lambda request: estimated(request, cluster))
        with opened(store) if _store_path(store).exists() else nullcontext() as known:
            rows, baselines = predictions_and_baselines(experiment, machines.machine(experiment.machine), known)
    _refuse_nothing(rows)
    if json:
        show_rows([document(row) for row in rows], _summary(rows, None))
    else:
        show_outcomes([*rows, *baselines], title=_title(experiment, space), every=every)
        show_failures(rows, every=every)
    return exit_status.of_rows(rows)


@request_command()
def recommend(
    typed: Typed,
    count: Annotated[int, typer.Option(min=1, help="How many schedules to name.")] = 5,
    cluster: options.Estimated = None,
    store: options.StorePath = None,
    every: options.Every = False,
    json: options.Json = False,
) -> int:
    """Answer which schedule to take, why, how sure that is, and which command would make it surer.

    The first line is the answer: a time of this problem on the same hardware, from recordings or your own runs, or
    else an estimate with its interval. Where two are within noise it takes the simpler one. Where no estimate is good
    enough it says so, and ends with 2 if the machine was never measured with this operator or number of ranks. Axes
    that you set keep their values. Times of one call per graph or under steady load answer where --protocol asks for
    them, and nothing else does then. --all adds every measured and estimated schedule.
    """
    from workbench.cli.recommend import show_answer, show_rest
    from workbench.experiment.answer import answer_of

    with documented(json, typed, "estimated"):
        request = estimated(request_of(typed), cluster)
        with said_if_slow("Looking through recordings, runs and estimates."):
            with opened(store) if _store_path(store).exists() else nullcontext() as known:
                answer = answer_of(request, known, count)
            rows, num_points = _looked_through(request, answer, count) if every else ([], 0)
    status = exit_status.REFUSED if answer.never_measured else exit_status.DONE
    if json:
        more = {"points": num_points, "alike": [row["alike"] for row in rows]} if every else {}
        about = {"status": status, "status_about": answer.text if status else None}
        show_rows(
            [{**document(row), "reason": row["reason"]} for row in answer.rows], {**answer.summary(), **about, **more}
        )
        return status
    show_answer(answer, every=every)
    if every:
        show_rest(answer, rows, num_points)
    return status


def _looked_through(request: Request, answer: Answer, count: int) -> tuple[list[dict[str, Any]], int]:
    """The best *count* estimates of every point of the space, with what does not change each; the number of points."""
    from dataclasses import replace

    from kernels.backends.capabilities import MeasuringRanks
    from kernels.schemes import COMPARED
    from workbench.experiment import recommend as search
    from workbench.results import metrics

    place = request.machine_description()
    free = search.every_value(request.schemes or COMPARED, answer.problem, place, answer.fabric)
    experiment = replace(request, settings=tuple((free | dict(request.settings)).items())).experiment()
    ranks = MeasuringRanks(place, answer.linked)
    named, num_points = search.recommend(answer.problem, ranks, experiment.space, experiment.protocol, count)
    return [{**metrics.row_of(each.estimate, None, place), "alike": dict(each.alike)} for each in named], num_points


def _refuse_nothing(rows: Sequence[Mapping[str, Any]]) -> None:
    if all(row["outcome"] == "failure" for row in rows):
        raise ValueError(rows[0]["message"])


def _store_path(path: Path | None) -> Path:
    from workbench.results.store import store_path

    return store_path(path)


def _show_documents(wanted: Sequence[Mapping[str, Any]], request: Request, result: RunResult | None = None) -> None:
    """Prints one document if the request asks for one schedule; rows where several are compared."""
    is_one = request.schemes and sum(row["part"] == "whole" for row in wanted) <= 1
    if is_one:
        show_json(document(wanted[-1]))
    else:
        show_rows([document(row) for row in wanted], _summary(wanted, result))


def _off(rows: Sequence[Mapping[str, Any]]) -> list[EstimateError]:
    from workbench.analysis.accuracy import wrong_estimates

    return wrong_estimates(rows)


def _say_end(result: RunResult) -> None:
    """Says which trials ran again, how many never began, and what ended the run if no outcome says so."""
    if result.again.message():
        say(result.again.message())
    if result.error is not None and result.not_begun:
        say(f"{result.not_begun:,} {'schedule was' if result.not_begun == 1 else 'schedules were'} not begun.")
    if result.error is not None and not any(row["message"] == str(result.error) for row in result.failed()):
        say(str(result.error))


def _say_failures(
    rows: Sequence[Mapping[str, Any]],
    failures: Sequence[Mapping[str, Any]],
    shown: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Says each failure message once: its reason often holds for several schemes.

    Where other schemes have a time, or only a part failed, the message names its schemes; where another schedule of the
    same scheme is *shown* with a time, it names the axes, too.
    """
    from workbench.cli.output import Axes
    from workbench.naming import TIMED

    axes = Axes.of([*shown, *failures])
    timed = {row["scheme"] for row in shown if row["time_s"] is not None and row["source"] in TIMED}
    schedules: dict[str, list[str]] = {}
    for row in failures:
        alone = "" if row["part"] == "whole" else f" ({row['part']} alone)"
        name = axes.label(row) if row["scheme"] in timed else row["scheme"]
        schedules.setdefault(str(row["message"]), []).append(f"{name}{alone}")
    schemes = {row["scheme"] for row in rows}
    for message, names in schedules.items():
        is_all = schemes.issuperset(names) and (len(schemes) == 1 or len(names) == len(rows))
        unique = list(dict.fromkeys(names))
        say(message if is_all else f"{', '.join(unique)} {'has' if len(unique) == 1 else 'have'} no time: {message}")


def _summary(rows: Sequence[Mapping[str, Any]], result: RunResult | None) -> dict[str, Any]:
    """The summary of a run: how it ended, counts, and the fastest schedule of each problem.

    `best` is the fastest of all, if there is one problem only. `status` is the exit status, and `status_about` its
    reason if it is not 0. `run_again` lists trials that were interrupted when a rank was lost. `not_begun` counts those
    that remained when the run ended early, and `ended_early` says why a search did. `measure_together` says which rows
    have no ratio and what to do, null where all of them compare. `off` lists estimates that are off.
    """
    from workbench.cli.output import by_problem
    from workbench.results.comparison import comparison_advice

    bests = [document(part[0].row) for part in by_problem(rows)]
    counts = {outcome: sum(row["outcome"] == outcome for row in rows)
              for outcome in ("measurement", "estimate", "failure")}  # fmt: skip
    counts["refused"] = sum(row["stage"] == "refused" for row in rows)
    error = str(result.error) if result and result.error else None
    ended = {"stopped": result is not None and result.stopped, "message": error,
             "run_again": result.again.to_json() if result else [], "not_begun": result.not_begun if result else 0,
             "ended_early": result.ended_early if result else "",
             "status": result.status if result else exit_status.of_rows(rows),
             "status_about": result.about() if result else exit_status.status_reason(rows)}  # fmt: skip
    return {"run": result.run if result else None, **counts, **ended,
            "best": bests[0] if len(bests) == 1 else None, "bests": bests,
            "measure_together": comparison_advice(rows) or None,
            "off": [each.to_json() for each in _off(result.rows if result else ())]}  # fmt: skip


def _swept(rows: Sequence[Mapping[str, Any]], result: RunResult, store: Path | None) -> str:
    """The counts of a sweep, and the command that reports it."""
    timed = sum(row["outcome"] == "measurement" for row in rows)
    known = sum(row["source"] == "recorded" for row in rows)
    text = f"{timed} measured{f' ({known} known from before)' if known else ''}, "
    text += exit_status.counted(rows)
    others = sum(not row["requested"] for row in result.failed())
    text += f", {others} of their baselines and parts failed" if others else ""
    text += ", stopped before the end" if result.stopped else ""
    of_store = f" --store {shlex.quote(str(store))}" if store is not None else ""  # `last` of another is another run
    return f"{text}. A report of them:\n  workbench report last -o report.html{of_store}" if timed else f"{text}."


def _without_marks(row: Mapping[str, Any]) -> dict[str, Any]:
    from kernels.outcome import ROW_KEYS

    return {key: row[key] for key in ROW_KEYS}
