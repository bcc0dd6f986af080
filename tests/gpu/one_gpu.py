"""Every world on one GPU: `CUDA_VISIBLE_DEVICES=0 python -m tests.gpu.one_gpu [OUT.json] [--worlds 2 4 8]`.

All ranks share the first GPU: order and results are real, times are not. Operators and schemes with their timelines,
calls back to back with slow ranks, numbers of calls that wrap, a second list, torch.ops.workbench, ranks that are
killed or stopped, and the playground. One line per check and world, then a table; the status is how many failed. Dask
is not needed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from kernels.backends.triton import playground
from kernels.fabric import TIMES_ARE_NOT
from kernels.outcome import Measurement
from kernels.plan import Kind
from kernels.schemes import expand
from kernels.trial import Trial
from tests.gpu import gang, ops, test_concurrent, test_decomposed, test_kernels, test_timeline, wrapping
from tests.gpu.stress import several
from tests.gpu.test_decomposed import LEFT_S, ONCE, leave
from tests.kernels.backends.triton import tutorial
from tests.kernels.ops.ops_gang import OpsGang
from tests.kernels.ops.ops_main import CALLED

SECONDS = 1500.0
"""All of it; what does not fit is said to be not reached."""
CALLS = 400
FEWEST = 2
"""The world that is asked everything; larger ones only what depends on their number, since their turns take longer."""
LEAVES = ("killed", "stopped")
"""How a rank leaves, in every world."""
APART = ("library_tuned", "overlapped")
"""Collectives of the library that may need more than ranks of one GPU have: what they raise costs no other schedule."""
MANY = 12
"""Schedules of one problem that a sitting prepares together."""
OF_OPS = (
    "every_operator_is_right", "a_graph_is_replayed_with_changed_inputs", "calls_back_to_back_with_slow_ranks",
    "fresh_operands_groups_and_shapes_in_turns", "two_graphs_in_turns_share_a_heap",
    "gradients_are_those_of_the_whole", "ranks_that_mean_different_things_are_told",
)  # fmt: skip
"""Checks of torch.ops.workbench in worlds of more than two ranks; two ranks make all of them.

