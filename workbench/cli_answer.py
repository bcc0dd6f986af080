"""Commands that answer a question: run, predict, sweep, recommend."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from signal import default_int_handler
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workbench import cli_options as options
from workbench.cli_show import (
    document,
    problem,
    say,
    say_known,
    schedule,
    show_failures,
    show_json,
    show_outcomes,
    show_rows,
    show_table,
)

if TYPE_CHECKING:
    from kernels.machine import Machine
    from workbench.experiment import Experiment
    from workbench.request import Request
    from workbench.store import Store

FAILED, REFUSED, STOPPED = 1, 2, 130


def run(
    operator: options.Operator,
    preset: options.Preset = None,
    shape: options.Shape = None,
    dtype: options.Dtype = None,
    world: options.World = None,
    scheme: options.Scheme = None,
    settings: options.Settings = None,
    backend: options.Backend = None,
    machine: options.Machine = None,
    fabric: options.Fabric = None,
    protocol: options.Protocol = "default",
    cluster: options.Cluster = None,
    fresh: options.Fresh = False,
    store: options.StorePath = None,
    json: options.Json = False,
) -> int:
    """Measure one schedule, or compare three, interleaved in one sitting with what they are compared with."""
    asked = {"preset": preset, "dtype": dtype, "world": world, "backend": backend, "machine": machine,
             "fabric": fabric, "protocol": protocol}  # fmt: skip
    with documented(json, operator, scheme, "measured", asked, shape, settings):
        request = _request(operator, shape, scheme, settings, asked).measured()
        experiment = request.experiment(parts="each", together=True, fresh=fresh)
        rows, stopped = measured(experiment, request.machine_description(), cluster, store)
    wanted = [row for row in rows if row["asked"] and row["source"] != "estimated"]
    if not wanted:
        say("Stopped before anything was measured.")
    elif json:
        _show_documents(wanted, scheme)
    else:
        whole = [row for row in rows if row["part"] == "whole"]
        show_outcomes(problem(wanted[-1]), whole)
        say_known([row for row in whole if row["source"] != "estimated"])
    _say_failures(wanted)
    return STOPPED if stopped else _status(wanted)


def predict(
    operator: options.Operator,
    preset: options.Preset = None,
    shape: options.Shape = None,
    dtype: options.Dtype = None,
    world: options.World = None,
    scheme: options.Scheme = None,
    settings: options.Settings = None,
    backend: options.Backend = None,
    machine: options.Machine = None,
    fabric: options.Fabric = None,
    protocol: options.Protocol = "default",
    store: options.StorePath = None,
    json: options.Json = False,
) -> int:
    """Ask the simulator the same question, for this computer or any machine."""
    from workbench.predictions import predictions

    asked = {"preset": preset, "dtype": dtype, "world": world, "backend": backend, "machine": machine,
             "fabric": fabric, "protocol": protocol}  # fmt: skip
    with documented(json, operator, scheme, "estimated", asked, shape, settings):
        request = _request(operator, shape, scheme, settings, asked)
        known = opened(store) if _store_path(store).exists() else None
        rows = predictions(request.experiment(), request.machine_description(), known)
        _refuse_nothing(rows)
    if json:
        _show_documents(rows, scheme)
    else:
        show_outcomes(problem(rows[0]), rows)
    _say_failures(rows)
    return _status(rows)


def sweep(
    space: Annotated[Path, typer.Argument(help="A TOML file: problems, schemes and lists of axis values.")],
    cluster: options.Cluster = None,
    fresh: options.Fresh = False,
    store: options.StorePath = None,
    json: options.Json = False,
) -> int:
    """Measure a space of schedules; whatever is known is not measured again.

    \b
    A space, as in data/spaces/u_curve.toml; every combination of the lists is measured:
      operator = "gemm_all_to_all"       # or a list of operators
      preset = "laptop_ladder"           # or [shape], then m = 1024, n = [512, 1024], k = 3072
      world = [2]                        # also: dtype, machine, fabric, protocol, title, parts
      search = {kind = "random", count = 20}   # default: "exhaustive". To tune, take "estimate_first":
                                         # the 20 estimated fastest are measured, and `recommend` names the winner
      [scheme.sequential]                # axes that are not stated keep their default
      [scheme.decomposed]
      pieces = [1, 2, 4, 8, 16, 32, 64]  # or "all"
    """
    from dataclasses import replace

    from workbench import machines, space_file

    experiment = replace(space_file.load(space), fresh=fresh)
    rows, stopped = measured(experiment, machines.machine(experiment.machine), cluster, store)
    wanted = [row for row in rows if row["asked"]]
    summary = {**_summary(wanted, stopped), "run": rows[0]["run"] if rows else None}
    if json:
        show_rows([_without_marks(row) for row in rows], summary)
    else:
        show_outcomes(experiment.title, wanted)
        show_failures(wanted)
        say_known([row for row in wanted if row["source"] != "estimated"])
        say(_swept(wanted, stopped))
    return STOPPED if stopped else 0


def recommend(
    operator: options.Operator,
    preset: options.Preset = None,
    shape: options.Shape = None,
    dtype: options.Dtype = None,
    world: options.World = None,
    scheme: options.Scheme = None,
    settings: options.Settings = None,
    backend: options.Backend = None,
    machine: options.Machine = None,
    fabric: options.Fabric = None,
    count: Annotated[int, typer.Option(min=1, help="How many schedules to name.")] = 5,
    store: options.StorePath = None,
    json: options.Json = False,
) -> int:
    """Name the fastest schedules that were measured, then those worth measuring, by closed form of the whole space.

    Axes that are set stay so. Winners are found among recordings and your own runs of the same hardware.
    """
    from dataclasses import replace

    from workbench import metrics
    from workbench.cli_tuned import found, show
    from workbench.recommend import every
    from workbench.recommend import recommend as best_of
    from workbench.request import COMPARED

    asked = {"preset": preset, "dtype": dtype, "world": world, "backend": backend, "machine": machine,
             "fabric": fabric}  # fmt: skip
    with documented(json, operator, scheme, "estimated", asked, shape, settings):
        request = _request(operator, shape, scheme, settings, asked)
        place = request.machine_description()
        stated, link = request.problem(place), request.link(place)
        winners, measured_rows = found(request, _store_path(store))
        free = every(request.schemes or COMPARED, stated, place, link)
        request = replace(request, settings=tuple((free | dict(request.settings)).items()))
        experiment = request.experiment()
        estimates, num_points = best_of(stated, place, link, experiment.space, experiment.protocol, count)
    rows = [metrics.row_of(estimate, None, place) for estimate in estimates]
    if json:
        facts = {"points": num_points, "machine": place.name, "tuned": [each.to_json() for each in winners.winners]}
        show_rows([document(row) for row in (*measured_rows, *rows)], facts)
        return 0
    from kernels.units import seconds_text

    show(winners)
    title = f"{problem(rows[0])}; {num_points:,} points looked at" if rows else "No schedule is legal."
    show_table(title, ("schedule", "estimated", "at least", "at most"),
               [(schedule(row), *map(seconds_text, (row["time_s"], row["low_s"], row["high_s"]))) for row in rows],
               right=("estimated", "at least", "at most"))  # fmt: skip
    if rows and not place.calibrated:
        say(f"{place.name} is not calibrated: read the order, not the size.")
    return 0


def measured(experiment: Experiment, machine: Machine, address: str | None,
             path: Path | None) -> tuple[list[dict[str, Any]], bool]:  # fmt: skip
    """All rows of a run of *experiment*, and whether it was stopped.

    They are marked with whether they were `asked` for, and with `known_since`, when they were measured earlier.
    """
    from workbench.answer import FromCluster
    from workbench.cli_measure import OnDemand, interrupted, watch
    from workbench.experiment import run as begin
    from workbench.outlook import outlook

    world = max(problem.world for problem in experiment.problems)
    _refuse_unmeasurable(machine, world, address)
    _refuse_illegal(experiment, machine)
    with opened(path) as store:
        ahead = outlook(experiment, machine, store)
        with interrupted(default_int_handler), OnDemand(address, world, ahead, machine.backend) as cluster:
            sitting = begin(experiment, store, FromCluster(cluster), machine)
            watch(sitting, ahead)
        rows = [{**row, "asked": row["key"] in sitting.asked, "known_since": _started_at(store, row["origin"])}
                for row in store.rows(sitting.run)]  # fmt: skip
        return rows, sitting.cancelled.is_set()


def _started_at(store: Store, run: str | None) -> float | None:
    return float(store.run(run)["started_at"]) if run else None


def _refuse_unmeasurable(machine: Machine, world: int, address: str | None) -> None:
    """Said before *world* ranks are started that could not measure on *machine*."""
    if machine.backend == "cpu":
        return
    from cluster.launch import running
    from cluster.launch.local import Local
    from workbench import machines

    found = None if address is not None else running()
    elsewhere = address is not None or (found is not None and found.kind != Local.name)
    if (sentence := machines.unmeasurable(machine, world, elsewhere)) is not None:
        raise ValueError(sentence)


def _refuse_illegal(experiment: Experiment, machine: Machine) -> None:
    """Said before a cluster is started for nothing."""
    found = [experiment.points(problem, machine) for problem in experiment.problems]
    if not any(points.schedules for points in found):
        raise ValueError(found[0].refused[0][1])


def _refuse_nothing(rows: Sequence[Mapping[str, Any]]) -> None:
    if all(row["outcome"] == "failure" for row in rows):
        raise ValueError(rows[0]["message"])


def opened(path: Path | None) -> Store:
    """The store at *path*, or one's own."""
    from workbench.store import Store

    return Store(path)


