"""Commands that answer a question: run, predict, sweep, recommend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cluster.watchdog import WAIT_S
from workbench.cli import exit_status, options
from workbench.cli.options import Words, asking, documented
from workbench.cli.options import request as request_of
from workbench.cli.output import document, say, say_known, say_off, show_failures, show_json, show_outcomes, show_rows
from workbench.cli.sessions import RunResult, estimated, measured, opened, placed

if TYPE_CHECKING:
    from workbench.analysis.accuracy import EstimateError
    from workbench.experiment.question import Request


@asking()
def run(
    words: Words,
    cluster: options.Cluster = None,
    wait: options.Wait = WAIT_S,
    fresh: options.Fresh = False,
    store: options.StorePath = None,
    json: options.Json = False,
) -> int:
    """Measure one schedule, or compare three, interleaved in one sitting with what they are compared with.

    Of the floor: the time over what no schedule can beat, which is computation alone at its fastest, or the fewest
    bytes over the link. Speed-up over sequential: how many times faster than computing first and communicating then.
    """
    with documented(json, words, "measured"):
        typed = placed(request_of(words), cluster)
        request = typed.measured()
        experiment = request.experiment(parts="each", together=True, fresh=fresh)
        sat = measured(experiment, request.machine_description(), cluster, store, wait)
        wanted = sat.asked()
        if not wanted:
            raise sat.reason()
        if json:
            _show_documents(wanted, typed, sat)
    if not json:
        whole = [row for row in sat.rows if row["part"] == "whole"]
        show_outcomes(whole)
        say_known([row for row in whole if row["source"] != "estimated"])
    _say_failures(wanted, sat.failed(), [row for row in sat.rows if row["part"] == "whole"])
    say_off(_off(sat.rows))
    _say_end(sat)
    return sat.status


@asking()
def predict(
    words: Words,
    cluster: options.Estimated = None,
    store: options.StorePath = None,
    json: options.Json = False,
) -> int:
    """Ask the simulator the same question, for this computer or any machine."""
    from workbench.experiment.sources import predictions

    with documented(json, words, "estimated"):
        request = estimated(request_of(words), cluster)
        known = opened(store) if _store_path(store).exists() else None
        rows = predictions(request.experiment(), request.machine_description(), known)
        _refuse_nothing(rows)
        if json:
            _show_documents(rows, request)
    if not json:
        show_outcomes(rows)
    _say_failures(rows, [row for row in rows if row["outcome"] == "failure"])
    return exit_status.of_rows(rows)


def sweep(
    space: Annotated[Path, typer.Argument(help="A TOML file: problems, schemes and lists of axis values.")],
    cluster: options.Cluster = None,
    wait: options.Wait = WAIT_S,
    fresh: options.Fresh = False,
    store: options.StorePath = None,
    every: options.Every = False,
    json: options.Json = False,
) -> int:
    """Measure a space of schedules; whatever is known is not measured again.

    \b
    A space, as in data/spaces/u_curve.toml.
    Every combination of the lists is measured:
      operator = "gemm_all_to_all"     # or a list
      preset = "laptop_ladder"         # or [shape], then m = 64, n = [32, 64]
      world = [2]
      search = {kind = "random", count = 20}   # default: "exhaustive"
      [scheme.sequential]
      [scheme.decomposed]
      pieces = [1, 2, 4, 8, 16, 32, 64]        # or "all"

    Axes that are not stated keep their default. A file may also state dtype, machine, fabric, protocol, title and
    parts. To tune, state kind = "estimate_first": the 20 estimated fastest are measured, and `workbench recommend`
    names the winner.
    """
    from dataclasses import replace

    from workbench import machines
    from workbench.experiment import question
    from workbench.experiment.space import left_out_words

    experiment = replace(question.load(space, lambda request: placed(request, cluster)), fresh=fresh)
    sat = measured(experiment, machines.machine(experiment.machine), cluster, store, wait)
    wanted = [row for row in sat.rows if row["asked"]]
    if json:
        show_rows([_without_marks(row) for row in sat.rows], _summary(wanted, sat))
    else:
        show_outcomes(wanted, title=experiment.title, every=every)
        show_failures([*wanted, *(row for row in sat.failed() if not row["asked"])], every=every)
        say_known([row for row in wanted if row["source"] != "estimated"])
        say(_swept(wanted, sat))
        place = machines.machine(experiment.machine)
        if words := left_out_words([experiment.points(each, place, measured=True) for each in experiment.problems]):
            say(words)
        say_off(_off(sat.rows))
    _say_end(sat)
    return sat.status


@asking(without=("protocol",))
def recommend(
    words: Words,
    count: Annotated[int, typer.Option(min=1, help="How many schedules to name.")] = 5,
    cluster: options.Estimated = None,
    store: options.StorePath = None,
    json: options.Json = False,
) -> int:
    """Name the fastest schedules that were measured, then those worth measuring, by closed form of the whole space.

    Axes that are set stay so. Winners are found among recordings and your own runs of the same hardware.
    """
    from dataclasses import replace

    from kernels.schemes import COMPARED
    from workbench.cli.recommend import show_recommended, winners_known
    from workbench.experiment.links import link_here
    from workbench.experiment.recommend import every
    from workbench.experiment.recommend import recommend as best_of
    from workbench.results import metrics

    with documented(json, words, "estimated"):
        request = estimated(request_of(words), cluster)
        place = request.machine_description()
        problem, link = request.problem(place), request.link(place)
        winners, measured_rows = winners_known(request, _store_path(store))
        free = every(request.schemes or COMPARED, problem, place, link)
        request = replace(request, settings=tuple((free | dict(request.settings)).items()))
        experiment = request.experiment()
        with opened(store) if _store_path(store).exists() else nullcontext() as remembers:
            ranks = replace(experiment.ranks(place), fabric=link_here(link, problem, place, remembers))
        named, num_points = best_of(problem, ranks, experiment.space, experiment.protocol, count)
    rows = [{**metrics.row_of(each.estimate, None, place), "alike": each.alike} for each in named]
    if json:
        facts = {"points": num_points, "machine": place.name, "tuned": [each.to_json() for each in winners.winners],
                 "alike": [dict(each.alike) for each in named]}  # fmt: skip
        show_rows([document(row) for row in (*measured_rows, *rows)], facts)
        return 0
    show_recommended(winners, measured_rows, rows, num_points)
    return 0


def _refuse_nothing(rows: Sequence[Mapping[str, Any]]) -> None:
    if all(row["outcome"] == "failure" for row in rows):
        raise ValueError(rows[0]["message"])


def _store_path(path: Path | None) -> Path:
    from workbench.results.store import store_path

    return store_path(path)


def _show_documents(wanted: Sequence[Mapping[str, Any]], request: Request, sat: RunResult | None = None) -> None:
    """One document where one scheme was stated; rows where several are compared."""
    if request.schemes:
        show_json(document(wanted[-1]))
    else:
        show_rows([document(row) for row in wanted], _summary(wanted, sat))


def _off(rows: Sequence[Mapping[str, Any]]) -> list[EstimateError]:
    from workbench.analysis.accuracy import wrong_estimates

    return wrong_estimates(rows)


def _say_end(sat: RunResult) -> None:
    """What ended the run, where something did that no outcome tells; what ran again, and what was never begun."""
    if sat.again.sentence():
        say(sat.again.sentence())
    if sat.error is not None and sat.not_begun:
        say(f"{sat.not_begun:,} {'schedule was' if sat.not_begun == 1 else 'schedules were'} not begun.")
    if sat.error is not None and not any(row["message"] == str(sat.error) for row in sat.failed()):
        say(str(sat.error))


def _say_failures(
    rows: Sequence[Mapping[str, Any]],
    failures: Sequence[Mapping[str, Any]],
    shown: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Each sentence once: what a computer cannot do, it often cannot do for three schemes.

    Where other schemes have a time, or only a part failed, the sentence names whose it is; where another schedule of
    the scheme is *shown* with a time, by its axes.
    """
    from workbench.cli.output import Axes
    from workbench.naming import TIMED

    axes = Axes.of([*shown, *failures])
    timed = {row["scheme"] for row in shown if row["time_s"] is not None and row["source"] in TIMED}
    whose: dict[str, list[str]] = {}
    for row in failures:
        alone = "" if row["part"] == "whole" else f" ({row['part']} alone)"
        name = axes.label(row) if row["scheme"] in timed else row["scheme"]
        whose.setdefault(str(row["message"]), []).append(f"{name}{alone}")
    schemes = {row["scheme"] for row in rows}
    for message, names in whose.items():
        is_all = schemes.issuperset(names) and (len(schemes) == 1 or len(names) == len(rows))
        who = list(dict.fromkeys(names))
        say(message if is_all else f"{', '.join(who)} {'has' if len(who) == 1 else 'have'} no time: {message}")