Not those that a deadline of seconds ends: turns of eight ranks may take as long.
"""

Checked = tuple[str, str]
"""What was checked, and what was wrong; empty if nothing was."""
Part = Callable[[int, float], Iterator[Checked]]
"""Checks of a world within some seconds."""


# The schedules: whole sittings of one problem, since the ranks then draw operands and compute the reference once.


def schedules(world: int) -> list[gang.Sitting]:
    """Every scheme of every operator that ranks of one GPU run, a problem in a sitting."""
    names = [way for way in test_kernels.WAYS if world == FEWEST or "our kernel" not in way]
    ways = [trial for way in names for trial in test_kernels.trials(world, way)]
    some = 1 if world == FEWEST else 3
    pieces, streams = test_decomposed.stressed_schedules(world)[::some], test_concurrent.stressed(world)[::some]
    by_problem: dict[tuple[str, bool], dict[str, dict[str, Any]]] = {}
    for entry in (*ways, *pieces, *streams):
        if gang.runs(entry, world):
            trial = replace(Trial.from_json(entry), protocol=ONCE)
            apart = trial.schedule.get("collective") in APART
            by_problem.setdefault((json.dumps(entry["problem"]), apart), {})[trial.key] = trial.to_json()
    every = [list(trials.values()) for trials in by_problem.values()]
    return [trials[at : at + MANY] for trials in every for at in range(0, len(trials), MANY)]


def right(world: int, seconds: float) -> Iterator[Checked]:
    """Every schedule is right, and shows its timeline or says why it has none."""
    sittings = schedules(world)
    expected, came = sum(map(len, sittings)), 0
    for told in gang.run(sittings, world, seconds):
        if isinstance(told, str):
            yield "gang", told
            continue
        came += 1
        yield f"{told[0].trial.problem.operator} {told[0].trial.schedule}", wrong(told[0])
    yield f"all {expected} schedules", "" if came == expected else f"{came} of {expected} came to an end"


def wrong(outcome: Any) -> str:
    """What is wrong with the outcome of a schedule, in words."""
    if not isinstance(outcome, Measurement):
        return str(getattr(outcome, "message", outcome))
    if not outcome.correct:
        return f"a wrong result: largest error {outcome.max_relative_error}"
    plan = expand(outcome.trial.problem, outcome.trial.schedule)
    streams = len(set(plan.launches.stream[plan.launch[plan.steps_of(0)]].tolist()))
    if streams > 1:
        said = str(outcome.unseen or "")
        is_silent = said.startswith("No timeline") or not outcome.spans  # torch's own operators have none to show
        return "" if is_silent else f"a timeline of {streams} streams: {said or 'it was shown'}"
    if outcome.unseen:
        return f"no timeline: {outcome.unseen}"
    shown, computed = {span.step for span in outcome.spans}, test_timeline.planned(plan, Kind.COMPUTE)
    if not computed <= shown <= test_timeline.planned(plan, *Kind):
        return f"{len(shown)} steps are in its timeline, and {len(computed - shown)} that compute are not"
    try:
        test_timeline.check_order(outcome)
    except AssertionError as error:
        return f"its timeline is out of order: {error}"
    return ""


# Calls without waiting, numbers that wrap, a second list, and ranks that leave: what every rank says.


def calls(world: int, seconds: float) -> Iterator[Checked]:
    """Fused operators, and in a world of two pieces and two streams: back to back, and where numbers of calls wrap."""
    fused = test_kernels.trials(world, "fused")
    others = [*test_decomposed.stressed_schedules(world)[::3], *test_concurrent.stressed(world)[::3]]
    wraps = [trial for trial in wrapping.trials(world) if gang.runs(trial, world)]
    few = world > FEWEST
    asked = [("stress", trial) for trial in (fused if few else [*fused, *others])]
    asked += [("epochs", trial) for trial in (wraps[: len(fused)] if few else wraps)]
    asked += [] if few else [("a second list", trial) for trial in fused[:2]]
    entries = [{"work": name, "trial": gang.linked(trial, world)} for name, trial in asked]
    answers = gang.answered(partial(several, calls=gang.fewer(CALLS, world)), entries, world, seconds)
    for number, (name, trial) in enumerate(asked):
        ranks = answers.get(number, [])
        bad = [
            str(answer) for answer in ranks if not (compiles_once if "lists" in answer else wrapping.is_right)(answer)
        ]
        absent = [f"{len(ranks)} of {world} ranks answered"] if len(ranks) < world else []
        label = f"{name}: {trial['problem']['operator']} {Trial.from_json(trial).schedule}"
        yield label, " ".join([*absent, *bad])


def compiles_once(answer: dict[str, Any]) -> bool:
    """Whether a second list of the same trials compiled nothing, and came to its end."""
    _, second = answer.get("lists", ({}, {}))
    return bool(second.get("kernels") == 0 and second.get("results") == 1)


def leaves(world: int, seconds: float) -> Iterator[Checked]:
    """Nobody waits for a rank that was killed or stopped in mid-call longer than a deadline."""
    for how in LEAVES:
        entry = test_kernels.trials(world, "fused")[0]
        answers = gang.answered(partial(leave, how=how), [entry], world, seconds / 2, leaving=1).get(0, [])
        bad = [str(answer) for answer in answers
               if "waited" not in (answer.get("failure") or "") or answer.get("seconds", LEFT_S) >= LEFT_S]  # fmt: skip
        absent = [f"{len(answers)} of {world - 1} ranks answered"] if len(answers) < world - 1 else []
        yield f"a rank is {how}", " ".join([*absent, *bad])


# PyTorch operators and the playground.


def operators(world: int, seconds: float) -> Iterator[Checked]:
    """torch.ops.workbench: all checks in a world of two, some in larger ones."""
    made, until = ops.gang_of(world), time.monotonic() + seconds
    try:
        for check, dtype, arguments in ops.asked(world):
            if world == FEWEST or (check in OF_OPS and CALLED not in arguments):
                yield _op(made, check, dtype, _fewer(arguments, world), until)
    finally:
        made.close()


def _op(made: OpsGang, check: str, dtype: str, arguments: dict[str, Any], until: float) -> Checked:
    name = " ".join([check, *map(str, arguments.values())])
    left_s = min(ops.DEADLINE_S, until - time.monotonic())
    if left_s < 1.0:
        return name, "not reached"
    try:
        made.check(check, dtype, deadline_s=left_s, **arguments)
    except (AssertionError, OSError) as error:
        return name, str(error)[-900:]
    return name, ""


def _fewer(arguments: dict[str, Any], world: int) -> dict[str, Any]:
    calls = {"calls": gang.fewer(arguments["calls"], world)} if "calls" in arguments else {}
    return arguments | calls


def own_kernels(world: int, seconds: float) -> Iterator[Checked]:
    """The tutorial's first messages, compiled."""
    with tempfile.TemporaryDirectory() as folder, tutorial.importable(Path(folder)):
        one_message, sum_of_all = map(import_module, ("one_message", "sum_of_all"))
        with playground.ranks(world, interpreted=False, deadline_s=seconds) as made:
            sent, added = made.run(one_message.send), made.run(sum_of_all.add)
    factor = world * (world + 1) // 2
    yield "send", "" if sent == [[10 + (rank - 1) % world] * 8 for rank in range(world)] else str(sent)
    yield "add", "" if added == [[factor * value for value in range(8)]] * world else str(added)


