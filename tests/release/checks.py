"""The table of checks before a release, and the loop that judges them: none is left out because another one failed."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from tests.release import faults, measuring, refusing, taking_away, together
from tests.release.commands import Miss, require
from tests.release.site import Figures, Site
from tests.release.summary import FAILED, PASSED, Result

Check = Callable[[Site], Figures]
FIRST, LAST = "cluster", "nothing_left"
"""The first starts the cluster; the last one ends it."""


def table(operators: Sequence[str]) -> dict[str, Check]:
    """Every check by its name, in order."""
    return {
        FIRST: measuring.cluster,
        "doctor": measuring.doctor,
        "bad_input": refusing.bad_input,
        **{name: partial(measuring.operator, name=name) for name in operators},
        "sweep": measuring.sweep,
        "two_clients": together.two_clients,
        "two_gangs": together.two_gangs,
        "report_and_trace": taking_away.report_and_trace,
        "ctrl_c": faults.ctrl_c,
        "rank_killed": faults.rank_killed,
        "rank_stopped": faults.rank_stopped,
        LAST: nothing_left,
    }


def nothing_left(site: Site) -> Figures:
    """The cluster ends when it is told to, and leaves no process and no shared memory."""
    began_at = time.monotonic()
    site.down()
    left = site.left_behind()
    require(not left, f"{len(left)} things outlive the cluster: {', '.join(left)}.")
    return {"down_s": time.monotonic() - began_at, "ranks_seen": len(site.pids)}


def results(site: Site, checks: dict[str, Check]) -> Iterator[Result]:
    """What each of *checks* came to."""
    for name, check in checks.items():
        yield judged(site, name, check)


def judged(site: Site, name: str, check: Check) -> Result:
    """What *check* came to; whatever it raises is told of it alone."""
    began_at = time.monotonic()
    note: str | None = None
    try:
        require(site.commands.left_s(1.0) > 0, "No time was left to begin it.")
        note = None if name == FIRST else site.ready()
        figures = check(site)
    except Exception as error:
        sentence = str(error) if isinstance(error, Miss) else f"{type(error).__name__}: {error}"
        sentence = f"{note} {sentence}" if note else sentence
        return Result(name, FAILED, time.monotonic() - began_at, sentence)
    finally:
        site.commands.end_all()
    return Result(name, PASSED, time.monotonic() - began_at, note, figures)


def tell(result: Result) -> None:
    """A line for who waits."""
    line = f"{result.outcome:8} {result.check:22} {result.seconds:6.1f} s  {result.message or ''}".rstrip()
    print(line, file=sys.stderr, flush=True)