def _store_path(path: Path | None) -> Path:
    from workbench import resources
    from workbench.store import STORE_FILE

    return path or resources.runs_directory() / STORE_FILE


def _request(operator: str, shape: list[str] | None, scheme: str | None, settings: list[str] | None,
             stated: Mapping[str, Any]) -> Request:  # fmt: skip
    from workbench.request import Request, pairs

    return Request(
        operator=operator, shape=pairs(shape or (), "--shape"), schemes=(scheme,) if scheme else (),
        settings=tuple((name, (value,)) for name, value in pairs(settings or (), "--set")), **stated,
    )  # fmt: skip


@contextmanager
def documented(
    json: bool, operator: str, scheme: str | None, source: str, asked: Mapping[str, Any],
    shape: Sequence[str] | None, settings: Sequence[str] | None,
) -> Iterator[None]:  # fmt: skip
    """A refusal prints its failure document, too: what was typed, as far as a document has a place for it."""
    try:
        yield
    except ValueError as error:
        if json:
            typed = {"operator": operator, "scheme": scheme, **asked}
            typed |= {"shape": dict(text.partition("=")[::2] for text in shape or ()) or None,
                      "axes": dict(text.partition("=")[::2] for text in settings or ()) or None}  # fmt: skip
            failed = {"outcome": "failure", "source": source, "stage": "refused", "message": str(error)}
            show_json(document({**typed, **failed}))
        raise