PARTS: dict[str, tuple[Part, float]] = {
    "schedules": (right, 100.0), "calls": (calls, 90.0), "torch.ops": (operators, 120.0), "leaves": (leaves, 60.0),
    "playground": (own_kernels, 40.0),
}  # fmt: skip
"""The parts, each with the most seconds of a world of two; larger worlds have more.

Each part starts its ranks once, or once for each that leaves."""


# The command.


@dataclass(frozen=True, slots=True)
class Line:
    """One check of one world."""

    part: str
    world: int
    check: str
    wrong: str
    seconds: float


def played(part: str, world: int, until: float) -> Iterator[Line]:
    """The lines of *part* in *world*; what it raises is a line as well."""
    checks, most_s = PARTS[part]
    began_at = time.monotonic()
    if until - began_at < 10.0:
        yield Line(part, world, "all", "not reached", 0.0)
        return
    try:
        for check, what in checks(world, min(most_s * world / 2, until - began_at)):
            yield Line(part, world, check, what, time.monotonic() - began_at)
    except Exception:
        yield Line(part, world, "all", traceback.format_exc()[-900:], time.monotonic() - began_at)


def table(lines: list[Line], worlds: list[int]) -> str:
    """How many checks of each part and world passed, of how many, and in how many seconds."""
    rows = [f"{'':12}" + "".join(f"{f'world {world}':>24}" for world in worlds)]
    for part in dict.fromkeys(line.part for line in lines):
        cells = []
        for world in worlds:
            of = [line for line in lines if (line.part, line.world) == (part, world)]
            passed = sum(not line.wrong for line in of)
            mark = " " if passed == len(of) else "!"
            cells.append(f"{mark}{passed} of {len(of)}, {max((line.seconds for line in of), default=0.0):.0f} s")
        rows.append(f"{part:12}" + "".join(f"{cell:>24}" for cell in cells))
    return "\n".join(rows)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.one_gpu", description=__doc__)
    parser.add_argument("output", type=Path, nargs="?", help="Every line, as JSON.")
    parser.add_argument("--worlds", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--parts", nargs="+", choices=tuple(PARTS), default=list(PARTS))
    parser.add_argument("--seconds", type=float, default=SECONDS)
    chosen = parser.parse_args(arguments)
    if torch.cuda.device_count() != 1:
        print(f"One GPU is to be shared, and torch finds {torch.cuda.device_count()}. Accepted: a host with 1, or "
              "CUDA_VISIBLE_DEVICES=0 before the command.", file=sys.stderr)  # fmt: skip
        return 2
    print(f"{torch.cuda.get_device_name(0)}, torch {torch.__version__}. {TIMES_ARE_NOT}", flush=True)
    until, lines = time.monotonic() + chosen.seconds, list[Line]()
    for part in chosen.parts:
        for world in chosen.worlds:
            for line in played(part, world, until):
                lines.append(line)
                word = "FAILED" if line.wrong else "ok"
                print(f"w{world} {part:10} {word:6} {line.seconds:5.1f} s {line.check:.90}", flush=True)
                if line.wrong:
                    print(line.wrong[-1500:], flush=True)
    print(table(lines, chosen.worlds), flush=True)
    failed = [line for line in lines if line.wrong]
    for line in failed:
        print(
            f"FAILED w{line.world} {line.part} {line.check:.90}: {line.wrong.strip().splitlines()[-1]:.200}", flush=True
        )
    if chosen.output is not None:
        chosen.output.write_text(json.dumps([{name: getattr(line, name) for name in Line.__slots__} for line in lines]))
    return min(len(failed), 100)


if __name__ == "__main__":
    sys.exit(main())