def _summary(rows: Sequence[Mapping[str, Any]], sat: RunResult | None) -> dict[str, Any]:
    """How it ended, counts, the fastest of each problem; `best` is that of the one problem, where there is one only.

    `status` is the exit status, and `status_about` says in a sentence what it is about where it is not 0.
    `run_again` says what was broken off when a rank was lost; `not_begun` how many were left when the run ended early.
    `measure_together` says what has no ratio, and what to do; null where all of it compares. `off`: whose estimates.
    """
    from workbench.cli.output import by_problem
    from workbench.results.comparison import comparison_advice

    bests = [document(part[0].row) for part in by_problem(rows)]
    counts = {outcome: sum(row["outcome"] == outcome for row in rows)
              for outcome in ("measurement", "estimate", "failure")}  # fmt: skip
    counts["refused"] = sum(row["stage"] == "refused" for row in rows)
    ended = {"stopped": sat is not None and sat.stopped, "message": str(sat.error) if sat and sat.error else None,
             "run_again": sat.again.to_json() if sat else [], "not_begun": sat.not_begun if sat else 0,
             "status": sat.status if sat else exit_status.of_rows(rows),
             "status_about": sat.about() if sat else exit_status.about(rows)}  # fmt: skip
    return {"run": sat.run if sat else None, **counts, **ended,
            "best": bests[0] if len(bests) == 1 else None, "bests": bests,
            "measure_together": comparison_advice(rows) or None,
            "off": [each.to_json() for each in _off(sat.rows if sat else ())]}  # fmt: skip


def _swept(rows: Sequence[Mapping[str, Any]], sat: RunResult) -> str:
    """What a sweep came to, and what to do with it."""
    timed = sum(row["outcome"] == "measurement" for row in rows)
    known = sum(row["source"] == "recorded" for row in rows)
    said = f"{timed} measured{f' ({known} known from before)' if known else ''}, "
    said += exit_status.counted(rows)
    beside = sum(not row["asked"] for row in sat.failed())
    said += f", {beside} of what stands beside them failed" if beside else ""
    said += ", stopped before the end" if sat.stopped else ""
    return f"{said}; `workbench report last -o report.html` shows them." if timed else f"{said}."


def _without_marks(row: Mapping[str, Any]) -> dict[str, Any]:
    from kernels.outcome import ROW_KEYS

    return {key: row[key] for key in ROW_KEYS}