def _show_documents(wanted: Sequence[Mapping[str, Any]], scheme: str | None) -> None:
    """One document for one schedule; rows where three are compared."""
    if scheme is not None:
        show_json(document(wanted[-1]))
    else:
        show_rows([document(row) for row in wanted], _summary(wanted, stopped=False))


def _say_failures(rows: Sequence[Mapping[str, Any]]) -> None:
    """Each sentence once: what a computer cannot do, it often cannot do for three schemes."""
    for message in dict.fromkeys(row["message"] for row in rows if row["outcome"] == "failure"):
        say(str(message))


def _summary(rows: Sequence[Mapping[str, Any]], stopped: bool) -> dict[str, Any]:
    timed = [row for row in rows if row["source"] in ("measured", "recorded") and row["time_s"] is not None]
    timed = timed or [row for row in rows if row["time_s"] is not None]
    best = min(timed, key=lambda row: row["time_s"], default=None)
    counts = {outcome: sum(row["outcome"] == outcome for row in rows)
              for outcome in ("measurement", "estimate", "failure")}  # fmt: skip
    return {"run": rows[0]["run"] if rows else None, **counts, "stopped": stopped, "best": best and document(best)}


def _swept(rows: Sequence[Mapping[str, Any]], stopped: bool) -> str:
    """What a sweep came to, and what to do with it."""
    timed = sum(row["outcome"] == "measurement" for row in rows)
    known = sum(row["source"] == "recorded" for row in rows)
    failed = sum(row["outcome"] == "failure" for row in rows)
    said = f"{timed} measured{f' ({known} known from before)' if known else ''}, {failed} failed"
    said += ", stopped before the end" if stopped else ""
    return f"{said}; `workbench report last -o report.html` shows them." if timed else f"{said}."


def _without_marks(row: Mapping[str, Any]) -> dict[str, Any]:
    from kernels.outcome import ROW_KEYS

    return {key: row[key] for key in ROW_KEYS}


def _status(rows: Sequence[Mapping[str, Any]]) -> int:
    """2 when everything was refused, 1 when something failed otherwise."""
    stages = [row["stage"] for row in rows if row["outcome"] == "failure"]
    if rows and stages.count("refused") == len(rows):
        return REFUSED
    return FAILED if any(stage != "refused" for stage in stages) or not rows else 0
